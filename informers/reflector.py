"""The reflector: feeds a FIFO with one collection and all its changes, by a streaming list or a list, and then by watches.

It is a state machine of five states. Each state is a method that does its work and returns the next state:

    STREAMING --complete, then ended--> as WATCHING          (and once, for a dead version, with version "")
       |------429, unreachable, lost--> LIST_LATER ---> STREAMING
       '------anything else-> LISTING --ok--> WATCHING --stream ended--> WATCHING
                                 |               |---unreachable, 429--> WATCH_LATER --> WATCHING
                                 '--failed-------'---anything else-----> LIST_LATER ---> STREAMING

The rules by which it chooses resourceVersions and transitions are client-go's (RF-01 to RF-28). A server that does not have
streaming lists says so with 422, or shows it by what it sends, and is not asked again: then LISTING stands where STREAMING
does. client-go asks again each time it would list; a cluster that learns it meanwhile goes on to get lists from a process that
is running.
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
from tfjob_operator.api.client.exchange import LONGEST_RETRY_AFTER_S
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.informers.codec import Page, Skipped
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.intake import InitialEvents, Intake, LateBookmark, NotStreamedError, Progress, Sink
from tfjob_operator.informers.listwatch import PAGE_SIZE, ListerWatcher, Pager
from tfjob_operator.informers.metrics import ReflectorMetrics, version_as_number
from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider
from tfjob_operator.workqueue.rate_limiters import Backoff

MIN_WATCH_TIMEOUT_S: Final = 300.0
"""RF-09: a watch asks the server to end it after 300 to 600 s, so that load spreads again over servers that came back."""


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """How a reflector gets its collection.

    With `stream_lists` as a stream, and as a list where the server has no such streams (RF-27); without, always as a list.
    """

    stream_lists: bool = True


VERY_SHORT_WATCH_S: Final = 1.0
"""RF-15: a stream that ends sooner and brought nothing is a failure; reopening it at once would be a hot loop."""
logger = structlog.get_logger()


class State(enum.Enum):
    """What the reflector does now."""

    STREAMING = "streaming"
    LISTING = "listing"
    WATCHING = "watching"
    LIST_LATER = "list_later"
    WATCH_LATER = "watch_later"


class Reflector(Generic[T]):
    """List or stream, then watch. Runs in one task, which owns all of its state.

    Invariants:
    - no request of this reflector asks for an older version than it has seen, except after the server declared that version
      unusable (RF-03, RF-04);
    - STREAMING and LISTING are entered, and failed watches repeated, only after the one shared back-off; exempt are the first
      entry, its one retry with version "", and the one fall-back from streaming to listing (RF-22).
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
        """Supply `sink` from `source`. `random` returns a float in [0, 1), as `random.random` does."""
        self._source = source
        self._pager = Pager(source)
        self._intake = Intake(sink, self._note_skipped)
        self._clock = clock or LoopClock()
        self._random = random
        self._backoff = Backoff(clock=self._clock, random=random)
        self.on_error: Callable[[errors.ApiError], None] | None = None
        """Told once of each failed list and of each watch that cannot be opened, before the back-off (RF-24)."""
        self._metrics = ReflectorMetrics(
            metrics,
            name,
            last_version=lambda: version_as_number(self._intake.version),
            disconnected=lambda: self.disconnected_s,
        )
        self._log = logger.bind(informer=name)

        self._disconnected_since: float | None = None  # None while a watch is open
        self.is_missing = False
        """Whether the server does not serve the collection, as far as the last request showed."""
        self._version_unusable = False
        self._streams = (options or ReflectorOptions()).stream_lists
        self._stream_was_lost = False  # the last one, before it was complete
        self._always_page = False  # the server has no watch cache for this resource (RF-07)
        self._retry_after_s = 0.0  # what the server asked for beyond our own back-off
        self._state = self._beginning
        self._steps: dict[State, Callable[[], Awaitable[State]]] = {
            State.STREAMING: self._streaming,
            State.LISTING: self._listing,
            State.WATCHING: self._watching,
            State.LIST_LATER: self._list_later,
            State.WATCH_LATER: self._watch_later,
        }

    @property
    def state(self) -> State:
        """What the reflector does now."""
        return self._state

    @property
    def resource_version(self) -> str:
        """The last version seen; "" before the first list."""
        return self._intake.version

    @property
    def disconnected_s(self) -> float:
        """Seconds for which no watch has been open; 0.0 while one is, and while the server has no such collection."""
        if self._disconnected_since is None or self.is_missing:
            return 0.0
        return self._clock.monotonic() - self._disconnected_since

    async def run(self) -> NoReturn:
        """Run until cancelled. Cancelling closes an open stream at once, in every state (RF-13)."""
        self._disconnected_since = self._clock.monotonic()
        while True:
            try:
                self._state = await self._step()
            except Exception as error:  # noqa: BLE001
                # The top of the reflector. A crash in a list, a decoder or `on_error` is a bug, but it must neither vanish
                # (RF-25) nor leave the cache without supply: it is logged with its traceback, counted, and tried again.
                self._log.error("reflector_crashed", exc_info=error)
                self._metrics.failures.inc()
                self._state = State.LIST_LATER

    async def _step(self) -> State:
        try:
            return await self._steps[self._state]()
        except errors.ApiError as error:
            return self._failed(error)

    @property
    def _beginning(self) -> State:
        return State.STREAMING if self._streams else State.LISTING

    async def _streaming(self) -> State:
        """Ask for the collection as a stream; once that is complete it is an ordinary watch (RF-27)."""
        progress = Progress[T](synthetic=True, initial=InitialEvents())
        late = LateBookmark(self._log, lambda: None if progress.initial is None else progress.events)
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

    def _not_streamed(self, failure: errors.ApiError | None, progress: Progress[T]) -> State:
        """Decide how to go on after a stream that ended before it was complete (RF-28)."""
        if (
            isinstance(failure, (errors.ExpiredError, errors.TooLargeResourceVersionError))
            and not self._version_unusable
        ):
            self._log.debug("list_version_unusable", resource_version=self._intake.version, error=str(failure))
            self._version_unusable = True
            return State.STREAMING
        if isinstance(failure, (errors.ConnectError, errors.TooManyRequestsError)) or _is_missing(failure):
            return self._failed(failure)  # a list would fare no better
        if isinstance(failure, (errors.InvalidError, NotStreamedError)):
            self._streams = False
        elif progress.was_lost_under_way(failure):
            if self._stream_was_lost:
                # A list next, where client-go would try for ever. If nothing came twice, a proxy may not let such streams pass:
                # then no further one is tried.
                self._streams = progress.events > 0
                self._stream_was_lost = False
                return self._list_instead(failure)
            self._stream_was_lost = True  # from the beginning, with nothing kept
            self._metrics.failures.inc()
            self._log.debug("streaming_list_lost", error=str(failure or "closed by the server"))
            return State.LIST_LATER
        self._stream_was_lost = False
        return self._list_instead(failure)

    def _list_instead(self, failure: errors.ApiError | None) -> State:
        if not isinstance(failure, errors.ForbiddenError):  # the list will say so
            # A server that has no streaming lists (before 1.32) is no news to whoever runs it; a stream that broke is.
            log = self._log.debug if isinstance(failure, (errors.InvalidError, NotStreamedError)) else self._log.info
            log("streaming_list_not_served", error=str(failure or "closed by the server"))
        return State.LISTING

    async def _listing(self) -> State:
        started = self._clock.monotonic()
        try:
            page = await self._list()
        except (errors.ExpiredError, errors.TooLargeResourceVersionError) as error:
            # RF-04: this version is dead on this server; the newest one cannot be. At once, but only once.
            self._log.debug("list_version_unusable", resource_version=self._intake.version, error=str(error))
            self._version_unusable = True
            page = await self._list()
        self._intake.replace(page)
        self._version_unusable = False
        self._metrics.listed(self._clock.monotonic() - started, len(page.items))
        return State.WATCHING

    async def _list(self) -> Page[T]:
        # "" is a quorum read; the first list takes whatever the server has in its cache (RF-02).
        version = "" if self._version_unusable else self._intake.version or "0"
        # At a known version the server answers from its watch cache, but only if it is not asked for pages (RF-07).
        page_size = PAGE_SIZE if self._always_page or version in {"", "0"} else 0
        page, in_pages = await self._pager.list(ListOptions(resource_version=version), page_size)
        if in_pages and version == "0":
            self._always_page = True
        return page

    async def _watching(self) -> State:
        """Open one watch and read it to its end."""
        progress = Progress[T](synthetic=self._intake.version in {"", "0"})
        failure = await self._read(ListOptions(resource_version=self._intake.version), progress)
        if not progress.opened and failure is not None:
            return self._not_opened(failure)
        return self._after_stream(failure, short=progress.short)

    async def _read(self, options: ListOptions, progress: Progress[T]) -> errors.ApiError | None:
        """Open a watch and read it to its end; return what ended it, if it was not the server."""
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
                        self._state = State.WATCHING
                        self._note_connected()
        except errors.ApiError as error:
            failure = error
        if self._disconnected_since is None:
            self._disconnected_since = self._clock.monotonic()
        if progress.opened:
            seconds = self._clock.monotonic() - started
            progress.short = seconds < VERY_SHORT_WATCH_S and progress.events == 0
            self._metrics.watched(seconds, progress.events, short=progress.short)
        return failure

    def _not_opened(self, error: errors.ApiError) -> State:
        if isinstance(error, errors.TooManyRequestsError) or _is_refused(error):  # RF-17
            self._log.debug("watch_refused", error=str(error))
            self._remember_retry_after(error)
            return State.WATCH_LATER
        later = self._failed(error)
        no_way = isinstance(error, (errors.ConnectError, errors.RequestTimeoutError)) and not isinstance(
            error, errors.TLSError
        )
        # A list would fare no better, and our version may be good when there is a way again. A response that never began may be
        # kept back by a proxy that waits for its first bytes, while nothing happens in the collection.
        return State.WATCH_LATER if no_way else later

    def _after_stream(self, failure: errors.ApiError | None, *, short: bool) -> State:
        """Decide how to go on after a watch has ended."""
        if isinstance(failure, errors.TooManyRequestsError):  # RF-18
            self._remember_retry_after(failure)
            return State.WATCH_LATER
        if isinstance(failure, errors.ExpiredError):  # RF-16: the list tries our version once more before it falls back
            self._log.debug("watch_expired", resource_version=self._intake.version, error=str(failure))
            return State.LIST_LATER
        if failure is not None and not isinstance(failure, errors.TransportError):  # RF-20
            self._log.warning("watch_failed", resource_version=self._intake.version, error=str(failure))
            self._metrics.failures.inc()
            return State.LIST_LATER
        # The server closed the stream, the connection was lost, or the peer fell silent: all the same to us (RF-14, RF-29).
        if short:
            self._log.warning("watch_very_short", error=str(failure or "closed by the server"))
            return State.LIST_LATER
        self._log.debug("watch_ended", error=str(failure or "closed by the server"))
        return State.WATCHING

    def _failed(self, error: errors.ApiError) -> State:
        """Handle a failed list, or a watch that cannot be opened (RF-21)."""
        expected = isinstance(error, (errors.ExpiredError, errors.ConnectionLostError))
        log = self._log.debug if expected else self._log.warning  # RF-24
        log("list_and_watch_failed", error=str(error))
        self._metrics.failures.inc()
        self.is_missing = _is_missing(error)
        self._remember_retry_after(error)
        if self.on_error is not None:
            self.on_error(error)
        return State.LIST_LATER

    async def _list_later(self) -> State:
        await self._pause()
        return self._beginning

    async def _watch_later(self) -> State:
        await self._pause()
        return State.WATCHING

    async def _pause(self) -> None:
        delay = max(self._backoff.next(), self._retry_after_s)
        self._retry_after_s = 0.0
        await asyncio.sleep(delay)

    def _remember_retry_after(self, error: errors.ApiError | None) -> None:
        asked_s = (error.retry_after_s or 0.0) if isinstance(error, errors.StatusError) else 0.0
        # Maintenance pages of load balancers ask for hours, for which the cache would receive nothing.
        self._retry_after_s = min(asked_s, LONGEST_RETRY_AFTER_S)

    def _note_connected(self) -> None:
        self._disconnected_since, self.is_missing = None, False

    def _note_skipped(self, skipped: Skipped) -> None:
        self._log.warning("object_skipped", key=skipped.key, error=str(skipped.error))
        self._metrics.undecodable.inc()


def _is_missing(error: errors.ApiError | None) -> TypeGuard[errors.StatusError]:
    """Whether there is no such collection: an API that the server does not have at all gets no Status."""
    return isinstance(error, errors.StatusError) and error.code == 404


def _is_refused(error: errors.ApiError | None) -> bool:
    return error is not None and isinstance(error.__cause__, ConnectionRefusedError)
