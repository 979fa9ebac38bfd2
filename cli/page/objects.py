"""What the page keeps of the cluster: slices of jobs, pods and events, and which job each belongs to. Pure.

A job is named NAMESPACE/NAME, and NAMESPACE/tfjob.tensorflow.org/NAME if it is of the first API; addresses of the page have the
same form. What stands before the last "/" is a *place*, an API and a namespace: what rights to jobs are about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, with_readable_status
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.api.v1alpha1.types import SetStatus, is_alpha
from tfjob_operator.cli.diagnosis.objects import Event, Pod

FIRST: Final = TENSORFLOW.resource
"""The resource of the first version, v1alpha1."""
FIRST_NAME: Final = f"tfjob.{FIRST.group}"
"""Before the name of such a job, as kubectl prints it."""


class JobKey(NamedTuple):
    """What the key of a job says."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        middle = f"{FIRST_NAME}/" if self.resource == FIRST else ""
        return f"{self.namespace}/{middle}{self.name}"

    @property
    def full_name(self) -> str:
        """The name by which the verbs of the plugin find this job and no other."""
        return f"tfjob.{self.resource.group}/{self.name}"


def read_key(key: str) -> JobKey:
    """Return what a key says. Whatever is sent as one: for what is none there is no job."""
    place, _, name = key.rpartition("/")
    namespace, _, kind = place.partition("/")
    return JobKey(FIRST if kind == FIRST_NAME else TFJOBS, namespace, name)


def place_of(key: str) -> str:
    """Return the place of a job."""
    return key.rpartition("/")[0]


def places_of(resource: Resource, namespaces: Iterable[str]) -> frozenset[str]:
    """Return the places of the jobs of one API in these namespaces."""
    return frozenset(place_of(str(JobKey(resource, each, ""))) for each in namespaces)


def namespaces_in(places: Iterable[str], resource: Resource) -> frozenset[str]:
    """Return the namespaces of those places that are of one API."""
    found = (read_key(f"{each}/") for each in places)
    return frozenset(each.namespace for each in found if each.resource == resource)


POD_SELECTOR: Final = c.LABEL_OPERATOR_NAME
"""Pods of jobs, of both dialects: all of them bear this label, whatever its value."""
_OF_REPLICA: Final = re.compile(rf"(.+)-(?:{'|'.join(c.REPLICA_TYPES)})-\d+", re.IGNORECASE)
_OF_ALPHA_REPLICA: Final = re.compile(
    rf"(?:.+-)?(?:{'|'.join(alpha.ReplicaType)})-([a-z0-9](?:[a-z0-9-]*?[a-z0-9])??)-\d{{1,5}}(?:-[a-z0-9]{{5}})?",
    re.IGNORECASE,
)
"""The Job of a replica, or its pod: `worker-x7ab-0`, `worker-x7ab-0-abcde`; before it the job's name, as in 2017."""


class Status(JobStatus, frozen=True):
    """The status of a job. `runtime_id` is a part of the names of its replicas in the alpha dialect, "" in others."""

    runtime_id: str = ""


class FirstStatus(Status, frozen=True):
    """The status in the first API, in which `replicaStatuses` is an array, `sets`; `replica_statuses` are made of it."""

    sets: tuple[SetStatus, ...] | None = msgspec.field(default=None, name="replicaStatuses")
    replica_statuses: dict[str, ReplicaStatus] = msgspec.field(default_factory=dict, name="")

    def __post_init__(self) -> None:
        names: dict[str, str] = {each.value: name for each, name in alpha.V1_TYPES.items()}
        found = {
            names.get(each.tf_replica_type, each.tf_replica_type): ReplicaStatus(
                active=each.replicas_states.get(alpha.State.RUNNING, 0),
                succeeded=each.replicas_states.get(alpha.State.SUCCEEDED, 0),
                failed=each.replicas_states.get(alpha.State.FAILED, 0),
            )
            for each in self.sets or ()
        }
        msgspec.structs.force_setattr(self, "replica_statuses", found)


class Job(TFJob, frozen=True, tag_field="kind", tag=c.TFJOBS.kind):
    """A TFJob with more of its status than the operator reads."""

    status: Status = Status()

    @property
    def resource(self) -> Resource:
        """The API in which it was found."""
        return c.TFJOBS

    @property
    def key(self) -> str:
        """Its key, see `JobKey`."""
        return str(JobKey(self.resource, self.metadata.namespace, self.metadata.name))

    @property
    def is_alpha(self) -> bool:
        """Whether a Job of batch/v1 stands between this job and each of its pods."""
        return bool(self.status.phase) or is_alpha(self.spec)


class FirstJob(Job, frozen=True, tag_field="kind", tag=FIRST.kind):
    """A TfJob of tensorflow.org, the first API."""

    status: FirstStatus = FirstStatus()

    @property
    def resource(self) -> Resource:
        """The API in which it was found."""
        return FIRST

    @property
    def is_alpha(self) -> bool:
        """All are."""
        return True


J = TypeVar("J", bound=Job)
_READ_ANYWAY: Final = "conditions", "phase", "runtimeId"
"""What is shown of a status that does not decode, as far as it does."""


def with_unreadable_status(kind: type[J]) -> Callable[[bytes, Exception], J]:
    """Return what decodes a job whose status does not decode, see `with_readable_status`."""
    return lambda raw, _: with_readable_status(raw, kind, *_READ_ANYWAY)


def by_job_of_pod(pod: Pod) -> Sequence[str]:
    """Index pods by the key of the job that they were created for."""
    labels = pod.metadata.labels or {}
    name = labels.get(c.LABEL_PREFIX + c.LABEL_JOB_NAME) or labels.get(alpha.LABEL_JOB_NAME, "")
    resource = FIRST if alpha.TENSORFLOW.label in labels else c.TFJOBS
    return (str(JobKey(resource, pod.metadata.namespace, name)),) if name else ()


def marks_of_event(event: Event) -> Sequence[str]:
    """Return whom an event may be about: the key of a job, or the mark of its RuntimeId; nothing if it is about no job.

    A pod may be gone by now, so its name has to tell: it has the job's name in it, or in the alpha dialect its RuntimeId.
    """
    namespace, about = event.metadata.namespace, event.involved_object
    for resource in (c.TFJOBS, FIRST):
        if about.kind == resource.kind:
            return (str(JobKey(resource, namespace, about.name)),)
    found = _OF_REPLICA.fullmatch(about.name) if about.kind == "Pod" else None
    if found is not None:
        return (str(JobKey(c.TFJOBS, namespace, found[1])),)
    found = _OF_ALPHA_REPLICA.fullmatch(about.name) if about.kind in {"Pod", "Job"} else None
    return (runtime_mark(namespace, found[1]),) if found is not None else ()


def runtime_mark(namespace: str, runtime_id: str) -> str:
    """Return the mark of a RuntimeId; no job has such a key."""
    return f"{namespace}/~{runtime_id}/" if runtime_id else ""


def is_runtime_mark(mark: str) -> bool:
    """Whether a mark is that of a RuntimeId, and not the key of a job."""
    return mark.endswith("/")


def marks_of_job(job: Job) -> Sequence[str]:
    """Index jobs by the marks of their RuntimeIds."""
    mark = runtime_mark(job.metadata.namespace, job.status.runtime_id)
    return (mark,) if mark else ()
