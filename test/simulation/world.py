"""The world of a seed of this project's scenarios: the kit's, with TFJobs and a Kubernetes version of the seed."""

from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Final

from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from kit import world
from kit.faults import Faults
from simulation.kinds import KINDS_WITH_TFJOBS

Scenario = Callable[["World"], Coroutine[object, object, None]]

OPERATORS: Final = ("operator-0", "operator-1")
"""The machines of the operators."""


class World(world.World):
    """Everything that a scenario needs. `kubernetes` is the version of the whole cluster."""

    def __init__(self, seed: int, *, faults: Faults | None = None, kubernetes: Kubernetes | None = None) -> None:
        """Faults and version come from the seed by default."""
        self.kubernetes = kubernetes or _drawn_version(seed)
        super().__init__(seed, faults=faults, kinds=KINDS_WITH_TFJOBS, kubernetes=self.kubernetes.minor)


def _drawn_version(seed: int) -> Kubernetes:
    """Return the Kubernetes version of a seed's cluster: usually one of four with the largest differences."""
    random = Random(f"kubernetes {seed}")
    minors = (20, 27, 33, 36) if random.random() < 0.8 else range(OLDEST.minor, NEWEST.minor + 1)
    return Kubernetes(random.choice(minors))


def run_seed(
    scenario: Scenario, seed: int, *, faults: Faults | None = None, kubernetes: Kubernetes | None = None
) -> list[str]:
    """Play a scenario with a seed, and return its trace. Raises what the scenario raises."""
    return world.run_seed(scenario, seed, partial(World, seed, faults=faults, kubernetes=kubernetes))
