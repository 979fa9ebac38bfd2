"""Creates the missing children of a plan and deletes the others, and jobs whose TTL is over. Each API error has an outcome.

Decides nothing about jobs. After a failed create it decides whether the child exists already, may be created later, or
can never be created.

Invariants:

- The PodGroup is created before all pods, and a replica's service before its pod (B65, B63). ConfigMaps come in between.
- An expectation is set before its create is sent. It is lowered if the create fails or is never sent; what is left is met
  by the informers' events (EX-04).
- A replica whose name is taken waits alone: no other replica waits for it (U2).
- What another object controls is neither adopted nor deleted (B13).
- The last event about a pod is on the API server before the pod is deleted: it is written past the recorder's queue,
  since only the pod proves it (U13). If that write fails for now, the pod is not deleted for now.
- A delete carries the UID, so another object of the same name is not deleted (WR-08). Deletes of pods and jobs also carry
  the resourceVersion that was looked at: a newer version of a pod may show a success or a failure that nobody has recorded
  yet. That version is on its way into the cache, and brings another sync.
- When a pod has such a version, nothing else is deleted before that sync. What becomes of a service depends on its pod: that of
  one that has ended by itself is kept with it.
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
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.api.v1.tf_config import ClusterSpec
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, ranges_of
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildMeta, Pod, ReplicaKey, Service
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
    in_the_way,
    resolve_name_conflict,
    restore_operator_label,
)
from tfjob_operator.controller.tfjob.apply.conflicts import (
    LINGERS_S,
    LONGEST_DELAY_S,
    BlockedChildren,
)
from tfjob_operator.controller.tfjob.build.children import (
    GangScheduler,
    PodBuilder,
    build_config_map,
    build_pod_group,
    build_service,
    config_map_name,
    resize_patch,
)
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.replicas import is_adoptable
from tfjob_operator.workqueue.parallel import slow_start_batch

_OF_ALL: Final = re.compile(r"exceeded quota|is forbidden: User ")
"""How quotas and RBAC refuse. That concerns every child of the job."""
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
    may_prove=True,
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
    # It contains nothing that the user could correct, so it is tried again whatever the error.
    refusals=(),
)


def pod_group_kind(scheduler: GangScheduler) -> ChildKind:
    """Return the kind of child that the PodGroups of this scheduler are."""
    return ChildKind(
        "PodGroup",
        scheduler.pod_groups,
        EventReason.CREATED_POD_GROUP,
        EventReason.FAILED_CREATE_POD_GROUP,
        EventReason.DELETED_POD_GROUP,
        EventReason.FAILED_DELETE_POD_GROUP,
        # Not BadRequestError: webhooks use that code while a queue is closed, and it may open.
        refusals=(InvalidError,),
    )


MANY: Final = 16
"""From so many replicas of one type that are created together, their events are emitted in batches: nobody reads five hundred
events one by one, the API server keeps each for an hour, and the flood control would drop most of them (EV-03, EV-05)."""
BATCH: Final = 64
"""Replicas of one event at most. A batch is emitted as soon as the last of it is created."""


class _Batch:
    """The replicas of one event: those that were created, and how many there will be if none fails."""

    __slots__ = ("created", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.created: list[ReplicaKey] = []


class CreationEvents:
    """The children of one kind that one sync creates. What is created after `close` is reported at once."""

    def __init__(self, events: JobEvents, job: TFJob, kind: ChildKind, keys: Iterable[ReplicaKey]) -> None:
        """`keys` are the replicas that are about to get a child of this kind, in the order of their indices."""
        self._events = events
        self._job = job
        self._kind = kind
        self._batches: dict[str, _Batch] = {}
        types: dict[str, list[ReplicaKey]] = defaultdict(list)
        for key in keys:
            types[key.type].append(key)
        for members in types.values():
            if len(members) >= MANY:
                for first in range(0, len(members), BATCH):
                    some = members[first : first + BATCH]
                    self._batches.update(dict.fromkeys((key.name for key in some), _Batch(len(some))))

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
        """Emit the events of incomplete batches: other creates failed or were never sent."""
        for batch in dict.fromkeys(self._batches.values()):
            if batch.created:
                self._emit(batch.created)
        self._batches.clear()

    def _emit(self, keys: list[ReplicaKey]) -> None:
        if len(keys) == 1:
            self._record(f"Created {self._kind.name}: {keys[0].name}")
            return
        names = ranges_of(key.name for key in sorted(keys, key=lambda key: key.index))
        with bound_contextvars(pod=names):  # in the log, in the place of the last one's name
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
        last_words: bool = True,
    ) -> None:
        """`domain` is the cluster's DNS domain where TF_CONFIG needs it; `gang` the gang scheduler in use, if there is one.

        `last_words` is that of `PodBuilder`.
        """
        super().__init__(client, events, expectations)
        self._blocked = blocked
        self._domain = domain
        self._gang = gang
        self._config = config
        self._last_words = last_words

    async def create(self, job: TFJob, spec: TFJobSpec, plan: Plan) -> None:
        """Create what the plan lists as missing, many replicas at once in growing batches (SB-01).

        Raises the first ApiError that is not about a taken name, and begins nothing more after it; RefusedError when the
        API server calls a child invalid. A namespace that is being deleted is no error (SB-03): the refused create leaves
        its expectation behind, so that no later sync repeats it (D12).
        """
        try:
            if self._gang is not None:
                await self._gather(job, spec, plan, self._gang)
            if not (plan.create_services or plan.create_pods or plan.create_config_maps):
                return
            accelerators = self._config.value.accelerators
            builder = PodBuilder(
                job,
                spec,
                domain=self._domain,
                gang=self._gang,
                accelerators=accelerators,
                last_words=self._last_words,
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
        """Create services and pods; `unreadable`: but none of the pods that read the ConfigMap, which could not be created."""
        services = {key.name: key for key in plan.create_services}
        pods = {
            key.name: key for key in plan.create_pods if not (unreadable and builder.cluster.is_shared_with(key.type))
        }
        keys = list((services | pods).values())
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
                del missing[key.name]  # its expectation stays
                raise
            del missing[key.name]

        async def create_both(key: ReplicaKey) -> None:
            await create_child(SERVICE, services, new_services, key)
            await create_child(POD, pods, new_pods, key)

        async def create(number: int) -> None:
            key = keys[number]
            with bound_contextvars(replica_type=key.type.lower(), pod=key.name):
                await self._attempt(job.metadata, key, create_both(key))

        try:
            _, error = await slow_start_batch(len(keys), create, at_once=MAX_AT_ONCE)
        finally:
            new_services.close()
            new_pods.close()
            # What is left in the two dicts was refused, failed, or was never sent.
            for kind, left in ((SERVICE, services), (POD, pods)):
                for name in left:
                    self._expectations.creation_observed(owner, kind.name, name)
        if error is not None:
            raise error

    async def _attempt(self, job: ObjectMeta, key: ReplicaKey, creating: Awaitable[None]) -> None:
        """Await the creation of one replica. Delay its next attempt if it fails for a reason that may be its own.

        Raises ApiError, but not for a taken name, unless it is that of the service that all pods wait for.
        """
        try:
            await creating
        except ApiError as error:
            if _may_be_its_own(error):
                taken = isinstance(error, NameTakenError)
                self._blocked.refused(job, key.name, at_most_s=TAKEN_DELAY_S if taken else LONGEST_DELAY_S)
            if not isinstance(error, NameTakenError) or not key.type:
                raise
        else:
            self._blocked.created(job, key.name)

    async def _create_config_maps(self, job: TFJob, plan: Plan, cluster: ClusterSpec) -> dict[str, ApiError]:
        """Create the missing ConfigMaps. Return the errors of those that could not be created, by their hashes."""
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

    async def _gather(self, job: TFJob, spec: TFJobSpec, plan: Plan, gang: GangScheduler) -> None:
        """Create or resize the PodGroup. Raises ApiError, as for any child."""
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
        """Create a child that pods wait for. Its expectation stays if the namespace is being deleted (D12)."""
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
        self._blocked.created(job.metadata, name)

    async def _resolve(self, job: ObjectMeta, kind: ChildKind, name: str) -> None:
        """Return when the object of this name is ours. Raises NameTakenError, after a Warning if a person has to act.

        An object that will be gone by itself gets its Warning when it has lingered.
        """
        into: type[Pod | Service | _Identity] = _SLICES.get(kind.name, _Identity)
        try:
            found = await resolve_name_conflict(
                self._client,
                kind.resource,
                name,
                into,
                job=job,
                jobs=c.TFJOBS,
                what_to_do=lambda found: _what_to_do(job, found),
            )
        except NameTakenError as error:
            if error.passes and self._blocked.refused_for_s(job, name) < LINGERS_S:
                log.info("name_taken", kind=kind.name, name=name, why=error.why or str(error))
            elif error.why:
                taken = f"{kind.name} {name} already exists and is not controlled by this TFJob"
                self._warn(job, kind, name, f"{taken}: it {error.why}")
            raise
        if kind.name in _SLICES and (found.metadata.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
            await self._restore_label(job, kind, found.metadata)

    async def wait_for_gone(self, job: ObjectMeta, pods: Sequence[Pod]) -> None:
        """Make sure that no pod of an earlier attempt is left. Raises StaleViewError if there is one.

        One that our watch does not show, since somebody took its label away, gets the label back: else nobody would delete it.
        Raises ApiError if it does not get it.
        """
        for pod in pods:
            if (pod.metadata.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
                await self._restore_label(job, POD, pod.metadata)
        if pods:
            raise StaleViewError(f"{len(pods)} pods of an earlier attempt are left, such as {pods[0].metadata.name}")

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
        """Record why a child could not be created, unless the same was recorded lately."""
        if self._blocked.should_warn(job, name, f"{kind.name}: {why}"):
            self._events.record(job, EventType.WARNING, kind.failed_create, f"Error creating: {why}")


class _Identity(Struct, frozen=True):
    metadata: ChildMeta


_SLICES: Final[dict[str, type[Pod | Service]]] = {POD.name: Pod, SERVICE.name: Service}
"""Kinds that our watches select by a label, with their slices; of other kinds the metadata suffices."""


def _what_to_do(job: ObjectMeta, found: Pod | Service | _Identity) -> str:
    """Return what a person must do about an object in the way; "" about an orphan that will be adopted."""
    owner = controller_of(found.metadata)
    if owner is None and not isinstance(found, _Identity) and is_adoptable(job.name, found):
        return ""
    if owner is None and isinstance(found, Pod) and has_ended(found):
        return "has finished and has no owner; delete it to continue"
    return in_the_way(owner)


def _may_be_its_own(error: ApiError) -> bool:
    """Whether other replicas may succeed where this one was refused: its name is taken, or an admission policy refuses it.

    For a policy that is a guess. It ends the batch all the same; in the next one other replicas come first.
    """
    if isinstance(error, NameTakenError):
        return True
    refused = isinstance(error, (BadRequestError, ForbiddenError, InvalidError))
    return refused and not _OF_ALL.search(error.message)


class Deleter(ChildWriter):
    """Deletes the children of jobs, and jobs."""

    def __init__(
        self, client: RestClient, events: JobEvents, expectations: Expectations, *, gang: GangScheduler | None = None
    ) -> None:
        """`gang` is the gang scheduler in use, if there is one."""
        super().__init__(client, events, expectations)
        self._gang = gang

    async def delete(self, job: TFJob, plan: Plan) -> None:
        """Delete what the plan lists, pods first. Raises the first ApiError, after all deletes have been tried.

        Returns after the pods if one of them is not as the plan saw it.
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
            self._events.record(meta, EventType.WARNING, EventReason.FAILED_DELETE_JOB, f"Error deleting: {error}")
            raise
        self._events.record(meta, EventType.NORMAL, EventReason.DELETED_JOB, f"Deleted job: {meta.name}")
