"""Credentials that go with a request, and the protocol by which a transport asks for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Credentials:
    """What goes with a request. A new certificate is a new `ssl_context`, so that no connection of the old one is reused.

    `authorization` is the whole header; `fresh_s` says for how many seconds there is no need to look again.
    """

    authorization: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    fresh_s: float = math.inf


class CredentialSource(Protocol):
    """Where a transport gets credentials, before each request."""

    async def get(self) -> Credentials:
        """Return what to send now. Raises CredentialsError when there is nothing."""
        ...

    def refused(self) -> None:
        """Hear that the server answered 401, so that whatever can be read again is."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """Credentials that never change."""

    credentials: Credentials = field(default_factory=Credentials)

    async def get(self) -> Credentials:
        """See `CredentialSource.get`."""
        return self.credentials

    def refused(self) -> None:
        """Do nothing: there is nothing else to send."""
