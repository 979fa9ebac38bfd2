"""Builders of jobs of the alpha dialect, and a controller with fake dependencies."""

from datetime import timedelta
from typing import Any, cast

import msgspec

from fakes import jobs
from fakes.api import status_error
from fakes.controller import Harness, StubInformer
from fakes.objects import changed, edited
from kit.virtual_loop import EPOCH
from tfjob_operator.api import core
from tfjob_operator.api.client.errors import AlreadyExistsError
from tfjob_operator.api.meta import ObjectMeta, OwnerReference
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus
from tfjob_operator.api.v1alpha1.validation import read_spec
from tfjob_operator.controller.alpha.alpha_controller import AlphaCaches, AlphaController
from tfjob_operator.controller.alpha.alpha_plan import keys_of
from tfjob_operator.controller.alpha.batch_jobs import (
    INDEXERS,
    BatchJob,
    BatchStatus,
    Children,
    config_map_name,
    replica_key,
)
from tfjob_operator.controller.jobs.children import ChildMeta, ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.informers.store import MutableIndexer

UID = "e11f9577-b5e5-11e7-8522-42010a8e01a4"


def template(**pod_spec: Any) -> dict[str, Any]:
    return jobs.template(**{"restartPolicy": "OnFailure"} | pod_spec)


def entry(kind: object = None, replicas: object = None, **fields: Any) -> dict[str, Any]:
    """Return an entry of replicaSpecs; a PS has no template by default."""
    given: dict[str, Any] = {} if kind == "PS" else {"template": template()}
    if kind is not None:
        given["tfReplicaType"] = kind
    if replicas is not None:
        given["replicas"] = replicas
    return given | fields


def spec(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a spec with these entries, or with one master."""
    return {"replicaSpecs": list(entries) or [entry()], **fields}


def job(given: object = None, *, name: str = "example-job", status: AlphaStatus | None = None, **meta: Any) -> AlphaJob:
    """Return a job from the cache. By default it has one master."""
    metadata = ObjectMeta(name=name, namespace="ns", uid=UID, generation=1, resource_version="1")
    return AlphaJob(
        metadata=changed(metadata, **meta),
        spec=msgspec.Raw(msgspec.json.encode(spec() if given is None else given)),
        status=status or AlphaStatus(),
    )


def read(given: object, dialect: Dialect = KUBEFLOW, *, name: str = "example-job") -> AlphaSpec | InvalidSpec:
    return read_spec(dialect, name, msgspec.json.encode(given))


def good(given: object, dialect: Dialect = KUBEFLOW) -> AlphaSpec:
    found = read(given, dialect)
    assert isinstance(found, AlphaSpec), found
    return found


def mistakes(given: object, dialect: Dialect = KUBEFLOW, *, name: str = "example-job") -> str:
    """Return the errors of an invalid spec, in one line."""
    found = read(given, dialect, name=name)
    assert isinstance(found, InvalidSpec), found
    return found.text


def batch_job(
    kind: str,
    index: int,
    *,
    runtime_id: str,
    succeeded: int = 0,
    failed: str = "",
    uid: str = "",
    terminating: bool = False,
) -> BatchJob:
    """Return the Job of a replica from its cache. `failed`: the reason of the Job controller's Failed condition."""
    name = replica_key(runtime_id, kind, index).name
    conditions = (core.Condition(type="Failed", status="True", reason=failed),) if failed else None
    return BatchJob(
        metadata=child_meta(name, uid=uid, terminating=terminating),
        status=BatchStatus(succeeded=succeeded, conditions=conditions),
    )


def child_meta(name: str, *, uid: str = "", terminating: bool = False) -> ChildMeta:
    return ChildMeta(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        resource_version="5",
        owner_references=(OwnerReference(kind="TFJob", name="example-job", uid=UID, controller=True),),
        deletion_timestamp=EPOCH if terminating else None,
    )


def pod_of(
    found: BatchJob,
    phase: str = "Running",
    exit_code: int | None = None,
    *,
    last: int | None = None,
    reason: str = "",
    pod_reason: str = "",
    number: int = 0,
    policy: str = core.PodRestartPolicy.ON_FAILURE,
    terminating: bool = False,
) -> Pod:
    """Return a pod of a Job. With `exit_code` its container has terminated, with `last` it had before a restart in place."""

    def ended(code: int | None) -> core.ContainerStateTerminated | None:
        return None if code is None else core.ContainerStateTerminated(exit_code=code, reason=reason, finished_at=EPOCH)

    name = f"{found.metadata.name}-{number:05}"
    training = core.ContainerStatus(
        name="tensorflow",
        state=core.ContainerState(terminated=ended(exit_code)),
        last_state=core.LastState(terminated=ended(last)),
    )
    owner = OwnerReference(kind="Job", name=found.metadata.name, uid=found.metadata.uid, controller=True)
    meta = changed(
        child_meta(name, terminating=terminating),
        owner_references=(owner,),
        creation_timestamp=EPOCH + timedelta(seconds=number),
        deletion_grace_period_seconds=30 if terminating else None,
    )
    knows = phase not in {"", "Pending"}
    return Pod(
        metadata=meta,
        spec=core.PodSpec(restart_policy=policy, containers=(core.Container(name="tensorflow"),)),
        status=core.PodStatus(
            phase=phase or "Pending", reason=pod_reason, container_statuses=(training,) if knows else None
        ),
    )


def config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=child_meta(name))


def children(found: AlphaSpec, runtime_id: str, **fields: Any) -> Children:
    """Return all children of a job with this spec, with a running pod for each Job; `fields` replace parts of it."""
    keys = keys_of(found, runtime_id)
    jobs = [batch_job(key.type, key.index, runtime_id=runtime_id) for key in keys]
    every: dict[str, Any] = {
        "jobs": jobs,
        "services": [Service(metadata=child_meta(key.name)) for key in keys],
        "config_maps": [config_map(config_map_name(runtime_id))] if found.has_servers else [],
    }
    every |= fields
    every.setdefault("pods", [pod_of(each) for each in every["jobs"]])
    return Children(**every)


KEY = "ns/example-job"
STATUS = ("patch status", "tfjobs", "example-job")
CONFIRM = ("get", "tfjobs", "example-job")
ONE = spec(RuntimeId="76no")


class World(Harness):
    """A controller and its dependencies."""

    def __init__(self, *jobs: AlphaJob, dialect: Dialect = KUBEFLOW) -> None:
        super().__init__("example-job", INDEXERS)
        self.batch_jobs = StubInformer(MutableIndexer(INDEXERS))
        informers: Any = (self.jobs, self.batch_jobs, self.pods, self.services, self.config_maps)
        self.controller = AlphaController(
            dialect,
            AlphaCaches(*informers),
            self.client,
            self.recorder,
            Feed(self.queue),
            clock=self.clock,
            metrics=self.metrics,
        )
        for each in jobs:
            self.put(each)

    def put(self, found: AlphaJob) -> None:
        """Add a job to the cache, confirmed by the server."""
        self.jobs.put(found)
        self.confirms(found.metadata.resource_version)

    def edit(self, given: object) -> None:
        self.put(edited(cast("AlphaJob", self.jobs.indexer.get(KEY)), given))

    def exists(self, resource: str, name: str, owner: dict[str, Any], **meta: Any) -> None:
        """Create a child with this name on the server, not in the caches."""
        self.client.fail["create", resource, name] = status_error(AlreadyExistsError, 409)
        self.client.objects[resource, name] = {
            "metadata": {"name": name, "namespace": "ns", "ownerReferences": [owner]} | meta
        }

    async def sync(self) -> list[tuple[str, str, str]]:
        """Sync the job once. Return the requests."""
        self.client.actions.clear()
        try:
            await self.controller.sync(KEY)
        finally:
            if STATUS in self.client.actions and STATUS not in self.client.fail:
                self.confirms(self.client.given_version)
        return list(self.client.actions)

    def observe_status(self) -> AlphaJob:
        """Add the last written status to the cache."""
        cached = cast("AlphaJob", self.jobs.indexer.get(KEY))
        self.client.given_version = str(int(self.client.given_version) + 1)
        status = msgspec.convert(self.status, AlphaStatus, strict=False)
        found = changed(cached, metadata__resource_version=self.client.given_version, status=status)
        self.put(found)
        return found

    def observe(self, *names: str) -> None:
        """Add Services with these names to the caches."""
        for name in names:
            self.services.put(Service(metadata=child_meta(name)))

    async def begun(self, given: dict[str, Any] = ONE) -> None:
        """Sync a job with one master until its Job runs."""
        self.put(job(given))
        await self.sync()
        self.observe_status()
        self.observe("master-76no-0")
        await self.sync()
        self.observe_status()
        self.batch_jobs.put(batch_job("MASTER", 0, runtime_id="76no"))
        self.pods.put(pod_of(batch_job("MASTER", 0, runtime_id="76no")))
        await self.sync()
        self.observe_status()
        assert await self.sync() == []
        self.recorder.events.clear()
