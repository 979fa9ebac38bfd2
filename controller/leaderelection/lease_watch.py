"""Sees at once that a lease was renewed, or has become free (the polls of an election see it up to 2.2 retry periods later).

It is only a hint: a candidate reads the lease before it takes it, as at any other time. Without the right to watch, or while
the watch is broken, the polls remain.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.client.errors import ApiError, ForbiddenError
from tfjob_operator.api.coordination import LEASES, Lease
from tfjob_operator.api.meta import Struct
from tfjob_operator.controller.leaderelection.lease_lock import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.leaderelection.lock import LeaderElectionRecord

AGAIN_S: Final = 5.0
"""The pause before a broken watch is opened again: as long as a candidate with default times waits between two polls."""

log = structlog.get_logger(__name__)


class _Event(Struct, frozen=True):
    type: str
    object: msgspec.Raw


_decoder: Final = msgspec.json.Decoder(_Event)


class LeaseWatch:
    """Watches the lease `namespace/name`. Needs the right to `watch` it, which can be granted for the one name."""

    def __init__(self, client: RestClient, namespace: str, name: str) -> None:
        self._client = client
        self._options = ListOptions(namespace, field_selector=f"metadata.name={name}")
        self._name = f"{namespace}/{name}"

    async def run(self, seen: Callable[[LeaderElectionRecord | None], None]) -> None:
        """Call `seen` with each record of the lease, None when it is deleted, until cancelled. Raises no ApiError."""
        while True:
            try:
                await self._watch(seen)
            except ForbiddenError as error:
                log.info("lease_not_watched", lease=self._name, error=str(error))
                return
            except (ApiError, msgspec.DecodeError) as error:
                log.debug("lease_watch_failed", lease=self._name, error=str(error))
            await asyncio.sleep(AGAIN_S)

    async def _watch(self, seen: Callable[[LeaderElectionRecord | None], None]) -> None:
        async with self._client.watch(LEASES, self._options) as batches:
            async for lines in batches:
                for line in lines:
                    event = _decoder.decode(line)
                    if event.type == "DELETED":
                        seen(None)
                    elif event.type in {"ADDED", "MODIFIED"}:
                        seen(record_of(msgspec.json.decode(event.object, type=Lease)))
