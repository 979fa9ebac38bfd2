"""What containers do, drawn from a seed: how long each run lasts, and how it ends.

A pod template names its temper in an annotation, so that jobs can be made of which it is known that they come to rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from simulation.restart_rules import After, after_exit

if TYPE_CHECKING:
    from random import Random

TEMPER: Final = "simulation/temper"
"""The annotation with one of the next five."""
STEADY: Final = "steady"  # succeeds at the first try
RETRYING: Final = "retrying"  # is ended by signals, then succeeds
FLAKY: Final = "flaky"  # may end in any way, then succeeds
BROKEN: Final = "broken"  # fails more often than any limit allows, for jobs with a limit; then never ends
ENDLESS: Final = "endless"  # never ends

SIDECAR: Final = "simulation/sidecar"
"""The annotation of a pod with a second container, with one of the next three."""
STAYING: Final = "staying"
ENDING: Final = "ending"
FAILING: Final = "failing"

MOST_TRIES: Final = 3
"""A replica that failed, or was taken away, so often does its work the next time."""
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
"""Reasons for which kubelets turn pods away; nobody has ever heard of the last one."""
SIDECAR_NAMES: Final = frozenset({"sidecar", "proxy"})
TENSORFLOW: Final = "tensorflow"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a container: it ends after a while, by itself or because its node wants it gone."""

    seconds: float
    exit_code: int | None
    """None: never."""
    evicted: bool = False
    reason: str = ""
    """Why, if there is more to it than an exit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a container does on SIGTERM: it ends after a while; None: it takes no notice."""

    seconds: float
    exit_code: int | None


class Script:
    """What containers do, drawn from a seed. Others inherit, and say it themselves."""

    def run(self, random: Random, pod: dict[str, Any], name: str, tries: int) -> Run:
        """The next run of a container; `tries` counts the runs that this replica has had before, in all of its pods."""
        if name == TENSORFLOW:
            return next_run(random, pod, tries)
        if name == "prepare":
            return Run(random.uniform(0.1, 2.0), 0)
        if name == "proxy":  # a native sidecar, which may crash once
            return Run(random.uniform(0.5, LONGEST_RUN_S), 1 if random.random() < 0.3 else None)
        manner = pod["metadata"]["annotations"][SIDECAR]
        codes = {STAYING: None, ENDING: 0, FAILING: 1}
        return Run(random.uniform(0.5, 1.5 * LONGEST_RUN_S), codes[manner])

    def on_sigterm(self, random: Random, pod: dict[str, Any], name: str) -> Answer:
        """How a container answers to being told to end. Some save their work and exit with 0, which is no success."""
        if name in SIDECAR_NAMES:
            return Answer(random.uniform(0.0, 1.0), random.choice((0, 0, 143)))
        return Answer(random.uniform(0.0, 3.0), random.choice((143, 137, 1, 0, 0, 0, 0, None)))

    def rejection(self, random: Random, pod: dict[str, Any], tries: int) -> str:
        """Why the kubelet turns the pod away; mostly it does not."""
        return random.choice(REJECTIONS) if tries < MOST_TRIES and random.random() < 0.03 else ""

    def starts_though_deleted(self, random: Random) -> bool:
        """Whether a pod that is deleted before it has started is being started all the same."""
        return random.random() < 0.5

    def is_hurried(self, random: Random) -> bool:
        """Whether something passes so fast that the server is told of what comes after it alone."""
        return random.random() < 0.3

    def loses_exit_codes(self, random: Random) -> bool:
        """Whether an old kubelet forgets how the containers of a deleted pod have ended."""
        return random.random() < 0.2


def next_run(random: Random, pod: dict[str, Any], tries: int) -> Run:
    """Draw a run of a pod's container `tensorflow`."""
    temper = (pod["metadata"].get("annotations") or {}).get(TEMPER, STEADY)
    seconds = random.uniform(0.5, LONGEST_RUN_S)
    if tries < MOST_TRIES and random.random() < 0.08:
        return Run(seconds, None, evicted=True)
    patient = tries < MOST_TRIES
    match temper:
        case "retrying" if patient:
            return Run(seconds, random.choice((137, 143, 130, 138, 0)))
        case "flaky" if patient:
            return Run(seconds, random.choice((0, 0, 0, 137, 143, 1, 2)))
        case "broken":
            return Run(seconds, random.choice((137, 137, 138, 1)) if tries < TOO_MANY_TRIES else None)
        case "endless":
            return Run(seconds, None)
        case _:
            # What is always started again when it ends would never come to rest.
            ends = patient or after_exit(pod, TENSORFLOW, 0) is After.LEFT
            return Run(seconds, 0 if ends else None)
