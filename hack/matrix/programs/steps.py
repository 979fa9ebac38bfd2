"""What the programs share. Of this project they import only each other: their environments have only what an SDK needs."""

import contextlib
import io
import logging
import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 60  # what takes a second or two may take ten times as long on a busy machine
RUN: Final = "hollow.tfjob.kubeflow.org/run"
LOG: Final = "hollow.tfjob.kubeflow.org/log"
"""The annotations that tell the hollow node what the pods do and print, which these environments can not import."""


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds` returns true, for at most LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s"
        time.sleep(0.3)


def output_of(run: Callable[[], object]) -> str:
    """Return what a call logs, prints and returns: SDKs hand out logs in all these ways."""
    text = io.StringIO()
    logging.basicConfig(stream=text, level=logging.INFO, force=True)
    with contextlib.redirect_stdout(text):
        returned = run()
    return f"{text.getvalue()}{returned}"


def error_of(run: Callable[[], object]) -> str:
    """Run what has to fail, and return what it says."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - of any kind
        return f"{type(error).__name__}: {error}"
    raise AssertionError("this should have failed")
