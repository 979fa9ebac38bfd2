"""Counts the children that the API server created, by UID with its own watch, and detects overlapping attempts.

The audit log is not reliable for that: if a client is killed during a create, the object may be created while the log has a
code other than 201.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from faults.quota import Ends
from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import TransportError
from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, SERVICES, TERMINAL, VOLCANO_POD_GROUPS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import LABEL_ATTEMPT, TFJOBS

CHILDREN: Final = (PODS, SERVICES, CONFIG_MAPS, DEPLOYMENTS, JOBS, VOLCANO_POD_GROUPS)
"""The resources that an operator creates for a job."""


class Census:
    """Counts objects that ever existed, by name and UID, if they are controlled by a TFJob."""

    def __init__(self) -> None:
        self._uids: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._unended: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.overlaps: defaultdict[str, list[str]] = defaultdict(list)
        """By namespace, the pods created before all pods of an earlier attempt had ended."""
        self.ends: Final = Ends()

    def take(self, resource: Resource, item: Mapping[str, Any]) -> None:
        """Record an object from a watch or list; known objects are ignored."""
        meta = item["metadata"]
        owners = meta.get("ownerReferences") or ()
        if any(owner.get("controller") and owner["kind"] == TFJOBS.kind for owner in owners):
            self._uids[meta["namespace"]][f"{resource.plural}/{meta['name']}"].add(meta["uid"])

    def made(self, namespace: str) -> Counter[str]:
        """Return how often each child was created in a namespace, by resource and name."""
        return Counter({child: len(uids) for child, uids in self._uids[namespace].items()})

    def see(self, event: str, pod: Mapping[str, Any]) -> None:
        """Record the next event of the pod watch. Events arrive in the order of the API server's writes."""
        meta, attempt = pod["metadata"], int((pod["metadata"].get("labels") or {}).get(LABEL_ATTEMPT, 0))
        unended = self._unended[meta["namespace"]]
        if event == "ADDED" and any(other < attempt for other in unended.values()):
            self.overlaps[meta["namespace"]].append(f"{meta['name']} of attempt {attempt} overlaps with an earlier one")
        unended[meta["uid"]] = attempt
        if event == "DELETED" or pod["status"].get("phase") in TERMINAL:
            del unended[meta["uid"]]

    def _see(self, resource: Resource, event: str, item: dict[str, Any]) -> None:
        if resource is TFJOBS:
            self.ends.see_job(item)
            return
        self.ends.see_child(resource, item)
        if resource is PODS:
            self.see(event, item)
            self.ends.see_pod(event, item)

    async def _list_jobs(self, client: RestClient) -> str:
        """Record the present version of each job, and return that of the list."""
        listed = json.loads(await client.list_page(TFJOBS, ListOptions()))
        for job in listed["items"]:
            self.ends.see_job(job)
        return str(listed["metadata"]["resourceVersion"])

    async def follow(self, client: RestClient, resource: Resource, version: str) -> None:
        """Record all objects of a resource from a resource version on, until cancelled.

        Raises AssertionError if the server no longer has them all (410), because the count is then unknown. Jobs are listed
        instead: the server forgets their versions when their CRD changes.
        """
        options = ListOptions(resource_version=version, allow_bookmarks=True)
        while True:
            try:
                async with client.watch(resource, options) as lines:
                    async for batch in lines:
                        for line in batch:
                            event = json.loads(line)
                            item = event["object"]
                            if item["kind"] == "Status":
                                if resource is not TFJOBS:
                                    raise AssertionError(f"the watch of {resource.plural} has missed something: {item}")
                                options = replace(options, resource_version=await self._list_jobs(client))
                                break
                            self.take(resource, item)
                            if event["type"] != "BOOKMARK":
                                self._see(resource, event["type"], item)
                            options = replace(options, resource_version=item["metadata"]["resourceVersion"])
            except TransportError:
                continue  # where it ended


@asynccontextmanager
async def census(client: RestClient) -> AsyncIterator[Census]:
    counted = Census()
    async with asyncio.TaskGroup() as tasks:
        running = []
        for resource in (TFJOBS, *CHILDREN):
            listed = json.loads(await client.list_page(resource, ListOptions()))
            version = listed["metadata"]["resourceVersion"]
            running.append(tasks.create_task(counted.follow(client, resource, version), name=f"census {resource}"))
        yield counted
        for task in running:
            task.cancel()
