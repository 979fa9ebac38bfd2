"""The demo: a control plane, the operator and a hollow node; the example jobs from creation to deletion.

With `--page` the jobs stay, and the page of `kubectl tfjob dashboard` shows them until Ctrl-C. Otherwise the demo runs twice,
since kubelets have not always behaved alike: on a hollow node of the oldest version, and on one of the newest.

Exit codes: 0 when every job ended as it should and everything was collected, 1 when not, 130 after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.demo.alpha import FILES as ALPHA_FILES
from hack.demo.alpha import Alpha
from hack.demo.page import keep_up
from hack.demo.policies import FILES, Policies
from hack.demo.stage import DemoError, Stage, Teller
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import PodPhase
from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.informers import SharedInformerFactory

ROOT: Final = Path(__file__).parents[2]
EXPECTED: Final = {
    "00-hello.yaml": ConditionType.SUCCEEDED,
    "01-mnist.yaml": ConditionType.SUCCEEDED,
    "02-ps-workers.yaml": ConditionType.SUCCEEDED,
    "03-gcp-credentials.yaml": ConditionType.SUCCEEDED,
    "04-smoke-gpu.yaml": ConditionType.SUCCEEDED,
    "05-master-ps-worker.yaml": ConditionType.SUCCEEDED,
    "06-invalid.yaml": ConditionType.FAILED,
    "13-keras.yaml": ConditionType.SUCCEEDED,
    "migration/v1alpha2.yaml": ConditionType.SUCCEEDED,
    "migration/v1beta1-gpu.yaml": ConditionType.SUCCEEDED,
    "migration/v1beta1-master.yaml": ConditionType.SUCCEEDED,
    "migration/v1beta2.yaml": ConditionType.SUCCEEDED,
}
NAMESPACES: Final = ("kubeflow", "default")
APIS: Final = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1"
LIFE_LIMIT_S: Final = 60.0  # the longest example takes three seconds; a busy machine may be ten times slower
GONE_LIMIT_S: Final = 60.0
END_LIMIT_S: Final = 10.0


class Demo:
    """The first act, and the clean-up at the end: the example jobs from creation to deletion."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def live(self) -> None:
        """Create the jobs, and wait until each has ended as it should. Raises DemoError for one that does not."""
        expected: dict[str, str] = {}
        for example, end in EXPECTED.items():
            expected[await self._stage.create(example)] = end
        if not await self._stage.teller.wait_until(lambda: self._ends().keys() >= expected.keys(), LIFE_LIMIT_S):
            raise DemoError(f"not ended within {LIFE_LIMIT_S:.0f} s: {sorted(expected.keys() - self._ends().keys())}")
        wrong = [f"{name} is {self._ends()[name]}" for name, end in expected.items() if self._ends()[name] != end]
        if wrong:
            raise DemoError(f"ended otherwise than expected: {', '.join(wrong)}")
        if not await self._stage.teller.wait_until(self._is_cleaned_up, LIFE_LIMIT_S):
            raise DemoError(f"pods still run after {LIFE_LIMIT_S:.0f} s, though their jobs have ended")

    def _ends(self) -> dict[str, str]:
        return {
            job.metadata.name: job.status.conditions[-1].type
            for job in self._stage.jobs.indexer.list()
            if job.status.conditions
            and job.status.conditions[-1].type in {ConditionType.SUCCEEDED, ConditionType.FAILED}
        }

    def _is_cleaned_up(self) -> bool:
        """Whether every pod that is left has ended: the default clean-up policy deletes the others when the job ends."""
        return all(
            pod.status.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED} and pod.metadata.deletion_timestamp is None
            for pod in self._stage.pods.indexer.list()
        )

    async def show(self) -> None:
        """Show what a user would look at."""
        await self._stage.kubectl("get", "tfjobs,pods,services", "--namespace=kubeflow", show=True)
        await self._stage.kubectl("get", "tfjobs.v1beta1.kubeflow.org", "--namespace=default", show=True)
        await self._stage.kubectl("describe", "tfjob", "mnist", "--namespace=kubeflow", show=True)
        await self._stage.kubectl("describe", "tfjob", "invalid", "--namespace=kubeflow", show=True, only="Events:")

    async def delete(self) -> None:
        """Delete the jobs, and wait until the garbage collector has deleted all their children."""
        for namespace in NAMESPACES:
            await self._stage.kubectl("delete", "tfjobs", "--all", f"--namespace={namespace}", show=True)
        informers = (self._stage.jobs, self._stage.pods, self._stage.services)
        if not await self._stage.teller.wait_until(lambda: not any(len(i.indexer) for i in informers), GONE_LIMIT_S):
            left = [meta_key(item.metadata) for informer in informers for item in informer.indexer.list()]
            raise DemoError(f"not collected within {GONE_LIMIT_S:.0f} s: {left}")
        self._stage.teller.say("every job, pod and service is gone")


@contextlib.asynccontextmanager
async def running(name: str, command: Sequence[str], log: Path) -> AsyncIterator[None]:
    """Run a part as a process of its own; on leaving end it by SIGTERM. Raises DemoError if it died or does not exit with 0."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out, cwd=ROOT)
    try:
        yield
        if process.returncode is not None:
            raise DemoError(f"the {name} died with code {process.returncode}:\n{_tail(log)}")
        process.terminate()
        try:
            code = await asyncio.wait_for(process.wait(), END_LIMIT_S)
        except TimeoutError:
            raise DemoError(f"the {name} has not ended {END_LIMIT_S:.0f} s after SIGTERM:\n{_tail(log)}") from None
        if code != 0:
            raise DemoError(f"the {name} ended with code {code}:\n{_tail(log)}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


async def play(plane: ControlPlane, teller: Teller) -> None:
    """Play the whole demo on a control plane that is up. Raises DemoError or ControlPlaneError."""
    await asyncio.to_thread(prepare, plane)
    teller.say("TFJob CRD applied")
    for kubelet in (OLDEST, NEWEST):
        async with at_work(kubelet, plane, teller) as operator_log:
            await play_on(plane, teller, operator_log)


async def show_page(plane: ControlPlane, teller: Teller) -> None:
    """Keep the page up until Ctrl-C, on a control plane that is up. Raises DemoError or ControlPlaneError."""
    await asyncio.to_thread(prepare, plane)
    async with at_work(NEWEST, plane, teller):
        await keep_up(plane, teller)


@contextlib.asynccontextmanager
async def at_work(kubelet: Kubernetes, plane: ControlPlane, teller: Teller) -> AsyncIterator[Path]:
    """Run the operator and a hollow node whose pods live and end as on a kubelet of this version; yield the operator's log.

    Raises DemoError when one of them ends by itself.
    """
    flags = ("--kubeconfig", str(plane.kubeconfig))
    node_flags = (*flags, f"--kubernetes={kubelet}")
    operator_log = plane.directory / "logs" / f"operator-{kubelet}.log"
    node_log = plane.directory / "logs" / f"hollow-node-{kubelet}.log"
    async with (
        running(
            "operator",
            (sys.executable, "-m", "tfjob_operator.controller", *flags, "--monitoring-port=0", APIS),
            operator_log,
        ),
        running("hollow node", (sys.executable, "-m", "hack.hollow_node", *node_flags), node_log),
    ):
        teller.say(f"operator and hollow node started; the node behaves as a kubelet of Kubernetes {kubelet}")
        yield operator_log


async def play_on(plane: ControlPlane, teller: Teller, operator_log: Path) -> None:
    """Play all acts. Raises DemoError or ControlPlaneError."""
    async with HttpTransport(load_settings(str(plane.kubeconfig))) as transport, asyncio.TaskGroup() as tasks:
        factory = SharedInformerFactory(RestClient(transport))
        stage = Stage(plane, teller, factory)
        demo = Demo(stage)
        factory.start(tasks)
        try:
            await factory.wait_for_cache_sync(30)
            await demo.live()
            await demo.show()
            await Policies(stage).play()
            await demo.delete()
            await Alpha(stage).play()
        except DemoError as error:
            raise DemoError(f"{error}\n\nThe operator's last words:\n{_tail(operator_log)}") from None
        finally:
            await factory.shut_down()


def prepare(plane: ControlPlane) -> None:
    """Make what the jobs need: the CRDs, and the namespace of the examples. Blocks."""
    for manifest in ("base/crd.yaml", "addons/alpha/crd.yaml"):
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / manifest))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    plane.wait_for_crd("tfjobs.tensorflow.org")
    plane.restart_controller_manager()  # so that the garbage collector knows of TFJobs at once and not in half a minute
    plane.create_namespace("kubeflow")


def main() -> int:
    """Run the demo; returns the exit code."""
    with_page = sys.argv[1:] == ["--page"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    teller = Teller(time.monotonic())
    code = 0
    try:
        teller.say("starting etcd, kube-apiserver and kube-controller-manager")
        with ControlPlane.start("demo") as plane:
            teller.say(f"control plane is up at {plane.server}")
            asyncio.run(show_page(plane, teller) if with_page else play(plane, teller))
    except* (DemoError, ControlPlaneError) as group:
        code = 1
        for error in group.exceptions:
            print(f"\ndemo failed: {error}", file=sys.stderr)
    except* KeyboardInterrupt:
        code = 130
        print("\ninterrupted; everything that ran has been stopped", file=sys.stderr)
    if code == 0:
        count = len(EXPECTED) + len(FILES) + len(ALPHA_FILES)
        teller.say(f"done: {count} jobs ended as they should, on kubelets of {OLDEST} and {NEWEST}")
        teller.say("to look at such jobs on a live page: make demo-page")
    return code


if __name__ == "__main__":
    sys.exit(main())
