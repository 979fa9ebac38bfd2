"""What the page reads from the cluster when somebody asks for it: manifests, diagnoses, logs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.api.core import PODS
from tfjob_operator.cli.collecting import collect
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.page.curves import curves_of
from tfjob_operator.cli.page.limited import LimitedSession
from tfjob_operator.cli.page.log_lines import LogLines
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from tfjob_operator.api.client.rest import RestClient
    from tfjob_operator.cli.kubeconfig import Access
    from tfjob_operator.cli.page.cluster import Cluster
    from tfjob_operator.cli.page.keys import JobKey
    from tfjob_operator.cli.page.reviews import Question

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
