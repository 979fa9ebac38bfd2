"""The wheel of this checkout, built in a copy: setuptools leaves folders beside the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.image.build import SOURCES

ROOT: Final = Path(__file__).parents[2]


def build_wheel(scratch: Path) -> Path:
    """Build the wheel in a folder for temporary files, and return it. Raises CalledProcessError."""
    sources, wheels = scratch / "sources", scratch / "wheels"
    wheels.mkdir()
    for name in SOURCES:
        path, copy = ROOT / name, sources / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, copy)
    run([sys.executable, "-c", f"import setuptools.build_meta as b; b.build_wheel({str(wheels)!r})"], sources)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def run(command: Sequence[str], folder: Path) -> None:
    """Run a program without this environment's PYTHON variables, so that the modules that it installs are compiled."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
