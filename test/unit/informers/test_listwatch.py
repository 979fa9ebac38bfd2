"""Lists in pages and pieces, watches, and their selectors."""

import asyncio
import json
import time
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pytest_mock import MockerFixture

from fakes.objects import Pod
from fakes.source import FakeSource, expired, pod, settled, status_error
from fakes.transport import FakeResponse, FakeTransport, refusal
from hack.objects import an_object
from support.arrivals import arriving, chunked, turns_during
from tfjob_operator.api.client.errors import ApiError, ConnectionLostError, DecodeError, ExpiredError, ForbiddenError
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.informers.codec import Codec, ListPage, Skipped
from tfjob_operator.informers.errors import SelectorError
from tfjob_operator.informers.listers import EVERYTHING, NOTHING, parse_labels
from tfjob_operator.informers.listwatch import PIECE_BYTES, ListReader, ListWatch, Pager

CUT = ConnectionLostError("cut")
ADDED, DELETED, BOOKMARK = (
    b'{"type":"%b","object":{"kind":"Pod","metadata":{"name":"a","namespace":"ns","resourceVersion":"5"}}}\n' % kind
    for kind in (b"ADDED", b"DELETED", b"BOOKMARK")
)
ERROR = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


def over(*script: FakeResponse) -> tuple[ListWatch[Pod], FakeTransport]:
    """A `ListWatch` of narrowed pods, and its transport."""
    transport = FakeTransport(*script)
    codec = Codec(PODS, Pod)
    narrowed = ListWatch(
        RestClient(transport), codec, namespace="ns", label_selector="app=web", field_selector="spec.nodeName=n"
    )
    return narrowed, transport


NARROWED = {"labelSelector": "app=web", "fieldSelector": "spec.nodeName=n"}


async def test_a_list_is_narrowed_by_namespace_and_selectors_and_decoded() -> None:
    """RF-01"""
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}'
    source, transport = over(FakeResponse(body=body))
    page = await source.list(ListOptions(resource_version="0", limit=500))
    assert [item.metadata.name for item in page.items] == ["a"]
    [request] = transport.requests
    assert request.path == "/api/v1/namespaces/ns/pods"
    assert request.query == NARROWED | {"resourceVersion": "0", "limit": "500"}


async def test_a_list_is_decoded_while_it_arrives_and_a_broken_one_is_read_anew() -> None:
    """D9d: nothing of the broken one is in what is returned."""
    items = ",".join(f'{{"metadata":{{"name":"p{number}"}},"note":"{"x" * 500}"}}' for number in range(3000))
    body = f'{{"kind":"PodList","metadata":{{"resourceVersion":"9"}},"items":[{items}]}}'.encode()
    source, transport = over(FakeResponse(body=(body[:1_000_000], CUT)), FakeResponse(body=(*by(65_536, body),)))
    page = await source.list(ListOptions())
    assert [pod.metadata.name for pod in page.items] == [f"p{number}" for number in range(3000)]
    assert [request.query for request in transport.requests] == [NARROWED] * 2
    assert transport.unclosed == 0


STREAMS: dict[str, tuple[tuple[bytes | float | Exception, ...], list[list[str]], type[Exception] | None]] = {
    "batches": ((ADDED + DELETED + BOOKMARK[:10], BOOKMARK[10:]), [["Added", "Deleted"], ["Bookmark"]], None),
    "an error": ((ADDED + ERROR + ADDED,), [["Added"]], ExpiredError),
    "a cut": ((ADDED, CUT), [["Added"]], ConnectionLostError),
    "garbage": ((ADDED, b"<html>\n"), [["Added"]], DecodeError),
}


@pytest.mark.parametrize(("body", "batches", "error"), STREAMS.values(), ids=STREAMS)
async def test_a_watch_is_narrowed_alike_and_its_events_come_in_the_batches_of_the_stream(
    body: tuple[bytes | float | Exception, ...], batches: list[list[str]], error: type[Exception] | None
) -> None:
    """RF-01, RF-14, RF-16, RF-20, rest/connection_test.go:TestReconnectBrokenTCPInFlight_HTTP1: then comes what broke it"""
    source, transport = over(FakeResponse(body=body))
    found: list[list[str]] = []
    raised: Exception | None = None
    try:
        async with source.watch(ListOptions(resource_version="4")) as events:
            async for batch in events:
                found.append([type(event).__name__ for event in batch])  # noqa: PERF401 - what came before an error counts
    except ApiError as failure:
        raised = failure
    assert found == batches
    assert (type(raised) if raised else None) is error
    assert not isinstance(raised, ExpiredError) or str(raised).startswith("WATCH pods: 410 too old")
    assert transport.requests[0].query.items() >= (NARROWED | {"watch": "true", "resourceVersion": "4"}).items()
    assert transport.unclosed == 0


async def test_a_watch_that_is_refused_raises_the_servers_response() -> None:
    """RF-21"""
    source, _ = over(refusal(403, "Forbidden"))
    with pytest.raises(ForbiddenError):
        async with source.watch(ListOptions()):
            pytest.fail("it was refused")


async def test_cancelling_closes_the_stream() -> None:
    """RF-13, reflector_test.go:TestReflectorHandleWatchStoppedAfter"""
    source, transport = over(FakeResponse(body=(ADDED, 3600.0)))

    async def read() -> None:
        async with source.watch(ListOptions()) as events:
            async for _ in events:
                pass

    async with settled(read()):
        assert transport.unclosed == 1
    assert transport.unclosed == 0


class Script(FakeSource[Pod]):
    """Responds to lists with what it was given, in order."""

    def __init__(self, *answers: ListPage[Pod] | ApiError) -> None:
        super().__init__()
        self.answers = [*answers]

    async def list(self, options: ListOptions) -> ListPage[Pod]:
        self.lists.append(options)
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


A, B, C = pod("a"), pod("b"), pod("c")
LEFT_OUT = Skipped(TypeError("bad"), "ns/x")
ASKED = ("7", "NotOlderThan", "", 1)
PAGES: dict[str, tuple[list[ListPage[Pod] | ApiError], object, list[tuple[str, str, str, int]]]] = {
    "one page": ([ListPage([A], "9")], (ListPage([A], "9"), False), [ASKED]),
    "without version and match, to the version of the first": (
        [ListPage([A], "9", "t1"), ListPage([B], "10", "t2", [LEFT_OUT]), ListPage([C], "11")],
        (ListPage([A, B, C], "9", "", [LEFT_OUT]), True), [ASKED, ("", "", "t1", 1), ("", "", "t2", 1)],
    ),
    "a page without objects, to the last page": (
        [ListPage([A], "9", "t1"), ListPage([], "9", "t2"), ListPage([B], "9")],
        (ListPage([A, B], "9"), True), [ASKED, ("", "", "t1", 1), ("", "", "t2", 1)],
    ),
    "an expired token, then a full list": (
        [ListPage([A], "9", "t1"), expired(), ListPage([A, B], "12")], (ListPage([A, B], "12"), True),
        [ASKED, ("", "", "t1", 1), ("7", "NotOlderThan", "", 0)],
    ),
    "an expired full list": (
        [ListPage([A], "9", "t1"), expired(), expired()], ExpiredError,
        [ASKED, ("", "", "t1", 1), ("7", "NotOlderThan", "", 0)],
    ),
    "an expired first page": ([expired()], ExpiredError, [ASKED]),
    "any other failure": (
        [ListPage([A], "9", "t1"), status_error(403, "Forbidden")], type(status_error(403, "Forbidden")),
        [ASKED, ("", "", "t1", 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "outcome", "asked"), PAGES.values(), ids=PAGES)
async def test_the_pager_follows(
    answers: list[ListPage[Pod] | ApiError], outcome: object, asked: list[tuple[str, str, str, int]]
) -> None:
    """RF-08, SV-05, tools/pager/pager_test.go:TestListPager_List, TestListPager_EachListItem

    TestListPager_eachListPageBuffered: no producer runs ahead here.
    """
    script = Script(*answers)
    options = ListOptions(resource_version="7", resource_version_match="NotOlderThan")
    try:
        found: object = await Pager(script).list(options, 1)
    except ApiError as error:
        found = type(error)
    assert found == outcome
    requests = [(o.resource_version, o.resource_version_match, o.continue_token, o.limit) for o in script.lists]
    assert requests == asked


LABELS = {"app": "web", "tier": "", "example.com/size": "10"}
SELECTED = (
    "", " ", "app=web", "app==web", "app = web", "tier=", "app!=db", "missing!=x", "app", "!missing", "app in (web, db)",
    "tier in (,x)", "app notin (db)", "missing notin (web)", "example.com/size>9", "example.com/size<11",
    "app=web,!missing,app in (web,db)",
)  # fmt: skip
NOT_SELECTED = (
    "app=db", "missing=", "app!=web", "missing", "!app", "app in (db)", "missing in (web)", "app notin (web,db)",
    "example.com/size > 10", "app>1", "missing<1", "app=web,missing", "app in (web,db),tier=x",
)  # fmt: skip


@pytest.mark.parametrize("text", [*SELECTED, *NOT_SELECTED])
def test_a_label_selector_matches_as_the_api_server_does(text: str) -> None:
    """ST-09, apimachinery labels/selector_test.go:TestSelectorMatches"""
    assert parse_labels(text).matches(LABELS) is (text in SELECTED)


@pytest.mark.parametrize(
    "text", ["a=b=c", "=x", "a in", "a in b", "a in (b", "a,,b", "a>b", "-a", "a=b c", "!", "a in (b c)"]
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    """ST-09, apimachinery labels/selector_test.go:TestSelectorParse"""
    with pytest.raises(SelectorError, match="selector"):
        parse_labels(text)


def test_everything_asks_nobody_and_nothing_refuses_all() -> None:
    """ST-09, listers_test.go:TestListAll. An object without labels is as one with none"""
    assert EVERYTHING.is_everything
    assert parse_labels("").is_everything
    assert not NOTHING.is_everything
    assert not NOTHING.matches(LABELS)
    assert parse_labels("!app").matches(None)
    assert not parse_labels("app").matches(None)


JOBS = Resource("example.com", "v1", "jobs", "Job")


class Job(Struct, frozen=True):
    """A custom resource with a spec that may be anything, and a number that users get wrong."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    workers: int = 0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())


CODEC = Codec(JOBS, Job)


async def outcome(reading: Any) -> tuple[Any, ...] | str:
    """Return all that a page says, in a form that can be compared, or that it is no list."""
    try:
        page = await reading
    except DecodeError:
        return "no list"
    items = [(job.metadata, bytes(job.spec), job.workers) for job in page.items]
    skipped = [(each.key, each.resource_version, type(each.error)) for each in page.skipped]
    return items, skipped, page.resource_version, page.continue_token


def compare(body: bytes, cuts: list[int], piece_bytes: int) -> None:
    """Assert that a body in pieces gives what it gives as a whole."""

    async def both() -> None:
        read = await outcome(ListReader(CODEC, piece_bytes=piece_bytes).read(arriving(chunked(body, cuts))))
        assert read == await outcome(CODEC.decode_page(body))

    asyncio.run(both())


job = partial(an_object, JOBS, namespace="ns", resourceVersion="5")
"""A job as servers send custom resources: its fields in the order of the alphabet."""


def listed(items: object, *, first: bool = False, **how: Any) -> bytes:
    """A list of jobs. `first`: the items come after the metadata, as in lists of types that are built in."""
    ends: dict[str, object] = {"kind": "JobList", "metadata": {"continue": "next", "resourceVersion": "9"}}
    body = {**ends, "items": items} if first else {"apiVersion": "example.com/v1", "items": items, **ends}
    return json.dumps(body, **({"separators": (",", ":")} | how)).encode()


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
    st.builds(lambda name, spec, workers: job(name, spec) | {"workers": workers}, TEXT, JSON, st.integers(0, 9) | TEXT),
    st.builds(lambda spec: {"spec": spec, **job("a")}, JSON),
    JSON,
)
BODY = st.builds(
    lambda items, first, indent, ascii_only: listed(
        items, first=first, ensure_ascii=ascii_only, **({"indent": indent} if indent else {})
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
    compare(body, cuts, piece_bytes)


@settings(deadline=None, max_examples=100)
@given(body=BODY, end=st.integers(0, 100_000), cuts=CUTS, piece_bytes=st.integers(1, 200), junk=st.binary(max_size=6))
def test_a_list_that_is_cut_off_or_broken_is_an_error(
    body: bytes, end: int, cuts: list[int], piece_bytes: int, junk: bytes
) -> None:
    """D9d: also where a proxy ends it as if it were whole. The parts that could be read are not a smaller collection."""
    compare(body[: end % len(body)] + junk, cuts, piece_bytes)


def by(size: int, body: bytes) -> list[bytes]:
    """The body in chunks of one size."""
    return [body[begin : begin + size] for begin in range(0, len(body), size)]


async def read_and_measured(body: bytes, chunk_bytes: int, mocker: MockerFixture) -> tuple[ListPage[Job], list[int]]:
    """Read a list that arrives in chunks of this size; return also how long each text was that was decoded."""
    codec = Codec(JOBS, Job)
    spies = [mocker.spy(codec, name) for name in ("decode_items", "decode_page")]
    page = await ListReader(codec).read(arriving(by(chunk_bytes, body)))
    return page, [len(call.args[0]) for spy in spies for call in spy.call_args_list]


@pytest.mark.parametrize("indent", [None, 2])
async def test_no_more_than_a_piece_is_ever_held(indent: int | None, mocker: MockerFixture) -> None:
    """D9d: of 10 MB; also where a proxy has changed the layout of the JSON."""
    spec = {"note": "},{" * 10 + '"metadata":{' + "x" * 4000, "containers": [{"name": "a"}, {"name": "b"}]}
    body = listed([job(f"p{number}", spec) for number in range(2_500)], first=True, indent=indent)
    page, sizes = await read_and_measured(body, 65_536, mocker)
    assert [item.metadata.name for item in page.items] == [f"p{number}" for number in range(2_500)]
    assert max(sizes) < PIECE_BYTES + 2 * 65_536
    assert sum(sizes) < len(body) + 1000  # no piece was decoded twice


@pytest.mark.parametrize("layout", ["nested", "one object", "strings", "open string"])
async def test_content_that_was_made_for_it_costs_no_more_than_a_few_passes(layout: str, mocker: MockerFixture) -> None:
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
    began = time.process_time()
    page, sizes = await read_and_measured(body, 16_384, mocker)
    spent = time.process_time() - began
    assert len(page.items) == len(items)
    assert sum(sizes) < 4 * len(body)
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
