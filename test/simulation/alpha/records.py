"""What has happened to jobs of the alpha dialect, as server and nodes know it: the facts on which the judges decide."""

from __future__ import annotations

from collections import defaultdict

from simulation.alpha.wishes import fails_for_good
from simulation.feed import Feed
from simulation.kubelet import Kubelet
from simulation.lives import End, Fate
from simulation.model.job_controller import JOBS, has_succeeded
from simulation.model.storage import Body, Change, Storage
from simulation.slots import Slot, replica_of
from tfjob_operator.api.core import PODS


class Records:
    """The last version of each TFJob by UID, also of those that are gone; the Jobs and pods that each replica has had."""

    def __init__(self, storage: Storage, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.jobs: dict[str, Body] = {}
        self.removed: set[str] = set()
        """UIDs of jobs that somebody has deleted."""
        self.edited_at: dict[str, float] = {}
        """When the specification of a job last changed."""
        self.made: defaultdict[str, defaultdict[Slot, list[str]]] = defaultdict(lambda: defaultdict(list))
        """UIDs of Jobs by the TFJob's UID and the replica."""
        self.named: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """The children that a job has ever had, by its UID, each as (resource, name)."""
        self.succeeded: set[str] = set()
        """UIDs of Jobs that the Job controller has reported as succeeded."""
        self._batch_jobs, self._pods = Feed(storage, JOBS), Feed(storage, PODS)
        self._pods_of: defaultdict[str, list[str]] = defaultdict(list)

    def look(self) -> list[Change]:
        """Read what has happened to Jobs and pods since the last time. Returns the changes of Jobs."""
        for change in self._pods.news():
            if change.old is None:
                meta = change.new.body["metadata"]
                self._pods_of[meta["ownerReferences"][0]["uid"]].append(meta["uid"])
        changes = self._batch_jobs.news()
        for change in changes:
            if has_succeeded(change.new.body):
                self.succeeded.add(change.new.body["metadata"]["uid"])
        return changes

    def note_child(self, owner: str, plural: str, body: Body) -> None:
        meta = body["metadata"]
        self.named[owner].add((plural, meta["name"]))
        if plural == JOBS.plural:
            self.made[owner][replica_of(meta["name"])[0]].append(meta["uid"])

    def fates_of(self, batch_job: str) -> list[Fate]:
        """What has become of the pods of a Job, oldest first."""
        return [self.kubelet.fates[uid] for uid in self._pods_of[batch_job]]

    def has_succeeded(self, job: str, slot: Slot) -> bool:
        """Whether a replica has truly done its work, or the Job controller says so."""
        return any(
            made in self.succeeded or any(fate.end is End.SUCCEEDED for fate in self.fates_of(made))
            for made in self.made[job][slot]
        )

    def has_failed(self, job: str, slot: Slot) -> bool:
        """Whether a replica has ever failed for good by its own doing."""
        fates = [fate for made in self.made[job][slot] for fate in self.fates_of(made)]
        return any(fails_for_good(end) for fate in fates for end in fate.exits)
