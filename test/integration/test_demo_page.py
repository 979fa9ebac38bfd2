"""`make demo-page`: the page of `kubectl tfjob dashboard`, over the examples' jobs."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Final

from hack.page_cluster import enter
from integration.pages import Page
from support.pages import ROOT

LIMIT_S: Final = 90
READ: Final = {
    "/-/stream": b'"name":"runs-on"',
    "/-/log/default/runs-on-chief-0?follow=true": b"10/10 - 2s - loss: 2.3000",
    "/-/curves?run=default/runs-on": b'"loss"',
}
"""What is read of logs, and what comes soon: rows, lines, and curves of them."""


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
                with page.open(path) as stream:
                    assert any(shows in line for line in stream)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "everything that ran has been stopped" in errors
