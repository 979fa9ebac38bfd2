"""Distributes changes of the store to the handlers: one listener per handler, each with a queue and a task.

A handler receives its notifications in order and never concurrently; there is no order between handlers. If a handler
raises, it loses that notification; other handlers are not affected. This module also manages the resync period of each handler,
and contains `SyncGate`. Callers wait on it until a cache is filled or a handler has seen the whole cache.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, Generic

import structlog

from tfjob_operator.informers.deltas import BACKLOG, T
from tfjob_operator.informers.errors import InformerStoppedError
from tfjob_operator.informers.handlers import EventHandler, Notification, reject_coroutines
from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import Counter


class SyncGate:
    """Closed until something has synced, then open permanently. `give_up` wakes waiters with an error.

    Invariant: once opened it stays open.
    """

    __slots__ = ("_decided", "_open", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._open = False
        self._decided = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """True once synced."""
        return self._open

    def open(self) -> None:
        """Mark as synced."""
        self._open = True
        self._decided.set()

    def give_up(self) -> None:
        """Mark as never going to sync, unless already synced."""
        self._decided.set()

    async def wait(self) -> None:
        """Return when synced. Raises InformerStoppedError if that can no longer happen."""
        await self._decided.wait()
        if not self._open:
            raise InformerStoppedError(f"{self._what} stopped before it was synced")


DELIVERIES_PER_TURN: Final = BACKLOG
"""Handler calls before yielding to the loop. A handler that adds a key to a queue takes about 1 us. Ten thousand initial adds
without a pause would delay lease renewals and requests."""
SLOW_TURN_S: Final = 0.1
"""A turn that takes longer is logged, since it blocks the loop."""
MIN_RESYNC_S: Final = 1.0
"""Shorter periods are raised to this."""
TIMER_SLACK_S: Final = 0.001
"""A timer may fire early by a rounding error; without slack, the resync would be delayed by a whole period."""
logger = structlog.get_logger()


class Registration:
    """A handler's registration with an informer, returned by `add_event_handler`."""

    def __init__(self, gate: SyncGate) -> None:
        self._gate = gate

    @property
    def has_synced(self) -> bool:
        """True once the informer has synced and the handler was called for every object of the initial list."""
        return self._gate.is_open

    async def wait_for_sync(self) -> None:
        """Return when `has_synced` is true. Raises InformerStoppedError if that can no longer happen."""
        await self._gate.wait()


class Listener(Generic[T]):
    """A handler with its queue and task. A slow handler does not delay other handlers.

    The queue holds at most `BACKLOG` notifications, those of one batch of a watch, and those of lists and of one resync.

    Invariants:
    - notifications put before `close` are delivered in order, once each;
    - the gate opens when all notifications put before `mark_synced` were delivered, even if the handler raised (in client-go it
      then never opens, k/k#129024).
    """

    def __init__(
        self, handler: EventHandler[T], requested_resync_s: float, *, name: str, clock: Clock, errors: Counter
    ) -> None:
        self.requested_resync_s = requested_resync_s
        self.resync_s = 0.0
        self.next_resync = 0.0
        self.wants_syncs = False
        self.gate = SyncGate(f"handler of {name}")
        self._handler = handler
        self._clock = clock
        self._errors = errors
        self._log = logger.bind(informer=name, handler=type(handler).__name__)
        self._pending: deque[Notification[T] | None] = deque()  # None marks the end of the initial list
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, notifications: Iterable[Notification[T]]) -> None:
        """Queue notifications."""
        self._pending.extend(notifications)
        self._wake.set()

    def mark_synced(self) -> None:
        """Mark the end of the initial list."""
        self._pending.append(None)
        self._wake.set()

    def close(self) -> None:
        """Stop after delivering what is queued."""
        self._closed = True
        self._wake.set()

    def discard(self) -> None:
        """Drop what is queued, and stop."""
        self._pending.clear()
        self.close()
        self.gate.give_up()

    async def run(self) -> None:
        """Deliver until closed and drained. Cancelling drops what is queued."""
        while True:
            if self._pending:
                self._deliver_batch()
                await asyncio.sleep(0)  # yield to other tasks
            elif self._closed:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _deliver_batch(self) -> None:
        """Deliver a bounded number of notifications. The handler may add to this queue or discard it during the loop."""
        started = self._clock.monotonic()
        delivered = 0
        while self._pending and delivered < DELIVERIES_PER_TURN:
            notification = self._pending.popleft()
            if notification is None:
                self.gate.open()
                continue
            delivered += 1
            try:
                notification.deliver(self._handler)
            except Exception as error:  # noqa: BLE001
                # A bug in one handler must not stop the informer and its other handlers: it is logged with the key, counted,
                # and loses this one notification.
                self._errors.inc()
                self._log.error("handler_failed", key=notification.key, exc_info=error)
        seconds = self._clock.monotonic() - started
        if seconds > SLOW_TURN_S:
            self._log.warning(
                "handler_slow", seconds=round(seconds, 3), delivered=delivered, waiting=len(self._pending)
            )


class Processor(Generic[T]):
    """All listeners of one informer.

    Invariant: between `start` and `close`, every listener that is not removed has a running task. Notifications distributed
    before `start` are queued.
    """

    def __init__(self, *, name: str, check_period_s: float, clock: Clock, errors: Counter) -> None:
        self._name = name
        self._clock = clock
        self._errors = errors
        self._listeners: dict[Registration, Listener[T]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._log = logger.bind(informer=name)
        self.check_period_s = check_period_s  # interval of checks for due resyncs; 0: never

    def add(self, handler: EventHandler[T], resync_s: float) -> tuple[Registration, Listener[T]]:
        """Add a handler; its task starts immediately if the processor runs. Raises TypeError for coroutine functions."""
        reject_coroutines(handler.on_add, handler.on_update, handler.on_delete)
        requested = self._clamp_resync(resync_s)
        listener = Listener(handler, requested, name=self._name, clock=self._clock, errors=self._errors)
        self._schedule(listener)
        registration = Registration(listener.gate)
        self._listeners[registration] = listener
        if self._tasks is not None:
            self._start(listener, self._tasks)
        return registration, listener

    def remove(self, registration: Registration) -> None:
        """Remove a handler: it is not called again. Removing an unknown or already removed handler does nothing."""
        listener = self._listeners.pop(registration, None)
        if listener is not None:
            listener.discard()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run current and future listeners in `tasks`."""
        self._tasks = tasks
        for listener in self._listeners.values():
            self._start(listener, tasks)

    def close(self) -> None:
        """Stop every listener after it has delivered what is queued."""
        for listener in self._listeners.values():
            listener.close()

    def give_up(self) -> None:
        """Wake all waiters for a sync that can no longer happen."""
        for listener in self._listeners.values():
            listener.gate.give_up()

    def distribute(self, changes: list[Notification[T]], everything: list[Notification[T]] | None = None) -> None:
        """Queue notifications. Listeners due for a resync get `everything`, which includes the resync notifications."""
        for listener in self._listeners.values():
            due = everything if listener.wants_syncs and everything is not None else changes
            if due:
                listener.put(due)

    def mark_synced(self) -> None:
        """Mark the end of the initial list for every listener."""
        for listener in self._listeners.values():
            listener.mark_synced()

    def backlog(self) -> int:
        """Return how many notifications wait for the slowest listener."""
        return max(map(len, self._listeners.values()), default=0)

    def should_resync(self) -> bool:
        """Determine which listeners are due for a resync; return True if any is. One with a backlog is due later."""
        now = self._clock.monotonic()
        for listener in self._listeners.values():
            is_due = listener.resync_s > 0 and now + TIMER_SLACK_S >= listener.next_resync
            listener.wants_syncs = is_due and len(listener) <= BACKLOG
            if listener.wants_syncs:
                listener.next_resync = now + listener.resync_s
        return any(listener.wants_syncs for listener in self._listeners.values())

    def _start(self, listener: Listener[T], tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(listener.run(), name=f"listener of {self._name}")

    def _clamp_resync(self, resync_s: float) -> float:
        """Return the effective period, at least the check period.

        Before the start, a shorter period lowers the check period.
        """
        if resync_s <= 0:
            return 0.0
        if resync_s < MIN_RESYNC_S:
            self._log.warning("resync_period_raised", asked_s=resync_s, used_s=MIN_RESYNC_S)
            resync_s = MIN_RESYNC_S
        if resync_s < self.check_period_s:
            if self._tasks is not None:
                self._log.warning("resync_period_raised", asked_s=resync_s, used_s=self.check_period_s)
                return self.check_period_s
            self.check_period_s = resync_s
        return resync_s

    def _schedule(self, listener: Listener[T]) -> None:
        requested = listener.requested_resync_s
        if requested > 0 and self.check_period_s <= 0:
            self._log.warning("resync_period_ignored", asked_s=requested, reason="the informer has no resync")
        listener.resync_s = max(requested, self.check_period_s) if requested > 0 and self.check_period_s > 0 else 0.0
        listener.next_resync = self._clock.monotonic() + listener.resync_s
