"""Children that could not be created: when each is tried again, and which Warning was recorded (U2).

A taken name, or a policy that refuses one pod, concerns one replica. That replica waits with growing delays of its own,
whatever wakes its job meanwhile, and the others go on. Besides the work queue, which delays whole jobs, nothing else keeps
delays; orphans that cannot be adopted and repairs that are undone use the same (`ownership.py`). All of this may be lost with
the process: then a replica is tried once more, and one Warning is recorded again.

The event handlers of children are here too, since they learn that a name is free. They run on the loop and must not block it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tfjob_operator.api.meta import Meta, ObjectMeta, OwnerKey, controller_of, meta_key, object_key, owner_uid_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.jobs.children import ChildMeta, job_of_orphan
from tfjob_operator.controller.jobs.expectations import C, Expectations, Feed, OwnedChildHandler
from tfjob_operator.controller.jobs.writes import EventDeduplicator
from tfjob_operator.controller.tfjob.plan.actions import NONE_BLOCKED, Blocked
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter, RateLimiter

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""As long as a kubelet delays a crashing container, and as an expectation may stay unmet (EX-02). Anything longer would
look as if it had been forgotten."""
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


REPEAT_AFTER_S: Final = 600
"""Seconds before the same Warning about a child is recorded again. Events live for an hour."""


@dataclass(slots=True)
class _Job:
    """`generation` is that of the job's latest view: the delays of an earlier one say nothing about an edited template.

    `children` has the time at which each was first refused; `rejected` are the replicas whose pods kubelets rejected.
    """

    owner: OwnerKey
    generation: int
    children: dict[str, float] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)


class BlockedChildren:
    """The children that could not be created, by job and by name.

    Records of a job are dropped with the job (`forget`), and those of a child when it is created; the delays of rejected pods
    last, since what the kubelet says comes later. So there are never more than the specification has had replicas.
    """

    def __init__(self, clock: Clock, delays: Delays) -> None:
        self._clock = clock
        self._delays = delays
        self._warnings: EventDeduplicator[str] = EventDeduplicator(clock, REPEAT_AFTER_S)
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
        return self._clock.monotonic() - self._child(job, name)

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
            self._warnings.forget_subject(found.owner, name)
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

    def should_warn(self, job: Meta, name: str, message: str) -> bool:
        """Return True unless this Warning about a child was recorded lately. It counts as recorded from now on."""
        self._child(job, name)
        return self._warnings.should_emit(owner_uid_key(job), name, message)

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

    def _child(self, job: Meta, name: str) -> float:
        return self._record(job).children.setdefault(name, self._clock.monotonic())

    def _record(self, job: Meta) -> _Job:
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
        self._warnings.forget(job.owner)
        del self._jobs[key]

    def _clear_delays(self, job: _Job) -> None:
        for what in (*job.children, *map(_rejection, job.rejected)):
            self._delays.clear(job.owner, what)


def _rejection(name: str) -> str:
    """Return the key of the delays of a replica's rejected pods."""
    return f"rejected {name}"


class ChildHandler(OwnedChildHandler[C]):
    """`OwnedChildHandler` for the children of TFJobs: a name that becomes free is tried again, and orphans may be adopted.

    An orphan meets no expectation, but queues the job that its labels name, which may adopt it (RM-01).
    """

    def __init__(self, kind: str, feed: Feed, expectations: Expectations, blocked: BlockedChildren) -> None:
        super().__init__(TFJOBS.kind, kind, feed, expectations)
        self._blocked = blocked

    def _seen(self, meta: ChildMeta) -> None:
        if controller_of(meta) is not None:
            super()._seen(meta)
        elif (key := job_of_orphan(meta)) is not None:
            self._feed.add(key)

    def _gone(self, meta: ChildMeta) -> None:
        super()._gone(meta)  # first, since an expectation that is not met delays its job by minutes
        # Whoever it belonged to, or an orphan, it may have stood in the way of a job (D15).
        for key in (*self._blocked.freed(meta.namespace, meta.name), job_of_orphan(meta)):
            if key is not None:
                self._feed.add(key)


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
