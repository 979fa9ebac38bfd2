"""`kubectl tfjob logs`, against a server with pods whose logs are streams."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import Result
from pytest_mock import MockerFixture

from tfjob_operator.cli import watches
from tfjob_operator.cli.logs import follower, following
from unit.cli.conftest import job
from unit.cli.kubelet import Cluster, FakePod, Run

pytestmark = pytest.mark.sockets


class Logs:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __call__(self, *arguments: str) -> Result:
        return self.cluster.run("logs", "mnist", *arguments)

    @contextmanager
    def followed(self, *arguments: str) -> Iterator[Callable[[], Result]]:
        """Run it with --follow in a thread; the function that is yielded waits for its end, and returns its result."""
        results: list[Result] = []
        thread = threading.Thread(target=lambda: results.append(self("--follow", *arguments)))
        thread.start()

        def ended() -> Result:
            thread.join(30)
            assert results, "it goes on and on"
            return results[0]

        try:
            yield ended
        finally:
            with self.cluster.changed():
                self.cluster.job = None
                for pod in self.cluster.pods.values():
                    pod.gone = True
                self.cluster.pods = {}
            thread.join(30)


@pytest.fixture
def logs(mocker: MockerFixture) -> Iterator[Logs]:
    for name in ("RETRY_S", "FIRST_DELAY_S"):
        mocker.patch.object(follower, name, 0.02)
    mocker.patch.object(following, "IDLE_S", 0.02)
    mocker.patch.object(following, "POLL_S", 0.0)
    mocker.patch.object(watches, "RETRY_S", 0.02)
    with Cluster().serving() as cluster:
        yield Logs(cluster)


def test_what_every_replica_has_written_is_printed_with_its_name(logs: Logs) -> None:
    for name in ("mnist-worker-10", "mnist-worker-2", "mnist-ps-0"):
        logs.cluster.pod(name)
        logs.cluster.write(name, "one", "two", ended=False)
    logs.cluster.exit("mnist-ps-0", 0, phase="Succeeded")
    shown = logs().stdout
    order = [f"{name} | {line}" for name in ("ps-0", "worker-2", "worker-10") for line in ("one", "two")]
    assert shown.splitlines() == order
    assert logs("--tail=1", "--replica=worker-2", "--no-prefix").stdout == "two\n"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--type=worker"], ["worker-0", "worker-1"]),
        (["--type=WORKER", "--index=1"], ["worker-1"]),
        (["--index=0"], ["ps-0", "worker-0"]),
        (["--replica=worker-0", "--replica=ps-0"], ["ps-0", "worker-0"]),
        (["--type=worker", "--index=1", "--replica=ps-0"], ["ps-0", "worker-1"]),
        (["--replica=mnist-worker-0"], ["worker-0"]),
    ],
)
def test_replicas_are_chosen_by_type_number_or_name(logs: Logs, options: list[str], names: list[str]) -> None:
    logs.cluster.job = job(spec={"tfReplicaSpecs": {"Worker": {}, "PS": {}}})
    for name in ("ps-0", "worker-0", "worker-1"):
        logs.cluster.pod(f"mnist-{name}")
        logs.cluster.write(f"mnist-{name}", "x")
    assert logs(*options).stdout.splitlines() == [f"{name} | x" for name in names]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--type=chief"], 1, "mnist has no replicas of type chief: it has worker"),
        (["--replica=chief-0"], 1, "mnist has no replicas of type chief: it has worker"),
        (["--replica=worker"], 2, "'worker' is not a replica such as worker-0"),
        (["--index=7"], 1, "no pods of these replicas of mnist"),
        (["--container=side"], 1, "container side not found in pod mnist-worker-0"),
        (["--follow", "--previous"], 2, "--previous cannot be combined with --follow"),
        (["--previous"], 1, "worker-0: mnist-worker-0 is waiting to start, or has no earlier run"),
    ],
)
def test_what_makes_no_sense_is_one_line(logs: Logs, options: list[str], code: int, says: str) -> None:
    logs.cluster.pod("mnist-worker-0")
    result = logs(*options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("Running", "mnist has no pods: see kubectl tfjob --kubeconfig="),
        ("Succeeded", "mnist has succeeded and its pods were deleted; cleanPodPolicy"),
    ],
)
def test_a_job_without_pods_is_told_with_the_reason(logs: Logs, condition: str, says: str) -> None:
    """Logs are kept by kubelets, as long as the pods are there."""
    logs.cluster.job = job("mnist", condition)
    assert says in logs().stderr


def test_a_job_that_never_had_pods_is_not_said_to_have_lost_them(logs: Logs) -> None:
    failed = {"type": "Failed", "status": "True", "reason": "InvalidTFJobSpec", "message": "is invalid"}
    logs.cluster.job = job(status={"conditions": [failed]})
    told = logs().stderr
    assert told.startswith("error: mnist failed before its pods were created: see kubectl tfjob ")
    assert " explain mnist " in told


def test_at_a_limit_no_clean_up_policy_would_have_kept_the_logs(logs: Logs) -> None:
    """The operator deletes what still runs; only the condition has last lines."""
    failed = {"type": "Failed", "status": "True", "reason": "JobFailed"}
    failed["message"] = "TFJob mnist has failed because it has reached the specified backoff limit"
    logs.cluster.job = job(spec={"runPolicy": {"cleanPodPolicy": "None"}})
    logs.cluster.job["status"] = {"conditions": [failed]}
    told = logs().stderr
    assert told.startswith("error: mnist has failed (BackoffLimitExceeded), and at a limit running pods are deleted")
    assert "terminationMessagePolicy: FallbackToLogsOnError" in told
    assert "None keeps" not in told


def test_what_a_kubelet_sends_for_a_removed_container_is_no_log(logs: Logs) -> None:
    """With code 200: it looked as if the program had printed it."""
    logs.cluster.pod("mnist-worker-0")
    logs.cluster.write("mnist-worker-0", "unable to retrieve container logs for containerd://006b48d2", ended=False)
    result = logs()
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: worker-0: the container of mnist-worker-0 was removed, and its log with it\n"


def test_who_may_not_read_logs_is_told_so_in_one_line(logs: Logs) -> None:
    logs.cluster.pod("mnist-worker-0")
    for options in ([], ["--follow"]):
        logs.cluster.refusals = [(403, 'cannot get resource "pods/log"')]
        result = logs(*options)
        assert result.exit_code == 1
        assert result.stderr == 'Error from server (Forbidden): cannot get resource "pods/log"\n'


def test_following_ends_when_the_job_has_ended_and_all_was_printed(logs: Logs) -> None:
    for name in ("mnist-worker-0", "mnist-worker-1"):
        logs.cluster.pod(name)
    with logs.followed() as ended:
        for name in ("mnist-worker-0", "mnist-worker-1"):
            logs.cluster.wait_for_stream(name)
            logs.cluster.write(name, "one")
            logs.cluster.write(name, "two", ended=False)
            logs.cluster.exit(name, 0, phase="Succeeded")
        logs.cluster.end_job()
        result = ended()
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == [f"worker-{i} | {line}" for i in (0, 1) for line in ("one", "two")]


def test_a_restart_in_place_goes_on_in_the_new_log(logs: Logs, mocker: MockerFixture) -> None:
    """What the first run wrote at its very end, after its stream was lost, is printed too."""
    # The watch tells of the restart before the stream is requested again.
    mocker.patch.object(follower, "RETRY_S", 60.0)
    logs.cluster.pod("mnist-worker-0")
    logs.cluster.write("mnist-worker-0", "one")
    with logs.followed() as ended:
        logs.cluster.wait_for_stream("mnist-worker-0")
        with logs.cluster.changed():  # both at once: the stream ends, and the second run is there already
            first = logs.cluster.pods["mnist-worker-0"].runs[0]
            first.exit_code = 137
            logs.cluster.pods["mnist-worker-0"].runs.append(Run())
            first.written.append(("2026-01-01T00:00:00.000000000Z", b"last words"))
        logs.cluster.write("mnist-worker-0", "again", at="2026-01-01T00:00:10.000000000Z")
        logs.cluster.finish("mnist-worker-0")
        result = ended()
    assert result.stdout.splitlines() == ["worker-0 | one", "worker-0 | last words", "worker-0 | again"]
    assert "worker-0: was started again after exit code " in result.stderr


def test_a_pod_that_is_made_anew_is_read_from_its_beginning(logs: Logs) -> None:
    logs.cluster.pod("mnist-worker-0", "old")
    logs.cluster.write("mnist-worker-0", "one", at="2026-01-01T00:00:50.000000000Z")
    with logs.followed("--tail=1") as ended:
        logs.cluster.wait_for_lines("mnist-worker-0")
        logs.cluster.pod("mnist-worker-0", "new")
        logs.cluster.write("mnist-worker-0", "two", "three", at="2026-01-01T00:00:10.000000000Z")
        logs.cluster.finish("mnist-worker-0")
        assert ended().stdout.splitlines() == [f"worker-0 | {line}" for line in ("one", "two", "three")]


def test_a_pod_that_goes_in_the_middle_of_a_line_loses_nothing(logs: Logs) -> None:
    logs.cluster.pod("mnist-worker-0")
    logs.cluster.write("mnist-worker-0", "one", "tw", ended=False)
    with logs.followed() as ended:
        logs.cluster.wait_for_lines("mnist-worker-0")
        logs.cluster.delete("mnist-worker-0")
        logs.cluster.end_job("Failed")
        assert ended().stdout.splitlines() == ["worker-0 | one", "worker-0 | tw"]


@pytest.mark.parametrize("cuts", [[0], [34], [40, 0, 77]])
def test_a_lost_connection_is_made_anew_and_no_line_comes_twice(logs: Logs, cuts: list[int]) -> None:
    logs.cluster.pod("mnist-worker-0")
    logs.cluster.write("mnist-worker-0", "a", "b", "c", at="2026-01-01T00:00:00.5Z")
    logs.cluster.write("mnist-worker-0", "d", "a", at="2026-01-01T00:00:00.6Z")
    logs.cluster.cuts = cuts
    with logs.followed() as ended:
        logs.cluster.wait_for_stream("mnist-worker-0", len(cuts) + 1)
        logs.cluster.finish("mnist-worker-0")
        assert ended().stdout.splitlines() == [f"worker-0 | {line}" for line in "abcda"]


def test_what_is_not_there_yet_is_waited_for(logs: Logs) -> None:
    logs.cluster.refusals = [(500, "dial tcp 10.0.0.1:10250: i/o timeout")]
    with logs.followed() as ended:
        with logs.cluster.changed():
            logs.cluster.pods["mnist-worker-0"] = FakePod("mnist-worker-0", "1")
        logs.cluster.pod("mnist-worker-0", "1")
        logs.cluster.wait_for_stream("mnist-worker-0", 2)
        logs.cluster.write("mnist-worker-0", "at last")
        logs.cluster.finish("mnist-worker-0")
        result = ended()
    assert result.stdout == "worker-0 | at last\n"
    assert "cannot read logs, retrying: dial tcp 10.0.0.1:10250: i/o timeout" in result.stderr


def test_a_pod_that_never_started_does_not_keep_it_waiting(logs: Logs) -> None:
    with logs.cluster.changed():
        logs.cluster.pods["mnist-worker-0"] = FakePod("mnist-worker-0", "1")
    logs.cluster.end_job("Failed")
    result = logs("--follow")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "worker-0: has not started yet: Pending\n"


def test_a_stream_that_stays_silent_after_its_pod_has_gone_is_given_up(logs: Logs, mocker: MockerFixture) -> None:
    mocker.patch.object(follower, "GRACE_S", 0.1)
    old = logs.cluster.pod("mnist-worker-0", "old")
    logs.cluster.write("mnist-worker-0", "one")
    with logs.followed() as ended:
        logs.cluster.wait_for_lines("mnist-worker-0")
        with logs.cluster.changed():
            logs.cluster.pods["mnist-worker-0"] = FakePod("mnist-worker-0", "new", [Run()], "Running")
        logs.cluster.write("mnist-worker-0", "two")
        logs.cluster.wait_for_stream("mnist-worker-0", 2)
        logs.cluster.finish("mnist-worker-0")
        assert ended().stdout.splitlines() == ["worker-0 | one", "worker-0 | two"]
        assert not old.gone


def test_no_more_streams_than_one_says_are_opened(logs: Logs) -> None:
    """Each is a connection to the API server."""
    for index in range(3):
        logs.cluster.pod(f"mnist-worker-{index}")
    result = logs("--follow", "--max-log-requests=2")
    assert result.exit_code == 1
    assert "too many replicas to follow: 3, the maximum is 2" in result.stderr
    assert logs.cluster.opened == {}


def test_a_replica_beyond_the_most_streams_is_reported_and_not_followed(logs: Logs) -> None:
    logs.cluster.pod("mnist-worker-0")
    with logs.followed("--max-log-requests=1") as ended:
        logs.cluster.wait_for_stream("mnist-worker-0")
        logs.cluster.pod("mnist-worker-1")
        logs.cluster.finish("mnist-worker-0")
        assert "worker-1 is not followed: increase --max-log-requests (now 1)" in ended().stderr
    assert "mnist-worker-1" not in logs.cluster.opened


@pytest.mark.parametrize(("since", "asked"), [("1m30s", "90"), ("0", "1")])
def test_the_kubelet_is_asked_for_whole_seconds_and_never_for_0(logs: Logs, since: str, asked: str) -> None:
    """It refuses 0."""
    logs.cluster.pod("mnist-worker-0")
    assert logs(f"--since={since}").exit_code == 0
    assert [each["sinceSeconds"] for each in logs.cluster.queries] == [asked]


@pytest.mark.parametrize("now", [None, job(uid="another")], ids=["deleted", "recreated"])
def test_a_job_that_is_deleted_ends_it(logs: Logs, now: dict[str, Any] | None) -> None:
    logs.cluster.pod("mnist-worker-0")
    logs.cluster.write("mnist-worker-0", "one")
    with logs.followed() as ended:
        logs.cluster.wait_for_lines("mnist-worker-0")
        with logs.cluster.changed():
            logs.cluster.job = now
        logs.cluster.delete("mnist-worker-0")
        result = ended()
    assert (result.exit_code, result.stdout) == (0, "worker-0 | one\n")
    assert result.stderr.splitlines()[-1] == "tfjob.kubeflow.org/mnist was deleted"
