"""After every write: whether a status is correct, on its own and compared with the one before. Pure functions.

Simulation and model checker use the same rules; each knows in its own way which replicas have succeeded or failed.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from judge.jobs import (
    active_of,
    attempt_of,
    decision_of,
    desired_job,
    ending_of,
    execution_of,
    finished_of,
    is_ending,
    is_queued,
    record_of,
    restarts_of,
)
from judge.slots import Slot
from kit.model.storage import Body
from tfjob_operator.api.v1.constants import EventReason, limit_of


def status_mistakes(
    old: Body, new: Body, succeeded: Collection[Slot], most_restarts: Callable[[Slot], int]
) -> Iterator[str]:
    """Return what is wrong with a new status, on its own and compared with the old one.

    `succeeded`: replicas that may have succeeded. `most_restarts`: how often a replica was restarted at most.
    """
    if desired_job(new).foreign:
        yield "the job is somebody else's"
    yield from final_mistakes(old, new, succeeded, ("attempt", "countedRestarts", "executionAttempt"))
    yield from _end_mistakes(old, new)
    counted = restarts_of(new)
    for slot, restarts in restarts_of(old).items():
        if counted.get(slot, 0) < restarts:
            yield f"the restarts of {slot} fell from {restarts} to {counted.get(slot, 0)}"
    for slot, restarts in counted.items():
        if restarts > most_restarts(slot):
            yield f"{slot} was restarted {most_restarts(slot)} times, not {restarts}"
    yield from _condition_mistakes(new)
    yield from _execution_mistakes(old, new)


def decision_mistakes(job: Body, succeeded: Collection[Slot], *, begun: bool, refused: bool = False) -> Iterator[str]:
    """Return what is wrong with the decision, just written into a job's status, how it ends.

    `begun`: the job has had pods, so that no edit may end it. `refused`: the API server has refused a pod.
    """
    desired, ending = desired_job(job), decision_of(job)
    assert ending is not None
    if ending["reason"] == "InvalidTFJobSpec":
        if not (desired.invalid or refused):
            yield "the end is InvalidTFJobSpec, and the specification is right"
        if begun:
            yield "the job had begun, and no edit ends one that has"
        return
    if desired.suspend:
        yield "a suspended job does not end"
    if desired.invalid and limit_of(ending["reason"], ending["message"]) is not EventReason.DEADLINE_EXCEEDED:
        yield f"the job is held, and its end is {ending}"
    if ending["type"] == "Succeeded" and not desired.is_done(succeeded):
        yield f"only {sorted(succeeded)} have succeeded"


def _execution_mistakes(old: Body, new: Body) -> Iterator[str]:
    """Return what is wrong with the number of the execution: it rises with the attempt and at a resumption, and else stays."""
    before, after = execution_of(old), execution_of(new)
    suspended = [_is_true(each.get("status") or {}, "Suspended") for each in (old, new)]
    begins = attempt_of(new) > attempt_of(old) or (
        "startTime" in (old.get("status") or {}) and suspended == [True, False]
    )
    if after <= before if begins else after != before:
        yield f"the execution was {before} and is {after}"


def _end_mistakes(old: Body, new: Body) -> Iterator[str]:
    """Return what is wrong with the record of an end: it stays, and decides everything from then on."""
    record, decided, ending = record_of(old), record_of(new), ending_of(new)
    before, after = old.get("status") or {}, new["status"]
    if record is not None and decided != record:
        yield f"the decision changed from {record} to {decided}"
    if decided is not None and ending is not None and ending_of(old) is None:
        written = {name: ending.get(name) for name in ("type", "reason", "message")}
        if written != {name: decided[name] for name in written}:
            yield f"{written} was written, and {decided} was decided"
        for name in ("completionTime", "replicaStatuses"):
            if after.get(name) != decided.get(name):
                yield f"{name} is {after.get(name)}, not {decided.get(name)}"
    if is_ending(new):
        if record is None and not is_queued(new):
            yield "the end of a job without a queue waits"
        if not active_of(new):
            yield f"its pods hold quota, and its counters are {after.get('replicaStatuses')}"
        for name in ("conditions", "replicaStatuses", "attempt", "attemptHistory", "restarts", "startTime"):
            if record is not None and before.get(name) != after.get(name):
                yield f"{name} changed after the decision from {before.get(name)} to {after.get(name)}"
    if record is None and decided is not None:
        yield from _miscounted(new, decided)


def _miscounted(job: Body, record: dict[str, Any]) -> Iterator[str]:
    """Return final counters that cannot be true: each replica is in one column, and none of a success is active."""
    for name, (count, _) in desired_job(job).replicas.items():
        found = (record.get("replicaStatuses") or {}).get(name) or {}
        columns = [found.get(column, 0) for column in ("active", "succeeded", "failed")]
        if sum(columns) > count or (columns[0] and record["type"] == "Succeeded"):
            yield f"{count} {name} replicas end as {found}"


def final_mistakes(old: Body, new: Body, succeeded: Collection[Slot], more: tuple[str, ...] = ()) -> Iterator[str]:
    """Return changes of final values: the end with `more` fields, successes, the start."""
    before, after = old.get("status") or {}, new["status"]
    if ending_of(old) is not None:
        for name in ("conditions", "completionTime", "startTime", *more):
            if before.get(name) != after.get(name):
                yield f"{name} changed after the end from {before.get(name)} to {after.get(name)}"
    lost = finished_of(old) - finished_of(new)
    if lost and attempt_of(old) == attempt_of(new):
        yield f"{sorted(lost)} had succeeded, and that is forgotten"
    if untrue := finished_of(new).difference(succeeded):
        yield f"{sorted(untrue)} have not succeeded"
    resumed = _is_true(before, "Suspended") and not _is_true(after, "Suspended")
    if before.get("startTime") not in {None, after.get("startTime")} and not resumed:
        yield f"the start moved from {before['startTime']} to {after.get('startTime')}"
    if (ending_of(new) is None) != ("completionTime" not in after):
        yield f"completionTime is {after.get('completionTime')}, and the conditions say otherwise"


def _condition_mistakes(job: Body) -> Iterator[str]:
    status = job["status"]
    conditions = status["conditions"]
    true = [each["type"] for each in conditions if each["status"] == "True"]
    if not true or conditions[-1]["type"] != true[-1]:
        yield f"the last condition is not True: {conditions}"
    if len({"Succeeded", "Failed", "Suspended", "Running", "Restarting"}.intersection(true)) > 1:
        yield f"more than one state is True: {true}"


def _is_true(status: dict[str, Any], condition: str) -> bool:
    return any(each["type"] == condition and each["status"] == "True" for each in status.get("conditions") or ())
