"""Nodes as the controller sees them: when they are watched, whom they wake, and what is done to pods of lost ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import KEY, STATUS, ControllerHarness
from fakes.jobs import at, job, pod, spec
from fakes.objects import changed
from fakes.source import running
from tfjob_operator.api.client.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob_operator.api.core import Node, NodeCondition, NodeMeta, NodeSpec, NodeStatus, Taint
from tfjob_operator.api.v1.types import AvoidedNode, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.nodes import RETRY_S, state_of
from tfjob_operator.controller.tfjob.plan.placement import Nodes, NodeShape, NodeState

LIST = ("list", "nodes", "")
GET_NODE, GET_POD = ("get", "nodes", "n0"), ("get", "pods", "mnist-worker-0")
MARK, DELETE = ("patch status", "pods", "mnist-worker-0"), ("delete", "pods", "mnist-worker-0")
FORBIDDEN = status_error(ForbiddenError, 403, "nodes is forbidden")
SICK: dict[str, Any] = {"action": "FailJob", "onNodes": {"conditions": [{"type": "Sick"}]}}
WITH_RULE: dict[str, Any] = {"failurePolicy": {"rules": [SICK]}}
SPARES = "kueue.x-k8s.io/safe-to-forcefully-delete"
WITH_TIMEOUT = {"nodeLostTimeoutSeconds": 60}


def node(name: str = "n0", *taints: Taint, **conditions: str) -> Node:
    """A node whose conditions have had these statuses since two minutes before EPOCH."""
    found = tuple(
        NodeCondition(type=kind, status=status, last_transition_time=at(-120)) for kind, status in conditions.items()
    )
    return Node(metadata=NodeMeta(name=name), spec=NodeSpec(taints=taints), status=NodeStatus(conditions=found))


def given(workers: int = 1, **policy: Any) -> dict[str, Any]:
    """A specification of one worker or more."""
    return spec("ExitCode", Worker=workers, runPolicy=policy)


def on(found: Pod, name: str = "n0") -> Pod:
    return changed(found, node=name)


@asynccontextmanager
async def watching(workers: int = 1, **policy: Any) -> AsyncIterator[ControllerHarness]:
    """A job with this policy and a running pod of each worker on n0; its nodes are watched from its first sync on."""
    world = ControllerHarness(job(given(workers, **policy)))
    for index in range(workers):
        world.put_children("Worker", index)
        world.pods.put(on(pod("Worker", index)))
    async with running(world.node_cache.run()):
        await asyncio.sleep(0)
        await world.sync_and_observe()
        await asyncio.sleep(0)
        world.taken()
        await world.idle()
        yield world


@pytest.mark.parametrize(
    ("policy", "reads"), [({}, False), ({"nodeAvoidance": {}}, False), (WITH_RULE, True), (WITH_TIMEOUT, True)], ids=str
)
async def test_nodes_are_watched_from_when_a_job_needs_them(policy: dict[str, Any], *, reads: bool) -> None:
    """A cluster without such jobs needs no rights over nodes."""
    async with watching(**policy) as world:
        assert (world.nodes.has_run, LIST in world.client.bodies) == (reads, reads)


async def test_a_job_that_has_finished_needs_no_nodes() -> None:
    """Unless one of its pods is being deleted, which a lost node may keep from ending."""
    world = ControllerHarness(job(given(**WITH_TIMEOUT)))
    world.pods.put(on(pod("Worker", 0, "Succeeded", 0)))
    asking = []

    def asked(*_: object) -> Nodes:
        asking.append(KEY)
        return Nodes({})

    world.node_cache.of = asked  # type: ignore[assignment,method-assign]
    await world.sync_and_observe()
    assert world.conditions[-1] == "Succeeded"
    asking.clear()
    await world.sync()
    assert not asking
    world.pods.put(on(pod("Worker", 0, "Succeeded", 0, terminating=True)))
    await world.sync()
    assert asking


async def test_a_change_of_a_node_wakes_the_jobs_that_need_it_and_have_pods_there() -> None:
    """A heartbeat changes no state, and wakes none."""
    async with watching(**WITH_RULE) as world:
        world.nodes.put(node(Ready="True"))
        await world.idle()
        beat = NodeCondition(type="Ready", status="True", last_transition_time=at(-120))
        world.nodes.put(changed(node(Ready="True"), status__conditions=(beat,), metadata__resource_version="2"))
        world.nodes.put(node("n1", Sick="True"))
        assert len(world.queue) == 0
        stranger = changed(pod("Worker", 0, job_name="other"), node="n2")
        world.pods.put(stranger)
        await world.idle()
        world.nodes.put(node("n2", Sick="True"))
        assert len(world.queue) == 0
        for changed_node in (node(Sick="True"), node("n0", Taint(key="a"), Sick="True")):
            world.nodes.put(changed_node)
            assert await world.queue.get() == KEY
            world.queue.done(KEY)
        await asyncio.sleep(30)
        await world.sync()
        await asyncio.sleep(30)
        await world.sync()
        assert world.conditions[-1] == "Failed"


async def test_a_change_of_a_node_wakes_no_job_that_is_gone_and_no_job_of_another_kind() -> None:
    async with watching(**WITH_RULE) as world:
        other = changed(pod("Worker", 0, uid="other"), metadata__name="other", node="n1")
        (owner,) = other.metadata.owner_references or ()
        world.pods.put(changed(other, metadata__owner_references=(changed(owner, kind="OtherJob"),)))
        await world.idle()
        world.nodes.put(node("n1", Sick="True"))
        assert len(world.queue) == 0
        world.node_cache.forget(KEY)
        world.nodes.put(node(Sick="True"))
        assert len(world.queue) == 0


async def test_what_was_known_of_nodes_ends_with_them_and_with_the_right_to_read_them() -> None:
    async with watching(**WITH_RULE) as world:
        world.nodes.put(node(Sick="True"))
        pods = (on(pod("Worker", 0)),)
        assert set(world.node_cache.of(KEY, pods).states) == {"n0"}
        world.nodes.on_error(FORBIDDEN)
        assert world.node_cache.of(KEY, pods).states == {}
        world.nodes.list_again("1")
        world.nodes.remove(node(Sick="True"))
        assert world.node_cache.of(KEY, pods).states == {}


async def test_all_nodes_are_known_from_the_end_of_the_first_list_on() -> None:
    """Before, a node could be taken for the last one that pods can use."""
    async with watching(**WITH_RULE) as world:
        other = node("n1", Taint(key="a"), Ready="True")
        labelled = changed(other, metadata__labels={"zone": "a"}, status__allocatable={"cpu": "4"})
        world.nodes.put(node(Ready="True"))
        world.nodes.put(labelled)
        assert world.node_cache.of(KEY, ()).cluster is None
        world.nodes.list_again("1")
        found = world.node_cache.of(KEY, (on(pod("Worker", 0)),))
        assert found.cluster is not None
        assert ([*found.states], [*found.cluster.states]) == (["n0"], ["n0", "n1"])
        assert found.cluster.shapes["n1"] == NodeShape({"zone": "a"}, {"cpu": "4"})
        world.nodes.put(changed(labelled, status__allocatable={"cpu": "2"}))
        assert found.cluster.shapes["n1"].allocatable == {"cpu": "2"}
        world.nodes.remove(labelled)
        assert found.cluster.states.keys() == found.cluster.shapes.keys() == {"n0"}
        world.nodes.on_error(FORBIDDEN)
        assert world.node_cache.of(KEY, ()).cluster is None


async def test_the_only_node_of_a_cluster_is_not_avoided_and_a_warning_says_so() -> None:
    async with watching(failurePolicy={"rules": [SICK | {"action": "RestartReplica"}]}) as world:
        world.nodes.put(node(Sick="True"))
        world.nodes.list_again("1")
        await world.sync_and_observe()
        await asyncio.sleep(30)
        await world.sync_and_observe()
        assert world.taken()[-1] == DELETE
        assert world.status["avoidedNodes"] == [{"name": "n0", "failures": 1}]
        assert [text for _, reason, text in world.recorder.events if reason == "NodesNotAvoided"] == [
            "Node n0 is not avoided: no other healthy node suits the pods of Worker"
        ]


async def test_without_the_right_to_read_nodes_the_job_is_told_once_and_it_is_tried_again() -> None:
    """Each half minute, without a request in between; once it is granted the job goes on with what nodes are like."""
    world = ControllerHarness(job(given(**WITH_RULE)))
    world.pods.put(on(pod("Worker", 0)))
    world.client.fail[LIST] = FORBIDDEN
    async with running(world.node_cache.run()):
        await world.idle()
        await world.sync()
        await asyncio.sleep(1)
        assert len(world.queue) == 1
        for _ in range(3):
            await world.sync_and_observe()
        ((_, _, text),) = [event for event in world.recorder.events if event[1] == "NodesUnavailable"]
        assert "nodes is forbidden" in text
        assert "manifests/addons/nodes" in text
        await asyncio.sleep(2 * RETRY_S - 2)
        assert world.client.actions.count(LIST) == 2
        del world.client.fail[LIST]
        await asyncio.sleep(RETRY_S)
        assert world.nodes.has_run
        world.nodes.list_again("1")
        world.nodes.put(node(Sick="True"))
        await world.sync()
        await asyncio.sleep(30)
        await world.sync()
        assert world.conditions[-1] == "Failed"


async def test_the_edit_that_explain_advises_recreates_a_pod_that_excludes_the_only_node() -> None:
    """`nodes-avoided` in cli/diagnosis/scheduling.py. Nothing else is changed, and nobody restarts the job."""
    policy = given(failurePolicy={"maxRestarts": 3, "rules": [SICK | {"action": "RestartReplica"}]})
    world = ControllerHarness(job(policy))
    create = ("create", "pods", "mnist-worker-0")
    world.put_children("Worker", 0)
    await world.sync_and_observe()
    avoids = cast("TFJob", world.jobs.indexer.get(KEY))
    avoids = changed(avoids, status__avoided_nodes=(AvoidedNode("n0", 1, at(3600)),))
    world.jobs.put(avoids)
    world.pods.put(pod("Worker", 0, "Pending", uid="waits"))
    await world.sync()
    assert DELETE not in world.taken()
    edit = job(policy | {"runPolicy": policy["runPolicy"] | {"nodeAvoidance": {"expirationSeconds": 1}}}).spec
    world.jobs.put(changed(avoids, spec=edit, metadata__generation=2))
    for _ in range(5):
        await world.sync()
        taken = world.taken()
        if STATUS in taken:
            world.observe_status()
        if DELETE in taken:
            break
        await asyncio.sleep(1)
    assert taken[-1] == DELETE
    assert len(world.status["avoidedNodes"]) == 1, "until the pod is gone"
    world.pods.remove(pod("Worker", 0, "Pending", uid="waits"))
    await world.sync_and_observe()
    assert "avoidedNodes" not in world.status
    assert "affinity" not in world.client.bodies[create]["spec"]


async def test_a_right_that_is_taken_away_later_is_missed_too() -> None:
    async with watching(**WITH_RULE) as world:
        world.nodes.on_error(status_error(NotFoundError, 404))
        assert len(world.queue) == 0
        world.nodes.on_error(FORBIDDEN)
        assert await world.queue.get() == KEY
        world.queue.done(KEY)
        await world.sync()
        assert "NodesUnavailable" in world.recorder.reasons
        world.nodes.on_error(FORBIDDEN)  # as each further try does
        assert len(world.queue) == 0
        world.nodes.list_again("1")
        assert world.node_cache.of(KEY, ()).failure == ""


def test_a_condition_or_taint_has_stood_since_it_was_first_seen_whatever_time_it_gives() -> None:
    """The time is by another machine's clock; another time means that it began again. Only taints of NoExecute have one."""
    untimed, timed = Taint(key="a"), Taint(key="b", time_added=at(-3600))

    def later(
        before: NodeState | None, at_s: float, *taints: Taint, since_s: float = 3600
    ) -> tuple[NodeState, list[float]]:
        ready = NodeCondition(type="Ready", status="False", last_transition_time=at(since_s))
        found = state_of(changed(node("n0", *taints), status__conditions=(ready,)), before, at_s)
        seen = (*found.conditions.values(), *found.taints.values())
        return found, [each.seen_s for each in seen]

    first, seen = later(None, 10, untimed, timed)
    assert seen == [10, 10, 10]
    assert later(first, 20, untimed, timed) == (first, seen)
    away, seen = later(first, 30, timed, since_s=7200)
    assert seen == [30, 10]
    assert later(away, 40, untimed, timed, since_s=7200)[1] == [30, 40, 10]


async def lost(world: ControllerHarness, **annotations: str) -> None:
    """Let n0 be not ready for as long as the job allows, in the cache and on the API server."""
    world.nodes.put(node(Ready="Unknown"))
    world.client.objects["nodes", "n0"] = msgspec.to_builtins(node(Ready="Unknown"))
    world.client.objects["pods", "mnist-worker-0"] = {
        "metadata": {"name": "mnist-worker-0", "annotations": annotations}
    }
    await asyncio.sleep(60)


async def test_a_pod_on_a_lost_node_is_marked_as_failed_and_only_then_deleted() -> None:
    """The job takes note of the failure in between. Both writes are refused for another version or another pod."""
    async with watching(**WITH_TIMEOUT) as world:
        await lost(world)
        assert (await world.sync_and_take())[-3:] == [GET_NODE, GET_POD, MARK]
        body = world.client.bodies[MARK]
        assert body["metadata"] == {"uid": "uid-mnist-worker-0", "resourceVersion": "5"}
        (condition,) = body["status"].pop("conditions")
        assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionTarget", "True", "NodeLost")
        assert (body["status"]["phase"], body["status"]["reason"]) == ("Failed", "NodeLost")
        assert [reason for reason in world.recorder.reasons if reason == "NodeLost"] == ["NodeLost"] * 2  # job and pod
        marked = on(pod("Worker", 0, "Failed", reason="NodeLost", terminating=True))
        world.pods.put(marked)
        assert (await world.sync_and_take())[-3:] == [GET_NODE, GET_POD, DELETE]
        assert world.client.bodies[DELETE] == {"uid": "uid-mnist-worker-0", "grace_s": 0}


async def test_pods_on_one_lost_node_are_marked_together_after_one_read_of_the_node() -> None:
    """A newer version of one of them, which is refused, does not hold up the others."""
    async with watching(3, **WITH_TIMEOUT) as world:
        await lost(world)
        for index in range(1, 3):
            name = f"mnist-worker-{index}"
            world.client.objects["pods", name] = {"metadata": {"name": name}}
        world.client.fail[MARK] = status_error(ConflictError, 409)
        await world.sync()
        taken = world.taken()
        assert taken.count(GET_NODE) == 1
        marked = [name for verb, _, name in taken if verb == "patch status" and name.startswith("mnist-")]
        assert marked == ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"]


@pytest.mark.parametrize("is_stale", ["the node is ready again", "the node is gone", "the pod may not be deleted"])
async def test_nothing_is_done_about_a_pod_if_the_api_server_says_otherwise(is_stale: str) -> None:
    """The cache of nodes lags, or an annotation forbids it, which the cache of pods does not have."""
    async with watching(**WITH_TIMEOUT) as world:
        await lost(world, **{SPARES: "false" if "may not" in is_stale else "true"})
        if "ready" in is_stale:
            world.client.objects["nodes", "n0"] = msgspec.to_builtins(node(Ready="True"))
        if "gone" in is_stale:
            world.client.fail[GET_NODE] = status_error(NotFoundError, 404)
        for _ in range(2):
            await world.sync()
        assert MARK not in world.taken()
        assert [text for _, reason, text in world.recorder.events if reason == "NodeLost"] == (
            [f'Pod mnist-worker-0 is kept although its node is lost: it has the annotation {SPARES}: "false"']
            if "may not" in is_stale
            else []
        )


@pytest.mark.parametrize(
    ("error", "told", "again"),
    [(status_error(ConflictError, 409), [], False), (FORBIDDEN, ["NodesUnavailable"], True)],
    ids=["a newer version", "no right"],
)
async def test_a_pod_that_may_not_be_marked_waits(error: ApiError, told: list[str], *, again: bool) -> None:
    """For its newer version, or for the right, which is tried again each half minute and missed in one Warning."""
    async with watching(**WITH_TIMEOUT) as world:
        await lost(world)
        await world.idle()
        world.client.fail[MARK] = error
        for _ in range(2):
            await world.sync()
        assert world.recorder.reasons == told
        await asyncio.sleep(RETRY_S + 1)
        assert (len(world.queue) > 0) is again
