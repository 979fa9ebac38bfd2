"""An operator's memory contains nothing of its jobs an hour after all were deleted, in any way.

Python's garbage collector enumerates the objects that the manager references, so no cache is missed. Modules, classes and the
world itself are excluded.
"""

import asyncio
import gc
import re
from dataclasses import replace
from random import Random
from types import FunctionType, ModuleType
from typing import Any, Final

import msgspec

from kit.faults import CALM
from kit.model.controllers import GarbageCollector
from kit.model.kinds import NAMESPACES as ALL_NAMESPACES
from kit.model.kinds import Kind
from kit.model.refusals import Refusal
from kit.model.server import Answer
from kit.model.storage import Feed
from kit.world import require
from simulation.alpha.users import Users as AlphaUsers
from simulation.interference import FinalizerHolders
from simulation.job_controller import JobController
from simulation.kubelet import Kubelet
from simulation.processes import OperatorProcess
from simulation.scripts import REJECTIONS, AlphaScript
from simulation.stage import ELECTIONS
from simulation.users import NAMESPACES, Person, Users
from simulation.world import World
from simulation.write_judge import LEASE, OPERATOR
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1alpha1.constants import DIALECTS, KUBEFLOW, TENSORFLOW
from tfjob_operator.controller.options import ALPHA_APIS, V1

ROUGH: Final = replace(CALM, latency_s=0.8, lost_reply=0.03, refusals=0.03, cut=0.1, stale=0.1)
"""Faults with many concurrent operations."""
END_S: Final = 70.0
"""When the last jobs are deleted."""
GONE_S: Final = 200.0
"""The maximum time until the last object is gone, after finalizers and grace periods."""
LATER_S: Final = 3610.0
"""The time after that at which nothing may be remembered."""
PRUNED: Final = ("startTime", "begun", "restarts")
DENIED: Final = (
    Refusal(422, "Invalid", "Pod is invalid: spec: Forbidden: says the world", {}),
    Refusal(403, "Forbidden", "pods is forbidden: exceeded quota: small", {}),
    Refusal(403, "Forbidden", 'admission webhook "w.example.com" denied the request: not today', {}),
)


class _Rejecting(AlphaScript):
    """Kubelets that reject many pods."""

    def rejection(self, random: Random, tries: int) -> str:
        return random.choice(REJECTIONS) if tries < 3 and random.random() < 0.2 else ""


class _Fate(Person):
    """Disrupts jobs at bad moments: deletes one during a sync, rejects children, prunes a status, requests TensorBoards.

    `named` has what identifies all jobs so far: their UIDs, and their namespaces and names.
    """

    def __init__(self, world: World, random: Random, jobs: Resource) -> None:
        super().__init__(world, jobs, random)
        self._feed = Feed(world.server.storage, jobs)
        self._deadly, self._refusing = random.choice((0.05, 0.3)), random.choice((0.0, 0.05, 0.3))
        self._prunes = random.random() < 0.5
        self.named: set[str] = set()
        world.server.admission.append(self._admit)
        world.server.on_change.append(self._look)
        world.server.on_answer.append(self._strike)
        for _ in range(6):
            self._at(random.uniform(1.0, END_S), self._ask)
        for _ in range(random.choice((0, 1, 2, 4))):
            self._at(random.uniform(5.0, END_S), self._empty, random.choice(NAMESPACES))
        self._at(END_S, self.delete_all)

    @property
    def there(self) -> list[tuple[str, str]]:
        return [*self._world.server.storage.collections[self._jobs.plural].objects]

    def delete_all(self) -> None:
        for place in self.there:
            self._delete(place)

    def _delete(self, place: tuple[str, str]) -> None:
        self._send("DELETE", self._jobs.path(*place), {"propagationPolicy": "Background"})

    def _empty(self, namespace: str) -> None:
        """Delete a namespace, and recreate it later."""
        self._send("DELETE", ALL_NAMESPACES.path("", namespace), {})
        self._at(self._random.uniform(3.0, 15.0), self._send, "POST", ALL_NAMESPACES.path(), _namespace(namespace))

    def _look(self) -> None:
        for change in self._feed.news():
            self.named |= {change.new.body["metadata"]["uid"], "/".join(change.new.key)}

    def _ask(self) -> None:
        if self.there:
            board = {"logDir": "/x"} if self._random.random() < 0.8 else None
            place = self._random.choice(self.there)
            self._send("PATCH", self._jobs.path(*place), {"spec": {"tensorBoard": board, "tensorboard": board}})

    def _admit(self, request: Request, client: str) -> Request:
        if not client.startswith(OPERATOR) or "/events" in request.path or "/leases" in request.path:
            return request
        if request.method == "POST" and self._random.random() < self._refusing:
            raise self._random.choice(DENIED)
        if self._prunes and request.path.endswith("/status"):
            body = msgspec.json.decode(request.body or b"")
            for step in body:
                if step["path"] == "/status":
                    step["value"] = {name: each for name, each in step["value"].items() if name not in PRUNED}
            return replace(request, body=msgspec.json.encode(body))
        return request

    def _strike(self, request: Request, client: str, _answer: Answer) -> None:
        if client.startswith(OPERATOR) and request.method != "GET" and self._random.random() < self._deadly:
            text = f"{request.path} {request.body!r}"
            for namespace, name in [each for each in self.there if each[0] in text and each[1] in text]:
                if self._random.random() < 0.2:
                    self._at(0.0, self._empty, namespace)
                else:
                    self._at(0.0, self._delete, (namespace, name))


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def nothing_is_remembered_of_the_dead(world: World) -> None:
    """Jobs run and are deleted; an hour after the last, no string reachable from the manager names one of them."""
    random = world.random
    alpha = random.choice((TENSORFLOW, KUBEFLOW, KUBEFLOW))
    await world.create_namespaces(LEASE[0], *NAMESPACES)
    JobController(world.server, Random(f"jobs {world.seed}"))
    apis: tuple[str, ...] = (ALPHA_APIS[DIALECTS.index(alpha)],)
    mine = Random(f"alpha users {world.seed}")
    users: list[Person] = [AlphaUsers(world, mine, alpha, jobs=random.choice((2, 5)), busy=True, names="alpha")]
    if alpha is KUBEFLOW:
        apis = (V1, *apis)
        users.append(Users(world, Random(f"users {world.seed}"), jobs=random.choice((6, 12)), busy=True))
    else:  # only its CRD is installed
        world.server.define(Kind(alpha.resource, status=True, custom=True, unconditional=False))
    GarbageCollector(world.server, Random(f"garbage {world.seed}"))
    FinalizerHolders(world, Random(f"holders {world.seed}"))
    Kubelet(world, Random(f"kubelet {world.seed}"), script=_Rejecting())
    fate = _Fate(world, Random(f"fate {world.seed}"), alpha.resource)
    operator = OperatorProcess(world, 0, election=ELECTIONS[1], workers=random.choice((1, 4)), apis=apis)
    operator.start()
    while fate.there or world.time < max(END_S, *(each.done_at for each in users)) + 1:
        await asyncio.sleep(1.0)
        if operator.has_ended:  # it lost its lease, and so its memory
            operator.start()
        if world.time > END_S:
            fate.delete_all()  # recreated namespaces
        require(world.time < END_S + GONE_S, f"still there: {fate.there}")
    await asyncio.sleep(LATER_S)
    require(not fate.there, f"there again: {fate.there}")
    found = sorted(remembered(operator.manager, fate.named))
    require(not found, "\n".join(found))
    await operator.stop()


def remembered(root: object, words: set[str]) -> set[str]:
    """Return where `root` reaches a text with one of these words: the types on the path, and the text."""
    pattern = re.compile("|".join(map(re.escape, sorted(words))) or "(?!)")
    seen, found = {id(root)}, set()
    front: list[tuple[object, tuple[object, ...]]] = [(root, ())]
    kept: list[object] = []  # keeps ids unique
    while front:
        each, way = front.pop()
        if isinstance(each, (str, bytes)):
            text = each if isinstance(each, str) else each.decode("latin-1")
            if pattern.search(text):
                found.add(f"{' '.join(type(step).__name__ for step in way[-7:])}: {text[:120]}")
            continue
        for child in _referents(each):
            if id(child) not in seen and not _is_left_out(child):
                seen.add(id(child))
                kept.append(child)
                front.append((child, (*way, each)))
    return found


def _referents(each: object) -> list[Any]:
    if isinstance(each, FunctionType):
        return [*(each.__closure__ or ()), *(each.__defaults__ or ())]
    found = gc.get_referents(each)
    if isinstance(each, dict):
        found += each  # string keys cannot be part of a cycle, so the collector omits them
    if isinstance(each, msgspec.Struct):  # the collector does not look into objects that it does not track
        found += [getattr(each, name) for name in each.__struct_fields__]
    return found


def _is_left_out(each: object) -> bool:
    world = type(each).__module__.partition(".")[0] in {"simulation", "kit", "fakes", "hack"}
    no_task = not isinstance(each, asyncio.Future)  # the operator's own are of a class of the world
    return (world and no_task) or isinstance(each, (type, ModuleType, int, float)) or each is None
