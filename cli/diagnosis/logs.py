"""What the last log lines of a training tell: errors of Python, TensorFlow and CUDA with one usual cause. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.cli.diagnosis.causes import Severity, Trouble
from tfjob_operator.cli.diagnosis.rules import rule

if TYPE_CHECKING:
    from tfjob_operator.cli.diagnosis.rules import Rule

_LOGS: Final = "kubectl -n {namespace} logs {pod} --container={container} --tail=50   # --previous after a restart"


def _log(id_: str, rank: int, title: str, to_do: tuple[str, ...], meaning: str) -> Trouble:
    return Trouble(id_, rank, Severity.ERROR, title, (*to_do, _LOGS), meaning)


PEER_UNKNOWN: Final = _log(
    "peer-name-unresolved",
    705,
    "{who} cannot resolve the name of another replica",
    (
        (
            "Do the services exist, and does the cluster's DNS answer? kubectl -n {namespace} get services "
            "--selector=training.kubeflow.org/job-name={job}"
        ),
        "Does the operator's CUSTOM_CLUSTER_DOMAIN fit the cluster?",
    ),
    "The log says that a host name does not resolve: a service is missing, or cluster DNS",
)
GPU_MEMORY: Final = _log(
    "gpu-out-of-memory",
    706,
    "{who} ran out of GPU memory",
    ("Use smaller batches or a GPU with more memory; does another process use the same GPU?",),
    "CUDA or TensorFlow could not allocate memory on the GPU",
)
NO_GPU: Final = _log(
    "gpu-not-visible",
    707,
    "{who} sees no GPU, or its driver does not fit",
    (
        "Does the container tensorflow ask for nvidia.com/gpu in its limits? Do CUDA in the image and the node's driver fit?",
    ),
    "CUDA finds no device, or the driver is older than the CUDA of the image",
)
NO_MODULE: Final = _log(
    "python-module-missing",
    708,
    "{who}: the image has no Python module {name}",
    ("Install it in the image (pip install), or correct PYTHONPATH",),
    "ModuleNotFoundError or ImportError",
)
DISK_FULL: Final = _log(
    "disk-full",
    709,
    "{who} has no space left where it writes",
    ("Write to a larger volume, or delete old checkpoints",),
    "No space left on device",
)
PORT_IN_USE: Final = _log(
    "port-in-use",
    710,
    "{who} cannot listen: its port is in use",
    ("Two servers in one pod, or hostNetwork with two replicas on one node? Each listens on its port of TF_CONFIG",),
    "Address already in use",
)
NO_ACCESS: Final = _log(
    "data-access-denied",
    711,
    "{who} may not read or write its data",
    (
        "Credentials of a bucket (a Secret, a service account), or the owner of files on a volume (securityContext.fsGroup)",
    ),
    "Permission denied, 403 or AccessDenied in the log",
)
NO_FILE: Final = _log(
    "file-not-found",
    712,
    "{who} finds no such file: {name}",
    ("Is the volume mounted at that path, and the file on it?",),
    "A file or folder that the program names does not exist",
)
BAD_ARGUMENTS: Final = _log(
    "arguments-unknown",
    713,
    "{who} does not know an argument: {name}",
    ("Compare args in the template with what the program takes",),
    "argparse or absl refuse an argument",
)
TF_CONFIG_BAD: Final = _log(
    "tf-config-misread",
    714,
    "{who} cannot make sense of its TF_CONFIG",
    (
        (
            "Does the template set TF_CONFIG itself? The operator leaves that alone. Is the TensorFlow of the image "
            "older than the task types?"
        ),
    ),
    "TensorFlow refuses TF_CONFIG",
)
PEER_AWAY: Final = _log(
    "peer-unreachable",
    715,
    "{who} cannot connect to another replica",
    (
        "Why is that replica not there? kubectl -n {namespace} get pods --selector=training.kubeflow.org/job-name={job}",
        "Does a network policy keep replicas apart?",
    ),
    "gRPC says UNAVAILABLE, or connections are refused: a peer failed, or the network keeps replicas apart",
)
NAN_LOSS: Final = _log(
    "loss-not-a-number",
    716,
    "{who}: the training diverged, its loss is not a number",
    ("Lower the learning rate, or look at the data",),
    "NaN in the loss, on which the program ends",
)
PROCESS_MEMORY: Final = _log(
    "python-out-of-memory",
    717,
    "{who} could not get memory",
    ("Raise resources.limits.memory, or use smaller batches",),
    "MemoryError or std::bad_alloc: the process saw the end of its memory itself",
)
SHARED_MEMORY: Final = _log(
    "shared-memory-full",
    718,
    "{who} has too little shared memory: /dev/shm has 64 MB",
    ("Mount an emptyDir with medium: Memory at /dev/shm",),
    "Data loaders or NCCL fill /dev/shm",
)
TROUBLES: Final = (
    PEER_UNKNOWN,
    GPU_MEMORY,
    NO_GPU,
    NO_MODULE,
    DISK_FULL,
    PORT_IN_USE,
    NO_ACCESS,
    NO_FILE,
    BAD_ARGUMENTS,
    TF_CONFIG_BAD,
    PEER_AWAY,
    NAN_LOSS,
    PROCESS_MEMORY,
    SHARED_MEMORY,
)

# The words of CPython, glibc, gRPC, TensorFlow (tsl/platform, tensorflow/core), CUDA and NCCL.
RULES: Final[tuple[Rule, ...]] = (
    rule(SHARED_MEMORY, r"\bshm\b.{0,300}(no space left|too small|bus error)|insufficient shared memory"),
    rule(
        GPU_MEMORY,
        (
            r"CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|OOM when allocating tensor.{0,300}GPU|Dst tensor is not initialized|"
            r"failed to allocate memory.{0,300}GPU"
        ),
    ),
    rule(
        NO_GPU,
        (
            r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device|CUDA driver version is insufficient|Cannot find any GPU|"
            r"libcuda\.so\.1: cannot open"
        ),
    ),
    rule(NO_MODULE, r"(ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)"),
    rule(NO_MODULE, r"ImportError: cannot import name '?(?P<name>\w+)"),
    rule(
        PEER_UNKNOWN,
        (
            r"(Name or service not known|Temporary failure in name resolution|getaddrinfo (failed|.{0,300}not known)|DNS "
            r"resolution failed(?P<name> for \S+)?|Could not resolve host|nodename nor servname)"
        ),
    ),
    rule(DISK_FULL, r"No space left on device|Disk quota exceeded|ENOSPC"),
    rule(PORT_IN_USE, r"Address already in use|EADDRINUSE|Could not start gRPC server|Failed to bind to"),
    rule(
        TF_CONFIG_BAD,
        r"TF_CONFIG.{0,300}(must|should|invalid|not|JSONDecodeError)|cluster_spec.{0,300}(must|should)|json\.decoder\.JSONDecodeError",
    ),
    rule(BAD_ARGUMENTS, r"unrecognized arguments: (?P<name>[^\n]+)"),
    rule(BAD_ARGUMENTS, r"the following arguments are required: (?P<name>[^\n]+)"),
    rule(BAD_ARGUMENTS, r"Unknown command line flag '(?P<name>[^']+)'"),
    rule(
        NO_ACCESS,
        (
            r"PermissionError: |Permission denied|PermissionDeniedError|AccessDenied|403 Forbidden|does not have "
            r"storage\.\w+ access|NoCredentialsError"
        ),
    ),
    rule(
        NO_FILE,
        (
            r"(FileNotFoundError: .*?No such file or directory: '?|can't open file '|NotFoundError: (.{0,40}?; "
            r")?)(?P<name>[^\s';]+)"
        ),
    ),
    rule(NAN_LOSS, r"NanLossDuringTrainingError|NaN loss during training|Model diverged with loss = NaN"),
    rule(
        PEER_AWAY,
        (
            r"(UNAVAILABLE: |UnavailableError|failed to connect to all addresses|Connection refused|Socket closed|"
            r"Connection reset by peer|CollectiveOps abort)"
        ),
    ),
    rule(PROCESS_MEMORY, r"MemoryError|std::bad_alloc|Cannot allocate memory|ResourceExhaustedError"),
)
