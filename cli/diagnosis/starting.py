"""Pods with a node that do not start: missing configuration, sandboxes, init containers, rejection by the kubelet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.core import IMAGE_REASONS
from tfjob_operator.api.v1.constants import ConditionType, EventReason
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_NODE, DESCRIBE_POD, LOGS, NEW_CONFIG_MAP, NEW_KEYS
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, WhileRunning, error, problems_in, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import ContainerStatusDetails, PodDetails
from tfjob_operator.cli.model.pods import lookup_location, statuses
from tfjob_operator.cli.model.words import quote, safe_name

_STARTS: Final = "The pod then starts by itself"
_DRIVERS: Final = "Ask your cluster administrator to check the GPU driver and the container toolkit of node {node}"
NO_CONFIG_MAP: Final = error(
    "config-map-missing",
    640,
    'ConfigMap "{name}" not found (env of {who})',
    (f"Create it from ENVFILE with lines KEY=VALUE. {_STARTS}: {NEW_CONFIG_MAP.replace('file', 'env-file')}=ENVFILE",),
    "Environment from a ConfigMap that does not exist",
)
NO_SECRET: Final = error(
    "secret-missing",
    641,
    'Secret "{name}" not found (env of {who})',
    (f"Create it from ENVFILE with lines KEY=VALUE. {_STARTS}: {NEW_KEYS.replace('file', 'env-file')}=ENVFILE",),
    "Environment from a Secret that does not exist",
)
NO_KEY: Final = error(
    "config-key-missing",
    642,
    'Key "{name}" not found in {kind} "{object}" (env of {who})',
    (
        f"Add the key. {_STARTS}: kubectl -n {{namespace}} edit {{kind}} {{object}}",
        ManifestChange("or correct the key in env"),
    ),
    "Environment from a key that the ConfigMap or Secret does not have",
)
RUNS_AS_ROOT: Final = error(
    "runs-as-root",
    643,
    "Image runs as root, but runAsNonRoot is set ({who})",
    (ManifestChange("set securityContext.runAsUser to a number other than 0"),),
    "runAsNonRoot, and an image that runs as root or names its user by name",
)
NO_PROGRAM: Final = error(
    "program-missing",
    644,
    'Command "{name}" not found {where} ({who})',
    (
        ManifestChange(
            "correct command in the template: a path in the image, or a program in its PATH, which neither env nor a "
            "volume may hide"
        ),
    ),
    "The command of the container is not a file of the image",
)
COMMAND_UNSPLIT: Final = error(
    "command-not-split",
    644,
    'Command "{name}" not found in the image ({who}): it is one word with spaces',
    (ManifestChange('split the command into words, such as ["python", "train.py", "--steps=9"]'),),
    "The command is a whole command line in one word",
)
NOT_EXECUTABLE: Final = error(
    "program-not-executable",
    645,
    'Command "{name}" is not executable ({who})',
    (ManifestChange('start it with its interpreter, such as ["python", "train.py"], or chmod +x it in the image'),),
    "The command is a file without permission to be executed",
)
WRONG_FORMAT: Final = error(
    "program-wrong-format",
    646,
    "Command is not executable on the platform of the node ({who}): exec format error",
    (ManifestChange("use an image built for the node's platform, or start the script with its interpreter"),),
    "exec format error",
)
NO_WORKING_FOLDER: Final = error(
    "mount-path-wrong",
    647,
    "mountPath or workingDir does not match the image ({who})",
    (DESCRIBE_POD, ManifestChange("correct mountPath, subPath or workingDir in the template")),
    "A file mounted over a directory, or a workingDir that is not one",
)
DEVICE: Final = error(
    "device-runtime",
    648,
    "Container runtime cannot provide the GPU ({who})",
    (DESCRIBE_POD, _DRIVERS),
    "The NVIDIA container runtime hook fails",
)
SANDBOX: Final = error(
    "sandbox-failed",
    649,
    "Creating the pod sandbox failed ({who}): {words}",
    (DESCRIBE_POD, "Ask your cluster administrator to check the network plugin (CNI) of node {node}"),
    "FailedCreatePodSandBox: usually the network plugin (CNI)",
)
CANNOT_START: Final = error(
    "container-cannot-start",
    650,
    "Container {container} cannot be started ({who}): {words}",
    (DESCRIBE_POD, ManifestChange("correct the container in the template as the message says")),
    "Any other reason of the kubelet or the container runtime",
)
REJECTED: Final = error(
    "rejected-by-node",
    651,
    "Rejected by the kubelet ({who}): {reason}{words}",
    (
        DESCRIBE_NODE,
        WhileRunning("The pod is recreated under every restartPolicy but Never, and may get another node"),
        ManifestChange(
            "if the message names a setting, remove what the node refuses from the template", recreate=False
        ),
    ),
    "The kubelet rejects the pod: OutOfcpu, NodeAffinity, SysctlForbidden, AppArmor",
)
INIT_RUNS: Final = warning(
    "init-container-runs",
    652,
    "Init container {container} running for {age} ({who})",
    (LOGS,),
    "An init container runs for more than five minutes",
)
STARTS_SLOWLY: Final = warning(
    "starts-slowly",
    653,
    "Starting for {age}, for an unknown reason ({who})",
    (DESCRIBE_POD, "Check whether the kubelet is Ready: kubectl describe node {node}"),
    "A pod has been on a node for more than five minutes, and no container runs",
)
PROBLEMS: Final = problems_in(globals())

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
    rule(CANNOT_START, r"(?P<words>.+)"),
)
_REASONS: Final = frozenset(
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
_LONG_S: Final = 300.0
"""A pod that has not started by then without any message has a problem; volumes and images have messages."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why pods do not start."""
    for pod in () if facts.condition(ConditionType.SUCCEEDED) else facts.pods:
        if pod.status.phase == "Failed" and _is_rejected(pod):
            reason = value(pod.status.reason)
            message = quote(pod.status.message)
            seen = f"pod {safe_name(pod.metadata.name)}: {safe_name(reason)}: {message}"
            reported = shorten(message.removeprefix("Pod was rejected: "))
            more = {"reason": reason, "words": f": {reported}" if reported else " "}
            yield Finding(REJECTED, pod.metadata.name, (seen,), _values(pod) | more, reason)
    for pod in facts.live_pods:
        if pod.spec.node_name:
            yield from _of_pod(facts, pod)


def _is_rejected(pod: PodDetails) -> bool:
    """Return True if the kubelet rejected the pod (controller/jobs/pods.py; kubernetes: pkg/kubelet/lifecycle)."""
    status = pod.status
    ran = any(
        each.state is not None and each.state.terminated and each.state.terminated.reason != "ContainerStatusUnknown"
        for each in statuses(pod)
    )
    return status.message.startswith("Pod was rejected") or (
        not ran and status.reason not in {"", "DeadlineExceeded", "Evicted", EventReason.NODE_LOST}
    )


def _of_pod(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    for status in statuses(pod):
        found = _of_container(pod, status)
        if found is not None:
            yield found
            return
    if not facts.is_starting(pod):
        return
    name = pod.metadata.name
    for event in latest(facts.pod_events(pod, "FailedCreatePodSandBox", "NetworkNotReady")):
        yield Finding(SANDBOX, name, (facts.line(event),), _values(pod) | {"words": shorten(value(event.message))})
        return
    yield from _slow(facts, pod)


def _of_container(pod: PodDetails, status: ContainerStatusDetails) -> Finding | None:
    wait = status.state.waiting if status.state is not None else None
    before = status.last_state.terminated if status.last_state is not None else None
    reason, message = (wait.reason, wait.message) if wait is not None else ("", "")
    if reason == "CrashLoopBackOff" and before is not None and before.reason in _REASONS:
        reason, message = before.reason, before.message
    if reason not in _REASONS:
        return None
    seen = (
        f"pod {safe_name(pod.metadata.name)}: container {safe_name(status.name)}: {safe_name(reason)}: {quote(message)}"
    )
    problem, more = first_match(RULES, message) or (CANNOT_START, {"words": value(reason)})
    more = {name: shorten(text) for name, text in more.items()}
    if "kind" in more:
        more["kind"] = more["kind"].lower()
    values = _values(pod) | {"container": value(status.name), "where": lookup_location(pod, status.name)} | more
    return Finding(problem, pod.metadata.name, (seen,), values, more.get("name", ""))


def _slow(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    age_s = facts.age_s(pod.status.start_time or pod.metadata.creation_timestamp)
    if age_s is None or age_s < _LONG_S:
        return
    for status in pod.status.init_container_statuses or ():
        spec = next((each for each in pod.spec.init_containers or () if each.name == status.name), None)
        if status.state is not None and status.state.running and (spec is None or spec.restart_policy != "Always"):
            seen = f"pod {safe_name(pod.metadata.name)}: init container {safe_name(status.name)} running"
            values = _values(pod) | {"container": value(status.name), "age": duration(age_s), "previous": "false"}
            yield Finding(INIT_RUNS, pod.metadata.name, (seen,), values)
            return
    # Slow image pulls and mounts are reported elsewhere.
    reported = {"Pulling", "FailedMount", "FailedAttachVolume"} & {each.reason for each in facts.pod_events(pod)}
    waits = {each.state.waiting.reason for each in statuses(pod) if each.state is not None and each.state.waiting}
    if not reported and not waits & (IMAGE_REASONS | _REASONS | {"CrashLoopBackOff"}):
        where = f"bound to node {safe_name(pod.spec.node_name)} {duration(age_s)} ago"
        seen = f"pod {safe_name(pod.metadata.name)}: {where}, phase {safe_name(pod.status.phase)}"
        yield Finding(STARTS_SLOWLY, pod.metadata.name, (seen,), _values(pod) | {"age": duration(age_s)})


def _values(pod: PodDetails) -> dict[str, str]:
    return {"pod": pod.metadata.name, "node": value(pod.spec.node_name)}
