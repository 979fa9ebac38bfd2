"""What all acts of the demo share: kubectl, the demo's own view of the cluster, and the teller."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Final

from hack.control_plane import ControlPlane
from hack.demo.errors import DemoError
from hack.demo.states import state_of_job, state_of_pod
from hack.demo.teller import Teller, ToldHandler
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.v1.constants import CHILD_SELECTOR, TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory

EXAMPLES: Final = Path("manifests/examples")


class Stage:
    """One control plane with the operator at work. The informers are the demo's own, beside the operator's."""

    def __init__(self, plane: ControlPlane, teller: Teller, factory: SharedInformerFactory) -> None:
        self._plane = plane
        self.teller = teller
        self.jobs: SharedIndexInformer[TFJob] = factory.informer(Codec(TFJOBS, TFJob))
        self.pods: SharedIndexInformer[Pod] = factory.informer(Codec(PODS, Pod), label_selector=CHILD_SELECTOR)
        self.services: SharedIndexInformer[Service] = factory.informer(
            Codec(SERVICES, Service), label_selector=CHILD_SELECTOR
        )
        ToldHandler(teller, "tfjob", self.jobs, state_of_job)
        ToldHandler(teller, "pod", self.pods, state_of_pod)

    async def create(self, example: str) -> str:
        """Create an example's job; return its name. Raises DemoError when kubectl prints something else."""
        created = await self.kubectl("create", "-f", str(EXAMPLES / example))
        self.teller.say(created.strip())
        match = re.search(r"tfjob\.kubeflow\.org/(\S+) created", created)
        if match is None:
            raise DemoError(f"kubectl did not create {example}: {created}")
        return match[1]

    async def kubectl(self, *arguments: str, show: bool = False, only: str = "") -> str:
        """Run kubectl and return what it prints; `show` prints it, from the text `only` on if that is given."""
        self.teller.say()
        self.teller.say(f"$ kubectl {shlex.join(arguments)}")
        done = await asyncio.to_thread(self._plane.run_kubectl, *arguments)
        text = done.stdout[done.stdout.find(only) :] if only else done.stdout
        if show:
            print(text, flush=True)
        return done.stdout
