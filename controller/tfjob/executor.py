"""Carries out what a `Plan` says about pods and services, each call answered for whatever comes back.

Decides nothing about jobs. What it knows is the API: which answers mean that the work is done already, which that it must be
tried again, and which that it never can be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from api.client.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
)
from api.core import PODS, SERVICES
from api.meta import ObjectMeta, Resource, Struct, controller_of
from api.v1 import constants as c
from controller.tfjob.pod_template import build_pod, build_service
from controller.tfjob.references import reference_to
from workqueue.parallel import parallelize_until, slow_start_batch

if TYPE_CHECKING:
    from api.client import RestClient
    from api.v1.types import TFJob, TFJobSpec
    from controller.events.recorder import EventRecorder
    from controller.tfjob.actions import JobEvent, Plan, Slot
    from controller.tfjob.expectations import Expectations

MAX_DELETES_AT_ONCE: Final = 16
"""As many as a job's creates reach after a few batches; more would only queue inside the API server."""

log = structlog.get_logger(__name__)


class NameTakenError(ApiError):
    """A child can not be created because an object that is not this job's bears its name."""


class RefusedError(ApiError):
    """The API server calls a child invalid. It would say so again: the job's specification must change."""


@dataclass(frozen=True, slots=True)
class ChildKind:
    """A kind of child, and the events that tell of it."""

    name: str
    resource: Resource
    created: str
    failed_create: str
    deleted: str
    failed_delete: str


POD: Final = ChildKind(
    "pod", PODS, c.EVENT_CREATED_POD, c.EVENT_FAILED_CREATE_POD, c.EVENT_DELETED_POD, c.EVENT_FAILED_DELETE_POD
)
SERVICE: Final = ChildKind(
    "service",
    SERVICES,
    c.EVENT_CREATED_SERVICE,
    c.EVENT_FAILED_CREATE_SERVICE,
    c.EVENT_DELETED_SERVICE,
    c.EVENT_FAILED_DELETE_SERVICE,
)


class _Identity(Struct, frozen=True):
    metadata: ObjectMeta


class Executor:
    """Creates and deletes the children of jobs.

    Invariant: an expectation set here is lowered here when its call fails or is never made; what is left is met by what the
    informers see (EX-04).
    """

    def __init__(
        self, client: RestClient, recorder: EventRecorder, expectations: Expectations, *, domain: str = ""
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._expectations = expectations
        self._domain = domain

    async def create_children(self, job: TFJob, spec: TFJobSpec, plan: Plan) -> None:
        """Create what the plan says is missing: many replicas at once in growing batches (SB-01), and a replica's service
        before its pod (B63).

        Raises the first ApiError; RefusedError when the API server calls a child invalid.
        """
        services = {slot.name: slot for slot in plan.create_services}
        pods = {slot.name: slot for slot in plan.create_pods}
        slots = list((services | pods).values())
        uid = job.metadata.uid
        self._expectations.expect_creations(uid, SERVICE.name, services)
        self._expectations.expect_creations(uid, POD.name, pods)

        async def create(number: int) -> None:
            slot = slots[number]
            if slot.name in services:
                await self._create(job, SERVICE, slot, build_service(job.metadata, spec, slot))
                del services[slot.name]
            if slot.name in pods:
                await self._create(job, POD, slot, build_pod(job.metadata, spec, slot, domain=self._domain))
                del pods[slot.name]

        try:
            _, error = await slow_start_batch(len(slots), create)
        finally:
            # What is left in the two was refused, failed, or was never begun.
            for kind, left in ((SERVICE, services), (POD, pods)):
                for name in left:
                    self._expectations.creation_observed(uid, kind.name, name)
        if error is not None:
            raise error

    async def _create(self, job: TFJob, kind: ChildKind, slot: Slot, body: dict[str, Any]) -> None:
        """Create one child. Returns when it exists and is ours; else raises ApiError."""
        meta = job.metadata
        try:
            await self._client.create(kind.resource, meta.namespace, body)
        except NamespaceTerminatingError:
            self._expectations.creation_observed(meta.uid, kind.name, slot.name)  # no error, no event (SB-03)
        except AlreadyExistsError:
            # Whether the cache has seen it already can not be known, so it must not be waited for (B76).
            self._expectations.creation_observed(meta.uid, kind.name, slot.name)
            await self._check_owner(job, kind, slot)
        except (InvalidError, BadRequestError) as error:
            raise RefusedError(f"{kind.name} {slot.name} was refused: {error.status_message}") from error
        except ApiError as error:
            self._record(job, c.WARNING, kind.failed_create, f"Error creating: {error}")
            raise
        else:
            self._record(job, c.NORMAL, kind.created, f"Created {kind.name}: {slot.name}")

    async def _check_owner(self, job: TFJob, kind: ChildKind, slot: Slot) -> None:
        """Ask whose the object in the way is: ours, from an attempt whose answer was lost (WR-07), is as good as created.

        Raises NameTakenError for any other, with a Warning on the job unless it is about to go (B12).
        """
        taken = f"{kind.name} {slot.name} exists already and is not controlled by this TFJob"
        try:
            raw = await self._client.get(kind.resource, job.metadata.namespace, slot.name)
        except NotFoundError as error:
            raise NameTakenError(f"{kind.name} {slot.name} has just gone; it can be created now") from error
        found = msgspec.json.decode(raw, type=_Identity).metadata
        owner = controller_of(found)
        if owner is not None and owner.uid == job.metadata.uid:
            return
        # A child of an earlier job of this name goes with its owner; only a stranger needs a person.
        leaving = found.deletion_timestamp is not None or (owner is not None and owner.name == job.metadata.name)
        if not leaving:
            self._record(job, c.WARNING, kind.failed_create, f"Error creating: {taken}")
        raise NameTakenError(taken)

    async def delete_children(self, job: TFJob, plan: Plan) -> None:
        """Delete what the plan says must go. Raises the first ApiError, after all have been tried."""
        targets: list[tuple[ChildKind, ObjectMeta, JobEvent | None]] = [
            (POD, deletion.pod.metadata, deletion.event) for deletion in plan.delete_pods
        ]
        targets += [(SERVICE, service.metadata, None) for service in plan.delete_services]
        failures: list[ApiError] = []
        for kind, meta, _ in targets:
            self._expectations.expect_deletions(job.metadata.uid, kind.name, [meta.uid])

        async def delete(number: int) -> None:
            kind, meta, event = targets[number]
            try:
                await self._delete(job, kind, meta, event)
            except ApiError as error:
                self._expectations.deletion_observed(job.metadata.uid, kind.name, meta.uid)
                self._record(job, c.WARNING, kind.failed_delete, f"Error deleting: {error}")
                failures.append(error)

        await parallelize_until(MAX_DELETES_AT_ONCE, len(targets), delete)
        if failures:
            raise failures[0]

    async def _delete(self, job: TFJob, kind: ChildKind, meta: ObjectMeta, event: JobEvent | None) -> None:
        """Delete one child, or find it gone (B14), or find another one under its name, which the UID protects (WR-08).

        A pod is deleted only in the version that was looked at: a newer one may hold a success, or a failure, that nobody has
        written down yet. It is on its way into the cache, and a sync comes with it.
        """
        seen = meta.resource_version if kind is POD else None
        try:
            await self._client.delete(kind.resource, meta.namespace, meta.name, uid=meta.uid, resource_version=seen)
        except (NotFoundError, ConflictError):
            self._expectations.deletion_observed(job.metadata.uid, kind.name, meta.uid)
            return
        if event is not None:
            self._record(job, event.type, event.reason, event.message)
        self._record(job, c.NORMAL, kind.deleted, f"Deleted {kind.name}: {meta.name}")

    async def delete_job(self, job: TFJob) -> None:
        """Delete the job itself, as it is known; its children go with it. Raises ConflictError when it has changed since."""
        meta = job.metadata
        try:
            await self._client.delete(
                c.TFJOBS,
                meta.namespace,
                meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation="Background",
            )
        except NotFoundError:
            return
        except ConflictError:
            raise  # its TTL may have been edited: not an event, the next sync sees what is true
        except ApiError as error:
            self._record(job, c.WARNING, c.EVENT_FAILED_DELETE_JOB, f"Error deleting: {error}")
            raise
        self._record(job, c.NORMAL, c.EVENT_DELETED_JOB, f"Deleted job: {meta.name}")

    def _record(self, job: TFJob, event_type: str, reason: str, message: str) -> None:
        tell = log.info if event_type == c.NORMAL else log.warning
        tell("tfjob_event", reason=reason, message=message)
        self._recorder.event(reference_to(job), event_type, reason, message)
