"""A reflector between a fake source and a sink that keeps every delta, on virtual time."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fakes.objects import Pod
from fakes.source import FakeSource, settle, settled, status_error
from tfjob_operator.api.client.errors import (
    ApiError,
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    Status,
    TooLargeResourceVersionError,
    TooManyRequestsError,
)
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers.deltas import Bookmark, Change, Deleted, Delta, ReplacedAll, SyncAll, Vanished
from tfjob_operator.informers.reflector import Reflector, ReflectorOptions

BOOM, CUT, SILENCE = status_error(500, "Boom"), ConnectionLostError("cut"), RequestTimeoutError("silence")
FIRST_BACKOFF_S = 0.8  # without jitter: the random source of these tests returns 0

Step = float | Callable[[FakeSource[Pod]], object] | ApiError | None
"""Seconds that pass, a change of the source, or how it ends the open watches."""


async def play(source: FakeSource[Pod], *steps: Step) -> None:
    """Take these steps."""
    for step in steps:
        if isinstance(step, float):
            await asyncio.sleep(step)
        elif callable(step):
            step(source)
        else:
            source.end_watches(step)
            await settle()


class Rig:
    """A reflector, its source, and its sink, which raises `refuse` for the next delta if a test sets that."""

    def __init__(
        self,
        *objects: Pod,
        streaming: bool = False,
        stream_lists: bool | None = None,
        random: float = 0.0,
        **given: Any,
    ) -> None:
        """`given` are attributes of the source, such as `list_errors`; `streaming`: it has streams, which are asked for."""
        self.source = FakeSource(*objects, streaming=streaming, **given)
        self.deltas: list[Delta[Pod]] = []
        self.refuse: Exception | None = None
        self.errors: list[Exception] = []
        options = ReflectorOptions(stream_lists=streaming if stream_lists is None else stream_lists)
        self.reflector = Reflector(self.source, self, name="pods", options=options, random=lambda: random)
        self.reflector.on_error = self._report

    def running(self) -> AbstractAsyncContextManager[object]:
        """Run the reflector beside a block that begins when it waits."""
        return settled(self.reflector.run())

    async def play(self, *steps: Step) -> str:
        """Run through these steps and ten seconds more; return what was asked and reported, each with its second.

        In the end the sink must know what the source has.
        """
        async with self.running():
            await play(self.source, *steps)
            await asyncio.sleep(10.0)
        found: dict[str, Pod] = {}
        for delta in self.deltas:
            match delta:
                case ReplacedAll(objects):
                    found = {meta_key(item.metadata): item for item in objects}
                case Deleted(item):
                    found.pop(meta_key(item.metadata))
                case Bookmark() | Vanished() | SyncAll():
                    pass
                case _:
                    found[meta_key(delta.object.metadata)] = delta.object
        assert found == {meta_key(item.metadata): item for item in self.source.objects()}
        return "; ".join(self.source.transcript)

    def put(self, delta: Delta[Pod]) -> None:
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error
        self.deltas.append(delta)

    def extend(self, changes: list[Change[Pod]]) -> None:
        for change in changes:
            self.put(change)

    async def wait_for_room(self) -> None:
        """Always there."""

    @property
    def names(self) -> list[str]:
        """The kinds of deltas in order."""
        return [type(delta).__name__ for delta in self.deltas]

    def _report(self, error: ApiError) -> None:
        self.errors.append(error)
        self.source.note(f"reported {type(error).__name__}")


def too_large() -> TooLargeResourceVersionError:
    """The 504 of a server that has not seen our version yet."""
    return TooLargeResourceVersionError(Status(code=504, reason="Timeout", message="Too large resource version: 9"))


def too_many(retry_after_s: float | None = None) -> TooManyRequestsError:
    """A 429."""
    return TooManyRequestsError(Status(code=429, reason="TooManyRequests"), retry_after_s=retry_after_s)


def refused() -> ConnectError:
    """The transport's error for a port on which nobody listens."""
    error = ConnectError("connection refused")
    error.__cause__ = ConnectionRefusedError()
    return error
