"""TF_CONFIG: what TensorFlow in each replica needs to know about the others. Pure.

The format is part of the API: cluster types in alphabetical order, then the task, then `environment`, as in all earlier
operators. The cluster part is the same for all replicas, and long if there are many. It is therefore built once per job, and
its length is computed without building it. A long one is stored in a ConfigMap; otherwise the total size of the pods would grow
with the square of the job's size: the pods of 2,000 workers with long names took 266 MB in etcd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import Network
from tfjob_operator.api.v1.types import Mistake, ReplicaSpec, TFJobSpec, child_name

INLINE_BYTES: Final = 4096
"""The largest cluster specification that is written into each pod: about sixty replicas with long names. Their pods are
together 250 KB larger than necessary; for smaller jobs the calls for another object cost more than they save."""


class _Text(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str

    @property
    def size(self) -> int:
        return len(self.text)


class _Hosts:
    """The addresses of the replicas of one type, which differ only in their indices."""

    def __init__(self, prefix: str, suffix: str, count: int) -> None:
        self._prefix = prefix
        self._suffix = suffix
        self._count = count

    def __getitem__(self, index: int) -> str:
        return f'"{self._prefix}{index}{self._suffix}"'

    @cached_property
    def text(self) -> str:
        """The addresses as a JSON list."""
        return f"[{','.join([self[index] for index in range(self._count)])}]"

    @property
    def size(self) -> int:
        """The length of `text` in bytes."""
        quoted = len(self._prefix) + len(self._suffix) + 2
        return 2 + self._count * quoted + _digits_below(self._count) + max(self._count - 1, 0)


_NOBODY: Final = _Hosts("", "", 0)


def _digits_below(count: int) -> int:
    """Return the total number of digits of the integers from 0 to `count` - 1."""
    total, first = count, 10  # one digit for each index, one more for each index of two or more digits, and so on
    while first < count:
        total += count - first
        first *= 10
    return total


def needs_no_config_map(job: ObjectMeta, spec: TFJobSpec, domain: str) -> bool:
    """Return True if the number of replicas alone shows that no pod needs a ConfigMap, as for all small jobs.

    A host is `"{job}-{type}-{index}.{namespace}.svc.{domain}:{port}",` with a type of at most 9 letters, an index of at most 5
    digits, and a port of at most 11 characters (an int32). A shared network adds a second `{job}.` to it. Each type adds
    `"{type}":[],`, of at most 14 bytes.
    """
    host = len(job.name) + len(job.namespace) + len(domain) + 37
    if spec.network is Network.SHARED:
        host += len(job.name) + 1
    return spec.total_replicas * host + len(spec.replicas) * 14 + 2 <= INLINE_BYTES


def first_ranks(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the rank of the first replica of each type that is a process of Keras 3 and JAX: chief or master, then workers."""
    ranks: dict[str, int] = {}
    processes = 0
    for name in (*c.CHIEF_TYPES, c.WORKER):
        if sizes.get(name):
            ranks[name] = processes
            processes += sizes[name]
    return ranks


def process_count(spec: TFJobSpec) -> int:
    """Return the number of processes of Keras 3 and JAX; 0 if the job is not a group of two or more equal processes.

    Parameter servers make it a cluster of TensorFlow, and elastic workers change its size while it runs. An Evaluator is not a
    part of the group.
    """
    processes = sum(spec.sizes[name] for name in first_ranks(spec.sizes))
    return 0 if spec.dynamic_workers or spec.sizes.get(c.PS) or processes < 2 else processes


class ClusterSpec:
    """The cluster specification of one job.

    Names of jobs, namespaces and domains are DNS names, so nothing needs escaping in JSON or for the kubelet, which expands
    variables.
    """

    def __init__(self, job: ObjectMeta, spec: TFJobSpec, domain: str = "") -> None:
        """`domain` is the cluster's DNS domain, which is appended to host names if the resolver of the pods needs it."""
        self._spec = spec
        self._uid = job.uid
        shared = f".{job.name}" if spec.network is Network.SHARED else ""
        suffix = f"{shared}.{job.namespace}.svc{f'.{domain}' if domain else ''}"
        self._hosts = {
            replica.type.lower(): _Hosts(
                child_name(job.name, replica.type, 0)[:-1], f"{suffix}:{replica.template.port}", replica.replicas
            )
            for replica in sorted(spec.replicas.values(), key=lambda replica: replica.type.lower())
            if replica.replicas > 0
        }

    @cached_property
    def text(self) -> str:
        """The whole cluster as JSON."""
        return f"{{{','.join([f'{_quoted(kind)}:{hosts.text}' for kind, hosts in self._hosts.items()])}}}"

    @cached_property
    def size(self) -> int:
        """The length of `text` in bytes."""
        lists = sum(len(_quoted(kind)) + 1 + hosts.size for kind, hosts in self._hosts.items())
        return 2 + lists + max(len(self._hosts) - 1, 0)

    @cached_property
    def is_alone(self) -> bool:
        """True if the job has a single replica.

        This replica gets no TF_CONFIG, which would make it wait for other replicas.
        """
        return self._spec.total_replicas == 1

    def gets_whole_cluster(self, replica_type: str) -> bool:
        """Return True if replicas of this type get the whole cluster: all do, except those of an elastic job."""
        return not (self._spec.dynamic_workers and replica_type in {c.WORKER, c.PS})

    @cached_property
    def _group(self) -> tuple[str, int, Mapping[str, int]]:
        """The address of process 0, the number of processes, and the rank of the first replica of each type.

        There are no ranks if the job is not such a group: see `process_count`.
        """
        processes = process_count(self._spec)
        if not processes:
            return "", 0, {}
        ranks = first_ranks(self._spec.sizes)
        return self._hosts[next(iter(ranks)).lower()][0].strip('"'), processes, ranks

    def process(self, replica_type: str, index: int) -> tuple[str, int, int] | None:
        """Return the address of process 0, the number of processes, and the rank of this one.

        None for an Evaluator, for a single process, and for jobs with parameter servers or elastic workers. Chief or
        master comes first, then the workers by index. The port is that of TF_CONFIG, which Services, NetworkPolicies and
        meshes know.
        """
        coordinator, processes, first_ranks = self._group
        return (coordinator, processes, first_ranks[replica_type] + index) if replica_type in first_ranks else None

    def is_shared_with(self, replica_type: str) -> bool:
        """Return True if pods of this type read the cluster from a ConfigMap.

        They do if the cluster description is long and the template sets none of our variables.
        """
        return replica_type in self._sharing

    @cached_property
    def _sharing(self) -> frozenset[str]:
        if self.size <= INLINE_BYTES or self.is_alone:
            return frozenset()
        return frozenset(
            replica.type
            for replica in self._spec.replicas.values()
            if replica.replicas > 0 and not replica.template.sets and self.gets_whole_cluster(replica.type)
        )

    @cached_property
    def digest(self) -> str:
        """The hash in the name of the ConfigMap, made from the cluster and the job's UID; "" if no pod reads a ConfigMap."""
        if not self._sharing:
            return ""
        from hashlib import sha256  # 0.6 MB, needed for large jobs only

        return sha256(f"{self._uid} {self.text}".encode()).hexdigest()[:16]

    def tf_config(self, replica_type: str, index: int) -> str:
        """Return the value of TF_CONFIG for one replica."""
        before, shared, after = self._parts(replica_type, index)
        return f"{before}{shared.text}{after}"

    def tf_config_with(self, reference: str, replica_type: str, index: int) -> str:
        """Return the TF_CONFIG of a replica with the whole cluster; it contains `reference` in place of the cluster itself."""
        before, _, after = self._parts(replica_type, index)
        return f"{before}{reference}{after}"

    @property
    def longest_variable(self) -> int:
        """The length in bytes of the longest string "TF_CONFIG=..." that this job passes to a process; 0 if it passes none."""
        return 0 if self.is_alone else max(map(self._variable_size, self._spec.replicas.values()), default=0)

    def _variable_size(self, replica: ReplicaSpec) -> int:
        if replica.replicas == 0 or c.TF_CONFIG in replica.template.sets:
            return 0
        before, shared, after = self._parts(replica.type, replica.replicas - 1)
        return len(c.TF_CONFIG) + 1 + len(before) + shared.size + len(after)

    def _parts(self, replica_type: str, index: int) -> tuple[str, _Text, str]:
        """Return TF_CONFIG of a replica, split around the long part.

        A worker of an elastic job needs only itself and the parameter servers, and a parameter server only itself, so no
        replica has to restart when workers are added or removed. TensorFlow reads a list of hosts, or an object that maps
        indices to hosts.
        """
        kind = replica_type.lower()
        task = f'"task":{{"type":"{kind}","index":{index}}}'
        if self.gets_whole_cluster(replica_type):
            return '{"cluster":', self, f',{task},"environment":"cloud"}}'
        own = self._hosts[kind][index]
        if replica_type == c.WORKER:
            return '{"cluster":{"ps":', self._hosts.get("ps", _NOBODY), f',"worker":{{"{index}":{own}}}}},{task}}}'
        # A list with one entry means index 0. The Go operators write a one-entry list for every server, so TensorFlow does
        # not find servers other than index 0.
        server = f"[{own}]" if index == 0 else f'{{"{index}":{own}}}'
        return '{"cluster":{"ps":', _Literal(server), f',"worker":{{}}}},{task}}}'


def _quoted(kind: str) -> str:
    return f'"{kind}"'


def too_long(job: ObjectMeta, spec: TFJobSpec, domain: str = "") -> Mistake | None:
    """Return an error if this job's TF_CONFIG would make `execve` fail in every container, else None."""
    size = ClusterSpec(job, spec, domain).longest_variable
    if size <= c.MAX_VARIABLE:
        return None
    elastic = (
        "" if spec.dynamic_workers else ", or enableDynamicWorker, which leaves the other workers out of TF_CONFIG"
    )
    text = (
        f"TF_CONFIG lists all {spec.total_replicas} replicas and would have {size} bytes; the maximum on Linux is "
        f"{c.MAX_VARIABLE}: use a shorter name for the job or namespace, fewer replicas{elastic}"
    )
    return Mistake("spec.tfReplicaSpecs", text)
