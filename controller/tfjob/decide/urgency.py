"""Which statuses may wait before they are written: it depends on what changed in them. Pure.

How long they wait is decided by `controller.jobs.window`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1.constants import ConditionType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.api.v1.types import JobStatus


def only_starts(written: JobStatus, status: JobStatus) -> bool:
    """Return whether `status` differs from `written` only in that more pods are active."""
    before, after = written.replica_statuses, status.replica_statuses
    if before.keys() != after.keys() or any(after[name].active < before[name].active for name in before):
        return False
    same = {name: msgspec.structs.replace(found, active=before[name].active) for name, found in after.items()}
    return written == msgspec.structs.replace(
        status, replica_statuses=same, last_reconcile_time=written.last_reconcile_time
    )


def is_beginning(status: JobStatus) -> bool:
    """Return whether the only conditions of `status` are Created and Running."""
    return all(each.type in {ConditionType.CREATED, ConditionType.RUNNING} for each in status.conditions)


def all_active(status: JobStatus, sizes: Mapping[str, int]) -> bool:
    """Return whether as many replicas are active as the specification asks for, by type: no more starts are to come."""
    found = status.replica_statuses
    return all((found[name].active if name in found else 0) >= size for name, size in sizes.items())
