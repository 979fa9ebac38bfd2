"""What an operator's process has: memory, open files, threads and tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

from integration.replicas import Replica

SETTLE_S: Final = 75.0
"""Longer than an idle connection is kept, and than retries wait for one another after the last trouble."""
GROWTH: Final = 1.1
"""How much memory it may have at rest after its work, of what it had before."""


class Weight(NamedTuple):
    memory_mb: float
    files: float
    threads: float
    tasks: float


def weigh(operator: Replica) -> Weight:
    """What the operator has now. It must not have ended."""
    assert operator.process.poll() is None, operator.text()[-3000:]
    pid = operator.process.pid
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Weight(
        memory_mb=int(fields["VmRSS"].split()[0]) / 1024,
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        threads=int(fields["Threads"]),
        tasks=operator.value("tf_operator_event_loop_tasks"),
    )


async def at_rest(operator: Replica) -> Weight:
    """What it has when nothing happens, of each the least that was seen: a scrape is a connection and a task too."""
    await asyncio.sleep(SETTLE_S)
    seen = [await asyncio.to_thread(weigh, operator) for _ in range(10)]
    return Weight(*(min(values) for values in zip(*seen, strict=True)))
