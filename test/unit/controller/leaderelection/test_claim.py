"""Single tries to win, keep and give back a lock: settings, the table of client-go, and what may go wrong on the way."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.metrics import FakeMetrics, Series
from kit.virtual_loop import EPOCH, VirtualClock
from tfjob_operator.api.client.errors import ApiError, ConflictError, ConnectionLostError, DecodeError, ServerError
from tfjob_operator.controller.leaderelection import Fence, LeaderElectionConfig, LeaderElectionRecord
from tfjob_operator.controller.leaderelection.config import LONGEST_LEASE_S
from tfjob_operator.controller.leaderelection.elector import (
    MAX_TRANSITIONS,
    SLOWPATH,
    AttemptResult,
    LeaseClaim,
)
from unit.controller.leaderelection.model import LockServer, ModelLock, for_ever

FOREIGN = LeaderElectionRecord("other", 15, EPOCH, EPOCH, 3)
FREE = LeaderElectionRecord("", 1, EPOCH, EPOCH, 3)


@dataclass
class Bench:
    server: LockServer
    lock: ModelLock
    fence: Fence
    claim: LeaseClaim
    slowpath: Series

    async def attempt(self, *, leading: bool = False) -> AttemptResult:
        return await self.claim.attempt(leading=leading)

    def fail(self, *errors: ApiError | None, answer: bool = False) -> None:
        """Let the next calls fail one by one, before the server sees them or (`answer`) after it has acted."""
        left = list(errors)

        async def step() -> None:
            error = left.pop(0) if left else None
            if error is not None:
                raise error

        if answer:
            self.lock.after = step
        else:
            self.lock.before = step

    @property
    def calls(self) -> list[str]:
        calls, self.lock.calls = self.lock.calls, []
        return calls


def slow(seconds: float) -> Callable[[], Awaitable[None]]:
    return lambda: asyncio.sleep(seconds)


@pytest.fixture
def bench() -> Bench:
    clock, server, provider = VirtualClock(), LockServer(), FakeMetrics()
    lock, fence = ModelLock(server, "me"), Fence(clock)
    claim = LeaseClaim(
        lock, LeaderElectionConfig(), fence=fence, slowpath=provider.counter(SLOWPATH, "election"), clock=clock
    )
    return Bench(server, lock, fence, claim, provider[SLOWPATH])


async def test_where_there_is_no_record_it_is_created(bench: Bench) -> None:
    """LE-03, leaderelection_test.go:TestTryAcquireOrRenewLeases "acquire from no object"."""
    assert await bench.attempt() is AttemptResult.OURS
    assert bench.server.record == LeaderElectionRecord("me", 15, EPOCH, EPOCH, 0)
    assert bench.calls == ["get", "create"]
    assert bench.fence.remaining() == 12.5


@pytest.mark.parametrize(("call", "record"), [("create", None), ("update", FREE)])
async def test_only_one_of_two_who_write_at_once_wins(
    bench: Bench, call: str, record: LeaderElectionRecord | None
) -> None:
    """LE-09: another creates the record, or takes the free one, between our read and our write."""
    bench.server.put(record)

    async def other_is_faster() -> None:
        if bench.lock.calls[-1] == call:
            bench.server.put(FOREIGN)

    bench.lock.before = other_is_faster
    assert await bench.attempt() is AttemptResult.FAILED
    assert bench.server.record == FOREIGN
    assert bench.fence.remaining() == 0.0


@pytest.mark.parametrize(("says", "lasts"), [(15, 15), (40, 40), (0, 15), (2**31 - 1, LONGEST_LEASE_S)])
async def test_a_foreign_record_is_waited_for_from_its_first_sight_for_as_long_as_it_says(
    bench: Bench, says: int, lasts: float
) -> None:
    """LE-04, LE-05, TestTryAcquireOrRenewLeases "acquire from led, unacked object", "... with the lease duration seconds".

    client-go takes a record without duration for expired at once, though its writer may be alive; and whoever may write
    the Lease could stop the work for 68 years, though a live holder renews in time.
    """
    await asyncio.sleep(1000.0)  # its renewTime is long past, and must not matter
    bench.server.put(replace(FOREIGN, lease_duration_s=says))
    assert await bench.attempt() is AttemptResult.THEIRS
    await asyncio.sleep(lasts - 0.1)
    assert await bench.attempt() is AttemptResult.THEIRS
    await asyncio.sleep(0.1)
    assert await bench.attempt() is AttemptResult.OURS
    assert bench.server.record is not None
    assert bench.server.record.leader_transitions == 4


async def test_a_foreign_record_that_changes_is_waited_for_anew(bench: Bench) -> None:
    """LE-04, TestTryAcquireOrRenewLeases "don't acquire from led, acked object": its holder lives."""
    bench.server.put(FOREIGN)
    for second in range(10):
        assert await bench.attempt() is AttemptResult.THEIRS
        bench.server.put(replace(FOREIGN, renew_time=EPOCH.replace(second=second)))
        await asyncio.sleep(14.0)


async def test_the_wait_counts_from_after_the_response(bench: Bench) -> None:
    """LE-04: the record may have been renewed while our read was under way."""
    bench.server.put(FOREIGN)
    bench.lock.after = slow(4.0)
    assert await bench.attempt() is AttemptResult.THEIRS
    await asyncio.sleep(10.9)
    assert (
        await bench.attempt() is AttemptResult.THEIRS
    )  # 14.9 s after the response to the first; the response to this is at 18.9
    assert bench.claim.expires_at == 19.0


@pytest.mark.parametrize(("before", "after"), [(3, 4), (MAX_TRANSITIONS, MAX_TRANSITIONS)])
async def test_a_record_without_holder_is_free_at_once_and_a_renewal_keeps_what_it_says(
    bench: Bench, before: int, after: int
) -> None:
    """LE-04, LE-08, TestTryAcquireOrRenewLeases "acquire from unled object", "... without annotations", "renew already ...".

    leaseTransitions is an int32: one more than the most is refused with 422, at each try and for ever.
    """
    bench.server.put(replace(FREE, leader_transitions=before))
    assert await bench.attempt() is AttemptResult.OURS
    assert bench.server.record == LeaderElectionRecord("me", 15, EPOCH, EPOCH, after)
    await asyncio.sleep(2.0)
    await bench.attempt(leading=True)
    assert bench.server.record == LeaderElectionRecord("me", 15, EPOCH, EPOCH.replace(second=2), after)


@pytest.mark.parametrize("acted", [False, True])
async def test_a_leader_renews_with_a_single_write_and_one_that_fails_reads_and_writes_again(
    bench: Bench, acted: bool
) -> None:
    """LE-06, LE-09, TestFastPathLeaderElection: "falls back to slow path", counted; also when only the response was lost."""
    await bench.attempt()
    assert bench.calls == ["get", "create"]
    for _ in range(3):
        assert await bench.attempt(leading=True) is AttemptResult.OURS
    assert (bench.calls, bench.slowpath.count) == (["update"] * 3, 0)
    bench.fail(ConnectionLostError("reset"), answer=acted)
    assert await bench.attempt(leading=True) is AttemptResult.OURS
    assert (bench.calls, bench.slowpath.count) == (["update", "get", "update"], 1)
    assert bench.server.holders == ["me"]


async def test_a_create_whose_response_was_lost_is_recognised_as_ours(bench: Bench) -> None:
    """LE-07: without waiting for our own lease to run out; the read gets its response, the create does not."""
    bench.fail(None, ConnectionLostError("reset"), answer=True)
    assert await bench.attempt() is AttemptResult.FAILED
    assert await bench.attempt() is AttemptResult.OURS
    assert bench.server.record is not None
    assert bench.server.record.leader_transitions == 0


async def test_the_lease_counts_from_before_the_request(bench: Bench) -> None:
    """LE-04: the server acts at some moment after that, and only from then on do others count."""
    bench.lock.before = bench.lock.after = slow(1.0)
    assert await bench.attempt() is AttemptResult.OURS  # read until 2.0, write from 2.0 to 4.0
    assert bench.claim.expires_at == 17.0
    assert bench.fence.remaining() == 17.0 - 2.5 - 4.0


async def test_a_response_that_comes_after_the_lease_it_confirms_makes_no_leader(bench: Bench) -> None:
    """LE-04: the process was frozen between request and response. A timeout does not notice that; the clock does."""
    await bench.attempt()
    clock = bench.claim._clock

    async def frozen() -> None:
        asyncio.get_running_loop()._jumping.time += 13.0  # type: ignore[attr-defined]  # no timer fires meanwhile

    bench.lock.after = frozen
    before = clock.monotonic()
    assert await bench.attempt(leading=True) is AttemptResult.FAILED
    assert clock.monotonic() == before + 13.0


async def test_a_call_that_hangs_does_not_take_all_the_time_there_is(bench: Bench) -> None:
    """LE-14: five seconds for one call, so that two fit into the renew deadline."""
    await bench.attempt()
    hanging = iter([for_ever])

    async def step() -> None:
        await next(hanging, slow(0.0))()

    bench.lock.before = step
    assert await bench.attempt(leading=True) is AttemptResult.OURS
    assert asyncio.get_running_loop().time() == 5.0


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (DecodeError("garbage"), "warning"),
        (ConnectionLostError("reset"), "warning"),
        (status_error(ServerError, 500), "warning"),
        (status_error(ConflictError, 409), "debug"),
    ],
)
async def test_errors_of_all_kinds_are_a_failed_try_and_nothing_worse(
    bench: Bench, error: ApiError, level: str
) -> None:
    """LE-07, LE-09: a malformed lease too, which a leader outlives if somebody repairs it in time. A lost race is none."""
    bench.fail(error)
    with capture_logs() as lines:
        assert await bench.attempt() is AttemptResult.FAILED
    assert [line["log_level"] for line in lines] == [level]
    assert await bench.attempt() is AttemptResult.OURS
    bench.fail(error, error)
    assert await bench.attempt(leading=True) is AttemptResult.FAILED
    assert await bench.attempt(leading=True) is AttemptResult.OURS


async def test_a_leader_that_finds_another_in_its_place_knows_at_once(bench: Bench) -> None:
    """LE-07: client-go goes on trying until its renew deadline."""
    await bench.attempt()
    bench.server.put(FOREIGN)
    assert await bench.attempt(leading=True) is AttemptResult.THEIRS


@pytest.mark.parametrize("record", [FREE, None], ids=["free", "deleted"])
async def test_a_leader_takes_a_lock_that_somebody_freed_unless_it_has_been_away(
    bench: Bench, record: LeaderElectionRecord | None
) -> None:
    """LE-07: past its fence's end another may have led and left, so what the work knows may be old."""
    await bench.attempt()
    bench.server.put(record)
    assert await bench.attempt(leading=True) is AttemptResult.OURS
    bench.server.put(record)
    await asyncio.sleep(12.5)
    assert await bench.attempt(leading=True) is AttemptResult.THEIRS


async def test_a_leader_that_was_away_goes_on_if_nobody_has_noticed(bench: Bench) -> None:
    """LE-07: a machine that slept for a minute and has no stand-by loses nothing."""
    await bench.attempt()
    await asyncio.sleep(60.0)
    assert bench.fence.remaining() == 0.0
    _ = bench.calls
    assert await bench.attempt(leading=True) is AttemptResult.OURS
    assert bench.calls == ["get", "update"], "a lease that is over is not renewed from memory (LE-06)"
    assert bench.fence.remaining() == 12.5


async def test_giving_back_frees_the_lock_and_keeps_the_transitions(bench: Bench) -> None:
    """LE-11, leaderelection_test.go:TestReleaseLeaseLeases, TestReleaseMethodCallsGet."""
    bench.server.put(FREE)
    await bench.attempt()
    await asyncio.sleep(3.0)
    _ = bench.calls
    await bench.claim.release()
    now = EPOCH.replace(second=3)
    assert bench.server.record == LeaderElectionRecord("", 1, now, now, 4)
    assert bench.calls == ["get", "update"]
    assert bench.claim.leader == ""


@pytest.mark.parametrize("record", [FOREIGN, None], ids=["taken", "deleted"])
async def test_what_is_not_ours_is_not_given_back(bench: Bench, record: LeaderElectionRecord | None) -> None:
    """LE-11: a release of another's lease would make a third leader."""
    await bench.attempt()
    bench.server.put(record)
    await bench.claim.release()
    assert bench.server.record == record


async def test_giving_back_is_tried_again_after_a_conflict(bench: Bench) -> None:
    """LE-11, leaderelection_test.go:TestReleaseRetriesOnConflict."""
    await bench.attempt()
    bench.fail(None, status_error(ConflictError, 409), None, ConnectionLostError("reset"))
    await bench.claim.release()
    assert bench.server.record is not None
    assert bench.server.record.holder_identity == ""


@pytest.mark.parametrize(("network", "ends"), [(for_ever, 10.0), (slow(0.0), 0.05)])
async def test_giving_back_is_given_up_in_time(
    bench: Bench, network: Callable[[], Awaitable[None]], ends: float
) -> None:
    """LE-11: within the renew deadline; the lease runs out by itself."""
    await bench.attempt()

    async def step() -> None:
        await network()
        raise ConnectionLostError("reset")

    bench.lock.before = step
    await bench.claim.release()
    assert asyncio.get_running_loop().time() == pytest.approx(ends)
    assert bench.server.holders == ["me"]


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "complaint"),
    [
        (15, 15, 2, "lease duration"),
        (15, 16, 2, "lease duration"),
        (15, 10, 10, "renew deadline"),
        (15, 2.4, 2, "renew deadline"),
        (15, 10, 0, "retry period"),
        (15, 10, -1, "retry period"),
        (0, 0, 0, "retry period"),
        (15.5, 10, 2, "whole number of seconds"),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_refused(
    lease: float, renew: float, retry: float, complaint: str
) -> None:
    """LE-02, leaderelection_test.go:TestLeaderElectionConfigValidation."""
    with pytest.raises(ValueError, match=complaint):
        LeaderElectionConfig(lease_duration_s=lease, renew_deadline_s=renew, retry_period_s=retry)


def test_the_defaults_are_those_of_kubernetes_and_the_tightest_numbers_that_fit_are_accepted() -> None:
    """LE-02: 15, 10 and 2 seconds; LE-14: a call may take half of the renew deadline, and no less than a second."""
    config = LeaderElectionConfig()
    assert (config.lease_duration_s, config.renew_deadline_s, config.retry_period_s) == (15.0, 10.0, 2.0)
    assert (config.call_timeout_s, config.fence_margin_s) == (5.0, 2.5)
    config = LeaderElectionConfig(lease_duration_s=1, renew_deadline_s=0.5, retry_period_s=0.4)
    assert config.call_timeout_s == 1.0
