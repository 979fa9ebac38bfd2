"""What all acts of the demo share: kubectl, the demo's own view of the cluster, and the teller."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from hack.control_plane import ControlPlane
from tfjob_operator.api.core import PODS, SERVICES, ContainerStatus
from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1.constants import CHILD_SELECTOR, TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory, Tombstone, object_of

# What goes wrong in a demo.


class DemoError(Exception):
    """Something did not go as it should."""


# What a person calls the state of a job or a pod. Pure.


def state_of_job(job: TFJob) -> str:
    """Return the last condition with its message, as the STATE column shows it; empty while there is none."""
    if not job.status.conditions:
        return ""
    last = job.status.conditions[-1]
    return f"{last.type:<11}{last.message}"


def state_of_pod(pod: Pod) -> str:
    """Return the phase with why containers wait, how they ended or how often they restarted; or that the pod is terminating."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    notes = [note for status in pod.status.container_statuses or () if (note := _note(status))]
    if pod.status.reason:
        notes.insert(0, pod.status.reason)
    return f"{pod.status.phase:<11}{', '.join(notes)}".rstrip()


def _note(status: ContainerStatus) -> str:
    state = status.state
    restarts = f"restart {status.restart_count}" if status.restart_count else ""
    if state.terminated is not None:
        return f"{status.name} exited with {state.terminated.exit_code}"
    if state.waiting is not None:
        return f"{status.name} waits: {state.waiting.reason}"
    return f"{status.name} {restarts}" if restarts else ""


# Prints one line for each change of state that the API server shows, through the project's own informers.


O = TypeVar("O", TFJob, Pod)  # noqa: E741 - an object


class Teller:
    """Prints lines with the seconds since the demo began, and wakes whoever waits for a change."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._changed = asyncio.Event()

    def say(self, text: str = "") -> None:
        """Print a line."""
        print(f"{time.monotonic() - self._began:6.1f}s  {text}" if text else "", flush=True)

    def tell(self, subject: str, state: str) -> None:
        """Print a change of state."""
        self.say(f"{subject:<34} {state}")
        self._changed.set()

    async def wait_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `done` returns true; it is called after each change. Return False when `limit_s` seconds have passed."""
        try:
            async with asyncio.timeout(limit_s):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True


class ToldHandler(Generic[O]):
    """Prints every object whose state differs from what was printed last."""

    def __init__(
        self, teller: Teller, kind: str, informer: SharedIndexInformer[O], state_of: Callable[[O], str]
    ) -> None:
        self._teller = teller
        self._kind = kind
        self._state_of: Callable[[O], str] = state_of
        self._told: dict[str, str] = {}
        informer.add_event_handler(self)

    def on_add(self, item: O, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Print a new object."""
        self._look(item)

    def on_update(self, _old: O, new: O, /) -> None:
        """Print a change that a person would notice."""
        self._look(new)

    def on_delete(self, gone: O | Tombstone[O], /) -> None:
        """Print that an object is deleted."""
        key = meta_key(object_of(gone).metadata)
        self._told.pop(key, None)
        self._teller.tell(f"{self._kind} {key}", "gone")

    def _look(self, item: O) -> None:
        key, state = meta_key(item.metadata), self._state_of(item)
        if state and self._told.get(key) != state:
            self._told[key] = state
            self._teller.tell(f"{self._kind} {key}", state)


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
