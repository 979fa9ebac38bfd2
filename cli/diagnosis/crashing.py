"""Processes that end with an error: memory, signals, exit codes, and what their last log lines say. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason, limit_of
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.logs import RULES as LOG_RULES
from tfjob_operator.cli.diagnosis.pods import exits_of, keeps_down
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.starting import CANNOT_START
from tfjob_operator.cli.diagnosis.starting import RULES as START_RULES
from tfjob_operator.cli.diagnosis.words import ago, named, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts
    from tfjob_operator.cli.diagnosis.objects import Pod
    from tfjob_operator.cli.diagnosis.pods import Exit


def _crash(id_: str, rank: int, title: str, to_do: tuple[str, ...], meaning: str) -> Trouble:
    return Trouble(id_, rank, Severity.ERROR, title, to_do, meaning)


_LOGS: Final = "kubectl -n {namespace} logs {pod} --container={container} --tail=50"
_PREVIOUS: Final = "kubectl -n {namespace} logs {pod} --container={container} --previous --tail=50"
_BOTH: Final = "kubectl -n {namespace} logs {pod} --container={container} --tail=50   # --previous after a restart"
OUT_OF_MEMORY: Final = _crash(
    "out-of-memory",
    700,
    "{who} ran out of memory: its container {container} used more than its limit {limit}",
    (
        "Raise resources.limits.memory in the template, or use smaller batches",
        "kubectl -n {namespace} top pod {pod} --containers",
    ),
    "The container was killed at its memory limit (OOMKilled)",
)
EPHEMERAL: Final = _crash(
    "disk-limit",
    701,
    "{who} was evicted: it wrote more to its node's disk than it may",
    ("Write checkpoints and caches to a volume, or raise resources.limits.ephemeral-storage",),
    "The pod exceeded its limit of ephemeral storage, or that of an emptyDir",
)
EVICTED: Final = _crash(
    "evicted",
    702,
    "{who} was evicted: its node ran short of {resource}",
    (
        "Request in the template what the job uses, so that it gets a node with room",
        "kubectl describe nodes   # Conditions",
    ),
    "The kubelet evicted the pod, since its node was low on memory or disk",
)
POD_DEADLINE: Final = _crash(
    "pod-deadline",
    703,
    "{who} took longer than activeDeadlineSeconds of its own template",
    ("Raise or remove activeDeadlineSeconds in the pod template; runPolicy.activeDeadlineSeconds is the job's",),
    "The pod's own deadline",
)
LIVENESS: Final = _crash(
    "liveness-probe",
    704,
    "{who} is killed by its liveness probe",
    ("Remove the livenessProbe from the template, or give it more time: a training is silent for long", _PREVIOUS),
    "The kubelet restarts the container, since its liveness probe fails",
)
ILLEGAL: Final = _crash(
    "illegal-instruction",
    720,
    "{who}: its program uses instructions that the node's processor does not have (SIGILL)",
    ("Use a build of TensorFlow for older processors, or nodes with AVX",),
    "Exit code 132: TensorFlow was built for AVX, mostly",
)
SEGFAULT: Final = _crash(
    "segmentation-fault",
    721,
    "{who} crashed in native code (SIGSEGV, exit code 139)",
    (_BOTH, "Do the versions of TensorFlow, CUDA and driver fit each other?"),
    "Exit code 139",
)
ABORTED: Final = _crash(
    "aborted",
    722,
    "{who} aborted itself (SIGABRT, exit code 134)",
    (_BOTH,),
    "Exit code 134: a failed check in native code",
)
COMMAND: Final = _crash(
    "command-not-found",
    723,
    "{who}: its shell finds no such command (exit code 127)",
    ("Is the program in the image, and on its PATH?", _BOTH),
    "Exit code 127",
)
NOT_EXECUTABLE: Final = _crash(
    "command-not-executable",
    724,
    "{who}: its shell may not execute the command (exit code 126)",
    ("chmod +x it in the image, or start it by its interpreter", _BOTH),
    "Exit code 126",
)
USAGE: Final = _crash(
    "usage-error",
    725,
    "{who} does not understand its arguments (exit code 2)",
    ("Compare args in the template with what the program takes", _BOTH),
    "Exit code 2, with which programs refuse their arguments",
)
KILLED: Final = _crash(
    "killed",
    726,
    "{who} was killed (SIGKILL, exit code 137), and not at its memory limit",
    (
        "Was it killed with its node, by a person, or by its own parent? kubectl -n {namespace} describe pod {pod}",
        _BOTH,
    ),
    "Exit code 137 without OOMKilled",
)
TERMINATED: Final = _crash(
    "terminated",
    727,
    "{who} was asked to end (SIGTERM, exit code 143)",
    ("Who deleted it, or drained its node? kubectl -n {namespace} get events --sort-by=.lastTimestamp",),
    "Exit code 143 without a reason in the pod",
)
BACKOFF_LIMIT: Final = _crash(
    "backoff-limit",
    745,
    "The job failed: its replicas were restarted more often than backoffLimit allows",
    (
        "Look why they failed, then create the job again, with a larger runPolicy.backoffLimit perhaps",
        "kubectl -n {namespace} describe tfjob {job}",
    ),
    "The job reached runPolicy.backoffLimit",
)
FAILED: Final = _crash(
    "exit-code",
    760,
    "{who} failed: its container {container} exited with code {code}{words}",
    (_BOTH,),
    "Any other exit code, which the job does not survive",
)
CRASH_LOOP: Final = _crash(
    "crash-loop",
    761,
    "{who} fails again and again: its container {container} exited with code {code}, {times} restarts",
    (_PREVIOUS,),
    "CrashLoopBackOff, for a reason that only the log knows",
)
INIT_FAILED: Final = _crash(
    "init-container-failed",
    728,
    "{who}: its init container {container} failed with code {code}",
    (_LOGS,),
    "An init container fails, so the training never starts",
)
TROUBLES: Final = (
    OUT_OF_MEMORY,
    EPHEMERAL,
    EVICTED,
    POD_DEADLINE,
    LIVENESS,
    ILLEGAL,
    SEGFAULT,
    ABORTED,
    COMMAND,
    NOT_EXECUTABLE,
    USAGE,
    KILLED,
    TERMINATED,
    BACKOFF_LIMIT,
    FAILED,
    CRASH_LOOP,
    INIT_FAILED,
)

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
    rule(EPHEMERAL, r"exceeded its local ephemeral storage limit|local storage usage exceeds|Usage of EmptyDir volume"),
    rule(EVICTED, r"low on resource: (?P<resource>[^\s.]+)"),
)
# Our own: controller/tfjob/plan/ending.py, in the condition of a job that has failed.
_TOLD: Final = re.compile(
    r"[Pp]od (?P<pod>[a-z0-9][-a-z0-9.]*)(:| was restarted most)(?P<before>.{0,300}?)"
    r"container (?P<container>\S{1,63}) exited with code (?P<code>\d{1,9})"
    r"(?: \((?P<reason>[^)]{1,100})\))?(?:: (?P<words>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _End:
    """How a container ended, as a pod or the job's condition says."""

    pod: str
    container: str
    code: int
    reason: str
    words: str
    proofs: tuple[str, ...]
    init: bool = False
    loops: int = 0
    limit: str = ""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why processes of the job ended."""
    failed = facts.condition(ConditionType.FAILED)
    told = _TOLD.search(failed.message) if failed is not None else None
    if failed is not None:
        limit = limit_of(failed.reason, failed.message)
        if limit is EventReason.BACKOFF_LIMIT_EXCEEDED:
            yield Finding(
                BACKOFF_LIMIT, facts.name, (f"job: condition Failed, {named(failed.reason)}: {said(failed.message)}",)
            )
        if failed.reason == ConditionReason.FAILED or limit is not None:
            yield from _of_failed_job(facts, told, failed.message)
        return
    if facts.finished:
        return
    for pod in facts.pods:
        yield from _of_pod(facts, pod)


def _of_failed_job(facts: Facts, told: re.Match[str] | None, message: str) -> Iterator[Finding]:
    """Yield why the replica that the condition names failed; others may have failed later because of it."""
    found = False
    for pod in facts.pods:
        if told is None or pod.metadata.name == told["pod"]:
            for each in _of_pod(facts, pod):
                found = True
                yield each
            if found:
                return
    if told is not None:
        words = told["words"] or ""
        proof = f"job: condition Failed: {said(message)}"
        end = _End(told["pod"], value(told["container"]), int(told["code"]), told["reason"] or "", words, (proof,))
        evicted = first_match(_EVICTIONS, message) if "Evicted" in told["before"] else None
        yield (
            Finding(evicted[0], told["pod"], (proof,), evicted[1] | {"pod": told["pod"]})
            if evicted
            else _classified(facts, end)
        )


def _of_pod(facts: Facts, pod: Pod) -> Iterator[Finding]:
    status, name = pod.status, pod.metadata.name
    if status.phase == "Failed" and status.reason in {"Evicted", "DeadlineExceeded"}:
        seen = f"pod {named(name)}: {named(status.reason)}: {said(status.message)}"
        trouble, values = first_match(_EVICTIONS, status.message) or (EVICTED, {"resource": "resources"})
        yield Finding(
            POD_DEADLINE if status.reason == "DeadlineExceeded" else trouble, name, (seen,), values | {"pod": name}
        )
        return
    ends = [each for each in exits_of(pod) if keeps_down(each, facts.now)]
    for each in ends[:1]:
        if each.ended.reason == "ContainerStatusUnknown" or (each.ended.reason == "StartError" and not _over(each)):
            continue
        yield _classified(facts, _end_of(facts, each))


def _over(each: Exit) -> bool:
    """Return whether the container will not be started again; if it will be, `starting` reports it."""
    return each.pod.status.phase == "Failed"


def _end_of(facts: Facts, each: Exit) -> _End:
    """Return an exit with all that was said about it: the termination message, the log, and an event of a probe."""
    pod, ended, name = each.pod, each.ended, each.pod.metadata.name
    log, when = facts.log(name, each.container), ago(facts.now, ended.finished_at)
    reason = f" ({named(ended.reason)})" if ended.reason not in {"", "Error"} else ""
    how = f"exited with code {ended.exit_code}{reason}{when and ', '}{when}"
    words = f": {said(ended.message)}" if ended.message else ""
    proofs = [f"pod {named(name)}: container {named(each.container)} {how}{words}"]
    if log:
        proofs.append(f"log of {named(name)}: {said(log)}")
    probe = latest(
        [event for event in facts.pod_events(pod) if event.reason == "Killing" and "liveness" in event.message]
    )
    proofs += [facts.line(event) for event in probe]
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    resources = next((one.resources for one in containers if one.name == each.container), None)
    memory = ((resources.limits if resources is not None else None) or {}).get("memory")
    return _End(
        name,
        each.container,
        ended.exit_code,
        "Liveness" if probe and ended.reason in {"", "Error"} else ended.reason,
        f"{ended.message}\n{log}",
        tuple(proofs),
        init=each.container in {one.name for one in pod.status.init_container_statuses or ()},
        loops=0 if pod.status.phase == "Failed" else each.restarts,
        limit="" if memory is None else f"of {value(str(memory))}",
    )


def _classified(facts: Facts, end: _End) -> Finding:
    """Return the trouble behind an exit: the runtime's reason decides first, then messages and log, then the code alone."""
    values = {
        "pod": end.pod,
        "container": value(end.container),
        "code": str(end.code),
        "times": str(end.loops),
        "limit": end.limit or " ",
    }
    told = first_match(LOG_RULES, end.words[-8000:]) if end.words.strip() else None
    more: dict[str, str] = {}
    if end.reason == "OOMKilled":
        trouble = OUT_OF_MEMORY
    elif end.reason == "Liveness":
        trouble = LIVENESS
    elif end.reason in {"StartError", "ContainerCannotRun"}:
        trouble, more = first_match(START_RULES, end.words) or (CANNOT_START, {"words": end.reason})
    elif told is not None:
        trouble, more = told
    elif end.init:
        trouble = INIT_FAILED
    elif end.code in _BY_CODE:
        trouble = _BY_CODE[end.code]
    else:
        trouble = CRASH_LOOP if end.loops else FAILED
        last = said(end.words)
        more = {"words": f": {last[-160:]}" if last else " "}
    more = {name: text[:160] for name, text in more.items()}
    return Finding(trouble, end.pod, end.proofs, values | more, "" if trouble is not FAILED else str(end.code))
