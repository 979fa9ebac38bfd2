"""The model of the API server answers the script of `simulation.conformance.chapters` as real servers of both ages did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hack.kubernetes_versions import Kubernetes
from simulation.conformance.chapters import CHAPTERS
from simulation.conformance.model import play_on_model

if TYPE_CHECKING:
    from simulation.conformance.chapters import Chapter

RECORDINGS: Final = Path(__file__).parents[1] / "data" / "recordings"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
@pytest.mark.parametrize("version", ["1.20.2", "1.36.3"])
async def test_the_model_answers_as_the_api_server_of_its_version_did(chapter: Chapter, version: str) -> None:
    """What the simulation believes of the API server was true of it (SV-01 to SV-12)."""
    recorded = json.loads((RECORDINGS / version / "conformance" / f"{chapter.__name__}.json").read_text())
    assert await play_on_model(chapter, Kubernetes.parse(version)) == [_line(each) for each in recorded]


def _line(recorded: dict[str, Any]) -> tuple[str, int, Any]:
    return recorded["asked"], recorded["status"], recorded["answer"]
