"""Each kubectl with its own control plane, in the order of this file: install, use, remove.

Jobs are from manifests/examples. The hollow node runs no programs; annotations define what its pods do.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import LOG, RUN
from hack.matrix.cluster import MANIFESTS, MONITORING_KINDS, at_work, open_crd
from hack.matrix.releases import RELEASES, Release, program_of
from hack.yaml_text import documents
from support.waiting import eventually

COMMAND_LIMIT_S: Final = 90.0  # the longest waits for a namespace to go, which takes some ten seconds
KUBEFLOW: Final = "--namespace=kubeflow"
"""Most of the documents name this namespace; the others, and our own jobs, are in `default`."""
FLOW_CONTROL: Final = ("addons/flow-control-v1beta1", "addons/flow-control-v1beta2", "addons/flow-control-v1")


class Difference(NamedTuple):
    """A test (of a folder) that is known to fail with some clients or servers; () and None mean all of them.

    `says` must appear in the failure, so that another one is not taken for it. docs/compatibility.md says the same to users.
    """

    what: str
    says: str
    reason: str
    clients: tuple[str, ...] = ()
    servers: range | None = None


FIELDS: Final = "test_explain_shows_the_descriptions_of_fields"
NO_MATCH: Final = "no matches for kind"
NOT_SERVED: Final = "this API server does not serve that version (docs/install.md: which addon for which)"
DIFFERENCES: Final = (
    Difference(FIELDS, "<integer>", "OpenAPI v2 leaves them out, v3 is served from 1.24 on", servers=range(24)),
    Difference(FIELDS, "<integer>", "kubectl reads OpenAPI v3 from 1.27 on", clients=("kubectl-1.22", "kubectl-1.26")),
    Difference(
        "test_wait_for_jsonpath", "unrecognized condition", "kubectl has it from 1.23 on", clients=("kubectl-1.22",)
    ),
    Difference("test_addon addons/admission", NO_MATCH, "it is for Kubernetes 1.30 and later", servers=range(30)),
    Difference("test_addon addons/flow-control-v1beta1", NO_MATCH, NOT_SERVED, servers=range(26, 100)),
    Difference("test_addon addons/flow-control-v1beta2", NO_MATCH, NOT_SERVED, servers=range(23)),
    Difference("test_addon addons/flow-control-v1beta2", NO_MATCH, NOT_SERVED, servers=range(29, 100)),
    Difference("test_addon addons/flow-control-v1", NO_MATCH, NOT_SERVED, servers=range(29)),
)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl as the administrator of a control plane; its caches and settings are in a folder of its own."""

    release: Release
    plane: ControlPlane
    home: Path
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """The operator and the hollow node, while they run."""

    def __call__(self, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """Run it, and return what it printed."""
        done = self._run(arguments, stdin, environment or {})
        assert done.returncode == 0, done.stderr.strip() or done.stdout.strip()
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """Run what has to be refused, and return stderr."""
        done = self._run(arguments, "", {})
        assert done.returncode != 0, "this should have been refused"
        return done.stderr

    def read(self, *arguments: str) -> dict[str, Any]:
        """Run a `get`, and return the object or list."""
        found: dict[str, Any] = json.loads(self("get", *arguments, "--output=json"))
        return found

    def _run(
        self, arguments: tuple[str, ...], stdin: str, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        print(f"$ kubectl {shlex.join(arguments)}")
        command = [str(program_of(self.release)), f"--kubeconfig={self.plane.kubeconfig}", *arguments]
        settings = {**os.environ, "HOME": str(self.home), **environment}
        done = subprocess.run(
            command, input=stdin, check=False, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, env=settings
        )
        print(f"{done.stdout}{done.stderr}")
        return done


@pytest.fixture(scope="module", params=RELEASES, ids=lambda each: each.client)
def kubectl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A kubectl with its control plane."""
    with ControlPlane.start(f"kubectl-{request.param.minor}") as plane:
        made = Kubectl(request.param, plane, tmp_path_factory.mktemp("home"))
        with made.stack:
            yield made


@pytest.fixture(autouse=True)
def _known_difference(request: pytest.FixtureRequest, kubectl: Kubectl) -> None:
    """Expect the failure that is known of this client or server, and no other."""
    test = request.node.originalname
    names = (test, f"{test} {request.node.callspec.params.get('folder')}")
    for each in DIFFERENCES:
        if (
            each.what in names
            and (not each.clients or kubectl.release.client in each.clients)
            and (each.servers is None or kubectl.plane.version.minor in each.servers)
        ):
            raises = pytest.RaisesExc(AssertionError, match=each.says)
            request.applymarker(pytest.mark.xfail(reason=each.reason, raises=raises, strict=True))
            return


def shows(text: str, *parts: str) -> bool:
    """Return whether all of this is part of a text."""
    return all(part in text for part in parts)


# What a person does with the manifests: build, apply client side and server side, look.


STANDALONE: Final = str(MANIFESTS / "overlays/standalone")
SERVER_SIDE: Final = ("apply", "--server-side", "-k", STANDALONE)


def folders(*names: str) -> pytest.MarkDecorator:
    """Run a test for each of these folders of manifests."""
    return pytest.mark.parametrize("folder", names)


@cache
def built(plane: ControlPlane, folder: str) -> dict[str, Any]:
    """Return what the control plane's own kubectl makes of a folder."""
    return objects(plane.run_kubectl("kustomize", str(MANIFESTS / folder)).stdout)


def objects(text: str) -> dict[str, Any]:
    """Return the objects of a text by kind and name."""
    return {f"{item['kind']} {item['metadata']['name']}": item for item in documents(text)}


def specs(kubectl: Kubectl) -> list[object]:
    """Return what an apply that changes nothing must not change."""
    names = ("crd/tfjobs.kubeflow.org", "deployment/tf-job-operator", "networkpolicy/tf-job-operator")
    return [kubectl.read(name, KUBEFLOW)["spec"] for name in names]


def test_version(kubectl: Kubectl) -> None:
    """The client has the expected version, and reads the server's."""
    found = json.loads(kubectl("version", "--output=json"))
    assert found["clientVersion"]["gitVersion"] == f"v{kubectl.release.version}"
    assert "gitVersion" in found["serverVersion"]


@folders(
    *("base", "cluster-wide", "overlays/standalone", "overlays/kubeflow", "overlays/namespaced", "overlays/monitoring"),
    *("addons/gang-scheduling", "addons/admission", *FLOW_CONTROL, "examples/training"),
)
def test_kustomize(kubectl: Kubectl, folder: str) -> None:
    """The kustomize in this kubectl makes the same objects from a folder as the one in the control plane's own kubectl."""
    assert objects(kubectl("kustomize", str(MANIFESTS / folder))) == built(kubectl.plane, folder)


def test_apply_server_side(kubectl: Kubectl) -> None:
    """`kubectl apply --server-side -k` of the installation for an empty cluster makes every object."""
    lines = kubectl(*SERVER_SIDE).splitlines()
    assert lines
    assert all(line.endswith("serverside-applied") for line in lines)
    kubectl.plane.wait_for_crd("tfjobs.kubeflow.org")  # kubectl 1.22 can not wait for conditions that are null
    kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/tfjobs.kubeflow.org")


def test_apply_server_side_again(kubectl: Kubectl) -> None:
    """Applying the same once more causes no conflict and changes no specification."""
    before = specs(kubectl)
    assert all(line.endswith("serverside-applied") for line in kubectl(*SERVER_SIDE).splitlines())
    assert specs(kubectl) == before


def test_diff(kubectl: Kubectl) -> None:
    """`kubectl diff --server-side` finds nothing that an apply would change.

    Kubectl 1.22 shows managed fields too, and in them the time of the last apply.
    """
    settings = {"KUBECTL_EXTERNAL_DIFF": "diff -u -N -Itime"}
    assert not kubectl("diff", "--server-side", "-k", STANDALONE, environment=settings).strip()


def test_apply_client_side(kubectl: Kubectl) -> None:
    """Without `--server-side`, kubectl refuses the CRD, and nothing else, as too long for an annotation."""
    before = specs(kubectl)
    said = kubectl.refused("apply", "-k", STANDALONE)
    assert shows(said, '"tfjobs.kubeflow.org" is invalid', "metadata.annotations", "262144")
    assert said.count("is invalid") == 1
    assert specs(kubectl) == before


def test_apply_server_side_over_a_crd_that_was_applied_client_side(kubectl: Kubectl) -> None:
    """It was, as long as it had one version; `--force-conflicts` takes it over."""
    kubectl("delete", "crd", "tfjobs.kubeflow.org")
    (crd,) = documents((MANIFESTS / "base" / "crd.yaml").read_text())
    versions = crd["spec"]["versions"]
    crd["spec"]["versions"] = versions[:1]
    kubectl("apply", "--filename=-", stdin=json.dumps(crd))
    kubectl.plane.wait_for_crd("tfjobs.kubeflow.org")
    kubectl("annotate", "crd", "tfjobs.kubeflow.org", "kubectl.kubernetes.io/last-applied-configuration-")
    kubectl(*SERVER_SIDE, "--force-conflicts")
    served = kubectl.read("crd/tfjobs.kubeflow.org")["spec"]["versions"]
    assert [each["name"] for each in served] == [each["name"] for each in versions]


def test_api_resources(kubectl: Kubectl) -> None:
    """Discovery shows TFJobs with their kind, and that they live in namespaces."""
    said = kubectl("api-resources", "--api-group=kubeflow.org", "--no-headers").split()
    assert said[0] == "tfjobs"
    assert {"kubeflow.org/v1", "true", "TFJob"} <= {*said}


def test_explain(kubectl: Kubectl) -> None:
    """`kubectl explain` has the descriptions of the CRD; that of `spec` names the fields in it."""
    assert shows(kubectl("explain", "tfjob"), "TFJob", "kubeflow.org", "runs a distributed TensorFlow training")
    assert "successPolicy" in kubectl("explain", "tfjobs.spec")
    assert shows(kubectl("explain", "tfjobs.status"), "Observed state of the job")


def test_explain_shows_the_descriptions_of_fields(kubectl: Kubectl) -> None:
    """Those of single fields, too (U6)."""
    assert shows(kubectl("explain", "tfjob.spec.runPolicy.backoffLimit"), "<integer>", "restarts")
    assert shows(kubectl("explain", "tfjob.status.conditions"), "lastTransitionTime", "the newest last")


@folders("overlays/kubeflow", "overlays/namespaced", "examples/training")
def test_dry_run(kubectl: Kubectl, folder: str) -> None:
    """Another installation beside this one passes the API server's validation."""
    dry = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(MANIFESTS / folder))
    lines = kubectl(*dry).splitlines()
    assert lines
    assert all(line.endswith("(server dry run)") for line in lines)


def test_monitoring_without_its_crds(kubectl: Kubectl) -> None:
    """Where there is no Prometheus operator, kubectl says which kinds are missing."""
    assert shows(kubectl.refused("apply", "-k", str(MANIFESTS / "overlays/monitoring")), NO_MATCH, *MONITORING_KINDS)


def test_monitoring(kubectl: Kubectl) -> None:
    """With CRDs of those kinds (without a schema), the overlay is applied, and deleted again."""
    for kind, plural in MONITORING_KINDS.items():
        crd = open_crd("monitoring.coreos.com", kind, plural)
        kubectl("create", "--filename=-", stdin=json.dumps(crd))
        kubectl.plane.wait_for_crd(f"{plural}.monitoring.coreos.com")
        kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{plural}.monitoring.coreos.com")
    test_addon(kubectl, "overlays/monitoring")


@folders("addons/gang-scheduling", "addons/admission", *FLOW_CONTROL)
def test_addon(kubectl: Kubectl, folder: str) -> None:
    """A folder is applied, and deleted."""
    kubectl("apply", "-k", str(MANIFESTS / folder))
    kubectl("delete", "-k", str(MANIFESTS / folder))


# What users do with jobs. The operator and a hollow node run from here on.


DOCUMENTS: Final = (
    *("01-mnist.yaml", "02-ps-workers.yaml", "03-gcp-credentials.yaml", "04-smoke-gpu.yaml"),
    *("05-master-ps-worker.yaml", "06-invalid.yaml", "migration/v1alpha2.yaml", "migration/v1beta1-gpu.yaml"),
    *("migration/v1beta1-master.yaml", "migration/v1beta2.yaml"),
)


def long_job(name: str, workers: int = 1) -> dict[str, Any]:
    """Return a job that runs until it is deleted."""
    template = {
        "metadata": {"annotations": {RUN: "forever", LOG: "loading data\nkeras 3 every 1s"}},
        "spec": {"containers": [{"name": "tensorflow", "image": "busybox:1.36", "command": ["sleep", "3600"]}]},
    }
    worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": template}
    about = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}}
    return about | {"spec": {"tfReplicaSpecs": {"Worker": worker}}}


def children_of(job: str) -> str:
    """Return the selector of a job's children."""
    return f"--selector=training.kubeflow.org/job-name={job}"


def children(kubectl: Kubectl, job: str) -> list[dict[str, Any]]:
    """Return the pods and services of a job."""
    found: list[dict[str, Any]] = kubectl.read("pods,services", children_of(job))["items"]
    return found


def running(kubectl: Kubectl, job: str) -> int:
    """Return how many pods of a job run."""
    return sum(
        each["kind"] == "Pod"
        and each["status"].get("phase") == "Running"
        and "deletionTimestamp" not in each["metadata"]
        for each in children(kubectl, job)
    )


def metadata(kubectl: Kubectl) -> dict[str, Any]:
    """Return the metadata of the job `long`."""
    found: dict[str, Any] = kubectl.read("tfjob", "long")["metadata"]
    return found


def columns(kubectl: Kubectl, *arguments: str) -> list[str]:
    """Return the headings of the table that a `get` prints."""
    return kubectl("get", *arguments).splitlines()[0].split()


def wait(kubectl: Kubectl, condition: str, *job: str) -> str:
    """Wait for a condition of a job, as `kubectl wait` does."""
    return kubectl("wait", f"--for=condition={condition}", "--timeout=60s", *job)


def test_create(kubectl: Kubectl) -> None:
    """`kubectl create -f` of the documents."""
    kubectl.stack.enter_context(at_work(kubectl.plane))
    for document in DOCUMENTS:
        said = kubectl("create", "-f", str(MANIFESTS / "examples" / document))
        assert re.fullmatch(r"tfjob\.kubeflow\.org/\S+ created\n", said)


def test_apply_a_job(kubectl: Kubectl) -> None:
    """Client side, server side, and client side again; nothing conflicts, and a change is applied."""
    document = long_job("long", workers=2)
    assert "created" in kubectl("apply", "-f", "-", stdin=json.dumps(document))
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(document))
    generation = metadata(kubectl)["generation"]
    kubectl("apply", "-f", "-", stdin=json.dumps(document))
    assert metadata(kubectl)["generation"] == generation
    document["metadata"]["labels"] = {"team": "a"}
    assert "configured" in kubectl("apply", "-f", "-", stdin=json.dumps(document))
    wait(kubectl, "Running", "tfjob/long")
    assert metadata(kubectl)["labels"]["team"] == "a"


def test_wait(kubectl: Kubectl) -> None:
    """`kubectl wait` for Succeeded and Failed works by name, in both namespaces and in the older versions."""
    assert "tfjob.kubeflow.org/mnist condition met" in wait(kubectl, "Succeeded", "tfjob/mnist", KUBEFLOW)
    wait(kubectl, "Succeeded", "tfjobs", "tf-smoke-gpu")
    wait(kubectl, "Failed", "tfjob", "invalid", KUBEFLOW)
    for job in ("v1alpha2.kubeflow.org/dist-v1alpha2", "v1beta1.kubeflow.org/single-v1beta1"):
        wait(kubectl, "Succeeded", f"tfjobs.{job}")
    wait(kubectl, "Succeeded", "tfjobs.v1beta2.kubeflow.org/limited-v1beta2")


def test_wait_for_jsonpath(kubectl: Kubectl) -> None:
    """For those who look at counters."""
    counter = "--for=jsonpath={.status.replicaStatuses.Worker.succeeded}=1"
    kubectl("wait", counter, "--timeout=60s", "tfjob/mnist", KUBEFLOW)


def test_get(kubectl: Kubectl) -> None:
    """The columns of the CRD, by every name that a TFJob has, and in `get all`."""
    for name in ("tfjob", "tfjobs", "tfjobs.kubeflow.org", "tfjobs.v1.kubeflow.org"):
        rows = [line.split() for line in kubectl("get", name, KUBEFLOW).splitlines()]
        assert rows[0] == ["NAME", "STATE", "AGE"]
        assert ["mnist", "Succeeded"] in [row[:2] for row in rows]
    assert columns(kubectl, "tfjobs.v1beta2.kubeflow.org", KUBEFLOW) == ["NAME", "STATE", "AGE"]
    assert columns(kubectl, "tfjobs.v1alpha2.kubeflow.org", KUBEFLOW) == ["NAME", "AGE"]
    assert shows(kubectl("get", "all", KUBEFLOW), "tfjob.kubeflow.org/mnist", "pod/mnist-worker-0")
    assert columns(kubectl, "tfjobs", "--all-namespaces")[0] == "NAMESPACE"


def test_get_wide(kubectl: Kubectl) -> None:
    """`-o wide` has the columns of priority 1 too."""
    wide = ["NAME", "STATE", "AGE", "ACTIVE", "STARTED", "FINISHED", "REASON", "MESSAGE"]
    assert columns(kubectl, "tfjob", "mnist", KUBEFLOW, "--output=wide") == wide


def test_get_other_outputs(kubectl: Kubectl) -> None:
    """`get -o yaml tfjobs ${JOB}`, `-o name`, `-o jsonpath`, `-o custom-columns`."""
    assert shows(kubectl("get", "-o", "yaml", "tfjobs", "mnist", KUBEFLOW), "kind: TFJob", "type: Succeeded")
    assert kubectl("get", "tfjob", "mnist", KUBEFLOW, "-o", "name") == "tfjob.kubeflow.org/mnist\n"
    path = "jsonpath={.status.conditions[-1:].type}"
    assert kubectl("get", "tfjob", "mnist", KUBEFLOW, "-o", path) == "Succeeded"
    own = "custom-columns=JOB:.metadata.name,WORKERS:.spec.tfReplicaSpecs.Worker.replicas"
    assert columns(kubectl, "tfjobs", KUBEFLOW, "-o", own) == ["JOB", "WORKERS"]


def test_describe(kubectl: Kubectl) -> None:
    """`describe tfjobs ${JOB}` shows the events, `describe pods` works, and `describe -o` is refused."""
    events = ("Succeeded", "SuccessfulCreatePod", "SuccessfulCreateService", "Created pod: mnist-worker-0")
    assert shows(kubectl("describe", "tfjobs", "mnist", KUBEFLOW), *events)
    assert shows(kubectl("describe", "tfjob", "invalid", KUBEFLOW), "Warning", "restartPolicy")
    assert shows(kubectl("describe", "pods", "mnist-worker-0", KUBEFLOW), "TFJob/mnist", "Completed")
    # A guide that users have says `describe tfjobs -o yaml`; no kubectl has ever had that flag.
    assert "unknown shorthand flag" in kubectl.refused("describe", "tfjobs", "-o", "yaml", "mnist", KUBEFLOW)


def test_logs(kubectl: Kubectl) -> None:
    """`logs ${PODNAME}`, of a pod that has ended and of one that runs, and by the job's labels."""
    assert kubectl("logs", "mnist-worker-0", KUBEFLOW) == ""
    assert "loading data\nEpoch 1/3\n" in kubectl("logs", "long-worker-0")
    assert "[pod/long-worker-" in kubectl("logs", children_of("long"), "--timestamps", "--tail=1", "--prefix")


def test_scale(kubectl: Kubectl) -> None:
    """`kubectl scale` sets the number of workers, also under a condition."""
    assert "tfjob.kubeflow.org/long scaled" in kubectl("scale", "tfjob", "long", "--replicas=3")
    eventually(lambda: running(kubectl, "long") == 3, "three workers run")
    kubectl("scale", "tfjob/long", "--current-replicas=3", "--replicas=1")
    eventually(lambda: running(kubectl, "long") == 1, "one worker runs")
    assert "Expected replicas" in kubectl.refused("scale", "tfjob/long", "--current-replicas=5", "--replicas=2")


def test_patch(kubectl: Kubectl) -> None:
    """A merge patch suspends, a JSON patch resumes; without `--type`, kubectl sends a patch that no custom resource accepts."""
    merge = '{"spec":{"runPolicy":{"suspend":true}}}'
    assert "tfjob.kubeflow.org/long patched" in kubectl("patch", "tfjob", "long", "--type=merge", "-p", merge)
    wait(kubectl, "Suspended", "tfjob/long")
    eventually(lambda: running(kubectl, "long") == 0, "no worker runs")
    operations = '[{"op":"replace","path":"/spec/runPolicy/suspend","value":false}]'
    kubectl("patch", "tfjob", "long", "--type=json", "-p", operations)
    wait(kubectl, "Running", "tfjob/long")
    assert "application/merge-patch+json" in kubectl.refused("patch", "tfjob", "long", "-p", merge)


def test_label(kubectl: Kubectl) -> None:
    """Labels and annotations are set, changed and removed; labels are found by a selector."""
    kubectl("label", "tfjob", "long", "stage=one")
    kubectl("label", "tfjob", "long", "stage=two", "--overwrite")
    assert kubectl("get", "tfjobs", "--selector=stage=two", "-o", "name") == "tfjob.kubeflow.org/long\n"
    kubectl("label", "tfjob", "long", "stage-")
    assert "stage" not in metadata(kubectl)["labels"]
    kubectl("annotate", "tfjob", "long", "example.com/note=first")
    kubectl("annotate", "tfjob", "long", "example.com/note=second", "--overwrite")
    assert metadata(kubectl)["annotations"]["example.com/note"] == "second"
    kubectl("annotate", "tfjob", "long", "example.com/note-")


def test_edit(kubectl: Kubectl) -> None:
    """`kubectl edit` and `kubectl replace` write back what was read."""
    kubectl("edit", "tfjob", "long", environment={"KUBE_EDITOR": "sed -i s/team:.a/team:\\ b/"})
    found = kubectl.read("tfjob", "long")
    assert found["metadata"]["labels"]["team"] == "b"
    found["metadata"]["labels"]["team"] = "c"
    del found["metadata"]["resourceVersion"]  # the operator may have written a status since
    assert "replaced" in kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert metadata(kubectl)["labels"]["team"] == "c"


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_delete_with_cascade(kubectl: Kubectl, cascade: str) -> None:
    """Pods and services follow the job with background deletion, the usual one; with foreground deletion kubectl waits.

    With `--cascade=orphan` they stay, run on and have no owner; they can be deleted by their labels.
    """
    kubectl("create", "-f", "-", stdin=json.dumps(long_job(cascade)))
    wait(kubectl, "Running", f"tfjob/{cascade}")
    kubectl("delete", "tfjob", cascade, f"--cascade={cascade}")
    assert "NotFound" in kubectl.refused("get", "tfjob", cascade)
    if cascade == "orphan":
        left = children(kubectl, cascade)
        assert [each["metadata"].get("ownerReferences") for each in left] == [None, None]
        assert running(kubectl, cascade) == 1
        kubectl("delete", "pods,services", children_of(cascade))
    if cascade == "background":
        eventually(lambda: not children(kubectl, cascade), "its children are gone")
    assert not children(kubectl, cascade)


def test_delete_file(kubectl: Kubectl) -> None:
    """`delete tfjob NAME`, `delete -f` of the document that it was created from, `wait --for=delete`."""
    kubectl(KUBEFLOW, "delete", "tfjob", "mnist", "--wait=false")
    kubectl("wait", "--for=delete", "--timeout=60s", "tfjob/mnist", KUBEFLOW)
    kubectl("delete", "-f", str(MANIFESTS / "examples" / "04-smoke-gpu.yaml"))


def test_delete_all(kubectl: Kubectl) -> None:
    """All jobs of all namespaces are deleted, as the guide says to do before the operator is removed."""
    kubectl("delete", "tfjobs", "--all", "--all-namespaces")
    assert not kubectl.read("tfjobs", "--all-namespaces")["items"]
    selector = "--selector=training.kubeflow.org/operator-name"
    eventually(
        lambda: not kubectl.read("pods,services", "--all-namespaces", selector)["items"], "all children are gone"
    )


def test_delete_the_installation(kubectl: Kubectl) -> None:
    """The operator ends well; `kubectl delete -k` deletes all that was applied, and waits until it is gone."""
    kubectl.stack.close()
    kubectl("delete", "-k", STANDALONE)
    for name in ("crd/tfjobs.kubeflow.org", "namespace/kubeflow", "clusterrole/tf-job-operator"):
        assert "NotFound" in kubectl.refused("get", name)
