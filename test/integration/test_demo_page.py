"""`make demo-page`: the page of `kubectl tfjob dashboard`, over the examples' jobs."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Final
from urllib.error import HTTPError

from hack.page_cluster import enter
from integration.pages import Page
from support.pages import ROOT
from support.waiting import eventually

LIMIT_S: Final = 90
READ: Final = {
    "/-/stream": b'"name":"runs-on"',
    "/-/log/default/runs-on-chief-0?follow=true": b"10/10 - 2s - loss: 2.3000",
    "/-/curves?run=default/runs-on": b'"loss"',
}
"""What is read of logs, and what comes soon: rows, lines, and curves of them."""


def is_shown(page: Page, path: str, text: bytes) -> bool:
    """Whether a stream of the page has a line with this text before it ends."""
    try:
        with page.open(path) as stream:
            return any(text in line for line in stream)
    except HTTPError:
        return False


def test_the_demo_keeps_a_page_up_until_ctrl_c() -> None:
    """It shows the jobs, with logs and curves, to whoever has the printed address, and leaves nothing behind."""
    # A shell makes its background jobs ignore SIGINT, and tests that run as one pass that on to their child processes.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "hack.demo", "--page"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = next(line.strip() for line in process.stdout if "#token=" in line)
            page = Page(address.partition("/#")[0], enter(address))
            for path, shows in READ.items():
                # A log ends, or is not there yet, while its container starts.
                eventually(lambda path=path, shows=shows: is_shown(page, path, shows), f"{path} shows {shows!r}")  # type: ignore[misc]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "everything that ran has been stopped" in errors
