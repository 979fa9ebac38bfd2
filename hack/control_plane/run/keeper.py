"""The process that keeps one control plane: it starts the parts, watches them and clears everything away at the end.

Run as `python -m hack.control_plane.run.keeper <order>` by `launch`, in a session of its own. In: the order (JSON), then
requests as lines on stdin. Out: one line of JSON on stdout when the control plane is ready or has failed to start, and one per
request; the state file in the instance's folder. The owner is the process that holds the write end of stdin: when it ends,
in whatever way, the keeper reads end-of-file and stops. A detached keeper has no owner and runs until SIGTERM. Should the
keeper itself be killed, the kernel kills the parts, and the next start sweeps the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from hack.control_plane.build.binaries import Binaries
from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run import folders, parts
from hack.control_plane.run.folders import State
from hack.control_plane.run.stack import PortTakenError, Stack

STDIN, STDOUT, STDERR = 0, 1, 2
WATCH_S = 0.25  # how late at most the state file shows a part's end
PORT_TRIES = 5


@dataclass(frozen=True, slots=True)
class Order:
    """What a keeper is to run, and how."""

    name: str
    programs: dict[str, str]
    detached: bool = False
    named: bool = False
    extra_apiserver_args: tuple[str, ...] = ()
    extra_controllers: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    """The ports to try first; for tests of collisions."""
    shape: parts.Shape = parts.SINGLE

    def to_text(self) -> str:
        """Return the order as the keeper's command line carries it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Order:
        """Read an order from the keeper's command line."""
        content = json.loads(text)
        for key in ("extra_apiserver_args", "extra_controllers", "ports"):
            content[key] = tuple(content[key])
        content["shape"] = parts.Shape(**content["shape"])
        return cls(**content)

    def binaries(self) -> Binaries:
        """Return the programs to run."""
        return Binaries(**{name: Path(path) for name, path in self.programs.items()})


class _OwnerGoneError(Exception):
    """Nobody needs the control plane any more."""


class Lifeline:
    """Reads the owner's requests and notices the owner's end; invariant: after that, `pause` raises `_OwnerGoneError`."""

    def __init__(self) -> None:
        self._gone = False
        self._detached = False
        self._text = b""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)

    def _end(self, *_: object) -> None:
        self._gone = True  # seen at the next pause: raising from here could cut a cleanup in two

    def detach(self) -> None:
        """Let go of the owner: from now on only a signal ends the keeper."""
        self._detached = True
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (STDIN, STDOUT):
            os.dup2(null, descriptor)
        os.close(null)

    def pause(self, seconds: float) -> None:
        """Wait; requests that come meanwhile are kept."""
        if self._gone:
            raise _OwnerGoneError
        readable, _, _ = select.select([] if self._detached else [STDIN], [], [], seconds)
        if readable:
            read = os.read(STDIN, 4096)
            self._text += read
            if not read:
                self._gone = True
                raise _OwnerGoneError

    def request(self) -> str | None:
        """Return the next complete line from the owner, None if there is none yet."""
        line, separator, rest = self._text.partition(b"\n")
        if not separator:
            return None
        self._text = rest
        return line.decode()

    def reply(self, **content: object) -> None:
        """Send the owner a line."""
        try:
            os.write(STDOUT, json.dumps(content).encode() + b"\n")
        except BrokenPipeError:
            raise _OwnerGoneError from None


class Keeper:
    """One instance from its start to its end; invariant: after `run` none of its processes is left."""

    def __init__(self, order: Order, held: folders.HeldFolder, lifeline: Lifeline) -> None:
        self._order = order
        self._folder = held.path
        self._lifeline = lifeline
        self._stack = Stack(
            held.path,
            order.binaries(),
            order.extra_apiserver_args,
            order.extra_controllers,
            lifeline.pause,
            shape=order.shape,
        )
        self._ports = parts.choose_ports(order.ports, shape=order.shape)

    def run(self) -> None:
        """Start the parts, tell the owner, and watch them until the owner is gone."""
        try:
            self._start()
            _write_kubectl_wrapper(self._folder, self._order.binaries().kubectl)
            state = self._state()
            state.write(self._folder)
            self._lifeline.reply(folder=str(self._folder))
            if self._order.detached:
                self._lifeline.detach()
            while True:
                self._lifeline.pause(WATCH_S)
                self._serve()
                if (now := self._state()) != state:
                    state = now
                    state.write(self._folder)
        finally:
            self._stack.kill()

    def _start(self) -> None:
        for attempt in range(1, PORT_TRIES + 1):
            try:
                self._stack.start(self._ports)
            except PortTakenError:
                self._stack.kill()
                if attempt == PORT_TRIES:
                    raise
                self._ports = parts.choose_ports(shape=self._order.shape)
            else:
                return

    def _serve(self) -> None:
        while (request := self._lifeline.request()) is not None:
            try:
                done = self._do(*request.split(" ", 1))
            except ControlPlaneError as error:
                self._state().write(self._folder)
                self._lifeline.reply(error=str(error))
            else:
                self._state().write(self._folder)  # before the reply: the owner may read the file at once
                self._lifeline.reply(done=request, **done)

    def _do(self, verb: str, about: str) -> dict[str, object]:
        verbs: dict[str, Callable[[str], None]] = {
            "restart": self._stack.restart,
            "kill": self._stack.kill_part,
            "end": self._stack.end_part,
            "start": self._stack.start_again,
        }
        if verb in verbs:
            verbs[verb](about)
            return {}
        port = parts.choose_ports().kube_apiserver
        self._stack.start_another_apiserver(port, about)
        return {"server": f"https://{parts.LOOPBACK}:{port}"}

    def _state(self) -> State:
        return State(
            name=self._order.name,
            keeper=os.getpid(),
            server=f"https://{parts.LOOPBACK}:{self._ports.server}",
            etcd_endpoint=f"https://{parts.LOOPBACK}:{self._ports.etcd}",
            kubectl=str(self._order.binaries().kubectl),
            parts=self._stack.states(),
            ports=dict(
                zip(
                    (*self._order.shape.etcds, *self._order.shape.servers),
                    (*self._ports.etcds, *self._ports.apiservers),
                    strict=True,
                )
            ),
        )


def _write_kubectl_wrapper(folder: Path, kubectl: Path) -> None:
    # For a person's shell. By itself kubectl would leave a cache in ~/.kube for every port that an instance ever had.
    wrapper = folder / "bin" / "kubectl"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\ncommand -v "kubectl-$1" >/dev/null && exec "{kubectl}" "$@"  # no flag may stand before a plugin\n'
        f'exec "{kubectl}" --cache-dir="{folder / "kubectl-cache"}" "$@"\n'
    )
    wrapper.chmod(0o755)


def main() -> int:
    """Run the control plane that the order on the command line describes; return the exit code."""
    os.umask(0o077)
    order = Order.from_text(sys.argv[1])
    lifeline = Lifeline()
    held: folders.HeldFolder | None = None
    try:
        folders.sweep()
        held = folders.make_named(order.name) if order.named else folders.make_private(order.name)
        Keeper(order, held, lifeline).run()
    except _OwnerGoneError:
        return 0
    except ControlPlaneError as error:
        return _fail(lifeline, str(error))
    except Exception:  # noqa: BLE001 - the owner must learn of a bug of ours too; it has no other way to see it
        return _fail(lifeline, f"the keeper failed:\n{traceback.format_exc()}")
    finally:
        if held is not None:
            held.remove()
    return 0


def _fail(lifeline: Lifeline, message: str) -> int:
    with contextlib.suppress(_OwnerGoneError):
        lifeline.reply(error=message)
    return 1


if __name__ == "__main__":
    sys.exit(main())
