"""The life of a process that runs controllers: in which order its parts start and stop, and when they may work.

Start: the pages; informers; when their caches are filled, the election; with the lease, the event recorder and the workers.
So a replica that waits for the lease has warm caches, and can work at once when it acquires the lease.

Stop, on a signal: no write begins any more, those under way are awaited, and the syncs are cancelled wherever they are,
which is as safe as a kill; the recorder writes what it has; the lease is given back; the informers end. Each of these has
its share of ten seconds. A lost lease leaves no time for any of it: the work is cancelled, and the process must end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Coroutine, Mapping
from types import FrameType
from typing import Any, Final, Protocol

import structlog

from tfjob_operator.controller.leaderelection import GatedTransport, LeaderElector, LeaderHealth, LeadershipLostError
from tfjob_operator.controller.manager.controller import Controller
from tfjob_operator.controller.observability.http_server import PageServer
from tfjob_operator.informers import CacheSyncTimeoutError, SharedInformerFactory

DRAIN_S: Final = 5.0
"""How long writes under way may take: mostly tens of milliseconds, seconds with slow webhooks. Kubernetes kills a pod 30 s
after its SIGTERM, and people who wait give up sooner."""
FLUSH_S: Final = 1.5
"""How long the recorder may take to write what it has queued: a thousand events at a millisecond each."""
LAST_EVENT_S: Final = 1.0
"""How long the event that is being written then may still take."""
DISCONNECTED_S: Final = 60.0
"""How long an informer may be without an open watch: a reconnect takes seconds, and twice the longest back-off is this long."""
STILL_SYNCING_S: Final = 60.0
"""How often the caches that have not synced are logged."""
RELEASE_S: Final = 2.0
"""How long giving the lease back may take, a read and a write. If it takes longer, the lease expires by itself."""
log = structlog.get_logger(__name__)


class Recorder(Protocol):
    """Writes events, as `EventRecorder` does."""

    async def run(self) -> None:
        """Write events until `stop`, then what still waits."""
        ...

    def stop(self) -> None:
        """Accept nothing more."""
        ...


class Manager:
    """Runs informers and controllers in order, and serves their health.

    Invariants: keys are synced and events written only while `is_leading`; the lease is given back after both have ended.
    """

    def __init__(
        self,
        informers: SharedInformerFactory,
        *controllers: Controller,
        stop: asyncio.Event,
        elector: LeaderElector | None = None,
        work_gate: GatedTransport | None = None,
        recorder: Recorder | None = None,
        event_gate: GatedTransport | None = None,
        pages: PageServer | None = None,
        beside: Mapping[str, Callable[[], Coroutine[object, object, None]]] | None = None,
        on_synced: Callable[[], object] | None = None,
        sync_timeout_s: float = math.inf,
    ) -> None:
        """Prepare; nothing runs yet.

        stop: `run` returns some time after it was set.
        elector: decides when the controllers may work. None: at once.
        work_gate, event_gate: the gates through which the controllers and the recorder write. Without a gate, writes that
            are under way at the end are cut off.
        beside: tasks that run from the beginning to the end, by their names. If one fails, so does the manager.
        on_synced: is called when all caches are filled.
        sync_timeout_s: how long `run` waits for that. By default until the API server is back, or the CRD installed.
        """
        self._informers = informers
        self._controllers = controllers
        self._stop = stop
        self._elector = elector
        self._work_gate = work_gate
        self._recorder = recorder
        self._event_gate = event_gate
        self._pages = pages
        self._beside = beside or {}
        self._on_synced = on_synced
        self._sync_timeout_s = sync_timeout_s
        self._has_synced = False
        self._working = False
        self._work_ended = asyncio.Event()

    @property
    def is_leading(self) -> bool:
        """Whether this process does the work."""
        return self._working and (self._elector is None or self._elector.is_leader)

    def why_not_ready(self) -> str | None:
        """Return what would keep this process from working as leader, or None. Waiting for the lease does not."""
        if self._stop.is_set():
            return "stopping"
        blind = self._informers.disconnected(DISCONNECTED_S)
        problems = {
            "caches not synced": [] if self._has_synced else self._informers.unsynced() or ["starting"],
            "not served by the API server (is the CRD installed?)": self._informers.missing(),
            "no open watch": [f"{name} for {seconds:.0f}s" for name, seconds in blind.items()],
        }
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in problems.items() if names) or None

    async def run(self) -> None:
        """Run until `stop` is set, then stop cleanly. Cancelling stops at once.

        Raises ListenError when the pages' port is taken, CacheSyncTimeoutError when a cache has not synced in time,
        LeadershipLostError when the lease is lost, and an ExceptionGroup when a part fails by a bug.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self._pages is not None:
                await stack.enter_async_context(self._serving(self._pages))
            failure: Exception | None = None
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(work(), name=name) for name, work in self._beside.items()]
                self._informers.start(group)
                try:
                    await self._work_in_turn()
                except (LeadershipLostError, CacheSyncTimeoutError) as error:
                    failure = error
                await self._informers.shut_down()
                await _cancelled(*beside)
            if failure is not None:
                raise failure
        log.info("operator_stopped")

    def _serving(self, pages: PageServer) -> contextlib.AbstractAsyncContextManager[None]:
        leadership = LeaderHealth()
        if self._elector is not None:
            leadership.watch(self._elector)
        return pages.serving(
            healthz={"lease": leadership.check, "workers": self._check_workers},
            readyz={"operator": self.why_not_ready},
        )

    def _check_workers(self) -> str | None:
        """Return the first problem of a controller, or None."""
        return next(filter(None, (controller.check() for controller in self._controllers)), None)

    async def _work_in_turn(self) -> None:
        """Wait for the caches and for the lease, and work. Raises CacheSyncTimeoutError and LeadershipLostError."""
        if not await self._synced():
            return
        self._has_synced = True
        if self._on_synced is not None:
            self._on_synced()
        log.info("operator_ready")
        await (self._work() if self._elector is None else self._lead_in_turn(self._elector))

    async def _synced(self) -> bool:
        """Wait until the caches are filled. Return False if `stop` was set before. Raises CacheSyncTimeoutError."""
        syncing = asyncio.create_task(
            self._informers.wait_for_cache_sync(self._sync_timeout_s), name="wait-for-cache-sync"
        )
        stopping = asyncio.create_task(self._stop.wait(), name="wait-for-stop")
        try:
            while not (syncing.done() or stopping.done()):
                waited_for = [syncing, stopping]
                done, _ = await asyncio.wait(waited_for, timeout=STILL_SYNCING_S, return_when=FIRST_COMPLETED)
                if not done:
                    log.warning("caches_not_synced", why=self.why_not_ready())
            if syncing.done():
                syncing.result()
        finally:
            await _cancelled(syncing, stopping)
        return not self._stop.is_set()

    async def _lead_in_turn(self, elector: LeaderElector) -> None:
        """Wait for the lease, work while it is held, give it back. Raises LeadershipLostError."""
        electing = asyncio.create_task(elector.run(self._work), name="leader-elector")
        stopping = asyncio.create_task(self._stop.wait(), name="wait-for-stop")
        working = asyncio.create_task(self._work_ended.wait(), name="wait-for-work")
        try:
            await asyncio.wait((electing, stopping), return_when=FIRST_COMPLETED)
            if elector.is_leader:  # the work now ends by itself, within its limits
                await asyncio.wait((electing, working), return_when=FIRST_COMPLETED)
                await asyncio.wait([electing], timeout=RELEASE_S)
                if not electing.done():
                    log.warning("lease_not_released", why="no answer in time", limit_s=RELEASE_S)
        finally:
            await _cancelled(electing, stopping, working)
        if not electing.cancelled():
            electing.result()

    async def _work(self) -> None:
        """Run the controllers until told to stop; then let the writes under way end, and write the events."""
        self._working = True
        try:
            async with asyncio.TaskGroup() as group:
                recording = group.create_task(self._recorder.run(), name="event-recorder") if self._recorder else None
                working = [
                    group.create_task(controller.run(), name=f"{controller.name}-controller")
                    for controller in self._controllers
                ]
                await self._stop.wait()
                log.info("operator_stopping", queued=sum(len(controller.queue) for controller in self._controllers))
                for controller in self._controllers:
                    controller.queue.shut_down()
                await _end(working, self._work_gate, DRAIN_S)
                if self._recorder is not None and recording is not None:
                    self._recorder.stop()
                    await asyncio.wait([recording], timeout=FLUSH_S)
                    await _end([recording], self._event_gate, LAST_EVENT_S)
        finally:
            self._working = False
            self._work_ended.set()


async def _end(tasks: list[asyncio.Task[None]], gate: GatedTransport | None, limit_s: float) -> None:
    """End tasks when none of their writes is under way: after a write that is cut off the lease could not be given back."""
    if gate is not None:
        try:
            async with asyncio.timeout(limit_s):
                await gate.drain()
        except TimeoutError:
            log.warning("write_cut_short", tasks=[task.get_name() for task in tasks], limit_s=limit_s)
    await _cancelled(*tasks)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, however they do."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def stop_on_signals() -> asyncio.Event:
    """Return an event of the running loop that SIGTERM and SIGINT set; a second signal ends the process at once, with code 1.

    To be called in the main thread. As controller-runtime's `SetupSignalHandler`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    told = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(1)
        told = True
        loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers, which run on the loop: the second signal is for when the loop hangs.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop
