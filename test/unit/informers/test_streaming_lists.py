"""Streaming lists: the reflector against a fake source that has them, on virtual time; and their refusal by an old server."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.objects import Pod
from fakes.source import FakeSource, expired, pod, settle
from tfjob_operator.api.client.errors import (
    ApiError,
    ConnectError,
    NotFoundError,
    ServerError,
    Status,
    TLSError,
)
from tfjob_operator.informers.codec import Skipped, WatchEvent
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, ReplacedAll
from tfjob_operator.informers.reflector import ReflectorState
from unit.informers.rig import BOOM, CUT, SILENCE, Rig, Step, refused, too_large, too_many

NOT_FOUND = NotFoundError(Status(code=404))


def bookmark(version: str) -> Bookmark:
    """The bookmark that ends the beginning of a stream."""
    return Bookmark(version, ends_initial_events=True)


async def test_nothing_is_handed_on_before_the_bookmark() -> None:
    """RF-27, reflector_watchlist_test.go:TestWatchList "the reflector won't be synced ..." """
    rig = Rig(streaming=True, initial_events=[[Added(pod("a"))]])
    async with rig.running():
        assert rig.source.streams[0].query() == {
            "allowWatchBookmarks": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "300",
        }  # fmt: skip
        await asyncio.sleep(9.0)
        assert rig.deltas == []
        assert (rig.reflector.state, rig.reflector.resource_version) == (ReflectorState.STREAMING, "")
        assert rig.reflector.disconnected_s == pytest.approx(9.0, abs=0.01)
        rig.source.send(bookmark("15"))
        await settle()
        assert rig.reflector.disconnected_s == 0.0
    assert rig.deltas == [ReplacedAll([pod("a")], "15")]
    assert rig.reflector.resource_version == "15"


async def test_what_changes_while_the_collection_streams_is_part_of_it() -> None:
    """RF-27, RF-30, reflector_watchlist_test.go:TestWatchList "check if Updates and Deletes events are propagated ...",
    TestWatchListResourceVersion, reflector_test.go:TestReflectorRespectStoreTransformer: each object is held as it was decoded
    """
    changed = pod("a", node="n2")
    first: list[WatchEvent[Pod]] = [
        Added(pod("a")),
        Added(pod("b")),
        Modified(changed),
        Added(pod("c")),
        Deleted(pod("c")),
    ]
    rig = Rig(streaming=True, initial_events=[[*first, bookmark("15"), Added(pod("d")), Modified(pod("b"))]])
    async with rig.running():
        assert rig.names == ["ReplacedAll", "Added", "Modified"], "what came after the bookmark, in the same batch"
    [whole, *_] = rig.deltas
    assert isinstance(whole, ReplacedAll)
    assert whole == ReplacedAll([changed, pod("b")], "15")
    assert whole.objects[0] is changed


def on_opening(error: ApiError) -> Callable[[FakeSource[Pod]], None]:
    """Refuse the next stream."""
    return lambda source: source.stream_errors.append(error)


def in_the_stream(error: ApiError) -> Callable[[FakeSource[Pod]], None]:
    """End the next stream before it brings anything."""
    return lambda source: source.initial_events.append(error)


def add_b(source: FakeSource[Pod]) -> None:
    """A change that the open stream brings."""
    source.add(pod("b"))


AGAIN = "5.8 stream 11; 5.8 stream newest; 16.6 stream 11"
COMPLETE: dict[str, tuple[list[Step], str]] = {
    # RF-14, RF-16, RF-20: as after any watch, and nothing older than what was seen
    "and ends": ([add_b, None], "0 watch 12"),
    "and expires": ([add_b, 5.0, expired()], "5.8 stream 12"),
    "and fails": ([add_b, 5.0, BOOM], "5.8 stream 12"),
    # RF-04: the newest at once, and back to normal after the success
    "and the next is expired": ([in_the_stream(expired()), 5.0, BOOM, 10.0, BOOM], AGAIN),
    "and the next is too large": ([in_the_stream(too_large()), 5.0, BOOM, 10.0, BOOM], AGAIN),
    "and the next is refused as expired": ([on_opening(expired()), 5.0, BOOM, 10.0, BOOM], AGAIN),
    "and the next is refused as too large": ([on_opening(too_large()), 5.0, BOOM, 10.0, BOOM], AGAIN),
}


@pytest.mark.parametrize(("steps", "transcript"), COMPLETE.values(), ids=COMPLETE)
async def test_a_stream_is_complete(steps: list[Step], transcript: str) -> None:
    """RF-04, RF-14, RF-16, RF-20, RF-27, RF-28

    reflector_watchlist_test.go:TestWatchList "stopping a watcher after synchronization ...", "expiring an established watcher"
    """
    assert await Rig(pod("a"), streaming=True).play(*steps) == f"0 stream newest; {transcript}"


def reported(error: ApiError) -> str:
    """What follows a stream that is reported, since a list would fare no better."""
    return f"0 reported {type(error).__name__}; 0.8 stream newest"


LIST_INSTEAD = "0 list 0; 0 watch 11; 5.8 stream 11"
LOST = [Added(pod("a"))]
NO_WAY, TLS = ConnectError("Name or service not known"), TLSError("bad certificate")
INCOMPLETE: dict[str, tuple[dict[str, Any], list[Step], str]] = {
    # RF-17, RF-18, RF-21: reported like the failure of a list; client-go says nothing while a server is away
    "connection refused": (
        {"stream_errors": [refused()] * 2}, [],
        "0 reported ConnectError; 0.8 stream newest; 0.8 reported ConnectError; 2.4 stream newest",
    ),
    "busy": ({"stream_errors": [too_many()]}, [], reported(too_many())),
    "busy, with a time to come back": (
        {"initial_events": [too_many(20.0)]}, [20.0], "0 reported TooManyRequestsError; 20 stream newest",
    ),
    "no such resource": ({"stream_errors": [NOT_FOUND]}, [], reported(NOT_FOUND)),
    "no way": ({"stream_errors": [NO_WAY]}, [], reported(NO_WAY)),
    "tls": ({"stream_errors": [TLS]}, [], reported(TLS)),
    # begun anew, with nothing kept
    "lost": ({"initial_events": [[Added(pod("gone")), *LOST]]}, [None], "0.8 stream newest"),
    "lost, cut": ({"initial_events": [[Added(pod("gone")), *LOST]]}, [CUT], "0.8 stream newest"),
    "lost, silent": ({"initial_events": [[Added(pod("gone")), *LOST]]}, [SILENCE], "0.8 stream newest"),
    # a list for this time, where client-go would try for ever; two losses count only with nothing complete between them
    "lost twice": (
        {"initial_events": [LOST] * 2}, [CUT, 1.0, CUT, 5.0, expired()],
        "0.8 stream newest; 1 list 0; 1 watch 11; 7.6 stream 11",
    ),
    "lost, complete, lost": (
        {"initial_events": [LOST, [*LOST, bookmark("11")], LOST]}, [CUT, 5.0, expired(), 5.0, CUT],
        "0.8 stream newest; 6.6 stream 11; 13.2 stream 11",
    ),
    "lost twice, listed, lost": (
        {"initial_events": [LOST] * 3}, [CUT, 1.0, CUT, 5.0, expired(), 5.0, CUT],
        "0.8 stream newest; 1 list 0; 1 watch 11; 7.6 stream 11; 14.2 stream 11",
    ),
    "lost, refused, listed, lost": (
        {"initial_events": [LOST] * 2}, [on_opening(BOOM), CUT, 5.0, expired(), 5.0, CUT],
        "0.8 stream newest; 0.8 list 0; 0.8 watch 11; 6.6 stream 11; 13.2 stream 11",
    ),
    # a list at once for this time
    "500": ({"stream_errors": [BOOM]}, [5.0, expired()], LIST_INSTEAD),
    "503": ({"stream_errors": [ServerError(Status(code=503))]}, [5.0, expired()], LIST_INSTEAD),
    "reset on opening": ({"stream_errors": [CUT]}, [5.0, expired()], LIST_INSTEAD),
    "closed at once": ({"initial_events": [None]}, [5.0, expired()], LIST_INSTEAD),
    # a list at once, and no stream again: a server does not know them, does not heed them, or a proxy holds them back
    "not served": ({"streaming": False}, [5.0, expired()], "0 list 0; 0 watch 11; 5.8 list 11; 5.8 watch 11"),
    "an ordinary bookmark": (
        {"initial_events": [[*LOST, Bookmark("12")]]}, [5.0, expired()], "0 list 0; 0 watch 11; 5.8 list 11; 5.8 watch 11",
    ),
    "silent twice": (
        {"initial_events": [[], []]}, [5.0, SILENCE, 5.0, SILENCE, 5.0, expired()],
        "5.8 stream newest; 10 list 0; 10 watch 11; 16.6 list 11; 16.6 watch 11",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "steps", "transcript"), INCOMPLETE.values(), ids=INCOMPLETE)
async def test_a_stream_that_does_not_become_complete(
    given: dict[str, Any], steps: list[Step], transcript: str
) -> None:
    """RF-17, RF-18, RF-21, RF-24, RF-27, RF-28, SV-09

    reflector_watchlist_test.go:TestWatchList "checks if the reflector retries 429", "check if stopping a watcher before sync",
    "returning any other error ... forces fallback", "... when a server doesn't support streaming",
    "... checking the value of the initialEventsEnd annotation"
    """
    rig = Rig(pod("a"), **{"streaming": True, "stream_lists": True, **given})
    assert await rig.play(*steps) == f"0 stream newest; {transcript}"


async def test_a_server_that_calls_even_the_newest_version_expired_is_not_asked_in_a_hot_loop() -> None:
    """RF-22, RF-28"""
    rig = Rig(streaming=True, stream_errors=[expired()] * 100, list_errors=[expired()] * 100)
    async with rig.running():
        await asyncio.sleep(10.0)
    seen = [float(line.split()[0]) for line in rig.source.transcript if "reported" in line]
    assert [round(later - earlier, 3) for earlier, later in pairwise(seen)] == [0.8, 1.6, 3.2]


async def test_a_late_bookmark_is_warned_of_every_ten_seconds_while_nothing_comes() -> None:
    """RF-28, reflector_watchlist_test.go:TestInitialEventsEndBookmarkTicker"""
    rig = Rig(streaming=True, initial_events=[[]])
    with capture_logs() as logs:
        async with rig.running():
            await asyncio.sleep(25.0)
            rig.source.send(Added(pod("a")))
            await asyncio.sleep(20.5)
            rig.source.send(bookmark("15"))
            await asyncio.sleep(60.0)
    late = [log for log in logs if log["event"] == "initial_events_late"]
    assert [(log["seconds"], log["events"]) for log in late] == [(10, 0), (20, 0), (40, 1)]


async def test_a_stream_that_is_left_warns_of_nothing_any_more() -> None:
    """RF-28: the timer ends with the stream"""
    with capture_logs() as logs:
        async with Rig(streaming=True, initial_events=[[]]).running():
            pass
        await asyncio.sleep(30.0)
    assert logs == []


async def test_what_cannot_be_decoded_is_reported_and_does_not_look_deleted() -> None:
    """RF-12, RF-27, B01"""
    events: list[WatchEvent[Pod]] = [
        Added(pod("a")),
        Skipped(TypeError("bad"), "ns/bad", "12"),
        Skipped(TypeError("bad"), "ns/gone", "13"),
        Skipped(TypeError("bad"), "ns/gone", "14", deleted=True),
        bookmark("15"),
    ]
    rig = Rig(streaming=True, initial_events=[events])
    with capture_logs() as logs:
        async with rig.running():
            assert rig.deltas == [ReplacedAll([pod("a")], "15", frozenset({"ns/bad"}))]
    assert [(log["event"], log["key"]) for log in logs] == [
        ("object_skipped", f"ns/{name}") for name in ("bad", "gone", "gone")
    ]


@pytest.mark.parametrize("cut", range(8))
async def test_wherever_a_stream_is_cut_the_cache_ends_with_the_truth(cut: int) -> None:
    """RF-27, RF-28, SI-01: a cut after every event of the beginning, its bookmark, and what follows"""
    rig = Rig(pod("a"), pod("b"), pod("c"), streaming=True)
    source = rig.source
    events: list[WatchEvent[Pod]] = [*map(Added, source.objects()), bookmark(str(source.version))]
    events += [Added(source.add(pod("d"))), Modified(source.modify(pod("a", node="n2")))]
    source.initial_events = [events[:cut]]
    source.delete("ns/b")
    await rig.play(CUT)
