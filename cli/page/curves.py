"""Curves of loss, metrics and step time, read from logs while somebody looks at them. Several runs come in one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final

import msgspec

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.cli.diagnosis.objects import Pod
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.views import MAX_WORDS, main_status, place_of
from tfjob_operator.cli.training import Curves, LogReader

MOST_RUNS: Final = 6
"""How many runs one picture has: more colours could not be told apart."""
TOGETHER_S: Final = 1.0
"""The interval of messages: a program may report each step, and a message has whole curves."""
AGAIN_S: Final = 3.0
"""The interval at which it is checked whether a log that has ended goes on in another container."""
BEAT_S: Final = 10.0
_TELLING: Final = (c.CHIEF, c.MASTER, c.WORKER)
"""The types of replicas whose logs tell how a training goes, the best one first."""


async def curves_of(cluster: Cluster, client: RestClient, keys: Sequence[str]) -> AsyncGenerator[bytes, None]:
    """Yield messages, each the whole of one run as JSON, whenever it has changed; b"" after `BEAT_S` of silence."""
    runs = [_Run(key) for key in dict.fromkeys(keys)][:MOST_RUNS]
    silent_s = 0.0
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(run.read(cluster, client), name=f"curves of {run.key}") for run in runs]
        try:
            while True:
                await asyncio.sleep(TOGETHER_S)
                changed = [run for run in runs if run.changed]
                for run in changed:
                    run.changed = False
                    yield run.body()
                silent_s = 0.0 if changed else silent_s + TOGETHER_S
                if silent_s >= BEAT_S:
                    silent_s = 0.0
                    yield b""
        finally:
            for task in reading:
                task.cancel()


def telling_pod(pods: Iterable[Pod]) -> Pod | None:
    """Return the pod whose log tells how the training goes, None where none has started."""
    order = {kind: number for number, kind in enumerate(_TELLING)}
    found = [pod for pod in pods if place_of(pod)[0] in order and _has_log(pod)]
    return min(found, key=lambda pod: (order[place_of(pod)[0]], place_of(pod)[1]), default=None)


def no_curves(run: str, why: str) -> bytes:
    """Return the message about a run that has no curves."""
    return msgspec.json.encode({"run": run, "pod": "", "error": why, "curves": {}, "progress": None})


class _Run:
    """One job and its curves, which go on over restarts: steps that are reported again replace earlier points."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.changed = True
        self._curves = Curves()
        self._reader = LogReader()
        self._pod = ""
        self._error = "no replica has written anything yet"

    async def read(self, cluster: Cluster, client: RestClient) -> None:
        """Follow the log of the pod that `telling_pod` finds, then of the next container in its place, until cancelled."""
        seen: tuple[str, int] | None = None
        while True:
            pod = telling_pod(cluster.pods_of(self.key))
            if pod is not None and (mark := _mark(pod)) != seen:
                seen = mark if await self._follow(client, pod) else None
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, client: RestClient, pod: Pod) -> bool:
        """Read a log to its end; return whether it was there."""
        meta = pod.metadata
        main = main_status(pod)
        options = LogOptions(container=main.name if main is not None else "", follow=True)
        self._reader = LogReader()
        try:
            async with client.logs(PODS, meta.namespace, meta.name, options) as chunks:
                self._told(meta.name, "")
                async for chunk in chunks:
                    self._add(chunk)
        except ApiError as error:
            self._told(meta.name, error.status_message if isinstance(error, StatusError) else str(error))
            return False
        self._curves.add(self._reader.close())
        self.changed = True
        return True

    def body(self) -> bytes:
        """Return all that is known of the run."""
        progress = self._reader.progress
        about: dict[str, Any] = {
            "run": self.key,
            "pod": self._pod,
            "error": self._error,
            "curves": {
                clean(name, MAX_WORDS): [(point.step, point.value) for point in points]
                for name, points in self._curves.by_name.items()
            },
            "progress": None
            if progress is None
            else {"step": progress.step, "total": progress.total, "unit": progress.unit},
        }
        return msgspec.json.encode(about)

    def _add(self, chunk: bytes) -> None:
        points = self._reader.feed(chunk)
        if points:
            self._curves.add(points)
            self.changed = True

    def _told(self, pod: str, error: str) -> None:
        if (self._pod, self._error) != (pod, error):
            self._pod, self._error = pod, error
            self.changed = True


def _has_log(pod: Pod) -> bool:
    main = main_status(pod)
    state = main.state if main is not None else None
    return state is not None and (state.running is not None or state.terminated is not None)


def _mark(pod: Pod) -> tuple[str, int]:
    main = main_status(pod)
    return pod.metadata.uid, main.restart_count if main is not None else 0
