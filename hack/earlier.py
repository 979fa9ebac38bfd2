"""`python -m hack.earlier`: build the earlier releases from their commits, each in `build/earlier/VERSION`. Requires root.

A release is built once, by its own tools: `build/release` if it had release files, else the image alone. `make e2e-upgrade`
installs it on a real node.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.control_plane.build.commands import Progress
from hack.package_links import link_packages

PROJECT: Final = Path(__file__).parents[1]
FOLDER: Final = PROJECT / "build" / "earlier"
IMAGE: Final = Path("build", "tfjob-operator.tar")
"""Where every release writes its image, below its checkout."""
FIRST: Final = "0.1.0"
WITHOUT_DECISIONS: Final = "0.2.0"
"""The last release that does not know `status.begun.ending`."""
PREVIOUS: Final = "0.2.1"
COMMITS: Final = {
    FIRST: "7bf790d64af8d3361e52cac1af2dfae95654f28c",
    WITHOUT_DECISIONS: "0e8c33f95b2c93b5701eaf8baa7bd1cf560ed45f",
    PREVIOUS: "4a0f98b08bd9d2b2377af6d3da06579a50f130e6",
}
"""The last commit of each release: it may have no tag, or its tag may be missing in a clone."""


def unpack(folder: Path, commit: str, paths: Sequence[str] = ()) -> None:
    """Unpack a commit, or some of its paths, such that its programs run in this folder. Raises OSError, CalledProcessError."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "--", *paths], cwd=PROJECT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(folder)  # noqa: S202 - of this repository
    # Without links, Python would import the packages of this checkout: its editable install knows them by name.
    link_packages(folder, folder)


def build(name: str) -> None:
    """Build a release of `COMMITS` that was not built before. Raises OSError, CalledProcessError."""
    target, folder = FOLDER / name, FOLDER / f"{name}.part"
    if target.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    unpack(folder, COMMITS[name])
    has_files = (folder / "hack" / "release.py").exists()
    command = ("hack.release", "--dry-run") if has_files else ("hack.image", str(IMAGE))
    # Its tools use the Python packages of this environment, and their own modules.
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-m", *command], cwd=folder, env=environment, check=True, stdout=sys.stderr)
    folder.rename(target)


def main() -> int:
    """Build the first and the previous release; return the exit code."""
    progress = Progress("earlier")
    try:
        for name in (FIRST, PREVIOUS):
            progress.say(f"release {name}")
            build(name)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
