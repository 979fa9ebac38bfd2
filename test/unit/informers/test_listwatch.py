"""Lists in pages and pieces, watches, and their selectors."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.objects import Pod
from fakes.source import FakeSource, expired, pod, settled, status_error
from support.arrivals import arriving, chunked, turns_during
from tfjob_operator.api.client.errors import ApiError, ConnectionLostError, DecodeError, ExpiredError, ForbiddenError
from tfjob_operator.api.client.http import OnLeave, Request, unchanged
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.informers.codec import Codec, Page, Skipped
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted
from tfjob_operator.informers.errors import SelectorError
from tfjob_operator.informers.listers import EVERYTHING, NOTHING, parse_labels
from tfjob_operator.informers.listwatch import PIECE_BYTES, Batch, ListReader, ListWatch, Pager


class ScriptedResponse:
    """A response made of chunks; an error among them is raised there. After the last chunk the stream ends, or hangs."""

    def __init__(self, *chunks: bytes | Exception, status: int = 200, hang: bool = False) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {}
        self.closed = False
        self._chunks = chunks
        self._hang = hang

    async def body(self) -> bytes:
        return b"".join(chunk for chunk in self._chunks if isinstance(chunk, bytes))

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        if self._hang:
            await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True


class ScriptedTransport:
    """Responds to every request with the one response it has, and keeps the requests."""

    def __init__(self, response: ScriptedResponse) -> None:
        self.response = response
        self.requests: list[Request] = []

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> ScriptedResponse:
        self.requests.append(request)
        return self.response


def event(kind: str, name: str = "a", version: str = "5") -> bytes:
    """A line of a watch of pods, with its end."""
    item = {"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "resourceVersion": version}}
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def over(response: ScriptedResponse) -> tuple[ListWatch[Pod], ScriptedTransport]:
    """A `ListWatch` of narrowed pods, and its transport."""
    transport = ScriptedTransport(response)
    client = RestClient(transport)
    narrowed = ListWatch(
        client, Codec(PODS, Pod), namespace="ns", label_selector="app=web", field_selector="spec.nodeName=n"
    )
    return narrowed, transport


async def read(source: ListWatch[Pod], into: list[Batch[Pod]]) -> None:
    """Read a watch to its end."""
    async with source.watch(ListOptions(resource_version="4")) as batches:
        async for batch in batches:
            into.append(batch)  # noqa: PERF401 - what came before an error counts


async def test_a_list_is_narrowed_by_namespace_and_selectors_and_decoded() -> None:
    """RF-01"""
    body = b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}'
    source, transport = over(ScriptedResponse(body))
    page = await source.list(ListOptions(resource_version="0", limit=500))
    assert [item.metadata.name for item in page.items] == ["a"]
    [request] = transport.requests
    assert request.path == "/api/v1/namespaces/ns/pods"
    assert request.query == {
        "labelSelector": "app=web", "fieldSelector": "spec.nodeName=n", "resourceVersion": "0", "limit": "500",
    }  # fmt: skip


async def test_a_list_is_decoded_while_it_arrives_and_a_broken_one_is_read_anew() -> None:
    """D9d: nothing of the broken one is in what is returned."""
    items = ",".join(f'{{"metadata":{{"name":"p{number}"}},"note":"{"x" * 500}"}}' for number in range(3000))
    body = f'{{"kind":"PodList","metadata":{{"resourceVersion":"9"}},"items":[{items}]}}'.encode()
    response = ScriptedResponse(*(body[begin : begin + 65_536] for begin in range(0, len(body), 65_536)))
    broken = ScriptedResponse(body[:1_000_000], ConnectionLostError("cut"))

    class Server(ScriptedTransport):
        async def send(self, request: Request, on_leave: OnLeave = unchanged) -> ScriptedResponse:
            await super().send(request, on_leave)
            return broken if len(self.requests) == 1 else response

    transport = Server(response)
    page = await ListWatch(RestClient(transport), Codec(PODS, Pod)).list(ListOptions())
    assert [pod.metadata.name for pod in page.items] == [f"p{number}" for number in range(3000)]
    assert [request.query.get("watch") for request in transport.requests] == [None, None]
    assert broken.closed
    assert response.closed


async def test_a_watch_is_narrowed_alike_and_its_events_come_in_the_batches_of_the_stream() -> None:
    """RF-01, RF-14"""
    first, second, third = event("ADDED"), event("DELETED"), event("BOOKMARK")
    response = ScriptedResponse(first + second + third[:10], third[10:])
    source, transport = over(response)
    batches: list[Batch[Pod]] = []
    await read(source, batches)
    assert [[type(item) for item in batch] for batch in batches] == [[Added, Deleted], [Bookmark]]
    assert transport.requests[0].query["labelSelector"] == "app=web"
    assert transport.requests[0].query["resourceVersion"] == "4"
    assert response.closed


async def test_an_error_event_is_raised_after_the_events_before_it() -> None:
    """RF-16"""
    status = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    response = ScriptedResponse(event("ADDED") + status + event("ADDED", "never"))
    source, _ = over(response)
    batches: list[Batch[Pod]] = []
    with pytest.raises(ExpiredError, match="WATCH pods: 410 too old"):
        await read(source, batches)
    assert [[type(item) for item in batch] for batch in batches] == [[Added]]
    assert response.closed


@pytest.mark.parametrize(
    ("chunk", "error"),
    [(ConnectionLostError("cut"), ConnectionLostError), (b"<html>\n", DecodeError)],
    ids=["cut", "garbage"],
)
async def test_a_stream_that_breaks_raises_what_broke_it(chunk: bytes | Exception, error: type[Exception]) -> None:
    """RF-14, RF-20, rest/connection_test.go:TestReconnectBrokenTCPInFlight_HTTP1"""
    response = ScriptedResponse(event("ADDED"), chunk)
    source, _ = over(response)
    batches: list[Batch[Pod]] = []
    with pytest.raises(error):
        await read(source, batches)
    assert len(batches) == 1
    assert response.closed


async def test_a_watch_that_is_refused_raises_the_servers_response() -> None:
    """RF-21"""
    source, _ = over(ScriptedResponse(b'{"kind":"Status","code":403,"reason":"Forbidden"}', status=403))
    with pytest.raises(ForbiddenError):
        await read(source, [])


async def test_cancelling_closes_the_stream() -> None:
    """RF-13, reflector_test.go:TestReflectorHandleWatchStoppedAfter"""
    response = ScriptedResponse(event("ADDED"), hang=True)
    source, _ = over(response)
    async with settled(read(source, [])):
        assert not response.closed
    assert response.closed


class Script(FakeSource[Pod]):
    """Responds to lists with what it was given, in order."""

    def __init__(self, *answers: Page[Pod] | ApiError) -> None:
        super().__init__()
        self.answers = [*answers]

    async def list(self, options: ListOptions) -> Page[Pod]:
        self.lists.append(options)
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def asked(script: Script) -> Sequence[tuple[str, str, str, int]]:
    """What each request asked for: version, match, token, limit."""
    return [(o.resource_version, o.resource_version_match, o.continue_token, o.limit) for o in script.lists]


AT_7 = ListOptions(resource_version="7", resource_version_match="NotOlderThan")


async def test_a_list_in_one_page_is_answered_as_it_is() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(Page([pod("a")], "9"))
    page, in_pages = await Pager(script).list(AT_7, 500)
    assert (page.items, page.resource_version, in_pages) == ([pod("a")], "9", False)
    assert asked(script) == [("7", "NotOlderThan", "", 500)]


async def test_pages_are_followed_without_version_and_match_and_the_list_has_the_version_of_the_first() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List, TestListPager_EachListItem"""
    lost = Skipped(TypeError("bad"), "ns/x")
    script = Script(Page([pod("a")], "9", "t1"), Page([pod("b")], "10", "t2", [lost]), Page([pod("c")], "11"))
    page, in_pages = await Pager(script).list(AT_7, 1)
    assert [item.metadata.name for item in page.items] == ["a", "b", "c"]
    assert (page.resource_version, page.continue_token, page.skipped, in_pages) == ("9", "", [lost], True)
    assert asked(script) == [("7", "NotOlderThan", "", 1), ("", "", "t1", 1), ("", "", "t2", 1)]


async def test_a_token_that_expires_is_answered_by_one_full_list_at_the_version_first_asked_for() -> None:
    """RF-08, SV-05, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(Page([pod("a")], "9", "t1"), expired(), Page([pod("a"), pod("b")], "12"))
    page, in_pages = await Pager(script).list(AT_7, 1)
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert (page.resource_version, in_pages) == ("12", True)
    assert asked(script)[-1] == ("7", "NotOlderThan", "", 0)


async def test_a_full_list_that_expires_too_is_the_callers_problem() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(Page([pod("a")], "9", "t1"), expired(), expired())
    with pytest.raises(ExpiredError):
        await Pager(script).list(AT_7, 1)


async def test_a_first_page_that_expires_is_the_callers_problem() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(expired())
    with pytest.raises(ExpiredError):
        await Pager(script).list(AT_7, 1)
    assert len(script.lists) == 1


async def test_any_other_failure_on_any_page_is_raised() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_eachListPageBuffered. No producer runs ahead here"""
    script = Script(Page([pod("a")], "9", "t1"), status_error(403, "Forbidden"))
    with pytest.raises(ApiError):
        await Pager(script).list(AT_7, 1)
    assert len(script.lists) == 2


LABELS = {"app": "web", "tier": "", "example.com/size": "10"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        (" ", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app=db", False),
        ("missing=", False),
        ("tier=", True),
        ("app!=web", False),
        ("app!=db", True),
        ("missing!=x", True),
        ("app", True),
        ("missing", False),
        ("!app", False),
        ("!missing", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("missing in (web)", False),
        ("tier in (,x)", True),
        ("app notin (db)", True),
        ("app notin (web,db)", False),
        ("missing notin (web)", True),
        ("example.com/size>9", True),
        ("example.com/size > 10", False),
        ("example.com/size<11", True),
        ("app>1", False),
        ("missing<1", False),
        ("app=web,!missing,app in (web,db)", True),
        ("app=web,missing", False),
        ("app in (web,db),tier=x", False),
    ],
)
def test_a_label_selector_matches_as_the_api_server_does(text: str, matches: bool) -> None:
    """ST-09, apimachinery labels/selector_test.go:TestSelectorMatches"""
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["a=b=c", "=x", "a in", "a in b", "a in (b", "a,,b", "a>b", "-a", "a=b c", "!", "a in (b c)"]
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    """ST-09, apimachinery labels/selector_test.go:TestSelectorParse"""
    with pytest.raises(SelectorError, match="selector"):
        parse_labels(text)


def test_an_object_without_labels_is_as_one_with_none() -> None:
    """ST-09"""
    assert parse_labels("!app").matches(None)
    assert not parse_labels("app").matches(None)


def test_everything_asks_nobody_and_nothing_refuses_all() -> None:
    """ST-09, listers_test.go:TestListAll"""
    assert EVERYTHING.is_everything
    assert parse_labels("").is_everything
    assert not NOTHING.is_everything
    assert not NOTHING.matches(LABELS)


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
