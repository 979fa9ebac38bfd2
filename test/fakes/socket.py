"""A fake transport for an asyncio protocol: it records what is written, and delivers the bytes that a test gives it."""

from __future__ import annotations

import asyncio
from typing import Any


class FakeSocket(asyncio.Transport):
    """Drives one buffered protocol. `connection_lost` is called in the next turn of the loop after `abort`, as by asyncio."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self._is_paused = False
        self.aborted = False
        self._protocol = protocol
        protocol.connection_made(self)

    def say(self, data: bytes) -> None:
        """Deliver these bytes to the protocol."""
        while data and not self.aborted:
            room = memoryview(self._protocol.get_buffer(-1))
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            self._protocol.buffer_updated(len(part))

    def hang_up(self, error: Exception | None = None) -> None:
        """Let the other side close the connection, or with an error let it break."""
        if error is None:
            self._protocol.eof_received()
        if not self.aborted:
            self._protocol.connection_lost(error)

    @property
    def paused(self) -> bool:
        """Whether reading is paused."""
        return self._is_paused

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
