"""The properties: what must never happen, and what must hold in the end. Based on the docs, without the operator's code."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, cast

from judge.jobs import decision_of, desired_job, ending_of
from judge.rest import JobAtRest, PodAtRest
from judge.slots import moment
from judge.writes import decision_mistakes, status_mistakes
from tfjob_operator.api.core import TERMINAL, PodPhase
from tfjob_operator.api.v1.conditions import is_end
from tfjob_operator.api.v1.constants import (
    WORKER,
    CleanPodPolicy,
    ConditionReason,
    ConditionType,
    Network,
)
from worlds.kubelet import OWN_GRACE, has_sidecar
from worlds.values import LONG_S, Call, Child, Job, body_of, now_at, policy_of, spec_of, status_of
from worlds.world import (
    PODS,
    SERVICES,
    STRANGER,
    TFJOBS,
    Posture,
    Slot,
    State,
    attempt_of,
    children,
    has_started,
    mode_of,
    record_of,
    require,
    written_as_finished,
)

MOST_REMEMBERED: Final = 5
GIVEN_UP_S: Final = 60
"""The end of a queued job waits so much longer for a pod than the pod's grace period."""
OVER: Final = frozenset({"ending", "ended"})
MAX_RESTARTS: Final = "as often as maxRestarts allows"


def is_over(pod: Child) -> bool:
    """Whether `tensorflow` runs no more and will not again. The phase may not say so yet."""
    if pod.phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        return True
    return pod.exit_code is not None and (pod.terminating or pod.left)


def has_ended(pod: Child) -> bool:
    """Whether nothing of the pod runs and nothing will."""
    return is_over(pod) and not (has_sidecar(pod) and pod.phase == PodPhase.RUNNING)


def lingers(pod: Child) -> bool:
    """Whether `tensorflow` has ended, and a sidecar runs on that nobody has asked to stop."""
    return has_sidecar(pod) and pod.phase == PodPhase.RUNNING and is_over(pod) and not (pod.terminating or pod.targeted)


def did_its_work(pod: Child) -> bool:
    """Whether the pod itself shows that it has succeeded, and that nobody had asked it to stop before."""
    if pod.exit_code != 0 or not pod.left or pod.targeted or pod.reason:
        return False
    if pod.grace is None:
        return True
    return pod.asked == pod.grace == OWN_GRACE and pod.ended < pod.leaves - pod.grace


def wanted(job: Job) -> frozenset[Slot]:
    return frozenset((job.uid, *slot) for slot in desired_job(body_of(job)).slots)


# What the operator asks for.


def judge_sent(world: State, calls: Iterable[Call]) -> None:
    """Judge requests as they leave. Each must have been right at one moment at least since the sync began."""
    for call in calls:
        if call.verb == "create":
            _judge_create(world, call)
        elif call.verb == "delete" and call.resource != TFJOBS:
            _judge_delete(world, call)
        elif call.verb == "delete":
            due = world.epoch > 0 and any(_has_ttl(each) for each in world.postures if each.mode == "ended")
            gone = any(each.uid != call.uid for each in world.postures)
            require(due or gone, "a job is deleted that has not ended, or before its time")
        require(all(each.mode != "foreign" for each in world.postures), f"a job of another controller: {call}")


def _has_ttl(stand: Posture) -> bool:
    return policy_of(stand.spec).ttl_s is not None


def _judge_create(world: State, call: Call) -> None:
    owner, replica_type, index = call.body
    there = next((each for each in children(world, call.resource) if each.slot == call.body), None)
    unseen = there is not None and (call.resource, there.uid) in world.made
    require(
        not unseen, f"create of {call.resource} {call.name}, which this operator has made, and only has not seen yet"
    )
    require(call.attempt <= attempt_of(world.job), f"{call.name} of attempt {call.attempt}, which is not written")
    reasons = set()
    # Any version of a job that nobody has worked on may be acted upon, but only with what has succeeded by now.
    excused = {each._replace(finished=now.finished) for each in world.untouched for now in world.postures}
    for each in world.postures | excused:
        spec = spec_of(each.spec)
        if each.uid != owner or each.mode != "live" or spec is None:
            reasons.add(each.mode)
        elif call.resource == SERVICES and (replica_type == "") != (spec.network is Network.SHARED):
            reasons.add("not wanted")  # another network
        elif replica_type == "":
            return
        elif replica_type not in spec.replicas or index >= spec.replicas[replica_type].replicas:
            reasons.add("not wanted")
        elif call.body in each.finished and all(pod.slot != call.body for pod in world.pods):
            reasons.add("finished")  # while its pod exists the name is taken, and no harm is done
        else:
            return
    require(False, f"create of {call.resource} {call.name} for a job or replica that is {', '.join(sorted(reasons))}")


def _judge_delete(world: State, call: Call) -> None:
    kind = world.pods if call.resource == PODS else world.services
    child = next((each for each in kind if each.uid == call.uid and each.name == call.name), None)
    if child is None or any(each.uid != child.owner for each in world.postures):
        return  # it is gone, or goes with its job
    modes = {each.mode for each in world.postures if each.uid == child.owner}
    surplus = any(
        (spec := spec_of(each.spec)) is not None
        and child.type != ""
        and (child.type not in spec.replicas or child.place >= spec.replicas[child.type].replicas)
        for each in world.postures
        if each.uid == child.owner
    )
    if call.resource == SERVICES:
        done = any(child.slot in each.finished for each in world.postures)
        require(
            surplus or done or modes & {"suspended", "ended"}, f"delete of service {call.name} of a job that needs it"
        )
        return
    require(modes != {"held"}, f"delete of pod {call.name} of a job that is held")
    require(modes <= OVER or not modes & OVER, f"delete of pod {call.name} together with the decision how its job ends")
    if not surplus:
        _judge_grace(world, child)
    failed = is_over(child) and not did_its_work(child)
    surplus |= child.attempt < attempt_of(world.job)
    require(
        surplus or failed or modes & {"suspended", *OVER},
        f"delete of pod {call.name}, which is {child.phase}, of a job that is {', '.join(sorted(modes))}",
    )
    if modes == {"ended"}:
        _judge_clean_up(world, child, call)
    elif modes <= OVER:
        shown = [each.phase for each in (child, *_seen_at_first(world, child))]
        require(
            not all(map(TERMINAL.__contains__, shown)),
            f"delete of {call.name}, which has ended, before the end is written",
        )
    if modes <= {"live", "suspended"} and not surplus:
        _judge_evidence(world, child, live=modes == {"live"})


def _seen_at_first(world: State, child: Child) -> list[Child]:
    """The pod as the operator's cache showed it when this sync began."""
    start = world.mind.start or world.mind
    return [each for each in cast("tuple[Child, ...]", start.cached[1]) if each.uid == child.uid]


def _judge_grace(world: State, child: Child) -> None:
    """A pod that lingers is deleted once its grace is over. It begins when the reason for the delete is written."""
    job = world.job
    suspended = any(policy_of(each.spec).suspend for each in world.postures)
    seen = _seen_at_first(world, child)
    if job is None or suspended or not (lingers(child) and all(map(lingers, seen))):
        return
    since = _lingers_since(job, child)
    require(
        since is not None and since < now_at(world.epoch), f"delete of {child.name} within the grace of its sidecar"
    )


def _lingers_since(job: Job, pod: Child) -> datetime | None:
    """When the grace of a pod began: with the end of the job or of its attempt, or when its failure was recorded."""
    status, record = status_of(job.status), record_of(job)
    times = [each.failed_at for each in status.restarts if each.pod == pod.uid]
    times += [each.end_time for each in status.attempt_history if each.number == pod.attempt]
    times += [record.time] if record is not None else []
    return min((each for each in times if each is not None), default=None)


def _judge_clean_up(world: State, child: Child, call: Call) -> None:
    """A pod that has ended stays, with its logs, unless the policy is All. A delete of an old version is refused: no harm."""
    seen = [each for each in world.mind.cached[1] if each.uid == child.uid]
    looked_at = [each for each in (child, *cast("list[Child]", seen)) if call.body in {None, each.version}]
    takes_all = any(policy_of(each.spec).clean_pod_policy == CleanPodPolicy.ALL for each in world.postures)
    require(
        takes_all or not any(map(has_ended, looked_at)), f"clean-up takes {call.name}, which has ended, and its logs"
    )


def _judge_evidence(world: State, child: Child, *, live: bool) -> None:
    """A delete destroys evidence: the success or failure that the pod shows must have been written before."""
    job = world.job
    if job is None or job.uid != child.owner:
        return
    known_success = child.slot in world.known and did_its_work(child)
    require(
        not known_success or child.slot in written_as_finished(world), f"the success of {child.name} is not written"
    )
    if live and is_over(child) and child.exit_code and not child.reason and not child.terminating:
        records = [each for each in status_of(job.status).restarts if (each.type, each.index) == child.slot[1:]]
        counted = any(each.pod == child.uid and each.replaced for each in records)
        require(counted, f"the failure of {child.name} is not written before its pod is deleted")


# What is on the server.


def judge_step(before: State, after: State) -> None:
    if after.pods is not before.pods:
        slots = [pod.slot for pod in after.pods if pod.owner_kind == "TFJob"]
        require(len(slots) == len(set(slots)), "two pods for one index")
    old, new = before.job, after.job
    if old is None or new is None or old.uid != new.uid or old.status == new.status:
        return
    was, now = body_of(old), body_of(new)
    _judge_attempt(old, new, after)
    if ending_of(was) is None and ending_of(now) is not None:
        _judge_quota(new, old.queued or record_of(old) is not None, after)
    failures = {slot[1:]: count for slot, count in after.failures if slot[0] == new.uid}
    for mistake in status_mistakes(was, now, _done(after, new), lambda slot: failures.get(slot, 0)):
        require(False, mistake)
    if decision_of(was) is None and decision_of(now) is not None:
        _judge_end(new, after)


def _judge_attempt(old: Job, job: Job, world: State) -> None:
    """A whole-job restart has one reason, a failure of its attempt or a request, and is counted once, for a failure alone."""
    was, now, spec = status_of(old.status), status_of(job.status), spec_of(job.spec)
    upset, requested = (
        (job.uid, was.attempt) in world.upset,
        now.observed_restart_request != was.observed_restart_request,
    )
    more, counted = now.attempt - was.attempt, now.counted_restarts - was.counted_restarts
    ended = any(map(is_end, now.conditions)) or record_of(job) is not None
    require(not (more and ended), "a job that has ended restarts")
    require(0 <= counted <= more <= 1, f"{more} more attempts, and {counted} more are counted")
    if more:
        require(upset if counted else requested, f"attempt {was.attempt} ends, and nobody knows why")
        assert spec is not None
        most = spec.failure_policy.max_restarts if spec.failure_policy is not None else None
        require(not counted or now.counted_restarts <= (most or 0), f"{now.counted_restarts} counted restarts")
    require(more or not requested or ended or was.begun is None, "a requested restart is noted, and not made")
    require(len(now.attempt_history) >= min(now.attempt, MOST_REMEMBERED), "an attempt is not remembered")


def _judge_end(job: Job, world: State) -> None:
    """A job ends as its replicas have ended, and never by an edit once it has begun."""
    status, began, end = status_of(job.status), dict(world.begun), decision_of(body_of(job))
    assert end is not None
    kind, reason = end["type"], end["reason"]
    begun = job.uid in began and not (
        spec_of(job.spec) is not None and job.generation <= began[job.uid]
    )  # else the API server refused a pod
    for mistake in decision_mistakes(body_of(job), _done(world, job), begun=begun, refused=job.uid in world.refused):
        require(False, mistake)
    if reason == ConditionReason.LIMIT and MAX_RESTARTS in end["message"]:
        require((job.uid, status.attempt) in world.upset, f"attempt {status.attempt} ends the job, and has not failed")
    elif kind == ConditionType.SUCCEEDED:
        seen = any(_runs(each) for pod in _workers(job, world) for each in _seen_at_first(world, pod))
        require(not (seen and world.won == world.epoch), "a success did not wait for workers")
    elif reason not in {ConditionReason.LIMIT, ConditionReason.INVALID}:
        require(any(slot in world.lost for slot in wanted(job)), "the job has failed, and none of its replicas has")


def _workers(job: Job, world: State) -> list[Child]:
    """The running workers for which the job's success waits."""
    spec = spec_of(job.spec)
    if spec is None or spec.completion_grace_s is None:
        return []
    return [pod for pod in world.pods if pod.type == WORKER and _runs(pod)]


def _judge_quota(job: Job, queued: bool, world: State) -> None:
    """Kueue frees the quota of a job that has ended: no pod may hold it then, unless it is kept or was waited for in vain."""
    status, record, now_s = status_of(job.status), record_of(job), LONG_S * world.epoch
    limited = status.conditions[-1].reason == ConditionReason.LIMIT
    keeps = policy_of(job.spec).clean_pod_policy == CleanPodPolicy.NONE and not limited
    kept = wanted(job) if keeps else frozenset()
    holding = [pod for pod in world.pods if pod.owner == job.uid and pod.phase not in TERMINAL]
    decided = now_at(world.epoch) if record is None or record.time is None else record.time
    late = decided + timedelta(seconds=OWN_GRACE + GIVEN_UP_S) <= now_at(world.epoch)
    for pod in holding if queued else ():
        given_up = pod.leaves + GIVEN_UP_S <= now_s if pod.terminating else has_ended(pod) and late
        is_kept = pod.slot in kept and pod.attempt == status.attempt
        require(given_up or is_kept, f"the end of a queued job is written, and {pod.name} holds its quota")


# What must be in the end.


def at_rest(world: State) -> bool:
    """Whether the operator has nothing to do, now or later, and no event is on its way to it."""
    return is_idle(world) and not waits(world)


def waits(world: State) -> bool:
    """Whether the job goes on by time alone: a restart is delayed, or workers that succeeded or sidecars may run on."""
    job, now = world.job, now_at(world.epoch)
    if job is None:
        return False
    status = status_of(job.status)
    if status.next_restart_time is not None and status.next_restart_time > now:
        return True
    if any(lingers(pod) and _lingers_since(job, pod) == now for pod in world.pods):
        return True
    if mode_of(world, job) == "live" and desired_job(body_of(job)).is_done(_done(world, job)) and _workers(job, world):
        return world.epoch == max(world.won, world.born)  # a restarted operator waits again
    record = record_of(job)
    ends = record is not None and record.type == ConditionType.SUCCEEDED and record.time == now
    return ends and any(pod.type == WORKER and _runs(pod) for pod in world.pods)


def is_idle(world: State) -> bool:
    """Whether the operator has nothing to do now, and no event is on its way to it."""
    mind = world.mind
    return not (
        mind.calls is not None
        or mind.ready
        or mind.due == 1
        or world.pending_jobs
        or world.pending_pods
        or world.pending_services
        or world.adrift
    )


def judge_rest(world: State) -> None:
    """Judge a world in which nothing more happens by itself: it must be what the user asked for."""
    job = world.job
    uid = job.uid if job is not None else None
    pods = [pod for pod in world.pods if pod.uid != STRANGER]
    require(all(child.owner == uid for child in (*pods, *world.services)), "children have outlived their job")
    if job is None:
        return
    status, now = status_of(job.status), now_at(world.epoch)
    found = JobAtRest(
        body_of(job),
        {pod.slot[1:]: _at_rest(pod) for pod in pods},
        {service.slot[1:] for service in world.services},
        begun=has_started(world, job),
        restarts=sum(each.total for each in status.restarts),
        kept={pod.slot[1:] for pod in pods if did_its_work(pod)},
        refused=job.uid in world.refused,
        is_due=lambda since: moment(since) != now,
    )
    for complaint in found.complaints():
        require(False, complaint)
    spec, upset = spec_of(job.spec), (job.uid, status.attempt) in world.upset
    if mode_of(world, job) == "live" and spec is not None and spec.failure_policy is not None:
        # Here each policy has one rule, which is about every failure.
        require(not upset, f"attempt {status.attempt} has failed, and goes on")


def _at_rest(pod: Child) -> PodAtRest:
    succeeded, runs = did_its_work(pod), _runs(pod)
    return PodAtRest(pod.phase, pod.attempt, runs, succeeded, not (runs or succeeded), pod.restarts)


def _runs(pod: Child) -> bool:
    return pod.phase == "Running" and pod.exit_code is None and not pod.terminating


def _done(world: State, job: Job) -> set[tuple[str, int]]:
    """The replicas of a job that have succeeded."""
    return {slot[1:] for slot in world.done if slot[0] == job.uid}
