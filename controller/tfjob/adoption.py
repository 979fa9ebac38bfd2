"""Which children a job owns: orphans that match it are adopted.

As client-go's ControllerRefManager does it, but that nothing is released. Only the controller reference counts for everything
else; labels say no more than which reference should be there. A child that another object controls is never touched (RM-01).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import structlog

from tfjob_operator.api.client.errors import ApiError, ConflictError, InvalidError, NotFoundError
from tfjob_operator.api.client.rest import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.children import NO_LABELS, Pod, Service
from tfjob_operator.api.v1.validation import child_name
from tfjob_operator.controller.tfjob.build.pod import owner_reference
from tfjob_operator.controller.tfjob.decide.identity import names_no_other, place_of, place_of_labels, place_of_name
from tfjob_operator.controller.tfjob.decide.pod_end import has_ended
from tfjob_operator.controller.tfjob.ownership import owner_key
from tfjob_operator.controller.tfjob.retries import FIRST_DELAY_S
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.children import ChildMeta
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.tfjob.decide.identity import Place
    from tfjob_operator.controller.tfjob.executor import Record
    from tfjob_operator.controller.tfjob.expectations import Expectations
    from tfjob_operator.controller.tfjob.kinds import ChildKind
    from tfjob_operator.controller.tfjob.retries import Retries

MAX_AT_ONCE: Final = 16
"""As many patches as the executor sends deletes."""

C = TypeVar("C", Pod, Service)

log = structlog.get_logger(__name__)


class Adoptions(NamedTuple):
    """What came of adopting: whether the caches will show any of it, and with it cause another sync; and in how many seconds
    there is more to try, None if nothing is left."""

    any: bool
    wait_s: float | None


def is_adoptable(job: str, child: Pod | Service) -> bool:
    """Whether an orphan that stays is by all its labels a replica, or a replica's service, of the job of this name.

    A pod that has ended is none: it is the outcome of another job (D15). A service is of use under its replica's name alone.
    """
    meta = child.metadata
    labels = meta.labels or NO_LABELS
    place, by_name = place_of_labels(meta), place_of_name(job, meta.name)
    return (
        meta.deletion_timestamp is None
        and labels.group_name == c.GROUP_NAME
        and labels.operator_name == c.OPERATOR_NAME
        and labels.job_name == job
        and names_no_other(job, meta)
        and place is not None
        and (by_name == place or (by_name is None and isinstance(child, Pod)))
        and not (isinstance(child, Pod) and has_ended(child))
    )


@dataclass(frozen=True, slots=True)
class Claims(Generic[C]):
    """The orphans of one kind that are to be adopted."""

    kind: ChildKind
    adopt: tuple[C, ...] = ()


def claims(job: str, kind: ChildKind, owned: Sequence[C], orphans: Sequence[C]) -> Claims[C]:
    """Decide for a job that lives (RM-01); `owned` are the children that it controls, `orphans` those of `ORPHAN_INDEX`.

    Of several orphans for one replica one is adopted, that with the replica's name if there is one; none if the replica has
    its child already. What a job controls it never lets go: whatever its labels say, it goes with the job (U9). Pure.
    """
    if not orphans:
        return Claims(kind)
    held = {place_of(job, child.metadata) for child in owned}
    adopt: dict[Place, C] = {}
    for child in orphans:
        place = place_of_labels(child.metadata)
        if place is None or place in held or not is_adoptable(job, child):
            continue
        if place not in adopt or child.metadata.name == child_name(job, *place):
            adopt[place] = child
    return Claims(kind, tuple(adopt.values()))


class RefManager:
    """Writes controller references.

    Invariants: nothing is adopted before the job itself was read from the server (RM-02); every patch carries the UID of its
    child, so that another one of the same name is not touched (RM-03); an adoption is expected until the cache has seen it;
    one that fails costs an event, and stops nothing (D14).
    """

    def __init__(self, client: RestClient, record: Record, expectations: Expectations, retries: Retries) -> None:
        """`record` records an event on a job; `retries` may be shared."""
        self._client = client
        self._record = record
        self._expectations = expectations
        self._retries = retries

    async def carry_out(
        self, job: TFJob, claimed: Sequence[Claims[Pod] | Claims[Service]], confirm: Callable[[], Awaitable[None]]
    ) -> Adoptions:
        """Adopt what is due.

        `confirm` reads the job live, once for all adoptions, and raises ApiError when it is not what the cache shows.
        """
        owner = owner_key(job.metadata)
        due: list[tuple[ChildKind, ChildMeta]] = []
        waits: list[float] = []
        for kind, child in ((each.kind, child.metadata) for each in claimed for child in each.adopt):
            wait_s = self._retries.wait_s(owner, _what(child))
            if wait_s > 0:
                waits.append(wait_s)
            else:
                due.append((kind, child))
        changed: list[bool] = []

        async def adopt(number: int) -> None:
            kind, child = due[number]
            try:
                changed.append(await self._adopt(job.metadata, kind, child))
            except ApiError as error:
                wait_s = self._retries.tried(owner, _what(child))
                waits.append(wait_s)
                # Another controller was faster, say, and the cache will show it: that is told only if it comes again.
                if wait_s > FIRST_DELAY_S or not isinstance(error, (ConflictError, InvalidError)):
                    self._record(
                        job, c.WARNING, _FAILED[kind.name], f"Error adopting {kind.name} {child.name}: {error}"
                    )

        if due:
            await confirm()
            await parallelize_until(MAX_AT_ONCE, len(due), adopt)
        return Adoptions(any(changed), min(waits, default=None))

    async def _adopt(self, job: ObjectMeta, kind: ChildKind, child: ChildMeta) -> bool:
        owner = owner_key(job)
        self._expectations.expect_creations(owner, kind.name, [child.name])
        body = {"metadata": {"uid": child.uid, "ownerReferences": [owner_reference(job)]}}
        try:
            await self._client.patch(
                kind.resource, child.namespace, child.name, body, content_type=STRATEGIC_MERGE_PATCH
            )
        except NotFoundError:
            self._expectations.creation_observed(owner, kind.name, child.name)
            return False
        except BaseException:
            self._expectations.creation_observed(owner, kind.name, child.name)
            raise
        log.info("child_adopted", kind=kind.name, name=child.name)
        return True


_FAILED: Final = {"pod": c.EVENT_FAILED_ADOPT_POD, "service": c.EVENT_FAILED_ADOPT_SERVICE}


def _what(child: ChildMeta) -> str:
    return f"adopt {child.uid}"
