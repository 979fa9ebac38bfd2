"""Every world that a small job can get into: nothing wrong is ever done, and each world comes to rest as the user asked.

This is what Anvil proves as eventually stable reconciliation, here by exhaustive search: the real plan, expectations, queue,
stores, executor and status writer run against a model of API server, kubelet and user, in every order in which things can
happen. Only the number of failures (crashes, lost responses, failing pods ...) and the size of the job are bounded.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from worlds.search import search
from worlds.settings import SETTINGS, Setting

UNBOUNDED = 1000
"""Events that a watch may lag behind; no job here has so many."""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_world_is_safe_and_leads_to_rest(setting: Setting, deep: int | None) -> None:
    """B42, EX-04, EX-06, EX-08: never two pods for an index, none for a finished one or a job that needs none; an end is final.

    M1, M2, M3, M4, M10: pods that have ended stay, and no kind of end is mistaken for another.
    """
    surprises = setting.surprises
    if not setting.everyday and deep is None:
        pytest.skip("takes too long for every day: see --deep")
    if deep is not None:
        unbounded = replace(setting, lags=setting.lags | {"tfjobs", "pods"}, lag=UNBOUNDED, runs_at_once=False)
        setting, surprises = unbounded, surprises + deep
    search(setting, surprises)


def test_the_same_search_sees_the_same_worlds() -> None:
    """Two searches of one setting find the same, so that a failure can be reproduced."""
    setting = next(setting for setting in SETTINGS if setting.name == "a stranger in the way")
    assert search(setting, 0) == search(setting, 0)
