"""Reads and follows the configuration file: a change takes effect at run time; an invalid file is reported and ignored.

A missing file is equivalent to an empty one: its ConfigMap is optional, and may be created or deleted at any time. The log and
an event on the operator's Deployment report the first syntax error (YAML, fields, types) or, if the syntax is valid, all
invalid values.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client.errors import ApiError, ServerError, TooManyRequestsError, TransportError
from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.core import DEPLOYMENTS, EventType, object_reference
from tfjob_operator.api.meta import PartialObjectMetadata
from tfjob_operator.controller.config.values import ControllerConfig
from tfjob_operator.workqueue.metrics import NO_METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.config.values import Accelerator
    from tfjob_operator.controller.events import EventRecorder
    from tfjob_operator.workqueue.metrics import MetricsProvider

    Call = Callable[[Callable[[], ControllerConfig | None], str], asyncio.Future[ControllerConfig | None]]


_RESOURCE: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VOLUME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Names of resources, volumes and variables accepted by API servers; for variables, those accepted before 1.30."""
_RESERVED: Final = frozenset({"TF_CONFIG"})
"""Variables set by the operator itself."""


class ConfigFileError(Exception):
    """The configuration file is invalid. The one-line message has the first syntax error, or all invalid values."""


def parse(content: bytes) -> ControllerConfig:
    """Parse the contents of a configuration file; an empty file is an empty configuration. Raises ConfigFileError."""
    if not content.strip():
        return ControllerConfig()
    # Most operators have no such file, and PyYAML takes a megabyte.
    import msgspec.yaml

    try:
        found = msgspec.yaml.decode(content, type=ControllerConfig | None) or ControllerConfig()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigFileError(" ".join(str(error).split()) or type(error).__name__) from None
    if mistakes := list(_mistakes(found)):
        raise ConfigFileError("; ".join(mistakes))
    return found


def _mistakes(config: ControllerConfig) -> Iterator[str]:
    for name, accelerator in (config.accelerators or {}).items():
        where = f"accelerators[{name}]"
        if not _RESOURCE.fullmatch(name):
            yield f"{where}: must be the name of a resource"
        if accelerator is not None:
            yield from _volume_mistakes(accelerator, where)
            yield from _variable_mistakes(accelerator, where)


def _volume_mistakes(accelerator: Accelerator, where: str) -> Iterator[str]:
    volumes = accelerator.volumes or ()
    for index, volume in enumerate(volumes):
        at = f"{where}.volumes[{index}]"
        if not _VOLUME.fullmatch(volume.name):
            yield f"{at}.name: must consist of at most 63 lowercase letters, digits and -"
        if not _is_absolute(volume.host_path):
            yield f"{at}.hostPath: must be an absolute path without '..'"
        if not _is_absolute(volume.mount_path) or ":" in volume.mount_path:
            yield f"{at}.mountPath: must be an absolute path without '..' and ':'"
    paths_of = {volume.name: {each.host_path for each in volumes if each.name == volume.name} for volume in volumes}
    yield from (
        f"{where}.volumes: {name} has more than one path of the node"
        for name, paths in paths_of.items()
        if len(paths) > 1
    )
    for path in _duplicates(volume.mount_path.rstrip("/") for volume in volumes):
        yield f"{where}.volumes: {path} is mounted twice"


def _variable_mistakes(accelerator: Accelerator, where: str) -> Iterator[str]:
    variables = accelerator.env_vars or ()
    for index, variable in enumerate(variables):
        at = f"{where}.envVars[{index}].name"
        if not _VARIABLE.fullmatch(variable.name):
            yield f"{at}: must be the name of an environment variable"
        elif variable.name in _RESERVED:
            yield f"{at}: {variable.name} is set by the operator"
    for name in _duplicates(variable.name for variable in variables):
        yield f"{where}.envVars: {name} is set twice"


def _is_absolute(text: str) -> bool:
    path = PurePosixPath(text)
    return path.is_absolute() and ".." not in path.parts


def _duplicates(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


POLL_S: Final = 10.0
"""How often the file is read. The kubelet updates a mounted ConfigMap within a minute or two, so polling faster gains nothing,
and reading a kilobyte is cheap. A watch (inotify) would have to follow the kubelet's symlinks, and does not work on all file
systems."""
WRONG: Final = Metric(
    "tf_operator_config_file_wrong",
    "Whether the configuration file is invalid and the previous configuration is used: 1 or 0",
    labels=(),
)
log = structlog.get_logger(__name__)


class ConfigFile:
    """The configuration file. Invariant: `value` is its last valid content."""

    def __init__(
        self, path: Path, *, metrics: MetricsProvider = NO_METRICS, call: Call = call_in_daemon_thread
    ) -> None:
        """Read the file now; `call` runs later reads outside the event loop. Raises ConfigFileError if it is invalid."""
        self._path = path
        self._call = call
        self._seen: bytes | None = None
        self._wrong = ""
        self.value = self._read_if_changed() or ControllerConfig()
        metrics.gauge(WRONG, read=lambda: float(bool(self._wrong)))

    async def follow(self, report: Callable[[str], Awaitable[bool]]) -> None:
        """Apply changes until cancelled. For an error, `report` is called again until `report` returns True."""
        reported = ""
        while True:
            await asyncio.sleep(POLL_S)
            await self._reload()
            if self._wrong != reported and (not self._wrong or await report(self._wrong)):
                reported = self._wrong

    async def _reload(self) -> None:
        try:
            changed = await self._call(self._read_if_changed, "config-file")
        except ConfigFileError as error:
            if str(error) != self._wrong:
                self._wrong = str(error)
                in_use = "previous configuration"
                log.error("config_file_invalid", path=str(self._path), error=self._wrong, in_use=in_use)  # noqa: TRY400
            return
        if changed is not None:
            self.value, self._wrong = changed, ""
            log.info("config_file_loaded", path=str(self._path), accelerators=sorted(changed.accelerators or ()))

    def _read_if_changed(self) -> ControllerConfig | None:
        """Return the content of the file, or None if unchanged since the last call. Raises ConfigFileError."""
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


REASON: Final = "InvalidConfigFile"


@dataclass(frozen=True, slots=True)
class OwnDeployment:
    """The Deployment `name` in `namespace` of which this process is a replica. Only the leader reports."""

    client: RestClient
    recorder: EventRecorder
    namespace: str
    name: str
    is_leading: Callable[[], bool]

    async def report(self, wrong: str) -> bool:
        """Record a Warning with the error. Return False if it must be retried later."""
        if not self.is_leading():
            return False
        if not self.name or not self.namespace:
            return True  # reported only by the log and the metric
        try:
            # `kubectl describe` finds events by the UID of the object.
            found = await self.client.get(DEPLOYMENTS, self.namespace, self.name, PartialObjectMetadata)
        except (TransportError, ServerError, TooManyRequestsError):
            return False
        except ApiError as error:
            log.warning("config_file_event_not_written", error=str(error))
            return True
        regarding = object_reference(DEPLOYMENTS, found.metadata)
        message = f"The configuration file is invalid; the previous configuration is used: {wrong}"
        self.recorder.event(regarding, EventType.WARNING, REASON, message)
        return True
