"""A stand-in for an API server, with what the page needs: lists, watches, single objects, logs, refusals, and reviews.

The tests of the page and its benchmark use it. It holds whatever they put in, even what a real one would not accept. Its
methods may be called from any thread.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from hack.http_server import Handler
from tfjob_operator.cli.page.entrance import ENTER, SESSION, TOKEN


def enter(address: str) -> dict[str, str]:
    """Use an address that `kubectl tfjob dashboard` has printed; return the headers of the session."""
    home, _, token = address.partition("/#token=")
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
}
_GROUPS: Final = {"tfjobs": ("kubeflow.org", "v1"), "tfjobs.tensorflow.org": ("tensorflow.org", "v1alpha1")}
_DOTTED: Final = {"tensorflow.org", "metrics.k8s.io"}
"""Groups that are named with their resources: others have resources of the same name."""
_WAIT_S: Final = 0.2


class PageCluster:
    """Objects by resource and key, with the history that watches are served from.

    `kubeconfig` leads there as long as it is running; its context has the namespace `team`.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 1
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._history: list[tuple[int, str, str, dict[str, Any]]] = []
        self._logs: defaultdict[str, list[bytes]] = defaultdict(list)
        self.served = {"tfjobs"}
        """The resources of jobs that are served: `tfjobs`, and `tfjobs.tensorflow.org`, the first API."""
        self.paths: list[str] = []
        """The paths of all requests but reviews."""
        self.forbidden: set[str] = set()
        """Resources that nobody may read, or `resource/namespace` for a single namespace ("" for lists of all namespaces)."""
        self.tokens: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Good tokens: whose they are, and of which groups."""
        self.rights: set[tuple[str, str, str, str]] = set()
        """Who (a user or a group), verb, resource with its subresource, namespace ("" for all)."""
        self.reviews: list[tuple[str, ...]] = []
        """The questions of all reviews: a token, or who, verb, resource, namespace."""
        self.subjects: dict[str, tuple[list[str], dict[str, list[str]]]] = {}
        """Groups and extra of the users that were last asked about."""
        self.usage: dict[str, Any] | None = None
        """CPU and memory by pod; None where the metrics API is not served."""
        self.reviews_fail = False
        """Whether reviews are answered with 500."""
        self.kubeconfig = Path()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def put(self, resource: str, item: dict[str, Any]) -> None:
        """Create an object, or change it."""
        meta = item["metadata"]
        with self._changed:
            self._version += 1
            item = {
                **item,
                "kind": KINDS[resource],
                "metadata": {"uid": f"uid-{meta['name']}", **meta, "resourceVersion": str(self._version)},
            }
            key = resource, f"{meta['namespace']}/{meta['name']}"
            self._history.append((self._version, resource, "MODIFIED" if key in self._objects else "ADDED", item))
            self._objects[key] = item
            self._changed.notify_all()

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object."""
        with self._changed:
            self._version += 1
            item = self._objects.pop((resource, f"{namespace}/{name}"))
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
            self._history.append((self._version, resource, "DELETED", item))
            self._changed.notify_all()

    def write_log(self, pod: str, text: bytes) -> None:
        """Append lines to the log of a pod."""
        with self._changed:
            self._logs[pod] += text.splitlines(keepends=True)
            self._changed.notify_all()

    def start(self) -> None:
        """Listen, on the same port as before."""
        cluster = self

        class Here(_Handler):
            served = cluster

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Here)
        self._port = self._server.server_port
        config = {
            "current-context": "team-cluster",
            "contexts": [{"name": "team-cluster", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "u", "user": {"token": "the-token-of-the-user"}}],
        }
        self.kubeconfig.write_text(json.dumps(config))
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def stop(self) -> None:
        """Close all connections, and accept no more."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            with self._changed:
                self._changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Listen as long as the block lasts."""
        with TemporaryDirectory(prefix="page-cluster-") as folder:
            self.kubeconfig = Path(folder, "kubeconfig")
            self.start()
            try:
                yield self
            finally:
                self.stop()

    def is_served_by(self, server: object) -> bool:
        """Whether this server has not been stopped."""
        return self._server is server

    def listed(self, resource: str, namespace: str, chosen: Chosen) -> tuple[int, list[dict[str, Any]]]:
        """Return the version and the objects of a list."""
        with self._changed:
            found = [
                item for (kind, _), item in self._objects.items() if kind == resource and chosen.fits(item, namespace)
            ]
            return self._version, found

    def one(self, resource: str, key: str) -> dict[str, Any] | None:
        """Return one object."""
        with self._changed:
            return self._objects.get((resource, key))

    def news(self, version: int) -> list[tuple[int, str, str, dict[str, Any]]]:
        """Return what happened after a version; if nothing has yet, wait for a change for a moment."""
        with self._changed:
            if self._version <= version:
                self._changed.wait(_WAIT_S)
            return self._history[version - 1 :]  # numbered without a gap, the first of them 2

    def grant(
        self, who: str, namespace: str = "", *, verbs: str = "get list", resources: str = "tfjobs pods events"
    ) -> None:
        """Give rights in a namespace, "" for all."""
        self.rights |= {(who, verb, resource, namespace) for verb in verbs.split() for resource in resources.split()}

    def reviewed(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a TokenReview, or of a SubjectAccessReview."""
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

    def log_from(self, pod: str, at: int, *, stamps: bool) -> list[bytes]:
        """Return the lines of a log from a number on; if there are none yet, wait for more for a moment.

        With `stamps` each line begins with a time: they were written at intervals of a second.
        """
        with self._changed:
            if len(self._logs[pod]) <= at:
                self._changed.wait(_WAIT_S)
            found = self._logs[pod][at:]
        return [_time(number) + line if stamps else line for number, line in enumerate(found, at)]

    def log_start(self, pod: str, tail: int, since: str) -> int:
        """Return the number of the first of the last lines of a log, or of those that were written since a time."""
        count = len(self._logs[pod])
        if since:
            return next((number for number in range(count) if _time(number) >= since.encode()), count)
        return max(0, count - tail) if tail else 0


def _time(number: int) -> bytes:
    """Return what a line of a log begins with."""
    return f"2026-03-01T10:{number // 60:02}:{number % 60:02}Z ".encode()


@contextmanager
def page_of(kubeconfig: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a page on a free port, see `DASHBOARD` and `ADDON`; yield its process and its address."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "NO_PROXY": "*"}
    # A shell makes its background jobs ignore SIGINT, and tests that run as one pass that on to their child processes.
    command = ["env", "--default-signal=INT", sys.executable, "-m", *arguments, "--port=0"]
    pipe, out = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=out, text=True) as process:
        try:
            said: list[str] = []
            for line in process.stdout or ():
                said.append(line)
                if "#token=" in line or line.startswith("listening on "):
                    yield process, line.split()[-1]
                    return
            raise RuntimeError("".join(["the page did not start: ", *said]))
        finally:
            process.kill()


DASHBOARD: Final = ("tfjob_operator.cli", "dashboard", "--no-browser")
ADDON: Final = ("tfjob_operator.cli.page", "--bind-address=127.0.0.1")
"""Arguments of `page_of`."""


class Chosen:
    """The selectors of a request."""

    def __init__(self, query: dict[str, list[str]]) -> None:
        selector = query.get("labelSelector", [""])[0]
        self._labels = [each.partition("=")[::2] for each in selector.split(",") if each]
        self._field = query.get("fieldSelector", [""])[0].removeprefix("involvedObject.kind=")

    def fits(self, item: dict[str, Any], namespace: str) -> bool:
        """Whether an object is selected."""
        labels = item["metadata"].get("labels", {})
        if namespace and item["metadata"]["namespace"] != namespace:
            return False
        if any(label not in labels or (value and labels[label] != value) for label, value in self._labels):
            return False
        return not self._field or item.get("involvedObject", {}).get("kind", self._field) == self._field


class _Handler(Handler):
    served: PageCluster

    def do_GET(self) -> None:  # noqa: N802 - the name of http.server
        if not self.served.is_served_by(self.server):
            return self._break_off()
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        parts = address.path.split("/")[3 if address.path.startswith("/api/") else 4 :]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, *rest = parts or [""]
        self.served.paths.append(address.path)
        if address.path == "/apis":
            return self._groups()
        if address.path.startswith("/apis/metrics.k8s.io/"):
            return self._usage(namespace)
        return self._resource(resource, rest, namespace, query)

    def _resource(self, resource: str, rest: list[str], namespace: str, query: dict[str, list[str]]) -> None:
        if self.path.startswith("/apis/tensorflow.org/"):
            resource = f"{resource}.tensorflow.org"
        if resource not in KINDS or (resource in _GROUPS and resource not in self.served.served):
            return self._status(404, "NotFound", "the server could not find the requested resource")
        named = "/".join([resource, *rest[1:]])
        if self.served.forbidden & {resource, f"{resource}/{namespace}", named}:
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            message = f'{resource} is forbidden: User "eve" cannot list resource "{named}" in API group "" {where}'
            return self._status(403, "Forbidden", message)
        if rest[1:] == ["log"]:
            return self._log(rest[0], query)
        if rest:
            found = self.served.one(resource, f"{namespace}/{rest[0]}")
            return self.answer(found) if found else self._status(404, "NotFound", f'{resource} "{rest[0]}" not found')
        if "sendInitialEvents" in query:
            return self._status(422, "Invalid", "sendInitialEvents is forbidden")
        if "watch" in query:
            return self._watch(resource, namespace, Chosen(query), int(query["resourceVersion"][0]))
        version, items = self.served.listed(resource, namespace, Chosen(query))
        return self.answer(
            {"kind": f"{KINDS[resource]}List", "metadata": {"resourceVersion": str(version)}, "items": items}
        )

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.served.is_served_by(self.server):
            return self._break_off()
        if self.served.reviews_fail:
            return self._status(500, "InternalError", "etcd is not there")
        return self.answer({**body, "status": self.served.reviewed(body["spec"])}, 201)

    def _groups(self) -> None:
        found = [_GROUPS[each] for each in sorted(self.served.served)]
        groups = [{"name": name, "versions": [{"version": version}]} for name, version in found]
        self.answer({"kind": "APIGroupList", "groups": groups})

    def _watch(self, resource: str, namespace: str, chosen: Chosen, version: int) -> None:
        self.begin()
        while self.served.is_served_by(self.server):
            for number, kind, change, item in self.served.news(version):
                version = number
                if kind == resource and chosen.fits(item, namespace):
                    self.chunk(json.dumps({"type": change, "object": item}).encode() + b"\n")
        self._break_off()

    def _break_off(self) -> None:
        self.close_connection = True
        with suppress(OSError):  # the other side was faster
            self.connection.shutdown(socket.SHUT_RDWR)

    def _log(self, pod: str, query: dict[str, list[str]]) -> None:
        self.begin("text/plain")
        stamps = "timestamps" in query
        tail, since = (query.get(name, [""])[0] for name in ("tailLines", "sinceTime"))
        at = self.served.log_start(pod, int(tail or 0), since)
        while self.served.is_served_by(self.server):
            more = self.served.log_from(pod, at, stamps=stamps)
            at += len(more)
            if more:
                self.chunk(b"".join(more))
            elif "follow" not in query:
                break
        self.chunk(b"")

    def _usage(self, namespace: str) -> None:
        if self.served.usage is None:
            return self._status(404, "NotFound", "the server could not find the requested resource")
        if "pods.metrics.k8s.io" in self.served.forbidden:
            return self._status(403, "Forbidden", "pods.metrics.k8s.io is forbidden")
        items = [
            {"metadata": {"name": pod, "namespace": namespace}, "containers": [{"usage": used}]}
            for pod, used in self.served.usage.items()
        ]
        return self.answer({"items": items})

    def _status(self, code: int, reason: str, message: str) -> None:
        self.answer({"kind": "Status", "code": code, "reason": reason, "message": message}, code)
