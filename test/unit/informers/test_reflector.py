"""The reflector against a fake source, on virtual time. Its sink records; stores and handlers are other tests' business.

Most tests play a failure and compare everything that was asked and reported, each with its second: `0.8 list 11`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.objects import Pod, changed
from fakes.source import FakeSource, expired, pod, running, settle, status_error
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client.errors import (
    ApiError,
    ConnectError,
    CredentialsError,
    DecodeError,
    TLSError,
)
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, ReplacedAll, Vanished
from tfjob_operator.informers.reflector import ReflectorState
from unit.informers.rig import BOOM, CUT, FIRST_BACKOFF_S, SILENCE, Rig, Step, play, refused, too_large, too_many

FORBIDDEN = status_error(403, "Forbidden")
GARBAGE = DecodeError("not a list of pods: kind 'Table'")


def add_b(source: FakeSource[Pod]) -> None:
    """A change that the open watch brings."""
    source.add(pod("b"))


def lose_a(source: FakeSource[Pod]) -> None:
    """A deletion that no watch brings."""
    source.delete("ns/a", notify=False)


def compact(source: FakeSource[Pod]) -> None:
    """Begin a gap: no watch brings what happens, and the next list at a known version is refused as well."""
    source.add(pod("b"), notify=False)
    source.compact()
    source.list_errors = [expired()]


@pytest.mark.parametrize(
    ("streaming", "transcript"),
    [(False, "0 list 0; 0 watch 12"), (True, "0 stream newest")],
    ids=["listed", "streamed"],
)
async def test_a_collection_is_handed_over_and_then_its_changes_as_they_were_decoded(
    streaming: bool, transcript: str
) -> None:
    """RF-01, RF-02, RF-10, RF-27, RF-30: a bookmark moves the version, too. The decoder is the transform

    reflector_test.go:TestReflectorListAndWatch, TestReflectorWatchHandler, TestReflectorRespectStoreTransformer,
    reflector_watchlist_test.go:TestWatchList "... synced after receiving a bookmark event", and recordings of 1.36
    """
    rig = Rig(pod("a"), pod("b"), streaming=streaming)
    whole = [*rig.source.objects()]
    async with rig.running():
        assert rig.names == ["ReplacedAll"]
        assert rig.reflector.state is ReflectorState.WATCHING
        changes = [rig.source.add(pod("c")), rig.source.modify(pod("a")), rig.source.delete("ns/b")]
        rig.source.bookmark()
        await settle()
    assert rig.deltas[0] == ReplacedAll(whole, "12")
    assert rig.names[1:] == ["Added", "Modified", "Deleted", "Bookmark"]
    objects = [delta.object for delta in rig.deltas if isinstance(delta, (Added, Modified, Deleted))]
    assert [item is change for item, change in zip(objects, changes, strict=True)] == [True] * 3
    assert "; ".join(rig.source.transcript) == transcript
    assert rig.reflector.resource_version == "16"


@pytest.mark.parametrize(
    ("streaming", "transcript"),
    [(False, "0 list 0; 0.8 list 0; 0.8 watch 11"), (True, "0 stream newest; 0.8 stream newest")],
    ids=["listed", "streamed"],
)
async def test_a_collection_that_the_sink_refused_does_not_move_the_version(streaming: bool, transcript: str) -> None:
    """RF-01, RF-27, reflector_test.go:TestReflectorListAndWatchWithErrors"""
    rig = Rig(pod("a"), streaming=streaming)
    rig.refuse = RuntimeError("no")
    async with rig.running():
        assert rig.reflector.resource_version == ""
        await settle(FIRST_BACKOFF_S)
    assert "; ".join(rig.source.transcript) == transcript
    assert rig.reflector.resource_version == "11"


MAINTENANCE = status_error(503, "Maintenance", retry_after_s=1_000_000.0)
EXPIRED = "0 reported ExpiredError"
LISTS: dict[str, tuple[list[Exception], list[Step], str]] = {
    "expired": ([expired()], [5.0, BOOM], "0 list 0; 0 list newest; 0 watch 11; 5.8 list 11; 5.8 watch 11"),
    "too large": ([too_large()], [5.0, BOOM], "0 list 0; 0 list newest; 0 watch 11; 5.8 list 11; 5.8 watch 11"),
    "the newest expired too": (
        [expired(), expired(), BOOM], [],
        f"0 list 0; 0 list newest; {EXPIRED}; 0.8 list newest; 0.8 reported StatusError; 2.4 list newest; 2.4 watch 11",
    ),
    "no list": ([GARBAGE], [], "0 list 0; 0 reported DecodeError; 0.8 list 0; 0.8 watch 11"),
    "a crash": ([ZeroDivisionError()], [], "0 list 0; 0.8 list 0; 0.8 watch 11"),
    "then a watch, with the same back-off": (
        [BOOM], [lambda s: s.watch_errors.append(too_many())],
        "0 list 0; 0 reported StatusError; 0.8 list 0; 0.8 watch 11; 2.4 watch 11",
    ),
    "the maintenance page of a load balancer, which asks for days": (
        [MAINTENANCE], [lambda s: s.watch_errors.append(too_many(1_000_000.0)), 60.0],
        "0 list 0; 0 reported StatusError; 30 list 0; 30 watch 11; 60 watch 11",
    ),
    "a time to come back counts once": (
        [too_many(20.0), BOOM], [20.0],
        "0 list 0; 0 reported TooManyRequestsError; 20 list 0; 20 reported StatusError; 21.6 list 0; 21.6 watch 11",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("list_errors", "steps", "transcript"), LISTS.values(), ids=LISTS)
async def test_a_list_that_fails_is_repeated(list_errors: list[Exception], steps: list[Step], transcript: str) -> None:
    """RF-04, RF-05, RF-12, RF-17, RF-22, RF-24, RF-25: a version that the server refuses is answered at once by a quorum list,
    and only once; each other failure is reported before a pause, but a crash is logged.

    reflector_test.go:TestReflectorFullListIfExpired, TestReflectorFullListIfTooLarge, TestReflectorExpiredExactResourceVersion,
    TestIsUnsupportedTableObject, TestBackoffOnTooManyRequests, controller_test.go:TestPanicPropagated
    """
    assert await Rig(pod("a"), list_errors=list_errors).play(*steps) == transcript


STREAMS_END: dict[str, tuple[list[Step], str]] = {
    # RF-14, RF-29: resumed at once from the last version, without a list and without a report
    "normally": ([5.0, None], "5 watch 11"),
    "after a second": ([1.0, None], "1 watch 11"),
    "at once, after a change": ([add_b, None], "0 watch 12"),
    "cut": ([80.0, CUT], "80 watch 11"),
    "silent": ([80.0, SILENCE], "80 watch 11"),
    # RF-15
    "at once": ([None], "0.8 list 11; 0.8 watch 11"),
    # RF-03, RF-06, RF-10, RF-16: the list asks for nothing older than what was seen, and what came before the error counts
    "expired": ([5.0, expired()], "5.8 list 11; 5.8 watch 11"),
    "expired after a change": ([add_b, expired()], "0.8 list 12; 0.8 watch 12"),
    "expired, and the list too": ([5.0, compact, expired()], "5.8 list 11; 5.8 list newest; 5.8 watch 12"),
    "an error after a bookmark": ([add_b, FakeSource.bookmark, 5.0, BOOM], "5.8 list 13; 5.8 watch 13"),
    # RF-18
    "busy": ([5.0, too_many()], "5.8 watch 11"),
    "busy, with a time to come back": ([5.0, too_many(), 5.0, too_many(20.0), 20.0], "5.8 watch 11; 30 watch 11"),
    # RF-20
    "internal error": ([5.0, status_error(500, "InternalError")], "5.8 list 11; 5.8 watch 11"),
    "corrupt object": ([5.0, lose_a, status_error(500, "StoreReadError")], "5.8 list 11; 5.8 watch 12"),
    "forbidden": ([5.0, FORBIDDEN], "5.8 list 11; 5.8 watch 11"),
    "garbage": ([5.0, GARBAGE], "5.8 list 11; 5.8 watch 11"),
}


@pytest.mark.parametrize(("steps", "transcript"), STREAMS_END.values(), ids=STREAMS_END)
async def test_a_stream_that_ends_is_followed_by_a_watch_or_a_list(steps: list[Step], transcript: str) -> None:
    """RF-03, RF-06, RF-10, RF-14, RF-15, RF-16, RF-18, RF-20, RF-29

    reflector_test.go:TestReflectorListAndWatch, TestReflectorResyncWithResourceVersion, TestReflectorResourceVersionUpdate,
    TestReflectorHandleWatchResultChanClosedBefore, TestReflectorExpiredExactResourceVersion, TestBackoffOnTooManyRequests,
    TestRetryInternalError, TestReflectorReplacesStoreOnUnsafeDelete, rest/connection_test.go:TestReconnectBrokenTCP_HTTP1
    """
    assert await Rig(pod("a")).play(*steps) == f"0 list 0; 0 watch 11; {transcript}"


def reported(error: ApiError) -> str:
    """What is asked and reported when a list would fare no better than the two watches that failed so."""
    name = type(error).__name__
    return f"0 reported {name}; 0.8 watch 11; 0.8 reported {name}; 2.4 watch 11"


NO_WAY, NO_CREDENTIALS = ConnectError("Name or service not known"), CredentialsError("the plugin failed")
WATCHES: dict[str, tuple[list[ApiError], list[Step], str]] = {
    # RF-17: without a list and without a report
    "connection refused": ([refused(), refused()], [], "0.8 watch 11; 2.4 watch 11"),
    "busy": ([too_many(), too_many()], [], "0.8 watch 11; 2.4 watch 11"),
    "a time to come back counts once": (
        [too_many(20.0)], [25.0, expired()], "20 watch 11; 26.6 list 11; 26.6 watch 11",
    ),
    # RF-21, RF-24, RF-29: only a refused connection is a matter of seconds; a cache must not be stale without a report
    "no way": ([NO_WAY, NO_WAY], [], reported(NO_WAY)),
    "no credentials": ([NO_CREDENTIALS, NO_CREDENTIALS], [], reported(NO_CREDENTIALS)),
    "a proxy holds the head back": ([SILENCE, SILENCE], [], reported(SILENCE)),
    # RF-21: a list next
    "forbidden": ([FORBIDDEN], [], "0 reported StatusError; 0.8 list 11; 0.8 watch 11"),
    "expired": ([expired()], [], "0 reported ExpiredError; 0.8 list 11; 0.8 watch 11"),
    "tls": ([TLSError("bad certificate")], [], "0 reported TLSError; 0.8 list 11; 0.8 watch 11"),
    "cut": ([CUT], [], "0 reported ConnectionLostError; 0.8 list 11; 0.8 watch 11"),
}  # fmt: skip


@pytest.mark.parametrize(("watch_errors", "steps", "transcript"), WATCHES.values(), ids=WATCHES)
async def test_a_watch_that_cannot_be_opened_is_tried_again_after_a_pause(
    watch_errors: list[ApiError], steps: list[Step], transcript: str
) -> None:
    """RF-17, RF-21, RF-24, RF-29, M8

    reflector_test.go:TestReflectorListAndWatchInitConnBackoff, TestNoRelistOnTooManyRequests,
    TestReflectorListAndWatchWithErrors
    """
    rig = Rig(pod("a"), watch_errors=watch_errors)
    assert await rig.play(*steps) == f"0 list 0; 0 watch 11; {transcript}"


PAGES: dict[str, tuple[int, list[Step], list[tuple[str, int]]]] = {
    "the first list and a quorum list": (1, [5.0, compact, BOOM], [("0", 500), ("11", 0), ("", 500)]),
    "all lists, without a watch cache": (501, [5.0, BOOM], [("0", 500), ("", 500), ("511", 500), ("", 500)]),
    "no list at a known version, after a quorum list in pages": (
        500,
        [5.0, compact, BOOM, 60.0, BOOM],
        [("0", 500), ("510", 0), ("", 500), ("", 500), ("511", 0)],
    ),
}


@pytest.mark.parametrize(("count", "steps", "asked"), PAGES.values(), ids=PAGES)
async def test_pages_are_asked_for_where_the_watch_cache_does_not_answer_whole(
    count: int, steps: list[Step], asked: list[tuple[str, int]]
) -> None:
    """RF-07

    reflector_test.go:TestReflectorNotPaginatingNotConsistentReads, TestReflectorWatchListPageSize,
    TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled
    """
    rig = Rig(*[pod(f"p{number}") for number in range(count)], paging={1: False, 500: None, 501: True}[count])
    await rig.play(*steps)
    assert [(options.resource_version, options.limit) for options in rig.source.lists] == asked


@pytest.mark.parametrize(("random", "timeout_s"), [(0.0, 300), (0.999999, 599)])
async def test_a_watch_asks_for_bookmarks_and_for_an_end_between_five_and_ten_minutes(
    random: float, timeout_s: int
) -> None:
    """RF-09, reflector_test.go:TestWatchTimeout"""
    rig = Rig(random=random)
    async with rig.running():
        assert (rig.source.watches[0].allow_bookmarks, rig.source.watches[0].timeout_s) == (True, timeout_s)


async def test_what_exists_when_a_watch_begins_at_no_version_does_not_move_the_version() -> None:
    """RF-11, reflector_watchlist_test.go:TestWatchListResourceVersion"""
    rig = Rig(version=0)  # the list answers "0", as an aggregated server without versions may
    async with rig.running():
        rig.source.add(pod("new"), notify=False)
        rig.source.send(*[Added(item) for item in rig.source.objects()], Added(rig.source.add(pod("b"), notify=False)))
        await settle()
        assert rig.reflector.resource_version == "0"
        rig.source.modify(pod("new"))
        await settle()
        assert rig.reflector.resource_version == "3"
        rig.source.add(pod("newest"))
        await settle()
    assert rig.reflector.resource_version == "4"


async def test_a_bookmark_ends_what_existed_when_a_watch_began_and_moves_the_version() -> None:
    """RF-11: what is added after it is new, and a watch resumes after it."""
    rig = Rig(version=0)
    async with rig.running():
        old = rig.source.add(pod("old"), notify=False)
        rig.source.send(Added(old), Bookmark("7"), Added(pod("new")))
        await settle()
        assert rig.reflector.resource_version == "7"
        rig.source.version = 8
        rig.source.add(pod("newest"))
        await settle()
    assert rig.reflector.resource_version == "9"


async def test_an_object_that_cannot_be_decoded_is_logged_and_the_stream_goes_on() -> None:
    """RF-12, B01, reflector_test.go:TestReflectorWatchHandler: of a deletion the key is enough."""
    rig = Rig(pod("a"), skipped=[Skipped(TypeError("bad"), "ns/listed")])
    with capture_logs() as logs:
        async with rig.running():
            rig.source.send(Skipped(TypeError("bad"), "ns/watched"), Added(pod("b")))
            await settle()
            assert rig.reflector.resource_version == "11", "an object without a version moves nothing"
            rig.source.send(
                Skipped(TypeError("bad"), "ns/poison", "12"), Skipped(TypeError(), "ns/a", "13", deleted=True)
            )
            await settle()
            assert rig.reflector.resource_version == "13"
            rig.source.send(Bookmark("14"), Added(changed(pod("c"), metadata__resource_version="15")))
            await settle()
            assert rig.reflector.resource_version == "15", "an addition beside another event moves it"
            assert len(rig.source.watches) == rig.source.open_watches == 1
    assert rig.deltas[1:5] == [Added(pod("b")), Bookmark("12"), Vanished("ns/a"), Bookmark("13")]
    assert [(log["event"], log["key"], log["log_level"]) for log in logs] == [
        ("object_skipped", f"ns/{name}", "warning") for name in ("listed", "watched", "poison", "a")
    ]


@pytest.mark.parametrize(
    ("given", "state", "watches"),
    [
        pytest.param({"hold": asyncio.Event()}, ReflectorState.LISTING, 0, id="it lists"),
        pytest.param({}, ReflectorState.WATCHING, 1, id="a stream is read"),
        pytest.param({"list_errors": [BOOM]}, ReflectorState.LIST_LATER, 0, id="it backs off"),
        pytest.param(
            {"streaming": True, "initial_events": [[]]}, ReflectorState.STREAMING, 1, id="a collection is streamed"
        ),
    ],
)
async def test_cancelling_ends_it_and_closes_the_stream_while(
    given: dict[str, Any], state: ReflectorState, watches: int
) -> None:
    """RF-13, RF-27

    reflector_test.go:TestReflectorWatchStoppedBefore, TestReflectorStopWatch, TestCloseWatchChannelOnError, TestRunUntil
    """
    rig = Rig(**given)
    async with rig.running():
        assert (rig.reflector.state, rig.source.open_watches) == (state, watches)
    assert rig.source.open_watches == 0
    assert VirtualClock().monotonic() < FIRST_BACKOFF_S


async def test_how_long_no_watch_has_been_open_is_known() -> None:
    """From the start on; a collection that the server does not have is not waited for."""
    rig = Rig(pod("a"), list_errors=[status_error(503, "Unavailable", retry_after_s=20.0)])

    async def after(*seconds: float) -> Sequence[float]:
        found = []
        for each in seconds:
            await asyncio.sleep(each)
            found.append(round(rig.reflector.disconnected_s, 1))
        return found

    async with running(rig.reflector.run()):
        assert await after(15.0, 10.0) == [15.0, 0.0]
        rig.source.watch_errors = [too_many(retry_after_s=20.0)]
        rig.source.end_watches()
        assert await after(15.0, 10.0) == [15.0, 0.0]
        rig.source.watch_errors = [status_error(404, "NotFound")]
        rig.source.list_errors = [status_error(404, "NotFound")] * 20
        rig.source.end_watches()
        assert await after(120.0) == [0.0]


async def test_repeated_failures_double_the_pause_up_to_thirty_seconds_until_a_quiet_time() -> None:
    """RF-22, RF-23, apimachinery wait_test.go:TestBackoff_Step, TestExponentialBackoffManagerGetNextBackoff"""
    rig = Rig(list_errors=[BOOM] * 8)
    await rig.play(300.0, BOOM)
    lists = [line.removesuffix(" list 0") for line in rig.source.transcript if " list " in line]
    assert lists == ["0", "0.8", "2.4", "5.6", "12", "24.8", "50.4", "80.4", "110.4", "300.8 list 10"]


async def test_a_crash_is_logged_with_its_traceback_and_a_hook_that_fails_is_one() -> None:
    """RF-24, RF-25, controller_test.go:TestPanicPropagated. In place of the re-raised panic: nothing is lost, and it goes on"""
    crash = ZeroDivisionError("a bug of ours")
    rig = Rig(pod("a"), list_errors=[crash, BOOM])

    def fail(_: ApiError) -> None:
        raise crash

    rig.reflector.on_error = fail
    with capture_logs() as logs:
        await rig.play()
    crashes = [(log["event"], log["exc_info"]) for log in logs if log["log_level"] == "error"]
    assert crashes == [("reflector_crashed", crash)] * 2
    assert rig.names == ["ReplacedAll"]


@pytest.mark.parametrize(
    ("given", "steps", "event", "level"),
    [
        pytest.param({"list_errors": [FORBIDDEN]}, [], "list_and_watch_failed", "warning", id="a forbidden list"),
        pytest.param({"list_errors": [CUT]}, [], "list_and_watch_failed", "debug", id="a list that is cut"),
        pytest.param({"stream_lists": True}, [], "streaming_list_not_served", "debug", id="an old server"),
        pytest.param({}, [expired()], "watch_expired", "debug", id="an expired watch"),
        pytest.param({}, [None], "watch_very_short", "warning", id="a stream that ends at once"),
        pytest.param({}, [GARBAGE], "watch_failed", "warning", id="a stream of garbage"),
    ],
)
async def test_only_a_failure_that_is_not_a_matter_of_course_is_a_warning(
    given: dict[str, Any], steps: list[Step], event: str, level: str
) -> None:
    """RF-15, RF-16, RF-20, RF-24, RF-28, shared_informer_test.go:TestSharedInformerErrorHandling"""
    rig = Rig(pod("a"), **given)
    with capture_logs() as logs:
        async with rig.running():
            await play(rig.source, *steps)
    assert [(log["event"], log["log_level"]) for log in logs] == [(event, level)]
