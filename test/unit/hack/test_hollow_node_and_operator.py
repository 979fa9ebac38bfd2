"""The operator's decisions on a hollow node of any version, step by step, for a job of one worker; old bugs are found.

The operator sees every state that the node reports; a few lines stand in for the API server. Time passes only as scripted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace
from pytest_mock import MockerFixture

from fakes import old_judgements
from fakes.jobs import good_spec, job
from fakes.virtual_loop import EPOCH
from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal
from hack.hollow_node.objects import TERMINAL, HollowPod
from hack.hollow_node.script import PREFIX, Timing, parse_script
from hack.kubernetes_versions import DELETION_TIMESTAMP_MOVES, NEWEST, OLDEST, Kubernetes
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.build.children import PodBuilder
from tfjob_operator.controller.tfjob.plan import ending, plan, replicas
from tfjob_operator.controller.tfjob.plan.actions import Plan

AGES: Final = [OLDEST, Kubernetes(22), Kubernetes(27), Kubernetes(33), NEWEST]
RULED: Final[dict[str, Any]] = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
}


def worker(run: str, on_stop: str = "0s:143", **container: Any) -> TFJob:
    """A job of one worker whose container does what `run` and `on_stop` say."""
    annotations = {PREFIX + "run": run, PREFIX + "on-stop": on_stop}
    containers = [{"name": "tensorflow", "image": "train:1", **container}]
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
    return job({"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}, "runPolicy": {}})


@dataclass
class OnePod:
    """A job, its one pod, and the time."""

    job: TFJob
    kubernetes: Kubernetes
    pod: HollowPod | None = None
    now: datetime = EPOCH
    made: int = 0
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = Place("node", "192.0.2.1", "10.244.0.1", Timing(scale=1.0), self.kubernetes)

    def edit(self, **policy: Any) -> None:
        """The user edits the run policy."""
        spec = msgspec.json.decode(self.job.spec)
        spec["runPolicy"] |= policy
        meta = replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        self.job = replace(self.job, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))
        self.sync()

    def sync(self) -> None:
        """Let the operator act until it has nothing more to do, which takes a few rounds."""
        for _ in range(5):
            seen = [] if self.pod is None else [msgspec.json.decode(msgspec.json.encode(self.pod), type=Pod)]
            decided = plan.plan(self.job, good_spec(self.job), seen, [], self.now)
            if decided.status is not None:
                self.job = replace(self.job, status=decided.status)
            self._carry_out(decided)

    def _carry_out(self, decided: Plan) -> None:
        for slot in decided.create_pods:
            body = PodBuilder(self.job, good_spec(self.job)).build(slot)
            body["metadata"] |= {"namespace": "ns", "uid": f"pod-{self.made}"}
            body["spec"] |= {"nodeName": "node"}
            self.pod, self.made = msgspec.convert(body, HollowPod, strict=False), self.made + 1
        for _ in decided.delete_pods:
            assert self.pod is not None
            grace = 0 if self.pod.status.phase in TERMINAL else self.pod.spec.termination_grace_period_seconds
            self._delete(self.pod, grace)

    def _delete(self, pod: HollowPod, grace: int) -> None:
        """Delete the pod, or shorten its grace; with a grace of 0 the operator sees it once more before it is gone."""
        meta, leaves_at = pod.metadata, self.now.replace(microsecond=0) + timedelta(seconds=grace)
        if meta.deletion_timestamp is not None:
            first = meta.deletion_timestamp - timedelta(seconds=meta.deletion_grace_period_seconds or 0)
            moves = self.kubernetes.has(DELETION_TIMESTAMP_MOVES)
            leaves_at = max(first + timedelta(seconds=grace), leaves_at) if moves else first + timedelta(seconds=grace)
        meta = replace(meta, deletion_timestamp=leaves_at, deletion_grace_period_seconds=grace)
        self.pod = replace(pod, metadata=meta)
        self.sync()
        if grace == 0:
            self.pod = None
            self.sync()

    def rest(self, *, at_most_s: float = 60.0) -> None:
        """Let node and operator work until nothing is left to do, or `at_most_s` has passed."""
        self.sync()
        until = self.now + timedelta(seconds=at_most_s)
        for _ in range(200):
            if self.pod is None:
                return
            step = advance(self.pod, parse_script(self.pod), self.pod.status, self.now, self.place)
            if step.status != self.pod.status:
                self.pod = replace(self.pod, status=step.status)
                self.sync()
            elif step.removal is Removal.FINAL:
                self.now += timedelta(seconds=1)  # a kubelet takes half a second for it, and the API has whole ones
                self._delete(self.pod, 0)
            elif step.look_at is None or step.look_at > until:
                return
            else:
                self.now = max(self.now, step.look_at)
        raise AssertionError("it never comes to rest")

    def is_true(self, condition: str) -> bool:
        """Whether the job has this condition."""
        return conditions.is_true(self.job.status, condition)


def keeps_what_has_ended(kubernetes: Kubernetes) -> None:
    """The pod of a single worker that succeeds is kept, with its log."""
    cluster = OnePod(worker("2s:0"), kubernetes)
    cluster.rest()
    assert cluster.is_true(ConditionType.SUCCEEDED)
    assert cluster.pod is not None, "the pod is gone, and its log with it"
    assert cluster.pod.metadata.deletion_timestamp is None


def goes_on_after_an_orderly_stop(kubernetes: Kubernetes) -> None:
    """A worker that saves its work on SIGTERM and exits with 0 goes on when its job is resumed."""
    cluster = OnePod(worker("forever", "2s:0"), kubernetes)
    cluster.rest(at_most_s=10.0)
    cluster.now += timedelta(seconds=10)
    cluster.edit(suspend=True)
    cluster.rest()
    assert cluster.pod is None
    assert cluster.job.status.finished_indices == {}, "an orderly stop has become a success"
    cluster.edit(suspend=False)
    assert cluster.made == 2
    assert not cluster.is_true(ConditionType.SUCCEEDED)


def lets_the_kubelet_restart(kubernetes: Kubernetes) -> None:
    """An exit after which the container's rules restart it in place is no failure."""
    cluster = OnePod(worker("1s:42, 1s:0", **RULED), kubernetes)
    cluster.rest()
    assert cluster.is_true(ConditionType.SUCCEEDED), "the job has failed while its kubelet restarted"
    assert [record.in_place for record in cluster.job.status.restarts] == [1]


@pytest.mark.parametrize("kubernetes", AGES, ids=str)
def test_a_pod_that_has_ended_stays_with_its_log(kubernetes: Kubernetes) -> None:
    """M1: under the default policy, on kubelets of all versions."""
    keeps_what_has_ended(kubernetes)


@pytest.mark.parametrize("kubernetes", AGES, ids=str)
def test_a_job_whose_worker_exits_in_order_when_suspended_goes_on(kubernetes: Kubernetes) -> None:
    """M2, B74: on kubelets and API servers of all versions."""
    goes_on_after_an_orderly_stop(kubernetes)


def test_a_rule_of_restart_is_the_kubelets_affair() -> None:
    """M3: on a version that has restart rules."""
    lets_the_kubelet_restart(NEWEST)


def test_old_judgements_die_on_the_newest_hollow_node(mocker: MockerFixture) -> None:
    """M1, M2, M3: on the oldest version they were right, so tests with it alone found no bug."""
    for place, name, scenario, found in (
        (ending, "to_clean_up", keeps_what_has_ended, "the pod is gone"),
        (replicas, "was_stopped", goes_on_after_an_orderly_stop, "has become a success"),
        (replicas, "is_final", lets_the_kubelet_restart, "has failed"),
    ):
        old = mocker.patch.object(place, name, getattr(old_judgements, name))
        with pytest.raises(AssertionError, match=found):
            scenario(NEWEST)
        if scenario is not lets_the_kubelet_restart:
            scenario(OLDEST)
        mocker.stop(old)
