"""An event recorder that stores events."""

from fakes.api import FakeClient
from kit.virtual_loop import FakeClock
from tfjob_operator.api.core import ObjectReference
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.workqueue import Clock


class FakeRecorder(EventRecorder):
    """Stores events as (type, reason, message)."""

    def __init__(self) -> None:
        super().__init__(FakeClient(), component="test", clock=FakeClock())
        self.events: list[tuple[str, str, str]] = []
        self.refuses: Exception | None = None
        """What `write` raises."""

    def event(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        self.events.append((event_type, reason, message))

    async def write(self, regarding: ObjectReference, event_type: str, reason: str, message: str, *, fact: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.events.append((event_type, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


def job_events(recorder: EventRecorder | None = None, clock: Clock | None = None) -> JobEvents:
    return JobEvents(TFJOBS, recorder or FakeRecorder(), clock or FakeClock())
