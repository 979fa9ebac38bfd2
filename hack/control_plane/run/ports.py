"""Choose free ports on loopback.

A port that is free when we look may be taken when a part starts: the keeper then tries again with others. Ports are chosen
below the range that the kernel uses for outgoing connections. Inside it, any client on the machine may get the
port of an API server that is being restarted, and a client that tries to reach that server may even connect to itself.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.run.parts import LOOPBACK, SINGLE, Ports, Shape

LOWEST = 20000  # below are the well-known ports of other development tools
USUAL_OUTGOING_START = 32768
OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 200


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port right now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go's servers do: TIME_WAIT does not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def any_free() -> int:
    """Return a port that nobody listens on now, for a program that listens at once."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def choose(wanted: Sequence[int] = (), free: Callable[[int], bool] = is_free, shape: Shape = SINGLE) -> Ports:
    """Return the ports of a control plane: the wanted three unchecked (a collision is found at the start), else free ones."""
    if len(wanted) == 3:
        etcd, apiserver, manager = wanted
        return Ports(etcd, apiserver, manager)
    more_etcds, more_apiservers = shape.etcd_members - 1, shape.apiservers - 1
    further = 0 if shape.is_single else more_etcds + shape.etcd_members + more_apiservers + 1
    etcd, apiserver, manager, *others = _free(3 + further, free)
    left = iter(others)
    return Ports(
        etcd,
        apiserver,
        manager,
        more_etcds=tuple(islice(left, more_etcds)),
        more_apiservers=tuple(islice(left, more_apiservers)),
        balancer=next(left, 0),
        etcd_peers=tuple(left),
    )


def _free(number: int, free: Callable[[int], bool]) -> list[int]:
    low, high = _bounds()
    chosen: list[int] = []
    for _ in range(TRIES):
        port = random.randrange(low, high)  # noqa: S311 - not a secret
        if port not in chosen and free(port):
            chosen.append(port)
        if len(chosen) == number:
            return chosen
    raise ControlPlaneError(f"found no {number} free ports on {LOOPBACK} between {low} and {high}")


def _bounds() -> tuple[int, int]:
    try:
        outgoing = int(OUTGOING_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        outgoing = USUAL_OUTGOING_START
    # If nearly all ports are for outgoing connections, there is no range of our own, and we use all from LOWEST on.
    return (LOWEST, outgoing) if outgoing - LOWEST >= 1000 else (LOWEST, 65536)
