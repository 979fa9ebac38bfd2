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
from tfjob_operator.cli.logs.lines import Position, Splitter
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.replicas import ReplicaName, order_of
from tfjob_operator.cli.page.cluster import Cluster, background_tasks
from tfjob_operator.cli.page.views import MAX_WORDS, LogLines, newest_of
from tfjob_operator.cli.timelines.build import training_of
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
    """The merged logs of a job. After a reconnect, lines that were read before are recognized by their timestamps."""

    def __init__(self, client: RestClient, cluster: Cluster, key: str, options: LogOptions) -> None:
        self._client = client
        self._cluster = cluster
        self._key = key
        self._options = options
        self._queue = asyncio.Queue[list[str] | ForbiddenError | None](_MAX_QUEUED)
        self._reading: dict[ReplicaName, asyncio.Task[None]] = {}
        self._positions: dict[str, Position] = {}
        self._read: dict[ReplicaName, tuple[str, int]] = {}
        """The container that is being read, or was read last."""
        self._failed: set[ReplicaName] = set()
        self._before: dict[ReplicaName, asyncio.Task[None]] = {}
        """The task that sends the preceding log, if logs are sent in order."""

    async def lines(self) -> AsyncGenerator[list[str], None]:
        """Yield lines in batches."""
        running = asyncio.create_task(
            self._follow() if self._options.follow else self._read_all(), name="logs of a job"
        )
        try:
            first = self._cut(len(self._replicas())) if self._options.follow else []
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

    def _replicas(self) -> dict[ReplicaName, PodDetails]:
        return replicas_of(self._cluster.pods_of(self._key))

    async def _read_all(self) -> None:
        await self._queue.put([])
        reading: list[asyncio.Task[None]] = []
        for place, pod in self._replicas().items():
            if has_log(pod):
                if reading:
                    self._before[place] = reading[-1]
                reading.append(self._start(place, pod))
                if len(reading) > PREFETCH:
                    await reading.pop(0)
        await asyncio.gather(*reading)
        await self._queue.put(None)

    async def _follow(self) -> None:
        if not any(map(has_log, self._replicas().values())):
            await self._queue.put([])
        while True:
            for place, pod in self._replicas().items():
                if not has_log(pod) or (self._read.get(place) == _mark(pod) and not is_running(pod)):
                    continue
                running = [each for each in self._reading.values() if not each.done()]
                if len(running) >= MAX_LOGS:
                    break
                if place not in self._reading or self._reading[place].done():
                    self._read[place] = _mark(pod)
                    self._start(place, pod)
            await asyncio.sleep(RETRY_S)

    def _start(self, place: ReplicaName, pod: PodDetails) -> asyncio.Task[None]:
        task = asyncio.create_task(self._read_pod(place, pod), name=f"log of {_name(place)}")
        self._reading[place] = task
        return task

    def _cut(self, wanted: int) -> list[str]:
        more = f"The command `logs` follows all with --max-log-requests={wanted}"
        return [f"Following {MAX_LOGS} of {wanted} replicas. {more}"] if wanted > MAX_LOGS else []

    async def _read_pod(self, place: ReplicaName, pod: PodDetails) -> None:
        """Read a log to its end. A followed log is read again after an error."""
        position = self._positions.setdefault(pod.metadata.uid, Position())
        since = position.since
        position.resume()
        options = replace(
            self._options,
            container=_container(pod),
            timestamps=True,
            since=since or "",
            tail_lines=self._options.tail_lines if since is None else None,
        )
        splitter = Splitter(_MAX_LINE)
        try:
            async with self._client.logs(PODS, pod.metadata.namespace, pod.metadata.name, options) as chunks:
                await self._queue.put([])
                self._failed.discard(place)
                async for chunk in chunks:
                    await self._put(place, position, splitter.feed(chunk))
            await self._put(place, position, [rest for rest in [splitter.rest()] if rest])
        except ForbiddenError as error:
            await self._send(place, error)
        except NotFoundError:
            return  # the pod is gone
        except ApiError as error:
            self._read.pop(place, None)
            if place not in self._failed:
                self._failed.add(place)
                await self._send(place, [f"{_name(place)}: cannot read the log: {_words(error)}"])

    async def _put(self, place: ReplicaName, position: Position, raw: Iterable[bytes]) -> None:
        found = [line.text for each in raw if (line := position.unseen(each)) is not None]
        if found:
            name = _name(place)
            await self._send(place, [f"{name} | {shown}" for text in found for shown in LogLines().feed(text + b"\n")])

    async def _send(self, place: ReplicaName, found: list[str] | ForbiddenError) -> None:
        if place in self._before:
            await asyncio.wait([self._before[place]])
        await self._queue.put(found)


def replicas_of(pods: Iterable[PodDetails]) -> dict[ReplicaName, PodDetails]:
    """Return the newest pod of each replica, ordered by type and index."""
    return dict(sorted(newest_of(pods).items(), key=lambda each: order_of(each[0])))


def metrics_pod(pods: Iterable[PodDetails]) -> PodDetails | None:
    """Return the pod whose log reports metrics, the first replica's; one that already has a log is preferred."""
    found = (pod for place, pod in replicas_of(pods).items() if place.type in _WITH_METRICS)
    return min(found, key=lambda pod: not has_log(pod), default=None)


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
            elif (mark := _mark(pod)) != seen or is_running(pod):
                seen = mark if await self._follow(client, pod) else None
            await asyncio.sleep(RETRY_S)

    async def _follow(self, client: RestClient, pod: PodDetails) -> bool:
        """Read a log to its end; return False if it has to be read again."""
        meta = pod.metadata
        options = LogOptions(container=_container(pod), follow=True)
        self._reader = LogReader()
        try:
            async with client.logs(PODS, meta.namespace, meta.name, options) as chunks:
                self._set_source(meta.name, "" if has_log(pod) else "no replica has written anything yet")
                async for chunk in chunks:
                    points = self._reader.feed(chunk)
                    self._curves.add(points)
                    self.changed = self.changed or bool(points)
        except ApiError as error:
            self._set_source(meta.name, _words(error))
            return False
        self._curves.add(self._reader.close())
        self.changed = True
        return has_log(pod)

    def body(self) -> bytes:
        """Return the run as JSON."""
        progress = self._reader.progress
        about: dict[str, Any] = {
            "run": self.key,
            "pod": self._pod,
            "error": self._error,
            "curves": {
                clean(name, MAX_WORDS): [(point.step, point.value) for point in points]
                for name, points in self._curves.by_name.items()
            },
            "progress": progress and progress._asdict(),
        }
        return msgspec.json.encode(about)

    def _set_source(self, pod: str, error: str) -> None:
        if (self._pod, self._error) != (pod, error):
            self._pod, self._error = pod, error
            self.changed = True


def has_log(pod: PodDetails) -> bool:
    """Return True if the training container of a pod has started, perhaps before a restart: then it has a log."""
    main = training_of(pod)
    states = (main.state, main.last_state) if main is not None else ()
    return any(state is not None and (state.running or state.terminated) for state in states)


def is_running(pod: PodDetails) -> bool:
    """Return True if the training container is running: its log continues even if a stream of it has ended."""
    main = training_of(pod)
    return main is not None and main.state is not None and main.state.running is not None


def _mark(pod: PodDetails) -> tuple[str, int]:
    main = training_of(pod)
    return pod.metadata.uid, main.restart_count if main is not None else 0


def _container(pod: PodDetails) -> str:
    names = [each.name for each in pod.spec.containers or ()]
    return c.CONTAINER_NAME if c.CONTAINER_NAME in names else names[0] if names else ""


def _name(place: ReplicaName) -> str:
    return f"{place.type.lower()}-{place.number}"


def _words(error: ApiError) -> str:
    return error.status_message if isinstance(error, StatusError) else str(error)
