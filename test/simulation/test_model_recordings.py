"""The model of the API server answers the recorded requests with the recorded answers.

Groups 10, 13, 14, 15 and 16 of the recordings are not here: the model has no tokens, no server-side apply, no tables, no
compression and no flow control. What is left out within a group says in its line why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hack.kubernetes_versions import Kubernetes
from simulation.conformance.recordings import Player
from simulation.model.server import ModelServer

if TYPE_CHECKING:
    from simulation.conformance.recordings import Step

RECORDINGS: Final = Path(__file__).parents[1] / "data" / "recordings"
GROUPS: Final = sorted(RECORDINGS.glob("*/api/*.jsonl"))

DIFFERING: Final = [group for group in GROUPS if group.stem != "07-status-patch-stale"]
"""Writes of the status are the same in both versions."""


@pytest.mark.parametrize("group", GROUPS, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
async def test_the_model_answers_what_the_api_server_answered(group: Path) -> None:
    """SV-01 to SV-12, RF-27: statuses, bodies, headers that matter, and streams, of servers of both ages."""
    player = Player(ModelServer(kubernetes=Kubernetes.parse(group.parts[-3])))
    differences = [each for step in _steps(group) for each in await player.play(step)]
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("group", DIFFERING, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
async def test_a_model_of_the_other_age_is_found_out(group: Path) -> None:
    """These groups have answers that differ between the versions, so no model can give both."""
    (other,) = {"1.20.2", "1.36.3"} - {group.parts[-3]}
    player = Player(ModelServer(kubernetes=Kubernetes.parse(other)))
    differences = [each for step in _steps(group) for each in await player.play(step)]
    assert differences


def _steps(group: Path) -> list[Step]:
    lines: list[Any] = [json.loads(line) for line in group.read_text().splitlines()]
    return lines[1:]
