"""Which server a transport talks to, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfjob_operator.api.client.http.credentials import FixedCredentials

if TYPE_CHECKING:
    from tfjob_operator.api.client.http.credentials import CredentialSource


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a transport needs to know about a server. URLs may contain passwords, so they are not in the repr.

    Show a URL as `str(Origin.of(url))`.
    """

    server: str = field(repr=False)
    credentials: CredentialSource = field(default_factory=FixedCredentials, repr=False)
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
