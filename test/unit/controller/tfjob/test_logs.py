"""The reader of log lines: which logs it reads, how often, and whom it wakes. On virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from fakes.api import FakeClient, status_error
from fakes.controller import KEY, STATUS, ControllerHarness
from fakes.jobs import job, pod, spec
from fakes.metrics import FakeMetrics
from fakes.source import running as at_work
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client import LogOptions
from tfjob_operator.api.client.errors import (
    BadRequestError,
    ForbiddenError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    TransportError,
)
from tfjob_operator.api.meta import Resource
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.tfjob.log_reader import LAG, MAX_AT_ONCE, READ_S, READS_PER_S, Limiters, LogReader
from tfjob_operator.controller.tfjob.plan.silence import LogTarget, LogWatch
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, RateLimitingQueue, TokenBucket

FORBIDDEN: Final = status_error(ForbiddenError, 403, "pods is forbidden")
DEADLINE_S: Final = 60
OTHER: Final = "ns/other"


class Kubelets(FakeClient):
    """Answers reads of logs. `answers` has the log of each pod, or the error of a read; `delay_s` is the time a read takes."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, bytes | Exception] = {}
        self.delay_s: dict[str, float] = {}
        self.reads: list[tuple[float, str]] = []
        self.open = 0
        self.most_open = 0
        self.options: LogOptions | None = None
        self.namespaces: set[str] = set()

    @asynccontextmanager
    async def logs(
        self, pods: Resource, namespace: str, name: str, options: LogOptions | None = None, *, idle_s: float = 0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.reads.append((asyncio.get_running_loop().time(), name))
        self.options = options
        self.namespaces.add(namespace)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(self.delay_s.get(name, 0))
            answer = self.answers.get(name, b"")
            if isinstance(answer, Exception):
                raise answer
            yield self._chunks(answer)
        finally:
            self.open -= 1

    async def _chunks(self, answer: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(answer), 1000):
            yield answer[start : start + 1000]

    def names(self) -> list[str]:
        """Return the pods whose logs were read since the last call, sorted."""
        found = sorted(name for _, name in self.reads)
        self.reads.clear()
        return found


class Bench:
    """A reader that runs, and the queue that it feeds."""

    def __init__(self, *, quotes: bool = True) -> None:
        self.clock = VirtualClock()
        self.kubelets = Kubelets()
        self.metrics = FakeMetrics()
        self.queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter())
        pace = TokenBucket(READS_PER_S, 1, clock=self.clock)
        feed = Feed(self.queue)
        self.reader = LogReader(self.kubelets, pace, feed, self.clock, self.metrics, quotes=quotes)
        feed.open([])

    def watch(self, *names: str, key: str = KEY, deadline_s: int = DEADLINE_S, is_paused: bool = False) -> None:
        self.reader.watch(key, LogWatch(tuple(map(target, names)), deadline_s, is_paused))

    async def woken(self) -> list[str]:
        """Return the keys that were queued since the last call."""
        found = []
        while len(self.queue):
            found.append(await self.queue.get())
            self.queue.done(found[-1])
        return found

    def lasted(self, name: str, key: str = KEY) -> float | None:
        found = self.reader.of(key).silences.get(target(name))
        return None if found is None else found.lasted_s


@asynccontextmanager
async def running(*, quotes: bool = True) -> AsyncIterator[Bench]:
    bench = Bench(quotes=quotes)
    async with at_work(bench.reader.run()):
        yield bench


def target(name: str, restarts: int = 0) -> LogTarget:
    """The first run in the pod of this name; `name@2` is another pod."""
    return LogTarget(name.partition("@")[0], f"uid-{name}", restarts)


def line(number: int) -> bytes:
    return b"2026-11-29T00:00:00.%09dZ step\n" % number


async def test_without_a_job_that_asks_for_it_nothing_is_read() -> None:
    async with running() as bench:
        await asyncio.sleep(3600)
        assert bench.kubelets.reads == []
        assert bench.metrics[LAG].read() == 0


async def test_each_log_is_read_four_times_per_deadline_for_one_short_line() -> None:
    async with running() as bench:
        bench.watch("a", "b", deadline_s=600)
        await asyncio.sleep(599)
        assert bench.kubelets.names() == ["a"] * 4 + ["b"] * 4
        assert bench.kubelets.options is not None
        assert bench.kubelets.options.query() == {
            "container": "tensorflow", "timestamps": "true", "tailLines": "1", "limitBytes": "4096",
        }  # fmt: skip
        assert bench.kubelets.namespaces == {"ns"}


async def test_a_job_is_woken_when_all_its_logs_are_silent_and_when_one_is_not() -> None:
    async with running() as bench:
        bench.kubelets.answers = {"a": line(1), "b": line(1)}
        bench.watch("a", "b")
        await asyncio.sleep(20)
        bench.kubelets.answers["b"] = line(2)
        await asyncio.sleep(39)
        assert await bench.woken() == [KEY]  # the first new line
        await asyncio.sleep(30)
        assert await bench.woken() == []
        assert bench.lasted("a") == 75
        assert bench.lasted("b") == pytest.approx(45)
        await asyncio.sleep(15)
        assert await bench.woken() == [KEY]
        bench.kubelets.answers["a"] = line(2)
        await asyncio.sleep(15)
        assert await bench.woken() == [KEY]
        assert bench.lasted("a") == 0


async def test_a_silence_counts_from_our_first_read() -> None:
    async with running() as bench:
        bench.watch("a")
        await asyncio.sleep(59)
        assert await bench.woken() == []
        await asyncio.sleep(2)
        assert await bench.woken() == [KEY]


ERRORS: Final[dict[str, Exception]] = {
    "waits to start": status_error(BadRequestError, 400),
    "forbidden": FORBIDDEN,
    "gone": status_error(NotFoundError, 404),
    "throttled": status_error(TooManyRequestsError, 429),
    "unreachable": status_error(ServerError, 500, "dial tcp 10.0.0.1:10250: i/o timeout"),
    "lost": TransportError("lost"),
}


@pytest.mark.parametrize("error", ERRORS)
async def test_a_failed_read_stops_the_clock(error: str) -> None:
    """The reads after it do not count the time since the last success."""
    async with running() as bench:
        bench.watch("a")
        await asyncio.sleep(31)
        assert bench.lasted("a") == 30
        bench.kubelets.answers["a"] = ERRORS[error]
        await asyncio.sleep(600)
        assert bench.lasted("a") == 30
        del bench.kubelets.answers["a"]
        await asyncio.sleep(15)
        assert bench.lasted("a") == 30
        await asyncio.sleep(15)
        assert bench.lasted("a") == 45


async def test_a_read_without_an_answer_fails_after_a_while() -> None:
    async with running() as bench:
        bench.watch("a")
        await asyncio.sleep(16)
        bench.kubelets.delay_s["a"] = 3600
        await asyncio.sleep(15 + READ_S)
        assert (bench.lasted("a"), bench.kubelets.open) == (15, 0)
        bench.kubelets.delay_s["a"] = 0
        await asyncio.sleep(16)
        assert bench.lasted("a") == 15


async def test_a_bug_is_not_taken_for_a_failed_read() -> None:
    bench = Bench()
    bench.kubelets.answers["a"] = RuntimeError("bug")
    bench.watch("a")
    with pytest.raises(ExceptionGroup) as caught:
        await bench.reader.run()
    assert caught.group_contains(RuntimeError, match="bug")


async def test_without_permission_the_job_is_woken_and_the_addon_named() -> None:
    """One line of the operator's log names the addon too."""
    with capture_logs() as logs:
        await without_permission()
    assert [each["event"] for each in logs] == ["logs_unavailable"]


async def without_permission() -> None:
    """Read a log without permission for a minute, then with it."""
    async with running() as bench:
        bench.kubelets.answers["a"] = FORBIDDEN
        bench.watch("a")
        await asyncio.sleep(1)
        assert await bench.woken() == [KEY]
        failure = bench.reader.of(KEY).failure
        assert "pods is forbidden" in failure
        assert "manifests/addons/logs" in failure
        await asyncio.sleep(59)
        assert await bench.woken() == []
        del bench.kubelets.answers["a"]
        await asyncio.sleep(15)
        assert await bench.woken() == [KEY]
        assert bench.reader.of(KEY).failure == ""


async def test_no_more_than_five_logs_are_read_a_second_and_the_metric_shows_the_lag() -> None:
    """The detection is late then: each silence is as long as the reads show."""
    async with running() as bench:
        names = [f"p{number}" for number in range(200)]
        for name in names:
            bench.watch(name, key=f"ns/{name}")
        await asyncio.sleep(39.99)
        assert len(bench.kubelets.reads) == 200
        assert bench.metrics[LAG].read() == pytest.approx(25, abs=0.2)
        await asyncio.sleep(160)
        times = [at for at, _ in bench.kubelets.reads]
        for at in times:
            assert sum(at <= each < at + 1 for each in times) <= READS_PER_S
        counts = [sum(name == each for _, name in bench.kubelets.reads) for each in names]
        assert (min(counts), max(counts)) == (5, 5)
        assert bench.lasted("p0", "ns/p0") == pytest.approx(160)
        for name in names:
            bench.reader.forget(f"ns/{name}")
        assert bench.metrics[LAG].read() == 0


async def test_unreachable_kubelets_take_a_bounded_number_of_connections() -> None:
    async with running() as bench:
        names = [f"p{number}" for number in range(100)]
        bench.kubelets.delay_s = dict.fromkeys(names, 3600.0)
        bench.watch(*names)
        await asyncio.sleep(100)
        assert bench.kubelets.most_open == MAX_AT_ONCE


async def test_a_pause_stops_the_clock_and_the_reads() -> None:
    async with running() as bench:
        bench.watch("a")
        await asyncio.sleep(31)
        bench.kubelets.names()
        bench.watch("a", is_paused=True)
        await asyncio.sleep(600)
        assert (bench.kubelets.names(), bench.lasted("a")) == ([], 30)
        bench.watch("a")
        await asyncio.sleep(14)
        assert (bench.kubelets.names(), bench.lasted("a")) == (["a"], 30)
        await asyncio.sleep(2)
        assert bench.lasted("a") == 45


async def test_a_pause_during_a_read_discards_its_answer() -> None:
    async with running() as bench:
        bench.kubelets.delay_s["a"] = 2
        bench.watch("a")
        await asyncio.sleep(16)
        bench.watch("a", is_paused=True)
        await asyncio.sleep(600)
        bench.watch("a")
        await asyncio.sleep(5)
        assert bench.lasted("a") == 0


@pytest.mark.parametrize("name", ["a@2", "a again"])
async def test_another_run_of_a_container_begins_anew(name: str) -> None:
    """The new one has progressed from the start: the operator has seen the old one."""
    again = target(name) if name == "a@2" else target("a", restarts=1)
    async with running() as bench:
        bench.watch("a")
        await asyncio.sleep(46)
        bench.reader.watch(KEY, LogWatch((again,), DEADLINE_S, is_paused=False))
        assert bench.reader.of(KEY).silences == {}
        await asyncio.sleep(1)
        found = bench.reader.of(KEY).silences
        assert found.keys() == {again}
        assert (found[again].lasted_s, found[again].changed) == (0, True)


async def test_an_answer_about_an_earlier_run_is_discarded() -> None:
    async with running() as bench:
        bench.kubelets.delay_s["a"] = 5
        bench.watch("a")
        await asyncio.sleep(1)
        bench.watch("a@2")
        await asyncio.sleep(4.5)
        assert bench.reader.of(KEY).silences == {}
        bench.watch("b")
        await asyncio.sleep(1)
        bench.watch("a@2")
        await asyncio.sleep(9)
        assert bench.lasted("a@2") == 0


async def test_two_reads_of_a_log_never_overlap() -> None:
    async with running() as bench:
        bench.kubelets.delay_s["a"] = 5
        for _ in range(10):
            bench.watch("a")
            await asyncio.sleep(0.3)
            bench.reader.forget(KEY)
        bench.watch("a")
        await asyncio.sleep(1)
        assert bench.kubelets.most_open == 1


async def test_a_shorter_deadline_applies_at_once() -> None:
    async with running() as bench:
        bench.watch("a", deadline_s=36_000)
        await asyncio.sleep(10)
        bench.kubelets.names()
        bench.watch("a", deadline_s=60)
        await asyncio.sleep(16)
        assert bench.kubelets.names() == ["a"]


async def test_a_forgotten_job_is_read_no_more() -> None:
    async with running() as bench:
        bench.watch("a")
        bench.watch("b", key=OTHER)
        await asyncio.sleep(1)
        bench.kubelets.names()
        bench.reader.watch(KEY, None)
        await asyncio.sleep(15)
        assert bench.kubelets.names() == ["b"]
        assert bench.reader.of(KEY).silences == {}


async def test_a_long_answer_is_cut() -> None:
    """A server may ignore limitBytes."""
    async with running() as bench:
        bench.kubelets.answers["a"] = line(1).rstrip() + b"x" * 10_000_000
        bench.watch("a")
        await asyncio.sleep(1)
        (silence,) = bench.reader.of(KEY).silences.values()
        assert len(silence.line) <= 200


async def test_a_line_is_not_quoted_if_the_administrator_forbids_it() -> None:
    async with running(quotes=False) as bench:
        bench.kubelets.answers["a"] = line(1)
        bench.watch("a")
        await asyncio.sleep(1)
        (silence,) = bench.reader.of(KEY).silences.values()
        assert silence.line == ""


async def test_several_limits_apply_together() -> None:
    clock = VirtualClock()
    both = Limiters(TokenBucket(2, 1, clock=clock), TokenBucket(5, 1, clock=clock))
    for _ in range(5):
        await both.wait()
    assert clock.monotonic() == pytest.approx(2)


# With the controller.


@asynccontextmanager
async def controlled(**policy: Any) -> AsyncIterator[tuple[ControllerHarness, Kubelets]]:
    """A job whose two workers run, with a reader of logs."""
    kubelets = Kubelets()
    clock = VirtualClock()
    pace = TokenBucket(READS_PER_S, 1, clock=clock)
    world = ControllerHarness(
        job(spec(Worker=2, runPolicy=policy)), logs=lambda feed: LogReader(kubelets, pace, feed, clock)
    )
    reader = reader_of(world)
    for index in range(2):
        world.put_children("Worker", index)
    async with at_work(reader.run()):
        await world.sync_and_observe()
        await world.idle()
        yield world, kubelets


def reader_of(world: ControllerHarness) -> LogReader:
    found = world.controller._logs
    assert found is not None
    return found


async def synced_when_queued(world: ControllerHarness, until: Callable[[], bool], limit_s: int = 300) -> None:
    """Sync the job whenever it is queued, and only then."""
    for _ in range(limit_s):
        await asyncio.sleep(1)
        while len(world.queue):
            key = await world.queue.get()
            await world.controller.sync(key)
            world.queue.done(key)
            if STATUS in world.taken():
                world.observe_status()
        if until():
            return
    raise AssertionError("it did not happen")


async def test_a_job_without_the_field_costs_no_read_and_no_other_request() -> None:
    """The requests are the same as without a reader."""
    async with controlled() as (world, kubelets):
        with_reader = world.taken()
        await asyncio.sleep(600)
        assert kubelets.reads == []
        plain = ControllerHarness(job(spec(Worker=2, runPolicy={})))
        for index in range(2):
            plain.put_children("Worker", index)
        await plain.sync_and_observe()
        assert plain.taken() == with_reader


async def test_a_silent_job_is_stalled_without_any_event_of_the_cluster() -> None:
    async with controlled(progressDeadlineSeconds=60) as (world, kubelets):
        await synced_when_queued(world, lambda: "Stalled" in world.conditions)
        assert asyncio.get_running_loop().time() < 60 + 15 + 2
        assert world.conditions == ["Created", "Stalled", "Running"]
        assert world.recorder.reasons[-1] == "ProgressDeadlineExceeded"
        kubelets.answers["mnist-worker-1"] = line(1)
        await synced_when_queued(world, lambda: world.recorder.reasons[-1] == "TFJobProgressing")
        assert {each["type"]: each["status"] for each in world.status["conditions"]}["Stalled"] == "False"


async def test_a_job_without_permission_is_warned_once() -> None:
    async with controlled(progressDeadlineSeconds=60) as (world, kubelets):
        kubelets.answers = {f"mnist-worker-{index}": FORBIDDEN for index in range(2)}
        await synced_when_queued(world, lambda: "LogsUnavailable" in world.recorder.reasons)
        with pytest.raises(AssertionError, match="did not happen"):
            await synced_when_queued(world, lambda: "Stalled" in world.conditions)
        assert world.recorder.reasons.count("LogsUnavailable") == 1


async def test_a_deleted_job_is_forgotten() -> None:
    async with controlled(progressDeadlineSeconds=60) as (world, kubelets):
        await asyncio.sleep(1)
        kubelets.names()
        world.jobs.remove(world.jobs.indexer.get(KEY))
        await asyncio.sleep(60)
        assert kubelets.names() == []


async def test_a_job_that_another_controller_manages_is_read_no_more() -> None:
    async with controlled(progressDeadlineSeconds=60) as (world, kubelets):
        await asyncio.sleep(1)
        kubelets.names()
        policy = {"progressDeadlineSeconds": 60, "managedBy": "kueue.x-k8s.io/multikueue"}
        await world.sync(job(spec(Worker=2, runPolicy=policy), generation=2, resource_version="9"))
        await asyncio.sleep(60)
        assert kubelets.names() == []


async def test_a_recreated_pod_is_read_instead_of_the_old_one() -> None:
    async with controlled(progressDeadlineSeconds=60) as (world, _):
        await asyncio.sleep(50)
        world.pods.remove(pod("Worker", 1))
        await world.sync_and_observe()
        world.pods.put(pod("Worker", 1, uid="new"))
        await world.sync_and_observe()
        await asyncio.sleep(1)
        (silence,) = (each for target, each in reader_of(world).of(KEY).silences.items() if target.uid == "new")
        assert silence.lasted_s == 0
