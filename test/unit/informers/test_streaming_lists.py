"""Streaming lists: the reflector against a fake source that has them, on virtual time; and the beginning of a stream itself."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from fakes.objects import Pod
from fakes.source import (
    FakeSource,
    RecordingSink,
    expired,
    no_streaming_lists,
    pod,
    running,
    settle,
    settled,
    status_error,
)
from fakes.transport import FakeResponse, FakeTransport
from fakes.virtual_loop import VirtualClock
from tfjob_operator.api.client.errors import (
    ApiError,
    ConnectError,
    ConnectionLostError,
    ExpiredError,
    NotFoundError,
    RequestTimeoutError,
    ServerError,
    Status,
    TLSError,
    TooLargeResourceVersionError,
    TooManyRequestsError,
    error_from_response,
)
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import meta_key
from tfjob_operator.informers import Codec, EventHandlerFuncs, ListWatch, SharedIndexInformer, Tombstone, key_of
from tfjob_operator.informers.codec import Skipped, WatchEvent
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, ReplacedAll
from tfjob_operator.informers.intake import InitialEvents
from tfjob_operator.informers.reflector import VERY_SHORT_WATCH_S, Reflector, ReflectorOptions, State

FIRST_BACKOFF_S = 0.8  # without jitter: the random source of these tests always returns 0
LONG_PAUSE_S = 4.0  # longer than the first two pauses


class Rig:
    """A reflector between a source that has streaming lists and a recording sink."""

    def __init__(self, *objects: Pod, options: ReflectorOptions | None = None, streaming: bool = True) -> None:
        self.source = FakeSource(*objects, streaming=streaming)
        self.sink = RecordingSink()
        self.errors: list[Exception] = []
        self.reflector = Reflector(self.source, self.sink, name="pods", options=options, random=lambda: 0.0)
        self.reflector.on_error = self.errors.append

    @property
    def asked(self) -> tuple[list[str], list[str], list[str]]:
        """The versions of all streams, lists and watches."""
        source = self.source
        streams, lists, watches = (
            [options.resource_version for options in kind] for kind in (source.streams, source.lists, source.watches)
        )
        return streams, lists, watches

    def replaced(self) -> list[list[str]]:
        """The names in each collection that was handed on whole."""
        wholes = [delta for delta in self.sink.deltas if isinstance(delta, ReplacedAll)]
        return [[item.metadata.name for item in whole.objects] for whole in wholes]


def bookmark(version: str) -> Bookmark:
    """The bookmark that ends the beginning of a stream."""
    return Bookmark(version, ends_initial_events=True)


def too_large() -> TooLargeResourceVersionError:
    """The 504 of a server that has not seen our version yet."""
    return TooLargeResourceVersionError(Status(code=504, reason="Timeout", message="Too large resource version: 9"))


def too_many(retry_after_s: float | None = None) -> TooManyRequestsError:
    """A 429."""
    return TooManyRequestsError(Status(code=429, reason="TooManyRequests"), retry_after_s=retry_after_s)


def refused() -> ConnectError:
    """The transport's error for a port on which nobody listens."""
    error = ConnectError("connection refused")
    error.__cause__ = ConnectionRefusedError()
    return error


async def test_the_collection_comes_as_a_stream_which_then_is_the_watch() -> None:
    """RF-27, reflector_watchlist_test.go:TestWatchList "... synced after receiving a bookmark event" """
    rig = Rig(pod("a"), pod("b"))
    async with settled(rig.reflector.run()):
        assert rig.sink.names() == ["ReplacedAll"]
        assert rig.reflector.state is State.WATCHING
        rig.source.add(pod("c"))
        rig.source.modify(pod("a"))
        rig.source.delete("ns/b")
        rig.source.bookmark()
        await settle()
    assert rig.replaced() == [["a", "b"]]
    assert rig.sink.names() == ["ReplacedAll", "Added", "Modified", "Deleted", "Bookmark"]
    assert rig.asked == ([""], [], []), "one request in all"
    assert rig.reflector.resource_version == "16"


async def test_a_stream_is_asked_for_as_the_server_wants_it() -> None:
    """RF-27, reflector_watchlist_test.go:TestWatchList, and the recordings of 1.36"""
    rig = Rig()
    async with running(rig.reflector.run()):
        await settle()
    assert rig.source.streams[0].query() == {
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "300",
    }


async def test_nothing_is_handed_on_before_the_bookmark() -> None:
    """RF-27, reflector_watchlist_test.go:TestWatchList "the reflector won't be synced ..." """
    rig = Rig()
    rig.source.initial_events = [[Added(pod("a"))]]
    async with running(rig.reflector.run()):
        await asyncio.sleep(9.0)
        assert rig.sink.deltas == []
        assert rig.reflector.state is State.STREAMING
        assert rig.reflector.resource_version == ""
        rig.source.send(bookmark("15"))
        await settle()
    assert rig.replaced() == [["a"]]
    assert rig.reflector.resource_version == "15"


async def test_an_ordinary_bookmark_first_shows_that_nobody_heeds_the_parameter() -> None:
    """RF-27, RF-28, reflector_watchlist_test.go:TestWatchList "... checking the value of the initialEventsEnd annotation"

    client-go goes on waiting, though such a watch ends only after minutes. Where an API server knows the parameter, its first
    bookmark is the one that ends the initial events.
    """
    rig = Rig(pod("a"))
    rig.source.initial_events = [[Added(pod("a")), Bookmark("12")]]
    async with settled(rig.reflector.run()):
        assert rig.asked == ([""], ["0"], ["11"]), "a list at once"
        rig.source.end_watches(expired())
        await settle(LONG_PAUSE_S)
    assert rig.asked == ([""], ["0", "11"], ["11", "11"]), "and no stream again"


async def test_a_server_that_says_nothing_to_two_streams_is_not_asked_for_a_third() -> None:
    """RF-28: a proxy may hold such streams back; each of them costs 80 s of silence."""
    rig = Rig(pod("a"))
    rig.source.initial_events = [[], []]
    async with running(rig.reflector.run()):
        for _ in range(2):
            await asyncio.sleep(2 * VERY_SHORT_WATCH_S)
            rig.source.end_watches(RequestTimeoutError("silence"))
            await settle(LONG_PAUSE_S)
        assert rig.asked == (["", ""], ["0"], ["11"])
        rig.source.end_watches(expired())
        await settle(LONG_PAUSE_S)
    assert rig.asked == (["", ""], ["0", "11"], ["11", "11"])


async def test_what_changes_while_the_collection_streams_is_part_of_it() -> None:
    """RF-27, reflector_watchlist_test.go:TestWatchList "check if Updates and Deletes events are propagated ..." """
    rig = Rig()
    first: list[WatchEvent[Pod]] = [Added(pod("a")), Added(pod("b")), Modified(pod("a", node="n2")), Added(pod("c"))]
    rig.source.initial_events = [[*first, Deleted(pod("c")), bookmark("15"), Added(pod("d")), Modified(pod("b"))]]
    async with running(rig.reflector.run()):
        await settle()
    assert rig.sink.names() == ["ReplacedAll", "Added", "Modified"], "what came after the bookmark, in the same batch"
    [whole, *_] = rig.sink.deltas
    assert isinstance(whole, ReplacedAll)
    assert [(item.metadata.name, item.status.message) for item in whole.objects] == [("a", "n2"), ("b", "")]
    assert whole.resource_version == "15"


async def test_objects_reach_the_sink_as_they_were_decoded() -> None:
    """RF-30, reflector_test.go:TestReflectorRespectStoreTransformer: each is held once and not changed"""
    rig = Rig()
    item = pod("a")
    rig.source.initial_events = [[Added(item), bookmark("15")]]
    async with running(rig.reflector.run()):
        await settle()
    assert rig.sink.deltas[0].objects[0] is item  # type: ignore[union-attr]  # a ReplacedAll


async def test_a_collection_that_the_sink_refused_does_not_move_the_version() -> None:
    """RF-01, RF-27"""
    rig = Rig(pod("a"))
    rig.sink.refuse = RuntimeError("no")
    async with settled(rig.reflector.run()):
        assert rig.reflector.resource_version == ""
        await settle(FIRST_BACKOFF_S)
    assert rig.asked == (["", ""], [], [])
    assert rig.reflector.resource_version == "11"


async def test_the_stream_goes_on_as_a_watch_does() -> None:
    """RF-14, RF-27, ...TestWatchList "stopping a watcher after synchronization ..." """
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("b"))
        rig.source.end_watches()
        await settle()
    assert rig.asked == ([""], [], ["12"])


@pytest.mark.parametrize("error", [expired(), status_error(500, "Boom")], ids=["expired", "any other"])
async def test_a_stream_that_fails_later_leads_to_a_new_one_from_the_last_version(error: ApiError) -> None:
    """RF-16, RF-20, RF-27: nothing older than what was seen"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("b"))
        await settle()
        rig.source.end_watches(error)
        await settle(FIRST_BACKOFF_S)
    assert rig.asked == (["", "12"], [], [])
    assert rig.replaced() == [["a"], ["a", "b"]]


@pytest.mark.parametrize("error", [expired(), too_large()], ids=["expired", "too large"])
@pytest.mark.parametrize("opened", [True, False], ids=["in the stream", "on opening"])
async def test_a_version_that_the_server_refuses_is_answered_at_once_by_a_stream_of_the_newest(
    error: ApiError, opened: bool
) -> None:
    """RF-04, RF-28, reflector_watchlist_test.go:TestWatchList "expiring an established watcher ..." """
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        if opened:
            rig.source.initial_events = [error]
        else:
            rig.source.stream_errors = [error]
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
        assert rig.asked == (["", "11", ""], [], [])
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(2 * FIRST_BACKOFF_S)
    assert rig.asked[0][3:] == ["11"], "back to normal after the success"
    assert rig.errors == []


async def test_a_server_that_calls_even_the_newest_version_expired_is_not_asked_in_a_hot_loop() -> None:
    """RF-22, RF-28"""
    rig = Rig(pod("a"))
    rig.source.stream_errors = [expired() for _ in range(100)]
    rig.source.list_errors = [expired() for _ in range(100)]
    seen: list[float] = []
    rig.reflector.on_error = lambda _: seen.append(VirtualClock().monotonic())
    async with running(rig.reflector.run()):
        await asyncio.sleep(10.0)
    assert [type(error) for error in rig.source.stream_errors[:1]] == [ExpiredError]
    assert [round(later - earlier, 3) for earlier, later in pairwise(seen)] == [0.8, 1.6, 3.2]


@pytest.mark.parametrize("error", [refused(), too_many()], ids=["connection refused", "429"])
async def test_a_stream_that_is_refused_is_tried_again_after_a_pause_without_a_list(error: ApiError) -> None:
    """RF-17, RF-21, RF-28, reflector_watchlist_test.go:TestWatchList "checks if the reflector retries 429"

    It is reported like the failure of a list. client-go does not report it, so a process whose server is away says nothing.
    """
    rig = Rig(pod("a"))
    rig.source.stream_errors = [error, error]
    async with settled(rig.reflector.run()):
        assert rig.reflector.state is State.LIST_LATER
        await settle(LONG_PAUSE_S)
    assert rig.asked == (["", "", ""], [], [])
    assert rig.replaced() == [["a"]]
    assert rig.errors == [error, error]


async def test_a_429_before_the_bookmark_pauses_for_as_long_as_the_server_wants() -> None:
    """RF-18, RF-28"""
    rig = Rig(pod("a"))
    rig.source.initial_events = [too_many(retry_after_s=20.0)]
    async with running(rig.reflector.run()):
        await asyncio.sleep(19.9)
        assert len(rig.source.streams) == 1
        await asyncio.sleep(0.2)
    assert rig.asked == (["", ""], [], [])


@pytest.mark.parametrize(
    "error",
    [NotFoundError(Status(code=404)), ConnectError("Name or service not known"), TLSError("bad certificate")],
    ids=["no such resource", "no way", "tls"],
)
async def test_where_a_list_would_fare_no_better_none_is_tried(error: ApiError) -> None:
    """RF-21, RF-24, RF-28: reported once, then a pause"""
    rig = Rig(pod("a"))
    rig.source.stream_errors = [error]
    async with settled(rig.reflector.run()):
        assert rig.errors == [error]
        assert rig.reflector.state is State.LIST_LATER
        await settle(FIRST_BACKOFF_S)
    assert rig.asked == (["", ""], [], [])


@pytest.mark.parametrize("end", [None, ConnectionLostError("cut"), RequestTimeoutError("silence")])
async def test_a_stream_that_is_lost_before_the_bookmark_begins_anew_with_nothing_kept(end: ApiError | None) -> None:
    """RF-28, ...TestWatchList "check if stopping a watcher before sync ..." """
    rig = Rig(pod("a"))
    rig.source.initial_events = [[Added(pod("gone")), Added(pod("a"))]]
    async with settled(rig.reflector.run()):
        rig.source.end_watches(end)
        await settle(FIRST_BACKOFF_S)
    assert rig.asked == (["", ""], [], [])
    assert rig.replaced() == [["a"]]
    assert rig.errors == []


async def test_a_stream_that_is_lost_twice_gives_way_to_a_list_for_this_time() -> None:
    """RF-28: client-go would try for ever"""
    rig = Rig(pod("a"))
    rig.source.initial_events = [[Added(pod("a"))], [Added(pod("a"))]]
    async with running(rig.reflector.run()):
        for _ in range(2):
            await settle()
            rig.source.end_watches(ConnectionLostError("cut"))
            await settle(FIRST_BACKOFF_S)
        assert rig.asked == (["", ""], ["0"], ["11"])
        rig.source.end_watches(expired())
        await settle(LONG_PAUSE_S)
    assert rig.asked == (["", "", "11"], ["0"], ["11"])


async def test_losses_count_as_two_only_when_nothing_was_complete_between_them() -> None:
    """RF-28: one stream is lost, one is complete, and one is lost again: each time the next request is a stream."""
    rig = Rig(pod("a"))
    lost: list[WatchEvent[Pod]] = [Added(pod("a"))]
    rig.source.initial_events = [lost, [Added(pod("a")), bookmark("11")], lost]
    async with running(rig.reflector.run()):
        for end in (ConnectionLostError("cut"), expired(), ConnectionLostError("cut")):
            await settle()
            rig.source.end_watches(end)
            await settle(LONG_PAUSE_S)
    assert rig.asked == (["", "", "11", "11"], [], [])


async def test_after_two_losses_and_a_list_the_next_loss_counts_as_the_first() -> None:
    """RF-28: the next request is a stream again."""
    rig = Rig(pod("a"))
    rig.source.initial_events = [[Added(pod("a"))] for _ in range(3)]
    async with running(rig.reflector.run()):
        for end in (ConnectionLostError("cut"), ConnectionLostError("cut"), expired(), ConnectionLostError("cut")):
            await settle()
            rig.source.end_watches(end)
            await settle(LONG_PAUSE_S)
    assert rig.asked == (["", "", "11", "11"], ["0"], ["11"])


async def test_after_a_loss_and_a_refusal_the_next_loss_counts_as_the_first() -> None:
    """RF-28: the refusal has led to a list, so nothing is missing any more."""
    rig = Rig(pod("a"))
    rig.source.initial_events = [[Added(pod("a"))], [Added(pod("a"))]]
    async with settled(rig.reflector.run()):
        rig.source.stream_errors = [status_error(500, "Boom")]
        for end in (ConnectionLostError("cut"), expired(), ConnectionLostError("cut")):
            rig.source.end_watches(end)
            await settle(LONG_PAUSE_S)
    assert rig.asked == (["", "", "11", "11"], ["0"], ["11"])


@pytest.mark.parametrize(
    "error",
    [status_error(500, "Boom"), ServerError(Status(code=503)), ConnectionLostError("reset"), None],
    ids=["500", "503", "reset on opening", "closed at once"],
)
async def test_any_other_failure_falls_back_to_a_list_for_this_time(error: ApiError | None) -> None:
    """RF-28, ...TestWatchList "returning any other error ... forces fallback" """
    rig = Rig(pod("a"))
    if error is None:
        rig.source.initial_events = [None]
    else:
        rig.source.stream_errors = [error]
    async with settled(rig.reflector.run()):
        assert rig.asked == ([""], ["0"], ["11"]), "at once"
        rig.source.end_watches(expired())
        await settle(FIRST_BACKOFF_S)
    assert rig.asked == (["", "11"], ["0"], ["11"])
    assert rig.errors == []


async def test_a_server_without_streaming_lists_is_asked_once_and_listed_from_then_on() -> None:
    """RF-28, SV-09, ...TestWatchList "... when a server doesn't support streaming" """
    rig = Rig(pod("a"), streaming=False)
    with capture_logs() as logs:
        async with settled(rig.reflector.run()):
            rig.source.end_watches(expired())
            await settle(FIRST_BACKOFF_S)
    assert rig.asked == ([""], ["0", "11"], ["11", "11"])
    assert [log["log_level"] for log in logs if log["event"] == "streaming_list_not_served"] == ["debug"]
    assert [log for log in logs if log["log_level"] != "debug"] == []
    assert rig.errors == []


async def test_streams_can_be_turned_off() -> None:
    """RF-28, reflector_watchlist_test.go:TestNewReflectorWithDisablementWatchList"""
    rig = Rig(pod("a"), options=ReflectorOptions(stream_lists=False))
    async with running(rig.reflector.run()):
        await settle()
    assert rig.asked == ([], ["0"], ["11"])


async def test_a_late_bookmark_is_warned_of_every_ten_seconds_while_nothing_comes() -> None:
    """RF-28, reflector_watchlist_test.go:TestInitialEventsEndBookmarkTicker"""
    rig = Rig()
    rig.source.initial_events = [[]]
    with capture_logs() as logs:
        async with running(rig.reflector.run()):
            await asyncio.sleep(25.0)
            rig.source.send(Added(pod("a")))
            await asyncio.sleep(20.5)
            rig.source.send(bookmark("15"))
            await asyncio.sleep(60.0)
    late = [log for log in logs if log["event"] == "initial_events_late"]
    assert [(log["seconds"], log["events"]) for log in late] == [(10, 0), (20, 0), (40, 1)]


async def test_a_stream_that_is_left_warns_of_nothing_any_more() -> None:
    """RF-28: the timer ends with the stream"""
    rig = Rig()
    rig.source.initial_events = [[]]
    with capture_logs() as logs:
        async with running(rig.reflector.run()):
            await settle()
        await asyncio.sleep(30.0)
    assert logs == []


async def test_what_cannot_be_decoded_is_reported_and_does_not_look_deleted() -> None:
    """RF-12, RF-27, B01"""
    rig = Rig()
    events: list[WatchEvent[Pod]] = [
        Added(pod("a")),
        Skipped(TypeError("bad"), "ns/bad", "12"),
        Skipped(TypeError("bad"), "ns/gone", "13"),
        Skipped(TypeError("bad"), "ns/gone", "14", deleted=True),
        bookmark("15"),
    ]
    rig.source.initial_events = [events]
    with capture_logs() as logs:
        async with running(rig.reflector.run()):
            await settle()
    assert rig.sink.deltas[0].unreadable == frozenset({"ns/bad"})  # type: ignore[union-attr]  # a ReplacedAll
    assert [(log["event"], log["key"]) for log in logs] == [
        ("object_skipped", "ns/bad"), ("object_skipped", "ns/gone"), ("object_skipped", "ns/gone"),
    ]  # fmt: skip


async def test_cancelling_closes_the_stream_that_is_not_complete_yet() -> None:
    """RF-13, RF-27"""
    rig = Rig()
    rig.source.initial_events = [[]]
    async with settled(rig.reflector.run()):
        assert rig.source.open_watches == 1
    assert rig.source.open_watches == 0


@pytest.mark.parametrize("cut", range(8))
async def test_wherever_a_stream_is_cut_the_cache_and_the_handlers_end_with_the_truth(cut: int) -> None:
    """RF-27, RF-28, SI-01: a cut after every event of the beginning, its bookmark, and what follows"""
    source = FakeSource(pod("a"), pod("b"), pod("c"), streaming=True)
    informer = SharedIndexInformer(source, PODS, random=lambda: 0.0)
    held: dict[str, str] = {}

    def put(item: Pod) -> None:
        held[meta_key(item.metadata)] = item.metadata.resource_version

    def remove(item: Pod | Tombstone[Pod]) -> None:
        del held[key_of(item)]

    informer.add_event_handler(
        EventHandlerFuncs(on_add=lambda item, _: put(item), on_update=lambda _, new: put(new), on_delete=remove)
    )
    events: list[WatchEvent[Pod]] = [*map(Added, source.objects()), bookmark(str(source.version))]
    changes: list[WatchEvent[Pod]] = [Added(source.add(pod("d"))), Modified(source.modify(pod("a", node="n2")))]
    source.initial_events = [(events + changes)[:cut]]
    source.delete("ns/b")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informer.run())
        await settle()
        source.end_watches(ConnectionLostError("cut"))
        await settle(LONG_PAUSE_S)
        truth = {meta_key(item.metadata): item.metadata.resource_version for item in source.objects()}
        assert {key: item.metadata.resource_version for key, item in informer.indexer.items()} == truth
        assert held == truth
        assert informer.has_synced
        informer.stop()


def test_the_beginning_of_a_stream_ends_at_its_bookmark() -> None:
    """RF-27, reflector_watchlist_test.go:TestWatchListResourceVersion: three cases, as upstream has them"""
    initial = InitialEvents[Pod]()
    batches: list[list[WatchEvent[Pod]]] = [[], [Added(pod("p1"))], [bookmark("2"), Added(pod("p2"))]]
    assert [(initial.take(batch), initial.version) for batch in batches] == [(0, None), (1, None), (1, "2")]
    assert len(initial) == 1


def test_the_codec_reads_the_bookmark_as_the_server_writes_it() -> None:
    """RF-27: lines of 1.36.3, of a streaming list and of an idle minute"""
    codec = Codec(PODS, Pod)
    end = (
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"253",'
        b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
    )
    assert codec.decode_event(end) == Bookmark("253", ends_initial_events=True)
    assert codec.decode_event(end.replace(b'"true"', b'"false"')) == Bookmark("253")
    idle = b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"260"}}}'
    assert codec.decode_event(idle) == Bookmark("260")


REFUSAL_OF_1_20 = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \\"\\" is '
    b"invalid: "
    b"[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch, resourceVersionMatch: Forbidden: "
    b'resourceVersionMatch is forbidden unless resourceVersion is provided]","reason":"Invalid","code":422}\n'
)


def test_the_refusal_of_an_old_server_is_the_error_that_the_reflector_waits_for() -> None:
    """RF-28, SV-09: the bytes of 1.20.2"""
    assert type(error_from_response(422, REFUSAL_OF_1_20, request="")) is type(no_streaming_lists())


def line(kind: str, name: str, version: int) -> bytes:
    """An event as it stands on the wire."""
    item = {"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


async def test_an_idle_collection_of_an_old_server_costs_one_request_in_eighty_seconds_and_no_list() -> None:
    """RF-14, RF-29, M8: before `IDLE_BOOKMARKS` a server sends nothing while nothing happens, however long that is"""
    silence: tuple[bytes | float | Exception, ...] = (80.0, RequestTimeoutError("silence"))
    page = b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}'
    transport = FakeTransport(
        FakeResponse(422, REFUSAL_OF_1_20), FakeResponse(200, page), *[FakeResponse(200, silence)] * 46
    )
    informer = SharedIndexInformer(ListWatch(RestClient(transport), Codec(PODS, Pod)), PODS, random=lambda: 0.0)
    failures: list[ApiError] = []
    informer.set_watch_error_handler(failures.append)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informer.run())
        await asyncio.sleep(3599.0)
        informer.stop()
    watches = [request.query for request in transport.requests[2:]]
    assert len(watches) == 45
    assert {query["resourceVersion"] for query in watches} == {"9"}
    assert all(query["watch"] == "true" for query in watches)
    assert failures == []


async def test_a_head_that_a_proxy_keeps_back_until_something_happens_costs_no_list_either() -> None:
    """RF-21, RF-29, M8: reported each time, since it may as well be a server that hangs"""
    rig = Rig(pod("a"), options=ReflectorOptions(stream_lists=False))
    late = RequestTimeoutError("timed out waiting for the response")
    rig.source.watch_errors = [late, late]
    async with running(rig.reflector.run()):
        await asyncio.sleep(LONG_PAUSE_S)
    assert rig.asked == ([], ["0"], ["11", "11", "11"])
    assert rig.errors == [late, late]
