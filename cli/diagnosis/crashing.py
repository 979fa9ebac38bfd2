"""Processes that exit with an error: memory, signals, exit codes, last log lines, and restarted replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    ConditionReason,
    ConditionType,
    EventReason,
    PodExit,
    RuleAction,
    exit_of,
)
from tfjob_operator.api.v1.types import IndexRestarts, JobAttempt, JobCondition, TFJobSpec
from tfjob_operator.cli.diagnosis import log_rules, reading, refining, starting
from tfjob_operator.cli.diagnosis.advice import (
    LOGS,
)
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, Problem
from tfjob_operator.cli.diagnosis.exit_logs import SAME_S, SIGNAL_OF, End, read
from tfjob_operator.cli.diagnosis.exits import (
    AFTER_PROBE,
    AFTER_SUCCESS,
    EVICTED,
    EVICTIONS,
    FOR_EVER,
    NEVER_RAN,
    NO_MEMORY_LIMIT,
    OF_POD,
    OF_PROBES,
    OUT_OF_MEMORY,
    PLAIN,
    RESTARTED,
    by_probe,
    classified,
    end_of,
    end_of_event,
    failed_probe,
    may_be_corrected,
    memory_limit,
    of_exit_event,
    probes,
    taken,
    words_of,
)
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import matched, of_pod
from tfjob_operator.cli.diagnosis.rules import first_match, shorten, value
from tfjob_operator.cli.model.failures import failure_of
from tfjob_operator.cli.model.objects import ContainerStatusDetails, EventDetails, PodDetails
from tfjob_operator.cli.model.pods import (
    Exit,
    exits_of,
    is_down_after,
    is_up,
    running_since,
    statuses,
)
from tfjob_operator.cli.model.words import (
    ago,
    ended_by,
    failed_line,
    format_restarts,
    quote,
    safe_name,
    seconds_between,
)

_OF_SIDECAR: Final = (
    LOGS,
    ManifestChange("correct container {container} in the template, such as its memory limit; the training itself runs"),
)
"""For restarts of other containers than the training: they count toward backoffLimit too, so a limit would end the training."""
_OF_PEERS: Final = frozenset(
    problem.id for problem in (log_rules.PEER_UNKNOWN, log_rules.PEER_FAILED, log_rules.PEER_AWAY)
)
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
_BEFORE_S: Final = 600.0
"""A replica that failed longer before the end of its job is not why others lost their connection to it."""
_SKEW_S: Final = 10.0
"""How far the clocks of operator and API server may differ."""
_AGAIN: Final = 2
_STEADY_S: Final = 600.0
"""After two restarts for lack of memory another is likely until a pod has run this long."""
_OFTEN: Final = 5
"""This many restarts are not accidental: by then the kubelet's back-off has reached five minutes."""


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
            for event in probes(facts, meta.name, meta.uid, CONTAINER_NAME, ended.finished_at):
                probe = by_probe("", [event]).lower()
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
    if failure.reason in OF_POD:
        yield taken(facts, failure.pod_name, failure.reason, failure.message, proof)
    elif failure.reason in starting.REASONS and failure.exit_code is None:
        problem, values = first_match(starting.RULES, failure.message or failure.reason) or (starting.CANNOT_START, {})
        more = {"pod": failure.pod_name, "node": failure.node_name, "container": failure.container_name}
        yield Finding(
            problem, failure.pod_name, (proof,), more | {name: shorten(text) for name, text in values.items()}
        )
    elif failure.exit_code is not None and not _is_invented(facts, failure):
        container = value(failure.container_name) or CONTAINER_NAME
        end = End(failure.pod_name, container, failure.exit_code, failure.reason, failure.message, (proof,))
        made = classified(facts, end)
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
            yield replace(finding, problem=log_rules.PEER_AWAY, key="", values={**finding.values, "name": words})
        elif others and finding.problem.id == log_rules.PEER_FAILED.id:
            problem = finding.problem
            if problem.to_do == log_rules.LOG_OF_PEER_GONE:
                problem = replace(problem, to_do=log_rules.LOG_OF_PEER_GONE[:1])
            yield replace(finding, problem=problem, values={**finding.values, "name": safe_name(others[0].affected)})
        elif finding.problem.id == log_rules.PEER_FAILED.id:
            yield _with_log_of_peer(facts, finding)
        else:
            yield finding
    yield from others


def _with_log_of_peer(facts: Facts, finding: Finding) -> Finding:
    """Return that a replica lost a peer, with the exception in the log of a peer that still runs, if it has one.

    At its exit, a process of JAX waits for the others.
    """
    for pod in facts.pods:
        name = pod.metadata.name
        last = facts.evidence.last_lines.get(name) if name != finding.affected and is_up(pod) else None
        if last is None or not (words := reading.last_exception(last.log, logged=False)):
            continue
        values = {"pod": name, "container": CONTAINER_NAME, "previous": "false", "peer": name}
        problem = replace(finding.problem, title=log_rules.PEER_RAISED, to_do=log_rules.LOG_OF_PEER)
        seen = f"log of {safe_name(name)}: {quote(last.log)}"
        return replace(
            finding,
            problem=problem,
            proofs=(seen, *finding.proofs),
            values={**finding.values, **values, "name": shorten(value(words))},
        )
    return finding


def _before_peer(facts: Facts, affected: Collection[str]) -> Iterator[Finding]:
    """Yield why replicas other than these failed until the job ended, as far as it is not about a peer.

    Also one that ended a little later with an exception of its own: at its exit, a process may wait for the others.
    """
    ended_at = facts.job.status.completion_time
    events = ((event, exit_of(event.message)) for event in facts.job_events(EventReason.EXITED_WITH_CODE))
    killed = {
        end.pod: (event, end)
        for event, end in events
        if end is not None and end.pod not in affected and _explains_loss(facts, event, end)
    }
    for gone in killed.values():
        yield of_exit_event(facts, *gone, loops=0)
    yield from _never_ran(facts, {*affected, *killed})
    for pod in facts.pods:
        for each in list(exits_of(pod))[:1] if pod.metadata.name not in {*affected, *killed} else ():
            if each.ended.reason == "OOMKilled" and pod.status.phase != "Failed":
                yield classified(facts, end_of(facts, each))
    for pod in facts.pods:
        for end in (
            list(exits_of(pod))[:1] if pod.metadata.name not in affected and pod.status.phase == "Failed" else ()
        ):
            at = end.ended.finished_at
            later_s = 0.0 if at is None or ended_at is None else seconds_between(ended_at, at)
            is_own = pod.metadata.deletion_timestamp is None and _OWN_ERROR.match(read(end_of(facts, end))[1].line)
            if later_s <= (_AT_EXIT_S if is_own else SAME_S):
                other = classified(facts, end_of(facts, end))
                was_killed = end.ended.exit_code in SIGNAL_OF and end.ended.reason != "OOMKilled"
                if not _is_about_peer(other) and not was_killed:
                    yield other


def _explains_loss(facts: Facts, event: EventDetails, end: PodExit) -> bool:
    """Return True if an event ExitedWithCode, of a pod that is gone, tells why others lost their connection to it."""
    if end.reason == "OOMKilled":
        return True
    ended_at = facts.job.status.completion_time
    before_s = 0.0 if ended_at is None or event.at is None else seconds_between(event.at, ended_at)
    if end.code in {0, *SIGNAL_OF} or not words_of(event, end) or not -_SKEW_S <= before_s <= _BEFORE_S:
        return False
    return not _is_about_peer(of_exit_event(facts, event, end, loops=0))


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
    return failure.exit_code == 0 and failure.reason in PLAIN and not by_restarts


def _evicted(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that exceeded a limit of their own pod and were replaced: the next pod will exceed it, too."""
    for name in facts.wanted if not may_be_corrected(facts) else ():
        for event in latest([each for each in facts.events_of("Pod", name) if each.reason == "Evicted"]):
            found, age_s = first_match(EVICTIONS, event.message), facts.age_s(event.at) or 0.0
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
    if status.phase == "Failed" and status.reason in OF_POD:
        seen = f"pod {safe_name(name)}: {safe_name(status.reason)}: {quote(status.message)}"
        if waits := _waits(pod):
            seen = f"pod {safe_name(name)}: {quote(waits)}"
            yield from matched(starting.REASONS_OF_START, waits, pod, seen)
        yield taken(facts, name, status.reason, status.message, seen, waits=waits)
        return
    ends = [end for end in exits_of(pod) if container in {"", end.container} and is_down_after(end, facts.now)]
    for end in ends[:1]:
        if end.ended.reason == "ContainerStatusUnknown" or (end.ended.reason == "StartError" and not _over(end)):
            continue
        yield classified(facts, end_of(facts, end))


def _over(each: Exit) -> bool:
    """Return True if the container will not be restarted; restarts are reported by `starting`."""
    return each.pod.status.phase == "Failed"


def _replaced(facts: Facts) -> Iterator[Finding]:
    """Yield the last failure of each replica whose next pod is delayed, and of the whole job from its second restart on."""
    at, status = facts.job.status.next_restart_time, facts.job.status
    is_delayed = at is not None and (facts.age_s(at) or 0.0) < 0
    times = {facts.shape.child(facts.name, restart.type, restart.index): restart.total for restart in status.restarts}
    events = facts.job_events(EventReason.EXITED_WITH_CODE) if is_delayed else ()
    exits = {end.pod: (event, end) for event in events if (end := exit_of(event.message))}
    # A rule may have ignored the failure, so that it counts as no restart.
    reported = times.keys() & exits.keys() & {*facts.missing}
    for pod, (event, ended) in exits.items():
        if pod in reported:
            yield of_exit_event(facts, event, ended, loops=times[pod])
    last = status.attempt_history[-1] if status.attempt_history else None
    if last is None or last.exit_code is None or last.number != status.attempt - 1 or last.pod_name in reported:
        return
    is_disrupted = last.action == RuleAction.RESTART_ALL_UNCOUNTED
    if is_delayed or (status.attempt >= _AGAIN and not (is_disrupted or facts.live_pods)):
        seen = f"job: attempt {last.number} ended {ago(facts.now, last.end_time) or 'some time ago'}: {ended_by(last)}"
        container = value(last.container_name) or CONTAINER_NAME
        pod = last.pod_name or facts.shape.child(facts.name, last.replica_type, last.replica_index or 0)
        loops = status.attempt
        yield classified(
            facts, End(pod, container, last.exit_code, last.reason, last.message, (seen,), before=True, loops=loops)
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
        killed = probes(facts, name, pod.metadata.uid, CONTAINER_NAME, None)
        problem, also = endless if times >= _OFTEN else RESTARTED, tuple[Problem, ...]()
        is_past = may_be_corrected(facts) and _is_of_earlier_pod(records.get(replica), pod, exits)
        is_again = times >= _AGAIN and bool(exits) and exits[-1][1].reason == "OOMKilled" and _is_young(facts, pod)
        values["words"] = ""
        if is_again and not is_past:
            values |= {"container": CONTAINER_NAME, "limit": memory_limit(pod, CONTAINER_NAME)}
            problem, also = OUT_OF_MEMORY if values["limit"] else NO_MEMORY_LIMIT, (endless,)
        elif killed and _is_young(facts, pod):
            problem, more = failed_probe(facts, name, by_probe("", killed))
            values, also = values | more | {"key": more.get("reason", "")}, (endless,)
            proofs += map(facts.line, killed[-1:])
        else:
            own_exit = next((end_of(facts, end) for end in exits_of(pod) if end.container == container), None)
            last = own_exit or next((end_of_event(facts, *each, loops=times) for each in exits[-1:]), None)
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


def _last_failure(facts: Facts, end: End, pod: PodDetails) -> tuple[str, tuple[Problem, ...]]:
    """Return the last failure of a pod that runs again, for a title, and the problem whose advice applies, if one is known.

    The problem of an earlier pod may be corrected: no step deletes the present one.
    """
    _, last, words = read(end)
    # Either there is only the kubelet's or the runtime's reason, or the process could not write why it ended.
    if words.strip() in {"", end.reason} or end.code in SIGNAL_OF:
        is_plain = end.reason in {*PLAIN, "ContainerStatusUnknown"} or not _is_young(facts, pod)
        signal = f" ({SIGNAL_OF[end.code]})" if end.code in SIGNAL_OF else ""
        code = f"exit code {end.code}{signal}" if _is_young(facts, pod) and end.code else ""
        words = code if is_plain else f"{end.reason} probe" if end.reason in OF_PROBES else end.reason
    problem = classified(facts, end).problem
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
