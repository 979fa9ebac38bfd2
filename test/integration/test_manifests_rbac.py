"""The operator under its own account: by the server's audit log it uses exactly the rights that its roles give it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import RUN
from hack.kubernetes_versions import FLOW_CONTROL_V1, FLOW_CONTROL_V1BETA2
from integration.audit import AuditLog, Fact, allowed, lists_to_fall_back_on
from integration.cluster import Namespace
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
NAMESPACE = "team-a"
LIMIT_S = 60.0
LONG_DOMAIN = ".".join(["x" * 48] * 5)
"""With host names of this length a job of twenty replicas is a large one, whose pods read a ConfigMap."""
POD_GROUPS = {"volcano": "scheduling.volcano.sh/v1beta1", "coscheduling": "scheduling.x-k8s.io/v1alpha1"}
"""Gang schedulers, and the API of their pod groups."""
FINALIZERS = Fact("kubeflow.org", "tfjobs/finalizers", "update")
"""No request needs it by itself: an admission plugin asks the authorizer for it when a child gets an owner reference."""


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    """The audit log of this module's API server."""
    return AuditLog.in_folder(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    """An API server that logs the requests of the operator's account, with the operator's roles as users apply them."""
    arguments = (*audit.apiserver_arguments(), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    with ControlPlane.start("rbac", extra_apiserver_args=arguments) as plane:
        plane.run_kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        plane.restart_controller_manager()  # its garbage collector knows TFJobs now
        plane.create_namespace(NAMESPACE)
        yield plane


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with a token of the operator's account."""
    config = json.loads(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": plane.request_token("kubeflow", "tf-job-operator")}
    file = tmp_path_factory.mktemp("account") / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


@contextlib.contextmanager
def operator(kubeconfig: Path, log: Path, *flags: str) -> Iterator[None]:
    """Run an operator under the account."""
    command = (
        sys.executable,
        "-m",
        "tfjob_operator.controller",
        f"--kubeconfig={kubeconfig}",
        "--monitoring-port=0",
        *flags,
    )
    environment = {
        **os.environ,
        "KUBEFLOW_NAMESPACE": "kubeflow",
        "OPERATOR_DEPLOYMENT": "tf-job-operator",
        "CUSTOM_CLUSTER_DOMAIN": LONG_DOMAIN,
    }
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environment) as process:
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()


@contextlib.contextmanager
def node(plane: ControlPlane) -> Iterator[None]:
    """Run a hollow node, as the administrator."""
    command = (sys.executable, "-m", "hack.hollow_node", f"--kubeconfig={plane.kubeconfig}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            yield
        finally:
            process.terminate()


class JobsNamespace(Namespace):
    """The namespace of the operator's jobs: what users and accidents do to them."""

    def create(self, *objects: dict[str, Any]) -> None:
        """Create objects."""
        self.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        )

    def config_maps(self) -> list[str]:
        """The ConfigMaps of jobs that read one, as `configmap/name`."""
        return [f"configmap/{name}" for name in self.names("configmaps") if "-cluster-" in name]

    def uid(self, resource: str, name: str) -> str:
        """The UID of an object, empty when it is not there."""
        found = self.find(resource, name)
        return str(found["metadata"]["uid"]) if found else ""

    def is_other(self, resource: str, name: str, uids: set[str]) -> bool:
        """Tell whether an object has none of those UIDs."""
        return self.uid(resource, name) not in uids

    def log_dir(self, job: str) -> str:
        """The log directory of a job's TensorBoard, empty when there is none."""
        found = self.find("deployments", f"{job}-tensorboard")
        command = found["spec"]["template"]["spec"]["containers"][0]["command"][1] if found else ""
        return str(command).removeprefix("--logdir=")

    def state(self, job: str) -> str:
        """What the STATE column shows."""
        conditions = self.api("GET", "tfjobs", job).get("status", {}).get("conditions", [])
        return str(conditions[-1]["type"]) if conditions else ""


def job(name: str, run: str, *, workers: int = 1, **policy: Any) -> dict[str, Any]:
    """A job of workers and one parameter server."""

    def replica(script: str, replicas: int = 1) -> dict[str, Any]:
        meta = {"annotations": {RUN: script}}
        template = {"metadata": meta, "spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}
        return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}

    spec = {"runPolicy": policy, "tfReplicaSpecs": {"Worker": replica(run, workers), "PS": replica("forever")}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def with_board(job: dict[str, Any]) -> dict[str, Any]:
    """The job with a TensorBoard."""
    return job | {"spec": job["spec"] | {"tensorBoard": {"logDir": "/logs"}}}


def stranger(kind: str, job: str) -> dict[str, Any]:
    """Somebody else's object with the name of a job's worker."""
    specs = {"Pod": {"containers": [{"name": "other", "image": "other:1"}]}, "Service": {"ports": [{"port": 80}]}}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": f"{job}-worker-0"}, "spec": specs[kind]}


def test_every_right_of_the_operator_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, kubeconfig: Path, tmp_path: Path
) -> None:
    """All that the operator has to deal with: jobs that end, expire, lose pods, find names taken or children orphaned; large
    jobs that end or lose a ConfigMap; TensorBoards that are added, changed and removed.
    """
    world = JobsNamespace(plane, NAMESPACE)
    world.create(stranger("Pod", "blocked-by-a-pod"), stranger("Service", "blocked-by-a-service"))
    world.kubectl("create", "deployment", "blocked-board-tensorboard", "--image=other:1")
    # Two operators run, so that one of them waits for the lease and watches it.
    file = tmp_path / "config.yaml"
    flag = f"--controller-config-file={file}"
    logs = (tmp_path / "a.log", tmp_path / "b.log")
    with operator(kubeconfig, logs[0], flag), operator(kubeconfig, logs[1], flag), node(plane):
        eventually(lambda: all("operator_ready" in log.read_text() for log in logs), "both have started")
        file.write_text("accelerators: nonsense")  # with this file none would start
        world.create(
            job("expires", "1s:0", ttlSecondsAfterFinished=0),
            job("ends", "1s:0", cleanPodPolicy="All"),
            job("runs", "forever"),
            job("blocked-by-a-pod", "forever"),
            job("blocked-by-a-service", "forever"),
            job("large-ends", "3s:0", workers=20),
            job("large-runs", "forever", workers=20),
            with_board(job("board", "forever")),
            with_board(job("blocked-board", "forever")),
        )
        eventually(lambda: world.state("runs") == ConditionType.RUNNING, "a job runs")
        for _ in range(2):  # the second time, the events are counted rather than written
            gone = {"", world.uid("pods", "runs-worker-0")}
            world.kubectl("delete", "pod", "runs-worker-0", "--grace-period=0", "--force")
            eventually(functools.partial(world.is_other, "pods", "runs-worker-0", gone), "the pod is made again")
        disown = json.dumps([{"op": "remove", "path": "/metadata/ownerReferences"}])
        for child in ("pod/runs-worker-0", "service/runs-worker-0"):
            world.kubectl("patch", child, "--type=json", "-p", disown)
        eventually(lambda: world.find("services", "board-tensorboard"), "a TensorBoard is there")
        for board in ({"logDir": "/other"}, None):
            world.kubectl("patch", "tfjob", "board", "--type=merge", "-p", json.dumps({"spec": {"tensorBoard": board}}))
            eventually(lambda board=board: world.log_dir("board") == (board or {}).get("logDir", ""), "it follows")  # type: ignore[misc]
        eventually(lambda: len(world.config_maps()) == 1, "the ConfigMap of a finished job is deleted")
        # The job of a ConfigMap without its owner no longer finds it, and finds the name taken.
        world.kubectl("patch", *world.config_maps(), "--type=json", "-p", disown)
        eventually(lambda: not world.find("tfjobs", "expires"), "a finished job is deleted")
        roles = [MANIFESTS / "cluster-wide" / "role.yaml", *(MANIFESTS / "base").glob("*-role.yaml")]
        may = allowed(*roles) - {FINALIZERS}
        spare = lists_to_fall_back_on(plane, may)
        used = {fact for fact in may if fact.verb != "watch"} - spare  # a watch is logged at its end
        eventually(
            lambda: used <= audit.asked() or audit.refused(), "rights are used", yet=lambda: used - audit.asked()
        )
    assert audit.refused() == []
    assert audit.asked() | spare == may


@pytest.mark.parametrize("scheduler", POD_GROUPS)
def test_every_right_over_pod_groups_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, kubeconfig: Path, tmp_path: Path, scheduler: str
) -> None:
    """With the addon for gang scheduling: a group is made, follows its job, finds its name taken, and goes."""
    plane.run_kubectl("apply", "-f", str(ROOT / "test" / "integration" / "data" / f"{scheduler}-podgroups.yaml"))
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "addons" / "gang-scheduling"))
    group = POD_GROUPS[scheduler]
    resource, _, _ = group.partition("/")
    plane.wait_for_crd(f"podgroups.{resource}")
    role = allowed(MANIFESTS / "addons" / "gang-scheduling" / "role.yaml")
    may = {fact for fact in role if fact.group == resource}
    world = JobsNamespace(plane, NAMESPACE)
    name, blocked = f"gang-{scheduler}", f"blocked-{scheduler}"
    taken = {"apiVersion": group, "kind": "PodGroup", "metadata": {"name": blocked}, "spec": {"minMember": 1}}
    flags = ("--enable-gang-scheduling", f"--gang-scheduler-name={scheduler}")
    asked = functools.partial(_asked_of, audit, resource)
    with operator(kubeconfig, tmp_path / "operator.log", *flags):
        world.create(taken, job(name, "forever"), job(blocked, "forever"))
        shown = ("get", f"podgroup.{resource}", name, "--ignore-not-found", "-o", "name")
        eventually(functools.partial(world.kubectl, *shown), "the group is there")
        scale = json.dumps({"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}})
        world.kubectl("patch", "tfjob", name, "--type=merge", "-p", scale)
        eventually(lambda: "patch" in asked(), "the group follows")
        suspend = json.dumps({"spec": {"runPolicy": {"suspend": True}}})
        world.kubectl("patch", "tfjob", name, "--type=merge", "-p", suspend)
        spare = {fact.verb for fact in lists_to_fall_back_on(plane, may)}
        used = {fact.verb for fact in may} - {"watch"} - spare
        eventually(lambda: used <= asked() or audit.refused(), "rights are used", yet=lambda: used - asked())
    assert audit.refused() == []
    assert asked() | spare == {fact.verb for fact in may}


APIS = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1"
OWNING = Fact("tensorflow.org", "tfjobs/finalizers", "update")
"""As `FINALIZERS`, for the other API group."""


def test_every_right_for_the_alpha_apis_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, kubeconfig: Path, tmp_path: Path
) -> None:
    """With the addon: a job runs, is scaled, ends, and its Job loses the label by which the operator watches it."""
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "addons" / "alpha"))
    plane.wait_for_crd("tfjobs.tensorflow.org")
    plane.restart_controller_manager()
    may = allowed(MANIFESTS / "addons" / "alpha" / "role.yaml")
    world = JobsNamespace(plane, NAMESPACE)

    def asked() -> set[Fact]:
        return {fact for fact in audit.asked() if fact.group in {"tensorflow.org", "batch"}}

    pods = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}], "restartPolicy": "OnFailure"}}
    entries = [{"template": pods}, {"tfReplicaType": "WORKER", "template": pods}, {"tfReplicaType": "PS"}]
    for group, kind in (("tensorflow.org/v1alpha1", "TfJob"), ("kubeflow.org/v1", "TFJob")):
        name = kind.lower() + "-alpha"
        runtime_id = group[:6]
        spec = {"replicaSpecs": entries, "RuntimeId": runtime_id}
        with operator(kubeconfig, tmp_path / f"{kind}.log", APIS):
            world.create({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec})
            eventually(functools.partial(world.find, "jobs", f"ps-{runtime_id}-0"), "its Jobs are there")
            label = "training.kubeflow.org/operator-name-"
            world.kubectl("label", "job.batch", f"worker-{runtime_id}-0", label)
            world.kubectl("label", "configmap", f"cm-ps-{runtime_id}", label)
            eventually(functools.partial(_has_label, world, f"worker-{runtime_id}-0"), "the label is back")
            scaled = json.dumps({"spec": {"replicaSpecs": entries[:2]}})
            resource = f"tfjobs.{group.partition('/')[0]}"
            world.kubectl("patch", resource, name, "--type=merge", "-p", scaled)
            eventually(lambda at=f"ps-{runtime_id}-0": not world.find("jobs", at), "it is scaled")  # type: ignore[misc]
    assert audit.refused() == []
    assert asked() | lists_to_fall_back_on(plane, may) | {OWNING} == may


def _has_label(world: JobsNamespace, job: str) -> bool:
    selected = "--selector=training.kubeflow.org/operator-name"
    return f"job.batch/{job}" in world.kubectl("get", "job.batch", selected, "-o", "name").split()


def _asked_of(audit: AuditLog, group: str) -> set[str]:
    return {fact.verb for fact in audit.asked() if fact.group == group}


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


def test_a_child_that_blocks_the_deletion_of_its_job_needs_the_right_over_finalizers(
    plane: ControlPlane, kubeconfig: Path
) -> None:
    """Where owners' permissions are enforced; without the rule the operator could create no pod there."""
    world = JobsNamespace(plane, NAMESPACE)
    world.create(job("owner", "forever"))
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": "owner",
        "uid": world.uid("tfjobs", "owner"),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "owned", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]},
    }
    as_operator = ("--kubeconfig", str(kubeconfig), "create", "--dry-run=server", "-n", NAMESPACE, "-f", "-")
    command = [str(plane.kubectl), *as_operator]

    def create() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=json.dumps(pod), capture_output=True, text=True, check=False)

    assert create().returncode == 0
    rules = json.loads(plane.run_kubectl("get", "clusterrole", "tf-job-operator", "-o", "json").stdout)["rules"]
    place = next(index for index, rule in enumerate(rules) if rule["resources"] == ["tfjobs/finalizers"])
    change = json.dumps([{"op": "remove", "path": f"/rules/{place}"}])
    plane.run_kubectl("patch", "clusterrole", "tf-job-operator", "--type=json", "-p", change)
    eventually(lambda: "cannot set blockOwnerDeletion" in create().stderr, "the rule is missed")
    restore(plane)  # for whichever test comes next


def restore(plane: ControlPlane) -> None:
    """Apply the installation over what a test has patched."""
    folder = str(MANIFESTS / "overlays" / "standalone")
    plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)


def test_under_the_role_of_an_older_version_jobs_run_and_those_with_a_tensorboard_get_a_warning(
    plane: ControlPlane, kubeconfig: Path, tmp_path: Path
) -> None:
    """TB-13: once this version's role is applied, the TensorBoard comes. The last test here, as requests of it are refused."""
    world = JobsNamespace(plane, NAMESPACE)
    rules = json.loads(plane.run_kubectl("get", "clusterrole", "tf-job-operator", "-o", "json").stdout)["rules"]
    place = next(index for index, rule in enumerate(rules) if "deployments" in rule["resources"])
    change = json.dumps([{"op": "remove", "path": f"/rules/{place}"}])
    plane.run_kubectl("patch", "clusterrole", "tf-job-operator", "--type=json", "-p", change)

    def warnings() -> str:
        selected = "--field-selector=involvedObject.name=old-role,type=Warning"
        return world.kubectl("get", "events", selected, "-o", "jsonpath={.items[*].reason} {.items[*].message}")

    log = tmp_path / "operator.log"
    with operator(kubeconfig, log), node(plane):
        world.create(with_board(job("old-role", "forever")))
        eventually(lambda: world.state("old-role") == ConditionType.RUNNING, "the job runs")
        eventually(lambda: "TensorBoardUnavailable" in warnings(), "the job is told")
        assert "apply the manifests of this version" in warnings()
        assert "tensorboards_unavailable" in log.read_text()
        restore(plane)
        eventually(lambda: world.find("deployments", "old-role-tensorboard"), "it comes", limit_s=LIMIT_S * 2)
