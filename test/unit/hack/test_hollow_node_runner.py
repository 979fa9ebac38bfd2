"""What the hollow node sends to the API server for a pod: how many requests, and their content."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from fakes.objects import changed
from hack.hollow_node.objects import (
    Condition,
    ContainerSpec,
    ContainerStatus,
    HollowMeta,
    HollowNodeObject,
    HollowNodeStatus,
    HollowPod,
    HollowSpec,
    HollowStatus,
)
from hack.hollow_node.runner import AddressPool, PodRunner, status_changes
from hack.hollow_node.scheduling import Scheduler
from hack.hollow_node.script import Timing
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from kit.virtual_loop import EPOCH, FakeClock
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.encoding import encode
from tfjob_operator.api.client.errors import NotFoundError, ServerError, Status, StatusError
from tfjob_operator.api.meta import ObjectMeta, OwnerReference, Resource

RUN = "hollow.tfjob.kubeflow.org/run"
RUNS_BEFORE = "hollow.tfjob.kubeflow.org/runs-before"


@dataclass
class FakeClient:
    """The three verbs of `RestClient` that the runner uses; records calls, or fails as configured."""

    calls: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    failure: StatusError | None = None

    async def create(self, resource: Resource, namespace: str, body: dict[str, object]) -> bytes:
        return self._call(f"create {resource.plural}", body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: dict[str, object], **how: object
    ) -> bytes:
        return self._call(f"patch {name} {how['subresource']}", body)

    async def delete(self, resource: Resource, namespace: str, name: str, **how: object) -> bytes:
        return self._call(f"delete {name}", how)

    def _call(self, what: str, body: dict[str, object]) -> bytes:
        if self.failure is not None:
            raise self.failure
        self.calls.append((what, msgspec.json.decode(encode(body))))
        return b"{}"

    def take(self) -> list[tuple[str, dict[str, object]]]:
        """The calls since the last time."""
        calls, self.calls = self.calls, []
        return calls


@dataclass
class Rig:
    """A runner with a fake clock and a fake client."""

    client: FakeClient = field(default_factory=FakeClient)
    clock: FakeClock = field(default_factory=FakeClock)
    pods: str = "10"

    def runner(self, kubernetes: Kubernetes = NEWEST) -> PodRunner:
        """A runner as after a start of the node."""
        scheduler = Scheduler(["hollow-node"], kubernetes)
        room = HollowNodeStatus(allocatable={"pods": self.pods})
        scheduler.observe_node(HollowNodeObject(metadata=ObjectMeta(name="hollow-node"), status=room))
        return PodRunner(cast("RestClient", self.client), scheduler, Timing(scale=1.0), self.clock, kubernetes)


OWNER = OwnerReference(kind="TFJob", name="j", uid="job", controller=True)
POD = HollowPod(
    metadata=HollowMeta(name="p", namespace="ns", uid="u1", annotations={RUN: "1s:0"}, owner_references=(OWNER,)),
    spec=HollowSpec(node_name="hollow-node", restart_policy="Never", containers=[ContainerSpec(name="main")]),
)
"""It runs for a second, on our node."""
UNBOUND = changed(POD, spec__node_name="")
FAILS_FIRST = changed(POD, metadata__annotations={RUN: "1s:137, 1s:0"})


async def test_a_pod_without_a_node_is_bound_to_ours() -> None:
    """The scheduler's part: one call, with the pod's UID."""
    rig = Rig()
    assert await rig.runner().sync(UNBOUND) is None
    assert rig.client.take() == [
        (
            "create bindings",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "uid": "u1"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "hollow-node"},
            },
        )
    ]


async def test_pods_of_other_nodes_and_other_schedulers_are_left_alone() -> None:
    """It does not interfere with real nodes or a gang scheduler."""
    rig = Rig()
    strange = UNBOUND
    strange = replace(strange, spec=replace(strange.spec, scheduler_name="volcano"))
    gated = UNBOUND
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=({"name": "kueue.x-k8s.io/admission"},)))
    for pod in (changed(POD, spec__node_name="other"), strange, gated):
        assert await rig.runner().sync(pod) is None
    assert rig.client.take() == []


async def test_a_pod_without_room_is_reported_once_and_tried_again() -> None:
    """By the condition and the event of kube-scheduler; again only if the message changes."""
    rig = Rig(pods="0")
    runner, waiting = rig.runner(), UNBOUND
    assert await runner.sync(waiting) is None
    (patched, condition), (created, event) = rig.client.take()
    message = (
        "0/1 nodes are available: 1 Too many pods. no new claims to deallocate, preemption: 0/1 nodes are available:"
        " 1 Preemption is not helpful for scheduling."
    )
    assert (patched, created) == ("patch p status", "create events")
    status = cast("dict[str, list[dict[str, object]]]", condition["status"])
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    assert told.items() <= status["conditions"][0].items()
    assert {"reason": "FailedScheduling", "message": message, "type": "Warning"}.items() <= event.items()
    assert runner.unscheduled == {"ns/p"}
    seen = replace(waiting, status=msgspec.convert(status, HollowStatus))
    await runner.sync(seen)
    assert rig.client.take() == []
    runner.forget("ns/p")
    assert not runner.unscheduled


async def test_a_binding_that_failed_leaves_no_pod_on_the_node() -> None:
    """Otherwise the node would seem full for ever."""
    rig = Rig(pods="1")
    runner = rig.runner()
    rig.client.failure = ServerError(Status(code=500))
    with pytest.raises(ServerError):
        await runner.sync(UNBOUND)
    rig.client.failure = None
    await runner.sync(UNBOUND)
    assert [what for what, _ in rig.client.take()] == ["create bindings"]


async def test_a_pod_costs_one_report_to_run_and_one_to_end() -> None:
    """With a thousand pods, API requests are the bottleneck."""
    rig = Rig()
    runner = rig.runner(OLDEST)
    assert await runner.sync(POD) == 1.0
    rig.clock.step(1.0)
    assert await runner.sync(POD) is None
    calls = rig.client.take()
    assert [what for what, _ in calls] == ["patch p status", "patch p status"]
    first, second = (cast("dict[str, dict[str, object]]", body) for _, body in calls)
    assert first["metadata"] == second["metadata"] == {"uid": "u1"}
    assert (first["status"]["phase"], second["status"]["phase"]) == ("Running", "Succeeded")
    assert "podIP" in first["status"]
    assert second["status"].keys() == {"phase", "conditions", "containerStatuses"}


async def test_since_containers_end_before_the_phase_the_end_costs_two_reports() -> None:
    """M1: kubernetes PR 108366; there are no more reports than these."""
    rig = Rig()
    runner = rig.runner()
    await runner.sync(POD)
    rig.clock.step(1.0)
    assert await runner.sync(POD) == 1.3
    rig.clock.step(1.3)
    assert await runner.sync(POD) is None
    calls = [cast("dict[str, dict[str, object]]", body)["status"] for _, body in rig.client.take()]
    assert [sorted(status) for status in calls[1:]] == [["conditions", "containerStatuses"], ["conditions", "phase"]]


async def test_a_stale_cache_makes_the_node_repeat_nothing() -> None:
    """The node remembers its own report until the cache shows it."""
    rig = Rig()
    runner = rig.runner()
    await runner.sync(POD)
    rig.client.take()
    assert await runner.sync(POD) == 1.0
    assert rig.client.take() == []


async def test_another_pod_of_the_same_name_begins_a_life_of_its_own() -> None:
    """A pod may be deleted and recreated between two looks; its predecessor's address is then free."""
    rig = Rig()
    runner = rig.runner()
    for uid in ("u1", "u2"):
        assert await runner.sync(changed(POD, metadata__uid=uid)) == 1.0
        ((_, body),) = rig.client.take()
        assert body["metadata"] == {"uid": uid}
        assert cast("dict[str, object]", body["status"])["phase"] == "Running"


async def test_a_report_that_failed_is_made_again() -> None:
    """The error goes to the worker; the node remembers only what the server has accepted."""
    rig = Rig()
    runner = rig.runner()
    rig.client.failure = ServerError(Status(code=500))
    with pytest.raises(ServerError):
        await runner.sync(POD)
    rig.client.failure = None
    assert await runner.sync(POD) == 1.0
    assert [what for what, _ in rig.client.take()] == ["patch p status"]


async def test_a_pod_that_is_gone_is_no_failure() -> None:
    """It was force-deleted, and the cache will show that."""
    rig = Rig()
    rig.client.failure = NotFoundError(Status(code=404))
    assert await rig.runner().sync(POD) is None


async def test_the_end_of_a_deleted_pod_is_reported_and_then_confirmed() -> None:
    """The kubelet's last request is a DELETE with grace 0, and the pod's UID as precondition."""
    rig = Rig()
    runner = rig.runner()
    await runner.sync(changed(POD, metadata__annotations={RUN: "forever"}))
    rig.client.take()
    pod = changed(POD, metadata__annotations={RUN: "forever"})
    gone = replace(pod.metadata, deletion_timestamp=EPOCH + timedelta(seconds=30), deletion_grace_period_seconds=30)
    await runner.sync(replace(pod, metadata=gone))
    calls = rig.client.take()
    assert [what for what, _ in calls] == ["patch p status", "delete p"]
    assert calls[1][1] == {"uid": "u1", "grace_s": 0}


async def binding_of_successor(rig: Rig, runner: PodRunner, pod: HollowPod) -> object:
    """The annotations that the runner gives the next pod of the same name and controller."""
    rig.client.take()
    owners = pod.metadata.owner_references
    await runner.sync(changed(FAILS_FIRST, metadata__uid="next", metadata__owner_references=owners, spec__node_name=""))
    ((_, body),) = rig.client.take()
    return cast("dict[str, dict[str, object]]", body)["metadata"].get("annotations")


async def test_a_list_of_runs_goes_on_in_a_pod_that_was_created_again() -> None:
    """A controller deletes the failed pod and recreates it: the new pod's run is the second of the list."""
    rig, pod = Rig(), FAILS_FIRST
    runner = rig.runner()
    await runner.sync(pod)
    assert await binding_of_successor(rig, runner, pod) == {RUNS_BEFORE: '{"main":1}'}
    meta = replace(pod.metadata, uid="u2", annotations={RUN: "1s:137, 1s:0", RUNS_BEFORE: '{"main":1}'})
    await runner.sync(replace(pod, metadata=meta))
    assert await binding_of_successor(rig, runner, pod) == {RUNS_BEFORE: '{"main":2}'}


async def test_a_restarted_node_reads_the_history_from_the_pod_that_is_there() -> None:
    """The pod itself has all that matters; restarts in place count too."""
    rig, pod = Rig(), FAILS_FIRST
    meta = replace(pod.metadata, annotations={RUN: "1s:137, 1s:0", RUNS_BEFORE: '{"main":3}'})
    status = HollowStatus(phase="Failed", container_statuses=[ContainerStatus(name="main", restart_count=2)])
    runner = rig.runner()
    await runner.sync(replace(pod, metadata=meta, status=status))
    assert await binding_of_successor(rig, runner, pod) == {RUNS_BEFORE: '{"main":6}'}


@pytest.mark.parametrize(("before", "now"), [(None, None), ((changed(OWNER, uid="other-job"),), (OWNER,))])
async def test_a_pod_of_nobody_or_of_another_owner_has_no_successor(
    before: tuple[OwnerReference] | None, now: tuple[OwnerReference] | None
) -> None:
    """A user who deletes a bare pod and recreates it wants its script from the start."""
    rig = Rig()
    runner = rig.runner()
    await runner.sync(changed(FAILS_FIRST, metadata__owner_references=before))
    successor = changed(FAILS_FIRST, metadata__owner_references=now)
    assert await binding_of_successor(rig, runner, successor) is None


def test_only_what_changed_is_sent_and_foreign_conditions_are_left_alone() -> None:
    """Others write conditions too; a stale copy of theirs must never be written back."""
    foreign, ready = Condition(type="Foreign", status="True"), Condition(type="Ready", status="False")
    old = HollowStatus(phase="Running", conditions=[foreign, ready], container_statuses=[], pod_ip="1.2.3.4")
    new = replace(old, phase="Failed", conditions=[foreign, replace(ready, reason="x")], container_statuses=None)
    assert status_changes(old, new) == {
        "phase": "Failed",
        "conditions": [Condition(type="Ready", status="False", reason="x")],
        "containerStatuses": None,
    }


def test_no_two_pods_share_an_address() -> None:
    """A freed address is used again only when all others have been."""
    pool = AddressPool("10.0.0.0/29")
    assert pool.lease("a", wanted="10.0.0.3") == "10.0.0.3"
    assert pool.lease("b", wanted="10.0.0.3") == "10.0.0.1"
    assert pool.lease("a") == "10.0.0.3"
    pool.release("b")
    assert [pool.lease(owner) for owner in "cdefg"] == ["10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.1"]
    with pytest.raises(LookupError):
        pool.lease("h")
