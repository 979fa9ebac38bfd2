"""A controller of the alpha dialect and what surrounds it: real stores and queue, and a client that records."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from fakes.alpha import batch_job, job, pod_of, service, spec
from fakes.api import FakeClient
from fakes.controller import StubInformer
from fakes.recorder import FakeRecorder
from fakes.virtual_loop import VirtualClock
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus
from tfjob_operator.controller.alpha.children import INDEXERS
from tfjob_operator.controller.alpha.controller import AlphaCaches, new_alpha_controller
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.informers import Indexer
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, RateLimitingQueue

KEY = "ns/example-job"
STATUS = ("patch status", "tfjobs", "example-job")
CONFIRM = ("get", "tfjobs", "example-job")
ONE = spec(RuntimeId="76no")


class World:
    """A controller, its caches, filled by hand, and a client that records."""

    def __init__(self, dialect: Dialect = KUBEFLOW) -> None:
        self.clock = VirtualClock()
        self.client = FakeClient()
        self.recorder = FakeRecorder()
        self.jobs = StubInformer(Indexer())
        self.batch_jobs, self.pods, self.services, self.config_maps = (
            StubInformer(Indexer(INDEXERS)) for _ in range(4)
        )
        self.queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter())
        informers: Any = (self.jobs, self.batch_jobs, self.pods, self.services, self.config_maps)
        self.controller = new_alpha_controller(
            dialect,
            AlphaCaches(*informers),
            self.client,
            self.recorder,
            self.queue,
            clock=self.clock,
            metrics=JobMetrics(),
        )

    def put(self, found: AlphaJob) -> None:
        """Let the cache see a job, and the server confirm it."""
        self.jobs.put(found)
        meta = {"name": "example-job", "resourceVersion": found.metadata.resource_version}
        self.client.objects["tfjobs", "example-job"] = {"metadata": meta}

    async def sync(self) -> list[tuple[str, str, str]]:
        """Sync the job once. Return what was sent."""
        self.client.actions.clear()
        try:
            await self.controller.sync(KEY)
        finally:
            if STATUS in self.client.actions and STATUS not in self.client.fail:
                written = {"name": "example-job", "resourceVersion": self.client.given_version}
                self.client.objects["tfjobs", "example-job"] = {"metadata": written}
        return list(self.client.actions)

    @property
    def status(self) -> dict[str, Any]:
        """The status that was written last."""
        return cast("dict[str, Any]", self.client.bodies[STATUS][1]["value"])

    def observe_status(self) -> AlphaJob:
        """Let the cache see the status that was written last."""
        cached = cast("AlphaJob", self.jobs.indexer.get(KEY))
        self.client.given_version = str(int(self.client.given_version) + 1)
        meta = msgspec.structs.replace(cached.metadata, resource_version=self.client.given_version)
        found = msgspec.structs.replace(
            cached, metadata=meta, status=msgspec.convert(self.status, AlphaStatus, strict=False)
        )
        self.put(found)
        return found

    def observe(self, *names: str) -> None:
        """Let the caches see services of these names."""
        for name in names:
            self.services.put(service(name))

    async def begun(self, given: dict[str, Any] = ONE) -> None:
        """Sync a job of one master until its Job runs."""
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
