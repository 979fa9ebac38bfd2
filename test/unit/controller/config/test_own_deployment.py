"""Events on the operator's own Deployment."""

from __future__ import annotations

import pytest

from fakes.clock import FakeClock
from fakes.recorder import FakeRecorder
from fakes.transport import FakeResponse, FakeTransport, refusal
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConnectError
from tfjob_operator.controller.config.file import OwnDeployment

FOUND = FakeResponse(200, b'{"metadata": {"name": "operator", "namespace": "home", "uid": "u-1"}}')


class Told:
    """An `OwnDeployment` with a scripted API server, and the events that it recorded."""

    def __init__(self, *script: FakeResponse | Exception, leading: bool = True, name: str = "operator") -> None:
        self.transport = FakeTransport(*script)
        self.recorder = FakeRecorder()
        client = RestClient(self.transport, clock=FakeClock())
        self.own = OwnDeployment(client, self.recorder, "home", name, is_leading=lambda: leading)


async def test_the_leader_tells_by_a_warning_on_the_deployment() -> None:
    """With its UID, by which `kubectl describe` looks for events."""
    told = Told(FOUND)
    assert await told.own.tell("no such key")
    ((event_type, reason, message),) = told.recorder.events
    assert (event_type, reason) == ("Warning", "InvalidConfigFile")
    assert message.endswith("no such key")
    assert [request.path for request in told.transport.requests] == [
        "/apis/apps/v1/namespaces/home/deployments/operator"
    ]


async def test_a_replica_that_waits_tells_nothing_yet() -> None:
    """Both read the file, and one event is enough; when it leads, it asks again."""
    told = Told(leading=False)
    assert not await told.own.tell("x")
    assert told.transport.requests == []


@pytest.mark.parametrize("failure", [ConnectError("refused"), refusal(429), refusal(503)])
async def test_an_api_server_that_can_not_be_asked_now_is_asked_again(failure: FakeResponse | Exception) -> None:
    """Without the UID nobody would find the event."""
    told = Told(*([failure] * 10))
    assert not await told.own.tell("x")
    assert told.recorder.events == []


@pytest.mark.parametrize("failure", [refusal(403), refusal(404)])
async def test_where_there_is_no_such_deployment_nothing_is_written(failure: FakeResponse) -> None:
    """Nor is the Deployment read again every ten seconds: the log and the metric tell of the mistake too."""
    told = Told(failure)
    assert await told.own.tell("x")
    assert told.recorder.events == []


async def test_an_operator_that_does_not_know_its_deployment_asks_for_none() -> None:
    """On a developer's machine, say."""
    told = Told(name="")
    assert await told.own.tell("x")
    assert (told.transport.requests, told.recorder.events) == ([], [])
