"""The lifecycle of a process that runs controllers: the order in which components start and stop.

Start: the HTTP pages; the informers; leader election, once the caches are filled; the event recorder and the workers, once the
lease is held. So a standby replica has warm caches, and is active immediately after it acquires the lease.

Stop, on a signal: no new write starts, writes in progress are awaited, and the syncs are cancelled at any point, which is as
safe as a kill; the recorder writes its queue; the lease is released; the informers stop. Each step has its own time limit, ten
seconds in total. If the lease is lost, there is no time for any of this: the work is cancelled and the process must exit.
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
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from tfjob_operator.controller.leaderelection import GatedTransport, LeaderElector, LeaderHealth, LeadershipLostError
from tfjob_operator.controller.manager.controller import Controller
from tfjob_operator.informers import CacheSyncTimeoutError, SharedInformerFactory

if TYPE_CHECKING:  # it imports prometheus_client, which a controller without metrics does not need
    from tfjob_operator.controller.observability.http_server import PageServer

DRAIN_S: Final = 5.0
"""How long writes in progress may take: usually tens of milliseconds, seconds with slow webhooks. Kubernetes kills a pod 30 s
after SIGTERM, and users waiting for it give up sooner."""
FLUSH_S: Final = 1.5
"""How long the recorder may take to write its queue: a thousand events at a millisecond each."""
LAST_EVENT_S: Final = 1.0
"""How long the event being written at that point may take."""
DISCONNECTED_S: Final = 60.0
"""How long an informer may be without an open watch: a reconnect takes seconds, and this is twice the longest back-off."""
STILL_SYNCING_S: Final = 60.0
"""How often caches that have not synced are logged."""
RELEASE_S: Final = 2.0
"""How long releasing the lease may take: a read and a write. After that it expires by itself."""
log = structlog.get_logger(__name__)


class Recorder(Protocol):
    """Writes events, like `EventRecorder`."""

    async def run(self) -> None:
        """Write events until `stop`, then the remaining queue."""
        ...

    def stop(self) -> None:
        """Accept no more events."""
        ...


class Manager:
    """Runs informers and controllers in order, and serves their health.

    Invariants: keys are synced and events written only while `is_leading`; the lease is released after both have ended.
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
        background: Mapping[str, Callable[[], Coroutine[object, object, None]]] | None = None,
        on_synced: Callable[[], object] | None = None,
        sync_timeout_s: float = math.inf,
    ) -> None:
        """Create a manager; nothing runs yet.

        stop: `run` returns some time after it is set.
        elector: decides when the controllers may be active; with None, they are active immediately.
        work_gate, event_gate: the gates through which the controllers and the recorder write. Without a gate, writes in
            progress at the end are cancelled.
        background: tasks that run for the whole time, by name. If one fails, so does the manager.
        on_synced: called when all caches are filled.
        sync_timeout_s: how long `run` waits for the caches. By default it waits until the API server is available and the CRD
            installed.

        Raises ValueError if two controllers have the same name, whose metrics would be one, or the same queue, of which each
        would get only a part of the keys.
        """
        for what, values in (
            ("name", [each.name for each in controllers]),
            ("queue", [id(each.queue) for each in controllers]),
        ):
            if len({*values}) < len(values):
                raise ValueError(
                    f"two controllers have the same {what}: {', '.join(each.name for each in controllers)}"
                )
        self._informers = informers
        self._controllers = controllers
        self._stop = stop
        self._elector = elector
        self._work_gate = work_gate
        self._recorder = recorder
        self._event_gate = event_gate
        self._pages = pages
        self._background = background or {}
        self._on_synced = on_synced
        self._sync_timeout_s = sync_timeout_s
        self._has_synced = False
        self._has_run = False
        self._working = False
        self._work_ended = asyncio.Event()

    @property
    def is_leading(self) -> bool:
        """True while this process is active."""
        return self._working and (self._elector is None or self._elector.is_leader)

    def why_not_ready(self) -> str | None:
        """Return what would keep this process from being active as leader, or None. Waiting for the lease does not count."""
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
        """Run until `stop` is set, then stop gracefully. Cancelling stops immediately.

        Raises ListenError if the port of the pages is in use, CacheSyncTimeoutError if a cache does not sync in time,
        LeadershipLostError if the lease is lost, and an ExceptionGroup if a component fails because of a bug. Raises
        RuntimeError if it was called before, because the informers have stopped and their caches are outdated, and ValueError
        for a controller and an informer of which only one was given to this manager.
        """
        if self._has_run:
            raise RuntimeError(
                "a manager runs once, since its caches are outdated afterwards: exit and restart the process"
            )
        self._has_run = True
        self._check_wiring()
        async with contextlib.AsyncExitStack() as stack:
            if self._pages is not None:
                await stack.enter_async_context(self._serving(self._pages))
            failure: Exception | None = None
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(work(), name=name) for name, work in self._background.items()]
                self._informers.start(group)
                try:
                    await self._start_work()
                except (LeadershipLostError, CacheSyncTimeoutError) as error:
                    failure = error
                await self._informers.shut_down()
                await _cancel(*background)
            if failure is not None:
                raise failure
        log.info("manager_stopped")

    def _check_wiring(self) -> None:
        """Raise ValueError for a controller whose keys nobody would sync, or whose cache nobody would fill."""
        informers = self._informers.informers()
        for informer in informers:
            for controller in informer.watched_by:
                if isinstance(controller, Controller) and controller not in self._controllers:
                    raise ValueError(
                        f"controller {controller.name} watches {informer.name}: pass it to the manager, too"
                    )
        for controller in self._controllers:
            for informer in controller.informers:
                if informer not in informers and not informer.started:
                    raise ValueError(
                        f"controller {controller.name} watches {informer.name}, which this manager does not start: request it"
                        " from the factory that the manager has"
                    )

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

    async def _start_work(self) -> None:
        """Wait for the caches and the lease, then run the controllers. Raises CacheSyncTimeoutError and LeadershipLostError."""
        if not await self._wait_for_caches():
            return
        self._has_synced = True
        if self._on_synced is not None:
            self._on_synced()
        log.info("caches_synced")
        await (self._work() if self._elector is None else self._work_with_lease(self._elector))

    async def _wait_for_caches(self) -> bool:
        """Wait until the caches are filled. Return False if `stop` was set first. Raises CacheSyncTimeoutError."""
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
            await _cancel(syncing, stopping)
        return not self._stop.is_set()

    async def _work_with_lease(self, elector: LeaderElector) -> None:
        """Wait for the lease, run the controllers while it is held, release it. Raises LeadershipLostError."""
        electing = asyncio.create_task(elector.run(self._work), name="leader-elector")
        stopping = asyncio.create_task(self._stop.wait(), name="wait-for-stop")
        working = asyncio.create_task(self._work_ended.wait(), name="wait-for-work")
        try:
            await asyncio.wait((electing, stopping), return_when=FIRST_COMPLETED)
            if elector.is_leader:  # the work ends by itself, within its time limits
                await asyncio.wait((electing, working), return_when=FIRST_COMPLETED)
                await asyncio.wait([electing], timeout=RELEASE_S)
                if not electing.done():
                    log.warning("lease_not_released", why="no response in time", limit_s=RELEASE_S)
        finally:
            await _cancel(electing, stopping, working)
        if not electing.cancelled():
            electing.result()

    async def _work(self) -> None:
        """Run the controllers until `stop`; then wait for writes in progress and flush the events."""
        self._working = True
        try:
            async with asyncio.TaskGroup() as group:
                recording = group.create_task(self._recorder.run(), name="event-recorder") if self._recorder else None
                working = [
                    group.create_task(controller.run(), name=f"{controller.name}-controller")
                    for controller in self._controllers
                ]
                await self._stop.wait()
                log.info("controllers_stopping", queued=sum(len(controller.queue) for controller in self._controllers))
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
    """Cancel tasks once none of their writes is in progress: after an interrupted write, the lease could not be released."""
    if gate is not None:
        try:
            async with asyncio.timeout(limit_s):
                await gate.drain()
        except TimeoutError:
            log.warning("write_interrupted", tasks=[task.get_name() for task in tasks], limit_s=limit_s)
    await _cancel(*tasks)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended in any way."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set; a second signal ends the process immediately, with code 1.

    Must be called in the main thread, with a running loop. Like controller-runtime's `SetupSignalHandler`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signaled = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal signaled
        if signaled:
            os._exit(1)
        signaled = True
        loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers, which run on the loop: the second signal is for a loop that hangs.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop
