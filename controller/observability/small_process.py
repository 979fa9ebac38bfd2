"""Process-wide memory savings; only the program may apply them, not a library.

prometheus_client is imported without the HTTP servers and clients that it brings along, which nobody here uses: code that wants
`start_http_server` or `push_to_gateway` in the same process must not do this. The rest is in docs/design/memory.md.
"""

from __future__ import annotations

import asyncio.sslproto
import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Final

PACKAGE: Final = "prometheus_client"
UNUSED: Final = ("http.server", "urllib.error", "urllib.request", "wsgiref.simple_server")
"""What `prometheus_client.exposition` imports for servers and push gateways of its own: with what these import in turn it is a
megabyte, 1.8 with docstrings. The pages of an operator are served by `http_server`."""


def import_prometheus_client() -> None:
    """Import prometheus_client with empty classes in place of what is unused; as usual if it does not bear that.

    It has no effect where it is imported already. The modules themselves can be imported as ever afterwards.
    """
    if PACKAGE in sys.modules:
        return
    try:
        with _stand_ins(UNUSED):
            importlib.import_module(PACKAGE)
    except Exception:  # noqa: BLE001 - another version, which does more with these modules than name them
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        importlib.import_module(PACKAGE)


@contextlib.contextmanager
def _stand_ins(names: tuple[str, ...]) -> Iterator[None]:
    """Let these modules, unless they are imported already, have a new class under any name, inside the block."""
    made = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


class _StandIn(ModuleType):
    """A module of which `from it import Name` gives a class that can be inherited from, and does nothing."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


TLS_READ_BYTES: Final = 64 * 1024
"""How much asyncio reads at once from a connection with TLS, for which each has a buffer. By default it is 256 KB, and an idle
operator has seven connections: 1.4 MB less. A record of TLS has 16 KB at most, so that it is still several at a time."""


def make_small() -> None:
    """Do it, before the first connection is made and before anything imports prometheus_client."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BYTES
    import_prometheus_client()
