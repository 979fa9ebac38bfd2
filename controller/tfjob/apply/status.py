"""Writes the status of jobs: decides when, writes it, and counts, logs and records what is new in it.

A status write costs the API server as much as creating two pods. So a changed condition is written at once, and less
important changes wait for more of them: counters for other counters, and in a burst a job's first status for its pods,
since pods are created first and then Created and Running mostly become one write. When all replicas are active there is
nothing to wait for.

Invariants:

- Only what is on the API server is counted, logged and recorded: a write that met a conflict leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.meta import ObjectMeta, Struct
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S, Window
from tfjob_operator.controller.jobs.expectations import Feed
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.jobs.problems import JobEvent
from tfjob_operator.controller.jobs.reporting import JobEvents
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import UnkeptStatus, View
from tfjob_operator.workqueue import Clock


def only_starts(written: JobStatus, status: JobStatus) -> bool:
    """Return whether `status` differs from `written` only in that more pods are active."""
    before, after = written.replica_statuses, status.replica_statuses
    if before.keys() != after.keys() or any(after[name].active < before[name].active for name in before):
        return False
    same = {name: msgspec.structs.replace(found, active=before[name].active) for name, found in after.items()}
    return written == msgspec.structs.replace(
        status, replica_statuses=same, last_reconcile_time=written.last_reconcile_time
    )


def is_beginning(status: JobStatus) -> bool:
    """Return whether the only conditions of `status` are Created and Running."""
    return all(each.type in {ConditionType.CREATED, ConditionType.RUNNING} for each in status.conditions)


def all_active(status: JobStatus, sizes: Mapping[str, int]) -> bool:
    """Return whether as many replicas are active as the specification asks for, by type: no more starts are to come."""
    found = status.replica_statuses
    return all((found[name].active if name in found else 0) >= size for name, size in sizes.items())


class _Written(Struct, frozen=True):
    metadata: ObjectMeta
    status: JobStatus = JobStatus()


class StatusWriter:
    """Replaces the status of jobs on the API server. It reads nothing from there: the view knows what is being overwritten."""

    def __init__(
        self,
        client: RestClient,
        events: JobEvents,
        metrics: JobMetrics,
        unkept: UnkeptStatus,
        *,
        feed: Feed,
        clock: Clock,
    ) -> None:
        """`feed` queues a job again whose status waits, and knows whether other jobs wait in the queue."""
        self._client = client
        self._events = events
        self._metrics = metrics
        self._unkept = unkept
        self._feed = feed
        self._clock = clock
        self._windows: dict[str, Window] = {}

    async def write_if_due(self, view: View, plan: Plan, *, at_once: bool) -> View:
        """Write the status of the plan if it differs from that on the API server: now if `at_once` or if it is due, else later.

        Returns the view after the write. A status that waits is kept in the view's memory, and its job is queued for when it is
        due. Raises ApiError; ConflictError when the view is not the newest version.
        """
        status = plan.status
        if status is None and view.job.status != view.written:
            status = view.job.status
        view.keep(status)
        if status is not None:
            if not (at_once or self._is_due(view, status)):
                return view
            view.writing()
            view = view.wrote(await self.write(view.job, status, plan.events))
        self.forget(view.job.metadata.uid)
        return view

    async def write(self, job: TFJob, status: JobStatus, events: tuple[JobEvent, ...]) -> TFJob | None:
        """Write `status` over that of `job`. Return the job as the API server has it now, or None when it is gone.

        Fields that the API server dropped are remembered in `unkept`, and are in the returned job.

        Raises ConflictError when `job` is not the newest version: the status must then be computed anew, not written again.
        """
        meta = job.metadata
        # A JSON patch, because it replaces the status whole (a merge would keep counters of types that are gone), and because
        # the version in it makes the server refuse what was computed from a stale view.
        body = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            response = await self._client.patch(
                c.TFJOBS, meta.namespace, meta.name, body, _Written, subresource="status", content_type=JSON_PATCH
            )
        except NotFoundError:
            return None
        self._unkept.compare(job, status, response.status)
        self._metrics.observe(meta, job.status.conditions, status.conditions)
        for event in events:
            self._events.post(meta, event)
        # The version in the patch proves that nothing but the status has changed since `job` was read.
        return msgspec.structs.replace(
            job,
            metadata=msgspec.structs.replace(meta, resource_version=response.metadata.resource_version),
            status=status,
        )

    def forget(self, uid: str) -> None:
        """Drop the record of a waiting status: it is written, or the job is gone."""
        self._windows.pop(uid, None)

    def _is_due(self, view: View, status: JobStatus) -> bool:
        busy = self._feed.is_busy
        complete = view.good_spec is not None and all_active(status, view.good_spec.sizes)
        waits_for_pods = view.may_wait and busy and not complete and is_beginning(status)
        if status.conditions != view.written.conditions and not waits_for_pods:
            return True
        starts = waits_for_pods or only_starts(view.written, status)
        if complete and starts:
            return True
        window = self._windows.setdefault(view.job.metadata.uid, Window())
        left_s = window.left_s(self._clock.monotonic(), starts=starts, busy=busy)
        if left_s <= 0:
            return True
        # By then the queue may be empty, and nothing left that would wake the job.
        self._feed.after(view.key, min(left_s, COUNTER_WINDOW_S))
        return False
