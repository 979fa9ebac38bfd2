"""Finds out whose object has a child's name already: this job's, an earlier job's of the same name, or another's.

Invariants:

- What another object controls is neither adopted nor deleted (B13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.meta import Struct, controller_of
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildMeta, Pod, Service
from tfjob_operator.controller.jobs.pod_end import has_ended
from tfjob_operator.controller.tfjob.decide.claims import is_adoptable
from tfjob_operator.controller.tfjob.kinds import POD, SERVICE

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.kinds import ChildKind


class NameTakenError(ApiError):
    """A child cannot be created because another object has its name.

    `why` says what a person can do about it; it is empty where nobody has to do anything.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class _Identity(Struct, frozen=True):
    metadata: ChildMeta


_SLICES: Final[dict[str, type[Pod | Service]]] = {POD.name: Pod, SERVICE.name: Service}
"""Kinds that our watches select by a label, with their slices; of other kinds the metadata suffices."""


class NameConflicts:
    """Resolves AlreadyExists errors."""

    def __init__(self, client: RestClient, events: JobEvents) -> None:
        self._client = client
        self._events = events

    async def settle(self, job: TFJob, kind: ChildKind, name: str) -> None:
        """Read the object of this name. Returns if it is ours, from a create whose response was lost (WR-07).

        Raises NameTakenError for any other object. Its `why` says what a person must do, unless the object will soon be
        gone (B12). Also raises whatever ApiError the read meets.
        """
        taken = f"{kind.name} {name} exists already and is not controlled by this TFJob"
        slice_of_kind: type[Pod | Service | _Identity] = _SLICES.get(kind.name, _Identity)
        try:
            found = await self._client.get(kind.resource, job.metadata.namespace, name, slice_of_kind)
        except NotFoundError as error:
            raise NameTakenError(f"{kind.name} {name} has just gone; it can be created now") from error
        meta = found.metadata
        owner = controller_of(meta)
        if owner is None or owner.uid != job.metadata.uid:
            raise NameTakenError(taken, _why(job, found))
        if kind.name in _SLICES and (meta.labels or NO_LABELS).operator_name != c.OPERATOR_NAME:
            await self._bring_to_light(job, kind, meta)

    async def _bring_to_light(self, job: TFJob, kind: ChildKind, meta: ChildMeta) -> None:
        """Restore the label by which our watch selects children, so that the cache shows this one (D13)."""
        body = {"metadata": {"uid": meta.uid, "labels": {c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}}}
        what = f"the label {c.LABEL_OPERATOR_NAME} of {kind.name} {meta.name}, without which it cannot be seen"
        try:
            await self._client.patch(kind.resource, meta.namespace, meta.name, body, content_type=MERGE_PATCH)
        except ApiError as error:
            self._events.record(job, EventType.WARNING, kind.failed_relabel, f"Error restoring {what}: {error}")
            raise NameTakenError(f"{kind.name} {meta.name} exists already and cannot be seen") from error
        self._events.record(job, EventType.WARNING, kind.relabelled, f"Restored {what}")


def _why(job: TFJob, found: Pod | Service | _Identity) -> str:
    """Return what a person must do about an object in the way, or "".

    A child of an earlier job of this name goes with its owner, or is an orphan and will be adopted.
    """
    owner = controller_of(found.metadata)
    leaving = found.metadata.deletion_timestamp is not None or (owner is not None and owner.name == job.metadata.name)
    adoptable = owner is None and not isinstance(found, _Identity) and is_adoptable(job.metadata.name, found)
    if leaving or adoptable:
        return ""
    if owner is None and isinstance(found, Pod) and has_ended(found):
        return "it has ended, and belongs to nobody; delete it to let this job go on"
    holder = f"{owner.kind} {owner.name}" if owner is not None else "nobody"
    return f"it belongs to {holder}; delete it, or make the job anew under another name"
