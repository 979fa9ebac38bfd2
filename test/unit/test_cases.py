"""`for_each`: every case runs, and the one that fails is named."""

from __future__ import annotations

import pytest

from support.cases import for_each


def test_each_value_is_tried_with_the_other_arguments() -> None:
    seen = []

    @for_each("code", range(3))
    def body(code: int, mode: str) -> None:
        seen.append((code, mode))

    body(mode="a")
    assert seen == [(0, "a"), (1, "a"), (2, "a")]


async def test_coroutines_are_awaited_one_by_one() -> None:
    seen = []

    @for_each("code", [1, 2])
    async def body(code: int) -> None:
        seen.append(code)

    await body()
    assert seen == [1, 2]


def test_a_case_that_fails_is_named_and_ends_the_test() -> None:
    @for_each("code", range(5))
    def body(code: int) -> None:
        assert code < 3

    with pytest.raises(AssertionError) as raised:
        body()
    assert raised.value.__notes__ == ["in the case code=3"]


@pytest.mark.parametrize("left", [1, 2])
@for_each("right", [3, 4])
def test_it_goes_together_with_parameters(left: int, right: int) -> None:
    assert left < right
