"""Plays chapters on the model."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any, Final

from hack.kubernetes_versions import Kubernetes
from simulation.conformance.chapters import Chapter
from simulation.conformance.session import Session
from simulation.model.controllers import GarbageCollector
from simulation.model.kinds import NAMESPACES
from simulation.model.server import ModelServer
from simulation.model.transport import ModelTransport
from tfjob_operator.api.client.http import Request, Transport
from tfjob_operator.api.v1.constants import TFJOBS

WARM_S: Final = 0.5
"""The first request for a custom resource makes a server fill a cache for it; at 1.36.3 that takes a tenth of a second."""


async def warm_up(transport: Transport) -> None:
    """Make the server fill its cache of TFJobs; until that is done it refuses watches."""
    response = await transport.send(Request("GET", TFJOBS.path()))
    await response.body()
    response.close()
    await asyncio.sleep(WARM_S)


async def play_on_model(chapter: Chapter, kubernetes: Kubernetes) -> list[tuple[str, int, Any]]:
    """Play a chapter on a fresh model of a version; return the transcript."""
    server = ModelServer(kubernetes=kubernetes)
    GarbageCollector(server, Random(0), slowest_s=0.1)
    transport = ModelTransport(server, "test")
    body = json.dumps({"metadata": {"name": "test-model"}}).encode()
    await transport.send(Request("POST", NAMESPACES.path(), {}, body))
    await warm_up(transport)
    session = Session(transport, "test-model", lambda version: server.storage.compact(version, caches=False))
    await chapter(session)
    return session.transcript
