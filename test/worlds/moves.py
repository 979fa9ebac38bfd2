"""The possible moves in a world (a state of the search), and the resulting worlds.

There are three kinds. *Progress* happens eventually without interference: events arrive, requests are executed and answered,
a worker takes the key, a second passes, pods start and stop, garbage is collected, and a delay ends when nothing else can
happen. *Choices* may happen or not: a pod succeeds, the user makes the next edit. *Surprises* are faults, and are counted.

Simplifications: a request takes effect at one time; each watch keeps its order; long times pass only between syncs; caches list
objects in the order of names; a restarted operator starts at its predecessor's position in each watch or later; a pod that
has not started is removed as soon as it is deleted; the kubelet's last delete of a pod and the removal of the object are one
move, though two events; a create without a waiting client is not executed after another attempt has started, nor between the
list that shows that no pod of a queued job is left and the write of its end; a grace period longer than a pod's own is
shortened only after the operator has seen it.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from hack.kubernetes_versions import DISRUPTION_TARGET
from tfjob_operator.api.v1.conditions import is_end
from worlds.judge import at_rest, did_its_work, is_idle, is_over, judge_sent, judge_step, waits, wanted
from worlds.kubelet import (
    AFTER,
    AFTER_SECOND,
    BEFORE,
    LESS,
    MORE,
    OWN_GRACE,
    SAME_SECOND,
    ends,
    later,
    shut_down,
    starts_again,
)
from worlds.operator import NEVER, Mind, Operator
from worlds.settings import CLOCKS, FAILURES, Setting
from worlds.values import Answer, Call, Child, Event, Job, status_of
from worlds.world import (
    PENDING,
    PODS,
    SERVICES,
    STRANGER,
    TFJOBS,
    Slot,
    State,
    attempt_of,
    carry_out,
    children,
    delete_job,
    end_child,
    mode_of,
    observed,
    put_child,
    remove_child,
    written_as_finished,
)

READS: Final = frozenset({"get", "list"})
PROGRESS: Final = 0
CHOICE: Final = 1
SURPRISE: Final = 2

Move = tuple[Any, ...]
"""A kind (PROGRESS, CHOICE or SURPRISE), a name, and details."""
Step = tuple[Move, State]


class Moves:
    def __init__(self, setting: Setting, operator: Operator) -> None:
        self._setting = setting
        self._operator = operator

    def moves(self, world: State, *, surprises: bool) -> Iterator[Step]:
        """All moves with the worlds that they lead to. Raises WrongError when one shows the operator doing what it must not."""
        kinds = [self._of_the_operator, self._of_calls_adrift, self._of_the_cluster, self._choices]
        for kind in [*kinds, self._surprises] if surprises else kinds:
            for move, after in kind(world):
                yield move, self._settled(world, after)

    def _settled(self, before: State, world: State) -> State:
        """Judge what was done, note the job's posture, and then do at once what takes no time in this setting."""
        judge_step(before, world)
        world = observed(world)
        for resource, field in PENDING.items():
            pending = getattr(world, field)
            spare = len(pending) - (self._setting.lag if resource in self._setting.lags else 0)
            if spare > 0:
                mind = world.mind
                for event in pending[:spare]:
                    mind = self._operator.step(mind, world.epoch, "deliver", resource, event)
                world = _heard(world, mind, field, pending[spare:])
        after = self._at_once(world)
        if after is not None:
            return self._settled(world, after)
        for call in world.mind.calls or ():
            if call.resource not in self._setting.lags:
                after, answer = carry_out(world, call)
                return self._settled(world, self._answer(after, call, answer))
        return world

    def _of_the_operator(self, world: State) -> Iterator[Step]:
        mind = world.mind
        for resource, field in PENDING.items():
            pending = getattr(world, field)
            if pending:
                told = self._operator.step(mind, world.epoch, "deliver", resource, pending[0])
                yield (PROGRESS, "deliver", resource), _heard(world, told, field, pending[1:])
        if mind.due == 1:
            yield (PROGRESS, "second"), world._replace(mind=self._operator.step(mind, world.epoch, "second"))
        if is_idle(world) and waits(world):
            yield (PROGRESS, "leap"), self._leap(world)
        if mind.calls is None:
            if mind.ready:
                yield (PROGRESS, "start"), self._start(world)
            return
        answered = dict(world.answered)
        for call in mind.calls:
            if call.number in answered:
                answer = answered[call.number]
                yield (PROGRESS, "answer", *call[:4]), self._answer(world, call, answer)
            else:
                after, answer = carry_out(world, call)
                if (call.verb, call.resource) in self._setting.open:
                    after = after._replace(answered=(*after.answered, (call.number, answer)))
                    yield (PROGRESS, "carry out", *call[:4], answer.error), after
                else:
                    yield (PROGRESS, "carry out and answer", *call[:4], answer.error), self._answer(after, call, answer)

    def _start(self, world: State) -> State:
        mind = self._operator.step(world.mind, world.epoch, "start")
        after = observed(_seen(world._replace(mind=mind)))
        judge_sent(after, mind.calls or ())
        return after

    def _answer(self, world: State, call: Call, answer: Answer) -> State:
        before = world.mind.calls or ()
        mind = self._operator.step(world.mind, world.epoch, "answer", call.number, answer)
        left = tuple(each for each in world.answered if each[0] != call.number)
        new = [sent for sent in mind.calls or () if sent not in before]
        if call.verb == "create" and not answer.error:
            there = _objects(world, call.resource)
            made = {(call.resource, child.uid) for child in there if child.name == call.name}  # type: ignore[union-attr]
            world = world._replace(made=world.made | made)
        judge_sent(observed(world), new)
        return world._replace(mind=mind, answered=left)

    def _of_calls_adrift(self, world: State) -> Iterator[Step]:
        for number, call in enumerate(world.adrift):
            rest = world._replace(adrift=world.adrift[:number] + world.adrift[number + 1 :])
            yield (PROGRESS, "drop", *call[:4]), rest
            if call.resource == PODS and call.verb == "create" and not _may_come_late(world, call):
                continue
            yield (PROGRESS, "carry out late", *call[:4]), carry_out(rest, call)[0]

    def _choices(self, world: State) -> Iterator[Step]:
        for pod in world.pods:
            if _runs(pod) and pod.type not in self._setting.never_ends and not starts_again(pod, 0):
                yield (CHOICE, "succeed", pod.name), _ends(world, pod, 0)
            if _has_to_answer(world, pod):
                yield (CHOICE, "answer 0", pod.name), _answers(world, pod, 0, _after(pod))
        if not world.script:
            for number, change in enumerate(self._setting.edits, 1):
                yield (CHOICE, "edit", number), change(world)._replace(script=number)
        if world.script < len(self._setting.script):
            after = self._setting.script[world.script](world)
            yield (CHOICE, "edit", world.script), after._replace(script=world.script + 1)

    def _surprises(self, world: State) -> Iterator[Step]:
        may = self._setting.may
        mind = world.mind
        if "crash" in may:
            yield (SURPRISE, "crash"), self._crash(world)
        if "lose" in may:
            for call in mind.calls or ():
                yield (SURPRISE, "lose", *call[:4]), self._lose(world, call)
        if "relist" in may:
            for resource, field in PENDING.items():
                if len(getattr(world, field)) > 1:
                    told = self._operator.step(mind, world.epoch, "replace", resource, _objects(world, resource))
                    yield (SURPRISE, "relist", resource), _heard(world, told, field, ())
        if "leap" in may and mind.calls is None:
            yield (SURPRISE, "leap"), self._leap(world)
        if "refuse" in may:
            yield from self._refusals(world)
        for ahead in CLOCKS if "clock" in may else ():
            yield (SURPRISE, "clock", *ahead), world._replace(ahead=ahead)
        for pod in world.pods:
            yield from self._misfortunes_of(world, pod)

    def _refusals(self, world: State) -> Iterator[Step]:
        """The API server refuses a pod or a status."""
        for call in world.mind.calls or ():
            if call.number in dict(world.answered):
                continue
            if call.verb == "create" and call.resource == PODS:
                noted = world._replace(refused=world.refused | {call.body[0]})
                yield (SURPRISE, "refuse", *call[:4]), self._answer(noted, call, Answer("InvalidError"))
            if call.verb == "patch" and call.resource == TFJOBS:
                yield (SURPRISE, "refuse", *call[:4]), self._answer(world, call, Answer("InvalidError"))

    def _leap(self, world: State) -> State:
        leapt = self._operator.step(world.mind, world.epoch + 1, "leap")
        return world._replace(mind=leapt, epoch=world.epoch + 1, made=frozenset())

    def _crash(self, world: State) -> State:
        """Kill the operator and start it again. Calls may still be carried out later; what was only in memory is lost."""
        mind = world.mind
        answered = dict(world.answered)
        adrift = tuple(call for call in mind.calls or () if call.number not in answered and call.verb not in READS)
        adrift = (*world.adrift, *adrift)
        # Without the fence a call of the last life could come after its end; then the start of its term is not known.
        since = NEVER if adrift else world.head
        reborn = self._operator.born(world.epoch, mind.cached, since)
        dead = _forgotten(world)
        dead = dead._replace(mind=reborn, answered=(), adrift=adrift, postures=frozenset(), made=frozenset())
        return dead._replace(born=world.epoch)

    def _lose(self, world: State, call: Call) -> State:
        """The operator is told that the connection was lost: after the call was carried out or before (it still may be)."""
        if call.number not in dict(world.answered) and call.verb not in READS:
            world = world._replace(adrift=(*world.adrift, call))
        return self._answer(world, call, Answer("ConnectionLostError"))

    def _at_once(self, world: State) -> State | None:
        """A pending pod starts to run, where the setting lets pods run at once."""
        if not self._setting.runs_at_once:
            return None
        waiting = next((pod for pod in world.pods if pod.phase == "Pending"), None)
        return None if waiting is None else put_child(world, PODS, waiting._replace(phase="Running"))

    def _of_the_cluster(self, world: State) -> Iterator[Step]:
        """Pods start and end, and objects whose owner is gone are collected."""
        for pod in world.pods:
            yield from self._of_the_kubelet(world, pod)
        job = world.job
        orphans = 0
        for resource in (PODS, SERVICES):
            for child in children(world, resource):
                if child.owner_kind != "TFJob":
                    continue
                if job is None or child.owner != job.uid or job.deleting:
                    orphans += job is not None and child.owner == job.uid
                    if not child.terminating:
                        yield (PROGRESS, "collect", resource, child.name), end_child(world, resource, child)
        if job is not None and job.deleting and not orphans:
            yield (PROGRESS, "collect", TFJOBS), delete_job(world)

    def _of_the_kubelet(self, world: State, pod: Child) -> Iterator[Step]:
        if pod.uid == STRANGER:
            yield (PROGRESS, "stranger leaves"), remove_child(world, PODS, pod)
        elif _has_to_answer(world, pod):
            yield (PROGRESS, "answer 143", pod.name), _answers(world, pod, 143, _after(pod))
        elif (after := _onward(world, pod)) is not None:
            yield (PROGRESS, "onward", pod.name), after
        elif pod.phase == "Pending":
            yield (PROGRESS, "run", pod.name), put_child(world, PODS, pod._replace(phase="Running"))

    def _misfortunes_of(self, world: State, pod: Child) -> Iterator[Step]:
        may = self._setting.may
        if pod.uid == STRANGER:
            return
        kubernetes = world.kubernetes
        if _runs(pod):
            for name, code in FAILURES.items():
                if name in may and pod.name not in self._setting.never_fails:
                    yield (SURPRISE, name, pod.name), _ends(world, pod, code)
            if "restart" in may:
                code = 0 if starts_again(pod, 0) else 1
                assert starts_again(pod, code), "nobody restarts this one in place"
                yield (SURPRISE, "restart", pod.name), _ends(world, pod, code)
            if "evict" in may:
                yield (SURPRISE, "evict", pod.name), _lost(world, pod, pod._replace(phase="Failed", reason="Evicted"))
            if "shut down" in may and kubernetes is not None:
                for code in (0, 143):
                    yield (SURPRISE, "shut down", pod.name, code), _lost(world, pod, shut_down(pod, code, kubernetes))
        if "turn away" in may and pod.phase == "Pending" and not pod.restarts:
            rejected = pod._replace(phase="Failed", reason="VolumeAttachmentLimitExceeded")
            yield (SURPRISE, "turn away", pod.name), put_child(world, PODS, rejected)
        yield from self._requests(world, pod)
        if "tell late" in may and _has_to_answer(world, pod):
            yield (SURPRISE, "answer at once", pod.name), _answers(world, pod, 0, SAME_SECOND)
            late = _answers(world, pod, 0, BEFORE)
            if not starts_again(pod, 0):
                late = late._replace(done=late.done | {pod.slot}, finished=late.finished | {pod.slot})
            yield (SURPRISE, "tell late", pod.name), late

    def _requests(self, world: State, pod: Child) -> Iterator[Step]:
        """Somebody deletes the pod, or deletes it again with less grace."""
        may = self._setting.may
        if not pod.terminating:
            if "remove" in may:
                yield (SURPRISE, "remove", pod.name), end_child(world, PODS, pod)
            if "remove slowly" in may and _is_up(pod):
                yield (SURPRISE, "remove slowly", pod.name), end_child(world, PODS, pod, MORE)
            if "drain" in may and world.kubernetes is not None:
                marked = pod._replace(targeted=world.kubernetes.has(DISRUPTION_TARGET))
                yield (SURPRISE, "drain", pod.name), end_child(put_child(world, PODS, marked), PODS, marked)
        elif _is_up(pod):
            less = OWN_GRACE if pod.grace == MORE else LESS
            # Shortened to the pod's own grace, it would look like a first request: the operator must have seen the pod before.
            if "hurry" in may and pod.asked == pod.grace and (less == LESS or at_rest(world)):
                yield (SURPRISE, "hurry", pod.name), end_child(world, PODS, pod, less)
            if "force" in may:
                yield (SURPRISE, "force", pod.name), end_child(world, PODS, pod, 0)


def _objects(world: State, resource: str) -> tuple[Job | Child, ...]:
    """The objects that a list request returns; not the stranger, which does not bear our labels."""
    if resource == TFJOBS:
        return (world.job,) if world.job else ()
    return tuple(child for child in children(world, resource) if child.uid != STRANGER)


def _heard(world: State, mind: Mind, field: str, left: tuple[Event, ...]) -> State:
    """The operator has heard of the first events of a resource; `left` are those that are not yet delivered."""
    changed: Any = {field: left}
    return world._replace(mind=mind, **changed)


def _seen(world: State) -> State:
    """From here on the operator knows the successes that its cache shows."""
    found = _recognised(world)
    return world._replace(known=world.known | found, finished=world.finished | found)


def _forgotten(world: State) -> State:
    """The operator starts anew: a success that was not written is known only as long as its pod exists."""
    there = {pod.slot for pod in world.pods if pod.exit_code == 0}
    finished = world.finished & (there | written_as_finished(world))
    return world._replace(untouched=frozenset(), finished=finished, known=frozenset())


def _recognised(world: State) -> frozenset[Slot]:
    """The replicas that the cached job asks for and whose success the cached pods show."""
    jobs, pods, _ = world.mind.cached
    if not jobs:
        return frozenset()
    job = cast("Job", jobs[0])
    now = attempt_of(world.job)
    seen = frozenset(pod.slot for pod in cast("tuple[Child, ...]", pods) if did_its_work(pod) and pod.attempt == now)
    return seen if mode_of(world, job) == "held" else wanted(job) & seen


def _is_up(pod: Child) -> bool:
    """Whether, by its status, some container of the pod still runs."""
    return pod.phase == "Running" and pod.uid != STRANGER


def _has_to_answer(world: State, pod: Child) -> bool:
    """Whether the pod is being deleted, and `tensorflow` still runs."""
    return world.kubernetes is not None and _is_up(pod) and pod.terminating and pod.exit_code is None


def _runs(pod: Child) -> bool:
    return _is_up(pod) and not pod.terminating and pod.exit_code is None


def _ends(world: State, pod: Child, code: int) -> State:
    """`tensorflow` ends by its own doing."""
    ended = ends(pod, code, world.leapt_s + BEFORE, world.kubernetes)
    after = put_child(world, PODS, ended)
    if starts_again(pod, code):
        return _failed(after, pod) if ended.restarts > pod.restarts else after
    if code == 0 and pod.attempt < attempt_of(world.job):
        return after
    if code == 0:
        return after._replace(finished=after.finished | {pod.slot}, done=after.done | {pod.slot}, won=world.epoch)
    return _upset(_failed(after, pod), pod)


def _onward(world: State, pod: Child) -> State | None:
    """What the kubelet does when `tensorflow` has ended: a restart in place, the phase, the end of a pod that is deleted."""
    told = later(pod, world.kubernetes)
    if told is not None:
        after = put_child(world, PODS, told)
        return _failed(after, pod) if told.restarts > pod.restarts else after
    is_done = pod.terminating and (is_over(pod) or world.kubernetes is None)
    return end_child(world, PODS, pod, 0) if is_done else None


def _answers(world: State, pod: Child, code: int, at: int) -> State:
    """The process ends after it was asked to, or seems to have been."""
    return put_child(world, PODS, ends(pod, code, world.leapt_s + at, world.kubernetes))


def _after(pod: Child) -> int:
    """The moment at which a process that still runs ends on SIGTERM."""
    return AFTER if pod.asked == pod.grace else AFTER_SECOND


def _may_come_late(world: State, create: Call) -> bool:
    """Whether this create of a dead operator may still be executed (see above)."""
    ends = any(
        call.resource == TFJOBS and call.verb == "patch" and any(map(is_end, status_of(call.body).conditions))
        for call in world.mind.calls or ()
    )
    return create.attempt >= attempt_of(world.job) and not ends


def _lost(world: State, pod: Child, gone: Child) -> State:
    """The cluster takes the pod."""
    return _upset(put_child(world, PODS, gone), pod)


def _upset(world: State, pod: Child) -> State:
    """The pod has failed, and with it its attempt."""
    return world._replace(lost=world.lost | {pod.slot}, upset=world.upset | {(pod.owner, pod.attempt)})


def _failed(world: State, pod: Child) -> State:
    failures = dict(world.failures)
    failures[pod.slot] = failures.get(pod.slot, 0) + 1
    return world._replace(failures=tuple(sorted(failures.items())))
