"""Events of events.k8s.io/v1 as people meet them: recorded here, written to a real API server, read with kubectl."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from fakes.metrics import Drops
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.controller.events import SeriesRecorder
from tfjob_operator.workqueue import LoopClock

if TYPE_CHECKING:
    from hack.control_plane import ControlPlane


async def test_what_happens_again_is_one_event_with_a_series(control_plane: ControlPlane, namespace: str) -> None:
    """EV-10, eventseries_test.go:TestEventSeriesWithEventSinkImplRace; event_broadcaster_test.go:TestRecordEventToSink.

    The server forgets an event after an hour; here the event is deleted, and on its stop the recorder writes the series anew.
    """

    async def kubectl(*arguments: str) -> str:
        command = (*arguments, f"--namespace={namespace}")
        return (await asyncio.to_thread(control_plane.run_kubectl, *command)).stdout

    async def series(count: int) -> dict[str, Any]:
        """The only event, when its series has that count."""
        found: list[dict[str, Any]] = []
        for _ in range(100):
            found = json.loads(await kubectl("get", "events.v1.events.k8s.io", "--output=json"))["items"]
            if [event.get("series", {}).get("count") for event in found] == [count]:
                return found[0]
            await asyncio.sleep(0.1)
        raise AssertionError(f"not one event with a series of {count}: {found}")

    config_map = json.loads(await kubectl("create", "configmap", "kettle", "--output=json"))
    about = {"api_version": "v1", "namespace": namespace}
    kettle = ObjectReference(kind="ConfigMap", name="kettle", uid=config_map["metadata"]["uid"], **about)
    socket = ObjectReference(kind="Service", name="socket", **about)
    settings = await asyncio.to_thread(load_settings, str(control_plane.kubeconfig))
    drops = Drops()
    async with HttpTransport(settings) as transport, asyncio.TaskGroup() as group:
        recorder = SeriesRecorder(
            RestClient(transport, field_manager="kettle-operator"),
            controller="example.com/kettle-operator",
            instance="kettle-operator-1",
            clock=LoopClock(),
            metrics=drops,
        )
        group.create_task(recorder.run(), name="recorder")
        try:
            for cup in range(40):
                recorder.event(
                    kettle, EventType.WARNING, "BoiledDry", "Heating", f"no water for cup {cup}", related=socket
                )
            begun = await series(2)
            assert (begun["note"], begun["action"], begun["type"]) == ("no water for cup 0", "Heating", "Warning")
            assert begun["reportingController"] == "example.com/kettle-operator"
            assert begun["reportingInstance"] == "kettle-operator-1"
            assert begun["regarding"]["uid"] == kettle.uid
            assert begun["related"]["name"] == "socket"
            assert begun["eventTime"] <= begun["series"]["lastObservedTime"]
            assert "BoiledDry" in await kubectl("describe", "configmap", "kettle")
            await kubectl("delete", "events", "--all")
        finally:
            recorder.stop()
    ended = await series(40)
    assert ended["metadata"]["name"] == begun["metadata"]["name"]
    assert ended["eventTime"] == begun["eventTime"]
    assert ended["series"]["lastObservedTime"] > begun["series"]["lastObservedTime"]
    assert not drops.count
