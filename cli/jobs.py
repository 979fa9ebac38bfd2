"""Reads and changes TFJobs for the verbs: those of kubeflow.org, in v1, as which the server shows jobs of every version.

TfJobs of tensorflow.org, the first of all versions, are found too: a name means one of kubeflow.org, if there is one, and
`tfjob.tensorflow.org/NAME` always one of tensorflow.org, as kubectl prints names. Nothing else stands before a `/`: a namespace
there would be dropped, and a job of the same name in another namespace changed.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from tfjob_operator.cli.errors import ApiError, CliError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfjob_operator.cli.session import Session

T = TypeVar("T")
GROUP: Final = "kubeflow.org"
PLURAL: Final = "tfjobs"
FULL_NAME: Final = f"tfjob.{GROUP}"
"""Before the name of a job, as kubectl prints it."""
FIRST_GROUP: Final = "tensorflow.org"
"""The group of the first version, v1alpha1."""
FIRST_NAME: Final = f"tfjob.{FIRST_GROUP}"
_KINDS: Final = frozenset({"tfjob", "tfjobs"})
_VERSIONS: Final = {GROUP: "v1", FIRST_GROUP: "v1alpha1"}
_CHUNK: Final = 500
"""Objects in one response, as kubectl asks for them."""


class NoTFJobsError(CliError):
    """The cluster has no API of this group."""


def path(namespace: str | None, name: str = "", group: str = GROUP) -> str:
    """Return the path of jobs, None for all namespaces: `TFJOBS.path` takes longer to import than all of `list`."""
    parts = ["/apis", group, _VERSIONS[group]]
    parts += ["namespaces", quote(namespace, safe="")] if namespace else []
    parts += [PLURAL, quote(name, safe="")] if name else [PLURAL]
    return "/".join(parts)


def get(session: Session, name: str) -> dict[str, Any]:
    """Return a job. Raises ApiError when it is not there, CliError when the cluster has no TFJobs at all."""
    job: dict[str, Any] = _found(session.get, session, name)
    return job


def read(session: Session, name: str) -> bytes:
    """Return a job as it came. Raises as `get` does."""
    return _found(session.read, session, name)


def _found(read: Callable[[str], T], session: Session, name: str) -> T:
    group, bare = _split(name)
    try:
        return read(path(session.namespace, bare, group or GROUP))
    except ApiError as error:
        if not group and error.is_not_found:
            with suppress(ApiError):
                return read(path(session.namespace, bare, FIRST_GROUP))
        raise _without_crd(session, error) from error


def _split(name: str) -> tuple[str, str]:
    """Return the group that a name asks for, "" for any, and the name of the job. Raises CliError for other kinds."""
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
    """Return the path of a job that was read, or if not `alone` of all jobs beside it."""
    meta = job["metadata"]
    return path(meta["namespace"], meta["name"] if alone else "", group_of(job))


def group_of(job: Mapping[str, Any]) -> str:
    """Return the API group that a job is of."""
    return FIRST_GROUP if str(job.get("apiVersion", "")).startswith(f"{FIRST_GROUP}/") else GROUP


def full_name(job: Mapping[str, Any]) -> str:
    """Return a job's name as kubectl prints it."""
    return f"tfjob.{group_of(job)}/{job['metadata']['name']}"


def pages(session: Session, namespace: str | None, *, selector: str = "", fields: str = "") -> Iterator[dict[str, Any]]:
    """Yield a list of the jobs of a namespace, or with None of all, page by page. Raises as `get` does."""
    try:
        yield from chunks(session, path(namespace), labelSelector=selector, fieldSelector=fields)
    except ApiError as error:
        raise _without_crd(session, error) from error


def chunks(session: Session, where: str, most: int = sys.maxsize, **query: str) -> Iterator[dict[str, Any]]:
    """Yield a list of any objects in pages of `_CHUNK`, up to the page that reaches `most` objects."""
    following, count = "", 0
    while True:
        page = session.get(where, limit=_CHUNK, **query, **{"continue": following})
        yield page
        count += len(page.get("items") or ())
        following = page["metadata"].get("continue", "")
        if not following or count >= most:
            return


def first_pages(
    session: Session, namespace: str | None, *, selector: str = "", fields: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield a list of TfJobs of tensorflow.org as `pages` does; nothing where there are none, or they may not be read."""
    try:
        where = path(namespace, group=FIRST_GROUP)
        yield from chunks(session, where, labelSelector=selector, fieldSelector=fields)
    except ApiError as error:
        if not (error.is_not_found or error.is_denied):
            raise


def create(session: Session, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
    """Create a job. Raises as `get` does."""
    try:
        job: dict[str, Any] = session.create(path(session.namespace), body, fieldManager="kubectl-tfjob", **query)
    except ApiError as error:
        raise _without_crd(session, error) from error
    return job


def patch(session: Session, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Change a job. Raises as `get` does."""
    try:
        job: dict[str, Any] = session.patch(path(session.namespace, name), body, fieldManager="kubectl-tfjob")
    except ApiError as error:
        raise _without_crd(session, error) from error
    return job


def _without_crd(session: Session, error: ApiError) -> CliError:
    """Return the error, or a clearer one where the server knows no TFJobs at all: who lacks their rights gets 403 there."""
    no_such_group = not error.reason  # not a Status, which has a reason
    missing = error.is_not_found and (no_such_group or "could not find the requested resource" in error.message)
    if error.reason == "Forbidden":
        try:
            served = session.get(f"/apis/{GROUP}/{_VERSIONS[GROUP]}").get("resources") or ()
            missing = PLURAL not in {each.get("name") for each in served}
        except ApiError as refusal:
            missing = refusal.is_not_found
    if missing:
        return NoTFJobsError("TFJobs are not served by this cluster: the CRD tfjobs.kubeflow.org is not installed")
    return error


def conditions_of(job: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a job that are True, by type."""
    found = (job.get("status") or {}).get("conditions") or []
    return {str(each.get("type")): each for each in found if each.get("status") == "True"}


def check_unfinished(name: str, job: Mapping[str, Any], hint: str = "") -> None:
    """Raise CliError, with a hint, for a job that has succeeded or failed."""
    over = conditions_of(job).keys() & {"Succeeded", "Failed"}
    if over:
        raise CliError(f"{name} has finished: {min(over)}{hint}")


def spec_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the specification of a job, an empty one where there is none."""
    return job.get("spec") or {}


def is_alpha(job: Mapping[str, Any]) -> bool:
    """Whether a job is written in the alpha dialect, which has `replicaSpecs`."""
    return group_of(job) == FIRST_GROUP or any(key.casefold() == "replicaspecs" for key in spec_of(job))


def types_of(job: Mapping[str, Any]) -> list[str]:
    """Return the types of a job's replicas, in small letters; none where they cannot be told."""
    entries = spec_of(job).get("tfReplicaSpecs") or {}
    return [str(key).lower() for key in entries] if isinstance(entries, dict) and not is_alpha(job) else []


def only(uid: str, version: str = "") -> dict[str, Any]:
    """Return the options of a delete of the object with this UID only, and with `version` only if it has not changed since."""
    conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
