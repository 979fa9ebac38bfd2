"""A URL in parts: host, port, whether TLS is spoken, user and password."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """A server or a proxy. `basic` is the header made of a user and a password in the URL, and so not in the repr."""

    scheme: str
    host: str
    port: int
    path: str = ""
    basic: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL. Raises ValueError, which does not quote it: it may contain a password."""
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode()
            port = _PORTS[parts.scheme] if parts.port is None else parts.port
        except (ValueError, KeyError):
            host = ""
        if not host:
            raise ValueError("the address of a server or a proxy must be like https://host:port")
        basic = None
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            basic = f"Basic {base64.b64encode(user.encode()).decode()}"
        return cls(parts.scheme, host, port, parts.path.rstrip("/"), basic)

    def __str__(self) -> str:
        """Return the address for people to read: without user, password and query, which may be secrets (D18)."""
        return f"{self.scheme}://{self.host_header}{self.path}"

    @property
    def tls(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port, as CONNECT names them."""
        return f"{self._url_host}:{self.port}"

    @property
    def host_header(self) -> str:
        """Host and port as the Host header names them: without a port that goes without saying."""
        return self._url_host if self.port == _PORTS[self.scheme] else self.authority

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host
