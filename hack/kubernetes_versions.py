"""The differences between Kubernetes 1.20 and 1.37 that matter to this project: one row per change, in kubernetes_versions.csv.

The models (hollow node, simulated kubelet, model of the API server, model checker) ask a version whether it `has` a change, so
each model can behave like any version: `from hack.kubernetes_versions import STREAMING_LISTS`. Columns of the table:

- since: the first minor version that has the change, in its newest patch release with default feature gates.
- without: later minor versions that lack it because it was disabled or replaced: `33` or `34-36`.
- known: how we know of the change. `read`: in the sources of 1.25 to 1.36 or, if older or newer, in upstream's pull requests,
  issues and changelogs. `seen`: in a difference between tested versions, in their recordings (`test/data/recordings`) or in
  a test that asks for the row.
- source: the upstream pull request or KEP, or the source file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Change:
    """One change in behavior: a row of the table."""

    since: int
    component: str
    what: str
    source: str
    known: tuple[str, ...]
    without: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Kubernetes:
    """A version of Kubernetes, identified by its minor number."""

    minor: int

    def has(self, change: Change) -> bool:
        """Return True if this version has the change."""
        return self.minor >= change.since and self.minor not in change.without

    def __str__(self) -> str:
        return f"1.{self.minor}"

    @staticmethod
    def parse(text: str) -> Kubernetes:
        """Parse `1.33`, `v1.36.3` or any other version that `/version` reports. Raises ValueError."""
        match = re.match(r"v?1\.(\d+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a version of Kubernetes such as 1.33")
        return Kubernetes(int(match[1]))


OLDEST: Final = Kubernetes(20)
NEWEST: Final = Kubernetes(36)
"""The versions that the models imitate: the oldest and the newest tested one, and all between them."""
OLDEST_SUPPORTED: Final = Kubernetes(25)
TESTED: Final = (
    "1.20.2",
    "1.25.10",
    "1.26.5",
    "1.27.7",
    "1.28.3",
    "1.29.1",
    "1.30.1",
    "1.31.14",
    "1.32.13",
    "1.33.13",
    "1.34.9",
    "1.35.6",
    "1.36.3",
)
"""The versions that tests ran on, oldest first; each has recordings and a row in docs/compatibility.md."""
UNTESTED: Final = Kubernetes(37)
"""Known from its release notes and from the `kubernetes` package of the same number; no test runs its programs."""
SUPPORTED: Final = f"{OLDEST_SUPPORTED} to {NEWEST}"
"""The supported versions, as all pages write them."""


def _changes() -> dict[str, Change]:
    found = {}
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            first, _, last = row["without"].partition("-")
            without = tuple(range(int(first), int(last or first) + 1)) if first else ()
            known = tuple(row["known"].split())
            found[row["name"]] = Change(int(row["since"]), row["component"], row["what"], row["source"], known, without)
    return found


CHANGES: Final = _changes()
"""All rows by name, in the order of the table."""


def __getattr__(name: str) -> Change:
    """Return a row as an attribute of this module."""
    try:
        return CHANGES[name]
    except KeyError:
        raise AttributeError(f"{name} is not a row of kubernetes_versions.csv") from None


def support() -> str:
    """Return the table of docs/compatibility.md that says which versions are supported, and how each is tested."""
    oldest, *_ = TESTED
    last_before = Kubernetes(OLDEST_SUPPORTED.minor - 1)
    rows = (
        (SUPPORTED, "supported; the next table shows what ran on which of them, and the sources of all were read"),
        (str(UNTESTED), f"untested; compared with the models of the Python package `kubernetes` {UNTESTED.minor}"),
        (f"{OLDEST} to {last_before}", f"best effort; {oldest} is tested"),
    )
    lines = ["| Kubernetes | status |", "| --- | --- |", *(f"| {versions} | {status} |" for versions, status in rows)]
    return "\n".join(lines) + "\n"


def markdown(rows: Iterable[Change]) -> str:
    """Return the rows as the table of docs/compatibility.md, oldest change first."""
    lines = ["| since | component | what | source | known |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {_since(row)} | {row.component} | {row.what} | {row.source} | {', '.join(row.known)} |"
        for row in sorted(rows, key=lambda row: row.since)
    ]
    return "\n".join(lines) + "\n"


def _since(row: Change) -> str:
    """Return `1.32`, `1.32, not 1.33`, or if the change was removed for good, `1.28 to 1.33` or `1.32 only`."""
    if not row.without:
        return f"1.{row.since}"
    if NEWEST.minor in row.without:
        last = min(row.without) - 1
        return f"1.{row.since} to 1.{last}" if last > row.since else f"1.{row.since} only"
    return f"1.{row.since}, not " + ", ".join(f"1.{minor}" for minor in row.without)
