"""Which replica was not running when a job reached its active deadline: its trouble is the likely reason. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from tfjob_operator.api.v1.constants import CONTAINER_NAME, EVALUATOR, PS, EventReason
from tfjob_operator.api.v1.types import IndexRestarts, InvalidSpec, TFJobSpec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.plan.attempts import why_late
from tfjob_operator.controller.tfjob.plan.ending import Ending, describe_last_failure
from tfjob_operator.controller.tfjob.plan.replicas import Observed, Outcome, Replica, problems_of
from tfjob_operator.controller.tfjob.plan.status import StatusDraft

_FAILED, _CRASHES, _HINDERED, _RESTARTED, _STARTS, _ABSENT = range(6)
"""How much is known about a replica that is not running, most first."""
_ORDER: Final = {PS: 0, EVALUATOR: 2}
"""Which replica types are named first; the others have 1. All depend on parameter servers, and none on an Evaluator."""
_NOTHING: Final[Mapping[str, Collection[int]]] = {}


def with_trouble(
    draft: StatusDraft,
    ending: Ending | None,
    spec: TFJobSpec | InvalidSpec,
    seen: Observed,
    finished: Mapping[str, Collection[int]] = _NOTHING,
) -> Ending | None:
    """Return an end by the active deadline with the replica that was not running, of several with the most telling one.

    Any other end, and that of a job whose replicas were all running, is returned as it is. A parameter server comes first, as
    the others need it. Then a failure tells more than what keeps a replica from starting, and that more than a missing pod; of
    several, the replica with the most restarts is named. Of an invalid spec, only the pods that exist are considered.
    """
    if ending is None or ending.event_reason is not EventReason.DEADLINE_EXCEEDED:
        return ending
    name = draft.job.metadata.name
    present = {each.key: each for each in seen.replicas if each.index not in finished.get(each.type, ())}
    records = {(record.type, record.index): record for record in draft.restarts}
    sizes = spec.sizes if isinstance(spec, TFJobSpec) else {}
    wanted = (ReplicaKey.of(name, kind, index) for kind, size in sizes.items() for index in range(size))
    found: list[tuple[tuple[int, int, int], ReplicaKey]] = []
    for key in dict.fromkeys((*wanted, *present)):
        if key not in draft.expected and key.index not in finished.get(key.type, ()):
            record = records.get((key.type, key.index))
            rank = _rank(present.get(key), record)
            restarts = record.total if record is not None else 0
            found += [] if rank is None else [((_ORDER.get(key.type, 1), rank, -restarts), key)]
    if not found:
        return ending
    _, key = min(found, key=lambda each: each[0])
    replica = present.get(key)
    why = _why(draft, replica, records.get((key.type, key.index)))
    count = f"{len(found)} replicas were not running, such as" if len(found) > 1 else "Not running:"
    named = Ending.by_limit(name, EventReason.DEADLINE_EXCEEDED, f"{count} pod {key.name}: {why}", replica, late=key)
    return replace(named, why=why)


def _rank(replica: Replica | None, record: IndexRestarts | None) -> int | None:
    """Return how much is known about a replica that is not running; None if it runs, or its pod is being deleted."""
    if replica is None:
        return _ABSENT if record is None else _RESTARTED
    if replica.outcome is Outcome.FAILED:
        is_restarted = record is not None and record.pod == replica.uid
        return None if replica.terminating and not is_restarted else _FAILED
    if replica.terminating or replica.outcome is Outcome.SUCCEEDED:
        return None
    if replica.outcome is Outcome.WAITING:
        return _HINDERED if problems_of([replica]) or describe_last_failure(replica.pod) else _STARTS
    statuses = replica.pod.status.container_statuses or ()
    training = next((status.state for status in statuses if status.name == CONTAINER_NAME), None)
    is_down = training is not None and (training.waiting is not None or training.terminated is not None)
    return _CRASHES if is_down else None


def _why(draft: StatusDraft, replica: Replica | None, record: IndexRestarts | None) -> str:
    """Return why a replica is not running: its last failure, what keeps it from starting, or how often it was restarted."""
    if replica is not None:
        return describe_last_failure(replica.pod) or why_late(draft, replica)
    if record is None:
        return why_late(draft, None)
    return f"it was restarted {'once' if record.total == 1 else f'{record.total} times'}, and its next pod is not created yet"
