"""Dozens of problems of pods on a real API server: not scheduled, not started, failed. Line one has the right cause.

Claims and pods are real objects. The test acts as scheduler or kubelet where no hollow node does.
"""

from typing import Any

import pytest

from integration.stage import MERGE, NEVER_STARTS, POD, STRATEGIC, TRAINING, Problem, Stage, Then, asks, judge, one

# What the scheduler and the volume controller say


TOTAL = 6
"""How many nodes the scheduler speaks of."""


def unscheduled(old: str, new: str = "") -> Then:
    """What the scheduler writes when it finds no node, in the words of 1.20 or of today's version."""

    def then(stage: Stage, job: str) -> None:
        pod, total = stage.pod(POD.format(job)), TOTAL
        text = old if stage.minor < 24 else new or old
        message = f"0/{total} nodes are available: {text}."
        if stage.minor >= 24:
            message += f" preemption: 0/{total} nodes are available: {total} Preemption is not helpful for scheduling."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        name = pod["metadata"]["name"]
        stage.api("PATCH", f"pods/{name}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
        stage.tell(pod, "Pod", "FailedScheduling", message)

    return then


def claims(reason: str = "", message: str = "", phase: str = "Pending", **spec: str) -> Then:
    """A claim with the job's name, and what the volume controller writes about it; the pod waits for the claim."""

    def then(stage: Stage, job: str) -> None:
        room = {"requests": {"storage": "1Gi"}}
        body = {"metadata": {"name": job}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": room} | spec}
        claim = stage.api("POST", "persistentvolumeclaims", body)
        stage.api("PATCH", f"persistentvolumeclaims/{job}/status", {"status": {"phase": phase}}, MERGE)
        if reason:
            stage.tell(claim, "PersistentVolumeClaim", reason, message)
        unscheduled("6 pod has unbound immediate PersistentVolumeClaims")(stage, job)

    return then


def mounts(job: str) -> dict[str, Any]:
    return one(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": job}}])


def near(pool: str, **resources: str) -> dict[str, Any]:
    """A job whose pod may only run on this node."""
    return one(nodeSelector={"pool": pool}, **asks(**resources))


CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
ELSEWHERE = "5 node(s) didn't match Pod's node affinity"
NO_CPU = unscheduled("6 Insufficient cpu")
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}
BESIDE = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "none"}}}
        ]
    }
}
PORTS: dict[str, Any] = {"containers": [TRAINING | {"ports": [{"containerPort": 80, "hostPort": 80}]}]}
UNSCHEDULED = [
    Problem("insufficient-resource", near("busy", cpu="4"), unscheduled(f"1 Insufficient cpu, {ELSEWHERE}")),
    Problem("node-selector", near("none", cpu="1"), unscheduled("6 node(s) didn't match Pod's node affinity")),
    Problem("too-many-pods", near("small", cpu="1"), unscheduled(f"1 Too many pods, {ELSEWHERE}")),
    Problem(
        "node-selector",
        one(affinity=AFFINITY, **asks(cpu="4")),
        unscheduled(
            "6 node(s) didn't match Pod's node affinity", "6 node(s) didn't match Pod's node affinity/selector"
        ),
        name="affinity",
    ),
    Problem(
        "insufficient-resource",
        near("busy", cpu="1", example_gpu="1"),
        unscheduled(f"1 Insufficient example.com/gpu, {ELSEWHERE}"),
        name="no-gpu-free",
    ),
    Problem(
        "taint-not-tolerated",
        near("tainted", cpu="1"),
        unscheduled(
            f"1 node(s) had taint {{dedicated: }}, that the pod didn't tolerate, {ELSEWHERE}",
            f"1 node(s) had untolerated taint(s), {ELSEWHERE}/selector",
        ),
    ),
    Problem(
        "node-pressure",
        near("pressed", cpu="1"),
        unscheduled(
            f"1 node(s) had taint {{node.kubernetes.io/memory-pressure: }}, that the pod didn't tolerate, {ELSEWHERE}",
            f"1 node(s) had untolerated taint {{node.kubernetes.io/memory-pressure: }}, {ELSEWHERE}/selector",
        ),
    ),
    Problem("nodes-cordoned", near("cordoned", cpu="1"), unscheduled(f"1 node(s) were unschedulable, {ELSEWHERE}")),
    Problem(
        "nodes-not-ready",
        near("gone", cpu="1"),
        unscheduled(
            f"1 node(s) had taint {{node.kubernetes.io/unreachable: }}, that the pod didn't tolerate, {ELSEWHERE}",
            f"1 node(s) had untolerated taint {{node.kubernetes.io/unreachable: }}, {ELSEWHERE}/selector",
        ),
    ),
    Problem(
        "pod-affinity",
        one(affinity=BESIDE, **asks(cpu="1")),
        unscheduled(
            "6 node(s) didn't match pod affinity/anti-affinity rules", "6 node(s) didn't match pod affinity rules"
        ),
    ),
    Problem("topology-spread", one(), unscheduled("6 node(s) didn't match pod topology spread constraints")),
    Problem(
        "host-port-taken", one(**PORTS), unscheduled("6 node(s) didn't have free ports for the requested pod ports")
    ),
    Problem("volume-elsewhere", one(), unscheduled("6 node(s) had volume node affinity conflict")),
    Problem("volume-limit", one(), unscheduled("6 node(s) exceed max volume count")),
    Problem("unschedulable", one(), unscheduled("6 node(s) are reserved for somebody by a plugin of ours")),
    Problem("claim-unbound", one(), unscheduled("6 pod has unbound immediate PersistentVolumeClaims")),
    Problem(
        "preempting",
        one(**asks(cpu="4")),
        lambda stage, job: (
            NO_CPU(stage, job),
            stage.api("PATCH", f"pods/{POD.format(job)}/status", {"status": {"nominatedNodeName": "busy"}}, MERGE),
        ),
    ),
    Problem("scheduler-missing", one(schedulerName="volcanoo"), later_s=120),
    Problem("scheduling-gated", one(schedulingGates=[{"name": "example.com/quota"}]), since=27),
    Problem("kueue-one-by-one", one(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), since=27),
    Problem("claim-missing", mounts("claim-missing"), unscheduled('persistentvolumeclaim "claim-missing" not found')),
    Problem(
        "storage-class-missing",
        mounts("storage-class-missing"),
        claims("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found', storageClassName="fast"),
    ),
    Problem(
        "claim-without-class",
        mounts("claim-without-class"),
        claims("FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
    ),
    Problem(
        "provisioning-failed",
        mounts("provisioning-failed"),
        claims("ProvisioningFailed", 'failed to provision volume with StorageClass "ssd": rpc error: code = Internal'),
    ),
    Problem("claim-lost", mounts("claim-lost"), claims(phase="Lost", storageClassName="", volumeName="pv-1")),
    Problem("claim-pending", mounts("claim-pending"), claims(storageClassName="slow")),
]


POOLS = ("tainted", "pressed", "cordoned", "gone")
"""Where the nodes are whose taint the scheduler names."""
NO_NODES = Problem("no-nodes", one(), unscheduled("no nodes available to schedule pods"))


def test_why_pods_have_no_node_is_on_line_one(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Claims and nodes are real objects; the scheduler is quoted."""
    for pool in POOLS:
        stage.api("POST", "/api/v1/nodes", {"metadata": {"name": f"of-{pool}", "labels": {"pool": pool}}})
    stage.api("POST", CLASSES, {"metadata": {"name": "slow"}, "provisioner": "example.com/disks"})
    try:
        with stage.cluster.operator():
            judge(capsys, stage, [NO_NODES, *UNSCHEDULED])
    finally:
        for pool in POOLS:
            stage.api("DELETE", f"/api/v1/nodes/of-{pool}")
        stage.api("DELETE", f"{CLASSES}/slow")
        for claim in stage.api("GET", "persistentvolumeclaims")["items"]:
            path = f"persistentvolumeclaims/{claim['metadata']['name']}"
            stage.api("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)  # their controller does not run here


# What the kubelet says


def happens(reason: str, message: str) -> Then:
    """An event of the kubelet's about the pod."""
    return lambda stage, job: stage.tell(stage.pod(POD.format(job), bound=True), "Pod", reason, message)


def pulls(error: str) -> tuple[dict[str, Any], Then]:
    """A job whose image cannot be pulled: the hollow node reports that, and the event the reason."""
    return one("image-pull-back-off"), happens("Failed", f'Failed to pull image "train:1": {error}')


def stays(reason: str, message: str) -> tuple[dict[str, Any], Then]:
    """A job whose container waits for this reason."""

    def then(stage: Stage, job: str) -> None:
        pod = stage.pod(POD.format(job), bound=True)
        status = pod["status"]["containerStatuses"][0] | {"state": {"waiting": {"reason": reason, "message": message}}}
        stage.api("PATCH", f"pods/{POD.format(job)}/status", {"status": {"containerStatuses": [status]}}, MERGE)

    return one(NEVER_STARTS), then


def volume(message: str, reason: str = "FailedMount") -> tuple[dict[str, Any], Then]:
    return one(NEVER_STARTS), happens(reason, message)


SETUP = "MountVolume.SetUp failed for volume"
HUB = 'rpc error: code = Unknown desc = failed to pull and unpack image "docker.io/library/train:1"'
RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
EXEC = f"{RUNC}unable to start container process: "
STARTING = {
    "image-rate-limit": pulls(f"{HUB}: failed to copy: 429 Too Many Requests - Server message: toomanyrequests: limit"),
    "image-missing-or-private": pulls(
        f"{HUB}: failed to resolve: pull access denied, repository does not exist or may require x"
    ),
    "image-no-right": pulls(f"{HUB}: failed to resolve: unexpected status from HEAD request: 403 Forbidden"),
    "image-not-found": pulls(f'{HUB}: failed to resolve reference "docker.io/library/train:1": not found'),
    "image-wrong-platform": pulls(f"{HUB}: no match for platform in manifest: not found"),
    "image-registry-untrusted": pulls(f"{HUB}: tls: failed to verify certificate: x509: unknown authority"),
    "image-no-space": pulls(f"{HUB}: failed to extract layer: write /var/lib/x: no space left on device"),
    "image-registry-unreachable": pulls(f"{HUB}: failed to do request: dial tcp: lookup docker.io: no such host"),
    "image-pull-failed": pulls("rpc error: code = Internal desc = something is wrong in the snapshotter"),
    "image-name-invalid": (one("waiting:InvalidImageName"), None),
    "image-never-pulled": (one("waiting:ErrImageNeverPull"), None),
    "image-signature": (one("waiting:SignatureValidationFailed"), None),
    "image-pull-secret-missing": (
        one(NEVER_STARTS),
        happens(
            "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (key); attempting to pull"
        ),
    ),
    "config-map-missing": stays("CreateContainerConfigError", 'configmap "settings" not found'),
    "secret-missing": stays("CreateContainerConfigError", 'secret "keys" not found'),
    "config-key-missing": stays("CreateContainerConfigError", "couldn't find key token in Secret team/keys"),
    "runs-as-root": stays("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
    "program-missing": stays("RunContainerError", f'{EXEC}exec: "/train": stat /train: no such file or directory'),
    "command-not-split": stays("RunContainerError", f'{EXEC}exec: "python a.py": executable file not found in $PATH'),
    "program-not-executable": stays("RunContainerError", f'{EXEC}exec: "/train": permission denied: unknown'),
    "program-wrong-format": stays("RunContainerError", f"{EXEC}exec /train: exec format error: unknown"),
    "device-runtime": stays(
        "RunContainerError", f"{RUNC}error running hook #0: nvidia-container-cli: driver rpc error"
    ),
    "mount-path-wrong": stays(
        "RunContainerError", f'{RUNC}error mounting "/config" to rootfs at "/train.yaml": not a directory: unknown'
    ),
    "container-cannot-start": (one("waiting:CreateContainerError"), None),
    "sandbox-failed": (
        one(NEVER_STARTS),
        happens("FailedCreatePodSandBox", 'Failed to create pod sandbox: rpc error: plugin type="calico" failed (add)'),
    ),
    "config-map-volume-missing": volume(f'{SETUP} "config" : configmap "settings" not found'),
    "secret-volume-missing": volume(f'{SETUP} "keys" : secret "keys" not found'),
    "volume-key-missing": volume(f'{SETUP} "config" : references non-existent config key: train.yaml'),
    "host-path-missing": volume(f'{SETUP} "data" : hostPath type check failed: /data is not a directory'),
    "mount-refused": volume(f'{SETUP} "nfs" : mount failed: exit status 32 Output: mount.nfs: access denied by server'),
    "mount-failed": volume('MountVolume.WaitForAttach failed for volume "pvc-1" : attachment is being deleted'),
    "volume-in-use": volume('Multi-Attach error for volume "pvc-1" Volume is already used', "FailedAttachVolume"),
    "csi-driver-missing": volume(
        'MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: attacher.MountDevice failed to create '
        "newCsiDriverClient: driver name fuse.example.com not found in the list of registered CSI drivers"
    ),
}


NOT_STARTED = [
    *(Problem(id_, spec, then or (lambda *_: None)) for id_, (spec, then) in STARTING.items()),
    Problem("rejected-by-node", one("rejected", "OnFailure")),
    Problem("starts-slowly", one(NEVER_STARTS), later_s=400),
    Problem("image-slow", one(NEVER_STARTS), happens("Pulling", 'Pulling image "train:1"'), later_s=400),
]


def test_why_pods_do_not_start_is_on_line_one(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """On a hollow node, which binds pods and lets containers wait; the test adds the events of a kubelet."""
    with stage.cluster.operator(), stage.cluster.node():
        judge(capsys, stage, NOT_STARTED)
