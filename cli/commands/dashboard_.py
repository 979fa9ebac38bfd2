"""`kubectl tfjob dashboard`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.printing import echo

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tfjob_operator.cli.target import Target

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8787
"""The default port. It is fixed so that links to jobs stay valid; a free one is used if it is taken."""


@click.command("dashboard")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the jobs of all namespaces.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"The port to listen on; by default {PORT}, or a free one.")
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@target_options
def command(target: Target, everywhere: bool, port: int | None, no_browser: bool) -> None:  # noqa: FBT001 - flags
    """Serve a live page of jobs on 127.0.0.1 until Ctrl-C: states, replicas, timelines, logs and events.

    Without -n and -A, the page shows all namespaces if you have permission to list jobs in all of them, else the namespace of
    the context. The page is read-only and uses your permissions. Each printed link works in one browser; after a link is used,
    a new link is printed.
    """
    if everywhere and target.namespace:
        raise CliError("--namespace and --all-namespaces cannot be combined")
    try:
        import aiohttp  # noqa: F401
    except ModuleNotFoundError as error:
        raise CliError(
            "the Python package aiohttp is missing. Reinstall the plugin from its checkout, "
            "pipx install --force '.[cli,dashboard]', or from its wheel, pipx install --force 'FILE.whl[cli,dashboard]'"
        ) from error
    import asyncio
    import signal
    import tempfile

    from tfjob_operator.cli.page.run import run

    async def serve() -> None:
        """Serve until a signal. A shell without job control lets commands in the background ignore SIGINT, but not SIGTERM."""
        loop = asyncio.get_running_loop()
        serving = loop.create_task(run(target, listening, print_link, everywhere=scope))
        signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(serving.cancel))
        await serving

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as after Ctrl-C
    with listen(port) as listening, tempfile.TemporaryDirectory(prefix="kubectl-tfjob-") as private:
        print_link = _printer(None if no_browser or not _has_display() else private)
        scope = True if everywhere else False if target.namespace else None
        try:
            asyncio.run(serve())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _printer(folder: str | None) -> Callable[[str], None]:
    """Return a function that prints links, and opens the first in a browser if `folder`, a private directory, is given."""
    printed: list[str] = []

    def print_link(address: str) -> None:
        printed.append(address)
        if len(printed) > 1:
            echo(f"Opened in a browser. Link for another one: {address}")
            return
        echo("Dashboard (the link works in one browser):", "", f"    {address}", "", "Press Ctrl-C to stop.")
        if folder is not None:
            _open(address, folder)

    return print_link


def _open(address: str, folder: str) -> None:
    """Open a browser, in a thread, on a file that redirects to the address: other users can see process arguments."""
    import threading
    import webbrowser
    from pathlib import Path

    page = Path(folder, "open.html")
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">', "utf-8")
    threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()


def _has_display() -> bool:
    """Return True if there is a graphical browser: a text browser would take over the terminal."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def listen(port: int | None) -> socket.socket:
    """Return a socket on loopback. Raises CliError if an explicitly requested port is in use."""
    import socket

    for each in [PORT, 0] if port is None else [port]:
        try:
            return socket.create_server((LOOPBACK, each))
        except OSError as error:
            failure = os.strerror(error.errno or 0)
    raise CliError(f"cannot listen on port {port}: {failure}")
