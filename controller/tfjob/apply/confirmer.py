"""Reads from the API server that confirm a view before it is acted upon: a cache may be older than what is decided by it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import PODS, TERMINAL
from tfjob_operator.api.meta import PartialObjectMetadata, Struct, index_by_owner, owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.children import NO_LABELS, Pod
from tfjob_operator.controller.jobs.writes import MAX_AT_ONCE, StaleViewError, confirm
from tfjob_operator.controller.tfjob.plan.accelerators import running_pod
from tfjob_operator.controller.tfjob.plan.replicas import of_earlier_attempts
from tfjob_operator.controller.tfjob.plan.status import moved_records
from tfjob_operator.controller.tfjob.plan.types import RunningPod
from tfjob_operator.controller.tfjob.view import View
from tfjob_operator.workqueue.parallel import slow_start_batch


class _Pods(Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class Confirmer:
    """Reads jobs and pods from the server and compares them with cached versions. Stateless."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def confirm(self, job: TFJob) -> None:
        """Read the job from the server. Raises StaleViewError if `job` is not the newest version, or if the job is gone."""
        await confirm(self._client, TFJOBS, job.metadata)

    async def confirm_restarts(self, view: View, status: JobStatus | None) -> None:
        """Check that the pods to which `status` moves restart records exist: in a stale view, their restarts may be counted.

        Raises StaleViewError.
        """
        if status is None:
            return
        counted = {record.pod for record in moved_records(view.job.status.restarts, status.restarts)}
        pods = [(pod.metadata.name, pod.metadata.uid) for pod in view.pods if pod.metadata.uid in counted]
        await self.confirm_pods(view.job.metadata.namespace, pods)

    async def confirm_accelerators(self, view: View, vanished: Collection[RunningPod]) -> None:
        """Check that this view is not older than the counts in its status, before they are added to (`plan.accelerators`).

        That takes a list of the job's pods, and only if pods are counted already or seem to have vanished. Raises
        StaleViewError, or ApiError.
        """
        if not (view.written.accelerator_seconds or vanished):
            return
        job, stored = view.job.metadata, await self._pods_of(view.job)
        shown = [pod for pod in stored if (pod.metadata.labels or NO_LABELS).operator_name == c.OPERATOR_NAME]
        if not {running_pod(job.name, pod) for pod in shown}.isdisjoint(vanished):
            raise StaleViewError("a pod is not in the cache yet")
        present = {pod.metadata.uid for pod in stored}
        missing = [pod.metadata for pod in view.pods if pod.accelerators and pod.metadata.uid not in present]
        await self.confirm_pods(job.namespace, [(pod.name, pod.uid) for pod in missing])

    async def confirm_pods(self, namespace: str, pods: Sequence[tuple[str, str]]) -> None:
        """Check that these pods, given by name and UID, exist; check up to `MAX_AT_ONCE` concurrently.

        Raises the first error: StaleViewError if a pod is gone or replaced, otherwise ApiError. No further requests are sent
        after it.
        """

        async def confirm_one(number: int) -> None:
            await self._confirm_pod(namespace, *pods[number])

        _, error = await slow_start_batch(len(pods), confirm_one, MAX_AT_ONCE, at_once=MAX_AT_ONCE)
        if error is not None:
            raise error

    async def earlier_pods(self, job: TFJob) -> list[Pod]:
        """Return the pods of earlier attempts that exist on the API server, regardless of the cache. Raises ApiError."""
        return of_earlier_attempts(job, await self._pods_of(job))

    async def quota_holders(self, job: TFJob, but: Collection[str]) -> list[Pod]:
        """Return the pods that hold quota on the API server, except those with these UIDs. Raises ApiError."""
        pods = await self._pods_of(job)
        return [pod for pod in pods if pod.status.phase not in TERMINAL and pod.metadata.uid not in but]

    async def _pods_of(self, job: TFJob) -> list[Pod]:
        selector = f"{c.LABEL_PREFIX}{c.LABEL_JOB_NAME}={job.metadata.name}"
        page = await self._client.list_page(PODS, ListOptions(job.metadata.namespace, selector), _Pods)
        return [pod for pod in page.items if owner_uid_key(job.metadata) in index_by_owner(pod)]

    async def _confirm_pod(self, namespace: str, name: str, uid: str) -> None:
        try:
            stored = await self._client.get(PODS, namespace, name, PartialObjectMetadata)
        except NotFoundError as error:
            raise StaleViewError(f"pod {name} is gone") from error
        if stored.metadata.uid != uid:
            raise StaleViewError(f"pod {name} has another UID than in the cache")
