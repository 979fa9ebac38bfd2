"""The options of a reflector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tfjob_operator.informers.pager import PAGE_SIZE

MIN_WATCH_TIMEOUT_S: Final = 300.0
"""RF-09: a watch asks the server to end it after 300 to 600 s, so that load spreads again over servers that came back."""


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """How a reflector lists and watches.

    With `stream_lists` a collection is asked for as a stream, and listed where the server has no such streams (RF-27); without,
    it is always listed.
    `page_size` 0 means 500 where paging makes sense. A `min_watch_timeout_s` below 300 s is ignored. Within
    `internal_error_window_s` of a first InternalError in the stream the watch is reopened at once (RF-19); 0 turns that off.
    """

    stream_lists: bool = True
    page_size: int = 0
    min_watch_timeout_s: float = MIN_WATCH_TIMEOUT_S
    internal_error_window_s: float = 0.0

    def page_size_at(self, version: str, *, always_page: bool) -> int:
        """Return the page size of a list at `version`; 0 means everything at once.

        RF-07: at a known version the server answers from its watch cache, but only if it is not asked for pages.
        `always_page` says that it has no such cache.
        """
        if self.page_size:
            return self.page_size
        return PAGE_SIZE if always_page or version in {"", "0"} else 0

    def watch_timeout_s(self, fraction: float) -> int:
        """Seconds after which the server is asked to end a watch: from the minimum to twice that, by `fraction` in [0, 1)."""
        return int(max(self.min_watch_timeout_s, MIN_WATCH_TIMEOUT_S) * (1 + fraction))
