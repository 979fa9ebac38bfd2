"""The model of the API server answers the recorded requests with the recorded responses.

Groups 10, 13, 14, 15 and 16 of the recordings are not here: the model has no tokens, no server-side apply, no tables, no
compression and no flow control. A request that is left out within a group has the reason in its line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from fakes.recordings import VERSIONS, api_groups
from hack.kubernetes_versions import Kubernetes
from simulation.conformance.recordings import Player, Step
from simulation.model.server import ModelServer

GROUPS: Final = [pytest.param(version, path, id=f"{version}/{path.stem}") for version, path in api_groups()]
DIFFERING: Final = [group for group in GROUPS if not str(group.id).endswith("07-status-patch-stale")]
"""All but the group whose responses, to writes of the status, are the same in both versions."""


@pytest.mark.parametrize(("version", "group"), GROUPS)
async def test_the_model_responds_as_the_api_server_did(version: str, group: Path) -> None:
    """SV-01 to SV-12, RF-27: statuses, bodies, relevant headers and streams, of an old and a new server."""
    player = Player(ModelServer(kubernetes=Kubernetes.parse(version)))
    differences = [each for step in _steps(group) for each in await player.play(step)]
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize(("version", "group"), DIFFERING)
async def test_a_model_of_the_other_age_is_found_out(version: str, group: Path) -> None:
    """These groups have responses that differ between the versions, so no model can give both."""
    (other,) = {*VERSIONS} - {version}
    player = Player(ModelServer(kubernetes=Kubernetes.parse(other)))
    differences = [each for step in _steps(group) for each in await player.play(step)]
    assert differences


def _steps(group: Path) -> list[Step]:
    lines: list[Any] = [json.loads(line) for line in group.read_text().splitlines()]
    return lines[1:]
