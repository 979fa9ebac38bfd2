"""The server that is measured against: a real etcd and kube-apiserver with as many realistic pods as a subject asks for."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from hack.bench.child import ROOT
from hack.control_plane import ControlPlane
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.children import PodBuilder

# Realistic pods: the bodies that our own operator sends for TensorFlow jobs, and what a kubelet reports about them. Pure.
#
# A job of 4 PS and 16 workers makes 20 pods with about 1 KB of TF_CONFIG each; with managedFields and a status such a pod
# is about 5 KB of JSON as the server keeps it.


REPLICAS: Final = (("PS", 4), ("Worker", 16))
PODS_PER_JOB: Final = sum(count for _, count in REPLICAS)
JOB: Final = "mnist-dist"
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
IMAGE: Final = "registry.example.com/mnist:2.15.0"
TEMPLATE: Final[dict[str, Any]] = {
    "spec": {
        "containers": [
            {
                "name": "tensorflow",
                "image": IMAGE,
                "command": ["python", "-m", "trainer.task", "--batch_size=32", "--training_steps=1000"],
                "resources": {"limits": {"memory": "8Gi"}},
            }
        ],
    },
}


def job_meta(number: int, namespace: str) -> ObjectMeta:
    """Return the metadata of a job as the server would have made it."""
    return ObjectMeta(
        name=f"{JOB}-{number:05d}",
        namespace=namespace,
        uid=f"7e1d2c4b-0000-4000-8000-{number:012d}",
        generation=1,
        resource_version="1",
    )


def job(number: int, namespace: str, replicas: tuple[tuple[str, int], ...] = REPLICAS) -> TFJob:
    """Return a job with these replicas, as the cache holds it."""
    body = {"tfReplicaSpecs": {kind: {"replicas": count, "template": TEMPLATE} for kind, count in replicas}}
    return TFJob(metadata=job_meta(number, namespace), spec=msgspec.Raw(msgspec.json.encode(body)))


@lru_cache
def job_spec(replicas: tuple[tuple[str, int], ...] = REPLICAS) -> TFJobSpec:
    """Return the specification of such a job, read as the operator reads it."""
    spec = read_spec(JOB, job(0, "", replicas).spec)
    if not isinstance(spec, TFJobSpec):
        raise TypeError(f"the benchmark's own job is invalid: {spec}")
    return spec


def pod_body(number: int, namespace: str) -> dict[str, Any]:
    """Pod `number` of the namespace, as the operator sends it to the server."""
    owner, place = divmod(number, PODS_PER_JOB)
    kind, index = [(kind, index) for kind, count in REPLICAS for index in range(count)][place]
    return _builder(owner, namespace).build(
        ReplicaKey(kind, index, child_name(job_meta(owner, namespace).name, kind, index))
    )


@lru_cache(maxsize=1)
def _builder(number: int, namespace: str) -> PodBuilder:
    return PodBuilder(job(number, namespace), job_spec())


def running_status(number: int) -> dict[str, Any]:
    """Return what a kubelet says of a pod that runs."""
    began = BEGAN.isoformat().replace("+00:00", "Z")
    return {
        "phase": "Running",
        "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "startTime": began,
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": began}
            for kind in ("Ready", "PodScheduled")
        ],
        "containerStatuses": [
            {
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
        ],
    }


# The best load generator that we could write here: prebuilt requests over kept-alive TLS, and next to no work per response.
#
# It is the yardstick for our client, so it does nothing that a client must do: no objects, no event loop, no error handling.
# One thread waits with epoll for whichever of its connections has a response, looks for the response's end, and sends the
# next request.


_READ: Final = 65_536
_HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class LoadError(Exception):
    """The server closed a connection, or its response is not a success."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the TLS context with which it knows us."""

    host: str
    port: int
    tls: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        """Read a kubeconfig."""
        from tfjob_operator.cli import target  # not for the clients that are measured

        access = target.Target(kubeconfig=str(kubeconfig)).access()
        address = urlsplit(access.server)
        return cls(address.hostname or "", address.port or 443, access.tls_context() or ssl.create_default_context())

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """Return a whole request, ready to be sent."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nUser-Agent: bench\r\n"
            f"Accept: application/json\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Connection:
    """One kept-alive connection with at most one request under way."""

    __slots__ = ("answer", "socket", "wanted")

    def __init__(self, target: Target) -> None:
        plain = socket.create_connection((target.host, target.port), timeout=30.0)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = target.tls.wrap_socket(plain, server_hostname=target.host)
        self.socket.settimeout(None)  # with a limit Python would poll before every read; epoll has done that already
        self.answer = b""
        self.wanted = 0

    def send(self, request: bytes) -> None:
        self.answer = b""
        self.wanted = 0
        self.socket.sendall(request)

    def read(self) -> bool:
        """Read what is there; say whether the response is complete."""
        while True:
            data = self.socket.recv(_READ)
            if not data:
                raise LoadError("the server closed a connection")
            self.answer += data
            if self._is_complete():
                return True
            if not self.socket.pending():
                return False

    def _is_complete(self) -> bool:
        if self.answer.endswith(_LAST_CHUNK):
            return True
        if not self.wanted:
            end = self.answer.find(_HEAD_END)
            if end < 0:
                return False
            head = self.answer[:end].lower()
            place = head.find(b"\r\ncontent-length: ")
            if place < 0:
                self.wanted = -1  # chunked
            else:
                self.wanted = end + len(_HEAD_END) + int(head[place + 18 :].partition(b"\r\n")[0])
        return len(self.answer) == self.wanted


class RawLoad:
    """A number of connections to one server. Use as a context manager."""

    def __init__(self, target: Target, connections: int) -> None:
        self._connections = {}
        self._poll = select.epoll()
        for _ in range(connections):
            connection = _Connection(target)
            number = connection.socket.fileno()
            self._connections[number] = connection
            self._poll.register(number, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for connection in self._connections.values():
            connection.socket.close()

    def send(self, requests: Iterable[bytes]) -> None:
        """Send all requests, on all connections at once. Raises LoadError at the first response that is not a success."""
        waiting = iter(requests)
        busy = 0
        for number, connection in self._connections.items():
            if self._start(connection, waiting):
                self._poll.modify(number, select.EPOLLIN)
                busy += 1
        while busy:
            for number, _ in self._poll.poll():
                connection = self._connections[number]
                if connection.read():
                    if not connection.answer.startswith(b"HTTP/1.1 20"):
                        raise LoadError(connection.answer[:1000].decode(errors="replace"))
                    if not self._start(connection, waiting):
                        # What may still come, such as a TLS session ticket, is not a response to wait for.
                        self._poll.modify(number, 0)
                        busy -= 1

    @staticmethod
    def _start(connection: _Connection, waiting: Iterator[bytes]) -> bool:
        request = next(waiting, None)
        if request is None:
            return False
        connection.send(request)
        return True


NAMESPACE: Final = "bench"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONNECTIONS: Final = 32
"""As many as the transport of the operator's writes opens, and as the ceiling of `bench-operator` is measured with."""
CRD: Final = ROOT / "manifests" / "base" / "crd.yaml"


class PodServer:
    """A control plane with pods 0, 1, 2, ... (`pod_body`) in one namespace.

    Invariants: pods with numbers below `_created` exist or were reserved by `take`; those below `_running` have their status.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stack = contextlib.ExitStack()
        self._created = 0
        self._running = 0
        self._plane: ControlPlane | None = None

    def close(self) -> None:
        """Stop the server if it was started."""
        self._stack.close()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; the first access starts the control plane."""
        return self._started().kubeconfig

    @property
    def kubectl(self) -> str:
        """The kubectl of the control plane."""
        return str(self._started().kubectl)

    def take(self, count: int) -> int:
        """Reserve `count` pods that do not exist, for the caller to create; return the first one's number."""
        self._created += count
        return self._created - count

    def clear(self) -> None:
        """Delete the pods that were reserved by `take`, so that the next subject has as many as it asks for."""
        target = Target.of(self.kubeconfig)
        with RawLoad(target, CONNECTIONS) as load:
            load.send(delete_requests(target, range(self._running, self._created)))
        self._created = self._running

    def fill(self, count: int) -> int:
        """Make sure that at least `count` pods exist and run; return how many there are."""
        target = Target.of(self.kubeconfig)
        with RawLoad(target, CONNECTIONS) as load:
            if self._created < count:
                self._say(f"creating {count - self._created:,} pods")
                load.send(create_requests(target, range(self._created, count)))
                self._created = count
            if self._running < self._created:
                self._say(f"setting the status of {self._created - self._running:,} pods")
                load.send(status_requests(target, range(self._running, self._created)))
                self._running = self._created
        return self._created

    def page(self, limit: int) -> bytes:
        """One page of the pods, as the server sends it."""
        answer = self._started().run_kubectl("get", "--raw", f"{PATH}?limit={limit}")
        return answer.stdout.encode()

    def _started(self) -> ControlPlane:
        if self._plane is None:
            self._say("starting etcd and kube-apiserver")
            self._plane = self._stack.enter_context(ControlPlane.start("bench"))
            self._plane.run_kubectl("apply", "--server-side", "-f", str(CRD))
            self._plane.create_namespace(NAMESPACE)
            # The controllers have made what pods need. The garbage collector would now look for the owner of every pod, and
            # its load on the server would be in every measurement.
            os.kill(self._plane.pids()["kube-controller-manager"], signal.SIGKILL)
        return self._plane


def create_requests(target: Target, numbers: Iterable[int]) -> list[bytes]:
    """Return the requests that create these pods."""
    return [target.request("POST", PATH, json.dumps(pod_body(number, NAMESPACE)).encode()) for number in numbers]


def delete_requests(target: Target, numbers: Iterable[int]) -> list[bytes]:
    """Return the requests that delete these pods."""
    names = (pod_body(number, NAMESPACE)["metadata"]["name"] for number in numbers)
    return [target.request("DELETE", f"{PATH}/{name}?gracePeriodSeconds=0") for name in names]


def status_requests(target: Target, numbers: Iterable[int], offset: int = 0) -> list[bytes]:
    """Return the requests by which a kubelet reports that these pods run; a different `offset` makes a different report."""
    return [
        target.request(
            "PUT",
            f"{PATH}/{body['metadata']['name']}/status?fieldManager=kubelet",
            json.dumps(body | {"status": running_status(number + offset)}).encode(),
        )
        for number in numbers
        for body in [pod_body(number, NAMESPACE)]
    ]
