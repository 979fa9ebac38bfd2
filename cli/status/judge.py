"""How a job stands, from the job and its pods. Pure: what is missing or odd is left out, and nothing raises."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.text import last_words
from tfjob_operator.api.v1.types import format_indices, parse_indices
from tfjob_operator.cli.diagnosis.pods import condition_of, is_up, statuses
from tfjob_operator.cli.sizes import restarts_of, sizes_of
from tfjob_operator.cli.status.values import ConditionStanding, JobStanding, ReplicaStanding, TypeStanding
from tfjob_operator.cli.timelines.lives import ended_of, training_of, utc
from tfjob_operator.cli.timelines.names import order_of, replica_of
from tfjob_operator.cli.timelines.values import ReplicaName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfjob_operator.cli.diagnosis.objects import Pod
    from tfjob_operator.cli.timelines.job import Job

MISSING: Final = "Missing"
_COMMON: Final = {"ContainerCreating", "PodInitializing", ""}
"""The reasons of waiting that are a part of every start."""


def standing_of(job: Job, body: Mapping[str, Any], pods: Sequence[Pod]) -> JobStanding:
    """Return how a job stands. `body` is the whole job as the server sent it, of any dialect."""
    meta, status = job.metadata, job.status
    conditions = status.conditions or ()
    state = conditions[-1].type if conditions else status.phase or "New"
    return JobStanding(
        namespace=meta.namespace,
        name=meta.name,
        state=state,
        created=utc(meta.creation_timestamp),
        started=utc(status.start_time),
        ended=utc(status.completion_time),
        conditions=tuple(
            ConditionStanding(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                since=utc(each.last_transition_time),
            )
            for each in conditions
        ),
        types=tuple(_types(job, body, pods)),
    )


def _types(job: Job, body: Mapping[str, Any], pods: Sequence[Pod]) -> Iterator[TypeStanding]:
    wanted = {_type(kind): size for kind, size in sizes_of(body)}
    newest: dict[ReplicaName, Pod] = {}
    for pod in sorted(pods, key=_began):
        newest[replica_of(pod.metadata.labels, job.metadata.name, pod.metadata.name)] = pod
    there: dict[str, dict[ReplicaName, Pod]] = defaultdict(dict)
    for name in sorted(newest, key=order_of):
        there[name.type][name] = newest[name]
    restarts = {ReplicaName(_type(kind), index): times for kind, index, times in restarts_of(body)}
    is_true = {each.type for each in job.status.conditions or () if each.status == "True"}
    for kind in sorted({*wanted, *there}, key=lambda each: order_of(ReplicaName(each))):
        size = wanted.get(kind, 0)
        absent = set(range(size)) - {name.number for name in there[kind]}
        succeeded = parse_indices(_finished(body, kind), size) & absent
        lost = absent - succeeded
        why = "No pod" if is_true & {"Succeeded", "Failed"} else "Suspended" if "Suspended" in is_true else MISSING
        rows = [_standing(name, pod, restarts.get(name, 0)) for name, pod in there[kind].items()]
        rows += [
            _without_pod(kind, indices, each) for indices, each in ((succeeded, "Succeeded"), (lost, why)) if indices
        ]
        phases = [pod.status.phase for pod in there[kind].values()]
        yield TypeStanding(
            type=kind,
            wanted=size,
            running=sum(map(is_up, there[kind].values())),
            succeeded=phases.count("Succeeded") + len(succeeded),
            failed=phases.count("Failed"),
            missing=format_indices(lost) if lost and why == MISSING else "",
            replicas=tuple(rows),
        )


def _began(pod: Pod) -> float:
    created = utc(pod.metadata.creation_timestamp)
    return created.timestamp() if created is not None else 0.0


def _type(name: object) -> str:
    return replica_of(None, "", f"-{name}-0").type or str(name)


def _finished(body: Mapping[str, Any], kind: str) -> str:
    """Return the replicas of a type that have succeeded, as the status has them."""
    status = body.get("status")
    finished = status.get("finishedIndices") if isinstance(status, dict) else None
    for key, indices in finished.items() if isinstance(finished, dict) else ():
        if _type(key) == kind and isinstance(indices, str):
            return indices
    return ""


def _without_pod(kind: str, indices: set[int], state: str) -> ReplicaStanding:
    shown = format_indices(indices)
    name = f"{kind.lower()}-{shown if len(indices) == 1 else f'[{shown}]'}"
    return ReplicaStanding(replica=name, state=state, count=len(indices))


def _standing(name: ReplicaName, pod: Pod, recorded: int) -> ReplicaStanding:
    training, ended = training_of(pod), ended_of(pod)
    state, message = _state(pod)
    in_place = training.restart_count if training is not None else 0
    return ReplicaStanding(
        replica=f"{name.type.lower()}-{name.number}" if name.type else pod.metadata.name,
        state=state,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        created=utc(pod.metadata.creation_timestamp),
        restarts=max(recorded, in_place),
        exit_code=ended.exit_code if ended is not None else None,
        reason=pod.status.reason or (ended.reason if ended is not None else ""),
        message=message or last_words(ended.message if ended is not None else ""),
    )


def _state(pod: Pod) -> tuple[str, str]:
    """Return the state of a pod in a word, like kubectl's column STATUS, and a message about it."""
    status = pod.status
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating", ""
    if status.phase in {"Succeeded", "Failed"}:
        return status.reason or status.phase, last_words(status.message)
    for each in statuses(pod):
        waiting = each.state.waiting if each.state is not None else None
        if waiting is not None and waiting.reason not in _COMMON:
            ended = each.last_state.terminated if each.last_state is not None else None
            left = ended.message if ended is not None else ""
            return waiting.reason, last_words(left) or last_words(waiting.message)
    scheduled = condition_of(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Pending", last_words(scheduled.message)
    training = training_of(pod)
    if training is not None and training.state is not None and training.state.waiting is not None:
        return training.state.waiting.reason or status.phase or "Pending", ""
    return status.phase or "Pending", ""
