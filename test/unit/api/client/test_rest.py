"""RestClient: the HTTP request of each verb."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from fakes.cluster import ModelCluster
from fakes.objects import Pod
from fakes.transport import FakeResponse, FakeTransport, refusal
from tfjob_operator.api.client import errors
from tfjob_operator.api.client.encoding import encode
from tfjob_operator.api.client.errors import BadRequestError, ConnectionLostError, DecodeError, RequestTimeoutError
from tfjob_operator.api.client.options import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    TABLE,
    ListOptions,
    LogOptions,
    with_page,
)
from tfjob_operator.api.client.rest import DEAD_PEER_S, LOG_SILENCE_S, RestClient, retry_on_conflict
from tfjob_operator.api.core import NODES, PODS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.api.v1.constants import TFJOBS

PATH = "/api/v1/namespaces/ns/pods"
OURS, DRY = {"fieldManager": "tfjob-operator"}, {"dryRun": "All"}


class Found(msgspec.Struct):
    kind: str


def client_of(transport: FakeTransport) -> RestClient:
    return RestClient(transport, field_manager="tfjob-operator")


def served(count: int) -> tuple[FakeTransport, RestClient]:
    """A client of a server that has so many responses."""
    transport = FakeTransport(*[FakeResponse()] * count)
    return transport, client_of(transport)


VERBS = [
    (lambda c: c.get(PODS, "ns", "a"), ("GET", f"{PATH}/a", {})),
    (lambda c: c.list_page(PODS, ListOptions()), ("GET", "/api/v1/pods", {})),
    (lambda c: c.list_page(PODS, ListOptions(namespace="ns", limit=5)), ("GET", PATH, {"limit": "5"})),
    (lambda c: c.create(PODS, "ns", {}), ("POST", PATH, OURS)),
    (lambda c: c.update(PODS, "ns", "a", {}), ("PUT", f"{PATH}/a", OURS)),
    (lambda c: c.patch(PODS, "ns", "a", {}, subresource="status"), ("PATCH", f"{PATH}/a/status", OURS)),
    (lambda c: c.delete(PODS, "ns", "a"), ("DELETE", f"{PATH}/a", {})),
    (lambda c: c.create(PODS, "ns", {}, dry_run=True), ("POST", PATH, OURS | DRY)),
    (lambda c: c.update(PODS, "ns", "a", {}, dry_run=True, subresource="status"), ("PUT", f"{PATH}/a/status", OURS | DRY)),
    (lambda c: c.patch(PODS, "ns", "a", {}, dry_run=True), ("PATCH", f"{PATH}/a", OURS | DRY)),
    (lambda c: c.get(PODS, "ns", "a", subresource="status"), ("GET", f"{PATH}/a/status", {})),
    (lambda c: c.get(PODS, "ns", "a", query={"pretty": "true"}), ("GET", f"{PATH}/a", {"pretty": "true"})),
    (lambda c: c.get_raw("/version", {"timeout": "1s"}), ("GET", "/version", {"timeout": "1s"})),
    (lambda c: c.create(PODS, "ns", {}, name="a", subresource="eviction", query={"fieldValidation": "Strict"}),
        ("POST", f"{PATH}/a/eviction", OURS | {"fieldValidation": "Strict"})),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), VERBS)
async def test_each_verb_goes_where_the_api_server_expects_it(
    call: Callable[[RestClient], Awaitable[bytes]], expected: tuple[str, str, dict[str, str]]
) -> None:
    """WR-03: every write names its field manager; reads and deletes have none to name."""
    transport = FakeTransport(FakeResponse(body=b'{"kind":"Pod"}'))
    assert await call(client_of(transport)) == b'{"kind":"Pod"}'
    request = transport.requests[0]
    assert (request.method, request.path, request.query) == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.get(PODS, "ns", "a", Found),
        lambda c: c.list_page(PODS, ListOptions(), Found),
        lambda c: c.create(PODS, "ns", {}, Found),
        lambda c: c.update(PODS, "ns", "a", {}, Found),
        lambda c: c.patch(PODS, "ns", "a", {}, Found, subresource="status"),
        lambda c: c.apply(PODS, "ns", "a", {}, Found),
    ],
)
async def test_each_verb_decodes_into_the_type_that_is_asked_for(
    call: Callable[[RestClient], Awaitable[Found]],
) -> None:
    transport = FakeTransport(FakeResponse(body=b'{"kind":"Pod","more":[]}'), FakeResponse(body=b'{"kind":5}'))
    assert await call(client_of(transport)) == Found("Pod")
    path = transport.requests[0].path
    with pytest.raises(DecodeError, match=rf"^[A-Z]+ {path}: the response cannot be decoded: Expected `str`"):
        await call(client_of(transport))


async def test_a_table_is_asked_for_by_what_is_accepted() -> None:
    transport = FakeTransport(FakeResponse(), FakeResponse(), FakeResponse(), FakeResponse(body=(b"1\n",)))
    client = client_of(transport)
    await client.get(PODS, "ns", "a")
    await client.get(PODS, "ns", "a", accept=TABLE)
    await client.list_page(PODS, ListOptions(), accept=TABLE)
    async with client.watch(PODS, ListOptions(), accept=TABLE) as lines:
        assert [batch async for batch in lines] == [[b"1"]]
    assert [request.accept for request in transport.requests] == ["application/json", TABLE, TABLE, TABLE]


async def test_lists_may_come_compressed_where_that_is_asked_for() -> None:
    transport, client = served(3)

    async def take(chunks: AsyncIterator[bytes]) -> bytes:
        return b"".join([chunk async for chunk in chunks])

    await client.list_page(PODS, ListOptions())
    await client.list_page(PODS, ListOptions(), gzip=True)
    assert await client.read_list(PODS, ListOptions(), take, gzip=True) == b"{}"
    assert [request.gzip for request in transport.requests] == [False, True, True]


async def test_a_log_is_read_as_it_arrives() -> None:
    """It is text and may be endless: the only limit is hours of silence."""
    text = {"Content-Type": "text/plain"}
    transport = FakeTransport(
        FakeResponse(body=(b"step 1\nst", 3600.0, b"ep 2\n"), headers=text), FakeResponse(headers=text)
    )
    client = client_of(transport)
    options = LogOptions(container="tensorflow", follow=True, tail_lines=0, since_s=60)
    async with client.logs(PODS, "ns", "a", options) as chunks:
        assert [chunk async for chunk in chunks] == [b"step 1\nst", b"ep 2\n"]
    async with client.logs(PODS, "ns", "a", idle_s=5.0):
        pass
    first, second = transport.requests
    assert (first.method, first.path, first.idle_s) == ("GET", f"{PATH}/a/log", LOG_SILENCE_S)
    assert first.accept == "application/json, */*"
    assert first.query == {"container": "tensorflow", "follow": "true", "tailLines": "0", "sinceSeconds": "60"}
    assert (second.query, second.idle_s) == ({}, 5.0)
    assert transport.unclosed == 0


async def test_a_log_that_is_not_there_is_an_error_and_a_page_is_no_log() -> None:
    """A proxy's login page is text, too, but not text/plain."""
    page = FakeResponse(body=b"<html>", headers={"Content-Type": "text/html"})
    transport = FakeTransport(refusal(400, "BadRequest", message='pod "a" does not have a host assigned'), page)
    for error in (BadRequestError, DecodeError):
        with pytest.raises(error):
            async with client_of(transport).logs(PODS, "ns", "a"):
                pass
    assert transport.unclosed == 0


def test_a_log_that_begins_at_a_time_does_not_begin_at_another() -> None:
    """The API server accepts only one of the two options."""
    assert LogOptions(since="2026-01-01T00:00:00Z", since_s=5).query() == {"sinceTime": "2026-01-01T00:00:00Z"}
    assert LogOptions(previous=True, timestamps=True, limit_bytes=10).query() == {
        "previous": "true",
        "timestamps": "true",
        "limitBytes": "10",
    }


async def test_without_a_field_manager_none_is_named() -> None:
    transport = FakeTransport(FakeResponse())
    await RestClient(transport).create(PODS, "ns", {})
    assert transport.requests[0].query == {}


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_MERGE_PATCH, JSON_PATCH])
async def test_a_patch_says_which_kind_it_is(kind: str) -> None:
    transport, client = served(2)
    await client.patch(PODS, "ns", "a", [{"op": "add"}], content_type=kind)
    await client.patch(PODS, "ns", "a", b"as it came")
    assert [(r.content_type, r.body) for r in transport.requests] == [
        (kind, b'[{"op":"add"}]'),
        (MERGE_PATCH, b"as it came"),
    ]


async def test_an_apply_names_its_manager_and_says_whether_it_insists() -> None:
    """WR-04: the body goes out as JSON, which is YAML"""
    transport, client = served(3)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "1"}}}
    await client.apply(PODS, "ns", "a", body)
    await client.apply(PODS, "ns", "a", body, force=True, subresource="status", dry_run=True)
    await client.apply(PODS, "ns", "a", {"metadata": body["metadata"]}, force=False)
    first, second, third = transport.requests
    assert third == first
    assert (first.method, first.path, first.content_type) == ("PATCH", "/api/v1/namespaces/ns/pods/a", APPLY_PATCH)
    assert msgspec.json.decode(first.body or b"") == body
    assert first.query == OURS
    assert second.path.endswith("/status")
    assert second.query == OURS | DRY | {"force": "true"}


async def test_an_apply_by_nobody_is_a_mistake() -> None:
    """WR-04: the server records the fields by their manager, so it needs a name"""
    with pytest.raises(ValueError, match="field manager"):
        await RestClient(FakeTransport()).apply(PODS, "ns", "a", {})


async def test_a_delete_carries_its_preconditions_and_nothing_that_was_not_said() -> None:
    """WR-08: with the UID a stale view cannot delete a recreated object. A grace of 0 is sent, not omitted."""
    transport, client = served(3)
    await client.delete(PODS, "ns", "a")
    await client.delete(PODS, "ns", "a", uid="u")
    await client.delete(
        PODS, "ns", "a", uid="u", resource_version="7", propagation="Foreground", grace_s=0, dry_run=True
    )
    head = {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert [msgspec.json.decode(r.body or b"") for r in transport.requests] == [
        head,
        head | {"preconditions": {"uid": "u"}},
        head
        | {
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "dryRun": ["All"],
        },
    ]


async def test_an_empty_uid_protects_too() -> None:
    """WR-08: an empty UID is a bug of the caller; it must make the server refuse the deletion, not delete any object."""
    transport = FakeTransport(FakeResponse())
    await client_of(transport).delete(PODS, "ns", "a", uid="")
    assert msgspec.json.decode(transport.requests[0].body or b"")["preconditions"] == {"uid": ""}


async def test_every_request_has_limits_lists_have_longer_ones_and_a_lease_can_have_shorter_ones() -> None:
    """The server gives up a write after 34 s and a list after 60 s; limits below those would hide its responses."""
    lease: dict[str, Any] = {"request_s": 3.0, "list_s": 4.0, "watch_s": 5.0}
    for limits, expected in ({}, [40.0, 70.0, DEAD_PEER_S]), (lease, [3.0, 4.0, 5.0]):
        transport = FakeTransport(*[FakeResponse()] * 3)
        client = RestClient(transport, **limits)
        await client.update(PODS, "ns", "a", {})
        await client.list_page(PODS, ListOptions())
        async with client.watch(PODS, ListOptions()):
            pass
        assert [request.total_s for request in transport.requests] == expected
        assert [request.idle_s for request in transport.requests] == [None, None, DEAD_PEER_S]


async def open_log(client: RestClient, pods: Resource, namespace: str, name: str) -> None:
    async with client.logs(pods, namespace, name):
        pass


OF_AN_OBJECT: dict[str, Callable[[RestClient, Resource, str, str], Awaitable[object]]] = {
    "get": lambda c, *of: c.get(*of),
    "get of a subresource": lambda c, *of: c.get(*of, subresource="status"),
    "update": lambda c, *of: c.update(*of, {}),
    "patch": lambda c, *of: c.patch(*of, {}),
    "apply": lambda c, *of: c.apply(*of, {}),
    "delete": lambda c, *of: c.delete(*of),
    "create of a subresource": lambda c, kind, namespace, name: c.create(
        kind, namespace, {}, name=name, subresource="eviction"
    ),
    "logs": open_log,
}


@pytest.mark.parametrize("verb", OF_AN_OBJECT)
@pytest.mark.parametrize(
    ("kind", "namespace", "name"),
    [
        (NODES, *"node-1".partition("/")[::2]),  # the name became the namespace
        (NODES, "", ""),
        (PODS, "ns", ""),
        (PODS, "", "a"),
        (PODS, "ns", "ns/a"),
        (PODS, "ns", ".."),
        (PODS, ".", "a"),
        (PODS, "ns", "a%2fb"),
    ],
)
async def test_a_call_that_does_not_identify_one_object_is_refused_before_it_is_sent(
    verb: str, kind: Resource, namespace: str, name: str
) -> None:
    """A DELETE of the path without a name deletes the collection; a GET of it decodes as an object without fields."""
    transport = FakeTransport()
    with pytest.raises(ValueError, match="see split_key"):
        await OF_AN_OBJECT[verb](client_of(transport), kind, namespace, name)
    assert transport.requests == []


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda c: c.create(PODS, "", {}), "needs a namespace"),
        (lambda c: c.create(PODS, "ns", {}, subresource="eviction"), "needs a namespace and a name"),
        (lambda c: c.patch(PODS, "ns", "a", {}, subresource=""), "pass None"),
        (lambda c: c.list_page(PODS, ListOptions(namespace="..")), "not a namespace"),
    ],
)
async def test_what_is_missing_in_a_call_is_named(call: Callable[[RestClient], Awaitable[object]], advice: str) -> None:
    transport = FakeTransport()
    with pytest.raises(ValueError, match=advice):
        await call(client_of(transport))
    assert transport.requests == []


async def test_a_cluster_scoped_object_needs_no_namespace_and_has_none() -> None:
    transport, client = served(2)
    await client.delete(NODES, "", "node-1")
    await client.get(NODES, "ns", "system:node")
    assert [request.path for request in transport.requests] == ["/api/v1/nodes/node-1", "/api/v1/nodes/system%3Anode"]


class Gauge(Struct, frozen=True):
    available: int = 0


class WholeGauge(Gauge, frozen=True, omit_defaults=False):
    """The same, made to be written."""

    inner: Gauge | None = None


WRITES: list[Callable[[RestClient, object], Awaitable[object]]] = [
    lambda c, body: c.create(PODS, "ns", body),
    lambda c, body: c.patch(PODS, "ns", "a", body),
    lambda c, body: c.patch(
        PODS, "ns", "a", [{"op": "add", "path": "/status", "value": body}], content_type=JSON_PATCH
    ),
    lambda c, body: c.patch(PODS, "ns", "a", {"status": body}, content_type=STRATEGIC_MERGE_PATCH),
    lambda c, body: c.apply(PODS, "ns", "a", {"status": {"gauges": (body,)}}),
    lambda c, body: c.patch(PODS, "ns", "a", WholeGauge(inner=body)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("write", WRITES)
async def test_a_struct_that_would_not_write_its_defaults_is_refused_before_it_is_sent(
    write: Callable[[RestClient, object], Awaitable[object]],
) -> None:
    """Else 3 stays 3 where a merge patch means 0, and each sync writes again."""
    transport = FakeTransport()
    with pytest.raises(TypeError, match=r"Gauge omits fields with default values.*pass a dict, or declare"):
        await write(client_of(transport), Gauge())
    assert transport.requests == []


async def test_a_struct_that_writes_its_defaults_is_sent_with_them() -> None:
    transport, client = served(2)
    await client.patch(PODS, "ns", "a", {"status": WholeGauge()})
    await client.patch(PODS, "ns", "a", {"status": msgspec.Raw(b'{"any":[{}]}')})
    assert [request.body for request in transport.requests] == [
        b'{"status":{"available":0,"inner":null}}',
        b'{"status":{"any":[{}]}}',
    ]


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_an_empty_precondition_of_a_change_is_refused_before_it_is_sent(field: str) -> None:
    """The server takes it for none, and would change whatever object has the name."""
    transport = FakeTransport()
    client, body = client_of(transport), {"metadata": {field: ""}}
    operations = [{"op": "test", "path": f"/metadata/{field}", "value": ""}]
    for call in (
        client.update(PODS, "ns", "a", body),
        client.patch(PODS, "ns", "a", body),
        client.patch(PODS, "ns", "a", operations, content_type=JSON_PATCH),
        client.apply(PODS, "ns", "a", body),
    ):
        with pytest.raises(ValueError, match=f"metadata.{field} is empty"):
            await call
    assert transport.requests == []


def test_a_body_may_be_nested_deeper_than_python_recurses() -> None:
    """Templates of users are; the limit is msgspec's."""
    body: list[object] = []
    for _ in range(sys.getrecursionlimit() - 100):
        body = [body]
    assert encode(body).startswith(b"[[[")


@pytest.mark.parametrize("whole", [True, False], ids=["as the body", "as its metadata"])
async def test_an_update_with_a_slice_is_refused_before_it_is_sent(*, whole: bool) -> None:
    """The server would remove every field that the slice lacks, other people's annotations and finalizers too."""
    transport = FakeTransport()
    slice_ = Pod(metadata=ObjectMeta(name="a", namespace="ns"))
    body = slice_ if whole else {"metadata": slice_.metadata}
    with pytest.raises(TypeError, match="use patch or apply"):
        await client_of(transport).update(PODS, "ns", "a", body)
    assert transport.requests == []


async def test_a_watch_is_a_stream_with_the_limit_of_a_dead_peer() -> None:
    """RF-29: 70 to 90 s, between the bookmarks (60 s) and the end of the server's event cache (75 s).

    The limit also applies before the headers, which some proxies hold back until there is a body.
    """
    assert 70 <= DEAD_PEER_S <= 90
    transport = FakeTransport(FakeResponse(body=(b"1\n2\n", b"3\n4")))
    options = ListOptions(namespace="ns", resource_version="7", timeout_s=300, allow_bookmarks=True)
    async with client_of(transport).watch(PODS, options) as lines:
        assert [batch async for batch in lines] == [[b"1", b"2"], [b"3"]]
    request = transport.requests[0]
    assert (request.method, request.path) == ("GET", PATH)
    assert (request.total_s, request.idle_s) == (DEAD_PEER_S, DEAD_PEER_S)
    assert request.query == {
        "watch": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "300",
        "allowWatchBookmarks": "true",
    }
    assert transport.unclosed == 0


@pytest.mark.parametrize("error", [ConnectionLostError("reset"), RequestTimeoutError("silence")])
async def test_a_watch_that_breaks_gives_first_what_it_had_and_then_its_error(error: Exception) -> None:
    transport = FakeTransport(FakeResponse(body=(b"1\n2", error)))
    seen: list[list[bytes]] = []

    async def read() -> None:
        async with client_of(transport).watch(PODS, ListOptions()) as lines:
            seen.extend([batch async for batch in lines])

    with pytest.raises(type(error)):
        await read()
    assert transport.unclosed == 0


async def test_an_error_inside_the_block_of_a_watch_closes_it_and_is_not_changed() -> None:
    transport = FakeTransport(FakeResponse(body=(b"1\n", 1000.0)))

    async def read() -> None:
        async with client_of(transport).watch(PODS, ListOptions()) as lines:
            async for batch in lines:
                raise KeyError(batch[0])

    with pytest.raises(KeyError, match="1"):
        await read()
    assert transport.unclosed == 0


def test_options_that_were_not_given_are_not_sent() -> None:
    assert ListOptions().query() == {}
    assert ListOptions(
        label_selector="a=b", field_selector="c=d", resource_version="0", resource_version_match="Exact", limit=500
    ).query() == {
        "labelSelector": "a=b",
        "fieldSelector": "c=d",
        "resourceVersion": "0",
        "resourceVersionMatch": "Exact",
        "limit": "500",
    }


def test_the_next_page_is_asked_for_by_its_token_alone() -> None:
    """RF-08: the token carries the version, so version and match are cleared."""
    first = ListOptions(namespace="ns", limit=500, resource_version="7", resource_version_match="Exact")
    assert with_page(first, continue_token="t") == ListOptions(namespace="ns", limit=500, continue_token="t")


TAKEN = errors.AlreadyExistsError(errors.Status(message="taken"))
THEIRS = errors.ConflictError(
    errors.Status(details=errors.StatusDetails(causes=[errors.StatusCause(reason="FieldManagerConflict")]))
)
CHANGED = errors.ConflictError(errors.Status(message="it has changed"))


@pytest.mark.parametrize(
    ("failures", "tries"),
    [([CHANGED] * 4, 5), ([CHANGED] * 9, 5), ([TAKEN] * 9, 1), ([THEIRS] * 9, 1), ([errors.ConnectError("no")] * 9, 1)],
    ids=["conflicts that end", "conflicts without end", "a taken name", "another field manager", "another error"],
)
async def test_a_write_is_started_over_after_a_conflict_that_reading_again_resolves(
    failures: list[Exception], tries: int
) -> None:
    """WR-01, util_test.go:TestRetryOnConflict: ten milliseconds apart, and at most five times."""
    left, times = [*failures], list[float]()

    async def write() -> str:
        times.append(asyncio.get_running_loop().time())
        if left:
            raise left.pop(0)
        return "written"

    writing = retry_on_conflict(write, random=lambda: 1.0)
    if len(failures) < tries:
        assert await writing == "written"
    else:
        with pytest.raises(type(failures[0])):
            await writing
    assert times == pytest.approx([number * 0.011 for number in range(tries)])


@dataclass
class Labels:
    """A part of an object that a type describes: what the type does not name is not in it."""

    labels: dict[str, str]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda c: c.patch(PODS, "ns", "a", {"metadata": {"resource_version": "7"}}), "did you mean resourceVersion"),
        (lambda c: c.create(PODS, "ns", {"metadata": {"owner_references": []}}), "did you mean ownerReferences"),
        (lambda c: c.patch(PODS, "ns", "a", Snake(Preconditions("7"))), "did you mean resourceVersion"),
        (lambda c: c.apply(PODS, "ns", "a", {"metadata": Whole()}), "metadata.uid is empty"),
        (lambda c: c.patch(PODS, "ns", "a", {"metadata": {"resourceVersion": None}}), "resourceVersion is empty"),
        (lambda c: c.delete(PODS, "ns", "a", grace_s=-1), "a grace period of -1 s is negative"),
        (lambda c: c.list_page(PODS, ListOptions("a,b")), "'a,b' is not a namespace"),
        (lambda c: c.list_page(PODS, ListOptions("app=web")), "'app=web' is not a namespace"),
    ],
)
async def test_a_call_whose_condition_the_server_would_ignore_is_refused_before_it_is_sent(
    call: Callable[[RestClient], Awaitable[object]], problem: str
) -> None:
    """All of them type-check, and the server returns 200 or 201 for most."""
    transport = FakeTransport()
    with pytest.raises(ValueError, match=problem):
        await call(client_of(transport))
    assert transport.requests == []


class Preconditions(msgspec.Struct):
    """Without the names of the API."""

    resource_version: str


class Snake(msgspec.Struct):
    metadata: Preconditions


class Whole(Struct, frozen=True, omit_defaults=False):
    uid: str = ""


@pytest.mark.parametrize(
    "body", [Labels({}), {"metadata": Labels({})}, {"spec": {"containers": [WholeGauge()]}}, [], None, "{}"]
)
async def test_an_update_with_less_than_the_whole_object_is_refused_before_it_is_sent(body: object) -> None:
    """The server removes what the type of a part does not declare, such as the volumes beside the containers."""
    transport = FakeTransport()
    with pytest.raises(TypeError, match="would remove the fields"):
        await client_of(transport).update(PODS, "ns", "a", body)
    assert transport.requests == []


async def test_a_watch_in_a_namespace_that_cannot_exist_is_refused() -> None:
    """A namespaced kind has nothing there, ever; a cluster-scoped one ignores it."""
    transport, client = served(1)
    with pytest.raises(ValueError, match="is not a namespace"):
        async with client.watch(PODS, ListOptions("*")):
            pass
    assert transport.requests == []
    async with client.watch(NODES, ListOptions("*")):
        pass


async def test_what_no_client_can_refuse_has_the_effect_that_its_docstring_names() -> None:
    """A status without its subresource is ignored, one with it is all; without a UID, a delete takes any object of the name."""
    cluster = await ModelCluster[Any]().begin()
    await cluster.create_job("a")
    change = {"spec": {"runPolicy": {"suspend": True}}, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    client, of = cluster.client, (TFJOBS, cluster.namespace, "a")
    await client.patch(*of, {"status": change["status"]})
    assert not (await client.get(*of, dict[str, Any])).get("status")
    await client.patch(*of, change, subresource="status")
    found = await client.get(*of, dict[str, Any])
    assert (found["status"], found["spec"].get("runPolicy")) == (change["status"], None)
    await client.delete(*of, uid=found["metadata"]["uid"])
    await cluster.create_job("a")
    with pytest.raises(errors.ConflictError):
        await client.delete(*of, uid=found["metadata"]["uid"])
    await client.delete(*of)
    assert cluster.names("tfjobs") == []
