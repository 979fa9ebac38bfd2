"""Users of a simulated cluster: jobs of every kind, and random actions on them.

All actions are timers that use the server like any client, without network faults.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from hack.kubernetes_versions import (
    CONTAINER_RESTART_RULES,
    NATIVE_SIDECARS,
    ORDINARY_POLICIES_REFUSED,
    RESTART_ALL_CONTAINERS,
    Kubernetes,
)
from judge.jobs import FOREIGN, INVALID, QUEUE, REQUEST, attempt_of, is_ending
from judge.slots import REPLICA_TYPES
from kit.model.kinds import CONFIG_MAPS
from kit.model.storage import Body, Feed
from kit.virtual_loop import NETWORK
from simulation import scripts
from simulation.accelerators import GPU
from simulation.interference import HELD
from simulation.world import World
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

Place = tuple[str, str]
"""Namespace and name."""


class Person:
    """Sends requests as `user`, and reads the jobs of one API from storage, not from a cache.

    `done_at` is the time of the last planned action.
    """

    def __init__(self, world: World, jobs: Resource, random: Random) -> None:
        self._world = world
        self._jobs = jobs
        self._random = random
        self.done_at = 0.0

    def _at(self, seconds: float, act: Any, *args: Any) -> None:
        due = self._world.time + seconds
        self.done_at = max(self.done_at, due)
        asyncio.get_running_loop().call_at(due, act, *args, context=NETWORK)

    def _job(self, place: Place) -> Body | None:
        found = self._world.server.storage.collections[self._jobs.plural].objects.get(place)
        return found.body if found else None

    def _send(self, method: str, path: str, body: dict[str, Any]) -> int:
        return self._world.act("user", method, path, body)


class Owner(Person, ABC):
    """A user who creates jobs and, if `busy`, acts on them. Subclasses depend on the dialect."""

    acts: tuple[Callable[[Place], None], ...]

    @abstractmethod
    def create(self, place: Place) -> bool:
        """Create a job. Return whether the server accepted it."""

    @abstractmethod
    def mistake(self) -> dict[str, Any]:
        """Return a patch that makes a valid spec invalid."""

    def begin(self, place: Place, *, busy: bool) -> None:
        """Create a job, and plan actions on it."""
        if self.create(place) and busy:
            for _ in range(self._random.choice((0, 0, 1, 1, 2, 4))):
                self._at(self._random.uniform(0.0, 40.0), self._random.choice(self.acts), place)

    def _patch(self, place: Place, change: dict[str, Any]) -> None:
        self._send("PATCH", self._jobs.path(*place), change)

    def _good_job(self, place: Place) -> Body | None:
        job = self._job(place)
        return job if job is not None and INVALID not in job["metadata"].get("annotations", {}) else None

    def _break(self, place: Place) -> None:
        """Make a spec invalid; usually it is fixed later."""
        job = self._good_job(place)
        if job is None:
            return
        mistake = self.mistake()
        self._patch(place, mistake)
        if self._random.random() < 0.7:
            self._at(self._random.uniform(0.0, 25.0), self._fix, place, job["metadata"]["uid"], _undone(job, mistake))

    def _fix(self, place: Place, uid: str, change: dict[str, Any]) -> None:
        job = self._job(place)
        if job is not None and job["metadata"]["uid"] == uid:
            self._patch(place, change)

    def _delete(self, place: Place) -> None:
        """Delete a job, and usually create another one with that name, at once or a little later (B12)."""
        options = {"propagationPolicy": self._random.choice(("Background", "Background", "Foreground"))}
        self._send("DELETE", self._jobs.path(*place), options)
        if self._random.random() < 0.6:
            again = partial(self.begin, busy=True)
            self._at(self._random.choice((0.0, 0.5, 8.0)), again, place)

    def _pick(self, place: Place, resource: Resource) -> Body | None:
        """Choose a child of a job."""
        job = self._job(place)
        return self._owned(place[0], resource, job["metadata"]["uid"]) if job is not None else None

    def _owned(self, namespace: str, resource: Resource, uid: str) -> Body | None:
        own = [
            version.body
            for key, version in self._world.server.storage.collections[resource.plural].objects.items()
            if key[0] == namespace
            and any(owner["uid"] == uid for owner in version.body["metadata"].get("ownerReferences", ()))
        ]
        return self._random.choice(own) if own else None


def _undone(before: Any, change: Any) -> Any:
    """Return the merge patch that reverts another one."""
    if not isinstance(change, dict) or not isinstance(before, dict):
        return before
    return {name: _undone(before.get(name), each) for name, each in change.items()}


NAMESPACES: Final = ("team", "lab")
FIRST_DAY_S: Final = 50.0
"""Users create no jobs after this time, and stop editing them a little later."""

SHAPES: Final = (
    {"Worker": (1, 4)},
    {"Worker": (1, 4)},
    {"Chief": (1, 1), "Worker": (1, 3)},
    {"Master": (1, 1), "Worker": (0, 2), "PS": (1, 2)},
    {"PS": (1, 2), "Worker": (1, 3)},
    {"Chief": (1, 1), "Worker": (1, 2), "Evaluator": (1, 1)},
    {"PS": (1, 2)},
    {"Evaluator": (1, 1)},
)
"""Minimum and maximum replicas by type."""

NATIVE_SIDECAR: Final = {"name": "proxy", "image": "proxy", "restartPolicy": "Always"}

MISTAKES: Final[tuple[dict[str, Any], ...]] = (
    {"tfReplicaSpecs": None},
    {"runPolicy": {"backoffLimit": -1}},
    {"successPolicy": "Sometimes"},
    {"runPolicy": {"cleanPodPolicy": 3}},
    {"tfReplicaSpecs": {"Worker": 5}},
    {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": []}}}}},
    {"tfReplicaSpecs": {"Captain": {"template": {}}}},
)
"""Patches that make a valid spec invalid."""


class Users(Owner):
    """Create `jobs` jobs and, if `busy`, edit, suspend, scale, break and delete them and their pods.

    Most jobs in a queue are edited between the decision how they end and their last condition, and some jobs that were just
    restarted as a whole are restarted again.
    """

    def __init__(
        self,
        world: World,
        random: Random,
        *,
        jobs: int,
        busy: bool,
        policies: float = 0.0,
        queued: float = 0.1,
        gpus: bool = False,
    ) -> None:
        """`policies`: the share of jobs with a failure policy. `queued`: that of jobs in a queue, most with sidecars.

        `gpus`: the pods of all jobs have some.
        """
        super().__init__(world, TFJOBS, random)
        self._gpus = gpus
        self._policies = policies
        self._queued = queued
        self._at_the_end = (
            *(self._suspend, self._scale, self._break, self._change_success, self._request_restart, self._leave_queue),
            *(partial(self._scale, most=1), partial(self._scale, most=1), self._delete_pod, self._retire),
        )
        if busy:
            self._feed = Feed(world.server.storage, TFJOBS)
            world.server.on_change.append(self._look)
        often, seldom = (self._suspend, self._scale, self._delete_pod), (self._delete, self._retire, self._break)
        self.acts = (*often, *often, *seldom, self._delete_config_map)
        if policies:
            self.acts += (self._request_restart,) * 5 + (self._change_policy,) * 3
        for number in range(jobs):
            # Two namespaces may have jobs with the same name, which must not be confused (B19).
            place = (random.choice(NAMESPACES), f"job-{number // 2}" if random.random() < 0.3 else f"run-{number}")
            self._at(random.random() * FIRST_DAY_S, partial(self.begin, busy=busy), place)

    def create(self, place: Place) -> bool:
        job = a_job(self._random, place[1], self._world.kubernetes)
        if self._policies and INVALID not in job["metadata"].get("annotations", {}):
            _make_eventful(self._random, job["spec"])
            if self._random.random() < self._policies:
                _add_policy(self._random, job["spec"])
        if INVALID not in job["metadata"].get("annotations", {}) and self._random.random() < self._queued:
            job["metadata"]["labels"] = {QUEUE: "queue"}
            _make_lasting(self._random, job["spec"], self._world.kubernetes)
        if self._gpus and INVALID not in job["metadata"].get("annotations", {}):
            for number, template in enumerate(_templates(job["spec"])):
                template["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(1 + number)}}
        return self._send("POST", TFJOBS.path(place[0]), job) < 300

    def mistake(self) -> dict[str, Any]:
        return _broken(self._random)

    def _look(self) -> None:
        """Act on jobs whose end was just decided, or that were just restarted."""
        for change in self._feed.news():
            if change.old is None:
                continue
            if is_ending(change.new.body) and not is_ending(change.old.body) and self._random.random() < 0.8:
                self._at(self._random.uniform(0.0, 5.0), self._random.choice(self._at_the_end), change.new.key)
            restarted = self._policies and attempt_of(change.old.body) < attempt_of(change.new.body)
            if restarted and self._random.random() < 0.15:
                self._at(self._random.uniform(5.0, 25.0), self._request_restart, change.new.key)

    def _change_success(self, place: Place) -> None:
        self._patch(place, {"spec": {"successPolicy": self._random.choice(("", "AllWorkers"))}})

    def _leave_queue(self, place: Place) -> None:
        self._patch(place, {"metadata": {"labels": {QUEUE: None}}})

    def _suspend(self, place: Place) -> None:
        """Suspend a job; usually it is resumed later."""
        self._patch(place, {"spec": {"runPolicy": {"suspend": True}}})
        if self._random.random() < 0.8:
            change = {"spec": {"runPolicy": {"suspend": self._random.choice((None, False))}}}
            self._at(self._random.uniform(0.0, 25.0), self._patch, place, change)

    def _scale(self, place: Place, most: int = 4) -> None:
        if (job := self._good_job(place)) is not None:
            kind = self._random.choice(sorted(job["spec"]["tfReplicaSpecs"]))
            count = 1 if kind.lower() in {"chief", "master"} else self._random.randint(1, most)
            # kubectl scale writes one spelling, and adds it next to another one.
            kind = "Worker" if kind.lower() == "worker" else kind
            self._patch(place, {"spec": {"tfReplicaSpecs": {kind: {"replicas": count}}}})

    def _retire(self, place: Place) -> None:
        """Change a TTL, possibly after the end (B45)."""
        self._patch(place, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": self._random.choice((None, 1, 30))}}})

    def _delete_pod(self, place: Place) -> None:
        """Delete one pod of a job, in any state (B41, B42)."""
        if (pod := self._pick(place, PODS)) is not None:
            path = PODS.path(place[0], pod["metadata"]["name"])
            graces: tuple[int | None, ...] = (None, None, 0, 1, 60)
            self._delete_with(path, self._random.choice(graces))
            if self._random.random() < 0.3:  # an impatient user
                self._at(self._random.uniform(0.1, 6.0), self._delete_with, path, self._random.choice((0, 1, 5)))

    def _delete_config_map(self, place: Place) -> None:
        """Delete a ConfigMap of a job, if it has any: users cannot see that pods need it."""
        if (found := self._pick(place, CONFIG_MAPS)) is not None:
            self._send("DELETE", CONFIG_MAPS.path(place[0], found["metadata"]["name"]), {})

    def _request_restart(self, place: Place) -> None:
        """Restart a whole job, usually with a new value."""
        value = self._random.choice(("again", f"at {self._world.time:.3f}", f"at {self._world.time:.3f}"))
        self._patch(place, {"metadata": {"annotations": {REQUEST: value}}})

    def _change_policy(self, place: Place) -> None:
        if (job := self._good_job(place)) is not None and not _is_stuck(job["spec"]):
            policy = a_policy(self._random, job["spec"]) if self._random.random() < 0.8 else None
            self._patch(place, {"spec": {"runPolicy": {"failurePolicy": policy}}})

    def _delete_with(self, pod: str, grace: int | None) -> None:
        self._send("DELETE", pod, {} if grace is None else {"gracePeriodSeconds": grace})


def a_job(random: Random, name: str, kubernetes: Kubernetes) -> dict[str, Any]:
    run_policy: dict[str, Any] = {}
    spec: dict[str, Any] = {"runPolicy": run_policy}
    limit = random.choice((None, None, None, 0, 1, 3))
    deadline = random.choice((None, None, None, None, 5, 20, 45))
    optional = {
        "backoffLimit": limit,
        "activeDeadlineSeconds": deadline,
        "ttlSecondsAfterFinished": random.choice((None, None, None, 0, 3, 20)),
        "suspend": random.choice((None, None, None, None, None, False, True)),
        "managedBy": FOREIGN if random.random() < 0.06 else None,
    }
    run_policy |= {name: value for name, value in optional.items() if value is not None}
    if random.random() < 0.75:
        where = random.choice((spec, run_policy))  # both places are valid (B08)
        where["cleanPodPolicy"] = random.choice(("All", "Running", "None"))
    if random.random() < 0.3:
        spec["successPolicy"] = "AllWorkers"
    shape = random.choice(SHAPES)
    spec["tfReplicaSpecs"] = {
        _spelled(random, kind): _replicas(random, kind, sizes, kubernetes, limited=limit is not None)
        for kind, sizes in shape.items()
    }
    job = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "metadata": {"name": name}, "spec": spec}
    if random.random() < 0.05:
        mistake = _broken(random)
        job["metadata"] = {"name": name, **mistake["metadata"]}
        job["spec"] = spec | mistake["spec"]
    return job


def _templates(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["template"] for each in spec["tfReplicaSpecs"].values() if "template" in each]


def _make_eventful(random: Random, spec: dict[str, Any]) -> None:
    """Let most replicas fail, but not more often than a whole job can be restarted, and let few jobs end before."""
    for template in _templates(spec):
        annotations = template["metadata"]["annotations"]
        if annotations[scripts.TEMPER] in {scripts.STEADY, scripts.BROKEN}:
            annotations[scripts.TEMPER] = random.choice((scripts.FLAKY, scripts.FLAKY, scripts.RETRYING))
    if random.random() < 0.7:
        spec["runPolicy"].pop("activeDeadlineSeconds", None)
    if random.random() < 0.3:
        spec["runPolicy"]["completionGracePeriodSeconds"] = random.choice((0, 4, 20))


def _make_lasting(random: Random, spec: dict[str, Any], kubernetes: Kubernetes) -> None:
    """Let pods outlast the training: by sidecars, or because they end slowly. Kueue reads only one spelling."""
    spec["tfReplicaSpecs"] = {REPLICA_TYPES[kind.lower()]: each for kind, each in spec["tfReplicaSpecs"].items()}
    for replicas in spec["tfReplicaSpecs"].values():
        template = replicas["template"]
        if random.random() < 0.6 and scripts.SIDECAR not in template["metadata"]["annotations"]:
            _add_sidecar(random, template, replicas.get("restartPolicy"))
        if random.random() < 0.3 and kubernetes.has(NATIVE_SIDECARS):
            template["spec"].setdefault("initContainers", [NATIVE_SIDECAR])
        template["spec"]["terminationGracePeriodSeconds"] = random.choice((5, 30, 60, 90))
    if random.random() < 0.3:
        spec["runPolicy"]["completionGracePeriodSeconds"] = random.choice((0, 4, 20))


def _add_policy(random: Random, spec: dict[str, Any]) -> None:
    run_policy = spec["runPolicy"]
    if random.random() < 0.2:
        run_policy["startDeadlineSeconds"] = random.choice((15, 40))
        if random.random() < 0.3:
            random.choice(_templates(spec))["metadata"]["annotations"][scripts.TEMPER] = scripts.STUCK
    run_policy["failurePolicy"] = a_policy(random, spec)


def _is_stuck(spec: dict[str, Any]) -> bool:
    return any(each["metadata"]["annotations"][scripts.TEMPER] == scripts.STUCK for each in _templates(spec))


EXIT_CODES: Final = (
    ("In", [137]),
    ("In", [1, 2]),
    ("In", [1, 130, 138, 143]),
    ("NotIn", [1]),
    ("NotIn", [2, 137, 143]),
)
REASONS: Final = ("OOMKilled", "Evicted", "NodeLost", "StartDeadlineExceeded")


def a_policy(random: Random, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a failure policy for a job. All rules have different names."""
    own = any(each.get("restartPolicy") for template in _templates(spec) for each in template["spec"]["containers"])
    kinds = ["onPodConditions", "onFailureReasons", "onFailureReasons", "", *([] if own else ["onExitCodes"] * 4)]
    actions = ["FailJob", "RestartAll", "RestartAll"]
    if not _is_stuck(spec):
        actions += ["RestartAllAndIgnoreMaxRestarts"]
    if "startDeadlineSeconds" not in spec["runPolicy"]:
        actions += ["RestartReplica", "RestartReplica", "Ignore", "Ignore"]
    rules = []
    for _ in range(random.choice((1, 2, 2, 3))):
        rule: dict[str, Any] = {"name": f"r{random.randrange(10**9)}", "action": random.choice(actions)}
        match random.choice(kinds):
            case "onExitCodes":
                operator, values = random.choice(EXIT_CODES)
                rule["onExitCodes"] = {"operator": operator, "values": values}
                rule["onExitCodes"] |= random.choice(({}, {"containerName": "tensorflow"}))
            case "onPodConditions":
                rule["onPodConditions"] = [{"type": "DisruptionTarget"} | random.choice(({}, {"status": "True"}))]
            case "onFailureReasons":
                rule["onFailureReasons"] = random.sample(REASONS, random.choice((1, 2)))
        if random.random() < 0.3:
            rule["targetReplicaTypes"] = [random.choice([*spec["tfReplicaSpecs"]])]
        if rule["action"] == "RestartReplica" and random.random() < 0.4:
            action = random.choice(("RestartAll", "RestartAll", "FailJob"))
            rule["escalation"] = {"afterSeconds": random.choice((2, 10)), "action": action}
        rules.append(rule)
    kept = random.choice(({}, {"finishedReplicaPolicy": "Restart"}, {"finishedReplicaPolicy": "Keep"}))
    return {"maxRestarts": random.choice((0, 1, 1, 2, 3)), "rules": rules} | kept


def _broken(random: Random) -> dict[str, Any]:
    return {"metadata": {"annotations": {INVALID: "yes"}}, "spec": random.choice(MISTAKES)}


def _spelled(random: Random, kind: str) -> str:
    return kind if random.random() < 0.9 else kind.lower()


def _replicas(
    random: Random, kind: str, sizes: tuple[int, int], kubernetes: Kubernetes, *, limited: bool
) -> dict[str, Any]:
    tempers = [scripts.STEADY, scripts.STEADY, scripts.RETRYING, scripts.FLAKY, scripts.ENDLESS]
    if kind == "PS":
        tempers += [scripts.ENDLESS] * 6
    if limited:
        tempers += [scripts.BROKEN] * 3
    annotations = {scripts.TEMPER: random.choice(tempers)}
    training: dict[str, Any] = {"name": "tensorflow", "image": "train"} | _restart_rules(random, kubernetes)
    containers = [training]
    policy = random.choice((None, "Never", "OnFailure", "Always", "ExitCode", "ExitCode"))
    spec: dict[str, Any] = {"containers": containers}
    if inits := _init_containers(random, kubernetes):
        spec["initContainers"] = inits
    if random.random() < 0.3:
        spec["terminationGracePeriodSeconds"] = random.choice((1, 5, 60))
    metadata: dict[str, Any] = {"annotations": annotations}
    if random.random() < 0.2:
        metadata["finalizers"] = [HELD]
    template = {"metadata": metadata, "spec": spec}
    if random.random() < 0.15:
        _add_sidecar(random, template, policy)
    replicas: dict[str, Any] = {"replicas": random.randint(*sizes), "template": template}
    if policy is not None:
        replicas["restartPolicy"] = policy
    return replicas


def _add_sidecar(random: Random, template: dict[str, Any], policy: str | None) -> None:
    template["spec"]["containers"].append({"name": "sidecar", "image": "proxy"})
    # A job with a container that always restarts would never reach a final state.
    ends = [] if policy in {"Always", "OnFailure"} else [scripts.ENDING, scripts.FAILING]
    template["metadata"]["annotations"][scripts.SIDECAR] = random.choice([scripts.STAYING, *ends])


def _restart_rules(random: Random, kubernetes: Kubernetes) -> dict[str, Any]:
    """Return a container's own restart policy, with or without rules, if the version accepts it; old servers drop it."""
    refused = kubernetes.has(ORDINARY_POLICIES_REFUSED) and not kubernetes.has(CONTAINER_RESTART_RULES)
    if random.random() > 0.2 or refused:
        return {}
    actions = ["Restart", *["RestartAllContainers"] * kubernetes.has(RESTART_ALL_CONTAINERS)]
    rules = [
        {"action": random.choice(actions), "exitCodes": {"operator": operator, "values": values}}
        for operator, values in random.sample((("In", [1, 137]), ("In", [2]), ("NotIn", [0, 1, 2])), 2)
    ]
    own = {"restartPolicy": random.choice(("Never", "Never", "OnFailure", "Always"))}
    return own if random.random() < 0.3 else own | {"restartPolicyRules": rules}


def _init_containers(random: Random, kubernetes: Kubernetes) -> list[dict[str, Any]]:
    inits: list[dict[str, Any]] = []
    if random.random() < 0.1 and kubernetes.has(NATIVE_SIDECARS):
        inits.append(NATIVE_SIDECAR)
    if random.random() < 0.05:
        inits.append({"name": "prepare", "image": "prepare"})
    return inits
