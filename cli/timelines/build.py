"""A job's timeline from its objects. Pure: whatever is missing is left out, and nothing raises."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason
from tfjob_operator.api.v1.types import names_in
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.timelines.lives import life_of, life_of_gone, utc
from tfjob_operator.cli.timelines.names import order_of, replica_of
from tfjob_operator.cli.timelines.values import Happening, Life, Replica, ReplicaName, Span, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from tfjob_operator.cli.diagnosis.objects import Condition, Event, Pod
    from tfjob_operator.cli.timelines.job import Job

_SAME: Final = timedelta(seconds=2)
"""How far apart a condition and the event about it may be: they are not always written in the same second."""
_MOST_NAMES: Final = 1_000
"""Of one event: the operator writes at most 64."""
_ENDS: Final = (ConditionType.SUCCEEDED, ConditionType.FAILED)
_HELD: Final = (ConditionReason.INVALID, ConditionReason.REFUSED, ConditionReason.TOO_LARGE)


def timeline_of(job: Job, pods: Sequence[Pod] = (), events: Sequence[Event] = ()) -> Timeline:
    """Return what is known of a job's life. `pods` are the job's; `events` may be about others too."""
    own = [event for event in events if _is_about(event, job)]
    of_pods = [event for event in events if event.involved_object.kind == "Pod"]
    of_jobs = [event for event in events if _is_of_job_of(event, job)]
    conditions = job.status.conditions or ()
    end = _end(job)
    return Timeline(
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
        happenings=tuple(_happenings(job, own, [*of_jobs, *(event for event in of_pods if _is_of(event, job, pods))])),
    )


def _end(job: Job) -> datetime | None:
    ended = next((each for each in job.status.conditions or () if each.type in _ENDS and each.status == "True"), None)
    return utc(job.status.completion_time) or (utc(ended.last_transition_time) if ended is not None else None)


def _is_about(event: Event, job: Job) -> bool:
    about = event.involved_object
    same = not about.uid or not job.metadata.uid or about.uid == job.metadata.uid
    return about.kind.casefold() == "tfjob" and about.name == job.metadata.name and same


def _is_of(event: Event, job: Job, pods: Iterable[Pod]) -> bool:
    about = event.involved_object.name
    return _named(job, about) != ReplicaName() or any(pod.metadata.name == about for pod in pods)


def _is_of_job_of(event: Event, job: Job) -> bool:
    """Return whether an event is about the Job of a replica, which tells of its pods as v1's events of the job do."""
    about = event.involved_object
    return about.kind == "Job" and bool(job.status.runtime_id) and _named(job, about.name) != ReplicaName()


def _named(job: Job, pod: str) -> ReplicaName:
    """Return which replica a pod was, by its name alone."""
    return replica_of(None, job.metadata.name, pod, job.status.runtime_id)


def _replicas(job: Job, pods: Sequence[Pod], events: Sequence[Event], own: Sequence[Event]) -> tuple[Replica, ...]:
    by_uid: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_uid[event.involved_object.uid].append(event)
    found: dict[ReplicaName, list[Life]] = defaultdict(list)
    for pod in pods:
        name = replica_of(pod.metadata.labels, job.metadata.name, pod.metadata.name)
        found[name].append(life_of(pod, by_uid.pop(pod.metadata.uid, ())))
    gone: dict[str, list[tuple[str, list[Event]]]] = defaultdict(list)
    for uid, about in by_uid.items():
        if uid and _named(job, about[0].involved_object.name) != ReplicaName():
            gone[about[0].involved_object.name].append((uid, about))
    for pod_name, lives in gone.items():
        name = _named(job, pod_name)
        there = [life.start for life in found[name] if life.pod == pod_name and life.start is not None]
        found[name] += _gone(pod_name, lives, min(there, default=None), own)
    known = {life.pod for lives in found.values() for life in lives}
    for pod_name, times in _created(own).items():
        name = _named(job, pod_name)
        told = [*_only_told(pod_name, times, own, _end(job))]
        if told and pod_name not in known and name != ReplicaName():
            found[name] += told
    return tuple(
        Replica(name, tuple(sorted(found[name], key=lambda life: (life.start is not None, life.start or 0))))
        for name in sorted(found, key=order_of)
    )


def _gone(
    pod: str, lives: Sequence[tuple[str, Sequence[Event]]], until: datetime | None, own: Sequence[Event]
) -> Iterator[Life]:
    """Yield the lives of pods of one name that are gone, the last first: each ended before the next began."""
    about = _about(pod, own)

    def began(life: tuple[str, Sequence[Event]]) -> float:
        times = [utc(event.first_timestamp) or utc(event.at) for event in life[1]]
        return min((time.timestamp() for time in times if time is not None), default=0.0)

    for uid, events in sorted(lives, key=began, reverse=True):
        made = life_of_gone(pod, uid, events, about, until)
        yield made
        until = made.start or until


def _created(own: Iterable[Event]) -> dict[str, set[datetime]]:
    """Return when pods were created, by name, as far as events of the job or its Jobs tell: the first time and the last."""
    found: dict[str, set[datetime]] = defaultdict(set)
    for event in own:
        if _is_creation(event):
            times = {time for time in (utc(event.first_timestamp), utc(event.at)) if time is not None}
            for name in names_in(event.message.partition(": ")[2], _MOST_NAMES):  # "Created pod: mnist-worker-0"
                found[name] |= times
    return found


def _is_creation(event: Event) -> bool:
    """Return whether a pod was created, by the operator or by the Job controller."""
    by_job = event.involved_object.kind == "Job" and event.reason == "SuccessfulCreate"
    return by_job or event.reason == EventReason.CREATED_POD


def _only_told(pod: str, times: Iterable[datetime], own: Sequence[Event], until: datetime | None) -> Iterator[Life]:
    """Yield the lives of pods of one name of which only the job's events are left, the last first; none without an end."""
    about = _about(pod, own)
    for start in sorted(times, reverse=True):
        made = life_of_gone(pod, "", (), about, until, created=start)
        until = start
        if made.end is not None:
            yield made


def _about(pod: str, own: Iterable[Event]) -> list[Event]:
    """Return the events of the job that name a pod."""
    return [event for event in own if pod in event.message.replace(".", " ").split()]


def _spans(
    condition: Condition | None, events: Sequence[Event], on: set[str], off: set[str], end: datetime | None
) -> tuple[Span, ...]:
    """Return when a condition was True: the last time from the condition, earlier ones from events that are still there.

    If the job never had the condition, events with the same reason are about something else.
    """
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
    spans: list[Span] = []
    for at, begins, message in sorted(marks):
        is_open = bool(spans) and spans[-1].end is None
        if begins and not is_open and not (spans and at - spans[-1].start <= _SAME):
            spans.append(Span(at, None, message))
        elif not begins and is_open:
            spans[-1] = spans[-1]._replace(end=at)
    if spans and spans[-1].end is None and condition.status != "True":
        spans.pop()  # when it ended is not known
    if spans and spans[-1].end is None and end is not None:
        spans[-1] = spans[-1]._replace(end=max(end, spans[-1].start))
    return tuple(spans)


def _happenings(job: Job, own: Sequence[Event], of_pods: Sequence[Event]) -> list[Happening]:
    """Return what happened, in the order of time. Repeats are one, and so are a condition and the event that reports it."""
    name = job.metadata.name
    told: list[Happening] = []
    for condition in job.status.conditions or ():
        at = utc(condition.last_transition_time)
        off_tells = condition.type in {ConditionType.SUSPENDED, ConditionType.HELD}  # of others False says nothing
        if at is not None and (condition.status == "True" or off_tells):
            bad = condition.status == "True" and condition.type in {ConditionType.FAILED, ConditionType.HELD}
            told.append(Happening(at, name, condition.reason or condition.type, condition.message, bad))
    found: dict[tuple[str, str, str], Happening] = {}
    for event in (*own, *of_pods):
        at = utc(event.at)
        if at is None:
            continue
        same = next((place for place, each in enumerate(told) if _reports(event, each, at)), None)
        if same is not None:
            if told[same].reason == ConditionReason.LIMIT:
                told[same] = told[same]._replace(reason=event.reason)  # which of the limits it was
            continue
        times = max(event.series.count if event.series is not None else event.count, 1)
        key = event.involved_object.name, event.reason, event.message
        before = found.get(key)
        if before is not None:
            at, times = max(at, before.at), times + before.times
        found[key] = Happening(at, *key, event.type == "Warning", times)
    return sorted([*told, *found.values()], key=lambda each: each.at)


def _reports(event: Event, condition: Happening, at: datetime) -> bool:
    same = event.reason == condition.reason or (bool(event.message) and event.message == condition.message)
    return same and abs(at - condition.at) <= _SAME
