"""The operator's command. Exit codes: 0 stopped by a signal, 1 failed or lost the lease, 2 invalid flags or settings."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Final

import structlog

from tfjob_operator.api.client import AccessError, Settings, load_settings
from tfjob_operator.controller.kubeconfig import read_entries
from tfjob_operator.controller.observability.log import LogWriter, configure_logging
from tfjob_operator.controller.options import PROGRAM, Options, parse_options

PACKAGE: Final = "prometheus_client"
UNUSED: Final = ("http.server", "urllib.error", "urllib.request", "wsgiref.simple_server")
"""Modules that `prometheus_client.exposition` imports only for its own servers and push gateways; with their imports they take
a megabyte, 1.8 with docstrings. The operator's pages are served by `http_server`."""


def import_prometheus_client() -> None:
    """Import prometheus_client with empty classes in place of unused modules; falls back to a normal import.

    No effect if it is imported already. The replaced modules can be imported normally afterwards. Code that needs
    `start_http_server` or `push_to_gateway` must not call this. See docs/design/scale.md.
    """
    if PACKAGE in sys.modules:
        return
    try:
        with _stand_ins(UNUSED):
            importlib.import_module(PACKAGE)
    except Exception:  # noqa: BLE001 - another version may use these modules at import time
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        importlib.import_module(PACKAGE)


@contextlib.contextmanager
def _stand_ins(names: tuple[str, ...]) -> Iterator[None]:
    """Inside the block, replace modules not imported yet with stand-ins in which any name is an empty class."""
    made = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


class _StandIn(ModuleType):
    """A module whose attributes are empty classes, which can be subclassed."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


TLS_READ_BYTES: Final = 64 * 1024
"""How much asyncio reads at once from a TLS connection, for which each has a buffer. The default is 256 KB, and an idle
operator has seven connections: this saves 1.4 MB. A TLS record has at most 16 KB, so several still fit."""


def reduce_memory() -> None:
    """Apply process-wide memory savings, before the first connection and before prometheus_client is imported."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BYTES
    import_prometheus_client()


log = structlog.get_logger(__name__)


def main() -> int:
    """Run the operator until SIGTERM or SIGINT. A second signal ends the process immediately."""
    options = parse_options(sys.argv[1:])
    logs = LogWriter(sys.stderr.fileno())
    configure_logging(json_format=options.json_log_format, level=options.log_level, stream=logs)
    try:
        return _main(options, logs)
    finally:
        logs.close()


def _main(options: Options, logs: LogWriter) -> int:
    try:
        settings = load_settings(options.kubeconfig, master=options.master, read_entries=read_entries)
    except AccessError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201 - as for a wrong flag
        return 2
    reduce_memory()
    # Not earlier: they import prometheus_client.
    from tfjob_operator.controller.config.file import ConfigFileError
    from tfjob_operator.controller.leaderelection import LeadershipLostError
    from tfjob_operator.controller.observability import ListenError

    try:
        asyncio.run(_run(options, settings, logs))
    except ConfigFileError as error:
        print(f"{PROGRAM}: {options.controller_config_file}: {error}", file=sys.stderr)  # noqa: T201 - as for a wrong flag
        return 2
    except (LeadershipLostError, ListenError) as error:
        log.error("operator_failed", error=str(error))  # noqa: TRY400 - the traceback is not useful
        return 1
    except Exception:  # top level: log any error in the log's format
        log.exception("operator_failed")
        return 1
    return 0


async def _run(options: Options, settings: Settings, logs: LogWriter) -> None:
    from tfjob_operator.controller.composition import run
    from tfjob_operator.controller.manager import stop_on_signals

    await run(options, settings, stop_on_signals(), logs)


if __name__ == "__main__":
    sys.exit(main())
