"""A controller with real stores and queue, and a client that records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from fakes.api import FakeClient
from fakes.jobs import job, pod, service
from fakes.objects import changed
from fakes.recorder import FakeRecorder
from kit.virtual_loop import FakeClock, VirtualClock
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.core import Node
from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.blocked import BlockedChildren, Delays
from tfjob_operator.controller.jobs.children import CHILD_INDEXERS, ConfigMap, Pod, PodGroup, Service
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.apply.creator import Creator, Deleter
from tfjob_operator.controller.tfjob.apply.ownership import RefManager
from tfjob_operator.controller.tfjob.apply.status_writer import TFJobStatusWriter
from tfjob_operator.controller.tfjob.build.builder import GangScheduler
from tfjob_operator.controller.tfjob.caches import PodGroupCache, TFJobCaches
from tfjob_operator.controller.tfjob.log_reader import LogReader
from tfjob_operator.controller.tfjob.nodes import NodeCache
from tfjob_operator.controller.tfjob.tfjob_controller import TFJobController
from tfjob_operator.controller.tfjob.view import LeadershipTerm, PrunedStatus
from tfjob_operator.informers import EventHandler, SharedIndexInformer
from tfjob_operator.informers.handlers import ListHandler
from tfjob_operator.informers.store import MutableIndexer
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, RateLimitingQueue

KEY = "ns/mnist"
STATUS = ("patch status", "tfjobs", "mnist")
LOOK = ("get", "tfjobs", "mnist")
CREATE_SERVICE = ("create", "services", "mnist-worker-0")
CREATE_POD = ("create", "pods", "mnist-worker-0")


class StubInformer:
    """A store that a test fills manually; it notifies handlers like an informer."""

    def __init__(self, indexer: MutableIndexer[Any]) -> None:
        self.indexer = indexer
        self.handlers: list[EventHandler[Any]] = []
        self.has_synced = True
        self.has_run = False
        self.on_error: Callable[[ApiError], None]

    def set_watch_error_handler(self, handler: Callable[[ApiError], None]) -> None:
        self.on_error = handler

    def add_event_handler(self, handler: EventHandler[Any]) -> None:
        self.handlers.append(handler)

    def put(self, item: Any) -> None:
        old = self.indexer.put(meta_key(item.metadata), item)
        for handler in self.handlers:
            if old is None:
                handler.on_add(item, False)
            else:
                handler.on_update(old, item)

    def list_again(self, version: str) -> None:
        """Simulate a list with this version and the contents of the store."""
        for handler in self.handlers:
            if isinstance(handler, ListHandler):
                handler.on_list(version)

    async def run(self) -> None:
        """Run until cancelled."""
        self.has_run = True
        await asyncio.Event().wait()

    def remove(self, item: Any) -> None:
        self.indexer.remove(meta_key(item.metadata))
        for handler in self.handlers:
            handler.on_delete(item)


class Harness:
    """What the controllers of both dialects depend on, and what they did to the one job of this name."""

    def __init__(self, name: str, indexers: Mapping[str, Any]) -> None:
        self.clock = VirtualClock()
        self.client = FakeClient()
        self.recorder = FakeRecorder()
        self.metrics = JobMetrics()
        self.jobs = StubInformer(MutableIndexer())
        self.pods = StubInformer(MutableIndexer(indexers))
        self.services = StubInformer(MutableIndexer(indexers))
        self.config_maps = StubInformer(MutableIndexer(indexers))
        self.queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter())
        self._name = name

    @property
    def status(self) -> dict[str, Any]:
        """The last written status."""
        found: dict[str, Any] = self.client.bodies["patch status", "tfjobs", self._name][1]["value"]
        return found

    def confirms(self, version: str = "2") -> None:
        """Let the API server return this version of the job."""
        self.client.objects["tfjobs", self._name] = {"metadata": {"name": self._name, "resourceVersion": version}}

    def taken(self) -> list[tuple[str, str, str]]:
        """Return the requests since the last call."""
        actions = list(self.client.actions)
        self.client.actions.clear()
        return actions


class ControllerHarness(Harness):
    """A controller and its dependencies."""

    def __init__(
        self,
        *jobs: TFJob,
        gang: GangScheduler | None = None,
        alone: bool = False,
        ignore_alpha: bool = False,
        logs: Callable[[Feed], LogReader] | None = None,
    ) -> None:
        """`jobs` are in the cache. `alone`: the controller holds a lease, and can have a `leadership_term`."""
        super().__init__("mnist", CHILD_INDEXERS)
        self.leadership_term = LeadershipTerm(self.client, "") if alone else None
        self.expectations = Expectations(self.clock)
        self.pod_groups = StubInformer(MutableIndexer())
        self.nodes = StubInformer(MutableIndexer())
        groups = cast("SharedIndexInformer[PodGroup]", self.pod_groups)
        self.caches = TFJobCaches(
            jobs=cast("SharedIndexInformer[TFJob]", self.jobs),
            pods=cast("SharedIndexInformer[Pod]", self.pods),
            services=cast("SharedIndexInformer[Service]", self.services),
            config_maps=cast("SharedIndexInformer[ConfigMap]", self.config_maps),
            pod_groups=PodGroupCache(gang, groups) if gang is not None else None,
        )
        nodes = cast("SharedIndexInformer[Node]", self.nodes)
        feed = Feed(self.queue)
        self.node_cache = NodeCache(lambda: nodes, self.client, self.caches.pods.indexer, feed, self.clock)
        self.controller = TFJobController(
            self.caches,
            self.client,
            self.recorder,
            feed,
            clock=self.clock,
            metrics=self.metrics,
            leadership_term=self.leadership_term,
            ignore_alpha=ignore_alpha,
            expectations=self.expectations,
            nodes=self.node_cache,
            logs=logs(feed) if logs is not None else None,
        )
        self.workers = Controller("tfjob", self.controller.sync, queue=self.queue, clock=self.clock)
        self.controller.queue_jobs()
        for each in jobs:
            self.jobs.put(each)

    @classmethod
    async def of_running(cls, given: dict[str, Any]) -> ControllerHarness:
        """Return the harness of a job whose replicas all run, according to its status."""
        world = cls(job(given))
        for kind, entry in given["tfReplicaSpecs"].items():
            for index in range(entry["replicas"]):
                world.put_children(kind, index)
        await world.sync_and_observe()
        world.taken()
        world.recorder.events.clear()
        return world

    @classmethod
    async def of_untouched(cls, given: dict[str, Any], *, others: int) -> ControllerHarness:
        """Return the harness of a job that appeared in this leadership term, with other jobs in the queue."""
        world = cls(alone=True)
        assert world.leadership_term is not None
        world.client.list_version = "40"
        await world.leadership_term.begin()
        world.jobs.put(job(given, resource_version="41"))
        assert await world.queue.get() == KEY  # for its sync by the worker
        for number in range(others):
            world.queue.add(f"ns/other-{number}")
        world.taken()
        return world

    @property
    def conditions(self) -> list[str]:
        """The types of the last written conditions."""
        return [each["type"] for each in self.status["conditions"]]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the workers inside the block."""
        workers = asyncio.create_task(self.workers.run())
        yield
        self.queue.shut_down()
        await workers

    async def idle(self) -> None:
        """Remove all keys from the queue, as if they were synced."""
        while len(self.queue):
            self.queue.done(await self.queue.get())

    async def sync(self, version: TFJob | None = None) -> None:
        """Sync the job once, as cached, or after the cache received this `version`."""
        if version is not None:
            self.jobs.put(version)
        await self.controller.sync(KEY)

    async def sync_and_take(self, version: TFJob | None = None) -> list[tuple[str, str, str]]:
        """Sync like `sync`, and return the requests since the last ones that were taken."""
        await self.sync(version)
        return self.taken()

    async def sync_and_observe(self) -> None:
        """Sync the job once, and add the written status to the cache."""
        await self.sync()
        self.observe_status()

    def put_children(self, replica_type: str, index: int, *how: Any) -> None:
        """Add the pod and Service of a replica to the caches; `how` are the phase and exit code of the pod."""
        self.pods.put(pod(replica_type, index, *how))
        self.services.put(service(replica_type, index))

    def observe_children(self) -> None:
        """Add the worker's pod and Service to the caches."""
        self.put_children("Worker", 0, "Pending")

    def observe_status(self) -> None:
        """Add the last written status to the cache, without pruned fields."""
        status = msgspec.convert(
            {key: value for key, value in self.status.items() if key not in self.client.drops}, JobStatus
        )
        held = cast("TFJob", self.jobs.indexer.get(KEY))
        self.jobs.put(changed(held, metadata__resource_version=self.client.given_version, status=status))
        self.confirms(self.client.given_version)


class Parts:
    """The parts of a controller that write; they share a client, a recorder and state, and each can be used separately."""

    def __init__(self, client: Any = None, metrics: JobMetrics | None = None) -> None:
        """`client` defaults to a FakeClient."""
        self.client = client or FakeClient()
        self.recorder = FakeRecorder()
        self.clock = FakeClock()
        events = JobEvents(TFJOBS, self.recorder, self.clock)
        delays = Delays(self.clock)
        self.expectations = Expectations(self.clock)
        self.blocked = BlockedChildren(self.clock, delays)
        self.pruned = PrunedStatus(events, Feed(RateLimitingQueue(ItemExponentialFailureRateLimiter())), self.clock)
        self.creator = Creator(self.client, events, self.expectations, self.blocked)
        self.deleter = Deleter(self.client, events, self.expectations)
        self.confirmer = Confirmer(self.client)
        self.manager = RefManager(self.client, self.confirmer, events, self.expectations, delays)
        self.writer = TFJobStatusWriter(
            self.client, events, metrics or JobMetrics(), self.clock, confirmer=self.confirmer, pruned=self.pruned
        )
