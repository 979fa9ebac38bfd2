"""Pod templates: decoded from a job's specification when they are needed, and the facts that are kept of them. Pure.

A decoded template is ten times as large as its bytes, and an operator has thousands of jobs. So only what every sync needs is
kept (`facts_of`), and the templates are decoded again when pods or a PodGroup are created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import Port, TemplateFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.api.meta import JSON

_CANONICAL_TYPE: Final = {name.lower(): name for name in c.REPLICA_TYPES}
_NO_FACTS: Final = TemplateFacts()


def templates_of(raw: bytes | msgspec.Raw) -> Mapping[str, JSON]:
    """Return the templates of a checked specification by replica type, as the user wrote them; they must not be changed."""
    given = msgspec.json.decode(raw)["tfReplicaSpecs"]
    return {
        _CANONICAL_TYPE[key.lower()]: replica["template"]
        for key, replica in given.items()
        if replica.get("template") is not None
    }


def training_container(template: JSON) -> Mapping[str, Any]:
    """Return the container named `tensorflow` of a checked template."""
    spec = template["spec"]
    containers = spec["containers"] if isinstance(spec, dict) else []
    return next(container for container in containers if container.get("name") == c.CONTAINER_NAME)


def facts_of(template: JSON) -> TemplateFacts:
    """Return what is kept of a checked template."""
    container, spec = training_container(template), template["spec"]
    found = TemplateFacts(
        ports=_named_ports(container),
        sets=frozenset(variable.get("name") for variable in container.get("env") or ()) & c.OUR_VARIABLES,
        scheduler_name=(spec.get("schedulerName") or "") if isinstance(spec, dict) else "",
    )
    return _NO_FACTS if found == _NO_FACTS else found  # most templates say nothing of all this


def _named_ports(container: Mapping[str, Any]) -> tuple[Port, ...]:
    """All named ports in their order, with `tfjob-port` added where it is missing (B61)."""
    ports: list[Port] = []
    for port in container.get("ports") or ():
        name, number = port.get("name"), port.get("containerPort")
        if isinstance(name, str) and isinstance(number, int):
            ports.append(Port(name, number, port.get("protocol") or c.TCP))
    if all(port.name != c.PORT_NAME for port in ports):
        ports.append(Port(c.PORT_NAME, c.DEFAULT_PORT))
    return tuple(ports)
