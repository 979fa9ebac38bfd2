"""Creates and deletes the children of alpha jobs and writes their status, with a defined outcome for each response.

Invariants:

- An expectation is set before its create or delete leaves, and lowered when that fails.
- What another object controls is neither adopted nor deleted: a name that is taken is reported.
- A delete carries the UID of what it is about. A Job takes its pods with it.
- A transition is not reported before it is on the server; a status write that lost a race reports nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import structlog

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
)
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES, EventType
from tfjob_operator.api.meta import ObjectMeta, PartialObjectMetadata, Resource, owner_uid_key
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME
from tfjob_operator.api.v1alpha1.constants import OPERATOR_NAME, Dialect, EventReason
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus
from tfjob_operator.controller.alpha.build import JobBuilder, build_config_map, build_service
from tfjob_operator.controller.alpha.children import JOBS, BatchJob
from tfjob_operator.controller.alpha.plan import Child, Plan, is_over
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.jobs.draft import Window
from tfjob_operator.controller.jobs.events import JobEvents
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.jobs.refusals import (
    NameTakenError,
    RefusedError,
    is_denied,
    resolve_name_conflict,
    restore_operator_label,
)
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.parallel import parallelize_until, slow_start_batch

MAX_AT_ONCE: Final = 16
"""How many calls of one job are in flight together, as in `controller.tfjob`."""
log = structlog.get_logger(__name__)
_Missing = tuple[Resource, dict[str, Any]]


class AlphaExecutor:
    """Carries out the creates and deletes of plans. `taken` are names that other objects have, by the UID of a job."""

    def __init__(
        self,
        dialect: Dialect,
        client: RestClient,
        events: JobEvents,
        expectations: Expectations,
        *,
        config: ConfigSource = NO_CONFIG,
    ) -> None:
        self._dialect = dialect
        self._client = client
        self._events = events
        self._expectations = expectations
        self._config = config
        self.taken: defaultdict[str, set[str]] = defaultdict(set)

    async def create(self, job: AlphaJob, spec: AlphaSpec, plan: Plan) -> None:
        """Create what the plan says is missing, in growing batches.

        Raises RefusedError when the API server calls a child invalid, else the first ApiError; NameTakenError when all else is
        done. A namespace that is being deleted is no error: its refusal leaves an expectation behind.
        """
        missing = list(self._bodies(job, spec, plan))
        owner = owner_uid_key(job.metadata)
        waiting = {(resource.plural, body["metadata"]["name"]) for resource, body in missing}
        for plural, name in waiting:
            self._expectations.expect_creations(owner, plural, [name])
        may_be_renamed = job.status.begun is None and not spec.runtime_id
        conflicts: list[NameTakenError] = []

        async def create(number: int) -> None:
            resource, body = missing[number]
            try:
                await self._create(job, resource, body, may_be_renamed=may_be_renamed)
            except NameTakenError as error:
                conflicts.append(error)
                return
            except NamespaceTerminatingError:
                waiting.discard((resource.plural, body["metadata"]["name"]))  # what stays expected
                raise
            waiting.discard((resource.plural, body["metadata"]["name"]))

        try:
            _, error = await slow_start_batch(len(missing), create, at_once=MAX_AT_ONCE)
        finally:
            for plural, name in waiting:
                self._expectations.creation_observed(owner, plural, name)
        if isinstance(error, NamespaceTerminatingError):
            log.info("namespace_terminating")
        elif error is not None:
            raise error
        elif conflicts:
            raise conflicts[0]

    def _bodies(self, job: AlphaJob, spec: AlphaSpec, plan: Plan) -> Iterator[_Missing]:
        meta, runtime_id = job.metadata, plan.runtime_id
        for key in plan.create_services:
            yield SERVICES, build_service(self._dialect, meta, spec, runtime_id, key)
        if plan.create_config_map:
            yield CONFIG_MAPS, build_config_map(self._dialect, meta, runtime_id)
        if plan.create_jobs:
            builder = JobBuilder(self._dialect, job, spec, runtime_id, accelerators=self._config.value.accelerators)
            for key in plan.create_jobs:
                yield JOBS, builder.build(key)

    async def _create(self, job: AlphaJob, resource: Resource, body: dict[str, Any], *, may_be_renamed: bool) -> None:
        """Create one child. Returns when it exists and is ours; else raises ApiError."""
        meta, name = job.metadata, body["metadata"]["name"]
        try:
            written = await self._client.create(resource, meta.namespace, body)
        except NamespaceTerminatingError:
            raise
        except AlreadyExistsError:
            # Whether the cache has seen it already can not be known, so it must not be waited for.
            self._expectations.creation_observed(owner_uid_key(meta), resource.plural, name)
            await self._resolve(meta, resource, name, may_be_renamed=may_be_renamed)
        except (InvalidError, BadRequestError) as error:
            if resource is not CONFIG_MAPS and not is_denied(error):
                raise RefusedError(f"{resource.kind} {name} was rejected: {error.status_message}") from error
            self._warn(meta, error)
            raise
        except ApiError as error:
            self._warn(meta, error)
            raise
        else:
            self._expectations.creation_answered(meta, resource.plural, name, version_written(written))
            what = "job" if resource is JOBS else resource.kind
            self._events.record(meta, EventType.NORMAL, EventReason.CREATED, f"Created {what}: {name}")

    async def _resolve(self, job: ObjectMeta, resource: Resource, name: str, *, may_be_renamed: bool) -> None:
        """Return if this object is ours, else raise NameTakenError, with a Warning unless the job `may_be_renamed`."""
        jobs = self._dialect.resource
        try:
            found = await resolve_name_conflict(self._client, resource, name, PartialObjectMetadata, job=job, jobs=jobs)
        except NameTakenError as error:
            if not error.passes:
                self.taken[job.uid].add(name)
                if not may_be_renamed:
                    self._warn(job, error)
            raise
        if found.metadata.label_map().get(LABEL_OPERATOR_NAME) != OPERATOR_NAME:
            await self._restore_label(resource, found.metadata)

    async def _restore_label(self, resource: Resource, meta: ObjectMeta) -> None:
        """Restore the label that our watch selects by. Raises NameTakenError for a ConfigMap, which is deleted instead."""
        if resource is CONFIG_MAPS:
            await self._client.delete(resource, meta.namespace, meta.name, uid=meta.uid)
            raise NameTakenError(f"{resource.kind} {meta.name} had lost its labels, and is recreated")
        await restore_operator_label(self._client, resource, meta, OPERATOR_NAME)

    async def delete(self, job: AlphaJob, children: tuple[Child, ...]) -> None:
        """Delete these children. Raises the first ApiError, after all have been tried."""
        owner = owner_uid_key(job.metadata)
        targets = [(_resource_of(child), child.metadata) for child in children]
        for resource, meta in targets:
            self._expectations.expect_deletions(owner, resource.plural, [meta.uid])
        failures: list[ApiError] = []

        async def delete(number: int) -> None:
            resource, meta = targets[number]
            try:
                await self._client.delete(resource, meta.namespace, meta.name, uid=meta.uid, propagation="Background")
            except (NotFoundError, ConflictError):  # gone, or another one has its name
                self._expectations.deletion_observed(owner, resource.plural, meta.uid)
            except ApiError as error:
                self._expectations.deletion_observed(owner, resource.plural, meta.uid)
                self._events.record(
                    job.metadata, EventType.WARNING, EventReason.FAILED_DELETE, f"Error deleting: {error}"
                )
                failures.append(error)
            else:
                what = "job" if resource is JOBS else resource.kind
                self._events.record(job.metadata, EventType.NORMAL, EventReason.DELETED, f"Deleted {what}: {meta.name}")

        await parallelize_until(MAX_AT_ONCE, len(targets), delete)
        if failures:
            raise failures[0]

    def report(self, job: AlphaJob, plan: Plan) -> None:
        """Report the problems of pods that were not reported yet."""
        self._events.report(job.metadata, plan.problems, finished=is_over(job.status))

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self.taken.pop(uid, None)
        self._events.forget(uid)

    def _warn(self, job: ObjectMeta, error: ApiError) -> None:
        """Record why a child could not be created, unless the same was recorded lately: it is tried again and again (U2)."""
        self._events.warn(job, EventReason.FAILED_CREATE, f"Error creating: {error}")


def _resource_of(child: Child) -> Resource:
    if isinstance(child, BatchJob):
        return JOBS
    if isinstance(child, Pod):
        return PODS
    return SERVICES if isinstance(child, Service) else CONFIG_MAPS


class AlphaStatusWriter:
    """Replaces the status of jobs on the server. If only counters changed it waits up to a second, as in `controller.tfjob`."""

    def __init__(
        self, dialect: Dialect, client: RestClient, events: JobEvents, metrics: JobMetrics, *, clock: Clock
    ) -> None:
        self._dialect = dialect
        self._client = client
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._windows: dict[str, Window] = {}

    def wait_s(self, job: AlphaJob, status: AlphaStatus) -> float:
        """Return for how many seconds this status may wait; 0 if it is to be written now."""
        same = msgspec.structs.replace(
            status,
            replica_statuses=job.status.replica_statuses,
            alpha_replica_statuses=job.status.alpha_replica_statuses,
            last_reconcile_time=job.status.last_reconcile_time,
        )
        if same != job.status:
            return 0.0
        window = self._windows.setdefault(job.metadata.uid, Window())
        return max(0.0, window.left_s(self._clock.monotonic(), starts=False, busy=False))

    async def write(self, job: AlphaJob, plan: Plan, status: AlphaStatus) -> AlphaJob | None:
        """Write `status`; return the job then, None if it is gone. Raises ConflictError when `job` is not the newest."""
        meta = job.metadata
        body = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "add", "path": "/status", "value": status.to_wire()},
        ]
        try:
            response = await self._client.patch(
                self._dialect.resource,
                meta.namespace,
                meta.name,
                body,
                PartialObjectMetadata,
                subresource="status",
                content_type=JSON_PATCH,
            )
        except NotFoundError:
            return None
        self.forget(meta.uid)
        self._metrics.observe(meta, job.status.conditions or (), status.conditions or ())
        for event in plan.events:
            self._events.post(meta, event)
        # The version in the patch proves that nothing but the status has changed since `job` was read.
        version = response.metadata.resource_version
        return msgspec.structs.replace(
            job, metadata=msgspec.structs.replace(meta, resource_version=version), status=status
        )

    def forget(self, uid: str) -> None:
        """Drop the wait of a job's status: all is written, or the job is gone."""
        self._windows.pop(uid, None)
