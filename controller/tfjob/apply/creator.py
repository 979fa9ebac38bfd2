"""Creates the missing children of a plan, deletes the children listed in it, and deletes jobs whose TTL has expired.

Handles each kind of API error. Decides nothing about jobs. After a failed create it determines whether the child exists
already, can be created later, or can never be created.

Invariants:

- The PodGroup is created first, then ConfigMaps, then each replica's service before its pod.
- An expectation is set before the create is sent. It is lowered if the create fails or is not sent; otherwise the informers'
  events satisfy it.
- A replica whose name is taken does not delay other replicas.
- Objects controlled by another object are neither adopted nor deleted.
- The last event about a pod is on the API server before the pod is deleted: the pod is the only evidence for it. So the event
  bypasses the recorder's queue. If that write fails temporarily, the pod is not deleted yet.
- A delete specifies the UID, so it never affects another object of the same name. Deletes of pods and jobs also specify
  the resourceVersion that was evaluated: a newer version may show a success or failure that is not recorded yet. When that
  version reaches the cache, the job is synced again.
- If a pod has a newer version, only pods are deleted before the next sync. Whether a service is deleted depends on its pod: if
  the pod terminated by itself, both are kept.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import structlog
from structlog.contextvars import bound_contextvars

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import (
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
)
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES, EventType
from tfjob_operator.api.meta import Meta, ObjectMeta, Struct, controller_of, owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.name_ranges import ranges_of
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.api.v1.tf_config import ClusterSpec
from tfjob_operator.api.v1.types import TFJob, TFJobSpec
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.jobs.blocked import LONGEST_DELAY_S, BlockedChildren
from tfjob_operator.controller.jobs.children import (
    NO_LABELS,
    ChildMeta,
    Pod,
    ReplicaKey,
    Service,
)
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.pods import has_ended
from tfjob_operator.controller.jobs.writes import (
    MAX_AT_ONCE,
    TAKEN_DELAY_S,
    ChildKind,
    ChildWriter,
    JobEvents,
    NameTakenError,
    StaleViewError,
    Target,
    conflict_hint,
    resolve_name_conflict,
    restore_operator_label,
)
from tfjob_operator.controller.tfjob.build.builder import (
    GangScheduler,
    PodBuilder,
    build_config_map,
    build_pod_group,
    build_service,
    config_map_name,
    resize_patch,
)
from tfjob_operator.controller.tfjob.plan.replicas import is_adoptable
from tfjob_operator.controller.tfjob.plan.types import Plan
from tfjob_operator.workqueue.parallel import slow_start_batch

_JOB_WIDE_REFUSAL: Final = re.compile(r"exceeded quota|is forbidden: User ")
"""Messages of quotas and RBAC, whose refusals affect every child of the job."""
log = structlog.get_logger(__name__)


POD: Final = ChildKind(
    "pod",
    PODS,
    EventReason.CREATED_POD,
    EventReason.FAILED_CREATE_POD,
    EventReason.DELETED_POD,
    EventReason.FAILED_DELETE_POD,
    EventReason.RESTORED_POD_LABELS,
    EventReason.FAILED_RESTORE_POD_LABELS,
    holds_outcome=True,
)
SERVICE: Final = ChildKind(
    "service",
    SERVICES,
    EventReason.CREATED_SERVICE,
    EventReason.FAILED_CREATE_SERVICE,
    EventReason.DELETED_SERVICE,
    EventReason.FAILED_DELETE_SERVICE,
    EventReason.RESTORED_SERVICE_LABELS,
    EventReason.FAILED_RESTORE_SERVICE_LABELS,
)
CONFIG_MAP: Final = ChildKind(
    "ConfigMap",
    CONFIG_MAPS,
    EventReason.CREATED_CONFIG_MAP,
    EventReason.FAILED_CREATE_CONFIG_MAP,
    EventReason.DELETED_CONFIG_MAP,
    EventReason.FAILED_DELETE_CONFIG_MAP,
    # Its content is not user-editable, so every error is retried.
    refusals=(),
)


def pod_group_kind(scheduler: GangScheduler) -> ChildKind:
    """Return the child kind of this scheduler's PodGroups."""
    return ChildKind(
        "PodGroup",
        scheduler.pod_groups,
        EventReason.CREATED_POD_GROUP,
        EventReason.FAILED_CREATE_POD_GROUP,
        EventReason.DELETED_POD_GROUP,
        EventReason.FAILED_DELETE_POD_GROUP,
        # Not BadRequestError: webhooks return it while a queue is closed, which is temporary.
        refusals=(InvalidError,),
    )


MIN_BATCHED: Final = 16
"""If at least this many replicas of a type are created together, their events are batched. Hundreds of single events are not
readable, each is stored for an hour, and rate limiting would drop most of them."""
BATCH: Final = 64
"""Maximum number of replicas per event. A batch is emitted when its last replica is created."""


class _Batch:
    """The replicas of one event: those created so far, and the number expected."""

    __slots__ = ("created", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.created: list[ReplicaKey] = []


class CreationEvents:
    """The creation events of one kind in one sync. After `close`, creations are reported individually."""

    def __init__(self, events: JobEvents, job: TFJob, kind: ChildKind, keys: Iterable[ReplicaKey]) -> None:
        """`keys` are the replicas about to get a child of this kind, ordered by index."""
        self._events = events
        self._job = job
        self._kind = kind
        self._batches: dict[str, _Batch] = {}
        types: dict[str, list[ReplicaKey]] = defaultdict(list)
        for key in keys:
            types[key.type].append(key)
        for members in types.values():
            if len(members) >= MIN_BATCHED:
                for first in range(0, len(members), BATCH):
                    batch = members[first : first + BATCH]
                    self._batches.update(dict.fromkeys((key.name for key in batch), _Batch(len(batch))))

    def created(self, key: ReplicaKey) -> None:
        """Emit the creation event, or buffer it until the batch is complete."""
        batch = self._batches.get(key.name)
        if batch is None:
            self._emit([key])
            return
        batch.created.append(key)
        if len(batch.created) == batch.size:
            self._emit(batch.created)
            batch.created = []

    def close(self) -> None:
        """Emit the events of incomplete batches, whose other creates failed or were not sent."""
        for batch in dict.fromkeys(self._batches.values()):
            if batch.created:
                self._emit(batch.created)
        self._batches.clear()

    def _emit(self, keys: list[ReplicaKey]) -> None:
        if len(keys) == 1:
            self._record(f"Created {self._kind.name}: {keys[0].name}")
            return
        names = ranges_of(key.name for key in sorted(keys, key=lambda key: key.index))
        with bound_contextvars(pod=names):  # in the log, instead of the last pod's name
            self._record(f"Created {len(keys)} {self._kind.name}s: {names}")

    def _record(self, message: str) -> None:
        self._events.record(self._job.metadata, EventType.NORMAL, self._kind.created, message)


class Creator(ChildWriter):
    """Creates the children of jobs."""

    def __init__(
        self,
        client: RestClient,
        events: JobEvents,
        expectations: Expectations,
        blocked: BlockedChildren,
        *,
        domain: str = "",
        gang: GangScheduler | None = None,
        config: ConfigSource = NO_CONFIG,
        fallback_to_logs: bool = True,
        backend_variables: bool = True,
    ) -> None:
        """`domain` is the cluster's DNS domain if TF_CONFIG needs it; `gang` the enabled gang scheduler, if any.

        `fallback_to_logs` and `backend_variables` are passed to `PodBuilder`.
        """
        super().__init__(client, events, expectations)
        self._blocked = blocked
        self._domain = domain
        self._gang = gang
        self._config = config
        self._fallback_to_logs = fallback_to_logs
        self._backend_variables = backend_variables

    async def create(self, job: TFJob, spec: TFJobSpec, plan: Plan) -> None:
        """Create the missing children of the plan, many replicas concurrently in growing batches.

        Raises the first ApiError other than a name conflict, and starts no further create after it. Raises RefusedError if the
        API server rejects a child as invalid. A namespace that is being deleted is not an error: the expectation of the
        rejected create remains, so that no later sync repeats it.
        """
        try:
            if self._gang is not None:
                await self._apply_pod_group(job, spec, plan, self._gang)
            if not (plan.create_services or plan.create_pods or plan.create_config_maps):
                return
            accelerators = self._config.value.accelerators
            builder = PodBuilder(
                job,
                spec,
                domain=self._domain,
                gang=self._gang,
                accelerators=accelerators,
                fallback_to_logs=self._fallback_to_logs,
                backend_variables=self._backend_variables,
            )
            failures = await self._create_config_maps(job, plan, builder.cluster)
            await self._create_replicas(job, spec, plan, builder, unreadable=builder.cluster.digest in failures)
        except NamespaceTerminatingError:
            log.info("namespace_terminating")
        else:
            if failures:
                raise next(iter(failures.values()))

    async def _create_replicas(
        self, job: TFJob, spec: TFJobSpec, plan: Plan, builder: PodBuilder, *, unreadable: bool
    ) -> None:
        """Create services and pods. If `unreadable`, skip pods that need the ConfigMap, which could not be created.

        A quota that refuses a service may allow pods, so those whose service exists are created nevertheless.
        """
        services = {key.name: key for key in plan.create_services}
        pods = {
            key.name: key for key in plan.create_pods if not (unreadable and builder.cluster.is_shared_with(key.type))
        }
        keys, only_pods = list((services | pods).values()), False
        owner = owner_uid_key(job.metadata)
        self._expectations.expect_creations(owner, SERVICE.name, services)
        self._expectations.expect_creations(owner, POD.name, pods)
        new_services = CreationEvents(self._events, job, SERVICE, plan.create_services)
        new_pods = CreationEvents(self._events, job, POD, pods.values())

        async def create_child(
            kind: ChildKind, missing: dict[str, ReplicaKey], new: CreationEvents, key: ReplicaKey
        ) -> None:
            if key.name not in missing:
                return
            body = builder.build(key) if kind is POD else build_service(job.metadata, spec, key)
            try:
                if await self._create(job.metadata, kind, key.name, body, partial(self._resolve, job.metadata)):
                    new.created(key)
            except NamespaceTerminatingError:
                del missing[key.name]  # its expectation remains
                raise
            del missing[key.name]

        async def create_both(key: ReplicaKey) -> None:
            nonlocal only_pods
            try:
                await create_child(SERVICE, services, new_services, key)
            except ForbiddenError as error:
                only_pods |= bool(key.type) and _JOB_WIDE_REFUSAL.search(error.message) is not None
                raise
            await create_child(POD, pods, new_pods, key)

        async def create(key: ReplicaKey) -> None:
            with bound_contextvars(replica_type=key.type.lower(), pod=key.name):
                await self._attempt(job.metadata, key, create_both(key))

        try:
            _, error = await slow_start_batch(len(keys), lambda number: create(keys[number]), at_once=MAX_AT_ONCE)
            if only_pods:
                others = [key for name, key in pods.items() if name not in services]
                await slow_start_batch(len(others), lambda number: create(others[number]), at_once=MAX_AT_ONCE)
        finally:
            new_services.close()
            new_pods.close()
            # The children left in the two dicts were refused, failed, or were not sent.
            for kind, left in ((SERVICE, services), (POD, pods)):
                for name in left:
                    self._expectations.creation_observed(owner, kind.name, name)
        if error is not None:
            raise error

    async def _attempt(self, job: ObjectMeta, key: ReplicaKey, creating: Awaitable[None]) -> None:
        """Await the creation of one replica. Delay its next attempt if the error may affect only this replica.

        Raises ApiError, except for a name conflict. A name conflict of the shared service is raised too, since all pods need
        this service.
        """
        try:
            await creating
        except ApiError as error:
            if _may_affect_one_replica(error):
                taken = isinstance(error, NameTakenError)
                self._blocked.failed(job, key.name, at_most_s=TAKEN_DELAY_S if taken else LONGEST_DELAY_S)
            if not isinstance(error, NameTakenError) or not key.type:
                raise
        else:
            self._created(job, key.name)

    def _created(self, job: ObjectMeta, name: str) -> None:
        self._blocked.created(job, name)
        self._events.freed(job, name)

    async def _create_config_maps(self, job: TFJob, plan: Plan, cluster: ClusterSpec) -> dict[str, ApiError]:
        """Create the missing ConfigMaps. Return errors by hash."""
        failures: dict[str, ApiError] = {}
        for digest in plan.create_config_maps:
            body = build_config_map(job.metadata, cluster, digest)
            try:
                await self._create_awaited(job, CONFIG_MAP, config_map_name(job.metadata.name, digest), body)
            except NamespaceTerminatingError:
                raise
            except ApiError as error:
                failures[digest] = error
        return failures

    async def _apply_pod_group(self, job: TFJob, spec: TFJobSpec, plan: Plan, gang: GangScheduler) -> None:
        """Create or resize the PodGroup. Raises ApiError."""
        meta, kind = job.metadata, pod_group_kind(gang)
        if plan.create_pod_group is not None:
            body = build_pod_group(meta, spec, templates_of(job.spec), gang, plan.create_pod_group)
            await self._create_awaited(job, kind, meta.name, body)
        if plan.resize_pod_group is not None:
            resize = plan.resize_pod_group
            patch = resize_patch(spec, templates_of(job.spec), resize.group, resize.min_member)
            await self._client.patch(kind.resource, meta.namespace, meta.name, patch, content_type=JSON_PATCH)
            log.info("pod_group_resized", min_member=plan.resize_pod_group.min_member)

    async def _create_awaited(self, job: TFJob, kind: ChildKind, name: str, body: dict[str, Any]) -> None:
        """Create a child that pods require. Its expectation remains if the namespace is being deleted."""
        owner = owner_uid_key(job.metadata)
        self._expectations.expect_creations(owner, kind.name, [name])
        try:
            is_new = await self._create(job.metadata, kind, name, body, partial(self._resolve, job.metadata))
        except NamespaceTerminatingError:
            raise
        except BaseException:
            self._expectations.creation_observed(owner, kind.name, name)
            raise
        if is_new:
            self._events.record(job.metadata, EventType.NORMAL, kind.created, f"Created {kind.name}: {name}")
        self._created(job.metadata, name)

    async def _resolve(self, job: ObjectMeta, kind: ChildKind, name: str) -> None:
        """Return normally if the object with this name is ours. Else raises NameTakenError, after a Warning if a user must act.

        If the object is expected to disappear, the Warning is emitted only if the object persists.
        """
        into: type[Pod | Service | _MetadataOnly] = _STRUCTS.get(kind.name, _MetadataOnly)
        try:
            found = await resolve_name_conflict(
                self._client,
                kind.resource,
                name,
                into,
                job=job,
                jobs=c.TFJOBS,
                hint=lambda found: _conflict_hint(job, found),
            )
        except NameTakenError as error:
            if error.passes and not self._events.is_overdue(job, name):
                log.info("name_taken", kind=kind.name, name=name, why=error.why or str(error))
            elif error.why:
                taken = f"{kind.name} {name} already exists and is not controlled by this TFJob"
                self._warn(job, kind, name, f"{taken}: it {error.why}")
            raise
        if kind.name in _STRUCTS and (found.metadata.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
            await self._restore_label(job, kind, found.metadata)

    async def require_gone(self, job: ObjectMeta, pods: Sequence[Pod]) -> None:
        """Raise StaleViewError if there are any `pods`: those on the API server that must be gone before the next step.

        If our watch does not select a pod because its label was removed, the label is restored; otherwise the pod would never
        be deleted. Raises ApiError if that fails.
        """
        for pod in pods:
            if (pod.metadata.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
                await self._restore_label(job, POD, pod.metadata)
        if pods:
            raise StaleViewError(f"{len(pods)} pods exist that must be gone first, such as {pods[0].metadata.name}")

    async def _restore_label(self, job: ObjectMeta, kind: ChildKind, meta: ChildMeta) -> None:
        what = f"label {c.LABEL_OPERATOR_NAME} of {kind.name} {meta.name}"
        try:
            await restore_operator_label(self._client, kind.resource, meta, c.OPERATOR_NAME)
        except ApiError as error:
            self._events.record(job, EventType.WARNING, kind.failed_relabel, f"Error restoring {what}: {error}")
            without = f"without label {c.LABEL_OPERATOR_NAME}"
            raise NameTakenError(f"{kind.name} {meta.name} already exists {without}") from error
        self._events.record(job, EventType.WARNING, kind.relabelled, f"Restored {what} after an external edit")

    def _warn(self, job: Meta, kind: ChildKind, name: str, why: str) -> None:
        """Record why a child could not be created, unless this was recorded recently."""
        if self._blocked.notes_failure(job, name, f"{kind.name}: {why}"):
            self._events.record(job, EventType.WARNING, kind.failed_create, f"Error creating: {why}")


class _MetadataOnly(Struct, frozen=True):
    metadata: ChildMeta


_STRUCTS: Final[dict[str, type[Pod | Service]]] = {POD.name: Pod, SERVICE.name: Service}
"""The kinds that our watches select by label, with their structs; for other kinds the metadata suffices."""


def _conflict_hint(job: ObjectMeta, found: Pod | Service | _MetadataOnly) -> str:
    """Return what a user must do about a conflicting object; "" for an orphan that will be adopted."""
    owner = controller_of(found.metadata)
    if owner is None and not isinstance(found, _MetadataOnly) and is_adoptable(job.name, found):
        return ""
    if owner is None and isinstance(found, Pod) and has_ended(found):
        return "has finished and has no owner; delete it to continue"
    return conflict_hint(owner)


def _may_affect_one_replica(error: ApiError) -> bool:
    """Return True if other replicas may succeed: the name is taken, or an admission policy rejects this replica.

    For a policy this is a guess. The error still ends the batch; in the next batch, other replicas come first.
    """
    if isinstance(error, NameTakenError):
        return True
    refused = isinstance(error, (BadRequestError, ForbiddenError, InvalidError))
    return refused and not _JOB_WIDE_REFUSAL.search(error.message)


class Deleter(ChildWriter):
    """Deletes children and jobs."""

    def __init__(
        self, client: RestClient, events: JobEvents, expectations: Expectations, *, gang: GangScheduler | None = None
    ) -> None:
        """`gang` is the enabled gang scheduler, if any."""
        super().__init__(client, events, expectations)
        self._gang = gang

    async def delete(self, job: TFJob, plan: Plan) -> None:
        """Delete the children listed in the plan, pods first. Raises the first ApiError after all deletes were tried.

        If a pod differs from the plan's view, only pods are deleted.
        """
        failures: list[ApiError] = []
        pods: list[Target] = [(POD, deletion.pod.metadata, deletion.event) for deletion in plan.delete_pods]
        if not await self._delete_all(job.metadata, pods, failures):
            rest: list[Target] = [(SERVICE, service.metadata, None) for service in plan.delete_services]
            rest += [(CONFIG_MAP, config_map.metadata, None) for config_map in plan.delete_config_maps]
            if self._gang is not None and plan.delete_pod_group is not None:
                rest.append((pod_group_kind(self._gang), plan.delete_pod_group.metadata, None))
            await self._delete_all(job.metadata, rest, failures)
        if failures:
            raise failures[0]

    async def delete_job(self, job: TFJob) -> None:
        """Delete the job, and thereby its children. Raises ConflictError if its version is not the known one."""
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
            raise  # its TTL may have been edited: no event, the next sync decides
        except ApiError as error:
            self._events.record(meta, EventType.WARNING, EventReason.FAILED_DELETE_JOB, f"Error deleting: {error}")
            raise
        self._events.record(meta, EventType.NORMAL, EventReason.DELETED_JOB, f"Deleted job: {meta.name}")
