"""Random scripts of containers: how long each run takes, and how it ends.

A pod template names its temper in an annotation, so that some jobs are known to reach a final state.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from hack.hollow_node.containers import After, after, end_of
from hack.hollow_node.objects import HollowPod, Running, Terminated
from hack.hollow_node.script import SIGKILL_EXIT, STATUS_UNKNOWN, Outcome, Run
from hack.kubernetes_versions import EXIT_CODES_SURVIVE_DELETION, NEWEST, Kubernetes
from simulation.ends import restarts_always

TEMPER: Final = "simulation/temper"
"""The annotation with one of the next six values."""
STEADY: Final = "steady"  # succeeds at the first attempt
RETRYING: Final = "retrying"  # is killed by signals, then succeeds
FLAKY: Final = "flaky"  # ends in any way, then succeeds
BROKEN: Final = "broken"  # fails more often than any limit, for jobs with a limit; then runs forever
ENDLESS: Final = "endless"  # runs forever
STUCK: Final = "stuck"  # is never scheduled

SIDECAR: Final = "simulation/sidecar"
"""The annotation of a pod with a second container, with one of the next three values."""
STAYING: Final = "staying"  # a proxy
ENDING: Final = "ending"
FAILING: Final = "failing"

MOST_TRIES: Final = 3
"""A replica that failed or was disrupted this often succeeds next time."""
TOO_MANY_TRIES: Final = 9
LONGEST_RUN_S: Final = 15.0

REJECTIONS: Final = (
    "OutOfcpu",
    "OutOfmemory",
    "NodeAffinity",
    "UnexpectedAdmissionError",
    "NodeShutdown",
    "Unforeseen",
)
"""Reasons with which kubelets reject pods; the last one does not exist."""
EVICTIONS: Final = ("Evicted", "Evicted", "Evicted", "Preempting")
"""Reasons in the status of a pod that its kubelet evicted."""
SIDECAR_NAMES: Final = frozenset({"sidecar", "proxy"})
TENSORFLOW: Final = "tensorflow"


def exits(seconds: float, code: int | None, reason: str = "") -> Run:
    """A run, or a response to SIGTERM, that ends after `seconds` with a code; with None it lasts until SIGKILL."""
    return Run(math.inf) if code is None else Run(seconds, exit_code=code, reason=reason)


class Script:
    """What containers do, drawn from a seed. Subclasses override it."""

    def run(self, random: Random, pod: HollowPod, name: str, tries: int) -> Run:
        """Return the next run of a container; `tries` is the number of earlier runs of this replica, in all pods."""
        if name == TENSORFLOW:
            return next_run(random, pod, tries)
        if name == "prepare":
            return exits(random.uniform(0.1, 2.0), 0)
        if name == "proxy":  # a native sidecar, which may crash once
            return exits(random.uniform(0.5, LONGEST_RUN_S), 1 if random.random() < 0.3 else None)
        manner = (pod.metadata.annotations or {})[SIDECAR]
        codes = {STAYING: None, ENDING: 0, FAILING: 1}
        # It outlives most trainings, now and then by more than pods are kept for it.
        return exits(random.uniform(0.5, random.choice((1.5, 1.5, 4.0)) * LONGEST_RUN_S), codes[manner])

    def on_sigterm(self, random: Random, name: str) -> Run:
        """Return how a container responds to SIGTERM. Some save their work and exit with 0, which is not a success."""
        if name in SIDECAR_NAMES:
            return exits(random.uniform(0.0, 1.0), random.choice((0, 0, 143, 143, 143, None)))
        return exits(random.uniform(0.0, 3.0), random.choice((143, 137, 1, 0, 0, 0, 0, None)))

    def rejection(self, random: Random, tries: int) -> str:
        """Return the reason with which the kubelet rejects the pod, usually ""."""
        return random.choice(REJECTIONS) if tries < MOST_TRIES and random.random() < 0.03 else ""


def next_run(random: Random, pod: HollowPod, tries: int) -> Run:
    temper = (pod.metadata.annotations or {}).get(TEMPER, STEADY)
    seconds = random.uniform(0.5, LONGEST_RUN_S)
    if tries < MOST_TRIES and random.random() < 0.08:
        return Run(seconds, Outcome.EVICTED, reason=random.choice(EVICTIONS))
    patient = tries < MOST_TRIES
    match temper:
        case "retrying" if patient:
            return exits(seconds, random.choice((137, 143, 130, 138, 0)))
        case "flaky" if patient:
            return exits(seconds, random.choice((0, 0, 0, 137, 143, 1, 2)))
        case "broken":
            return exits(seconds, random.choice((137, 137, 138, 1)) if tries < TOO_MANY_TRIES else None)
        case "endless":
            return exits(seconds, None)
        case _:
            # A job with a container that is restarted after success would never reach a final state.
            return exits(seconds, 0 if patient or _is_left(pod) else None)


def _is_left(pod: HollowPod) -> bool:
    """Whether the container is not restarted after a success; the server has dropped policies unknown to its version."""
    mine = next(each for each in pod.spec.containers if each.name == TENSORFLOW)
    left = after(Terminated(exit_code=0), mine, pod.spec.restart_policy, NEWEST, init=False) is After.NOTHING
    return left and not restarts_always(pod, TENSORFLOW)


class DrawnScript:
    """What the containers of one pod do: each run and each response to SIGTERM is drawn when first needed."""

    def __init__(
        self, script: Script, random: Random, pod: HollowPod, count: Callable[[str], int], kubernetes: Kubernetes
    ) -> None:
        """`count` returns the number of earlier tries of a container, and increments it."""
        self._script = script
        self._random = random
        self._pod = pod
        self._count = count
        self._runs: dict[tuple[str, int], Run] = {}
        self._stops: dict[str, Run] = {}
        self._may_lose = not kubernetes.has(EXIT_CODES_SURVIVE_DELETION)

    def run(self, container: str, index: int) -> Run:
        found = self._runs.get((container, index))
        if found is None:
            found = self._runs[container, index] = self._draw(container)
        return found

    def _draw(self, container: str) -> Run:
        tries = self._count(container)
        if not self._runs and (why := self._script.rejection(self._random, tries)):
            return Run(outcome=Outcome.REJECTED, reason=why)
        return self._script.run(self._random, self._pod, container, tries)

    def stop(self, container: str) -> Run:
        """Return what a container does on SIGTERM. Old kubelets may lose its exit code, and then those of the whole pod."""
        if not self._stops and self._may_lose:
            self._may_lose = self._random.random() < 0.2
        found = self._stops.get(container)
        if found is None:
            lost = Run(0.0, exit_code=SIGKILL_EXIT, reason=STATUS_UNKNOWN)
            found = lost if self._may_lose else self._script.on_sigterm(self._random, container)
            self._stops[container] = found
        return found

    def has_ended_so(self, container: str, index: int, end: Terminated) -> bool:
        """Whether the run of a container after `index` restarts ended like this by itself."""
        if end.started_at is None or end.reason == STATUS_UNKNOWN:
            return False
        run = self.run(container, index)
        return run.outcome is Outcome.EXIT and end.finished_at == end_of(Running(started_at=end.started_at), run)


class HungryScript(Script):
    """Some processes that would be killed run out of memory."""

    def run(self, random: Random, pod: HollowPod, name: str, tries: int) -> Run:
        found = super().run(random, pod, name, tries)
        return replace(found, reason="OOMKilled") if found.exit_code == 137 and random.random() < 0.3 else found


class AlphaScript(Script):
    """A process killed by the OOM killer exits with 137, like one killed by someone else.

    The containers that follow it never end, so the final state shows whether the operator confused the two.
    """

    def __init__(self) -> None:
        self._short: set[str] = set()
        """UIDs of the Jobs that ran out of memory."""

    def run(self, random: Random, pod: HollowPod, name: str, tries: int) -> Run:
        if name == TENSORFLOW and TEMPER not in (pod.metadata.annotations or {}):
            return exits(0.0, None)
        found = super().run(random, pod, name, tries)
        if name != TENSORFLOW:
            return found
        owner = (pod.metadata.owner_references or ())[0].uid
        if owner in self._short:
            return exits(0.0, None)
        if found.exit_code == 137 and not found.reason and random.random() < 0.3:
            self._short.add(owner)
            return replace(found, reason="OOMKilled")
        return found
