"""Which pod stands for a replica, whose policy and template count for it, and how restarts are counted."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.controller import STATUS, ControllerHarness
from fakes.jobs import good_spec, job, names, pod, replica, service
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import ContainerStatus, PodRestartPolicy
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType, RestartPolicy
from tfjob_operator.api.v1.types import Begun, IndexRestarts, JobCondition, JobStatus, TFJob
from tfjob_operator.controller.jobs.children import ChildLabels, Pod, ReplicaKey
from tfjob_operator.controller.tfjob.build.children import PodBuilder
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.replicas import Outcome, Replica, key_of, observe, replicas_of
from tfjob_operator.controller.tfjob.plan.status import (
    SCHEME,
    account,
    in_place_restarts,
    made_of,
    merged,
    taken_over,
    with_memory_of,
)


def worker(uid: str, restarts: int = 0, index: int = 0) -> Replica:
    """A worker's pod that the kubelet has restarted so often."""
    return Replica(
        ReplicaKey.of("mnist", "Worker", index), pod("Worker", index, restarts=restarts, uid=uid), Outcome.ACTIVE
    )


def total(records: tuple[IndexRestarts, ...]) -> int:
    """What backoffLimit is compared with."""
    return sum(record.total for record in records)


def test_a_replica_that_was_never_restarted_has_no_record() -> None:
    """The status of a job of a thousand workers stays small."""
    assert account((), [worker("a"), worker("b", index=1)], ()) == ()


def test_all_containers_of_a_pod_count() -> None:
    """B37: init containers too, in whatever phase the pod is."""
    child = pod("Worker", 0, "Pending")
    status = msgspec.structs.replace(
        child.status,
        container_statuses=(
            ContainerStatus(name="tensorflow", restart_count=2),
            ContainerStatus(name="x", restart_count=1),
        ),
        init_container_statuses=(ContainerStatus(name="init", restart_count=4),),
    )
    assert in_place_restarts(msgspec.structs.replace(child, status=status)) == 7


def test_restarts_in_place_and_by_a_new_pod_add_up() -> None:
    """Twice in place, then made again, then once in place: four."""
    records = account((), [worker("a", 2)], ())
    records = account(records, [worker("a", 2)], {"a"})
    assert total(records) == 3
    records = account(records, [worker("b", 1)], ())
    assert total(records) == 4


def test_a_pod_that_fails_is_counted_once_however_often_it_is_seen() -> None:
    """Killed between the status write and the delete, the operator finds the same pod again, and its record."""
    records = account((), [worker("a")], {"a"})
    for _ in range(3):
        records = account(records, [worker("a")], {"a"})
    assert total(records) == 1
    assert total(account(records, [], ())) == 1


def test_a_pod_that_was_taken_away_carries_its_restarts_over_and_adds_none() -> None:
    """A disruption is not counted; what its containers did before is."""
    records = account((), [worker("a", 2)], ())
    assert total(account(records, [worker("b")], ())) == 2


def test_a_record_goes_over_to_another_pod_only_when_that_has_something_to_count() -> None:
    """B36: so an old view, which still has the recorded pod, changes nothing; `taken_over` lists the records to confirm."""
    first = account((), [worker("a")], {"a"})
    assert account(first, [worker("b")], ()) == first
    second = account(first, [worker("b")], {"b"})
    assert taken_over(first, second) == list(second)
    assert taken_over((), first) == taken_over(first, first) == []


def test_the_record_with_more_restarts_wins() -> None:
    """For each replica by itself."""
    one = account((), [worker("a", 2), worker("b", 1, index=1)], ())
    other = account((), [worker("a", 1), worker("b", 3, index=1), worker("c", 1, index=2)], ())
    assert (
        [record.total for record in merged(one, other)] == [2, 3, 1] == [record.total for record in merged(other, one)]
    )


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()), max_size=12))
def test_counts_never_fall_and_looking_twice_changes_nothing(history: list[tuple[str, int, bool]]) -> None:
    """B36: durable and idempotent, for any sequence of pods."""
    records: tuple[IndexRestarts, ...] = ()
    for uid, restarts, failed in history:
        before = total(records)
        seen, own_doing = [worker(uid, restarts)], ({uid} if failed else set())
        records = account(records, seen, own_doing)
        assert total(records) >= before
        assert account(records, seen, own_doing) == records


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=8), st.data())
def test_an_older_account_adds_nothing_to_a_newer_one(history: list[tuple[int, bool]], data: st.DataObject) -> None:
    """B36: what one process remembers may be older than what another has written, or the other way round."""
    records: tuple[IndexRestarts, ...] = ()
    accounts = [records]
    for number, (restarts, failed) in enumerate(history):
        uid = f"pod-{number}"
        records = account(records, [worker(uid, restarts)], {uid} if failed else set())
        accounts.append(records)
    older = data.draw(st.sampled_from(accounts))
    assert total(merged(older, accounts[-1])) == total(accounts[-1])
    assert total(merged(accounts[-1], older)) == total(accounts[-1])


def test_two_accounts_of_one_pod_make_a_whole() -> None:
    """One has seen its containers restart, the other has seen it fail."""
    restarted, failed = account((), [worker("a", 1)], ()), account((), [worker("a")], {"a"})
    assert total(merged(restarted, failed)) == 2
    assert merged(restarted, failed) == merged(failed, restarted)


ONE = {"tfReplicaSpecs": {"Worker": replica(1, RestartPolicy.EXIT_CODE)}}
TRUE = pod("Worker", 0)


def copy(name: str = "copy", *, age_s: float = 0.0, of: Pod = TRUE, **meta: Any) -> Pod:
    """Another pod of worker 0, which the job controls as well."""
    changes = {"name": name, "uid": f"uid-{name}", "creation_timestamp": EPOCH - timedelta(seconds=age_s)} | meta
    return msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, **changes))


def chosen(*pods: Pod) -> list[str]:
    """The names of the pods that stand for replicas."""
    return [each.pod.metadata.name for each in replicas_of("mnist", pods)[0]]


def test_the_pod_with_the_replicas_name_stands_for_it_before_others() -> None:
    """D7, U7: however young it is, and also while it is on its way out: its name is taken until it is gone."""
    going = pod("Worker", 0, terminating=True)
    for true in (TRUE, going):
        for pods in permutations((true, copy("a", age_s=50), copy("z", age_s=60))):
            assert chosen(*pods) == ["mnist-worker-0"]


def test_without_one_of_its_name_the_oldest_is_a_replicas_pod() -> None:
    """D7: so nothing that comes later takes the place of what runs; the UID decides between two of one second."""
    for pods in permutations((copy("b", age_s=5), copy("a", age_s=3), copy("c", age_s=5))):
        assert chosen(*pods) == ["b"]


def test_a_second_pod_goes_also_from_a_job_that_is_cut_down() -> None:
    """U7: together with the pods beyond the size to which it is cut down."""
    seen = observe(job(ONE), [TRUE, copy(), pod("Worker", 1)], []).limited_to({"Worker": 1})
    assert {each.pod.metadata.name for each in seen.surplus} == {"copy", "mnist-worker-1"}


def test_a_second_pod_is_neither_counted_nor_judged_and_goes() -> None:
    """U7: whatever has become of it; nothing is made in its stead."""
    for second in (copy(), copy(of=pod("Worker", 0, "Failed", 1)), copy(of=pod("Worker", 0, "Succeeded", 0))):
        tfjob = job(ONE)
        decided = plan(tfjob, good_spec(tfjob), [second, TRUE], [service("Worker", 0)], EPOCH)
        assert names(decided) == {
            "create pods": [],
            "create services": [],
            "delete pods": ["copy"],
            "delete services": [],
        }
        assert [deletion.event for deletion in decided.delete_pods] == [None]
        assert decided.status is not None
        counts = decided.status.replica_statuses[c.WORKER]
        assert (counts.active, counts.succeeded, counts.failed) == (1, 0, 0)
        assert [each.type for each in decided.status.conditions] == [ConditionType.CREATED, ConditionType.RUNNING]


def test_two_pods_of_a_replica_invent_no_restarts() -> None:
    """D7: the record stays with the replica's pod, whoever else fails beside it, and whichever comes first."""
    true, second = pod("Worker", 0, restarts=2), copy(of=pod("Worker", 0, "Failed", 137, restarts=3))
    counted = (IndexRestarts(type=c.WORKER, index=0, pod="uid-mnist-worker-0", in_place=2),)
    for pods in permutations((true, second)):
        tfjob = job(ONE | {"runPolicy": {"backoffLimit": 4}})
        for _ in range(5):
            status = plan(tfjob, good_spec(tfjob), pods, [], EPOCH).status or tfjob.status
            assert status.restarts == counted
            tfjob = msgspec.structs.replace(tfjob, status=status)


@pytest.mark.parametrize("suspend", [True, False])
def test_second_pods_go_with_all_others(suspend: bool) -> None:
    """D7: when a job is suspended, and when it has ended; after the end they are kept or deleted by the same rules."""
    tfjob = job(ONE | {"runPolicy": {"suspend": suspend}})
    if not suspend:
        done = JobStatus(
            conditions=(JobCondition(type=ConditionType.SUCCEEDED, status="True"),),
            completion_time=EPOCH,
            observed_generation=1,
        )
        tfjob = msgspec.structs.replace(tfjob, status=done)
    decided = plan(tfjob, good_spec(tfjob), [copy(), TRUE], [], EPOCH)
    assert sorted(names(decided)["delete pods"]) == ["copy", "mnist-worker-0"]


async def test_restarts_of_a_pod_under_another_name_are_counted() -> None:
    """D7: the pod is read by its own name; otherwise every sync would fail with a stale view."""
    world = ControllerHarness()
    adopted = copy(of=pod("Worker", 0, "Failed", 137))
    counted = (IndexRestarts(type=c.WORKER, index=0, pod="uid-before", replaced=True),)
    world.jobs.put(job(ONE, status=JobStatus(restarts=counted)))
    world.pods.put(adopted)
    world.client.objects["pods", "copy"] = {"metadata": {"name": "copy", "uid": "uid-copy"}}
    await world.sync()
    (record,) = world.client.bodies[STATUS][1]["value"]["restarts"]
    assert (record["pod"], record["carried"], record["replaced"]) == ("uid-copy", 1, True)


@pytest.mark.parametrize(
    "labels",
    [
        {"replica_index": "abc"},
        {"replica_index": "1", "prefixed_replica_index": "1"},
        {"replica_type": "driver", "prefixed_replica_type": ""},
        {"job_name": "debug"},
        None,
    ],
    ids=["unreadable", "another's", "another type", "another job", "none"],
)
def test_whatever_its_labels_say_a_child_is_what_its_name_says(labels: dict[str, str] | None) -> None:
    """U9: for the garbage collector, too, it is the job's; it is counted and judged as before."""
    changed = None if labels is None else msgspec.structs.replace(TRUE.metadata.labels or ChildLabels(), **labels)
    edited = msgspec.structs.replace(TRUE, metadata=msgspec.structs.replace(TRUE.metadata, labels=changed))
    assert key_of("mnist", edited.metadata) == ReplicaKey.of("mnist", c.WORKER, 0)
    tfjob = job(ONE)
    decided = plan(tfjob, good_spec(tfjob), [edited], [service("Worker", 0)], EPOCH)
    assert not any(names(decided).values())
    assert decided.status is not None
    assert decided.status.replica_statuses[c.WORKER].active == 1


NO_NAMES = (
    "mnist-worker-00",
    "mnist-worker-",
    "mnist-worker-0-x",
    "mnist-Worker-0",
    "mnist-driver-0",
    "worker-0",
    "mnist-0",
)


@pytest.mark.parametrize("name", NO_NAMES)
def test_only_the_very_name_of_a_replica_names_it(name: str) -> None:
    """U9: of all others only their labels say what they are."""
    unlabelled = copy(name, labels=None)
    assert key_of("mnist", unlabelled.metadata) is None
    assert key_of("mnist", copy(name).metadata) == ReplicaKey.of("mnist", c.WORKER, 0)


def test_a_pod_that_nothing_says_what_it_is_goes() -> None:
    """U9: it is the job's child but stands for no replica, so its end would count for nothing."""
    lost = copy(labels=msgspec.structs.replace(TRUE.metadata.labels or ChildLabels(), job_name="debug"))
    tfjob = job(ONE)
    decided = plan(tfjob, good_spec(tfjob), [lost, TRUE], [service("Worker", 0)], EPOCH)
    assert names(decided)["delete pods"] == ["copy"]


SPEC: dict[str, Any] = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2)}}
ELASTIC = SPEC | {"enableDynamicWorker": True}
PODS = (pod("PS", 0), pod("Worker", 0), pod("Worker", 1))


def decide(tfjob: TFJob, *pods: Pod) -> Plan:
    """The plan of the moment."""
    return plan(tfjob, good_spec(tfjob), pods, [], EPOCH)


def after(tfjob: TFJob, decided: Plan) -> TFJob:
    """The job with the status that a plan has written."""
    return msgspec.structs.replace(tfjob, status=decided.status or tfjob.status)


def running(spec: dict[str, Any]) -> TFJob:
    """A job whose pods all run."""
    begun = after(job(spec), decide(job(spec)))
    return after(begun, decide(begun, *PODS))


def edited(tfjob: TFJob, spec: dict[str, Any]) -> TFJob:
    """The job with another specification."""
    meta = msgspec.structs.replace(tfjob.metadata, generation=tfjob.metadata.generation + 1)
    return msgspec.structs.replace(tfjob, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))


def told(decided: Plan) -> list[str]:
    """The types of which it is said that their pods stay."""
    said = [event.message for event in decided.events if event.reason == "PodTemplateNotApplied"]
    return [kind for message in said for kind in message.partition(":")[0].split(", ")]


def with_workers(**fields: Any) -> dict[str, Any]:
    """The specification with these fields of its workers."""
    replicas = SPEC["tfReplicaSpecs"]
    return {"tfReplicaSpecs": replicas | {"Worker": replicas["Worker"] | fields}}


def image(name: str) -> dict[str, Any]:
    """A template with this image."""
    return {"spec": {"containers": [{"name": "tensorflow", "image": name}]}}


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        (with_workers(template=image("other")), ["Worker"]),
        (with_workers(restartPolicy="ExitCode"), ["Worker"]),
        (with_workers(replicas=3), ["PS", "Worker"]),
        (SPEC | {"enableDynamicWorker": True}, ["PS", "Worker"]),
        ({"tfReplicaSpecs": SPEC["tfReplicaSpecs"] | {"Chief": replica(1)}}, ["PS", "Worker"]),
        (SPEC | {"runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "All"}}, []),
        (SPEC | {"successPolicy": "AllWorkers"}, []),
    ],
)
def test_an_edit_says_which_pods_it_does_not_reach(spec: dict[str, Any], types: list[str]) -> None:
    """U18: those whose template, restart policy or TF_CONFIG would be another one now."""
    assert told(decide(edited(running(SPEC), spec), *PODS)) == types


def test_it_is_said_once() -> None:
    """Not again when the same specification is planned for again."""
    changed = edited(running(SPEC), with_workers(template=image("other")))
    decided = decide(changed, *PODS)
    assert told(decided) == ["Worker"]
    assert told(decide(after(changed, decided), *PODS)) == []


def test_an_elastic_job_is_scaled_without_a_word() -> None:
    """B60: its workers and parameter servers are told of nobody who comes or goes."""
    larger = {**ELASTIC, "tfReplicaSpecs": with_workers(replicas=4)["tfReplicaSpecs"]}
    assert told(decide(edited(running(ELASTIC), larger), *PODS)) == []


def test_the_chief_of_an_elastic_job_that_is_scaled_stays_and_that_is_no_warning() -> None:
    """B60, U18: its TF_CONFIG names all workers, those of the time at which it was made."""
    led = {**ELASTIC, "tfReplicaSpecs": SPEC["tfReplicaSpecs"] | {"Chief": replica(1)}}
    larger = {**led, "tfReplicaSpecs": led["tfReplicaSpecs"] | {"Worker": replica(4)}}
    chief = pod("Chief", 0)
    begun = after(job(led), decide(job(led)))
    decided = decide(edited(after(begun, decide(begun, chief, *PODS)), larger), chief, *PODS)
    assert told(decided) == ["Chief"]
    assert [event.type for event in decided.events if event.reason == "PodTemplateNotApplied"] == ["Normal"]


def test_of_pods_that_do_not_run_on_nothing_is_said() -> None:
    """They have ended, are on their way out, or are made again anyway."""
    policy = with_workers(restartPolicy="ExitCode", template=image("other"))
    gone = (pod("PS", 0), pod("Worker", 0, "Failed", 137), pod("Worker", 1, terminating=True))
    assert told(decide(edited(running(with_workers(restartPolicy="ExitCode")), policy), *gone)) == []


def test_of_a_suspended_job_all_pods_are_made_anew() -> None:
    """So there is nothing to say, neither when it is suspended nor when it is resumed."""
    policy = {"runPolicy": {"suspend": True}}
    suspended = edited(running(SPEC), with_workers(template=image("other")) | policy)
    decided = decide(suspended, *PODS)
    assert told(decided) == []
    assert told(decide(edited(after(suspended, decided), with_workers(template=image("other"))))) == []


def test_what_an_older_operator_did_not_record_is_not_guessed() -> None:
    """It is recorded with the next status, for the next edit."""
    tfjob = running(SPEC)
    old = msgspec.structs.replace(tfjob, status=msgspec.structs.replace(tfjob.status, begun=Begun(1, {"PS": 1})))
    changed = edited(old, with_workers(template=image("other")))
    decided = decide(changed, *PODS)
    assert told(decided) == []
    assert told(decide(edited(after(changed, decided), SPEC), *PODS)) == ["Worker"]


def test_what_another_release_recorded_by_another_scheme_is_not_compared() -> None:
    """An edit of something else would seem to have changed all pods. It is noted anew at once, by our scheme."""
    tfjob = running(SPEC)
    begun = Begun(1, {"PS": 1, "Worker": 2}, made_of={"PS": "2-00000000", "Worker": "2-00000000"})
    foreign = msgspec.structs.replace(tfjob, status=msgspec.structs.replace(tfjob.status, begun=begun))
    changed = edited(foreign, SPEC | {"runPolicy": {"backoffLimit": 3}})
    assert told(decide(changed, *PODS)) == []
    noted = after(foreign, decide(foreign, *PODS))
    assert noted.status.begun == tfjob.status.begun
    assert told(decide(edited(noted, with_workers(template=image("other"))), *PODS)) == ["Worker"]


def test_the_same_pods_have_the_same_hash_in_all_releases_of_a_scheme() -> None:
    """If this fails, what is hashed has changed since the last release: raise SCHEME, and write the new hashes here."""
    odd = image("i\u0378\U0001fae9") | {"metadata": {"annotations": {"share": "0.1"}}}
    tfjob = job({"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2, template=odd)}})
    noted = made_of(tfjob, good_spec(tfjob))
    assert (SCHEME, noted) == ("1-", {"PS": "1-a7b201b2", "Worker": "1-28ed2a0f"})


def test_it_is_said_though_the_status_that_says_so_waits() -> None:
    """A status that is not written yet is remembered, but for this: events go with the write, so nobody was told."""
    old = JobStatus(begun=Begun(1, {"Worker": 1}, made_of={"Worker": "a"}), observed_generation=1)
    new = JobStatus(begun=Begun(1, {"Worker": 1}, made_of={"Worker": "b"}), observed_generation=2)
    merged = with_memory_of(old, new).begun
    assert merged is not None
    assert merged.made_of == {"Worker": "a"}


def test_what_pods_are_made_of_has_their_template_in_it_and_not_their_number_where_nobody_is_told_of_it() -> None:
    """One replica alone has no TF_CONFIG (B59), nor has one whose template brings its own."""
    own = {
        "spec": {"containers": [{"name": "tensorflow", "image": "i", "env": [{"name": "TF_CONFIG", "value": "{}"}]}]}
    }

    def of(count: int, template: dict[str, Any]) -> dict[str, str]:
        tfjob = job({"tfReplicaSpecs": {"Worker": replica(count, template=template)}})
        return made_of(tfjob, good_spec(tfjob))

    assert of(2, own) == of(5, own)
    assert of(2, image("i")) != of(5, image("i"))
    assert of(2, image("i")) != of(2, image("j"))


def under(policy: str, exit_code: int, **fields: Any) -> Pod:
    """Worker 0, made under this policy and ended with this code; its kubelet does not restart it."""
    in_pod = PodRestartPolicy.NEVER if policy == RestartPolicy.EXIT_CODE else policy
    made = pod("Worker", 0, "Failed", exit_code, policy=in_pod, **fields)
    labels = msgspec.structs.replace(made.metadata.labels or ChildLabels(), restart_policy=policy)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def decided(policy: str, *pods: Pod) -> tuple[list[str], list[str]]:
    """Return the pods that are deleted and the True conditions, for a job whose worker has this policy by now."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, policy)}})
    found = plan(tfjob, good_spec(tfjob), pods, [], EPOCH)
    assert found.status is not None
    return names(found)["delete pods"], [each.type for each in found.status.conditions if each.status == "True"]


AGAIN: tuple[list[str], list[str]] = ["mnist-worker-0"], [ConditionType.CREATED, ConditionType.RESTARTING]
LOST: tuple[list[str], list[str]] = [], [ConditionType.CREATED, ConditionType.FAILED]


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
    assert decided(today, under(made, code)) == outcome


@pytest.mark.parametrize(("today", "outcome"), [(RestartPolicy.EXIT_CODE, AGAIN), (RestartPolicy.NEVER, LOST)])
@pytest.mark.parametrize("word", ["", "Sometimes"])
def test_a_pod_that_bears_no_word_of_its_policy_is_judged_by_the_specification(
    word: str, today: str, outcome: Any
) -> None:
    """U15: such as those of older operators; in the restart policy of a pod Never and ExitCode look the same."""
    older = under(RestartPolicy.NEVER, 137)
    labels = msgspec.structs.replace(older.metadata.labels or ChildLabels(), restart_policy=word)
    older = msgspec.structs.replace(older, metadata=msgspec.structs.replace(older.metadata, labels=labels))
    assert decided(today, older) == outcome


@pytest.mark.parametrize("policy", RestartPolicy)
def test_a_pod_is_made_with_the_policy_of_its_replica_on_it(policy: str) -> None:
    """U15: otherwise Never and ExitCode could not be told apart later."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, policy)}})
    (slot,) = plan(tfjob, good_spec(tfjob), [], [], EPOCH).create_pods
    labels = PodBuilder(tfjob, good_spec(tfjob)).build(slot)["metadata"]["labels"]
    assert labels["training.kubeflow.org/restart-policy"] == policy
