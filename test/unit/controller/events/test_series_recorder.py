"""The recorder of events.k8s.io/v1 on virtual time, against a client that responds as it is told."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.metrics import Drops
from fakes.virtual_loop import VirtualClock
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConnectError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
)
from tfjob_operator.api.text import EVENT_BYTES
from tfjob_operator.controller.events import SeriesRecorder
from tfjob_operator.controller.events.series_recorder import BUFFER_SIZE, FLUSH_S, WRITERS
from unit.controller.events.making import KETTLE, EventClient

NOT_FOUND = status_error(NotFoundError, 404)
EXISTS = status_error(AlreadyExistsError, 409)


class Bench:
    """A recorder, its client, and what it drops."""

    def __init__(self) -> None:
        self.client = EventClient()
        self.drops = Drops()
        self.recorder = SeriesRecorder(
            self.client,
            controller="example.com/kettle-operator",
            instance="kettle-operator-1",
            clock=VirtualClock(),
            metrics=self.drops,
            random=lambda: 0.2,
        )

    def record(self, note: str = "tick", event_type: str = "Normal", reason: str = "Boiled") -> None:
        self.recorder.event(KETTLE, event_type, reason, "Heating", note)

    async def run_to_the_end(self) -> None:
        """Stop, and write what waits."""
        self.recorder.stop()
        await self.recorder.run()

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.recorder.run())

    @property
    def counts(self) -> list[tuple[float, str, int]]:
        """Time, verb and count of each write; 1 is an event without a series."""
        return [(time, verb, body.get("series", {"count": 1})["count"]) for time, verb, *_, body in self.client.log]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_first_event_is_created_with_all_that_the_server_asks_for(bench: Bench) -> None:
    """EV-10, eventseries_test.go:TestEventSeriesf; a MicroTime has six digits, or Go does not read it."""
    bench.recorder.event(KETTLE, "Warning", "BoiledDry", "Heating", "no water", related=replace(KETTLE, name="green"))
    await bench.run_to_the_end()
    kettle = {"apiVersion": "example.com/v1", "kind": "Kettle", "namespace": "kitchen", "name": "blue", "uid": "u-1"}
    assert bench.client.log == [
        (
            0.0,
            "create",
            "kitchen",
            "blue.18867251edfa0000",
            {
                "metadata": {"name": "blue.18867251edfa0000", "namespace": "kitchen"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "example.com/kettle-operator",
                "reportingInstance": "kettle-operator-1",
                "action": "Heating",
                "reason": "BoiledDry",
                "regarding": kettle,
                "related": kettle | {"name": "green"},
                "note": "no water",
                "type": "Warning",
            },
        )
    ]


async def test_the_second_patches_a_series_into_the_first_and_the_third_writes_nothing(bench: Bench) -> None:
    """EV-10, eventseries_test.go:TestEventSeriesf."""
    running = bench.start()
    for note in ("one", "two", "three"):
        bench.record(note)
        await asyncio.sleep(5.0)
    first, second = bench.client.log
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}
    assert second == (5.0, "patch", "kitchen", first[3], {"series": series})
    running.cancel()
    await asyncio.wait([running])


async def test_two_events_of_one_moment_are_one_event_with_a_series(bench: Bench) -> None:
    """EV-10, eventseries_test.go:TestEventSeriesWithEventSinkImplRace: the patch waits for the create."""

    async def take_a_second() -> None:
        await asyncio.sleep(1.0)

    bench.client.pause = take_a_second
    bench.record()
    bench.record()
    bench.record(reason="Other")
    await bench.run_to_the_end()
    assert bench.counts == [(0.0, "create", 1), (0.0, "create", 1), (1.0, "patch", 2)]
    assert not bench.drops.count


async def test_a_series_that_goes_on_is_written_every_half_hour(bench: Bench) -> None:
    """EV-10, eventseries_test.go:TestRefreshExistingEventSeries: the server forgets what is not written for an hour."""
    running = bench.start()
    for _ in range(62):
        bench.record()
        await asyncio.sleep(60.0)
    assert bench.counts == [(0.0, "create", 1), (60.0, "patch", 2), (1800.0, "patch", 30), (3600.0, "patch", 60)]
    running.cancel()
    await asyncio.wait([running])


async def test_a_refresh_that_fails_costs_nothing_but_itself(bench: Bench) -> None:
    """EV-10, eventseries_test.go:TestRefreshExistingEventSeries: the series stays, and the failure is logged."""
    running = bench.start()
    for _ in range(29):
        bench.record()
        await asyncio.sleep(60.0)
    bench.client.answers = [status_error(ForbiddenError, 403)]
    with capture_logs() as lines:
        for _ in range(40):
            bench.record()
            await asyncio.sleep(60.0)
    assert [time for time, *_ in bench.counts] == [0.0, 60.0, 1800.0, 3600.0]
    assert [(line["event"], line["why"]) for line in lines] == [("event_series_not_written", "refused")]
    assert not bench.drops.count
    running.cancel()
    await asyncio.wait([running])


async def test_a_series_that_fell_silent_has_its_last_state_written_and_a_new_one_begins(bench: Bench) -> None:
    """EV-10, eventseries_test.go:TestFinishSeries: silent series are looked for every six minutes, as in client-go."""
    running = bench.start()
    for _ in range(5):
        bench.record()
        await asyncio.sleep(1.0)
    await asyncio.sleep(3600.0)
    assert bench.counts == [(0.0, "create", 1), (1.0, "patch", 2), (720.0, "patch", 5)]
    assert bench.client.log[-1][4]["series"]["lastObservedTime"] == "2026-01-01T00:00:04.000000Z"
    bench.record()
    await asyncio.sleep(1.0)
    assert bench.counts[-1][1:] == ("create", 1)
    assert bench.client.log[-1][3] != bench.client.log[0][3]
    running.cancel()
    await asyncio.wait([running])


async def test_the_end_of_a_series_is_tried_again_while_the_server_is_away(bench: Bench) -> None:
    """EV-10, TestFinishSeries: it is forgotten only when its state was written, or refused."""
    running = bench.start()
    for _ in range(3):
        bench.record()
        await asyncio.sleep(1.0)
    bench.client.answers = [ConnectError("refused"), ConnectError("refused")]
    await asyncio.sleep(3600.0)
    assert bench.counts[2:] == [(720.0, "patch", 3), (1080.0, "patch", 3), (1440.0, "patch", 3)]
    assert not bench.drops.count
    running.cancel()
    await asyncio.wait([running])


async def test_the_end_of_a_series_that_is_refused_is_dropped_once(bench: Bench) -> None:
    """EV-10: otherwise a series that the server refuses would be kept for ever."""
    running = bench.start()
    for _ in range(3):
        bench.record("boiled dry", "Warning")
        await asyncio.sleep(1.0)
    bench.client.always = status_error(InvalidError, 422)
    await asyncio.sleep(3600.0)
    assert bench.counts[2:] == [(720.0, "patch", 3)]
    assert bench.drops.count == {("Warning", "refused"): 1}
    running.cancel()
    await asyncio.wait([running])


async def test_a_series_whose_event_is_gone_is_created_with_its_count(bench: Bench) -> None:
    """EV-10, event_broadcaster_test.go:TestRecordEventToSink "record one isomorphic Event without one already existing"."""
    bench.record()
    bench.record()
    bench.client.answers = [None, NOT_FOUND]
    await bench.run_to_the_end()
    assert [(verb, count) for _, verb, count in bench.counts] == [("create", 1), ("patch", 2), ("create", 2)]
    assert bench.client.log[2][3] == bench.client.log[0][3]
    assert not bench.drops.count


async def test_a_series_whose_event_came_in_between_is_patched_after_all(bench: Bench) -> None:
    """EV-10, event_broadcaster_test.go:TestRecordEventToSink: AlreadyExists on a series is tried again."""
    running = bench.start()
    bench.record()
    bench.record()
    bench.client.answers = [None, NOT_FOUND, EXISTS]
    await asyncio.sleep(60.0)
    assert bench.counts == [(0.0, "create", 1), (0.0, "patch", 2), (0.0, "create", 2), (10.5, "patch", 2)]
    assert not bench.drops.count
    running.cancel()
    await asyncio.wait([running])


async def test_a_server_that_is_away_is_asked_twelve_times_ten_seconds_and_a_bit_apart(bench: Bench) -> None:
    """EV-10: up to 25 % of jitter; with `random` at 0.2 that is 0.5 s."""
    bench.client.always = ConnectError("refused")
    running = bench.start()
    bench.record("boiled dry", "Warning")
    await asyncio.sleep(300.0)
    assert bench.client.times == [10.5 * n for n in range(12)]
    assert bench.drops.count == {("Warning", "unreachable"): 1}
    running.cancel()
    await asyncio.wait([running])


async def test_an_event_that_could_not_be_created_comes_with_the_series_that_it_becomes(bench: Bench) -> None:
    """EV-10: an event that keeps happening is not lost when the server is away for ten minutes."""
    bench.client.always = ConnectError("refused")
    running = bench.start()
    for _ in range(10):
        bench.record()
        await asyncio.sleep(60.0)
    bench.client.log.clear()
    bench.client.always = None
    bench.client.answers = [NOT_FOUND]
    bench.recorder.stop()
    await running
    assert [(verb, count) for _, verb, count in bench.counts] == [("patch", 10), ("create", 10)]
    assert not bench.drops.count


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (status_error(ForbiddenError, 403), True),
        (status_error(InvalidError, 422), True),
        (EXISTS, False),
        (status_error(NamespaceTerminatingError, 403), False),
    ],
    ids=["forbidden", "invalid", "exists", "namespace terminating"],
)
async def test_an_event_that_the_server_refuses_is_not_tried_again(
    bench: Bench, error: ApiError, counted: bool
) -> None:
    """EV-10: an event without a series that exists already was written by an attempt whose response was lost."""
    bench.client.answers = [error]
    bench.record("1", "Warning")
    await bench.run_to_the_end()
    assert bench.client.verbs == ["create"]
    assert bench.drops.count == ({("Warning", "refused"): 1} if counted else {})


async def test_an_object_whose_write_hangs_keeps_only_itself_waiting(bench: Bench) -> None:
    """EV-10: there are eight writers."""
    hang = asyncio.Event()

    async def hang_once() -> None:
        bench.client.pause = nothing
        await hang.wait()

    async def nothing() -> None:
        return None

    bench.client.pause = hang_once
    running = bench.start()
    bench.record(reason="Stuck")
    await asyncio.sleep(1.0)
    for number in range(100):
        bench.record(reason=f"Free{number}")
    await asyncio.sleep(1.0)
    assert len(bench.client.log) == 101
    running.cancel()
    await asyncio.wait([running])
    assert bench.drops.count == {("Normal", "shutdown"): 1}


async def test_recording_does_not_wait_for_a_server_that_hangs(bench: Bench) -> None:
    """EV-01, EV-10: a thousand wait, the rest is dropped and counted."""
    bench.client.pause = asyncio.Event().wait  # type: ignore[assignment]  # its True is not looked at
    running = bench.start()
    for number in range(WRITERS):
        bench.record(reason=f"InHand{number}")
    await asyncio.sleep(1.0)
    for number in range(BUFFER_SIZE + 7):
        bench.record(reason=f"Waits{number}")
    assert asyncio.get_running_loop().time() == 1.0
    assert bench.drops.count == {("Normal", "overflow"): 7}
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    bench.record("late")
    assert bench.drops.count == {("Normal", "overflow"): 7, ("Normal", "shutdown"): BUFFER_SIZE + WRITERS + 1}


async def test_only_normal_and_warning_are_types(bench: Bench) -> None:
    """EV-01, EV-10: another type is refused here, and its name does not become a label."""
    bench.record("hm", "Curious")
    await bench.run_to_the_end()
    assert bench.client.log == []
    assert bench.drops.count == {("Unknown", "invalid"): 1}


async def test_stopping_writes_the_last_state_of_every_series_once(bench: Bench) -> None:
    """EV-09, EV-10: client-go loses what was counted since the last write."""
    running = bench.start()
    for reason in ("Boiled", "Whistled"):
        for _ in range(7):
            bench.record(reason=reason)
    bench.record(reason="Alone")
    await asyncio.sleep(1.0)
    bench.client.log.clear()
    bench.recorder.stop()
    bench.recorder.stop()
    await running
    assert bench.counts == [(1.0, "patch", 7), (1.0, "patch", 7)]
    assert not bench.drops.count


async def test_stopping_tries_each_write_once_and_counts_what_failed(bench: Bench) -> None:
    """EV-09, EV-10: nobody waits ten seconds for a server that is away."""
    running = bench.start()
    for _ in range(3):
        bench.record()
    await asyncio.sleep(1.0)
    bench.client.always = ConnectError("refused")
    bench.record("alone", "Warning", reason="BoiledDry")
    bench.recorder.stop()
    await running
    assert asyncio.get_running_loop().time() == 1.0
    assert bench.counts[2:] == [(1.0, "create", 1), (1.0, "patch", 3)]
    assert bench.drops.count == {("Warning", "unreachable"): 1, ("Normal", "unreachable"): 1}


async def test_stopping_takes_five_seconds_at_most(bench: Bench) -> None:
    """EV-10: what hangs by then is given up: the series, the event being written, and those that wait; each is counted once."""
    running = bench.start()
    for _ in range(3):
        bench.record()
    await asyncio.sleep(1.0)
    bench.client.pause = asyncio.Event().wait  # type: ignore[assignment]
    for number in range(20):
        bench.record(reason=f"Late{number}")
    bench.recorder.stop()
    await running
    assert asyncio.get_running_loop().time() == 1.0 + FLUSH_S
    assert bench.drops.count == {("Normal", "shutdown"): 21}


async def test_a_bug_costs_one_event_and_not_the_recorder(bench: Bench) -> None:
    """EV-08, EV-10: say, a note that cannot be encoded."""
    bench.client.answers = [UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")]
    bench.record("1", "Warning")
    bench.record("2", reason="Other")
    await bench.run_to_the_end()
    assert bench.client.verbs == ["create", "create"]
    assert bench.drops.count == {("Warning", "crashed"): 1}


async def test_counts_on_the_server_never_fall(bench: Bench) -> None:
    """EV-10: a refresh waits for the patch that is tried again; in client-go the older count may come last."""
    running = bench.start()
    await asyncio.sleep(1795.0)
    bench.record()
    await asyncio.sleep(1.0)
    bench.client.answers = [ConnectError("refused")]
    for _ in range(8):
        bench.record()
    await asyncio.sleep(60.0)
    assert bench.counts == [(1795.0, "create", 1), (1796.0, "patch", 2), (1806.5, "patch", 2), (1806.5, "patch", 9)]
    running.cancel()
    await asyncio.wait([running])


async def test_a_series_that_happens_again_while_others_are_finished_goes_on(bench: Bench) -> None:
    """EV-10, TestFinishSeries: client-go records nothing while it writes ends; here a series may go on before that."""
    running = bench.start()
    for _ in range(3):
        bench.record(reason="Ends")
        bench.record(reason="GoesOn")
    await asyncio.sleep(359.0)
    bench.client.log.clear()
    bench.client.pause = lambda: asyncio.sleep(10.0)
    await asyncio.sleep(2.0)
    bench.record(reason="GoesOn")
    await asyncio.sleep(100.0)
    assert bench.counts == [(360.0, "patch", 3)]
    bench.recorder.stop()
    await running


async def test_a_refresh_writes_what_was_counted_by_its_turn(bench: Bench) -> None:
    """EV-10, TestRefreshExistingEventSeries: while another series is written, events are still counted."""
    running = bench.start()
    await asyncio.sleep(1795.0)
    for _ in range(3):
        bench.record(reason="First")
        bench.record(reason="Second")
    await asyncio.sleep(1.0)
    bench.client.log.clear()
    bench.client.pause = lambda: asyncio.sleep(10.0)
    await asyncio.sleep(5.0)
    bench.record(reason="Second")
    await asyncio.sleep(20.0)
    assert bench.counts == [(1800.0, "patch", 3), (1810.0, "patch", 4)]
    bench.recorder.stop()
    await running


async def test_a_note_is_no_longer_than_the_api_takes_it() -> None:
    """D5: at most 1,024 bytes, with control characters escaped."""
    bench = Bench()
    bench.record("\x1b[31m" + "\u00e4" * 5000)
    await bench.run_to_the_end()
    (note,) = [body["note"] for *_, body in bench.client.log]
    assert note.startswith(r"\x1b[31mää")
    assert len(note.encode()) <= EVENT_BYTES
