"""Adopts orphans: writes the controller reference that their labels call for. `decide/claims.py` decides which ones.

Invariants:

- Nothing is adopted before the job itself was read from the API server (RM-02).
- An adoption carries the UID of its child: another one of the same name is not touched (RM-03).
- An adoption is expected until the cache has seen it. A failed one costs an event and stops nothing (D14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tfjob_operator.api.client.decoding import version_written
from tfjob_operator.api.client.errors import ApiError, ConflictError, InvalidError, NotFoundError
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.owners import owner_uid_key
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.build.references import owner_reference
from tfjob_operator.controller.tfjob.decide.claims import claims
from tfjob_operator.controller.tfjob.delays import FIRST_DELAY_S
from tfjob_operator.controller.tfjob.kinds import POD, SERVICE
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.jobs.children import ChildMeta, Service
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.tfjob.delays import Delays
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.kinds import ChildKind
    from tfjob_operator.controller.tfjob.view import View

MAX_AT_ONCE: Final = 16
"""Patches of one job that are under way at the same time: as many as creates (`creator.MAX_AT_ONCE`)."""

_FAILED: Final = {POD.name: EventReason.FAILED_ADOPT_POD, SERVICE.name: EventReason.FAILED_ADOPT_SERVICE}

log = structlog.get_logger(__name__)


class Adoptions(NamedTuple):
    """`any`: whether something was adopted, so that the caches will show it and bring another sync.

    `wait_s` is in how many seconds another adoption is due, None if there is none.
    """

    any: bool
    wait_s: float | None


class RefManager:
    """Writes controller references."""

    def __init__(self, client: RestClient, events: JobEvents, expectations: Expectations, delays: Delays) -> None:
        self._client = client
        self._events = events
        self._expectations = expectations
        self._delays = delays

    async def claim(self, view: View) -> Adoptions:
        """Adopt the orphans that a job claims, if it is alive, its specification is valid and its expectations are met."""
        meta = view.job.metadata
        ends = meta.deletion_timestamp is not None or conditions.is_finished(view.job.status)
        if ends or not view.may_act or view.good_spec is None:
            return Adoptions(any=False, wait_s=None)
        claimed: tuple[Pod | Service, ...] = (
            *claims(meta.name, view.pods, view.orphan_pods),
            *claims(meta.name, view.services, view.orphan_services),
        )
        return await self.adopt(view.job, claimed, view.confirm)

    async def adopt(
        self, job: TFJob, children: Sequence[Pod | Service], confirm: Callable[[], Awaitable[None]]
    ) -> Adoptions:
        """Adopt those of these children that are due.

        `confirm` reads the job from the API server, once for all adoptions; it raises ApiError unless the cache shows that
        version.
        """
        owner = owner_uid_key(job.metadata)
        due: list[tuple[ChildKind, ChildMeta]] = []
        waits: list[float] = []
        for child in children:
            wait_s = self._delays.wait_s(owner, _what(child.metadata))
            if wait_s > 0:
                waits.append(wait_s)
            else:
                due.append((POD if isinstance(child, Pod) else SERVICE, child.metadata))
        changed: list[bool] = []

        async def try_one(number: int) -> None:
            kind, child = due[number]
            try:
                changed.append(await self._adopt(job.metadata, kind, child))
            except ApiError as error:
                wait_s = self._delays.tried(owner, _what(child))
                waits.append(wait_s)
                # Mostly another controller was faster, and the cache will show it: a Warning only if it happens again.
                if wait_s > FIRST_DELAY_S or not isinstance(error, (ConflictError, InvalidError)):
                    self._events.record(
                        job, EventType.WARNING, _FAILED[kind.name], f"Error adopting {kind.name} {child.name}: {error}"
                    )

        if due:
            await confirm()
            await parallelize_until(MAX_AT_ONCE, len(due), try_one)
        return Adoptions(any(changed), min(waits, default=None))

    async def _adopt(self, job: ObjectMeta, kind: ChildKind, child: ChildMeta) -> bool:
        owner = owner_uid_key(job)
        self._expectations.expect_creations(owner, kind.name, [child.name])
        body = {"metadata": {"uid": child.uid, "ownerReferences": [owner_reference(job)]}}
        try:
            written = await self._client.patch(
                kind.resource, child.namespace, child.name, body, content_type=STRATEGIC_MERGE_PATCH
            )
        except NotFoundError:
            self._expectations.creation_observed(owner, kind.name, child.name)
            return False
        except BaseException:
            self._expectations.creation_observed(owner, kind.name, child.name)
            raise
        self._expectations.creation_answered(job, kind.name, child.name, version_written(written))
        log.info("child_adopted", kind=kind.name, name=child.name)
        return True


def _what(child: ChildMeta) -> str:
    return f"adopt {child.uid}"
