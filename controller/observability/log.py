"""Log events: a name in snake_case and key/value pairs, as JSON, or colored for terminals.

The event loop never blocks on standard error: a thread writes, and events that cannot be written are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import MutableMapping
from typing import Any, Final, TextIO, cast

import msgspec
import structlog

from tfjob_operator.api.text import clean, clean_end
from tfjob_operator.workqueue.metrics import Counter, Metric

_TRACEBACK: Final = "exception"
_TRACEBACK_BYTES: Final = 16_384
"""Most of a traceback is our own code. Text from users and servers is in the last lines of each part."""


LINES_DROPPED: Final = Metric(
    "log_lines_dropped_total", "Log lines that could not be written to standard error", labels=(), prefixed=True
)
MAX_QUEUED_LINES: Final = 10_000
"""Lines queued for a slow reader: those of a burst of a thousand jobs, 5 MB."""
LINES_AT_ONCE: Final = 100
CLOSE_S: Final = 1.0
"""How long writing the last lines may take at exit."""


class LogWriter:
    """Writes lines to a file descriptor from its own thread.

    A pipe without a reader blocks that thread, and a full disk makes its writes fail; callers are not affected. Lines are then
    dropped: new ones while MAX_QUEUED_LINES are queued, and those of a failed write.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._dropped = 0
        self._counter: Counter | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue a line; never blocks."""
        if self._lines.qsize() >= MAX_QUEUED_LINES:
            self._drop(1)
        else:
            self._lines.put(line)

    def flush(self) -> None:
        """Do nothing: the thread writes lines immediately."""

    def count_dropped(self, counter: Counter) -> None:
        """Count dropped lines with this counter, including earlier ones."""
        self._counter, earlier = counter, self._dropped
        for _ in range(earlier):
            counter.inc()

    def close(self) -> None:
        """Write queued lines; return after CLOSE_S seconds at the latest."""
        self._closing.set()
        self._lines.put("")
        self._thread.join(CLOSE_S)

    def _write_all(self) -> None:
        while not (self._closing.is_set() and self._lines.empty()):
            lines = [self._lines.get()]
            while len(lines) < LINES_AT_ONCE and not self._lines.empty():
                lines.append(self._lines.get())
            data = "".join(lines).encode(errors="backslashreplace")
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                self._drop(sum(map(bool, lines)))

    def _drop(self, lines: int) -> None:
        self._dropped += lines
        if self._counter is not None:
            for _ in range(lines):
                self._counter.inc()


def configure_logging(
    *, json_format: bool | None = None, level: str = "info", stream: LogWriter | TextIO | None = None
) -> None:
    """Send all logging, ours and that of libraries, to `stream`, by default standard error.

    `json_format` None means JSON unless standard error is a terminal. Values bound with `structlog.contextvars` are included in
    every event of that task. All text is truncated and escaped (`api.text`).
    """
    stream = stream or sys.stderr
    as_json = not sys.stderr.isatty() if json_format is None else json_format
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # plain tracebacks: rich ones print local variables, including secrets
        _clean,
    ]
    if as_json:
        renderer: Any = structlog.processors.JSONRenderer(
            serializer=lambda line, default: msgspec.json.encode(line, enc_hook=default).decode()
        )
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", stream)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))


def _clean(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Sanitize every field with `api.text`."""
    for key, value in line.items():
        if (
            value is None or isinstance(value, (int, float)) or key.startswith("_")
        ):  # `_` fields are internal to the library
            continue
        text = value if isinstance(value, str) else str(value)
        line[key] = clean_end(text, _TRACEBACK_BYTES) if key == _TRACEBACK else clean(text)
    return line
