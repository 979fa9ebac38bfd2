"""What could be read about one job, as a value. Its callers (the plugin, the page) read it; nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from tfjob_operator.api.core import Lease
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.constants import Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.cli.diagnosis.objects import (
    BatchJob,
    Claim,
    Crd,
    Deployment,
    Event,
    LimitRange,
    Namespace,
    Node,
    Pod,
    PodGroup,
    ResourceQuota,
    Service,
    Workload,
)


class LastLine(NamedTuple):
    """The last line of a container's log and its time, None if the log is empty."""

    at: datetime | None
    text: str = ""


class Absent(NamedTuple):
    """An object that was asked for by name and does not exist, such as ("Lease", "tf-operator")."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class AlphaEvidence:
    """What only a job of the alpha dialect has: its API, the job as that reads it, and the Jobs of its replicas.

    `batch_jobs` is None where they may not be read.
    """

    dialect: Dialect
    job: AlphaJob
    batch_jobs: Sequence[BatchJob] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that could be read about a job at the time `now`; None for what was not requested or may not be read.

    The job's creationTimestamp (`created_at`) and finalizers stand beside it, since the operator's slice of a job leaves them
    out; `suspended_by` is who set `suspend` (the manager of that field), if that is known. `former` are pods
    of an earlier job of its name. `events_cut`: there were too many to read.
    `logs` are the last lines of failed containers, by (pod, container), and `last_lines` the last one of running replicas, by
    pod: silence of `silent_after_s` is reported. `forbidden` names what the user may not read ("nodes"), and `absent` what was
    asked for and does not exist. `alpha` is None for a job of v1. `stale_lease` is one beside `lease` that nobody renews;
    `deployments` (with `operator_pods`) are those of operators, and are read if no lease of the namespace is renewed.
    """

    job: TFJob
    now: datetime
    created_at: datetime | None = None
    finalizers: tuple[str, ...] = ()
    pods: Sequence[Pod] = ()
    former: Sequence[Pod] = ()
    services: Sequence[Service] | None = None
    events: Sequence[Event] = ()
    events_cut: bool = False
    nodes: Sequence[Node] | None = None
    quotas: Sequence[ResourceQuota] = ()
    limit_ranges: Sequence[LimitRange] = ()
    claims: Sequence[Claim] = ()
    namespace: Namespace | None = None
    lease: Lease | None = None
    stale_lease: Lease | None = None
    deployments: Sequence[Deployment] = ()
    operator_pods: Sequence[Pod] = ()
    crd: Crd | None = None
    workload: Workload | None = None
    pod_group: PodGroup | None = None
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    last_lines: Mapping[str, LastLine] = field(default_factory=dict)
    silent_after_s: float = 600.0
    forbidden: Sequence[str] = ()
    suspended_by: str = ""
    absent: Sequence[Absent] = ()
    alpha: AlphaEvidence | None = None
