"""The timeline of a job as the page draws it."""

from __future__ import annotations

from tfjob_operator.cli.page.views import MOST_LANES, timeline_view
from unit.cli.page.things import CREATED_S, ended, job, pod


def test_lanes_have_the_lives_of_pods_in_seconds() -> None:
    """The oldest first; what goes on has no end."""
    view = timeline_view(job("mnist", "Running"), [pod("mnist"), pod("mnist", "PS", status=ended(3))], [])
    ps, worker = view["lanes"]
    assert (ps["type"], ps["index"], worker["type"]) == ("PS", 0, "Worker")
    assert (view["start"], view["end"]) == (CREATED_S, None)
    [life] = ps["lives"]
    assert (life["ending"], life["exit"], life["end"]) == ("failed", 3, CREATED_S + 300)
    assert worker["lives"][0]["intervals"][-1] == {
        "state": "running",
        "start": CREATED_S,
        "end": None,
        "reason": "",
        "exit": None,
    }


def test_a_suspension_is_a_span_over_all_lanes() -> None:
    """It begins with the condition."""
    [span] = timeline_view(job("mnist", "Suspended"), [], [])["spans"]
    assert (span["kind"], span["start"], span["end"]) == ("suspended", CREATED_S, None)


def test_of_a_large_job_so_many_lanes_are_drawn_and_the_others_counted() -> None:
    """A browser has to draw them."""
    view = timeline_view(job(), [pod("mnist", "Worker", index) for index in range(MOST_LANES + 7)], [])
    assert (len(view["lanes"]), view["more"]) == (MOST_LANES, 7)
