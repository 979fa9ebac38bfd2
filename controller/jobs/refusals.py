"""Statuses that the API server refuses to store: a Warning, a metric, and retries. In both dialects.

Some refusals last: the object is too large for etcd, or a CRD, a policy or a webhook rejects it. The status is written before
anything else, so until it is accepted no child is created or deleted: facts would be lost with the children. Pods that run are
not affected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tfjob_operator.api.client.errors import (
    ConflictError,
    NamespaceTerminatingError,
    NotFoundError,
    StatusError,
    TooManyRequestsError,
    UnauthorizedError,
)
from tfjob_operator.api.meta import Meta, meta_key
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.jobs.expectations import Feed
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.workqueue import Clock

WARN_AFTER_S: Final = 20.0
"""How long a status must be refused before that is reported: webhooks and API servers that restart also refuse requests."""
RETRY_S: Final = 15.0
"""The longest time between two attempts. The delay of a failing key grows to 1000 s, and the cause may be gone without an
event of the job."""
_NOT_ABOUT_THE_STATUS: Final = (
    ConflictError,
    NamespaceTerminatingError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
)


class StatusRefusals:
    """The jobs whose status was refused the last time, by UID, with the time of the first refusal."""

    def __init__(self, events: JobEvents, metrics: JobMetrics, feed: Feed, clock: Clock) -> None:
        """`feed` requeues the jobs."""
        self._events = events
        self._reported = metrics.refused_statuses
        self._feed = feed
        self._clock = clock
        self._since: dict[str, float] = {}

    @contextmanager
    def writing(self, job: Meta) -> Iterator[None]:
        """Observe the result of a status write, which is what the block does."""
        try:
            yield
        except StatusError as error:
            if not isinstance(error, _NOT_ABOUT_THE_STATUS):
                self._refused(job, error)
            raise
        self.forget(job.uid)

    def forget(self, uid: str) -> None:
        """Forget a job: its status was stored or needs no write, or the job is gone."""
        self._since.pop(uid, None)
        self._reported.discard(uid)

    def _refused(self, job: Meta, error: StatusError) -> None:
        now = self._clock.monotonic()
        self._feed.after(meta_key(job), RETRY_S)
        if now - self._since.setdefault(job.uid, now) < WARN_AFTER_S:
            return
        self._reported.add(job.uid)
        why = f"{error.code} {error.status_message or error.reason}"
        text = "The API server refuses to store the status. Running pods continue, and none is created or deleted meanwhile"
        self._events.warn(job, EventReason.STATUS_REFUSED, f"{text}: {why}")
