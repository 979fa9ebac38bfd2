"""Every world that a small job can get into: nothing wrong is ever done, and from each one the cluster comes to rest as asked.

Eventually stable reconciliation, as Anvil proves it, by exhaustion: the real plan, expectations, queue, stores, executor and
status writer against a model of API server, kubelet and user, in every order in which things can happen. What goes wrong
(crashes, lost answers, failing pods ...) is bounded in number, and everything else only by the size of the job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from worlds.search import search
from worlds.settings import SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

UNBOUNDED = 1000
"""Events that a watch may lag behind; no job here has so many."""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_world_is_safe_and_leads_to_rest(
    setting: Setting,
    deep: int | None,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """B42, EX-04, EX-06, EX-08: never two pods for an index, none for a finished one or a job that wants none, no end left.

    M1, M2, M3, M4, M10: what has ended stays, and no end is taken for another.
    """
    surprises = setting.surprises
    if not setting.everyday and deep is None:
        pytest.skip("takes too long for every day: see --deep")
    if deep is not None:
        unbounded = replace(setting, lags=setting.lags | {"tfjobs", "pods"}, lag=UNBOUNDED, runs_at_once=False)
        setting, surprises = unbounded, surprises + deep
    report = search(setting, surprises)
    record_property("worlds", report.worlds)
    with capsys.disabled():
        print(f"\n  {report}", end=" ")  # noqa: T201 - how much was seen is the result


def test_the_same_search_sees_the_same_worlds() -> None:
    """A failure can be looked at again."""
    setting = next(setting for setting in SETTINGS if setting.name == "a stranger in the way")
    assert search(setting, 0) == search(setting, 0)
