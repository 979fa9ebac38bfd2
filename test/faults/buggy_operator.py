"""The operator with a bug of `bugs.py`: `python buggy_operator.py BUG FLAGS...`."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

if __name__ == "__main__":
    from tfjob_operator.controller.__main__ import reduce_memory

    reduce_memory()  # must come first, as in the operator
    from faults.bugs import BUGS
    from tfjob_operator.controller.__main__ import main

    BUGS[sys.argv.pop(1)].plant()
    sys.exit(main())
