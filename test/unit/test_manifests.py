"""What the manifests say, without a server."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fakes.manifests import is_crd, read_document, read_documents
from support.cases import for_each
from tfjob_operator.api.client.exchange import LONGEST_SKEW_S
from tfjob_operator.cli.page.__main__ import command
from tfjob_operator.cli.training import LogReader, Progress
from tfjob_operator.controller.leaderelection.config import LeaderElectionConfig

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests"
GO: Final = {"01", "02", "03", "04", "05", "06"}
"""Examples of the Go operator, kept byte for byte, and one that is invalid."""


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a document, at any depth."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts_of(inner)


def test_no_field_is_left_to_a_default_over_which_two_ways_to_apply_would_fall_out() -> None:
    """M5: a fieldRef is owned as a whole, default included: `apply`, then `apply --server-side`, conflict on 1.36.

    A port's protocol is part of the merge key of its list, and 1.20 refuses `apply --server-side` of a port without one.
    """
    for path in MANIFESTS.rglob("*.yaml"):
        if path.is_relative_to(MANIFESTS / "chart") or is_crd(path):
            continue  # the chart's objects are those of the others (test/chart); a CRD names fields, and has none of them
        for part in parts_of(read_documents(path)):
            assert "fieldRef" not in part or part["fieldRef"].get("apiVersion") == "v1", path
            if not path.is_relative_to(MANIFESTS / "examples") and part.keys() & {"containerPort", "targetPort"}:
                assert "protocol" in part, path


def test_no_rule_of_the_network_policy_lets_in_whoever_comes() -> None:
    """D11: pods of this namespace, and Prometheus in its own; no tenant can give a namespace that name."""
    policy = read_document(MANIFESTS / "base" / "network-policy.yaml")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    for rule in policy["ingress"]:
        assert [port["port"] for port in rule["ports"]] == ["http-metrics"]
        assert rule["from"]
        assert all("podSelector" in peer for peer in rule["from"])
        elsewhere = [peer for peer in rule["from"] if "namespaceSelector" in peer]
        assert all(peer["podSelector"]["matchLabels"] for peer in elsewhere)
        assert [set(peer["namespaceSelector"]["matchLabels"]) for peer in elsewhere] == [
            {"kubernetes.io/metadata.name"}
        ]


def test_the_page_runs_under_the_restricted_pod_security_standard_with_flags_that_it_knows() -> None:
    """From the operator's image, as an account of its own."""
    folder = MANIFESTS / "addons" / "page-base"
    pod = read_document(folder / "deployment.yaml")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "volumes" not in pod
    assert pod["serviceAccountName"] == read_document(folder / "service-account.yaml")["metadata"]["name"]
    operator = read_document(MANIFESTS / "base" / "deployment.yaml")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == operator["image"]
    assert container["command"] == ["python3", "-m", "tfjob_operator.cli.page"]
    patch = read_document(MANIFESTS / "addons" / "page-namespaced" / "own-namespace.yaml")
    more = patch["spec"]["template"]["spec"]["containers"][0]["args"]
    assert more == [*container["args"], "--namespace=$(PAGE_NAMESPACE)"]
    command.make_context("page", [each.replace("$(PAGE_NAMESPACE)", "team") for each in more])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8080}
    assert container["args"] == ["--port=8080"]
    probes = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"/healthz", "/readyz"}


def test_the_first_example_needs_only_a_public_image_and_shows_its_progress() -> None:
    """No volume, no GPU, 27 lines, 20 seconds; the plugin and the page read its log as a training's."""
    example = MANIFESTS / "examples" / "00-hello.yaml"
    pod = read_document(example)["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod.keys() == {"containers", "securityContext"}
    assert container.keys() == {"name", "image", "command", "args", "securityContext"}
    assert len(example.read_text().splitlines()) <= 27
    assert container["image"] == "busybox:1.36"
    script = container["args"][0].replace("sleep 1", "echo slept")
    log = subprocess.run([*container["command"], script], check=True, capture_output=True, env={"TF_CONFIG": "{}"})
    assert log.stdout.startswith(b"TF_CONFIG={}\n")
    assert log.stdout.count(b"slept\n") == 20
    reader = LogReader()
    points = [point for point in reader.feed(log.stdout) if point.name == "loss"]
    assert [points[0].value, points[-1].value] == [0.88, 0.2]
    assert reader.progress == Progress(400, 400)


AS_ROOT: Final = {"23-object-storage.yaml", "24-spot.yaml", "25-tensorboard.yaml", "27-nightly.yaml"}
"""Examples that install packages or write to a volume, so their user depends on the cluster."""


@for_each("file", sorted(path.name for path in (MANIFESTS / "examples").glob("*.yaml") if path.name[:2] not in GO))
def test_the_examples_meet_the_restricted_pod_security_standard(file: str) -> None:
    """`test/integration/test_pod_security.py` asks a real server."""
    pods = [part for part in parts_of(read_documents(MANIFESTS / "examples" / file)) if "containers" in part]
    assert pods
    for pod in pods if file not in AS_ROOT else ():
        profile = {"type": "RuntimeDefault"}
        assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": profile}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


@for_each("file", ["base/deployment.yaml", "addons/page-base/deployment.yaml"])
def test_describe_shows_why_a_container_has_exited(file: str) -> None:
    """Such as the line about a wrong flag: else its pods show an exit code only."""
    deployment = read_document(MANIFESTS / file)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_every_alert_has_an_entry_among_the_runbooks() -> None:
    """A person who is woken up has a page to go to, and the page is about alerts that there are."""
    files = ("overlays/monitoring/rules.yaml", "addons/team-alerts/rules.yaml")
    groups = [group for file in files for group in read_document(MANIFESTS / file)["spec"]["groups"]]
    alerts = [rule for group in groups for rule in group["rules"]]
    headings = set(re.findall(r"^## (TFJob\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE))
    assert headings == {rule["alert"] for rule in alerts}
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_the_command_of_the_docs_puts_an_address_before_every_runbook() -> None:
    """The project has no public address, so the manifests have paths."""
    guide = (ROOT / "docs" / "operations.md").read_text()
    (program,) = re.findall(
        r"kubectl kustomize manifests/overlays/monitoring \| sed '(.*)' \| kubectl apply -f -", guide
    )
    rules = (MANIFESTS / "overlays" / "monitoring" / "rules.yaml").read_text()
    done = subprocess.run(["sed", program], input=rules, capture_output=True, text=True, check=True)
    address = "https://git.example.com/team/tfjob-operator/blob/main/docs/runbooks.md#tfjob"
    assert done.stdout.count(f"runbook_url: {address}") == rules.count("runbook_url: ") > 0


def test_thresholds_of_alerts_that_follow_from_settings_are_those_of_the_default_settings() -> None:
    """The chart computes them from its values; here they are constants."""
    folder = MANIFESTS / "overlays" / "monitoring"
    (group,) = read_document(folder / "rules.yaml")["spec"]["groups"]
    alerts = {rule["alert"]: rule for rule in group["rules"]}
    times = LeaderElectionConfig()
    assert alerts["TFJobOperatorNoLeader"]["for"] == f"{8 * times.lease_duration_s:.0f}s"
    assert alerts["TFJobOperatorSlow"]["expr"].strip().endswith(f"> {times.renew_deadline_s / 10:g}")
    (endpoint,) = read_document(folder / "service-monitor.yaml")["spec"]["endpoints"]
    assert alerts["TFJobOperatorSeveralLeaders"]["for"] == f"{2 * int(endpoint['interval'].removesuffix('s'))}s"
    spec = read_document(MANIFESTS / "base" / "deployment.yaml")["spec"]
    limit = spec["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert f"/ {int(limit.removesuffix('Mi')) * 2**20} > 0.9" in alerts["TFJobOperatorMemory"]["expr"]
    assert f"< {spec['replicas']}" in alerts["TFJobOperatorAlone"]["expr"]
    assert alerts["TFJobOperatorClockSkew"]["expr"].endswith(f"> {LONGEST_SKEW_S:g}")
