"""The reflector: feeds a FIFO with one collection (streaming list or list) and then with its changes (watches).

It is a state machine with five states. Each state is a method that returns the next state:

    STREAMING --complete, then ended--> as WATCHING          (and once, for an expired version, with version "")
     |------429, unreachable, lost--> LIST_LATER ---> STREAMING
     '------anything else-> LISTING --ok--> WATCHING --stream ended--> WATCHING
                  |               |---unreachable, 429--> WATCH_LATER --> WATCHING
                  '--failed-------'---anything else-----> LIST_LATER ---> STREAMING

Resource versions and transitions follow client-go, with one difference. A server without streaming lists
answers 422 or sends an ordinary watch. It is not asked for a streaming list again, and LISTING takes the place of STREAMING.
client-go asks before every list. Here, a running process keeps using lists even after the server is upgraded.
"""

from __future__ import annotations

import asyncio
import enum
import random as stdlib_random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, NoReturn, TypeGuard

import structlog

from tfjob_operator.api.client import errors
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.retry import LONGEST_RETRY_AFTER_S
from tfjob_operator.informers.codec import ListPage, Skipped
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.intake import (
    InitialEvents,
    Intake,
    LateBookmarkWarning,
    NotStreamedError,
    Sink,
    WatchProgress,
)
from tfjob_operator.informers.listwatch import PAGE_SIZE, ListerWatcher, Pager
from tfjob_operator.informers.metrics import ReflectorMetrics, version_as_number
from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider
from tfjob_operator.workqueue.rate_limiters import Backoff

MIN_WATCH_TIMEOUT_S: Final = 300.0
"""Watches request a timeout of 300 to 600 s, so that load rebalances to servers that have come back."""


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """How a reflector gets its collection.

    With `stream_lists`, it uses a streaming list, or an ordinary list if the server has no streaming lists. Without
    `stream_lists`, it always uses an ordinary list.
    """

    stream_lists: bool = True


VERY_SHORT_WATCH_S: Final = 1.0
"""A stream that ends sooner and without events is a failure; reopening it immediately would be a hot loop."""
logger = structlog.get_logger()


class ReflectorState(enum.Enum):
    """The state of a reflector."""

    STREAMING = "streaming"
    LISTING = "listing"
    WATCHING = "watching"
    LIST_LATER = "list_later"
    WATCH_LATER = "watch_later"


class Reflector(Generic[T]):
    """Lists or streams, then watches. Runs in one task, which owns all of its state.

    Invariants:
    - no request asks for an older version than the reflector has seen, unless the server declared that version unusable;
    - the reflector enters STREAMING or LISTING, or repeats a failed watch, only after the shared back-off. Exceptions are the
      first attempt, its one retry with version "", and the one fallback from streaming to listing.
    """

    def __init__(
        self,
        source: ListerWatcher[T],
        sink: Sink[T],
        *,
        name: str,
        options: ReflectorOptions | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = stdlib_random.random,
        metrics: MetricsProvider = NO_METRICS,
    ) -> None:
        """Feed `sink` from `source`. `random` returns a float in [0, 1), like `random.random`."""
        self._source = source
        self._pager = Pager(source)
        self._sink = sink
        self._intake = Intake(sink, self._note_skipped)
        self._clock = clock or LoopClock()
        self._random = random
        self._backoff = Backoff(clock=self._clock, random=random)
        self.on_error: Callable[[errors.ApiError], None] | None = None
        """Called for each failed list and each watch that cannot be opened, before the back-off."""
        self._metrics = ReflectorMetrics(
            metrics,
            name,
            last_version=lambda: version_as_number(self._intake.version),
            disconnected=lambda: self.disconnected_s,
        )
        self._log = logger.bind(informer=name)

        self._disconnected_since: float | None = None  # None while a watch is open
        self.is_missing = False
        """True if, by the last response, the server does not serve the resource."""
        self._version_unusable = False
        self._streams = (options or ReflectorOptions()).stream_lists
        self._stream_was_lost = False  # the previous streaming list, before it was complete
        self._always_page = False  # the server has no watch cache for this resource
        self._retry_after_s = 0.0  # the server's Retry-After, if longer than the back-off
        self._state = self._initial_state
        self._steps: dict[ReflectorState, Callable[[], Awaitable[ReflectorState]]] = {
            ReflectorState.STREAMING: self._streaming,
            ReflectorState.LISTING: self._listing,
            ReflectorState.WATCHING: self._watching,
            ReflectorState.LIST_LATER: self._list_later,
            ReflectorState.WATCH_LATER: self._watch_later,
        }

    @property
    def state(self) -> ReflectorState:
        """The current state."""
        return self._state

    @property
    def resource_version(self) -> str:
        """The last version seen; "" before the first list."""
        return self._intake.version

    @property
    def disconnected_s(self) -> float:
        """Seconds since a watch was last open; 0.0 while one is open or the server does not serve the resource."""
        if self._disconnected_since is None or self.is_missing:
            return 0.0
        return self._clock.monotonic() - self._disconnected_since

    async def run(self) -> NoReturn:
        """Run until cancelled. Cancelling closes an open stream immediately, in every state."""
        self._disconnected_since = self._clock.monotonic()
        while True:
            try:
                self._state = await self._step()
            except Exception as error:  # noqa: BLE001
                # A crash in a list, a decoder or `on_error` is a bug. It must neither be lost nor stop the cache from
                # being updated: it is logged with its traceback, counted, and retried.
                self._log.error("reflector_crashed", exc_info=error)
                self._metrics.failures.inc()
                self._state = ReflectorState.LIST_LATER

    async def _step(self) -> ReflectorState:
        try:
            return await self._steps[self._state]()
        except errors.ApiError as error:
            return self._failed(error)

    @property
    def _initial_state(self) -> ReflectorState:
        return ReflectorState.STREAMING if self._streams else ReflectorState.LISTING

    async def _streaming(self) -> ReflectorState:
        """Request a streaming list; once complete, it continues as an ordinary watch."""
        progress = WatchProgress[T](synthetic=True, initial=InitialEvents())
        late = LateBookmarkWarning(self._log, lambda: None if progress.initial is None else progress.events)
        try:
            failure = await self._read(
                ListOptions(
                    resource_version="" if self._version_unusable else self._intake.version,
                    resource_version_match="NotOlderThan",
                    send_initial_events=True,
                ),
                progress,
            )
        finally:
            late.stop()
        if progress.initial is None:
            return self._after_stream(failure, short=False)
        return self._not_streamed(failure, progress)

    def _not_streamed(self, failure: errors.ApiError | None, progress: WatchProgress[T]) -> ReflectorState:
        """Return the state after a stream that ended before it was complete."""
        if (
            isinstance(failure, (errors.ExpiredError, errors.TooLargeResourceVersionError))
            and not self._version_unusable
        ):
            self._log.debug("list_version_unusable", resource_version=self._intake.version, error=str(failure))
            self._version_unusable = True
            return ReflectorState.STREAMING
        if isinstance(failure, (errors.ConnectError, errors.TooManyRequestsError)) or _is_missing(failure):
            return self._failed(failure)  # a list would fail as well
        if isinstance(failure, (errors.InvalidError, NotStreamedError)):
            self._streams = False
        elif progress.was_interrupted(failure):
            if self._stream_was_lost:
                # List next, where client-go would retry the stream forever. If two streams ended without an event, a proxy may
                # block them: do not stream again.
                self._streams = progress.events > 0
                self._stream_was_lost = False
                return self._list_instead(failure)
            self._stream_was_lost = True  # start over, discarding the events
            self._metrics.failures.inc()
            self._log.debug("streaming_list_lost", error=str(failure or "closed by the server"))
            return ReflectorState.LIST_LATER
        self._stream_was_lost = False
        return self._list_instead(failure)

    def _list_instead(self, failure: errors.ApiError | None) -> ReflectorState:
        if not isinstance(failure, errors.ForbiddenError):  # the list will report it
            # A server without streaming lists (before 1.32) is expected; a broken stream is worth reporting.
            log = self._log.debug if isinstance(failure, (errors.InvalidError, NotStreamedError)) else self._log.info
            log("streaming_list_not_served", error=str(failure or "closed by the server"))
        return ReflectorState.LISTING

    async def _listing(self) -> ReflectorState:
        started = self._clock.monotonic()
        try:
            page = await self._list()
        except (errors.ExpiredError, errors.TooLargeResourceVersionError) as error:
            # the server cannot serve this version; retry once with the newest.
            self._log.debug("list_version_unusable", resource_version=self._intake.version, error=str(error))
            self._version_unusable = True
            page = await self._list()
        self._intake.replace(page)
        self._version_unusable = False
        self._metrics.listed(self._clock.monotonic() - started, len(page.items))
        return ReflectorState.WATCHING

    async def _list(self) -> ListPage[T]:
        # "" is a quorum read; the first list accepts any version from the server's cache.
        version = "" if self._version_unusable else self._intake.version or "0"
        # For a known version the server answers from its watch cache, but only if no page size is given.
        page_size = PAGE_SIZE if self._always_page or version in {"", "0"} else 0
        page, in_pages = await self._pager.list(ListOptions(resource_version=version), page_size)
        if in_pages and version == "0":
            self._always_page = True
        return page

    async def _watching(self) -> ReflectorState:
        """Open one watch and read it to its end."""
        progress = WatchProgress[T](synthetic=self._intake.version in {"", "0"})
        failure = await self._read(ListOptions(resource_version=self._intake.version), progress)
        if not progress.opened and failure is not None:
            return self._not_opened(failure)
        return self._after_stream(failure, short=progress.short)

    async def _read(self, options: ListOptions, progress: WatchProgress[T]) -> errors.ApiError | None:
        """Open a watch and read it to its end; return the error that ended it, or None if the server closed it."""
        started = self._clock.monotonic()
        timeout_s = int(MIN_WATCH_TIMEOUT_S * (1 + self._random()))
        failure: errors.ApiError | None = None
        try:
            async with self._source.watch(replace(options, timeout_s=timeout_s, allow_bookmarks=True)) as batches:
                progress.opened = True
                if progress.initial is None:
                    self._note_connected()
                async for batch in batches:
                    if progress.initial is None:
                        self._intake.take(batch, progress)
                    elif self._intake.collect(batch, progress, initial := progress.initial):
                        self._version_unusable = self._stream_was_lost = False
                        self._metrics.listed(self._clock.monotonic() - started, len(initial))
                        del initial  # it holds every object of the list, and this watch lasts for minutes
                        self._state = ReflectorState.WATCHING
                        self._note_connected()
                    await self._sink.wait_for_room()  # meanwhile the connection is not read
        except errors.ApiError as error:
            failure = error
        if self._disconnected_since is None:
            self._disconnected_since = self._clock.monotonic()
        if progress.opened:
            seconds = self._clock.monotonic() - started
            progress.short = seconds < VERY_SHORT_WATCH_S and progress.events == 0
            self._metrics.watched(seconds, progress.events, short=progress.short)
        return failure

    def _not_opened(self, error: errors.ApiError) -> ReflectorState:
        if isinstance(error, errors.TooManyRequestsError) or _is_refused(error):
            self._log.debug("watch_refused", error=str(error))
            self._remember_retry_after(error)
            return ReflectorState.WATCH_LATER
        later = self._failed(error)
        unreachable = isinstance(error, (errors.ConnectError, errors.RequestTimeoutError)) and not isinstance(
            error, errors.TLSError
        )
        # A list would fail as well, and our version may still be valid later. A response that never started may be buffered by
        # a proxy until the first event arrives.
        return ReflectorState.WATCH_LATER if unreachable else later

    def _after_stream(self, failure: errors.ApiError | None, *, short: bool) -> ReflectorState:
        """Return the state after a watch has ended."""
        if isinstance(failure, errors.TooManyRequestsError):
            self._remember_retry_after(failure)
            return ReflectorState.WATCH_LATER
        if isinstance(failure, errors.ExpiredError):  # the list tries our version once more
            self._log.debug("watch_expired", resource_version=self._intake.version, error=str(failure))
            return ReflectorState.LIST_LATER
        if failure is not None and not isinstance(failure, errors.TransportError):
            self._log.warning("watch_failed", resource_version=self._intake.version, error=str(failure))
            self._metrics.failures.inc()
            return ReflectorState.LIST_LATER
        # The server closed the stream, the connection broke, or the peer became silent: all are handled alike.
        if short:
            self._log.warning("watch_very_short", error=str(failure or "closed by the server"))
            return ReflectorState.LIST_LATER
        self._log.debug("watch_ended", error=str(failure or "closed by the server"))
        return ReflectorState.WATCHING

    def _failed(self, error: errors.ApiError) -> ReflectorState:
        """Handle a failed list, or a watch that cannot be opened."""
        expected = isinstance(error, (errors.ExpiredError, errors.ConnectionLostError))
        log = self._log.debug if expected else self._log.warning
        log("list_and_watch_failed", error=str(error))
        self._metrics.failures.inc()
        self.is_missing = _is_missing(error)
        self._remember_retry_after(error)
        if self.on_error is not None:
            self.on_error(error)
        return ReflectorState.LIST_LATER

    async def _list_later(self) -> ReflectorState:
        await self._pause()
        return self._initial_state

    async def _watch_later(self) -> ReflectorState:
        await self._pause()
        return ReflectorState.WATCHING

    async def _pause(self) -> None:
        delay = max(self._backoff.next(), self._retry_after_s)
        self._retry_after_s = 0.0
        await asyncio.sleep(delay)

    def _remember_retry_after(self, error: errors.ApiError | None) -> None:
        asked_s = (error.retry_after_s or 0.0) if isinstance(error, errors.StatusError) else 0.0
        # A load balancer's maintenance page may ask to retry after hours, during which the cache would not be updated.
        self._retry_after_s = min(asked_s, LONGEST_RETRY_AFTER_S)

    def _note_connected(self) -> None:
        self._disconnected_since, self.is_missing = None, False

    def _note_skipped(self, skipped: Skipped) -> None:
        self._log.warning("object_skipped", key=skipped.key, error=str(skipped.error))
        self._metrics.undecodable.inc()


def _is_missing(error: errors.ApiError | None) -> TypeGuard[errors.StatusError]:
    """Return True if the collection does not exist. For an unknown API group, the server sends no Status."""
    return isinstance(error, errors.StatusError) and error.code == 404


def _is_refused(error: errors.ApiError | None) -> bool:
    return error is not None and isinstance(error.__cause__, ConnectionRefusedError)
