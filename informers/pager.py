"""Reading a collection page by page (RF-08)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic

from tfjob_operator.api.client.errors import ExpiredError
from tfjob_operator.api.client.options import ListOptions, with_page
from tfjob_operator.informers.codec import Page
from tfjob_operator.informers.deltas import T

if TYPE_CHECKING:
    from tfjob_operator.informers.listwatch import ListerWatcher

PAGE_SIZE: Final = 500
"""RF-07: client-go's choice. A page of 500 pods has 2.6 MB and decodes in about 2 ms."""


class Pager(Generic[T]):
    """Follows continue tokens. Pages are decoded as they arrive, so of their bytes hardly any are held.

    Invariant: what is returned is one consistent snapshot: its resourceVersion is that of the first page, to which the
    server's token binds the others.
    """

    def __init__(self, source: ListerWatcher[T]) -> None:
        self._source = source

    async def list(self, options: ListOptions, page_size: int) -> tuple[Page[T], bool]:
        """Read everything that `options` ask for; also say whether it came in more than one page.

        `page_size` 0 asks for everything at once. A continue token that expired under way is answered by one full list at
        the version originally asked for. Raises ApiError; ExpiredError only if the first page or that full list is expired.
        """
        page = await self._source.list(replace(options, limit=page_size))
        if not page.continue_token:
            return page, False
        items, skipped = page.items, page.skipped
        version, token = page.resource_version, page.continue_token
        while token:
            try:
                page = await self._source.list(with_page(replace(options, limit=page_size), continue_token=token))
            except ExpiredError:
                return await self._source.list(replace(options, limit=0)), True
            items += page.items
            skipped += page.skipped
            token = page.continue_token
        return Page(items, version, "", skipped), True
