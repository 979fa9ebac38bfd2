"""What users do with jobs: manifests that users have (manifests/examples), and the kubectl commands that go with them.

The hollow node runs no programs; annotations say what its pods do and print.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from hack.control_plane import ControlPlaneError
from hack.hollow_node.script import LOG, RUN
from hack.kubernetes_versions import Kubernetes
from hack.matrix import installing, releases
from hack.matrix.cluster import MANIFESTS, at_work, control_plane
from hack.matrix.installing import Check, Session
from hack.matrix.kubectl import Kubectl, columns_of, expect, expect_in
from hack.matrix.releases import CheckError, Release
from hack.matrix.report import Report, Result

DOCUMENTS: Final = (
    "01-mnist.yaml",
    "02-ps-workers.yaml",
    "03-gcp-credentials.yaml",
    "04-smoke-gpu.yaml",
    "05-master-ps-worker.yaml",
    "06-invalid.yaml",
    "migration/v1alpha2.yaml",
    "migration/v1beta1-gpu.yaml",
    "migration/v1beta1-master.yaml",
    "migration/v1beta2.yaml",
)
_NAME_BY_VERSION: Final = {
    "v1alpha2": "dist-v1alpha2",
    "v1beta1": "single-v1beta1",
    "v1beta2": "limited-v1beta2",
}
KUBEFLOW: Final = "--namespace=kubeflow"
"""Most of the documents name this namespace; the others, and our own jobs, are in `default`."""


def long_job(name: str, workers: int = 1) -> dict[str, Any]:
    """Return a job that runs until it is deleted."""
    template = {
        "metadata": {"annotations": {RUN: "forever", LOG: "loading data\nkeras 3 every 1s"}},
        "spec": {"containers": [{"name": "tensorflow", "image": "busybox:1.36", "command": ["sleep", "3600"]}]},
    }
    worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }


def create(session: Session) -> None:
    """`kubectl create -f` of the documents."""
    for document in DOCUMENTS:
        said = session.kubectl("create", "-f", str(MANIFESTS / "examples" / document))
        expect(re.fullmatch(r"tfjob\.kubeflow\.org/\S+ created\n", said) is not None, f"not created: {said}")


def wait_succeeded(session: Session) -> None:
    """`kubectl wait` for Succeeded and Failed works by name, in both namespaces and in the older versions."""
    said = session.kubectl("wait", "--for=condition=Succeeded", "--timeout=60s", "tfjob/mnist", KUBEFLOW)
    expect_in(said, "tfjob.kubeflow.org/mnist condition met")
    session.kubectl("wait", "--for=condition=Succeeded", "--timeout=60s", "tfjobs", "tf-smoke-gpu")
    session.kubectl("wait", "--for=condition=Failed", "--timeout=60s", "tfjob", "invalid", KUBEFLOW)
    for version in ("v1alpha2", "v1beta1", "v1beta2"):
        job = f"tfjobs.{version}.kubeflow.org/{_NAME_BY_VERSION[version]}"
        session.kubectl("wait", "--for=condition=Succeeded", "--timeout=60s", job)


def wait_jsonpath(session: Session) -> None:
    """`kubectl wait --for=jsonpath`, for those who look at counters."""
    counter = "--for=jsonpath={.status.replicaStatuses.Worker.succeeded}=1"
    session.kubectl("wait", counter, "--timeout=60s", "tfjob/mnist", KUBEFLOW)


def get_table(session: Session) -> None:
    """The columns of the CRD, by every name that a TFJob has, and in `get all`."""
    for name in ("tfjob", "tfjobs", "tfjobs.kubeflow.org", "tfjobs.v1.kubeflow.org"):
        said = session.kubectl("get", name, KUBEFLOW)
        expect(columns_of(said) == ["NAME", "STATE", "AGE"], f"columns of get {name}: {columns_of(said)}")
        row = next((line.split() for line in said.splitlines() if line.startswith("mnist ")), [])
        expect(row[:2] == ["mnist", "Succeeded"], f"the row of mnist: {row}")
    for version, columns in (("v1beta2", ["NAME", "STATE", "AGE"]), ("v1alpha2", ["NAME", "AGE"])):
        said = session.kubectl("get", f"tfjobs.{version}.kubeflow.org", KUBEFLOW)
        expect(columns_of(said) == columns, f"columns of {version}: {columns_of(said)}")
    expect_in(session.kubectl("get", "all", KUBEFLOW), "tfjob.kubeflow.org/mnist", "pod/mnist-worker-0")
    expect(columns_of(session.kubectl("get", "tfjobs", "--all-namespaces"))[0] == "NAMESPACE", "no column NAMESPACE")


def get_wide(session: Session) -> None:
    """`-o wide` has the columns of priority 1 too."""
    said = session.kubectl("get", "tfjob", "mnist", KUBEFLOW, "--output=wide")
    wide = ["NAME", "STATE", "AGE", "ACTIVE", "STARTED", "FINISHED", "REASON", "MESSAGE"]
    expect(columns_of(said) == wide, f"columns: {columns_of(said)}")


def get_yaml(session: Session) -> None:
    """`get -o yaml tfjobs ${JOB}`, `-o name`, `-o jsonpath`, `-o custom-columns`."""
    expect_in(session.kubectl("get", "-o", "yaml", "tfjobs", "mnist", KUBEFLOW), "kind: TFJob", "type: Succeeded")
    expect(session.kubectl("get", "tfjob", "mnist", KUBEFLOW, "-o", "name") == "tfjob.kubeflow.org/mnist\n", "-o name")
    path = "jsonpath={.status.conditions[-1:].type}"
    expect(session.kubectl("get", "tfjob", "mnist", KUBEFLOW, "-o", path) == "Succeeded", "-o jsonpath")
    columns = "custom-columns=JOB:.metadata.name,WORKERS:.spec.tfReplicaSpecs.Worker.replicas"
    expect(
        columns_of(session.kubectl("get", "tfjobs", KUBEFLOW, "-o", columns)) == ["JOB", "WORKERS"], "custom-columns"
    )


def describe(session: Session) -> None:
    """`describe tfjobs ${JOB}` shows the events, `describe pods` works, and `describe -o` is refused."""
    said = session.kubectl("describe", "tfjobs", "mnist", KUBEFLOW)
    expect_in(said, "Succeeded", "SuccessfulCreatePod", "SuccessfulCreateService", "Created pod: mnist-worker-0")
    expect_in(session.kubectl("describe", "tfjob", "invalid", KUBEFLOW), "Warning", "restartPolicy")
    expect_in(session.kubectl("describe", "pods", "mnist-worker-0", KUBEFLOW), "TFJob/mnist", "Completed")
    # A guide that users have says `describe tfjobs -o yaml`; no kubectl has ever had that flag.
    expect_in(session.kubectl.refused("describe", "tfjobs", "-o", "yaml", "mnist", KUBEFLOW), "unknown shorthand flag")


def logs(session: Session) -> None:
    """`logs ${PODNAME}`, of a pod that has ended and of one that runs, and by the job's labels."""
    expect(session.kubectl("logs", "mnist-worker-0", KUBEFLOW) == "", "mnist prints nothing")
    expect_in(session.kubectl("logs", "long-worker-0"), "loading data\nEpoch 1/3\n")
    of_job = f"--selector={_children_of('long')}"
    expect_in(session.kubectl("logs", of_job, "--timestamps", "--tail=1", "--prefix"), "[pod/long-worker-")


def apply_job(session: Session) -> None:
    """A job is applied client side, server side, and client side again; nothing conflicts, and a change is applied."""
    document = json.dumps(long_job("long", workers=2))
    expect_in(session.kubectl("apply", "-f", "-", stdin=document), "created")
    expect_in(session.kubectl("apply", "--server-side", "-f", "-", stdin=document), "serverside-applied")
    generation = _metadata(session)["generation"]
    session.kubectl("apply", "-f", "-", stdin=document)
    expect(_metadata(session)["generation"] == generation, "the specification was changed")
    changed = long_job("long", workers=2)
    changed["metadata"]["labels"] = {"team": "a"}
    expect_in(session.kubectl("apply", "-f", "-", stdin=json.dumps(changed)), "configured")
    session.kubectl("wait", "--for=condition=Running", "--timeout=60s", "tfjob/long")
    expect(_label(session, "team") == "a", "the change did not go through")


def scale(session: Session) -> None:
    """`kubectl scale` sets the number of workers, also under a condition."""
    expect_in(session.kubectl("scale", "tfjob", "long", "--replicas=3"), "tfjob.kubeflow.org/long scaled")
    session.kubectl.until(lambda: _running(session, "long") == 3, "three running workers")
    session.kubectl("scale", "tfjob/long", "--current-replicas=3", "--replicas=1")
    session.kubectl.until(lambda: _running(session, "long") == 1, "one running worker")
    expect_in(
        session.kubectl.refused("scale", "tfjob/long", "--current-replicas=5", "--replicas=2"), "Expected replicas"
    )


def patch(session: Session) -> None:
    """A merge patch suspends, a JSON patch resumes; without `--type`, kubectl sends a patch that no custom resource accepts."""
    merge = '{"spec":{"runPolicy":{"suspend":true}}}'
    expect_in(session.kubectl("patch", "tfjob", "long", "--type=merge", "-p", merge), "tfjob.kubeflow.org/long patched")
    session.kubectl("wait", "--for=condition=Suspended", "--timeout=60s", "tfjob/long")
    session.kubectl.until(lambda: _running(session, "long") == 0, "no running worker")
    operations = '[{"op":"replace","path":"/spec/runPolicy/suspend","value":false}]'
    session.kubectl("patch", "tfjob", "long", "--type=json", "-p", operations)
    session.kubectl("wait", "--for=condition=Running", "--timeout=60s", "tfjob/long")
    expect_in(session.kubectl.refused("patch", "tfjob", "long", "-p", merge), "application/merge-patch+json")


def label(session: Session) -> None:
    """Labels and annotations are set, changed and removed; labels are found by a selector."""
    session.kubectl("label", "tfjob", "long", "stage=one")
    session.kubectl("label", "tfjob", "long", "stage=two", "--overwrite")
    selected = session.kubectl("get", "tfjobs", "--selector=stage=two", "-o", "name")
    expect(selected == "tfjob.kubeflow.org/long\n", f"selected: {selected}")
    session.kubectl("label", "tfjob", "long", "stage-")
    expect(_label(session, "stage") is None, "the label is still there")
    session.kubectl("annotate", "tfjob", "long", "example.com/note=first")
    session.kubectl("annotate", "tfjob", "long", "example.com/note=second", "--overwrite")
    notes = _metadata(session)["annotations"]
    expect(notes["example.com/note"] == "second", f"annotations: {notes}")
    session.kubectl("annotate", "tfjob", "long", "example.com/note-")


def edit(session: Session) -> None:
    """`kubectl edit` and `kubectl replace` write back what was read."""
    session.kubectl("edit", "tfjob", "long", environment={"KUBE_EDITOR": "sed -i s/team:.a/team:\\ b/"})
    expect(_label(session, "team") == "b", "the edit did not go through")
    found = session.kubectl.read("get", "tfjob", "long")
    found["metadata"]["labels"]["team"] = "c"
    del found["metadata"]["resourceVersion"]  # the operator may have written a status since
    expect_in(session.kubectl("replace", "-f", "-", stdin=json.dumps(found)), "replaced")
    expect(_label(session, "team") == "c", "the replacement did not go through")


def delete_background(session: Session) -> None:
    """With background deletion, the usual one, the job is gone at once; its pods and services follow."""
    _until_runs(session, "background")
    session.kubectl("delete", "tfjob", "background", "--cascade=background")
    expect_in(session.kubectl.refused("get", "tfjob", "background"), "NotFound")
    session.kubectl.until(lambda: not _children(session, "background"), "pods and services are gone")


def delete_foreground(session: Session) -> None:
    """With foreground deletion the job stays until its children are gone; kubectl waits for that."""
    _until_runs(session, "foreground")
    session.kubectl("delete", "tfjob", "foreground", "--cascade=foreground")
    expect_in(session.kubectl.refused("get", "tfjob", "foreground"), "NotFound")
    left = _children(session, "foreground")
    expect(not left, f"the job went before its children: {[item['metadata']['name'] for item in left]}")


def delete_orphan(session: Session) -> None:
    """With `--cascade=orphan` the children stay, run on and have no owner; they can be deleted by their labels."""
    _until_runs(session, "orphan")
    session.kubectl("delete", "tfjob", "orphan", "--cascade=orphan")
    expect_in(session.kubectl.refused("get", "tfjob", "orphan"), "NotFound")
    left = _children(session, "orphan")
    owned = [item["metadata"]["name"] for item in left if item["metadata"].get("ownerReferences")]
    expect(len(left) == 2 and not owned, f"not one pod and one service without owner: {len(left)}, owned {owned}")
    expect(_running(session, "orphan") == 1, "the pod does not run on")
    session.kubectl("delete", "pods,services", f"--selector={_children_of('orphan')}")


def delete_file(session: Session) -> None:
    """`delete tfjob NAME`, `delete -f` of the document that it was created from, `wait --for=delete`."""
    session.kubectl(KUBEFLOW, "delete", "tfjob", "mnist", "--wait=false")
    session.kubectl("wait", "--for=delete", "--timeout=60s", "tfjob/mnist", KUBEFLOW)
    session.kubectl("delete", "-f", str(MANIFESTS / "examples" / "04-smoke-gpu.yaml"))


def delete_all(session: Session) -> None:
    """All jobs of all namespaces are deleted, as the guide says to do before the operator is removed."""
    session.kubectl("delete", "tfjobs", "--all", "--all-namespaces")
    expect(not session.kubectl.read("get", "tfjobs", "--all-namespaces")["items"], "a job is left")
    selector = "--selector=training.kubeflow.org/operator-name"
    session.kubectl.until(
        lambda: not session.kubectl.read("get", "pods,services", "--all-namespaces", selector)["items"],
        "pods and services are gone",
    )


def _children_of(job: str) -> str:
    return f"training.kubeflow.org/job-name={job}"


def _children(session: Session, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.kubectl.read("get", "pods,services", f"--selector={_children_of(job)}")[
        "items"
    ]
    return found


def _running(session: Session, job: str) -> int:
    return sum(
        item["kind"] == "Pod"
        and item["status"].get("phase") == "Running"
        and "deletionTimestamp" not in item["metadata"]
        for item in _children(session, job)
    )


def _until_runs(session: Session, job: str) -> None:
    session.kubectl("create", "-f", "-", stdin=json.dumps(long_job(job)))
    session.kubectl("wait", "--for=condition=Running", "--timeout=60s", f"tfjob/{job}")


def _label(session: Session, name: str) -> str | None:
    value: str | None = _metadata(session).get("labels", {}).get(name)
    return value


def _metadata(session: Session) -> dict[str, Any]:
    found: dict[str, Any] = session.kubectl.read("get", "tfjob", "long")["metadata"]
    return found


CHECKS: Final = (
    Check("create -f, the documents", create),
    Check("apply a job, both ways", apply_job),
    Check("wait --for=condition", wait_succeeded),
    Check("wait --for=jsonpath", wait_jsonpath),
    Check("get", get_table),
    Check("get -o wide", get_wide),
    Check("get -o yaml, name, jsonpath", get_yaml),
    Check("describe", describe),
    Check("logs", logs),
    Check("scale", scale),
    Check("patch", patch),
    Check("label, annotate", label),
    Check("edit, replace", edit),
    Check("delete --cascade=background", delete_background),
    Check("delete --cascade=foreground", delete_foreground),
    Check("delete --cascade=orphan", delete_orphan),
    Check("delete, delete -f", delete_file),
    Check("delete --all", delete_all),
)


# The life of each kubectl: install, use, remove, on a control plane of its own.


TOGETHER: Final = 2
"""How many kubectls are tried at once: each is one process at a time that waits little, and CI machines have two cores."""


class _StoppedError(Exception):
    """The life of another kubectl was interrupted, or failed: this one ends after its present check."""


def run(chosen: Sequence[Release], report: Report) -> None:
    """Run the lives of these releases. Raises FetchError before any of them when a program cannot be had.

    A life that breaks off is reported as a failed result: its control plane or operator does not start, or does not end well.
    """
    programs = {release: releases.program_of(release) for release in chosen}
    stop = threading.Event()
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="kubectl-matrix") as pool:
        lives = [pool.submit(_live, release, programs[release], report, stop) for release in chosen]
        try:
            for life in as_completed(lives):
                life.result()
        except BaseException:  # a Ctrl-C too: every life ends after its present check, and leaves nothing behind
            stop.set()
            for life in lives:
                life.cancel()
            raise


def _live(release: Release, program: Path, report: Report, stop: threading.Event) -> None:
    start = time.monotonic()
    try:
        with (
            control_plane(f"kubectl-{release.minor}") as (plane, server),
            tempfile.TemporaryDirectory(prefix="kubectl-home-") as home,
        ):
            session = Session(Kubectl(program, plane.kubeconfig, Path(home)), plane, release)
            try:
                run_checks(session, installing.CHECKS, server, report, stop)
                with at_work(plane):
                    run_checks(session, CHECKS, server, report, stop)
                run_checks(session, installing.REMOVING, server, report, stop)
            except ControlPlaneError as error:
                report.add(_broken(release, error, start), server)
    except ControlPlaneError as error:
        report.add(_broken(release, error, start), None)
    except _StoppedError:
        pass  # the one that stopped us reports why


def _broken(release: Release, error: ControlPlaneError, start: float) -> Result:
    return Result(release.client, "control plane and operator", str(error), str(error), time.monotonic() - start)


def run_checks(
    session: Session, checks: Iterable[Check], server: Kubernetes, report: Report, stop: threading.Event
) -> None:
    """Run these checks one after the other. An exception of a check is reported as its problem. Raises ControlPlaneError."""
    for check in checks:
        if stop.is_set():
            raise _StoppedError
        session.kubectl.transcript.clear()
        start = time.monotonic()
        problem, transcript = "", session.kubectl.transcript
        try:
            check.run(session)
        except CheckError as error:
            problem = str(error)
        except ControlPlaneError:  # the life is over, not this check alone
            raise
        except Exception as error:  # noqa: BLE001 - what a kubectl prints may be anything, and each is a finding
            problem = f"{type(error).__name__}: {error}"
            transcript += traceback.format_exc().splitlines()
        report.add(
            Result(session.release.client, check.name, problem, "\n".join(transcript), time.monotonic() - start), server
        )
