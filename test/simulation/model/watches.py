"""Watches: where each begins, what it is sent, bookmarks, and how it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from simulation.model.network import NETWORK
from simulation.model.reads import read_version
from simulation.model.refusals import Refusal, bad_request, expired, invalid_options
from simulation.model.selectors import matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulation.model.storage import Change, Collection, Version

BOOKMARK_S: Final = 60.0
"""SV-03."""
LAST_BOOKMARK_S: Final = 2.0
"""A bookmark also comes so long before the server ends the watch (SV-03)."""


class Sink(Protocol):
    """The client's end of a stream."""

    def send(self, data: bytes) -> None:
        """Bytes that the server has written."""
        ...

    def end(self) -> None:
        """The server closes the stream."""
        ...

    def lose(self) -> None:
        """The connection breaks."""
        ...


class Watch:
    """One open watch. Invariant: between `open` and its end it hears of every change after `after` that matches, once."""

    def __init__(self, collection: Collection, namespace: str, query: Mapping[str, str]) -> None:
        """Read the query. Raises Refusal for one that is never answered with a stream."""
        self._collection = collection
        self._namespace = namespace
        self._version = query.get("resourceVersion", "")
        self._after = read_version(self._version)
        self._selected = matcher(collection.kind, query)
        self._bookmarks = query.get("allowWatchBookmarks") == "true"
        self._timeout_s = float(query.get("timeoutSeconds") or 1800)
        self._sink: Sink | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._closed: Callable[[Watch], None] = lambda _: None
        if "resourceVersionMatch" in query:
            raise invalid_options("Forbidden: resourceVersionMatch is forbidden for watch")
        if query.get("continue"):
            raise bad_request("continue is not supported for watch")

    def open(self, sink: Sink, closed: Callable[[Watch], None]) -> None:
        """Begin to send; `closed` is told of the end, whoever brings it about."""
        self._sink = sink
        self._closed = closed
        collection = self._collection
        if self._after == 0:
            self._after = collection.seen
            for version in collection.cached().values():
                self._offer_version("ADDED", version)
        elif self._after < collection.forgotten:
            refusal = expired(f"too old resource version: {self._version} ({collection.forgotten})")
            self.fail(refusal)
            return
        else:
            for change in collection.since(self._after):
                if change.rv > collection.seen:
                    break
                self._hear(change)
        collection.listeners[self._hear] = None
        loop = asyncio.get_running_loop()
        self._timers = [loop.call_later(self._timeout_s, self._time_out, context=NETWORK)]
        if self._bookmarks:
            self._bookmark_in(BOOKMARK_S)
            if self._timeout_s > LAST_BOOKMARK_S:
                delay = self._timeout_s - LAST_BOOKMARK_S
                self._timers.append(loop.call_later(delay, self._send_bookmark, context=NETWORK))

    def close(self) -> None:
        """The stream is over, from either side. Safe to call twice."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._collection.listeners.pop(self._hear, None)
        if self._sink is not None:
            self._sink = None
            self._closed(self)

    def fail(self, refusal: Refusal) -> None:
        """Send an ERROR event and end."""
        self._send(b'{"type":"ERROR","object":' + refusal.body() + b"}\n")
        self._end()

    def lose(self) -> None:
        """Break the connection."""
        sink = self._sink
        self.close()
        if sink is not None:
            sink.lose()

    def _end(self) -> None:
        sink = self._sink
        self.close()
        if sink is not None:
            sink.end()

    def _time_out(self) -> None:
        self._end()

    def _hear(self, change: Change) -> None:
        if change.rv <= self._after:
            return
        self._after = change.rv
        new, old = change.new, change.old
        if self._namespace and new.key[0] != self._namespace:
            return
        is_in = not change.gone and self._matches(new)
        was_in = old is not None and self._matches(old)
        if is_in:
            self._send_event("MODIFIED" if was_in else "ADDED", new.raw)
        elif was_in and old is not None:
            # What stops matching is told as deleted, in its last state that matched, with the version of the change.
            body = old.body | {"metadata": old.body["metadata"] | {"resourceVersion": str(change.rv)}}
            self._send_event("DELETED", new.raw if change.gone else msgspec.json.encode(body))

    def _matches(self, version: Version) -> bool:
        return self._selected is None or self._selected(version)

    def _offer_version(self, event: str, version: Version) -> None:
        if (not self._namespace or version.key[0] == self._namespace) and self._matches(version):
            self._send_event(event, version.raw)

    def _bookmark_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(seconds, self._bookmark_regularly, context=NETWORK))

    def _bookmark_regularly(self) -> None:
        self._send_bookmark()
        self._bookmark_in(BOOKMARK_S)

    def _send_bookmark(self) -> None:
        if not self._collection.stirred:
            return
        kind = self._collection.kind
        rv = max(self._after, self._collection.seen)
        meta = {"resourceVersion": str(rv), "creationTimestamp": None}
        self._send_event("BOOKMARK", msgspec.json.encode({**kind.head, "metadata": meta}))

    def _send_event(self, event: str, raw: bytes) -> None:
        self._send(b'{"type":"' + event.encode() + b'","object":' + raw + b"}\n")

    def _send(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.send(data)
