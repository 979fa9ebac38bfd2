"""From bytes to structs: the fast way, the careful way, and what neither can read."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from hack.objects import an_object
from support.arrivals import turns_during
from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.meta import JSON, ObjectMeta, Resource, Struct
from tfjob_operator.api.protobuf import Message
from tfjob_operator.informers import Codec
from tfjob_operator.informers.codec import ONE_PASS_BYTES, PIECE, Skipped, WatchError
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified

JOBS = Resource("example.com", "v1", "jobs", "Job")


class JobSpec(Struct, frozen=True):
    """A spec with a field that users get wrong."""

    workers: int


class Job(Struct, frozen=True):
    """A custom resource whose spec must be there. `error` is set for what did not decode."""

    metadata: ObjectMeta
    spec: JobSpec
    error: str = ""


class KnownJob(Job, frozen=True, tag_field="kind", tag="Job"):
    """The same, with its kind as the tag of the struct."""


class Mutable(msgspec.Struct):
    """A part that somebody forgot to freeze."""


class Leaky(Struct, frozen=True):
    metadata: ObjectMeta
    parts: dict[str, tuple[Mutable, ...]] | None = None


def test_a_type_whose_objects_could_be_changed_in_the_cache_is_refused() -> None:
    """ST-10: the change would look like a state of the cluster, to every handler."""
    with pytest.raises(TypeError, match="declare these structs with frozen=True: Mutable"):
        Codec(JOBS, Leaky)


job = partial(an_object, JOBS, spec={"workers": 1}, namespace="ns", resourceVersion="5")


def page(*items: JSON, kind: str = "JobList", **metadata: str) -> bytes:
    """A page of a list."""
    body = {"kind": kind, "metadata": {"resourceVersion": "9"} | metadata, "items": [*items]}
    return json.dumps(body, separators=(",", ":")).encode()


def line(event: str, item: JSON, **how: object) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": event, "object": item}, **({"separators": (",", ":")} | how)).encode()  # type: ignore[arg-type]


def keep_as_invalid(raw: bytes, error: Exception) -> Job:
    """Make a job that says what is wrong with it."""
    metadata = ObjectMeta(name=json.loads(raw)["metadata"]["name"], namespace="ns")
    return Job(metadata=metadata, spec=JobSpec(workers=0), error=str(error))


def refuse(raw: bytes, error: Exception) -> Job:
    """A hook that fails."""
    raise LookupError("this hook is broken too")


async def test_a_page_is_decoded_with_its_version_and_token() -> None:
    """RF-08, RF-12: an empty list is written as null by Go."""
    codec = Codec(JOBS, Job)
    decoded = await codec.decode_page(page(job("a"), job("b"), **{"continue": "next"}))
    assert [item.metadata.name for item in decoded.items] == ["a", "b"]
    assert (decoded.resource_version, decoded.continue_token, decoded.skipped) == ("9", "next", [])
    assert (await codec.decode_page(page().replace(b"[]", b"null"))).items == []


@pytest.mark.parametrize(
    ("hook", "names", "error"),
    [
        pytest.param(None, ["a", "b"], "workers", id="is left out and named"),
        pytest.param(keep_as_invalid, ["a", "poison", "b"], "", id="is kept as what a hook makes of it"),
        pytest.param(refuse, ["a", "b"], "this hook is broken too", id="is left out by a hook that fails"),
    ],
)
async def test_a_poisoned_object(hook: Callable[[bytes, Exception], Job] | None, names: list[str], error: str) -> None:
    """B01: one job with a wrong type must not block all jobs"""
    codec = Codec(JOBS, Job, on_undecodable=hook)
    decoded = await codec.decode_page(
        page(job("a"), job("poison", spec={"workers": "three"}, resourceVersion="7"), job("b"))
    )
    event = codec.decode_event(line("MODIFIED", job("poison", spec={"workers": []})))
    assert [item.metadata.name for item in decoded.items] == names
    if hook is keep_as_invalid:
        assert isinstance(event, Modified)
        assert ["workers" in item.error for item in (*decoded.items, event.object)] == [False, True, False, True]
        assert decoded.skipped == []
    else:
        assert isinstance(event, Skipped)
        assert [(each.key, each.resource_version) for each in decoded.skipped] == [("ns/poison", "7")]
        assert error in str(decoded.skipped[0].error)


async def test_an_object_without_readable_metadata_is_skipped_without_a_name() -> None:
    """B01, RF-12"""
    codec = Codec(JOBS, Job)
    decoded = await codec.decode_page(page(job("a"), {"kind": "Job", "metadata": 7}, {}))
    assert [skipped.key for skipped in decoded.skipped] == ["", ""]
    assert len(decoded.items) == 1
    for kind in ("MODIFIED", "DELETED"):
        event = codec.decode_event(line(kind, {"kind": "Job", "metadata": 7}))
        assert isinstance(event, Skipped)
        assert (event.key, event.resource_version, event.deleted) == ("", "", kind == "DELETED")


@pytest.mark.parametrize("depth", [1100, 9900, 100_000])
async def test_an_object_that_nests_deeper_than_python_recurses_costs_nothing(depth: int) -> None:
    """B01: the API server accepts ten thousand levels in a field that a CRD's schema leaves open."""
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    poison = b'{"kind":"Job","metadata":{"name":"deep"},"spec":{"workers":1,"other":' + nested + b"}}"
    body = page(job("a")).replace(b'"items":[', b'"items":[' + poison + b",")
    codec = Codec(JOBS, Job)
    decoded = await codec.decode_page(body)
    assert [item.metadata.name for item in decoded.items] == ["deep", "a"]
    assert decoded.skipped == []
    event = codec.decode_event(b'{"type":"DELETED","object":' + poison + b"}")
    assert isinstance(event, Deleted)
    assert event.object.metadata.name == "deep"


async def test_what_fits_nowhere_is_handed_on_in_a_depth_that_can_be_read() -> None:
    """B01: the hook that rescues an object decodes it, too."""
    deep = b"[" * 9000 + b"]" * 9000
    poison = b'{"kind":"Job","metadata":{"name":"poison"},"spec":{"workers":"three","deep":' + deep + b"}}"

    event = Codec(JOBS, Job, on_undecodable=keep_as_invalid).decode_event(b'{"type":"ADDED","object":' + poison + b"}")
    assert isinstance(event, Added)
    assert event.object.metadata.name == "poison"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(page(kind="Table"), id="a table"),
        pytest.param(page(kind="Status"), id="a status"),
        pytest.param(page(job("a", spec={"workers": "three"}), kind="Table"), id="a table read the careful way"),
        pytest.param(b"{}", id="nothing"),
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>502</html>", id="a load balancer"),
        pytest.param(page(job("a"))[:-3], id="cut short"),
        pytest.param(b'{"kind":"JobList","metadata":{"resourceVersion":"9"},"items":{}}', id="items are no list"),
    ],
)
async def test_what_is_no_list_is_an_error_and_never_an_empty_list(body: bytes) -> None:
    """RF-12, reflector_test.go:TestIsUnsupportedTableObject"""
    with pytest.raises(DecodeError, match=r"not a list of jobs\.example\.com"):
        await Codec(JOBS, Job).decode_page(body)


async def test_a_large_page_is_decoded_in_pieces_with_the_loop_running_in_between() -> None:
    """A list of ten thousand must not hold up everything else"""
    count_items = 3 * PIECE
    padding = "x" * (ONE_PASS_BYTES // count_items + 1)
    body = page(*[job(f"j{number}", resourceVersion=padding) for number in range(count_items)])
    decoded, turns = await turns_during(Codec(JOBS, Job).decode_page(body))
    assert [item.metadata.name for item in decoded.items] == [f"j{number}" for number in range(count_items)]
    assert turns >= 3


A = Job(metadata=ObjectMeta(name="a", namespace="ns", resource_version="5"), spec=JobSpec(workers=1))
MANAGED = job("a") | {"status": {"phase": "Running"}}
MANAGED["metadata"] = MANAGED["metadata"] | {"managedFields": [{"manager": "kubectl"}]}
NOTHING_YET = {"kind": "Job", "metadata": {"resourceVersion": "77", "creationTimestamp": None}, "spec": {}}
END = {"resourceVersion": "253", "annotations": {"k8s.io/initial-events-end": "true"}}
OTHER = {"resourceVersion": "253", "annotations": {"k8s.io/initial-events-end": "false"}}
EVENTS = {
    "an add": (line("ADDED", job("a")), Added(A)),
    "a change": (line("MODIFIED", job("a")), Modified(A)),
    "a deletion": (line("DELETED", job("a")), Deleted(A)),
    # RF-12: the shortcut that looks for the kind in the bytes may find nothing, but must not be wrong
    "an add with spaces": (line("ADDED", job("a"), indent=1).replace(b"\n", b" "), Added(A)),
    "a deletion without a kind": (line("DELETED", {k: v for k, v in job("a").items() if k != "kind"}), Deleted(A)),
    # SI-12, RF-30, shared_informer_test.go:TestSharedInformerTransformer; B69: only what the struct names survives
    "more than is kept": (line("ADDED", MANAGED), Added(A)),
    # RF-10, RF-27: a bookmark's object has no spec, or an empty one; two of 1.36.3, the first of a streaming list
    "a bookmark": (line("BOOKMARK", NOTHING_YET), Bookmark("77")),
    "the end of a list": (
        line("BOOKMARK", {"kind": "Job", "metadata": END}),
        Bookmark("253", ends_initial_events=True),
    ),
    "no end of a list": (line("BOOKMARK", {"kind": "Job", "metadata": OTHER}), Bookmark("253")),
    "an idle minute": (line("BOOKMARK", {"kind": "Job", "metadata": {"resourceVersion": "260"}}), Bookmark("260")),
    # RF-16: whatever its status looks like
    "an error": (line("ERROR", {"code": 410, "metadata": {}}), WatchError(b'{"code":410,"metadata":{}}')),
}


@pytest.mark.parametrize(("sent", "event"), EVENTS.values(), ids=EVENTS)
def test_events_become_deltas(sent: bytes, event: object) -> None:
    """RF-01, RF-10, RF-12, RF-16, RF-27, RF-30, SI-12, B69"""
    assert Codec(JOBS, Job, on_undecodable=keep_as_invalid).decode_event(sent) == event


@pytest.mark.parametrize(
    ("event", "item", "skipped"),
    [
        pytest.param("ADDED", job("a") | {"kind": "Table"}, ("ns/a", "5", "expected a Job, got a Table"), id="kind"),
        pytest.param("RENAMED", job("a"), ("ns/a", "5", "unknown event type 'RENAMED'"), id="event"),
    ],
)
def test_what_is_of_another_kind_is_skipped(event: str, item: JSON, skipped: tuple[str, str, str]) -> None:
    """RF-12, reflector_test.go:TestGetExpectedGVKFromObject, TestReflectorWatchHandler"""
    found = Codec(JOBS, Job).decode_event(line(event, item))
    assert isinstance(found, Skipped)
    assert (found.key, found.resource_version, str(found.error)) == skipped


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"<html>", b'{"type":"ADDED"}', b'{"type":1,"object":{}}'])
def test_a_line_that_is_no_event_is_an_error(garbage: bytes) -> None:
    """RF-20"""
    with pytest.raises(DecodeError, match="not a watch event"):
        Codec(JOBS, Job).decode_event(garbage)


def names_of(kind: type[Job], *blocks: bytes) -> list[str]:
    """Return the types of the events in these blocks, with the keys of those that were skipped."""
    events, failure = Codec(JOBS, kind).decode_events([memoryview(block) for block in blocks])
    told = [type(event).__name__ + getattr(event, "key", "") for event in events]
    return [*told, "failure"] if failure is not None else told


@pytest.mark.parametrize("kind", [Job, KnownJob])
def test_a_block_of_changes_is_decoded_at_once_and_one_of_all_sorts_line_by_line(kind: type[Job]) -> None:
    """RF-10, RF-12, B01: whatever stands beside them, good events arrive, in their order, up to an error."""
    added, poisoned = line("ADDED", job("a")), line("MODIFIED", job("bad", spec={"workers": "many"}))
    bookmark = b'{"type":"BOOKMARK","object":{"kind":"Job","metadata":{"resourceVersion":"9"}}}'
    error = b'{"type":"ERROR","object":{"kind":"Status","code":410}}'
    ends = b"\n"
    assert names_of(kind, added + ends + line("DELETED", job("a")) + ends) == ["Added", "Deleted"]
    assert names_of(kind, added + ends, added + ends) == ["Added", "Added"]
    assert names_of(kind, ends.join([added, bookmark, added, b""])) == ["Added", "Bookmark", "Added"]
    assert names_of(kind, ends.join([added, poisoned, added, b""])) == ["Added", "Skippedns/bad", "Added"]
    assert names_of(kind, added + ends, poisoned + ends) == ["Added", "Skippedns/bad"]
    assert names_of(kind, ends.join([added, error, added, b""])) == ["Added", "failure"]
    assert names_of(kind, b"\n" + added + b"\r\n\r\n" + added + b"\r\n") == ["Added", "Added"]


@pytest.mark.parametrize("kind", [Job, KnownJob])
def test_the_kind_of_every_object_in_a_block_is_looked_at(kind: type[Job]) -> None:
    """RF-12, reflector_test.go:TestGetExpectedGVKFromObject: also where the first object is one of ours"""
    ours, another = line("ADDED", job("a")), line("MODIFIED", job("x") | {"kind": "Task"})
    assert names_of(kind, b"\n".join([ours, another, ours, b""])) == ["Added", "Skippedns/x", "Added"]
    assert names_of(kind, b"\n".join([another, ours, b""])) == ["Skippedns/x", "Added"]


class Part(Struct, frozen=True):
    value: msgspec.Raw = msgspec.Raw(b"null")


class LazyJob(Struct, frozen=True, tag_field="kind", tag="Job"):
    """A job with JSON that its readers decode, in every kind of place."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    part: Part = Part()
    parts: tuple[Part, ...] = ()
    named: Mapping[str, Part] | None = None


async def test_fields_that_stay_json_are_decoded_by_their_readers_and_hold_no_other_bytes() -> None:
    """SI-12: an object must not keep the list or chunk in memory from which it was decoded"""
    each: dict[str, Any] = {"value": [1]}
    body = job("a") | {"part": each, "parts": [each], "named": {"x": each}}
    codec = Codec(JOBS, LazyJob)
    listed, chunk = page(body), bytearray(line("ADDED", body) + b"\n" + line("ADDED", job("b")) + b"\n")
    before = sys.getrefcount(listed)
    found = [
        *(await codec.decode_page(listed)).items,
        *((await codec.decode_items(json.dumps(body).encode())) or ([],))[0],
    ]
    for blocks in ([memoryview(chunk)], [memoryview(b"\n"), memoryview(chunk)]):
        found += [event.object for event in codec.decode_events(blocks)[0] if isinstance(event, Added)]
    assert sys.getrefcount(listed) == before
    chunk[:] = b"x" * len(chunk)
    assert [item.metadata.name for item in found] == ["a", "a", "a", "b", "a", "b"]
    for item in found:
        assert msgspec.json.decode(item.spec) == {"workers": 1}
        parts = [item.part, *item.parts, *(item.named or {}).values()]
        assert [bytes(part.value) for part in parts] == ([b"[1]"] * 3 if item.parts else [b"null"])


def test_protobuf_has_no_fields_that_stay_json() -> None:
    """Every object would be skipped"""
    with pytest.raises(TypeError, match=r"LazyJob has fields of type msgspec.Raw"):
        Codec(JOBS, LazyJob, message=Message({}))
