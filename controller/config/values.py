"""The contents of a configuration file as frozen values, and what they add to the pods that ask for an accelerator. Pure.

A list or a text that the file leaves without a value (`volumes:`) is None, and counts as empty.

A container asks for an accelerator by naming its resource among its limits or its requests, with whatever quantity. One of
the two is enough: an API server makes a request of each limit, but templates come as users wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from tfjob_operator.api.meta import JSON


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
    """A configuration, empty without a file. Fields of 2017, grpc_server_file_path and tf_image, are not used."""

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
CONTAINER_NAME: Final = "tensorflow"
"""The container that trains, in all dialects of jobs."""


def with_accelerators(spec: JSON, accelerators: Accelerators | None) -> JSON:
    """Return a pod's `spec` with what its accelerators need; the same object if they need nothing.

    A second call changes nothing. What the user wrote stays: a volume of ours whose name or mount path the pod has for
    something else is left out, and so is a variable that the container sets. Several accelerators come in the order of their
    resources' names.
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
    """A pod's specification with more in it. What it is made from is not changed."""

    def __init__(self, spec: JSON, container: JSON) -> None:
        self._spec = spec
        self._container = container
        self._volumes = list(_list_in(spec, "volumes"))
        self._mounts = list(_list_in(container, "volumeMounts"))
        self._env = list(_list_in(container, "env"))

    def mount(self, volume: HostVolume) -> None:
        """Mount a volume of the node, unless its name or its path are taken."""
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
        """Return the specification; the container stands at `place`."""
        containers = list(_list_in(self._spec, "containers"))
        containers[place] = {**self._container, **_filled(volumeMounts=self._mounts, env=self._env)}
        return {**self._spec, "containers": containers, **_filled(volumes=self._volumes)}


def _filled(**lists: list[Any]) -> dict[str, list[Any]]:
    """Return the lists that are not empty."""
    return {name: each for name, each in lists.items() if each}


def _object_in(value: JSON, name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _list_in(value: JSON, name: str) -> list[dict[str, Any]]:
    """Return the objects in a list; an empty list for whatever else stands there."""
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
