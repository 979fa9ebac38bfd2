"""The reflector against a fake source, on virtual time. Its sink records; stores and handlers are other tests' business."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from fakes.objects import Pod
from fakes.source import FakeSource, RecordingSink, expired, pod, running, settle, settled, status_error
from fakes.virtual_loop import FakeClock, VirtualClock
from tfjob_operator.api.client.errors import (
    ApiError,
    ConnectError,
    ConnectionLostError,
    CredentialsError,
    DecodeError,
    ExpiredError,
    RequestTimeoutError,
    ServerError,
    Status,
    TLSError,
    TooLargeResourceVersionError,
    TooManyRequestsError,
)
from tfjob_operator.api.client.exchange import LONGEST_RETRY_AFTER_S
from tfjob_operator.informers.codec import Skipped
from tfjob_operator.informers.deltas import Added, Bookmark, Deleted, Modified, ReplacedAll, Vanished
from tfjob_operator.informers.reflector import Reflector, ReflectorOptions, RetryWindow, State

FIRST_BACKOFF_S = 0.8  # without jitter: the random source of these tests always returns 0


class Rig:
    """A reflector between a fake source and a recording sink."""

    def __init__(self, *objects: Pod, options: ReflectorOptions | None = None, paging: bool = False) -> None:
        self.source = FakeSource(*objects, paging=paging)
        self.sink = RecordingSink()
        self.errors: list[Exception] = []
        lists = replace(options or ReflectorOptions(), stream_lists=False)
        self.reflector = Reflector(self.source, self.sink, name="pods", options=lists, random=lambda: 0.0)
        self.reflector.on_error = self.errors.append

    @property
    def listed_versions(self) -> list[str]:
        return [options.resource_version for options in self.source.lists]

    @property
    def watched_versions(self) -> list[str]:
        return [options.resource_version for options in self.source.watches]


def too_large() -> TooLargeResourceVersionError:
    """The 504 of a server that has not seen our version yet."""
    return TooLargeResourceVersionError(Status(code=504, reason="Timeout", message="Too large resource version: 9"))


def too_many(retry_after_s: float | None = None) -> TooManyRequestsError:
    """A 429."""
    return TooManyRequestsError(Status(code=429, reason="TooManyRequests"), retry_after_s=retry_after_s)


async def test_it_lists_hands_the_list_over_and_watches_from_the_version_of_the_list() -> None:
    """RF-01, RF-02, reflector_test.go:TestReflectorListAndWatch"""
    rig = Rig(pod("a"), pod("b"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("c"))
        rig.source.modify(pod("a"))
        rig.source.delete("ns/b")
        await settle()
    assert rig.listed_versions == ["0"]
    assert rig.watched_versions == ["12"]
    replaced = rig.sink.deltas[0]
    assert isinstance(replaced, ReplacedAll)
    assert [item.metadata.name for item in replaced.objects] == ["a", "b"]
    assert replaced.resource_version == "12"
    assert rig.sink.names() == ["ReplacedAll", "Added", "Modified", "Deleted"]
    assert rig.reflector.resource_version == "15"


async def test_a_list_that_the_sink_refused_does_not_move_the_version() -> None:
    """RF-01, reflector_test.go:TestReflectorListAndWatchWithErrors"""
    rig = Rig(pod("a"))
    rig.sink.refuse = RuntimeError("no")
    async with settled(rig.reflector.run()):
        assert rig.reflector.resource_version == ""
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "0"]
    assert rig.reflector.resource_version == "11"


async def test_a_later_list_asks_for_nothing_older_than_what_was_seen() -> None:
    """RF-03, RF-10, reflector_test.go:TestReflectorResyncWithResourceVersion, TestReflectorResourceVersionUpdate"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("b"))
        rig.source.bookmark()
        await settle()
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "13"]
    assert rig.sink.names() == ["ReplacedAll", "Added", "Bookmark", "ReplacedAll"]


@pytest.mark.parametrize("error", [expired(), too_large()], ids=["expired", "too large"])
async def test_a_version_that_the_server_refuses_is_answered_at_once_by_a_quorum_list(error: ApiError) -> None:
    """RF-04, RF-05, reflector_test.go:TestReflectorFullListIfExpired, TestReflectorFullListIfTooLarge"""
    rig = Rig(pod("a"))
    rig.source.list_errors = [error]
    async with settled(rig.reflector.run()):
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "", "11"], "retried without delay, and back to normal after the success"
    assert rig.errors == []


async def test_a_quorum_list_that_fails_too_goes_the_way_of_all_failures_and_is_tried_again_as_such() -> None:
    """RF-04, reflector_test.go:TestReflectorExpiredExactResourceVersion"""
    rig = Rig(pod("a"))
    rig.source.list_errors = [expired(), expired(), status_error(500, "Boom")]
    async with settled(rig.reflector.run()):
        assert rig.listed_versions == ["0", ""]
        assert [type(error) for error in rig.errors] == [ExpiredError]
        await settle(FIRST_BACKOFF_S)
        assert rig.listed_versions == ["0", "", ""]
        await settle(2 * FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "", "", ""]
    assert rig.reflector.state is State.WATCHING


async def test_a_410_in_the_stream_lists_at_the_last_version_before_it_falls_back_to_a_quorum_list() -> None:
    """RF-06, RF-16, reflector_test.go:TestReflectorExpiredExactResourceVersion"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("b"), notify=False)
        rig.source.compact()
        rig.source.list_errors = [expired()]
        rig.source.end_watches(expired())
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "11", ""]
    assert rig.watched_versions == ["11", "12"]


async def test_first_lists_ask_for_pages_and_later_ones_do_not() -> None:
    """RF-07, reflector_test.go:TestReflectorNotPaginatingNotConsistentReads"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.list_errors = [expired()]
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
    assert [(options.resource_version, options.limit) for options in rig.source.lists] == [
        ("0", 500),
        ("11", 0),
        ("", 500),
    ]


async def test_a_server_without_a_watch_cache_is_asked_for_pages_for_ever() -> None:
    """RF-07, reflector_test.go:TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled"""
    rig = Rig(*[pod(f"p{number}") for number in range(501)], paging=True)
    async with settled(rig.reflector.run()):
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
    assert [(options.resource_version, options.limit) for options in rig.source.lists] == [
        ("0", 500), ("", 500), ("511", 500), ("", 500),
    ]  # fmt: skip
    assert len(rig.sink.deltas[-1].objects) == 501  # type: ignore[union-attr]  # a ReplacedAll


async def test_an_explicit_page_size_wins() -> None:
    """RF-07, reflector_test.go:TestReflectorWatchListPageSize"""
    rig = Rig(*[pod(f"p{number}") for number in range(5)], options=ReflectorOptions(page_size=2), paging=True)
    async with settled(rig.reflector.run()):
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
    assert [options.limit for options in rig.source.lists] == [2] * 6


async def test_a_watch_asks_for_bookmarks_and_for_an_end_between_five_and_ten_minutes() -> None:
    """RF-09, reflector_test.go:TestWatchTimeout"""
    rig = Rig()
    async with running(rig.reflector.run()):
        await settle()
    assert rig.source.watches[0].allow_bookmarks
    assert rig.source.watches[0].timeout_s == 300


async def test_a_bookmark_moves_the_version_and_reaches_the_store_but_changes_no_object() -> None:
    """RF-10, reflector_test.go:TestReflectorWatchHandler"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.bookmark()
        await settle()
    assert rig.sink.deltas[1:] == [Bookmark("12")]
    assert rig.reflector.resource_version == "12"


async def test_what_exists_when_a_watch_begins_at_no_version_does_not_move_the_version() -> None:
    """RF-11, reflector_watchlist_test.go:TestWatchListResourceVersion"""
    rig = Rig()
    rig.source.version = 0  # the list answers "0", as an aggregated server without versions may
    async with settled(rig.reflector.run()):
        old, new = pod("old"), pod("new")
        rig.source.send(Added(rig.source._stamp(new)), Added(rig.source._stamp(old)))
        await settle()
        assert rig.reflector.resource_version == "0"
        rig.source.modify(pod("new"))
        await settle()
        assert rig.reflector.resource_version == "3"
        rig.source.add(pod("newest"))
        await settle()
    assert rig.reflector.resource_version == "4"


async def test_an_event_that_cannot_be_decoded_is_skipped_and_the_stream_goes_on() -> None:
    """RF-12, B01, reflector_test.go:TestReflectorWatchHandler"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.send(Skipped(TypeError("no pod"), "ns/poison", "12"), Added(pod("b")))
        await settle()
    assert rig.sink.names() == ["ReplacedAll", "Bookmark", "Added"]
    assert rig.source.open_watches == 0
    assert len(rig.source.watches) == 1


async def test_the_deletion_of_an_object_that_cannot_be_decoded_still_removes_it() -> None:
    """RF-12, B01: the key is enough"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.send([Skipped(TypeError("no pod"), "ns/a", "12", deleted=True)][0])
        await settle()
    assert rig.sink.deltas[1:] == [Vanished("ns/a"), Bookmark("12")]
    assert rig.reflector.resource_version == "12"


async def test_a_response_that_is_not_a_list_is_a_failure() -> None:
    """RF-12, reflector_test.go:TestIsUnsupportedTableObject"""
    rig = Rig(pod("a"))
    rig.source.list_errors = [DecodeError("not a list of pods: kind 'Table'")]
    async with settled(rig.reflector.run()):
        assert rig.sink.deltas == []
        await settle(FIRST_BACKOFF_S)
    assert rig.sink.names() == ["ReplacedAll"]


async def test_cancelling_ends_it_while_it_lists() -> None:
    """RF-13, reflector_test.go:TestReflectorWatchStoppedBefore"""
    rig = Rig()
    rig.source.hold.clear()
    async with settled(rig.reflector.run()):
        assert rig.reflector.state is State.LISTING
    assert rig.source.watches == []


async def test_cancelling_closes_the_stream_that_is_being_read() -> None:
    """RF-13, reflector_test.go:TestReflectorStopWatch, TestCloseWatchChannelOnError"""
    rig = Rig()
    async with settled(rig.reflector.run()):
        assert rig.source.open_watches == 1
    assert rig.source.open_watches == 0


async def test_cancelling_ends_it_while_it_backs_off() -> None:
    """RF-13, reflector_test.go:TestRunUntil"""
    rig = Rig()
    rig.source.list_errors = [status_error(500, "Boom")]
    async with settled(rig.reflector.run()):
        assert rig.reflector.state is State.LIST_LATER
    assert VirtualClock().monotonic() < FIRST_BACKOFF_S


async def test_a_stream_that_ends_is_resumed_at_once_from_the_last_version_without_a_list() -> None:
    """RF-14, reflector_test.go:TestReflectorListAndWatch"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("b"))
        rig.source.end_watches()
        await settle()
        assert rig.watched_versions == ["11", "12"]
    assert rig.listed_versions == ["0"]


@pytest.mark.parametrize("error", [ConnectionLostError("cut"), RequestTimeoutError("silence")], ids=["cut", "silent"])
async def test_a_stream_that_breaks_or_falls_silent_is_resumed_at_once_without_a_list(error: ApiError) -> None:
    """RF-14, RF-29, rest/connection_test.go:TestReconnectBrokenTCP_HTTP1"""
    rig = Rig(pod("a"))
    async with running(rig.reflector.run()):
        await asyncio.sleep(80.0)
        rig.source.end_watches(error)
        await settle()
        assert rig.watched_versions == ["11", "11"]
    assert rig.listed_versions == ["0"]
    assert rig.errors == []


async def test_a_stream_that_was_silent_for_more_than_a_second_is_no_failure() -> None:
    """RF-15: just above the limit"""
    rig = Rig(pod("a"))
    async with running(rig.reflector.run()):
        await asyncio.sleep(1.001)
        rig.source.end_watches()
        await settle()
        assert rig.watched_versions == ["11", "11"]


async def test_a_stream_that_ends_at_once_and_brought_nothing_leads_to_a_pause_and_a_list() -> None:
    """RF-15, reflector_test.go:TestReflectorHandleWatchResultChanClosedBefore"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.end_watches()
        await settle()
        assert rig.reflector.state is State.LIST_LATER
        assert len(rig.source.lists) == 1
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "11"]


def refused() -> ConnectError:
    """The transport's error for a port on which nobody listens."""
    error = ConnectError("connection refused")
    error.__cause__ = ConnectionRefusedError()
    return error


@pytest.mark.parametrize("error", [refused(), too_many()], ids=["connection refused", "429"])
async def test_a_watch_that_is_refused_is_tried_again_after_a_pause_without_a_list(error: ApiError) -> None:
    """RF-17, reflector_test.go:TestReflectorListAndWatchInitConnBackoff, TestNoRelistOnTooManyRequests"""
    rig = Rig(pod("a"))
    rig.source.watch_errors = [error, error]
    async with settled(rig.reflector.run()):
        assert rig.reflector.state is State.WATCH_LATER
        await settle(3 * FIRST_BACKOFF_S)
    assert len(rig.source.watches) == 3
    assert len(rig.source.lists) == 1
    assert rig.errors == []


@pytest.mark.parametrize("error", [ConnectError("Name or service not known"), CredentialsError("the plugin failed")])
async def test_a_watch_that_finds_no_way_to_the_server_is_reported_each_time(error: ApiError) -> None:
    """RF-21, RF-24: only a refused connection is a matter of seconds; a cache must not be stale for hours without a report."""
    rig = Rig(pod("a"))
    rig.source.watch_errors = [error, error]
    async with running(rig.reflector.run()):
        await settle(4 * FIRST_BACKOFF_S)
    assert rig.errors == [error, error]
    assert len(rig.source.lists) == 1, "a list would fare no better"


async def test_a_server_that_names_a_time_to_come_back_is_left_alone_for_so_long() -> None:
    """RF-17: Retry-After is longer than our own back-off"""
    rig = Rig(pod("a"))
    rig.source.watch_errors = [too_many(retry_after_s=20.0)]
    async with running(rig.reflector.run()):
        await asyncio.sleep(19.9)
        assert len(rig.source.watches) == 1
        await asyncio.sleep(0.2)
    assert len(rig.source.watches) == 2


async def test_a_time_to_come_back_counts_for_one_pause_and_not_for_the_next() -> None:
    """RF-17: what the server asked for when it was busy says nothing about a later failure."""
    rig = Rig(pod("a"))
    rig.source.watch_errors = [too_many(retry_after_s=20.0)]
    async with running(rig.reflector.run()):
        await asyncio.sleep(25.0)
        rig.source.end_watches(expired())
        await asyncio.sleep(5.0)
    assert len(rig.source.lists) == 2


async def test_no_answer_of_a_server_blinds_the_cache_for_longer_than_half_a_minute() -> None:
    """RF-17: the maintenance page of a load balancer may ask for days."""
    rig = Rig(pod("a"))
    rig.source.watch_errors = [too_many(retry_after_s=1_000_000.0)]
    rig.source.list_errors = [status_error(503, "Maintenance", retry_after_s=1_000_000.0)]
    async with running(rig.reflector.run()):
        await asyncio.sleep(2 * LONGEST_RETRY_AFTER_S + 0.2)
        assert (len(rig.source.lists), len(rig.source.watches)) == (2, 2)


async def test_how_long_no_watch_has_been_open_is_known() -> None:
    """From the start on; a collection that the server does not have is not waited for."""
    rig = Rig(pod("a"))
    rig.source.list_errors = [status_error(503, "Unavailable", retry_after_s=20.0)]
    async with running(rig.reflector.run()):
        await asyncio.sleep(15.0)
        assert rig.reflector.disconnected_s == pytest.approx(15.0)
        await asyncio.sleep(10.0)
        assert rig.reflector.disconnected_s == 0.0
        rig.source.watch_errors = [too_many(retry_after_s=20.0)]
        rig.source.end_watches()
        await asyncio.sleep(15.0)
        assert rig.reflector.disconnected_s == pytest.approx(15.0)
        await asyncio.sleep(10.0)
        assert rig.reflector.disconnected_s == 0.0
        rig.source.watch_errors = [status_error(404, "NotFound")]
        rig.source.list_errors = [status_error(404, "NotFound")] * 20
        rig.source.end_watches()
        await asyncio.sleep(120.0)
        assert rig.reflector.disconnected_s == 0.0


async def test_a_time_to_come_back_holds_for_one_pause_and_for_lists_too() -> None:
    """RF-17, RF-22"""
    rig = Rig(pod("a"))
    rig.source.list_errors = [too_many(retry_after_s=20.0), status_error(500, "Boom")]
    async with running(rig.reflector.run()):
        await asyncio.sleep(19.9)
        assert len(rig.source.lists) == 1
        await asyncio.sleep(0.2)
        assert len(rig.source.lists) == 2
        await asyncio.sleep(2 * FIRST_BACKOFF_S)
        assert len(rig.source.lists) == 3


async def test_a_429_in_the_stream_pauses_the_watch_without_a_list() -> None:
    """RF-18, reflector_test.go:TestBackoffOnTooManyRequests"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.end_watches(too_many())
        await settle()
        assert rig.reflector.state is State.WATCH_LATER
        await settle(FIRST_BACKOFF_S)
        assert rig.watched_versions == ["11", "11"]
        rig.source.end_watches(too_many(retry_after_s=20.0))
        await asyncio.sleep(19.9)
        assert len(rig.source.watches) == 2
        await asyncio.sleep(0.2)
    assert rig.watched_versions == ["11", "11", "11"]
    assert len(rig.source.lists) == 1


async def test_an_internal_error_in_the_stream_leads_to_a_list_by_default() -> None:
    """RF-19, RF-20, reflector_test.go:TestRetryInternalError"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.end_watches(status_error(500, "InternalError"))
        await settle()
    assert rig.reflector.state is State.LIST_LATER


async def test_an_internal_error_inside_the_window_reopens_the_watch_at_once() -> None:
    """RF-19, reflector_test.go:TestRetryInternalError"""
    rig = Rig(pod("a"), options=ReflectorOptions(internal_error_window_s=30.0))
    async with settled(rig.reflector.run()):
        for _ in range(3):
            rig.source.end_watches(status_error(500, "InternalError"))
            await asyncio.sleep(10.5)
        assert len(rig.source.lists) == 1
        rig.source.end_watches(status_error(500, "InternalError"))
        await settle()
        assert rig.reflector.state is State.LIST_LATER


@pytest.mark.parametrize(
    "error",
    [status_error(500, "StoreReadError"), status_error(403, "Forbidden"), DecodeError("garbage")],
    ids=["corrupt object", "forbidden", "garbage"],
)
async def test_any_other_failure_of_a_stream_leads_to_a_list_at_the_last_version(error: ApiError) -> None:
    """RF-20, reflector_test.go:TestReflectorReplacesStoreOnUnsafeDelete"""
    rig = Rig(pod("a"), pod("corrupt"))
    async with settled(rig.reflector.run()):
        rig.source.delete("ns/corrupt", notify=False)
        rig.source.end_watches(error)
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "12"]
    assert [item.metadata.name for item in rig.sink.deltas[-1].objects] == ["a"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "error",
    [status_error(403, "Forbidden"), expired(), TLSError("bad certificate"), ConnectionLostError("cut")],
    ids=["forbidden", "410", "tls", "cut"],
)
async def test_any_other_failure_to_open_a_watch_is_reported_and_leads_to_a_list(error: ApiError) -> None:
    """RF-21, reflector_test.go:TestReflectorListAndWatchWithErrors"""
    rig = Rig(pod("a"))
    rig.source.watch_errors = [error]
    async with settled(rig.reflector.run()):
        assert rig.reflector.state is State.LIST_LATER
        assert rig.errors == [error]
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "11"]


async def test_repeated_failures_double_the_pause_up_to_thirty_seconds() -> None:
    """RF-22, apimachinery wait_test.go:TestBackoff_Step"""
    rig = Rig()
    rig.source.list_errors = [status_error(500, "Boom") for _ in range(8)]
    seen: list[float] = []
    rig.reflector.on_error = lambda _: seen.append(VirtualClock().monotonic())
    async with running(rig.reflector.run()):
        await asyncio.sleep(300.0)
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(seen)]
    assert pauses == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]


async def test_lists_and_watches_share_one_back_off() -> None:
    """RF-22, reflector_test.go:TestBackoffOnTooManyRequests"""
    rig = Rig()
    rig.source.list_errors = [status_error(500, "Boom")]
    rig.source.watch_errors = [too_many()]
    async with running(rig.reflector.run()):
        await settle(FIRST_BACKOFF_S)
        assert rig.reflector.state is State.WATCH_LATER
        await asyncio.sleep(FIRST_BACKOFF_S)
        assert len(rig.source.watches) == 1, "the second pause is twice as long as the first"
        await settle(FIRST_BACKOFF_S)
    assert len(rig.source.watches) == 2


async def test_a_quiet_time_makes_the_next_pause_short_again() -> None:
    """RF-23, apimachinery wait_test.go:TestExponentialBackoffManagerGetNextBackoff"""
    rig = Rig()
    rig.source.list_errors = [status_error(500, "Boom") for _ in range(4)]
    async with running(rig.reflector.run()):
        await asyncio.sleep(150.0)
        rig.source.end_watches(status_error(500, "Boom"))
        await settle(FIRST_BACKOFF_S)
    assert len(rig.source.lists) == 6


async def test_a_pace_of_ones_own_can_be_given() -> None:
    """RF-22, reflector_test.go:TestNewReflectorWithCustomBackoff"""

    class Constant:
        def next(self) -> float:
            return 5.0

    source = FakeSource[Pod]()
    source.list_errors = [status_error(500, "Boom") for _ in range(3)]
    reflector = Reflector(source, RecordingSink(), name="pods", backoff=Constant())
    async with running(reflector.run()):
        await asyncio.sleep(15.5)
    assert len(source.lists) == 4


async def test_each_failed_list_is_reported_once_and_before_the_pause() -> None:
    """RF-24, shared_informer_test.go:TestSharedInformerErrorHandling"""
    rig = Rig()
    boom = ServerError(Status(code=500))
    rig.source.list_errors = [boom, boom]
    async with settled(rig.reflector.run()):
        assert rig.errors == [boom]
        await asyncio.sleep(10.0)
    assert rig.errors == [boom, boom]


async def test_a_crash_in_a_list_is_reported_and_the_reflector_goes_on() -> None:
    """RF-25, controller_test.go:TestPanicPropagated. In place of the re-raised panic: nothing is lost, and it goes on"""
    rig = Rig(pod("a"))
    crash = ZeroDivisionError("a bug of ours")
    rig.source.list_errors = [crash]
    with capture_logs() as logs:
        async with settled(rig.reflector.run()):
            assert [(log["event"], log["exc_info"]) for log in logs] == [("reflector_crashed", crash)]
            await settle(FIRST_BACKOFF_S)
    assert rig.sink.names() == ["ReplacedAll"]


async def test_a_hook_that_fails_is_a_crash_like_any_other() -> None:
    """RF-24, RF-25"""
    rig = Rig(pod("a"))
    rig.source.list_errors = [status_error(500, "Boom")]

    def fail(_: ApiError) -> None:
        raise ZeroDivisionError

    rig.reflector.on_error = fail
    with capture_logs() as logs:
        async with running(rig.reflector.run()):
            await asyncio.sleep(2 * FIRST_BACKOFF_S)
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["reflector_crashed"]
    assert rig.sink.names() == ["ReplacedAll"]


@pytest.mark.parametrize(
    ("error", "level"),
    [
        pytest.param(status_error(403, "Forbidden"), "warning", id="forbidden"),
        pytest.param(ConnectionLostError("cut"), "debug", id="cut"),
    ],
)
async def test_only_a_failure_that_is_not_a_matter_of_course_is_a_warning(error: ApiError, level: str) -> None:
    """RF-24, shared_informer_test.go:TestSharedInformerErrorHandling"""
    rig = Rig(pod("a"))
    rig.source.list_errors = [error]
    with capture_logs() as logs:
        async with running(rig.reflector.run()):
            await settle()
    assert [(log["event"], log["log_level"]) for log in logs] == [("list_and_watch_failed", level)]


async def test_an_expired_watch_is_a_matter_of_course() -> None:
    """RF-16, RF-24"""
    rig = Rig(pod("a"))
    with capture_logs() as logs:
        async with settled(rig.reflector.run()):
            rig.source.end_watches(expired())
            await settle()
    assert [(log["event"], log["log_level"]) for log in logs] == [("watch_expired", "debug")]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        pytest.param(None, "watch_very_short", id="at once"),
        pytest.param(DecodeError("garbage"), "watch_failed", id="garbage"),
    ],
)
async def test_a_stream_that_fails_is_a_warning(error: ApiError | None, event: str) -> None:
    """RF-15, RF-20"""
    rig = Rig(pod("a"))
    with capture_logs() as logs:
        async with settled(rig.reflector.run()):
            rig.source.end_watches(error)
            await settle()
    assert [(log["event"], log["log_level"]) for log in logs] == [(event, "warning")]


async def test_a_skipped_object_is_named_in_the_log_be_it_listed_or_watched() -> None:
    """RF-12, B01"""
    rig = Rig(pod("a"))
    rig.source.skipped = [Skipped(TypeError("bad"), "ns/listed")]
    with capture_logs() as logs:
        async with settled(rig.reflector.run()):
            rig.source.send(Skipped(TypeError("bad"), "ns/watched"))
            await settle()
    assert [(log["event"], log["key"], log["log_level"]) for log in logs] == [
        ("object_skipped", "ns/listed", "warning"), ("object_skipped", "ns/watched", "warning"),
    ]  # fmt: skip
    assert rig.reflector.resource_version == "11", "an object without a version moves nothing"


async def test_events_reach_the_sink_as_they_came() -> None:
    """RF-30, reflector_test.go:TestReflectorRespectStoreTransformer. The decoder is the transform, and nothing decodes twice"""
    rig = Rig()
    first, second = pod("a"), pod("b")
    async with settled(rig.reflector.run()):
        rig.source.send(Added(first), Modified(second), Deleted(first))
        await settle()
    objects = [delta.object for delta in rig.sink.deltas[1:] if isinstance(delta, (Added, Modified, Deleted))]
    assert [item is expected for item, expected in zip(objects, (first, second, first), strict=True)] == [True] * 3


async def test_a_batch_that_ends_in_an_error_is_taken_up_to_the_error() -> None:
    """RF-03, RF-16: what came before the error did happen"""
    rig = Rig(pod("a"))
    async with settled(rig.reflector.run()):
        rig.source.add(pod("b"))
        rig.source.end_watches(expired())
        await settle(FIRST_BACKOFF_S)
    assert rig.listed_versions == ["0", "12"]


def test_faults_are_retried_until_the_window_that_the_first_one_opened_is_over() -> None:
    """RF-19, retry_with_deadline_test.go:TestRetryWithDeadline"""
    clock = FakeClock()
    window = RetryWindow(30.0, clock)
    answers = []
    for _ in range(5):
        answers.append(window.allows())
        clock.step(10.0)
    assert answers == [True, True, True, False, False]


def test_a_minute_without_a_fault_makes_the_next_one_the_first_again() -> None:
    """RF-19, retry_with_deadline_test.go:TestRetryWithDeadline"""
    clock = FakeClock()
    window = RetryWindow(30.0, clock)
    window.allows()
    clock.step(40.0)
    assert not window.allows()
    clock.step(60.0)
    assert not window.allows(), "a minute, but not more"
    clock.step(60.1)
    assert window.allows()


def test_a_window_of_no_length_allows_nothing() -> None:
    """RF-19: the default"""
    assert not RetryWindow(0.0, FakeClock()).allows()
