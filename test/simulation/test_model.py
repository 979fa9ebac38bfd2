"""The model of the API server behaves like real ones: conformance transcripts, recorded requests, and streams.

Groups 13 to 16 of the recordings are omitted: the model has no tokens, tables, compression or flow control. A chapter covers
group 10, server-side apply. A request omitted within a group has its reason in its line.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_mock import MockerFixture

from fakes.recordings import VERSIONS, api_groups, chapter_file
from hack.kubernetes_versions import NEWEST, TESTED, Kubernetes
from kit.model.kinds import CONFIG_MAPS, NAMESPACES
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from simulation.conformance.chapters import CHAPTERS, Chapter
from simulation.conformance.recordings import Player, Step
from simulation.conformance.session import play_on_model, read_transcript
from simulation.kinds import KINDS_WITH_TFJOBS
from tfjob_operator.api.client.http import Request

RECORDED: Final = [
    pytest.param(version, chapter, id=f"{version}-{chapter.__name__}") for version in TESTED for chapter in CHAPTERS
]


@pytest.mark.parametrize(("version", "chapter"), RECORDED)
async def test_the_model_responds_as_the_api_server_of_its_version_did(chapter: Chapter, version: str) -> None:
    """What the simulation assumes about the API server is true for recorded servers (SV-01 to SV-12)."""
    recorded = read_transcript(chapter_file(version, chapter.__name__).read_bytes())
    assert await play_on_model(chapter, Kubernetes.parse(version)) == recorded


GROUPS: Final = [pytest.param(version, path, id=f"{version}/{path.stem}") for version, path in api_groups()]
DIFFERING: Final = [group for group in GROUPS if not str(group.id).endswith("07-status-patch-stale")]
"""All but the group whose responses, to writes of the status, are the same in both versions."""


@pytest.mark.parametrize(("version", "group"), GROUPS)
async def test_the_model_responds_as_the_api_server_did(version: str, group: Path) -> None:
    """SV-01 to SV-12, RF-27: statuses, bodies, relevant headers and streams, of an old and a new server."""
    player = Player(ModelServer(kinds=KINDS_WITH_TFJOBS, kubernetes=Kubernetes.parse(version).minor))
    differences = [each for step in _steps(group) for each in await player.play(step)]
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize(("version", "group"), DIFFERING)
async def test_a_model_of_the_other_age_is_found_out(version: str, group: Path) -> None:
    """These groups have responses that differ between the versions, so no model can give both."""
    (other,) = {*VERSIONS} - {version}
    player = Player(ModelServer(kinds=KINDS_WITH_TFJOBS, kubernetes=Kubernetes.parse(other).minor))
    differences = [each for step in _steps(group) for each in await player.play(step)]
    assert differences


def _steps(group: Path) -> list[Step]:
    lines: list[Any] = [json.loads(line) for line in group.read_text().splitlines()]
    return lines[1:]


STREAM: Final = {
    "watch": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
    "timeoutSeconds": "10",
}


class ModelNamespace:
    """A model with a namespace and a client."""

    def __init__(self, kubernetes: Kubernetes = NEWEST) -> None:
        self.server = ModelServer(kubernetes=kubernetes.minor)
        self._transport = ModelTransport(self.server, "test")
        self._send("POST", NAMESPACES.path(), {"metadata": {"name": "n"}})

    @property
    def rv(self) -> str:
        return str(self.server.storage.rv)

    def create(self, name: str) -> None:
        self._send("POST", CONFIG_MAPS.path("n"), {"metadata": {"name": name}})

    def delete(self, name: str) -> None:
        self._send("DELETE", CONFIG_MAPS.path("n", name), {})

    async def stream(self, **query: str) -> list[tuple[float, str, str]]:
        """Stream the config maps; return (time, type, name) of each event, or whether a bookmark ends the initial events."""
        loop = asyncio.get_running_loop()
        response = await self._transport.send(Request("GET", CONFIG_MAPS.path("n"), STREAM | query))
        events = []
        async for chunk in response.chunks():
            events += [(loop.time(), *_told(json.loads(line))) for line in chunk.splitlines()]
        return events

    def _send(self, method: str, path: str, body: object) -> None:
        assert self.server.ask("test", method, path, body) < 300


def _told(event: dict[str, Any]) -> tuple[str, str]:
    item = event["object"]
    match event["type"]:
        case "ERROR":
            return "ERROR", str(item["code"])
        case "BOOKMARK":
            return "BOOKMARK", "end" if "annotations" in item["metadata"] else ""
        case kind:
            return kind, item["metadata"]["name"]


@pytest.mark.parametrize(
    ("minor", "code", "why"),
    [
        (20, 422, "resourceVersionMatch is forbidden for watch,"),
        (28, 422, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
        (32, 200, ""),
        (33, 422, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
        (34, 200, ""),
    ],
)
async def test_a_server_that_does_not_stream_lists_refuses_to(minor: int, code: int, why: str) -> None:
    """RF-28: it depends on its version; the feature was on in 1.32, off in 1.33, and is on since 1.34."""
    cluster = ModelNamespace(Kubernetes(minor))
    answer = cluster.server.exchange(Request("GET", CONFIG_MAPS.path("n"), STREAM), "test")
    assert (answer.status, why in answer.body.decode()) == (code, True)


async def test_a_stream_waits_until_the_cache_has_seen_all_that_there_was_when_it_was_asked_for() -> None:
    """RF-27: a list that is streamed without a version is as new as one that is read from etcd."""
    cluster = ModelNamespace()
    collection = cluster.server.storage.collections["configmaps"]
    cluster.create("a")
    cluster.server.storage.freeze(collection)
    cluster.create("b")
    asyncio.get_running_loop().call_later(2.0, cluster.server.storage.thaw, collection)
    events = await cluster.stream()
    assert events[:3] == [(2.0, "ADDED", "a"), (2.0, "ADDED", "b"), (2.0, "BOOKMARK", "end")]


async def test_a_stream_from_a_cache_that_stands_still_fails_after_three_seconds() -> None:
    """RF-27: the client is told to retry, as for a version in the future."""
    cluster = ModelNamespace()
    cluster.server.storage.freeze(cluster.server.storage.collections["configmaps"])
    cluster.create("a")
    assert await cluster.stream() == [(3.0, "ERROR", "504")]


async def test_a_stream_of_a_version_may_begin_with_an_older_state_and_then_tells_the_rest() -> None:
    """RF-27: another API server, whose cache lags, may respond; no event is lost or sent twice."""
    cluster = ModelNamespace()
    cluster.create("a")
    version = cluster.rv
    cluster.delete("a")
    cluster.create("b")
    cluster.server.lag = lambda _, oldest: oldest
    events = await cluster.stream(resourceVersion=version)
    told = [(kind, name) for _, kind, name in events]
    assert told[:4] == [("ADDED", "a"), ("BOOKMARK", "end"), ("DELETED", "a"), ("ADDED", "b")]


@pytest.mark.parametrize("seen", range(4))
async def test_a_stream_breaks_between_any_two_of_its_first_events(mocker: MockerFixture, seen: int) -> None:
    """RF-27: each event is a chunk of its own, so a network can lose the stream after any of them."""
    cluster = ModelNamespace()
    for name in ("a", "b", "c"):
        cluster.create(name)
    watch = cluster.server.exchange(Request("GET", CONFIG_MAPS.path("n"), STREAM), "test").watch
    assert watch is not None
    sink = mocker.Mock()
    sink.send.side_effect = lambda _: watch.close() if sink.send.call_count > seen else None
    cluster.server.opened(watch)
    watch.open(sink, cluster.server.closed)
    cluster.create("d")
    assert [call.args[0].count(b"\n") for call in sink.send.mock_calls] == [1] * (seen + 1)
    assert {name for name, *_ in sink.mock_calls} == {"send"}  # neither side has ended it
    assert cluster.server.open_watches == 0
