"""What a diagnosis has to know about a job's dialect: how its specification is read, and how its replicas are named. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1 import validation
from tfjob_operator.api.v1.types import InvalidSpec, TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1 import validation as v1alpha1
from tfjob_operator.cli.diagnosis.evidence import AlphaEvidence, Evidence
from tfjob_operator.cli.diagnosis.objects import Pod

_OVER = frozenset({alpha.Phase.CLEAN_UP, alpha.Phase.DONE, alpha.Phase.FAILED})


@dataclass(frozen=True, slots=True)
class Shape:
    """How a job of either dialect is read.

    spec: the specification; of the alpha dialect with what v1 has too, but without `replicas`.
    sizes: how many replicas of each type it asks for, by v1's names of types.
    kind: that of the job, as its events have it. resource: how commands name it. label: of its pods, with its name.
    is_over: whether the status says without conditions that the job has ended, as operators of 2018 did, and how.
    runtime_id: the part of the names of all replicas, None where there is none in this dialect.
    """

    spec: TFJobSpec | InvalidSpec
    sizes: Mapping[str, int]
    kind: str = v1.TFJOBS.kind
    resource: str = "tfjob"
    label: str = v1.LABEL_PREFIX + v1.LABEL_JOB_NAME
    is_over: bool = False
    runtime_id: str | None = None

    @property
    def is_alpha(self) -> bool:
        """Whether a Job stands between the job and each pod."""
        return self.runtime_id is not None

    def child(self, job: str, kind: str, index: int) -> str:
        """Return the name of a replica: of its service, and of its pod, or in the alpha dialect of its Job."""
        if self.runtime_id is None:
            return child_name(job, kind, index)
        return f"{kind.lower()}-{self.runtime_id}-{index}"

    def replica_of(self, pod: Pod) -> str:
        """Return the name of the replica that a pod is."""
        labels = pod.metadata.labels or {}
        kind, index = labels.get(alpha.LABEL_JOB_TYPE), labels.get(alpha.LABEL_TASK_INDEX)
        if self.runtime_id is None or kind is None or index is None:
            return pod.metadata.name
        return f"{kind.lower()}-{labels.get(alpha.LABEL_RUNTIME_ID, '')}-{index}"


def shape_of(evidence: Evidence) -> Shape:
    """Return how the job is read. It raises nothing, whatever the specification."""
    job = evidence.job
    if evidence.alpha is not None:
        return _alpha(job, evidence.alpha)
    begun = job.status.begun
    spec = validation.read_spec(job.metadata.name, job.spec, was_good=begun is not None)
    return Shape(spec, spec.sizes if isinstance(spec, TFJobSpec) else begun.replicas if begun is not None else {})


def _alpha(job: TFJob, found: AlphaEvidence) -> Shape:
    status, dialect = found.job.status, found.dialect
    read = v1alpha1.read_spec(dialect, job.metadata.name, found.job.spec)
    sizes: Mapping[str, int] = status.begun.replicas if status.begun is not None else {}
    spec: TFJobSpec | InvalidSpec
    if isinstance(read, InvalidSpec):
        spec = read
    else:
        sizes = {alpha.V1_TYPES[each.type]: each.replicas for each in read.replicas}
        spec = TFJobSpec(
            replicas={},
            clean_pod_policy=read.cleanup_policy,
            success_policy=v1.SuccessPolicy.DEFAULT,
            managed_by=read.managed_by,
            warnings=read.warnings,
        )
    return Shape(
        spec,
        sizes,
        kind=dialect.resource.kind,
        resource="tfjob" if dialect is alpha.KUBEFLOW else str(dialect.resource),
        label=alpha.LABEL_JOB_NAME,
        is_over=status.phase in _OVER,
        runtime_id=status.runtime_id,
    )
