"""How the stream of a watch gets through a faulty network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from simulation.model.network import NETWORK
from simulation.model.transport import StreamResponse
from simulation.model.watches import Watch
from simulation.weather import ERROR_EVENTS
from tfjob_operator.api.client.http import Request

if TYPE_CHECKING:  # it imports this module
    from simulation.faults import Network


class Wire:
    """Delivers a stream from the server to the client: a `Sink`.

    Invariant: data arrives in order; data in flight when the connection breaks does not arrive.
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
        self._broken = False  # nothing more is sent
        self._reset = False  # and what is in flight is lost
        self._fate = self._draw_fate()
        # Usually soon, and sometimes late enough that all initial events of a streamed list come before it.
        self._events_left = network.random.randrange(network.random.choice((4, 4, 16)))

    def open(self) -> None:
        """Open the watch on the server."""
        server = self._network.server
        server.opened(self._watch)
        self._repeat_last_line()
        self._watch.open(self, server.closed)
        if self._fate == "closed at once":
            self._watch.close()
            self.end()

    def send(self, data: bytes) -> None:
        """See `Sink.send`."""
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
        """See `Sink.end`."""
        if not self._broken:
            self._pass(self._response.end)

    def lose(self) -> None:
        """See `Sink.lose`."""
        if not self._broken:
            self._broken = self._reset = True
            self._response.lose()

    def _draw_fate(self) -> str:
        network, weather = self._network, self._network.weather
        fates = {
            "cut": weather.cut,
            "frozen": weather.frozen,
            "error event": weather.error_event,
            "closed at once": weather.closed_at_once,
        }
        return next((fate for fate, rate in fates.items() if network.happens(rate)), "")

    def _meet_fate(self, data: bytes) -> None:
        """Carry out the fault that strikes instead of delivering `data`."""
        random = self._network.random
        if self._fate == "cut":  # in the middle of a line, or between two
            self._pass(self._response.send, data[: random.randrange(len(data))])
            self._pass(self._response.lose)
        elif self._fate == "error event":
            status = random.choice(ERROR_EVENTS).body()
            self._pass(self._response.send, b'{"type":"ERROR","object":' + status + b"}\n")
            self._pass(self._response.end)
        self._broken = True  # frozen: the connection stays open, but nothing more comes
        self._watch.close()

    def _pass(self, deliver: Callable[..., None], *args: Any) -> None:
        """Deliver something after everything that was sent before it."""
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
        """Now and then send the last event that the client has seen once more.

        Not if the stream begins with the whole collection: that is a state, which must not have objects deleted since.
        """
        line = self._network.last_lines.get(self._place) if self._goes_on else None
        if line is None or not self._network.happens(self._network.weather.duplicate):
            return
        if msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"] == self._version:
            self._pass(self._response.send, line)
