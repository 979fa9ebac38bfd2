"""What a snapshot needs of events: the newest Warning about each object, and how often a job's pods were created. Pure.

Events are raw JSON, as in `facts`; the constants of `api.v1` need msgspec.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tfjob_operator.cli.model.facts import mapping, number, seconds, text

WARNINGS: Final = "type=Warning"
"""Selects the events that tell why an object was not created, or does not start."""
OF_JOBS: Final = "involvedObject.kind=TFJob,type=Normal"
"""Selects the events that tell how often the pods of jobs were created."""
LOGS_UNAVAILABLE: Final = "LogsUnavailable"
_HARMLESS: Final = frozenset({LOGS_UNAVAILABLE, "NodesUnavailable", "TensorBoardUnavailable"})
"""Warnings that do not tell why a pod was not created."""
RESUMED: Final = "TFJobResumed"
_POD: Final = {
    "SuccessfulCreatePod": re.compile(r"Created pod: (\S+)"),
    "ExitedWithCode": re.compile(r"Pod: [^\s.]+\.(\S+) (exited with code .*)", re.DOTALL),
    RESUMED: re.compile(""),
}
"""The events of a job that are counted, and what finds a pod in their message."""


class WarningEvent(NamedTuple):
    """The newest Warning event about an object that was not created, or does not start."""

    at: str
    reason: str
    message: str


class CountedEvent(NamedTuple):
    """An event about a pod of a job, "" if it is about all of them. `words` are how it ended, "" if it was created."""

    pod: str
    reason: str
    words: str
    times: int
    first: float
    last: float


class JobEvents:
    """The events seen so far. `warnings` has the newest Warning by UID of its object."""

    def __init__(self, events: Iterable[Mapping[str, Any]] = ()) -> None:
        self.warnings: dict[str, WarningEvent] = {}
        self._counted: dict[str, dict[str, CountedEvent]] = defaultdict(dict)
        for event in events:
            self.put(event)

    def put(self, event: Mapping[str, Any]) -> bool:
        """Store an event; False if it is of no interest."""
        uid, reason = text(mapping(event.get("involvedObject")).get("uid")), text(event.get("reason"))
        if reason in _POD:
            return self._count(uid, reason, event)
        if reason in _HARMLESS or not (reason.startswith("Failed") or reason.endswith("Unavailable")):
            return False
        at = text(event.get("lastTimestamp")) or text(event.get("eventTime"))
        if uid not in self.warnings or at >= self.warnings[uid].at:
            self.warnings[uid] = WarningEvent(at, reason, text(event.get("message")))
        return True

    def counted(self, job: str) -> Iterable[CountedEvent]:
        """Return the events of a job, by its UID, about pods that were created or have ended, and about its resumptions."""
        return self._counted[job].values() if job in self._counted else ()

    def forget(self, uid: str) -> None:
        """Forget the events about a deleted object."""
        self.warnings.pop(uid, None)
        self._counted.pop(uid, None)

    def _count(self, uid: str, reason: str, event: Mapping[str, Any]) -> bool:
        match = _POD[reason].match(text(event.get("message")))
        if match is None:  # it names several pods
            return False
        meta, series = mapping(event.get("metadata")), event.get("series")
        times = max(number(mapping(series or event).get("count")), 1)
        last = (
            mapping(series).get("lastObservedTime"),
            *map(event.get, ("lastTimestamp", "eventTime", "firstTimestamp")),
            meta.get("creationTimestamp"),
        )
        at = next((at for each in last if (at := seconds(each)) is not None), 0.0)
        first = seconds(event.get("firstTimestamp"))
        pod, words = (*match.groups(), "", "")[:2]
        made = CountedEvent(pod, reason, words, times, at if first is None else first, at)
        self._counted[uid][text(meta.get("name"))] = made
        return True
