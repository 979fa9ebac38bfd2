"""Check what every dialect has in common: the decoding of a specification, and the pod templates in it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.depth import is_deeper_than
from tfjob_operator.api.v1.pod_fields import POD_TEMPLATE
from tfjob_operator.api.v1.reader import Path
from tfjob_operator.api.v1.shapes import check

if TYPE_CHECKING:
    from tfjob_operator.api.meta import JSON
    from tfjob_operator.api.v1.reader import Reader

MAX_DEPTH: Final = 100
"""Levels of a specification. The deepest field of a pod template that Kubernetes knows lies at 14."""


class CheckedTemplate(NamedTuple):
    """What was read of a pod template: its restart policy, None where it has none, and the names of its containers.

    `containers` is None where they cannot be read, which was noted.
    """

    policy: PodRestartPolicy | None
    containers: tuple[str, ...] | None


def decode_spec(reader: Reader, raw: bytes | msgspec.Raw) -> JSON:
    """Return a specification as JSON; an empty one where it cannot be read, which is noted."""
    if is_deeper_than(raw, MAX_DEPTH):
        reader.error("spec", "is nested too deeply")
        return {}
    try:
        return reader.mapping(msgspec.json.decode(raw), "spec")
    except (msgspec.DecodeError, UnicodeDecodeError):
        reader.error("spec", "holds a number or a character that cannot be read")
        return {}


def read_template(reader: Reader, template: JSON, path: Path | str, *, may_be_empty: bool = False) -> CheckedTemplate:
    """Check the types of all fields that we know, and that each container has a name and an image.

    Which containers there must be is for the caller to say, but that there is one, unless the template `may_be_empty`. The API
    server checks what the fields say when a pod is created.
    """
    check(reader, template, POD_TEMPLATE, path)
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    names: tuple[str, ...] | None = None
    where = Path(Path(path, "spec"), "containers")
    if isinstance(containers, list) and containers:
        names = _read_containers(reader, containers, where)
    elif not containers and may_be_empty:
        names = ()
    elif not containers:
        reader.error(where, "must be a list of at least one container")
    policy = spec.get("restartPolicy") if isinstance(spec, dict) else None
    return CheckedTemplate(reader.choice(policy, Path(Path(path, "spec"), "restartPolicy"), PodRestartPolicy), names)


def _read_containers(reader: Reader, containers: list[object], path: Path) -> tuple[str, ...]:
    """Check that each has a name and an image. Return the names."""
    names: list[str] = []
    for index, container in enumerate(containers):
        if not isinstance(container, dict):
            continue  # told by its type
        if not container:
            reader.error(Path(path, index), "must be a container with a name and an image")
            continue
        for needed in ("name", "image"):
            if container.get(needed) is None or container[needed] == "":
                reader.error(Path(Path(path, index), needed), "is required")
        own = container.get("name")
        names.append(own if isinstance(own, str) else "")
    return tuple(names)
