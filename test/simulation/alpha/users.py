"""Users of the alpha dialect: jobs of every kind, and random actions on them and their children.

All actions are timers that use the server like any client, without network faults.
"""

from functools import partial
from random import Random
from typing import Any, Final

from judge.jobs import FOREIGN, INVALID
from kit.model.kinds import CONFIG_MAPS
from simulation import scripts
from simulation.interference import WATCHED
from simulation.users import NAMESPACES, Owner, Place
from simulation.world import World
from tfjob_operator.api.core import JOBS, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW, Dialect
from tfjob_operator.controller.alpha.observe import derived_runtime_id

FIRST_DAY_S: Final = 45.0
"""Users create no jobs after this time, and stop editing them a little later."""
STRANGER: Final = "simulation/stranger"
"""The annotation of an object that has the name of a child but belongs to no job."""

SHAPES: Final[tuple[dict[str, tuple[int, int]], ...]] = (
    {"MASTER": (1, 1)},
    {"MASTER": (1, 1), "WORKER": (1, 2)},
    {"MASTER": (1, 1), "WORKER": (1, 2), "PS": (1, 2)},
    {"MASTER": (1, 1), "PS": (1, 2)},
    {"WORKER": (2, 3)},
    {"WORKER": (1, 2), "PS": (1, 1)},
)
"""Minimum and maximum replicas by type. Without a MASTER, a WORKER is the chief."""

MISTAKES: Final[tuple[dict[str, Any], ...]] = (
    {"replicaSpecs": None},
    {"replicaSpecs": []},
    {"replicaSpecs": "many"},
    {"terminationPolicy": {"chief": {"replicaName": "WORKER", "replicaIndex": 99}}},
    {"cleanupPodPolicy": "Sometimes"},
    {"tfReplicaSpecs": {"Worker": {"replicas": 1}}},
    {"schedulerName": 7},
)
"""Patches that make a valid spec invalid."""
_SHAPELESS: Final = {"replicaSpecs": None}
"""Always valid. kubeflow.org stores all versions alike, so without this field a job's dialect would be unknown."""


class Users(Owner):
    """Create `jobs` jobs and, if `busy`, edit, scale, break and delete them and their children."""

    def __init__(
        self, world: World, random: Random, dialect: Dialect, *, jobs: int, busy: bool, names: str = "job"
    ) -> None:
        super().__init__(world, dialect.resource, random)
        self._dialect = dialect
        twice = (self._delete_child, self._delete_child)
        self.acts = (self._scale, self._tidy, self._delete, self._break, *twice, self._hide, self._delete_pod)
        for number in range(jobs):
            place = (random.choice(NAMESPACES), f"{names}-{number // 2}")
            self._at(random.random() * FIRST_DAY_S, partial(self.begin, busy=busy), place)

    def create(self, place: Place) -> bool:
        job = a_job(self._random, self._dialect, place[1])
        if self._send("POST", self._jobs.path(place[0]), job) >= 300:
            return False
        if self._random.random() < 0.1:
            self._obstruct(place, self._random.choice((SERVICES, SERVICES, JOBS)))
        return True

    def mistake(self) -> dict[str, Any]:
        return _broken(self._random, self._dialect)

    def _obstruct(self, place: Place, resource: Resource) -> None:
        """Create an object with a name that a child will probably get. A Service stays; a Job is deleted after a while."""
        job = self._job(place)
        if job is None or job["spec"].get("RuntimeId"):
            return
        entries = job["spec"].get("replicaSpecs")
        kind = entries[0]["tfReplicaType"] if isinstance(entries, list) and entries else "MASTER"
        name = f"{kind.lower()}-{derived_runtime_id(job['metadata']['uid'])}-0"
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "annotations": {STRANGER: "yes"}, "finalizers": [STRANGER]},
            "spec": {"template": {}, "suspend": True} if resource == JOBS else {"ports": [{"port": 1}]},
        }
        self._send("POST", resource.path(place[0]), body)
        if resource == JOBS:
            self._at(self._random.uniform(5.0, 60.0), self._clear, resource.path(place[0], name))

    def _clear(self, path: str) -> None:
        self._send("PATCH", path, {"metadata": {"finalizers": None}})
        self._send("DELETE", path, {})

    def _scale(self, place: Place) -> None:
        """Change the number of replicas, but keep the chief."""
        job = self._good_job(place)
        if job is None:
            return
        chief = ((job["spec"].get("terminationPolicy") or {}).get("chief") or {}).get("replicaIndex", 0)
        entries = [dict(each) for each in job["spec"]["replicaSpecs"]]
        entry = self._random.choice(entries)
        if entry["tfReplicaType"] != "MASTER":
            entry["replicas"] = self._random.randint(chief + 1, chief + 3)
            self._patch(place, {"spec": {"replicaSpecs": entries}})

    def _tidy(self, place: Place) -> None:
        """Change the clean-up policy, possibly after the end."""
        if self._good_job(place) is not None:
            self._patch(place, {"spec": {"cleanupPodPolicy": self._random.choice(("All", "Running", "None"))}})

    def _delete_child(self, place: Place) -> None:
        """Delete a Job, a service or the ConfigMap of a job."""
        resource = self._random.choice((JOBS, JOBS, SERVICES, CONFIG_MAPS))
        if (child := self._pick(place, resource)) is not None:
            options = {"propagationPolicy": self._random.choice(("Background", "Foreground"))}
            self._send("DELETE", resource.path(place[0], child["metadata"]["name"]), options)

    def _delete_pod(self, place: Place) -> None:
        """Delete a pod of a Job, whatever state it is in."""
        batch_job = self._pick(place, JOBS)
        pod = self._owned(place[0], PODS, batch_job["metadata"]["uid"]) if batch_job is not None else None
        if pod is not None:
            grace = self._random.choice(({}, {}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 60}))
            self._send("DELETE", PODS.path(place[0], pod["metadata"]["name"]), grace)

    def _hide(self, place: Place) -> None:
        """Remove the label by which the operator watches a child."""
        resource = self._random.choice((JOBS, SERVICES, CONFIG_MAPS))
        if (child := self._pick(place, resource)) is not None:
            path = resource.path(place[0], child["metadata"]["name"])
            self._send("PATCH", path, {"metadata": {"labels": {WATCHED: None}}})


def a_job(random: Random, dialect: Dialect, name: str) -> dict[str, Any]:
    shape = random.choice(SHAPES)
    entries = [_entry(random, kind, random.randint(*sizes)) for kind, sizes in shape.items()]
    spec: dict[str, Any] = {"replicaSpecs": entries}
    if "MASTER" not in shape or random.random() < 0.2:
        worker = next((each for each in entries if each["tfReplicaType"] == "WORKER"), None)
        if worker is not None:
            index = random.randrange(worker["replicas"])
            spec["terminationPolicy"] = {"chief": {"replicaName": "WORKER", "replicaIndex": index}}
    if random.random() < 0.3:
        spec["RuntimeId"] = f"{name[-1]}-{random.choice('xyz')}"
    if random.random() < 0.6:
        spec["cleanupPodPolicy"] = random.choice(("All", "Running", "None"))
    if random.random() < 0.06:
        spec["runPolicy"] = {"managedBy": FOREIGN}
    resource = dialect.resource
    job = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    if random.random() < 0.05:
        mistake = _broken(random, dialect)
        job["metadata"] = {"name": name, **mistake["metadata"]}
        job["spec"] = {key: value for key, value in (spec | mistake["spec"]).items() if value is not None}
    return job


def _broken(random: Random, dialect: Dialect) -> dict[str, Any]:
    mistakes = [each for each in MISTAKES if each != _SHAPELESS or dialect is TENSORFLOW]
    return {"metadata": {"annotations": {INVALID: "yes"}}, "spec": random.choice(mistakes)}


def _entry(random: Random, kind: str, replicas: int) -> dict[str, Any]:
    """Return an entry of `replicaSpecs`; half of the parameter servers have no template, or one without a container."""
    entry: dict[str, Any] = {"tfReplicaType": kind, "replicas": replicas}
    if kind == "PS" and random.random() < 0.5:
        return entry if random.random() < 0.7 else entry | {"template": {"spec": {"containers": []}}}
    tempers = [scripts.STEADY, scripts.STEADY, scripts.RETRYING, scripts.FLAKY, scripts.FLAKY, scripts.ENDLESS]
    if kind == "PS":
        tempers += [scripts.ENDLESS] * 6
    annotations = {scripts.TEMPER: random.choice(tempers)}
    containers: list[dict[str, Any]] = [{"name": "tensorflow", "image": "train"}]
    policy = random.choice((None, "Never", "Never", "OnFailure", "OnFailure", "Always"))
    if random.random() < 0.1:
        containers.append({"name": "sidecar", "image": "proxy"})
        # A job with a container that always restarts would never reach a final state.
        ends = [scripts.ENDING] if policy == "Never" else []
        annotations[scripts.SIDECAR] = random.choice([scripts.STAYING, *ends])
    spec: dict[str, Any] = {"containers": containers}
    if policy is not None:
        spec["restartPolicy"] = policy
    if random.random() < 0.3:
        spec["terminationGracePeriodSeconds"] = random.choice((1, 5, 60))
    return entry | {"template": {"metadata": {"annotations": annotations}, "spec": spec}}
