"""Judges the final world of a simulation: every job at rest, and what interfering clients did to its children."""

from collections.abc import Iterator
from typing import Any

from judge.jobs import clean_up_of, decision_of, desired_job, finished_of, has_begun
from judge.rest import JobAtRest, PodAtRest
from judge.slots import Slot, labels_of, selector_of, slot_of
from kit.model.storage import Body
from simulation.interference import FORGED, SECOND, WATCHED, is_marked
from simulation.lives import End, Fate
from simulation.records import Records
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
        meta = job["metadata"]
        case = _Case(records, job, children[uid])
        found += [f"{meta['namespace']}/{meta['name']} ({uid}): {complaint}" for complaint in case.complaints()]
    return found


def _precedence(pod: Body) -> tuple[bool, str, str]:
    """Return the sort key that selects the pod of a replica: not an interfering client's, and the oldest."""
    meta = pod["metadata"]
    return is_marked(pod, SECOND), meta["creationTimestamp"], meta["uid"]


def _noticed(job: Body, children: list[Body]) -> list[Body]:
    """Return the children that the operator can notice: watched ones, and those whose names it needs (D13).

    It needs the names of unfinished replicas, except that of a pod with a second pod in its place.
    """
    desired = desired_job(job)
    lives = decision_of(job) is None and not (desired.suspend or desired.foreign or desired.invalid)
    shown = [child for child in children if WATCHED in child["metadata"]["labels"]]
    needed = desired.slots - finished_of(job) if lives else set()
    needed -= {slot_of(child["metadata"]) for child in shown}
    return [child for child in children if child in shown or slot_of(child["metadata"]) in needed]


class _Case(JobAtRest):
    def __init__(self, records: Records, job: Body, children: dict[str, list[Body]]) -> None:
        uid, self._records = job["metadata"]["uid"], records
        pods, services = (_noticed(job, children[plural]) for plural in ("pods", "services"))
        ordered = sorted(pods, key=_precedence)
        self._bodies: dict[Slot, Body] = {slot_of(pod["metadata"]): pod for pod in reversed(ordered)}
        self._seconds = [pod for pod in ordered if pod is not self._bodies[slot_of(pod["metadata"])]]
        self._services: dict[Slot, Body] = {slot_of(service["metadata"]): service for service in services}
        self._config_maps = {each["metadata"]["name"] for each in children["configmaps"]}
        restarts = sum(self._fate(pod).in_place for pod in self._bodies.values())
        super().__init__(
            job,
            {slot: self._at_rest(job, slot, pod) for slot, pod in self._bodies.items()},
            self._services,
            begun=has_begun(job) or any(records.pods[uid].values()),
            restarts=restarts + sum(records.replaced[uid].values()),
            kept=records.kept[uid],
        )

    def _at_rest(self, job: Body, slot: Slot, pod: Body) -> PodAtRest:
        fate, desired = self._fate(pod), desired_job(job)
        return PodAtRest(
            phase=pod["status"].get("phase", ""),
            attempt=fate.attempt,
            runs=fate.runs,
            succeeded=fate.end is End.SUCCEEDED,
            failed=fate.end not in {None, End.SUCCEEDED},
            in_place=fate.in_place,
            final=slot in desired.slots and self._records.ends_job(job, desired.replicas[slot[0]][1], fate),
        )

    def when_ended(self, ending: dict[str, Any]) -> Iterator[str]:
        yield from super().when_ended(ending)
        for pod in self._seconds:
            if clean_up_of(self.job) == "All" or self._fate(pod).runs:
                yield f"has ended, and the second pod {pod['metadata']['name']} is there"
        yield from self._wrong_config_maps(spare=0)

    def when_suspended(self) -> Iterator[str]:
        yield from super().when_suspended()
        if self._seconds:
            yield f"is suspended, and has {len(self._seconds)} second pods"
        yield from self._wrong_config_maps(spare=0)

    def when_alive(self) -> Iterator[str]:
        """Check also that interference with the children of an unfinished job was repaired (D7, D13, U9, U17)."""
        yield from super().when_alive()
        if self._seconds:
            yield f"has second pods: {[pod['metadata']['name'] for pod in self._seconds]}"
        name = self.job["metadata"]["name"]
        for child in (*self._bodies.values(), *self._services.values()):
            slot, labels = slot_of(child["metadata"]), child["metadata"]["labels"]
            if any(labels.get(label) != value for label, value in labels_of(name, slot).items()):
                yield f"has a child of {slot} with wrong labels: {labels}"
        for slot, service in self._services.items():
            if service["spec"].get("selector") != selector_of(name, slot):
                yield f"has a service of {slot} that selects {service['spec'].get('selector')}"
        yield from self._wrong_config_maps(spare=1)

    def _wrong_config_maps(self, *, spare: int) -> Iterator[str]:
        """Return missing ConfigMaps of pods that may restart, and unread ones if there are more than `spare`."""
        if self.desired.invalid:
            return  # the previous spec is unknown
        read = {name for pod in self._bodies.values() if not self._fate(pod).over for name in _config_maps_of(pod)}
        if missing := read - self._config_maps:
            yield f"has pods that read {sorted(missing)}, which is not there"
        unread = self._config_maps - read
        if len(unread) > spare:
            yield f"keeps {sorted(unread)}, which nothing reads"

    def _fate(self, pod: Body) -> Fate:
        return self._records.kubelet.fates[pod["metadata"]["uid"]]


def _config_maps_of(pod: Body) -> set[str]:
    return {
        variable["valueFrom"]["configMapKeyRef"]["name"]
        for container in pod["spec"]["containers"]
        for variable in container.get("env", ())
        if "valueFrom" in variable
    }
