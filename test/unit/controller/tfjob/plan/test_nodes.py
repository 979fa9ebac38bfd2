"""Sick and lost nodes: which pods they concern, which nodes a job avoids, and what its pods look like then."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from fakes.jobs import at, decide, disrupted, good_spec, job, pod, replica, spec, started, synced, true_of, workers
from fakes.objects import after, changed
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.api.v1.types import AvoidedNode, ConditionPattern, JobAnnotations, TaintPattern, TFJob
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.tfjob.build.builder import PodBuilder, avoiding, gang_scheduler
from tfjob_operator.controller.tfjob.plan.nodes import MAX_AVOIDED
from tfjob_operator.controller.tfjob.plan.placement import Cluster, Nodes, NodeShape, NodeState, Since
from tfjob_operator.controller.tfjob.plan.status import merged_status
from tfjob_operator.controller.tfjob.plan.types import Defaults, Gang, LostPod, Plan

GPU = {"onNodes": {"conditions": [{"type": "GpuUnhealthy"}]}}
TAINTED = {"onNodes": {"taints": [{"key": "sick"}]}}


def node(conditions: Mapping[str, datetime] | None = None, /, **taints: Any) -> NodeState:
    """A node with these conditions, `Type=Status`, and taints without value, since then."""
    found = {
        ConditionPattern(*name.split("=")): Since(seconds(since), since) for name, since in (conditions or {}).items()
    }
    return NodeState(
        found, {TaintPattern(key, "", "NoSchedule"): Since(seconds(since)) for key, since in taints.items()}
    )


def seconds(since: datetime) -> float:
    return (since - at(0)).total_seconds()


def nodes(**states: NodeState) -> Nodes:
    """The nodes by name."""
    return Nodes(states)


SICK = node({"GpuUnhealthy=True": at(10)})
"""Since 50 s, when the plan is made."""


def on(name: str, found: Pod, **more: Any) -> Pod:
    """The pod on this node."""
    return changed(found, node=name, **more)


failed = partial(pod, "Worker", phase="Failed", exit_code=42, ended_s=30)
"""A worker that has failed."""


def lost(index: int, **more: Any) -> Pod:
    """A worker that was marked as failed since its node is lost."""
    return pod("Worker", index, "Failed", reason="NodeLost", **more)


def policy(*rules: dict[str, Any], **run_policy: Any) -> dict[str, Any]:
    """A specification with these rules, or without a failure policy."""
    given = {"failurePolicy": {"rules": [*rules], "maxRestarts": 3}} if rules else {}
    return spec("ExitCode", Worker=3, runPolicy=given | run_policy)


def begun(given: dict[str, Any]) -> TFJob:
    """A job whose pods run."""
    return started(given, *workers(), after_s=5)


def deleted(found: Plan) -> list[str]:
    return [each.pod.metadata.name for each in found.delete_pods]


def avoided(found: TFJob) -> dict[str, tuple[int, bool]]:
    """By name how often the job failed on a node, and whether it avoids it."""
    return {each.name: (each.failures, each.expiration_time is not None) for each in found.status.avoided_nodes}


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("FailJob", ("Failed", 0, [])),
        ("RestartAll", ("Restarting", 1, ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"])),
        ("RestartAllAndIgnoreMaxRestarts", ("Restarting", 1, ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"])),
        ("RestartReplica", ("Restarting", 0, ["mnist-worker-1"])),
    ],
)
def test_a_rule_about_nodes_applies_its_action_to_a_pod_that_still_runs(
    action: str, expected: tuple[str, int, list[str]]
) -> None:
    """No program has failed, so nothing counts to backoffLimit; the cause is named where a failure's would be."""
    before = begun(policy({"action": action, "name": "gpu"} | GPU))
    found = decide(before, *workers(), nodes=nodes(n1=SICK))
    done = after(before, found)
    assert (true_of(done)[-1], done.status.attempt, deleted(found)) == expected
    assert sum(record.total for record in done.status.restarts) == 0
    words = [
        *(event.message for event in found.events),
        *(each.event.message for each in found.delete_pods if each.event),
    ]
    assert any("its node n1 has condition GpuUnhealthy=True" in each for each in words)
    if done.status.attempt:
        assert done.status.attempt_history[-1].node_name == "n1"
        assert "GpuUnhealthy" in done.status.attempt_history[-1].message


@pytest.mark.parametrize(
    ("rule", "state", "is_hit"),
    [
        (GPU, node({"GpuUnhealthy=True": at(30)}), True),
        (GPU, node({"GpuUnhealthy=True": at(31)}), False),
        (GPU, node({"GpuUnhealthy=False": at(0)}), False),
        (GPU, node(GpuUnhealthy=at(0)), False),
        ({"onNodes": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, node({"Ready=Unknown": at(0)}), True),
        (TAINTED, node(sick=at(0)), True),
        (TAINTED, node(sicker=at(0)), False),
        ({"onNodes": {"taints": [{"key": "sick", "effect": "NoExecute"}]}}, node(sick=at(0)), False),
        ({"onNodes": {"taints": [{"key": "sick", "effect": "NoSchedule"}]}}, node(sick=at(0)), True),
        ({"onNodes": {"taints": [{"key": "sick", "value": "very"}]}}, node(sick=at(0)), False),
        ({"onNodes": GPU["onNodes"] | TAINTED["onNodes"]}, node({"GpuUnhealthy=True": at(55)}, sick=at(0)), True),
        (TAINTED | {"targetReplicaTypes": ["PS"]}, node(sick=at(0)), False),
    ],
    ids=[
        "a condition that has stood for 30 s",
        "one that has not",
        "another status",
        "a taint of the same name",
        "a status that is given",
        "a taint of any value and effect",
        "another taint",
        "another effect",
        "an effect that is given",
        "another value",
        "one entry is enough",
        "another replica type",
    ],
)
def test_any_entry_of_a_rule_is_enough_after_standing_for_half_a_minute(
    rule: dict[str, Any], state: NodeState, *, is_hit: bool
) -> None:
    given = policy({"action": "RestartReplica"} | rule)
    given["tfReplicaSpecs"]["PS"] = replica(0)
    assert deleted(decide(begun(given), *workers(), nodes=nodes(n1=state))) == (["mnist-worker-1"] if is_hit else [])


def test_a_hit_counts_from_the_start_of_the_pod_if_that_is_later_and_time_alone_brings_the_next_plan() -> None:
    before = begun(policy({"action": "RestartReplica"} | GPU))
    late = on("n1", pod("Worker", 1, uid="1"), started=at(40))
    found = decide(before, *workers(but={1: late}), nodes=nodes(n1=SICK))
    assert (deleted(found), found.requeue_after_s) == ([], 10)
    assert deleted(decide(before, *workers(but={1: late}), nodes=nodes(n1=SICK), at_s=70)) == ["mnist-worker-1"]


@pytest.mark.parametrize(
    ("rules", "by"),
    [
        (({"action": "FailJob", "name": "code"}, {"action": "RestartAll", "name": "node"} | GPU), "code"),
        (({"action": "RestartAll", "name": "node"} | GPU, {"action": "FailJob", "name": "code"}), "node"),
    ],
    ids=["a failure first", "a node first"],
)
def test_rules_about_nodes_take_their_turn_among_the_others(rules: tuple[dict[str, Any], ...], by: str) -> None:
    before = begun(policy(*rules))
    found = decide(before, *workers(but={0: failed(0, uid="0")}), nodes=nodes(n1=SICK))
    assert any(f"rule {by}" in event.message for event in found.events)


def test_a_pod_about_which_an_earlier_rule_has_decided_is_left_alone_by_rules_about_nodes() -> None:
    rules = (
        {"action": "RestartReplica", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "FailJob"} | GPU,
    )
    found = synced(begun(policy(*rules)), *workers(but={1: on("n1", failed(1))}), nodes=nodes(n1=SICK))
    assert (true_of(found)[-1], avoided(found)) == ("Restarting", {"n1": (1, True)})


def test_of_several_hits_of_a_rule_the_earliest_is_the_cause() -> None:
    before = begun(policy({"action": "RestartAll"} | GPU))
    sick = nodes(n1=SICK, n2=node({"GpuUnhealthy=True": at(9)}))
    assert synced(before, *workers(), nodes=sick).status.attempt_history[-1].node_name == "n2"


def test_the_event_of_a_pod_that_several_rules_hit_has_the_cause_of_the_first_rule() -> None:
    before = begun(policy({"action": "RestartReplica"} | GPU, {"action": "RestartReplica"} | TAINTED))
    sick = node({"GpuUnhealthy=True": at(10)}, sick=at(5))
    (deletion,) = decide(before, *workers(), nodes=nodes(n1=sick)).delete_pods
    assert deletion.event is not None
    assert deletion.event.message == "Pod mnist-worker-1: its node n1 has condition GpuUnhealthy=True"


def test_a_pod_that_avoids_an_expired_node_is_deleted_once_when_the_whole_job_restarts() -> None:
    given = policy({"action": "RestartAll"}, nodeAvoidance={"expirationSeconds": 100})
    held = (AvoidedNode("n5", 1, at(100)),)
    before = changed(begun(given), status__avoided_nodes=held)
    waits = changed(pod("Worker", 1, "Pending", uid="new"), metadata__creation_timestamp=at(61))
    found = decide(before, *workers(but={0: on("n0", failed(0)), 1: waits}), at_s=160)
    assert deleted(found) == ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"]


def test_a_pod_that_is_terminating_or_done_is_not_hit() -> None:
    before = begun(policy({"action": "RestartReplica"} | GPU))
    for each in (pod("Worker", 1, terminating=True), pod("Worker", 1, "Succeeded", 0)):
        found = decide(before, *workers(but={1: on("n1", each)}), nodes=nodes(n1=SICK))
        assert (deleted(found), avoided(after(before, found))) == ([], {})


def cluster(states: Mapping[str, NodeState], **shapes: NodeShape) -> Nodes:
    """Nodes of a cluster that has no others. Those of the job's pods are n0, n1 and n2."""
    found = {name: shapes.get(name, NodeShape({}, {})) for name in states}
    return Nodes(
        {name: state for name, state in states.items() if name.startswith("n")}, cluster=Cluster(states, found)
    )


HEALTHY = node({"Ready=True": at(-999)})
READY = {"onNodes": {"conditions": [{"type": "Ready"}]}}
ANY: Any = {"action": "RestartReplica"}


@pytest.mark.parametrize(
    ("others", "template", "is_avoided"),
    [
        ({}, {}, False),
        ({"other": HEALTHY}, {}, True),
        ({"other": SICK}, {}, False),
        ({"other": node({"Ready=Unknown": at(0)})}, {}, False),
        ({"other": node(dedicated=at(0))}, {}, False),
        ({"other": node(dedicated=at(0))}, {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}, True),
        ({"avoided": HEALTHY}, {}, False),
        ({"other": HEALTHY}, {"nodeSelector": {"pool": "gpu"}}, False),
        ({"other": HEALTHY, "gpu": HEALTHY}, {"nodeSelector": {"pool": "gpu"}}, True),
        ({"other": HEALTHY}, {"nodeName": "n1"}, False),
    ],
    ids=[
        "no other node",
        "a healthy one",
        "one that is sick too",
        "one that is not ready",
        "one with a taint",
        "one with a taint that the pods tolerate",
        "one that is avoided already",
        "one that the pods do not select",
        "one that they select",
        "one that they cannot use",
    ],
)
def test_a_hit_avoids_no_node_without_which_the_pods_can_use_none(
    others: dict[str, NodeState], template: dict[str, Any], *, is_avoided: bool
) -> None:
    """The rule's action applies all the same; a Warning names the node. The failure is counted in both cases."""
    given = policy(ANY | GPU)
    given["tfReplicaSpecs"]["Worker"]["template"]["spec"] |= template
    before = changed(begun(given), status__avoided_nodes=(AvoidedNode("avoided", 1, at(9999)),))
    gpu = {name: NodeShape({"pool": "gpu"}, {}) for name in ("n1", "gpu")}
    pods = [on("n1", pod("Worker", index, uid=f"{index}")) for index in range(3)]
    found = decide(before, *pods, nodes=cluster({"n1": SICK, **others}, **gpu))
    done = after(before, found)
    assert avoided(done)["n1"] == (3, is_avoided)
    warnings = [event.message for event in found.events if event.reason == "NodesNotAvoided"]
    assert warnings == (
        [] if is_avoided else ["Node n1 is not avoided: no other healthy node suits the pods of Worker"]
    )
    assert len(deleted(found)) == 3
    assert not decide(done, *pods, nodes=cluster({"n1": SICK, **others}, **gpu)).events, "once"


def test_a_rule_that_matches_all_nodes_avoids_none() -> None:
    """Such as Ready, which is True on healthy nodes, or a taint that all nodes have at once."""
    every = {f"n{index}": node({"Ready=True": at(0)}, sick=at(0)) for index in range(9)}
    for rule in (READY, TAINTED):
        found = synced(begun(policy(ANY | rule)), *workers(), nodes=cluster(every))
        assert avoided(found) == {f"n{index}": (1, False) for index in range(3)}


@pytest.mark.parametrize(("failures", "expected"), [(1, (1, True)), (2, (1, False))])
def test_of_the_last_nodes_that_suit_one_stays_whatever_fails_there(failures: int, expected: tuple[int, bool]) -> None:
    """Also if the program fails. Nodes for other replica types do not count."""
    given = policy(ANY | GPU, nodeAvoidance={})
    given["tfReplicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"] = {"pool": "gpu"}
    given["tfReplicaSpecs"]["PS"] = replica(1)
    gpu = {name: NodeShape({"pool": "gpu"}, {}) for name in ("n0", "n1")}
    there = workers(2, but={index: on(f"n{index}", lost(index)) for index in range(failures)})
    known = cluster({f"n{index}": HEALTHY for index in range(9)}, **gpu)
    found = synced(begun(given), *there, nodes=known)
    assert avoided(found)[f"n{failures - 1}"] == expected
    ps = synced(begun(given), on("n5", pod("PS", 0, "Failed", reason="NodeLost")), *workers(2), nodes=known)
    assert avoided(ps) == {"n5": (1, True)}, "other nodes suit a parameter server"


def test_a_sick_node_is_avoided_for_an_hour_though_the_job_asks_for_no_avoidance() -> None:
    """Both pods on it are counted, each once, also if the operator is killed after the write."""
    before = begun(policy({"action": "RestartReplica"} | GPU))
    pods = workers(but={2: on("n1", pod("Worker", 2, uid="2"))})
    first = synced(before, *pods, nodes=nodes(n1=SICK))
    assert first.status.avoided_nodes == (AvoidedNode("n1", 2, at(60 + 3600)),)
    again = decide(first, *pods, nodes=nodes(n1=SICK), at_s=61)
    assert deleted(again) == ["mnist-worker-1", "mnist-worker-2"]
    assert after(first, again).status.avoided_nodes == first.status.avoided_nodes
    gone = decide(first, *workers(1), at_s=61)
    assert gone.requeue_after_s == 3600 - 1
    assert avoided(synced(first, *workers(), at_s=3661)) == {}


@pytest.mark.parametrize(
    ("pods", "avoidance", "expected"),
    [
        ({1: lost(1)}, {}, {"n1": (1, True)}),
        ({1: lost(1)}, {"failureThreshold": 2}, {"n1": (1, False)}),
        ({1: failed(1, exit_code=137)}, {}, {"n1": (0, False)}),
        ({1: pod("Worker", 1, "Failed", 137, reason="Evicted")}, {}, {"n1": (1, True)}),
        ({1: pod("Worker", 1, "Failed", reason="Preempting")}, {}, {}),
        ({1: pod("Worker", 1, terminating=True)}, {}, {}),
        ({1: lost(1, terminating=True)}, {}, {"n1": (1, True)}),
        ({index: lost(index) for index in range(3)}, {}, {"n0": (1, True), "n1": (1, True), "n2": (1, False)}),
    ],
    ids=[
        "a lost node",
        "below the threshold",
        "the program's first failure",
        "an eviction by the kubelet",
        "a preemption",
        "a pod that a user deletes",
        "a lost node whose pod was terminating",
        "at most half of the nodes, rounded up",
    ],
)
def test_a_node_with_enough_failures_is_avoided(
    pods: dict[int, Pod], avoidance: dict[str, int], expected: dict[str, tuple[int, bool]]
) -> None:
    """Each failure is counted once: the plan for the same pods changes nothing any more."""
    before = begun(policy(nodeAvoidance=avoidance))
    there = workers(but={index: on(f"n{index}", each) for index, each in pods.items()})
    found = before
    for at_s in (60, 61, 62):
        found = synced(found, *there, at_s=at_s)
        assert avoided(found) == expected


def test_where_not_all_nodes_may_be_avoided_those_come_first_that_failed_most_often() -> None:
    held = (AvoidedNode("n0", 1), AvoidedNode("n1", 1), AvoidedNode("n2", 3))
    before = changed(begun(policy(nodeAvoidance={})), status__avoided_nodes=held)
    found = synced(before, *workers(but={2: on("n2", lost(2))}))
    assert avoided(found) == {"n0": (1, True), "n1": (1, False), "n2": (4, True)}


def test_the_nodes_of_surplus_pods_are_nodes_that_the_job_uses() -> None:
    """At most half of five, rounded up."""
    there = [on(f"n{index}", lost(index)) for index in range(3)] + [
        on(f"n{index}", pod("Worker", index)) for index in (3, 4)
    ]
    found = synced(begun(policy(nodeAvoidance={})), *there)
    assert avoided(found) == {f"n{index}": (1, True) for index in range(3)}


def test_a_restart_because_of_a_sick_node_is_not_delayed() -> None:
    """It is no failure of the program."""
    found = begun(policy({"action": "RestartAll"} | GPU))
    for attempt in range(2):
        there = workers(3, attempt)
        found = synced(found, *there, nodes=nodes(n1=SICK), at_s=60 + 120 * attempt)
        assert (found.status.attempt, found.status.next_restart_time) == (attempt + 1, None)
        found = synced(found, at_s=61 + 120 * attempt)


def test_the_program_has_to_fail_twice_on_a_node() -> None:
    found = begun(policy(nodeAvoidance={"expirationSeconds": 100}))
    for number, expected in enumerate([(0, False), (1, True), (2, True)]):
        found = synced(
            found, *workers(but={1: on("n1", failed(1, exit_code=137, uid=f"try-{number}"))}), at_s=60 + number
        )
        assert avoided(found) == {"n1": expected}
    assert found.status.avoided_nodes[0].expiration_time == at(162)


def test_a_pod_that_no_node_suits_is_created_again_when_its_node_is_not_avoided_any_more() -> None:
    """What a pod avoids is part of it: else it would wait for ever for a node that is healthy again."""
    found = synced(
        begun(policy(nodeAvoidance={"expirationSeconds": 100})), *workers(but={1: on("n1", lost(1))}), at_s=60
    )
    waits = pod("Worker", 1, "Pending", uid="new")
    waits = changed(waits, metadata__creation_timestamp=at(61))
    pods = workers(but={1: waits})
    assert decide(found, *pods, at_s=159).requeue_after_s == 1
    expired = decide(found, *pods, at_s=160)
    assert (deleted(expired), expired.create_pods, avoided(after(found, expired))) == (
        ["mnist-worker-1"],
        (),
        {"n1": (1, True)},
    )
    assert expired.requeue_after_s is None, "its deletion causes the next sync"
    others_too = decide(found, pods[0], waits, at_s=160)
    assert (deleted(others_too), others_too.create_pods) == (["mnist-worker-1"], ()), "also those of other workers wait"
    again = decide(after(found, expired), *pods[:1], *pods[2:], at_s=161)
    assert ([key.name for key in again.create_pods], after(found, again).status.avoided_nodes) == (
        ["mnist-worker-1"],
        (),
    )
    assert deleted(decide(found, *workers(but={1: on("n2", waits)}), at_s=162)) == [], "it has a node"
    assert deleted(decide(found, *pods, at_s=160, gang=Gang(gang_scheduler("volcano"), None))) == []


def edited(found: TFJob, run_policy: dict[str, Any], **more: Any) -> TFJob:
    """The job after an edit of its run policy."""
    return changed(found, spec=job(policy(**run_policy)).spec, **more)


def without_affinity(found: TFJob) -> bool:
    made = PodBuilder(found, good_spec(found)).build(ReplicaKey.of("mnist", "Worker", 1))
    return "affinity" not in made["spec"]


WAITS = changed(pod("Worker", 1, "Pending", uid="new"), metadata__creation_timestamp=at(90))
"""A worker that finds no node; by the clock of the API server, which is ahead."""
ON_CODE = {"action": "RestartAll", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("given", "edit"),
    [
        (policy(nodeAvoidance={"expirationSeconds": 86_400}), {}),
        (policy(GPU | {"action": "RestartReplica"}), {"failurePolicy": {"rules": [ON_CODE], "maxRestarts": 3}}),
        (policy(GPU | {"action": "RestartReplica"}, nodeAvoidance={}), {}),
    ],
    ids=["nodeAvoidance", "onNodes", "both"],
)
def test_a_job_that_asks_for_no_avoidance_any_more_avoids_no_node(given: dict[str, Any], edit: dict[str, Any]) -> None:
    """A pod that waits is recreated, since it excludes the node; only then is the node forgotten. Others continue."""
    found = synced(begun(given), *workers(but={1: on("n1", lost(1))}), nodes=nodes(n1=SICK), at_s=60)
    assert (avoided(found), without_affinity(found)) == ({"n1": (1, True)}, False)
    found = edited(found, edit)
    pods = workers(but={1: WAITS})
    lifted = decide(found, *pods, at_s=70)
    assert (deleted(lifted), lifted.create_pods) == (["mnist-worker-1"], ())
    found = after(found, lifted)
    again = decide(found, *pods, at_s=71)
    assert (deleted(again), again.create_pods, avoided(after(found, again))) == (
        ["mnist-worker-1"],
        (),
        {"n1": (1, True)},
    )
    found = after(found, again)
    created = decide(found, *pods[:1], *pods[2:], at_s=72)
    assert [key.name for key in created.create_pods] == ["mnist-worker-1"]
    assert (avoided(after(found, created)), without_affinity(after(found, created))) == ({}, True)


def test_an_edit_forgets_nodes_at_once_if_no_pod_excludes_them() -> None:
    """Also nodes with too few failures. If pods were created just before, they may: it waits until they are in the cache."""
    held = (AvoidedNode("n1", 1, at(1000)), AvoidedNode("n2", 1))
    found = edited(changed(begun(policy(nodeAvoidance={})), status__avoided_nodes=held), {})
    assert avoided(synced(found, *workers())) == {}
    key = ReplicaKey.of("mnist", "Worker", 1)
    assert avoided(synced(found, *workers(1), expected=[key])) == {"n1": (1, True)}


@pytest.mark.parametrize(
    ("edit", "until"),
    [
        ({"nodeAvoidance": {"expirationSeconds": 10}}, 70),
        ({"nodeAvoidance": {"expirationSeconds": 600}}, 500),
        ({"failurePolicy": {"rules": [GPU | {"action": "FailJob"}]}}, 500),
    ],
    ids=["a shorter time, from the edit", "a longer time", "only a rule, so an hour"],
)
def test_an_edit_shortens_the_time_for_which_a_node_is_avoided_and_does_not_extend_it(
    edit: dict[str, Any], until: int
) -> None:
    found = changed(begun(policy(nodeAvoidance={})), status__avoided_nodes=(AvoidedNode("n1", 1, at(500)),))
    found = edited(found, edit)
    for at_s in (60, 65):
        found = synced(found, *workers(), at_s=at_s)
        assert found.status.avoided_nodes == (AvoidedNode("n1", 1, at(until)),)


@pytest.mark.parametrize("failure", [None, failed(2)], ids=["a request", "a request and a rule at the same time"])
def test_a_requested_restart_uses_all_nodes_again(failure: Pod | None) -> None:
    """For example after the repair of a node. A status that is not written yet does not bring the list back."""
    given = policy(ON_CODE, nodeAvoidance={"expirationSeconds": 86_400})
    before = changed(begun(given), status__avoided_nodes=(AvoidedNode("n1", 1, at(10_000)), AvoidedNode("n2", 1)))
    there = workers(3, 0, but={1: WAITS} | ({2: on("n2", failure)} if failure else {}))
    requested = changed(before, metadata__annotations=JobAnnotations("now"))
    found = synced(requested, *there)
    assert (found.status.attempt, avoided(found), without_affinity(found)) == (1, {}, True)
    for one, other in ((before, found), (found, before)):
        assert avoided(changed(found, status=merged_status(one.status, other.status))) == {}
    by_rule = synced(before, *workers(3, 0, but={2: on("n2", failed(2))}))
    assert (by_rule.status.attempt, avoided(by_rule)) == (1, {"n1": (1, True), "n2": (2, True)})


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ({0: failed(0, exit_code=1), 1: failed(1)}, {"n1": (0, False)}),
        ({0: lost(0), 1: failed(1)}, {"n0": (1, True), "n1": (0, False)}),
    ],
    ids=["that of the others may be its consequence", "a lost node is to blame in any case"],
)
def test_a_restart_of_the_whole_job_counts_the_failure_that_is_its_cause(
    pods: dict[int, Pod], expected: dict[str, tuple[int, bool]]
) -> None:
    """Once: from the same write on the pods are those of an earlier attempt."""
    on_42 = {"onExitCodes": {"operator": "In", "values": [42]}}
    before = begun(policy({"action": "RestartAll"} | on_42, nodeAvoidance={}))
    there = workers(3, 0, but={index: on(f"n{index}", each) for index, each in pods.items()})
    first = synced(before, *there)
    assert (first.status.attempt, avoided(first)) == (1, expected)
    assert avoided(synced(first, *there, at_s=61)) == expected


def test_a_failure_that_a_success_outweighs_is_not_counted_again_and_again() -> None:
    """The success waits for another worker that still runs."""
    given = policy({"action": "RestartAll"}, nodeAvoidance={}, completionGracePeriodSeconds=600)
    done = on("n0", pod("Worker", 0, "Succeeded", 0, ended_s=50))
    found = begun(given)
    for at_s in (60, 61, 62):
        found = synced(found, *workers(but={0: done, 1: on("n1", failed(1))}), at_s=at_s)
        assert (found.status.attempt, avoided(found)) == (0, {})
    assert true_of(found)[-1] == "Running"


def test_the_status_remembers_a_limited_number_of_nodes_and_first_those_that_are_avoided() -> None:
    held = tuple(AvoidedNode(f"a{number}", 1, at(1000 + number)) for number in range(MAX_AVOIDED - 1))
    before = begun(policy(nodeAvoidance={"failureThreshold": 5}))
    before = changed(before, status__avoided_nodes=(AvoidedNode("old", 4), *held))
    found = synced(before, *workers(but={1: on("n1", lost(1)), 2: on("n2", lost(2))}))
    assert list(avoided(found)) == ["old", *(each.name for each in held)]


@pytest.mark.parametrize(
    "earlier",
    [pod("Worker", 1), lost(1, uid="earlier"), pod("Worker", 1, restarts=2, uid="now")],
    ids=["nothing before", "a failure of an earlier pod", "restarts in place of the same pod"],
)
def test_a_status_whose_write_failed_counts_no_failure_twice_and_loses_none(earlier: Pod) -> None:
    before = synced(begun(policy(nodeAvoidance={})), *workers(but={1: on("n1", earlier)}), at_s=20)
    count = sum(failures for failures, _ in avoided(before).values()) + 1
    there = workers(but={1: on("n1", lost(1, uid="now"))})
    observed = synced(before, *there)
    for written in (before, observed):  # the write was lost, or its response was
        merged = changed(written, status=merged_status(written.status, observed.status))
        assert avoided(synced(merged, *there, at_s=61)) == {"n1": (count, True)}
        assert avoided(synced(merged, *workers(1), at_s=61)) == {"n1": (count, True)}


AVOIDED = (AvoidedNode("n1", 1, at(100)), AvoidedNode("n2", 1), AvoidedNode("n3", 1, at(100)))
NOT = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("n1", "n3")]
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        (None, [{"matchFields": NOT}]),
        ([], [{"matchFields": NOT}]),
        (
            [{"matchExpressions": [ZONE]}, {"matchFields": [ZONE]}],
            [{"matchExpressions": [ZONE], "matchFields": NOT}, {"matchFields": [ZONE, *NOT]}],
        ),
        ([{}, {"matchExpressions": [ZONE]}], [{}, {"matchExpressions": [ZONE], "matchFields": NOT}]),
    ],
    ids=["no affinity", "no terms", "each alternative", "a term that matches nothing still does"],
)
def test_a_pod_must_run_on_none_of_the_avoided_nodes(given: list[Any] | None, terms: list[Any]) -> None:
    """Whatever else its template requires stays; a requirement about a name has one value only."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    own: dict[str, Any] = {"podAffinity": {"x": 1}}
    if given is not None:
        own["nodeAffinity"] = {required: {"nodeSelectorTerms": given}, "preferred": []}
    made = avoiding(["n1", "n3"], own)
    assert made["nodeAffinity"][required]["nodeSelectorTerms"] == terms
    assert made["podAffinity"] == {"x": 1}
    assert ("preferred" in made["nodeAffinity"]) is (given is not None)


TOPOLOGY = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}}}


@pytest.mark.parametrize("by", ["nobody", "a gang scheduler", "a topology", "a gate"])
def test_nodes_are_avoided_unless_another_component_places_the_pods(by: str) -> None:
    """Then one Warning says that it is not."""
    given = policy(nodeAvoidance={})
    if by == "a topology":
        given["tfReplicaSpecs"]["Worker"]["template"] |= TOPOLOGY
    if by == "a gate":
        given["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    gang = gang_scheduler("volcano") if by == "a gang scheduler" else None
    found = changed(begun(given), status__avoided_nodes=AVOIDED)
    made = PodBuilder(found, good_spec(found), gang=gang).build(ReplicaKey.of("mnist", "Worker", 0))
    affinity = made["spec"].get("affinity")
    assert affinity == (avoiding(["n1", "n3"], {}) if by == "nobody" else None)
    plan = decide(found, *workers(), gang=Gang(gang) if gang is not None else None)
    reasons = [each.event.reason for each in plan.problems]
    assert reasons.count("NodesNotAvoided") == (by != "nobody")


def test_avoided_nodes_change_nothing_that_pods_are_compared_by() -> None:
    """No pod is called outdated because the next one avoids a node."""
    found = begun(policy(nodeAvoidance={}))
    avoiding = changed(found, status__avoided_nodes=AVOIDED)
    assert synced(avoiding, *workers()).status.begun == found.status.begun


LOST = node({"Ready=Unknown": at(-60)})
"""Since two minutes, when the plan is made."""


def terminating(found: Pod, grace_s: int = 30) -> Pod:
    return changed(found, metadata__deletion_timestamp=at(20), metadata__deletion_grace_period_seconds=grace_s)


@pytest.mark.parametrize(
    ("each", "state", "is_lost"),
    [
        (pod("Worker", 1), LOST, True),
        (pod("Worker", 1), node({"Ready=False": at(-60)}), True),
        (pod("Worker", 1), node({"Ready=True": at(-60)}), False),
        (pod("Worker", 1), node({"Ready=False": at(-59)}), False),
        (
            pod("Worker", 1),
            NodeState(LOST.conditions, node(**{"node.kubernetes.io/out-of-service": at(0)}).taints),
            False,
        ),
        (terminating(pod("Worker", 1)), LOST, True),
        (terminating(lost(1)), LOST, True),
        (terminating(lost(1), grace_s=0), LOST, False),
        (lost(1), LOST, False),
        (pod("Worker", 7), LOST, True),
    ],
    ids=[
        "a pod that runs on a node of unknown state",
        "on a node that is not ready",
        "on a node that is ready",
        "on one that is not lost yet",
        "on one that is out of service, which PodGC deals with",
        "a pod that terminates",
        "one that is marked as failed, and terminates",
        "one that is force-deleted already",
        "one that has failed, which is deleted as others are",
        "one that is too many",
    ],
)
def test_pods_of_a_lost_node_are_ended(each: Pod, state: NodeState, *, is_lost: bool) -> None:
    before = begun(policy(nodeLostTimeoutSeconds=120))
    there = [*workers(1), on("n1", each)]
    found = decide(before, *there, nodes=nodes(n1=state))
    assert found.lost_pods == ((LostPod(there[1], at(-60)),) if is_lost else ())
    assert found.acts or not is_lost


@pytest.mark.parametrize(
    ("policies", "default_s", "due"),
    [
        ({}, 120, True),
        ({}, 0, False),
        ({"nodeLostTimeoutSeconds": 0}, 120, False),
        ({"nodeLostTimeoutSeconds": 120}, 0, True),
    ],
)
def test_the_job_or_else_the_operator_says_after_how_long(
    policies: dict[str, int], default_s: int, *, due: bool
) -> None:
    before = begun(policy(**policies))
    how: dict[str, Any] = {"nodes": nodes(n1=LOST), "defaults": Defaults(node_lost_timeout_s=default_s)}
    assert bool(decide(before, *workers(), **how).lost_pods) is due
    later = decide(
        before, *workers(but={1: on("n1", changed(pod("Worker", 1), metadata__creation_timestamp=at(0)))}), **how
    )
    assert (later.lost_pods, later.requeue_after_s) == ((), 60 if due else None), "a pod that is bound there later"
    early = decide(before, *workers(), at_s=50, **how)
    assert (early.lost_pods, early.requeue_after_s) == ((), 10 if due else None)


def test_of_a_finished_job_only_pods_that_are_being_deleted_are_ended() -> None:
    finished = synced(begun(policy(nodeLostTimeoutSeconds=60)), *workers(but={0: pod("Worker", 0, "Succeeded", 0)}))
    found = decide(finished, *workers(but={2: on("n2", terminating(pod("Worker", 2)))}), nodes=nodes(n1=LOST, n2=LOST))
    assert [each.pod.metadata.name for each in found.lost_pods] == ["mnist-worker-2"]


def test_pods_of_a_lost_node_are_ended_while_the_end_of_a_queued_job_waits_for_them() -> None:
    """Also within their grace period: nothing else may end them."""
    queued = changed(begun(policy(nodeLostTimeoutSeconds=60)), metadata__labels={LABEL_QUEUE: "gpus"})
    pods = workers(but={0: pod("Worker", 0, "Succeeded", 0)})
    ending = synced(queued, *pods)
    assert conditions.is_ending(ending.status)
    found = decide(ending, *pods, nodes=nodes(n1=LOST))
    assert [each.pod.metadata.name for each in found.lost_pods] == ["mnist-worker-1"]
    assert found.status is None


def test_a_rule_about_lost_nodes_decides_before_the_pod_is_gone() -> None:
    """The pod is marked first. So the action is not lost, whenever the operator is killed."""
    before = begun(policy({"action": "RestartAll", "onFailureReasons": ["NodeLost"]}, nodeLostTimeoutSeconds=60))
    pods = workers(3, 0)
    first = decide(before, *pods, nodes=nodes(n1=LOST))
    assert (len(first.lost_pods), first.delete_pods, first.status) == (1, (), None)
    marked = disrupted(changed(pods[1], status__phase="Failed", status__reason="NodeLost"), "NodeLost")
    for each in (marked, terminating(marked)):
        found = decide(before, pods[0], each, pods[2], nodes=nodes(n1=LOST))
        assert after(before, found).status.attempt == 1
        assert len(found.lost_pods) == (each is not marked)


def test_a_job_whose_nodes_cannot_be_read_gets_a_warning_and_runs_on() -> None:
    before = begun(policy({"action": "FailJob"} | GPU, nodeLostTimeoutSeconds=60))
    found = decide(before, *workers(), nodes=Nodes({}, "nodes is forbidden"))
    assert [(each.event.reason, each.event.message) for each in found.problems] == [
        ("NodesUnavailable", "nodes is forbidden")
    ]
    assert found.status is None
