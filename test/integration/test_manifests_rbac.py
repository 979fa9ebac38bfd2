"""The operator with its own account: by the server's audit log it uses exactly the permissions in its roles."""

import contextlib
import functools
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.kubernetes_versions import FLOW_CONTROL_V1, FLOW_CONTROL_V1BETA2
from integration.audit import AuditLog, Fact, allowed, lists_to_fall_back_on
from integration.cluster import Cluster, replica, specs, tfjob, with_policy
from integration.operator_process import ROOT, OperatorProcess, with_token
from support.waiting import eventually
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

MANIFESTS = ROOT / "manifests"
NAMESPACE = "team-a"
LIMIT_S = 60.0
LONG_DOMAIN = ".".join(["x" * 48] * 5)
"""With host names of this length a job of twenty replicas is a large one, whose pods read a ConfigMap."""
POD_GROUPS = {"volcano": "scheduling.volcano.sh/v1beta1", "coscheduling": "scheduling.x-k8s.io/v1alpha1"}
"""Gang schedulers, and the API of their pod groups."""
VARIABLES = {
    "KUBEFLOW_NAMESPACE": "kubeflow",
    "OPERATOR_DEPLOYMENT": "tf-job-operator",
    "CUSTOM_CLUSTER_DOMAIN": LONG_DOMAIN,
}
"""The operator's environment, as its Deployment sets it."""
DISOWN = [{"op": "remove", "path": "/metadata/ownerReferences"}]
OWN_NAMESPACE = "  namespace: kubeflow\n  name: tf-job-operator-logs"
"""In the metadata of the addon's Role and RoleBinding, for jobs in the namespace of the operator."""
FINALIZERS = Fact("kubeflow.org", "tfjobs/finalizers", "update")
"""No request needs it by itself: an admission plugin asks the authorizer for it when a child gets an owner reference."""


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    return AuditLog(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    """An API server that logs the requests of the operator's account, with the operator's roles as users apply them."""
    arguments = (*audit.flags, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    with ControlPlane.start("rbac", extra_apiserver_args=arguments, extra_controllers=("podgc",)) as plane:
        plane.run_kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        plane.restart_controller_manager()  # its garbage collector knows TFJobs now
        plane.create_namespace(NAMESPACE)
        yield plane


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_token(plane, plane.request_token("kubeflow", "tf-job-operator"), tmp_path_factory.mktemp("account"))


class JobsNamespace(Cluster):
    """The namespace of jobs, under an operator for all namespaces with its own account; what users and accidents do to them."""

    account: Path

    @contextlib.contextmanager
    def operator(self, *flags: str, **options: Any) -> Iterator[OperatorProcess]:
        options |= {"kubeconfig": self.account, "variables": VARIABLES}
        with super().operator("--namespace=", *flags, **options) as operator:
            yield operator

    def config_maps(self) -> list[str]:
        return [name for name in self.names("configmaps") if "-cluster-" in name]

    def log_dir(self, job: str) -> str:
        """The log directory of a job's TensorBoard, empty when there is none."""
        found = self.find("deployments", f"{job}-tensorboard")
        command = found["spec"]["template"]["spec"]["containers"][0]["command"][1] if found else ""
        return str(command).removeprefix("--logdir=")


@pytest.fixture
def world(plane: ControlPlane, kubeconfig: Path, tmp_path: Path) -> JobsNamespace:
    world = JobsNamespace(plane, NAMESPACE, tmp_path)
    world.account = kubeconfig
    return world


SERVER = replica(1, "OnFailure", "forever")
RUNS = specs(Worker=SERVER, PS=SERVER)
ENDS = specs(Worker=replica(1, "OnFailure"), PS=SERVER)
"""Jobs of a worker and a parameter server."""


def with_board(job: dict[str, Any]) -> dict[str, Any]:
    return job | {"spec": job["spec"] | {"tensorBoard": {"logDir": "/logs"}}}


def stranger(kind: str, job: str) -> dict[str, Any]:
    """Somebody else's object with the name of a job's worker."""
    specs = {"Pod": {"containers": [{"name": "other", "image": "other:1"}]}, "Service": {"ports": [{"port": 80}]}}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": f"{job}-worker-0"}, "spec": specs[kind]}


def test_every_right_of_the_operator_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, world: JobsNamespace, tmp_path: Path
) -> None:
    """All that the operator has to deal with: jobs that end, expire, lose pods, find names taken or children orphaned; large
    jobs that end or lose a ConfigMap; TensorBoards that are added, changed and removed.
    """
    world.post(stranger("Pod", "blocked-by-a-pod"), stranger("Service", "blocked-by-a-service"))
    world.kubectl("create", "deployment", "blocked-board-tensorboard", "--image=other:1")
    file = tmp_path / "config.yaml"
    flag = f"--controller-config-file={file}"
    # Two operators run, so that one of them waits for the lease and watches it.
    with world.operator(flag), world.operator(flag), world.node():
        file.write_text("accelerators: nonsense")  # with this file none would start
        world.post(
            tfjob("expires", with_policy(ENDS, ttlSecondsAfterFinished=0)),
            tfjob("ends", with_policy(ENDS, cleanPodPolicy="All")),
            tfjob("runs", RUNS),
            tfjob("blocked-by-a-pod", RUNS),
            tfjob("blocked-by-a-service", RUNS),
            tfjob("large-ends", specs(Worker=replica(20, "OnFailure", "3s:0"), PS=SERVER)),
            tfjob("large-runs", specs(Worker=replica(20, "OnFailure", "forever"), PS=SERVER)),
            with_board(tfjob("board", RUNS)),
            with_board(tfjob("blocked-board", RUNS)),
        )
        world.wait_for("runs", ConditionType.RUNNING)
        for _ in range(2):  # the second time, the events are counted rather than written
            gone = world.uids("pods")["pods/runs-worker-0"]
            world.kubectl("delete", "pod", "runs-worker-0", "--grace-period=0", "--force")
            eventually(lambda gone=gone: world.uids("pods").get("pods/runs-worker-0", gone) != gone, "it is made again")  # type: ignore[misc]
        for kind in ("pods", "services"):
            world.patch(kind, "runs-worker-0", DISOWN)
        eventually(lambda: world.find("services", "board-tensorboard"), "a TensorBoard is there")
        for board in ({"logDir": "/other"}, None):
            world.patch("tfjobs", "board", {"spec": {"tensorBoard": board}})
            eventually(lambda board=board: world.log_dir("board") == (board or {}).get("logDir", ""), "it follows")  # type: ignore[misc]
        eventually(lambda: len(world.config_maps()) == 1, "the ConfigMap of a finished job is deleted")
        # The job of a ConfigMap without its owner no longer finds it, and finds the name taken.
        (config_map,) = world.config_maps()
        world.patch("configmaps", config_map, DISOWN)
        eventually(lambda: not world.find("tfjobs", "expires"), "a finished job is deleted")
        roles = [MANIFESTS / "cluster-wide" / "role.yaml", *(MANIFESTS / "base").glob("*-role.yaml")]
        may = allowed(*roles) - {FINALIZERS}
        # To create by server-side apply takes the right to create, and is a patch in the log.
        spare = lists_to_fall_back_on(plane, may) | {Fact("apps", "deployments", "create")}
        used = {fact for fact in may if fact.verb != "watch"} - spare  # a watch is logged at its end
        eventually(
            lambda: used <= audit.asked() or audit.refused(), "rights are used", yet=lambda: used - audit.asked()
        )
    assert audit.refused() == []
    assert audit.asked() | spare == may


@pytest.mark.parametrize("scheduler", POD_GROUPS)
def test_every_right_over_pod_groups_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, world: JobsNamespace, scheduler: str
) -> None:
    """With the addon for gang scheduling: a group is made, follows its job, finds its name taken, and goes."""
    plane.run_kubectl("apply", "-f", str(ROOT / "test" / "integration" / "data" / f"{scheduler}-podgroups.yaml"))
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "addons" / "gang-scheduling"))
    group = POD_GROUPS[scheduler]
    resource, _, _ = group.partition("/")
    plane.wait_for_crd(f"podgroups.{resource}")
    role = allowed(MANIFESTS / "addons" / "gang-scheduling" / "role.yaml")
    may = {fact for fact in role if fact.group == resource}
    name, blocked = f"gang-{scheduler}", f"blocked-{scheduler}"
    taken = {"apiVersion": group, "kind": "PodGroup", "metadata": {"name": blocked}, "spec": {"minMember": 1}}

    def asked() -> set[str]:
        return {fact.verb for fact in audit.asked() if fact.group == resource}

    with world.operator("--enable-gang-scheduling", f"--gang-scheduler-name={scheduler}"):
        world.post(taken, tfjob(name, RUNS), tfjob(blocked, RUNS))
        eventually(lambda: world.find(f"podgroups.{resource}", name), "the group is there")
        world.patch("tfjobs", name, {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}})
        eventually(lambda: "patch" in asked(), "the group follows")
        world.patch("tfjobs", name, {"spec": {"runPolicy": {"suspend": True}}})
        spare = {fact.verb for fact in lists_to_fall_back_on(plane, may)}
        used = {fact.verb for fact in may} - {"watch"} - spare
        eventually(lambda: used <= asked() or audit.refused(), "rights are used", yet=lambda: used - asked())
    assert audit.refused() == []
    assert asked() | spare == {fact.verb for fact in may}


APIS = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1"
OWNING = Fact("tensorflow.org", "tfjobs/finalizers", "update")
"""As `FINALIZERS`, for the other API group."""


def labelled(world: JobsNamespace, resource: str, name: str) -> bool:
    """Return True if the object has our label."""
    found = world.find(resource, name)
    return found is not None and c.LABEL_OPERATOR_NAME in found["metadata"].get("labels", {})


def test_every_right_for_the_alpha_apis_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, world: JobsNamespace
) -> None:
    """With the addon: a job runs, is scaled, ends, and its Job loses the label by which the operator watches it."""
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "addons" / "alpha"))
    plane.wait_for_crd("tfjobs.tensorflow.org")
    plane.restart_controller_manager()
    may = allowed(MANIFESTS / "addons" / "alpha" / "role.yaml")
    pods = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}], "restartPolicy": "OnFailure"}}
    entries = [{"template": pods}, {"tfReplicaType": "WORKER", "template": pods}, {"tfReplicaType": "PS"}]
    for group, kind in (("tensorflow.org/v1alpha1", "TfJob"), ("kubeflow.org/v1", "TFJob")):
        name, runtime_id = kind.lower() + "-alpha", group[:6]
        spec = {"replicaSpecs": entries, "RuntimeId": runtime_id}
        with world.operator(APIS):
            world.post({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec})
            server, worker = f"ps-{runtime_id}-0", f"worker-{runtime_id}-0"
            eventually(functools.partial(world.find, "jobs", server), "its Jobs are there")
            for resource, child in (("jobs", worker), ("configmaps", f"cm-ps-{runtime_id}")):
                world.patch(resource, child, {"metadata": {"labels": {c.LABEL_OPERATOR_NAME: None}}})
                # One after the other: the ConfigMap changes no status, so the job is read before it is created again.
                eventually(functools.partial(labelled, world, resource, child), "the label is back")
            scaled = json.dumps({"spec": {"replicaSpecs": entries[:2]}})
            resource = f"tfjobs.{group.partition('/')[0]}"
            world.kubectl("patch", resource, name, "--type=merge", "-p", scaled)
            eventually(lambda at=server: not world.find("jobs", at), "it is scaled")  # type: ignore[misc]
    assert audit.refused() == []
    asked = {fact for fact in audit.asked() if fact.group in {"tensorflow.org", "batch"}}
    assert asked | lists_to_fall_back_on(plane, may) | {OWNING} == may


def test_requests_of_the_operator_go_with_those_of_kubernetes_own_controllers(
    plane: ControlPlane, kubeconfig: Path
) -> None:
    """With the addon for this server's version: the server's responses name the flow schema that matched the request."""
    version = plane.version
    served = "v1" if version.has(FLOW_CONTROL_V1) else "v1beta2" if version.has(FLOW_CONTROL_V1BETA2) else "v1beta1"
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "addons" / f"flow-control-{served}"))
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    context = ssl.create_default_context(cafile=str(plane.directory / "pki" / "ca.crt"))

    def schema(path: str) -> str:
        request = urllib.request.Request(f"{plane.server}{path}", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, context=context) as answer:
                headers = answer.headers
        except urllib.error.HTTPError as error:  # there is no lease before an operator ran
            headers = error.headers
        return str(headers["X-Kubernetes-PF-FlowSchema-UID"])

    def uid(name: str) -> str:
        return plane.run_kubectl("get", "flowschema", name, "-o", "jsonpath={.metadata.uid}").stdout

    lease = "/apis/coordination.k8s.io/v1/namespaces/kubeflow/leases/tf-operator"
    eventually(lambda: schema("/apis/kubeflow.org/v1/tfjobs") == uid("tf-job-operator"), "jobs are workload-high")
    eventually(lambda: schema(lease) == uid("tf-job-operator-leader-election"), "the lease has a level of its own")


def without_rule(plane: ControlPlane, resource: str) -> None:
    """Take the rule over a resource from the operator's role; `restore` brings it back."""
    rules = json.loads(plane.run_kubectl("get", "clusterrole", "tf-job-operator", "-o", "json").stdout)["rules"]
    place = next(index for index, rule in enumerate(rules) if resource in rule["resources"])
    change = json.dumps([{"op": "remove", "path": f"/rules/{place}"}])
    plane.run_kubectl("patch", "clusterrole", "tf-job-operator", "--type=json", "-p", change)


def restore(plane: ControlPlane) -> None:
    """Apply the installation over what a test has patched."""
    folder = str(MANIFESTS / "overlays" / "standalone")
    plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)


def test_a_child_that_blocks_the_deletion_of_its_job_needs_the_right_over_finalizers(
    plane: ControlPlane, world: JobsNamespace
) -> None:
    """Where owners' permissions are enforced; without the rule the operator could create no pod there."""
    world.post(tfjob("owner", RUNS))
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "owner", "blockOwnerDeletion": True}
    owner |= {"uid": world.job("owner")["metadata"]["uid"], "controller": True}
    pod = stranger("Pod", "owned")
    pod["metadata"]["ownerReferences"] = [owner]
    flags = ("--kubeconfig", str(world.account), "create", "--dry-run=server", "-n", NAMESPACE, "-f", "-")

    def create() -> subprocess.CompletedProcess[str]:
        return plane.run_kubectl(*flags, input=json.dumps(pod), check=False)

    assert create().returncode == 0
    without_rule(plane, "tfjobs/finalizers")
    eventually(lambda: "cannot set blockOwnerDeletion" in create().stderr, "the rule is missed")
    restore(plane)  # for whichever test comes next


SICK: dict[str, Any] = {"action": "RestartReplica", "onNodes": {"taints": [{"key": "sick"}]}}
LOST: dict[str, Any] = {"action": "RestartAll", "onFailureReasons": ["NodeLost"]}


def on_node(name: str, node: str, *rules: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """A job of one worker whose pod is bound to this node, whoever runs it, with these rules."""
    worker = replica(1, "ExitCode", "forever")
    if node:
        worker["template"]["spec"]["nodeName"] = node
    rules_of_job = {"failurePolicy": {"rules": [*rules], "maxRestarts": 1}} if rules else {}
    return tfjob(name, with_policy(specs(Worker=worker), **rules_of_job, **policy))


def with_node(plane: ControlPlane, name: str, ready: str) -> None:
    """Let there be a Node that nobody runs, whose condition Ready has had this status for ten minutes."""
    since = (datetime.now(UTC) - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    plane.request("POST", "/api/v1/nodes", node)
    change, kind = {"status": {"conditions": [condition]}}, "application/strategic-merge-patch+json"
    code, found = plane.request("PATCH", f"/api/v1/nodes/{name}/status", change, content_type=kind)
    assert code == 200, found


@pytest.mark.nightly
def test_every_right_over_nodes_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, world: JobsNamespace
) -> None:
    """Without the addon jobs run and are warned. With it they leave sick nodes, and pods of lost nodes are ended.

    A pod that terminates on a lost node is marked as failed before it is force-deleted. Pods of a node that is gone are left
    to PodGC. The last test here but one, as requests of it are refused.
    """
    with_node(plane, "lost", "Unknown")
    with_node(plane, "cut-off", "True")
    with world.operator() as operator, world.node("[{name: first}, {name: second}]"):
        world.post(on_node("gone", "gone", nodeLostTimeoutSeconds=60), on_node("sick", "", SICK, nodeAvoidance={}))
        uid = eventually(lambda: world.uids("pods").get("pods/gone-worker-0"), "a pod is on a node that is gone")
        told = eventually(lambda: dict(world.warnings("sick")).get("NodesUnavailable"), "the job is warned")
        assert "manifests/addons/nodes" in told
        assert 'cannot list resource "nodes"' in told
        assert len(operator.lines("nodes_unavailable")) == 1
        refused = audit.refused()
        world.wait_for("sick", ConditionType.RUNNING)
        node = world.find("pods", "sick-worker-0")["spec"]["nodeName"]
        taint = {"spec": {"taints": [{"key": "sick", "effect": "PreferNoSchedule"}]}}
        plane.request("PATCH", f"/api/v1/nodes/{node}", taint, content_type="application/merge-patch+json")
        plane.run_kubectl("apply", "-k", str(MANIFESTS / "addons" / "nodes"))

        world.post(
            on_node("stuck", "cut-off", nodeLostTimeoutSeconds=60),
            on_node("lost", "lost", LOST, nodeLostTimeoutSeconds=60),
        )
        before = eventually(lambda: world.uids("pods").get("pods/stuck-worker-0"), "a pod is there")
        world.api("DELETE", "pods", "stuck-worker-0")
        eventually(
            lambda: world.job("lost").get("status", {}).get("attempt"),
            "a lost node restarts the job",
            limit_s=LIMIT_S * 3,
        )
        status = world.job("lost")["status"]
        assert (status["attempt"], status["countedRestarts"]) == (1, 1)
        assert status["attemptHistory"][0]["nodeName"] == "lost"
        reasons = {"NodeLost", "RestartedAllReplicas"}
        eventually(lambda: dict(world.warnings("lost")).keys() >= reasons, "the job is told")
        assert world.uids("pods")["pods/stuck-worker-0"] == before
        with_node(plane, "cut-off", "False")
        eventually(
            lambda: world.uids("pods").get("pods/stuck-worker-0", before) != before, "it is made again", limit_s=180.0
        )  # it is lost from when the operator sees it
        asked = [each for each in audit.events() if each.get("objectRef", {}).get("name") == "stuck-worker-0"]
        writes = [each["verb"] for each in asked if each["verb"] in {"patch", "delete"}]
        assert writes[:2] == ["patch", "delete"]
        told = eventually(
            lambda: [text for reason, text in world.warnings("stuck") if "Force-deleted" in text], "it says so"
        )
        assert "its node cut-off has not been ready since" in told[0]

        moved = {"first", "second"} - {node}

        def place() -> str:
            pod = world.find("pods", "sick-worker-0") or {"spec": {}}
            return str(pod["spec"].get("nodeName", ""))

        eventually(lambda: place() in moved, "it moves")
        world.wait_for("sick", ConditionType.RUNNING)
        (avoided,) = world.job("sick")["status"]["avoidedNodes"]
        assert (avoided["name"], avoided["failures"]) == (node, 1)
        assert f"its node {node} has taint sick:PreferNoSchedule" in dict(world.warnings("sick"))["NodeSick"]
        eventually(
            lambda: world.uids("pods").get("pods/gone-worker-0", uid) != uid, "PodGC deletes it", limit_s=LIMIT_S * 2
        )
        assert "NodeLost" not in dict(world.warnings("gone"))
    may = allowed(*(MANIFESTS / "addons" / "nodes").glob("*-role.yaml"))
    assert {fact for fact in audit.asked() if fact.resource in {"nodes", "pods/status"}} == may
    assert {each for each in audit.refused() if each not in refused} == set()


def test_the_right_to_read_logs_is_used_and_it_is_the_only_one(
    plane: ControlPlane, audit: AuditLog, world: JobsNamespace
) -> None:
    """Without the addon the job runs and is warned. The Role of its namespace is enough for the jobs there."""
    spec = with_policy(specs(Worker=replica(1, "Never", "forever")), progressDeadlineSeconds=60)
    with world.operator() as operator, world.node():
        world.create("hangs", spec)
        told = eventually(lambda: dict(world.warnings("hangs")).get("LogsUnavailable"), "the job is warned")
        assert "manifests/addons/logs" in told
        assert 'cannot get resource "pods/log"' in told
        assert len(operator.lines("logs_unavailable")) == 1
        world.wait_for("hangs", ConditionType.RUNNING)
        addon = MANIFESTS / "addons" / "logs-namespaced" / "role.yaml"
        own = addon.read_text().replace(OWN_NAMESPACE, OWN_NAMESPACE.replace("kubeflow", NAMESPACE))
        plane.run_kubectl("apply", "-f", "-", input=own)
        refused = len(audit.refused())
        eventually(lambda: "ProgressDeadlineExceeded" in dict(world.warnings("hangs")), "it is found", limit_s=150.0)
        assert {fact for fact in audit.asked() if fact.resource.startswith("pods/log")} == allowed(addon)
        assert len(audit.refused()) - refused <= 1  # a read that was sent before
        world.api("DELETE", "tfjobs", "hangs")


def test_under_the_role_of_an_older_version_jobs_run_and_those_with_a_tensorboard_get_a_warning(
    plane: ControlPlane, world: JobsNamespace
) -> None:
    """TB-13: once this version's role is applied, the TensorBoard comes. The last test here, as requests of it are refused."""
    without_rule(plane, "deployments")
    with world.operator() as operator, world.node():
        world.post(with_board(tfjob("old-role", RUNS)))
        world.wait_for("old-role", ConditionType.RUNNING)
        told = eventually(lambda: dict(world.warnings("old-role")).get("TensorBoardUnavailable"), "the job is told")
        assert "apply the manifests of this version" in told
        assert operator.lines("tensorboards_unavailable")
        restore(plane)
        eventually(lambda: world.find("deployments", "old-role-tensorboard"), "it comes", limit_s=LIMIT_S * 2)
