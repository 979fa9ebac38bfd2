"""Watches and streamed lists: their start, events, bookmarks and end."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from kit.model.kinds import Kind
from kit.model.reads import Lag, no_lag, read_version
from kit.model.refusals import (
    FRESH_S,
    Mistake,
    Refusal,
    bad_request,
    expired,
    forbidden,
    invalid_options,
    too_large,
)
from kit.model.selectors import matcher
from kit.model.storage import Change, Collection, Storage, Version
from kit.model.versions import (
    IDLE_BOOKMARKS,
    INITIAL_EVENTS_ARE_CHECKED,
    STREAMED_LISTS_HAVE_A_BLUEPRINT,
    STREAMING_LISTS,
)
from kit.virtual_loop import NETWORK

BOOKMARK_S: Final = 60.0
"""SV-03."""
LAST_BOOKMARK_S: Final = 2.0
"""How many seconds before the end of a watch the server sends another bookmark (SV-03)."""
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_BLUEPRINT: Final = "kubernetes.io/initial-events-list-blueprint"
"""The annotations of the bookmark after the initial events."""

_MATCH: Final = "resourceVersionMatch"
_NOT_OLDER: Final = "NotOlderThan"


def _blank_list(kind: Kind) -> bytes:
    """Return an empty list as the server encodes it: custom resources sort the fields."""
    version, name = kind.resource.api_version, f"{kind.resource.kind}List"
    custom: dict[str, object] = {"apiVersion": version, "items": [], "kind": name}
    typed: dict[str, object] = {"kind": name, "apiVersion": version, "metadata": {}, "items": None}
    return msgspec.json.encode(custom if kind.custom else typed) + b"\n"


class Sink(Protocol):
    """The client's end of a stream."""

    def send(self, data: bytes) -> None:
        """Receive bytes."""

    def end(self) -> None:
        """The server closes the stream."""

    def lose(self) -> None:
        """The connection breaks."""


class Manners:
    """How a version of the server treats watches."""

    def __init__(self, kubernetes: int) -> None:
        self.streams_lists = STREAMING_LISTS.is_in(kubernetes)
        self.has_idle_bookmarks = IDLE_BOOKMARKS.is_in(kubernetes)
        self.sends_blueprint = STREAMED_LISTS_HAVE_A_BLUEPRINT.is_in(kubernetes)
        self._knows_initial_events = INITIAL_EVENTS_ARE_CHECKED.is_in(kubernetes)

    def check(self, query: Mapping[str, str]) -> None:
        """Raise Refusal for a query that is never answered with a stream."""
        mistakes = self._mistakes(query) if self._knows_initial_events else _old_mistakes(query)
        if mistakes:
            raise invalid_options(*mistakes)
        if query.get("continue"):
            raise bad_request("continue is not supported for watch")

    def _mistakes(self, query: Mapping[str, str]) -> list[Mistake]:
        match = query.get("resourceVersionMatch", "")
        mistakes = []
        if "sendInitialEvents" in query:
            if match != _NOT_OLDER:
                mistakes.append(forbidden(_MATCH, f"sendInitialEvents requires setting {_MATCH} to {_NOT_OLDER}"))
            if not self.streams_lists:
                why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
                mistakes.append(forbidden("sendInitialEvents", why))
        elif match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            mistakes.append(forbidden(_MATCH, why))
        if match not in {"", _NOT_OLDER}:
            message = f'Unsupported value: "{match}": supported values: "{_NOT_OLDER}"'
            mistakes.append(Mistake(_MATCH, "FieldValueNotSupported", message))
        return mistakes


def _old_mistakes(query: Mapping[str, str]) -> list[Mistake]:
    if "resourceVersionMatch" not in query:
        return []
    mistakes = [forbidden(_MATCH, "resourceVersionMatch is forbidden for watch")]
    if not query.get("resourceVersion"):
        mistakes.append(forbidden(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    return mistakes


class Watch:
    """One open watch. Invariant: it gets each matching change after its start version exactly once until it ends."""

    def __init__(
        self,
        storage: Storage,
        collection: Collection,
        namespace: str,
        query: Mapping[str, str],
        *,
        manners: Manners,
        lag: Lag = no_lag,
    ) -> None:
        """Parse the query. Raises Refusal for a query that is never answered with a stream."""
        self.collection = collection
        self._namespace = namespace
        manners.check(query)
        self._manners = manners
        self._lag = lag
        self._version = query.get("resourceVersion", "")
        self._after = read_version(self._version)
        wants = query.get("sendInitialEvents", "") if manners.streams_lists else ""
        self._streams_list = wants == "true"
        self._starts_now = wants == "false" and self._after == 0
        self._fresh = self._after if self._version or not self._streams_list else storage.rv
        """The version that the cache must reach before a list is streamed; by default the latest."""
        self._selected = matcher(collection.kind, query)
        self._bookmarks = query.get("allowWatchBookmarks") == "true"
        self._timeout_s = float(query.get("timeoutSeconds") or 1800)
        self._sink: Sink | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._closed: Callable[[Watch], None] = lambda _: None

    def open(self, sink: Sink, closed: Callable[[Watch], None]) -> None:
        """Start sending; `closed` is called at the end, whichever side causes it."""
        self._sink = sink
        self._closed = closed
        loop = asyncio.get_running_loop()
        self._timers = [loop.call_later(self._timeout_s, self.end, context=NETWORK)]
        if self._streams_list and self.collection.seen < self._fresh:
            self.collection.waiting[self._begin_when_fresh] = None
            self._timers.append(loop.call_later(FRESH_S, self._give_up, context=NETWORK))
        else:
            self._begin()

    def _begin_when_fresh(self) -> None:
        if self.collection.seen >= self._fresh:
            del self.collection.waiting[self._begin_when_fresh]
            self._timers.pop().cancel()
            self._begin()

    def _give_up(self) -> None:
        self.fail(too_large(self._fresh, self.collection.seen))

    def _begin(self) -> None:
        collection = self.collection
        if self._starts_now:
            self._after = collection.seen
        elif self._streams_list or self._after == 0:
            self._send_all()
        elif self._after < collection.forgotten:
            self.fail(expired(f"too old resource version: {self._version} ({collection.forgotten})"))
        for change in collection.since(self._after):
            if change.rv > collection.seen:
                break
            self._hear(change)
        if self._sink is None:  # it failed, or the client disconnected meanwhile
            return
        collection.listeners[self._hear] = None
        if self._bookmarks:
            self._bookmark_in(BOOKMARK_S)
            if self._timeout_s > LAST_BOOKMARK_S:
                delay = self._timeout_s - LAST_BOOKMARK_S
                self._timers.append(asyncio.get_running_loop().call_later(delay, self._send_bookmark, context=NETWORK))

    def _send_all(self) -> None:
        """Send all objects as ADDED events and, if the client allows bookmarks, the bookmark that ends them (RF-27)."""
        collection = self.collection
        self._after = collection.seen
        if self._streams_list and self._fresh < collection.seen:
            self._after = self._lag(collection, max(self._fresh, collection.forgotten))
        objects = collection.cached() if self._after == collection.seen else collection.at(self._after)
        for version in sorted(objects.values(), key=lambda version: version.path):
            self._offer_version("ADDED", version)
        if self._bookmarks and self._manners.streams_lists:
            annotations = {INITIAL_EVENTS_END: "true"}
            if self._manners.sends_blueprint:
                annotations[_BLUEPRINT] = base64.b64encode(_blank_list(collection.kind)).decode()
            self._send_event("BOOKMARK", self._bookmark(self._after, annotations=annotations))

    def close(self) -> None:
        """The stream ended, on either side. Idempotent."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.collection.listeners.pop(self._hear, None)
        self.collection.waiting.pop(self._begin_when_fresh, None)
        if self._sink is not None:
            self._sink = None
            self._closed(self)

    def fail(self, refusal: Refusal) -> None:
        self._send(b'{"type":"ERROR","object":' + refusal.body() + b"}\n")
        self.end()

    def lose(self) -> None:
        sink = self._sink
        self.close()
        if sink is not None:
            sink.lose()

    def end(self) -> None:
        sink = self._sink
        self.close()
        if sink is not None:
            sink.end()

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
            # An object that stops matching is sent as DELETED, in its last matching state with the version of the change.
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
        is_due = self.collection.stirred or self._manners.has_idle_bookmarks
        if is_due and self._after <= self.collection.seen:
            self._send_event("BOOKMARK", self._bookmark(self.collection.seen, creationTimestamp=None))

    def _bookmark(self, rv: int, **meta: Any) -> bytes:
        kind = self.collection.kind
        return msgspec.json.encode({**kind.head, "metadata": {"resourceVersion": str(rv), **meta}, **kind.bookmark})

    def _send_event(self, event: str, raw: bytes) -> None:
        self._send(b'{"type":"' + event.encode() + b'","object":' + raw + b"}\n")

    def _send(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.send(data)
