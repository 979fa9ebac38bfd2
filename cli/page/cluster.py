"""One set of informers for all browsers: jobs, their pods and events, of all namespaces or of one.

What may not be read is named in `troubles`, and the reflector tries it again, so that a right takes effect once it is granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from tfjob_operator.api.client.errors import ApiError, ForbiddenError, StatusError
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.core import EVENTS, PODS
from tfjob_operator.api.meta import Resource, meta_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.diagnosis.objects import Event, Pod
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.objects import (
    POD_SELECTOR,
    Job,
    by_job_of_event,
    by_job_of_pod,
    job_key_of_event,
    job_key_of_pod,
    job_with_unreadable_status,
)
from tfjob_operator.cli.page.source import NotedSource
from tfjob_operator.informers import Codec, EventHandlerFuncs, ListWatch, SharedIndexInformer, object_of
from tfjob_operator.informers.store import NAMESPACE_INDEX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tfjob_operator.api.client.rest import RestClient
    from tfjob_operator.api.meta import Object

T = TypeVar("T", bound="Object")

BY_JOB: Final = "job"
_NO_SUCH_API: Final = 404


async def readable_scope(client: RestClient, *, own: str, everywhere: bool | None) -> str:
    """Return the namespace to show, "" for all.

    `everywhere` None means all if the user may list the jobs of all, else `own`. Raises CliError where the server cannot be
    asked. A missing right raises nothing: the page shows it.
    """
    scope = own if everywhere is False else ""
    try:
        await client.list_page(TFJOBS, ListOptions(namespace=scope, limit=1))
    except ForbiddenError:
        return own if everywhere is None else scope
    except StatusError as error:
        if error.code == _NO_SUCH_API:
            raise CliError(
                "this cluster has no TFJobs: the operator's CRD is not installed (kubectl get crd tfjobs.kubeflow.org)"
            ) from error
        raise CliError(str(error)) from error
    except ApiError as error:
        raise CliError(str(error)) from error
    return scope


class Cluster:
    """The caches. `changed` gets the key of each job when it, a pod or an event of it has changed; "" for `troubles`."""

    def __init__(self, client: RestClient, scope: str, changed: Callable[[str], None]) -> None:
        self._client = client
        self._changed = changed
        self.scope = scope
        self.troubles: dict[str, ApiError] = {}
        """The last error by the name of what was read, such as "pods", until reading it succeeds."""
        self.jobs = self._informer(
            "TFJobs",
            TFJOBS,
            Codec(TFJOBS, Job, on_undecodable=job_with_unreadable_status),
            lambda job: meta_key(job.metadata),
        )
        self.pods = self._informer("pods", PODS, Codec(PODS, Pod), job_key_of_pod, labels=POD_SELECTOR)
        self.pods.add_indexers({BY_JOB: by_job_of_pod})
        self.events = [
            self._informer(
                "events", EVENTS, Codec(EVENTS, Event), job_key_of_event, fields=f"involvedObject.kind={kind}"
            )
            for kind in (TFJOBS.kind, PODS.kind)
        ]
        for each in self.events:
            each.add_indexers({BY_JOB: by_job_of_event})

    @property
    def has_synced(self) -> bool:
        """Whether jobs and pods are complete, or cannot be read."""
        return all(
            each.has_synced or what in self.troubles for what, each in (("TFJobs", self.jobs), ("pods", self.pods))
        )

    @property
    def namespaces(self) -> frozenset[str]:
        """Those that have jobs."""
        return frozenset(self.jobs.indexer.index_values(NAMESPACE_INDEX))

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Run the informers in `tasks`; cancel what is returned to stop them."""
        return [tasks.create_task(each.run(), name=f"informer {each.name}") for each in self._all()]

    def job(self, key: str) -> Job | None:
        """Return a job, None for one that is not there."""
        return self.jobs.indexer.get(key)

    def pods_of(self, key: str) -> list[Pod]:
        """Return the pods of a job; those of an earlier job of the same name are left out."""
        job = self.job(key)
        uid = job.metadata.uid if job is not None else ""
        return [pod for pod in self.pods.indexer.by_index(BY_JOB, key) if _may_be_of(pod, uid)]

    def pod(self, key: str) -> Pod | None:
        """Return the pod of a replica, None for one that is not there."""
        return self.pods.indexer.get(key)

    def events_of(self, key: str) -> list[Event]:
        """Return the events about a job and its pods."""
        return [event for each in self.events for event in each.indexer.by_index(BY_JOB, key)]

    def _all(self) -> list[SharedIndexInformer[Any]]:
        return [self.jobs, self.pods, *self.events]

    def _informer(
        self,
        what: str,
        resource: Resource,
        codec: Codec[T],
        key_of: Callable[[T], str],
        *,
        labels: str = "",
        fields: str = "",
    ) -> SharedIndexInformer[T]:
        source = ListWatch(self._client, codec, namespace=self.scope, label_selector=labels, field_selector=fields)
        informer = SharedIndexInformer[T](
            NotedSource(source, lambda error: self._note(what, error)), resource, name=what
        )

        def told(item: T) -> None:
            key = key_of(item)
            if key:
                self._changed(key)

        informer.add_event_handler(
            EventHandlerFuncs[T](
                on_add=lambda item, _: told(item),
                on_update=lambda _, new: told(new),
                on_delete=lambda item: told(object_of(item)),
            )
        )
        return informer

    def _note(self, what: str, error: ApiError | None) -> None:
        if error is not None:
            self.troubles[what] = error
        elif self.troubles.pop(what, None) is None:
            return
        self._changed("")


def _may_be_of(pod: Pod, uid: str) -> bool:
    owners = [each.uid for each in pod.metadata.owner_references or () if each.controller and each.kind == TFJOBS.kind]
    return not (uid and owners) or uid in owners
