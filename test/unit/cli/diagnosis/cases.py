"""Each trouble as the smallest change of a healthy job. The messages are those of real servers, kubelets and libraries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.cli.diagnosis.facts import Absent, LastLine
from unit.cli.diagnosis.world import JOB, World, ago, condition

CASES: dict[str, Callable[[World], object]] = {}


def case(id_: str) -> Callable[[Callable[[World], object]], Callable[[World], object]]:
    """Register a change as the case of a trouble."""

    def register(change: Callable[[World], object]) -> Callable[[World], object]:
        assert id_ not in CASES, id_
        CASES[id_] = change
        return change

    return register


def _with(*values: Any, do: Callable[..., object]) -> Callable[[World], object]:
    """The change with these values: the variables of a loop have changed by the time a case is used."""
    return lambda world: do(world, *values)


# The operator


@case("namespace-terminating")
def _(world: World) -> None:
    world.namespace["status"]["phase"] = "Terminating"


@case("job-being-deleted")
def _(world: World) -> None:
    world.job["metadata"] |= {"deletionTimestamp": ago(5), "finalizers": ["example.com/backup"]}


@case("managed-elsewhere")
def _(world: World) -> None:
    world.spec["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    world.pods, world.status["conditions"] = {}, []


def deployment(namespace: str = "kubeflow", *args: str, wanted: int = 2, ready: int = 0) -> dict[str, Any]:
    """A Deployment of the operator."""
    return {
        "kind": "Deployment",
        "metadata": {"name": "tf-job-operator", "namespace": namespace},
        "spec": {"replicas": wanted, "template": {"spec": {"containers": [{"name": "operator", "args": args}]}}},
        "status": {"readyReplicas": ready},
    }


@case("operator-not-running")
def _(world: World) -> None:
    assert world.lease is not None
    world.lease["spec"]["renewTime"] = "2026-11-22T11:50:00.123456Z"
    world.pods, world.deployments = {}, [deployment(ready=2)]


@case("operator-missing")
def _(world: World) -> None:
    """The job keeps its status after an uninstall, and the operator its Lease."""
    assert world.lease is not None
    world.lease["spec"]["renewTime"] = "2026-11-22T09:50:00.123456Z"
    del world.pods["mnist-worker-0"]
    world.stale_lease = world.lease


@case("operator-not-ready")
def _(world: World) -> None:
    world.lease, world.pods, world.job["status"] = None, {}, {}
    world.absent, world.deployments = [Absent("Lease", "tf-operator")], [deployment()]
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "tfjob-operator:9.9.9"'}}
    state = {"containerStatuses": [{"name": "operator", "state": waiting}]}
    world.operator_pods = [
        {"kind": "Pod", "metadata": {"name": f"tf-job-operator-{name}", "namespace": "kubeflow"}, "status": state}
        for name in ("a", "b")
    ]


@case("operator-scaled-to-zero")
def _(world: World) -> None:
    world.lease, world.pods, world.job["status"] = None, {}, {}
    world.absent, world.deployments = [Absent("Lease", "tf-operator")], [deployment(wanted=0)]


@case("operator-serves-elsewhere")
def _(world: World) -> None:
    """Its Lease is renewed; a job is told at once, not after a minute."""
    world.pods, world.job["status"] = {}, {}
    world.deployments = [
        deployment(name, "--namespace=$(KUBEFLOW_NAMESPACE)", wanted=1, ready=1) for name in ("team-a", "team-b")
    ]


@case("end-not-seen")
def _(world: World) -> None:
    """A user who may read neither leases nor Deployments."""
    world.lease = None
    end = {"exitCode": 0, "reason": "Completed", "startedAt": ago(55), "finishedAt": ago(45)}
    status = {"name": "tensorflow", "ready": False, "restartCount": 0, "state": {"terminated": end}}
    world.pods["mnist-worker-0"]["status"] |= {"phase": "Succeeded", "containerStatuses": [status]}


@case("operator-not-acting")
def _(world: World) -> None:
    world.pods, world.job["status"] = {}, {}


@case("not-reconciled-yet")
def _(world: World) -> None:
    world.pods, world.job["status"] = {}, {}
    world.job["metadata"]["creationTimestamp"] = ago(1 / 3)


@case("namespace-not-served")
def _(world: World) -> None:
    del world.pods["mnist-worker-0"]
    assert world.lease is not None
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2026-11-22T10:50:00.123456Z"}
    world.stale_lease = world.lease | {"spec": spec}


@case("edit-not-seen")
def _(world: World) -> None:
    world.job["metadata"]["generation"] = 3


@case("crd-old")
def _(world: World) -> None:
    status = {"properties": {"conditions": {"type": "array"}, "replicaStatuses": {"type": "object"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}, "status": status}}}
    world.crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "tfjobs.kubeflow.org"},
        "spec": {"versions": [{"name": "v1", "served": True, "schema": schema}]},
    }


# The specification: jobs that failed at once, in the operator's words


def _invalid(mistake: str) -> Callable[[World], object]:
    def change(world: World) -> None:
        world.pods = {}
        world.end("Failed", "InvalidTFJobSpec", f"TFJob has failed because the spec is invalid: {mistake}")

    return change


for _id, _mistake in {
    "tf-config-too-long": (
        "spec.tfReplicaSpecs: TF_CONFIG lists all 9000 replicas and would have 400000 bytes; the maximum on Linux is "
        "131071: use a shorter name for the job or namespace, fewer replicas"
    ),
    "name-too-long": (
        "metadata.name: must be no more than 40 characters: the pod and Service of replica a-worker-0 would have names "
        "of 67 characters, and the maximum is 63"
    ),
    "name-invalid": (
        'metadata.name: Invalid value: "9mnist": pods and Services are named after the job: it must consist of '
        "lowercase letters, digits and '-', start with a letter and end with a letter or digit"
    ),
    "too-many-replicas": "spec.tfReplicaSpecs: requests 20000 replicas; the maximum is 10000",
    "alpha-form": (
        "spec.tfReplicaSpecs: Required value; spec.replicaSpecs: Forbidden: v1alpha1 format; it requires a new job without "
        "tfReplicaSpecs"
    ),
    "container-name": "spec.tfReplicaSpecs.Worker.template.spec.containers: one container must be named tensorflow; found main",
    "replica-specs-missing": "spec.tfReplicaSpecs: Required value: at least one of Chief, Master, PS, Worker, Evaluator",
    "replica-type-unknown": (
        'spec.tfReplicaSpecs.Helper: Unsupported value: supported values: "Chief", "Master", "PS", "Worker", "Evaluator"'
    ),
    "template-refused": (
        'pod mnist-worker-0 was rejected: Pod "mnist-worker-0" is invalid: '
        "spec.containers[0].volumeMounts[0].name: Not found"
    ),
    "spec-invalid": "spec.runPolicy.backoffLimit: must be a non-negative integer, not a negative number",
}.items():
    case(_id)(_invalid(_mistake))


def _held(reason: str, message: str) -> Callable[[World], object]:
    return lambda world: world.status["conditions"].insert(1, condition("Held", reason=reason, message=message))


case("held-invalid")(
    _held("InvalidTFJobSpec", "spec.runPolicy.backoffLimit: must be a non-negative integer, not a string")
)
case("held-refused")(
    _held(
        "RefusedTFJobSpec",
        'pod mnist-worker-1 was rejected: Pod "mnist-worker-1" is invalid: spec.containers[0].image: Required value',
    )
)
case("held-too-large")(_held("TFJobTooLarge", "spec.tfReplicaSpecs: requests 20000 replicas; the maximum is 10000"))


@case("no-replicas")
def _(world: World) -> None:
    for replica in world.spec["tfReplicaSpecs"].values():
        replica["replicas"] = 0
    world.pods = {}


@case("field-unknown")
def _(world: World) -> None:
    world.spec["runPolicy"]["backofLimit"] = 3


@case("run-policy-conflict")
def _(world: World) -> None:
    world.spec["backoffLimit"] = world.spec["runPolicy"]["backoffLimit"] = 3
    world.spec["backoffLimit"] = 4


@case("kueue-replicas-not-counted")
def _(world: World) -> None:
    world.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    world.spec["tfReplicaSpecs"]["ps"] = world.spec["tfReplicaSpecs"].pop("PS")


@case("no-workers-to-scale")
def _(world: World) -> None:
    world.spec["tfReplicaSpecs"]["Chief"] = world.spec["tfReplicaSpecs"].pop("Worker") | {"replicas": 1}
    world.spec["tfReplicaSpecs"]["Worker"] = {"replicas": 5}
    pod = world.pods.pop("mnist-worker-0")
    pod["metadata"]["name"] = "mnist-chief-0"
    world.pods = {"mnist-ps-0": world.pods["mnist-ps-0"], "mnist-chief-0": pod}
    world.services["mnist-chief-0"] = world.services["mnist-worker-0"] | {"metadata": {"name": "mnist-chief-0"}}


@case("restart-policy-overridden")
def _(world: World) -> None:
    worker = world.spec["tfReplicaSpecs"]["Worker"]
    worker["restartPolicy"] = "OnFailure"
    worker["template"]["spec"]["restartPolicy"] = "Always"


# Suspension


case("suspended")(lambda world: world.suspend())


@case("kueue-absent")
def _(world: World) -> None:
    world.suspend(conditions=[])
    world.workload = None


def _queued(message: str, reason: str = "Pending") -> Callable[[World], object]:
    return lambda world: world.suspend(conditions=[condition("QuotaReserved", "False", reason, message)])


def _evicted(reason: str, message: str) -> Callable[[World], object]:
    waiting = condition("QuotaReserved", "False", "Pending", message)
    return lambda world: world.suspend(conditions=[waiting, condition("Evicted", "True", reason, message)])


def _checked(state: str) -> Callable[[World], object]:
    check = {"name": "provisioning", "state": state, "message": "no capacity in zone a"}
    reserved = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue shared")
    return lambda world: world.suspend(conditions=[reserved], admissionChecks=[check])


case("kueue-deactivated")(lambda world: world.suspend(active=False, conditions=[]))
case("kueue-check-rejected")(_checked("Rejected"))
case("kueue-check")(_checked("Pending"))
case("kueue-queue-missing")(_queued("LocalQueue research doesn't exist", "Inadmissible"))
case("kueue-queue-stopped")(_queued("ClusterQueue shared is inactive", "Inadmissible"))
case("kueue-namespace")(_queued("Workload namespace doesn't match ClusterQueue selector"))
case("kueue-too-large")(
    _queued(
        "couldn't assign flavors to pod set worker: insufficient quota for nvidia.com/gpu in flavor a100, request > "
        "maximum capacity (24 > 16)"
    )
)
case("kueue-preempted")(
    _evicted(
        "Preempted", "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
    )
)
case("kueue-pods-ready-timeout")(_evicted("PodsReadyTimeout", "Exceeded the PodsReady timeout team/tfjob-mnist-1a2b3"))
case("kueue-quota")(
    _queued(
        "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor default, 3 more needed"
    )
)
case("kueue-waits")(_queued("The workload is backing off"))


# Pods that cannot be created


for _id, _message in {
    "quota-exceeded": (
        'pods "mnist-worker-1" is forbidden: exceeded quota: compute, requested: '
        "requests.cpu=2,requests.memory=4Gi, used: requests.cpu=15,requests.memory=30Gi, limited: "
        "requests.cpu=16,requests.memory=32Gi"
    ),
    "quota-wants-requests": (
        'pods "mnist-worker-1" is forbidden: failed quota: compute: must specify limits.cpu for: '
        "tensorflow; requests.cpu for: tensorflow"
    ),
    "quota-status-unknown": 'pods "mnist-worker-1" is forbidden: status unknown for quota: compute, resources: pods',
    "limit-range-maximum": 'pods "mnist-worker-1" is forbidden: maximum memory usage per Container is 2Gi, but limit is 4Gi',
    "limit-range-minimum": 'pods "mnist-worker-1" is forbidden: minimum cpu usage per Pod is 4, but request is 2',
    "limit-range-ratio": (
        'pods "mnist-worker-1" is forbidden: cpu max limit to request ratio per Container is 2, but '
        "provided ratio is 4.000000"
    ),
    "pod-security": (
        'pods "mnist-worker-1" is forbidden: violates PodSecurity "restricted:latest": '
        'allowPrivilegeEscalation != false (container "tensorflow" must set '
        "securityContext.allowPrivilegeEscalation=false)"
    ),
    "pod-security-policy": (
        'pods "mnist-worker-1" is forbidden: unable to validate against any security context '
        'constraint: [provider "anyuid": Forbidden: not usable by user or serviceaccount]'
    ),
    "webhook-denied": (
        'admission webhook "validation.gatekeeper.sh" denied the request: [team-label] pod '
        "mnist-worker-1 must have the label team"
    ),
    "webhook-unreachable": (
        'Internal error occurred: failed calling webhook "inject.example.com": failed to call '
        'webhook: Post "https://inject.mesh.svc:443/inject?timeout=10s": dial tcp 10.0.0.9:443: '
        "connect: connection refused"
    ),
    "admission-policy-denied": (
        "pods \"mnist-worker-1\" is forbidden: ValidatingAdmissionPolicy 'no-latest' with "
        "binding 'no-latest-binding' denied request: images must have a tag"
    ),
    "service-account-missing": (
        'pods "mnist-worker-1" is forbidden: error looking up service account team/trainer: '
        'serviceaccount "trainer" not found'
    ),
    "priority-class-missing": 'pods "mnist-worker-1" is forbidden: no PriorityClass with name urgent was found',
    "runtime-class-missing": 'pods "mnist-worker-1" is forbidden: pod rejected: RuntimeClass "gvisor" not found',
    "name-taken": (
        "pod mnist-worker-1 already exists and is not controlled by this TFJob: it belongs to ReplicaSet "
        "web; delete it or recreate the job under another name"
    ),
    "former-child-in-the-way": (
        "service mnist-worker-1 already exists and is not controlled by this TFJob: it belongs to an earlier job of "
        "this name (UID 7a6f) and is left to the garbage collector"
    ),
    "ended-pod-in-the-way": (
        "pod mnist-worker-1 already exists and is not controlled by this TFJob: it has finished "
        "and has no owner; delete it to continue"
    ),
    "operator-no-rights": (
        'pods is forbidden: User "system:serviceaccount:kubeflow:tf-job-operator" cannot create '
        'resource "pods" in API group "" in the namespace "team"'
    ),
    "api-server-errors": (
        "POST /api/v1/namespaces/team/pods: 504 Timeout: request did not complete within the allotted duration"
    ),
    "create-refused": 'pods "mnist-worker-1" is forbidden: something that nobody has seen before',
}.items():
    case(_id)(_with(_message, do=lambda world, message: world.refuse(message)))


case("pods-missing")(lambda world: world.pods.pop("mnist-worker-1"))


# Gangs


@case("pod-groups-unavailable")
def _(world: World) -> None:
    world.pods = {}
    world.event(
        "TFJob",
        JOB,
        "PodGroupsUnavailable",
        "Waiting for PodGroups of volcano before creating pods: GET podgroups: 404 Not Found",
    )


@case("pod-group-refused")
def _(world: World) -> None:
    world.pods = {}
    world.event(
        "TFJob",
        JOB,
        "FailedCreatePodGroup",
        'Error creating: admission webhook "validatepodgroup.volcano.sh" denied the request: queue research is closed',
    )


@case("gang-too-few-pods")
def _(world: World) -> None:
    world.unscheduled(
        "pre-filter pod mnist-worker-1 cannot find enough sibling pods, current pods number: 1, minMember of group: 3"
    )
    world.gang("Scheduling")


@case("gang-no-room")
def _(world: World) -> None:
    world.unscheduled(
        "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; Pending: 3 Unschedulable"
    )
    world.gang(
        "Inqueue",
        condition(
            "Unschedulable",
            "True",
            "NotEnoughResources",
            "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable",
        ),
    )


@case("gang-queued")
def _(world: World) -> None:
    world.pods = {}
    world.gang("Pending")


@case("gang-scheduler-missing")
def _(world: World) -> None:
    world.pods = {}
    world.gang("")


case("gang-other-scheduler")(
    lambda world: world.event(
        "TFJob",
        JOB,
        "SettedPodTemplateSchedulerName",
        "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten",
    )
)


# Storage


@case("claim-missing")
def _(world: World) -> None:
    pod = world.unscheduled(
        '0/2 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/2 nodes are available: 2 '
        "Preemption is not helpful for scheduling."
    )
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def _pending(reason: str, message: str, kind: str = "Warning") -> Callable[[World], object]:
    def change(world: World) -> None:
        world.claim("Pending")
        world.event("PersistentVolumeClaim", "data", reason, message, type_=kind)

    return change


case("storage-class-missing")(_pending("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'))
case("claim-without-class")(
    _pending("FailedBinding", "no persistent volumes available for this claim and no storage class is set", "Normal")
)
case("provisioning-failed")(
    _pending(
        "ProvisioningFailed",
        'failed to provision volume with StorageClass "ssd": rpc error: code = ResourceExhausted desc = quota of disks',
    )
)
case("claim-lost")(lambda world: world.claim("Lost"))
case("claim-pending")(lambda world: world.claim("Pending"))


def _mount(message: str, reason: str = "FailedMount") -> Callable[[World], object]:
    def change(world: World) -> None:
        world.creating()
        world.event("Pod", "mnist-worker-1", reason, message)
        world.event(
            "Pod",
            "mnist-worker-1",
            "FailedMount",
            (
                "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data]: timed out "
                "waiting for the condition"
            ),
            minutes=1,
        )

    return change


for _id, _message in {
    "volume-in-use": (
        'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and '
        "can't be attached to another"
    ),
    "config-map-volume-missing": 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found',
    "secret-volume-missing": 'MountVolume.SetUp failed for volume "keys" : secret "keys" not found',
    "volume-key-missing": 'MountVolume.SetUp failed for volume "config" : references non-existent config key: train.yaml',
    "csi-driver-missing": (
        'MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: '
        "attacher.MountDevice failed to create newCsiDriverClient: driver name fuse.example.com "
        "not found in the list of registered CSI drivers"
    ),
    "mount-refused": (
        'MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32 Mounting arguments: '
        "-t nfs nas:/data Output: mount.nfs: access denied by server while mounting nas:/data"
    ),
    "host-path-missing": 'MountVolume.SetUp failed for volume "data" : hostPath type check failed: /data is not a directory',
    "mount-failed": 'MountVolume.WaitForAttach failed for volume "pvc-1" : volume attachment is being deleted',
}.items():
    case(_id)(_mount(_message))


# Scheduling


@case("scheduling-gated")
def _(world: World) -> None:
    pod = world.unscheduled("Scheduling is blocked due to non-empty scheduling gates")
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    world.events.clear()


@case("kueue-one-by-one")
def _(world: World) -> None:
    pod = world.unscheduled("")
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    world.events.clear()


for _id, _message in {
    "no-nodes": "no nodes available to schedule pods",
    "insufficient-resource": "0/2 nodes are available: 2 Insufficient cpu.",
    "too-many-pods": "0/2 nodes are available: 2 Too many pods.",
    "node-selector": "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
    "taint-not-tolerated": "0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: true}.",
    "node-pressure": "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.",
    "nodes-cordoned": "0/2 nodes are available: 2 node(s) were unschedulable.",
    "nodes-not-ready": "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
    "claim-unbound": "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    "volume-elsewhere": "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
    "volume-limit": "0/2 nodes are available: 2 node(s) exceed max volume count.",
    "pod-affinity": "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
    "topology-spread": "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints.",
    "host-port-taken": "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.",
    "resource-claim": "0/2 nodes are available: 2 cannot allocate all claims.",
    "unschedulable": "0/2 nodes are available: 2 node(s) are reserved for somebody by a plugin of ours.",
}.items():
    _more = (
        " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling." if "/2" in _message else ""
    )
    case(_id)(_with(_message + _more, do=lambda world, message: world.unscheduled(message)))


@case("preempting")
def _(world: World) -> None:
    pod = world.unscheduled(
        "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node."
    )
    pod["status"]["nominatedNodeName"] = "node-1"


@case("scheduler-missing")
def _(world: World) -> None:
    pod = world.unscheduled("")
    pod["spec"]["schedulerName"] = "volcanoo"
    pod["status"] = {"phase": "Pending"}
    world.events.clear()


# Images


def _pull(error: str) -> Callable[[World], object]:
    def change(world: World) -> None:
        image = "registry.example/train:1"
        world.waiting("ImagePullBackOff", f'Back-off pulling image "{image}"')
        world.event("Pod", "mnist-worker-1", "Failed", f'Failed to pull image "{image}": {error}')
        world.event("Pod", "mnist-worker-1", "Failed", "Error: ImagePullBackOff", minutes=1)

    return change


_MANIFEST = "https://registry.example/v2/train/manifests/1"
_CONTAINERD = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "registry.example/train:1": failed '
    'to resolve reference "registry.example/train:1"'
)
for _id, _error in {
    "image-rate-limit": (
        "rpc error: code = Unknown desc = failed to copy: httpReadSeeker: failed open: unexpected "
        "status code https://registry.example/v2/train/manifests/1: 429 Too Many Requests - Server "
        "message: toomanyrequests: You have reached your pull rate limit"
    ),
    "image-missing-or-private": f"{_CONTAINERD}: pull access denied, repository does not exist or may require "
    "authorization: server message: insufficient_scope: authorization failed",
    "image-no-right": f"{_CONTAINERD}: unexpected status from HEAD request to {_MANIFEST}: 401 Unauthorized",
    "image-not-found": f"{_CONTAINERD}: registry.example/train:1: not found",
    "image-wrong-platform": (
        "rpc error: code = NotFound desc = failed to pull and unpack image "
        '"registry.example/train:1": no match for platform in manifest: not found'
    ),
    "image-registry-untrusted": f'{_CONTAINERD}: failed to do request: Head "{_MANIFEST}": tls: '
    "failed to verify certificate: x509: certificate signed by unknown authority",
    "image-no-space": (
        'failed to pull and unpack image "registry.example/train:1": failed to extract layer sha256:0: '
        "write /var/lib/x: no space left on device: unknown"
    ),
    "image-registry-unreachable": f'{_CONTAINERD}: failed to do request: Head "{_MANIFEST}": '
    "dial tcp: lookup registry.example: no such host",
    "image-pull-failed": "rpc error: code = Internal desc = something is wrong in the snapshotter",
}.items():
    case(_id)(_pull(_error))


@case("image-name-invalid")
def _(world: World) -> None:
    message = (
        'Failed to apply default image tag "NONE:1:2": '
        'couldn\'t parse image name "NONE:1:2": invalid '
        "reference format: repository name (library/NONE) must be lowercase"
    )
    world.waiting("InvalidImageName", message)


case("image-never-pulled")(
    lambda world: world.waiting(
        "ErrImageNeverPull", 'Container image "registry.example/train:1" is not present with pull policy of Never'
    )
)
case("image-signature")(
    lambda world: world.waiting(
        "SignatureValidationFailed",
        "image pull failed for registry.example/train:1 because the signature validation failed",
    )
)


@case("image-pull-secret-missing")
def _(world: World) -> None:
    world.creating()
    world.event(
        "Pod",
        "mnist-worker-1",
        "FailedToRetrieveImagePullSecret",
        "Unable to retrieve some image pull secrets (registry-key); attempting to pull the image may not succeed.",
    )


@case("image-slow")
def _(world: World) -> None:
    world.creating(minutes=20)
    world.event(
        "Pod", "mnist-worker-1", "Pulling", 'Pulling image "registry.example/train:1"', type_="Normal", minutes=19
    )


# Starting


for _id, (_reason, _message) in {
    "config-map-missing": ("CreateContainerConfigError", 'configmap "settings" not found'),
    "secret-missing": ("CreateContainerConfigError", 'secret "keys" not found'),
    "config-key-missing": ("CreateContainerConfigError", "couldn't find key token in Secret team/keys"),
    "runs-as-root": (
        "CreateContainerConfigError",
        'container has runAsNonRoot and image will run as root (pod: "mnist-worker-1_team(uid)", container: tensorflow)',
    ),
    "program-missing": (
        "RunContainerError",
        (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            'failed: unable to start container process: exec: "/no/such/program": stat /no/such/program: no such file or '
            "directory: unknown"
        ),
    ),
    "command-not-split": (
        "RunContainerError",
        (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            'failed: unable to start container process: error during container init: exec: "python train.py --steps 9": '
            "executable file not found in $PATH: unknown"
        ),
    ),
    "program-not-executable": (
        "RunContainerError",
        (
            "failed to create containerd task: OCI runtime create failed: runc create failed: unable to start container "
            'process: exec: "/train.py": permission denied: unknown'
        ),
    ),
    "program-wrong-format": (
        "RunContainerError",
        "failed to create containerd task: OCI runtime create failed: exec /train: exec format error: unknown",
    ),
    "mount-path-wrong": (
        "RunContainerError",
        (
            "OCI runtime create failed: error mounting /var/lib/x to rootfs at /train.py: not a directory: Are you "
            "trying to mount a directory onto a file"
        ),
    ),
    "device-runtime": (
        "RunContainerError",
        "OCI runtime create failed: error running hook #0: nvidia-container-cli: initialization error: driver rpc error",
    ),
    "container-cannot-start": (
        "CreateContainerError",
        'failed to reserve container name "tensorflow_mnist-worker-1": name is reserved',
    ),
}.items():
    case(_id)(_with(_reason, _message, do=lambda world, reason, message: world.waiting(reason, message)))


@case("sandbox-failed")
def _(world: World) -> None:
    world.creating()
    world.event(
        "Pod",
        "mnist-worker-1",
        "FailedCreatePodSandBox",
        (
            'Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "1": '
            'plugin type="calico" failed (add): error getting ClusterInformation'
        ),
    )


@case("rejected-by-node")
def _(world: World) -> None:
    pod = world.pods["mnist-worker-1"]
    pod["status"] = {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 7000, capacity: 8000",
    }


@case("init-container-runs")
def _(world: World) -> None:
    pod = world.creating(minutes=30)
    pod["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
    pod["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"running": {"startedAt": ago(29)}}}]
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] = "PodInitializing"


case("starts-slowly")(lambda world: world.creating(minutes=30))


# Failing


case("out-of-memory")(lambda world: world.exited(137, "OOMKilled"))


def _pod_failed(reason: str, message: str) -> Callable[[World], object]:
    def change(world: World) -> None:
        pod = world.pods["mnist-worker-1"]
        pod["status"] |= {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": None}

    return change


case("disk-limit")(_pod_failed("Evicted", 'Container tensorflow exceeded its local ephemeral storage limit "1Gi". '))
case("empty-dir-limit")(_pod_failed("Evicted", 'Usage of EmptyDir volume "cache" exceeds the limit "5Mi". '))
case("evicted")(
    _pod_failed("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ")
)
case("pod-deadline")(_pod_failed("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"))


@case("liveness-probe")
def _(world: World) -> None:
    world.exited(137)
    world.event(
        "Pod",
        "mnist-worker-1",
        "Killing",
        "Container tensorflow failed liveness probe, will be restarted",
        type_="Normal",
    )


for _id, _code in {
    "illegal-instruction": 132,
    "segmentation-fault": 139,
    "aborted": 134,
    "command-not-found": 127,
    "command-not-executable": 126,
    "usage-error": 2,
    "killed": 137,
    "terminated": 143,
    "crash-loop": 1,
}.items():
    case(_id)(_with(_code, do=lambda world, code: world.exited(code)))


@case("init-container-failed")
def _(world: World) -> None:
    pod = world.creating()
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": ago(1)}
    pod["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
    pod["status"]["initContainerStatuses"] = [
        {
            "name": "fetch",
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": ended},
        }
    ]


case("exit-code")(lambda world: world.failed(1, message="ValueError: shapes (3,) and (4,) do not fit"))


@case("backoff-limit")
def _(world: World) -> None:
    world.pods = {}
    world.end(
        "Failed",
        "JobFailed",
        (
            "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-1 was restarted "
            "most, 4 times; last, container tensorflow exited with code 1: ValueError: no data"
        ),
    )


@case("restarts-for-ever")
def _(world: World) -> None:
    status = world.pods["mnist-worker-1"]["status"]["containerStatuses"][0]
    status |= {
        "restartCount": 12,
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": ago(59)}},
    }


@case("restarted-after-success")
def _(world: World) -> None:
    world.pods["mnist-worker-1"]["spec"]["restartPolicy"] = "Always"
    status = world.pods["mnist-worker-1"]["status"]["containerStatuses"][0]
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": ago(1)}
    status |= {"restartCount": 12, "lastState": {"terminated": ended}}


@case("was-restarted")
def _(world: World) -> None:
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 1, "pod": "uid-mnist-worker-1"}]
    world.event("TFJob", JOB, "ExitedWithCode", "Pod: team.mnist-worker-1 exited with code 137", type_="Normal")


@case("pod-template-not-applied")
def _(world: World) -> None:
    words = "Worker: existing pods keep their old template, restart policy and TF_CONFIG."
    world.event("TFJob", JOB, "PodTemplateNotApplied", words)


# Last words


for _id, _log in {
    "peer-name-unresolved": (
        "E socket_utils: getaddrinfo: Name or service not known\nDNS resolution failed for mnist-ps-0.team.svc:2222"
    ),
    "gpu-out-of-memory": (
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:802] failed to alloc 17179869184 bytes on "
        "host: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    ),
    "gpu-not-visible": (
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: "
        "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    ),
    "python-module-missing": (
        'Traceback (most recent call last):\n  File "/train.py", line 3, in '
        "<module>\nModuleNotFoundError: No module named 'horovod'"
    ),
    "disk-full": "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /ckpt/model.tmp; No space left on device",
    "port-in-use": (
        'E grpc server_chttp2.cc:40] {"description":"Address already in use"}\nUnknownError: Could not '
        "start gRPC server"
    ),
    "data-access-denied": "PermissionError: [Errno 13] Permission denied: '/data/train'",
    "file-not-found": "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.tfrecord'",
    "arguments-unknown": "usage: train.py [-h] [--steps STEPS]\ntrain.py: error: unrecognized arguments: --stepz 5",
    "tf-config-misread": 'ValueError: If "cluster" is set in TF_CONFIG, it must have one "chief" node.',
    "peer-unreachable": "tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all addresses",
    "loss-not-a-number": (
        "ERROR:tensorflow:Model diverged with loss = "
        "NaN.\ntensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN "
        "loss during training."
    ),
    "python-out-of-memory": 'Traceback (most recent call last):\n  File "/train.py", line 9, in <module>\nMemoryError',
    "shared-memory-full": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."
    ),
}.items():
    case(_id)(_with(_log, do=lambda world, log: world.exited(1, log=log)))


# On the way


@case("deadline-exceeded")
def _(world: World) -> None:
    world.pods = {}
    world.spec["runPolicy"]["activeDeadlineSeconds"] = 3000
    world.end("Failed", "JobFailed", "Job mnist has failed because it was active longer than specified deadline")


@case("node-not-ready")
def _(world: World) -> None:
    world.nodes["node-1"]["status"]["conditions"] = [
        condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    ]


@case("stuck-terminating")
def _(world: World) -> None:
    world.pods["mnist-worker-1"]["metadata"] |= {"deletionTimestamp": ago(20), "deletionGracePeriodSeconds": 30}


case("service-missing")(lambda world: world.services.pop("mnist-worker-1"))


@case("service-selector-edited")
def _(world: World) -> None:
    world.services["mnist-worker-1"]["spec"]["selector"] = {"training.kubeflow.org/job-name": "other"}


@case("disrupted")
def _(world: World) -> None:
    world.pods["mnist-worker-1"]["status"]["conditions"].append(
        condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")
    )


@case("replicas-restarting")
def _(world: World) -> None:
    del world.pods["mnist-worker-1"]
    world.status["conditions"][-1] = condition(
        "Restarting", reason="TFJobRestarting", message="TFJob mnist is restarting because Worker replica(s) failed."
    )
    world.event("TFJob", JOB, "ExitedWithCode", "Pod: team.mnist-worker-1 exited with code 143", type_="Normal")


def _lines(world: World, **minutes: float) -> None:
    """The last log lines of the workers, so many minutes ago."""
    for name, each in minutes.items():
        at = datetime.fromisoformat(ago(each)) if each else None
        world.last_lines[f"mnist-{name.replace('_', '-')}"] = LastLine(at, f"step {each:.0f}" if each else "")


case("no-log-output")(lambda world: _lines(world, worker_0=30, worker_1=0))
case("replica-without-log-output")(lambda world: _lines(world, worker_0=1, worker_1=30))


@case("deadline-near")
def _(world: World) -> None:
    world.spec["runPolicy"]["activeDeadlineSeconds"] = 3900


@case("backoff-limit-near")
def _(world: World) -> None:
    world.spec["runPolicy"]["backoffLimit"] = 3
    world.status["restarts"] = [{"type": "PS", "index": 0, "carried": 3, "pod": "uid-mnist-ps-0"}]


for _id, _reason in {
    "not-adopted": "FailedAdoptPod",
    "delete-failed": "FailedDeletePod",
    "children-edited": "RestoredPodLabels",
}.items():
    case(_id)(
        _with(
            _reason,
            do=lambda world, reason: world.event("TFJob", JOB, reason, "Error adopting pod mnist-worker-0: 422"),
        )
    )


case("finished-and-kept")(
    lambda world: world.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.", minutes=1500)
)
case("job-failed")(lambda world: world.end("Failed", "TFJobFailed", "TFJob team/mnist has failed because of a reason."))


@case("succeeded-without-others")
def _(world: World) -> None:
    world.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
    world.status["replicaStatuses"] = {"PS": {}, "Worker": {"succeeded": 1}}


# TensorBoard

for _id, _reason in {
    "tensorboard-invalid": "InvalidTensorBoard",
    "tensorboard-failed": "FailedTensorBoard",
    "tensorboard-unavailable": "TensorBoardUnavailable",
}.items():
    case(_id)(
        _with(
            _reason,
            do=lambda world, reason: world.event("TFJob", JOB, reason, "spec.tensorBoard.logDir: Required value"),
        )
    )


# The alpha dialect


@case("alpha-not-served")
def _(world: World) -> None:
    world.alpha(TENSORFLOW)
    world.job["status"] = {}
    world.pods, world.batch_jobs, world.services = {}, {}, {}


@case("chief-missing")
def _(world: World) -> None:
    world.alpha()
    del world.spec["replicaSpecs"][0]
    world.end(
        "Failed", "InvalidTFJobSpec", "invalid job spec: spec.terminationPolicy: Missing ReplicaSpec for chief: MASTER"
    )
    world.status["phase"] = "Failed"
    world.pods, world.batch_jobs = {}, {}


@case("restart-policy-always")
def _(world: World) -> None:
    world.alpha()
    world.spec["replicaSpecs"][1]["template"]["spec"]["restartPolicy"] = "Always"


@case("batch-job-failed")
def _(world: World) -> None:
    world.alpha()
    del world.pods["worker-x7ab-1-abcde"]
    failed = condition("Failed", reason="DeadlineExceeded", message="Job was active longer than specified deadline")
    world.batch_jobs["worker-x7ab-1"]["status"]["conditions"] = [failed]


@case("batch-job-suspended")
def _(world: World) -> None:
    world.alpha()
    del world.pods["worker-x7ab-1-abcde"]
    world.batch_jobs["worker-x7ab-1"] |= {"spec": {"suspend": True}, "status": {}}


@case("job-controller-silent")
def _(world: World) -> None:
    world.alpha()
    del world.pods["worker-x7ab-1-abcde"]
    world.batch_jobs["worker-x7ab-1"]["status"] = {}


# Quoted


@case("waits-for-terminating-pod")
def _(world: World) -> None:
    pod = world.pods.pop("mnist-worker-1")
    pod["metadata"] |= {"deletionTimestamp": ago(-5), "deletionGracePeriodSeconds": 600, "uid": "uid-former"}
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "600"]}}}
    world.former = [pod]


@case("pod-status")
def _(world: World) -> None:
    status = world.creating()["status"]
    status |= {"reason": "AppArmor", "message": "Cannot enforce AppArmor: AppArmor is not enabled on the host"}


@case("startup-failed")
def _(world: World) -> None:
    world.exited(137)
    world.event("Pod", "mnist-worker-1", "FailedPostStartHook", "PostStartHook failed: command 'curl x' exited with 7")


@case("sidecar-failed")
def _(world: World) -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": ago(3)}}
    status = {"name": "loader", "ready": False, "restartCount": 0, "state": ended}
    world.pods["mnist-worker-1"]["status"]["containerStatuses"].append(status)
    world.logs["mnist-worker-1", "loader"] = "reading\nKeyError: 'bucket'"


@case("pod-warning")
def _(world: World) -> None:
    for name in ("mnist-worker-0", "mnist-worker-1"):
        world.pods[name]["status"]["containerStatuses"][0]["ready"] = False
        world.event("Pod", name, "Unhealthy", "Readiness probe failed: dial tcp 10.0.0.7:2222: connect: refused")


@case("node-missing")
def _(world: World) -> None:
    world.creating()["spec"]["nodeName"] = "gpu-node-7"


@case("pods-recreated")
def _(world: World) -> None:
    world.pods.pop("mnist-worker-1")
    world.spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["nodeName"] = "gpu-node-7"
    world.event("TFJob", JOB, "SuccessfulCreatePod", "Created pod: mnist-worker-1", type_="Normal", count=9)
