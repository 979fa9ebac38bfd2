"""Equal values, stored once."""

from __future__ import annotations

from tfjob_operator.api.decoding import LARGEST, SharedValues


def test_an_equal_value_is_the_one_that_was_seen_before() -> None:
    """However often it is made anew."""
    shared = SharedValues()
    first, second = (f"mnist-{kind}" for kind in ("worker", "worker"))
    assert first is not second
    assert shared[first] is first
    assert shared[second] is first


def test_what_never_comes_again_is_forgotten() -> None:
    """At most so many are kept: names of jobs come and go for as long as the process lives."""
    shared = SharedValues(most=10)
    for number in range(1000):
        value = f"job-{number}"
        assert shared[value] is value
        assert len(shared) <= 10


def test_a_large_value_is_not_kept() -> None:
    """A tenant's pods may say whatever fits into etcd: it must not stay in memory when they are gone."""
    shared = SharedValues()
    large = ("x" * LARGEST,)
    assert shared[large] is large
    assert not shared
