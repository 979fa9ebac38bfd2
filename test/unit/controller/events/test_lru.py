"""A cache that forgets what was not used for longest."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import FakeClock
from tfjob_operator.controller.events.recorder import KEPT_S, LRUCache


def test_the_entry_that_was_not_used_for_longest_goes_first() -> None:
    """EV-06: groupcache's LRU, where a read is a use too."""
    cache: LRUCache[str, int] = LRUCache(FakeClock(), 2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert cache.get("b") is None
    assert (cache.get("a"), cache.get("c"), len(cache)) == (1, 3, 2)


def test_writing_an_entry_again_counts_as_use() -> None:
    """EV-06: without a read before it."""
    cache: LRUCache[str, int] = LRUCache(FakeClock(), 2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        cache.put(key, value)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (3, None, 4)


def test_what_was_not_used_for_long_goes_though_there_is_room() -> None:
    """EV-06: events of objects that are gone are not remembered for ever."""
    clock = FakeClock()
    cache: LRUCache[str, int] = LRUCache(clock, 9)
    cache.put("a", 1)
    cache.put("b", 2)
    clock.step(KEPT_S)
    assert cache.get("a") == 1
    clock.step(1.0)
    cache.drop_old()
    assert (cache.get("a"), cache.get("b"), len(cache)) == (1, None, 1)


@given(size=st.integers(1, 4), uses=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_it_behaves_like_a_list_in_the_order_of_use(size: int, uses: Sequence[tuple[bool, int]]) -> None:
    """EV-06, against a model."""
    cache: LRUCache[int, int] = LRUCache(FakeClock(), size)
    model: list[tuple[int, int]] = []
    for step, (is_put, key) in enumerate(uses):
        known = dict(model)
        if is_put:
            cache.put(key, step)
            known[key] = step
        else:
            assert cache.get(key) == known.get(key)
        if key in known:
            model = [entry for entry in model if entry[0] != key] + [(key, known[key])]
        model = model[-size:]
        assert len(cache) == len(model)
