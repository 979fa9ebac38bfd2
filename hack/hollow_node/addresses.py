"""Addresses for pods: one each, and no two pods have the same one at a time."""

from __future__ import annotations

import ipaddress
from collections import deque


class AddressPool:
    """Hands out the addresses of an IPv4 network. One task at a time.

    Invariants: an address is either free or leased to one owner; a freed one goes to the end of the line, so that a
    controller that is slow to notice does not meet another pod under an address it remembers.
    """

    def __init__(self, network: str) -> None:
        self._fresh = ipaddress.IPv4Network(network).hosts()
        self._freed: deque[str] = deque()
        self._leases: dict[str, str] = {}
        self._taken: set[str] = set()

    def lease(self, owner: str, wanted: str = "") -> str:
        """Return the owner's address: the one it has, or `wanted` if that is free, or the next. Raises LookupError."""
        if owner in self._leases:
            return self._leases[owner]
        address = wanted if wanted and wanted not in self._taken else self._next()
        self._leases[owner] = address
        self._taken.add(address)
        return address

    def release(self, owner: str) -> None:
        """Take the owner's address back, if it has one."""
        address = self._leases.pop(owner, None)
        if address is not None:
            self._taken.discard(address)
            self._freed.append(address)

    def _next(self) -> str:
        for address in self._fresh:
            if str(address) not in self._taken:
                return str(address)
        while self._freed:
            freed = self._freed.popleft()
            if freed not in self._taken:
                return freed
        raise LookupError("the pod network has no free address")
