"""Log lines: one event name in snake_case and key/value pairs, as JSON for machines or in colours for people."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from tfjob_operator.api.text import clean, clean_end

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

_TRACEBACK: Final = "exception"
_TRACEBACK_BYTES: Final = 16_384
"""Most of a traceback is our own text. What users and servers wrote is in the last lines of each part."""


def configure_logging(*, json_format: bool | None = None, level: str = "info") -> None:
    """Send all logging, ours and that of libraries, to standard error.

    `json_format` None means JSON unless standard error is a terminal. What is bound with `structlog.contextvars` is on
    every line of the task that bound it. All text is truncated and escaped (`api.text`).
    """
    as_json = not sys.stderr.isatty() if json_format is None else json_format
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # plain tracebacks: richer ones print local variables, and with them secrets
        _clean,
    ]
    if as_json:
        renderer: Any = structlog.processors.JSONRenderer(serializer=_to_json)
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))


def _clean(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Pass the text of every field through `api.text`, so that no caller can forget it."""
    for key, value in line.items():
        if value is None or isinstance(value, (int, float)) or key.startswith("_"):  # the latter are the library's own
            continue
        text = value if isinstance(value, str) else str(value)
        line[key] = clean_end(text, _TRACEBACK_BYTES) if key == _TRACEBACK else clean(text)
    return line


def _to_json(line: dict[str, Any], *, default: Callable[[Any], Any]) -> str:
    """Encode one line. A burst of work logs thousands in a second, so msgspec encodes it."""
    return msgspec.json.encode(line, enc_hook=default).decode()
