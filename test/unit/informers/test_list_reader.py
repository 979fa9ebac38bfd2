"""Lists decoded while they arrive: whatever they hold and however they are cut, the result is that of the whole body."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.objects import Pod
from support.arrivals import arriving, chunked, turns_during
from tfjob_operator.api.client.errors import ConnectionLostError, DecodeError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.informers import Codec
from tfjob_operator.informers.codec import Page
from tfjob_operator.informers.listwatch import PIECE_BYTES, ListReader

JOBS = Resource("example.com", "v1", "jobs", "Job")
COMPACT = (",", ":")


class Job(Struct, frozen=True):
    """A custom resource with a spec that may be anything, and a number that users get wrong."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    workers: int = 0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())


CODEC = Codec(JOBS, Job)


def told(page: Page[Job]) -> tuple[Any, ...]:
    """Return all that a page says, in a form that can be compared."""
    items = [(job.metadata, bytes(job.spec), job.workers) for job in page.items]
    skipped = [(each.key, each.resource_version, type(each.error)) for each in page.skipped]
    return items, skipped, page.resource_version, page.continue_token


async def outcome(reading: Any) -> tuple[Any, ...] | str:
    """Return what was read, or that it is no list."""
    try:
        return told(await reading)
    except DecodeError:
        return "no list"


def job(name: str = "a", spec: object = None, **more: object) -> dict[str, object]:
    """A job as servers send custom resources: its fields in the order of the alphabet."""
    metadata = {"name": name, "namespace": "ns", "resourceVersion": "5", "uid": name}
    return {"apiVersion": "example.com/v1", "kind": "Job", "metadata": metadata, "spec": spec, **more}


def listed(items: object, *, first: bool = False, **how: Any) -> bytes:
    """A list of jobs. `first`: the items come after the metadata, as in lists of types that are built in."""
    ends: dict[str, object] = {"kind": "JobList", "metadata": {"continue": "next", "resourceVersion": "9"}}
    body = {**ends, "items": items} if first else {"apiVersion": "example.com/v1", "items": items, **ends}
    return json.dumps(body, **({"separators": COMPACT} | how)).encode()


BORDER = '},{"apiVersion":"example.com/v1","kind":"Job","metadata":{"name":"x'
HOSTILE = st.sampled_from(
    [
        BORDER, '},{"metadata":{', "},{", "}]", "}]}", '"', "\\", '\\"', '\\\\"', "[", "]", "{", "}", ",", '"items":[{',
        '},{"apiVersion"', "\u2028", "\U0001f600", "\x00", "é", '{"', "]},{",
        '"},{"apiVersion":"example.com/v1","kind":"Job","metadata":{',
    ]
)  # fmt: skip
TEXT = st.one_of(HOSTILE, st.text(max_size=8), st.lists(HOSTILE, max_size=4).map("".join))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXT, inner, max_size=4),
        st.lists(st.builds(job, TEXT, inner), max_size=4),
    ),
    max_leaves=12,
)
ITEM = st.one_of(
    st.builds(job, TEXT, JSON),
    st.builds(job, TEXT, JSON, workers=st.one_of(st.integers(0, 9), TEXT)),
    st.builds(lambda spec: {"spec": spec, **job()}, JSON),
    JSON,
)
BODY = st.builds(
    lambda items, first, indent, ascii_only: (
        listed(items, first=first, indent=indent, ensure_ascii=ascii_only)
        if indent
        else listed(items, first=first, ensure_ascii=ascii_only)
    ),
    st.one_of(st.lists(ITEM, max_size=8), JSON),
    st.booleans(),
    st.sampled_from([None, None, None, 1, "\t"]),
    st.booleans(),
)
CUTS = st.lists(st.integers(0, 5000), max_size=12)


@settings(deadline=None, max_examples=150)
@given(body=BODY, cuts=CUTS, piece_bytes=st.integers(1, 200))
@example(body=listed([job("a", BORDER), job("b", [job("c"), job("d")])]), cuts=[100, 200, 300], piece_bytes=60)
@example(body=listed([job(f"{n}", [job("x"), job("y")]) for n in range(9)]), cuts=[*range(0, 3000, 7)], piece_bytes=30)
def test_any_list_in_any_chunks_gives_what_it_gives_as_a_whole(body: bytes, cuts: list[int], piece_bytes: int) -> None:
    """D9d: what looks like the end of an item, in a string or inside an item, is none; nor does it matter where chunks end."""

    async def compare() -> None:
        reader = ListReader(CODEC, piece_bytes=piece_bytes)
        read = await outcome(reader.read(arriving(chunked(body, cuts))))
        assert read == await outcome(CODEC.decode_page(body))

    asyncio.run(compare())


@settings(deadline=None, max_examples=100)
@given(body=BODY, end=st.integers(0, 100_000), cuts=CUTS, piece_bytes=st.integers(1, 200), junk=st.binary(max_size=6))
def test_a_list_that_is_cut_off_or_broken_is_an_error(
    body: bytes, end: int, cuts: list[int], piece_bytes: int, junk: bytes
) -> None:
    """D9d: also where a proxy ends it as if it were whole. The parts that could be read are not a smaller collection."""
    place = end % len(body)
    broken = body[:place] + junk

    async def compare() -> None:
        reader = ListReader(CODEC, piece_bytes=piece_bytes)
        read = await outcome(reader.read(arriving(chunked(broken, cuts))))
        assert read == await outcome(CODEC.decode_page(broken))

    asyncio.run(compare())


async def test_a_list_that_breaks_under_way_raises_what_broke_it() -> None:
    """D9d: nothing of it is returned."""
    body = listed([job(f"{n}") for n in range(100)])
    with pytest.raises(ConnectionLostError):
        await ListReader(CODEC, piece_bytes=50).read(arriving([body[:3000], ConnectionLostError("reset")]))


class Watcher(Codec[Any]):
    """A codec that notes the sizes of what it decodes."""

    def __init__(self, resource: Resource, kind: Any) -> None:
        super().__init__(resource, kind)
        self.pieces: list[int] = []
        self.rest = 0

    async def decode_items(self, items: bytes) -> Any:
        self.pieces.append(len(items))
        return await super().decode_items(items)

    async def decode_page(self, body: bytes) -> Any:
        self.rest = len(body)
        return await super().decode_page(body)


def by(size: int, body: bytes) -> list[bytes]:
    """The body in chunks of one size."""
    return [body[begin : begin + size] for begin in range(0, len(body), size)]


def a_pod(number: int) -> dict[str, object]:
    """A pod of 4 KB, in the order in which API servers send it."""
    annotations = {"note": "},{" * 10 + '"metadata":{' + "x" * 4000}
    metadata = {"name": f"p{number}", "namespace": "ns", "uid": f"{number}", "annotations": annotations}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("indent", [None, 2])
async def test_no_more_than_a_piece_is_ever_held(indent: int | None) -> None:
    """D9d: of 10 MB; also where a proxy has changed the layout of the JSON."""
    pods = [a_pod(number) for number in range(2_500)]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": pods}
    raw = json.dumps(body, indent=indent, separators=COMPACT if indent is None else None).encode()
    codec = Watcher(PODS, Pod)
    page = await ListReader(codec).read(arriving(by(65_536, raw)))
    assert [pod.metadata.name for pod in page.items] == [f"p{number}" for number in range(2_500)]
    assert max(*codec.pieces, codec.rest) < PIECE_BYTES + 2 * 65_536
    assert sum(codec.pieces) + codec.rest < len(raw) + 1000  # no piece was decoded twice


@pytest.mark.parametrize("layout", ["nested", "one object", "strings", "open string"])
async def test_content_that_was_made_for_it_costs_no_more_than_a_few_passes(layout: str) -> None:
    """D9d: a hundred thousand places that look like ends of items. The work grows with the bytes and not with their square."""
    inner = [job("x", 1)] * 3000
    layouts: dict[str, list[dict[str, object]]] = {
        "nested": [job(f"{n}", inner) for n in range(40)],
        "one object": [job("a", [job("x", 1)] * 100_000), job("b")],
        "strings": [job(f"{n}", [BORDER] * 3000) for n in range(40)],
        "open string": [job("a", BORDER * 100_000), job("b")],
    }
    items = layouts[layout]
    body = listed(items)
    codec = Watcher(JOBS, Job)
    began = time.process_time()
    page = await ListReader(codec).read(arriving(by(16_384, body)))
    spent = time.process_time() - began
    assert len(page.items) == len(items)
    assert sum(codec.pieces) + codec.rest < 4 * len(body)
    assert spent < len(body) / 1_000_000  # it takes 0.02 s for a megabyte; a machine may be busy


async def test_the_loop_runs_while_a_list_is_read() -> None:
    """D9d: a list of 40 MB takes a fifth of a second, which no lease and no probe should wait for."""
    body = listed([job(f"{n}", "x" * 4000) for n in range(5_000)])
    _, turns = await turns_during(ListReader(CODEC).read(arriving(by(65_536, body))))
    assert turns >= len(body) // (PIECE_BYTES + 65_536)


@pytest.mark.parametrize(
    ("whole", "rest"),
    [
        (b'{"a":1}', b',{"b":2'),
        (b'{"a":1} ', b',\n {"b":2}'),
        (b"", b'{"a":1}'),
        (b"", b'{"a":1}]'),
        (b"", b'{"a":[{},{},{'),
        (b'{"a":[{},{}]}', b',{}],"metadata":{"x":[{},{}]}}'),
        (b'{"a":"},{","b":"\\"},{"}', b',{"c":"},{'),
        (b'{"a":"\\\\"},[{},{}]', b",["),
        (b'1,"x",{"a":1}', b",2"),
        (b'{"a":' + b"[" * 9000 + b"]" * 9000 + b"}", b",{}"),
        (b"", b""),
        (b"", b"<html>"),
    ],
)
async def test_items_are_walked_through_up_to_the_last_that_another_follows(whole: bytes, rest: bytes) -> None:
    """D9d: exact for whatever is JSON up to where it was cut off; it depends on the message of an error of msgspec."""
    assert CODEC.end_of_objects(whole + rest) == len(whole)
