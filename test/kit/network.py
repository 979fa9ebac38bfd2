"""A network between clients and the model server with the faults of networks, proxies and overloaded servers.

All faults come from one random source. They stop at a fixed time; from then on everything arrives, so correct code must reach a
stable state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from kit.faults import CONFLICT, ERROR_EVENTS, REFUSALS, Faults
from kit.model.server import ModelServer
from kit.model.storage import Collection
from kit.model.transport import ModelTransport, StreamResponse, WholeResponse
from kit.model.watches import Watch
from kit.virtual_loop import NETWORK
from tfjob_operator.api.client.errors import ConnectError, ConnectionLostError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged

NEVER: Final = 1e9

Outcome = WholeResponse | StreamResponse | TransportError


class Network:
    """All connections to one server, and their common faults (`faults`) until `calm_at`."""

    def __init__(self, server: ModelServer, random: Random, faults: Faults, calm_at: float) -> None:
        self.server = server
        self.random = random
        self.faults = faults
        self.calm_at = calm_at
        self.down_until = 0.0
        self.last_lines: dict[tuple[str, str], bytes] = {}
        """The last event sent to each client, by client and path."""
        server.lag = self._lag
        self._schedule_trouble()

    @property
    def is_calm(self) -> bool:
        return asyncio.get_running_loop().time() >= self.calm_at

    def happens(self, rate: float) -> bool:
        return rate > 0 and self.random.random() < rate

    def delay(self) -> float:
        return self.random.random() * self.faults.latency_s

    def _lag(self, collection: Collection, oldest: int) -> int:
        """Sometimes serve a list from another API server, whose watch cache lags by some changes."""
        if self.is_calm or not self.happens(self.faults.stale):
            return collection.seen
        versions = [change.rv for change in collection.since(oldest) if change.rv < collection.seen]
        return self.random.choice([max(oldest, 1), *versions]) if versions else collection.seen

    def _schedule_trouble(self) -> None:
        loop = asyncio.get_running_loop()
        problems: tuple[tuple[int, Callable[[], None]], ...] = (
            (self.faults.restarts, self._restart),
            (self.faults.compactions, self._compact),
            (self.faults.freezes, self._freeze),
        )
        for times, trouble in problems:
            for _ in range(times):
                loop.call_at(self.random.random() * self.calm_at, trouble, context=NETWORK)

    def _restart(self) -> None:
        """Stop the API server with all its connections, and restart it."""
        now = asyncio.get_running_loop().time()
        self.down_until = min(now + self.random.uniform(0.1, 10.0), self.calm_at)
        self.server.restart()

    def _compact(self) -> None:
        """Forget history up to now or a little earlier."""
        storage = self.server.storage
        storage.compact(storage.rv - self.random.choice((0, 0, 1, 5)))

    def _freeze(self) -> None:
        """Let the watch cache of one resource lag for a while."""
        storage = self.server.storage
        collection = self.random.choice([*storage.collections.values()])
        storage.freeze(collection)
        loop = asyncio.get_running_loop()
        until = min(loop.time() + self.random.uniform(0.5, 20.0), self.calm_at)
        loop.call_at(until, storage.thaw, collection, context=NETWORK)


class FaultyTransport:
    """One client's connection to the server, with the network's faults.

    Invariant: a request arrives at most once, and is executed even if the client no longer waits. After `kill` nothing is sent.
    """

    def __init__(self, network: Network, client: str) -> None:
        self._network = network
        self._client = client
        self._calm = ModelTransport(network.server, client)
        self._killed = False

    def kill(self) -> None:
        """Simulate the death of the client's process: its requests no longer reach the server."""
        self._killed = True

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        if self._killed:
            raise ConnectError("the process is dead", request=str(request))
        if self._network.is_calm:
            return await self._calm.send(request, on_leave)
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        _Exchange(self._network, self._client, on_leave(request), future).begin()
        try:
            return await future
        except asyncio.CancelledError:
            # The response may have arrived at the moment of the cancellation.
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()
            raise


class _Exchange:
    """One request in flight. Its steps are timers of the network, so they continue while the client's process is stalled."""

    def __init__(self, network: Network, client: str, request: Request, future: asyncio.Future[Response]) -> None:
        self._network = network
        self._faults = network.faults
        self._client = client
        self._request = request
        self._future = future
        self._started = asyncio.get_running_loop().time()

    def begin(self) -> None:
        faults, network = self._faults, self._network
        if network.happens(faults.refused):
            self._resolve_in(network.delay(), ConnectError("connection refused", request=str(self._request)))
        elif network.happens(faults.lost_request):
            self._resolve_in(network.delay() if network.happens(0.7) else NEVER, self._lost())
        elif network.happens(faults.refusals):
            spurious = (*REFUSALS, CONFLICT) if self._request.method in {"PUT", "PATCH"} else REFUSALS
            self._resolve_in(network.delay(), WholeResponse(network.random.choice(spurious)))
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(network.delay(), self._arrive, context=NETWORK)

    def _arrive(self) -> None:
        network, faults = self._network, self._faults
        if asyncio.get_running_loop().time() < network.down_until:
            self._resolve_in(0.0, ConnectError("connection refused", request=str(self._request)))
            return
        answer = network.server.exchange(self._request, self._client)
        delay = network.delay() + answer.delay_s
        if answer.watch is not None:
            response = StreamResponse(self._request, answer.watch, answer.headers)
            wire = Wire(network, self._client, self._request, answer.watch, response)
            if self._resolve_in(delay, response):
                wire.open()
        elif network.happens(faults.lost_reply):
            # headers may have arrived without the body
            outcome: Outcome = WholeResponse(answer, self._lost()) if network.happens(0.3) else self._lost()
            self._resolve_in(delay if network.happens(0.7) else NEVER, outcome)
        else:
            self._resolve_in(delay, WholeResponse(answer))

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError("connection reset by peer", request=str(self._request))

    def _resolve_in(self, delay: float, outcome: Outcome) -> bool:
        """Deliver the outcome, or a timeout if it is too late. Return whether it was in time."""
        loop = asyncio.get_running_loop()
        left = self._started + self._request.total_s - loop.time()
        in_time = delay < left
        if not in_time:
            delay, outcome = left, RequestTimeoutError("timed out waiting for the response", request=str(self._request))
        loop.call_later(max(0.0, delay), self._resolve, outcome, context=NETWORK)
        return in_time

    def _resolve(self, outcome: Outcome) -> None:
        if self._future.done():  # the caller is gone
            if isinstance(outcome, StreamResponse):
                outcome.close()
        elif isinstance(outcome, TransportError):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)


class Wire:
    """Delivers a stream from the server to the client: a `Sink`.

    Invariant: data arrives in order; data in flight is lost when the connection breaks.
    """

    def __init__(self, network: Network, client: str, request: Request, watch: Watch, response: StreamResponse) -> None:
        self._network = network
        self._watch = watch
        self._response = response
        self._place = (client, request.path + request.query.get("labelSelector", ""))
        self._version = request.query.get("resourceVersion", "")
        self._goes_on = "sendInitialEvents" not in request.query
        self._due = 0.0
        self._on_the_way: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._broken = False  # stop sending
        self._reset = False  # drop data in flight
        self._fate = self._draw_fate()
        # Usually soon; sometimes so late that all initial events of a streamed list arrive first.
        self._events_left = network.random.randrange(network.random.choice((4, 4, 16)))

    def open(self) -> None:
        server = self._network.server
        server.opened(self._watch)
        self._repeat_last_line()
        self._watch.open(self, server.closed)
        if self._fate == "closed at once":
            self._watch.close()
            self.end()

    def send(self, data: bytes) -> None:
        network = self._network
        if self._broken:
            return
        if not network.is_calm and self._fate:
            if self._events_left == 0:
                self._meet_fate(data)
                return
            self._events_left -= 1
        if not network.is_calm and network.happens(0.1):
            cut = network.random.randrange(len(data))
            self._pass(self._response.send, data[:cut])
            self._pass(self._response.send, data[cut:])
        else:
            self._pass(self._response.send, data)
        self._pass(self._remember, data)

    def end(self) -> None:
        if not self._broken:
            self._pass(self._response.end)

    def lose(self) -> None:
        if not self._broken:
            self._broken = self._reset = True
            self._response.lose()

    def _draw_fate(self) -> str:
        network, faults = self._network, self._network.faults
        fates = {
            "cut": faults.cut,
            "frozen": faults.frozen,
            "error event": faults.error_event,
            "closed at once": faults.closed_at_once,
        }
        return next((fate for fate, rate in fates.items() if network.happens(rate)), "")

    def _meet_fate(self, data: bytes) -> None:
        """Execute the fault that replaces the delivery of `data`."""
        random = self._network.random
        if self._fate == "cut":  # within a line, or between two
            self._pass(self._response.send, data[: random.randrange(len(data))])
            self._pass(self._response.lose)
        elif self._fate == "error event":
            status = random.choice(ERROR_EVENTS).body()
            self._pass(self._response.send, b'{"type":"ERROR","object":' + status + b"}\n")
            self._pass(self._response.end)
        self._broken = True  # frozen: the connection stays open without data
        self._watch.close()

    def _pass(self, deliver: Callable[..., None], *args: Any) -> None:
        """Deliver an item after all earlier ones."""
        loop = asyncio.get_running_loop()
        delay = 0.0 if self._network.is_calm else self._network.delay()
        self._due = max(self._due, loop.time() + delay)
        self._on_the_way.append((deliver, args))
        if self._due <= loop.time():
            self._arrive()
        else:
            loop.call_at(self._due, self._arrive, context=NETWORK)

    def _arrive(self) -> None:
        """Deliver the oldest item in flight: timers for the same time may run in any order."""
        deliver, args = self._on_the_way.popleft()
        if not self._reset:
            deliver(*args)

    def _remember(self, data: bytes) -> None:
        if not data.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            self._network.last_lines[self._place] = data

    def _repeat_last_line(self) -> None:
        """Sometimes repeat the last event that the client has seen.

        Not if the stream starts with the whole collection: a state must not contain objects deleted since.
        """
        line = self._network.last_lines.get(self._place) if self._goes_on else None
        if line is None or not self._network.happens(self._network.faults.duplicate):
            return
        if msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"] == self._version:
            self._pass(self._response.send, line)
