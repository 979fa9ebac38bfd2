"""Builds a job's timeline and the history of each pod from objects and events. Omits what is missing; never raises. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from tfjob_operator.api.v1 import states
from tfjob_operator.api.v1.conditions import ENDING, end_record, is_ending
from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    LIMITS,
    ConditionReason,
    ConditionType,
    EventReason,
    exit_of,
)
from tfjob_operator.api.v1.name_ranges import names_in
from tfjob_operator.cli.model.facts import JobFacts, job_facts
from tfjob_operator.cli.model.objects import (
    ConditionDetails,
    ContainerStatusDetails,
    EventDetails,
    PodDetails,
    Terminated,
)
from tfjob_operator.cli.model.pods import condition_of, last_exit
from tfjob_operator.cli.model.replica_names import ReplicaName, order_of, replica_of
from tfjob_operator.cli.model.words import ended_by
from tfjob_operator.cli.timelines import values

_PHASES: Final = {"Succeeded": values.PodOutcome.SUCCEEDED, "Failed": values.PodOutcome.FAILED}


def utc(time: datetime | None) -> datetime | None:
    """Return a time with a zone. API servers always send a zone; a time without a zone could not be compared."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def training_of(pod: PodDetails) -> ContainerStatusDetails | None:
    """Return the status of the training container, or of the first one if there is none."""
    containers = pod.status.container_statuses or ()
    return next(
        (container for container in containers if container.name == CONTAINER_NAME),
        containers[0] if containers else None,
    )


def ended_of(pod: PodDetails) -> Terminated | None:
    """Return how the training last terminated, None if it never did."""
    training = training_of(pod)
    if training is None:
        return None
    return (training.state.terminated if training.state is not None else None) or last_exit(training)


def history_of(pod: PodDetails, events: Sequence[EventDetails] = ()) -> values.PodHistory:
    """Return the history of an existing pod. `events` are about this pod: only they show when earlier runs started."""
    meta, status = pod.metadata, pod.status
    created = utc(meta.creation_timestamp)
    drawn = _Drawing(created)
    scheduled = condition_of(status.conditions, "PodScheduled")
    has_node = bool(pod.spec.node_name) or (scheduled is not None and scheduled.status == "True")
    placed = utc(scheduled.last_transition_time) if scheduled is not None and has_node else utc(status.start_time)
    why = scheduled.reason if scheduled is not None and not has_node else ""
    drawn.until(placed if has_node else None, values.PodState.WAITING, why)
    if has_node:
        started = min(_times(events, "Started"), default=None)
        _runs(drawn, training_of(pod), started or utc(status.start_time) or placed)
    ending = _PHASES.get(status.phase)
    ended = ended_of(pod)
    end = _end_of_pod(pod) if ending is not None else None
    if meta.deletion_timestamp is not None and ending is None:
        grace = timedelta(seconds=min(max(meta.deletion_grace_period_seconds or 0, 0), 86_400))
        drawn.cut(utc(meta.deletion_timestamp - grace), values.PodState.STOPPING)
    return values.PodHistory(
        pod=meta.name,
        uid=meta.uid,
        node=pod.spec.node_name,
        start=created,
        end=end,
        intervals=drawn.over(end, is_over=ending is not None),
        ending=ending,
        exit_code=ended.exit_code if ended is not None and ending is not None else None,
        reason=status.reason or (ended.reason if ended is not None else ""),
        message=status.message or (ended.message if ended is not None else ""),
        restarts=sum(container.restart_count for container in pod.status.container_statuses or ()),
    )


def history_of_deleted(
    name: str,
    uid: str,
    events: Sequence[EventDetails],
    about_it: Sequence[EventDetails],
    until: datetime | None,
    *,
    created: datetime | None = None,
    is_known: bool = True,
) -> values.PodHistory:
    """Return the history of a deleted pod, as far as events show it.

    `about_it` are events of the job that name the pod; `until` is the creation time of the next pod of its name, if any.
    `created` is the pod's creation time according to the job's events. A pod ran if an event says that it started, was killed
    or exited, or if its own events may have expired: not `is_known`.
    """
    times = sorted(time for event in events for time in (utc(event.first_timestamp), utc(event.at)) if time is not None)
    start = times[0] if times else created
    own = [event for event in about_it if _lies(utc(event.at), start, until)]
    ends = _times(own, "SuccessfulDeletePod", "SuccessfulDelete", "ExitedWithCode") or _times(events, "Killing")
    end = min((*ends, *((until,) if until is not None else ())), default=times[-1] if times else None)
    drawn = _Drawing(start)
    placed = min(_times(events, "Scheduled"), default=None)
    started = min(_times(events, "Started"), default=None)
    code = next((pod_exit.code for event in own if (pod_exit := exit_of(event.message))), None)
    has_run = not is_known or started is not None or code is not None or bool(_times(events, "Killing"))
    if placed is not None or not has_run:
        drawn.until(placed, values.PodState.WAITING)
    if started is not None or not has_run:
        drawn.until(started, values.PodState.STARTING)
    crashes = any(event.reason == "BackOff" and "restarting" in event.message for event in events)
    drawn.until(None, values.PodState.UNSTABLE if crashes else values.PodState.RUNNING)
    ending = (
        values.PodOutcome.DELETED if code is None else values.PodOutcome.FAILED if code else values.PodOutcome.SUCCEEDED
    )
    killed = next((event for event in events if event.reason in {"Evicted", "Preempted", "TaintManagerEviction"}), None)
    return values.PodHistory(
        pod=name,
        uid=uid,
        start=start,
        end=end,
        intervals=drawn.over(end, is_over=True),
        ending=ending,
        exit_code=code,
        reason=killed.reason if killed is not None else "",
        message=killed.message if killed is not None else "",
        is_there=False,
    )


class _Drawing:
    """Builds consecutive intervals, even if their times are from different clocks."""

    def __init__(self, start: datetime | None) -> None:
        self._at = start
        self._drawn: list[values.Interval] = []

    def until(self, end: datetime | None, state: values.PodState, reason: str = "", code: int | None = None) -> None:
        """Add a state up to a time, None if it continues. A state that would end before it starts is omitted."""
        if self._at is None:
            self._at = end
            return
        if self._drawn and self._drawn[-1].end is None:
            return
        if end is None or end > self._at:
            self._drawn.append(values.Interval(state, self._at, end, reason, code))
            self._at = end or self._at

    def cut(self, at: datetime | None, state: values.PodState) -> None:
        """End the current state, and start this one."""
        if self._drawn and self._drawn[-1].end is None:
            last = self._drawn.pop()
            self._at = last.start
            self.until(at, last.state, last.reason)
            self._drawn.append(values.Interval(state, self._at, None))

    def over(self, end: datetime | None, *, is_over: bool) -> tuple[values.Interval, ...]:
        """Return the intervals. If `is_over`, an interval without an end ends at `end`; if `end` is unknown, it is omitted."""
        if is_over and self._drawn and self._drawn[-1].end is None:
            last = self._drawn.pop()
            if end is not None and end > last.start:
                self._drawn.append(last._replace(end=end))
        return tuple(self._drawn)


def _runs(drawn: _Drawing, training: ContainerStatusDetails | None, first_start: datetime | None) -> None:
    """Add the last two runs, which the status shows. A lost container has no times: its run starts at `first_start`."""
    last = last_exit(training) if training is not None else None
    if training is not None and last is not None:
        earlier = training.restart_count > 1
        began = utc(last.started_at) or first_start
        drawn.until((first_start or began) if earlier else began, values.PodState.STARTING)
        if earlier:
            drawn.until(began, values.PodState.UNSTABLE)
        drawn.until(utc(last.finished_at), values.PodState.RUNNING, last.reason, last.exit_code)
    state = training.state if training is not None else None
    before = values.PodState.RESTARTING if last is not None else values.PodState.STARTING
    if state is not None and state.terminated is not None:
        ended = state.terminated
        drawn.until(utc(ended.started_at) or utc(ended.finished_at) or first_start, before)
        drawn.until(utc(ended.finished_at), values.PodState.RUNNING, ended.reason, ended.exit_code)
    elif state is not None and state.running is not None:
        drawn.until(utc(state.running.started_at), before)
        drawn.until(None, values.PodState.RUNNING)
    else:
        drawn.until(None, before, state.waiting.reason if state is not None and state.waiting is not None else "")


def _end_of_pod(pod: PodDetails) -> datetime | None:
    """Return when the training in a pod ended or, if that is unknown (after an eviction), when the whole pod ended."""
    ended = ended_of(pod)
    if ended is not None and ended.finished_at is not None:
        return utc(ended.finished_at)
    for kind in ("ContainersReady", "Ready", "DisruptionTarget"):
        condition = condition_of(pod.status.conditions, kind)
        if condition is not None and condition.last_transition_time is not None:
            return utc(condition.last_transition_time)
    return utc(pod.metadata.deletion_timestamp)


def _times(events: Sequence[EventDetails], *reasons: str) -> list[datetime]:
    """Return when events with these reasons first occurred."""
    found = (utc(event.first_timestamp) or utc(event.at) for event in events if event.reason in reasons)
    return [time for time in found if time is not None]


def _lies(time: datetime | None, start: datetime | None, end: datetime | None) -> bool:
    return time is not None and (start is None or time >= start) and (end is None or time <= end)


_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
_SAME: Final = timedelta(seconds=2)
"""The largest difference between times of the same thing from two clocks, such as a condition and its event."""
_MAX_NAMES: Final = 1_000
"""The most names read from an event: the operator writes at most 64."""
_ENDS: Final = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_REPEATABLE: Final = frozenset({ConditionReason.SUSPENDED, ConditionReason.RESUMED, ConditionReason.MENDED})
"""Events whose first occurrence is shown besides the last, since something else happened in between."""
_LAST: Final = 3
_RANKS: Final[dict[str, int]] = {
    **dict.fromkeys((EventReason.EXITED_WITH_CODE, EventReason.NODE_SICK, EventReason.NODE_LOST), 1),
    **dict.fromkeys((EventReason.RESTARTED_ALL, ConditionReason.RESTARTING, ConditionReason.FAILED), 2),
    **dict.fromkeys((ConditionReason.BY_RULE, ConditionReason.LIMIT, *LIMITS), 2),
}
"""The order within a second: conditions, causes, consequences, other events."""
_BAD: Final = frozenset({ConditionType.FAILED, ConditionType.HELD, ConditionType.STALLED})
_HELD: Final = (ConditionReason.INVALID, ConditionReason.REFUSED, ConditionReason.TOO_LARGE)


def timeline_of(
    job: values.TimelineJob, pods: Sequence[PodDetails] = (), events: Sequence[EventDetails] = ()
) -> values.Timeline:
    """Return the history of a job. `pods` are the job's; `events` may include those of others."""
    own = [event for event in events if _is_about(event, job)]
    of_pods = _without_namesakes(job, pods, [event for event in events if event.involved_object.kind == "Pod"])
    of_jobs = [event for event in events if _is_of_job_of(event, job)]
    conditions = job.status.conditions or ()
    end = _end(job)
    return values.Timeline(
        start=utc(job.metadata.creation_timestamp) or utc(job.status.start_time),
        end=end,
        replicas=_replicas(job, pods, of_pods, [*own, *of_jobs]),
        suspensions=_spans(
            condition_of(conditions, ConditionType.SUSPENDED),
            own,
            {ConditionReason.SUSPENDED},
            {ConditionReason.RESUMED},
            end,
        ),
        holds=_spans(condition_of(conditions, ConditionType.HELD), own, set(_HELD), {ConditionReason.MENDED}, end),
        attempts=tuple(_attempts(job, end)),
        happenings=tuple(_happenings(job, own, [*of_jobs, *(event for event in of_pods if _is_of(event, job, pods))])),
        ending=_ending(job),
        state=_state(job),
    )


def _state(job: values.TimelineJob) -> str:
    status = job.status
    pairs = ((condition.type, condition.status) for condition in status.conditions or ())
    return states.state_of(pairs, is_ending=is_ending(status), phase=status.phase, outcome=status.state)


def _attempts(job: values.TimelineJob, end: datetime | None) -> Iterator[values.AttemptSpan]:
    history = (job.status.attempt_history or ()) if job.status.attempt else ()
    for attempt in history:
        start, ended = utc(attempt.start_time), utc(attempt.end_time)
        if start is not None and ended is not None:
            yield values.AttemptSpan(attempt.number, start, max(ended, start), ended_by(attempt))
    ended = utc(history[-1].end_time) if history and history[-1].number < job.status.attempt else None
    if ended is not None:
        delay_s = job.status.begun.delay_s if job.status.begun is not None else 0
        began = max(ended + timedelta(seconds=delay_s), utc(job.status.start_time) or ended)
        yield values.AttemptSpan(job.status.attempt, began, None if end is None else max(end, began))


def _without_namesakes(
    job: values.TimelineJob, pods: Iterable[PodDetails], events: Sequence[EventDetails]
) -> list[EventDetails]:
    """Return the events, except those of pods older than the job: such pods belong to an earlier job of the same name."""
    created = utc(job.metadata.creation_timestamp)
    times = ((event.involved_object.uid, utc(event.first_timestamp) or utc(event.at)) for event in events)
    older = {uid for uid, time in times if created is not None and time is not None and time < created - _SAME}
    older -= {pod.metadata.uid for pod in pods}
    return [event for event in events if event.involved_object.uid not in older]


def _end(job: values.TimelineJob) -> datetime | None:
    return utc(job.status.completion_time) or _written(job)


def _written(job: values.TimelineJob) -> datetime | None:
    ended = next(
        (
            condition
            for condition in job.status.conditions or ()
            if condition.type in _ENDS and condition.status == "True"
        ),
        None,
    )
    return utc(ended.last_transition_time) if ended is not None else None


def _ending(job: values.TimelineJob) -> values.Span | None:
    record, written = end_record(job.status), _written(job)
    decided = utc(record.time) if record is not None else None
    if record is None or decided is None or (written is not None and written <= decided):
        return None
    return values.Span(decided, written, f"will be {record.type}: {record.message}")


def _is_about(event: EventDetails, job: values.TimelineJob) -> bool:
    about = event.involved_object
    same = not about.uid or not job.metadata.uid or about.uid == job.metadata.uid
    return about.kind.casefold() == "tfjob" and about.name == job.metadata.name and same


def _is_of(event: EventDetails, job: values.TimelineJob, pods: Iterable[PodDetails]) -> bool:
    about = event.involved_object.name
    return _named(job, about) != ReplicaName() or any(pod.metadata.name == about for pod in pods)


def _is_of_job_of(event: EventDetails, job: values.TimelineJob) -> bool:
    """Return True for events about a replica's batch Job. They report the replica's pods; in v1, events of the TFJob do so."""
    about = event.involved_object
    return about.kind == "Job" and bool(job.status.runtime_id) and _named(job, about.name) != ReplicaName()


def _named(job: values.TimelineJob, pod: str) -> ReplicaName:
    """Return the replica of a pod by its name alone."""
    return replica_of(None, job.metadata.name, pod, job.status.runtime_id)


def _replicas(
    job: values.TimelineJob, pods: Sequence[PodDetails], events: Sequence[EventDetails], own: Sequence[EventDetails]
) -> tuple[values.ReplicaTimeline, ...]:
    by_uid: dict[str, list[EventDetails]] = defaultdict(list)
    for event in events:
        by_uid[event.involved_object.uid].append(event)
    found: dict[ReplicaName, list[values.PodHistory]] = defaultdict(list)
    for pod in pods:
        name = replica_of(pod.metadata.labels, job.metadata.name, pod.metadata.name)
        found[name].append(history_of(pod, by_uid.pop(pod.metadata.uid, ())))
    gone: dict[str, list[tuple[str, list[EventDetails]]]] = defaultdict(list)
    for uid, about in by_uid.items():
        if uid and _named(job, about[0].involved_object.name) != ReplicaName():
            gone[about[0].involved_object.name].append((uid, about))
    for pod_name, lives in gone.items():
        name = _named(job, pod_name)
        there = [life.start for life in found[name] if life.pod == pod_name and life.start is not None]
        found[name] += _deleted(pod_name, lives, min(there, default=None), own)
    known = {life.pod for lives in found.values() for life in lives}
    oldest = min((time for event in events if (time := utc(event.first_timestamp) or utc(event.at))), default=None)
    if job.status.conditions and condition_of(job.status.conditions, ConditionType.RUNNING) is None:
        oldest = _BEFORE_ALL  # no pod of this job has ever run
    for pod_name, times in _created(own).items():
        name = _named(job, pod_name)
        reported = [*_from_job_events_only(pod_name, times, own, _end(job), oldest)]
        if reported and pod_name not in known and name != ReplicaName():
            found[name] += reported
    status = msgspec.to_builtins(job.status)
    of_job = job_facts({"status": status})
    return tuple(
        values.ReplicaTimeline(
            name,
            tuple(sorted(found[name], key=lambda life: (life.start is not None, life.start or 0))),
            max(_recorded(of_job, name, found[name]), _restarts_seen(found[name]) if name.type else 0),
        )
        for name in sorted(found, key=order_of)
    )


def _recorded(job: JobFacts, name: ReplicaName, lives: Iterable[values.PodHistory]) -> int:
    """Return the restarts that the operator has counted; a failed pod at the backoffLimit was not replaced if it exists."""
    return job.restarts.get(name, 0) - any(life.is_there and life.uid in job.at_limit for life in lives)


def _restarts_seen(lives: Sequence[values.PodHistory]) -> int:
    """Return the restarts that existing pods show, counted as in `list`."""
    there = [life for life in lives if life.is_there]
    return sum(life.restarts for life in there) + max(len(there) - 1, 0)


def _deleted(
    pod: str, lives: Sequence[tuple[str, Sequence[EventDetails]]], until: datetime | None, own: Sequence[EventDetails]
) -> Iterator[values.PodHistory]:
    """Yield the histories of deleted pods of one name, newest first: each ended before the next was created."""
    about = _about(pod, own)

    def began(life: tuple[str, Sequence[EventDetails]]) -> float:
        times = [utc(event.first_timestamp) or utc(event.at) for event in life[1]]
        return min((time.timestamp() for time in times if time is not None), default=0.0)

    for uid, events in sorted(lives, key=began, reverse=True):
        made = history_of_deleted(pod, uid, events, about, until)
        yield made
        until = made.start or until


def _created(own: Iterable[EventDetails]) -> dict[str, set[datetime]]:
    """Return, by name, the first and last time a pod was created, from events of the TFJob or its batch Jobs."""
    found: dict[str, set[datetime]] = defaultdict(set)
    for event in own:
        if _is_creation(event):
            times = {time for time in (utc(event.first_timestamp), utc(event.at)) if time is not None}
            for name in names_in(event.message.partition(": ")[2], _MAX_NAMES):  # "Created pod: mnist-worker-0"
                found[name] |= times
    return found


def _is_creation(event: EventDetails) -> bool:
    """Return True if the event reports a created pod, by the operator or by the Job controller."""
    by_job = event.involved_object.kind == "Job" and event.reason == "SuccessfulCreate"
    return by_job or event.reason == EventReason.CREATED_POD


def _from_job_events_only(
    pod: str,
    times: Iterable[datetime],
    own: Sequence[EventDetails],
    until: datetime | None,
    oldest: datetime | None,
) -> Iterator[values.PodHistory]:
    """Yield the histories of pods that are known only from the job's events, newest first; pods without an end are omitted.

    `oldest` is the time of the oldest event of any pod: a pod that was created since has no events because it never started.
    Events expire, so an older one may have run.
    """
    about = _about(pod, own)
    for start in sorted(times, reverse=True):
        is_known = oldest is not None and start >= oldest
        made = history_of_deleted(pod, "", (), about, until, created=start, is_known=is_known)
        until = start
        if made.end is not None:
            yield made


def _about(pod: str, own: Iterable[EventDetails]) -> list[EventDetails]:
    """Return the events of the job that name a pod."""
    return [event for event in own if pod in event.message.replace(".", " ").split()]


def _spans(
    condition: ConditionDetails | None,
    events: Sequence[EventDetails],
    on: set[str],
    off: set[str],
    end: datetime | None,
) -> tuple[values.Span, ...]:
    """Return the spans, if any, in which a condition was True: the current one from the condition, others from events."""
    if condition is None:
        return ()
    marks: list[tuple[datetime, bool, str]] = []
    for event in events:
        if event.reason in on or event.reason in off:
            times = {utc(event.first_timestamp), utc(event.at)}
            marks += [(time, event.reason in on, event.message) for time in times if time is not None]
    since = utc(condition.last_transition_time)
    if since is not None:
        marks.append((since, condition.status == "True", condition.message))
    spans: list[values.Span] = []
    for at, begins, message in sorted(marks):
        is_open = bool(spans) and spans[-1].end is None
        if begins and not is_open and not (spans and at - spans[-1].start <= _SAME):
            spans.append(values.Span(at, None, message))
        elif not begins and is_open:
            spans[-1] = spans[-1]._replace(end=at)
    if spans and spans[-1].end is None and condition.status != "True":
        spans.pop()  # its end is unknown
    if spans and spans[-1].end is None and end is not None:
        spans[-1] = spans[-1]._replace(end=max(end, spans[-1].start))
    return tuple(spans)


def _happenings(
    job: values.TimelineJob, own: Sequence[EventDetails], of_pods: Sequence[EventDetails]
) -> list[values.Happening]:
    """Return all happenings in order of time. Repeats are merged, and so are a condition and its event."""
    name = job.metadata.name
    reported: list[values.Happening] = []
    history = job.status.attempt_history or ()
    restarts = [(f" restarts as attempt {each.number + 1} ", utc(each.end_time)) for each in history]
    for condition in job.status.conditions or ():
        at = utc(condition.last_transition_time)
        # A replica may have been restarting before the whole job was: then only the message of Restarting changed.
        at = next((ended for words, ended in restarts if ended is not None and words in condition.message), at)
        # for other conditions, False carries no information
        shows_end = condition.type in {ConditionType.SUSPENDED, ConditionType.HELD, ConditionType.STALLED}
        if at is not None and (condition.status == "True" or shows_end):
            bad = condition.status == "True" and condition.type in _BAD
            reported.append(values.Happening(at, name, condition.reason or condition.type, condition.message, bad))
    if (ending := _ending(job)) is not None:
        reported.append(values.Happening(ending.start, name, ENDING, ending.message))
    reasons = [*(happening.message for happening in reported), *(each.message for each in own)]
    for attempt, (words, at) in zip(history, restarts, strict=True):
        restarted = attempt.number < job.status.attempt  # otherwise a rule has ended the job
        if at is not None and restarted and not any(words in reason for reason in reasons):  # its event has expired
            text = f"{words.strip()}: {ended_by(attempt)}"
            reported.append(values.Happening(at, name, EventReason.RESTARTED_ALL, text, is_warning=bool(attempt.rule)))
    found: dict[tuple[str, ...], values.Happening] = {}
    for event in (*own, *of_pods):
        at = utc(event.at)
        if at is None:
            continue
        times = max(event.series.count if event.series is not None else event.count, 1)
        key = event.involved_object.name, event.reason, event.message
        first = utc(event.first_timestamp)
        if event.reason in _REPEATABLE and times > 1 and first is not None and first < at:
            found[*key, "first"] = values.Happening(first, *key, event.type == "Warning")
            times -= 1
        same = next((index for index, happening in enumerate(reported) if _reports(event, happening, at)), None)
        if same is not None:
            if reported[same].reason == ConditionReason.LIMIT:
                reported[same] = reported[same]._replace(reason=event.reason)  # the limit that was exceeded
            continue
        before = found.get(key)
        if before is not None:
            at, times = max(at, before.at), times + before.times
        found[key] = values.Happening(at, *key, event.type == "Warning", times)
    ordered = [(happening.at, _RANKS.get(happening.reason, 0), happening) for happening in reported]
    ordered += [(happening.at, _RANKS.get(happening.reason, _LAST), happening) for happening in found.values()]
    return [each for _, _, each in sorted(ordered, key=lambda each: each[:2])]


def _reports(event: EventDetails, condition: values.Happening, at: datetime) -> bool:
    same = event.reason == condition.reason or (bool(event.message) and event.message == condition.message)
    return same and abs(at - condition.at) <= _SAME
