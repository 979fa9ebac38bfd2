"""What a job and its pods say about themselves: the facts from which a `JobSnapshot` is made. Pure.

Objects are raw JSON: importing msgspec for typed decoding would take a fifth of the time of `list`. Only the necessary fields
are kept, so that a list or watch of ten thousand jobs stays small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from tfjob_operator.api.v1 import states
from tfjob_operator.cli.model.replica_names import ReplicaName, replica_of, type_of

GROUP: Final = "kubeflow.org"
TENSORFLOW_GROUP: Final = "tensorflow.org"
"""The group of the oldest version, v1alpha1."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
CONTAINER: Final = "tensorflow"
"""The training container."""
OURS: Final = frozenset({"", "kubeflow.org/training-operator", "kubeflow.org/tfjob-operator"})
"""Values of `managedBy` for which this operator manages the job."""
BY_RESTARTS: Final = "BackoffLimitExceeded"
"""The event of a job that has reached its backoffLimit."""
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
_JOB_LABELS: Final = ("training.kubeflow.org/job-name", "tf_job_name")
COMPLETED: Final = "Completed"
_PLAIN_EXITS: Final = frozenset({"", "Error", "Completed"})
_COMMON: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting reasons that occur in every start."""
RECOVERY_S: Final = 600.0
"""A container that has been running this long has recovered: the kubelet resets its back-off then."""
_MAX_REPLICAS: Final = 100_000
"""The most replicas of a type that are counted: ten times what the operator accepts."""


class Counters(NamedTuple):
    """The counters of a replica type in a status."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class JobFacts(NamedTuple):
    """What a job says about itself. Times are in seconds since 1970, None if unknown.

    `end` is Succeeded or Failed, once that is decided, else "". `condition` is the one that gives the state, or the record of
    the end; `since` is its time. `sizes` has the requested replicas by type, and `done` those that have succeeded, as text.
    `restarts` has the recorded restarts of replicas, `delayed` when the next ones are due, and `failed_at` the times of the
    last failures; `attempt` counts those of the whole job, and `attempt_ends` are the times of the last ones. `at_limit` has
    the UIDs of pods whose failure was counted as a restart at the backoffLimit. `manager` is the other controller that manages
    the job, "" if this operator does. `counts` has the counters of `replicaStatuses` by type.
    """

    namespace: str
    name: str
    uid: str
    group: str
    is_deleted: bool
    is_alpha: bool
    runtime_id: str
    state: str
    condition: Mapping[str, Any]
    held: Mapping[str, Any] | None
    stalled: Mapping[str, Any] | None
    since: float | None
    end: str
    sizes: Mapping[str, int]
    done: Mapping[str, str]
    counts: Mapping[str, Counters]
    restarts: Mapping[ReplicaName, int]
    at_limit: Collection[str]
    delayed: Mapping[ReplicaName, float]
    failed_at: Mapping[ReplicaName, float]
    attempt: int
    attempt_ends: Sequence[float]
    created: float | None
    started: float | None
    ended: float | None
    reconciled: float | None
    next_restart: float | None
    is_suspended: bool
    queue: str
    manager: str


class PodFacts(NamedTuple):
    """What a pod says about itself. `owner` is the UID of its job, "" if it belongs to a batch Job or to nothing.

    `state` is the word of kubectl's column STATUS. `problem` is why the pod does not train or did not, until `recovers` if that
    is not None. `starting` is the progress of a pod without a problem that has not started yet. `exit_code` and `exit_reason`
    are those of its last exit. `has_succeeded`: its training container has ended with 0, whatever its other containers do.
    `running`: its training container runs. `is_up`: its phase is Running. `waits_for_none`: the containers that keep it from
    being ready have ended with 0, as helpers do.
    """

    name: str
    uid: str
    owner: str
    replica: ReplicaName
    created: float
    node: str
    state: str
    message: str
    exit_code: int | None
    exit_reason: str
    ready: bool
    running: bool
    has_succeeded: bool
    has_failed: bool
    is_terminating: bool
    grace_ends: float | None
    is_up: bool
    is_on_lost_node: bool
    waits_for_none: bool
    starting: str
    restarts: int
    problem: str
    problem_message: str
    recovers: float | None


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a JSON array; none in place of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, (list, tuple)) else ()


def text(value: object) -> str:
    """Return a JSON string; "" in place of anything else."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """Return a JSON number that is whole; 0 in place of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def seconds(value: object) -> float | None:
    """Return a time in seconds since 1970; None if it is missing or invalid. A time without a zone cannot be compared."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        return at.timestamp() if at is not None and at.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def group_of(job: Mapping[str, Any]) -> str:
    """Return the API group of a job."""
    return TENSORFLOW_GROUP if str(job.get("apiVersion", "")).startswith(f"{TENSORFLOW_GROUP}/") else GROUP


def conditions_of(job: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the True conditions of a job by type."""
    found = listed(status_of(job).get("conditions"))
    return {str(each.get("type")): each for each in found if each.get("status") == "True"}


def spec_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the specification of a job, empty if there is none."""
    return mapping(job.get("spec"))


def status_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of a job, empty if there is none."""
    return mapping(job.get("status"))


def is_alpha(job: Mapping[str, Any]) -> bool:
    """Return True for a job of the alpha dialect, which has `replicaSpecs`."""
    return group_of(job) == TENSORFLOW_GROUP or any(key.casefold() == "replicaspecs" for key in spec_of(job))


def decided_end(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how an Ending job ends: the record in its status. None for any other job.

    `api.v1.conditions.decided_end` does the same for a typed status.
    """
    return None if conditions_of(job).keys() & states.ENDS else end_record(job)


def end_record(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record of how a job ends, in its status. None if that is undecided, or an older operator decided it."""
    record = mapping(mapping(status_of(job).get("begun")).get("ending"))
    return record if record.get("type") in states.ENDS else None


def state_of(job: Mapping[str, Any]) -> str:
    """Return the state of a job, see `states`."""
    status = status_of(job)
    pairs = (
        (str(condition.get("type")), str(condition.get("status"))) for condition in listed(status.get("conditions"))
    )
    phase, outcome = text(status.get("phase")), text(status.get("state"))
    return states.state_of(pairs, is_ending=decided_end(job) is not None, phase=phase, outcome=outcome)


def job_facts(job: Mapping[str, Any], *, gone: bool = False) -> JobFacts:
    """Return the facts of a job; `gone`: it was deleted."""
    meta, status, spec = mapping(job.get("metadata")), status_of(job), spec_of(job)
    state, conditions, decided = state_of(job), conditions_of(job), decided_end(job)
    condition = decided if decided is not None else conditions.get(state, {})
    end = text(condition.get("type")) if decided is not None else state if state in states.ENDS else ""
    policy = mapping(spec.get("runPolicy"))
    manager = text(policy.get("managedBy"))
    return JobFacts(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        group=group_of(job),
        is_deleted=gone or "deletionTimestamp" in meta,
        is_alpha=is_alpha(job),
        runtime_id=text(status.get("runtimeId")),
        state=state,
        condition=_end_of(job, condition, status) if end else condition,
        held=conditions.get("Held") if not end else None,
        stalled=conditions.get("Stalled") if state == "Running" else None,
        since=seconds(condition.get("lastTransitionTime") if decided is None else condition.get("time")),
        end=end,
        sizes=sizes_of(job),
        done={type_of(key): value for key, value in mapping(status.get("finishedIndices")).items() if text(value)},
        counts=_counts_of(status.get("replicaStatuses")),
        restarts={ReplicaName(type_of(kind), index): times for kind, index, times in restarts_of(status)},
        at_limit=frozenset(_at_limit(status)),
        delayed=dict(_times_of(status, "nextTime")),
        failed_at=dict(_times_of(status, "failedAt")),
        attempt=number(status.get("attempt")),
        attempt_ends=[
            at
            for attempt in listed(status.get("attemptHistory"))
            if (at := seconds(attempt.get("endTime"))) is not None
        ],
        created=seconds(meta.get("creationTimestamp")),
        started=seconds(status.get("startTime")),
        ended=seconds((decided or status).get("completionTime")),
        reconciled=seconds(status.get("lastReconcileTime")),
        next_restart=seconds(status.get("nextRestartTime")),
        is_suspended=state == "Suspended" or policy.get("suspend") is True,
        queue=text(mapping(meta.get("labels")).get(QUEUE_LABEL)),
        manager="" if manager in OURS else manager,
    )


def _end_of(job: Mapping[str, Any], condition: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the final condition, with the limit and the failure of the record of the end."""
    record = end_record(job) or {}
    more = {key: record[key] for key in ("event", "failure") if key in record}
    return {"message": status.get("reason"), **condition, **more}


def sizes_of(job: Mapping[str, Any]) -> dict[str, int]:
    """Return the requested replicas by type, in either dialect. Spellings of a type are merged as the operator merges them."""
    spec = {str(key).casefold(): value for key, value in spec_of(job).items()}
    entries, found = mapping(spec.get("tfreplicaspecs")), dict[str, int]()
    for key in sorted(entries, key=lambda key: key != type_of(key)):
        kind, entry = type_of(key), entries[key]
        is_scaled = kind in found and mapping(entries[kind]).keys() == {"replicas"}
        if not is_scaled:  # the scale subresource wrote it: its number counts
            found.setdefault(kind, _size(entry))
    has_begun = bool(mapping(status_of(job).get("begun")))
    if has_begun and len(found) > 1 and not _has_workers(entries):
        found.pop("Worker", None)
    for replica in listed(spec.get("replicaspecs")):
        given = {str(key).casefold(): value for key, value in replica.items()}
        kind = type_of(text(given.get("tfreplicatype")) or "Master")
        found[kind] = found.get(kind, 0) + _size(given)
    return found


def _has_workers(entries: Mapping[str, Any]) -> bool:
    """Return False if the only entry for workers is one that the scale subresource has written."""
    return any(type_of(key) == "Worker" and mapping(entry).keys() != {"replicas"} for key, entry in entries.items())


def _size(entry: object) -> int:
    size = mapping(entry).get("replicas", 1)
    return min(max(size, 0), _MAX_REPLICAS) if isinstance(size, int) and not isinstance(size, bool) else 1


def _counts_of(statuses: object) -> dict[str, Counters]:
    """Return the counters by type; the alpha dialect has an array of types with the number of replicas in each state."""
    found = {
        type_of(kind): Counters(*(number(mapping(each).get(key)) for key in Counters._fields))
        for kind, each in mapping(statuses).items()
    }
    for status in listed(statuses):
        states_of_type = mapping(status.get("ReplicasStates"))
        numbers = (number(states_of_type.get(key)) for key in ("Running", SUCCEEDED, FAILED))
        found[type_of(text(status.get("tf_replica_type")))] = Counters(*numbers)
    return found


def restarts_of(status: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield type, index and number of restarts of each replica whose restarts the operator has counted.

    The recorded failure at the backoffLimit was counted, but its pod was not replaced. The same is true of other failures then,
    if the pod still exists (`JobFacts.at_limit`).
    """
    last = _failure_at_limit(status)
    for restart in listed(status.get("restarts")):
        if isinstance(restart.get("index"), int):
            kind, index = text(restart.get("type")), restart["index"]
            keys = ("carried", "inPlace") if last == (kind, index) else ("carried", "inPlace", "replaced")
            yield kind, index, sum(int(count) for key in keys if isinstance(count := restart.get(key), int))


def _at_limit(status: Mapping[str, Any]) -> Iterator[str]:
    last = _failure_at_limit(status)
    for restart in listed(status.get("restarts")) if last is not None else ():
        if restart.get("replaced") is True and last != (restart.get("type"), restart.get("index")):
            yield text(restart.get("pod"))


def _failure_at_limit(status: Mapping[str, Any]) -> tuple[object, object] | None:
    """Return type and index of the recorded failure of a job that has reached its backoffLimit; None for other jobs."""
    end = mapping(mapping(status.get("begun")).get("ending"))
    last = mapping(end.get("failure"))
    return (last.get("replicaType"), last.get("replicaIndex")) if end.get("event") == BY_RESTARTS else None


def _times_of(status: Mapping[str, Any], key: str) -> Iterator[tuple[ReplicaName, float]]:
    """Yield the replicas whose record of restarts has this time."""
    for restart in listed(status.get("restarts")):
        if isinstance(restart.get("index"), int) and (at := seconds(restart.get(key))) is not None:
            yield ReplicaName(type_of(text(restart.get("type"))), restart["index"]), at


def job_of_pod(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return namespace, API group and name of the job that a pod was created for; the name is "" if it has no such label."""
    meta = mapping(pod.get("metadata"))
    labels = mapping(meta.get("labels"))
    name = next((text(labels[key]) for key in _JOB_LABELS if key in labels), "")
    return text(meta.get("namespace")), TENSORFLOW_GROUP if TENSORFLOW_GROUP in labels else GROUP, name


def controller_of(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the owner that controls an object, empty if there is none."""
    return next((reference for reference in listed(meta.get("ownerReferences")) if reference.get("controller")), {})


def pod_facts(pod: Mapping[str, Any], job: str = "", runtime_id: str = "") -> PodFacts:
    """Return the facts of a pod. `job` and `runtime_id` help to find its replica if its labels were removed."""
    meta, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    owner, phase, name = controller_of(meta), text(status.get("phase")), text(meta.get("name"))
    conditions = {condition.get("type"): condition for condition in listed(status.get("conditions"))}
    regular = listed(status.get("containerStatuses"))
    every = [*listed(status.get("initContainerStatuses")), *regular]
    training = _training(regular)
    state, last = mapping(training.get("state")), last_exit(training)
    ended = mapping(state.get("terminated"))
    is_terminating = "deletionTimestamp" in meta
    word, message = _word(status, every, conditions, state)
    is_restarted = text(mapping(pod.get("spec")).get("restartPolicy")) == "Always"  # also after exit code 0
    problem, why, recovers = (
        ("", "", None) if is_terminating else _problem(status, every, conditions, {CONTAINER} if is_restarted else ())
    )
    is_done = bool(ended) and ended.get("exitCode") == 0 and phase == "Running" and not is_restarted
    has_succeeded = phase == SUCCEEDED or is_done
    is_up = phase == "Running" and not is_terminating
    newest_end = ended or last
    return PodFacts(
        name=name,
        uid=text(meta.get("uid")),
        owner="" if owner.get("kind") == "Job" else text(owner.get("uid")),
        replica=replica_of(mapping(meta.get("labels")), job, name, runtime_id),
        created=seconds(meta.get("creationTimestamp")) or 0.0,
        node=text(mapping(pod.get("spec")).get("nodeName")),
        state="Terminating" if is_terminating else word,
        message=("" if is_terminating else message)
        or text(newest_end.get("message"))
        or (why if phase == FAILED else ""),
        exit_code=code if isinstance(code := newest_end.get("exitCode"), int) else None,
        exit_reason=text(status.get("reason")) or text(newest_end.get("reason")),
        ready=not is_terminating and _is_true(conditions, "Ready"),
        running=is_up and ("running" in state or not training),
        has_succeeded=has_succeeded,
        has_failed=phase == FAILED,
        is_terminating=is_terminating,
        grace_ends=seconds(meta.get("deletionTimestamp")),
        is_up=is_up,
        is_on_lost_node=is_up and _is_on_lost_node(conditions),
        waits_for_none=_waits_for_none(regular),
        starting=_starting(phase, every) if not (problem or is_terminating) else "",
        restarts=sum(number(each.get("restartCount")) for each in regular),
        problem=problem,
        problem_message=why,
        recovers=recovers,
    )


def _training(statuses: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the status of the training container, or of the first one if there is none."""
    return next((status for status in statuses if status.get("name") == CONTAINER), statuses[0] if statuses else {})


def last_exit(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a container last terminated before it was restarted.

    A container that was never restarted has not: kubelets up to 1.20 report exit code 0 if the runtime could not create it.
    """
    last = mapping(mapping(status.get("lastState")).get("terminated"))
    return {} if last.get("exitCode") == 0 and not number(status.get("restartCount")) else last


def _is_true(conditions: Mapping[Any, Mapping[str, Any]], kind: str) -> bool:
    return mapping(conditions.get(kind)).get("status") == "True"


def _is_on_lost_node(conditions: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Return True if the containers are ready and the pod is not: the controller manager does this if the node is not ready."""
    ready = mapping(conditions.get("Ready"))
    is_not_ready = ready.get("status") == "False" and ready.get("reason") != "ReadinessGatesNotReady"
    return is_not_ready and _is_true(conditions, "ContainersReady")


def _waits_for_none(statuses: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if there are containers that are not ready, and each of them has ended with 0."""
    ends = [mapping(mapping(status.get("state")).get("terminated")) for status in statuses if not status.get("ready")]
    return bool(ends) and all(end.get("exitCode") == 0 for end in ends)


def _starting(phase: str, statuses: Iterable[Mapping[str, Any]]) -> str:
    """Return how far a pod has come that has not started, "" if it has."""
    if phase not in {"", "Pending"}:
        return ""
    waiting = (text(mapping(mapping(status.get("state")).get("waiting")).get("reason")) for status in statuses)
    return next(filter(None, waiting), "Pending")


def _word(
    status: Mapping[str, Any],
    statuses: Iterable[Mapping[str, Any]],
    conditions: Mapping[Any, Mapping[str, Any]],
    training: Mapping[str, Any],
) -> tuple[str, str]:
    """Return the state of a pod, like kubectl's column STATUS, and a message."""
    phase = text(status.get("phase"))
    if phase in states.ENDS:
        return text(status.get("reason")) or phase, text(status.get("message"))
    for each in statuses:
        waiting = mapping(mapping(each.get("state")).get("waiting"))
        if text(waiting.get("reason")) not in _COMMON:
            last = mapping(mapping(each.get("lastState")).get("terminated"))
            return waiting["reason"], text(last.get("message")) or text(waiting.get("message"))
    scheduled = mapping(conditions.get("PodScheduled"))
    if scheduled.get("status") == "False":
        return text(scheduled.get("reason")) or "Pending", text(scheduled.get("message"))
    return text(mapping(training.get("waiting")).get("reason")) or phase or "Pending", text(status.get("message"))


def _problem(
    status: Mapping[str, Any],
    statuses: Iterable[Mapping[str, Any]],
    conditions: Mapping[Any, Mapping[str, Any]],
    restarted: Collection[str],
) -> tuple[str, str, float | None]:
    """Return a pod's problem in the words of `kubectl get pods`, a message, and when it is over; "" for none.

    `restarted` are the containers that never end, so exit code 0 is a failure too.
    """
    phase, of_pod = text(status.get("phase")), text(status.get("reason"))
    if phase == SUCCEEDED:
        return "", "", None
    for each in statuses:
        state, last = mapping(each.get("state")), mapping(mapping(each.get("lastState")).get("terminated"))
        waiting, running, ended = (mapping(state.get(name)) for name in ("waiting", "running", "terminated"))
        if text(waiting.get("reason")) not in _COMMON:
            by_memory = last.get("reason") == "OOMKilled" and waiting["reason"] == "CrashLoopBackOff"
            why = text(last.get("message")) or text(waiting.get("message"))
            return "OOMKilled" if by_memory else waiting["reason"], why, None
        if _has_failed(ended):
            return of_pod or exit_of(ended), text(ended.get("message")) or text(status.get("message")), None
        since = seconds(running.get("startedAt"))
        if ended and each.get("name") in restarted and number(each.get("restartCount")) > 1:
            return COMPLETED, text(ended.get("message")), None
        is_failure = _has_failed(last) or (bool(last) and each.get("name") in restarted)
        if is_failure and number(each.get("restartCount")) > 1 and since is not None:
            problem = exit_of(last) if _has_failed(last) else COMPLETED
            return problem, text(last.get("message")), since + RECOVERY_S
    if phase == FAILED:
        return of_pod or "Error", text(status.get("message")), None
    scheduled = mapping(conditions.get("PodScheduled"))
    if scheduled.get("status") == "False":
        return text(scheduled.get("reason")) or "Unschedulable", text(scheduled.get("message")), None
    return "", "", None


def _has_failed(ended: Mapping[str, Any]) -> bool:
    """Return True for a failed exit. The kernel may kill a container whose main process then exits with 0."""
    return bool(ended) and (ended.get("exitCode") != 0 or ended.get("reason") == "OOMKilled")


def exit_of(ended: Mapping[str, Any]) -> str:
    """Return the reason of an exit, or else its code."""
    reason = text(ended.get("reason"))
    return reason if reason not in _PLAIN_EXITS else f"ExitCode:{ended.get('exitCode')}"
