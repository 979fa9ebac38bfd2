"""The model's side of a conversation."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from api.client.transport import Request
from simulation.conformance.session import Session
from simulation.model.controllers import GarbageCollector
from simulation.model.kinds import NAMESPACES
from simulation.model.server import ModelServer
from simulation.model.transport import ModelTransport

if TYPE_CHECKING:
    from hack.kubernetes_versions import Kubernetes
    from simulation.conformance.chapters import Chapter


async def play_on_model(chapter: Chapter, kubernetes: Kubernetes) -> list[tuple[str, int, Any]]:
    """Play a chapter on a fresh model of a version; answers the transcript."""
    server = ModelServer(kubernetes=kubernetes)
    GarbageCollector(server, Random(0), slowest_s=0.1)
    transport = ModelTransport(server, "test")
    body = json.dumps({"metadata": {"name": "test-model"}}).encode()
    await transport.send(Request("POST", NAMESPACES.path(), {}, body))
    session = Session(transport, "test-model", lambda version: server.storage.compact(version, caches=False))
    await chapter(session)
    return session.transcript
