"""The cluster of the crash matrix: one control plane and one hollow node for many operators, each in its own namespace.

The matrix has its own informers, so waiting costs the API server nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from faults.census import Census, census
from faults.processes import ROOT, program, python
from hack.audit import AuditLog
from hack.control_plane import ControlPlane
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
USER: Final = "operator-under-test"
NOTHING: Final = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}
"""The default audit policy."""
MANIFESTS: Final = ("manifests/base/crd.yaml", "test/integration/data/volcano-podgroups.yaml")
CRDS: Final = ("tfjobs.kubeflow.org", "podgroups.scheduling.volcano.sh")
TIME_SCALE: Final = 0.02
READY_S: Final = 180.0
REQUEST_S: Final = 300.0
"""With thirty times as much work as cores, users had to wait longer than the client's default of forty seconds."""


class Meta(ObjectMeta, frozen=True):
    """Metadata with annotations."""

    annotations: dict[str, str] | None = None


class Thing(Struct, frozen=True):
    """An object as users see it."""

    metadata: Meta
    spec: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it
    status: dict[str, Any] = {}  # noqa: RUF012


class Sight(NamedTuple):
    """What users have: a client, and informers of jobs and pods."""

    client: RestClient
    jobs: SharedIndexInformer[Thing]
    pods: SharedIndexInformer[Thing]


class Field:
    """Shared by all cases. `census` counts the created children."""

    def __init__(self, plane: ControlPlane, audit: AuditLog, folder: Path, sight: Sight, census: Census) -> None:
        self.plane = plane
        self.folder = folder
        self.sight = sight
        self.client, self.jobs, self.pods = sight
        self.kubeconfig = plane.kubeconfig_for(USER, ["system:masters"])
        self.serving = plane.server_credential("fault-proxy")
        self.audit = audit
        self.census = census
        self._namespaces = 0

    async def new_namespace(self, prefix: str) -> str:
        self._namespaces += 1
        name = f"{prefix}-{self._namespaces}"
        await self.client.create(NAMESPACES, "", {"metadata": {"name": name}})
        return name


@asynccontextmanager
async def field(
    folder: Path, audited: Mapping[str, Any] = NOTHING, *, node_ahead_s: float = 0.0
) -> AsyncIterator[Field]:
    """Run a control plane, whose audit log follows the policy `audited`, and a hollow node inside the block.

    `node_ahead_s`: by how much the wall clock of the node is ahead of the control plane's.
    """
    audit = AuditLog(folder, audited)
    plane = await asyncio.to_thread(
        ControlPlane.start,
        "faults",
        # Without service account tokens, a namespace is usable at once, and pods need no token volume.
        extra_apiserver_args=(*audit.flags, "--disable-admission-plugins=ServiceAccount"),
    )
    async with AsyncExitStack() as stack:
        stack.callback(plane.stop)
        await asyncio.to_thread(_install, plane)
        sight = await stack.enter_async_context(seeing(plane))
        await stack.enter_async_context(node(plane, folder, ahead_s=node_ahead_s))
        yield Field(plane, audit, folder, sight, await stack.enter_async_context(census(sight.client)))


@asynccontextmanager
async def seeing(plane: ControlPlane) -> AsyncIterator[Sight]:
    settings = load_settings(str(plane.kubeconfig))
    async with AsyncExitStack() as stack:
        transports = [await stack.enter_async_context(HttpTransport(settings, max_connections=0)) for _ in range(2)]
        factory = SharedInformerFactory(RestClient(transports[0]))
        jobs, pods = (factory.informer(Codec(resource, Thing)) for resource in (TFJOBS, PODS))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        factory.start(tasks)
        stack.push_async_callback(factory.shut_down)
        await factory.wait_for_cache_sync(READY_S)
        yield Sight(RestClient(transports[1], request_s=REQUEST_S, list_s=REQUEST_S), jobs, pods)


def _install(plane: ControlPlane) -> None:
    for manifest in MANIFESTS:
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / manifest))
    for crd in CRDS:
        plane.wait_for_crd(crd)
    plane.restart_controller_manager()  # its garbage collector now knows the kinds


@asynccontextmanager
async def node(
    plane: ControlPlane, folder: Path, *, time_scale: float = TIME_SCALE, ahead_s: float = 0.0
) -> AsyncIterator[None]:
    """Run a hollow node inside the block, which starts when it is ready."""
    command = program(ahead_s=ahead_s, module="hack.hollow_node")
    log = folder / "hollow-node.log"
    async with python(*command, f"--kubeconfig={plane.kubeconfig}", f"--time-scale={time_scale}", log=log) as process:

        def is_ready() -> bool:
            assert process.returncode is None, log.read_text()
            return "runs the pods" in log.read_text()

        await until(is_ready, "the hollow node is ready:", limit_s=READY_S, yet=log.read_text, tick_s=0.05)
        yield
        assert process.returncode is None, log.read_text()
