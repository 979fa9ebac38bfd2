"""Formats ages, amounts and quoted messages. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from tfjob_operator.api.text import clean, in_lines, quoted, tail_of
from tfjob_operator.api.v1.conditions import TRUE
from tfjob_operator.api.v1.constants import CONTAINER_NAME, NOT_LOST, AttemptReason, EventReason
from tfjob_operator.api.v1.types import AvoidedNode, JobAttempt, JobCondition
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import EventDetails

MAX_MESSAGE_BYTES: Final = 400
LONG_MESSAGE_BYTES: Final = 750
"""For the condition Failed, whose last words of a log may be all that is left of it, and for runtimes, which give the reason
last."""
"""The most bytes of a message in a line of evidence: three terminal lines."""
_SAID_ELSEWHERE: Final = frozenset({"", "Error", "Completed", EventReason.NODE_SICK, *AttemptReason})
"""Attempt reasons that add nothing to the rest of the line, or to its message."""
_GRPC_DETAILS: Final = re.compile(r'"created":"@[\d.]{1,40}",|"file":"[^"]{1,200}","file_line":\d{1,9},')
"""Parts of gRPC's errors that say nothing to users, and would take the place of its message at the end."""
_CUT: Final = " ... "
_BINARY: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def ago(now: datetime, then: datetime | None) -> str:
    """Return how long ago something was; "" if the time is unknown."""
    return "" if then is None else f"{duration(seconds_between(then, now))} ago"


def seconds_between(then: datetime, now: datetime) -> float:
    """Return the seconds from `then` to `now`.

    A time without a zone, which API servers never send, gets the zone of the other time.
    """
    if (then.tzinfo is None) != (now.tzinfo is None):
        then, now = then.replace(tzinfo=None), now.replace(tzinfo=None)
    return (now - then).total_seconds()


def format_amount(resource: str, number: Decimal) -> str:
    """Format an amount of a resource: memory and storage in binary units, anything else as a plain number."""
    if resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if number >= size:
                return f"{number / size:.1f}".removesuffix(".0") + unit
    return f"{number:.3f}".rstrip("0").rstrip(".")


def quote(text: str, most: int = MAX_MESSAGE_BYTES) -> str:
    """Sanitize a message and put it on one line, in at most `most` bytes."""
    text = _GRPC_DETAILS.sub("", text)
    return tail_of(text, most) or tail_of(text[:most], most)


def abridged(text: str, most: int) -> str:
    """Sanitize a message and put it on one line of at most `most` characters.

    A longer one loses its middle: it begins with what has failed, and ends with the last words of a log.
    """
    line = " ".join(clean(text).split())
    end = 2 * most // 3
    return line if len(line) <= most else f"{line[: most - end - len(_CUT)]}{_CUT}{line[-end:]}"


def wrapped(text: str, width: int, most: int, *, first_indent: str = "", indent: str = "") -> list[str]:
    """Wrap a sanitized message to at most `most` lines, without those in the middle, as in `abridged`."""
    lines = textwrap.wrap(text, width, initial_indent=first_indent, subsequent_indent=indent)
    if len(lines) <= most:
        return lines
    *head, cut = lines[: most - most // 2]
    return [*head, f"{cut[: width - len(_CUT)].rstrip()}{_CUT.rstrip()}", *lines[-(most // 2) :]]


def safe_name(name: str) -> str:
    """Sanitize a user-chosen name."""
    return quoted(name)


def format_restarts(restarts: int) -> str:
    """Format a number of restarts: `1 restart`, `2 restarts`."""
    return f"{restarts} restart{'s' * (restarts != 1)}"


def join_some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(safe_name(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def ended_by(attempt: JobAttempt) -> str:
    """Return why an attempt ended: `rule oom (RestartAll), worker-3 on node-a, exit code 137 (OOMKilled): CUDA error`."""
    parts = [f"rule {safe_name(attempt.rule)} ({safe_name(attempt.action)})" if attempt.rule else "restart requested"]
    if attempt.replica_index is not None:
        node = f" on {safe_name(attempt.node_name)}" if attempt.node_name else ""
        parts.append(f"{safe_name(attempt.replica_type).lower()}-{attempt.replica_index}{node}")
    reason = "" if attempt.reason in _SAID_ELSEWHERE else safe_name(attempt.reason)
    if attempt.exit_code is not None:
        name = attempt.container_name
        other = f" of container {safe_name(name)}" if name not in {"", CONTAINER_NAME} else ""
        parts.append(f"exit code {attempt.exit_code}{f' ({reason})' if reason else ''}{other}")
    elif reason:
        parts.append(reason)
    words = quote(in_lines(attempt.message))  # by lines, so that the last ones are kept
    return f"{', '.join(parts)}{words and ': '}{words}"


def avoided_now(nodes: Sequence[AvoidedNode], now: datetime) -> dict[str, str]:
    """Return the nodes that a job currently avoids, with failures and remaining time: `1 failure, 58m left`."""
    found = {}
    for node in nodes:
        left_s = 0.0 if node.expiration_time is None else seconds_between(now, node.expiration_time)
        if left_s > 0:
            times = f"{node.failures} failure{'s' * (node.failures != 1)}"
            found[node.name] = f"{safe_name(node.name)} ({times}, {duration(left_s)} left)"
    return found


def accelerator_hours(seconds: Mapping[str, Mapping[str, int]] | None) -> list[str]:
    """Return the time of ended pods by resource: `nvidia.com/gpu: 12.50 hours, 36m lost (disrupted 6m, restarted 30m)`."""
    found = []
    for resource, outcomes in (seconds or {}).items():
        lost = {outcome: each for outcome, each in outcomes.items() if outcome not in NOT_LOST and each}
        parts = ", ".join(f"{safe_name(outcome)} {_hours(each)}" for outcome, each in lost.items())
        text = f"{safe_name(resource)}: {_hours(sum(outcomes.values()))}"
        found.append(f"{text}, {_hours(sum(lost.values()))} lost ({parts})" if lost else text)
    return found


def _hours(seconds: int) -> str:
    return f"{seconds / 3600:,.2f} hours" if seconds >= 3600 else duration(seconds)


def failed_line(failed: JobCondition) -> str:
    """Format the Failed condition of a job, or that of an Ending job, as a line of evidence."""
    what = "condition" if failed.status == TRUE else "decided end"
    return f"job: {what} Failed, {safe_name(failed.reason)}: {quote(failed.message, LONG_MESSAGE_BYTES)}"


def event_line(event: EventDetails, now: datetime) -> str:
    """Format an event as a line of evidence."""
    about = event.involved_object
    times = event.series.count if event.series is not None else event.count
    often = f", {times} times" if times > 1 else ""
    when = ago(now, event.at)
    what = f"{safe_name(about.kind).lower() or 'object'} {safe_name(about.name)}"
    return f"event of {what}{', ' if when else ''}{when}{often}: {safe_name(event.reason)}: {quote(event.message)}"
