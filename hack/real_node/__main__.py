"""The command line: `python -m hack.real_node check`, `try`, and `run -- COMMAND...`.

Exit codes: that of the command; 1 if this machine cannot run a node (the reason is printed); 2 for invalid usage; 130 if
interrupted.
"""

import argparse
import os
import signal
import sys

from hack.control_plane.build.commands import ControlPlaneError
from hack.real_node import machine, sandbox
from hack.real_node.inside import FOLDER_VARIABLE
from hack.real_node.node import RealNode

INTERRUPTED = 130


def main() -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hack.real_node", description="Run a real Kubernetes node in a sandbox."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check", help="check the requirements of a node, in a second")
    verbs.add_parser("try", help="start a node and stop it, which is a complete check")
    run = verbs.add_parser("run", help="run a command in the sandbox")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up after SIGTERM as after Ctrl-C
    try:
        _check()
        if given.verb == "check":
            return 0
        if given.verb == "try":
            return _try()
        command = given.command[1:] if given.command[:1] == ["--"] else given.command
        if not command:
            parser.error("run needs a command")
        return sandbox.run(command, machine.prepare())
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _try() -> int:
    if FOLDER_VARIABLE in os.environ:  # inside the sandbox, where this command runs again
        with RealNode.start():
            return 0
    return sandbox.run([sys.executable, "-m", "hack.real_node", "try"], machine.prepare())


def _check() -> None:
    if lacking := [*machine.lacking()]:
        raise ControlPlaneError("this machine cannot run a real node:\n" + "\n".join(f"  - {x}" for x in lacking))


if __name__ == "__main__":
    sys.exit(main())
