"""The model API server of `test/simulation` and the real one: the same requests, the same responses.

The requests (`simulation.conformance.chapters`) are sent to the real server and to a model of its version. The transcripts,
with masked UIDs, times and similar values, must be equal; a difference is a bug of the model. The responses of servers of all
tested versions are in `test/data/recordings/*/conformance`; `test/simulation/test_model.py` compares the models with them
without a server. With `--record` the transcript is written there, under the server's version.
"""

import json

import pytest

from fakes.recordings import chapter_file
from hack.control_plane import ControlPlane
from hack.kubernetes_versions import Kubernetes
from simulation.conformance.chapters import CHAPTERS, Chapter
from simulation.conformance.session import Session, play_on_model, warm_up, write_transcript
from tfjob_operator.api.client import HttpTransport, Request, Settings, load_settings
from tfjob_operator.api.client.http import Transport


@pytest.fixture
def settings(control_plane: ControlPlane) -> Settings:
    """How to reach the server; read here because that blocks."""
    return load_settings(str(control_plane.kubeconfig))


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
async def test_the_model_responds_as_the_api_server_does(
    chapter: Chapter, settings: Settings, control_plane: ControlPlane, namespace: str, pytestconfig: pytest.Config
) -> None:
    """What the simulation assumes about the API server is true, whatever its version (SV-01 to SV-12)."""

    def compact(version: int) -> None:
        control_plane.etcd_call("kv/compaction", {"revision": version, "physical": True})

    async with HttpTransport(settings) as transport:
        version = await _version(transport)
        await warm_up(transport)
        real = Session(transport, namespace, compact)
        await chapter(real)
    if pytestconfig.getoption("--record", default=False):
        file = chapter_file(version, chapter.__name__)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(write_transcript(real.transcript))
    assert await play_on_model(chapter, Kubernetes.parse(version)) == real.transcript


async def _version(transport: Transport) -> str:
    """Such as 1.36.3."""
    response = await transport.send(Request("GET", "/version"))
    try:
        return str(json.loads(await response.body())["gitVersion"]).removeprefix("v")
    finally:
        response.close()
