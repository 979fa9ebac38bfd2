"""The command line: `python -m hack.control_plane build`, and `python -m hack.control_plane run [COMMAND...]`.

`build` finds or builds the programs and prints their paths. `run` starts a control plane, then a command (default: a shell)
with the KUBECONFIG of the control plane and with its kubectl at the end of PATH. The control plane stops when the command
exits. Exit codes: that of the command, 1 for a failure, 2 invalid usage, 130 interrupted.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.control_plane.build.binaries import Binaries, find_or_build

INTERRUPTED = 130


def build() -> int:
    """Find the programs or build them; print their paths."""
    programs = find_or_build()
    for field in Binaries.__slots__:
        print(getattr(programs, field))
    return 0


def run(command: Sequence[str]) -> int:
    """Run a command, or a shell, with its own control plane; return the exit code."""
    find_or_build()
    with ControlPlane.start("run") as plane:
        # The user's own kubectl comes first: Debian's 1.20.2 panics in commands such as `kubectl config set-context`.
        path = f"{os.environ['PATH']}:{plane.kubectl.parent}"
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}
        if not command:
            print(f"{plane.server} is up and KUBECONFIG is set; exit stops both", file=sys.stderr)
        return subprocess.run(command or [os.environ.get("SHELL", "sh")], env=environment, check=False).returncode


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hack.control_plane",
        description="A real etcd, kube-apiserver and kube-controller-manager on this machine.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="find or build the programs, and print their paths")
    verb = verbs.add_parser(
        "run", help="start a control plane (the first build takes minutes) and run a command with it"
    )
    verb.add_argument("command", nargs=argparse.REMAINDER, help="default: a shell")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up after SIGTERM as after Ctrl-C
    try:
        return build() if given.verb == "build" else run(given.command[given.command[:1] == ["--"] :])
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
