"""A seed must run identically twice, also in another process."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.virtual_loop import DeadlockError, LivelockError, SeededLoop
from kit.world import OracleError, digest, require
from simulation.scenarios.informers import informers_converge
from simulation.scenarios.leaders import one_leader_writes
from simulation.scenarios.operators import operators_keep_their_promises
from simulation.world import Scenario, World, run_seed

ROOT = Path(__file__).parents[2]
SCENARIOS = (
    informers_converge,
    one_leader_writes,
    operators_keep_their_promises,
)


@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_seed_plays_the_same_way_twice(scenario: Scenario) -> None:
    """Every request, response and notification is the same, to the microsecond; another seed plays differently."""
    digests = [digest(run_seed(scenario, seed)) for seed in (7, 8, 7)]
    assert digests[0] == digests[2] != digests[1]


_PROGRAM = """
import structlog
from simulation.scenarios.operators import operators_keep_their_promises
from kit.world import digest
from simulation.world import run_seed
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
print(digest(run_seed(operators_keep_their_promises, 7)))
"""


def test_a_seed_plays_the_same_way_in_another_process_whose_texts_hash_otherwise() -> None:
    """Nothing depends on the order of a set of strings, nor on memory addresses."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'test'}"},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]


def _play_on(seed: int, body: Callable[[], object]) -> None:
    async def main() -> None:
        body()
        await asyncio.sleep(1.0)

    with asyncio.Runner(loop_factory=lambda: SeededLoop(seed)) as runner:
        runner.run(main())


def test_seeds_wake_tasks_in_every_order_and_run_plain_callbacks_in_one() -> None:
    """Three tasks that are ready run in all six orders; callbacks of `call_soon` keep their order."""
    orders: set[str] = set()
    for seed in range(60):
        order: list[str] = []

        async def step(name: str, order: list[str] = order) -> None:
            order.append(name)

        callbacks: list[int] = []
        tasks: list[asyncio.Task[None]] = []

        def body(callbacks: list[int] = callbacks, tasks: list[asyncio.Task[None]] = tasks) -> None:
            loop = asyncio.get_running_loop()
            for number, name in enumerate("abc"):
                tasks.append(loop.create_task(step(name)))
                loop.call_soon(callbacks.append, number)

        _play_on(seed, body)
        orders.add("".join(order))
        assert callbacks == [0, 1, 2]
    assert len(orders) == 6


async def _crash(world: World) -> None:
    world.note("before the crash")
    raise RuntimeError("a bug")


async def _leak(_: World) -> None:
    forgotten = asyncio.create_task(asyncio.sleep(1000.0))
    forgotten.set_name("forgotten")


async def _spin(_world: World) -> None:
    for _ in itertools.count():
        await asyncio.sleep(0)


def test_a_failure_shows_the_end_of_the_trace() -> None:
    """Whoever looks at a failed seed sees what happened before."""
    with pytest.raises(RuntimeError) as failure:
        run_seed(_crash, 1)
    assert "before the crash" in failure.value.__notes__[0]


@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        pytest.param(_leak, OracleError, id="a task that is left behind"),
        pytest.param(_spin, LivelockError, id="a loop that never waits"),
    ],
)
def test_what_no_scenario_may_do_fails_it(scenario: Scenario, error: type[Exception]) -> None:
    """No fire-and-forget, and no busy waiting."""
    with pytest.raises(error):
        run_seed(scenario, 1)


def test_a_stalled_process_stands_still_while_the_others_go_on() -> None:
    """Its timers fall due, but the tasks that they wake run only when the stall is over."""

    async def scenario(world: World) -> None:
        done: list[tuple[str, float]] = []

        async def sleep_a_second(name: str) -> None:
            await asyncio.sleep(1.0)
            done.append((name, world.time))

        tasks = [world.spawn(name, sleep_a_second(name)) for name in ("still", "moving")]
        await asyncio.sleep(0.5)
        world.stall("still", 5.0)
        await asyncio.wait(tasks)
        require(done == [("moving", 1.0), ("still", 5.5)], f"{done}")

    run_seed(scenario, 1)


def test_a_world_in_which_nothing_can_happen_any_more_ends() -> None:
    """A deadlock is an error, not a hang."""
    loop = SeededLoop(1)
    waiting = loop.create_future()
    try:
        with pytest.raises(DeadlockError):
            loop.run_until_complete(waiting)
    finally:
        loop.close()
