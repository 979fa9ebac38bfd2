"""What must never happen to a job of the alpha dialect, and what must hold in the end. Written from the promises to users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tfjob_operator.api.v1.constants import CleanPodPolicy, ConditionReason, ConditionType
from tfjob_operator.api.v1alpha1.types import AlphaSpec
from worlds.alpha.values import COMPLETE, spec_of, status_of
from worlds.alpha.world import (
    CONFIG_MAPS,
    JOBS,
    PENDING,
    PODS,
    SERVICES,
    Posture,
    Slot,
    State,
    finished_in,
    has_active_pod,
    has_ended,
    has_good_pod,
    mode_of,
    told,
    wanted,
)
from worlds.values import NO_STATUS, Call, Child, Job
from worlds.world import STRANGER, TFJOBS, require

FATAL: Final = 1
"""The exit code with which a chief fails its job; running out of memory does so, too, whatever the code."""


def fails_for_good(pod: Child) -> bool:
    """Whether a chief whose pod ends like this has failed. If the cluster took the pod away, it has not."""
    return not pod.reason and (pod.exit_code == FATAL or (bool(pod.exit_code) and bool(pod.spec)))


def chief_of(spec: AlphaSpec, uid: str) -> Slot:
    """The replica that decides."""
    return uid, spec.chief.type.value, spec.chief.index


def judge_sent(world: State, calls: Iterable[Call]) -> None:
    """Judge requests as they leave. Each must have been right at one moment at least since the sync began."""
    for call in calls:
        require(all(each.mode != "foreign" for each in world.postures), f"a job of another controller: {call}")
        if call.verb == "create":
            _judge_create(world, call)
        elif call.verb == "delete":
            require(call.resource != TFJOBS, "jobs are their users'")
            _judge_delete(world, call)
        elif call.verb == "patch":
            require(call.rv is not None, "a status is written over whatever is there")


def _judge_create(world: State, call: Call) -> None:
    owner = call.body[0]
    there = next((each for each in _children(world, call.resource) if each.name == call.name), None)
    unseen = there is not None and (call.resource, there.uid) in world.made
    require(
        not unseen, f"create of {call.resource} {call.name}, which this operator has made, and only has not seen yet"
    )
    reasons = set()
    for each in world.postures:
        reason = each.mode if each.uid != owner or each.mode != "live" else _objection(world, each, call)
        if not reason:
            return
        reasons.add(reason)
    require(False, f"create of {call.resource} {call.name} for a job or replica that is {', '.join(sorted(reasons))}")


def _objection(world: State, each: Posture, call: Call) -> str:
    """Return why a live job does not need the child that is created; "" if it does."""
    if not each.runtime_id or f"-{each.runtime_id}" not in call.name:
        return "named by a RuntimeId that is not in the status"
    if call.resource == CONFIG_MAPS:
        spec = spec_of(each.spec)
        return "" if spec is not None and spec.has_servers else "without servers that need a program"
    if call.body not in wanted(each.spec, each.uid):
        return "not wanted"
    if call.resource == SERVICES:
        return ""
    if not each.begun:
        return "not said to have begun"
    if call.body in each.finished:
        return "finished"
    born = dict(world.births)
    lacks = any(
        f"{SERVICES}/{name}" not in born for name in _names(wanted(each.spec, each.uid), each.runtime_id).values()
    )
    return "without its services" if lacks else ""


def _names(slots: Iterable[Slot], runtime_id: str) -> dict[Slot, str]:
    return {slot: f"{slot[1].lower()}-{runtime_id}-{slot[2]}" for slot in slots}


def _judge_delete(world: State, call: Call) -> None:
    require(call.uid is not None, f"delete of {call.resource} {call.name}, whosever it is by then")
    child = next((each for each in _children(world, call.resource) if each.uid == call.uid), None)
    if child is None or any(each.uid != child.owner for each in world.postures):
        return  # it is gone, or goes with its job
    modes = {each.mode for each in world.postures}
    require("held" not in modes or len(modes) > 1, f"delete of {call.name} of a job that is held")
    if "ended" in modes:
        _judge_clean_up(world, call, child)
        return
    surplus = any(each.mode == "live" and not _is_asked_for(each, call, child) for each in world.postures)
    require(surplus, f"delete of {call.resource} {call.name} of a job that is {', '.join(sorted(modes))} and needs it")


def _is_asked_for(each: Posture, call: Call, child: Child) -> bool:
    spec = spec_of(each.spec)
    if spec is None:
        return True
    if call.resource == CONFIG_MAPS:
        return spec.has_servers and child.name == f"cm-ps-{each.runtime_id}"
    return child.slot in wanted(each.spec, each.uid) and f"-{each.runtime_id}-" in child.name


def _judge_clean_up(world: State, call: Call, child: Child) -> None:
    """With policy None everything stays; with Running, Jobs stay that the operator's cache shows as ended, with their logs."""
    policies = {spec.cleanup_policy for each in world.postures if (spec := spec_of(each.spec)) is not None}
    require(policies != {CleanPodPolicy.NONE}, f"clean-up takes {call.name}, and the policy is None")
    seen = next((each for each in world.mind.cached[1] if each.uid == child.uid), None)
    ended = call.resource == JOBS and seen is not None and seen.phase == COMPLETE  # type: ignore[union-attr]
    require(not ended or policies != {CleanPodPolicy.RUNNING}, f"clean-up takes {call.name}, which has ended")


def judge_step(before: State, after: State) -> None:
    """Judge one step of the world."""
    if after.batch_jobs is not before.batch_jobs:
        slots = [each.slot for each in after.batch_jobs if each.uid != STRANGER]
        require(len(slots) == len(set(slots)), "two Jobs for one replica")
    old, new = before.job, after.job
    if old is None or new is None or old.uid != new.uid or old.status == new.status:
        return
    was, now = status_of(old.status), status_of(new.status)
    if was.begun is not None:
        require(now.begun is not None, "a beginning is forgotten")
        require(was.runtime_id == now.runtime_id, f"the RuntimeId changes from {was.runtime_id} to {now.runtime_id}")
    require(finished_in(old) <= finished_in(new), "a finished replica is forgotten")
    wrong = finished_in(new) - after.done
    require(not wrong, f"a success is recorded of {sorted(wrong)}, and there was none")
    require((now.state in {"Succeeded", "Failed"}) == has_ended(new), f"{now.state}, and {sorted(told(new))}")
    if has_ended(old):
        require(told(new) == told(old), f"a job that has ended goes on: {sorted(told(old))}, then {sorted(told(new))}")
        require(now.completion_time == was.completion_time, "a job ends a second time")
    elif has_ended(new):
        _judge_end(old, new, after)


def _judge_end(old: Job, job: Job, world: State) -> None:
    """A job ends as its chief has ended, and never by an edit once it has begun."""
    status, spec = status_of(job.status), spec_of(job.spec)
    reasons = {each.reason for each in status.conditions or () if each.type == ConditionType.FAILED}
    if ConditionReason.INVALID in reasons:
        require(status_of(old.status).begun is None, "an edit has ended a job that had begun")
        return
    require(spec is not None, "a job that is held ends")
    assert spec is not None
    chief = chief_of(spec, job.uid)
    if ConditionType.SUCCEEDED in told(job):
        require(chief in world.done, "the job has succeeded, and its chief has not")
    else:
        require(chief in world.lost, "the job has failed, and its chief has not")


def at_rest(world: State) -> bool:
    """Whether the operator has nothing to do, and no event is on its way to it."""
    mind = world.mind
    waits = mind.calls is not None or mind.ready or mind.due == 1 or world.adrift
    return not (waits or any(getattr(world, field) for field in PENDING.values()))


def judge_rest(world: State) -> None:
    """Judge a world in which nothing more happens by itself: it must be what the user asked for."""
    job = world.job
    uid = job.uid if job is not None else None
    ours = [each for resource in (JOBS, SERVICES, CONFIG_MAPS) for each in _children(world, resource)]
    require(all(child.owner == uid for child in ours), "children have outlived their job")
    batch_jobs = {each.uid for each in world.batch_jobs}
    require(all(pod.owner in batch_jobs for pod in world.pods), "pods have outlived their Job")
    if job is None:
        return
    mode = mode_of(job)
    if mode == "foreign":
        require(not ours and job.status == NO_STATUS, "a job of another controller was touched")
        return
    require(mode != "invalid", "a job is left invalid")
    require(status_of(job.status).observed_generation == job.generation, "the last edit was not observed")
    if mode == "ended":
        _judge_ended(job, world)
    elif mode == "held":
        require(ConditionType.HELD in told(job), f"held, but {sorted(told(job))}")
    else:
        _judge_live(job, world)


def _judge_ended(job: Job, world: State) -> None:
    status, spec = status_of(job.status), spec_of(job.spec)
    require(status.completion_time is not None, "an end without a time")
    never_began = any(each.reason == ConditionReason.INVALID for each in status.conditions or ())
    require(status.phase == ("Failed" if never_began else "Done"), f"ended, and the phase is {status.phase}")
    if spec is None and not never_began:
        return
    policy = CleanPodPolicy.RUNNING if spec is None or never_began else spec.cleanup_policy
    if policy == CleanPodPolicy.NONE:
        return
    require(not world.config_maps, "ended, and the program is left")
    staying = {each.name for each in world.batch_jobs if policy == CleanPodPolicy.RUNNING and has_good_pod(world, each)}
    left = {each.name for each in (*world.batch_jobs, *world.services) if each.uid != STRANGER} - staying
    require(not left, f"ended, and under {policy} {sorted(left)} is left")


def _judge_live(job: Job, world: State) -> None:
    spec, status = spec_of(job.spec), status_of(job.status)
    assert spec is not None
    finished, asked = finished_in(job), wanted(job.spec, job.uid)
    names = _names(asked, status.runtime_id)
    require(status.begun is not None, "it never begins")
    require(ConditionType.HELD not in told(job), f"good, but {sorted(told(job))}")
    jobs = {each.slot: each for each in world.batch_jobs if each.uid != STRANGER}
    require({slot: each.name for slot, each in jobs.items()}.items() <= names.items(), f"Jobs {jobs} of {names}")
    require(asked - finished <= jobs.keys(), f"no Jobs of {sorted(asked - finished - jobs.keys())}")
    services = {each.name for each in world.services if each.uid != STRANGER}
    require(services == set(names.values()), f"services {sorted(services)} of {sorted(names.values())}")
    program = {f"cm-ps-{status.runtime_id}"} if spec.has_servers else set()
    require({each.name for each in world.config_maps} == program, f"{world.config_maps}, and needed is {program}")
    good = {slot for slot, each in jobs.items() if has_good_pod(world, each)}
    require(good & asked <= finished, f"nobody knows that {sorted(good - finished)} have succeeded")
    chief = chief_of(spec, job.uid)
    require(chief not in finished, "its chief has succeeded, and it goes on")
    own = jobs[chief]
    failed = [pod for pod in world.pods if pod.owner == own.uid and fails_for_good(pod)]
    require(not failed, f"its chief has failed, and it goes on: {failed}")
    if has_active_pod(world, own):
        require(ConditionType.RUNNING in told(job), f"its chief runs, but {sorted(told(job))}")


def _children(world: State, resource: str) -> list[Child]:
    fields = {JOBS: world.batch_jobs, SERVICES: world.services, CONFIG_MAPS: world.config_maps, PODS: world.pods}
    return [each for each in fields[resource] if each.uid != STRANGER]
