"""Jobs of the alpha dialect: the cached job (as in v1, `spec` is not decoded), its status, and the checked spec."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.decoding import is_deeper_than
from tfjob_operator.api.meta import JSON, ObjectMeta, Struct
from tfjob_operator.api.v1.constants import CleanPodPolicy
from tfjob_operator.api.v1.types import JobCondition, ReplicaStatus, SpecWarning, StartRecord, with_readable_status
from tfjob_operator.api.v1alpha1.constants import DEFAULT_CLEANUP, DEFAULT_IMAGE, DEFAULT_PORT, Dialect, ReplicaType

_KEY: Final = "replicaspecs"
_QUOTED: Final = f'"{_KEY}"'.encode()
_LEVELS: Final = 100
"""Deeper nesting is an error in every dialect, and keeps decoders from following it."""
_Keys = dict[str, msgspec.Raw]


def is_alpha(raw: bytes | msgspec.Raw) -> bool:
    """Return True if a specification has `replicaSpecs`, in any letter case."""
    return any(key.casefold() == _KEY for key in _keys_of(raw))


def _keys_of(raw: bytes | msgspec.Raw) -> Collection[str]:
    """Return the keys of a specification; none if it cannot be read or does not contain `replicaSpecs` at any level."""
    # A fast path for specifications without the word, as in most v1 jobs.
    if _QUOTED not in bytes(raw).lower() or is_deeper_than(raw, _LEVELS):
        return ()
    try:
        return msgspec.json.decode(raw, type=_Keys).keys()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


_NOTHING: Final = msgspec.Raw(b"null")
_OTHER_SHAPE: Final = b'"tfReplicaSpecs"'


class SetStatus(Struct, frozen=True):
    """The states of the replicas of one type, and the number of replicas in each.

    The field names are those of the alpha API.
    """

    tf_replica_type: str = msgspec.field(default="", name="tf_replica_type")
    state: str = ""
    replicas_states: dict[str, int] = msgspec.field(default_factory=dict, name="ReplicasStates")


class AlphaStatus(Struct, frozen=True):
    """The status of a job in both forms: phase, state and reason of the alpha API, and the conditions of v1.

    `phase` is always set after this operator's first write of the status, and never on jobs of another dialect. `runtime_id` is
    in the names of all children, to distinguish jobs; it is set before any child is created. `replica_statuses` is v1's map for
    kubeflow.org, and the alpha API's array for tensorflow.org. `finished_indices` are the replicas that have succeeded, as in
    v1. `begun` is None until Jobs are about to be created.
    """

    phase: str = ""
    state: str = ""
    reason: str = ""
    runtime_id: str = msgspec.field(default="", name="runtimeId")
    conditions: tuple[JobCondition, ...] | None = None
    replica_statuses: dict[str, ReplicaStatus] | tuple[SetStatus, ...] | None = None
    alpha_replica_statuses: tuple[SetStatus, ...] | None = None
    finished_indices: dict[str, str] = msgspec.field(default_factory=dict)
    begun: StartRecord | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    observed_generation: int = 0

    def to_wire(self) -> dict[str, Any]:
        """Return the status as it is written: with the fields that the alpha operators always set, even if they are empty."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {"reason": "", "controlPaused": False} | found


class AlphaJob(Struct, frozen=True):
    """A cached job of either API. For a job of another dialect only the metadata is kept."""

    metadata: ObjectMeta
    spec: msgspec.Raw = _NOTHING
    status: AlphaStatus = AlphaStatus()

    def __post_init__(self) -> None:
        """Copy this job's spec out of the bytes of the list; drop spec and status of a job of another dialect."""
        ours = self.status.phase or is_alpha(self.spec) or _OTHER_SHAPE not in bytes(self.spec)
        msgspec.structs.force_setattr(self, "spec", self.spec.copy() if ours else _NOTHING)
        if not ours:
            msgspec.structs.force_setattr(self, "status", AlphaStatus())

    def is_of(self, dialect: Dialect) -> bool:
        """Return True if a job that was read from this dialect's API belongs to this dialect.

        All jobs of tensorflow.org belong to it. In kubeflow.org the first status decides: in this dialect it has a phase, in
        other dialects it has conditions. Before there is a status, the shape of the spec decides.
        """
        if self.status.phase or not dialect.keeps_map:
            return True
        return not self.status.conditions and self.status.begun is None and is_alpha(self.spec)


def job_with_unreadable_status(raw: bytes, _error: Exception) -> AlphaJob:
    """Return a job with the part of its status that can be decoded, so that a job that is Done stays Done.

    Raises ValidationError for undecodable metadata.
    """
    return with_readable_status(raw, AlphaJob, "phase", "runtimeId")


@dataclass(frozen=True, slots=True)
class AlphaReplicas:
    """An entry of `replicaSpecs` with defaults.

    restart_policy: the restartPolicy of the Job's pods, OnFailure or Never. gets_server: the operator adds the container
    `tensorflow` with a standard parameter server. sets_tf_config: the template sets TF_CONFIG itself, and it is not
    overwritten.
    """

    type: ReplicaType
    replicas: int = 1
    port: int = DEFAULT_PORT
    restart_policy: PodRestartPolicy = PodRestartPolicy.ON_FAILURE
    gets_server: bool = False
    sets_tf_config: bool = False


@dataclass(frozen=True, slots=True)
class Chief:
    """The replica whose outcome is that of the job."""

    type: ReplicaType = ReplicaType.MASTER
    index: int = 0


@dataclass(frozen=True, slots=True)
class AlphaSpec:
    """A checked specification with defaults, its replicas in the author's order.

    `runtime_id` is "" if the operator chooses it. `tensorboard` is as written, except for the letter case of keys: the
    TensorBoard controller reads it, and errors in it do not affect the job. `warnings` are reported once per
    generation.
    """

    replicas: tuple[AlphaReplicas, ...]
    chief: Chief = Chief()
    runtime_id: str = ""
    image: str = DEFAULT_IMAGE
    scheduler_name: str = ""
    cleanup_policy: CleanPodPolicy = DEFAULT_CLEANUP
    managed_by: str = ""
    tensorboard: JSON | None = None
    warnings: tuple[SpecWarning, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The number of replicas by type."""
        return {replica.type: replica.replicas for replica in self.replicas}

    @property
    def has_servers(self) -> bool:
        """True if any parameter server runs the operator's own program."""
        return any(replica.gets_server and replica.replicas > 0 for replica in self.replicas)
