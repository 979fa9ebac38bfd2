"""Facts about failures that only the message of a condition has.

Operators before 0.2.1, other operators, and the controller of the alpha dialect do not write `status.begun.ending.failure`.
Once 0.2.0 is out of support, only what the alpha dialect writes is needed. Pure; without msgspec, since `list` uses it.
"""

from __future__ import annotations

import re
from typing import Any, Final

_EXIT: Final = re.compile(
    r"container (?P<containerName>\S{1,63}) exited with code (?P<exitCode>\d{1,9})"
    r"(?: \((?P<reason>[^)]{1,100})\))?(?:: (?P<message>.*))?",
    re.DOTALL,
)
_POD: Final = re.compile(
    r"[Pp]od (?P<podName>[a-z0-9][-a-z0-9.]*)(?:: | was restarted most.{0,60}(?:last failure: |last, ))(?P<cause>.*)",
    re.DOTALL,
)
_OF_POD: Final = re.compile(r"(?P<reason>[A-Z]\w{1,62})(?: \((?P<message>.{0,300}?)\))?(?=;|$)", re.DOTALL)
_LOST_NODE: Final = re.compile(r"Node (\S{1,253}) is lost")
_RULE: Final = re.compile(r"has failed by rule (\S{1,128}): ")


def failure_in(message: str) -> dict[str, Any] | None:
    """Return the failure in the message of a Failed condition, as in `status.begun.ending.failure`; None if it has none."""
    found: dict[str, Any] = {}
    if (rule := _RULE.search(message)) is not None:
        found["rule"] = rule[1]
    pod = _POD.search(message)
    cause = message if pod is None else pod["cause"]
    if pod is not None:
        found["podName"] = pod["podName"]
        if (taken := _OF_POD.match(cause)) is not None:
            found |= {name: text for name, text in taken.groupdict().items() if text}
    if (ended := _EXIT.search(cause)) is not None:
        found = {name: text for name, text in ended.groupdict().items() if text} | found
        found["exitCode"] = int(ended["exitCode"])
    if node := _LOST_NODE.fullmatch(found.get("message", "")):
        found["nodeName"] = node[1]
    return found if found.keys() & {"reason", "exitCode", "rule"} else None
