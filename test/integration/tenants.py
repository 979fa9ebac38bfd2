"""Two tenants of one cluster: one whose jobs must stay as they are, and a hostile one with `edit` in a namespace of its own."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from hack.control_plane import ControlPlane
from hack.objects import an_object
from integration.audit import AuditLog
from integration.cluster import Cluster, replica, specs, tfjob
from integration.operator_process import OperatorProcess, with_token
from support.waiting import eventually
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.client.errors import ApiError, ForbiddenError
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS

VICTIM: Final = "team-victim"
HOSTILE: Final = "team-hostile"
STEADY: Final = "steady"
"""The victim's job that runs all the time, and that nobody may make the operator touch."""
AT_ONCE: Final = 16
"""How many requests the hostile tenant has in flight; the API server has its own Priority and Fairness against more."""
EDIT: Final = ("system:aggregate-to-edit", "system:aggregate-to-view", "kubeflow-tfjobs-edit", "kubeflow-tfjobs-view")
"""The roles that make up the cluster role `edit`; the controller that aggregates them does not run here."""
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")


workers = partial(replica, policy="ExitCode", run="forever")


def child_labels(job_name: str, index: str = "0") -> dict[str, str]:
    """The labels that the operator gives to a worker."""
    replica = {"job-name": job_name, "replica-type": "worker", "replica-index": index}
    both = replica | {f"{c.LABEL_PREFIX}{name}": value for name, value in replica.items()}
    return both | {"group-name": c.GROUP_NAME, c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}


NOWHERE: Final = {"containers": [{"name": "tensorflow", "image": "other:1"}], "nodeSelector": {"is": "nowhere"}}
pod = partial(an_object, PODS, spec=NOWHERE)
"""A pod that nothing schedules."""
service = partial(an_object, SERVICES, spec={"clusterIP": "None", "ports": [{"port": 2222}]})


@dataclass
class Tenants:
    """The cluster and the operator, as a test sees them. `client` is the hostile tenant's."""

    plane: ControlPlane
    audit: AuditLog
    operator: OperatorProcess
    client: RestClient
    uid: str
    accepted: int = 0
    refused: list[str] = field(default_factory=list)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.plane.run_kubectl(*arguments, input=stdin).stdout

    def steady(self) -> dict[str, str]:
        """The resource versions of the victim's steady job and its children."""
        listed = self.kubectl("get", "tfjobs,pods,services", "-n", VICTIM, "-l", "!fresh", "-o", "json")
        found = (item["metadata"] for item in json.loads(listed)["items"])
        return {f"{meta['name']} {meta['uid']}": meta["resourceVersion"] for meta in found if STEADY in meta["name"]}

    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self.operator.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    def writes(self, namespace: str, skip: int = 0) -> list[str]:
        """The operator's requests in a namespace except reads, each as verb, resource and name."""
        found = []
        for event in self.audit.events()[skip:]:
            target = event.get("objectRef", {})
            if target.get("namespace") == namespace and event["verb"] not in {"get", "list", "watch"}:
                found.append(f"{event['verb']} {target['resource']} {target.get('name', '')}")
        return found

    async def send(self, calls: Iterable[Awaitable[object]]) -> None:
        """Await many requests of the hostile tenant, a few at a time, and add the outcomes to `accepted` and `refused`."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(call: Awaitable[object]) -> None:
            async with places:
                try:
                    await call
                    self.accepted += 1
                except ForbiddenError as error:
                    self.refused.append(str(error))
                except ApiError:
                    pass  # what the API server does not take harms nobody

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(one(call))

    async def create(self, *objects: dict[str, Any]) -> None:
        kinds = {"Pod": PODS, "Service": SERVICES, "TFJob": TFJOBS, "ConfigMap": CONFIG_MAPS}
        await self.send(self.client.create(kinds[each["kind"]], HOSTILE, each) for each in objects)

    async def patch(self, resource: Resource, name: str, body: object, kind: str) -> None:
        await self.send([self.client.patch(resource, HOSTILE, name, body, content_type=kind)])

    async def eventually(self, holds: Callable[[], object], what: str) -> float:
        """Ask in a thread until it is true; return how many seconds that took."""
        started = time.monotonic()
        await asyncio.to_thread(eventually, holds, what)
        return time.monotonic() - started

    async def first_pod_s(self, name: str) -> float:
        """How many seconds a new job of the victim waits for its pod."""
        stdin = json.dumps(tfjob(name, specs(Worker=workers(1))))
        await asyncio.to_thread(self.kubectl, "create", "-n", VICTIM, "-f", "-", stdin=stdin)
        started = time.monotonic()
        get = ("get", "pod", f"{name}-worker-0", "-n", VICTIM, "--ignore-not-found", "-o", "name")
        await self.eventually(lambda: self.kubectl(*get), "a new job of the victim has its pod")
        return time.monotonic() - started

    async def watched(self, attack: Awaitable[None]) -> float:
        """Carry out an attack, and return the most memory that the operator had meanwhile, in MB."""
        most = self.memory_mb()

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, self.memory_mb())
                await asyncio.sleep(0.1)

        watching = asyncio.create_task(watch())
        try:
            await attack
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        return most


@contextlib.contextmanager
def running(plane: ControlPlane, folder: Path) -> Iterator[OperatorProcess]:
    """Run the operator under its own account, and a hollow node for the victim's pods."""
    victim, account = Cluster(plane, VICTIM, folder), plane.request_token("kubeflow", "tf-job-operator")
    options = {"kubeconfig": with_token(plane, account, folder), "variables": {"KUBEFLOW_NAMESPACE": "kubeflow"}}
    with victim.operator("--namespace=", **options) as operator, victim.node():
        yield operator


@contextlib.asynccontextmanager
async def hostile_client(plane: ControlPlane) -> AsyncIterator[RestClient]:
    """A client with the rights of `edit` in one namespace."""
    settings = load_settings(str(plane.kubeconfig_for("mallory")))
    async with HttpTransport(settings, max_connections=2 * AT_ONCE) as transport:
        yield RestClient(transport, field_manager="mallory")
