"""What situations.py is made of: objects as API servers send them. The functions take seconds before `NOW_S`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fakes.recordings import kueue
from hack.objects import (
    CREATED_S,
    a_job,
    a_pod,
    a_tensorflow_job,
    an_alpha_pod,
    an_event,
    an_object,
    container_status,
    owned_by,
    wanting,
)
from tfjob_operator.cli.model.objects import WORKLOADS

NOW_S: Final = CREATED_S + 3600
"""An hour after the creation of all objects whose age does not matter."""
QUEUED: Final = {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
"""The metadata of a job in a queue of Kueue."""


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


def at(ago_s: float) -> str:
    return f"{datetime.fromtimestamp(NOW_S - ago_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def job(
    *states: str,
    age_s: float = 3600,
    policy: Any = None,
    meta: Any = None,
    why: tuple[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """Return a job with two workers. `Restarting:30` is a condition since 30 s, `-Suspended` one that is False.

    `why` has the reason and the message of the last condition.
    `status` has more fields of the status; `spec`, if it is among them, is the spec without the policy.
    """
    spec, made = status.pop("spec", None) or wanting(Worker=2), {"creationTimestamp": at(age_s), **(meta or {})}
    started = {"startTime": at(age_s)} if states and "Suspended" not in states else {}
    kinds = [each.lstrip("-").partition(":")[0] for each in states]
    body = a_job("mnist", *kinds, spec=spec | {"runPolicy": policy or {}}, status=started | status, **made)
    for each, condition in zip(states, body["status"]["conditions"], strict=True):
        condition["lastTransitionTime"] = at(float(each.partition(":")[2] or age_s))
        condition["status"] = "False" if each.startswith("-") else "True"
    if why is not None:
        told(body, *why)
    return body if states or status else body | {"status": {}}


def told(body: dict[str, Any], reason: str, message: str, kind: str = "") -> dict[str, Any]:
    """Set reason and message of the last condition, or of one of this type."""
    found = [each for each in body["status"]["conditions"] if kind in {"", each["type"]}]
    found[-1] |= {"reason": reason, "message": message}
    return body


failed = partial(job, "Created", "-Running:600", "Failed:600", completionTime=at(600))
"""Return a job that has failed ten minutes ago."""


def fell(words: str, **more: Any) -> dict[str, Any]:
    """Return a job that has failed because of a replica, with the operator's words about the pod."""
    because = "TFJob team/mnist has failed because 1 Worker replica(s) failed"
    return failed(why=("TFJobFailed", f"{because}. {words}" if words else f"{because}."), **more)


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


def ended(code: int, reason: str = "", ago_s: float = 700) -> dict[str, Any]:
    over = exit_of(code, reason or ("Error" if code else "Completed"), ago_s)
    return status_of("Failed" if code else "Succeeded", {"terminated": over})


def waiting(reason: str, phase: str = "Pending", *, last: Any = None, restarts: int = 0) -> dict[str, Any]:
    return status_of(phase, {"waiting": {"reason": reason}}, last=last, restarts=restarts)


def status_of(
    phase: str, state: dict[str, Any], *, ready: bool = False, last: Any = None, restarts: int = 0
) -> dict[str, Any]:
    conditions = {"PodScheduled": True, "Initialized": True, "Ready": ready, "ContainersReady": ready}
    container = container_status(state, {"terminated": last} if last else {}, restarts, ready=ready)
    found = [{"type": kind, "status": str(value)} for kind, value in conditions.items()]
    return {"phase": phase, "startTime": at(3590), "conditions": found, "containerStatuses": [container]}


def with_condition(status: dict[str, Any], kind: str, value: str, reason: str = "") -> dict[str, Any]:
    """Change one condition of a pod's status."""
    others = [each for each in status["conditions"] if each["type"] != kind]
    return status | {"conditions": [*others, {"type": kind, "status": value, "reason": reason}]}


def beside(status: dict[str, Any], state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add a sidecar in this state."""
    sidecar = container_status(state, name="sidecar", **more)
    return status | {"containerStatuses": [*status["containerStatuses"], sidecar]}


def after_init(status: dict[str, Any], state: dict[str, Any], *, last: Any = None, restarts: int = 0) -> dict[str, Any]:
    """Add an init container in this state."""
    init = container_status(state, {"terminated": last} if last else {}, restarts, name="fetch", ready=False)
    return status | {"initContainerStatuses": [init]}


def event(reason: str, message: str, ago_s: float = 60, about: str = "mnist", **involved: str) -> dict[str, Any]:
    """Return a Warning about the job or a pod; `involved` are other fields of the reference to the object."""
    kind = "TFJob" if about == "mnist" else "Pod"
    found = an_event(about, kind, type="Warning", reason=reason, message=message, lastTimestamp=at(ago_s))
    found["involvedObject"] |= involved
    return found


def counted(reason: str, message: str, times: int, ago_s: float = 35) -> dict[str, Any]:
    """Return a Normal event about the job that has occurred several times within half an hour."""
    found = event(reason, message, ago_s) | {"type": "Normal", "count": times, "firstTimestamp": at(1800)}
    return found | {"metadata": found["metadata"] | {"name": f"mnist.{reason}"}}


def recreated(times: int, ago_s: float = 35) -> dict[str, Any]:
    """Return the event of the creations of worker 1, of which the first one began the job."""
    return counted("SuccessfulCreatePod", "Created pod: mnist-worker-1", times + 1, ago_s)


def deleted(ago_s: float, **more: Any) -> dict[str, Any]:
    """Return the metadata of an object whose deletion was requested; of a pod, with a grace period of 30 s."""
    return {"deletionTimestamp": at(ago_s - 30), "deletionGracePeriodSeconds": 30, **more}


def workload(*conditions: str, active: bool = True, check: str = "", name: str = "mnist") -> dict[str, Any]:
    """Return Kueue's Workload of a job. A condition is `QuotaReserved False Pending MESSAGE`; `check` is a check's state."""
    fields = ("type", "status", "reason", "message")
    found = [dict(zip(fields, each.split(" ", 3), strict=True)) for each in conditions]
    checks = [{"name": "stub", "state": check.partition(" ")[0], "message": check.partition(" ")[2]}] if check else []
    status, meta = (
        {"conditions": found, "admissionChecks": checks},
        {"namespace": "team", "uid": "w1", **owned_by(name)},
    )
    return an_object(WORKLOADS, f"tfjob-{name}-1a2b3", {"queueName": "gpus", "active": active}, status, **meta)


def recorded(name: str, words: str) -> dict[str, Any]:
    """Return the first Workload of a recording that has no quota, with these words in its status, as that of our job."""
    ours = workload()["metadata"]
    for seen in kueue(name):
        conditions = (seen.object.get("status") or {}).get("conditions") or ()
        if any(each["type"] == "QuotaReserved" and each["status"] == "False" for each in conditions) and words in str(
            conditions
        ):
            return seen.object | {"metadata": ours}
    raise LookupError(words)


def first(*states: str, **status: Any) -> dict[str, Any]:
    """Return a job of tensorflow.org with a master and two workers."""
    return a_tensorflow_job("mnist", *states, status=status)


def of_batch(index: int = 0, kind: str = "WORKER", status: Any = None, **more: Any) -> dict[str, Any]:
    """Return a pod of a replica's batch Job."""
    return an_alpha_pod("mnist", kind, index, status=status or running(), **more)


def of_kubeflow(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the same pod of a job of kubeflow.org."""
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if key != "tensorflow.org"}
    return pod | {"metadata": pod["metadata"] | {"labels": labels | {"kubeflow.org": ""}}}
