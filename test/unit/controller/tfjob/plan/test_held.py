"""When a job has begun, and what becomes of one that was then edited into a wrong or too large one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import good_spec, job, names, pod, replica, service
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import ContainerState, ContainerStateWaiting, ContainerStatus, PodStatus
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import (
    Begun,
    IndexRestarts,
    InvalidSpec,
    JobCondition,
    JobStatus,
    Mistake,
    ReplicaStatus,
    TFJob,
    TFJobSpec,
)
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.tfjob.plan.actions import Gang, Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.status import bounded, has_begun, in_force, read, refused, with_memory_of

SPEC = {"tfReplicaSpecs": {"Worker": replica(2, "ExitCode")}}
RENAMED = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
MISTAKE = SPEC | {"runPolicy": {"backoffLimit": -1}}
MISTAKES = {
    "a negative limit": MISTAKE,
    "a policy that is none": SPEC | {"runPolicy": {"cleanPodPolicy": "Sometimes"}},
    "a renamed container": {"tfReplicaSpecs": {"Worker": replica(2, template=RENAMED)}},
    "two entries of one type": {"tfReplicaSpecs": {"Worker": replica(2), "worker": replica(2)}},
    "nothing at all": {},
}
TEXT = "spec.runPolicy.backoffLimit: must be a non-negative integer"
REFUSAL = "pod mnist-worker-1 was rejected: spec.containers[0].image: Required value"
NO_CHILDREN: dict[str, list[str]] = {"create pods": [], "create services": [], "delete pods": [], "delete services": []}
RUNNING = [pod("Worker", 0), pod("Worker", 1)]


def decide(
    tfjob: TFJob, *pods: Pod, services: tuple[Service, ...] = (), at_s: float = 60, gang: Gang | None = None
) -> Plan:
    """The plan for a job, as the controller makes it."""
    return plan(tfjob, in_force(tfjob, read(tfjob)), pods, services, EPOCH + timedelta(seconds=at_s), gang=gang)


def after(tfjob: TFJob, decided: Plan) -> TFJob:
    """The job when the plan's status was written."""
    return msgspec.structs.replace(tfjob, status=decided.status) if decided.status is not None else tfjob


def synced(tfjob: TFJob, *pods: Pod, at_s: float = 60) -> TFJob:
    """The job after a sync."""
    return after(tfjob, decide(tfjob, *pods, at_s=at_s))


def running(spec: dict[str, Any] | None = None) -> TFJob:
    """A job whose two workers run."""
    return synced(synced(job(spec or SPEC), at_s=0), *RUNNING, at_s=0)


def edited(tfjob: TFJob, spec: dict[str, Any]) -> TFJob:
    """The job with another specification."""
    meta = msgspec.structs.replace(tfjob.metadata, generation=tfjob.metadata.generation + 1)
    return msgspec.structs.replace(tfjob, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))


def held_of(tfjob: TFJob) -> JobCondition:
    """The condition that says that it is held, or was."""
    found = conditions.find(tfjob.status.conditions, ConditionType.HELD)
    assert found is not None
    return found


def told(tfjob: TFJob) -> list[str]:
    """The conditions that are True, in their order."""
    return [each.type for each in tfjob.status.conditions if each.status == "True"]


@pytest.mark.parametrize("wrong", [*MISTAKES.values()], ids=MISTAKES)
def test_a_wrong_edit_of_a_job_that_runs_holds_it(wrong: dict[str, Any]) -> None:
    """U4: not a pod and not a service is touched, and the state that clients read stays as it was."""
    services = (service("Worker", 0), service("Worker", 1))
    decided = decide(edited(running(), wrong), *RUNNING, services=services)
    held = after(edited(running(), wrong), decided)
    assert names(decided) == NO_CHILDREN
    assert told(held) == [ConditionType.CREATED, ConditionType.HELD, ConditionType.RUNNING]
    assert held.status.conditions[-1] == running().status.conditions[-1]
    assert held.status.observed_generation == 2
    assert held.status.replica_statuses == {"Worker": ReplicaStatus(active=2)}
    assert decide(held, *RUNNING, services=services).status is None


def test_the_condition_and_one_warning_name_every_mistake() -> None:
    """U4: once for the same mistakes, and again when they are others."""
    wrong = SPEC | {"runPolicy": {"backoffLimit": -1, "cleanPodPolicy": "Sometimes"}}
    decided = decide(edited(running(), wrong), *RUNNING)
    (warning,) = decided.events
    held = after(edited(running(), wrong), decided)
    assert (warning.type, warning.reason, held_of(held).reason) == ("Warning", "InvalidTFJobSpec", "InvalidTFJobSpec")
    for text in (warning.message, held_of(held).message):
        assert "backoffLimit" in text
        assert "cleanPodPolicy" in text
    assert decide(edited(held, wrong), *RUNNING).events == ()
    (other,) = decide(edited(held, MISTAKE), *RUNNING).events
    assert "cleanPodPolicy" not in other.message


@pytest.mark.parametrize("code", [1, 137])
def test_what_has_ended_while_it_is_held_is_judged_when_it_is_mended(code: int) -> None:
    """U4: until the specification is good, a failure neither ends the job nor leads to a new pod."""
    ended = (pod("Worker", 0), pod("Worker", 1, "Failed", code))
    held = synced(edited(running(), MISTAKE), *RUNNING)
    decided = decide(held, *ended)
    held = after(held, decided)
    assert names(decided) == NO_CHILDREN
    assert held.status.replica_statuses == {"Worker": ReplicaStatus(active=1, failed=1)}
    assert held.status.restarts == ()
    decided = decide(edited(held, SPEC), *ended)
    mended = after(edited(held, SPEC), decided)
    assert decided.events[0].reason == "TFJobSpecMended"
    assert held_of(mended).status == "False"
    if code == 1:
        assert told(mended) == [ConditionType.CREATED, ConditionType.FAILED]
    else:
        assert names(decided)["delete pods"] == ["mnist-worker-1"]
        assert told(mended) == [ConditionType.CREATED, ConditionType.RESTARTING]


def test_a_success_is_written_down_while_the_job_is_held_and_ends_it_when_it_is_mended() -> None:
    """U4: its pod may be gone by then, and the proof with it."""
    held = synced(edited(running(), MISTAKE), pod("Worker", 0, "Succeeded", 0), pod("Worker", 1, restarts=3))
    assert held.status.finished_indices == {"Worker": "0"}
    assert [record.total for record in held.status.restarts] == [3]
    assert ConditionType.SUCCEEDED not in told(held)
    mended = synced(edited(held, SPEC), pod("Worker", 1))
    assert told(mended) == [ConditionType.CREATED, ConditionType.SUCCEEDED]


def test_a_pod_that_is_missing_is_made_when_the_specification_is_mended() -> None:
    """U4: the job goes on as if nothing had happened."""
    held = synced(edited(running(), MISTAKE), *RUNNING)
    assert names(decide(held, pod("Worker", 0), services=(service("Worker", 0),))) == NO_CHILDREN
    decided = decide(edited(held, SPEC), pod("Worker", 0), services=(service("Worker", 0), service("Worker", 1)))
    assert names(decided) == NO_CHILDREN | {"create pods": ["mnist-worker-1"]}
    mended = synced(edited(held, SPEC), *RUNNING)
    states = [(each.type, each.status) for each in mended.status.conditions]
    assert states == [(ConditionType.CREATED, "True"), (ConditionType.HELD, "False"), (ConditionType.RUNNING, "True")]
    assert decide(mended, *RUNNING).status is None


def test_a_deadline_that_can_be_read_ends_a_job_that_is_held() -> None:
    """U4: with the message of any such job; then what ran is cleaned up, since a limit leaves nothing running."""
    limited = SPEC | {"runPolicy": {"activeDeadlineSeconds": 100}}
    wrong = SPEC | {"runPolicy": {"activeDeadlineSeconds": 100, "backoffLimit": -1, "cleanPodPolicy": "None"}}
    held = edited(running(limited), wrong)
    assert decide(held, *RUNNING).requeue_after_s == 41
    held = synced(held, *RUNNING)
    ended = synced(held, *RUNNING, at_s=101)
    assert told(ended) == [ConditionType.CREATED, ConditionType.FAILED]
    assert (ended.status.conditions[-1].reason, held_of(ended).status) == ("JobFailed", "False")
    assert names(decide(ended, *RUNNING, at_s=102))["delete pods"] == ["mnist-worker-0", "mnist-worker-1"]


def test_a_suspension_that_can_be_read_takes_the_pods_and_resuming_makes_none() -> None:
    """U4: suspension is the user's explicit request; a wrong specification is no reason to make pods."""
    wrong = SPEC | {"runPolicy": {"suspend": True, "backoffLimit": -1, "activeDeadlineSeconds": 10}}
    services = (service("Worker", 0),)
    decided = decide(edited(running(), wrong), *RUNNING, services=services)
    assert names(decided)["delete pods"] == ["mnist-worker-0", "mnist-worker-1"]
    assert names(decided)["delete services"] == ["mnist-worker-0"]
    suspended = after(edited(running(), wrong), decided)
    assert told(suspended) == [ConditionType.CREATED, ConditionType.HELD, ConditionType.SUSPENDED]
    wrong = MISTAKE | {"runPolicy": {"backoffLimit": -1, "activeDeadlineSeconds": 10}}
    resumed = edited(suspended, wrong)
    decided = decide(resumed, at_s=1000)
    assert names(decided) == NO_CHILDREN
    assert decided.requeue_after_s is None
    assert told(after(resumed, decided)) == [ConditionType.CREATED, ConditionType.HELD, ConditionType.SUSPENDED]
    decided = decide(edited(suspended, SPEC), at_s=1000)
    assert names(decided)["create pods"] == ["mnist-worker-0", "mnist-worker-1"]
    mended = after(edited(suspended, SPEC), decided)
    assert told(mended) == [ConditionType.CREATED]
    assert mended.status.start_time == EPOCH + timedelta(seconds=1000)


def test_what_a_job_left_running_is_not_taken_by_an_edit_after_its_end() -> None:
    """U4: under None parameter servers may run on; a policy that cannot be read is no reason to delete them."""
    kept = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(1)}, "runPolicy": {"cleanPodPolicy": "None"}}
    pods = (pod("PS", 0), pod("Worker", 0, "Succeeded", 0))
    ended = synced(synced(job(kept), at_s=0), *pods)
    assert ConditionType.SUCCEEDED in told(ended)
    for policy in ("Sometimes", "None"):
        wrong = kept | {"runPolicy": {"cleanPodPolicy": policy, "backoffLimit": -1}}
        assert names(decide(edited(ended, wrong), *pods)) == NO_CHILDREN
    wrong = kept | {"runPolicy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 90, "backoffLimit": -1}}
    decided = decide(edited(ended, wrong), *pods)
    assert names(decided)["delete pods"] == ["mnist-ps-0", "mnist-worker-0"]
    assert decided.requeue_after_s == 91
    assert decide(edited(ended, wrong), at_s=151).delete_job


def test_a_job_that_has_never_begun_fails() -> None:
    """B02: it was never good, or has never had a pod: nothing is lost, and its owner sees it at once."""
    assert told(synced(job(MISTAKE))) == [ConditionType.FAILED]
    suspended = synced(job(SPEC | {"runPolicy": {"suspend": True}}))
    assert told(synced(edited(suspended, MISTAKE))) == [ConditionType.CREATED, ConditionType.FAILED]


def test_a_job_of_an_older_operator_is_held_too() -> None:
    """U4: it recorded neither `begun` nor how many replicas there were; its pods are proof enough."""
    bare = msgspec.structs.replace(running().status, begun=None)
    wrong = edited(msgspec.structs.replace(running(), status=bare), MISTAKE)
    held = synced(wrong, pod("Worker", 0), pod("Worker", 7, "Succeeded", 0))
    assert told(held) == [ConditionType.CREATED, ConditionType.HELD, ConditionType.RUNNING]
    assert held.status.replica_statuses == {"Worker": ReplicaStatus(active=1, succeeded=1)}
    assert held.status.finished_indices == {"Worker": "7"}
    assert held.status.begun == Begun()
    assert told(synced(held)) == [
        ConditionType.CREATED,
        ConditionType.HELD,
        ConditionType.RUNNING,
    ]  # though no pod is left
    unwritten = msgspec.structs.replace(job(MISTAKE), status=JobStatus())
    assert told(synced(unwritten, pod("Worker", 0))) == [ConditionType.HELD, ConditionType.CREATED]


def test_what_is_refused_after_an_edit_holds_the_job_until_the_next_one() -> None:
    """U4: in the API server's words; nothing is tried again at the same generation, even after a restart of the operator."""
    larger = edited(running(), {"tfReplicaSpecs": {"Worker": replica(3)}})
    decided = plan(larger, refused(good_spec(larger), REFUSAL), RUNNING, [], EPOCH)
    held = after(larger, decided)
    assert told(held) == [ConditionType.CREATED, ConditionType.HELD, ConditionType.RUNNING]
    assert held_of(held).message == REFUSAL
    assert REFUSAL in decided.events[0].message
    assert decide(held, *RUNNING) == Plan(problems=())
    failed = (pod("Worker", 0, "Failed", 1), pod("Worker", 1))
    assert told(synced(held, *failed)) == [ConditionType.CREATED, ConditionType.HELD, ConditionType.RUNNING]
    again = decide(edited(held, {"tfReplicaSpecs": {"Worker": replica(3)}}), *RUNNING)
    assert names(again)["create pods"] == ["mnist-worker-2"]
    assert [event.reason for event in again.events] == ["TFJobSpecMended", "PodTemplateNotApplied"]


def test_what_is_refused_without_ever_having_been_edited_fails_the_job() -> None:
    """B03: it could never have all its pods, and those that it has do not change that."""
    tfjob = running()
    decided = plan(tfjob, refused(good_spec(tfjob), REFUSAL), RUNNING, [], EPOCH)
    assert told(after(tfjob, decided)) == [ConditionType.CREATED, ConditionType.FAILED]
    assert decided.events[0].message.endswith(f"the spec is invalid: {REFUSAL}")


def test_scaling_a_job_without_workers_is_a_warning_once_and_nothing_else() -> None:
    """U3: kubectl scale on a job that has only a chief."""
    chief = {"tfReplicaSpecs": {"Chief": replica(1)}}
    tfjob = synced(synced(job(chief), at_s=0), pod("Chief", 0))
    scaled = edited(tfjob, {"tfReplicaSpecs": {"Chief": replica(1), "Worker": {"replicas": 2}}})
    decided = decide(scaled, pod("Chief", 0), services=(service("Chief", 0),))
    assert names(decided) == NO_CHILDREN
    assert [(event.type, event.reason) for event in decided.events] == [("Warning", "NoWorkersToScale")]
    assert told(after(scaled, decided)) == [ConditionType.CREATED, ConditionType.RUNNING]
    assert decide(after(scaled, decided), pod("Chief", 0), services=(service("Chief", 0),)) == Plan()


def test_what_keeps_a_pod_from_starting_is_told_of_a_held_job_too() -> None:
    """B34: its owner still wants to know."""
    waiting = ContainerState(waiting=ContainerStateWaiting(reason="ErrImagePull", message="no such image"))
    status = PodStatus(phase="Pending", container_statuses=(ContainerStatus(name="tensorflow", state=waiting),))
    stuck = msgspec.structs.replace(pod("Worker", 1), status=status)
    (problem,) = decide(edited(running(), MISTAKE), pod("Worker", 0), stuck).problems
    assert "no such image" in problem.event.message


def test_a_job_that_was_given_to_another_controller_is_not_held() -> None:
    """B75: its mistakes are for that controller to report."""
    policy = {"managedBy": "kueue.x-k8s.io/multikueue", "backoffLimit": -1}
    foreign = edited(running(), SPEC | {"runPolicy": policy})
    assert decide(foreign, *RUNNING) == Plan()


@st.composite
def fates(draw: st.DrawFn) -> list[Pod]:
    """What may have become of the pods of a held job."""
    phases = st.sampled_from([("Running", None), ("Pending", None), ("Succeeded", 0), ("Failed", 1), ("Failed", 137)])
    places = draw(st.lists(st.integers(0, 2), unique=True))
    found = [(index, draw(phases)) for index in places]
    return [pod("Worker", index, phase, code, terminating=draw(st.booleans())) for index, (phase, code) in found]


@given(st.sampled_from([*MISTAKES.values()]), fates(), fates())
def test_whatever_becomes_of_its_pods_a_held_job_touches_nothing_and_forgets_nothing(
    wrong: dict[str, Any], first: list[Pod], then: list[Pod]
) -> None:
    """U4: and its status settles, so it costs no further call."""
    tfjob = edited(running(), wrong)
    for pods in (first, then):
        decided = decide(tfjob, *pods)
        assert names(decided) == NO_CHILDREN
        before, tfjob = tfjob, after(tfjob, decided)
        assert conditions.is_true(tfjob.status, ConditionType.HELD)
        assert tfjob.status.conditions[-1].type == ConditionType.RUNNING
        assert set(before.status.finished_indices) <= set(tfjob.status.finished_indices)
        assert decide(tfjob, *pods).status is None


VALID_SPEC = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2)}}


def status_of(tfjob: TFJob, *pods: object) -> JobStatus:
    """The status that the next plan writes."""
    status = plan(tfjob, good_spec(tfjob), pods, [], EPOCH).status  # type: ignore[arg-type]
    assert status is not None
    return status


def with_condition(kind: ConditionType, status: str = "True") -> JobStatus:
    """A status as an operator of an older version wrote it."""
    written = conditions.set_true((), ConditionType.CREATED, "", "", EPOCH)
    written = conditions.set_true(written, kind, "", "", EPOCH)
    if status == "False":
        written = conditions.set_true(written, ConditionType.SUSPENDED, "", "", EPOCH)
    return JobStatus(conditions=written)


def test_a_job_has_begun_with_the_status_that_comes_before_its_first_pod() -> None:
    """U4: so no pod exists while the status does not say so, and no further write is needed."""
    begun = status_of(job(VALID_SPEC, generation=3)).begun
    assert begun is not None
    assert (begun.generation, begun.replicas) == (3, {"PS": 1, "Worker": 2})


def test_a_job_that_makes_no_pods_has_not_begun() -> None:
    """Suspended from the start, or of no replicas."""
    assert status_of(job(VALID_SPEC | {"runPolicy": {"suspend": True}})).begun is None
    assert status_of(job({"tfReplicaSpecs": {"Worker": replica(0)}})).begun is None


def test_the_generation_of_the_beginning_stays_and_the_sizes_follow_the_specification() -> None:
    """What is in force is what the newest good specification asked for."""
    first = status_of(job(VALID_SPEC))
    scaled = {"tfReplicaSpecs": {"Worker": replica(4)}}
    begun = status_of(job(scaled, generation=2, status=first)).begun
    assert begun is not None
    assert (begun.generation, begun.replicas) == (1, {"Worker": 4})
    suspended = VALID_SPEC | {"runPolicy": {"suspend": True}}
    assert status_of(job(suspended, generation=2, status=first)).begun == first.begun


@pytest.mark.parametrize(
    "status",
    [
        with_condition(ConditionType.RUNNING),
        with_condition(ConditionType.RUNNING, "False"),
        with_condition(ConditionType.RESTARTING),
        JobStatus(finished_indices={"Worker": "0"}),
        JobStatus(restarts=(IndexRestarts(type="Worker", index=0, pod="p"),)),
    ],
)
def test_a_job_that_an_older_operator_ran_has_begun(status: JobStatus) -> None:
    """U4: it recorded no `begun`, but what can exist only if there was a pod proves it."""
    assert has_begun(status, has_pods=False)
    assert not has_begun(with_condition(ConditionType.SUSPENDED), has_pods=False)
    assert has_begun(with_condition(ConditionType.SUSPENDED), has_pods=True)


def test_what_was_edited_before_this_version_came_nobody_knows() -> None:
    """Generation 0: any specification of such a job counts as edited, so that no refusal ends it."""
    begun = status_of(job(VALID_SPEC, generation=7, status=with_condition(ConditionType.RUNNING))).begun
    assert begun is not None
    assert (begun.generation, begun.replicas) == (0, {"PS": 1, "Worker": 2})


def test_pods_without_any_status_are_our_own_of_a_moment_ago() -> None:
    """In a burst pods come before the first status, and the operator may have been killed in between."""
    begun = status_of(job(VALID_SPEC, generation=2), pod("Worker", 0)).begun
    assert begun is not None
    assert begun.generation == 2


def test_what_is_not_written_yet_of_the_beginning_is_remembered() -> None:
    """Whichever of the two is the newer: the earlier generation, and the sizes of the later specification."""
    old = JobStatus(begun=Begun(generation=1, replicas={"Worker": 2}), observed_generation=1)
    new = JobStatus(begun=Begun(generation=3, replicas={"Worker": 5}), observed_generation=3)
    both = Begun(generation=1, replicas={"Worker": 5})
    assert with_memory_of(old, new).begun == with_memory_of(new, old).begun == both
    assert with_memory_of(JobStatus(), old).begun == with_memory_of(old, JobStatus()).begun == old.begun
    assert msgspec.json.decode(msgspec.json.encode(new), type=JobStatus) == new


LONG = "a" * (63 - len("-worker-9"))
"""A job of this name may have ten workers."""


def workers(count: int, **others: Any) -> dict[str, Any]:
    """A specification of so many workers."""
    return {"tfReplicaSpecs": {"Worker": replica(count, "ExitCode")} | others}


def begun(spec: dict[str, Any], name: str = LONG) -> TFJob:
    """A job whose first plan was made."""
    tfjob = job(spec, name=name)
    return msgspec.structs.replace(tfjob, status=plan(tfjob, good_spec(tfjob), [], [], EPOCH).status)


def in_bounds(tfjob: TFJob) -> TFJobSpec | InvalidSpec:
    """The specification as far as it is within bounds."""
    spec = read(tfjob)
    assert isinstance(spec, TFJobSpec)
    return bounded(tfjob, spec)


@pytest.mark.parametrize(("name", "count"), [(LONG, 11), ("mnist", 10_001), ("mnist", 10**30)])
def test_a_job_that_asks_for_too_much_from_the_start_is_wrong(name: str, count: int) -> None:
    """B05, D16: it has never begun, so it fails, and its owner sees at once what to mend."""
    found = in_bounds(job(workers(count), name=name))
    assert isinstance(found, InvalidSpec)
    assert len(found.mistakes) == 1


@pytest.mark.parametrize(("name", "count"), [(LONG, 11), ("mnist", 10_001), ("mnist", 10**30)])
def test_a_scale_up_beyond_a_bound_is_held_and_nothing_else(name: str, count: int) -> None:
    """D16: the job keeps its size, and is synced as ever; the condition and one Warning name the bound."""
    tfjob = edited(begun(workers(3), name), workers(count))
    spec = in_bounds(tfjob)
    assert isinstance(spec, TFJobSpec)
    pods = [pod("Worker", 0, job_name=name), pod("Worker", 1, "Failed", 137, job_name=name)]
    decided = plan(tfjob, spec, pods, [], EPOCH)
    assert names(decided)["create pods"] == [f"{name}-worker-2"]
    assert names(decided)["delete pods"] == [f"{name}-worker-1"]
    assert decided.status is not None
    held = next(each for each in decided.status.conditions if each.type == ConditionType.HELD)
    assert (held.status, held.reason, held.message) == ("True", "TFJobTooLarge", str(spec.too_large))
    assert decided.status.conditions[-1].type == ConditionType.RESTARTING
    assert decided.status.begun == tfjob.status.begun
    assert [event.reason for event in decided.events] == ["TFJobTooLarge", "TFJobRestarting"]
    after = msgspec.structs.replace(tfjob, status=decided.status)
    assert plan(after, spec, pods, [], EPOCH).events == ()


def test_scaled_back_the_job_is_held_no_more() -> None:
    """D16: to any size within bounds."""
    tfjob = edited(begun(workers(3)), workers(11))
    spec = in_bounds(tfjob)
    assert isinstance(spec, TFJobSpec)
    held = msgspec.structs.replace(tfjob, status=plan(tfjob, spec, [], [], EPOCH).status)
    mended = edited(held, workers(10))
    decided = plan(mended, good_spec(mended), [], [], EPOCH)
    assert len(decided.create_pods) == 10
    assert [event.reason for event in decided.events] == ["TFJobSpecMended"]


def test_what_shrinks_beside_a_scale_up_that_is_held_shrinks() -> None:
    """D16: no type gets more than it had, and one that is new gets none."""
    tfjob = edited(begun(workers(3, PS=replica(2))), workers(11, PS=replica(1), Evaluator=replica(1)))
    spec = in_bounds(tfjob)
    assert isinstance(spec, TFJobSpec)
    assert spec.sizes == {"PS": 1, "Worker": 3, "Evaluator": 0}


def test_a_bound_that_is_passed_already_takes_nothing_from_a_job() -> None:
    """D16: a job of this size has run since before the bound existed; only further growth is refused."""

    def at_most_two(_job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
        return Mistake("", "too many") if spec.total_replicas > 2 else None

    tfjob = edited(begun(workers(3)), workers(3) | {"runPolicy": {"backoffLimit": 5}})
    spec = read(tfjob)
    assert isinstance(spec, TFJobSpec)
    assert bounded(tfjob, spec, [at_most_two]) == spec
    larger = read(edited(tfjob, workers(4)))
    assert isinstance(larger, TFJobSpec)
    cut = bounded(tfjob, larger, [at_most_two])
    assert isinstance(cut, TFJobSpec)
    assert (cut.sizes, cut.too_large) == ({"Worker": 3}, Mistake("", "too many"))
