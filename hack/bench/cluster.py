"""The server that is measured against: a real etcd and kube-apiserver with as many realistic pods as a subject asks for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from hack.bench.child import ROOT
from hack.bench.pods import pod_body, running_status
from hack.bench.raw_load import RawLoad, Target
from hack.control_plane import ControlPlane
from hack.kubernetes_versions import STREAMING_LISTS
from tfjob_operator.api.protobuf import MEDIA_TYPE

NAMESPACE: Final = "bench"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONNECTIONS: Final = 32
"""As many as the transport of the operator's writes opens, and as the ceiling of `bench-operator` is measured with."""
CRD: Final = ROOT / "manifests" / "base" / "crd.yaml"


class PodServer:
    """A control plane with pods 0, 1, 2, ... of `hack.bench.pods` in one namespace.

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

    @property
    def has_streaming_lists(self) -> bool:
        """Whether this server sends a collection as a stream."""
        return self._started().version.has(STREAMING_LISTS)

    def all(self) -> bytes:
        """All the pods in one list, as the server sends it from its watch cache."""
        return self._started().run_kubectl("get", "--raw", f"{PATH}?resourceVersion=0").stdout.encode()

    def page(self, limit: int) -> bytes:
        """One page of the pods, as the server sends it."""
        answer = self._started().run_kubectl("get", "--raw", f"{PATH}?limit={limit}")
        return answer.stdout.encode()

    def page_in_protobuf(self, limit: int) -> bytes:
        """Return the same page as an operator asks for it."""
        with contextlib.closing(self._started().connect()) as connection:
            connection.request("GET", f"{PATH}?limit={limit}", headers={"Accept": MEDIA_TYPE})
            return connection.getresponse().read()

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
