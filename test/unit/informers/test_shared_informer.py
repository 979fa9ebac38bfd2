"""The shared informer as a whole, over a fake source, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
)
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import BATCH, Added, Modified
from tfjob_operator.informers.shared_informer import PIECE
from tfjob_operator.informers.store import NAMESPACE_INDEX

FIRST_BACKOFF_S = 0.8  # without jitter: the random source of these tests always returns 0


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


async def relisted(source: FakeSource[Pod]) -> None:
    """Make the informer list again, as after a gap."""
    source.end_watches(expired())
    await settle(FIRST_BACKOFF_S)


async def test_the_cache_follows_the_server_and_handlers_are_notified() -> None:
    """SI-01, QF-03, shared_informer_test.go:TestSharedInformerInitializationRace, controller_test.go:TestReplaceEvents"""
    source = FakeSource(pod("a", node="n1"), pod("b"))
    informer, handler = informer_over(source), Recorder()
    registration = informer.add_event_handler(handler)
    async with running(informer.run()):
        await informer.wait_for_sync()
        await registration.wait_for_sync()
        assert informer.indexer.keys() == ["ns/a", "ns/b"]
        assert informer.indexer.resource_version == informer.last_resource_version == "12"
        source.add(pod("c", node="n1"))
        source.modify(pod("b", node="n1"))
        source.delete("ns/a")
        await settle()
        assert [item.metadata.name for item in informer.indexer.by_index("node", "n1")] == ["c", "b"]
        assert informer.indexer.resource_version == informer.last_resource_version == "15"
    assert handler.told == ["initial add a", "initial add b", "add c", "update uid-b -> uid-b", "delete a"]


async def test_a_handler_finds_the_cache_and_its_indices_at_least_as_new_as_its_notification() -> None:
    """SI-01, shared_informer_test.go:TestIndexer"""
    source = FakeSource(pod("a", node="n1"))
    informer = informer_over(source)
    found: list[bool] = []

    def on_add(item: Pod, _: bool) -> None:
        found.append(item in informer.indexer.by_index("node", item.status.message))

    def on_delete(_: Pod | Tombstone[Pod]) -> None:
        found.append(informer.indexer.get("ns/a") is None)

    informer.add_event_handler(EventHandlerFuncs(on_add=on_add, on_delete=on_delete))
    async with settled(informer.run()):
        source.add(pod("b", node="n2"))
        source.delete("ns/a")
        await settle()
    assert found == [True, True, True]


async def test_a_bookmark_moves_the_version_of_the_store_and_tells_nobody() -> None:
    """RF-10, thread_safe_store_test.go:TestThreadSafeStoreRV"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.bookmark()
        await settle()
        assert informer.indexer.resource_version == "12"
    assert handler.told == ["initial add a"]


async def test_a_handler_that_joins_late_gets_the_store_as_it_is_and_every_later_change() -> None:
    """SI-04, shared_informer_test.go:TestAddWhileActive, TestSharedInformerHandlerAbuse, TestStateSharedInformer"""
    source = FakeSource(pod("a"), pod("b"))
    informer, handler = informer_over(source), Recorder()
    async with settled(informer.run()):
        source.add(pod("queued"))  # on its way when the handler joins
        registration = informer.add_event_handler(handler)
        assert not registration.has_synced
        source.delete("ns/a")
        await registration.wait_for_sync()
        await settle()
    assert handler.told == ["initial add a", "initial add b", "add queued", "delete a"]


async def test_a_handler_that_joins_while_a_long_list_is_applied_misses_nothing_and_hears_nothing_twice() -> None:
    """SI-04: the new contents are built in pieces, but put in place without an await in between"""
    names = [f"p{number}" for number in range(3 * PIECE)]
    source = FakeSource(*[pod(name) for name in names])
    informer, late = informer_over(source), Recorder()
    async with running(informer.run()):
        source.hold.clear()
        await settle()
        source.hold.set()
        joined = False
        while not informer.has_synced:
            await asyncio.sleep(0)
            if len(source.watches) and not joined:  # the list is in the queue, and not in the store
                assert len(informer.indexer) == 0
                registration = informer.add_event_handler(late)
                joined = True
        await registration.wait_for_sync()
    assert late.told == [f"initial add {name}" for name in names]


async def turns_until_synced(objects: int) -> int:
    """How often another task gets its turn while a list of so many objects is applied."""
    informer = informer_over(FakeSource(*[pod(f"p{number}") for number in range(objects)]))
    turns = 0
    async with running(informer.run()):
        while not informer.has_synced:
            turns += 1
            await asyncio.sleep(0)
    return turns


async def test_a_long_list_lets_the_loop_run_while_it_is_applied() -> None:
    """To apply ten thousand objects without an await would hold up everything else"""
    assert await turns_until_synced(5 * PIECE) == await turns_until_synced(PIECE) + 4


async def test_the_informer_is_synced_when_the_list_is_in_the_cache_and_the_registration_when_it_was_told() -> None:
    """SI-07, QF-06, the_real_fifo_test.go:TestRealFIFO_HasSynced, TestRealFIFO_HasSyncedCorrectOnDeletion"""
    source = FakeSource(pod("a"))
    source.hold.clear()
    informer = informer_over(source)
    cached_when_told: list[bool] = []
    registration = informer.add_event_handler(
        EventHandlerFuncs(on_add=lambda *_: cached_when_told.append(informer.has_synced))
    )
    async with settled(informer.run()):
        assert not informer.has_synced
        source.hold.set()
        await informer.wait_for_sync()
        assert len(informer.indexer) == 1
        await registration.wait_for_sync()
    assert cached_when_told == [True]


async def test_an_empty_list_syncs_too() -> None:
    """QF-06, DF-06, the_real_fifo_test.go:TestRealFIFO_HasSynced"""
    informer = informer_over(FakeSource())
    registration = informer.add_event_handler(Recorder())
    async with running(informer.run()):
        await registration.wait_for_sync()
        assert informer.has_synced


async def test_a_failing_handler_still_becomes_synced() -> None:
    """SI-13, QF-06, QF-09"""
    source = FakeSource(pod("a"), pod("b"))
    informer = informer_over(source)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    registration = informer.add_event_handler(EventHandlerFuncs(on_add=fail))
    with capture_logs() as logs:
        async with running(informer.run()):
            await registration.wait_for_sync()
            source.add(pod("c"))
            await settle()
            assert len(informer.indexer) == 3
    assert [log["key"] for log in logs if log["event"] == "handler_failed"] == ["ns/a", "ns/b", "ns/c"]


async def test_a_delete_that_was_missed_becomes_a_tombstone_at_the_next_list() -> None:
    """SI-11, QF-02, QF-03, DF-04, shared_informer_test.go:TestSharedInformerWatchDisruption"""
    source = FakeSource(pod("a"), pod("b"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.delete("ns/a", notify=False)
        source.add(pod("c"), notify=False)
        await relisted(source)
        assert informer.indexer.keys() == ["ns/b", "ns/c"]
    assert handler.told[2:] == ["tombstone ns/a", "add c"], "deletions first, then in the order of the list"


@pytest.mark.parametrize(("key", "left"), [("ns/a", ["ns/b", "ns/a"]), ("", ["ns/b", "ns/a", "ns/c"])])
async def test_what_a_list_can_not_read_is_not_taken_for_gone(key: str, left: list[str]) -> None:
    """QF-03: the last known state stays, as when a watch brings what does not decode. If its name is unknown, all stay."""
    source = FakeSource(pod("a", node="n1"), pod("b"), pod("c"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.delete("ns/a", notify=False)
        source.delete("ns/c", notify=False)
        source.skipped = [Skipped(ValueError("replicas: must be a number"), key)]
        await relisted(source)
        assert informer.indexer.keys() == left
        assert [item.metadata.name for item in informer.indexer.by_index("node", "n1")] == ["a"]
    assert handler.told[3:] == [f"tombstone {gone}" for gone in ("ns/a", "ns/b", "ns/c") if gone not in left]


async def test_a_recreation_that_was_missed_is_an_update_with_another_uid() -> None:
    """SI-11, EX-08, shared_informer_test.go:TestSharedInformerWatchDisruption"""
    source = FakeSource(pod("a", uid="first", node="n1"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.delete("ns/a", notify=False)
        source.add(pod("a", uid="second"), notify=False)
        await relisted(source)
        assert informer.indexer.by_index("node", "n1") == []
    assert handler.told == ["initial add a", "update first -> second"]


class Lists(Recorder):
    """Records lists as well."""

    def on_list(self, resource_version: str, /) -> None:
        """Record it."""
        self.told.append(f"list at {resource_version}")


async def test_a_handler_that_asks_for_lists_is_told_of_each_after_what_follows_from_it() -> None:
    """SI-16: what came and went unseen follows from nothing else."""
    source = FakeSource(pod("a"), pod("b"))
    informer, handler, other = informer_over(source), Lists(), Recorder()
    informer.add_event_handler(handler)
    informer.add_event_handler(other)
    async with settled(informer.run()):
        assert handler.told == ["initial add a", "initial add b", "list at 12"]
        source.delete("ns/a", notify=False)
        source.add(pod("c"), notify=False)
        await relisted(source)
        assert handler.told[3:] == ["tombstone ns/a", "add c", f"list at {informer.indexer.resource_version}"]
        source.skipped = [Skipped(ValueError("replicas: must be a number"), "ns/x")]
        source.modify(pod("c"), notify=False)
        await relisted(source)
        await asyncio.sleep(60)  # the second back-off is longer
        assert handler.told[6:] == ["update uid-c -> uid-c"], "it may have held anything"
    assert other.told == [each for each in handler.told if not each.startswith("list")]


async def test_a_list_that_brings_nothing_new_is_not_told() -> None:
    """SI-10, client-go issue 1312"""
    source = FakeSource(pod("a"), pod("b"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.modify(pod("b"), notify=False)
        await relisted(source)
    assert handler.told[2:] == ["update uid-b -> uid-b"]


async def test_an_add_of_what_is_there_and_a_change_of_what_is_not_are_reported_as_what_they_are() -> None:
    """QF-01: after a resumed watch the store decides, not the event"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.modify(pod("new"))
        source.add(pod("a"))
        source.add(pod("a"))
        await settle()
        assert informer.indexer.resource_version == "14"
    assert handler.told == ["initial add a", "add new"] + ["update uid-a -> uid-a"] * 2


async def test_the_deletion_of_a_poisoned_object_is_reported_with_its_last_known_state() -> None:
    """B01, RF-12"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()):
        source.send(
            Skipped(TypeError("bad"), "ns/a", "12", deleted=True), Skipped(TypeError("bad"), "ns/x", "13", deleted=True)
        )
        await settle()
        assert len(informer.indexer) == 0
        assert informer.indexer.resource_version == "13"
    assert handler.told == ["initial add a", "tombstone ns/a"]


async def test_a_resync_tells_what_is_stored_to_those_that_asked_without_a_word_to_the_server() -> None:
    """RF-26, QF-04, SI-10, reflector_test.go:TestReflectorResync, shared_informer_test.go:TestListenerResyncPeriods"""
    source = FakeSource(pod("a"))
    informer, asked, silent = informer_over(source, resync_s=10.0), Recorder(), Recorder()
    informer.add_event_handler(asked)
    informer.add_event_handler(silent, resync_s=0.0)
    async with running(informer.run()):
        await asyncio.sleep(25.0)
    assert asked.told == ["initial add a"] + ["update uid-a -> uid-a"] * 2
    assert silent.told == ["initial add a"]
    assert (len(source.lists), len(source.watches)) == (1, 1)


async def test_an_event_of_a_version_that_is_stored_is_told_only_to_those_that_are_due_for_a_resync() -> None:
    """SI-10: to all others nothing has happened; what else comes in the same batch has."""
    source = FakeSource[Pod]()
    known = source.add(pod("a"), notify=False)
    informer, asked, silent = informer_over(source, resync_s=10.0), Recorder(), Recorder()
    informer.add_event_handler(asked)
    informer.add_event_handler(silent, resync_s=0.0)
    async with running(informer.run()):
        await asyncio.sleep(11.0)
        source.send(Modified(known), Added(source.add(pod("b"), notify=False)))
        await settle()
    assert asked.told == ["initial add a"] + ["update uid-a -> uid-a"] * 2 + ["add b"]
    assert silent.told == ["initial add a", "add b"]


async def test_a_list_between_two_resyncs_is_delivered_whole_to_those_that_were_due_at_the_last_one() -> None:
    """SI-10, shared_informer_test.go:TestListenerResyncPeriods"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source, resync_s=10.0), Recorder()
    informer.add_event_handler(handler)
    async with running(informer.run()):
        await asyncio.sleep(11.0)
        source.add(pod("b"), notify=False)
        await relisted(source)
    assert handler.told == ["initial add a"] + ["update uid-a -> uid-a"] * 2 + ["add b"]


async def test_a_resync_may_come_every_second() -> None:
    """SI-09: the shortest period"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source, resync_s=1.0), Recorder()
    informer.add_event_handler(handler)
    async with running(informer.run()):
        await asyncio.sleep(3.5)
    assert handler.told == ["initial add a"] + ["update uid-a -> uid-a"] * 3


async def test_watches_that_flap_do_not_multiply_the_resync_timer() -> None:
    """RF-26, reflector_test.go:TestReflectorResyncChan"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source, resync_s=10.0), Recorder()
    informer.add_event_handler(handler)
    async with running(informer.run()):
        for _ in range(4):
            await asyncio.sleep(2.0)
            source.end_watches()
        before = len(asyncio.all_tasks())
        await asyncio.sleep(2.5)
        assert len(asyncio.all_tasks()) == before
    assert len(source.watches) == 5
    assert handler.told == ["initial add a", "update uid-a -> uid-a"]


async def test_an_index_can_be_added_while_running_and_covers_what_is_there() -> None:
    """ST-05, shared_informer_test.go:TestIndexer"""
    source = FakeSource(pod("a"))
    informer = informer_over(source)
    async with settled(informer.run()):
        informer.add_indexers({"name": lambda item: [item.metadata.name]})
        assert len(informer.indexer.by_index("name", "a")) == 1
        with pytest.raises(IndexerError):
            informer.add_indexers({"name": by_node})


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


async def test_the_namespace_index_is_there_without_asking_where_there_are_namespaces() -> None:
    """ST-08"""
    assert informer_over(FakeSource()).indexer.has_index(NAMESPACE_INDEX)
    nodes = SharedIndexInformer(FakeSource[Pod](), Resource("", "v1", "nodes", "Node", namespaced=False))
    assert not nodes.indexer.has_index(NAMESPACE_INDEX)


async def test_a_lister_reads_the_cache() -> None:
    """ST-08, ST-09"""
    informer = informer_over(FakeSource(pod("a")))
    async with running(informer.run()):
        await informer.wait_for_sync()
        assert informer.lister().namespaced("ns").get("a").metadata.name == "a"


async def test_a_stopped_informer_takes_no_handlers_and_no_indices() -> None:
    """SI-05, shared_informer_test.go:TestAddOnStoppedSharedInformer, TestRemoveOnStoppedSharedInformer"""
    informer = informer_over(FakeSource())
    registration = informer.add_event_handler(Recorder())
    async with running(informer.run()):
        await informer.wait_for_sync()
        informer.stop()
        with pytest.raises(InformerStoppedError):
            informer.add_event_handler(Recorder())
    with pytest.raises(InformerStoppedError):
        informer.add_event_handler(Recorder())
    with pytest.raises(InformerStoppedError):
        informer.add_indexers({"x": by_node})
    informer.remove_event_handler(registration)
    await informer.run()
    assert informer.has_synced


async def test_running_twice_warns_and_returns() -> None:
    """SI-05, shared_informer_test.go:TestSharedInformerStartRace"""
    source = FakeSource[Pod]()
    informer = informer_over(source)
    async with settled(informer.run()):
        with capture_logs() as logs:
            await informer.run()
    assert [log["event"] for log in logs] == ["informer_started_twice"]
    assert len(source.lists) == 1


async def test_an_informer_that_is_stopped_before_it_runs_never_does() -> None:
    """SI-05, SI-08"""
    source = FakeSource[Pod]()
    informer = informer_over(source)
    registration = informer.add_event_handler(Recorder())
    informer.stop()
    await informer.run()
    assert source.lists == []
    with pytest.raises(InformerStoppedError):
        await informer.wait_for_sync()
    with pytest.raises(InformerStoppedError):
        await registration.wait_for_sync()


async def test_a_handler_that_is_removed_hears_nothing_more() -> None:
    """SI-06, shared_informer_test.go:TestSharedInformerRemoveHandler, TestRemovingRemovedSharedInformer"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source), Recorder()
    registration = informer.add_event_handler(handler)
    async with settled(informer.run()):
        informer.remove_event_handler(registration)
        informer.remove_event_handler(registration)
        source.add(pod("b"))
        await settle()
        assert len(informer.indexer) == 2
    assert handler.told == ["initial add a"]


async def test_a_flood_of_events_lets_the_loop_run_between_batches() -> None:
    """QF-05, QF-07: pop does not wait while there is work"""
    source = FakeSource[Pod]()
    informer = informer_over(source)
    async with settled(informer.run()):
        for number in range(3 * BATCH):
            informer._fifo.put(source_event(source, f"p{number}"))
        seen: list[int] = []
        while len(informer.indexer) < 3 * BATCH:
            seen.append(len(informer.indexer))
            await asyncio.sleep(0)
    assert {BATCH, 2 * BATCH} <= set(seen)


async def test_stopping_applies_and_delivers_what_is_queued_and_leaves_nothing_behind() -> None:
    """SI-14, shared_informer_test.go:TestShutdown, main_test.go leak check"""
    source = FakeSource(pod("a"))
    informer, handler = informer_over(source, resync_s=5.0), Recorder()
    informer.add_event_handler(handler)
    async with settled(informer.run()) as run:
        for number in range(1500):  # more than one batch, more than one turn of a listener
            informer._fifo.put(source_event(source, f"p{number}"))
        informer.stop()
        informer.stop()
        await run
        assert len(asyncio.all_tasks()) == 1
    assert source.open_watches == 0
    assert len(handler.told) == 1501
    assert len(informer.indexer) == 1501


def source_event(source: FakeSource[Pod], name: str) -> Added[Pod]:
    """An event that has left the reflector already."""
    return Added(source.add(pod(name), notify=False))


async def test_stopping_while_the_first_list_hangs_tells_those_who_wait() -> None:
    """SI-08, SI-14, RF-13"""
    source = FakeSource(pod("a"))
    source.hold.clear()
    informer = informer_over(source)
    async with settled(informer.run()) as run:
        waiting = asyncio.create_task(informer.wait_for_sync())
        informer.stop()
        await run
        with pytest.raises(InformerStoppedError):
            await waiting


async def test_cancelling_ends_everything_too() -> None:
    """SI-14, main_test.go leak check"""
    source = FakeSource(pod("a"))
    informer = informer_over(source, resync_s=5.0)
    informer.add_event_handler(Recorder())
    async with running(informer.run()):
        await informer.wait_for_sync()
    assert len(asyncio.all_tasks()) == 1
    assert source.open_watches == 0
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


async def test_a_thousand_changes_at_random_leave_cache_and_handlers_with_the_truth() -> None:
    """SI-01, SI-11, controller_test.go:TestHammerController, shared_informer_test.go:TestSharedInformerWatchDisruption"""
    for seed in range(20):
        random = Random(seed)
        source = FakeSource[Pod]()
        informer = informer_over(source)
        view: dict[str, Pod] = {}

        def on_add(item: Pod, _: bool, view: dict[str, Pod] = view) -> None:
            assert item.metadata.name not in view
            view[item.metadata.name] = item

        def on_update(old: Pod, new: Pod, view: dict[str, Pod] = view) -> None:
            assert view[old.metadata.name] is old
            view[new.metadata.name] = new

        def on_delete(item: Pod | Tombstone[Pod], view: dict[str, Pod] = view) -> None:
            name = item.object.metadata.name if isinstance(item, Tombstone) else item.metadata.name
            del view[name]

        with capture_logs() as logs:
            async with settled(informer.run()):
                informer.add_event_handler(EventHandlerFuncs(on_add=on_add, on_update=on_update, on_delete=on_delete))
                await churn(source, random)
                await asyncio.sleep(180.0)  # a watch is open by now, and the back-off has forgotten the churn
                await relisted(source)
        assert [log for log in logs if log["event"] == "handler_failed"] == []
        assert (
            view
            == {item.metadata.name: item for item in source.objects()}
            == {item.metadata.name: item for item in informer.indexer.list()}
        )
        nodes = {node: {item.metadata.name for item in informer.indexer.by_index("node", node)} for node in "xyz"}
        assert nodes == {node: {n for n, item in view.items() if item.status.message == node} for node in "xyz"}


async def churn(source: FakeSource[Pod], random: Random) -> None:
    """Fifty changes, some without an event, with streams that end in every way."""
    for number in range(50):
        heard = random.random() < 0.7
        name = f"p{random.randrange(8)}"
        item = pod(name, uid=f"uid-{number}", node=random.choice("xyz"))
        key = f"ns/{name}"
        known = any(other.metadata.name == name for other in source.objects())
        if not known:
            source.add(item, notify=heard)
        elif random.random() < 0.5:
            source.modify(item, notify=heard)
        else:
            source.delete(key, notify=heard)
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
