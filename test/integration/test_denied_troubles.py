"""Problems caused by denials of a real admission webhook."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hack.control_plane import ControlPlane
from hack.http_server import Handler
from integration.cluster import replica, specs
from integration.https import serving
from integration.stage import MERGE, TRAINING, Problem, Stage, judge, one
from integration.test_gang_scheduling import VOLCANO, install
from support.waiting import eventually

HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
WORDS: Final = "every object must have the label team"
DENIES: Final = {
    ("CREATE", "pods"): "webhook-denied",
    ("DELETE", "pods"): "delete-failed",
    ("CREATE", "podgroups"): "pod-group-refused",
    ("CREATE", "deployments"): "tensorboard-failed",
}
"""What the webhook denies, and of which job."""


def is_denied(request: dict[str, Any]) -> bool:
    """Whether the webhook denies a request."""
    job = DENIES.get((request["operation"], request["resource"]["resource"]))
    return job is not None and str(request["name"]).startswith(job)


class _Webhook(Handler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": not is_denied(review["request"])}
        if not answer["allowed"]:
            answer["status"] = {"message": WORDS}
        self.answer({**{key: review[key] for key in ("apiVersion", "kind")}, "response": answer})


@pytest.fixture
def webhook(stage: Stage, tmp_path: Path) -> Iterator[None]:
    """A webhook that the API server asks about what is written in the namespace."""
    name = f"denies-{stage.cluster.namespace}"
    label = {"denies": name}
    rules = [
        {"apiGroups": groups, "apiVersions": ["*"], "resources": resources, "operations": ["*"]}
        for groups, resources in (
            ([""], ["pods"]),
            (["scheduling.volcano.sh"], ["podgroups"]),
            (["apps"], ["deployments"]),
        )
    ]
    stage.api("PATCH", f"/api/v1/namespaces/{stage.cluster.namespace}", {"metadata": {"labels": label}}, MERGE)
    with serving(tmp_path, _Webhook) as server:
        hook = {
            "name": "labels.example.com",
            "clientConfig": {
                "url": f"https://127.0.0.1:{server.port}/",
                "caBundle": base64.b64encode(server.authority).decode(),
            },
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": label},
            "rules": rules,
        }
        stage.api("POST", HOOKS, {"metadata": {"name": name}, "webhooks": [hook]})
        try:
            eventually(lambda: is_in_force(stage), "the webhook is asked")
            yield
        finally:
            stage.api("DELETE", f"{HOOKS}/{name}")


def is_in_force(stage: Stage) -> bool:
    """Whether a pod that it denies cannot be created; a new webhook is asked only a moment after its creation."""
    pod = {"metadata": {"name": "webhook-denied"}, "spec": {"containers": [TRAINING]}}
    path = f"/api/v1/namespaces/{stage.cluster.namespace}/pods?dryRun=All"
    return WORDS in str(stage.answer("POST", path, pod)[1])


def scaled_down(stage: Stage, job: str) -> None:
    """Scale the job down once all its pods run, so that the operator deletes one."""
    stage.cluster.wait_for(job, "Running")
    stage.pod(f"{job}-worker-1", bound=True)
    stage.cluster.kubectl("scale", "tfjob", job, "--replicas=1")


NO_GROUP: Final = Problem("pod-group-refused", one())
DENIED_BY_WEBHOOK: Final = [
    Problem("webhook-denied", one()),
    Problem("delete-failed", specs(Worker=replica(2, run="forever")), scaled_down),
    Problem("tensorboard-failed", one("forever") | {"tensorBoard": {"logDir": "/logs"}}),
]


@pytest.mark.usefixtures("webhook")
def test_what_a_webhook_denies_is_on_line_one(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods and a Deployment that may not be created, and pods that may not be deleted."""
    with stage.cluster.operator(), stage.cluster.node():
        judge(capsys, stage, DENIED_BY_WEBHOOK)


@pytest.mark.usefixtures("webhook")
def test_a_group_that_a_webhook_denies_is_on_line_one(
    stage: Stage, control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Volcano's own webhook denies PodGroups of a queue that is closed."""
    install(control_plane, "volcano-podgroups.yaml", VOLCANO)
    try:
        with stage.cluster.operator("--enable-gang-scheduling"):
            judge(capsys, stage, [NO_GROUP])
    finally:
        control_plane.run_kubectl("delete", "crd", VOLCANO, "--ignore-not-found")
