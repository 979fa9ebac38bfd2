"""The store, its indices, and listers over them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes.objects import Pod
from fakes.source import pod
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.informers.errors import IndexerError
from tfjob_operator.informers.listers import NOTHING, Lister
from tfjob_operator.informers.store import NAMESPACE_INDEX, Indexer, IndexFunction, index_by_namespace


def by_colors(item: Pod) -> Sequence[str]:
    """The index function of these tests: the label `colors`, cut at dots."""
    colors = (item.metadata.labels or {}).get("colors", "")
    return [color for color in colors.split(".") if color]


def colored(name: str, colors: str = "") -> Pod:
    """A pod with a label `colors`."""
    return pod(name, labels={"colors": colors})


def store_of(*items: Pod) -> Indexer[Pod]:
    """An indexer by colors that holds these pods."""
    store = Indexer[Pod]({"color": by_colors})
    for item in items:
        store.put(f"ns/{item.metadata.name}", item)
    return store


def names(items: list[Pod]) -> list[str]:
    """The names of pods in order."""
    return [item.metadata.name for item in items]


def test_what_is_stored_is_read_back_as_the_very_same_object() -> None:
    """ST-03, store_test.go:TestCache"""
    item = pod("a")
    store = Indexer[Pod]()
    assert store.resource_version == ""
    assert store.put("ns/a", item) is None
    assert store.get("ns/a") is item
    assert store.list() == [item]
    assert store.items() == [("ns/a", item)]
    assert store.keys() == ["ns/a"]
    assert len(store) == 1
    assert "ns/a" in store
    assert store.get("ns/b") is None


def test_writes_return_what_was_there_before() -> None:
    """ST-03, store_test.go:TestCache"""
    store = Indexer[Pod]()
    first, second = pod("a"), pod("a")
    store.put("ns/a", first)
    assert store.put("ns/a", second) is first
    assert store.remove("ns/a") is second
    assert store.remove("ns/a") is None
    assert len(store) == 0


def test_a_list_that_was_read_does_not_change_with_the_store() -> None:
    """ST-03: a snapshot"""
    store = store_of(colored("a", "red"))
    read = (store.list(), store.keys(), store.items(), store.by_index("color", "red"), store.index_keys("color", "red"))
    store.remove("ns/a")
    assert [len(snapshot) for snapshot in read] == [1] * 5


def test_an_object_is_found_under_every_value_that_the_index_function_gives() -> None:
    """ST-04, thread_safe_store_test.go:TestThreadSafeStoreIndexingFunctionsWithMultipleValues"""
    store = store_of(colored("a", "red.blue"), colored("b", "blue"), colored("c"))
    assert names(store.by_index("color", "red")) == ["a"]
    assert names(store.by_index("color", "blue")) == ["a", "b"]
    assert store.index_keys("color", "blue") == ["ns/a", "ns/b"]
    assert store.index_values("color") == ["red", "blue"]
    assert store.by_index("color", "green") == []


def test_an_update_moves_the_object_between_values_and_keeps_what_stays() -> None:
    """ST-04, thread_safe_store_test.go:TestThreadSafeStoreIndexingFunctionsWithMultipleValues"""
    store = store_of(colored("a", "red.blue"))
    store.put("ns/a", colored("a", "blue.green"))
    assert store.index_values("color") == ["blue", "green"]
    assert names(store.by_index("color", "green")) == ["a"]
    store.put("ns/a", colored("a", ""))
    assert store.index_values("color") == []


def test_a_value_that_the_index_function_names_twice_counts_once() -> None:
    """ST-04: client-go keeps sets; a pod that mounts one ConfigMap twice is no error."""
    store = store_of(colored("a", "red.red"), colored("b", "red.red"))
    assert names(store.by_index("color", "red")) == ["a", "b"]
    store.put("ns/a", colored("a", "blue.blue"))
    store.remove("ns/b")
    assert store.index_values("color") == ["blue"]
    new = store.replacement()
    new.add([colored("a", "red.red"), colored("a", "blue")])
    store.replace(new, "9")
    assert store.index_values("color") == ["blue"]


def test_an_update_without_a_change_of_value_is_read_back_new() -> None:
    """ST-04: the index holds keys, so the object is held in one place only"""
    store = store_of(colored("a", "red"))
    new = colored("a", "red")
    store.put("ns/a", new)
    assert store.by_index("color", "red")[0] is new


def test_a_value_under_which_nothing_is_left_is_forgotten() -> None:
    """ST-04, thread_safe_store_test.go:TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex"""
    store = store_of(colored("a", "red"))
    store.remove("ns/a")
    assert store.index_values("color") == []


def test_a_value_under_which_something_is_left_is_kept() -> None:
    """ST-04, thread_safe_store_test.go:TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex"""
    store = store_of(colored("a", "red"), colored("b", "red"))
    store.remove("ns/a")
    assert names(store.by_index("color", "red")) == ["b"]


def test_an_index_that_is_added_later_holds_what_was_there_before() -> None:
    """ST-05, shared_informer_test.go:TestIndexer"""
    store = store_of(colored("a", "red"))
    store.add_indexers({NAMESPACE_INDEX: index_by_namespace})
    assert names(store.by_index(NAMESPACE_INDEX, "ns")) == ["a"]
    store.put("ns/b", pod("b"))
    assert names(store.by_index(NAMESPACE_INDEX, "ns")) == ["a", "b"]


def test_a_name_that_is_taken_is_refused_and_nothing_is_added() -> None:
    """ST-05, index_test.go:TestGetIndexFuncValues"""
    store = store_of()
    with pytest.raises(IndexerError, match="color"):
        store.add_indexers({"other": by_colors, "color": by_colors})
    assert not store.has_index("other")
    with pytest.raises(IndexerError, match="no index 'other'"):
        store.by_index("other", "red")
    with pytest.raises(KeyError):
        store.index_values("other")


def test_an_index_function_that_fails_while_it_is_added_leaves_no_trace() -> None:
    """ST-05: a programming error, raised to the caller"""

    def broken(_: Pod) -> Sequence[str]:
        raise ZeroDivisionError

    store = store_of(colored("a"))
    with pytest.raises(ZeroDivisionError):
        store.add_indexers({"broken": broken})
    assert not store.has_index("broken")


def test_an_index_function_that_returns_a_text_is_refused() -> None:
    """ST-04: it would be indexed by its letters"""
    with pytest.raises(TypeError, match="must answer a list"):
        Indexer[Pod]({"name": lambda item: item.metadata.name}).put("ns/a", pod("a"))


def test_a_replacement_takes_the_place_of_items_indices_and_version_at_once() -> None:
    """ST-06, store_test.go:TestIndex, thread_safe_store_test.go:TestThreadSafeStoreRV"""
    store = store_of(colored("old", "red"), colored("both", "red"))
    new = store.replacement()
    new.add([colored("both", "blue")])
    new.add([colored("new", "blue")])
    assert names(store.list()) == ["old", "both"], "nothing changes while the replacement grows"
    store.replace(new, "42")
    assert names(store.list()) == ["both", "new"]
    assert store.index_values("color") == ["blue"]
    assert names(store.by_index("color", "blue")) == ["both", "new"]
    assert store.resource_version == "42"


def test_a_key_that_a_list_holds_twice_is_stored_as_the_later_one() -> None:
    """ST-06: indices and items agree even then"""
    store = store_of()
    new = store.replacement()
    new.add([colored("a", "red"), colored("a", "blue")])
    store.replace(new, "1")
    assert store.index_values("color") == ["blue"]


def test_an_index_that_is_added_while_a_replacement_grows_covers_it_too() -> None:
    """ST-05, ST-06"""
    store = store_of()
    new = store.replacement()
    new.add([colored("a", "red")])
    store.add_indexers({NAMESPACE_INDEX: index_by_namespace})
    store.replace(new, "1")
    assert names(store.by_index(NAMESPACE_INDEX, "ns")) == ["a"]


def test_no_method_waits_so_any_sequence_of_writes_is_a_transaction() -> None:
    """ST-07, store_test.go:TestCacheTransactionShouldIndexErrors. In place of the transaction: one loop, and no await"""
    from inspect import iscoroutinefunction

    assert not [name for name in dir(Indexer) if iscoroutinefunction(getattr(Indexer, name))]


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
