"""`replicaStatuses` at the end of a job, beside those of training-operator 1.9.4. docs/migration.md has the differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.jobs import all_workers, decide, job, names, pod, spec, synced, true_of
from fakes.lives import LIVES
from fakes.objects import changed
from support.cases import for_each
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.api.v1.types import ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod

MIGRATION = Path(__file__).parents[5] / "docs/migration.md"
Counts = dict[str, tuple[int, int, int]]
"""The numbers of active, succeeded and failed replicas, by type."""
KINDS = {"ps": "PS", "worker": "Worker"}


def peer(steps: tuple[tuple[Pod, ...], ...], sizes: dict[str, int], *, all_workers: bool, limited: bool) -> Counts:
    """Return the counters that training-operator 1.9.4 leaves; each step is one reconciliation, and one more follows.

    kubeflow/trainer v1.9.4. A job that is not finished is counted anew: pkg/core/status.go:34-49, called by
    pkg/controller.v1/common/pod.go:304 and 376; its end is decided in pkg/controller.v1/tensorflow/tfjob_controller.go:462-510.
    A finished job only moves `active` to `succeeded`, if it succeeded (pkg/controller.v1/common/job.go:122-143). A limit, here
    at the last step, ends the job without counting (:216-247).
    """
    counts = {kind: [0, 0, 0] for kind in sizes}
    true: set[str] = set()
    for number, pods in enumerate((*steps, ()), start=1):
        if true:
            for each in counts.values() if "Succeeded" in true else ():
                each[:] = [0, each[1] + each[0], each[2]]
        elif limited and number == len(steps):
            true.add("Failed")
        else:
            counts = {kind: [0, 0, 0] for kind in sizes}
            for found in pods:
                _count(counts[KINDS[found.metadata.name.split("-")[1]]], found)
            first_done = any(
                each.metadata.name == "mnist-worker-0" and each.status.phase == "Succeeded" for each in pods
            )
            if counts["Worker"][1] == sizes["Worker"] or (first_done and not all_workers):
                true.add("Succeeded")
            if any(failed for *_, failed in counts.values()):
                true.add("Failed")
    return {kind: (active, succeeded, failed) for kind, (active, succeeded, failed) in counts.items()}


def _count(counts: list[int], found: Pod) -> None:
    column = {"Running": 0, "Succeeded": 1, "Failed": 2}.get(found.status.phase)
    if column is not None:
        counts[2 if column == 0 and found.metadata.deletion_timestamp is not None else column] += 1


def counts_of(tfjob: TFJob) -> Counts:
    return {kind: (each.active, each.succeeded, each.failed) for kind, each in tfjob.status.replica_statuses.items()}


PS, BUSY, GOING = pod("PS", 0), pod("Worker", 1), pod("Worker", 1, terminating=True)
DONE, TURNED, FAILED = pod("Worker", 0, "Succeeded", 0), pod("Worker", 0, "Failed", 0), pod("Worker", 0, "Failed", 1)
ENDED = pod("Worker", 1, "Succeeded", 0)


@dataclass(frozen=True)
class Row:
    """How a job of two workers, and perhaps a parameter server, ends: its pods by step, and the counters.

    `sentence` is that of docs/migration.md, if the counters differ.
    """

    name: str
    steps: tuple[tuple[Pod, ...], ...]
    peer: Counts
    ours: Counts
    sentence: str = ""
    end: str = "Failed"
    success: str = ""
    policy: tuple[tuple[str, Any], ...] = ()


TABLE = (
    Row(
        "success beside an active worker and PS",
        ((DONE, BUSY, PS),),
        {"PS": (0, 1, 0), "Worker": (0, 2, 0)},
        {"PS": (0, 1, 0), "Worker": (0, 2, 0)},
        end="Succeeded",
    ),
    Row(
        "success beside a pending worker",
        ((DONE, pod("Worker", 1, "Pending"), PS),),
        {"PS": (0, 1, 0), "Worker": (0, 1, 0)},
        {"PS": (0, 1, 0), "Worker": (0, 1, 0)},
        end="Succeeded",
    ),
    Row(
        "success beside a pod that is being deleted",
        ((DONE, GOING),),
        {"Worker": (0, 1, 1)},
        {"Worker": (0, 1, 0)},
        sentence="At a success, a pod that is being deleted is not counted",
        end="Succeeded",
    ),
    Row(
        "success, and a restarted kubelet fails its pod afterwards",
        ((DONE, BUSY), (TURNED, BUSY)),
        {"Worker": (0, 2, 0)},
        {"Worker": (0, 2, 0)},
        end="Succeeded",
    ),
    Row(
        "a restarted kubelet fails the pod of a finished worker before the end",
        ((DONE, BUSY), (TURNED, BUSY), (TURNED, ENDED)),
        {"Worker": (1, 0, 1)},
        {"Worker": (0, 2, 0)},
        sentence="A worker that has succeeded stays succeeded",
        end="Succeeded",
        success="AllWorkers",
    ),
    Row(
        "failure beside an active worker and PS",
        ((FAILED, BUSY, PS),),
        {"PS": (1, 0, 0), "Worker": (1, 0, 1)},
        {"PS": (0, 0, 0), "Worker": (0, 0, 1)},
        sentence="After a failure, `active` is 0 when no pod is left",
    ),
    Row(
        "failure beside a worker that has succeeded",
        ((FAILED, ENDED),),
        {"Worker": (0, 1, 1)},
        {"Worker": (0, 1, 1)},
        success="AllWorkers",
    ),
    Row(
        "failure under None, which leaves pods running",
        ((FAILED, BUSY), (FAILED, ENDED)),
        {"Worker": (1, 0, 1)},
        {"Worker": (0, 1, 1)},
        sentence="With `cleanPodPolicy: None`, pods that continue after a failure stay active until they end",
        policy=(("cleanPodPolicy", "None"),),
    ),
    Row(
        "failure beside a pod that is being deleted",
        ((FAILED, GOING),),
        {"Worker": (0, 0, 2)},
        {"Worker": (0, 0, 1)},
        sentence="At a failure, a pod that is being deleted is not counted either",
    ),
    Row(
        "a deadline beside active workers and PS",
        ((pod("Worker", 0), BUSY, PS), (pod("Worker", 0), BUSY, PS)),
        {"PS": (1, 0, 0), "Worker": (2, 0, 0)},
        {"PS": (0, 0, 0), "Worker": (0, 0, 0)},
        sentence="A limit such as a deadline leaves `active` at 0 too",
        policy=(("activeDeadlineSeconds", 30),),
    ),
)


@for_each("row", TABLE)
def test_the_counters_at_the_end_are_those_of_training_operator_unless_they_were_wrong(row: Row) -> None:
    """Its `active` stays above 0 after a failure, and pods that are being deleted count as failed; neither is copied."""
    sizes = {kind: {"PS": 1, "Worker": 2}[kind] for kind in row.ours}
    more = {"successPolicy": row.success} if row.success else {}
    limited = "activeDeadlineSeconds" in dict(row.policy)
    assert peer(row.steps, sizes, all_workers=bool(more), limited=limited) == row.peer
    given = spec("Never", runPolicy=dict(row.policy), **sizes, **more)
    for labels in (None, {LABEL_QUEUE: "team"}):
        found = synced(job(given, labels=labels), at_s=0)
        found = synced(found, *(pod(kind, index) for kind, size in sizes.items() for index in range(size)), at_s=1)
        for number, pods in enumerate(row.steps):
            found = synced(found, *pods, at_s=60 if limited and number else 2)
        if not conditions.is_ending(found.status):
            assert counts_of(found) == row.ours
        left = synced(found, at_s=200)
        assert true_of(left)[-1] == row.end
        assert counts_of(left) == row.ours
    assert (row.ours != row.peer) == bool(row.sentence)
    assert row.sentence in " ".join(MIGRATION.read_text().split())


@for_each("live", LIVES.values())
def test_each_replica_is_counted_once_and_nothing_falls_after_the_end(live: Any) -> None:
    """While the end of a queued job waits for its pods, `active` is the number of these pods instead."""
    for queued in (False, True):
        before: Counts = {}
        for each in live(queued).moments:
            status = each.body.get("status", {})
            counts = {
                kind: (found.get("active", 0), found.get("succeeded", 0), found.get("failed", 0))
                for kind, found in status.get("replicaStatuses", {}).items()
            }
            if not any(condition["type"] in {"Succeeded", "Failed"} for condition in status.get("conditions", ())):
                continue
            assert all(sum(found) <= {"PS": 1, "Worker": 2}[kind] for kind, found in counts.items())
            assert all(counts[kind][1:] >= found[1:] for kind, found in before.items())
            before = counts
        assert all(active == 0 for active, *_ in before.values())


W0, W1, W2 = (pod("Worker", index) for index in range(3))
FAILED_1, DONE_1 = pod("Worker", 1, "Failed", 137), pod("Worker", 1, "Succeeded", 0)


@pytest.mark.parametrize(
    ("succeeded", "pods", "created"),
    [
        (1, (W0, W2), []),
        (2, (W0,), []),
        (2, (W0, DONE_1), []),
        (1, (W0,), ["mnist-worker-1", "mnist-worker-2"]),
        (1, (W0, DONE_1), ["mnist-worker-2"]),
        (1, (W0, FAILED_1), ["mnist-worker-2"]),
        (0, (W0, W2), ["mnist-worker-1"]),
    ],
)
def test_replicas_that_succeeded_under_another_operator_do_not_run_again_if_exactly_their_pods_are_missing(
    succeeded: int, pods: Sequence[Pod], created: list[str]
) -> None:
    """It records only how many have succeeded. A pod that failed may have been one of them before its kubelet restarted."""
    given = all_workers(3, "ExitCode")
    counters = {"Worker": ReplicaStatus(active=3 - succeeded, succeeded=succeeded)}
    served = synced(job(given), W0, W1, W2)
    other = changed(
        served,
        status__replica_statuses=counters,
        status__begun=None,
        status__observed_generation=0,
        status__finished_indices={},
    )
    assert names(decide(other, *pods))["create pods"] == created
    # With a status of this operator, the record decides.
    assert len(names(decide(changed(served, status__replica_statuses=counters), *pods))["create pods"]) == 3 - len(pods)


def test_a_suspended_job_keeps_what_had_succeeded_under_another_operator() -> None:
    """As it keeps what succeeded here. What must run again is unknown once all pods of a type are gone."""
    given = spec("Never", Chief=1, Worker=1, runPolicy={"suspend": True})
    counters = {"Chief": ReplicaStatus(), "Worker": ReplicaStatus(succeeded=1)}
    ran = synced(job(spec("Never", Chief=1, Worker=1)), pod("Chief", 0), W0)
    found = changed(
        ran, spec=job(given).spec, status__replica_statuses=counters, status__begun=None, status__observed_generation=0
    )
    decided = decide(found)
    assert decided.status is not None
    assert decided.status.finished_indices == {"Worker": "0"}
