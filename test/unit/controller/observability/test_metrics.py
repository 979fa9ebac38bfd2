"""The adapters for Prometheus, read as a scraper reads them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from fakes.jobs import at
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from kit.model.versions import OLDEST
from kit.virtual_loop import EPOCH, FakeClock, VirtualClock
from simulation.kinds import KINDS_WITH_TFJOBS
from tfjob_operator.api.client import metrics as request_names
from tfjob_operator.api.client.metrics import METHODS, Attempt, RequestMetrics
from tfjob_operator.api.core import ObjectReference
from tfjob_operator.api.v1.conditions import Conditions
from tfjob_operator.api.v1.constants import LABEL_QUEUE, ConditionReason, ConditionType
from tfjob_operator.api.v1.types import EndRecord, JobAttempt, JobCondition, JobMeta, JobStatus, StartRecord, TFJob
from tfjob_operator.controller.composition import METRICS_PREFIX, build
from tfjob_operator.controller.events import Drop
from tfjob_operator.controller.events.delivery import Drops
from tfjob_operator.controller.jobs.job_metrics import (
    JOB_INDEXERS,
    KEPT_S,
    OTHER,
    STATE_INDEX,
    JobMetrics,
    index_by_wait,
)
from tfjob_operator.controller.leaderelection import Election
from tfjob_operator.controller.manager import Manager
from tfjob_operator.controller.manager.controller import STUCK_S, ReconcileMetrics, ReconcileResult
from tfjob_operator.controller.manager.parts import Transports
from tfjob_operator.controller.observability.metrics import (
    PERIOD_S,
    LoopLag,
    PrometheusMetrics,
    exposition,
    new_registry,
)
from tfjob_operator.controller.options import LEASE_NAME, Options
from tfjob_operator.informers.store import MutableIndexer
from tfjob_operator.workqueue import NO_METRICS, Queue
from tfjob_operator.workqueue import metrics as queue_names
from tfjob_operator.workqueue.metrics import Metric

PAGE = Path(__file__).parents[3] / "data" / "metrics.txt"
"""The lines of the page, sorted, without their values."""


def page(registry: CollectorRegistry) -> dict[str, float]:
    """What one scrape says: the values of all samples, by name and labels."""
    families = text_string_to_metric_families(exposition(registry).decode())
    return {
        ",".join([sample.name, *map("=".join, sorted(sample.labels.items()))]): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_new_registry_tells_of_the_process() -> None:
    """CPU, memory and open files, and no series beyond what is asked for: `_created` doubles every counter."""
    values = page(new_registry())
    assert values["process_resident_memory_bytes"] > 1e6
    assert values["process_open_fds"] > 0
    assert "process_cpu_seconds_total" in values
    assert not [name for name in values if "_created" in name]


async def test_a_queue_can_be_read_from_its_first_scrape_on_and_shares_its_families_with_another() -> None:
    """A7: the label tells them apart; gauges are read when they are scraped."""
    registry = new_registry()
    provider = PrometheusMetrics(registry)
    first, _ = (Queue[str](name=name, metrics=provider) for name in "ab")
    for name in "ab":
        values = page(registry)
        for metric in (queue_names.ADDS, queue_names.DEPTH, queue_names.UNFINISHED_WORK, queue_names.LONGEST_RUNNING):
            assert values[f"{metric.name},name={name}"] == 0.0
        for metric in (queue_names.QUEUE_DURATION, queue_names.WORK_DURATION):
            assert values[f"{metric.name}_count,name={name}"] == 0.0
            bounds = [key for key in values if key.startswith(f"{metric.name}_bucket") and key.endswith(f"name={name}")]
            assert len(bounds) == len(metric.buckets) + 1
    first.add("x")
    first.add("y")
    await first.get()
    values = page(registry)
    assert [values[f"workqueue_depth,name={name}"] for name in "ab"] == [1.0, 0.0]
    assert [values[f"workqueue_adds_total,name={name}"] for name in "ab"] == [2.0, 0.0]
    assert [values[f"workqueue_queue_duration_seconds_count,name={name}"] for name in "ab"] == [1.0, 0.0]


def test_only_metrics_of_the_whole_process_have_the_prefix_of_the_program() -> None:
    """The others have the names of client-go and controller-runtime, or the program's own."""
    registry = CollectorRegistry()
    provider = PrometheusMetrics(registry, prefix="kettle_operator_")
    drops, tasks, own = (
        Metric("drops_total", "", prefixed=True),
        Metric("tasks", "", labels=(), prefixed=True),
        Metric("own", ""),
    )
    provider.counter(drops, "a").inc()
    provider.counter(drops, "b")
    provider.remove(drops, "b")
    provider.gauges(tasks, lambda: {(): 2.0})
    provider.gauge(own, "a", read=lambda: 3.0)
    assert page(registry) == {
        "kettle_operator_drops_total,name=a": 1.0,
        "kettle_operator_tasks": 2.0,
        "own,name=a": 3.0,
    }


def test_requests_are_there_at_zero_and_then_counted() -> None:
    """A7: each attempt once by code; durations and sizes by verb; retries apart; a watch has no duration and no size."""
    registry = new_registry()
    metrics = RequestMetrics(PrometheusMetrics(registry), "api")
    values = page(registry)
    for method in METHODS:
        for code in ("409", "500", request_names.NO_RESPONSE):
            assert values[f"rest_client_requests_total,code={code},host=api,method={method}"] == 0.0
        for metric in request_names.HISTOGRAMS:
            assert values[f"{metric.name}_count,host=api,verb={method}"] == 0.0
    metrics.attempted(Attempt("POST", "201", False, 100, 0.02, 2000))
    metrics.attempted(Attempt("POST", "503", True, 100, 0.02, 50))
    metrics.attempted(Attempt("GET", "200", False, 0, None, None))
    metrics.throttled("POST", 1.5)
    assert {
        "requests_total,code=201,host=api,method=POST": 1.0,
        "requests_total,code=200,host=api,method=GET": 1.0,
        "request_retries_total,code=503,host=api,verb=POST": 1.0,
        "request_retries_total,code=201,host=api,verb=POST": 0.0,
        "request_duration_seconds_count,host=api,verb=POST": 2.0,
        "request_duration_seconds_count,host=api,verb=GET": 0.0,
        "response_size_bytes_sum,host=api,verb=POST": 2050.0,
        "request_size_bytes_sum,host=api,verb=POST": 200.0,
        "rate_limiter_duration_seconds_sum,host=api,verb=POST": 1.5,
    }.items() <= {key.removeprefix("rest_client_"): value for key, value in page(registry).items()}.items()


def test_jobs_are_counted_in_both_families() -> None:
    """The sums of the older operator, and the newer one's counters by namespace."""
    registry = new_registry()
    jobs = JobMetrics(PrometheusMetrics(registry))
    expected = dict.fromkeys(("created", "deleted", "successful", "failed", "restarted"), 0.0)

    def counted(namespace: str) -> dict[str, float]:
        labels = f"framework=tensorflow,job_namespace={namespace}"
        return {name: page(registry)[f"training_operator_jobs_{name}_total,{labels}"] for name in expected}

    jobs.expect(["quiet"])
    assert [page(registry)[f"tf_operator_jobs_{name}_total"] for name in expected] == [0.0] * 5
    assert counted("quiet") == expected
    jobs.count("created", "team")
    values = page(registry)
    assert counted("team") == expected | {"created": 1.0}
    assert values["tf_operator_job_failures_total,namespace=team,reason=JobFailed"] == 0.0
    assert values["tf_operator_job_start_seconds_count,namespace=team"] == 0.0
    for transition in ("successful", "failed", "restarted", "deleted", "deleted"):
        jobs.count(transition, "team")
    now = dict.fromkeys(expected, 1.0) | {"deleted": 2.0}
    assert {name: page(registry)[f"tf_operator_jobs_{name}_total"] for name in expected} == now
    assert (counted("team"), counted("quiet")) == (now, expected)


def condition(kind: ConditionType, after_s: float, *, reason: str = "", status: str = "True") -> JobCondition:
    """A condition that got its status so many seconds after the job was created."""
    changed = EPOCH + timedelta(seconds=after_s)
    return JobCondition(kind, status, reason, last_update_time=changed, last_transition_time=changed)


CREATED = condition(ConditionType.CREATED, 1)
RUNNING = condition(ConditionType.RUNNING, 40)
RESUMED = condition(ConditionType.SUSPENDED, 600, status="False")
STOPPED = condition(ConditionType.RUNNING, 50, status="False")
AGAIN = condition(ConditionType.RUNNING, 607)


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ((), (CREATED, RUNNING), 40),
        ((CREATED,), (CREATED, RUNNING), 40),
        ((CREATED, RUNNING), (CREATED, RUNNING), None),
        ((CREATED, condition(ConditionType.RESTARTING, 45)), (CREATED, AGAIN), None),
        ((RESUMED, CREATED), (RESUMED, CREATED, AGAIN), 7),
        ((STOPPED, RESUMED, CREATED), (RESUMED, CREATED, AGAIN), 7),
        ((), (CREATED, condition(ConditionType.RUNNING, -2)), 0),
    ],
)
def test_a_start_is_observed_once_from_creation_or_resumption_to_running(
    before: Conditions, after: Conditions, seconds: float | None
) -> None:
    """It is computed from what is on the API server, so a new leader observes the same. A clock may be behind."""
    registry = new_registry()
    jobs = JobMetrics(PrometheusMetrics(registry))
    jobs.expect(["team"])
    jobs.observe(JobMeta(name="mnist", namespace="team", creation_timestamp=EPOCH), before, after)
    values = page(registry)
    assert values["tf_operator_job_start_seconds_count,namespace=team"] == (seconds is not None)
    assert values["tf_operator_job_start_seconds_sum,namespace=team"] == (seconds or 0)


def test_jobs_are_counted_by_state_and_a_namespace_without_jobs_has_no_series() -> None:
    """The state is the last condition that is True, other than Held. After two idle days the counters vanish, too."""
    registry = new_registry()
    jobs = JobMetrics(PrometheusMetrics(registry))
    indexer: MutableIndexer[TFJob] = MutableIndexer(JOB_INDEXERS)
    jobs.indexers.append(indexer)
    failed = condition(ConditionType.FAILED, 70, reason=ConditionReason.LIMIT)
    held = condition(ConditionType.HELD, 60)
    statuses = [(), (CREATED,), (CREATED, held, RUNNING), (CREATED, STOPPED, failed), (RESUMED, CREATED)]
    for number, found in enumerate(statuses):
        indexer.put(f"{number}", TFJob(JobMeta(namespace="team"), status=JobStatus(conditions=found)))
    assert jobs.by_state(0.0) == {
        ("team", "New"): 1,
        ("team", "Created"): 2,
        ("team", "Running"): 1,
        ("team", "Failed"): 1,
    }
    # The dashboard lists namespaces by this series, also those in which another controller manages all jobs.
    created = "training_operator_jobs_created_total,framework=tensorflow,job_namespace=team"
    assert page(registry)[created] == 0.0
    indexer.put("2", TFJob(JobMeta(namespace="team"), status=JobStatus(conditions=(CREATED, failed))))
    assert jobs.by_state(0.0) == {("team", "New"): 1, ("team", "Created"): 2, ("team", "Failed"): 2}
    jobs.observe(JobMeta(namespace="team"), (), (failed,))
    for state in ("New", "Created", "Failed"):
        for key in [*indexer.index_keys(STATE_INDEX, f"team/{state}")]:
            indexer.remove(key)
    assert jobs.by_state(10.0) == {}
    jobs.by_state(10.0 + KEPT_S)
    assert page(registry)["tf_operator_job_failures_total,namespace=team,reason=JobFailed"] == 1.0
    jobs.by_state(11.0 + KEPT_S)
    assert not [name for name in page(registry) if "job_namespace=" in name]
    jobs.count("created", "team")
    assert page(registry)[created] == 1.0


QUEUE = {LABEL_QUEUE: "team-a"}
SUSPENDED = condition(ConditionType.SUSPENDED, 130)
HELD = condition(ConditionType.HELD, 190)
STALLED = condition(ConditionType.STALLED, 190)
RESTARTING = condition(ConditionType.RESTARTING, 250)
DECIDED = StartRecord(ending=EndRecord(type="Failed", time=at(310)))


@pytest.mark.parametrize(
    ("labels", "conditions", "begun", "expected"),
    [
        pytest.param(None, (), None, [("New", 0)], id="without a status"),
        pytest.param(None, (CREATED,), None, [("Created", 0)], id="without running pods"),
        pytest.param(None, (CREATED, RESUMED), None, [("Created", 600)], id="resumed"),
        pytest.param(None, (CREATED, RUNNING), None, [], id="running"),
        pytest.param(None, (CREATED, HELD, RUNNING), None, [("Held", 180)], id="running, on hold"),
        pytest.param(None, (CREATED, STALLED, RUNNING), None, [("Stalled", 180)], id="stalled"),
        pytest.param({}, (CREATED, STALLED, SUSPENDED), None, [], id="stalled, and suspended by an older release"),
        pytest.param(None, (CREATED, RESTARTING), None, [("Restarting", 240)], id="restarting"),
        pytest.param(
            None, (CREATED, HELD, RESTARTING), None, [("Held", 180), ("Restarting", 240)], id="restarting, on hold"
        ),
        pytest.param(QUEUE, (CREATED, SUSPENDED), None, [("Queued", 120)], id="suspended by a queue"),
        pytest.param({}, (CREATED, SUSPENDED), None, [], id="suspended by a user"),
        pytest.param(QUEUE, (CREATED, RUNNING), DECIDED, [("Ending", 300)], id="ending"),
        pytest.param(QUEUE, (CREATED, condition(ConditionType.FAILED, 70)), DECIDED, [], id="finished"),
    ],
)
def test_a_job_that_stands_still_has_the_time_since_when_it_does(
    labels: dict[str, str] | None,
    conditions: Conditions,
    begun: StartRecord | None,
    expected: list[tuple[str, int]],
) -> None:
    """To the minute, so that the jobs of a minute are one value of the index."""
    meta = JobMeta(name="mnist", namespace="team", labels=labels, creation_timestamp=EPOCH)
    found = index_by_wait(TFJob(meta, status=JobStatus(conditions=tuple(conditions), begun=begun)))
    assert found == [f"team/{state}/{at(second).timestamp():.0f}" for state, second in expected]


@pytest.mark.parametrize(
    ("spec", "waits"),
    [
        ({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, False),
        ({"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}, True),
        ({"runPolicy": {"managedBy": 1}}, True),
        ({"managedBy": "somebody"}, True),
    ],
)
def test_a_job_of_another_controller_waits_for_that_one(spec: dict[str, Any], waits: bool) -> None:
    meta = JobMeta(name="mnist", namespace="team", creation_timestamp=EPOCH)
    assert bool(index_by_wait(TFJob(meta, msgspec.Raw(msgspec.json.encode(spec))))) is waits


def test_the_job_that_waits_longest_counts() -> None:
    """In each namespace and state. A state in which no job waits has no series, so its alert ends."""
    jobs = JobMetrics()
    indexer: MutableIndexer[TFJob] = MutableIndexer(JOB_INDEXERS)
    jobs.indexers.append(indexer)
    for number, (namespace, second) in enumerate([("a", 600), ("a", 120), ("b", 60)]):
        status = JobStatus(conditions=(condition(ConditionType.CREATED, second),))
        indexer.put(f"{number}", TFJob(JobMeta(name=f"{number}", namespace=namespace), status=status))
    assert jobs.waiting_since() == {("a", "Created"): at(120).timestamp(), ("b", "Created"): at(60).timestamp()}
    indexer.remove("1")
    indexer.remove("2")
    assert jobs.waiting_since() == {("a", "Created"): at(600).timestamp()}


def test_reconciles_are_counted_by_how_they_ended() -> None:
    """A12: a crash counts as an error, and as a panic as well."""
    registry = new_registry()
    reconciles = ReconcileMetrics(PrometheusMetrics(registry), "tfjob", workers=3, clock=FakeClock())

    def value(name: str, **labels: str) -> float:
        labelled = ["controller=tfjob", *map("=".join, labels.items())]
        return page(registry)[",".join([f"controller_runtime_{name}", *labelled])]

    def results() -> list[float]:
        return [value("reconcile_total", result=result) for result in ("success", "error", "requeue")]

    assert results() == [0.0, 0.0, 0.0]
    ends: list[ReconcileResult] = ["success", "success", "requeue", "error", "panic"]
    for result in ends:
        reconciles.started()
        assert value("active_workers") == 1.0
        reconciles.finished(result, 0.25)
    assert results() == [2.0, 2.0, 1.0]
    assert (value("reconcile_errors_total"), value("reconcile_panics_total")) == (2.0, 1.0)
    assert value("reconcile_time_seconds_sum") == 1.25
    assert (value("active_workers"), value("max_concurrent_reconciles")) == (0.0, 3.0)


def test_workers_are_stuck_when_all_are_busy_and_none_gets_anywhere() -> None:
    """One long job among several workers is no reason to restart, nor is an idle night."""
    clock = FakeClock()
    reconciles = ReconcileMetrics(NO_METRICS, "tfjob", workers=2, clock=clock)
    clock.step(10 * STUCK_S)
    assert reconciles.check() is None
    reconciles.started()
    clock.step(10 * STUCK_S)
    assert reconciles.check() is None
    reconciles.started()
    clock.step(STUCK_S)
    assert reconciles.check() is None
    clock.step(1.0)
    assert reconciles.check() == "all 2 workers have been busy with the same keys for 1801 s"
    reconciles.finished("success", 1801.0)
    assert reconciles.check() is None


def test_decisions_of_rules_are_counted_once_and_their_names_are_bounded() -> None:
    """Those that end an attempt are in its history; users name rules, so a namespace has a hundred series at most."""
    registry = new_registry()
    jobs = JobMetrics(PrometheusMetrics(registry))
    first = JobAttempt(number=0, rule="nan", action="RestartAll", replica_type="Worker")
    second = JobAttempt(number=1, reason="RestartRequested")
    jobs.ended("team", (), (first,))
    jobs.ended("team", (first,), (first, second))
    series = "tf_operator_failure_policy_actions_total,action=RestartAll,namespace=team,replica_type=Worker,rule="
    assert page(registry)[f"{series}nan"] == 1.0
    for number in range(150):
        jobs.decided("team", f"r{number}", "RestartAll", "Worker")
    assert page(registry)[f"{series}{OTHER}"] == 51.0
    assert jobs.by_state(0.0) == jobs.by_state(1.0 + KEPT_S) == {}
    assert not [name for name in page(registry) if "namespace=team" in name]


def test_seconds_of_accelerators_rise_by_what_a_write_adds_and_names_of_resources_are_bounded() -> None:
    """A user may request any extended resource; outcomes are ours."""
    registry = new_registry()
    jobs = JobMetrics(PrometheusMetrics(registry))
    first = {"nvidia.com/gpu": {"succeeded": 10}}
    jobs.spent("team", {}, first)
    jobs.spent("team", first, first)
    jobs.spent("team", first, {"nvidia.com/gpu": {"succeeded": 15, "failed": 0}, "google.com/tpu": {"failed": 3}})
    series = "tf_operator_accelerator_seconds_total,namespace=team,outcome={},resource={}"
    assert page(registry)[series.format("succeeded", "nvidia.com/gpu")] == 15.0
    assert page(registry)[series.format("failed", "google.com/tpu")] == 3.0
    jobs.spent("team", {}, {f"example.com/r{number}": {"failed": 2} for number in range(150)})
    assert page(registry)[series.format("failed", OTHER)] == 2.0 * 52
    assert jobs.by_state(0.0) == jobs.by_state(1.0 + KEPT_S) == {}
    assert not [name for name in page(registry) if "namespace=team" in name]


def test_every_reason_to_drop_an_event_is_there_at_zero() -> None:
    """EV-01: what is lost can be alerted on."""
    registry = new_registry()
    drops = Drops(PrometheusMetrics(registry))
    for why in Drop:
        assert page(registry)[f"events_dropped_total,type=Warning,why={why}"] == 0.0
    drops.drop("Warning", ObjectReference(), reason="Full", message="too many", why=Drop.OVERFLOW)
    assert page(registry)["events_dropped_total,type=Warning,why=overflow"] == 1.0


def an_operator(metrics: PrometheusMetrics) -> Manager:
    line = ModelTransport(ModelServer(kinds=KINDS_WITH_TFJOBS, kubernetes=OLDEST), "operator")
    options = Options(namespace="team", enable_gang_scheduling=True, election=Election("team", LEASE_NAME))
    LoopLag(metrics, FakeClock())
    return build(options, Transports(line, line, line), asyncio.Event(), identity="a", metrics=metrics, host="api:6443")


async def test_the_leader_says_so() -> None:
    registry = new_registry()
    manager = an_operator(PrometheusMetrics(registry))
    assert page(registry)["tf_operator_is_leader"] == 0.0
    manager._working = manager._elector._leading = True  # type: ignore[union-attr]
    assert page(registry)["tf_operator_is_leader"] == 1.0


async def test_the_page_has_the_names_labels_and_help_texts_that_dashboards_know(
    check_generated: Callable[[Path, str], None],
) -> None:
    """A7: all series are there before anything happens, and each as it was in version 0.1.0.

    Users name rules, so one stands for all. Those of the process and the interpreter are prometheus_client's, and differ from
    machine to machine.
    """
    new_registry()  # switches off the `_created` series of the whole process
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry, prefix=METRICS_PREFIX)
    an_operator(metrics)
    jobs = JobMetrics(metrics)
    jobs.decided("team", "any", "RestartAll", "Worker")
    jobs.spent("team", {}, {"nvidia.com/gpu": {"succeeded": 1}})
    lines = [
        line if line.startswith("#") else line.rpartition(" ")[0] for line in exposition(registry).decode().splitlines()
    ]
    check_generated(PAGE, "\n".join(sorted(lines)) + "\n")


class LateClock(VirtualClock):
    """A clock that is `late_s` seconds ahead of the loop."""

    def __init__(self) -> None:
        self.late_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late_s


async def test_a_timer_that_fires_late_is_seen() -> None:
    """What blocks the loop delays leases and probes, and shows in nothing else."""
    registry, clock = new_registry(), LateClock()
    measuring = asyncio.create_task(LoopLag(PrometheusMetrics(registry), clock).run())
    await asyncio.sleep(PERIOD_S * 1.5)
    name = "event_loop_lag_seconds"
    assert registry.get_sample_value(f"{name}_sum") == 0.0
    clock.late_s = 3.0
    await asyncio.sleep(PERIOD_S)
    assert registry.get_sample_value(f"{name}_count") == 2.0
    assert registry.get_sample_value(f"{name}_sum") == pytest.approx(3.0)
    assert registry.get_sample_value(f"{name}_bucket", {"le": "2.5"}) == 1.0
    assert registry.get_sample_value("event_loop_tasks") == len(asyncio.all_tasks())
    measuring.cancel()
    await asyncio.wait([measuring])
