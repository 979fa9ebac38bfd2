"""Sets up mounts and network inside the sandbox, then runs the command.

    python -m hack.real_node.inside FOLDER COMMAND...

- Overlays redirect the writes of the node's programs under /etc, /run and /var into the folder. They cover paths that cannot be
  configured.
- The kubelet changes some kernel settings that belong to no namespace; plain files are mounted over them.
- The node's address is on a bridge without ports. It is not a loopback address, because endpoints must not have loopback
  addresses. It is not reachable from outside.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER_VARIABLE: Final = "TFJOB_REAL_NODE"
"""Set in the sandbox: its folder, which is on a disk."""
TOOLS_FILE: Final = "tools.json"
NODE_ADDRESS: Final = "172.30.0.1"
PRIVATE: Final = ("/etc", "/run", "/var")
KERNEL_SETTINGS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def main() -> None:
    """Set the sandbox up, then exec the command."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    _mounts(folder)
    _network()
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.execvp(command[0], command)  # noqa: S606 - it is the caller's own command


def _mounts(folder: Path) -> None:
    for place in PRIVATE:
        upper, work = folder / "private" / place[1:], folder / "private" / f"{place[1:]}.work"
        upper.mkdir(parents=True)
        work.mkdir()
        _do("mount", "-t", "overlay", f"-olowerdir={place},upperdir={upper},workdir={work}", "overlay", place)
    for setting in KERNEL_SETTINGS:
        real = Path("/proc/sys") / setting
        if not real.exists():
            continue
        stand_in = folder / "private" / setting.replace("/", ".")
        stand_in.write_text(real.read_text())
        _do("mount", "--bind", str(stand_in), str(real))
    _do("mount", "--make-rshared", "/")  # as init systems do: volumes of containers need it


def _network() -> None:
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", "node0", "type", "bridge")
    _do("ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", "node0")
    _do("ip", "link", "set", "node0", "up")
    # Packets to services need a route before kube-proxy's rules apply; there is no other route.
    _do("ip", "route", "add", "default", "dev", "node0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for setting in Path("/proc/sys/net/bridge").glob("bridge-nf-call-iptables"):
        setting.write_text("1")


def _do(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: cannot set up the sandbox: `{' '.join(command)}`: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
