"""Sockets that notice a dead peer, and name resolution that does not delay a stop of the loop."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiohappyeyeballs import start_connection

from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

Address: TypeAlias = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""An address as `socket.getaddrinfo` tells it: family, type, protocol, name, and what sockets take, with the port."""

_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""Seconds of silence before the first probe, seconds between probes, and how many may fail: the numbers of Go's dialer
(RF-29). Probes also keep an idle connection in the tables of what is between us and the server."""

_NEXT_ADDRESS_S: Final = 0.25
"""How long one address is tried before the next one is tried too: RFC 8305, for networks where IPv6 leads nowhere."""

_NO_LINGER: Final = struct.pack("ii", 1, 0)
"""What was not acknowledged is dropped with the connection. Otherwise the kernel would go on sending a write for minutes
after we gave it up, through a network that was cut, to a server to which somebody else has written since (LE-10)."""


async def look_up(host: str, port: int) -> list[Address]:
    """Return the addresses of a name, best first. Raises OSError.

    The loop's own look-up uses threads for which a stop of the loop waits, as long as a name server hangs.
    """
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def ask() -> list[Address]:
        return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)]

    return await call_in_daemon_thread(ask, "look-up")


async def connect(addresses: Sequence[Address]) -> socket.socket:
    """Connect to the first address that can be reached, by Happy Eyeballs (RFC 8305).

    Raises OSError when none can be reached. Cancelling it closes all that was begun.
    """
    if not addresses:
        raise OSError("the name has no address")
    return await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, socket_factory=_make_socket)


def _make_socket(address: Address) -> socket.socket:
    """Make a socket that finds a dead peer, but not a frozen proxy."""
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    made = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    for option, value in _KEEP_ALIVE:
        if hasattr(socket, option):  # not every system has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
