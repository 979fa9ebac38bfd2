"""Shared code of the programs, which import nothing else of this project: their environments have only an SDK."""

import contextlib
import io
import logging
import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 60  # a busy machine may be ten times slower
RUN: Final = "hollow.tfjob.kubeflow.org/run"
LOG: Final = "hollow.tfjob.kubeflow.org/log"
"""The annotations that define what the hollow node's pods do and print; these environments cannot import its constants."""


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds` returns true, for at most LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s"
        time.sleep(0.3)


def output_of(run: Callable[[], object]) -> str:
    """Return the text that a call logs, prints and returns; SDKs deliver logs in all these ways."""
    text = io.StringIO()
    logging.basicConfig(stream=text, level=logging.INFO, force=True)
    with contextlib.redirect_stdout(text):
        returned = run()
    return f"{text.getvalue()}{returned}"


def error_of(run: Callable[[], object]) -> str:
    """Run a call that must fail, and return its error message."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - of any kind
        return f"{type(error).__name__}: {error}"
    raise AssertionError("this should have failed")
