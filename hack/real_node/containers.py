"""containerd's command line, as far as a node needs it: images in, and the processes of containers.

In: containerd's programs and its socket. Out: what `ctr` prints. Kubernetes' containers are in the namespace `k8s.io`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hack.control_plane.build.commands import output_of
from hack.control_plane.errors import ControlPlaneError
from hack.image import archive, layers
from hack.real_node.tools import Tools


class Containers:
    """containerd as an administrator sees it."""

    def __init__(self, programs: Path, socket: Path) -> None:
        self.address = str(socket)
        self._ctr = (str(programs / "ctr"), f"--address={socket}", "--namespace=k8s.io")

    def answers(self) -> bool:
        """Tell whether containerd takes requests."""
        try:
            output_of(*self._ctr, "version", limit_s=5.0)
        except ControlPlaneError:
            return False
        return True

    def import_image(self, file: Path) -> None:
        """Import an OCI archive under the name that stands in it. Raises ControlPlaneError."""
        output_of(*self._ctr, "images", "import", "--no-unpack", str(file), limit_s=300.0)

    def tag(self, name: str, other: str) -> None:
        """Give an image a second name. Raises ControlPlaneError."""
        output_of(*self._ctr, "images", "tag", name, other, limit_s=30.0)

    def remove_image(self, name: str) -> None:
        """Remove an image, which need not be there; containers that use it run on. Raises ControlPlaneError."""
        output_of(*self._ctr, "images", "remove", name, limit_s=60.0)

    def kill(self, container: str) -> None:
        """Kill all processes of a container by its ID. Raises ControlPlaneError."""
        output_of(*self._ctr, "tasks", "kill", "--signal=SIGKILL", "--all", container, limit_s=30.0)

    def memory(self, container: str) -> int:
        """Return the bytes of memory that a container's processes hold. Raises ControlPlaneError."""
        listed = output_of(*self._ctr, "tasks", "ps", container, limit_s=30.0).splitlines()[1:]
        return sum(_resident(int(line.split()[0])) for line in listed)


def _resident(process: int) -> int:
    """Return the bytes of a process's own and shared memory (VmRSS)."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def pause_image(tools: Tools, name: str, work: Path) -> Path:
    """Make the image of the process that holds a pod's namespaces: Debian's catatonit has a mode for that."""
    tree = work / "pause"
    tree.mkdir()
    shutil.copy(tools.catatonit, tree / "catatonit")
    made = layers.pack(tree, work / "pause-layer.tar")
    target = work / "pause.tar"
    archive.write(target, name, [made], {"Entrypoint": ["/catatonit", "-P"]})
    return target
