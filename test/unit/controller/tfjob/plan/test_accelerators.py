"""How long pods held accelerators, and what came of it: each pod is counted once, whatever happens to it."""

from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from fakes.jobs import PlannedJob, at, decide, disrupted, job, names, pod, replica, spec, with_sidecar
from fakes.objects import changed
from kit.virtual_loop import EPOCH
from support.cases import for_each
from tfjob_operator.api.core import Container, PodSpec, ResourceRequirements
from tfjob_operator.api.v1.types import AcceleratorPods, JobStatus, RunningPods
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan import accelerators, size
from tfjob_operator.controller.tfjob.plan import plan as planning
from tfjob_operator.controller.tfjob.plan.accelerators import running_pod, running_pods

GPU: Final = "nvidia.com/gpu"
BESIDE: Final = (Container(name="tensorflow"), Container(name="sidecar"))
EIGHT: Final = ((GPU, 8),)


def gpu_pod(*given: Any, since_s: float = 10, created_s: float = 0, gpus: int = 8, **more: Any) -> Pod:
    """Return a pod that its kubelet accepted at `since_s`."""
    found = pod(*given, **more)
    meta = changed(found.metadata, creation_timestamp=at(created_s))
    return changed(found, metadata=meta, started=at(since_s), accelerators=((GPU, gpus),))


def life_of(given: dict[str, Any] | None = None, **policy: Any) -> PlannedJob:
    body = given or spec("ExitCode", Worker=2)
    return PlannedJob(job(body | ({"runPolicy": policy} if policy else {}), creation_timestamp=EPOCH), at_s=60)


def seconds_of(life: PlannedJob) -> dict[str, int]:
    return life.job.status.accelerator_seconds.get(GPU, {})


def both(**second: Any) -> tuple[Pod, Pod]:
    """Return the pods of two workers; the second differs."""
    return gpu_pod("Worker", 0), gpu_pod("Worker", 1, **second)


def test_a_job_without_accelerators_has_the_status_that_it_always_had() -> None:
    life = life_of()
    life.sync(pod("Worker", 0), pod("Worker", 1))
    life.sync(pod("Worker", 0, "Succeeded", 0), pod("Worker", 1))
    assert (life.job.status.accelerator_seconds, life.job.status.accelerator_pods) == ({}, None)
    assert b"ccelerator" not in msgspec.json.encode(life.job.status)


def test_running_pods_are_recorded_with_the_first_write_and_never_by_themselves() -> None:
    life = life_of()
    life.sync(*both())
    assert life.job.status.accelerator_pods == AcceleratorPods(
        running=(RunningPods(type="Worker", resources={GPU: 8}, since={str(int(at(10).timestamp())): "0-1"}),)
    )
    assert seconds_of(life) == {}
    before = changed(life.job, status__accelerator_pods=None)
    assert decide(before, *both()).status is None
    assert decide(life.job, *both()).status is None


def test_a_pod_that_waits_for_its_kubelet_holds_nothing() -> None:
    life = life_of()
    life.sync(changed(gpu_pod("Worker", 0, "Pending"), started=None))
    assert life.job.status.accelerator_pods is None


def test_a_failed_pod_is_counted_by_the_clock_of_its_node_in_the_write_before_its_deletion() -> None:
    life, hour_s = life_of(), 3600.0
    life.sync(*both(since_s=hour_s + 10))  # this clock is ahead
    failed = gpu_pod("Worker", 1, "Failed", 137, since_s=hour_s + 10, ended_s=hour_s + 50)
    decided = life.sync(gpu_pod("Worker", 0), failed, at_s=60)
    assert names(decided)["delete pods"] == ["mnist-worker-1"]
    assert seconds_of(life) == {"restarted": 8 * 40}


def test_restarts_in_place_are_part_of_their_pod() -> None:
    life = life_of()
    life.sync(*both())
    life.sync(*both(restarts=3))
    assert seconds_of(life) == {}
    life.sync(*both(restarts=3, terminating=True), at_s=70)
    assert seconds_of(life) == {"deleted": 8 * 60}


FIRST: Final = gpu_pod("Worker", 0)
ENDS: Final[dict[str, tuple[tuple[Pod, ...], dict[str, int]]]] = {
    "succeeded": ((FIRST, gpu_pod("Worker", 1, "Succeeded", 0, ended_s=30)), {"succeeded": 160}),
    "restarted": ((FIRST, gpu_pod("Worker", 1, "Failed", 137, ended_s=30)), {"restarted": 160}),
    "failed": ((FIRST, gpu_pod("Worker", 1, "Failed", 1, ended_s=30)), {"failed": 160, "endedWithJob": 400}),
    "worker 0 succeeded": (
        (gpu_pod("Worker", 0, "Succeeded", 0, ended_s=30), gpu_pod("Worker", 1)),
        {"succeeded": 160, "endedWithJob": 400},
    ),
    "preempted": (
        (FIRST, disrupted(gpu_pod("Worker", 1, terminating=True), "PreemptionByScheduler")),
        {"disrupted": 400},
    ),
    "evicted": ((FIRST, gpu_pod("Worker", 1, "Failed", 137, reason="Evicted", ended_s=30)), {"disrupted": 160}),
    "on a lost node": ((FIRST, gpu_pod("Worker", 1, "Failed", reason="NodeLost")), {"disrupted": 400}),
    "deleted": ((FIRST, gpu_pod("Worker", 1, terminating=True)), {"deleted": 400}),
    "deleted, and ended": (
        (FIRST, gpu_pod("Worker", 1, "Failed", 143, terminating=True, ended_s=40)),
        {"deleted": 240},
    ),
    "gone without a trace": ((FIRST,), {"deleted": 400}),
    "with a sidecar that still works": (
        (FIRST, changed(with_sidecar(gpu_pod("Worker", 1, exit_code=0, ended_s=30)), spec__containers=BESIDE)),
        {},
    ),
}


@for_each("end", ENDS)
def test_what_came_of_a_pod(end: str) -> None:
    pods, expected = ENDS[end]
    life = life_of()
    life.sync(*both())
    life.sync(*pods, at_s=60)
    assert seconds_of(life) == expected
    life.sync(*pods, at_s=80)
    life.sync(*pods, at_s=90)
    assert seconds_of(life) == expected


def test_pods_beyond_the_size_of_an_elastic_job_are_counted_as_deleted() -> None:
    life = life_of(spec("ExitCode", Worker=3, enableDynamicWorker=True))
    pods = [gpu_pod("Worker", index) for index in range(3)]
    life.sync(*pods)
    life.edit(tfReplicaSpecs={"Worker": replica(1, "ExitCode")})
    life.sync(*pods, at_s=60)
    life.sync(*pods, at_s=70)
    assert seconds_of(life) == {"deleted": 800}


def test_all_pods_of_a_suspended_job_are_counted_up_to_the_suspension_and_once() -> None:
    life = life_of()
    life.sync(*both())
    life.edit({"suspend": True})
    life.sync(*both(), at_s=60)
    assert seconds_of(life) == {"suspended": 800}
    life.edit({"suspend": False})
    ending = [changed(each, metadata__deletion_timestamp=at(95)) for each in both()]
    life.sync(*ending, at_s=70)
    life.sync(*both(), at_s=71)
    assert seconds_of(life) == {"suspended": 800}
    life.sync(at_s=80)
    life.sync(*(gpu_pod("Worker", index, since_s=90, uid=f"later-{index}") for index in (0, 1)), at_s=95)
    life.edit({"suspend": True})
    life.sync(*(gpu_pod("Worker", index, since_s=90, uid=f"later-{index}") for index in (0, 1)), at_s=100)
    assert seconds_of(life) == {"suspended": 800 + 160}


def test_a_restart_of_the_whole_job_counts_its_pods_once() -> None:
    rules = {"maxRestarts": 3, "rules": [{"action": "RestartAll"}]}
    life = life_of(failurePolicy=rules)
    life.sync(*both())
    pods = gpu_pod("Worker", 0), gpu_pod("Worker", 1, "Failed", 1, ended_s=30)
    life.sync(*pods, at_s=60)
    life.sync(*pods, at_s=61)
    assert (life.job.status.attempt, seconds_of(life)) == (1, {"restartedWithJob": 400 + 160})


@for_each("policy", ("None", "Running", "All"))
def test_pods_are_counted_up_to_the_end_of_the_job_whatever_the_clean_up_policy(policy: str) -> None:
    life = life_of(spec(PS=replica(1), Chief=replica(1)), cleanPodPolicy=policy)
    chief, ps = gpu_pod("Chief", 0), gpu_pod("PS", 0)
    life.sync(chief, ps)
    over = gpu_pod("Chief", 0, "Succeeded", 0, ended_s=30)
    life.sync(over, ps, at_s=60)
    assert seconds_of(life) == {"succeeded": 160, "endedWithJob": 400}
    assert life.job.status.accelerator_pods is None
    for at_s in (61, 5000):
        life.sync(over, ps, at_s=at_s)
        life.sync(over, at_s=at_s)
    assert seconds_of(life) == {"succeeded": 160, "endedWithJob": 400}


def test_a_failed_pod_of_a_job_on_hold_is_counted_when_its_fate_is_decided() -> None:
    life = life_of()
    life.sync(*both())
    valid = life.job.spec
    life.job = changed(life.job, spec=msgspec.Raw(b'{"tfReplicaSpecs": {"Worker": {"replicas": -1}}}'))
    failed = gpu_pod("Worker", 0), gpu_pod("Worker", 1, "Failed", 137, ended_s=30)
    life.sync(*failed)
    assert seconds_of(life) == {}
    life.job = changed(life.job, spec=valid)
    life.sync(*failed)
    assert seconds_of(life) == {"restarted": 160}


def test_a_pod_whose_deletion_is_withheld_is_counted_when_it_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart that does not fit into the status waits."""
    life, pods = life_of(), (FIRST, gpu_pod("Worker", 1, "Failed", 137, ended_s=30))
    life.sync(*both())
    with monkeypatch.context() as patch:
        patch.setattr(planning, "fit", lambda plan, *_: replace(plan, delete_pods=()))
        life.sync(*pods)
    life.sync(*pods, at_s=70)
    assert seconds_of(life) == {"restarted": 160}


def test_a_second_pod_of_a_replica_is_not_counted_beside_the_first() -> None:
    life = life_of()
    life.sync(*both())
    second = changed(gpu_pod("Worker", 1, uid="second"), metadata__name="mnist-worker-1-x")
    life.sync(*both(), second, at_s=70)
    assert seconds_of(life) == {}


def test_a_pod_whose_labels_are_edited_is_gone_for_a_while_and_counted_once() -> None:
    life = life_of()
    life.sync(*both())
    life.sync(both()[0], at_s=60)
    life.sync(both()[0], at_s=61)
    life.sync(*both(), at_s=62)
    life.sync(*both(terminating=True), at_s=70)
    assert seconds_of(life) == {"deleted": 400}
    life.sync(both()[0], gpu_pod("Worker", 1, since_s=80, uid="next"), at_s=85)
    life.sync(both()[0], gpu_pod("Worker", 1, since_s=80, uid="next", terminating=True), at_s=90)
    assert seconds_of(life) == {"deleted": 400 + 80}


def test_a_pod_in_place_of_another_is_counted_even_if_both_start_in_one_second() -> None:
    life = life_of()
    life.sync(*both())
    life.sync(gpu_pod("Worker", 0), gpu_pod("Worker", 1, "Failed", reason="OutOfgpu", uid="rejected"), at_s=10)
    life.sync(gpu_pod("Worker", 0), gpu_pod("Worker", 1, uid="accepted"), at_s=11)
    life.sync(gpu_pod("Worker", 0), gpu_pod("Worker", 1, uid="accepted", terminating=True), at_s=70)
    assert seconds_of(life) == {"disrupted": 0, "deleted": 480}


@for_each("clock", ((-1e9, 30, 60), (50, 30, 0), (4000, None, 0), (-4000, None, 60)))
def test_no_clock_counts_a_pod_for_longer_than_it_exists(clock: tuple[float, float | None, int]) -> None:
    """The clock of its node was set forward or back while it ran, or is wrong while it still runs."""
    since_s, ended_s, seconds = clock
    life = life_of()
    life.sync(gpu_pod("Worker", 0, since_s=since_s))
    life.edit({"suspend": True})
    phase = ("Running", None) if ended_s is None else ("Succeeded", 0)
    life.sync(gpu_pod("Worker", 0, *phase, since_s=since_s, ended_s=ended_s), at_s=60)
    assert sum(seconds_of(life).values()) == 8 * seconds


def test_pods_of_an_edited_template_are_counted_with_their_own_numbers() -> None:
    life = life_of()
    life.sync(gpu_pod("Worker", 0, gpus=4), gpu_pod("Worker", 1))
    found = life.job.status.accelerator_pods
    assert sorted((each.index, each.resources) for each in running_pods(found)) == [(0, ((GPU, 4),)), (1, EIGHT)]
    life.sync(at_s=60)
    assert seconds_of(life) == {"deleted": 50 * 12}


def test_what_is_recorded_of_five_thousand_workers_is_small_and_read_back() -> None:
    life = life_of(spec("ExitCode", Worker=5000))
    pods = [gpu_pod("Worker", index, since_s=10 + index % 100) for index in range(5000)]
    life.sync(*pods)
    found = life.job.status.accelerator_pods
    assert set(running_pods(found)) == {running_pod("mnist", each) for each in pods}
    assert len(msgspec.json.encode(found)) < 35_000
    life.edit({"suspend": True})
    life.sync(*pods, at_s=200)
    assert len(msgspec.json.encode(life.job.status.accelerator_pods)) < 80_000
    life.sync(at_s=300)
    assert sum(seconds_of(life).values()) == 8 * sum(190 - index % 100 for index in range(5000))


def test_a_status_that_does_not_fit_records_no_running_pods_and_then_counts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = life_of()
    life.sync(*both())
    pods = (FIRST, gpu_pod("Worker", 1, "Failed", 137, ended_s=30))
    whole = decide(life.job, *pods).status
    assert whole is not None
    monkeypatch.setattr(planning, "fit", lambda plan, *_: plan)
    monkeypatch.setattr(size, "_bound", lambda _: size.MAX_OBJECT)
    monkeypatch.setattr(size, "MAX_OBJECT", size.stored_size(whole) + len(life.job.spec) + size.OVERHEAD - 1)
    reduced = decide(life.job, *pods).status
    assert reduced is not None
    assert reduced.accelerator_pods is not None
    assert (reduced.accelerator_pods.running, len(reduced.accelerator_pods.counted)) == ((), 1)
    monkeypatch.setattr(size, "MAX_OBJECT", 0)
    uncounted = decide(life.job, *pods).status
    assert uncounted is not None
    assert uncounted.accelerator_seconds == {}


def test_the_requests_of_a_pod_follow_kubernetes_rule() -> None:
    """Sidecars add to the containers, init containers do not; names without a domain, and Kubernetes' own, do not count."""

    def part(name: str, policy: str = "", **limits: str) -> Container:
        named = {key.replace("__", "/").replace("_", "."): value for key, value in limits.items()}
        return Container(name=name, restart_policy=policy, resources=ResourceRequirements(limits=named))

    found = Pod(
        metadata=pod("Worker", 0).metadata,
        spec=PodSpec(
            containers=(
                part("tensorflow", nvidia_com__gpu="4", cpu="8"),
                part("other", nvidia_com__gpu="1k", google_com__tpu="0"),
            ),
            init_containers=(
                part("large", nvidia_com__gpu="1006"),
                part("proxy", "Always", nvidia_com__gpu="1", aws_amazon_com__neuron="2"),
                part("after", nvidia_com__gpu="1005", x_kubernetes_io__y="3"),
            ),
        ),
    )
    assert found.accelerators == (("aws.amazon.com/neuron", 2), (GPU, 1006))
    assert all(each.resources is None for each in found.spec.all_containers)
    assert Pod(metadata=found.metadata, spec=PodSpec(containers=(part("tensorflow", cpu="8"),))).accelerators == ()


def test_sums_are_ordered_and_outlive_the_pods() -> None:
    status = JobStatus(accelerator_seconds={"b/x": {"failed": 1}, "a/x": {"suspended": 2, "deleted": 3}})
    counted = accelerators._sum(status.accelerator_seconds, {("a/x", "deleted"): 4})
    assert list(counted) == ["a/x", "b/x"]
    assert counted["a/x"] == {"deleted": 7, "suspended": 2}


def test_a_job_that_an_earlier_release_finished_is_left_alone() -> None:
    life = life_of()
    life.sync(*both())
    over = (gpu_pod("Worker", 0, "Succeeded", 0, ended_s=30), gpu_pod("Worker", 1, "Succeeded", 0, ended_s=30))
    life.sync(*over)
    life.job = changed(life.job, status__accelerator_seconds={})
    assert decide(life.job, *over).status is None
