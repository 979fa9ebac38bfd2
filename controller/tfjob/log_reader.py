"""Reads the last log lines of jobs with `progressDeadlineSeconds`, and queues a job when it stalls or progresses.

Syncs say which logs to read (`LogReader.watch`): only the leader reads any, and none for a job without the field. Each log is
read about four times per deadline. In all, at most `READS_PER_S` logs a second are read, those first that are due the longest:
more jobs than that allows are found stalled later, which `LAG` shows. The reads ask for one line of at most `MAX_BYTES` bytes.

An addon grants the permission. Without it, no job ever stalls: this is logged once, and reported as a Warning on each job.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

import structlog

from tfjob_operator.api.client import LogOptions, RestClient
from tfjob_operator.api.client.errors import ApiError, ForbiddenError
from tfjob_operator.api.client.exchange import Limiter
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1.constants import CONTAINER_NAME
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.tfjob.plan.silence import (
    NO_LOGS,
    LastLine,
    Logs,
    LogTarget,
    LogWatch,
    has_progressed,
    is_stalled,
)
from tfjob_operator.workqueue import Clock
from tfjob_operator.workqueue.metrics import NO_METRICS, Metric, MetricsProvider

READS_PER_S: Final = 5
"""Each read costs the API server a request to a kubelet, which opens a file."""
READ_S: Final = 10.0
"""After this time, a read has failed: the API server waits for an unreachable kubelet for 30 s."""
MAX_AT_ONCE: Final = 16
"""Reads of unreachable kubelets take `READ_S`; they must not use up the connections to the API server."""
READS_PER_DEADLINE: Final = 4
"""After a failed read, a stall is found up to a quarter of the deadline later."""
MARGIN_S: Final = 0.01
"""Timers and differences of times are not exact."""
MAX_BYTES: Final = 4096
LAG: Final = Metric(
    "tf_operator_log_read_lag_seconds",
    "Seconds by which the read of a log line that is due the longest is late",
    labels=(),
)
REMEDY: Final = "apply manifests/addons/logs, or set logs.enabled=true in the Helm chart"
_OPTIONS: Final = LogOptions(container=CONTAINER_NAME, timestamps=True, tail_lines=1, limit_bytes=MAX_BYTES)
log = structlog.get_logger(__name__)


class Limiters:
    """Several rate limits, all of which apply."""

    def __init__(self, *limiters: Limiter) -> None:
        self._limiters = limiters

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        for limiter in self._limiters:
            await limiter.wait()


@dataclass(slots=True, eq=False)
class _Job:
    """What a job needs, its logs, and what was last reported of them. `failure`: reading them is forbidden."""

    watch: LogWatch
    lines: dict[LogTarget, LastLine] = field(default_factory=dict)
    failure: str = ""
    reported: tuple[bool, bool, str] = (False, False, "")

    @property
    def logs(self) -> Logs:
        silences = {target: silence for target, line in self.lines.items() if (silence := line.silence) is not None}
        return Logs(silences, self.failure)


_Place = tuple[str, LogTarget]


class LogReader:
    """Reads the logs that syncs ask for, while `run` runs."""

    def __init__(
        self,
        client: RestClient,
        limiter: Limiter,
        feed: Feed,
        clock: Clock,
        metrics: MetricsProvider = NO_METRICS,
        *,
        quotes: bool = True,
    ) -> None:
        """`limiter` delays the first attempt of each read, `client` its retries. `feed` queues jobs.

        Without `quotes`, no line is kept.
        """
        self._client = client
        self._limiter = limiter
        self._feed = feed
        self._clock = clock
        self._quotes = quotes
        self._jobs: dict[str, _Job] = {}
        self._due: dict[_Place, float] = {}
        """When each log is to be read, in monotonic time, except those that are being read."""
        self._reading: set[_Place] = set()
        self._changed = asyncio.Event()
        self._is_forbidden = False
        metrics.gauge(LAG, read=self._lag_s)

    def watch(self, key: str, watch: LogWatch | None) -> None:
        """Read these logs of a job from now on, and no others; None for none."""
        if watch is None:
            self.forget(key)
            return
        job = self._jobs.setdefault(key, _Job(watch))
        pods = {target.pod for target in job.lines}
        lines = {each: job.lines.get(each) or LastLine(changed=each.pod in pods) for each in watch.targets}
        for gone in job.lines.keys() - lines.keys():
            self._due.pop((key, gone), None)
        job.watch, job.lines = watch, lines
        for target, line in lines.items():
            if watch.is_paused:
                line.stop()
                self._due.pop((key, target), None)
            elif (key, target) not in self._reading:
                now = self._clock.monotonic()
                self._due[key, target] = min(self._due.get((key, target), now), now + _interval_s(watch))
        self._changed.set()

    def of(self, key: str) -> Logs:
        """Return what is known about the logs of a job."""
        return self._jobs[key].logs if key in self._jobs else NO_LOGS

    def forget(self, key: str) -> None:
        """Forget a job whose logs are not needed."""
        job = self._jobs.pop(key, None)
        for target in job.lines if job is not None else ():
            self._due.pop((key, target), None)

    async def run(self) -> None:
        """Read logs until cancelled."""
        free = asyncio.Semaphore(MAX_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._until_due()
                await free.acquire()
                await self._limiter.wait()
                place = min(self._due, key=self._due.__getitem__, default=None)
                if place is None:  # forgotten meanwhile
                    free.release()
                    continue
                del self._due[place]
                self._reading.add(place)
                tasks.create_task(self._read(place, free))

    async def _until_due(self) -> None:
        while (wait_s := self._next_due_in_s()) is None or wait_s > MARGIN_S:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def _read(self, place: _Place, free: asyncio.Semaphore) -> None:
        key, target = place
        before, started_s = self._line_at(place), self._clock.monotonic()
        answer, failure = None, ""
        try:
            async with asyncio.timeout(READ_S):
                answer = await self._last_line(key.partition("/")[0], target.pod)
        except ForbiddenError as error:
            failure = f"progressDeadlineSeconds has no effect: {error}; to grant this, {REMEDY}"
        except (ApiError, TimeoutError) as error:
            log.debug("log_not_read", pod=target.pod, error=str(error))
        finally:
            self._reading.discard(place)
            free.release()
        self._note(failure, is_read=answer is not None)
        line, job = self._line_at(place), self._jobs.get(key)
        if line is None or job is None:
            return
        if line is before and answer is not None and not job.watch.is_paused:
            line.read(answer, started_s, self._clock.monotonic(), quotes=self._quotes)
        else:
            line.stop()
        if not job.watch.is_paused:
            self._due[place] = started_s + _next_in_s(job.watch, line)
            self._changed.set()
        job.failure = failure if failure or answer is not None else job.failure
        logs = job.logs
        found = is_stalled(job.watch, logs), has_progressed(job.watch, logs), job.failure
        if found != job.reported:
            job.reported = found
            self._feed.add(key)

    def _line_at(self, place: _Place) -> LastLine | None:
        key, target = place
        return self._jobs[key].lines.get(target) if key in self._jobs else None

    async def _last_line(self, namespace: str, pod: str) -> bytes:
        """Return the last line with its timestamp. Raises ApiError."""
        answer = b""
        async with self._client.logs(PODS, namespace, pod, _OPTIONS, idle_s=READ_S) as chunks:
            async for chunk in chunks:
                answer += chunk
                if len(answer) >= MAX_BYTES:
                    break
        return answer[:MAX_BYTES]

    def _note(self, failure: str, *, is_read: bool) -> None:
        """Log once that reading logs is forbidden."""
        if failure and not self._is_forbidden:
            log.warning("logs_unavailable", error=failure, remedy=REMEDY)
        self._is_forbidden = bool(failure) or (self._is_forbidden and not is_read)

    def _next_due_in_s(self) -> float | None:
        """Return in how many seconds a log is due, 0 or less if one is; None if none will be."""
        due = min(self._due.values(), default=None)
        return None if due is None else due - self._clock.monotonic()

    def _lag_s(self) -> float:
        return max(0.0, -(self._next_due_in_s() or 0.0))


def _interval_s(watch: LogWatch) -> float:
    return watch.deadline_s / READS_PER_DEADLINE


def _next_in_s(watch: LogWatch, line: LastLine) -> float:
    """Return after how many seconds to read a log again: when it will have been silent for too long, if that is sooner."""
    silence, interval_s = line.silence, _interval_s(watch)
    left_s = interval_s if silence is None else watch.deadline_s - silence.lasted_s
    return left_s + 2 * MARGIN_S if 0 < left_s < interval_s else interval_s
