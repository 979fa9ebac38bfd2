"""The model API server responds to the script `simulation.conformance.chapters` as a real old and a real new server did."""

from __future__ import annotations

import pytest

from fakes.recordings import VERSIONS, chapter_file
from hack.kubernetes_versions import Kubernetes
from simulation.conformance.chapters import CHAPTERS, Chapter
from simulation.conformance.model import play_on_model
from simulation.conformance.session import read_transcript


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_model_responds_as_the_api_server_of_its_version_did(chapter: Chapter, version: str) -> None:
    """What the simulation assumes about the API server is true for recorded servers (SV-01 to SV-12)."""
    recorded = read_transcript(chapter_file(version, chapter.__name__).read_bytes())
    assert await play_on_model(chapter, Kubernetes.parse(version)) == recorded
