"""A long-running operator, and the resources of its process: memory, open files, threads and tasks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from faults.field import node
from faults.processes import PATIENT, ROOT, program
from hack.control_plane import ControlPlane
from hack.image.build import SETTINGS
from integration.operator_process import OperatorProcess

SETTLE_S: Final = 75.0
"""Longer than an idle connection is kept, and than retries wait for one another after the last trouble."""
GROWTH: Final = 1.1
"""How much memory it may have at rest after its work, of what it had before."""


class Weight(NamedTuple):
    memory_mb: float
    files: float
    threads: float
    tasks: float


def weigh(operator: OperatorProcess) -> Weight:
    """What the operator has now. It must not have ended."""
    assert operator.process.poll() is None, operator.text()[-3000:]
    pid = operator.process.pid
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Weight(
        memory_mb=int(fields["VmRSS"].split()[0]) / 1024,
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        threads=int(fields["Threads"]),
        tasks=operator.value("tf_operator_event_loop_tasks"),
    )


async def at_rest(operator: OperatorProcess) -> Weight:
    """What it has when nothing happens, of each the least that was seen: a scrape is a connection and a task too."""
    await asyncio.sleep(SETTLE_S)
    seen = [await asyncio.to_thread(weigh, operator) for _ in range(10)]
    return Weight(*(min(values) for values in zip(*seen, strict=True)))


def judge(operator: OperatorProcess, before: Weight, after: Weight, fields: int = 1) -> list[str]:
    """Return what is wrong with the process: memory may grow a little; of what else it has so many fields are compared."""
    wrong = []
    if operator.process.poll() is not None:
        wrong.append(f"the operator ended with {operator.process.returncode}")
    if "Traceback" in operator.text():
        wrong.append("a traceback is in the operator's log")
    if after.memory_mb > before.memory_mb * GROWTH or after[1:fields] != before[1:fields]:
        wrong.append(f"the operator has {after}, and had {before}")
    return wrong


@asynccontextmanager
async def cluster(folder: Path, namespaces: Sequence[str], name: str, **more: Any) -> AsyncIterator[ControlPlane]:
    """Run a control plane with these namespaces, and a hollow node, until the end of the block."""
    plane = await asyncio.to_thread(ControlPlane.start, name, **more)
    try:
        await asyncio.to_thread(_install, plane, namespaces)
        async with node(plane, folder, time_scale=0.2):
            yield plane
    finally:
        plane.stop()


def _install(plane: ControlPlane, namespaces: Sequence[str]) -> None:
    plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / "crd.yaml"))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    for namespace in namespaces:
        plane.run_kubectl("create", "namespace", namespace)
    plane.restart_controller_manager()  # its garbage collector knows the kind now


@asynccontextmanager
async def operating(kubeconfig: Path, folder: Path, planted: str) -> AsyncIterator[OperatorProcess]:
    """Run an operator, with a bug if one is planted, until the end of the block, which begins when it is ready."""
    log = folder / "operator.log"
    with OperatorProcess(kubeconfig, log, *PATIENT, program=program(planted), variables=SETTINGS) as operator:
        await asyncio.to_thread(operator.wait_for, "operator_ready")
        yield operator
