"""When a job has begun, and what becomes of one that was then edited into a wrong or too large one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import (
    at,
    container,
    decide,
    good_spec,
    job,
    names,
    planned,
    pod,
    replica,
    service,
    spec,
    started,
    synced,
    true_of,
)
from fakes.objects import after, changed, edited
from kit.virtual_loop import EPOCH
from tfjob_operator.api.core import ContainerState, ContainerStateWaiting, ContainerStatus
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import (
    IndexRestarts,
    JobCondition,
    JobStatus,
    Mistake,
    ReplicaStatus,
    StartRecord,
    TFJob,
    TFJobSpec,
)
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.spec import bounded, refused
from tfjob_operator.controller.tfjob.plan.status import has_started, merged_status
from tfjob_operator.controller.tfjob.plan.types import Plan

SPEC = spec("ExitCode", Worker=2)
MISTAKE = SPEC | {"runPolicy": {"backoffLimit": -1}}
MISTAKES = {
    "a negative limit": MISTAKE,
    "a policy that is none": SPEC | {"runPolicy": {"cleanPodPolicy": "Sometimes"}},
    "a renamed container": spec(Worker=replica(2, template=container(name="main"))),
    "two entries of one type": {"tfReplicaSpecs": {"Worker": replica(2), "worker": replica(2)}},
    "nothing at all": {},
}
REFUSAL = "pod mnist-worker-1 was rejected: spec.containers[0].image: Required value"
RUNNING = [pod("Worker", 0), pod("Worker", 1)]
SERVICES = [service("Worker", 0), service("Worker", 1)]
HELD = ["Created", "Held", "Running"]
STARTED = started(SPEC, *RUNNING, after_s=0)


def held_of(tfjob: TFJob) -> JobCondition:
    found = conditions.find(tfjob.status.conditions, ConditionType.HELD)
    assert found is not None
    return found


def begun_of(tfjob: TFJob) -> StartRecord:
    assert tfjob.status.begun is not None
    return tfjob.status.begun


@pytest.mark.parametrize("wrong", [*MISTAKES.values()], ids=MISTAKES)
def test_a_wrong_edit_of_a_job_that_runs_holds_it(wrong: dict[str, Any]) -> None:
    """U4: not a pod and not a service is touched, and the state that clients read stays as it was."""
    decided = decide(edited(STARTED, wrong), *RUNNING, services=SERVICES)
    held = after(edited(STARTED, wrong), decided)
    assert names(decided) == {}
    assert true_of(held) == HELD
    assert held.status.conditions[-1] == STARTED.status.conditions[-1]
    assert held.status.observed_generation == 2
    assert held.status.replica_statuses == {"Worker": ReplicaStatus(active=2)}
    assert decide(held, *RUNNING, services=SERVICES).status is None


def test_a_service_proves_that_a_job_has_begun_whose_pod_was_gone_before_its_first_status() -> None:
    """In a burst the first status comes after the first pods; a drained node may take them, and the operator be killed."""
    decided = decide(job(MISTAKE), services=SERVICES)
    assert (names(decided), true_of(after(job(MISTAKE), decided))) == ({}, ["Held", "Created"])
    assert true_of(synced(job(MISTAKE))) == ["Failed"]


def test_the_condition_and_one_warning_name_every_mistake() -> None:
    """U4: once for the same mistakes, and again when they are others."""
    wrong = SPEC | {"runPolicy": {"backoffLimit": -1, "cleanPodPolicy": "Sometimes"}}
    decided = decide(edited(STARTED, wrong), *RUNNING)
    (warning,) = decided.events
    held = after(edited(STARTED, wrong), decided)
    assert (warning.type, warning.reason, held_of(held).reason) == ("Warning", "InvalidTFJobSpec", "InvalidTFJobSpec")
    for text in (warning.message, held_of(held).message):
        assert "backoffLimit" in text
        assert "cleanPodPolicy" in text
    assert decide(edited(held, wrong), *RUNNING).events == ()
    (other,) = decide(edited(held, MISTAKE), *RUNNING).events
    assert "cleanPodPolicy" not in other.message


@pytest.mark.parametrize(("code", "state", "gone"), [(1, "Failed", []), (137, "Restarting", ["mnist-worker-1"])])
def test_what_has_ended_while_it_is_held_is_judged_when_it_is_mended(code: int, state: str, gone: list[str]) -> None:
    """U4: until the specification is good, a failure neither ends the job nor leads to a new pod."""
    ended = (pod("Worker", 0), pod("Worker", 1, "Failed", code))
    held = synced(edited(STARTED, MISTAKE), *RUNNING)
    decided = decide(held, *ended)
    held = after(held, decided)
    assert names(decided) == {}
    assert held.status.replica_statuses == {"Worker": ReplicaStatus(active=1, failed=1)}
    assert held.status.restarts == ()
    decided = decide(edited(held, SPEC), *ended)
    mended = after(edited(held, SPEC), decided)
    assert decided.events[0].reason == "TFJobSpecMended"
    assert held_of(mended).status == "False"
    assert (true_of(mended), names(decided)["delete pods"]) == (["Created", state], gone)


def test_a_success_is_written_down_while_the_job_is_held_and_ends_it_when_it_is_mended() -> None:
    """U4: its pod may be gone by then, and the proof with it."""
    held = synced(
        edited(STARTED, MISTAKE),
        pod("Worker", 0, "Succeeded", 0),
        pod("Worker", 1, restarts=3),
    )
    assert held.status.finished_indices == {"Worker": "0"}
    assert [record.total for record in held.status.restarts] == [3]
    assert "Succeeded" not in true_of(held)
    assert true_of(synced(edited(held, SPEC), pod("Worker", 1))) == ["Created", "Succeeded"]


def test_a_pod_that_is_missing_is_made_when_the_specification_is_mended() -> None:
    """U4: the job goes on as if nothing had happened."""
    held = synced(edited(STARTED, MISTAKE), *RUNNING)
    assert names(decide(held, pod("Worker", 0), services=SERVICES[:1])) == {}
    decided = decide(edited(held, SPEC), pod("Worker", 0), services=SERVICES)
    assert names(decided) == {"create pods": ["mnist-worker-1"]}
    mended = synced(edited(held, SPEC), *RUNNING)
    states = [(each.type, each.status) for each in mended.status.conditions]
    assert states == [("Created", "True"), ("Held", "False"), ("Running", "True")]
    assert decide(mended, *RUNNING).status is None


def test_a_deadline_that_can_be_read_ends_a_job_that_is_held() -> None:
    """U4: with the message of any such job; then what ran is cleaned up, since a limit leaves nothing running."""
    limit = {"activeDeadlineSeconds": 100}
    wrong = SPEC | {"runPolicy": limit | {"backoffLimit": -1, "cleanPodPolicy": "None"}}
    held = edited(started(SPEC | {"runPolicy": limit}, *RUNNING, after_s=0), wrong)
    assert decide(held, *RUNNING).requeue_after_s == 41
    ended = synced(synced(held, *RUNNING), *RUNNING, at_s=101)
    assert true_of(ended) == ["Created", "Failed"]
    assert (ended.status.conditions[-1].reason, held_of(ended).status) == ("JobFailed", "False")
    assert names(decide(ended, *RUNNING, at_s=102))["delete pods"] == ["mnist-worker-0", "mnist-worker-1"]


def test_a_suspension_that_can_be_read_takes_the_pods_and_resuming_makes_none() -> None:
    """U4: suspension is the user's explicit request; a wrong specification is no reason to make pods."""
    wrong = {"backoffLimit": -1, "activeDeadlineSeconds": 10}
    tfjob, both = (
        edited(STARTED, SPEC | {"runPolicy": wrong | {"suspend": True}}),
        ["mnist-worker-0", "mnist-worker-1"],
    )
    decided = decide(tfjob, *RUNNING, services=SERVICES)
    assert names(decided) == {"delete pods": both, "delete services": both}
    suspended = after(tfjob, decided)
    assert true_of(suspended) == ["Created", "Held", "Suspended"]
    resumed = edited(suspended, SPEC | {"runPolicy": wrong})
    decided = decide(resumed, at_s=1000)
    assert (names(decided), decided.requeue_after_s) == ({}, None)
    assert true_of(after(resumed, decided)) == ["Created", "Held", "Suspended"]
    decided = decide(edited(suspended, SPEC), at_s=1000)
    assert names(decided)["create pods"] == both
    mended = after(edited(suspended, SPEC), decided)
    assert (true_of(mended), mended.status.start_time) == (["Created"], at(1000))


def test_what_a_job_left_running_is_not_taken_by_an_edit_after_its_end() -> None:
    """U4: under None parameter servers may run on; a policy that cannot be read is no reason to delete them."""
    kept = spec(PS=1, Worker=1, runPolicy={"cleanPodPolicy": "None"})
    pods = (pod("PS", 0), pod("Worker", 0, "Succeeded", 0))
    ended = synced(synced(job(kept), at_s=0), *pods)
    assert "Succeeded" in true_of(ended)
    for policy in ("Sometimes", "None"):
        wrong = kept | {"runPolicy": {"cleanPodPolicy": policy, "backoffLimit": -1}}
        assert names(decide(edited(ended, wrong), *pods)) == {}
    wrong = kept | {"runPolicy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 90, "backoffLimit": -1}}
    decided = decide(edited(ended, wrong), *pods)
    assert names(decided)["delete pods"] == ["mnist-ps-0", "mnist-worker-0"]
    assert decided.requeue_after_s == 91
    assert decide(edited(ended, wrong), at_s=151).delete_job


def test_a_job_that_has_never_begun_fails() -> None:
    """B02: it was never good, or has never had a pod: nothing is lost, and its owner sees it at once."""
    assert true_of(synced(job(MISTAKE))) == ["Failed"]
    suspended = synced(job(SPEC | {"runPolicy": {"suspend": True}}))
    assert true_of(synced(edited(suspended, MISTAKE))) == ["Created", "Failed"]


def test_a_job_of_an_older_operator_is_held_too() -> None:
    """U4: it recorded neither `begun` nor how many replicas there were; its pods are proof enough."""
    wrong = edited(changed(STARTED, status__begun=None), MISTAKE)
    held = synced(wrong, pod("Worker", 0), pod("Worker", 7, "Succeeded", 0))
    assert held.status.replica_statuses == {"Worker": ReplicaStatus(active=1, succeeded=1)}
    assert (held.status.finished_indices, held.status.begun) == ({"Worker": "7"}, StartRecord())
    assert true_of(held) == true_of(synced(held)) == HELD  # though no pod is left
    assert true_of(synced(job(MISTAKE), pod("Worker", 0))) == ["Held", "Created"]


def test_what_is_refused_after_an_edit_holds_the_job_until_the_next_one() -> None:
    """U4: in the API server's words; nothing is tried again at the same generation, even after a restart of the operator."""
    larger = edited(STARTED, spec(Worker=3))
    decided = planned(larger, refused(good_spec(larger), REFUSAL), RUNNING, [], EPOCH)
    held = after(larger, decided)
    assert (true_of(held), held_of(held).message) == (HELD, REFUSAL)
    assert REFUSAL in decided.events[0].message
    assert decide(held, *RUNNING) == Plan(problems=())
    assert true_of(synced(held, pod("Worker", 0, "Failed", 1), pod("Worker", 1))) == HELD
    again = decide(edited(held, spec(Worker=3)), *RUNNING)
    assert names(again)["create pods"] == ["mnist-worker-2"]
    assert [event.reason for event in again.events] == ["TFJobSpecMended", "PodTemplateNotApplied"]


def test_a_job_that_is_held_for_a_refusal_stays_so_when_its_record_is_lost() -> None:
    """U4: it would fail, and its running pods would be deleted."""
    larger = edited(STARTED, spec(Worker=3))
    held = after(larger, planned(larger, refused(good_spec(larger), REFUSAL), RUNNING, [], EPOCH))
    lost = synced(changed(held, status__begun=None), *RUNNING)
    assert true_of(lost) == HELD
    assert decide(lost, *RUNNING) == Plan(problems=())


def test_what_is_refused_without_ever_having_been_edited_fails_the_job() -> None:
    """B03: it could never have all its pods, and those that it has do not change that."""
    tfjob = STARTED
    decided = planned(tfjob, refused(good_spec(tfjob), REFUSAL), RUNNING, [], EPOCH)
    assert true_of(after(tfjob, decided)) == ["Created", "Failed"]
    assert decided.events[0].message.endswith(f"the spec is invalid: {REFUSAL}")


def test_scaling_a_job_without_workers_is_a_warning_once_and_nothing_else() -> None:
    """U3: kubectl scale on a job that has only a chief."""
    chief, services = pod("Chief", 0), [service("Chief", 0)]
    tfjob = synced(synced(job(spec(Chief=1)), at_s=0), chief)
    scaled = edited(tfjob, spec(Chief=1, Worker={"replicas": 2}))
    decided = decide(scaled, chief, services=services)
    assert names(decided) == {}
    assert [(event.type, event.reason) for event in decided.events] == [("Warning", "NoWorkersToScale")]
    assert true_of(after(scaled, decided)) == ["Created", "Running"]
    assert decide(after(scaled, decided), chief, services=services) == Plan()


def test_what_keeps_a_pod_from_starting_is_told_of_a_held_job_too() -> None:
    """B34: its owner still wants to know."""
    waiting = ContainerState(waiting=ContainerStateWaiting(reason="ErrImagePull", message="no such image"))
    stuck = changed(
        pod("Worker", 1, "Pending"), status__container_statuses=(ContainerStatus("tensorflow", state=waiting),)
    )
    (problem,) = decide(edited(STARTED, MISTAKE), pod("Worker", 0), stuck).problems
    assert "no such image" in problem.event.message


@st.composite
def fates(draw: st.DrawFn) -> list[Pod]:
    """What may have become of the pods of a held job."""
    phases = st.sampled_from([("Running", None), ("Pending", None), ("Succeeded", 0), ("Failed", 1), ("Failed", 137)])
    places = draw(st.lists(st.integers(0, 2), unique=True))
    return [pod("Worker", index, *draw(phases), terminating=draw(st.booleans())) for index in places]


@given(st.sampled_from([*MISTAKES.values()]), fates(), fates())
def test_whatever_becomes_of_its_pods_a_held_job_touches_nothing_and_forgets_nothing(
    wrong: dict[str, Any], first: list[Pod], then: list[Pod]
) -> None:
    """U4: and its status settles, so it costs no further call."""
    tfjob = edited(STARTED, wrong)
    for pods in (first, then):
        decided = decide(tfjob, *pods)
        assert names(decided) == {}
        before, tfjob = tfjob, after(tfjob, decided)
        assert conditions.is_true(tfjob.status, ConditionType.HELD)
        assert tfjob.status.conditions[-1].type == ConditionType.RUNNING
        assert set(before.status.finished_indices) <= set(tfjob.status.finished_indices)
        assert decide(tfjob, *pods).status is None


VALID_SPEC = spec(PS=1, Worker=2)


def with_condition(kind: str, *, suspended: bool = False) -> JobStatus:
    """A status as an operator of an older version wrote it."""
    found = [JobCondition("Created", "True"), JobCondition(kind, "False" if suspended else "True")]
    return JobStatus(conditions=(*found, *[JobCondition("Suspended", "True")] * suspended))


@pytest.mark.parametrize(
    ("generation", "status", "pods", "recorded"),
    [
        pytest.param(3, JobStatus(), [], 3, id="by the status that comes before its first pod"),
        pytest.param(2, JobStatus(), [pod("Worker", 0)], 2, id="pods without a status are our own of a moment ago"),
        pytest.param(7, with_condition("Running"), [], 0, id="what was edited before this version nobody knows"),
    ],
)
def test_a_job_has_begun_in_a_generation(generation: int, status: JobStatus, pods: list[Pod], recorded: int) -> None:
    """U4: so no pod exists while the status does not say so, and no further write is needed.

    In a burst pods come before the first status, and the operator may have been killed in between. Any specification of a job
    with the generation 0 counts as edited, so that no refusal ends it.
    """
    begun = begun_of(synced(job(VALID_SPEC, generation=generation, status=status), *pods))
    assert (begun.generation, begun.replicas) == (recorded, {"PS": 1, "Worker": 2})


def test_a_job_that_makes_no_pods_has_not_begun() -> None:
    """Suspended from the start, or of no replicas."""
    for body in (VALID_SPEC | {"runPolicy": {"suspend": True}}, spec(Worker=0)):
        assert synced(job(body)).status.begun is None


def test_the_generation_of_the_beginning_stays_and_the_sizes_follow_the_specification() -> None:
    """What is in force is what the newest good specification asked for."""
    first = synced(job(VALID_SPEC))
    begun = begun_of(synced(edited(first, spec(Worker=4))))
    assert (begun.generation, begun.replicas) == (1, {"Worker": 4})
    suspended = edited(first, VALID_SPEC | {"runPolicy": {"suspend": True}})
    assert synced(suspended).status.begun == first.status.begun


@pytest.mark.parametrize(
    "status",
    [
        with_condition("Running"),
        with_condition("Running", suspended=True),
        with_condition("Restarting"),
        JobStatus(finished_indices={"Worker": "0"}),
        JobStatus(restarts=(IndexRestarts(type="Worker", index=0, pod="p"),)),
    ],
)
def test_a_job_that_an_older_operator_ran_has_begun(status: JobStatus) -> None:
    """U4: it recorded no `begun`, but what can exist only if there was a pod proves it."""
    assert has_started(status, has_children=False)
    assert not has_started(with_condition("Suspended"), has_children=False)
    assert has_started(with_condition("Suspended"), has_children=True)


def test_what_is_not_written_yet_of_the_beginning_is_remembered() -> None:
    """Whichever of the two is the newer: the earlier generation, and the sizes of the later specification.

    But what pods are made of is that of the status that is written: events go with the write, so nobody was told of the other.
    """
    old = JobStatus(begun=StartRecord(1, {"Worker": 2}, made_of={"Worker": "a"}), observed_generation=1)
    new = JobStatus(begun=StartRecord(3, {"Worker": 5}, made_of={"Worker": "b"}), observed_generation=3)
    assert merged_status(old, new).begun == StartRecord(1, {"Worker": 5}, made_of={"Worker": "a"})
    assert merged_status(new, old).begun == StartRecord(1, {"Worker": 5}, made_of={"Worker": "b"})
    assert merged_status(JobStatus(), old).begun == merged_status(old, JobStatus()).begun == old.begun
    assert msgspec.json.decode(msgspec.json.encode(new), type=JobStatus) == new


LONG = "a" * (63 - len("-worker-9"))
"""A job of this name may have ten workers."""


TOO_LARGE = pytest.mark.parametrize(("name", "count"), [(LONG, 11), ("mnist", 10_001), ("mnist", 10**30)])


@TOO_LARGE
def test_a_job_that_asks_for_too_much_from_the_start_is_wrong(name: str, count: int) -> None:
    """B05, D16: it has never begun, so it fails, and its owner sees at once what to mend."""
    decided = decide(job(spec("ExitCode", Worker=count), name=name))
    assert [event.reason for event in decided.events] == ["InvalidTFJobSpec"]
    assert names(decided) == {}


@TOO_LARGE
def test_a_scale_up_beyond_a_bound_is_held_and_nothing_else(name: str, count: int) -> None:
    """D16: the job keeps its size, and is synced as ever; the condition and one Warning name the bound."""
    tfjob = edited(synced(job(spec("ExitCode", Worker=3), name=name)), spec("ExitCode", Worker=count))
    pods = [pod("Worker", 0, job_name=name), pod("Worker", 1, "Failed", 137, job_name=name)]
    decided = decide(tfjob, *pods)
    assert names(decided)["create pods"] == [f"{name}-worker-2"]
    assert names(decided)["delete pods"] == [f"{name}-worker-1"]
    later = after(tfjob, decided)
    held = held_of(later)
    assert (held.status, held.reason, held.message) == ("True", "TFJobTooLarge", str(good_spec(tfjob).too_large))
    assert later.status.conditions[-1].type == "Restarting"
    assert later.status.begun == tfjob.status.begun
    assert [event.reason for event in decided.events] == ["TFJobTooLarge", "TFJobRestarting"]
    assert decide(later, *pods).events == ()


def test_scaled_back_the_job_is_held_no_more() -> None:
    """D16: to any size within bounds."""
    held = synced(edited(synced(job(spec("ExitCode", Worker=3), name=LONG)), spec("ExitCode", Worker=11)))
    decided = decide(edited(held, spec("ExitCode", Worker=10)))
    assert len(decided.create_pods) == 10
    assert [event.reason for event in decided.events] == ["TFJobSpecMended"]


def test_what_shrinks_beside_a_scale_up_that_is_held_shrinks() -> None:
    """D16: no type gets more than it had, and one that is new gets none."""
    tfjob = edited(
        synced(job(spec("ExitCode", Worker=3, PS=2), name=LONG)), spec("ExitCode", Worker=11, PS=1, Evaluator=1)
    )
    assert good_spec(tfjob).sizes == {"PS": 1, "Worker": 3, "Evaluator": 0}


def test_a_bound_that_is_passed_already_takes_nothing_from_a_job() -> None:
    """D16: a job of this size has run since before the bound existed; only further growth is refused."""

    def at_most_two(_job: ObjectMeta, found: TFJobSpec) -> Mistake | None:
        return Mistake("", "too many") if found.total_replicas > 2 else None

    tfjob = edited(
        synced(job(spec("ExitCode", Worker=3))), spec("ExitCode", Worker=3) | {"runPolicy": {"backoffLimit": 5}}
    )
    assert bounded(tfjob, good_spec(tfjob), [at_most_two]) == good_spec(tfjob)
    cut = bounded(tfjob, good_spec(edited(tfjob, spec("ExitCode", Worker=4))), [at_most_two])
    assert isinstance(cut, TFJobSpec)
    assert (cut.sizes, cut.too_large) == ({"Worker": 3}, Mistake("", "too many"))
