"""Which statuses may wait before they are written."""

from __future__ import annotations

import pytest

from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus
from tfjob_operator.controller.tfjob.apply.executor import all_active


@pytest.mark.parametrize(
    ("active", "wanted", "answer"),
    [
        ({"PS": 1, "Worker": 4}, {"PS": 1, "Worker": 4}, True),
        ({"PS": 1, "Worker": 3}, {"PS": 1, "Worker": 4}, False),
        ({"Worker": 4}, {"PS": 1, "Worker": 4}, False),
        ({"Worker": 4}, {"PS": 0, "Worker": 4}, True),
        ({"Worker": 5}, {"Worker": 4}, True),
    ],
)
def test_all_replicas_are_active_when_each_type_has_as_many_as_it_wants(
    active: dict[str, int], wanted: dict[str, int], answer: bool
) -> None:
    """U12: then no further start is to be waited for. While a job is scaled down there may be more."""
    status = JobStatus(replica_statuses={name: ReplicaStatus(active=number) for name, number in active.items()})
    assert all_active(status, wanted) is answer
