"""An API server with jobs, pods and the logs that their kubelets keep: streams, restarts, new pods, lost connections."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from hack import http_server
from hack.objects import container_status
from unit.cli.conftest import Server, job, pod

LIMIT_S = 30.0
"""How long a test waits for anything."""


@dataclass
class Run:
    """One start of a container: bytes with the time of each line, and how it ended."""

    written: list[tuple[str, bytes]] = field(default_factory=list)
    exit_code: int | None = None


@dataclass
class FakePod:
    """A pod of a replica, with one container."""

    name: str
    uid: str
    runs: list[Run] = field(default_factory=list)
    phase: str = "Pending"
    gone: bool = False

    def body(self) -> dict[str, Any]:
        states: list[dict[str, Any]] = [{"terminated": {"exitCode": each.exit_code}} for each in self.runs]
        if self.runs and self.runs[-1].exit_code is None:
            states[-1] = {"running": {}}
        found = [container_status(states[-1], (states[-2:-1] or [{}])[0], len(states) - 1)] if states else []
        spec = {"containers": [{"name": "tensorflow"}]}
        return pod(self.name, self.phase, meta={"uid": self.uid}, spec=spec, containerStatuses=found)


class Cluster(Server):
    """A server with a job, its pods and their logs. Tests change it inside `changed`, which sends events to the watches."""

    def __init__(self) -> None:
        super().__init__()
        self.condition = threading.Condition()
        self.job: dict[str, Any] | None = job()
        self.job_version = 7
        self.pods: dict[str, FakePod] = {}
        self.events: list[dict[str, Any]] = []
        self.opened: dict[str, int] = {}
        """How many log streams of a pod were asked for."""
        self.cuts: list[int] = []
        """The next streams break off after so many bytes."""
        self.refusals: list[tuple[int, str]] = []
        """What the next requests of logs are refused with."""
        self.reads: list[str] = []
        """The paths of all requests."""
        self.queries: list[dict[str, str]] = []
        """Those of the log streams."""
        self.closed = False

    @contextmanager
    def changed(self) -> Iterator[None]:
        with self.condition:
            before = {pod.uid: json.dumps(pod.body()) for pod in self.pods.values()}
            kept = {pod.uid: pod for pod in self.pods.values()}
            yield
            now = {pod.uid: pod.body() for pod in self.pods.values()}
            gone = [kept[uid].body() for uid in before if uid not in now]
            self.events += [{"type": "DELETED", "object": each} for each in gone]
            for uid, body in now.items():
                if before.get(uid) != json.dumps(body):
                    self.events.append({"type": "MODIFIED" if uid in before else "ADDED", "object": body})
            self.condition.notify_all()

    @contextmanager
    def serving(self, handler: type[http_server.Handler] | None = None) -> Iterator[Self]:
        with super().serving(handler or Handler):
            try:
                yield self
            finally:
                with self.changed():
                    self.closed = True

    def pod(self, name: str, uid: str = "") -> FakePod:
        """Create a running pod; it replaces one of the same name."""
        with self.changed():
            if name in self.pods:
                self.pods[name].gone = True
            self.pods[name] = FakePod(name, uid or name, [Run()], "Running")
            return self.pods[name]

    def delete(self, name: str) -> None:
        with self.changed():
            self.pods.pop(name).gone = True

    def write(self, name: str, *lines: str, at: str = "", ended: bool = True) -> None:
        """Let the container write lines, all in the same second, or at a time."""
        with self.changed():
            run = self.pods[name].runs[-1]
            for place, line in enumerate(lines):
                stamp = at or f"2026-01-01T00:00:00.{len(run.written):03}000000Z"
                end = b"\n" if ended or place < len(lines) - 1 else b""
                run.written.append((stamp, line.encode("utf-8", "surrogateescape") + end))

    def exit(self, name: str, code: int, *, phase: str = "") -> None:
        """Let the container end, and with a phase the pod."""
        with self.changed():
            self.pods[name].runs[-1].exit_code = code
            self.pods[name].phase = phase or self.pods[name].phase

    def end_job(self, condition: str = "Succeeded") -> None:
        with self.changed():
            self.job = job("mnist", condition)
            self.job_version += 1

    def finish(self, name: str) -> None:
        self.exit(name, 0, phase="Succeeded")
        self.end_job()

    def delete_job(self) -> None:
        with self.changed():
            self.job = None
            self.job_version += 1

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        with self.condition:
            assert self.condition.wait_for(ready, LIMIT_S), f"not within {LIMIT_S:.0f} s: {what}; read: {self.reads}"

    def wait_for_stream(self, name: str, count: int = 1) -> None:
        self.wait(lambda: self.opened.get(name, 0) >= count, f"{count} log streams of {name}")

    def wait_for_lines(self, name: str) -> None:
        """Wait until the plugin has lines of a pod: it then reads the pod, to see whether it is still the same."""
        self.wait(lambda: any(each.endswith(f"/pods/{name}") for each in self.reads), f"a read of the pod {name}")


class Handler(http_server.Handler):
    backend: Cluster

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        cluster, parts = self.backend, where.path.split("/")
        with cluster.condition:
            cluster.reads.append(where.path)
            cluster.condition.notify_all()
            pod = cluster.pods.get(parts[-1])  # as it is at this moment: tests wait for it, and then change the pod
            body = pod.body() if pod else None
        if "tfjobs" in parts:
            self._job(query)
        elif parts[-1] == "log" or parts[1] == "containerLogs":  # the path of a kubelet, which an API server asks
            self._log(parts[-2], query)
        elif parts[-1] != "pods":
            self._object(body)
        elif "watch" in query:
            self._watch(int(query.get("resourceVersion", 0)))
        else:
            with cluster.condition:
                meta = {"resourceVersion": str(len(cluster.events))}
                self._object({"metadata": meta, "items": [pod.body() for pod in cluster.pods.values()]})

    def _object(self, body: dict[str, Any] | None, code: int = 200) -> None:
        if body is None:
            body, code = {"message": "not found", "reason": "NotFound"}, 404
        self.answer(body, code)

    def _job(self, query: dict[str, str]) -> None:
        cluster = self.backend
        if "watch" in query:
            with cluster.condition:
                cluster.condition.wait_for(
                    lambda: cluster.job_version > int(query["resourceVersion"]) or cluster.closed
                )
                found = cluster.job
            self.begin()
            event = {"type": "MODIFIED", "object": found} if found else {"type": "DELETED", "object": job()}
            self.chunk(json.dumps(event).encode() + b"\n")
            self.chunk(b"")
            return
        with cluster.condition:
            if cluster.job is not None:
                cluster.job["metadata"]["resourceVersion"] = str(cluster.job_version)
            self._object(cluster.job)

    def _watch(self, seen: int) -> None:
        cluster = self.backend
        self.begin()
        while True:
            with cluster.condition:
                while len(cluster.events) == seen and not cluster.closed:
                    cluster.condition.wait()
                news, seen = cluster.events[seen:], len(cluster.events)
            for each in news:
                self.chunk(json.dumps(each).encode() + b"\n")
            if cluster.closed:
                self.chunk(b"")
                return

    def _log(self, name: str, query: dict[str, str]) -> None:
        cluster = self.backend
        with cluster.condition:
            cluster.opened[name] = cluster.opened.get(name, 0) + 1
            cluster.queries.append(query)
            cluster.condition.notify_all()
            pod = cluster.pods.get(name)
            refusal = cluster.refusals.pop(0) if cluster.refusals else None
            room = cluster.cuts.pop(0) if cluster.cuts and "previous" not in query else None
        if refusal is not None:
            self._object({"message": refusal[1], "reason": "Forbidden" if refusal[0] == 403 else ""}, refusal[0])
        elif pod is None:
            self._object(None)
        elif len(pod.runs) < (2 if "previous" in query else 1):
            self._object({"message": f"{name} is waiting to start, or has no earlier run"}, 400)
        else:
            self._stream(pod, pod.runs[-2 if "previous" in query else -1], query, room)

    def _stream(self, pod: FakePod, run: Run, query: dict[str, str], room: int | None) -> None:
        cluster, sent, begun = self.backend, 0, False
        since = datetime.fromisoformat(query.get("sinceTime", "2000-01-01T00:00:00Z")[:19] + "Z")
        if "tailLines" in query:
            sent = max(0, len(run.written) - int(query["tailLines"]))
        while True:
            with cluster.condition:
                while not (over := self._is_over(pod, run, query)) and len(run.written) == sent:
                    cluster.condition.wait()
                news, sent = run.written[sent:], len(run.written)
            kept = [(stamp, text) for stamp, text in news if _time(stamp) >= since]
            data = b"".join((stamp.encode() + b" " if "timestamps" in query else b"") + text for stamp, text in kept)
            if (data or over) and not begun:
                self.begin()
                begun = True
            if room is not None and len(data) >= room:
                self.chunk(data[:room] or b"\0")
                self.close_connection = True
                self.connection.close()
                return
            if data:
                self.chunk(data)
                room = None if room is None else room - len(data)
            if over:
                self.chunk(b"")
                return

    def _is_over(self, pod: FakePod, run: Run, query: dict[str, str]) -> bool:
        return run.exit_code is not None or pod.gone or self.backend.closed or "follow" not in query


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp[:19] + stamp[stamp.index("Z") :]).astimezone(UTC)
