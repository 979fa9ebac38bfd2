"""What becomes of pods: the truth about each, and what its kubelet knows of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from simulation.model.storage import Body, Key
    from simulation.slots import Slot

State = dict[str, Any]
"""The state of a container as a pod's status shows it."""


class End(enum.Enum):
    """How the work of a pod ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


@dataclass(slots=True)
class Fate:
    """What is true of a pod, as far as the server was told. `leaving`: it was being deleted already when it ended."""

    uid: str
    owner: str
    slot: Slot
    runs: bool = False
    in_place: int = 0
    end: End | None = None
    exit_code: int | None = None
    ended_at: float = 0.0
    leaving: bool = False

    @property
    def counts(self) -> bool:
        """Whether this end is one of those that `backoffLimit` limits: the container's own doing, of its own accord."""
        return self.end is End.FAILED and not self.leaving


@dataclass(slots=True)
class Container:
    """A container, as its pod's status shows it."""

    state: State
    restarts: int = 0

    @property
    def exit_code(self) -> int | None:
        """None while it has not ended."""
        terminated = self.state.get("terminated")
        return terminated["exitCode"] if terminated else None


@dataclass(slots=True)
class Life:
    """One pod on its way. `held`: the step that waits for its node to come back."""

    key: Key
    pod: Body
    fate: Fate
    node: str = ""
    containers: dict[str, Container] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    held: Callable[[], None] | None = None
    leaving: bool = False
    done: bool = False
    """Nothing is left for a kubelet to do: a deletion needs no consent."""

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """`containerStatuses`."""
        return [
            {"name": name, "restartCount": container.restarts, "state": container.state}
            for name, container in self.containers.items()
        ]

    @property
    def phase(self) -> str:
        """The pod's phase, if its containers decide it."""
        codes = [container.exit_code for container in self.containers.values()]
        if None in codes:
            return "Running"
        return "Failed" if any(codes) else "Succeeded"
