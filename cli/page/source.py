"""A ListerWatcher that reports how its requests went, so that the page can say what it may not read."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic

from tfjob_operator.api.client.errors import ApiError, ExpiredError, InvalidError, TooLargeResourceVersionError
from tfjob_operator.informers.deltas import T

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tfjob_operator.api.client.options import ListOptions
    from tfjob_operator.informers.codec import Page
    from tfjob_operator.informers.listwatch import Batch, ListerWatcher

_IN_ORDER: Final = (ExpiredError, InvalidError, TooLargeResourceVersionError)
"""Errors after which the reflector tries another request at once."""


class NotedSource(Generic[T]):
    """`ListerWatcher` that calls `note` with the error of each failed request, and with None for each that succeeds.

    The end of a stream is not reported: it is opened again at once, and the result of that is reported.
    """

    def __init__(self, source: ListerWatcher[T], note: Callable[[ApiError | None], None]) -> None:
        self._source = source
        self._note = note

    async def list(self, options: ListOptions) -> Page[T]:
        """See `ListerWatcher.list`."""
        try:
            page = await self._source.list(options)
        except ApiError as error:
            self._failed(error)
            raise
        self._note(None)
        return page

    @asynccontextmanager
    async def watch(self, options: ListOptions) -> AsyncIterator[AsyncIterator[Batch[T]]]:
        """See `ListerWatcher.watch`."""
        opened = False
        try:
            async with self._source.watch(options) as batches:
                opened = True
                self._note(None)
                yield batches
        except ApiError as error:
            if not opened:
                self._failed(error)
            raise

    def _failed(self, error: ApiError) -> None:
        if not isinstance(error, _IN_ORDER):
            self._note(error)
