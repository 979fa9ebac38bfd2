"""Events from the recorder over a real API server to kubectl."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fakes.metrics import Drops
from hack.control_plane import ControlPlane
from integration.cluster import Namespace
from support.waiting import eventually, until
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.workqueue import LoopClock


@dataclass
class Bench:
    """A recorder on the real server, and the object that its events are about: kubectl describes a ConfigMap with them."""

    place: Namespace
    recorder: EventRecorder
    kettle: ObjectReference
    drops: Drops

    async def kubectl(self, *arguments: str) -> str:
        return await asyncio.to_thread(self.place.kubectl, *arguments)

    def record(self, message: str, reason: str = "Boiled", event_type: str = EventType.NORMAL) -> None:
        self.recorder.event(self.kettle, event_type, reason, message)

    async def events(self, expected: int) -> list[dict[str, Any]]:
        """All events of the namespace, when their counts add up to what was expected."""

        def counted() -> list[dict[str, Any]]:
            seen = self.place.items("events")
            return seen if sum(event["count"] for event in seen) == expected else []

        found: list[dict[str, Any]] = await asyncio.to_thread(eventually, counted, f"{expected} events are written")
        return found


@asynccontextmanager
async def bench_on(plane: ControlPlane, namespace: str) -> AsyncIterator[Bench]:
    """A bench whose recorder runs, and is stopped at the end."""
    settings = await asyncio.to_thread(load_settings, str(plane.kubeconfig))
    place, drops = Namespace(plane, namespace), Drops()
    await asyncio.to_thread(place.post, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kettle"}})
    uid = place.uids("configmaps")["configmaps/kettle"]
    kettle = ObjectReference(api_version="v1", kind="ConfigMap", namespace=namespace, name="kettle", uid=uid)
    async with HttpTransport(settings) as transport, asyncio.TaskGroup() as group:
        client = RestClient(transport, field_manager="kettle-operator")
        recorder = EventRecorder(client, component="kettle-operator", host="here", clock=LoopClock(), metrics=drops)
        group.create_task(recorder.run(), name="recorder")
        try:
            yield Bench(place, recorder, kettle, drops)
        finally:
            recorder.stop()


async def test_events_are_described_with_their_counts(control_plane: ControlPlane, namespace: str) -> None:
    """EV-01, EV-02, EV-04, events_cache_test.go:TestEventCorrelator: what a person sees of them."""
    async with bench_on(control_plane, namespace) as bench:
        for _ in range(3):
            bench.record("whistles")
        bench.record("there is no water left", "BoiledDry", EventType.WARNING)
        events = await bench.events(4)
        assert sorted((event["type"], event["message"], event["count"]) for event in events) == [
            ("Normal", "whistles", 3),
            ("Warning", "there is no water left", 1),
        ]
        for event in events:
            assert event["source"] == {"component": "kettle-operator", "host": "here"}
            assert (event["reportingComponent"], event["reportingInstance"]) == ("kettle-operator", "here")
        text = await bench.kubectl("describe", "configmap", "kettle")
        assert "(x3 over" in text
        assert "there is no water left" in text
        assert "Warning  BoiledDry" in text
        assert not bench.drops.count


async def test_a_hundred_similar_events_are_nine_and_a_combined_one(
    control_plane: ControlPlane, namespace: str
) -> None:
    """EV-03, EV-05, EV-07: the creates of a large job cost the API server 25 writes."""
    async with bench_on(control_plane, namespace) as bench:
        for number in range(100):
            bench.record(f"cup {number}")
        events = await bench.events(25)
        counts = {event["message"]: event["count"] for event in events}
        assert counts == {f"cup {number}": 1 for number in range(9)} | {"(combined from similar events): cup 24": 16}
        # The server has the 25th write before the recorder reads its response and drops the others.
        await until(
            lambda: bench.drops.count == {("Normal", "spam"): 75},
            "75 events are dropped",
            yet=lambda: bench.drops.count,
        )


async def test_an_event_that_has_expired_is_made_anew_with_its_count(
    control_plane: ControlPlane, namespace: str
) -> None:
    """EV-08, event_test.go:TestUpdateExpiredEvent: the server forgets an event after an hour; here it is deleted."""
    async with bench_on(control_plane, namespace) as bench:
        bench.record("whistles")
        (first,) = await bench.events(1)
        await bench.kubectl("delete", "events", "--all")
        bench.record("whistles")
        (second,) = await bench.events(2)
        assert second["metadata"]["name"] == first["metadata"]["name"]
        assert second["firstTimestamp"] == first["firstTimestamp"]
        assert not bench.drops.count


async def test_events_of_a_namespace_that_goes_are_let_go_silently(control_plane: ControlPlane, namespace: str) -> None:
    """EV-08: a refusal with NamespaceTerminating is no failure, so the event is not counted as dropped."""
    async with bench_on(control_plane, namespace) as bench:
        hold, let_go = '{"metadata": {"finalizers": ["example.com/hold"]}}', '{"metadata": {"finalizers": null}}'
        await bench.kubectl("patch", "configmap", "kettle", f"--patch={hold}")
        await bench.kubectl("delete", "namespace", namespace, "--wait=false")
        bench.record("whistles", event_type=EventType.WARNING)
        await asyncio.sleep(1.0)
        await bench.kubectl("patch", "configmap", "kettle", f"--patch={let_go}")
    assert not bench.drops.count
