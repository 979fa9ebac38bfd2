"""Jobs that stand still: the gauge that their alerts read, and the commands of the runbooks and of the way to a rollback."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from faults.processes import PATIENT
from hack.hollow_node.script import ON_STOP, RUN
from integration.cluster import Cluster, replica, specs, tfjob, with_policy
from integration.operator_process import OperatorProcess
from support.pages import below
from support.waiting import eventually
from tfjob_operator.api.v1.constants import LABEL_QUEUE, ConditionType
from tfjob_operator.controller.jobs.job_metrics import WAITING_SINCE

RUNBOOKS: Final = "docs/runbooks.md"
FINALIZER: Final = "example.com/keep"
FOREVER: Final = "forever"
LIMIT_S: Final = 120


class Reader:
    """A person who types commands of the docs, with what the words in capitals stand for."""

    def __init__(self, cluster: Cluster, home: Path, **words: str) -> None:
        """Put kubectl and the plugin into the PATH, with the namespace as that of the context."""
        programs = home / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(cluster.plane.kubectl)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        kubeconfig = home / "kubeconfig"
        kubeconfig.write_bytes(cluster.plane.kubeconfig.read_bytes())
        self._environment = {**os.environ, "HOME": str(home), "PATH": path, "KUBECONFIG": str(kubeconfig)}
        self._words = {"NAMESPACE": cluster.namespace, **words}
        self.runs("kubectl config set-context --current --namespace=NAMESPACE")

    def types(self, page: str, heading: str, start: str) -> str:
        """Type the commands of a section that begin like this. Return what they print."""
        commands = [each.text for each in below(page, heading) if each.text.startswith(start)]
        assert commands, f"no command {start} in {heading}"
        return "".join(map(self.runs, commands))

    def runs(self, command: str) -> str:
        text = re.sub(r"\b[A-Z]{3,}\b", lambda found: self._words.get(found[0], found[0]), command)
        done = subprocess.run(
            ["bash", "-c", text], env=self._environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout


def waiting(operator: OperatorProcess) -> set[str]:
    """The states in which a job waits."""
    series = operator.scrape()
    return {dict(labels)["state"] for name, labels in series if name == WAITING_SINCE.name}


def queued(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return tfjob(name, spec, labels={LABEL_QUEUE: "team"})


@contextmanager
def blocked_restart(cluster: Cluster, name: str) -> Iterator[None]:
    """A job of which one worker restarts, while a finalizer keeps its pod."""
    pod = f"{name}-worker-1"
    cluster.create(name, specs(Worker=replica(2, "ExitCode", FOREVER)))
    cluster.wait_for(name, ConditionType.RUNNING)
    cluster.patch("pods", pod, {"metadata": {"finalizers": [FINALIZER], "annotations": {RUN: "0s:137"}}})
    cluster.wait_for(name, ConditionType.RESTARTING)
    try:
        yield
    finally:
        if cluster.find("pods", pod) is not None:  # the namespace could not be deleted
            cluster.patch("pods", pod, {"metadata": {"finalizers": None}})


@pytest.fixture
def operator(cluster: Cluster) -> Iterator[OperatorProcess]:
    with cluster.operator(*PATIENT) as found, cluster.node():
        yield found


def test_a_restart_that_a_finalizer_blocks_is_found_and_unblocked_by_its_runbook(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    alert, reader = "TFJobsNotRestarting", Reader(cluster, tmp_path, JOB="stuck", POD="stuck-worker-1")
    with blocked_restart(cluster, "stuck"):
        eventually(lambda: waiting(operator) == {"Restarting"}, "the alert sees it")
        found = reader.types(RUNBOOKS, alert, "kubectl tfjob list")
        assert found.splitlines()[1].split()[:2] == ["stuck", "Restarting"]
        assert FINALIZER in reader.types(RUNBOOKS, alert, "kubectl tfjob explain")
        reader.types(RUNBOOKS, alert, "kubectl -n NAMESPACE patch pod")
        cluster.wait_for("stuck", ConditionType.RUNNING)
        reader.types(RUNBOOKS, alert, "kubectl -n NAMESPACE delete pod")
        eventually(lambda: waiting(operator) == set(), "no alert is left")
        reader.types(RUNBOOKS, alert, "kubectl tfjob suspend")
        cluster.wait_for("stuck", ConditionType.SUSPENDED)
        eventually(lambda: waiting(operator) == set(), "a user's suspension raises no alert")


def test_a_job_that_does_not_start_is_found_by_its_runbook(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    reader = Reader(cluster, tmp_path, JOB="waits")
    spec = specs(Worker=replica(1))
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "nobody"
    spec["runPolicy"] = {"progressDeadlineSeconds": 7777}
    cluster.create("waits", spec)
    cluster.wait_for("waits", ConditionType.CREATED)
    eventually(lambda: waiting(operator) == {"Created"}, "the alert sees it")
    eventually(lambda: cluster.warnings("waits"), "its pod is refused")
    found = reader.types(RUNBOOKS, "TFJobsNotStarting", "kubectl tfjob")
    assert found.splitlines()[1].split()[:2] == ["waits", "Created"]
    assert 'ServiceAccount "nobody" not found' in found
    assert ["1", "7777"] in [
        line.split() for line in reader.types(RUNBOOKS, "TFJobsLogsReadLate", "kubectl get").splitlines()
    ]
    cluster.api("DELETE", "tfjobs", "waits")
    eventually(lambda: waiting(operator) == set(), "no alert is left")


def test_a_job_that_its_queue_suspends_is_found_by_its_runbook(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    reader = Reader(cluster, tmp_path, JOB="queued")
    cluster.post(queued("queued", with_policy(specs(Worker=replica(1)), suspend=True)))
    cluster.create("paused", with_policy(specs(Worker=replica(1)), suspend=True))
    for name in ("queued", "paused"):
        cluster.wait_for(name, ConditionType.SUSPENDED)
    eventually(lambda: waiting(operator) == {"Queued"}, "the alert sees it")
    found = reader.types(RUNBOOKS, "TFJobsQueuedLong", "kubectl tfjob")
    assert "queued" in found
    cluster.patch("tfjobs", "queued", {"spec": {"runPolicy": {"suspend": False}}})
    cluster.wait_for("queued", ConditionType.SUCCEEDED)
    eventually(lambda: waiting(operator) == set(), "no alert is left, though a user's job is suspended")


def test_a_job_that_does_not_end_is_found_and_ended_by_its_runbook(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    """Its parameter server ignores SIGTERM."""
    alert, reader = "TFJobsNotEnding", Reader(cluster, tmp_path, JOB="ends", POD="ends-ps-0")
    spec = specs(Worker=replica(1, run="1s:0"), PS=replica(1, run=FOREVER))
    template = spec["tfReplicaSpecs"]["PS"]["template"]
    template["metadata"]["annotations"][ON_STOP] = "ignore"
    template["spec"]["terminationGracePeriodSeconds"] = 3600
    cluster.post(queued("ends", spec))
    eventually(lambda: waiting(operator) == {"Ending"}, "the alert sees it")
    found = reader.types(RUNBOOKS, alert, "kubectl tfjob")
    assert found.splitlines()[1].split()[:2] == ["ends", "Ending"]
    assert "ends-ps-0" in found
    reader.types(RUNBOOKS, alert, "kubectl -n NAMESPACE delete pod")
    cluster.wait_for("ends", ConditionType.SUCCEEDED)
    eventually(lambda: waiting(operator) == set(), "no alert is left")


def test_a_job_on_hold_is_found_by_its_runbook(cluster: Cluster, operator: OperatorProcess, tmp_path: Path) -> None:
    reader = Reader(cluster, tmp_path, JOB="edited")
    cluster.create("edited", specs(Worker=replica(1, run=FOREVER)))
    cluster.wait_for("edited", ConditionType.RUNNING)
    found = reader.types(RUNBOOKS, "TFJobsStartSlowly", "kubectl tfjob")
    assert found.splitlines()[1].split()[:2] == ["edited", "Running"]
    eventually(lambda: waiting(operator) == set(), "a running job raises no alert")
    cluster.patch("tfjobs", "edited", {"spec": {"runPolicy": {"backoffLimit": -1}}})
    eventually(lambda: waiting(operator) == {"Held"}, "the alert sees it")
    found = reader.types(RUNBOOKS, "TFJobsOnHold", "kubectl tfjob")
    assert "InvalidTFJobSpec" in found.splitlines()[1]
    assert "spec.runPolicy.backoffLimit" in found
    cluster.patch("tfjobs", "edited", {"spec": {"runPolicy": None}})
    eventually(lambda: waiting(operator) == set(), "no alert is left")


def test_jobs_that_a_rollback_would_disturb_are_found_and_can_be_suspended(
    cluster: Cluster, operator: OperatorProcess, tmp_path: Path
) -> None:
    """One whose restart is blocked, and one whose chief has succeeded while a worker uses its completion grace period."""
    page, heading = "docs/operations.md", "Upgrade and roll back"
    reader = Reader(cluster, tmp_path, NAME="stuck")

    def listed(start: str) -> list[str]:
        """What is printed about jobs of this namespace: others may be left by other tests."""
        lines = reader.types(page, heading, start).splitlines()
        return [" ".join(line.split()[:3]) for line in lines if line.startswith(cluster.namespace)]

    graceful = with_policy(
        specs(Chief=replica(1, run="1s:0"), Worker=replica(1, run=FOREVER)), completionGracePeriodSeconds=600
    )
    cluster.create("graceful", graceful)
    cluster.create("chiefless", with_policy(specs(Worker=replica(1, run=FOREVER)), completionGracePeriodSeconds=600))
    with blocked_restart(cluster, "stuck"):
        assert listed("kubectl tfjob list") == [f"{cluster.namespace} stuck Restarting"]
        in_grace = f"{cluster.namespace}/graceful"
        eventually(lambda: listed("kubectl get tfjobs") == [in_grace], "its chief has succeeded")
        reader.types(page, heading, "kubectl tfjob suspend")
        cluster.wait_for("stuck", ConditionType.SUSPENDED)
        assert listed("kubectl tfjob list") == []
    reader.types(page, heading, "kubectl tfjob resume")
    cluster.wait_for("stuck", ConditionType.RUNNING)
