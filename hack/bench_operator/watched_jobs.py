"""Which jobs have come how far, by a watch.

To read two hundred jobs four times a second, as was done before, took a fifth of the machine that is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final, Self

import msgspec

from hack.bench.child import MeasureError
from tfjob_operator.api.v1 import constants as c

if TYPE_CHECKING:
    from hack.bench.raw_load import Target

END_S: Final = 10.0
"""How long the thread may take to end when its connection is shut down."""


class _Condition(msgspec.Struct):
    type: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Meta(msgspec.Struct):
    name: str


class _Job(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Job


class WatchedJobs:
    """Watches the jobs of a namespace in a thread of its own. Use as a context manager."""

    def __init__(self, target: Target, namespace: str) -> None:
        self._connection = http.client.HTTPSConnection(target.host, target.port, context=target.tls)
        self._path = f"{c.TFJOBS.path(namespace)}?watch=true&resourceVersion=0"
        self._thread = threading.Thread(target=self._read)
        self._jobs: dict[str, set[str]] = defaultdict(set)

    def __enter__(self) -> Self:
        self._connection.request("GET", self._path)
        self._response = self._connection.getresponse()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(END_S)
        self._connection.close()

    def in_condition(self, condition: str) -> int:
        """How many jobs have had this condition. Raises MeasureError when the watch has ended."""
        if not self._thread.is_alive():
            raise MeasureError("the watch of jobs has ended")
        return len(self._jobs[condition])

    def _read(self) -> None:
        event = msgspec.json.Decoder(_Event)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            for line in self._response:
                job = event.decode(line).object
                for condition in job.status.conditions:
                    self._jobs[condition.type].add(job.metadata.name)
