"""Our own writes, over a cache that does not have them yet."""

from __future__ import annotations

import msgspec
import pytest

from fakes.clock import FakeClock
from fakes.source import pod
from tfjob_operator.api.core import Pod
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers import Indexer, IndexerError, MutationCache
from tfjob_operator.informers.mutation_cache import SIZE


def at(item: Pod, version: str) -> Pod:
    """The same object at another version."""
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, resource_version=version))


class Rig:
    """An indexer of pods by node, and the writes over it."""

    def __init__(self, *, include_adds: bool = False) -> None:
        self.clock = FakeClock()
        self.indexer = Indexer[Pod]({"node": lambda item: [item.status.message]})
        self.cache = MutationCache(self.indexer, 60.0, include_adds=include_adds, clock=self.clock)

    def hear(self, item: Pod) -> Pod:
        """Store an object as a watch event would, and return it."""
        self.indexer.put(meta_key(item.metadata), item)
        return item

    def write(self, item: Pod) -> Pod:
        """Remember an object as the response to our own write, and return it."""
        self.cache.mutation(item)
        return item


def test_our_write_is_seen_until_the_watch_brings_it_or_something_newer() -> None:
    """ST-12, mutation_cache_test.go:TestMutationCacheOnAddOrUpdate"""
    rig = Rig()
    rig.hear(at(pod("a"), "9"))
    ours = rig.write(at(pod("a"), "10"))
    assert rig.cache.get("ns/a") is ours, "10 is newer than 9, though not as text"
    theirs = rig.hear(at(pod("a"), "11"))
    assert rig.cache.get("ns/a") is theirs
    rig.hear(at(pod("a"), "9"))
    assert rig.cache.get("ns/a") is not ours, "what was overtaken is forgotten"


def test_a_response_that_comes_late_does_not_replace_a_newer_one() -> None:
    """ST-12: two writes whose responses crossed"""
    rig = Rig()
    rig.hear(at(pod("a"), "9"))
    newer = rig.write(at(pod("a"), "12"))
    rig.write(at(pod("a"), "11"))
    assert rig.cache.get("ns/a") is newer


def test_a_write_is_forgotten_after_its_time() -> None:
    """ST-12: a write that no watch ever brings does not stay for ever"""
    rig = Rig()
    cached = rig.hear(at(pod("a"), "9"))
    rig.write(at(pod("a"), "10"))
    rig.clock.step(60.001)
    assert rig.cache.get("ns/a") is cached


def test_what_is_gone_from_the_cache_is_gone() -> None:
    """ST-12, mutation_cache_test.go:TestMutationCacheOnDelete: it was created and not seen yet, or deleted; nobody can tell"""
    rig = Rig()
    rig.write(at(pod("a"), "10"))
    assert rig.cache.get("ns/a") is None
    assert rig.cache.by_index("node", "") == []


def test_what_was_recreated_is_seen_as_it_is_now() -> None:
    """ST-12, mutation_cache_test.go:TestMutationCacheUpdateConcurrentRecreate"""
    rig = Rig()
    rig.hear(at(pod("a", uid="old"), "9"))
    rig.write(at(pod("a", uid="old"), "10"))
    rig.indexer.remove("ns/a")
    assert rig.cache.get("ns/a") is None
    again = rig.hear(at(pod("a", uid="new"), "12"))
    assert rig.cache.get("ns/a") is again


def test_creations_count_where_that_is_wanted() -> None:
    """ST-12: by name and by index, each once"""
    rig = Rig(include_adds=True)
    first = rig.write(at(pod("a", node="n1"), "10"))
    rig.write(at(pod("b", node="n2"), "11"))
    assert rig.cache.get("ns/a") is first
    assert rig.cache.by_index("node", "n1") == [first]
    rig.hear(first)
    assert rig.cache.by_index("node", "n1") == [first]
    rig.clock.step(60.001)
    assert rig.cache.by_index("node", "n2") == []


def test_an_index_includes_our_writes() -> None:
    """ST-12"""
    rig = Rig()
    rig.hear(at(pod("a", node="n1"), "9"))
    ours = rig.write(at(pod("a", node="n1"), "10"))
    assert rig.cache.by_index("node", "n1") == [ours]
    with pytest.raises(IndexerError):
        rig.cache.by_index("colour", "red")


def test_only_so_many_writes_are_remembered() -> None:
    """ST-12: the oldest go first"""
    rig = Rig(include_adds=True)
    for number in range(SIZE + 1):
        rig.write(at(pod(f"p{number}"), str(10 + number)))
    assert rig.cache.get("ns/p0") is None
    assert rig.cache.get("ns/p1") is not None


@pytest.mark.parametrize(("cached", "written"), [("abc", "10"), ("9", "abc"), ("9", "")])
def test_where_versions_are_no_numbers_the_cache_is_right(cached: str, written: str) -> None:
    """ST-12: an aggregated server may have versions of any kind"""
    rig = Rig()
    theirs = rig.hear(at(pod("a"), cached))
    rig.write(at(pod("a"), written))
    assert rig.cache.get("ns/a") is theirs
