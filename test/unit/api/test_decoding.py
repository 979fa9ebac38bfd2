"""JSON that is nested deeply, equal values stored once, and owners and keys of objects."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfjob_operator.api.core import CONFIG_MAPS, object_reference
from tfjob_operator.api.decoding import (
    LARGEST,
    LEVELS,
    SharedValues,
    after_first,
    decode,
    is_deeper_than,
    truncated_to_levels,
)
from tfjob_operator.api.meta import (
    ObjectMeta,
    OwnerReference,
    Resource,
    Struct,
    controller_reference,
    is_controlled_by,
    object_key,
    owner_key,
    owner_uid_key,
    split_key,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(st.sampled_from('[]{}"\\,:a'), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('[]{}"\\a'), max_size=3), inner)
    ),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case _:
            return 0


def levels_of(value: Any) -> int:
    """The same for lists and objects with one element each, without recursion, so that they may be deep."""
    levels = 0
    while value is not None:
        (value,) = value.values() if isinstance(value, dict) else value
        levels += 1
    return levels


@settings(deadline=None)
@given(json_values)
def test_what_is_not_deep_stays_as_it_is(value: Any) -> None:
    """B01: brackets in strings do not count."""
    raw = msgspec.json.encode(value)
    assert truncated_to_levels(raw) == raw
    assert decode(msgspec.json.Decoder(), raw) == value
    for levels in range(5):
        assert is_deeper_than(raw, levels) is (depth_of(value) > levels)


@pytest.mark.parametrize("depth", [LEVELS + 1, 2000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a]":', b"}")])
def test_what_lies_too_deep_is_read_as_null_and_the_rest_as_it_is(depth: int, opening: bytes, closing: bytes) -> None:
    """B01: on every Python, whatever its recursion limit."""
    deep = opening * depth + b"1" + closing * depth
    body = b'{"a":"x","deep":' + deep + b',"b":[' + deep + b',"y"]}'
    found = decode(msgspec.json.Decoder(), truncated_to_levels(body))
    assert (found["a"], found["b"][1]) == ("x", "y")
    assert levels_of(found["deep"]) == LEVELS - 1
    assert is_deeper_than(body, LEVELS)
    assert not is_deeper_than(truncated_to_levels(body), LEVELS)
    raw = decode(msgspec.json.Decoder(dict[str, msgspec.Raw]), body)
    assert msgspec.json.decode(raw["a"]) == "x"


@pytest.mark.parametrize(
    ("body", "first"),
    [
        (b'[[],"]"],{', b'[[],"]"],'),
        (b'{"a":"}"} ,\n {"b":2}', b'{"a":"}"} ,'),
        (b"[" * 9000 + b"]" * 9000 + b",1", b"[" * 9000 + b"]" * 9000 + b","),
        (b"[1]", b""),
        (b"[[1]", b""),
        (b"", b""),
    ],
)
def test_the_end_of_a_value_is_found_without_decoding_it(body: bytes, first: bytes) -> None:
    """D9d: as a list arrives, its items are separated, however deeply nested they are."""
    assert after_first(body) == len(first)
    assert after_first(memoryview(body)) == len(first)


def test_an_equal_value_is_the_one_that_was_seen_before_and_few_and_small_ones_are_kept() -> None:
    """Names of jobs come and go for as long as the process lives, and a tenant's pods may say whatever fits into etcd."""
    shared = SharedValues(most=10)
    first, second = (f"mnist-{kind}" for kind in ("worker", "worker"))
    assert first is not second
    assert shared[first] is shared[second] is first
    for number in range(1000):
        value = f"job-{number}"
        assert shared[value] is value
        assert len(shared) <= 10
    shared, large = SharedValues(), ("x" * LARGEST,)
    assert shared[large] is large
    assert not shared


@pytest.mark.parametrize(
    "name",
    [
        "apiVersion",
        "bootID",
        "clientIP",
        "clusterIP",
        "clusterIPs",
        "containerID",
        "creationTimestamp",
        "externalIPs",
        "fsGroup",
        "hostIP",
        "hostIPC",
        "hostIPs",
        "hostPID",
        "imageID",
        "insecureSkipTLSVerify",
        "lastTransitionTime",
        "loadBalancerIP",
        "machineID",
        "nodeName",
        "nonResourceURLs",
        "osImage",
        "ownerReferences",
        "podCIDR",
        "podCIDRs",
        "podIP",
        "podIPs",
        "providerID",
        "qosClass",
        "resourceVersion",
        "setHostnameAsFQDN",
        "storagePolicyID",
        "systemUUID",
        "targetWWNs",
        "tlsMinVersion",
        "uid",
        "volumeID",
    ],
)
def test_a_field_has_the_name_of_the_api_also_where_that_has_acronyms(name: str) -> None:
    """`podIp` is never in an object, so the field had its default in every pod, and nothing showed that."""
    field = re.sub(r"(?<=.)(IPC|IPs?|IDs?|PID|CIDRs?|TLS|URLs|UUID|FQDN|WWNs|[A-Z])", r"_\1", name).lower()
    kind = msgspec.defstruct("Kind", [(field, str, "")], bases=(Struct,), frozen=True)
    assert msgspec.json.decode(f'{{"{name}":"found"}}', type=kind) == kind(**{field: "found"})


KETTLES = Resource("example.com", "v1", "kettles", "Kettle")
SHELVES = Resource("example.com", "v1", "shelves", "Shelf", namespaced=False)


def reference(api_version: str, kind: str, *, controller: bool = True) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name="ours", uid="1", controller=controller)


KETTLE = reference("example.com/v1", "Kettle")


@pytest.mark.parametrize(
    ("kind", "owners", "key"),
    [
        (KETTLES, (OwnerReference(name="theirs"), KETTLE), "team/ours"),
        (KETTLES, (reference("example.com/v1beta1", "Kettle"),), "team/ours"),
        (KETTLES, (reference("other.com/v1", "Kettle"),), None),
        (KETTLES, (reference("v1", "Kettle"),), None),
        (KETTLES, (reference("example.com/v1", "Shelf"),), None),
        (SHELVES, (reference("example.com/v1", "Shelf"),), "ours"),
        (CONFIG_MAPS, (reference("v1", "ConfigMap"),), "team/ours"),
        (KETTLES, (reference("example.com/v1", "Kettle", controller=False),), None),
        (KETTLES, None, None),
    ],
)
def test_the_key_of_an_owner_is_that_of_a_controller_of_the_kind_asked_for(
    kind: Resource, owners: tuple[OwnerReference, ...] | None, key: str | None
) -> None:
    """CR-07, "should not enqueue a Request if there are no owners matching Group and Kind", "owner that is cluster scoped"."""
    assert owner_key(ObjectMeta(name="x", namespace="team", owner_references=owners), kind) == key


def test_the_texts_of_owner_references_are_stored_once() -> None:
    """B69: of 100,000 pods each would have its own copy of the kind and the version of its owner."""
    text = b'{"apiVersion":"example.com/v1","kind":"Kettle","name":"a","uid":"1"}'
    one, other = (msgspec.json.decode(text, type=OwnerReference) for _ in range(2))
    assert one.api_version is other.api_version
    assert one.kind is other.kind


NO_UID, NO_NAMESPACE = ObjectMeta(name="a", namespace="ns"), ObjectMeta(name="a", uid="1")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: is_controlled_by(ObjectMeta(owner_references=(OwnerReference(controller=True),)), NO_UID), "no UID"),
        (lambda: controller_reference(KETTLES, NO_UID), "no UID"),
        (lambda: controller_reference(KETTLES, NO_NAMESPACE), "kettles.example.com have a namespace and a name"),
        (
            lambda: controller_reference(SHELVES, ObjectMeta(name="a", namespace="ns", uid="1")),
            "a name and no namespace",
        ),
        (lambda: owner_uid_key(NO_NAMESPACE), "index the children of a cluster-scoped owner by its UID"),
        (lambda: object_reference(KETTLES, NO_NAMESPACE), "have a namespace and a name, got '' and 'a'"),
    ],
)
def test_an_owner_that_cannot_be_told_from_others_is_refused(call: Callable[[], object], problem: str) -> None:
    """Two objects without UIDs would own each other, the garbage collector would delete a child of no owner, and so on."""
    with pytest.raises(ValueError, match=problem):
        call()


def test_an_object_is_controlled_by_its_owner_and_not_by_another_of_its_name() -> None:
    owner = ObjectMeta(name="ours", uid="1")
    ours = OwnerReference(name="ours", uid="1", controller=True)
    for references, expected in (
        ((ours,), True),
        ((msgspec.structs.replace(ours, uid="2"),), False),
        ((msgspec.structs.replace(ours, controller=None),), False),
        (None, False),
    ):
        assert is_controlled_by(ObjectMeta(name="x", owner_references=references), owner) is expected


@pytest.mark.parametrize(("namespace", "name"), [("ns", "a"), ("", "node-1"), ("", "system:node")])
def test_a_key_is_split_into_what_it_was_made_of(namespace: str, name: str) -> None:
    assert split_key(object_key(namespace, name)) == (namespace, name)


@pytest.mark.parametrize("text", ["", "/", "ns/", "/a", "ns/a/b"])
def test_what_is_not_a_key_is_not_split(text: str) -> None:
    with pytest.raises(ValueError, match="is not the key of an object"):
        split_key(text)
