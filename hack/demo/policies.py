"""The second act: restarts and failures, suspension, scaling and a TTL, as a user causes and sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hack.demo.stage import DemoError, Stage
from tfjob_operator.api.core import PodPhase
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.tfjob.plan.replicas import key_of_labels

ENDS: Final = {
    "killed-once": ConditionType.SUCCEEDED,
    "fails": ConditionType.FAILED,
    "all-workers": ConditionType.SUCCEEDED,
    "sleeper": ConditionType.SUCCEEDED,
    "elastic": ConditionType.SUCCEEDED,
}
FILES: Final = (
    "07-exit-code.yaml",
    "08-failure.yaml",
    "09-all-workers.yaml",
    "10-suspend.yaml",
    "11-elastic.yaml",
    "12-ttl.yaml",
)
NAMESPACE: Final = "default"
LIMIT_S: Final = 60.0  # the longest step takes twelve seconds; a busy machine may be several times slower


class Policies:
    """The act. Every method raises DemoError when what it waits for does not happen."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def play(self) -> None:
        """Create the jobs, do to them what a user would, and wait until each has ended as it should."""
        for file in FILES:
            await self._stage.create(file)
        await self._until(
            "sleeper", lambda job: conditions.is_true(job.status, ConditionType.SUSPENDED), "suspended from the start"
        )
        await self._suspend("sleeper", suspend=False)
        await self._until_running("elastic", 2)
        await self._stage.kubectl("scale", "tfjob", "elastic", "--replicas=4", show=True)
        await self._until_running("elastic", 4)
        await self._stage.kubectl("scale", "tfjob", "elastic", "--replicas=1", show=True)
        await self._until_running("elastic", 1)
        await self._until_running("sleeper", 2)
        await self._suspend("sleeper", suspend=True)
        await self._until("sleeper", lambda job: conditions.is_true(job.status, ConditionType.SUSPENDED), "suspended")
        await self._until_running("sleeper", 0)
        await self._suspend("sleeper", suspend=False)
        for name, end in ENDS.items():
            await self._until(name, lambda job: conditions.is_finished(job.status), "at its end")
            job = self._job(name)
            if job is None or not conditions.is_true(job.status, end):
                raise DemoError(f"{name} should have {end.lower()}")
        await self._gone("short-lived")
        await self._stage.kubectl("get", "tfjobs", f"--namespace={NAMESPACE}", show=True)
        for name in ("killed-once", "fails", "elastic"):
            await self._stage.kubectl("describe", "tfjob", name, show=True, only="Status:")

    async def _suspend(self, name: str, *, suspend: bool) -> None:
        patch = f'{{"spec":{{"runPolicy":{{"suspend":{str(suspend).lower()}}}}}}}'
        await self._stage.kubectl("patch", "tfjob", name, "--type=merge", f"--patch={patch}", show=True)

    async def _until(self, name: str, holds: Callable[[TFJob], bool], what: str) -> None:
        def is_so() -> bool:
            job = self._job(name)
            return job is not None and holds(job)

        if not await self._stage.teller.wait_until(is_so, LIMIT_S):
            raise DemoError(f"{name} is not {what} after {LIMIT_S:.0f} s")

    async def _until_running(self, name: str, workers: int) -> None:
        if not await self._stage.teller.wait_until(lambda: self._running(name) == workers, LIMIT_S):
            raise DemoError(f"{name} has {self._running(name)} running workers after {LIMIT_S:.0f} s, not {workers}")

    def _running(self, name: str) -> int:
        return sum(
            (key := key_of_labels(name, pod.metadata)) is not None
            and key.type == c.WORKER
            and pod.metadata.label_map().get(c.LABEL_JOB_NAME) == name
            and pod.status.phase == PodPhase.RUNNING
            for pod in self._stage.pods.indexer.list()
        )

    async def _gone(self, name: str) -> None:
        if not await self._stage.teller.wait_until(lambda: self._job(name) is None, LIMIT_S):
            raise DemoError(f"{name} is still there {LIMIT_S:.0f} s after its TTL")

    def _job(self, name: str) -> TFJob | None:
        return self._stage.jobs.indexer.get(f"{NAMESPACE}/{name}")
