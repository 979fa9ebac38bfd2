"""A collection with the `ListerWatcher` protocol that a test controls: it can lose events, end streams and reject requests.

Like a real API server it has objects with increasing resourceVersions, an event log from which a watch resumes, and a
compaction of that log. Changes with `notify=False` are neither sent nor in the log, so only a list shows them.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Generic

import msgspec

from fakes.objects import Pod
from tfjob_operator.api.client.errors import ApiError, ExpiredError, InvalidError, Status, StatusError
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.core import PodStatus
from tfjob_operator.api.meta import ObjectMeta, meta_key
from tfjob_operator.informers.codec import ListPage, Skipped, WatchEvent
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, T
from tfjob_operator.informers.listwatch import Batch

Arrival = Batch[T] | ApiError | None
"""A watch result: a batch, an error, or None if the server ends the watch."""

Stream = asyncio.Queue[Arrival[T]]
"""One open watch."""


async def settle(after_s: float = 0.0) -> None:
    """Let time pass, then run every task until all wait: virtual time advances only if no task is ready."""
    if after_s:
        await asyncio.sleep(after_s)
    await asyncio.sleep(0.001)


@asynccontextmanager
async def running(body: Coroutine[object, object, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `body` in a task beside the block; cancel it at the end and raise its exception."""
    task = asyncio.create_task(body)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@asynccontextmanager
async def settled(body: Coroutine[object, object, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Like `running`, but the block starts when every task waits."""
    async with running(body) as task:
        await settle()
        yield task


def pod(
    name: str, namespace: str = "ns", *, uid: str = "", labels: dict[str, str] | None = None, node: str = ""
) -> Pod:
    """Return a pod; its UID is derived from its name by default. `node` marks versions."""
    metadata = ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-{name}", labels=labels)
    return Pod(metadata=metadata, status=PodStatus(message=node))


def expired(message: str = "too old resource version") -> ExpiredError:
    """Return the API server's 410 for a compacted version."""
    return ExpiredError(Status(kind="Status", code=410, reason="Expired", message=message))


def status_error(code: int, reason: str, *, retry_after_s: float | None = None) -> StatusError:
    """Return any other Status as the base class; use the specific class if there is one."""
    return StatusError(Status(kind="Status", code=code, reason=reason, message=reason), retry_after_s=retry_after_s)


class FakeSource(Generic[T]):
    """`ListerWatcher` over objects in memory."""

    def __init__(self, *objects: T, **given: Any) -> None:
        """Start with these objects, and with these values of attributes."""
        self.version = 10
        self.paging: bool | None = False
        """If False, `limit` is ignored, as by a server's watch cache. If None, only quorum lists have pages."""
        self.streaming = False
        """If False, streaming lists are rejected, as by Kubernetes 1.20 (test/data/recordings)."""
        self.lists: list[ListOptions] = []
        self.streams: list[ListOptions] = []
        """Watches that requested initial events, even failed ones."""
        self.watches: list[ListOptions] = []
        """All others."""
        self.transcript: list[str] = []
        """All requests with their time in seconds: `0.8 watch 11`, or `0 list newest` without a version."""
        self.list_errors: list[Exception] = []
        """Raised by the next lists, one each; `watch_errors` and `stream_errors` when the next ones are opened."""
        self.watch_errors: list[ApiError] = []
        self.stream_errors: list[ApiError] = []
        self.initial_events: list[Arrival[T]] = []
        """Results of the next streams instead of the collection, one each: a batch, after which they stay open, or their end.
        """
        self.skipped: list[Skipped] = []
        """What every list without pages reports as skipped."""
        self.hold = asyncio.Event()
        """Lists wait until this is set."""
        self.hold.set()
        self.open_watches = 0
        self._objects: dict[str, T] = {}
        self._log: list[tuple[int, WatchEvent[T]]] = []
        self._compacted = 0
        self._streams: list[Stream[T]] = []
        vars(self).update(given)
        for item in objects:
            self.add(item, notify=False)

    # Actions of the test

    def add(self, item: T, *, notify: bool = True) -> T:
        """Create an object; return it with its resourceVersion."""
        stored = self._stamp(item)
        self._objects[meta_key(stored.metadata)] = stored
        self._tell(Added(stored), notify=notify)
        return stored

    def modify(self, item: T, *, notify: bool = True) -> T:
        """Replace an object, possibly by one with another UID."""
        stored = self._stamp(item)
        self._objects[meta_key(stored.metadata)] = stored
        self._tell(Modified(stored), notify=notify)
        return stored

    def delete(self, key: str, *, notify: bool = True) -> T:
        """Delete an object; return it with the resourceVersion of the deletion."""
        gone = self._stamp(self._objects.pop(key))
        self._tell(Deleted(gone), notify=notify)
        return gone

    def objects(self) -> tuple[T, ...]:
        """The current objects."""
        return (*self._objects.values(),)

    def bookmark(self) -> None:
        """Advance the version as if other objects had changed, and send a bookmark to every open stream."""
        self.version += 1
        self.send(Bookmark(str(self.version)))

    def send(self, *events: WatchEvent[T]) -> None:
        """Send a batch of events unchanged on every open stream."""
        for stream in self._streams:
            stream.put_nowait([*events])

    def end_watches(self, error: ApiError | None = None) -> None:
        """End every open stream: normally, with an ERROR event (StatusError), or by breaking it (TransportError)."""
        for stream in self._streams:
            stream.put_nowait(error)

    def compact(self) -> None:
        """Drop the log: a watch from any earlier version gets 410."""
        self._log.clear()
        self._compacted = self.version

    def note(self, what: str) -> None:
        """Add to the transcript."""
        self.transcript.append(f"{round(asyncio.get_running_loop().time(), 1):g} {what}")

    def _note_request(self, requests: list[ListOptions], kind: str, options: ListOptions) -> None:
        requests.append(options)
        self.note(f"{kind} {options.resource_version or 'newest'}")

    # ListerWatcher

    async def list(self, options: ListOptions) -> ListPage[T]:
        """Return a page. A continue token is the number of objects on earlier pages."""
        self._note_request(self.lists, "list", options)
        await self.hold.wait()
        if self.list_errors:
            raise self.list_errors.pop(0)
        items = [*self._objects.values()]
        has_pages = self.paging or (self.paging is None and (options.continue_token or not options.resource_version))
        if not has_pages or not options.limit:
            return ListPage(items, str(self.version), skipped=[*self.skipped])
        start = int(options.continue_token or 0)
        end = start + options.limit
        return ListPage(items[start:end], str(self.version), str(end) if end < len(items) else "")

    @asynccontextmanager
    async def watch(self, options: ListOptions) -> AsyncIterator[AsyncIterator[Batch[T]]]:
        """Open a stream that starts after `options.resource_version`."""
        stream: Stream[T] = asyncio.Queue()
        if options.send_initial_events:
            self._note_request(self.streams, "stream", options)
            if self.stream_errors:
                raise self.stream_errors.pop(0)
            if not self.streaming:
                raise InvalidError(
                    Status(code=422, reason="Invalid", message="resourceVersionMatch is forbidden for watch")
                )
            stream.put_nowait(self.initial_events.pop(0) if self.initial_events else self._beginning())
        else:
            self._note_request(self.watches, "watch", options)
            if self.watch_errors:
                raise self.watch_errors.pop(0)
            self._replay(int(options.resource_version or 0), stream)
        self._streams.append(stream)
        self.open_watches += 1
        try:
            yield _read(stream)
        finally:
            self.open_watches -= 1
            self._streams.remove(stream)

    def _beginning(self) -> Batch[T]:
        return [*map(Added, self._objects.values()), Bookmark(str(self.version), ends_initial_events=True)]

    def _replay(self, version: int, stream: Stream[T]) -> None:
        if version == 0:
            stream.put_nowait([Added(item) for item in self._objects.values()])
        elif version < self._compacted:
            stream.put_nowait(expired())
        else:
            missed = [event for at, event in self._log if at > version]
            if missed:
                stream.put_nowait(missed)

    def _stamp(self, item: T) -> T:
        self.version += 1
        metadata = msgspec.structs.replace(item.metadata, resource_version=str(self.version))
        return msgspec.structs.replace(item, metadata=metadata)  # type: ignore[type-var]  # every slice is a struct

    def _tell(self, event: WatchEvent[T], *, notify: bool) -> None:
        if notify:
            self._log.append((self.version, event))
            self.send(event)


async def _read(stream: Stream[T]) -> AsyncIterator[Batch[T]]:
    while (item := await stream.get()) is not None:
        if isinstance(item, ApiError):
            raise item
        yield item
