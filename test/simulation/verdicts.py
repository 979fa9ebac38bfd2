"""Whether the decision how a job ends follows from the documented rules and the history. Pure functions."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from judge.jobs import attempt_of, decision_of, desired_job, record_of
from judge.slots import moment
from judge.writes import decision_mistakes
from kit.model.storage import Body
from kit.virtual_loop import EPOCH
from simulation.policies import grace_of
from simulation.records import Records
from tfjob_operator.api.v1.constants import EventReason, limit_of

TICK_S: Final = 0.01
"""How far the simulated wall clock may be ahead of the server's, because no two readings of it are equal."""


def justify(job: Body, records: Records, now: datetime) -> Iterator[str]:
    """Return what is wrong with the decision, just written into a job's status, how it ends."""
    desired, ending = desired_job(job), decision_of(job)
    assert ending is not None
    reason = ending["reason"]
    started, completed = moment(job["status"].get("startTime", _completed(job))), moment(_completed(job))
    if not started <= completed <= now + timedelta(seconds=TICK_S):
        yield f"started at {started}, and complete at {completed}"
    begun = any(records.pods[job["metadata"]["uid"]].values())
    yield from decision_mistakes(job, records.maybe_succeeded(job), begun=begun)
    if reason == "InvalidTFJobSpec":
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
