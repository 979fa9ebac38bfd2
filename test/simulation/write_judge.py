"""Judges every write when the server accepts it, and reports wrong ones.

It considers what the server told the operator: the operator may create or delete a job's children only on a view that the
server confirmed, and the last confirmed view must justify the write. A job whose status was never written needs no
confirmation, so any version justifies the write. Changes while the request was in flight do not count.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Final

from judge.jobs import (
    attempt_of,
    clean_up_of,
    decision_of,
    desired_job,
    ending_of,
    execution_of,
    finished_of,
    has_begun,
    is_ending,
    request_of,
    restarts_of,
)
from judge.slots import Slot, attempt_of_pod, moment, slot_of
from judge.writes import status_mistakes
from kit.model.server import Answer, Write
from kit.model.storage import Body, Change, Feed, Storage
from kit.virtual_loop import EPOCH
from simulation.attempts import StatusWrite
from simulation.interference import FORGED, SECOND, WATCHED, is_marked
from simulation.kubelet import Kubelet
from simulation.lives import End, Fate
from simulation.policies import backoff_ends, grace_of, policy_of
from simulation.quota import Quota, first_terminal
from simulation.records import LATE_EDIT_S, Records, is_final
from simulation.verdicts import TICK_S, justify
from simulation.world import OPERATORS, World
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.core import EVENTS, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import CONTAINER_NAME, TFJOBS, EventReason, limit_of

OPERATOR: Final = "operator-"
"""The prefix of the operators' names, as clients and in the election."""
LEASE: Final = ("kube-system", "tf-operator")
WORKERS_S: Final = 30.0
"""How long workers may continue after the success of a job without its own setting."""
PROMPT_S: Final = 2.0
"""The maximum duration of anything without faults."""
ATTEMPT_LABEL: Final = "training.kubeflow.org/restart-attempt"
EXECUTION_LABEL: Final = "training.kubeflow.org/execution-attempt"
REPLACING: Final = frozenset({"RestartReplica", "Ignore"})


def _seconds(text: str) -> float:
    return (moment(text) - EPOCH).total_seconds()


def lease_holder(storage: Storage) -> str:
    """Return the holder of the operators' lease, or ""."""
    lease = storage.collections["leases"].objects.get(LEASE)
    return str((lease.body.get("spec") or {}).get("holderIdentity") or "") if lease is not None else ""


def is_deletion(change: Change) -> bool:
    """Whether this change removes an object or sets its deletionTimestamp."""
    told = "deletionTimestamp" in change.new.body["metadata"]
    before = change.old is not None and "deletionTimestamp" in change.old.body["metadata"]
    return not before and (change.gone or told)


class WriteJudge(ABC):
    """Common to the checkers of both dialects. `violations` lists wrong writes."""

    def __init__(self, world: World, jobs: Resource) -> None:
        self.violations: list[str] = []
        self._world = world
        self._storage = world.server.storage
        self._resource = jobs
        self._jobs, self._events = Feed(self._storage, jobs), Feed(self._storage, EVENTS)
        self._confirmed: dict[tuple[str, str], Body] = {}
        """Each job in the server's last response to a client, by client and UID."""
        self._untouched: dict[str, list[Body]] = {}
        """The versions of each job on which an operator may act without a response, by UID."""
        world.server.on_change.append(self._look)
        world.server.on_answer.append(self._hear)

    def holder(self) -> str:
        return lease_holder(self._storage)

    @abstractmethod
    def _see(self, write: Write, *, by_operator: bool) -> None:
        """Check a write."""

    def _hear(self, request: Request, client: str, answer: Answer) -> None:
        if answer.status != 200 or request.method not in {"GET", "PATCH"} or not client.startswith(OPERATOR):
            return
        resource = self._resource
        match request.path.split("/"):
            case ["", "apis", resource.group, _, _, namespace, resource.plural, name, *_]:
                job = self._storage.collections[resource.plural].objects[namespace, name].body
                self._confirmed[client, job["metadata"]["uid"]] = job

    def _look(self) -> None:
        write = self._world.server.writes[-1]
        by_operator = write.client.startswith(OPERATOR)
        if by_operator and self.holder() not in {write.client, ""}:
            self._accuse(write, f"while the lease names {self.holder()}")
        self._see(write, by_operator=by_operator)

    def _views(self, owner: str, write: Write) -> list[Body]:
        """Return the versions of a job on which the writer may have acted; accuse it if there are none."""
        confirmed = self._confirmed.get((write.client, owner))
        found = [confirmed] if confirmed is not None else self._untouched.get(owner, [])
        if not found:
            self._accuse(write, "acted on a view of the job that was never confirmed")
        return found

    def _accuse(self, write: Write, what: str) -> None:
        self._world.note("VIOLATION", write.client, write.method, write.path, what)
        self.violations.append(f"at {write.at:.3f} s {write.client} {write.method} {write.path}: {what}")


class JobWriteJudge(WriteJudge):
    """Checks the writes of the v1 controller, and keeps `records`."""

    def __init__(self, world: World, kubelet: Kubelet, *, forgivable_s: float = math.inf) -> None:
        """`forgivable_s`: how long a succeeded pod may exist before its deletion without the operator observing it."""
        super().__init__(world, TFJOBS)
        self._forgivable_s = forgivable_s
        self.records = Records(world, kubelet, prompt=forgivable_s < math.inf)
        self._quota = Quota(world, self.records)
        self._kubelet = kubelet
        self._pods, self._services = Feed(self._storage, PODS), Feed(self._storage, SERVICES)
        self._second: set[str] = set()
        """The UIDs of all second pods, including deleted ones."""
        self._free_since: dict[tuple[str, str], float] = {}
        """When the last pod of a job was removed or its attempt started, by namespace and name."""
        self._exits: Counter[tuple[str, str]] = Counter()
        """How many pods were deleted to be recreated, by job UID and the message that their events must have."""
        self._slots: dict[str, set[Slot]] = {}
        """The replicas in the last valid spec of a job, by UID."""

    @property
    def _latest(self) -> datetime:
        """The latest time that an operator may think it is: it compares its clock with times that operators wrote."""
        return self._world.clocks.latest(self._world.server.now(), OPERATORS)

    @property
    def late(self) -> list[str]:
        """Return what took too long, if there are no faults."""
        return [f"{what} after {delay:.3f} s" for delay, what in self.records.delays if delay > PROMPT_S]

    def _see(self, write: Write, *, by_operator: bool) -> None:
        for change in self._jobs.news():
            self._see_job(change, write, by_operator=by_operator)
        for change in self._pods.news():
            self._see_pod(change, write, by_operator=by_operator)
        for change in self._services.news():
            if by_operator:
                self._see_service(change, write)
        for change in self._events.news():
            if by_operator:
                self._check_not_foreign(change.new.body["involvedObject"]["uid"], write)

    def _see_job(self, change: Change, write: Write, *, by_operator: bool) -> None:
        body, records, now = change.new.body, self.records, self._world.time
        uid = body["metadata"]["uid"]
        records.jobs[uid] = body
        records.requests[uid].add(request_of(body))
        if not (body.get("status") or {}).get("conditions"):
            self._untouched.setdefault(uid, []).append(body)
        else:
            self._untouched.pop(uid, None)
        old = change.old.body if change.old is not None else None
        if is_deletion(change):
            records.removed_at[uid] = now
            if by_operator:
                self._check_expiry(body, write)
            return
        if old is None or old["spec"] != body["spec"]:
            # The spec of a job on hold is unreadable, so it keeps the replicas of the last valid one.
            before = self._slots.get(uid, set())
            self._slots[uid] = before if desired_job(body).invalid else desired_job(body).slots
            records.edited(uid, now, before, self._slots[uid])
            records.specs[uid].append((now, body))
            if by_operator:
                self._accuse(write, "specifications are the users'")
        if old is not None and old.get("status") != body.get("status"):
            self._see_status(old, body, write)

    def _see_status(self, old: Body, body: Body, write: Write) -> None:
        records, now, uid = self.records, self._world.time, body["metadata"]["uid"]
        if decision_of(old) is None and decision_of(body) is not None:
            records.ended_at[uid] = now
            self._note_delay("end", self._due(body), body)
            for problem in justify(body, records, self._latest):
                self._accuse(write, problem)
        if ending_of(old) is None:
            for problem in self._quota.freed_too_early(old, body, write.client):
                self._accuse(write, problem)
            if is_ending(old) and not is_ending(body):
                self._note_delay("last condition", self._quota.free_since(body), body)
        records.note_status(old, body)
        problems = [*status_mistakes(old, body, records.maybe_succeeded(old), partial(records.most_restarts, uid))]
        for problem in (*problems, *StatusWrite(old, body, records, self._latest).mistakes()):
            self._accuse(write, problem)
        if attempt_of(old) != attempt_of(body):
            self._note_delay("restart", records.decided_at(old, body), body)
            records.kept[uid] = finished_of(body)
            meta = body["metadata"]
            self._free_since[meta["namespace"], meta["name"]] = now

    def _check_expiry(self, job: Body, write: Write) -> None:
        """Check that the operator deletes a job only after its TTL."""
        desired, ending = desired_job(job), ending_of(job)
        if desired.foreign or ending is None or desired.ttl_s is None:
            self._accuse(write, "nothing asked for this deletion")
            return
        due = _seconds(ending["lastTransitionTime"]) + (desired.ttl_s and desired.ttl_s + 1)
        if (self._latest - EPOCH).total_seconds() + TICK_S < due:
            self._accuse(write, f"the TTL of {desired.ttl_s} s after {ending['lastTransitionTime']} is not over")
        for uid, states in self.records.states_of(job):
            due = max(due, self._kubelet.fates[uid].over_at or 0.0)
            if self._kubelet.knows(uid) and "deletionTimestamp" not in states[-1][1]["metadata"]:
                due = max(due, self._check_kept(job, self._kubelet.fates[uid], write) or 0.0)
        self._note_delay("deletion", due, job)

    def _check_kept(self, job: Body, fate: Fate, write: Write) -> float | None:
        """Check that a pod was kept long enough for its sidecars; return until when (`Quota.kept_until`).

        The operator may have seen the pod before its training ended, and the job before its last edit.
        """
        now, edited_at = self._world.time, self.records.edited_at[job["metadata"]["uid"]]
        due = self._quota.kept_until(job, fate)
        if due is None or not self.records.prompt or now - max(fate.ended_at, edited_at) < PROMPT_S:
            return due
        if desired_job(job).suspend:
            return 0.0
        if now < due - 1 - PROMPT_S:
            self._accuse(write, f"the pod is kept for its sidecars until {due:.3f} s: {fate}")
        return due

    def _due(self, job: Body) -> float:
        desired, ending, uid = desired_job(job), decision_of(job), job["metadata"]["uid"]
        assert ending is not None
        if ending["type"] == "Succeeded":
            return self._waited_until(self.records.done_at(uid, desired), grace_of(job), uid)
        if limit_of(ending["reason"], ending["message"]) is EventReason.DEADLINE_EXCEEDED:
            return _seconds(job["status"]["startTime"]) + (desired.deadline_s or 0) + 1
        return self.records.lost_at(uid, desired) if ending["reason"] == "TFJobFailed" else self._world.time

    def _waited_until(self, done_at: float, grace_s: int | None, uid: str) -> float:
        """Return until when a success had to wait for running workers."""
        if grace_s is None:
            return done_at
        ends = [fate.ended_at for fate in self.records.all_fates(uid) if fate.slot[0] == "Worker"]
        return max(
            done_at, min(done_at + grace_s + 1, max(ends, default=0.0) if not self.records.working(uid) else math.inf)
        )

    def _note_delay(self, what: str, due: float, job: Body) -> None:
        """Note how long an action was delayed since `due` or since the last edit of the job."""
        meta = job["metadata"]
        since = max(due, self.records.edited_at[meta["uid"]])
        self.records.delays.append((self._world.time - since, f"{what} of {meta['namespace']}/{meta['name']}"))

    def _see_pod(self, change: Change, write: Write, *, by_operator: bool) -> None:
        if self._is_forged(change, write, by_operator=by_operator):
            return
        meta = change.new.body["metadata"]
        owner, slot = meta["ownerReferences"][0]["uid"], slot_of(meta)
        self.records.states[meta["uid"]].append((self._world.time, change.new.body))
        if is_marked(change.new.body, SECOND):
            if change.old is None:
                self._second.add(meta["uid"])
                self.records.seconds[owner, slot].append(meta["uid"])
            elif is_deletion(change) and by_operator:
                self._check_not_foreign(owner, write)
        elif change.old is None:
            if by_operator:
                self._check_creation(owner, change, write)
                self._check_first(owner, change, write)
                self._check_overlap(owner, change, write)
            self.records.pods[owner][slot].append(meta["uid"])
            if by_operator:
                job = self.records.jobs[owner]
                place = (meta["namespace"], job["metadata"]["name"])
                ends, free = backoff_ends(job, slot), self._free_since.get(place, 0.0)
                due = max(free, (ends - EPOCH).total_seconds()) if ends is not None else free
                self._note_delay(f"creation of {meta['name']}", due, job)
        elif is_deletion(change):
            if by_operator:
                self._check_deletion(owner, change, write)
            self.records.pod_removed(owner, slot, meta["uid"], write.client, self._world.time)
        if change.gone:
            self._free_since[meta["namespace"], meta["ownerReferences"][0]["name"]] = self._world.time
        self._see_who_stands_alone(owner, slot)

    def _is_forged(self, change: Change, write: Write, *, by_operator: bool) -> bool:
        """Whether a child names an owner in another namespace: no operator may touch it (D2)."""
        forged = is_marked(change.new.body, FORGED)
        if forged and by_operator:
            self._accuse(write, "its owner is in another namespace")
        return forged

    def _see_who_stands_alone(self, owner: str, slot: Slot) -> None:
        """Count second pods as pods of their replica if it has no other at this moment: an operator may see only them."""
        if not self.records.seconds[owner, slot]:
            return
        pods = [
            version.body
            for version in self._storage.collections["pods"].objects.values()
            if version.body["metadata"]["ownerReferences"][0]["uid"] == owner
            and not is_marked(version.body, FORGED)
            and WATCHED in version.body["metadata"]["labels"]
            and slot_of(version.body["metadata"]) == slot
        ]
        if all(is_marked(pod, SECOND) for pod in pods):
            self.records.pods[owner][slot] += self.records.seconds.pop((owner, slot))

    def _see_service(self, change: Change, write: Write) -> None:
        if self._is_forged(change, write, by_operator=True):
            return
        owner = change.new.body["metadata"]["ownerReferences"][0]["uid"]
        if change.old is None:
            self._check_creation(owner, change, write)
        elif is_deletion(change):
            job = self._confirmed.get((write.client, owner)) or self.records.jobs[owner]
            desired = desired_job(job)
            if is_ending(self.records.jobs[owner]):
                self._accuse(write, "the end of the job is not written yet")
            needed = slot_of(change.new.body["metadata"]) in desired.slots - finished_of(job)
            held = desired.invalid and has_begun(job)
            if (needed or held) and not desired.suspend and ending_of(self.records.jobs[owner]) is None:
                self._accuse(write, "the service is needed")

    def _check_creation(self, owner: str, change: Change, write: Write) -> None:
        """Check that the job needed the child, as far as the operator could know."""
        if not (views := self._views(owner, write)):
            return
        self._check_not_foreign(owner, write)
        slot = slot_of(change.new.body["metadata"])
        objections = [[*self._objections(job, slot), *self._wrong_attempt(job, slot, change.new.body)] for job in views]
        if all(objections):
            for reason in objections[-1]:
                self._accuse(write, reason)

    @staticmethod
    def _objections(job: Body, slot: Slot) -> list[str]:
        """Return why this version of a job needs no child for a replica."""
        desired = desired_job(job)
        reasons = {
            "the job is being deleted": "deletionTimestamp" in job["metadata"],
            "the job has ended": decision_of(job) is not None,
            "the job is suspended": desired.suspend,
            "the specification is wrong": desired.invalid,
            "nobody asked for this replica": slot not in desired.slots,
            "this replica has succeeded": slot in finished_of(job),
        }
        return [reason for reason, holds in reasons.items() if holds]

    def _wrong_attempt(self, job: Body, slot: Slot, child: Body) -> list[str]:
        """Return what is wrong with the attempt and the time of a new pod, by this version of the job."""
        if child["kind"] != PODS.kind:
            return []
        attempt, ends = attempt_of(job), backoff_ends(job, slot)
        labels, environment = child["metadata"]["labels"], child["spec"]["containers"][0].get("env") or ()
        variables = {each["name"]: each.get("value") for each in environment}
        told, number = variables.get("TFJOB_RESTART_ATTEMPT"), variables.get("TFJOB_EXECUTION_ATTEMPT")
        wanted = str(attempt) if attempt or policy_of(job) else None
        reasons = {
            f"it is told attempt {told} of {wanted}": not wanted == told == labels.get(ATTEMPT_LABEL),
            f"it is told execution {number} of {execution_of(job)}": not str(execution_of(job))
            == number
            == labels.get(EXECUTION_LABEL),
            f"its back-off ends at {ends}": ends is not None and (ends - self._latest).total_seconds() > TICK_S,
        }
        return [reason for reason, holds in reasons.items() if holds]

    def _check_overlap(self, owner: str, change: Change, write: Write) -> None:
        """Check that no pod of an earlier attempt may still run, except one that runs beside a succeeded replica."""
        attempt = attempt_of_pod(change.new.body)
        for fate in self.records.all_fates(owner):
            done = fate.end is End.SUCCEEDED and fate.slot in self.records.kept[owner]
            left = self._kubelet.knows(fate.uid) and not fate.over and fate.uid not in self._second
            if fate.attempt < attempt and left and not done:
                self._accuse(write, f"a pod of attempt {fate.attempt} may still run: {fate}")

    def _check_first(self, owner: str, change: Change, write: Write) -> None:
        """Check that no replica gets two pods, and none that has succeeded runs again.

        A success does not count if others delete the pod before the operator can observe it (B42), if the pod was already being
        deleted, or if the spec excluded its replica: a replica that returns after scaling runs again. The operator itself
        deletes a pod only in a state that it has observed.
        """
        slot = slot_of(change.new.body["metadata"])
        for fate in self.records.fates(owner, slot):
            if fate.uid in self._second:
                continue  # the operator may not have seen it yet
            remover = self.records.removers.get(fate.uid, "")
            if not remover:
                self._accuse(write, f"there is another pod of {slot}")
            if fate.attempt < attempt_of_pod(change.new.body) and slot not in self.records.kept[owner]:
                continue
            stood_s = self.records.pod_removed_at.get(fate.uid, 0.0) - fate.ended_at
            seen = remover.startswith(OPERATOR) or stood_s > self._forgivable_s
            if fate.end is End.SUCCEEDED and not fate.leaving and seen and fate.uid not in self.records.shed:
                self._accuse(
                    write, f"{slot} has ended well at {fate.ended_at:.3f} s, {stood_s:.3f} s before {remover} took it"
                )

    def _check_deletion(self, owner: str, change: Change, write: Write) -> None:
        """Check that a pod was deleted because its job ended, is suspended, was scaled down, or recreates it."""
        self._check_not_foreign(owner, write)
        fate = self._kubelet.fates[change.new.body["metadata"]["uid"]]
        current = self.records.jobs[owner]
        if owner in self.records.removed_at:
            return
        if is_ending(current):
            self._check_early_deletion(change, write)
        wanted = fate.slot in desired_job(current).slots or self._is_of_earlier_attempt(fate, current)
        if wanted and (due := self._check_kept(current, fate, write)) is not None:
            self._note_delay(f"deletion of {change.new.key[1]}", due, current)
        if decision_of(current) is not None:
            confirmed = self._confirmed.get((write.client, owner))
            if confirmed is not None and fate.slot not in desired_job(confirmed).slots:
                return  # excluded when the operator read the spec, whatever it says now
            self._check_clean_up(current, fate, write)
            return
        if not (views := self._views(owner, write)):
            return
        desired = desired_job(views[-1])
        if desired.invalid and not desired.suspend:
            self._accuse(write, "the job is held")
        if desired.suspend or fate.slot not in desired.slots or self._is_of_earlier_attempt(fate, views[-1]):
            return
        _, policy = desired.replicas[fate.slot[0]]
        rules = [rule for _, rule in self.records.deciders([views[-1], *self.records.recent(owner)], fate)]
        replaced = any(rule["action"] in REPLACING if rule else not is_final(fate, policy) for rule in rules)
        if fate.end in {None, End.SUCCEEDED} or not replaced:
            self._accuse(write, f"the pod was wanted as it is: {fate}")
        self._check_told(owner, change, write)
        if fate.counts and all(rule is None or rule["action"] == "RestartReplica" for rule in rules):
            self.records.replaced[owner][fate.slot] += 1
            failures, counted = self.records.replaced[owner][fate.slot], restarts_of(current).get(fate.slot, 0)
            if counted < failures:
                self._accuse(write, f"failure {failures} of {fate.slot}, and {counted} restarts are on record")

    def _check_early_deletion(self, change: Change, write: Write) -> None:
        """Check that an end which is not written yet can be decided again without its record: from the pods that have ended."""
        ended_at = first_terminal(self.records.states[change.new.body["metadata"]["uid"]])
        if self.records.prompt and ended_at is not None and self._world.time - ended_at > PROMPT_S:
            self._accuse(write, "the pod has ended, and the end of its job is not written yet")

    def _is_of_earlier_attempt(self, fate: Fate, job: Body) -> bool:
        return fate.attempt < attempt_of(job) and fate.slot not in self.records.kept[fate.owner]

    def _check_told(self, owner: str, change: Change, write: Write) -> None:
        """Check that an event says how a pod ended before the pod and its log are deleted to recreate it (U13)."""
        assert change.old is not None
        body = change.old.body
        statuses = body["status"].get("containerStatuses") or ()
        ended = next((each["state"].get("terminated") for each in statuses if each["name"] == CONTAINER_NAME), None)
        if ended is None:
            return
        meta = body["metadata"]
        text = f"{meta['namespace']}.{meta['name']} exited with code {ended['exitCode']}"
        self._exits[owner, text] += 1
        events = (held.body for held in self._storage.collections["events"].objects.values())
        told = sum(event["involvedObject"]["uid"] == owner and text in event["message"] for event in events)
        if told < self._exits[owner, text]:
            self._accuse(write, f"{told} events say that {text}, and {self._exits[owner, text]} such pods went")

    def _check_clean_up(self, job: Body, fate: Fate, write: Write) -> None:
        """Check the clean-up policy: Running keeps a pod and its log once it will not run again (M1)."""
        desired, ending, policy = desired_job(job), decision_of(job), clean_up_of(job)
        just_edited = self._world.time - self.records.edited_at[job["metadata"]["uid"]] < LATE_EDIT_S
        if desired.invalid:
            if just_edited or (ending is not None and ending["reason"] == "InvalidTFJobSpec"):
                return  # the operator may not have observed the error
        elif fate.slot not in desired.slots or self._is_of_earlier_attempt(fate, job):
            return
        if policy == "None" and not just_edited:
            self._accuse(write, "the clean-up policy is None")
        waits = (
            ending is not None and ending["type"] == "Succeeded" and grace_of(job) is None and fate.slot[0] == "Worker"
        ) and not (desired.suspend and is_ending(job))
        if (
            waits
            and fate.runs
            and self.records.prompt
            and self._world.time < self.records.ended_at[fate.owner] + WORKERS_S - 1
        ):
            self._accuse(write, f"a worker has {WORKERS_S} s after the success: {fate}")
        if policy != "All" and fate.over:
            self._accuse(write, f"the pod has ended, and the clean-up policy is {policy}: {fate}")

    def _check_not_foreign(self, owner: str, write: Write) -> None:
        if owner in self.records.jobs and desired_job(self.records.jobs[owner]).foreign:
            self._accuse(write, "the job is somebody else's")
