"""An operator that is restarted after each kill, as by a Deployment."""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from faults.field import Field
from faults.processes import PATIENT, program, python
from hack.fault_proxy.proxy import Seen
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import LEASES
from tfjob_operator.controller.options import LEASE_NAME

MOST_STARTS: Final = 5


class OperatorProcess:
    """The operator of one namespace. `history` has its requests.

    `complaints` lists unexpected behavior of its processes.
    """

    def __init__(
        self,
        field: Field,
        namespace: str,
        kubeconfig: Path,
        *,
        history: Sequence[Seen],
        flags: tuple[str, ...],
        bug: str = "",
        clocks: Iterable[float] = (),
    ) -> None:
        """`clocks`: by how many seconds the wall clock of each process is ahead, in the order of their starts; then 0."""
        self._field = field
        self._namespace = namespace
        where = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--monitoring-address=127.0.0.1")
        self._programs = (program(bug, ahead_s=ahead_s) for ahead_s in itertools.chain(clocks, itertools.repeat(0.0)))
        self._flags = (*where, *PATIENT, *flags)
        self.monitoring_port = 0
        """The port of probes and metrics, or 0."""
        self.stderr: int | None = None
        """The descriptor that replaces its log file. The started process gets a copy."""
        self._log = field.folder / f"{namespace}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._history = history
        self._killed = False
        self.complaints: list[str] = []
        self.sent_by_dead = 0
        """The number of requests that had arrived when the last killed process was gone, before the next one started."""

    async def run(self) -> None:
        """Start it, and restart it when it is killed; stop it when cancelled."""
        for _ in range(MOST_STARTS):
            self._killed = False
            command = (*next(self._programs), *self._flags, f"--monitoring-port={self.monitoring_port}")
            async with python(*command, log=self._log, stderr=self.stderr) as process:
                self._process = process
                code = await process.wait()
            if not self._killed:
                self.complaints.append(f"the operator ended by itself with {code}")
            # A killed process does not release its lease, and the next one would wait until it expires.
            with suppress(NotFoundError):
                await self._field.client.delete(LEASES, self._namespace, LEASE_NAME)
            self.sent_by_dead = len(self._history)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            self._process.kill()

    def judge(self) -> list[str]:
        """Return unexpected exits and log lines."""
        crashed = ["a traceback is in the log"] if "Traceback" in self._log.read_text(errors="replace") else []
        return self.complaints + crashed
