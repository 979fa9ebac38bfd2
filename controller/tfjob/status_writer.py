"""Writes a job's status, and tells of what it says: log lines, counters, events, each once per transition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tfjob_operator.api.client.decoding import decode_answer
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.client.rest import JSON_PATCH
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import ObjectMeta, Struct
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import JobStatus
from tfjob_operator.controller.tfjob.build.references import reference_to
from tfjob_operator.controller.tfjob.unkept import UnkeptStatus
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.tfjob.decide.actions import JobEvent
    from tfjob_operator.controller.tfjob.metrics import JobMetrics

MAX_LOOKS_AT_ONCE: Final = 16
"""As many as a job's creates and deletes: five hundred pods that restart together delay the status by thirty round trips."""

log = structlog.get_logger(__name__)


class _Answer(Struct, frozen=True):
    metadata: ObjectMeta


class _Written(Struct, frozen=True):
    metadata: ObjectMeta
    status: JobStatus = JobStatus()


class StaleViewError(ApiError):
    """The job, or a pod of it, is no longer what the cache showed. What is new will come, and with it another sync."""


class StatusWriter:
    """Replaces the status of jobs on the server.

    Invariant: nothing is told of a transition that is not on the server, so a write that lost a race tells nothing.
    """

    def __init__(self, client: RestClient, recorder: EventRecorder, metrics: JobMetrics) -> None:
        self.unkept = UnkeptStatus(recorder)
        self._client = client
        self._recorder = recorder
        self._metrics = metrics

    async def write(self, job: TFJob, status: JobStatus, events: tuple[JobEvent, ...]) -> TFJob | None:
        """Write `status` over that of `job`. Answers the job as the server has it now, or None when it is gone.

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
            raw = await self._client.patch(
                c.TFJOBS, meta.namespace, meta.name, body, subresource="status", content_type=JSON_PATCH
            )
        except NotFoundError:
            return None
        answer = decode_answer(raw, _Written, request=f"PATCH status of TFJob {meta.name}")
        self.unkept.compare(job, status, answer.status)
        self._tell(job, status)
        for event in events:
            self._recorder.event(reference_to(job), event.type, event.reason, event.message)
        # The version in the patch proves that nothing but the status has changed since `job` was read.
        return msgspec.structs.replace(
            job,
            metadata=msgspec.structs.replace(meta, resource_version=answer.metadata.resource_version),
            status=status,
        )

    async def confirm(self, job: TFJob) -> None:
        """Ask the server whether `job` is its newest version. Raises StaleViewError if it is not, or is gone."""
        meta = job.metadata
        try:
            raw = await self._client.get(c.TFJOBS, meta.namespace, meta.name)
        except NotFoundError as error:
            raise StaleViewError("the job is gone") from error
        answer = decode_answer(raw, _Answer, request=f"GET TFJob {meta.name}").metadata
        if answer.resource_version != meta.resource_version:
            raise StaleViewError("the job has changed since the cache saw it")

    async def confirm_pods(self, namespace: str, pods: Sequence[tuple[str, str]]) -> None:
        """Ask the server whether these pods, by name and UID, are there: `MAX_LOOKS_AT_ONCE` at a time.

        Raises StaleViewError if one is gone, or another one has its name, else any ApiError; after the first one no more are
        asked for.
        """
        failures: list[ApiError] = []

        async def look(number: int) -> None:
            if failures:
                return
            try:
                await self._confirm_pod(namespace, *pods[number])
            except ApiError as error:
                failures.append(error)

        await parallelize_until(MAX_LOOKS_AT_ONCE, len(pods), look)
        if failures:
            raise failures[0]

    async def _confirm_pod(self, namespace: str, name: str, uid: str) -> None:
        try:
            raw = await self._client.get(PODS, namespace, name)
        except NotFoundError as error:
            raise StaleViewError(f"pod {name} is gone") from error
        if decode_answer(raw, _Answer, request=f"GET pod {name}").metadata.uid != uid:
            raise StaleViewError(f"pod {name} is another one than the cache saw")

    def _tell(self, job: TFJob, status: JobStatus) -> None:
        counters = {
            c.CREATED: self._metrics.job_created,
            c.SUCCEEDED: self._metrics.job_succeeded,
            c.FAILED: self._metrics.job_failed,
            c.RESTARTING: self._metrics.job_restarted,
        }
        for condition in status.conditions:
            if condition.status != conditions.TRUE or conditions.is_true(job.status, condition.type):
                continue
            if condition.type in counters:
                counters[condition.type](job.metadata.namespace)
            tell = log.warning if condition.type in {c.FAILED, c.RESTARTING} else log.info
            tell("tfjob_condition", condition=condition.type, reason=condition.reason, message=condition.message)
