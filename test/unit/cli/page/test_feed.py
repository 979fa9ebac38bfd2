"""What browsers are sent: the latest states, numbered; a slow browser costs nothing."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.page.board import MOST_GONE, Feed

CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"1", b"2", None])))


def caught_up(feed: Feed[bytes], known: dict[str, bytes], number: int) -> dict[str, bytes]:
    """What a reader that had `known` at `number` knows after one update."""
    update = feed.since(number)
    found = {} if update.full else dict(known)
    for key, body in update.changed:
        if body is None:
            found.pop(key, None)
        else:
            found[key] = body
    return found


@given(CHANGES, CHANGES)
def test_whoever_has_seen_a_number_gets_what_is_there_now(
    before: list[tuple[str, bytes | None]], after: list[tuple[str, bytes | None]]
) -> None:
    """With each key once, whatever happened meanwhile."""
    feed = Feed[bytes]()
    for key, body in before:
        feed.put(key, body)
    number, known = feed.number, caught_up(feed, {}, 0)
    for key, body in after:
        feed.put(key, body)
    assert caught_up(feed, known, number) == caught_up(feed, {}, 0)
    changed = feed.since(number).changed
    assert len({key for key, _ in changed}) == len(changed)


def test_what_is_put_again_is_no_news() -> None:
    """A pod's heartbeat changes no row."""
    feed = Feed[bytes]()
    assert feed.put("a", b"1")
    assert not feed.put("a", b"1")
    assert not feed.put("b", None)
    assert feed.number == 1


def test_deletions_are_forgotten_after_so_many_and_late_readers_get_everything() -> None:
    """So memory is bounded by what is there."""
    feed = Feed[bytes]()
    feed.put("stays", b"1")
    for each in range(MOST_GONE + 5):
        feed.put(f"job-{each}", b"1")
        feed.put(f"job-{each}", None)
    assert feed.since(2).full
    assert not feed.since(feed.number - 4).full
    assert len(feed._entries) == MOST_GONE + 1


def test_a_number_of_the_future_gets_everything() -> None:
    """It comes from an earlier process."""
    feed = Feed[bytes]()
    feed.put("a", b"1")
    assert feed.since(99).full


async def test_readers_wait_for_what_is_announced_together() -> None:
    """And never miss what was announced before they waited."""
    feed = Feed[bytes]()
    waiting = asyncio.create_task(feed.wait(feed.rounds))
    await asyncio.sleep(0)
    feed.put("a", b"1")
    assert not waiting.done()
    feed.announce()
    await waiting
    await feed.wait(0)
