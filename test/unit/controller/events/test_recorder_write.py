"""Events that must be on the server before the operator does what depends on them."""

from __future__ import annotations

import asyncio

import pytest

from fakes.api import status_error
from fakes.metrics import Drops
from fakes.source import running
from fakes.virtual_loop import VirtualClock
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConnectError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.events.recorder import CLEAN_UP_S, KEPT_S, MAX_RESPONSES, SIMILAR_EVENTS, SPAM_BURST
from unit.controller.events.making import KETTLE, EventClient


class Bench:
    """A recorder that is not running, its client, and what it drops."""

    def __init__(self) -> None:
        self.client = EventClient()
        self.drops = Drops()
        self.recorder = EventRecorder(
            self.client, component="kettle-operator", clock=VirtualClock(), metrics=self.drops
        )

    async def write(self, fact: str = "exit of p-1") -> None:
        """Write the event of a fact."""
        await self.recorder.write(KETTLE, "Normal", "Exited", f"told: {fact}", fact=fact)


async def test_neither_flood_control_nor_the_queue_holds_a_fact_back() -> None:
    """U13: the filter lets 25 events about one object through and combines those that are alike; facts bypass it."""
    bench = Bench()
    facts = [f"exit of p-{number}" for number in range(2 * SPAM_BURST + SIMILAR_EVENTS)]
    for fact in facts:
        await bench.write(fact)
    assert bench.client.messages == [f"told: {fact}" for fact in facts]
    assert len({name for *_, name, _ in bench.client.log}) == len(facts)
    assert not bench.drops.count


async def test_a_fact_that_is_reported_again_is_the_same_event() -> None:
    """U13: also from another process, if the first was killed between the event and what depended on it."""
    before, after = Bench(), Bench()
    await before.write()
    await asyncio.sleep(1)
    after.client.answers = [status_error(AlreadyExistsError, 409)]
    await after.write()
    (told,), (again,) = before.client.log, after.client.log
    assert told[3] == again[3]
    assert told[3].startswith("blue.")


@pytest.mark.parametrize(
    "error",
    [RequestTimeoutError("no answer"), ConnectError("refused"), status_error(UnauthorizedError, 401)],
    ids=["timeout", "refused", "unauthorized"],
)
async def test_without_a_response_the_caller_hears_of_it_however_often(error: ApiError) -> None:
    """U13: on a server that does not answer, nothing that depends on the event could be done either."""
    bench = Bench()
    bench.client.always = error
    for _ in range(3 * MAX_RESPONSES):
        with pytest.raises(type(error)):
            await bench.write()
    assert not bench.drops.count


@pytest.mark.parametrize("error", [status_error(ServerError, 500), status_error(TooManyRequestsError, 429)], ids=str)
async def test_a_server_that_always_says_later_costs_the_event_and_not_what_waits_for_it(error: ApiError) -> None:
    """U13: an admission plugin that limits events, or a broken webhook for them, would otherwise stop all restarts."""
    bench = Bench()
    bench.client.always = error
    for _ in range(MAX_RESPONSES - 1):
        with pytest.raises(type(error)):
            await bench.write()
    await bench.write()
    assert bench.drops.count == {("Normal", "refused"): 1}
    bench.client.always = None
    await bench.write("another")
    assert bench.client.messages[-1] == "told: another"


async def test_how_often_the_server_said_later_is_forgotten_within_the_hour() -> None:
    """U13: the records of facts that nobody reports again would pile up."""
    bench = Bench()
    bench.client.always = status_error(ServerError, 500)
    async with running(bench.recorder.run()):
        for pause_s in (*[0.0] * (MAX_RESPONSES - 2), KEPT_S + 2 * CLEAN_UP_S, 0.0):
            with pytest.raises(ServerError):
                await bench.write()
            await asyncio.sleep(pause_s)
    assert not bench.drops.count


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (status_error(ForbiddenError, 403, "exceeded quota"), True),
        (status_error(NotFoundError, 404), True),
        (status_error(InvalidError, 422), True),
        (status_error(NamespaceTerminatingError, 403), False),
    ],
    ids=["quota", "no namespace", "invalid", "namespace terminating"],
)
async def test_what_the_server_refuses_for_good_is_given_up(error: ApiError, counted: bool) -> None:
    """U13: a quota of events may not stop restarts. It is counted, and the log has the event."""
    bench = Bench()
    bench.client.answers = [error]
    await bench.write()
    assert bench.drops.count == ({("Normal", "refused"): 1} if counted else {})
