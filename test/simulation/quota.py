"""Which pods of a job hold quota, by the server and not by the operator's cache, and how long a pod is kept for its sidecars.

A pod holds quota until its phase is terminal. Kueue frees the quota of a job when it has its last condition, or when it is
suspended and its counters call no pod active.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from hack.hollow_node.objects import TERMINAL
from judge.jobs import active_of, attempt_of, clean_up_of, decision_of, desired_job, ending_of, is_ending, is_queued
from judge.slots import attempt_of_pod, moment, slot_of
from kit.model.server import Answer
from kit.model.storage import Body
from simulation.interference import FORGED, SECOND, WATCHED, is_marked
from simulation.lives import End, Fate
from simulation.policies import grace_of, is_taken
from simulation.records import Records
from simulation.world import OPERATORS, World
from tfjob_operator.api.client.http import Request

GIVE_UP_S: Final = 60
"""How long an end waits for a pod beyond the pod's own grace period."""
GRACE_S: Final = 30
"""How long a pod is kept for its sidecars if its job has no value of its own."""


def first_terminal(states: list[tuple[float, Body]]) -> float | None:
    """Return when a pod first had a terminal phase."""
    return next((at for at, pod in states if pod["status"].get("phase") in TERMINAL), None)


class Quota:
    """What the pods of all jobs hold. Invariant: it knows of no cache."""

    def __init__(self, world: World, records: Records) -> None:
        self._world = world
        self._records = records
        self._listed: dict[tuple[str, str, str], float] = {}
        """When a client last listed the pods of a job, by client, namespace and name."""
        world.server.on_answer.append(self._hear)

    def _hear(self, request: Request, client: str, answer: Answer) -> None:
        _, _, job = request.query.get("labelSelector", "").partition("training.kubeflow.org/job-name=")
        if job and request.method == "GET" and answer.status == 200 and request.path.endswith("/pods"):
            self._listed[client, request.path.split("/")[-2], job] = self._world.time

    def freed_too_early(self, old: Body, new: Body, client: str) -> Iterator[str]:
        """Return the pods for which this status of a queued job should have waited, since Kueue now frees their quota."""
        if ending_of(new) is None:
            if is_queued(new) and desired_job(new).suspend and active_of(old) and not active_of(new):
                hidden = (pod for pod in self._holders(new) if not is_marked(pod, SECOND))
                yield from (_names(pod) for pod in hidden if WATCHED in pod["metadata"]["labels"])
            return
        if not (is_ending(old) or is_queued(old)):
            return
        meta = new["metadata"]
        listed = self._listed.get((client, meta["namespace"], meta["name"]), 0.0)
        for pod in self._holders(new):
            created = self._records.states[pod["metadata"]["uid"]][0][0]
            unseen = is_marked(pod, SECOND) and created > listed
            if not (unseen or self._is_spared(new, pod) or self._is_given_up(new, pod)):
                yield _names(pod)

    def free_since(self, job: Body) -> float:
        """Return when no pod of a job held quota any more; now if one still does."""
        if any(self._holders(job)):
            return self._world.time
        ends = (first_terminal(states) or states[-1][0] for _, states in self._records.states_of(job))
        return max(ends, default=0.0)

    def _holders(self, job: Body) -> Iterator[Body]:
        meta = job["metadata"]
        for (namespace, _), version in self._world.server.storage.collections["pods"].objects.items():
            pod = version.body
            own = any(owner["uid"] == meta["uid"] for owner in pod["metadata"].get("ownerReferences", ()))
            holds = pod["status"].get("phase") not in TERMINAL
            if own and holds and namespace == meta["namespace"] and not is_marked(pod, FORGED):
                yield pod

    def _is_spared(self, job: Body, pod: Body) -> bool:
        """Whether the clean-up policy None keeps it; it may delete only surplus pods."""
        if clean_up_of(job) != "None":
            return False
        desired, slot = desired_job(job), slot_of(pod["metadata"])
        current = attempt_of_pod(pod) == attempt_of(job) or slot in self._records.kept[job["metadata"]["uid"]]
        regular = slot in desired.slots and current
        return regular or desired.invalid or is_marked(pod, SECOND)

    def _is_given_up(self, job: Body, pod: Body) -> bool:
        """Whether it was asked to end, and has not: by its deletion, or only native sidecars are left."""
        meta, decided = pod["metadata"], decision_of(job)
        assert decided is not None
        times: list[datetime] = []
        if "deletionTimestamp" in meta:
            times.append(moment(meta["deletionTimestamp"]))
        if self._records.kubelet.fates[meta["uid"]].over:
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
            times.append(moment(decided["lastTransitionTime"]) + timedelta(seconds=grace_s))
        latest = self._world.clocks.latest(self._world.server.now(), OPERATORS)
        return bool(times) and min(times) + timedelta(seconds=GIVE_UP_S - 0.01) <= latest

    def kept_until(self, job: Body, fate: Fate) -> float | None:
        """Return until when a pod is kept for its sidecars, since the operator first recorded why it may be deleted.

        None if it is not kept: its training goes on, nothing else does, the cluster takes it, or no such time is recorded.
        """
        records = self._records
        taken = is_taken(records.states[fate.uid][-1][1])
        if fate.end not in {End.SUCCEEDED, End.FAILED} or fate.over or fate.leaving or fate.orderly or taken:
            return None
        ended = records.attempt_ended_at.get((fate.owner, fate.attempt))
        decided_at = records.ended_at.get(fate.owner)
        times = (decided_at, records.failed_at.get(fate.uid), ended)
        since = min((at for at in times if at is not None), default=None)
        own_s = None if desired_job(job).invalid else grace_of(job)
        grace_s = GRACE_S if own_s is None else own_s
        if since is None or not grace_s:
            return None
        finished = fate.slot in records.kept[fate.owner]  # its pod stays until the job ends
        return max(since + grace_s + 1, fate.ended_at, (decided_at or 0.0) if finished else 0.0)


def _names(pod: Body) -> str:
    meta, status = pod["metadata"], pod["status"]
    return f"frees the quota that {meta['name']} holds: {status.get('phase')}, deleted {meta.get('deletionTimestamp')}"
