"""The operator's life: what starts after what, who may work, and what ends before what (A12).

Start: informers; when their caches are filled, the election; with the lease, the event recorder and the workers. A replica
that waits for the lease has warm caches, so that it can work at once when its turn comes.

Stop: no write begins any more, those under way are awaited, and the syncs end wherever they are, which is safe as a kill is;
the recorder writes what it has; the lease is given back; the informers end. Each of these has its share of ten seconds. A lost
lease leaves no time for any of it: the work is cancelled, and the process must end.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.controller.leaderelection import LeadershipLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.leaderelection import GatedTransport, LeaderElector
    from tfjob_operator.controller.tfjob.controller import TFJobController
    from tfjob_operator.informers import SharedInformerFactory
    from tfjob_operator.workqueue import RateLimitingQueue

DRAIN_S: Final = 5.0
"""How long writes under way may take: mostly tens of milliseconds, with webhooks seconds. Kubernetes kills a pod 30 s after its
SIGTERM; people who wait give up sooner."""
FLUSH_S: Final = 1.5
"""How long the recorder may take to write what it has queued: a thousand events at a millisecond each."""
LAST_EVENT_S: Final = 1.0
"""How long the event that is being written by then may still take."""
RELEASE_S: Final = 2.0
"""How long giving the lease back may take, a read and a write; if it takes longer, the lease runs out by itself."""

log = structlog.get_logger(__name__)


class Operator:
    """Runs the parts of an operator in order; says how it stands.

    Invariants: keys are synced and events written only while `is_leading`; the lease is given back after both have ended.
    """

    def __init__(
        self,
        *,
        factory: SharedInformerFactory,
        queue: RateLimitingQueue[str],
        controller: TFJobController,
        recorder: EventRecorder,
        work_gate: GatedTransport,
        event_gate: GatedTransport,
        workers: int,
        stop: asyncio.Event,
        on_synced: Callable[[], None],
        elect: Callable[[Callable[[], Coroutine[object, object, None]], Callable[[], None]], LeaderElector] | None,
    ) -> None:
        """Prepare; nothing runs yet.

        work_gate, event_gate: what the controller writes through, and what the recorder does.
        stop: when it is set, `run` comes to its end.
        on_synced: is called when all caches are filled.
        elect: makes the elector for the work, and for what to do when leading ends. None: work without asking anybody.
        """
        self._factory = factory
        self._queue = queue
        self._controller = controller
        self._recorder = recorder
        self._work_gate = work_gate
        self._event_gate = event_gate
        self._workers = workers
        self._stop = stop
        self._on_synced = on_synced
        self._has_synced = False
        self._leading = False
        self._work_ended = asyncio.Event()
        self.elector = elect(self._lead, self._stopped_leading) if elect is not None else None

    @property
    def is_leading(self) -> bool:
        """Whether this process does the work."""
        return self._leading

    def why_not_ready(self) -> str | None:
        """What keeps this process from working when its turn comes, or None. Waiting for the lease does not."""
        if self._stop.is_set():
            return "stopping"
        return None if self._has_synced else "the caches are not filled yet"

    async def run(self) -> None:
        """Run until `stop` is set, then stop cleanly. Cancelling stops at once.

        Raises LeadershipLostError when the lease is lost, and an ExceptionGroup when a part fails by a bug.
        """
        lost: LeadershipLostError | None = None
        async with asyncio.TaskGroup() as group:
            self._factory.start(group)
            if await self._synced():
                self._has_synced = True
                self._on_synced()
                log.info("operator_ready")
                try:
                    await (self._lead() if self.elector is None else self._lead_in_turn(self.elector))
                except LeadershipLostError as error:
                    lost = error
            await self._factory.shut_down()
        if lost is not None:
            raise lost
        log.info("operator_stopped")

    async def _synced(self) -> bool:
        """Wait until the caches are filled, however long the API server is away. False when told to stop before."""
        async with asyncio.TaskGroup() as group:
            syncing = group.create_task(self._factory.wait_for_cache_sync(math.inf), name="wait-for-cache-sync")
            stopping = group.create_task(self._stop.wait(), name="wait-for-stop")
            await asyncio.wait([syncing, stopping], return_when=asyncio.FIRST_COMPLETED)
            syncing.cancel()
            stopping.cancel()
        return not self._stop.is_set()

    async def _lead_in_turn(self, elector: LeaderElector) -> None:
        """Wait for the lease, work while it is held, give it back. Raises LeadershipLostError."""
        electing = asyncio.create_task(elector.run(), name="leader-elector")
        stopping = asyncio.create_task(self._stop.wait(), name="wait-for-stop")
        working = asyncio.create_task(self._work_ended.wait(), name="wait-for-work")
        try:
            await asyncio.wait((electing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if elector.is_leader:  # the work ends by itself now, within its limits
                await asyncio.wait((electing, working), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait([electing], timeout=RELEASE_S)
                if not electing.done():
                    log.warning("lease_not_released", why="no answer in time", limit_s=RELEASE_S)
        finally:
            tasks = (electing, stopping, working)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not electing.cancelled():
            electing.result()

    async def _lead(self) -> None:
        """Work until told to stop; then let the writes under way end, and write the events."""
        self._leading = True
        try:
            async with asyncio.TaskGroup() as group:
                recording = group.create_task(self._recorder.run(), name="event-recorder")
                working = group.create_task(self._controller.run(self._workers), name="tfjob-controller")
                log.info("workers_started", workers=self._workers)
                await self._stop.wait()
                log.info("operator_stopping", queued=len(self._queue))
                self._queue.shut_down()
                await self._end(working, self._work_gate, DRAIN_S)
                self._recorder.stop()
                await asyncio.wait([recording], timeout=FLUSH_S)
                await self._end(recording, self._event_gate, LAST_EVENT_S)
        finally:
            self._stopped_leading()
            self._work_ended.set()

    @staticmethod
    async def _end(task: asyncio.Task[None], gate: GatedTransport, limit_s: float) -> None:
        """End a task when none of its writes is under way: one that is cut off would keep the lease until that has run out."""
        try:
            async with asyncio.timeout(limit_s):
                await gate.drain()
        except TimeoutError:
            log.warning("write_cut_short", task=task.get_name(), limit_s=limit_s)
        task.cancel()
        await asyncio.wait([task])

    def _stopped_leading(self) -> None:
        self._leading = False
