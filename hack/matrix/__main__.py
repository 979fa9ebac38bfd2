"""`python -m hack.matrix kubectl|sdk [CLIENT ...]`: test all clients of a matrix, or only the named ones.

With `--ends`, only the oldest and the newest one.

Exit codes: 0 for success or known differences; 1 for failure; 2 for invalid arguments or an unavailable client (no network,
package removed).
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from hack.control_plane import ControlPlaneError
from hack.matrix.cluster import ROOT
from hack.matrix.environments import SDKS, packages_of
from hack.matrix.releases import RELEASES, program_of

TESTS: Final = {"kubectl": "test_kubectl.py", "sdk": "test_sdks.py"}
MATRICES: Final = {"kubectl": [each.client for each in RELEASES], "sdk": [each.client for each in SDKS]}


def main() -> int:
    """Download the clients and run the tests of a matrix; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hack.matrix", description="Test old and new clients with the operator."
    )
    parser.add_argument("matrix", choices=MATRICES)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"one of: {MATRICES}")
    parser.add_argument("--ends", action="store_true", help="only the oldest and the newest client")
    options = parser.parse_args()
    every = MATRICES[options.matrix]
    chosen: list[str] = options.clients or ([every[0], every[-1]] if options.ends else every)
    if unknown := {*chosen} - {*MATRICES[options.matrix]}:
        parser.error(f"not in the matrix {options.matrix}: {', '.join(sorted(unknown))}")
    try:
        for release in RELEASES:
            if release.client in chosen:
                program_of(release)
        for sdk in SDKS:
            if sdk.client in chosen and sdk.runs_here:
                packages_of(sdk)
    except ControlPlaneError as error:
        print(f"error: {error}\nNo test was run.", file=sys.stderr)
        return 2
    # The kubectl programs run one at a time, since they wait little. The programs of SDKs mostly wait, so all run in parallel.
    groups = [[each] for each in chosen] if options.matrix == "kubectl" else [chosen]
    with ThreadPoolExecutor(2) as pool:
        return max(pool.map(partial(_passes, TESTS[options.matrix]), groups))


def _passes(tests: str, clients: Sequence[str]) -> int:
    """Run the tests for these clients; return 0, or 1 if they do not pass."""
    command = (sys.executable, "-m", "pytest", "-v", f"test/matrix/{tests}", "-k", " or ".join(clients))
    return int(subprocess.run(command, cwd=ROOT, check=False).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
