"""The model API server with a namespace and a user, and the processes of operators that use it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Self, TypeVar

from fakes.jobs import replica
from fakes.transport import FakeResponse, FakeTransport
from kit.model.kinds import NAMESPACES, Kind
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from kit.model.versions import OLDEST
from kit.virtual_loop import VirtualClock
from simulation.kinds import KINDS_WITH_TFJOBS
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConnectError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.manager import Manager

HOME: Final = "team"
_RESOURCE: Final = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?([^/]+)")


class UnreliableTransport(ModelTransport):
    """A connection to the model server that a test can disturb; `requests` has what was sent on it.

    The first requests are answered by `script` instead. `fails` has the errors of requests by verb and resource. A request
    whose path contains `silent_for` gets no response; while it is `cut`, no connection is made. Responses take `delay_s`
    seconds; `cut_off` has the requests that were cancelled meanwhile.
    """

    def __init__(self, server: ModelServer, client: str = "", *script: FakeResponse | Exception) -> None:
        super().__init__(server, client)
        self.script = [*script]
        self.fails: dict[tuple[str, str], Exception] = {}
        self.silent_for: str | None = None
        self.cut = False
        self.delay_s = 0.0
        self.requests: list[Request] = []
        self.cut_off: list[str] = []

    @property
    def asked(self) -> list[tuple[str, str]]:
        """The verb and resource of each request."""
        return [*map(_asked, self.requests)]

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        self.requests.append(request)
        if self.script:
            return await FakeTransport(self.script.pop(0)).send(request, on_leave)
        if self.cut:
            raise ConnectError("connection refused", request=str(request))
        if self.silent_for is not None and self.silent_for in request.path:
            await asyncio.sleep(request.total_s)
            raise ConnectError("nobody answers", request=str(request))
        if (failure := self.fails.get(_asked(request))) is not None:
            raise failure
        answer = await super().send(request, on_leave)
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cut_off.append(str(request))
            raise
        return answer


def _asked(request: Request) -> tuple[str, str]:
    found = _RESOURCE.match(request.path)
    return "WATCH" if request.query.get("watch") else request.method, found[1] if found else ""


class ModelProcess:
    """A process that runs a manager until it is told to stop."""

    def __init__(self, manager: Manager, stop: asyncio.Event) -> None:
        self.manager = manager
        self.running = asyncio.create_task(manager.run())
        self._stop = stop

    async def end(self) -> float:
        """Tell it to stop; return how long it took. Raises what the manager raises."""
        begun = asyncio.get_running_loop().time()
        self._stop.set()
        await self.running
        return asyncio.get_running_loop().time() - begun


P = TypeVar("P", bound=ModelProcess)


class ModelCluster(Generic[P]):
    """The model server, its user, and the processes that serve it."""

    def __init__(self, namespace: str = HOME, *, kinds: Iterable[Kind] = KINDS_WITH_TFJOBS) -> None:
        self.server = ModelServer(kinds=kinds, kubernetes=OLDEST)
        self.client = self.client_on(ModelTransport(self.server, "user"))
        self.namespace = namespace
        self.processes: list[P] = []

    @staticmethod
    def client_on(transport: ModelTransport, field_manager: str = "") -> RestClient:
        return RestClient(transport, clock=VirtualClock(), field_manager=field_manager)

    async def begin(self) -> Self:
        """Create the namespace."""
        await self.client.create(NAMESPACES, "", {"metadata": {"name": self.namespace}})
        return self

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[Self]:
        """Create the namespace; cancel the processes that run at the end of the block."""
        try:
            yield await self.begin()
        finally:
            for process in self.processes:
                process.running.cancel()
            await asyncio.gather(*(process.running for process in self.processes), return_exceptions=True)

    async def create_job(self, name: str = "mnist", *, wait_s: float = 0.0, **spec: Any) -> None:
        """Create a job with one worker and these fields, and wait."""
        head = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "metadata": {"name": name}}
        body = head | {"spec": {"tfReplicaSpecs": {"Worker": replica(1)}} | spec}
        await self.client.create(TFJOBS, self.namespace, body)
        await asyncio.sleep(wait_s)

    def names(self, plural: str) -> list[str]:
        return sorted(name for _, name in self.server.storage.collections[plural].objects)

    def body(self, plural: str, name: str) -> dict[str, Any]:
        """Return a stored object."""
        found: dict[str, Any] = self.server.storage.collections[plural].objects[self.namespace, name].body
        return found

    def written(self, by: str) -> list[str]:
        """Return the kinds of object that a client has written, in order."""
        writes = [write for write in self.server.writes if write.client == by]
        return [write.path.split("/")[-1 if write.method == "POST" else -2] for write in writes]
