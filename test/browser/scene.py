"""The jobs in the browser: at least one in each state, one with a hostile author, and hundreds for a long list."""

from collections.abc import Iterator
from typing import Any

from hack.objects import a_job, a_pod, a_tensorflow_job, ago, an_alpha_pod, an_event, container_status, wanting
from hack.page_cluster import KINDS, PageCluster

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
NO_MODULE = "ModuleNotFoundError: No module named 'sentencepiece'"
RESOURCES = {kind: resource for resource, kind in KINDS.items()}
SHORTAGE = (
    "0/12 nodes are available: 8 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {dedicated: batch}."
)


def job(
    name: str, state: str, age: float, sizes: dict[str, int], *, over: float | None = None, **more: Any
) -> dict[str, Any]:
    """A job that was created so long ago, and ended `over` seconds ago."""
    made = a_job(
        name,
        *dict.fromkeys(["Created", state]),
        spec={"runPolicy": {"suspend": state == "Suspended"}, **wanting(**sizes)},
        namespace=more.get("namespace", "vision"),
        creationTimestamp=ago(age),
        labels={"kueue.x-k8s.io/queue-name": more["queue"]} if "queue" in more else {},
    )
    for each in made["status"]["conditions"]:
        kind = each["type"]
        each["message"] = more.get("message", f"TFJob {name} is {kind.lower()}.")
        each["lastTransitionTime"] = ago(age if kind == "Created" else over or age - 30)
    counts = {kind: {"succeeded": size} for kind, size in sizes.items() if state == "Succeeded"}
    counts |= {"Worker": {"failed": 1}} if state == "Failed" else {}
    made["status"] |= {"startTime": ago(age - 3), "restarts": more.get("restarts", []), "replicaStatuses": counts}
    made["status"] |= {"completionTime": ago(over)} if over is not None else {}
    return made


def pod(of: str, kind: str, index: int, age: float, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pod of a replica, whose container is in this state; with an empty state it waits for a node."""
    runs = "running" in state
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(age - 1)}
    if not state:
        scheduled |= {"status": "False", "reason": "Unschedulable", "message": SHORTAGE}
    last = {"terminated": more["last"]} if "last" in more else {}
    container = container_status(state, last, more.get("restarts", 0))
    status = {
        "phase": "Running" if runs or more.get("restarts") else "Failed" if "terminated" in state else "Pending",
        "conditions": [scheduled, {"type": "Ready", "status": str(runs)}],
        "containerStatuses": [container] if state else [],
    }
    placed = {"namespace": more.get("namespace", "vision"), "creationTimestamp": ago(age)}
    made = a_pod(of, kind, index, status=status, **placed)
    made["spec"]["nodeName"] = f"gpu-node-{index % 3 + 1}" if state else ""
    return made


def runs(age: float) -> dict[str, Any]:
    """The state of a container that runs."""
    return {"running": {"startedAt": ago(age - 20)}}


def waits(reason: str, message: str) -> dict[str, Any]:
    """The state of a container that does not start."""
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, age: float, message: str) -> dict[str, Any]:
    """The state of a container that has ended, a minute before."""
    times = {"startedAt": ago(age - 20), "finishedAt": ago(60)}
    return {"terminated": {"exitCode": code, "reason": "Error", "message": message, **times}}


def event(
    about: str, reason: str, message: str, age: float, *, namespace: str = "vision", **more: Any
) -> dict[str, Any]:
    """An event about a job, or a pod."""
    made = an_event(about, number=int(age), reason=reason, message=message, lastTimestamp=ago(age), **more)
    made["metadata"]["namespace"] = made["involvedObject"]["namespace"] = namespace
    return made


def training_log(steps: int, speed: float) -> bytes:
    """What a training writes."""
    return "".join(
        f"step {10 * n}: loss = {2.3 * speed**n + 0.1:.4f} accuracy = {1 - 0.9 * speed**n:.4f}\n" for n in range(steps)
    ).encode()


def put(cluster: PageCluster, *items: dict[str, Any]) -> None:
    """Put objects into the cluster, each as the resource that its kind says; a pod of a replica comes with its service."""
    for item in items:
        cluster.put(RESOURCES[item["kind"]], item)
        if item["kind"] == "Pod":
            spec = {"selector": item["metadata"]["labels"], "clusterIP": "None"}
            cluster.put("services", item | {"kind": "Service", "spec": spec, "status": {}})


def fill(cluster: PageCluster) -> None:
    """Put all the jobs into the cluster, with pods, events and logs."""
    put(cluster, *_running(), *_in_trouble(), *_hostile(), *_of_2017())
    cluster.served.add("tfjobs.tensorflow.org")
    cluster.write_log("resnet50-imagenet-chief-0", training_log(120, 0.97))
    cluster.write_log("resnet50-small-worker-0", training_log(90, 0.95))
    cluster.write_log("bert-finetune-2-worker-0", f"Traceback (most recent call last):\n{NO_MODULE}\n".encode())
    log = f"\x1b[1;31m{SCRIPT}\x1b[0m\n{'x' * 10_000_000}\nstep 1: loss = 1e400 <b>x</b> = 2\nthe end\n"
    cluster.write_log("hostile-worker-0", log.encode())


def _running() -> Iterator[dict[str, Any]]:
    name, restarts = "resnet50-imagenet", [{"type": "Worker", "index": 2, "carried": 3}]
    sizes = {"Chief": 1, "PS": 2, "Worker": 4}
    yield job(name, "Running", 11_520, sizes, queue="gpu-large", restarts=restarts)
    for kind, size in sizes.items():
        for index in range(size):
            age = 900 if (kind, index) == ("Worker", 2) else 11_500
            yield pod(name, kind, index, age, runs(age))
    yield event(name, "ExitedWithCode", f"Pod: vision.{name}-worker-2 exited with code 137", 901, type="Warning")
    yield event(f"{name}-worker-2", "Scheduled", "Successfully assigned to gpu-node-3", 899, kind="Pod")
    yield job("resnet50-small", "Running", 8_000, {"Worker": 1})
    yield pod("resnet50-small", "Worker", 0, 7_990, runs(7_990))
    yield job("translate-base", "Succeeded", 90_000, {"Chief": 1, "Worker": 2}, over=60_000, namespace="nlp")
    yield job("word2vec-nightly", "Suspended", 7_200, {"Worker": 8}, namespace="nlp", queue="spot")
    for each in range(3):
        yield job(f"lr-sweep-{each}", "Succeeded", 40_000 + each, {"Worker": 1}, over=30_000, namespace="sweeps")


def _of_2017() -> Iterator[dict[str, Any]]:
    """A TfJob of tensorflow.org: one worker has been created anew, and the pod before it is gone."""
    name, namespace = "mnist-2017", "legacy"
    yield a_tensorflow_job(name, "Created", "Running", namespace=namespace, creationTimestamp=ago(5_000))
    for kind, index in (("MASTER", 0), ("WORKER", 0), ("WORKER", 1)):
        age = 600 if index else 4_950
        status = pod(name, kind, index, age, runs(age))["status"]
        yield an_alpha_pod(name, kind, index, status=status, namespace=namespace, creationTimestamp=ago(age))
    for age, verb, suffix in ((4_960, "Create", "zyxwv"), (700, "Delete", "zyxwv"), (601, "Create", "abcde")):
        message = f"{verb}d pod: worker-x7ab-1-{suffix}"
        yield event("worker-x7ab-1", f"Successful{verb}", message, age, namespace=namespace, kind="Job")


def _in_trouble() -> Iterator[dict[str, Any]]:
    yield job("segmentation-unet", "Created", 240, {"Worker": 3}, queue="gpu-large")
    yield from (pod("segmentation-unet", "Worker", index, 238, {}) for index in range(3))
    name, namespace = "bert-finetune-2", "nlp"
    failed = f"TFJob {name} has failed because 1 Worker replica(s) failed: {NO_MODULE}"
    yield job(name, "Failed", 5_400, {"Worker": 2}, over=60, namespace=namespace, message=failed)
    for index, state in enumerate((ended(1, 5_300, NO_MODULE), runs(5_300))):
        yield pod(name, "Worker", index, 5_300, state, namespace=namespace)
    yield event(name, "TFJobFailed", failed, 60, namespace=namespace, type="Warning")
    name, namespace = "ctr-dlrm", "ranking"
    yield job(name, "Restarting", 1_800, {"PS": 2, "Worker": 4}, namespace=namespace)
    for index in range(4):
        state = waits("CrashLoopBackOff", "back-off 2m40s restarting failed container") if index == 1 else runs(1_790)
        yield pod(name, "Worker", index, 1_790, state, namespace=namespace, restarts=5 * (index == 1))


def _hostile() -> Iterator[dict[str, Any]]:
    """A job with scripts and huge lines wherever a user can write: they must stay text, and not break the page."""
    name, namespace = "hostile", "evil"
    yield job(name, "Running", 300_000, {"Worker": 1}, namespace=namespace, queue=SCRIPT, message=SCRIPT)
    item = pod(name, "Worker", 0, 299_990, runs(299_990), namespace=namespace)
    item["spec"]["nodeName"] = SCRIPT
    item["status"]["message"] = f"{SCRIPT}\x1b[31m\u202egnp.exe"
    yield item
    yield event(name, SCRIPT, SCRIPT * 20, 60, namespace=namespace)


MANY = 300
TEAMS = ("vision", "nlp", "ranking")
WIDE = 1_000
SICK = {"Created": {0, 100, 200}, "Failed": {41, 241}, "Running": {120}}
"""The numbers of the jobs of a long list that need somebody, by their state."""


def fill_many(cluster: PageCluster) -> None:
    """Hundreds of jobs, six of them sick, a job of a thousand workers, two of them sick, and one with many restarts."""
    put(cluster, *_sweeps(), *_wide(), *_restarts())


def _sweeps() -> Iterator[dict[str, Any]]:
    for number in range(MANY):
        name, team, age = f"sweep-{number}", TEAMS[number % 3], 4_000.0 + 60 * number
        usual = "Succeeded" if number % 2 else "Running"
        state = next((each for each, numbers in SICK.items() if number in numbers), usual)
        over = {"Failed": 60.0, "Succeeded": 900.0}.get(state)
        yield job(name, state, age, {"Worker": 1}, namespace=team, over=over)
        now = waits("ImagePullBackOff", "Back-off pulling image train:2") if number == 120 else runs(age)
        states = {"Created": {}, "Failed": ended(3, age, "ValueError: shapes differ"), "Running": now}
        if state in states:
            yield pod(name, "Worker", 0, age, states[state], namespace=team)
    yield event("sweep-241", "TFJobFailed", "shapes differ", 60, namespace="nlp", type="Warning")


def _wide() -> Iterator[dict[str, Any]]:
    yield job("wide", "Running", 5_000, {"Worker": WIDE})
    sick = {512: waits("CreateContainerConfigError", "no secret"), 877: waits("CrashLoopBackOff", "back-off 5m0s")}
    last = {877: {"last": {"exitCode": 137, "reason": "OOMKilled"}}}
    for index in range(WIDE):
        now, restarts = sick.get(index) or runs(4_900), {877: 65, 400: 3}.get(index, 0)
        yield pod("wide", "Worker", index, 4_990, now, restarts=restarts, **last.get(index, {}))


def _restarts() -> Iterator[dict[str, Any]]:
    record = [{"type": "Worker", "index": 1, "carried": 7}]
    yield job("restarts", "Running", 1_440, {"Worker": 2}, restarts=record)
    over = {"exitCode": 137, "startedAt": ago(130), "finishedAt": ago(90)}
    again = pod("restarts", "Worker", 0, 1_438, runs(80), restarts=92, last=over)
    again["status"]["startTime"] = ago(1_436)
    yield again
    yield pod("restarts", "Worker", 1, 100, runs(100))
