"""A judge of `status.acceleratorSeconds`: every write adds what the pods that it counts held, to the second, and no pod twice.

It reads raw objects as the server stored them. A cache lags, so the operator may have seen any state of a pod that the server
had. Its own clock is known from `lastReconcileTime`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from judge.jobs import attempt_of, decision_of, finished_of, indices_of
from judge.slots import Slot, attempt_of_pod, moment, slot_of
from kit.model.storage import Body, Change, Feed
from simulation.interference import WATCHED
from simulation.kubelet import Kubelet
from simulation.scripts import TENSORFLOW
from simulation.world import World
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1.constants import TFJOBS

GPU: Final = "nvidia.com/gpu"
Sums = Counter[str]
"""Seconds by outcome."""


def asked_by(spec: dict[str, Any]) -> int:
    """Return the GPUs of a pod: here only the training container has any."""
    (mine,) = (each for each in spec["containers"] if each["name"] == TENSORFLOW)
    return int(mine.get("resources", {}).get("limits", {}).get(GPU, 0))


@dataclass(slots=True)
class _Pod:
    """A pod: its states, with the time at which the server stored each."""

    uid: str
    slot: Slot
    states: list[tuple[float, Body]] = field(default_factory=list)
    gone: bool = False
    recorded: bool = False
    counted: bool = False

    @property
    def started(self) -> str:
        """When its kubelet accepted it, or ""."""
        return str(self.states[-1][1].get("status", {}).get("startTime") or "")


class AcceleratorJudge:
    """Judges each status of each job. `totals` are the last sums of all jobs, by namespace and outcome."""

    def __init__(self, world: World, kubelet: Kubelet) -> None:
        self.violations: list[str] = []
        self.totals: dict[str, tuple[str, Sums]] = {}
        self.counted = 0
        self._world = world
        self._fates = kubelet.fates
        self._pods: dict[str, dict[str, _Pod]] = {}
        self._pod_feed, self._job_feed = Feed(world.server.storage, PODS), Feed(world.server.storage, TFJOBS)
        world.server.on_change.append(self._look)

    def missed(self) -> list[str]:
        """Return the pods of ended jobs that a status had recorded and that were never counted."""
        jobs = self._world.server.storage.collections["tfjobs"].objects.values()
        over = [each.body["metadata"]["uid"] for each in jobs if decision_of(each.body) is not None]
        pods = (pod for uid in over for pod in self._pods.get(uid, {}).values())
        return [f"{pod.slot} ({pod.uid}) was never counted" for pod in pods if pod.recorded and not pod.counted]

    def _look(self) -> None:
        for change in self._pod_feed.news():
            body, meta = change.new.body, change.new.body["metadata"]
            if not meta.get("ownerReferences") or not asked_by(body["spec"]):
                continue
            pods = self._pods.setdefault(meta["ownerReferences"][0]["uid"], {})
            pod = pods.setdefault(meta["uid"], _Pod(meta["uid"], slot_of(meta)))
            pod.states.append((self._world.time, body))
            pod.gone = change.gone
        for change in self._job_feed.news():
            if change.old is not None and change.new.body.get("status") != change.old.body.get("status"):
                self._judge(change)

    def _judge(self, change: Change) -> None:
        assert change.old is not None
        old, new = change.old.body, change.new.body
        before, after = _pods_of(old), _pods_of(new)
        added = _sums(new)
        added.subtract(_sums(old))
        pods = self._pods.get(new["metadata"]["uid"], {})
        places = {(kind, index, since) for kind, index, since in _running(after)}
        for pod in pods.values():
            pod.recorded |= _place(pod) in places
        ends = decision_of(old) is None and decision_of(new) is not None
        must, may = [], []
        for pod in pods.values():
            was_recorded, is_marked = _place(pod) in {*_running(before)}, pod.uid[-12:] in after.get("counted", ())
            if is_marked and pod.uid[-12:] not in before.get("counted", ()):
                if pod.counted:
                    self.violations.append(f"{pod.slot} ({pod.uid}) is counted twice")
                must.append(pod)
            elif not pod.counted and was_recorded and _place(pod) not in places:
                must.append(pod)
            elif not pod.counted and ends and pod.started:
                may.append(pod)
        self._compare(new, added, must, may, ends=ends)
        self.totals[new["metadata"]["uid"]] = new["metadata"]["namespace"], _sums(new)

    def _compare(self, job: Body, added: Sums, must: list[_Pod], may: list[_Pod], *, ends: bool) -> None:
        now = moment(job["status"]["lastReconcileTime"])
        choices = [{*self._choices(job, pod, now, ends=ends)} for pod in must]
        choices += [{*self._choices(job, pod, now, ends=ends), ("", 0)} for pod in may]
        if not _reachable(+added, choices) or any(seconds < 0 for seconds in added.values()):
            found = [(pod.slot, pod.uid, sorted(choice)) for pod, choice in zip((*must, *may), choices, strict=True)]
            self.violations.append(f"{job['metadata']['name']}: {dict(added)} was added, and the pods are {found}")
        for pod in must if not ends else (*must, *may):
            pod.counted = True
        self.counted += len(must)

    def _choices(self, job: Body, pod: _Pod, now: datetime, *, ends: bool) -> Iterator[tuple[str, int]]:
        """Yield the outcomes of a pod with its seconds, by any state of it."""
        for at, state in pod.states:
            if started := state.get("status", {}).get("startTime"):
                over_at = self._fates[pod.uid].over_at
                last = _last_end(state) if over_at is not None and at >= over_at else None
                age_s = (now - moment(state["metadata"]["creationTimestamp"])).total_seconds()
                seconds = min(((last or now) - moment(started)).total_seconds(), age_s)
                for outcome in _outcomes(job, pod, state, ends=ends):
                    yield outcome, asked_by(state["spec"]) * int(max(0.0, seconds))
        hidden = any(WATCHED not in state["metadata"].get("labels", {}) for _, state in pod.states)
        if (pod.gone or hidden) and pod.started:
            age_s = (now - moment(job["metadata"]["creationTimestamp"])).total_seconds()
            seconds = max(0, int(min((now - moment(pod.started)).total_seconds(), age_s)))
            outcome = "succeeded" if pod.slot in finished_of(job) else "deleted"
            yield outcome, asked_by(pod.states[-1][1]["spec"]) * seconds


def _outcomes(job: Body, pod: _Pod, state: Body, *, ends: bool) -> Iterator[str]:
    """Yield what may have come of a pod in this state."""
    meta, status = state["metadata"], state.get("status", {})
    (mine,) = [each for each in status.get("containerStatuses") or () if each["name"] == TENSORFLOW] or [{}]
    exited = mine.get("state", {}).get("terminated")
    disrupted = any(each["type"] == "DisruptionTarget" for each in status.get("conditions") or ())
    conditions = {each["type"] for each in job["status"]["conditions"] if each["status"] == "True"}
    leaving = "deletionTimestamp" in meta
    beyond = pod.slot[1] >= ((job["status"].get("begun") or {}).get("replicas") or {}).get(pod.slot[0], 0)
    if status.get("phase") == "Succeeded" or (exited and exited["exitCode"] == 0):
        yield "succeeded"
    if disrupted or status.get("reason"):
        yield "disrupted"
        return
    if attempt_of_pod(state) < attempt_of(job):
        yield "restartedWithJob"
        return
    failed = status.get("phase") == "Failed" or exited
    if failed and not leaving:
        yield from ("failed", "restarted") if ends else ("restarted", "failed")
    elif "Suspended" in conditions:
        yield "suspended"
    elif ends and not leaving:
        yield "endedWithJob"
    if leaving or beyond:
        yield "deleted"


def _reachable(added: Sums, choices: Iterable[set[tuple[str, int]]]) -> bool:
    """Whether one choice of each pod adds up to what was added."""
    sums = {frozenset[tuple[str, int]]()}
    for choice in choices:
        found = set()
        for total in sums:
            for outcome, seconds in choice:
                more = Counter(dict(total))
                more[outcome] += seconds
                if all(more[each] <= added[each] for each in more):
                    found.add(frozenset((+more).items()))
        sums = found
    return frozenset(added.items()) in sums


def _last_end(state: Body) -> datetime | None:
    """Return when the last ordinary container ended; None if that is not known of each."""
    ends = [
        each["state"].get("terminated", {}).get("finishedAt") for each in state["status"].get("containerStatuses") or ()
    ]
    return max(map(moment, ends)) if ends and all(ends) else None


def _pods_of(job: Body) -> dict[str, Any]:
    return (job.get("status") or {}).get("acceleratorPods") or {}


def _sums(job: Body) -> Sums:
    return Counter((job.get("status") or {}).get("acceleratorSeconds", {}).get(GPU, {}))


def _place(pod: _Pod) -> tuple[str, int, int]:
    return (*pod.slot, int(moment(pod.started).timestamp()) if pod.started else -1)


def _running(pods: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    for group in pods.get("running", ()):
        for since, indices in group["since"].items():
            yield from ((group["type"], index, int(since)) for index in indices_of(indices))
