"""Rate limiters, the queue that obeys them, and back-off."""

import asyncio
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.virtual_loop import FakeClock
from tfjob_operator.workqueue import (
    Backoff,
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    RateLimitingQueue,
    TokenBucket,
    WithMaxWaitRateLimiter,
    default_controller_rate_limiter,
)


def delays(limiter: RateLimiter[str], item: str, count: int) -> list[float]:
    return [limiter.when(item) for _ in range(count)]


def test_each_failure_of_an_item_doubles_its_delay() -> None:
    """RL-01, default_rate_limiters_test.go:TestItemExponentialFailureRateLimiter: per item, until it is forgotten.

    A worker forgets after every success, the first one too; keys of deleted jobs must not stay for ever.
    """
    limiter = ItemExponentialFailureRateLimiter(0.001, 1.0)
    limiter.forget("one")
    assert delays(limiter, "one", 5) == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016])
    assert limiter.num_requeues("one") == 5
    assert delays(limiter, "two", 2) == pytest.approx([0.001, 0.002])
    limiter.forget("one")
    assert limiter.num_requeues("one") == 0
    assert limiter.when("one") == pytest.approx(0.001)
    assert limiter.num_requeues("two") == 2
    for item in ("one", "two"):
        limiter.forget(item)
    assert not limiter._failures


@pytest.mark.parametrize(
    ("base", "cap"), [(0.001, 1000.0), (0.005, 1000.0), (10.0, 360.0), (0.005, 1e300), (1e300, 1e308)]
)
def test_thousands_of_failures_overflow_nothing(base: float, cap: float) -> None:
    """RL-01, default_rate_limiters_test.go:TestItemExponentialFailureRateLimiterOverFlow: in Python 2.0 ** 1024 raises."""
    limiter = ItemExponentialFailureRateLimiter(base, cap)
    given_out = delays(limiter, "item", 3000)
    assert given_out == sorted(given_out)
    assert given_out[-1] == cap


def test_the_strictest_limiter_wins_and_every_one_is_charged() -> None:
    """RL-03, default_rate_limiters_test.go:TestMaxOfRateLimiter."""
    fast = ItemExponentialFailureRateLimiter(1.0, 100.0)
    capped = ItemExponentialFailureRateLimiter(3.0, 5.0)
    limiter = MaxOfRateLimiter(fast, capped)
    assert delays(limiter, "one", 4) == [3.0, 5.0, 5.0, 8.0]
    assert (fast.num_requeues("one"), capped.num_requeues("one")) == (4, 4)
    fast.when("one")
    assert limiter.num_requeues("one") == 5
    limiter.forget("one")
    assert (fast.num_requeues("one"), capped.num_requeues("one")) == (0, 0)
    none: MaxOfRateLimiter[str] = MaxOfRateLimiter()
    assert (none.when("one"), none.num_requeues("one")) == (0.0, 0)


def test_a_longest_wait_cuts_the_delays_of_another_limiter() -> None:
    """RL-05, default_rate_limiters_test.go:TestWithMaxWaitRateLimiter: it counts and forgets as before."""
    limiter = WithMaxWaitRateLimiter(ItemExponentialFailureRateLimiter(1.0, 1000.0), 5.0)
    assert delays(limiter, "one", 5) == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert limiter.num_requeues("one") == 5
    limiter.forget("one")
    assert limiter.when("one") == 1.0


def test_the_default_holds_back_the_item_that_fails_and_all_of_them_together() -> None:
    """RL-01, RL-02, RL-03: 5 ms doubling per item; 10 a second over all, once 100 are through. A loop need not run."""
    assert default_controller_rate_limiter().num_requeues("bad") == 0
    limiter = default_controller_rate_limiter(clock=FakeClock())
    assert delays(limiter, "bad", 3) == pytest.approx([0.005, 0.010, 0.020])
    assert [limiter.when(f"item-{number}") for number in range(97)] == pytest.approx([0.005] * 97)
    assert limiter.when("the 101st") == pytest.approx(0.1)
    assert limiter.when("the 102nd") == pytest.approx(0.2)
    assert limiter.num_requeues("bad") == 3


def test_a_bucket_limiter_delays_every_item_alike_and_remembers_none() -> None:
    """RL-02, default_rate_limiters_test.go:TestMaxOfRateLimiter: forgetting gives no token back."""
    limiter = BucketRateLimiter(TokenBucket(10, 1, clock=FakeClock()))
    assert [limiter.when("one"), limiter.when("two")] == pytest.approx([0.0, 0.1])
    limiter.forget("one")
    assert limiter.when("one") == pytest.approx(0.2)
    assert limiter.num_requeues("one") == 0


def test_a_bucket_grants_at_once_and_goes_into_debt() -> None:
    """RL-02: a burst without delay, then one more interval of the rate for each."""
    clock = FakeClock()
    bucket = TokenBucket(rate=10, burst=3, clock=clock)
    assert [bucket.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    clock.step(0.2)
    assert bucket.reserve() == pytest.approx(0.1)
    clock.step(3600)
    assert [bucket.reserve() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1]), "it never holds more than a burst"


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0), (math.nan, 1), (math.inf, 1)])
def test_a_bucket_that_could_never_grant_is_refused(rate: float, burst: int) -> None:
    """RL-02: the error comes at the start, not when the first call waits."""
    with pytest.raises(ValueError, match="positive rate"):
        TokenBucket(rate, burst)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ItemExponentialFailureRateLimiter(0.0),
        lambda: ItemExponentialFailureRateLimiter(math.nan),
        lambda: ItemExponentialFailureRateLimiter(1.0, 0.0),
        lambda: WithMaxWaitRateLimiter(ItemExponentialFailureRateLimiter(), 0.0),
        lambda: Backoff(0.0, clock=FakeClock(), random=lambda: 0.0),
        lambda: Backoff(factor=0.5, clock=FakeClock(), random=lambda: 0.0),
        lambda: Backoff(jitter=-2.0, clock=FakeClock(), random=lambda: 0.0),
        lambda: Backoff(cap_s=math.nan, clock=FakeClock(), random=lambda: 0.0),
    ],
)
def test_a_limiter_without_delays_is_refused(call: Callable[[], object]) -> None:
    """RL-01, RL-05, RF-22: what fails would be tried again in a hot loop."""
    with pytest.raises(ValueError, match=r"must be positive|a back-off cannot have"):
        call()


@given(gaps=st.lists(st.floats(0, 2), min_size=1, max_size=200), rate=st.floats(0.1, 100), burst=st.integers(1, 20))
def test_a_bucket_keeps_its_rate_in_every_window(gaps: list[float], rate: float, burst: int) -> None:
    """RL-02: between any two grants there are no more grants than the rate allows, plus one burst."""
    clock = FakeClock()
    bucket = TokenBucket(rate, burst, clock=clock)
    grants = []
    for gap in gaps:
        clock.step(gap)
        grants.append(clock.monotonic() + bucket.reserve())
    assert all(earlier <= later + 1e-6 for earlier, later in pairwise(grants))
    for first in range(len(grants)):
        for last in range(first, len(grants)):
            assert last - first + 1 <= burst + rate * (grants[last] - grants[first]) + 1e-6


async def test_waits_are_served_in_order_at_the_rate() -> None:
    """RL-02: what an API client sees as qps and burst."""
    bucket = TokenBucket(rate=10, burst=2)
    served: list[tuple[int, float]] = []

    async def caller(number: int) -> None:
        await bucket.wait()
        served.append((number, asyncio.get_running_loop().time()))

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(caller(number))
    assert [number for number, _ in served] == [0, 1, 2, 3, 4]
    assert [at for _, at in served] == pytest.approx([0, 0, 0.1, 0.2, 0.3])


def test_a_wait_does_not_suspend_while_there_are_tokens() -> None:
    """RL-02: the usual call of a client costs no turn of the loop."""
    bucket = TokenBucket(rate=10, burst=2, clock=FakeClock())
    for _ in range(2):
        with pytest.raises(StopIteration):
            bucket.wait().send(None)


@pytest.mark.parametrize("doomed", [0, 1, 2])
async def test_a_cancelled_wait_takes_no_token_and_holds_up_nobody(doomed: int) -> None:
    """RL-02: whether it was first in line, or behind; also when all before it give up."""
    bucket = TokenBucket(rate=1, burst=1)
    await bucket.wait()
    callers = [asyncio.create_task(bucket.wait()) for _ in range(4)]
    await asyncio.sleep(0.5)
    for caller in callers[: doomed + 1]:
        caller.cancel()
    for expected, caller in enumerate(callers[doomed + 1 :], 1):
        await caller
        assert asyncio.get_running_loop().time() == pytest.approx(expected)


async def test_a_wait_cancelled_at_the_moment_of_its_token_gives_it_back() -> None:
    """RL-02: the token is there and the time-out is due, in one tick."""
    bucket = TokenBucket(rate=1, burst=1)
    await bucket.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await bucket.wait()
    await bucket.wait()
    assert asyncio.get_running_loop().time() == pytest.approx(1.0)


async def test_a_wait_queues_behind_what_is_reserved() -> None:
    """RL-02: both kinds of caller may share one bucket."""
    bucket = TokenBucket(rate=1, burst=1)
    assert [bucket.reserve(), bucket.reserve()] == pytest.approx([0.0, 1.0])
    await bucket.wait()
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)


async def test_a_rate_limited_add_comes_when_the_limiter_says() -> None:
    """RL-06, rate_limiting_queue_test.go:TestRateLimitingQueue: `done` does not clear the failures."""
    queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter(0.001, 1.0))
    came = []
    for _ in range(4):
        begun = asyncio.get_running_loop().time()
        queue.add_rate_limited("a")
        assert len(queue) == 0
        queue.done(await queue.get())
        came.append(asyncio.get_running_loop().time() - begun)
    assert came == pytest.approx([0.001, 0.002, 0.004, 0.008])
    assert queue.num_requeues("a") == 4


async def test_forget_clears_the_failures_and_not_the_work() -> None:
    """RL-06, TestRateLimitingQueue: `done` must still be called."""
    queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter(0.001, 1.0))
    queue.add("a")
    await queue.get()
    queue.add_rate_limited("a")
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    await asyncio.sleep(1)
    assert len(queue) == 0, "still in work"
    queue.done("a")
    assert len(queue) == 1, "the add that was under way still comes"


def steps(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next() for _ in range(count)]


OWN = Backoff(1.0, 50.0, 10.0, 0.1, clock=FakeClock(), random=lambda: 0.5)
CAPPED = Backoff(60.0, 30.0, clock=FakeClock(), random=lambda: 0.0)


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff(clock=FakeClock(), random=lambda: 0.0), [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]),
        (Backoff(clock=FakeClock(), random=lambda: 1.0), [1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0]),
        (OWN, [1.05, 10.5, 52.5]),
        (CAPPED, [30.0]),
    ],
    ids=["without jitter", "jitter is added after the cap", "its own numbers", "an initial wait above the cap"],
)
def test_the_steps_double_until_the_base_reaches_its_cap(backoff: Backoff, expected: list[float]) -> None:
    """RF-22, wait_test.go:TestBackoff_Step, TestNewReflectorWithCustomBackoff: 0.8 s, x2, 30 s, with up to as much jitter."""
    assert steps(backoff, len(expected)) == pytest.approx(expected)
    backoff.reset()
    assert backoff.next() == pytest.approx(expected[0]), "the owner may know better than the clock"


@pytest.mark.parametrize(("quiet_s", "expected"), [(120.0, 3.2), (120.1, 0.8)])
def test_only_more_than_two_quiet_minutes_start_it_over(quiet_s: float, expected: float) -> None:
    """RF-23, TestExponentialBackoffManagerGetNextBackoff: measured from the latest step."""
    clock = FakeClock()
    backoff = Backoff(clock=clock, random=lambda: 0.0)
    steps(backoff, 2)
    clock.step(quiet_s)
    assert backoff.next() == pytest.approx(expected)


def test_an_outage_of_hours_stays_at_the_cap() -> None:
    """RF-23: the 1.20 rule; newer client-go starts over every two minutes (TestBackoffDelayWithResetExponential)."""
    clock = FakeClock()
    backoff = Backoff(clock=clock, random=lambda: 0.999)
    steps(backoff, 6)
    for _ in range(200):
        delay = backoff.next()
        assert delay > 59.0
        clock.step(delay)


@given(luck=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=2000))
def test_no_luck_and_no_number_of_steps_leaves_the_bounds(luck: list[float]) -> None:
    """RF-22: every step lies in [base, 2 x base], and thousands of them overflow nothing."""
    drawn = iter(luck)
    backoff = Backoff(clock=FakeClock(), random=lambda: next(drawn))
    for step in range(len(luck)):
        base = min(0.8 * 2.0 ** min(step, 10), 30.0)
        assert base <= backoff.next() <= 2 * base
