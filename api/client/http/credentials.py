"""Credentials of a request, and the protocol by which a transport gets them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a request.

    `authorization` is the whole header. A new certificate comes with a new `ssl_context`, so that no connection with the
    old one is reused. For `fresh_s` seconds the credentials need not be read again.
    """

    authorization: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    fresh_s: float = math.inf


class CredentialSource(Protocol):
    """Where a transport gets credentials, before each request."""

    async def get(self) -> Credentials:
        """Return the credentials to send now. Raises CredentialsError when there are none."""
        ...

    def refused(self) -> None:
        """Note that the server returned 401, so that credentials that can be read again are."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """Credentials that never change."""

    credentials: Credentials = field(default_factory=Credentials)

    async def get(self) -> Credentials:
        """See `CredentialSource.get`."""
        return self.credentials

    def refused(self) -> None:
        """Do nothing: there are no other credentials."""
