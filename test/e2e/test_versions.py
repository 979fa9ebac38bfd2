"""User guides of 2017 and 2018 on a real node: their jobs and commands work, and print what the guides show.

The images are stand-ins with the same names (`stand_in.py`); the manifests are unchanged.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.cluster import RUNS, NodeCluster
from e2e.stand_in import TRAINER

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
ALPHA = EXAMPLES / "migration" / "v1alpha1"
TFJOB, TF_JOB = "tfjobs.v1alpha1.kubeflow.org", "tfjobs.tensorflow.org"
LOSS = re.compile(r"^step (\d+) loss ([\d.]+)$", re.MULTILINE)
CONFIG = "tf-job-operator-config"
CONFIG_LIMIT_S = 90.0  # the kubelet here updates volumes every five seconds, and the operator reads its file every ten


def create(cluster: NodeCluster, file: Path) -> None:
    cluster.kubectl("create", "-f", str(file))


def status(cluster: NodeCluster, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(kind, name).get("status", {})
    return found


def wait_for_end(cluster: NodeCluster, kind: str, name: str) -> dict[str, Any]:
    cluster.eventually(
        lambda: status(cluster, kind, name).get("phase") in {"Done", "Failed"},
        f"{name} is done",
        yet=lambda: status(cluster, kind, name),
    )
    return status(cluster, kind, name)


def pod_of(cluster: NodeCluster, batch_job: str) -> str:
    names = cluster.kubectl("get", "pods", "-l", f"job-name={batch_job}", "-o", "jsonpath={.items[*].metadata.name}")
    found = names.split()
    assert len(found) <= 1, found
    return found[0] if found else ""


def row(table: str, name: str) -> list[str]:
    """The cells of one line of what `kubectl get` prints."""
    return next((line.split() for line in table.splitlines() if line.startswith(name)), [])


def is_collected(cluster: NodeCluster, runtime_id: str) -> bool:
    return not cluster.kubectl("get", "all", "-l", f"runtime_id={runtime_id}", "-o", "name")


def test_a_tfjob_of_2017_runs_as_its_document_shows(every_api: NodeCluster) -> None:
    """tensorflow.org: the job, its batch Job, pod and log, and the end of all of them."""
    cluster = every_api
    create(cluster, ALPHA / "tensorflow-org.yaml")
    assert row(cluster.kubectl("get", TF_JOB), "NAME")[:2] == ["NAME", "KIND"]
    assert row(cluster.kubectl("get", TF_JOB), "poet")[1] == "TfJob"
    cluster.eventually(lambda: status(cluster, TF_JOB, "poet").get("state") == "Running", "it runs")
    runtime_id = status(cluster, TF_JOB, "poet")["runtimeId"]
    master = f"master-{runtime_id}-0"
    assert re.fullmatch(r"[0-9a-z]{4}", runtime_id)
    assert {"0/1", "1/1"} & set(row(cluster.kubectl("get", "job"), master))  # kubectl of 1.31 has STATUS before it
    cluster.eventually(lambda: pod_of(cluster, master), "it has a pod")
    pod = pod_of(cluster, master)
    assert re.fullmatch(rf"{master}-[0-9a-z]{{5}}", pod)
    cluster.eventually(lambda: row(cluster.kubectl("get", "pod"), pod)[2] in {"Running", "Completed"}, "the pod runs")
    ended = wait_for_end(cluster, TF_JOB, "poet")
    assert (ended["phase"], ended["state"], ended["reason"]) == ("Done", "Succeeded", "")
    assert ended["replicaStatuses"] == [
        {"tf_replica_type": "MASTER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}}
    ]
    log = cluster.kubectl("logs", pod)
    assert log.startswith("REPLICA_TYPE=master,REPLICA_INDEX=0\nstep 0 loss 2.5\n")
    told = cluster.kubectl("describe", TF_JOB, "poet")
    for words in (f"Created Service: {master}", f"Created job: {master}", "successfully completed"):
        assert words in told
    assert row(cluster.kubectl("get", "service"), master)[4] == "2222/TCP"
    cluster.kubectl("delete", TF_JOB, "poet")
    cluster.eventually(lambda: is_collected(cluster, runtime_id), "nothing is left")


def test_its_tensorboard_shows_what_the_training_wrote(every_api: NodeCluster, figure: Callable[[str], None]) -> None:
    """As in the last exercise of that guide: through the Service, from the volume that both mount, after the job's end."""
    cluster = every_api
    cluster.claim_volume("results", RUNS / "results")
    create(cluster, ALPHA / "tensorboard.yaml")
    wait_for_end(cluster, TF_JOB, "poet-on-show")
    runtime_id = status(cluster, TF_JOB, "poet-on-show")["runtimeId"]
    name = f"tensorboard-{runtime_id}"

    def points() -> Any:
        return cluster.page(name, "/data/plugin/scalars/scalars?run=.&tag=loss")

    cluster.eventually(points, "the page answers")
    written = {int(step): float(loss) for step, loss in LOSS.findall(log_of(cluster, f"master-{runtime_id}-0"))}
    assert {step: loss for _, step, loss in points()} == written
    assert len(written) == 20
    assert "<title>TensorBoard</title>" in cluster.page(name, "/")
    services = cluster.kubectl("get", "services")
    board = row(services, name)
    assert board[1] == "LoadBalancer"
    assert re.fullmatch(r"80:\d+/TCP", board[4])
    figure(services)
    assert cluster.warnings("poet-on-show") == []
    cluster.kubectl("delete", TF_JOB, "poet-on-show")
    for kind in ("deployment", "service"):
        cluster.eventually(lambda kind=kind: not cluster.get(kind, name), f"the {kind} goes with the job")  # type: ignore[misc]


def log_of(cluster: NodeCluster, batch_job: str) -> str:
    return cluster.kubectl("logs", pod_of(cluster, batch_job))


def test_a_tfjob_of_v1alpha1_runs_as_its_readme_shows(every_api: NodeCluster) -> None:
    """Master, worker, and two parameter servers without a template; the status has the fields of that time, and those of v1."""
    cluster, name = every_api, "alpha-parameter-servers"
    create(cluster, ALPHA / "parameter-servers.yaml")
    servers = ["ps-76no-0", "ps-76no-1"]
    cluster.eventually(
        lambda: all("serving as ps" in cluster.kubectl("logs", f"job/{each}", check=False) for each in servers),
        "the standard servers serve",
    )
    cluster.kubectl("wait", f"{TFJOB}/{name}", "--for=condition=Succeeded", "--timeout=120s")
    ended = wait_for_end(cluster, TFJOB, name)
    assert (ended["runtimeId"], ended["phase"], ended["state"], ended["reason"]) == ("76no", "Done", "Succeeded", "")
    assert ended["alphaReplicaStatuses"] == [
        {"tf_replica_type": "MASTER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}},
        {"tf_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 1}},
        {"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 2}},
    ]
    assert ended["replicaStatuses"]["Master"] == {"active": 0, "succeeded": 1, "failed": 0}
    assert [line for line in log_of(cluster, "master-76no-0").splitlines() if line.startswith("got")] == [
        f"got parameters from {address}:2222" for address in (*servers, "worker-76no-0")
    ]
    told = cluster.kubectl("describe", TFJOB, name)
    for words in ("Created job: ps-76no-1", "Created ConfigMap: cm-ps-76no", "Deleted job: worker-76no-0"):
        assert words in told
    jobs = cluster.kubectl("get", "jobs", "-l", "runtime_id=76no", "-o", "name")
    assert jobs.split() == ["job.batch/master-76no-0"]
    cluster.kubectl("delete", TFJOB, name)
    cluster.eventually(lambda: is_collected(cluster, "76no"), "nothing is left")


def test_the_mnist_job_of_the_chapter_on_v1_runs_as_it_shows(every_api: NodeCluster) -> None:
    """It is created, watched, described and deleted by the guide's commands; the losses are on the volume that it claims."""
    cluster = every_api
    cluster.claim_volume("tfevent-volume", RUNS / "events", namespace="kubeflow")
    cluster.kubectl("apply", "-f", str(EXAMPLES / "01-mnist.yaml"))

    def conditions() -> dict[str, str]:
        found = cluster.get("tfjob", "mnist", "kubeflow").get("status", {}).get("conditions", [])
        return {each["type"]: each["reason"] for each in found if each["status"] == "True"}

    cluster.eventually(lambda: "Succeeded" in conditions(), "it has succeeded", yet=conditions)
    shown = cluster.kubectl("-n", "kubeflow", "get", "tfjob", "mnist", "-o", "yaml")
    assert "cleanPodPolicy: None" in shown
    assert conditions() == {"Created": "TFJobCreated", "Succeeded": "TFJobSucceeded"}
    told = cluster.kubectl("-n", "kubeflow", "describe", "tfjobs", "mnist")
    for words in ("Created pod: mnist-worker-0", "Created service: mnist-worker-0"):
        assert words in told
    assert "step 19 loss 0.125" in cluster.kubectl("-n", "kubeflow", "logs", "mnist-worker-0")
    assert "Successfully assigned" in cluster.kubectl("-n", "kubeflow", "describe", "pods", "mnist-worker-0")
    assert len((RUNS / "events" / "losses").read_text().splitlines()) == 20
    cluster.kubectl("-n", "kubeflow", "delete", "tfjob", "mnist")


def test_a_job_of_that_chapter_trains_on_a_parameter_server(every_api: NodeCluster) -> None:
    """The job has three workers, and a name that the API server generates; the reader of the guide fills in the image."""
    cluster = every_api
    text = (EXAMPLES / "02-ps-workers.yaml").read_text().replace("gcr.io/your-project/your-image", TRAINER)
    created = cluster.kubectl("create", "-f", "-", "-o", "name", stdin=text)
    name = created.strip().rpartition("/")[2]

    def state() -> str:
        conditions = cluster.get("tfjob", name, "kubeflow").get("status", {}).get("conditions", [])
        return str(conditions[-1]["type"]) if conditions else ""

    cluster.eventually(lambda: state() == "Succeeded", "it has succeeded", yet=state)
    log = cluster.kubectl("-n", "kubeflow", "logs", f"{name}-worker-0")
    assert f"got parameters from {name}-ps-0.kubeflow.svc:2222" in log
    cluster.kubectl("-n", "kubeflow", "delete", "tfjob", name)


def test_why_a_pod_does_not_start_is_told_on_its_job(every_api: NodeCluster) -> None:
    """B34: an image that does not exist and a node that does not exist, as the real kubelet and scheduler report them."""
    cluster = every_api
    containers = [{"name": "tensorflow", "image": "registry.example.com/none-such:1"}]
    pods: dict[str, Any] = {
        "no-image": {"containers": containers, "restartPolicy": "OnFailure"},
        "no-node": {"containers": containers, "restartPolicy": "OnFailure", "nodeSelector": {"there-is": "none-such"}},
    }
    for name, pod in pods.items():
        spec = {"replicaSpecs": [{"template": {"spec": pod}}]}
        job = {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
    cluster.eventually(lambda: "ErrImagePull" in cluster.warnings("no-image"), "the image is told of")
    cluster.eventually(lambda: cluster.warnings("no-node") == ["Unschedulable"], "the node is told of")
    assert "none-such:1" in cluster.kubectl("describe", TF_JOB, "no-image")
    assert status(cluster, TF_JOB, "no-image")["state"] == "Running"  # as at that time: it has not failed
    cluster.kubectl("delete", TF_JOB, *pods, "--wait=false")


class Accelerators:
    """The operator's ConfigMap, and what the operator reports about it."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        self._drivers = RUNS / "drivers"
        self._drivers.mkdir()
        (self._drivers / "libcuda.so.1").touch()

    def say(self, *, path: str = "") -> None:
        """Create or change the ConfigMap, which says where the node has its drivers."""
        host_path = path or str(self._drivers)
        volume = {"name": "lib", "mountPath": "/usr/lib/nvidia", "hostPath": host_path}
        variable = {"name": "LD_LIBRARY_PATH", "value": "/usr/lib/nvidia"}
        needs = {"volumes": [volume], "envVars": [variable]}
        resources = ("alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu")
        text = json.dumps({"accelerators": dict.fromkeys(resources, needs)})
        meta = {"name": CONFIG, "namespace": "kubeflow"}
        data = {"controller_config_file.yaml": text}
        content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        self._cluster.kubectl("apply", "-f", "-", stdin=json.dumps(content))

    def forget(self) -> None:
        """Delete the ConfigMap."""
        self._cluster.kubectl("delete", "configmap", CONFIG, "-n", "kubeflow")

    def logs(self) -> list[str]:
        return [self._cluster.kubectl("logs", "-n", "kubeflow", pod) for pod in self._cluster.operators()]

    def are_taken_up(self, times: int) -> bool:
        """Whether each replica has logged so many times that it has taken up the file."""
        return all(log.count("config_file_loaded") == times for log in self.logs())

    def wrong(self) -> list[str]:
        """The metric of each replica, as Prometheus would get it."""
        return [
            line.split()[1]
            for pod in self._cluster.operators()
            for line in self._cluster.kubectl(
                "get", "--raw", f"/api/v1/namespaces/kubeflow/pods/{pod}:8443/proxy/metrics"
            ).splitlines()
            if line.startswith("tf_operator_config_file_wrong ")
        ]


def give_gpus(cluster: NodeCluster) -> None:
    """Give the node GPUs as extended resources, as a device plugin or an administrator would."""
    path = "/api/v1/nodes/real-node"
    node = json.loads(cluster.kubectl("get", "--raw", path))
    del node["metadata"]["resourceVersion"]  # the kubelet writes it every two seconds
    for resource in ("alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"):
        node["status"]["capacity"][resource] = node["status"]["allocatable"][resource] = "1"
    cluster.kubectl("replace", "--raw", f"{path}/status", "-f", "-", stdin=json.dumps(node))


GPU_CONTAINER = {
    "image": "registry.example.com/flower-classifier:cpu",
    "name": "tensorflow",
    "resources": {"requests": {"alpha.kubernetes.io/nvidia-gpu": 1}},
}
GPU_TEMPLATE = {"spec": {"containers": [GPU_CONTAINER], "restartPolicy": "OnFailure"}}
GPU_JOB = {
    "apiVersion": "tensorflow.org/v1alpha1",
    "kind": "TfJob",
    "spec": {"replicaSpecs": [{"template": GPU_TEMPLATE}]},
}
"""A job that requests GPUs by their only resource name of 2017, without a limit."""


def test_a_changed_configuration_reaches_the_operator_and_a_wrong_one_changes_nothing(
    every_api: NodeCluster, figure: Callable[[str], None]
) -> None:
    """It arrives by the kubelet's volume, without a restart: jobs find drivers. Log, metric and event report a wrong file."""
    cluster = every_api
    before = {pod: cluster.get("pod", pod, "kubeflow")["metadata"]["uid"] for pod in cluster.operators()}
    accelerators = Accelerators(cluster)
    accelerators.say()
    took = cluster.eventually(lambda: accelerators.are_taken_up(1), "the file is taken up", CONFIG_LIMIT_S)
    figure(f"a ConfigMap was taken up by both replicas after {took:.1f} s")
    give_gpus(cluster)
    finds_drivers(cluster, "with-drivers")
    create(cluster, ALPHA / "gpu.yaml")
    wait_for_end(cluster, TFJOB, "alpha-gpu")
    assert "drivers ['libcuda.so.1']" in log_of_job(cluster, TFJOB, "alpha-gpu")
    cluster.kubectl("delete", TFJOB, "alpha-gpu", "--wait=false")
    accelerators.say(path="not/absolute")
    took = cluster.eventually(lambda: accelerators.wrong() == ["1.0", "1.0"], "the file is wrong", CONFIG_LIMIT_S)
    figure(f"a wrong one was told of after {took:.1f} s")
    words = "hostPath: must be an absolute path"
    assert all("config_file_invalid" in log and words in log for log in accelerators.logs())

    def told() -> str:
        return cluster.kubectl("describe", "deployment", "tf-job-operator", "-n", "kubeflow")

    cluster.eventually(lambda: "InvalidConfigFile" in told() and words in told(), "an event tells", CONFIG_LIMIT_S)
    finds_drivers(cluster, "with-drivers-of-before")
    accelerators.say()
    cluster.eventually(lambda: accelerators.wrong() == ["0.0", "0.0"], "the file is mended", CONFIG_LIMIT_S)
    accelerators.forget()
    cluster.eventually(lambda: accelerators.are_taken_up(3), "that there is none is taken up", CONFIG_LIMIT_S)
    assert {pod: cluster.get("pod", pod, "kubeflow")["metadata"]["uid"] for pod in cluster.operators()} == before
    statuses = [cluster.get("pod", pod, "kubeflow")["status"]["containerStatuses"][0] for pod in before]
    assert [each["restartCount"] for each in statuses] == [0, 0]


def finds_drivers(cluster: NodeCluster, name: str) -> None:
    """Run a job that requests a GPU, and check that its process found the drivers."""
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({**GPU_JOB, "metadata": {"name": name}}))
    wait_for_end(cluster, TF_JOB, name)
    assert "drivers ['libcuda.so.1'] by LD_LIBRARY_PATH=/usr/lib/nvidia" in log_of_job(cluster, TF_JOB, name)
    cluster.kubectl("delete", TF_JOB, name, "--wait=false")


def log_of_job(cluster: NodeCluster, kind: str, name: str) -> str:
    return log_of(cluster, f"master-{status(cluster, kind, name)['runtimeId']}-0")
