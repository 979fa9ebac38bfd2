"""Clients that interfere with the children of jobs.

They create second pods, edit labels and selectors, forge owners in other namespaces, and delay deletions by a finalizer. Their
objects have an annotation by which oracles recognize them. Policies, CRDs and etcd refuse the status of a job for good.
"""

import asyncio
from random import Random
from typing import Any, Final

from judge.jobs import desired_job, is_ending
from judge.slots import Slot, labels_of, slot_of
from kit.model.refusals import Refusal
from kit.model.storage import Body, Change, Feed, Key
from kit.virtual_loop import NETWORK
from simulation.world import World
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

SECOND: Final = "simulation/second"
"""The annotation of a second pod of a replica."""
FORGED: Final = "simulation/forged"
"""The annotation and finalizer of a child that names another tenant's job as its owner."""
WATCHED: Final = "training.kubeflow.org/operator-name"
"""The label by which the operator watches children. It finds a child without it only when it needs the name."""

LATEST_S: Final = 80.0

EDITS: Final[tuple[dict[str, str | None], ...]] = (
    {"replica-index": "abc"},
    {"replica-index": "7", "training.kubeflow.org/replica-index": "7"},
    {"job-name": "debug"},
    {"training.kubeflow.org/replica-type": None},
    {"replica-type": None, "training.kubeflow.org/replica-type": None},
    {WATCHED: None},
)
SELECTORS: Final[tuple[dict[str, Any] | None, ...]] = (
    {"version": "2"},
    {"training.kubeflow.org/replica-index": "3"},
    None,
)


def is_marked(body: Body, mark: str) -> bool:
    return mark in (body["metadata"].get("annotations") or {})


class Interference:
    """Interfere now and then, until `done_at`, and hide some pods of jobs whose end was just decided."""

    def __init__(self, world: World, random: Random, namespaces: tuple[str, ...]) -> None:
        self._world = world
        self._random = random
        self._namespaces = namespaces
        self._made = 0
        self._jobs = Feed(world.server.storage, TFJOBS)
        world.server.on_change.append(self._look)
        self.done_at = 0.0
        for _ in range(random.choice((0, 0, 1, 3, 8))):
            at = world.time + random.random() * LATEST_S
            self.done_at = max(self.done_at, at)
            act = random.choice((self._clone, self._clone, self._relabel, self._relabel, self._reselect, self._forge))
            asyncio.get_running_loop().call_at(at, act, context=NETWORK)

    def _look(self) -> None:
        for change in self._jobs.news():
            if is_ending(change.new.body) and self._random.random() < 0.15:
                asyncio.get_running_loop().call_later(
                    self._random.random(), self._hide, change.new.body, context=NETWORK
                )

    def _hide(self, job: Body) -> None:
        """Hide a pod of a job from the operator's watches."""
        if (pod := self._pick(PODS, job["metadata"]["uid"])) is not None:
            self._patch(PODS, pod, {"metadata": {"labels": {WATCHED: None}}})

    def _clone(self) -> None:
        if (pod := self._pick(PODS)) is None:
            return
        meta, owner = pod["metadata"], pod["metadata"]["ownerReferences"][0]
        annotations = (meta.get("annotations") or {}) | {SECOND: "yes"}
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        copy = {"metadata": {"annotations": annotations}, "spec": spec}
        self._make(PODS, (meta["namespace"], f"copy-{self._made}"), owner, slot_of(meta), copy)

    def _relabel(self) -> None:
        resource = self._random.choice((PODS, PODS, SERVICES))
        if (child := self._pick(resource)) is not None:
            self._patch(resource, child, {"metadata": {"labels": self._random.choice(EDITS)}})

    def _reselect(self) -> None:
        if (service := self._pick(SERVICES)) is not None:
            self._patch(SERVICES, service, {"spec": {"selector": self._random.choice(SELECTORS)}})

    def _forge(self) -> None:
        """Create a child in another namespace that names a job as its owner, with a name of that job's children."""
        jobs = [version.body for version in self._world.server.storage.collections["tfjobs"].objects.values()]
        jobs = [job for job in jobs if desired_job(job).slots]
        if not jobs:
            return
        victim = self._random.choice(jobs)
        meta = victim["metadata"]
        elsewhere = next(name for name in self._namespaces if name != meta["namespace"])
        slot = self._random.choice(sorted(desired_job(victim).slots))
        own = f"{meta['name']}-{slot[0].lower()}-{slot[1]}"
        name = own if meta["name"].startswith("run-") else f"forged-{self._made}"
        owner = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "name": meta["name"], "uid": meta["uid"]}
        resource = self._random.choice((PODS, PODS, SERVICES))
        spec = {"containers": [{"name": "tensorflow", "image": "train"}]} if resource == PODS else {"clusterIP": "None"}
        forged = {"metadata": {"annotations": {FORGED: "yes"}, "finalizers": [FORGED]}, "spec": spec}
        self._make(resource, (elsewhere, name), owner | {"controller": True}, slot, forged)

    def _make(self, resource: Resource, place: tuple[str, str], owner: dict[str, Any], slot: Slot, child: Body) -> None:
        self._made += 1
        namespace, name = place
        meta = {"name": name, "labels": labels_of(owner["name"], slot), "ownerReferences": [owner]} | child["metadata"]
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        self._world.act("meddler", "POST", resource.path(namespace), kind | child | {"metadata": meta})

    def _pick(self, resource: Resource, job: str = "") -> Body | None:
        """Choose a child, of this job or any, that was created by the operator and is not being deleted."""
        found = [
            version.body
            for version in self._world.server.storage.collections[resource.plural].objects.values()
            if "deletionTimestamp" not in version.body["metadata"]
            and not is_marked(version.body, SECOND)
            and not is_marked(version.body, FORGED)
            and job in {"", version.body["metadata"]["ownerReferences"][0]["uid"]}
        ]
        return self._random.choice(found) if found else None

    def _patch(self, resource: Resource, child: Body, change: dict[str, Any]) -> None:
        meta = child["metadata"]
        self._world.act("meddler", "PATCH", resource.path(meta["namespace"], meta["name"]), change)


HELD: Final = "simulation/held"
"""The finalizer of a pod that is kept, for example until its logs are saved."""


class FinalizerHolders:
    """Remove the finalizer some seconds after a pod was deleted; until then its last state is visible."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._feed = Feed(world.server.storage, PODS)
        world.server.on_change.append(self._look)

    def _look(self) -> None:
        for change in self._feed.news():
            self._hear(change)

    def _hear(self, change: Change) -> None:
        told = "deletionTimestamp" in change.new.body["metadata"]
        before = change.old is not None and "deletionTimestamp" in change.old.body["metadata"]
        if told and not before and HELD in change.new.body["metadata"].get("finalizers", ()):
            seconds = self._random.uniform(1.0, 12.0)
            uid = change.new.body["metadata"]["uid"]
            asyncio.get_running_loop().call_later(seconds, self._let_go, change.new.key, uid, context=NETWORK)

    def _let_go(self, key: Key, uid: str) -> None:
        self._world.act("holder", "PATCH", PODS.path(*key), {"metadata": {"uid": uid, "finalizers": None}})


NEVER_STORED: Final = (
    Refusal(500, "", "etcdserver: request is too large"),
    Refusal(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
    Refusal(422, "Invalid", "TFJob is invalid: status.restarts: Too many: 10: must have at most 5 items"),
    Refusal(403, "Forbidden", 'admission webhook "statuses.example.com" denied the request: no'),
)
"""Why a status cannot be stored, however often it is sent."""


class StatusRefuser:
    """Refuses every status of some jobs, or of all, for a while, by one of `NEVER_STORED`."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._why = random.choice(NEVER_STORED)
        self._rate = random.choice((0.0, 0.5, 1.0))
        self._begin = random.uniform(0.0, world.calm_at / 2)
        self._end = random.uniform(self._begin, world.calm_at)
        self._random = random
        self._chosen: dict[str, bool] = {}
        world.server.admission.append(self._admit)

    def _admit(self, request: Request, _client: str) -> Request:
        is_status = request.path.endswith("/status") and f"/{TFJOBS.plural}/" in request.path
        if is_status and self._begin <= self._world.time < self._end and self._is_refused(request.path):
            self._world.note("status refused", request.path, self._why.code)
            raise self._why
        return request

    def _is_refused(self, path: str) -> bool:
        if path not in self._chosen:
            self._chosen[path] = self._random.random() < self._rate
        return self._chosen[path]
