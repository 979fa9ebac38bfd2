"""Sends the requests of a chapter to the model or a real API server, and records a comparable transcript.

Varying values are masked: UIDs and versions become numbers in the order of their first occurrence, times and tokens are
hidden. For pods, services and namespaces only the fields of the model are compared.
"""

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import takewhile
from random import Random
from typing import Any, Final

from hack.kubernetes_versions import Kubernetes
from kit.model.controllers import GarbageCollector
from kit.model.kinds import NAMESPACES
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from simulation.kinds import KINDS_WITH_TFJOBS
from tfjob_operator.api.client.http import Request, Transport
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

SHOWN: Final = {
    "Pod": {"spec": {"nodeName"}, "status": {"phase", "conditions"}},
    "Service": {"spec": {"clusterIP"}, "status": set[str]()},
    "Namespace": {"spec": {"finalizers"}, "status": {"phase"}},
}
"""The compared fields of kinds in which the server sets many others."""

HIDDEN: Final = {"managedFields", "selfLink"}
EMPTY: Final[tuple[object, ...]] = (None, "", {}, [])
"""Go writes some empty fields and omits others; clients that decode JSON into structs see no difference."""
BOOKMARK: Final = "<bookmark>"
"""A bookmark with only a version; its time is not compared."""
PATIENCE_S: Final = 20.0


class Session:
    """One run of a chapter on one server. `transcript` has the masked requests and responses."""

    def __init__(self, transport: Transport, namespace: str, compact: Callable[[int], None]) -> None:
        self.transcript: list[tuple[str, int, Any]] = []
        self.namespace = namespace
        self.compact = compact
        self._transport = transport
        self._names: dict[str, str] = {namespace: "<namespace>"}

    async def send(
        self,
        method: str,
        resource: Resource | str,
        name: str = "",
        body: object = None,
        *,
        sub: str = "",
        namespace: str | None = None,
        content_type: str = "application/json",
        **query: str,
    ) -> Any:
        """Send a request, note it with its response, and return the unmasked response."""
        path = resource if isinstance(resource, str) else self._path(resource, namespace, name, sub)
        status, answer = await self._exchange(method, path, body, content_type, query)
        asked = self._mask(f"{method} {path} {sorted(query.items())}")
        self.transcript.append((asked, status, self._masked(answer)))
        return answer

    async def create(self, resource: Resource, body: dict[str, Any], **options: Any) -> Any:
        return await self.send("POST", resource, "", body, **options)

    async def patch(self, resource: Resource, name: str, kind: str, body: object, **options: Any) -> Any:
        return await self.send("PATCH", resource, name, body, content_type=kind, **options)

    async def watch(self, resource: Resource, **query: str) -> None:
        """Watch for a second, and note the events."""
        path = self._path(resource, None, "", "")
        query = {"watch": "true", "timeoutSeconds": "1"} | query
        response = await self._transport.send(Request("GET", path, query, idle_s=PATIENCE_S))
        lines = b""
        try:
            async for chunk in response.chunks():
                lines += chunk
        finally:
            response.close()
        told = [json.loads(line) for line in lines.splitlines()]
        if query.get("resourceVersion", "0") == "0" or "sendInitialEvents" in query:
            told = _sorted_additions(told)
        events = [self._masked(event) for event in told]
        asked = self._mask(f"WATCH {path} {sorted(query.items())}")
        self.transcript.append((asked, response.status, [event for event in events if event != BOOKMARK]))

    def note(self, what: str, is_so: object) -> None:
        """Note a fact that follows from comparing responses."""
        self.transcript.append((what, 0, is_so))

    async def until_gone(self, resource: Resource, name: str) -> None:
        """Wait until an object is deleted, and note only that."""
        await self.until(resource, name, lambda status, _: status == 404)

    async def until(self, resource: Resource, name: str, holds: Callable[[int, Any], bool]) -> None:
        """Poll an object, without notes, until the server's controllers make the condition true."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds(*await self._exchange("GET", self._path(resource, None, name, ""), None, "", {})):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        self.transcript.append((f"so it is with {resource} {name}", 0, None))

    def _path(self, resource: Resource, namespace: str | None, name: str, sub: str) -> str:
        return resource.path(self.namespace if namespace is None else namespace, name or None, sub or None)

    async def _exchange(
        self, method: str, path: str, body: object, content_type: str, query: Mapping[str, str]
    ) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        response = await self._transport.send(Request(method, path, query, raw, content_type))
        try:
            answer = await response.body()
        finally:
            response.close()
        is_json = "json" in response.headers["Content-Type"]
        return response.status, json.loads(answer) if is_json else answer.decode()

    def _masked(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            if value.get("kind") in SHOWN and "metadata" in value:
                value = value | shown(value, SHOWN[value["kind"]])
            if str(value.get("kind", "")).endswith("List"):
                value = value | {"metadata": value["metadata"] | {"resourceVersion": "<list version>"}}
                fields = SHOWN.get(value["kind"].removesuffix("List"))
                if fields is not None:
                    value["items"] = [item | shown(item, fields) for item in value["items"]]
            if value.get("type") == "BOOKMARK":
                return value["object"]["metadata"].get("annotations", BOOKMARK)
            masked = {key: self._masked(value[key], key) for key in sorted(value) if key not in HIDDEN}
            return {key: inner for key, inner in masked.items() if inner not in EMPTY}
        if isinstance(value, list):
            return [self._masked(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if name in {"uid", "resourceVersion"} and value != "<list version>":
            return self._names.setdefault(value, f"<{name} {len(self._names)}>")
        if name == "continue":
            return "<token>"
        if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
            return "<time>"
        return self._mask(value)

    def _mask(self, text: str) -> str:
        for known, masked in self._names.items():
            if not known.isdigit():  # mask versions as numbers: their digits may occur inside other texts
                text = text.replace(known, masked)
        text = re.sub(r"('continue', ')[^']+", r"\1<token>", text)
        return re.sub(r"\d+(?!>)", "<n>", re.sub(r"(?<=from-)[a-z0-9]{5}\b", "<suffix>", text))


def write_transcript(transcript: list[tuple[str, int, Any]]) -> bytes:
    """Return the content of a recording: JSON, compressed to a tenth, without a time that would differ in each recording."""
    lines = [{"asked": asked, "status": status, "answer": answer} for asked, status, answer in transcript]
    text = json.dumps(lines, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return gzip.compress(text, mtime=0)


def read_transcript(content: bytes) -> list[tuple[str, int, Any]]:
    return [(line["asked"], line["status"], line["answer"]) for line in json.loads(gzip.decompress(content))]


def _sorted_additions(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the initial events of a watch by name: old servers send them in any order."""
    additions = [*takewhile(lambda event: event.get("type") == "ADDED", events)]
    return sorted(additions, key=lambda event: str(event["object"]["metadata"]["name"])) + events[len(additions) :]


def shown(item: Mapping[str, Any], fields: Mapping[str, set[str]]) -> dict[str, Any]:
    return {
        part: {name: value for name, value in (item.get(part) or {}).items() if name in names}
        for part, names in fields.items()
    }


WARM_S: Final = 0.5
"""The first request for a custom resource makes a server fill a cache, which takes 0.1s at 1.36.3."""


async def warm_up(transport: Transport) -> None:
    """Make the server fill its cache of TFJobs; until then it rejects watches."""
    response = await transport.send(Request("GET", TFJOBS.path()))
    await response.body()
    response.close()
    await asyncio.sleep(WARM_S)


async def play_on_model(
    chapter: Callable[[Session], Awaitable[None]], kubernetes: Kubernetes
) -> list[tuple[str, int, Any]]:
    """Play a chapter on a new model of a version; return the transcript."""
    server = ModelServer(kinds=KINDS_WITH_TFJOBS, kubernetes=kubernetes.minor)
    GarbageCollector(server, Random(0), slowest_s=0.1)
    transport = ModelTransport(server, "test")
    body = json.dumps({"metadata": {"name": "test-model"}}).encode()
    await transport.send(Request("POST", NAMESPACES.path(), {}, body))
    await warm_up(transport)
    session = Session(transport, "test-model", lambda version: server.storage.compact(version, caches=False))
    await chapter(session)
    return session.transcript
