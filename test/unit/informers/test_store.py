"""The store, its indices, and listers over them."""

import inspect
from collections.abc import Sequence
from inspect import iscoroutinefunction
from typing import get_type_hints

import pytest

from fakes.objects import Pod
from fakes.source import pod
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import NODES, PODS
from tfjob_operator.api.meta import Meta, Resource, Struct
from tfjob_operator.api.v1.constants import LABEL_JOB_NAME, LABEL_REPLICA_TYPE
from tfjob_operator.controller.jobs.children import ChildLabels, ChildMeta
from tfjob_operator.controller.jobs.children import Pod as Replica
from tfjob_operator.informers import Indexer, SharedIndexInformer
from tfjob_operator.informers.errors import IndexerError
from tfjob_operator.informers.listers import NOTHING, Lister
from tfjob_operator.informers.store import NAMESPACE_INDEX, IndexFunction, MutableIndexer, index_by_namespace


def by_colors(item: Pod) -> Sequence[str]:
    """The index function of these tests: the label `colors`, cut at dots."""
    colors = (item.metadata.labels or {}).get("colors", "")
    return [color for color in colors.split(".") if color]


def colored(name: str, colors: str = "") -> Pod:
    """A pod with a label `colors`."""
    return pod(name, labels={"colors": colors})


def store_of(*items: Pod) -> MutableIndexer[Pod]:
    """An indexer by colors that holds these pods."""
    store = MutableIndexer[Pod]({"color": by_colors})
    for item in items:
        store.put(f"ns/{item.metadata.name}", item)
    return store


def indexed(store: MutableIndexer[Pod]) -> dict[str, list[str]]:
    """The names under each color."""
    return {
        color: [item.metadata.name for item in store.by_index("color", color)] for color in store.index_values("color")
    }


def test_what_is_stored_is_read_back_as_the_very_same_object() -> None:
    """ST-03, store_test.go:TestCache. Writes return what was there before"""
    item, second = pod("a"), pod("a")
    store = MutableIndexer[Pod]()
    assert store.resource_version == ""
    assert store.put("ns/a", item) is None
    assert store.get("ns/a") is item
    assert (store.list(), store.items(), store.keys(), len(store)) == ([item], [("ns/a", item)], ["ns/a"], 1)
    assert "ns/a" in store
    assert store.has(item.metadata)
    assert not store.has(pod("a", uid="of a later pod").metadata)
    assert store.get("ns/b") is None
    assert store.put("ns/a", second) is item
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
    assert indexed(store) == {"red": ["a"], "blue": ["a", "b"]}
    assert store.index_keys("color", "blue") == ["ns/a", "ns/b"]
    assert store.by_index("color", "green") == []


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        pytest.param("red.blue", "blue.green", {"blue": ["b", "a"], "green": ["a"]}, id="some values"),
        pytest.param("red", "", {"blue": ["b"]}, id="the only value"),
        pytest.param("red.red", "green.green", {"blue": ["b"], "green": ["a"]}, id="a value that it has twice"),
        pytest.param("red", "red", {"red": ["a"], "blue": ["b"]}, id="no value"),
    ],
)
def test_an_update_changes(before: str, after: str, found: dict[str, list[str]]) -> None:
    """ST-04: client-go keeps sets; a pod that mounts one ConfigMap twice is no error. An index holds keys, so the object is new

    thread_safe_store_test.go:TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex,
    TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex
    """
    store, new = store_of(colored("a", before), colored("b", "blue")), colored("a", after)
    store.put("ns/a", new)
    assert {color: sorted(names) for color, names in indexed(store).items()} == {c: sorted(n) for c, n in found.items()}
    assert all(store.by_index("color", color)[-1] is new for color in by_colors(new) if color != "blue")
    store.remove("ns/a")
    assert indexed(store) == {"blue": ["b"]}


def test_an_index_that_is_added_later_holds_what_was_there_before() -> None:
    """ST-05, ST-06, shared_informer_test.go:TestIndexer: a replacement that grows meanwhile is covered, too."""
    store = store_of(colored("a", "red"))
    new = store.replacement()
    new.add([colored("a", "red"), colored("c", "red")])
    store.add_indexers({NAMESPACE_INDEX: index_by_namespace})
    assert store.index_keys(NAMESPACE_INDEX, "ns") == ["ns/a"]
    store.put("ns/b", pod("b"))
    assert store.index_keys(NAMESPACE_INDEX, "ns") == ["ns/a", "ns/b"]
    store.replace(new, "1")
    assert store.index_keys(NAMESPACE_INDEX, "ns") == ["ns/a", "ns/c"]


def test_a_name_that_is_taken_is_refused_and_nothing_is_added() -> None:
    """ST-05, index_test.go:TestGetIndexFuncValues"""
    store = store_of()
    with pytest.raises(IndexerError, match="color"):
        store.add_indexers({"other": by_colors, "color": by_colors})
    assert not store.has_index("other")
    with pytest.raises(IndexerError, match="index 'other' does not exist"):
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
    with pytest.raises(TypeError, match="must return a sequence"):
        MutableIndexer[Pod]({"name": lambda item: item.metadata.name}).put("ns/a", pod("a"))


def test_a_replacement_takes_the_place_of_items_indices_and_version_at_once() -> None:
    """ST-06, store_test.go:TestIndex, thread_safe_store_test.go:TestThreadSafeStoreRV. Of two with one key the later stays"""
    store = store_of(colored("old", "red"), colored("both", "red"))
    new = store.replacement()
    new.add([colored("both", "red.red"), colored("both", "blue")])
    new.add([colored("new", "blue")])
    assert indexed(store) == {"red": ["old", "both"]}, "nothing changes while the replacement grows"
    store.replace(new, "42")
    assert store.keys() == ["ns/both", "ns/new"]
    assert indexed(store) == {"blue": ["both", "new"]}
    assert store.resource_version == "42"


def test_no_method_waits_so_any_sequence_of_writes_is_a_transaction() -> None:
    """ST-07, store_test.go:TestCacheTransactionShouldIndexErrors. In place of the transaction: one loop, and no await"""
    assert not [name for name in dir(MutableIndexer) if iscoroutinefunction(getattr(MutableIndexer, name))]


ITEMS = (pod("a", labels={"app": "web"}), pod("b"), pod("a", "other", labels={"app": "web"}), pod("node-1", ""))


def lister_over(functions: dict[str, IndexFunction[Pod]], resource: Resource = PODS) -> Lister[Pod]:
    """A lister over objects in two namespaces, and one without."""
    indexer = MutableIndexer[Pod](functions)
    for item in ITEMS:
        indexer.put(f"{item.metadata.namespace}/{item.metadata.name}".removeprefix("/"), item)
    return Lister(indexer, resource)


@pytest.mark.parametrize("functions", [{NAMESPACE_INDEX: index_by_namespace}, {}], ids=["by index", "by scan"])
def test_one_namespace_or_all_are_read_through_the_index_or_without_it(
    functions: dict[str, IndexFunction[Pod]],
) -> None:
    """ST-08, ST-09, listers_test.go:TestListAll; unlike there, an empty variable is not NamespaceAll."""
    everything = lister_over(functions)
    lister = everything.namespaced("ns")
    assert (lister.list(), lister.list("app=web")) == ([ITEMS[0], ITEMS[1]], [ITEMS[0]])
    assert lister.get("b") is ITEMS[1]
    assert everything.list() == [*ITEMS]
    assert everything.list("app") == [ITEMS[0], ITEMS[2]]
    with pytest.raises(ValueError, match="omit `namespaced` to list all namespaces"):
        everything.namespaced("")
    assert everything.list(NOTHING) == []


def test_a_miss_is_the_error_that_a_get_of_the_server_raises() -> None:
    """ST-01, ST-09: NotFound with resource and name"""
    with pytest.raises(NotFoundError, match='pods "b" not found') as caught:
        lister_over({}).namespaced("other").get("b")
    assert caught.value.details is not None
    assert (caught.value.code, caught.value.details.name, caught.value.details.kind) == (404, "b", "pods")
    nodes = lister_over({}, NODES)
    assert nodes.get("node-1") is ITEMS[3]
    with pytest.raises(NotFoundError, match='nodes "node-2" not found'):
        nodes.get("node-2")


def test_a_key_without_an_object_behind_it_is_no_miss() -> None:
    """NotFoundError would mean that the object is gone, and what depends on it may be deleted."""
    lister = lister_over({})
    for reads, name in (
        (lister, "a"),
        (lister, "ns/a"),
        (lister.namespaced("ns"), "ns/a"),
        (lister.namespaced("ns"), ""),
    ):
        with pytest.raises(ValueError, match="see split_key"):
            reads.get(name)


def test_the_namespace_of_a_cluster_scoped_kind_is_ignored() -> None:
    """As in a request."""
    nodes = Lister(indexer := MutableIndexer[Pod](), NODES).namespaced("ns")
    indexer.put("node-1", pod("node-1", ""))
    assert nodes.list() == [nodes.get("node-1")] == indexer.list()


class Bare(Struct, frozen=True):
    metadata: Meta


@pytest.mark.parametrize("selector", ["keep!=yes", "keep notin (yes)", "!keep", "keep", "keep=yes", "keep>1"])
def test_a_label_that_a_slice_does_not_declare_is_not_selected_by(selector: str) -> None:
    """Whether the object has it is not known: `keep!=yes` selected what must be kept."""
    bare, replicas = MutableIndexer[Bare](), MutableIndexer[Replica]()
    bare.put("ns/a", Bare(metadata=Meta(name="a", namespace="ns")))
    replicas.put("ns/a", Replica(metadata=ChildMeta(name="a", namespace="ns", labels=ChildLabels(job_name="mnist"))))
    with pytest.raises(TypeError, match=r"Meta does not declare the label 'keep'.*ObjectMeta"):
        Lister(bare, PODS).list(selector)
    with pytest.raises(TypeError, match="ChildMeta does not declare the label 'keep'"):
        Lister(replicas, PODS).list(selector)
    assert len(Lister(bare, PODS).list()) == 1
    assert len(Lister(replicas, PODS).list(f"{LABEL_JOB_NAME}=mnist,!{LABEL_REPLICA_TYPE}")) == 1


@pytest.mark.parametrize(
    ("resource", "key"), [(PODS, "a"), (PODS, ""), (NODES, "ns/node-1")], ids=["a name", "nothing", "a namespace"]
)
def test_a_key_of_another_scope_is_refused_and_is_no_miss(resource: Resource, key: str) -> None:
    """None would mean that the object is gone: a sync would create it again, or delete what depends on it."""
    indexer = MutableIndexer[Pod](namespaced=resource.namespaced)
    for read in (indexer.get, indexer.__contains__):
        with pytest.raises(ValueError, match="is not a key of this cache"):
            read(key)


def test_callers_of_an_informer_cannot_write_its_cache() -> None:
    """Type checkers refuse what `Indexer` does not have."""
    assert not {"put", "remove", "replace", "replacement"} & {*dir(Indexer)}
    (getter,) = (each for name, each in inspect.getmembers(SharedIndexInformer) if name == "indexer")
    assert get_type_hints(getter.fget)["return"].__origin__ is Indexer
