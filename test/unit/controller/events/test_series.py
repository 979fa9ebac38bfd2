"""What becomes of an event of events.k8s.io/v1: values in, values out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfjob_operator.api.core import EventMeta
from tfjob_operator.api.events import Event, EventSeries
from tfjob_operator.controller.events.series import SILENT_S, SeriesCache
from unit.controller.events.making import KETTLE, make_series_event


def states(events: list[Event]) -> list[tuple[str, int]]:
    """Name and count of each; 1 is an event without a series."""
    return [(event.metadata.name, event.series.count if event.series else 1) for event in events]


def test_the_first_is_written_as_it_is_and_the_second_as_a_series_of_two() -> None:
    """EV-10, eventseries_test.go:TestEventSeriesf: it keeps the name, the time and the note of the first."""
    cache = SeriesCache()
    first = make_series_event("a.1", "one", time="t1")
    assert cache.observe(first, 0.0) == [first]
    assert cache.observe(make_series_event("a.2", "two", time="t2"), 5.0) == [
        replace(first, series=EventSeries(count=2, last_observed_time="t2"))
    ]


def test_from_the_third_on_they_are_only_counted() -> None:
    """EV-10, eventseries_test.go:TestEventSeriesf: a refresh, or the end of the series, writes the count."""
    cache = SeriesCache()
    for number in range(50):
        event = make_series_event(f"a.{number}", time=f"t{number}")
        assert len(cache.observe(event, float(number))) == (1 if number < 2 else 0)
    (state,) = cache.series()
    assert state.metadata.name == "a.0"
    assert state.series == EventSeries(count=50, last_observed_time="t49")


@pytest.mark.parametrize(
    "other",
    [
        {"type": "Warning"},
        {"action": "Stopping"},
        {"reason": "BoiledDry"},
        {"reporting_controller": "another"},
        {"reporting_instance": "node-2"},
        {"regarding": replace(KETTLE, uid="u-2")},
        {"regarding": replace(KETTLE, field_path="spec.lid")},
        {"related": KETTLE},
    ],
    ids=lambda other: next(iter(other)),
)
def test_events_that_differ_in_any_part_of_the_key_are_not_one_series(other: dict[str, object]) -> None:
    """EV-10, eventseries_test.go:TestEventSeriesf "nonIsomorphicEvent"."""
    cache = SeriesCache()
    cache.observe(make_series_event("a.1"), 0.0)
    stranger = replace(make_series_event("b.1"), **other)
    assert cache.observe(stranger, 1.0) == [stranger]


@pytest.mark.parametrize(
    "other",
    [{"note": "another"}, {"regarding": replace(KETTLE, resource_version="7")}],
    ids=["note", "version of the object"],
)
def test_neither_the_note_nor_the_version_of_the_object_parts_a_series(other: dict[str, object]) -> None:
    """EV-10: the note as in client-go; the version because each write of a status changes it."""
    cache = SeriesCache()
    cache.observe(make_series_event("a.1"), 0.0)
    assert states(cache.observe(replace(make_series_event("a.2"), **other), 1.0)) == [("a.1", 2)]


def test_what_has_been_silent_for_six_minutes_is_finished_and_what_has_not_goes_on() -> None:
    """EV-10, eventseries_test.go:TestFinishSeries: the last state is handed out, and remembered until it is written."""
    cache = SeriesCache()
    for number, at in enumerate((0.0, 1.0, 2.0)):
        cache.observe(make_series_event(f"a.{number}"), at)
    cache.observe(make_series_event("b.1", reason="Other"), 3.0)
    assert cache.finish(2.0 + SILENT_S - 0.1) == []
    (state,) = cache.finish(2.0 + SILENT_S)
    assert states([state]) == [("a.0", 3)]
    assert cache.finish(2.0 + SILENT_S) == [state]
    cache.forget(state)
    assert states(cache.observe(make_series_event("a.9"), 3.0 + SILENT_S)) == [("a.9", 1)]
    assert states(cache.observe(make_series_event("b.2", reason="Other"), 3.0 + SILENT_S)) == [("b.1", 2)]


def test_what_is_over_and_written_is_forgotten_without_another_write() -> None:
    """EV-10: an event that stayed alone, and a series whose last state the server has."""
    cache = SeriesCache()
    cache.observe(make_series_event("a.1"), 0.0)
    (event,) = cache.observe(make_series_event("b.1", reason="Other"), 0.0)
    cache.written(event)
    (series,) = cache.observe(make_series_event("b.2", reason="Other"), 0.0)
    cache.written(series)
    assert cache.finish(SILENT_S) == []
    assert [cache.current(event), cache.series()] == [None, []]


def test_a_series_that_goes_on_while_its_end_is_written_is_not_forgotten() -> None:
    """EV-10: meanwhile client-go blocks recording with a lock; here recording goes on."""
    cache = SeriesCache()
    for number in range(3):
        cache.observe(make_series_event(f"a.{number}"), 0.0)
    (state,) = cache.finish(SILENT_S)
    cache.observe(make_series_event("a.3"), SILENT_S)
    cache.written(state)
    cache.forget(state)
    assert states(cache.series()) == [("a.0", 4)]
    assert states(cache.unwritten()) == [("a.0", 4)]


def test_a_late_response_about_a_forgotten_event_does_not_concern_its_successor() -> None:
    """EV-10: the same key, another name."""
    cache = SeriesCache()
    (old,) = cache.observe(make_series_event("a.1"), 0.0)
    cache.finish(SILENT_S)
    cache.observe(make_series_event("a.2"), SILENT_S)
    (series,) = cache.observe(make_series_event("a.3"), SILENT_S)
    cache.written(replace(old, series=series.series))
    cache.forget(old)
    assert cache.unwritten() == [series]


def test_the_series_that_was_silent_for_longest_makes_room_and_leaves_its_last_state() -> None:
    """EV-06, EV-10: client-go has no bound here; a recorder of events about ever new objects fills its memory."""
    cache = SeriesCache(2)
    for number in range(3):
        cache.observe(make_series_event(f"a.{number}"), 0.0)
    cache.observe(make_series_event("b.1", reason="Other"), 1.0)
    assert states(cache.observe(make_series_event("c.1", reason="Third"), 2.0)) == [("c.1", 1), ("a.0", 3)]
    assert states(cache.observe(make_series_event("d.1", reason="Fourth"), 3.0)) == [("d.1", 1)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 400.0), st.booleans()), max_size=60))
def test_every_event_is_counted_once_by_one_record(steps: list[tuple[str, float, bool]]) -> None:
    """EV-10: the last states that were handed out add up to what was observed, and the count of a record only grows."""
    cache = SeriesCache(2)
    now, last = 0.0, dict[str, int]()

    def keep(handed_out: list[Event]) -> None:
        for name, count in states(handed_out):
            assert count >= last.get(name, 1)
            last[name] = count

    for number, (reason, pause, sweeps) in enumerate(steps):
        now += pause
        if sweeps:
            ended = cache.finish(now)
            keep(ended)
            for state in ended:
                cache.written(state)
                cache.forget(state)
        keep(cache.observe(make_series_event(f"{reason}.{number}", reason=reason), now))
    keep(cache.unwritten())
    assert sum(last.values()) == len(steps)


def test_names_are_kept_apart_by_namespace() -> None:
    """EV-10: a response about an event of another namespace is not taken for one about ours."""
    cache = SeriesCache()
    (event,) = cache.observe(make_series_event("a.1"), 0.0)
    elsewhere = replace(event, metadata=EventMeta(name="a.1", namespace="cellar"))
    assert cache.current(elsewhere) is None
    assert cache.current(event) == event
