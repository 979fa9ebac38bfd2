"""Properties of `plan()`: any job, whatever has become of it, with any set of pods in any state."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.jobs import decide, good_spec, job, pod, replica, service, synced, true_of
from fakes.objects import after, changed, labelled
from kit.virtual_loop import EPOCH
from tfjob_operator.api.core import TERMINAL, PodPhase, PodRestartPolicy
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import CleanPodPolicy, FinishedReplicaPolicy, RestartPolicy, SuccessPolicy
from tfjob_operator.api.v1.types import TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.tfjob.plan.size import MAX_OBJECT, OVERHEAD, stored_size

MOST_ROUNDS = 5
"""Plans until there is nothing to do: what has failed is deleted, made again, counted; or the job ends and is cleaned up."""
NOW_S, FAR_S = 60, 10_000
"""When `decide` plans if nothing is said. By the other time every deadline that is drawn has passed."""

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a job with a past takes plans to draw


def one_of_each(*choices: Iterable[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """One element of each, in a single draw: each draw of hypothesis takes a fifth of a millisecond."""
    return st.sampled_from([*product(*choices)])


places = one_of_each(c.REPLICA_TYPES, range(4))
SEVERAL = one_of_each(range(4), tuple(RestartPolicy))
ONE_AT_MOST = one_of_each(range(2), tuple(RestartPolicy))
POLICIES = [
    {"maxRestarts": limit, "finishedReplicaPolicy": finished, "rules": rules}
    for limit in (0, 1)
    for finished in FinishedReplicaPolicy
    for rules in (
        [{"action": "RestartAll"}],
        [{"action": "Ignore", "onFailureReasons": ["Evicted"]}, {"action": "RestartAllAndIgnoreMaxRestarts"}],
        [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137]}}, {"action": "RestartReplica"}],
        [{"action": "RestartReplica", "escalation": {"afterSeconds": 30, "action": "RestartAll"}}],
    )
]
RUN_POLICY: dict[str, Sequence[Any]] = {
    "cleanPodPolicy": tuple(CleanPodPolicy),
    "suspend": (False, False, True),
    "managedBy": ("", "", "kueue.x-k8s.io/multikueue"),
    "backoffLimit": (None, None, None, None, 0, 1, 2, 3),
    "activeDeadlineSeconds": (None, None, 30, 1000),
    "ttlSecondsAfterFinished": (None, None, 0, 1000),
}
RUN_POLICIES = one_of_each(*RUN_POLICY.values())
ON_FAILURE: dict[str, Sequence[Any]] = {
    "startDeadlineSeconds": (None, None, None, 30),
    "progressDeadlineSeconds": (None, None, None, 60),
    "completionGracePeriodSeconds": (None, None, None, 30),
    "failurePolicy": (*[None] * 12, *POLICIES),
}
ON_FAILURES = one_of_each(*ON_FAILURE.values())
POD_STATE: dict[str, Sequence[Any]] = {
    "phase": (PodPhase.PENDING, PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, "Unknown"),
    "exit_code": (None, None, None, 0, 1, 137),
    "policy": tuple(PodRestartPolicy),
    "reason": ("", "Evicted"),
    "restarts": range(3),
    "terminating": (False, True),
    "grace_s": (30, 30, 0, 5, 60),
    "ended_s": (None, -1, 0, 5),
}
POD_STATES = one_of_each(*POD_STATE.values()).map(lambda drawn: dict(zip(POD_STATE, drawn, strict=True)))


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A valid specification of up to three replica types, with any run policy."""
    types = draw(st.lists(st.sampled_from(c.REPLICA_TYPES), min_size=1, max_size=3, unique=True))
    if c.CHIEF in types and c.MASTER in types:
        types.remove(c.MASTER)
    policy = zip((*RUN_POLICY, *ON_FAILURE), (*draw(RUN_POLICIES), *draw(ON_FAILURES)), strict=True)
    sizes = {name: draw(ONE_AT_MOST if name in c.CHIEF_TYPES else SEVERAL) for name in types}
    return {
        "tfReplicaSpecs": {name: replica(count, restart) for name, (count, restart) in sizes.items()},
        "successPolicy": draw(st.sampled_from(SuccessPolicy)),
        "runPolicy": {name: value for name, value in policy if value is not None},
    }


@st.composite
def some_pods(draw: st.DrawFn) -> list[Pod]:
    """Pods in any state, at most one for each name, as on a server."""
    return [pod(*place, **draw(POD_STATES)) for place in draw(st.lists(places, max_size=6, unique=True))]


@st.composite
def jobs(draw: st.DrawFn) -> TFJob:
    """A job with a past: other pods have brought it to where it is, and it was edited since."""
    found = job(draw(specs()))
    for past in draw(st.lists(some_pods(), max_size=2)):
        found = synced(found, *past)
    if (edit := draw(st.none() | specs())) is not None:
        found = changed(found, spec=msgspec.Raw(msgspec.json.encode(edit)))
    return changed(found, metadata__deletion_timestamp=EPOCH) if draw(st.integers(0, 9)) == 0 else found


some_services = st.lists(places, max_size=4, unique=True).map(lambda found: [service(*place) for place in found])


def is_ours_to_run(tfjob: TFJob, spec: TFJobSpec) -> bool:
    """Whether the job is to have children at all."""
    return (
        tfjob.metadata.deletion_timestamp is None
        and spec.managed_by in c.MANAGED_BY_US
        and not spec.suspend
        and not conditions.is_finished(tfjob.status)
    )


def has_succeeded(found: Pod, tfjob: TFJob) -> bool:
    """Return whether a replica has succeeded by itself, and not on a SIGTERM, by its pod as the kubelet leaves it."""
    if any(record.stopped and record.pod == found.metadata.uid for record in tfjob.status.restarts):
        return False
    ended = [each.state.terminated for each in found.status.container_statuses or () if each.state.terminated]
    with_zero = any(each.exit_code == 0 for each in ended)
    if found.metadata.deletion_timestamp is not None:
        # Between two runs it was not done, though the phase of a pod that goes then may become Succeeded (1.27).
        last = [each for each in ended if each.exit_code == 0 or found.spec.restart_policy != RestartPolicy.ON_FAILURE]
        before = any(each.finished_at is not None and each.finished_at < EPOCH for each in last)
        if (
            not before
            or found.metadata.deletion_grace_period_seconds != 30
            or found.spec.restart_policy == RestartPolicy.ALWAYS
        ):
            return False
    elif found.status.reason:
        return False
    if found.status.phase == PodPhase.SUCCEEDED:
        return True
    is_final = found.status.phase == PodPhase.FAILED or found.spec.restart_policy != RestartPolicy.ALWAYS
    return with_zero and is_final and not found.status.reason  # with a reason the pod was ended as a whole


def is_active(found: Pod) -> bool:
    """Whether a pod counts as active: it runs, is not on its way out, and its training is not over for good."""
    policy = found.spec.restart_policy
    over = any(
        each.state.terminated is not None
        and policy != RestartPolicy.ALWAYS
        and (each.state.terminated.exit_code == 0 or policy != RestartPolicy.ON_FAILURE)
        for each in found.status.container_statuses or ()
    )
    return found.status.phase == PodPhase.RUNNING and found.metadata.deletion_timestamp is None and not over


def place_of(found: Pod | Service) -> tuple[str, int]:
    """Replica type and index that the labels of a child name."""
    labels = found.metadata.label_map()
    by_label = {name.lower(): name for name in c.REPLICA_TYPES}
    return by_label[labels[c.LABEL_REPLICA_TYPE]], int(labels[c.LABEL_REPLICA_INDEX])


@patient
@given(jobs(), some_pods(), some_services)
def test_a_child_is_only_made_where_one_is_missing_and_wanted(
    tfjob: TFJob, pods: list[Pod], services: list[Service]
) -> None:
    """B42: no second one for an index, none for a finished index, none for a suspended, foreign, deleted or ended job."""
    spec, decided = good_spec(tfjob), decide(tfjob, *pods, services=services)
    made = [(slot.type, slot.index) for slot in decided.create_pods]
    served = [(slot.type, slot.index) for slot in decided.create_services]
    assert len(made) == len(set(made))
    assert len(served) == len(set(served))
    if not is_ours_to_run(tfjob, spec) or conditions.is_finished(after(tfjob, decided).status):
        assert not made
        assert not served
    assert not set(made) & {place_of(found) for found in pods}
    assert not set(served) & {place_of(found) for found in services}
    finished = after(tfjob, decided).status.finished_indices
    for name, index in made + served:
        assert index < spec.replicas[name].replicas
        assert index not in _indices(finished.get(name, ""))
    for found in pods:
        name, index = place_of(found)
        if name in spec.replicas and has_succeeded(found, tfjob):
            assert (name, index) not in made


def _indices(text: str) -> set[int]:
    parts = [part.split("-") for part in text.split(",") if part]
    return {index for part in parts for index in range(int(part[0]), int(part[-1]) + 1)}


@patient
@given(jobs(), some_pods(), some_pods())
def test_what_is_final_stays(tfjob: TFJob, pods: list[Pod], others: list[Pod]) -> None:
    """B36, B42: there is one end, which is never left; a finished index is never forgotten, a restart never uncounted."""
    before = tfjob
    for seen in (pods, others):
        later = synced(before, *seen)
        assert not {"Succeeded", "Failed"} <= set(true_of(later))
        if conditions.is_finished(later.status):
            assert later.status.completion_time is not None
        again = decide(later, *seen)
        assert (again.status, again.events) == (None, ())
        if conditions.is_finished(before.status):
            assert later.status.conditions == before.status.conditions
            assert later.status.completion_time == before.status.completion_time
            for name, counts in before.status.replica_statuses.items():
                assert later.status.replica_statuses[name].succeeded >= counts.succeeded
        for name, text in before.status.finished_indices.items():
            assert _indices(text) <= _indices(later.status.finished_indices[name])
        totals = {(each.type, each.index): each.total for each in later.status.restarts}
        for each in before.status.restarts:
            assert totals[each.type, each.index] >= each.total
        before = later


@patient
@given(jobs(), some_pods(), some_services)
def test_counters_equal_the_pods(tfjob: TFJob, pods: list[Pod], services: list[Service]) -> None:
    """Also when the replicas were edited; a pending pod counts nowhere, and what has succeeded stays counted (B22).

    In a suspended job every pod without a terminal phase is active, so that a queue does not give its quota away.
    """
    spec = good_spec(tfjob)
    if tfjob.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return
    status = synced(tfjob, *pods, services=services).status
    if conditions.is_finished(status):  # then what is cleaned up is active no more
        return
    holding = {place_of(found)[0] for found in pods if found.status.phase not in TERMINAL} if spec.suspend else set()
    assert set(status.replica_statuses) == set(spec.replicas) | holding
    for name, counts in status.replica_statuses.items():
        if name not in spec.replicas:  # removed from the spec
            continue
        size = spec.replicas[name].replicas
        mine = [found for found in pods if place_of(found)[0] == name and place_of(found)[1] < size]
        if spec.suspend:
            assert counts.active == sum(
                place_of(found)[0] == name and found.status.phase not in TERMINAL for found in pods
            )
        else:
            assert counts.active == sum(is_active(found) for found in mine)
        if not mine:
            assert counts.failed == 0
        finished = {index for index in _indices(status.finished_indices.get(name, "")) if index < size}
        assert counts.succeeded == len(finished)
        assert {place_of(found)[1] for found in mine if has_succeeded(found, tfjob)} <= finished


def test_a_value_of_each_limit_is_drawn() -> None:
    drawn = {f"runPolicy.{name}" for name in (*RUN_POLICY, *ON_FAILURE)} | {"runPolicy.failurePolicy.maxRestarts"}
    assert {limit.field for limit in c.LIMITS.values()} <= drawn


@patient
@given(jobs(), some_pods())
def test_a_limit_that_time_alone_reaches_is_due_when_the_plan_says(tfjob: TFJob, pods: list[Pod]) -> None:
    """B46: no event of its pods wakes the job then."""
    tfjob = after(tfjob, decide(tfjob, *pods))
    now, later = decide(tfjob, *pods), decide(tfjob, *pods, at_s=FAR_S)
    if later.ends(tfjob) and not now.ends(tfjob) and any(each.reason in c.LIMITS for each in later.events):
        at_s: float = NOW_S
        for _ in range(MOST_ROUNDS):
            assert now.requeue_after_s is not None, (
                "nothing wakes the job: its plan must be requeued within the time that is left"
            )
            at_s += now.requeue_after_s
            now = decide(tfjob, *pods, at_s=at_s)
            if now.ends(tfjob):
                return
        raise AssertionError("the job is woken, and has not reached its limit")


LIMITED = one_of_each((0, 1, 2), (None, 30), tuple(POLICIES[4:6]), ("Failed", "Running"), range(1, 4))


@patient
@given(LIMITED, some_pods())
def test_a_restart_of_the_whole_job_is_not_followed_by_a_failure_that_was_due_before(
    drawn: tuple[Any, ...], pods: list[Pod]
) -> None:
    """Every limit is decided before the restart. Its pods are there in the next plan, or are gone."""
    backoff, deadline, failure, phase, times = drawn
    types = {"Worker": replica(4, "ExitCode"), "PS": replica(4, "OnFailure"), "Evaluator": replica(4, "OnFailure")}
    limits = {"backoffLimit": backoff, "activeDeadlineSeconds": deadline, "failurePolicy": failure}
    tfjob = synced(job({"tfReplicaSpecs": types, "runPolicy": limits}), at_s=0)
    evaluator = pod("Evaluator", 0, restarts=times, policy=PodRestartPolicy.ON_FAILURE)
    there = {each.metadata.name: each for each in (*pods, pod("Worker", 0, phase, 42), evaluator)}
    pods = [*there.values()]
    restarted = synced(tfjob, *pods)
    if restarted.status.attempt > tfjob.status.attempt:
        assert not decide(restarted).ends(restarted)
        assert not decide(restarted, *pods).ends(restarted)


@patient
@given(jobs(), some_pods(), some_services)
def test_carried_out_a_few_times_it_has_nothing_left_to_do(
    tfjob: TFJob, pods: list[Pod], services: list[Service]
) -> None:
    """Stable: the plan for its own result is empty, and stays so."""
    for _ in range(MOST_ROUNDS):
        decided = decide(tfjob, *pods, services=services)
        if decided.delete_job:
            return
        tfjob = after(tfjob, decided)
        assert all(deletion.pod.metadata.deletion_timestamp is None for deletion in decided.delete_pods)
        gone = {deletion.pod.metadata.name for deletion in decided.delete_pods}
        pods = [found for found in pods if found.metadata.name not in gone]
        new = [pod(slot.type, slot.index, PodPhase.PENDING, uid=f"new-{slot.name}") for slot in decided.create_pods]
        pods += [labelled(each, attempt=str(tfjob.status.attempt)) for each in new]
        dropped = {found.metadata.name for found in decided.delete_services}
        services = [found for found in services if found.metadata.name not in dropped]
        services += [service(slot.type, slot.index) for slot in decided.create_services]
    decided = decide(tfjob, *pods, services=services)
    assert decided.status is None
    assert not decided.acts
    assert not decided.events


@patient
@given(jobs(), some_pods(), some_pods(), st.integers(1, 800))
def test_a_status_without_room_counts_no_restart_twice_and_no_pod_goes_uncounted(
    tfjob: TFJob, pods: list[Pod], others: list[Pod], less: int
) -> None:
    """Whatever is left out: it fits, or has no record any more; it is stable; and what is deleted has been recorded."""
    free, tight = decide(tfjob, *pods), tfjob
    full = after(tfjob, free)
    room = stored_size(full.status) - less
    tight = changed(tfjob, metadata__size=MAX_OBJECT - OVERHEAD - len(tfjob.spec) - room)
    found = decide(tight, *pods)
    later = after(tight, found)
    assert stored_size(later.status) <= room or not later.status.restarts or free.status is None
    assert {each.pod.metadata.uid for each in found.delete_pods} <= {each.pod.metadata.uid for each in free.delete_pods}
    if decide(full, *pods).status is None:
        assert decide(later, *pods).status is None
    wanted, kept = totals(full), totals(later)
    if not conditions.is_over(full.status) and full.status.attempt == tfjob.status.attempt:
        for each in found.delete_pods:
            records = [record for record in full.status.restarts if record.pod == each.pod.metadata.uid]
            assert all(kept.get((record.type, record.index), 0) == record.total for record in records)
    gone = {record.pod for record in full.status.restarts} - {each.metadata.uid for each in pods}
    others = [each for each in others if each.metadata.uid not in gone]
    for seen in ((), pods, others):  # also if the pods are still there after a crash
        roomy = synced(changed(later, metadata__size=0), *seen)
        expected = totals(synced(full, *seen))
        assert all(number <= expected[place] for place, number in totals(roomy).items())
    assert all(number <= wanted[place] for place, number in kept.items())


def totals(tfjob: TFJob) -> dict[tuple[str, int], int]:
    """The recorded restarts of each replica."""
    return {(each.type, each.index): each.total for each in tfjob.status.restarts}
