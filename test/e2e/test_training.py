"""Real training by real TensorFlow: the jobs of manifests/examples/training, with TF_CONFIG as the operator writes it.

What differs from the manifests is said in `_for_this_node`: the image, and where TensorFlow comes from.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from e2e.cluster import RUNS
from tfjob_operator.api.v1.constants import ConditionType

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.cluster import NodeCluster

TENSORFLOW = os.environ.get("TENSORFLOW_FOLDER", "")
TRAINING = Path(__file__).parents[2] / "manifests" / "examples" / "training"
VOLUME = RUNS / "training"
LIMIT_S = 400.0  # importing TensorFlow alone takes a busy machine half a minute, in each pod
LOSS = re.compile(r"^step (\d+) loss ([\d.]+)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(not TENSORFLOW, reason="needs TensorFlow: make e2e-tensorflow")


@pytest.fixture(scope="module")
def jobs(cluster: NodeCluster) -> dict[str, dict[str, Any]]:
    """The jobs of the examples, by name; what they need is in the cluster."""
    VOLUME.mkdir()
    VOLUME.chmod(0o777)
    cluster.kubectl("apply", "-k", str(TRAINING), "--dry-run=server")
    objects = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(TRAINING))))
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(_volume()))
    for found in objects:
        if found["kind"] != "TFJob":
            cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(found))
    return {found["metadata"]["name"]: _for_this_node(found) for found in objects if found["kind"] == "TFJob"}


def _volume() -> dict[str, Any]:
    """A volume of the node, for the claim; what a provisioner makes elsewhere."""
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": str(VOLUME)}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "training"}, "spec": spec}


def _for_this_node(job: dict[str, Any]) -> dict[str, Any]:
    """The job with the only image that the node has, which has Python; TensorFlow comes from a folder."""
    for replica in job["spec"]["tfReplicaSpecs"].values():
        pod = replica["template"]["spec"]
        pod["volumes"].append({"name": "tensorflow", "hostPath": {"path": TENSORFLOW}})
        (container,) = pod["containers"]
        container["image"] = "tfjob-operator:0.1.0"
        container["volumeMounts"].append({"name": "tensorflow", "mountPath": "/tensorflow", "readOnly": True})
        container["env"] += [
            {"name": "PYTHONPATH", "value": "/tensorflow"},
            {"name": "TF_NUM_INTRAOP_THREADS", "value": "1"},  # several processes share the node
        ]
    return job


def _losses(log: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LOSS.findall(log)}


def _key_lines(log: str) -> str:
    """What the program itself said, of every fifth step that it told; TensorFlow's own warnings stand between."""
    own = r"(step \d+00|step \d+99|restored|saved|lost|worker|the weights) "
    return "\n".join(line for line in log.splitlines() if re.match(own, line))


def test_two_workers_train_one_model_and_save_it(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """MultiWorkerMirroredStrategy: both workers see the same falling loss, and the model lies on the volume."""
    cluster.create(jobs["multi-worker"])
    status = cluster.wait_for("multi-worker", ConditionType.SUCCEEDED, LIMIT_S)
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 2
    logs = [cluster.kubectl("logs", f"multi-worker-worker-{index}") for index in (0, 1)]
    figure(f"kubectl logs multi-worker-worker-0\n{_key_lines(logs[0])}")
    assert [f"worker {index} of 2 trains" in log for index, log in enumerate(logs)] == [True, True]
    first, second = map(_losses, logs)
    assert first == second  # it is one model
    assert first[399] < first[0] / 10
    assert (VOLUME / "multi-worker" / "model" / "saved_model.pb").is_file()
    cluster.delete("multi-worker")


def test_a_chief_trains_on_parameter_servers_with_workers(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """ParameterServerStrategy: variables are on the parameter server, the chief's end is the job's, and the others go."""
    cluster.create(jobs["parameter-server"])
    cluster.wait_for("parameter-server", ConditionType.SUCCEEDED, LIMIT_S)
    log = cluster.kubectl("logs", "parameter-server-chief-0")
    figure(f"kubectl logs parameter-server-chief-0\n{_key_lines(log)}")
    assert "the weights are on /job:ps/replica:0/task:0" in log
    losses = _losses(log)
    assert losses[399] < losses[0] / 2
    assert (VOLUME / "parameter-server" / "model.npz").is_file()
    chief = "parameter-server-chief-0"
    cluster.eventually(lambda: cluster.pods_of("parameter-server") == [chief], "those that serve for ever are gone")
    cluster.delete("parameter-server")


def test_a_killed_worker_goes_on_from_the_last_checkpoint(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """ExitCode: 137 of the killed worker and 138 of the one that lost its peer make both again; they restore, and end."""
    job = jobs["multi-worker"]
    job["metadata"]["name"] = "killed"
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"][2:] = ["/volume/killed", "3000"]
    cluster.create(job)
    alone, other = "killed-worker-0", "killed-worker-1"

    def log(pod: str) -> str:
        return cluster.kubectl("logs", pod, check=False)

    cluster.eventually(lambda: max(_losses(log(alone)), default=0) >= 200, "the workers are at step 200", LIMIT_S)
    before = cluster.pod(other)[0]
    cluster.kill_container(other)
    took = cluster.eventually(lambda: "restored from step" in log(alone), "the first worker restored", LIMIT_S)
    cluster.wait_for("killed", ConditionType.SUCCEEDED, LIMIT_S)
    assert cluster.pod(other)[0] != before
    for pod in (alone, other):
        restored = re.search(r"restored from step (\d+)", log(pod))
        assert restored is not None
        assert int(restored[1]) >= 200
        assert max(_losses(log(pod))) == 2999
    columns = "custom-columns=REASON:.reason,MESSAGE:.message"
    events = cluster.kubectl("get", "events", "--field-selector=involvedObject.name=killed", "-o", columns)
    figure(f"a killed worker trained on after {took:.1f} s\n{events}\nkubectl logs {alone}\n{_key_lines(log(alone))}")
    assert (VOLUME / "killed" / "model" / "saved_model.pb").is_file()
    cluster.delete("killed")
