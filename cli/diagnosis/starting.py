"""Pods with a node that do not start: missing configuration, sandboxes, init containers, rejection by the kubelet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tfjob_operator.api.core import IMAGE_REASONS
from tfjob_operator.api.v1.constants import ConditionType, EventReason
from tfjob_operator.cli.diagnosis.advice import AGAIN, DESCRIBE_NODE, DESCRIBE_POD, LOGS, NEW_CONFIG_MAP, NEW_KEYS
from tfjob_operator.cli.diagnosis.causes import (
    QUOTED,
    Finding,
    Group,
    ManifestChange,
    WhileRunning,
    error,
    info,
    warning,
)
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import matched, of_event, of_pod
from tfjob_operator.cli.diagnosis.rules import rule, shorten
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import ContainerStatusDetails, PodDetails
from tfjob_operator.cli.model.pods import lookup_location, running_inits, statuses
from tfjob_operator.cli.model.words import LONG_MESSAGE_BYTES, quote, safe_name

_STARTS: Final = "The pod then starts by itself"
EXECUTABLE: Final = ManifestChange(
    'start it with its interpreter, such as ["python", "train.py"], or make it executable: chmod +x in the image, or '
    "defaultMode: 0755 of the ConfigMap or Secret volume that has it"
)
_DRIVERS: Final = "Ask your cluster administrator to check the GPU driver and the container toolkit of node {node}"
NO_CONFIG_MAP: Final = error(
    "config-map-missing",
    'ConfigMap "{name}" not found (env of {who})',
    "Environment from a ConfigMap that does not exist",
    f"Create it from ENVFILE with lines KEY=VALUE. {_STARTS}: {NEW_CONFIG_MAP.replace('file', 'env-file')}=ENVFILE",
)
NO_SECRET: Final = error(
    "secret-missing",
    'Secret "{name}" not found (env of {who})',
    "Environment from a Secret that does not exist",
    f"Create it from ENVFILE with lines KEY=VALUE. {_STARTS}: {NEW_KEYS.replace('file', 'env-file')}=ENVFILE",
)
NO_KEY: Final = error(
    "config-key-missing",
    'Key "{name}" not found in {kind} "{object}" (env of {who})',
    "Environment from a key that the ConfigMap or Secret does not have",
    f"Add the key. {_STARTS}: kubectl -n {{namespace}} edit {{kind}} {{object}}",
    ManifestChange("or correct the key in env"),
)
RUNS_AS_ROOT: Final = error(
    "runs-as-root",
    "Image runs as root, but runAsNonRoot is set ({who})",
    "runAsNonRoot, and an image that runs as root or names its user by name",
    ManifestChange("set securityContext.runAsUser to a number other than 0"),
)
NO_PROGRAM: Final = error(
    "program-missing",
    'Command "{name}" not found {where} ({who})',
    "The command of the container is not a file of the image",
    ManifestChange(
        "correct command in the template: a path in the image, or a program in its PATH, which neither env nor a "
        "volume may hide"
    ),
)
COMMAND_UNSPLIT: Final = error(
    "command-not-split",
    'Command "{name}" not found in the image ({who}): it is one word with spaces',
    "The command is a whole command line in one word",
    ManifestChange('split the command into words, such as ["python", "train.py", "--steps=9"]'),
)
NOT_EXECUTABLE: Final = error(
    "program-not-executable",
    'Command "{name}" is not executable ({who})',
    "The command is a file without permission to be executed",
    EXECUTABLE,
)
WRONG_FORMAT: Final = error(
    "program-wrong-format",
    "Command is not executable on the platform of the node ({who}): exec format error",
    "exec format error",
    ManifestChange("use an image built for the node's platform, or start the script with its interpreter"),
)
NO_WORKING_FOLDER: Final = error(
    "mount-path-wrong",
    "mountPath or workingDir does not match the image ({who})",
    "A file mounted over a directory, or a workingDir that is not one",
    DESCRIBE_POD,
    ManifestChange("correct mountPath, subPath or workingDir in the template"),
)
DEVICE: Final = error(
    "device-runtime",
    "Container runtime cannot provide the GPU ({who})",
    "The NVIDIA container runtime hook fails",
    DESCRIBE_POD,
    _DRIVERS,
)
SANDBOX: Final = error(
    "sandbox-failed",
    "Creating the pod sandbox failed ({who}): {words}",
    "FailedCreatePodSandBox: usually the network plugin (CNI)",
    DESCRIBE_POD,
    "Ask your cluster administrator to check the network plugin (CNI) of node {node}",
)
CANNOT_START: Final = error(
    "container-cannot-start",
    "Container {container} cannot be started ({who}): {words}",
    "Any other reason of the kubelet or the container runtime",
    DESCRIBE_POD,
    ManifestChange("correct the container in the template as the message says"),
)
_BUSY_NODE: Final = (
    (
        "The container runtime did not create the container in time, usually because the node or its disk is overloaded: "
        "kubectl describe node {node}"
    ),
    WhileRunning("The kubelet tries again, unless it has already failed the pod"),
    AGAIN,
)
_MEMORY_UNIT: Final = (
    DESCRIBE_POD,
    ManifestChange(
        "raise resources.limits.memory in the template, and check its unit: 512Mi is 512 mebibytes, 512m is less than a byte"
    ),
)
REJECTED: Final = error(
    "rejected-by-node",
    "Rejected by the kubelet ({who}): {reason}{words}",
    "The kubelet rejects the pod: OutOfcpu, NodeAffinity, SysctlForbidden, AppArmor",
    DESCRIBE_NODE,
    WhileRunning("The pod is recreated under every restartPolicy but Never, and may get another node"),
    ManifestChange("if the message names a setting, remove what the node refuses from the template", recreate=False),
)
INIT_RUNS: Final = warning(
    "init-container-runs",
    "Init container {container} running for {age} ({who})",
    "An init container runs for more than five minutes, or has written the same error again and again for a minute",
    LOGS,
)
INIT_STARTED: Final = info(
    "waits-for-init-container",
    "Waiting for init container {container}, running for {age} ({who})",
    "An init container has been running for less than five minutes",
    LOGS,
)
STARTS_SLOWLY: Final = warning(
    "starts-slowly",
    "Starting for {age}, for an unknown reason ({who})",
    "A pod has been on a node for more than five minutes, and no container runs",
    DESCRIBE_POD,
    "Check whether the kubelet is Ready: kubectl describe node {node}",
    unless=(Group.STORAGE, "node-not-ready", *QUOTED),
    vague=True,
)

RULES: Final = (
    # kubernetes: pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), kuberuntime/security_context_others.go
    rule(NO_CONFIG_MAP, r'configmap "(?P<name>[^"]+)" not found'),
    rule(NO_SECRET, r'secret "(?P<name>[^"]+)" not found'),
    rule(NO_KEY, r"couldn't find key (?P<name>\S+) in (?P<kind>ConfigMap|Secret) [^/\s]+/(?P<object>\S+)"),
    rule(RUNS_AS_ROOT, r"runAsNonRoot and image"),
    # runc: libcontainer; nvidia-container-toolkit
    rule(DEVICE, r"nvidia-container-cli|nvidia-container-runtime|libnvidia|could not select device driver"),
    rule(WRONG_FORMAT, r"exec format error"),
    rule(
        COMMAND_UNSPLIT,
        r'exec: \\?"(?P<name>[^"\\ ]+ [^"\\]*)\\?": (executable file not found|stat [^:]*: no such file)',
    ),
    rule(NO_PROGRAM, r'exec: \\?"(?P<name>[^"\\]*)\\?": (executable file not found|stat [^:]*: no such file)'),
    rule(NO_PROGRAM, r"executable file `(?P<name>[^`]*)` not found"),  # crun
    rule(NOT_EXECUTABLE, r'exec: "?(?P<name>[^":]*)"?: permission denied'),
    rule(NO_PROGRAM, r'exec "?(?P<name>[^":]*)"?: no such file or directory'),
    rule(NO_WORKING_FOLDER, r"not a directory|chdir to cwd"),
    # containerd, CRI-O, dockershim: an earlier attempt to create the container has not ended; kubelet: it timed out
    rule(
        replace(CANNOT_START, to_do=_BUSY_NODE),
        r"(?P<words>(?:failed to reserve container name|.*container name \S* is already in use|.*context deadline exceeded).*)",
    ),
    # runc; containerd; Docker
    rule(
        replace(CANNOT_START, to_do=_MEMORY_UNIT),
        r"(?P<words>.*(?:unable to set memory limit|memory limit too low|minimum memory limit).*)",
    ),
    rule(CANNOT_START, r"(?P<words>.+)"),
)
REASONS_OF_START: Final = RULES[:-1]
"""Those that name a cause: the last one matches any message."""
REASONS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "StartError",
        "ContainerCannotRun",
        "PostStartHookError",
        "PreStartHookError",
    }
)
LONG_S: Final = 300.0
"""A pod that has not started by then without any message has a problem; volumes and images have messages."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why pods do not start."""
    for pod in () if facts.condition(ConditionType.SUCCEEDED) else facts.pods:
        if pod.status.phase == "Failed" and _is_rejected(pod):
            reason, message = pod.status.reason, quote(pod.status.message)
            words = shorten(message.removeprefix("Pod was rejected: "))
            seen = f"{safe_name(reason)}: {message}"
            yield of_pod(REJECTED, pod, seen, key=reason, reason=reason, words=words and f": {words}")
        elif pod.status.phase == "Failed" and not any(map(_has_ended, statuses(pod))):
            yield from next(filter(None, (list(_of_container(pod, status)) for status in statuses(pod))), ())
    for pod in facts.live_pods:
        if pod.spec.node_name:
            yield from next(
                filter(None, (list(_of_container(pod, status)) for status in statuses(pod))), _slow(facts, pod)
            )


def _is_rejected(pod: PodDetails) -> bool:
    """Return True if the kubelet rejected the pod (controller/jobs/pods.py; kubernetes: pkg/kubelet/lifecycle)."""
    status, ends = (
        pod.status,
        (container.state.terminated for container in statuses(pod) if container.state is not None),
    )
    ran = any(terminated is not None and terminated.reason != "ContainerStatusUnknown" for terminated in ends)
    return status.message.startswith("Pod was rejected") or (
        not ran and status.reason not in {"", "DeadlineExceeded", "Evicted", EventReason.NODE_LOST}
    )


def _has_ended(status: ContainerStatusDetails) -> bool:
    return status.state is not None and status.state.terminated is not None


def _of_container(pod: PodDetails, status: ContainerStatusDetails) -> Iterator[Finding]:
    wait = status.state.waiting if status.state is not None else None
    before = status.last_state.terminated if status.last_state is not None else None
    reason, message = (wait.reason, wait.message) if wait is not None else ("", "")
    if reason == "CrashLoopBackOff" and before is not None and before.reason in REASONS:
        reason, message = before.reason, before.message
    if reason in REASONS:
        seen = f"container {safe_name(status.name)}: {safe_name(reason)}: {quote(message, LONG_MESSAGE_BYTES)}"
        proof, where = f"pod {safe_name(pod.metadata.name)}: {seen}", lookup_location(pod, status.name)
        yield from matched(RULES, message or reason, pod, proof, container=status.name, where=where)


def _slow(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    age_s = facts.age_s(pod.status.start_time or pod.metadata.creation_timestamp)
    sandbox = latest(facts.pod_events(pod, "FailedCreatePodSandBox", "NetworkNotReady"))
    if not facts.is_starting(pod):
        return
    if sandbox:
        yield of_event(facts, SANDBOX, sandbox[0], pod)
        return
    if running_inits(pod) or age_s is None or age_s < LONG_S:
        return
    # Slow image pulls and mounts are reported elsewhere.
    reported = {"Pulling", "FailedMount", "FailedAttachVolume"} & {event.reason for event in facts.pod_events(pod)}
    waits = {
        status.state.waiting.reason for status in statuses(pod) if status.state is not None and status.state.waiting
    }
    if not reported and not waits & (IMAGE_REASONS | REASONS | {"CrashLoopBackOff"}):
        seen = (
            f"bound to node {safe_name(pod.spec.node_name)} {duration(age_s)} ago, phase {safe_name(pod.status.phase)}"
        )
        yield of_pod(STARTS_SLOWLY, pod, seen, age=duration(age_s))
