"""The children of jobs in the alpha dialect: Jobs and their pods, services, a ConfigMap, and how they are named. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfjob_operator.api.core import JOBS, Condition
from tfjob_operator.api.meta import OWNER_INDEX, Struct, index_by_owner
from tfjob_operator.controller.jobs.children import ChildMeta, ConfigMap, Pod, ReplicaKey, Service

INDEXERS: Final[Mapping[str, Callable[[Any], Sequence[str]]]] = {OWNER_INDEX: index_by_owner}
"""What the informers of all children must have: pods are found by their Job, all else by the TFJob."""


class BatchStatus(Struct, frozen=True):
    """What the Job controller says."""

    succeeded: int = 0
    conditions: tuple[Condition, ...] | None = None


class BatchJob(Struct, frozen=True, tag_field="kind", tag=JOBS.kind):
    """A Job of batch/v1. Its one pod, and those that come after it, are the Job controller's."""

    metadata: ChildMeta
    status: BatchStatus = BatchStatus()

    @property
    def has_succeeded(self) -> bool:
        """Whether its pod has ended as it should."""
        return self.status.succeeded > 0 or self.condition("Complete") is not None

    @property
    def failure(self) -> Condition | None:
        """Why the Job controller gave it up, by a limit that somebody has set on it; the operator sets none."""
        return self.condition("Failed")

    @property
    def is_finished(self) -> bool:
        """Whether nothing of it will run again."""
        return self.has_succeeded or self.failure is not None

    def condition(self, kind: str) -> Condition | None:
        """Return this condition, if it is True."""
        return next(
            (each for each in self.status.conditions or () if each.type == kind and each.status == "True"), None
        )


@dataclass(frozen=True, slots=True)
class Children:
    """What a job controls, and the pods of its Jobs; `bare` are an earlier operator's pods without a Job, by replica."""

    jobs: Sequence[BatchJob] = ()
    services: Sequence[Service] = ()
    config_maps: Sequence[ConfigMap] = ()
    pods: Sequence[Pod] = ()
    bare: Mapping[str, Sequence[Pod]] = field(default_factory=dict)


def replica_key(runtime_id: str, replica_type: str, index: int) -> ReplicaKey:
    """Return the key of a replica: its Job and its service have its name."""
    return ReplicaKey(replica_type, index, f"{replica_type.lower()}-{runtime_id}-{index}")


def config_map_name(runtime_id: str) -> str:
    """Return the name of the ConfigMap with the program of parameter servers."""
    return f"cm-ps-{runtime_id}"


def replica_of_bare_pod(job: str, pod: str) -> str:
    """Return the replica of a pod of earlier operators, named JOB[:40]-REPLICA-RANDOM, without a Job."""
    return pod.removeprefix(f"{job[:40]}-").rpartition("-")[0]
