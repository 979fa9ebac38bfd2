"""Which pod stands for a replica, whose policy and template count for it, and how restarts are counted."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.controller import ControllerHarness
from fakes.jobs import (
    accounted,
    at,
    container,
    decide,
    good_spec,
    job,
    names,
    observed,
    pod,
    replica,
    service,
    spec,
    synced,
    true_of,
)
from fakes.objects import after, changed, edited, labelled
from tfjob_operator.api.core import ContainerStatus, PodRestartPolicy
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import IndexRestarts, JobCondition, JobStatus, ReplicaStatus, StartRecord
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.tfjob.plan.replicas import key_of, observe, replicas_of
from tfjob_operator.controller.tfjob.plan.status import (
    SCHEME,
    in_place_restarts,
    merged,
    moved_records,
    template_hashes,
)
from tfjob_operator.controller.tfjob.plan.types import Plan

WORKER_0 = ReplicaKey.of("mnist", "Worker", 0)
Records = tuple[IndexRestarts, ...]


def total(records: Records) -> int:
    return sum(record.total for record in records)


def test_all_containers_of_a_pod_count() -> None:
    """B37: init containers too, in whatever phase the pod is."""
    statuses = (ContainerStatus("tensorflow", restart_count=2), ContainerStatus("x", restart_count=1))
    inits = (ContainerStatus("init", restart_count=4),)
    found = changed(
        pod("Worker", 0, "Pending"), status__container_statuses=statuses, status__init_container_statuses=inits
    )
    assert in_place_restarts(found) == 7


@pytest.mark.parametrize(
    ("history", "counted"),
    [
        pytest.param([("a", 0, False), ("b", 0, False)], 0, id="without a restart there is no record"),
        pytest.param([("a", 2, False), ("a", 2, True), ("b", 1, False)], 4, id="in place and by a new pod add up"),
        pytest.param([("a", 0, True)] * 4, 1, id="a pod that fails is counted once however often it is seen"),
        pytest.param([("a", 2, False), ("b", 0, False)], 2, id="a pod that was taken away carries its restarts over"),
    ],
)
def test_restarts_are_counted_over_the_pods_of_a_replica(history: list[tuple[str, int, bool]], counted: int) -> None:
    """B36: killed between the status write and the delete, the operator finds the same pod again, and its record.

    A disruption is not counted; what its containers did before is. The status of a job of a thousand workers stays small.
    """
    records: Records = ()
    for uid, restarts, failed in history:
        records = accounted(records, observed([pod("Worker", 0, uid=uid, restarts=restarts)]), {uid} if failed else ())
    assert (total(records), bool(records)) == (counted, bool(counted))
    assert total(accounted(records, [], ())) == counted


def test_a_record_goes_over_to_another_pod_only_when_that_has_something_to_count() -> None:
    """B36: so an old view, which still has the recorded pod, changes nothing; `moved_records` lists the records to confirm."""
    first = accounted((), observed([pod("Worker", 0, uid="a")]), {"a"})
    assert accounted(first, observed([pod("Worker", 0, uid="b")]), ()) == first
    second = accounted(first, observed([pod("Worker", 0, uid="b")]), {"b"})
    assert moved_records(first, second) == list(second)
    assert moved_records((), first) == moved_records(first, first) == []


def test_the_record_with_more_restarts_wins() -> None:
    """For each replica by itself. Of one pod, two accounts make a whole: one has seen its restarts, the other its failure."""
    one = accounted((), observed([pod("Worker", 0, uid="a", restarts=2), pod("Worker", 1, uid="b", restarts=1)]), ())
    other = accounted(
        (),
        observed(
            [pod("Worker", index, uid=uid, restarts=n) for index, uid, n in ((0, "a", 1), (1, "b", 3), (2, "c", 1))]
        ),
        (),
    )
    for found in (merged(one, other), merged(other, one)):
        assert [record.total for record in found] == [2, 3, 1]
    restarted = accounted((), observed([pod("Worker", 0, uid="a", restarts=1)]), ())
    failed = accounted((), observed([pod("Worker", 0, uid="a")]), {"a"})
    assert total(merged(restarted, failed)) == 2
    assert merged(restarted, failed) == merged(failed, restarted)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()), max_size=12))
def test_counts_never_fall_and_looking_twice_changes_nothing(history: list[tuple[str, int, bool]]) -> None:
    """B36: durable and idempotent, for any sequence of pods."""
    records: Records = ()
    for uid, restarts, failed in history:
        before = total(records)
        seen, own_doing = observed([pod("Worker", 0, uid=uid, restarts=restarts)]), ({uid} if failed else set())
        records = accounted(records, seen, own_doing)
        assert total(records) >= before
        assert accounted(records, seen, own_doing) == records


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=8), st.data())
def test_an_older_account_adds_nothing_to_a_newer_one(history: list[tuple[int, bool]], data: st.DataObject) -> None:
    """B36: what one process remembers may be older than what another has written, or the other way round."""
    accounts: list[Records] = [()]
    for number, (restarts, failed) in enumerate(history):
        uid = f"pod-{number}"
        seen = observed([pod("Worker", 0, uid=uid, restarts=restarts)])
        accounts.append(accounted(accounts[-1], seen, {uid} if failed else set()))
    older, newest = data.draw(st.sampled_from(accounts)), accounts[-1]
    assert total(merged(older, newest)) == total(merged(newest, older)) == total(newest)


ONE = spec("ExitCode", Worker=1)
TRUE = pod("Worker", 0)
SERVED = [service("Worker", 0)]


def copy(name: str = "copy", *, age_s: float = 0.0, of: Pod = TRUE) -> Pod:
    """Another pod of worker 0, which the job controls as well."""
    return changed(of, metadata__name=name, metadata__uid=f"uid-{name}", metadata__creation_timestamp=at(-age_s))


def chosen(*pods: Pod) -> list[str]:
    """The names of the pods that stand for replicas."""
    return [each.pod.metadata.name for each in replicas_of("mnist", pods)[0]]


def test_the_pod_with_the_replicas_name_stands_for_it_before_others() -> None:
    """D7, U7: however young it is, and also while it is on its way out: its name is taken until it is gone.

    Without it the oldest does, so nothing that comes later takes the place of what runs; the UID decides between two of one
    second.
    """
    for true in (TRUE, pod("Worker", 0, terminating=True)):
        for pods in permutations((true, copy("a", age_s=50), copy("z", age_s=60))):
            assert chosen(*pods) == ["mnist-worker-0"]
    for pods in permutations((copy("b", age_s=5), copy("a", age_s=3), copy("c", age_s=5))):
        assert chosen(*pods) == ["b"]


def test_a_second_pod_goes_also_from_a_job_that_is_cut_down() -> None:
    """U7: together with the pods beyond the size to which it is cut down."""
    seen = observe(job(ONE), [TRUE, copy(), pod("Worker", 1)], []).limited_to({"Worker": 1})
    assert {each.pod.metadata.name for each in seen.surplus} == {"copy", "mnist-worker-1"}


@pytest.mark.parametrize("fate", [("Running",), ("Failed", 1), ("Succeeded", 0)])
def test_a_second_pod_is_neither_counted_nor_judged_and_goes(fate: Any) -> None:
    """U7: whatever has become of it; nothing is made in its stead."""
    decided = decide(job(ONE), copy(of=pod("Worker", 0, *fate)), TRUE, services=SERVED)
    assert names(decided) == {"delete pods": ["copy"]}
    assert [deletion.event for deletion in decided.delete_pods] == [None]
    later = after(job(ONE), decided)
    assert later.status.replica_statuses == {"Worker": ReplicaStatus(active=1)}
    assert true_of(later) == ["Created", "Running"]


def test_two_pods_of_a_replica_invent_no_restarts() -> None:
    """D7: the record stays with the replica's pod, whoever else fails beside it, and whichever comes first."""
    true, second = pod("Worker", 0, restarts=2), copy(of=pod("Worker", 0, "Failed", 137, restarts=3))
    counted = (IndexRestarts(type="Worker", index=0, pod="uid-mnist-worker-0", in_place=2),)
    for pods in permutations((true, second)):
        tfjob = job(ONE | {"runPolicy": {"backoffLimit": 4}})
        for _ in range(5):
            tfjob = synced(tfjob, *pods)
            assert tfjob.status.restarts == counted


@pytest.mark.parametrize("suspend", [True, False])
def test_second_pods_go_with_all_others(suspend: bool) -> None:
    """D7: when a job is suspended, and when it has ended; after the end they are kept or deleted by the same rules."""
    done = JobStatus(conditions=(JobCondition("Succeeded", "True"),), completion_time=at(0), observed_generation=1)
    tfjob = job(ONE | {"runPolicy": {"suspend": suspend}}, status=None if suspend else done)
    assert sorted(names(decide(tfjob, copy(), TRUE))["delete pods"]) == ["copy", "mnist-worker-0"]


async def test_restarts_of_a_pod_under_another_name_are_counted() -> None:
    """D7: the pod is read by its own name; otherwise every sync would fail with a stale view."""
    world = ControllerHarness()
    counted = (IndexRestarts(type="Worker", index=0, pod="uid-before", replaced=True),)
    world.pods.put(copy(of=pod("Worker", 0, "Failed", 137)))
    world.client.objects["pods", "copy"] = {"metadata": {"name": "copy", "uid": "uid-copy"}}
    await world.sync(job(ONE, status=JobStatus(restarts=counted)))
    (record,) = world.status["restarts"]
    assert (record["pod"], record["carried"], record["replaced"]) == ("uid-copy", 1, True)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(labelled(TRUE, replica_index="abc"), id="unreadable"),
        pytest.param(labelled(TRUE, replica_index="1", prefixed_replica_index="1"), id="another's"),
        pytest.param(labelled(TRUE, replica_type="driver", prefixed_replica_type=""), id="another type"),
        pytest.param(labelled(TRUE, job_name="debug"), id="another job"),
        pytest.param(changed(TRUE, metadata__labels=None), id="none"),
    ],
)
def test_whatever_its_labels_say_a_child_is_what_its_name_says(found: Pod) -> None:
    """U9: for the garbage collector, too, it is the job's; it is counted and judged as before."""
    assert key_of("mnist", found.metadata) == WORKER_0
    decided = decide(job(ONE), found, services=SERVED)
    assert names(decided) == {}
    assert after(job(ONE), decided).status.replica_statuses["Worker"].active == 1


@pytest.mark.parametrize(
    "name",
    ["mnist-worker-00", "mnist-worker-", "mnist-worker-0-x", "mnist-Worker-0", "mnist-driver-0", "worker-0", "mnist-0"],
)
def test_only_the_very_name_of_a_replica_names_it(name: str) -> None:
    """U9: of all others only their labels say what they are."""
    assert key_of("mnist", changed(copy(name).metadata, labels=None)) is None
    assert key_of("mnist", copy(name).metadata) == WORKER_0


def test_a_pod_that_nothing_says_what_it_is_goes() -> None:
    """U9: it is the job's child but stands for no replica, so its end would count for nothing."""
    lost = changed(copy(), metadata__labels__job_name="debug")
    assert names(decide(job(ONE), lost, TRUE, services=SERVED))["delete pods"] == ["copy"]


SPEC = spec(PS=1, Worker=2)
ELASTIC = SPEC | {"enableDynamicWorker": True}
PODS = (pod("PS", 0), pod("Worker", 0), pod("Worker", 1))


def told(decided: Plan) -> list[str]:
    """The types of which it is said that their pods stay."""
    said = [event.message for event in decided.events if event.reason == "PodTemplateNotApplied"]
    return [kind for message in said for kind in message.partition(":")[0].split(", ")]


def with_workers(count: int = 2, **fields: Any) -> dict[str, Any]:
    """The specification with these fields of its workers."""
    return spec(PS=1, Worker=replica(count, **fields))


OTHER = with_workers(template=container(image="other"))


ENDED = (pod("PS", 0), pod("Worker", 0, "Failed", 137), pod("Worker", 1, terminating=True))
RETRIED = with_workers(restartPolicy="ExitCode")
RULES: dict[str, Any] = {
    "runPolicy": {"failurePolicy": {"rules": [{"action": "FailJob", "targetReplicaTypes": ["Worker"]}]}}
}


@pytest.mark.parametrize(
    ("before", "body", "pods", "types"),
    [
        (SPEC, OTHER, PODS, ["Worker"]),
        (SPEC, RETRIED, PODS, ["Worker"]),
        (SPEC, with_workers(3), PODS, ["PS", "Worker"]),
        (SPEC, ELASTIC, PODS, ["PS", "Worker"]),
        (SPEC, spec(PS=1, Worker=2, Chief=1), PODS, ["PS", "Worker"]),
        (SPEC, SPEC | {"runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "All"}}, PODS, []),
        (SPEC, SPEC | {"successPolicy": "AllWorkers"}, PODS, []),
        (with_workers(restartPolicy="OnFailure"), with_workers(restartPolicy="OnFailure") | RULES, PODS, ["Worker"]),
        (SPEC, SPEC | RULES, PODS, []),
        (ELASTIC, with_workers(4) | {"enableDynamicWorker": True}, PODS, []),
        (RETRIED, with_workers(restartPolicy="ExitCode", template=container(image="other")), ENDED, []),
        (SPEC, OTHER | {"runPolicy": {"suspend": True}}, PODS, []),
        (SPEC | {"runPolicy": {"suspend": True}}, OTHER, (), []),
    ],
)
def test_an_edit_says_once_which_pods_it_does_not_reach(
    before: dict[str, Any], body: dict[str, Any], pods: tuple[Pod, ...], types: list[str]
) -> None:
    """U18: those whose template, restart policy or TF_CONFIG would be another one now.

    B60: workers and parameter servers of an elastic job are told of nobody who comes or goes. Nothing is said of pods that have
    ended, are on their way out, or are made again anyway, nor when a job is suspended or resumed.
    """
    tfjob = edited(synced(synced(job(before)), *PODS), body)
    assert told(decide(tfjob, *pods)) == types
    assert told(decide(synced(tfjob, *pods), *pods)) == []


def test_a_queued_job_is_not_told_to_be_suspended_since_its_queue_would_resume_it() -> None:
    before = synced(synced(job(SPEC)), *PODS)
    queued = changed(before, metadata__labels={"kueue.x-k8s.io/queue-name": "team"})
    for each, how in ((before, "Suspend and resume the job"), (queued, "Run kubectl tfjob restart")):
        (event,) = (
            event for event in decide(edited(each, OTHER), *PODS).events if event.reason == "PodTemplateNotApplied"
        )
        assert event.message.endswith(f" {how} to recreate them.")


def test_the_chief_of_an_elastic_job_that_is_scaled_stays_and_that_is_no_warning() -> None:
    """B60, U18: its TF_CONFIG names all workers, those of the time at which it was made."""
    led, larger = (spec(PS=1, Worker=count, Chief=1, enableDynamicWorker=True) for count in (2, 4))
    pods = pod("Chief", 0), *PODS
    decided = decide(edited(synced(synced(job(led)), *pods), larger), *pods)
    assert told(decided) == ["Chief"]
    assert [event.type for event in decided.events if event.reason == "PodTemplateNotApplied"] == ["Normal"]


def test_what_an_older_operator_did_not_record_is_not_guessed() -> None:
    """It is recorded with the next status, for the next edit."""
    tfjob = edited(changed(synced(synced(job(SPEC)), *PODS), status__begun=StartRecord(1, {"PS": 1})), OTHER)
    assert told(decide(tfjob, *PODS)) == []
    assert told(decide(edited(synced(tfjob, *PODS), SPEC), *PODS)) == ["Worker"]


def test_what_another_release_recorded_by_another_scheme_is_not_compared() -> None:
    """An edit of something else would seem to have changed all pods. It is noted anew at once, by our scheme."""
    begun = StartRecord(1, {"PS": 1, "Worker": 2}, made_of={"PS": "2-00000000", "Worker": "2-00000000"})
    foreign = changed(synced(synced(job(SPEC)), *PODS), status__begun=begun)
    assert told(decide(edited(foreign, SPEC | {"runPolicy": {"backoffLimit": 3}}), *PODS)) == []
    noted = synced(foreign)
    assert noted.status.begun == synced(synced(job(SPEC)), *PODS).status.begun
    assert told(decide(edited(noted, OTHER), *PODS)) == ["Worker"]


def hashes(body: dict[str, Any]) -> dict[str, str]:
    return template_hashes(job(body), good_spec(job(body)))


def test_the_same_pods_have_the_same_hash_in_all_releases_of_a_scheme() -> None:
    """If this fails, what is hashed has changed since the last release: raise SCHEME, and write the new hashes here."""
    odd = container(image="i\u0378\U0001fae9") | {"metadata": {"annotations": {"share": "0.1"}}}
    assert (SCHEME, hashes(with_workers(template=odd))) == ("1-", {"PS": "1-a7b201b2", "Worker": "1-28ed2a0f"})


def test_what_pods_are_made_of_has_their_template_in_it_and_not_their_number_where_nobody_is_told_of_it() -> None:
    """One replica alone has no TF_CONFIG (B59), nor has one whose template brings its own."""

    def of(count: int, given: dict[str, Any]) -> dict[str, str]:
        return hashes(spec(Worker=replica(count, template=given)))

    own = container(env=[{"name": "TF_CONFIG", "value": "{}"}])
    assert of(2, own) == of(5, own)
    assert of(2, container(image="i")) not in (of(5, container(image="i")), of(2, container(image="j")))


def under(policy: str, exit_code: int) -> Pod:
    """Worker 0, made under this policy and ended with this code; its kubelet does not restart it."""
    own = PodRestartPolicy.NEVER if policy == RestartPolicy.EXIT_CODE else policy
    return changed(pod("Worker", 0, "Failed", exit_code, policy=own), metadata__labels__restart_policy=policy)


def judged(policy: str, found: Pod) -> tuple[list[str], str]:
    """Return the pods that are deleted and the last True condition, for a job whose worker has this policy by now."""
    tfjob = job(spec(policy, Worker=1))
    decided = decide(tfjob, found)
    return names(decided)["delete pods"], true_of(after(tfjob, decided))[-1]


AGAIN: tuple[list[str], str] = ["mnist-worker-0"], "Restarting"
LOST: tuple[list[str], str] = [], "Failed"


@pytest.mark.parametrize("today", RestartPolicy)
@pytest.mark.parametrize(
    ("made", "code", "outcome"),
    [
        (RestartPolicy.EXIT_CODE, 137, AGAIN),
        (RestartPolicy.EXIT_CODE, 1, LOST),
        (RestartPolicy.NEVER, 137, LOST),
        (RestartPolicy.NEVER, 1, LOST),
        (RestartPolicy.ON_FAILURE, 1, AGAIN),
        (RestartPolicy.ALWAYS, 1, AGAIN),
    ],
)
def test_a_pod_is_judged_by_the_policy_that_it_was_made_with(made: str, code: int, outcome: Any, today: str) -> None:
    """U15: an edit of the policy applies to the pods that are made after it."""
    assert judged(today, under(made, code)) == outcome


@pytest.mark.parametrize(("today", "outcome"), [(RestartPolicy.EXIT_CODE, AGAIN), (RestartPolicy.NEVER, LOST)])
@pytest.mark.parametrize("word", ["", "Sometimes"])
def test_a_pod_that_bears_no_word_of_its_policy_is_judged_by_the_specification(
    word: str, today: str, outcome: Any
) -> None:
    """U15: such as those of older operators; in the restart policy of a pod Never and ExitCode look the same."""
    older = changed(under(RestartPolicy.NEVER, 137), metadata__labels__restart_policy=word)
    assert judged(today, older) == outcome
