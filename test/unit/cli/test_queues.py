"""What a queued job waits for, in recorded Workloads of Kueue 0.19.2."""

from itertools import groupby
from typing import Any

import pytest

from fakes.recordings import kueue
from tfjob_operator.cli.model.queues import deactivated_by_kueue, waits_for

LIVES = {
    "tfjob-c-e907a": "Queued CheckPending Queued CheckPending CheckRejected",
    "tfjob-r-27ddf": "Queued PodsReadyTimeout Queued PodsReadyTimeout Queued Deactivated Queued",
    "tfjob-h-8dcba": "Queued QueueStopped Queued QueueStopped Queued",
    "tfjob-d-52e0d": "Queued Deactivated Queued",
}
"""The reasons in the life of each Workload, and of the one that Kueue created after its deletion."""


def lives() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for seen in kueue("evictions"):
        found.setdefault(seen.object["metadata"]["name"], []).append(seen.object)
    return found


def conditions(**given: str) -> dict[str, Any]:
    """Return a Workload with conditions, each as `STATUS/REASON: MESSAGE`."""
    found = []
    for kind, text in given.items():
        status, reason = text.partition(": ")[0].split("/")
        found.append({"type": kind, "status": status, "reason": reason, "message": text.partition(": ")[2]})
    return {"spec": {"active": True}, "status": {"conditions": found}}


@pytest.mark.parametrize("name", LIVES)
def test_each_state_in_the_life_of_a_workload_has_its_reason(name: str) -> None:
    assert " ".join(reason for reason, _ in groupby(waits_for(body)[0] for body in lives()[name])) == LIVES[name]


def test_a_rejected_check_is_named_while_and_after_kueue_deactivates_the_workload() -> None:
    """Afterwards, Kueue has reset the state of the check."""
    rejected = [message for reason, message in map(waits_for, lives()["tfjob-c-e907a"]) if reason == "CheckRejected"]
    assert rejected
    assert all('"stub" (no room at all)' in message for message in rejected)


def test_only_a_workload_that_a_user_deactivated_can_be_activated_again() -> None:
    off = {name: [body for body in life if waits_for(body)[0] == "Deactivated"] for name, life in lives().items()}
    assert not any(map(deactivated_by_kueue, off["tfjob-d-52e0d"]))
    last = off["tfjob-r-27ddf"][-1]
    assert last["spec"]["active"]  # a user has set it, in vain
    assert deactivated_by_kueue(last)


def test_a_requeued_workload_is_no_longer_deactivated() -> None:
    body = conditions(
        QuotaReserved="False/Pending: insufficient unused quota for cpu in flavor default, 1 more needed",
        Evicted="True/DeactivatedDueToRequeuingLimitExceeded: The workload is deactivated due to exceeding ...",
        Requeued="True/Reactivated: The workload was reactivated",
    )
    assert waits_for(body)[0] == "Queued"


def test_a_preempted_job_stays_preempted_while_it_waits_for_quota_and_one_of_a_restarted_queue_does_not_stay_stopped() -> (
    None
):
    quota = "False/Pending: couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor a"
    told = "Preempted to accommodate a workload (UID: 1)"
    assert waits_for(conditions(QuotaReserved=quota, Evicted=f"True/Preempted: {told}")) == ("Preempted", told)
    stopped = conditions(QuotaReserved=quota, Evicted="True/LocalQueueStopped: The LocalQueue is stopped")
    assert waits_for(stopped) == ("Queued", quota.partition(": ")[2])


def test_a_preempted_job_that_can_never_run_again_says_so() -> None:
    gone = conditions(
        QuotaReserved="False/Inadmissible: LocalQueue q doesn't exist", Evicted="True/Preempted: Preempted to ..."
    )
    assert waits_for(gone) == ("QueueMissing", "LocalQueue q doesn't exist")


def test_a_check_counts_once_quota_is_reserved() -> None:
    body = conditions(QuotaReserved="False/Pending: insufficient unused quota for cpu in flavor default, 1 more needed")
    body["status"]["admissionChecks"] = [{"name": "nodes", "state": "Pending", "message": ""}]
    assert waits_for(body)[0] == "Queued"


def test_several_checks_are_named_as_kueue_names_them() -> None:
    body = conditions(QuotaReserved="True/QuotaReserved: Quota reserved in ClusterQueue q")
    states = {"b": "Rejected", "c": "Ready", "a": "Rejected", "d": "Pending"}
    body["status"]["admissionChecks"] = [
        {"name": name, "state": state, "message": "no" if name == "a" else ""} for name, state in states.items()
    ]
    assert waits_for(body) == ("CheckRejected", 'AdmissionChecks in Rejected state: "a" (no); "b"')


def test_a_workload_without_a_status_is_queued() -> None:
    assert waits_for({"metadata": {"name": "tfjob-a-12345"}}) == ("Queued", "")
