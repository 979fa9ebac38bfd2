"""An elector: from its first try to its last, every way in which it can end, and what its probe reports."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.api import FakeClient
from fakes.metrics import FakeMetrics
from fakes.transport import FakeResponse, FakeTransport
from kit.virtual_loop import EPOCH, VirtualClock, VirtualTimeLoop
from tfjob_operator.api.client import Request
from tfjob_operator.api.client.errors import ConnectionLostError, DecodeError, RequestTimeoutError
from tfjob_operator.controller.leaderelection import (
    FencedError,
    FencedTransport,
    LeaderElectionConfig,
    LeaderElectionRecord,
    LeaderElector,
    LeaderHealth,
    LeadershipLostError,
    LeaseLock,
    LeaseWatch,
    hostname_uuid,
)
from tfjob_operator.controller.leaderelection.elector import MASTER_STATUS, SLOWPATH
from unit.controller.leaderelection.model import LockServer, ModelLock, for_ever
from unit.controller.leaderelection.test_claim import slow

FOREIGN = LeaderElectionRecord("other", 15, EPOCH, EPOCH, 3)


class Bench:
    """An elector named "me" that keeps a diary of what its callbacks were told, with the time."""

    def __init__(self, *, release: bool = True) -> None:
        self.server = LockServer()
        self.lock = ModelLock(self.server, "me")
        self.diary: list[tuple[float, str]] = []
        self.work: Callable[[], Awaitable[None]] = for_ever
        self.metrics = FakeMetrics()
        self.elector = LeaderElector(
            self.lock,
            on_stopped_leading=lambda: self.note("stopped"),
            on_new_leader=lambda name: self.note(f"leader: {name}"),
            config=LeaderElectionConfig(release=release),
            name="election",
            metrics=self.metrics,
            clock=VirtualClock(),
            random=lambda: 0.5,
        )

    def note(self, what: str) -> None:
        self.diary.append((round(asyncio.get_running_loop().time(), 6), what))

    async def run(self) -> None:
        await self.elector.run(self._work)

    async def _work(self) -> None:
        self.note("working")
        try:
            await self.work()
        except asyncio.CancelledError:
            self.note("cancelled")
            raise

    async def run_for(self, seconds: float) -> asyncio.Task[None]:
        task = asyncio.create_task(self.run(), name="elector")
        await asyncio.sleep(seconds)
        return task

    @property
    def events(self) -> list[str]:
        return [what for _, what in self.diary]

    def when(self, what: str) -> float:
        return next(time for time, entry in self.diary if entry == what)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def failing(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        raise error

    return step


async def test_work_that_ends_gives_the_lease_back_and_ends_the_election(bench: Bench) -> None:
    """LE-10, LE-11: acquire, work, release, stopped; the work may take as long as it likes, and the elector can run again.

    The fence is shut before the lease is given back: from the moment of that request another may lead.
    """
    open_for: list[float] = []

    async def note_fence() -> None:
        if bench.lock.calls[-1] != "update":
            open_for.append(bench.elector.fence.remaining())

    bench.work = slow(100.0)
    bench.lock.before = note_fence
    await bench.run()
    assert open_for == [0.0] * 3, "before the two requests of the acquisition, and before the first of the release"
    assert bench.diary == [(0.0, "leader: me"), (0.0, "working"), (100.0, "stopped")]
    assert bench.server.record is not None
    assert bench.server.record.holder_identity == ""
    assert bench.server.record.leader_transitions == 0
    await bench.run()
    assert bench.events.count("stopped") == 2, "each run tells of its own end"
    assert bench.server.holders == ["me", "", "me", ""]


class Shown(LeaseWatch):
    """A watch that shows what a test says."""

    def __init__(self, server: LockServer) -> None:
        self._server = server
        self.see: Callable[[LeaderElectionRecord | None], None] = lambda _: None

    async def run(self, seen: Callable[[LeaderElectionRecord | None], None]) -> None:
        self.see = seen
        await for_ever()

    def put(self, record: LeaderElectionRecord) -> None:
        self._server.put(record)
        self.see(record)


def renewed(second: float, holder: str = "other") -> LeaderElectionRecord:
    return replace(FOREIGN, holder_identity=holder, renew_time=EPOCH + timedelta(seconds=second))


async def test_a_candidate_takes_over_when_the_lease_that_it_has_watched_runs_out(bench: Bench) -> None:
    """D24: it is counted from the renewal, which the next attempt would have seen later, and taken at its end."""
    bench.elector._watch = watch = Shown(bench.server)
    bench.server.put(FOREIGN)
    running = await bench.run_for(5.0)
    watch.put(renewed(5))
    await asyncio.sleep(14.9)
    assert bench.diary == [(0.0, "leader: other")]
    await asyncio.sleep(0.2)
    assert bench.diary == [(0.0, "leader: other"), (20.0, "leader: me"), (20.0, "working")]
    await stop(running)


async def test_a_watch_that_lags_or_shows_what_is_ours_changes_nothing(bench: Bench) -> None:
    """What was seen before, or is older, does not make the lease last longer; our own record is for attempts alone to find."""
    bench.elector._watch = watch = Shown(bench.server)
    bench.server.put(renewed(1))
    running = await bench.run_for(10.0)
    for late in (FOREIGN, renewed(1), renewed(9, "me")):
        watch.see(late)
    await asyncio.sleep(5.1)
    assert bench.diary == [(0.0, "leader: other"), (15.0, "leader: me"), (15.0, "working")]
    await stop(running)


async def test_a_release_of_which_another_one_heard_first_costs_one_attempt(bench: Bench) -> None:
    """LE-03: after that the candidate waits as before, and does not poll without a pause."""
    bench.elector._watch = watch = Shown(bench.server)
    bench.server.put(FOREIGN)
    times: list[float] = []

    async def note_time() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) > 9:
            await for_ever()

    bench.lock.before = note_time
    running = await bench.run_for(5.0)
    watch.see(None)
    await asyncio.sleep(5.0)
    assert times == pytest.approx([0.0, 3.2, 5.0, 8.2])
    await stop(running)


async def test_a_lease_that_was_renewed_unseen_is_not_taken(bench: Bench) -> None:
    """LE-04: the watch is a hint. What counts is the record that is read at the end."""
    bench.elector._watch = Shown(bench.server)
    bench.elector._random = lambda: 0.999
    bench.server.put(FOREIGN)
    running = await bench.run_for(14.0)
    bench.server.put(renewed(14))
    await asyncio.sleep(15.0)
    assert bench.diary == [(0.0, "leader: other")]
    await asyncio.sleep(2.0)
    assert bench.server.holders == ["other", "me"]
    await stop(running)


@pytest.mark.parametrize(("fraction", "pause"), [(0.0, 2.0), (0.5, 3.2), (0.999, 4.3976)])
async def test_a_candidate_waits_between_one_and_2_2_retry_periods(bench: Bench, fraction: float, pause: float) -> None:
    """LE-03, TestTryAcquireOrRenewLeases: U[1, 2.2) of the period, which spreads the candidates."""
    bench.elector._random = lambda: fraction
    bench.server.put(FOREIGN)
    times: list[float] = []

    async def note_time() -> None:
        times.append(asyncio.get_running_loop().time())

    bench.lock.before = note_time
    running = await bench.run_for(2.5 * pause)
    assert times == pytest.approx([0.0, pause, 2 * pause])
    await stop(running)
    assert bench.events == ["leader: other", "stopped"]


async def test_a_leader_renews_every_retry_period(bench: Bench) -> None:
    """LE-07, A7: two seconds, one write each; leader_election_master_status and leader_election_slowpath_total show it."""
    status, slowpath = bench.metrics[MASTER_STATUS], bench.metrics[SLOWPATH]
    assert (status.read(), slowpath.count) == (0.0, 0)
    running = await bench.run_for(9.0)
    assert status.read() == 1.0
    assert bench.lock.calls == ["get", "create", "update", "update", "update", "update"]
    assert [time for time, verb, _ in bench.server.history if verb == "update"] == [2.0, 4.0, 6.0, 8.0]
    await stop(running)
    assert status.read() == 0.0


async def test_a_leader_gives_up_with_its_fence_where_the_renew_deadline_would_outlive_it() -> None:
    """LE-07: with 15/14/10 client-go believes in its lease for up to 24 s."""
    bench = Bench()
    bench.elector._config = bench.elector._claim._config = LeaderElectionConfig(15, 14, 10)
    running = await bench.run_for(1.0)
    bench.lock.before = for_ever
    with pytest.raises(LeadershipLostError):
        await running
    # 10 s of sleep, then a single call's limit of 7 s; the fence has shut at 14.5 s.
    assert bench.when("stopped") == 17.0


async def test_a_hiccup_costs_nothing(bench: Bench) -> None:
    """LE-06, LE-07: eight seconds without an API server, and nobody has noticed."""
    running = await bench.run_for(3.0)
    bench.lock.before = failing(ConnectionLostError("reset"))
    await asyncio.sleep(8.5)
    bench.lock.before = slow(0.0)
    await asyncio.sleep(30.0)
    assert bench.events.count("working") == 1
    assert not running.done()
    await stop(running)


@pytest.mark.parametrize(
    ("network", "ends_at"),
    [
        (failing(ConnectionLostError("reset")), 14.0),
        (failing(RequestTimeoutError("late")), 14.0),
        (failing(DecodeError("garbage")), 14.0),
        (failing(RuntimeError("a bug")), 4.0),
        (for_ever, 14.0),
    ],
    ids=["network", "timeout", "malformed", "bug", "hanging"],
)
async def test_stopped_is_told_whatever_ends_the_lead(
    bench: Bench, network: Callable[[], Awaitable[None]], ends_at: float
) -> None:
    """LE-07, LE-10: the official client's elector raises a network error while the work goes on.

    Last renewed at 2 s, tried from 4 s on, given up at 14 s, three seconds before anybody can take over.
    """
    running = await bench.run_for(3.0)
    bench.lock.before = network
    with pytest.raises(LeadershipLostError):
        await running
    assert bench.events[-2:] == ["stopped", "cancelled"]
    assert bench.events.count("stopped") == 1
    assert bench.when("stopped") == ends_at
    if ends_at == 14.0 and network is not for_ever:
        assert bench.lock.calls[3:] == ["update", "get"] * 5, "one every two seconds"
    assert bench.elector.fence.remaining() == 0.0


@pytest.mark.parametrize("network", [failing(ConnectionLostError("reset")), for_ever, slow(0.1)])
async def test_stopped_is_reported_by_one_that_never_led(bench: Bench, network: Callable[[], Awaitable[None]]) -> None:
    """LE-10, TestReleaseOnCancellation_Leases: cancelled while it tried, slept, or hung, or ended by a bug, which it raises."""
    bench.server.put(FOREIGN)
    bench.lock.before = network
    running = await bench.run_for(7.0)
    await stop(running)
    assert running.cancelled()
    assert bench.events.count("stopped") == 1
    assert "working" not in bench.events
    bench.lock.before = failing(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        await bench.run()
    assert bench.events.count("stopped") == 2


async def test_cancelling_ends_the_work_first_and_then_gives_the_lease_back(bench: Bench) -> None:
    """LE-11, TestReleaseOnCancellation_Leases: the work takes three seconds to end, and may write until then."""

    async def reluctant() -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(3.0)
            bench.elector.fence.check()
            bench.note("ended")

    bench.work = reluctant
    running = await bench.run_for(5.0)
    running.cancel()
    await asyncio.sleep(1.0)
    running.cancel()  # a second one changes nothing
    await asyncio.wait([running])
    assert running.cancelled()
    assert [entry for entry in bench.diary if not entry[1].startswith("leader")] == [
        (0.0, "working"),
        (8.0, "ended"),
        (8.0, "cancelled"),
        (8.0, "stopped"),
    ]
    assert bench.server.holders == ["me", ""]
    with pytest.raises(FencedError):
        bench.elector.fence.check()


async def test_the_lease_is_kept_when_a_write_was_cut_off(bench: Bench) -> None:
    """LE-11: it may take effect after the release, and so under another leader."""

    async def write() -> None:
        silent = FakeTransport(FakeResponse(after_s=3600.0))
        await FencedTransport(silent, bench.elector.fence).send(Request("POST", "/"))

    bench.work = write
    running = await bench.run_for(1.0)
    await stop(running)
    assert running.cancelled()
    assert bench.server.holders == ["me"]
    assert bench.events[-1] == "stopped"


async def test_being_cancelled_while_it_ends_is_not_forgotten(bench: Bench) -> None:
    """LE-10: whoever awaits `run` under a timeout must see it; the lease is given back all the same."""

    async def slow_to_let_go() -> None:
        if bench.lock.calls[-1] == "update":
            bench.lock.before = slow(0.0)
            try:
                await for_ever()
            finally:
                await asyncio.sleep(1.0)

    bench.work = slow(2.5)
    bench.lock.before = slow_to_let_go
    running = await bench.run_for(3.0)  # the work has ended, the renewal that was under way has not
    assert not running.done()
    await stop(running)
    assert running.cancelled()
    assert bench.server.holders == ["me", ""]


@pytest.mark.parametrize("release", [True, False])
async def test_work_that_fails_gives_the_lease_back_and_its_error_flies_out(release: bool) -> None:
    """LE-10, LE-11: as it is, not in an ExceptionGroup. The lease may be left to run out, for work in child processes."""
    bench = Bench(release=release)
    bench.work = failing(ZeroDivisionError("kettle"))
    with pytest.raises(ZeroDivisionError, match="kettle"):
        await bench.run()
    assert bench.events[-1] == "stopped"
    assert bench.server.holders == (["me", ""] if release else ["me"])
    assert bench.elector.fence.remaining() == 0.0


async def test_an_error_of_work_that_is_cancelled_is_not_swallowed(bench: Bench) -> None:
    """LE-10: neither when we are cancelled nor when the lease is lost."""

    async def clumsy() -> None:
        try:
            await for_ever()
        finally:
            raise ZeroDivisionError("kettle")

    bench.work = clumsy
    running = await bench.run_for(1.0)
    await stop(running)
    assert isinstance(running.exception(), ZeroDivisionError)

    running = await bench.run_for(1.0)
    bench.server.put(FOREIGN)
    await asyncio.wait([running])
    lost = running.exception()
    assert isinstance(lost, LeadershipLostError)
    assert isinstance(lost.__cause__, ZeroDivisionError)


async def test_stopped_does_not_wait_for_work_that_will_not_end(bench: Bench) -> None:
    """LE-10, LE-11, LE-14: so that the callback can end the process; until then the fence keeps such work from writing.

    It hears of the loss at the first renewal, and does not give back what another process holds by now.
    """
    released = asyncio.Event()

    async def stubborn() -> None:
        try:
            await for_ever()
        finally:
            await released.wait()

    bench.work = stubborn
    running = await bench.run_for(1.0)
    bench.server.put(FOREIGN)
    await asyncio.sleep(30.0)
    assert bench.when("stopped") == 2.0
    assert bench.server.record == FOREIGN
    assert not running.done(), "run does not leave work behind"
    assert not bench.elector.is_leader
    with pytest.raises(FencedError):
        bench.elector.fence.check()
    released.set()
    with pytest.raises(LeadershipLostError):
        await running
    assert bench.events.count("stopped") == 1


async def test_a_frozen_leader_is_fenced_before_it_knows_anything(bench: Bench) -> None:
    """LE-04, LE-07: the loop stood still for 20 s; work that wakes before the elector cannot write."""
    refused: list[bool] = []

    async def freezes() -> None:
        await asyncio.sleep(3.0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop._jumping.time += 20.0  # no timer fires meanwhile
        bench.server.put(FOREIGN)
        try:
            bench.elector.fence.check()
        except FencedError:
            refused.append(True)
        await for_ever()

    bench.work = freezes
    with pytest.raises(LeadershipLostError):
        await bench.run()
    assert refused == [True]
    assert bench.when("stopped") == 23.0


async def test_the_new_leader_is_told_of_on_every_change(bench: Bench) -> None:
    """LE-12, TestTryAcquireOrRenewLeases: of others, of none, and of ourselves; once each."""
    bench.server.put(FOREIGN)
    running = await bench.run_for(10.0)
    bench.server.put(LeaderElectionRecord("third", 15, EPOCH, EPOCH, 4))
    await asyncio.sleep(60.0)
    await stop(running)
    await asyncio.sleep(0)
    leaders = [what for what in bench.events if what.startswith("leader")]
    assert leaders == ["leader: other", "leader: third", "leader: me", "leader: "]
    assert bench.elector.leader == ""


async def test_a_callback_that_fails_disturbs_nobody(bench: Bench) -> None:
    """LE-12: client-go calls it in a goroutine of its own; here it is a callback of the loop."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context["exception"]))

    def clumsy(name: str) -> None:
        raise ZeroDivisionError(name)

    bench.elector._on_new_leader = clumsy
    bench.work = slow(10.0)
    await bench.run()
    await asyncio.sleep(0)
    assert [type(complaint) for complaint in complaints] == [ZeroDivisionError] * 2
    assert len(bench.lock.calls) >= 6


async def test_a_leader_that_renews_and_a_candidate_are_healthy() -> None:
    """LE-13, healthzadaptor_test.go:TestLeaderElectionHealthChecker: however long they live, and before they do."""
    server, health = LockServer(), (LeaderHealth(0.0), LeaderHealth(0.0))
    assert [one.check() for one in health] == [None, None]
    electors = [LeaderElector(ModelLock(server, name), clock=VirtualClock()) for name in ("a", "b")]
    running = []
    for one, elector in zip(health, electors, strict=True):
        one.watch(elector)
        running.append(asyncio.create_task(elector.run(for_ever)))
        await asyncio.sleep(1.0)
    for _ in range(100):
        await asyncio.sleep(7.0)
        assert [one.check() for one in health] == [None, None]
    assert [elector.is_leader for elector in electors] == [True, False]
    for task in reversed(running):
        task.cancel()
        await asyncio.wait([task])


async def test_work_that_will_not_end_makes_the_process_unhealthy_after_lease_and_tolerance() -> None:
    """LE-13, healthzadaptor_test.go:TestLeaderElectionHealthChecker: it lost the lease and should have died.

    TestCheckMethodRace has no counterpart here: one loop, no races.
    """
    lock, health = ModelLock(LockServer(), "a"), LeaderHealth(20.0)
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    elector = LeaderElector(lock, clock=VirtualClock())
    health.watch(elector)
    running = asyncio.create_task(elector.run(stubborn))
    await asyncio.sleep(3.0)  # the last renewal was at 2.0 s
    lock.before = for_ever
    await asyncio.sleep(33.9)
    assert health.check() is None, "2 + 15 + 20 s are not over"
    await asyncio.sleep(0.2)
    assert health.check() == "still active 20s after the end of its lease"
    released.set()
    await asyncio.wait([running])
    assert health.check() is None
    assert running.exception() is not None


def test_nobody_stands_for_election_without_a_name() -> None:
    """LE-02, leaderelection_test.go:TestLeaderElectionConfigValidation "invalid": lock identity."""
    with pytest.raises(ValueError, match="identity"):
        LeaderElector(ModelLock(LockServer(), ""))
    with pytest.raises(ValueError, match="identity"):
        LeaseLock(FakeClient(), "ns", "name", identity="")


def test_an_identity_is_of_this_host_and_of_no_other_process() -> None:
    """LE-14: controller-runtime's hostname_uuid."""
    first, second = hostname_uuid(), hostname_uuid()
    assert first != second
    assert first.startswith(f"{socket.gethostname()}_")
    assert len(first) == len(socket.gethostname()) + 37


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({"lease_duration_s": 601.0, "renew_deadline_s": 500.0}, "at most 600 s, after which others take over"),
        ({"retry_period_s": float("nan")}, "retry period must be greater than zero"),
        ({"renew_deadline_s": float("nan")}, "greater than 1.2 retry periods"),
        ({"lease_duration_s": float("nan")}, "greater than the renew deadline"),
    ],
)
def test_times_with_which_two_processes_could_lead_are_refused(times: dict[str, float], problem: str) -> None:
    """LE-02: nobody waits for a lease longer than ten minutes, so a longer one would have two holders after a partition."""
    with pytest.raises(ValueError, match=problem):
        LeaderElectionConfig(**times)  # type: ignore[arg-type]


async def test_a_second_run_beside_the_first_is_refused() -> None:
    """Both would renew the same lease, and the end of one would not end the work of the other."""
    elector = LeaderElector(ModelLock(LockServer(), "me"), clock=VirtualClock())
    running = asyncio.create_task(elector.run(for_ever))
    await asyncio.sleep(1.0)
    with pytest.raises(RuntimeError, match="already running"):
        await elector.run(for_ever)
    assert elector.is_leader
    running.cancel()
    await asyncio.wait([running])


async def test_processes_with_the_same_identity_both_hold_the_lease() -> None:
    """Nothing can tell them apart, as the docstring of `LeaseLock` warns."""
    server = LockServer()
    electors = [LeaderElector(ModelLock(server, "operator"), clock=VirtualClock()) for _ in range(2)]
    running = [asyncio.create_task(elector.run(for_ever)) for elector in electors]
    await asyncio.sleep(30.0)
    assert [elector.is_leader for elector in electors] == [True, True]
    for task in running:
        task.cancel()
    await asyncio.wait(running)
