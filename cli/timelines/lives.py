"""The life of one pod: from the pod as it is, or from the events that it has left behind. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import CONTAINER_NAME
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.timelines.values import Ending, Interval, Life, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.cli.diagnosis.objects import ContainerStatus, Event, Pod, Terminated

_CODE: Final = re.compile(r"exited with code (-?\d{1,10})")
_PHASES: Final = {"Succeeded": Ending.SUCCEEDED, "Failed": Ending.FAILED}


def utc(time: datetime | None) -> datetime | None:
    """Return a time with a zone. API servers always write one; a time without could not be compared with theirs."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def training_of(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container that trains; of a pod without one of that name, of the first."""
    found = pod.status.container_statuses or ()
    return next((each for each in found if each.name == CONTAINER_NAME), found[0] if found else None)


def ended_of(pod: Pod) -> Terminated | None:
    """Return how the training ended last, None if it never did."""
    training = training_of(pod)
    for state in (training.state, training.last_state) if training is not None else ():
        if state is not None and state.terminated is not None:
            return state.terminated
    return None


def life_of(pod: Pod, events: Sequence[Event] = ()) -> Life:
    """Return the life of a pod that is there. `events` are those about it: only they tell when an early run began."""
    meta, status = pod.metadata, pod.status
    created = utc(meta.creation_timestamp)
    drawn = _Drawing(created)
    scheduled = condition_of(status.conditions, "PodScheduled")
    has_node = bool(pod.spec.node_name) or (scheduled is not None and scheduled.status == "True")
    placed = utc(scheduled.last_transition_time) if scheduled is not None and has_node else utc(status.start_time)
    why = scheduled.reason if scheduled is not None and not has_node else ""
    drawn.until(placed if has_node else None, State.WAITING, why)
    if has_node:
        _runs(drawn, training_of(pod), min(_times(events, "Started"), default=None))
    ending = _PHASES.get(status.phase)
    ended = ended_of(pod)
    end = _end(pod) if ending is not None else None
    if meta.deletion_timestamp is not None and ending is None:
        grace = timedelta(seconds=min(max(meta.deletion_grace_period_seconds or 0, 0), 86_400))
        drawn.cut(utc(meta.deletion_timestamp - grace), State.STOPPING)
    return Life(
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
        restarts=training.restart_count if (training := training_of(pod)) is not None else 0,
    )


def life_of_gone(
    name: str,
    uid: str,
    events: Sequence[Event],
    about_it: Sequence[Event],
    until: datetime | None,
    *,
    created: datetime | None = None,
) -> Life:
    """Return the life of a pod that is gone, as far as the events about it tell.

    `about_it` are events of the job that name the pod; `until` is when the next pod of its name began, None if there is none.
    `created` is when the job's events say that it was; then, without events about it, all of its life counts as running.
    """
    times = sorted(time for event in events for time in (utc(event.first_timestamp), utc(event.at)) if time is not None)
    start = times[0] if times else created
    own = [event for event in about_it if _lies(utc(event.at), start, until)]
    ends = _times(own, "SuccessfulDeletePod", "SuccessfulDelete", "ExitedWithCode") or _times(events, "Killing")
    end = min((*ends, *((until,) if until is not None else ())), default=times[-1] if times else None)
    drawn = _Drawing(start)
    placed = min(_times(events, "Scheduled"), default=None)
    started = min(_times(events, "Started"), default=None)
    if events:
        drawn.until(placed or started, State.WAITING)
        drawn.until(started, State.STARTING)
    drawn.until(None, State.RUNNING)
    code = next((int(found[1]) for event in own if (found := _CODE.search(event.message))), None)
    ending = Ending.DELETED if code is None else Ending.FAILED if code else Ending.SUCCEEDED
    killed = next((event for event in events if event.reason in {"Evicted", "Preempted", "TaintManagerEviction"}), None)
    return Life(
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
    """Builds intervals that follow on each other, even if their times come from clocks that differ."""

    def __init__(self, start: datetime | None) -> None:
        self._at = start
        self._drawn: list[Interval] = []

    def until(self, end: datetime | None, state: State, reason: str = "", code: int | None = None) -> None:
        """Add a state up to a time, None if it goes on. One that would end before it begins is left out."""
        if self._at is None:
            self._at = end
            return
        if self._drawn and self._drawn[-1].end is None:
            return
        if end is None or end > self._at:
            self._drawn.append(Interval(state, self._at, end, reason, code))
            self._at = end or self._at

    def cut(self, at: datetime | None, state: State) -> None:
        """End the state that goes on, and begin this one."""
        if self._drawn and self._drawn[-1].end is None:
            last = self._drawn.pop()
            self._at = last.start
            self.until(at, last.state, last.reason)
            self._drawn.append(Interval(state, self._at, None))

    def over(self, end: datetime | None, *, is_over: bool) -> tuple[Interval, ...]:
        """Return the intervals. If `is_over`, one that goes on ends at `end`, or is left out if `end` is not known."""
        if is_over and self._drawn and self._drawn[-1].end is None:
            last = self._drawn.pop()
            if end is not None and end > last.start:
                self._drawn.append(last._replace(end=end))
        return tuple(self._drawn)


def _runs(drawn: _Drawing, training: ContainerStatus | None, first_start: datetime | None) -> None:
    """Add the runs of the training that its status still shows: the one before the last restart, and the last."""
    last = training.last_state.terminated if training is not None and training.last_state is not None else None
    if training is not None and last is not None:
        earlier = training.restart_count > 1
        drawn.until(first_start if earlier and first_start is not None else utc(last.started_at), State.STARTING)
        if earlier:
            drawn.until(utc(last.started_at), State.UNSTABLE)
        drawn.until(utc(last.finished_at), State.RUNNING, last.reason, last.exit_code)
    state = training.state if training is not None else None
    before = State.RESTARTING if last is not None else State.STARTING
    if state is not None and state.terminated is not None:
        ended = state.terminated
        drawn.until(utc(ended.started_at) or utc(ended.finished_at), before)
        drawn.until(utc(ended.finished_at), State.RUNNING, ended.reason, ended.exit_code)
    elif state is not None and state.running is not None:
        drawn.until(utc(state.running.started_at), before)
        drawn.until(None, State.RUNNING)
    else:
        drawn.until(None, before, state.waiting.reason if state is not None and state.waiting is not None else "")


def _end(pod: Pod) -> datetime | None:
    """Return when a pod ended: when its training did, or if that is not known (after an eviction) the whole pod."""
    ended = ended_of(pod)
    if ended is not None and ended.finished_at is not None:
        return utc(ended.finished_at)
    for kind in ("ContainersReady", "Ready", "DisruptionTarget"):
        found = condition_of(pod.status.conditions, kind)
        if found is not None and found.last_transition_time is not None:
            return utc(found.last_transition_time)
    return utc(pod.metadata.deletion_timestamp)


def _times(events: Sequence[Event], *reasons: str) -> list[datetime]:
    """Return when events with these reasons happened, the first time of each."""
    found = (utc(event.first_timestamp) or utc(event.at) for event in events if event.reason in reasons)
    return [time for time in found if time is not None]


def _lies(time: datetime | None, start: datetime | None, end: datetime | None) -> bool:
    return time is not None and (start is None or time >= start) and (end is None or time <= end)
