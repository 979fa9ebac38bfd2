"""Adopts orphans, takes over children of other operators, and repairs children edited by users.

`plan/replicas.py` decides which children these are. A child of another operator is found by name and gets our labels, by which
our watches select children. Once the caches contain it, it is handled like any other child; nothing is deleted or recreated.
Jobs started by this operator are skipped, and a job whose children are all in the caches costs no request. A repair that fails,
or is reverted by another edit, is repeated with growing delays; nothing waits for it.

Invariants:

- Nothing is adopted before the job was read from the API server.
- Every patch of a child specifies its UID: another object of the same name is not modified.
- An adoption counts as an expected create until the cache contains the child. A failed adoption is reported as an event and
  delays nothing.
- A job started by another operator is not planned before its children are in our caches.
- Objects controlled by another object are not modified.
- A rejected repair is reported as an event and not raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.decoding import version_written
from tfjob_operator.api.client.errors import ApiError, ConflictError, InvalidError, NotFoundError
from tfjob_operator.api.client.options import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.meta import ObjectMeta, controller_of, owner_uid_key
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import TFJob, TFJobSpec
from tfjob_operator.controller.jobs.blocked import FIRST_DELAY_S, Delays
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildMeta, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.writes import MAX_AT_ONCE, ChildKind, JobEvents
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.apply.creator import POD, SERVICE
from tfjob_operator.controller.tfjob.build.builder import labels_of, owner_reference, selector_of
from tfjob_operator.controller.tfjob.plan.replicas import (
    Drift,
    adoption_patch,
    claims,
    may_have_hidden_children,
    missing_children,
)
from tfjob_operator.controller.tfjob.plan.types import Plan
from tfjob_operator.controller.tfjob.view import View
from tfjob_operator.workqueue.parallel import parallelize_until, slow_start_batch

_FAILED: Final = {POD.name: EventReason.FAILED_ADOPT_POD, SERVICE.name: EventReason.FAILED_ADOPT_SERVICE}
log = structlog.get_logger(__name__)


class Adoptions(NamedTuple):
    """What came of the adoptions of a sync."""

    adopted: bool
    """True if something was adopted: another sync follows when the caches show it."""
    wait_s: float | None
    """The time until the next adoption is due."""


class RefManager:
    """Writes controller references."""

    def __init__(
        self,
        client: RestClient,
        confirmer: Confirmer,
        events: JobEvents,
        expectations: Expectations,
        delays: Delays,
    ) -> None:
        self._client = client
        self._confirmer = confirmer
        self._events = events
        self._expectations = expectations
        self._delays = delays

    async def claim(self, view: View) -> Adoptions:
        """Adopt the orphans that a job claims, if it is active, its spec is valid and its expectations are satisfied."""
        meta = view.job.metadata
        ends = meta.deletion_timestamp is not None or conditions.is_over(view.job.status)
        if ends or not view.may_act or view.valid_spec is None:
            return Adoptions(adopted=False, wait_s=None)
        claimed: tuple[Pod | Service, ...] = (
            *claims(meta.name, view.pods, view.orphan_pods),
            *claims(meta.name, view.services, view.orphan_services),
        )
        return await self.adopt(view.job, claimed)

    async def adopt(self, job: TFJob, children: Sequence[Pod | Service]) -> Adoptions:
        """Adopt those of these children whose adoption is due.

        The job is first read from the API server, once for all adoptions. Raises ApiError unless the cache has the version that
        was read.
        """
        owner = owner_uid_key(job.metadata)
        due: list[tuple[ChildKind, ChildMeta]] = []
        waits: list[float] = []
        for child in children:
            wait_s = self._delays.wait_s(owner, _adoption_key(child.metadata))
            if wait_s > 0:
                waits.append(wait_s)
            else:
                due.append((POD if isinstance(child, Pod) else SERVICE, child.metadata))
        changed: list[bool] = []

        async def try_one(number: int) -> None:
            kind, child = due[number]
            try:
                changed.append(await self._adopt(job.metadata, kind, child))
                self._delays.clear(owner, _adoption_key(child))
            except ApiError as error:
                wait_s = self._delays.tried(owner, _adoption_key(child))
                waits.append(wait_s)
                # Usually another controller was faster, which the cache will show: warn only if it happens again.
                if wait_s > FIRST_DELAY_S or not isinstance(error, (ConflictError, InvalidError)):
                    self._events.record(
                        job.metadata,
                        EventType.WARNING,
                        _FAILED[kind.name],
                        f"Error adopting {kind.name} {child.name}: {error}",
                    )

        if due:
            await self._confirmer.confirm(job)
            await parallelize_until(MAX_AT_ONCE, len(due), try_one)
        return Adoptions(any(changed), min(waits, default=None))

    async def _adopt(self, job: ObjectMeta, kind: ChildKind, child: ChildMeta) -> bool:
        owner = owner_uid_key(job)
        self._expectations.expect_creations(owner, kind.name, [child.name])
        body = {"metadata": {"uid": child.uid, "ownerReferences": [owner_reference(job)]}}
        try:
            written = await self._client.patch(
                kind.resource, child.namespace, child.name, body, content_type=STRATEGIC_MERGE_PATCH
            )
        except NotFoundError:
            self._expectations.creation_observed(owner, kind.name, child.name)
            return False
        except BaseException:
            self._expectations.creation_observed(owner, kind.name, child.name)
            raise
        self._expectations.creation_answered(job, kind.name, child.name, version_written(written))
        log.info("child_adopted", kind=kind.name, name=child.name)
        return True


def _adoption_key(child: ChildMeta) -> str:
    return f"adopt {child.uid}"


class Takeover:
    """Finds and labels children created by another operator. Stateless."""

    def __init__(self, client: RestClient, events: JobEvents, expectations: Expectations) -> None:
        """No requests are sent unless a job was started by another operator."""
        self._client = client
        self._events = events
        self._expectations = expectations

    async def ensure_labelled(self, view: View) -> float | None:
        """Return None if the job may be planned, else the seconds until the next check, unless an event comes first.

        Raises ApiError if a child cannot be read or patched: the job must then be retried.
        """
        job, spec = view.job, view.valid_spec
        if spec is None or not may_have_hidden_children(job):
            return None
        owner = owner_uid_key(job.metadata)
        if not view.may_act:  # labeled children are not in the caches yet
            return self._expectations.expires_in_s(owner) or FIRST_DELAY_S
        adopted: list[str] = []
        for kind, known in ((POD, view.pods), (SERVICE, view.services)):  # a service selects by labels that its pod has
            taken = await self._label_all(job, spec, kind, list(missing_children(job, spec, known)))
            if taken:
                adopted.append(f"{taken} {kind.name}{'s' if taken > 1 else ''}")
        if not adopted:
            return None
        message = f"Adopted {' and '.join(adopted)} created by another operator"
        self._events.record(job.metadata, EventType.NORMAL, EventReason.ADOPTED, message)
        return self._expectations.expires_in_s(owner) or FIRST_DELAY_S

    async def _label_all(self, job: TFJob, spec: TFJobSpec, kind: ChildKind, keys: Sequence[ReplicaKey]) -> int:
        """Label the existing children of one kind and return their number. Raises the first ApiError and sends no more."""
        labelled: list[bool] = []

        async def take(number: int) -> None:
            labelled.append(await self._label(job, spec, kind, keys[number]))

        _, error = await slow_start_batch(len(keys), take, MAX_AT_ONCE, at_once=MAX_AT_ONCE)
        if error is not None:
            raise error
        return sum(labelled)

    async def _label(self, job: TFJob, spec: TFJobSpec, kind: ChildKind, key: ReplicaKey) -> bool:
        """Label the child of this replica. Return False if it does not exist, is not ours, is terminating, or has the label."""
        meta = job.metadata
        struct_of_kind: type[Pod | Service] = Pod if kind is POD else Service
        try:
            child = await self._client.get(kind.resource, meta.namespace, key.name, struct_of_kind)
        except NotFoundError:
            return False
        owner = controller_of(child.metadata)
        labelled = (child.metadata.labels or NO_LABELS).operator_name == c.OPERATOR_NAME
        if owner is None or owner.uid != meta.uid or labelled or child.metadata.deletion_timestamp is not None:
            return False
        selector = (child.spec.selector or {}) if isinstance(child, Service) and child.spec is not None else {}
        body = adoption_patch(meta, spec, key, child.metadata.uid, selector)
        self._expectations.expect_creations(owner_uid_key(meta), kind.name, [key.name])
        try:
            written = await self._client.patch(kind.resource, meta.namespace, key.name, body, content_type=MERGE_PATCH)
        except BaseException as error:
            self._expectations.creation_observed(owner_uid_key(meta), kind.name, key.name)
            if isinstance(error, NotFoundError):
                return False
            if isinstance(error, ApiError):
                text = f"Error adopting {kind.name} {key.name}: {error}"
                self._events.record(job.metadata, EventType.WARNING, _FAILED[kind.name], text)
            raise
        self._expectations.creation_answered(meta, kind.name, key.name, version_written(written))
        log.info("child_taken_over", kind=kind.name, name=key.name)
        return True


@dataclass(frozen=True, slots=True)
class _Patch:
    """A patch, and the texts of its events."""

    kind: ChildKind
    drift: Drift
    content_type: str
    body: object
    text: str
    done: str
    failed: str

    @property
    def what(self) -> str:
        """The key of this repair in `Delays`: this change of this child."""
        return f"{self.done} {self.drift.child.metadata.uid}"


class ChildRepairer:
    """Patches children that were edited."""

    def __init__(self, client: RestClient, events: JobEvents, delays: Delays) -> None:
        self._client = client
        self._events = events
        self._delays = delays

    async def repair(self, job: TFJob, spec: TFJobSpec, plan: Plan) -> float | None:
        """Send the repairs that are due. Return the seconds until the next one, or None.

        The patched child later appears in the cache. If it was edited again by then, it is patched again after the delay.
        """
        owner = owner_uid_key(job.metadata)
        due: list[_Patch] = []
        waits: list[float] = []
        for patch in _patches(job, spec, plan):
            wait_s = self._delays.wait_s(owner, patch.what)
            if wait_s > 0:
                waits.append(wait_s)
            else:
                due.append(patch)

        async def send(number: int) -> None:
            wait_s = self._delays.tried(owner, due[number].what)
            if not await self._send(job, due[number], wait_s):
                waits.append(wait_s)

        await parallelize_until(MAX_AT_ONCE, len(due), send)
        return min(waits, default=None)

    async def _send(self, job: TFJob, patch: _Patch, wait_s: float) -> bool:
        """Send one patch. Return False if it must be retried, in `wait_s` seconds."""
        meta, kind = patch.drift.child.metadata, patch.kind
        try:
            await self._client.patch(
                kind.resource, meta.namespace, meta.name, patch.body, content_type=patch.content_type
            )
        except NotFoundError:
            return True
        except ApiError as error:
            # Usually another child has this name by now, which the cache will show: warn only if it happens again.
            if wait_s > FIRST_DELAY_S or not isinstance(error, (ConflictError, InvalidError)):
                self._events.record(
                    job.metadata, EventType.WARNING, patch.failed, f"Error patching {kind.name} {meta.name}: {error}"
                )
            return False
        self._events.record(
            job.metadata,
            EventType.WARNING,
            patch.done,
            f"{patch.text} of {kind.name} {meta.name} after an external edit",
        )
        return True


def _patches(job: TFJob, spec: TFJobSpec, plan: Plan) -> Iterator[_Patch]:
    for drift in plan.label_drift:
        kind = POD if isinstance(drift.child, Pod) else SERVICE
        body: dict[str, Any] = {
            "metadata": {"uid": drift.child.metadata.uid, "labels": labels_of(job.metadata, spec, drift.key)}
        }
        yield _Patch(kind, drift, MERGE_PATCH, body, "Restored labels", kind.relabelled, kind.failed_relabel)
    for drift in plan.selector_drift:
        operations = [
            {"op": "replace", "path": "/metadata/uid", "value": drift.child.metadata.uid},
            {"op": "add", "path": "/spec/selector", "value": selector_of(labels_of(job.metadata, spec, drift.key))},
        ]
        yield _Patch(
            SERVICE,
            drift,
            JSON_PATCH,
            operations,
            "Restored selector",
            EventReason.RESTORED_SERVICE_SELECTOR,
            EventReason.FAILED_RESTORE_SERVICE_SELECTOR,
        )
