"""What the browsers of one page are sent, and when: the latest states, numbered; a slow browser costs nothing."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hack.objects import CREATED_S, job
from tfjob_operator.cli.page.board import BATCH_S, MAX_DELETIONS, POLL_S, STATE, Board, ChangeFeed
from tfjob_operator.cli.page.cluster import background_tasks
from tfjob_operator.cli.page.objects import PageJob

CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"1", b"2", None])))


def caught_up(feed: ChangeFeed[bytes], known: dict[str, bytes], number: int) -> dict[str, bytes]:
    """What a reader that had `known` at `number` knows after one update."""
    update = feed.since(number)
    found = ({} if update.full else known) | dict(update.changed)
    return {key: body for key, body in found.items() if body is not None}


@given(CHANGES, CHANGES)
def test_whoever_has_seen_a_number_gets_what_is_there_now(
    before: list[tuple[str, bytes | None]], after: list[tuple[str, bytes | None]]
) -> None:
    """Each key comes once. A row that is put again unchanged, as after the heartbeat of a pod, is not sent."""
    feed = ChangeFeed[bytes]()
    for key, body in before:
        feed.put(key, body)
    number, known = feed.number, caught_up(feed, {}, 0)
    assert not [key for key in "abc" if feed.put(key, known.get(key))]
    assert feed.number == number
    for key, body in after:
        feed.put(key, body)
    assert caught_up(feed, known, number) == caught_up(feed, {}, 0)
    changed = feed.since(number).changed
    assert len({key for key, _ in changed}) == len(changed)


def test_deletions_are_forgotten_after_so_many_and_late_readers_get_everything() -> None:
    """So memory is bounded by what is there. A number of the future comes from an earlier process."""
    feed = ChangeFeed[bytes]()
    feed.put("stays", b"1")
    for each in range(MAX_DELETIONS + 5):
        feed.put(f"job-{each}", b"1")
        feed.put(f"job-{each}", None)
    assert feed.since(2).full
    assert feed.since(feed.number + 1).full
    assert not feed.since(feed.number - 4).full
    assert len(feed._entries) == MAX_DELETIONS + 1


async def test_readers_wait_for_what_is_announced_together() -> None:
    """And never miss what was announced before they waited."""
    feed = ChangeFeed[bytes]()
    waiting = asyncio.create_task(feed.wait(feed.rounds))
    await asyncio.sleep(0)
    feed.put("a", b"1")
    assert not waiting.done()
    feed.announce()
    await waiting
    await feed.wait(0)


def state_of(board: Board) -> dict[str, Any]:
    """The state of the page that a browser would be sent."""
    row = dict(board.feed.since(0).changed)[STATE]
    found: dict[str, Any] = json.loads(row.whole if row is not None else b"")
    return found


async def test_of_an_empty_cluster_it_is_told_that_all_was_read() -> None:
    """No job, pod or event changes then: browsers would wait for ever."""
    cluster = caches({})
    cluster.has_synced = False
    board = Board({})
    async with background_tasks(board.run(cluster)):
        await asyncio.sleep(10 * POLL_S)
        assert not state_of(board)["synced"]
        cluster.has_synced = True
        await asyncio.sleep(2 * (POLL_S + BATCH_S))
        assert state_of(board)["synced"]
        rounds = board.feed.rounds
        await asyncio.sleep(10 * POLL_S)
        assert board.feed.rounds == rounds


def caches(jobs: dict[str, PageJob | None]) -> Any:
    """Caches with these jobs and nothing else."""
    parts = {"job": jobs.get, "workload_of": lambda _: None, **dict.fromkeys(("pods_of", "events_of"), lambda _: [])}
    return SimpleNamespace(scope="", has_synced=True, read_errors={}, places=frozenset(), **parts)


async def test_a_reason_that_changes_with_time_alone_is_sent_again() -> None:
    """A job without pods is sick after a minute, and a delayed restart is due at its time."""
    began, loop = asyncio.get_running_loop().time(), asyncio.get_running_loop()
    delayed = job("delayed", "Restarting", status={"nextRestartTime": "2026-03-01T10:00:20Z"})
    board = Board({}, clock=lambda: CREATED_S + loop.time() - began)
    notes: list[list[str]] = []
    async with background_tasks(board.run(caches({"team/stuck": job("stuck", "Created"), "team/delayed": delayed}))):
        board.changed("team/stuck")
        board.changed("team/delayed")
        for wait_s in (1, 20, 40, 30):
            await asyncio.sleep(wait_s)
            rows = {key: json.loads(row.whole) for key, row in board.feed.since(0).changed if row is not None}
            notes.append([rows["team/stuck"]["note"], rows["team/delayed"]["note"]])
    assert notes == [
        ["Starting", "BackOff"],
        ["Starting", "Restarting"],
        ["NotReconciled", "Restarting"],
        ["NotReconciled", "NotReconciled"],
    ]


async def test_a_job_that_is_created_anew_is_another_one_also_for_a_browser_that_missed_the_deletion() -> None:
    """Its changes are not counted from the beginning again."""
    jobs: dict[str, PageJob | None] = {}
    cluster = caches(jobs)
    board, seen = Board({}), []
    async with background_tasks(board.run(cluster)):
        for each in (job("a", uid="1"), None, job("a", uid="2")):
            jobs["team/a"] = each
            board.changed("team/a")
            await asyncio.sleep(10 * BATCH_S)
            seen.append((board.version("team/a"), json.loads(board.view("team/a") or b"null")))
    [(before, old), (_, gone), (after, new)] = seen
    assert before != after
    assert (old["row"]["uid"], gone, new["row"]["uid"]) == ("1", None, "2")
