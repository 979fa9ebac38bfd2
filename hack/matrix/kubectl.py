"""One release of kubectl at work on one control plane, with a transcript of its commands and output."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hack.matrix.releases import CheckError

COMMAND_LIMIT_S: Final = 90.0  # the longest waits for a namespace to go, which takes some ten seconds
UNTIL_LIMIT_S: Final = 60.0  # what takes a second or two may take ten times as long on a busy machine
POLL_S: Final = 0.3


@dataclass(slots=True)
class Kubectl:
    """A kubectl as the administrator of a control plane; its caches and settings are in a folder of its own.

    Every method raises CheckError when the program does not do what the method says.
    """

    program: Path
    kubeconfig: Path
    home: Path
    transcript: list[str] = field(default_factory=list)

    def __call__(self, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """Run it and return what it printed; a failure raises."""
        return _succeeded(arguments, self._run(arguments, stdin, environment or {}))

    def refused(self, *arguments: str, stdin: str = "") -> str:
        """Run what has to be refused, and return stderr; a success raises."""
        done = self._run(arguments, stdin, {})
        if done.returncode == 0:
            raise CheckError(f"`{_shown(arguments)}` should have been refused")
        return done.stderr

    def read(self, *arguments: str) -> dict[str, Any]:
        """Run a `get` and return the object or list, which is left out of the transcript."""
        arguments += ("--output=json",)
        found: dict[str, Any] = json.loads(_succeeded(arguments, self._run(arguments, "", {}, records_stdout=False)))
        return found

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Call `holds` until it returns true, for at most UNTIL_LIMIT_S."""
        deadline = time.monotonic() + UNTIL_LIMIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise CheckError(f"not within {UNTIL_LIMIT_S:.0f} s: {what}")
            time.sleep(POLL_S)

    def _run(
        self, arguments: tuple[str, ...], stdin: str, environment: Mapping[str, str], *, records_stdout: bool = True
    ) -> subprocess.CompletedProcess[str]:
        self.transcript.append(f"$ {_shown(arguments)}")
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *arguments]
        settings = {**os.environ, "HOME": str(self.home), **environment}
        settings.pop("KUBECONFIG", None)
        try:
            done = subprocess.run(
                command,
                input=stdin,
                check=False,
                capture_output=True,
                text=True,
                timeout=COMMAND_LIMIT_S,
                env=settings,
            )
        except subprocess.TimeoutExpired as error:
            raise CheckError(f"`{_shown(arguments)}` took more than {COMMAND_LIMIT_S:.0f} s") from error
        except OSError as error:
            raise CheckError(f"cannot run {self.program}: {error}") from error
        if records_stdout:
            self.transcript += done.stdout.splitlines()
        self.transcript += done.stderr.splitlines()
        return done


def _succeeded(arguments: tuple[str, ...], done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command printed. Raises CheckError where it failed."""
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise CheckError(f"`{_shown(arguments)}` failed with code {done.returncode}: {said}")
    return done.stdout


def _shown(arguments: tuple[str, ...]) -> str:
    return f"kubectl {shlex.join(arguments)}"


def expect(condition: bool, what: str) -> None:  # noqa: FBT001 - reads as the sentence that it checks
    """Raise CheckError unless it holds; `what` says what is wrong."""
    if not condition:
        raise CheckError(what)


def expect_in(text: str, *wanted: str) -> None:
    """Raise CheckError unless all of this is part of the text."""
    missing = [part for part in wanted if part not in text]
    expect(not missing, f"missing in the output: {missing}")


def columns_of(table: str) -> list[str]:
    """Return the headings of a table that kubectl printed; empty where there is none."""
    lines = table.splitlines()
    return lines[0].split() if lines else []
