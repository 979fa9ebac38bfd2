"""Status writes of both dialects, and statuses that the API server refuses to store: a Warning, a metric, and retries.

A status is replaced as a whole, without reading: the view contains the current one. Only what is on the API server is counted,
logged and recorded: a write with a conflict has no effect.

Some refusals last: the object is too large for etcd, or a CRD, a policy or a webhook rejects it. The status is written before
anything else, so until it is accepted no child is created or deleted: facts would be lost with the children. Pods that run are
not affected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import (
    ConflictError,
    NamespaceTerminatingError,
    NotFoundError,
    StatusError,
    TooManyRequestsError,
    UnauthorizedError,
)
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.jobs.pending import J, PendingStatus, S
from tfjob_operator.controller.jobs.writes import JobEvents, StaleViewError
from tfjob_operator.controller.manager import RequeueError
from tfjob_operator.workqueue import Clock

WARN_AFTER_S: Final = 20.0
"""How long a status must be refused before that is reported: webhooks and API servers that restart also refuse requests."""
RETRY_S: Final = 15.0
"""The time between two attempts to store a status whose refusal was reported. The delay of a failing key grows to 1000 s, and
the cause may be gone without an event of the job. Events of its pods do not send it earlier: it may be larger than 1 MB."""
_NOT_ABOUT_THE_STATUS: Final = (
    ConflictError,
    NamespaceTerminatingError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
)


class _Refusal(NamedTuple):
    """The monotonic times of the first and the last refusal of a job's statuses, and the version of the job at the last one."""

    first_s: float
    last_s: float
    resource_version: str

    @property
    def is_reported(self) -> bool:
        return self.last_s - self.first_s >= WARN_AFTER_S


class StatusRefusals:
    """The jobs whose status was refused the last time, by UID."""

    def __init__(self, events: JobEvents, metrics: JobMetrics, clock: Clock) -> None:
        self._events = events
        self._reported = metrics.refused_statuses
        self._clock = clock
        self._refused: dict[str, _Refusal] = {}

    @contextmanager
    def writing(self, job: Meta) -> Iterator[None]:
        """Observe the result of a status write, which is what the block does.

        Raises RequeueError instead of executing the block if a refusal was reported and the next attempt is not due. An attempt
        is due at once after each change of the job, such as a shorter spec.
        """
        before = self._refused.get(job.uid)
        due_in_s = self.due_in_s(job.uid)
        is_same = before is not None and before.is_reported and before.resource_version == job.resource_version
        if is_same and due_in_s is not None:
            raise RequeueError(f"the API server refused the status; the next attempt is in {due_in_s:.0f}s")
        try:
            yield
        except StatusError as error:
            if not isinstance(error, _NOT_ABOUT_THE_STATUS):
                self._note(job, error)
            raise
        self.forget(job.uid)

    def due_in_s(self, uid: str) -> float | None:
        """Return the seconds until the status of a job may be sent again; None if it may be sent now."""
        refusal = self._refused.get(uid)
        left_s = 0.0 if refusal is None else refusal.last_s + RETRY_S - self._clock.monotonic()
        return left_s if left_s > 0 else None

    def forget(self, uid: str) -> None:
        """Forget a job: its status was stored or needs no write, or the job is gone."""
        self._refused.pop(uid, None)
        self._reported.discard(uid)

    def _note(self, job: Meta, error: StatusError) -> None:
        now, before = self._clock.monotonic(), self._refused.get(job.uid)
        refusal = self._refused[job.uid] = _Refusal(before.first_s if before else now, now, job.resource_version)
        if not refusal.is_reported:
            return
        self._reported.add(job.uid)
        why = f"{error.code} {error.status_message or error.reason}"
        text = "The API server refuses to store the status. Running pods continue, and none is created or deleted meanwhile"
        self._events.warn(job, EventReason.STATUS_REFUSED, f"{text}: {why}")


class StatusWriter(ABC, Generic[J, S]):
    """Writes the statuses of the jobs of one kind."""

    def __init__(self, client: RestClient, events: JobEvents, metrics: JobMetrics, clock: Clock) -> None:
        self._client = client
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._refusals = StatusRefusals(events, metrics, clock)

    async def write(self, job: J, status: S, events: Sequence[JobEvent], pending: PendingStatus[J, S]) -> J:
        """Write `status` to `job`, and record its events. Return the job as stored.

        Raises ConflictError if `job` is not the newest version: the status must then be recomputed. Raises StaleViewError if
        the job is gone: nothing may be created for it. Raises the ApiError of a refusal.
        """
        pending.sent()
        with self._refusals.writing(job.metadata):
            written = await self._replace(job, status)
        pending.known(job, written)
        if written is None:
            raise StaleViewError("the job is gone")
        self._metrics.observe(job.metadata, job.status.conditions or (), status.conditions or ())
        for event in events:
            self._events.post(job.metadata, event)
        return written

    def due_in_s(self, uid: str) -> float | None:
        """Return the seconds until the status of a job may be sent again; None if it may be sent now."""
        return self._refusals.due_in_s(uid)

    def forget(self, uid: str) -> None:
        """Forget the refusals of a job: its status needs no write, or the job is gone."""
        self._refusals.forget(uid)

    @abstractmethod
    async def _replace(self, job: J, status: S) -> J | None:
        """Replace the status. Return the job as stored, or None if it is gone."""
