"""Reads that confirm what the caches show."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import msgspec
import pytest

from fakes.api import FakeClient, status_error
from fakes.transport import FakeResponse, FakeTransport, refusal
from tfjob_operator.api.client import Request, Response, RestClient
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.controller.tfjob.view import Confirmer, StaleViewError


@pytest.mark.parametrize(("uid", "there"), [("uid-of-the-pod", True), ("another", False), (None, False)])
async def test_a_pod_is_confirmed_by_its_uid(uid: str | None, there: bool) -> None:
    """Names are used again and again, so a pod that is there may be another one than the cache saw."""
    client = FakeClient()
    if uid is None:
        client.fail["get", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    client.objects["pods", "mnist-worker-0"] = {"metadata": {"uid": uid}}
    with nullcontext() if there else pytest.raises(StaleViewError):
        await Confirmer(client).confirm_pods("ns", [("mnist-worker-0", "uid-of-the-pod")])


class SlowServer:
    """Has every pod except those in `missing`; takes a second for each response."""

    def __init__(self, missing: frozenset[str] = frozenset()) -> None:
        self.missing = missing
        self.asked: list[str] = []
        self.in_work = self.most_in_work = 0

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        name = request.path.rpartition("/")[2]
        self.asked.append(name)
        self.in_work += 1
        self.most_in_work = max(self.most_in_work, self.in_work)
        await asyncio.sleep(1.0)
        self.in_work -= 1
        found = name not in self.missing
        answer = (
            FakeResponse(body=msgspec.json.encode({"metadata": {"uid": name}})) if found else refusal(404, "NotFound")
        )
        return await FakeTransport(answer).send(request)


async def test_five_hundred_restarts_are_confirmed_in_thirty_round_trips() -> None:
    """D22: the status of a job whose nodes were restarted used to wait for five hundred. Sixteen at a time flood no server."""
    server = SlowServer()
    names = [f"mnist-worker-{index}" for index in range(500)]
    began = asyncio.get_running_loop().time()
    await Confirmer(RestClient(server)).confirm_pods("ns", [(n, n) for n in names])
    assert server.asked == names
    assert server.most_in_work == 16
    assert asyncio.get_running_loop().time() - began == 32.0


async def test_one_pod_that_is_gone_ends_the_asking() -> None:
    """D22: the view is old, so the others need not be known; the error is that of the pod, not of a group of tasks."""
    server = SlowServer(frozenset({"p3"}))
    with pytest.raises(StaleViewError, match="pod p3 is gone"):
        await Confirmer(RestClient(server)).confirm_pods("ns", [(f"p{index}", f"p{index}") for index in range(100)])
    assert len(server.asked) < 32  # two rounds; there would be seven
    assert server.in_work == 0
