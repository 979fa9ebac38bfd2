"""Resource quantities ("500m", "1.5Gi", 2), and the resource requests and accelerators of pods. Pure.

Requests are computed as in the scheduler (component-helpers, `PodRequests`). Regular containers and native sidecars (KEP-753)
run together. An init container runs beside the sidecars listed before it. The pod requests the maximum of these sums. Pod-level
requests override this (KEP-2837), and the overhead is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from tfjob_operator.api.core import Container, PodRestartPolicy, PodSpec
from tfjob_operator.api.meta import JSON

# The number of digits is limited: the API server accepts no quantity beyond 2**63, and a user's exponent must not use
# up memory.
_QUANTITY: Final = re.compile(
    r"\+?(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE]([+-]?\d{1,2})|(m|u|n|k|[KMGTPE]i?))?", re.ASCII
)
_SUFFIXES: Final = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(10**3)} | {
    f"{letter}{i}": Decimal(base**power)
    for power, letter in enumerate("KMGTPE", 1)
    for i, base in (("", 1000), ("i", 1024))
    if letter + i != "K"
}


def parse_quantity(value: object) -> Decimal | None:
    """Return the value of a quantity, or None if it is invalid: the API server will reject the pod."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    if exponent is not None:
        return Decimal(digits).scaleb(int(exponent))
    if suffix is None:
        return Decimal(digits)
    return Decimal(digits) * _SUFFIXES[suffix] if suffix in _SUFFIXES else None


def format_quantity(number: Decimal) -> str:
    """Format a quantity as an integer, or else in thousandths, rounded up so that it is never less than requested."""
    if number == number.to_integral_value():
        return f"{number.to_integral_value():f}"
    return f"{(number * 1000).to_integral_value(ROUND_CEILING):f}m"


Requests = dict[str, Decimal]
_OF_THE_POD: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"


def pod_requests(template: JSON) -> Requests:
    """Return resource requests by name. Invalid quantities are omitted: the API server will reject the pod."""
    spec = object_in(template, "spec")
    total = _effective(
        map(_of_container, _containers(spec, "containers")),
        (
            (container.get("restartPolicy"), _of_container(container))
            for container in _containers(spec, "initContainers")
        ),
    )
    total |= _of_pod(spec, total)
    _add(total, _quantities(object_in(spec, "overhead")))
    return total


def accelerators_of(spec: PodSpec) -> tuple[tuple[str, int], ...]:
    """Return the extended resources that a pod requests, such as `nvidia.com/gpu`, with their numbers; most pods have none.

    Names without a domain, and those with `kubernetes.io/`, are Kubernetes' own resources.
    """
    resources = (container.resources for container in spec.all_containers)
    if not any("/" in name for resource in resources if resource is not None for name in resource.limits or ()):
        return ()
    init = ((container.restart_policy, _extended(container)) for container in spec.init_containers or ())
    asked = _effective(map(_extended, spec.containers), init)
    return tuple(sorted((name, int(number)) for name, number in asked.items() if number >= 1))


def _extended(container: Container) -> Requests:
    limits = container.resources.limits if container.resources is not None else None
    return _quantities({name: text for name, text in (limits or {}).items() if "/" in name and _NATIVE not in name})


def _effective(containers: Iterable[Requests], init_containers: Iterable[tuple[object, Requests]]) -> Requests:
    """Return what containers, and init containers with their restart policies, request together."""
    total: Requests = {}
    for asked in containers:
        _add(total, asked)
    sidecars: Requests = {}
    largest: Requests = {}
    for policy, asked in init_containers:
        if policy == PodRestartPolicy.ALWAYS:
            _add(total, asked)
            _add(sidecars, asked)
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, asked)
        _raise_to(largest, moment)
    _raise_to(total, largest)
    return total


def object_in(value: JSON, name: str) -> dict[str, Any]:
    """Return the object under a key, or an empty one: users' templates are not validated this deep."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _containers(spec: JSON, name: str) -> Iterator[dict[str, Any]]:
    found = spec.get(name)
    return (each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict))


def _of_container(container: JSON) -> Requests:
    """Return a container's requests. As in the API server, a limit replaces a missing request."""
    resources = object_in(container, "resources")
    return _quantities(object_in(resources, "limits") | object_in(resources, "requests"))


def _of_pod(spec: JSON, of_containers: Requests) -> Requests:
    """Return the pod-level requests.

    As in the API server, a limit serves as the request if neither pod nor container has one.
    """
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
