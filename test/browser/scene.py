"""The jobs that the browser shows: at least one in each state, and one whose author is hostile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hack.page_cluster import PageCluster

NAMES = "training.kubeflow.org/"
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
SHORTAGE = (
    "0/12 nodes are available: 8 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {dedicated: batch}."
)


def before(seconds: float) -> str:
    """A time so many seconds ago."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(
    name: str, state: str, age: float, sizes: dict[str, int], *, over: float | None = None, **more: Any
) -> dict[str, Any]:
    """A job that was created so long ago, and ended `over` seconds ago."""
    namespace, message, queue, restarts = (more.get(key, "") for key in ("namespace", "message", "queue", "restarts"))
    states = ["Created"] if state == "Created" else ["Created", state]
    replica = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "metadata": {
            "name": name,
            "namespace": namespace or "vision",
            "creationTimestamp": before(age),
            "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
        },
        "spec": {
            "runPolicy": {"suspend": state == "Suspended"},
            "tfReplicaSpecs": {kind: {"replicas": size, **replica} for kind, size in sizes.items()},
        },
        "status": {
            "conditions": [
                {
                    "type": each,
                    "status": "True",
                    "reason": f"TFJob{each}",
                    "message": message or f"TFJob {name} is {each.lower()}.",
                    "lastTransitionTime": before(age if each == "Created" else over or age - 30),
                }
                for each in states
            ],
            "startTime": before(age - 3),
            "restarts": restarts or [],
            "replicaStatuses": {
                kind: {
                    "active": 0,
                    "succeeded": size if state == "Succeeded" else 0,
                    "failed": 1 if state == "Failed" and kind == "Worker" else 0,
                }
                for kind, size in sizes.items()
            },
            **({"completionTime": before(over)} if over is not None else {}),
        },
    }


def pod(of: str, kind: str, index: int, age: float, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pod of a replica, whose container is in this state; with an empty state it waits for a node."""
    name = f"{of}-{kind.lower()}-{index}"
    labels = {
        "operator-name": "tfjob-controller",
        "job-name": of,
        "replica-type": kind.lower(),
        "replica-index": str(index),
    }
    runs = "running" in state
    phase = "Running" if runs or more.get("restarts") else "Failed" if "terminated" in state else "Pending"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": before(age - 1)}
    if not state:
        scheduled |= {"status": "False", "reason": "Unschedulable", "message": SHORTAGE}
    return {
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "vision"),
            "creationTimestamp": before(age),
            "labels": {NAMES + key: value for key, value in labels.items()},
            "ownerReferences": [{"kind": "TFJob", "name": of, "uid": f"uid-{of}", "controller": True}],
        },
        "spec": {
            "nodeName": f"gpu-node-{index % 3 + 1}" if state else "",
            "containers": [{"name": "tensorflow", "image": "train:1"}],
        },
        "status": {
            "phase": phase,
            "conditions": [scheduled, {"type": "Ready", "status": str(runs)}],
            "containerStatuses": [
                {"name": "tensorflow", "ready": runs, "state": state, "restartCount": more.get("restarts", 0)}
            ]
            if state
            else [],
        },
    }


def runs(age: float) -> dict[str, Any]:
    """The state of a container that runs."""
    return {"running": {"startedAt": before(age - 20)}}


def waits(reason: str, message: str = "") -> dict[str, Any]:
    """The state of a container that does not start."""
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, age: float, message: str) -> dict[str, Any]:
    """The state of a container that has ended, a minute before."""
    times = {"startedAt": before(age - 20), "finishedAt": before(60)}
    return {"terminated": {"exitCode": code, "reason": "Error", "message": message, **times}}


def event(about: str, reason: str, message: str, age: float, **more: Any) -> dict[str, Any]:
    """An event about a job, or a pod."""
    kind = more.get("kind", "TFJob")
    return {
        "apiVersion": "v1",
        "metadata": {"name": f"{about}.{reason}.{int(age)}", "namespace": more.get("namespace", "vision")},
        "involvedObject": {"kind": kind, "name": about, "uid": f"uid-{about}"},
        "reason": reason,
        "message": message,
        "type": more.get("type", "Normal"),
        "count": 1,
        "lastTimestamp": before(age),
    }


def training_log(steps: int, speed: float) -> bytes:
    """What a training writes."""
    lines = (
        f"step {10 * n}: loss = {2.3 * speed**n + 0.1:.4f} accuracy = {1 - 0.9 * speed**n:.4f}" for n in range(steps)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def fill(cluster: PageCluster) -> None:
    """Put all the jobs into the cluster, with pods, events and logs."""
    _running(cluster)
    _in_trouble(cluster)
    _hostile(cluster)
    _of_2017(cluster)
    cluster.put(
        "tfjobs", job("translate-base", "Succeeded", 90_000, {"Chief": 1, "Worker": 2}, over=60_000, namespace="nlp")
    )
    cluster.put("tfjobs", job("word2vec-nightly", "Suspended", 7_200, {"Worker": 8}, namespace="nlp", queue="spot"))
    for number in range(3):
        sweep = job(f"lr-sweep-{number}", "Succeeded", 40_000 + number, {"Worker": 1}, over=30_000, namespace="sweeps")
        cluster.put("tfjobs", sweep)


def _running(cluster: PageCluster) -> None:
    restarts = [{"type": "Worker", "index": 2, "carried": 3}]
    sizes = {"Chief": 1, "PS": 2, "Worker": 4}
    cluster.put("tfjobs", job("resnet50-imagenet", "Running", 11_520, sizes, queue="gpu-large", restarts=restarts))
    for kind, size in sizes.items():
        for index in range(size):
            age = 900 if (kind, index) == ("Worker", 2) else 11_500
            cluster.put("pods", pod("resnet50-imagenet", kind, index, age, runs(age)))
    told = "Pod: vision.resnet50-imagenet-worker-2 exited with code 137"
    cluster.put("events", event("resnet50-imagenet", "ExitedWithCode", told, 901, type="Warning"))
    cluster.put(
        "events",
        event("resnet50-imagenet-worker-2", "Scheduled", "Successfully assigned to gpu-node-3", 899, kind="Pod"),
    )
    cluster.write_log("resnet50-imagenet-chief-0", training_log(120, 0.97))
    cluster.put("tfjobs", job("resnet50-small", "Running", 8_000, {"Worker": 1}))
    cluster.put("pods", pod("resnet50-small", "Worker", 0, 7_990, runs(7_990)))
    cluster.write_log("resnet50-small-worker-0", training_log(90, 0.95))


def _of_2017(cluster: PageCluster) -> None:
    """A TfJob of tensorflow.org: one worker has been created anew, and the pod before it is gone."""
    name, namespace, served = "mnist-2017", "legacy", "tfjobs.tensorflow.org"
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}
    sizes = {"MASTER": 1, "PS": 1, "WORKER": 2}
    item = job(name, "Running", 5_000, {}, namespace=namespace) | {"apiVersion": "tensorflow.org/v1alpha1"}
    item["spec"] = {
        "replicaSpecs": [
            {"tfReplicaType": kind, "replicas": size, "template": template} for kind, size in sizes.items()
        ]
    }
    item["status"] |= {"phase": "Running", "runtimeId": "x7ab", "replicaStatuses": []}
    cluster.served.add(served)
    cluster.put(served, item)
    for kind, size in sizes.items():
        for index in range(size):
            age = 600 if (kind, index) == ("WORKER", 1) else 4_950
            made = pod(name, kind, index, age, runs(age), namespace=namespace)
            labels = {
                "tensorflow.org": "",
                "tf_job_name": name,
                "job_type": kind,
                "task_index": str(index),
                "runtime_id": "x7ab",
            }
            own = f"{kind.lower()}-x7ab-{index}"
            owner = {"kind": "Job", "name": own, "uid": f"uid-{own}", "controller": True}
            made["metadata"] |= {"name": f"{own}-abcde", "ownerReferences": [owner]}
            made["metadata"]["labels"] |= labels
            cluster.put("pods", made)
    for age, reason, message in (
        (4_960, "SuccessfulCreate", "Created pod: worker-x7ab-1-zyxwv"),
        (700, "SuccessfulDelete", "Deleted pod: worker-x7ab-1-zyxwv"),
        (601, "SuccessfulCreate", "Created pod: worker-x7ab-1-abcde"),
    ):
        cluster.put("events", event("worker-x7ab-1", reason, message, age, namespace=namespace, kind="Job"))


def _in_trouble(cluster: PageCluster) -> None:
    cluster.put("tfjobs", job("segmentation-unet", "Created", 240, {"Worker": 3}, queue="gpu-large"))
    for index in range(3):
        cluster.put("pods", pod("segmentation-unet", "Worker", index, 238, {}))
    why = "No module named 'sentencepiece'"
    failed = f"TFJob bert-finetune-2 has failed because 1 Worker replica(s) failed: ModuleNotFoundError: {why}"
    cluster.put(
        "tfjobs", job("bert-finetune-2", "Failed", 5_400, {"Worker": 2}, over=60, namespace="nlp", message=failed)
    )
    end = ended(1, 5_300, f"ModuleNotFoundError: {why}")
    cluster.put("pods", pod("bert-finetune-2", "Worker", 0, 5_300, end, namespace="nlp"))
    cluster.put("pods", pod("bert-finetune-2", "Worker", 1, 5_300, runs(5_300), namespace="nlp"))
    cluster.put("events", event("bert-finetune-2", "TFJobFailed", failed, 60, namespace="nlp", type="Warning"))
    cluster.write_log(
        "bert-finetune-2-worker-0", f"Traceback (most recent call last):\nModuleNotFoundError: {why}\n".encode()
    )
    cluster.put("tfjobs", job("ctr-dlrm", "Restarting", 1_800, {"PS": 2, "Worker": 4}, namespace="ranking"))
    for index in range(4):
        state = waits("CrashLoopBackOff", "back-off 2m40s restarting failed container") if index == 1 else runs(1_790)
        cluster.put(
            "pods", pod("ctr-dlrm", "Worker", index, 1_790, state, namespace="ranking", restarts=5 * (index == 1))
        )


def _hostile(cluster: PageCluster) -> None:
    """A job with scripts and huge lines wherever a user can write: they must stay text, and not break the page."""
    cluster.put(
        "tfjobs", job("hostile", "Running", 300_000, {"Worker": 1}, namespace="evil", queue=SCRIPT, message=SCRIPT)
    )
    item = pod("hostile", "Worker", 0, 299_990, runs(299_990), namespace="evil")
    item["spec"]["nodeName"] = SCRIPT
    item["status"]["message"] = f"{SCRIPT}\x1b[31m\u202egnp.exe"
    cluster.put("pods", item)
    cluster.put("events", event("hostile", SCRIPT, SCRIPT * 20, 60, namespace="evil"))
    log = (
        f"\x1b[1;31m{SCRIPT}\x1b[0m\n".encode() + b"x" * 10_000_000 + b"\nstep 1: loss = 1e400 <b>x</b> = 2\nthe end\n"
    )
    cluster.write_log("hostile-worker-0", log)
