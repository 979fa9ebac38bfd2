"""`python -m hack.chart`: check the chart with each helm, and pack it into build/.

Exit codes: 0 all is well, 1 something is wrong, 2 a helm cannot be had (no network, a package that is gone).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack.chart.documents import values_yaml, with_table
from hack.chart.helm import Helm
from hack.control_plane.build.commands import ControlPlaneError
from hack.matrix.releases import HELMS, FetchError, helm_of

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "manifests" / "chart"
BUILD: Final = ROOT / "build"


def documents() -> dict[Path, str]:
    """Return the files that are made from the schema, and what they should hold."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    readme = CHART / "README.md"
    return {CHART / "values.yaml": values_yaml(schema), readme: with_table(readme.read_text(), schema)}


def main() -> int:
    """Check and pack the chart; return the exit code."""
    try:
        _look_over_and_pack()
    except FetchError as error:
        print(f"error: {error}\nNothing is known about the chart by that: no check has run.", file=sys.stderr)
        return 2
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _look_over_and_pack() -> None:
    programs = {release.helm: helm_of(release) for release in HELMS}
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="helm-home-") as home:
        for version, program in programs.items():
            helm = Helm(program, Path(home))
            helm("lint", "--strict", str(CHART))
            print(f"helm {version} finds nothing wrong")
        print(helm("package", str(CHART), f"--destination={BUILD}").strip())


if __name__ == "__main__":
    sys.exit(main())
