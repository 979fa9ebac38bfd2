"""The requests with which the model of the API server is compared with the real one.

Each chapter sends requests and may use the responses (versions, UIDs, tokens) in the next ones. It runs on two servers, or on
one and is compared with the recorded responses of another (`test/data/recordings/*/conformance`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from hack.objects import an_object
from kit.model.kinds import CONFIG_MAPS, NAMESPACES
from simulation.conformance.session import Session
from tfjob_operator.api.client.options import APPLY_PATCH
from tfjob_operator.api.core import EVENTS, LEASES, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

Chapter = Callable[[Session], Awaitable[None]]

NOON: Final = "2020-01-01T12:00:00Z"
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


def config_map(name: str, labels: dict[str, str] | None = None, /, **data: str) -> dict[str, Any]:
    return an_object(CONFIG_MAPS, name, **({"labels": labels} if labels else {})) | {"data": data}


pod = partial(an_object, PODS, spec={"containers": [{"name": "main", "image": "none"}]})
tfjob = partial(an_object, TFJOBS, spec={"tfReplicaSpecs": {}})
"""Return a TFJob; the server validates only its status."""


def lease(name: str, holder: str) -> dict[str, Any]:
    return an_object(LEASES, name, {"holderIdentity": holder, "leaseDurationSeconds": 15})


async def creates(s: Session) -> None:
    """POST and GET."""
    await s.create(CONFIG_MAPS, config_map("a", {"x": "1"}, k="v"))
    await s.create(CONFIG_MAPS, config_map("a"))
    await s.send("GET", CONFIG_MAPS, "a")
    await s.send("GET", CONFIG_MAPS, "nobody")
    await s.send("GET", TFJOBS, "nobody")
    await s.send("GET", f"/api/v1/namespaces/{s.namespace}/nonsense/a")
    await s.send("GET", "/apis/kubeflow.org/v9/tfjobs")
    await s.create(CONFIG_MAPS, config_map("a"), namespace="no-such-namespace")
    await s.create(CONFIG_MAPS, config_map("b") | {"metadata": {"name": "b", "namespace": "other"}})
    await s.create(CONFIG_MAPS, {"data": {}, "metadata": {}})
    await s.create(CONFIG_MAPS, config_map("c") | {"metadata": {"name": "c", "resourceVersion": "7"}})
    await s.create(CONFIG_MAPS, config_map("d"), dryRun="All")
    await s.send("GET", CONFIG_MAPS, "d")
    await s.create(CONFIG_MAPS, {"metadata": {"generateName": "from-"}})
    given = {"name": "e", "uid": "mine", "generation": 7, "deletionTimestamp": "2020-01-01T00:00:00Z"}
    await s.create(CONFIG_MAPS, {"metadata": given})
    await s.create(TFJOBS, tfjob("job", generation=7) | {"status": {"startTime": "2020-01-01T00:00:00Z"}})
    await s.create(TFJOBS, tfjob("job"))
    await s.create(PODS, pod("p") | {"status": {"phase": "Running"}})
    await s.create(LEASES, lease("l", "me"))
    spec = {"clusterIP": "None", "ports": [{"port": 1}], "selector": {"a": "b"}}
    await s.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec})
    about = {"kind": "ConfigMap", "name": "a", "namespace": s.namespace}
    await s.create(EVENTS, {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "type": "Normal"})
    await s.send("DELETE", CONFIG_MAPS, "nobody")
    await s.send("DELETE", CONFIG_MAPS, "a")
    await s.send("DELETE", TFJOBS, "job")
    await s.send("DELETE", SERVICES, "s")
    await s.send("DELETE", LEASES, "l")
    await s.send("DELETE", EVENTS, "e")
    await s.send("DELETE", PODS, "p")


async def updates(s: Session) -> None:
    """PUT (SV-11)."""
    first = await s.create(CONFIG_MAPS, config_map("a", k="1"))
    await s.send("PUT", CONFIG_MAPS, "a", config_map("a", k="2"))
    await s.send("PUT", CONFIG_MAPS, "a", first)
    second = await s.send("GET", CONFIG_MAPS, "a")
    await s.send("PUT", CONFIG_MAPS, "a", second)  # nothing changed: same version
    await s.send("PUT", CONFIG_MAPS, "a", second | {"data": {"k": "3"}})
    await s.send("PUT", CONFIG_MAPS, "a", config_map("b"))
    await s.send("PUT", CONFIG_MAPS, "b", config_map("b"))
    other_uid = {"metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}}
    await s.send("PUT", CONFIG_MAPS, "a", config_map("a") | other_uid)
    await s.send("PUT", CONFIG_MAPS, "a", config_map("a", k="4"), dryRun="All")
    await s.send("GET", CONFIG_MAPS, "a")
    await s.create(TFJOBS, tfjob("job"))
    await s.send("PUT", TFJOBS, "job", tfjob("job"))
    await s.create(LEASES, lease("l", "me"))
    await s.send("PUT", LEASES, "l", lease("l", "you"))
    stale = await s.send("GET", LEASES, "l")
    await s.send("PUT", LEASES, "l", stale | {"spec": {"holderIdentity": "you"}})
    await s.send("PUT", LEASES, "l", stale | {"spec": {"holderIdentity": "me"}})
    await s.send("PUT", LEASES, "new", lease("new", "me"))
    await s.send("PUT", CONFIG_MAPS, "a", second | {"metadata": second["metadata"] | {"labels": {"a": "b"}}})
    await s.send("DELETE", CONFIG_MAPS, "a")
    await s.send("PUT", CONFIG_MAPS, "a", second)
    await s.send("DELETE", LEASES, "l")
    await s.send("PUT", LEASES, "l", stale)


async def patches(s: Session) -> None:
    """PATCH, in its three forms."""
    first = await s.create(CONFIG_MAPS, config_map("a", {"x": "1"}, k="1", l="1"))
    await s.patch(CONFIG_MAPS, "a", MERGE, {"data": {"k": "2", "l": None}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"data": {"k": "2"}})
    stale = first["metadata"]["resourceVersion"]
    await s.patch(CONFIG_MAPS, "a", MERGE, {"metadata": {"resourceVersion": stale}, "data": {"k": "3"}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"metadata": {"uid": "other"}, "data": {"k": "3"}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"metadata": {"uid": first["metadata"]["uid"]}, "data": {"k": "3"}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"metadata": {"name": "b"}})
    await s.patch(CONFIG_MAPS, "nobody", MERGE, {"data": {}})
    newest = await s.patch(CONFIG_MAPS, "a", JSON, [{"op": "add", "path": "/data/m", "value": "1"}])
    version = newest["metadata"]["resourceVersion"]
    for value in (stale, version):
        replace = {"op": "replace", "path": "/metadata/resourceVersion", "value": value}
        await s.patch(CONFIG_MAPS, "a", JSON, [replace, {"op": "replace", "path": "/data/m", "value": "2"}])
    await s.patch(CONFIG_MAPS, "a", JSON, [{"op": "test", "path": "/data/m", "value": "9"}])
    await s.patch(CONFIG_MAPS, "a", JSON, [{"op": "remove", "path": "/data/nothing"}])
    await s.patch(CONFIG_MAPS, "a", JSON, [{"op": "replace", "path": "/data/nothing", "value": "1"}])
    await s.patch(CONFIG_MAPS, "a", JSON, [{"op": "remove", "path": "/data/m"}])
    await s.patch(CONFIG_MAPS, "a", STRATEGIC, {"metadata": {"labels": {"x": None, "y": "2"}}})
    await s.create(TFJOBS, tfjob("job"))
    await s.patch(TFJOBS, "job", STRATEGIC, {"spec": {}})
    await s.patch(TFJOBS, "job", MERGE, {"spec": {"runPolicy": {"suspend": True}}})
    await s.patch(TFJOBS, "job", MERGE, {"metadata": {"labels": {"a": "b"}}})
    await owners_by_patch(s)


async def owners_by_patch(s: Session) -> None:
    """Adoption and release are strategic merges of one owner reference (RM-03)."""
    body = await s.create(PODS, pod("p"))
    uid = body["metadata"]["uid"]
    uids = [(await s.create(CONFIG_MAPS, config_map(name)))["metadata"]["uid"] for name in ("one", "two", "three")]
    first, second, third = (
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
        for name, uid in zip(("one", "two", "three"), uids, strict=True)
    )
    await s.patch(PODS, "p", STRATEGIC, {"metadata": {"uid": uid, "ownerReferences": [first]}})
    await s.patch(PODS, "p", STRATEGIC, {"metadata": {"uid": uid, "ownerReferences": [second]}})
    both = [second | {"controller": True}, third]
    await s.patch(PODS, "p", STRATEGIC, {"metadata": {"uid": uid, "ownerReferences": both}})
    drop = {"$patch": "delete", "uid": uids[0]}
    await s.patch(PODS, "p", STRATEGIC, {"metadata": {"uid": uid, "ownerReferences": [drop]}})
    await s.patch(PODS, "p", STRATEGIC, {"metadata": {"uid": "another", "ownerReferences": [first]}})
    ready = {"type": "Ready", "status": "False"}
    done = {"type": "Done", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    await s.patch(PODS, "p", STRATEGIC, {"status": status}, sub="status")
    await s.patch(PODS, "p", STRATEGIC, {"status": {"conditions": [done]}}, sub="status")
    await s.patch(PODS, "p", STRATEGIC, {"status": {"conditions": [ready | {"status": "True"}]}}, sub="status")
    about = {"kind": "ConfigMap", "name": "a", "namespace": s.namespace}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "type": "Normal", "count": 1}
    await s.create(EVENTS, event)
    await s.patch(EVENTS, "e", STRATEGIC, {"count": 2, "message": "again"})
    await s.patch(EVENTS, "gone", STRATEGIC, {"count": 2})


async def statuses(s: Session) -> None:
    """The status subresource, and generations (SV-12)."""
    job = await s.create(TFJOBS, tfjob("job"))
    status = {"startTime": "2020-01-01T00:00:00Z"}
    after = await s.send("PUT", TFJOBS, "job", job | {"status": status, "spec": {"no": 1}}, sub="status")
    await s.send("PUT", TFJOBS, "job", job | {"status": status}, sub="status")
    labelled = after["metadata"] | {"labels": {"a": "b"}}
    await s.send("PUT", TFJOBS, "job", after | {"status": {}, "metadata": labelled})
    newest = await s.send("GET", TFJOBS, "job")
    await s.send("PUT", TFJOBS, "job", newest | {"status": {}, "spec": {"changed": True}})
    newest = await s.send("GET", TFJOBS, "job")
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": newest["metadata"]["resourceVersion"]}
    add = {"op": "add", "path": "/status", "value": {"completionTime": "2020-01-01T00:00:00Z"}}
    await s.patch(TFJOBS, "job", JSON, [version, add], sub="status")
    await s.patch(TFJOBS, "job", JSON, [version, add], sub="status")
    await s.patch(TFJOBS, "job", MERGE, {"metadata": {"labels": {"no": "no"}}, "status": status}, sub="status")
    await s.patch(TFJOBS, "job", MERGE, {"status": {"startTime": None}, "metadata": {"annotations": {"a": "b"}}})
    await s.patch(TFJOBS, "nobody", MERGE, {"status": {}}, sub="status")
    await s.create(CONFIG_MAPS, config_map("a"))
    await s.patch(CONFIG_MAPS, "a", MERGE, {"data": {}}, sub="status")
    made = await s.create(PODS, pod("p"))
    labelled = made["metadata"] | {"labels": {"c": "d"}}
    await s.send("PUT", PODS, "p", made | {"status": {"phase": "Running"}, "metadata": labelled})
    await s.patch(PODS, "p", MERGE, {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}, sub="status")


async def deletions(s: Session) -> None:
    """Preconditions, finalizers, grace, bindings."""
    first = await s.create(CONFIG_MAPS, config_map("a"))
    await s.send("DELETE", CONFIG_MAPS, "a", {"preconditions": {"uid": "another"}})
    await s.send("DELETE", CONFIG_MAPS, "a", {"preconditions": {"resourceVersion": "1"}})
    await s.send("DELETE", CONFIG_MAPS, "a", {"preconditions": {"uid": first["metadata"]["uid"]}})
    kept = {"metadata": {"name": "b", "finalizers": ["example.com/keep"]}}
    await s.create(CONFIG_MAPS, config_map("b") | kept)
    await s.send("DELETE", CONFIG_MAPS, "b")
    await s.send("DELETE", CONFIG_MAPS, "b")
    await s.create(CONFIG_MAPS, config_map("b"))
    await s.patch(CONFIG_MAPS, "b", MERGE, {"data": {"still": "here"}})
    await s.patch(CONFIG_MAPS, "b", MERGE, {"metadata": {"finalizers": ["example.com/keep", "example.com/more"]}})
    await s.patch(CONFIG_MAPS, "b", MERGE, {"metadata": {"finalizers": None}})
    await s.send("GET", CONFIG_MAPS, "b")
    await s.create(TFJOBS, tfjob("job", finalizers=["example.com/keep"]))
    await s.send("DELETE", TFJOBS, "job")
    await s.patch(TFJOBS, "job", MERGE, {"metadata": {"finalizers": []}})
    await s.send("GET", TFJOBS, "job")
    await s.create(PODS, pod("p"))
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "node"}}
    await s.send("POST", PODS, "p", target, sub="binding")
    await s.send("POST", PODS, "p", target, sub="binding")
    await s.send("DELETE", PODS, "p")
    await s.send("DELETE", PODS, "p")
    await s.send("DELETE", PODS, "p", {"gracePeriodSeconds": 5})
    await s.create(PODS, pod("p"))
    await s.send("DELETE", PODS, "p", {"gracePeriodSeconds": 0})
    await s.create(PODS, pod("q") | {"spec": pod("q")["spec"] | {"nodeName": "node"}})
    await s.patch(PODS, "q", STRATEGIC, {"status": {"phase": "Failed"}}, sub="status")
    await s.send("DELETE", PODS, "q")
    await s.send("GET", PODS, "q")


async def collections(s: Session) -> None:
    """Lists: pages, tokens, selectors, versions (SV-01)."""
    await s.send("GET", TFJOBS)
    made = {}
    for number, color in enumerate(("red", "gold", "red", "", "red")):
        labels = {"color": color} if color else None
        made[number] = await s.create(CONFIG_MAPS, config_map(f"m{number}", labels))
    ours = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}
    page = await s.send("GET", CONFIG_MAPS, **ours, limit="2")
    token = page["metadata"]["continue"]
    await s.send("DELETE", CONFIG_MAPS, "m3")
    await s.create(CONFIG_MAPS, config_map("m5"))
    await s.send("GET", CONFIG_MAPS, **ours, limit="2", **{"continue": token})
    await s.send("GET", CONFIG_MAPS, **ours, **{"continue": token})
    await s.send("GET", CONFIG_MAPS, **ours, **{"continue": token}, resourceVersion="5")
    await s.send("GET", CONFIG_MAPS, **ours, **{"continue": token}, resourceVersion="0")
    for selector in ("color=red", "color!=red", "color in (red, gold)", "color notin (red,gold)", "color", "!color"):
        await s.send("GET", CONFIG_MAPS, **ours, labelSelector=selector)
    await s.send("GET", CONFIG_MAPS, labelSelector="color=red", limit="2")
    await s.send("GET", CONFIG_MAPS, fieldSelector="metadata.name=m1")
    await s.send("GET", CONFIG_MAPS, fieldSelector="data.x=m1")
    version = made[2]["metadata"]["resourceVersion"]
    await s.send("GET", CONFIG_MAPS, **ours, resourceVersion=version, resourceVersionMatch="Exact")
    await s.send("GET", CONFIG_MAPS, **ours, resourceVersion=version, limit="9")
    await s.send("GET", CONFIG_MAPS, resourceVersionMatch="Exact")
    await s.create(TFJOBS, tfjob("job"))
    await s.send("GET", TFJOBS)
    await s.create(PODS, pod("p"))
    await s.send("GET", PODS, fieldSelector="spec.nodeName=")
    await s.send("GET", PODS, fieldSelector="status.phase=Running")


async def expired_versions(s: Session) -> None:
    """410 after a compaction, and 504 for versions from the future (SV-02, SV-05)."""
    for number in range(4):
        newest = await s.create(CONFIG_MAPS, config_map(f"m{number}"))
    ours = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}
    page = await s.send("GET", CONFIG_MAPS, **ours, limit="2")
    for number in range(3):
        await s.patch(CONFIG_MAPS, "m0", MERGE, {"data": {"k": str(number)}})
    now = await s.send("GET", CONFIG_MAPS, "m0")
    s.compact(int(now["metadata"]["resourceVersion"]))
    await s.send("GET", CONFIG_MAPS, **ours, limit="2", **{"continue": page["metadata"]["continue"]})
    old = newest["metadata"]["resourceVersion"]
    await s.send("GET", CONFIG_MAPS, **ours, resourceVersion=old, resourceVersionMatch="Exact")
    await s.watch(TFJOBS, resourceVersion="1")
    future = str(int(now["metadata"]["resourceVersion"]) + 1_000_000)
    await s.send("GET", CONFIG_MAPS, resourceVersion=future)


async def watches(s: Session) -> None:
    """Events, objects that start and stop matching selectors, start versions."""
    first = await s.create(CONFIG_MAPS, config_map("a", {"color": "red"}))
    await s.patch(CONFIG_MAPS, "a", MERGE, {"data": {"k": "1"}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"metadata": {"labels": {"color": "gold"}}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"data": {"k": "2"}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"metadata": {"labels": {"color": "red"}}})
    await s.send("DELETE", CONFIG_MAPS, "a")
    kept = {"metadata": {"name": "b", "finalizers": ["example.com/keep"]}}
    await s.create(CONFIG_MAPS, config_map("b") | kept)
    await s.send("DELETE", CONFIG_MAPS, "b")
    await s.patch(CONFIG_MAPS, "b", MERGE, {"metadata": {"finalizers": None}})
    start = first["metadata"]["resourceVersion"]
    await s.watch(CONFIG_MAPS, resourceVersion=start)
    await s.watch(CONFIG_MAPS, resourceVersion=start, labelSelector="color=red")
    await s.watch(CONFIG_MAPS, resourceVersion=start, labelSelector="color!=red")
    await s.watch(CONFIG_MAPS, resourceVersion=start, fieldSelector="metadata.name=b")
    begun = await s.create(PODS, pod("p"))
    await s.send("DELETE", PODS, "p")
    await s.watch(PODS, resourceVersion=begun["metadata"]["resourceVersion"])
    await s.create(TFJOBS, tfjob("job"))
    await s.watch(TFJOBS, resourceVersion="0")
    await s.watch(TFJOBS)
    await s.watch(TFJOBS, resourceVersion="0", labelSelector="none=here")
    await s.send("GET", TFJOBS, watch="true", resourceVersion="9", resourceVersionMatch="Exact")


async def streamed_lists(s: Session) -> None:
    """A collection at the start of a watch (RF-27)."""
    stream = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    marked = stream | {"allowWatchBookmarks": "true"}
    await s.watch(TFJOBS, **marked)
    first = await s.create(TFJOBS, tfjob("one", labels={"color": "red"}))
    await s.create(TFJOBS, tfjob("two"))
    await s.create(PODS, pod("p"))
    await s.watch(TFJOBS, **marked)
    await s.watch(PODS, **marked)
    await s.watch(TFJOBS, **marked, labelSelector="color=red")
    await s.watch(TFJOBS, **marked, resourceVersion="0")
    version = first["metadata"]["resourceVersion"]
    await s.watch(TFJOBS, **marked, resourceVersion=version)
    await s.watch(TFJOBS, **marked, resourceVersion=version, limit="1")
    await s.watch(TFJOBS, **marked, resourceVersion=str(int(version) + 1_000_000), timeoutSeconds="9")
    await s.watch(TFJOBS, **stream)
    await s.watch(TFJOBS, **stream | {"sendInitialEvents": "false"}, allowWatchBookmarks="true")
    await s.watch(TFJOBS, allowWatchBookmarks="true")
    await s.watch(TFJOBS, allowWatchBookmarks="true", resourceVersion="0")
    await s.watch(TFJOBS, allowWatchBookmarks="true", resourceVersion=version)
    await s.watch(TFJOBS, sendInitialEvents="true", allowWatchBookmarks="true")
    await s.watch(TFJOBS, **marked | {"resourceVersionMatch": "Exact"})
    await s.send("GET", TFJOBS, **stream)


async def graces(s: Session) -> None:
    """Repeated deletions of a bound pod: only a shorter grace period has an effect, and changes the deletionTimestamp (M2)."""
    await _delete_twice(s, "slow", 25)
    await _delete_twice(s, "late", 1)
    await _delete_twice(s, "none", 0)
    body = pod("ended")
    await s.create(PODS, body | {"spec": body["spec"] | {"nodeName": "node"}})
    await s.send("DELETE", PODS, "ended")
    await s.patch(PODS, "ended", STRATEGIC, {"status": {"phase": "Succeeded"}}, sub="status")
    await s.send("DELETE", PODS, "ended")
    await s.send("DELETE", PODS, "ended", {"gracePeriodSeconds": 0})
    await s.send("GET", PODS, "ended")


async def _delete_twice(s: Session, name: str, grace: int) -> None:
    body = pod(name)
    bound = {"nodeName": "node", "terminationGracePeriodSeconds": 40}
    await s.create(PODS, body | {"spec": body["spec"] | bound})
    first = await s.send("DELETE", PODS, name)
    await asyncio.sleep(2.2)
    await s.send("DELETE", PODS, name, {"gracePeriodSeconds": 60})
    await s.send("DELETE", PODS, name)
    clock = await s.create(CONFIG_MAPS, config_map(name))
    second = await s.send("DELETE", PODS, name, {"gracePeriodSeconds": grace})
    times = [each["metadata"]["deletionTimestamp"] for each in (first, second)]
    before, after = (datetime.fromisoformat(each) for each in times)
    s.note("the deletionTimestamp is in the past", times[1] < clock["metadata"]["creationTimestamp"])
    s.note("it runs from the first deletion", (before - after).total_seconds() == 40 - grace)


async def applies(s: Session) -> None:
    """Server-side apply: owners of fields, conflicts, removal, lists with keys."""

    async def apply(resource: Resource, name: str, manager: str, body: dict[str, Any], **options: str) -> Any:
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        return await s.patch(resource, name, APPLY_PATCH, head | body, fieldManager=manager, **options)

    await apply(CONFIG_MAPS, "a", "one", {"data": {"x": "1", "y": "1"}})
    await apply(CONFIG_MAPS, "a", "one", {"data": {"x": "1", "y": "1"}})
    await apply(CONFIG_MAPS, "a", "two", {"data": {"x": "2"}})
    await apply(CONFIG_MAPS, "a", "two", {"data": {"x": "2", "y": "2"}})
    await apply(CONFIG_MAPS, "a", "two", {"data": {"x": "1", "z": "2"}})
    await apply(CONFIG_MAPS, "a", "one", {"data": {"y": "1"}})
    await apply(CONFIG_MAPS, "a", "two", {"data": {"y": "2", "z": "2"}}, force="true")
    await apply(CONFIG_MAPS, "a", "one", {})
    await apply(CONFIG_MAPS, "a", "one", {"data": {"y": "1"}})
    await s.patch(CONFIG_MAPS, "a", MERGE, {"data": {"z": "3"}}, fieldManager="editor")
    await apply(CONFIG_MAPS, "a", "two", {"data": {"y": "2", "z": "2"}})
    await apply(CONFIG_MAPS, "a", "two", {"data": {"y": "2"}})
    await apply(CONFIG_MAPS, "a", "two", {})
    await s.create(CONFIG_MAPS, config_map("b", k="1"), fieldManager="before-first-apply")
    await apply(CONFIG_MAPS, "b", "one", {"data": {"k": "2"}}, dryRun="All")
    await apply(CONFIG_MAPS, "b", "one", {"data": {"k": "2"}}, dryRun="All", force="true")
    await apply(CONFIG_MAPS, "b", "one", {"metadata": {"name": "b", "labels": {"a": "b"}, "finalizers": ["x/one"]}})
    await apply(CONFIG_MAPS, "b", "two", {"metadata": {"name": "b", "finalizers": ["x/two"]}})
    await apply(CONFIG_MAPS, "b", "one", {"metadata": {"name": "b"}})
    await apply(CONFIG_MAPS, "b", "two", {"metadata": {"name": "b"}})
    await s.patch(CONFIG_MAPS, "a", APPLY_PATCH, config_map("a"))
    await apply(CONFIG_MAPS, "a", "one", {"metadata": {"name": "other"}})
    await apply(CONFIG_MAPS, "a", "one", {"metadata": {"name": "a", "resourceVersion": "1"}})
    await apply(CONFIG_MAPS, "a", "one", {"metadata": {"name": "a", "uid": "other"}})
    await apply(CONFIG_MAPS, "nobody", "one", {"metadata": {"name": "nobody", "uid": "other"}})
    ports = [{"name": name, "port": port, "protocol": "TCP"} for name, port in (("x", 1), ("y", 2), ("z", 3))]
    spec = {"selector": {"a": "b"}, "clusterIP": "None"}
    await apply(SERVICES, "s", "one", {"spec": spec | {"ports": ports[:2]}})
    await apply(SERVICES, "s", "two", {"spec": {"ports": [ports[1] | {"name": "other"}]}})
    await apply(SERVICES, "s", "two", {"spec": {"ports": ports[1:]}})
    service = await apply(SERVICES, "s", "one", {"spec": spec})
    s.note("its ports", [[port["name"], port["port"]] for port in service["spec"]["ports"]])
    await apply(TFJOBS, "job", "one", {"spec": {"tfReplicaSpecs": {}, "runPolicy": {"backoffLimit": 1, "ttl": 2}}})
    await apply(TFJOBS, "job", "two", {"spec": {"tfReplicaSpecs": {}, "runPolicy": {"backoffLimit": 2}}})
    await apply(TFJOBS, "job", "one", {"spec": {"tfReplicaSpecs": {}, "runPolicy": {"ttl": 2}}})
    await apply(TFJOBS, "job", "one", {"spec": {"tfReplicaSpecs": {}}})
    await s.patch(
        TFJOBS,
        "job",
        APPLY_PATCH,
        tfjob("job") | {"status": {"startTime": NOON}},
        sub="status",
        fieldManager="reporter",
    )
    await apply(TFJOBS, "job", "one", {"spec": {"tfReplicaSpecs": {}}})
    await s.send("GET", TFJOBS, "job")


async def owners(s: Session) -> None:
    """The garbage collector: background, orphaning and foreground deletion."""
    for name, policy in (("one", "Background"), ("two", "Orphan"), ("three", "Foreground")):
        owner = await s.create(CONFIG_MAPS, config_map(name))
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}
        references = [reference | {"blockOwnerDeletion": True}]
        await s.create(PODS, pod(f"{name}-child", ownerReferences=references))
        await s.send("DELETE", CONFIG_MAPS, name, {"propagationPolicy": policy})
        await s.until_gone(CONFIG_MAPS, name)
        if policy == "Orphan":
            await s.until(PODS, f"{name}-child", lambda _, found: "ownerReferences" not in found["metadata"])
        else:
            await s.until_gone(PODS, f"{name}-child")


async def terminating_namespaces(s: Session) -> None:
    """A terminating namespace accepts no new objects (SB-03)."""
    kept = {"metadata": {"name": "keep", "finalizers": ["example.com/keep"]}}
    await s.create(CONFIG_MAPS, config_map("keep") | kept)
    await s.send("DELETE", NAMESPACES, s.namespace)
    await s.create(CONFIG_MAPS, config_map("more"))
    await s.create(PODS, pod("more"))
    await s.patch(CONFIG_MAPS, "keep", MERGE, {"metadata": {"finalizers": None}})


CHAPTERS: Final = (
    creates,
    updates,
    patches,
    statuses,
    deletions,
    collections,
    expired_versions,
    watches,
    streamed_lists,
    graces,
    applies,
    owners,
    terminating_namespaces,
)
