"""The tested Python SDKs, each with its packages in a cache folder.

`requirements/` pins all packages of each environment. The name of an environment's cache folder contains a hash of these pins.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final, NamedTuple

from hack import packages


class Sdk(NamedTuple):
    """One release of an SDK. `newest_python` is the latest Python for which all its packages have a wheel."""

    package: str
    version: str
    newest_python: tuple[int, int] = (3, 99)

    @property
    def client(self) -> str:
        """The name in the results."""
        return f"{self.package}-{self.version}"

    @property
    def requirements(self) -> Path:
        """The file with all packages of its environment."""
        return Path(__file__).parent / "requirements" / f"{self.client}.txt"

    @property
    def runs_here(self) -> bool:
        """Whether its packages support this Python."""
        return sys.version_info[:2] <= self.newest_python


SDKS: Final = (
    Sdk("kubeflow-tfjob", "0.1.3", newest_python=(3, 11)),
    Sdk("kubeflow-training", "1.7.0"),
    Sdk("kubeflow-training", "1.8.1"),
    Sdk("kubeflow-training", "1.9.4"),
)


def environment_name(sdk: Sdk, requirements: bytes, python: tuple[int, int]) -> str:
    """Return the folder's name for an environment; it depends on packages and Python version."""
    return f"{sdk.client}-py{python[0]}{python[1]}-{hashlib.sha256(requirements).hexdigest()[:8]}"


def packages_of(sdk: Sdk) -> Path:
    """Return the folder with an SDK and its dependencies, downloaded if not cached. Raises ControlPlaneError."""
    name = environment_name(sdk, sdk.requirements.read_bytes(), sys.version_info[:2])
    return packages.install_wheels(name, "--no-deps", f"--requirement={sdk.requirements}")
