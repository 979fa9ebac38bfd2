"""How gang scheduling changes a plan, by tables and by properties."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import decide, job, names, pod, pod_group, replica, spec, synced, template
from fakes.objects import changed, edited
from kit.virtual_loop import EPOCH
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.api.v1.types import JobCondition, JobStatus, TFJob
from tfjob_operator.controller.jobs.children import PodGroup
from tfjob_operator.controller.tfjob.build.builder import gang_scheduler
from tfjob_operator.controller.tfjob.plan.actions import POD_GROUPS_FIRST_RETRY_S, POD_GROUPS_RETRY_S
from tfjob_operator.controller.tfjob.plan.types import Gang

VOLCANO, PLUGINS = map(gang_scheduler, ("volcano", "coscheduler"))
TWO = spec(Worker=2)
DONE = pod("Worker", 0, "Succeeded", 0)
BOTH = ["mnist-worker-0", "mnist-worker-1"]


def group(phase: str = "Inqueue", min_member: int = 2, *, going: bool = False, **given: Any) -> PodGroup:
    return changed(pod_group(phase, min_member, **given), metadata__deletion_timestamp=EPOCH if going else None)


GANG = Gang(VOLCANO, group())


def begun(body: dict[str, Any] = TWO, **status: Any) -> TFJob:
    tfjob = synced(job(body), gang=Gang(VOLCANO))
    return changed(tfjob, status=changed(tfjob.status, **status))


def finished() -> TFJob:
    found = synced(begun(), DONE)
    assert conditions.is_finished(found.status)
    return found


def policy(**scheduling: Any) -> dict[str, Any]:
    return TWO | {"runPolicy": {"schedulingPolicy": scheduling}}


@pytest.mark.parametrize("phase", [None, "", "Pending"])
def test_volcano_gets_a_group_and_no_pod_until_it_admits_the_group(phase: str | None) -> None:
    """B65: pods that exist before would be scheduled one by one, as if there were no group."""
    decided = decide(job(TWO), gang=Gang(VOLCANO, None if phase is None else group(phase)))
    assert names(decided) == {}
    assert decided.create_pod_group == (2 if phase is None else None)


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown"])
def test_volcano_gets_the_pods_when_it_has_admitted_the_group(phase: str) -> None:
    """B65: in any phase but the first."""
    decided = decide(begun(), gang=Gang(VOLCANO, group(phase)))
    assert names(decided) == {"create pods": BOTH, "create services": BOTH}
    assert decided.create_pod_group is None


def test_the_first_status_of_a_job_that_waits_is_complete() -> None:
    """B31: replicaStatuses is an object in every status that is written."""
    written = msgspec.to_builtins(begun().status)
    assert written["replicaStatuses"] == {"Worker": {"active": 0, "succeeded": 0, "failed": 0}}
    assert [condition["type"] for condition in written["conditions"]] == ["Created"]


@pytest.mark.parametrize(
    ("replicas", "scheduling", "expected"),
    [
        (4, {}, 4),
        (4, {"minAvailable": 2}, 2),
        (4, {"minAvailable": 9}, 4),
        (4, {"minAvailable": 0}, 1),
        (1, {}, 1),
        (0, {}, None),
    ],
)
def test_the_group_asks_for_all_replicas_or_for_as_many_as_are_enough(
    replicas: int, scheduling: dict[str, int], expected: int | None
) -> None:
    """B66: and never for more than the job can have, which would wait for ever. A group of none cannot be made."""
    tfjob = job(spec(Worker=replicas, PS=0, runPolicy={"schedulingPolicy": scheduling}))
    assert decide(tfjob, gang=Gang(VOLCANO)).create_pod_group == expected


def test_a_job_that_is_scaled_has_its_group_resized_and_not_made_again() -> None:
    """B66: minMember follows the replicas."""
    pods = pod("Worker", 0), pod("Worker", 1)
    tfjob = job(spec(Worker=4), status=begun().status)
    decided = decide(tfjob, *pods, gang=GANG)
    assert decided.create_pod_group is None
    assert decided.resize_pod_group is not None
    assert decided.resize_pod_group.min_member == 4
    assert decided.acts
    assert decide(tfjob, *pods, gang=Gang(VOLCANO, group(min_member=4))).resize_pod_group is None


@pytest.mark.parametrize(
    ("asked", "made", "field"),
    [
        ({"queue": "b"}, {"queue": "a"}, "queue"),
        ({"queue": "b"}, {}, "queue"),
        ({"priorityClass": "high"}, {"priority_class_name": "low"}, "priorityClass"),
        ({"minResources": {"cpu": "2"}}, {"min_resources": {"cpu": "1"}}, "minResources"),
        ({"queue": "b", "scheduleTimeoutSeconds": 9}, {"schedule_timeout_seconds": 5}, "scheduleTimeoutSeconds"),
    ],
)
def test_an_edit_of_the_policy_that_leaves_the_group_as_it_is_is_told_once(
    asked: dict[str, Any], made: dict[str, Any], field: str
) -> None:
    """U18: nobody writes a group again, since its queue belongs to whoever moves it (B66)."""
    gang = Gang(PLUGINS if field == "scheduleTimeoutSeconds" else VOLCANO, group(**made))
    (event,) = decide(edited(begun(policy(**asked))), gang=gang).events
    assert event.reason == "PodGroupNotUpdated"
    assert f"spec.runPolicy.schedulingPolicy.{field} cannot change" in event.message
    assert decide(begun(policy(**asked)), gang=gang).events == ()


@pytest.mark.parametrize(
    "asked",
    [{}, {"queue": "a"}, {"queue": "a", "priorityClass": "low"}, {"minAvailable": 1}, {"scheduleTimeoutSeconds": 9}],
)
def test_an_edit_that_asks_for_nothing_else_of_the_group_is_not_told(asked: dict[str, Any]) -> None:
    """What was left out is the scheduler's; what is as asked for is no news; minAvailable is followed."""
    gang = Gang(VOLCANO, group(queue="a", priority_class_name="low"))
    assert decide(edited(begun(policy(**asked))), gang=gang).events == ()


def test_a_replica_that_succeeded_counts_as_long_as_its_pod_is_there() -> None:
    """A group that shrank with each success would cost writes for nothing."""
    tfjob = begun(TWO | {"successPolicy": "AllWorkers"})
    assert decide(tfjob, pod("Worker", 0), pod("Worker", 1, "Succeeded", 0), gang=GANG).resize_pod_group is None


def test_a_resumed_job_does_not_wait_for_replicas_that_never_come_again() -> None:
    """Of three workers one had succeeded before the job was suspended: a group of three would wait for ever."""
    tfjob = begun(spec(Worker=3, successPolicy="AllWorkers"), finished_indices={"Worker": "1"})
    assert decide(tfjob, gang=Gang(VOLCANO)).create_pod_group == 2


def test_the_group_goes_once_when_the_job_has_ended() -> None:
    """B55: and after that nothing changes. It is left alone by the plan that writes the end, and where the job itself goes."""
    ending = decide(begun(), DONE, pod("Worker", 1), gang=GANG)
    assert ending.status is not None
    assert not ending.acts
    decided = decide(finished(), gang=GANG)
    assert (decided.delete_pod_group, decided.acts) == (group(), True)
    for gone in (None, group(going=True)):
        decided = decide(finished(), gang=Gang(VOLCANO, gone))
        assert (decided.acts, decided.status, decided.events) == (False, None, ())
    over = decide(job(TWO | {"ttlSecondsAfterFinished": 0}, status=finished().status), gang=GANG)
    assert (over.delete_job, over.delete_pod_group) == (True, None)  # the garbage collector takes the group along


def test_the_group_stays_as_it_is_while_the_end_of_a_job_is_decided_and_not_written() -> None:
    """Its pods still run as a gang. A suspension, as when Kueue preempts the job, does not change that."""
    queued = changed(begun(), metadata__labels={LABEL_QUEUE: "gpus"})
    decided = synced(queued, DONE, pod("Worker", 1), gang=GANG)
    assert conditions.is_ending(decided.status)
    for tfjob in (decided, edited(decided, TWO | {"runPolicy": {"suspend": True}})):
        for present in (group(min_member=5), None):
            plan = decide(tfjob, DONE, pod("Worker", 1), gang=Gang(VOLCANO, present), at_s=70)
            assert (plan.create_pod_group, plan.resize_pod_group, plan.delete_pod_group) == (None, None, None)


def test_a_suspended_job_has_no_group() -> None:
    """Its resources are free for others; when it is resumed it queues again."""
    tfjob = job(TWO | {"runPolicy": {"suspend": True}})
    assert decide(tfjob, gang=GANG).delete_pod_group == group()
    decided = decide(tfjob, gang=Gang(VOLCANO))
    assert (decided.delete_pod_group, decided.create_pod_group) == (None, None)


@pytest.mark.parametrize("scheduler", [VOLCANO, PLUGINS])
def test_while_a_group_goes_nothing_is_created(scheduler: Any) -> None:
    """The job was suspended and resumed at once: pods would belong to a group that is about to be gone."""
    assert not decide(begun(), gang=Gang(scheduler, group(going=True))).acts


def test_an_invalid_job_loses_its_group_when_its_end_is_written() -> None:
    wrong = job(spec())
    assert decide(wrong, gang=GANG).delete_pod_group is None
    assert decide(synced(wrong, gang=GANG), gang=GANG).delete_pod_group == group()


def test_where_groups_can_not_be_read_a_warning_says_so_and_the_job_asks_again() -> None:
    """A cluster without the CRD: pods that are there go on, and none is created. Before groups were listed it is silent."""
    gang = Gang(VOLCANO, known=False, failure="404 no such resource")
    decided = decide(job(TWO), pod("Worker", 0), gang=gang)
    assert names(decided) == {"create services": ["mnist-worker-0"]}
    assert (decided.create_pod_group, decided.requeue_after_s) == (None, POD_GROUPS_RETRY_S)
    (problem,) = decided.problems
    assert (problem.event.type, problem.event.reason) == ("Warning", "PodGroupsUnavailable")
    assert problem.event.message.endswith("before creating pods: 404 no such resource")
    whole = decide(begun(), pod("Worker", 0), pod("Worker", 1), gang=gang)
    assert (whole.requeue_after_s, whole.problems) == (None, ())
    unlisted = decide(job(TWO), gang=Gang(VOLCANO, known=False))
    assert (names(unlisted), unlisted.requeue_after_s, unlisted.problems) == ({}, POD_GROUPS_FIRST_RETRY_S, ())


def test_a_deadline_that_comes_before_the_next_look_is_kept() -> None:
    """B46: the earlier of the two times counts."""
    created = JobCondition(type="Created", status="True", last_transition_time=EPOCH)
    tfjob = job(TWO | {"activeDeadlineSeconds": 61}, status=JobStatus(start_time=EPOCH, conditions=(created,)))
    assert decide(tfjob, gang=Gang(VOLCANO, known=False, failure="no")).requeue_after_s == 2


def test_a_template_that_names_another_scheduler_keeps_it_and_is_warned_about_once() -> None:
    """The text is that of earlier operators."""
    own, same = (spec(Worker=replica(2, template=template(schedulerName=name))) for name in ("own", "volcano"))
    (event,) = decide(job(own), gang=Gang(VOLCANO)).events
    assert (event.type, event.reason) == ("Warning", "SettedPodTemplateSchedulerName")
    assert decide(begun(own), gang=GANG).events == decide(job(same), gang=Gang(VOLCANO)).events == ()


PHASES = st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown"])
GROUPS = st.none() | st.builds(group, PHASES, st.integers(0, 5), going=st.booleans())
PODS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
    unique_by=lambda each: each[0],
)
GANGS = st.builds(Gang, st.sampled_from([VOLCANO, PLUGINS]), GROUPS, st.booleans())


@given(st.integers(0, 5), GANGS, PODS, st.booleans())
def test_no_pod_is_ever_created_without_a_group_that_is_there_or_created_first(
    replicas: int, gang: Gang, places: list[tuple[int, str]], suspend: bool
) -> None:
    """B65; and of creating, resizing and deleting a group at most one is done, and none to a group that is terminating."""
    tfjob = begun(spec("ExitCode", Worker=replicas, runPolicy={"suspend": suspend}))
    pods = [pod("Worker", index, phase, {"Succeeded": 0, "Failed": 137}.get(phase)) for index, phase in places]
    decided = decide(tfjob, *pods, gang=gang)
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
