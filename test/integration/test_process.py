"""The operator as a process: replicas and leader changes, signals and exit codes, metrics, probes, logs, permissions."""

import contextlib
import json
import logging
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs
from integration.forwarder import Forwarder
from integration.operator_process import OperatorProcess
from support.waiting import LIMIT_S, eventually
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.name_ranges import is_named

QUICK = ("--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms")
LEASE_S = 6.0
RETRY_S = 0.5 * 2.2
LEASE_DURATION_S = 15.0
"""The default; a lease that is released takes about 2 s on an idle machine: requests in flight, events, and the lease."""
BURSTS = 5
BURST = (200, 2)
"""Jobs, and workers of each."""
LARGE = 500
"""Workers of the job whose pods are being created when the leader is stopped."""
SLACK_S = 5.0
"""What a busy machine may add to a hand-over."""

log = logging.getLogger(__name__)


class Site(Cluster):
    """A namespace, and the replicas that serve it."""

    replicas: list[OperatorProcess]

    def start(self, *flags: str, **options: Any) -> OperatorProcess:
        self.replicas.append(super().start(*flags, **options))
        return self.replicas[-1]

    def working(self, *flags: str, **options: Any) -> OperatorProcess:
        replica = self.start(*flags, **options)
        replica.wait_for("workers_started")
        return replica

    def two(self, *flags: str) -> tuple[OperatorProcess, OperatorProcess]:
        """A leader, and a replica that is ready and has seen its lease."""
        a, b = self.working(*flags), self.start(*flags)
        b.wait_for("leader_observed")
        return a, b

    def create_job(self, name: str, workers: int = 1, **spec: Any) -> None:
        self.create(name, specs(Worker=replica(workers)) | spec)

    def wait_for_pod(self, name: str) -> None:
        eventually(lambda: self.find("pods", name), f"pod {name} is there")

    def finish(self, name: str) -> None:
        """Write that the worker's pod succeeded, as a kubelet would."""
        state = {"name": "tensorflow", "ready": False, "restartCount": 0, "image": "train:1", "imageID": "i"}
        state["state"] = {"terminated": {"exitCode": 0}}
        self.patch("pods", f"{name}-worker-0/status", {"status": {"phase": "Succeeded", "containerStatuses": [state]}})

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.api("GET", "leases", "tf-operator")["spec"]
        return spec


@pytest.fixture
def site(control_plane: ControlPlane, namespace: str, tmp_path: Path, crd: None) -> Iterator[Site]:
    """The namespace of a test, with nothing running in it."""
    site = Site(control_plane, namespace, tmp_path)
    site.replicas = []
    yield site
    for each in site.replicas:
        each.__exit__()


@contextlib.contextmanager
def frozen_api_server(plane: ControlPlane) -> Iterator[None]:
    server = plane.pids()["kube-apiserver"]
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


@pytest.fixture
def forwarder(control_plane: ControlPlane) -> Iterator[Forwarder]:
    """An API server that is not there yet: a port that leads to the real one once it is opened."""
    with Forwarder(urlsplit(control_plane.server).port or 0) as forwarder:
        yield forwarder


def test_a_leader_that_is_stopped_is_succeeded_at_once(site: Site) -> None:
    """A12, LE-01, LE-11, leaselock_test.go:TestLeaseConversion, leaderelection_test.go:TestReleaseOnCancellation_Leases.

    Exit code 0 in under ten seconds; the other replica works before the lease could have expired. kubectl shows the Lease.
    """
    a, b = site.two()
    assert a.value("tf_operator_is_leader") == 1.0
    assert b.value("tf_operator_is_leader") == 0.0
    assert b.get("/readyz") == (200, "ok")
    site.create_job("first")
    site.wait_for_pod("first-worker-0")
    lease = site.lease()
    for name in ("acquireTime", "renewTime"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", lease.pop(name))
    assert lease.pop("leaseTransitions", 0) == 0
    assert lease == {"holderIdentity": a.lines("operator_starting")[0]["identity"], "leaseDurationSeconds": 15}
    shown = site.kubectl("describe", "lease", "tf-operator").split()
    assert lease["holderIdentity"] == shown[shown.index("Identity:") + 1]
    begun = time.monotonic()
    code, took = a.end()
    assert (code, took < 10.0) == (0, True)
    b.wait_for("workers_started")
    log.info("stopped in %.2f s, handed over in %.2f s", took, time.monotonic() - begun)
    assert time.monotonic() - begun < 12.0
    assert site.lease()["leaseTransitions"] == 1
    site.create_job("second")
    site.wait_for_pod("second-worker-0")
    # A page of metrics is kept for a second.
    eventually(lambda: b.value("tf_operator_is_leader") == 1.0, "the metrics are new")
    created = b.value("tf_operator_jobs_created_total")
    assert created == 1.0, "the first was counted by the other one"
    assert [message for _, _, message in site.events("first")].count("Created pod: first-worker-0") == 1


def first_act(operator: OperatorProcess) -> dict[str, Any]:
    """The log line about the first thing that the operator did for a job."""
    done = {"tfjob_event", "tfjob_condition"}
    found: list[dict[str, Any]] = eventually(
        lambda: [line for line in operator.lines() if line["event"] in done], "it acts"
    )
    return found[0]


def workers_created(operator: OperatorProcess, job: str) -> int:
    """How many workers of the large job this operator says that it has created."""
    lines = [line for line in operator.lines("tfjob_event") if line["reason"] == EventReason.CREATED_POD]
    texts = [line["message"].partition(": ")[2] for line in lines]
    return sum(any(is_named(f"{job}-worker-{index}", text) for text in texts) for index in range(LARGE))


def test_leaders_that_are_stopped_in_a_burst_hand_over_at_once(site: Site) -> None:
    """D24: no leader cuts off a write, so each releases its lease; a lease that is kept holds up all jobs for 15 s or more."""
    leader, successor = site.two()
    took: list[float] = []
    for number in range(BURSTS):
        for index in range(BURST[0]):
            site.create_job(f"burst-{number}-{index}", BURST[1])
        site.create_job(f"large-{number}", LARGE)
        site.wait_for_pod(f"large-{number}-worker-0")
        begun = datetime.now(UTC)
        assert leader.end()[0] == 0
        assert leader.lines("lease_released"), leader.lines("lease_kept")
        assert leader.lines("write_interrupted") == []
        assert 0 < workers_created(leader, f"large-{number}") < LARGE, "it was not stopped in a burst"
        # By the timestamps in the log, since reading a long log takes time.
        moments = [*leader.lines("controllers_stopping"), *leader.lines("lease_released"), first_act(successor)]
        after = [(datetime.fromisoformat(line["timestamp"]) - begun).total_seconds() for line in moments]
        log.info("stopping after %.2f s, lease free after %.2f s, the next one acts after %.2f s", *after)
        took.append(after[-1])
        leader, successor = successor, site.start()
        successor.wait_for("leader_observed")
    assert max(took) < LEASE_DURATION_S, "the successor waited until a lease ran out"
    eventually(lambda: len(site.names("pods")) == BURSTS * (BURST[0] * BURST[1] + LARGE), "all pods are there")


def test_a_leader_that_is_killed_is_succeeded_when_its_lease_has_run_out(site: Site) -> None:
    """LE-04: and the job goes on where it was."""
    a, b = site.two(*QUICK)
    site.create_job("mnist")
    site.wait_for_pod("mnist-worker-0")
    killed = time.monotonic()
    assert a.end(signal.SIGKILL)[0] == -signal.SIGKILL
    b.wait_for("workers_started")
    took = time.monotonic() - killed
    log.info("handed over in %.2f s", took)
    assert LEASE_S - 1.0 - RETRY_S < took < LEASE_S + RETRY_S + SLACK_S
    site.finish("mnist")
    b.wait_for("tfjob_condition", condition="Succeeded", tfjob=f"{site.namespace}/mnist")


def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes_and_ends_with_1(site: Site) -> None:
    """LE-14: jobs came while it was frozen, so its caches give it work when it wakes; its successor has done that work."""
    a, b = site.two(*QUICK)
    a.process.send_signal(signal.SIGSTOP)
    for number in range(5):
        site.create_job(f"job-{number}")
    before = len(a.lines())
    b.wait_for("workers_started")
    for number in range(5):
        site.wait_for_pod(f"job-{number}-worker-0")
    a.process.send_signal(signal.SIGCONT)
    assert a.process.wait(LIMIT_S) == 1
    after = a.lines()[before:]
    assert [line for line in after if line["event"] in {"tfjob_condition", "tfjob_event"}] == []
    errors = [line["event"] for line in after if line["level"] == "error"]
    assert errors == ["lease_lost", "operator_failed"], a.text()
    assert site.lease()["holderIdentity"] == b.lines("operator_starting")[0]["identity"]


def test_a_frozen_api_server_does_not_keep_a_leader_from_stopping(site: Site) -> None:
    """A12: exit code 0 in under ten seconds; the lease is left to run out."""
    operator = site.working()
    with frozen_api_server(site.plane):
        code, took = operator.end()
    log.info("stopped in %.2f s", took)
    assert (code, took < 10.0) == (0, True)
    assert operator.lines("lease_not_released")


def test_a_second_signal_ends_the_process_at_once(site: Site) -> None:
    """After the first one it waits for the response to a write, alive and no longer ready; the second gives exit code 1."""
    operator = site.working()
    site.create_job("mnist", runPolicy={"activeDeadlineSeconds": 3})
    site.wait_for_pod("mnist-worker-0")
    at = {"controller": "tfjob"}
    with frozen_api_server(site.plane):
        eventually(lambda: operator.value("controller_runtime_active_workers", **at) == 1.0, "a write has no answer")
        operator.process.send_signal(signal.SIGTERM)
        operator.wait_for("controllers_stopping")
        assert operator.get("/readyz") == (500, "[-]operator failed: stopping\n")
        assert operator.get("/healthz") == (200, "ok")
        code, took = operator.end(signal.SIGINT)
    assert (code, took < 2.0) == (1, True)


def test_a_process_waits_for_an_api_server_that_is_not_there_yet(site: Site, forwarder: Forwarder) -> None:
    """B71: alive, not ready, all metrics there; when the server comes it is ready and works."""
    operator = site.start(f"--master=https://127.0.0.1:{forwarder.port}")
    operator.wait_for("list_and_watch_failed")
    assert operator.get("/healthz") == (200, "ok")
    code, problem = operator.get("/readyz")
    assert code == 500
    assert problem.startswith(f"[-]operator failed: caches not synced: tfjobs.kubeflow.org/{site.namespace}, ")
    assert operator.value("tf_operator_is_leader") == 0.0
    site.create_job("early")
    forwarder.open()
    site.wait_for_pod("early-worker-0")
    assert operator.get("/readyz") == (200, "ok")
    assert operator.end()[0] == 0


def test_whoever_can_reach_the_port_can_not_keep_others_out_of_it(site: Site) -> None:
    """D11: 1,100 incomplete requests and 1,100 that are not HTTP, to a process that may have 1,024 files open."""
    operator = site.working()
    resource.prlimit(operator.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    with contextlib.ExitStack() as stack:
        mine = resource.getrlimit(resource.RLIMIT_NOFILE)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, mine)
        resource.setrlimit(resource.RLIMIT_NOFILE, (mine[1], mine[1]))
        before = len(operator.lines())
        for text in (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01 this is not HTTP\r\n\r\n"):
            for _ in range(1100):
                line = stack.enter_context(socket.create_connection(("127.0.0.1", operator.port), LIMIT_S))
                with contextlib.suppress(ConnectionError):  # some were ended by then
                    line.sendall(text)
            for _ in range(5):
                asked = time.monotonic()
                assert operator.get("/healthz") == (200, "ok")
                assert time.monotonic() - asked < 1.0 + SLACK_S
        assert operator.value("process_open_fds") < 1024
        eventually(lambda: operator.value("process_open_fds") < 100, "the connections are closed")
        site.create_job("mnist")
        site.wait_for_pod("mnist-worker-0")
        told = [line["event"] for line in operator.lines()[before:]]
        assert set(told) <= {"tfjob_event", "tfjob_condition"}


def test_every_series_is_there_from_the_first_scrape_on(site: Site, forwarder: Forwarder) -> None:
    """A7: an alert on the first failure needs the zero before it; and no label grows without bounds.

    Only gauges of jobs have no series at zero.
    """
    operator = site.start(f"--master=https://127.0.0.1:{forwarder.port}", "--qps=100")
    eventually(lambda: operator.get("/metrics")[0] == 200, "it serves")
    first = operator.scrape()
    forwarder.open()
    for name in ("good", "bad"):
        site.create_job(name)
    site.wait_for_pod("bad-worker-0")
    site.wait_for_pod("good-worker-0")
    site.finish("good")
    operator.wait_for("tfjob_condition", condition="Succeeded")
    site.create_job("wrong", tfReplicaSpecs={})
    operator.wait_for("tfjob_condition", condition="Failed")
    site.api("DELETE", "tfjobs", "bad")
    eventually(lambda: operator.value("tf_operator_jobs_deleted_total") == 1.0, "the deletion is counted")
    eventually(lambda: operator.value("workqueue_depth", name="tfjob") == 0.0, "the queue is empty")
    last = operator.scrape()
    jobs = {dict(labels)["state"]: value for (name, labels), value in last.items() if name == "tf_operator_jobs"}
    assert jobs == {"Succeeded": 1.0, "Failed": 1.0}
    assert first.keys() <= last.keys()
    new = {name for name, _ in last.keys() - first.keys()}
    assert not [name for name in new if not name.startswith("tf_operator_jobs") or name.endswith("_total")]
    failures = ("namespace", site.namespace), ("reason", "InvalidTFJobSpec")
    assert last["tf_operator_job_failures_total", frozenset(failures)] == 1.0
    for family, labels in (
        ("tf_operator_jobs_{}_total", {}),
        ("training_operator_jobs_{}_total", {"job_namespace": site.namespace, "framework": "tensorflow"}),
    ):
        counted = {
            name: last[family.format(name), frozenset(labels.items())]
            for name in ("created", "deleted", "successful", "failed", "restarted")
        }
        assert counted == {"created": 2.0, "deleted": 1.0, "successful": 1.0, "failed": 1.0, "restarted": 0.0}
    at = frozenset({("name", "tfjob")})
    assert last["workqueue_adds_total", at] > 3.0
    host = ("host", f"127.0.0.1:{forwarder.port}")
    assert last["rest_client_requests_total", frozenset({("code", "201"), ("method", "POST"), host})] >= 4.0
    assert last["rest_client_rate_limiter_duration_seconds_count", frozenset({("verb", "POST"), host})] >= 4.0
    assert last["reflector_lists_total", frozenset({("name", f"tfjobs.kubeflow.org/{site.namespace}")})] == 1.0
    labels = {"controller": "tfjob", "result": "success"}
    assert last["controller_runtime_reconcile_total", frozenset(labels.items())] > 3.0
    assert last["tf_operator_is_leader", frozenset()] == 1.0
    lease = frozenset({("name", f"{site.namespace}/tf-operator")})
    assert last["leader_election_master_status", lease] == 1.0
    assert last["tf_operator_event_loop_lag_seconds_count", frozenset()] > 0.0


def test_a_restart_counts_no_job_a_second_time(site: Site) -> None:
    """The caches' initial adds are not counted as transitions."""
    operator = site.start()
    site.create_job("mnist")
    site.wait_for_pod("mnist-worker-0")
    assert operator.value("tf_operator_jobs_created_total") == 1.0
    assert operator.end()[0] == 0
    operator = site.working()
    at = {"controller": "tfjob", "result": "success"}
    eventually(lambda: operator.value("controller_runtime_reconcile_total", **at) >= 1.0, "the job is looked at")
    assert operator.value("tf_operator_jobs_created_total") == 0.0


RULES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "watch"]},
]


def test_a_namespaced_operator_needs_a_role_and_nothing_else(site: Site) -> None:
    """Namespaced mode: no cluster-wide right, none in another namespace; that includes the lease."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "tf-operator"}}
    site.post(role | {"rules": RULES})
    user = f"operator-of-{site.namespace}"
    site.kubectl("create", "rolebinding", "tf-operator", "--role=tf-operator", f"--user={user}")
    operator = site.working(kubeconfig=site.plane.kubeconfig_for(user))
    site.create_job("mnist", runPolicy={"cleanPodPolicy": "All"})
    site.wait_for_pod("mnist-worker-0")
    site.finish("mnist")
    eventually(lambda: site.names("pods") == [], "its pods are cleaned up")
    site.patch("tfjobs", "mnist", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}})
    eventually(lambda: site.names("tfjobs") == [], "the job is gone after its TTL")
    assert operator.end()[0] == 0
    assert [line for line in operator.lines() if line["level"] in {"warning", "error"}] == []
    assert "SuccessfulDeletePod" in [reason for _, reason, _ in site.events("mnist")]


def test_the_log_names_the_job_and_its_mistake(site: Site) -> None:
    """The operator's log shows an invalid specification, and every line has an event name."""
    operator = site.start("--log-level=debug")
    site.create_job("wrong", tfReplicaSpecs={"PS": {"replicas": -1}})
    line = operator.wait_for("tfjob_condition", condition="Failed")
    assert line["level"] == "warning"
    assert line["tfjob"] == f"{site.namespace}/wrong"
    assert "the spec is invalid" in line["message"]
    assert "spec.tfReplicaSpecs.PS.replicas" in line["message"]
    site.create_job("mnist")
    line = operator.wait_for("tfjob_event", reason="SuccessfulCreatePod")
    assert line["uid"] == site.job("mnist")["metadata"]["uid"]
    assert (line["replica_type"], line["pod"]) == ("worker", "mnist-worker-0")
    assert len(line["reconcile_id"]) == 8
    assert [line["event"] for line in operator.lines() if not re.fullmatch("[a-z_]+", line["event"])] == []


def test_no_secret_is_logged(site: Site, tmp_path: Path) -> None:
    """With a token that the server refuses, at the most verbose level."""
    config = json.loads(site.kubectl("config", "view", "--raw", "--output=json"))
    config["users"] = [{"name": user["name"], "user": {"token": "hush-hush-hush"}} for user in config["users"]]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    operator = site.start("--log-level=debug", kubeconfig=kubeconfig)
    line = operator.wait_for("list_and_watch_failed")
    assert "Unauthorized" in str(line)
    assert operator.end()[0] == 0
    assert "hush" not in operator.text()


def test_a_port_that_is_taken_is_reported_and_ends_the_process_with_1(site: Site) -> None:
    """One line that says which."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        operator = site.start(port=other.getsockname()[1])
        assert operator.process.wait(LIMIT_S) == 1
    (line,) = operator.lines("operator_failed")
    assert line["error"].startswith(f"cannot listen on 127.0.0.1:{operator.port}: ")
    assert "Traceback" not in operator.text()
