"""Controllers that are declared with `App`, on the model API server."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from pytest_mock import MockerFixture
from structlog.testing import capture_logs

from fakes.cluster import ModelCluster, UnreliableTransport
from fakes.transport import FakeResponse, FakeTransport
from kit.model.kinds import KINDS, NAMESPACES
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from kit.virtual_loop import VirtualClock
from support.cases import for_each
from tfjob_operator.api.client import AccessError, ListOptions, Settings
from tfjob_operator.api.client.errors import ConflictError, ConnectionLostError
from tfjob_operator.api.client.http import OnLeave, Response, unchanged
from tfjob_operator.api.client.http import Request as HttpRequest
from tfjob_operator.api.core import CONFIG_MAPS, DEPLOYMENTS, EVENTS, NODES, PODS
from tfjob_operator.api.kinds import Condition, ConfigMap, Deployment, Kind, Metadata, Node, Pod
from tfjob_operator.api.meta import Meta, Struct, controller_reference
from tfjob_operator.controller.framework import (
    App,
    NotOwnedError,
    References,
    Request,
    RequeueError,
    Watches,
    has_labels,
)
from tfjob_operator.controller.framework.request import TRUST_S, Memory, Written, as_applied
from tfjob_operator.controller.leaderelection import LeadershipLostError
from tfjob_operator.controller.observability import ListenError
from tfjob_operator.workqueue import Clock

SPEC = {"selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {}}}
INFORMER = "/v1/configmaps"
"""The path of the list and watch of all ConfigMaps, and of no other request."""


class BoardStatus(Struct, frozen=True):
    """The status of a Deployment as its controller would write it."""

    ready_replicas: int = 0
    message: str = ""
    conditions: tuple[Condition, ...] = ()


class Board(Kind, frozen=True):
    """A Deployment, as an object with a status of its own."""

    resource = DEPLOYMENTS
    status: BoardStatus | None = None


class CountedStatus(Struct, frozen=True):
    """A status with a map."""

    counts: Mapping[str, int] | None = None


class Counted(Kind, frozen=True):
    """A Deployment with a map in its status."""

    resource = DEPLOYMENTS
    status: CountedStatus | None = None


class Whole(Kind, frozen=True):
    """A Deployment whose spec and status stay JSON."""

    resource = DEPLOYMENTS
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class Bench(ModelCluster[Any]):
    """A cluster with one App."""

    def __init__(self) -> None:
        super().__init__("ns")
        self.syncs: list[str] = []
        self.errors: list[Exception] = []

    def app(self, sync: Any, kind: type[Kind] = Deployment, **options: Any) -> App:
        """Return an App with one controller, whose syncs and errors are recorded."""
        app = App("board-controller")

        @app.controller(kind, **options)
        async def recorded(request: Request[Any]) -> None:
            self.syncs.append(request.key)
            try:
                await sync(request)
            except Exception as error:
                self.errors.append(error)
                raise

        return app

    @asynccontextmanager
    async def running(
        self, app: App, connection: UnreliableTransport | None = None, *, clock: Clock | None = None
    ) -> AsyncIterator[UnreliableTransport]:
        """Run the App in a process of its own; yield its connection."""
        if not self.server.storage.collections.get("namespaces") or not self.names("namespaces"):
            await self.begin()
        stop, connection = asyncio.Event(), connection or UnreliableTransport(self.server, "app")
        task = asyncio.create_task(app.run(stop=stop, transport=connection, clock=clock or VirtualClock()))
        await asyncio.sleep(1.0)
        try:
            yield connection
        finally:
            stop.set()
            await task

    async def create(self, name: str = "a", **metadata: Any) -> None:
        await self.client.create(DEPLOYMENTS, "ns", {"metadata": {"name": name, **metadata}, "spec": SPEC})
        await asyncio.sleep(1.0)

    async def events(self) -> list[tuple[str, str, int]]:
        listed = await self.client.list_page(EVENTS, ListOptions("ns"), dict[str, Any])
        return [(each["involvedObject"]["name"], each["reason"], each["count"]) for each in listed["items"]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def writes(connection: UnreliableTransport) -> list[tuple[str, str]]:
    """The verb and resource of each request that is no read."""
    return [asked for asked in connection.asked if asked[0] not in {"GET", "WATCH"}]


async def lose_cache(bench: Bench, connection: UnreliableTransport) -> None:
    """Interrupt the watch of ConfigMaps for good, and all others for a moment."""
    connection.silent_for = INFORMER
    bench.server.restart()
    await asyncio.sleep(10.0)


async def apply_child(request: Request[Deployment]) -> ConfigMap:
    return await request.apply(ConfigMap, {"metadata": {"name": f"{request.name}-child"}, "data": {"x": "1"}})


async def test_a_child_is_applied_once_and_again_only_when_it_changes(bench: Bench) -> None:
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await bench.create()
        (owner,) = bench.body("configmaps", "a-child")["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Deployment", "a", True)
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(60.0)
        assert writes(connection) == [("PATCH", "configmaps")]
        assert len(bench.syncs) > 2
        await bench.client.patch(CONFIG_MAPS, "ns", "a-child", {"data": {"x": "edited", "theirs": "stays"}})
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "a-child")["data"] == {"x": "1", "theirs": "stays"}
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "a-child")["data"] == {"x": "1"}


async def test_a_field_that_is_no_longer_applied_is_removed(bench: Bench) -> None:
    data = {"x": "1", "y": "2"}

    async def sync(request: Request[Deployment]) -> None:
        await request.apply(ConfigMap, {"metadata": {"name": "child"}, "data": dict(data)})

    async with bench.running(bench.app(sync, owns=[ConfigMap])):
        await bench.create()
        del data["y"]
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "child")["data"] == {"x": "1"}


async def test_a_new_process_reads_each_child_once_and_changes_nothing(bench: Bench) -> None:
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])):
        await bench.create()
    version = bench.body("configmaps", "a-child")["metadata"]["resourceVersion"]
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await asyncio.sleep(60.0)
        reads = [asked for asked in connection.asked if asked == ("GET", "configmaps")]
        assert len(reads) == 2  # the list of the informer, and the child
        assert writes(connection) == [("PATCH", "configmaps")]
    assert bench.body("configmaps", "a-child")["metadata"]["resourceVersion"] == version


async def test_the_object_of_another_is_left_alone_until_it_is_gone(bench: Bench) -> None:
    """As sample-controller: an event tells the user why nothing happens."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "a-child"}, "data": {"theirs": "1"}})
        await bench.create()
        await asyncio.sleep(60.0)
        assert [type(error) for error in bench.errors] == [NotOwnedError]
        assert [each for each in writes(connection) if each[1] != "events"] == []
        assert await bench.events() == [("a", "ErrResourceExists", 1)]
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "a-child")["data"] == {"x": "1"}


async def test_the_object_of_another_is_left_alone_if_the_cache_does_not_have_it(bench: Bench) -> None:
    """It is read from the server before it is created for the first time."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await lose_cache(bench, connection)
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "a-child"}, "data": {"theirs": "1"}})
        await bench.create()
        assert {type(error) for error in bench.errors} == {NotOwnedError}
        assert bench.body("configmaps", "a-child")["data"] == {"theirs": "1"}


async def test_a_sync_reads_what_it_has_written(bench: Bench) -> None:
    """The cache shows a write only when its event arrives."""
    read: list[Any] = []

    async def sync(request: Request[Deployment]) -> None:
        await apply_child(request)
        read.append(request.get(ConfigMap, "a-child"))

    async with bench.running(bench.app(sync, owns=[ConfigMap])):
        await bench.create()
    assert {each.data["x"] for each in read} == {"1"}


async def test_a_status_is_written_with_its_defaults_and_only_if_it_differs(bench: Bench) -> None:
    ready = 3

    async def sync(request: Request[Board]) -> None:
        await request.status(BoardStatus(ready_replicas=ready))

    async with bench.running(bench.app(sync, Board)) as connection:
        await bench.create()
        assert bench.body("deployments", "a")["status"]["readyReplicas"] == 3
        ready = 0
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(60.0)
        assert bench.body("deployments", "a")["status"]["readyReplicas"] == 0
        assert writes(connection) == [("PATCH", "deployments")] * 2


async def test_fields_that_stay_json_are_compared_with_what_is_written(bench: Bench) -> None:
    async def sync(request: Request[Whole]) -> None:
        replicas = msgspec.json.decode(request.object.spec).get("replicas")
        await request.status({"readyReplicas": replicas})
        await request.patch({"spec": {"replicas": 5}})

    async with bench.running(bench.app(sync, Whole)) as connection:
        await bench.create()
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"spec": {"replicas": 7}})
        await asyncio.sleep(10.0)
        body = bench.body("deployments", "a")
        assert (body["spec"]["replicas"], body["status"]["readyReplicas"]) == (5, 5)
        written = writes(connection)
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(10.0)
        assert writes(connection) == written
    assert bench.errors == []


async def test_a_condition_keeps_its_transition_time_while_its_status_is_the_same(bench: Bench) -> None:
    said = Condition(type="Ready", status="False", message="1 of 2")

    async def sync(request: Request[Board]) -> None:
        await request.status({"conditions": [said]})

    def times() -> list[str]:
        return [each["lastTransitionTime"] for each in bench.body("deployments", "a")["status"]["conditions"]]

    async def again(condition: Condition) -> list[str]:
        nonlocal said
        said = condition
        await asyncio.sleep(60.0)
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": condition.message[0]}}})
        await asyncio.sleep(1.0)
        return times()

    async with bench.running(bench.app(sync, Board)):
        await bench.create()
        first = times()
        assert await again(Condition(type="Ready", status="False", message="0 of 2")) == first
        (later,) = await again(Condition(type="Ready", status="True", message="2 of 2"))
        assert datetime.fromisoformat(later) > datetime.fromisoformat(first[0])


async def test_a_condition_is_not_older_than_its_object(bench: Bench, mocker: MockerFixture) -> None:
    """Even if the known time of the server lags."""

    async def sync(request: Request[Board]) -> None:
        mocker.patch.object(request, "now", return_value=request.now() - timedelta(seconds=90))
        await request.status({"conditions": [Condition("Ready")]})

    async with bench.running(bench.app(sync, Board)):
        await bench.create()
        body = bench.body("deployments", "a")
    assert body["status"]["conditions"][0]["lastTransitionTime"] == body["metadata"]["creationTimestamp"]


async def test_a_status_of_a_kind_without_one_is_refused(bench: Bench) -> None:
    async def sync(request: Request[ConfigMap]) -> None:
        with pytest.raises(TypeError, match="declares no field status"):
            await request.status({"ready": 1})

    async with bench.running(bench.app(sync, ConfigMap)):
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "a"}})
        await asyncio.sleep(1.0)
    assert (bench.syncs, bench.errors) == (["ns/a"], [])


async def test_an_object_with_a_finalizer_disappears_after_its_clean_up(bench: Bench) -> None:
    fails, cleaned = True, 0

    async def clean_up() -> None:
        nonlocal cleaned
        if fails:
            raise RuntimeError("the cloud is down")
        cleaned += 1

    done: list[bool] = []

    async def sync(request: Request[Deployment]) -> None:
        done.append(await request.finalizer("example.com/board", clean_up))

    async with bench.running(bench.app(sync)):
        await bench.create(finalizers=["example.com/other"])
        assert bench.body("deployments", "a")["metadata"]["finalizers"] == ["example.com/other", "example.com/board"]
        assert {*done} == {False}
        await bench.client.delete(DEPLOYMENTS, "ns", "a")
        await asyncio.sleep(1.0)
        assert "example.com/board" in bench.body("deployments", "a")["metadata"]["finalizers"]
        fails = False
        await asyncio.sleep(60.0)
        assert bench.body("deployments", "a")["metadata"]["finalizers"] == ["example.com/other"]
        assert cleaned == 1
        assert done[-1]


async def test_an_object_that_is_gone_when_its_finalizer_should_be_removed_is_no_error(bench: Bench) -> None:
    """An earlier sync has removed it, and this one was queued by what the clean-up deleted, before the watch showed the end."""

    async def clean_up() -> None:
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"finalizers": None}})

    async def sync(request: Request[Deployment]) -> None:
        await request.finalizer("example.com/board", clean_up)

    async with bench.running(bench.app(sync)):
        await bench.create()
        await bench.client.delete(DEPLOYMENTS, "ns", "a")
        await asyncio.sleep(60.0)
    assert bench.errors == []


async def test_a_delete_concerns_the_state_that_was_seen(bench: Bench) -> None:
    """The server refuses the delete of an object that has changed meanwhile, and the key is retried."""

    async def sync(request: Request[Deployment]) -> None:
        for child in request.owned(ConfigMap):
            if not bench.errors:
                await bench.client.patch(CONFIG_MAPS, "ns", child.metadata.name, {"data": {"x": "changed meanwhile"}})
            await request.delete(child)

    async with bench.running(bench.app(apply_child, owns=[ConfigMap])):
        await bench.create()
    async with bench.running(bench.app(sync, owns=[ConfigMap])):
        await asyncio.sleep(1.0)
    assert [type(error) for error in bench.errors] == [ConflictError]
    assert bench.names("configmaps") == []


async def test_a_cluster_scoped_object_is_synced_for_what_it_does_not_own(bench: Bench) -> None:
    """Nodes labelled with the number of their pods."""

    async def sync(request: Request[Node]) -> None:
        pods = [pod for pod in request.list(Pod) if pod.spec.node_name == request.name]
        label = {"example.com/pods": str(len(pods))}
        await request.apply(Node, {"metadata": {"name": request.name, "labels": label}})

    async with bench.running(bench.app(sync, Node, watches=[Watches(Pod, lambda pod: pod.spec.node_name or None)])):
        await bench.client.create(NODES, "", {"metadata": {"name": "n1"}})
        spec = {"nodeName": "n1", "containers": [{"name": "a", "image": "b"}]}
        await bench.client.create(PODS, "ns", {"metadata": {"name": "p"}, "spec": spec})
        await asyncio.sleep(1.0)
        found = await bench.client.get(NODES, "", "n1", Node)
        assert found.metadata.labels == {"example.com/pods": "1"}
        assert not found.metadata.owner_references


async def test_a_predicate_ignores_events_of_the_controllers_own_kind(bench: Bench) -> None:
    async def sync(request: Request[Deployment]) -> None:
        pass

    async with bench.running(bench.app(sync, predicate=has_labels("mirror=yes"))):
        await bench.create("a")
        await bench.create("b", labels={"mirror": "yes"})
    assert bench.syncs == ["ns/b"]


@for_each("restarts", [False, True])
async def test_an_object_that_the_predicate_no_longer_selects_is_cleaned_up_when_it_is_deleted(restarts: bool) -> None:
    """Else the deletion of an object that lost its label would never end."""
    bench, cleaned = Bench(), list[str]()

    async def sync(request: Request[Deployment]) -> None:
        async def clean_up() -> None:
            cleaned.append(request.key)

        await request.finalizer("example.com/board", clean_up)

    app = bench.app(sync, predicate=has_labels("mirror=yes"))
    async with bench.running(app) as connection:
        await bench.create("a", labels={"mirror": "yes"})
        if not restarts:
            await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": None}})
            await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"annotations": {"later": "1"}}})
            await bench.client.delete(DEPLOYMENTS, "ns", "a")
            await asyncio.sleep(1.0)
        assert connection.requests
    if restarts:
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": None}})
        await bench.client.delete(DEPLOYMENTS, "ns", "a")
        async with bench.running(app):
            await asyncio.sleep(1.0)
    assert cleaned == ["ns/a"]
    assert bench.names("deployments") == []


def named_by(deployment: Deployment) -> list[str]:
    """The ConfigMaps that an annotation of a Deployment names. Raises KeyError without the annotation."""
    names = (deployment.metadata.annotations or {})["uses"].split()
    return [f"{deployment.metadata.namespace}/{name}" for name in names]


async def test_a_change_of_an_object_syncs_those_that_name_it(bench: Bench) -> None:
    """And no others; also one that was named before it was created, and not one that is no longer named."""
    read: list[tuple[str, Mapping[str, str] | None]] = []

    async def sync(request: Request[Deployment]) -> None:
        found = request.get(ConfigMap, "x")
        read.append((request.key, None if found is None else found.data))

    async def change(value: str) -> list[tuple[str, Mapping[str, str] | None]]:
        read.clear()
        await bench.client.patch(CONFIG_MAPS, "ns", "x", {"data": {"v": value}})
        await asyncio.sleep(1.0)
        return sorted(read)

    async with bench.running(bench.app(sync, watches=[References(ConfigMap, named_by)])):
        for name, uses in (("a", "x y"), ("b", "x"), ("c", "z")):
            await bench.create(name, annotations={"uses": uses})
        read.clear()
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "x"}, "data": {"v": "1"}})
        await asyncio.sleep(1.0)
        assert sorted(read) == [("ns/a", {"v": "1"}), ("ns/b", {"v": "1"})]
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"annotations": {"uses": "y"}}})
        await asyncio.sleep(1.0)
        assert await change("2") == [("ns/b", {"v": "2"})]
        read.clear()
        await bench.client.delete(CONFIG_MAPS, "ns", "x")
        await asyncio.sleep(1.0)
        assert read == [("ns/b", None)]


async def test_an_object_whose_references_cannot_be_read_does_not_end_the_process(bench: Bench) -> None:
    async def sync(request: Request[Deployment]) -> None:
        pass

    async with bench.running(bench.app(sync, watches=[References(ConfigMap, named_by)])):
        with capture_logs() as lines:
            await bench.create("none")
        await bench.create("a", annotations={"uses": "x"})
        bench.syncs.clear()
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "x"}})
        await asyncio.sleep(1.0)
    assert bench.syncs == ["ns/a"]
    assert {(line["event"], line["key"]) for line in lines if line["log_level"] == "error"} == {
        ("references_failed", "ns/none")
    }


class Sized(Kind, frozen=True):
    """A Deployment, whose annotations users may give a form that the class does not expect."""

    class Spec(Struct, frozen=True):
        """The spec."""

        paused: bool = False

    resource = DEPLOYMENTS
    spec: Spec = Spec()


async def test_an_owner_that_no_longer_decodes_is_named_in_a_warning_when_it_is_being_deleted(bench: Bench) -> None:
    """Its cache stays at the last state that could be decoded, in which it is not being deleted."""

    async def sync(request: Request[Sized]) -> None:
        await apply_child(request)  # type: ignore[arg-type]

    async with bench.running(bench.app(sync, Sized, owns=[ConfigMap])):
        await bench.create(finalizers=["example.com/hold"])
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"spec": {"paused": "maybe"}})
        await bench.client.delete(DEPLOYMENTS, "ns", "a")
        with capture_logs() as lines:
            await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
            await asyncio.sleep(60.0)
    assert bench.names("configmaps") == []
    (error, *_) = [line["error"] for line in lines if line["event"] == "sync_failed"]
    assert "cannot be decoded: Expected `bool`, got `str` - at `$.spec.paused`" in error


async def test_the_child_of_an_owner_that_is_being_deleted_is_not_created_again(bench: Bench) -> None:
    """Its cache does not show the deletion yet."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await bench.create(finalizers=["example.com/hold"])
        connection.silent_for = "/v1/deployments"
        bench.server.restart()
        await asyncio.sleep(10.0)
        await bench.client.delete(DEPLOYMENTS, "ns", "a")
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(10.0)
        assert bench.names("configmaps") == []
    assert {str(error) for error in bench.errors} == {"Deployment ns/a is being deleted: no child is created again"}


async def test_an_app_without_controllers_is_refused() -> None:
    """A module with the decorated functions was not imported."""
    with pytest.raises(ValueError, match="app board-controller has no controllers"):
        await App("board-controller").run(stop=asyncio.Event(), transport=FakeTransport())


@for_each(
    "case",
    [
        (ConfigMap, {"data": {}}, "metadata.name"),
        (ConfigMap, {"metadata": {"name": "a", "namespace": "other"}}, "cannot own"),
        (Node, {"metadata": {"name": "n1"}}, "cannot own"),
        (ConfigMap, {"metadata": {"name": "a", "ownerReferences": []}}, "sets the owner"),
        (Pod, {"metadata": {"name": "a"}}, "neither owns nor watches"),
    ],
)
async def test_what_the_object_cannot_own_is_refused_before_anything_is_sent(
    case: tuple[type[Kind], dict[str, Any], str],
) -> None:
    what, body, message = case
    bench = Bench()

    async def sync(request: Request[Deployment]) -> None:
        with pytest.raises(ValueError, match=message):
            await request.apply(what, body)

    watched = [Watches(Node, lambda _: None)]
    async with bench.running(bench.app(sync, owns=[ConfigMap], watches=watched)) as connection:
        await bench.create()
        assert writes(connection) == []
    assert (bench.syncs, bench.errors) == (["ns/a"], [])


async def test_a_child_whose_deletion_no_event_shows_is_created_again(bench: Bench) -> None:
    """It was created and deleted while the watch was interrupted: no cache has ever had it."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await lose_cache(bench, connection)
        await bench.create()
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(2 * TRUST_S)
        assert bench.names("configmaps") == ["a-child"]


async def test_a_child_that_is_deleted_soon_after_its_creation_is_created_again_at_once(bench: Bench) -> None:
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])):
        await bench.create()
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(1.0)
        assert bench.names("configmaps") == ["a-child"]


async def test_a_child_that_is_being_deleted_is_not_written_and_created_again_when_it_is_gone(bench: Bench) -> None:
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])):
        await bench.create()
        await bench.client.patch(CONFIG_MAPS, "ns", "a-child", {"metadata": {"finalizers": ["example.com/hold"]}})
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await bench.client.patch(CONFIG_MAPS, "ns", "a-child", {"data": {"x": "2"}})
        await asyncio.sleep(60.0)
        assert bench.body("configmaps", "a-child")["data"] == {"x": "2"}
        await bench.client.patch(CONFIG_MAPS, "ns", "a-child", {"metadata": {"finalizers": None}})
        await asyncio.sleep(1.0)
        assert bench.body("configmaps", "a-child")["data"] == {"x": "1"}


async def test_an_apply_based_on_a_cache_that_lags_does_not_change_the_object_that_replaced_the_child(
    bench: Bench,
) -> None:
    """The cache still shows the child; the object of its name is another's."""
    data = {"x": "1"}

    async def sync(request: Request[Deployment]) -> None:
        await request.apply(ConfigMap, {"metadata": {"name": "a-child"}, "data": dict(data)})

    async with bench.running(bench.app(sync, owns=[ConfigMap])) as connection:
        await bench.create()
        await lose_cache(bench, connection)
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "a-child"}, "data": {"theirs": "1"}})
        data["x"] = "2"
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(60.0)
        assert bench.body("configmaps", "a-child")["data"] == {"theirs": "1"}


class Rival(UnreliableTransport):
    """A connection of the App, and a user who creates the child between its read and its creation."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.server, "app")
        self._bench = bench

    async def send(self, request: HttpRequest, on_leave: OnLeave = unchanged) -> Response:
        answer = await super().send(request, on_leave)
        if request.method == "GET" and request.path.endswith("/a-child") and answer.status == 404:
            await self._bench.client.create(
                CONFIG_MAPS, "ns", {"metadata": {"name": "a-child"}, "data": {"x": "theirs"}}
            )
        return answer


async def test_an_object_that_is_created_between_the_read_and_the_apply_is_not_taken_over(bench: Bench) -> None:
    async with bench.running(bench.app(apply_child, owns=[ConfigMap]), Rival(bench)):
        await bench.create()
        await asyncio.sleep(60.0)
    assert bench.body("configmaps", "a-child")["data"] == {"x": "theirs"}
    assert [type(error) for error in bench.errors] == [ConflictError, NotOwnedError]


async def test_a_status_that_was_computed_from_an_older_object_is_refused(bench: Bench) -> None:
    async def sync(request: Request[Board]) -> None:
        if not bench.errors:
            await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"changed": "meanwhile"}}})
        await request.status(BoardStatus(ready_replicas=len(request.object.metadata.labels or {})))

    async with bench.running(bench.app(sync, Board)):
        await bench.create()
        await asyncio.sleep(60.0)
    assert [type(error) for error in bench.errors] == [ConflictError]
    assert bench.body("deployments", "a")["status"]["readyReplicas"] == 1


async def test_what_the_controller_wrote_without_apply_counts_as_applied(bench: Bench) -> None:
    """As of an earlier version that used create and patch. What others wrote stays."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])):
        await bench.create()
    for manager, field in (("board-controller", "old"), ("kubectl", "theirs")):
        client = bench.client_on(UnreliableTransport(bench.server, manager), manager)
        await client.patch(CONFIG_MAPS, "ns", "a-child", {"data": {field: "1"}})
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])):
        assert bench.body("configmaps", "a-child")["data"] == {"x": "1", "theirs": "1"}
    managers = bench.body("configmaps", "a-child")["metadata"]["managedFields"]
    assert [(each["manager"], each["operation"]) for each in managers] == [
        ("board-controller", "Apply"),
        ("kubectl", "Update"),
    ]


def test_only_what_the_manager_itself_wrote_to_the_object_becomes_applied() -> None:
    """Entries of the status, and of other managers, stay."""

    def entry(manager: str, operation: str, fields: Any, **more: str) -> dict[str, Any]:
        return {"manager": manager, "operation": operation, "fieldsV1": fields} | more

    status = entry("me", "Update", {"f:status": {}}, subresource="status")
    others = [entry("you", "Update", {"f:data": {"f:x": {}}}), status]
    applied = entry("me", "Apply", {"f:data": {".": {}, "f:x": {}}})
    assert as_applied([applied, *others], "me") is None
    assert as_applied(others, "me") is None
    written = entry("me", "Update", {"f:data": {"f:y": {}}, "f:metadata": {"f:labels": {}}})
    both = entry("me", "Apply", {"f:data": {".": {}, "f:x": {}, "f:y": {}}, "f:metadata": {"f:labels": {}}})
    assert as_applied([*others, written, applied], "me") == [both, *others]
    assert as_applied([written, *others], "me") == [written | {"operation": "Apply"}, *others]


async def test_objects_of_another_namespace_are_not_owned(bench: Bench) -> None:
    """Anybody may write the UID of an object into the owner references of their own."""
    found: list[list[str]] = []

    async def sync(request: Request[Deployment]) -> None:
        found.append([each.metadata.namespace for each in request.owned(ConfigMap)])

    async with bench.running(bench.app(sync, owns=[ConfigMap])):
        await bench.create()
        owner = controller_reference(DEPLOYMENTS, msgspec.convert(bench.body("deployments", "a")["metadata"], Meta))
        await bench.client.create(NAMESPACES, "", {"metadata": {"name": "other"}})
        for namespace in ("ns", "other"):
            meta = {"name": "child", "ownerReferences": [owner]}
            await bench.client.create(CONFIG_MAPS, namespace, {"metadata": meta})
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"seen": "again"}}})
        await asyncio.sleep(1.0)
        assert found[-1] == ["ns"]


async def test_a_child_that_no_cache_has_shown_is_created_again_although_the_key_was_retried(bench: Bench) -> None:
    """A retry replaces the timer of the sync at which the response of the creation is no longer trusted."""
    fails = True

    async def sync(request: Request[Deployment]) -> None:
        await apply_child(request)
        if fails:
            raise ConnectionLostError("the cloud is down")

    async with bench.running(bench.app(sync, owns=[ConfigMap])) as connection:
        await lose_cache(bench, connection)
        await bench.create()
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(5.0)
        fails = False
        await asyncio.sleep(2 * TRUST_S)
        assert bench.names("configmaps") == ["a-child"]


async def test_an_owner_that_is_created_again_is_not_refused_by_what_its_predecessor_had_created(bench: Bench) -> None:
    """The cache has never shown the child, so no event tells that it is gone."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await lose_cache(bench, connection)
        await bench.create()
        await bench.client.delete(DEPLOYMENTS, "ns", "a")
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await bench.create()
        assert bench.errors == []
        (owner,) = bench.body("configmaps", "a-child")["metadata"]["ownerReferences"]
        assert owner["uid"] == bench.body("deployments", "a")["metadata"]["uid"]


class OldList(UnreliableTransport):
    """A connection to an API server whose cache is old: the first list has an object as it was before it was deleted."""

    def __init__(self, bench: Bench, old: dict[str, Any]) -> None:
        super().__init__(bench.server, "app")
        self._old = old

    async def send(self, request: HttpRequest, on_leave: OnLeave = unchanged) -> Response:
        if request.method == "GET" and request.path.endswith("/deployments") and not request.query.get("watch"):
            page = {"kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": {"resourceVersion": "1"}}
            return await FakeTransport(FakeResponse(200, msgspec.json.encode(page | {"items": [self._old]}))).send(
                request, on_leave
            )
        return await super().send(request, on_leave)


async def test_a_new_process_does_nothing_for_an_object_that_is_gone_though_its_first_list_has_it(bench: Bench) -> None:
    """Its finalizer was removed by an earlier process, which has cleaned up: nobody would do that again."""
    made: list[str] = []

    async def sync(request: Request[Deployment]) -> None:
        if not await request.finalizer("example.com/board", asyncio.Event().wait):
            made.append(request.name)

    await bench.begin()
    await bench.create(finalizers=["example.com/board"])
    old = bench.body("deployments", "a")
    await bench.client.delete(DEPLOYMENTS, "ns", "a")
    await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"finalizers": None}})
    async with bench.running(bench.app(sync), OldList(bench, old)):
        await asyncio.sleep(10.0)
    assert bench.syncs
    assert made == []
    assert {type(error) for error in bench.errors} == {RequeueError}


async def test_the_time_of_a_request_is_that_of_the_server_on_a_machine_with_a_wrong_clock(bench: Bench) -> None:
    """To compare with `creationTimestamp`."""
    times: list[datetime] = []

    async def sync(request: Request[Deployment]) -> None:
        times.append(request.now())

    class Fast(VirtualClock):
        def now(self) -> datetime:
            return super().now() + timedelta(hours=1)

    async with bench.running(bench.app(sync), clock=Fast()):
        await bench.create()
    created = datetime.fromisoformat(bench.body("deployments", "a")["metadata"]["creationTimestamp"])
    assert abs(times[-1] - created) < timedelta(seconds=3)


async def test_a_patch_of_the_object_removes_what_others_set_and_is_sent_only_if_it_changes_something(
    bench: Bench,
) -> None:
    body: dict[str, Any] = {"metadata": {"labels": {"theirs": None, "ours": "1"}}}

    async def sync(request: Request[Deployment]) -> None:
        await request.patch(body)
        assert request.object.metadata.labels == {"ours": "1"}

    async with bench.running(bench.app(sync)) as connection:
        await bench.create(labels={"theirs": "1"})
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"spec": {"replicas": 7}})
        await asyncio.sleep(10.0)
        assert len(bench.syncs) > 1
        assert writes(connection) == [("PATCH", "deployments")]
        body["spec"] = {"revisionHistoryLimit": 1}  # the class does not declare it
        await bench.client.patch(DEPLOYMENTS, "ns", "a", {"spec": {"replicas": 8}})
        await asyncio.sleep(10.0)
        assert bench.body("deployments", "a")["spec"]["revisionHistoryLimit"] == 1
    assert bench.errors == []


async def test_labels_are_applied_to_an_object_once_however_often_its_status_changes(bench: Bench) -> None:
    """Kubelets report the status of their nodes all the time."""

    async def sync(request: Request[Node]) -> None:
        await request.apply(Node, {"metadata": {"name": request.name, "labels": {"example.com/seen": "yes"}}})

    async with bench.running(bench.app(sync, Node)) as connection:
        await bench.client.create(NODES, "", {"metadata": {"name": "n1"}})
        for number in range(5):
            await asyncio.sleep(10.0)
            beat = {"status": {"capacity": {"cpu": str(number)}}}
            await bench.client.patch(NODES, "", "n1", beat, subresource="status")
        await asyncio.sleep(10.0)
        assert len(bench.syncs) > 5
        assert writes(connection) == [("PATCH", "nodes")]


async def test_an_event_that_must_not_be_lost_is_one_event_however_often_it_is_written(bench: Bench) -> None:
    async def sync(request: Request[Deployment]) -> None:
        await request.write_event("Ready", "It is ready", fact=f"generation {request.object.metadata.generation}")
        if len(bench.syncs) < 3:
            raise ConnectionLostError("the cloud is down")

    async with bench.running(bench.app(sync)):
        await bench.create()
        await asyncio.sleep(10.0)
    assert len(bench.syncs) == 3
    assert await bench.events() == [("a", "Ready", 1)]


async def test_a_map_of_the_status_loses_the_keys_that_are_gone_and_disappears_with_none(bench: Bench) -> None:
    said: list[dict[str, Any]] = [{"counts": {"a": 1, "b": 2}}, {"counts": {"b": 3}}, {"counts": None}]

    async def sync(request: Request[Board]) -> None:
        await request.status(said[0])

    found = []
    async with bench.running(bench.app(sync, Counted)):
        await bench.create()
        while True:
            found.append(bench.body("deployments", "a").get("status") or {})
            del said[0]
            if not said:
                break
            await bench.client.patch(DEPLOYMENTS, "ns", "a", {"metadata": {"labels": {"left": str(len(said))}}})
            await asyncio.sleep(1.0)
        said.append({})
    assert found == [{"counts": {"a": 1, "b": 2}}, {"counts": {"b": 3}}, {}]
    assert bench.errors == []


async def test_objects_are_read_from_the_namespace_of_the_object_unless_another_is_named(bench: Bench) -> None:
    read: list[Any] = []

    async def sync(request: Request[Deployment]) -> None:
        found = request.get(ConfigMap, "a"), request.get(ConfigMap, "a", "other"), request.get(ConfigMap, "b")
        read.append([each.metadata.namespace if each else None for each in found])

    await bench.begin()
    await bench.client.create(NAMESPACES, "", {"metadata": {"name": "other"}})
    for namespace in ("ns", "other"):
        await bench.client.create(CONFIG_MAPS, namespace, {"metadata": {"name": "a"}})
    await bench.client.create(CONFIG_MAPS, "other", {"metadata": {"name": "b"}})
    async with bench.running(bench.app(sync, owns=[ConfigMap])):
        await bench.create()
    assert read[-1] == ["ns", "other", None]


async def test_an_object_of_another_that_no_cache_has_shown_is_waited_for_without_its_event(bench: Bench) -> None:
    """It was seen by a read from the server, and deleted while the watch was interrupted."""
    async with bench.running(bench.app(apply_child, owns=[ConfigMap])) as connection:
        await lose_cache(bench, connection)
        await bench.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": "a-child"}, "data": {"theirs": "1"}})
        await bench.create()
        assert {type(error) for error in bench.errors} == {NotOwnedError}
        await bench.client.delete(CONFIG_MAPS, "ns", "a-child")
        await asyncio.sleep(2 * TRUST_S)
        assert bench.body("configmaps", "a-child")["data"] == {"x": "1"}


async def test_the_time_of_the_server_is_known_from_a_streaming_list_alone() -> None:
    """Servers from 1.32 on send the collection as a watch; its response has a `Date`, too."""
    bench, times = Bench(), list[datetime]()
    bench.server = ModelServer(kinds=KINDS)
    bench.client = bench.client_on(ModelTransport(bench.server, "user"))

    async def sync(request: Request[Deployment]) -> None:
        times.append(request.now())

    class Fast(VirtualClock):
        def now(self) -> datetime:
            return super().now() + timedelta(hours=1)

    async with bench.running(bench.app(sync), clock=Fast()) as connection:
        await bench.create()
        assert {each[0] for each in connection.asked} == {"WATCH"}
    created = datetime.fromisoformat(bench.body("deployments", "a")["metadata"]["creationTimestamp"])
    assert abs(times[-1] - created) < timedelta(seconds=3)


@for_each(
    "error",
    [
        AccessError("no cluster configured: set KUBECONFIG or pass a kubeconfig"),
        ListenError("cannot listen on *:8081: address already in use"),
        LeadershipLostError("the lease is lost"),
    ],
)
def test_a_program_that_cannot_run_ends_with_one_line(mocker: MockerFixture, error: Exception) -> None:
    """And with code 1, so that it is restarted. A traceback would hide what to do."""
    mocker.patch.object(App, "run", side_effect=error)
    with pytest.raises(SystemExit) as ended:
        App("board-controller").main()
    assert ended.value.code == f"board-controller: {error}"


async def test_without_the_package_of_metrics_a_monitoring_port_is_refused_with_the_remedy(
    mocker: MockerFixture,
) -> None:
    mocker.patch.dict(sys.modules, {"tfjob_operator.controller.observability.http_server": None})
    app = App("board-controller", monitoring_port=8081)
    with pytest.raises(ImportError, match="pip install prometheus-client"):
        await app.run(stop=asyncio.Event(), settings=Settings("http://127.0.0.1:1"))


def test_a_deleted_owner_leaves_nothing_behind() -> None:
    """Its children may be deleted before any cache shows them, so no event tells of their end."""
    child = ConfigMap(metadata=Metadata(name="child", namespace="ns", uid="2"))
    place = CONFIG_MAPS, "ns/child"
    memory = Memory({place: Written(child, "", 0.0)}, {"1": {place}}, {"1"})
    memory.forget(Deployment(metadata=Metadata(name="a", namespace="ns", uid="1")))
    assert memory == Memory()
