"""The operator with a bug of `bugs.py`: `python buggy_operator.py BUG FLAGS...`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

if __name__ == "__main__":
    from tfjob_operator.controller.__main__ import make_small

    make_small()  # first of all, as the operator does it
    from faults.bugs import (
        BUGS,
        OF_AILING,
        OF_CLUSTERS,
        OF_LEADERS,
        OF_LONG_DAYS,
        OF_STALENESS,
        OF_UNSEEN,
        OF_UPGRADES,
        OF_WALKS,
    )
    from tfjob_operator.controller.__main__ import main

    bug = sys.argv.pop(1)
    found = BUGS | OF_STALENESS | OF_AILING | OF_UNSEEN | OF_UPGRADES
    plants = {
        **OF_CLUSTERS,
        **OF_LEADERS,
        **OF_LONG_DAYS,
        **OF_WALKS,
        **{name: each.plant for name, each in found.items()},
    }
    plants[bug]()
    sys.exit(main())
