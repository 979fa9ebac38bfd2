"""Timelines as text: bars that stand below their times, and the list of what happened."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.model.replica_names import ReplicaName
from tfjob_operator.cli.timelines.render import ASCII, MAX_HAPPENINGS, Frame, render
from tfjob_operator.cli.timelines.values import (
    AttemptSpan,
    Happening,
    Interval,
    PodHistory,
    PodOutcome,
    PodState,
    ReplicaTimeline,
    Span,
    Timeline,
)
from unit.cli.conftest import Server, job, pod

START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def drawn(timeline: Timeline, width: int = 60, now: float = 100) -> list[str]:
    return render(timeline, "mnist", Frame(at(now), UTC, width, ASCII), lambda text, _: text)


FIRST = PodHistory(
    "mnist-worker-0",
    start=at(0),
    end=at(50),
    intervals=(Interval(PodState.WAITING, at(0), at(10)), Interval(PodState.RUNNING, at(10), at(50))),
    ending=PodOutcome.FAILED,
    exit_code=137,
)
SECOND = PodHistory("mnist-worker-0", start=at(60), intervals=(Interval(PodState.RUNNING, at(60)),), restarts=1)
WORKER = ReplicaTimeline(ReplicaName("Worker", 0), (FIRST, SECOND), 2)


def test_a_bar_shows_what_a_replica_did_when() -> None:
    whole = Timeline(start=at(0), replicas=(WORKER,), suspensions=(Span(at(50), at(60)),))
    assert drawn(whole) == [
        "mnist: started 12:00:00 UTC, running for 100s",
        "",
        "          12:00:00      12:00:28      12:00:56      12:01:24",
        "worker-0  .....####################     ####################",
        "suspended                          =====",
        "",
        ". waiting  # running",
    ]


def test_attempts_have_a_line_with_their_numbers() -> None:
    attempts = (AttemptSpan(9, at(0), at(55), "why"), AttemptSpan(10, at(55), at(56)), AttemptSpan(11, at(56)))
    assert drawn(Timeline(start=at(0), replicas=(WORKER,), attempts=attempts))[4] == (
        "attempt   9===========================11===================="
    )
    late = (AttemptSpan(9, at(0), at(97), "why"), AttemptSpan(10, at(97), at(99)), AttemptSpan(11, at(99.5)))
    assert drawn(Timeline(start=at(0), replicas=(WORKER,), attempts=late))[4] == f"attempt   9{'=' * 47}11"
    assert not any(line.startswith("attempt") for line in drawn(Timeline(start=at(0), replicas=(WORKER,))))


def test_pods_that_outlive_their_job_do_not_lengthen_it() -> None:
    assert drawn(Timeline(start=at(0), end=at(23), replicas=(WORKER,)))[0].endswith("finished 12:00:23 after 23s")


def test_a_wide_terminal_has_room_for_how_it_ended() -> None:
    bar = next(line for line in drawn(Timeline(start=at(0), replicas=(WORKER,)), 100) if line.startswith("worker-0"))
    assert bar.endswith("# 2 restarts")
    ended = ReplicaTimeline(WORKER.name, WORKER.lives[:1])
    assert drawn(Timeline(start=at(0), end=at(50), replicas=(ended,)), 100)[3].endswith("# exit 137")


def test_what_is_shorter_than_a_column_is_drawn_all_the_same() -> None:
    """One second in a day, also at its very end."""
    blinks = (Interval(PodState.RUNNING, at(0), at(1)), Interval(PodState.RESTARTING, at(86_399), at(86_400)))
    life = PodHistory("p", start=at(0), end=at(86_400), intervals=blinks, ending=PodOutcome.DELETED)
    whole = Timeline(start=at(0), replicas=(ReplicaTimeline(ReplicaName("PS", 0), (life,)),))
    (bar,) = [line for line in drawn(whole, now=86_400) if line.startswith("ps-0")]
    assert (bar.count("#"), bar[-1]) == (1, "~")


def test_what_happened_is_listed_with_times_and_without_control_characters() -> None:
    """Wrapped, and cut after some lines; in a timeline of more than a day with the date."""
    words = "Back-off\x1b[2J " + "word " * 200
    happened = (Happening(at(3), "mnist-worker-0", "BackOff", words, is_warning=True, times=7),)
    (first, *rest) = drawn(Timeline(start=at(0), happenings=happened))[4:]
    assert first == "12:00:03  mnist-worker-0  BackOff (x7): Back-off\\x1b[2J word"
    assert len(rest) == 3
    assert rest[0].endswith(" ...")
    ending = (Happening(at(3), "mnist", "TFJobFailed", f"has failed: {'word ' * 200}ValueError: no data"),)
    assert drawn(Timeline(start=at(0), happenings=ending))[-1].endswith("ValueError: no data")
    (head, *_) = drawn(Timeline(start=at(-2 * 86_400), happenings=happened))
    assert head.startswith("mnist: started 11-20 12:00 UTC, running for 2d")


def test_a_job_of_which_nothing_is_known_yet_has_an_empty_timeline() -> None:
    assert drawn(Timeline())[0] == "mnist: started 12:01:40 UTC, running for 1s"


def test_a_short_job_has_each_time_once() -> None:
    axis = drawn(Timeline(start=at(0), end=at(2)), 100)[2].split()
    assert axis == ["12:00:00", "12:00:01"]


def test_what_happened_to_several_pods_in_turn_is_one_line() -> None:
    pulled = [Happening(at(n), f"mnist-worker-{n}", "Pulled", f"image of mnist-worker-{n}") for n in range(3)]
    whole = (
        *pulled,
        Happening(at(3), "mnist", "Running"),
        Happening(at(4), "mnist-ps-0", "Pulled", "image of mnist-ps-0"),
    )
    assert [line[10:] for line in drawn(Timeline(start=at(0), happenings=whole), 100)[4:]] == [
        "mnist-worker-0 and 2 more  Pulled: image of mnist-worker-0",
        "mnist  Running",
        "mnist-ps-0  Pulled: image of mnist-ps-0",
    ]


def test_of_ten_thousand_events_the_newest_are_listed() -> None:
    whole = tuple(Happening(at(n), "mnist", f"Reason{n}") for n in range(10_000))
    lines = drawn(Timeline(start=at(0), happenings=whole), 100)
    assert lines[4] == "... 9900 more before these"
    assert len(lines) == 6 + MAX_HAPPENINGS
    assert lines[-1].endswith("mnist  Reason9999")


INTERVALS = st.lists(
    st.tuples(st.sampled_from(PodState), st.floats(-1e7, 1e7), st.one_of(st.none(), st.floats(0, 1e7))), max_size=4
)


@pytest.mark.parametrize("width", [1, 40, 80, 300])
@given(INTERVALS)
def test_no_line_is_wider_than_the_terminal(width: int, given_: list[tuple[PodState, float, float | None]]) -> None:
    """Whatever the times: clocks may go wrong by months."""
    intervals = tuple(
        Interval(state, at(start), at(start + more) if more is not None else None) for state, start, more in given_
    )
    replica = ReplicaTimeline(ReplicaName("Evaluator", 12345), (PodHistory("p", start=at(0), intervals=intervals),))
    for line in drawn(Timeline(start=at(0), replicas=(replica,), holds=(Span(at(5), None),)), width):
        assert len(line) <= max(width, 40)


def test_timeline_goes_on_without_events_where_they_may_not_be_read(server: Server) -> None:
    server.answers("/apis/kubeflow.org/v1/namespaces/team/tfjobs/mnist", job("mnist", "Running"))
    server.answers("/api/v1/namespaces/team/pods", {"items": [], "metadata": {}})
    refused = {"message": "events is forbidden", "reason": "Forbidden"}
    server.answers("/api/v1/namespaces/team/events", refused, code=403)
    result = server.run("timeline", "mnist", "--utc")
    assert result.exit_code == 0
    assert result.stdout.startswith("mnist: ")
    assert result.stderr == "no permission to list events: deleted pods are not shown\n"
    about = {"kind": "TFJob", "name": "mnist", "uid": "uid-mnist"}
    meta = {"name": "e", "uid": "e"}
    event = {
        "metadata": meta,
        "involvedObject": about,
        "reason": "Seen",
        "message": "hello",
        "lastTimestamp": "2026-11-22T12:00:00Z",
    }
    of_pod = event | {"involvedObject": {"kind": "Pod", "name": "mnist-worker-0", "uid": "p"}, "reason": "Started"}
    other = event | {"involvedObject": {"kind": "Pod", "name": "mnistic-worker-0", "uid": "q"}, "reason": "Odd"}
    events = "/api/v1/namespaces/team/events?limit=500&fieldSelector=involvedObject."
    server.answers(f"{events}name%3Dmnist", {"items": [event, {"metadata": meta, "message": 5}], "metadata": {}})
    server.answers(f"{events}kind%3DPod", {"items": [of_pod], "metadata": {"continue": "more"}})
    server.answers(f"{events}kind%3DPod&continue=more", {"items": [other], "metadata": {}})
    told = server.run("timeline", "mnist").stdout
    assert "mnist  Seen: hello" in told
    assert "mnist-worker-0  Started: hello" in told
    assert "Odd" not in told


def test_json_has_the_timeline_by_names(server: Server) -> None:
    """In camelCase, times with their zones."""
    body = job("mnist", "Running")
    body["metadata"]["creationTimestamp"] = "2026-11-22T12:00:00Z"
    server.answers("/apis/kubeflow.org/v1/namespaces/team/tfjobs/mnist", body)
    ended = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 3}}}]
    failed = pod("mnist-worker-0", "Failed", containerStatuses=ended)
    server.answers("/api/v1/namespaces/team/pods", {"items": [failed], "metadata": {}})
    server.answers("/api/v1/namespaces/team/events", {"items": [], "metadata": {}})
    found = json.loads(server.run("timeline", "mnist", "-o", "json").stdout)
    assert found["start"] == "2026-11-22T12:00:00+00:00"
    (replica,) = found["replicas"]
    assert replica["name"] == {"type": "Worker", "number": 0}
    assert replica["lives"][0]["exitCode"] == 3
    assert server.run("timeline", "mnist", "-o", "yaml").stdout.startswith("start: ")
