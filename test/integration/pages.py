"""A page that runs in a process of its own, as a browser reads it."""

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from hack.page_cluster import enter

LIMIT_S: Final = 60.0


class Page:
    """The page at the address that its process has printed; a token in it is used."""

    def __init__(self, address: str) -> None:
        self._home = address.partition("/#")[0]
        self._session = enter(address)

    def open(self, path: str, **headers: str) -> Any:
        """Open a response. Raises HTTPError."""
        given = self._session | {name.replace("_", "-"): value for name, value in headers.items()}
        return urllib.request.urlopen(urllib.request.Request(self._home + path, headers=given), timeout=LIMIT_S)

    def news(self, job: str = "", **headers: str) -> Iterator[tuple[str, Any]]:
        """Yield the kind and the data of each event of the stream, which may end."""
        deadline = time.monotonic() + LIMIT_S
        with self.open(f"/-/stream?job={job}", **headers) as response:
            kind = ""
            for line in response:  # at least one line comes every ten seconds
                assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s; the last event is {kind}"
                name, _, value = line.decode().strip().partition(": ")
                kind = value if name == "event" else kind
                if name == "data" and value:
                    yield kind, json.loads(value)
