"""Real training by TensorFlow and by Keras on JAX: the jobs of manifests/examples/training, with the operator's variables.

`_for_this_node` changes only the image and the source of these packages.
"""

import copy
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import IMAGE, RUNS, NodeCluster
from hack.tensorflow import JAX_VERSION, KERAS_VERSION
from tfjob_operator.api.v1.constants import ConditionType

TENSORFLOW = os.environ.get("TENSORFLOW_FOLDER", "")
TRAINING = Path(__file__).parents[2] / "manifests" / "examples" / "training"
VOLUME = RUNS / "training"
BOARD = RUNS / "bin"
LIMIT_S = 400.0  # importing TensorFlow alone takes a busy machine half a minute, in each pod
LOSS = re.compile(r"^(?:step|epoch) (\d+) loss ([\d.]+)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(not TENSORFLOW, reason="needs TensorFlow: make e2e-tensorflow")


@pytest.fixture(scope="module")
def jobs(cluster: NodeCluster) -> dict[str, dict[str, Any]]:
    """The jobs of the examples, by name; what they need is in the cluster."""
    BOARD.mkdir()
    (BOARD / "tensorboard").write_text('#!/bin/sh\nPYTHONPATH=/tensorflow exec python3 -m tensorboard.main "$@"\n')
    (BOARD / "tensorboard").chmod(0o755)
    cluster.kubectl("apply", "-k", str(TRAINING), "--dry-run=server")
    objects = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(TRAINING))))
    cluster.make_volume("training", VOLUME)
    for found in objects:
        if found["kind"] != "TFJob":
            cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(found))
    return {found["metadata"]["name"]: _for_this_node(found) for found in objects if found["kind"] == "TFJob"}


def _for_this_node(job: dict[str, Any]) -> dict[str, Any]:
    """The job with the only image that the node has, in which there is Python; TensorFlow comes from a folder."""
    for replica in job["spec"]["tfReplicaSpecs"].values():
        pod = replica["template"]["spec"]
        pod["volumes"].append({"name": "tensorflow", "hostPath": {"path": TENSORFLOW}})
        (container,) = pod["containers"]
        container["image"] = IMAGE
        container["volumeMounts"].append({"name": "tensorflow", "mountPath": "/tensorflow", "readOnly": True})
        container["env"] += [
            {"name": "PYTHONPATH", "value": "/tensorflow"},
            {"name": "TF_NUM_INTRAOP_THREADS", "value": "1"},  # several processes share the node
        ]
    if board := job["spec"].get("tensorBoard"):
        board["image"] = IMAGE
        for name, path, mounted in (("tensorflow", TENSORFLOW, "/tensorflow"), ("programs", BOARD, "/usr/local/bin")):
            board["volumes"].append({"name": name, "hostPath": {"path": str(path)}})
            board["volumeMounts"].append({"name": name, "mountPath": mounted, "readOnly": True})
    return job


def _losses(log: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LOSS.findall(log)}


def _key_lines(log: str) -> str:
    """The program's own lines, of a few of its steps, without TensorFlow's warnings between them."""
    own = r"(step \d+00|step \d+99|restored|saved|lost|worker|the weights) "
    return "\n".join(line for line in log.splitlines() if re.match(own, line))


def test_two_workers_train_one_model_and_save_it(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """MultiWorkerMirroredStrategy: both workers see the same falling loss, and the model is saved on the volume."""
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


def test_a_tensorboard_shows_what_the_training_wrote(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """TB-16: it can be reached through DNS and the Service even after the end of the job, and is deleted with the job."""
    name = "multi-worker-tensorboard"
    if not cluster.get("tfjob", "multi-worker"):
        cluster.create(jobs["multi-worker"])
    cluster.wait_for("multi-worker", ConditionType.SUCCEEDED, LIMIT_S)

    def tags() -> Any:
        return cluster.page(name, "/data/plugin/scalars/tags")

    cluster.eventually(lambda: "loss" in str(tags()), "the page has the tag", LIMIT_S, tags)
    assert "<title>TensorBoard</title>" in cluster.page(name, "/")
    points = cluster.page(name, "/data/plugin/scalars/scalars?run=.&tag=loss")
    shown = {step: round(value, 4) for _, step, value in points}
    written = _losses(cluster.kubectl("logs", "multi-worker-worker-0"))
    assert shown == written
    service = cluster.get("service", name)["spec"]
    figure(f"http://{name}.default.svc shows {len(shown)} losses, the last {shown[399]}; {service['ports']}")
    assert [event for event in cluster.warnings("multi-worker") if "TensorBoard" in event] == []
    cluster.delete("multi-worker")
    for kind in ("deployment", "service"):
        cluster.eventually(lambda kind=kind: not cluster.get(kind, name), f"the {kind} goes with the job")  # type: ignore[misc]


ALONE = """
import tensorflow as tf
weight = tf.Variable(4.0)
with tf.summary.create_file_writer("/volume/alone/summaries").as_default():
    for step in range(20):
        with tf.GradientTape() as tape:
            loss = (weight - 1.0) ** 2
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        tf.summary.scalar("loss", loss, step=step)
        print("step", step, "loss", round(float(loss), 4), flush=True)
"""


def test_a_tensorboard_of_2017_shows_what_a_master_wrote(
    every_api: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """`spec.tensorboard` of tensorflow.org, which runs the job's `tfImage`; the scalars are TensorFlow's own."""
    cluster, (claim, tensorflow, programs) = every_api, _volumes(jobs["multi-worker"]["spec"]["tensorBoard"])
    container = {
        "name": "tensorflow",
        "image": IMAGE,
        "command": ["python3", "-c", ALONE],
        "env": [{"name": "PYTHONPATH", "value": "/tensorflow"}],
        "volumeMounts": [
            {"name": "volume", "mountPath": "/volume"},
            {"name": "tensorflow", "mountPath": "/tensorflow", "readOnly": True},
        ],
    }
    pod = {"containers": [container], "volumes": [claim, tensorflow], "restartPolicy": "OnFailure"}
    mounts = (("volume", "/summaries"), ("tensorflow", "/tensorflow"), ("programs", "/usr/local/bin"))
    board = {
        "logDir": "/summaries/alone/summaries",
        "serviceType": "NodePort",
        "volumes": [claim, tensorflow, programs],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts],
    }
    spec = {"RuntimeId": "solo", "tfImage": IMAGE, "tensorboard": board, "replicaSpecs": [{"template": {"spec": pod}}]}
    cluster.create(
        {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": "alone"}, "spec": spec}
    )

    def state() -> str:
        return str(cluster.get("tfjobs.tensorflow.org", "alone").get("status", {}).get("state"))

    cluster.eventually(lambda: state() == "Succeeded", "it has succeeded", LIMIT_S, state)
    written = _losses(cluster.kubectl("logs", "job/master-solo-0"))

    def points() -> Any:
        return cluster.page("tensorboard-solo", "/data/plugin/scalars/scalars?run=.&tag=loss")

    cluster.eventually(lambda: isinstance(points(), list), "the page has the tag", LIMIT_S, points)
    assert {step: round(value, 4) for _, step, value in points()} == written
    assert len(written) == 20
    figure(f"http://tensorboard-solo.default.svc shows {len(written)} losses of a TfJob, the last {written[19]}")
    cluster.kubectl("delete", "tfjobs.tensorflow.org", "alone")
    cluster.eventually(lambda: not cluster.get("deployment", "tensorboard-solo"), "the Deployment goes with the job")


def _volumes(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The volumes of the example's TensorBoard as it runs here: the claim, TensorFlow, the program."""
    found: list[dict[str, Any]] = board["volumes"]
    return found


def test_a_chief_trains_on_parameter_servers_with_workers(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """ParameterServerStrategy: variables are on the parameter server, the job ends with the chief, the others are deleted."""
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
    """ExitCode: after 137 of the killed worker and 138 of the one that lost its peer, both run again, restore, and end."""
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


EPOCHS = 150
DISTURBANCES = {"calm": (), "disturbed": ((1, "SIGKILL"), (0, "SIGKILL")), "hung": ((1, "SIGSTOP"),)}
"""By folder: which worker gets which signal, one after the other; worker 0 is the coordinator."""


def test_processes_of_keras_on_jax_train_one_model_also_if_one_is_killed_or_hangs(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """keras#20585. JAX replaces no process, so the job restarts as a whole; its loss is that of an undisturbed run.

    If a worker or the coordinator is killed, or if a worker stops and the other waits for it in a collective.
    """
    losses, first = {}, "keras-jax-worker-0"

    def log() -> str:
        return cluster.kubectl("logs", first, check=False)

    def uid() -> str:
        return str(cluster.get("pod", first).get("metadata", {}).get("uid", ""))

    for folder, signals in DISTURBANCES.items():
        cluster.create(_in_folder(jobs["keras-jax"], folder))
        for attempt, (worker, signal) in enumerate(signals):
            reached = 30 * (attempt + 1)
            cluster.eventually(lambda: max(_losses(log()), default=0) >= reached, f"epoch {reached}", LIMIT_S, log)  # noqa: B023
            before = uid()
            cluster.kill_container(f"keras-jax-worker-{worker}", signal=signal)
            took = cluster.eventually(
                lambda: uid() not in {"", before} and "restored after epoch" in log(),  # noqa: B023
                "all restored",
                LIMIT_S,
                log,
            )
            figure(f"{folder}: worker {worker} got {signal}; all train again after {took:.1f} s")
        status = cluster.wait_for("keras-jax", ConditionType.SUCCEEDED, LIMIT_S)
        assert status.get("attempt", 0) == len(signals)
        logs = [cluster.kubectl("logs", f"keras-jax-worker-{index}") for index in (0, 1)]
        assert [f"process {rank} of 2 trains" in each for rank, each in enumerate(logs)] == [True, True]
        (losses[folder],) = {_losses(each)[EPOCHS - 1] for each in logs}  # it is one model
        assert (VOLUME / folder / "model.keras").is_file()
        cluster.delete("keras-jax")
        cluster.eventually(lambda: not cluster.pods_of("keras-jax"), "its pods are gone")
    figure(f"keras-jax: losses after {EPOCHS} epochs {losses}")
    for folder in DISTURBANCES:
        assert losses[folder] == pytest.approx(losses["calm"], rel=0.01)


def _in_folder(example: dict[str, Any], folder: str) -> dict[str, Any]:
    """The example with another folder and number of epochs, and with probes that notice a hang within half a minute."""
    job = copy.deepcopy(example)
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    assert f"jax=={JAX_VERSION} keras=={KERAS_VERSION}\n" in script  # those that run here
    container["args"] = [script.replace("/volume/keras-jax 40", f"/volume/{folder} {EPOCHS}")]
    probe = container["livenessProbe"]
    probe["periodSeconds"] = 5
    probe["exec"]["command"][-1] = probe["exec"]["command"][-1].replace("-mmin -5", "-mmin -0.4")
    return job
