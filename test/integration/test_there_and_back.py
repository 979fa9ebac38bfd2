"""Jobs return from the real training-operator 1.9.4: the table of docs/migration.md, played from a recording.

The recording has jobs of both operators as training-operator left them: it ran here, was replaced by this operator, served the
jobs of both again, and was stopped. They are created again on a real API server without a node, and this operator starts.
"""

import gzip
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, SharedOperator
from support.waiting import eventually

RECORDING: Final = Path(__file__).parents[1] / "data" / "recordings" / "training-operator-1.9.4" / "back.json.gz"
STAMP: Final = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z"')
FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
NAMESPACE: Final = "hand2"
"""Of the recording."""
GONE: Final = frozenset({"gap-partly-worker-1", "gap-chief-worker-0"})
"""Pods of workers that had succeeded under training-operator, and were deleted while no operator ran."""
LARGE: Final = "o-configmap-with-a-name-that-is-long"
UNSERVED: Final = frozenset(
    {
        *("done", "failed", "partly", "multikueue"),  # finished under training-operator, or of another controller
        *(
            "o-grace",
            "o-grace-running",
            "o-held-ends",
            "o-policy",
        ),  # of this operator, finished under training-operator
    }
)
"""Jobs that this operator leaves as they are."""


class Row(NamedTuple):
    """What happens to a job: the True conditions besides Created, its counters, and how its pods and services change."""

    conditions: str
    counters: str
    created: str = ""
    deleted: str = ""
    services_deleted: str = ""


def returned(namespace: str) -> dict[str, list[dict[str, Any]]]:
    """Read the recording, as if it was of this namespace and of the last minutes."""
    text = gzip.decompress(RECORDING.read_bytes()).decode().replace(NAMESPACE, namespace)
    last = max(datetime.strptime(each, FORMAT).replace(tzinfo=UTC) for each in STAMP.findall(text))
    shift = datetime.now(UTC).replace(microsecond=0) - last - timedelta(seconds=5)

    def moved(found: re.Match[str]) -> str:
        return f'"{(datetime.strptime(found[1], FORMAT).replace(tzinfo=UTC) + shift).strftime(FORMAT)}Z"'

    content: dict[str, list[dict[str, Any]]] = json.loads(STAMP.sub(moved, text))
    return content


class Return:
    """The namespace of the recording, and the UIDs and versions of what was in it before the operator started."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        content = returned(cluster.namespace)
        content["pods"] = [each for each in content["pods"] if each["metadata"]["name"] not in GONE]
        self._jobs: dict[str, str] = {}
        statuses = {each["metadata"]["name"]: self._create_job(each) for each in content["jobs"]}
        uids = dict(map(self._create_child, content["pods"]))
        for each in (*content["services"], *content["others"]):
            self._create_child(each)
        for name, status in statuses.items():
            if status is not None:  # restarts refer to the UIDs of pods
                text = json.dumps(status)
                self._write_status(
                    "tfjobs", name, json.loads(re.sub("|".join(uids), lambda found: uids[found[0]], text))
                )
        self.jobs = self._of("tfjobs")
        self.pods, self.services = self._of("pods"), self._of("services")

    def _create_job(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Create a job, and return its status, which knows the generation of the new object."""
        status: dict[str, Any] | None = job.pop("status", None)
        if status is not None and "observedGeneration" in status:
            assert status["observedGeneration"] == job["metadata"]["generation"]
            status["observedGeneration"] = 1
        name = job["metadata"]["name"]
        self.cluster.post(job)
        self._jobs[name] = self.cluster.job(name)["metadata"]["uid"]
        return status

    def _create_child(self, child: dict[str, Any]) -> tuple[str, str]:
        """Create an object of a job, and return its UIDs, in the recording and now."""
        job, status, meta = child.pop("job"), child.pop("status", None), child["metadata"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": job, "uid": self._jobs[job]}
        old = meta.pop("uid", "")
        meta["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
        self.cluster.post(child)
        if status is None:
            return old, ""
        self._write_status("pods", meta["name"], status)
        uid: str = self.cluster.api("GET", "pods", meta["name"])["metadata"]["uid"]
        return old, uid

    def _write_status(self, resource: str, name: str, status: dict[str, Any]) -> None:
        self.cluster.patch(resource, f"{name}/status", {"status": status})

    def _of(self, resource: str) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.cluster.items(resource)}

    def children(self, resource: str, job: str) -> dict[str, tuple[str, str]]:
        """The UIDs and versions of the pods or services of a job, without those that are being deleted."""
        return {
            name: version_of(each)
            for name, each in self._of(resource).items()
            if each["metadata"]["ownerReferences"][0]["name"] == job and "deletionTimestamp" not in each["metadata"]
        }

    def before(self, resource: str, job: str) -> dict[str, tuple[str, str]]:
        known = self.pods if resource == "pods" else self.services
        return {
            name: version_of(each)
            for name, each in known.items()
            if each["metadata"]["ownerReferences"][0]["name"] == job
        }


def version_of(child: dict[str, Any]) -> tuple[str, str]:
    """The UID and version of a child; of a TensorBoard's, the content: another operator's release changes who manages it."""
    meta = child["metadata"]
    is_board = meta["name"].endswith("-tensorboard")
    return meta["uid"], json.dumps([meta["labels"], child["spec"]]) if is_board else meta["resourceVersion"]


@pytest.fixture(scope="module")
def back(
    control_plane: ControlPlane, crd: None, shared_operator: SharedOperator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Return]:
    """The jobs that returned, served by this operator."""
    shared_operator.stop()
    namespace = "there-and-back"
    control_plane.create_namespace(namespace)
    cluster = Cluster(control_plane, namespace, tmp_path_factory.mktemp("back"))
    found = Return(cluster)
    with cluster.operator("--leader-elect=false"):
        unfinished = [name for name in found.jobs if name not in UNSERVED]

        def served() -> list[str]:
            return [name for name in unfinished if not cluster.job(name).get("status", {}).get("observedGeneration")]

        eventually(lambda: not served(), "all jobs are served", yet=served)
        eventually(lambda: cluster.state("o-dynamic") == "Failed", "the elastic job has failed")
        yield found
    control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}")


ROWS: Final = {
    # Jobs of training-operator that were served by both.
    "chief": Row("Running", "Chief 1a, Evaluator 1a, Worker 2a"),
    "deadline": Row("Running", "Worker 1a"),
    "done": Row("Succeeded", "PS 1s, Worker 2s"),
    "dynamic": Row("Running", "PS 1a, Worker 2a"),
    "failed": Row("Failed", "PS 1a, Worker 2f"),
    "gap-chief": Row("Running", "Chief 1a, Worker 1s", services_deleted="worker-0"),
    "gap-partly": Row("Running", "Worker 2a 1s", services_deleted="worker-1"),
    "inplace": Row("Running", "Worker 1a"),
    "invalid-chief": Row("Held Running", "Chief 2a, Worker 1a"),
    "invalid-type": Row("Held Running", "Worker 1a"),
    "lower": Row("Running", "PS 1a, Worker 2a"),
    "managed": Row("Running", "Worker 1a"),
    "multikueue": Row("", ""),
    "oldpolicy": Row("Running", "PS 1a, Worker 1a"),
    "partly": Row("Succeeded", "Worker 3s"),
    "queued": Row("Running", "Worker 2a"),
    "ran-suspended": Row("Suspended", "Worker"),
    "restarted": Row("Running", "Worker 2a"),
    "restarting": Row("Restarting", "PS 1a, Worker", created="worker-0"),
    "run": Row("Running", "PS 2a, Worker 3a"),
    "sidecar": Row("Succeeded", "Worker 1s"),
    "suspended": Row("Running", "Worker 2a"),
    "template": Row("Running", "Worker 2a"),
    # Jobs of this operator that training-operator has served.
    LARGE: Row("Running", "PS 30a, Worker 60a"),
    "o-deadline": Row("Running", "Worker 1a"),
    "o-done": Row("Succeeded", "PS 1s, Worker 2s"),
    "o-dynamic": Row("Failed", "PS, Worker 1f", deleted="ps-0 worker-0", services_deleted="ps-0 worker-0"),
    "o-failed": Row("Failed", "PS, Worker 2f"),
    "o-grace": Row("Succeeded", "Worker 2s"),
    "o-grace-running": Row("Succeeded", "Worker 2s"),
    "o-held": Row("Running", "Worker 2a", deleted="trainer-0", services_deleted="trainer-0"),
    "o-held-ends": Row("Held Succeeded", "Trainer 1s, Worker 1s"),
    "o-invalid": Row("Failed", ""),
    "o-oldpolicy": Row("Running", "PS 1a, Worker 1a"),
    "o-partly2": Row("Running", "Worker 3a"),
    "o-policy": Row("Failed", "Worker 1a 1f"),
    "o-policy-onfailure": Row("Running", "Worker 2a"),
    "o-policy-restarted": Row("Running", "Worker 2a"),
    "o-queued": Row("Suspended", "Worker"),
    "o-ran-suspended": Row("Suspended", "Worker"),
    "o-restarted": Row("Running", "Worker 2a"),
    "o-run": Row("Running", "PS 2a, Worker 3a"),
    "o-shared": Row("Running", "PS 1a, Worker 2a", services_deleted="ps-0 worker-1"),
    "o-suspended": Row("Running", "Worker 2a"),
    "o-template": Row("Running", "Worker 2a"),
    "o-tensorboard": Row("Running", "Worker 1a"),
    "o-waiting": Row("Restarting", "PS 1a, Worker", created="worker-0"),
}


@pytest.mark.parametrize("job", ROWS)
def test_what_happens_to_a_job_that_returns(back: Return, job: str) -> None:
    """Its pods and services keep their UIDs and are not written, except for those of the row."""
    assert describe(back, job) == ROWS[job]
    if job in UNSERVED:
        now = back.cluster.job(job)["metadata"]
        assert now["resourceVersion"] == back.jobs[job]["metadata"]["resourceVersion"]


def describe(back: Return, job: str) -> Row:
    status = back.cluster.job(job).get("status", {})
    true = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
    counters = [
        f"{kind} {' '.join(str(count[key]) + key[0] for key in ('active', 'succeeded', 'failed') if count.get(key))}".strip()
        for kind, count in sorted(status.get("replicaStatuses", {}).items())
    ]
    changes = []
    for resource in ("pods", "services"):
        before, after = back.before(resource, job), back.children(resource, job)
        kept = before.keys() & after.keys()
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
        changes.append((sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())))
    (created, deleted), (_, services_deleted) = changes
    short = [" ".join(name.removeprefix(f"{job}-") for name in names) for names in (created, deleted, services_deleted)]
    return Row(" ".join(each for each in true if each != "Created"), ", ".join(counters), *short)


def test_the_table_has_every_job_of_the_recording(back: Return) -> None:
    assert back.jobs.keys() == ROWS.keys()


def test_a_worker_that_had_succeeded_does_not_run_again_though_its_pod_is_gone(back: Return) -> None:
    """training-operator records only how many have succeeded; as many pods are missing."""
    assert back.cluster.job("gap-partly")["status"]["finishedIndices"] == {"Worker": "1"}
    assert back.cluster.job("gap-chief")["status"]["finishedIndices"] == {"Worker": "0"}


def test_the_shared_network_of_running_pods_is_kept_after_training_operator_has_pruned_its_record(back: Return) -> None:
    """The Service of the replaced pod, which is not in the shared network, stays too."""
    assert "begun" not in back.jobs["o-shared"]["status"]
    assert back.cluster.job("o-shared")["status"]["begun"]["network"] == "shared"
    assert back.children("services", "o-shared").keys() == {"o-shared", "o-shared-worker-0"}
    assert not [event for event in back.cluster.warnings("o-shared") if event[0] == "NetworkNotUpdated"]


def test_a_spec_that_was_corrected_meanwhile_takes_the_job_off_hold(back: Return) -> None:
    found = {each["type"]: each for each in back.cluster.job("o-held")["status"]["conditions"]}
    assert (found["Held"]["status"], found["Held"]["reason"]) == ("False", "TFJobSpecMended")
