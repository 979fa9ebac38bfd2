"""The caches of Deployments and Services: made when they are first needed, and waited for by nobody else.

Most clusters never have a job with a TensorBoard: they pay for no watch. Where the operator may not list Deployments (its role
is that of an older version), jobs run all the same, and those that want a TensorBoard are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import structlog

from tfjob_operator.api.client.errors import ApiError, ForbiddenError, StatusError
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.meta import OWNER_INDEX, Meta, Resource, index_by_owner, owner_uid_key
from tfjob_operator.controller.tensorboard.children import SELECTOR, Deployment, Found, Service
from tfjob_operator.informers import (
    Codec,
    EventHandlerFuncs,
    SharedIndexInformer,
    SharedInformerFactory,
    Tombstone,
    object_of,
)

C = TypeVar("C", Deployment, Service)

log = structlog.get_logger(__name__)


class Caches:
    """The Deployments and Services of all TensorBoards, and why they cannot be seen, if they cannot."""

    def __init__(self, informers: SharedInformerFactory, namespace: str) -> None:
        """Make the informers; they are not started. `namespace` is "" for all."""
        self._informers = informers
        self._failures: dict[str, str] = {}
        self._on_failure: list[Callable[[], None]] = []
        self._deployments = self._informer(DEPLOYMENTS, Deployment, namespace)
        self._services = self._informer(SERVICES, Service, namespace)

    def _informer(self, resource: Resource, kind: type[C], namespace: str) -> SharedIndexInformer[C]:
        informer = self._informers.informer(
            Codec(resource, kind),
            namespace=namespace,
            label_selector=SELECTOR,
            indexers={OWNER_INDEX: index_by_owner},
            required=False,
        )
        informer.set_watch_error_handler(partial(self._note, resource, informer))
        return informer

    @property
    def has_synced(self) -> bool:
        """Whether both are filled."""
        return self._deployments.has_synced and self._services.has_synced

    @property
    def failure(self) -> str:
        """Why they are not filled: what the API server says, "" where it has not said anything."""
        return "; ".join(self._failures.values())

    def start(self, tasks: asyncio.TaskGroup, on_child: Callable[[Meta], None], on_failure: Callable[[], None]) -> None:
        """Start to fill them, if that has not begun.

        From now on `on_child` is called for every event of a child, and `on_failure` when a first list fails.
        """
        self._on_failure.append(on_failure)
        self._deployments.add_event_handler(_handler(on_child))
        self._services.add_event_handler(_handler(on_child))
        self._informers.start(tasks)

    async def wait_for_sync(self) -> None:
        """Return when both are filled, however long that takes. Raises InformerStoppedError if they end before."""
        await self._deployments.wait_for_sync()
        await self._services.wait_for_sync()
        self._failures.clear()

    def children(self) -> Iterator[Meta]:
        """Yield the metadata of all children, of whatever job."""
        for informer in (self._deployments, self._services):
            for child in informer.indexer.list():
                yield child.metadata

    def found(self, job: Meta) -> Found:
        """Return what a job controls."""
        key = owner_uid_key(job)
        return Found(
            self._deployments.indexer.by_index(OWNER_INDEX, key), self._services.indexer.by_index(OWNER_INDEX, key)
        )

    def _note(self, resource: Resource, informer: SharedIndexInformer[C], error: ApiError) -> None:
        """Remember why a first list fails, and log it once; the reflector reports what comes after that."""
        if informer.has_synced or str(resource) in self._failures or not isinstance(error, StatusError):
            return
        hint = (
            "; the role of the operator is outdated: apply the manifests of this version"
            if isinstance(error, ForbiddenError)
            else ""
        )
        self._failures[str(resource)] = f"{error}{hint}"
        log.warning("tensorboards_unavailable", resource=str(resource), error=str(error))
        for listener in self._on_failure:
            listener()


def _handler(on_child: Callable[[Meta], None]) -> EventHandlerFuncs[C]:
    def updated(old: C, new: C) -> None:
        if old.metadata.owner_references != new.metadata.owner_references:
            on_child(old.metadata)
        on_child(new.metadata)

    def deleted(gone: C | Tombstone[C]) -> None:
        on_child(object_of(gone).metadata)

    return EventHandlerFuncs[C](on_add=lambda child, _: on_child(child.metadata), on_update=updated, on_delete=deleted)
