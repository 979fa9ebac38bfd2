"""Log messages of Python, TensorFlow and CUDA that usually have a single cause. Pure."""

from __future__ import annotations

from typing import Final

from tfjob_operator.cli.diagnosis.advice import AGAIN, LOGS
from tfjob_operator.cli.diagnosis.causes import ManifestChange, Problem, Step, error
from tfjob_operator.cli.diagnosis.rules import MessageRule, rule


def _log(id_: str, rank: int, title: str, to_do: tuple[Step, ...], meaning: str) -> Problem:
    return error(id_, title, meaning, LOGS, *to_do, rank=rank)


_PODS: Final = "kubectl -n {namespace} get pods --selector=training.kubeflow.org/job-name={job}"
PEER_UNKNOWN: Final = _log(
    "peer-name-unresolved",
    705,
    "Name of another replica does not resolve ({who})",
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
    (ManifestChange("use smaller batches in args, or a nodeSelector for GPUs with more memory"),),
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
NO_MODULE: Final = _log(
    "python-module-missing",
    708,
    "Python module {name} not found in the image ({who})",
    (ManifestChange("use an image with the module installed (pip install), or correct PYTHONPATH in env"),),
    "ModuleNotFoundError or ImportError",
)
DISK_FULL: Final = _log(
    "disk-full",
    709,
    "No space left on device ({who})",
    (ManifestChange("mount a larger volume for what the program writes, or delete old checkpoints"),),
    "No space left on device",
)
PORT_IN_USE: Final = _log(
    "port-in-use",
    710,
    "Port already in use ({who})",
    (ManifestChange("remove hostNetwork from the template, and let each process listen on its own port of TF_CONFIG"),),
    "Address already in use",
)
NO_ACCESS: Final = _log(
    "data-access-denied",
    711,
    "Access to data denied ({who})",
    (
        ManifestChange(
            "add credentials of the bucket (Secret, ServiceAccount), or securityContext.fsGroup for a volume"
        ),
    ),
    "Permission denied, 403 or AccessDenied in the log",
)
NO_FILE: Final = _log(
    "file-not-found",
    712,
    "File not found: {name} ({who})",
    (ManifestChange("mount the volume that has the file, or correct its path in args"),),
    "A file or directory that the program names does not exist",
)
BAD_ARGUMENTS: Final = _log(
    "arguments-unknown",
    713,
    "Unknown or missing argument: {name} ({who})",
    (ManifestChange("correct command and args in the template"),),
    "argparse or absl rejects an argument",
)
TF_CONFIG_BAD: Final = _log(
    "tf-config-misread",
    714,
    "TF_CONFIG rejected by TensorFlow ({who})",
    (ManifestChange("remove TF_CONFIG from env of the template, and add the replica types that the program needs"),),
    "TensorFlow rejects TF_CONFIG",
)
PEER_AWAY: Final = _log(
    "peer-unreachable",
    715,
    "Cannot connect to another replica ({who})",
    (_PODS, "Check the other replicas first, then NetworkPolicies of the namespace", AGAIN),
    "gRPC UNAVAILABLE, connection refused: a peer failed, or the network separates replicas",
)
NAN_LOSS: Final = _log(
    "loss-not-a-number",
    716,
    "Loss is NaN ({who}): the training diverged",
    (ManifestChange("lower the learning rate in args, or check the data"),),
    "NaN in the loss, on which the program exits",
)
PROCESS_MEMORY: Final = _log(
    "python-out-of-memory",
    717,
    "Out of memory in the process ({who})",
    (ManifestChange("raise resources.limits.memory in the template, or use smaller batches"),),
    "MemoryError or std::bad_alloc: an allocation failed inside the process",
)
SHARED_MEMORY: Final = _log(
    "shared-memory-full",
    718,
    "Shared memory exhausted ({who}): /dev/shm has 64Mi by default",
    (ManifestChange("mount an emptyDir with medium: Memory at /dev/shm"),),
    "Data loaders or NCCL fill /dev/shm",
)

# Messages of CPython, glibc, gRPC, TensorFlow (tsl/platform, tensorflow/core), CUDA and NCCL.
RULES: Final[tuple[MessageRule, ...]] = (
    rule(SHARED_MEMORY, r"\bshm\b.{0,300}(no space left|too small|bus error)|insufficient shared memory"),
    rule(
        GPU_MEMORY,
        r"CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|OOM when allocating tensor.{0,300}GPU|Dst tensor is not initialized|"
        r"failed to allocate memory.{0,300}GPU",
    ),
    rule(
        NO_GPU,
        r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device|CUDA driver version is insufficient|Cannot find any GPU|"
        r"libcuda\.so\.1: cannot open",
    ),
    rule(NO_MODULE, r"(ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)"),
    rule(NO_MODULE, r"ImportError: cannot import name '?(?P<name>\w+)"),
    rule(
        PEER_UNKNOWN,
        r"(Name or service not known|Temporary failure in name resolution|getaddrinfo (failed|.{0,300}not known)|DNS "
        r"resolution failed(?P<name> for \S+)?|Could not resolve host|nodename nor servname)",
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
        r"PermissionError: |Permission denied|PermissionDeniedError|AccessDenied|403 Forbidden|does not have "
        r"storage\.\w+ access|NoCredentialsError",
    ),
    rule(
        NO_FILE,
        r"(FileNotFoundError: .*?No such file or directory: '?|can't open file '|NotFoundError: (.{0,40}?; "
        r")?)(?P<name>[^\s';]+)",
    ),
    rule(NAN_LOSS, r"NanLossDuringTrainingError|NaN loss during training|Model diverged with loss = NaN"),
    rule(
        PEER_AWAY,
        r"(UNAVAILABLE: |UnavailableError|failed to connect to all addresses|Connection refused|Socket closed|"
        r"Connection reset by peer|CollectiveOps abort)",
    ),
    rule(PROCESS_MEMORY, r"MemoryError|std::bad_alloc|Cannot allocate memory|ResourceExhaustedError"),
)
