"""What a plan is made of: values that the pure half of the controller returns and the other half carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tfjob_operator.api.v1alpha1.types import AlphaStatus
    from tfjob_operator.controller.alpha.children import BatchJob
    from tfjob_operator.controller.jobs.children import ConfigMap, Pod, ReplicaKey, Service
    from tfjob_operator.controller.jobs.job_event import JobEvent
    from tfjob_operator.controller.jobs.problems import Problem

    Child = BatchJob | Pod | Service | ConfigMap


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: first the status, then creates, then deletes.

    `status` is None when the one on the server says all there is to say; `events` are recorded once it is written. `runtime_id`
    is that of the children to create; `problems` are what keeps pods from starting.
    """

    status: AlphaStatus | None = None
    events: tuple[JobEvent, ...] = ()
    runtime_id: str = ""
    create_services: tuple[ReplicaKey, ...] = ()
    create_config_map: bool = False
    create_jobs: tuple[ReplicaKey, ...] = ()
    delete: tuple[Child, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether anything is to be made or deleted."""
        return bool(self.create_services or self.create_config_map or self.create_jobs or self.delete)


NOTHING: Final = Plan()
