"""Two bugs that most controllers had once. The kit finds each within seconds, and not in the same controller without it."""

import asyncio
import time
from contextlib import suppress
from typing import Final

import pytest

from kit.cluster import Cluster, Program, Simulate
from kit.world import OracleError
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import AlreadyExistsError, NotFoundError
from tfjob_operator.api.core import CONFIG_MAPS, PODS
from tfjob_operator.api.meta import ObjectMeta, Struct, controller_reference, is_controlled_by, owner_key, split_key
from tfjob_operator.controller.manager import Controller, Manager
from tfjob_operator.informers import Codec, SharedInformerFactory

LIMIT_S: Final = 10.0
"""CPU time in which a bug must be found."""
SEEDS: Final = 1000


class Parent(Struct, frozen=True):
    """A ConfigMap that wants a pod if `data.wanted` is yes."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Child(Struct, frozen=True):
    """A pod."""

    metadata: ObjectMeta


class PodPerParent:
    """Each ConfigMap has a pod while it wants one, with a generated or a fixed name, deleted with or without a precondition."""

    def __init__(self, cluster: Cluster, *, generates_names: bool = False, checks_uid: bool = True) -> None:
        self._client = RestClient(cluster.transport(), clock=cluster.clock, field_manager="test")
        self._generates_names = generates_names
        self._checks_uid = checks_uid
        informers = SharedInformerFactory(self._client)
        self._parents = informers.informer(Codec(CONFIG_MAPS, Parent))
        self._pods = informers.informer(Codec(PODS, Child))
        controller = Controller("test", self._sync)
        controller.watch(self._parents, lambda parent: f"{parent.metadata.namespace}/{parent.metadata.name}")
        controller.watch(self._pods, lambda pod: owner_key(pod.metadata, CONFIG_MAPS))
        self.run = Manager(informers, controller, stop=asyncio.Event()).run

    async def _sync(self, key: str) -> None:
        parent = self._parents.indexer.get(key)
        if parent is None or parent.metadata.deletion_timestamp is not None:
            return
        namespace, name = split_key(key)
        mine = [pod for pod in self._pods.indexer.list() if is_controlled_by(pod.metadata, parent.metadata)]
        wanted = (parent.data or {}).get("wanted") == "yes"
        if wanted and not mine:
            named = {"generateName": f"{name}-"} if self._generates_names else {"name": f"{name}-pod"}
            owners = [controller_reference(CONFIG_MAPS, parent.metadata)]
            spec = {"containers": [{"name": "main", "image": "none"}]}
            await self._client.create(PODS, namespace, {"metadata": named | {"ownerReferences": owners}, "spec": spec})
        for pod in mine if not wanted else ():
            uid = pod.metadata.uid if self._checks_uid else None
            await self._client.delete(PODS, namespace, pod.metadata.name, uid=uid)


async def edit_parents(cluster: Cluster) -> None:
    """Create a parent, and change it a few times."""
    await cluster.client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}, "data": {"wanted": "yes"}})
    for number in range(5):
        await cluster.client.patch(CONFIG_MAPS, "default", "a", {"data": {"n": str(number)}})
    await cluster.settle()
    assert len(cluster.list(PODS)) == 1


async def replace_the_pod(cluster: Cluster) -> None:
    """Replace the pod by one of the same name that is nobody's."""
    client = cluster.client
    await client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}, "data": {"wanted": "yes"}})
    while cluster.get(PODS, "default", "a-pod") is None:  # noqa: ASYNC110 - the cluster has no event for that
        await asyncio.sleep(0.1)
    await client.patch(CONFIG_MAPS, "default", "a", {"data": {"wanted": "no"}})
    theirs = {"metadata": {"name": "a-pod"}, "spec": {"containers": [{"name": "theirs", "image": "none"}]}}
    while True:
        try:
            await client.create(PODS, "default", theirs)
            break
        except AlreadyExistsError:
            with suppress(NotFoundError):
                await client.delete(PODS, "default", "a-pod")
    await cluster.settle()
    assert cluster.get(PODS, "default", "a-pod") is not None, "the users' pod was deleted"


def test_duplicates_of_a_controller_without_expectations_are_found(simulate: Simulate) -> None:
    """Its cache does not show yet what it has created, so it creates it again."""
    begun = time.process_time()
    with pytest.raises(OracleError, match=r"created Pod default/a-.*: ConfigMap a has 2 identical children") as failure:
        simulate(lambda cluster: PodPerParent(cluster, generates_names=True).run(), edit_parents, seeds=SEEDS)
    assert time.process_time() < begun + LIMIT_S
    assert (
        "test_planted_bugs.py::test_duplicates_of_a_controller_without_expectations_are_found"
        in failure.value.__notes__[-1]
    )


def test_a_controller_that_deletes_by_a_stale_cache_is_found(simulate: Simulate) -> None:
    """Its cache shows its own pod, and it deletes the one that has the name now."""
    begun = time.process_time()
    with pytest.raises(AssertionError, match="the users' pod was deleted"):
        simulate(lambda cluster: PodPerParent(cluster, checks_uid=False).run(), replace_the_pod, seeds=SEEDS)
    assert time.process_time() < begun + LIMIT_S


@pytest.mark.parametrize("users", [edit_parents, replace_the_pod])
def test_the_controller_without_these_bugs_passes(simulate: Simulate, users: Program) -> None:
    simulate(lambda cluster: PodPerParent(cluster).run(), users, seeds=30)
