"""Reads a configuration file: YAML whose types are checked; then all that can not be put into a pod is reported at once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from tfjob_operator.controller.config.values import ControllerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfjob_operator.controller.config.values import Accelerator

_RESOURCE: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VOLUME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Names of resources, volumes and variables that API servers accept; of variables those of before 1.30, which all accept."""

_OURS: Final = frozenset({"TF_CONFIG"})
"""What the operator sets itself."""


class ConfigFileError(Exception):
    """A configuration file is not what it should be. The message tells all that is wrong, in one line."""


def parse(content: bytes) -> ControllerConfig:
    """Return the configuration in a file; that of an empty file is empty. Raises ConfigFileError."""
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
            yield f"{where}: is not the name of a resource"
        if accelerator is not None:
            yield from _mistakes_of_volumes(accelerator, where)
            yield from _mistakes_of_variables(accelerator, where)


def _mistakes_of_volumes(accelerator: Accelerator, where: str) -> Iterator[str]:
    volumes = accelerator.volumes or ()
    for index, volume in enumerate(volumes):
        at = f"{where}.volumes[{index}]"
        if not _VOLUME.fullmatch(volume.name):
            yield f"{at}.name: must be lower-case letters, digits and -, at most 63 of them"
        if not _is_absolute(volume.host_path):
            yield f"{at}.hostPath: must be an absolute path without '..'"
        if not _is_absolute(volume.mount_path) or ":" in volume.mount_path:
            yield f"{at}.mountPath: must be an absolute path without '..' and ':'"
    paths_of = {volume.name: {each.host_path for each in volumes if each.name == volume.name} for volume in volumes}
    yield from (
        f"{where}.volumes: {name} is several paths of the node" for name, paths in paths_of.items() if len(paths) > 1
    )
    for path in _twice(volume.mount_path.rstrip("/") for volume in volumes):
        yield f"{where}.volumes: {path} is mounted twice"


def _mistakes_of_variables(accelerator: Accelerator, where: str) -> Iterator[str]:
    variables = accelerator.env_vars or ()
    for index, variable in enumerate(variables):
        at = f"{where}.envVars[{index}].name"
        if not _VARIABLE.fullmatch(variable.name):
            yield f"{at}: is not the name of a variable"
        elif variable.name in _OURS:
            yield f"{at}: {variable.name} is set by the operator"
    for name in _twice(variable.name for variable in variables):
        yield f"{where}.envVars: {name} is set twice"


def _is_absolute(text: str) -> bool:
    path = PurePosixPath(text)
    return path.is_absolute() and ".." not in path.parts


def _twice(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]
