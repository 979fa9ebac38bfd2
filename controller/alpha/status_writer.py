"""Writes the status of jobs in the alpha dialect, and reports what is new in it.

Invariants: a transition is not reported before it is on the server; a write that lost a race reports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.core import object_reference
from tfjob_operator.api.meta import PartialObjectMetadata
from tfjob_operator.controller.jobs.transitions import observe
from tfjob_operator.controller.jobs.window import Window

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus
    from tfjob_operator.controller.alpha.decide.actions import Plan
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.jobs.metrics import JobMetrics
    from tfjob_operator.workqueue import Clock


class AlphaStatusWriter:
    """Replaces the status of jobs on the server. If only counters changed it waits up to a second, as in `controller.tfjob`."""

    def __init__(
        self, dialect: Dialect, client: RestClient, recorder: EventRecorder, metrics: JobMetrics, *, clock: Clock
    ) -> None:
        self._dialect = dialect
        self._client = client
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._windows: dict[str, Window] = {}

    def wait_s(self, job: AlphaJob, status: AlphaStatus) -> float:
        """Return for how many seconds this status may wait; 0 if it is to be written now."""
        same = msgspec.structs.replace(
            status,
            replica_statuses=job.status.replica_statuses,
            alpha_replica_statuses=job.status.alpha_replica_statuses,
            last_reconcile_time=job.status.last_reconcile_time,
        )
        if same != job.status:
            return 0.0
        window = self._windows.setdefault(job.metadata.uid, Window())
        return max(0.0, window.left_s(self._clock.monotonic(), starts=False, busy=False))

    async def write(self, job: AlphaJob, plan: Plan, status: AlphaStatus) -> AlphaJob | None:
        """Write `status`. Return the job as the server has it now, or None when it is gone.

        Raises ConflictError when `job` is not the newest version: the status must then be computed anew.
        """
        meta = job.metadata
        body = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "add", "path": "/status", "value": status.to_wire()},
        ]
        try:
            response = await self._client.patch(
                self._dialect.resource,
                meta.namespace,
                meta.name,
                body,
                PartialObjectMetadata,
                subresource="status",
                content_type=JSON_PATCH,
            )
        except NotFoundError:
            return None
        self.forget(meta.uid)
        observe(self._metrics, meta.namespace, job.status.conditions or (), status.conditions or ())
        for event in plan.events:
            self._recorder.event(
                object_reference(self._dialect.resource, meta), event.type, event.reason, event.message
            )
        # The version in the patch proves that nothing but the status has changed since `job` was read.
        version = response.metadata.resource_version
        return msgspec.structs.replace(
            job, metadata=msgspec.structs.replace(meta, resource_version=version), status=status
        )

    def forget(self, uid: str) -> None:
        """Drop the wait of a job's status: all is written, or the job is gone."""
        self._windows.pop(uid, None)
