"""Log messages of Python, TensorFlow and CUDA that usually have a single cause. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tfjob_operator.cli.diagnosis import starting
from tfjob_operator.cli.diagnosis.advice import AGAIN, LOGS, LOGS_OF_JOB, PODS, TIMELINE
from tfjob_operator.cli.diagnosis.causes import ManifestChange, Problem, Step, error
from tfjob_operator.cli.diagnosis.rules import MessageRule, rule


def _log(id_: str, rank: int, title: str, to_do: tuple[Step, ...], meaning: str) -> Problem:
    return error(id_, title, meaning, LOGS, *to_do, rank=rank)


PEER_UNKNOWN: Final = _log(
    "peer-name-unresolved",
    705,
    "Host name does not resolve: {name} ({who})",
    (
        (
            "Check that the Services exist: "
            "kubectl -n {namespace} get services --selector=training.kubeflow.org/job-name={job}"
        ),
        "Ask your cluster administrator to check cluster DNS, and CUSTOM_CLUSTER_DOMAIN of the operator",
        AGAIN,
    ),
    "A host name in the log does not resolve: a Service is missing, or cluster DNS fails",
)
GPU_MEMORY: Final = _log(
    "gpu-out-of-memory",
    706,
    "Out of GPU memory ({who})",
    (ManifestChange("use smaller batches in command or args, or a nodeSelector for GPUs with more memory"),),
    "CUDA or TensorFlow could not allocate memory on the GPU",
)
NO_GPU: Final = _log(
    "gpu-not-visible",
    707,
    "No usable GPU ({who})",
    (
        ManifestChange(
            "set nvidia.com/gpu in resources.limits of container tensorflow, and use an image for the driver's CUDA"
        ),
    ),
    "CUDA finds no device, or the driver is older than the CUDA version of the image",
)
BROKEN_GPU: Final = _log(
    "gpu-hardware-error",
    707,
    "Hardware error of a GPU ({who}): {name}",
    (
        "kubectl -n {namespace} get pod {pod} -o wide",
        "Ask your cluster administrator to drain its node, and to check or reset the GPU",
        ManifestChange(
            "set spec.runPolicy.nodeAvoidance, so that restarted replicas get other nodes than those with failures",
            recreate=False,
        ),
    ),
    "An uncorrectable ECC error, an Xid error of the NVIDIA driver, or a GPU that no longer responds: the node is at fault",
)
NO_MODULE: Final = _log(
    "python-module-missing",
    708,
    "Python module {name} not found in the image ({who})",
    (ManifestChange("use an image with the module installed (pip install), or correct PYTHONPATH in env"),),
    "ModuleNotFoundError",
)
IMPORT_FAILED: Final = _log(
    "python-import-failed",
    708,
    "Import failed: {name} ({who})",
    (
        ManifestChange(
            "use an image with versions of the packages that fit together (pip check), in which no script has the name of a "
            "module"
        ),
    ),
    "ImportError of a module that exists: versions that do not fit together, or circular imports",
)
LINE_ENDINGS: Final = _log(
    "windows-line-endings",
    708,
    "Windows line endings (CRLF) in a script ({who}): {name}",
    (
        ManifestChange(
            "use an image, or a ConfigMap, whose scripts have Unix line endings (LF), such as after dos2unix SCRIPT"
        ),
    ),
    "The shell reads the carriage return at the end of a line as a part of a command or path",
)
NO_LIBRARY: Final = _log(
    "shared-library-missing",
    708,
    "Shared library {name} not found in the image ({who})",
    (
        ManifestChange(
            "use an image with the library (for CUDA: of the version for which TensorFlow was built), or correct "
            "LD_LIBRARY_PATH in env"
        ),
    ),
    "The dynamic linker does not find a lib*.so that the program or a Python module needs",
)
DISK_FULL: Final = _log(
    "disk-full",
    709,
    "No space left on device ({who})",
    (ManifestChange("mount a larger volume for what the program writes, or delete old checkpoints"),),
    "No space left on device",
)
READ_ONLY: Final = _log(
    "read-only-file-system",
    709,
    "Read-only file system: {name} ({who})",
    (
        ManifestChange(
            "mount a volume (an emptyDir for temporary files) where the program writes, or remove readOnly of the volume or "
            "readOnlyRootFilesystem"
        ),
    ),
    "The program writes to a read-only volume, or to a root file system with readOnlyRootFilesystem",
)
OPEN_FILES: Final = _log(
    "too-many-open-files",
    709,
    "Too many open files ({who}): {name}",
    (
        ManifestChange(
            "read fewer files at a time, such as with a smaller cycle_length or fewer num_workers in command or args"
        ),
    ),
    "The process exceeded its limit of open files, which the container runtime sets",
)
PORT_IN_USE: Final = _log(
    "port-in-use",
    710,
    "Port already in use ({who})",
    (ManifestChange("remove hostNetwork from the template, and let each process listen on its own port of TF_CONFIG"),),
    "Address already in use, or a gRPC server that did not start",
)
NO_SERVER: Final = "Server not started, usually because its port is already in use ({who})"
"""The title of PORT_IN_USE if the log does not say so."""
IN_USE: Final = re.compile(r"in use\b|EADDRINUSE", re.IGNORECASE)
NO_ACCESS: Final = _log(
    "data-access-denied",
    711,
    "Access to data denied: {name} ({who})",
    (
        ManifestChange(
            "set runAsUser to the files' owner, securityContext.fsGroup for a volume (without effect on hostPath and NFS), "
            "or defaultMode for a Secret or ConfigMap, or write to another path"
        ),
    ),
    "Permission denied for a file, a directory or a server",
)
STORE_DENIED: Final = _log(
    "object-store-denied",
    711,
    "Object store denied access: {name} ({who})",
    (
        "Ask the owner of the bucket to grant the identity of the pod the permission that the message names",
        ManifestChange("or correct serviceAccountName in the template, or the Secret with the credentials"),
    ),
    "403 or AccessDenied of an object store, such as S3, Cloud Storage or Azure Blob Storage",
)
NO_CREDENTIALS: Final = _log(
    "object-store-credentials-missing",
    711,
    "No credentials for the object store ({who}): {name}",
    (
        ManifestChange(
            "set serviceAccountName to an account with access to the bucket, or env from a Secret with its credentials"
        ),
    ),
    "The client library of an object store found no credentials",
)
CLOCK: Final = _log(
    "clock-skew",
    711,
    "Clock of the node differs from that of a server ({who}): {name}",
    (
        "kubectl -n {namespace} get pod {pod} -o wide",
        "Ask your cluster administrator to synchronize the clock of its node",
    ),
    "A server rejected a signature or a token because of its time",
)
NO_FILE: Final = _log(
    "file-not-found",
    712,
    "File not found: {name} ({who})",
    (ManifestChange("correct the path of the file in command or args, create it, or mount the volume that has it"),),
    "A file or directory that the program names does not exist",
)
NO_OBJECT: Final = _log(
    "object-not-found",
    712,
    "Bucket or object not found in the object store ({who}): {name}",
    (
        ManifestChange(
            "correct the bucket, the path and, if one is set, the endpoint of the object store in command, args or env, or "
            "create what is missing there"
        ),
    ),
    "S3, Cloud Storage or Azure Blob Storage has no such bucket, container or object",
)
NO_TOKEN: Final = _log(
    "service-account-token-missing",
    712,
    "No service account token in the pod: {name} ({who})",
    (
        (
            "JAX needs a token if the image has the package kubernetes, unless the program calls jax.distributed.initialize "
            'with cluster_detection_method="deactivate"'
        ),
        ManifestChange(
            "remove automountServiceAccountToken: false from the template or set it to true there, which overrides the "
            "ServiceAccount"
        ),
    ),
    "The program calls the API server, and automountServiceAccountToken is false in the template or the ServiceAccount",
)
BAD_ARGUMENTS: Final = _log(
    "arguments-unknown",
    713,
    "Unknown, missing or invalid argument: {name} ({who})",
    (ManifestChange("correct command and args in the template"),),
    "argparse or absl rejects an argument",
)
TF_CONFIG_BAD: Final = _log(
    "tf-config-misread",
    714,
    "TF_CONFIG rejected by TensorFlow ({who}): {name}",
    (ManifestChange("remove TF_CONFIG from env of the template, and add the replica types that the program needs"),),
    "TensorFlow rejects TF_CONFIG",
)
_ALLOWED: Final = (
    "A NetworkPolicy with rules for egress must allow the host, and port 53 of cluster DNS: "
    "kubectl -n {namespace} get networkpolicies"
)
_PROXY: Final = ManifestChange(
    "correct the host in command, args or env; or, if only a proxy reaches it, set HTTPS_PROXY in env, and NO_PROXY=.svc,"
    ".cluster.local, so that replicas still reach each other directly"
)
HOST_UNKNOWN: Final = _log(
    "external-name-unresolved",
    705,
    "Name of an external host does not resolve: {name} ({who})",
    (_ALLOWED, "Ask your cluster administrator whether cluster DNS resolves the name", _PROXY),
    "A host name that is not of the job's Services does not resolve: a misspelled name, or cluster DNS",
)
HOST_AWAY: Final = _log(
    "external-host-unreachable",
    715,
    "Cannot connect to external host {name} ({who})",
    (_ALLOWED, "Check that the server runs, and accepts connections from the cluster", _PROXY),
    "No connection to a host that is neither a Service nor a pod of the job: its server, a NetworkPolicy, or a proxy",
)
_BY_PROXY: Final = "A proxy refused the connection to {name} ({who})"
_ASK_PROXY: Final = (
    "Ask the administrators of the proxy whether they allow the host",
    ManifestChange("or set HTTPS_PROXY or NO_PROXY in env, or use a copy of the data inside the network"),
)
PEER_FAILED: Final = _log(
    "peer-failed",
    762,
    "Stopped because another replica ended: {name} ({who})",
    (PODS, LOGS_OF_JOB, AGAIN),
    "TensorFlow, JAX or NCCL ended the process because the connection to another replica broke",
)
LOG_OF_PEER_GONE: Final = (
    LOGS,
    "The log of {name} is deleted with its pod: only a log collector of the cluster still has it",
    ManifestChange("set spec.runPolicy.cleanPodPolicy: None, which keeps the pods and their logs when the job ends"),
)
"""The advice if the pod of the replica that ended first is gone."""
PEER_RAISED: Final = "Stopped because {peer} had failed ({who}): {name}"
LOG_OF_PEER: Final = (
    LOGS,
    ManifestChange("correct the cause of the exception, in the image, the command or the template", recreate=False),
)
"""The title and the advice if the other replica still waits at its exit after an exception."""
PEER_AWAY: Final = _log(
    "peer-unreachable",
    763,
    "Cannot connect to another replica or a server: {name} ({who})",
    (
        PODS,
        "Check the other replicas first, then NetworkPolicies of the namespace and the proxy of a service mesh, if any",
        AGAIN,
    ),
    "gRPC UNAVAILABLE, connection refused: a peer failed, or the network separates replicas",
)
_NOT_ALL: Final = "Only {joined} of {size} processes have joined ({who}), the job has {replicas} replicas: {name}"
_JOIN: Final = (
    LOGS,
    PODS,
    "The pods that did not join may have the cause, or a NetworkPolicy of the namespace",
    ManifestChange("set WORLD_SIZE in env, or the arguments of the program, to the number of replicas if it differs"),
)
NOT_ALL_OF_JAX: Final = "Only {joined} of {size} processes have joined ({who}), the job has {processes}: {name}"
"""The title of PEER_AWAY if the processes of JAX expect another number of processes than the job has."""
JOIN_OF_JAX: Final = (
    LOGS,
    TIMELINE,
    ManifestChange(
        "let the program take the number of processes from JAX_NUM_PROCESSES or KERAS_DISTRIBUTION_NUM_PROCESSES, which "
        "the operator sets"
    ),
)
REACHED: Final = re.compile(r"# of tasks that reached the barrier: (?P<joined>\d{1,9})/(?P<size>\d{1,9})\b")
_LOGIN: Final = "Login by ssh denied: {name} ({who})"
_KEYS: Final = (
    LOGS,
    ManifestChange(
        "give the program a private key that only its user can read, such as from a Secret with defaultMode: 0400, and the "
        "server its public key in authorized_keys"
    ),
)
_NO_BUILTIN: Final = 'The shell does not know "{name}" ({who}), which is a part of bash'
_BASH: Final = ManifestChange(
    "run the script with bash instead of sh in command, or write it for sh, such as . FILE for source FILE"
)
_NO_INTERPRETER: Final = 'Interpreter or loader of "{name}" not found ({who}): the file itself is there'
_INTERPRETER: Final = (
    ManifestChange(
        "use an image with the interpreter, or a program built for the libraries of the image, or correct the first line of "
        "the script, in the image or its ConfigMap: Windows line endings (CRLF) become a part of the interpreter's name"
    ),
)
NO_TF_CONFIG: Final = _log(
    "tf-config-missing",
    714,
    "TF_CONFIG is not set: {name} ({who})",
    (
        "Only the container tensorflow gets TF_CONFIG, and processes that it starts with its environment",
        ManifestChange("correct command and args in the template, or set TF_CONFIG in env"),
    ),
    "The program reads TF_CONFIG, which a job with a single replica and other containers do not have",
)
NAN_LOSS: Final = _log(
    "loss-not-a-number",
    716,
    "Loss is NaN ({who}): the training diverged",
    (ManifestChange("lower the learning rate in command or args, or check the data"),),
    "NaN in the loss, on which the program exits",
)
PROCESS_MEMORY: Final = _log(
    "python-out-of-memory",
    717,
    "Out of memory in the process ({who})",
    (ManifestChange("raise resources.limits.memory in the template, or use smaller batches"),),
    "MemoryError or std::bad_alloc: an allocation failed inside the process",
)
CHILD_KILLED: Final = _log(
    "child-killed",
    717,
    "A child process was killed, probably for lack of memory ({who}, {memory}): {name}",
    (
        ManifestChange("raise resources.limits.memory in the template, or use smaller batches or fewer processes"),
        "If memory is not short, see whether the script, or somebody in the pod, sends the signal",
    ),
    "A shell, Python or torchrun says that a child got SIGKILL, and the container is not OOMKilled: the kernel of the node may "
    "kill one process of several",
)
SHARED_MEMORY: Final = _log(
    "shared-memory-full",
    718,
    "Shared memory exhausted ({who}): /dev/shm has 64Mi by default",
    (ManifestChange("mount an emptyDir with medium: Memory at /dev/shm"),),
    "Data loaders or NCCL fill /dev/shm",
)

# Messages of CPython, glibc, gRPC, TensorFlow (tsl/platform, tensorflow/core), Keras, JAX, CUDA, NCCL, HDF5, and of clients of
# object stores. A group `name` is what the title names; without it, the title quotes the whole line.
OF_CHILD: Final = (
    rule(
        CHILD_KILLED,
        r"(?m)^(?:\S+: line \d+: +\d+ +)?Killed(?: {2,}.*)?$|is killed by signal: Killed|died with <Signals\.SIGKILL|"
        r"Signal 9 \(SIGKILL\) received|exitcode *:? *-9\b|SIGKILL\(-9\)",
    ),
)
"""The messages that count even if the process itself was killed."""
RULES: Final[tuple[MessageRule, ...]] = (
    *OF_CHILD,
    rule(
        SHARED_MEMORY,
        r"\bshm\b.{0,300}(no space left|too small|bus error)|insufficient shared memory|"
        r"unable to allocate shared memory\(shm\)|No space left on device: b?['\"]/dev/shm/",
    ),
    rule(
        GPU_MEMORY,
        r"CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|OOM when allocating tensor.{0,300}GPU|Dst tensor is not initialized|"
        r"failed to allocate memory.{0,300}GPU|Cuda failure \S*\s?'out of memory'|ALLOC_FAILED|"
        r"RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
    ),
    rule(
        BROKEN_GPU,
        r"ECC_UNCORRECTABLE|uncorrectable (NVLink|ECC) error|\bXid\b.{0,60}: (48|63|64|74|79|94|95)\b|fallen off the bus|"
        r"GPU is lost|CUDA_ERROR_HARDWARE_STACK_ERROR",
    ),
    rule(
        NO_GPU,
        r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device|CUDA driver version is insufficient|Cannot find any GPU|"
        r"libcuda\.so\.1: cannot open|Could not satisfy device specification '\S*GPU|"
        r"Unable to initialize backend '(cuda|gpu)'",
    ),
    rule(
        LINE_ENDINGS,
        r"(?m)['‘][^'’\n]*\\r['’]:? .{0,40}(not found|No such file)|^: not found$|\^M: bad interpreter|"
        r"No such file or directory: b?['\"][^'\"\n]*\\r['\"]",
    ),
    rule(NO_LIBRARY, r"(?P<name>[\w.+-]{1,100}\.so[.\d]{0,20}): cannot open shared object file"),
    rule(NO_MODULE, r"No module named '?(?P<name>[\w.]+)"),
    rule(IMPORT_FAILED, r"^ImportError: "),
    rule(starting.WRONG_FORMAT, r"exec format error"),
    rule(
        replace(starting.NO_PROGRAM, title=_NO_BUILTIN, to_do=(_BASH,)),
        r"(?m)^\w*sh: (\d+|line \d+): (?P<name>source|\[\[|pushd|popd|shopt|declare|function): (command )?not found$",
    ),
    rule(starting.NO_PROGRAM, r"(?m)^\w*sh: (\d+|line \d+): (?P<name>[^:\n]+): (command )?not found$"),
    rule(starting.NO_PROGRAM, r"(?m)^(\S*/)?env: .?(?P<name>[^\s:]+?)['’]?: No such file or directory$"),
    # The runtime looks for the file before it starts the container, so only what the file needs can be missing after that.
    rule(
        replace(starting.NO_PROGRAM, title=_NO_INTERPRETER, to_do=_INTERPRETER),
        r"(?m)^exec (?P<name>[^:\n]+): no such file or directory$",
    ),
    rule(
        CLOCK,
        r"RequestTimeTooSkewed|difference between the request time and the current time|Token used too early|"
        r"check your iat and exp values",
    ),
    rule(
        NO_CREDENTIALS,
        r"NoCredentialsError|DefaultCredentialsError|Anonymous caller does not have storage\.|"
        r"Unable to locate credentials|CredentialUnavailableError",
    ),
    # CPython's http.client, within a message of urllib3; curl
    rule(
        replace(HOST_AWAY, title=_BY_PROXY, to_do=_ASK_PROXY),
        r"(?:host='(?P<name>[^'\s]{1,253})'[\s\S]{0,600})?Tunnel connection failed: \d|"
        r"CONNECT tunnel failed, response \d|HTTP code \d+ from proxy after CONNECT",
    ),
    rule(STORE_DENIED, r"HTTP response code 40[13] with body[\s\S]{0,2000}(?P<name>gs://\S+)"),
    rule(
        STORE_DENIED,
        r"does not have storage\.\w+\.\w+ access|\((403|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken)\) "
        r"when calling|PermissionError: (Access Denied|Forbidden)|AuthorizationPermissionMismatch|AuthenticationFailed|"
        r"HTTP response code 40[13] |403 (Client Error: )?Forbidden|HTTP Error 403|exceptions\.Forbidden: 403|AccessDenied",
    ),
    rule(HOST_UNKNOWN, r"Retrying \(Retry\(.{0,400}(Name or service not known|Temporary failure in name resolution)"),
    rule(
        HOST_AWAY, r"Retrying \(Retry\(.{0,400}(Network is unreachable|No route to host|Connection refused|timed out)"
    ),
    rule(
        PEER_UNKNOWN,
        r"(?:DNS resolution failed for |errors resolving |Could not resolve host(?:: |name )|Failed to resolve ')"
        r"(?P<name>[\w.-]*\w)",
    ),
    rule(PEER_UNKNOWN, r"\bwget: (?:unable to resolve host address|bad address) ['‘](?P<name>[\w.-]*\w)"),
    rule(PEER_UNKNOWN, r"\bResolving (?P<name>[\w.-]*\w)(?: \([^)\s]{1,253}\))?\.\.\. failed: "),
    rule(
        PEER_UNKNOWN,
        r"Name or service not known|Temporary failure in name resolution|getaddrinfo (failed|.{0,300}not known)|DNS "
        r"resolution failed|nodename nor servname",
    ),
    rule(READ_ONLY, r"Read-only file system: b?['\"](?P<name>[^'\"\n]+)"),
    rule(
        READ_ONLY,
        r"(?m)(?:^|cannot \w+ (?:directory |regular file )?|: )['‘]?(?P<name>/[^'’:;\n]*)['’]?[:;] Read-only file system",
    ),
    rule(READ_ONLY, r"unable to open file: name = '(?P<name>[^'\n]+)', errno = 30\b"),
    rule(READ_ONLY, r"Read-only file system"),
    rule(replace(DISK_FULL, title="Disk quota exceeded ({who})"), r"Disk quota exceeded|EDQUOT"),
    rule(DISK_FULL, r"No space left on device|ENOSPC"),
    rule(OPEN_FILES, r"Too many open files"),
    rule(PORT_IN_USE, r"Address already in use|EADDRINUSE|Could not start gRPC server|Failed to bind to"),
    rule(
        TF_CONFIG_BAD,
        r"TF_CONFIG.{0,300}(must|should|invalid|not)|cluster_spec.{0,300}(must|should)|'\w+' not found in cluster_spec|"
        r"`task_id` \d+ exceeds the maximum id|There is no id for task_type",
    ),
    rule(NO_TF_CONFIG, r"KeyError: '?TF_CONFIG|\bTF_CONFIG: (unbound variable|parameter not set)"),
    rule(BAD_ARGUMENTS, r"unrecognized arguments: (?P<name>[^\n]+)"),
    rule(BAD_ARGUMENTS, r"the following arguments are required: (?P<name>[^\n]+)"),
    rule(BAD_ARGUMENTS, r"Unknown command line flag '(?P<name>[^']+)'"),
    rule(BAD_ARGUMENTS, r"error: argument (?P<name>[^:\n]+: (?:invalid|expected) [^\n]*)"),
    rule(
        NO_TOKEN,
        r"Service token file does not exist|No such file or directory: ['\"]/var/run/secrets/kubernetes\.io/serviceaccount",
    ),
    rule(
        replace(NO_ACCESS, title=_LOGIN, to_do=_KEYS),
        r"Permission denied \((?:publickey|password|keyboard-interactive|gssapi|hostbased)[\w,-]*\)",
    ),
    rule(NO_ACCESS, r"(?:Permission denied|Operation not permitted): b?['\"](?P<name>[^'\"\n]+)"),
    rule(NO_ACCESS, r"(?m)(?:^|: )(?P<name>/[^:;\n]*)[:;] (Permission denied|Operation not permitted)"),
    rule(NO_ACCESS, r"unable to open file: name = '(?P<name>[^'\n]+)', errno = 13\b"),
    rule(NO_ACCESS, r"PermissionError: |Permission denied|PermissionDeniedError"),
    rule(NO_OBJECT, r"No such object: (?P<name>[^\s\"]+)"),
    rule(NO_OBJECT, r"404 GET \S+/storage/v1/b/(?P<name>[\w.-]{1,222})\?"),
    rule(NO_OBJECT, r"HTTP response code 404 [\s\S]{0,2000}(?P<name>gs://\S+)"),
    rule(NO_OBJECT, r"(?P<name>gs://\S+) bucket does not exist"),
    rule(NO_OBJECT, r"\bin bucket '(?P<name>[\w.-]+)': AWS Error NO_SUCH_BUCKET"),
    rule(NO_OBJECT, r"\bkey '(?P<name>[^']+)' in bucket '[\w.-]+': AWS Error NO_SUCH_KEY"),
    rule(
        NO_OBJECT,
        r"NoSuchKey|NoSuchBucket|NO_SUCH_(KEY|BUCKET)|BlobNotFound|ContainerNotFound|BucketNotFound|"
        r"The specified (key|bucket|blob|container) does not exist|\(404\) when calling|HTTP response code 404",
    ),
    rule(NO_FILE, r"No such file or directory: b?['\"](?P<name>[^'\"\n]+)"),
    rule(NO_FILE, r"can't open file '(?P<name>[^'\n]+)': \[Errno 2\]"),
    rule(NO_FILE, r"Failed to find any matching files for (?P<name>\S+)"),
    rule(NO_FILE, r"(?m)(?:^|: )(?P<name>[^:;\n]+); No such file or directory"),
    rule(NO_FILE, r"Could not find directory (?P<name>\S+)"),
    rule(NO_FILE, r"No files matched pattern: (?P<name>[^'\n]+)"),
    rule(NO_FILE, r"SavedModel file does not exist at: (?P<name>[^\s{]+)"),
    rule(NO_FILE, r"File not found: filepath=(?P<name>\S+?)\.?(?:\s|$)"),
    rule(NO_FILE, r"No file or directory found at (?P<name>\S+)"),
    rule(NO_FILE, r"unable to open file: name = '(?P<name>[^'\n]+)', errno = 2\b"),
    rule(
        NO_FILE,
        r"(?m)^(?:\S+: )?(?:cannot \w+ |line \d+: )?['‘]?(?P<name>(?!exec )[^'‘’:\n]+)['’]?: No such file or directory$",
    ),
    rule(
        NO_FILE,
        r"FileNotFoundError|No such file or directory",
    ),
    rule(
        NAN_LOSS,
        r"NanLossDuringTrainingError|NaN loss during training|Model diverged with loss = NaN|Invalid loss, terminating",
    ),
    # JAX: a process that has ended waits for the others at the barrier for the shutdown.
    rule(
        PEER_FAILED,
        r"Barrier timed out\. Id: Shutdown[\s\S]{0,500}The first task at the barrier: (?P<name>\d+)",
    ),
    # JAX: another task has not registered, has not reached another barrier, or does not answer.
    rule(PEER_AWAY, r"Barrier timed out\. Id: (?!Shutdown)[\s\S]{0,500}Some timed out task names:\s*(?P<name>\S+)"),
    rule(PEER_AWAY, r"DEADLINE_EXCEEDED: Failed to connect to (?P<name>coordination service at \S+)"),
    rule(PEER_AWAY, r"DEADLINE_EXCEEDED: (Barrier timed out|[\s\S]{0,500}/RegisterTask)"),
    rule(PEER_AWAY, r"DEADLINE_EXCEEDED: [\s\S]{0,500}(?P<name>CoordinationService/Heartbeat)"),
    rule(PEER_FAILED, r"stopped sending heartbeats\):\n(?P<name>\S+)"),
    rule(PEER_FAILED, r"\bTask (?P<name>\S+) heartbeat timeout"),
    rule(PEER_FAILED, r"Either the (?P<name>leader task) was preempted"),
    rule(PEER_FAILED, r"/xla\.coordination\.CoordinationService/(PollForError|ShutdownTask)"),
    rule(
        PEER_FAILED,
        r"\A(?=[\s\S]*?(?P<name>/job:\w+/replica:\d+/task:\d+))?[\s\S]*?(another task died|stopped sending heartbeats|"
        r"heartbeat timeout|Collective ?ops (is )?abort(?!ed by: )|aborted by: failed to connect|Error reported from /job:|"
        r"Socket closed|Connection (reset|closed) by peer|remote process exited)",
    ),
    rule(
        PEER_AWAY,
        r"\A(?=[\s\S]*?(?P<name>ipv[46]:[\w.:%\[\]-]*\w|/job:\w+/replica:\d+/task:\d+))?[\s\S]*?(UNAVAILABLE: |"
        r"UnavailableError|failed to connect to all addresses|Connection refused|Could not connect to the endpoint URL|"
        r"upstream connect error)",  # of Envoy, the proxy of service meshes
    ),
    # PyTorch: the rendezvous of all processes, and an operation of Gloo
    rule(
        replace(PEER_AWAY, title=_NOT_ALL, to_do=_JOIN),
        r"Timed out after \d+ seconds waiting for clients\. (?P<joined>\d+)/(?P<size>\d+) clients joined",
    ),
    rule(PEER_AWAY, r"Timed out waiting \d+ms for (recv|send) operation"),
    rule(PEER_AWAY, r"Connection to (?P<name>[\w.-]*\w) timed out|Connection timed out"),
    rule(
        PROCESS_MEMORY,
        r"MemoryError|std::bad_alloc|Cannot allocate memory|OOM when allocating|Unable to allocate |"
        r"Out of memory allocating ",
    ),
)

PACKAGE_INDEX: Final = "package index of pip"
"""In place of a host that pip does not name."""
OUTSIDE: Final[Mapping[Problem, Problem]] = {PEER_UNKNOWN: HOST_UNKNOWN, PEER_AWAY: HOST_AWAY, PEER_FAILED: HOST_AWAY}
"""The problem with a host outside the job, by the problem with a replica."""
# urllib3, boto3, Go, libpq, redis-py, gRPC, curl
_HOST: Final = re.compile(
    r"\bhost='(?P<urllib>[^'\s]{1,253})'|"
    r"\b(?:(?:http|ws|redis|grpc|amqp)s?|postgres(?:ql)?|mysql|mongodb|tcp)://(?:[^/@\s]{1,200}@)?(?P<url>[\w.-]{1,253})|"
    r"(?:resolve (?:host: |hostname )?'?|resolution failed for |lookup (?!address information)|"
    r"server at \"|server on '|connecting to |Connection to |ipv4:)"
    r"(?P<host>[\w.-]{1,253}\w)"
)
# CPython: an error of a socket, without the host
_HOSTLESS: Final = re.compile(r"\[Errno (-\d|1\d\d)\]|\bgetaddrinfo\b")


def host_in(line: str) -> tuple[str, bool]:
    """Return the host in a message, "" if there is none, and True if the message is that of an HTTP client or has a URL."""
    match = _HOST.search(line)
    if match is None:
        return "", False
    return match["host"] or match["urllib"] or match["url"], not match["host"]


def is_about_any_host(line: str) -> bool:
    """Return True for an error of a socket that does not tell whether the host is a replica of the job."""
    return bool(_HOSTLESS.search(line)) and not host_in(line)[0]
