"""Informers shared by all browsers: jobs, their pods and events, of all namespaces or one.

Failed reads are listed in `read_errors`. The reflector retries them, so a permission takes effect once it is granted.
Jobs of an API are read while the cluster serves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple

import msgspec

from tfjob_operator.api.client import errors
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import EVENTS, PODS
from tfjob_operator.api.meta import Resource, controller_of, object_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.model.objects import BATCH_JOBS, WORKLOADS, EventDetails, ObjectDetails, PodDetails, Workload
from tfjob_operator.cli.page.objects import (
    POD_SELECTOR,
    TENSORFLOW_V1ALPHA1,
    JobKey,
    PageJob,
    TensorFlowV1Alpha1Job,
    by_job_of_pod,
    is_runtime_mark,
    marks_of_event,
    marks_of_job,
    read_key,
    with_unreadable_status,
)
from tfjob_operator.informers import Codec, EventHandlerFuncs, ListWatch, Registration, SharedIndexInformer, object_of
from tfjob_operator.informers.codec import ListPage
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.listwatch import Batch, ListerWatcher
from tfjob_operator.informers.store import NAMESPACE_INDEX

POLL_S: Final = 120.0
"""How often it is checked whether an API that is not served has been installed."""
FIRST_RECHECK_S: Final = 5.0
"""When missing jobs are first checked again: an API server that starts serves CRDs a moment later."""


@asynccontextmanager
async def background_tasks(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these tasks within the context, which ends if one of them fails."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in running:
                task.cancel()


class JobInformers(NamedTuple):
    """Two informers, and the registration of the handler of jobs."""

    jobs: SharedIndexInformer[PageJob]
    events: SharedIndexInformer[EventDetails]
    registration: Registration


@dataclass(slots=True)
class JobCaches:
    """The cached jobs of one API."""

    resource: Resource
    informers: JobInformers | None = None
    """None while the API is not served."""
    is_absent: bool = False
    """True once the API was not served."""
    cannot_be_read: bool = False
    """True if listing the jobs has failed."""
    not_found: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if the API server does not serve the resource: its CRD may have been deleted."""

    @property
    def is_complete(self) -> bool:
        """Return True if all jobs are cached and handled, cannot be read, or are not served."""
        if self.informers is None:
            return self.is_absent
        return self.informers.registration.has_synced or self.cannot_be_read


APIS: Final = (TFJOBS, TENSORFLOW_V1ALPHA1)
"""The APIs whose jobs the page shows."""


class _Group(msgspec.Struct):
    name: str = ""
    versions: list[dict[str, str]] | None = None


class _Groups(msgspec.Struct):
    groups: list[_Group] | None = None


async def served(client: RestClient) -> frozenset[Resource]:
    """Return the served ones of `APIS`, and Kueue's Workloads in the version that it prefers. Raises ApiError."""
    try:
        found = msgspec.json.decode(await client.get_raw("/apis"), type=_Groups)
    except msgspec.MsgspecError as error:
        raise errors.DecodeError(f"not a list of API groups: {error}") from error
    versions = {group.name: [each.get("version", "") for each in group.versions or ()] for group in found.groups or ()}
    kueue = [replace(WORKLOADS, version=version) for version in versions.get(WORKLOADS.group, ())[:1]]
    return frozenset([*(api for api in APIS if api.version in versions.get(api.group, ())), *kueue])


_IN_ORDER: Final = (errors.ExpiredError, errors.InvalidError, errors.TooLargeResourceVersionError)
"""Errors after which the reflector immediately sends another request."""


class ReportingSource(Generic[T]):
    """`ListerWatcher` that calls `note` with the error of each failed request, None on success.

    The end of a stream is not reported.
    """

    def __init__(self, source: ListerWatcher[T], note: Callable[[errors.ApiError | None], None]) -> None:
        self._source = source
        self._note = note

    async def list(self, options: ListOptions) -> ListPage[T]:
        """See `ListerWatcher.list`."""
        with self._noted():
            return await self._source.list(options)

    @asynccontextmanager
    async def watch(self, options: ListOptions) -> AsyncIterator[AsyncIterator[Batch[T]]]:
        """See `ListerWatcher.watch`."""
        async with AsyncExitStack() as stack:
            with self._noted():
                batches = await stack.enter_async_context(self._source.watch(options))
            yield batches

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except errors.ApiError as error:
            if not isinstance(error, _IN_ORDER):
                self._note(error)
            raise
        self._note(None)


BY_JOB: Final = "job"
BY_MARK: Final = "mark"
_NOT_FOUND: Final = 404
_NO_CRD: Final = "this cluster has no TFJobs: the operator's CRD tfjobs.kubeflow.org is not installed"
_OWNERS: Final = {resource.kind for resource in APIS}
_KINDS: Final[dict[Resource, tuple[str, Codec[Any]]]] = {
    TFJOBS: ("TFJobs", Codec(TFJOBS, PageJob, on_undecodable=with_unreadable_status(PageJob))),
    TENSORFLOW_V1ALPHA1: (
        "TfJobs of tensorflow.org",
        Codec(TENSORFLOW_V1ALPHA1, TensorFlowV1Alpha1Job, on_undecodable=with_unreadable_status(TensorFlowV1Alpha1Job)),
    ),
}
"""The resources that are read of each API, with their names. Codecs are stateless."""


async def readable_scope(client: RestClient, *, own: str, everywhere: bool | None) -> str:
    """Return the namespace to show, "" for all.

    If `everywhere` is None, return all namespaces if the user may list jobs in all of them, else `own`. Raises CliError if the
    server cannot be reached. A missing permission raises nothing: the page shows it.
    """
    scope = own if everywhere is False else ""
    try:
        await _find_jobs(client, ListOptions(namespace=scope, limit=1))
    except errors.ForbiddenError:
        return own if everywhere is None else scope
    except errors.ApiError as error:
        is_missing = isinstance(error, errors.StatusError) and error.code == _NOT_FOUND
        raise CliError(_NO_CRD if is_missing else str(error)) from error
    return scope


async def _find_jobs(client: RestClient, options: ListOptions) -> None:
    """List jobs of the first API that is served. Raises ApiError."""
    try:
        await client.list_page(TFJOBS, options)
    except errors.StatusError as error:
        if error.code != _NOT_FOUND or TENSORFLOW_V1ALPHA1 not in await served(client):
            raise
        await client.list_page(TENSORFLOW_V1ALPHA1, options)


class Cluster:
    """The caches.

    `changed` is called with the key of a job when the job, its pods or its events change; with "" when `read_errors` changes.
    Workloads of Kueue are optional: without permission to read them, nothing is reported.
    """

    def __init__(
        self, client: RestClient, scope: str, changed: Callable[[str], None], *, reads_workloads: bool = False
    ) -> None:
        self._client = client
        self._changed = changed
        self.scope = scope
        self.read_errors: dict[str, errors.ApiError] = {}
        """The last error by what was read, such as "pods", until reading succeeds."""
        self._apis = {api: JobCaches(api) for api in APIS}
        self._pods, self._pods_handled = self._informer(
            "pods", PODS, Codec(PODS, PodDetails), by_job_of_pod, labels=POD_SELECTOR
        )
        self._pods.add_indexers({BY_JOB: by_job_of_pod})
        self._pod_events = self._informer_of_events(PODS)
        self._batch_events = self._informer_of_events(BATCH_JOBS)
        self._alpha_jobs_seen = asyncio.Event()
        self._reads_workloads = reads_workloads
        self._workloads: SharedIndexInformer[Workload] | None = None

    @property
    def has_synced(self) -> bool:
        """True if jobs and pods are complete, or cannot be read."""
        pods = self._pods_handled.has_synced or self._pods.name in self.read_errors
        return pods and all(api.is_complete for api in self._apis.values())

    @property
    def places(self) -> frozenset[str]:
        """The places that have jobs, see `JobKey`."""
        return frozenset(
            JobKey(api.resource, namespace, "").place
            for api in self._apis.values()
            if api.informers is not None and api.informers.jobs.started
            for namespace in api.informers.jobs.indexer.index_values(NAMESPACE_INDEX)
        )

    def __len__(self) -> int:
        """Return the number of jobs."""
        return sum(len(informers.jobs.indexer) for informers in self._served())

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run the informers within the context."""
        jobs = map(self._read_jobs, self._apis.values())
        others = [self._read_workloads()] if self._reads_workloads else []
        own = (self._pods.run(), self._pod_events.run(), self._read_events_of_batch_jobs())
        return background_tasks(*own, *jobs, *others)

    def job(self, key: str) -> PageJob | None:
        """Return a job, None if it does not exist."""
        wanted = read_key(key)
        informers = self._apis[wanted.resource].informers
        if informers is None or not informers.jobs.started:
            return None
        return informers.jobs.indexer.get(object_key(wanted.namespace, wanted.name))

    def pods_of(self, key: str) -> list[PodDetails]:
        """Return the pods of a job, without those of an earlier job of the same name."""
        job = self.job(key)
        uid = job.metadata.uid if job is not None else ""
        return [pod for pod in self._pods.indexer.by_index(BY_JOB, key) if _may_be_of(pod, uid)]

    def pod(self, key: str) -> PodDetails | None:
        """Return the pod of a replica, None if it does not exist."""
        return self._pods.indexer.get(key)

    def workload_of(self, key: str) -> Workload | None:
        """Return Kueue's Workload of a job, None if there is none or it is not read."""
        job, informer = self.job(key), self._workloads
        is_read = informer is not None and informer.started and job is not None
        found = informer.indexer.by_index(BY_JOB, key) if informer is not None and is_read else ()
        return next(
            (workload for workload in found if job is not None and _may_be_of(workload, job.metadata.uid)), None
        )

    def events_of(self, key: str) -> list[EventDetails]:
        """Return the events about a job, its pods and, in the alpha dialect, their Jobs."""
        job = self.job(key)
        marks = (key, *marks_of_job(job)) if job is not None else (key,)
        about_jobs = [each.events for each in self._served()]
        return [
            event
            for informer in (*about_jobs, self._pod_events, self._batch_events)
            if informer.started  # those of batch Jobs only with jobs of the alpha dialect
            for mark in marks
            for event in informer.indexer.by_index(BY_JOB, mark)
        ]

    def _served(self) -> list[JobInformers]:
        found = [api.informers for api in self._apis.values() if api.informers is not None]
        return [informers for informers in found if informers.jobs.started]

    async def _read_jobs(self, api: JobCaches) -> None:
        """Read the jobs of an API until cancelled. An API that is not served is only checked periodically."""
        what, codec = _KINDS[api.resource]
        while True:
            if not await self._is_served(api):
                api.is_absent = True
                await asyncio.sleep(POLL_S)
                continue
            jobs, registration = self._informer(
                what, api.resource, codec, lambda job: (job.key,), note=lambda error: self._note_jobs(api, what, error)
            )
            jobs.add_indexers({BY_MARK: marks_of_job})
            events = self._informer_of_events(api.resource)
            api.informers = JobInformers(jobs, events, registration)
            async with background_tasks(jobs.run(), events.run()):
                await self._until_absent(api)
            api.is_absent, api.informers, api.cannot_be_read = True, None, False
            for job in jobs.indexer.list():
                self._changed(job.key)
            self._changed("")

    async def _until_absent(self, api: JobCaches) -> None:
        is_served = True
        while is_served:
            await api.not_found.wait()
            await asyncio.sleep(FIRST_RECHECK_S)
            is_served = await self._is_served(api)
            api.not_found.clear()

    async def _is_served(self, api: JobCaches) -> bool:
        try:
            return api.resource in await served(self._client)
        except errors.ApiError:  # keep reading: the informers report the error
            return api.informers is not None or api.resource == TFJOBS

    async def _read_events_of_batch_jobs(self) -> None:
        """Read the Job controller's events as soon as there is a job of the alpha dialect; no other jobs need them."""
        await self._alpha_jobs_seen.wait()
        await self._batch_events.run()

    async def _read_workloads(self) -> None:
        """Read the Workloads as soon as Kueue is served, in one version until the page ends."""
        while True:
            with suppress(errors.ApiError):
                for resource in await served(self._client):
                    if resource.group == WORKLOADS.group:
                        codec = Codec(resource, Workload)
                        self._workloads, _ = self._informer(
                            "workloads", resource, codec, _by_owner, note=lambda _: None
                        )
                        self._workloads.add_indexers({BY_JOB: _by_owner})
                        await self._workloads.run()
            await asyncio.sleep(POLL_S)

    def _informer_of_events(self, about: Resource) -> SharedIndexInformer[EventDetails]:
        codec = Codec(EVENTS, EventDetails)
        informer, _ = self._informer(
            "events", EVENTS, codec, marks_of_event, fields=f"involvedObject.kind={about.kind}"
        )
        informer.add_indexers({BY_JOB: marks_of_event})
        return informer

    def _informer(
        self,
        what: str,
        resource: Resource,
        codec: Codec[T],
        marks_of: Callable[[T], Sequence[str]],
        *,
        labels: str = "",
        fields: str = "",
        note: Callable[[errors.ApiError | None], None] | None = None,
    ) -> tuple[SharedIndexInformer[T], Registration]:
        """Return an informer, and the registration of the handler that calls `changed` for each object."""
        source = ListWatch(self._client, codec, namespace=self.scope, label_selector=labels, field_selector=fields)
        noted = ReportingSource(source, note or (lambda error: self._note(what, error)))
        informer = SharedIndexInformer[T](noted, resource, name=what)

        def handle(item: T) -> None:
            if isinstance(item, PageJob) and item.is_alpha:
                self._alpha_jobs_seen.set()
            for key in self._keys(marks_of(item)):
                self._changed(key)

        registration = informer.add_event_handler(
            EventHandlerFuncs[T](
                on_add=lambda item, _: handle(item),
                on_update=lambda _, new: handle(new),
                on_delete=lambda item: handle(object_of(item)),
            )
        )
        return informer, registration

    def _keys(self, marks: Sequence[str]) -> Iterator[str]:
        """Yield the keys of the jobs with these marks. A mark that is a key is yielded even if the job does not exist."""
        for mark in marks:
            if not is_runtime_mark(mark):
                yield mark
                continue
            for informers in self._served():
                yield from (job.key for job in informers.jobs.indexer.by_index(BY_MARK, mark))

    def _note_jobs(self, api: JobCaches, what: str, error: errors.ApiError | None) -> None:
        """Record whether jobs could be read. Most users have no permission for the oldest API, and no jobs in it."""
        api.cannot_be_read = error is not None
        not_found = isinstance(error, errors.StatusError) and error.code == _NOT_FOUND
        if not_found:
            api.not_found.set()
        if api.resource == TENSORFLOW_V1ALPHA1 and (not_found or isinstance(error, errors.ForbiddenError)):
            error = None
        self._note(what, error)

    def _note(self, what: str, error: errors.ApiError | None) -> None:
        if error is not None:
            self.read_errors[what] = error
        elif self.read_errors.pop(what, None) is None:
            return
        self._changed("")


def _by_owner(workload: Workload) -> Sequence[str]:
    """Index Workloads by the key of the job that they belong to."""
    owner = controller_of(workload.metadata)
    resources = [api for api in APIS if owner is not None and api.kind == owner.kind]
    return [
        str(JobKey(resource, workload.metadata.namespace, owner.name)) for resource in resources if owner is not None
    ]


def _may_be_of(pod: ObjectDetails, uid: str) -> bool:
    owners = [
        reference.uid
        for reference in pod.metadata.owner_references or ()
        if reference.controller and reference.kind in _OWNERS
    ]
    return not (uid and owners) or uid in owners
