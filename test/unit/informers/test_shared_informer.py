"""The shared informer as a whole, over a fake source, on virtual time."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest
from structlog.testing import capture_logs

from fakes.objects import Pod
from fakes.source import FakeSource, expired, pod, running, settle, settled, status_error
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.informers import (
    EventHandlerFuncs,
    IndexerError,
    InformerStoppedError,
    SharedIndexInformer,
    Tombstone,
    object_of,
)
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import BACKLOG, BATCH, Added, Modified
from tfjob_operator.informers.shared_informer import PIECE
from tfjob_operator.informers.store import NAMESPACE_INDEX
from unit.informers.rig import FIRST_BACKOFF_S, Step, play


def by_node(item: Pod) -> Sequence[str]:
    """The index function of these tests."""
    return [item.status.message] if item.status.message else []


def informer_over(source: FakeSource[Pod], *, resync_s: float = 0.0) -> SharedIndexInformer[Pod]:
    """An informer of pods, indexed by node."""
    return SharedIndexInformer(source, PODS, indexers={"node": by_node}, resync_s=resync_s, random=lambda: 0.0)


class Recorder:
    """A handler that records its notifications."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_add(self, item: Pod, is_in_initial_list: bool, /) -> None:
        self.told.append(f"{'initial ' if is_in_initial_list else ''}add {item.metadata.name}")

    def on_update(self, old: Pod, new: Pod, /) -> None:
        self.told.append(f"update {old.metadata.uid} -> {new.metadata.uid}")

    def on_delete(self, item: Pod | Tombstone[Pod], /) -> None:
        self.told.append(f"tombstone {item.key}" if isinstance(item, Tombstone) else f"delete {item.metadata.name}")


@asynccontextmanager
async def informed(
    source: FakeSource[Pod], *handlers: Recorder, resync_s: float = 0.0
) -> AsyncIterator[SharedIndexInformer[Pod]]:
    """An informer of a source that has these handlers and runs; the block begins when it is synced."""
    informer = informer_over(source, resync_s=resync_s)
    for handler in handlers:
        informer.add_event_handler(handler)
    async with settled(informer.run()):
        yield informer


async def relisted(source: FakeSource[Pod]) -> None:
    """Make the informer list again, as after a gap."""
    source.end_watches(expired())
    await settle(FIRST_BACKOFF_S)


def poison(key: str = "", version: str = "", *, deleted: bool = False) -> Skipped:
    """An object that cannot be decoded."""
    return Skipped(ValueError("replicas: must be a number"), key, version, deleted)


UPDATE = "update uid-a -> uid-a"
DELETED: list[Step] = [lambda s: s.delete("ns/a", notify=False), lambda s: s.delete("ns/b", notify=False)]
CHANGES: dict[str, tuple[list[Step], list[str], list[str], str]] = {
    # SI-01, QF-03, shared_informer_test.go:TestSharedInformerInitializationRace, controller_test.go:TestReplaceEvents
    "a watch shows": (
        [lambda s: s.add(pod("c", node="n1")), lambda s: s.modify(pod("b", node="n1")), lambda s: s.delete("ns/a")],
        ["add c", "update uid-b -> uid-b", "delete a"], ["b", "c"], "15",
    ),
    # RF-10, thread_safe_store_test.go:TestThreadSafeStoreRV
    "a bookmark shows": ([FakeSource.bookmark], [], ["a", "b"], "13"),
    # QF-01: after a resumed watch the store decides, not the event
    "a resumed watch shows": (
        [lambda s: s.modify(pod("new")), lambda s: s.add(pod("a")), lambda s: s.add(pod("a"))],
        ["add new", UPDATE, UPDATE], ["a", "b", "new"], "15",
    ),
    # B01, RF-12
    "a watch cannot show": (
        [lambda s: s.send(poison("ns/a", "13", deleted=True), poison("ns/x", "14", deleted=True))],
        ["tombstone ns/a"], ["b"], "14",
    ),
    # SI-11, QF-02, QF-03, DF-04, shared_informer_test.go:TestSharedInformerWatchDisruption: first deletions, then as listed
    "a list shows": (
        [lambda s: s.delete("ns/a", notify=False), lambda s: s.add(pod("c"), notify=False), expired()],
        ["tombstone ns/a", "add c"], ["b", "c"], "14",
    ),
    # SI-11, EX-08
    "a list shows with another UID": (
        [lambda s: s.modify(pod("a", uid="second"), notify=False), expired()],
        ["update uid-a -> second"], ["a", "b"], "13",
    ),
    # SI-10, client-go issue 1312
    "a list shows, which is nothing": ([expired()], [], ["a", "b"], "12"),
    # QF-03: the last known state stays, as when a watch brings what does not decode; if its name is unknown, all stay
    "a list cannot show": ([*DELETED, lambda s: s.skipped.append(poison("ns/a")), expired()], ["tombstone ns/b"], ["a"], "14"),
    "a list cannot even name": ([*DELETED, lambda s: s.skipped.append(poison()), expired()], [], ["a", "b"], "14"),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "told", "names", "version"), CHANGES.values(), ids=CHANGES)
async def test_cache_and_handlers_follow_what(
    steps: list[Step], told: list[str], names: list[str], version: str
) -> None:
    """SI-01, SI-10, SI-11, QF-01, QF-02, QF-03, DF-04, EX-08, RF-10, RF-12, B01"""
    source, handler = FakeSource(pod("a", node="n1"), pod("b")), Recorder()
    async with informed(source, handler) as informer:
        assert informer.indexer.resource_version == informer.last_resource_version == "12"
        await play(source, *steps, FIRST_BACKOFF_S)
        await settle()
        assert handler.told == ["initial add a", "initial add b", *told]
        stored = informer.indexer.list()
        assert [item.metadata.name for item in stored] == names
        assert sorted(map(str, informer.indexer.by_index("node", "n1"))) == sorted(map(str, filter(by_node, stored)))
        assert informer.indexer.resource_version == informer.last_resource_version == version


async def test_a_handler_finds_the_cache_and_its_indices_at_least_as_new_as_its_notification() -> None:
    """SI-01, SI-07, QF-06, shared_informer_test.go:TestIndexer, the_real_fifo_test.go:TestRealFIFO_HasSynced"""
    source = FakeSource(pod("a", node="n1"))
    source.hold.clear()
    informer = informer_over(source)
    found: list[bool] = []

    def on_add(item: Pod, _: bool) -> None:
        found.append(informer.has_synced and item in informer.indexer.by_index("node", item.status.message))

    def on_delete(_: Pod | Tombstone[Pod]) -> None:
        found.append(informer.indexer.get("ns/a") is None)

    registration = informer.add_event_handler(EventHandlerFuncs(on_add=on_add, on_delete=on_delete))
    async with settled(informer.run()):
        assert not informer.has_synced
        source.hold.set()
        await informer.wait_for_sync()
        assert len(informer.indexer) == 1
        await registration.wait_for_sync()
        source.add(pod("b", node="n2"))
        source.delete("ns/a")
        await settle()
    assert found == [True, True, True]


async def test_a_handler_that_joins_late_gets_the_store_as_it_is_and_every_later_change() -> None:
    """SI-04, SI-06: until it is removed, which may be done twice.

    shared_informer_test.go:TestAddWhileActive, TestSharedInformerHandlerAbuse, TestStateSharedInformer,
    TestSharedInformerRemoveHandler, TestRemovingRemovedSharedInformer
    """
    source, handler = FakeSource(pod("a"), pod("b")), Recorder()
    async with informed(source) as informer:
        source.add(pod("queued"))  # on its way when the handler joins
        registration = informer.add_event_handler(handler)
        assert not registration.has_synced
        source.delete("ns/a")
        await registration.wait_for_sync()
        await settle()
        informer.remove_event_handler(registration)
        informer.remove_event_handler(registration)
        source.add(pod("c"))
        await settle()
        assert len(informer.indexer) == 3
    assert handler.told == ["initial add a", "initial add b", "add queued", "delete a"]


async def test_a_handler_that_joins_while_a_long_list_is_applied_misses_nothing_and_hears_nothing_twice() -> None:
    """SI-04: the new contents are built in pieces, but put in place without an await in between"""
    names = [f"p{number}" for number in range(3 * PIECE)]
    source = FakeSource(*[pod(name) for name in names])
    informer, late, turns = informer_over(source), Recorder(), 0
    async with running(informer.run()):
        while not informer.has_synced:
            await asyncio.sleep(0)
            if source.watches and not turns:  # the list is in the queue, and not in the store
                assert len(informer.indexer) == 0
                registration = informer.add_event_handler(late)
            turns += bool(source.watches)
        await registration.wait_for_sync()
    assert late.told == [f"initial add {name}" for name in names]
    assert turns >= 3, "to apply ten thousand objects without an await would hold up everything else"


async def test_a_failing_handler_still_becomes_synced_and_disturbs_no_other() -> None:
    """SI-13, QF-06, QF-09, shared_informer_test.go:TestEventPanics. client-go never gets here (k/k#129024)"""
    source, other = FakeSource(pod("a"), pod("b")), Recorder()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    informer = informer_over(source)
    registration = informer.add_event_handler(EventHandlerFuncs(on_add=fail))
    informer.add_event_handler(other)
    with capture_logs() as logs:
        async with running(informer.run()):
            await registration.wait_for_sync()
            source.add(pod("c"))
            await settle()
    assert other.told == ["initial add a", "initial add b", "add c"]
    failed = [(log["key"], log["log_level"]) for log in logs if log["event"] == "handler_failed"]
    assert failed == [("ns/a", "error"), ("ns/b", "error"), ("ns/c", "error")]


async def test_a_handler_that_asks_for_lists_is_told_of_each_after_what_follows_from_it() -> None:
    """SI-16: what came and went unseen follows from nothing else."""

    class Lists(Recorder):
        def on_list(self, resource_version: str, /) -> None:
            self.told.append(f"list at {resource_version}")

    source, handler, other = FakeSource(pod("a"), pod("b")), Lists(), Recorder()
    async with informed(source, handler, other) as informer:
        assert handler.told == ["initial add a", "initial add b", "list at 12"]
        source.delete("ns/a", notify=False)
        source.add(pod("c"), notify=False)
        await relisted(source)
        assert handler.told[3:] == ["tombstone ns/a", "add c", f"list at {informer.indexer.resource_version}"]
        source.skipped = [poison("ns/x")]
        source.modify(pod("c"), notify=False)
        await relisted(source)
        await asyncio.sleep(60)  # the second back-off is longer
        assert handler.told[6:] == ["update uid-c -> uid-c"], "it may have held anything"
    assert other.told == [each for each in handler.told if not each.startswith("list")]


async def test_a_resync_tells_what_is_stored_to_those_that_asked_without_a_word_to_the_server() -> None:
    """RF-26, QF-04, SI-10, reflector_test.go:TestReflectorResync, shared_informer_test.go:TestListenerResyncPeriods

    An event of a version that is stored goes only to those that are due; for all others nothing has happened. What else comes
    in the same batch has.
    """
    source = FakeSource[Pod]()
    known = source.add(pod("a"), notify=False)
    asked, silent = Recorder(), Recorder()
    async with informed(source, asked, resync_s=10.0) as informer:
        informer.add_event_handler(silent, resync_s=0.0)
        await asyncio.sleep(11.0)
        source.send(Modified(known), Added(source.add(pod("b"), notify=False)))
        await settle()
        assert asked.told == ["initial add a", UPDATE, UPDATE, "add b"]
        assert silent.told == ["initial add a", "add b"]
        await asyncio.sleep(10.0)
    assert asked.told[4:] == [UPDATE, "update uid-b -> uid-b"]
    assert silent.told == ["initial add a", "add b"]
    assert (len(source.lists), len(source.watches)) == (1, 1)


async def test_a_list_between_two_resyncs_is_delivered_whole_to_those_that_were_due_at_the_last_one() -> None:
    """SI-10, shared_informer_test.go:TestListenerResyncPeriods"""
    source, handler = FakeSource(pod("a")), Recorder()
    async with informed(source, handler, resync_s=10.0):
        await asyncio.sleep(11.0)
        source.add(pod("b"), notify=False)
        await relisted(source)
    assert handler.told == ["initial add a", UPDATE, UPDATE, "add b"]


async def test_a_resync_may_come_every_second_and_watches_that_flap_do_not_multiply_its_timer() -> None:
    """SI-09, RF-26, reflector_test.go:TestReflectorResyncChan"""
    source, handler = FakeSource(pod("a")), Recorder()
    async with informed(source, handler, resync_s=1.0):
        for _ in range(3):
            await asyncio.sleep(2.0)
            source.end_watches()
        before = len(asyncio.all_tasks())
        await asyncio.sleep(2.5)
        assert len(asyncio.all_tasks()) == before
    assert len(source.watches) == 4
    assert handler.told == ["initial add a"] + [UPDATE] * 8


async def test_an_index_can_be_added_while_running_and_covers_what_is_there() -> None:
    """ST-05, ST-08, ST-09, shared_informer_test.go:TestIndexer. That of namespaces is there where there are namespaces"""
    async with informed(FakeSource(pod("a"))) as informer:
        informer.add_indexers({"name": lambda item: [item.metadata.name]})
        assert len(informer.indexer.by_index("name", "a")) == 1
        with pytest.raises(IndexerError):
            informer.add_indexers({"name": by_node})
        assert informer.indexer.has_index(NAMESPACE_INDEX)
        assert informer.lister().namespaced("ns").get("a").metadata.name == "a"
    nodes = SharedIndexInformer(FakeSource[Pod](), Resource("", "v1", "nodes", "Node", namespaced=False))
    assert not nodes.indexer.has_index(NAMESPACE_INDEX)


async def test_an_index_function_that_raises_ends_the_informer() -> None:
    """ST-05: a programming error; a cache with half an index would give wrong results from then on"""

    def broken(_: Pod) -> Sequence[str]:
        raise ZeroDivisionError

    informer = SharedIndexInformer(FakeSource(pod("a")), PODS, indexers={"broken": broken})
    with pytest.raises(ExceptionGroup) as caught:
        await informer.run()
    assert caught.value.subgroup(ZeroDivisionError) is not None
    with pytest.raises(InformerStoppedError):
        await informer.wait_for_sync()


async def test_a_stopped_informer_takes_no_handlers_and_no_indices() -> None:
    """SI-05, SI-07, QF-06, DF-06: what was synced, if only with an empty list, stays so.

    shared_informer_test.go:TestAddOnStoppedSharedInformer, TestRemoveOnStoppedSharedInformer, synctrack_test.go:TestBasicLogic,
    the_real_fifo_test.go:TestRealFIFO_HasSynced, TestRealFIFO_HasSyncedCorrectOnDeletion
    """
    informer = informer_over(FakeSource())
    registration = informer.add_event_handler(Recorder())
    async with settled(informer.run()):
        assert registration.has_synced
        informer.stop()
        with pytest.raises(InformerStoppedError):
            informer.add_event_handler(Recorder())
    with pytest.raises(InformerStoppedError):
        informer.add_event_handler(Recorder())
    with pytest.raises(InformerStoppedError):
        informer.add_indexers({"x": by_node})
    informer.remove_event_handler(registration)
    await informer.run()
    await informer.wait_for_sync()
    assert informer.has_synced


async def test_running_twice_warns_and_returns() -> None:
    """SI-05, shared_informer_test.go:TestSharedInformerStartRace"""
    source = FakeSource[Pod]()
    async with informed(source) as informer:
        with capture_logs() as logs:
            await informer.run()
    assert [log["event"] for log in logs] == ["informer_started_twice"]
    assert len(source.lists) == 1


async def test_an_informer_that_is_stopped_before_it_runs_never_does() -> None:
    """SI-05, SI-08, wait_test.go:TestSyncResult"""
    source = FakeSource[Pod]()
    informer = informer_over(source)
    registration = informer.add_event_handler(Recorder())
    informer.stop()
    await informer.run()
    assert source.lists == []
    with pytest.raises(InformerStoppedError, match="pods stopped before it was synced"):
        await informer.wait_for_sync()
    with pytest.raises(InformerStoppedError):
        await registration.wait_for_sync()


def put_many(source: FakeSource[Pod], informer: SharedIndexInformer[Pod], count: int) -> None:
    """Let so many events leave the reflector."""
    for number in range(count):
        informer._fifo.put(Added(source.add(pod(f"p{number}"), notify=False)))


async def test_a_flood_of_events_lets_the_loop_run_between_batches() -> None:
    """QF-05, QF-07: pop does not wait while there is work"""
    source = FakeSource[Pod]()
    async with informed(source) as informer:
        put_many(source, informer, 3 * BATCH)
        seen: list[int] = []
        while len(informer.indexer) < 3 * BATCH:
            seen.append(len(informer.indexer))
            await asyncio.sleep(0)
    assert {BATCH, 2 * BATCH} <= set(seen)


async def test_a_watch_is_read_no_faster_than_its_handlers_take_the_events() -> None:
    """QF-07: so the queues stay short, also if handlers raise, come and go meanwhile"""
    source, told, late = FakeSource[Pod](), Recorder(), Recorder()

    def on_add(item: Pod, _: bool) -> None:
        if item.metadata.name == "p100":
            informer.remove_event_handler(leaving)
            informer.add_event_handler(late)
        raise LookupError

    async with informed(source, told) as informer:
        leaving = informer.add_event_handler(EventHandlerFuncs[Pod](on_add=on_add))
        for batch in range(50):
            numbers = range(100 * batch, 100 * batch + 100)
            source.send(*(Added(source.add(pod(f"p{number}"), notify=False)) for number in numbers))
        waiting = list[int]()
        while len(told.told) < 5000:
            waiting.append(len(informer._fifo) + informer._processor.backlog())
            await asyncio.sleep(0)
        await settle()
    assert len(late.told) == len({*told.told}) == 5000
    assert BACKLOG < max(waiting) <= 4 * BACKLOG


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_object_of_the_list_leaves_the_memory_when_it_is_replaced(streaming: bool) -> None:
    """Else memory doubles when each object has changed once, until the next list"""
    source = FakeSource(pod("a"), pod("b"), streaming=streaming)
    async with informed(source) as informer:
        listed = informer.indexer.get("ns/a")
        source.modify(pod("a"))
        await settle()
        source.modify(pod("b"))
        await settle()
        assert informer.indexer.get("ns/a") is not listed
        assert sys.getrefcount(listed) == 2


async def test_stopping_applies_and_delivers_what_is_queued_and_leaves_nothing_behind() -> None:
    """SI-14, shared_informer_test.go:TestShutdown, main_test.go leak check"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source, resync_s=5.0), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()) as run:
        put_many(source, informer, 1500)  # more than one batch, more than one turn of a listener
        informer.stop()
        informer.stop()
        await run
        assert len(asyncio.all_tasks()) == 1
    assert source.open_watches == 0
    assert len(handler.told) == len(informer.indexer) == 1501


@pytest.mark.parametrize("cancelled", [False, True])
async def test_stopping_while_the_first_list_hangs_tells_those_who_wait(cancelled: bool) -> None:
    """SI-08, SI-14, RF-13, main_test.go leak check: a handler, too, waits in vain."""
    source = FakeSource(pod("a"))
    source.hold.clear()
    informer = informer_over(source, resync_s=5.0)
    registration = informer.add_event_handler(Recorder())
    async with settled(informer.run()) as run:
        waiting = [asyncio.create_task(each.wait_for_sync()) for each in (informer, registration)]
        await settle()
        if cancelled:
            run.cancel()
        else:
            informer.stop()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [InformerStoppedError] * 2
    assert len(asyncio.all_tasks()) == 1
    with pytest.raises(InformerStoppedError):
        informer.add_event_handler(Recorder())


async def test_the_error_handler_hears_of_failures_and_is_set_before_the_start() -> None:
    """RF-24, shared_informer_test.go:TestSharedInformerErrorHandling"""
    source = FakeSource(pod("a"))
    boom = status_error(403, "Forbidden")
    source.list_errors = [boom]
    informer = informer_over(source)
    errors: list[Exception] = []
    informer.set_watch_error_handler(errors.append)
    async with settled(informer.run()):
        assert informer.started
        with pytest.raises(RuntimeError):
            informer.set_watch_error_handler(errors.append)
    assert errors == [boom]


@pytest.mark.parametrize("seed", range(20))
async def test_changes_at_random_leave_cache_and_handlers_with_the_truth(seed: int) -> None:
    """SI-01, SI-11, controller_test.go:TestHammerController, shared_informer_test.go:TestSharedInformerWatchDisruption"""
    source = FakeSource[Pod]()
    view: dict[str, Pod] = {}

    def on_add(item: Pod, _: bool) -> None:
        assert item.metadata.name not in view
        view[item.metadata.name] = item

    def on_update(old: Pod, new: Pod) -> None:
        assert view[old.metadata.name] is old
        view[new.metadata.name] = new

    def on_delete(item: Pod | Tombstone[Pod]) -> None:
        del view[object_of(item).metadata.name]

    with capture_logs() as logs:
        async with informed(source) as informer:
            informer.add_event_handler(EventHandlerFuncs(on_add=on_add, on_update=on_update, on_delete=on_delete))
            await churn(source, Random(seed))
            await asyncio.sleep(180.0)  # a watch is open by now, and the back-off has forgotten the churn
            await relisted(source)
    assert [log for log in logs if log["event"] == "handler_failed"] == []
    stored = {item.metadata.name: item for item in informer.indexer.list()}
    assert view == stored == {item.metadata.name: item for item in source.objects()}
    nodes = {node: {item.metadata.name for item in informer.indexer.by_index("node", node)} for node in "xyz"}
    assert nodes == {node: {n for n, item in view.items() if item.status.message == node} for node in "xyz"}


async def churn(source: FakeSource[Pod], random: Random) -> None:
    """Fifty changes, some without an event, with streams that end in every way."""
    for number in range(50):
        heard = random.random() < 0.7
        name = f"p{random.randrange(8)}"
        item = pod(name, uid=f"uid-{number}", node=random.choice("xyz"))
        if all(other.metadata.name != name for other in source.objects()):
            source.add(item, notify=heard)
        elif random.random() < 0.5:
            source.modify(item, notify=heard)
        else:
            source.delete(f"ns/{name}", notify=heard)
        match random.randrange(12):
            case 0:
                source.end_watches()
            case 1:
                source.compact()
                source.end_watches(expired())
            case 2:
                await asyncio.sleep(random.random() * 5)
            case 3:
                await settle()
