"""Users scale jobs with kubectl on a real API server."""

import json
from typing import Any

from integration.cluster import Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

FOREVER = "forever"


def tf_config_of(pod: dict[str, Any]) -> dict[str, Any]:
    env = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0].get("env", [])}
    found: dict[str, Any] = json.loads(env["TF_CONFIG"])
    return found


def test_kubectl_scale_grows_and_shrinks_the_workers_of_an_elastic_job(served: Cluster) -> None:
    """B50, B53, B60: by the scale subresource; a new worker's TF_CONFIG has only itself, the chief's stays; nothing fails."""
    spec = specs(Chief=replica(run=FOREVER), Worker=replica(2, run=FOREVER)) | {"enableDynamicWorker": True}
    served.create("elastic", spec)
    served.wait_for("elastic", ConditionType.RUNNING)
    assert served.kubectl("scale", "tfjob", "elastic", "--replicas=4") == "tfjob.kubeflow.org/elastic scaled\n"
    eventually(lambda: "elastic-worker-3" in served.names("pods"), "four workers")
    pods = {pod["metadata"]["name"]: pod for pod in served.items("pods")}
    newest = tf_config_of(pods["elastic-worker-3"])
    host = f"elastic-worker-3.{served.namespace}.svc:2222"
    assert newest == {"cluster": {"ps": [], "worker": {"3": host}}, "task": {"type": "worker", "index": 3}}
    assert len(tf_config_of(pods["elastic-chief-0"])["cluster"]["worker"]) == 2
    eventually(lambda: scale(served)["status"].get("replicas") == 4, "four workers are counted")
    selector = scale(served)["status"]["selector"]
    found = served.kubectl("get", "pods", f"--selector={selector}", "--output=name").split()
    assert found == [f"pod/elastic-worker-{index}" for index in range(4)]
    served.kubectl("scale", "tfjob", "elastic", "--replicas=1")
    eventually(
        lambda: served.names("pods") == ["elastic-chief-0", "elastic-worker-0"] == served.names("services"),
        "one worker is left, with its service",
    )
    eventually(lambda: scale(served)["status"].get("replicas") == 1, "one worker is counted")
    assert served.state("elastic") == ConditionType.RUNNING
    assert not [event for event in served.events("elastic") if event[0] == "Warning"]


def scale(cluster: Cluster) -> dict[str, Any]:
    """The scale subresource of the elastic job, as an autoscaler reads it."""
    path = f"/apis/kubeflow.org/v1/namespaces/{cluster.namespace}/tfjobs/elastic/scale"
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "--raw", path))
    return found


def test_a_template_that_is_changed_counts_for_the_pods_that_come_after(served: Cluster) -> None:
    """Running pods stay as they are; one that is recreated, here after its deletion, has the new template."""
    served.create("edited", specs(Worker=replica(2, run=FOREVER)))
    served.wait_for("edited", ConditionType.RUNNING)
    patch = [
        {"op": "replace", "path": "/spec/tfReplicaSpecs/Worker/template/spec/containers/0/image", "value": "train:2"}
    ]
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in served.items("pods")}
    served.kubectl("patch", "tfjob", "edited", "--type=json", f"--patch={json.dumps(patch)}")
    served.kubectl("delete", "pod", "edited-worker-1", "--wait=false")

    def images() -> dict[str, tuple[str, bool]]:
        return {
            pod["metadata"]["name"]: (
                pod["spec"]["containers"][0]["image"],
                pod["metadata"]["uid"] == before[pod["metadata"]["name"]],
            )
            for pod in served.items("pods")
        }

    wanted = {"edited-worker-0": ("train:1", True), "edited-worker-1": ("train:2", False)}
    eventually(lambda: images() == wanted, "worker 1 has the new image")
