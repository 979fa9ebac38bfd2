"""The operator's command. Exit codes: 0 stopped as told, 1 failed or no longer the leader, 2 wrong flags or settings."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import structlog

from tfjob_operator.api.client import ConfigError, load_settings
from tfjob_operator.controller.app import run
from tfjob_operator.controller.leaderelection import LeadershipLostError
from tfjob_operator.controller.observability.http_server import ListenError
from tfjob_operator.controller.observability.log import configure_logging
from tfjob_operator.controller.options import PROGRAM, parse_options

if TYPE_CHECKING:
    from types import FrameType

    from tfjob_operator.api.client import Settings
    from tfjob_operator.controller.options import Options

log = structlog.get_logger(__name__)


def main() -> int:
    """Run the operator until SIGTERM or SIGINT. A second signal ends the process at once."""
    options = parse_options(sys.argv[1:])
    configure_logging(json_format=options.json_log_format, level=options.log_level)
    try:
        settings = load_settings(options.kubeconfig, master=options.master)
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201 - as for a wrong flag
        return 2
    try:
        asyncio.run(_run(options, settings))
    except (LeadershipLostError, ListenError) as error:
        log.error("operator_failed", error=str(error))  # noqa: TRY400 - a person needs to know what, not where
        return 1
    except Exception:  # the top of the process: whatever it was, the log must say it in its own form
        log.exception("operator_failed")
        return 1
    return 0


async def _run(options: Options, settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    told = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(1)
        told = True
        loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers, which wait for their turn: the second signal is for when the loop hangs.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    await run(options, settings, stop)


if __name__ == "__main__":
    sys.exit(main())
