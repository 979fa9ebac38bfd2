"""What the page reads from the cluster when somebody asks for it: manifests, diagnoses, logs, and curves of what logs tell."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.cli.collecting import collect
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.objects import Pod
from tfjob_operator.cli.errors import ApiError as Refusal
from tfjob_operator.cli.kubeconfig import Access
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.objects import JobKey
from tfjob_operator.cli.page.reviews import Question
from tfjob_operator.cli.page.views import MAX_WORDS, LogLines, place_of
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.timelines.build import training_of
from tfjob_operator.cli.training import Curves, LogReader
from tfjob_operator.cli.yaml_text import yaml_text

_FORBIDDEN: Final = 403
_BY_NAME: Final = "metadata.name="


class LimitedSession(Session):
    """A session that sends nothing but these reads, and refuses other requests as the API server would."""

    def __init__(self, access: Access, readable: frozenset[Question]) -> None:
        """`readable` is what its user may do: `get` and `list` of resources."""
        super().__init__(access)
        self._readable = readable

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None = None,
        **how: Any,
    ) -> http.client.HTTPResponse:
        read = read_of(path, query) if method == "GET" else None
        if read is None or not any(read.is_allowed_by(each) for each in self._readable):
            raise Refusal("the page does not read this for its viewer", code=_FORBIDDEN, reason="Forbidden")
        return super()._send(method, path, query, headers, body, **how)


class Read(NamedTuple):
    """What a request reads, as the API server's authorizer sees it. `resource` is like `tfjobs.kubeflow.org`."""

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str

    def is_allowed_by(self, question: Question) -> bool:
        """Whether a yes to this question allows the request."""
        asked = question.verb, str(question.resource), question.namespace, question.subresource
        return asked == (self.verb, self.resource, self.namespace, self.subresource) and question.name in {
            "",
            self.name,
        }


def read_of(path: str, query: Mapping[str, Any]) -> Read | None:
    """Return what a path with a query is about; None for a watch, and for a path of no resource."""
    kind, *parts = [unquote(each) for each in path.strip("/").split("/")]
    if kind not in {"api", "apis"} or "watch" in query or any("/" in part or part in {".", ".."} for part in parts):
        return None
    group = parts.pop(0) if kind == "apis" and parts else ""
    parts = parts[1:]  # the version
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    elif parts[:1] == ["namespaces"] and len(parts) == 2:
        namespace = parts[1]  # RBAC finds a namespace itself in that namespace
    if not 1 <= len(parts) <= 3 or not all(parts):
        return None
    plural, name, subresource = (*parts, "", "")[:3]
    selected = str(query.get("fieldSelector", ""))
    if not name and selected.startswith(_BY_NAME) and "," not in selected:
        return Read("list", _dotted(plural, group), namespace, selected.removeprefix(_BY_NAME), "")
    return Read("get" if name else "list", _dotted(plural, group), namespace, name, subresource)


def _dotted(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


FRESH_S: Final = 5.0
"""How long a diagnosis is kept for whoever asks next: making one reads some ten lists."""
AT_A_TIME: Final = 2
"""Diagnoses that are made at a time, each in a thread."""


class Details:
    """Reads with the rights of the user, one job at a time. All methods raise CliError or ApiError."""

    def __init__(self, client: RestClient, streams: RestClient, read: Callable[[str], Access]) -> None:
        """`streams` is a client for long requests; `read` returns the access to the server for a namespace."""
        self._client = client
        self._streams = streams
        self._read = read
        self._diagnoses: dict[tuple[JobKey, frozenset[Question] | None], tuple[float, bytes]] = {}
        self._some = asyncio.Semaphore(AT_A_TIME)

    async def manifest(self, job: JobKey) -> str:
        """Return a job as YAML, as it is on the server, but without its managedFields."""
        found = msgspec.json.decode(await self._client.get(*job))
        found.get("metadata", {}).pop("managedFields", None)
        return yaml_text(found, sort_keys=False)

    async def diagnosis(self, job: JobKey, readable: frozenset[Question] | None = None) -> bytes:
        """Return what `explain -o json` prints, of the `readable` alone if given; it may be `FRESH_S` old."""
        key, now = (job, readable), asyncio.get_running_loop().time()
        async with self._some:
            kept = self._diagnoses.get(key)
            if kept is None or now - kept[0] > FRESH_S:
                body = await call_in_daemon_thread(lambda: self._diagnose(job, readable), "diagnosis")
                self._diagnoses = {each: old for each, old in self._diagnoses.items() if now - old[0] <= FRESH_S}
                kept = self._diagnoses[key] = now, body
        return kept[1]

    @asynccontextmanager
    async def log(
        self, namespace: str, pod: str, options: LogOptions
    ) -> AsyncIterator[AsyncGenerator[list[str], None]]:
        """Open a log; inside the block iterate over its lines as they come, some at a time."""
        async with self._streams.logs(PODS, namespace, pod, options) as chunks:
            yield _lines(chunks)

    def curves(self, cluster: Cluster, keys: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Yield the curves of these jobs as they change, see `curves_of`."""
        return curves_of(cluster, self._streams, keys)

    def _diagnose(self, job: JobKey, readable: frozenset[Question] | None) -> bytes:
        access = self._read(job.namespace)
        with Session(access) if readable is None else LimitedSession(access, readable) as session:
            return msgspec.json.encode(diagnose(collect(session, job.full_name, datetime.now(UTC))))


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[list[str], None]:
    lines = LogLines()
    async for chunk in chunks:
        yield [*lines.feed(chunk)]
    yield [*lines.end()]


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
        main = training_of(pod)
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
    main = training_of(pod)
    state = main.state if main is not None else None
    return state is not None and (state.running is not None or state.terminated is not None)


def _mark(pod: Pod) -> tuple[str, int]:
    main = training_of(pod)
    return pod.metadata.uid, main.restart_count if main is not None else 0
