"""Which jobs have come how far, by a watch.

To read two hundred jobs four times a second, as was done before, took a fifth of the machine that is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections import defaultdict
from typing import Final, Self

import msgspec

from hack.bench.child import MeasureError
from hack.bench.raw_load import Target
from tfjob_operator.api.v1 import constants as c

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
    """Watches the jobs of a namespace in a thread of its own. Use as a context manager.

    An API server ends a watch whose reader is slower than the changes, as in a burst. It is opened again, and begins with all
    jobs.
    """

    def __init__(self, target: Target, namespace: str) -> None:
        self._target = target
        self._path = f"{c.TFJOBS.path(namespace)}?watch=true&resourceVersion=0"
        self._thread = threading.Thread(target=self._run)
        self._jobs: dict[str, set[str]] = defaultdict(set)
        self._closing = False

    def __enter__(self) -> Self:
        self._connect()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:  # it may be about to be opened again
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(END_S)
        self._connection.close()

    def in_condition(self, condition: str) -> int:
        """How many jobs have had this condition. Raises MeasureError when they cannot be watched any more."""
        if not self._thread.is_alive():
            raise MeasureError("the jobs cannot be watched any more")
        return len(self._jobs[condition])

    def _connect(self) -> None:
        self._connection = http.client.HTTPSConnection(self._target.host, self._target.port, context=self._target.tls)
        self._connection.request("GET", self._path)
        self._response = self._connection.getresponse()

    def _run(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            while not self._closing:
                self._read()
                if not self._closing:
                    self._connection.close()
                    self._connect()

    def _read(self) -> None:
        event = msgspec.json.Decoder(_Event)
        for line in self._response:
            job = event.decode(line).object
            for condition in job.status.conditions:
                self._jobs[condition.type].add(job.metadata.name)
