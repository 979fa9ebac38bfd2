"""Runs a command in its own namespaces, then removes what outlives these namespaces.

When the first process of the sandbox exits, the kernel kills all others. When the last one exits, the kernel removes network
devices, rules and mounts. This module removes the rest: the folder, and the cgroups of containers, which are part of the
machine's cgroup tree.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from hack.control_plane.run import folders
from hack.real_node import machine
from hack.real_node.inside import TOOLS_FILE
from hack.real_node.machine import Tools

UNSHARE: Final = ("--fork", "--mount-proc", "--kill-child", "--propagation=private")
CGROUPS: Final = Path("/sys/fs/cgroup")
CPU_SHARES: Final = (("cpu/k8s.io/cpu.shares", "10240"), ("k8s.io/cpu.weight", "1000"))
"""Ten times the default, for cgroups v1 and v2. With it, all containers of the node share the CPU time of one process of the
machine, whatever their pods request: next to twenty busy processes, the import of TensorFlow takes minutes."""
REMOVE_LIMIT_S: Final = 10.0  # a control group can be removed when the kernel has reaped its last process


def run(command: Sequence[str], tools: Tools) -> int:
    """Run the command in a new sandbox; return its exit code."""
    folders.sweep()
    # On a disk: it contains the overlays of containers, which cannot be on top of the sandbox's overlay of /var.
    held = folders.make("real-node", Path(tempfile.gettempdir()))
    folder = held.path
    (folder / TOOLS_FILE).write_text(json.dumps(asdict(tools), default=str))
    before = set(_groups())
    _raise_cpu_shares()
    try:
        done = subprocess.run(
            [
                # If this process is killed, the sandbox ends too, and the next start removes its folder.
                *("setpriv", "--pdeathsig=KILL"),
                *("unshare", *machine.NAMESPACES, *UNSHARE, "--"),
                # The first process of a PID namespace must reap orphans, which neither Python nor pytest does.
                *(str(tools.catatonit), "-g", "--"),
                *(sys.executable, "-m", "hack.real_node.inside", str(folder), *command),
            ],
            check=False,
        )
    finally:
        _remove_groups(before)
        held.remove()
    return done.returncode


def _raise_cpu_shares() -> None:
    """Create the parent of the containers' control groups with more CPU time, if this machine allows it."""
    for file, shares in CPU_SHARES:
        path = CGROUPS / file
        if (path.parents[1] / "cgroup.procs").exists():
            with contextlib.suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                path.write_text(shares)


def _groups() -> list[Path]:
    """Return the control groups of this machine, the inner ones first.

    Other programs create and remove their cgroups during the walk; `os.walk` tolerates this and `Path.rglob` does not.
    """
    return [Path(folder) for folder, _, files in os.walk(CGROUPS, topdown=False) if "cgroup.procs" in files]


def _remove_groups(before: set[Path]) -> None:
    """Remove the control groups that were created during the run and have no process."""
    deadline = time.monotonic() + REMOVE_LIMIT_S
    while (
        left := [path for path in _groups() if path not in before and _is_ours(path)]
    ) and time.monotonic() < deadline:
        for path in left:
            with contextlib.suppress(OSError):
                path.rmdir()
        time.sleep(0.1)


def _is_ours(path: Path) -> bool:
    return any(part == "k8s.io" or (len(part) == 64 and part.isalnum()) for part in path.relative_to(CGROUPS).parts)
