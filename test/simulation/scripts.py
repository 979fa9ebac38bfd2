"""What containers do, drawn from a seed: how long each run lasts, and how it ends.

A pod template names its temper in an annotation, so that jobs can be made of which it is known that they come to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the container `tensorflow`: it ends after a while, by itself or because its node wants it gone."""

    seconds: float
    exit_code: int | None
    """None: never."""
    evicted: bool = False


Script = Callable[["Random", dict[str, Any], int], Run]
"""Answers the next run of a container: with which source of chance, of which pod, and how many its replica has had before."""


def next_run(random: Random, pod: dict[str, Any], tries: int) -> Run:
    """Draw a run of a pod's container; `tries` counts the runs that this replica has had before, in all of its pods."""
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
            ends = patient or pod["spec"].get("restartPolicy") != "Always"
            return Run(seconds, 0 if ends else None)
