"""Restart requests for a whole job: the values of the annotation `restart-requested-at`. Pure.

Each new value requests one restart. A timestamp must also be later than that of the previous request, so that applying an old
manifest or reverting an edit does not restart the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from tfjob_operator.api.v1.constants import ANNOTATION_RESTART

MAX_LENGTH: Final = 64
"""The maximum length of a request: the status stores the last one."""


def why_ignored(request: str, observed: str, now: datetime) -> str:
    """Return why this annotation value does not request a restart; "" if it does. `observed` is the previous request.

    If the time of the previous request is in the future, times are not compared: a wrong one, such as the year 9999, would
    otherwise block all later requests.
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
    """Return a request with this time or, if the clock of an `earlier` one was ahead, with the next time after it."""
    times = [now.astimezone(UTC)]
    for moment in map(_time_of, earlier):
        try:
            times += [moment.astimezone(UTC) + timedelta(microseconds=1)] if moment is not None else ()
        except OverflowError:  # the year 9999, which is in the future for the operator too
            continue
    return f"{max(times):%Y-%m-%dT%H:%M:%S.%fZ}"


def _time_of(request: str) -> datetime | None:
    """Return the timestamp of a request; None if it is not a timestamp with a time zone."""
    try:
        moment = datetime.fromisoformat(request) if len(request) <= MAX_LENGTH else None
    except ValueError:
        return None
    return moment if moment is not None and moment.utcoffset() is not None else None
