"""Recorded histories of pods: what real servers and kubelets did, event by event (test/data/recordings)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER: Final = Path(__file__).parents[1] / "data" / "recordings"
VERSIONS: Final = ("1.20.2", "1.36.3")


@dataclass(frozen=True)
class Step:
    """One line of a history: an event of the watch (`type` and `object`), or what the tester did (`action`)."""

    t: float
    type: str = ""
    object: dict[str, Any] | None = None
    action: str = ""
    sent: dict[str, Any] | None = None


@dataclass(frozen=True)
class History:
    """What became of one pod. `about` says how it was made."""

    version: str
    scenario: str
    about: str
    steps: tuple[Step, ...]

    @property
    def events(self) -> list[Step]:
        """The events of the watch."""
        return [step for step in self.steps if step.object is not None]


@cache
def histories(version: str) -> tuple[History, ...]:
    """All histories of one version of Kubernetes, by their names."""
    return tuple(_read(version, path) for path in sorted((FOLDER / version / "pods").glob("*.jsonl")))


def history(version: str, scenario: str) -> History:
    """One history. Raises LookupError."""
    found = next((each for each in histories(version) if each.scenario == scenario), None)
    if found is None:
        raise LookupError(f"nobody recorded {scenario} on {version}")
    return found


def _read(version: str, path: Path) -> History:
    head, *lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    steps = [msgspec.convert(line, Step) for line in lines]
    return History(version, path.stem, head["about"], tuple(steps))
