"""What the page reads from the cluster on demand: manifests, diagnoses, resource usage, addresses of TensorBoards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from tfjob_operator.api.access import Access
from tfjob_operator.api.client.errors import StatusError
from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import SERVICES
from tfjob_operator.api.meta import Meta, Struct
from tfjob_operator.cli.collecting import collect
from tfjob_operator.cli.commands.tensorboard_ import board_selector
from tfjob_operator.cli.commands.top_ import ABSENT, POD_METRICS, total
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.page.objects import POD_SELECTOR, TENSORFLOW_V1ALPHA1, JobKey
from tfjob_operator.cli.page.reviews import ResultCache
from tfjob_operator.cli.permissions import ResourceAttributes
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.yaml_text import yaml_text

T = TypeVar("T")

FRESH_S: Final = 5.0
"""How long a diagnosis is cached: it reads about ten lists."""
MAX_CONCURRENT: Final = 2
"""The most concurrent diagnoses, each in a thread."""
USAGE_S: Final = 10.0
"""How long the usage in a namespace is cached: metrics-server measures every 15 s."""
MAX_CACHED: Final = 100
"""The most cached diagnoses, and namespaces with their usage."""


Usage = dict[str, float]
"""The usage of a pod: `cpu` in cores, `memory` in bytes."""


class _Container(Struct, frozen=True):
    usage: dict[str, object] | None = None


class _PodMetrics(Struct, frozen=True):
    metadata: Meta
    containers: tuple[_Container, ...] | None = None


class _Items(Struct, Generic[T], frozen=True):
    items: tuple[T, ...] | None = None


class Details:
    """Reads for single jobs with the user's permissions. All methods raise CliError or ApiError."""

    def __init__(self, client: RestClient, read: Callable[[str], Access]) -> None:
        """`read` returns the access to the server for a namespace."""
        self._client = client
        self._read = read
        self._diagnoses = ResultCache[bytes](MAX_CACHED)
        self._usages = ResultCache[dict[str, Usage] | None](MAX_CACHED)
        self._some = asyncio.Semaphore(MAX_CONCURRENT)

    async def close(self) -> None:
        """Cancel all reads."""
        await self._diagnoses.close()
        await self._usages.close()

    async def manifest(self, job: JobKey) -> str:
        """Return a job as YAML as on the server, but without managedFields."""
        found = msgspec.json.decode(await self._client.get(*job))
        found.get("metadata", {}).pop("managedFields", None)
        return yaml_text(found, sort_keys=False)

    async def diagnosis(self, job: JobKey, granted: frozenset[ResourceAttributes] | None = None) -> bytes:
        """Return the output of `explain -o json`, read with `granted`, None for all, and up to `FRESH_S` seconds old."""

        async def make() -> bytes:
            async with self._some:
                return await call_in_daemon_thread(lambda: self._diagnose(job, granted), "diagnosis")

        return (await self._diagnoses.get((job, granted), make, lambda _: FRESH_S)).value

    async def usage(self, namespace: str) -> dict[str, Usage] | None:
        """Return the usage of the replicas in a namespace by pod, None without the metrics API; it may be `USAGE_S` old."""

        async def ask() -> dict[str, Usage] | None:
            options = ListOptions(namespace=namespace, label_selector=POD_SELECTOR)
            try:
                found = await self._client.list_page(POD_METRICS, options, _Items[_PodMetrics])
            except StatusError as error:
                if error.code in ABSENT:
                    return None
                raise
            return {item.metadata.name: _usage(item) for item in found.items or ()}

        return (await self._usages.get(namespace, ask, lambda _: USAGE_S)).value

    async def tensorboard(self, job: JobKey) -> str:
        """Return the address of the TensorBoard if its Service has a load balancer, else ""."""
        selector = board_selector(job.name, is_alpha=job.resource == TENSORFLOW_V1ALPHA1)
        options = ListOptions(namespace=job.namespace, label_selector=selector)
        found = await self._client.list_page(SERVICES, options, _Items[dict[str, Any]])
        for service in found.items or ():
            for at in service["status"].get("loadBalancer", {}).get("ingress") or ():
                host = at.get("hostname") or at.get("ip", "")
                return f"http://{f'[{host}]' if ':' in host else host}:{service['spec']['ports'][0]['port']}/"
        return ""

    def _diagnose(self, job: JobKey, granted: frozenset[ResourceAttributes] | None) -> bytes:
        with Session(self._read(job.namespace)) as session:
            evidence = collect(session, job.full_name, datetime.now(UTC), granted=granted)
        return msgspec.json.encode(diagnose(evidence))


def _usage(pod: _PodMetrics) -> Usage:
    used = [container.usage or {} for container in pod.containers or ()]
    return {name: float(total(each.get(name) for each in used)) for name in ("cpu", "memory")}
