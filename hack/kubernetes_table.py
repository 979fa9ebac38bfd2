"""`python -m hack.kubernetes_table`: print the changes of `hack.kubernetes_versions` as the table of docs/compatibility.md."""

from __future__ import annotations

from collections.abc import Iterable

from hack.kubernetes_versions import NEWEST, Change, changes


def markdown(rows: Iterable[Change]) -> str:
    """Return the rows as a table, the oldest change first."""
    lines = ["| since | component | what | source | known |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {_since(row)} | {row.component} | {row.what} | {row.source} | {_known(row)} |"
        for row in sorted(rows, key=lambda row: row.since)
    ]
    return "\n".join(lines) + "\n"


def _since(row: Change) -> str:
    """Return `1.32`, `1.32, not 1.33`, or `1.28 to 1.33` if the change never came back."""
    if not row.without:
        return f"1.{row.since}"
    if NEWEST.minor in row.without:
        return f"1.{row.since} to 1.{min(row.without) - 1}"
    return f"1.{row.since}, not " + ", ".join(f"1.{minor}" for minor in row.without)


def _known(row: Change) -> str:
    return ", ".join(way.name.lower() for way in row.known if way.name)


if __name__ == "__main__":
    print(markdown(changes().values()), end="")
