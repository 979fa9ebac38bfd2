"""Selects pods of a job by type, index, or name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import click

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target
from tfjob_operator.cli.watches import Watch, watched

F = TypeVar("F", bound="Callable[..., Any]")
_V1: Final = tuple(c.LABEL_PREFIX + each for each in (c.LABEL_JOB_NAME, c.LABEL_REPLICA_TYPE, c.LABEL_REPLICA_INDEX))
_ALPHA: Final = (alpha.LABEL_JOB_NAME, alpha.LABEL_JOB_TYPE, alpha.LABEL_TASK_INDEX)
"""The labels of pods: job, type and index."""
_KEYS: Final = ("types", "indices", "names")


@dataclass(frozen=True, slots=True)
class ReplicaPod:
    """A raw pod of a job, with the type and index of its replica."""

    type: str
    index: int
    pod: dict[str, Any]

    @property
    def name(self) -> str:
        """The name for users, such as worker-0."""
        return f"{self.type}-{self.index}"

    @property
    def pod_name(self) -> str:
        """Return the name of the pod."""
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Return the UID of the pod."""
        return str(self.pod["metadata"]["uid"])

    @property
    def phase(self) -> str:
        """Return the phase of the pod, "" before it has one."""
        return str((self.pod.get("status") or {}).get("phase", ""))


@dataclass(frozen=True, slots=True)
class Choice:
    """Selected replicas: those with these types and indices, and those with these names; all if nothing is given."""

    types: frozenset[str] = frozenset()
    indices: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()

    def takes(self, type_: str, index: int) -> bool:
        """Return True if a replica is selected."""
        if f"{type_}-{index}" in self.names:
            return True
        if not self.types and not self.indices:
            return not self.names
        return (not self.types or type_ in self.types) and (not self.indices or index in self.indices)

    def of(self, name: str, job: Mapping[str, Any]) -> Choice:
        """Return the selection with pod names resolved to replicas. Raises CliError for types that the job does not have."""
        kinds = jobs.types_of(job)
        prefix = f"{job['metadata']['name']}-"
        dashes = prefix.count("-")  # in a job called worker, worker-0 is still a replica
        names = frozenset(each.removeprefix(prefix) if each.count("-") > dashes else each for each in self.names)
        asked = {*self.types, *(each.rpartition("-")[0] for each in names)}
        unknown = sorted(asked - set(kinds)) if kinds else []
        if unknown:
            raise CliError(f"{name} has no replicas of type {unknown[0]}: it has {', '.join(sorted(kinds))}")
        return Choice(self.types, self.indices, names)


def replica_options(command: F) -> F:
    """Add --type, --index and --replica to a command, as a single argument `choice`."""
    from functools import wraps

    @click.option("--type", "types", multiple=True, metavar="TYPE", help="Only replicas of this type, such as worker.")
    @click.option(
        "--index",
        "indices",
        multiple=True,
        type=click.IntRange(min=0),
        metavar="NUMBER",
        help="Only replicas of this index.",
    )
    @click.option(
        "--replica",
        "names",
        multiple=True,
        metavar="NAME",
        callback=_names,
        help="Only this replica, such as worker-0.",
    )
    @wraps(command)
    def with_choice(**given: Any) -> Any:
        types, indices, names = (given.pop(key) for key in _KEYS)
        choice = Choice(frozenset(map(str.lower, types)), frozenset(indices), frozenset(names))
        return command(choice=choice, **given)

    return with_choice  # type: ignore[return-value]


def replica_name(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """Return the name of a replica in lower case. Raises BadParameter if it is invalid."""
    kind, _, index = (given or "").rpartition("-")
    if given and not (kind and index.isdecimal() and index.isascii()):
        raise click.BadParameter(f"{given!r} is not a replica such as worker-0")
    return given and given.lower()


def _names(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for each in given if (name := replica_name(ctx, option, each)))


def pods_path(namespace: str, name: str = "") -> str:
    """Return the path of pods, or of one."""
    return f"/api/v1/namespaces/{namespace}/pods{f'/{name}' if name else ''}"


_MAX_LABEL: Final = 63
"""The most characters of a label's value."""


def selector_of(job: Mapping[str, Any]) -> str:
    """Return the label selector for the pods of a job, in its dialect."""
    name = job["metadata"]["name"]
    if len(name) > _MAX_LABEL:  # the operator creates no pods for such a job
        return f"{_V1[0]},!{_V1[0]}"
    if facts.is_alpha(job):  # both APIs have this label, each with an additional one
        return f"{_ALPHA[0]}={name},{facts.group_of(job)}"
    return f"{_V1[0]}={name}"


def replica_of(pod: dict[str, Any], job_uid: str) -> ReplicaPod | None:
    """Return the replica of a pod; None for a pod of another job, or without a replica."""
    meta = pod["metadata"]
    owners = [reference for reference in meta.get("ownerReferences") or () if reference.get("controller")]
    if owners and owners[0].get("uid") != job_uid and not _is_of_alpha_pod(owners[0]):
        return None
    labels = meta.get("labels") or {}
    for _, kind, index in (_V1, _ALPHA):
        if kind in labels and str(labels.get(index, "")).isdecimal():
            return ReplicaPod(str(labels[kind]).lower(), int(labels[index]), pod)
    return None


def _is_of_alpha_pod(owner: Mapping[str, Any]) -> bool:
    """Return True if the owner is a batch Job: in the alpha dialect each pod belongs to one."""
    return bool(owner.get("kind") == "Job")


class SelectedPods(NamedTuple):
    """The selected pods of a job, sorted, and the resourceVersion of their list."""

    replicas: Sequence[ReplicaPod]
    version: str


def find(session: Session, job: Mapping[str, Any], choice: Choice) -> SelectedPods:
    """Read the selected pods of a job. Raises CliError."""
    items: list[dict[str, Any]] = []
    version = ""
    for page in session.pages(pods_path(session.namespace), labelSelector=selector_of(job)):
        items += page["items"]
        version = page["metadata"].get("resourceVersion") or ""
    return SelectedPods(chosen(items, job, choice), version)


def chosen(pods: Iterable[dict[str, Any]], job: Mapping[str, Any], choice: Choice) -> list[ReplicaPod]:
    """Return the selected pods of a job, sorted by type and index."""
    found = (replica_of(pod, job["metadata"]["uid"]) for pod in pods)
    return sorted(
        (pod for pod in found if pod is not None and choice.takes(pod.type, pod.index)),
        key=lambda each: (each.type, each.index),
    )


def no_pods_error(target: Target, name: str, job: Mapping[str, Any], choice: Choice) -> CliError:
    """Return the error that explains why there are no pods."""
    here = str(job["metadata"]["namespace"])
    if choice != Choice():
        if (at := _restart_time(job, choice, datetime.now(UTC))) is not None:
            return CliError(
                f"no pods of these replicas of {name} yet: their restart is delayed until {at:%H:%M:%S} UTC"
            )
        look = target.command(here, "get", "pods", f"--selector={selector_of(job)}")
        return CliError(f"no pods of these replicas of {name}: see {look}")
    ended = facts.conditions_of(job)
    ends = ended.keys() & {"Succeeded", "Failed"}
    failed = ended.get("Failed", {})
    if failed.get("reason") == c.ConditionReason.INVALID:
        return CliError(
            f"{name} failed before its pods were created: see {target.command(here, 'tfjob', 'explain', name)}"
        )
    limit = c.limit_of(str(failed.get("reason")), str(failed.get("message")))
    if limit is not None:
        return CliError(
            f"{name} has failed ({limit}), and at a limit running pods are deleted, whatever cleanPodPolicy is; "
            "terminationMessagePolicy: FallbackToLogsOnError of a container keeps its last lines in the job's condition"
        )
    if ends:
        return CliError(f"{name} has {min(ends).lower()} and its pods were deleted; cleanPodPolicy None keeps them")
    return CliError(f"{name} has no pods: see {target.command(here, 'tfjob', 'explain', name)}")


def _restart_time(job: Mapping[str, Any], choice: Choice, now: datetime) -> datetime | None:
    """Return when the first of these replicas will be restarted; None if none of their restarts is delayed."""
    status = job.get("status") or {}
    times = [
        jobs.time_of(restart.get("nextTime"))
        for restart in status.get("restarts") or ()
        if choice.takes(str(restart.get("type")).lower(), restart.get("index", -1))
    ]
    history, begun = status.get("attemptHistory") or [{}], status.get("begun") or {}
    if (ended := jobs.time_of(history[-1].get("endTime"))) is not None:  # for a delay of the whole job
        times.append(ended + timedelta(seconds=begun.get("delaySeconds") or 0))
    return min((moment for moment in times if moment is not None and moment > now), default=None)


def container_of(pod: Mapping[str, Any], name: str | None) -> str | None:
    """Return the container `name` or, without a `name`, the training container. None if the pod has no such container."""
    spec = pod.get("spec") or {}
    regular = [str(container["name"]) for container in spec.get("containers") or ()]
    if name is not None:
        every = [*regular, *(str(container["name"]) for container in spec.get("initContainers") or ())]
        return name if name in every else None
    return c.CONTAINER_NAME if c.CONTAINER_NAME in regular or not regular else regular[0]


def pod_lists(
    session: Session,
    job: Mapping[str, Any],
    choice: Choice,
    *,
    pause: Callable[[float], None],
    warn: Callable[[str], None],
) -> Iterator[Sequence[ReplicaPod]]:
    """Yield the sorted selected pods of a job now and after every change, without end. `pause` sleeps.

    See `watches.watched`. Raises CliError if the user may not list or watch pods.
    """

    def read() -> tuple[dict[str, dict[str, Any]], Sequence[Watch]]:
        selected = find(session, job, choice)
        watch = Watch(pods_path(session.namespace), selected.version, selector_of(job))
        return {replica.uid: replica.pod for replica in selected.replicas}, [watch]

    for pods, _, event in watched(session, read, "its pods", pause=pause, warn=warn):
        if event is not None:
            pod = event["object"]
            if event["type"] == "DELETED":
                pods.pop(pod["metadata"]["uid"], None)
            else:
                pods[pod["metadata"]["uid"]] = pod
        yield chosen(pods.values(), job, choice)
