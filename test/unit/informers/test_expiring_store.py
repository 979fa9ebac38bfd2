"""The store whose items expire."""

from __future__ import annotations

import pytest

from fakes.clock import FakeClock
from tfjob_operator.informers import ExpiringStore


def test_an_item_is_good_for_its_time_and_gone_after_it() -> None:
    """ST-11, expiration_cache_test.go:TestTTLExpirationBasic, TestTTLPolicy: exactly at the end it is still there"""
    clock = FakeClock()
    store = ExpiringStore[str](30.0, clock=clock)
    store.put("foo", "bar")
    clock.step(30.0)
    assert store.get("foo") == "bar"
    clock.step(0.001)
    assert store.get("foo") is None
    assert store.list() == []


def test_an_item_that_is_put_again_begins_anew() -> None:
    """ST-11, expiration_cache_test.go:TestReAddExpiredItem"""
    clock = FakeClock()
    store = ExpiringStore[str](30.0, clock=clock)
    store.put("foo", "bar")
    clock.step(31.0)
    store.put("foo", "different")
    clock.step(20.0)
    assert store.get("foo") == "different"


def test_a_list_has_what_is_still_good() -> None:
    """ST-11, expiration_cache_test.go:TestTTLList"""
    clock = FakeClock()
    store = ExpiringStore[str](30.0, clock=clock)
    store.put("a", "old")
    clock.step(20.0)
    store.put("b", "young")
    clock.step(20.0)
    assert store.list() == ["young"]
    store.replace({"c": "1", "d": "2"})
    clock.step(30.0)
    store.remove("c")
    store.remove("never there")
    assert store.list() == ["2"]


@pytest.mark.parametrize("ttl_s", [0.0, -1.0])
def test_without_a_time_nothing_expires(ttl_s: float) -> None:
    """ST-11, expiration_cache_test.go:TestTTLPolicy"""
    clock = FakeClock()
    store = ExpiringStore[str](ttl_s, clock=clock)
    store.put("foo", "bar")
    clock.step(1e9)
    assert store.get("foo") == "bar"
