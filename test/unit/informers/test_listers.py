"""Listers over an indexer."""

from __future__ import annotations

import pytest

from fakes.source import pod
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import PODS, Pod
from tfjob_operator.api.meta import Resource
from tfjob_operator.informers.listers import NOTHING, Lister
from tfjob_operator.informers.store import NAMESPACE_INDEX, Indexer, IndexFunction, index_by_namespace

ITEMS = (pod("a", labels={"app": "web"}), pod("b"), pod("a", "other", labels={"app": "web"}))


def lister_over(functions: dict[str, IndexFunction[Pod]]) -> Lister[Pod]:
    """A lister over three pods in two namespaces."""
    indexer = Indexer[Pod](functions)
    for item in ITEMS:
        indexer.put(f"{item.metadata.namespace}/{item.metadata.name}", item)
    return Lister(indexer, PODS)


@pytest.mark.parametrize("functions", [{NAMESPACE_INDEX: index_by_namespace}, {}], ids=["by index", "by scan"])
def test_a_namespace_is_read_through_its_index_or_without_it(functions: dict[str, IndexFunction[Pod]]) -> None:
    """ST-08, listers_test.go:TestListAll"""
    lister = lister_over(functions).namespaced("ns")
    assert lister.list() == [ITEMS[0], ITEMS[1]]
    assert lister.list("app=web") == [ITEMS[0]]
    assert lister.get("b") is ITEMS[1]


@pytest.mark.parametrize("functions", [{NAMESPACE_INDEX: index_by_namespace}, {}], ids=["by index", "by scan"])
def test_all_namespaces_are_read_at_once(functions: dict[str, IndexFunction[Pod]]) -> None:
    """ST-08, ST-09, listers_test.go:TestListAll; the namespace "" is NamespaceAll"""
    lister = lister_over(functions)
    assert lister.list() == [*ITEMS]
    assert lister.list("app") == [ITEMS[0], ITEMS[2]]
    assert lister.list(NOTHING) == []
    assert lister.namespaced("").list("app") == [ITEMS[0], ITEMS[2]]


def test_a_miss_is_the_error_that_a_get_of_the_server_raises() -> None:
    """ST-09: NotFound with resource and name"""
    with pytest.raises(NotFoundError, match='pods "b" not found') as caught:
        lister_over({}).namespaced("other").get("b")
    assert caught.value.details is not None
    assert (caught.value.code, caught.value.details.name, caught.value.details.kind) == (404, "b", "pods")


def test_what_has_no_namespace_is_read_by_its_name() -> None:
    """ST-01, ST-09"""
    indexer = Indexer[Pod]()
    node = pod("node-1", "")
    indexer.put("node-1", node)
    lister = Lister(indexer, Resource("", "v1", "nodes", "Node", namespaced=False))
    assert lister.get("node-1") is node
    with pytest.raises(NotFoundError, match='nodes "node-2" not found'):
        lister.get("node-2")
