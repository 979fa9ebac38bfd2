"""Events that people see in `kubectl describe`. Recording one never makes a controller wait.

    recorder = EventRecorder(client, component="kettle-operator", clock=LoopClock())
    recorder.event(reference, EVENT_WARNING, "BoiledDry", "there is no water left")

A task runs `recorder.run()`. This package does not know what the events are about; dropped events are counted
(`workqueue.metrics`).

`EventRecorder` writes core/v1 events, counts repeated ones and combines similar ones, as kubectl shows them.
`SeriesRecorder` writes events.k8s.io/v1: what goes on for hours costs one write every half hour, and keeps only the note of
its first event.
"""

from __future__ import annotations

from tfjob_operator.controller.events.drops import Drop
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.events.series_recorder import SeriesRecorder

__all__ = ["Drop", "EventRecorder", "SeriesRecorder"]
