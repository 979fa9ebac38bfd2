"""What the judge of the degraded cluster concludes from its watches."""

from functools import partial

from faults.field import Thing
from hack.objects import a_job, a_pod, decoding
from soak.ledger import Ledger
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.v1.constants import TFJOBS

job = decoding(partial(a_job, namespace="red"), Thing)
pod = decoding(partial(a_pod, "one", namespace="red"), Thing)


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
        kept.take(PODS, pod(index=0, uid=uid))
    kept.take(SERVICES, pod(index=0, uid="b"))
    kept.take(PODS, pod(index=1, uid="c"))
    assert kept.violations() == []
    kept.take(PODS, pod(index=0, uid="d", name="one-worker-0-again"))
    assert kept.violations() == ["red/one pods worker-0 was made 2 times"]
    assert kept.children == 4
