"""From the store to the handlers: one listener for each handler, with a queue and a task of its own.

A handler is called strictly in order and never twice at once; between handlers there is no order (SI-02). A handler that
raises loses that one notification and delays no other handler. Resync periods (SI-09) are kept here as well, since each
belongs to a handler, and so is `SyncGate`, by which callers wait until a cache is filled or a handler has seen all of it
(SI-08).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, Generic

import structlog

from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.errors import InformerStoppedError
from tfjob_operator.informers.handlers import EventHandler, Notification, refuse_coroutines
from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import Counter


class SyncGate:
    """Closed until something is synced; then open for ever. Giving up wakes those who wait with an error (SI-08).

    Invariant: once opened it stays open, whatever is called later.
    """

    __slots__ = ("_open", "_settled", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._open = False
        self._settled = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether it is synced."""
        return self._open

    def open(self) -> None:
        """Mark as synced from now on."""
        self._open = True
        self._settled.set()

    def give_up(self) -> None:
        """Mark as never to be synced, unless it is already."""
        self._settled.set()

    async def wait(self) -> None:
        """Return when it is synced. Raises InformerStoppedError when that cannot happen any more."""
        await self._settled.wait()
        if not self._open:
            raise InformerStoppedError(f"{self._what} stopped before it was synced")


DELIVERIES_PER_TURN: Final = 256
"""Handler calls between two turns of the loop. A handler that puts a key into a queue takes about 1 us, so a turn is short;
ten thousand initial adds at once would hold up lease renewals and requests."""
SLOW_TURN_S: Final = 0.1
"""QF-08: from here on a turn is worth a line in the log, since nothing else ran meanwhile."""
MIN_RESYNC_S: Final = 1.0
"""SI-09: a shorter period asked for is raised to this."""
TIMER_SLACK_S: Final = 0.001
"""A timer may fire a rounding error early; without slack the resync that is due then would wait for another period."""
logger = structlog.get_logger()


class Registration:
    """A handler's place in an informer, as `add_event_handler` returns it."""

    def __init__(self, gate: SyncGate) -> None:
        self._gate = gate

    @property
    def has_synced(self) -> bool:
        """Whether the informer has synced and this handler was called for every object of the initial list (SI-07)."""
        return self._gate.is_open

    async def wait_for_sync(self) -> None:
        """Return when `has_synced` is true. Raises InformerStoppedError if that cannot happen any more."""
        await self._gate.wait()


class Listener(Generic[T]):
    """One handler, its queue and its task. The queue has no bound: a slow handler costs memory and delays no other (SI-03).

    Invariants:
    - what is put before `close` is delivered, in order, each once;
    - the gate opens when everything that was put before `mark_synced` was delivered, whether or not the handler raised
      (client-go never opens it then, k/k#129024).
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
        self._pending: deque[Notification[T] | None] = deque()  # None stands where the initial list ends
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, notifications: Iterable[Notification[T]]) -> None:
        """Queue notifications."""
        self._pending.extend(notifications)
        self._wake.set()

    def mark_synced(self) -> None:
        """Say that the initial list ends here."""
        self._pending.append(None)
        self._wake.set()

    def close(self) -> None:
        """End after what is queued has been delivered (SI-14)."""
        self._closed = True
        self._wake.set()

    def discard(self) -> None:
        """Deliver nothing more, and end (SI-06)."""
        self._pending.clear()
        self.close()
        self.gate.give_up()

    async def run(self) -> None:
        """Deliver until closed and drained. Cancelling drops what is queued."""
        while True:
            if self._pending:
                self._deliver_some()
                await asyncio.sleep(0)  # let the others run between two turns
            elif self._closed:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _deliver_some(self) -> None:
        """One turn. The handler may add to this queue or discard it, so the length is asked for anew each time."""
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
                # The handler runner. A bug in one handler must not take the informer, and with it every other handler,
                # down: it is logged with its key, counted, and costs that one notification.
                self._errors.inc()
                self._log.error("handler_failed", key=notification.key, exc_info=error)
        seconds = self._clock.monotonic() - started
        if seconds > SLOW_TURN_S:
            self._log.warning(
                "handler_slow", seconds=round(seconds, 3), delivered=delivered, waiting=len(self._pending)
            )


class Processor(Generic[T]):
    """All listeners of one informer.

    Invariant: between start and close every listener that is not removed has a running task; what is distributed before
    start waits for it (SI-15).
    """

    def __init__(self, *, name: str, check_period_s: float, clock: Clock, errors: Counter) -> None:
        self._name = name
        self._clock = clock
        self._errors = errors
        self._listeners: dict[Registration, Listener[T]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._log = logger.bind(informer=name)
        self.check_period_s = check_period_s  # how often it is looked whether a resync is due; 0: never

    def add(self, handler: EventHandler[T], resync_s: float) -> tuple[Registration, Listener[T]]:
        """Add a handler; its task starts at once if the others run. Raises TypeError for one that would have to be awaited."""
        refuse_coroutines(handler.on_add, handler.on_update, handler.on_delete)
        requested = self._settle(resync_s)
        listener = Listener(handler, requested, name=self._name, clock=self._clock, errors=self._errors)
        self._schedule(listener)
        registration = Registration(listener.gate)
        self._listeners[registration] = listener
        if self._tasks is not None:
            self._start(listener, self._tasks)
        return registration, listener

    def remove(self, registration: Registration) -> None:
        """Remove a handler: it is not called again. Removing it twice, or an unknown one, does nothing (SI-06)."""
        listener = self._listeners.pop(registration, None)
        if listener is not None:
            listener.discard()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run the listeners, present and future, in `tasks`."""
        self._tasks = tasks
        for listener in self._listeners.values():
            self._start(listener, tasks)

    def close(self) -> None:
        """Let every listener deliver what it has, and end."""
        for listener in self._listeners.values():
            listener.close()

    def give_up(self) -> None:
        """Wake all who wait for a sync that cannot happen any more."""
        for listener in self._listeners.values():
            listener.gate.give_up()

    def distribute(self, changes: list[Notification[T]], everything: list[Notification[T]] | None = None) -> None:
        """Queue notifications. Listeners that are due for a resync get `everything`, in which syncs are included (SI-10)."""
        for listener in self._listeners.values():
            due = everything if listener.wants_syncs and everything is not None else changes
            if due:
                listener.put(due)

    def mark_synced(self) -> None:
        """Say to every listener that the initial list ends here."""
        for listener in self._listeners.values():
            listener.mark_synced()

    def should_resync(self) -> bool:
        """Find out which listeners are due now, and say whether any is (RF-26)."""
        now = self._clock.monotonic()
        for listener in self._listeners.values():
            listener.wants_syncs = listener.resync_s > 0 and now + TIMER_SLACK_S >= listener.next_resync
            if listener.wants_syncs:
                listener.next_resync = now + listener.resync_s
        return any(listener.wants_syncs for listener in self._listeners.values())

    def _start(self, listener: Listener[T], tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(listener.run(), name=f"listener of {self._name}")

    def _settle(self, resync_s: float) -> float:
        """Return the period that a handler gets (SI-09): at least the check period, which it may lower before the start."""
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
