"""What has happened to jobs and their pods, as the server and the nodes know it: the facts on which the judges decide."""

from collections import Counter, defaultdict
from datetime import datetime

from simulation.kubelet import Kubelet
from simulation.lives import End, Fate
from simulation.model.storage import Body
from simulation.slots import Slot
from simulation.wishes import Wish


def is_final(fate: Fate, policy: str) -> bool:
    """Whether, under this restart policy, the end of this pod makes its job fail.

    A pod that was already being deleted does not, nor does one that the cluster took away, unless the policy is Never and its
    phase is Failed. A failure counts only if the container's own restart policy does not restart it.
    """
    if fate.end in {None, End.SUCCEEDED} or fate.leaving:
        return False
    if policy == "ExitCode":
        return fate.end is End.FAILED and fate.exit_code not in {130, 137, 138, 143}
    return not fate.orderly if policy == "Never" else fate.fatal


class Records:
    """The last version of each job by UID, also of those that are gone; and the pods that each replica has had, in order."""

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
        """For each action that the operator could do at once, how many seconds it took, and what it was."""
        self.pods: defaultdict[str, defaultdict[Slot, list[str]]] = defaultdict(lambda: defaultdict(list))
        """UIDs of pods by the job's UID and the replica."""
        self.removers: dict[str, str] = {}
        """Who was the first to delete a pod, by the pod's UID."""
        self.pod_removed_at: dict[str, float] = {}
        """When a pod was first deleted, by its UID."""
        self.unwanted_since: dict[tuple[str, Slot], float] = {}
        """Since when a job no longer asks for a replica, by the job's UID and the replica."""
        self.shed: set[str] = set()
        """UIDs of pods that ended and were deleted while their job did not ask for the replica: their ends do not count."""
        self.seconds: defaultdict[tuple[str, Slot], list[str]] = defaultdict(list)
        """UIDs of second pods that were never the only pod of their replica, by the job's UID and the replica. They do not
        count; one that was the only pod for a moment may count, and is in `pods`."""
        self.replaced: defaultdict[str, Counter[Slot]] = defaultdict(Counter)
        """How many pods the operator has deleted because they failed by themselves, by the job's UID and the replica."""

    def edited(self, job: str, now: float, before: set[Slot], after: set[Slot]) -> None:
        """Note which replicas a job asked for `before` and `after` an edit of its specification."""
        self.edited_at[job] = now
        self.unwanted_since |= dict.fromkeys(((job, slot) for slot in before - after), now)
        for slot in after:
            self.unwanted_since.pop((job, slot), None)

    def pod_removed(self, job: str, slot: Slot, uid: str, remover: str, now: float) -> None:
        self.removers[uid] = remover
        self.pod_removed_at[uid] = now
        since = self.unwanted_since.get((job, slot))
        if since is not None and self.kubelet.fates[uid].ended_at >= since:
            self.shed.add(uid)

    def fates(self, job: str, slot: Slot) -> list[Fate]:
        return [self.kubelet.fates[uid] for uid in self.pods[job][slot]]

    def all_fates(self, job: str) -> list[Fate]:
        return [self.kubelet.fates[uid] for uids in self.pods[job].values() for uid in uids]

    def succeeded(self, job: str) -> set[Slot]:
        return {fate.slot for fate in self.all_fates(job) if fate.end is End.SUCCEEDED}

    def most_restarts(self, job: str, slot: Slot) -> int:
        """How often a replica was or must be restarted, in place or by a new pod, if the operator missed none of it."""
        fates = self.fates(job, slot)
        return sum(fate.in_place + fate.counts for fate in fates)

    def lost_at(self, job: str, wish: Wish) -> float:
        wanted = ((fate, wish.replicas[fate.slot[0]][1]) for fate in self.all_fates(job) if fate.slot in wish.slots)
        return min((fate.ended_at for fate, policy in wanted if is_final(fate, policy)), default=0.0)

    def done_at(self, job: str, wish: Wish) -> float:
        """When a job with these wishes had succeeded, by how its pods ended; 0 if it has not.

        The success of a pod that was already being deleted may be counted or not: it is used only if the others do not suffice.
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
    return datetime.fromisoformat(text)
