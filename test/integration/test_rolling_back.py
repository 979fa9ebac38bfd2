"""The operator is upgraded from the previous release and rolled back, while jobs of every dialect are in every state.

No pod is restarted or replaced, no object of a job is written, and every job still ends as expected. A second test rolls the
Deployment of the manifests back by `kubectl rollout undo` and upgrades it again, as docs/operations.md describes.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from faults.chosen import fail_if
from faults.processes import PATIENT
from faults.releases import RETRYABLE, Release, present
from hack.control_plane import ControlPlane, ControlPlaneError
from hack.hollow_node.script import RUN
from integration.cluster import Cluster, replica, tfjob
from integration.operator_process import OperatorProcess
from support.pages import ROOT
from support.waiting import eventually
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1.constants import LABEL_QUEUE

FLAGS: Final = ("--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1", *PATIENT)
FINALIZER: Final = "example.com/keep"
JOBS: Final = ("tfjobs.kubeflow.org", "tfjobs.tensorflow.org")
CHILDREN: Final = ("deployments", "jobs", "configmaps", "services", "pods")
"""What the operator creates for jobs; pods of batch Jobs come after their owners."""
RUNNING, SUSPENDED, HELD, RESTARTING = "running", "suspended", "held", "restarting"
FINISHED, FAILED, ABORTED = "finished", "broken", "aborted"
ENDED: Final = frozenset({FINISHED, FAILED, ABORTED})
"""An aborted job has failed because of an exit code that the new release retries."""
FOREVER: Final = "forever"
KILLED, DONE, BROKEN, ABORT = "0s:137", "0s:0", "0s:1", "0s:134"


class Dialect(NamedTuple):
    """An API version and kind in which jobs are written, and the states in which they can be."""

    name: str
    api_version: str
    kind: str = "TFJob"
    states: tuple[str, ...] = (RUNNING, SUSPENDED, HELD, RESTARTING, FINISHED, FAILED, ABORTED)

    @property
    def is_alpha(self) -> bool:
        return self.api_version.endswith("/v1alpha1")


ALPHA_STATES: Final = (RUNNING, HELD, RESTARTING, FINISHED)
DIALECTS: Final = (
    *(Dialect(version, f"kubeflow.org/{version}") for version in ("v1", "v1beta2", "v1beta1", "v1alpha2")),
    Dialect("kubeflow", "kubeflow.org/v1alpha1", states=ALPHA_STATES),
    Dialect("tensorflow", "tensorflow.org/v1alpha1", "TfJob", ALPHA_STATES),
)


@dataclass(frozen=True)
class Snapshot:
    """A job, its children by `resource/name` and its events, as the API server has them."""

    job: Mapping[str, Any]
    children: Mapping[str, Mapping[str, Any]]
    events: Counter[tuple[str, str, str]]

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.job.get("status") or {})

    @property
    def pods(self) -> list[Mapping[str, Any]]:
        return [item for name, item in self.children.items() if name.startswith("pods/")]

    def is_true(self, condition: str) -> bool:
        found = self.status.get("conditions") or ()
        return any((each["type"], each["status"]) == (condition, "True") for each in found)

    @property
    def counted(self) -> Counter[str]:
        """The replicas in each state, by `replicaStatuses`."""
        return _counted(self.status.get("replicaStatuses") or {})

    @property
    def active(self) -> int:
        """The active replicas, by each part of the status that counts them: one may change a second after the other."""
        parts = (self.status.get(name) for name in ("replicaStatuses", "alphaReplicaStatuses"))
        return min((counts["active"] + counts["Running"] for counts in map(_counted, filter(None, parts))), default=0)


def _counted(statuses: dict[str, Counter[str]] | list[dict[str, Any]]) -> Counter[str]:
    """Add up the states of all replica types, by a map as in v1 or a list as in v1alpha1."""
    types = [each.get("ReplicasStates", {}) for each in statuses] if isinstance(statuses, list) else statuses.values()
    return sum(map(Counter, types), Counter[str]())


@dataclass(frozen=True)
class Job:
    """A job that reaches a state and keeps it until it is `resume`d. `number` distinguishes jobs of one dialect and state."""

    dialect: Dialect
    state: str
    number: int

    def __str__(self) -> str:
        return f"{self.dialect.name}-{self.state}-{self.number}"

    @property
    def replicas(self) -> int:
        return 3 if self.dialect.is_alpha else 2

    @property
    def kept_pod(self) -> str:
        """The failed pod that a finalizer keeps, so that its replica stays in the middle of a restart."""
        return f"{self}-worker-1" if self.state == RESTARTING and not self.dialect.is_alpha else ""

    @property
    def _runtime_id(self) -> str:
        return f"{self.dialect.name[0]}{self.state[:2]}{self.number}"

    @property
    def manifest(self) -> dict[str, Any]:
        spec = self._alpha_spec() if self.dialect.is_alpha else self._spec()
        labels = {LABEL_QUEUE: "team"} if self.state in ENDED else {}
        meta = {"name": str(self), "labels": labels}
        return {"apiVersion": self.dialect.api_version, "kind": self.dialect.kind, "metadata": meta, "spec": spec}

    def _spec(self) -> dict[str, Any]:
        run = {FINISHED: DONE, FAILED: BROKEN, ABORTED: ABORT}.get(self.state, FOREVER)
        replicas = {"Worker": replica(2, "ExitCode", run)}
        if self.state in ENDED:
            replicas["PS"] = replica(1, "ExitCode", FOREVER)  # outlives the job, and stays active in the status
        return {"tfReplicaSpecs": replicas} | self._policy({"cleanPodPolicy": "None"})

    def _alpha_spec(self) -> dict[str, Any]:
        master = {FINISHED: DONE, RESTARTING: f"{KILLED}, {FOREVER}"}.get(self.state, FOREVER)
        entries: list[dict[str, Any]] = []
        for kind, run in (("MASTER", master), ("WORKER", FOREVER)):
            template = replica(run=run)["template"]
            template["spec"]["restartPolicy"] = "OnFailure"
            entries.append({"replicas": 1, "tfReplicaType": kind, "template": template})
        server = {
            "metadata": {"annotations": {RUN: FOREVER}}
        }  # the operator adds the standard server, with a ConfigMap
        entries.append({"replicas": 1, "tfReplicaType": "PS", "template": server})
        return {"RuntimeId": self._runtime_id, "replicaSpecs": entries, "tensorboard": {"logDir": "/logs"}}

    def _policy(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields of the run policy where jobs of this dialect have them."""
        return {"runPolicy": fields} if self.dialect.name == "v1" or "suspend" in fields else fields

    def _edit(self, cluster: Cluster, fields: dict[str, Any]) -> None:
        cluster.patch(JOBS[self.dialect.kind == "TfJob"], str(self), {"spec": self._policy(fields)})

    def _set_replicas(self, cluster: Cluster, value: int) -> None:
        change = [{"op": "replace", "path": "/spec/replicaSpecs/1/replicas", "value": value}]
        cluster.patch(JOBS[self.dialect.kind == "TfJob"], str(self), change)

    def runs(self, found: Snapshot) -> bool:
        """Return True if all replicas run, or have run in a job that ends at once."""
        if self.state in ENDED:
            return self.has_ended(found)
        pods = [each for each in found.pods if each["status"].get("phase") == "Running"]
        return found.is_true("Running") and len(pods) == len(found.pods) == found.active == self.replicas

    def enter(self, cluster: Cluster) -> None:
        """Start the way of a running job into its state."""
        if self.state == SUSPENDED:
            self._edit(cluster, {"suspend": True})
        elif self.state == HELD and self.dialect.is_alpha:
            self._set_replicas(cluster, -1)
        elif self.state == HELD:
            self._edit(cluster, {"backoffLimit": -1})
        elif self.kept_pod:
            change = {"metadata": {"finalizers": [FINALIZER], "annotations": {RUN: KILLED}}}
            cluster.patch("pods", self.kept_pod, change)

    def has_entered(self, found: Snapshot) -> bool:
        if self.kept_pod:
            pod = found.children[f"pods/{self.kept_pod}"]
            return "deletionTimestamp" in pod["metadata"] and found.counted == Counter(active=1)
        if self.state == RESTARTING:
            runs = [each["restartCount"] for pod in found.pods for each in pod["status"]["containerStatuses"]]
            return self.runs(found) and sum(runs) == 1
        if self.state == SUSPENDED:
            return found.is_true("Suspended") and not found.children
        warned = any(reason == "InvalidTFJobSpec" for _, reason, _ in found.events)
        return self.runs(found) and found.is_true("Held") is warned is (self.state == HELD)

    def resume(self, cluster: Cluster) -> None:
        """Undo what keeps the job in its state."""
        if self.state == SUSPENDED:
            self._edit(cluster, {"suspend": False})
        elif self.state == HELD and self.dialect.is_alpha:
            self._set_replicas(cluster, 1)
        elif self.state == HELD:
            self._edit(cluster, {"backoffLimit": None})
        elif self.kept_pod:
            cluster.patch("pods", self.kept_pod, {"metadata": {"finalizers": None}})

    def has_resumed(self, found: Snapshot) -> bool:
        return self.runs(found) and not found.is_true("Held")

    def has_ended(self, found: Snapshot) -> bool:
        return found.is_true("Failed" if self.state in {FAILED, ABORTED} else "Succeeded")

    def end(self, cluster: Cluster, found: Snapshot) -> None:
        """Let the replicas succeed that decide about the job."""
        if self.state in ENDED:
            return
        for pod in found.pods:
            if not self.dialect.is_alpha or pod["metadata"]["labels"]["job-name"] == f"master-{self._runtime_id}-0":
                cluster.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": {RUN: DONE}}})

    def kept(self, found: Snapshot) -> dict[str, Any]:
        """Return what a change of the operator's version must leave alone.

        Two releases may describe the same mistake in different words, so messages about an invalid spec are left out.
        """
        status, events = found.status, dict(found.events)
        if self.state == HELD:
            worded = {"message", "lastUpdateTime"}
            status["conditions"] = [
                {key: value for key, value in each.items() if each["type"] != "Held" or key not in worded}
                for each in status["conditions"]
            ]
            del status["lastReconcileTime"]
            events = dict.fromkeys({(kind, reason, "") for kind, reason, _ in events}, 1)
        children = {name: (item["metadata"]["uid"], _version(name, item)) for name, item in found.children.items()}
        version = found.job["metadata"]["resourceVersion"] if self.state != HELD else ""
        return {"resourceVersion": version, "status": status, "children": children, "events": events}


class Scene:
    """The jobs of a namespace, whose operator changes its version."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: list[Job] = []

    def take(self) -> dict[str, Snapshot]:
        """Return a snapshot of every job by its name."""
        jobs = {item["metadata"]["uid"]: item for resource in JOBS for item in self.cluster.items(resource)}
        roots = {uid: uid for uid in jobs}
        children: dict[str, dict[str, Mapping[str, Any]]] = {uid: {} for uid in jobs}
        for resource in CHILDREN:
            for item in self.cluster.items(resource):
                meta = item["metadata"]
                for owner in meta.get("ownerReferences") or ():
                    if (root := roots.get(owner["uid"])) is not None:
                        roots[meta["uid"]] = root
                        children[root][f"{resource}/{meta['name']}"] = item
        events: dict[str, Counter[tuple[str, str, str]]] = {uid: Counter() for uid in jobs}
        for event in self.cluster.items("events"):
            if (uid := event["involvedObject"].get("uid")) in events:
                events[uid][event["type"], event["reason"], event["message"]] += event["count"]
        return {job["metadata"]["name"]: Snapshot(job, children[uid], events[uid]) for uid, job in jobs.items()}

    def wait(self, jobs: Sequence[Job], holds: Callable[[Job, Snapshot], bool], what: str) -> dict[str, Snapshot]:
        """Wait until something holds for all of these jobs; return the snapshots that show it."""

        def missing() -> list[str]:
            found.update(self.take())
            return [f"{job}: {found[str(job)].status}" for job in jobs if not holds(job, found[str(job)])]

        found: dict[str, Snapshot] = {}
        eventually(lambda: not missing(), what, yet=lambda: "\n".join(missing()), limit_s=120.0)
        return found

    def begin(self, jobs: Iterable[Job]) -> None:
        """Create jobs and bring them into their states."""
        made = list(jobs)
        self.cluster.post(*(job.manifest for job in made))
        self.wait(made, Job.runs, "the new jobs run")
        for job in made:
            job.enter(self.cluster)
        self.wait(made, Job.has_entered, "the new jobs are in their states")
        self.jobs += made

    def finish(self, jobs: Sequence[Job]) -> None:
        """Resume jobs and let them succeed: with the pods that they had, and without a restart but those that were made."""
        pods = {str(job): _pods(found) for job, found in self._of(jobs)}
        for job in jobs:
            job.resume(self.cluster)
        found = self.wait(jobs, Job.has_resumed, "the jobs run again")
        for job in jobs:
            now, expected = _pods(found[str(job)]), pods[str(job)]
            assert now.items() >= {name: uid for name, uid in expected.items() if name != job.kept_pod}.items(), job
            assert now.get(job.kept_pod) != expected.get(job.kept_pod) or not job.kept_pod, job
            job.end(self.cluster, found[str(job)])
        ended = self.wait(jobs, Job.has_ended, "the jobs end")
        # Containers of batch Jobs are restarted by their kubelet alone, and not counted.
        counted = {str(job): _restarts(ended[str(job)]) for job in jobs}
        assert counted == {str(job): bool(job.kept_pod) for job in jobs}
        self.jobs = [job for job in self.jobs if job not in jobs]

    def _of(self, jobs: Sequence[Job]) -> list[tuple[Job, Snapshot]]:
        found = self.take()
        return [(job, found[str(job)]) for job in jobs]

    def kept(self) -> dict[str, Any]:
        return {str(job): job.kept(found) for job, found in self._of(self.jobs)}


def _version(name: str, item: Mapping[str, Any]) -> object:
    """Return the version of a child, and of a TensorBoard's child the content: an upgrade from 0.2 writes who manages it."""
    meta = item["metadata"]
    if "tensorboard" in name:
        return [meta.get("generation"), meta["labels"], meta.get("annotations"), item["spec"]]
    # The Job controller writes the status of batch Jobs when it likes.
    return "" if name.startswith("jobs/") else meta["resourceVersion"]


def _pods(found: Snapshot) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found.pods}


def _restarts(found: Snapshot) -> int:
    """How many restarts of replicas the operator has counted."""
    counted = found.status.get("restarts") or ()
    return sum(each.get("carried", 0) + each.get("inPlace", 0) + each.get("replaced", False) for each in counted)


def differences(expected: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what has changed about jobs."""
    for name, right in expected.items():
        for key, value in right.items():
            if (now := found[name][key]) != value:
                yield f"{name}: {key} was {value}, is {now}"


def apply_crds(plane: ControlPlane, release: Release) -> None:
    for crd in (release.crd, release.alpha_crd):
        plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd))
    for resource in JOBS:
        plane.wait_for_crd(resource)


def is_idle(operator: OperatorProcess) -> bool:
    """Return True if no sync is queued or under way."""
    series = operator.scrape()
    return not any(series[key] for key in series if key[0] in {"workqueue_depth", "controller_runtime_active_workers"})


@pytest.mark.parametrize(
    ("states", "crd_first", "changes"),
    [
        pytest.param((RUNNING,), True, 2, id="running"),
        pytest.param(DIALECTS[0].states, True, 3, id="all-crd-first", marks=pytest.mark.nightly),
        pytest.param(DIALECTS[0].states, False, 3, id="all-crd-last", marks=pytest.mark.nightly),
    ],
)
def test_jobs_of_every_dialect_survive_an_upgrade_and_a_roll_back_untouched(
    tmp_path: Path, older: Release, states: tuple[str, ...], crd_first: bool, changes: int
) -> None:
    """Up, down and up again. After each change some jobs end, and some begin that must survive the next one."""

    def jobs(number: int, wanted: Sequence[str]) -> list[Job]:
        left_out = ABORTED if older.knows(RETRYABLE) else ""
        named = {*wanted} - {left_out}
        return [Job(each, state, number) for each in DIALECTS for state in each.states if state in named]

    with ControlPlane.start("upgrades") as plane:
        apply_crds(plane, older)
        plane.restart_controller_manager()  # its garbage collector knows both kinds now
        namespace = f"test-{secrets.token_hex(4)}"
        plane.create_namespace(namespace)
        cluster = Cluster(plane, namespace, tmp_path)
        scene = Scene(cluster)
        with cluster.node():
            with cluster.operator(*FLAGS, root=older.root) as operator:
                scene.begin(job for number in range(changes) for job in jobs(number, states))
                eventually(lambda: is_idle(operator), "the operator is idle")
            for number, release in enumerate([present(), older, present()][:changes]):
                kept = scene.kept()
                if crd_first:
                    apply_crds(plane, release)
                with cluster.operator(*FLAGS, root=release.root) as operator:
                    if not crd_first:
                        apply_crds(plane, release)
                    # Each dialect is served. These jobs come after all that was queued before; they end after the next change.
                    scene.begin(jobs(number + 11, [RUNNING]))
                    eventually(lambda: is_idle(operator), "the operator is idle")
                    fail_if(list(differences(kept, scene.kept())))
                    scene.finish([job for job in scene.jobs if job.number % 10 == number and str(job) in kept])
                    assert not [line for line in operator.lines() if line["level"] == "error"]


MANY: Final = 1_000
BACKEND_VARIABLES: Final = "--backend-variables"
MANY_S: Final = 1_200.0
"""Longer than two busy cores need for two thousand pods."""


def versions(cluster: Cluster) -> dict[str, object]:
    """Return the UID and resourceVersion of all jobs and their children, and the number of each event about a job."""
    found: dict[str, object] = {}
    for resource in (JOBS[0], *CHILDREN):
        for item in cluster.items(resource):
            meta = item["metadata"]
            found[f"{resource}/{meta['name']}"] = (meta["uid"], meta["resourceVersion"])
    for event in cluster.items("events"):
        about = event["involvedObject"]
        if about["kind"] == "TFJob":
            found[f"{about['name']}: {event['reason']}: {event['message']}"] = event["count"]
    return found


@pytest.mark.nightly
def test_a_thousand_running_jobs_are_not_changed_by_a_release_that_sets_more_variables(
    tmp_path: Path, older: Release
) -> None:
    """No pod is restarted or reported as outdated, and no status is written: by an upgrade, another flag, and a rollback.

    Only pods that the new release creates have the variables of Keras 3 and JAX, unless the flag disables them.
    """
    if older.knows(BACKEND_VARIABLES):
        pytest.skip(f"{older.name} sets the same variables")
    namespace = f"test-{secrets.token_hex(4)}"

    def job(name: str) -> dict[str, Any]:
        return tfjob(name, {"tfReplicaSpecs": {"Worker": replica(2, run=FOREVER)}})

    def variables(name: str) -> set[str]:
        (container,) = cluster.api("GET", "pods", name)["spec"]["containers"]
        return {each["name"] for each in container["env"]} - {v1.TF_CONFIG, v1.EXECUTION_VARIABLE}

    def running() -> int:
        return sum(Snapshot(item, {}, Counter()).is_true("Running") for item in cluster.items(JOBS[0]))

    with ControlPlane.start("upgrades") as plane:
        apply_crds(plane, older)
        plane.restart_controller_manager()
        plane.create_namespace(namespace)
        cluster = Cluster(plane, namespace, tmp_path)
        with cluster.node():
            with cluster.operator(*PATIENT, root=older.root) as operator:
                cluster.post(*(job(f"job-{number}") for number in range(MANY)))
                eventually(lambda: running() == MANY, "the jobs run", yet=running, limit_s=MANY_S)
                eventually(lambda: is_idle(operator), "the operator is idle", limit_s=MANY_S)
            kept, more = versions(cluster), {name for group in v1.BACKEND_VARIABLES for name in group}
            for name, release, flags, expected in (
                ("upgraded", present(), (), more),
                ("disabled", present(), (f"{BACKEND_VARIABLES}=false",), set()),
                ("rolled-back", older, (), set()),
                ("again", present(), (), more),
            ):
                apply_crds(plane, release)
                with cluster.operator(*PATIENT, *flags, root=release.root) as operator:
                    cluster.post(job(name))  # its sync comes after those of all jobs that were there before
                    eventually(lambda: cluster.state(name) == "Running", f"{name} runs", limit_s=MANY_S)  # noqa: B023
                    eventually(lambda: is_idle(operator), "the operator is idle", limit_s=MANY_S)
                    assert variables(f"{name}-worker-1") == expected
                    now = versions(cluster)
                    assert {key: now.get(key) for key, was in kept.items() if now.get(key) != was} == {}
                    assert [key for key in now.keys() - kept.keys() if "job-" in key] == []


DEPLOYMENT: Final = ("-n", "kubeflow", "deployment/tf-job-operator")
IMAGE: Final = "--output=jsonpath={.spec.template.spec.containers[0].image}"
PATCH: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: tf-job-operator, namespace: kubeflow}
spec: {template: {spec: {containers: [{name: operator, image: "operator:VERSION"}]}}}
"""
KUSTOMIZATION: Final = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
bases: [manifests/overlays/standalone]
patchesStrategicMerge: [image.yaml]
"""


@pytest.mark.nightly
def test_an_operator_that_was_rolled_back_alone_is_upgraded_again_by_force(tmp_path: Path) -> None:
    """The field of its image belongs to another manager by then, which `kubectl apply --server-side` alone respects."""
    with ControlPlane.start("rolling-back", extra_controllers=("deployment", "replicaset")) as plane:

        def apply(version: str, *more: str) -> None:
            (tmp_path / "image.yaml").write_text(PATCH.replace("VERSION", version))
            plane.run_kubectl("apply", "--server-side", *more, "-k", str(tmp_path))

        def image() -> str:
            return plane.run_kubectl("get", *DEPLOYMENT, IMAGE).stdout

        def revisions() -> int:
            return len(plane.run_kubectl("get", "replicasets", "-n", "kubeflow", "--output=name").stdout.split())

        (tmp_path / "manifests").symlink_to(ROOT / "manifests")
        (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATION)
        apply("before")
        eventually(lambda: revisions() == 1, "there is a ReplicaSet of the first version")
        apply("after")
        eventually(lambda: revisions() == 2, "there is one of the second version, too")
        plane.run_kubectl("rollout", "undo", *DEPLOYMENT)
        assert image() == "operator:before"
        with pytest.raises(ControlPlaneError, match="conflict"):
            apply("after")
        apply("after", "--force-conflicts")
        assert image() == "operator:after"
