"""The plan for a job, by tables and by properties."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import good_spec, invalid_spec, job, names, pod, replica, service, template
from fakes.virtual_loop import EPOCH
from support.cases import for_each
from tfjob_operator.api import core
from tfjob_operator.api.core import PodPhase
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import CleanPodPolicy, ConditionType, RestartPolicy, SuccessPolicy
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, Mistake, ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.tfjob.plan.actions import NOTHING, Plan
from tfjob_operator.controller.tfjob.plan.plan import plan

LATER = EPOCH + timedelta(seconds=60)


def decide(tfjob: TFJob, pods: list[Pod] | None = None, services: list[Service] | None = None) -> Plan:
    """The plan for a valid job."""
    return plan(tfjob, good_spec(tfjob), pods or [], services or [], LATER)


def with_status(tfjob: TFJob, decided: Plan) -> TFJob:
    """The job after the plan's status was written."""
    return msgspec.structs.replace(tfjob, status=decided.status) if decided.status is not None else tfjob


def told(status: JobStatus | None) -> list[str]:
    """The True conditions, in order."""
    assert status is not None
    return [condition.type for condition in status.conditions if condition.status == "True"]


def begun(spec: dict[str, Any] | None = None, pods: list[Pod] | None = None) -> TFJob:
    """A job that has its Created condition, and whatever these pods add to it."""
    tfjob = job(spec)
    return with_status(tfjob, decide(tfjob, pods))


def ended(spec: dict[str, Any], pods: list[Pod]) -> TFJob:
    """A job that these pods have brought to its end."""
    finished = begun(spec, pods)
    assert conditions.is_finished(finished.status)
    return finished


def with_sidecar(found: Pod) -> Pod:
    """The pod with a second container, which runs."""
    statuses = (*(found.status.container_statuses or ()), core.ContainerStatus(name="sidecar"))
    status = msgspec.structs.replace(found.status, container_statuses=statuses)
    return msgspec.structs.replace(found, status=status)


def chief(**specs: dict[str, Any]) -> dict[str, Any]:
    """A specification with a chief and other replicas."""
    return {"tfReplicaSpecs": {"Chief": replica(1), **specs}}


def test_a_new_job_gets_a_pod_and_a_service_for_each_replica() -> None:
    """Names are deterministic: job, type, index."""
    decided = decide(job({"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2)}}))
    expected = ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
    assert names(decided) == {
        "create pods": expected,
        "create services": expected,
        "delete pods": [],
        "delete services": [],
    }


def test_a_new_job_is_created_and_has_started_at_its_first_sync() -> None:
    """B30, B34: Created and startTime do not wait for pods."""
    status = decide(job()).status
    assert status is not None
    assert told(status) == [ConditionType.CREATED]
    assert status.start_time == LATER
    assert status.conditions[0].message == "TFJob mnist is created."
    assert status.replica_statuses == {"Worker": ReplicaStatus()}
    assert status.observed_generation == 1


def test_what_exists_is_not_created_again() -> None:
    """Pods and services are looked at separately: one may exist without the other."""
    decided = decide(job(), [pod("Worker", 0, "Pending")], [service("Worker", 1)])
    assert names(decided)["create pods"] == ["mnist-worker-1"]
    assert names(decided)["create services"] == ["mnist-worker-0"]


def test_a_terminating_pod_is_not_replaced_before_it_is_gone() -> None:
    """Two pods of one index never exist at once."""
    decided = decide(begun(), [pod("Worker", 0, terminating=True), pod("Worker", 1)])
    assert names(decided)["create pods"] == []


def test_a_deleted_running_pod_is_made_again() -> None:
    """Level-triggered: an index without a pod gets one."""
    decided = decide(begun(), [pod("Worker", 1)])
    assert names(decided)["create pods"] == ["mnist-worker-0"]


def test_zero_replicas_make_no_children() -> None:
    """B51: earlier operators made index 0 all the same."""
    decided = decide(job({"tfReplicaSpecs": {"PS": replica(0), "Worker": replica(1)}}))
    assert names(decided)["create pods"] == ["mnist-worker-0"]


@pytest.mark.parametrize(
    ("spec", "pods", "running"),
    [
        (chief(Worker=replica(1)), [pod("Chief", 0), pod("Worker", 0, "Pending")], True),
        (chief(Worker=replica(1)), [pod("Chief", 0, "Pending"), pod("Worker", 0)], False),
        ({"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(1)}}, [pod("PS", 0)], False),
        ({"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(1)}}, [pod("Worker", 0)], True),
        ({"tfReplicaSpecs": {"PS": replica(1)}}, [pod("PS", 0)], True),
    ],
    ids=["chief runs", "chief waits", "only the ps runs", "a worker runs", "a job of ps alone"],
)
def test_a_job_runs_when_the_replica_that_decides_runs(spec: dict[str, Any], pods: list[Pod], running: bool) -> None:
    """Chief or master when there is one, else the workers, else any replica (B04: no worker entry is no crash)."""
    assert (ConditionType.RUNNING in told(decide(job(spec), pods).status)) is running


def test_counters_are_the_pods_phases() -> None:
    """Active, succeeded and failed; a pending pod counts nowhere."""
    spec = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(4, "ExitCode")}, "successPolicy": "AllWorkers"}
    pods = [pod("Worker", 0), pod("Worker", 1, "Pending"), pod("Worker", 2, "Succeeded", 0)]
    status = decide(job(spec), [*pods, pod("Worker", 3, "Failed", 137)]).status
    assert status is not None
    assert status.replica_statuses == {
        "PS": ReplicaStatus(),
        "Worker": ReplicaStatus(active=1, succeeded=1, failed=1),
    }


SUCCESS = [
    pytest.param(chief(Worker=replica(1)), [pod("Chief", 0, "Succeeded", 0), pod("Worker", 0)], True, id="chief done"),
    pytest.param(
        chief(Worker=replica(1)), [pod("Chief", 0), pod("Worker", 0, "Succeeded", 0)], False, id="chief goes on"
    ),
    pytest.param(
        {"tfReplicaSpecs": {"Master": replica(), "PS": replica()}},
        [pod("Master", 0, "Succeeded", 0)],
        True,
        id="master",
    ),
    pytest.param(None, [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)], True, id="worker 0 done"),
    pytest.param(None, [pod("Worker", 0), pod("Worker", 1, "Succeeded", 0)], False, id="worker 1 done"),
    pytest.param(
        {"tfReplicaSpecs": {"Worker": replica(2)}, "successPolicy": "AllWorkers"},
        [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)],
        False,
        id="AllWorkers, one done",
    ),
    pytest.param(
        {"tfReplicaSpecs": {"Worker": replica(2)}, "successPolicy": "AllWorkers"},
        [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1, "Succeeded", 0)],
        True,
        id="AllWorkers, all done",
    ),
    pytest.param(
        {"tfReplicaSpecs": {"PS": replica(2)}},
        [pod("PS", 0, "Succeeded", 0), pod("PS", 1, "Succeeded", 0)],
        True,
        id="PS alone, all done",
    ),
    pytest.param(
        {"tfReplicaSpecs": {"Evaluator": replica(2)}}, [pod("Evaluator", 0, "Succeeded", 0)], False, id="one evaluator"
    ),
]


@pytest.mark.parametrize(("spec", "pods", "succeeded"), SUCCESS)
def test_the_deciding_replicas_end_ends_the_job(spec: dict[str, Any] | None, pods: list[Pod], succeeded: bool) -> None:
    """B29: chief or master, else worker 0 or all workers; a job of PS or evaluators alone when all of them have."""
    decided = decide(begun(spec), pods)
    assert (ConditionType.SUCCEEDED in told(decided.status)) is succeeded
    if succeeded:
        assert decided.status is not None
        assert decided.status.completion_time == LATER
        message = "TFJob ns/mnist successfully completed."
        assert JobEvent("Normal", "TFJobSucceeded", message) in decided.events
        assert decided.status.conditions[-1].message == message


def test_a_failed_replica_that_may_not_restart_fails_the_job() -> None:
    """B28: also when it is a PS and the chief goes on; the message says which kind failed."""
    spec = chief(PS=replica(1, "Never"))
    decided = decide(begun(spec), [pod("Chief", 0), pod("PS", 0, "Failed", 1)])
    assert told(decided.status) == [ConditionType.CREATED, ConditionType.FAILED]
    assert decided.status is not None
    message = "TFJob ns/mnist has failed because 1 PS replica(s) failed."
    told_of = f"{message} Pod mnist-ps-0: container tensorflow exited with code 1"
    assert decided.status.conditions[-1].message == told_of
    assert JobEvent("Normal", "TFJobFailed", told_of) in decided.events


def test_success_and_failure_seen_at_once_are_success() -> None:
    """An earlier operator set both; a chief that has succeeded ends the job."""
    spec = chief(Worker=replica(1))
    decided = decide(begun(spec), [pod("Chief", 0, "Succeeded", 0), pod("Worker", 0, "Failed", 1)])
    assert told(decided.status) == [ConditionType.CREATED, ConditionType.SUCCEEDED]


def test_the_end_is_written_before_anything_is_cleaned_up() -> None:
    """A pod that proves the end must not go before the end is in the status."""
    spec = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(1)}}
    pods = [pod("PS", 0), pod("Worker", 0, "Succeeded", 0)]
    before = begun(spec)
    decided = decide(before, pods)
    assert names(decided)["delete pods"] == []
    assert names(decide(with_status(before, decided), pods))["delete pods"] == ["mnist-ps-0"]


PODS = [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1), pod("Worker", 2, "Pending"), pod("PS", 0, "Failed", 137)]
SERVICES = [service("Worker", 0), service("Worker", 1), service("Worker", 2), service("PS", 0)]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        ("None", []),
        ("Running", ["mnist-worker-1", "mnist-worker-2"]),
        ("All", ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-ps-0"]),
    ],
)
def test_clean_up_takes_the_pods_of_its_policy_and_their_services(policy: str, gone: list[str]) -> None:
    """B54: Running takes Pending pods too, All takes all; a service goes with its pod."""
    spec = {
        "tfReplicaSpecs": {"PS": replica(1, "ExitCode"), "Worker": replica(3)},
        "runPolicy": {"cleanPodPolicy": policy},
    }
    decided = decide(ended(spec, PODS), PODS, SERVICES)
    assert names(decided)["delete pods"] == gone
    assert sorted(names(decided)["delete services"]) == sorted(gone)
    assert names(decided)["create pods"] == []


def test_counters_keep_what_has_ended_and_lose_what_clean_up_takes() -> None:
    """B22: also when the pods are gone; what clean-up takes is not active."""
    pods = [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)]
    for policy in ("All", "Running"):
        spec = {"tfReplicaSpecs": {"Worker": replica(2)}, "runPolicy": {"cleanPodPolicy": policy}}
        finished = ended(spec, pods)
        assert finished.status.replica_statuses == {"Worker": ReplicaStatus(active=0, succeeded=1)}
        assert decide(finished, pods).status is None
        assert decide(finished, []).status is None


def test_pods_that_clean_up_leaves_running_stay_counted_until_they_end() -> None:
    """Policy None: the counters follow the pods."""
    spec = {"tfReplicaSpecs": {"Worker": replica(2)}, "runPolicy": {"cleanPodPolicy": "None"}}
    finished = ended(spec, [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)])
    assert finished.status.replica_statuses == {"Worker": ReplicaStatus(active=1, succeeded=1)}
    later = with_status(
        finished, decide(finished, [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1, "Succeeded", 0)])
    )
    assert later.status.replica_statuses == {"Worker": ReplicaStatus(active=0, succeeded=2)}


def test_a_finished_job_with_nothing_left_to_do_costs_nothing() -> None:
    """B33, B55, WR-02: no write, no event, no delete, however often it is looked at."""
    finished = ended({"tfReplicaSpecs": {"Worker": replica(1)}}, [pod("Worker", 0, "Succeeded", 0)])
    assert decide(finished, [pod("Worker", 0, "Succeeded", 0)], [service("Worker", 0)]) == NOTHING


def test_a_finished_job_makes_no_pod_for_one_that_vanished() -> None:
    """Terminal is final."""
    finished = ended({"tfReplicaSpecs": {"Worker": replica(1)}}, [pod("Worker", 0, "Succeeded", 0)])
    assert decide(finished) == NOTHING


@for_each("code", range(1, 256))
def test_exit_codes_are_retried_or_final_by_the_table(code: int) -> None:
    """B40: 130, 137, 138 and 143 restart the replica; 128 and 139 and every other code fail the job."""
    spec = {"tfReplicaSpecs": {"Worker": replica(2, "ExitCode")}}
    decided = decide(begun(spec), [pod("Worker", 0), pod("Worker", 1, "Failed", code)])
    if code in {130, 137, 138, 143}:
        assert names(decided)["delete pods"] == ["mnist-worker-1"]
        assert told(decided.status) == [ConditionType.CREATED, ConditionType.RESTARTING]
    else:
        assert names(decided)["delete pods"] == []
        assert told(decided.status) == [ConditionType.CREATED, ConditionType.FAILED]


def test_a_restart_tells_how_the_container_ended_before_its_pod_goes() -> None:
    """B57, B56: the exit code is recorded with the deletion, once; the warning with the condition."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1, "ExitCode")}}
    decided = decide(begun(spec), [pod("Worker", 0, "Failed", 137)])
    assert decided.delete_pods[0].event == JobEvent(
        "Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137"
    )
    assert decided.events == (
        JobEvent("Warning", "TFJobRestarting", "TFJob mnist is restarting because Worker replica(s) failed."),
    )


def test_a_restarting_job_runs_again_when_every_replica_has_its_pod_back() -> None:
    """B23: no flipping between Running and Restarting while others run on."""
    spec = {"tfReplicaSpecs": {"Worker": replica(2, "ExitCode")}}
    restarting = begun(spec, [pod("Worker", 0), pod("Worker", 1, "Failed", 137)])
    going = decide(restarting, [pod("Worker", 0), pod("Worker", 1, "Failed", 137, terminating=True)])
    assert told(with_status(restarting, going).status) == [ConditionType.CREATED, ConditionType.RESTARTING]
    gone = decide(restarting, [pod("Worker", 0)])
    assert names(gone)["create pods"] == ["mnist-worker-1"]
    assert told(with_status(restarting, gone).status) == [ConditionType.CREATED, ConditionType.RESTARTING]
    back = decide(restarting, [pod("Worker", 0), pod("Worker", 1)])
    assert told(back.status) == [ConditionType.CREATED, ConditionType.RUNNING]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "ExitCode"])
def test_an_evicted_pod_is_made_again(policy: str) -> None:
    """B38, B39: the kubelet does not bring a Failed pod back; a disruption is not the training's failure."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1, policy)}}
    own = "Never" if policy == "ExitCode" else policy
    decided = decide(begun(spec), [pod("Worker", 0, "Failed", reason="Evicted", policy=own)])
    assert names(decided)["delete pods"] == ["mnist-worker-0"]
    assert ConditionType.FAILED not in told(with_status(begun(spec), decided).status)


@pytest.mark.parametrize("exit_code", [1, 143])
def test_an_evicted_pod_is_made_again_however_its_container_took_it(exit_code: int) -> None:
    """B38, B39: newer kubelets report an exit code for evicted pods; that of a process that got a SIGTERM proves nothing.

    The simulation found that such a job failed (seed 131).
    """
    spec = {"tfReplicaSpecs": {"Worker": replica(1, "ExitCode")}}
    decided = decide(begun(spec), [pod("Worker", 0, "Failed", exit_code, reason="Evicted")])
    assert names(decided)["delete pods"] == ["mnist-worker-0"]
    assert decided.status is None or not decided.status.restarts


def test_an_evicted_pod_of_a_job_that_never_restarts_fails_it() -> None:
    """Never means never."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1, "Never")}}
    assert ConditionType.FAILED in told(decide(begun(spec), [pod("Worker", 0, "Failed", reason="Evicted")]).status)


def test_a_running_pod_on_its_way_out_does_not_fail_the_job() -> None:
    """B43: a drain is not a failure; the pod is made again when it is gone."""
    decided = decide(begun(), [pod("Worker", 0, "Failed", 143, terminating=True), pod("Worker", 1)])
    assert ConditionType.FAILED not in told(with_status(begun(), decided).status)


def test_a_container_that_the_kubelet_will_restart_is_not_an_end() -> None:
    """OnFailure and exit 1: the pod stays Running, and so does the job."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1, "OnFailure")}}
    decided = decide(begun(spec), [pod("Worker", 0, "Running", 1, policy="OnFailure")])
    assert told(decided.status) == [ConditionType.CREATED, ConditionType.RUNNING]


def test_a_sidecar_that_goes_on_does_not_keep_a_finished_replica_alive() -> None:
    """B73: the container tensorflow decides; the pod itself is still cleaned up as running."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1, "OnFailure")}}
    pods = [with_sidecar(pod("Worker", 0, "Running", 0, policy="OnFailure"))]
    finished = ended(spec, pods)
    assert told(finished.status) == [ConditionType.CREATED, ConditionType.SUCCEEDED]
    assert names(decide(finished, pods))["delete pods"] == ["mnist-worker-0"]


def test_a_replica_that_is_done_is_active_in_a_suspended_job_while_its_sidecar_runs() -> None:
    """Kueue gives its quota away when no pod is active, and this one still takes place on its node."""
    spec = {"tfReplicaSpecs": {"Worker": replica(2, "OnFailure")}, "runPolicy": {"suspend": True}}
    decided = decide(begun(spec), [with_sidecar(pod("Worker", 1, "Running", 0, policy="OnFailure"))])
    assert decided.status is not None
    assert decided.status.replica_statuses == {"Worker": ReplicaStatus(active=1, succeeded=1)}


def test_scaling_down_takes_the_highest_indices_with_their_services() -> None:
    """B53: what is out of range is neither counted nor left behind."""
    pods = [pod("Worker", index) for index in range(4)]
    decided = decide(begun(), pods, [service("Worker", index) for index in range(4)])
    assert names(decided)["delete pods"] == ["mnist-worker-2", "mnist-worker-3"]
    assert names(decided)["delete services"] == ["mnist-worker-2", "mnist-worker-3"]
    assert decided.status is not None
    assert decided.status.replica_statuses == {"Worker": ReplicaStatus(active=2)}


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    """B14: nothing is created or written for it, valid or not."""
    leaving = job(deletion_timestamp=EPOCH)
    assert decide(leaving, [pod("Worker", 0)]) == NOTHING
    assert plan(leaving, InvalidSpec((Mistake("", "x"),)), [], [], LATER) == NOTHING


def test_an_invalid_job_is_removed_by_its_ttl_as_far_as_that_can_be_read() -> None:
    """B44: a job that fails as invalid has ended like any other."""
    wrong = job({"tfReplicaSpecs": {}, "runPolicy": {"ttlSecondsAfterFinished": 60}})
    failed = with_status(wrong, plan(wrong, invalid_spec(wrong), [], [], LATER))
    assert plan(failed, invalid_spec(failed), [], [], LATER).requeue_after_s == 61
    assert plan(failed, invalid_spec(failed), [], [], LATER + timedelta(seconds=61)).delete_job


def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    """B75: not a single write."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1)}, "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    assert decide(job(spec)) == NOTHING


def test_the_mistakes_in_a_job_that_another_controller_manages_are_not_ours_to_tell() -> None:
    """B75: not a single write for an invalid specification either. The simulation found one (seed 82)."""
    spec = {"tfReplicaSpecs": {}, "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    assert plan(job(spec), invalid_spec(job(spec)), [pod("Worker", 0)], [], LATER) == NOTHING


def test_an_invalid_job_fails_with_one_warning_and_no_children() -> None:
    """B02, B03: the condition and the event say the same; the second plan finds nothing to do."""
    invalid = job({"foo": 1})
    decided = plan(invalid, InvalidSpec((Mistake("spec.x", "is wrong"),)), [], [], LATER)
    text = "TFJob has failed because the spec is invalid: spec.x: is wrong"
    assert told(decided.status) == [ConditionType.FAILED]
    assert decided.events == (JobEvent("Warning", "InvalidTFJobSpec", text),)
    assert decided.status is not None
    assert (decided.status.conditions[-1].reason, decided.status.conditions[-1].message) == ("InvalidTFJobSpec", text)
    assert decided.status.completion_time == LATER
    assert plan(with_status(invalid, decided), InvalidSpec((Mistake("spec.x", "is wrong"),)), [], [], LATER) == NOTHING


def test_a_lost_restart_policy_is_warned_of_once() -> None:
    """B56: with the Created condition, which is set once."""
    spec = {"tfReplicaSpecs": {"Worker": replica(1, "OnFailure", template=template(restartPolicy="Always"))}}
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    assert decide(job(spec)).events == (JobEvent("Warning", "SettedPodTemplateRestartPolicy", text),)
    assert decide(begun(spec)).events == ()


def test_an_edited_job_says_which_generation_its_status_is_about() -> None:
    """WR-02: observedGeneration follows."""
    edited = msgspec.structs.replace(begun(), metadata=msgspec.structs.replace(begun().metadata, generation=2))
    status = decide(edited).status
    assert status is not None
    assert status.observed_generation == 2


# Properties: any job, any pods.

replica_types = st.sampled_from(c.REPLICA_TYPES)
policies = st.sampled_from(RestartPolicy)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A valid specification of up to three replica types."""
    types = draw(st.lists(replica_types, min_size=1, max_size=3, unique=True))
    if c.CHIEF in types and c.MASTER in types:
        types.remove(c.MASTER)
    return {
        "tfReplicaSpecs": {
            name: replica(draw(st.integers(0, 1 if name in c.CHIEF_TYPES else 3)), draw(policies)) for name in types
        },
        "successPolicy": draw(st.sampled_from(SuccessPolicy)),
        "runPolicy": {"cleanPodPolicy": draw(st.sampled_from(CleanPodPolicy))},
    }


@st.composite
def some_pods(draw: st.DrawFn) -> list[Pod]:
    """Pods in any state, at most one for each name."""
    places = draw(st.lists(st.tuples(replica_types, st.integers(0, 3)), max_size=6, unique=True))
    return [
        pod(
            name,
            index,
            draw(st.sampled_from([PodPhase.PENDING, PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, "Unknown"])),
            draw(st.none() | st.sampled_from([0, 1, 137])),
            reason=draw(st.sampled_from(["", "Evicted"])),
            terminating=draw(st.booleans()),
        )
        for name, index in places
    ]


@given(specs(), some_pods(), st.lists(st.tuples(replica_types, st.integers(0, 3)), max_size=4, unique=True))
def test_whatever_is_observed_the_plan_keeps_its_promises(
    spec: dict[str, Any], pods: list[Pod], places: list[tuple[str, int]]
) -> None:
    """No second pod for an index, no delete of what is already going, never two ends; the written status is stable."""
    services = [service(*place) for place in places]
    tfjob = job(spec)
    decided = decide(tfjob, pods, services)
    there = {found.metadata.name for found in pods}
    assert not there & set(names(decided)["create pods"])
    assert all(deletion.pod.metadata.deletion_timestamp is None for deletion in decided.delete_pods)
    after = with_status(tfjob, decided)
    true = set(told(after.status))
    assert not {ConditionType.SUCCEEDED, ConditionType.FAILED} <= true
    if conditions.is_finished(after.status):
        assert not decided.create_pods
        assert after.status.completion_time is not None
    again = decide(after, pods, services)
    assert again.status is None
    assert again.events == ()


@given(specs(), some_pods(), some_pods())
def test_a_finished_job_stays_as_it_ended(spec: dict[str, Any], pods: list[Pod], others: list[Pod]) -> None:
    """Terminal is never left, whatever its pods do afterwards; counters of what has ended never fall."""
    tfjob = job(spec)
    after = with_status(tfjob, decide(tfjob, pods))
    if not conditions.is_finished(after.status):
        return
    decided = decide(after, others)
    later = with_status(after, decided)
    assert later.status.conditions == after.status.conditions
    assert not decided.create_pods
    assert not decided.create_services
    for name, before in after.status.replica_statuses.items():
        assert later.status.replica_statuses[name].succeeded >= before.succeeded


def test_a_failed_replica_under_never_has_one_pod_ever() -> None:
    """B41: it fails the job; only a pod that somebody deletes is made again."""
    spec = {"tfReplicaSpecs": {"Worker": replica(2, "Never")}}
    decided = decide(begun(spec), [pod("Worker", 0, "Failed", 1), pod("Worker", 1)])
    assert told(decided.status) == [ConditionType.CREATED, ConditionType.FAILED]
    assert not decided.create_pods
    assert names(decide(begun(spec), [pod("Worker", 1)]))["create pods"] == ["mnist-worker-0"]


def test_a_finished_job_of_an_older_operator_is_cleaned_up_by_the_default_policy() -> None:
    """B20: nothing is remembered of it and its specification names no policy; Running pods go, the others stay."""
    spec = {"tfReplicaSpecs": {"Worker": {"template": template()}, "PS": {"template": template()}}}
    finished = ended(spec, [pod("Worker", 0, "Succeeded", 0), pod("PS", 0)])
    bare = msgspec.structs.replace(finished.status, finished_indices={}, worker_selector="", observed_generation=0)
    decided = decide(msgspec.structs.replace(finished, status=bare), [pod("Worker", 0, "Succeeded", 0), pod("PS", 0)])
    assert names(decided)["delete pods"] == ["mnist-ps-0"]
