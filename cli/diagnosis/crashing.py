"""Processes that exit with an error: memory, signals, exit codes, last log lines, and restarted replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Final

from tfjob_operator.api.text import tail_of
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    ConditionReason,
    ConditionType,
    EventReason,
    PodExit,
    exit_of,
)
from tfjob_operator.api.v1.tf_config import process_count
from tfjob_operator.api.v1.types import IndexRestarts, JobAttempt, JobCondition, TFJobSpec, child_name
from tfjob_operator.cli.diagnosis import fallback, logs, reading, refining, starting
from tfjob_operator.cli.diagnosis.advice import (
    AGAIN,
    DESCRIBE_JOB,
    DESCRIBE_NODES,
    DESCRIBE_POD,
    LINES,
    LOGS,
    MORE_LINES,
)
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, Problem, error, info, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import matched, of_pod
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.model.facts import listed, mapping
from tfjob_operator.cli.model.failures import failure_of
from tfjob_operator.cli.model.objects import ContainerStatusDetails, EventDetails, PodDetails
from tfjob_operator.cli.model.pods import (
    IN_IMAGE,
    Exit,
    exits_of,
    is_down_after,
    is_up,
    lookup_location,
    running_since,
    statuses,
)
from tfjob_operator.cli.model.words import (
    LONG_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    ago,
    ended_by,
    failed_line,
    format_restarts,
    quote,
    safe_name,
    seconds_between,
)

_ARGUMENTS: Final = ManifestChange("correct command and args in the template")
_CAUSE: Final = ManifestChange(
    "correct the cause of the exit, in the image, the command or the template", recreate=False
)
OUT_OF_MEMORY: Final = error(
    "out-of-memory",
    "OOMKilled: container {container} of {who} exceeded its memory limit {limit}",
    "The container was killed at its memory limit (OOMKilled)",
    ManifestChange("raise resources.limits.memory in the template, or use smaller batches"),
    rank=700,
)
NO_MEMORY_LIMIT: Final = error(
    "memory-without-limit",
    "OOMKilled: container {container} of {who} has no memory limit: its node had no memory left",
    "The container was killed (OOMKilled), and has no memory limit of its own",
    DESCRIBE_NODES,
    ManifestChange(
        "set resources.requests.memory in the template to what the job uses, so that it gets a node with enough, and "
        "resources.limits.memory"
    ),
    rank=700,
)
EPHEMERAL: Final = error(
    "disk-limit",
    "Evicted ({who}): limit of ephemeral storage exceeded",
    "The pod exceeded its limit of ephemeral storage",
    ManifestChange("write checkpoints and caches to a volume, or raise resources.limits.ephemeral-storage"),
    rank=701,
)
EMPTY_DIR: Final = error(
    "empty-dir-limit",
    "Evicted ({who}): emptyDir {volume} exceeded its sizeLimit {limit}",
    "An emptyDir grew over its sizeLimit",
    ManifestChange("raise sizeLimit of the emptyDir {volume} in the template, or write less to it"),
    rank=701,
)
EVICTED: Final = error(
    "evicted",
    "Evicted ({who}): the node was low on {resource}",
    "The kubelet evicted the pod because its node was low on memory or disk",
    DESCRIBE_NODES,
    ManifestChange("set resources.requests to what the job uses, so that it gets a node with enough"),
    ManifestChange(
        "or set restartPolicy of the replica to OnFailure or ExitCode: under Never no evicted pod is recreated"
    ),
    rank=702,
)
NEVER_RAN: Final = error(
    "replica-never-ran",
    "{who} never ran, and the others waited for it: {words}",
    "A replica failed because another one had not arrived, and the events of that one say why it did not start",
    ManifestChange("correct what the message names"),
    rank=699,
)
POD_DEADLINE: Final = error(
    "pod-deadline",
    "DeadlineExceeded, activeDeadlineSeconds of the pod template ({who}){words}",
    "The pod's own deadline",
    ManifestChange("raise or remove activeDeadlineSeconds in the pod template (that of runPolicy is the job's)"),
    rank=703,
)
LIVENESS: Final = error(
    "liveness-probe",
    "Liveness probe failed ({who}): the kubelet killed the container",
    "The kubelet killed the container because its liveness probe failed",
    LOGS,
    ManifestChange("remove livenessProbe from the template, or raise its initialDelaySeconds and failureThreshold"),
    rank=704,
)
ILLEGAL: Final = error(
    "illegal-instruction",
    "Exit code 132 (SIGILL, {who}): the program uses instructions that the CPU of the node lacks",
    "Exit code 132: usually TensorFlow was built for AVX",
    ManifestChange("use an image with TensorFlow built for older CPUs, or a nodeSelector for nodes with AVX"),
)
SEGFAULT: Final = error(
    "segmentation-fault",
    "Exit code 139 (SIGSEGV): crash in native code ({who}){words}",
    "Exit code 139: also an abort of a program that is process 1 of its container",
    LOGS,
    refining.FAULT_HANDLER,
    ManifestChange("use an image in which TensorFlow, CUDA and the driver of the nodes are compatible"),
)
BUS_ERROR: Final = error(
    "bus-error",
    "Exit code 135 (SIGBUS), usually because /dev/shm with its 64Mi is full ({who}){words}",
    "Exit code 135: a memory-mapped file has no room",
    LOGS,
    ManifestChange("mount an emptyDir with medium: Memory at /dev/shm"),
)
ABORTED: Final = error(
    "aborted",
    "The program aborted with exit code 134 (SIGABRT, {who}){words}",
    "Exit code 134: a failed check in native code",
    LOGS,
    _CAUSE,
)
COMMAND: Final = error(
    "command-not-found",
    "Exit code 127 ({who}): the shell did not find a command {where}",
    "Exit code 127",
    LOGS,
    _ARGUMENTS,
)
NOT_EXECUTABLE: Final = error(
    "command-not-executable",
    "Exit code 126 ({who}): the shell may not execute a command",
    "Exit code 126",
    LOGS,
    starting.EXECUTABLE,
)
USAGE: Final = error(
    "usage-error",
    "Exit code 2, usually wrong arguments ({who}){words}",
    "Exit code 2, with which programs reject their arguments",
    LOGS,
    _ARGUMENTS,
)
KILLED: Final = error(
    "killed",
    "Exit code 137 (SIGKILL, {who}), {memory}",
    "Exit code 137 without OOMKilled: killed with its node, by a user, or by its parent process",
    DESCRIBE_POD,
    LOGS,
    "See when it was killed, and the events of its pods: kubectl tfjob timeline {job} -n {namespace}",
    AGAIN,
    unless=("startup-failed",),
    vague=True,
)
TERMINATED: Final = error(
    "terminated",
    "Exit code 143 (SIGTERM, {who}): asked to terminate",
    "Exit code 143 without a reason in the pod",
    LOGS,
    "If the events show no deletion or drain, the signal came from inside the container, such as from timeout, torchrun or a "
    "script: kubectl -n {namespace} get events",
    AGAIN,
    unless=("startup-failed",),
    vague=True,
)
FAILED: Final = error(
    "exit-code",
    "Failed ({who}): container {container} exited with code {code}{words}",
    "Any other exit code that fails the job",
    LOGS,
    _CAUSE,
    rank=760,
)
CRASH_LOOP: Final = error(
    "crash-loop",
    "CrashLoopBackOff ({who}): container {container} exited with code {code}, {times}{words}",
    "A container fails repeatedly, for a reason that only its log has",
    LOGS,
    ManifestChange("correct the template, or the image, according to the log"),
    rank=761,
    unless=("startup-failed",),
    vague=True,
)
INIT_FAILED: Final = error(
    "init-container-failed",
    "Init container {container} failed with exit code {code} ({who}){words}",
    "An init container fails, so the training never starts",
    LOGS,
    ManifestChange("correct the init container in the template according to the log"),
)
AFTER_SUCCESS: Final = warning(
    "restarted-after-success",
    "Restarted after exit code 0 ({who}, {times}): its restartPolicy is Always",
    "A container exits with code 0, and its restart policy starts it again",
    ManifestChange("set restartPolicy of the replica to OnFailure, so that exit code 0 means success"),
)
AFTER_PROBE: Final = warning(
    "succeeded-after-probe",
    "Succeeded, but its {probe} probe had failed ({who}): exit code 0 after SIGTERM counts as success",
    "The kubelet killed a container for its liveness or startup probe, and its program exited with 0",
    LOGS,
    ManifestChange(
        "correct or remove {probe}Probe in the template, and let the program exit with 143 after SIGTERM if work is left"
    ),
)
FOR_EVER: Final = warning(
    "restarts-for-ever",
    "Restarted {times} times ({who}), {now}{words}",
    "One replica was restarted five times or more, and is running again",
    LOGS,
    DESCRIBE_JOB,
    ManifestChange(
        "to limit further restarts, set spec.runPolicy.backoffLimit to {counted} or more: {counted} are already counted, and a "
        "lower limit fails the job at once",
        recreate=False,
    ),
)
_OF_SIDECAR: Final = (
    LOGS,
    ManifestChange("correct container {container} in the template, such as its memory limit; the training itself runs"),
)
"""For restarts of other containers than the training: they count toward backoffLimit too, so a limit would end the training."""
RESTARTED: Final = info(
    "was-restarted",
    "Restarted {times} ({who}), {now}{words}",
    "A replica was restarted a few times",
    LOGS,
    DESCRIBE_JOB,
    rank=960,
)

_BY_CODE: Final = {
    126: NOT_EXECUTABLE,
    127: COMMAND,
    132: ILLEGAL,
    134: ABORTED,
    135: BUS_ERROR,
    139: SEGFAULT,
    137: KILLED,
    143: TERMINATED,
    2: USAGE,
}
_OF_COMMANDS: Final = frozenset({2, 126, 127})
"""Exit codes that an exception of Python does not have: after one, they are of another command of the script."""
_TIMED_OUT: Final = 124
_NOT_EXECUTED: Final = 126
_NOT_FOUND: Final = 127
_WATCHED: Final = re.compile(
    r"\b(?:killing|kill|terminating|watchdog|heartbeat|SIGKILL|timed out|no progress|stuck|hung)\b", re.IGNORECASE
)
"""Words of a log, before the kill, by which somebody in the container says that it kills."""
_CHILD_KILLED_LINE: Final = re.compile(r"(?m)^(?:\S+: line \d+: +\d+ +)?Killed(?: {2,}.*)?$")
_NEAR: Final = 5
_KILLED_CHILD: Final = "A child process was killed ({who}): {name}"
_BY_WHOM: Final = "The log says who killed it: for lack of memory, the kernel kills without a word in the log"
_CARRIAGE_RETURNS: Final = re.compile(r"set: Illegal option -\s|\r\n[^\r\n]*\r(?:\n|$)")
"""Two lines in a row that end with a carriage return, as a script writes them that has Windows line endings."""
_SCRIPT: Final = re.compile(r": (?P<name>/[^\s:]{1,200}): (?:not found|No such file or directory|bad interpreter)")
_NO_SCRIPT: Final = "Exit code 127 ({who}): {name} does not exist, or the interpreter in its first line does not"
_INTERPRETER: Final = ManifestChange(
    "correct the path of the script in command and args of the template or, if the file is there, its first line, in which "
    "Windows line endings (CRLF) become a part of the interpreter's name"
)
_NO_CONDA: Final = re.compile(r"(?m)^CondaError: |^EnvironmentNameNotFound: |\bconda: (command )?not found$")
_WITHOUT_CONDA: Final = "Python module {name} not found ({who}): its conda environment was not activated"
_CONDA: Final = ManifestChange(
    "start the program with conda run --name ENVIRONMENT, or source the conda.sh of the image before conda activate"
)
_HEAP: Final = ManifestChange(
    "raise the heap of Java, such as -Xmx or spark.driver.memory, and resources.limits.memory in the template with it"
)
_TIME_LIMIT: Final = ManifestChange("raise the time limit of timeout in command and args of the template")
_PLAIN: Final = frozenset({"", "Error", "Completed"})
_KILLED_BY: Final = frozenset({137, 143})
_PROBE: Final = re.compile(r"(?:^|failed )(?P<kind>liveness|startup) probe", re.IGNORECASE)
_HOOK: Final = "PostStartHook"
_OF_PROBES: Final = frozenset({"Liveness", "Startup", _HOOK})
_PROBED_S: Final = 90.0
"""The default grace period is 30 s, and the kubelet needs some seconds more."""
_SIGNALS: Final = {129: "SIGHUP", 131: "SIGQUIT", 133: "SIGTRAP", 136: "SIGFPE", 138: "SIGUSR1", 141: "SIGPIPE"}
"""Exit codes of signals that have no problem of their own."""
# kubernetes: pkg/kubelet/eviction/helpers.go
_EVICTIONS: Final = (
    rule(EPHEMERAL, r"exceeded its local ephemeral storage limit|local storage usage exceeds"),
    rule(EMPTY_DIR, r'Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"'),
    rule(EVICTED, r"low on resource: (?P<resource>[^\s.]+)"),
)
_KILLED: Final = {137: "SIGKILL", 143: "SIGTERM"}
"""Exit codes of signals from outside: the log does not contain the reason."""
_BEGINNING: Final = 40
"""As many characters identify a line."""
_LAST_WORDS: Final = 150
"""The most bytes of the last lines of a log that are quoted in a title; a single line may be longer."""
_TASK: Final = re.compile(r"/job:(\w{1,20})/(?:replica:\d{1,9}/)?task:(\d{1,9})")
_OF_JOB: Final = re.compile(
    r"/job:|\btask\b|heartbeat|collective|\bnccl\b|\bgloo\b|all_?reduce|coordination|barrier|remote process|grpc",
    re.IGNORECASE,
)
"""Words of messages about the connections between replicas."""
_ADDRESS: Final = re.compile(r"[\d.]+")
"""Of a replica that is gone, if the log names tasks: TensorFlow reaches other hosts by their names."""
_PROCESS: Final = re.compile(r"(?:/job:jax_worker/replica:0/task:)?(\d{1,9})|leader task|CoordinationService/Heartbeat")
"""A process of JAX, as messages of its coordination service name it; process 0 is the leader, which runs the service."""
_OF_POD: Final = frozenset({"Evicted", "DeadlineExceeded"})
"""Reasons for which the kubelet ends a whole pod."""


_OF_PEERS: Final = frozenset(problem.id for problem in (logs.PEER_UNKNOWN, logs.PEER_FAILED, logs.PEER_AWAY))
"""Problems that may be consequences of the failure of another replica."""
# pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp
_COLLECTIVE: Final = re.compile(
    r"collective operation timeout|Deadline ?Exceeded|DEADLINE_EXCEEDED|session was not created|/job:\w+/",
    re.IGNORECASE,
)
_KEEPS_FROM_RUNNING: Final = frozenset(
    {"Failed", "FailedScheduling", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}
)
_AT_EXIT_S: Final = 60.0
"""How much later a process may end that waits for the others at its exit."""
_OWN_ERROR: Final = re.compile(
    r"(FileNotFound|Value|Key|Index|Type|Attribute|Assertion|ZeroDivision|Permission|Import|ModuleNotFound|Name|IsADirectory|"
    r"NotADirectory|Unicode(De|En)code|JSONDecode|Overflow)Error\b"
)
"""Exceptions of Python that the loss of another process does not raise."""
_SAME_S: Final = 1.0
"""Times of containers have whole seconds, by the clocks of their nodes."""
_SKEW_S: Final = 10.0
"""How far the clocks of operator and API server may differ."""
_AGAIN: Final = 2
_STEADY_S: Final = 600.0
"""After two restarts for lack of memory another is likely until a pod has run this long."""
_OFTEN: Final = 5
"""This many restarts are not accidental: by then the kubelet's back-off has reached five minutes."""


@dataclass(frozen=True, slots=True)
class _End:
    """How a container terminated, from its pod or the job's condition.

    `before` is True if the container was restarted later. `limit` is that of its memory: None if it has none, "" if its
    pod is gone.
    """

    pod: str
    container: str
    code: int
    reason: str
    words: str
    proofs: tuple[str, ...]
    init: bool = False
    before: bool = False
    loops: int = 0
    limit: str | None = ""
    where: str = IN_IMAGE


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why processes of the job terminated, and replicas that were restarted and are running again."""
    failed = facts.condition(ConditionType.FAILED)
    if failed is not None:
        if failed.reason in {ConditionReason.FAILED, ConditionReason.LIMIT, ConditionReason.BY_RULE}:
            yield from _of_failed_job(facts, failed)
        return
    if facts.finished:
        yield from _stopped_well(facts)
        return
    for pod in facts.pods:
        yield from _of_pod(facts, pod)
    yield from _evicted(facts)
    yield from _replaced(facts)
    yield from _restarted(facts)


def _stopped_well(facts: Facts) -> Iterator[Finding]:
    """Yield replicas of a succeeded job that exited with 0 after the kubelet killed them."""
    values = {"container": CONTAINER_NAME, "previous": "false"}
    for pod in facts.pods:
        training = next(
            (status for status in pod.status.container_statuses or () if status.name == CONTAINER_NAME), None
        )
        ended = training.state.terminated if training is not None and training.state is not None else None
        if ended is not None and ended.exit_code == 0:
            meta = pod.metadata
            for event in _probes(facts, meta.name, meta.uid, CONTAINER_NAME, ended.finished_at):
                probe = _by_probe("", [event]).lower()
                yield of_pod(AFTER_PROBE, pod, probe=probe, **values).seen_in(facts.line(event))


def _of_failed_job(facts: Facts, failed: JobCondition) -> Iterator[Finding]:
    """Yield why the replica failed that decided the end; others may have failed later as a consequence."""
    failure = failure_of(facts.job.status, failed)
    for pod in facts.pods:
        if failure is None or not failure.pod_name or pod.metadata.name == failure.pod_name:
            findings = list(_of_pod(facts, pod, failure.container_name if failure is not None else ""))
            if findings:
                ended = [
                    replace(one, problem=refining.of_end(facts, one.problem, pod.metadata.name)) for one in findings
                ]
                yield from _with_peers(facts, ended)
                return
    if failure is None or not failure.pod_name:
        return
    proof = failed_line(failed)
    if failure.reason in _OF_POD:
        yield _taken(facts, failure.pod_name, failure.reason, failure.message, proof)
    elif failure.reason in starting.REASONS and failure.exit_code is None:
        problem, values = first_match(starting.RULES, failure.message or failure.reason) or (starting.CANNOT_START, {})
        more = {"pod": failure.pod_name, "node": failure.node_name, "container": failure.container_name}
        yield Finding(
            problem, failure.pod_name, (proof,), more | {name: shorten(text) for name, text in values.items()}
        )
    elif failure.exit_code is not None and not _is_invented(facts, failure):
        container = value(failure.container_name) or CONTAINER_NAME
        end = _End(failure.pod_name, container, failure.exit_code, failure.reason, failure.message, (proof,))
        made = _classified(facts, end)
        made = replace(made, problem=refining.of_end(facts, made.problem, failure.pod_name))
        yield from _with_peers(facts, [made])


def _with_peers(facts: Facts, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield these findings and, if they only say that a peer is gone, why others failed before or in the same second."""
    others = (
        list(_before_peer(facts, {each.affected for each in findings})) if all(map(_is_about_peer, findings)) else []
    )
    for finding in findings:
        if others and finding.problem.id not in _OF_PEERS:
            words = finding.values["words"].removeprefix(": ")
            yield replace(finding, problem=logs.PEER_AWAY, key="", values={**finding.values, "name": words})
        elif others and finding.problem.id == logs.PEER_FAILED.id:
            yield replace(finding, values={**finding.values, "name": safe_name(others[0].affected)})
        else:
            yield finding
    yield from others


def _before_peer(facts: Facts, affected: Collection[str]) -> Iterator[Finding]:
    """Yield why replicas other than these failed until the job ended, as far as it is not about a peer.

    Also one that ended a little later with an exception of its own: at its exit, a process may wait for the others.
    """
    ended_at = facts.job.status.completion_time
    events = ((event, exit_of(event.message)) for event in facts.job_events(EventReason.EXITED_WITH_CODE))
    killed = {end.pod: (event, end) for event, end in events if end is not None and end.reason == "OOMKilled"}
    for name in killed.keys() - set(affected):
        yield of_exit_event(facts, *killed[name], loops=0)
    yield from _never_ran(facts, {*affected, *killed})
    for pod in facts.pods:
        for each in list(exits_of(pod))[:1] if pod.metadata.name not in {*affected, *killed} else ():
            if each.ended.reason == "OOMKilled" and pod.status.phase != "Failed":
                yield _classified(facts, _end_of(facts, each))
    for pod in facts.pods:
        for end in (
            list(exits_of(pod))[:1] if pod.metadata.name not in affected and pod.status.phase == "Failed" else ()
        ):
            at = end.ended.finished_at
            later_s = 0.0 if at is None or ended_at is None else seconds_between(ended_at, at)
            is_own = pod.metadata.deletion_timestamp is None and _OWN_ERROR.match(_read(_end_of(facts, end))[1].line)
            if later_s <= (_AT_EXIT_S if is_own else _SAME_S):
                other = _classified(facts, _end_of(facts, end))
                was_killed = end.ended.exit_code in _KILLED and end.ended.reason != "OOMKilled"
                if not _is_about_peer(other) and not was_killed:
                    yield other


def _never_ran(facts: Facts, affected: Collection[str]) -> Iterator[Finding]:
    """Yield the replicas that never ran, of which events still say why: the others waited for them."""
    for kind, size in facts.sizes.items():
        for index in range(size):
            name = facts.shape.child(facts.name, kind, index)
            events = facts.events_of("Pod", name)
            reasons = [event for event in events if event.reason in _KEEPS_FROM_RUNNING and event.type == "Warning"]
            if name in affected or not reasons or any(event.reason == "Started" for event in events):
                continue
            words = max(reasons, key=lambda event: len(event.message)).message
            yield Finding(NEVER_RAN, name, (facts.line(reasons[-1]),), {"pod": name, "words": shorten(value(words))})


def _is_about_peer(finding: Finding) -> bool:
    """Return True if a failure may be the consequence of another replica's: a lost connection, or a timeout."""
    return finding.problem.id in _OF_PEERS or _COLLECTIVE.search(finding.values.get("words", "")) is not None


def _is_invented(facts: Facts, failure: JobAttempt) -> bool:
    """Return True for exit code 0 of a failed container that is not restarted after it: kubelets up to 1.20 report it.

    See `container_not_created` in controller/tfjob/plan/ending.py. A container that exits with 0 again and again may have
    reached the backoffLimit.
    """
    record = conditions.end_record(facts.job.status)
    by_restarts = record is not None and record.event == EventReason.BACKOFF_LIMIT_EXCEEDED
    return failure.exit_code == 0 and failure.reason in _PLAIN and not by_restarts


def _taken(facts: Facts, pod: str, reason: str, message: str, proof: str, *, waits: str = "") -> Finding:
    """Return why the kubelet ended a whole pod; `waits` is what had kept it from starting."""
    problem, values = first_match(_EVICTIONS, message) or (EVICTED, {"resource": "resources"})
    if problem is EVICTED and not refining.never_restarts(facts, pod):
        problem = replace(problem, to_do=problem.to_do[:-1])
    if reason == "DeadlineExceeded":
        problem, values = POD_DEADLINE, {"words": f": {shorten(value(waits))}" if waits else " "}
    return Finding(problem, pod, (proof,), {**values, "pod": pod})


def _evicted(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that exceeded a limit of their own pod and were replaced: the next pod will exceed it, too."""
    for name in facts.wanted if not _may_be_corrected(facts) else ():
        for event in latest([each for each in facts.events_of("Pod", name) if each.reason == "Evicted"]):
            found, age_s = first_match(_EVICTIONS, event.message), facts.age_s(event.at) or 0.0
            is_own = age_s < min(_STEADY_S, facts.age_s(facts.evidence.created_at) or _STEADY_S)
            if found is not None and found[0] is not EVICTED and is_own:
                yield Finding(found[0], name, (facts.line(event),), {**found[1], "pod": name})


def _waits(pod: PodDetails) -> str:
    """Return what keeps a container of a pod from starting, "" if nothing does."""
    for status in pod.status.init_container_statuses or ():
        if status.state is not None and status.state.running is not None:
            return f"init container {status.name} has not ended"
    waits = ((status.name, status.state.waiting) for status in statuses(pod) if status.state is not None)
    said = (
        f"container {name} did not start: {why.reason}: {why.message}" for name, why in waits if why and why.message
    )
    return next(said, "")


def _of_pod(facts: Facts, pod: PodDetails, container: str = "") -> Iterator[Finding]:
    """Yield why a pod failed; `container` is the one that failed, if that is recorded: others may be down too."""
    status, name = pod.status, pod.metadata.name
    if status.phase == "Failed" and status.reason in _OF_POD:
        seen = f"pod {safe_name(name)}: {safe_name(status.reason)}: {quote(status.message)}"
        if waits := _waits(pod):
            seen = f"pod {safe_name(name)}: {quote(waits)}"
            yield from matched(starting.REASONS_OF_START, waits, pod, seen)
        yield _taken(facts, name, status.reason, status.message, seen, waits=waits)
        return
    ends = [end for end in exits_of(pod) if container in {"", end.container} and is_down_after(end, facts.now)]
    for end in ends[:1]:
        if end.ended.reason == "ContainerStatusUnknown" or (end.ended.reason == "StartError" and not _over(end)):
            continue
        yield _classified(facts, _end_of(facts, end))


def _over(each: Exit) -> bool:
    """Return True if the container will not be restarted; restarts are reported by `starting`."""
    return each.pod.status.phase == "Failed"


def _end_of(facts: Facts, each: Exit) -> _End:
    """Return an exit with all information about it: the termination message, the log, and events about probes."""
    pod, ended, name = each.pod, each.ended, each.pod.metadata.name
    log, when = facts.log(name, each.container), ago(facts.now, ended.finished_at)
    reason = f" ({safe_name(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    how = f"exited with code {ended.exit_code}{reason}{when and ', '}{when}"
    most = LONG_MESSAGE_BYTES if ended.reason in starting.REASONS else MAX_MESSAGE_BYTES
    words = f": {quote(reading.plain(ended.message), most)}" if ended.message else ""
    proofs = [f"pod {safe_name(name)}: container {safe_name(each.container)} {how}{words}"]
    if log:
        proofs.append(f"log of {safe_name(name)}: {quote(reading.plain(log))}")
    probe = _probes(facts, name, pod.metadata.uid, each.container, ended.finished_at)
    skipped = latest(facts.pod_events(pod, "InvalidEnvironmentVariableNames"))
    hooks = latest(facts.pod_events(pod, f"Failed{_HOOK}"))
    proofs += [facts.line(event) for event in (*probe, *hooks, *skipped)]
    return _End(
        name,
        each.container,
        ended.exit_code,
        _HOOK
        if hooks and pod.status.phase == "Failed" and ended.exit_code in _KILLED_BY
        else _by_probe(ended.reason, probe),
        f"{log}\n" if log.rstrip().endswith(ended.message.rstrip()) else f"{ended.message}\n{log}",
        tuple(proofs),
        init=each.container in {one.name for one in pod.status.init_container_statuses or ()},
        before=not each.now,
        loops=0 if pod.status.phase == "Failed" else each.restarts,
        limit=memory_limit(pod, each.container) or None,
        where=lookup_location(pod, each.container),
    )


def _probes(facts: Facts, pod: str, uid: str, container: str, ended_at: datetime | None) -> tuple[EventDetails, ...]:
    """Return the newest event about the liveness or startup probe that let the kubelet kill a container, which ended then.

    If the container is restarted, the kubelet names the probe when it kills. Otherwise it only stops the container, soon after
    the probe failed for the last time.
    """
    events = facts.events_of("Pod", pod, uid)
    named = f"container {container} "
    kills = [event for event in events if event.reason == "Killing" and named in f"{event.message.lower()} "]
    failures = [event for event in events if kills and _PROBE.match(event.message) and _is_soon(event.at, ended_at)]
    return latest([event for event in events if event in failures or (event in kills and _PROBE.search(event.message))])


def _by_probe(reason: str, probes: Sequence[EventDetails]) -> str:
    """Return the reason of an exit: the kind of the probe, if one let the kubelet kill, and nothing else is known."""
    match = _PROBE.search(probes[-1].message) if probes and reason in {"", "Error"} else None
    return match["kind"].capitalize() if match is not None else reason


def _failed_probe(facts: Facts, pod: str, kind: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem of a probe of this kind, and the values for its title."""
    if kind == "Liveness":
        return LIVENESS, {}
    if kind == _HOOK:
        said = [event.message for event in facts.events_of("Pod", pod) if event.reason == f"Failed{_HOOK}"]
        return fallback.START, {
            "reason": "Hook postStart failed",
            "words": shorten(value((said or [""])[-1])) or "no message",
        }
    reason = f"{kind} probe failed"
    said = [event.message for event in facts.events_of("Pod", pod) if event.message.startswith(f"{reason}: ")]
    return fallback.START, {
        "reason": reason,
        "words": shorten(value((said or [""])[-1].partition(": ")[2])) or "no message",
    }


def _is_soon(probed_at: datetime | None, ended_at: datetime | None) -> bool:
    """Return True if a container ended within the usual grace period of a failed probe; one kubelet writes both times."""
    if probed_at is None or ended_at is None:
        return False
    return abs(seconds_between(probed_at, ended_at)) <= _PROBED_S


def _limit_of_template(facts: Facts, pod: str, container: str) -> str | None:
    """Return the memory limit for the container of a pod that is gone: None for none, "" if that is unknown.

    A LimitRange may have set one, and the template of a job that goes on may have been edited since.
    """
    spec = refining.pod_spec_of(facts, pod)
    own = [each for each in listed(spec.get("containers")) if each.get("name") == container]
    if facts.evidence.limit_ranges or _may_be_corrected(facts) or not own:
        return ""
    found = [mapping(mapping(each.get("resources")).get("limits")).get("memory") for each in (*own, spec)]
    memory = next((each for each in found if each is not None), None)
    return f"of {value(str(memory))}" if memory is not None else None


def _may_be_corrected(facts: Facts) -> bool:
    """Return True if the template of an unfinished job may have been edited since an earlier pod failed."""
    return facts.job.metadata.generation > 1 and not facts.finished


def memory_limit(pod: PodDetails, name: str) -> str:
    """Return the memory limit of a container, or else of its pod, for a title: `of 64Mi`; "" if there is none."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    own = next((one.resources for one in containers if one.name == name), None)
    found = [(each.limits or {}).get("memory") for each in (own, pod.spec.resources) if each is not None]
    memory = next((each for each in found if each is not None), None)
    noted = pod.metadata.annotations.limit_ranger.split(";") if pod.metadata.annotations is not None else ()
    by_range = any("memory" in each and each.endswith(f"limit for container {name}") for each in noted)
    return "" if memory is None else f"of {value(str(memory))}{', set by a LimitRange' * by_range}"


def _read(end: _End) -> tuple[str, reading.LastWords, str]:
    """Return the log of an exit, why the process ended by it, and the words for a title: the last lines if that is unknown."""
    joined = reading.plain(end.words)
    joined = joined if "\n" in joined else joined.replace(" / ", "\n")  # by api.text.tail_of
    last = reading.read(joined, logs.OF_CHILD if end.code in _KILLED else logs.RULES)
    last = last if last.problem is not None or end.code not in _KILLED else reading.LastWords()
    words = shorten(last.line) or _last_lines(reading.without_frames(joined))
    return joined, last, words


def _classified(facts: Facts, end: _End) -> Finding:
    """Return the problem behind an exit: by the runtime's reason, else by messages and log, else by the exit code."""
    has_timeout = end.code == _TIMED_OUT and refining.runs_timeout(facts, end.pod, end.container)
    names = {**_SIGNALS, _TIMED_OUT: f"{'' if has_timeout else 'usually '}the time limit of timeout"}
    values = {
        "pod": end.pod,
        "container": value(end.container),
        "code": f"{end.code} ({names[end.code]})" if end.code in names else str(end.code),
        "times": format_restarts(end.loops),
        "previous": str(end.before).lower(),
        "where": end.where,
        "tail": LINES,
    }
    joined, last, words = _read(end)
    more: Mapping[str, str] = {"words": f": {words}" if words.strip() else " "}
    key, also = "", tuple[Problem, ...]()
    limit = _limit_of_template(facts, end.pod, end.container) if end.limit == "" else end.limit
    if end.reason == "OOMKilled":
        problem, more = NO_MEMORY_LIMIT if limit is None else OUT_OF_MEMORY, {"limit": limit or " "}
    elif end.reason in _OF_PROBES:
        problem, more = _failed_probe(facts, end.pod, end.reason)
        key = more.get("reason", "")
    elif end.reason in {"StartError", "ContainerCannotRun"}:
        problem, more = first_match(starting.RULES, end.words) or (starting.CANNOT_START, {"words": end.reason})
    elif last.problem is logs.NO_ACCESS and end.code == _NOT_EXECUTED and (name := last.values.get("name")):
        problem, more = starting.NOT_EXECUTABLE, {"name": name}
    elif last.problem is not None and not (last.problem is logs.PEER_FAILED and not _has_peer(facts, end, last)):
        problem, key, more, also = _by_log(facts, end, last.problem, last)
        more = {**more, "memory": "no limit" if limit is None else f"limit {limit}" if limit else "limit unknown"}
    elif end.init:
        problem = INIT_FAILED
    elif end.code == 0 and end.reason in {"", "Error", "Completed"}:
        problem = AFTER_SUCCESS
        values["times"] = format_restarts(end.loops) if end.loops else "until its limit of restarts"
    else:
        other = CRASH_LOOP if end.loops else FAILED
        is_of_shell = end.code in _OF_COMMANDS and reading.is_exception(last.line)
        problem = other if is_of_shell else _BY_CODE.get(end.code, other)
        key = str(end.code) if problem is FAILED else ""
        problem = replace(problem, to_do=(LOGS, _TIME_LIMIT)) if has_timeout else problem
        more = {**more, "memory": "without a memory limit" if limit is None else "not at the memory limit"}
    if problem is logs.PORT_IN_USE and not logs.IN_USE.search(joined):
        problem = replace(problem, title=logs.NO_SERVER)
    if reading.is_far_up(joined, last.line):
        values["tail"] = MORE_LINES
    more = {name: shorten(text) for name, text in more.items()}
    problem = refining.refined(facts, problem, end.pod, end.container, last.line)
    problem, named = _by_script(facts, end, problem, joined)
    more = {**more, **named}
    return Finding(problem, end.pod, _proofs(end, problem, last.line), values | more, key, also)


def _by_script(facts: Facts, end: _End, problem: Problem, log: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem of an exit if its script is the cause, or has killed a child itself, with the values for its title."""
    if end.code == _NOT_FOUND and (script := _SCRIPT.search(log)) is not None:
        return replace(COMMAND, title=_NO_SCRIPT, to_do=(LOGS, _INTERPRETER)), {"name": shorten(value(script["name"]))}
    if end.code in _OF_COMMANDS and (match := _CARRIAGE_RETURNS.search(end.words)) is not None:
        return logs.LINE_ENDINGS, {"name": shorten(value(match[0].split("\n")[0]))}
    if problem.id == logs.NO_MODULE.id and _NO_CONDA.search(log):
        return replace(problem, title=_WITHOUT_CONDA, to_do=(LOGS, _CONDA)), {}
    if problem.id == logs.PROCESS_MEMORY.id and "java.lang.OutOfMemoryError" in log:
        return replace(problem, title="Out of memory in the heap of Java ({who}): {name}", to_do=(LOGS, _HEAP)), {
            "name": next((shorten(value(line)) for line in log.split("\n") if "java.lang.OutOfMemoryError" in line), "")
        }
    if problem.id != logs.CHILD_KILLED.id:
        return problem, {}
    before = _CHILD_KILLED_LINE.split(log)[0].rstrip().split("\n")[-_NEAR:]
    said = [line for line in before if _WATCHED.search(line) and first_match(logs.OF_CHILD, line) is None]
    if said:
        return replace(problem, title=_KILLED_CHILD, to_do=(LOGS, _BY_WHOM)), {"name": shorten(value(said[-1]))}
    if refining.runs_timeout(facts, end.pod, end.container):
        return replace(problem, title=_KILLED_CHILD, to_do=(LOGS, _TIME_LIMIT)), {}
    return problem, {}


def _proofs(end: _End, problem: Problem, line: str) -> tuple[str, ...]:
    """Return the evidence of an exit, with the deciding line of its log if neither the title nor the end of the log has it."""
    begin = line[:_BEGINNING]
    if "{name}" in problem.title or "{words}" in problem.title or any(begin in proof for proof in end.proofs):
        return end.proofs
    return (*end.proofs[:1], f"log of {safe_name(end.pod)}: {shorten(value(line))}", *end.proofs[1:])


def _by_log(
    facts: Facts, end: _End, problem: Problem, last: reading.LastWords
) -> tuple[Problem, str, Mapping[str, str], tuple[Problem, ...]]:
    """Return the problem that a log shows, its key, its values, and the problem whose advice applies too."""
    key, also = value(last.values.get("name", "")), tuple[Problem, ...]()
    more = {"name": last.line} | dict(last.values)
    if problem is logs.PEER_AWAY and (reached := list(logs.REACHED.finditer(end.words))):
        processes = process_count(facts.spec) if isinstance(facts.spec, TFJobSpec) else 0
        if processes and int(reached[-1]["size"]) != processes:
            more |= {**reached[-1].groupdict(), "processes": str(processes), "name": last.line}
            return replace(problem, title=logs.NOT_ALL_OF_JAX, to_do=logs.JOIN_OF_JAX), "", more, ()
    host, by_http = (key, False) if key and problem is logs.PEER_UNKNOWN else logs.host_in(last.line)
    is_task = _TASK.search(last.line) is not None or (_ADDRESS.fullmatch(host) is not None and "/job:" in end.words)
    if host and problem in logs.OUTSIDE and not (facts.is_replica(host, by_http=by_http) or is_task):
        problem, key, more["name"] = logs.OUTSIDE[problem], host, host
    elif problem in logs.OUTSIDE.values():
        key = more["name"] = host or logs.PACKAGE_INDEX
    elif problem in {logs.PEER_UNKNOWN, logs.PEER_AWAY} and logs.is_about_any_host(last.line):
        also = (logs.OUTSIDE[problem],)
    elif "{replicas}" in problem.title:
        more["replicas"] = str(sum(facts.sizes.values()))
    elif (problem is logs.PEER_FAILED or _PROCESS.fullmatch(key)) and (peer := _peer(facts, end, key)):
        more["name"] = peer
        if problem is logs.PEER_FAILED and facts.finished and peer not in {pod.metadata.name for pod in facts.pods}:
            problem = replace(problem, to_do=logs.LOG_OF_PEER_GONE)
    return problem, key, more, also


def _has_peer(facts: Facts, end: _End, last: reading.LastWords) -> bool:
    """Return True if a lost connection may be one to another replica: one is named, or an operation of all, or one has ended.

    A database or a server of data also resets connections.
    """
    if sum(facts.sizes.values()) < 2:
        return False
    is_named = bool(last.values.get("name")) or _OF_JOB.search(last.line) is not None
    return is_named or bool(_peer(facts, end, ""))


def _last_lines(log: str) -> str:
    """Return the last lines of a log after its progress, as far as they are short, but at least the last one."""
    lines = log.rstrip().split("\n")[-_LAST_WORDS:]
    kept = list(takewhile(lambda line: not reading.is_progress(line), reversed(lines)))[::-1]
    last = value(reading.last_error("\n".join(kept)).replace("\n", " / "))
    return shorten(last) if len(last.encode()) > _LAST_WORDS else tail_of("\n".join(kept), _LAST_WORDS)


def _peer(facts: Facts, end: _End, task: str) -> str:
    """Return the replica of a task or process that a runtime names, else one with an earlier failure; "" if none is known."""
    match = _TASK.match(task)
    if (process := _PROCESS.fullmatch(task)) is not None:
        others = list(filter(None, [facts.replica_of_process(int(process[1] or 0))]))
    elif match is not None and int(match[2]) < {kind.lower(): size for kind, size in facts.sizes.items()}.get(
        match[1], 0
    ):
        others = [child_name(facts.name, match[1], int(match[2]))]
    else:
        others = [] if task else [*_named_by_address(facts, end), *_failed_before(facts, end.pod)]
        restarted = (restart for restart in facts.job.status.restarts if restart.total and facts.finished and not task)
        others += [facts.shape.child(facts.name, restarts.type, restarts.index) for restarts in restarted]
    return next((name for name in others if name != end.pod), "")


def _named_by_address(facts: Facts, end: _End) -> list[str]:
    """Return the pods whose address is in what a process has written."""
    return [pod.metadata.name for pod in facts.pods if pod.status.pod_ip and f"[{pod.status.pod_ip}]" in end.words]


def _failed_before(facts: Facts, name: str) -> list[str]:
    """Return the pods that failed until this one did, the first one first."""
    times = {pod.metadata.name: each.ended.finished_at or facts.now for pod in facts.pods for each in exits_of(pod)}
    own = times.pop(name, facts.now)
    return sorted((other for other, at in times.items() if seconds_between(own, at) <= _SAME_S), key=times.__getitem__)


def of_exit_event(facts: Facts, event: EventDetails, ended: PodExit, *, loops: int) -> Finding:
    """Return why the pod of an event ExitedWithCode failed; it was restarted `loops` times."""
    if ended.reason in _OF_POD:
        return _taken(facts, ended.pod, ended.reason, words_of(event, ended), facts.line(event))
    return _classified(facts, _end_of_event(facts, event, ended, loops=loops))


def _end_of_event(facts: Facts, event: EventDetails, ended: PodExit, *, loops: int) -> _End:
    """Return the exit in an event ExitedWithCode, of a pod that is gone."""
    killed = _probes(facts, ended.pod, "", CONTAINER_NAME, event.at) if ended.code in _KILLED_BY else ()
    reason, proofs = _by_probe(ended.reason, killed), (facts.line(event), *map(facts.line, killed))
    words = words_of(event, ended)
    return _End(ended.pod, CONTAINER_NAME, ended.code, reason, words, proofs, before=True, loops=loops)


def words_of(event: EventDetails, ended: PodExit) -> str:
    """Return what follows the exit code in an event ExitedWithCode."""
    return event.message.partition(f" {ended.code}: ")[2]


def _replaced(facts: Facts) -> Iterator[Finding]:
    """Yield the last failure of each replica whose next pod is delayed: its pod is gone."""
    at, history = facts.job.status.next_restart_time, facts.job.status.attempt_history
    if at is None or (facts.age_s(at) or 0.0) >= 0:
        return
    times = {
        facts.shape.child(facts.name, restart.type, restart.index): restart.total
        for restart in facts.job.status.restarts
    }
    exits = {
        end.pod: (event, end)
        for event in facts.job_events(EventReason.EXITED_WITH_CODE)
        if (end := exit_of(event.message))
    }
    for pod, (event, ended) in exits.items():
        if pod in facts.missing and pod in times:  # a rule may have ignored it, so that it counts as no restart
            yield of_exit_event(facts, event, ended, loops=times[pod])
    last = history[-1] if history and history[-1].number == facts.job.status.attempt - 1 else None
    if last is not None and last.exit_code is not None and last.pod_name not in exits:
        seen = f"job: attempt {last.number} ended {ago(facts.now, last.end_time) or 'some time ago'}: {ended_by(last)}"
        container = value(last.container_name) or CONTAINER_NAME
        pod = last.pod_name or facts.shape.child(facts.name, last.replica_type, last.replica_index or 0)
        loops = facts.job.status.attempt
        yield _classified(
            facts, _End(pod, container, last.exit_code, last.reason, last.message, (seen,), before=True, loops=loops)
        )


def _restarted(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that were restarted and are running again."""
    records = {
        facts.shape.child(facts.name, restart.type, restart.index): restart for restart in facts.job.status.restarts
    }
    counted = max(sum(record.total for record in records.values()), facts.snapshot.restarts - facts.job.status.attempt)
    endless = replace(FOR_EVER, to_do=FOR_EVER.to_do[:-1]) if _has_backoff_limit(facts) else FOR_EVER
    events = facts.job_events(EventReason.EXITED_WITH_CODE)
    for pod in facts.live_pods:
        name, replica = pod.metadata.name, facts.shape.replica_of(pod)
        in_place = max((status.restart_count for status in statuses(pod)), default=0)
        times = max(_recorded_restarts(records.get(replica), pod, in_place), facts.earlier[replica] + in_place)
        well = max(filter(_ended_well, statuses(pod)), key=lambda status: status.restart_count, default=None)
        if well is not None and pod.spec.restart_policy in {"", "Always"}:  # "" is the default
            how = f"container {safe_name(well.name)} exited with code 0, {format_restarts(well.restart_count)}"
            yield of_pod(AFTER_SUCCESS, pod, how, times=_often(well.restart_count), container=well.name)
            continue
        if times == 0 or any(is_down_after(end, facts.now) for end in exits_of(pod)):
            continue
        now = "running now" if is_up(pod) else "not running now"
        most = max(statuses(pod), key=lambda each: (each.restart_count, each.name == CONTAINER_NAME), default=None)
        container = most.name if most is not None and most.restart_count else CONTAINER_NAME
        values = {"times": str(times), "now": now, "container": container, "counted": str(counted)}
        values["previous"] = str(in_place > 0).lower()
        exits = [(event, end) for event in events if (end := exit_of(event.message)) is not None and end.pod == name]
        proofs = [facts.line(event) for event, _ in exits[-1:]]
        killed = _probes(facts, name, pod.metadata.uid, CONTAINER_NAME, None)
        problem, also = endless if times >= _OFTEN else RESTARTED, tuple[Problem, ...]()
        is_past = _may_be_corrected(facts) and _is_of_earlier_pod(records.get(replica), pod, exits)
        is_again = times >= _AGAIN and bool(exits) and exits[-1][1].reason == "OOMKilled" and _is_young(facts, pod)
        values["words"] = ""
        if is_again and not is_past:
            values |= {"container": CONTAINER_NAME, "limit": memory_limit(pod, CONTAINER_NAME)}
            problem, also = OUT_OF_MEMORY if values["limit"] else NO_MEMORY_LIMIT, (endless,)
        elif killed and _is_young(facts, pod):
            problem, more = _failed_probe(facts, name, _by_probe("", killed))
            values, also = values | more | {"key": more.get("reason", "")}, (endless,)
            proofs += map(facts.line, killed[-1:])
        else:
            own_exit = next((_end_of(facts, end) for end in exits_of(pod) if end.container == container), None)
            last = own_exit or next((_end_of_event(facts, *each, loops=times) for each in exits[-1:]), None)
            values["words"], advice = _last_failure(facts, last, pod) if last is not None else ("", ())
            if problem is RESTARTED:
                values["times"] = _often(times)
            elif container != CONTAINER_NAME:
                problem = replace(FOR_EVER, to_do=_OF_SIDECAR)
            else:
                also = advice
        made = of_pod(problem, pod, *_restarts_seen(pod, container, times), **values)
        yield replace(made, proofs=(*made.proofs, *proofs), also=also)


def _restarts_seen(pod: PodDetails, container: str, times: int) -> Iterator[str]:
    """Yield the restarts of a replica, and the last exit of the container that was restarted most."""
    own = sum(status.restart_count for status in statuses(pod))
    before = f", and {times - own} of earlier pods of the replica" if times > own else ""
    yield f"{format_restarts(min(own, times))}{before}"
    for each in (end for end in exits_of(pod) if end.container == container):
        reason = f" ({safe_name(each.ended.reason)})" if each.ended.reason not in {"", "Error"} else ""
        yield f"container {safe_name(each.container)} exited with code {each.ended.exit_code}{reason} before the restart"


def _is_of_earlier_pod(
    record: IndexRestarts | None, pod: PodDetails, exits: Sequence[tuple[EventDetails, PodExit]]
) -> bool:
    """Return True if the last event ExitedWithCode is about an earlier pod, whose template may have been another."""
    created_at, at = pod.metadata.creation_timestamp, exits[-1][0].at if exits else None
    replaced = record is not None and record.pod not in {"", pod.metadata.uid}
    if at is None or created_at is None:
        return replaced
    return replaced or seconds_between(created_at, at) <= _SKEW_S


def _last_failure(facts: Facts, end: _End, pod: PodDetails) -> tuple[str, tuple[Problem, ...]]:
    """Return the last failure of a pod that runs again, for a title, and the problem whose advice applies, if one is known.

    The problem of an earlier pod may be corrected: no step deletes the present one.
    """
    _, last, words = _read(end)
    # Either there is only the kubelet's or the runtime's reason, or the process could not write why it ended.
    if words.strip() in {"", end.reason} or end.code in _KILLED:
        is_plain = end.reason in {*_PLAIN, "ContainerStatusUnknown"} or not _is_young(facts, pod)
        signal = f" ({_KILLED[end.code]})" if end.code in _KILLED else ""
        code = f"exit code {end.code}{signal}" if _is_young(facts, pod) and end.code else ""
        words = code if is_plain else f"{end.reason} probe" if end.reason in _OF_PROBES else end.reason
    problem = _classified(facts, end).problem
    is_known = _is_young(facts, pod) and (last.problem is not None or end.reason == "OOMKilled")
    if end.limit == "":
        to_do = (each._replace(recreate=False) if isinstance(each, ManifestChange) else each for each in problem.to_do)
        problem = replace(problem, to_do=tuple(to_do))
    return f"; last failure: {words}" if words.strip() else "", (problem,) if is_known else ()


def _has_backoff_limit(facts: Facts) -> bool:
    return isinstance(facts.spec, TFJobSpec) and facts.spec.backoff_limit is not None


def _recorded_restarts(record: IndexRestarts | None, pod: PodDetails, in_place: int) -> int:
    """Return the recorded restarts of a replica; 0 if the last pod was taken away, and the new one was not restarted.

    A user who deletes a pod may have corrected why it was restarted. The restarts still count toward backoffLimit.
    """
    if record is None or (record.pod not in {"", pod.metadata.uid} and not (record.replaced or in_place)):
        return 0
    return record.total


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _is_young(facts: Facts, pod: PodDetails) -> bool:
    """Return True if the training has not been running long enough to regard its last exit as resolved."""
    age_s = facts.age_s(running_since(pod))
    return age_s is None or age_s < _STEADY_S


def _ended_well(status: ContainerStatusDetails) -> bool:
    """Return True if a container that was restarted had exited with 0."""
    ended = status.last_state.terminated if status.last_state is not None else None
    return status.restart_count > 0 and ended is not None and ended.exit_code == 0
