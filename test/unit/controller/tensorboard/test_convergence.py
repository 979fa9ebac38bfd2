"""From any state, the controller converges to the requested Deployment and Service, or to none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from fakes.cluster import HOME
from support.cases import for_each
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.tensorboard import ServiceType, TensorBoard
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.tensorboard.dialects import BoardDialect
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, labels_of
from unit.controller.tensorboard.bench import BOARD, NAME, Bench, Process, a_board

RESOURCES = {resource.kind: resource for resource in (DEPLOYMENTS, SERVICES)}


def request(name: str = NAME, labels: str = "mnist", **board: Any) -> TensorBoardRequest:
    return TensorBoardRequest(name, labels_of(labels), replace(TensorBoard("/logs"), **board))


WISHES: list[TensorBoardRequest | None] = [
    None,
    request(),
    request(log_dir="/other"),
    request(image="own:1"),
    request(service_type=ServiceType.LOAD_BALANCER),
    request(volumes=({"name": "v", "emptyDir": {}},), volume_mounts=({"name": "v", "mountPath": "/v"},)),
    request(name="tensorboard-pj6i"),
    request(labels="other"),
]


class Wishing(Bench):
    """A cluster with one job, which wishes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.wish: TensorBoardRequest | None = None
        self.wishes = 0

    async def settle(self, wish: TensorBoardRequest | None) -> None:
        """Change the wish, and wait until it is fulfilled."""
        self.wish, self.wishes = wish, self.wishes + 1
        await self.client.patch(TFJOBS, HOME, "mnist", {"metadata": {"labels": {"wish": str(self.wishes)}}})
        await asyncio.sleep(10.0)

    def specs(self) -> dict[tuple[str, str], Any]:
        return {
            (kind, name): without_empty(self.body(each.plural, name)["spec"])
            for kind, each in RESOURCES.items()
            for name in self.names(each.plural)
        }


def without_empty(value: Any) -> Any:
    """Return a value without empty lists, which Go does not write."""
    if isinstance(value, dict):
        return {key: without_empty(each) for key, each in value.items() if each != []}
    return [without_empty(each) for each in value] if isinstance(value, list) else value


@asynccontextmanager
async def wishing() -> AsyncIterator[Wishing]:
    async with Wishing().begun() as bench:
        assert isinstance(bench, Wishing)
        bench.start(BoardDialect[TFJob](TFJOBS, lambda _: True, lambda _: bench.wish))
        await bench.create_job(wait_s=1.0)
        yield bench


@pytest.mark.parametrize("lost", ["", DEPLOYMENTS.kind, SERVICES.kind])
@for_each("after", WISHES)
@for_each("before", WISHES)
async def test_from_any_wish_to_any_other_the_way_ends_where_it_would_have_ended_without_the_first(
    before: TensorBoardRequest | None, after: TensorBoardRequest | None, lost: str
) -> None:
    """TB-06: the objects in the end depend on the last request alone, whatever existed or was lost before."""
    async with wishing() as bench, wishing() as straight:
        await bench.settle(before)
        for kind, name in bench.specs():
            if kind == lost:
                await bench.client.delete(RESOURCES[kind], HOME, name)
        await bench.settle(after)
        await straight.settle(after)
        assert bench.specs() == straight.specs()
        assert len(bench.specs()) == (0 if after is None else 2)
        written = len(bench.written("operator"))
        await asyncio.sleep(600.0)
        assert len(bench.written("operator")) == written


def in_template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


OTHER = {"app.kubernetes.io/instance": "other"}
CONTAINER = {"name": "tensorboard", "image": "board:1"}
PORT = {"name": "tb-port", "port": 80, "targetPort": 6006}
EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "kubectl scale": (DEPLOYMENTS.kind, {"spec": {"replicas": 0}}),
    "kubectl set image": (DEPLOYMENTS.kind, in_template(containers=[{"name": "tensorboard", "image": "x"}])),
    "another container": (DEPLOYMENTS.kind, in_template(containers=[{"name": "shell", "image": "x"}])),
    "one more container": (DEPLOYMENTS.kind, in_template(containers=[CONTAINER, {"name": "shell", "image": "x"}])),
    "no volumes": (DEPLOYMENTS.kind, in_template(volumes=None)),
    "a label of the deployment": (DEPLOYMENTS.kind, {"metadata": {"labels": OTHER}}),
    "the pods of the deployment": (DEPLOYMENTS.kind, {"spec": {"selector": {"matchLabels": OTHER}}}),
    "one more label of the pods": (DEPLOYMENTS.kind, {"spec": {"selector": {"matchLabels": {"app": "other"}}}}),
    "the type of the service": (SERVICES.kind, {"spec": {"type": "NodePort"}}),
    "the selector of the service": (SERVICES.kind, {"spec": {"selector": {"app": "other"}}}),
    "the ports of the service": (SERVICES.kind, {"spec": {"ports": [{"port": 8080, "targetPort": 6006}]}}),
    "one more port of the service": (SERVICES.kind, {"spec": {"ports": [PORT, {"port": 8080, "targetPort": 6006}]}}),
}
ADDITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "a toleration": (DEPLOYMENTS.kind, in_template(tolerations=[{"key": "gpu"}])),
    "an annotation of a load balancer": (SERVICES.kind, {"metadata": {"annotations": {"cloud/internal": "true"}}}),
    "a finalizer of a load balancer": (SERVICES.kind, {"metadata": {"finalizers": ["cloud.example/keep"]}}),
}
WITH_VOLUME = BOARD | {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}


def contents(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its version and managers."""
    changing = {"resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"}
    return body | {"metadata": {key: value for key, value in body["metadata"].items() if key not in changing}}


async def edited(bench: Bench, process: Process, kind: str, change: dict[str, Any]) -> list[str]:
    """Edit a child; return the reasons of the events that follow."""
    process.recorder.events.clear()
    await bench.client.patch(RESOURCES[kind], HOME, NAME, change)
    await asyncio.sleep(10.0)
    return process.recorder.reasons


@pytest.mark.parametrize("edit", EDITS)
async def test_what_people_edit_of_the_wish_is_set_back(edit: str) -> None:
    """TB-07: what runs is what the job says. It is reported once, also by a process that has not created the TensorBoard."""
    async with a_board() as (bench, process):
        await bench.edit(WITH_VOLUME)
        untouched = [contents(bench.board(each)) for each in RESOURCES.values()]
        for again in (False, True):
            if again:
                await process.end()
                process = bench.start()  # noqa: PLW2901 - the next process
                await asyncio.sleep(1.0)
            recreated = "selector" in EDITS[edit][1].get("spec", {}) and EDITS[edit][0] == DEPLOYMENTS.kind
            reasons = await edited(bench, process, *EDITS[edit])
            if recreated:
                assert reasons == ["SuccessfulDeleteTensorBoard", "SuccessfulCreateTensorBoard"]
            else:
                assert reasons == ["SuccessfulUpdateTensorBoard"]
            assert [contents(bench.board(each)) for each in RESOURCES.values()] == untouched


@pytest.mark.parametrize("addition", ADDITIONS)
async def test_what_people_add_stays(addition: str) -> None:
    """TB-07: the job does not say which tolerations or annotations there are. An update of the TensorBoard keeps them."""
    kind, change = ADDITIONS[addition]
    async with a_board() as (bench, process):
        before = contents(bench.board(RESOURCES[kind]))
        assert await edited(bench, process, kind, change) == []
        after = contents(bench.board(RESOURCES[kind]))
        assert after != before
        await bench.edit(BOARD | {"logDir": "/other", "serviceType": "NodePort"})
        await bench.edit(BOARD | {"serviceType": None})
        assert contents(bench.board(RESOURCES[kind])) == after


async def test_a_volume_that_is_removed_from_the_job_goes_though_a_patch_had_replaced_all() -> None:
    """TB-06: fields that were written without apply count as applied by the next one."""
    async with a_board() as (bench, process):
        await bench.edit(WITH_VOLUME)
        assert await edited(bench, process, *EDITS["another container"]) == ["SuccessfulUpdateTensorBoard"]
        await bench.edit(BOARD | {"volumes": None, "volumeMounts": None})
        pod = bench.board()["spec"]["template"]["spec"]
        assert not pod.get("volumes")
        assert not pod["containers"][0].get("volumeMounts")
