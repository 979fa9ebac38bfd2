"""The way of a watch's stream through the weather."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from simulation.model.network import NETWORK
from simulation.weather import ERROR_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.faults import Network
    from simulation.model.transport import StreamResponse
    from simulation.model.watches import Watch
    from tfjob_operator.api.client.http import Request


class Wire:
    """The way of a stream from the server to the client: a `Sink`.

    Invariant: what arrives, arrives in order; what was on its way when the connection broke does not.
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
        self._broken = False  # nothing more is put on the way
        self._reset = False  # and what is on the way is lost
        self._fate = self._draw_fate()
        # Mostly soon, and sometimes late enough for all that a streamed list begins with.
        self._events_left = network.random.randrange(network.random.choice((4, 4, 16)))

    def open(self) -> None:
        """Let the server begin."""
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
        """What happens instead of the arrival of `data`."""
        random = self._network.random
        if self._fate == "cut":  # in the middle of a line, or between two
            self._pass(self._response.send, data[: random.randrange(len(data))])
            self._pass(self._response.lose)
        elif self._fate == "error event":
            status = random.choice(ERROR_EVENTS).body()
            self._pass(self._response.send, b'{"type":"ERROR","object":' + status + b"}\n")
            self._pass(self._response.end)
        self._broken = True  # frozen: the connection stays, and nothing comes any more
        self._watch.close()

    def _pass(self, deliver: Callable[..., None], *args: Any) -> None:
        """Let something arrive after everything that was sent before it."""
        loop = asyncio.get_running_loop()
        delay = 0.0 if self._network.is_calm else self._network.delay()
        self._due = max(self._due, loop.time() + delay)
        self._on_the_way.append((deliver, args))
        if self._due <= loop.time():
            self._arrive()
        else:
            loop.call_at(self._due, self._arrive, context=NETWORK)

    def _arrive(self) -> None:
        """The next of what is on the way arrives; timers for one moment come in no order, so each takes the oldest."""
        deliver, args = self._on_the_way.popleft()
        if not self._reset:
            deliver(*args)

    def _remember(self, data: bytes) -> None:
        if not data.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')):
            self._network.last_lines[self._place] = data

    def _repeat_last_line(self) -> None:
        """Now and then the last event that the client has seen comes again, as from a server that is not quite sure.

        Not where the stream begins with the whole collection: that is a state, in which what has gone since must not be.
        """
        line = self._network.last_lines.get(self._place) if self._goes_on else None
        if line is None or not self._network.happens(self._network.weather.duplicate):
            return
        if msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"] == self._version:
            self._pass(self._response.send, line)
