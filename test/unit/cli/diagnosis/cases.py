"""A case of each trouble. The messages are those of real servers, kubelets and libraries."""

import re
from collections.abc import Callable
from functools import partial

from unit.cli.diagnosis.troubled import Troubled
from unit.cli.diagnosis.world import WORKER, ago

Case = Callable[[Troubled], object]


def table(make: Callable[[Troubled, str], object], text: str) -> dict[str, Case]:
    """A case for each line `ID: message` of a text; an indented line continues the one before."""
    rows = [line.partition(": ") for line in re.sub(r"\n +", " ", text.strip()).splitlines()]
    return {id_: partial(lambda message, world: make(world, message), message) for id_, _, message in rows}


def evicted(world: Troubled, words: str) -> None:
    """Have the kubelet evict a pod; its messages end with a blank."""
    world._pod_failed("Evicted", f"{words} ")


def unlimited(world: Troubled) -> None:
    """Have a container without a limit killed for its memory."""
    world.exited(137, "OOMKilled")
    del world.pods[WORKER]["spec"]["containers"][0]["resources"]


MANIFEST = "https://registry.example/v2/train/manifests/1"
UNRESOLVED = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "registry.example/train:1": failed to resolve '
    'reference "registry.example/train:1"'
)
CASES: dict[str, Case] = {
    **{name.replace("_", "-"): make for name, make in vars(Troubled).items() if not name.startswith("_")},
    "node-lost": lambda world: world.job_event(
        "NodeLost", "Marked as failed: pod mnist-worker-1: its node node-9 has not been ready since 2026-11-22T11:50:00Z"
    ),
    "nodes-unavailable": lambda world: world.job_event("NodesUnavailable", "onNodes rules have no effect: nodes is forbidden"),
    "logs-unavailable": lambda world: world.job_event(
        "LogsUnavailable", "progressDeadlineSeconds has no effect: pods is forbidden"
    ),
    "stalled": lambda world: world._aside(
        "Stalled", "ProgressDeadlineExceeded",
        "TFJob mnist is stalled: no new log line for 600s in mnist-worker-0 .. mnist-worker-3; "
        "last line of mnist-worker-0: step 7",
    ),
    "nodes-not-avoided": lambda world: world.job_event("NodesNotAvoided", "status.avoidedNodes has no effect on Worker"),
    "restart-request-ignored": lambda world: world.job["metadata"].update(
        annotations={"training.kubeflow.org/restart-requested-at": "x" * 65}
    ),
    "failure-rule-unreachable": lambda world: world._ruled("Never", "FailJob", "FailJob"),
    "failure-rule-matches-healthy-nodes": lambda world: world._ruled(
        "Never", "FailJob", onNodes={"conditions": [{"type": "Ready"}]}
    ),
    "failure-rule-without-deadline": lambda world: world._ruled(
        "Never", "FailJob", onFailureReasons=["ProgressDeadlineExceeded"]
    ),
    "pod-restart-policy-never": lambda world: world._ruled("OnFailure", "FailJob"),
    "max-restarts-exceeded": lambda world: world.end(
        "Failed", "JobFailed", "Job mnist has failed because it was restarted as often as maxRestarts allows. it is sick"
    ),
    "start-deadline-exceeded": lambda world: world.end(
        "Failed", "JobFailed",
        "Job mnist has failed because not all of its replicas ran within the start deadline. 1 did not, the first is mnist-ps-0"
    ),
    "deadline-not-running": lambda world: world._at_deadline(
        {"podName": "mnist-worker-1", "reason": "NotRunning", "message": "was not running: not scheduled yet"}
    ),
    "failed-by-rule": lambda world: world.end(
        "Failed", "PodFailurePolicy", "TFJob team/mnist has failed by rule badGpu: pod mnist-worker-1: its node is sick"
    ),
    "network-not-updated": lambda world: world.spec["runPolicy"].update(network="shared"),
    "gang-scheduling-off": lambda world: world.spec["runPolicy"].update(schedulingPolicy={"minAvailable": 3}),
    "tensorboard-not-starting": lambda world: world.event(
        "Pod", "mnist-tensorboard-7d9-x2x", "Failed", 'Failed to pull image "board:1": not found'
    ),
    "waits-for-init-container": lambda world: world._initializing(2),
    "parameter-server-completed": lambda world: world._server_ended(),
    "namespace-terminating": lambda world: world.namespace["status"].update(phase="Terminating"),
    "job-being-deleted": lambda world: world.job["metadata"].update(
        deletionTimestamp=ago(5), finalizers=["example.com/backup"]),
    "operator-scaled-to-zero": lambda world: world._without_operator(0),
    "operator-not-acting": lambda world: world._new(),
    "edit-not-seen": lambda world: world.job["metadata"].update(generation=3),
    "field-unknown": lambda world: world.spec["runPolicy"].update(backofLimit=3),
    "pods-missing": lambda world: world.pods.pop(WORKER),
    "service-missing": lambda world: world.services.pop(WORKER),
    "service-selector-edited": lambda world: world.services[WORKER]["spec"].update(
        selector={"training.kubeflow.org/job-name": "other"}),
    "stuck-terminating": lambda world: world.pods[WORKER]["metadata"].update(
        deletionTimestamp=ago(20), deletionGracePeriodSeconds=30),
    "deadline-passed": lambda world: world.spec["runPolicy"].update(activeDeadlineSeconds=1800),
    "invalid-here": lambda world: world._foreign(),
    "deadline-near": lambda world: world.spec["runPolicy"].update(activeDeadlineSeconds=3900),
    "batch-job-suspended": lambda world: world._alpha_without_pod().update(spec={"suspend": True}, status={}),
    "job-controller-silent": lambda world: world._alpha_without_pod().update(status={}),
    "node-missing": lambda world: world.creating()["spec"].update(nodeName="gpu-node-7"),
    "suspended": lambda world: world.suspend(),
    "kueue-deactivated": lambda world: world.suspend(active=False, conditions=[]),
    "kueue-check-rejected": lambda world: world._checked("Rejected"),
    "kueue-check": lambda world: world._checked("Pending"),
    "claim-lost": lambda world: world.claim("Lost"),
    "claim-pending": lambda world: world.claim("Pending"),
    "scheduling-gated": lambda world: world._gated("example.com/quota"),
    "kueue-one-by-one": lambda world: world._gated("kueue.x-k8s.io/admission"),
    "starts-slowly": lambda world: world.creating(minutes=30),
    "out-of-memory": lambda world: world.exited(137, "OOMKilled"),
    "memory-without-limit": unlimited,
    "pod-deadline": lambda world: world._pod_failed(
        "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
    ),
    "exit-code": lambda world: world.failed(1, message="ValueError: shapes (3,) and (4,) do not fit"),
    "no-log-output": lambda world: world._lines(30, 0),
    "replica-without-log-output": lambda world: world._lines(1, 30),
    "running-after-exception": lambda world: world._written(2, "Traceback (most recent call last):\n  frame\nKeyError: 'LR'"),
    "running-with-repeated-error": lambda world: world._written(0.1, "\n".join(["[ERROR] no route to db:5432"] * 9)),
    "loss-diverged": lambda world: world._written(0.1, "epoch 2 loss: nan\nepoch 3 loss: nan\nepoch 4 loss: nan"),
    "accelerator-unused": lambda world: world._without_device(),
    "succeeded-after-out-of-memory": lambda world: world._out_of_memory_well(),
    "replica-never-ran": lambda world: world._never_ran(),
    "succeeded-without-data": lambda world: world._without_data(),
    "helper-finished": lambda world: world._helper_finished(),
    "succeeded-beside-failure": lambda world: world._evaluator_failed(),
    "finished-and-kept": lambda world: world.end(
        "Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.", minutes=1500
    ),
    "limit-reached": lambda world: world.end("Failed", "JobFailed", "Job mnist has failed because of a limit of tomorrow."),
    "job-failed": lambda world: world.end("Failed", "TFJobFailed", "TFJob team/mnist has failed because of a reason."),
    "tf-config-too-long": lambda world: world._unfit("mnist", Worker=9000),
    "name-too-long": lambda world: world._unfit("m" * 60, Worker=1),
    "name-invalid": lambda world: world._unfit("9mnist", Worker=1),
    "too-many-replicas": lambda world: world._unfit("mnist", Worker=20000),
    "alpha-form": lambda world: world._invalid({"replicaSpecs": []}),
    "container-name": lambda world: world._invalid(
        {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}}}}
    ),
    "replica-specs-missing": lambda world: world._invalid({"tfReplicaSpecs": {}}),
    "replica-type-unknown": lambda world: world._invalid(
        {"tfReplicaSpecs": {"Helper": world.workers, "Worker": world.workers}}
    ),
    "template-refused": lambda world: world._invalid(
        world.spec,
        'pod mnist-worker-0 was rejected: Pod "mnist-worker-0" is invalid: spec.containers[0].volumeMounts[0].name: Not found',
    ),
    "spec-invalid": lambda world: world._invalid(world.spec | {"runPolicy": {"backoffLimit": -1}}),
    **table(Troubled._held, """
held-invalid: InvalidTFJobSpec: spec.runPolicy.backoffLimit: must be a non-negative integer, not a string
held-refused: RefusedTFJobSpec: pod mnist-worker-1 was rejected: Pod "mnist-worker-1" is invalid: spec.containers[0].image:
  Required value
held-too-large: TFJobTooLarge: spec.tfReplicaSpecs: requests 20000 replicas; the maximum is 10000
"""),
    **table(Troubled._queued, """
kueue-queue-missing: Inadmissible: LocalQueue research doesn't exist
kueue-queue-stopped: Inadmissible: ClusterQueue shared is inactive
kueue-namespace: Pending: Workload namespace doesn't match ClusterQueue selector
kueue-too-large: Pending: couldn't assign flavors to pod set worker: insufficient quota for nvidia.com/gpu in flavor a100,
  request > maximum capacity (24 > 16)
kueue-preempted: Preempted: Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue
kueue-gave-up: DeactivatedDueToRequeuingLimitExceeded: The workload is deactivated due to exceeding the maximum number of
  re-queuing retries
kueue-pods-ready-timeout: PodsReadyTimeout: Exceeded the PodsReady timeout team/tfjob-mnist-1a2b3
kueue-quota: Pending: couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor default, 3
  more needed
kueue-waits: Pending: The workload is backing off
"""),
    **table(Troubled.refuse, """
quota-exceeded: pods "mnist-worker-1" is forbidden: exceeded quota: compute, requested: requests.cpu=2,requests.memory=4Gi,
  used: requests.cpu=15,requests.memory=30Gi, limited: requests.cpu=16,requests.memory=32Gi
quota-wants-requests: pods "mnist-worker-1" is forbidden: failed quota: compute: must specify limits.cpu for: tensorflow;
  requests.cpu for: tensorflow
quota-status-unknown: pods "mnist-worker-1" is forbidden: status unknown for quota: compute, resources: pods
limit-range-maximum: pods "mnist-worker-1" is forbidden: maximum memory usage per Container is 2Gi, but limit is 4Gi
limit-range-minimum: pods "mnist-worker-1" is forbidden: minimum cpu usage per Pod is 4, but request is 2
limit-range-ratio: pods "mnist-worker-1" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is
  4.000000
pod-security: pods "mnist-worker-1" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false
  (container "tensorflow" must set securityContext.allowPrivilegeEscalation=false)
pod-security-policy: pods "mnist-worker-1" is forbidden: unable to validate against any security context constraint: [provider
  "anyuid": Forbidden: not usable by user or serviceaccount]
webhook-denied: admission webhook "validation.gatekeeper.sh" denied the request: [team-label] pod mnist-worker-1 must have the
  label team
webhook-unreachable: Internal error occurred: failed calling webhook "inject.example.com": failed to call webhook: Post
  "https://inject.mesh.svc:443/inject?timeout=10s": dial tcp 10.0.0.9:443: connect: connection refused
kueue-unreachable: Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post
  "https://kueue-webhook-service.kueue-system.svc:443/mutate--v1-pod?timeout=10s": dial tcp 10.0.0.9:443: connect: connection
  refused
admission-policy-denied: pods "mnist-worker-1" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding
  'no-latest-binding' denied request: images must have a tag
service-account-missing: pods "mnist-worker-1" is forbidden: error looking up service account team/trainer: serviceaccount
  "trainer" not found
priority-class-missing: pods "mnist-worker-1" is forbidden: no PriorityClass with name urgent was found
runtime-class-missing: pods "mnist-worker-1" is forbidden: pod rejected: RuntimeClass "gvisor" not found
name-taken: pod mnist-worker-1 already exists and is not controlled by this TFJob: it belongs to ReplicaSet web; delete it or
  recreate the job under another name
former-child-in-the-way: service mnist-worker-1 already exists and is not controlled by this TFJob: it belongs to an earlier
  job of this name (UID 7a6f) and is left to the garbage collector
ended-pod-in-the-way: pod mnist-worker-1 already exists and is not controlled by this TFJob: it has finished and has no owner;
  delete it to continue
operator-no-rights: pods is forbidden: User "system:serviceaccount:kubeflow:tf-job-operator" cannot create resource "pods" in
  API group "" in the namespace "team"
api-server-errors: POST /api/v1/namespaces/team/pods: 504 Timeout: request did not complete within the allotted duration
create-refused: pods "mnist-worker-1" is forbidden: something that nobody has seen before
"""),
    **table(Troubled._unbound, """
storage-class-missing: ProvisioningFailed: storageclass.storage.k8s.io "fast" not found
claim-without-class: FailedBinding: no persistent volumes available for this claim and no storage class is set
provisioning-failed: ProvisioningFailed: failed to provision volume with StorageClass "ssd": rpc error: code = ResourceExhausted
  desc = quota of disks
"""),
    **table(Troubled._unmounted, """
volume-in-use: Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and can't be attached
  to another
config-map-volume-missing: MountVolume.SetUp failed for volume "config" : configmap "settings" not found
secret-volume-missing: MountVolume.SetUp failed for volume "keys" : secret "keys" not found
volume-key-missing: MountVolume.SetUp failed for volume "config" : references non-existent config key: train.yaml
csi-driver-missing: MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: attacher.MountDevice failed to
  create newCsiDriverClient: driver name fuse.example.com not found in the list of registered CSI drivers
mount-refused: MountVolume.SetUp failed for volume "nfs" : mount failed: exit status 32 Mounting arguments: -t nfs nas:/data
  Output: mount.nfs: access denied by server while mounting nas:/data
host-path-missing: MountVolume.SetUp failed for volume "data" : hostPath type check failed: /data is not a directory
mount-failed: MountVolume.WaitForAttach failed for volume "pvc-1" : volume attachment is being deleted
"""),
    **table(Troubled._unplaced, """
no-nodes: no nodes available to schedule pods
insufficient-resource: 0/2 nodes are available: 2 Insufficient cpu.
too-many-pods: 0/2 nodes are available: 2 Too many pods.
node-selector: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.
taint-not-tolerated: 0/2 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: true}.
node-pressure: 0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.
nodes-cordoned: 0/2 nodes are available: 2 node(s) were unschedulable.
nodes-not-ready: 0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.
claim-unbound: 0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.
volume-elsewhere: 0/2 nodes are available: 2 node(s) had volume node affinity conflict.
volume-limit: 0/2 nodes are available: 2 node(s) exceed max volume count.
pod-affinity: 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.
topology-spread: 0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints.
host-port-taken: 0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.
resource-claim: 0/2 nodes are available: 2 cannot allocate all claims.
unschedulable: 0/2 nodes are available: 2 node(s) are reserved for somebody by a plugin of ours.
"""),
    **table(Troubled._unpulled, f"""
image-rate-limit: rpc error: code = Unknown desc = failed to copy: httpReadSeeker: failed open: unexpected status code
  https://registry.example/v2/train/manifests/1: 429 Too Many Requests - Server message: toomanyrequests: You have reached your
  pull rate limit
image-missing-or-private: {UNRESOLVED}: pull access denied, repository does not exist or may require authorization: server
  message: insufficient_scope: authorization failed
image-no-right: {UNRESOLVED}: unexpected status from HEAD request to {MANIFEST}: 401 Unauthorized
image-not-found: {UNRESOLVED}: registry.example/train:1: not found
image-wrong-platform: rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/train:1": no match
  for platform in manifest: not found
image-registry-untrusted: {UNRESOLVED}: failed to do request: Head "{MANIFEST}": tls: failed to verify certificate: x509:
  certificate signed by unknown authority
image-no-space: failed to pull and unpack image "registry.example/train:1": failed to extract layer sha256:0: write /var/lib/x:
  no space left on device: unknown
image-registry-unreachable: {UNRESOLVED}: failed to do request: Head "{MANIFEST}": dial tcp: lookup registry.example: no such
  host
image-pull-failed: rpc error: code = Internal desc = something is wrong in the snapshotter
"""),
    **table(Troubled._unstarted, """
image-name-invalid: InvalidImageName: Failed to apply default image tag "NONE:1:2": couldn't parse image name "NONE:1:2":
  invalid reference format: repository name (library/NONE) must be lowercase
image-never-pulled: ErrImageNeverPull: Container image "registry.example/train:1" is not present with pull policy of Never
image-signature: SignatureValidationFailed: image pull failed for registry.example/train:1 because the signature validation
  failed
config-map-missing: CreateContainerConfigError: configmap "settings" not found
secret-missing: CreateContainerConfigError: secret "keys" not found
config-key-missing: CreateContainerConfigError: couldn't find key token in Secret team/keys
runs-as-root: CreateContainerConfigError: container has runAsNonRoot and image will run as root (pod:
  "mnist-worker-1_team(uid)", container: tensorflow)
program-missing: RunContainerError: failed to create containerd task: failed to create shim task: OCI runtime create failed:
  runc create failed: unable to start container process: exec: "/no/such/program": stat /no/such/program: no such file or
  directory: unknown
command-not-split: RunContainerError: failed to create containerd task: failed to create shim task: OCI runtime create failed:
  runc create failed: unable to start container process: error during container init: exec: "python train.py --steps 9":
  executable file not found in $PATH: unknown
program-not-executable: RunContainerError: failed to create containerd task: OCI runtime create failed: runc create failed:
  unable to start container process: exec: "/train.py": permission denied: unknown
program-wrong-format: RunContainerError: failed to create containerd task: OCI runtime create failed: exec /train: exec format
  error: unknown
mount-path-wrong: RunContainerError: OCI runtime create failed: error mounting /var/lib/x to rootfs at /train.py: not a
  directory: Are you trying to mount a directory onto a file
device-runtime: RunContainerError: OCI runtime create failed: error running hook #0: nvidia-container-cli: initialization
  error: driver rpc error
container-cannot-start: CreateContainerError: failed to reserve container name "tensorflow_mnist-worker-1": name is reserved
"""),
    **table(evicted, """
disk-limit: Container tensorflow exceeded its local ephemeral storage limit "1Gi".
empty-dir-limit: Usage of EmptyDir volume "cache" exceeds the limit "5Mi".
evicted: The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.
"""),
    **table(lambda world, code: world.exited(int(code)), """
illegal-instruction: 132
segmentation-fault: 139
aborted: 134
bus-error: 135
command-not-found: 127
command-not-executable: 126
usage-error: 2
killed: 137
terminated: 143
crash-loop: 1
"""),
    **table(lambda world, log: world.exited(1, log=log.replace(r"\n", "\n")), r"""
peer-name-unresolved: E socket_utils: getaddrinfo: Name or service not known\nDNS resolution failed for
  mnist-ps-0.team.svc:2222
external-name-unresolved: 'mlflow.exceptions.MlflowException: API request to https://mlflow.tools/api failed with exception
  HTTPSConnectionPool(host='mlflow.tools', port=443): Failed to resolve 'mlflow.tools' ([Errno -2] Name or service not known)'
external-host-unreachable: 'requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='mlflow.tools', port=443): Connection
  to mlflow.tools timed out'
gpu-out-of-memory: E tensorflow/stream_executor/cuda/cuda_driver.cc:802] failed to alloc 17179869184 bytes on host:
  CUDA_ERROR_OUT_OF_MEMORY: out of memory
gpu-not-visible: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no
  CUDA-capable device is detected
gpu-hardware-error: tensorflow.python.framework.errors_impl.InternalError: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC
  error encountered
python-module-missing: Traceback (most recent call last):\n  File "/train.py", line 3, in <module>\nModuleNotFoundError: No
  module named 'horovod'
windows-line-endings: /run.sh: line 2: $'\r': command not found
disk-full: tensorflow.python.framework.errors_impl.ResourceExhaustedError: /ckpt/model.tmp; No space left on device
port-in-use: E grpc server_chttp2.cc:40] {"description":"Address already in use"}\nUnknownError: Could not start gRPC server
data-access-denied: PermissionError: [Errno 13] Permission denied: '/data/train'
service-account-token-missing: 'kubernetes.config.config_exception.ConfigException: Service token file does not exist.'
object-not-found: botocore.errorfactory.NoSuchBucket: An error occurred (NoSuchBucket) when calling the ListObjectsV2
  operation: The specified bucket does not exist
child-killed: step 7\nrun.sh: line 3:    17 Killed                  python train.py
file-not-found: FileNotFoundError: [Errno 2] No such file or directory: '/data/train.tfrecord'
arguments-unknown: usage: train.py [-h] [--steps STEPS]\ntrain.py: error: unrecognized arguments: --stepz 5
tf-config-missing: KeyError: 'TF_CONFIG'
tf-config-misread: ValueError: If "cluster" is set in TF_CONFIG, it must have one "chief" node.
peer-unreachable: tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all addresses
loss-not-a-number: ERROR:tensorflow:Model diverged with loss =
  NaN.\ntensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN loss during training.
python-out-of-memory: Traceback (most recent call last):\n  File "/train.py", line 9, in <module>\nMemoryError
python-import-failed: ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.12/collections/__init__.py)
shared-library-missing: ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory
read-only-file-system: OSError: [Errno 30] Read-only file system: '/ckpt/model.tmp'
too-many-open-files: OSError: [Errno 24] Too many open files: '/data/train-00512.tfrecord'
object-store-denied: botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden
object-store-credentials-missing: botocore.exceptions.NoCredentialsError: Unable to locate credentials
clock-skew: botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when calling the GetObject operation: The
  difference between the request time and the current time is too large.
peer-failed: tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: Error reported from
  /job:worker/task:0: Task /job:worker/replica:0/task:0 heartbeat timeout.
shared-memory-full: ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory
  (shm).
"""),
    **table(Troubled._refused, """
status-too-large: 500 etcdserver: request is too large
status-denied: 403 admission webhook "policy.example.com" denied the request: tfjobs/status is read-only
status-forbidden: 403 tfjobs.kubeflow.org "mnist" is forbidden: User "system:serviceaccount:kubeflow:tf-job-operator" cannot
  patch resource "tfjobs/status" in API group "kubeflow.org" in the namespace "team"
status-invalid: 422 TFJob.kubeflow.org "mnist" is invalid: status.restarts: Too many: 1: must have at most 0 items
status-refused: 500 Internal error occurred: failed calling webhook "policy.example.com": connect: connection refused
"""),
    **table(lambda world, reason: world.job_event(reason, "Error adopting pod mnist-worker-0: 422"), """
not-adopted: FailedAdoptPod
delete-failed: FailedDeletePod
children-edited: RestoredPodLabels
"""),
    **table(lambda world, reason: world.job_event(reason, "spec.tensorBoard.logDir: Required value"), """
tensorboard-invalid: InvalidTensorBoard
tensorboard-failed: FailedTensorBoard
tensorboard-unavailable: TensorBoardUnavailable
""")
}  # fmt: skip


def world_of(*ids: str) -> Troubled:
    """A world with these troubles, a healthy one without any."""
    world = Troubled()
    for id_ in ids:
        CASES[id_](world)
    return world
