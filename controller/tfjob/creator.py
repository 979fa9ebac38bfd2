"""Creates the children that a plan lists as missing. Every error of the API server has a defined outcome.

Decides nothing about jobs. After a failed create it decides whether the child exists already (`name_conflicts.py`), may be
created later, or can never be created.

Invariants:

- The PodGroup is created before all pods, and a replica's service before its pod (B65, B63). ConfigMaps come in between.
- An expectation is set before its create is sent. It is lowered if the create fails or is never sent; what is left is met
  by the informers' events (EX-04).
- A replica whose name is taken waits alone: no other replica waits for it (U2).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog
from structlog.contextvars import bound_contextvars

from tfjob_operator.api.client.decoding import version_written
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
)
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.owners import owner_uid_key
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.controller.config.values import NO_CONFIG
from tfjob_operator.controller.jobs.refusals import RefusedError, is_denied
from tfjob_operator.controller.tfjob.build.config_map import build_config_map, config_map_name
from tfjob_operator.controller.tfjob.build.pod import PodBuilder
from tfjob_operator.controller.tfjob.build.pod_group import build_pod_group, resize_patch
from tfjob_operator.controller.tfjob.build.service import build_service
from tfjob_operator.controller.tfjob.creations import Creations
from tfjob_operator.controller.tfjob.kinds import CONFIG_MAP, POD, SERVICE, ChildKind, pod_group_kind
from tfjob_operator.controller.tfjob.name_conflicts import NameConflicts, NameTakenError
from tfjob_operator.workqueue.parallel import slow_start_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.config.values import ConfigSource
    from tfjob_operator.controller.jobs.children import ReplicaKey
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.tfjob.blocked import BlockedChildren
    from tfjob_operator.controller.tfjob.build.gang_scheduler import GangScheduler
    from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.job_events import JobEvents

MAX_AT_ONCE: Final = 16
"""Creates of one job that are under way at the same time. That many keep an API server on two cores busy. More would only
wait, there and for our connections; half of those stay free for the writes of other jobs."""

_OF_ALL: Final = re.compile(r"exceeded quota|is forbidden: User ")
"""How quotas and RBAC refuse. That concerns every child of the job."""

log = structlog.get_logger(__name__)


class Creator:
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
    ) -> None:
        """`domain` is the cluster's DNS domain where TF_CONFIG needs it; `gang` the gang scheduler in use, if there is one."""
        self._client = client
        self._events = events
        self._expectations = expectations
        self._blocked = blocked
        self._conflicts = NameConflicts(client, events)
        self._domain = domain
        self._gang = gang
        self._config = config

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
            builder = PodBuilder(job, spec, domain=self._domain, gang=self._gang, accelerators=accelerators)
            plan, failure = await self._share(job, plan, builder.cluster)
            await self._create_replicas(job, spec, plan, builder)
        except NamespaceTerminatingError:
            log.info("namespace_terminating")
        else:
            if failure is not None:
                raise failure

    async def _create_replicas(self, job: TFJob, spec: TFJobSpec, plan: Plan, builder: PodBuilder) -> None:
        services = {key.name: key for key in plan.create_services}
        pods = {key.name: key for key in plan.create_pods}
        keys = list((services | pods).values())
        owner = owner_uid_key(job.metadata)
        self._expectations.expect_creations(owner, SERVICE.name, services)
        self._expectations.expect_creations(owner, POD.name, pods)
        new_services = Creations(self._events, job, SERVICE, plan.create_services)
        new_pods = Creations(self._events, job, POD, plan.create_pods)

        async def create_child(
            kind: ChildKind, missing: dict[str, ReplicaKey], new: Creations, key: ReplicaKey
        ) -> None:
            if key.name not in missing:
                return
            body = builder.build(key) if kind is POD else build_service(job.metadata, spec, key)
            try:
                if await self._create(job, kind, key.name, body):
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
                self._blocked.refused(job, key.name)
            if not isinstance(error, NameTakenError) or not key.type:
                raise
        else:
            self._blocked.created(job, key.name)

    async def _share(self, job: TFJob, plan: Plan, cluster: ClusterSpec) -> tuple[Plan, ApiError | None]:
        """Create the missing ConfigMaps. Return the plan without the pods whose ConfigMap failed, and the first error."""
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
            able = tuple(key for key in plan.create_pods if not cluster.is_shared_with(key.type))
            plan = replace(plan, create_pods=able)
        return plan, next(iter(failures.values()), None)

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
            is_new = await self._create(job, kind, name, body)
        except NamespaceTerminatingError:
            raise
        except BaseException:
            self._expectations.creation_observed(owner, kind.name, name)
            raise
        if is_new:
            self._events.record(job, EventType.NORMAL, kind.created, f"Created {kind.name}: {name}")
        self._blocked.created(job.metadata, name)

    async def _create(self, job: TFJob, kind: ChildKind, name: str, body: dict[str, Any]) -> bool:
        """Create one child. Return True; False if it existed already and is ours. Raises ApiError."""
        meta = job.metadata
        try:
            written = await self._client.create(kind.resource, meta.namespace, body)
        except NamespaceTerminatingError:
            raise  # no event (SB-03)
        except AlreadyExistsError:
            # The cache may have seen it long ago, so no event need come for it: do not wait for one (B76).
            self._expectations.creation_observed(owner_uid_key(meta), kind.name, name)
            await self._settle(job, kind, name)
            return False
        except ApiError as error:
            if isinstance(error, kind.refusals) and not is_denied(error):
                raise RefusedError(f"{kind.name} {name} was refused: {error.status_message}") from error
            self._warn(job, kind, name, str(error))
            raise
        self._expectations.creation_answered(meta, kind.name, name, version_written(written))
        return True

    async def _settle(self, job: TFJob, kind: ChildKind, name: str) -> None:
        """Return when the object of this name is ours. Raises NameTakenError, after a Warning if a person has to act."""
        try:
            await self._conflicts.settle(job, kind, name)
        except NameTakenError as error:
            if error.why:
                self._warn(job, kind, name, f"{error}: {error.why}")
            raise

    def _warn(self, job: TFJob, kind: ChildKind, name: str, why: str) -> None:
        """Record why a child could not be created, unless the same was recorded lately."""
        if self._blocked.is_news(job.metadata, name, f"{kind.name}: {why}"):
            self._events.record(job, EventType.WARNING, kind.failed_create, f"Error creating: {why}")


def _may_be_its_own(error: ApiError) -> bool:
    """Whether other replicas may succeed where this one was refused: its name is taken, or an admission policy refuses it.

    For a policy that is a guess. It ends the batch all the same; in the next one other replicas come first.
    """
    if isinstance(error, NameTakenError):
        return True
    refused = isinstance(error, (BadRequestError, ForbiddenError, InvalidError))
    return refused and not _OF_ALL.search(error.message)
