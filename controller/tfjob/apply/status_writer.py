"""Writes the statuses of TFJobs, when they are due.

A status write costs the API server as much as creating two pods. So only changed conditions, and a decided end, are written
immediately. Changed counters wait for later changes. In a burst, the first status of a job waits for the status that reports
its pods, so Created and Running are usually written together. Once all replicas are active there is nothing to wait for.

Invariants:

- Only what is on the API server is counted, logged and recorded: a status write with a conflict has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.meta import Struct
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.conditions import end_record
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobMeta, JobStatus, TFJob
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S, PendingStatus
from tfjob_operator.controller.jobs.status_writer import StatusWriter
from tfjob_operator.controller.jobs.writes import JobEvents, replace_status
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.plan.accelerators import counts_accelerators, counts_end
from tfjob_operator.controller.tfjob.plan.types import Plan
from tfjob_operator.controller.tfjob.view import JobMemory, PrunedStatus, View
from tfjob_operator.workqueue import Clock


def only_starts(written: JobStatus, status: JobStatus) -> bool:
    """Return True if `status` differs from `written` only by more active pods, and what is recorded about them."""
    before, after = written.replica_statuses, status.replica_statuses
    if before.keys() != after.keys() or any(after[name].active < before[name].active for name in before):
        return False
    same = {name: msgspec.structs.replace(found, active=before[name].active) for name, found in after.items()}
    return written == msgspec.structs.replace(
        status,
        replica_statuses=same,
        last_reconcile_time=written.last_reconcile_time,
        accelerator_pods=written.accelerator_pods,
    )


def has_only_initial_conditions(status: JobStatus) -> bool:
    """Return True if `status` has no conditions besides Created and Running."""
    return all(condition.type in {ConditionType.CREATED, ConditionType.RUNNING} for condition in status.conditions)


def all_active(status: JobStatus, sizes: Mapping[str, int]) -> bool:
    """Return True if all replicas in the spec are active, so that no more starts are expected."""
    found = status.replica_statuses
    return all((found[name].active if name in found else 0) >= size for name, size in sizes.items())


class _StatusResponse(Struct, frozen=True):
    metadata: JobMeta
    status: JobStatus = JobStatus()


class TFJobStatusWriter(StatusWriter[TFJob, JobStatus]):
    """Writes the statuses of TFJobs, when they are due."""

    def __init__(
        self,
        client: RestClient,
        events: JobEvents,
        metrics: JobMetrics,
        clock: Clock,
        *,
        confirmer: Confirmer,
        pruned: PrunedStatus,
    ) -> None:
        """`pruned` remembers the fields that the API server prunes, which are restored in the job as stored."""
        super().__init__(client, events, metrics, clock)
        self._confirmer = confirmer
        self._pruned_status = pruned

    async def write_if_due(
        self, view: View, memory: JobMemory, plan: Plan, *, at_once: bool, busy: bool
    ) -> tuple[View, float | None]:
        """Write the status of the plan if it has changed: now if `at_once` or due, else later.

        Returns the view after the write or, if the status is delayed and kept in `memory`, the seconds until it is due. `busy`:
        other jobs are queued. Raises as `write`.
        """
        status, pending = plan.status, memory.status
        # The view has facts that are not written yet, or were pruned.
        if status is None and (view.job.status != view.written or self._pruned_status.is_due(view.job.metadata.uid)):
            status = view.job.status
        pending.computed(status, plan.events)
        if status is None:
            self.forget(view.job.metadata.uid)
            return view, None
        if not at_once and (due_in_s := self._due_s(view, pending, status, busy=busy)):
            return view, due_in_s
        if not memory.accelerators_confirmed and counts_accelerators(view.written, status):
            await self._confirmer.confirm_accelerators(view, plan.vanished)
            memory.accelerators_confirmed = True
        # The status of `view.job` may have conditions that were never written, and so not counted.
        job = msgspec.structs.replace(view.job, status=view.written)
        return view.after_write(await self.write(job, status, plan.events, pending)), None

    async def _replace(self, job: TFJob, status: JobStatus) -> TFJob | None:
        written = await replace_status(self._client, c.TFJOBS, job, status, _StatusResponse)
        if written is None:
            return None
        newest, response = written
        self._pruned_status.compare(job, status, response.status)
        self._metrics.ended(job.metadata.namespace, job.status.attempt_history, status.attempt_history)
        self._metrics.spent(job.metadata.namespace, job.status.accelerator_seconds, status.accelerator_seconds)
        return newest

    def _due_s(
        self, view: View, pending: PendingStatus[TFJob, JobStatus], status: JobStatus, *, busy: bool
    ) -> float | None:
        """Return the seconds until a changed status is due; None for now."""
        if end_record(status) != end_record(view.written):
            return None
        if counts_end(view.written, status):
            return None
        complete = view.valid_spec is not None and all_active(status, view.valid_spec.sizes)
        waits_for_pods = view.may_wait and busy and not complete and has_only_initial_conditions(status)
        if status.conditions != view.written.conditions and not waits_for_pods:
            return None
        starts = waits_for_pods or only_starts(view.written, status)
        if complete and starts:
            return None
        left_s = pending.delayed_s(self._clock.monotonic(), starts=starts, busy=busy)
        # After the window the queue may be empty, and nothing else would wake the job.
        return min(left_s, COUNTER_WINDOW_S) if left_s > 0 else None
