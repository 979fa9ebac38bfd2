"""The body of a service, by which a replica, or each replica of a job, has a name in DNS. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.build.labels import labels_of, selector_of
from tfjob_operator.controller.tfjob.build.references import owner_reference

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import Port, ReplicaSpec, TFJobSpec
    from tfjob_operator.controller.jobs.children import ReplicaKey


def build_service(job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey) -> dict[str, Any]:
    """Return the headless service that gives a replica its DNS name, published before the pod is ready (B63).

    That of the whole job, in a shared network, gives one to every pod that has it as its subdomain.
    """
    labels = labels_of(job, spec, key)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": key.name, "labels": labels, "ownerReferences": [owner_reference(job)]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector_of(labels),
            "ports": _service_ports(spec.replicas[key.type]) if key.type else _ports_of_all(spec),
        },
    }


def _ports_of_all(spec: TFJobSpec) -> list[dict[str, Any]]:
    """Return the ports of all replicas, each number once for a protocol; a name that is taken by then gets the number, too."""
    ports: list[dict[str, Any]] = []
    for replica in spec.replicas.values():
        for port in _service_ports(replica):
            if any(_place(port) == _place(each) for each in ports):
                continue
            if any(port["name"] == each["name"] for each in ports):
                port["name"] = f"{port['name']}-{port['port']}"
            ports.append(port)
    return ports


def _place(port: dict[str, Any]) -> tuple[int, str]:
    return port["port"], port.get("protocol", c.TCP)


def _service_ports(replica: ReplicaSpec) -> list[dict[str, Any]]:
    """Return the named ports, each number once for a protocol: containers may have two names for one, services not.

    Of several names `tfjob-port` stays, by which TensorFlow is looked for, else the first.
    """
    ports = replica.template.ports
    chosen: dict[tuple[int, str], Port] = {}
    for port in ports:
        place = port.number, port.protocol
        if place not in chosen or port.name == c.PORT_NAME:
            chosen[place] = port
    return [
        {"name": port.name, "port": port.number} | ({"protocol": port.protocol} if port.protocol != c.TCP else {})
        for port in ports
        if chosen[port.number, port.protocol] is port
    ]
