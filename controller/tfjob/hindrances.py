"""What stands in the way of single children: which replica may be tried again when, and what people were told of it (U2).

A taken name, or a policy that refuses one pod, is the problem of one replica. It waits with growing delays of its own, whatever
wakes its job in between, and the others go on. All of this is memory that may be lost: then a replica is tried once more, and
one Warning is said again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.meta import meta_key
from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.controller.tfjob.decide.actions import Plan, Slot
    from tfjob_operator.workqueue import Clock
    from tfjob_operator.workqueue.rate_limiters import RateLimiter

FIRST_DELAY_S: Final = 1.0
MAX_DELAY_S: Final = 300.0
"""How long a replica waits after its first refusal, and at most: as long as a kubelet lets a crashing container wait. The
deletion of a child that had its name, where the caches show it, ends the wait at once (B12)."""

TOLD_FOR_S: Final = 600.0
"""How long a Warning that says the same as the last one about a child is not repeated. Events live for an hour (SV-10)."""


@dataclass(slots=True)
class _Child:
    """`due` is when it may be tried again, None when nothing but the job's own pace holds it up. `told` stands for the text
    of the last Warning about it."""

    due: float | None = None
    told: int | None = None
    told_at: float = 0.0


@dataclass(slots=True)
class _Job:
    uid: str
    children: dict[str, _Child] = field(default_factory=dict)


class Hindrances:
    """The children that could not be created, by job and by name.

    Invariant: what is known of a job goes with it (`forget`), and a child's with its creation, so there is never more than one
    record for each replica that the specification has had.
    """

    def __init__(self, clock: Clock, limiter: RateLimiter[tuple[str, str]] | None = None) -> None:
        """`limiter` says how long a child waits, counted by the UID of its job and by its name."""
        self._clock = clock
        self._limiter = limiter or ItemExponentialFailureRateLimiter(FIRST_DELAY_S, MAX_DELAY_S)
        self._jobs: dict[str, _Job] = {}

    def due(self, job: ObjectMeta, plan: Plan) -> Plan:
        """The plan without the replicas that must wait. Those of types of which none was refused come first.

        So what refuses all parameter servers, say, keeps no worker waiting, though a refusal ends a batch (SB-01).
        """
        found = self._find(job)
        if found is None:
            return plan
        now, children = self._clock.monotonic(), found.children
        waiting = {name for name, child in children.items() if child.due is not None and child.due > now}
        refused = {slot.type for slot in (*plan.create_services, *plan.create_pods) if slot.name in children}

        def ready(slots: Iterable[Slot]) -> tuple[Slot, ...]:
            left = (slot for slot in slots if slot.name not in waiting)
            return tuple(sorted(left, key=lambda slot: slot.type in refused))

        return replace(plan, create_services=ready(plan.create_services), create_pods=ready(plan.create_pods))

    def next_due_in_s(self, job: ObjectMeta) -> float | None:
        """In how many seconds the next of a job's waiting replicas may be tried; None when none waits."""
        found, now = self._find(job), self._clock.monotonic()
        if found is None:
            return None
        return min(
            (child.due - now for child in found.children.values() if child.due is not None and child.due > now),
            default=None,
        )

    def refused(self, job: ObjectMeta, name: str) -> None:
        """Let a replica wait, longer each time."""
        self._child(job, name).due = self._clock.monotonic() + self._limiter.when((job.uid, name))

    def created(self, job: ObjectMeta, name: str) -> None:
        """All that this replica needs is there."""
        found = self._find(job)
        if found is not None and found.children.pop(name, None) is not None:
            self._limiter.forget((job.uid, name))
            if not found.children:
                del self._jobs[meta_key(job)]

    def freed(self, job_key: str, name: str) -> None:
        """A child of that name is gone: if it stood in the way, the replica need not wait any more."""
        found = self._jobs.get(job_key)
        if found is not None and name in found.children:
            found.children[name].due = None
            self._limiter.forget((found.uid, name))

    def is_news(self, job: ObjectMeta, name: str, message: str) -> bool:
        """Whether people have not been told this about a child lately. From now on they have."""
        child, now, told = self._child(job, name), self._clock.monotonic(), zlib.crc32(message.encode())
        if told == child.told and now - child.told_at < TOLD_FOR_S:
            return False
        child.told, child.told_at = told, now
        return True

    def forget(self, job: ObjectMeta) -> None:
        """The job is gone."""
        found = self._find(job)
        if found is not None:
            self._drop(meta_key(job), found)

    def _find(self, job: ObjectMeta) -> _Job | None:
        found = self._jobs.get(meta_key(job))
        return found if found is not None and found.uid == job.uid else None

    def _child(self, job: ObjectMeta, name: str) -> _Child:
        key = meta_key(job)
        found = self._jobs.get(key)
        if found is not None and found.uid != job.uid:
            self._drop(key, found)
            found = None
        if found is None:
            found = self._jobs[key] = _Job(job.uid)
        return found.children.setdefault(name, _Child())

    def _drop(self, key: str, job: _Job) -> None:
        for name in job.children:
            self._limiter.forget((job.uid, name))
        del self._jobs[key]
