"""TensorBoards of jobs that users make, edit and delete, while they edit the TensorBoards too and the controller is killed.

What there must be in the end is computed here independently, not by the controller's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, Final

from fakes.jobs import replica
from fakes.recorder import FakeRecorder
from simulation.faults import FaultyTransport
from simulation.model.controllers import GarbageCollector
from simulation.world import World, require
from tfjob_operator.api.client.errors import AlreadyExistsError, NotFoundError
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob, tfjob_with_unreadable_status
from tfjob_operator.controller.manager import Manager
from tfjob_operator.controller.options import SERVICE_TYPES
from tfjob_operator.controller.tensorboard.controller import LONGEST_DELAY_S, TensorBoardControllers
from tfjob_operator.controller.tensorboard.dialects import TFJOB
from tfjob_operator.informers import Codec, SharedInformerFactory

HOME: Final = "team"
JOBS: Final = ("a", "b", "c")
SETTLED_S: Final = 200.0 + LONGEST_DELAY_S
"""Time after the end of the faults to detect a frozen watch, and for the longest delay of a key after that."""
QUIET_S: Final = 700.0
"""How long nothing may be written after that: longer than a watch lives."""
BOARDS: Final[tuple[dict[str, Any] | None, ...]] = (
    None,
    {"logDir": "/x"},
    {"logDir": "/y", "serviceType": "NodePort"},
    {"logDir": "/x", "volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/x"}]},
    {"serviceType": "ExternalName"},
)
"""The last one is a mistake, with which a TensorBoard that exists stays as it is."""
EDITS: Final = (
    (DEPLOYMENTS, {"spec": {"replicas": 0}}),
    (DEPLOYMENTS, {"metadata": {"annotations": None}}),
    (DEPLOYMENTS, {"spec": {"selector": {"matchLabels": {"app.kubernetes.io/instance": "other"}}}}),
    (SERVICES, {"spec": {"type": "LoadBalancer"}}),
    (SERVICES, {"spec": {"selector": {"other": "label"}}}),
)


async def tensorboards_end_as_their_jobs_say(world: World) -> None:
    """Users meddle, the controller is killed now and then; in the end all is as the jobs say, and there are no more writes."""
    random = world.random
    await world.create_namespaces(HOME)
    GarbageCollector(world.server, random)
    async with asyncio.TaskGroup() as group:
        users = group.create_task(_meddle(world, random), name="users")
        life = 0
        while True:
            life += 1
            transport = world.faulty(f"operator-{life}")
            stop = asyncio.Event()
            running = group.create_task(_manager(world, transport, life, stop).run(), name=f"operator-{life}")
            await asyncio.sleep(random.choice((random.uniform(0.0, 40.0), world.calm_at)))
            if world.time >= world.calm_at:
                break
            world.note("kill")
            transport.kill()
            running.cancel()
            await asyncio.wait([running])
        await asyncio.wait([users])
        await asyncio.sleep(SETTLED_S)
        _check(world)
        last_write = len(world.server.writes)
        await asyncio.sleep(QUIET_S)
        require(len(world.server.writes) == last_write, f"nothing to do, but: {world.server.writes[last_write:]}")
        stop.set()
        await running


def _manager(world: World, transport: FaultyTransport, life: int, stop: asyncio.Event) -> Manager:
    client = world.client(f"operator-{life}", transport)
    informers = SharedInformerFactory(client, clock=world.clock, random=world.product_random)
    boards = TensorBoardControllers(
        informers,
        client,
        client,
        FakeRecorder(),
        namespace=HOME,
        default_image="board:1",
        service_types=SERVICE_TYPES,
        clock=world.clock,
    )
    jobs = informers.informer(Codec(TFJOBS, TFJob, on_undecodable=tfjob_with_unreadable_status), namespace=HOME)
    return Manager(informers, boards.controller(TFJOB, jobs), stop=stop)


async def _meddle(world: World, random: Random) -> None:
    """Create, edit and delete jobs and their children until the faults end; a deleted job may be recreated at once."""
    user = world.client("user")
    while world.time < world.calm_at:
        await asyncio.sleep(random.uniform(0.0, 6.0))
        name, board = random.choice(JOBS), random.choice(BOARDS)
        with contextlib.suppress(NotFoundError, AlreadyExistsError):
            match random.randrange(8):
                case 0 | 1:
                    await user.create(TFJOBS, HOME, _job(name, board))
                case 2 | 3:
                    await user.patch(TFJOBS, HOME, name, {"spec": {"tensorBoard": board}})
                case 4:
                    await user.delete(TFJOBS, HOME, name, propagation=random.choice(("Background", "Foreground")))
                case 5:
                    await user.delete(random.choice((DEPLOYMENTS, SERVICES)), HOME, f"{name}-tensorboard")
                case _:
                    resource, edit = random.choice(EDITS)
                    await user.patch(resource, HOME, f"{name}-tensorboard", edit)


def _job(name: str, board: dict[str, Any] | None) -> dict[str, Any]:
    spec = {"tfReplicaSpecs": {"Worker": replica(1)}} | ({"tensorBoard": board} if board else {})
    return {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "metadata": {"name": name}, "spec": spec}


def _check(world: World) -> None:
    collections = world.server.storage.collections
    jobs = {name: version.body for (_, name), version in collections["tfjobs"].objects.items()}
    boards = {name: body["spec"].get("tensorBoard") for name, body in jobs.items()}
    free = {f"{name}-tensorboard" for name, board in boards.items() if board and not _is_good(board)}
    for resource, shown in ((DEPLOYMENTS, _deployment), (SERVICES, _service)):
        objects = {name: version.body for (_, name), version in collections[resource.plural].objects.items()}
        wanted = {
            f"{name}-tensorboard": (jobs[name]["metadata"]["uid"], *_wanted(resource.plural, name, board))
            for name, board in boards.items()
            if board and _is_good(board)
        }
        found = {
            name: (body["metadata"]["ownerReferences"][0]["uid"], *shown(body))
            for name, body in objects.items()
            if name not in free
        }
        require(found == wanted, f"the {resource.plural} are {found}, should be {wanted}")


def _is_good(board: dict[str, Any]) -> bool:
    """Whether the field is valid: edits are merged, so it may have a log directory and a mistake at once."""
    return "logDir" in board and board.get("serviceType") != "ExternalName"


def _wanted(plural: str, job: str, board: dict[str, Any]) -> tuple[Any, ...]:
    if plural == "services":
        return (board.get("serviceType", "ClusterIP"), 4, job)
    return (1, f"--logdir={board['logDir']}", board.get("volumes", []), job)


def _deployment(body: dict[str, Any]) -> tuple[Any, ...]:
    pod = body["spec"]["template"]["spec"]
    selector = body["spec"]["selector"]["matchLabels"]
    return (
        body["spec"]["replicas"],
        pod["containers"][0]["command"][1],
        pod.get("volumes", []),
        selector["app.kubernetes.io/instance"],
    )


def _service(body: dict[str, Any]) -> tuple[Any, ...]:
    spec = body["spec"]
    return (spec["type"], len(spec["selector"]), spec["selector"]["app.kubernetes.io/instance"])
