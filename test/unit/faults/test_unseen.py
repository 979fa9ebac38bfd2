"""Which cases the matrix of unseen lives has, and what the right end of one is."""

from __future__ import annotations

from collections import Counter

import pytest

from faults.record import Record
from faults.scheme import Case
from faults.unseen import AGAIN, BESIDE, DELETED, ENDED, FAULTS, STRANGER, applies, right_for
from faults.writes import Write

POD, SERVICE = "create pods/job-worker-0", "create services/job-worker-0"


@pytest.mark.parametrize(
    ("workload", "write", "faults"),
    [
        ("plain", POD, set(FAULTS)),
        ("plain", SERVICE, set(FAULTS) - {ENDED}),
        ("gang", POD, set(FAULTS) - {ENDED}),
        ("restarts", POD, set(FAULTS) - {AGAIN}),
        ("alpha", "create jobs/master-abcd-0", set(FAULTS) - {ENDED, STRANGER}),
        ("plain", "create events/SuccessfulCreatePod", set()),
        ("plain", "delete pods/job-worker-0", set()),
        ("plain", "patch tfjobs/job/status", set()),
    ],
)
def test_there_are_cases_at_the_creates_of_children(workload: str, write: str, faults: set[str]) -> None:
    """Pods that nobody has placed do not run to an end, and what is made later cannot be told from what is made again."""
    assert {fault for fault in FAULTS if applies(Case(workload, Write(write, 1), fault))} == faults


def record(pods: int, services: int = 1, **events: int) -> Record:
    """An end with so many children made."""
    created = Counter({"pods/job-worker-0": pods, "services/job-worker-0": services})
    return Record({}, {}, created, Counter({f"Normal {reason}": count for reason, count in events.items()}))


def test_the_child_that_was_deleted_is_to_be_made_exactly_once_more() -> None:
    """Whatever was found."""
    for found in (1, 2, 3):
        wanted = right_for(Case("plain", Write(POD, 1), DELETED), record(1), record(found))
        assert wanted.created == record(2).created
    for fault in (STRANGER, BESIDE):
        assert right_for(Case("plain", Write(POD, 1), fault), record(1), record(2)).created == record(1).created


def test_of_a_job_that_was_made_again_each_child_is_made_once_or_twice() -> None:
    """Or once more, by a create that was under way; and what is normal is told for both."""
    case = Case("plain", Write(POD, 1), AGAIN)
    for found, wanted in ((0, 1), (1, 1), (2, 2), (3, 3), (4, 3)):
        assert right_for(case, record(1), record(found)).created["pods/job-worker-0"] == wanted
    assert right_for(case, record(1, Created=1), record(2, Created=9)).events == Counter({"Normal Created": 9})
