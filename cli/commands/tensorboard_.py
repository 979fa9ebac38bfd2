"""`kubectl tfjob tensorboard`."""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Final

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.forwarding import Forwarding, board_of
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.target import Target

PORT: Final = 6006
"""TensorBoard's own port: that of the pod, and the one tried first on this machine."""
_HOST: Final = "127.0.0.1"


@click.command("tensorboard")
@click.argument("name", metavar="JOB")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="NUMBER",
    help=f"The local port; by default {PORT}, or a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@target_options
def command(*, target: Target, name: str, port: int | None, no_browser: bool) -> None:
    """Open the TensorBoard of a job by forwarding a port of 127.0.0.1 to it until Ctrl-C.

    The job must have spec.tensorBoard. When the pod is replaced, the port is forwarded to the new one.
    """
    with target.session() as session:
        board = board_of(name, jobs.get(session, name))
        local = _free_port(port)
        forwarding = Forwarding(target, session, board, ports=(local, PORT), pause=time.sleep)
        for _ in forwarding.connections():
            url = f"http://{_HOST}:{local}/"
            click.echo(f"TensorBoard of {name}: {url}   (press Ctrl-C to stop)")
            if not no_browser and _has_screen():
                import webbrowser

                webbrowser.open(url)
            no_browser = True  # once
    click.echo(f"the TensorBoard of {name} was deleted", err=True)


def _free_port(wanted: int | None) -> int:
    """Return a port on which nobody listens: the one that is wanted, or TensorBoard's own if it is free, or any."""
    for port in (wanted,) if wanted else (PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                if wanted:
                    raise CliError(f"cannot listen on {_HOST}:{wanted}: {error.strerror}") from error
                continue
            return int(probe.getsockname()[1])
    raise CliError(f"no free port on {_HOST}")


def _has_screen() -> bool:
    """Return whether there is a desktop: without one a text browser would take the terminal."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
