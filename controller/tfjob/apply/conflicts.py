"""Children that could not be created: whose object has the name, when each is tried again, and which Warning was recorded (U2).

A taken name, or a policy that refuses one pod, concerns one replica. That replica waits with growing delays of its own,
whatever wakes its job meanwhile, and the others go on. Besides the work queue, which delays whole jobs, nothing else keeps
delays; orphans that cannot be adopted and repairs that are undone use the same (`ownership.py`). All of this may be lost with
the process: then a replica is tried once more, and one Warning is recorded again.

Invariants:

- What another object controls is neither adopted nor deleted (B13).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.meta import ObjectMeta, OwnerKey, Struct, controller_of, meta_key, object_key, owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildMeta, Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.pod_end import has_ended
from tfjob_operator.controller.jobs.refusals import in_the_way
from tfjob_operator.controller.tfjob.apply.events import POD, SERVICE, ChildKind, JobEvents
from tfjob_operator.controller.tfjob.plan.actions import NONE_BLOCKED, Blocked
from tfjob_operator.controller.tfjob.plan.ownership import is_adoptable
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter, RateLimiter

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""As long as a kubelet delays a crashing container, and as an expectation may stay unmet (EX-02). Anything longer would
look as if it had been forgotten."""
TAKEN_DELAY_S: Final = 60.0
"""The longest delay of a replica whose name is taken: that the name is free is not seen when the object is none of ours."""
LINGERS_S: Final = 20.0
"""How long an object that will soon be gone may be in the way before a Warning says so."""
FORGIVEN_S: Final = LONGEST_DELAY_S
"""What has not been tried for so long, though it was due, starts with the first delay again."""


class Delays:
    """When something may be tried again, by job and by a key of its own. May be lost: then it is tried once too early."""

    def __init__(self, clock: Clock, limiter: RateLimiter[tuple[OwnerKey, str]] | None = None) -> None:
        """Start without delays; `limiter` decides how long each is."""
        self._clock = clock
        self._limiter = limiter or ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S)
        self._due: dict[OwnerKey, dict[str, float]] = {}

    def wait_s(self, owner: OwnerKey, what: str) -> float:
        """Return the seconds until this may be tried again; 0 if it may be tried now."""
        due = self._due.get(owner, {}).get(what)
        return 0.0 if due is None else max(0.0, due - self._clock.monotonic())

    def tried(self, owner: OwnerKey, what: str, *, at_most_s: float = LONGEST_DELAY_S) -> float:
        """Record an attempt, whatever came of it. Return the seconds until the next one."""
        now = self._clock.monotonic()
        known = self._due.setdefault(owner, {})
        if now > known.pop(what, now) + FORGIVEN_S:
            self._limiter.forget((owner, what))
        # Those that were not tried for longest come first. To look at all would take as long as there are, for each of them.
        while known and now > known[oldest := next(iter(known))] + FORGIVEN_S:
            self._limiter.forget((owner, oldest))
            del known[oldest]
        wait_s = min(at_most_s, self._limiter.when((owner, what)))
        known[what] = now + wait_s
        return wait_s

    def clear(self, owner: OwnerKey, what: str) -> None:
        """Let this be tried at once, and its delays start over: it has succeeded, or what stood in its way is gone."""
        known = self._due.get(owner)
        if known is not None and known.pop(what, None) is not None:
            self._limiter.forget((owner, what))
            if not known:
                del self._due[owner]

    def forget(self, owner: OwnerKey) -> None:
        """Drop the records of an owner that is gone."""
        for what in self._due.pop(owner, {}):
            self._limiter.forget((owner, what))


REPEAT_AFTER_S: Final = 600.0
"""Seconds before the same Warning about a child is recorded again. Events live for an hour."""


@dataclass(slots=True)
class _Child:
    """`since` is when it was first refused; `warning` a checksum of the last Warning, `warned_at` when it was recorded."""

    since: float
    warning: int | None = None
    warned_at: float = 0.0


@dataclass(slots=True)
class _Job:
    """`generation` is that of the job's latest view: the delays of an earlier one say nothing about an edited template.

    `rejected` are the replicas whose pods kubelets rejected.
    """

    owner: OwnerKey
    generation: int
    children: dict[str, _Child] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)


class BlockedChildren:
    """The children that could not be created, by job and by name.

    Records of a job are dropped with the job (`forget`), and those of a child when it is created; the delays of rejected pods
    last, since what the kubelet says comes later. So there are never more than the specification has had replicas.
    """

    def __init__(self, clock: Clock, delays: Delays) -> None:
        self._clock = clock
        self._delays = delays
        self._jobs: dict[str, _Job] = {}

    def of(self, job: ObjectMeta) -> Blocked:
        """Return the children of this job that could not be created; after an edit all may be tried at once."""
        found = self._find(job)
        if found is None:
            return NONE_BLOCKED
        if found.generation != job.generation:
            found.generation = job.generation
            self._clear_delays(found)
            found.rejected.clear()
        waits = self._waits(found)
        waiting = frozenset(name for name in found.children if name in waits)
        rejected = frozenset(name for name in found.rejected if _rejection(name) in waits)
        return Blocked(frozenset(found.children), waiting, rejected, min(waits.values(), default=None))

    def next_due_in_s(self, job: ObjectMeta) -> float | None:
        """Return the seconds until the next waiting replica of a job may be tried; None when none waits."""
        found = self._find(job)
        return None if found is None else min(self._waits(found).values(), default=None)

    def refused(self, job: ObjectMeta, name: str, *, at_most_s: float = LONGEST_DELAY_S) -> None:
        """Delay the next attempt at a replica, longer each time."""
        self._child(job, name)
        self._delays.tried(owner_uid_key(job), name, at_most_s=at_most_s)

    def refused_for_s(self, job: ObjectMeta, name: str) -> float:
        """Return how long ago a child was refused for the first time."""
        return self._clock.monotonic() - self._child(job, name).since

    def rejected(self, job: ObjectMeta, name: str) -> None:
        """Note that a pod which a kubelet rejected is replaced now. The next one that is rejected stays longer each time.

        Nothing of such a pod runs, so without a delay a template that no node accepts is recreated several times a second.
        """
        self._record(job).rejected.add(name)
        self._delays.tried(owner_uid_key(job), _rejection(name))

    def created(self, job: ObjectMeta, name: str) -> None:
        """Forget that a replica was refused: its children exist."""
        found = self._find(job)
        if found is not None and found.children.pop(name, None) is not None:
            self._delays.clear(found.owner, name)
            if not (found.children or found.rejected):
                del self._jobs[meta_key(job)]

    def freed(self, namespace: str, name: str) -> list[str]:
        """Let replicas of this name be tried at once: what stood in the way is gone (B12). Return their jobs' keys."""
        keys, job = [], f"{name}-"
        while job := job.rpartition("-")[0]:  # the name of a child begins with that of its job
            found = self._jobs.get(key := object_key(namespace, job))
            if found is not None and name in found.children:
                self._delays.clear(found.owner, name)
                keys.append(key)
        return keys

    def is_news(self, job: ObjectMeta, name: str, message: str) -> bool:
        """Return whether this Warning about a child was not recorded lately, and note it as recorded now."""
        child, now, warning = self._child(job, name), self._clock.monotonic(), zlib.crc32(message.encode())
        if warning == child.warning and now - child.warned_at < REPEAT_AFTER_S:
            return False
        child.warning, child.warned_at = warning, now
        return True

    def forget(self, job: ObjectMeta) -> None:
        """Drop the records of a job that is gone."""
        found = self._find(job)
        if found is not None:
            self._drop(meta_key(job), found)

    def _waits(self, job: _Job) -> dict[str, float]:
        waits = (
            (what, self._delays.wait_s(job.owner, what)) for what in (*job.children, *map(_rejection, job.rejected))
        )
        return {what: wait_s for what, wait_s in waits if wait_s > 0}

    def _find(self, job: ObjectMeta) -> _Job | None:
        found = self._jobs.get(meta_key(job))
        return found if found is not None and found.owner == owner_uid_key(job) else None

    def _child(self, job: ObjectMeta, name: str) -> _Child:
        return self._record(job).children.setdefault(name, _Child(self._clock.monotonic()))

    def _record(self, job: ObjectMeta) -> _Job:
        key, owner = meta_key(job), owner_uid_key(job)
        found = self._jobs.get(key)
        if found is not None and found.owner != owner:
            self._drop(key, found)
            found = None
        if found is None:
            found = self._jobs[key] = _Job(owner, job.generation)
        return found

    def _drop(self, key: str, job: _Job) -> None:
        self._clear_delays(job)
        del self._jobs[key]

    def _clear_delays(self, job: _Job) -> None:
        for what in (*job.children, *map(_rejection, job.rejected)):
            self._delays.clear(job.owner, what)


def _rejection(name: str) -> str:
    """Return the key of the delays of a replica's rejected pods."""
    return f"rejected {name}"


class NameTakenError(ApiError):
    """A child cannot be created because another object has its name.

    `why` says what a person can do about it, or what is waited for if it `passes`; it is empty where the next try will do.
    """

    def __init__(self, message: str, why: str = "", *, passes: bool = False) -> None:
        super().__init__(message)
        self.why = why
        self.passes = passes


class _Identity(Struct, frozen=True):
    metadata: ChildMeta


_SLICES: Final[dict[str, type[Pod | Service]]] = {POD.name: Pod, SERVICE.name: Service}
"""Kinds that our watches select by a label, with their slices; of other kinds the metadata suffices."""


class NameConflicts:
    """Resolves AlreadyExists errors."""

    def __init__(self, client: RestClient, events: JobEvents) -> None:
        self._client = client
        self._events = events

    async def settle(self, job: TFJob, kind: ChildKind, name: str) -> None:
        """Read the object of this name. Returns if it is ours, from a create whose response was lost (WR-07).

        Raises NameTakenError for any other object; it `passes` if the object will soon be gone (B12). Also raises whatever
        ApiError the read meets.
        """
        taken = f"{kind.name} {name} already exists and is not controlled by this TFJob"
        slice_of_kind: type[Pod | Service | _Identity] = _SLICES.get(kind.name, _Identity)
        try:
            found = await self._client.get(kind.resource, job.metadata.namespace, name, slice_of_kind)
        except NotFoundError as error:
            raise NameTakenError(f"{kind.name} {name} was just deleted; it can be created now") from error
        meta = found.metadata
        owner = controller_of(meta)
        if owner is None or owner.uid != job.metadata.uid:
            going = _going(job, meta)
            raise NameTakenError(taken, going or _why(job, found), passes=bool(going))
        if kind.name in _SLICES and (meta.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
            await self._bring_to_light(job, kind, meta)

    async def _bring_to_light(self, job: TFJob, kind: ChildKind, meta: ChildMeta) -> None:
        """Restore the label by which our watch selects children, so that the cache shows this one (D13)."""
        body = {"metadata": {"uid": meta.uid, "labels": {c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}}}
        what = f"label {c.LABEL_OPERATOR_NAME} of {kind.name} {meta.name}"
        try:
            await self._client.patch(kind.resource, meta.namespace, meta.name, body, content_type=MERGE_PATCH)
        except ApiError as error:
            self._events.record(job, EventType.WARNING, kind.failed_relabel, f"Error restoring {what}: {error}")
            raise NameTakenError(
                f"{kind.name} {meta.name} already exists without label {c.LABEL_OPERATOR_NAME}"
            ) from error
        self._events.record(job, EventType.WARNING, kind.relabelled, f"Restored {what} after an external edit")


def _going(job: TFJob, meta: ChildMeta) -> str:
    """Return why an object in the way will be gone by itself, or ""; a child of an earlier job of this name goes with it."""
    owner = controller_of(meta)
    if meta.deletion_timestamp is not None:
        return f"it is being deleted (UID {meta.uid})"
    if owner is not None and (owner.kind, owner.name) == (c.TFJOBS.kind, job.metadata.name):
        return f"it belongs to an earlier job of this name (UID {owner.uid}) and is left to the garbage collector"
    return ""


def _why(job: TFJob, found: Pod | Service | _Identity) -> str:
    """Return what a person must do about an object in the way; "" about an orphan that will be adopted."""
    owner = controller_of(found.metadata)
    if owner is None and not isinstance(found, _Identity) and is_adoptable(job.metadata.name, found):
        return ""
    if owner is None and isinstance(found, Pod) and has_ended(found):
        return "it has finished and has no owner; delete it to continue"
    return f"it {in_the_way(owner)}"


@dataclass(frozen=True, slots=True)
class ChildRecords:
    """The records of children. They may be lost with the process: the caches of a new one are filled before it acts."""

    expectations: Expectations
    delays: Delays
    blocked: BlockedChildren

    def forget(self, job: ObjectMeta) -> None:
        """Drop the records of a job that is gone."""
        owner = owner_uid_key(job)
        self.expectations.forget(owner)
        self.delays.forget(owner)
        self.blocked.forget(job)
