"""The contents of a configuration file as frozen values, and what they add to pods that request an accelerator. Pure.

A list or string without a value in the file (`volumes:`) is None, which is equivalent to empty.

A container requests an accelerator by its resource name in limits or requests, with any quantity. Either is sufficient: an API
server would set requests from limits, but templates have only what users wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from tfjob_operator.api.meta import JSON


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Names in the file are camelCase. Unknown keys are rejected, since they are most likely misspelled."""


class HostVolume(_Value, frozen=True):
    """A file or directory of the node, and its path in containers."""

    name: str
    host_path: str
    mount_path: str


class Variable(_Value, frozen=True):
    """An environment variable."""

    name: str
    value: str | None = None


class Accelerator(_Value, frozen=True):
    """What containers that request a resource need, such as driver libraries on the node."""

    volumes: tuple[HostVolume, ...] | None = None
    env_vars: tuple[Variable, ...] | None = None


Accelerators = Mapping[str, Accelerator | None]
"""Accelerators by resource name."""


class ControllerConfig(_Value, frozen=True):
    """The configuration; empty without a file. grpc_server_file_path and tf_image, from 2017, are ignored."""

    accelerators: Accelerators | None = None
    grpc_server_file_path: str | None = None
    tf_image: str | None = None


class ConfigSource(Protocol):
    """The source of the configuration."""

    @property
    def value(self) -> ControllerConfig:
        """The current configuration."""
        ...


@dataclass(frozen=True, slots=True)
class FixedConfig:
    """A constant configuration."""

    value: ControllerConfig


NO_CONFIG: Final = FixedConfig(ControllerConfig())
"""The configuration without a file."""
CONTAINER_NAME: Final = "tensorflow"
"""The name of the training container, in all dialects."""


def with_accelerators(spec: JSON, accelerators: Accelerators | None) -> JSON:
    """Return a pod's `spec` with what its accelerators need; the same object if nothing is needed.

    Idempotent. The user's settings take precedence: a volume is not added if the pod uses its name or mount path for something
    else. A variable is not added if the container sets it. Several accelerators are added in the order of their resource names.
    """
    containers = _list_in(spec, "containers")
    place = next((index for index, each in enumerate(containers) if each.get("name") == CONTAINER_NAME), None)
    if not accelerators or place is None:
        return spec
    asked = sorted(accelerators.keys() & _resources_of(containers[place]))
    needed = [accelerator for name in asked if (accelerator := accelerators[name]) is not None]
    if not needed:
        return spec
    pod = _Additions(spec, containers[place])
    for accelerator in needed:
        for volume in accelerator.volumes or ():
            pod.mount(volume)
        for variable in accelerator.env_vars or ():
            pod.set(variable.name, variable.value or "")
    return pod.spec(place)


def _resources_of(container: JSON) -> set[str]:
    resources = _object_in(container, "resources")
    return {*_object_in(resources, "limits"), *_object_in(resources, "requests")}


class _Additions:
    """A pod spec with additions; the original is not modified."""

    def __init__(self, spec: JSON, container: JSON) -> None:
        self._spec = spec
        self._container = container
        self._volumes = list(_list_in(spec, "volumes"))
        self._mounts = list(_list_in(container, "volumeMounts"))
        self._env = list(_list_in(container, "env"))

    def mount(self, volume: HostVolume) -> None:
        """Mount a volume of the node, unless its name or path is in use."""
        ours = {"name": volume.name, "hostPath": {"path": volume.host_path}}
        present = next((each for each in self._volumes if each.get("name") == volume.name), None)
        paths = {str(each.get("mountPath")).rstrip("/") for each in self._mounts}
        if (present is not None and present != ours) or volume.mount_path.rstrip("/") in paths:
            return
        if present is None:
            self._volumes.append(ours)
        self._mounts.append({"name": volume.name, "mountPath": volume.mount_path})

    def set(self, name: str, value: str) -> None:
        """Set a variable that is not set."""
        if all(each.get("name") != name for each in self._env):
            self._env.append({"name": name, "value": value})

    def spec(self, place: int) -> JSON:
        """Return the pod spec; `place` is the index of the container."""
        containers = list(_list_in(self._spec, "containers"))
        containers[place] = {**self._container, **_filled(volumeMounts=self._mounts, env=self._env)}
        return {**self._spec, "containers": containers, **_filled(volumes=self._volumes)}


def _filled(**lists: list[Any]) -> dict[str, list[Any]]:
    """Return the non-empty lists."""
    return {name: each for name, each in lists.items() if each}


def _object_in(value: JSON, name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _list_in(value: JSON, name: str) -> list[dict[str, Any]]:
    """Return the objects in a list; an empty list for any other value."""
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
