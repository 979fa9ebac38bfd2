"""Children that the API server refuses to create, because they are invalid or because another object has their name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError, StatusError
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.meta import Meta, Object, OwnerReference, Resource, controller_of
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME

C = TypeVar("C", bound=Object)

_DENIED: Final = re.compile(r"\bdenied (the )?request\b")


class RefusedError(ApiError):
    """The API server calls a child invalid. Only a changed specification can help."""


def is_denied(error: StatusError) -> bool:
    """Whether an admission webhook or policy refuses, whatever the code. They may change, so the specification is not wrong."""
    return _DENIED.search(error.status_message) is not None


def in_the_way(owner: OwnerReference | None) -> str:
    """Return who controls an object whose name a job needs, and what a person can do about it."""
    if owner is not None and owner.kind.lower() == "tfjob":
        return f"belongs to {owner.kind} {owner.name}, which needs it; recreate one of the two jobs under another name"
    holder = f"belongs to {owner.kind} {owner.name}" if owner is not None else "has no owner"
    return f"{holder}; delete it or recreate the job under another name"


class NameTakenError(ApiError):
    """A child cannot be created because another object has its name.

    `why` says what a person can do about it, or what is waited for if the object `passes`: it will soon be gone. It is empty
    where the next try will do.
    """

    def __init__(self, child: str, why: str = "", *, passes: bool = False) -> None:
        super().__init__(f"{child} already exists and {why}" if why else child)
        self.why = why
        self.passes = passes


def _what_to_do(found: Object) -> str:
    return in_the_way(controller_of(found.metadata))


async def resolve_name_conflict(
    client: RestClient,
    resource: Resource,
    name: str,
    into: type[C],
    *,
    job: Meta,
    jobs: Resource,
    what_to_do: Callable[[C], str] = _what_to_do,
) -> C:
    """Return the object of this name if the job controls it: it comes from a create whose response was lost (WR-07).

    `jobs` is the kind of the job; `what_to_do` says what a person can do about any other object, or "". Raises NameTakenError
    for an object that the job does not control, or whatever ApiError the read meets.
    """
    child = f"{resource.kind} {name}"
    try:
        found = await client.get(resource, job.namespace, name, into)
    except NotFoundError as error:
        raise NameTakenError(f"{child} was just deleted; it can be created now", passes=True) from error
    meta, owner = found.metadata, controller_of(found.metadata)
    if owner is not None and owner.uid == job.uid:
        return found
    if meta.deletion_timestamp is not None:
        raise NameTakenError(child, f"is being deleted (UID {meta.uid})", passes=True)
    if owner is not None and (owner.kind.lower(), owner.name) == (jobs.kind.lower(), job.name):
        why = f"belongs to an earlier job of this name (UID {owner.uid}) and is left to the garbage collector"
        raise NameTakenError(child, why, passes=True)
    raise NameTakenError(child, what_to_do(found))


async def restore_operator_label(client: RestClient, resource: Resource, meta: Meta, value: str) -> None:
    """Restore the label by which our watches select children, so that the cache shows this one (D13). Raises ApiError."""
    body = {"metadata": {"uid": meta.uid, "labels": {LABEL_OPERATOR_NAME: value}}}
    await client.patch(resource, meta.namespace, meta.name, body, content_type=MERGE_PATCH)
