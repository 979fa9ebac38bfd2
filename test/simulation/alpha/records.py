"""The history of alpha jobs by server and nodes, and whether their status agrees with it."""

from collections import defaultdict
from collections.abc import Iterator

from judge.jobs import ending_of, finished_of, has_begun
from judge.slots import Slot, replica_of
from judge.writes import final_mistakes
from kit.model.storage import Body, Change, Feed, Storage
from simulation.alpha.desired import NEVER_BEGAN, TYPES, desired_job, fails_for_good, runtime_id_of
from simulation.job_controller import has_succeeded
from simulation.kubelet import Kubelet
from simulation.lives import End, Fate
from tfjob_operator.api.core import JOBS, PODS


class Records:
    """The latest version of each TFJob by UID, including deleted ones; the Jobs and pods that each replica has had."""

    def __init__(self, storage: Storage, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.jobs: dict[str, Body] = {}
        self.removed: set[str] = set()
        """UIDs of jobs deleted by a user."""
        self.edited_at: dict[str, float] = {}
        """When the spec of a job last changed."""
        self.made: defaultdict[str, defaultdict[Slot, list[str]]] = defaultdict(lambda: defaultdict(list))
        """UIDs of Jobs by TFJob UID and replica."""
        self.named: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """All children that a job ever had, by its UID, each as (resource, name)."""
        self.succeeded: set[str] = set()
        """UIDs of Jobs that the Job controller reported as succeeded."""
        self._batch_jobs, self._pods = Feed(storage, JOBS), Feed(storage, PODS)
        self._pods_of: defaultdict[str, list[str]] = defaultdict(list)

    def look(self) -> list[Change]:
        """Read the changes of Jobs and pods since the last call. Return the changes of Jobs."""
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
        return [self.kubelet.fates[uid] for uid in self._pods_of[batch_job]]

    def has_succeeded(self, job: str, slot: Slot) -> bool:
        """Whether a replica has succeeded in fact, or according to the Job controller."""
        return any(
            made in self.succeeded or any(fate.end is End.SUCCEEDED for fate in self.fates_of(made))
            for made in self.made[job][slot]
        )

    def has_failed(self, job: str, slot: Slot) -> bool:
        """Whether a replica has ever failed permanently by itself."""
        fates = [fate for made in self.made[job][slot] for fate in self.fates_of(made)]
        return any(fails_for_good(end) for fate in fates for end in fate.exits)


def justify(old: Body, job: Body, records: Records) -> Iterator[str]:
    """Return what is wrong with a job's end: it must follow from its chief, and no edit may end a started job."""
    desired, ending, uid = desired_job(job), ending_of(job), job["metadata"]["uid"]
    assert ending is not None
    if ending["reason"] == NEVER_BEGAN:
        if not desired.invalid:
            yield "the end is InvalidTFJobSpec, and the specification is right"
        if has_begun(old) or records.made[uid]:
            yield "the job had begun, and no edit ends one that has"
    elif desired.invalid:
        yield f"the job is held, and its end is {ending}"
    elif ending["type"] == "Succeeded":
        if not records.has_succeeded(uid, desired.chief):
            yield f"its chief {desired.chief} has not succeeded"
    elif not records.has_failed(uid, desired.chief):
        yield f"its chief {desired.chief} has not failed for good"


def status_mistakes(old: Body, new: Body, records: Records) -> Iterator[str]:
    """Return what is wrong with a new status, on its own and compared with the old one."""
    uid = new["metadata"]["uid"]
    if desired_job(new).foreign:
        yield "the job is somebody else's"
    done = {slot for slot in finished_of(new) if records.has_succeeded(uid, slot)}
    yield from final_mistakes(old, new, done, ("state", "reason", "replicaStatuses"))
    if has_begun(old) and runtime_id_of(old) != runtime_id_of(new):
        yield f"the RuntimeId changed after the beginning from {runtime_id_of(old)} to {runtime_id_of(new)}"
    if has_begun(old) and not has_begun(new):
        yield "the job had begun, and that is forgotten"
    yield from form_mistakes(new)


def form_mistakes(job: Body) -> Iterator[str]:
    """Return contradictions between the two forms of a status, the alpha fields and the conditions."""
    status = job["status"]
    true = {each["type"] for each in status["conditions"] if each["status"] == "True"}
    said = status["phase"], status["state"]
    if "Created" not in true and "Failed" not in true:
        yield f"the conditions are {sorted(true)}"
    if {"Succeeded", "Failed"} <= true or ({"Succeeded", "Failed"} & true and "Running" in true):
        yield f"more than one state is True: {sorted(true)}"
    if "Succeeded" in true and said not in {("CleanUp", "Succeeded"), ("Done", "Succeeded")}:
        yield f"has succeeded, and phase and state are {said}"
    if "Failed" in true and said not in {("CleanUp", "Failed"), ("Done", "Failed"), ("Failed", "Failed")}:
        yield f"has failed, and phase and state are {said}"
    if not true & {"Succeeded", "Failed"} and said not in {("Creating", "Unknown"), ("Running", "Running")}:
        yield f"goes on, and phase and state are {said}"
    if bool(status["reason"]) != ("Failed" in true):
        yield f"the reason is {status['reason']!r}, and the conditions are {sorted(true)}"
    yield from _count_mistakes(job)


def _count_mistakes(job: Body) -> Iterator[str]:
    """Return differences between the counts of the alpha list and of the v1 map, if both exist."""
    status = job["status"]
    counts, sets = status.get("replicaStatuses"), status.get("alphaReplicaStatuses")
    if not isinstance(counts, dict) or sets is None:
        return
    for each in sets:
        count = counts[TYPES[each["tf_replica_type"]]]
        states = each.get("ReplicasStates") or {}
        if count["succeeded"] != states.get("Succeeded", 0) or count["failed"] != states.get("Failed", 0):
            yield f"of {each['tf_replica_type']} it counts {count} and {states}"
