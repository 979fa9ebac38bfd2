"""The requested replicas of a job and their restarts, from raw JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_MAX_REPLICAS: Final = 100_000
"""The most replicas of a type that are counted: ten times what the operator accepts."""


def sizes_of(job: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield a job's replica types as written, in either dialect, with their sizes."""
    spec = (
        {str(key).casefold(): value for key, value in job["spec"].items()} if isinstance(job.get("spec"), dict) else {}
    )
    entries, listed = spec.get("tfreplicaspecs"), spec.get("replicaspecs")
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        yield str(key), _size(entry)
    for entry in listed if isinstance(listed, list) else ():
        given = {str(key).casefold(): value for key, value in entry.items()} if isinstance(entry, dict) else {}
        yield str(given.get("tfreplicatype") or "Master"), _size(given)


def _size(entry: object) -> int:
    number = entry.get("replicas", 1) if isinstance(entry, dict) else 1
    return min(max(number, 0), _MAX_REPLICAS) if isinstance(number, int) and not isinstance(number, bool) else 1


def restarts_of(job: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield type, index and number of restarts of each replica whose restarts the operator has counted."""
    status = job.get("status")
    records = status.get("restarts") if isinstance(status, dict) else None
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict) and isinstance(record.get("index"), int):
            counts = (record.get(key, 0) for key in ("carried", "inPlace", "replaced"))
            yield (
                str(record.get("type", "")),
                record["index"],
                sum(int(count) for count in counts if isinstance(count, int)),
            )
