"""Lists in protobuf: however they are cut, the result is that of the same list in JSON."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.protobuf import encode, envelope, list_of, with_length
from fakes.transport import FakeResponse, FakeTransport
from support.arrivals import arriving, chunked, turns_during
from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import DecodeError, ExpiredError, ForbiddenError, StatusError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.core_messages import POD
from tfjob_operator.api.protobuf import MEDIA_TYPE, OBJECT_META, STATUS
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.informers import Codec, ListWatch
from tfjob_operator.informers.codec import ListPage
from tfjob_operator.informers.listwatch import PIECE, ProtobufListReader

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC))  # noqa: DTZ001
WHOLE = st.integers(-(1 << 31), (1 << 31) - 1)


def some(required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> Any:
    """An object with some of these fields."""
    return st.fixed_dictionaries(required, optional=optional)


def lists(of: Any) -> Any:
    """One to three of them: Go leaves an empty list out."""
    return st.lists(of, min_size=1, max_size=3)


WHY: dict[str, Any] = {"reason": WORDS, "message": WORDS}
STATE = some({}, waiting=some({}, **WHY), terminated=some({"exitCode": WHOLE}, finishedAt=TIMES, **WHY))
RULES = lists(some({}, action=WORDS, exitCodes=some({}, operator=WORDS, values=lists(WHOLE))))
CONTAINERS = lists(some({"name": WORDS}, restartPolicy=WORDS, restartPolicyRules=RULES))
STATUSES = lists(some({"name": WORDS}, state=STATE, lastState=STATE, restartCount=WHOLE))
METADATA = some(
    {"name": WORDS},
    **dict.fromkeys(("namespace", "uid", "resourceVersion"), WORDS),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), WHOLE),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMES),
    labels=st.dictionaries(WORDS | st.just("job-name"), WORDS, min_size=1, max_size=3),
    ownerReferences=lists(some({}, kind=WORDS, name=WORDS, uid=WORDS, controller=st.booleans())),
)
SPEC = some(
    {}, restartPolicy=WORDS, terminationGracePeriodSeconds=WHOLE, containers=CONTAINERS, initContainers=CONTAINERS
)
CONDITIONS = lists(some({"type": WORDS}, status=WORDS, **WHY))
STATUS_OF_A_POD = some(
    {}, phase=WORDS, conditions=CONDITIONS, containerStatuses=STATUSES, initContainerStatuses=STATUSES, **WHY
)
PODS_OF_ALL_KINDS = some({"metadata": METADATA}, spec=SPEC, status=STATUS_OF_A_POD)
CODEC = Codec(PODS, Pod, message=POD)


def read(body: bytes, cuts: Iterable[int] = (), *, piece_bytes: int = 1) -> ListPage[Pod]:
    """Read a body that is cut at these places."""
    return asyncio.run(ProtobufListReader(CODEC, POD, piece_bytes=piece_bytes).read(arriving(chunked(body, cuts))))


def pods(*names: str) -> list[bytes]:
    """Pods of these names."""
    return [encode({"metadata": {"name": name}}, POD) for name in names]


@given(st.lists(PODS_OF_ALL_KINDS, max_size=4), st.lists(st.integers(0, 10_000)), st.integers(1, 400))
def test_a_list_is_the_same_as_in_json_in_whatever_chunks_it_arrives(
    found: list[dict[str, Any]], cuts: list[int], piece_bytes: int
) -> None:
    """RF-12: all that is kept of a pod, the version and the token of the list."""
    metadata = {"resourceVersion": "7", "continue": "more"}
    json = msgspec.json.encode({"kind": "PodList", "metadata": metadata, "items": found})
    body = list_of("Pod", [encode(pod, POD) for pod in found], version="7", token="more")
    assert read(body, cuts, piece_bytes=piece_bytes) == asyncio.run(CODEC.decode_page(json))


@given(st.data())
def test_a_list_that_is_cut_off_is_an_error(data: st.DataObject) -> None:
    """Otherwise what was not sent would be deleted from the cache."""
    body = list_of("Pod", pods("a", "b"), version="7")
    end = data.draw(st.integers(0, len(body) - 5))  # the last four bytes are two empty fields of the envelope
    with pytest.raises(DecodeError, match="not a list of pods"):
        read(body[:end])


NO_LISTS = {
    "a failure": envelope("Status", encode({"message": "no"}, STATUS)),
    "an object": envelope("Pod", pods("a")[0]),
    "nothing": envelope("", b""),
    "a list without metadata": envelope("PodList", b""),
    "an item longer than the list": envelope("PodList", b"\x12\x7f"),
    "a number": envelope("PodList", b"\x10\x01"),
    "no envelope": b"k8s\x00\x08\x01",
}


@pytest.mark.parametrize("body", NO_LISTS.values(), ids=NO_LISTS)
def test_what_is_no_list_is_an_error(body: bytes) -> None:
    """RF-12: taken for an empty list it would delete the whole cache."""
    with pytest.raises(DecodeError):
        read(body)


def test_a_pod_that_cannot_be_read_is_left_out_by_name() -> None:
    """B01: it keeps no other out of the cache, and the cache keeps what it knew of it."""
    meta = with_length(1, encode({"name": "bad", "namespace": "ns"}, OBJECT_META))
    page = read(list_of("Pod", [*pods("a"), meta + with_length(3, b"\x0b"), *pods("b")], version="7"))
    assert [pod.metadata.name for pod in page.items] == ["a", "b"]
    assert [(left.key, left.deleted) for left in page.skipped] == [("ns/bad", False)]


def test_a_value_of_the_wrong_type_goes_the_way_that_it_goes_in_json() -> None:
    """B01: what makes an object of it is asked, with the JSON that stands for it."""

    def rescued(raw: bytes, _: Exception) -> Pod:
        return msgspec.convert({"metadata": msgspec.json.decode(raw)["metadata"]}, Pod)

    wrong = {"metadata": {"name": "a"}, "status": {"containerStatuses": [{"state": {}}]}}
    body = list_of("Pod", [encode(wrong, POD)], version="7")
    assert [left.key for left in read(body).skipped] == ["a"]
    codec = Codec(PODS, Pod, message=POD, on_undecodable=rescued)
    page = asyncio.run(ProtobufListReader(codec, POD).read(arriving([body])))
    assert [pod.metadata.name for pod in page.items] == ["a"]


async def test_the_loop_runs_while_a_list_is_read() -> None:
    """Leases are renewed meanwhile."""
    body = list_of("Pod", pods(*(f"pod-{number}" for number in range(10 * PIECE))), version="7")
    _, turns = await turns_during(ProtobufListReader(CODEC, POD).read(arriving([body])))
    assert turns >= 10


async def listed(response: FakeResponse, codec: Codec[Pod] = CODEC) -> tuple[ListPage[Pod], str]:
    """List pods, which is answered so; return also what the request accepts."""
    transport = FakeTransport(response)
    page = await ListWatch(RestClient(transport), codec).list(ListOptions())
    return page, transport.requests[0].accept


async def test_an_informer_takes_protobuf_where_it_can_and_json_where_it_must() -> None:
    """What stands between us and the API server may know JSON alone; custom resources have no protobuf."""
    body = list_of("Pod", pods("a"), version="7")
    page, accepted = await listed(FakeResponse(200, (body[:2], body[2:]), {"Content-Type": MEDIA_TYPE}))
    assert [pod.metadata.name for pod in page.items] == ["a"]
    assert accepted == f"{MEDIA_TYPE}, application/json"
    json = b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}'
    assert (await listed(FakeResponse(200, json)))[0] == page
    page, accepted = await listed(FakeResponse(200, json), Codec(PODS, Pod))
    assert accepted == "application/json"
    with pytest.raises(DecodeError, match="not JSON"):
        await listed(FakeResponse(200, body, {"Content-Type": MEDIA_TYPE}), Codec(PODS, Pod))
    with pytest.raises(DecodeError, match="not a list of pods"):
        await listed(FakeResponse(200, body), Codec(PODS, Pod))  # of which nothing says what it is


@pytest.mark.parametrize(
    ("code", "reason", "error"), [(410, "Expired", ExpiredError), (403, "Forbidden", ForbiddenError)]
)
async def test_a_failure_in_protobuf_is_the_same_error_as_in_json(
    code: int, reason: str, error: type[StatusError]
) -> None:
    """API servers write failures in the encoding that was asked for."""
    status = {"message": "too old", "reason": reason, "details": {"kind": "pods", "retryAfterSeconds": 7}, "code": code}
    body = envelope("Status", encode(status, STATUS))
    with pytest.raises(error, match=f"{code} too old") as raised:
        await listed(FakeResponse(code, body, {"Content-Type": MEDIA_TYPE}))
    assert raised.value.retry_after_s == 7.0


@pytest.mark.parametrize("body", [b"k8s\x00", envelope("Status", b"\x0b"), envelope("Pod", b"")])
async def test_a_failure_that_cannot_be_read_is_still_one(body: bytes) -> None:
    """Whatever a server sends."""
    with pytest.raises(StatusError, match="403"):
        await listed(FakeResponse(403, body, {"Content-Type": MEDIA_TYPE}))
