"""The oracle: in the final world every job must be in the state that follows from its spec and the history of its pods."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from simulation.desired import (
    DesiredJob,
    clean_up_of,
    decision_of,
    desired_job,
    ending_of,
    finished_of,
    has_begun,
    is_ending,
    restarts_of,
)
from simulation.interference import FORGED, SECOND, WATCHED, is_marked
from simulation.lives import End, Fate
from simulation.model.storage import Body
from simulation.policies import attempt_of, request_of
from simulation.records import Records
from simulation.slots import Slot, labels_of, selector_of, slot_of
from simulation.world import World


def grouped(
    world: World, plurals: tuple[str, ...], mark: str, owners: str = "tfjobs"
) -> tuple[dict[str, Body], dict[str, dict[str, list[Body]]], list[str]]:
    """Return owners by UID, children by UID and plural, and objects that should be gone. Marked objects are skipped."""
    collections = world.server.storage.collections
    bodies = {version.body["metadata"]["uid"]: version.body for version in collections[owners].objects.values()}
    children: dict[str, dict[str, list[Body]]] = {uid: {plural: [] for plural in plurals} for uid in bodies}
    found: list[str] = []
    for plural in plurals:
        for version in collections[plural].objects.values():
            meta = version.body["metadata"]
            if is_marked(version.body, mark):
                continue
            owner = meta["ownerReferences"][0]["uid"]
            if owner not in bodies:
                found.append(f"{meta['name']} of {plural} has outlived its owner")
            elif "deletionTimestamp" in meta:
                found.append(f"{meta['name']} of {plural} has not gone yet")
            else:
                children[owner][plural].append(version.body)
    return bodies, children, found


def complaints(world: World, records: Records) -> list[str]:
    if not records.kubelet.is_at_rest:
        return ["the nodes are at work"]
    jobs, children, found = grouped(world, ("pods", "services", "configmaps"), FORGED)
    for uid, job in jobs.items():
        case = _Case(world, records, job, children[uid])
        meta = job["metadata"]
        found += [f"{meta['namespace']}/{meta['name']} ({uid}): {complaint}" for complaint in case.complaints()]
    return found


def _precedence(pod: Body) -> tuple[bool, str, str]:
    """Return the sort key that selects the pod of a replica: not an interfering client's, and the oldest."""
    meta = pod["metadata"]
    return is_marked(pod, SECOND), meta["creationTimestamp"], meta["uid"]


class _Case:
    def __init__(self, world: World, records: Records, job: Body, children: dict[str, list[Body]]) -> None:
        self._world = world
        self._records = records
        self._uid = job["metadata"]["uid"]
        self._job = job
        self._wish: DesiredJob = desired_job(job)
        self._status: dict[str, Any] = job.get("status") or {}
        self._ending = ending_of(job)
        self._has_begun = has_begun(job) or any(records.pods[self._uid].values())
        pods, services = (self._noticed(children[plural]) for plural in ("pods", "services"))
        ordered = sorted(pods, key=_precedence)
        self._pods: dict[Slot, Body] = {slot_of(pod["metadata"]): pod for pod in reversed(ordered)}
        self._seconds = [pod for pod in ordered if pod is not self._pods[slot_of(pod["metadata"])]]
        self._services: dict[Slot, Body] = {slot_of(service["metadata"]): service for service in services}
        self._config_maps = {each["metadata"]["name"] for each in children["configmaps"]}

    def _noticed(self, children: list[Body]) -> list[Body]:
        """Return the children that the operator can notice: watched ones, and those whose names it needs (D13).

        It needs the names of unfinished replicas, except that of a pod with a second pod in its place.
        """
        shown = [child for child in children if WATCHED in child["metadata"]["labels"]]
        needed = self._wish.slots - finished_of(self._job) if self._lives() else set()
        needed -= {slot_of(child["metadata"]) for child in shown}
        return [child for child in children if child in shown or slot_of(child["metadata"]) in needed]

    def _lives(self) -> bool:
        desired = self._wish
        return decision_of(self._job) is None and not (desired.suspend or desired.foreign or desired.invalid)

    def complaints(self) -> Iterator[str]:
        if "deletionTimestamp" in self._job["metadata"]:
            yield "is being deleted, and is still there"
        elif self._wish.foreign:
            if self._pods or self._services or self._status:
                yield "is somebody else's, and was touched"
        elif not self._status:
            yield "nobody has looked at it"
        elif self._status.get("observedGeneration") != self._job["metadata"]["generation"]:
            yield "its last edit was not looked at"
        elif self._ending is not None:
            yield from self._when_ended()
            yield from self._wrong_config_maps(spare=0)
        elif is_ending(self._job):
            yield "its end is decided, and not written"
        elif self._wish.invalid and not self._has_begun:
            yield "its specification is wrong, and it goes on"
        elif self._wish.suspend:
            yield from self._when_suspended()
            yield from self._wrong_config_maps(spare=0)
        elif self._wish.invalid:
            yield from self._when_held()
        else:
            yield from self._when_alive()
            yield from self._wrong_config_maps(spare=1)

    def _when_ended(self) -> Iterator[str]:
        desired, ending = self._wish, self._ending
        assert ending is not None
        policy = clean_up_of(self._job)
        for slot, pod in self._pods.items():
            phase = pod["status"]["phase"]
            if policy == "All" or (policy == "Running" and phase not in {"Succeeded", "Failed"}):
                yield f"has ended as {ending['type']}, and under {policy} the pod of {slot} is {phase}"
        for pod in self._seconds:
            if policy == "All" or self._fate(pod).runs:
                yield f"has ended, and under {policy} the second pod {pod['metadata']['name']} is there"
        if self._services.keys() - self._pods.keys():
            yield f"has ended, and keeps the services {sorted(self._services)}"
        if desired.ttl_s is not None:
            yield f"should be gone {desired.ttl_s} s after {ending['lastTransitionTime']}"
        yield from self._wrong_counts()

    def _when_suspended(self) -> Iterator[str]:
        if self._pods or self._services or self._seconds:
            yield f"is suspended, and has the pods {sorted(self._pods)} and services {sorted(self._services)}"
        conditions = {each["type"]: each["status"] for each in self._status["conditions"]}
        if conditions.get("Suspended") != "True" or conditions.get("Running") == "True":
            yield f"is suspended, and its conditions are {conditions}"
        yield from self._wrong_counts()

    def _when_held(self) -> Iterator[str]:
        """Return whether the status of a job on hold is outdated. The write checker verifies that nothing else changed."""
        conditions = {each["type"]: each["status"] for each in self._status["conditions"]}
        if conditions.get("Held") != "True":
            yield f"its specification is wrong, and its conditions are {conditions}"
        if self._wish.deadline_s is not None and conditions.get("Suspended") != "True":
            yield f"is held until its deadline {self._wish.deadline_s} s after {self._status['startTime']}"
        sizes = self._status["begun"].get("replicas") or {}
        ended = {slot for slot, pod in self._pods.items() if self._fate(pod).end is End.SUCCEEDED}
        wanted = {slot for slot in ended if slot[1] < sizes.get(slot[0], 0)}
        if missed := wanted - finished_of(self._job):
            yield f"does not know that {sorted(missed)} have succeeded"

    def _when_alive(self) -> Iterator[str]:
        desired, finished = self._wish, finished_of(self._job)
        if desired.is_done(finished):
            yield f"has not ended, though {sorted(finished)} have succeeded"
        kept = sum(self._fate(pod).in_place for pod in self._pods.values())
        restarts = kept + sum(self._records.replaced[self._uid].values())
        if desired.backoff_limit is not None and restarts > desired.backoff_limit:
            yield f"goes on after {restarts} restarts of {desired.backoff_limit} allowed"
        if desired.deadline_s is not None:
            yield f"goes on until its deadline {desired.deadline_s} s after {self._status['startTime']}"
        for slot, pod in self._pods.items():
            yield from self._wrong_pod(slot, self._fate(pod))
        if missing := desired.slots - finished - self._pods.keys():
            yield f"has no pods of {sorted(missing)}"
        if missing := desired.slots - finished - self._services.keys():
            yield f"has no services of {sorted(missing)}"
        if surplus := self._services.keys() - desired.slots:
            yield f"has services of {sorted(surplus)}, which are not asked for"
        requested = request_of(self._job)
        if requested and requested != self._status.get("observedRestartRequest"):
            yield f"was not restarted as {requested} requests"
        waiting = [slot for slot, pod in self._pods.items() if pod["status"].get("phase") == "Pending"]
        all_ran = (self._status.get("begun") or {}).get("allRan")
        if waiting and not all_ran and "startDeadlineSeconds" in (self._job["spec"].get("runPolicy") or {}):
            yield f"goes on until {sorted(waiting)} should run"
        yield from self._unrepaired_interference()
        conditions = {each["type"]: each["status"] for each in self._status["conditions"]}
        running = conditions.get("Running") == "True"
        deciders = [name for name in ("Chief", "Master", "Worker") if desired.replicas.get(name, (0,))[0]][:1]
        active = [slot for slot in self._running() if not deciders or slot[0] in deciders]
        if conditions.get("Held") == "True":
            yield f"its specification is right, and its conditions are {conditions}"
        if running != bool(active):
            yield f"of {sorted(self._running())} that run, and its conditions are {conditions}"
        yield from self._wrong_counts()

    def _unrepaired_interference(self) -> Iterator[str]:
        """Return unrepaired interference with the children of an unfinished job (D7, D13, U9, U17)."""
        if self._seconds:
            yield f"has second pods: {[pod['metadata']['name'] for pod in self._seconds]}"
        name = self._job["metadata"]["name"]
        for child in (*self._pods.values(), *self._services.values()):
            slot, labels = slot_of(child["metadata"]), child["metadata"]["labels"]
            if any(labels.get(label) != value for label, value in labels_of(name, slot).items()):
                yield f"has a child of {slot} with wrong labels: {labels}"
        for slot, service in self._services.items():
            if service["spec"].get("selector") != selector_of(name, slot):
                yield f"has a service of {slot} that selects {service['spec'].get('selector')}"

    def _wrong_pod(self, slot: Slot, fate: Fate) -> Iterator[str]:
        """Return what is wrong with a pod of an unfinished job."""
        if slot not in self._wish.slots:
            yield f"has a pod of {slot}, which is not asked for"
        elif fate.end is End.SUCCEEDED and slot not in finished_of(self._job):
            yield f"does not know that {slot} has succeeded"
        elif fate.attempt != attempt_of(self._job) and slot not in self._records.kept[self._uid]:
            yield f"has a pod of another attempt than {attempt_of(self._job)}: {fate}"
        elif self._records.ends_job(self._job, self._wish.replicas[slot[0]][1], fate):
            yield f"goes on though {slot} has failed for good: {fate}"
        elif fate.end not in {None, End.SUCCEEDED}:
            yield f"does not replace the pod of {slot}: {fate}"
        elif restarts_of(self._job).get(slot, 0) < fate.in_place:
            yield f"knows of {restarts_of(self._job).get(slot, 0)} restarts of {slot}, and there were more: {fate}"

    def _wrong_config_maps(self, *, spare: int) -> Iterator[str]:
        """Return missing ConfigMaps of pods that may restart, and unread ones if there are more than `spare`."""
        if self._wish.invalid:
            return  # the previous spec is unknown
        read = {name for pod in self._pods.values() if not self._fate(pod).over for name in _config_maps_of(pod)}
        if missing := read - self._config_maps:
            yield f"has pods that read {sorted(missing)}, which is not there"
        unread = self._config_maps - read
        if len(unread) > spare:
            yield f"keeps {sorted(unread)}, which nothing reads"

    def _wrong_counts(self) -> Iterator[str]:
        """Return wrong counters. `failed` is not checked: it has only failures that were not yet processed."""
        if self._wish.invalid:
            return
        written = self._status.get("replicaStatuses") or {}
        active = Counter(name for name, _ in self._running() if name in self._wish.replicas)
        succeeded = Counter(name for name, _ in finished_of(self._job) & self._wish.slots)
        succeeds = self._ending is not None and self._ending["type"] == "Succeeded"  # then its counters are final
        for name in self._wish.replicas:
            counts = written.get(name, {"active": 0, "succeeded": 0, "failed": 0})
            if counts["active"] != (0 if succeeds else active[name]):
                yield f"{active[name]} {name} replicas run, and it counts {counts}"
            if counts["succeeded"] != succeeded[name] and self._ending is None:
                yield f"{succeeded[name]} {name} replicas have succeeded, and it counts {counts}"

    def _running(self) -> list[Slot]:
        return [slot for slot, pod in self._pods.items() if self._fate(pod).runs]

    def _fate(self, pod: Body) -> Fate:
        return self._records.kubelet.fates[pod["metadata"]["uid"]]


def _config_maps_of(pod: Body) -> set[str]:
    return {
        variable["valueFrom"]["configMapKeyRef"]["name"]
        for container in pod["spec"]["containers"]
        for variable in container.get("env", ())
        if "valueFrom" in variable
    }
