"""Requests to restart the whole job: the values of the annotation `restart-requested-at`. Pure.

Each new value is a request. A value that is a time is a request only if it is later than the last one: whoever applies an old
manifest or reverts an edit requests nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from tfjob_operator.api.v1.constants import ANNOTATION_RESTART

MAX_LENGTH: Final = 64
"""The most characters of a request: the status keeps the last one."""


def why_ignored(request: str, observed: str, now: datetime) -> str:
    """Return why this value of the annotation requests no restart; "" if it does. `observed` is the last request.

    A last request in the future orders nothing. Otherwise one with a wrong time, such as the year 9999, would be the last.
    """
    if len(request) > MAX_LENGTH:
        return _ignored(f"it has {len(request)} characters, and the maximum is {MAX_LENGTH}")
    wanted, last = _time_of(request), _time_of(observed)
    if request != observed and wanted is not None and last is not None and wanted <= last <= now:
        return _ignored(f"its time is not later than that of the last restart request, {observed}")
    return ""


def _ignored(why: str) -> str:
    return f"The annotation {ANNOTATION_RESTART} is ignored: {why}"


def new_request(now: datetime, earlier: Iterable[str]) -> str:
    """Return a request at this time or, if a clock was ahead, just after the `earlier` ones."""
    times = [now.astimezone(UTC)]
    for each in map(_time_of, earlier):
        try:
            times += [each.astimezone(UTC) + timedelta(microseconds=1)] if each is not None else ()
        except OverflowError:  # the year 9999, which is in the future for the operator too
            continue
    return f"{max(times):%Y-%m-%dT%H:%M:%S.%fZ}"


def _time_of(request: str) -> datetime | None:
    """Return the time that a request states; None if it is no time, or one without a zone."""
    try:
        found = datetime.fromisoformat(request) if len(request) <= MAX_LENGTH else None
    except ValueError:
        return None
    return found if found is not None and found.utcoffset() is not None else None
