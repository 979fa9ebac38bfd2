"""Reads TFJobs. TFJobs of kubeflow.org are read in v1: the server returns jobs of all versions in this version.

TfJobs of tensorflow.org, the oldest API, are found too. A name refers to a job of kubeflow.org if there is one.
`tfjob.tensorflow.org/NAME`, as printed by kubectl, always refers to a job of tensorflow.org. Other prefixes before `/` are
rejected: a command that ignored a namespace there would change a job of the same name in another namespace.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tfjob_operator.api.v1.states import ENDS
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.model.facts import (
    GROUP,
    TENSORFLOW_GROUP,
    conditions_of,
    decided_end,
    group_of,
    is_alpha,
    spec_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfjob_operator.cli.session import Session

PLURAL: Final = "tfjobs"
FULL_NAME: Final = f"tfjob.{GROUP}"
"""The prefix of full names of jobs, as printed by kubectl."""
FIRST_NAME: Final = f"tfjob.{TENSORFLOW_GROUP}"
_KINDS: Final = frozenset({"tfjob", "tfjobs"})
_VERSIONS: Final = {GROUP: "v1", TENSORFLOW_GROUP: "v1alpha1"}
_MOST: Final = 500
"""The most events and names that are read for a hint."""
_NAMES: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_OF_CHILDREN: Final = ("SuccessfulCreate", "SuccessfulDelete")
"""The beginnings of the reasons of events that do not tell how a job ended."""
_IDENTITY: Final = ("namespace", "uid", "resourceVersion")


class NoTFJobsError(CliError):
    """The cluster does not serve this group."""


def path(namespace: str | None, name: str = "", group: str = GROUP) -> str:
    """Return the path of jobs; `namespace` is None for all namespaces.

    Importing `TFJOBS.path` would take longer than the whole command `list`.
    """
    parts = ["/apis", group, _VERSIONS[group]]
    parts += ["namespaces", quote(namespace, safe="")] if namespace else []
    parts += [PLURAL, quote(name, safe="")] if name else [PLURAL]
    return "/".join(parts)


def get(session: Session, name: str) -> dict[str, Any]:
    """Return a job. Raises ApiServerError if it does not exist, CliError if the cluster serves no TFJobs.

    The message about a job that does not exist has what is known about it.
    """
    group, bare = _split(name)
    try:
        return read(session, bare, group or GROUP)
    except ApiServerError as error:
        if not group and error.is_not_found:
            try:
                return read(session, bare, TENSORFLOW_GROUP)
            except ApiServerError as other:
                if not (other.is_not_found or other.is_denied):  # otherwise there may be such a job
                    raise
        raise _with_hint(session, bare, without_crd(session, error)) from error


def read(session: Session, name: str, group: str) -> dict[str, Any]:
    """Return a job of a group. Raises CliError."""
    return checked(session.get(path(session.namespace, name, group)), name, group)


def checked(job: dict[str, Any], name: str, group: str = GROUP) -> dict[str, Any]:
    """Return a response that is this job. Raises NoResponseError for another object, such as a proxy's."""
    from tfjob_operator.cli.session import NoResponseError, check_object

    try:
        check_object(job)
    except ValueError as error:
        raise NoResponseError(f"the response is not the TFJob {name}: is it an API server?") from error
    if group_of(job) != group or job["metadata"]["name"] != name or not is_whole(job):
        raise NoResponseError(f"the response is not the TFJob {name}: is it an API server?")
    return job


def is_whole(job: Mapping[str, Any]) -> bool:
    """Return True if a job has what is needed to change it."""
    return all(job["metadata"].get(key) for key in _IDENTITY)


def _with_hint(session: Session, name: str, error: CliError) -> CliError:
    """Add what is known about a job that does not exist: how it was deleted, or else a job with a similar name."""
    if not isinstance(error, ApiServerError) or not error.is_not_found:
        return error
    hint = ""
    with suppress(CliError):
        where = f"/api/v1/namespaces/{session.namespace}/events"
        events = session.get(where, fieldSelector=f"involvedObject.name={name}", limit=_MOST).get("items") or ()
        own = [event for event in events if str(_about(event).get("kind")).casefold() in _KINDS]
        hint = _deletion(own) or _similar(session, name)
    return ApiServerError(f"{error.message}{hint and ': '}{hint}", code=error.code, reason=error.reason)


def _similar(session: Session, name: str) -> str:
    from difflib import get_close_matches

    found = session.get(path(session.namespace), accept=_NAMES, limit=_MOST).get("items") or ()
    near = get_close_matches(name, [each["metadata"]["name"] for each in found], n=1)
    return f"did you mean {near[0]}?" if near else ""


def _deletion(events: Iterable[Mapping[str, Any]]) -> str:
    """Return how the last job with these events was deleted; "" without events."""
    dated = sorted(((at, event) for event in events if (at := _event_time(event)) is not None), key=itemgetter(0))
    if not dated:
        return ""
    own = [(at, each) for at, each in dated if _about(each).get("uid") == _about(dated[-1][1]).get("uid")]
    deleted = [at for at, each in own if each.get("reason") == "SuccessfulDeleteJob"]
    telling = [pair for pair in own if not str(pair[1].get("reason")).startswith(_OF_CHILDREN)]
    at, last = (telling or own)[-1]
    told = f"{last.get('reason')}: {last.get('message')}"
    if deleted:
        return f"it was deleted {_ago(deleted[-1])} by its TTL (ttlSecondsAfterFinished), after {told}"
    return f"it was deleted after its event of {_ago(at)}, {told}"


def _about(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return event.get("involvedObject") or {}


def _event_time(event: Mapping[str, Any]) -> datetime | None:
    series = event.get("series") or {}
    return time_of(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime"))


def _ago(at: datetime) -> str:
    return f"{duration((datetime.now(UTC) - at).total_seconds())} ago"


def _split(name: str) -> tuple[str, str]:
    """Return the group selected by a name, "" for any, and the name of the job. Raises CliError for other kinds."""
    place, slash, bare = name.rpartition("/")
    if not bare:
        raise CliError(f"{name!r} is not a job name")
    if not slash:
        return "", bare
    kind, _, group = place.lower().partition(".")
    if kind in _KINDS and (not group or group in _VERSIONS):
        return group, bare
    if kind in _KINDS:
        raise CliError(f"unknown API group {group!r}: TFJobs are of {' or '.join(_VERSIONS)}")
    there = (
        f": for a job in the namespace {place} use -n {place} {bare}" if "/" not in place and "." not in place else ""
    )
    raise CliError(f"{name!r} is not a job name{there}")


def path_of(job: Mapping[str, Any], *, alone: bool = True) -> str:
    """Return the path of a job or, if not `alone`, of all jobs in its API and namespace."""
    meta = job["metadata"]
    return path(meta["namespace"], meta["name"] if alone else "", group_of(job))


def full_name(job: Mapping[str, Any]) -> str:
    """Return a job's name as printed by kubectl."""
    return f"tfjob.{group_of(job)}/{job['metadata']['name']}"


def pages(session: Session, namespace: str | None, *, selector: str = "", fields: str = "") -> Iterator[dict[str, Any]]:
    """Yield the list of jobs of a namespace (None for all namespaces) page by page. Raises like `get`."""
    try:
        yield from session.pages(path(namespace), labelSelector=selector, fieldSelector=fields)
    except ApiServerError as error:
        raise without_crd(session, error) from error


def tensorflow_pages(
    session: Session, namespace: str | None, *, selector: str = "", fields: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the list of TfJobs of tensorflow.org like `pages`; nothing if they are not served, or without permission."""
    try:
        where = path(namespace, group=TENSORFLOW_GROUP)
        yield from session.pages(where, labelSelector=selector, fieldSelector=fields)
    except ApiServerError as error:
        if not (error.is_not_found or error.is_denied):
            raise


def without_crd(session: Session, error: ApiServerError) -> CliError:
    """Return the error, or a clearer one if TFJobs are not served: users without permission get 403 in that case too."""
    no_such_group = not error.reason  # the body is not a Status: a Status has a reason
    missing = error.is_not_found and (no_such_group or "could not find the requested resource" in error.message)
    if error.reason == "Forbidden":
        try:
            served = session.get(f"/apis/{GROUP}/{_VERSIONS[GROUP]}").get("resources") or ()
            missing = PLURAL not in {each.get("name") for each in served}
        except ApiServerError as refusal:
            missing = refusal.is_not_found
    if missing:
        return NoTFJobsError("TFJobs are not served by this cluster: the CRD tfjobs.kubeflow.org is not installed")
    return error


def time_of(text: object) -> datetime | None:
    """Return a time of a job; None if it is missing or invalid. A time without a zone is invalid: it cannot be compared."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def check_unfinished(name: str, job: Mapping[str, Any], hint: str = "") -> None:
    """Raise CliError with a hint if the job has finished, or if its end is decided."""
    ends = conditions_of(job).keys() & ENDS
    if ends:
        raise CliError(f"{name} has finished: {min(ends)}{hint}")
    if (end := decided_end(job)) is not None:
        raise CliError(f"{name} is ending, and nothing changes its outcome any more: {end['type']}{hint}")


def types_of(job: Mapping[str, Any]) -> list[str]:
    """Return the replica types of a job in lower case; none if they are unknown."""
    entries = spec_of(job).get("tfReplicaSpecs") or {}
    return [str(key).lower() for key in entries] if isinstance(entries, dict) and not is_alpha(job) else []
