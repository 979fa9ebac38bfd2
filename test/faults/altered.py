"""Run a program with a wrong clock, the operator also with a bug of `bugs.py`: `altered.py AHEAD_S BUG MODULE FLAGS...`."""

import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]


def set_clock_ahead(seconds: float) -> None:
    """Let the wall clock be ahead of the machine's. The monotonic clock does not change."""
    from tfjob_operator.workqueue import LoopClock

    LoopClock.now = lambda _: datetime.now(UTC) + timedelta(seconds=seconds)  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    ahead_s, bug, module, *flags = sys.argv[1:]
    if bug:
        from tfjob_operator.controller.__main__ import reduce_memory

        reduce_memory()  # must come first, as in the operator
        from faults.bugs import BUGS

        BUGS[bug].plant()
    set_clock_ahead(float(ahead_s))
    sys.argv[1:] = flags
    runpy.run_module(module, run_name="__main__", alter_sys=True)
