"""Alerts and the Grafana dashboard, checked with a real Prometheus and the operator's real metrics."""

import json
import re
import subprocess
import threading
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fakes.manifests import read_document
from hack.control_plane.build.commands import ControlPlaneError
from hack.prometheus import PRIVATE_MOUNTS, Prometheus, alertmanager, program, run
from integration.cluster import Cluster, replica, specs
from integration.operator_process import ROOT
from support.machine import lacks
from support.waiting import eventually
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1.constants import ConditionReason
from tfjob_operator.api.v1.types import JobCondition
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.observability.metrics import PrometheusMetrics, exposition, new_registry

MONITORING = ROOT / "manifests" / "overlays" / "monitoring"
VARIABLES = {"$__rate_interval": "30s", "$__range": "1m", "$job_namespace": ".*"}
"""The values that Grafana substitutes for variables in queries."""


def prometheus_with(folder: Path, target: str, rules: Path, *alertmanagers: str) -> AbstractContextManager[Prometheus]:
    """A Prometheus that scrapes as the ServiceMonitor says."""
    (endpoint,) = read_document(MONITORING / "service-monitor.yaml")["spec"]["endpoints"]
    honor_labels = endpoint.get("honorLabels", False)
    targets = {"tf-job-operator": target}
    return Prometheus.start(folder, targets, rules, alertmanagers=alertmanagers, honor_labels=honor_labels)


@pytest.fixture(autouse=True, scope="module")
def programs() -> None:
    """Fetch the programs from Debian's packages."""
    try:
        for name in ("promtool", "amtool"):
            program(name)
    except ControlPlaneError as error:
        pytest.skip(lacks("Prometheus or Alertmanager", f"a Debian mirror ({str(error).splitlines()[0]})"))


def groups() -> list[dict[str, Any]]:
    files = (MONITORING / "rules.yaml", ROOT / "manifests" / "addons" / "team-alerts" / "rules.yaml")
    return [group for file in files for group in read_document(file)["spec"]["groups"]]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules in a file as Prometheus reads it, taken from the object for the Prometheus operator."""
    spec = {"groups": groups()}
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps(spec))
    return file


def alerts() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


def queries() -> dict[str, list[str]]:
    """The queries of the dashboard by its panels' titles, as Grafana sends them."""
    found: dict[str, list[str]] = {}
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.setdefault(panel["title"], []).append(expression)
    return found


def test_the_alerts_are_valid_and_fire_when_they_should(rules: Path, tmp_path: Path) -> None:
    """By promtool's own unit tests: each alert once where it must fire, and once where it must not.

    D6: only a leader's queue can be stuck. D10: what a user's quota refuses is no fault of the operator.
    """
    checked = run("promtool", "check", "rules", str(rules))
    assert checked.returncode == 0, checked.stderr
    cases = read_document(ROOT / "test" / "integration" / "alerts.yaml")
    names = {rule["alert"] for rule in alerts()}
    expected = [test for case in cases["tests"] for test in case["alert_rule_test"]]
    assert {test["alertname"] for test in expected if "exp_alerts" in test} == names
    assert {test["alertname"] for test in cases["tests"][0]["alert_rule_test"]} == names
    # promtool compares annotations too, down to the digits in them; what is to be tested is when an alert fires.
    spec = json.loads(rules.read_text())
    for group in spec["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "bare.yaml").write_text(json.dumps(spec))
    (tmp_path / "tests.yaml").write_text(json.dumps({**cases, "rule_files": ["bare.yaml"]}))
    tested = run("promtool", "test", "rules", str(tmp_path / "tests.yaml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_real_prometheus_scrapes_the_operator_and_has_data_for_every_panel(
    cluster: Cluster, namespace: str, rules: Path, tmp_path: Path
) -> None:
    """No panel and no alert asks for a metric or a label that the operator does not have."""
    # The file is not there, as in most clusters; it has a metric all the same.
    file = f"--controller-config-file={tmp_path / 'config.yaml'}"
    with (
        cluster.operator(file) as operator,
        prometheus_with(tmp_path, f"127.0.0.1:{operator.port}", rules) as prometheus,
    ):
        eventually(lambda: prometheus.query("tf_operator_is_leader == 1"), "the operator is scraped, and leads")
        cluster.create("bad", {})
        failed = f'increase(training_operator_jobs_failed_total{{job_namespace="{namespace}"}}[1m]) > 0'
        eventually(lambda: prometheus.query(failed), "the failed job is counted")
        late = {"startDeadlineSeconds": 1, "failurePolicy": {"maxRestarts": 9, "rules": [{"action": "RestartAll"}]}}
        cluster.create("late", specs(Worker=replica()) | {"runPolicy": late})
        restarted = f'rate(tf_operator_failure_policy_actions_total{{namespace="{namespace}"}}[30s]) >= 0'
        eventually(lambda: prometheus.query(restarted), "the restart of a job is counted")
        empty = [(title, query) for title, asked in queries().items() for query in asked if not prometheus.query(query)]
        assert empty == []
        for rule in alerts():
            for metric, matchers in re.findall(r"(\w+)\{([^}]*)\}", rule["expr"]):
                labels = re.sub(r'(code|name|state)=~?"[^"]*"', r'\1!=""', matchers)
                assert prometheus.query(f"{metric}{{{labels}}}"), f"{rule['alert']}: no {metric}{{{labels}}}"
        eventually(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), "all rules were evaluated")


class Loopback(BaseHTTPRequestHandler):
    """Serves the metrics of a registry, and takes messages of webhooks: the path and the labels of each alert."""

    registry: CollectorRegistry
    messages: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(exposition(self.registry))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.messages.extend((self.path, alert["labels"]) for alert in body["alerts"])
        self.send_response(200)
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Be silent."""


def test_a_team_is_told_of_its_own_failed_jobs_by_the_recipe_of_the_docs(rules: Path, tmp_path: Path) -> None:
    """Metrics of the operator, rules, Alertmanager with the settings of docs/operations.md, a webhook for each receiver."""
    if subprocess.run([*PRIVATE_MOUNTS, "true"], capture_output=True, check=False).returncode:
        pytest.skip(lacks("namespaces, for Alertmanager", "a container with them (docker run --privileged), or none"))
    Loopback.registry, Loopback.messages = new_registry(), []

    def told() -> dict[str, set[tuple[str, str, str]]]:
        about_jobs = [each for each in Loopback.messages if each[1]["alertname"] == "TFJobFailed"]
        return {
            path: {(labels["namespace"], labels["reason"], labels["count"]) for to, labels in about_jobs if to == path}
            for path, _ in about_jobs
        }

    jobs = JobMetrics(PrometheusMetrics(Loopback.registry))
    jobs.expect(["team-a", "team-b"])
    with ThreadingHTTPServer(("127.0.0.1", 0), Loopback) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"127.0.0.1:{server.server_port}"
        (recipe,) = re.findall(
            r"```yaml\n(# alertmanager.yml\n.*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL
        )
        settings = tmp_path / "alertmanager.yml"
        settings.write_text(
            recipe.replace("https://chat.example.com", f"http://{here}").replace("10s", "1s").replace("1m", "1s")
        )
        checked = run("amtool", "check-config", str(settings))
        assert checked.returncode == 0, checked.stderr
        for namespace, receiver in (("team-a", "team-a"), ("team-b", "team-b"), ("team-c", "nobody")):
            labels = (f"namespace={namespace}", "alertname=TFJobFailed", "severity=info")
            routed = run("amtool", "config", "routes", "test", f"--config.file={settings}", *labels)
            assert routed.stdout.split() == [receiver]
        with alertmanager(tmp_path, settings) as manager, prometheus_with(tmp_path, here, rules, manager) as prometheus:
            eventually(
                lambda: prometheus.query("tf_operator_job_failures_total == 0"), "the counters are scraped at zero"
            )
            failed = JobCondition("Failed", "True", ConditionReason.LIMIT)
            for namespace in ("team-a", "team-b"):
                jobs.observe(ObjectMeta(name="mnist", namespace=namespace), (), (failed,))
            eventually(lambda: {"/hooks/team-a", "/hooks/team-b"} <= told().keys(), "both teams are told")
            jobs.observe(ObjectMeta(name="again", namespace="team-a"), (), (failed,))
            eventually(lambda: len(told()["/hooks/team-a"]) == 2, "the team is told of each failure")
        server.shutdown()
    assert told() == {
        "/hooks/team-a": {("team-a", "JobFailed", "1"), ("team-a", "JobFailed", "2")},
        "/hooks/team-b": {("team-b", "JobFailed", "1")},
    }
