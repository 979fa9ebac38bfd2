"""How gang scheduling changes a plan, by tables and by properties."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import JOB_UID, good_spec, invalid_spec, job, names, pod, replica, service, template
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType, RestartPolicy
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.children import ChildMeta, Pod, PodGroup, PodGroupSpec, PodGroupStatus
from tfjob_operator.controller.tfjob.build.children import gang_scheduler
from tfjob_operator.controller.tfjob.plan.actions import FIRST_LOOK_S, LOOK_AGAIN_S, Gang, Plan
from tfjob_operator.controller.tfjob.plan.plan import plan

VOLCANO = gang_scheduler("volcano")
PLUGINS = gang_scheduler("coscheduler")
TWO = {"tfReplicaSpecs": {"Worker": replica(2)}}
LATER = EPOCH + timedelta(seconds=60)
HELD: dict[str, list[str]] = {"create pods": [], "create services": [], "delete pods": [], "delete services": []}


def group(min_member: int = 2, phase: str = "Inqueue", *, going: bool = False) -> PodGroup:
    """The job's PodGroup."""
    owner = OwnerReference(kind="TFJob", name="mnist", uid=JOB_UID, controller=True)
    meta = ChildMeta(name="mnist", namespace="ns", uid="group-uid", owner_references=(owner,))
    if going:
        meta = msgspec.structs.replace(meta, deletion_timestamp=EPOCH)
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=min_member), status=PodGroupStatus(phase=phase))


def decide(tfjob: TFJob, gang: Gang, pods: list[Pod] | None = None) -> Plan:
    """The plan for a valid job."""
    return plan(tfjob, good_spec(tfjob), pods or [], [], LATER, gang=gang)


def begun(spec: dict[str, Any] | None = None, **status: Any) -> TFJob:
    """A job whose first status is written."""
    tfjob = job(spec)
    decided = decide(tfjob, Gang(VOLCANO))
    assert decided.status is not None
    return msgspec.structs.replace(tfjob, status=msgspec.structs.replace(decided.status, **status))


def edited(spec: dict[str, Any], *, generations: int = 1) -> TFJob:
    """A job that has begun and was then edited so often."""
    tfjob = begun(spec)
    meta = msgspec.structs.replace(tfjob.metadata, generation=tfjob.metadata.generation + generations)
    return msgspec.structs.replace(tfjob, metadata=meta)


def finished() -> TFJob:
    """A job that has succeeded."""
    tfjob = begun(TWO)
    decided = plan(tfjob, good_spec(tfjob), [pod("Worker", 0, "Succeeded", 0)], [], LATER)
    assert decided.status is not None
    assert conditions.is_finished(decided.status)
    return msgspec.structs.replace(tfjob, status=decided.status)


def policy(spec: dict[str, Any], **scheduling: Any) -> dict[str, Any]:
    """The specification with a scheduling policy."""
    return spec | {"runPolicy": {"schedulingPolicy": scheduling}}


@pytest.mark.parametrize("phase", [None, "", "Pending"])
def test_volcano_gets_a_group_and_no_pod_until_it_admits_the_group(phase: str | None) -> None:
    """B65: pods that exist before would be scheduled one by one, as if there were no group."""
    seen = None if phase is None else group(phase=phase)
    decided = decide(job(TWO), Gang(VOLCANO, seen))
    assert names(decided) == HELD
    assert decided.create_pod_group == (2 if phase is None else None)


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown"])
def test_volcano_gets_the_pods_when_it_has_admitted_the_group(phase: str) -> None:
    """B65: in any phase but the first."""
    decided = decide(begun(TWO), Gang(VOLCANO, group(phase=phase)))
    assert names(decided)["create pods"] == ["mnist-worker-0", "mnist-worker-1"]
    assert names(decided)["create services"] == ["mnist-worker-0", "mnist-worker-1"]
    assert decided.create_pod_group is None


def test_the_coscheduling_plugin_gets_group_and_pods_at_once() -> None:
    """It holds the pods back itself; the executor creates the group first."""
    decided = decide(job(TWO), Gang(PLUGINS))
    assert decided.create_pod_group == 2
    assert names(decided)["create pods"] == ["mnist-worker-0", "mnist-worker-1"]


def test_the_first_status_of_a_job_that_waits_is_complete() -> None:
    """B31: replicaStatuses is an object in every status that is written."""
    status = decide(job(TWO), Gang(VOLCANO)).status
    assert status is not None
    written = msgspec.to_builtins(status)
    assert written["replicaStatuses"] == {"Worker": {"active": 0, "succeeded": 0, "failed": 0}}
    assert [condition["type"] for condition in written["conditions"]] == [ConditionType.CREATED]


@pytest.mark.parametrize(
    ("replicas", "available", "expected"),
    [(4, None, 4), (4, 2, 2), (4, 9, 4), (4, 0, 1), (1, None, 1)],
)
def test_the_group_asks_for_all_replicas_or_for_as_many_as_are_enough(
    replicas: int, available: int | None, expected: int
) -> None:
    """B66: and never for more than the job can have, which would wait for ever."""
    spec = {"tfReplicaSpecs": {"Worker": replica(replicas)}}
    spec = policy(spec) if available is None else policy(spec, minAvailable=available)
    assert decide(job(spec), Gang(VOLCANO)).create_pod_group == expected


def test_a_job_of_no_replicas_has_no_group() -> None:
    """A group of none cannot be made."""
    decided = decide(job({"tfReplicaSpecs": {"Worker": replica(0), "PS": replica(0)}}), Gang(VOLCANO))
    assert decided.create_pod_group is None


def test_a_job_that_is_scaled_has_its_group_resized_and_not_made_again() -> None:
    """B66: minMember follows the replicas."""
    pods = [pod("Worker", 0), pod("Worker", 1)]
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(4)}}, status=begun(TWO).status)
    decided = decide(tfjob, Gang(VOLCANO, group()), pods)
    assert decided.create_pod_group is None
    assert decided.resize_pod_group is not None
    assert decided.resize_pod_group.min_member == 4
    assert decided.acts
    assert decide(tfjob, Gang(VOLCANO, group(4)), pods).resize_pod_group is None


@pytest.mark.parametrize(
    ("asked", "made", "field"),
    [
        ({"queue": "b"}, {"queue": "a"}, "queue"),
        ({"queue": "b"}, {}, "queue"),
        ({"priorityClass": "high"}, {"priority_class_name": "low"}, "priorityClass"),
        ({"minResources": {"cpu": "2"}}, {"min_resources": {"cpu": "1"}}, "minResources"),
    ],
)
def test_an_edit_of_the_policy_that_leaves_the_group_as_it_is_is_told_once(
    asked: dict[str, Any], made: dict[str, Any], field: str
) -> None:
    """U18: nobody writes a group again, since its queue belongs to whoever moves it (B66)."""
    seen = msgspec.structs.replace(group(), spec=PodGroupSpec(min_member=2, **made))
    told = decide(edited(policy(TWO, **asked)), Gang(VOLCANO, seen)).events
    assert [event.reason for event in told] == ["PodGroupNotUpdated"]
    assert f"spec.runPolicy.schedulingPolicy.{field} cannot change" in told[0].message
    as_before = edited(policy(TWO, **asked), generations=0)
    assert decide(as_before, Gang(VOLCANO, seen)).events == ()


def test_an_edit_that_asks_for_nothing_else_of_the_group_is_not_told() -> None:
    """What was left out is the scheduler's; what is as asked for is no news; minAvailable is followed."""
    seen = msgspec.structs.replace(group(), spec=PodGroupSpec(min_member=2, queue="a", priority_class_name="low"))
    for asked in (
        {},
        {"queue": "a"},
        {"queue": "a", "priorityClass": "low"},
        {"minAvailable": 1},
        {"scheduleTimeoutSeconds": 9},
    ):
        assert decide(edited(policy(TWO, **asked)), Gang(VOLCANO, seen)).events == (), asked
    plugins = msgspec.structs.replace(group(), spec=PodGroupSpec(min_member=2, schedule_timeout_seconds=5))
    told = decide(edited(policy(TWO, queue="b", scheduleTimeoutSeconds=9)), Gang(PLUGINS, plugins)).events
    assert [event.message.partition(" cannot")[0].rpartition(".")[2] for event in told] == ["scheduleTimeoutSeconds"]


def test_a_replica_that_succeeded_counts_as_long_as_its_pod_is_there() -> None:
    """A group that shrank with each success would cost writes for nothing."""
    spec = {"tfReplicaSpecs": {"Worker": replica(2)}, "successPolicy": "AllWorkers"}
    pods = [pod("Worker", 0), pod("Worker", 1, "Succeeded", 0)]
    assert decide(begun(spec), Gang(VOLCANO, group()), pods).resize_pod_group is None


def test_a_resumed_job_does_not_wait_for_replicas_that_never_come_again() -> None:
    """Of three workers one had succeeded before the job was suspended: a group of three would wait for ever."""
    spec = {"tfReplicaSpecs": {"Worker": replica(3)}, "successPolicy": "AllWorkers"}
    decided = decide(begun(spec, finished_indices={"Worker": "1"}), Gang(VOLCANO))
    assert decided.create_pod_group == 2


def test_the_group_goes_once_when_the_job_has_ended() -> None:
    """B55: and after that fifty more plans change nothing."""
    tfjob = finished()
    decided = decide(tfjob, Gang(VOLCANO, group()))
    assert decided.delete_pod_group == group()
    assert decided.acts
    for gone in (None, group(going=True)):
        for _ in range(50):
            decided = decide(tfjob, Gang(VOLCANO, gone))
            assert not decided.acts
            assert decided.status is None
            assert decided.events == ()


def test_the_plan_that_writes_a_jobs_end_leaves_its_group_alone() -> None:
    """Clean-up is for later plans, which find the end written."""
    decided = decide(begun(TWO), Gang(VOLCANO, group()), [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)])
    assert decided.status is not None
    assert conditions.is_finished(decided.status)
    assert not decided.acts


def test_a_suspended_job_has_no_group() -> None:
    """Its resources are free for others; when it is resumed it queues again."""
    spec = TWO | {"runPolicy": {"suspend": True}}
    assert decide(job(spec), Gang(VOLCANO, group())).delete_pod_group == group()
    decided = decide(job(spec), Gang(VOLCANO))
    assert decided.delete_pod_group is None
    assert decided.create_pod_group is None


def test_while_a_group_goes_nothing_is_created() -> None:
    """The job was suspended and resumed at once: pods would belong to a group that is about to be gone."""
    for scheduler in (VOLCANO, PLUGINS):
        decided = decide(begun(TWO), Gang(scheduler, group(going=True)))
        assert not decided.acts


def test_an_invalid_job_loses_its_group_when_its_end_is_written() -> None:
    """The specification was edited into a wrong one."""
    wrong = job({"tfReplicaSpecs": {}})
    decided = plan(wrong, invalid_spec(wrong), [], [], LATER, gang=Gang(VOLCANO, group()))
    assert decided.delete_pod_group is None
    assert decided.status is not None
    ended = msgspec.structs.replace(wrong, status=decided.status)
    decided = plan(ended, invalid_spec(ended), [], [], LATER, gang=Gang(VOLCANO, group()))
    assert decided.delete_pod_group == group()


def test_a_job_whose_time_has_come_is_deleted_with_its_group() -> None:
    """The garbage collector takes the group along."""
    spec = TWO | {"ttlSecondsAfterFinished": 0}
    tfjob = job(spec, status=finished().status)
    decided = decide(tfjob, Gang(VOLCANO, group()))
    assert decided.delete_job
    assert decided.delete_pod_group is None


def test_a_job_that_others_manage_has_nothing_done_to_its_group() -> None:
    """Nor one that is being deleted."""
    managed = job(TWO | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
    for tfjob in (managed, job(TWO, deletion_timestamp=EPOCH)):
        assert not decide(tfjob, Gang(VOLCANO, group())).acts
        assert not decide(tfjob, Gang(VOLCANO)).acts


def test_where_groups_can_not_be_read_a_warning_says_so_and_the_job_asks_again() -> None:
    """A cluster without the CRD: pods that are there go on, and none is created."""
    gang = Gang(VOLCANO, known=False, failure="404 no such resource")
    decided = decide(job(TWO), gang, [pod("Worker", 0)])
    assert names(decided) == HELD | {"create services": ["mnist-worker-0"]}
    assert decided.create_pod_group is None
    assert decided.requeue_after_s == LOOK_AGAIN_S
    (problem,) = decided.problems
    assert (problem.event.type, problem.event.reason) == ("Warning", "PodGroupsUnavailable")
    assert problem.event.message.endswith("before creating pods: 404 no such resource")
    whole = decide(begun(TWO), gang, [pod("Worker", 0), pod("Worker", 1)])
    assert whole.requeue_after_s is None
    assert whole.problems == ()


def test_before_groups_were_listed_a_job_waits_in_silence() -> None:
    """The operator has started a moment ago."""
    decided = decide(job(TWO), Gang(VOLCANO, known=False))
    assert names(decided) == HELD
    assert decided.requeue_after_s == FIRST_LOOK_S
    assert decided.problems == ()


def test_a_deadline_that_comes_before_the_next_look_is_kept() -> None:
    """B46: the earlier of the two times counts."""
    spec = TWO | {"activeDeadlineSeconds": 61}
    tfjob = job(spec, status=JobStatus(start_time=EPOCH))
    assert decide(tfjob, Gang(VOLCANO, known=False, failure="no")).requeue_after_s == 2


def test_a_template_that_names_another_scheduler_keeps_it_and_is_warned_about_once() -> None:
    """The text is that of earlier operators."""
    own = {"tfReplicaSpecs": {"Worker": replica(2, template=template(schedulerName="own"))}}
    (event,) = decide(job(own), Gang(VOLCANO)).events
    assert (event.type, event.reason) == ("Warning", "SettedPodTemplateSchedulerName")
    assert decide(begun(own), Gang(VOLCANO, group())).events == ()
    same = {"tfReplicaSpecs": {"Worker": replica(2, template=template(schedulerName="volcano"))}}
    assert decide(job(same), Gang(VOLCANO)).events == ()


PHASES = st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown"])
GROUPS = st.none() | st.builds(group, st.integers(0, 5), PHASES, going=st.booleans())
PODS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
    unique_by=lambda each: each[0],
)


GANGS = st.builds(Gang, st.sampled_from([VOLCANO, PLUGINS]), GROUPS, st.booleans())


@given(st.integers(0, 5), GANGS, PODS, st.booleans())
def test_no_pod_is_ever_created_without_a_group_that_is_there_or_created_first(
    replicas: int,
    gang: Gang,
    places: list[tuple[int, str]],
    suspend: bool,
) -> None:
    """B65; and of creating, resizing and deleting a group at most one is done, and none to a group that is terminating."""
    spec = {"tfReplicaSpecs": {"Worker": replica(replicas, RestartPolicy.EXIT_CODE)}, "runPolicy": {"suspend": suspend}}
    pods = [pod("Worker", index, phase, {"Succeeded": 0, "Failed": 137}.get(phase)) for index, phase in places]
    decided = decide(begun(spec), gang, pods)
    seen = gang.group
    group_there = seen is not None and seen.metadata.deletion_timestamp is None
    if decided.create_pods:
        assert gang.known
        assert group_there or decided.create_pod_group
    else:
        assert {slot.index for slot in decided.create_services} <= {index for index, _ in places}
    done = [decided.create_pod_group, decided.resize_pod_group, decided.delete_pod_group]
    assert sum(each is not None for each in done) <= 1
    if decided.create_pod_group is not None:
        assert seen is None
        assert 1 <= decided.create_pod_group <= replicas
    if decided.resize_pod_group or decided.delete_pod_group:
        assert group_there


def test_a_plan_without_gang_scheduling_is_what_it_was() -> None:
    """Where it is off, it changes nothing."""
    decided = plan(job(TWO), good_spec(job(TWO)), [], [service("Worker", 0)], LATER)
    assert decided.create_pod_group is None
    assert len(decided.create_pods) == 2
