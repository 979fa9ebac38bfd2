"""The command line: `python -m hack.control_plane build|up|down|status|env`.

Results go to stdout (`env` is made for `eval`), everything else to stderr. Exit codes: 0 done and healthy, 1 failed or a
part is dead, 2 wrong usage, 3 not up (as with systemctl), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hack.control_plane.build.binaries import Binaries, find_or_build
from hack.control_plane.build.commands import ControlPlaneError, Progress
from hack.control_plane.run import folders
from hack.control_plane.run.folders import State
from hack.control_plane.run.keeper import Order
from hack.control_plane.run.plane import KeeperHandle

FAILED, NOT_UP, INTERRUPTED = 1, 3, 130
DOWN_LIMIT_S = 20.0
POLL_S = 0.1


def build() -> int:
    """Find the programs or build them; print their paths."""
    programs = find_or_build()
    for field in Binaries.__slots__:
        print(getattr(programs, field))
    return 0


def up(name: str, *, foreground: bool) -> int:
    """Start an instance unless it is up; return at once, or at its end when in the foreground."""
    if folders.find_named(name) is not None:
        _say(f"control plane {name!r} is already up")
        return FAILED if foreground else 0
    programs = find_or_build()
    progress = Progress("control plane")
    progress.say(f"starting {name!r}")
    paths = {field: str(getattr(programs, field)) for field in Binaries.__slots__}
    handle = KeeperHandle(Order(name=name, programs=paths, named=True, detached=not foreground))
    folder = handle.ready()
    state = State.read(folder)
    progress.say(f"ready: {state.server}, logs in {folder / 'logs'}")
    if foreground:
        return _watch(handle, name, folder)
    handle.release()
    option = "" if name == "default" else f" --name {name}"
    print(f"export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}")
    _say(f'or, with a kubectl if you have none:  eval "$(python -m hack.control_plane env{option})"')
    _say(f"to end it:  python -m hack.control_plane down{option}")
    return 0


def _watch(handle: KeeperHandle, name: str, folder: Path) -> int:
    try:
        print(f"export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}", flush=True)
        _say("Ctrl-C ends it")
        while handle.is_alive():
            if complaints := State.read(folder).complaints():
                raise ControlPlaneError("\n".join(complaints))
            time.sleep(POLL_S)
        raise ControlPlaneError(f"the keeper of control plane {name!r} was killed")
    finally:
        handle.stop()
        _say(f"control plane {name!r} is down")


def down(name: str) -> int:
    """End an instance and wait until nothing of it is left; do nothing if it is not up."""
    folder = folders.find_named(name)
    if folder is None:
        folders.sweep()
        _say(f"control plane {name!r} is not up")
        return 0
    keeper = State.read(folder).keeper  # the lock is held, so that this process id is still the keeper's
    os.kill(keeper, signal.SIGTERM)
    if not _is_gone(folder):
        os.kill(keeper, signal.SIGKILL)
        if not _is_gone(folder):
            raise ControlPlaneError(f"control plane {name!r} does not end; its keeper is process {keeper}")
    folders.sweep()
    _say(f"control plane {name!r} is down")
    return 0


def _is_gone(folder: Path) -> bool:
    deadline = time.monotonic() + DOWN_LIMIT_S
    while folders.is_alive(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def status(name: str) -> int:
    """Print whether an instance and its parts run; return the exit code."""
    folder = folders.find_named(name)
    if folder is None:
        print(f"control plane {name!r} is not up")
        return NOT_UP
    state = State.read(folder)
    print(f"control plane {name!r}: {state.server}, folder {folder}")
    for part in state.parts:
        print(part.complaint() or f"  {part.name} runs, process {part.pid}")
    return FAILED if state.complaints() else 0


def env(name: str) -> int:
    """Print the exports that a shell evaluates to use an instance. Raises ControlPlaneError if it is not up."""
    folder = folders.find_named(name)
    if folder is None:
        raise ControlPlaneError(f"control plane {name!r} is not up: python -m hack.control_plane up")
    State.read(folder)
    print(f"export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}")
    # After the user's own kubectl: Debian's 1.20.2 panics in `kubectl config set-context` and its like.
    print(f'export PATH="$PATH":{shlex.quote(str(folder / "bin"))}')
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.control_plane",
        description="A real etcd, kube-apiserver and kube-controller-manager on this machine.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    helps: dict[str, str] = {
        "build": "only find the programs or build them, and print their paths",
        "up": "start one (builds the programs the first time: some minutes)",
        "down": "end it and delete all of it",
        "status": "tell how it is",
        "env": "print shell exports, for eval",
    }
    for verb, text in helps.items():
        command = verbs.add_parser(verb, help=text, description=text)
        if verb == "build":
            continue
        command.add_argument("--name", default="default", help="which of several instances (default: %(default)s)")
        if verb == "up":
            command.add_argument("--foreground", action="store_true", help="stay, and end it at Ctrl-C")
    return parser


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run one command; return the exit code."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, _interrupt)  # clear up after SIGTERM as after Ctrl-C
    verbs: dict[str, Callable[[], int]] = {
        "build": build,
        "up": lambda: up(arguments.name, foreground=arguments.foreground),
        "down": lambda: down(arguments.name),
        "status": lambda: status(arguments.name),
        "env": lambda: env(arguments.name),
    }
    try:
        return verbs[arguments.verb]()
    except ControlPlaneError as error:
        _say(f"error: {error}")
        return FAILED
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
