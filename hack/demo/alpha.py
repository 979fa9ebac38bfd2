"""The last act: jobs of the two alpha APIs, which become Jobs and services with the names that old guides show."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from hack.demo.stage import EXAMPLES, DemoError, Stage

FILES: Final = ("parameter-servers.yaml", "gpu.yaml", "tensorflow-org.yaml", "tensorboard.yaml")
_CREATED: Final = re.compile(r"(tfjob)\.((?:kubeflow|tensorflow)\.org)/(\S+) created")
LIMIT_S: Final = 60  # the longest takes five seconds; a busy machine may be ten times slower


class Alpha:
    """The act. Every method raises DemoError when what it waits for does not happen."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def play(self) -> None:
        """Create the jobs, wait until each has succeeded, show what was made of them, and delete them."""
        kubectl = self._stage.kubectl
        jobs = [await self._create(file) for file in FILES]
        for job in jobs:
            await kubectl("wait", job, "--for=condition=Succeeded", f"--timeout={LIMIT_S}s", show=True)
        await kubectl("get", "tfjobs.v1alpha1.kubeflow.org,tfjobs.tensorflow.org,jobs.batch,services", show=True)
        await kubectl("get", jobs[0], "-o", "yaml", show=True, only="\nstatus:")
        for job in jobs:
            await kubectl("delete", job, show=True)
        await self._until_collected()

    async def _create(self, file: str) -> str:
        """Create an example's job. Return it as kubectl names it."""
        created = await self._stage.kubectl("create", "-f", str(EXAMPLES / "migration" / "v1alpha1" / file), show=True)
        match = _CREATED.search(created)
        if match is None:
            raise DemoError(f"kubectl did not create {file}: {created}")
        kind, group, name = match.groups()
        return f"{kind}s.{group}/{name}"

    async def _until_collected(self) -> None:
        """Wait until the garbage collector has deleted the Jobs and their pods."""
        left = ""
        for _ in range(LIMIT_S):
            left = await self._stage.kubectl("get", "jobs.batch,pods", "-o", "name")
            if not left:
                return
            await asyncio.sleep(1.0)
        raise DemoError(f"not collected: {left}")
