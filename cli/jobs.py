"""Reads and changes TFJobs for the verbs: those of kubeflow.org, in v1, as which the server shows jobs of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tfjob_operator.cli.errors import ApiError, CliError
from tfjob_operator.cli.session import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfjob_operator.cli.session import Session

GROUP: Final = "kubeflow.org"
VERSION: Final = "v1"
PLURAL: Final = "tfjobs"
FULL_NAME: Final = f"tfjob.{GROUP}"
"""Before the name of a job, as kubectl prints it."""
_CHUNK: Final = 500
"""Objects in one response, as kubectl asks for them."""


def path(namespace: str | None, name: str = "") -> str:
    """Return the path of jobs; `namespace` None is all namespaces.

    It is that of `TFJOBS.path`, whose module takes longer to import than all that `list` needs.
    """
    parts = ["/apis", GROUP, VERSION]
    parts += ["namespaces", quote(namespace, safe="")] if namespace else []
    parts += [PLURAL, quote(name, safe="")] if name else [PLURAL]
    return "/".join(parts)


def get(session: Session, name: str) -> dict[str, Any]:
    """Return a job. Raises ApiError when it is not there, CliError when the cluster has no TFJobs at all."""
    try:
        job: dict[str, Any] = session.get(path(session.namespace, name))
    except ApiError as error:
        raise without_crd(error) from error
    return job


def read(session: Session, name: str) -> bytes:
    """Return a job as it came. Raises as `get` does."""
    try:
        return session.read(path(session.namespace, name))
    except ApiError as error:
        raise without_crd(error) from error


def pages(
    session: Session, namespace: str | None, *, selector: str = "", accept: str = JSON
) -> Iterator[dict[str, Any]]:
    """Yield a list of the jobs of a namespace, or with None of all, page by page. Raises as `get` does."""
    following = ""
    while True:
        more = {"continue": following}
        try:
            page = session.get(path(namespace), accept=accept, labelSelector=selector, limit=_CHUNK, **more)
        except ApiError as error:
            raise without_crd(error) from error
        yield page
        following = page["metadata"].get("continue", "")
        if not following:
            return


def create(session: Session, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
    """Create a job. Raises as `get` does."""
    try:
        job: dict[str, Any] = session.create(path(session.namespace), body, fieldManager="kubectl-tfjob", **query)
    except ApiError as error:
        raise without_crd(error) from error
    return job


def patch(session: Session, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Change a job. Raises as `get` does."""
    try:
        job: dict[str, Any] = session.patch(path(session.namespace, name), body, fieldManager="kubectl-tfjob")
    except ApiError as error:
        raise without_crd(error) from error
    return job


def without_crd(error: ApiError) -> CliError:
    """Return the error, or a clearer one where the server knows no TFJobs at all."""
    no_such_group = not error.reason  # not a Status, which has a reason
    if error.is_not_found and (no_such_group or "could not find the requested resource" in error.message):
        return CliError(
            "this cluster has no TFJobs: the operator's CRD is not installed (kubectl get crd tfjobs.kubeflow.org)"
        )
    return error


def conditions_of(job: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of a job that are True, by type."""
    found = (job.get("status") or {}).get("conditions") or []
    return {str(each.get("type")): each for each in found if each.get("status") == "True"}


def spec_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the specification of a job, an empty one where there is none."""
    return job.get("spec") or {}


def is_alpha(job: Mapping[str, Any]) -> bool:
    """Whether a job is written in the alpha dialect."""
    return any(key.casefold() == "replicaspecs" for key in spec_of(job))


def types_of(job: Mapping[str, Any]) -> list[str]:
    """Return the types of a job's replicas, in small letters; none where they cannot be told."""
    entries = spec_of(job).get("tfReplicaSpecs") or {}
    return [str(key).lower() for key in entries] if isinstance(entries, dict) and not is_alpha(job) else []


def only(uid: str, version: str = "") -> dict[str, Any]:
    """Return the options of a delete of the object with this UID only, and with `version` only if it has not changed since."""
    conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
