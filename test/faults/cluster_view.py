"""The objects of a namespace in informers, so that reading them costs the API server nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from faults.field import Thing
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, EVENTS, PODS, SERVICES, VOLCANO_POD_GROUPS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.api.v1.constants import (
    ATTEMPT_VARIABLE,
    EXECUTION_VARIABLE,
    LABEL_ATTEMPT,
    LABEL_EXECUTION,
    TFJOBS,
    EventReason,
)
from tfjob_operator.controller.tensorboard.desired import HASH_ANNOTATION
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory
from tfjob_operator.informers.store import NAMESPACE_INDEX

CHILDREN: Final = (PODS, SERVICES, CONFIG_MAPS, DEPLOYMENTS, VOLCANO_POD_GROUPS)
READY_S: Final = 60.0
OF_ONE: Final = frozenset({"hollow.tfjob.kubeflow.org/runs-before", HASH_ANNOTATION})
"""Annotations that differ between two jobs: written by the node, or a hash of names."""


class _About(Struct, frozen=True):
    uid: str = ""


class _Event(Struct, frozen=True):
    metadata: ObjectMeta
    involved_object: _About = _About()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1


@dataclass(frozen=True)
class Child:
    """A child of a job: its UID and its manifest, without parts that differ between jobs with the same spec."""

    uid: str
    made_as: str


@dataclass(frozen=True)
class State:
    """The observed state of a job. `true`: its true conditions with their reasons; `told`: its Warnings with their counts."""

    name: str
    generation: int
    status: Mapping[str, Any]
    true: Mapping[str, str]
    children: Mapping[str, Child]
    told: Mapping[tuple[str, str], int]

    @property
    def seen(self) -> bool:
        """Whether the operator has read the spec."""
        return self.generation == self.status.get("observedGeneration")

    @property
    def counters(self) -> dict[str, Any]:
        return self.status.get("replicaStatuses") or {}

    @property
    def end(self) -> str:
        return next((f"{each} {self.true[each]}" for each in ("Succeeded", "Failed") if each in self.true), "")


class View:
    def __init__(self, factory: SharedInformerFactory) -> None:
        self._jobs = factory.informer(Codec(TFJOBS, Thing))
        self._events = factory.informer(Codec(EVENTS, _Event))
        self._children: dict[Resource, SharedIndexInformer[Thing]] = {
            resource: factory.informer(Codec(resource, Thing)) for resource in CHILDREN
        }

    def state(self, namespace: str, name: str) -> State | None:
        """Return the observed state of a job; None if it does not exist."""
        job = self._jobs.indexer.get(f"{namespace}/{name}")
        if job is None:
            return None
        uid = job.metadata.uid
        children = {}
        for resource, informer in self._children.items():
            for each in informer.indexer.by_index(NAMESPACE_INDEX, namespace):
                owned = any(owner.uid == uid for owner in each.metadata.owner_references or ())
                if owned and each.metadata.deletion_timestamp is None:
                    key = f"{resource.plural}/{each.metadata.name}".replace(name, "JOB")
                    children[key] = Child(each.metadata.uid, _made_as(each, name))
        told: Counter[tuple[str, str]] = Counter()
        for event in self._events.indexer.by_index(NAMESPACE_INDEX, namespace):
            if event.involved_object.uid == uid and (
                event.type == "Warning" or event.reason == EventReason.POD_TEMPLATE_NOT_APPLIED
            ):
                told[event.reason, event.message] += event.count
        conditions = job.status.get("conditions") or ()
        true = {each["type"]: each.get("reason", "") for each in conditions if each["status"] == "True"}
        return State(name, job.metadata.generation, job.status, true, children, told)


def _made_as(child: Thing, job: str) -> str:
    meta = child.metadata
    notes = {name: value for name, value in (meta.annotations or {}).items() if name not in OF_ONE}
    spec = {name: value for name, value in child.spec.items() if name not in {"nodeName", "clusterIPs"}}
    # Pods of jobs with a failure policy have their attempt in a label and a variable. An edit may add the policy, so both are
    # dropped. A resumption counts an execution.
    labels = {
        name: value for name, value in (meta.labels or {}).items() if name not in {LABEL_ATTEMPT, LABEL_EXECUTION}
    }
    if "containers" in spec:
        spec["containers"] = [_without_attempt(container) for container in spec["containers"]]
    if spec.get("clusterIP") not in {None, "None"}:
        spec["clusterIP"] = "one of its own"
    if spec.get("type") in {"NodePort", "LoadBalancer"}:
        spec["ports"] = [{name: value for name, value in port.items() if name != "nodePort"} for port in spec["ports"]]
    return json.dumps([labels, notes, spec], sort_keys=True).replace(job, "JOB")


def _without_attempt(container: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {ATTEMPT_VARIABLE, EXECUTION_VARIABLE}
    others = [each for each in container.get("env") or () if each["name"] not in numbers]
    return {name: value for name, value in container.items() if name != "env"} | ({"env": others} if others else {})


@asynccontextmanager
async def view(kubeconfig: str, tasks: asyncio.TaskGroup) -> AsyncIterator[View]:
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(HttpTransport(load_settings(kubeconfig), max_connections=0))
        factory = SharedInformerFactory(RestClient(transport))
        found = View(factory)
        factory.start(tasks)
        stack.push_async_callback(factory.shut_down)
        await factory.wait_for_cache_sync(READY_S)
        yield found
