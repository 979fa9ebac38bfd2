"""Pods that have a node and do not start: missing configuration, sandboxes, init containers, nodes that reject them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import IMAGE_REASONS
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.pods import statuses
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.words import named, said
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts
    from tfjob_operator.cli.diagnosis.objects import ContainerStatus, Pod


def _start(id_: str, rank: int, title: str, to_do: tuple[str, ...], meaning: str) -> Trouble:
    return Trouble(id_, rank, Severity.ERROR, title, to_do, meaning)


_POD: Final = "kubectl -n {namespace} describe pod {pod}"
_TEMPLATE: Final = "kubectl -n {namespace} edit tfjob {job}   # then delete the pods that wait: they are created again"
NO_CONFIG_MAP: Final = _start(
    "config-map-missing",
    640,
    "{who} reads a ConfigMap that does not exist: {name}",
    (
        "kubectl -n {namespace} create configmap {name} --from-literal=KEY=...",
        "The pod starts by itself when it is there",
    ),
    "Environment from a ConfigMap that does not exist",
)
NO_SECRET: Final = _start(
    "secret-missing",
    641,
    "{who} reads a Secret that does not exist: {name}",
    (
        "kubectl -n {namespace} create secret generic {name} --from-literal=KEY=...",
        "The pod starts by itself when it is there",
    ),
    "Environment from a Secret that does not exist",
)
NO_KEY: Final = _start(
    "config-key-missing",
    642,
    "{who} reads a key that is not in its {kind}: {name}",
    (
        "kubectl -n {namespace} edit {kind} {object}   # add the key, or correct the template",
        "The pod starts by itself when it is there",
    ),
    "Environment from a key that the ConfigMap or Secret does not have",
)
RUNS_AS_ROOT: Final = _start(
    "runs-as-root",
    643,
    "{who} must not run as root, and its image does",
    ("Set securityContext.runAsUser in the template, or USER in the image (a number)", _TEMPLATE),
    "runAsNonRoot, and an image that runs as root or names its user by name",
)
NO_PROGRAM: Final = _start(
    "program-missing",
    644,
    "{who}: the program does not exist in the image: {name}",
    ("Correct command in the template: is it in the image, at that path?", _TEMPLATE),
    "The command of the container is no file of the image",
)
NOT_EXECUTABLE: Final = _start(
    "program-not-executable",
    645,
    "{who}: the program may not be executed: {name}",
    ("chmod +x it in the image, or start it by its interpreter (python train.py)", _TEMPLATE),
    "The command is a file without the right to be executed",
)
WRONG_FORMAT: Final = _start(
    "program-wrong-format",
    646,
    "{who}: the program is not made for the node's processor",
    ("Build the image for the node's platform, or begin the script with #!", _TEMPLATE),
    "exec format error",
)
NO_WORKING_FOLDER: Final = _start(
    "mount-path-wrong",
    647,
    "{who}: a mount or the working folder does not fit the image",
    (_POD, _TEMPLATE),
    "A mount of a file over a folder, or a workingDir that is none",
)
DEVICE: Final = _start(
    "device-runtime",
    648,
    "{who}: the container runtime cannot give it its GPU",
    (_POD, "Driver and container toolkit of the node {node} have to fit each other: nvidia-smi on the node"),
    "The NVIDIA container runtime's hook fails",
)
SANDBOX: Final = _start(
    "sandbox-failed",
    649,
    "{who}: its node cannot make a sandbox for it: {words}",
    (_POD, "Look at the network plugin's pods on the node {node}"),
    "FailedCreatePodSandBox: the network plugin (CNI) mostly",
)
CANNOT_START: Final = _start(
    "container-cannot-start",
    650,
    "{who}: the container {container} cannot be started: {words}",
    (_POD, _TEMPLATE),
    "Any other reason of the kubelet's or the container runtime's",
)
REJECTED: Final = _start(
    "rejected-by-node",
    651,
    "{who} was rejected by its node: {reason}",
    (
        "It is created again under every restart policy but Never; if it happens again and again: kubectl describe node {node}",
    ),
    "The kubelet does not take the pod: OutOfcpu, NodeAffinity, UnexpectedAdmissionError",
)
INIT_RUNS: Final = Trouble(
    "init-container-runs",
    652,
    Severity.WARNING,
    "{who} waits for its init container {container}, for {age}",
    ("kubectl -n {namespace} logs {pod} --container={container}",),
    "An init container runs for more than five minutes",
)
STARTS_SLOWLY: Final = Trouble(
    "starts-slowly",
    653,
    Severity.WARNING,
    "{who} has been starting for {age}, and nothing says why",
    (_POD, "Does the kubelet of the node {node} run? kubectl describe node {node}"),
    "A pod has a node for more than five minutes, and no container runs",
)
TROUBLES: Final = (
    NO_CONFIG_MAP,
    NO_SECRET,
    NO_KEY,
    RUNS_AS_ROOT,
    NO_PROGRAM,
    NOT_EXECUTABLE,
    WRONG_FORMAT,
    NO_WORKING_FOLDER,
    DEVICE,
    SANDBOX,
    CANNOT_START,
    REJECTED,
    INIT_RUNS,
    STARTS_SLOWLY,
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
    rule(NO_PROGRAM, r'exec: "(?P<name>[^"]*)": (executable file not found|stat [^:]*: no such file)'),
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
"""A pod that does not start for so long, and without a message, needs a look; volumes and images have messages."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why pods do not start."""
    for pod in () if facts.condition(ConditionType.SUCCEEDED) else facts.pods:
        if pod.status.phase == "Failed" and _is_rejected(pod):
            reason = value(pod.status.reason)
            seen = f"pod {named(pod.metadata.name)}: {named(reason)}: {said(pod.status.message)}"
            yield Finding(REJECTED, pod.metadata.name, (seen,), _values(pod) | {"reason": reason}, reason)
    for pod in facts.live_pods:
        if pod.spec.node_name:
            yield from _of_pod(facts, pod)


def _is_rejected(pod: Pod) -> bool:
    """Whether the kubelet did not take the pod (controller/jobs/pod_end.py; kubernetes: pkg/kubelet/lifecycle)."""
    status = pod.status
    ran = any(
        each.state is not None and each.state.terminated and each.state.terminated.reason != "ContainerStatusUnknown"
        for each in statuses(pod)
    )
    return status.message.startswith("Pod was rejected") or (
        not ran and status.reason not in {"", "DeadlineExceeded", "Evicted"}
    )


def _of_pod(facts: Facts, pod: Pod) -> Iterator[Finding]:
    for status in statuses(pod):
        found = _of_container(pod, status)
        if found is not None:
            yield found
            return
    if not facts.is_starting(pod):
        return
    name = pod.metadata.name
    for event in latest(
        [each for each in facts.pod_events(pod) if each.reason in {"FailedCreatePodSandBox", "NetworkNotReady"}]
    ):
        yield Finding(SANDBOX, name, (facts.line(event),), _values(pod) | {"words": value(event.message)[:160]})
        return
    yield from _slow(facts, pod)


def _of_container(pod: Pod, status: ContainerStatus) -> Finding | None:
    wait = status.state.waiting if status.state is not None else None
    before = status.last_state.terminated if status.last_state is not None else None
    reason, message = (wait.reason, wait.message) if wait is not None else ("", "")
    if reason == "CrashLoopBackOff" and before is not None and before.reason in _REASONS:
        reason, message = before.reason, before.message
    if reason not in _REASONS:
        return None
    seen = f"pod {named(pod.metadata.name)}: container {named(status.name)}: {named(reason)}: {said(message)}"
    trouble, more = first_match(RULES, message) or (CANNOT_START, {"words": value(reason)})
    more = {name: text[:160] for name, text in more.items()}
    if "kind" in more:
        more["kind"] = more["kind"].lower()
    return Finding(
        trouble,
        pod.metadata.name,
        (seen,),
        _values(pod) | {"container": value(status.name)} | more,
        more.get("name", ""),
    )


def _slow(facts: Facts, pod: Pod) -> Iterator[Finding]:
    age_s = facts.age_s(pod.status.start_time or pod.metadata.creation_timestamp)
    if age_s is None or age_s < _LONG_S:
        return
    for status in pod.status.init_container_statuses or ():
        spec = next((each for each in pod.spec.init_containers or () if each.name == status.name), None)
        if status.state is not None and status.state.running and (spec is None or spec.restart_policy != "Always"):
            seen = f"pod {named(pod.metadata.name)}: init container {named(status.name)} runs"
            yield Finding(
                INIT_RUNS,
                pod.metadata.name,
                (seen,),
                _values(pod) | {"container": value(status.name), "age": duration(age_s)},
            )
            return
    # Slow pulls and mounts are reported elsewhere.
    told = {"Pulling", "FailedMount", "FailedAttachVolume"} & {each.reason for each in facts.pod_events(pod)}
    waits = {each.state.waiting.reason for each in statuses(pod) if each.state is not None and each.state.waiting}
    if not told and not waits & (IMAGE_REASONS | _REASONS | {"CrashLoopBackOff"}):
        where = f"on node {named(pod.spec.node_name)} for {duration(age_s)}"
        seen = f"pod {named(pod.metadata.name)}: {where}, phase {named(pod.status.phase)}"
        yield Finding(STARTS_SLOWLY, pod.metadata.name, (seen,), _values(pod) | {"age": duration(age_s)})


def _values(pod: Pod) -> dict[str, str]:
    return {"pod": pod.metadata.name, "node": value(pod.spec.node_name)}
