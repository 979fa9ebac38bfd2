"""The verbs that delete: `restart` pods, `prune` ended jobs; nothing but what was seen."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from unit.cli.conftest import Server, job, run

JOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
PODS = "/api/v1/namespaces/team/pods"
PREFIX = "training.kubeflow.org"


def pod(name: str, phase: str = "Running", **meta: Any) -> dict[str, Any]:
    kind, index = name.split("-")
    labels = {f"{PREFIX}/job-name": "mnist", f"{PREFIX}/replica-type": kind, f"{PREFIX}/replica-index": index}
    owner = {"uid": "u1", "controller": True, "kind": "TFJob", "name": "mnist"}
    about = {"name": f"mnist-{name}", "uid": f"uid-{name}", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": about | meta, "status": {"phase": phase}}


def deletes(server: Server) -> dict[str, Any]:
    return {path: json.loads(body)["preconditions"] for method, path, _, body in server.asked if method == "DELETE"}


def test_restart_deletes_those_very_pods(server: Server, kubeconfig: Path) -> None:
    """What has succeeded stays, what is being deleted is left; a pod of another job with these labels is not touched."""
    server.answers(f"{JOBS}/mnist", job(conditions=("Running",)))
    other = pod("worker-9")
    other["metadata"]["ownerReferences"][0]["uid"] = "else"
    pods = [
        pod("worker-0"),
        pod("worker-1", "Succeeded"),
        pod("worker-2", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("worker-3"),
        other,
    ]
    server.answers(PODS, {"metadata": {}, "items": pods})
    server.answers(f"{PODS}/mnist-worker-0", {})
    server.answers(f"{PODS}/mnist-worker-3", {"message": "the UID does not match", "reason": "Conflict"}, code=409)
    result = run("restart", f"--kubeconfig={kubeconfig}", "mnist")
    assert result.output.splitlines() == [
        "pod/mnist-worker-0 deleted",
        "pod/mnist-worker-1 not deleted: worker-1 has succeeded",
        "pod/mnist-worker-2 is already being deleted",
        "pod/mnist-worker-3 was already recreated",
    ]
    assert deletes(server) == {
        f"{PODS}/mnist-worker-0": {"uid": "uid-worker-0"},
        f"{PODS}/mnist-worker-3": {"uid": "uid-worker-3"},
    }


def test_restart_of_some_is_of_those_alone(server: Server, kubeconfig: Path) -> None:
    """A refusal is told, the others are tried; a dry run changes nothing."""
    server.answers(f"{JOBS}/mnist", job(conditions=("Running",)))
    server.answers(PODS, {"metadata": {}, "items": [pod(f"worker-{index}") for index in range(3)]})
    server.answers(f"{PODS}/mnist-worker-0", {"message": "no", "reason": "Forbidden"}, code=403)
    server.answers(f"{PODS}/mnist-worker-1", {})
    chosen = ["--index=0", "--replica=worker-1"]
    dry = run("restart", f"--kubeconfig={kubeconfig}", "mnist", *chosen, "--dry-run")
    assert dry.output.splitlines() == [f"pod/mnist-worker-{index} deleted (dry run)" for index in (0, 1)]
    assert deletes(server) == {}
    result = run("restart", f"--kubeconfig={kubeconfig}", "mnist", *chosen)
    assert (result.exit_code, result.stdout) == (1, "pod/mnist-worker-1 deleted\n")
    assert result.stderr == "Error from server (Forbidden): no\n"


@pytest.mark.parametrize(
    ("code", "wanted", "why"),
    [
        (200, 0, "The operator is stopped: its Deployment kubeflow/tf-job-operator is scaled to 0"),
        (200, 1, ""),
        (403, 0, ""),
    ],
)
def test_restart_deletes_no_pod_that_nobody_would_recreate(
    server: Server, kubeconfig: Path, code: int, wanted: int, why: str
) -> None:
    """As far as its user may look: else the pods are deleted."""
    server.answers(f"{JOBS}/mnist", job(conditions=("Running",)))
    server.answers(PODS, {"metadata": {}, "items": [pod("worker-0")]})
    server.answers(f"{PODS}/mnist-worker-0", {})
    meta = {"name": "tf-job-operator", "namespace": "kubeflow"}
    operator = {"metadata": meta, "spec": {"replicas": wanted}, "status": {"readyReplicas": wanted}}
    for path in ("/apis/apps/v1/deployments", "/apis/coordination.k8s.io/v1/leases"):
        items = [operator] if "apps" in path else []
        server.answers(path, {"metadata": {}, "items": items, "reason": "Forbidden"}, code=code)
    result = run("restart", f"--kubeconfig={kubeconfig}", "mnist")
    assert bool(deletes(server)) is not bool(why)
    refusal = f"error: pods of mnist not deleted, because nobody would recreate them: {why}\n"
    assert (result.exit_code, result.stderr) == ((1, refusal) if why else (0, ""))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (job(conditions=("Failed",)), "kubectl replace --force -f mnist.saved.yaml"),
        (job(spec={"runPolicy": {"suspend": True}}), "kubectl tfjob resume mnist"),
        (job(conditions=("Running", "Held")), "mnist is on hold, and its pods would not be recreated"),
        (job(), "mnist has no pods"),
    ],
)
def test_restart_says_what_to_do_where_it_can_do_nothing(
    server: Server, kubeconfig: Path, given: dict[str, Any], says: str
) -> None:
    """For a job that has ended, is suspended or on hold, or has not begun."""
    server.answers(f"{JOBS}/mnist", given)
    server.answers(PODS, {"metadata": {}, "items": []})
    result = run("restart", f"--kubeconfig={kubeconfig}", "mnist")
    assert result.exit_code == 1
    assert says in result.stderr


def ended(name: str, state: str, days: float | None, **meta: Any) -> dict[str, Any]:
    """A job that ended so many days ago; with None nothing says when."""
    made = job(name, conditions=("Running", state), uid=f"uid-{name}")
    made["metadata"] |= meta
    if days is not None:
        made["status"]["completionTime"] = f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
    return made


def ended_jobs(server: Server) -> None:
    items = [
        ended("old", "Succeeded", 9),
        ended("failed", "Failed", 8),
        ended("young", "Succeeded", 1),
        ended("timeless", "Succeeded", None),
        job("runs", conditions=("Running",)),
        ended("going", "Succeeded", 9, deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    server.answers(JOBS, {"metadata": {}, "items": items})
    for each in items:
        server.answers(f"{JOBS}/{each['metadata']['name']}", {})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["old", "failed", "young", "timeless"]),
        (["--older-than=7d"], ["old", "failed"]),
        (["--state=failed"], ["failed"]),
        (["--state=Succeeded", "--older-than=24h"], ["old", "young"]),
    ],
)
def test_prune_deletes_what_has_ended_as_it_was_seen(
    server: Server, kubeconfig: Path, options: list[str], names: list[str]
) -> None:
    """And nothing else, by UID and version; a job that does not say when it ended is never old enough."""
    ended_jobs(server)
    result = run("prune", f"--kubeconfig={kubeconfig}", "--yes", *options)
    assert result.output.splitlines() == [f"tfjob.kubeflow.org/{name} deleted" for name in names]
    assert deletes(server) == {f"{JOBS}/{name}": {"uid": f"uid-{name}", "resourceVersion": "7"} for name in names}


def test_prune_deletes_jobs_of_tensorflow_org_too(server: Server, kubeconfig: Path) -> None:
    """Each by the path of its API; a cluster with neither API is told so."""
    first = JOBS.replace("kubeflow.org/v1", "tensorflow.org/v1alpha1")
    assert "TFJobs are not served by this cluster" in run("prune", f"--kubeconfig={kubeconfig}", "--yes").stderr
    server.answers(first, {"metadata": {}, "items": [ended("old", "Failed", 9)]})
    server.answers(f"{first}/old", {})
    assert run("prune", f"--kubeconfig={kubeconfig}", "--yes").output == "tfjob.tensorflow.org/old deleted\n"
    server.answers(JOBS, {"metadata": {}, "items": [ended("old", "Succeeded", 9)]})
    server.answers(f"{JOBS}/old", {})
    result = run("prune", f"--kubeconfig={kubeconfig}", "--yes")
    assert result.output == "tfjob.kubeflow.org/old deleted\ntfjob.tensorflow.org/old deleted\n"
    assert {*deletes(server)} == {f"{JOBS}/old", f"{first}/old"}


def test_prune_deletes_nothing_that_nobody_agreed_to(server: Server, kubeconfig: Path, mocker: MockerFixture) -> None:
    """A script has to say --yes; a person is shown what would be deleted."""
    ended_jobs(server)
    refused = run("prune", f"--kubeconfig={kubeconfig}")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "error: standard input is not a terminal: pass --yes to delete 4 jobs, or --dry-run to list them\n",
    )
    dry = run("prune", f"--kubeconfig={kubeconfig}", "--dry-run", "--state=failed")
    assert dry.output == "tfjob.kubeflow.org/failed deleted (dry run)\n"
    mocker.patch("click.testing._NamedTextIOWrapper.isatty", return_value=True, create=True)
    for answer, code in (("n\n", 1), ("", 1), ("y\n", 0)):
        assert deletes(server) == {}
        asked = run("prune", f"--kubeconfig={kubeconfig}", "--state=failed", stdin=answer)
        assert "Delete this job?" in asked.output
        assert asked.exit_code == code
    assert list(deletes(server)) == [f"{JOBS}/failed"]


def test_prune_goes_on_when_one_job_can_not_be_deleted(server: Server, kubeconfig: Path) -> None:
    """In all namespaces; one that is gone already is as good as deleted."""
    items = [ended(name, "Failed", 9) for name in ("changed", "gone", "forbidden", "fine")]
    server.answers("/apis/kubeflow.org/v1/tfjobs", {"metadata": {}, "items": items})
    server.answers(f"{JOBS}/changed", {"message": "the version does not match", "reason": "Conflict"}, code=409)
    server.answers(f"{JOBS}/forbidden", {"message": "no", "reason": "Forbidden"}, code=403)
    server.answers(f"{JOBS}/fine", {})
    result = run("prune", f"--kubeconfig={kubeconfig}", "-A", "-l", "team=vision", "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"tfjob.kubeflow.org/{name} in team deleted" for name in ("gone", "fine")]
    assert "has changed and was not deleted" in result.stderr
    assert "labelSelector=team%3Dvision" in server.asked[0][1]
    server.answers("/apis/kubeflow.org/v1/tfjobs", {"metadata": {}, "items": []})
    assert run("prune", f"--kubeconfig={kubeconfig}", "-A").stderr == "No finished jobs found.\n"
