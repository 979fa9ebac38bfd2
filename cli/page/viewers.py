"""The viewers of the page, and what they may see.

On the user's own machine there is a single viewer, and everything is read with this viewer's permissions. In a cluster the page
has its own permissions, and each viewer, a `ClusterViewer`, sees the part that they could see with kubectl.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from tfjob_operator.api.core import EVENTS, LEASES, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.collecting import LEASE
from tfjob_operator.cli.model import objects
from tfjob_operator.cli.page.objects import TENSORFLOW_V1ALPHA1, JobKey, namespaces_in, read_key
from tfjob_operator.cli.page.reviews import ALLOWED_TTL_S, DENIED_TTL_S, CachedResult, Reviews, User
from tfjob_operator.cli.permissions import ResourceAttributes

Namespaces = frozenset[str] | None
"""A set of namespaces, or None for all."""


class UnauthenticatedError(Exception):
    """The credentials of the browser are missing or no longer valid."""


class DeniedError(Exception):
    """The viewer lacks a permission. The message is the API server's."""


class Visibility(NamedTuple):
    """The namespaces in which a viewer may list jobs, and those in which they may list pods.

    Only places in `asked` were checked; in each field, None means all namespaces.

    `first`: the namespaces in which the viewer may list jobs of the oldest API. All of this is valid until `until`, a time of
    the event loop.
    """

    jobs: Namespaces
    first: Namespaces
    pods: Namespaces
    asked: frozenset[str] | None
    until: float

    @property
    def shown(self) -> tuple[Namespaces, Namespaces, Namespaces]:
        """What is visible, for comparisons: equal values show the same."""
        return self.jobs, self.first, self.pods

    def shows_job(self, key: str) -> bool:
        """Return True if the viewer may see this job."""
        return _within(key, self.first if read_key(key).resource == TENSORFLOW_V1ALPHA1 else self.jobs)

    def shows_pods(self, key: str) -> bool:
        """Return True if the viewer may see the pods of this job and what is derived from them."""
        return _within(key, self.pods)


EVERYTHING: Final = Visibility(None, None, None, None, math.inf)


class Viewer:
    """The user who started the page. The page reads everything with this user's permissions. The API server denies the rest.

    All methods raise ReviewFailedError, and UnauthenticatedError once the credentials are no longer valid.
    """

    name = ""
    """The name of a cluster user, "" for the page's owner."""
    about: dict[str, object] | None = None
    """What the page shows about the user, None for its owner."""

    async def may(self, attributes: ResourceAttributes, *, refused_s: float = DENIED_TTL_S) -> bool:
        """Return whether the viewer has a permission; a refusal may come from the cache, up to `refused_s` seconds old."""
        return True

    async def require(self, attributes: ResourceAttributes) -> None:
        """Raise DeniedError if the viewer lacks this permission."""
        if not await self.may(attributes):
            raise DeniedError(attributes.refusal(self.name))

    async def visibility(self, places: frozenset[str], *, refused_s: float = DENIED_TTL_S) -> Visibility:
        """Return what is visible of these places; a cached denial may be `refused_s` seconds old."""
        return EVERYTHING

    async def granted(self, job: JobKey) -> frozenset[ResourceAttributes] | None:
        """Return the permissions to explain a job; None leaves the decision to the API server."""
        return None


class ClusterViewer(Viewer):
    """A cluster user. `identify` is called repeatedly, since a token may become invalid."""

    def __init__(
        self,
        reviews: Reviews,
        identify: Callable[[], Awaitable[CachedResult[User | None]]],
        name: str,
        *,
        scope: str,
        by: str,
    ) -> None:
        """`scope` is the only namespace of the page, "" for all; `by` is the login method: `cookie`, `token` or `proxy`."""
        self._reviews = reviews
        self._identify = identify
        self._scope = scope
        self.name = name
        self.about = {"name": name, "by": by}

    async def may(self, attributes: ResourceAttributes, *, refused_s: float = DENIED_TTL_S) -> bool:
        """See `Viewer.may`."""
        user, _ = await self._user()
        return (await self._reviews.may(user, attributes, refused_s=refused_s)).value

    async def visibility(self, places: frozenset[str], *, refused_s: float = DENIED_TTL_S) -> Visibility:
        """See `Viewer.visibility`. Permissions for the oldest API are only checked where it has jobs."""
        user, at = await self._user()
        now = asyncio.get_running_loop().time()
        here, first_here = namespaces_in(places, TFJOBS), namespaces_in(places, TENSORFLOW_V1ALPHA1)
        jobs, jobs_at = await self._where(user, TFJOBS, here, refused_s)
        first, first_at = (
            await self._where(user, TENSORFLOW_V1ALPHA1, first_here, refused_s)
            if first_here
            else (first_here, math.inf)
        )
        seen = (here if jobs is None else jobs) | (first_here if first is None else first)
        pods, pods_at = await self._where(user, PODS, seen, refused_s)
        return Visibility(jobs, first, pods, places, min(at, now, jobs_at, first_at, pods_at) + ALLOWED_TTL_S)

    async def granted(self, job: JobKey) -> frozenset[ResourceAttributes] | None:
        """See `Viewer.granted`. A page of one namespace reads no cluster-scoped resources and no other namespaces."""
        asked = [*reads_of(job), *(READS_OF_CLUSTER if not self._scope else ())]
        answers = await asyncio.gather(*map(self.may, asked))
        return frozenset(attributes for attributes, answer in zip(asked, answers, strict=True) if answer)

    async def _user(self) -> tuple[User, float]:
        user, at = await self._identify()
        if user is None:
            raise UnauthenticatedError
        return user, at

    async def _where(
        self, user: User, resource: Resource, namespaces: frozenset[str], refused_s: float
    ) -> tuple[Namespaces, float]:
        """Return in which namespaces a user may list a resource, and the time of the oldest result."""
        if not self._scope:
            everywhere = await self._reviews.may(user, ResourceAttributes("list", resource), refused_s=refused_s)
            if everywhere.value:
                return None, everywhere.at
        names = sorted(namespaces)
        asked = (
            self._reviews.may(user, ResourceAttributes("list", resource, name), refused_s=refused_s) for name in names
        )
        answers = zip(names, await asyncio.gather(*asked), strict=True)
        allowed = {name: answer.at for name, answer in answers if answer.value}
        return frozenset(allowed), min(allowed.values(), default=math.inf)


READS_OF_CLUSTER: Final = (ResourceAttributes("get", objects.NODES), ResourceAttributes("list", LEASES, name=LEASE))
"""The cluster-wide reads of a diagnosis; only the operator's Lease."""


def reads_of(job: JobKey) -> list[ResourceAttributes]:
    """Return the reads of a diagnosis in the job's namespace."""
    namespace = job.namespace
    listed = (PODS, EVENTS, SERVICES, objects.CLAIMS, objects.RESOURCE_QUOTAS, objects.LIMIT_RANGES, objects.BATCH_JOBS)
    return [
        ResourceAttributes("get", job.resource, namespace, job.name),
        ResourceAttributes("get", PODS, namespace, subresource="log"),
        ResourceAttributes("get", objects.NAMESPACES, namespace, namespace),
        *(ResourceAttributes("list", resource, namespace) for resource in listed),
    ]


def _within(key: str, namespaces: Namespaces) -> bool:
    return namespaces is None or key.partition("/")[0] in namespaces
