"""The operator with gang scheduling: `gang_process.py SCHEDULER FLAGS...`, where FLAGS are the operator's."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from api.client import load_settings
from controller.app import run
from controller.observability.log import configure_logging
from controller.options import parse_options


async def main() -> None:
    """Run until SIGTERM."""
    options = replace(parse_options(sys.argv[2:]), enable_gang_scheduling=True, gang_scheduler_name=sys.argv[1])
    configure_logging(json_format=True, level="info")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run(options, load_settings(options.kubeconfig), stop)


asyncio.run(main())
