"""Situations of jobs as the API server shows them, and what every display must show of each: see `SITUATIONS`.

What is expected was written by hand, by docs/kubectl-tfjob.md ("List jobs"): never copy it from the output of a display. All
times are relative to `NOW_S`; the functions that make objects take seconds before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from hack.page_objects import CREATED_S, TEMPLATE, a_job, a_pod, an_event, wanting

NOW_S: Final = CREATED_S + 3600
"""An hour after the creation of all objects whose age does not matter."""
NOW: Final = datetime.fromtimestamp(NOW_S, UTC)
QUEUED: Final = {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
KEPT: Final = ("Running", True, True, 0)
"""A replica with a healthy pod: see `Situation.replicas`."""


@dataclass(frozen=True)
class Situation:
    """A job with its pods (perhaps some of other jobs), events, and Kueue's Workload; and what is shown of it.

    `replicas` are the state (kubectl's STATUS, or why there is no pod), whether it is ready, whether it is running, and the
    restarts of each replica, by type and index; empty if they are not compared.
    """

    name: str
    state: str
    ready: str
    restarts: str
    reason: str
    job: dict[str, Any]
    pods: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    workload: dict[str, Any] | None
    replicas: Mapping[tuple[str, int], tuple[str, bool, bool, int]]

    def __str__(self) -> str:
        return self.name


SITUATIONS: Final[list[Situation]] = []


def expect(
    name: str,
    shown: str,
    job: dict[str, Any],
    *pods: dict[str, Any],
    events: Iterable[dict[str, Any]] = (),
    workload: dict[str, Any] | None = None,
    **replicas: tuple[str, bool, bool, int],
) -> None:
    """Add a situation. `shown` has STATE, READY, RESTARTS and, unless it is empty, REASON; `replicas` are Worker_0, ..."""
    state, ready, restarts, *reason = shown.split()
    named = {(kind, int(index)): value for key, value in replicas.items() for kind, index in [key.split("_")]}
    found = Situation(name, state, ready, restarts, "".join(reason), job, pods, tuple(events), workload, named)
    SITUATIONS.append(found)


def at(ago_s: float) -> str:
    return f"{datetime.fromtimestamp(NOW_S - ago_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def job(*states: str, age_s: float = 3600, policy: Any = None, meta: Any = None, **status: Any) -> dict[str, Any]:
    """Return a job with two workers. `Restarting:30` is a condition since 30 s, `-Suspended` one that is False.

    `status` has more fields of the status; `spec`, if it is among them, is the spec without the policy.
    """
    spec, made = status.pop("spec", None) or wanting(Worker=2), {"creationTimestamp": at(age_s), **(meta or {})}
    started = {"startTime": at(age_s)} if states and "Suspended" not in states else {}
    kinds = [each.lstrip("-").partition(":")[0] for each in states]
    body = a_job("mnist", *kinds, spec=spec | {"runPolicy": policy or {}}, status=started | status, **made)
    for each, condition in zip(states, body["status"]["conditions"], strict=True):
        condition["lastTransitionTime"] = at(float(each.partition(":")[2] or age_s))
        condition["status"] = "False" if each.startswith("-") else "True"
    return body if states or status else body | {"status": {}}


def told(body: dict[str, Any], reason: str, message: str, kind: str = "") -> dict[str, Any]:
    """Set reason and message of the last condition, or of one of this type."""
    found = [each for each in body["status"]["conditions"] if kind in {"", each["type"]}]
    found[-1] |= {"reason": reason, "message": message}
    return body


def failed(reason: str, message: str, *, name: str = "Failed", **more: Any) -> dict[str, Any]:
    """Return a job that has failed ten minutes ago."""
    return told(job("Created", "-Running:600", f"{name}:600", completionTime=at(600), **more), reason, message)


def fell(words: str, **more: Any) -> dict[str, Any]:
    """Return a job that has failed because of a replica, with the operator's words about the pod."""
    because = "TFJob team/mnist has failed because 1 Worker replica(s) failed"
    return failed("TFJobFailed", f"{because}. {words}" if words else f"{because}.", **more)


def ending(kind: str, reason: str, message: str, *states: str, meta: Any = None, **record: Any) -> dict[str, Any]:
    """Return a queued job whose end was decided 20 s ago."""
    end = {"type": kind, "reason": reason, "message": message, "time": at(20), "completionTime": at(21), **record}
    begun = {"generation": 1, "replicas": {"Chief": 1, "Worker": 2}, "ending": end}
    spec = wanting(Chief=1, Worker=2)
    return job("Created", "Running", *states, spec=spec, meta=QUEUED | (meta or {}), begun=begun)


def pod(index: int = 0, status: Any = None, *, kind: str = "Worker", **meta: Any) -> dict[str, Any]:
    """Return a pod; it is ready if there is no status. `meta` is more metadata, or another one."""
    return a_pod("mnist", kind, index, status=status or running(), **meta)


def pods(*, of: int = 2, status: Any = None) -> list[dict[str, Any]]:
    return [pod(index, status) for index in range(of)]


def running(since_s: float = 3500, *, ready: bool = True, last: Any = None, restarts: int = 0) -> dict[str, Any]:
    return status_of("Running", {"running": {"startedAt": at(since_s)}}, ready=ready, last=last, restarts=restarts)


def exit_of(code: int, reason: str = "Error", ago_s: float = 700) -> dict[str, Any]:
    return {"exitCode": code, "reason": reason, "startedAt": at(ago_s + 100), "finishedAt": at(ago_s)}


def ended(code: int, reason: str = "", ago_s: float = 700, **status: Any) -> dict[str, Any]:
    """Return the status of a pod that has ended; `status` are more fields, or others."""
    over = exit_of(code, reason or ("Error" if code else "Completed"), ago_s)
    return status_of("Failed" if code else "Succeeded", {"terminated": over}) | status


def waiting(reason: str, phase: str = "Pending", *, last: Any = None, restarts: int = 0) -> dict[str, Any]:
    return status_of(phase, {"waiting": {"reason": reason}}, last=last, restarts=restarts)


def status_of(
    phase: str, state: dict[str, Any], *, ready: bool = False, last: Any = None, restarts: int = 0
) -> dict[str, Any]:
    conditions = {"PodScheduled": True, "Initialized": True, "Ready": ready, "ContainersReady": ready}
    container = {"name": "tensorflow", "ready": ready, "restartCount": restarts, "state": state}
    return {
        "phase": phase,
        "startTime": at(3590),
        "conditions": [{"type": kind, "status": str(value)} for kind, value in conditions.items()],
        "containerStatuses": [container | {"lastState": {"terminated": last} if last else {}}],
    }


def with_condition(status: dict[str, Any], kind: str, value: str, reason: str = "") -> dict[str, Any]:
    """Change one condition of a pod's status."""
    others = [each for each in status["conditions"] if each["type"] != kind]
    return status | {"conditions": [*others, {"type": kind, "status": value, "reason": reason}]}


def beside(status: dict[str, Any], state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add a sidecar in this state."""
    sidecar = {"name": "sidecar", "ready": "running" in state, "restartCount": 0, "state": state, "lastState": {}}
    return status | {"containerStatuses": [*status["containerStatuses"], sidecar | more]}


def after_init(status: dict[str, Any], state: dict[str, Any], *, last: Any = None, restarts: int = 0) -> dict[str, Any]:
    """Add an init container in this state."""
    init = {"name": "fetch", "ready": False, "restartCount": restarts, "state": state}
    return status | {"initContainerStatuses": [init | {"lastState": {"terminated": last} if last else {}}]}


def event(reason: str, message: str, ago_s: float = 60, about: str = "mnist", **more: Any) -> dict[str, Any]:
    kind = "TFJob" if about == "mnist" else "Pod"
    fields = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": at(ago_s)} | more
    found = an_event(about, kind, **fields)
    found["involvedObject"]["apiVersion"] = "kubeflow.org/v1" if kind == "TFJob" else "v1"
    return found


def deleted(ago_s: float, **more: Any) -> dict[str, Any]:
    """Return the metadata of an object whose deletion was requested; of a pod, with a grace period of 30 s."""
    return {"deletionTimestamp": at(ago_s - 30), "deletionGracePeriodSeconds": 30, **more}


# --- States, sizes and counts ---

for seconds, why in ((30, "Starting"), (59, "Starting"), (61, "NotReconciled"), (600, "NotReconciled")):
    expect(f"new for {seconds}s, seen by no operator", f"New 0/2 0 {why}", job(age_s=seconds))
expect(
    "created 30s ago, without pods", "Created 0/2 0 Starting", job("Created", age_s=30),
    Worker_0=("Missing", False, False, 0), Worker_1=("Missing", False, False, 0),
)  # fmt: skip
expect("created 2m ago, without pods", "Created 0/2 0 NotReconciled", job("Created", age_s=120))
expect("created 10m ago, without pods", "Created 0/2 0 NotReconciled", job("Created", age_s=600))
expect("all pods are ready", "Running 2/2 0", job("Created", "Running"), *pods(), Worker_0=KEPT, Worker_1=KEPT)
LED: Final = wanting(Chief=1, PS=1, Worker=2)
TWO: Final = {"replicas": 2, "template": TEMPLATE}
expect(
    "all types are ready", "Running 4/4 0", job("Created", "Running", spec=LED),
    *pods(), pod(kind="Chief"), pod(kind="PS"), Chief_0=KEPT, PS_0=KEPT, Worker_0=KEPT, Worker_1=KEPT,
)  # fmt: skip
expect(
    "one replica if the spec has no number", "Running 1/1 0",
    job("Created", "Running", spec={"tfReplicaSpecs": {"Worker": {"template": TEMPLATE}}}), pod(), Worker_0=KEPT,
)  # fmt: skip
expect(
    "keys in lower case", "Running 3/3 0",
    job("Created", "Running", spec={"tfReplicaSpecs": {"ps": {"template": TEMPLATE}, "worker": TWO}}),
    *pods(), pod(kind="PS"), PS_0=KEPT, Worker_0=KEPT, Worker_1=KEPT,
)  # fmt: skip
expect(
    "worker and Worker, which the scale subresource has added", "Running 4/4 0",
    job("Created", "Running", spec={"tfReplicaSpecs": {"worker": TWO, "Worker": {"replicas": 4}}}),
    *pods(of=4), Worker_0=KEPT, Worker_1=KEPT, Worker_2=KEPT, Worker_3=KEPT,
)  # fmt: skip
expect("scaled down, and the surplus pod still runs", "Running 2/2 0", job("Created", "Running"), *pods(of=3))
expect("no replicas", "Created 0/0 0 NoReplicas", job("Created", spec=wanting(Worker=0, PS=0)))
expect("no parameter servers", "Running 2/2 0", job("Created", "Running", spec=wanting(Worker=2, PS=0)), *pods())
expect(
    "succeeded, and its pods were deleted", "Succeeded 0/2 0",
    job("Created", "-Running", "Succeeded", finishedIndices={"Worker": "0"}, completionTime=at(60)),
    Worker_0=("Succeeded", False, False, 0), Worker_1=("No pod", False, False, 0),
)  # fmt: skip
expect(
    "succeeded, and its pods were kept", "Succeeded 0/2 3",
    job("Created", "-Running", "Succeeded", finishedIndices={"Worker": "0-1"}, completionTime=at(60)),
    pod(0, ended(0)), pod(1, status_of("Succeeded", {"terminated": exit_of(0, "Completed")}, last=exit_of(1), restarts=3)),
    Worker_0=("Succeeded", False, False, 0), Worker_1=("Succeeded", False, False, 3),
)  # fmt: skip
expect(
    "succeeded, although a pod fails when it is deleted", "Succeeded 0/2 0",
    job("Created", "-Running", "Succeeded", finishedIndices={"Worker": "0"}), pod(0, ended(0)), pod(1, ended(143)),
)  # fmt: skip
expect(
    "a worker has succeeded, and its pod is kept", "Running 1/2 0",
    job("Created", "Running", finishedIndices={"Worker": "1"}), pod(0), pod(1, ended(0)),
    Worker_0=KEPT, Worker_1=("Succeeded", False, False, 0),
)  # fmt: skip
expect(
    "a worker has succeeded, and its pod was deleted", "Running 1/2 0",
    job("Created", "Running", finishedIndices={"Worker": "1"}), pod(0),
    Worker_0=KEPT, Worker_1=("Succeeded", False, False, 0),
)  # fmt: skip
expect(
    "a worker has succeeded, and its sidecar still works", "Running 1/2 0",
    job("Created", "Running", finishedIndices={"Worker": "1"}), pod(0),
    pod(1, beside(status_of("Running", {"terminated": exit_of(0, "Completed")}), {"running": {"startedAt": at(3500)}})),
)  # fmt: skip

# --- Conditions ---

expect(
    "resumed 30s ago: Suspended is the last condition, and False", "Created 0/2 0 Starting",
    job("Created", "-Suspended:30", startTime=at(30)), Worker_0=("Missing", False, False, 0),
)  # fmt: skip
expect(
    "resumed 2m ago, without pods", "Created 0/2 0 NotReconciled", job("Created", "-Suspended:120", startTime=at(120))
)
expect("all conditions are False", "Created 2/2 0", job("-Created", "-Running"), *pods())
expect("Running was False once", "Running 2/2 0", job("Created", "-Suspended", "Running"), *pods())

# --- Pods that do not run, are not ready, or were restarted ---

UP: Final = job("Created", "Running")
UNREADY: Final = ("Running", False, True, 0)
expect("a readiness probe fails", "Running 1/2 0 NotReady", UP, pod(0), pod(1, running(ready=False)), Worker_1=UNREADY)
expect(
    "a readiness gate is closed", "Running 1/2 0 NotReady", UP, pod(0),
    pod(1, with_condition(running(), "Ready", "False", "ReadinessGatesNotReady")),
)  # fmt: skip
expect(
    "a sidecar has ended, and the training runs", "Running 1/2 0 NotReady", UP, pod(0),
    pod(1, beside(running(ready=False), {"terminated": exit_of(0, "Completed")})),
)  # fmt: skip
expect(
    "a sidecar has failed, and the training runs", "Running 1/2 0 ExitCode:3", UP, pod(0),
    pod(1, beside(running(ready=False), {"terminated": exit_of(3)})),
)  # fmt: skip
LOST: Final = with_condition(running(), "Ready", "False")
expect(
    "both pods are on a lost node for 28m", "Running 0/2 0 NodeNotReady", UP, *pods(status=LOST),
    Worker_0=UNREADY, Worker_1=UNREADY,
)  # fmt: skip
expect(
    "both pods are deleted because their node was lost", "Running 0/2 0 PodTerminating", UP,
    *(pod(index, LOST, **deleted(1380)) for index in range(2)), Worker_0=("Terminating", False, False, 0),
)  # fmt: skip
expect(
    "a pod is deleted while it runs", "Running 1/2 0 PodTerminating", UP, pod(0), pod(1, **deleted(5)),
    Worker_0=KEPT, Worker_1=("Terminating", False, False, 0),
)  # fmt: skip
expect(
    "a restart waits behind a finalizer for 31m", "Restarting 1/2 1 PodTerminating",
    job("Created", "Restarting:1860", restarts=[{"type": "Worker", "index": 1, "replaced": True, "pod": "uid-mnist-worker-1"}]),
    pod(0), pod(1, ended(137, ago_s=1870), **deleted(1860, finalizers=["example.com/hold"])),
    Worker_0=KEPT, Worker_1=("Terminating", False, False, 1),
)  # fmt: skip
for seconds, why in ((120, " OOMKilled"), (599, " OOMKilled"), (601, ""), (660, "")):
    expect(
        f"restarted twice after OOM, and runs for {seconds}s", f"Running 2/2 2{why}", UP, pod(0),
        pod(1, running(seconds, last=exit_of(137, "OOMKilled", seconds), restarts=2)),
        Worker_0=KEPT, Worker_1=("Running", True, True, 2),
    )  # fmt: skip
expect(
    "restarted twice after exit 1, and runs for 2m", "Running 2/2 2 ExitCode:1", UP, pod(0),
    pod(1, running(120, last=exit_of(1, ago_s=120), restarts=2)),
)  # fmt: skip
expect(
    "restarted once, and runs for 2m", "Running 2/2 1", UP, pod(0),
    pod(1, running(120, last=exit_of(1, ago_s=120), restarts=1)), Worker_1=("Running", True, True, 1),
)  # fmt: skip
expect(
    "crash loop", "Running 1/2 6 CrashLoopBackOff", UP, pod(0),
    pod(1, waiting("CrashLoopBackOff", "Running", last=exit_of(1), restarts=6)),
    Worker_0=KEPT, Worker_1=("CrashLoopBackOff", False, False, 6),
)  # fmt: skip
expect(
    "crash loop after OOM", "Running 1/2 3 OOMKilled", UP, pod(0),
    pod(1, waiting("CrashLoopBackOff", "Running", last=exit_of(137, "OOMKilled"), restarts=3)),
)  # fmt: skip
expect(
    "ended, and the kubelet has not restarted it yet", "Running 1/2 0 ExitCode:3", UP, pod(0),
    pod(1, status_of("Running", {"terminated": exit_of(3, ago_s=1)})),
)  # fmt: skip
for reason in ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"):
    expect(
        f"one pod has {reason}", f"Created 1/2 0 {reason}", job("Created"), pod(0), pod(1, waiting(reason)),
        Worker_0=KEPT, Worker_1=(reason, False, False, 0),
    )  # fmt: skip
UNBOUND: Final = {"phase": "Pending", "conditions": []}
for reason in ("Unschedulable", "SchedulingGated"):
    expect(
        f"no pod is scheduled: {reason}", f"Created 0/2 0 {reason}", job("Created"),
        *pods(status=with_condition(UNBOUND, "PodScheduled", "False", reason)),
    )  # fmt: skip
expect(
    "the most frequent problem counts", "Created 0/3 0 Unschedulable", job("Created", spec=wanting(Worker=3)),
    pod(0, waiting("ImagePullBackOff")),
    *(pod(index, with_condition(UNBOUND, "PodScheduled", "False", "Unschedulable")) for index in (1, 2)),
)  # fmt: skip
expect("pods without containers yet", "Created 0/2 0 Pending", job("Created", age_s=5), *pods(status=UNBOUND))
INIT: Final = waiting("PodInitializing")
for name, age in (("", 5), (" for 20m", 1200)):
    expect(
        f"containers are created{name}", "Created 0/2 0 ContainerCreating", job("Created", age_s=age),
        *pods(status=waiting("ContainerCreating")),
        Worker_0=("ContainerCreating", False, False, 0), Worker_1=("ContainerCreating", False, False, 0),
    )  # fmt: skip
expect(
    "an init container runs", "Created 0/2 0 PodInitializing", job("Created"),
    *pods(status=after_init(INIT, {"running": {"startedAt": at(60)}})),
)  # fmt: skip
expect(
    "an init container fails again and again", "Created 1/2 4 CrashLoopBackOff",
    job("Created", restarts=[{"type": "Worker", "index": 1, "inPlace": 4, "pod": "uid-mnist-worker-1"}]), pod(0),
    pod(1, after_init(INIT, {"waiting": {"reason": "CrashLoopBackOff"}}, last=exit_of(1), restarts=4)),
)  # fmt: skip
expect(
    "an init container has failed", "Created 1/2 0 ExitCode:1", job("Created"), pod(0),
    pod(1, after_init(INIT | {"phase": "Failed"}, {"terminated": exit_of(1)})),
)  # fmt: skip
expect(
    "a child of an init container was killed by OOM, and it exits with 0", "Created 1/2 0 OOMKilled", job("Created"), pod(0),
    pod(1, after_init(INIT | {"phase": "Failed"}, {"terminated": exit_of(0, "OOMKilled")})),
)  # fmt: skip
expect(
    "a pod was evicted", "Running 1/2 0 Evicted", UP, pod(0),
    pod(1, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
    Worker_0=KEPT, Worker_1=("Evicted", False, False, 0),
)  # fmt: skip
expect(
    "a pod was rejected by its node", "Created 1/2 0 OutOfcpu", job("Created"), pod(0),
    pod(1, {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu"}),
)  # fmt: skip
