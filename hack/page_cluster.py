"""A fake API server for the dashboard: lists, watches, single objects, logs, denied requests, and reviews.

For tests and benchmarks of the dashboard. It stores any object, even one that a real API server would reject. Its methods are
thread-safe.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from aiohttp import web

from hack.http_server import stop_accepting
from hack.objects import a_kubeconfig
from tfjob_operator.cli.page.authenticator import ENTER, SESSION, TOKEN


def enter(address: str) -> dict[str, str]:
    """Open an address that the dashboard printed; return the session's request headers, none if the address has no token."""
    home, _, token = address.partition("/#token=")
    if not token:
        return {}
    request = urllib.request.Request(home + ENTER, headers={TOKEN: token})  # noqa: S310 - it is http
    with urllib.request.urlopen(request) as response:  # noqa: S310
        return {SESSION: json.loads(response.read())["session"]}


ROOT: Final = Path(__file__).parents[1]
KINDS: Final = {
    "tfjobs": "TFJob",
    "tfjobs.tensorflow.org": "TfJob",
    "pods": "Pod",
    "events": "Event",
    "jobs": "Job",
    "services": "Service",
    "workloads": "Workload",
}
_GROUPS: Final = {
    "tfjobs": ("kubeflow.org", "v1"),
    "tfjobs.tensorflow.org": ("tensorflow.org", "v1alpha1"),
    "workloads": ("kueue.x-k8s.io", "v1beta2"),
}
_DOTTED: Final = {"tensorflow.org", "metrics.k8s.io"}
"""Groups that qualify their resources, because another group has resources with the same names."""
_Selector = Callable[[str, dict[str, Any]], bool]


class PageCluster:
    """Objects by resource and key, with the history from which watches are served.

    While the server runs, `kubeconfig` connects to it; the context of `kubeconfig` has the namespace `team`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._history: list[tuple[str, str, dict[str, Any]]] = []
        """Resource, change and object; the first has version 2."""
        self._logs: defaultdict[str, list[bytes]] = defaultdict(list)
        self.discovery_fails = False
        self.served = {"tfjobs"}
        """The custom resources that are served: `tfjobs`, `tfjobs.tensorflow.org` of the first API, and Kueue's `workloads`."""
        self.paths: list[str] = []
        """The paths of all requests except reviews."""
        self.forbidden: set[str] = set()
        """Forbidden resources, or `resource/namespace` for one namespace ("" for lists of all namespaces)."""
        self.tokens: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Valid tokens, each with its user and groups."""
        self.rights: set[tuple[str, str, str, str]] = set()
        """Grants: user or group, verb, resource with its subresource, namespace ("" for all)."""
        self.reviews: list[tuple[str, ...]] = []
        """All reviews received: a token, or user, verb, resource, namespace."""
        self.subjects: dict[str, tuple[list[str], dict[str, list[str]]]] = {}
        """Groups and extra of the last reviewed users."""
        self.usage: dict[str, Any] | None = None
        """CPU and memory by pod; None if the metrics API is not served."""
        self.reviews_fail = False
        """If True, reviews fail with 500."""
        self.kubeconfig = Path()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port = 0

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens."""
        return "127.0.0.1", self._port

    def put(self, resource: str, item: dict[str, Any]) -> None:
        """Create or update an object."""
        meta = item["metadata"]
        item = {**item, "kind": KINDS[resource], "metadata": {"uid": f"uid-{meta['name']}", **meta}}
        key = resource, f"{meta['namespace']}/{meta['name']}"
        with self._lock:
            self._add(resource, "MODIFIED" if key in self._objects else "ADDED", item)
            self._objects[key] = item
        self._notify()

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object."""
        with self._lock:
            item = self._objects.pop((resource, f"{namespace}/{name}"))
            self._add(resource, "DELETED", {**item, "metadata": {**item["metadata"]}})
        self._notify()

    def _add(self, resource: str, change: str, item: dict[str, Any]) -> None:
        item["metadata"]["resourceVersion"] = str(len(self._history) + 2)
        self._history.append((resource, change, item))

    def write_log(self, pod: str, text: bytes) -> None:
        """Append lines to a pod's log."""
        self._logs[pod] += text.splitlines(keepends=True)
        self._notify()

    def _notify(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _change(self) -> None:
        """Wait for the next change."""
        self._changed.clear()
        await self._changed.wait()

    def start(self) -> None:
        """Listen, always on the same port."""
        loop = self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), loop).result()
        token = {"token": "the-token-of-the-user"}
        config = a_kubeconfig(f"http://127.0.0.1:{self._port}", token, context="team-cluster")
        self.kubeconfig.write_text(json.dumps(config))

    async def _listen(self) -> None:
        self._server = web.Server(self._respond, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.01)
        await self._runner.setup()
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        await web.SockSite(self._runner, self._listener).start()

    async def _close(self) -> None:
        await stop_accepting(self._listener)
        connections = self._server.connections
        transports = [each.transport for each in connections if each.transport is not None]
        for connection in connections:  # all at once, because clients reconnect within milliseconds
            connection.force_close()
        await self._runner.cleanup()
        for transport in transports:  # else one to a client that does not read stays open until its buffer is sent
            transport.abort()

    def stop(self) -> None:
        """Close all connections and stop listening."""
        loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Listen inside the block."""
        with TemporaryDirectory(prefix="page-cluster-") as folder:
            self.kubeconfig = Path(folder, "kubeconfig")
            self.start()
            try:
                yield self
            finally:
                self.stop()

    def grant(
        self, who: str, namespace: str = "", *, verbs: str = "get list", resources: str = "tfjobs pods events"
    ) -> None:
        """Grant permissions in a namespace, "" for all."""
        self.rights |= {(who, verb, resource, namespace) for verb in verbs.split() for resource in resources.split()}

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            if self.reviews_fail:
                return _status(500, "InternalError", "etcd is unavailable")
            body = await request.json()
            return web.json_response({**body, "status": self._reviewed(body["spec"])}, status=201)
        path = request.path
        self.paths.append(path)
        parts = path.split("/")[3 if path.startswith("/api/") else 4 :]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        if path == "/apis" and self.discovery_fails:
            return _status(503, "ServiceUnavailable", "apiserver is shutting down")
        if path == "/apis":
            found = [_GROUPS[each] for each in sorted(self.served)]
            groups = [{"name": name, "versions": [{"version": version}]} for name, version in found]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        if path.startswith("/apis/metrics.k8s.io/"):
            return self._used(namespace)
        if path.startswith("/apis/tensorflow.org/"):
            parts[0] += ".tensorflow.org"
        try:
            return await self._read(request, namespace, *parts)
        except ConnectionResetError:  # the client has closed its connection, which is no error of a server
            return web.Response()

    async def _read(
        self, request: web.BaseRequest, namespace: str, resource: str = "", *rest: str
    ) -> web.StreamResponse:
        if resource not in KINDS or (resource in _GROUPS and resource not in self.served):
            return _status(404, "NotFound", "the server could not find the requested resource")
        named = "/".join([resource, *rest[1:]])
        if self.forbidden & {resource, f"{resource}/{namespace}", named}:
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            message = f'{resource} is forbidden: User "eve" cannot list resource "{named}" in API group "" {where}'
            return _status(403, "Forbidden", message)
        if rest[1:] == ("log",):
            return await self._log(request, rest[0])
        if rest:
            item = self._objects.get((resource, f"{namespace}/{rest[0]}"))
            return web.json_response(item) if item else _status(404, "NotFound", f'{resource} "{rest[0]}" not found')
        if "sendInitialEvents" in request.query:
            return _status(422, "Invalid", "sendInitialEvents is forbidden")
        fits = _selector(resource, namespace, request.query)
        return await self._watch(request, fits) if "watch" in request.query else self._list(resource, fits)

    def _list(self, resource: str, fits: _Selector) -> web.Response:
        with self._lock:
            items = [item for (kind, _), item in self._objects.items() if fits(kind, item)]
            version = str(len(self._history) + 1)
        return web.json_response(
            {"kind": f"{KINDS[resource]}List", "metadata": {"resourceVersion": version}, "items": items}
        )

    def _reviewed(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a TokenReview or SubjectAccessReview."""
        if "token" in spec:
            self.reviews.append((spec["token"],))
            known = self.tokens.get(spec["token"])
            if known is None:
                return {"error": "invalid bearer token"}
            return {"authenticated": True, "user": {"username": known[0], "groups": [*known[1]]}}
        asked = spec["resourceAttributes"]
        group = asked.get("group", "")
        plural = f"{asked['resource']}.{group}" if group in _DOTTED else asked["resource"]
        resource = "/".join(filter(None, (plural, asked.get("subresource"))))
        namespace = asked.get("namespace", "")
        self.reviews.append((spec["user"], asked["verb"], resource, namespace))
        self.subjects[spec["user"]] = spec.get("groups", []), spec.get("extra", {})
        everybody = (spec["user"], *spec.get("groups", ()))
        places = {namespace, ""}
        return {"allowed": any((who, asked["verb"], resource, at) in self.rights for who in everybody for at in places)}

    async def _watch(self, request: web.BaseRequest, fits: _Selector) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = int(request.query["resourceVersion"]) - 1
        while True:
            news = self._history[seen:]
            seen += len(news)
            for kind, change, item in news:
                if fits(kind, item):
                    await response.write(json.dumps({"type": change, "object": item}).encode() + b"\n")
            if len(self._history) == seen:
                await self._change()

    async def _log(self, request: web.BaseRequest, pod: str) -> web.StreamResponse:
        """Send the last lines of a log, or all its lines since a given time. Lines have timestamps one second apart."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        query, lines = request.query, self._logs[pod]
        tail, since = int(query.get("tailLines", 0)), query.get("sinceTime", "")
        at = max(0, len(lines) - tail) if tail else 0
        if since:
            at = next((number for number in range(len(lines)) if _time(number) >= since.encode()), len(lines))
        while True:
            more, stamps = lines[at:], "timestamps" in query
            await response.write(b"".join((_time(n) if stamps else b"") + line for n, line in enumerate(more, at)))
            at += len(more)
            if "follow" not in query:
                return response
            if len(lines) == at:
                await self._change()

    def _used(self, namespace: str) -> web.Response:
        if self.usage is None:
            return _status(404, "NotFound", "the server could not find the requested resource")
        if "pods.metrics.k8s.io" in self.forbidden:
            return _status(403, "Forbidden", "pods.metrics.k8s.io is forbidden")
        items = [
            {"metadata": {"name": pod, "namespace": namespace}, "containers": [{"usage": used}]}
            for pod, used in self.usage.items()
        ]
        return web.json_response({"items": items})


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code)


def _time(number: int) -> bytes:
    """Return the timestamp of a log line."""
    return f"2026-03-01T10:{number // 60:02}:{number % 60:02}Z ".encode()


def _selector(resource: str, namespace: str, query: Mapping[str, str]) -> _Selector:
    """Return a function that returns True if an object of a resource is selected by a request."""
    wanted = [each.partition("=")[::2] for each in query.get("labelSelector", "").split(",") if each]
    about = query.get("fieldSelector", "").removeprefix("involvedObject.kind=")

    def fits(kind: str, item: dict[str, Any]) -> bool:
        labels = item["metadata"].get("labels", {})
        return (
            kind == resource
            and namespace in {"", item["metadata"]["namespace"]}
            and all(label in labels and value in {"", labels[label]} for label, value in wanted)
            and about in {"", item.get("involvedObject", {}).get("kind", about)}
        )

    return fits


@contextmanager
def page_of(
    kubeconfig: Path, *arguments: str, ignores_sigint: bool = False
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a dashboard, with arguments `DASHBOARD`, `ADDON` or `DEMO`; yield its process and the address that it printed."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "NO_PROXY": "*"}
    # A shell starts background jobs with SIGINT ignored, and a test process in the background passes that on to its children.
    signals = f"--{'ignore' if ignores_sigint else 'default'}-signal=INT"
    command = ["env", signals, sys.executable, "-m", *arguments]
    pipe, out = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=out, text=True) as process:
        try:
            said: list[str] = []
            for line in process.stdout or ():
                said.append(line)
                if "#token=" in line or line.startswith("listening on "):
                    yield process, line.split()[-1]
                    return
            raise RuntimeError("".join(["the dashboard did not start: ", *said]))
        finally:
            process.kill()


DASHBOARD: Final = ("tfjob_operator.cli", "dashboard", "--no-browser", "--port=0")
ADDON: Final = ("tfjob_operator.cli.page", "--bind-address=127.0.0.1", "--port=0")
DEMO: Final = ("hack.demo", "--page")
"""Arguments of `page_of`."""
