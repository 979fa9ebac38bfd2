"""What makes the operator's process smaller, and is not for a library to do: it concerns all that runs in the process.

What an idle operator needs, and what else keeps it small, is in docs/design/memory.md.
"""

from __future__ import annotations

import asyncio.sslproto
from typing import Final

from tfjob_operator.controller.observability.without_servers import import_prometheus_client

TLS_READ_BYTES: Final = 64 * 1024
"""How much asyncio reads at once from a connection with TLS, for which each has a buffer. By default it is 256 KB, and an idle
operator has seven connections: 1.4 MB less. A record of TLS has 16 KB at most, so that it is still several at a time."""


def make_small() -> None:
    """Do it, before the first connection is made and before anything imports prometheus_client."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BYTES
    import_prometheus_client()
