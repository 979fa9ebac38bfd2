"""The oracle of the alpha dialect: in the final world each job must be in the state that follows from its spec and pods."""

from collections.abc import Iterator
from typing import Any

from judge.jobs import ending_of, finished_of, has_begun
from judge.rest import unobserved
from judge.slots import Slot, replica_of
from kit.model.storage import Body
from simulation.alpha.desired import NEVER_BEGAN, DesiredAlphaJob, desired_job, fails_for_good, runtime_id_of
from simulation.alpha.records import Records, form_mistakes
from simulation.alpha.users import STRANGER
from simulation.interference import WATCHED
from simulation.job_controller import JobController, is_over
from simulation.lives import End, Fate
from simulation.oracle import grouped
from simulation.world import World
from tfjob_operator.api.core import JOBS

PLURALS = ("jobs", "services", "configmaps")


def complaints(world: World, records: Records, controller: JobController) -> list[str]:
    if not (records.kubelet.is_at_rest and controller.is_at_rest):
        return ["the nodes, or the Job controller, are at work"]
    jobs, children, found = grouped(world, PLURALS, STRANGER)
    found += grouped(world, ("pods",), STRANGER, owners=JOBS.plural)[2]
    for uid, job in jobs.items():
        meta = job["metadata"]
        case = _Case(records, job, children[uid])
        found += [f"{meta['namespace']}/{meta['name']} ({uid}): {complaint}" for complaint in case.complaints()]
    return found


class _Case:
    """One job with its children. The operator finds a child without its label only when it needs that name."""

    def __init__(self, records: Records, job: Body, children: dict[str, list[Body]]) -> None:
        self._records = records
        self._uid = job["metadata"]["uid"]
        self._job = job
        self._wish: DesiredAlphaJob = desired_job(job)
        self._status: dict[str, Any] = job.get("status") or {}
        self._runtime_id = runtime_id_of(job)
        self._ending = ending_of(job)
        self._all = children
        shown = {
            plural: [body for body in bodies if WATCHED in (body["metadata"].get("labels") or {})]
            for plural, bodies in children.items()
        }
        self._jobs: dict[str, Body] = {body["metadata"]["name"]: body for body in shown["jobs"]}
        self._services = {body["metadata"]["name"] for body in shown["services"]}
        self._config_maps = {body["metadata"]["name"] for body in shown["configmaps"]}

    def complaints(self) -> Iterator[str]:
        found = unobserved(self._job, foreign=self._wish.foreign, touched=any(self._all.values()))
        if found is not None:
            yield from found
        else:
            yield from form_mistakes(self._job)
            if self._ending is not None:
                yield from self._when_ended()
            elif not self._wish.invalid:
                yield from self._when_alive()
            elif not has_begun(self._job):
                yield "its specification is wrong, and it goes on"
            elif "Held" not in self._true():
                yield f"its specification is wrong, and its conditions are {self._true()}"

    def _when_ended(self) -> Iterator[str]:
        assert self._ending is not None
        never_began = self._ending["reason"] == NEVER_BEGAN
        if self._status["phase"] != ("Failed" if never_began else "Done"):
            yield f"has ended, and its phase is {self._status['phase']}"
        if self._wish.invalid and not never_began:
            return  # its clean-up policy is unreadable
        policy = "Running" if never_began else self._wish.clean_up
        if policy == "None":
            return
        staying = set() if policy == "All" else {name for name, body in self._jobs.items() if self._has_ended(body)}
        if left := self._jobs.keys() - staying:
            yield f"has ended, and under {policy} keeps the Jobs {sorted(left)}"
        if left := self._services - staying:
            yield f"has ended, and under {policy} keeps the services {sorted(left)}"
        if self._config_maps:
            yield f"has ended, and under {policy} keeps {sorted(self._config_maps)}"

    def _has_ended(self, batch_job: Body) -> bool:
        """Whether no pod of a Job runs or will run again."""
        fates = self._fates_of(batch_job)
        return is_over(batch_job) or (
            any(each.end is End.SUCCEEDED for each in fates) and all(each.over for each in fates)
        )

    def _when_alive(self) -> Iterator[str]:
        desired, finished = self._wish, finished_of(self._job)
        if not has_begun(self._job):
            yield "has not begun"
        if "Held" in self._true():
            yield f"its specification is right, and its conditions are {self._true()}"
        if desired.runtime_id and not self._runtime_id:
            yield "has no RuntimeId"
        names = {slot: f"{slot[0].lower()}-{self._runtime_id}-{slot[1]}" for slot in desired.slots}
        needed = {names[slot] for slot in desired.slots - finished}
        if missing := needed - self._jobs.keys():
            yield f"has no Jobs {sorted(missing)}"
        if surplus := self._jobs.keys() - set(names.values()):
            yield f"has the Jobs {sorted(surplus)}, which are not asked for"
        if set(names.values()) != self._services:
            yield f"has the services {sorted(self._services)}, and should have {sorted(names.values())}"
        program = {f"cm-ps-{self._runtime_id}"} if desired.program else set()
        if program != self._config_maps:
            yield f"has the ConfigMaps {sorted(self._config_maps)}, and should have {sorted(program)}"
        yield from self._wrong_end(finished)
        yield from self._wrong_counts(finished)

    def _wrong_end(self, finished: set[Slot]) -> Iterator[str]:
        """Return ends that the operator ignored, except those of Jobs and pods deleted by others."""
        if self._wish.chief in finished:
            yield "has not ended, though its chief has succeeded"
        for name, body in self._jobs.items():
            slot = replica_of(name)[0]
            fates = self._fates_of(body)
            done = is_over(body) or any(fate.end is End.SUCCEEDED and not fate.leaving for fate in fates)
            if done and slot not in finished:
                yield f"does not know that {slot} has succeeded"
            lost = [fate.exits[-1] for fate in fates if fate.exits and fate.end is not End.DISRUPTED]
            if slot == self._wish.chief and any(map(fails_for_good, lost)):
                yield f"goes on though its chief has failed for good: {lost}"

    def _wrong_counts(self, finished: set[Slot]) -> Iterator[str]:
        running = {
            slot
            for name, body in self._jobs.items()
            if (slot := replica_of(name)[0]) not in finished and any(fate.runs for fate in self._fates_of(body))
        }
        if self._wish.chief in running and "Running" not in self._true():
            yield f"its chief runs, and its conditions are {self._true()}"
        counts = self._status.get("replicaStatuses")
        if not isinstance(counts, dict):
            return
        for name in self._wish.replicas:
            active = sum(slot[0] == name for slot in running & self._wish.slots)
            succeeded = sum(slot[0] == name for slot in finished & self._wish.slots)
            if (counts[name]["active"], counts[name]["succeeded"]) != (active, succeeded):
                yield f"{active} {name} replicas run, {succeeded} have succeeded, and it counts {counts[name]}"

    def _fates_of(self, batch_job: Body) -> list[Fate]:
        """Return the fates of the existing pods of a Job."""
        records = self._records
        return [fate for fate in records.fates_of(batch_job["metadata"]["uid"]) if records.kubelet.knows(fate.uid)]

    def _true(self) -> list[str]:
        return sorted(each["type"] for each in self._status["conditions"] if each["status"] == "True")
