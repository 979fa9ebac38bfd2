"""The loop of a controller: what becomes of a key whose sync ends well, fails, is stale or crashes."""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from fakes.metrics import FakeMetrics
from fakes.objects import Pod
from fakes.source import FakeSource, expired, pod, settle, settled
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client import errors
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Meta, ObjectMeta, Struct
from tfjob_operator.controller.manager import (
    Controller,
    Predicate,
    RequeueError,
    Result,
    TerminalError,
    all_of,
    any_of,
    generation_changed,
    has_labels,
    labels_changed,
    none_of,
)
from tfjob_operator.controller.manager.controller import (
    ERRORS,
    MAX_CONFLICTS,
    OUTAGE_S,
    PANICS,
    RECONCILES,
    TERMINAL_ERRORS,
    TIMEOUTS,
)
from tfjob_operator.informers import SelectorError, SharedIndexInformer


class Kettles:
    """A sync that raises the errors listed for a key, one a call, and records when it was called."""

    def __init__(self) -> None:
        self.failures: dict[str, list[BaseException]] = {}
        self.results: dict[str, list[Result]] = {}
        self.synced: defaultdict[str, list[float]] = defaultdict(list)
        self.metrics = FakeMetrics()
        self.controller = Controller("kettle", self.sync, metrics=self.metrics, clock=VirtualClock())

    async def sync(self, key: str) -> Result | None:
        self.synced[key].append(asyncio.get_running_loop().time())
        structlog.get_logger().info("looked", had=structlog.contextvars.get_contextvars())
        structlog.contextvars.bind_contextvars(uid=f"uid-of-{key}")
        if failures := self.failures.get(key):
            raise failures.pop(0)
        return results.pop(0) if (results := self.results.get(key)) else None

    async def work(self, seconds: float, *keys: str) -> list[Any]:
        """Let the controller work on these keys, then end it. Return what was logged."""
        for key in keys:
            self.controller.queue.add(key)
        with capture_logs() as lines:
            async with at_work(self):
                await asyncio.sleep(seconds)
        assert self.controller.check() is None, "workers that ended with their queue are no problem"
        return lines

    def counted(self) -> dict[str, int]:
        return {result: count for (_, result), count in self.metrics.counted(RECONCILES).items()}


@asynccontextmanager
async def at_work(kettles: Kettles) -> AsyncIterator[None]:
    running = asyncio.create_task(kettles.controller.run())
    yield
    kettles.controller.queue.shut_down()
    await running


@pytest.fixture
def kettles() -> Kettles:
    return Kettles()


async def test_what_fails_is_tried_again_later_and_later(kettles: Kettles) -> None:
    """RL-01: after 5 ms, and after twice as long each time; a success ends that."""
    kettles.failures["a"] = [
        errors.ConnectError("refused"),
        errors.ConnectError("refused"),
        errors.ConnectError("refused"),
    ]
    lines = await kettles.work(10.0, "a")
    assert kettles.synced["a"] == pytest.approx([0.0, 0.005, 0.015, 0.035])
    assert [line["tries"] for line in lines if line["event"] == "sync_failed"] == [1, 2, 3]
    assert kettles.counted() == {"error": 3, "success": 1}


async def test_a_sync_that_returns_something_else_is_a_bug_of_this_key_alone(kettles: Kettles) -> None:
    """Such as `return 60` for `return Result(60)`."""
    kettles.results["a"] = [60]  # type: ignore[list-item]
    lines = await kettles.work(10.0, "a", "b")
    (crash,) = [line for line in lines if line["event"] == "sync_crashed"]
    assert str(crash["exc_info"]) == "a sync must return a Result or None, not 60"
    assert (len(kettles.synced["a"]), len(kettles.synced["b"])) == (2, 1)


@pytest.mark.parametrize(
    "error",
    [errors.ConnectError("refused"), errors.InvalidError(errors.Status(message="no"))],
    ids=["outage", "refusal"],
)
async def test_after_a_success_the_delays_start_over(kettles: Kettles, error: errors.ApiError) -> None:
    """RL-06, RL-07: whoever was to blame."""
    kettles.failures["a"] = [error] * 5
    kettles.controller.queue.add("a")
    async with at_work(kettles):
        await asyncio.sleep(10.0)
        kettles.failures["a"] = [error]
        kettles.controller.queue.add("a")
        await asyncio.sleep(10.0)
    assert kettles.synced["a"][-2:] == pytest.approx([10.0, 10.005])


@pytest.mark.parametrize(
    "error",
    [
        errors.ConnectError("refused"),
        errors.DecodeError("a page"),
        errors.error_from_response(503, b"<html>", request="GET /"),
        errors.error_from_response(429, b"", request="GET /"),
    ],
)
async def test_after_a_long_outage_a_key_is_tried_again_within_half_a_minute(
    kettles: Kettles, error: errors.ApiError
) -> None:
    """RL-07: it is not the key that is to blame."""
    kettles.failures["a"] = [error] * 60
    await kettles.work(3600.0, "a")
    waits = [later - sooner for sooner, later in pairwise(kettles.synced["a"])]
    assert len(waits) == 60
    assert max(waits) == pytest.approx(OUTAGE_S)


async def test_after_an_outage_of_thousands_of_keys_none_waits_longer_than_half_a_minute(kettles: Kettles) -> None:
    """RL-05, RL-07: the bucket that all keys share (10 a second) would hold the last of 1,000 back for 90 s."""
    for number in range(1000):
        kettles.failures[f"k{number}"] = [errors.ConnectError("refused")]
        kettles.controller.queue.add(f"k{number}")
    async with at_work(kettles):
        await asyncio.sleep(OUTAGE_S + 1.0)
        assert all(len(times) == 2 for times in kettles.synced.values())


async def test_what_the_server_will_not_have_is_tried_less_and_less_often(kettles: Kettles) -> None:
    """RL-01, RL-07: a refusal is no outage, and a key that is refused for ever costs a request in 1000 s."""
    kettles.failures["a"] = [errors.InvalidError(errors.Status(message="no"))] * 30
    await kettles.work(3600.0, "a")
    waits = [later - sooner for sooner, later in pairwise(kettles.synced["a"])]
    assert max(waits) == pytest.approx(1000.0)


async def test_a_stale_view_is_looked_at_again_and_is_no_failure(kettles: Kettles) -> None:
    """The cache is behind; an administrator need not know."""
    kettles.failures["a"] = [RequeueError("it has changed")]
    lines = await kettles.work(1.0, "a")
    assert len(kettles.synced["a"]) == 2
    assert kettles.counted() == {"requeue": 1, "success": 1}
    assert {line["log_level"] for line in lines} == {"info", "debug"}


STALE = errors.ConflictError(errors.Status(message="it has changed"))


@pytest.mark.parametrize("error", [ZeroDivisionError(), ExceptionGroup("two", [STALE, ZeroDivisionError()])], ids=type)
async def test_a_crash_costs_its_key_a_retry_and_nobody_else_anything(kettles: Kettles, error: Exception) -> None:
    """A12: the worker lives, and the log has the traceback."""
    kettles.failures["a"] = [error]
    lines = await kettles.work(1.0, "a", "b")
    assert (len(kettles.synced["a"]), len(kettles.synced["b"])) == (2, 1)
    assert kettles.counted() == {"error": 1, "success": 2}
    assert (kettles.metrics[PANICS].count, kettles.metrics[ERRORS].count) == (1, 1)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["sync_crashed"]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (asyncio.CancelledError(), "error"),
        (TimeoutError(), "error"),
        (ExceptionGroup("two", [STALE, ExceptionGroup("", [RequeueError("old")])]), "requeue"),
        (ExceptionGroup("two", [STALE, errors.ConnectError("refused")]), "error"),
    ],
    ids=["cancelled by something that it awaits", "time is over", "stale in a group", "an outage in a group"],
)
async def test_a_sync_that_ends_unusually_is_retried_and_counted_as_what_it_was(
    kettles: Kettles, error: BaseException, result: str
) -> None:
    """None of these is a bug of the sync, and none ends the worker."""
    kettles.failures["a"] = [error]
    kettles.controller.queue.add("a")
    with capture_logs() as lines:
        async with at_work(kettles):
            await asyncio.sleep(1.0)
            assert kettles.controller.check() is None
    assert kettles.synced["a"] == pytest.approx([0.0, 0.005])
    assert kettles.counted() == {result: 1, "success": 1}
    assert kettles.metrics[PANICS].count == 0
    assert not any("exc_info" in line for line in lines)


async def test_a_terminal_error_is_counted_and_the_key_waits_for_its_next_event(kettles: Kettles) -> None:
    """As controller-runtime's TerminalError. That event has nothing to do with an outage before, and starts its delays over."""
    kettles.failures["a"] = [*[errors.ConnectError("refused")] * 8, TerminalError("no such disk")]
    kettles.controller.queue.add("a")
    async with at_work(kettles):
        await asyncio.sleep(3600.0)
        assert len(kettles.synced["a"]) == 9
        kettles.failures["a"] = [errors.ConnectError("refused")]
        kettles.controller.queue.add("a")
        await asyncio.sleep(1.0)
    assert kettles.synced["a"][-2:] == pytest.approx([3600.0, 3600.005])
    assert kettles.counted() == {"error": 10, "success": 1}
    assert (kettles.metrics[TERMINAL_ERRORS].count, kettles.metrics[ERRORS].count) == (1, 10)


async def test_a_sync_may_ask_to_be_called_again_later(kettles: Kettles) -> None:
    """And its back-off starts over, as controller-runtime's does for RequeueAfter."""
    kettles.results["a"] = [Result(60.0), Result(60.0)]
    await kettles.work(3600.0, "a")
    assert kettles.synced["a"] == pytest.approx([0.0, 60.0, 120.0])
    assert kettles.counted() == {"requeue_after": 2, "success": 1}


async def test_a_sync_that_asks_for_no_time_is_done() -> None:
    """CR-03: RequeueAfter 0 is the zero value of a Result; a hot loop would take all of the worker's time."""
    kettles = Kettles()
    kettles.results["a"] = [Result(0.0)]
    await kettles.work(3600.0, "a")
    assert kettles.synced["a"] == [0.0]
    assert kettles.counted() == {"success": 1}


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_a_result_without_a_time_to_wait_is_refused(seconds: float) -> None:
    """CR-03: a negative time would be a hot loop, and neither of the others ever comes."""
    with pytest.raises(ValueError, match="a key cannot be requeued after"):
        Result(seconds)


@pytest.mark.parametrize(
    ("outcome", "delay_s"),
    [
        (Result(60.0), 60.0),
        (errors.ConnectError("refused"), 0.005),
        (RequeueError("old"), 0.005),
        (ValueError(), 0.005),
    ],
    ids=["a result", "an outage", "a stale view", "a crash"],
)
async def test_a_key_keeps_its_low_priority_when_it_is_delayed_and_retried(
    kettles: Kettles, outcome: Result | Exception, delay_s: float
) -> None:
    """CR-01, "should retain the priority with RequeueAfter", "when there was an error": real changes still go first."""
    queue = kettles.controller.queue
    for key in ("low", "normal"):
        if isinstance(outcome, Result):
            kettles.results[key] = [outcome]
        else:
            kettles.failures[key] = [outcome]
        queue.add(key, low_priority=key == "low")
    worker = asyncio.create_task(kettles.controller.run())
    await asyncio.sleep(delay_s / 2)
    worker.cancel()
    await asyncio.wait([worker])
    await asyncio.sleep(delay_s)
    assert [await queue.get_with_priority() for _ in range(2)] == [("normal", False), ("low", True)]


async def test_a_sync_that_takes_too_long_is_cancelled_and_retried() -> None:
    """CR-04, "should increment when ReconciliationTimeout hits", "not when user code cancels": counted, and as an error."""
    calls: list[str] = []
    metrics = FakeMetrics()

    async def sync(key: str) -> None:
        calls.append(key)
        if len(calls) == 1:
            await asyncio.sleep(3600.0)
        if len(calls) == 2:
            raise TimeoutError("of a library")

    controller = Controller("kettle", sync, sync_timeout_s=5.0, metrics=metrics, clock=VirtualClock())
    controller.queue.add("a")
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(4.0)
    assert calls == ["a"]
    with capture_logs() as lines:
        await asyncio.sleep(4.0)
    assert calls == ["a", "a", "a"]
    failures = [line["error"] for line in lines if line["event"] == "sync_failed"]
    assert failures == ["the sync did not end within 5 s", "of a library"]
    assert (metrics[TIMEOUTS].count, metrics[ERRORS].count) == (1, 2)
    controller.queue.shut_down()
    await running


OTHER_MANAGER = errors.StatusDetails(causes=[errors.StatusCause(reason="FieldManagerConflict", field=".data.x")])


@pytest.mark.parametrize(
    ("error", "silent"),
    [
        (errors.AlreadyExistsError(errors.Status(message="taken")), MAX_CONFLICTS),
        (errors.ConflictError(errors.Status(message="theirs", details=OTHER_MANAGER)), 0),
        (RequeueError("the caller knows for how long"), 20),
    ],
    ids=["a name outside of the selector", "a field of another manager", "a view that the sync itself calls stale"],
)
async def test_a_conflict_that_no_newer_cache_resolves_is_reported_as_an_error(
    kettles: Kettles, error: Exception, silent: int
) -> None:
    """CR-05: at debug level nobody would ever learn of it. A conflict because of a stale cache ends within seconds."""
    kettles.failures["a"] = [error] * 20
    lines = await kettles.work(7200.0, "a")
    told = [line["tries"] for line in lines if line["event"] == "sync_failed"]
    assert told == list(range(silent + 1, 21))
    assert kettles.counted() == {k: n for k, n in (("requeue", silent), ("error", 20 - silent), ("success", 1)) if n}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"name": ""}, "cannot be named ''"),
        ({"name": "uid"}, "cannot be named 'uid'"),
        ({"workers": 0}, "needs at least one worker"),
        ({"sync_timeout_s": 0.0}, "must be positive, not 0.0"),
        ({"sync_timeout_s": math.nan}, "must be positive, not nan"),
    ],
)
def test_a_controller_that_could_never_sync_anything_is_refused(
    kettles: Kettles, wrong: dict[str, Any], problem: str
) -> None:
    """Without a worker or without time, its keys would wait for ever and no check would fail."""
    arguments: dict[str, Any] = {"name": "kettle", "sync": kettles.sync} | wrong
    with pytest.raises(ValueError, match=problem):
        Controller(**arguments)


async def test_a_worker_that_has_ended_is_a_problem_and_a_second_run_is_refused(kettles: Kettles) -> None:
    """Two runs would double the workers."""
    async with at_work(kettles):
        await asyncio.sleep(1.0)
        with pytest.raises(RuntimeError, match="already running"):
            await kettles.controller.run()
        (worker,) = (task for task in asyncio.all_tasks() if task.get_name() == "kettle-worker-0")
        worker.cancel()
        await asyncio.sleep(1.0)
        assert kettles.controller.check() == "1 of 1 workers of kettle have ended"


async def test_a_line_of_the_log_says_what_its_sync_is_about(kettles: Kettles) -> None:
    """The key under the controller's name, and never the UID of the object before."""
    lines = await kettles.work(1.0, "a", "b")
    had = [line["had"] for line in lines if line["event"] == "looked"]
    assert [(each["kettle"], each["uid"]) for each in had] == [("a", ""), ("b", "")]
    assert len({each["reconcile_id"] for each in had}) == 2


async def test_a_controller_does_first_what_is_to_be_done_when_it_starts() -> None:
    """`on_start` runs beside the workers, who do not wait for it."""
    done: list[str] = []
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()
        await asyncio.sleep(5.0)
        done.append("begun")

    async def sync(key: str) -> None:
        assert begun.is_set()
        done.append(key)

    controller = Controller("kettle", sync, on_start=begin, workers=2)
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(1.0)
    controller.queue.add("a")
    await asyncio.sleep(9.0)
    assert done == ["a", "begun"]
    controller.queue.shut_down()
    await running


async def test_what_changes_in_a_watched_informer_is_synced_by_its_key(kettles: Kettles) -> None:
    """SI-01, SI-11: adds, changes and deletions, also one that no watch has seen; by the key that the controller chooses."""
    source = FakeSource(pod("a"), pod("b"))
    informer = SharedIndexInformer(source, PODS, random=lambda: 0.0)
    kettles.controller.watch(informer, lambda item: f"of-{item.metadata.name}")
    async with settled(informer.run()), at_work(kettles):
        source.modify(pod("a"))
        source.delete("ns/b", notify=False)
        source.end_watches(expired())
        await asyncio.sleep(60.0)
    assert {key: len(times) for key, times in kettles.synced.items()} == {"of-a": 2, "of-b": 2}


async def test_an_update_queues_the_keys_of_the_old_object_and_of_the_new_one(kettles: Kettles) -> None:
    """A former owner learns of its loss; an object may concern several keys, or none."""
    source = FakeSource(pod("a", node="n1"), pod("b", node="n1"))
    informer = SharedIndexInformer(source, PODS, random=lambda: 0.0)

    def keys_of(item: Pod) -> list[str] | None:
        node = item.status.message
        return [f"{node}/cpu", f"{node}/memory"] if item.metadata.name == "a" else None

    kettles.controller.watch(informer, keys_of)
    async with settled(informer.run()), at_work(kettles):
        source.modify(pod("a", node="n2"))
        await settle()
    assert {key: len(times) for key, times in kettles.synced.items()} == {
        "n1/cpu": 2,
        "n1/memory": 2,
        "n2/cpu": 1,
        "n2/memory": 1,
    }


async def test_the_first_list_of_a_watched_informer_waits_for_what_changes(kettles: Kettles) -> None:
    """PQ-04."""
    source = FakeSource(pod("a"))
    informer = SharedIndexInformer(source, PODS, random=lambda: 0.0)
    kettles.controller.watch(informer, lambda item: item.metadata.name)
    async with settled(informer.run()):
        source.add(pod("b"))
        await settle()
        assert [await kettles.controller.queue.get(), await kettles.controller.queue.get()] == ["b", "a"]


async def test_a_resync_that_changes_nothing_waits_for_what_changes(kettles: Kettles) -> None:
    """CR-02, "should lower the priority of an update request with unchanged RV", "should not ... with changed RV"."""
    source = FakeSource(pod("a"), pod("b"))
    informer = SharedIndexInformer(source, PODS, resync_s=60.0, random=lambda: 0.0)
    kettles.controller.watch(informer, lambda item: item.metadata.name)
    queue = kettles.controller.queue
    async with settled(informer.run()):
        for key in [await queue.get() for _ in range(2)]:
            queue.done(key)
        await asyncio.sleep(61.0)
        source.modify(pod("b"))
        await settle()
        assert [await queue.get_with_priority() for _ in range(2)] == [("b", False), ("a", True)]


class Plain(Struct, frozen=True):
    """An object whose metadata declares no labels."""

    metadata: Meta


class Named(Struct, frozen=True):
    """An object of which the predicates see the metadata."""

    metadata: ObjectMeta


def meta(uid: str = "1", generation: int = 1, **labels: str) -> Named:
    return Named(metadata=ObjectMeta(name="a", uid=uid, generation=generation, labels=labels))


GENERATION: Predicate[Named] = generation_changed
LABELS: Predicate[Named] = labels_changed
FRONT: Predicate[Named] = has_labels("tier=front")


@pytest.mark.parametrize(
    ("predicate", "old", "new", "passes"),
    [
        (GENERATION, meta(), meta(tier="front"), False),
        (GENERATION, meta(), meta(generation=2), True),
        (GENERATION, meta(), meta(uid="2"), True),
        (GENERATION, meta(generation=0), meta(generation=0), True),
        (GENERATION, None, meta(), True),
        (GENERATION, meta(), None, True),
        (LABELS, meta(tier="front"), meta(generation=2, tier="front"), False),
        (LABELS, meta(tier="front"), meta(), True),
        (LABELS, meta(), meta(uid="2"), True),
        (LABELS, None, meta(), True),
        (labels_changed, Plain(metadata=Meta(uid="1")), Plain(metadata=Meta(uid="1")), True),
        (FRONT, None, meta(), False),
        (FRONT, None, meta(tier="front"), True),
        (FRONT, meta(tier="front"), meta(), True),
        (FRONT, meta(), None, False),
        (all_of(GENERATION, FRONT), meta(), meta(generation=2), False),
        (all_of(GENERATION, FRONT), None, meta(tier="front"), True),
        (any_of(GENERATION, LABELS), meta(), meta(), False),
        (any_of(GENERATION, LABELS), meta(), meta(tier="front"), True),
        (none_of(FRONT, GENERATION), meta(), meta(), True),
        (none_of(FRONT), None, meta(tier="front"), False),
    ],
)
def test_a_predicate_sees_the_old_object_and_the_new_one(
    predicate: Predicate[Any], old: Any, new: Any, passes: bool
) -> None:
    """CR-06: and passes what it cannot judge, as another object of the name, or a kind without generations or labels."""
    assert predicate(old, new) is passes


async def test_a_controller_is_not_woken_by_what_its_predicate_ignores(kettles: Kettles) -> None:
    """CR-06: for adds, updates, and deletions, also missed ones."""
    source = FakeSource(pod("a"), pod("b"))
    informer = SharedIndexInformer(source, PODS, random=lambda: 0.0)
    seen: list[tuple[str, str]] = []

    def predicate(old: Pod | None, new: Pod | None) -> bool:
        seen.append((old.metadata.name if old else "", new.metadata.name if new else ""))
        return "b" in seen[-1]

    kettles.controller.watch(informer, lambda item: item.metadata.name, predicate=predicate)
    async with settled(informer.run()), at_work(kettles):
        source.modify(pod("a"))
        source.delete("ns/b", notify=False)
        source.end_watches(expired())
        await asyncio.sleep(60.0)
    assert seen == [("", "a"), ("", "b"), ("a", "a"), ("b", "")]
    assert {key: len(times) for key, times in kettles.synced.items()} == {"b": 2}


def test_a_selector_of_a_predicate_is_read_at_once() -> None:
    """Else each event would be lost to an error of its handler."""
    with pytest.raises(SelectorError):
        has_labels("=front")
