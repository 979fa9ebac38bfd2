"""Takes over the pods of jobs that an earlier operator began (`plan.py` recognizes them).

They are given our labels, by which our watches select: then the caches show them, and each stands for its replica for as long
as it exists. Its services stay as they are: running replicas find their peers by them, and they select by labels that our
children have, too.

Invariants:

- A job that another operator began is not planned before its pods are in our caches: nothing is made beside them.
- What another object controls is left alone, and a patch carries the UID of its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.client.options import MERGE_PATCH, ListOptions
from tfjob_operator.api.core import PODS, EventType, object_reference
from tfjob_operator.api.meta import ObjectMeta, PartialObjectMetadata, controller_of
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec
from tfjob_operator.controller.alpha.build import is_ours, labels_of_found
from tfjob_operator.controller.alpha.children import Children
from tfjob_operator.controller.alpha.plan import may_have_hidden_children, selector_of_hidden
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.workqueue.parallel import parallelize_until

MAX_AT_ONCE: Final = 16
"""As many patches as creates (`executor.MAX_AT_ONCE`)."""
LOOK_AGAIN_S: Final = 1.0
"""After how long a job is synced again whose pods are labelled and not in the caches yet, if no event comes before."""

log = structlog.get_logger(__name__)


class _Page(msgspec.Struct):
    items: list[PartialObjectMetadata] | None = None


class AlphaTakeover:
    """Finds and labels what another operator made. Remembers nothing."""

    def __init__(self, dialect: Dialect, client: RestClient, recorder: EventRecorder) -> None:
        """No request is sent before there is a job that another operator began."""
        self._dialect = dialect
        self._client = client
        self._recorder = recorder

    async def settle(
        self, job: AlphaJob, spec: AlphaSpec | InvalidSpec, children_of: Callable[[AlphaJob], Children]
    ) -> float | None:
        """Return None when the job may be planned; else in how many seconds to look again, if no event comes before.

        `children_of` returns what the caches show of a job. Raises ApiError when pods cannot be listed or patched: the job must
        then be tried again.
        """
        if not (isinstance(spec, AlphaSpec) and spec.runtime_id and may_have_hidden_children(job)):
            return None
        meta = job.metadata
        options = ListOptions(meta.namespace, label_selector=selector_of_hidden(meta, spec))
        page = await self._client.list_page(PODS, options, _Page)
        pods = [each.metadata for each in page.items or () if _is_controlled_by(each.metadata, meta)]
        hidden = [pod for pod in pods if not is_ours(pod)]
        await self._take(job, spec, hidden)
        if hidden:
            message = f"Adopted {len(hidden)} pod{'s' if len(hidden) > 1 else ''} created by another operator"
            self._record(meta, EventType.NORMAL, EventReason.ADOPTED, message)
        seen = {pod.metadata.uid for found in children_of(job).bare.values() for pod in found}
        return None if all(pod.uid in seen for pod in pods) else LOOK_AGAIN_S

    async def _take(self, job: AlphaJob, spec: AlphaSpec, pods: Sequence[ObjectMeta]) -> None:
        """Label these pods. Raises the first ApiError, after which no more are begun."""
        failures: list[ApiError] = []

        async def take(number: int) -> None:
            pod = pods[number]
            if failures:
                return
            body = {"metadata": {"uid": pod.uid, "labels": labels_of_found(self._dialect, job.metadata, spec, pod)}}
            try:
                await self._client.patch(PODS, pod.namespace, pod.name, body, content_type=MERGE_PATCH)
            except NotFoundError:
                pass
            except ApiError as error:
                text = f"Error adopting pod {pod.name}: {error}"
                self._record(job.metadata, EventType.WARNING, EventReason.FAILED_ADOPT_POD, text)
                failures.append(error)
            else:
                log.info("child_taken_over", kind="pod", name=pod.name)

        await parallelize_until(MAX_AT_ONCE, len(pods), take)
        if failures:
            raise failures[0]

    def _record(self, job: ObjectMeta, event_type: EventType, reason: str, message: str) -> None:
        self._recorder.event(object_reference(self._dialect.resource, job), event_type, reason, message)


def _is_controlled_by(pod: ObjectMeta, job: ObjectMeta) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.uid == job.uid
