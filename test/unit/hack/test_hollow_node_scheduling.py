"""The hollow node as scheduler: the node of a pod, and the words for one that fits nowhere, beside those of kube-scheduler."""

from functools import partial
from typing import Any, Final

import msgspec
import pytest

from fakes.recordings import texts
from fakes.unschedulable import ALL, ANYWHERE, CASES, Case, affinity, asks
from hack.hollow_node.node import NodeSpec, parse_nodes
from hack.hollow_node.objects import HollowNodeObject, HollowPod
from hack.hollow_node.scheduling import Scheduler, Unschedulable
from hack.kubernetes_versions import NEWEST, TESTED, Kubernetes
from hack.objects import an_object, decoding
from tfjob_operator.api.core import PODS

REPORTED: Final = {
    "a taint, and too little cpu": "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new"
    " claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    "a taint, a label": "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node"
    " affinity/selector. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful"
    " for scheduling.",
    "gpus, one node full": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption:"
    " 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for"
    " scheduling.",
}
"""What schedulers since 1.34 said, as published by their users."""
_TWO: Final = "{name: small, count: 2, allocatable: {cpu: 4}}"
_REPORTED_CASES: Final = {
    "a taint, and too little cpu": Case(
        f"[{_TWO}, {{name: a, taints: [{{key: b, effect: NoSchedule}}]}}]", asks(cpu="5")
    ),
    "a taint, a label": Case(
        f"[{_TWO}, {{name: a, taints: [{{key: b, effect: NoSchedule}}]}}]", {**asks(), "nodeSelector": {"a": "b"}}
    ),
    "gpus, one node full": Case(
        f"[{_TWO}, {{name: gpu, allocatable: {{nvidia.com/gpu: 2}}}}]",
        asks(nvidia_gpu="1"),
        running={"gpu": asks(nvidia_gpu="2")},
    ),
}


def node(spec: NodeSpec, *, cordoned: bool = False) -> HollowNodeObject:
    """A Node as the API server has it."""
    taints = msgspec.to_builtins(spec.taints)
    content = {
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": spec.all_labels},
        "spec": {"taints": taints, "unschedulable": cordoned},
        "status": {"allocatable": spec.room},
    }
    return msgspec.convert(content, HollowNodeObject)


pod = decoding(partial(an_object, PODS, namespace="ns"), HollowPod)


def scheduler(case: Case, kubernetes: Kubernetes = NEWEST) -> Scheduler:
    """A scheduler that knows the nodes of a case and what runs on them."""
    nodes = parse_nodes(case.nodes) if case.nodes != "[]" else ()
    made = Scheduler((spec.name for spec in nodes), kubernetes)
    for spec in nodes:
        made.observe_node(node(spec, cordoned=spec.name in case.cordoned))
    for place, running in case.running.items():
        made.observe(pod(f"on-{place}", {**running, "nodeName": place}))
    return made


@pytest.mark.parametrize("version", TESTED)
def test_a_pod_that_fits_nowhere_gets_the_words_of_the_recorded_scheduler(version: str) -> None:
    """Each reason alone, and several on one node and on different nodes."""
    minor = Kubernetes.parse(version)
    said = {name: scheduler(case, minor).place(pod("p", case.pod)) for name, case in CASES.items()}
    assert said == {name: Unschedulable(text) for name, text in texts(version, "scheduling").items()}


@pytest.mark.parametrize("name", REPORTED)
def test_the_newest_scheduler_also_explains_preemption(name: str) -> None:
    """It names neither taints nor their values."""
    case = _REPORTED_CASES[name]
    assert scheduler(case).place(pod("p", case.pod)) == Unschedulable(REPORTED[name])


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        (asks(), {"small"}),
        ({**asks(nvidia_gpu="2"), "tolerations": [{"key": "gpu", "value": "true"}]}, {"gpu-0", "gpu-1"}),
        ({**asks(), **ANYWHERE, "nodeSelector": {"pool": "spot"}}, {"spot"}),
        ({**affinity("Exists"), **ANYWHERE}, {"gpu-0", "gpu-1", "spot"}),
        (affinity("DoesNotExist"), {"small"}),
        ({**affinity("Lt", "4", key="generation"), **ANYWHERE}, {"spot"}),
        ({**affinity("NotIn", "gpu"), "tolerations": [{"key": "gpu", "operator": "Exists"}]}, {"small"}),
    ],
)
def test_a_pod_gets_a_node_that_it_tolerates_and_selects(spec: dict[str, Any], places: set[str]) -> None:
    """Of those, one with the fewest pods."""
    assert scheduler(Case(ALL, {})).place(pod("p", spec)) in places


def test_pods_are_spread_and_give_their_room_back_when_they_end() -> None:
    """A pod counts from its binding on, before the cache shows it there; and at most once."""
    made, spec = scheduler(Case("[{name: a, count: 2, allocatable: {cpu: 2}}]", {})), asks(cpu="2")
    first, second = made.place(pod("first", spec)), made.place(pod("second", spec))
    assert {first, second} == {"a-0", "a-1"}
    assert not made.observe(pod("first", {**spec, "nodeName": first}, {"phase": "Running"}))
    assert isinstance(made.place(pod("third", spec)), Unschedulable)
    assert made.observe(pod("first", {**spec, "nodeName": first}, {"phase": "Succeeded"}))
    assert not made.observe(pod("first", {**spec, "nodeName": first}, {"phase": "Succeeded"}))
    assert made.place(pod("third", spec)) == first
    assert made.forget("ns/second")
    assert made.place(pod("fourth", spec)) == second


def test_a_node_about_which_nothing_is_said_has_whatever_pods_request() -> None:
    """Also what no node is likely to have; its taints are heeded all the same."""
    made = Scheduler(["a"], NEWEST, roomy=True)
    made.observe_node(node(NodeSpec("a")))
    assert made.place(pod("p", asks(cpu="1000000", nvidia_gpu="1"))) == "a"


def test_a_node_that_is_gone_takes_no_pods() -> None:
    """And one that comes again does, with those that still count there."""
    made, spec = scheduler(Case("[{name: a, allocatable: {cpu: 2}}]", {})), asks(cpu="2")
    assert made.place(pod("first", spec)) == "a"
    made.forget_node("a")
    assert made.place(pod("second", spec)) == Unschedulable("no nodes available to schedule pods")
    made.observe_node(node(NodeSpec("a", allocatable={"cpu": "3"})))
    assert isinstance(made.place(pod("second", spec)), Unschedulable)
    assert made.place(pod("second", asks(cpu="1"))) == "a"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[", "expected"),
        ("[]", "no node"),
        ("[{count: 2}]", "name"),
        ("[{name: a, colour: red}]", "colour"),
        ("[{name: a}, {name: a}]", "two nodes have the name a"),
        ("[{name: a, allocatable: {cpu: much}}]", "node a: no quantity: cpu"),
        ("[{name: a, taints: [{key: b}]}]", "effect"),
    ],
)
def test_a_wrong_file_of_nodes_is_refused(text: str, wrong: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=wrong):
        parse_nodes(text)
