"""What to do about a job of the alpha dialect that is to run. Pure.

Services come first: so a RuntimeId that another job has is found out before anything runs under its names. Jobs are created
when all services exist, and then the job has begun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1alpha1.constants import V1_TYPES, EventReason
from tfjob_operator.controller.alpha.children import config_map_name, replica_key
from tfjob_operator.controller.alpha.decide.actions import Plan
from tfjob_operator.controller.alpha.decide.ending import conclude
from tfjob_operator.controller.alpha.decide.observe import replicas_of
from tfjob_operator.controller.alpha.decide.problems import problems_of
from tfjob_operator.controller.alpha.decide.runtime_id import derived, following
from tfjob_operator.controller.alpha.decide.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfjob_operator.api.v1alpha1.types import AlphaSpec
    from tfjob_operator.controller.alpha.children import Children
    from tfjob_operator.controller.alpha.decide.actions import Child
    from tfjob_operator.controller.alpha.decide.status_draft import StatusDraft
    from tfjob_operator.controller.jobs.children import ReplicaKey


def run(draft: StatusDraft, spec: AlphaSpec, children: Children, taken: Collection[str]) -> Plan:
    """Decide about a job that has not ended. When it ends, the plan says so and does nothing else.

    `taken` are names that other objects have.
    """
    draft.create(_runtime_id(draft, spec, taken))
    wanted = keys_of(spec, draft.runtime_id)
    found = replicas_of(children)
    replicas = {key: found[key.name] for key in wanted if key.name in found}
    draft.record(spec, replicas)
    chief = next(key for key in wanted if (key.type, key.index) == (spec.chief.type, spec.chief.index))
    verdict = judge(replicas.get(chief))
    if verdict.succeeded or _was_done(draft, chief):
        return conclude(draft, spec, children, "")
    if verdict.failed:
        return conclude(draft, spec, children, verdict.failed)
    lacking = [key for key in wanted if key.name not in found or found[key.name].needs_job]
    going_on = _go_on(draft, spec, children, wanted, lacking, running=verdict.running)
    return replace(going_on, problems=problems_of(found.values()))


def keys_of(spec: AlphaSpec, runtime_id: str) -> list[ReplicaKey]:
    """Return the replicas that there are to be."""
    return [replica_key(runtime_id, each.type, index) for each in spec.replicas for index in range(each.replicas)]


def _go_on(
    draft: StatusDraft,
    spec: AlphaSpec,
    children: Children,
    wanted: Sequence[ReplicaKey],
    lacking: Sequence[ReplicaKey],
    *,
    running: bool,
) -> Plan:
    """Create what is missing, and delete what is superfluous. `lacking` are the replicas that need a Job and have none."""
    services = {each.metadata.name for each in children.services}
    config_maps = {each.metadata.name for each in children.config_maps}
    missing = tuple(key for key in wanted if key.name not in services)
    program = config_map_name(draft.runtime_id) if spec.has_servers else ""
    lacks_program = bool(program) and program not in config_maps
    jobs: tuple[ReplicaKey, ...] = ()
    if not (missing or lacks_program):
        jobs = tuple(key for key in lacking if not _was_done(draft, key))
        draft.begin(spec)
    if running:
        name = draft.job.metadata.name
        draft.set_true(ConditionType.RUNNING, ConditionReason.RUNNING, f"TFJob {name} is running.")
    _announce(draft, spec)
    return Plan(
        status=draft.freeze(),
        events=tuple(draft.events),
        runtime_id=draft.runtime_id,
        create_services=missing,
        create_config_map=lacks_program,
        create_jobs=jobs,
        delete=_surplus(children, {key.name for key in wanted}, program),
    )


def _runtime_id(draft: StatusDraft, spec: AlphaSpec, taken: Collection[str]) -> str:
    """Return the RuntimeId: that of the spec, or four derived characters. Once the job has begun it stays as it is."""
    present, uid = draft.runtime_id, draft.job.metadata.uid
    if draft.begun is not None and present:
        return present
    if spec.runtime_id:
        return spec.runtime_id
    chosen = present or derived(uid)
    names = {config_map_name(chosen), *(key.name for key in keys_of(spec, chosen))}
    if names.isdisjoint(taken):
        return chosen
    other = following(uid, chosen)
    text = f"RuntimeId {chosen} is another job's: {min(names.intersection(taken))} is there already; {other} is used"
    draft.emit(EventType.NORMAL, EventReason.OTHER_RUNTIME_ID, text)
    return other


def _was_done(draft: StatusDraft, key: ReplicaKey) -> bool:
    """Whether the status says of a replica that it has succeeded: its Job may be gone."""
    known = {kind.value: name for kind, name in V1_TYPES.items()}[key.type]
    return key.index in parse_indices(draft.finished_indices.get(known, ""), below=key.index + 1)


def _surplus(children: Children, wanted: Collection[str], program: str) -> tuple[Child, ...]:
    """Return the children of no replica: its type was scaled down, or the job took another RuntimeId."""
    every: list[Child] = [
        *(each for each in children.jobs if each.metadata.name not in wanted),
        *(each for name, pods in children.bare.items() if name not in wanted for each in pods),
        *(each for each in children.services if each.metadata.name not in wanted),
        *(each for each in children.config_maps if each.metadata.name != program),
    ]
    return tuple(each for each in every if each.metadata.deletion_timestamp is None)


def _announce(draft: StatusDraft, spec: AlphaSpec) -> None:
    """Report a specification's warnings once, and that a job is no longer held."""
    if draft.is_new_generation:
        for reason, message in spec.warnings:
            draft.emit(EventType.WARNING, reason, message)
        if spec.runtime_id and spec.runtime_id != draft.runtime_id:
            text = "spec.RuntimeId is another one than that of the Jobs that are there, which is kept"
            draft.emit(EventType.WARNING, EventReason.OTHER_RUNTIME_ID, text)
    if conditions.is_true(draft, ConditionType.HELD):
        text = f"TFJob {draft.job.metadata.name} goes on: its spec is mended."
        draft.set_held(conditions.FALSE, ConditionReason.MENDED, text)
        draft.emit(EventType.NORMAL, ConditionReason.MENDED, text)
