"""Answers that are kept and shared, on virtual time."""

import asyncio

import pytest

from tfjob_operator.cli.page.reviews import ResultCache


class Oracle:
    """Answers after a second; what it says next is `says`."""

    def __init__(self) -> None:
        self.asked = 0
        self.says: str | Exception = "yes"

    async def __call__(self) -> str:
        """Answer."""
        self.asked += 1
        said = self.says
        await asyncio.sleep(1)
        if isinstance(said, Exception):
            raise said
        return said


def keep_s(answer: str) -> float:
    """A yes is good for longer than a no."""
    return 60.0 if answer == "yes" else 5.0


async def test_an_answer_is_used_for_as_long_as_its_kind_allows_counted_from_the_question() -> None:
    """Else a right that was withdrawn while it was asked about would live on for longer."""
    oracle, answers = Oracle(), ResultCache[str]()
    for said, seconds in (("yes", 60), ("no", 5)):
        oracle.says, oracle.asked = said, 0
        await answers.get(said, oracle, keep_s)
        await asyncio.sleep(seconds - 1.1)  # a second has gone by while it was asked
        assert (await answers.get(said, oracle, keep_s)).value == said
        assert oracle.asked == 1
        await asyncio.sleep(0.2)
        await answers.get(said, oracle, keep_s)
        assert oracle.asked == 2


async def test_all_who_wait_for_the_same_answer_share_one_request() -> None:
    """Those who want to know something else do not."""
    oracle, answers = Oracle(), ResultCache[str]()
    got = await asyncio.gather(
        *(answers.get("a", oracle, keep_s) for _ in range(100)), answers.get("b", oracle, keep_s)
    )
    assert {each.value for each in got} == {"yes"}
    assert oracle.asked == 2


async def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    """It is neither yes nor no."""
    oracle, answers = Oracle(), ResultCache[str]()
    oracle.says = OSError("gone")
    got = await asyncio.gather(*(answers.get("a", oracle, keep_s) for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in got] == ["gone"] * 3
    oracle.says = "yes"
    assert (await answers.get("a", oracle, keep_s)).value == "yes"
    assert oracle.asked == 2


async def test_somebody_who_goes_away_takes_the_answer_from_nobody() -> None:
    """A browser that is closed cancels its request, and others wait for the same review."""
    oracle, answers = Oracle(), ResultCache[str]()
    first = asyncio.create_task(answers.get("a", oracle, keep_s))
    second = asyncio.create_task(answers.get("a", oracle, keep_s))
    await asyncio.sleep(0.5)
    first.cancel()
    assert (await second).value == "yes"
    assert oracle.asked == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_oldest_of_many_answers_is_dropped() -> None:
    """However many wrong tokens somebody sends, memory is bounded."""
    oracle, answers = Oracle(), ResultCache[str](most=3)
    for question in "abcd":
        await answers.get(question, oracle, keep_s)
    await answers.get("d", oracle, keep_s)
    await answers.get("b", oracle, keep_s)
    assert oracle.asked == 4
    await answers.get("a", oracle, keep_s)
    assert oracle.asked == 5


async def test_closing_ends_what_is_under_way() -> None:
    """And whoever still waits is told by a cancellation."""
    oracle, answers = Oracle(), ResultCache[str]()
    waiting = asyncio.create_task(answers.get("a", oracle, keep_s))
    await asyncio.sleep(0.5)
    await answers.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
