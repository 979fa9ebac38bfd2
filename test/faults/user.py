"""A user of a real cluster: creates a job, edits it, ends its pods, and waits for the results."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from faults.field import Sight, Thing
from hack.hollow_node.runner import BINDINGS
from hack.hollow_node.script import ON_STOP, RUN, RUN_OF
from hack.objects import an_object
from support.waiting import until
from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from tfjob_operator.api.core import PODS, SERVICES, VOLCANO_POD_GROUPS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import LABEL_REPLICA_INDEX, TFJOBS
from tfjob_operator.informers.store import NAMESPACE_INDEX

NAME: Final = "job"
LIMIT_S: Final = 300.0
TICK_S: Final = 0.02
RETRY_S: Final = 0.5
NODE: Final = "hollow-node"


class WaitedInVainError(Exception):
    """An expected result did not occur."""


class User:
    """A user with one job, the only one of its namespace, who acts while `calm` is set. All waits raise WaitedInVainError.

    A `stubborn` user repeats a request until it succeeds, or has succeeded before.
    """

    def __init__(
        self,
        sight: Sight,
        namespace: str,
        *,
        name: str = NAME,
        calm: asyncio.Event | None = None,
        patience_s: float = LIMIT_S,
        stubborn: bool = False,
    ) -> None:
        self._sight = sight
        self._client = sight.client
        self._name = name
        self._stubborn = stubborn
        self.namespace = namespace
        self._calm = calm
        self._patience_s = patience_s

    @property
    def job(self) -> Thing | None:
        return self._sight.jobs.indexer.get(f"{self.namespace}/{self._name}")

    @property
    def status(self) -> dict[str, Any]:
        return self.job.status if self.job is not None else {}

    @property
    def pods(self) -> dict[str, Thing]:
        found = self._sight.pods.indexer.by_index(NAMESPACE_INDEX, self.namespace)
        return {replica_of(pod.metadata.name, pod.metadata.labels): pod for pod in found}

    def is_true(self, condition: str) -> bool:
        return any(
            (each["type"], each["status"]) == (condition, "True") for each in self.status.get("conditions") or ()
        )

    def count(self, kind: str, state: str) -> int:
        counters: dict[str, int] = (self.status.get("replicaStatuses") or {}).get(kind, {})
        return counters.get(state, 0)

    async def create(
        self, spec: dict[str, Any], resource: Resource = TFJOBS, labels: Mapping[str, str] | None = None
    ) -> None:
        job = an_object(resource, self._name, spec)
        job["metadata"]["labels"] = labels or {}
        await self._send(lambda: self._client.create(resource, self.namespace, job))

    async def edit(self, **spec: Any) -> None:
        """Change fields of the spec; None removes one."""
        await self._send(lambda: self._client.patch(TFJOBS, self.namespace, self._name, {"spec": spec}))

    async def leave(self) -> None:
        """Delete the job, and wait until its children are gone."""
        await self._send(lambda: self._client.delete(TFJOBS, self.namespace, self._name))
        await self.gone()

    async def has_no_job(self) -> bool:
        """Ask the API server, because the informer may not have heard of the job yet."""
        return await self._send(lambda: self._client.get(TFJOBS, self.namespace, self._name)) is None

    async def drain(self) -> None:
        """Delete all pods, and wait for as many others."""
        before = {pod.metadata.uid for pod in self.pods.values()}
        for name in [*self.pods]:
            await self._send(lambda name=name: self._client.delete(PODS, self.namespace, name))  # type: ignore[misc]

        def replaced() -> bool:
            return len({pod.metadata.uid for pod in self.pods.values()} - before) == len(before)

        await self.until("all pods are replaced", replaced)

    async def reaches(self, condition: str) -> None:
        await self.until(condition, lambda: self.is_true(condition))

    async def has_pods(self, number: int) -> None:
        await self.until(f"{number} pods", lambda: len(self.pods) == number)

    async def _send(self, request: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await request()
            except (AlreadyExistsError, NotFoundError):
                if not self._stubborn:
                    raise
                return None
            except ApiError:  # such as that of an API server that is being restarted
                if not self._stubborn:
                    raise
                await asyncio.sleep(RETRY_S)

    async def end(self, replica: str, run: str = "0s:0") -> None:
        await self.until(f"{replica} runs", lambda: self._phase(replica) == "Running")
        note = {"metadata": {"annotations": {RUN: run}}}
        await self._client.patch(PODS, self.namespace, self.pods[replica].metadata.name, note)

    async def delete(self, replica: str) -> None:
        await self._client.delete(PODS, self.namespace, self.pods[replica].metadata.name)
        await self.until(f"{replica} is gone", lambda: replica not in self.pods)

    async def orphan(self, index: int) -> None:
        """Create a pod with the labels of a worker and without an owner, and wait until it runs."""
        name, worker = f"{NAME}-worker-{index}", self.pods[f"{NAME}-worker-0"].metadata
        labels = {
            key: str(index) if key.endswith(LABEL_REPLICA_INDEX) else value
            for key, value in (worker.labels or {}).items()
        }
        spec = {"containers": [{"name": "tensorflow", "image": "train:1"}]}
        body = an_object(PODS, name, spec, labels=labels, annotations={RUN: "forever"})
        await self._client.create(PODS, self.namespace, body)
        await self.until("the orphan runs", lambda: self._phase(name) == "Running")

    async def let_end(self, pods: int, *, heed: bool = False) -> None:
        """Let pods end that ignore SIGTERM, once exactly this number of pods is being deleted.

        They succeed, as if they had ended before they were deleted; or they `heed` the signal from now on.
        """

        def deleted() -> list[Thing]:
            return [pod for pod in self.pods.values() if pod.metadata.deletion_timestamp is not None]

        await self.until(f"{pods} pods are being deleted", lambda: len(deleted()) == pods)
        for pod in deleted():
            note = {"metadata": {"annotations": {ON_STOP: "0s:143"}}} if heed else all_ended(pod)
            await self._client.patch(PODS, self.namespace, pod.metadata.name, note)

    async def fail(self, replica: str, code: int) -> None:
        """Fail a pod, and wait until its replacement runs."""
        await self.until(f"{replica} runs", lambda: self._phase(replica) == "Running")
        before = self.pods[replica].metadata.uid
        await self.end(replica, f"0s:{code}")

        def again() -> bool:
            return self._phase(replica) == "Running" and self.pods[replica].metadata.uid != before

        await self.until(f"{replica} runs again", again)

    async def running(self, pods: int) -> None:
        """Wait until exactly this number of pods run and the status agrees."""

        def holds() -> bool:
            found = [pod for pod in self.pods.values() if pod.metadata.deletion_timestamp is None]
            active = sum(each.get("active", 0) for each in (self.status.get("replicaStatuses") or {}).values())
            return (
                len(found) == len(self.pods) == active == pods
                and all(pod.status.get("phase") == "Running" for pod in found)
                and self.is_true("Running")
            )

        await self.until(f"{pods} pods run", holds)

    async def succeeded(self, workers: int) -> None:
        await self.until(f"{workers} have succeeded", lambda: self.count("Worker", "succeeded") == workers)

    async def finish(self, workers: int) -> None:
        """Let all workers succeed, the chief last."""
        for done, index in enumerate(reversed(range(1, workers)), 1):
            await self.end(f"{NAME}-worker-{index}")
            await self.succeeded(done)
        await self.end(f"{NAME}-worker-0")

    async def gone(self) -> None:
        async def holds() -> bool:
            listed = await self._send(lambda: self._client.list_page(SERVICES, ListOptions(namespace=self.namespace)))
            return not self.pods and not json.loads(listed)["items"]

        await self.until("pods and services are gone", holds)

    async def place(self, pods: int) -> None:
        """Simulate Volcano: admit the PodGroup, and bind each pod to a node."""
        await self.until(f"there is a PodGroup, and {pods} pods have a node", lambda: self._place(pods))

    async def _place(self, pods: int) -> bool:
        try:
            group = json.loads(await self._client.get(VOLCANO_POD_GROUPS, self.namespace, NAME))
        except NotFoundError:
            return False
        if not group.get("status"):
            phase = {"status": {"phase": "Inqueue"}}
            await self._client.patch(VOLCANO_POD_GROUPS, self.namespace, NAME, phase, subresource="status")
        for pod in self.pods.values():
            if "nodeName" not in pod.spec:
                body = {
                    "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
                }
                try:
                    await self._client.create(BINDINGS, self.namespace, body)
                except (ConflictError, NotFoundError):
                    continue  # the cache lags
        return len([pod for pod in self.pods.values() if "nodeName" in pod.spec]) == pods

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until `holds`, a function or a coroutine function, returns true."""
        try:
            await until(
                lambda: (self._calm is None or self._calm.is_set()) and holds(),
                what,
                limit_s=self._patience_s,
                yet=self._state,
                tick_s=RETRY_S if self._stubborn else TICK_S,
            )
        except TimeoutError as error:
            raise WaitedInVainError(str(error)) from None

    def _state(self) -> str:
        phases = {name: pod.status.get("phase") for name, pod in self.pods.items()}
        return f"pods {phases}, status {json.dumps(self.status)}"

    def _phase(self, replica: str) -> str:
        pod = self.pods.get(replica)
        return "" if pod is None or pod.metadata.deletion_timestamp is not None else pod.status.get("phase", "")


def all_ended(pod: Thing) -> dict[str, Any]:
    """Return the patch by which all containers of a pod succeed at once."""
    scripts = [name for name in pod.metadata.annotations or {} if name == RUN or name.startswith(RUN_OF)]
    return {"metadata": {"annotations": dict.fromkeys(scripts, "0s:0")}}


def replica_of(name: str, labels: Mapping[str, str] | None) -> str:
    """Return a pod's name, or for a pod of a batch Job the Job's name, because the suffix is random."""
    return (labels or {}).get("job-name", name) if not name.startswith(f"{NAME}-") else name
