"""Deletes children, and jobs whose TTL is over. Every error of the API server has a defined outcome.

Invariants:

- The last event about a pod is on the API server before the pod is deleted: it is written past the recorder's queue,
  since only the pod proves it (U13). If that write fails for now, the pod is not deleted for now.
- A delete carries the UID, so another object of the same name is not deleted (WR-08). Deletes of pods and jobs also carry
  the resourceVersion that was looked at: a newer version of a pod may show a success or a failure that nobody has recorded
  yet. That version is on its way into the cache, and brings another sync.
- When a pod has such a version, nothing else is deleted before that sync. What becomes of a service depends on its pod: that of
  one that has ended by itself is kept with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from structlog.contextvars import bound_contextvars

from tfjob_operator.api.client.errors import ApiError, ConflictError, NotFoundError
from tfjob_operator.api.core import EventType
from tfjob_operator.api.owners import owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.jobs.children import NO_LABELS
from tfjob_operator.controller.tfjob.kinds import CONFIG_MAP, POD, SERVICE, pod_group_kind
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.jobs.children import ChildMeta
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.jobs.job_event import JobEvent
    from tfjob_operator.controller.tfjob.build.gang_scheduler import GangScheduler
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.kinds import ChildKind

_Target: TypeAlias = "tuple[ChildKind, ChildMeta, JobEvent | None]"
"""What is deleted, and the event that is told before."""

MAX_AT_ONCE: Final = 16
"""Deletes of one job that are under way at the same time: as many as creates (`creator.MAX_AT_ONCE`)."""


class Deleter:
    """Deletes the children of jobs, and jobs."""

    def __init__(
        self, client: RestClient, events: JobEvents, expectations: Expectations, *, gang: GangScheduler | None = None
    ) -> None:
        """`gang` is the gang scheduler in use, if there is one."""
        self._client = client
        self._events = events
        self._expectations = expectations
        self._gang = gang

    async def delete(self, job: TFJob, plan: Plan) -> None:
        """Delete what the plan lists, pods first. Raises the first ApiError, after all deletes have been tried.

        Returns after the pods if one of them is not as the plan saw it.
        """
        failures: list[ApiError] = []
        pods: list[_Target] = [(POD, deletion.pod.metadata, deletion.event) for deletion in plan.delete_pods]
        if not await self._delete_all(job, pods, failures):
            rest: list[_Target] = [(SERVICE, service.metadata, None) for service in plan.delete_services]
            rest += [(CONFIG_MAP, config_map.metadata, None) for config_map in plan.delete_config_maps]
            if self._gang is not None and plan.delete_pod_group is not None:
                rest.append((pod_group_kind(self._gang), plan.delete_pod_group.metadata, None))
            await self._delete_all(job, rest, failures)
        if failures:
            raise failures[0]

    async def _delete_all(self, job: TFJob, targets: Sequence[_Target], failures: list[ApiError]) -> bool:
        """Delete all of these, and add what fails to `failures`. Return whether one of them has a newer version."""
        changed = False
        owner = owner_uid_key(job.metadata)
        for kind, meta, _ in targets:
            self._expectations.expect_deletions(owner, kind.name, [meta.uid])

        async def delete_one(number: int) -> None:
            nonlocal changed
            kind, meta, event = targets[number]
            replica_type = (meta.labels or NO_LABELS).replica_type
            with bound_contextvars(replica_type=replica_type, pod=meta.name):
                try:
                    changed |= not await self._delete(job, kind, meta, event)
                except ApiError as error:
                    self._expectations.deletion_observed(owner, kind.name, meta.uid)
                    self._events.record(job, EventType.WARNING, kind.failed_delete, f"Error deleting: {error}")
                    failures.append(error)

        await parallelize_until(MAX_AT_ONCE, len(targets), delete_one)
        return changed

    async def _delete(self, job: TFJob, kind: ChildKind, meta: ChildMeta, event: JobEvent | None) -> bool:
        """Delete one child, unless it is gone (B14). Return false if it has changed, or another object has its name."""
        if event is not None:
            await self._events.write(job, event, fact=f"{event.reason} {meta.uid}")
        seen = meta.resource_version if kind is POD else None
        try:
            await self._client.delete(kind.resource, meta.namespace, meta.name, uid=meta.uid, resource_version=seen)
        except (NotFoundError, ConflictError) as error:
            self._expectations.deletion_observed(owner_uid_key(job.metadata), kind.name, meta.uid)
            return isinstance(error, NotFoundError)
        self._events.record(job, EventType.NORMAL, kind.deleted, f"Deleted {kind.name}: {meta.name}")
        return True

    async def delete_job(self, job: TFJob) -> None:
        """Delete the job in the version that we know, and so its children. Raises ConflictError if it has changed."""
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
            raise  # its TTL may have been edited: no event, the next sync decides anew
        except ApiError as error:
            self._events.record(job, EventType.WARNING, EventReason.FAILED_DELETE_JOB, f"Error deleting: {error}")
            raise
        self._events.record(job, EventType.NORMAL, EventReason.DELETED_JOB, f"Deleted job: {meta.name}")
