"""What the replicas of a job in the alpha dialect are told about each other: TF_CONFIG, and the command line of a server. Pure.

Both are API: types in alphabetical order, hosts by the bare names of their services.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.controller.alpha.children import replica_key

if TYPE_CHECKING:
    from tfjob_operator.api.v1alpha1.types import AlphaSpec
    from tfjob_operator.controller.jobs.children import ReplicaKey

Hosts = dict[str, list[str]]
"""Addresses, by the lower-case type and the index."""


def hosts_of(spec: AlphaSpec, runtime_id: str) -> Hosts:
    """Return the addresses of all replicas."""
    return {
        each.type.lower(): [
            f"{replica_key(runtime_id, each.type, index).name}:{each.port}" for index in range(each.replicas)
        ]
        for each in sorted(spec.replicas, key=lambda each: each.type)
        if each.replicas > 0
    }


def tf_config(hosts: Hosts, key: ReplicaKey) -> str:
    """Return the value of TF_CONFIG for one replica; one that is alone gets it too."""
    task = {"type": key.type.lower(), "index": key.index}
    return msgspec.json.encode({"cluster": hosts, "task": task, "environment": "cloud"}).decode()


def server_arguments(hosts: Hosts, key: ReplicaKey) -> list[str]:
    """Return the arguments of the program of a parameter server: `--cluster_spec master|host:port,ps|host:port;host:port`."""
    cluster = ",".join(f"{kind}|{';'.join(addresses)}" for kind, addresses in hosts.items())
    return ["--cluster_spec", cluster, "--job_name", key.type.lower(), "--task_id", str(key.index)]
