"""Missed events (unobserved states, Sieve): objects are created and deleted while watches of their kind are frozen.

At a create of the operator the watches of that kind are frozen. Then one of these happens:

- *deleted*: another client deletes the child after the operator got the response;
- *listed-first*: the same, but the response arrives after the new list;
- *ended*: the pod runs to its end on the node first;
- *stranger*: another owner's object has the child's name when the create arrives, and is deleted afterwards;
- *again*: a user deletes the job and creates it again under the same name while the watch of jobs is frozen;
- *beside*: the same with another job, which is deleted completely.

Finally all watches of the kind end with 410. The job's user does nothing in the meantime.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from aiohttp import web

from faults.census import CHILDREN
from faults.field import Field, Thing
from faults.record import Record
from faults.scheme import IMPATIENT_S, Case, Nth, Play, Scheme
from faults.user import NAME, all_ended
from hack.fault_proxy.proxy import Exchange, Seen, error_event
from hack.objects import an_object
from integration.cluster import replica, specs, tfjob
from support.waiting import until
from tfjob_operator.api.client.errors import AlreadyExistsError, NotFoundError
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES, VOLCANO_POD_GROUPS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW
from tfjob_operator.informers.store import NAMESPACE_INDEX

LANES: Final = 6
DELETED, LISTED_FIRST, ENDED, STRANGER, AGAIN, BESIDE = (
    "deleted",
    "listed-first",
    "ended",
    "stranger",
    "again",
    "beside",
)
FAULTS: Final = (DELETED, LISTED_FIRST, ENDED, STRANGER, AGAIN, BESIDE)
LOST: Final = frozenset({DELETED, LISTED_FIRST, ENDED})
"""Faults after which the child is created once more."""
LIMIT_S: Final = 120.0
TICK_S: Final = 0.02
READ_S: Final = 0.3
"""Long enough for the operator to process a received list. If it does not, the case has the other order."""
NOT_PLACED: Final = frozenset({"gang", "queued-gang"})
"""The workloads whose pods do not run until their user binds them."""
MADE_AT_ONCE: Final = frozenset({"plain", "gang", "short-lived", "alpha", "held"})
"""The workloads that create all children before the user does anything else."""
OTHER: Final = "other"
_BODIES: Final[Mapping[Resource, Mapping[str, object]]] = {
    PODS: {"spec": {"containers": [{"name": "main", "image": "nothing"}]}},
    SERVICES: {"spec": {"clusterIP": "None"}},
    CONFIG_MAPS: {},
    VOLCANO_POD_GROUPS: {"spec": {"minMember": 1}},
}
"""What a stranger creates in place of a child."""


def applies(case: Case) -> bool:
    """Select the creates of children, with faults that are possible for their kind and workload."""
    resource = _resource(case)
    if resource is None:
        return False
    if case.fault == ENDED:
        return resource is PODS and case.workload not in NOT_PLACED
    if case.fault == STRANGER:
        return resource in _BODIES and case.workload != "alpha"
    if case.fault == AGAIN:
        return case.workload in MADE_AT_ONCE
    return True


def right_for(case: Case, right: Record, found: Record) -> Record:
    """Return the expected result: a child whose existence was missed is created once more.

    If the job is recreated, its children may be too, depending on timing. One additional create may have been in flight for the
    old job.
    """
    if case.write is None:
        return right
    created = right.created.copy()
    if case.fault in LOST:
        created[case.write.what.partition(" ")[2]] += 1
    if case.fault != AGAIN:
        return replace(right, created=created)
    for child, count in right.created.items():
        created[child] = min(max(found.created[child], count), 2 * count + 1)
    told = {reason: count for reason, count in found.events.items() if reason.startswith("Normal ")}
    return replace(right, created=created, events=right.events | type(right.events)(told))


class Life:
    def __init__(self, field: Field, play: Play) -> None:
        self._field = field
        self._client = field.client
        self._play = play
        assert play.case.write is not None
        resource = _resource(play.case)
        assert resource is not None
        self._resource = resource
        self._name = play.case.write.what.rpartition("/")[2]
        self._took = False
        self._going_on: set[asyncio.Task[None]] = set()

    async def begin(self, exchange: Exchange) -> web.StreamResponse:
        fault, play = self._play.case.fault, self._play
        play.calm.clear()
        if fault in {AGAIN, BESIDE}:
            return await self._with_a_job(exchange)
        play.proxy.freeze_streams(self._is_watch(self._resource))
        if fault == STRANGER:
            await self._take_the_name()
        response = await exchange.forward()
        if fault == LISTED_FIRST:
            await self._end()
            return response
        self._go_on(self._end())
        return response

    async def over(self) -> None:
        await asyncio.gather(*self._going_on)

    def cancel(self) -> None:
        for task in self._going_on:
            task.cancel()

    def _go_on(self, what: Awaitable[None]) -> None:
        async def calm_after() -> None:
            try:
                await what
            finally:
                self._play.calm.set()

        self._going_on.add(asyncio.create_task(calm_after(), name="unseen life"))

    async def _with_a_job(self, exchange: Exchange) -> web.StreamResponse:
        self._play.proxy.freeze_streams(self._is_watch(TFJOBS))
        response = await exchange.forward()
        act = self._make_the_job_again if self._play.case.fault == AGAIN else self._make_another_job

        async def live() -> None:
            await act()
            await self._list_anew(TFJOBS)

        self._go_on(live())
        return response

    async def _end(self) -> None:
        """End the existence of this object as the case requires, and force new lists."""
        if self._play.case.fault == ENDED:
            await self._run_to_the_end()
        if self._play.case.fault != STRANGER or self._took:
            await self._delete(self._resource, self._name)
        await self._list_anew(self._resource)
        if self._play.case.fault == LISTED_FIRST:
            self._play.calm.set()

    async def _take_the_name(self) -> None:
        head = {"apiVersion": self._resource.api_version, "kind": self._resource.kind}
        body = head | {"metadata": {"name": self._name}} | dict(_BODIES[self._resource])
        try:
            await self._client.create(self._resource, self._play.namespace, body)
            self._took = True
        except AlreadyExistsError:
            pass  # the current object with that name is being deleted

    async def _run_to_the_end(self) -> None:
        await until(lambda: self._phase() == "Running", "its pod runs", yet=self._phase, limit_s=LIMIT_S)
        pod = self._pod()
        assert pod is not None
        await self._client.patch(PODS, self._play.namespace, self._name, all_ended(pod))
        await until(lambda: self._phase() == "Succeeded", "its pod has succeeded", yet=self._phase, limit_s=LIMIT_S)

    def _pod(self) -> Thing | None:
        return self._field.pods.indexer.get(f"{self._play.namespace}/{self._name}")

    def _phase(self) -> str:
        pod = self._pod()
        return "" if pod is None else pod.status.get("phase", "")

    async def _delete(self, resource: Resource, name: str) -> None:
        place = self._play.namespace
        found = json.loads(await self._client.get(resource, place, name))["metadata"]
        await self._client.delete(resource, place, name, uid=found["uid"], grace_s=0, propagation="Background")
        is_gone = partial(self._is_gone, resource, name, found["uid"])
        await until(is_gone, f"{name} of {resource.plural} is gone", limit_s=LIMIT_S, tick_s=TICK_S)

    async def _is_gone(self, resource: Resource, name: str, uid: str) -> bool:
        if resource is PODS:  # its user has seen it too
            pod = self._field.pods.indexer.get(f"{self._play.namespace}/{name}")
            return pod is None or pod.metadata.uid != uid
        try:
            found = json.loads(await self._client.get(resource, self._play.namespace, name))
        except NotFoundError:
            return True
        return bool(found["metadata"]["uid"] != uid)

    async def _make_the_job_again(self) -> None:
        resource = KUBEFLOW.resource if self._play.case.workload == "alpha" else TFJOBS
        place = self._play.namespace
        job = json.loads(await self._client.get(resource, place, NAME))
        pods = self._field.pods.indexer
        old = {pod.metadata.uid for pod in pods.by_index(NAMESPACE_INDEX, place)}
        await self._delete(resource, NAME)
        await self._client.create(resource, place, an_object(resource, NAME, job["spec"]))
        again = json.loads(await self._client.get(resource, place, NAME))["metadata"]["uid"]
        jobs = self._field.jobs.indexer

        def is_seen() -> bool:
            found = jobs.get(f"{place}/{NAME}")
            left = any(pod.metadata.uid in old for pod in pods.by_index(NAMESPACE_INDEX, place))
            return found is not None and found.metadata.uid == again and not left

        await until(is_seen, "the operator has seen the event", limit_s=LIMIT_S)

    async def _make_another_job(self) -> None:
        spec = specs(Worker=replica(1, "Never", "forever"))
        await self._client.create(TFJOBS, self._play.namespace, tfjob(OTHER, spec))
        await self._delete(TFJOBS, OTHER)

    async def _list_anew(self, resource: Resource) -> None:
        """End the watches with 410, and wait until the operator received new lists."""
        proxy, watches = self._play.proxy, self._is_watch(resource)
        count = sum(watches(stream.seen) for stream in proxy.streams)
        since = len(proxy.history)
        proxy.rule(watches, error_event(410, "Expired"), times=count)
        proxy.cut_streams(matches=watches)

        def listed() -> bool:
            lists = (each for each in proxy.history[since:] if each.verb == "list" and each.status == 200)
            return sum(each.place.resource == resource.plural for each in lists) >= count

        await until(listed, "the operator has listed its pods", limit_s=LIMIT_S)
        await asyncio.sleep(READ_S)

    @staticmethod
    def _is_watch(resource: Resource) -> Callable[[Seen], bool]:
        return lambda seen: seen.verb == "watch" and seen.place.resource == resource.plural


def _resource(case: Case) -> Resource | None:
    """Return the resource of the child that the case's write creates, or None."""
    if case.write is None:
        return None
    kinds = {f"create {resource.plural}": resource for resource in CHILDREN}
    return kinds.get(case.write.kind)


@asynccontextmanager
async def unseen(field: Field) -> AsyncIterator[Scheme]:
    @asynccontextmanager
    async def arrange(play: Play) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        life = Life(field, play)
        assert play.case.write is not None
        play.proxy.rule(Nth(play.case.write), life.begin)
        try:
            yield life.over
        finally:
            life.cancel()

    yield Scheme(FAULTS, arrange, LANES, applies=applies, right_for=right_for, patience_s=IMPATIENT_S)
