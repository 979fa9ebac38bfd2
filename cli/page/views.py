"""What the page shows of jobs, as values that become JSON: a row of the list, and all of one job. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import InvalidSpec, child_name, parse_indices
from tfjob_operator.api.v1.validation import MAX_REPLICAS, read_spec
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1.validation import read_spec as read_alpha_spec
from tfjob_operator.cli.diagnosis.facts import natural
from tfjob_operator.cli.page.pods_view import (
    MAX_WORDS,
    is_ready,
    main_status,
    missing_view,
    place_of,
    replica_view,
    seconds,
    trouble_of,
)
from tfjob_operator.cli.page.timeline_view import timeline_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfjob_operator.cli.diagnosis.objects import Event, Pod
    from tfjob_operator.cli.page.objects import Job

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
MOST_EVENTS: Final = 300
"""How many events of one job are shown, the newest: the API server keeps them for an hour."""

_PLAIN_ENDS: Final = {"", c.ConditionReason.FAILED, c.ConditionReason.SUCCEEDED}
"""Reasons that say no more than the state does."""
_OVER: Final = {alpha.Phase.DONE, alpha.Phase.FAILED}
"""The phases of alpha jobs that have ended, which the operators of 2018 wrote without conditions."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job asks for, as far as it can be read: sizes by type, its queue, and what is wrong with it."""

    sizes: Mapping[str, int]
    queue: str = ""
    suspend: bool = False
    mistakes: str = ""
    alpha: bool = False


def wish_of(job: Job) -> Wish:
    """Return what a job asks for. It raises nothing, whatever the specification."""
    queue = (job.metadata.labels or {}).get(QUEUE_LABEL, "")
    if job.is_alpha:
        return _alpha_wish(job, queue)
    spec = read_spec(job.metadata.name, job.spec, was_good=job.status.begun is not None)
    if isinstance(spec, InvalidSpec):
        begun = job.status.begun
        return Wish(begun.replicas if begun is not None else {}, queue, spec.suspend, clean(spec.text, MAX_WORDS))
    return Wish(spec.sizes, queue or spec.scheduling.queue, spec.suspend)


def row_of(job: Job, wish: Wish, pods: Sequence[Pod]) -> dict[str, Any]:
    """Return the row of a job. Times are seconds since 1970, None where they are not known."""
    meta, status = job.metadata, job.status
    last = _last(job)
    state = last.type if last is not None else status.phase or "New"
    return {
        "key": job.key,
        "namespace": meta.namespace,
        "api": job.resource.group,
        "name": meta.name,
        "uid": meta.uid,
        "state": state,
        "since": seconds(last.last_transition_time) if last is not None else None,
        "note": _note(job, wish, pods),
        "replicas": _counts(job, wish, pods),
        "restarts": sum(_restarts(job, wish, pods).values()),
        "queue": clean(wish.queue, MAX_WORDS),
        "created": seconds(meta.creation_timestamp),
        "started": seconds(status.start_time),
        "ended": seconds(status.completion_time),
        "alpha": wish.alpha,
        "deleting": meta.deletion_timestamp is not None,
    }


def job_view(job: Job, wish: Wish, pods: Sequence[Pod], events: Sequence[Event]) -> dict[str, Any]:
    """Return all that the page of one job shows, except logs, manifest and diagnosis."""
    held = conditions.find(job.status.conditions, c.ConditionType.HELD)
    last = _last(job)
    return {
        "row": row_of(job, wish, pods),
        "message": clean(last.message, MAX_WORDS) if last is not None else "",
        "held": clean(held.message, MAX_WORDS) if held is not None and held.status == conditions.TRUE else "",
        "mistakes": wish.mistakes,
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": clean(each.message, MAX_WORDS),
                "since": seconds(each.last_transition_time),
            }
            for each in job.status.conditions
        ],
        "replicas": _replicas(job, wish, pods),
        "events": _events(job, events),
        "timeline": timeline_view(job, pods, events),
    }


def _last(job: Job) -> Any:
    """Return the condition that says how the job stands: the last that is True, as the STATE column does."""
    states = [each for each in job.status.conditions if each.status == conditions.TRUE]
    told = [each for each in states if each.type != c.ConditionType.HELD]
    return told[-1] if told else None


def _note(job: Job, wish: Wish, pods: Sequence[Pod]) -> str:
    """Return in a few words what keeps a job from going on, "" where nothing does."""
    if job.metadata.deletion_timestamp is not None:
        return "being deleted"
    if conditions.is_finished(job.status):
        failed = _last(job)
        return clean(failed.reason, MAX_WORDS) if failed is not None and failed.reason not in _PLAIN_ENDS else ""
    if conditions.is_true(job.status, c.ConditionType.HELD):
        return "held: the edit is a mistake"
    if wish.mistakes and job.status.phase not in _OVER:
        return "mistake in the specification"
    found = Counter(trouble for pod in _newest(wish, pods) if (trouble := trouble_of(pod)))
    return clean(found.most_common(1)[0][0], MAX_WORDS) if found else ""


def _restarts(job: Job, wish: Wish, pods: Iterable[Pod]) -> Counter[tuple[str, int]]:
    """Return how often each replica was restarted: the operator counts it, but in the alpha dialect, where the pods show it."""
    if not wish.alpha:
        return Counter({(each.type, each.index): each.total for each in job.status.restarts})
    found: Counter[tuple[str, int]] = Counter()
    for pod in pods:
        place, main = place_of(pod), main_status(pod)
        found[place] += (place in found) + (main.restart_count if main is not None else 0)
    return found


def _newest(wish: Wish, pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods that stand for replicas: in the alpha dialect those that have failed stay beside the next one."""
    if not wish.alpha:
        return pods
    ordered = sorted(pods, key=lambda pod: (seconds(pod.metadata.creation_timestamp) or 0, pod.metadata.name))
    return [*{place_of(pod): pod for pod in ordered}.values()]


def _counts(job: Job, wish: Wish, pods: Sequence[Pod]) -> list[dict[str, Any]]:
    ready = Counter(place_of(pod)[0] for pod in _newest(wish, pods) if is_ready(pod))
    counted = job.status.replica_statuses
    kinds = dict.fromkeys((*wish.sizes, *counted))
    return [
        {
            "type": kind,
            "wanted": wish.sizes.get(kind, 0),
            "ready": ready[kind],
            "succeeded": counted[kind].succeeded if kind in counted else 0,
            "failed": counted[kind].failed if kind in counted else 0,
        }
        for kind in kinds
        if wish.sizes.get(kind, 0) or ready[kind]
    ]


def _replicas(job: Job, wish: Wish, pods: Sequence[Pod]) -> list[dict[str, Any]]:
    """Return all replicas, those without a pod as well, in the order of types and indices."""
    restarts = _restarts(job, wish, pods)
    found = [replica_view(pod, restarts[place_of(pod)]) for pod in _newest(wish, pods)]
    if sum(wish.sizes.values()) <= MAX_REPLICAS:
        # In the alpha dialect names of pods are not known before there is one.
        there = {(each["type"], each["index"]) if wish.alpha else each["name"] for each in found}
        for kind, size in wish.sizes.items():
            done = parse_indices(job.status.finished_indices.get(kind, ""), size)
            names = {index: _name_of(job, wish, kind, index) for index in range(size)}
            found += [
                missing_view(name, kind, index, done=index in done, restarts=restarts[kind, index])
                for index, name in names.items()
                if ((kind, index) if wish.alpha else name) not in there
            ]
    order = {kind: number for number, kind in enumerate(c.REPLICA_TYPES)}
    return sorted(found, key=lambda each: (order.get(each["type"], 9), each["index"], natural(each["name"])))


def _name_of(job: Job, wish: Wish, kind: str, index: int) -> str:
    """Return the name of a replica: of its pod, or in the alpha dialect of its Job."""
    if wish.alpha and job.status.runtime_id:
        return f"{kind.lower()}-{job.status.runtime_id}-{index}"
    return child_name(job.metadata.name, kind, index)


def _events(job: Job, events: Iterable[Event]) -> list[dict[str, Any]]:
    own = job.resource.kind
    told = [
        each
        for each in events
        if each.involved_object.kind != own or each.involved_object.uid in {"", job.metadata.uid}
    ]
    created = seconds(job.metadata.creation_timestamp) or 0
    shown: list[dict[str, Any]] = [
        {
            "id": each.metadata.uid,
            "type": clean(each.type, MAX_WORDS),
            "reason": clean(each.reason, MAX_WORDS),
            "message": clean(each.message),
            "object": each.involved_object.name if each.involved_object.kind != own else "",
            "count": each.series.count if each.series is not None else max(each.count, 1),
            "at": seconds(each.at),
        }
        for each in told
        if (seconds(each.at) or created) >= created - 1  # pods of an earlier job had the same names
    ]
    return sorted(shown, key=lambda each: (-(each["at"] or 0), each["id"]))[:MOST_EVENTS]


def _alpha_wish(job: Job, queue: str) -> Wish:
    dialect = alpha.TENSORFLOW if job.resource == alpha.TENSORFLOW.resource else alpha.KUBEFLOW
    spec = read_alpha_spec(dialect, job.metadata.name, job.spec)
    if isinstance(spec, InvalidSpec):
        begun = job.status.begun
        sizes = begun.replicas if begun is not None else {}
        return Wish(sizes, queue, mistakes=clean(spec.text, MAX_WORDS), alpha=True)
    return Wish({alpha.V1_TYPES[each.type]: each.replicas for each in spec.replicas}, queue, alpha=True)
