"""The steps of an SDK's life of a job: each is run, timed, and reported as one line of JSON. Standard library alone.

SDKs print to stdout as they like, so these lines begin with a mark.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MARK: Final = "#step "
LIMIT_S: Final = 60.0  # what takes a second or two may take ten times as long on a busy machine
RUN: Final = "hollow.tfjob.kubeflow.org/run"
LOG: Final = "hollow.tfjob.kubeflow.org/log"
"""The annotations that tell the hollow node what the pods do and print, which these environments can not import."""
PRINTED: Final = "loading data"
SCRIPT: Final = {RUN: "forever", LOG: PRINTED}
DONE: Final = {"metadata": {"annotations": {RUN: "0s:0"}}}
"""The patch that lets a pod that would run for ever succeed: so its job runs for as long as the steps before it take."""


@dataclass(frozen=True)
class Where:
    """The cluster of a program."""

    kubeconfig: str
    namespace: str


def where() -> Where:
    """Read the program's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    options = parser.parse_args()
    return Where(options.kubeconfig, options.namespace)


def step(check: str, run: Callable[[], object]) -> None:
    """Run one step. An exception is reported as its problem, and the next step runs all the same."""
    start = time.monotonic()
    problem = output = ""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - an SDK raises anything, and each is a finding
        problem, output = f"{type(error).__name__}: {error}", traceback.format_exc()
    told = {"check": check, "problem": problem, "output": output, "seconds": time.monotonic() - start}
    print(f"\n{MARK}{json.dumps(told)}", flush=True)
    sys.stdout.flush()


def expect(condition: object, what: str) -> None:
    """Raise unless it holds; `what` says what is wrong."""
    if not condition:
        raise AssertionError(what)


def until(holds: Callable[[], object], what: str) -> None:
    """Call `holds` until it returns true, for at most LIMIT_S. Raises AssertionError."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        expect(time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}")
        time.sleep(0.3)


def output_of(run: Callable[[], object]) -> str:
    """Return what a call logs, prints and returns: SDKs hand out logs in all these ways."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with contextlib.redirect_stdout(text):
            returned = run()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return f"{text.getvalue()}{returned}"


def fails(run: Callable[[], object]) -> str:
    """Run what has to fail, and return what it says."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - of any kind
        return f"{type(error).__name__}: {error}"
    raise AssertionError("this should have failed")
