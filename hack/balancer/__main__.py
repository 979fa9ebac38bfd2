"""`python -m hack.balancer`: balance connections on loopback until SIGTERM or SIGINT. SIGHUP cuts all of them."""

from __future__ import annotations

import argparse
import asyncio
import signal

from hack.balancer.balancer import balancer


async def _run(port: int, backends: list[int]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with balancer(port, backends) as running:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.cut)
        print(f"balances https://127.0.0.1:{running.port} over {backends}", flush=True)
        await stopped.wait()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m hack.balancer", description="Balance connections to API servers.")
    parser.add_argument("--port", type=int, default=0, help="where to listen on loopback (default: any)")
    parser.add_argument("--backend", type=int, action="append", required=True, help="a port of an API server, repeated")
    options = parser.parse_args()
    asyncio.run(_run(options.port, options.backend))


if __name__ == "__main__":
    main()
