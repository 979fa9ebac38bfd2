"""What is remembered of the children of jobs between syncs, and forgotten with a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_operator.api.owners import owner_uid_key

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.tfjob.blocked import BlockedChildren
    from tfjob_operator.controller.tfjob.delays import Delays


@dataclass(frozen=True, slots=True)
class ChildRecords:
    """The records of children. They may be lost with the process: the caches of a new one are filled before it acts."""

    expectations: Expectations
    delays: Delays
    blocked: BlockedChildren

    def forget(self, job: ObjectMeta) -> None:
        """Drop the records of a job that is gone."""
        owner = owner_uid_key(job)
        self.expectations.forget(owner)
        self.delays.forget(owner)
        self.blocked.forget(job)
