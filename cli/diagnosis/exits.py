"""How one container ended: the problem that its exit code, its log, its probes and its memory limit show. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    PodExit,
)
from tfjob_operator.cli.diagnosis import fallback, log_lines, log_rules, reading, refining, starting
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
from tfjob_operator.cli.diagnosis.exit_logs import End, by_log, has_peer, read
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.model.facts import listed, mapping
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.pods import (
    Exit,
    lookup_location,
)
from tfjob_operator.cli.model.words import (
    LONG_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    ago,
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
# hadoop: FSPermissionChecker
_HDFS: Final = re.compile(r"AccessControlException: (?P<name>Permission denied: user=[^\n]*)")
_HDFS_USER: Final = ManifestChange(
    "set HADOOP_USER_NAME in env to a user with this permission, or mount its Kerberos keytab; or write to another path"
)
_TIME_LIMIT: Final = ManifestChange("raise the time limit of timeout in command and args of the template")
PLAIN: Final = frozenset({"", "Error", "Completed"})
_KILLED_BY: Final = frozenset({137, 143})
_PROBE: Final = re.compile(r"(?:^|failed )(?P<kind>liveness|startup) probe", re.IGNORECASE)
_HOOK: Final = "PostStartHook"
OF_PROBES: Final = frozenset({"Liveness", "Startup", _HOOK})
_PROBED_S: Final = 90.0
"""The default grace period is 30 s, and the kubelet needs some seconds more."""
_SIGNALS: Final = {129: "SIGHUP", 131: "SIGQUIT", 133: "SIGTRAP", 136: "SIGFPE", 138: "SIGUSR1", 141: "SIGPIPE"}
"""Exit codes of signals that have no problem of their own."""
# kubernetes: pkg/kubelet/eviction/helpers.go
EVICTIONS: Final = (
    rule(EPHEMERAL, r"exceeded its local ephemeral storage limit|local storage usage exceeds"),
    rule(EMPTY_DIR, r'Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"'),
    rule(EVICTED, r"low on resource: (?P<resource>[^\s.]+)"),
)
_BEGINNING: Final = 40
"""As many characters identify a line."""
OF_POD: Final = frozenset({"Evicted", "DeadlineExceeded"})
"""Reasons for which the kubelet ends a whole pod."""


def taken(facts: Facts, pod: str, reason: str, message: str, proof: str, *, waits: str = "") -> Finding:
    """Return why the kubelet ended a whole pod; `waits` is what had kept it from starting."""
    problem, values = first_match(EVICTIONS, message) or (EVICTED, {"resource": "resources"})
    if problem is EVICTED and not refining.never_restarts(facts, pod):
        problem = replace(problem, to_do=problem.to_do[:-1])
    if reason == "DeadlineExceeded":
        problem, values = POD_DEADLINE, {"words": f": {shorten(value(waits))}" if waits else " "}
    return Finding(problem, pod, (proof,), {**values, "pod": pod})


def end_of(facts: Facts, each: Exit) -> End:
    """Return an exit with all information about it: the termination message, the log, and events about probes."""
    pod, ended, name = each.pod, each.ended, each.pod.metadata.name
    log, when = facts.log(name, each.container), ago(facts.now, ended.finished_at)
    reason = f" ({safe_name(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    how = f"exited with code {ended.exit_code}{reason}{when and ', '}{when}"
    most = LONG_MESSAGE_BYTES if ended.reason in starting.REASONS else MAX_MESSAGE_BYTES
    is_in_log = bool(ended.message) and log.rstrip().endswith(ended.message.rstrip())
    words = f": {quote(log_lines.plain(ended.message), most)}" if ended.message and not is_in_log else ""
    proofs = [f"pod {safe_name(name)}: container {safe_name(each.container)} {how}{words}"]
    if log:
        proofs.append(f"log of {safe_name(name)}: {quote(log_lines.plain(log))}")
    probe = probes(facts, name, pod.metadata.uid, each.container, ended.finished_at)
    skipped = latest(facts.pod_events(pod, "InvalidEnvironmentVariableNames"))
    hooks = latest(facts.pod_events(pod, f"Failed{_HOOK}"))
    proofs += [facts.line(event) for event in (*probe, *hooks, *skipped)]
    return End(
        name,
        each.container,
        ended.exit_code,
        _HOOK
        if hooks and pod.status.phase == "Failed" and ended.exit_code in _KILLED_BY
        else by_probe(ended.reason, probe),
        f"{log}\n" if is_in_log or not ended.message else f"{ended.message}\n{log}",
        tuple(proofs),
        init=each.container in {one.name for one in pod.status.init_container_statuses or ()},
        before=not each.now,
        loops=0 if pod.status.phase == "Failed" else each.restarts,
        limit=memory_limit(pod, each.container) or None,
        where=lookup_location(pod, each.container),
    )


def probes(facts: Facts, pod: str, uid: str, container: str, ended_at: datetime | None) -> tuple[EventDetails, ...]:
    """Return the newest event about the liveness or startup probe that let the kubelet kill a container, which ended then.

    If the container is restarted, the kubelet names the probe when it kills. Otherwise it only stops the container, soon after
    the probe failed for the last time.
    """
    events = facts.events_of("Pod", pod, uid)
    named = f"container {container} "
    kills = [event for event in events if event.reason == "Killing" and named in f"{event.message.lower()} "]
    failures = [event for event in events if kills and _PROBE.match(event.message) and _is_soon(event.at, ended_at)]
    return latest([event for event in events if event in failures or (event in kills and _PROBE.search(event.message))])


def by_probe(reason: str, probes: Sequence[EventDetails]) -> str:
    """Return the reason of an exit: the kind of the probe, if one let the kubelet kill, and nothing else is known."""
    match = _PROBE.search(probes[-1].message) if probes and reason in {"", "Error"} else None
    return match["kind"].capitalize() if match is not None else reason


def failed_probe(facts: Facts, pod: str, kind: str) -> tuple[Problem, dict[str, str]]:
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

    A LimitRange may have set one, and the template of a running job may have been edited since.
    """
    spec = refining.pod_spec_of(facts, pod)
    own = [each for each in listed(spec.get("containers")) if each.get("name") == container]
    if facts.evidence.limit_ranges or may_be_corrected(facts) or not own:
        return ""
    found = [mapping(mapping(each.get("resources")).get("limits")).get("memory") for each in (*own, spec)]
    memory = next((each for each in found if each is not None), None)
    return f"of {value(str(memory))}" if memory is not None else None


def may_be_corrected(facts: Facts) -> bool:
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


def classified(facts: Facts, end: End) -> Finding:
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
    joined, last, words = read(end)
    more: Mapping[str, str] = {"words": f": {words}" if words.strip() else " "}
    key, also = "", tuple[Problem, ...]()
    limit = _limit_of_template(facts, end.pod, end.container) if end.limit == "" else end.limit
    if end.reason == "OOMKilled":
        problem, more = NO_MEMORY_LIMIT if limit is None else OUT_OF_MEMORY, {"limit": limit or " "}
    elif end.reason in OF_PROBES:
        problem, more = failed_probe(facts, end.pod, end.reason)
        key = more.get("reason", "")
    elif end.reason in {"StartError", "ContainerCannotRun"}:
        problem, more = first_match(starting.RULES, end.words) or (starting.CANNOT_START, {"words": end.reason})
    elif last.problem is log_rules.NO_ACCESS and end.code == _NOT_EXECUTED and (name := last.values.get("name")):
        problem, more = starting.NOT_EXECUTABLE, {"name": name}
    elif last.problem is not None and not (last.problem is log_rules.PEER_FAILED and not has_peer(facts, end, last)):
        problem, key, more, also = by_log(facts, end, last.problem, last)
        more = {**more, "memory": "no limit" if limit is None else f"limit {limit}" if limit else "limit unknown"}
    elif end.init:
        problem = INIT_FAILED
    elif end.code == 0 and end.reason in {"", "Error", "Completed"}:
        problem = AFTER_SUCCESS
        values["times"] = format_restarts(end.loops) if end.loops else "until its limit of restarts"
    else:
        other = CRASH_LOOP if end.loops else FAILED
        is_of_shell = end.code in _OF_COMMANDS and log_lines.is_exception(last.line)
        problem = other if is_of_shell else _BY_CODE.get(end.code, other)
        key = str(end.code) if problem is FAILED else ""
        problem = replace(problem, to_do=(LOGS, _TIME_LIMIT)) if has_timeout else problem
        more = {**more, "memory": "without a memory limit" if limit is None else "not at the memory limit"}
    if problem is log_rules.PORT_IN_USE and not log_rules.IN_USE.search(joined):
        problem = replace(problem, title=log_rules.NO_SERVER)
    if reading.is_far_up(joined, last.line):
        values["tail"] = MORE_LINES
    more = {name: shorten(text) for name, text in more.items()}
    problem = refining.refined(facts, problem, end.pod, end.container, last.line)
    problem, named = _by_script(facts, end, problem, joined)
    more = {**more, **named}
    return Finding(problem, end.pod, _proofs(end, problem, last.line), values | more, key, also)


def _by_script(facts: Facts, end: End, problem: Problem, log: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem of an exit if its script is the cause, or has killed a child itself, with the values for its title."""
    if end.code == _NOT_FOUND and (script := _SCRIPT.search(log)) is not None:
        return replace(COMMAND, title=_NO_SCRIPT, to_do=(LOGS, _INTERPRETER)), {"name": shorten(value(script["name"]))}
    if end.code in _OF_COMMANDS and (match := _CARRIAGE_RETURNS.search(end.words)) is not None:
        return log_rules.LINE_ENDINGS, {"name": shorten(value(match[0].split("\n")[0]))}
    if problem.id == log_rules.NO_MODULE.id and _NO_CONDA.search(log):
        return replace(problem, title=_WITHOUT_CONDA, to_do=(LOGS, _CONDA)), {}
    if problem.id != log_rules.CHILD_KILLED.id:
        return _by_java(problem, log)
    before = _CHILD_KILLED_LINE.split(log)[0].rstrip().split("\n")[-_NEAR:]
    said = [line for line in before if _WATCHED.search(line) and first_match(log_rules.OF_CHILD, line) is None]
    if said:
        return replace(problem, title=_KILLED_CHILD, to_do=(LOGS, _BY_WHOM)), {"name": shorten(value(said[-1]))}
    if refining.runs_timeout(facts, end.pod, end.container):
        return replace(problem, title=_KILLED_CHILD, to_do=(LOGS, _TIME_LIMIT)), {}
    return problem, {}


def _by_java(problem: Problem, log: str) -> tuple[Problem, dict[str, str]]:
    """Return the problem, with what an exception of Java says about it that the program itself does not."""
    if problem.id == log_rules.NO_ACCESS.id and (denied := _HDFS.search(log)) is not None:
        return replace(problem, to_do=(LOGS, _HDFS_USER)), {"name": shorten(value(denied["name"]))}
    if problem.id == log_rules.PROCESS_MEMORY.id and "java.lang.OutOfMemoryError" in log:
        return replace(problem, title="Out of memory in the heap of Java ({who}): {name}", to_do=(LOGS, _HEAP)), {
            "name": next((shorten(value(line)) for line in log.split("\n") if "java.lang.OutOfMemoryError" in line), "")
        }
    return problem, {}


def _proofs(end: End, problem: Problem, line: str) -> tuple[str, ...]:
    """Return the evidence of an exit, with the deciding line of its log if neither the title nor the end of the log has it."""
    begin = line[:_BEGINNING]
    if "{name}" in problem.title or "{words}" in problem.title or any(begin in proof for proof in end.proofs):
        return end.proofs
    return (*end.proofs[:1], f"log of {safe_name(end.pod)}: {shorten(value(line))}", *end.proofs[1:])


def of_exit_event(facts: Facts, event: EventDetails, ended: PodExit, *, loops: int) -> Finding:
    """Return why the pod of an event ExitedWithCode failed; it was restarted `loops` times."""
    if ended.reason in OF_POD:
        return taken(facts, ended.pod, ended.reason, words_of(event, ended), facts.line(event))
    return classified(facts, end_of_event(facts, event, ended, loops=loops))


def end_of_event(facts: Facts, event: EventDetails, ended: PodExit, *, loops: int) -> End:
    """Return the exit in an event ExitedWithCode, of a pod that is gone."""
    killed = probes(facts, ended.pod, "", CONTAINER_NAME, event.at) if ended.code in _KILLED_BY else ()
    reason, proofs = by_probe(ended.reason, killed), (facts.line(event), *map(facts.line, killed))
    words = words_of(event, ended)
    return End(ended.pod, CONTAINER_NAME, ended.code, reason, words, proofs, before=True, loops=loops)


def words_of(event: EventDetails, ended: PodExit) -> str:
    """Return what follows the exit code in an event ExitedWithCode."""
    return event.message.partition(f" {ended.code}: ")[2]
