"""The Helm chart on a real API server, with real helm binaries: installed, upgraded, rolled back and removed while jobs run.

The control plane runs Deployments, and a hollow node their pods, so `--wait` works. A separate process does the work of the
operator, with the service account and permissions of the release.
"""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fakes.manifests import read_document
from faults import releases
from hack.chart.__main__ import CHART, ROOT
from hack.chart.helm import Helm
from hack.control_plane import ControlPlane, ControlPlaneError
from hack.hollow_node.script import RUN
from hack.image.build import VERSION
from hack.matrix.cluster import MONITORING_KINDS, hollow_node, open_crd, operator
from hack.matrix.releases import HELMS, cached
from integration.cluster import replica, specs, tfjob
from support.machine import lacks
from support.waiting import eventually

RELEASE: Final = "tf-job"
NAMESPACE: Final = "kubeflow"
JOBS: Final = "team-a"
CRD: Final = "tfjobs.kubeflow.org"
TF_JOB: Final = "tfjobs.tensorflow.org"
SECRET_LIMIT: Final = 1_048_576
"""The bytes that the data of a Secret may have, by the API server's MaxSecretSize."""
RUNNING: Final = "--set-string=podAnnotations." + RUN.replace(".", r"\.") + "=forever"
"""The pods of the Deployment run on; without it a hollow node ends each after two seconds."""
DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
WAIT: Final = ("--wait", "--timeout=120s")
IMAGE: Final = "--set=image.repository=tfjob-operator"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with Deployments, and a hollow node for their pods; the releases have cluster-wide names."""
    with ControlPlane.start("chart", extra_controllers=("deployment", "replicaset")) as plane, hollow_node(plane):
        for name in (NAMESPACE, JOBS):
            plane.create_namespace(name)
        yield plane


class Installation:
    """The release of a test, handled by one version of helm."""

    def __init__(self, helm: Helm, plane: ControlPlane) -> None:
        self.helm = helm
        self._plane = plane

    def __call__(self, command: str, *arguments: str, namespace: str = NAMESPACE) -> str:
        """Run a command of helm about the release."""
        return self.helm(command, RELEASE, *arguments, f"--namespace={namespace}")

    def install(self, chart: Path, *arguments: str, namespace: str = NAMESPACE) -> str:
        """Install a chart, and wait until its pods are ready."""
        return self("install", str(chart), IMAGE, RUNNING, *WAIT, *arguments, namespace=namespace)

    def upgrade(self, chart: Path) -> str:
        return self("upgrade", str(chart), IMAGE, RUNNING, *WAIT)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._plane.run_kubectl(*arguments, input=stdin).stdout

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> Any:
        text = self.kubectl("get", kind, name, "--ignore-not-found", "--output=json", f"--namespace={namespace}")
        return json.loads(text) if text else None

    def state(self) -> tuple[str, set[str]]:
        """What tells one version of the chart from another: the operator's image, and the columns of TFJobs."""
        deployment, crd = self.get("deployment", "tf-job-operator"), self.get("crd", CRD)
        versions = crd["spec"]["versions"]
        columns = {column["name"] for each in versions for column in each.get("additionalPrinterColumns", ())}
        return deployment["spec"]["template"]["spec"]["containers"][0]["image"], columns

    def pods(self) -> dict[str, tuple[str, str]]:
        """The pods of jobs: their UIDs and phases by name."""
        found = json.loads(self.kubectl("get", "pods", f"--namespace={JOBS}", "--output=json"))["items"]
        return {each["metadata"]["name"]: (each["metadata"]["uid"], each["status"]["phase"]) for each in found}

    def clean(self) -> None:
        """Take away releases, the CRD with all jobs, and what was applied without helm."""
        for each in json.loads(self.helm("list", "--all-namespaces", "--output=json")):
            self.helm("uninstall", each["name"], f"--namespace={each['namespace']}")
        self._plane.run_kubectl("delete", "crd", CRD, TF_JOB, "--ignore-not-found")
        self._plane.run_kubectl("delete", "clusterrole", "--selector=app.kubernetes.io/name=tfjob-operator")
        for kind in ("servicemonitors", "prometheusrules"):
            self._plane.run_kubectl("delete", "crd", f"{kind}.monitoring.coreos.com", "--ignore-not-found")
        self.kubectl("delete", "pods,services", "--all", f"--namespace={JOBS}", "--grace-period=0", "--force")


def installation(plane: ControlPlane, folder: Path, version: str) -> Installation:
    """An installation by a helm from the cache; the test is skipped if that helm was not fetched."""
    program = cached("helm", version)
    if program is None:
        pytest.skip(lacks(f"helm {version}", "make chart"))
    return Installation(Helm(program, folder, plane.kubeconfig), plane)


@pytest.fixture(params=[HELMS[-1].helm])
def release(request: pytest.FixtureRequest, plane: ControlPlane, tmp_path: Path) -> Iterator[Installation]:
    """An installation in which nothing is installed yet, by the newest helm unless a test asks for another."""
    found = installation(plane, tmp_path, request.param)
    yield found
    found.clean()


def by_helm(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test with each helm that the chart supports; with the older ones under these marks."""
    older = [pytest.param(each.helm, marks=marks) for each in HELMS[:-1]]
    return pytest.mark.parametrize("release", [*older, HELMS[-1].helm], indirect=True, ids=lambda helm: f"helm-{helm}")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart as the previous release might have had it: an older version, and a CRD that serves and shows less."""
    folder = tmp_path_factory.mktemp("before") / "chart"
    shutil.copytree(CHART, folder)  # symbolic links become copies of their targets
    chart = read_document(folder / "Chart.yaml") | {"version": "0.0.9", "appVersion": "0.0.9"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    crd = read_document(folder / "files" / "base" / "crd.yaml")
    crd["spec"]["versions"] = [each for each in crd["spec"]["versions"] if each["storage"]]
    crd["spec"]["versions"][0]["additionalPrinterColumns"][1:] = []
    (folder / "files" / "base" / "crd.yaml").write_text(yaml.dump(crd, Dumper=DUMPER, sort_keys=False))
    return folder


@by_helm()
def test_jobs_run_on_in_their_pods_while_the_operator_is_upgraded_rolled_back_and_removed(
    release: Installation, plane: ControlPlane, before: Path
) -> None:
    """The CRD is upgraded and rolled back with the operator, and stays when the release goes; a later one takes up the jobs."""
    release.install(before)
    plane.wait_for_crd(CRD)
    old = release.state()
    assert old[0] == "tfjob-operator:0.0.9"
    job = tfjob("goes-on", specs(Worker=replica(2, run="forever")), namespace=JOBS)
    with operator(plane):
        release.kubectl("create", "-f", "-", stdin=json.dumps(job))
        eventually(lambda: [phase for _, phase in release.pods().values()] == ["Running"] * 2, "both workers run")
        running = release.pods()
        release.upgrade(CHART)
        new = release.state()
        assert new[0] == f"tfjob-operator:{VERSION}"
        assert new[1] > old[1]
        release("rollback", "1", *WAIT)
        assert release.state() == old
        release.upgrade(CHART)
        assert release.state() == new
    release("uninstall", "--wait")
    assert release.get("deployment", "tf-job-operator") is None
    assert release.get("clusterrole", "tf-job-operator") is None
    assert release.get("clusterrole", "kubeflow-tfjobs-edit") is not None  # users may still see and delete their jobs
    assert release.get("tfjob", "goes-on", JOBS)["status"]["conditions"][-1]["type"] == "Running"
    assert release.pods() == running
    release.install(CHART)
    with operator(plane):
        # Worker 0 alone: its end is the job's, and the other worker may be cleaned up before kubectl comes to it.
        release.kubectl("annotate", "pod", "goes-on-worker-0", "--overwrite", f"{RUN}=0s:0", f"--namespace={JOBS}")

        def is_over() -> bool:
            return bool(release.get("tfjob", "goes-on", JOBS)["status"]["conditions"][-1]["type"] == "Succeeded")

        eventually(is_over, "the job has succeeded")


def statuses(crd: Any) -> list[Any]:
    return [each["schema"]["openAPIV3Schema"]["properties"]["status"] for each in crd["spec"]["versions"]]


@by_helm(pytest.mark.nightly)
def test_the_crd_of_the_release_before_is_upgraded_and_rolled_back(release: Installation, tmp_path: Path) -> None:
    """Its own chart, out of git's history. What operators of both releases do meanwhile is in test/faults/test_upgrade.py."""
    try:
        older = releases.before(tmp_path / "before")
    except releases.NotThereError as error:
        pytest.skip(lacks("git's history", str(error)))
    old, new = (statuses(read_document(each.crd)) for each in (older, releases.present()))
    release.install(older.root / "manifests" / "chart")
    assert statuses(release.get("crd", CRD)) == old
    release.upgrade(CHART)
    assert statuses(release.get("crd", CRD)) == new
    release("rollback", "1", *WAIT)
    assert statuses(release.get("crd", CRD)) == old


@by_helm(pytest.mark.nightly)
def test_the_command_of_old_documents_installs_into_the_namespace_at_hand(
    release: Installation, plane: ControlPlane
) -> None:
    """With the release's name where Helm 3 wants it. The output says how to check that it runs, and how to serve TfJobs."""
    said = release.install(CHART, "--replace", "--set=cloud=azure", namespace="default")
    assert "STATUS: deployed" in said
    assert "It runs when this command succeeds:" in said
    assert "kubectl -n default rollout status deployment/tf-job-operator" in said
    assert release.get("deployment", "tf-job-operator", "default")["status"]["readyReplicas"] == 2
    assert release.get("clusterrolebinding", "tf-job-operator")["subjects"][0]["namespace"] == "default"
    config = release.get("configmap", "tf-job-operator-config", "default")["data"]
    assert "libcuda" in config["controller_config_file.yaml"]
    apis = "apis={kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1}"
    assert f"--reuse-values \\\n      --set '{apis}'" in said
    assert release.get("crd", TF_JOB) is None
    said = release("upgrade", str(CHART), *WAIT, "--reuse-values", f"--set={apis}", namespace="default")
    assert "--reuse-values" not in said
    plane.wait_for_crd(TF_JOB)
    release.kubectl("create", "-f", str(ROOT / "manifests/examples/migration/v1alpha1/tensorflow-org.yaml"))


@by_helm(pytest.mark.nightly)
def test_after_a_failed_install_the_notes_can_be_read_and_the_command_repeated(release: Installation) -> None:
    """As docs/install.md says: with `helm upgrade --install`, which `helm install` is not."""
    nowhere = ("--set=nodeSelector.disk=none", "--wait", "--timeout=5s")
    command = ("upgrade", "--install", RELEASE, str(CHART), f"--namespace={NAMESPACE}", IMAGE, RUNNING)
    with pytest.raises(ControlPlaneError, match=r"timed out|deadline exceeded"):
        release.helm(*command, *nowhere)
    notes = release.helm("get", "notes", RELEASE, f"--namespace={NAMESPACE}")
    assert "logs --selector=name=tf-job-operator --ignore-errors --tail=-1" in notes
    assert "kubeflow-tfjobs-*" in notes
    with pytest.raises(ControlPlaneError, match="a name that is still in use"):
        release.install(CHART)
    release.helm(*command, *WAIT)
    assert release.get("deployment", "tf-job-operator")["status"]["readyReplicas"] == 2


@by_helm(pytest.mark.nightly)
def test_a_second_release_leaves_the_crd_alone_or_is_refused(release: Installation) -> None:
    """It is refused before it creates anything; with the CRD switched off it serves another namespace beside the first."""
    release.install(CHART)
    second = ("install", "second", str(CHART), f"--namespace={JOBS}", "--set=namespaced=true", IMAGE, RUNNING)
    with pytest.raises(ControlPlaneError, match="invalid ownership metadata"):
        release.helm(*second)
    assert release.get("serviceaccount", "tf-job-operator", JOBS) is None
    release.helm(*second, *WAIT, "--set=crds.install=false,userRoles.create=false")
    assert release.get("deployment", "tf-job-operator", JOBS)["status"]["readyReplicas"] == 2
    assert release.get("crd", CRD)["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE


@by_helm(pytest.mark.nightly)
def test_all_that_can_be_switched_on_is_taken_by_the_api_server(release: Installation, plane: ControlPlane) -> None:
    """CRDs that accept everything stand in for the kinds of the Prometheus operator.

    The record of the release has the CRD twice: in the chart's files and in the objects. It fits into its Secret, twice.
    """
    for kind, plural in MONITORING_KINDS.items():
        release.kubectl("apply", "-f", "-", stdin=json.dumps(open_crd("monitoring.coreos.com", kind, plural)))
        plane.wait_for_crd(f"{plural}.monitoring.coreos.com")
    switches = ("serviceMonitor", "prometheusRule", "grafanaDashboard", "gangScheduling", "flowControl", "nodes")
    release.install(CHART, *(f"--set={name}.enabled=true" for name in switches))
    for kind in (*MONITORING_KINDS.values(), "flowschema"):
        assert release.get(kind, "tf-job-operator") is not None
    assert release.get("configmap", "tf-job-operator-dashboard") is not None
    secret = release.get("secret", f"sh.helm.release.v1.{RELEASE}.v1")
    assert sum(len(base64.b64decode(value)) for value in secret["data"].values()) < SECRET_LIMIT / 2


def test_a_release_of_helm_3_is_upgraded_by_helm_4(plane: ControlPlane, before: Path, tmp_path: Path) -> None:
    """As happens when users upgrade helm itself first."""
    old, new = (installation(plane, tmp_path, release.helm) for release in (HELMS[0], HELMS[-1]))
    try:
        old.install(before)
        first = old.state()
        new.upgrade(CHART)
        assert new.state()[1] > first[1]
        new("rollback", "1", *WAIT)
        assert new.state() == first
    finally:
        new.clean()


@pytest.mark.parametrize(
    ("version", "flags"), [("3.17.1", ["--take-ownership"]), ("4.2.3", ["--take-ownership", "--force-conflicts"])]
)
def test_helm_takes_over_what_kubectl_applied(
    plane: ControlPlane, tmp_path: Path, version: str, flags: list[str]
) -> None:
    """Since helm 3.17; the objects are not recreated, so no job notices."""
    release = installation(plane, tmp_path, version)
    folder = str(ROOT / "manifests" / "overlays" / "kubeflow")
    try:
        release.kubectl("apply", "--server-side", "-k", folder)
        kinds = (("deployment", "tf-job-operator"), ("crd", CRD))
        uids = [release.get(*each)["metadata"]["uid"] for each in kinds]
        with pytest.raises(ControlPlaneError, match="invalid ownership metadata"):
            release.install(CHART)
        release.install(CHART, *flags)
        assert [release.get(*each)["metadata"]["uid"] for each in kinds] == uids
        release("uninstall", "--wait")
        release.kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)  # and back again
        assert release.get("crd", CRD)["metadata"]["uid"] == uids[1]
    finally:
        release.kubectl("delete", "--ignore-not-found", "-k", folder, "--wait=false")
        release.clean()
