"""What the containers of the alpha dialect do: the same as those of other jobs, and some run out of memory; PS never end."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hack.hollow_node.objects import HollowPod
from hack.hollow_node.script import Run
from simulation.scripts import TEMPER, TENSORFLOW, Script, exits


class AlphaScript(Script):
    """A process that the kernel kills for its memory leaves 137, as one that others kill does.

    The containers after it never end. So it shows at rest whether the operator mistook one of these ends for the other.
    """

    def __init__(self) -> None:
        self._short: set[str] = set()
        """UIDs of the Jobs that have run out of memory."""

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
