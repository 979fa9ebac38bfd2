"""What all controllers of a process share: clients, caches, events and the election, wired so that only the leader writes."""

from __future__ import annotations

import asyncio
import contextlib
import random as stdlib_random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tfjob_operator.api.client import HttpTransport, RestClient, Settings, Transport
from tfjob_operator.api.client.exchange import Limiter, ServerClock
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.leaderelection import (
    Election,
    Fence,
    FencedTransport,
    GatedTransport,
    LeaderElector,
    LeaseLock,
    LeaseWatch,
)
from tfjob_operator.controller.manager.controller import Controller
from tfjob_operator.controller.manager.manager import Manager
from tfjob_operator.informers import SharedInformerFactory
from tfjob_operator.workqueue import NO_METRICS, Clock, LeaseClock, LoopClock, MetricsProvider

if TYPE_CHECKING:  # it imports prometheus_client, which a controller without metrics does not need
    from tfjob_operator.controller.observability.http_server import PageServer


@dataclass(frozen=True, slots=True)
class Transports:
    """One transport per purpose, so that none waits for another: watches (long-lived), writes (thousands), the lease."""

    watches: Transport
    writes: Transport
    lease: Transport


@asynccontextmanager
async def open_transports(settings: Settings, user_agent: str) -> AsyncIterator[Transports]:
    """Yield transports to one server, which are closed at the end of the block."""
    async with contextlib.AsyncExitStack() as stack:
        # Each watch holds a connection for its lifetime; the lease needs one for its watch and one for its requests.
        watches = HttpTransport(settings, user_agent=user_agent, max_connections=0)
        writes = HttpTransport(settings, user_agent=user_agent)
        lease = HttpTransport(settings, user_agent=user_agent, max_connections=2)
        for transport in (watches, writes, lease):
            await stack.enter_async_context(transport)
        yield Transports(watches, writes, lease)


class Parts:
    """The shared parts of one process, and the manager that runs them. Nothing runs before `Manager.run`.

    reader: a client for reads that are not cached.
    writer: a client for writes of controllers: they reach the server only while this process is the leader.
    clock, server_clock: the clock of this machine; a clock whose `now` is that of the API server.
    informers, recorder: see `SharedInformerFactory` and `EventRecorder`.
    """

    def __init__(
        self,
        transports: Transports,
        *,
        component: str,
        election: Election | None = None,
        identity: str = "",
        limiter: Limiter | None = None,
        metrics: MetricsProvider = NO_METRICS,
        host: str = "",
        clock: Clock | None = None,
        random: Callable[[], float] = stdlib_random.random,
    ) -> None:
        """Build the parts.

        component: the field manager of all writes, and the source of events.
        election: None if there is only one replica.
        identity: with which this process acquires the lease; it must be unique.
        limiter: delays all requests except those for the lease.
        host: the API server's name and port, a label of the request metrics.
        clock: None for the real clocks.
        """
        lease_clock, self.clock = clock or LeaseClock(), clock or LoopClock()
        self.server_clock = ServerClock(metrics, self.clock)
        self._client = partial(RestClient, metrics=metrics, host=host, clock=self.clock, server_clock=self.server_clock)
        self._watches = transports.watches
        self._elector, fenced = None, transports.writes
        if election is not None:
            fence = Fence(lease_clock)
            fenced = FencedTransport(transports.writes, fence)
            lease = self._client(transports.lease, request_s=election.times.call_timeout_s)
            self._elector = LeaderElector(
                LeaseLock(lease, election.namespace, election.name, identity=identity),
                config=election.times,
                fence=fence,
                watch=LeaseWatch(lease, election.namespace, election.name),
                metrics=metrics,
                clock=lease_clock,
                random=random,
            )
        self._work_gate, self._event_gate = GatedTransport(fenced), GatedTransport(fenced)
        self.metrics = metrics
        self.reader = self.reading(limiter)
        self.informers = SharedInformerFactory(self.reader, clock=self.clock, metrics=metrics)
        writing = partial(self._client, field_manager=component, limiter=limiter)
        self.writer = writing(self._work_gate)
        self.recorder = EventRecorder(writing(self._event_gate), component=component, clock=self.clock, metrics=metrics)

    def reading(self, limiter: Limiter | None) -> RestClient:
        """Return another client for reads, with a limiter of its own."""
        return self._client(self._watches, limiter=limiter)

    def manager(
        self,
        *controllers: Controller,
        stop: asyncio.Event,
        pages: PageServer | None = None,
        background: Mapping[str, Callable[[], Coroutine[object, object, None]]] | None = None,
        on_synced: Callable[[], object] | None = None,
    ) -> Manager:
        """Return the manager of these parts and controllers; see `Manager`."""
        return Manager(
            self.informers,
            *controllers,
            stop=stop,
            elector=self._elector,
            work_gate=self._work_gate,
            recorder=self.recorder,
            event_gate=self._event_gate,
            pages=pages,
            background=background,
            on_synced=on_synced,
        )
