"""What a plan is made of: values that the pure half of the controller answers and the other half carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from api.core import Pod, Service
    from api.v1.types import JobStatus


@dataclass(frozen=True, slots=True)
class Slot:
    """One replica's place: its type and index, and the name that its pod and its service bear."""

    type: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job. Events of a plan are recorded once the plan's status is on the server."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to delete, and what to record when that is done beside the deletion itself."""

    pod: Pod
    event: JobEvent | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. `status` is None when the one on the server says all there is to say.

    `look_again_s` is in how many seconds time alone will change the answer; None when it will not. `delete_job` is due when
    the job has outlived its TTL.
    """

    create_services: tuple[Slot, ...] = ()
    create_pods: tuple[Slot, ...] = ()
    status: JobStatus | None = None
    events: tuple[JobEvent, ...] = ()
    delete_pods: tuple[PodDeletion, ...] = ()
    delete_services: tuple[Service, ...] = ()
    delete_job: bool = False
    look_again_s: float | None = None

    @property
    def acts(self) -> bool:
        """Whether anything but the status is to be changed."""
        return bool(
            self.create_services or self.create_pods or self.delete_pods or self.delete_services or self.delete_job
        )


NOTHING: Final = Plan()
