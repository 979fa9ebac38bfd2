"""`simulate`: what it finds, what a failure shows, and which seeds it plays."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from kit.cluster import Cluster, Program, Simulate, play_cluster
from kit.faults import CALM
from kit.model.kinds import KINDS, Kind
from kit.world import OracleError
from support.cases import for_each
from tfjob_operator.api import kinds as classes_of
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.core import CONFIG_MAPS, LEASES
from tfjob_operator.api.meta import ObjectMeta, Resource, controller_reference
from tfjob_operator.controller.manager import Controller

KETTLES = Resource("example.com", "v1", "kettles", "Kettle")


async def nobody(cluster: Cluster) -> None:
    """Be a controller that does nothing."""
    cluster.transport()
    await asyncio.get_running_loop().create_future()


async def every_second(cluster: Cluster, call: Callable[[RestClient], Awaitable[object]]) -> None:
    client = RestClient(cluster.transport())
    while True:
        with suppress(ApiError):
            await call(client)
        await asyncio.sleep(1.0)


async def read(cluster: Cluster) -> None:
    await every_second(cluster, lambda client: client.get(CONFIG_MAPS, "default", "a"))


async def renew(cluster: Cluster) -> None:
    lease = {"spec": {"holderIdentity": "me"}}
    await every_second(cluster, lambda client: client.update(LEASES, "default", "a", lease))


async def touch(cluster: Cluster) -> None:
    """Write without end, and without effect."""
    await every_second(cluster, lambda client: client.patch(CONFIG_MAPS, "default", "a", {"data": {"x": "1"}}))


async def end(cluster: Cluster) -> None:
    cluster.transport()


async def crash(cluster: Cluster) -> None:
    cluster.transport()
    raise KeyError("a bug")


async def take_any(cluster: Cluster) -> None:
    """Write to an object that users gave to another controller."""
    await every_second(cluster, lambda client: client.patch(CONFIG_MAPS, "default", "theirs", {"data": {"x": "1"}}))


async def rest(cluster: Cluster) -> None:
    """Create two objects, one of which has a controller, and wait for the end."""
    await cluster.client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
    a = ObjectMeta(name="a", namespace="default", uid=cluster.list(CONFIG_MAPS)[0]["metadata"]["uid"])
    owned = {"name": "theirs", "ownerReferences": [controller_reference(CONFIG_MAPS, a)]}
    await cluster.client.create(CONFIG_MAPS, "default", {"metadata": owned})
    await cluster.settle()


@for_each("controller", [nobody, read, renew])
def test_reading_and_renewing_a_lease_is_rest(controller: Program, simulate: Simulate) -> None:
    simulate(controller, rest, seeds=3)


@pytest.mark.parametrize(
    ("controller", "error", "message"),
    [
        pytest.param(touch, OracleError, "does not come to rest", id="a write without end"),
        pytest.param(end, OracleError, "the controller has ended", id="a controller that ends"),
        pytest.param(crash, KeyError, "a bug", id="a controller that crashes"),
        pytest.param(
            take_any, OracleError, "wrote to ConfigMap default/theirs, which ConfigMap a controls", id="theirs"
        ),
    ],
)
def test_what_no_controller_may_do_fails_it(controller: Program, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        play_cluster(controller, rest, 1)


@for_each("quiet", [True, False])
def test_an_error_of_a_sync_fails_a_seed_unless_the_test_allows_it(quiet: bool) -> None:
    """Though the controller tries again, and its caches may be right in the end."""
    error = KeyError("boom")

    async def sync(_: str) -> None:
        raise error

    async def controller(cluster: Cluster) -> None:
        cluster.transport()
        workers = Controller("kettles", sync)
        workers.queue.add("default/blue")
        await workers.run()

    async def users(cluster: Cluster) -> None:
        await cluster.settle()

    with pytest.raises(OracleError, match="a sync raised KeyError") as failure:
        play_cluster(controller, users, 1, faults=CALM, quiet=quiet)
    assert failure.value.__cause__ is error
    play_cluster(controller, users, 1, faults=CALM, may_raise=(LookupError,), quiet=quiet)


def test_a_failure_shows_the_requests_and_how_to_replay_it() -> None:
    """With the version and the faults of the cluster."""

    async def fail(cluster: Cluster) -> None:
        await cluster.client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong") as failure:
        Simulate("test_x.py::test_y", count=3)(nobody, fail)
    history, faults, replay = failure.value.__notes__
    assert "users POST /api/v1/namespaces/default/configmaps fieldManager=users 201" in history
    assert "Kubernetes 1." in faults
    assert "latency_s=" in faults
    assert replay == "replay: pytest 'test_x.py::test_y' --kube-seed=0"


@pytest.mark.parametrize(
    ("begin", "count", "played"),
    [(None, None, range(4)), (None, 2, range(2)), (17, None, [17]), (17, 2, [17, 18])],
)
def test_options_choose_the_seeds(begin: int | None, count: int | None, played: list[int]) -> None:
    """Without an option, as many as the test says."""
    choices = []

    async def users(cluster: Cluster) -> None:
        choices.append(cluster.random.random())

    Simulate("a test", begin, count)(nobody, users, seeds=4)
    expected = choices[:]
    choices.clear()
    for seed in played:
        play_cluster(nobody, users, seed)
    assert choices == expected


def test_a_seed_is_played_the_same_way_twice() -> None:
    plays = [play_cluster(touch_once, rest, seed) for seed in (7, 8, 7)]
    assert plays[0] == plays[2] != plays[1]


async def touch_once(cluster: Cluster) -> None:
    client = RestClient(cluster.transport())
    for _ in range(5):
        try:
            await client.patch(CONFIG_MAPS, "default", "a", {"data": {"x": "1"}})
        except ApiError:
            await asyncio.sleep(0.1)
    await asyncio.get_running_loop().create_future()


def test_the_process_is_killed_between_calls_until_the_faults_end() -> None:
    """In some seeds; what it has created stays."""
    kills = [
        float(line.split()[0])
        for seed in range(20)
        for line in play_cluster(touch_once, rest, seed)
        if " kill controller" in line
    ]
    assert sum(at < 60.0 for at in kills) > 10
    assert all(at < 60.0 or at >= 400.0 for at in kills), "the last one is the end of the seed"


def test_without_faults_nothing_is_lost_or_killed() -> None:
    history = play_cluster(touch_once, rest, 3, faults=CALM)
    assert not [line for line in history if "Error" in line or " stall " in line]
    assert [line for line in history if " kill " in line] == [history[-1]]


def test_custom_resources_are_registered_by_their_kind() -> None:
    """The model serves them as it serves TFJobs in the tests of this project."""

    async def users(cluster: Cluster) -> None:
        body = {"apiVersion": KETTLES.api_version, "kind": "Kettle", "metadata": {"name": "a"}, "spec": {"water": 1}}
        await cluster.client.create(KETTLES, "default", body)
        found = cluster.get(KETTLES, "default", "a")
        assert found is not None
        assert found["metadata"]["generation"] == 1
        assert cluster.get(KETTLES, "default", "b") is None

    play_cluster(nobody, users, 1, kinds=[Kind(KETTLES, custom=True, status=True, unconditional=False)])


def test_a_resource_stands_for_a_custom_kind_and_the_writes_of_a_controller_are_listed(simulate: Simulate) -> None:
    head = {"apiVersion": KETTLES.api_version, "kind": KETTLES.kind}

    async def controller(cluster: Cluster) -> None:
        client = RestClient(cluster.transport(), clock=cluster.clock)
        await client.create(KETTLES, "default", {**head, "metadata": {"name": "blue"}})
        await client.patch(KETTLES, "default", "blue", {"status": {"hot": True}}, subresource="status")
        await asyncio.Event().wait()

    async def users(cluster: Cluster) -> None:
        await cluster.client.create(KETTLES, "default", {**head, "metadata": {"name": "red"}})
        await cluster.settle()
        path = "/apis/example.com/v1/namespaces/default/kettles"
        assert cluster.writes() == [f"POST {path}", f"PATCH {path}/blue/status"]

    simulate(controller, users, seeds=1, kinds=[KETTLES], faults=CALM)


def test_every_built_in_kind_with_a_class_is_in_the_kit() -> None:
    classes = [each for each in vars(classes_of).values() if isinstance(each, type) and hasattr(each, "resource")]
    assert len(classes) == 10
    assert {each.resource for each in classes} <= {each.resource for each in KINDS}


def test_an_edit_of_the_spec_of_a_workload_raises_its_generation_and_its_status_is_a_subresource() -> None:
    async def users(cluster: Cluster) -> None:
        for kind in (classes_of.Deployment, classes_of.StatefulSet, classes_of.Job):
            await cluster.client.create(kind.resource, "default", {"metadata": {"name": "a"}, "spec": {}})
            await cluster.client.patch(kind.resource, "default", "a", {"spec": {"replicas": 2}, "status": {"ready": 1}})
            found = cluster.get(kind.resource, "default", "a")
            assert found is not None
            assert (found["metadata"]["generation"], found.get("status", {}).get("ready")) == (2, None)

    play_cluster(nobody, users, 1)
