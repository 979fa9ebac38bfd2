"""Structs with the fields of jobs, pods and events that the page needs; finds the job that an object belongs to. Pure.

A job is identified by NAMESPACE/NAME, or NAMESPACE/tfjob.tensorflow.org/NAME in the oldest API; paths of the page have the same
form. The part before the last "/" is called a *place*: it stands for an API and a namespace. Permissions for jobs are checked
per place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, with_readable_status
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1.types import SetStatus, is_alpha
from tfjob_operator.cli.model.objects import EventDetails, PodDetails

TENSORFLOW_V1ALPHA1: Final = alpha.TENSORFLOW.resource
"""The resource of the oldest version, v1alpha1."""
TENSORFLOW_V1ALPHA1_NAME: Final = f"tfjob.{TENSORFLOW_V1ALPHA1.group}"
"""The prefix of the name of such a job, as printed by kubectl."""


class JobKey(NamedTuple):
    """The parts of a job's key."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        middle = f"{TENSORFLOW_V1ALPHA1_NAME}/" if self.resource == TENSORFLOW_V1ALPHA1 else ""
        return f"{self.namespace}/{middle}{self.name}"

    @property
    def place(self) -> str:
        """The place of the job."""
        return str(self).rpartition("/")[0]

    @property
    def full_name(self) -> str:
        """The name by which plugin commands find exactly this job."""
        return f"tfjob.{self.resource.group}/{self.name}"


def read_key(key: str) -> JobKey:
    """Parse any text as the key of a job. Text that is not a key causes no error: no job has such a key."""
    place, _, name = key.rpartition("/")
    namespace, _, kind = place.partition("/")
    return JobKey(TENSORFLOW_V1ALPHA1 if kind == TENSORFLOW_V1ALPHA1_NAME else c.TFJOBS, namespace, name)


def namespaces_in(places: Iterable[str], resource: Resource) -> frozenset[str]:
    """Return the namespaces of the places (API and namespace) that belong to this API."""
    found = (read_key(f"{place}/") for place in places)
    return frozenset(each.namespace for each in found if each.resource == resource)


POD_SELECTOR: Final = c.LABEL_OPERATOR_NAME
"""Selects pods of jobs of both dialects: all have this label, with any value."""
_OF_REPLICA: Final = re.compile(rf"(.+)-(?:{'|'.join(c.REPLICA_TYPES)})-\d+", re.IGNORECASE)
_OF_ALPHA_REPLICA: Final = re.compile(
    rf"(?:.+-)?(?:{'|'.join(alpha.ReplicaType)})-([a-z0-9](?:[a-z0-9-]*?[a-z0-9])??)-\d{{1,5}}(?:-[a-z0-9]{{5}})?",
    re.IGNORECASE,
)
"""The Job of a replica, or its pod: `worker-x7ab-0`, `worker-x7ab-0-abcde`; prefixed with the job's name since 2017."""


class PageJobStatus(JobStatus, frozen=True):
    """The status of a job.

    `runtime_id` is a part of the names of its replicas in the alpha dialect, "" in others, and `state` its outcome.
    """

    runtime_id: str = msgspec.field(default="", name="runtimeId")
    state: str = ""


class TensorFlowV1Alpha1Status(PageJobStatus, frozen=True):
    """The status in the oldest API. `sets` is its array `replicaStatuses`; `replica_statuses` is derived from `sets`."""

    sets: tuple[SetStatus, ...] | None = msgspec.field(default=None, name="replicaStatuses")
    replica_statuses: dict[str, ReplicaStatus] = msgspec.field(default_factory=dict, name="")

    def __post_init__(self) -> None:
        names: dict[str, str] = {each.value: name for each, name in alpha.V1_TYPES.items()}
        found = {
            names.get(replicas.tf_replica_type, replicas.tf_replica_type): ReplicaStatus(
                active=replicas.replicas_states.get(alpha.AlphaState.RUNNING, 0),
                succeeded=replicas.replicas_states.get(alpha.AlphaState.SUCCEEDED, 0),
                failed=replicas.replicas_states.get(alpha.AlphaState.FAILED, 0),
            )
            for replicas in self.sets or ()
        }
        msgspec.structs.force_setattr(self, "replica_statuses", found)


class PageJob(TFJob, frozen=True, tag_field="kind", tag=c.TFJOBS.kind):
    """A TFJob with more status fields than the operator reads."""

    status: PageJobStatus = PageJobStatus()

    @property
    def resource(self) -> Resource:
        """The API of the job."""
        return c.TFJOBS

    @property
    def key(self) -> str:
        """The key of the job, see `JobKey`."""
        return str(JobKey(self.resource, self.metadata.namespace, self.metadata.name))

    @property
    def is_alpha(self) -> bool:
        """True if each pod belongs to a batch/v1 Job."""
        return bool(self.status.phase) or is_alpha(self.spec)


class TensorFlowV1Alpha1Job(PageJob, frozen=True, tag_field="kind", tag=TENSORFLOW_V1ALPHA1.kind):
    """A TfJob of tensorflow.org, the oldest API."""

    status: TensorFlowV1Alpha1Status = TensorFlowV1Alpha1Status()

    @property
    def resource(self) -> Resource:
        """The API of the job."""
        return TENSORFLOW_V1ALPHA1

    @property
    def is_alpha(self) -> bool:
        """Always True."""
        return True


J = TypeVar("J", bound=PageJob)
_READ_ANYWAY: Final = "conditions", "phase", "runtimeId"
"""The fields that are shown of a status that cannot be decoded completely."""


def with_unreadable_status(kind: type[J]) -> Callable[[bytes, Exception], J]:
    """Return the decoder for a job with an unreadable status, see `with_readable_status`."""
    return lambda raw, _: with_readable_status(raw, kind, *_READ_ANYWAY)


def by_job_of_pod(pod: PodDetails) -> Sequence[str]:
    """Index pods by the key of the job that they were created for."""
    labels = pod.metadata.labels or {}
    name = labels.get(c.LABEL_PREFIX + c.LABEL_JOB_NAME) or labels.get(alpha.LABEL_JOB_NAME, "")
    resource = TENSORFLOW_V1ALPHA1 if alpha.TENSORFLOW.label in labels else c.TFJOBS
    return (str(JobKey(resource, pod.metadata.namespace, name)),) if name else ()


def marks_of_event(event: EventDetails) -> Sequence[str]:
    """Return the key of the job that an event may be about, or a mark made of the job's RuntimeId; () for no job.

    The pod may have been deleted, so only the pod's name is used. The name contains the job's name or, in the alpha dialect,
    the job's RuntimeId.
    """
    namespace, about = event.metadata.namespace, event.involved_object
    for resource in (c.TFJOBS, TENSORFLOW_V1ALPHA1):
        if about.kind == resource.kind:
            return (str(JobKey(resource, namespace, about.name)),)
    match = _OF_REPLICA.fullmatch(about.name) if about.kind == "Pod" else None
    if match is not None:
        return (str(JobKey(c.TFJOBS, namespace, match[1])),)
    match = _OF_ALPHA_REPLICA.fullmatch(about.name) if about.kind in {"Pod", "Job"} else None
    return (runtime_mark(namespace, match[1]),) if match is not None else ()


def runtime_mark(namespace: str, runtime_id: str) -> str:
    """Return the mark of a RuntimeId, which is never a job's key."""
    return f"{namespace}/~{runtime_id}/"


def is_runtime_mark(mark: str) -> bool:
    """Return True if a mark is that of a RuntimeId, and not the key of a job."""
    return mark.endswith("/")


def marks_of_job(job: PageJob) -> Sequence[str]:
    """Index jobs by the marks of their RuntimeIds."""
    runtime_id = job.status.runtime_id
    return (runtime_mark(job.metadata.namespace, runtime_id),) if runtime_id else ()
