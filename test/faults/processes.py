"""Programs and coroutines that run during a block and stop at its end."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ALTERED: Final = "test/faults/altered.py"
OPERATOR: Final = "tfjob_operator.controller"
PATIENT: Final = ("--leader-elect-lease-duration=300s", "--leader-elect-renew-deadline=200s")
"""Long enough that no operator loses its lease on a busy machine. Another matrix covers lost leases."""
COMPILED: Final = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode")}
"""Bytecode is cached even if the environment forbids it, because the operator is started a thousand times."""


def say(line: str) -> None:
    """Print a line immediately, bypassing pytest's capture."""
    print(line, file=sys.__stderr__, flush=True)


def program(bug: str = "", *, ahead_s: float = 0.0, module: str = OPERATOR) -> tuple[str, ...]:
    """Return the arguments of Python that run a module, with a bug of the operator, and with a clock that is ahead."""
    return (ALTERED, str(ahead_s), bug, module) if bug or ahead_s else ("-m", module)


@asynccontextmanager
async def python(
    *arguments: str,
    log: Path,
    stderr: int | None = None,
    cwd: Path = ROOT,
    prefix: tuple[str, ...] = (),
    environment: Mapping[str, str] = COMPILED,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run Python with these arguments inside the block, then kill it. It logs to a file or a descriptor."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *(*prefix, sys.executable, *arguments),
            stdout=out,
            stderr=out if stderr is None else stderr,
            cwd=cwd,
            env=os.environ | COMPILED | dict(environment),
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def beside(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run coroutines inside the block. Raises their exceptions."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
