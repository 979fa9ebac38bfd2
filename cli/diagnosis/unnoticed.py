"""Failures of which a job takes no notice: it goes on, or succeeds. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tfjob_operator.api.v1.constants import (
    CHIEF,
    CONTAINER_NAME,
    EVALUATOR,
    MASTER,
    PS,
    WORKER,
    ConditionType,
    EventReason,
    SuccessPolicy,
    exit_of,
)
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.tf_config import process_count
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.cli.diagnosis import exits, log_symptoms, reading, refining, starting
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_POD, LINES, LOGS, MORE_LINES, RESTART
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, WhileRunning, info, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import of_job, of_pod
from tfjob_operator.cli.diagnosis.rules import shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.pods import exits_of, running_inits, running_since
from tfjob_operator.cli.model.replica_names import replica_of
from tfjob_operator.cli.model.words import format_restarts, quote, safe_name, seconds_between

AFTER_EXCEPTION: Final = warning(
    "succeeded-with-exception",
    "Succeeded with exit code 0, but {what} ({who}): {words}",
    "Near the end, the log of the replica that ended the job has a traceback of Python, an error by which a program says that "
    "the training failed, or a message that a program did not start, crashed, or rejected its arguments",
    LOGS,
    "A shell exits with the code of its last command. After set -e, or if && joins the commands, it exits with that of the "
    "first command that fails; after set -o pipefail (bash), also if the output of that command goes through a pipe, such as "
    "python train.py | tee log. Neither is about a command in the background: wait PID exits with its code",
    "A program that logs an exception, and does not raise it again, must exit with another code than 0 itself",
)
_EXIT: Final = (
    "let the script exit with the code of the program that failed: after set -e, or with wait PID for one in the background; "
    "an exception in a thread does not end a program of Python, which must exit itself"
)
GOES_ON: Final = warning(
    "running-after-exception",
    "Running, but {what} ({who}, {since}): {words}",
    "A container runs on, and the last lines of its log say that a program of it failed, or that a thread did",
    LOGS,
    "Look into the container, such as for its processes: kubectl tfjob exec {job} --replica={replica} -n {namespace}",
    ManifestChange(_EXIT),
)
_OF_PROCESSES: Final = (
    *GOES_ON.to_do[:-1],
    ManifestChange(
        f"{_EXIT}; a process of JAX waits for the others at its exit, so let it call os._exit(1) after an exception",
        recreate=False,
    ),
    WhileRunning(
        f"Then restart all replicas, which wait for this one; work since their last checkpoint is lost: {RESTART}"
    ),
)
"""The advice if the replicas are processes of one group."""
_OF_RENDEZVOUS: Final = (
    LOGS,
    "A replica that the others wait for has the cause, if it has an error: kubectl tfjob logs {job} -n {namespace}",
    WhileRunning(f"If they do not continue, restart all replicas; work since their last checkpoint is lost: {RESTART}"),
)
AFTER_NO_DATA: Final = warning(
    "succeeded-without-data",
    "Succeeded with exit code 0, but nothing was trained ({who}): {words}",
    "The log says that there are no data, or that a checkpoint has the last step already, and has no line of a training",
    LOGS,
    ManifestChange(
        "correct the path or the pattern of the data, or of the checkpoints, and let the program exit with an error if it "
        "trains nothing"
    ),
)
_FOREGROUND: Final = ManifestChange(
    "start the program of the script in the foreground, without & and nohup, or end the script with wait"
)
AFTER_OOM: Final = warning(
    "succeeded-after-out-of-memory",
    "Succeeded with exit code 0, but a process was killed at the memory limit {limit} (OOMKilled, {who})",
    "The kernel killed a process of a container at its memory limit, and the container exited with 0 nevertheless",
    LOGS,
    ManifestChange("raise resources.limits.memory in the template, or use smaller batches"),
    "Let the script exit with the code of the program that was killed, such as after set -e",
)
REPEATS: Final = warning(
    "running-with-repeated-error",
    "Running, but its log only repeats an error ({who}, {times} of the last lines): {words}",
    "A container that has run for a minute has written the same error again and again, and no line of a training for much "
    "longer than before",
    LOGS,
    ManifestChange("correct in the template what the message names, such as an address, an argument or a permission"),
    rank=909,
)
_OF_TASK: Final = (
    LOGS,
    "See the replica that the message names, and NetworkPolicies of the namespace: kubectl tfjob logs {job} -n {namespace}",
    WhileRunning(f"If it does not continue, restart all replicas; work since their last checkpoint is lost: {RESTART}"),
)
_REPEATS_IN_INIT: Final = "Init container {container} only repeats an error ({who}, {times} of the last lines): {words}"
_OF_INIT: Final = (
    LOGS,
    ManifestChange("correct the init container in the template according to the log, or what it waits for"),
)
_SINCE_PROGRESS: Final = (
    "Running, but since its last line of progress its log only repeats an error ({who}, {times} lines): {words}"
)
_OF_RANKS: Final = (
    LOGS,
    "The replicas of the missing ranks have the cause: kubectl tfjob logs {job} -n {namespace}",
    WhileRunning(f"If they do not continue, restart all replicas; work since their last checkpoint is lost: {RESTART}"),
)
DIVERGED: Final = warning(
    "loss-diverged",
    "The loss is not a number ({who}): {words}",
    "The last losses in the log of a replica are nan or infinite, and the program has not ended for that",
    LOGS,
    ManifestChange("lower the learning rate, or check the data, and let the program end if the loss is nan"),
)
ON_CPU: Final = warning(
    "accelerator-unused",
    "The program found no accelerator, although its container requests one ({who}): {words}",
    "TensorFlow, JAX or CUDA logs that it found no device, in a container that requests one",
    LOGS,
    DESCRIBE_POD,
    ManifestChange("use an image whose CUDA fits the driver of the nodes"),
)
WITHOUT_OTHERS: Final = info(
    "succeeded-without-others",
    "Succeeded with worker 0, while {count} had not {failed}",
    "Worker 0 exited with code 0 and ended the job, and other workers had not succeeded by then",
    "With successPolicy: AllWorkers in spec, a job succeeds when all of its workers have",
    rank=971,
)
BESIDE_FAILURE: Final = warning(
    "succeeded-beside-failure",
    "Succeeded, while {who} was failing: {words}",
    "An Evaluator, or a worker beside a Chief or Master, had failed and was not running when the job succeeded",
    "The end of a job does not depend on these replicas: look for what they should have written, such as metrics",
    "Under spec.runPolicy.cleanPodPolicy: None their pods and logs are kept when the job has finished",
    rank=972,
)
_OF_KUBELET: Final = frozenset({"OOMKilled", *exits.OF_POD})
"""Reasons that say more than the exit code; others may be words of the program, such as an exception."""
_TRIED_S: Final = 60.0
"""A program that waits for something at its start may repeat an error for a while."""
_QUIET_S: Final = 30.0
"""A training that has written nothing for this long after an exception has probably not handled it."""
_DELAY_S: Final = 360.0
"""The kubelet's longest delay of a restart, and a minute."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield failures after which the job has succeeded, or after which a container goes on."""
    if facts.condition(ConditionType.SUCCEEDED) is not None:
        yield from _succeeded(facts)
        yield from _others(facts)
    for pod in facts.live_pods:
        yield from _running(facts, pod)
        yield from _initializing(facts, pod)


def _succeeded(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that exited with 0, and whose log says that a program failed."""
    for pod in facts.pods:
        name = pod.metadata.name
        training = next(
            (status for status in pod.status.container_statuses or () if status.name == CONTAINER_NAME), None
        )
        ended = training.state.terminated if training is not None and training.state is not None else None
        log = facts.log(name, CONTAINER_NAME)
        if ended is None or ended.exit_code != 0:
            continue
        values = {"container": CONTAINER_NAME, "previous": "false"}
        seen = f"log of {safe_name(name)}: {quote(log)}"
        yield from _trained(facts, pod, log, seen, values, is_over=True)
        if ended.reason == "OOMKilled":
            limit = exits.memory_limit(pod, CONTAINER_NAME)
            yield of_pod(AFTER_OOM, pod, "container tensorflow: exit code 0 (OOMKilled)", limit=limit or " ", **values)
            continue
        what, line = "the log ends with an exception", reading.last_exception(log)
        if not line:
            what, line = _ignored(facts, pod, log)
        if not line and (nothing := reading.without_data(log)):
            yield of_pod(AFTER_NO_DATA, pod, words=shorten(value(nothing)), **values).seen_in(seen)
        if not line and (command := refining.left_behind(facts, name, CONTAINER_NAME)):
            words = f"the script ends without waiting for {shorten(value(command))}, which ends with it"
            yield of_pod(replace(AFTER_NO_DATA, to_do=(_FOREGROUND,)), pod, words=words, **values).seen_in(seen)
        if line:
            values["tail"] = MORE_LINES if reading.is_far_up(log, line) else LINES
            yield of_pod(AFTER_EXCEPTION, pod, what=what, words=shorten(value(line)), **values).seen_in(seen)


def _trained(
    facts: Facts, pod: PodDetails, log: str, seen: str, values: Mapping[str, str], *, is_over: bool
) -> Iterator[Finding]:
    """Yield what a log says about a training that does no good."""
    if line := log_symptoms.diverged(log, is_over=is_over):
        yield of_pod(DIVERGED, pod, words=shorten(value(line)), **values).seen_in(seen)
    has_device = refining.requests_accelerator(refining.pod_spec_of(facts, pod.metadata.name))
    if has_device and (line := log_symptoms.unused_accelerator(log)):
        yield of_pod(ON_CPU, pod, words=shorten(value(line)), **values).seen_in(seen)


def _running(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    """Yield a replica that runs on, and whose log ends with a failure."""
    name, last = pod.metadata.name, facts.evidence.last_lines.get(pod.metadata.name)
    if last is None:
        return
    age_s, values = facts.age_s(last.at), {"container": CONTAINER_NAME, "previous": "false"}
    seen = f"log of {safe_name(name)}: {quote(last.log)}"
    yield from _trained(facts, pod, f"{last.head}\n{last.log}", seen, values, is_over=False)
    times, line = log_symptoms.missing_ranks(last.log)
    if line:
        others = refining.finished_before(facts)
        problem = replace(REPEATS, to_do=(others, LOGS) if others else _OF_RANKS)
    else:
        times, line, is_all = log_symptoms.repeated_error(last.log, last.times)
        problem = REPEATS if is_all else replace(REPEATS, title=_SINCE_PROGRESS)
        if "/job:" in line:  # a parameter server that has ended is only recreated with the whole job: see lifecycle.py
            is_done = bool(facts.job.status.finished_indices.get(PS))
            problem = replace(problem, to_do=_OF_TASK[:-1] if is_done else _OF_TASK)
    if line and (facts.age_s(running_since(pod)) or 0.0) >= _TRIED_S:
        yield of_pod(problem, pod, times=str(times), words=shorten(value(line)), **values).seen_in(seen)
    else:
        by_shell = not refining.runs_python(facts, name, CONTAINER_NAME)
        log = log_symptoms.without_heartbeat(last.log) if by_shell else last.log
        if age_s is None or (age_s < _QUIET_S and log == last.log):
            return
        what, line = "its log ends with an exception", reading.last_exception(log, logged=False)
        if not line:
            what, line = _ignored(facts, pod, log)
        is_stuck = not line and bool(log_symptoms.stuck(log))
        if is_stuck:
            what, line = "it may be stuck", log_symptoms.stuck(log)
        if line:
            since = f"{duration(age_s)} ago" if log == last.log else "and then the same line again and again"
            more = {"what": what, "words": shorten(value(line)), "since": since}
            replica = replica_of(pod.metadata.labels, facts.name, name)
            more["replica"] = f"{replica.type.lower()}-{replica.number}"
            is_process = isinstance(facts.spec, TFJobSpec) and process_count(facts.spec) and replica.type != EVALUATOR
            problem = replace(GOES_ON, to_do=_OF_PROCESSES) if is_process else GOES_ON
            problem = replace(GOES_ON, to_do=_OF_RENDEZVOUS) if is_stuck else problem
            yield of_pod(problem, pod, **more, **values).seen_in(seen)


def _initializing(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    """Yield the init container for which a pod waits, and the error if its log only repeats one."""
    name = pod.metadata.name
    for container, started_at in list(running_inits(pod).items())[:1] if facts.is_starting(pod) else ():
        run_s, log = facts.age_s(started_at) or 0.0, facts.log(name, container).rstrip()
        times, line, _ = log_symptoms.repeated_error(log) if run_s >= _TRIED_S else (0, "", True)
        problem = starting.INIT_RUNS if run_s >= starting.LONG_S else starting.INIT_STARTED
        if line:
            problem = replace(starting.INIT_RUNS, title=_REPEATS_IN_INIT, to_do=_OF_INIT)
        since = f" since {started_at:%H:%M:%S} UTC" if started_at is not None else ""
        seen = [f"log of {safe_name(name)}: {quote(last)}"] if (last := log.rpartition("\n")[2]) else []
        values = {"container": container, "age": duration(run_s), "previous": "false"}
        values |= {"times": str(times), "words": shorten(value(line))}
        made = of_pod(problem, pod, f"init container {safe_name(container)} running{since}", key=container, **values)
        yield replace(made, proofs=(*made.proofs, *seen))


def _ignored(facts: Facts, pod: PodDetails, log: str) -> tuple[str, str]:
    """Return how a program of a container failed whose exit code was ignored, and the line that says so; "" for none."""
    return log_symptoms.ignored_failure(log, refining.launch_of(facts, pod.metadata.name, CONTAINER_NAME))


def _others(facts: Facts) -> Iterator[Finding]:
    """Yield the workers beside worker 0, and the replicas beside a Chief or Master, that had not succeeded."""
    spec, done = facts.spec, facts.job.status.finished_indices
    if not isinstance(spec, TFJobSpec):
        return
    has_chief = bool({CHIEF, MASTER} & spec.sizes.keys())
    for kind in (EVALUATOR, *([WORKER] if has_chief else [])):
        for name, words, proof in _failing(facts, kind, parse_indices(done.get(kind, ""), spec.sizes.get(kind, 0))):
            if _was_down(facts, kind, name):
                yield Finding(BESIDE_FAILURE, name, (proof,), {"words": words})
    finished, size = done.get(WORKER, ""), spec.sizes.get(WORKER, 0)
    ended = {pod.metadata.name for pod in facts.pods if pod.status.phase == "Succeeded"}
    also = {index for index in range(size) if facts.shape.child(facts.name, WORKER, index) in ended}
    count = len(also.union(parse_indices(finished, size)))  # the counters also have workers that were still active
    left = size - count
    if finished and left > 0 and spec.success_policy is SuccessPolicy.DEFAULT and not has_chief:
        failing = list(_failing(facts, WORKER, parse_indices(finished, size)))
        failed = next((f"({safe_name(name)}: {words})" for name, words, _ in failing), " ")
        of = f"{left} other worker{'s' if left > 1 else ''}"
        finding = of_job(facts, WITHOUT_OTHERS, f"{count} of {size} workers", count=of, failed=failed)
        yield finding.seen_in(*(proof for _, _, proof in failing))


def _was_down(facts: Facts, kind: str, name: str) -> bool:
    """Return True if a replica was not running at the success: it had failed, or the kubelet delayed its next restart.

    One that was restarted before may have been training until then.
    """
    at = facts.job.status.completion_time
    if any(
        pod.metadata.name == name and pod.status.phase == "Failed" and not _was_stopped(facts, pod)
        for pod in facts.pods
    ):
        return True
    records = (restart for restart in facts.job.status.restarts if restart.type == kind and restart.replaced)
    if any(facts.shape.child(facts.name, kind, record.index) == name for record in records):
        return True
    delays = [event for event in facts.events_of("Pod", name) if event.reason == "BackOff"]
    return any(at and delay.at and seconds_between(delay.at, at) < _DELAY_S for delay in delays)


def _was_stopped(facts: Facts, pod: PodDetails) -> bool:
    """Return True if a pod is deleted that had not failed before the end of the job: then the operator stops it."""
    at = facts.job.status.completion_time
    ends = [end.ended.finished_at for end in exits_of(pod)]
    has_failed = any(at and end and seconds_between(end, at) >= 0 for end in ends)
    return pod.metadata.deletion_timestamp is not None and not has_failed


def _failing(facts: Facts, kind: str, done: Container[int]) -> Iterator[tuple[str, str, str]]:
    """Yield the replicas of a type that had failed at the success, with words and evidence: by pod, restarts, or events."""
    pods = {pod.metadata.name: pod for pod in facts.pods if not _was_stopped(facts, pod)}
    times = {
        restart.index: restart.total for restart in facts.job.status.restarts if restart.type == kind and restart.total
    }
    events = facts.job_events(EventReason.EXITED_WITH_CODE)
    ended = [(end, exits.words_of(event, end)) for event in events if (end := exit_of(event.message)) is not None]
    of_gone = {end.pod: (end.code, end.reason, words) for end, words in ended if end.code}
    for index in range(facts.sizes.get(kind, 0)):
        name, restarts = facts.shape.child(facts.name, kind, index), times.get(index, 0)
        own = (end.ended for end in exits_of(pods[name])) if name in pods else ()
        endings = [(end.exit_code, end.reason, end.message) for end in own]
        endings = endings[:1] or ([of_gone[name]] if name in of_gone else [])
        loops = [
            event
            for event in facts.events_of("Pod", name)
            if event.reason == "BackOff" and "restarting" in event.message
        ]
        if index in done or not (endings or restarts or loops):
            continue
        last = [reading.read(words).line or value(words) for _, reason, words in endings if words != reason]
        codes = [f"exit code {code}{f' ({reason})' if reason in _OF_KUBELET else ''}" for code, reason, _ in endings]
        proofs = [facts.line(event) for event in latest(loops)]
        detail = ": ".join(filter(None, (*codes, *last)))
        proof = (
            f"pod {safe_name(name)}: {detail}" if detail else f"job: status.restarts has {format_restarts(restarts)}"
        )
        words = ", ".join(filter(None, (format_restarts(restarts) if restarts else "failed", shorten(detail))))
        yield name, words, proofs[0] if proofs and not detail else proof
