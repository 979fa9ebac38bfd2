"""Children that cannot be created now: when each is retried, and which Warning was recorded.

A name conflict, or a policy that rejects one pod, affects a single replica. That replica is retried with its own growing delay,
regardless of what causes a sync of the job; other replicas are not affected. The same delays are used for orphans that cannot
be adopted and repairs that are reverted (`tfjob/apply/ownership.py`); the work queue delays whole jobs. All of this may be lost
with the process: a replica is then retried once, and one Warning is repeated.

These words say why a child does not exist. Its create *failed*, and it is *backing off* until the next one. A kubelet
*rejected* its pod. The API server *refused* the spec of the job, which `RefusedError` reports and only an edit changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tfjob_operator.api.meta import Meta, ObjectMeta, OwnerKey, meta_key, object_key, owner_uid_key
from tfjob_operator.controller.jobs.children import NONE_BLOCKED, Blocked
from tfjob_operator.controller.jobs.writes import EventDeduplicator
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter, RateLimiter

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""Equal to the kubelet's longest back-off and the timeout of an expectation. A longer delay would look like a hang."""
DELAY_RESET_S: Final = LONGEST_DELAY_S
"""An entry that is not retried for this long after it was due starts with the first delay again."""


class Delays:
    """When an action may be retried, by job and key. This state may be lost, which causes one early retry."""

    def __init__(self, clock: Clock, limiter: RateLimiter[tuple[OwnerKey, str]] | None = None) -> None:
        """Start without delays; `limiter` determines them."""
        self._clock = clock
        self._limiter = limiter or ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S)
        self._due: dict[OwnerKey, dict[str, float]] = {}

    def wait_s(self, owner: OwnerKey, what: str) -> float:
        """Return the seconds until a retry is allowed; 0 if it is allowed now."""
        due = self._due.get(owner, {}).get(what)
        return 0.0 if due is None else max(0.0, due - self._clock.monotonic())

    def tried(self, owner: OwnerKey, what: str, *, at_most_s: float = LONGEST_DELAY_S) -> float:
        """Record an attempt, regardless of its result. Return the seconds until the next one."""
        now = self._clock.monotonic()
        known = self._due.setdefault(owner, {})
        if now > known.pop(what, now) + DELAY_RESET_S:
            self._limiter.forget((owner, what))
        # Entries are ordered by attempt, so only the oldest are checked; checking all of them each time would be quadratic.
        while known and now > known[oldest := next(iter(known))] + DELAY_RESET_S:
            self._limiter.forget((owner, oldest))
            del known[oldest]
        wait_s = min(at_most_s, self._limiter.when((owner, what)))
        known[what] = now + wait_s
        return wait_s

    def clear(self, owner: OwnerKey, what: str) -> None:
        """Allow an immediate retry and reset the delays: the action succeeded, or the obstacle is gone."""
        known = self._due.get(owner)
        if known is not None and known.pop(what, None) is not None:
            self._limiter.forget((owner, what))
            if not known:
                del self._due[owner]

    def forget(self, owner: OwnerKey) -> None:
        """Forget all state of a deleted owner."""
        for what in self._due.pop(owner, {}):
            self._limiter.forget((owner, what))


REPEAT_AFTER_S: Final = 600
"""Seconds before the same Warning about a child is repeated. Events are kept for an hour."""


@dataclass(slots=True)
class _BlockedJob:
    """The records of one job."""

    owner: OwnerKey
    generation: int
    """That of the latest view: earlier delays do not apply to an edited template."""
    failed: dict[str, None] = field(default_factory=dict)
    """In the order of their first failures."""
    rejected: set[str] = field(default_factory=set)


class BlockedChildren:
    """The children that cannot be created now, by job and name.

    A job's records are dropped when the job is deleted (`forget`), and a child's records also when the child is created. Delays
    of rejected pods are kept after the create, since a kubelet rejects a pod only after its creation. So the number of records
    is bounded by the number of replicas.
    """

    def __init__(self, clock: Clock, delays: Delays) -> None:
        self._delays = delays
        self._warnings: EventDeduplicator[str] = EventDeduplicator(clock, REPEAT_AFTER_S)
        self._jobs: dict[str, _BlockedJob] = {}

    def of(self, job: ObjectMeta) -> Blocked:
        """Return the children of this job that cannot be created now; after an edit, all may be retried immediately."""
        blocked = self._find(job)
        if blocked is None:
            return NONE_BLOCKED
        if blocked.generation != job.generation:
            blocked.generation = job.generation
            self._clear_delays(blocked)
            blocked.rejected.clear()
        waits = self._waits(blocked)
        backing_off = frozenset(name for name in blocked.failed if name in waits)
        rejected = frozenset(name for name in blocked.rejected if _rejection(name) in waits)
        return Blocked(frozenset(blocked.failed), backing_off, rejected, min(waits.values(), default=None))

    def next_due_in_s(self, job: ObjectMeta) -> float | None:
        """Return the seconds until the next retry of a child of this job; None if none is waiting."""
        blocked = self._find(job)
        return None if blocked is None else min(self._waits(blocked).values(), default=None)

    def failed(self, job: ObjectMeta, name: str, *, at_most_s: float = LONGEST_DELAY_S) -> None:
        """Delay the next attempt to create a child, longer each time."""
        self._record(job).failed[name] = None
        self._delays.tried(owner_uid_key(job), name, at_most_s=at_most_s)

    def rejected(self, job: ObjectMeta, name: str) -> None:
        """Record that a pod rejected by a kubelet is being replaced.

        If its replacements are rejected too, each one is kept longer than the one before. A rejected pod runs nothing, so
        without delays the pod of a template that no node accepts would be recreated several times a second.
        """
        self._record(job).rejected.add(name)
        self._delays.tried(owner_uid_key(job), _rejection(name))

    def created(self, job: ObjectMeta, name: str) -> None:
        """Forget the failures of a child: it exists."""
        blocked = self._find(job)
        if blocked is not None and name in blocked.failed:
            del blocked.failed[name]
            self._delays.clear(blocked.owner, name)
            self._warnings.forget_subject(blocked.owner, name)
            if not (blocked.failed or blocked.rejected):
                del self._jobs[meta_key(job)]

    def freed(self, namespace: str, name: str) -> list[str]:
        """Allow immediate retries for this name, since the conflicting object is gone.

        Return the keys of the waiting jobs.
        """
        keys, job = [], f"{name}-"
        while job := job.rpartition("-")[0]:  # the name of a child starts with that of its job
            blocked = self._jobs.get(key := object_key(namespace, job))
            if blocked is not None and name in blocked.failed:
                self._delays.clear(blocked.owner, name)
                keys.append(key)
        return keys

    def notes_failure(self, job: Meta, name: str, message: str) -> bool:
        """Note why the create of a child failed. Return False if the same reason was noted recently: then no Warning is due."""
        self._record(job).failed[name] = None
        return self._warnings.should_emit(owner_uid_key(job), name, message)

    def forget(self, job: ObjectMeta) -> None:
        """Forget all state of a deleted job."""
        blocked = self._find(job)
        if blocked is not None:
            self._drop(meta_key(job), blocked)

    def _waits(self, job: _BlockedJob) -> dict[str, float]:
        waits = ((what, self._delays.wait_s(job.owner, what)) for what in (*job.failed, *map(_rejection, job.rejected)))
        return {what: wait_s for what, wait_s in waits if wait_s > 0}

    def _find(self, job: ObjectMeta) -> _BlockedJob | None:
        blocked = self._jobs.get(meta_key(job))
        return blocked if blocked is not None and blocked.owner == owner_uid_key(job) else None

    def _record(self, job: Meta) -> _BlockedJob:
        key, owner = meta_key(job), owner_uid_key(job)
        blocked = self._jobs.get(key)
        if blocked is not None and blocked.owner != owner:
            self._drop(key, blocked)
            blocked = None
        if blocked is None:
            blocked = self._jobs[key] = _BlockedJob(owner, job.generation)
        return blocked

    def _drop(self, key: str, job: _BlockedJob) -> None:
        self._clear_delays(job)
        self._warnings.forget(job.owner)
        del self._jobs[key]

    def _clear_delays(self, job: _BlockedJob) -> None:
        for what in (*job.failed, *map(_rejection, job.rejected)):
            self._delays.clear(job.owner, what)


def _rejection(name: str) -> str:
    """Return the key of the delay that follows the rejection of a replica's pod."""
    return f"rejected {name}"
