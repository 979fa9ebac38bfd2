"""Sockets that notice a dead peer, and names turned into addresses without the loop having to wait on a stop."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tfjob_operator.api.client.daemon_thread import call_in_daemon_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

Address: TypeAlias = tuple[socket.AddressFamily, Any]
"""The kind of an address, and the address as sockets take it, with its port."""

_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""Seconds of silence before the first probe and between probes, and how many go unanswered: the numbers of Go's dialer (RF-29)
and of the `kubernetes` package. They also keep an idle connection in the tables of what is between us and the server."""

_NEXT_ADDRESS_S: Final = 0.25
"""How long an address is tried alone before the next one is tried too: RFC 8305, for networks where IPv6 leads nowhere."""


async def look_up(host: str, port: int) -> list[Address]:
    """Answer the addresses of a name, best first. Raises OSError.

    The loop's own look-up runs in threads that a stop waits for, which is as long as a name server hangs.
    """
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
        return [(family, (host, port))]

    def ask() -> list[Address]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        return [(family, address) for family, _, _, _, address in found]

    return await call_in_daemon_thread(ask, "look-up")


async def connect(addresses: Sequence[Address]) -> socket.socket:
    """Connect to the first address that can be reached. Each is given a head start before the next one is tried too.

    Raises the OSError of the first address when none can be reached. Cancelling it closes all that was begun.
    """
    if not addresses:
        raise OSError("the name has no address")
    if len(addresses) == 1:
        return await _connect(addresses[0])
    waiting = iter(addresses)
    begun: list[asyncio.Task[socket.socket]] = []
    try:
        while True:
            following = next(waiting, None)
            if following is not None:
                begun.append(asyncio.create_task(_connect(following), name="connect"))
            under_way = [task for task in begun if not task.done()]
            if under_way:
                limit = None if following is None else _NEXT_ADDRESS_S
                await asyncio.wait(under_way, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for task in begun:
                if task.done() and task.exception() is None:
                    begun.remove(task)
                    return task.result()
            if following is None and all(task.done() for task in begun):
                return begun[0].result()  # raises
    finally:
        for task in begun:
            task.cancel()
        for late in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()


_NO_LINGER: Final = struct.pack("ii", 1, 0)
"""What was not acknowledged goes with the connection. Else the kernel would go on sending for minutes a write that was given
up, through a network that was cut, to a server which another leader has written to since (LE-10)."""


async def _connect(address: Address) -> socket.socket:
    """Make a socket and connect it. It finds a dead peer, but not a frozen proxy."""
    family, place = address
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        for option, value in _KEEP_ALIVE:
            if hasattr(socket, option):  # not every system has all of them
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        await asyncio.get_running_loop().sock_connect(made, place)
    except BaseException:
        made.close()
        raise
    return made
