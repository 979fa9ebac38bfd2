"""What the log of a container that ended says about its end, and about other replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from tfjob_operator.api.text import in_lines, tail_of
from tfjob_operator.api.v1.tf_config import process_count
from tfjob_operator.api.v1.types import TFJobSpec, child_name
from tfjob_operator.cli.diagnosis import log_lines, log_rules, reading
from tfjob_operator.cli.diagnosis.causes import Problem
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rules import shorten, value
from tfjob_operator.cli.model.pods import (
    IN_IMAGE,
    exits_of,
)
from tfjob_operator.cli.model.words import (
    seconds_between,
)

SIGNAL_OF: Final = {137: "SIGKILL", 143: "SIGTERM"}
"""Exit codes of signals from outside: the log does not contain the reason."""
_LAST_WORDS: Final = 150
"""The most bytes of the last lines of a log that are quoted in a title; a single line may be longer."""
_TASK: Final = re.compile(r"/job:(\w{1,20})/(?:replica:\d{1,9}/)?task:(\d{1,9})")
_OF_JOB: Final = re.compile(
    r"/job:|\btask\b|heartbeat|collective|\bnccl\b|\bgloo\b|all_?reduce|coordination|barrier|remote process|grpc",
    re.IGNORECASE,
)
"""Words of messages about the connections between replicas."""
_COLLECTIVE: Final = re.compile(r"collective|all_?reduce|\bnccl\b|\bgloo\b", re.IGNORECASE)
"""Operations of all replicas, which connect to no other host."""
_ADDRESS: Final = re.compile(r"[\d.]+")
"""Of a replica that is gone, if the log names tasks: TensorFlow reaches other hosts by their names."""
_PROCESS: Final = re.compile(r"(?:/job:jax_worker/replica:0/task:)?(\d{1,9})|leader task|CoordinationService/Heartbeat")
"""A process of JAX, as messages of its coordination service name it; process 0 is the leader, which runs the service."""
SAME_S: Final = 1.0
"""Times of containers have whole seconds, by the clocks of their nodes."""


@dataclass(frozen=True, slots=True)
class End:
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


def read(end: End) -> tuple[str, reading.LastWords, str]:
    """Return the log of an exit, why the process ended by it, and the words for a title: the last lines if that is unknown."""
    joined = in_lines(log_lines.plain(end.words))
    last = reading.read(joined, log_rules.OF_CHILD if end.code in SIGNAL_OF else log_rules.RULES)
    last = last if last.problem is not None or end.code not in SIGNAL_OF else reading.LastWords()
    words = shorten(last.line) or _last_lines(log_lines.without_frames(joined))
    return joined, last, words


def by_log(
    facts: Facts, end: End, problem: Problem, last: reading.LastWords
) -> tuple[Problem, str, Mapping[str, str], tuple[Problem, ...]]:
    """Return the problem that a log shows, its key, its values, and the problem whose advice applies too."""
    key, also = value(last.values.get("name", "")), tuple[Problem, ...]()
    more = {"name": last.line} | dict(last.values)
    if problem is log_rules.PEER_AWAY and (reached := list(log_rules.REACHED.finditer(end.words))):
        processes = process_count(facts.spec) if isinstance(facts.spec, TFJobSpec) else 0
        if processes and int(reached[-1]["size"]) != processes:
            more |= {**reached[-1].groupdict(), "processes": str(processes), "name": last.line}
            return replace(problem, title=log_rules.NOT_ALL_OF_JAX, to_do=log_rules.JOIN_OF_JAX), "", more, ()
    host, by_http = (key, False) if key and problem is log_rules.PEER_UNKNOWN else log_rules.host_in(last.line)
    is_of_job = "/job:" in end.words or _COLLECTIVE.search(last.line) is not None
    is_task = _TASK.search(last.line) is not None or (_ADDRESS.fullmatch(host) is not None and is_of_job)
    if host and problem in log_rules.OUTSIDE and not (facts.is_replica(host, by_http=by_http) or is_task):
        problem, key, more["name"] = log_rules.OUTSIDE[problem], host, host
    elif problem in log_rules.OUTSIDE.values():
        key = more["name"] = host or log_rules.PACKAGE_INDEX
    elif problem in {log_rules.PEER_UNKNOWN, log_rules.PEER_AWAY} and log_rules.is_about_any_host(last.line):
        also = (log_rules.OUTSIDE[problem],)
    elif "{replicas}" in problem.title:
        more["replicas"] = str(sum(facts.sizes.values()))
    elif (problem is log_rules.PEER_FAILED or _PROCESS.fullmatch(key)) and (peer := _peer(facts, end, key)):
        more["name"] = peer
        if (
            problem is log_rules.PEER_FAILED
            and facts.finished
            and peer not in {pod.metadata.name for pod in facts.pods}
        ):
            problem = replace(problem, to_do=log_rules.LOG_OF_PEER_GONE)
    return problem, key, more, also


def has_peer(facts: Facts, end: End, last: reading.LastWords) -> bool:
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
    kept = list(takewhile(lambda line: not log_lines.is_progress(line), reversed(lines)))[::-1]
    last = value(reading.last_error("\n".join(kept)).replace("\n", " / "))
    return shorten(last) if len(last.encode()) > _LAST_WORDS else tail_of("\n".join(kept), _LAST_WORDS)


def _peer(facts: Facts, end: End, task: str) -> str:
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


def _named_by_address(facts: Facts, end: End) -> list[str]:
    """Return the pods whose address is in what a process has written."""
    return [pod.metadata.name for pod in facts.pods if pod.status.pod_ip and f"[{pod.status.pod_ip}]" in end.words]


def _failed_before(facts: Facts, name: str) -> list[str]:
    """Return the pods that failed until this one did, the first one first."""
    times = {pod.metadata.name: each.ended.finished_at or facts.now for pod in facts.pods for each in exits_of(pod)}
    own = times.pop(name, facts.now)
    return sorted((other for other, at in times.items() if seconds_between(own, at) <= SAME_S), key=times.__getitem__)
