"""The wall clocks of a simulated cluster: by how much each machine's is ahead of the API server's.

The API server's clock is the time of the world. Controllers and nodes have their own, up to an hour ahead or behind, and some
are set to another time during a run. Monotonic clocks do not differ.
"""

import asyncio
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Final

from kit.virtual_loop import EPOCH

HOUR_S: Final = 3600
TICK: Final = timedelta(microseconds=1)
"""The minimum difference between two readings of a simulated wall clock, as with a real one."""
_TIME: Final = re.compile(rb"(?<=\")\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z(?=\")")


class Clocks:
    """The clocks of all machines, by name. Each is drawn when it is first read, from the seed and the name alone."""

    def __init__(self, seed: int) -> None:
        self.differ = False
        self._seed = seed
        self._until_s = 0.0
        self._right: tuple[str, ...] = ()
        self._settings: dict[str, tuple[tuple[float, int], ...]] = {}

    def let_differ(self, until_s: float, *, right: tuple[str, ...] = ()) -> None:
        """Let clocks differ, except those that stay `right`, and be set until this time. Call this before any is read."""
        self.differ, self._until_s, self._right = True, until_s, right

    def set_at(self, machine: str) -> list[float]:
        """Return when the clock was set."""
        return [since for since, _ in self._of(machine)][1:]

    def ahead_s(self, machine: str, at_s: float) -> int:
        """Return by how many seconds the clock is ahead at this time of the world."""
        return [ahead for since, ahead in self._of(machine) if since <= at_s][-1]

    def latest(self, now: datetime, machines: Iterable[str]) -> datetime:
        """Return the latest time that one of these machines may read, or may have read before its clock was set."""
        return now + timedelta(seconds=max(0, *(ahead for machine in machines for _, ahead in self._of(machine))))

    def may_be_behind(self, machine: str) -> bool:
        """Return whether the clock is ever behind, or is set back."""
        settings = [ahead for _, ahead in self._of(machine)]
        return min(settings) < 0 or settings != sorted(settings)

    def stamped(self, machine: str, body: bytes) -> bytes:
        """Return JSON whose times are the world's with the times that this machine wrote, each by its clock of that moment."""

        def shown(found: re.Match[bytes]) -> bytes:
            time = datetime.fromisoformat(found[0].decode())
            time += timedelta(seconds=self.ahead_s(machine, max(0.0, (time - EPOCH).total_seconds())))
            return time.isoformat().replace("+00:00", "Z").encode()

        return _TIME.sub(shown, body) if self.differ else body

    def _of(self, machine: str) -> tuple[tuple[float, int], ...]:
        found = self._settings.get(machine)
        if found is None:
            random = Random(f"clock of {machine} {self._seed}")
            is_right = machine in self._right or not self.differ
            found = self._settings[machine] = ((0.0, 0),) if is_right else _drawn(random, self._until_s)
        return found


def _drawn(random: Random, until_s: float) -> tuple[tuple[float, int], ...]:
    """Draw by how much a clock is ahead, and sometimes when it is set to what else."""

    def ahead() -> int:
        anything = random.randint(-HOUR_S, HOUR_S)
        return random.choice((0, random.choice((-1, 1)), anything, anything, -HOUR_S, HOUR_S))

    first = (0.0, ahead())
    return (first, (random.uniform(0.0, until_s), ahead())) if random.random() < 0.5 else (first,)


class SimulatedClock:
    """`workqueue.clock.Clock` of a machine in a world: the loop's time, and a wall clock without equal readings."""

    def __init__(self, clocks: Clocks, machine: str = "") -> None:
        """Without a machine, the wall clock is right."""
        self._clocks = clocks
        self._machine = machine
        self._last = EPOCH

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        self._last = max(EPOCH + timedelta(seconds=self.monotonic()), self._last + TICK)
        if not self._machine:
            return self._last
        return self._last + timedelta(seconds=self._clocks.ahead_s(self._machine, self.monotonic()))
