"""What has happened to jobs and their pods, as the server and the nodes know it: the facts that verdicts are made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import TYPE_CHECKING

from simulation.lives import End

if TYPE_CHECKING:
    from simulation.kubelet import Kubelet
    from simulation.lives import Fate
    from simulation.model.storage import Body
    from simulation.slots import Slot
    from simulation.wishes import Wish


def is_final(fate: Fate, policy: str) -> bool:
    """Whether a pod has ended so that, under this restart policy, its job has failed.

    A pod that was on its way out ends nothing, nor does one that the cluster took away, unless the policy is Never and it has
    failed. Whatever the policy of the replica, a failure is one that the container's own leaves.
    """
    if fate.end in {None, End.SUCCEEDED} or fate.leaving:
        return False
    if policy == "ExitCode":
        return fate.end is End.FAILED and fate.exit_code not in {130, 137, 138, 143}
    return not fate.orderly if policy == "Never" else fate.fatal


class Records:
    """Jobs by UID in their last version, also those that are gone; and the pods that each replica has had, in their order."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.jobs: dict[str, Body] = {}
        self.edited_at: dict[str, float] = {}
        """When the specification of a job last changed."""
        self.ended_at: dict[str, float] = {}
        """When the end of a job was written."""
        self.removed_at: dict[str, float] = {}
        """When a job was deleted, by UID."""
        self.delays: list[tuple[float, str]] = []
        """How long the operator took for what could be done at once, in seconds."""
        self.pods: defaultdict[str, defaultdict[Slot, list[str]]] = defaultdict(lambda: defaultdict(list))
        """UIDs of pods by the job's UID and the place in it."""
        self.removers: dict[str, str] = {}
        """Who was the first to delete a pod, by the pod's UID."""
        self.pod_removed_at: dict[str, float] = {}
        """When that was."""
        self.unwanted_since: dict[tuple[str, Slot], float] = {}
        """Since when a job that has had a replica does not ask for it, by the job's UID and the place."""
        self.shed: set[str] = set()
        """UIDs of pods that ended, and were deleted, while nobody asked for their replica: what they did counts for nothing."""
        self.seconds: defaultdict[tuple[str, Slot], list[str]] = defaultdict(list)
        """UIDs of second pods of a replica that never stood alone, by the job's UID and the place. They count for nothing; one
        that was the only pod of its replica for a moment may count, and is in `pods`."""
        self.replaced: defaultdict[str, Counter[Slot]] = defaultdict(Counter)
        """How many pods the operator has deleted, by the job's UID and the place, because they failed by their own doing."""

    def edited(self, job: str, now: float, before: set[Slot], after: set[Slot]) -> None:
        """Note which replicas a job asks for since its specification changed."""
        self.edited_at[job] = now
        self.unwanted_since |= dict.fromkeys(((job, slot) for slot in before - after), now)
        for slot in after:
            self.unwanted_since.pop((job, slot), None)

    def pod_removed(self, job: str, slot: Slot, uid: str, remover: str, now: float) -> None:
        """Note that somebody has deleted a pod."""
        self.removers[uid] = remover
        self.pod_removed_at[uid] = now
        since = self.unwanted_since.get((job, slot))
        if since is not None and self.kubelet.fates[uid].ended_at >= since:
            self.shed.add(uid)

    def fates(self, job: str, slot: Slot) -> list[Fate]:
        """What has become of the pods of a replica, oldest first."""
        return [self.kubelet.fates[uid] for uid in self.pods[job][slot]]

    def all_fates(self, job: str) -> list[Fate]:
        """What has become of all pods of a job."""
        return [self.kubelet.fates[uid] for uids in self.pods[job].values() for uid in uids]

    def succeeded(self, job: str) -> set[Slot]:
        """The replicas that have truly succeeded."""
        return {fate.slot for fate in self.all_fates(job) if fate.end is End.SUCCEEDED}

    def most_restarts(self, job: str, slot: Slot) -> int:
        """How often a replica was restarted or is to be, in place or by a new pod, if nothing of it was missed."""
        fates = self.fates(job, slot)
        return sum(fate.in_place + fate.counts for fate in fates)

    def lost_at(self, job: str, wish: Wish) -> float:
        """When the first replica of a job failed for good."""
        wanted = ((fate, wish.replicas[fate.slot[0]][1]) for fate in self.all_fates(job) if fate.slot in wish.slots)
        return min((fate.ended_at for fate, policy in wanted if is_final(fate, policy)), default=0.0)

    def done_at(self, job: str, wish: Wish) -> float:
        """When a job of these wishes had succeeded by what its pods had done.

        A success that came while the pod was on its way out may be counted, and need not: then it is done later.
        """
        ended = [fate for fate in self.all_fates(job) if fate.end is End.SUCCEEDED]
        for fates in ([fate for fate in ended if not fate.leaving], ended):
            done: set[Slot] = set()
            for fate in sorted(fates, key=lambda fate: fate.ended_at):
                done.add(fate.slot)
                if wish.is_done(done):
                    return fate.ended_at
        return 0.0


def moment(text: str) -> datetime:
    """A time as the API writes it."""
    return datetime.fromisoformat(text)
