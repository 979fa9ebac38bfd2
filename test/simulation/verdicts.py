"""Whether a status is correct, by the documented rules and the history. Pure functions."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from fakes.virtual_loop import EPOCH
from simulation.attempts import StatusWrite
from simulation.desired import (
    active_of,
    decision_of,
    desired_job,
    ending_of,
    finished_of,
    is_ending,
    is_queued,
    record_of,
    restarts_of,
)
from simulation.model.storage import Body
from simulation.policies import attempt_of, execution_of, grace_of
from simulation.records import Records
from simulation.slots import Slot, moment
from tfjob_operator.api.v1.constants import EventReason, limit_of

TICK_S: Final = 0.01
"""How far the simulated wall clock may be ahead of the server's, because no two readings of it are equal."""


def justify(job: Body, records: Records, now: datetime) -> Iterator[str]:
    """Return what is wrong with the decision, just written into a job's status, how it ends."""
    desired, ending = desired_job(job), decision_of(job)
    assert ending is not None
    reason = ending["reason"]
    never_good = reason == "InvalidTFJobSpec"
    started, completed = moment(job["status"].get("startTime", _completed(job))), moment(_completed(job))
    if not started <= completed <= now + timedelta(seconds=TICK_S):
        yield f"started at {started}, and complete at {completed}"
    if desired.suspend and not never_good:
        yield "a suspended job does not end"
    if never_good or desired.invalid:
        yield from _justify_mistakes(job, records)
    if never_good:
        return
    if ending["type"] == "Succeeded":
        yield from _justify_success(job, records, now)
    elif reason == "TFJobFailed":
        wanted = (
            (fate, desired.replicas[fate.slot[0]][1]) for fate in records.of_attempt(job) if fate.slot in desired.slots
        )
        final = (fate for fate, policy in wanted if records.is_final(job, fate, policy))
        if not any(rule is None for fate in final for _, rule in records.deciders([job], fate)):
            yield f"no replica has failed for good: {records.of_attempt(job)}"
    elif reason == "PodFailurePolicy":
        yield from _justify_by_rule(job)
    else:
        yield from _justify_limit(job, records, now)


def _completed(job: Body) -> str:
    return str((record_of(job) or job["status"])["completionTime"])


def _justify_success(job: Body, records: Records, now: datetime) -> Iterator[str]:
    succeeded, uid, desired = records.maybe_succeeded(job), job["metadata"]["uid"], desired_job(job)
    if not desired.is_done(succeeded):
        yield f"only {sorted(succeeded)} have succeeded"
    grace_s, left = grace_of(job), records.working(uid) if records.prompt else []
    seen = EPOCH + timedelta(seconds=records.done_at(uid, desired))
    # The time of a success is known only from its pod.
    taken = any(fate.uid in records.removers for fate in records.of_attempt(job) if fate.slot in succeeded)
    if left and grace_s is not None and now < seen + timedelta(seconds=grace_s) and not taken:
        yield f"did not wait for {left}"


def _justify_limit(job: Body, records: Records, now: datetime) -> Iterator[str]:
    desired, ending, uid = desired_job(job), decision_of(job), job["metadata"]["uid"]
    assert ending is not None
    match limit_of(ending["reason"], ending["message"]):
        case EventReason.MAX_RESTARTS_EXCEEDED:
            yield from _justify_by_rule(job)
        case EventReason.START_DEADLINE_EXCEEDED:
            if not records.start_is_late(job, now):
                yield "its replicas may take longer to run"
        case EventReason.BACKOFF_LIMIT_EXCEEDED:
            restarts = sum(records.most_restarts(uid, slot) for slot in records.pods[uid])
            if desired.backoff_limit is None or restarts <= desired.backoff_limit:
                yield f"there were {restarts} restarts of {desired.backoff_limit} allowed"
        case _:
            started = moment(job["status"]["startTime"])
            if desired.deadline_s is None or now < started + timedelta(seconds=desired.deadline_s + 1 - TICK_S):
                yield f"the deadline of {desired.deadline_s} s after {job['status']['startTime']} is not over"


def _justify_by_rule(job: Body) -> Iterator[str]:
    """Check that the history says by which rule the last attempt ended; `attempts.py` checks whether that is true."""
    over: dict[str, Any] = (job["status"].get("attemptHistory") or [{}])[-1]
    if over.get("number", 0) != attempt_of(job) or "rule" not in over:
        yield f"no rule is known to have ended it: {over}"


def _justify_mistakes(job: Body, records: Records) -> Iterator[str]:
    """Return what is wrong with an end because of an invalid spec. Only a deadline ends a job on hold."""
    desired, ending = desired_job(job), decision_of(job)
    assert ending is not None
    if ending["reason"] != "InvalidTFJobSpec":
        if limit_of(ending["reason"], ending["message"]) is not EventReason.DEADLINE_EXCEEDED:
            yield f"the job is held, and its end is {ending}"
    elif not desired.invalid:
        yield "the end is InvalidTFJobSpec, and the specification is right"
    elif any(records.pods[job["metadata"]["uid"]].values()):
        yield "the job had begun, and no edit ends one that has"


def status_mistakes(old: Body, new: Body, records: Records, now: datetime) -> Iterator[str]:
    """Return what is wrong with a new status, on its own and compared with the old one."""
    uid = new["metadata"]["uid"]
    if desired_job(new).foreign:
        yield "the job is somebody else's"
    yield from final_mistakes(
        old, new, records.maybe_succeeded(old), ("attempt", "countedRestarts", "executionAttempt")
    )
    yield from StatusWrite(old, new, records, now).mistakes()
    yield from _end_mistakes(old, new)
    counted = restarts_of(new)
    for slot, restarts in restarts_of(old).items():
        if counted.get(slot, 0) < restarts:
            yield f"the restarts of {slot} fell from {restarts} to {counted.get(slot, 0)}"
    for slot, restarts in counted.items():
        if restarts > records.most_restarts(uid, slot):
            yield f"{slot} was restarted {records.most_restarts(uid, slot)} times, not {restarts}"
    yield from _condition_mistakes(new)
    yield from _execution_mistakes(old, new)


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


def final_mistakes(old: Body, new: Body, succeeded: set[Slot], more: tuple[str, ...] = ()) -> Iterator[str]:
    """Return changes of final values: the end with `more` fields, successes, the start."""
    before, after = old.get("status") or {}, new["status"]
    if ending_of(old) is not None:
        for name in ("conditions", "completionTime", "startTime", *more):
            if before.get(name) != after.get(name):
                yield f"{name} changed after the end from {before.get(name)} to {after.get(name)}"
    lost = finished_of(old) - finished_of(new)
    if lost and attempt_of(old) == attempt_of(new):
        yield f"{sorted(lost)} had succeeded, and that is forgotten"
    if untrue := finished_of(new) - succeeded:
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
