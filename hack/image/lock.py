"""`python -m hack.image.lock [PIP-OPTION ...]`: lock the packages of the image by digest.

It writes two files into this folder: requirements.txt (the requirements of setup.cfg in the versions of hack/constraints.txt)
and build-requirements.txt (setuptools). Both contain the digests of the wheels for the image's Python on all `PLATFORMS`.

Run it when a version changes. It must run with the image's Python, because packages select their dependencies by the version
of the running one; `PYTHON=python3.13 make venv` makes such an environment. It ignores pip's configuration on this machine
and uses only the public index; pip's options, such as --cert or --index-url, can be given. Exit codes: those of pip.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from hack.debian import IMAGE_PYTHON as PYTHON
from hack.image.build import BUILD_REQUIREMENTS, PROJECT, REQUIREMENTS, requirements

LIBC: Final = ("manylinux_2_36", "manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1")
"""That of the oldest supported machine, because `make image` installs these wheels there, and all older ones with wheels."""
PLATFORMS: Final = ("x86_64", "aarch64")
SETUPTOOLS: Final = "setuptools >= 68"
"""As in pyproject.toml."""

Locked = dict[tuple[str, str], set[str]]
"""Digests by name and version."""


def lock(wanted: list[str], options: list[str]) -> Locked:
    """Return what pip would install, on every platform. Raises CalledProcessError."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for platform in PLATFORMS:
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            pip = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--dry-run", "--ignore-installed"]
            target = ["--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp", "--target=unused"]
            target += [f"--platform={libc}_{platform}" for libc in LIBC]
            versions = f"--constraint={PROJECT / 'hack' / 'constraints.txt'}"
            subprocess.run([*pip, *target, versions, f"--report={report.name}", *options, *wanted], check=True)
            for package in json.loads(Path(report.name).read_bytes())["install"]:
                about = package["metadata"]
                digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
                found[about["name"].lower(), about["version"]].add(digest)
    return dict(found)


def written(locked: Locked) -> str:
    """Return the lines of a requirements file."""
    lines = ["# Made by `python -m hack.image.lock`: what the image installs, and the digests of its files."]
    for (name, version), digests in sorted(locked.items()):
        lines += [" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(digests))])]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write both files; return the exit code."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != PYTHON:
        print(f"error: run this with Python {PYTHON}, which the image has", file=sys.stderr)
        return 1
    try:
        for file, wanted in ((REQUIREMENTS, requirements()), (BUILD_REQUIREMENTS, [SETUPTOOLS])):
            file.write_text(written(lock(wanted, sys.argv[1:])))
            print(file)
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
