"""Jobs that grow and shrink, as a user does it with kubectl on a real API server."""

from __future__ import annotations

import json
from typing import Any

from integration.cluster import Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

FOREVER = "forever"


def tf_config_of(pod: dict[str, Any]) -> dict[str, Any]:
    """TF_CONFIG of a pod."""
    env = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0].get("env", [])}
    found: dict[str, Any] = json.loads(env["TF_CONFIG"])
    return found


def test_kubectl_scale_grows_and_shrinks_the_workers_of_an_elastic_job(cluster: Cluster) -> None:
    """B50, B53, B60: by the scale subresource; a new worker's TF_CONFIG has only itself, the chief's stays; nothing fails."""
    spec = specs(Chief=replica(run=FOREVER), Worker=replica(2, run=FOREVER)) | {"enableDynamicWorker": True}
    with cluster.operator(), cluster.node():
        cluster.create("elastic", spec)
        cluster.wait_for("elastic", ConditionType.RUNNING)
        assert cluster.kubectl("scale", "tfjob", "elastic", "--replicas=4") == "tfjob.kubeflow.org/elastic scaled\n"
        eventually(lambda: "elastic-worker-3" in cluster.names("pods"), "four workers")
        pods = {pod["metadata"]["name"]: pod for pod in cluster.items("pods")}
        newest = tf_config_of(pods["elastic-worker-3"])
        host = f"elastic-worker-3.{cluster.namespace}.svc:2222"
        assert newest == {"cluster": {"ps": [], "worker": {"3": host}}, "task": {"type": "worker", "index": 3}}
        assert len(tf_config_of(pods["elastic-chief-0"])["cluster"]["worker"]) == 2
        eventually(lambda: scale(cluster)["status"].get("replicas") == 4, "four workers are counted")
        selector = scale(cluster)["status"]["selector"]
        found = cluster.kubectl("get", "pods", f"--selector={selector}", "--output=name").split()
        assert found == [f"pod/elastic-worker-{index}" for index in range(4)]
        cluster.kubectl("scale", "tfjob", "elastic", "--replicas=1")
        eventually(
            lambda: cluster.names("pods") == ["elastic-chief-0", "elastic-worker-0"] == cluster.names("services"),
            "one worker is left, with its service",
        )
        eventually(lambda: scale(cluster)["status"].get("replicas") == 1, "one worker is counted")
        assert cluster.state("elastic") == ConditionType.RUNNING
        assert not [event for event in cluster.events("elastic") if event[0] == "Warning"]


def scale(cluster: Cluster) -> dict[str, Any]:
    """The scale subresource of the elastic job, as an autoscaler reads it."""
    path = f"/apis/kubeflow.org/v1/namespaces/{cluster.namespace}/tfjobs/elastic/scale"
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "--raw", path))
    return found


def test_a_template_that_is_changed_counts_for_the_pods_that_come_after(cluster: Cluster) -> None:
    """Running pods stay as they are; one that is recreated, here after its deletion, has the new template."""
    with cluster.operator(), cluster.node():
        cluster.create("edited", specs(Worker=replica(2, run=FOREVER)))
        cluster.wait_for("edited", ConditionType.RUNNING)
        patch = [
            {
                "op": "replace",
                "path": "/spec/tfReplicaSpecs/Worker/template/spec/containers/0/image",
                "value": "train:2",
            }
        ]
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.items("pods")}
        cluster.kubectl("patch", "tfjob", "edited", "--type=json", f"--patch={json.dumps(patch)}")
        cluster.kubectl("delete", "pod", "edited-worker-1", "--wait=false")

        def images() -> dict[str, tuple[str, bool]]:
            return {
                pod["metadata"]["name"]: (
                    pod["spec"]["containers"][0]["image"],
                    pod["metadata"]["uid"] == before[pod["metadata"]["name"]],
                )
                for pod in cluster.items("pods")
            }

        wanted = {"edited-worker-0": ("train:1", True), "edited-worker-1": ("train:2", False)}
        eventually(lambda: images() == wanted, "worker 1 has the new image")
