"""Tells refusals of a child that are about the job's specification from those that are about something else."""

from __future__ import annotations

import re
from typing import Final

from tfjob_operator.api.client.errors import ApiError, StatusError

_DENIED: Final = re.compile(r"\bdenied (the )?request\b")


class RefusedError(ApiError):
    """The API server calls a child invalid. Only a changed specification can help."""


def is_denied(error: StatusError) -> bool:
    """Whether an admission webhook or policy refuses, whatever the code. They may change, so the specification is not wrong."""
    return _DENIED.search(error.status_message) is not None
