"""Real training by TensorFlow and by Keras on JAX: the jobs of manifests/examples/training, with the operator's variables.

`_for_this_node` changes only the image, the source of these packages, and the requested CPU time. The jobs run one after the
other. Each wait lasts as long as the pods make progress (`_follow`), but at most 30 minutes.
"""

import copy
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from e2e.cluster import IMAGE, RUNS, NodeCluster
from hack.tensorflow import JAX_VERSION, KERAS_VERSION, TF_KERAS_VERSION
from tfjob_operator.api.v1.constants import ConditionType

TENSORFLOW = os.environ.get("TENSORFLOW_FOLDER", "")
TRAINING = Path(__file__).parents[2] / "manifests" / "examples" / "training"
VOLUME = RUNS / "training"
BOARD = RUNS / "bin"
LIMIT_S = 400.0
SILENT_S = 300.0
"""Importing TensorFlow alone takes a busy machine half a minute, in each pod; a process of JAX waits 100 s for a dead one."""
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
        # Without a request, a container gets the smallest share of a busy CPU: training took ten times as long.
        container["resources"] = {"requests": {"cpu": "250m"}}
        container["volumeMounts"].append({"name": "tensorflow", "mountPath": "/tensorflow", "readOnly": True})
        container["env"] += [
            {"name": "PYTHONPATH", "value": "/tensorflow"},
            {
                "name": "PYTHONOPTIMIZE",
                "value": "",
            },  # the operator's image has 2, which removes docstrings that tf_keras edits
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
    own = r"(step \d+00|step \d+99|epoch \d*[09]|restored|saved|lost|worker|the weights) "
    return "\n".join(line for line in log.splitlines() if re.match(own, line))


def test_two_workers_train_one_model_and_save_it(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """MultiWorkerMirroredStrategy: both workers see the same falling loss, and the model is saved on the volume."""
    cluster.create(jobs["multi-worker"])
    status = _succeed(cluster, "multi-worker")
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
    _succeed(cluster, "multi-worker")

    def tags() -> Any:
        return cluster.page(name, "/data/plugin/scalars/tags")

    cluster.eventually(lambda: "loss" in str(tags()), "the page has the tag", LIMIT_S, tags)
    assert "<title>TensorBoard</title>" in cluster.page(name, "/")
    points = cluster.page(name, "/data/plugin/scalars/scalars?run=.&tag=loss")
    shown = {step: round(value, 6) for _, step, value in points}
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


class Training(NamedTuple):
    """A job of the examples with its number of epochs (or steps), the pod whose log counts, and the file that it saves.

    `kills` has the pods to kill, each with the number of the epoch after which that happens.
    """

    length: int
    leader: str
    file: str
    kills: tuple[tuple[int, str], ...]


WORKERS: Final = ("worker-1", "worker-0")
TRAININGS: Final = {
    "multi-worker": Training(3000, "worker-0", "model/saved_model.pb", tuple(zip((300, 1200), WORKERS, strict=True))),
    "keras-tensorflow": Training(100, "worker-0", "model/saved_model.pb", tuple(zip((4, 30), WORKERS, strict=True))),
    "parameter-server": Training(150, "chief-0", "model.npz", ((5, "worker-1"), (20, "chief-0"), (50, "ps-0"))),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_whose_replicas_are_killed_ends_with_the_loss_of_an_undisturbed_one(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None], name: str
) -> None:
    """A worker is killed, then the coordinator or the chief, and a parameter server: all continue from the last checkpoint."""
    length, leader, file, kills = TRAININGS[name]
    job = _with_length(jobs[name], length)
    losses = {}

    def log() -> str:
        return cluster.kubectl("logs", f"{name}-{leader}", check=False)

    for folder, killed in (("calm", ()), ("disturbed", kills)):
        started = time.monotonic()
        cluster.create(_in_folder(job, name, folder))
        for reached, each in killed:
            pod = f"{name}-{each}"
            _follow(cluster, name, lambda: max(_losses(log()), default=0) >= reached, f"{reached} is reached")  # noqa: B023
            before = cluster.pod(pod)
            cluster.kill_container(pod)
            _follow(cluster, name, lambda: _runs_anew(cluster, pod, before), f"{pod} runs again")  # noqa: B023
        _succeed(cluster, name)
        losses[folder] = _losses(log())[length - 1]
        assert ("restored" in log()) is bool(killed)
        assert (VOLUME / f"{name}-{folder}" / file).is_file()
        figure(f"{name}: {folder} for {time.monotonic() - started:.0f} s\n{_key_lines(log())}")
        cluster.delete(name)
        cluster.eventually(lambda: not cluster.pods_of(name), "its pods are gone", LIMIT_S)
    figure(f"{name}: losses after {length} {losses}")
    assert losses["disturbed"] == pytest.approx(losses["calm"], rel=0.01)


def _runs_anew(cluster: NodeCluster, pod: str, before: tuple[str, int]) -> bool:
    """Return True if a pod runs that is another one, or has restarted."""
    return cluster.is_running(pod) and cluster.pod(pod) not in {before, ("", 0)}


def test_parameter_servers_hold_the_weights_and_are_deleted_when_the_chief_has_ended(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """ParameterServerStrategy: the job ends with the chief."""
    name, chief = "parameter-server", "parameter-server-chief-0"
    cluster.create(jobs[name])
    _succeed(cluster, name)
    log = cluster.kubectl("logs", chief)
    figure(f"kubectl logs {chief}\n{_key_lines(log)}")
    assert "the weights are on /job:ps/replica:0/task:0" in log
    losses = _losses(log)
    assert losses[29] < losses[0] / 2
    assert (VOLUME / name / "model.npz").is_file()
    cluster.eventually(lambda: cluster.pods_of(name) == [chief], "those that serve for ever are gone")
    cluster.delete(name)


EPOCHS: Final = 150
ABSENT: Final = "never arrives"
DISTURBANCES: Final[Mapping[str, tuple[int, tuple[tuple[int, str], ...]]]] = {
    "calm": (2, ()),
    "disturbed": (2, ((1, "SIGKILL"), (0, "SIGKILL"))),
    "four": (4, ((3, "SIGKILL"), (0, "SIGKILL"))),
    "hung": (4, ((2, "SIGSTOP"),)),
    "stalled": (4, ((2, ABSENT), (2, "SIGSTOP"))),
}
"""By folder: the number of workers, and which worker gets which signal, one after the other; worker 0 is the coordinator.

`hung` has probes, `stalled` has a progress deadline instead.
"""
STALLED_S: Final = 60
"""JAX itself ends the processes 100 s after the last heartbeat of one that was stopped."""


@pytest.mark.usefixtures("logs_addon")
def test_processes_of_keras_on_jax_train_one_model_also_if_one_is_killed_or_hangs(
    cluster: NodeCluster, jobs: dict[str, dict[str, Any]], figure: Callable[[str], None]
) -> None:
    """keras#20585. JAX replaces no process, so the job restarts as a whole; its loss is that of an undisturbed run.

    Two workers and four, which compute the same batches. A worker or the coordinator is killed, a worker stops and the
    others wait for it in a collective, or a worker never joins them.
    """
    losses, first = {}, "keras-jax-worker-0"

    def log() -> str:
        return cluster.kubectl("logs", first, check=False)

    for folder, (workers, signals) in DISTURBANCES.items():
        started = time.monotonic()
        cluster.create(_of_jax(jobs["keras-jax"], folder, workers))
        for attempt, (worker, signal) in enumerate(signals):
            if signal == ABSENT:
                _follow(cluster, "keras-jax", lambda: cluster.is_running(first), "it waits for the others")
            else:
                reached = 30 * (attempt + 1)
                _follow(cluster, "keras-jax", lambda: max(_losses(log()), default=0) >= reached, f"epoch {reached}")  # noqa: B023
            before = cluster.pod(first)[0]
            if signal != ABSENT:
                cluster.kill_container(f"keras-jax-worker-{worker}", signal=signal)
            took = _follow(
                cluster,
                "keras-jax",
                lambda: cluster.pod(first)[0] not in {"", before} and f"process 0 of {workers} trains" in log(),  # noqa: B023
                "all train",
            )
            figure(f"{folder}: worker {worker} of {workers} got {signal}; all train again after {took:.1f} s")
        status = _succeed(cluster, "keras-jax")
        assert status.get("attempt", 0) == len(signals)
        if folder == "stalled":
            reasons = [(attempt["reason"], attempt["rule"]) for attempt in status["attemptHistory"]]
            assert reasons == [("ProgressDeadlineExceeded", "hangs")] * 2
            assert "last line of keras-jax-worker-0: epoch " in status["attemptHistory"][-1]["message"]
        logs = [cluster.kubectl("logs", f"keras-jax-worker-{index}") for index in range(workers)]
        assert all(f"process {rank} of {workers} trains" in each for rank, each in enumerate(logs))
        assert all(("restored after epoch" in each) is bool(signals) for each in logs)
        (losses[folder],) = {_losses(each)[EPOCHS - 1] for each in logs}  # it is one model
        assert (VOLUME / f"keras-jax-{folder}" / "model.keras").is_file()
        figure(f"keras-jax: {folder} for {time.monotonic() - started:.0f} s")
        cluster.delete("keras-jax")
        cluster.eventually(lambda: not cluster.pods_of("keras-jax"), "its pods are gone", LIMIT_S)
    figure(f"keras-jax: losses after {EPOCHS} epochs {losses}")
    for folder in DISTURBANCES:
        assert losses[folder] == pytest.approx(losses["calm"], rel=0.01)


def _of_jax(example: dict[str, Any], folder: str, workers: int) -> dict[str, Any]:
    """The example with another folder and other numbers, and with probes that notice a hang within half a minute.

    `stalled` has a progress deadline instead of probes, and a worker that stays away from the first attempt.
    """
    job = _in_folder(_with_length(example, EPOCHS), "keras-jax", folder)
    replica = job["spec"]["tfReplicaSpecs"]["Worker"]
    replica["replicas"] = workers
    (container,) = replica["template"]["spec"]["containers"]
    probe = container["livenessProbe"]
    probe["periodSeconds"] = 5
    probe["exec"]["command"][-1] = probe["exec"]["command"][-1].replace("-mmin -5", "-mmin -0.4")
    if folder == "stalled":
        del container["livenessProbe"], container["startupProbe"]
        ((worker, _), _) = DISTURBANCES[folder][1]
        is_absent = f'[ "$TFJOB_RESTART_ATTEMPT" = 0 ] && [ "$JAX_PROCESS_ID" = {worker} ]'
        # On a busy machine, imports take longer than the deadline.
        says_so = "while ! test -e /tmp/heartbeat; do echo starts; sleep 10; done"
        waits = f'if {is_absent}; then sleep 3600; fi\n[ "$TFJOB_RESTART_ATTEMPT" = 0 ] || ({says_so}) &\n'
        container["args"][0] = f"{waits}{container['args'][0]}"
        rule = {"name": "hangs", "action": "RestartAll", "onFailureReasons": ["ProgressDeadlineExceeded"]}
        job["spec"]["runPolicy"]["failurePolicy"]["rules"].insert(0, rule)
        job["spec"]["runPolicy"]["progressDeadlineSeconds"] = STALLED_S
    return job


def test_the_examples_install_the_packages_that_are_tested_here(jobs: dict[str, dict[str, Any]]) -> None:
    for name, packages in {
        "keras-jax": f"jax=={JAX_VERSION} keras=={KERAS_VERSION}",
        "keras-tensorflow": f"tf_keras=={TF_KERAS_VERSION}",
    }.items():
        (container,) = jobs[name]["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert f"pip install --no-cache-dir {packages}\n" in container["args"][0]


def _rewritten(example: dict[str, Any], rewrite: Callable[[str], str]) -> dict[str, Any]:
    """The example with other words in the commands of all replicas."""
    job = copy.deepcopy(example)
    for replica in job["spec"]["tfReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        field = "args" if "args" in container else "command"
        container[field] = rewrite("\0".join(container[field])).split("\0")
    return job


def _with_length(example: dict[str, Any], length: int) -> dict[str, Any]:
    """The example with another number of epochs, which is the last word of its command."""
    return _rewritten(example, lambda words: re.sub(r"\d+(\s*)$", rf"{length}\1", words))


def _in_folder(example: dict[str, Any], name: str, folder: str) -> dict[str, Any]:
    """The example with another folder on the volume."""
    return _rewritten(example, lambda words: words.replace(f"/volume/{name}", f"/volume/{name}-{folder}"))


def _succeed(cluster: NodeCluster, job: str) -> dict[str, Any]:
    """Wait until a job has succeeded; return its status."""
    ends = {ConditionType.SUCCEEDED, ConditionType.FAILED}
    _follow(cluster, job, lambda: cluster.state(job) in ends, "it has ended")
    assert cluster.state(job) == ConditionType.SUCCEEDED, cluster.get("tfjob", job)["status"]
    status: dict[str, Any] = cluster.get("tfjob", job)["status"]
    return status


def _follow(cluster: NodeCluster, job: str, holds: Callable[[], object], what: str) -> float:
    """Wait until something holds, for as long as pods of the job change or write to their logs; return the seconds.

    How long a training takes depends on the load of the machine; how long it is silent hardly does.
    """

    def state() -> str:
        pods = cluster.kubectl("get", "pods", f"--selector=job-name={job}", "--output=wide", check=False)
        logs = cluster.kubectl("logs", f"--selector=job-name={job}", "--prefix", "--tail=5", check=False)
        # Ages in the table of pods change by themselves.
        lines = [" ".join(line.split()[:4]) for line in pods.splitlines()]
        return "\n".join([f"{job} is {cluster.state(job)}", *lines, logs])

    return cluster.eventually(holds, what, limit_s=2 * SILENT_S, yet=state)
