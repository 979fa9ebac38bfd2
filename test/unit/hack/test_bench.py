"""The pure part of the benchmarks. Nothing here is measured: speed depends on the machine, and no test may depend on it."""

import pytest

from hack.bench import scale
from hack.bench.load import MeasureError, pod_body
from hack.bench.measuring import Bench, Result, interleaved, ratio


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(5.9999999, False, True), (6.0, True, True), (6.001, True, False)],
    ids=["below", "at", "above"],
)
def test_a_goal_is_met_at_its_bound_and_on_its_good_side(value: float, low: bool, high: bool) -> None:
    """6 meets the goal "at least 6", and "at most 6" too. A missed goal stands out in the table."""
    assert Result("r", value, "x", ">= 6").met is low
    assert Result("r", value, "x", "<= 6").met is high
    assert Result("r", value, "x").met is None
    assert str(Result("r", value, "x", ">= 6")).endswith("yes" if low else "NO")


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
    with pytest.raises(ValueError, match="shorter"):
        ratio([1.0, 2.0], [1.0])


def test_every_pod_has_a_name_of_its_own_and_is_a_tfjob_s() -> None:
    """The pods are those of three jobs."""
    bodies = [pod_body(number) for number in range(60)]
    assert len({body["metadata"]["name"] for body in bodies}) == len(bodies)
    assert len({body["metadata"]["ownerReferences"][0]["uid"] for body in bodies}) == 3
    (config,) = (each for each in bodies[-1]["spec"]["containers"][0]["env"] if each["name"] == "TF_CONFIG")
    assert 900 < len(config["value"]) < 1100


def test_the_large_bench_does_not_start_without_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of 24 GB it once left 6 MB, and every program on it stood still."""
    monkeypatch.setattr(scale, "available_memory", lambda: 12_345.0)
    with pytest.raises(MeasureError, match="12,345 MB of memory are available; this bench needs 20,500"):
        scale.measure(Bench())
