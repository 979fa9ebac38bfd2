"""Takes over the pods and services of jobs that another operator began (`decide/predecessor.py`).

Such a child is looked for by its name and given our labels, by which our watches select: then the caches show it, and from
there on it is a child like any other. Nothing is deleted or made again for it. A job that this operator began is never looked
at here, and one whose children the caches show costs no call.

Invariants:

- A job that another operator began is not planned before its children are in our caches: nothing is decided without them.
- What another object controls is left alone (B13).
- A patch of another operator's child carries the UID of that child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client.decoding import version_written
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.meta import controller_of
from tfjob_operator.api.owners import owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.jobs.children import NO_LABELS, Pod, Service
from tfjob_operator.controller.tfjob.decide.predecessor import labelling, may_have_hidden_children, unseen
from tfjob_operator.controller.tfjob.delays import FIRST_DELAY_S
from tfjob_operator.controller.tfjob.kinds import POD, SERVICE
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.jobs.children import ReplicaKey
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.kinds import ChildKind
    from tfjob_operator.controller.tfjob.view import View

MAX_AT_ONCE: Final = 16
"""As many reads and patches as creates (`creator.MAX_AT_ONCE`)."""

log = structlog.get_logger(__name__)


class Takeover:
    """Finds and labels what another operator made. Remembers nothing."""

    def __init__(self, client: RestClient, events: JobEvents, expectations: Expectations) -> None:
        """Nothing is asked before there is a job that another operator began."""
        self._client = client
        self._events = events
        self._expectations = expectations

    async def settle(self, view: View) -> float | None:
        """Return None when the job may be planned; else in how many seconds to look again, if no event comes before.

        Raises ApiError when a child cannot be read or patched: the job must then be tried again.
        """
        job, spec = view.job, view.good_spec
        if spec is None or not may_have_hidden_children(job):
            return None
        owner = owner_uid_key(job.metadata)
        if not view.may_act:  # what was labelled is not seen yet
            return self._expectations.expires_in_s(owner) or FIRST_DELAY_S
        told: list[str] = []
        for kind, known in ((POD, view.pods), (SERVICE, view.services)):  # a service selects by labels that its pod has
            taken = await self._take_all(job, spec, kind, list(unseen(job, spec, known)))
            if taken:
                told.append(f"{taken} {kind.name}{'s' if taken > 1 else ''}")
        if not told:
            return None
        message = f"Goes on with what another operator made for this TFJob: {', '.join(told)}"
        self._events.record(job, EventType.NORMAL, EventReason.TOOK_OVER, message)
        return self._expectations.expires_in_s(owner) or FIRST_DELAY_S

    async def _take_all(self, job: TFJob, spec: TFJobSpec, kind: ChildKind, keys: Sequence[ReplicaKey]) -> int:
        """Label the children of one kind that are there. Return how many; raises the first ApiError, and begins no more."""
        taken: list[bool] = []
        failures: list[ApiError] = []

        async def take(number: int) -> None:
            if failures:
                return
            try:
                taken.append(await self._take(job, spec, kind, keys[number]))
            except ApiError as error:
                failures.append(error)

        await parallelize_until(MAX_AT_ONCE, len(keys), take)
        if failures:
            raise failures[0]
        return sum(taken)

    async def _take(self, job: TFJob, spec: TFJobSpec, kind: ChildKind, key: ReplicaKey) -> bool:
        """Label the child of this replica. Return False if there is none, it is not the job's, is going, or needs no label."""
        meta = job.metadata
        slice_of_kind: type[Pod | Service] = Pod if kind is POD else Service
        try:
            child = await self._client.get(kind.resource, meta.namespace, key.name, slice_of_kind)
        except NotFoundError:
            return False
        owner = controller_of(child.metadata)
        labelled = (child.metadata.labels or NO_LABELS).operator_name == c.OPERATOR_NAME
        if owner is None or owner.uid != meta.uid or labelled or child.metadata.deletion_timestamp is not None:
            return False
        selector = (child.spec.selector or {}) if isinstance(child, Service) and child.spec is not None else {}
        body = labelling(meta, spec, key, child.metadata.uid, selector)
        self._expectations.expect_creations(owner_uid_key(meta), kind.name, [key.name])
        try:
            written = await self._client.patch(kind.resource, meta.namespace, key.name, body, content_type=MERGE_PATCH)
        except BaseException as error:
            self._expectations.creation_observed(owner_uid_key(meta), kind.name, key.name)
            if isinstance(error, NotFoundError):
                return False
            if isinstance(error, ApiError):
                text = f"Error taking over {kind.name} {key.name}: {error}"
                self._events.record(job, EventType.WARNING, kind.failed_relabel, text)
            raise
        self._expectations.creation_answered(meta, kind.name, key.name, version_written(written))
        log.info("child_taken_over", kind=kind.name, name=key.name)
        return True
