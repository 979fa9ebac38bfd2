"""Reads what `status`, `watch` and `timeline` show about a job: the job, its pods, and its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError
from tfjob_operator.cli.managers import workload_of
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.model.job_events import LOGS_UNAVAILABLE
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.replica_names import ReplicaName, replica_of
from tfjob_operator.cli.model.snapshot import snapshot_of
from tfjob_operator.cli.selection import Choice, find
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.timelines.values import TimelineJob, job_of

T = TypeVar("T")
_MAX_EVENTS: Final = 10_000
"""The most pod events that are read: this many take a few seconds."""


class Waits(NamedTuple):
    """What tells why a job waits: events, or its Workload. Empty if it does not wait, or without permission."""

    events: Sequence[Mapping[str, Any]] = ()
    workload: Mapping[str, Any] | None = None


class Snapshot(NamedTuple):
    """A job and its pods at one time. `body` and `pods` are raw, `version` is the resourceVersion of the list of pods."""

    body: Mapping[str, Any]
    job: TimelineJob
    pods: Sequence[Mapping[str, Any]]
    version: str = ""


def snapshot(session: Session, name: str) -> Snapshot:
    """Read a job and its pods. Raises CliError."""
    body = jobs.get(session, name)
    selected = find(session, body, Choice())
    return Snapshot(body, job_from(body), [replica.pod for replica in selected.replicas], selected.version)


def waits_of(session: Session, job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Waits:
    """Read why a job waits, if that needs more than the job and its pods. Raises CliError."""
    seen = snapshot_of(job, pods, datetime.now(UTC).timestamp())
    try:
        if seen.job.is_suspended and seen.job.queue and not seen.job.end:
            return Waits(workload=workload_of(session, job))
        where = f"/api/v1/namespaces/{session.namespace}/events"
        needed = [*seen.needs_events()]
        if seen.state == "Running" and "progressDeadlineSeconds" in facts.mapping(facts.spec_of(job).get("runPolicy")):
            needed.append(f"involvedObject.name={seen.job.name},reason={LOGS_UNAVAILABLE}")
        lists = (session.pages(where, _MAX_EVENTS, fieldSelector=fields) for fields in needed)
        return Waits([event for pages in lists for page in pages for event in page["items"]])
    except ApiServerError as error:
        if not error.is_denied:
            raise
    return Waits()


def job_from(body: Mapping[str, Any]) -> TimelineJob:
    """Return the slice of a raw job."""
    return job_of(msgspec.json.encode(body))


def pods_from(bodies: Iterable[Mapping[str, Any]]) -> list[PodDetails]:
    """Return the pods, with only the fields that are read, and without invalid ones."""
    return [pod for body in bodies if (pod := _decoded({"kind": "Pod", **body}, PodDetails)) is not None]


def events_of(session: Session, job: TimelineJob) -> list[EventDetails]:
    """Return the events about a job, and those about pods that may belong to it. Raises CliError.

    The labels of deleted pods cannot be read, so this reads the events of all pods, up to `_MAX_EVENTS`. In the alpha dialect
    it also reads the events of the replicas' Jobs, because the Job controller reports pod problems there.
    """
    name, runtime_id = job.metadata.name, job.status.runtime_id
    own = _events(session, f"involvedObject.name={name}")
    of_pods = _events(session, "involvedObject.kind=Pod")
    if runtime_id:
        of_pods += _events(session, "involvedObject.kind=Job")
    return [
        *own,
        *(pod for pod in of_pods if replica_of(None, name, pod.involved_object.name, runtime_id) != ReplicaName()),
    ]


def _events(session: Session, selector: str) -> list[EventDetails]:
    events: list[EventDetails] = []
    where = f"/api/v1/namespaces/{session.namespace}/events"
    for page in session.pages(where, _MAX_EVENTS, fieldSelector=selector):
        bodies = ({"kind": "Event", **each} for each in page["items"])
        events += [event for body in bodies if (event := _decoded(body, EventDetails)) is not None]
    return events


def _decoded(body: Mapping[str, Any], kind: type[T]) -> T | None:
    try:
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError:
        return None
