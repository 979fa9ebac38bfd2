"""What the judge of the degraded cluster concludes from its watches."""

from faults.field import Meta, Thing
from soak.ledger import Ledger
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1.constants import LABEL_PREFIX, LABEL_REPLICA_INDEX, LABEL_REPLICA_TYPE, TFJOBS


def job(name: str, end: str = "") -> Thing:
    conditions = [{"type": "Running", "status": "False"}, *([{"type": end, "status": "True"}] if end else [])]
    return Thing(Meta(namespace="red", name=name), status={"conditions": conditions})


def pod(name: str, uid: str, index: int = 0) -> Thing:
    labels = {LABEL_PREFIX + LABEL_REPLICA_TYPE: "worker", LABEL_PREFIX + LABEL_REPLICA_INDEX: str(index)}
    owners = (OwnerReference(kind="TFJob", name="one", uid="1", controller=True),)
    return Thing(Meta(namespace="red", name=name, uid=uid, labels=labels, owner_references=owners))


def test_a_job_that_failed_is_stuck_or_went_without_an_end_is_told() -> None:
    """One that succeeded and is gone is right, also when a list shows nothing of it any more."""
    kept = Ledger()
    for name in ("failed", "stuck", "lost", "unseen", "watched", "listed"):
        kept.accept(f"red/{name}")
    for each in (job("failed", "Failed"), job("stuck"), job("lost"), job("watched"), job("listed", "Succeeded")):
        kept.take(TFJOBS, each)
    kept.take(TFJOBS, job("watched", "Succeeded"))
    kept.take(TFJOBS, job("watched", "Succeeded"), deleted=True)
    for gone in (job("lost"), job("listed", "Succeeded")):
        kept.take(TFJOBS, gone, deleted=True)
    assert kept.violations() == ["red/failed Failed", "red/lost is lost", "red/stuck is stuck", "red/unseen is stuck"]
    assert kept.unfinished == ["red/stuck", "red/unseen"]
    assert kept.left(TFJOBS) == 2


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
