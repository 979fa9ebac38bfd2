"""Streams of logs: the log of one pod, the merged logs of all replicas of a job, and the metrics in logs as curves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from tfjob_operator.api.client.errors import ApiError, ForbiddenError, NotFoundError, StatusError
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.cli.logs.follower import LogFollower, LogRequest, LogSet, RunState, Wait, run_state_of
from tfjob_operator.cli.logs.lines import LogLine
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.replica_names import ReplicaName, order_of
from tfjob_operator.cli.page.cluster import Cluster, background_tasks
from tfjob_operator.cli.page.views import MAX_TEXT_BYTES, LogLines, newest_of
from tfjob_operator.cli.training import Curves, LogReader

MAX_LOGS: Final = 50
"""The most logs of one job that are followed at a time, as `kubectl tfjob logs` does by default."""
MAX_RUNS: Final = 6
"""The most runs in one chart: more colors would look alike."""
PREFETCH: Final = 8
"""The most logs that are opened ahead of the one being sent; the client buffers up to 256 KiB of each."""
BATCH_S: Final = 1.0
"""The interval between messages of curves: a program may report each step, and each message contains the whole curves."""
RETRY_S: Final = 3.0
"""The interval at which pods are checked for new containers after their logs have ended."""
HEARTBEAT_S: Final = 10.0
_MAX_QUEUED: Final = 16
"""The most pieces of logs that are queued for a slow reader."""
_MAX_LINE: Final = 65_536
"""The most bytes of a line that are buffered; a longer line is split."""
_WITH_METRICS: Final = (c.CHIEF, c.MASTER, c.WORKER)
"""The types of replicas whose logs report metrics."""


class Logs:
    """Reads logs with a client for long requests. The generators raise ApiError."""

    def __init__(self, client: RestClient, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster

    async def of_pod(self, namespace: str, pod: str, options: LogOptions) -> AsyncGenerator[list[str], None]:
        """Yield an empty list when the log is open, then its lines in batches as they arrive."""
        lines = LogLines()
        async with self._client.logs(PODS, namespace, pod, options) as chunks:
            yield []
            async for chunk in chunks:
                yield [*lines.feed(chunk)]
        yield [*lines.end()]

    def of_job(self, key: str, options: LogOptions) -> AsyncGenerator[list[str], None]:
        """Yield the lines of all replicas of a job, each prefixed with its replica.

        With `follow`, each line is yielded once as it arrives, including lines of pods that start later. Otherwise lines are in
        replica order.
        """
        return _Merged(self._client, self._cluster, key, options).lines()

    async def curves(self, keys: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Yield a run as JSON whenever it has changed, and b"" after `HEARTBEAT_S` without a change."""
        runs = [Run(key) for key in keys]
        silent_s = 0.0
        async with background_tasks(*(run.read(self._cluster, self._client) for run in runs)):
            while True:
                await asyncio.sleep(BATCH_S)
                changed = [run for run in runs if run.changed]
                for run in changed:
                    run.changed = False
                    yield run.body()
                silent_s = 0.0 if changed else silent_s + BATCH_S
                if silent_s >= HEARTBEAT_S:
                    silent_s = 0.0
                    yield b""


class _Merged:
    """The merged logs of a job."""

    def __init__(self, client: RestClient, cluster: Cluster, key: str, options: LogOptions) -> None:
        self._client = client
        self._cluster = cluster
        self._key = key
        self._options = options
        self._queue = asyncio.Queue[list[str] | ForbiddenError | None](_MAX_QUEUED)
        self._logs = LogSet(MAX_LOGS, _MAX_LINE)
        self._reading: dict[str, asyncio.Task[None]] = {}
        """The newest task that reads the log of a replica."""
        self._before: dict[str, asyncio.Task[None]] = {}
        """The task that sends the preceding log, if logs are sent in order."""

    async def lines(self) -> AsyncGenerator[list[str], None]:
        """Yield lines in batches."""
        running = asyncio.create_task(
            self._follow() if self._options.follow else self._read_all(), name="logs of a job"
        )
        try:
            wanted, more = len(self._replicas()), "The command `logs` follows all with --max-log-requests"
            is_cut = self._options.follow and wanted > MAX_LOGS
            first = [f"Following {MAX_LOGS} of {wanted} replicas. {more}={wanted}"] if is_cut else []
            while (found := await self._queue.get()) is not None:
                if isinstance(found, ForbiddenError):
                    raise found
                yield [*first, *found]
                first = []
        finally:
            tasks = [running, *self._reading.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _replicas(self) -> dict[str, PodDetails]:
        return {_name(replica): pod for replica, pod in replicas_of(self._cluster.pods_of(self._key)).items()}

    async def _read_all(self) -> None:
        await self._queue.put([])
        reading: list[asyncio.Task[None]] = []
        for name, pod in self._replicas().items():
            if (state := state_of(pod)).has_log:
                log = LogFollower(name, pod.metadata.uid, state._replace(pod_over=True), _MAX_LINE)
                if reading:
                    self._before[name] = reading[-1]
                reading.append(self._start(log, pod))
                if len(reading) > PREFETCH:
                    await reading.pop(0)
        await asyncio.gather(*reading)
        await self._queue.put(None)

    async def _follow(self) -> None:
        if not any(state_of(pod).has_log for pod in self._replicas().values()):
            await self._queue.put([])
        while True:
            pods = self._replicas()
            states = {name: (pod.metadata.uid, state_of(pod)) for name, pod in pods.items()}
            wanted = {name: each for name, each in states.items() if each[1].has_log or name in self._logs.open}
            for log in self._logs.update(wanted):
                self._start(log, pods[log.name])
            for log in self._logs.stalled(asyncio.get_running_loop().time()):
                self._reading[log.name].cancel()
                self._logs.end(log)
            await asyncio.sleep(RETRY_S)

    def _start(self, log: LogFollower, pod: PodDetails) -> asyncio.Task[None]:
        self._reading[log.name] = asyncio.create_task(self._read(log, pod), name=f"log of {log.name}")
        return self._reading[log.name]

    async def _read(self, log: LogFollower, pod: PodDetails) -> None:
        """Read a log to its end. Only a followed log is read again after an error."""
        while (step := log.next()) is not None:
            await self._send(log, [])
            if isinstance(step, Wait):
                await asyncio.sleep(max(step.limit_s or 0.0, RETRY_S))
                continue
            try:
                await self._stream(log, pod, step)
            except ForbiddenError as error:
                await self._put(log.name, error)
                return
            except ApiError as error:
                if self._options.follow or isinstance(error, NotFoundError):
                    log.failed(error.code if isinstance(error, StatusError) else 0, _words(error))
                else:
                    log.notes.append(f"cannot read logs: {_words(error)}")
                    log.close()
        await self._send(log, log.rest())
        if self._options.follow:
            self._logs.end(log)

    async def _stream(self, log: LogFollower, pod: PodDetails, request: LogRequest) -> None:
        is_first = not (request.is_previous or request.since)
        options = replace(
            self._options,
            container=_container(pod),
            timestamps=True,
            previous=request.is_previous or self._options.previous,
            since=request.since,
            tail_lines=self._options.tail_lines if is_first else None,
        )
        async with self._client.logs(PODS, pod.metadata.namespace, pod.metadata.name, options) as chunks:
            await self._queue.put([])
            async for chunk in chunks:
                if log.is_unverified and self._replicas().get(log.name, pod).metadata.uid != log.uid:
                    log.close()
                    return
                await self._send(log, log.feed(chunk))
        await self._send(log, log.ended())

    async def _send(self, log: LogFollower, lines: Sequence[LogLine]) -> None:
        """Send lines, and the messages of a log."""
        notes, log.notes = log.notes, []
        shown = [f"{log.name} | {text}" for line in lines for text in LogLines().feed(line.text + b"\n")]
        if shown or notes:
            await self._put(log.name, [*shown, *(f"{log.name}: {note}" for note in notes)])

    async def _put(self, name: str, found: list[str] | ForbiddenError) -> None:
        if name in self._before:
            await asyncio.wait([self._before[name]])
        await self._queue.put(found)


def replicas_of(pods: Iterable[PodDetails]) -> dict[ReplicaName, PodDetails]:
    """Return the newest pod of each replica, ordered by type and index."""
    return dict(sorted(newest_of(pods).items(), key=lambda each: order_of(each[0])))


def metrics_pod(pods: Iterable[PodDetails]) -> PodDetails | None:
    """Return the pod whose log reports metrics, the first replica's; one that already has a log is preferred."""
    found = (pod for replica, pod in replicas_of(pods).items() if replica.type in _WITH_METRICS)
    return min(found, key=lambda pod: not state_of(pod).has_log, default=None)


class Run:
    """The curves of a job. They continue after restarts: a step that is reported again replaces the earlier point."""

    def __init__(self, key: str, error: str = "") -> None:
        """`error` is the reason why the run has no curves."""
        self.key = key
        self.changed = False
        self._curves = Curves()
        self._reader = LogReader()
        self._pod = ""
        self._error = error

    async def read(self, cluster: Cluster, client: RestClient) -> None:
        """Follow the log of `metrics_pod`, and of the containers and pods that replace it, until cancelled."""
        seen: tuple[str, int] | None = None
        while True:
            pod = metrics_pod(cluster.pods_of(self.key))
            if pod is None:
                unread = cluster.read_errors.get("pods")
                self._set_source(self._pod, _words(unread) if unread is not None else "no replica has a pod")
            elif (mark := (pod.metadata.uid, (state := state_of(pod)).run)) != seen or not state.over:
                seen = mark if await self._follow(client, pod) else None
            await asyncio.sleep(RETRY_S)

    async def _follow(self, client: RestClient, pod: PodDetails) -> bool:
        """Read a log to its end; return False if it has to be read again."""
        meta, has_log = pod.metadata, state_of(pod).has_log
        options = LogOptions(container=_container(pod), follow=True)
        self._reader = LogReader()
        try:
            async with client.logs(PODS, meta.namespace, meta.name, options) as chunks:
                self._set_source(meta.name, "" if has_log else "no replica has written anything yet")
                async for chunk in chunks:
                    points = self._reader.feed(chunk)
                    self._curves.add(points)
                    self.changed = self.changed or bool(points)
        except ApiError as error:
            self._set_source(meta.name, _words(error))
            return False
        self._curves.add(self._reader.close())
        self.changed = True
        return has_log

    def body(self) -> bytes:
        """Return the run as JSON."""
        progress = self._reader.progress
        about: dict[str, Any] = {
            "run": self.key,
            "pod": self._pod,
            "error": self._error,
            "curves": {
                clean(name, MAX_TEXT_BYTES): [(point.step, point.value) for point in points]
                for name, points in self._curves.by_name.items()
            },
            "progress": progress and progress._asdict(),
        }
        return msgspec.json.encode(about)

    def _set_source(self, pod: str, error: str) -> None:
        if (self._pod, self._error) != (pod, error):
            self._pod, self._error = pod, error
            self.changed = True


def state_of(pod: PodDetails) -> RunState:
    """Return the state of the training container."""
    return run_state_of(msgspec.to_builtins(pod.status), _container(pod))


def _container(pod: PodDetails) -> str:
    names = [container.name for container in pod.spec.containers or ()]
    return c.CONTAINER_NAME if c.CONTAINER_NAME in names else names[0] if names else ""


def _name(replica: ReplicaName) -> str:
    return f"{replica.type.lower()}-{replica.number}"


def _words(error: ApiError) -> str:
    return error.status_message if isinstance(error, StatusError) else str(error)
