"""What the judge of the crash matrix knows of creates: the objects that the server shows, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faults.census import Census
from faults.record import Record, differences
from faults.workloads import WORKLOADS
from tfjob_operator.api.core import PODS, SERVICES


def child(name: str, uid: str, *, kind: str = "TFJob", namespace: str = "one") -> dict[str, Any]:
    owner = {"kind": kind, "name": "job", "uid": "1", "controller": True}
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "ownerReferences": [owner]}}


def judged(census: Census) -> list[str]:
    """What is wrong, where one service is right."""
    right = Record(None, {}, Counter({"services/job-worker-1": 1}), Counter())
    found = Record(None, {}, census.made("one"), Counter())
    return list(differences(found, right, WORKLOADS["plain"], {}))


def test_a_create_counts_when_the_object_is_there_whatever_its_client_was_told() -> None:
    census = Census()
    census.take(SERVICES, child("job-worker-1", "a"))  # nothing is known of a request or its response
    assert judged(census) == []


def test_a_child_that_is_shown_again_was_made_once() -> None:
    """A watch shows it again when it changes, when it is deleted, and when the watch has to begin again."""
    census = Census()
    for _ in range(3):
        census.take(SERVICES, child("job-worker-1", "a"))
    assert judged(census) == []


def test_a_second_object_of_the_name_was_made_twice() -> None:
    census = Census()
    census.take(SERVICES, child("job-worker-1", "a"))
    census.take(SERVICES, child("job-worker-1", "b"))
    assert judged(census) == ["services/job-worker-1 was created 2 times, not 1"]


def test_a_child_that_nobody_has_seen_was_never_made() -> None:
    assert judged(Census()) == ["services/job-worker-1 was created 0 times, not 1"]


def test_children_of_others_do_not_count() -> None:
    """Pods of batch Jobs have random names and are made by the Job controller; each namespace is a case of its own."""
    census = Census()
    census.take(PODS, child("master-abcd-0-x7f2k", "a", kind="Job"))
    census.take(SERVICES, child("job-worker-1", "b", namespace="two"))
    census.take(SERVICES, {"metadata": {"name": "kubernetes", "namespace": "one", "uid": "c"}})
    assert census.made("one") == Counter()
