"""The sync of a job, in both dialects: open a view, own its children, plan, and execute the plan.

`Reconciler` has the order of the steps; a dialect defines what each of them means. A plan is executed in an order that ensures
that every fact is on the API server before it is acted upon:

1. the status, unless its write is delayed;
2. events about pods that cannot start, and repairs of edited children; their failure delays nothing;
3. the confirmation of the view, unless the status was written;
4. all creates, then all deletes.

Invariants:

- Facts that a delete would destroy are in the status before the delete. A job's end is in its status before its pods are
  cleaned up, and an operator killed between any two calls can resume.
- A failed create does not delay deletes: a surplus pod that is due for deletion may be what exhausts the quota. The remaining
  steps are skipped only if a child is rejected permanently, since another plan then cleans up.
- The queue gives a key to at most one worker at a time: the state of a job is not modified concurrently.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import structlog

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import ObjectMeta, owner_uid_key
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.controller.jobs.blocked import BlockedChildren
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import Feed, earliest
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.jobs.pending import J
from tfjob_operator.controller.jobs.pods import StartProblem
from tfjob_operator.controller.jobs.status_writer import StatusWriter
from tfjob_operator.controller.jobs.writes import JobEvents, RefusedError
from tfjob_operator.informers import SharedIndexInformer


class Memory(Protocol):
    """The state of a job kept between syncs, which is lost with the process."""

    @property
    def ours(self) -> bool:
        """True if no other controller manages the job."""
        ...


class JobView(Protocol):
    """A job as one sync sees it."""

    @property
    def key(self) -> str:
        """The key of the job in the queue."""
        ...

    @property
    def job(self) -> TFJob | AlphaJob:
        """Its newest version."""
        ...

    @property
    def may_act(self) -> bool:
        """True if children may be created and deleted, once the view is confirmed if it must be."""
        ...


class JobPlan(Protocol):
    """What to do about a job."""

    @property
    def acts(self) -> bool:
        """True if children are created, changed or deleted."""
        ...

    @property
    def requeue_after_s(self) -> float | None:
        """When the job must be planned again although nothing happens; None for never."""
        ...

    @property
    def problems(self) -> Iterable[StartProblem]:
        """What prevents pods from starting."""
        ...


class Ownership(NamedTuple):
    """The result of taking over and adopting children."""

    may_plan: bool = True
    """False if the caches must show what was changed before the job is planned."""
    retry_in_s: float | None = None
    """The seconds until what failed is tried again."""


M = TypeVar("M", bound=Memory)
V = TypeVar("V", bound=JobView)
P = TypeVar("P", bound=JobPlan)


class Reconciler(ABC, Generic[J, M, V, P]):
    """Syncs the jobs of one dialect. A sync never looks at the event that caused it.

    Steps return the seconds after which the job must be synced again although no event may occur; `sync` alone queues it.
    """

    def __init__(
        self,
        jobs: SharedIndexInformer[J],
        status_writer: StatusWriter[J, Any],
        *,
        feed: Feed,
        events: JobEvents,
        expectations: Expectations,
        blocked: BlockedChildren,
        metrics: JobMetrics,
    ) -> None:
        """`feed` adds to the workers' queue."""
        self._jobs: SharedIndexInformer[J] = jobs
        self._writer: StatusWriter[J, Any] = status_writer
        self._feed = feed
        self._events = events
        self._expectations = expectations
        self._blocked = blocked
        self._metrics = metrics
        self._memories: dict[str, M] = {}

    async def sync(self, key: str) -> None:
        """Move one job closer to its spec. Raises ApiError if it must be retried.

        The job is queued again for the earliest time that a step has returned, also after an error: the delay of a failing key
        may be longer. What is due now is then left to this delay, or a stale view would be synced again without one.
        """
        opened = self.open(key)
        if opened is None:
            self._feed.after(key, self._ready_in_s())
            return
        view, memory = opened
        job = view.job.metadata
        structlog.contextvars.bind_contextvars(uid=job.uid)
        waits: list[float | None] = []
        is_done = False
        try:
            owned = await self._own(view)
            waits.append(owned.retry_in_s)
            next_view = view if owned.may_plan else None
            while next_view is not None:  # twice if the spec is refused: a plan for a refused spec creates nothing
                plan = self._plan(next_view, memory)
                waits.append(plan.requeue_after_s)
                next_view, wait_s = await self.execute(next_view, memory, plan)
                waits.append(wait_s)
            is_done = True
        finally:
            if self._jobs.indexer.has(job):
                waits += self._due_in_s(job)
                self._feed.after(key, *(waits if is_done else filter(None, waits)))
            else:
                self.forget(job)  # again: this sync has added state since

    def open(self, key: str) -> tuple[V, M] | None:
        """Return the view of the job with this key, and what is kept about it; None if there is nothing to do about it."""
        cached = self._jobs.indexer.get(key)
        if cached is None or not self._takes(cached):
            return None
        memory = self._memories.get(cached.metadata.uid)
        if memory is None:
            memory = self._memories[cached.metadata.uid] = self._new_memory()
        view = self._view(key, cached, memory)
        return None if view is None else (view, memory)

    async def execute(self, view: V, memory: M, plan: P) -> tuple[V | None, float | None]:
        """Execute a plan on the job of this view, as far as is allowed and due.

        Returns None, or a view that must be planned immediately because the API server refuses the spec of a child, and when to
        sync again what is not due yet. Raises StaleViewError or ConflictError if the view is stale, else the first ApiError;
        the job must then be synced again.
        """
        acts = view.may_act and plan.acts
        view, status_s = await self._write_status(view, memory, plan, acts=acts)
        self._events.report(view.job.metadata, plan.problems, finished=self._is_finished(view))
        repairs_s = await self._maintain(view, memory, plan)
        nodes_s = None
        if acts:
            await self._before_acting(view, memory, plan)
            try:
                await self._create_and_delete(view, plan)
            except RefusedError as error:
                return self._after_refusal(view, memory, error.message), earliest(status_s, repairs_s)
            nodes_s = await self._after_acting(view, plan)
        return None, earliest(status_s, repairs_s, nodes_s)

    def forget(self, gone: ObjectMeta) -> None:
        """Forget all state of a deleted job, and count its deletion.

        Only jobs that this process has worked on are counted: standby replicas observe the deletion too, and jobs of another
        controller are not ours.
        """
        self._expectations.forget(owner_uid_key(gone))
        self._blocked.forget(gone)
        self._events.forget(gone.uid)
        self._writer.forget(gone.uid)
        memory = self._memories.pop(gone.uid, None)
        if memory is not None and memory.ours:
            self._metrics.count("deleted", gone.namespace)

    async def _create_and_delete(self, view: V, plan: P) -> None:
        failure: ApiError | None = None
        try:
            await self._create(view, plan)
        except RefusedError:
            raise
        except ApiError as error:
            failure = error
        await self._delete(view, plan)
        if failure is not None:
            raise failure

    def _takes(self, job: J) -> bool:
        """Return True if this reconciler syncs the job."""
        return True

    def _ready_in_s(self) -> float | None:
        """Return the seconds until a job without a view must be looked at again."""
        return None

    def _due_in_s(self, job: ObjectMeta) -> Iterable[float | None]:
        """Return the seconds until expectations expire, and until failed creates and a refused status are tried again."""
        expire_s = self._expectations.expires_in_s(owner_uid_key(job))
        return expire_s, self._blocked.next_due_in_s(job), self._writer.due_in_s(job.uid)

    @abstractmethod
    def _new_memory(self) -> M:
        """Return the memory of a job that is synced for the first time."""

    @abstractmethod
    def _view(self, key: str, cached: J, memory: M) -> V | None:
        """Return the view of a job; None if another controller manages it, or if it cannot be synced yet."""

    @abstractmethod
    async def _own(self, view: V) -> Ownership:
        """Take over and adopt children. Raises ApiError."""

    @abstractmethod
    def _plan(self, view: V, memory: M) -> P:
        """Decide what to do."""

    @abstractmethod
    async def _write_status(self, view: V, memory: M, plan: P, *, acts: bool) -> tuple[V, float | None]:
        """Write the status of the plan if it is due. Return the view after that, and else the seconds until it is due.

        `acts`: children are changed next.
        """

    @abstractmethod
    def _is_finished(self, view: V) -> bool:
        """Return True if the job has ended."""

    async def _maintain(self, view: V, memory: M, plan: P) -> float | None:
        """Do what needs no confirmed view and delays nothing. Return the seconds until it is to be done again."""
        return None

    @abstractmethod
    async def _before_acting(self, view: V, memory: M, plan: P) -> None:
        """Ensure that children may be created and deleted now. Raises ApiError if not."""

    @abstractmethod
    async def _create(self, view: V, plan: P) -> None:
        """Create the missing children. Raises RefusedError if one is rejected permanently, else the first ApiError."""

    @abstractmethod
    async def _delete(self, view: V, plan: P) -> None:
        """Delete children. Raises the first ApiError."""

    async def _after_acting(self, view: V, plan: P) -> float | None:
        """Do what comes last. Return the seconds until it is to be done again."""
        return None

    @abstractmethod
    def _after_refusal(self, view: V, memory: M, message: str) -> V:
        """Return the view to plan again after the API server rejected a child permanently, with this message."""
