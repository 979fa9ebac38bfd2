"""The pure part of the benchmarks: results and their table, ratios and percentiles, Python's import times, the pods' bodies.

Nothing here is measured: speed depends on the machine, and no test may depend on it.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.bench.cluster import PODS_PER_JOB, pod_body
from hack.bench.programs import parse, shares
from hack.bench.result import Entry, Result, at_least, at_most, interleaved, merged, percentile, ratio, table

RESULTS = [
    Result("informer_sync_speedup", 7.984, "x", at_least(6)),
    Result("informer_memory_ratio", 0.0712, "x", at_most(1 / 15)),
    Result("workqueue_ops", 1_165_131.4, "ops/s"),
]


def entry(name: str, value: float) -> Entry:
    """A line of the results file."""
    return {"name": name, "value": value, "unit": "x", "goal": None, "met": None}


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(5.999, False, True), (6.0, True, True), (6.001, True, False)],
    ids=["below", "at", "above"],
)
def test_a_goal_is_met_at_its_bound_and_on_its_good_side(value: float, low: bool, high: bool) -> None:
    """6 meets the goal "at least 6", and "at most 6" too."""
    assert Result("r", value, "x", at_least(6)).met is low
    assert Result("r", value, "x", at_most(6)).met is high


def test_an_entry_has_exactly_the_fields_of_the_file() -> None:
    """{name, value, unit, goal, met}, where goal and met are null if nothing was promised."""
    assert [result.entry() for result in RESULTS] == [
        {"name": "informer_sync_speedup", "value": 7.984, "unit": "x", "goal": 6.0, "met": True},
        {"name": "informer_memory_ratio", "value": 0.0712, "unit": "x", "goal": 0.0666667, "met": False},
        {"name": "workqueue_ops", "value": 1_165_130.0, "unit": "ops/s", "goal": None, "met": None},
    ]


def test_rounding_never_decides_whether_a_goal_is_met() -> None:
    """5.9999999 is written as 6, but does not meet the goal of at least 6."""
    assert Result("r", 5.9999999, "x", at_least(6)).entry() == {
        "name": "r",
        "value": 6.0,
        "unit": "x",
        "goal": 6.0,
        "met": False,
    }


def test_the_table_lines_up_and_shows_what_was_measured_before() -> None:
    """A missed goal stands out; numbers are aligned to the right."""
    assert table(RESULTS, {"workqueue_ops": 1_000_000.0, "gone": 1.0}).splitlines() == [
        "name                       value  unit   goal       met     before",
        "------------------------------------------------------------------",
        "informer_sync_speedup       7.98  x      >= 6       yes",
        "informer_memory_ratio     0.0712  x      <= 0.0667  NO",
        "workqueue_ops          1,165,131  ops/s                  1,000,000",
    ]


def test_a_table_of_nothing_is_its_head() -> None:
    """As when nothing could be measured."""
    assert len(table([], {}).splitlines()) == 2


def test_a_partial_run_replaces_its_own_lines_alone() -> None:
    """They are replaced in place; new lines come last."""
    kept = [entry("a", 1), entry("b", 2), entry("c", 3)]
    assert merged(kept, [entry("d", 40), entry("b", 20)]) == [
        entry("a", 1),
        entry("b", 20),
        entry("c", 3),
        entry("d", 40),
    ]
    assert merged([], [entry("a", 1)]) == [entry("a", 1)]


def test_sides_take_turns() -> None:
    """The order is A B B A, so that a slow moment of the machine hits both, and neither always comes second."""
    turns: list[str] = []

    def side(name: str) -> int:
        turns.append(name)
        return len(turns)

    assert interleaved({"a": lambda: side("a"), "b": lambda: side("b")}, 3) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert turns == ["a", "b", "b", "a", "a", "b"]


def test_a_ratio_compares_runs_that_followed_each_other() -> None:
    """The machine is twice as slow in the second round and stuck in one half of the third: the result is still 3."""
    assert ratio([3.0, 6.0, 90.0], [1.0, 2.0, 3.0]) == 3.0


@pytest.mark.parametrize(("above", "below"), [([], []), ([1.0], []), ([1.0, 2.0], [1.0])])
def test_there_is_no_ratio_of_what_was_not_measured_together(above: list[float], below: list[float]) -> None:
    """Each round has both sides."""
    with pytest.raises(ValueError, match="measurements against"):
        ratio(above, below)


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0, 1, exclude_min=True))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[float], share: float) -> None:
    """It is one of the values; the values up to it are at least that share of all, those below it less."""
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_a_percentile_of_nothing_is_refused(values: list[float], share: float) -> None:
    """So is a share that is not between 0 and 1."""
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, share)


IMPORTS = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 |   encodings
import time:        50 |        150 | site
import time:      2000 |       2000 |         pydantic.main
import time:      3000 |       5000 |       kubernetes.client.models
{"event":"operator_starting"}
import time:      1000 |       6000 |     kubernetes.client
import time:       400 |       6400 |   tfjob_operator.api.client.auth.settings
import time:       700 |        700 |     multidict
import time:       800 |       1500 |   prometheus_client
import time:       600 |       8500 | tfjob_operator.api.client
import time:        10 |         10 | pydantic
"""


def test_imports_are_read_from_among_other_output() -> None:
    """The head of the table and the operator's log are no imports."""
    found = parse(IMPORTS.splitlines())
    assert len(found) == 10
    assert (found[0].own, found[0].depth, found[0].root) == (100, 1, "encodings")
    assert (found[3].own, found[3].depth, found[3].root) == (3000, 3, "kubernetes")


def test_an_import_counts_for_whoever_asked_first() -> None:
    """pydantic's time counts for kubernetes, which imported it first, though one of our modules imported kubernetes."""
    assert shares(parse(IMPORTS.splitlines())) == pytest.approx(
        {"kubernetes": 6.0, "prometheus_client": 1.5, "ours": 1.0, "rest": 0.16}
    )


def test_every_pod_has_a_name_of_its_own_and_is_a_tfjob_s() -> None:
    """The pods are those of three jobs."""
    bodies = [pod_body(number, "bench") for number in range(3 * PODS_PER_JOB)]
    assert len({body["metadata"]["name"] for body in bodies}) == len(bodies)
    assert len({body["metadata"]["ownerReferences"][0]["uid"] for body in bodies}) == 3
    env = bodies[-1]["spec"]["containers"][0]["env"][0]
    assert env["name"] == "TF_CONFIG"
    assert 900 < len(env["value"]) < 1100
