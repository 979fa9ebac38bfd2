"""Sockets that notice a dead peer, and names turned into addresses without the loop having to wait on a stop."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from api.client.daemon_thread import call_in_daemon_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""Seconds of silence before the first probe and between probes, and how many go unanswered: the numbers of Go's dialer (RF-29)
and of the `kubernetes` package. They also keep an idle connection in the tables of what is between us and the server."""


def kept_alive_socket(address: Sequence[Any]) -> socket.socket:
    """Make a socket for an address as getaddrinfo answers it. It finds a dead peer, but not a frozen proxy."""
    family, kind, protocol, *_ = address
    kept = socket.socket(family, kind, protocol)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE:
        if hasattr(socket, option):  # not every system has all of them
            kept.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return kept


async def look_up(host: str, port: int, family: socket.AddressFamily) -> list[tuple[socket.AddressFamily, str]]:
    """Answer the addresses of a name, best first. Raises OSError.

    The loop's own look-up runs in threads that a stop waits for, which is as long as a name server hangs.
    """

    def ask() -> list[tuple[socket.AddressFamily, str]]:
        found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        return [(kind, str(address[0])) for kind, _, _, _, address in found]

    return await call_in_daemon_thread(ask, "look-up")
