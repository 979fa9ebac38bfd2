"""The size of a status: a job of 10,000 replicas stays below what etcd accepts, and what it gives up first."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.jobs import all_workers, at, decide, job, pod, replica, synced
from fakes.objects import after, changed, labelled
from tfjob_operator.api.v1.types import (
    AvoidedNode,
    EndRecord,
    IndexRestarts,
    JobAnnotations,
    JobAttempt,
    JobCondition,
    JobStatus,
    ReplicaStatus,
    StartRecord,
    TFJob,
)
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan import size
from tfjob_operator.controller.tfjob.plan.replicas import observe
from tfjob_operator.controller.tfjob.plan.size import MAX_OBJECT, OVERHEAD, WITHHELD_RETRY_S, fit, stored_size
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion

TEMPLATE_BYTES = 200_000
TEMPLATE = {"containers": [{"name": "tensorflow", "image": "i", "args": ["x" * 98] * (TEMPLATE_BYTES // 101)}]}
SPEC = {"tfReplicaSpecs": {"Evaluator": {"replicas": MAX_REPLICAS, "template": {"spec": TEMPLATE}}}}
MOMENT = at(30)
TEXT = "<" * 2048
"""The message that takes most: etcd stores each of its characters in six bytes."""


def applied(spec: dict[str, Any]) -> TFJob:
    """A job as it is decoded after `kubectl apply`, which keeps the spec in an annotation."""
    text = msgspec.json.encode(spec).decode()
    meta = {
        "name": "mnist",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": text},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
    }
    return msgspec.json.decode(msgspec.json.encode({"kind": "TFJob", "metadata": meta, "spec": spec}), type=TFJob)


def uid(index: int) -> str:
    return f"{index:08}-aaaa-bbbb-cccc-0123456789ab"


def worst_record(index: int) -> IndexRestarts:
    return IndexRestarts(
        type="Evaluator",
        index=index,
        pod=uid(index),
        carried=2**31 - 1,
        in_place=2**31 - 1,
        replaced=True,
        stopped=True,
        failed_at=MOMENT,
        next_time=MOMENT,
        rule="r" * 128,
        on_node=True,
    )


def worst_attempt(number: int) -> JobAttempt:
    names = ("Error", "r" * 128, "RestartAll", "Evaluator", 1, "p" * 63, "n" * 253, "c" * 63)
    return JobAttempt(number, MOMENT, MOMENT, *names, exit_code=137, message=TEXT)


def worst(*, is_over: bool = False) -> JobStatus:
    """A status with every optional field, each as large as it becomes."""
    states = {"Created": "True", "Held": "True", "Suspended": "False", "Running": "False"}
    states |= {"Failed": "True"} if is_over else {"Restarting": "True"}
    counts = {"Evaluator": ReplicaStatus(MAX_REPLICAS, MAX_REPLICAS, MAX_REPLICAS)}
    end = EndRecord("Failed", "r" * 40, 2 * TEXT, "e" * 40, MOMENT, MOMENT, counts, "Running", worst_attempt(5))
    return JobStatus(
        conditions=tuple(JobCondition(*each, "r" * 40, 2 * TEXT, MOMENT, MOMENT) for each in states.items()),
        replica_statuses=counts,
        finished_indices={"Evaluator": ",".join(map(str, range(0, MAX_REPLICAS, 2)))},
        restarts=tuple(map(worst_record, range(MAX_REPLICAS))),
        begun=StartRecord(
            1, {"Evaluator": MAX_REPLICAS}, "shared", {"Evaluator": "1-00000000"}, 300, True, end if is_over else None
        ),
        worker_selector="s" * 200,
        start_time=MOMENT,
        completion_time=MOMENT,
        last_reconcile_time=MOMENT,
        observed_generation=1,
        attempt=9,
        counted_restarts=9,
        observed_restart_request="r" * 64,
        next_restart_time=MOMENT,
        attempt_history=tuple(map(worst_attempt, range(5))),
        avoided_nodes=tuple(AvoidedNode("n" * 253, 3, MOMENT) for _ in range(32)),
    )


WORST = {is_over: worst(is_over=is_over) for is_over in (False, True)}


def pods_in(states: Sequence[str]) -> list[Pod]:
    """A pod for each replica, in these states in turn."""
    made: dict[str, Callable[[int], Pod]] = {
        "failed": lambda index: pod("Evaluator", index, "Failed", 137, uid=uid(index)),
        "running": lambda index: pod("Evaluator", index, restarts=3, uid=uid(index)),
        "stopped": lambda index: pod("Evaluator", index, grace_s=300, terminating=True, uid=uid(index)),
        "recreated": lambda index: pod("Evaluator", index, uid=f"new-{index}"),
        "starting": lambda index: pod("Evaluator", index, "Pending", uid=f"new-{index}"),
    }
    return [
        labelled(made[state](index), attempt="9")
        for index in range(MAX_REPLICAS)
        if (state := states[index % len(states)]) != "gone"
    ]


STATES = ("failed", "running", "stopped", "recreated", "starting", "gone")


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(STATES), min_size=1, max_size=6), st.booleans(), st.booleans(), st.booleans())
def test_a_job_of_10_000_replicas_fits_into_etcd_with_every_field_at_its_worst(
    states: list[str], is_new: bool, is_over: bool, deletes: bool
) -> None:
    """With a template of 200 kB that is also in an annotation. Before, such a status had 3.7 MB.

    `is_new`: the server has no record yet, so pods that are deleted must have one afterwards.
    """
    tfjob, status = applied(SPEC), WORST[is_over]
    assert 2 * TEMPLATE_BYTES < len(tfjob.spec) + tfjob.metadata.size < 2.2 * TEMPLATE_BYTES
    assert len(tfjob.spec) + tfjob.metadata.size + stored_size(status) > 2 * MAX_OBJECT
    tfjob = changed(tfjob, status=changed(status, restarts=()) if is_new else status)
    pods = pods_in(states)
    gone = tuple(PodDeletion(each) for each in pods if each.metadata.deletion_timestamp is None) if deletes else ()
    plan = fit(Plan(status=status, delete_pods=gone), tfjob, observe(tfjob, pods, ()))
    found = after(tfjob, plan).status
    assert OVERHEAD + len(tfjob.spec) + tfjob.metadata.size + stored_size(found) <= MAX_OBJECT
    kept = {(each.type, each.index): each for each in found.restarts}
    if is_new and not is_over:
        for each in plan.delete_pods:
            index = int(each.pod.metadata.name.rpartition("-")[2])
            assert states[index % len(states)] not in {"failed", "running"} or ("Evaluator", index) in kept
    again = fit(Plan(delete_pods=gone), changed(tfjob, status=found), observe(tfjob, pods, ()))
    assert again.status is None


def tight(tfjob: TFJob, room: int) -> TFJob:
    """The job, whose metadata leave this many bytes for the status."""
    return changed(tfjob, metadata__size=MAX_OBJECT - OVERHEAD - len(tfjob.spec) - room)


def restarted(count: int = 3) -> TFJob:
    """A job of workers whose second pods run, each with a record of its first."""
    tfjob = synced(job(all_workers(count, "ExitCode")), *(pod("Worker", index) for index in range(count)), at_s=0)
    for index in range(count):
        failed = pod("Worker", index, "Failed", 137, uid=f"first-{index}")
        others = [pod("Worker", other) for other in range(count) if other != index]
        tfjob = synced(tfjob, failed, *others, at_s=60 + index)
    assert [each.total for each in tfjob.status.restarts] == [1] * count
    return tfjob


def test_the_details_of_the_oldest_failure_go_first() -> None:
    """A replica that runs again needs only its number. An unchanged job is not written again, nor a record more reduced."""
    tfjob, pods = restarted(), [pod("Worker", index) for index in range(3)]
    tfjob = synced(tfjob, *pods)
    full = stored_size(tfjob.status)
    shapes = []
    for less in (0, 1, 70):
        found = synced(tight(tfjob, full - less - OVERHEAD), *pods)
        shapes.append([bool(each.pod) for each in found.status.restarts])
        assert decide(tight(found, full - less - 600), *pods).status is None  # a larger entry in managedFields
        assert [each.total for each in found.status.restarts] == [1, 1, 1]
        assert decide(found, *pods).status is None
        assert stored_size(found.status) <= full - less
    assert shapes == [[True, True, True], [False, True, True], [False, False, True]]


def test_restarts_in_place_are_read_from_the_pod_while_it_runs() -> None:
    """They need no record until the pod is deleted; the record is back as soon as there is room."""
    pods = [pod("Worker", index, restarts=2, policy="OnFailure") for index in range(3)]
    tfjob = synced(job(all_workers(3, "OnFailure")), *pods)
    found = synced(tight(tfjob, stored_size(tfjob.status) - 250 - OVERHEAD), *pods)
    assert found.status.restarts == ()
    assert decide(found, *pods).status is None
    assert synced(tight(found, MAX_OBJECT // 2), *pods).status.restarts == tfjob.status.restarts


@pytest.mark.parametrize(("less", "total"), [(1800, 60), (3600, 20)], ids=["room for the numbers", "no room at all"])
def test_failed_pods_whose_restarts_do_not_fit_wait_until_others_run_again(less: int, total: int) -> None:
    """No pod is deleted before its failure is on the server, and none is counted twice. The job goes on in any case."""
    count, rounds = 60, []
    tfjob = synced(job(all_workers(count, "ExitCode")), *(pod("Worker", index) for index in range(count)), at_s=0)
    pods = [pod("Worker", index, "Failed", 137, uid=f"first-{index}") for index in range(count)]
    room = stored_size(synced(tfjob, *pods).status) - less
    tfjob = tight(tfjob, room)
    for _ in range(10):
        plan = decide(tfjob, *pods)
        tfjob = after(tfjob, plan)
        assert stored_size(tfjob.status) <= room
        gone = {each.pod.metadata.uid for each in plan.delete_pods}
        assert gone <= {each.pod for each in tfjob.status.restarts}
        failed = [each for each in pods if each.status.phase == "Failed"]
        rounds.append(len(failed))
        assert len(gone) == len(failed) or plan.requeue_after_s == WITHHELD_RETRY_S
        pods = [each for each in pods if each.metadata.uid not in gone]
        pods += [pod(key.type, key.index, uid=f"second-{key.index}") for key in plan.create_pods]
    assert rounds == sorted(rounds, reverse=True)
    assert (rounds[0], rounds[-1]) == (count, 0)
    assert rounds[1] > 0
    assert all(each.total == 1 for each in tfjob.status.restarts)
    assert total <= len(tfjob.status.restarts)


def test_a_suspended_job_deletes_its_pods_as_their_restarts_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running pods show their restarts only until they are deleted."""
    monkeypatch.setattr(size, "_MIN_REPLACED", 1)
    pods = [pod("Worker", index, restarts=2, policy="OnFailure") for index in range(10)]
    given = all_workers(10, "OnFailure")
    tfjob = synced(job(given), *(pod("Worker", index) for index in range(10)))
    suspended = changed(tfjob, spec=job(given | {"runPolicy": {"suspend": True}}).spec)
    room = stored_size(synced(suspended, *pods).status) - 180
    first = decide(tight(suspended, room), *pods)
    assert 0 < len(first.delete_pods) < 10
    assert first.delete_services == ()
    found = after(suspended, first)
    left = [each for each in pods if each.metadata.uid not in {gone.pod.metadata.uid for gone in first.delete_pods}]
    second = decide(tight(found, room), *left)
    assert len(second.delete_pods) == len(left)
    assert sum(each.total for each in after(found, second).status.restarts) == 20


def test_messages_of_earlier_attempts_and_of_past_conditions_go_before_facts() -> None:
    """The last attempt and the present conditions keep theirs: they say why the job is as it is."""
    attempts = tuple(JobAttempt(number, message=f"{number}" * 100) for number in range(3))
    conditions = (JobCondition("Suspended", "False", "r", "m" * 100), JobCondition("Running", "True", "r", "m" * 100))
    status = JobStatus(conditions=conditions, attempt_history=attempts)
    tfjob = changed(job(), status=status)
    for less, left in ((1, [0, 100, 100, 100, 100]), (250, [0, 0, 100, 0, 100]), (10_000, [0, 0, 100, 0, 100])):
        plan = fit(Plan(status=status), tight(tfjob, stored_size(status) - less), observe(tfjob, (), ()))
        assert plan.status is not None
        found = [each.message for each in plan.status.attempt_history]
        found += [each.message for each in plan.status.conditions]
        assert [*map(len, found)] == left


def test_annotations_and_managed_fields_count_and_are_not_kept() -> None:
    """Of 200 kB in an annotation only the number is in memory; the request of a restart is read as before."""
    annotations = {"training.kubeflow.org/restart-requested-at": "now", "other": "x" * 1000}
    managed = [{"manager": "kubectl"}]
    body = {"kind": "TFJob", "metadata": {"name": "mnist", "annotations": annotations, "managedFields": managed}}
    meta = msgspec.json.decode(msgspec.json.encode(body), type=TFJob).metadata
    expected = len(msgspec.json.encode(annotations)) + len(msgspec.json.encode(managed))
    assert (meta.annotations, meta.size) == (JobAnnotations("now"), expected)
    assert len(meta.raw_annotations) == len(meta.managed_fields) == 0
    assert changed(meta, resource_version="2").size == expected


def test_a_usual_job_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding a status takes as long as planning: a bound tells that a hundred replicas fit whatever became of them."""
    monkeypatch.setattr(size, "stored_size", None)
    records = tuple(worst_record(index) for index in range(1000))
    status = changed(WORST[False], restarts=records)
    tfjob = job({"tfReplicaSpecs": {"Evaluator": replica(1000)}}, status=status)
    assert fit(Plan(), tfjob, observe(tfjob, (), ())) == Plan()


def test_the_bound_holds_for_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character takes up to six bytes in etcd."""
    for text in ("<", "\\", "\N{GRINNING FACE}", "\x01"):
        status = JobStatus(conditions=(JobCondition("Created", "True", "r", text * 300_000),))
        tfjob = tight(job(status=status), stored_size(status) - 1)
        measured: list[JobStatus] = []
        monkeypatch.setattr(size, "stored_size", lambda found, to=measured: to.append(found) or 0)
        fit(Plan(status=status), tfjob, observe(tfjob, (), ()))
        monkeypatch.undo()
        assert measured == [status]
