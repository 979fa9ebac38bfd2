"""Records events for `kubectl describe`. Recording one never blocks a controller.

    recorder = EventRecorder(client, component="kettle-operator", clock=LoopClock())
    recorder.event(object_reference(KETTLES, kettle.metadata), EventType.WARNING, "BoiledDry", "there is no water left")

A task must run `recorder.run()`. This package is independent of what the events report; dropped events are counted
(`workqueue.metrics`).

`EventRecorder` writes core/v1 events. It counts repeated events and combines similar ones, as kubectl displays them.
"""

from __future__ import annotations

from tfjob_operator.controller.events.delivery import Drop
from tfjob_operator.controller.events.recorder import EventRecorder

__all__ = ["Drop", "EventRecorder"]
