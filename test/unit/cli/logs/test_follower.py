"""What is requested next of a log and which of its lines are new, whatever happens to its container and its streams."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.logs import follower
from tfjob_operator.cli.logs.follower import LogFollower, LogRequest, LogSet, RunState, Wait, run_state_of

RUNNING, ENDED, AGAIN, OVER = (
    RunState(0),
    RunState(0, over=True, why="exit code 1"),
    RunState(1),
    RunState(0, True, True),
)
WAITING = RunState(follower.NOT_STARTED, why="ImagePullBackOff")
SECOND = "2026-01-01T00:00:0"


def log_of(state: RunState = RUNNING) -> LogFollower:
    return LogFollower("worker-0", "1", state)


def raw(*lines: str, time: float = 0.5) -> bytes:
    """A stream of these lines, all of the same time."""
    return b"".join(f"{SECOND}{time}Z {line}\n".encode() for line in lines)


def texts(lines: Any) -> list[str]:
    return [line.text.decode() for line in lines]


def test_a_container_is_waited_for_and_then_read_from_its_beginning() -> None:
    """It tells once for what it waits."""
    log = log_of(WAITING)
    assert log.next() == log.next() == Wait(WAITING, None)
    assert log.notes == ["has not started yet: ImagePullBackOff"]
    log.state = RUNNING
    assert log.next() == LogRequest(is_previous=False, since="")


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        (RUNNING, RUNNING, Wait(RUNNING, follower.RETRY_S)),
        (RUNNING, ENDED, LogRequest(is_previous=False, since=f"{SECOND}0.5Z")),
        (RUNNING, AGAIN, LogRequest(is_previous=True, since=f"{SECOND}0.5Z")),
        (RUNNING, RUNNING._replace(gone=True), None),
        (ENDED, ENDED, Wait(ENDED, None)),
        (ENDED, AGAIN, LogRequest(is_previous=True, since=f"{SECOND}0.5Z")),
        (OVER, OVER, None),
    ],
    ids=["running", "has ended", "restarted", "deleted", "back-off", "restarted later", "pod is over"],
)
def test_what_follows_the_end_of_a_stream(before: RunState, after: RunState, step: Any) -> None:
    """`before` is the state when the stream was requested, `after` the one at its end."""
    log = log_of(before)
    assert log.next() == LogRequest(is_previous=False, since="")
    assert texts(log.feed(raw("one"))) == ["one"]
    log.state = after
    assert log.ended() == []
    assert log.next() == step


def test_after_the_rest_of_the_previous_container_its_successor_is_read() -> None:
    """Also if there is no previous log: the kubelet may have removed it."""
    for end in (LogFollower.ended, lambda log: log.failed(400, "no previous container")):
        log = log_of()
        log.next()
        log.feed(raw("one"))
        log.state = AGAIN._replace(why="exit code 137")
        end(log)
        assert log.next() == LogRequest(is_previous=True, since=f"{SECOND}0.5Z")
        end(log)
        assert log.notes == ["was started again after exit code 137"]
        assert log.next() == LogRequest(is_previous=False, since=f"{SECOND}0.5Z")


def test_errors_are_retried_with_a_growing_delay_and_told_once_until_bytes_arrive() -> None:
    """A change of the container ends the delay; the status code 404 ends the log."""
    log = log_of()
    delays = []
    for _ in range(7):
        log.next()
        log.failed(500, "timeout")
        wait = log.next()
        assert isinstance(wait, Wait)
        delays.append(wait.limit_s)
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    assert log.notes == ["cannot read logs, retrying: timeout"]
    log.next()
    log.feed(raw("one"))
    log.failed(0, "lost")
    assert log.notes == [f"cannot read logs, retrying: {each}" for each in ("timeout", "lost")]
    log.state = ENDED
    assert isinstance(log.next(), LogRequest)
    log.failed(404, "not found")
    assert log.next() is None


def test_the_last_line_of_a_container_that_has_ended_needs_no_newline() -> None:
    """Only there is it known to be complete."""
    for state, complete in ((RUNNING, []), (ENDED, ["tw"])):
        log = log_of(state)
        log.next()
        log.feed(raw("tw")[:-1])
        assert texts(log.ended()) == complete


def test_a_line_that_is_never_completed_is_the_rest() -> None:
    """However its stream ends: it may have been the last one."""
    for end in (LogFollower.ended, lambda log: log.failed(0, "lost")):
        log = log_of()
        log.next()
        assert texts(log.feed(raw("one") + raw("tw")[:-1])) == ["one"]
        end(log)
        assert texts(log.rest()) == ["tw"]
        log.state = log.state._replace(gone=True)
        assert log.next() is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=4), st.data())
def test_every_line_is_read_once_wherever_streams_break(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    """Each run of a container writes its lines at one time, in the second of the run before or later. The last ends the pod."""
    count, second = 0, 0
    written: list[list[tuple[float, str]]] = []
    for number, (later, size) in enumerate([*runs, (0, 1)], 1):
        second += later
        written.append([(second + number / 10, f"line {count + place}") for place in range(size)])
        count += size
    log = log_of()
    found: list[str] = []
    broken = 0
    while (step := log.next()) is not None:
        if isinstance(step, Wait):
            continue
        run = log.state.run - 1 if step.is_previous else log.state.run
        since = int(step.since[len(SECOND)]) if step.since else 0
        stream = b"".join(raw(text, time=time) for time, text in written[run] if time >= since)
        cut = data.draw(st.integers(0, len(stream))) if broken < 6 else len(stream)
        found += texts(log.feed(stream[:cut])) if cut else []
        if cut < len(stream):
            broken += 1
            log.failed(0, "lost")
            continue
        if not step.is_previous and run + 1 < len(written):
            log.state = RunState(run + 1)
        elif not step.is_previous:
            log.state = RunState(run, over=True, pod_over=True)
        found += texts(log.ended())
    assert [*found, *texts(log.rest())] == [text for lines in written for _, text in lines]


def test_a_replicas_next_pod_waits_for_the_rest_of_its_former_one() -> None:
    """A log that is over makes room for another one; no pod is read twice."""
    logs = LogSet(most=2)
    old, other = logs.update({"worker-0": ("1", RUNNING), "worker-1": ("2", RUNNING), "worker-2": ("3", RUNNING)})
    now = {"worker-0": ("9", AGAIN), "worker-2": ("3", RUNNING)}
    assert logs.update(now) == []
    assert (old.state, other.state) == (RUNNING._replace(gone=True),) * 2
    logs.end(old)
    assert [log.uid for log in logs.update(now)] == ["9"]
    logs.end(other)
    assert [log.uid for log in logs.update(now)] == ["3"]
    logs.end(logs.open["worker-2"])
    assert logs.update(now) == []


def test_the_stream_of_a_deleted_pod_is_given_up_when_nothing_arrives() -> None:
    """With a dead node it never ends. Bytes begin the time anew."""
    logs = LogSet(most=2)
    log, _ = logs.update({"worker-0": ("1", RUNNING), "worker-1": ("2", RUNNING)})
    log.next()
    logs.update({"worker-1": ("2", RUNNING)})
    assert logs.stalled(100.0) == []
    log.feed(raw("one"))
    assert logs.stalled(100.0 + follower.GRACE_S) == []
    assert logs.stalled(100.0 + 2 * follower.GRACE_S) == [log]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, RunState(follower.NOT_STARTED, why="Pending")),
        ({"phase": "Failed", "reason": "Evicted"}, RunState(follower.NOT_STARTED, pod_over=True, why="Evicted")),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            RunState(follower.NOT_STARTED, why="Unschedulable"),
        ),
        ({"state": {"waiting": {"reason": "ErrImagePull"}}}, RunState(follower.NOT_STARTED, why="ErrImagePull")),
        ({"state": {"running": {}, "waiting": None}}, RunState(0)),
        (
            {"state": {"running": None, "terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
            RunState(0, over=True, why="exit code 137, OOMKilled"),
        ),
        (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}},
            RunState(0, over=True, why="exit code 1"),
        ),
    ],
)
def test_a_container_has_a_log_once_it_has_started(status: dict[str, Any], state: RunState) -> None:
    """Fields of JSON may be missing or null."""
    if "state" in status:
        status = {"initContainerStatuses": None, "containerStatuses": [{"name": "tensorflow", **status}]}
    assert run_state_of(status, "tensorflow") == state
