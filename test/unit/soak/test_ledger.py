"""What the judge of the ailing cluster makes of what its watches show."""

from __future__ import annotations

from typing import Any

from soak.ledger import Ledger
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.v1.constants import LABEL_PREFIX, LABEL_REPLICA_INDEX, LABEL_REPLICA_TYPE, TFJOBS


def job(name: str, end: str = "") -> dict[str, Any]:
    conditions = [{"type": "Running", "status": "False"}, *([{"type": end, "status": "True"}] if end else [])]
    return {"metadata": {"namespace": "red", "name": name}, "status": {"conditions": conditions}}


def pod(name: str, uid: str, *, owner: str = "one", index: int = 0) -> dict[str, Any]:
    labels = {LABEL_PREFIX + LABEL_REPLICA_TYPE: "worker", LABEL_PREFIX + LABEL_REPLICA_INDEX: str(index)}
    owners = [{"kind": "TFJob", "name": owner, "uid": "1", "controller": True}]
    return {"metadata": {"namespace": "red", "name": name, "uid": uid, "labels": labels, "ownerReferences": owners}}


def accepted(*names: str) -> Ledger:
    kept = Ledger()
    for name in names:
        kept.accept(f"red/{name}")
    return kept


def test_a_job_that_succeeded_and_is_gone_is_right() -> None:
    kept = accepted("one")
    kept.take(TFJOBS, job("one"))
    assert kept.unfinished == ["red/one"]
    kept.take(TFJOBS, job("one", "Succeeded"))
    kept.take(TFJOBS, job("one", "Succeeded"), deleted=True)
    assert kept.violations() == kept.unfinished == []
    assert kept.left(TFJOBS) == 0


def test_a_job_that_failed_is_stuck_or_went_without_an_end_is_told() -> None:
    kept = accepted("failed", "stuck", "lost", "unseen")
    kept.take(TFJOBS, job("failed", "Failed"))
    kept.take(TFJOBS, job("stuck"))
    kept.take(TFJOBS, job("lost"))
    kept.relist(TFJOBS, [job("failed", "Failed"), job("stuck")])
    assert kept.violations() == ["red/failed Failed", "red/lost is lost", "red/stuck is stuck", "red/unseen is stuck"]


def test_a_job_whose_end_and_deletion_a_list_shows_is_judged_by_what_was_seen_before() -> None:
    kept = accepted("one")
    kept.relist(TFJOBS, [job("one", "Succeeded")])
    kept.relist(TFJOBS, [])
    assert kept.violations() == []
    assert kept.listed[TFJOBS.plural] == 2


def test_a_replica_that_has_two_pods_was_made_twice_whatever_their_names() -> None:
    """An operator that makes a child again under another name is wrong, too; one that is shown again is the same."""
    kept = Ledger()
    for uid in ("a", "a"):
        kept.take(PODS, pod("one-worker-0", uid))
    kept.take(SERVICES, pod("one-worker-0", "b"))
    kept.take(PODS, pod("one-worker-1", "c", index=1))
    assert kept.violations() == []
    kept.take(PODS, pod("one-worker-0-again", "d"))
    assert kept.violations() == ["red/one pods worker-0 was made 2 times"]
    assert kept.children == 4
