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

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One line of a history: an event of the watch (`type` and `object`), or what the tester did (`action`)."""

    t: float
    type: str = ""
    object: dict[str, Any] | None = None
    action: str = ""
    sent: dict[str, Any] | None = None


@dataclass(frozen=True)
class Life:
    """One pod of a history, from its first event on: its manifest as it was sent, and what became of it."""

    manifest: dict[str, Any]
    steps: tuple[Step, ...]

    @property
    def events(self) -> tuple[Step, ...]:
        """The events of the watch."""
        return tuple(step for step in self.steps if step.object is not None)


@dataclass(frozen=True)
class History:
    """What became of one pod, or of several of one name. `about` says how it was made."""

    version: str
    scenario: str
    about: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """Its key in tables that tell versions apart."""
        return f"{self.version}/{self.scenario}"

    @property
    def lives(self) -> list[Life]:
        """Each pod by itself, in the order of their creation; an action belongs to the pod that was seen last."""
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
        """What a table has for it: by version and scenario, else by the scenario alone; None if it has nothing."""
        return table.get(self.name, table.get(self.scenario))


@cache
def histories() -> tuple[History, ...]:
    """All histories, sorted by version and name."""
    return tuple(_read(version, path) for version in VERSIONS for path in _files(version, "pods"))


def api_groups() -> list[tuple[str, Path]]:
    """The files of recorded requests and responses, each with its version."""
    return [(version, path) for version in VERSIONS for path in _files(version, "api")]


def chapter_file(version: str, chapter: str) -> Path:
    """Where the transcript of a conformance chapter is."""
    return FOLDER / version / "conformance" / f"{chapter}.json"


def texts_file(version: str, kind: str) -> Path:
    """Where the `refusals` of a server are kept, or the messages of its `scheduling`."""
    return FOLDER / version / f"{kind}.json"


def texts(version: str, kind: str) -> dict[str, str]:
    """What a server or scheduler of this version says, by the case."""
    found: dict[str, str] = msgspec.json.decode(texts_file(version, kind).read_bytes())
    return found


@dataclass(frozen=True)
class Seen:
    """One event of a watch beside Kueue: of which `resource`, and the object as it was then."""

    t: datetime
    event: str
    resource: str
    object: dict[str, Any]


@cache
def kueue(name: str) -> tuple[Seen, ...]:
    """What happened beside Kueue 0.19.2, in the order of events; `name` is that of a file."""
    _, *lines = (FOLDER / "kueue-0.19.2" / f"{name}.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Seen) for line in lines)


def _files(version: str, kind: str) -> list[Path]:
    return sorted((FOLDER / version / kind).glob("*.jsonl"))


def _read(version: str, path: Path) -> History:
    head, *lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    steps = [msgspec.convert(line, Step) for line in lines]
    return History(version, path.stem, head["about"], tuple(steps))
