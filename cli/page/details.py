"""What the page reads from the cluster when somebody asks for it: manifests, diagnoses, logs."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.cli.collecting import collect
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.errors import ApiError
from tfjob_operator.cli.kubeconfig import Access
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.curves import curves_of
from tfjob_operator.cli.page.objects import JobKey
from tfjob_operator.cli.page.reviews import Question
from tfjob_operator.cli.page.views import LogLines
from tfjob_operator.cli.session import Session
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
            raise ApiError("the page does not read this for its viewer", code=_FORBIDDEN, reason="Forbidden")
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
        """Return what `kubectl tfjob explain -o json` prints; it may be `FRESH_S` old.

        With `readable` it is made of these reads alone.
        """
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
