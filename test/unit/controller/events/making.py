"""Events for tests, and a client that records requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fakes.api import FakeClient
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import Event, EventMeta, EventSource, ObjectReference
from tfjob_operator.api.meta import Resource

KETTLE = ObjectReference(api_version="example.com/v1", kind="Kettle", namespace="kitchen", name="blue", uid="u-1")


def make_event(  # the parts of its key, which tests vary
    message: str = "tick",
    *,
    event_type: str = "Normal",
    reason: str = "Boiled",
    about: ObjectReference = KETTLE,
    host: str = "",
    name: str = "blue.1",
) -> Event:
    return Event(
        metadata=EventMeta(name=name, namespace="kitchen"),
        involved_object=about,
        reason=reason,
        message=message,
        type=event_type,
        count=1,
        source=EventSource(component="kettle-operator", host=host),
        first_timestamp=EPOCH,
        last_timestamp=EPOCH,
        reporting_component="kettle-operator",
        reporting_instance=host,
    )


async def _nothing() -> None:
    return None


class EventClient(FakeClient):
    """Keeps (time, verb, namespace, name, body); `answers` are taken one by one: an error is raised, None is success."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[float, str, str, str, Any]] = []
        self.answers: list[Exception | None] = []
        self.always: Exception | None = None
        self.pause: Callable[[], Awaitable[None]] = _nothing

    async def _take(self, verb: str, namespace: str, name: str, body: object) -> bytes:
        now = asyncio.get_running_loop().time()
        self.log.append((now, verb, namespace, name, msgspec.json.decode(msgspec.json.encode(body))))
        await self.pause()
        answer = self.answers.pop(0) if self.answers else self.always
        if answer is not None:
            raise answer
        return b"{}"

    async def create(self, resource: Resource, namespace: str, body: object, into: Any = None, **options: Any) -> Any:
        name = msgspec.to_builtins(body)["metadata"]["name"]
        return await self._take("create", namespace, name, body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: object, into: Any = None, **options: Any
    ) -> Any:
        assert options == {"content_type": STRATEGIC_MERGE_PATCH}
        return await self._take("patch", namespace, name, body)

    @property
    def verbs(self) -> list[str]:
        return [verb for _, verb, *_ in self.log]

    @property
    def messages(self) -> list[str]:
        return [body["message"] for *_, body in self.log]

    @property
    def times(self) -> list[float]:
        return [time for time, *_ in self.log]
