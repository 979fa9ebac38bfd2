"""The properties: what must never happen, and what must hold in the end. Based on the docs, without the operator's code."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, cast

from tfjob_operator.api.core import TERMINAL, PodPhase
from tfjob_operator.api.v1.conditions import is_end
from tfjob_operator.api.v1.constants import (
    WORKER,
    CleanPodPolicy,
    ConditionReason,
    ConditionType,
    Network,
    SuccessPolicy,
)
from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus
from worlds.kubelet import OWN_GRACE, has_sidecar
from worlds.values import LONG_S, NO_STATUS, Call, Child, Job, now_at, policy_of, spec_of, status_of
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
    finished_in,
    mode_of,
    record_of,
    require,
    written_as_finished,
)

MOST_REMEMBERED: Final = 5
GIVEN_UP_S: Final = 60
"""The end of a queued job waits so much longer for a pod than the pod's grace period."""
ENDS: Final = frozenset({ConditionType.SUCCEEDED, ConditionType.FAILED})
OVER: Final = frozenset({"ending", "ended"})
MAX_RESTARTS: Final = "as often as maxRestarts allows"
NOBODY: Final = ReplicaStatus()
"""The counters of a job whose specification was never valid."""


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
    spec = spec_of(job.spec)
    if spec is None:
        return frozenset()
    return frozenset((job.uid, each.type, index) for each in spec.replicas.values() for index in range(each.replicas))


def wanted_services(job: Job, slots: frozenset[Slot]) -> frozenset[Slot]:
    """The services that these replicas of a job need: each its own, or all one."""
    return frozenset({(job.uid, "", 0)}) if slots and _shares(job.spec) else slots


def _shares(spec: bytes) -> bool:
    found = spec_of(spec)
    return found is not None and found.network is Network.SHARED


def told(status: JobStatus) -> list[str]:
    return [condition.type for condition in status.conditions if condition.status == "True"]


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
        elif call.resource == SERVICES and (replica_type == "") != _shares(each.spec):
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
    was, now = status_of(old.status), status_of(new.status)
    _judge_success(new, finished_in(new) - finished_in(old), after)
    _judge_attempt(old, new, after)
    if ENDS & set(told(was)):
        require(told(now) == told(was), f"a job that has ended goes on: {told(was)}, then {told(now)}")
        require(now.completion_time == was.completion_time, "a job ends a second time")
    elif record_of(old) is not None:
        _judge_ending(old, new, after)
    elif ENDS & set(told(now)) or record_of(new) is not None:
        _judge_end(old, new, after)
    require(not set(told(now)) >= ENDS, "a job has two ends")
    require(
        len({ConditionType.RUNNING, ConditionType.RESTARTING} & set(told(now))) < 2, "Running and Restarting at once"
    )
    begins = now.attempt > was.attempt  # then all replicas may run again
    require(begins or finished_in(old) <= finished_in(new), "a finished replica is forgotten")
    failures = dict(after.failures)
    totals = {(new.uid, each.type, each.index): each.total for each in now.restarts}
    for each in was.restarts:
        slot = new.uid, each.type, each.index
        require(totals.get(slot, 0) >= each.total, f"restarts of {slot} are forgotten")
    for slot, total in totals.items():
        require(
            total <= failures.get(slot, 0), f"{slot} has failed {failures.get(slot, 0)} times, and {total} are counted"
        )


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


def _judge_success(job: Job, recorded: frozenset[Slot], world: State) -> None:
    """What is recorded as a success was one: not an exit on SIGTERM, and not an end after which the kubelet restarts it."""
    wrong = {slot for slot in recorded if slot not in world.done}
    require(not wrong, f"a success is recorded of {wrong}, and there was none")


def _judge_end(old: Job, job: Job, world: State) -> None:
    """A job ends as its replicas have ended, and never by an edit once it has begun."""
    status, record, began = status_of(job.status), record_of(job), dict(world.begun)
    last = status.conditions[-1]
    kind, reason, message = last.type, last.reason, last.message
    if record is not None:
        kind, reason, message = ConditionType(record.type), record.reason, record.message
    if is_end(last):
        require(kind == last.type, f"the end is {last.type}, and {kind} was decided")
        _judge_quota(job, old.queued, world)
    else:
        require(old.queued and _active(status), f"the end waits, and active are {_active(status)}")
    if reason == ConditionReason.INVALID and job.uid in began:
        refused = spec_of(job.spec) is not None and job.generation <= began[job.uid]
        require(refused, "an edit has ended a job that had begun")
    if mode_of(world, old) == "held":
        require(reason == ConditionReason.LIMIT, f"a job that is held ends by {reason}")
    elif reason == ConditionReason.LIMIT and MAX_RESTARTS in message:
        require((job.uid, status.attempt) in world.upset, f"attempt {status.attempt} ends the job, and has not failed")
    elif kind == ConditionType.SUCCEEDED:
        require(_has_succeeded(job, world.done), "the job has succeeded, and what decides has not")
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


def _active(status: JobStatus) -> int:
    return sum(each.active for each in status.replica_statuses.values())


def _judge_ending(old: Job, job: Job, world: State) -> None:
    """Nothing reverts a decision. Until the condition is written, the status stands still for those who read it."""
    was, now, record = status_of(old.status), status_of(job.status), record_of(old)
    assert record is not None
    require(record_of(job) == record, f"a decision is reverted: {record}, then {record_of(job)}")
    if any(map(is_end, now.conditions)):
        require(told(now)[-1] == record.type, f"the end is {told(now)}, and {record.type} was decided")
        require(now.completion_time == record.completion_time, "a job ends at another time than was decided")
        _judge_quota(job, True, world)
    else:
        require(now.conditions == was.conditions, f"a decision is reverted: {told(was)}, then {told(now)}")
        require(now.replica_statuses == was.replica_statuses, "counters change before the end is written")


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
    if mode_of(world, job) == "live" and _has_succeeded(job, world.done) and _workers(job, world):
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
    status, mode = status_of(job.status), mode_of(world, job)
    if mode == "foreign":
        require(not pods and not world.services and job.status == NO_STATUS, "a job of another controller was touched")
        return
    require(mode not in {"invalid", "deleting", "ending"}, f"a job is left {mode}")
    require(status.observed_generation == job.generation, "the last edit was not observed")
    if mode == "suspended":
        require(told(status)[-1] == ConditionType.SUSPENDED, f"suspended, but {told(status)}")
        require(not pods and not world.services, "a suspended job has children")
    elif mode == "ended":
        _judge_ended(job, pods, world)
    elif mode == "held" or (job.uid in world.refused and ConditionType.HELD in told(status)):
        _judge_held(job, pods, world)
    else:
        _judge_live(job, pods, world)
    _judge_counters(job, status, mode, pods)


def _judge_ended(job: Job, pods: list[Child], world: State) -> None:
    spec, status = spec_of(job.spec), status_of(job.status)
    require(status.completion_time is not None, "an end without a time")
    policy = policy_of(job.spec).clean_pod_policy
    going = [pod.name for pod in pods if not has_ended(pod)]
    limited = any(condition.reason == ConditionReason.LIMIT for condition in status.conditions)
    require(not going or (policy == CleanPodPolicy.NONE and not limited), f"ended, but there is {going}")
    require(policy != CleanPodPolicy.ALL or not pods, "not cleaned up")
    if policy != CleanPodPolicy.NONE:
        needed = wanted_services(job, frozenset(pod.slot for pod in pods))
        orphans = {service.name for service in world.services if service.slot not in needed}
        require(not orphans, f"services without pods: {orphans}")
    if spec is not None and spec.ttl_s is not None:
        ended = next(each.last_transition_time for each in status.conditions if is_end(each))
        require(now_at(world.epoch) == ended, "the job has outlived its TTL")


def _judge_held(job: Job, pods: list[Child], world: State) -> None:
    status = status_of(job.status)
    require(ConditionType.HELD in told(status), f"held, but {told(status)}")
    require(
        told(status)[-1] == status.conditions[-1].type != ConditionType.HELD, f"the last condition: {status.conditions}"
    )
    written = written_as_finished(world)
    require({pod.slot for pod in pods if did_its_work(pod)} <= written, "a success is not in the status")
    deadline_s = policy_of(job.spec).active_deadline_s
    idle = deadline_s is None or ConditionType.SUSPENDED in told(status) or status.start_time == now_at(world.epoch)
    require(idle, "the deadline has passed")


def _judge_live(job: Job, pods: list[Child], world: State) -> None:
    spec, status = spec_of(job.spec), status_of(job.status)
    assert spec is not None
    written = written_as_finished(world)
    require({pod.slot for pod in pods if did_its_work(pod)} <= written, "a success is not in the status")
    needed = wanted(job) - written
    running = {pod.slot for pod in pods if _runs(pod)}
    require(running == needed, f"pods of {pods}, and needed are {needed}")
    require(wanted_services(job, needed) <= {service.slot for service in world.services}, "a service is missing")
    require(all(_runs(pod) or did_its_work(pod) for pod in pods), f"not running: {pods}")
    require(not _has_succeeded(job, written), "all that decides has succeeded, and the job goes on")
    require(ConditionType.RUNNING in told(status), f"running, but {told(status)}")
    require(ConditionType.HELD not in told(status), f"good, but {told(status)}")
    require(spec.active_deadline_s is None or status.start_time == now_at(world.epoch), "the deadline has passed")
    require(all(pod.attempt == status.attempt or did_its_work(pod) for pod in pods), f"not of this attempt: {pods}")
    policed = spec.failure_policy is not None  # here each policy has one rule, which is about every failure
    require(
        not policed or (job.uid, status.attempt) not in world.upset, f"attempt {status.attempt} has failed, and goes on"
    )
    require(status.observed_restart_request == job.requested, "a requested restart is not made")
    if spec.backoff_limit is not None:
        require(sum(each.total for each in status.restarts) <= spec.backoff_limit, "over the back-off limit")


def _runs(pod: Child) -> bool:
    return pod.phase == "Running" and pod.exit_code is None and not pod.terminating


def _has_succeeded(job: Job, finished: frozenset[Slot]) -> bool:
    spec = spec_of(job.spec)
    assert spec is not None
    left = {(name, index) for _, name, index in wanted(job) - finished}
    types = {name for _, name, _ in wanted(job)}
    deciding = next((name for name in ("Chief", "Master", "Worker") if name in types), None)
    if deciding is None:
        return not left
    if deciding == "Worker" and spec.success_policy != SuccessPolicy.ALL_WORKERS and ("Worker", 0) not in left:
        return True
    return all(name != deciding for name, _ in left)


def _judge_counters(job: Job, status: JobStatus, mode: str, pods: list[Child]) -> None:
    spec = spec_of(job.spec)
    if spec is None:
        return
    for name in spec.replicas:
        mine = [pod for pod in pods if pod.type == name and pod.slot in wanted(job)]
        told_of = status.replica_statuses.get(name, NOBODY)
        running = 0 if ConditionType.SUCCEEDED in told(status) else sum(_runs(pod) for pod in mine)
        require(told_of.active == running, f"{name}: {running} run, and active is {told_of.active}")
        if mode != "ended":
            done = len([slot for slot in finished_in(job) & wanted(job) if slot[1] == name])
            require(told_of.succeeded == done, f"{name}: {done} have succeeded, and succeeded is {told_of.succeeded}")
            failed = sum(pod.phase == "Failed" for pod in mine)
            require(told_of.failed == failed, f"{name}: {failed} have failed, and failed is {told_of.failed}")
