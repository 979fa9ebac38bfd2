"""Runs one release of helm, with its caches and settings in its own folder."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.control_plane.build.commands import output_of

COMMAND_LIMIT_S: Final = 150.0  # more than any --timeout, because helm should fail first, with a reason


@dataclass(frozen=True, slots=True)
class Helm:
    """Runs helm as the administrator of a cluster, or without a kubeconfig if no cluster is needed."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str) -> str:
        """Run helm and return its output. Raises ControlPlaneError with its stderr if it fails."""
        folders = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        environment = {**folders, "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig or os.devnull)}
        return output_of(str(self.program), *arguments, limit_s=COMMAND_LIMIT_S, env=environment)
