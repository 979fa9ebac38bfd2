"""The operator's command. Exit codes: 0 stopped by a signal, 1 failed or no longer the leader, 2 wrong flags or settings."""

from __future__ import annotations

import asyncio
import sys

import structlog

from tfjob_operator.api.client import ConfigError, Settings, load_settings
from tfjob_operator.controller.observability.log import LogWriter, configure_logging
from tfjob_operator.controller.observability.small_process import make_small
from tfjob_operator.controller.options import PROGRAM, Options, parse_options

log = structlog.get_logger(__name__)


def main() -> int:
    """Run the operator until SIGTERM or SIGINT. A second signal ends the process at once."""
    options = parse_options(sys.argv[1:])
    logs = LogWriter(sys.stderr.fileno())
    configure_logging(json_format=options.json_log_format, level=options.log_level, stream=logs)
    try:
        return _main(options, logs)
    finally:
        logs.close()


def _main(options: Options, logs: LogWriter) -> int:
    try:
        settings = load_settings(options.kubeconfig, master=options.master)
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201 - as for a wrong flag
        return 2
    make_small()
    # Only now: they import prometheus_client.
    from tfjob_operator.controller.config.file import ConfigFileError
    from tfjob_operator.controller.leaderelection import LeadershipLostError
    from tfjob_operator.controller.observability.http_server import ListenError

    try:
        asyncio.run(_run(options, settings, logs))
    except ConfigFileError as error:
        print(f"{PROGRAM}: {options.controller_config_file}: {error}", file=sys.stderr)  # noqa: T201 - as for a wrong flag
        return 2
    except (LeadershipLostError, ListenError) as error:
        log.error("operator_failed", error=str(error))  # noqa: TRY400 - a person needs to know what, not where
        return 1
    except Exception:  # the top of the process: the log must name the cause in its own form, whatever it is
        log.exception("operator_failed")
        return 1
    return 0


async def _run(options: Options, settings: Settings, logs: LogWriter) -> None:
    from tfjob_operator.controller.app import run
    from tfjob_operator.controller.manager import stop_on_signals

    await run(options, settings, stop_on_signals(), logs)


if __name__ == "__main__":
    sys.exit(main())
