"""Benchmark load: jobs of PS and workers, the request bodies of their children, and the fastest way to send all.

`RawLoad` is the baseline for the operator's client, so it omits the work of a client: it has no objects, no event loop and no
error handling. One thread waits with epoll for responses, finds the end of each, and sends the next prepared request.
"""

import json
import select
import socket
import ssl
import urllib.parse
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self
from uuid import NAMESPACE_URL, uuid5

import msgspec

from hack.hollow_node.script import RUN
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import JobMeta, TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.builder import PodBuilder, build_config_map, build_service

CONNECTIONS: Final = 32
"""The number of connections of the operator's transport for writes; more do not make the API server faster."""
IMAGE: Final = "registry.example.com/team/mnist:2.15.0"


class MeasureError(Exception):
    """A measurement failed."""


# Jobs of realistic size, and their children.


def ps_and_workers(workers: int = 4, *, servers: int = 1, run: str = "2s:0") -> dict[str, Any]:
    """Return a spec with parameter servers, which run forever, and workers, all of which must succeed.

    `run` is the script of the workers on the hollow node.
    """
    container = {
        "name": "tensorflow",
        "image": IMAGE,
        "command": ["python", "-m", "trainer.task", "--train-steps=10000", "--batch-size=256"],
        "env": [{"name": "MODEL_DIR", "value": "/models/mnist"}, {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "1"}],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]}
    specs = {
        kind: {
            "replicas": replicas,
            "restartPolicy": "OnFailure",
            "template": {"metadata": {"annotations": {RUN: script}}, "spec": pod},
        }
        for kind, replicas, script in (("PS", servers, "forever"), ("Worker", workers, run))
        if replicas
    }
    return {"tfReplicaSpecs": specs, "successPolicy": "AllWorkers", "runPolicy": {"cleanPodPolicy": "Running"}}


def job(namespace: str, name: str, given: dict[str, Any]) -> tuple[TFJob, TFJobSpec]:
    """Return a job as in the cache, and its spec as the operator decodes it."""
    meta = JobMeta(
        name=name, namespace=namespace, uid=str(uuid5(NAMESPACE_URL, name)), generation=1, resource_version="1"
    )
    raw = msgspec.Raw(msgspec.json.encode(given))
    spec = read_spec(name, raw)
    if not isinstance(spec, TFJobSpec):
        raise MeasureError(f"the load is no valid job: {spec}")
    return TFJob(metadata=meta, spec=raw), spec


def keys(name: str, spec: dict[str, Any]) -> Iterator[ReplicaKey]:
    """Yield every replica of a job."""
    for kind, given in spec["tfReplicaSpecs"].items():
        for index in range(given["replicas"]):
            yield ReplicaKey(kind, index, child_name(name, kind, index))


TWENTY: Final = ps_and_workers(16, servers=4, run="forever")
"""A job of which each pod has about 1 KB of TF_CONFIG; with managedFields and a status that is about 5 KB of JSON."""


@lru_cache(maxsize=1)
def _twenty(number: int) -> tuple[PodBuilder, list[ReplicaKey]]:
    name = f"mnist-dist-{number:05d}"
    return PodBuilder(*job("bench", name, TWENTY)), [*keys(name, TWENTY)]


def pod_body(number: int) -> dict[str, Any]:
    """Return pod `number` of the namespace `bench`, as the operator sends it to the server."""
    owner, place = divmod(number, 20)
    builder, slots = _twenty(owner)
    return builder.build(slots[place])


def running_status(number: int) -> dict[str, Any]:
    """Return the status of a running pod."""
    began = "2026-01-01T00:00:00Z"
    container = {
        "name": "tensorflow",
        "image": IMAGE,
        "imageID": f"{IMAGE}@sha256:{'0123456789abcdef' * 4}",
        "containerID": f"containerd://{number:064x}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": began}},
        "lastState": {},
    }
    return {
        "phase": "Running",
        "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "startTime": began,
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": began}
            for kind in ("Ready", "PodScheduled")
        ],
        "containerStatuses": [container],
    }


# Requests, and how they are sent.


class Target(NamedTuple):
    """A server, and the TLS context with the client certificate."""

    host: str
    port: int
    tls: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: str) -> Self:
        """Read a kubeconfig."""
        from tfjob_operator.cli import target  # not for the measured clients

        access = target.Target(kubeconfig=kubeconfig).access()
        address = urllib.parse.urlsplit(access.server)
        return cls(address.hostname or "", address.port or 443, access.tls_context() or ssl.create_default_context())

    def request(self, method: str, path: str, body: object = None) -> bytes:
        """Return the bytes of a request."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nUser-Agent: bench\r\n"
            f"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    def jobs(self, namespace: str, names: Iterable[str], spec: dict[str, Any]) -> list[bytes]:
        """Return the requests that create jobs of these names."""
        about = {"apiVersion": c.TFJOBS.api_version, "kind": c.TFJOBS.kind, "spec": spec}
        path = c.TFJOBS.path(namespace)
        return [self.request("POST", path, about | {"metadata": {"name": name}}) for name in names]

    def children(self, namespace: str, names: Iterable[str], spec: dict[str, Any]) -> list[bytes]:
        """Return the requests that create all children of these jobs, in the operator's order and with its bodies."""
        requests = []
        for name in names:
            owner, read = job(namespace, name, spec)
            builder = PodBuilder(owner, read)
            bodies = []
            if digest := builder.cluster.digest:
                bodies.append(("configmaps", build_config_map(owner.metadata, builder.cluster, digest)))
            for key in keys(name, spec):
                bodies += [("services", build_service(owner.metadata, read, key)), ("pods", builder.build(key))]
            path = f"/api/v1/namespaces/{namespace}"
            requests += [
                self.request("POST", f"{path}/{resource}?fieldManager={c.EVENT_SOURCE}", msgspec.to_builtins(body))
                for resource, body in bodies
            ]
        return requests

    def deletes(self, namespace: str, names: Iterable[str], spec: dict[str, Any]) -> list[bytes]:
        """Return the requests that delete the jobs and ConfigMaps of a namespace, and the services and pods of these jobs."""
        path = f"/api/v1/namespaces/{namespace}"
        selector = urllib.parse.quote(f"{c.LABEL_OPERATOR_NAME}={c.OPERATOR_NAME}", safe="")
        collections = (c.TFJOBS.path(namespace), f"{path}/configmaps?labelSelector={selector}")
        children = (
            f"{path}/{each}/{key.name}" for name in names for key in keys(name, spec) for each in ("services", "pods")
        )
        return [self.request("DELETE", each) for each in (*collections, *children)]


class _Connection:
    """A persistent connection with at most one request in flight."""

    __slots__ = ("answer", "socket", "wanted")

    def __init__(self, target: Target) -> None:
        plain = socket.create_connection((target.host, target.port), timeout=30.0)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = target.tls.wrap_socket(plain, server_hostname=target.host)
        # with a timeout, Python would poll before every read, although epoll has done so already
        self.socket.settimeout(None)

    def send(self, request: bytes) -> None:
        self.answer, self.wanted = b"", 0
        self.socket.sendall(request)

    def read(self) -> bool:
        """Read the available data; return whether the response is complete.

        Raises MeasureError if the response is no success.
        """
        while True:
            data = self.socket.recv(65_536)
            if not data:
                raise MeasureError("the server closed a connection")
            self.answer += data
            if self._is_complete():
                if not self.answer.startswith(b"HTTP/1.1 20"):
                    raise MeasureError(self.answer[:1000].decode(errors="replace"))
                return True
            if not self.socket.pending():
                return False

    def _is_complete(self) -> bool:
        if self.answer.endswith(b"\r\n0\r\n\r\n"):
            return True
        if not self.wanted:
            end = self.answer.find(b"\r\n\r\n")
            if end < 0:
                return False
            length = self.answer[:end].lower().partition(b"\r\ncontent-length: ")[2]
            self.wanted = end + 4 + int(length.partition(b"\r\n")[0]) if length else -1  # chunked
        return len(self.answer) == self.wanted


class RawLoad:
    """CONNECTIONS connections to one server. Use as a context manager."""

    def __init__(self, target: Target) -> None:
        made = [_Connection(target) for _ in range(CONNECTIONS)]
        self._connections = {each.socket.fileno(): each for each in made}
        self._poll = select.epoll()
        for number in self._connections:
            self._poll.register(number, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for connection in self._connections.values():
            connection.socket.close()

    def send(self, requests: Iterable[bytes]) -> None:
        """Send all requests, on all connections at once."""
        waiting = iter(requests)
        busy = 0
        for (number, connection), request in zip(self._connections.items(), waiting, strict=False):
            connection.send(request)
            self._poll.modify(number, select.EPOLLIN)
            busy += 1
        while busy:
            for number, _ in self._poll.poll():
                if self._connections[number].read():
                    if request := next(waiting, b""):
                        self._connections[number].send(request)
                        continue
                    # Later data, such as a TLS session ticket, is not a response.
                    self._poll.modify(number, 0)
                    busy -= 1
