"""Events that people see in `kubectl describe`, recorded without ever making a controller wait.

    recorder = EventRecorder(client, component="kettle-operator", clock=LoopClock())
    recorder.event(reference, EVENT_WARNING, "BoiledDry", "there is no water left")

A task runs `recorder.run()`. Knows nothing of what the events are about; what is lost is counted (`workqueue.metrics`).

`EventRecorder` writes core/v1, which kubectl counts, and combines what is similar. `SeriesRecorder` writes events.k8s.io/v1:
what goes on for hours costs a write every half hour, and of all that was noted only the first is kept.
"""

from __future__ import annotations

from tfjob_operator.controller.events.drops import Drop
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.events.series_recorder import SeriesRecorder

__all__ = ["Drop", "EventRecorder", "SeriesRecorder"]
