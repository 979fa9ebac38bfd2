"""Recorded histories of pods with real servers and kubelets (test/data/recordings)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

FOLDER: Final = Path(__file__).parents[1] / "data" / "recordings"
VERSIONS: Final = ("1.20.2", "1.36.3")
"""The versions with histories of pods and with recorded requests (`pods` and `api`)."""

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One line of a history: a watch event (`type` and `object`), or an `action` of the tester."""

    t: float
    type: str = ""
    object: dict[str, Any] | None = None
    action: str = ""
    sent: dict[str, Any] | None = None


@dataclass(frozen=True)
class Life:
    """One pod of a history, from its first event: its manifest as sent, and its events."""

    manifest: dict[str, Any]
    steps: tuple[Step, ...]

    @property
    def events(self) -> tuple[Step, ...]:
        """The watch events."""
        return tuple(step for step in self.steps if step.object is not None)


@dataclass(frozen=True)
class History:
    """The history of one pod, or of several with one name. `about` describes how it was recorded."""

    version: str
    scenario: str
    about: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """Its key in tables with different entries per version."""
        return f"{self.version}/{self.scenario}"

    @property
    def lives(self) -> list[Life]:
        """The pods, in the order of their creation; an action belongs to the pod seen last."""
        manifest: dict[str, Any] = {}
        lives: dict[str, tuple[dict[str, Any], list[Step]]] = {}
        uid = ""
        for step in self.steps:
            if step.sent is not None:
                manifest = step.sent
                continue
            if step.object is not None:
                uid = step.object["metadata"]["uid"]
                lives.setdefault(uid, (manifest, []))
            if uid:
                lives[uid][1].append(step)
        return [Life(sent, tuple(steps)) for sent, steps in lives.values()]

    def entry(self, table: Mapping[str, T]) -> T | None:
        """Return its entry in a table: by version and scenario, else by the scenario; None if there is none."""
        return table.get(self.name, table.get(self.scenario))


@cache
def histories() -> tuple[History, ...]:
    """Return all histories, sorted by version and name."""
    return tuple(_read(version, path) for version in VERSIONS for path in _files(version, "pods"))


def api_groups() -> list[tuple[str, Path]]:
    """Return the files of recorded requests and responses, each with its version."""
    return [(version, path) for version in VERSIONS for path in _files(version, "api")]


def chapter_file(version: str, chapter: str) -> Path:
    """Return the path of the transcript of a conformance chapter."""
    return FOLDER / version / "conformance" / f"{chapter}.json.gz"


def texts_file(version: str, kind: str) -> Path:
    """Return the path of a server's `refusals`, or of its `scheduling` messages."""
    return FOLDER / version / f"{kind}.json"


def texts(version: str, kind: str) -> dict[str, str]:
    """Return the messages of a server or scheduler of this version, by case."""
    found: dict[str, str] = msgspec.json.decode(texts_file(version, kind).read_bytes())
    return found


@dataclass(frozen=True)
class Seen:
    """A watch event beside Kueue: its `resource`, and the object at that time."""

    t: datetime
    event: str
    resource: str
    object: dict[str, Any]


@cache
def kueue(name: str) -> tuple[Seen, ...]:
    """Return the events beside Kueue 0.19.2 in order; `name` is a file name."""
    _, *lines = (FOLDER / "kueue-0.19.2" / f"{name}.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Seen) for line in lines)


def _files(version: str, kind: str) -> list[Path]:
    return sorted((FOLDER / version / kind).glob("*.jsonl"))


def _read(version: str, path: Path) -> History:
    head, *lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    steps = [msgspec.convert(line, Step) for line in lines]
    return History(version, path.stem, head["about"], tuple(steps))
