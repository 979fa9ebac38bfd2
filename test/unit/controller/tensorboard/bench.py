"""A process with the controller of TensorBoards, and the cluster that it serves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fakes.cluster import HOME, ModelCluster, ModelProcess, UnreliableTransport
from fakes.recorder import FakeRecorder
from kit.model.server import ModelServer
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.core import DEPLOYMENTS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.manager import Manager
from tfjob_operator.controller.options import SERVICE_TYPES
from tfjob_operator.controller.tensorboard.dialects import TFJOB, BoardDialect
from tfjob_operator.controller.tensorboard.tensorboard_controller import TensorBoardControllers
from tfjob_operator.informers import Codec, SharedInformerFactory

BOARD = {"logDir": "/logs"}
NAME = "mnist-tensorboard"


class Process(ModelProcess):
    def __init__(self, server: ModelServer, dialect: BoardDialect[TFJob] = TFJOB) -> None:
        self.line = UnreliableTransport(server, "operator")
        self.recorder = FakeRecorder()
        stop = asyncio.Event()
        client = ModelCluster.client_on(self.line, "tf-operator")
        informers = SharedInformerFactory(client, clock=VirtualClock(), random=lambda: 0.5)
        boards = TensorBoardControllers(
            informers,
            client,
            client,
            self.recorder,
            namespace=HOME,
            default_image="board:1",
            service_types=SERVICE_TYPES,
            clock=VirtualClock(),
        )
        controller = boards.controller(dialect, informers.informer(Codec(TFJOBS, TFJob), namespace=HOME))
        super().__init__(Manager(informers, controller, stop=stop), stop)


class Bench(ModelCluster[Process]):
    def start(self, dialect: BoardDialect[TFJob] = TFJOB) -> Process:
        process = Process(self.server, dialect)
        self.processes.append(process)
        return process

    async def edit(self, board: Any, name: str = "mnist") -> None:
        """Set the field of a job; None removes it."""
        await self.client.patch(TFJOBS, HOME, name, {"spec": {"tensorBoard": board}})
        await asyncio.sleep(1.0)

    def children(self) -> list[str]:
        return [*self.names("deployments"), *self.names("services")]

    def board(self, resource: Resource = DEPLOYMENTS) -> dict[str, Any]:
        return self.body(resource.plural, NAME)

    def command(self) -> list[str]:
        found: list[str] = self.board()["spec"]["template"]["spec"]["containers"][0]["command"]
        return found


@asynccontextmanager
async def a_board() -> AsyncIterator[tuple[Bench, Process]]:
    """A process that has made the TensorBoard of a job."""
    async with Bench().begun() as bench:
        process = bench.start()
        await bench.create_job(tensorBoard=BOARD, wait_s=1.0)
        yield bench, process
