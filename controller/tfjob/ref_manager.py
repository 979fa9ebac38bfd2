"""Which children a job owns: orphans that match it are adopted, children that match it no longer are released.

As client-go's ControllerRefManager does it. Only the controller reference counts for everything else; labels say no more than
which reference should be there. A child that another object controls is never touched (RM-01).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from api.client.errors import ApiError, ConflictError, InvalidError, NotFoundError
from api.client.rest import STRATEGIC_MERGE_PATCH
from api.v1 import constants as c
from api.v1.children import NO_LABELS, Pod, Service
from api.v1.validation import child_name
from controller.tfjob.ownership import owner_key
from controller.tfjob.pod_template import owner_reference
from controller.tfjob.replicas import slot_of
from workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from api.client import RestClient
    from api.meta import ObjectMeta
    from api.v1.children import ChildMeta
    from api.v1.types import TFJob
    from controller.tfjob.executor import ChildKind
    from controller.tfjob.expectations import Expectations

MAX_AT_ONCE: Final = 16
"""As many patches as the executor sends deletes."""

C = TypeVar("C", Pod, Service)

log = structlog.get_logger(__name__)


def is_adoptable(job: str, child: ChildMeta) -> bool:
    """Whether an orphan that stays is by all its labels a replica, or a replica's service, of the job of this name."""
    labels = child.labels or NO_LABELS
    return (
        child.deletion_timestamp is None
        and labels.group_name == c.GROUP_NAME
        and labels.operator_name == c.OPERATOR_NAME
        and labels.job_name == job
        and _may_stay(job, child)
    )


def _may_stay(job: str, child: ChildMeta) -> bool:
    """Whether no label denies that a child is the job's. One family of labels is enough: other operators set but one."""
    labels = child.labels or NO_LABELS
    named = (labels.job_name or job) == job == (labels.prefixed_job_name or job)
    return named and slot_of(child) is not None


@dataclass(frozen=True, slots=True)
class Claims(Generic[C]):
    """What is to change about the ownership of one kind of children."""

    kind: ChildKind
    adopt: tuple[C, ...] = ()
    release: tuple[C, ...] = ()


def claims(job: str, kind: ChildKind, owned: Sequence[C], orphans: Sequence[C]) -> Claims[C]:
    """Decide for a job that lives (RM-01); `owned` are the children that it controls, `orphans` those of `ORPHAN_INDEX`.

    Of several orphans for one replica one is adopted, that with the replica's name if there is one; none if the replica has
    its child already. Pure.
    """
    release = tuple(
        child for child in owned if child.metadata.deletion_timestamp is None and not _may_stay(job, child.metadata)
    )
    if not orphans:
        return Claims(kind, (), release)
    held = {slot_of(child.metadata) for child in owned}
    adopt: dict[tuple[str, int], C] = {}
    for child in orphans:
        slot = slot_of(child.metadata)
        if slot is None or slot in held or not is_adoptable(job, child.metadata):
            continue
        if slot not in adopt or child.metadata.name == child_name(job, *slot):
            adopt[slot] = child
    return Claims(kind, tuple(adopt.values()), release)


class RefManager:
    """Writes controller references.

    Invariants: nothing is adopted before the job itself was read from the server (RM-02); every patch carries the UID of its
    child, so that another one of the same name is not touched (RM-03); an adoption is expected until the cache has seen it.
    """

    def __init__(self, client: RestClient, expectations: Expectations) -> None:
        self._client = client
        self._expectations = expectations

    async def carry_out(
        self, job: TFJob, claimed: Sequence[Claims[Pod] | Claims[Service]], confirm: Callable[[], Awaitable[None]]
    ) -> bool:
        """Adopt and release. Answers whether anything was changed: then the cache will show it, and with it another sync.

        `confirm` reads the job live, once for all adoptions, and raises ApiError when it is not what the cache shows. Raises
        the first ApiError, after all have been tried.
        """
        adoptions = [(each.kind, child.metadata) for each in claimed for child in each.adopt]
        releases = [(each.kind, child.metadata) for each in claimed for child in each.release]
        if not adoptions and not releases:
            return False
        if adoptions:
            await confirm()
        changed: list[bool] = []
        failures: list[ApiError] = []

        async def change(number: int) -> None:
            try:
                if number < len(adoptions):
                    changed.append(await self._adopt(job.metadata, *adoptions[number]))
                else:
                    changed.append(await self._release(job.metadata, *releases[number - len(adoptions)]))
            except ApiError as error:
                failures.append(error)

        await parallelize_until(MAX_AT_ONCE, len(adoptions) + len(releases), change)
        if failures:
            raise failures[0]
        return any(changed)

    async def _adopt(self, job: ObjectMeta, kind: ChildKind, child: ChildMeta) -> bool:
        self._expectations.expect_creations(owner_key(job), kind.name, [child.name])
        try:
            await self._patch(kind, child, owner_reference(job))
        except NotFoundError:
            self._expectations.creation_observed(owner_key(job), kind.name, child.name)
            return False
        except BaseException:
            self._expectations.creation_observed(owner_key(job), kind.name, child.name)
            raise
        log.info("child_adopted", kind=kind.name, name=child.name)
        return True

    async def _release(self, job: ObjectMeta, kind: ChildKind, child: ChildMeta) -> bool:
        try:
            await self._patch(kind, child, {"$patch": "delete", "uid": job.uid})
        except (
            NotFoundError,
            InvalidError,
            ConflictError,
        ):  # it is gone, or another one has its name: there is nothing to release
            return False
        log.info("child_released", kind=kind.name, name=child.name)
        return True

    async def _patch(self, kind: ChildKind, child: ChildMeta, reference: dict[str, object]) -> None:
        body = {"metadata": {"uid": child.uid, "ownerReferences": [reference]}}
        await self._client.patch(kind.resource, child.namespace, child.name, body, content_type=STRATEGIC_MERGE_PATCH)
