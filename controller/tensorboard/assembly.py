"""Puts controllers of TensorBoards together: all of this package that its callers need."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tensorboard.controller import TensorBoards
from tfjob_operator.controller.tensorboard.dialects import J
from tfjob_operator.workqueue import NO_METRICS, ItemExponentialFailureRateLimiter, RateLimitingQueue

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.events import EventRecorder
    from tfjob_operator.controller.tensorboard.caches import Caches
    from tfjob_operator.controller.tensorboard.dialects import Dialect
    from tfjob_operator.controller.tensorboard.executor import Executor
    from tfjob_operator.informers import SharedIndexInformer, SharedInformerFactory
    from tfjob_operator.workqueue import Clock, MetricsProvider

NAME: Final = "tensorboard"
WORKERS: Final = 2
"""Keys that are synced at a time. A sync makes two calls at most, and few jobs have one."""
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""The delays between tries of what fails. No training waits for it, so the first is longer than for jobs."""


class TensorBoardControllers:
    """The controllers of TensorBoards of one process, one for each kind of job; they share their caches.

    What only a job that wants a TensorBoard needs is imported when there is one: few clusters have any.
    """

    def __init__(
        self,
        informers: SharedInformerFactory,
        reader: RestClient,
        writer: RestClient,
        recorder: EventRecorder,
        *,
        namespace: str = "",
        default_image: str,
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock,
    ) -> None:
        """Serve `namespace`, "" for all. A TensorBoard without an image of its own runs `default_image`."""
        self._informers = informers
        self._reader = reader
        self._writer = writer
        self._recorder = recorder
        self._namespace = namespace
        self._default_image = default_image
        self._metrics = metrics
        self._clock = clock

    def controller(self, dialect: Dialect[J], jobs: SharedIndexInformer[J], *, name: str = NAME) -> Controller:
        """Return the controller for the jobs of one kind, on their informer."""
        queue: RateLimitingQueue[str] = RateLimitingQueue(
            ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S),
            name=name,
            metrics=self._metrics,
            clock=self._clock,
        )
        boards = TensorBoards(
            dialect,
            jobs,
            queue,
            caches=lambda: self._caches,
            executor=lambda: self._executor(dialect),
            reader=self._reader,
            namespace=self._namespace,
        )
        return Controller(
            name,
            boards.sync,
            queue=queue,
            workers=WORKERS,
            on_start=boards.begin,
            metrics=self._metrics,
            clock=self._clock,
        )

    @cached_property
    def _caches(self) -> Caches:
        from tfjob_operator.controller.tensorboard.caches import Caches

        return Caches(self._informers, self._namespace)

    def _executor(self, dialect: Dialect[J]) -> Executor:
        from tfjob_operator.controller.jobs.told import Told
        from tfjob_operator.controller.tensorboard.executor import Executor

        return Executor(
            dialect.owner, self._writer, self._recorder, Told(self._clock), default_image=self._default_image
        )
