"""Lists of names of replicas in texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.v1.types import child_name, is_named, names_in, ranges_of


def named(*indices: int) -> str:
    """The text about these workers."""
    return ranges_of(child_name("j", "Worker", index) for index in indices)


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([], ""),
        ([3], "j-worker-3"),
        ([0, 1], "j-worker-0 .. j-worker-1"),
        ([0, 1, 2, 3, 7, 9, 10], "j-worker-0 .. j-worker-3, j-worker-7, j-worker-9 .. j-worker-10"),
    ],
)
def test_neighbours_are_written_as_ranges(indices: list[int], text: str) -> None:
    """Sixty-four pods fit into one line."""
    assert named(*indices) == text


@given(st.sets(st.integers(0, 40)), st.integers(0, 40))
def test_a_name_is_found_where_it_was_written_and_nowhere_else(indices: set[int], index: int) -> None:
    """Any set of replicas."""
    assert is_named(child_name("j", "Worker", index), named(*sorted(indices))) == (index in indices)


@pytest.mark.parametrize(
    "text", ["", ", ", " .. ", "j-worker-0 .. ", "j-worker-0 .. x", "j-ps-0 .. j-ps-9", "j-worker-1 .. j-worker-2"]
)
def test_a_text_that_does_not_have_the_name_may_be_anything(text: str) -> None:
    """Events may come from anybody."""
    assert not is_named("j-worker-5", text)


def test_huge_numbers_cost_nothing() -> None:
    """A forged range is compared, not walked through; numbers that no job has are none."""
    assert is_named("j-worker-5", "j-worker-0 .. j-worker-999999999")
    assert not is_named("j-worker-5", f"j-worker-0 .. j-worker-{'9' * 5000}")


@given(st.sets(st.integers(0, 40)))
def test_what_was_written_is_read_again(indices: set[int]) -> None:
    """Each name once, in order; a forged range has an end."""
    written = [child_name("j", "Worker", index) for index in sorted(indices)]
    assert [name for name in names_in(named(*sorted(indices)), 100) if name] == written
    assert len([*names_in("j-worker-0 .. j-worker-999999999", 100)]) == 100
    assert [*names_in("j-worker-5 .. x", 100)] == ["j-worker-5"]
