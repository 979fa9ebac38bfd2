"""Carries out what a `Plan` says about pods, services, ConfigMaps and PodGroups, each call answered for whatever comes back.

Decides nothing about jobs. What it knows is the API: which answers mean that the work is done already, which that it must be
tried again, and which that it never can be done.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog
from structlog.contextvars import bound_contextvars

from tfjob_operator.api.client.decoding import decode_answer
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
)
from tfjob_operator.api.client.rest import JSON_PATCH, MERGE_PATCH
from tfjob_operator.api.meta import Struct, controller_of
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.children import NO_LABELS, ChildMeta, Pod, Service
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.controller.tfjob.adoption import is_adoptable
from tfjob_operator.controller.tfjob.build.pod import PodBuilder, build_service
from tfjob_operator.controller.tfjob.build.pod_group import build_pod_group, resize_patch
from tfjob_operator.controller.tfjob.build.references import reference_to
from tfjob_operator.controller.tfjob.build.tf_config import config_map_name
from tfjob_operator.controller.tfjob.decide.config_maps import build_config_map
from tfjob_operator.controller.tfjob.decide.pod_end import has_ended
from tfjob_operator.controller.tfjob.kinds import CONFIG_MAP, POD, SERVICE, ChildKind, pod_group_kind
from tfjob_operator.controller.tfjob.ownership import owner_key
from tfjob_operator.workqueue.parallel import parallelize_until, slow_start_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec
    from tfjob_operator.controller.tfjob.decide.actions import JobEvent, Plan, Slot
    from tfjob_operator.controller.tfjob.decide.gang import GangScheduler
    from tfjob_operator.controller.tfjob.expectations import Expectations
    from tfjob_operator.controller.tfjob.hindrances import Hindrances

    Record = Callable[[TFJob, str, str, str], None]
    """Records an event on a job: type, reason, message."""

MAX_AT_ONCE: Final = 16
"""Creates, or deletes, of one job under way together. So many keep an API server on two cores busy; more would only queue
there, and in the line for our connections, of which half stay free for what other jobs have to write."""

_DENIED: Final = re.compile(r"\bdenied (the )?request\b")
"""How admission webhooks and policies say no, with whatever code: what they think may change, and the job is not wrong."""

_OF_ALL: Final = re.compile(r"exceeded quota|is forbidden: User ")
"""How quotas and RBAC say no: to every child of the job alike."""

log = structlog.get_logger(__name__)


class NameTakenError(ApiError):
    """A child can not be created because an object that is not this job's bears its name."""


class RefusedError(ApiError):
    """The API server calls a child invalid. It would say so again: the job's specification must change."""


class _Identity(Struct, frozen=True):
    metadata: ChildMeta


_SLICES: Final[dict[str, type[Any]]] = {POD.name: Pod, SERVICE.name: Service}
"""What our watches select by labels; of other kinds the identity is all that is looked at."""


def _may_be_its_own(error: ApiError) -> bool:
    """Whether another replica may well be taken where this one was refused: its name is, or a policy of admission says no.

    The latter is a guess: it ends the batch all the same, and lets others be tried first.
    """
    if isinstance(error, NameTakenError):
        return True
    refused = isinstance(error, (BadRequestError, ForbiddenError, InvalidError))
    return refused and not _OF_ALL.search(error.message)


class Executor:
    """Creates and deletes the children of jobs.

    Invariant: an expectation set here is lowered here when its call fails or is never made; what is left is met by what the
    informers see (EX-04).
    """

    def __init__(
        self,
        client: RestClient,
        recorder: EventRecorder,
        expectations: Expectations,
        hindrances: Hindrances,
        *,
        domain: str = "",
        gang: GangScheduler | None = None,
    ) -> None:
        """`domain` is the cluster's DNS domain where TF_CONFIG needs it; `gang` the gang scheduler in use, if there is one."""
        self._client = client
        self._recorder = recorder
        self._expectations = expectations
        self._hindrances = hindrances
        self._domain = domain
        self._gang = gang

    async def create_children(self, job: TFJob, spec: TFJobSpec, plan: Plan) -> None:
        """Create what the plan says is missing: the PodGroup before all else (B65), then ConfigMaps, then many replicas
        at once in growing batches (SB-01), and a replica's service before its pod (B63).

        A replica whose name is taken waits, and stops no other (U2). Raises the first ApiError of another kind, after which
        nothing more is begun; RefusedError when the API server calls a child invalid. A namespace that is being deleted is no
        error (SB-03): its refusal leaves an expectation behind, so that no sync asks again (D12).
        """
        try:
            if self._gang is not None:
                await self._gather(job, spec, plan, self._gang)
            if not (plan.create_services or plan.create_pods or plan.create_config_maps):
                return
            builder = PodBuilder(job, spec, domain=self._domain, gang=self._gang)
            plan, failure = await self._share(job, plan, builder.cluster)
            await self._create_replicas(job, spec, plan, builder)
        except NamespaceTerminatingError:
            log.info("namespace_terminating")
        else:
            if failure is not None:
                raise failure

    async def _create_replicas(self, job: TFJob, spec: TFJobSpec, plan: Plan, builder: PodBuilder) -> None:
        services = {slot.name: slot for slot in plan.create_services}
        pods = {slot.name: slot for slot in plan.create_pods}
        slots = list((services | pods).values())
        owner = owner_key(job.metadata)
        self._expectations.expect_creations(owner, SERVICE.name, services)
        self._expectations.expect_creations(owner, POD.name, pods)

        async def create_child(kind: ChildKind, missing: dict[str, Slot], slot: Slot) -> None:
            if slot.name not in missing:
                return
            body = builder.build(slot) if kind is POD else build_service(job.metadata, spec, slot)
            try:
                await self._create(job, kind, slot.name, body)
            except NamespaceTerminatingError:
                del missing[slot.name]  # what stays expected
                raise
            del missing[slot.name]

        async def create_both(slot: Slot) -> None:
            await create_child(SERVICE, services, slot)
            await create_child(POD, pods, slot)

        async def create(number: int) -> None:
            slot = slots[number]
            with bound_contextvars(replica_type=slot.type.lower(), pod=slot.name):
                await self._attempt(job.metadata, slot.name, create_both(slot))

        try:
            _, error = await slow_start_batch(len(slots), create, at_once=MAX_AT_ONCE)
        finally:
            # What is left in the two was refused, failed, or was never begun.
            for kind, left in ((SERVICE, services), (POD, pods)):
                for name in left:
                    self._expectations.creation_observed(owner, kind.name, name)
        if error is not None:
            raise error

    async def _attempt(self, job: ObjectMeta, name: str, creating: Awaitable[None]) -> None:
        """Await the creation of one replica, and let the replica wait if that fails for a reason that may be its own.

        Raises ApiError but where the name is taken, which concerns no other replica.
        """
        try:
            await creating
        except ApiError as error:
            if _may_be_its_own(error):
                self._hindrances.refused(job, name)
            if not isinstance(error, NameTakenError):
                raise
        else:
            self._hindrances.created(job, name)

    async def _share(self, job: TFJob, plan: Plan, cluster: ClusterSpec) -> tuple[Plan, ApiError | None]:
        """Create the ConfigMaps that are missing. Answers the plan without the pods that wait for one, and why they wait."""
        failures: dict[str, ApiError] = {}
        for digest in plan.create_config_maps:
            body = build_config_map(job.metadata, cluster, digest)
            try:
                await self._create_awaited(job, CONFIG_MAP, config_map_name(job.metadata.name, digest), body)
            except NamespaceTerminatingError:
                raise
            except ApiError as error:
                failures[digest] = error
        if cluster.digest in failures:
            able = tuple(slot for slot in plan.create_pods if not cluster.is_shared_with(slot.type))
            plan = replace(plan, create_pods=able)
        return plan, next(iter(failures.values()), None)

    async def _gather(self, job: TFJob, spec: TFJobSpec, plan: Plan, gang: GangScheduler) -> None:
        """Create or resize the PodGroup. Raises ApiError, as for any child."""
        meta, kind = job.metadata, pod_group_kind(gang)
        if plan.create_pod_group is not None:
            body = build_pod_group(meta, spec, templates_of(job.spec), gang, plan.create_pod_group)
            await self._create_awaited(job, kind, meta.name, body)
        if plan.resize_pod_group is not None:
            patch = resize_patch(spec, templates_of(job.spec), plan.resize_pod_group)
            await self._client.patch(kind.resource, meta.namespace, meta.name, patch, content_type=JSON_PATCH)
            log.info("pod_group_resized", min_member=plan.resize_pod_group.min_member)

    async def _create_awaited(self, job: TFJob, kind: ChildKind, name: str, body: dict[str, Any]) -> None:
        """Create a child that pods wait for, and expect to see it: also where its namespace is going (D12)."""
        owner = owner_key(job.metadata)
        self._expectations.expect_creations(owner, kind.name, [name])
        try:
            await self._create(job, kind, name, body)
        except NamespaceTerminatingError:
            raise
        except BaseException:
            self._expectations.creation_observed(owner, kind.name, name)
            raise
        self._hindrances.created(job.metadata, name)

    async def _create(self, job: TFJob, kind: ChildKind, name: str, body: dict[str, Any]) -> None:
        """Create one child. Returns when it exists and is ours; else raises ApiError."""
        meta = job.metadata
        try:
            await self._client.create(kind.resource, meta.namespace, body)
        except NamespaceTerminatingError:
            raise  # no event (SB-03)
        except AlreadyExistsError:
            # Whether the cache has seen it already can not be known, so it must not be waited for (B76).
            self._expectations.creation_observed(owner_key(meta), kind.name, name)
            await self._check_owner(job, kind, name)
        except ApiError as error:
            if isinstance(error, kind.refusals) and not _DENIED.search(error.status_message):
                raise RefusedError(f"{kind.name} {name} was refused: {error.status_message}") from error
            self._warn(job, kind, name, str(error))
            raise
        else:
            self.record(job, c.NORMAL, kind.created, f"Created {kind.name}: {name}")

    async def _check_owner(self, job: TFJob, kind: ChildKind, name: str) -> None:
        """Ask whose the object in the way is: ours, from an attempt whose answer was lost (WR-07), is as good as created.

        Raises NameTakenError for any other, with a Warning on the job unless it is about to go (B12).
        """
        taken = f"{kind.name} {name} exists already and is not controlled by this TFJob"
        try:
            raw = await self._client.get(kind.resource, job.metadata.namespace, name)
        except NotFoundError as error:
            raise NameTakenError(f"{kind.name} {name} has just gone; it can be created now") from error
        slice_of_kind = _SLICES.get(kind.name, _Identity)
        found: Pod | Service | _Identity = decode_answer(raw, slice_of_kind, request=f"GET {kind.name} {name}")
        meta = found.metadata
        owner = controller_of(meta)
        if owner is not None and owner.uid == job.metadata.uid:
            if kind.name in _SLICES and (meta.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
                await self._bring_to_light(job, kind, meta)
            return
        # A child of an earlier job of this name goes with its owner, or was left behind by it and will be adopted; only a
        # stranger needs a person.
        leaving = meta.deletion_timestamp is not None or (owner is not None and owner.name == job.metadata.name)
        adoptable = owner is None and not isinstance(found, _Identity) and is_adoptable(job.metadata.name, found)
        if not leaving and not adoptable:
            holder = f"{owner.kind} {owner.name}" if owner is not None else "nobody"
            why = f"it belongs to {holder}; delete it, or make the job anew under another name"
            if owner is None and isinstance(found, Pod) and has_ended(found):
                why = "it has ended, and belongs to nobody; delete it to let this job go on"
            self._warn(job, kind, name, f"{taken}: {why}")
        raise NameTakenError(taken)

    def _warn(self, job: TFJob, kind: ChildKind, name: str, why: str) -> None:
        """Tell why a child could not be created, unless that was told lately."""
        if self._hindrances.is_news(job.metadata, name, f"{kind.name}: {why}"):
            self.record(job, c.WARNING, kind.failed_create, f"Error creating: {why}")

    async def _bring_to_light(self, job: TFJob, kind: ChildKind, meta: ChildMeta) -> None:
        """Give a child of ours its label back by which our watch selects it: the cache then shows it (D13)."""
        body = {"metadata": {"uid": meta.uid, "labels": {c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}}}
        what = f"the label {c.LABEL_OPERATOR_NAME} of {kind.name} {meta.name}, without which it can not be seen"
        try:
            await self._client.patch(kind.resource, meta.namespace, meta.name, body, content_type=MERGE_PATCH)
        except ApiError as error:
            self.record(job, c.WARNING, kind.failed_relabel, f"Error restoring {what}: {error}")
            raise NameTakenError(f"{kind.name} {meta.name} exists already and can not be seen") from error
        self.record(job, c.WARNING, kind.relabelled, f"Restored {what}")

    async def delete_children(self, job: TFJob, plan: Plan) -> None:
        """Delete what the plan says must go. Raises the first ApiError, after all have been tried."""
        targets: list[tuple[ChildKind, ChildMeta, JobEvent | None]] = [
            (POD, deletion.pod.metadata, deletion.event) for deletion in plan.delete_pods
        ]
        targets += [(SERVICE, service.metadata, None) for service in plan.delete_services]
        targets += [(CONFIG_MAP, config_map.metadata, None) for config_map in plan.delete_config_maps]
        if self._gang is not None and plan.delete_pod_group is not None:
            targets.append((pod_group_kind(self._gang), plan.delete_pod_group.metadata, None))
        failures: list[ApiError] = []
        owner = owner_key(job.metadata)
        for kind, meta, _ in targets:
            self._expectations.expect_deletions(owner, kind.name, [meta.uid])

        async def delete(number: int) -> None:
            kind, meta, event = targets[number]
            replica_type = (meta.labels or NO_LABELS).replica_type
            with bound_contextvars(replica_type=replica_type, pod=meta.name):
                try:
                    await self._delete(job, kind, meta, event)
                except ApiError as error:
                    self._expectations.deletion_observed(owner, kind.name, meta.uid)
                    self.record(job, c.WARNING, kind.failed_delete, f"Error deleting: {error}")
                    failures.append(error)

        await parallelize_until(MAX_AT_ONCE, len(targets), delete)
        if failures:
            raise failures[0]

    async def _delete(self, job: TFJob, kind: ChildKind, meta: ChildMeta, event: JobEvent | None) -> None:
        """Delete one child, or find it gone (B14), or find another one under its name, which the UID protects (WR-08).

        A pod is deleted only in the version that was looked at: a newer one may hold a success, or a failure, that nobody has
        written down yet. It is on its way into the cache, and a sync comes with it. What the pod proves, and takes with it, is
        on the server before (U13); where that fails for now, so does the delete.
        """
        if event is not None:
            fact = f"{event.reason} {meta.uid}"
            await self._recorder.write(reference_to(job), event.type, event.reason, event.message, fact=fact)
            _log_event(event.type, event.reason, event.message)
        seen = meta.resource_version if kind is POD else None
        try:
            await self._client.delete(kind.resource, meta.namespace, meta.name, uid=meta.uid, resource_version=seen)
        except (NotFoundError, ConflictError):
            self._expectations.deletion_observed(owner_key(job.metadata), kind.name, meta.uid)
            return
        self.record(job, c.NORMAL, kind.deleted, f"Deleted {kind.name}: {meta.name}")

    async def delete_job(self, job: TFJob) -> None:
        """Delete the job itself, as it is known; its children go with it. Raises ConflictError when it has changed since."""
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
            raise  # its TTL may have been edited: not an event, the next sync sees what is true
        except ApiError as error:
            self.record(job, c.WARNING, c.EVENT_FAILED_DELETE_JOB, f"Error deleting: {error}")
            raise
        self.record(job, c.NORMAL, c.EVENT_DELETED_JOB, f"Deleted job: {meta.name}")

    def record(self, job: TFJob, event_type: str, reason: str, message: str) -> None:
        """Record an event on a job, and log it."""
        _log_event(event_type, reason, message)
        self._recorder.event(reference_to(job), event_type, reason, message)


def _log_event(event_type: str, reason: str, message: str) -> None:
    tell = log.info if event_type == c.NORMAL else log.warning
    tell("tfjob_event", reason=reason, message=message)
