"""The resources that a pod of a template requests, computed as the scheduler does. Pure.

The rules are upstream's (component-helpers, `PodRequests`): ordinary containers and native sidecars (KEP-753) run together; an
init container runs beside the sidecars that stand before it; the pod needs what the largest of these moments needs. What the
pod itself names replaces that (KEP-2837), and its overhead comes on top.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfjob_operator.api.meta import JSON

Requests = dict[str, Decimal]

_OF_THE_POD: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"


def pod_requests(template: JSON) -> Requests:
    """Return the resources by name. What is no quantity is left out: the API server will refuse the pod for it."""
    spec = object_in(template, "spec")
    total: Requests = {}
    for container in _containers(spec, "containers"):
        _add(total, _of_container(container))
    sidecars: Requests = {}
    largest: Requests = {}
    for container in _containers(spec, "initContainers"):
        asked = _of_container(container)
        if container.get("restartPolicy") == PodRestartPolicy.ALWAYS:
            _add(total, asked)
            _add(sidecars, asked)
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, asked)
        _raise_to(largest, moment)
    _raise_to(total, largest)
    total |= _of_pod(spec, total)
    _add(total, _quantities(object_in(spec, "overhead")))
    return total


def object_in(value: JSON, name: str) -> dict[str, Any]:
    """Return the object under a name, or an empty one: users' templates are not validated this deep."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _containers(spec: JSON, name: str) -> Iterator[dict[str, Any]]:
    found = spec.get(name)
    return (each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict))


def _of_container(container: JSON) -> Requests:
    """Return a container's requests. As in the API server, a limit stands in for a request that is missing."""
    resources = object_in(container, "resources")
    return _quantities(object_in(resources, "limits") | object_in(resources, "requests"))


def _of_pod(spec: JSON, of_containers: Requests) -> Requests:
    """Return the pod's own requests. As in the API server, a limit stands in for a request that no container has either."""
    resources = object_in(spec, "resources")
    limits = _quantities(object_in(resources, "limits"))
    asked = {name: limit for name, limit in limits.items() if name not in of_containers}
    asked |= _quantities(object_in(resources, "requests"))
    return {name: number for name, number in asked.items() if name in _OF_THE_POD or name.startswith(_HUGE_PAGES)}


def _quantities(given: Mapping[str, object]) -> Requests:
    parsed = {name: parse_quantity(value) for name, value in given.items()}
    return {name: number for name, number in parsed.items() if number is not None}


def _add(total: Requests, more: Requests) -> None:
    for name, number in more.items():
        total[name] = total.get(name, Decimal(0)) + number


def _raise_to(total: Requests, other: Requests) -> None:
    for name, number in other.items():
        total[name] = max(total.get(name, Decimal(0)), number)
