"""Writes the status of jobs: decides when, writes it, and tells of what it says in log lines, counters and events.

A status write costs the API server as much as two pods. So a condition that changed is written at once, and what says less
waits for what more there may be to say: mere counters for each other, and in a burst a job's first status for the pods of other
jobs, since they come first and mostly Created and Running can be said in one write.

Invariants:

- Nothing is told of a transition that is not on the server. A write that lost a race tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.meta import ObjectMeta, Struct
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobStatus
from tfjob_operator.controller.tfjob.build.references import reference_to
from tfjob_operator.controller.tfjob.decide.urgency import is_beginning, only_starts
from tfjob_operator.controller.tfjob.window import COUNTER_WINDOW_S, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.tfjob.decide.actions import JobEvent, Plan
    from tfjob_operator.controller.tfjob.handlers import Feed
    from tfjob_operator.controller.tfjob.metrics import JobMetrics
    from tfjob_operator.controller.tfjob.unkept import UnkeptStatus
    from tfjob_operator.controller.tfjob.view import View
    from tfjob_operator.workqueue import Clock

log = structlog.get_logger(__name__)


class _Written(Struct, frozen=True):
    metadata: ObjectMeta
    status: JobStatus = JobStatus()


class StatusWriter:
    """Replaces the status of jobs on the server. Reads nothing from it: what it writes over is known from the view."""

    def __init__(
        self,
        client: RestClient,
        recorder: EventRecorder,
        metrics: JobMetrics,
        unkept: UnkeptStatus,
        *,
        feed: Feed,
        clock: Clock,
    ) -> None:
        """`feed` brings back the jobs whose status waits, and says whether others are waiting."""
        self._client = client
        self._recorder = recorder
        self._metrics = metrics
        self._unkept = unkept
        self._feed = feed
        self._clock = clock
        self._windows: dict[str, Window] = {}

    async def settle(self, view: View, plan: Plan, *, at_once: bool) -> None:
        """Write what the plan's status says beyond what the server has, now or when it is due; `at_once` wants it now.

        A status that waits is kept in the view, and its job comes back when it is due. Raises ApiError; ConflictError when
        the view is not the newest version.
        """
        status = plan.status
        if status is None and view.job.status != view.written:
            status = view.job.status
        view.keep(status)
        if status is not None:
            if not (at_once or self._is_due(view, status)):
                return
            view.writing()
            view.wrote(await self.write(view.job, status, plan.events))
        self.forget(view.job.metadata.uid)

    async def write(self, job: TFJob, status: JobStatus, events: tuple[JobEvent, ...]) -> TFJob | None:
        """Write `status` over that of `job`. Return the job as the server has it now, or None when it is gone.

        What the server dropped of it is in `unkept`, and in the answer.

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
            answer = await self._client.patch(
                c.TFJOBS, meta.namespace, meta.name, body, _Written, subresource="status", content_type=JSON_PATCH
            )
        except NotFoundError:
            return None
        self._unkept.compare(job, status, answer.status)
        self._tell(job, status)
        for event in events:
            self._recorder.event(reference_to(job), event.type, event.reason, event.message)
        # The version in the patch proves that nothing but the status has changed since `job` was read.
        return msgspec.structs.replace(
            job,
            metadata=msgspec.structs.replace(meta, resource_version=answer.metadata.resource_version),
            status=status,
        )

    def forget(self, uid: str) -> None:
        """Drop the wait of a job's status: all is written, or the job is gone."""
        self._windows.pop(uid, None)

    def _is_due(self, view: View, status: JobStatus) -> bool:
        busy = self._feed.is_busy
        waits_for_pods = view.may_wait and busy and is_beginning(status)
        if status.conditions != view.written.conditions and not waits_for_pods:
            return True
        starts = waits_for_pods or only_starts(view.written, status)
        window = self._windows.setdefault(view.job.metadata.uid, Window())
        left_s = window.left_s(self._clock.monotonic(), starts=starts, busy=busy)
        if left_s <= 0:
            return True
        # By then the queue may be empty, and nothing left that would wake the job.
        self._feed.after(view.key, min(left_s, COUNTER_WINDOW_S))
        return False

    def _tell(self, job: TFJob, status: JobStatus) -> None:
        counters: dict[str, Callable[[str], None]] = {
            ConditionType.CREATED: self._metrics.job_created,
            ConditionType.SUCCEEDED: self._metrics.job_succeeded,
            ConditionType.FAILED: self._metrics.job_failed,
            ConditionType.RESTARTING: self._metrics.job_restarted,
        }
        for condition in status.conditions:
            if condition.status != conditions.TRUE or conditions.is_true(job.status, condition.type):
                continue
            if condition.type in counters:
                counters[condition.type](job.metadata.namespace)
            tell = log.warning if condition.type in {ConditionType.FAILED, ConditionType.RESTARTING} else log.info
            tell("tfjob_condition", condition=condition.type, reason=condition.reason, message=condition.message)
