"""`watch`: what changes is shown as it does, until the job has ended."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any, Self

import pytest
from click.exceptions import Exit
from click.testing import Result
from pytest_mock import MockerFixture

from tfjob_operator.cli import watches
from tfjob_operator.cli import watching as watching_
from tfjob_operator.cli.commands import watch_
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.selection import ReplicaPod
from tfjob_operator.cli.session import StreamBrokenError
from tfjob_operator.cli.terminal import Terminal
from tfjob_operator.cli.training import Progress
from tfjob_operator.cli.watches import Gone, Watch, changes, watched
from tfjob_operator.cli.watching import LiveJob, LiveState, Printer, Screen, progress_line
from unit.cli.conftest import EVENTS, JOBS, PODS, Server, job
from unit.cli.kubelet import Cluster, FakePod, Run

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def short_pauses(mocker: MockerFixture) -> None:
    """What is read again after a second is read again at once."""
    mocker.patch.object(watching_, "_LOG_RETRY_S", 0.02)
    mocker.patch.object(watches, "RETRY_S", 0.02)
    mocker.patch.object(watches, "FIRST_RETRY_DELAY_S", 0.02)
    mocker.patch.object(watches, "MAX_RETRY_DELAY_S", 0.02)
    mocker.patch.object(watch_, "_MIN_REDRAW_S", 0.02)
    mocker.patch.object(watch_, "_SETTLE_S", 0.02)


@pytest.fixture
def cluster() -> Cluster:
    """A job with two workers, of which one runs."""
    made = Cluster()
    made.pod("mnist-worker-0")
    return made


@contextmanager
def watching(cluster: Cluster, then: Callable[[], None] | None = None) -> Iterator[Result]:
    """Watch the job, do `then` in a thread once the log of its worker is read, and yield what was printed."""

    def work() -> None:
        if then is not None:
            cluster.wait_for_stream("mnist-worker-0")
            then()

    with cluster.serving():
        other = Thread(target=work)
        other.start()
        result = cluster.run("watch", "mnist")
        other.join()
        yield result


def test_changes_are_lines_until_the_job_has_ended(cluster: Cluster) -> None:
    def life() -> None:
        cluster.pod("mnist-worker-1")
        cluster.exit("mnist-worker-1", 1, phase="Failed")
        cluster.end_job()

    with watching(cluster, life) as result:
        pass
    lines = [line.partition("  ")[2] for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert "worker-1 Failed, exit 1" in lines
    assert "mnist Succeeded: is Succeeded" in lines
    assert result.stdout.splitlines()[-1] == "tfjob.kubeflow.org/mnist Succeeded: is Succeeded"


@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_the_exit_code_says_how_the_job_ended(cluster: Cluster, condition: str, code: int) -> None:
    cluster.end_job(condition)
    with watching(cluster) as result:
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (
            code,
            f"tfjob.kubeflow.org/mnist {condition}: is {condition}",
        )


def test_pods_that_go_with_their_job_are_not_called_missing(mocker: MockerFixture, capsys: Any) -> None:
    """Another watch tells of the job, after that of its pods."""
    running = [ReplicaPod("worker", index, {"metadata": {"name": f"mnist-worker-{index}"}}) for index in (0, 1)]
    alive = LiveState(job=job(), replicas=running)
    live = mocker.patch.object(watching_, "LiveJob").return_value.__enter__.return_value
    live.wait.side_effect = [alive, alive._replace(replicas=[]), LiveState(gone=Gone())]
    with pytest.raises(Exit):
        watch_.watch(mocker.Mock(), "mnist", no_color=True)
    told = capsys.readouterr()
    assert "Missing" not in told.out
    assert told.err.endswith("was deleted\n")


def test_a_job_that_is_deleted_ends_it(cluster: Cluster) -> None:
    with watching(cluster, cluster.delete_job) as result:
        assert (result.exit_code, result.stderr) == (3, "tfjob.kubeflow.org/mnist was deleted\n")


def deleted_after_the_first_read(server: Server) -> None:
    gone = json.dumps({"reason": "NotFound", "message": "not found"}).encode()
    server.responses[f"{JOBS}/mnist"] = [(200, json.dumps(job()).encode()), (404, gone)]


@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1)])
@pytest.mark.parametrize("verb", ["watch", "wait"])
@pytest.mark.parametrize("by", ["a version before the deletion", "the last state", "an event", "an event that is late"])
def test_a_job_that_is_deleted_when_it_ends_has_the_exit_code_of_its_end(
    server: Server, verb: str, condition: str, code: int, by: str
) -> None:
    """As with ttlSecondsAfterFinished: 0. The watch may miss the last version, and the deletion too."""
    ended = job("mnist", condition)
    outcomes = {
        "Succeeded": ("TFJobSucceeded", "is Succeeded"),
        "Failed": ("BackoffLimitExceeded", "Job mnist has failed"),
    }
    reason, message = outcomes[condition]
    items = [{"reason": "TFJobRunning", "message": "runs"}, {"reason": reason, "message": message}]
    deleted_after_the_first_read(server)
    server.answers(f"{PODS}?watch", b"")
    server.answers(PODS, {"metadata": {"resourceVersion": "7"}, "items": []})
    if by.startswith("an event"):
        server.answers(JOBS, b"")
        server.answers(EVENTS, *[{"items": []}] * by.endswith("late"), {"items": items})
    else:
        versions = [{"type": "MODIFIED", "object": ended}] * by.startswith("a version")
        deleted = {"type": "DELETED", "object": ended}
        server.answers(JOBS, b"".join(json.dumps(each).encode() + b"\n" for each in (*versions, deleted)))
    result = server.run(verb, "mnist")
    last = [line for line in result.stdout.splitlines() if line.startswith("tfjob.")]
    shown = message if by.startswith("an event") else f"is {condition}"
    assert (result.exit_code, last) == (code, [f"tfjob.kubeflow.org/mnist {condition}: {shown}"])


@pytest.mark.parametrize(
    "event",
    [("InvalidTFJobSpec", "TFJob mnist is on hold: the spec is invalid"), ("TFJobRunning", "TFJob mnist is running.")],
)
def test_a_job_that_is_deleted_before_its_end_is_told_from_one_that_ended(
    server: Server, event: tuple[str, str]
) -> None:
    deleted_after_the_first_read(server)
    server.answers(JOBS, b"")
    server.answers(EVENTS, {"items": [{"reason": event[0], "message": event[1]}]})
    assert server.run("wait", "mnist").exit_code == 3
    assert any(
        f"{EVENTS}?fieldSelector=involvedObject.name%3Dmnist%2CinvolvedObject.uid%3Duid-mnist" in each[1]
        for each in server.asked
    )


def test_a_job_that_is_not_there_is_one_line() -> None:
    nothing = Cluster()
    nothing.job = None
    with watching(nothing) as result:
        assert (result.exit_code, result.output) == (4, "Error from server (NotFound): not found\n")


def test_an_outage_is_shown_and_the_watch_goes_on(server: Server) -> None:
    """Whatever cannot be read for a while: the job, its pods, or both."""
    away, pods = [(503, b"{}")] * 3, json.dumps({"items": [], "metadata": {"resourceVersion": "9"}}).encode()
    first, last = (json.dumps(job("mnist", each)).encode() for each in ("Running", "Succeeded"))
    server.responses[PODS] = [*away, (200, pods)]
    server.answers(f"{PODS}?labelSelector=training.kubeflow.org%2Fjob-name%3Dmnist&resourceVersion=9&watch=true", b"")
    server.responses[f"{JOBS}/mnist"] = [(200, first), *away * 20, (200, last)]
    server.responses[JOBS] = [(200, b""), *away]
    result = server.run("watch", "mnist")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "tfjob.kubeflow.org/mnist Succeeded: is Succeeded")
    assert "  cannot read the job, retrying: 503 Service Unavailable: {}" in result.stdout


def test_a_job_that_has_ended_ends_the_watch_though_its_pods_cannot_be_read(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Succeeded"))
    server.answers(PODS, {}, code=500)
    result = server.run("watch", "mnist")
    assert (result.exit_code, result.stdout) == (0, "tfjob.kubeflow.org/mnist Succeeded: is Succeeded\n")


def test_a_warning_is_drawn_as_long_as_it_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(lambda: Terminal(is_terminal=True, width=60, height=40, colour=False, unicode=False))
    for warning in ("cannot read the job, retrying: no", ""):
        screen.show(seen()._replace(warning=warning), NOW)
        assert ("  cannot read the job, retrying: no" in capsys.readouterr().out) == bool(warning)


def test_who_may_not_read_logs_sees_all_the_rest(cluster: Cluster) -> None:
    cluster.refusals = [(403, "forbidden")]
    with watching(cluster, cluster.end_job) as result:
        assert (result.exit_code, result.stderr) == (0, "")


def seen(count: int = 1, step: int = 450, total: int | None = 1000) -> LiveState:
    pods = [FakePod(f"mnist-worker-{index}", str(index), [Run()], "Running").body() for index in range(count)]
    replicas = [ReplicaPod("worker", index, pod) for index, pod in enumerate(pods)]
    numbers = {"loss": 0.41234, "step_time": 0.1, "evil\x1b[2J": 1.0}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": count}}}
    return LiveState(
        job("mnist", "Running", spec=spec),
        replicas=replicas,
        progress=Progress(step, total),
        numbers=numbers,
        source="worker-0",
    )


def test_the_log_of_the_replica_that_decides_tells_how_far_the_training_is(cluster: Cluster) -> None:
    with live_view(cluster) as live:
        cluster.wait_for_stream("mnist-worker-0")
        cluster.write("mnist-worker-0", "Step 100/1000 loss=0.5", "Step 200/1000 loss=0.25")
        until_progress(live, Progress(200, 1000))
        assert live.wait(0).numbers == {"loss": 0.25}
        cluster.pod("mnist-worker-0", "another")
        cluster.wait_for_stream("mnist-worker-0", 2)
        cluster.write("mnist-worker-0", "Step 5/1000 loss=0.5")
        until_progress(live, Progress(5, 1000))


def test_a_change_of_a_pod_is_seen(cluster: Cluster) -> None:
    with live_view(cluster) as live:
        until_named(live, "worker-0")
        cluster.pod("mnist-worker-1")
        until_named(live, "worker-0", "worker-1")
        cluster.delete("mnist-worker-0")
        until_named(live, "worker-1")


@contextmanager
def live_view(cluster: Cluster) -> Iterator[LiveJob]:
    with cluster.serving(), cluster.session() as session, LiveJob(session, "mnist", time.monotonic) as live:
        yield live


def test_pods_are_read_again_when_their_watch_has_ended(server: Server) -> None:
    """Such as by an ERROR event, since its version is too old."""
    one, two = (FakePod(f"mnist-worker-{index}", str(index), [Run()], "Running").body() for index in (0, 1))
    meta = {"resourceVersion": "9"}
    server.answers(f"{JOBS}/mnist", job())
    server.answers(JOBS, b"")
    selector = "labelSelector=training.kubeflow.org%2Fjob-name%3Dmnist"
    server.answers(
        f"{PODS}?limit=500&{selector}", {"items": [one], "metadata": meta}, {"items": [one, two], "metadata": meta}
    )
    error = {"type": "ERROR", "object": {"message": "too old resource version"}}
    server.answers(f"{PODS}?{selector}&resourceVersion=9&watch=true", json.dumps(error).encode() + b"\n")
    with server.session() as session, LiveJob(session, "mnist", time.monotonic) as live:
        until_named(live, "worker-0", "worker-1")


def names(live: LiveJob) -> list[str]:
    return [each.name for each in live.wait(0.05).replicas or ()]


def until_progress(live: LiveJob, wanted: Progress) -> None:
    """Read the progress again and again, each time waiting for a change."""
    assert any(live.wait(0.05).progress == wanted for _ in range(400)), f"not {wanted}: {live.wait(0.0).progress}"


def until_named(live: LiveJob, *wanted: str) -> None:
    assert any(names(live) == [*wanted] for _ in range(400)), f"not {wanted}: {names(live)}"


def test_progress_is_a_bar_with_the_last_numbers() -> None:
    line = progress_line(seen(), 100)
    assert line == f"worker-0: step 450 of 1000 {'#' * 14}{'.' * 16} 45%  loss 0.4123  evil\\x1b[2J 1"
    assert progress_line(seen(), 65).startswith("worker-0: step 450 of 1000 ##")
    assert len(progress_line(seen(), 65)) == 65
    assert progress_line(seen(), 40).startswith("worker-0: step 450 of 1000 45%  loss")
    assert progress_line(seen(total=None), 100).startswith("worker-0: step 450  loss")
    assert progress_line(LiveState(), 100) == ""


def test_it_is_drawn_in_the_same_place_and_never_beyond_the_window(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(lambda: Terminal(is_terminal=True, width=60, height=8, colour=False, unicode=False))
    screen.show(LiveState(), NOW)
    assert capsys.readouterr().out == ""
    screen.show(seen(20), NOW)
    first = capsys.readouterr().out
    assert first.count("\n") == 7
    assert "... 20 more lines" in first
    assert "  worker-0: step 450 of 1000 45%" in first
    screen.show(seen(20), NOW, last=True)
    second = capsys.readouterr().out
    assert second.startswith("\x1b[7F")
    assert second.count("\n") > 20
    assert max(len(line.removesuffix("\x1b[K")) for line in second.splitlines()[1:]) <= 60


def test_only_what_changed_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer()

    def printed(what: LiveState) -> list[str]:
        printer.show(what, NOW)
        return [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]

    first = printed(seen())
    unready = "mnist 0 of 1 ready, NotReady: mnist-worker-0 is not ready"
    assert first[:3] == ["mnist Running: is Running", unready, "worker-0 Running"]
    assert first[3].startswith("worker-0: step 450 of 1000 45%")
    assert printed(seen()) == []
    assert printed(seen(2)) == ["worker-1 Running"]


def test_a_job_that_is_being_suspended_is_not_called_running(capsys: pytest.CaptureFixture[str]) -> None:
    """The operator has not written the condition Suspended yet: that of the state says that the job is running."""
    live = seen()
    assert live.job is not None
    live.job["spec"]["runPolicy"] = {"suspend": True}
    Printer().show(live, NOW)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["mnist Running: is Running", "mnist 0 of 1 ready, Suspended"]


def test_steps_without_a_total_are_told_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """A program cannot tell a training of unknown length from one that hangs."""
    printer, lines = Printer(), list[str]()
    for second in range(25):
        progress = Progress(second, None)
        printer.show(seen()._replace(progress=progress), NOW + timedelta(seconds=second))
        lines += [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert [line.partition("step ")[2].split()[0] for line in lines] == ["0", "10", "20"]


def test_ages_are_drawn_anew_though_nothing_changes() -> None:
    assert 0 < watch_.REDRAW_S <= 1


LIMIT_S = 60.0
ONE, OTHER = (Watch(f"/{name}", "7", "", "application/json") for name in ("one", "other"))


class Watched:
    """Yields the events of a path, then waits until it is told to end, or aborted; then it raises `error`, if there is one."""

    def __init__(self, events: dict[str, list[Any]], error: CliError | None = None) -> None:
        self.events = events
        self.error = error
        self.may_end = threading.Event()
        self.aborted = threading.Event()
        self.closed = threading.Semaphore(0)

    def another(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.release()

    def abort(self) -> None:
        self.aborted.set()
        self.may_end.set()

    def watch(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        assert query["resourceVersion"] == "7"
        yield from self.events[path]
        assert self.may_end.wait(LIMIT_S), "nobody lets the log end"
        if self.error is not None:
            raise self.error


def test_events_of_all_watches_come_and_the_end_of_one_ends_all() -> None:
    session: Any = Watched({"/one": [{"n": 1}, {"n": 2}], "/other": [{"n": 3}]})
    seen: list[tuple[int, Any]] = []
    for number, event in changes(session, [ONE, OTHER]):
        seen.append((number, event["n"]))
        if len(seen) == 3:
            session.may_end.set()
    assert sorted(seen) == [(0, 1), (0, 2), (1, 3)]
    assert session.aborted.is_set()
    assert all(session.closed.acquire(timeout=LIMIT_S) for _ in (ONE, OTHER)), "a log stays open"


def test_an_error_of_one_watch_is_raised_and_a_caller_that_stops_ends_all() -> None:
    session: Any = Watched({"/one": [], "/other": [{"n": 3}]}, CliError("lost"))
    coming = changes(session, [ONE, OTHER])
    assert next(coming) == (1, {"n": 3})
    session.may_end.set()
    with pytest.raises(CliError, match="lost"):
        next(coming)
    session = Watched({"/one": [], "/other": [{"n": 3}]})
    coming = changes(session, [ONE, OTHER])
    next(coming)
    coming.close()  # type: ignore[attr-defined]
    assert session.aborted.is_set()


def test_one_watch_needs_no_thread() -> None:
    session: Any = Watched({"/one": [{"n": 1}]})
    session.may_end.set()
    session.another = None
    before = threading.active_count()
    coming = changes(session, [ONE])
    assert next(coming) == (0, {"n": 1})
    assert threading.active_count() == before


MODIFIED = dict[str, Any](type="MODIFIED", object={})


def failing(error: CliError) -> Iterator[Any]:
    yield 0, MODIFIED
    raise error


@pytest.mark.parametrize(
    "events",
    [
        iter([(0, MODIFIED)]),
        failing(StreamBrokenError("lost")),
        failing(ApiServerError("too old", code=410)),
    ],
    ids=["ended", "lost", "refused"],
)
def test_a_watch_that_ends_in_any_way_is_begun_anew_after_a_read(mocker: MockerFixture, events: Iterator[Any]) -> None:
    """After a pause; an error of the read is told. Without the right to watch it ends."""
    mocker.patch.object(watches, "changes", side_effect=[events, failing(ApiServerError("no", code=403))])
    reads = iter([("one", ()), CliError("away"), ("two", ())])

    def read() -> Any:
        found = next(reads)
        if isinstance(found, CliError):
            raise found
        return found

    pause, warn, session = mocker.Mock(), mocker.Mock(), mocker.Mock()
    seen: list[Any] = []
    with pytest.raises(ApiServerError, match="no"):
        seen.extend(watched(session, read, "it", pause=pause, warn=warn))
    assert seen == [("one", 0, None), ("one", 0, MODIFIED), ("two", 0, None), ("two", 0, MODIFIED)]
    assert pause.call_count == 2
    warn.assert_called_once_with("cannot read it, retrying: away")


def test_a_bookmark_is_no_version_of_a_job(server: Server) -> None:
    """It has only a resourceVersion; some servers send it unasked."""
    bookmark = {"type": "BOOKMARK", "object": {"kind": "TFJob", "metadata": {"resourceVersion": "9"}}}
    ended = {"type": "MODIFIED", "object": job("mnist", "Succeeded")}
    server.answers(f"{JOBS}/mnist", job())
    server.answers(JOBS, b"".join(json.dumps(each).encode() + b"\n" for each in (bookmark, ended)))
    result = server.run("wait", "mnist")
    assert (result.exit_code, result.stdout) == (0, "tfjob.kubeflow.org/mnist Succeeded: is Succeeded\n")
