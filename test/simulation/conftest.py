"""How seeds are selected, run and reported.

    pytest test/simulation                    the default number of seeds, half a minute
    pytest test/simulation --seeds 20000      more seeds
    pytest test/simulation/test_x.py::test_y --seed 1234      one seed: the replay of a failure
    pytest test/simulation --seed 50000 --seeds 1000          a thousand seeds from 50000 on

A test uses the fixture `seeds` to play a scenario. All seeds of a scenario are one test, because pytest's overhead per test
exceeds the time of most seeds.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import pytest
import structlog

from kit.faults import Faults
from kit.world import play_seeds, require
from simulation.world import Scenario, run_seed

SEEDS: Final = 250
"""The number of seeds of most scenarios; others play a share. `make nightly` plays eight times as many, different each night.
"""


class Seeds:
    def __init__(
        self, test: str, first: int | None, count: int | None, errors: list[structlog.typing.EventDict]
    ) -> None:
        self._test = test
        self._first = first or 0
        self._count = count if count is not None else SEEDS if first is None else None
        self._errors = errors

    def play(
        self,
        scenario: Scenario,
        *,
        share: float = 1.0,
        faults: Faults | None = None,
        may_log: Collection[str] = (),
    ) -> None:
        """Play all seeds. The first failure ends the test with a command that replays it.

        `share`: the share of the number of seeds. `faults`: replaces the seed's faults. `may_log`: errors that the scenario
        provokes; any other logged error fails the test.
        """
        count = 1 if self._count is None else max(1, round(self._count * share))

        def play(seed: int) -> None:
            self._errors.clear()
            run_seed(scenario, seed, faults=faults)
            unexpected = [event for event in self._errors if event["event"] not in may_log]
            require(not unexpected, f"logged as an error: {unexpected}")

        seeds = range(self._first, self._first + count)
        play_seeds(play, seeds, f".venv/bin/python -m pytest '{self._test}' --seed ")


@pytest.fixture
def logged_errors() -> Iterator[list[structlog.typing.EventDict]]:
    """Return the errors logged by the product; scenarios should cause none. Other log lines are dropped to save time."""
    errors: list[structlog.typing.EventDict] = []

    def keep(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        errors.append(event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], wrapper_class=structlog.make_filtering_bound_logger("error"))
    yield errors
    structlog.configure(**before)


@pytest.fixture
def seeds(request: pytest.FixtureRequest, logged_errors: list[structlog.typing.EventDict]) -> Seeds:
    option = request.config.getoption
    return Seeds(request.node.nodeid, option("seed", default=None), option("seeds", default=None), logged_errors)
