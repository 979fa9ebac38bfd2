"""Judges how queued jobs end, by the API server's own order of writes.

Kueue frees the quota of a job when the job gets a final condition. No pod of the job may be without a terminal phase at the
resource version of that write, unless the operator may give it up. The decision how the job ends is made once, stays, and
agrees with the condition. Until then no child is created or adopted, and no PodGroup resized.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from judge.jobs import ending_of, is_queued, record_of
from judge.slots import moment
from tfjob_operator.api.core import TERMINAL
from tfjob_operator.api.meta import Resource
from tfjob_operator.workqueue import LoopClock

GIVE_UP_S: Final = 60
"""How long a deleted pod may outlive its grace period, after which the job ends without it."""
CLOCK: Final = LoopClock()


@dataclass
class _Pod:
    name: str
    created: int
    ended: float = math.inf
    given_up: datetime | None = None


@dataclass
class _Job:
    namespace: str
    pods: dict[str, _Pod] = field(default_factory=dict)
    taken: dict[tuple[str, int | None], tuple[str, int]] = field(default_factory=dict)
    decided: float = math.inf
    decision: Mapping[str, Any] | None = None
    condition: Mapping[str, Any] | None = None
    version: int = 0
    ended: datetime | None = None
    """When the condition was seen. The operator's clock may be wrong; the API server's is that of this machine."""
    ended_by_older: bool = False


class Ends:
    """Follows jobs with a queue label and their pods; the events of each watch arrive in the order of writes."""

    def __init__(self, now: Callable[[], datetime] = CLOCK.now) -> None:
        """`now` returns the time by the API server's clock."""
        self._now = now
        self._jobs: dict[str, _Job] = {}
        self._owned: defaultdict[str, dict[str, _Pod]] = defaultdict(dict)
        self._taken: defaultdict[str, dict[tuple[str, int | None], tuple[str, int]]] = defaultdict(dict)
        """By owner, the name of each child and the version in which it first had this owner and this size."""
        self.reverted: defaultdict[str, list[str]] = defaultdict(list)
        """By namespace, the decisions that were changed, lost, or are not what the final condition says."""

    def see_pod(self, event: str, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        version = int(meta["resourceVersion"])
        for owner in meta.get("ownerReferences") or ():
            seen = self._owned[owner["uid"]].setdefault(meta["uid"], _Pod(meta["name"], version))
            if "deletionTimestamp" in meta:
                seen.given_up = moment(meta["deletionTimestamp"]) + timedelta(seconds=GIVE_UP_S)
            if event == "DELETED" or pod["status"].get("phase") in TERMINAL:
                seen.ended = min(seen.ended, version)

    def see_child(self, resource: Resource, child: Mapping[str, Any]) -> None:
        meta = child["metadata"]
        seen = f"{resource.plural}/{meta['name']}", int(meta["resourceVersion"])
        for owner in meta.get("ownerReferences") or ():
            self._taken[owner["uid"]].setdefault((meta["uid"], child.get("spec", {}).get("minMember")), seen)

    def see_job(self, job: dict[str, Any]) -> None:
        if not is_queued(job):
            return
        meta, decision, condition = job["metadata"], record_of(job), ending_of(job)
        uid = meta["uid"]
        seen = self._jobs.setdefault(uid, _Job(meta["namespace"], self._owned[uid], self._taken[uid]))
        wrong = self.reverted[seen.namespace]
        if condition is not None and seen.condition is None:
            seen.condition, seen.version, seen.ended = condition, int(meta["resourceVersion"]), self._now()
            seen.ended_by_older = decision is None
        stays = _known_before(decision) == _known_before(seen.decision)
        if seen.decision is not None and not (stays or (decision is None and seen.ended_by_older)):
            wrong.append(f"its end was decided as {seen.decision}, and then as {decision}")
        if decision is not None and seen.decision is None:
            seen.decided = int(meta["resourceVersion"])
        seen.decision = decision or seen.decision
        if condition is not None and seen.decision is not None and not _is_same(condition, seen.decision):
            wrong.append(f"its end was decided as {seen.decision}, and it has the condition {condition}")

    def early(self, namespace: str, *, older: bool) -> Iterator[str]:
        """Yield the pods that held quota when the job ended. `older`: a release without decisions may have ended it."""
        for job in self._jobs.values():
            if job.namespace != namespace or job.condition is None or (older and job.ended_by_older):
                continue
            if job.ended_by_older:
                yield f"{job.condition['type']} was written without a decision"
            for name, version in job.taken.values():
                if job.decided < version < job.version:
                    yield f"{name} was created, adopted or resized after the decision how the job ends"
            for pod in job.pods.values():
                given_up = pod.given_up is not None and job.ended is not None and pod.given_up <= job.ended
                if pod.created < job.version < pod.ended and not given_up:
                    yield f"{job.condition['type']} was written while {pod.name} held quota"


def _known_before(decision: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a decision without the field of its failure that 0.2.1 does not know, and drops."""
    failure = (decision or {}).get("failure")
    if decision is None or failure is None:
        return decision
    return {**decision, "failure": {key: value for key, value in failure.items() if key != "containerName"}}


def _is_same(condition: Mapping[str, Any], decision: Mapping[str, Any]) -> bool:
    return all(condition.get(name, "") == decision.get(name, "") for name in ("type", "reason"))
