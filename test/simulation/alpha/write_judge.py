"""Judges every write about alpha jobs when the server accepts it.

Like the judge of the v1 controller it considers what the server told the operator: children are created and deleted on a
view of the job that the server confirmed, by a read or in the response to a write, and that view must justify the write.
"""

from typing import Any, Final

from judge.jobs import ending_of, finished_of, has_begun
from judge.slots import replica_of
from kit.model.server import Write
from kit.model.storage import Body, Change, Feed
from simulation.alpha.desired import NEVER_BEGAN, desired_job, runtime_id_of
from simulation.alpha.records import Records, justify, status_mistakes
from simulation.interference import WATCHED
from simulation.job_controller import is_over
from simulation.kubelet import Kubelet
from simulation.records import LATE_EDIT_S
from simulation.world import World
from simulation.write_judge import WriteJudge, is_deletion
from tfjob_operator.api.core import CONFIG_MAPS, JOBS, SERVICES
from tfjob_operator.api.v1alpha1.constants import Dialect

UNSEEN_S: Final = 150.0
"""How long an operator may be unaware that a Job has ended: its watch froze, and the process may have stalled too."""


class AlphaWriteJudge(WriteJudge):
    """Checks the writes of the alpha controller, and keeps `records`."""

    def __init__(self, world: World, kubelet: Kubelet, dialect: Dialect) -> None:
        super().__init__(world, dialect.resource)
        self.records = Records(self._storage, kubelet)
        self._children = {each.plural: Feed(self._storage, each) for each in (SERVICES, CONFIG_MAPS)}
        self._over_since: dict[str, float] = {}
        """When each Job ended, by UID."""

    def _see(self, write: Write, *, by_operator: bool) -> None:
        changes = [(JOBS.plural, change) for change in self.records.look()]
        for plural, feed in self._children.items():
            changes += [(plural, change) for change in feed.news()]
        for change in self._jobs.news():
            self._see_job(change, write, by_operator=by_operator)
        for plural, change in changes:
            self._see_child(plural, change, write, by_operator=by_operator)
        for change in self._events.news():
            job = self.records.jobs.get(change.new.body["involvedObject"]["uid"])
            if by_operator and job is not None and desired_job(job).foreign:
                self._accuse(write, "the job is somebody else's")

    def _see_job(self, change: Change, write: Write, *, by_operator: bool) -> None:
        body, records = change.new.body, self.records
        uid = body["metadata"]["uid"]
        records.jobs[uid] = body
        old = change.old.body if change.old is not None else None
        if is_deletion(change):
            records.removed.add(uid)
            if by_operator:
                self._accuse(write, "jobs are their users'")
            return
        if old is None or old["spec"] != body["spec"]:
            records.edited_at[uid] = self._world.time
            if by_operator:
                self._accuse(write, "specifications are the users'")
        if old is None or old.get("status") == body.get("status"):
            return
        problems = [*status_mistakes(old, body, records)]
        if ending_of(old) is None and ending_of(body) is not None:
            problems += justify(old, body, records)
        for problem in problems:
            self._accuse(write, problem)

    def _see_child(self, plural: str, change: Change, write: Write, *, by_operator: bool) -> None:
        body = change.new.body
        meta = body["metadata"]
        owner = (meta.get("ownerReferences") or [{"uid": "", "kind": ""}])[0]
        if owner["uid"] not in self.records.jobs:
            if by_operator and owner["kind"] == self._resource.kind:
                self._accuse(write, "nobody has ever heard of its owner")
            elif by_operator:
                self._accuse(write, "it belongs to somebody else")
            return
        job = owner["uid"]
        if change.old is None:
            self.records.note_child(job, plural, body)
            if by_operator:
                self._check_creation(job, plural, meta["name"], write)
            else:
                self._accuse(write, "who makes children of jobs?")
        elif is_deletion(change) and by_operator:
            self._check_deletion(job, plural, change, write)
        if plural == JOBS.plural and is_over(body):
            self._over_since.setdefault(meta["uid"], self._world.time)

    def _check_creation(self, owner: str, plural: str, name: str, write: Write) -> None:
        """Check that the job needed the child, as far as the operator could know."""
        if not (views := self._views(owner, write)):
            return
        job = views[-1]
        desired, runtime_id = desired_job(job), runtime_id_of(job)
        reasons = {
            "the job is being deleted": "deletionTimestamp" in job["metadata"],
            "the job has ended": ending_of(job) is not None,
            "the job is somebody else's": desired.foreign,
            "the specification is wrong": desired.invalid,
            "the RuntimeId is not in the status": not runtime_id,
        }
        if plural == CONFIG_MAPS.plural:
            reasons["no server needs a program"] = not desired.program
            reasons["it bears another RuntimeId"] = name != f"cm-ps-{runtime_id}"
        else:
            slot, given = replica_of(name)
            reasons["it bears another RuntimeId"] = given != runtime_id
            reasons["nobody asked for this replica"] = slot not in desired.slots
        for reason, holds in reasons.items():
            if holds:
                self._accuse(write, reason)
        if plural == JOBS.plural and not desired.invalid:
            self._check_job(owner, job, name, write)

    def _check_job(self, owner: str, job: Body, name: str, write: Write) -> None:
        """Check that a Job is created after all Services, and not for a replica that has a Job or has succeeded."""
        (slot, runtime_id), desired, records = replica_of(name), desired_job(job), self.records
        needed = {("services", f"{kind.lower()}-{runtime_id}-{index}") for kind, index in desired.slots}
        if desired.program:
            needed.add((CONFIG_MAPS.plural, f"cm-ps-{runtime_id}"))
        if missing := needed - records.named[owner]:
            self._accuse(write, f"a Job before {sorted(missing)}")
        if not has_begun(job):
            self._accuse(write, "the status does not say that the job begins")
        if slot in finished_of(job):
            self._accuse(write, "this replica has succeeded")
        there = {version.body["metadata"]["uid"] for version in self._storage.collections[JOBS.plural].objects.values()}
        if len(there.intersection(records.made[owner][slot])) > 1:
            self._accuse(write, f"there is another Job of {slot}")

    def _check_deletion(self, owner: str, plural: str, change: Change, write: Write) -> None:
        """Check that a child was deleted because its job ended, or because the spec no longer includes it."""
        current, name = self.records.jobs[owner], change.new.key[1]
        if owner in self.records.removed:
            return
        if desired_job(current).foreign:
            self._accuse(write, "the job is somebody else's")
        if ending_of(current) is not None:
            self._check_clean_up(current, plural, change, write)
            return
        if not (views := self._views(owner, write)):
            return
        job = views[-1]
        desired = desired_job(job)
        if desired.invalid:
            self._accuse(write, "the job is held")
        elif plural == CONFIG_MAPS.plural:
            if desired.program and name == f"cm-ps-{runtime_id_of(job)}" and not self._is_hidden(change):
                self._accuse(write, "its program is needed")
        elif replica_of(name)[0] in desired.slots and replica_of(name)[1] == runtime_id_of(job):
            self._accuse(write, "this replica is wanted")

    @staticmethod
    def _is_hidden(change: Change) -> bool:
        """Whether the operator's watch does not show the child; the operator then recreates a ConfigMap."""
        assert change.old is not None
        return WATCHED not in (change.old.body["metadata"].get("labels") or {})

    def _check_clean_up(self, job: Body, plural: str, change: Change, write: Write) -> None:
        """Check the clean-up policy: None keeps everything, Running keeps what has ended, for its logs."""
        desired, meta = desired_job(job), change.new.body["metadata"]
        ending: dict[str, Any] = ending_of(job) or {}
        confirmed = self._confirmed.get((write.client, job["metadata"]["uid"]))
        if confirmed is not None and ending_of(confirmed) is None:
            return  # when the operator read it, the job was running and did not need the child
        just_edited = self._world.time - self.records.edited_at[job["metadata"]["uid"]] < LATE_EDIT_S
        if desired.invalid or just_edited or ending["reason"] == NEVER_BEGAN:
            return
        if desired.clean_up == "None":
            self._accuse(write, "the clean-up policy is None")
        over_since = self._over_since.get(meta["uid"]) if plural == JOBS.plural else None
        if desired.clean_up == "Running" and over_since is not None and self._world.time - over_since > UNSEEN_S:
            self._accuse(write, f"the Job has ended at {over_since:.3f} s, and the clean-up policy is Running")
