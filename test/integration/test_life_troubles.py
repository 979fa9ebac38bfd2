"""Dozens of problems of running jobs on a real API server with a hollow node: failures, last log lines, lost nodes."""

from collections.abc import Callable
from typing import Any

import pytest

from integration.cluster import replica, specs, with_policy
from integration.stage import FOREVER, MERGE, POD, STRATEGIC, Problem, Stage, Then, asks, judge, one
from support.waiting import eventually


def edit(change: Callable[[dict[str, Any]], object]) -> Then:
    """Edit the job's entry for workers once the job runs."""

    def then(stage: Stage, job: str) -> None:
        stage.cluster.wait_for(job, "Running")
        spec = stage.api("GET", stage.path("tfjobs", job))["spec"]
        change(spec["tfReplicaSpecs"]["Worker"])
        stage.api("PATCH", stage.path("tfjobs", job), {"spec": spec}, MERGE)

    return then


def mistaken(worker: dict[str, Any]) -> None:
    """One more replica, and a mount without its volume."""
    worker["replicas"] = 2
    worker["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "none", "mountPath": "/x"}]


def held_back(stage: Stage, job: str) -> None:
    """Delete a pod whose finalizer keeps it."""
    name = POD.format(job)
    stage.cluster.wait_for(job, "Running")
    stage.api("PATCH", f"pods/{name}", {"metadata": {"finalizers": ["example.com/keep"]}}, MERGE)
    stage.api("DELETE", f"pods/{name}")


def ruled(action: str, spec: dict[str, Any], most: int = 1) -> dict[str, Any]:
    """A job with two rules that match every failure; the second never applies."""
    rules = [{"action": action}, {"action": "RestartReplica", "name": "second"}][: 1 + (action == "FailJob")]
    return with_policy(spec, failurePolicy={"maxRestarts": most, "rules": rules})


def relabelled(stage: Stage, job: str) -> None:
    """Change the label of the pod with the index of its replica."""
    stage.cluster.wait_for(job, "Running")
    labels = {"training.kubeflow.org/replica-index": "7"}
    stage.api("PATCH", f"pods/{POD.format(job)}", {"metadata": {"labels": labels}}, MERGE)


def ends(reason: str, message: str) -> Then:
    """Write how the pod has ended, as the kubelet does that ends it."""
    status = {"phase": "Failed", "reason": reason, "message": message}

    def then(stage: Stage, job: str) -> None:
        stage.cluster.wait_for(job, "Running")
        stage.api("PATCH", f"pods/{POD.format(job)}/status", {"status": status}, MERGE)

    return then


def probed(stage: Stage, job: str) -> None:
    """Write the kubelet's event about a container that it ends because of its probe."""
    message = "Container tensorflow failed liveness probe, will be restarted"
    stage.tell(stage.pod(POD.format(job), bound=True), "Pod", "Killing", message)


def disrupted(stage: Stage, job: str) -> None:
    """Write the condition that whoever evicts a pod leaves on it (Kubernetes 1.26)."""
    stage.cluster.wait_for(job, "Running")
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempted"}
    stage.api("PATCH", f"pods/{POD.format(job)}/status", {"status": {"conditions": [told]}}, STRATEGIC)


def says(log: str) -> tuple[dict[str, Any], Then]:
    """A job that fails after its pod has logged this."""
    return one("0s:1"), lambda stage, job: stage.logs.update({POD.format(job): log})


LAST_WORDS = {
    "peer-name-unresolved": says("E socket_utils: getaddrinfo: Name or service not known"),
    "external-name-unresolved": says(
        "URLError: Failed to resolve 'mlflow.tools' ([Errno -2] Name or service not known)"
    ),
    "external-host-unreachable": says(
        "ConnectTimeout: (host='mlflow.tools', port=443, 'Connection to mlflow.tools timed out.')"
    ),
    "gpu-out-of-memory": says("E cuda_driver.cc:802] failed to alloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    "gpu-hardware-error": says("InternalError: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"),
    "gpu-not-visible": says(
        "E cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device"
    ),
    "python-module-missing": says("Traceback:\nModuleNotFoundError: No module named 'horovod'"),
    "disk-full": says("ResourceExhaustedError: /ckpt/model.tmp; No space left on device"),
    "tf-config-missing": says("Traceback:\nKeyError: 'TF_CONFIG'"),
    "port-in-use": says('E grpc server_chttp2.cc:40] {"description":"Address already in use"}'),
    "data-access-denied": says("PermissionError: [Errno 13] Permission denied: '/data/train'"),
    "service-account-token-missing": says("ConfigException: Service token file does not exist."),
    "file-not-found": says("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.tfrecord'"),
    "object-not-found": says("NoSuchBucket: An error occurred (NoSuchBucket) when calling the ListObjectsV2 operation"),
    "windows-line-endings": says("run.sh: line 2: $'\\r': command not found"),
    "child-killed": says("run.sh: line 3:    17 Killed                  python train.py"),
    "arguments-unknown": says("train.py: error: unrecognized arguments: --stepz 5"),
    "tf-config-misread": says('ValueError: If "cluster" is set in TF_CONFIG, it must have one "chief" node.'),
    "python-import-failed": says("ImportError: cannot import name 'Mapping' from 'collections'"),
    "shared-library-missing": says(
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"
    ),
    "read-only-file-system": says("OSError: [Errno 30] Read-only file system: '/ckpt/model.tmp'"),
    "too-many-open-files": says("OSError: [Errno 24] Too many open files: '/data/train.tfrecord'"),
    "object-store-denied": says(
        "ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden"
    ),
    "object-store-credentials-missing": says("botocore.exceptions.NoCredentialsError: Unable to locate credentials"),
    "clock-skew": says("ClientError: An error occurred (RequestTimeTooSkewed) when calling the GetObject operation"),
    "peer-failed": (
        specs(PS=replica(run=FOREVER), Worker=replica(run="0s:1")),
        says("UnavailableError: Collective ops is aborted by: Socket closed")[1],
    ),
    "peer-unreachable": says("UnavailableError: failed to connect to all addresses"),
    "loss-not-a-number": says("NanLossDuringTrainingError: NaN loss during training."),
    "python-out-of-memory": says("Traceback:\nMemoryError"),
    "shared-memory-full": says(
        "ERROR: Unexpected bus error: this might be caused by insufficient shared memory (shm)."
    ),
}
WAITS_FOR_STALL: dict[str, Any] = {"rules": [{"action": "FailJob", "onFailureReasons": ["ProgressDeadlineExceeded"]}]}
FETCH: dict[str, Any] = {"initContainers": [{"name": "fetch", "image": "fetch:1"}]}
RUNS_FETCH = "hollow.tfjob.kubeflow.org/run.fetch"
LIVES = [
    Problem("exit-code", one("1s:1")),
    Problem("segmentation-fault", one("1s:139")),
    Problem("deadline-exceeded", with_policy(one(), activeDeadlineSeconds=2)),
    Problem("backoff-limit", with_policy(one("0s:1", "OnFailure"), backoffLimit=1)),
    Problem("max-restarts-exceeded", ruled("RestartAll", one("0s:1"), most=0)),
    Problem("start-deadline-exceeded", with_policy(one("image-pull-back-off"), startDeadlineSeconds=1)),
    Problem("failure-rule-unreachable", ruled("FailJob", one())),
    Problem("failure-rule-without-deadline", with_policy(one(), failurePolicy=WAITS_FOR_STALL)),
    Problem(
        "pod-restart-policy-never",
        with_policy(one(policy="OnFailure"), failurePolicy={"rules": [{"action": "Ignore"}]}),
    ),
    Problem("out-of-memory", one("1s:oom-killed", **asks(memory="64Mi"))),
    Problem("memory-without-limit", one("1s:oom-killed")),
    Problem("bus-error", one("1s:135")),
    Problem("evicted", one("1s:evicted")),
    Problem("illegal-instruction", one("1s:132")),
    Problem("aborted", one("1s:134")),
    Problem("command-not-found", one("1s:127")),
    Problem("command-not-executable", one("1s:126")),
    Problem("usage-error", one("1s:2")),
    Problem("killed", one("1s:137")),
    Problem("terminated", one("1s:143")),
    Problem("crash-loop", one("0s:1", "Always")),
    Problem("init-container-failed", one(notes={RUNS_FETCH: "0s:1"}, **FETCH)),
    Problem("waits-for-init-container", one(notes={RUNS_FETCH: FOREVER}, **FETCH)),
    Problem("parameter-server-completed", specs(Worker=replica(1, run=FOREVER), PS=replica(1, run="0s:0"))),
    Problem("init-container-runs", one(notes={RUNS_FETCH: FOREVER}, **FETCH), later_s=400),
    Problem("was-restarted", one("0s:1, forever", "OnFailure")),
    Problem("restarted-after-success", one("0s:0, forever", "Always")),
    Problem("restarts-for-ever", one("0s:1, 0s:1, 0s:1, 0s:1, 0s:1, forever", "OnFailure")),
    Problem("backoff-limit-near", with_policy(one("0s:1, forever", "OnFailure"), backoffLimit=1)),
    Problem("deadline-near", with_policy(one(), activeDeadlineSeconds=36_000), later_s=33_000),
    Problem("deadline-passed", with_policy(one(), activeDeadlineSeconds=3600), later_s=5400),
    Problem("finished-and-kept", with_policy(one("0s:0"), cleanPodPolicy="None"), later_s=90_000),
    Problem("held-invalid", one(), edit(lambda worker: worker.update(restartPolicy="Maybe"))),
    Problem("held-refused", one(), edit(mistaken)),
    Problem("held-too-large", one(), edit(lambda worker: worker.update(replicas=20_000))),
    Problem("stuck-terminating", one(policy="OnFailure"), held_back, later_s=600),
    Problem("children-edited", one(), relabelled),
    Problem("disk-limit", one(), ends("Evicted", "Pod ephemeral local storage usage exceeds the total limit of 1Gi.")),
    Problem("pod-deadline", one(), ends("DeadlineExceeded", "Pod was active on the node longer than its deadline")),
    Problem("liveness-probe", one("0s:137", "Always"), probed),
    Problem("disrupted", one(), disrupted),
    *(Problem(id_, spec, then) for id_, (spec, then) in LAST_WORDS.items()),
]


def lose(stage: Stage, job: str) -> None:
    """Write the hollow node's condition as the node controller would after the kubelet fell silent."""
    stage.cluster.wait_for(job, "Running")
    lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped"}
    path = f"/api/v1/nodes/node-{stage.cluster.namespace}/status"
    stage.api("PATCH", path, {"status": {"conditions": [lost]}}, STRATEGIC)


NODE_LOST = Problem("node-not-ready", one(), lose)


def test_how_jobs_fail_and_what_befalls_them_is_on_line_one(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """On a hollow node, which ends processes as told; and then that node is lost. Nothing is wrong with a healthy job."""
    with stage.cluster.operator(), stage.cluster.node():
        stage.jobs([Problem("healthy", one())])
        eventually(lambda: stage.explain("healthy").state_line.endswith("1 of 1 worker ready"), "it runs")
        assert stage.explain("healthy").causes == ()
        judge(capsys, stage, LIVES)
        path = f"pods/{POD.format('stuck-terminating')}"
        stage.api("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        judge(capsys, stage, [NODE_LOST])
