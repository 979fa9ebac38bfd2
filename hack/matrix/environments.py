"""The Python SDKs that are tried, each in a virtual environment of its own in the cache.

Every package of an environment is pinned in `requirements/`; its folder is named by a hash of these, so that a
change makes a new one.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress
from hack.matrix.releases import FetchError

FETCH_LIMIT_S: Final = 600.0  # 60 to 150 MB unpacked; ten seconds with a fast index


class Sdk(NamedTuple):
    """One release of an SDK. `newest_python` is the newest Python for which all of its packages have a wheel."""

    package: str
    version: str
    newest_python: tuple[int, int] = (3, 99)

    @property
    def client(self) -> str:
        """The name in the results."""
        return f"{self.package}-{self.version}"

    @property
    def requirements(self) -> Path:
        """The file with every package of its environment."""
        return Path(__file__).parent / "requirements" / f"{self.client}.txt"

    @property
    def runs_here(self) -> bool:
        """Whether its packages can be had for this Python."""
        return sys.version_info[:2] <= self.newest_python


SDKS: Final = (
    Sdk("kubeflow-tfjob", "0.1.3", newest_python=(3, 11)),
    Sdk("kubeflow-training", "1.7.0"),
    Sdk("kubeflow-training", "1.8.1"),
    Sdk("kubeflow-training", "1.9.4"),
)


def environment_name(sdk: Sdk, requirements: bytes, python: tuple[int, int]) -> str:
    """Return the folder's name for an environment: other packages or another Python make another one."""
    return f"sdk-{sdk.client}-py{python[0]}{python[1]}-{hashlib.sha256(requirements).hexdigest()[:8]}"


def python_of(sdk: Sdk) -> Path:
    """Return the Python of an SDK's environment, which is made if it is not in the cache. Raises FetchError."""
    root = packages.root()
    target = root / environment_name(sdk, sdk.requirements.read_bytes(), sys.version_info[:2])
    if not target.is_dir():
        progress = Progress("sdk-matrix")
        progress.say(f"installing {sdk.client} and what it needs into {target}")
        try:
            with tempfile.TemporaryDirectory(prefix="sdk-", dir=root) as work:
                _install(sdk, Path(work) / "venv", LoggedRunner(root / "sdk-matrix.log", progress))
                (Path(work) / "venv").rename(target)
        except (ControlPlaneError, OSError) as error:
            raise FetchError(f"cannot get {sdk.client} for Python {sys.version.split()[0]}: {error}") from error
    return target / "bin" / "python"


def _install(sdk: Sdk, venv: Path, runner: LoggedRunner) -> None:
    runner.run(sys.executable, "-m", "venv", "--without-pip", str(venv), limit_s=60.0)
    runner.run(
        *(sys.executable, "-m", "pip", f"--python={venv / 'bin' / 'python'}", "install", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-deps", f"--requirement={sdk.requirements}"),
        limit_s=FETCH_LIMIT_S,
    )
