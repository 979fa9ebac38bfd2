"""The demo: a control plane, the operator and a hollow node run the example jobs from creation to deletion.

With `--page` the jobs stay, and `kubectl tfjob dashboard` shows them until Ctrl-C. Otherwise the demo runs twice: with a hollow
node like the oldest kubelet, then with one like the newest, because kubelets differ.

Exit codes: 0 every job ended as expected and all children were deleted, 1 otherwise, 130 after Ctrl-C.
"""

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.control_plane.build.commands import log_tail
from hack.control_plane.run.part import Part
from hack.demo.page import keep_up
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = {
    "00-hello.yaml": "Succeeded",
    "01-mnist.yaml": "Succeeded",
    "02-ps-workers.yaml": "Succeeded",
    "03-gcp-credentials.yaml": "Succeeded",
    "04-smoke-gpu.yaml": "Succeeded",
    "05-master-ps-worker.yaml": "Succeeded",
    "06-invalid.yaml": "Failed",
    "13-keras.yaml": "Succeeded",
    "migration/v1alpha2.yaml": "Succeeded",
    "migration/v1beta1-gpu.yaml": "Succeeded",
    "migration/v1beta1-master.yaml": "Succeeded",
    "migration/v1beta2.yaml": "Succeeded",
}
"""The jobs of the first act with their final conditions."""
POLICIES: Final = (
    "07-exit-code",
    "08-failure",
    "09-all-workers",
    "10-suspend",
    "11-elastic",
    "12-ttl",
    "28-restart-all",
)
ENDS: Final = {
    "killed-once": "Succeeded",
    "fails": "Failed",
    "all-workers": "Succeeded",
    "sleeper": "Succeeded",
    "elastic": "Succeeded",
    "restart-all": "Succeeded",
}
ALPHA: Final = ("parameter-servers", "gpu", "tensorflow-org", "tensorboard")
APIS: Final = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1"
LIMIT_S: Final = 60  # the longest step takes 12s; a busy machine may be several times slower
END_LIMIT_S: Final = 10.0
LABEL: Final = "training.kubeflow.org/"
NODES: Final = ("hollow-node-0", "hollow-node-1")
RUN: Final = "hollow.tfjob.kubeflow.org/run"
WATCHED: Final = {"tfjob": "apis/kubeflow.org/v1/tfjobs", "pod": "api/v1/pods", "service": "api/v1/services"}
Item = dict[str, Any]


def state_of(kind: str, item: Item) -> str:
    """Return the state of an object for people, "" if it has none."""
    status = item.get("status", {})
    if kind == "tfjob":
        last = (status.get("conditions") or [{}])[-1]
        return f"{last['type']:<11}{last['message']}" if last else ""
    if kind == "service":
        return ""
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    notes = [note for each in status.get("containerStatuses", ()) if (note := _note(each))]
    return f"{status['phase']:<11}{', '.join(filter(None, [status.get('reason', ''), *notes]))}".rstrip()


def _note(container: Item) -> str:
    """Return why a container waits, how it ended, or how often it restarted."""
    name, state, restarts = container["name"], container["state"], container["restartCount"]
    if "terminated" in state:
        return f"{name} exited with {state['terminated']['exitCode']}"
    if "waiting" in state:
        return f"{name} waits: {state['waiting']['reason']}"
    return f"{name} restart {restarts}" if restarts else ""


class Demo:
    """All acts. Methods raise ControlPlaneError if the expected state is not reached."""

    def __init__(self, plane: ControlPlane, began: float) -> None:
        self.plane = plane
        self._began = began
        self._seen: dict[str, dict[str, Item]] = {kind: {} for kind in WATCHED}
        self._told: dict[str, str] = {}

    def say(self, text: str = "") -> None:
        """Print a line with the seconds since the demo began."""
        print(f"{time.monotonic() - self._began:6.1f}s  {text}" if text else "", flush=True)

    def kubectl(self, *arguments: str, show: bool = True, only: str = "") -> str:
        """Run kubectl and return its output. `show` prints the output. If `only` is given, printing starts at that text."""
        self.say()
        self.say(f"$ kubectl {shlex.join(arguments)}")
        printed = self.plane.run_kubectl(*arguments).stdout
        if show:
            print(printed[printed.find(only) :] if only else printed, flush=True)
        return printed

    def create(self, file: str) -> str:
        """Create an example's job; return it as kubectl names it: `tfjob.kubeflow.org/NAME`."""
        created = self.kubectl("create", "-f", str(ROOT / "manifests" / "examples" / file))
        match = re.search(r"(tfjob\.\S+) created", created)
        if match is None:
            raise ControlPlaneError(f"kubectl did not create {file}: {created}")
        return match[1]

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for a condition, and print each change that the API server shows."""
        deadline = time.monotonic() + LIMIT_S
        self._look()
        while not holds():
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"not within {LIMIT_S} s: {what}")
            time.sleep(0.2)
            self._look()

    def _look(self) -> None:
        for kind, path in WATCHED.items():
            items = self.plane.request("GET", f"/{path}?labelSelector={'' if kind == 'tfjob' else f'{LABEL}job-name'}")[
                1
            ]
            now = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in items["items"]}
            states = {key: state_of(kind, item) for key, item in now.items()}
            for key, state in (states | dict.fromkeys(self._seen[kind].keys() - now.keys(), "gone")).items():
                if state and self._told.get(f"{kind} {key}") != state:
                    self._told[f"{kind} {key}"] = state
                    self.say(f"{f'{kind} {key}':<34} {state}")
            self._seen[kind] = now

    def is_true(self, job: str, condition: str) -> bool:
        """Return True if a job has this condition."""
        found = self._seen["tfjob"].get(job, {}).get("status", {}).get("conditions") or ()
        return any((each["type"], each["status"]) == (condition, "True") for each in found)

    def running(self, job: str) -> int:
        """Return the number of running workers of a job."""
        wanted = {f"{LABEL}job-name": job, f"{LABEL}replica-type": "worker"}
        pods = self._seen["pod"].values()
        return sum(
            each["status"]["phase"] == "Running" and wanted.items() <= each["metadata"]["labels"].items()
            for each in pods
        )

    def play(self) -> None:
        """Play all acts."""
        self.examples()
        self.policies()
        for namespace in ("kubeflow", "default"):
            self.kubectl("delete", "tfjobs", "--all", f"--namespace={namespace}")
        self.until("every job, pod and service is gone", lambda: not any(self._seen.values()))
        self.alpha()

    def examples(self) -> None:
        """Run the example jobs from creation to their end."""
        jobs = {self.create(file).partition("/")[2]: end for file, end in EXAMPLES.items()}

        def ends() -> dict[str, str]:
            return {
                key.partition("/")[2]: end
                for key in self._seen["tfjob"]
                for end in ("Succeeded", "Failed")
                if self.is_true(key, end)
            }

        self.until("all jobs have ended", lambda: ends().keys() >= jobs.keys())
        if wrong := [f"{name} has {ends()[name]}" for name, end in jobs.items() if ends()[name] != end]:
            raise ControlPlaneError(f"did not end as expected: {', '.join(wrong)}")
        over = re.compile("Succeeded|Failed").match
        self.until(
            "running pods are deleted by the default clean-up policy",
            lambda: all(over(state_of("pod", pod)) for pod in self._seen["pod"].values()),
        )
        self.kubectl("get", "tfjobs,pods,services", "--namespace=kubeflow")
        self.kubectl("get", "tfjobs.v1beta1.kubeflow.org", "--namespace=default")
        self.kubectl("describe", "tfjob", "mnist", "--namespace=kubeflow")
        self.kubectl("describe", "tfjob", "invalid", "--namespace=kubeflow", only="Events:")

    def policies(self) -> None:
        """Show restarts, failures, suspension, scaling and a TTL from a user's view."""
        for file in POLICIES:
            self.create(f"{file}.yaml")
        self._until_suspended()
        self._suspend("false")
        self._break_a_node()
        self._until_running("elastic", 2)
        for workers in (4, 1):
            self.kubectl("scale", "tfjob", "elastic", f"--replicas={workers}")
            self._until_running("elastic", workers)
        self._until_running("sleeper", 2)
        self._suspend("true")
        self._until_suspended()
        self._until_running("sleeper", 0)
        self._suspend("false")
        for name, end in ENDS.items():
            self.until(f"{name} has {end}", lambda key=f"default/{name}", end=end: self.is_true(key, end))  # type: ignore[misc]
        self.until("short-lived is gone after its TTL", lambda: "default/short-lived" not in self._seen["tfjob"])
        self.kubectl("get", "tfjobs")
        for name in ("killed-once", "fails", "elastic", "restart-all"):
            self.kubectl("describe", "tfjob", name, only="Status:")

    def _break_a_node(self) -> None:
        """Taint the node of worker 3 and let worker 3 fail: the whole job is restarted on the other node."""
        self._until_running("restart-all", 4)
        node = self._nodes_of("restart-all", "0")["restart-all-worker-3"]
        self.kubectl("taint", "node", node, "example.com/broken-gpu:NoSchedule")
        self.kubectl("annotate", "pod", "restart-all-worker-3", f"{RUN}=0s:42", "--overwrite")
        self.until(
            "restart-all runs elsewhere as attempt 1",
            lambda: list(self._nodes_of("restart-all", "1").values()) == [NODES[node == NODES[0]]] * 4,
        )
        self.kubectl("taint", "node", node, "example.com/broken-gpu-")

    def _nodes_of(self, job: str, attempt: str) -> dict[str, str]:
        """Return the nodes of the pods of an attempt by name."""
        wanted = {f"{LABEL}job-name": job, f"{LABEL}restart-attempt": attempt}
        found = [each for each in self._seen["pod"].values() if wanted.items() <= each["metadata"]["labels"].items()]
        return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in found}

    def _suspend(self, value: str) -> None:
        patch = f'{{"spec":{{"runPolicy":{{"suspend":{value}}}}}}}'
        self.kubectl("patch", "tfjob", "sleeper", "--type=merge", f"--patch={patch}")

    def _until_suspended(self) -> None:
        self.until("sleeper is suspended", lambda: self.is_true("default/sleeper", "Suspended"))

    def _until_running(self, job: str, workers: int) -> None:
        self.until(f"{job} has {workers} running workers", lambda: self.running(job) == workers)

    def alpha(self) -> None:
        """Run jobs of the two alpha APIs, which create Jobs and services with the names in old guides."""
        jobs = [self.create(f"migration/v1alpha1/{file}.yaml") for file in ALPHA]
        for job in jobs:
            self.kubectl("wait", job, "--for=condition=Succeeded", f"--timeout={LIMIT_S}s")
        self.kubectl("get", "tfjobs.v1alpha1.kubeflow.org,tfjobs.tensorflow.org,jobs.batch,services")
        self.kubectl("get", jobs[0], "-o", "yaml", only="\nstatus:")
        self.kubectl("delete", *jobs)
        left = ("get", "jobs.batch,pods", "--output=name")
        self.until("all Jobs and their pods are gone", lambda: not self.plane.run_kubectl(*left).stdout)


@contextlib.contextmanager
def running(plane: ControlPlane, name: str, module: str, *flags: str) -> Iterator[Path]:
    """Run a program during the block, then stop it by SIGTERM; yield its log. Raises if it crashed or does not exit with 0."""
    part = Part(name, plane.directory / "logs" / f"{name}.log")
    part.start([sys.executable, "-m", module, f"--kubeconfig={plane.kubeconfig}", *flags], ROOT)
    try:
        yield part.log
        part.check()
        if part.end(END_LIMIT_S) != 0:
            raise ControlPlaneError(part.complaint())
    finally:
        part.kill()


@contextlib.contextmanager
def at_work(demo: Demo, kubelet: Kubernetes) -> Iterator[None]:
    """Run the operator and a hollow node that behaves like a kubelet of this version."""
    nodes = demo.plane.directory / "nodes.yaml"
    nodes.write_text("\n".join(f"- {{name: {name}, allocatable: {{nvidia.com/gpu: 8}}}}" for name in NODES))
    with (
        running(demo.plane, f"operator-{kubelet}", "tfjob_operator.controller", "--monitoring-port=0", APIS) as log,
        running(
            demo.plane, f"hollow-node-{kubelet}", "hack.hollow_node", f"--kubernetes={kubelet}", f"--nodes={nodes}"
        ),
    ):
        demo.say(f"operator and hollow node started; the node behaves like a kubelet of Kubernetes {kubelet}")
        try:
            yield
        except ControlPlaneError as error:
            raise ControlPlaneError(f"{error}\n\nThe operator's {log_tail(log)}") from None


def show(demo: Demo, *, page: bool) -> None:
    """Create the prerequisites of the jobs, then run all parts of the demo, or serve the dashboard until Ctrl-C."""
    demo.say(f"control plane is up at {demo.plane.server}")
    for manifest in ("base/crd.yaml", "addons/alpha/crd.yaml"):
        demo.plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / manifest))
    demo.plane.wait_for_crd("tfjobs.kubeflow.org")
    demo.plane.wait_for_crd("tfjobs.tensorflow.org")
    demo.plane.restart_controller_manager()  # otherwise its garbage collector may need 30s to discover TFJobs
    demo.plane.create_namespace("kubeflow")
    demo.say("TFJob CRD applied")
    if page:
        with at_work(demo, NEWEST):
            keep_up(demo.plane)
    for kubelet in (OLDEST, NEWEST):
        with at_work(demo, kubelet):
            demo.play()
    count = len(EXAMPLES) + len(POLICIES) + len(ALPHA)
    demo.say(f"done: {count} jobs ended as expected, on kubelets of {OLDEST} and {NEWEST}")
    demo.say("to see such jobs in the dashboard: make demo-page")


def main() -> int:
    """Run the demo; return the exit code."""
    began = time.monotonic()
    try:
        print("starting etcd, kube-apiserver and kube-controller-manager", flush=True)
        with ControlPlane.start("demo") as plane:
            show(Demo(plane, began), page=sys.argv[1:] == ["--page"])
    except ControlPlaneError as error:
        print(f"\ndemo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; all processes were stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
