"""Replicas whose children could not be created: when each may be tried again, and which Warning was recorded about it (U2).

A taken name, or a policy that refuses one pod, concerns one replica. That replica waits with growing delays of its own,
whatever wakes its job meanwhile, and the others go on. All of this may be lost: then a replica is tried once more, and one
Warning is recorded again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.owners import owner_uid_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.owners import OwnerKey
    from tfjob_operator.controller.jobs.children import ReplicaKey
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.delays import Delays
    from tfjob_operator.workqueue import Clock

REPEAT_AFTER_S: Final = 600.0
"""Seconds before the same Warning about a child is recorded again. Events live for an hour."""


@dataclass(slots=True)
class _Child:
    """`warning` is a checksum of the last Warning about the child, `warned_at` when it was recorded."""

    warning: int | None = None
    warned_at: float = 0.0


@dataclass(slots=True)
class _Job:
    owner: OwnerKey
    children: dict[str, _Child] = field(default_factory=dict)


class BlockedChildren:
    """The children that could not be created, by job and by name.

    Records of a job are dropped with the job (`forget`), and those of a child when it is created. So there is never more
    than one for each replica that the specification has had.
    """

    def __init__(self, clock: Clock, delays: Delays) -> None:
        self._clock = clock
        self._delays = delays
        self._jobs: dict[str, _Job] = {}

    def due(self, job: ObjectMeta, plan: Plan) -> Plan:
        """Return the plan without the replicas that must wait. Replica types of which none was refused come first.

        So if all parameter servers are refused, say, no worker waits for them, though the first refusal ends a batch
        (SB-01).
        """
        found = self._find(job)
        if found is None:
            return plan
        waiting = self._waiting(found)
        if any(not key.type and key.name in waiting for key in plan.create_services):
            return replace(plan, create_services=(), create_pods=())  # no pod without the service of all
        refused = {key.type for key in (*plan.create_services, *plan.create_pods) if key.name in found.children}

        def ready(keys: Iterable[ReplicaKey]) -> tuple[ReplicaKey, ...]:
            left = (key for key in keys if key.name not in waiting)
            return tuple(sorted(left, key=lambda key: key.type in refused))

        return replace(plan, create_services=ready(plan.create_services), create_pods=ready(plan.create_pods))

    def next_due_in_s(self, job: ObjectMeta) -> float | None:
        """Return the seconds until the next waiting replica of a job may be tried; None when none waits."""
        found = self._find(job)
        return None if found is None else min(self._waiting(found).values(), default=None)

    def refused(self, job: ObjectMeta, name: str) -> None:
        """Delay the next attempt at a replica, longer each time."""
        self._child(job, name)
        self._delays.tried(owner_uid_key(job), name)

    def created(self, job: ObjectMeta, name: str) -> None:
        """Forget a replica: its children exist."""
        found = self._find(job)
        if found is not None and found.children.pop(name, None) is not None:
            self._delays.clear(found.owner, name)
            if not found.children:
                del self._jobs[meta_key(job)]

    def freed(self, job_key: str, name: str) -> None:
        """Let a replica be tried at once: a child of its name is gone, which may have stood in the way (B12)."""
        found = self._jobs.get(job_key)
        if found is not None and name in found.children:
            self._delays.clear(found.owner, name)

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

    def _waiting(self, job: _Job) -> dict[str, float]:
        waits = ((name, self._delays.wait_s(job.owner, name)) for name in job.children)
        return {name: wait_s for name, wait_s in waits if wait_s > 0}

    def _find(self, job: ObjectMeta) -> _Job | None:
        found = self._jobs.get(meta_key(job))
        return found if found is not None and found.owner == owner_uid_key(job) else None

    def _child(self, job: ObjectMeta, name: str) -> _Child:
        key, owner = meta_key(job), owner_uid_key(job)
        found = self._jobs.get(key)
        if found is not None and found.owner != owner:
            self._drop(key, found)
            found = None
        if found is None:
            found = self._jobs[key] = _Job(owner)
        return found.children.setdefault(name, _Child())

    def _drop(self, key: str, job: _Job) -> None:
        for name in job.children:
            self._delays.clear(job.owner, name)
        del self._jobs[key]
