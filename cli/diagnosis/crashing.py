"""Processes that exit with an error: memory, signals, exit codes, last log lines, and restarted replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api.text import clean, last_words
from tfjob_operator.api.v1.constants import CONTAINER_NAME, ConditionReason, ConditionType, EventReason
from tfjob_operator.api.v1.types import JobCondition
from tfjob_operator.cli.diagnosis import logs, starting
from tfjob_operator.cli.diagnosis.advice import AGAIN, DESCRIBE_JOB, DESCRIBE_NODES, DESCRIBE_POD, LOGS
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, error, info, problems_in, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.model.objects import ContainerStatusDetails, PodDetails
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
from tfjob_operator.cli.model.words import ago, failed_line, format_restarts, quote, safe_name

_ARGUMENTS: Final = ManifestChange("correct command and args in the template")
_CAUSE: Final = ManifestChange(
    "correct the cause of the exit, in the image, the command or the template", recreate=False
)
OUT_OF_MEMORY: Final = error(
    "out-of-memory",
    700,
    "OOMKilled: container {container} of {who} exceeded its memory limit {limit}",
    (ManifestChange("raise resources.limits.memory in the template, or use smaller batches"),),
    "The container was killed at its memory limit (OOMKilled)",
)
EPHEMERAL: Final = error(
    "disk-limit",
    701,
    "Evicted ({who}): limit of ephemeral storage exceeded",
    (ManifestChange("write checkpoints and caches to a volume, or raise resources.limits.ephemeral-storage"),),
    "The pod exceeded its limit of ephemeral storage",
)
EMPTY_DIR: Final = error(
    "empty-dir-limit",
    701,
    "Evicted ({who}): emptyDir {volume} exceeded its sizeLimit {limit}",
    (ManifestChange("raise sizeLimit of the emptyDir {volume} in the template, or write less to it"),),
    "An emptyDir grew over its sizeLimit",
)
EVICTED: Final = error(
    "evicted",
    702,
    "Evicted ({who}): the node was low on {resource}",
    (DESCRIBE_NODES, ManifestChange("set resources.requests to what the job uses, so that it gets a node with enough")),
    "The kubelet evicted the pod because its node was low on memory or disk",
)
POD_DEADLINE: Final = error(
    "pod-deadline",
    703,
    "DeadlineExceeded ({who}): activeDeadlineSeconds of the pod template",
    (ManifestChange("raise or remove activeDeadlineSeconds in the pod template (that of runPolicy is the job's)"),),
    "The pod's own deadline",
)
LIVENESS: Final = error(
    "liveness-probe",
    704,
    "Liveness probe failed ({who}): the kubelet restarts the container",
    (
        LOGS,
        ManifestChange("remove livenessProbe from the template, or raise its initialDelaySeconds and failureThreshold"),
    ),
    "The kubelet restarts the container because its liveness probe fails",
)
ILLEGAL: Final = error(
    "illegal-instruction",
    720,
    "Exit code 132 (SIGILL, {who}): the program uses instructions that the CPU of the node lacks",
    (ManifestChange("use an image with TensorFlow built for older CPUs, or a nodeSelector for nodes with AVX"),),
    "Exit code 132: usually TensorFlow was built for AVX",
)
SEGFAULT: Final = error(
    "segmentation-fault",
    721,
    "Exit code 139 (SIGSEGV, {who}): crash in native code",
    (LOGS, ManifestChange("use an image in which TensorFlow, CUDA and the driver of the nodes are compatible")),
    "Exit code 139",
)
ABORTED: Final = error(
    "aborted",
    722,
    "The program aborted with exit code 134 (SIGABRT, {who}){words}",
    (LOGS, _CAUSE),
    "Exit code 134: a failed check in native code",
)
COMMAND: Final = error(
    "command-not-found",
    723,
    "Exit code 127 ({who}): the shell did not find a command {where}",
    (LOGS, _ARGUMENTS),
    "Exit code 127",
)
NOT_EXECUTABLE: Final = error(
    "command-not-executable",
    724,
    "Exit code 126 ({who}): the shell may not execute a command",
    (
        LOGS,
        ManifestChange('start it with its interpreter, such as ["python", "train.py"], or chmod +x it in the image'),
    ),
    "Exit code 126",
)
USAGE: Final = error(
    "usage-error",
    725,
    "Exit code 2, usually wrong arguments ({who}){words}",
    (LOGS, _ARGUMENTS),
    "Exit code 2, with which programs reject their arguments",
)
KILLED: Final = error(
    "killed",
    726,
    "Exit code 137 (SIGKILL, {who}), not at the memory limit",
    (DESCRIBE_POD, LOGS, AGAIN),
    "Exit code 137 without OOMKilled: killed with its node, by a user, or by its parent process",
)
TERMINATED: Final = error(
    "terminated",
    727,
    "Exit code 143 (SIGTERM, {who}): asked to terminate",
    ("The events show who deleted the pod or drained its node: kubectl -n {namespace} get events", AGAIN),
    "Exit code 143 without a reason in the pod",
)
FAILED: Final = error(
    "exit-code",
    760,
    "Failed ({who}): container {container} exited with code {code}{words}",
    (LOGS, _CAUSE),
    "Any other exit code that fails the job",
)
CRASH_LOOP: Final = error(
    "crash-loop",
    761,
    "CrashLoopBackOff ({who}): container {container} exited with code {code}, {times}",
    (LOGS, ManifestChange("correct the template, or the image, according to the log")),
    "A container fails repeatedly, for a reason that only its log has",
)
INIT_FAILED: Final = error(
    "init-container-failed",
    728,
    "Init container {container} failed with exit code {code} ({who})",
    (LOGS, ManifestChange("correct the init container in the template according to the log")),
    "An init container fails, so the training never starts",
)
FOR_EVER: Final = warning(
    "restarts-for-ever",
    800,
    "Restarted {times} times ({who}), {now}",
    (
        LOGS,
        DESCRIBE_JOB,
        ManifestChange("set spec.runPolicy.backoffLimit, so that the job fails after so many restarts", recreate=False),
    ),
    "One replica was restarted five times or more, and is running again",
)
RESTARTED: Final = info(
    "was-restarted",
    960,
    "Restarted {times} ({who}), {now}",
    (LOGS, DESCRIBE_JOB),
    "A replica was restarted a few times",
)
AFTER_SUCCESS: Final = warning(
    "restarted-after-success",
    799,
    "Restarted after exit code 0 ({who}, {times}): its restartPolicy is Always",
    (ManifestChange("set restartPolicy of the replica to OnFailure, so that exit code 0 means success"),),
    "A container exits with code 0, and its restart policy starts it again",
)
PROBLEMS: Final = problems_in(globals())

_BY_CODE: Final = {
    126: NOT_EXECUTABLE,
    127: COMMAND,
    132: ILLEGAL,
    134: ABORTED,
    139: SEGFAULT,
    137: KILLED,
    143: TERMINATED,
    2: USAGE,
}
# kubernetes: pkg/kubelet/eviction/helpers.go
_EVICTIONS: Final = (
    rule(EPHEMERAL, r"exceeded its local ephemeral storage limit|local storage usage exceeds"),
    rule(EMPTY_DIR, r'Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"'),
    rule(EVICTED, r"low on resource: (?P<resource>[^\s.]+)"),
)
_KILLED: Final = frozenset({137, 143})
"""Exit codes of signals from outside: the log does not contain the reason."""
_LAST_WORDS: Final = 150
"""The most bytes of a log quoted in a title."""
# This operator's condition of a failed job: controller/tfjob/plan/ending.py.
_FAILED_CONTAINER: Final = re.compile(
    r"[Pp]od (?P<pod>[a-z0-9][-a-z0-9.]*)(:| was restarted most)(?P<before>.{0,300}?)"
    r"container (?P<container>\S{1,63}) exited with code (?P<code>\d{1,9})"
    r"(?: \((?P<reason>[^)]{1,100})\))?(?:: (?P<words>.*))?",
    re.DOTALL,
)


_AGAIN: Final = 2
_STEADY_S: Final = 600.0
"""After two restarts for lack of memory another is likely until a pod has run this long."""
_OFTEN: Final = 5
"""This many restarts are not accidental: by then the kubelet's back-off has reached five minutes."""


@dataclass(frozen=True, slots=True)
class _End:
    """How a container terminated, from its pod or the job's condition.

    `before` is True if the container was restarted later.
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
    limit: str = ""
    where: str = IN_IMAGE


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why processes of the job terminated, and replicas that were restarted and are running again."""
    failed = facts.condition(ConditionType.FAILED)
    if failed is not None:
        if failed.reason in {ConditionReason.FAILED, ConditionReason.LIMIT, ConditionReason.BY_RULE}:
            yield from _of_failed_job(facts, failed)
        return
    if facts.finished:
        return
    for pod in facts.pods:
        yield from _of_pod(facts, pod)
    yield from _restarted(facts)


def _of_failed_job(facts: Facts, failed: JobCondition) -> Iterator[Finding]:
    """Yield why the replica named in the Failed condition failed; others may have failed later as a consequence."""
    found, message = False, failed.message
    failure = _FAILED_CONTAINER.search(message)
    for pod in facts.pods:
        if failure is None or pod.metadata.name == failure["pod"]:
            for each in _of_pod(facts, pod):
                found = True
                yield each
            if found:
                return
    if failure is not None:
        words = (failure["words"] or "").replace(" / ", "\n")  # api.text.last_words joins lines with it
        proof = failed_line(failed)
        end = _End(
            failure["pod"], value(failure["container"]), int(failure["code"]), failure["reason"] or "", words, (proof,)
        )
        evicted = first_match(_EVICTIONS, message) if "Evicted" in failure["before"] else None
        yield (
            Finding(evicted[0], failure["pod"], (proof,), evicted[1] | {"pod": failure["pod"]})
            if evicted
            else _classified(facts, end)
        )


def _of_pod(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    status, name = pod.status, pod.metadata.name
    if status.phase == "Failed" and status.reason in {"Evicted", "DeadlineExceeded"}:
        seen = f"pod {safe_name(name)}: {safe_name(status.reason)}: {quote(status.message)}"
        problem, values = first_match(_EVICTIONS, status.message) or (EVICTED, {"resource": "resources"})
        yield Finding(
            POD_DEADLINE if status.reason == "DeadlineExceeded" else problem, name, (seen,), values | {"pod": name}
        )
        return
    ends = [each for each in exits_of(pod) if is_down_after(each, facts.now)]
    for each in ends[:1]:
        if each.ended.reason == "ContainerStatusUnknown" or (each.ended.reason == "StartError" and not _over(each)):
            continue
        yield _classified(facts, _end_of(facts, each))


def _over(each: Exit) -> bool:
    """Return True if the container will not be restarted; restarts are reported by `starting`."""
    return each.pod.status.phase == "Failed"


def _end_of(facts: Facts, each: Exit) -> _End:
    """Return an exit with all information about it: the termination message, the log, and events about probes."""
    pod, ended, name = each.pod, each.ended, each.pod.metadata.name
    log, when = facts.log(name, each.container), ago(facts.now, ended.finished_at)
    reason = f" ({safe_name(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    how = f"exited with code {ended.exit_code}{reason}{when and ', '}{when}"
    words = f": {quote(ended.message)}" if ended.message else ""
    proofs = [f"pod {safe_name(name)}: container {safe_name(each.container)} {how}{words}"]
    if log:
        proofs.append(f"log of {safe_name(name)}: {quote(log)}")
    probe = latest([event for event in facts.pod_events(pod, "Killing") if "liveness" in event.message])
    skipped = latest(facts.pod_events(pod, "InvalidEnvironmentVariableNames"))
    proofs += [facts.line(event) for event in (*probe, *skipped)]
    return _End(
        name,
        each.container,
        ended.exit_code,
        "Liveness" if probe and ended.reason in {"", "Error"} else ended.reason,
        f"{ended.message}\n{log}",
        tuple(proofs),
        init=each.container in {one.name for one in pod.status.init_container_statuses or ()},
        before=not each.now,
        loops=0 if pod.status.phase == "Failed" else each.restarts,
        limit=memory_limit(pod, each.container),
        where=lookup_location(pod, each.container),
    )


def memory_limit(pod: PodDetails, name: str) -> str:
    """Return the memory limit of a container for a title: `of 64Mi`; "" if it has none."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    resources = next((one.resources for one in containers if one.name == name), None)
    memory = ((resources.limits if resources is not None else None) or {}).get("memory")
    return "" if memory is None else f"of {value(str(memory))}"


def _classified(facts: Facts, end: _End) -> Finding:
    """Return the problem behind an exit: by the runtime's reason, else by messages and log, else by the exit code."""
    values = {
        "pod": end.pod,
        "container": value(end.container),
        "code": str(end.code),
        "times": format_restarts(end.loops),
        "previous": str(end.before).lower(),
        "limit": end.limit or " ",
        "where": end.where,
    }
    last = logs.read(end.words) if end.code not in _KILLED else logs.LastWords()
    words = shorten(last.line, _LAST_WORDS) or last_words(end.words, _LAST_WORDS)
    words = words or clean(end.words[-_LAST_WORDS:], _LAST_WORDS)
    more: Mapping[str, str] = {"words": f": {words}" if words.strip() else " "}
    if end.reason == "OOMKilled":
        problem = OUT_OF_MEMORY
    elif end.reason == "Liveness":
        problem = LIVENESS
    elif end.reason in {"StartError", "ContainerCannotRun"}:
        problem, more = first_match(starting.RULES, end.words) or (starting.CANNOT_START, {"words": end.reason})
    elif last.problem is not None:
        problem, more = last.problem, {"name": last.line} | dict(last.values)
    elif end.init:
        problem = INIT_FAILED
    elif end.code in _BY_CODE:
        problem = _BY_CODE[end.code]
    else:
        problem = CRASH_LOOP if end.loops else FAILED
    more = {name: shorten(text) for name, text in more.items()}
    key = str(end.code) if problem is FAILED else value(last.values.get("name", ""))
    return Finding(problem, end.pod, end.proofs, values | more, key)


def _restarted(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that were restarted and are running again."""
    carried = {
        facts.shape.child(facts.name, record.type, record.index): record.total for record in facts.job.status.restarts
    }
    for pod in facts.live_pods:
        name = pod.metadata.name
        replica = facts.shape.replica_of(pod)
        in_place = max((each.restart_count for each in statuses(pod)), default=0)
        times = max(carried.get(replica, 0), facts.earlier[replica] + in_place)
        well = next((each for each in statuses(pod) if each.name == CONTAINER_NAME and _ended_well(each)), None)
        if well is not None and pod.spec.restart_policy in {"", "Always"}:  # "" is the default
            restarts = format_restarts(well.restart_count)
            seen = f"pod {safe_name(name)}: container {safe_name(well.name)} exited with code 0, {restarts}"
            often = "once" if well.restart_count == 1 else f"{well.restart_count} times"
            yield Finding(AFTER_SUCCESS, name, (seen,), {"times": often, "pod": name})
            continue
        if times == 0 or any(is_down_after(each, facts.now) for each in exits_of(pod)):
            continue
        now = "running now" if is_up(pod) else "not running now"
        proofs = [f"pod {safe_name(name)}: {format_restarts(times)}"]
        values = {"times": str(times), "now": now, "pod": name, "container": CONTAINER_NAME, "previous": "false"}
        for each in list(exits_of(pod))[:1]:
            reason = f" ({safe_name(each.ended.reason)})" if each.ended.reason not in {"", "Error"} else ""
            values |= {"container": value(each.container), "previous": "true"}
            how = f"exited with code {each.ended.exit_code}{reason} before the restart"
            proofs.append(f"pod {safe_name(name)}: container {safe_name(each.container)} {how}")
        events = [one for one in facts.job_events(EventReason.EXITED_WITH_CODE) if f".{name} " in one.message]
        proofs += [facts.line(event) for event in latest(events)]
        if times >= _AGAIN and events and events[-1].message.endswith("OOMKilled") and _is_young(facts, pod):
            values |= {"container": CONTAINER_NAME, "limit": memory_limit(pod, CONTAINER_NAME) or " "}
            yield Finding(OUT_OF_MEMORY, name, tuple(proofs), values, also=(FOR_EVER,))
            continue
        killed = [one for one in facts.pod_events(pod, "Killing") if "liveness" in one.message]
        if in_place and killed and _is_young(facts, pod):
            proofs += map(facts.line, killed[-1:])
            yield Finding(LIVENESS, name, tuple(proofs), values, also=(FOR_EVER,))
            continue
        problem = FOR_EVER if times >= _OFTEN else RESTARTED
        if problem is RESTARTED:
            values["times"] = "once" if times == 1 else f"{times} times"
        yield Finding(problem, name, tuple(proofs), values)


def _is_young(facts: Facts, pod: PodDetails) -> bool:
    """Return True if the training has not been running long enough to regard its last exit as resolved."""
    age_s = facts.age_s(running_since(pod))
    return age_s is None or age_s < _STEADY_S


def _ended_well(status: ContainerStatusDetails) -> bool:
    """Return True if a container that was restarted had exited with 0."""
    ended = status.last_state.terminated if status.last_state is not None else None
    return status.restart_count > 0 and ended is not None and ended.exit_code == 0
