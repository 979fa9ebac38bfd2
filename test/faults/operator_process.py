"""An operator that is started again whenever it was killed, as a Deployment does it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from faults.field import ROOT, Field
from hack.fault_proxy.proxy import Seen
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import LEASES
from tfjob_operator.controller.options import LEASE_NAME

BUGGY: Final = "test/faults/buggy_operator.py"
OPERATOR: Final = ("-m", "tfjob_operator.controller")
MOST_STARTS: Final = 5
PATIENT: Final = ("--leader-elect-lease-duration=300s", "--leader-elect-renew-deadline=200s")
"""No operator loses its lease because the machine is busy. What happens then is another matrix's matter."""
COMPILED: Final = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode")}
"""It is started a thousand times, and is compiled once, also where the environment says that Python is to write no bytecode."""


class OperatorProcess:
    """The operator of one namespace. `history` is what has arrived from it.

    `complaints` says what it did that nobody made it do.
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
    ) -> None:
        self._field = field
        self._namespace = namespace
        program = (BUGGY, bug) if bug else OPERATOR
        self._command = (
            *(sys.executable, *program, f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
            *("--monitoring-address=127.0.0.1", *PATIENT, *flags),
        )
        self.monitoring_port = 0
        """Where probes and metrics are served; 0 for nowhere."""
        self.stderr: int | None = None
        """The descriptor that it logs to instead of its file. The process that is started gets a copy."""
        self._log = field.folder / f"{namespace}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._history = history
        self._killed = False
        self.complaints: list[str] = []
        self.sent_by_dead = 0
        """How many requests had arrived when the last process to die was gone, before the next one started."""

    async def run(self) -> None:
        """Start it, and start it again when it is killed; end it when cancelled."""
        for _ in range(MOST_STARTS):
            self._killed = False
            with self._log.open("ab") as out:
                process = await asyncio.create_subprocess_exec(
                    *(*self._command, f"--monitoring-port={self.monitoring_port}"),
                    stdout=out,
                    stderr=out if self.stderr is None else self.stderr,
                    cwd=ROOT,
                    env=os.environ | COMPILED,
                )
            self._process = process
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if not self._killed:
                self.complaints.append(f"the operator ended by itself with {code}")
            # Nobody gives it back; the next one would wait until it has run out.
            with suppress(NotFoundError):
                await self._field.client.delete(LEASES, self._namespace, LEASE_NAME)
            self.sent_by_dead = len(self._history)

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            self._process.kill()

    def judge(self) -> list[str]:
        """Return what it did wrong, by its exits and by its log."""
        crashed = ["a traceback is in the log"] if "Traceback" in self._log.read_text(errors="replace") else []
        return self.complaints + crashed
