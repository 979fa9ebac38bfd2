"""What becomes of an event: the buffer and its order; whether it is created, counted or skipped. The tests move the clock."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kit.virtual_loop import EPOCH, FakeClock
from tfjob_operator.api.core import Event, EventMeta, EventSource, ObjectReference
from tfjob_operator.controller.events.recorder import (
    COMBINED,
    KEPT_S,
    SPAM_BURST,
    Action,
    Correlator,
    EventBuffer,
    LRUCache,
)

KETTLE = ObjectReference(api_version="example.com/v1", kind="Kettle", namespace="kitchen", name="blue", uid="u-1")


def make_event(  # the parts of its key, which tests vary
    message: str = "tick",
    *,
    event_type: str = "Normal",
    reason: str = "Boiled",
    about: ObjectReference = KETTLE,
    host: str = "",
    name: str = "blue.1",
) -> Event:
    return Event(
        metadata=EventMeta(name=name, namespace="kitchen"),
        involved_object=about,
        reason=reason,
        message=message,
        type=event_type,
        count=1,
        source=EventSource(component="kettle-operator", host=host),
        first_timestamp=EPOCH,
        last_timestamp=EPOCH,
        reporting_component="kettle-operator",
        reporting_instance=host,
    )


@dataclass
class Bench:
    """A correlator on a clock that stands still, fed with events that each bring a name of their own."""

    clock: FakeClock = field(default_factory=FakeClock)
    cache_size: int = 4096
    made: int = 0

    def __post_init__(self) -> None:
        self.correlator = Correlator(self.clock, cache_size=self.cache_size)

    def feed(self, event: Event) -> tuple[Action, Event]:
        self.made += 1
        meta = replace(event.metadata, name=f"event-{self.made}")
        return self.correlator.correlate(
            replace(event, metadata=meta, first_timestamp=self.clock.now(), last_timestamp=self.clock.now())
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_event_that_is_new_is_created_as_it_is(bench: Bench) -> None:
    """EV-03, EV-04, events_cache_test.go:TestEventCorrelator "create-a-single-event"."""
    action, event = bench.feed(make_event("whistles"))
    assert (action, event.count, event.message, event.metadata.name) == (Action.CREATE, 1, "whistles", "event-1")


def test_the_same_event_again_only_counts_and_keeps_its_first_name_and_time(bench: Bench) -> None:
    """EV-04, events_cache_test.go:TestEventCorrelator "the-same-event-should-just-count".

    Also with another version of its object, which every status write changes.
    """
    _, first = bench.feed(make_event())
    bench.clock.step(5.0)
    action, second = bench.feed(make_event(about=replace(KETTLE, resource_version="2")))
    assert action is Action.UPDATE
    assert (second.count, second.metadata.name) == (2, first.metadata.name)
    assert (second.first_timestamp, second.last_timestamp) == (first.first_timestamp, bench.clock.now())


@pytest.mark.parametrize(
    "other",
    [
        make_event(reason="Spilled"),
        make_event(event_type="Warning"),
        make_event(host="elsewhere"),
        make_event(about=replace(KETTLE, uid="u-2")),
        make_event(about=replace(KETTLE, api_version="example.com/v2")),
        make_event(about=replace(KETTLE, field_path="spec.lid")),
        make_event("another message"),
    ],
    ids=["reason", "type", "host", "uid", "api_version", "field_path", "message"],
)
def test_an_event_that_differs_in_any_part_of_its_key_is_another_one(bench: Bench, other: Event) -> None:
    """EV-03, EV-04, events_cache_test.go:TestEventCorrelator "make-sure-that-...": the UID and the apiVersion count too."""
    bench.feed(make_event())
    action, event = bench.feed(other)
    assert (action, event.count) == (Action.CREATE, 1)


def test_the_tenth_message_makes_similar_events_one(bench: Bench) -> None:
    """EV-03, events_cache_test.go:TestEventAggregatorByReasonMessageFunc, TestEventAggregatorByReasonFunc.

    Nine stay, the tenth opens the combined record. A message that has a record of its own keeps it: client-go forgets any one
    of the ten, at random. Events of another reason or object are not similar.
    """
    for number in range(9):
        action, event = bench.feed(make_event(f"cup {number}"))
        assert (action, event.message) == (Action.CREATE, f"cup {number}")
    action, tenth = bench.feed(make_event("cup 9"))
    assert (action, tenth.message, tenth.count) == (Action.CREATE, COMBINED + "cup 9", 1)
    action, eleventh = bench.feed(make_event("cup 10"))
    assert (action, eleventh.message, eleventh.count) == (Action.UPDATE, COMBINED + "cup 10", 2)
    assert eleventh.metadata.name == tenth.metadata.name
    action, event = bench.feed(make_event("cup 3"))
    assert (action, event.message, event.count) == (Action.UPDATE, "cup 3", 2)
    for other in (make_event("x", reason="Spilled"), make_event("x", about=replace(KETTLE, uid="u-2"))):
        assert bench.feed(other)[1].message == "x"


@pytest.mark.parametrize(("silence", "combined"), [(600.0, True), (600.1, False)])
def test_ten_quiet_minutes_end_the_similarity_and_a_busy_hour_does_not(
    bench: Bench, silence: float, combined: bool
) -> None:
    """EV-03, events_cache_test.go:TestEventCorrelator "...-over-time": the window slides with each event."""
    for number in range(9):
        bench.feed(make_event(f"cup {number}"))
        bench.clock.step(599.0)
    bench.clock.step(silence - 599.0)
    assert bench.feed(make_event("last"))[1].message.startswith(COMBINED) is combined


def test_after_25_writes_an_object_may_write_once_in_five_minutes(bench: Bench) -> None:
    """EV-05, events_cache_test.go:TestEventSpamFilter, TestEventCorrelator "...-is-spam-if-happens-too-frequently".

    The budget never grows past its burst: after any quiet time, however long, no more than 25 writes pass at once.
    """
    actions = [bench.feed(make_event())[0] for _ in range(30)]
    assert actions == [Action.CREATE] + [Action.UPDATE] * 24 + [Action.SKIP] * 5
    bench.clock.step(299.0)
    assert bench.feed(make_event())[0] is Action.SKIP
    bench.clock.step(1.0)
    action, event = bench.feed(make_event())
    assert (action, event.count) == (Action.UPDATE, 32), "what was not written has been counted all the same"
    assert bench.feed(make_event())[0] is Action.SKIP
    bench.clock.step(1_000_000.0)
    assert [bench.feed(make_event())[0] for _ in range(26)].count(Action.SKIP) == 1


def test_a_flood_of_normal_events_silences_no_warning_and_no_other_object(bench: Bench) -> None:
    """EV-05: the type is part of the key, as in new client-go."""
    for _ in range(40):
        bench.feed(make_event())
    assert bench.feed(make_event())[0] is Action.SKIP
    assert bench.feed(make_event(event_type="Warning"))[0] is Action.CREATE
    assert bench.feed(make_event(about=replace(KETTLE, uid="u-2")))[0] is Action.CREATE


def test_fifty_replicas_cost_25_writes_and_read_as_nine_names_and_a_count_for_each_kind(bench: Bench) -> None:
    """EV-03, EV-05, EV-07: a job that creates fifty services and fifty pods within a second."""
    actions, last = [], {}
    for number in range(50):
        for kind in ("service", "pod"):
            action, event = bench.feed(make_event(f"Created {kind}: {number}", reason=f"SuccessfulCreate{kind}"))
            actions.append(action)
            last[event.metadata.name] = event
    assert Counter(actions) == {Action.CREATE: 20, Action.UPDATE: 5, Action.SKIP: 75}
    combined = [event for event in last.values() if event.message.startswith(COMBINED)]
    assert len(last) == 20
    assert [event.count for event in combined] == [41, 41]


def test_the_budget_of_an_object_that_was_quiet_for_long_is_forgotten(bench: Bench) -> None:
    """EV-06: nothing is remembered of objects that are gone."""
    for _ in range(SPAM_BURST):
        bench.feed(make_event())
    bench.clock.step(KEPT_S + 1.0)
    bench.correlator.forget_old()
    assert Action.SKIP not in [bench.feed(make_event())[0] for _ in range(SPAM_BURST)]


def test_the_budget_of_an_object_that_is_driven_out_is_forgotten(bench: Bench) -> None:
    """EV-06: the objects of a busy cluster are without number, and so would their budgets be."""
    small = Bench(cache_size=2)
    first = [small.feed(make_event(about=replace(KETTLE, uid="1")))[0] for _ in range(SPAM_BURST + 1)]
    assert first[-1] is Action.SKIP
    for uid in ("2", "3", "1"):
        action, event = small.feed(make_event(about=replace(KETTLE, uid=uid)))
        assert (action, event.count) == (Action.CREATE, 1), "it also counts from one again"


steps = st.tuples(
    st.sampled_from(["a", "b"]),  # the object
    st.sampled_from(["Normal", "Warning"]),
    st.integers(0, 14),  # the message
    st.sampled_from([0.0, 0.1, 1.0, 601.0]),  # the pause after it
)


@given(st.lists(steps, max_size=150))
def test_no_count_is_ever_lost(history: list[tuple[str, str, int, float]]) -> None:
    """EV-07: each event adds one to one record, written or not, and a record never counts back or changes its object."""
    bench = Bench()
    counts: Counter[str] = Counter()
    owners: dict[str, tuple[ObjectReference, str]] = {}
    for uid, event_type, message, pause in history:
        about = replace(KETTLE, uid=uid)
        action, event = bench.feed(make_event(f"cup {message}", about=about, event_type=event_type))
        name = event.metadata.name
        counts[name] += 1
        assert event.count == counts[name]
        assert owners.setdefault(name, (about, event_type)) == (about, event_type)
        assert action is not Action.CREATE or event.count == 1
        assert action is not Action.UPDATE or event.count > 1
        bench.clock.step(pause)
    assert counts.total() == len(history)


def test_a_warning_drives_out_the_newest_normal_event() -> None:
    """EV-01, our own rule: what went wrong is what people look for."""
    buffer = EventBuffer(3)
    one, two = make_event("1"), make_event("2")
    warnings = [make_event(f"w{number}", event_type="Warning") for number in range(4)]
    turned_away = [buffer.put(event) for event in (one, two, *warnings)]
    assert turned_away == [None, None, None, two, one, warnings[3]], "a warning gives way to none"
    assert buffer.drain() == warnings[:3]


async def test_a_reader_waits_for_an_event_and_for_the_end() -> None:
    """EV-09: what waits when the buffer is closed is still handed out; without the end, `run` would never end."""
    buffer, event = EventBuffer(3), make_event()
    reader = asyncio.create_task(buffer.get())
    await asyncio.sleep(1.0)
    assert not reader.done()
    buffer.put(event)
    assert await reader == event
    late = asyncio.create_task(EventBuffer.get(other := EventBuffer(3)))
    await asyncio.sleep(1.0)
    other.close()
    assert await late is None
    buffer.put(event)
    buffer.close()
    assert buffer.put(event) == event
    assert [await buffer.get(), await buffer.get()] == [event, None]


@given(st.integers(1, 4), st.lists(st.sampled_from(["Normal", "Warning", "take"]), max_size=30))
def test_every_event_is_handed_out_or_turned_away_exactly_once(size: int, script: list[str]) -> None:
    """EV-01: and no Warning is turned away while a Normal event waits."""
    buffer = EventBuffer(size)
    waiting: list[Event] = []
    for number, step in enumerate(script):
        if step == "take":
            if waiting:
                assert buffer._pop() == waiting.pop(0)
            continue
        event = make_event(str(number), event_type=step)
        waiting.append(event)
        left_out = buffer.put(event)
        if left_out is not None:
            waiting.remove(left_out)
            assert left_out.type == "Normal" or all(other.type == "Warning" for other in waiting)
        assert len(buffer) == len(waiting) <= size
    assert buffer.drain() == waiting


def test_what_was_not_used_for_long_goes_though_there_is_room() -> None:
    """EV-06: events of objects that are gone are not remembered for ever."""
    clock = FakeClock()
    cache: LRUCache[str, int] = LRUCache(clock, 9)
    cache.put("a", 1)
    cache.put("b", 2)
    clock.step(KEPT_S)
    assert cache.get("a") == 1
    clock.step(1.0)
    cache.drop_old()
    assert (cache.get("a"), cache.get("b"), len(cache)) == (1, None, 1)


@given(size=st.integers(1, 4), uses=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_it_behaves_like_a_list_in_the_order_of_use(size: int, uses: Sequence[tuple[bool, int]]) -> None:
    """EV-06, against a model."""
    cache: LRUCache[int, int] = LRUCache(FakeClock(), size)
    model: list[tuple[int, int]] = []
    for step, (is_put, key) in enumerate(uses):
        known = dict(model)
        if is_put:
            cache.put(key, step)
            known[key] = step
        else:
            assert cache.get(key) == known.get(key)
        if key in known:
            model = [entry for entry in model if entry[0] != key] + [(key, known[key])]
        model = model[-size:]
        assert len(cache) == len(model)
