"""Limits, times, suspension, and what the status remembers: what a plan decides from more than the current pods."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from fakes.jobs import PlannedJob, at, decide, job, names, pod, service, spec, synced, true_of
from fakes.objects import changed
from kit.virtual_loop import EPOCH
from support.cases import for_each
from tfjob_operator.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    LastState,
)
from tfjob_operator.api.v1.constants import limit_of
from tfjob_operator.api.v1.types import JobCondition, JobStatus, ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.tfjob.apply.status_writer import all_active
from tfjob_operator.controller.tfjob.plan.actions import NOTHING
from tfjob_operator.controller.tfjob.plan.types import Plan

restarting = partial(spec, "ExitCode", Worker=1)


def life_of(given: dict[str, Any]) -> PlannedJob:
    return PlannedJob(job(given))


def done(index: int = 0, ended_s: float | None = None, kind: str = "Worker") -> Pod:
    """A replica that succeeded then."""
    return pod(kind, index, "Succeeded", 0, ended_s=ended_s)


def lost(index: int, ended_s: float | None, code: int = 1) -> Pod:
    """A replica that failed then."""
    return pod("Worker", index, "Failed", code, ended_s=ended_s)


# Back-off limit.


def test_a_replica_is_made_again_as_often_as_the_limit_says_and_no_more() -> None:
    """B36: limit 3 and always 137: exactly three new pods, then Failed; the count is in the status, not in memory."""
    life = life_of(restarting(runPolicy={"backoffLimit": 3}))
    made = 0
    for attempt in range(4):
        decided = life.sync(pod("Worker", 0, "Failed", 137, uid=f"uid-{attempt}"))
        made += len(decided.delete_pods)
        life.job = msgspec.json.decode(msgspec.json.encode(life.job), type=TFJob)  # the operator starts anew
    assert made == 3
    assert life.true == ["Created", "Failed"]
    last = life.job.status.conditions[-1]
    assert last.message.startswith("Job mnist has failed because it has reached the specified backoff limit")
    assert last.reason == "JobFailed"
    assert decided.events == (JobEvent("Warning", "BackoffLimitExceeded", last.message),)
    assert life.job.status.completion_time == EPOCH


@pytest.mark.parametrize(("limit", "good", "bad"), [(3, (2, 1), (2, 2)), (0, (0, 0), (1, 0))])
def test_restarts_in_place_count_against_the_limit(limit: int, good: tuple[int, ...], bad: tuple[int, ...]) -> None:
    """B37: the sum over all replicas, whoever restarts them; a limit of 0 fails at the first restart and not before."""
    life = life_of(spec("OnFailure", Worker=2, runPolicy={"backoffLimit": limit}))
    for restarts, state in ((good, "Running"), (bad, "Failed")):
        life.sync(*(pod("Worker", index, restarts=times) for index, times in enumerate(restarts)))
        assert life.true == ["Created", state]


@pytest.mark.parametrize(
    ("policy", "code", "reason"),
    [
        *((policy, None, "Evicted") for policy in ("Always", "OnFailure", "ExitCode")),
        *(("ExitCode", code, "Evicted") for code in (1, 143)),
        ("ExitCode", 1, "Preempting"),
        ("OnFailure", 0, "Evicted"),  # whoever saves a checkpoint on SIGTERM and exits with 0 has not finished
        *(
            ("ExitCode", None, why)
            for why in ("UnexpectedAdmissionError", "OutOfcpu", "OutOfnvidia.com/gpu", "NodeAffinity")
        ),
    ],
)
def test_what_the_cluster_ended_is_made_again_without_counting(policy: str, code: int | None, reason: str) -> None:
    """B38, B39: the kubelet does not bring a Failed pod back, and a disruption is not the training's failure.

    Newer kubelets report an exit code for evicted pods; that of a process that got a SIGTERM proves nothing. The simulation
    found that such a job failed (seed 131). Of a pod that its node turned away nothing has run.
    """
    life = life_of(spec(policy, Worker=1, runPolicy={"backoffLimit": 0}))
    own = "Never" if policy == "ExitCode" else policy
    for number in range(5):
        decided = life.sync(pod("Worker", 0, "Failed", code, reason=reason, uid=f"uid-{number}", policy=own))
        assert names(decided)["delete pods"] == ["mnist-worker-0"]
    assert life.true == ["Created", "Restarting"]
    assert (life.job.status.restarts, life.job.status.finished_indices) == ((), {})


@pytest.mark.parametrize(("ended_s", "finished"), [(-1, {"Worker": "0"}), (0, {}), (1, {})])
def test_only_an_end_before_the_deletion_is_a_success_of_a_pod_that_goes(
    ended_s: float, finished: dict[str, str]
) -> None:
    """B42: a job that was suspended while it trained goes on when it is resumed, and is not done.."""
    life = life_of(spec("Always", Worker=1))
    life.sync(pod("Worker", 0))
    life.edit({"suspend": True})
    life.sync(pod("Worker", 0))
    life.sync(pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=ended_s))
    assert life.job.status.finished_indices == finished
    life.edit({"suspend": False})
    assert (names(life.sync())["create pods"] == []) is bool(finished)
    assert ("Succeeded" in life.true) is bool(finished)


@pytest.mark.parametrize(("policy", "gone"), [("None", [1]), ("Running", [1]), ("All", [0, 1, 2])])
def test_scaling_a_finished_job_takes_no_pod_that_its_clean_up_policy_keeps(policy: str, gone: list[int]) -> None:
    """B54: the log of a replica that has ended stays; one that would run on does not."""
    life = life_of(spec("Never", Worker=3, runPolicy={"cleanPodPolicy": policy}))
    pods = (done(0), pod("Worker", 1), done(2))
    life.sync(*pods)
    life.job = changed(life.job, spec=job(spec("Never", Worker=1, runPolicy={"cleanPodPolicy": policy})).spec)
    assert sorted(names(life.sync(*pods))["delete pods"]) == [f"mnist-worker-{index}" for index in gone]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_lost_worker_of_an_elastic_job_does_not_fail_it(dynamic: bool) -> None:
    """B50: workers come and go, even under the policy Never; its parameter servers do not."""
    life = life_of(spec("Never", Worker=2, PS=1, enableDynamicWorker=dynamic))
    decided = life.sync(pod("Worker", 0), pod("Worker", 1, "Failed", reason="Evicted"))
    assert ("Failed" in life.true) is not dynamic
    assert names(decided)["delete pods"] == ["mnist-worker-1"] * dynamic
    life.sync(pod("Worker", 0), pod("PS", 0, "Failed", reason="Evicted"))
    assert "Failed" in life.true


def test_what_a_pod_said_of_its_end_is_reported_before_it_is_deleted() -> None:
    """B57: its log goes with it."""
    found = pod("Worker", 0, "Failed", 137)
    (status,) = found.status.container_statuses or ()
    state = ContainerState(terminated=ContainerStateTerminated(137, reason="OOMKilled", message="epoch 3\n"))
    (deletion,) = (
        life_of(restarting())
        .sync(changed(found, status__container_statuses=(changed(status, state=state),)))
        .delete_pods
    )
    exited = "Pod: ns.mnist-worker-0 exited with code 137: OOMKilled: epoch 3"
    assert deletion.event == JobEvent("Normal", "ExitedWithCode", exited)


# Deadline.


def test_a_job_that_is_active_too_long_fails_on_time() -> None:
    """B46: by a timer, not by the next event; each plan says when to look again."""
    life = life_of(restarting(runPolicy={"activeDeadlineSeconds": 60}))
    assert life.sync(pod("Worker", 0), at_s=0.9).requeue_after_s == pytest.approx(60.1)
    assert life.sync(pod("Worker", 0), at_s=60.8).requeue_after_s == pytest.approx(0.2)  # startTime has lost the 0.9 s
    assert "Failed" not in life.true
    ended, last = life.sync(pod("Worker", 0), at_s=61), life.job.status.conditions[-1]
    assert life.true == ["Created", "Failed"]
    assert last.message == "Job mnist has failed because it was active longer than specified deadline"
    assert last.reason == "JobFailed"
    assert ended.events == (JobEvent("Warning", "DeadlineExceeded", last.message),)


def test_an_edited_deadline_counts_from_the_same_start() -> None:
    """B46: lengthened, then shortened below what has passed."""
    life = life_of(restarting(runPolicy={"activeDeadlineSeconds": 60}))
    life.sync(pod("Worker", 0))
    life.edit({"activeDeadlineSeconds": 120})
    assert life.sync(pod("Worker", 0), at_s=90).requeue_after_s == pytest.approx(31)
    life.edit({"activeDeadlineSeconds": 80})
    life.sync(pod("Worker", 0), at_s=91)
    assert "Failed" in life.true


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_job_that_ran_into_a_limit_leaves_nothing_running(policy: str) -> None:
    """B47: whatever the clean-up policy; what has ended stays unless the policy is All."""
    life = life_of(restarting(Worker=2, runPolicy={"activeDeadlineSeconds": 60, "cleanPodPolicy": policy}))
    pods = (pod("Worker", 0), done(1))
    life.sync(*pods)
    life.sync(*pods, at_s=61)
    gone = ["mnist-worker-0"] if policy != "All" else ["mnist-worker-0", "mnist-worker-1"]
    assert names(life.sync(*pods, at_s=62))["delete pods"] == gone
    assert life.job.status.replica_statuses == {"Worker": ReplicaStatus(active=0, succeeded=1)}


# TTL.


def test_a_finished_job_is_deleted_when_its_time_has_come() -> None:
    """B45, B48: by a timer, on time; also when no sync came at the moment itself."""
    life = life_of(restarting(runPolicy={"ttlSecondsAfterFinished": 60}))
    life.sync(done())
    assert life.sync(done(), at_s=1) == Plan(requeue_after_s=60)
    assert life.sync(done(), at_s=60.75) == Plan(requeue_after_s=0.25)  # the condition may be of 0.9 s, rounded down
    assert life.sync(done(), at_s=61) == life.sync(done(), at_s=5000) == Plan(delete_job=True)


def test_a_ttl_that_is_edited_after_the_end_is_honoured() -> None:
    """B45: longer, shorter, or taken away."""
    life = life_of(restarting(runPolicy={"ttlSecondsAfterFinished": 60}))
    life.sync(done())
    life.edit({"ttlSecondsAfterFinished": 600})
    assert not life.sync(done(), at_s=61).delete_job
    life.edit({"ttlSecondsAfterFinished": None})
    assert life.sync(done(), at_s=10_000) == NOTHING
    life.edit({"ttlSecondsAfterFinished": 0})
    assert life.sync(done(), at_s=10_000).delete_job


@pytest.mark.parametrize(
    ("found", "seconds", "policy"),
    [
        pytest.param(done(), 0, {}, id="succeeded"),
        pytest.param(pod("Worker", 0, "Failed", 1), 0, {}, id="failed"),
        pytest.param(pod("Worker", 0), 11, {"activeDeadlineSeconds": 10}, id="deadline"),
        pytest.param(pod("Worker", 0, "Failed", 137), 0, {"backoffLimit": 0}, id="backoff limit"),
    ],
)
def test_every_end_has_a_time_from_which_the_ttl_counts(found: Pod, seconds: float, policy: dict[str, int]) -> None:
    """B44: earlier operators crashed where completionTime was missing."""
    life = life_of(restarting(runPolicy={"ttlSecondsAfterFinished": 1, **policy}))
    life.sync()
    life.sync(found, at_s=seconds)
    assert life.job.status.completion_time == at(seconds)
    assert life.sync(found, at_s=seconds + 2).delete_job


# Suspension.


def test_a_job_that_is_created_suspended_makes_nothing_and_has_not_started() -> None:
    """B49: Kueue's contract: Created and Suspended, no startTime, no children."""
    life = life_of(restarting(runPolicy={"suspend": True, "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1}))
    decided = life.sync()
    assert names(decided) == {}
    assert life.true == ["Created", "Suspended"]
    assert life.job.status.start_time is None
    assert life.job.status.replica_statuses == {"Worker": ReplicaStatus()}
    assert decided.events == (JobEvent("Normal", "TFJobSuspended", "TFJob mnist is suspended."),)
    assert life.sync(at_s=1000) == NOTHING  # B49: neither the TTL nor the deadline counts


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_suspending_takes_every_pod_and_service_whatever_the_clean_up_policy(policy: str) -> None:
    """B74: active reaches 0, Running is False, the start time stays until the job is resumed."""
    life = life_of(spec("OnFailure", Worker=2, runPolicy={"cleanPodPolicy": policy}))
    pods, services = (pod("Worker", 0), pod("Worker", 1, "Pending")), [service("Worker", 0), service("Worker", 1)]
    life.sync(*pods, services=services)
    life.edit({"suspend": True})
    both = ["mnist-worker-0", "mnist-worker-1"]
    decided = life.sync(*pods, at_s=5, services=services)
    assert names(decided) == {"delete pods": both, "delete services": both}
    assert life.true == ["Created", "Suspended"]
    assert life.job.status.start_time == EPOCH
    assert life.job.status.replica_statuses == {"Worker": ReplicaStatus(active=2)}
    life.sync(pod("Worker", 0, terminating=True), at_s=6)
    assert life.job.status.replica_statuses == {"Worker": ReplicaStatus(active=1)}
    life.sync(at_s=7)
    assert life.job.status.replica_statuses == {"Worker": ReplicaStatus()}
    assert life.sync(at_s=8) == NOTHING


def test_a_resumed_job_starts_anew_and_its_last_condition_is_true() -> None:
    """B35, B74: pods are made, the start time is that of the resumption, and STATE does not show Suspended."""
    life = life_of(restarting(runPolicy={"activeDeadlineSeconds": 60}))
    life.sync(pod("Worker", 0))
    life.edit({"suspend": True})
    life.sync(at_s=50)
    life.edit({"suspend": False})
    decided = life.sync(at_s=1000)
    assert names(decided)["create pods"] == ["mnist-worker-0"]
    assert life.job.status.start_time == at(1000)
    assert decided.requeue_after_s == pytest.approx(61)
    assert [event.reason for event in decided.events] == ["TFJobResumed"]
    assert life.job.status.conditions[-1].status == "True"
    assert "Suspended" not in life.true
    life.sync(pod("Worker", 0), at_s=1001)
    assert life.true == ["Created", "Running"]


def test_a_suspended_job_that_is_suspended_again_tells_it_again() -> None:
    """Each transition is one event; a sync in between is none."""
    life, told = life_of(restarting()), []
    for second, suspended in enumerate([False, True, True, False, True]):
        life.edit({"suspend": suspended})
        told += [event.reason for event in life.sync(at_s=second).events]
    assert told == ["TFJobSuspended", "TFJobResumed", "TFJobSuspended"]


# Memory of what has succeeded.


def test_a_replica_that_has_succeeded_is_never_run_again() -> None:
    """B42: its pod is deleted, by a drain or a person: it is not made again, and the job succeeds when the others do."""
    life = life_of(restarting(Worker=3, successPolicy="AllWorkers"))
    life.sync(pod("Worker", 0), done(1), pod("Worker", 2))
    assert life.job.status.finished_indices == {"Worker": "1"}
    assert names(life.sync(pod("Worker", 0), pod("Worker", 2), at_s=1))["create pods"] == []
    assert life.job.status.replica_statuses == {"Worker": ReplicaStatus(active=2, succeeded=1)}
    life.sync(done(0), done(2), at_s=2)
    assert life.true == ["Created", "Succeeded"]
    assert life.job.status.finished_indices == {"Worker": "0-2"}


def test_a_chief_whose_pod_vanished_after_its_success_has_succeeded() -> None:
    """`finishedIndices` counts as its pod would."""
    tfjob = synced(job(status=JobStatus(finished_indices={"Worker": "0"})), pod("Worker", 1))
    assert "Succeeded" in true_of(tfjob)


CREATED = JobCondition(type="Created", status="True", last_transition_time=EPOCH)
BEFORE = JobStatus(conditions=(CREATED,), start_time=EPOCH)


def one(count: int = 1, kind: str = "Worker", policy: str = "Never", **rest: Any) -> dict[str, Any]:
    return spec(policy, **{kind: count}) | rest


def status_after(given: dict[str, Any], pods: Sequence[Pod], at_s: float, before: JobStatus = BEFORE) -> JobStatus:
    """The status that is planned then, over that one."""
    found = decide(job(given, status=before), *pods, at_s=at_s).status
    assert found is not None
    return found


def test_a_new_leader_takes_the_creation_of_the_oldest_pod_as_the_start() -> None:
    """Its predecessor created pods in a burst, and was killed before it wrote the first status.

    Not after now, nor of pods that go. A resume sets the start anew, also beside pods that were not deleted yet.
    """

    def created(second: float, index: int = 0, **how: Any) -> Pod:
        return changed(pod("Worker", index, **how), metadata__creation_timestamp=at(second))

    suspended = changed(BEFORE, conditions=(CREATED, changed(CREATED, type="Suspended")))
    for pods, before, start_s in (
        ([created(20), created(10, 1)], JobStatus(), 10),
        ([], JobStatus(), 60),
        ([created(90)], JobStatus(), 60),
        ([created(10, terminating=True)], JobStatus(), 60),
        ([created(5)], suspended, 60),
    ):
        assert status_after(one(3), pods, 60.5, before).start_time == at(start_s)


@pytest.mark.parametrize(
    ("given", "pods", "seconds"),
    [
        pytest.param(one(kind="Chief"), [done(0, 40, "Chief")], 40, id="the chief's"),
        pytest.param(one(2), [done(0, 40), done(1, 50)], 40, id="worker 0's"),
        pytest.param(one(2, successPolicy="AllWorkers"), [done(0, 50), done(1, 40)], 50, id="the last worker's"),
        pytest.param(one(2, "PS"), [done(0, 40, "PS"), done(1, 50, "PS")], 50, id="the last of all"),
        pytest.param(one(2), [pod("Worker", 0), lost(1, 40)], 40, id="the failed one's"),
        pytest.param(one(2), [lost(0, 50), lost(1, 40)], 40, id="the first failed one's"),
        pytest.param(one(), [done(0, -5)], 0, id="not before the start"),
        pytest.param(one(), [done(0, 95)], 90, id="not after now"),
        pytest.param(one(), [done()], 90, id="no time is shown"),
        pytest.param(one(), [pod("Worker", 0, "Failed", reason="NodeLost")], 90, id="no container is shown"),
        pytest.param(one(2, successPolicy="AllWorkers"), [done(0, 40)], 90, id="a pod is gone"),
        pytest.param(one(activeDeadlineSeconds=80), [pod("Worker", 0), done(1, 40)], 90, id="the deadline's"),
        pytest.param(one(policy="ExitCode", backoffLimit=0), [lost(0, 40, 137)], 90, id="the backoff limit's"),
    ],
)
def test_a_job_is_complete_when_the_container_that_decided_ended(
    given: dict[str, Any], pods: list[Pod], seconds: float
) -> None:
    """However late the operator sees it; an end that no container decided has the time of its sync."""
    before = changed(BEFORE, finished_indices={"Worker": "1"} if "AllWorkers" in str(given) else {})
    found = status_after(given, pods, 90.5, before)
    assert found.completion_time == at(seconds)
    assert found.conditions[-1].type in {"Succeeded", "Failed"}
    assert found.conditions[-1].last_transition_time == at(90)


def test_a_failed_init_container_decides_when_no_other_has_run() -> None:
    """The training container is then still waiting, and has no time."""
    found = changed(pod("Worker", 0, "Failed"), status__init_container_statuses=lost(0, 40).status.container_statuses)
    assert status_after(one(), [found], 90).completion_time == at(40)


def test_no_job_is_complete_before_it_started_whatever_the_clock_of_the_leader_before() -> None:
    """That was an hour ahead: the job has run for no time, and not for less."""
    before = changed(BEFORE, start_time=at(3600))
    assert status_after(one(), [done(0, 40)], 90, before).completion_time == at(3600)
    limited = one(policy="ExitCode", backoffLimit=0)
    assert status_after(limited, [lost(0, 9, 137)], 90, before).completion_time == at(3600)


@pytest.mark.parametrize(
    ("ttl_s", "written_s", "late_s", "due_s"), [(60, 5000.5, 5060.9, 5061), (1, 90.5, 90.6, 92), (0, 90.5, None, 90.6)]
)
def test_the_ttl_counts_from_the_write_of_the_end(
    ttl_s: int, written_s: float, late_s: float | None, due_s: float
) -> None:
    """The job ended while no operator ran: whoever looks for it finds it for its whole TTL. One of 0 s is due at once."""
    wanted = one(runPolicy={"ttlSecondsAfterFinished": ttl_s})
    ended = job(wanted, status=status_after(wanted, [done(0, 40)], written_s))
    assert ended.status.completion_time == at(40)
    assert late_s is None or not decide(ended, done(0, 40), at_s=late_s).delete_job
    assert decide(ended, done(0, 40), at_s=due_s).delete_job


def test_all_replicas_are_active_when_each_type_has_as_many_as_it_wants() -> None:
    """U12: then no further start is to be waited for. While a job is scaled down there may be more."""
    for active, wanted, answer in (
        ({"PS": 1, "Worker": 4}, {"PS": 1, "Worker": 4}, True),
        ({"PS": 1, "Worker": 3}, {"PS": 1, "Worker": 4}, False),
        ({"Worker": 4}, {"PS": 1, "Worker": 4}, False),
        ({"Worker": 4}, {"PS": 0, "Worker": 4}, True),
        ({"Worker": 5}, {"Worker": 4}, True),
    ):
        status = JobStatus(replica_statuses={kind: ReplicaStatus(active=count) for kind, count in active.items()})
        assert all_active(status, wanted) is answer, (active, wanted)


CRASHED: Final = ContainerStateTerminated(exit_code=1, reason="Error", message="KeyError: 'LR'")


def crashing(index: int, kind: str = "Worker", times: int = 4) -> Pod:
    """A pod whose container is in back-off."""
    state = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 40s"))
    down = ContainerStatus("tensorflow", restart_count=times, state=state, last_state=LastState(terminated=CRASHED))
    return changed(pod(kind, index, policy="OnFailure"), status__container_statuses=(down,))


def pulling(index: int, kind: str = "Worker") -> Pod:
    """A pod whose image does not exist."""
    state = ContainerState(waiting=ContainerStateWaiting(reason="ImagePullBackOff", message="no such image: train:2"))
    return changed(
        pod(kind, index, "Pending"), status__container_statuses=(ContainerStatus("tensorflow", state=state),)
    )


class AtDeadline(NamedTuple):
    """The pods of two workers at the active deadline: what the condition says about them, and the recorded failure."""

    name: str
    pods: Sequence[Pod]
    said: str = ""
    pod: str = ""
    reason: str = ""
    exit_code: int | None = None
    message: str = ""


LACKS: Final = "it has no pod, see the events of the job"
AT_DEADLINE: Final = (
    AtDeadline("all run", [pod("Worker", 0), pod("Worker", 1)]),
    AtDeadline("one has succeeded, the other runs", [pod("Worker", 0), done(1)]),
    AtDeadline(
        "one crashes",
        [pod("Worker", 0), crashing(1)],
        "Not running: pod mnist-worker-1: container tensorflow exited with code 1: KeyError: 'LR'",
        "mnist-worker-1",
        "Error",
        1,
        "KeyError: 'LR'",
    ),
    AtDeadline(
        "one has no image, the other crashes",
        [pulling(0), crashing(1)],
        "2 replicas were not running, such as pod mnist-worker-1: container tensorflow exited with code 1: KeyError: 'LR'",
        "mnist-worker-1",
        "Error",
        1,
        "KeyError: 'LR'",
    ),
    AtDeadline(
        "one has no image",
        [pulling(0), pod("Worker", 1)],
        "Not running: pod mnist-worker-0: container tensorflow: no such image: train:2",
        "mnist-worker-0",
        "NotRunning",
        None,
        "was not running: container tensorflow: no such image: train:2",
    ),
    AtDeadline(
        "one is not scheduled, and comes before one without a pod",
        [pod("Worker", 1, "Pending")],
        "2 replicas were not running, such as pod mnist-worker-1: not scheduled yet",
        "mnist-worker-1",
        "NotRunning",
        None,
        "was not running: not scheduled yet",
    ),
    AtDeadline(
        "one has no pod",
        [pod("Worker", 0)],
        f"Not running: pod mnist-worker-1: {LACKS}",
        "",
        "NotRunning",
        None,
        f"was not running: {LACKS}",
    ),
)


@for_each("at", AT_DEADLINE)
def test_the_active_deadline_names_a_replica_that_was_not_running(at: AtDeadline) -> None:
    """Its trouble is the likely reason; without it, the advice could only be a longer deadline."""
    life = life_of(spec("OnFailure", Worker=2, runPolicy={"activeDeadlineSeconds": 60}))
    life.sync()
    decided = life.sync(*at.pods, at_s=61)
    message, begun = life.job.status.conditions[-1].message, life.job.status.begun
    assert message.removeprefix("Job mnist has failed because it was active longer than specified deadline") == (
        f". {at.said}" if at.said else ""
    )
    assert (limit_of("JobFailed", message), decided.events[-1].message) == ("DeadlineExceeded", message)
    assert begun is not None
    assert begun.ending is not None
    failure = begun.ending.failure
    if not at.said:
        assert failure is None
        return
    assert failure is not None
    found = (failure.pod_name, failure.reason, failure.exit_code, failure.message)
    assert found == (at.pod, at.reason, at.exit_code, at.message)
    assert failure.replica_type == "Worker"


@for_each(
    "at",
    [
        AtDeadline(
            "a server has no image", [crashing(0, "Chief"), pulling(0, "PS"), pod("Worker", 0)], pod="mnist-ps-0"
        ),
        AtDeadline("a server crashes", [crashing(0, "Chief", 9), crashing(0, "PS", 2)], pod="mnist-ps-0"),
        AtDeadline(
            "a worker has crashed more often", [crashing(0, "Chief", 2), crashing(0, times=5)], pod="mnist-worker-0"
        ),
        AtDeadline("an Evaluator crashes too", [pulling(0), crashing(0, "Evaluator")], pod="mnist-worker-0"),
    ],
)
def test_the_active_deadline_names_the_replica_on_which_others_depend(at: AtDeadline) -> None:
    """A chief in back-off has usually failed because its parameter server does not run."""
    kinds = dict.fromkeys(("Chief", "PS", "Worker", "Evaluator"), 0)
    kinds |= {kind: 1 for kind in kinds if any(f"-{kind.lower()}-" in each.metadata.name for each in at.pods)}
    life = life_of(spec("OnFailure", **kinds, runPolicy={"activeDeadlineSeconds": 60}))
    life.sync()
    life.sync(*at.pods, at_s=61)
    assert life.job.status.begun is not None
    assert life.job.status.begun.ending is not None
    assert life.job.status.begun.ending.failure is not None
    assert life.job.status.begun.ending.failure.pod_name == at.pod


def test_the_active_deadline_names_a_replica_whose_next_pod_waits_for_its_back_off() -> None:
    life = life_of(restarting(runPolicy={"activeDeadlineSeconds": 60}))
    life.sync(pod("Worker", 0))
    life.sync(lost(0, 30, 137), at_s=59)
    life.sync(at_s=61)
    assert life.job.status.conditions[-1].message.endswith(
        ". Not running: pod mnist-worker-0: it was restarted once, and its next pod is not created yet"
    )


def test_a_job_on_hold_that_reaches_its_active_deadline_names_a_replica_too() -> None:
    life = life_of(spec("OnFailure", Worker=2, runPolicy={"activeDeadlineSeconds": 60}))
    life.sync(pod("Worker", 0), crashing(1))
    life.job = changed(
        life.job, spec=job(spec("No such policy", Worker=2, runPolicy={"activeDeadlineSeconds": 60})).spec
    )
    life.sync(pod("Worker", 0), crashing(1), at_s=61)
    assert life.job.status.conditions[-1].message.endswith(
        "pod mnist-worker-1: container tensorflow exited with code 1: KeyError: 'LR'"
    )
