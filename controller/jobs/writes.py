"""The writes of both dialects: events, creates and deletes of children, status updates. Handles each kind of API error.

An event is recorded and logged; repeated ones are emitted once. The state that prevents repetitions (`EventDeduplicator`) may
be lost, which causes one repetition.

The API server may reject a child because it is invalid, or because another object has its name. A view that may be stale is
confirmed by a read before children are created or deleted (`confirm`).
"""

from __future__ import annotations

import math
import re
import sys
import zlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
import structlog
from structlog.contextvars import bound_contextvars

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.decoding import version_written
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    StatusError,
)
from tfjob_operator.api.client.options import JSON_PATCH, MERGE_PATCH
from tfjob_operator.api.core import EventType, object_reference
from tfjob_operator.api.meta import (
    Meta,
    Object,
    OwnerReference,
    PartialObjectMetadata,
    Resource,
    controller_of,
    owner_uid_key,
)
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, WAS_REJECTED
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import LINGER_LIMIT_S, NO_LABELS, ChildMeta
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.pending import J
from tfjob_operator.controller.jobs.pods import ProblemKey, StartProblem
from tfjob_operator.controller.manager import RequeueError
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.parallel import parallelize_until

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger(__name__)
REPEAT_AFTER_S: Final = 3600
"""Seconds before the same Warning is emitted again. The API server keeps events for an hour."""
MAX_WARNINGS: Final = 50
"""Maximum number of warnings stored per job: beyond that the oldest is dropped, and may be emitted again."""
MAX_PER_REASON: Final = 3
"""Maximum number of pods of a job reported per reason: if hundreds wait for the same node, three events suffice."""


class EventDeduplicator(Generic[K]):
    """The recently emitted events: for each job, by UID, the last message about each subject."""

    def __init__(self, clock: Clock, repeat_after_s: int, most: int = sys.maxsize) -> None:
        """Allow repeating a message after `repeat_after_s`. Store at most `most` subjects per job."""
        self._clock = clock
        self._repeat_after_s = repeat_after_s
        self._most = most
        self._emitted: dict[str, dict[K, tuple[int, float]]] = {}

    def should_emit(self, uid: str, subject: K, message: str = "") -> bool:
        """Return True, and record the message as emitted, unless it was emitted for this subject recently."""
        now, digest = self._clock.monotonic(), zlib.crc32(message.encode(errors="replace"))
        emitted = self._emitted.setdefault(uid, {})
        last_digest, last_at = emitted.get(subject, (digest, -math.inf))
        if last_digest == digest and now - last_at < self._repeat_after_s:
            return False
        emitted.pop(subject, None)  # the dict is ordered by time
        emitted[subject] = digest, now
        while len(emitted) > self._most:
            del emitted[next(iter(emitted))]
        return True

    def subjects(self, uid: str) -> Iterable[K]:
        """Return the subjects stored for a job."""
        return self._emitted.get(uid, ())

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._emitted.pop(uid, None)

    def forget_subject(self, uid: str, subject: K) -> None:
        """Forget a subject; and the job, if it was the last one."""
        emitted = self._emitted.get(uid, {})
        emitted.pop(subject, None)
        if not emitted:
            self.forget(uid)


class JobEvents:
    """Records events on the jobs of one kind."""

    def __init__(self, jobs: Resource, recorder: EventRecorder, clock: Clock, *, log_name: str = "tfjob_event") -> None:
        """`log_name` is the name of the log events."""
        self._jobs = jobs
        self._recorder = recorder
        self._clock = clock
        self._log_name = log_name
        self._awaited: dict[str, dict[str, float]] = {}
        self._warnings: EventDeduplicator[int] = EventDeduplicator(clock, REPEAT_AFTER_S, MAX_WARNINGS)
        self._problems: EventDeduplicator[ProblemKey] = EventDeduplicator(clock, sys.maxsize)

    def record(self, job: Meta, event_type: str, reason: str, message: str) -> None:
        """Record an event on a job, and log it. Returns immediately; the recorder writes it later, or drops it."""
        self._log(event_type, reason, message)
        self.post(job, JobEvent(event_type, reason, message))

    def post(self, job: Meta, event: JobEvent) -> None:
        """Record an event without logging it: what it reports has been logged."""
        self._recorder.event(object_reference(self._jobs, job), event.type, event.reason, event.message)

    def warn(self, job: Meta, reason: str, message: str) -> None:
        """Record a Warning unless it was recorded recently."""
        if self._warnings.should_emit(job.uid, zlib.crc32(f"{reason} {message}".encode(errors="replace"))):
            self.record(job, EventType.WARNING, reason, message)

    def is_overdue(self, job: Meta, child: str) -> bool:
        """Return True if the object that has the name of this child should be gone: it was first met `LINGER_LIMIT_S` ago."""
        now = self._clock.monotonic()
        return now - self._awaited.setdefault(job.uid, {}).setdefault(child, now) >= LINGER_LIMIT_S

    def freed(self, job: Meta, child: str) -> None:
        """Forget the object that had the name of this child."""
        awaited = self._awaited.get(job.uid, {})
        awaited.pop(child, None)
        if not awaited:
            self._awaited.pop(job.uid, None)

    async def write(self, job: Meta, event: JobEvent, *, fact: str) -> None:
        """Write an event; return when it is on the API server or was rejected permanently.

        Raises ApiError for temporary failures. `fact` identifies what the event states. The same fact gets the same event name,
        so an operator restarted in between does not write it twice.
        """
        reference = object_reference(self._jobs, job)
        await self._recorder.write(reference, event.type, event.reason, event.message, fact=fact)
        self._log(event.type, event.reason, event.message)

    def report(self, job: Meta, problems: Iterable[StartProblem], *, finished: bool = False) -> None:
        """Record the problems not reported yet. No state is kept for a finished job."""
        for problem in problems:
            others = (key for key in self._problems.subjects(job.uid) if key != problem.key)
            alike = sum(key[-1] == problem.key[-1] for key in others)
            if alike < MAX_PER_REASON and self._problems.should_emit(job.uid, problem.key):
                self.record(job, problem.event.type, problem.event.reason, problem.event.message)
        if finished:
            self._problems.forget(job.uid)

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._warnings.forget(uid)
        self._problems.forget(uid)
        self._awaited.pop(uid, None)

    def _log(self, event_type: str, reason: str, message: str) -> None:
        write = log.info if event_type == EventType.NORMAL else log.warning
        write(self._log_name, reason=reason, message=message)


MAX_AT_ONCE: Final = 16
"""Concurrent requests per job. This many saturate an API server with two cores. More would only queue there and for our
connections, half of which remain free for other jobs."""
W = TypeVar("W", bound=Object)


_DENIED: Final = re.compile(r"\bdenied (the )?request\b")


class RefusedError(ApiError):
    """The API server rejected a child as invalid. Retrying cannot succeed unless the spec changes."""


def is_denied(error: StatusError) -> bool:
    """Return True if an admission webhook or policy denied the request.

    Webhooks and policies may change, so the spec is not invalid.
    """
    return _DENIED.search(error.status_message) is not None


def conflict_hint(owner: OwnerReference | None) -> str:
    """Return who controls an object whose name a job needs, and what a user can do about it."""
    if owner is not None and owner.kind.lower() == "tfjob":
        return f"belongs to {owner.kind} {owner.name}, which needs it; recreate one of the two jobs under another name"
    holder = f"belongs to {owner.kind} {owner.name}" if owner is not None else "has no owner"
    return f"{holder}; delete it or recreate the job under another name"


TAKEN_DELAY_S: Final = 60.0
"""The longest retry delay of a child whose name is taken: if the object is not ours, its deletion is not observed."""


class NameTakenError(ApiError):
    """A child cannot be created because another object has its name.

    `why` tells what a user can do about the conflict. `passes` is true if the object will soon be gone; `why` then tells what
    is awaited. `why` is empty if a retry suffices.
    """

    def __init__(self, child: str, why: str = "", *, passes: bool = False) -> None:
        super().__init__(f"{child} already exists and {why}" if why else child)
        self.why = why
        self.passes = passes


async def resolve_name_conflict(
    client: RestClient,
    resource: Resource,
    name: str,
    into: type[W],
    *,
    job: Meta,
    jobs: Resource,
    hint: Callable[[W], str] | None = None,
) -> W:
    """Return the object with this name if the job controls it: then the response to the create was lost.

    `jobs` is the kind of the job; `hint` returns what a user can do about any other object, or "", by default `conflict_hint`.
    Raises NameTakenError if the job does not control the object. Also raises any ApiError of the read.
    """
    child = f"{resource.kind} {name}"
    try:
        found = await client.get(resource, job.namespace, name, into)
    except NotFoundError as error:
        raise NameTakenError(f"{child} was just deleted; it can be created now", passes=True) from error
    owner = controller_of(found.metadata)
    if owner is not None and owner.uid == job.uid:
        return found
    conflict = name_conflict(resource, found.metadata, job=job, jobs=jobs)
    raise conflict if conflict.passes or hint is None else NameTakenError(child, hint(found))


def name_conflict(resource: Resource, meta: Meta, *, job: Meta, jobs: Resource) -> NameTakenError:
    """Return the error of a job of the kind `jobs` whose child cannot be created, because this object has its name."""
    child, owner = f"{resource.kind} {meta.name}", controller_of(meta)
    if meta.deletion_timestamp is not None:
        return NameTakenError(child, f"is being deleted (UID {meta.uid})", passes=True)
    if owner is not None and (owner.kind.lower(), owner.name) == (jobs.kind.lower(), job.name):
        why = f"belongs to an earlier job of this name (UID {owner.uid}) and is left to the garbage collector"
        return NameTakenError(child, why, passes=True)
    return NameTakenError(child, conflict_hint(owner))


async def restore_operator_label(client: RestClient, resource: Resource, meta: Meta, value: str) -> None:
    """Restore the label by which our watches select children, so that this child enters the cache. Raises ApiError."""
    body = {"metadata": {"uid": meta.uid, "labels": {LABEL_OPERATOR_NAME: value}}}
    await client.patch(resource, meta.namespace, meta.name, body, content_type=MERGE_PATCH)


@dataclass(frozen=True, slots=True)
class ChildKind:
    """A kind of child, and its event reasons.

    `refusals` are the create errors after which the API server will never accept this object. If a kind `holds_outcome`, a
    child is deleted only if it still has the version that was evaluated. `propagation` is the propagation policy of deletes;
    None for the default.
    """

    name: str
    resource: Resource
    created: str
    failed_create: str
    deleted: str
    failed_delete: str
    relabelled: str = ""
    failed_relabel: str = ""
    refusals: tuple[type[StatusError], ...] = (InvalidError, BadRequestError)
    holds_outcome: bool = False
    propagation: str | None = None


Resolve: TypeAlias = Callable[[ChildKind, str], Awaitable[None]]
"""Returns if the object of this kind and name is ours, else raises ApiError."""
Target: TypeAlias = "tuple[ChildKind, ChildMeta, JobEvent | None]"
"""What is deleted, and the event to write first."""


class ChildWriter:
    """Creates and deletes children."""

    def __init__(self, client: RestClient, events: JobEvents, expectations: Expectations) -> None:
        self._client = client
        self._events = events
        self._expectations = expectations

    async def _create(self, job: Meta, kind: ChildKind, name: str, body: object, resolve: Resolve) -> bool:
        """Create one child. Return False if it existed and is ours (`resolve` returned), else True. Raises ApiError."""
        try:
            written = await self._client.create(kind.resource, job.namespace, body)
        except NamespaceTerminatingError:
            raise  # no event
        except AlreadyExistsError:
            # The cache may have contained it for a long time, so no event is expected.
            self._expectations.creation_observed(owner_uid_key(job), kind.name, name)
            await resolve(kind, name)
            return False
        except ApiError as error:
            if isinstance(error, kind.refusals) and not is_denied(error):
                raise RefusedError(f"{kind.name} {name} {WAS_REJECTED}{error.status_message}") from error
            self._warn(job, kind, name, str(error))
            raise
        self._expectations.creation_answered(job, kind.name, name, version_written(written))
        return True

    def _warn(self, job: Meta, kind: ChildKind, name: str, why: str) -> None:
        """Record why a child could not be created, unless this was recorded recently, as creates are retried."""
        self._events.warn(job, kind.failed_create, f"Error creating: {why}")

    async def _delete_all(self, job: Meta, targets: Sequence[Target], failures: list[ApiError]) -> bool:
        """Delete all of these, and add errors to `failures`. Return True if one of them has a newer version."""
        changed = False
        owner = owner_uid_key(job)
        for kind, meta, _ in targets:
            self._expectations.expect_deletions(owner, kind.name, [meta.uid])

        async def delete_one(number: int) -> None:
            nonlocal changed
            kind, meta, event = targets[number]
            with bound_contextvars(replica_type=(meta.labels or NO_LABELS).replica_type, pod=meta.name):
                try:
                    changed |= not await self._delete(job, kind, meta, event)
                except ApiError as error:
                    self._expectations.deletion_observed(owner, kind.name, meta.uid)
                    self._events.record(job, EventType.WARNING, kind.failed_delete, f"Error deleting: {error}")
                    failures.append(error)

        await parallelize_until(MAX_AT_ONCE, len(targets), delete_one)
        return changed

    async def _delete(self, job: Meta, kind: ChildKind, meta: ChildMeta, event: JobEvent | None) -> bool:
        """Delete one child, unless it is gone. Return False if it has changed, or another object has its name."""
        if event is not None:
            await self._events.write(job, event, fact=f"{event.reason} {meta.uid}")
        version = meta.resource_version if kind.holds_outcome else None
        try:
            await self._client.delete(
                kind.resource,
                meta.namespace,
                meta.name,
                uid=meta.uid,
                resource_version=version,
                propagation=kind.propagation,
            )
        except (NotFoundError, ConflictError) as error:
            self._expectations.deletion_observed(owner_uid_key(job), kind.name, meta.uid)
            return isinstance(error, NotFoundError)
        self._events.record(job, EventType.NORMAL, kind.deleted, f"Deleted {kind.name}: {meta.name}")
        return True


async def replace_status(
    client: RestClient, jobs: Resource, job: J, status: msgspec.Struct, into: type[W], *, wire: object = None
) -> tuple[J, W] | None:
    """Write `status`, encoded as `wire` if given.

    Return a pair: the job with the new status, and the response. Return None if the job is gone. Raises ConflictError if `job`
    is not the newest version: the status must then be recomputed.
    """
    meta = job.metadata
    # A JSON patch replaces the whole status (a merge patch would keep counters of removed types). It includes the
    # resourceVersion, so the server rejects a status computed from a stale view. As in Go, an omitted field has its default.
    body = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        {"op": "add", "path": "/status", "value": msgspec.Raw(msgspec.json.encode(status if wire is None else wire))},
    ]
    try:
        written = await client.patch(
            jobs, meta.namespace, meta.name, body, into, subresource="status", content_type=JSON_PATCH
        )
    except NotFoundError:
        return None
    # The version in the patch ensures that only the status has changed since `job` was read.
    meta = msgspec.structs.replace(meta, resource_version=written.metadata.resource_version)
    return msgspec.structs.replace(job, metadata=meta, status=status), written


class StaleViewError(RequeueError):
    """The job, or one of its pods, is newer than in the cache. The change will arrive and cause another sync."""


async def confirm(client: RestClient, jobs: Resource, job: Meta) -> None:
    """Check that this is the newest version of a job. Raises StaleViewError if it is not, or the job is gone."""
    try:
        found = await client.get(jobs, job.namespace, job.name, PartialObjectMetadata)
    except NotFoundError as error:
        raise StaleViewError("the job is gone") from error
    if found.metadata.resource_version != job.resource_version:
        raise StaleViewError("the job is newer than in the cache")
