"""Curves stay small, whatever a log tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.training import Curves, Point


def steps_of(curves: Curves, name: str = "loss") -> list[int]:
    return [point.step for point in curves.by_name[name]]


def test_what_is_told_again_of_a_step_replaces_what_was_told() -> None:
    """A training that goes on from a checkpoint repeats steps."""
    curves = Curves()
    curves.add([Point(step, "loss", 1.0) for step in (10, 20, 30, 40)])
    curves.add([Point(25, "loss", 2.0), Point(35, "loss", 3.0)])
    assert [(point.step, point.value) for point in curves.by_name["loss"]] == [(10, 1), (20, 1), (25, 2), (35, 3)]


def test_a_long_curve_keeps_its_shape_and_its_ends() -> None:
    """Every second, fourth, eighth point: evenly, from the first to the last."""
    curves = Curves(most_points=8)
    curves.add(Point(step, "loss", 0.0) for step in range(101))
    assert steps_of(curves) == [0, 16, 32, 48, 64, 80, 96, 100]


def test_there_are_no_more_curves_than_a_page_can_show() -> None:
    """A log may tell of a thousand names."""
    curves = Curves(most_names=2)
    curves.add(Point(1, name, 0.0) for name in ("a", "b", "c", "a"))
    assert list(curves.by_name) == ["a", "b"]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(2, 10))
def test_steps_only_grow_and_the_last_point_is_the_newest(steps: list[int], most: int) -> None:
    """In whichever order they come; and there are never more points than `most`, except for the last one."""
    curves = Curves(most_points=most)
    curves.add(Point(step, "loss", 0.0) for step in steps)
    told = steps_of(curves)
    assert told == sorted(set(told))
    assert told[-1] == steps[-1]
    assert len(told) <= most + 1
