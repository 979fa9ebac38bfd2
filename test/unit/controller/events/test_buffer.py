"""The buffer of events: its order, its bound, and which event is dropped when it is full."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.core import Event
from tfjob_operator.controller.events.recorder import EventBuffer
from unit.controller.events.making import make_event


def normal(message: str) -> Event:
    return make_event(message)


def warning(message: str) -> Event:
    return make_event(message, event_type="Warning")


def messages(buffer: EventBuffer) -> list[str]:
    return [event.message for event in buffer.drain()]


def test_events_leave_in_the_order_in_which_they_came() -> None:
    """EV-01: whatever their types."""
    buffer = EventBuffer(10)
    for event in (normal("1"), warning("2"), warning("3"), normal("4")):
        assert buffer.put(event) is None
    assert messages(buffer) == ["1", "2", "3", "4"]


def test_a_full_buffer_turns_a_normal_event_away() -> None:
    """EV-01: the event is dropped, and `put` returns it."""
    buffer = EventBuffer(2)
    buffer.put(normal("1"))
    buffer.put(warning("2"))
    assert buffer.put(normal("3")) == normal("3")
    assert messages(buffer) == ["1", "2"]


def test_a_warning_drives_out_the_newest_normal_event() -> None:
    """EV-01, our own rule: what went wrong is what people look for."""
    buffer = EventBuffer(3)
    for event in (normal("1"), normal("2"), warning("3")):
        buffer.put(event)
    assert buffer.put(warning("4")) == normal("2")
    assert buffer.put(warning("5")) == normal("1")
    assert buffer.put(warning("6")) == warning("6"), "a warning gives way to none"
    assert messages(buffer) == ["3", "4", "5"]


async def test_a_reader_waits_for_an_event_and_for_the_end() -> None:
    """EV-09: what waits when the buffer is closed is still handed out."""
    buffer = EventBuffer(3)
    reader = asyncio.create_task(buffer.get())
    await asyncio.sleep(1.0)
    assert not reader.done()
    buffer.put(normal("1"))
    assert await reader == normal("1")
    buffer.put(normal("2"))
    buffer.close()
    assert buffer.put(warning("3")) == warning("3")
    assert await buffer.get() == normal("2")
    assert await buffer.get() is None


async def test_closing_wakes_a_reader_that_waits() -> None:
    """EV-09: without it, `run` would never end."""
    buffer = EventBuffer(3)
    reader = asyncio.create_task(buffer.get())
    await asyncio.sleep(1.0)
    buffer.close()
    assert await reader is None


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
