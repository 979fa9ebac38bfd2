"""The operator on a real API server, as benchmarks use it: its process, jobs, requests."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from hack.bench import deployed
from hack.bench.child import ROOT, MeasureError, memory_of
from hack.bench.cluster import RawLoad, Target
from hack.control_plane import ControlPlane
from hack.control_plane.run.parts import any_free
from hack.hollow_node.script import RUN
from hack.image.build import SETTINGS
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_config_map, build_service

# The field: a control plane with nothing running on it but what a measurement starts.


CONNECTIONS: Final = 32
"""The API server's ceiling was measured with as many; more do not make it faster."""
AGENT: Final = "tfjob-operator"
"""The operator's User-Agent."""
STORED_AT_ONCE: Final = 100
"""etcd takes up to 128 writes, and 1.5 MB, in a transaction."""
LIMIT_S: Final = 180.0
READY_S: Final = 180.0
NO_VARIABLES: Final[Mapping[str, str]] = {}
TICK_S: Final = 0.05
"""Between two counts. Counting a thousand objects takes a millisecond of etcd's time away from what is measured."""


class Field:
    """A control plane with some namespaces. Use as a context manager."""

    def __init__(self, name: str, namespaces: Sequence[str], apiserver_flags: Sequence[str] = ()) -> None:
        self._name = name
        self._namespaces = namespaces
        self._flags = apiserver_flags
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.plane = stack.enter_context(ControlPlane.start(self._name, extra_apiserver_args=self._flags))
            self.plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / "crd.yaml"))
            self.plane.wait_for_crd("tfjobs.kubeflow.org")
            for namespace in self._namespaces:
                self.plane.create_namespace(namespace)
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfjob-bench-"))
            self._scratch = Path(scratch)
            self._account = self._scratch / "account"
            self._variables = deployed.prepare(self.plane, self._account) | SETTINGS
            # The controllers have made what pods need. The garbage collector would add its load to every measurement, and
            # would delete the ceiling's pods, whose owner does not exist.
            os.kill(self.plane.pids()["kube-controller-manager"], signal.SIGKILL)
            self.target = Target.of(self.plane.kubeconfig)
            self._etcd = stack.enter_context(contextlib.closing(self.plane.connect_to_etcd()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, requests: Iterable[bytes]) -> float:
        """Send requests as fast as the server takes them; return the seconds."""
        with RawLoad(self.target, CONNECTIONS) as load:
            began = time.perf_counter()
            load.send(requests)
            return time.perf_counter() - began

    def clear(self, namespace: str) -> None:
        """Delete the jobs of a namespace and all children, also of pods that no node runs any more. No operator must run."""
        listed = self.get(f"/api/v1/namespaces/{namespace}/services")["items"]
        self.send(clear_requests(self.target, namespace, [service["metadata"]["name"] for service in listed]))

    def get(self, path: str) -> dict[str, Any]:
        """Read something from the API server."""
        connection = http.client.HTTPSConnection(self.target.host, self.target.port, context=self.target.tls)
        with contextlib.closing(connection):
            connection.request("GET", path)
            found: dict[str, Any] = json.load(connection.getresponse())
        return found

    def count(self, *prefixes: str) -> int:
        """Count the objects that etcd holds below these prefixes.

        It costs the API server nothing and the machine little. All counts use one connection, since a new one for each took
        a quarter of the machine that is measured.
        """
        total = 0
        for prefix in prefixes:
            start = f"/registry/{prefix}/".encode()
            end = start[:-1] + bytes([start[-1] + 1])
            span = {"key": _coded(start), "range_end": _coded(end), "count_only": True}
            total += int(str(self._call_etcd("range", span).get("count", "0")))
        return total

    def store(self, objects: Iterable[tuple[str, bytes]]) -> str:
        """Write objects, by their keys below /registry, into etcd itself: many times as fast as through the API server.

        Return the key of the last one.
        """
        waiting = iter(objects)
        last = ""
        while batch := list(islice(waiting, STORED_AT_ONCE)):
            puts = [
                {"request_put": {"key": _coded(f"/registry/{key}".encode()), "value": _coded(value)}}
                for key, value in batch
            ]
            self._call_etcd("txn", {"success": puts})
            last = batch[-1][0]
        return last

    def _call_etcd(self, method: str, body: dict[str, object]) -> dict[str, object]:
        self._etcd.request("POST", f"/v3/kv/{method}", json.dumps(body), {"Content-Type": "application/json"})
        answer = self._etcd.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise MeasureError(f"etcd refused {method}: {text[:500]!r}")
        content: dict[str, object] = json.loads(text)
        return content

    def bytes_in_etcd(self) -> float:
        """Return the bytes in use in etcd's database: keys, values and their indexes, including old versions and events."""
        return float(str(self.plane.etcd_call("maintenance/status", {})["dbSizeInUse"]))

    def children(self, namespace: str) -> int:
        """How many pods and services a namespace has."""
        return self.count(f"pods/{namespace}", f"services/specs/{namespace}")

    def in_condition(self, namespace: str, *conditions: str) -> int:
        """How many jobs of a namespace have had one of these conditions."""
        listed = self.get(f"{c.TFJOBS.path(namespace)}?resourceVersion=0")
        return sum(
            any(condition["type"] in conditions for condition in job.get("status", {}).get("conditions", ()))
            for job in listed["items"]
        )

    @staticmethod
    def until(holds: Callable[[], bool], what: str, *, tick_s: float = TICK_S) -> float:
        """Wait until `holds` returns true; return that moment of `perf_counter`. Raises MeasureError after LIMIT_S."""
        deadline = time.perf_counter() + LIMIT_S
        while not holds():
            if time.perf_counter() > deadline:
                raise MeasureError(f"not within {LIMIT_S:.0f} s: {what}")
            time.sleep(tick_s)
        return time.perf_counter()

    @contextlib.contextmanager
    def process(
        self, module: str, ready: str, *arguments: str, variables: Mapping[str, str] = NO_VARIABLES
    ) -> Iterator[Process]:
        """Run a module of the project to the end of the block, which begins when it is ready. Raises MeasureError."""
        log = self._scratch / f"{module}-{time.monotonic_ns()}.log"
        command = (sys.executable, "-m", module, *arguments)
        environ = os.environ | variables
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environ) as running:
            try:
                deadline = time.monotonic() + READY_S
                while ready not in log.read_text(errors="replace"):
                    if running.poll() is not None or time.monotonic() > deadline:
                        raise MeasureError(f"{module} is not ready:\n{log.read_text(errors='replace')[-3000:]}")
                    time.sleep(0.05)
                yield Process(running.pid)
                if running.poll() is not None:
                    raise MeasureError(f"{module} died:\n{log.read_text(errors='replace')[-3000:]}")
                running.terminate()
                running.wait(30)
            finally:
                if running.poll() is None:
                    running.kill()

    def operator(self, *flags: str, ready: str = "operator_ready") -> contextlib.AbstractContextManager[Process]:
        """Run the operator with an account and the settings of its pod."""
        port = f"--monitoring-port={any_free()}"
        return self.process(deployed.__name__, ready, str(self._account), port, *flags, variables=self._variables)

    def operator_with_kubeconfig(self) -> contextlib.AbstractContextManager[Process]:
        """Run the operator as a developer does; the package that reads a kubeconfig is large."""
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        port = f"--monitoring-port={any_free()}"
        return self.process("tfjob_operator.controller", "operator_ready", kubeconfig, port)

    def node(self) -> contextlib.AbstractContextManager[Process]:
        """Run a hollow node."""
        return self.process("hack.hollow_node", "runs the pods", f"--kubeconfig={self.plane.kubeconfig}")


def _coded(value: bytes) -> str:
    """Return bytes as etcd's JSON has them."""
    return base64.b64encode(value).decode()


class Process:
    """What a running process has used."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def cpu_s(self) -> float:
        """Its CPU time so far, of all its threads, user and system."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """Its greatest resident memory so far."""
        return memory_of(self._pid)["peak"]

    def rss_mb(self) -> float:
        """Its resident memory now."""
        return memory_of(self._pid)["rss"]


# The load: jobs of one parameter server and four workers, and the same children that the operator creates for them.


def replica(replicas: int, run: str) -> dict[str, Any]:
    """Return one entry of tfReplicaSpecs, as long as real ones are; on the hollow node its pods run as `run` says."""
    container = {
        "name": "tensorflow",
        "image": "registry.example.com/team/mnist:2.15.0",
        "command": ["python", "-m", "trainer.task", "--train-steps=10000", "--batch-size=256"],
        "env": [{"name": "MODEL_DIR", "value": "/models/mnist"}, {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "1"}],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    volumes = [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
    template = {"metadata": {"annotations": {RUN: run}}, "spec": {"containers": [container], "volumes": volumes}}
    return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}


def ps_and_workers(workers: int = 4, *, servers: int = 1, run: str = "2s:0") -> dict[str, Any]:
    """Return a specification of parameter servers, which run for ever, and workers, all of which must succeed."""
    specs = {"Worker": replica(workers, run)}
    if servers:
        specs = {"PS": replica(servers, "forever")} | specs
    return {"tfReplicaSpecs": specs, "successPolicy": "AllWorkers", "runPolicy": {"cleanPodPolicy": "Running"}}


def job_requests(target: Target, namespace: str, names: list[str], spec: dict[str, Any]) -> list[bytes]:
    """Return the requests that create jobs of these names."""
    path = c.TFJOBS.path(namespace)
    return [
        target.request(
            "POST",
            path,
            json.dumps(
                {
                    "apiVersion": c.TFJOBS.api_version,
                    "kind": c.TFJOBS.kind,
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": spec,
                }
            ).encode(),
        )
        for name in names
    ]


def child_requests(target: Target, namespace: str, names: list[str], spec: dict[str, Any]) -> list[bytes]:
    """Return the requests that create all children of these jobs, in the operator's own order and with its bodies."""
    requests = []
    for name in names:
        raw = msgspec.json.encode(spec)
        checked = read_spec(name, raw)
        if not isinstance(checked, TFJobSpec):
            raise TypeError(f"the load is no valid job: {checked}")
        meta = ObjectMeta(name=name, namespace=namespace, uid=f"00000000-0000-0000-0000-{abs(hash(name)) % 10**12:012}")
        builder = PodBuilder(TFJob(metadata=meta, spec=msgspec.Raw(raw)), checked)
        if digest := builder.cluster.digest:
            path = f"/api/v1/namespaces/{namespace}/configmaps?fieldManager={c.EVENT_SOURCE}"
            body = build_config_map(meta, builder.cluster, digest)
            requests.append(target.request("POST", path, msgspec.json.encode(body)))
        for kind, index, child in children(name, spec):
            slot = ReplicaKey(kind, index, child)
            for resource, body in (
                ("services", build_service(meta, checked, slot)),
                ("pods", builder.build(slot)),
            ):
                path = f"/api/v1/namespaces/{namespace}/{resource}?fieldManager={c.EVENT_SOURCE}"
                requests.append(target.request("POST", path, msgspec.json.encode(body)))
    return requests


def delete_requests(target: Target, namespace: str, names: list[str], spec: dict[str, Any]) -> list[bytes]:
    """Return the requests that delete the jobs and ConfigMaps of a namespace, and all services and pods of these jobs."""
    return [
        *_delete_jobs_and_config_maps(target, namespace),
        *(
            target.request("DELETE", f"/api/v1/namespaces/{namespace}/{resource}/{child}")
            for name in names
            for _, _, child in children(name, spec)
            for resource in ("services", "pods")
        ),
    ]


def clear_requests(target: Target, namespace: str, services: list[str]) -> list[bytes]:
    """Return the requests that delete the jobs, pods and ConfigMaps of a namespace at once, and these services."""
    path = f"/api/v1/namespaces/{namespace}"
    return [
        *_delete_jobs_and_config_maps(target, namespace),
        target.request("DELETE", f"{path}/pods?gracePeriodSeconds=0"),
        *(target.request("DELETE", f"{path}/services/{service}") for service in services),
    ]


def _delete_jobs_and_config_maps(target: Target, namespace: str) -> list[bytes]:
    selector = urllib.parse.quote(f"{c.LABEL_OPERATOR_NAME}={c.OPERATOR_NAME}", safe="")
    return [
        target.request("DELETE", c.TFJOBS.path(namespace)),
        target.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps?labelSelector={selector}"),
    ]


def children(job: str, spec: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Type, index and name of every replica of a job."""
    for kind, given in spec["tfReplicaSpecs"].items():
        for index in range(given["replicas"]):
            yield kind, index, child_name(job, kind, index)
