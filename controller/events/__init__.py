"""Events that people see in `kubectl describe`, recorded without ever making a controller wait.

    recorder = EventRecorder(client, component="kettle-operator", clock=LoopClock())
    recorder.event(reference, EVENT_WARNING, "BoiledDry", "there is no water left")

A task runs `recorder.run()`. Knows nothing of what the events are about; metrics are a port (`RecorderMetrics`).

The events are core/v1, which every server from 1.20 on serves and kubectl counts. The series of events.k8s.io/v1 (EV-10) are
left out: they cost a write every half hour per event that goes on, and show people no more.
"""

from __future__ import annotations

from controller.events.recorder import Drop, EventRecorder, RecorderMetrics

__all__ = ["Drop", "EventRecorder", "RecorderMetrics"]
