"""Asks the API server whether what the caches show is up to date: the reads that confirm a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import PartialObjectMetadata
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.manager import RequeueError
from tfjob_operator.workqueue.parallel import parallelize_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob

MAX_READS_AT_ONCE: Final = 16
"""As many as a job's creates and deletes: five hundred pods that restart together delay the status by thirty round trips."""


class StaleViewError(RequeueError):
    """The job, or one of its pods, has changed since the cache saw it. The change will arrive, and bring another sync."""


class Confirmer:
    """Reads jobs and pods from the server and compares them with what a cache shows. Remembers nothing."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def confirm(self, job: TFJob) -> None:
        """Ask the server whether `job` is its newest version. Raises StaleViewError if it is not, or is gone."""
        meta = job.metadata
        try:
            found = await self._client.get(TFJOBS, meta.namespace, meta.name, PartialObjectMetadata)
        except NotFoundError as error:
            raise StaleViewError("the job is gone") from error
        if found.metadata.resource_version != meta.resource_version:
            raise StaleViewError("the job has changed since the cache saw it")

    async def confirm_pods(self, namespace: str, pods: Sequence[tuple[str, str]]) -> None:
        """Ask the server whether these pods, by name and UID, are there: `MAX_READS_AT_ONCE` at a time.

        Raises StaleViewError if one is gone, or another one has its name, else any ApiError; after the first one no more are
        asked for.
        """
        failures: list[ApiError] = []

        async def confirm(number: int) -> None:
            if failures:
                return
            try:
                await self._confirm_pod(namespace, *pods[number])
            except ApiError as error:
                failures.append(error)

        await parallelize_until(MAX_READS_AT_ONCE, len(pods), confirm)
        if failures:
            raise failures[0]

    async def _confirm_pod(self, namespace: str, name: str, uid: str) -> None:
        try:
            found = await self._client.get(PODS, namespace, name, PartialObjectMetadata)
        except NotFoundError as error:
            raise StaleViewError(f"pod {name} is gone") from error
        if found.metadata.uid != uid:
            raise StaleViewError(f"pod {name} is another one than the cache saw")
