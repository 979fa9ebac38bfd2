"""The form of log lines."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from tfjob_operator.controller.observability.log import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave the standard library's logging as it was, too."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def crash() -> None:
    """Raise ValueError with a secret in a local variable."""
    token = "hush" + "-hush"
    raise ValueError(len(token))


def crash_with(message: str) -> None:
    """Fail with a message that somebody else wrote."""
    raise ValueError(message)


def test_a_line_is_one_json_object_with_what_the_task_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON unless standard error is a terminal; an error with its traceback is one line, too."""
    configure_logging()
    with structlog.contextvars.bound_contextvars(tfjob="team/mnist", reconcile_id="1"):
        structlog.get_logger().info("tfjob_condition", reason="TFJobRunning")
        try:
            crash()
        except ValueError:
            structlog.get_logger().exception("sync_crashed")
    structlog.get_logger().debug("too_much")
    told, crashed = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert told.pop("timestamp").endswith("Z")
    about = {"tfjob": "team/mnist", "reconcile_id": "1"}
    assert told == about | {"event": "tfjob_condition", "level": "info", "reason": "TFJobRunning"}
    assert "ValueError" in crashed["exception"]


def test_libraries_log_in_the_same_form_and_only_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """One program reads the log."""
    configure_logging(level="debug")
    logging.getLogger("library").info("chatter")
    logging.getLogger("library").error("broken: %s", "why")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "broken: why"


@pytest.mark.parametrize("json_format", [True, False])
def test_a_traceback_shows_no_local_variables(json_format: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """They may be secrets; a console with a library for pretty tracebacks would print them."""
    configure_logging(json_format=json_format)
    try:
        crash()
    except ValueError:
        structlog.get_logger().exception("sync_crashed")
    printed = capsys.readouterr().err
    assert "ValueError" in printed
    assert "hush-hush" not in printed


@pytest.mark.parametrize("json_format", [True, False])
def test_whatever_a_field_tells_is_cut_and_cleaned(json_format: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """D5: in both forms, in every field, from our loggers and from those of libraries: ESC could rewrite a terminal."""
    configure_logging(json_format=json_format)
    evil = "\x1b[2Jgone \u202e" + "x" * 100_000
    structlog.get_logger().warning("tfjob_event", message=evil, error=ValueError(evil), number=3)
    logging.getLogger("library").error("broken: %s", evil)
    try:
        crash_with(evil + " and that was why")
    except ValueError:
        structlog.get_logger().exception("sync_crashed")
        logging.getLogger("library").exception("crashed")
    text = capsys.readouterr().err
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert text.count("gone") >= 3
    assert text.count("and that was why") == 2, "of a traceback the end is kept"
    assert len(text) < 3 * 4096 + 2 * 16_384 + 2000


def test_numbers_stay_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs that read the log calculate with them."""
    configure_logging(json_format=True)
    structlog.get_logger().info("handler_slow", seconds=0.5, delivered=3, sure=True, why=None)
    line = json.loads(capsys.readouterr().err)
    assert (line["seconds"], line["delivered"], line["sure"], line["why"]) == (0.5, 3, True, None)
