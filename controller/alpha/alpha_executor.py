"""Creates and deletes the children of alpha jobs and writes their status. Handles each kind of API error.

Invariants:

- An expectation is set before its create or delete is sent, and removed if the request fails.
- Objects controlled by another object are neither adopted nor deleted: a taken name is reported.
- A delete specifies the UID. Deleting a Job deletes its pods.
- A transition is reported only once it is on the server; a status write with a conflict has no effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import (
    ApiError,
    BadRequestError,
    InvalidError,
    NamespaceTerminatingError,
    StatusError,
)
from tfjob_operator.api.core import CONFIG_MAPS, JOBS, PODS, SERVICES, EventType
from tfjob_operator.api.meta import ObjectMeta, PartialObjectMetadata, Resource, owner_uid_key
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME
from tfjob_operator.api.v1alpha1.constants import OPERATOR_NAME, AlphaEventReason, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus
from tfjob_operator.controller.alpha.alpha_plan import AlphaPlan, Child
from tfjob_operator.controller.alpha.batch_jobs import BatchJob, config_map_name
from tfjob_operator.controller.alpha.build import JobBuilder, build_config_map, build_service
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.jobs.blocked import BlockedChildren
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.jobs.pending import PendingStatus
from tfjob_operator.controller.jobs.status_writer import StatusWriter
from tfjob_operator.controller.jobs.writes import (
    MAX_AT_ONCE,
    TAKEN_DELAY_S,
    ChildKind,
    ChildWriter,
    JobEvents,
    NameTakenError,
    replace_status,
    resolve_name_conflict,
    restore_operator_label,
)
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.parallel import slow_start_batch

log = structlog.get_logger(__name__)


def _kind(
    name: str, resource: Resource, refusals: tuple[type[StatusError], ...] = (InvalidError, BadRequestError)
) -> ChildKind:
    reasons = (
        AlphaEventReason.CREATED,
        AlphaEventReason.FAILED_CREATE,
        AlphaEventReason.DELETED,
        AlphaEventReason.FAILED_DELETE,
    )
    return ChildKind(name, resource, *reasons, refusals=refusals, propagation="Background")


JOB: Final = _kind("job", JOBS)
POD: Final = _kind("Pod", PODS)
SERVICE: Final = _kind("Service", SERVICES)
CONFIG_MAP: Final = _kind("ConfigMap", CONFIG_MAPS, refusals=())
_Missing = tuple[ChildKind, str, dict[str, Any]]


class AlphaExecutor(ChildWriter):
    """Executes the creates and deletes of plans."""

    def __init__(
        self,
        dialect: Dialect,
        client: RestClient,
        events: JobEvents,
        expectations: Expectations,
        blocked: BlockedChildren,
        *,
        config: ConfigSource = NO_CONFIG,
    ) -> None:
        super().__init__(client, events, expectations)
        self._dialect = dialect
        self._blocked = blocked
        self._config = config
        self.taken: defaultdict[str, set[str]] = defaultdict(set)
        """Names used by other objects, by job UID: they tell which RuntimeId is free."""

    async def create(self, job: AlphaJob, spec: AlphaSpec, plan: AlphaPlan) -> None:
        """Create the missing children of the plan, in growing batches.

        Raises RefusedError if the API server rejects a child as invalid, else the first ApiError. A name that is taken delays
        only its child; a NameTakenError is raised, after all other creates, if the job can choose other names. A create that
        fails because its namespace is being deleted raises no error, and its expectation remains.
        """
        missing = list(self._bodies(job, spec, plan))
        owner = owner_uid_key(job.metadata)
        waiting = {(kind.name, name) for kind, name, _ in missing}
        for kind_name, name in waiting:
            self._expectations.expect_creations(owner, kind_name, [name])
        may_be_renamed = job.status.begun is None and not spec.runtime_id
        resolve = partial(self._resolve, job.metadata, may_be_renamed=may_be_renamed)
        conflicts: list[NameTakenError] = []

        async def create(number: int) -> None:
            kind, name, body = missing[number]
            try:
                if await self._create(job.metadata, kind, name, body, resolve):
                    self._events.record(job.metadata, EventType.NORMAL, kind.created, f"Created {kind.name}: {name}")
                self._blocked.created(job.metadata, name)
                self._events.freed(job.metadata, name)
            except NameTakenError as error:
                self._blocked.failed(job.metadata, name, at_most_s=TAKEN_DELAY_S)
                if may_be_renamed and not error.passes:
                    conflicts.append(error)
                return
            except NamespaceTerminatingError:
                waiting.discard((kind.name, name))  # its expectation remains
                raise
            waiting.discard((kind.name, name))

        try:
            _, error = await slow_start_batch(len(missing), create, at_once=MAX_AT_ONCE)
        finally:
            for kind_name, name in waiting:
                self._expectations.creation_observed(owner, kind_name, name)
        if isinstance(error, NamespaceTerminatingError):
            log.info("namespace_terminating")
        elif error is not None:
            raise error
        elif conflicts:
            raise conflicts[0]

    def _bodies(self, job: AlphaJob, spec: AlphaSpec, plan: AlphaPlan) -> Iterator[_Missing]:
        meta, runtime_id = job.metadata, plan.runtime_id
        for key in plan.create_services:
            yield SERVICE, key.name, build_service(self._dialect, meta, spec, runtime_id, key)
        if plan.create_config_map:
            yield CONFIG_MAP, config_map_name(runtime_id), build_config_map(self._dialect, meta, runtime_id)
        if plan.create_jobs:
            builder = JobBuilder(self._dialect, job, spec, runtime_id, accelerators=self._config.value.accelerators)
            for key in plan.create_jobs:
                yield JOB, key.name, builder.build(key)

    async def _resolve(self, job: ObjectMeta, kind: ChildKind, name: str, *, may_be_renamed: bool) -> None:
        """Return normally if this object is ours, else raise NameTakenError.

        A Warning is recorded, unless `may_be_renamed`. If the object is expected to disappear, it is recorded if the object
        persists.
        """
        resource, jobs = kind.resource, self._dialect.resource
        try:
            found = await resolve_name_conflict(self._client, resource, name, PartialObjectMetadata, job=job, jobs=jobs)
        except NameTakenError as error:
            if not error.passes:
                self.taken[job.uid].add(name)
            if self._events.is_overdue(job, name) if error.passes else not may_be_renamed:
                self._warn(job, kind, name, str(error))
            raise
        if found.metadata.label_map().get(LABEL_OPERATOR_NAME) == OPERATOR_NAME:
            return
        if kind is CONFIG_MAP:  # the operator has no permission to patch it
            await self._client.delete(resource, job.namespace, name, uid=found.metadata.uid)
            raise NameTakenError(f"{resource.kind} {name} has lost its labels and is recreated")
        await restore_operator_label(self._client, resource, found.metadata, OPERATOR_NAME)

    async def delete(self, job: AlphaJob, children: tuple[Child, ...]) -> None:
        """Delete these children. Raises the first ApiError after all were tried."""
        failures: list[ApiError] = []
        await self._delete_all(job.metadata, [(_kind_of(child), child.metadata, None) for child in children], failures)
        if failures:
            raise failures[0]

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self.taken.pop(uid, None)


def _kind_of(child: Child) -> ChildKind:
    if isinstance(child, BatchJob):
        return JOB
    if isinstance(child, Pod):
        return POD
    return SERVICE if isinstance(child, Service) else CONFIG_MAP


class AlphaStatusWriter(StatusWriter[AlphaJob, AlphaStatus]):
    """Writes the statuses of alpha jobs."""

    def __init__(
        self,
        dialect: Dialect,
        client: RestClient,
        events: JobEvents,
        metrics: JobMetrics,
        clock: Clock,
    ) -> None:
        super().__init__(client, events, metrics, clock)
        self._dialect = dialect

    async def write_if_due(
        self, job: AlphaJob, plan: AlphaPlan, pending: PendingStatus[AlphaJob, AlphaStatus], *, at_once: bool
    ) -> tuple[AlphaJob | None, float | None]:
        """Write the status if it has changed: now if `at_once` or more than counters changed, else up to a second later.

        Returns the job after the write, None if nothing was written, and the seconds until a delayed status is due. Raises as
        `write`.
        """
        status = plan.status
        pending.computed(status, plan.events)
        if status is None:
            self.forget(job.metadata.uid)
            return None, None
        if not at_once and _only_counters_change(job.status, status):
            left_s = pending.delayed_s(self._clock.monotonic(), starts=False, busy=False)
            if left_s > 0:
                return None, left_s
        return await self.write(job, status, plan.events, pending), None

    async def _replace(self, job: AlphaJob, status: AlphaStatus) -> AlphaJob | None:
        written = await replace_status(
            self._client, self._dialect.resource, job, status, PartialObjectMetadata, wire=status.to_wire()
        )
        return None if written is None else written[0]


def _only_counters_change(before: AlphaStatus, after: AlphaStatus) -> bool:
    same = msgspec.structs.replace(
        after,
        replica_statuses=before.replica_statuses,
        alpha_replica_statuses=before.alpha_replica_statuses,
        last_reconcile_time=before.last_reconcile_time,
    )
    return same == before
