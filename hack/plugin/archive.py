"""An archive of the plugin for one platform: two programs, and a folder with all modules that they need except Python's own.

krew unpacks it; for users without krew there is also a single file (`zipapp.py`).
"""

from __future__ import annotations

import configparser
import gzip
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from hack.plugin.platforms import PYTHONS, Platform
from hack.plugin.wheel import ROOT

CHECK: Final = """import sys

if not (3, 11) <= sys.version_info < (3, 14):
    sys.exit("error: kubectl tfjob needs Python 3.11 to 3.13 as python3; this is " + sys.version.split()[0])
"""
"""Says in one line what is wrong, on a Python that has no modules here."""
LAUNCHER: Final = f'''#!/usr/bin/env python3
"""Finds its modules beside itself, also through a link, as krew makes one."""
import os
{CHECK}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from tfjob_operator.cli.{{module}} import main

main()
'''
PROGRAMS: Final = {"kubectl-tfjob": "__main__", "kubectl_complete-tfjob": "complete"}
LIB: Final = "lib"
EXTRAS: Final = ("cli", "dashboard")
NOT_NEEDED: Final = ("kubernetes", "prometheus-client")
"""Requirements that only the operator has: for its kubeconfig and its metrics."""
_EXECUTABLE: Final = 0o755
_PLAIN: Final = 0o644


def requirements() -> list[str]:
    """Return the plugin's requirements from setup.cfg: those of the operator except NOT_NEEDED, and those of EXTRAS."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = (config["options.extras_require"][extra] for extra in EXTRAS)
    listed = "".join([config["options"]["install_requires"], *extras])
    found = [line.strip() for line in listed.splitlines() if line.strip()]
    return [each for each in found if re.split(r"[ <>=!~\[;]", each)[0] not in NOT_NEEDED]


def download(platform: Platform, folder: Path) -> list[Path]:
    """Fetch the wheels that the plugin needs on a platform, in the versions that are tested. Raises CalledProcessError."""
    folder.mkdir()
    for python in PYTHONS:
        which = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
        which += [f"--platform={tag}" for tag in platform.tags]
        versions = f"--constraint={ROOT / 'hack' / 'constraints.txt'}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", f"--dest={folder}", versions]
        subprocess.run([*pip, *which, *requirements()], check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.glob("*.whl"))


def contents(wheels: Iterable[Path]) -> dict[str, tuple[bytes, int]]:
    """Return the files of an archive by name, each with its mode."""
    files: dict[str, tuple[bytes, int]] = {"LICENSE": ((ROOT / "LICENSE").read_bytes(), _PLAIN)}
    for name, module in PROGRAMS.items():
        files[name] = (LAUNCHER.format(module=module).encode(), _EXECUTABLE)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as unpacked:
            for name in unpacked.namelist():
                top = PurePosixPath(name).parts[0]
                if not name.endswith("/") and not top.endswith(".data"):
                    files[f"{LIB}/{name}"] = (unpacked.read(name), _PLAIN)
    return files


def pack(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return the archive. The same files always make the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, (data, mode) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()
