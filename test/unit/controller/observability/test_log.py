"""The form of log lines."""

import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest
import structlog

from fakes.metrics import FakeMetrics
from tfjob_operator.controller.observability.log import (
    LINES_AT_ONCE,
    LINES_DROPPED,
    MAX_QUEUED_LINES,
    LogWriter,
    configure_logging,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave the standard library's logging as it was, too."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def crash(message: str = "") -> None:
    """Raise ValueError with a secret in a local variable, and perhaps with a message that somebody else wrote."""
    token = "hush" + "-hush"
    raise ValueError(message or len(token))


def test_a_line_is_one_json_object_with_what_the_task_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON unless standard error is a terminal; an error with its traceback is one line, too."""
    configure_logging()
    with structlog.contextvars.bound_contextvars(tfjob="team/mnist", reconcile_id="1"):
        structlog.get_logger().info("tfjob_condition", reason="TFJobRunning", seconds=0.5, sure=True, why=None)
        try:
            crash()
        except ValueError:
            structlog.get_logger().exception("sync_crashed")
    structlog.get_logger().debug("too_much")
    told, crashed = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert told.pop("timestamp").endswith("Z")
    about = {"tfjob": "team/mnist", "reconcile_id": "1"}
    said = {"event": "tfjob_condition", "level": "info", "reason": "TFJobRunning"}
    assert told == about | said | {"seconds": 0.5, "sure": True, "why": None}, "programs calculate with numbers"
    assert "ValueError" in crashed["exception"]


def test_libraries_log_in_the_same_form_and_only_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
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
        crash(evil + " and that was why")
    except ValueError:
        structlog.get_logger().exception("sync_crashed")
        logging.getLogger("library").exception("crashed")
    text = capsys.readouterr().err
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert text.count("gone") >= 3
    assert text.count("and that was why") == 2, "of a traceback the end is kept"
    assert len(text) < 3 * 4096 + 2 * 16_384 + 2000


def drained(reader: int) -> bytes:
    return b"".join(iter(lambda: os.read(reader, 1 << 16), b""))


def test_a_reader_that_stops_loses_lines_and_nobody_waits() -> None:
    """A pipe holds 64 KB. What does not fit waits, up to a limit; what is dropped is counted, also from before the counter."""
    reader, writer = os.pipe()
    logs, metrics = LogWriter(writer), FakeMetrics()
    for _ in range(MAX_QUEUED_LINES + 5000):
        logs.write("x" * 99 + "\n")
    logs.count_dropped(metrics.counter(LINES_DROPPED))
    for _ in range(100):
        logs.write("y" * 99 + "\n")
    dropped = metrics[LINES_DROPPED].count
    assert dropped >= 5100 - 2 * LINES_AT_ONCE - 700, "but for those in the pipe and in the thread's hands"
    reading = threading.Thread(target=lambda: read.append(drained(reader)))
    read: list[bytes] = []
    reading.start()
    logs.close()
    os.close(writer)
    reading.join()
    assert read[0].count(b"\n") == MAX_QUEUED_LINES + 5100 - dropped
    os.close(reader)


@pytest.mark.parametrize("breaks", ["full disk", "closed pipe"])
def test_a_stream_that_breaks_loses_lines_and_ends_nothing(breaks: str) -> None:
    """ENOSPC and EPIPE: each line is counted, and the next one is tried again."""
    reader, pipe = os.pipe()
    os.close(reader)
    descriptor = os.open("/dev/full", os.O_WRONLY) if breaks == "full disk" else os.dup(pipe)
    logs, metrics = LogWriter(descriptor), FakeMetrics()
    logs.count_dropped(metrics.counter(LINES_DROPPED))
    configure_logging(json_format=True, stream=logs)
    for number in range(3):
        structlog.get_logger().info("line", number=number)
    logs.close()
    assert metrics[LINES_DROPPED].count == 3
    for each in (descriptor, pipe):
        os.close(each)


def test_the_last_lines_are_written_before_the_process_ends() -> None:
    reader, writer = os.pipe()
    logs = LogWriter(writer)
    configure_logging(json_format=True, stream=logs)
    structlog.get_logger().error("operator_failed")
    logs.close()
    os.close(writer)
    assert json.loads(drained(reader))["event"] == "operator_failed"
    os.close(reader)
