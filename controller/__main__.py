"""The operator's command. Exit codes: 0 stopped as told, 1 failed, 2 wrong flags or settings."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from api.client import ConfigError, load_settings
from controller.app import run
from controller.observability.log import configure_logging
from controller.options import parse_options

if TYPE_CHECKING:
    from api.client import Settings
    from controller.options import Options


def main() -> int:
    """Run the operator until SIGTERM or SIGINT. A second signal ends the process at once."""
    options = parse_options(sys.argv[1:])
    configure_logging(json_format=options.json_log_format, level=options.log_level)
    try:
        settings = load_settings(options.kubeconfig, master=options.master)
    except ConfigError as error:
        print(f"tfjob-operator: {error}", file=sys.stderr)  # noqa: T201 - before there is anything to log about
        return 2
    asyncio.run(_run(options, settings))
    return 0


async def _run(options: Options, settings: Settings) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await run(options, settings, stop)


if __name__ == "__main__":
    sys.exit(main())
