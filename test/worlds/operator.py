"""The real operator in single steps: from its memory and the next input to its new memory and requests.

The real code runs: controller, worker, queue, handlers, stores, expectations, plan, executor, status writer. Only the client is
replaced: each call waits until the world decides on its response. A `Mind` is the state of the operator at such a time. Its
memory is frozen. A coroutine cannot be frozen, so a mind during a sync consists of the memory at the start of the sync and
the inputs since then, which are replayed.

Two minds in a sync are equal if the sync started from the same memory, received the same responses, read the same from its
stores, and the memory is the same now. The coroutine's variables depend on nothing else.
"""

from __future__ import annotations

import asyncio
import traceback
from asyncio import events
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, cast

import msgspec
import structlog

from fakes.api import FakeClient, status_error
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client import errors as api_errors
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource, meta_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.blocked import Delays
from tfjob_operator.controller.jobs.children import CHILD_INDEXERS
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tfjob.caches import TFJobCaches
from tfjob_operator.controller.tfjob.tfjob_controller import TFJobController
from tfjob_operator.informers import EventHandler, Tombstone
from tfjob_operator.informers.store import MutableIndexer
from tfjob_operator.workqueue import Clock, RateLimitingQueue
from worlds.frozen import Freezer
from worlds.values import (
    KEY,
    LONG_S,
    Answer,
    Call,
    Child,
    Event,
    Job,
    Rv,
    job_struct,
    now_at,
    pod_struct,
    service_struct,
    shape,
)


class StepLoop(asyncio.BaseEventLoop):
    """Time passes only in `pass_time`."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def reset(self) -> None:
        self.now = 0.0
        self._ready.clear()
        self._scheduled.clear()

    def settle(self) -> None:
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(before)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = sorted(handle for handle in self._scheduled if handle.when() <= self.now)
        self._scheduled = [handle for handle in self._scheduled if handle.when() > self.now]
        self._ready.extend(due)
        self.settle()


ALWAYS: Final = Rv(0)
NEVER: Final = Rv(1 << 60)
"""Earlier and later than all versions of the job, for the version since which an operator leads."""
Office = Literal["quiet", "busy"]
_CODES: Final = {"NotFoundError": 404, "ConflictError": 409, "AlreadyExistsError": 409, "InvalidError": 422}


@dataclass(frozen=True, eq=False, slots=True)
class Mind:
    """The whole state of the operator at one moment. Equal minds are one object, so they are compared by identity.

    Minds that differ only in the versions of the job (`rvs`) have the same number `shape`. `due` is after how many seconds the
    queue hands out the key by itself; `ready` says that the key waits for a worker. `calls` are under way; None if no sync is.
    """

    shape: int
    rvs: tuple[Rv, ...]
    epoch: int
    memory: Any
    memory_rvs: tuple[Rv, ...]
    start: Mind | None
    heard: tuple[tuple[Any, ...], ...]
    calls: tuple[Call, ...] | None
    ready: bool
    due: int | None
    cached: tuple[tuple[Job | Child, ...], ...]


class CrashError(AssertionError):
    """The operator has logged an error of its own: a bug."""


class _Clock:
    """The wall clock is set by the world; the other one is the loop's."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self.epoch = 0

    def monotonic(self) -> float:
        return self._loop.time()

    def now(self) -> datetime:
        return now_at(self.epoch)


class _SilentRecorder(EventRecorder):
    def __init__(self, client: RestClient, clock: Clock) -> None:
        super().__init__(client, component="worlds", clock=clock)

    def event(self, *_: Any) -> None:
        """Events change nothing."""

    async def write(self, *_: Any, **_fact: Any) -> None:
        """Nothing to do here either; the simulation checks that some events are written before other requests."""


class WaitingClient(FakeClient):
    """Hands each call to the world, and waits for the response. `log` is what a sync has learned by requests and reads."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.waiting: dict[int, tuple[Call, asyncio.Future[Answer]]] = {}
        self.log: list[Any] = []
        self.made = 0

    def json_of(self, value: Rv | Child) -> dict[str, Any]:
        """The server's response to a GET, or to a write of the status."""
        if isinstance(value, Rv):
            return {"metadata": {"resourceVersion": f"rv{value}"}}
        pod = pod_struct(value)
        return {"metadata": pod.metadata, "status": {"phase": pod.status.phase}}

    async def ask(self, verb: str, resource: Resource, name: str, **fields: Any) -> Answer:
        """Wait for the answer to a call. Raises what the client would."""
        self.made += 1
        call = Call(self.made, verb, resource.plural, name, **fields)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[call.number] = call, future
        answer = await future
        if answer.error:
            kind = getattr(api_errors, answer.error)
            raise status_error(kind, _CODES[answer.error]) if answer.error in _CODES else kind("lost")
        return answer

    async def answer(self, verb: str, resource: Resource, namespace: str, name: str, body: Any, **options: Any) -> Any:
        match verb:
            case "get":
                return self.json_of((await self.ask("get", resource, name)).value)
            case "list":
                return {"items": [self.json_of(each) for each in (await self.ask("list", resource, "")).value]}
            case "create":
                metadata = body["metadata"]
                labels, owner = metadata["labels"], metadata["ownerReferences"][0]["uid"]
                slot = owner, _TYPES[labels.get("replica-type", "")], int(labels.get("replica-index", 0))
                spec = msgspec.json.encode(body["spec"]) if resource == PODS else b""
                attempt = int(labels.get(c.LABEL_ATTEMPT, 0))
                await self.ask("create", resource, metadata["name"], body=slot, spec=spec, attempt=attempt)
                return {}
            case "patch status":
                fence, write = body
                seen, status = Rv(fence["value"].removeprefix("rv")), msgspec.json.encode(write["value"])
                answer = await self.ask("patch", resource, name, rv=seen, body=status)
                return self.json_of(answer.value) | {"status": write["value"]}
            case "delete":
                version = body.get("resource_version")
                if resource != c.TFJOBS:
                    await self.ask("delete", resource, name, uid=body.get("uid"), body=version)
                else:
                    rv = None if version is None else Rv(version.removeprefix("rv"))
                    await self.ask("delete", resource, name, uid=body.get("uid"), rv=rv)
                return {}
        raise AssertionError(f"the worlds do not have the request {verb} {resource.plural}")


_TYPES: Final = {"": "", "chief": "Chief", "master": "Master", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


_STRUCTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    TFJOBS.plural: job_struct,
    PODS.plural: pod_struct,
    SERVICES.plural: service_struct,
}
"""By resource, the function that turns an object into what the informer would decode."""
RESOURCES: Final = tuple(_STRUCTS)


class Store:
    """An informer whose watch is the world. What a sync reads of it after its first call is written into the client's log."""

    has_synced: ClassVar = True

    def __init__(self, resource: str, indexer: MutableIndexer[Any], client: WaitingClient) -> None:
        self._resource = resource
        self._indexer = indexer
        self._client = client
        self._handlers: list[EventHandler[Any]] = []
        self.held: dict[str, Job | Child] = {}

    @property
    def indexer(self) -> MutableIndexer[Any]:
        if self._client.made:
            self._client.log.append((self._resource, tuple(self.held.values())))
        return self._indexer

    def add_event_handler(self, handler: EventHandler[Any]) -> None:
        self._handlers.append(handler)

    def deliver(self, event: Event) -> None:
        if event.type == "DELETED":
            self._remove(event.item, tombstone=False)
        else:
            self.put(event.item)

    def replace(self, items: tuple[Job | Child, ...]) -> None:
        """Take over a list after a lost watch: objects that are gone are reported by tombstones."""
        keep = {_name(item) for item in items}
        for name, item in list(self.held.items()):
            if name not in keep:
                self._remove(item, tombstone=True)
        for item in items:
            self.put(item)

    def put(self, item: Job | Child, *, initial: bool = False) -> None:
        struct = _STRUCTS[self._resource](item)
        old = self._indexer.put(meta_key(struct.metadata), struct)
        self.held[_name(item)] = item
        for handler in self._handlers:
            if old is None:
                handler.on_add(struct, initial)
            else:
                handler.on_update(old, struct)

    def _remove(self, item: Job | Child, *, tombstone: bool) -> None:
        struct = _STRUCTS[self._resource](item)
        key = meta_key(struct.metadata)
        self._indexer.remove(key)
        del self.held[_name(item)]
        for handler in self._handlers:
            handler.on_delete(Tombstone(key, struct) if tombstone else struct)


def _name(item: Job | Child) -> str:
    return "" if isinstance(item, Job) else item.name


class OneSecond:
    """The rate limiter of the worlds: every retry comes after a second. The length of the delay makes no difference here."""

    def when(self, _item: str) -> float:
        return 1.0

    def forget(self, _item: str) -> None:
        """Nothing is counted."""

    def num_requeues(self, _item: str) -> int:
        return 0


class GatedQueue(RateLimitingQueue[str]):
    """The real queue behind a gate: a worker gets its next key when it is open. If `busy`, another key seems to wait."""

    def __init__(self, *, busy: bool) -> None:
        super().__init__(OneSecond())
        self.open = False
        self._busy = busy

    def __len__(self) -> int:
        return super().__len__() + self._busy

    @property
    def is_ready(self) -> bool:
        return super().__len__() > 0

    async def get(self) -> str:
        if not self.open:
            await asyncio.get_running_loop().create_future()
        self.open = False
        return await super().get()


class _Tenure:
    """The leadership term, which began at a version of the job that the world chooses."""

    def __init__(self) -> None:
        self.since = NEVER

    async def begin(self) -> None:
        """It has begun at birth."""

    def is_untouched(self, job: TFJob) -> bool:
        return not job.status.conditions and int(job.metadata.resource_version.removeprefix("rv")) > self.since


@dataclass(slots=True)
class Body:
    """The operator's objects. `stores` are in the order of the operator's resources."""

    controller: Any
    workers: Controller
    queue: GatedQueue
    leadership_term: _Tenure | None
    stores: dict[str, Store] = field(default_factory=dict)


class Operator:
    """Steps of the operator, each computed once. Close it at the end."""

    def __init__(self, office: Office | None = None) -> None:
        """Without an `office` it does not know since when it leads; a `busy` one seems to have other jobs waiting."""
        self._loop = StepLoop()
        self.clock = _Clock(self._loop)
        self.client = WaitingClient()
        self.recorder = _SilentRecorder(self.client, self.clock)
        self._body = self._build(office)
        surroundings = (RestClient, EventRecorder, JobMetrics, Controller, _Clock, OneSecond)
        self._freezer = Freezer(self._body, surroundings)
        self._minds: dict[Any, Mind] = {}
        self._shapes: dict[Any, int] = {}
        self._steps: dict[Any, Mind] = {}
        self._errors: list[str] = []
        self._blank = self._freezer.freeze(0.0)
        self._logging = structlog.get_config()
        structlog.configure(processors=[self._log], wrapper_class=structlog.make_filtering_bound_logger("error"))

    def close(self) -> None:
        """Restore the logging configuration, and close the loop."""
        structlog.configure(**self._logging)
        self._loop.close()

    def born(self, epoch: int, cached: tuple[tuple[Job | Child, ...], ...] | None = None, since: Rv = ALWAYS) -> Mind:
        """A new life of the operator, whose first lists have brought `cached`, and which leads since a version of the job."""
        cached = ((),) * len(RESOURCES) if cached is None else cached
        return self._memoised(("born", epoch, cached, since), lambda: self._play_birth(epoch, cached, since))

    def step(self, mind: Mind, epoch: int, *heard: Any) -> Mind:
        """What becomes of `mind` when it hears something. One of:

        ("start",) a worker takes the key; ("deliver", resource, event); ("replace", resource, objects); ("answer", number,
        answer); ("second",) or ("leap",) pass; ("nudge",) the key is added without a reason.
        """
        return self._memoised((mind, epoch, heard), lambda: self._play(mind, epoch, heard))

    @property
    def played(self) -> int:
        return len(self._steps)

    def _memoised(self, key: Any, make: Any) -> Mind:
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = make()
        return found

    def _play_birth(self, epoch: int, cached: tuple[tuple[Job | Child, ...], ...], since: Rv) -> Mind:
        body = self._body
        self._wake(*self._blank, epoch)
        if body.leadership_term is not None:
            body.leadership_term.since = since
        for resource, items in zip(RESOURCES, cached, strict=True):
            for item in items:
                body.stores[resource].put(item, initial=True)
        body.controller.queue_jobs()
        return self._fall_asleep(body, epoch, None, ())

    def _play(self, mind: Mind, epoch: int, heard: tuple[Any, ...]) -> Mind:
        start, before = (mind, ()) if mind.start is None else (mind.start, mind.heard)
        history = (*before, heard)
        body = self._body
        self._wake(start.memory, start.memory_rvs, epoch)
        work: asyncio.Task[None] | None = None
        for each in history:
            if each[0] == "start":
                body.queue.open = True
                work = self._loop.create_task(body.workers.run())
                self._loop.settle()
            else:
                self._hear(body, *each)
        syncing = work is not None and bool(self.client.waiting)
        if syncing:
            asleep = self._fall_asleep(body, epoch, start, history)
        if work is not None:
            work.cancel()
            self._loop.settle()
            assert work.done(), "the worker does not end"
        return asleep if syncing else self._fall_asleep(body, epoch, None, ())

    def _hear(self, body: Body, what: str, *details: Any) -> None:
        if what == "deliver":
            body.stores[details[0]].deliver(details[1])
        elif what == "replace":
            body.stores[details[0]].replace(details[1])
        elif what == "answer":
            assert details[0] in self.client.waiting, f"a replay went another way: {self._errors}"
            call, future = self.client.waiting.pop(details[0])
            self.client.log.append((call, details[1]))
            future.set_result(details[1])
        elif what == "nudge":
            body.queue.add(KEY)
        else:
            self._loop.pass_time(1.0 if what == "second" else LONG_S)
        self._loop.settle()

    def _wake(self, memory: Any, rvs: tuple[Rv, ...], epoch: int) -> None:
        self._loop.reset()
        self.client.begin()
        self.clock.epoch = epoch
        asyncio.events._set_running_loop(self._loop)
        try:
            self._freezer.restore(memory, rvs)
        finally:
            asyncio.events._set_running_loop(None)

    def _fall_asleep(self, body: Body, epoch: int, start: Mind | None, history: tuple[Any, ...]) -> Mind:
        if self._errors:
            raise CrashError("\n".join(self._errors))
        memory, memory_rvs = self._freezer.freeze(self._loop.now)
        calls = None
        log: tuple[Any, ...] = ()
        if start is not None:
            calls = tuple(call for call, _ in self.client.waiting.values())
            log = tuple(self.client.log)
        key = (start, log, calls, memory, memory_rvs, epoch)
        mind = self._minds.get(key)
        if mind is None:
            rvs = list(start.rvs if start is not None else ())
            form = (start and start.shape, shape(log, rvs), shape(calls, rvs), memory, epoch)
            mind = self._minds[key] = Mind(
                shape=self._shapes.setdefault(form, len(self._shapes)),
                rvs=(*rvs, *memory_rvs),
                epoch=epoch,
                memory=memory,
                memory_rvs=memory_rvs,
                start=start,
                heard=history,
                calls=calls,
                ready=body.queue.is_ready,
                due=self._due(),
                cached=tuple(tuple(sorted(store.held.values())) for store in map(body.stores.__getitem__, RESOURCES)),
            )
        return mind

    def _due(self) -> int | None:
        timers = [handle.when() - self._loop.now for handle in self._loop._scheduled if not handle.cancelled()]
        return None if not timers else 1 if min(timers) <= 1.0 else LONG_S

    def _build(self, office: Office | None) -> Body:
        queue = GatedQueue(busy=office == "busy")
        leadership_term = None if office is None else _Tenure()
        indices: tuple[dict[str, Any], ...] = ({}, dict(CHILD_INDEXERS), dict(CHILD_INDEXERS))
        stores = {
            resource: Store(resource, MutableIndexer(index), self.client)
            for resource, index in zip(RESOURCES, indices, strict=True)
        }
        jobs, pods, services = (cast("Any", store) for store in stores.values())
        config_maps = cast("Any", Store("configmaps", MutableIndexer(CHILD_INDEXERS), self.client))
        controller = TFJobController(
            TFJobCaches(jobs, pods, services, config_maps),
            self.client,
            self.recorder,
            Feed(queue),
            clock=self.clock,
            metrics=JobMetrics(),
            leadership_term=cast("Any", leadership_term),
            delays=Delays(self.clock, cast("Any", OneSecond())),
        )
        workers = Controller("tfjob", controller.sync, queue=queue, outage=OneSecond(), clock=self.clock)
        return Body(controller, workers, queue, leadership_term, stores)

    def _log(self, _logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        self._errors.append(f"{event} {traceback.format_exc()}")
        raise structlog.DropEvent
