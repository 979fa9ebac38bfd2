"""Since when this process has been the only one that works on jobs.

Most views of a job are confirmed before they are acted upon: the cache may be behind, and another leader may have ended the job
since. A resourceVersion from our own leadership term, with an empty status, needs no confirmation: whoever works on a job
writes its status first, and nobody else has been at work since.

Invariants:

- A resourceVersion from before the lease was ours is never taken for one of our term.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.meta import PartialObjectMetadata, version_number
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.v1.types import TFJob

log = structlog.get_logger(__name__)


class LeadershipTerm:
    """The time since this process acquired the lease.

    The API server's versions of one kind of object are numbers that grow with every change (KEP-5504, and etcd's revisions long
    before it). Where they are not numbers, nothing is known to be of our term.
    """

    def __init__(self, client: RestClient, namespace: str) -> None:
        """Nothing is of our time before `begin`. `namespace` "" means all of them."""
        self._client = client
        self._namespace = namespace
        self._since = math.inf

    async def begin(self) -> None:
        """Ask the API server for its current resourceVersion. Call this when no write of an earlier leader can take effect.

        Never raises ApiError: without a response every view is confirmed by a call of its own.
        """
        try:
            # Without a version the response comes from etcd, not from a cache that may be behind.
            newest = await self._client.list_page(TFJOBS, ListOptions(self._namespace, limit=1), PartialObjectMetadata)
            self._since = int(newest.metadata.resource_version)
        except (ApiError, ValueError) as error:  # the version need not be a number
            log.debug("leadership_term_unknown", error=str(error))

    def is_untouched(self, job: TFJob) -> bool:
        """Whether this version of a job is from our term and has no status: then nobody has worked on it yet."""
        version = job.metadata.resource_version
        return not job.status.conditions and (version_number(version) or 0) > self._since
