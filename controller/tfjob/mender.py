"""Restores what users have edited of a job's children: labels, and the selectors of services. Each repair is an event.

Nothing else waits for a repair, since a child is identified by its name. What is refused, or edited again, is repaired
after growing delays.

Invariants:

- A repair carries the UID of its child: another one of the same name is not touched.
- A refused repair becomes an event and is not raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.client.errors import ApiError, ConflictError, InvalidError, NotFoundError
from tfjob_operator.api.client.options import JSON_PATCH, MERGE_PATCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.owners import owner_uid_key
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.build.labels import labels_of, selector_of
from tfjob_operator.controller.tfjob.delays import FIRST_DELAY_S
from tfjob_operator.controller.tfjob.kinds import POD, SERVICE
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.actions import Mending, Plan
    from tfjob_operator.controller.tfjob.delays import Delays
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.kinds import ChildKind

MAX_AT_ONCE: Final = 16
"""As many patches as creates (`creator.MAX_AT_ONCE`)."""


@dataclass(frozen=True, slots=True)
class _Patch:
    """One patch, and the texts of its events."""

    kind: ChildKind
    mending: Mending
    content_type: str
    body: object
    text: str
    done: str
    failed: str

    @property
    def what(self) -> str:
        """The key of this repair in `Delays`: this change of this child."""
        return f"{self.done} {self.mending.child.metadata.uid}"


class Mender:
    """Patches children."""

    def __init__(self, client: RestClient, events: JobEvents, delays: Delays) -> None:
        self._client = client
        self._events = events
        self._delays = delays

    async def carry_out(self, job: TFJob, spec: TFJobSpec, plan: Plan) -> float | None:
        """Send the repairs that are due. Return in how many seconds the next one is, or None.

        The patched child comes back through the cache; if it is wrong again by then, it is patched again after the delay.
        """
        owner = owner_uid_key(job.metadata)
        due: list[_Patch] = []
        waits: list[float] = []
        for patch in _patches(job, spec, plan):
            wait_s = self._delays.wait_s(owner, patch.what)
            if wait_s > 0:
                waits.append(wait_s)
            else:
                due.append(patch)

        async def send(number: int) -> None:
            wait_s = self._delays.tried(owner, due[number].what)
            if not await self._send(job, due[number], wait_s):
                waits.append(wait_s)

        await parallelize_until(MAX_AT_ONCE, len(due), send)
        return min(waits, default=None)

    async def _send(self, job: TFJob, patch: _Patch, wait_s: float) -> bool:
        """Send one patch. Return False if it must be tried again, which is due in `wait_s` seconds."""
        meta, kind = patch.mending.child.metadata, patch.kind
        try:
            await self._client.patch(
                kind.resource, meta.namespace, meta.name, patch.body, content_type=patch.content_type
            )
        except NotFoundError:
            return True
        except ApiError as error:
            # Mostly another child has this name by now, and the cache will show it: a Warning only if it happens again.
            if wait_s > FIRST_DELAY_S or not isinstance(error, (ConflictError, InvalidError)):
                self._events.record(
                    job, EventType.WARNING, patch.failed, f"Error patching {kind.name} {meta.name}: {error}"
                )
            return False
        self._events.record(
            job, EventType.WARNING, patch.done, f"{patch.text} of {kind.name} {meta.name}, which somebody had edited"
        )
        return True


def _patches(job: TFJob, spec: TFJobSpec, plan: Plan) -> Iterator[_Patch]:
    for each in plan.relabel:
        kind = POD if isinstance(each.child, Pod) else SERVICE
        body: dict[str, Any] = {
            "metadata": {"uid": each.child.metadata.uid, "labels": labels_of(job.metadata, spec, each.key)}
        }
        yield _Patch(kind, each, MERGE_PATCH, body, "Restored the labels", kind.relabelled, kind.failed_relabel)
    for each in plan.reselect:
        operations = [
            {"op": "replace", "path": "/metadata/uid", "value": each.child.metadata.uid},
            {"op": "add", "path": "/spec/selector", "value": selector_of(labels_of(job.metadata, spec, each.key))},
        ]
        yield _Patch(
            SERVICE,
            each,
            JSON_PATCH,
            operations,
            "Restored the selector",
            EventReason.RESELECTED_SERVICE,
            EventReason.FAILED_RESELECT_SERVICE,
        )
