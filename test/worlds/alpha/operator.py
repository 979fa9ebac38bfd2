"""The real controller of the alpha dialect, one step at a time: see `worlds.operator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from tfjob_operator.api.core import CONFIG_MAPS, JOBS, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.controller.alpha.children import INDEXERS
from tfjob_operator.controller.alpha.controller import AlphaCaches, new_alpha_controller
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.manager import Controller
from tfjob_operator.informers import Indexer
from worlds.alpha.values import batch_struct, config_map_struct, job_struct, meta_of, pod_struct, service_struct
from worlds.operator import Body, GatedQueue, Office, OneSecond, Operator, Store, WaitingClient
from worlds.values import Child, Rv


class _AlphaClient(WaitingClient):
    def json_of(self, value: Rv | Child) -> dict[str, Any]:
        if isinstance(value, Rv):
            return super().json_of(value)
        return {"metadata": meta_of(value)}

    async def create(self, resource: Resource, namespace: str, body: object, into: Any = None, **options: Any) -> Any:
        metadata = cast("dict[str, Any]", body)["metadata"]
        labels, owner = metadata["labels"], metadata["ownerReferences"][0]["uid"]
        slot = owner, labels.get("job_type", ""), int(labels.get("task_index", 0))
        await self.ask("create", resource, metadata["name"], body=slot)
        return b"{}"


class _AlphaStore(Store):
    structs: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        TFJOBS.plural: job_struct,
        JOBS.plural: batch_struct,
        SERVICES.plural: service_struct,
        CONFIG_MAPS.plural: config_map_struct,
        PODS.plural: pod_struct,
    }


class AlphaOperator(Operator):
    """Steps of the second controller."""

    resources: ClassVar[tuple[str, ...]] = tuple(_AlphaStore.structs)
    job_class: ClassVar[type] = AlphaJob

    def new_client(self) -> WaitingClient:
        """The client of the controller."""
        return _AlphaClient()

    def begin(self, body: Body) -> None:
        """Let the controller begin to work: its caches are filled by now."""
        body.controller._feed.open(body.stores[TFJOBS.plural].indexer.list())

    def build(self, office: Office | None) -> Body:
        """The operator's objects."""
        assert office is None, "this controller does not ask since when it leads"
        queue = GatedQueue(busy=False)
        stores: dict[str, Store] = {
            resource: _AlphaStore(resource, Indexer({} if resource == TFJOBS.plural else dict(INDEXERS)), self.client)
            for resource in self.resources
        }
        jobs, batch_jobs, services, config_maps, pods = (cast("Any", store) for store in stores.values())
        caches = AlphaCaches(jobs, batch_jobs, pods, services, config_maps)
        controller = new_alpha_controller(
            KUBEFLOW, caches, self.client, self.recorder, queue, clock=self.clock, metrics=JobMetrics()
        )
        workers = Controller("alpha", controller.sync, queue=queue, outage=OneSecond(), clock=self.clock)
        return Body(controller, workers, queue, None, stores)
