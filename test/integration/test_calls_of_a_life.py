"""The requests of a job from creation to deletion, counted in the server's audit log."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.audit import AuditLog
from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs
from integration.operator_process import ROOT
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

ALL = {"successPolicy": "AllWorkers"}  # else worker 0 ends the job a moment before the others have ended
QUIET_S = 5.0  # longer than anything that is coalesced or retried


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[tuple[Cluster, AuditLog]]:
    """A control plane of its own that keeps an audit log."""
    audit = AuditLog(tmp_path)
    with ControlPlane.start("audit", extra_apiserver_args=audit.flags) as plane:
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / "crd.yaml"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        plane.create_namespace("audited")
        yield Cluster(plane, "audited", tmp_path), audit


def calls_of_the_operator(audit: AuditLog) -> Counter[tuple[str, str]]:
    """The operator's requests so far, except those for its lease."""
    return Counter({call: count for call, count in audit.calls("tfjob-operator").items() if call[1] != "leases"})


def test_a_jobs_life_costs_its_children_three_status_writes_and_its_events(audited: tuple[Cluster, AuditLog]) -> None:
    """B33, B55: with one PS, four workers and cleanPodPolicy Running; after the end there are no more requests."""
    cluster, audit = audited
    with cluster.operator(), cluster.node():
        before = calls_of_the_operator(audit)
        cluster.create("life", specs(PS=replica(run="forever"), Worker=replica(4, "OnFailure", "3s:0")) | ALL)
        cluster.wait_for("life", ConditionType.SUCCEEDED)
        eventually(lambda: "life-ps-0" not in cluster.names("pods"), "the parameter server is cleaned up")
        time.sleep(QUIET_S)
        calls = calls_of_the_operator(audit) - before
        writes = {key: count for key, count in calls.items() if key[0] != "watch"}
        events = writes.pop(("create", "events")), writes.pop(("patch", "events"), 0)
        status = writes.pop(("patch", "tfjobs/status"))
        assert writes == {
            ("create", "pods"): 5,
            ("create", "services"): 5,
            ("delete", "pods"): 1,
            ("delete", "services"): 1,
        }
        assert events == (13, 0)  # ten of creation, two of deletion, one of the end
        assert status in {3, 4}  # Created, Running, Succeeded; and counters, where the machine is slow
        time.sleep(QUIET_S)
        assert calls_of_the_operator(audit) - before == calls
