"""What the owner of a keeper does: start it, wait until it is ready, send it requests, end it.

In: an order. Out: a running keeper. This process holds the write end of the keeper's stdin; when this process ends, in
whatever way, that pipe closes and the keeper stops. Used from one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.run.keeper import Order

PROJECT = Path(__file__).resolve().parents[3]
READY_LIMIT_S = 150.0  # more than the keeper's own limit, whose error says more than ours
STOP_LIMIT_S = 20.0


class KeeperHandle:
    """A keeper that this process owns; invariant: after `stop`, or after an error of `ready`, it has ended and cleared up."""

    def __init__(self, order: Order) -> None:
        """Start a keeper; it is not ready yet."""
        self._answers = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hack.control_plane.run.keeper", order.to_text()],
            cwd=PROJECT,
            # Write no bytecode into the source tree, which may be read-only, and do not depend on the caller's path.
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is for us; we then stop the keeper
            bufsize=0,
        )

    def ready(self) -> Path:
        """Wait until the control plane is ready; return its folder. Raises ControlPlaneError."""
        try:
            return Path(str(self._answer(READY_LIMIT_S)["folder"]))
        except BaseException:  # a Ctrl-C too: nothing may be left behind
            self.stop()
            raise

    def request(self, text: str) -> dict[str, object]:
        """Send the keeper a request, wait until it is done, and return its answer. Raises ControlPlaneError."""
        if self._process.stdin is None or self._process.stdin.closed:
            raise ControlPlaneError("the control plane is stopped")
        try:
            self._process.stdin.write(text.encode() + b"\n")
        except BrokenPipeError as error:
            raise ControlPlaneError("the keeper of the control plane is gone") from error
        return self._answer(READY_LIMIT_S)

    def release(self) -> None:
        """Let a detached keeper live on without us."""
        self._close()

    def stop(self) -> None:
        """End the keeper and wait until it has cleared up; a second call does nothing."""
        self._close()
        try:
            self._process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then kills the parts, and the next start sweeps the folder
            self._process.wait(timeout=STOP_LIMIT_S)

    def is_alive(self) -> bool:
        """Tell whether the keeper still runs."""
        return self._process.poll() is None

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _answer(self, limit_s: float) -> dict[str, object]:
        line = self._line(time.monotonic() + limit_s)
        answer: dict[str, object] = json.loads(line)
        if "error" in answer:
            raise ControlPlaneError(str(answer["error"]))
        return answer

    def _line(self, deadline: float) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise ControlPlaneError("the control plane is stopped")
        while b"\n" not in self._answers:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise ControlPlaneError("the keeper of the control plane does not answer")
            read = os.read(stdout.fileno(), 65536)
            if not read:
                raise ControlPlaneError(f"the keeper of the control plane ended without a word{self._last_words()}")
            self._answers += read
        line, _, self._answers = self._answers.partition(b"\n")
        return line

    def _last_words(self) -> str:
        stderr = self._process.stderr
        words = stderr.read().decode(errors="replace").strip() if stderr is not None else ""
        return f": {words[-2000:]}" if words else ""
