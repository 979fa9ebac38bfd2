"""Answers that are kept and shared, on virtual time."""

import asyncio

import pytest

from tfjob_operator.cli.page.reviews import MAX_CACHED, ResultCache


class Oracle:
    """Answers after a second; what it says next is `says`. A yes is good for longer than a no."""

    def __init__(self, most: int = MAX_CACHED) -> None:
        self.answers = ResultCache[str](most)
        self.asked = 0
        self.says: str | Exception = "yes"

    async def get(self, question: str) -> str:
        """Return its answer, or one that was kept."""
        found = await self.answers.get(question, self._answer, lambda answer: 60 if answer == "yes" else 5)
        return found.value

    async def _answer(self) -> str:
        self.asked += 1
        said = self.says
        await asyncio.sleep(1)
        if isinstance(said, Exception):
            raise said
        return said


async def test_an_answer_is_used_for_as_long_as_its_kind_allows_counted_from_the_question() -> None:
    """Else a right that was withdrawn while it was asked about would live on for longer."""
    oracle = Oracle()
    for said, seconds in (("yes", 60), ("no", 5)):
        oracle.says, oracle.asked = said, 0
        await oracle.get(said)
        await asyncio.sleep(seconds - 1.1)  # a second has gone by while it was asked
        assert await oracle.get(said) == said
        assert oracle.asked == 1
        await asyncio.sleep(0.2)
        await oracle.get(said)
        assert oracle.asked == 2


async def test_all_who_wait_for_the_same_answer_share_one_request() -> None:
    """Those who want to know something else do not."""
    oracle = Oracle()
    got = await asyncio.gather(*(oracle.get("a") for _ in range(100)), oracle.get("b"))
    assert {*got} == {"yes"}
    assert oracle.asked == 2


async def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    """It is neither yes nor no."""
    oracle = Oracle()
    oracle.says = OSError("gone")
    got = await asyncio.gather(*(oracle.get("a") for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in got] == ["gone"] * 3
    oracle.says = "yes"
    assert await oracle.get("a") == "yes"
    assert oracle.asked == 2


async def test_somebody_who_goes_away_takes_the_answer_from_nobody() -> None:
    """A browser that is closed cancels its request, and others wait for the same review."""
    oracle = Oracle()
    first = asyncio.create_task(oracle.get("a"))
    second = asyncio.create_task(oracle.get("a"))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == "yes"
    assert oracle.asked == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_oldest_of_many_answers_is_dropped() -> None:
    """However many wrong tokens somebody sends, memory is bounded."""
    oracle = Oracle(most=3)
    for question in "abcd":
        await oracle.get(question)
    await oracle.get("d")
    await oracle.get("b")
    assert oracle.asked == 4
    await oracle.get("a")
    assert oracle.asked == 5
