"""At rest: once nothing more happens by itself, a job is in the state that follows from its spec and the history of its pods.

Simulation and model checker use the same rules; each reads in its own way what is on the server.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from judge.jobs import (
    DesiredJob,
    attempt_of,
    clean_up_of,
    desired_job,
    ending_of,
    finished_of,
    is_ending,
    request_of,
    restarts_of,
)
from judge.slots import Slot
from kit.model.storage import Body


def unobserved(job: Body, *, foreign: bool, touched: bool) -> list[str] | None:
    """Return what is wrong with a job that is deleted, somebody else's, or not observed; None if it is none of these.

    `touched`: it has children.
    """
    status, meta = job.get("status") or {}, job["metadata"]
    if "deletionTimestamp" in meta:
        return ["is being deleted, and is still there"]
    if foreign:
        return ["is somebody else's, and was touched"] if touched or status else []
    if not status:
        return ["nobody has looked at it"]
    return ["its last edit was not looked at"] if status.get("observedGeneration") != meta["generation"] else None


@dataclass(frozen=True, slots=True)
class PodAtRest:
    """The pod of a replica. `in_place`: its restarts by the kubelet; `final`: its failure ends the job."""

    phase: str
    attempt: int
    runs: bool
    succeeded: bool
    failed: bool
    in_place: int = 0
    final: bool = False


@dataclass
class JobAtRest:
    """A job with its children. `begun`: it has had pods, or was about to; `restarts`: how often its replicas were restarted.

    `kept`: replicas that need not run in later attempts; `refused`: the API server refuses its pods. `is_due` says whether a
    limit that counts from a time must have been applied.
    """

    job: Body
    pods: Mapping[Slot, PodAtRest]
    services: Collection[Slot]
    begun: bool
    restarts: int
    kept: Collection[Slot] = ()
    refused: bool = False
    is_due: Callable[[str], bool] = lambda _: True
    desired: DesiredJob = field(init=False)

    def __post_init__(self) -> None:
        self.desired = desired_job(self.job)
        self.status: dict[str, Any] = self.job.get("status") or {}
        self.conditions = {each["type"]: each["status"] for each in self.status.get("conditions") or ()}
        self.ending = ending_of(self.job)
        self.finished = finished_of(self.job)

    def complaints(self) -> Iterator[str]:
        found = unobserved(self.job, foreign=self.desired.foreign, touched=bool(self.pods or self.services))
        if found is not None:
            yield from found
        elif self.ending is not None:
            yield from self.when_ended(self.ending)
        elif is_ending(self.job):
            yield "its end is decided, and not written"
        elif self.desired.invalid and not self.begun:
            yield "its specification is wrong, and it goes on"
        elif self.desired.suspend:
            yield from self.when_suspended()
        elif self.desired.invalid or (self.refused and self._is_true("Held")):
            yield from self._when_held()
        else:
            yield from self.when_alive()

    def when_ended(self, ending: dict[str, Any]) -> Iterator[str]:
        policy = clean_up_of(self.job)
        for slot, pod in self.pods.items():
            if policy == "All" or (policy == "Running" and pod.phase not in {"Succeeded", "Failed"}):
                yield f"has ended as {ending['type']}, and under {policy} the pod of {slot} is {pod.phase}"
        if unneeded := {*self.services}.difference(self.desired.services(self.pods)):
            yield f"has ended, and keeps the services {sorted(unneeded)}"
        if self.desired.ttl_s is not None and self.is_due(ending["lastTransitionTime"]):
            yield f"should be gone {self.desired.ttl_s} s after {ending['lastTransitionTime']}"
        yield from self._wrong_counts()

    def when_suspended(self) -> Iterator[str]:
        if self.pods or self.services:
            yield f"is suspended, and has the pods {sorted(self.pods)} and services {sorted(self.services)}"
        if not self._is_true("Suspended") or self._is_true("Running"):
            yield f"is suspended, and its conditions are {self.conditions}"
        yield from self._wrong_counts()

    def _when_held(self) -> Iterator[str]:
        """Return whether the status of a job on hold is outdated. That nothing else changed is judged after every write."""
        if not self._is_true("Held") or self.status["conditions"][-1]["type"] == "Held":
            yield f"its specification is wrong, and its conditions are {self.conditions}"
        limit_s, since = self.desired.deadline_s, self.status.get("startTime")
        if limit_s is not None and not self._is_true("Suspended") and self.is_due(str(since)):
            yield f"is held until its deadline {limit_s} s after {since}"
        sizes = self.status["begun"].get("replicas") or {}
        ended = {slot for slot, pod in self.pods.items() if pod.succeeded and slot[1] < sizes.get(slot[0], 0)}
        if missed := ended - self.finished:
            yield f"does not know that {sorted(missed)} have succeeded"

    def when_alive(self) -> Iterator[str]:
        desired, needed = self.desired, self.desired.slots - self.finished
        if desired.is_done(self.finished):
            yield f"has not ended, though {sorted(self.finished)} have succeeded"
        if desired.backoff_limit is not None and self.restarts > desired.backoff_limit:
            yield f"goes on after {self.restarts} restarts of {desired.backoff_limit} allowed"
        if desired.deadline_s is not None and self.is_due(self.status["startTime"]):
            yield f"goes on until its deadline {desired.deadline_s} s after {self.status['startTime']}"
        for slot, pod in self.pods.items():
            yield from self._wrong_pod(slot, pod)
        if missing := needed - self.pods.keys():
            yield f"has no pods of {sorted(missing)}"
        if missing := desired.services(needed).difference(self.services):
            yield f"has no services of {sorted(missing)}"
        if surplus := {*self.services} - desired.services(desired.slots):
            yield f"has services of {sorted(surplus)}, which are not asked for"
        if (requested := request_of(self.job)) and requested != self.status.get("observedRestartRequest"):
            yield f"was not restarted as {requested} requests"
        waiting = [slot for slot, pod in self.pods.items() if pod.phase == "Pending"]
        all_ran = (self.status.get("begun") or {}).get("allRan")
        if waiting and not all_ran and "startDeadlineSeconds" in (self.job["spec"].get("runPolicy") or {}):
            yield f"goes on until {sorted(waiting)} should run"
        deciders = [name for name in ("Chief", "Master", "Worker") if desired.replicas.get(name, (0,))[0]][:1]
        active = [slot for slot in self._running() if not deciders or slot[0] in deciders]
        if self._is_true("Held"):
            yield f"its specification is right, and its conditions are {self.conditions}"
        if self._is_true("Running") != bool(active):
            yield f"of {sorted(self._running())} that run, and its conditions are {self.conditions}"
        yield from self._wrong_counts()

    def _wrong_pod(self, slot: Slot, pod: PodAtRest) -> Iterator[str]:
        """Return what is wrong with a pod of an unfinished job."""
        counted = restarts_of(self.job).get(slot, 0)
        if slot not in self.desired.slots:
            yield f"has a pod of {slot}, which is not asked for"
        elif pod.succeeded and slot not in self.finished:
            yield f"does not know that {slot} has succeeded"
        elif pod.attempt != attempt_of(self.job) and slot not in self.kept:
            yield f"has a pod of another attempt than {attempt_of(self.job)}: {pod}"
        elif pod.final:
            yield f"goes on though {slot} has failed for good: {pod}"
        elif pod.failed:
            yield f"does not replace the pod of {slot}: {pod}"
        elif counted < pod.in_place:
            yield f"knows of {counted} restarts of {slot}, and there were more: {pod}"

    def _wrong_counts(self) -> Iterator[str]:
        """Return wrong counters. `failed` is not checked: it has only failures that were not yet processed."""
        if self.desired.invalid:
            return
        written = self.status.get("replicaStatuses") or {}
        active = Counter(name for name, _ in self._running())
        succeeded = Counter(name for name, _ in self.finished & self.desired.slots)
        succeeds = self.ending is not None and self.ending["type"] == "Succeeded"  # then its counters are final
        for name in self.desired.replicas:
            counts = written.get(name, {"active": 0, "succeeded": 0, "failed": 0})
            if counts["active"] != (0 if succeeds else active[name]):
                yield f"{active[name]} {name} replicas run, and it counts {counts}"
            if counts["succeeded"] != succeeded[name] and self.ending is None:
                yield f"{succeeded[name]} {name} replicas have succeeded, and it counts {counts}"

    def _running(self) -> list[Slot]:
        return [slot for slot, pod in self.pods.items() if pod.runs]

    def _is_true(self, condition: str) -> bool:
        return self.conditions.get(condition) == "True"
