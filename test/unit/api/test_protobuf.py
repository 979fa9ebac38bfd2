"""Objects read from protobuf."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain, product
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.protobuf import encode, envelope, varint, with_length
from tfjob_operator.api.core import NODES, Node
from tfjob_operator.api.core_messages import BY_RESOURCE, POD, SERVICE
from tfjob_operator.api.protobuf import (
    METADATA,
    OBJECT_META,
    STATUS,
    MalformedError,
    Message,
    boolean,
    many,
    number,
    numbers,
    one,
    open_envelope,
    read,
    string_map,
    text,
    time,
)
from tfjob_operator.controller.jobs.children import ChildLabels, ConfigMap, Pod, Service

OWNERS = [{"kind": "TFJob", "uid": "1", "controller": True}, {"kind": "Other", "controller": False}]
RULES = [{"action": "Restart", "exitCodes": {"values": [42, -1]}}]
ENDED = {"name": "tensorflow", "state": {"terminated": {"exitCode": -1}}, "restartCount": 0}
OBJECT = {
    "metadata": {
        "name": "mnist-worker-0",
        "labels": {"job-name": "mnist", "empty": ""},
        "ownerReferences": OWNERS,
        "creationTimestamp": datetime(2026, 1, 1, tzinfo=UTC),
    },
    "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "subdomain": "mnist",
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        "containers": [{"name": "tensorflow", "restartPolicyRules": RULES}],
    },
    "status": {"phase": "Failed", "containerStatuses": [ENDED]},
}


def test_an_object_is_read_as_it_was_written() -> None:
    written = encode(OBJECT, POD)
    assert read(written, 0, len(written), POD) == OBJECT


def test_fields_that_are_not_read_are_passed_over_whatever_they_are() -> None:
    """A newer Kubernetes has more fields, of any wire type, and also with numbers above fifteen and two thousand."""
    others = b"".join(
        (
            with_length(99, b"\xff" * 300),
            varint(2047 << 3) + varint(1 << 60),
            varint(98 << 3 | 1) + bytes(8),
            varint(97 << 3 | 5) + bytes(4),
        )
    )
    written = others + encode(OBJECT, POD) + others
    assert read(written, 0, len(written), POD) == OBJECT


def test_what_json_leaves_out_is_left_out() -> None:
    """Go writes an empty text into a message, but mostly not into JSON (`omitempty`), and there a zero time as null."""
    written = with_length(1, b"") + with_length(3, b"ns") + with_length(9, b"")
    assert read(written, 0, len(written), OBJECT_META) == {"namespace": "ns"}
    condition = with_length(2, with_length(1, b"") + with_length(2, b""))
    assert read(with_length(3, condition), 0, len(condition) + 2, POD) == {"status": {"conditions": [{"type": ""}]}}


def test_text_that_is_not_utf_8_is_read_as_json_would_have_it() -> None:
    """Go's JSON replaces such bytes, so one of them keeps no object out of the cache."""
    written = with_length(1, b"a\xff")
    assert read(written, 0, len(written), OBJECT_META) == {"name": "a\ufffd"}


@pytest.mark.parametrize(
    "written",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\x80",
        b"\x38" + b"\xff" * 11,
        b"\x0b",
        b"\x09\x00",
        b"\x4a\x0b\x08" + b"\xff" * 9 + b"\x7f",
        b"\x42\x0a\x08" + varint(1 << 60),
    ],
    ids=["no length", "cut", "cut length", "endless number", "group", "cut number", "bad time", "no time"],
)
def test_what_is_no_message_is_said_to_be_none(written: bytes) -> None:
    with pytest.raises(MalformedError):
        read(written, 0, len(written), OBJECT_META)


@given(st.binary(max_size=60))
def test_no_bytes_bring_another_error(written: bytes) -> None:
    for message in (POD, SERVICE, STATUS):
        with suppress(MalformedError):
            read(written, 0, len(written), message)


def _as_read(of: Message, written: bytes) -> object:
    try:
        return read(written, 0, len(written), of)
    except MalformedError:
        return MalformedError


def test_what_was_read_before_changes_nothing() -> None:
    """A message is taken to lie as an earlier one does only if it does: all messages of up to five bytes, one after the other.

    The bytes are keys of texts, of a number and of four bytes, and lengths and numbers of one byte and of two.
    """
    fields = {1: text("a"), 2: text("b", always=True), 3: number("n")}
    words = [bytes(each) for n in range(6) for each in product((0x0A, 0x12, 0x18, 0x0D, 0, 1, 2, 0x80), repeat=n)]
    expected = [_as_read(Message(fields), each) for each in words]
    assert MalformedError in expected
    assert {"a": "\x00", "n": 2} in expected
    one, alike = Message(fields), Message(fields, alike=True)
    for each, found in chain(zip(words, expected, strict=True), reversed(list(zip(words, expected, strict=True)))):
        assert (_as_read(one, each), _as_read(alike, each)) == (found, found)


def test_the_resources_of_a_node_are_texts_as_in_json() -> None:
    """A map of messages with one field each."""
    pairs = [(b"cpu", with_length(1, b"3500m")), (b"nvidia.com/gpu", with_length(1, b"1")), (b"empty", b"")]
    status = b"".join(with_length(2, with_length(1, key) + with_length(2, value)) for key, value in pairs)
    body = with_length(1, encode({"name": "n", "labels": {"zone": "a"}}, OBJECT_META)) + with_length(3, status)
    found = msgspec.convert({"kind": "Node"} | read(body, 0, len(body), BY_RESOURCE[NODES]), Node)
    assert found.status.allocatable == {"cpu": "3500m", "nvidia.com/gpu": "1", "empty": ""}
    assert found.metadata.label_map() == {"zone": "a"}


def _table() -> Message:
    """Return fields of all kinds, of which nothing has been read."""
    inner = Message({1: text("kind"), 2: boolean("controller")}, alike=True)
    middle = Message({1: many("owners", inner), 2: string_map("labels"), 3: time("created"), 4: numbers("codes")})
    return Message({1: text("name"), 2: one("metadata", middle), 300: number("version")})


NESTED = {
    "name": "mnist",
    "metadata": {
        "owners": [{"kind": "TFJob", "controller": True}, {"kind": "TFJob", "controller": False}],
        "labels": {"job": "mnist", "index": "0"},
        "created": datetime(2026, 1, 1, tzinfo=UTC),
        "codes": [1, -1],
    },
    "version": 70,
}


@given(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=9))
def test_a_changed_byte_is_read_as_if_nothing_had_been_read_before(changes: list[tuple[int, int]]) -> None:
    of = _table()
    written = encode(NESTED, of)
    changed = bytearray(written)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    assert _as_read(of, written) == NESTED
    assert _as_read(of, bytes(changed)) == _as_read(_table(), bytes(changed))
    assert _as_read(of, written) == NESTED


@pytest.mark.parametrize(
    ("number_of_them", "make"),
    [
        (3_000, lambda each: with_length(1, str(each).encode())),
        (1_500, lambda each: with_length(1, bytes(each))),
        (70, lambda each: with_length(2, b"") * 1_000 + with_length(1, bytes(each))),
    ],
    ids=["all different", "all of another length", "with many fields"],
)
def test_what_is_remembered_is_bounded(number_of_them: int, make: Callable[[int], bytes]) -> None:
    """Whatever pods a tenant makes, less than 400 KB stays of them."""
    of = Message({1: many("a", Message({1: text("b")}, alike=True))})
    tracemalloc.start()
    try:
        for each in range(number_of_them):
            written = with_length(1, make(each))
            read(written, 0, len(written), of)
        stays, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stays < 400_000


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=200))
def test_any_number_and_any_text_are_read_as_they_were_written(whole: int, words: str) -> None:
    message = Message({1: number("whole"), 300: text("words", always=True)})
    found = {"whole": whole, "words": words.encode(errors="replace").decode()}
    written = encode(found, message)
    assert read(written, 0, len(written), message) == found


def test_an_envelope_is_opened_as_soon_as_it_is_there() -> None:
    body = with_length(1, b"x" * 200)
    written = envelope("PodList", body)
    begin = written.index(body)
    for end in range(begin):
        with pytest.raises(IndexError):
            open_envelope(written[:end])
    assert open_envelope(written[:begin]) == ("PodList", begin, begin + len(body))


@pytest.mark.parametrize(
    ("slice_", "moved"),
    [(Pod, ["Pod.node", "Pod.started", "Pod.accelerators"]), (Service, []), (ConfigMap, []), (Node, [])],
)
def test_every_field_that_is_read_from_json_is_read_from_protobuf_too(
    slice_: type[msgspec.Struct], moved: list[str]
) -> None:
    """A field that is added to a slice, and not to the table, would be empty after a list and full after a change.

    Fields that are `moved` are no fields of the object: a slice takes their values from other fields.
    """
    kinds = {resource.kind: message for resource, message in BY_RESOURCE.items()}
    assert _missing(slice_, kinds[slice_.__name__]) == moved


def _missing(kind: type[msgspec.Struct], message: Message) -> list[str]:
    found = {field.name: field.of for field in message.fields.values()}
    missing = []
    for field in msgspec.structs.fields(kind):
        name, inner = field.encode_name, _struct_in(field.type)
        if name not in found:
            missing.append(f"{kind.__name__}.{name}")
        elif inner is not None and inner is not ChildLabels:  # of the map of labels it takes those that it names
            missing += _missing(inner, found[name] or METADATA)
    return missing


def _struct_in(kind: object) -> type[msgspec.Struct] | None:
    """Return the struct in `X`, `X | None`, `tuple[X, ...]`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for each in get_args(kind) if (found := _struct_in(each)) is not None), None)
