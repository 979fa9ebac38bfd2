"""The children of jobs in the alpha dialect: batch Jobs and their pods, services, a ConfigMap; and their names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfjob_operator.api.core import JOBS, Condition
from tfjob_operator.api.meta import OWNER_INDEX, Struct, index_by_owner
from tfjob_operator.controller.jobs.children import ChildMeta, ConfigMap, Pod, ReplicaKey, Service

INDEXERS: Final[Mapping[str, Callable[[Any], Sequence[str]]]] = {OWNER_INDEX: index_by_owner}
"""The indexers required of all informers of children: pods are found by their Job, all others by the TFJob."""


class BatchStatus(Struct, frozen=True):
    """The status reported by the Job controller."""

    succeeded: int = 0
    conditions: tuple[Condition, ...] | None = None


class BatchJob(Struct, frozen=True, tag_field="kind", tag=JOBS.kind):
    """A batch/v1 Job. The Job controller creates and recreates its single pod."""

    metadata: ChildMeta
    status: BatchStatus = BatchStatus()

    @property
    def has_succeeded(self) -> bool:
        """True if its pod has succeeded."""
        return self.status.succeeded > 0 or self.condition("Complete") is not None

    @property
    def failure(self) -> Condition | None:
        """The reason why the Job controller gave up: a limit that a user has set, since the operator sets none."""
        return self.condition("Failed")

    @property
    def is_finished(self) -> bool:
        """True if nothing in it will run again."""
        return self.has_succeeded or self.failure is not None

    def condition(self, kind: str) -> Condition | None:
        """Return this condition if it is True."""
        return next(
            (
                condition
                for condition in self.status.conditions or ()
                if condition.type == kind and condition.status == "True"
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class Children:
    """The children of a job and the pods of its Jobs; `bare` has an earlier operator's pods without Job, by replica."""

    jobs: Sequence[BatchJob] = ()
    services: Sequence[Service] = ()
    config_maps: Sequence[ConfigMap] = ()
    pods: Sequence[Pod] = ()
    bare: Mapping[str, Sequence[Pod]] = field(default_factory=dict)


def replica_key(runtime_id: str, replica_type: str, index: int) -> ReplicaKey:
    """Return the key of a replica, which is also the name of its Job and service."""
    return ReplicaKey(replica_type, index, f"{replica_type.lower()}-{runtime_id}-{index}")


def config_map_name(runtime_id: str) -> str:
    """Return the name of the ConfigMap with the parameter servers' program."""
    return f"cm-ps-{runtime_id}"


def replica_of_bare_pod(job: str, pod: str) -> str:
    """Return the replica of a pod without a Job; earlier operators named such pods JOB[:40]-REPLICA-RANDOM."""
    return pod.removeprefix(f"{job[:40]}-").rpartition("-")[0]
