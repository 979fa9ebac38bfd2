"""What is counted where."""

from __future__ import annotations

import asyncio

import pytest

from fakes.metrics import FakeMetrics
from fakes.objects import Pod
from fakes.source import FakeSource, expired, pod, running, settle, status_error
from tfjob_operator.api.client.errors import ConnectionLostError
from tfjob_operator.api.core import PODS
from tfjob_operator.informers import EventHandlerFuncs, SharedIndexInformer
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import Added
from tfjob_operator.informers.metrics import version_as_number


@pytest.mark.parametrize(
    ("version", "number"), [("12", 12.0), ("", 0.0), ("opaque", 0.0), ("1" + "0" * 13 + "42", 42.0)]
)
def test_a_version_is_a_number_of_its_last_fifteen_digits(version: str, number: float) -> None:
    """A7"""
    assert version_as_number(version) == number


async def test_an_informer_counts_what_it_does() -> None:
    """A7, identity_test.go:TestWithResource"""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    provider = FakeMetrics()
    source = FakeSource(pod("a"), pod("b"))
    source.skipped = [Skipped(TypeError("bad"), "ns/y")]
    informer = SharedIndexInformer(source, PODS, name="pods/ns", metrics=provider, random=lambda: 0.0)
    informer.add_event_handler(EventHandlerFuncs[Pod](on_add=fail))
    async with running(informer.run()):
        await settle()
        source.end_watches()  # short
        await asyncio.sleep(0.8)
        await settle()
        source.add(pod("c"))
        source.send(Skipped(TypeError("bad"), "ns/x", "14"))
        await asyncio.sleep(10.0)
        source.end_watches(status_error(500, "Boom"))
        await settle()
        series = provider
        assert series["reflector_last_resource_version"].read() == 14.0
        assert series["informer_store_resource_version"].read() == 14.0
        assert series["informer_store_objects"].read() == 3.0
        assert series["informer_queued_items"].read() == 0.0
    assert {key[1:] for key in provider.series} == {("pods/ns",)}
    assert series["reflector_lists_total"].count == 2
    assert series["reflector_items_per_list"].observed == [2, 2]
    assert series["reflector_watches_total"].count == 2
    assert series["reflector_short_watches_total"].count == 1
    assert series["reflector_items_per_watch"].observed == [0, 2]
    assert series["reflector_watch_duration_seconds"].observed[1] == pytest.approx(10.0, abs=0.01)
    assert series["reflector_failures_total"].count == 1
    assert series["informer_undecodable_objects_total"].count == 3  # in two lists, and in a watch
    assert series["informer_handler_errors_total"].count == 3
    assert series["reflector_list_duration_seconds"].observed == pytest.approx([0.0, 0.0])
    assert series["informer_processing_latency_seconds"].observed == pytest.approx([0.0, 0.0, 0.0])


@pytest.mark.parametrize("error", [status_error(403, "Forbidden"), ZeroDivisionError()], ids=["refused", "a bug"])
async def test_a_list_that_fails_is_counted(error: Exception) -> None:
    """A7"""
    provider = FakeMetrics()
    source = FakeSource(pod("a"))
    source.list_errors = [error]
    informer = SharedIndexInformer(source, PODS, metrics=provider)
    async with running(informer.run()):
        await settle()
    assert provider["reflector_failures_total"].count == 1
    assert provider["reflector_lists_total"].count == 0


async def test_a_streamed_list_that_is_lost_is_counted() -> None:
    """A7, RF-28: it is begun anew, so it has cost a list."""
    provider = FakeMetrics()
    source = FakeSource(pod("a"), streaming=True)
    source.initial_events = [[Added(pod("a"))]]
    informer = SharedIndexInformer(source, PODS, metrics=provider)
    async with running(informer.run()):
        await settle()
        source.end_watches(ConnectionLostError("cut"))
        await settle()
    assert provider["reflector_failures_total"].count == 1
    assert provider["reflector_lists_total"].count == 0


async def test_a_collection_that_was_streamed_counts_as_a_list_and_its_stream_as_a_watch() -> None:
    """A7, RF-27: dashboards go on to show how often, how long and how much"""
    provider = FakeMetrics()
    source = FakeSource(pod("a"), pod("b"), streaming=True)
    source.initial_events = [[]]
    informer = SharedIndexInformer(source, PODS, metrics=provider)
    async with running(informer.run()):
        await asyncio.sleep(5.0)
        assert provider["reflector_lists_total"].count == 0
        source.end_watches(status_error(500, "Boom"))
        await settle()
        source.end_watches(expired())
        await asyncio.sleep(10.0)
        source.end_watches()
        await settle()
    series = provider
    assert series["reflector_lists_total"].count == 2
    assert series["reflector_items_per_list"].observed == [2, 2]
    assert series["reflector_watches_total"].count == 3
    assert series["reflector_items_per_watch"].observed == [0, 0, 3]  # no event; none; two objects and their bookmark
