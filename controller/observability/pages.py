"""The pages /metrics, /healthz and /readyz; `http_server` serves them."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.controller.observability.metrics import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    Check = Callable[[], str | None]
    """Returns what is wrong, or None."""

METHODS: Final = ("GET", "HEAD")
TEXT: Final = "text/plain; charset=utf-8"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A status and a body."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = TEXT


class Pages:
    """The three pages. They take no arguments and need no authentication."""

    def __init__(
        self, registry: CollectorRegistry, *, healthz: Mapping[str, Check], readyz: Mapping[str, Check]
    ) -> None:
        """Serve the metrics of `registry` and the results of these checks."""
        self._registry = registry
        self._pages: dict[str, Callable[[], PageResponse]] = {
            "/metrics": self._metrics,
            "/healthz": lambda: _verdict(healthz),
            "/readyz": lambda: _verdict(readyz),
        }

    def response(self, method: str, path: str) -> PageResponse:
        """Return the page at `path`. Raises nothing: a page that crashes is logged, and answered with 500."""
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        if method not in METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return page()
        except Exception:  # a bug in one page must neither end the process nor leave the caller without a response
            log.exception("page_crashed", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _metrics(self) -> PageResponse:
        return PageResponse(HTTPStatus.OK, exposition(self._registry), CONTENT_TYPE)


def _verdict(checks: Mapping[str, Check]) -> PageResponse:
    """Return `ok`, or 500 with what fails, in the form of the API server's own pages."""
    results = {name: check() for name, check in checks.items()}
    wrong = [f"[-]{name} failed: {complaint}\n" for name, complaint in results.items() if complaint is not None]
    if not wrong:
        return PageResponse(HTTPStatus.OK, b"ok")
    fine = [f"[+]{name} ok\n" for name, complaint in results.items() if complaint is None]
    return PageResponse(HTTPStatus.INTERNAL_SERVER_ERROR, "".join(fine + wrong).encode())


def _plain(status: HTTPStatus) -> PageResponse:
    return PageResponse(status, f"{status.value}: {status.phrase}".encode())
