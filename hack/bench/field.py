"""A control plane that runs only what a measurement starts: the operator, a hollow node, load."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from hack.bench.load import MeasureError, RawLoad, Target, pod_body, running_status
from hack.control_plane import ControlPlane
from hack.control_plane.run.parts import any_free
from hack.image.build import SETTINGS
from hack.matrix.cluster import MANIFESTS, running
from tfjob_operator.api import access
from tfjob_operator.api.v1 import constants as c

AGENT: Final = "tfjob-operator"
"""The operator's User-Agent."""
STORED_AT_ONCE: Final = 100
"""etcd takes up to 128 writes, and 1.5 MB, in a transaction."""
LIMIT_S: Final = 180.0
TICK_S: Final = 0.05
"""Between two counts. Counting a thousand objects takes a millisecond of etcd's time away from what is measured."""
RIGHTS: Final = (
    "base/service-account.yaml",
    "base/lease-role.yaml",
    "base/deployment-role.yaml",
    "cluster-wide/role.yaml",
)
PODS: Final = "/api/v1/namespaces/bench/pods"


class Field:
    """A control plane with some namespaces. Use as a context manager."""

    def __init__(self, namespaces: Sequence[str], apiserver_flags: Sequence[str] = ()) -> None:
        self._namespaces = namespaces
        self._flags = apiserver_flags
        self._stack = contextlib.ExitStack()
        self._pods = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.plane = stack.enter_context(ControlPlane.start("bench", extra_apiserver_args=self._flags))
            self.plane.run_kubectl("apply", "--server-side", "-f", str(MANIFESTS / "base" / "crd.yaml"))
            self.plane.wait_for_crd("tfjobs.kubeflow.org")
            for namespace in self._namespaces:
                self.plane.create_namespace(namespace)
            self._account = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfjob-bench-")))
            self._variables = self._prepare_account() | SETTINGS
            # The controllers have created everything that pods need, so they can be stopped. The garbage collector would
            # distort every measurement and delete the generated pods, because their owner does not exist.
            os.kill(self.plane.pids()["kube-controller-manager"], signal.SIGKILL)
            self.target = Target.of(str(self.plane.kubeconfig))
            self._etcd = stack.enter_context(contextlib.closing(self.plane.connect_to_etcd()))
            self._etcd.timeout = LIMIT_S  # a busy machine may take longer for a count than the default
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _prepare_account(self) -> dict[str, str]:
        """Install the operator's account and rights, write its files, return the variables that a kubelet sets."""
        self.plane.create_namespace("kubeflow")
        for file in RIGHTS:
            self.plane.run_kubectl("apply", "--namespace=kubeflow", "-f", str(MANIFESTS / file))
        (self._account / "ca.crt").write_bytes((self.plane.directory / "pki" / "ca.crt").read_bytes())
        (self._account / "token").write_text(self.plane.request_token("kubeflow", "tf-job-operator"))
        address = urlsplit(self.plane.server)
        place = {access.SERVICE_HOST: address.hostname or "", access.SERVICE_PORT: str(address.port)}
        return place | {"KUBEFLOW_NAMESPACE": "kubeflow"}

    def send(self, requests: Iterable[bytes]) -> float:
        """Send requests as fast as the server takes them; return the seconds."""
        with RawLoad(self.target) as load:  # its connections are open before the time begins
            began = time.perf_counter()
            load.send(requests)
            return time.perf_counter() - began

    def fill(self, number: int) -> None:
        """Create the pods 0, 1, 2, ... up to this number in the namespace `bench`, and report that they run."""
        new = range(self._pods, number)
        self.send([self.target.request("POST", PODS, pod_body(each)) for each in new])
        self.send(
            self.target.request(
                "PUT",
                f"{PODS}/{body['metadata']['name']}/status?fieldManager=kubelet",
                body | {"status": running_status(each)},
            )
            for each in new
            for body in [pod_body(each)]
        )
        self._pods = max(self._pods, number)

    def get(self, path: str) -> Any:
        """Read something from the API server."""
        return self.plane.request("GET", path)[1]

    def count(self, *prefixes: str) -> int:
        """Count the objects that etcd holds below these prefixes.

        It costs the API server nothing and the machine little. All counts share one connection: opening one per count used a
        quarter of the CPU of the machine under test.
        """
        total = 0
        for prefix in prefixes:
            start = f"/registry/{prefix}/".encode()
            end = start[:-1] + bytes([start[-1] + 1])
            span = {"key": _coded(start), "range_end": _coded(end), "count_only": True}
            total += int(str(self._call_etcd("range", span).get("count", "0")))
        return total

    def store(self, objects: Iterable[tuple[str, bytes]]) -> str:
        """Write objects directly to etcd, by key below /registry: many times as fast as through the API server.

        Return the key of the last one.
        """
        waiting, last = iter(objects), ""
        while batch := list(islice(waiting, STORED_AT_ONCE)):
            puts = [{"key": _coded(f"/registry/{key}".encode()), "value": _coded(value)} for key, value in batch]
            self._call_etcd("txn", {"success": [{"request_put": each} for each in puts]})
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

    def has_had(self, namespace: str, job: str, condition: str) -> bool:
        """Return True if a job has had a condition."""
        found = self.get(f"{c.TFJOBS.path(namespace)}/{job}?resourceVersion=0")
        return any(each["type"] == condition for each in found.get("status", {}).get("conditions", ()))

    def in_condition(self, namespace: str, condition: str) -> int:
        """How many jobs of a namespace have had a condition."""
        listed = self.get(f"{c.TFJOBS.path(namespace)}?resourceVersion=0")["items"]
        found = [[each["type"] for each in job.get("status", {}).get("conditions", ())] for job in listed]
        return sum(condition in types for types in found)

    @staticmethod
    def until(holds: Callable[[], bool], what: str, *, tick_s: float = TICK_S) -> float:
        """Wait until `holds` returns true; return that moment of `perf_counter`. Raises MeasureError after LIMIT_S."""
        deadline = time.perf_counter() + LIMIT_S
        while not holds():
            if time.perf_counter() > deadline:
                raise MeasureError(f"not within {LIMIT_S:.0f} s: {what}")
            time.sleep(tick_s)
        return time.perf_counter()

    def operator(self, *more: str, ready: str = "operator_ready") -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the operator with an account and the settings of its pod, and with `more` flags."""
        flags = (str(self._account), f"--monitoring-port={any_free()}", *more)
        return running(self.plane, "hack.bench.deployed", *flags, ready=ready, environment=self._variables)

    def operator_with_kubeconfig(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the operator with a kubeconfig, as a developer does, and with the large package that reads a kubeconfig."""
        flags = (f"--kubeconfig={self.plane.kubeconfig}", f"--monitoring-port={any_free()}")
        return running(self.plane, "tfjob_operator.controller", *flags)


def _coded(value: bytes) -> str:
    """Return bytes as etcd's JSON has them."""
    return base64.b64encode(value).decode()


def cpu_s(pid: int) -> float:
    """Return the user and system CPU time that all threads of a process have used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int | str = "self") -> dict[str, float]:
    """Return the resident memory of a process in MB: `rss` now (VmRSS) and `peak` since its start or `forget_peak` (VmHWM)."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(fields[key].split()[0]) / 1024 for name, key in (("rss", "VmRSS"), ("peak", "VmHWM"))}


def available_memory() -> float:
    """Return the memory in MB that programs can still get without swapping."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) / 1024
