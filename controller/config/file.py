"""Follows the configuration file: a changed one takes effect at run time, a wrong one is reported and has no effect.

A file that is not there counts as an empty one: the ConfigMap behind it is optional, and may be made or deleted at any time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.controller.config.reading import ConfigFileError, parse
from tfjob_operator.controller.config.values import ControllerConfig
from tfjob_operator.workqueue.metrics import NO_METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tfjob_operator.workqueue.metrics import MetricsProvider

    Call = Callable[[Callable[[], ControllerConfig | None], str], asyncio.Future[ControllerConfig | None]]

POLL_S: Final = 10.0
"""How often the file is read. The kubelet brings a changed ConfigMap into pods within a minute or two, so more haste gains
nothing, and to read a kilobyte costs nothing. A watch (inotify) would have to follow the kubelet's symlinks, and is blind on
some file systems."""

WRONG: Final = Metric(
    "tf_operator_config_file_wrong",
    "Whether the configuration file is wrong, so that what it said before is in force: 1 or 0",
    labels=(),
)

log = structlog.get_logger(__name__)


class ConfigFile:
    """A configuration file. Invariant: `value` is what its last good content says."""

    def __init__(
        self, path: Path, *, metrics: MetricsProvider = NO_METRICS, call: Call = call_in_daemon_thread
    ) -> None:
        """Read the file, now. Raises ConfigFileError: at the start there is nothing else that could be in force.

        `call` runs the later reads off the loop.
        """
        self._path = path
        self._call = call
        self._seen: bytes | None = None
        self._wrong = ""
        self.value = self._read_if_changed() or ControllerConfig()
        metrics.gauge(WRONG).set_function(lambda: float(bool(self._wrong)))

    async def follow(self, tell: Callable[[str], Awaitable[bool]]) -> None:
        """Take up changes, until cancelled. `tell` is called with what is wrong until it returns True."""
        told = ""
        while True:
            await asyncio.sleep(POLL_S)
            await self._look()
            if self._wrong != told and (not self._wrong or await tell(self._wrong)):
                told = self._wrong

    async def _look(self) -> None:
        try:
            changed = await self._call(self._read_if_changed, "config-file")
        except ConfigFileError as error:
            if str(error) != self._wrong:
                self._wrong = str(error)
                log.error("config_file_wrong", path=str(self._path), error=self._wrong, in_force="what it said before")  # noqa: TRY400
            return
        if changed is not None:
            self.value, self._wrong = changed, ""
            log.info("config_file_taken_up", path=str(self._path), accelerators=sorted(changed.accelerators or ()))

    def _read_if_changed(self) -> ControllerConfig | None:
        """Return what the file says, or None if it is what it was at the last call. Raises ConfigFileError."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            content = b""
        except OSError as error:
            self._seen = None
            raise ConfigFileError(str(error)) from error
        if content == self._seen:
            return None
        self._seen = content
        return parse(content)
