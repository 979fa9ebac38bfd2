"""The operator under its own account: what it asks for and what its roles allow, by the server's audit log, are the same."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import RUN
from hack.kubernetes_versions import FLOW_CONTROL_V1, FLOW_CONTROL_V1BETA2, STREAMING_LISTS
from integration.audit import AuditLog, Fact, allowed
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
NAMESPACE = "team-a"
LIMIT_S = 60.0
LONG_DOMAIN = ".".join(["x" * 48] * 5)
"""With host names of that length twenty replicas are a large job, whose pods read a ConfigMap."""
POD_GROUPS = {"volcano": "scheduling.volcano.sh/v1beta1", "coscheduling": "scheduling.x-k8s.io/v1alpha1"}
"""Gang schedulers, and the API of their pod groups."""
FINALIZERS = Fact("kubeflow.org", "tfjobs/finalizers", "update")
"""Never asked for by a request: an admission plugin asks it of the authorizer, when an owner is written into a child."""


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    """The audit log of this module's API server."""
    return AuditLog.in_folder(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    """An API server that logs what the operator's account asks, with the operator's roles as people apply them."""
    arguments = (*audit.apiserver_arguments(), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    with ControlPlane.start("rbac", extra_apiserver_args=arguments) as plane:
        plane.run_kubectl("apply", "-k", str(MANIFESTS / "overlays" / "standalone"))
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
    environment = {**os.environ, "KUBEFLOW_NAMESPACE": "kubeflow", "CUSTOM_CLUSTER_DOMAIN": LONG_DOMAIN}
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


def lists_to_fall_back_on(plane: ControlPlane, may: set[Fact]) -> set[Fact]:
    """The rights to list: a server with streaming lists is only asked for lists when streams fail (RF-28)."""
    return {fact for fact in may if fact.verb == "list"} if plane.version.has(STREAMING_LISTS) else set()


class JobsNamespace:
    """What people and chance do to the operator's jobs."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator, in the jobs' namespace."""
        return self._plane.run_kubectl(*arguments, "-n", NAMESPACE, input=stdin).stdout

    def create(self, *objects: dict[str, Any]) -> None:
        """Create objects."""
        self.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        )

    def exists(self, kind: str, name: str) -> bool:
        """Tell whether an object is there."""
        return bool(self.kubectl("get", kind, name, "--ignore-not-found", "-o", "name"))

    def config_maps(self) -> list[str]:
        """The ConfigMaps of jobs that read one, as `configmap/name`."""
        return [name for name in self.kubectl("get", "configmaps", "-o", "name").split() if "-cluster-" in name]

    def uid(self, kind: str, name: str) -> str:
        """The UID of an object, empty when it is not there."""
        return self.kubectl("get", kind, name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")

    def is_other(self, kind: str, name: str, uids: set[str]) -> bool:
        """Tell whether an object is none of those."""
        return self.uid(kind, name) not in uids

    def state(self, job: str) -> str:
        """What the STATE column shows."""
        return self.kubectl("get", "tfjob", job, "-o", "jsonpath={.status.conditions[-1:].type}")


def job(name: str, run: str, *, workers: int = 1, **policy: Any) -> dict[str, Any]:
    """A job of workers and one parameter server."""

    def replica(script: str, replicas: int = 1) -> dict[str, Any]:
        meta = {"annotations": {RUN: script}}
        template = {"metadata": meta, "spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}
        return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}

    spec = {"runPolicy": policy, "tfReplicaSpecs": {"Worker": replica(run, workers), "PS": replica("forever")}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def stranger(kind: str, job: str) -> dict[str, Any]:
    """Somebody else's object with the name of a job's worker."""
    specs = {"Pod": {"containers": [{"name": "other", "image": "other:1"}]}, "Service": {"ports": [{"port": 80}]}}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": f"{job}-worker-0"}, "spec": specs[kind]}


def test_every_right_of_the_operator_is_used_and_none_is_missing(
    plane: ControlPlane, audit: AuditLog, kubeconfig: Path, tmp_path: Path
) -> None:
    """Jobs that end, expire, lose pods, find their names taken or their children orphaned, large ones that end or lose a
    ConfigMap: all that the operator can meet.
    """
    world = JobsNamespace(plane)
    world.create(stranger("Pod", "blocked-by-a-pod"), stranger("Service", "blocked-by-a-service"))
    # Of two, so that one of them waits for the lease, and watches it.
    with operator(kubeconfig, tmp_path / "a.log"), operator(kubeconfig, tmp_path / "b.log"), node(plane):
        world.create(
            job("expires", "1s:0", ttlSecondsAfterFinished=0),
            job("ends", "1s:0", cleanPodPolicy="All"),
            job("runs", "forever"),
            job("blocked-by-a-pod", "forever"),
            job("blocked-by-a-service", "forever"),
            job("large-ends", "3s:0", workers=20),
            job("large-runs", "forever", workers=20),
        )
        eventually(lambda: world.state("runs") == ConditionType.RUNNING, "a job runs")
        for _ in range(2):  # the second time, the events are counted rather than written
            gone = {"", world.uid("pod", "runs-worker-0")}
            world.kubectl("delete", "pod", "runs-worker-0", "--grace-period=0", "--force")
            eventually(functools.partial(world.is_other, "pod", "runs-worker-0", gone), "the pod is made again")
        disown = json.dumps([{"op": "remove", "path": "/metadata/ownerReferences"}])
        for child in ("pod/runs-worker-0", "service/runs-worker-0"):
            world.kubectl("patch", child, "--type=json", "-p", disown)
        eventually(lambda: len(world.config_maps()) == 1, "the ConfigMap of a finished job is deleted")
        # Its job no longer finds it, and finds its name taken.
        world.kubectl("patch", *world.config_maps(), "--type=json", "-p", disown)
        eventually(lambda: not world.exists("tfjob", "expires"), "a finished job is deleted")
        may = allowed(MANIFESTS / "cluster-wide" / "role.yaml", MANIFESTS / "base" / "lease-role.yaml") - {FINALIZERS}
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
    world = JobsNamespace(plane)
    name, blocked = f"gang-{scheduler}", f"blocked-{scheduler}"
    taken = {"apiVersion": group, "kind": "PodGroup", "metadata": {"name": blocked}, "spec": {"minMember": 1}}
    flags = ("--enable-gang-scheduling", f"--gang-scheduler-name={scheduler}")
    asked = functools.partial(_asked_of, audit, resource)
    with operator(kubeconfig, tmp_path / "operator.log", *flags):
        world.create(taken, job(name, "forever"), job(blocked, "forever"))
        eventually(lambda: world.exists(f"podgroup.{resource}", name), "the group is there")
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


def _asked_of(audit: AuditLog, group: str) -> set[str]:
    return {fact.verb for fact in audit.asked() if fact.group == group}


def test_requests_of_the_operator_go_with_those_of_kubernetes_own_controllers(
    plane: ControlPlane, kubeconfig: Path
) -> None:
    """With the addon for this server's version: the server itself says by which flow schema it took a request."""
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
    world = JobsNamespace(plane)
    world.create(job("owner", "forever"))
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": "owner",
        "uid": world.uid("tfjob", "owner"),
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
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "overlays" / "standalone"))  # for whichever test comes next
