"""The Helm chart rendered by real helms: its objects are those of the kustomizations, and each value works as described.

`make chart` downloads the helms and a kubectl into the cache; without them these tests are skipped. Tests without helm are in
`test/unit/test_chart.py`.
"""

import copy
import functools
import json
import re
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from hack.chart.__main__ import CHART, ROOT, pack
from hack.chart.documents import leaves
from hack.chart.helm import Helm
from hack.control_plane.build.commands import ControlPlaneError, output_of
from hack.image.build import VERSION
from hack.matrix.releases import HELMS, Release, cached
from hack.yaml_text import documents as documents_of
from support.machine import lacks
from tfjob_operator.controller.config.file import parse
from tfjob_operator.controller.options import parse_options

MANIFESTS: Final = ROOT / "manifests"
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
HELMS_LABELS: Final = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}
IMAGE: Final = "image.repository=tfjob-operator"
"""The one value that has no default; with it the chart's objects are those of the kustomizations."""
KEEP: Final = {"helm.sh/resource-policy": "keep"}
USER_ROLES: Final = ("kubeflow-tfjobs-", "tensorflow-tfjobs-")
"""The cluster roles of people, who need them as long as there are jobs."""

Objects = dict[tuple[str, str, str], dict[str, Any]]
"""By kind, namespace and name."""


def objects_of(text: str) -> Objects:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in documents_of(text)
        if each is not None
    }


@functools.cache
def kustomized(folder: str) -> Objects:
    """The objects that kustomize makes from a folder of the manifests."""
    kubectl = cached("kubectl", HELMS[-1].version)
    if kubectl is None:
        pytest.skip(lacks("a newer kubectl", "make chart"))
    return objects_of(output_of(str(kubectl), "kustomize", str(MANIFESTS / folder)))


class Renderer:
    """One helm, and the objects that it makes from the chart."""

    def __init__(self, helm: Helm) -> None:
        self.helm = helm
        self._made: dict[tuple[str, ...], Objects] = {}

    def __call__(
        self, *settings: str, namespace: str = "kubeflow", flags: tuple[str, ...] = (), crd: bool = False
    ) -> Objects:
        """The chart's objects with these settings; without the CRD, which is slow, unless `crd` is true."""
        sets = [f"--set={setting}" for setting in (IMAGE, *settings, *([] if crd else ["crds.install=false"]))]
        options = (f"--namespace={namespace}", *sets, *flags)
        if options not in self._made:
            self._made[options] = objects_of(self.helm("template", "tf-job", str(CHART), *options))
        return copy.deepcopy(self._made[options])

    def pod(self, *settings: str) -> dict[str, Any]:
        """The specification of the operator's pods with these settings."""
        spec: dict[str, Any] = self(*settings)["Deployment", "kubeflow", "tf-job-operator"]["spec"]["template"]["spec"]
        return spec


def renderer(release: Release, folder: Path) -> Renderer:
    """A helm from the cache; if it is not there, the test is skipped."""
    program = cached("helm", release.helm)
    if program is None:
        pytest.skip(lacks(f"helm {release.helm}", "make chart"))
    return Renderer(Helm(program, folder))


@pytest.fixture(scope="module", params=HELMS, ids=lambda release: f"helm-{release.helm}")
def each_helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """Each helm that the chart is for."""
    return renderer(request.param, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """The newest helm, for what does not differ between them."""
    return renderer(HELMS[-1], tmp_path_factory.mktemp("helm"))


def plain(found: Objects) -> Objects:
    """The objects without what Helm adds: its labels, which each object has, and the annotation that keeps some of them."""
    for each in found.values():
        labels = each["metadata"]["labels"]
        assert labels.keys() >= HELMS_LABELS
        each["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in HELMS_LABELS}
        if each["kind"] == "CustomResourceDefinition" or each["metadata"]["name"].startswith(USER_ROLES):
            assert each["metadata"].pop("annotations") == KEEP
    return found


def test_lint_finds_nothing_wrong(each_helm: Renderer) -> None:
    """There is not even a warning."""
    each_helm.helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    ("folder", "settings"),
    [
        ("overlays/standalone", ()),
        ("overlays/kubeflow", ("kubeflowLabels=true",)),
        ("overlays/namespaced", ("namespaced=true",)),
    ],
)
def test_an_installation_has_the_objects_of_its_kustomization(
    each_helm: Renderer, folder: str, settings: tuple[str, ...]
) -> None:
    """All fields are equal; only the namespace is missing, which `--create-namespace` makes."""
    expected = {key: each for key, each in kustomized(folder).items() if key[0] != "Namespace"}
    assert plain(each_helm(*settings, crd=True)) == expected


@pytest.mark.parametrize(
    ("folder", "settings", "flags"),
    [
        (
            "overlays/monitoring",
            ("serviceMonitor.enabled=true", "prometheusRule.enabled=true", "grafanaDashboard.enabled=true"),
            (),
        ),
        ("addons/gang-scheduling", ("gangScheduling.enabled=true",), ()),
        ("addons/nodes", ("nodes.enabled=true",), ()),
        ("addons/logs", ("logs.enabled=true",), ()),
        ("addons/page", ("page.enabled=true",), ()),
        ("addons/admission", ("admissionPolicy.enabled=true",), ()),
        ("addons/accelerators-azure", ("cloud=azure",), ()),
        ("addons/accelerators-gke", ("cloud=gke",), ()),
        ("addons/flow-control-v1beta1", ("flowControl.enabled=true",), ("--kube-version=1.22.17",)),
        ("addons/flow-control-v1beta2", ("flowControl.enabled=true",), ("--kube-version=1.23.0-gke.1",)),
        ("addons/flow-control-v1beta2", ("flowControl.enabled=true",), ("--kube-version=1.28.15",)),
        ("addons/flow-control-v1", ("flowControl.enabled=true",), ("--kube-version=1.29.0-eks-1",)),
    ],
    ids=str,
)
def test_what_is_switched_on_adds_the_objects_of_its_folder(
    each_helm: Renderer, folder: str, settings: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    """It adds those and no others, and removes none."""
    before, after = each_helm(), each_helm(*settings, flags=flags)
    assert not [key for key in before if key[0] == "CustomResourceDefinition"]
    assert before.keys() <= after.keys()
    assert plain({key: each for key, each in after.items() if key not in before}) == kustomized(folder)


def test_messages_about_each_failed_job_are_sent_on_request(each_helm: Renderer) -> None:
    """Whoever runs the operator need not be told of each. It adds the objects of its folder."""
    switch = "prometheusRule.enabled=true"
    before, after = each_helm(switch), each_helm(switch, "prometheusRule.alerts.TFJobFailed.enabled=true")
    made = {key: each for key, each in after.items() if key not in before}
    assert plain(made) == kustomized("addons/team-alerts")


EVERY_API: Final = "apis={kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1}"
ALPHA_CRD: Final = ("CustomResourceDefinition", "", "tfjobs.tensorflow.org")


def test_every_api_adds_what_the_addon_of_the_alpha_dialect_adds(each_helm: Renderer) -> None:
    """It adds the second CRD, which is kept like the other one, permissions, and roles for people."""
    before, after = each_helm(crd=True), each_helm(EVERY_API, crd=True)
    assert before.keys() <= after.keys()
    assert plain({key: each for key, each in after.items() if key not in before}) == kustomized("addons/alpha")


@pytest.mark.parametrize(
    ("apis", "crds"),
    [
        ("kubeflow.org/v1alpha1", {"tfjobs.kubeflow.org"}),
        ("tensorflow.org/v1alpha1", {"tfjobs.tensorflow.org"}),
    ],
)
def test_only_the_crds_of_the_apis_are_installed(rendered: Renderer, apis: str, crds: set[str]) -> None:
    """If only the CRD of tensorflow.org is installed, `kubectl get tfjob` means its jobs, as in guides of 2017."""
    found = rendered(f"apis={{{apis}}}", crd=True)
    assert {name for kind, _, name in found if kind == "CustomResourceDefinition"} == crds
    assert ("ClusterRole", "", "tf-job-operator-alpha") in found
    assert ALPHA_CRD not in rendered(EVERY_API)


@pytest.mark.parametrize(
    "settings",
    [("namespaced=true", "gangScheduling.enabled=true", EVERY_API), ("flowControl.enabled=true",)],
    ids=str,
)
def test_another_namespace_takes_the_place_of_kubeflow_everywhere(
    rendered: Renderer, settings: tuple[str, ...]
) -> None:
    """Also in the subjects of role bindings and flow schemas."""
    here = json.dumps(sorted(rendered(*settings).items()))
    there = json.dumps(sorted(rendered(*settings, namespace="team-a").items()))
    assert there == here.replace('"kubeflow"', '"team-a"')


@pytest.mark.parametrize(("cloud", "mounts"), [("azure", 3), ("gke", 2)])
def test_the_operator_finds_and_reads_what_a_cloud_needs(rendered: Renderer, cloud: str, mounts: int) -> None:
    """The name of the ConfigMap, its key and the path in the pod fit together, and the operator can parse the text."""
    config = rendered(f"cloud={cloud}")["ConfigMap", "kubeflow", "tf-job-operator-config"]
    (key,) = config["data"]
    pod = rendered.pod(f"cloud={cloud}")
    (volume,) = [
        volume["name"]
        for volume in pod["volumes"]
        if volume.get("configMap", {}).get("name") == config["metadata"]["name"]
    ]
    (path,) = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == volume]
    assert f"--controller-config-file={path}/{key}" in pod["containers"][0]["args"]
    accelerators = parse(config["data"][key].encode()).accelerators or {}
    assert {name: len(found.volumes or ()) if found else 0 for name, found in accelerators.items()} == {
        "alpha.kubernetes.io/nvidia-gpu": mounts
    }


def test_an_operator_of_one_namespace_has_no_right_outside_of_it(rendered: Renderer) -> None:
    """Nor for pod groups and Jobs; of nodes, which have no namespace, it may read. Other cluster roles are bound to nobody."""
    switches = ("gangScheduling.enabled=true", "nodes.enabled=true", "logs.enabled=true")
    found = rendered("namespaced=true", *switches, EVERY_API)
    assert [name for kind, _, name in found if kind == "ClusterRoleBinding"] == ["tf-job-operator-nodes-kubeflow"]
    rules = found["ClusterRole", "", "tf-job-operator-nodes-kubeflow"]["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    assert {name for kind, _, name in found if kind == "RoleBinding"} == {
        "tf-job-operator",
        "tf-job-operator-lease",
        "tf-job-operator-deployment",
        "tf-job-operator-gang-scheduling",
        "tf-job-operator-lost-pods",
        "tf-job-operator-logs",
        "tf-job-operator-alpha",
    }


FLAGS: Final = {
    "namespaced": ("namespaced=true", ["--namespace=$(KUBEFLOW_NAMESPACE)"]),
    "logLevel": ("logLevel=debug", ["--log-level=debug"]),
    "qps": ("qps=1000000", ["--qps=1000000", "--burst=10"]),
    "burst": ("qps=5,burst=1000000", ["--qps=5", "--burst=1000000"]),
    "gangScheduling.enabled": ("gangScheduling.enabled=true", ["--enable-gang-scheduling"]),
    "gangScheduling.schedulerName": (
        "gangScheduling.enabled=true,gangScheduling.schedulerName=co",
        ["--enable-gang-scheduling", "--gang-scheduler-name=co"],
    ),
    "apis": ("apis={kubeflow.org/v1,kubeflow.org/v1alpha1}", ["--apis=kubeflow.org/v1,kubeflow.org/v1alpha1"]),
    "tensorboardImage": ("tensorboardImage=r.example.com/board:2", ["--tensorboard-image=r.example.com/board:2"]),
    "tensorboardServiceTypes": ("tensorboardServiceTypes={ClusterIP}", ["--tensorboard-service-types=ClusterIP"]),
    "leaderElection.enabled": ("leaderElection.enabled=false,replicas=1", ["--leader-elect=false"]),
    "leaderElection.leaseDuration": ("leaderElection.leaseDuration=1m", ["--leader-elect-lease-duration=1m"]),
    "leaderElection.renewDeadline": ("leaderElection.renewDeadline=5s", ["--leader-elect-renew-deadline=5s"]),
    "leaderElection.retryPeriod": ("leaderElection.retryPeriod=500ms", ["--leader-elect-retry-period=500ms"]),
    "extraArgs": ("extraArgs={--resync-period=0,--threadiness=4}", ["--resync-period=0", "--threadiness=4"]),
}
"""By value of the chart: the setting, and the flags that the operator gets for it."""


@pytest.mark.parametrize("value", FLAGS)
def test_a_value_becomes_flags_that_the_operator_knows(rendered: Renderer, value: str) -> None:
    """They are added to those that it always gets, and it can parse all of them."""
    settings, expected = FLAGS[value]
    always = rendered.pod()["containers"][0]["args"]
    arguments = rendered.pod(settings)["containers"][0]["args"]
    assert arguments == [*always, *expected]
    read = [
        parse_options([flag.replace("$(KUBEFLOW_NAMESPACE)", "kubeflow") for flag in flags], {})
        for flags in (always, arguments)
    ]
    assert read[0] != read[1]


OPENSHIFT: Final = {"runAsNonRoot": True, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
DIGEST: Final = f"@sha256:{64 * 'a'}"
PODS: Final[dict[str, tuple[str, tuple[str | int, ...], Any]]] = {
    "image.repository": ("image.repository=r.io:5000/a/op", ("containers", 0, "image"), f"r.io:5000/a/op:{VERSION}"),
    "image.tag": (f"image.tag=1{DIGEST}", ("containers", 0, "image"), f"tfjob-operator:1{DIGEST}"),
    "image.pullPolicy": ("image.pullPolicy=Always", ("containers", 0, "imagePullPolicy"), "Always"),
    "imagePullSecrets": ("imagePullSecrets[0].name=registry", ("imagePullSecrets",), [{"name": "registry"}]),
    "extraEnv": ("extraEnv[0].name=A,extraEnv[0].value=b", ("containers", 0, "env", -1), {"name": "A", "value": "b"}),
    "resources": ("resources.limits.memory=1Gi", ("containers", 0, "resources", "limits"), {"memory": "1Gi"}),
    "podSecurityContext": ("podSecurityContext.runAsUser=null", ("securityContext",), OPENSHIFT),
    "securityContext": (
        "securityContext.readOnlyRootFilesystem=false",
        ("containers", 0, "securityContext", "readOnlyRootFilesystem"),
        False,
    ),
    "topologySpreadConstraints": (
        "topologySpreadConstraints[0].maxSkew=2",
        ("topologySpreadConstraints",),
        [{"maxSkew": 2}],
    ),
    "extraVolumes": ("extraVolumes[0].name=ca", ("volumes", -1), {"name": "ca"}),
    "extraVolumeMounts": ("extraVolumeMounts[0].name=ca", ("containers", 0, "volumeMounts", -1), {"name": "ca"}),
    "priorityClassName": ("priorityClassName=high", ("priorityClassName",), "high"),
    "nodeSelector": ("nodeSelector.disk=ssd", ("nodeSelector",), {"disk": "ssd"}),
    "tolerations": ("tolerations[0].operator=Exists", ("tolerations",), [{"operator": "Exists"}]),
    "affinity": ("affinity.nodeAffinity.a=b", ("affinity",), {"nodeAffinity": {"a": "b"}}),
}
"""By value of the chart: the setting, the path in the pods' specification, and what is then there."""


@pytest.mark.parametrize("value", PODS)
def test_a_value_is_found_in_the_pods(rendered: Renderer, value: str) -> None:
    """A value becomes the field of the pods' specification that it is named for."""
    settings, path, expected = PODS[value]
    found: Any = rendered.pod(settings)
    for step in path:
        found = found[step]
    assert found == expected


def test_a_digest_may_stand_in_place_of_a_tag(rendered: Renderer) -> None:
    assert rendered.pod(f"image.tag={DIGEST}")["containers"][0]["image"] == f"tfjob-operator{DIGEST}"


def test_labels_and_annotations_of_pods_are_added_to_those_that_they_have(rendered: Renderer) -> None:
    """The selector's label, and the annotation that keeps a sidecar away, stay."""
    settings = ("podLabels.team=a", "podAnnotations.note=b", "kubeflowLabels=true")
    template = rendered(*settings)["Deployment", "kubeflow", "tf-job-operator"]["spec"]["template"]
    assert template["metadata"] == {
        "labels": {
            "app.kubernetes.io/name": "tfjob-operator",
            "app.kubernetes.io/component": "tfjob",
            "app.kubernetes.io/part-of": "kubeflow",
            "name": "tf-job-operator",
            "team": "a",
        },
        "annotations": {"sidecar.istio.io/inject": "false", "note": "b"},
    }


def test_the_page_of_an_operator_of_one_namespace_shows_that_one(rendered: Renderer) -> None:
    """As the kustomization for that; only its right to ask about viewers is one over the cluster, with a name of its own."""
    before, after = rendered("namespaced=true"), rendered("namespaced=true", "page.enabled=true")
    made = plain({key: each for key, each in after.items() if key not in before})
    expected = json.dumps(sorted(kustomized("addons/page-namespaced").items()))
    assert json.dumps(sorted(made.items())).replace("tf-job-page-reviews-kubeflow", "tf-job-page-reviews") == expected


def test_the_page_runs_where_and_with_what_the_values_say(rendered: Renderer) -> None:
    """From the operator's image, on the nodes that the operator may run on."""
    settings = ("page.enabled=true", "page.replicas=2", "page.extraArgs={--host=a.example.com}")
    more = ("image.repository=r.example.com/op", "nodeSelector.disk=ssd", "page.resources.limits.memory=1Gi")
    spec = rendered(*settings, *more)["Deployment", "kubeflow", "tf-job-page"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], spec["template"]["spec"]["nodeSelector"]) == (2, {"disk": "ssd"})
    assert (container["image"], container["resources"]["limits"]) == (f"r.example.com/op:{VERSION}", {"memory": "1Gi"})
    assert container["args"] == ["--port=8080", "--host=a.example.com"]


def test_an_ingress_leads_to_the_page(rendered: Renderer) -> None:
    """With TLS, a class and annotations where they are set."""
    name = "page.ingress.host=jobs.example.com"
    before, after = rendered("page.enabled=true"), rendered("page.enabled=true", "page.ingress.enabled=true", name)
    assert after.keys() - before.keys() == {("Ingress", "kubeflow", "tf-job-page")}
    spec = after["Ingress", "kubeflow", "tf-job-page"]["spec"]
    assert spec.keys() == {"rules"}
    (path,) = spec["rules"][0]["http"]["paths"]
    service = path["backend"]["service"]
    ports = {port["name"] for port in after["Service", "kubeflow", service["name"]]["spec"]["ports"]}
    assert service["port"]["name"] in ports
    more = ("page.ingress.className=nginx", "page.ingress.tlsSecretName=jobs", "page.ingress.annotations.a=b")
    ingress = rendered("page.enabled=true", "page.ingress.enabled=true", name, *more)[
        "Ingress", "kubeflow", "tf-job-page"
    ]
    assert ingress["metadata"]["annotations"] == {"a": "b"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": ["jobs.example.com"], "secretName": "jobs"}]


@pytest.mark.parametrize(("kubernetes", "version"), [("1.20.2", "policy/v1beta1"), ("1.36.0", "policy/v1")])
def test_a_disruption_budget_is_of_the_version_that_the_cluster_serves(
    rendered: Renderer, kubernetes: str, version: str
) -> None:
    """No version is served by both."""
    settings = ("podDisruptionBudget.enabled=true", "podDisruptionBudget.maxUnavailable=50%")
    found = rendered(*settings, flags=(f"--kube-version={kubernetes}",))
    budget = found["PodDisruptionBudget", "kubeflow", "tf-job-operator"]
    assert budget["apiVersion"] == version
    selector = found["Deployment", "kubeflow", "tf-job-operator"]["spec"]["selector"]
    assert budget["spec"] == {"maxUnavailable": "50%", "selector": selector}


def test_the_service_account_has_the_annotations_of_the_values(rendered: Renderer) -> None:
    """By these a cloud gives it an identity. No other account gets them."""
    before, after = rendered(), rendered("serviceAccount.annotations.role=a")
    account = after.pop(("ServiceAccount", "kubeflow", "tf-job-operator"))
    assert account["metadata"]["annotations"] == {"role": "a"}
    assert {key: each for key, each in before.items() if key in after} == after


def test_without_election_the_old_pod_is_gone_before_the_new_one_works(rendered: Renderer) -> None:
    """Two pods that work at once would do everything twice; without election there is no role for the Lease."""
    found = rendered("leaderElection.enabled=false", "replicas=1")
    spec = found["Deployment", "kubeflow", "tf-job-operator"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert ("Role", "kubeflow", "tf-job-operator-lease") not in found


@pytest.mark.parametrize(
    ("setting", "missing"),
    [
        ("networkPolicy.enabled=false", {("NetworkPolicy", "tf-job-operator")}),
        ("userRoles.create=false", {("ClusterRole", f"kubeflow-tfjobs-{role}") for role in ("admin", "edit", "view")}),
    ],
)
def test_what_is_switched_off_is_left_out(rendered: Renderer, setting: str, missing: set[tuple[str, str]]) -> None:
    """And nothing else."""
    found = rendered().keys() - rendered(setting).keys()
    assert {(kind, name) for kind, _, name in found} == missing


def test_objects_for_the_prometheus_operator_can_be_found_by_labels_of_the_users(rendered: Renderer) -> None:
    """A Prometheus selects monitors and rules by labels, which its owner chooses."""
    switches = ("serviceMonitor.enabled=true", "prometheusRule.enabled=true", "serviceMonitor.interval=1m")
    found = rendered(*switches, "serviceMonitor.labels.release=a", "prometheusRule.labels.release=b")
    monitor = found["ServiceMonitor", "kubeflow", "tf-job-operator"]
    assert monitor["spec"]["endpoints"][0]["interval"] == "1m"
    assert monitor["metadata"]["labels"]["release"] == "a"
    assert found["PrometheusRule", "kubeflow", "tf-job-operator"]["metadata"]["labels"]["release"] == "b"


def test_the_network_policy_names_the_namespace_of_prometheus(rendered: Renderer) -> None:
    policy = rendered("networkPolicy.prometheusNamespace=metrics")["NetworkPolicy", "kubeflow", "tf-job-operator"]
    selectors = [peer.get("namespaceSelector") for peer in policy["spec"]["ingress"][0]["from"]]
    assert selectors == [None, {"matchLabels": {"kubernetes.io/metadata.name": "metrics"}}]


def alerts_of(rendered: Renderer, *settings: str, namespace: str = "kubeflow") -> dict[str, dict[str, Any]]:
    team = "prometheusRule.alerts.TFJobFailed.enabled=true"  # the one that is off by default
    found = rendered("prometheusRule.enabled=true", team, *settings, namespace=namespace)
    groups = [group for key, each in found.items() if key[0] == "PrometheusRule" for group in each["spec"]["groups"]]
    return {alert["alert"]: alert for group in groups for alert in group["rules"]}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (("replicas=1",), "TFJobOperatorAlone"),
        (("resources.limits.memory=null",), "TFJobOperatorMemory"),
        (("resources=null",), "TFJobOperatorMemory"),
        (("prometheusRule.alerts.TFJobOperatorDown=null",), "TFJobOperatorDown"),
    ],
)
def test_an_alert_that_could_not_be_right_is_left_out(rendered: Renderer, settings: tuple[str, ...], name: str) -> None:
    """With one replica an alert about a lost one would never end; without a limit there is no share of it. Null is off."""
    assert alerts_of(rendered).keys() - alerts_of(rendered, *settings).keys() == {name}


ALERTS: Final = SCHEMA["properties"]["prometheusRule"]["properties"]["alerts"]["properties"]


def test_each_alert_can_be_switched_off_and_tuned(each_helm: Renderer) -> None:
    """By values of one shape; also by `--set`, which passes on a fraction as a text."""
    path = "prometheusRule.alerts"
    assert alerts_of(each_helm, *(f"{path}.{name}.enabled=false" for name in ALERTS)) == {}
    settings = [f"{path}.{name}.{field}" for name in ALERTS for field in ("severity=page", "for=7m")]
    tunable = [name for name, each in ALERTS.items() if each["$ref"].endswith("WithThreshold")]
    settings += [f"{path}.{name}.threshold=0.25" for name in tunable]
    before, after = alerts_of(each_helm), alerts_of(each_helm, *settings)
    assert before.keys() == after.keys() == ALERTS.keys()
    assert {(each["labels"]["severity"], each["for"]) for each in after.values()} == {("page", "7m")}
    for name in ALERTS:
        expected = re.sub(r"([<>]=?) [0-9.]+", r"\1 0.25", before[name]["expr"])
        assert after[name]["expr"] == (expected if name in tunable else before[name]["expr"])
        assert (expected != before[name]["expr"]) >= (name in tunable)


def test_alerts_follow_the_values_that_they_depend_on(each_helm: Renderer) -> None:
    """Limits of memory, times of the lease, the interval of scrapes, and where people read the runbooks."""
    lease = ("leaderElection.leaseDuration=1m30s", "leaderElection.renewDeadline=1m")
    more = (
        "resources.limits.memory=1.5Gi",
        "serviceMonitor.interval=45s",
        "prometheusRule.runbookUrl=https://a.example.com/b",
    )
    found = alerts_of(each_helm, *lease, *more)
    assert found["TFJobOperatorNoLeader"]["for"] == "720s"
    assert found["TFJobOperatorSlow"]["expr"].strip().endswith("> 6")
    assert found["TFJobOperatorSeveralLeaders"]["for"] == "90s"
    assert found["TFJobOperatorMemory"]["expr"].endswith("/ 1610612736 > 0.9")
    for name, alert in found.items():
        assert alert["annotations"]["runbook_url"] == f"https://a.example.com/b#{name.lower()}"


def test_the_example_of_the_docs_is_accepted(rendered: Renderer, tmp_path: Path) -> None:
    """And does what it says."""
    guide = (ROOT / "docs" / "operations.md").read_text()
    (example,) = re.findall(r"```yaml\n(prometheusRule:.*?)```", guide, re.DOTALL)
    (tmp_path / "values.yaml").write_text(example)
    found = rendered(flags=(f"--values={tmp_path / 'values.yaml'}",))
    rules = found["PrometheusRule", "kubeflow", "tf-job-operator"]["spec"]["groups"][0]["rules"]
    alerts = {each["alert"]: each for each in rules}
    assert "TFJobOperatorAlone" not in alerts
    assert alerts["TFJobsFail"]["labels"]["severity"] == "warning"
    assert ">= 20" in alerts["TFJobsFail"]["expr"]


def test_dashboards_of_several_releases_differ(rendered: Renderer) -> None:
    """Grafana loads one dashboard for each uid, its sidecar one file for each name; each shows its own operator."""
    seen = set()
    for namespace in ("team-a", "team-b"):
        found = rendered("namespaced=true", "grafanaDashboard.enabled=true", namespace=namespace)
        ((file, text),) = found["ConfigMap", namespace, "tf-job-operator-dashboard"]["data"].items()
        board = json.loads(text)
        assert len(board["uid"]) <= 40
        seen |= {file, board["uid"], board["title"]}
        queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
        queries += [each["query"] for each in board["templating"]["list"] if each["type"] == "query"]
        assert [each for each in queries if f'{{job="tf-job-operator", namespace="{namespace}"' not in each] == []
    assert len(seen) == 6


def test_alerts_about_an_operator_of_one_namespace_see_no_other_operator(rendered: Renderer) -> None:
    """Each series is selected by the release's namespace, or two such releases would be reported as two leaders."""
    expressions = [each["expr"] for each in alerts_of(rendered, "namespaced=true", namespace="team-a").values()]
    selectors = [selector for text in expressions for selector in re.findall(r"{.*?}", text)]
    assert len(selectors) > len(expressions)
    assert [each for each in selectors if '{job="tf-job-operator", namespace="team-a"' not in each] == []


def test_every_value_has_a_test_of_its_effect() -> None:
    """Each value of the schema is set by some test in this file."""
    elsewhere = {
        *("replicas", "crds.install", "userRoles.create", "flowControl.enabled", "admissionPolicy.enabled"),
        *("networkPolicy.enabled", "networkPolicy.prometheusNamespace"),
        *("serviceMonitor.enabled", "serviceMonitor.interval", "serviceMonitor.labels"),
        *("prometheusRule.enabled", "prometheusRule.labels", "prometheusRule.runbookUrl", "grafanaDashboard.enabled"),
        *(f"prometheusRule.alerts.{name}" for name in ALERTS),
        *("serviceAccount.annotations", "podDisruptionBudget.enabled", "podDisruptionBudget.maxUnavailable"),
        *(f"page.ingress.{name}" for name in ("enabled", "className", "host", "tlsSecretName", "annotations")),
        *("cloud", "kubeflowLabels", "nodes.enabled", "logs.enabled", "podLabels", "podAnnotations"),
        *("page.enabled", "page.replicas", "page.extraArgs", "page.resources"),
    }
    assert {path for path, _ in leaves(SCHEMA)} == {*FLAGS, *PODS, *elsewhere}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("image.repository=", "image.repository is required, for example --set image.repository=.*--reuse-values"),
        (
            "image.repository=tfjob-operator:0.1.0",
            "image.repository: tfjob-operator:0.1.0 has a tag or digest.*image.tag",
        ),
        ("image.repository=r.example.com:5000/op@sha256:0", "image.repository: .* has a tag or digest"),
        ("replicas=0", "replicas"),
        ("replicas=two", "replicas"),
        ("cloud=moon", "cloud"),
        ("apis={batch/v1}", "apis"),
        ("apis={}", "apis"),
        ("tensorboardImage=", "tensorboardImage"),
        ("leaderElection.enabled=false", "leaderElection.enabled"),
        ("leaderElection.leaseDuration=soon", "leaseDuration"),
        (
            "leaderElection.leaseDuration=10s",
            "leaseDuration: 10s must be longer than leaderElection.renewDeadline, 10s",
        ),
        (
            "leaderElection.renewDeadline=2400ms",
            "renewDeadline: 2400ms must be longer than 1.2 times .*retryPeriod, 2s",
        ),
        ("leaderElection.leaseDuration=15500ms", "leaseDuration: 15500ms must be a whole number of seconds"),
        ("image.tag=latest@sha256:0", "image.tag"),
        ("page.ingress.enabled=true", "page.ingress.enabled: there is no page without page.enabled"),
        ("page.enabled=true,page.ingress.enabled=true", "page.ingress.host is required"),
        ("prometheusRule.alerts.TFJobDown.enabled=false", "TFJobDown"),
        ("prometheusRule.alerts.TFJobOperatorDown.threshold=1", "threshold"),
        ("prometheusRule.enabled=true,resources.limits.memory=1Pi", "resources.limits.memory: 1Pi"),
        ("logLevel=loud", "logLevel"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("imagePullPolicy=Always", "imagePullPolicy"),
        ("podLabels.name=other", "name"),
        ("extraArgs={debug}", "extraArgs"),
        ("serviceMonitor=true", "serviceMonitor"),
        # As with `helm upgrade --reuse-values` from 0.1.0, which keeps the defaults of the old chart.
        (
            "nodes=null,podDisruptionBudget=null,serviceAccount=null",
            "nodes(?s:.*)podDisruptionBudget(?s:.*)serviceAccount",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(rendered: Renderer, setting: str, named: str) -> None:
    """The error names the value, and comes before anything reaches the cluster."""
    with pytest.raises(ControlPlaneError, match=named):
        rendered(setting)


def test_the_chart_may_be_a_part_of_another_one(rendered: Renderer) -> None:
    """As a subchart it gets the values under `global` as well, and accepts them."""
    assert rendered("global.a=b") == rendered()


def test_a_published_chart_names_its_repository_and_its_alerts_lead_there(rendered: Renderer, tmp_path: Path) -> None:
    """`python -m hack.chart --home`: the repository of a copy is not known before it is published."""
    packed = pack(tmp_path, home="https://git.example.com/team/operator")
    about = rendered.helm("show", "chart", str(packed))
    assert "home: https://git.example.com/team/operator\n" in about
    assert "sources:\n- https://git.example.com/team/operator\n" in about
    assert "icon: data:image/svg+xml;base64," in about
    made = rendered.helm("template", str(packed), f"--set={IMAGE},prometheusRule.enabled=true,crds.install=false")
    assert (
        f"runbook_url: https://git.example.com/team/operator/blob/v{VERSION}/docs/runbooks.md#tfjoboperatordown" in made
    )


def test_a_packed_chart_has_the_files_themselves_and_not_links(rendered: Renderer, tmp_path: Path) -> None:
    """It makes the same objects without the kustomizations beside it, and has the files that `helm package` takes."""
    rendered.helm("package", str(CHART), f"--destination={tmp_path}")
    (by_helm,) = tmp_path.glob("*.tgz")
    (tmp_path / "ours").mkdir()
    packed = pack(tmp_path / "ours")
    assert packed.name == by_helm.name
    with tarfile.open(by_helm) as theirs, tarfile.open(packed) as ours:
        assert set(ours.getnames()) == set(theirs.getnames())
    settings = ("grafanaDashboard.enabled=true", "flowControl.enabled=true", "gangScheduling.enabled=true")
    sets = [f"--set={setting}" for setting in (IMAGE, *settings, "crds.install=false")]
    assert objects_of(rendered.helm("template", "tf-job", str(packed), "--namespace=kubeflow", *sets)) == rendered(
        *settings
    )
