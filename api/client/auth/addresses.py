"""Addresses of servers and proxies, checked when they are read, so that a mistake is reported at the start."""

from __future__ import annotations

import re
from typing import Final

from tfjob_operator.api.client.http.errors import ConfigError
from tfjob_operator.api.client.http.origin import Origin

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)


def address_of(server: str) -> Origin:
    """Parse the URL of an API server. Raises ConfigError, which does not quote the URL: it may contain a password."""
    try:
        return Origin.of(server)
    except ValueError:
        raise ConfigError("the address of the API server must be like https://host:port") from None


def usable_proxy(proxy: str | None) -> str | None:
    """Return the URL of a proxy that we can use, or None for none. Raises ConfigError, which does not quote it."""
    if not proxy:
        return None
    scheme = proxy.partition("://")[0]
    if scheme not in {"http", "https"}:
        named = scheme if _SCHEME.fullmatch(scheme) else "nothing"  # what is no URL may begin with a password
        raise ConfigError(f"a proxy must be reached by http or https, not by {named}")
    try:
        Origin.of(proxy)
    except ValueError:
        raise ConfigError("the address of the proxy must be like http://host:port") from None
    return proxy
