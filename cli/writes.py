"""Creates, patches and deletes objects. If a response is lost, the object is read, and the user learns what happened."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import UNKNOWN, ApiServerError, CliError, warn
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.session import NoResponseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfjob_operator.cli.session import Session

_MANAGER: Final = "kubectl-tfjob"
MAX_SENDS: Final = 3
READ_WITHIN_S: Final = 30.0
"""How long reading the object is retried: an API server that cut a connection may be restarting."""
_UNCLEAR: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
"""Responses to a repeated request that its predecessor may have caused."""


class UnknownOutcomeError(CliError):
    """A write may have taken effect."""

    exit_code = UNKNOWN


def _confirmed(
    send: Callable[[str], dict[str, Any]],
    read: Callable[[], dict[str, Any]],
    took_effect: Callable[[dict[str, Any] | None], bool | None],
    look: str,
) -> dict[str, Any] | None:
    """Return the response to a write. If there is none, return the object if the write took effect, None if it is gone.

    `send` takes the resourceVersion that the object must have, "" at first. `took_effect` of an object returns None if that is
    unknown. `look` is a command for the user. If the write did not take effect, it is sent again.
    Raises CliError.
    """
    version, unclear = "", frozenset[HTTPStatus]()
    failure: CliError
    for attempt in range(MAX_SENDS):
        try:
            return send(version)
        except NoResponseError as error:
            failure = error
        except ApiServerError as error:
            if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in unclear:
                raise
            failure = error
        found = _read_again(read, failure, look)
        effect = took_effect(found)
        if effect:
            warn(f"{failure.message}; the request took effect")
            return found
        if isinstance(failure, ApiServerError) and (
            effect is None or failure.code != HTTPStatus.CONFLICT or attempt == 0
        ):
            raise failure
        if effect is None:
            break
        warn(f"{failure.message}; the request did not take effect and is sent again")
        version, unclear = found["metadata"].get("resourceVersion", "") if found else "", _UNCLEAR
    raise failure if isinstance(failure, ApiServerError) else _unknown(failure, look)


def _read_again(read: Callable[[], dict[str, Any]], failure: CliError, look: str) -> dict[str, Any] | None:
    """Return the object, None if there is none. Raises UnknownOutcomeError."""
    from tfjob_operator.cli.watches import retried

    answers = isinstance(failure, ApiServerError) and failure.code < HTTPStatus.INTERNAL_SERVER_ERROR
    until = time.monotonic() + (0.0 if answers else READ_WITHIN_S)

    def found() -> dict[str, Any] | None:
        try:
            return read()
        except ApiServerError as error:
            if not error.is_not_found:
                raise
            return None

    try:
        return retried(found, "the object", pause=time.sleep, warn=warn, left=lambda: until - time.monotonic())
    except CliError as error:
        raise (failure if isinstance(failure, ApiServerError) else _unknown(failure, look)) from error


def _unknown(failure: CliError, look: str) -> UnknownOutcomeError:
    return UnknownOutcomeError(f"{failure.message}; the request may have taken effect: see {look}")


def create(session: Session, body: Mapping[str, Any], look: str, *, dry_run: bool = False) -> dict[str, Any]:
    """Create a job, for which `look` is the command, and return it. Raises like `jobs.get`, and UnknownOutcomeError.

    If there is no response, a job with this name and spec is the created one if it is not older than the request.
    """
    started = datetime.now(UTC).replace(microsecond=0)

    def is_created(job: Mapping[str, Any] | None) -> bool | None:
        if job is None:
            return False
        created = jobs.time_of(job["metadata"].get("creationTimestamp"))
        is_new = created is not None and created >= started
        return True if is_new and _contains(facts.spec_of(job), body["spec"]) else None

    def send(_: str = "") -> dict[str, Any]:
        query = {"dryRun": "All"} if dry_run else {}
        made = session.create(jobs.path(session.namespace), body, fieldManager=_MANAGER, **query)
        return made if dry_run else jobs.checked(made, body["metadata"]["name"])

    def read() -> dict[str, Any]:
        return jobs.read(session, body["metadata"]["name"], facts.GROUP)

    try:
        job = send() if dry_run else _confirmed(send, read, is_created, look)
    except ApiServerError as error:
        raise jobs.without_crd(session, error) from error
    return job or {}


def patch(
    session: Session, job: Mapping[str, Any], change: Mapping[str, Any], look: str, version: str = ""
) -> dict[str, Any]:
    """Merge a change into a job of kubeflow.org, and return it. Raises like `jobs.get`, and UnknownOutcomeError.

    `job` is the job as it was read before, `version` the resourceVersion that it must still have, if given, and `look` the
    command for it. If there is no response, the change took effect if the job has it, and did not if the job has the same
    values as before and, for a change of the spec, the same generation.
    """
    name, meta = job["metadata"]["name"], job["metadata"]

    def send(newer: str) -> dict[str, Any]:
        precondition = {"resourceVersion": newer or version} if newer or version else {}
        only_this = {"metadata": {**change.get("metadata", {}), **precondition}} if precondition else {}
        made = session.patch(jobs.path(session.namespace, name), {**change, **only_this}, fieldManager=_MANAGER)
        return jobs.checked(made, name)

    def is_changed(now: dict[str, Any] | None) -> bool | None:
        if now is None or now["metadata"]["uid"] != meta["uid"]:
            return None
        if _contains(now, change):
            return True
        is_same_spec = "spec" not in change or now["metadata"].get("generation") == meta.get("generation")
        return False if is_same_spec and _part(now, change) == _part(job, change) else None

    try:
        changed = _confirmed(send, lambda: jobs.read(session, name, facts.GROUP), is_changed, look)
    except ApiServerError as error:
        raise jobs.without_crd(session, error) from error
    return changed or {}


def _part(found: Any, change: Any) -> Any:
    """Return the values of the fields of a change."""
    if not isinstance(change, dict):
        return found
    return {key: _part(found.get(key) if isinstance(found, dict) else None, each) for key, each in change.items()}


def delete(session: Session, where: str, uid: str, look: str, version: str = "") -> None:
    """Delete an object with this UID and, if given, resourceVersion. `look` is the command for it. Raises CliError."""
    conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}

    def is_deleted(now: dict[str, Any] | None) -> bool:
        return now is None or now["metadata"].get("uid") != uid or "deletionTimestamp" in now["metadata"]

    _confirmed(lambda _: session.delete(where, options), lambda: session.get(where), is_deleted, look)


def _contains(found: object, wanted: object) -> bool:
    """Return True if a value has all that is wanted: of objects these fields (None: not the field), of lists these items."""
    if isinstance(wanted, dict):
        found = found or {}
        return isinstance(found, dict) and all(_contains(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_contains, found, wanted))
    return found == wanted
