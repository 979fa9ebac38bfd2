"""`python -m hack.picture [FILE]`: draw the README's terminal picture (SVG) from a real session of `kubectl tfjob`.

It runs against its own control plane, operator and hollow node. The pods are scripted: one job trains, one has finished, others
have problems. The commands run in a pseudo-terminal, so they print colors as they do for users.
"""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.hollow_node.script import RUN
from hack.matrix.cluster import ROOT, at_work


class Role(NamedTuple):
    """The replicas of one type: their number, the hollow node's script for them, and their resource requests."""

    replicas: int
    run: str
    gpus: int = 0


PICTURE: Final = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS: Final = 110
COMMANDS: Final = ("kubectl tfjob list", "kubectl tfjob explain bert")
NODES: Final = """
- {name: cpu, count: 3, allocatable: {cpu: 16, memory: 64Gi, pods: 110}}
- {name: gpu, count: 2, labels: {pool: gpu}, allocatable: {cpu: 32, nvidia.com/gpu: 4, pods: 110}}
"""
JOBS: Final[Mapping[str, Mapping[str, Role]]] = {
    "resnet": {"Chief": Role(1, "forever"), "PS": Role(2, "forever"), "Worker": Role(3, "forever")},
    "bert": {"Worker": Role(2, "forever", gpus=8)},
    "recommender": {"Chief": Role(1, "forever"), "Worker": Role(2, "3s:oom-killed")},
    "hello": {"Worker": Role(2, "2s:0")},
}
STAGED_S: Final = 45.0
"""Long enough for restarts and back-off to appear."""


def main() -> int:
    """Draw the picture; return the exit code."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    try:
        target.write_text(drawn(session()))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


def session() -> str:
    """Run the commands; return the terminal output. Raises ControlPlaneError."""
    with ControlPlane.start("picture") as plane:
        plane.run_kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        nodes = plane.directory / "nodes.yaml"
        nodes.write_text(NODES)
        with at_work(plane, f"--nodes={nodes}"):
            for name, roles in JOBS.items():
                plane.run_kubectl("create", "-f", "-", input=json.dumps(_job(name, roles)))
            time.sleep(STAGED_S)
            path = f"{plane.kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = {"HOME": str(plane.directory), "PATH": path, "KUBECONFIG": str(plane.kubeconfig)}
            environment |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
            return "\n".join(f"$ {command}\n{_shown(command, environment)}" for command in COMMANDS)


def _job(name: str, roles: Mapping[str, Role]) -> dict[str, object]:
    def replicas(role: Role) -> dict[str, object]:
        limits = {"nvidia.com/gpu": role.gpus} if role.gpus else {}
        image = f"registry.example.com/team/{name}:7"
        container = {"name": "tensorflow", "image": image, "resources": {"limits": limits}}
        template = {"metadata": {"annotations": {RUN: role.run}}, "spec": {"containers": [container]}}
        return {"replicas": role.replicas, "restartPolicy": "OnFailure", "template": template}

    spec = {"tfReplicaSpecs": {type_: replicas(role) for type_, role in roles.items()}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": spec}


def _shown(command: str, environment: Mapping[str, str]) -> str:
    """Run a command in its own terminal; return its output including color escape sequences."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(command.split(), env=environment, stdin=its, stdout=its, stderr=its):
        os.close(its)
        written = b""
        while chunk := _read(ours):
            written += chunk
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux this means that the other side was closed
        return b""


def drawn(text: str) -> str:
    """Return an SVG of a terminal with this text. The SVG loads no external fonts, because code hosting sites block them."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    svg = console.export_svg(title="kubectl tfjob", unique_id="terminal")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(main())
