"""What a configuration file says, as frozen values. Pure.

A list or a text that the file leaves without a value (`volumes:`) is None, and counts as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """camelCase in the file; a key that is not known is refused, since it is most likely misspelt."""


class HostVolume(_Value, frozen=True):
    """A file or folder of the node, and where containers find it."""

    name: str
    host_path: str
    mount_path: str


class Variable(_Value, frozen=True):
    """An environment variable."""

    name: str
    value: str | None = None


class Accelerator(_Value, frozen=True):
    """What containers need that ask for one resource, such as the libraries of a driver, which lie on the node."""

    volumes: tuple[HostVolume, ...] | None = None
    env_vars: tuple[Variable, ...] | None = None


Accelerators = Mapping[str, Accelerator | None]
"""By the name of the resource that a container asks for."""


class ControllerConfig(_Value, frozen=True):
    """A whole configuration; without a file, an empty one.

    grpc_server_file_path, tf_image: what files of 2017 have; accepted, and not used.
    """

    accelerators: Accelerators | None = None
    grpc_server_file_path: str | None = None
    tf_image: str | None = None


class ConfigSource(Protocol):
    """Where the configuration comes from."""

    @property
    def value(self) -> ControllerConfig:
        """What is in force now."""
        ...


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """A configuration that never changes."""

    value: ControllerConfig


NO_CONFIG: Final = FixedConfig(ControllerConfig())
"""Where there is no file."""
