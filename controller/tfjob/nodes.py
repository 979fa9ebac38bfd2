"""The cache of nodes, and the termination of pods on lost nodes.

A cluster can have thousands of nodes, so they are watched only once a job needs them (`NodeCache.of`). An addon grants
permission to read them. Without it, nodes are never considered unhealthy or lost: this is logged once and reported as a Warning
on each job that needs nodes. Reading is retried every `RETRY_S`.

`LostPods` terminates a pod in two syncs, like Kueue and PodGC. It first marks the pod as failed, with the condition
DisruptionTarget, and deletes it only after the job's status records the failure. If the operator is killed in between, it later
finds a failed pod. Both requests have preconditions, and node and pod are read from the API server first: a cache may be stale,
and a force-delete cannot be undone. On a node that is only disconnected, the container keeps running alongside its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

import structlog

from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import NODES, PODS, TERMINAL, EventType, Node, PodPhase, object_reference
from tfjob_operator.api.meta import Meta, ObjectMeta, PartialObjectMetadata, Struct, controller_of, object_key
from tfjob_operator.api.v1.conditions import TRUE
from tfjob_operator.api.v1.constants import ANNOTATION_FORCE_DELETE, TFJOBS, EventReason
from tfjob_operator.api.v1.types import ConditionPattern, TaintPattern
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.jobs.pods import DISRUPTION_TARGET
from tfjob_operator.controller.jobs.writes import MAX_AT_ONCE, JobEvents
from tfjob_operator.controller.tfjob.plan.placement import Cluster, Nodes, NodeShape, NodeState, Since
from tfjob_operator.controller.tfjob.plan.types import LostPod
from tfjob_operator.informers import Indexer, SharedIndexInformer, Tombstone, object_of
from tfjob_operator.workqueue import Clock, slow_start_batch

RETRY_S: Final = 30.0
"""How often a missing permission is retried: the interval at which a reflector lists again."""
REMEDY: Final = "apply manifests/addons/nodes, or set nodes.enabled=true in the Helm chart"
NODE_INDEX: Final = "pods-by-node"
_Pattern = TypeVar("_Pattern", ConditionPattern, TaintPattern)
log = structlog.get_logger(__name__)


class NodeCache:
    """The state of all nodes, and the jobs that need it.

    An `EventHandler` of the informer: a changed condition or taint queues the jobs with pods on the node. Heartbeats change
    neither.
    """

    def __init__(
        self,
        informer: Callable[[], SharedIndexInformer[Node]],
        client: RestClient,
        pods: Indexer[Pod],
        feed: Feed,
        clock: Clock,
    ) -> None:
        """`informer` creates the node informer that `run` runs; `pods` is the cache of pods; `feed` queues jobs."""
        self._informer = informer
        self._client = client
        self._pods = pods
        self._feed = feed
        self._clock = clock
        self._needed = asyncio.Event()
        self._states: dict[str, NodeState] = {}
        self._shapes: dict[str, NodeShape] = {}
        self._is_complete = False
        self._jobs: set[str] = set()
        self._failure = ""

    async def run(self) -> None:
        """Wait until nodes are needed and may be read; then watch them until cancelled or the informer is stopped."""
        await self._needed.wait()
        while True:
            if await self._may_list():
                break
            await asyncio.sleep(RETRY_S)
        self._pods.add_indexers({NODE_INDEX: lambda pod: (pod.node,) if pod.node else ()})
        informer = self._informer()
        informer.set_watch_error_handler(self._note)
        informer.add_event_handler(self)
        await informer.run()

    def of(self, key: str, pods: Iterable[Pod]) -> Nodes:
        """Return the known state of the nodes of a job's pods. From now on, changes queue the job."""
        self._jobs.add(key)
        self._needed.set()
        if self._failure:
            return Nodes({}, self._failure)  # earlier states may be outdated
        names = {pod.node for pod in pods}
        states = {name: self._states[name] for name in names if name in self._states}
        return Nodes(states, cluster=Cluster(self._states, self._shapes) if self._is_complete else None)

    def forget(self, key: str) -> None:
        """Forget a deleted job."""
        self._jobs.discard(key)

    def on_add(self, node: Node, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Store a new node."""
        self._take(node)

    def on_update(self, _old: Node, new: Node, /) -> None:
        """Store a changed node."""
        self._take(new)

    def on_delete(self, gone: Node | Tombstone[Node], /) -> None:
        """Drop a deleted node; PodGC deletes its pods."""
        name = object_of(gone).metadata.name
        self._states.pop(name, None)
        self._shapes.pop(name, None)

    def on_list(self, _resource_version: str, /) -> None:
        """Record that nodes can be read, and that all are known."""
        self._failure, self._is_complete = "", True

    def _take(self, node: Node) -> None:
        name = node.metadata.name
        self._shapes[name] = NodeShape(node.metadata.labels or {}, node.status.allocatable or {})
        before = self._states.get(name)
        state = state_of(node, before, self._clock.monotonic())
        if before == state:
            return
        self._states[name] = state
        for pod in self._pods.by_index(NODE_INDEX, name):
            owner = controller_of(pod.metadata)
            if owner is not None and owner.kind == TFJOBS.kind:
                self._queue(object_key(pod.metadata.namespace, owner.name))

    def _queue(self, key: str) -> None:
        if key in self._jobs:
            self._feed.add(key)

    async def _may_list(self) -> bool:
        """Return False if listing nodes is forbidden. Other errors are left to the informer."""
        try:
            await self._client.list_page(NODES, ListOptions(limit=1), PartialObjectMetadata)
        except ForbiddenError as error:
            self._note(error)
            return False
        except ApiError:
            pass
        return True

    def _note(self, error: ApiError) -> None:
        """Log once that reading nodes is forbidden, and queue the jobs that need nodes so that they report this."""
        if not isinstance(error, ForbiddenError) or self._failure:
            return
        self._failure = f"onNodes rules and nodeLostTimeoutSeconds have no effect: {error}; to grant this, {REMEDY}"
        log.warning("nodes_unavailable", error=str(error), remedy=REMEDY)
        for key in self._jobs:
            self._queue(key)


def state_of(node: Node, before: NodeState | None, monotonic_s: float) -> NodeState:
    """Return the state of a node. A condition or taint counts from when this process first saw it with its timestamp, if any.

    The timestamps themselves are by the clocks of other machines. kube-controller-manager measures its own grace period in the
    same way.
    """
    conditions = {
        ConditionPattern(condition.type, condition.status): condition.last_transition_time
        for condition in node.status.conditions or ()
    }
    taints = {TaintPattern(taint.key, taint.value, taint.effect): taint.time_added for taint in node.spec.taints or ()}
    before = before or NodeState({}, {})
    return NodeState(_since(conditions, before.conditions, monotonic_s), _since(taints, before.taints, monotonic_s))


def _since(
    given: Mapping[_Pattern, datetime | None], before: Mapping[_Pattern, Since], monotonic_s: float
) -> dict[_Pattern, Since]:
    """Return since when each condition or taint has been seen; one with another timestamp began again."""
    found = {}
    for each, time in given.items():
        known = before.get(each)
        found[each] = known if known is not None and known.given == time else Since(monotonic_s, time)
    return found


class _PodAnnotations(Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Annotated(Struct, frozen=True):
    metadata: _PodAnnotations = _PodAnnotations()


class LostPods:
    """Marks pods on lost nodes as failed, and force-deletes terminating ones."""

    def __init__(self, client: RestClient, events: JobEvents, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._events = events
        self._recorder = recorder
        self._clock = clock

    async def end(self, job: ObjectMeta, lost: Sequence[LostPod]) -> float | None:
        """Mark the pods as failed, or force-delete ended ones. Raises ApiError.

        A missing permission is only reported; returns when to try again then.
        """
        by_node: dict[str, list[LostPod]] = {}
        for each in lost:
            by_node.setdefault(each.pod.node, []).append(each)
        for name, pods in by_node.items():
            try:
                await self._end_pods(job, name, pods)
            except ForbiddenError as error:
                pod = pods[0].pod.metadata.name
                text = f"Pod {pod} is kept although its node {name} is lost: {error}; to grant this, {REMEDY}"
                self._events.warn(job, EventReason.NODES_UNAVAILABLE, text)
                return RETRY_S
        return None

    async def _end_pods(self, job: ObjectMeta, name: str, pods: Sequence[LostPod]) -> None:
        """Mark or force-delete the pods on a node if the node is still lost. Raises ApiError."""
        try:
            node = state_of(await self._client.get(NODES, "", name, Node), None, self._clock.monotonic())
        except NotFoundError:
            return  # the cache will reflect it
        found = node.lost_since()  # its identity is the time that the node gives: this read has seen it only now
        due = [pod for pod, since in pods if found is not None and found.given == since]

        async def end(number: int) -> None:
            with contextlib.suppress(ConflictError, NotFoundError):  # the pod has changed, which the cache will reflect
                done = await self._end(job, due[number])
                if done:
                    self._report(job, due[number], f"{done} pod {due[number].metadata.name}", pods[0].since)

        _, error = await slow_start_batch(len(due), end, MAX_AT_ONCE, at_once=MAX_AT_ONCE)
        if error is not None:
            raise error

    async def _end(self, job: ObjectMeta, pod: Pod) -> str:
        """Mark a pod as failed, or force-delete it; return what was done, or "". Raises ApiError."""
        meta = pod.metadata
        found = await self._client.get(PODS, meta.namespace, meta.name, _Annotated)
        if (found.metadata.annotations or {}).get(ANNOTATION_FORCE_DELETE) == "false":
            annotation = f'{ANNOTATION_FORCE_DELETE}: "false"'
            text = f"Pod {meta.name} is kept although its node is lost: it has the annotation {annotation}"
            self._events.warn(job, EventReason.NODE_LOST, text)
            return ""
        if pod.status.phase in TERMINAL:
            await self._client.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_s=0)
            return "Force-deleted"
        await self._mark(meta, f"Node {pod.node} is lost")
        return "Marked as failed:"

    def _report(self, job: ObjectMeta, pod: Pod, done: str, since: datetime | None) -> None:
        given = "" if since is None else f" since {since:%Y-%m-%dT%H:%M:%SZ}"
        text = f"{done}: its node {pod.node} has not been ready{given}"
        self._events.record(job, EventType.WARNING, EventReason.NODE_LOST, text)
        self._recorder.event(object_reference(PODS, pod.metadata), EventType.WARNING, EventReason.NODE_LOST, text)

    async def _mark(self, meta: Meta, message: str) -> None:
        condition: Mapping[str, object] = {
            "type": DISRUPTION_TARGET,
            "status": TRUE,
            "reason": EventReason.NODE_LOST,
            "message": message,
            "lastTransitionTime": self._clock.now().replace(microsecond=0),
        }
        status = {
            "phase": PodPhase.FAILED,
            "reason": EventReason.NODE_LOST,
            "message": message,
            "conditions": [condition],
        }
        body = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status}
        await self._client.patch(
            PODS, meta.namespace, meta.name, body, subresource="status", content_type=STRATEGIC_MERGE_PATCH
        )
