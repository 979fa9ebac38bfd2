"""A process that, while it leads, writes its name and a number into a ConfigMap ten times a second, through the fence.

    python leader_process.py KUBECONFIG NAMESPACE IDENTITY LEASE_S RENEW_S RETRY_S

Prints what it does on standard output, one word a line. SIGTERM makes it step down. Exit codes: 0 stopped, 3 lost the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tfjob_operator.api.client import HttpTransport, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import Resource
from tfjob_operator.controller.leaderelection import (
    Fence,
    FencedTransport,
    LeaderElectionConfig,
    LeaderElector,
    LeadershipLostError,
    LeaseLock,
)
from tfjob_operator.controller.observability.log import configure_logging
from tfjob_operator.workqueue import LeaseClock

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PERIOD_S = 0.1


def tell(word: str) -> None:
    """Print a word for the process that started this one."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def lead(settings: Settings, config: LeaderElectionConfig, namespace: str, identity: str) -> int:
    """Take part in the election, work while leading, step down on SIGTERM. Return the exit code."""
    stop = asyncio.Event()
    clock = LeaseClock()
    fence = Fence(clock)
    async with HttpTransport(settings) as transport, HttpTransport(settings) as lease_transport:
        client = RestClient(FencedTransport(transport, fence))

        async def work() -> None:
            tell("leading")
            number = 0
            while not stop.is_set():
                number += 1
                change = {"data": {"writer": identity, "number": str(number)}}
                with contextlib.suppress(ApiError):
                    await client.patch(CONFIG_MAPS, namespace, "counter", change)
                    tell("wrote")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_S):
                        await stop.wait()

        elector = LeaderElector(
            LeaseLock(RestClient(lease_transport), namespace, "counter", identity=identity),
            on_stopped_leading=lambda: tell("stopped"),
            config=config,
            fence=fence,
            clock=clock,
        )
        running = asyncio.create_task(elector.run(work))

        def step_down() -> None:
            stop.set()
            if not elector.is_leader:
                running.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, step_down)
        try:
            await running
        except LeadershipLostError:
            return 3
        except asyncio.CancelledError:
            return 0
    return 0


if __name__ == "__main__":
    configure_logging()
    kubeconfig, namespace, identity, *times = sys.argv[1:]
    lease_s, renew_s, retry_s = map(float, times)
    config = LeaderElectionConfig(lease_s, renew_s, retry_s)
    sys.exit(asyncio.run(lead(load_settings(kubeconfig), config, namespace, identity)))
