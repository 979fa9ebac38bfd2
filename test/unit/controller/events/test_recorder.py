"""The recorder on virtual time, against a client that responds as it is told; some events must be written before it goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from fakes.api import FakeClient, status_error
from fakes.metrics import Drops
from fakes.source import running
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client import errors
from tfjob_operator.api.client.encoding import encode
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.text import EVENT_BYTES
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.events.recorder import (
    BUFFER_SIZE,
    CLEAN_UP_S,
    COMBINED,
    KEPT_S,
    MAX_RESPONSES,
    SIMILAR_EVENTS,
    SPAM_BURST,
)
from unit.controller.events.test_correlator import KETTLE


class EventClient(FakeClient):
    """Keeps (time, verb, namespace, name, body); `answers` are taken one by one: an error is raised, None is success."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[float, str, str, str, Any]] = []
        self.answers: list[Exception | None] = []
        self.always: Exception | None = None
        self.pause: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)

    async def answer(self, verb: str, resource: Resource, namespace: str, name: str, body: Any, **options: Any) -> Any:
        assert verb == "create" or (verb, options) == ("patch", {"content_type": STRATEGIC_MERGE_PATCH})
        found = msgspec.json.decode(encode(body))
        name = name or found["metadata"]["name"]
        self.log.append((asyncio.get_running_loop().time(), verb, namespace, name, found))
        await self.pause()
        answer = self.answers.pop(0) if self.answers else self.always
        if answer is not None:
            raise answer
        return {}

    @property
    def verbs(self) -> list[str]:
        return [verb for _, verb, *_ in self.log]

    @property
    def messages(self) -> list[str]:
        return [body["message"] for *_, body in self.log]

    @property
    def times(self) -> list[float]:
        return [time for time, *_ in self.log]


class Bench:
    def __init__(self) -> None:
        self.client = EventClient()
        self.drops = Drops()
        self.recorder = EventRecorder(
            self.client,
            component="kettle-operator",
            host="node-1",
            clock=VirtualClock(),
            metrics=self.drops,
            random=lambda: 0.25,
        )

    def record(self, message: str = "tick", event_type: str = "Normal", about: str = "u-1") -> None:
        self.recorder.event(replace(KETTLE, uid=about), event_type, "Boiled", message)

    async def write(self, fact: str = "exit of p-1") -> None:
        await self.recorder.write(KETTLE, "Normal", "Exited", f"told: {fact}", fact=fact)

    async def run_to_the_end(self) -> None:
        self.recorder.stop()
        await self.recorder.run()

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.recorder.run())


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_an_event_arrives_with_all_that_kubectl_shows_of_it(bench: Bench) -> None:
    """EV-01, EV-02, event_test.go:TestEventf."""
    bench.record("whistles", "Warning")
    await bench.run_to_the_end()
    assert bench.client.log == [
        (
            0.0,
            "create",
            "kitchen",
            "blue.18867251edfa0000",
            {
                "metadata": {"name": "blue.18867251edfa0000", "namespace": "kitchen"},
                "involvedObject": {
                    "apiVersion": "example.com/v1",
                    "kind": "Kettle",
                    "namespace": "kitchen",
                    "name": "blue",
                    "uid": "u-1",
                },
                "reason": "Boiled",
                "message": "whistles",
                "type": "Warning",
                "count": 1,
                "source": {"component": "kettle-operator", "host": "node-1"},
                "reportingComponent": "kettle-operator",
                "reportingInstance": "node-1",
                "firstTimestamp": "2026-01-01T00:00:00Z",
                "lastTimestamp": "2026-01-01T00:00:00Z",
            },
        )
    ]


async def test_recording_does_not_wait_for_a_server_that_hangs(bench: Bench) -> None:
    """EV-01, EV-09, event_test.go:TestLotsOfEvents, TestCancelEvent, TestNonRacyShutdown: ten thousand wait.

    The rest is dropped and counted; so is, when the task is cancelled, what is being written, what waits and what comes later.
    A Warning takes the place of a Normal event.
    """
    bench.client.pause = asyncio.Event().wait
    running = bench.start()
    bench.record("in the hands of the task")
    await asyncio.sleep(1.0)
    for number in range(BUFFER_SIZE + 7):
        bench.record(str(number))
    assert asyncio.get_running_loop().time() == 1.0
    assert bench.drops.count == {("Normal", "overflow"): 7}
    bench.record("boiled dry", "Warning")
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    bench.record("late", "Warning")
    assert bench.drops.count == {
        ("Normal", "overflow"): 8,
        ("Normal", "shutdown"): BUFFER_SIZE,
        ("Warning", "shutdown"): 2,
    }


async def test_a_lost_warning_is_logged_loudly_and_a_lost_normal_event_softly(bench: Bench) -> None:
    """EV-01, EV-09, event_test.go:TestStartEventWatcherExitsOnDirectShutdown: one that has stopped before it ran drops all.

    Whoever recorded a Normal event has logged it; that a Warning is missing on the server must be seen. An event of another
    type is refused, and its name does not become a label.
    """
    await bench.run_to_the_end()
    with capture_logs() as lines:
        bench.record("fine")
        bench.record("boiled dry", "Warning")
    assert [(line["log_level"], line["message"], line["why"]) for line in lines] == [
        ("debug", "fine", "shutdown"),
        ("warning", "boiled dry", "shutdown"),
    ]
    bench.record("hm", "Curious")
    assert bench.drops.count == {("Normal", "shutdown"): 1, ("Warning", "shutdown"): 1, ("Unknown", "invalid"): 1}
    assert bench.client.log == []


@pytest.mark.parametrize("name", ["Blue", "a" * 250, "system:node", ""])
async def test_a_name_that_can_not_be_one_gives_way_to_a_uuid(bench: Bench, name: str) -> None:
    """EV-02, util_test.go:TestGenerateEventName, event_test.go:TestEventfNoNamespace."""
    for message in ("tick", "tock"):
        bench.recorder.event(replace(KETTLE, name=name, namespace=""), "Normal", "Boiled", message)
    await bench.run_to_the_end()
    assert bench.client.log[0][2] == "default"
    first, second = [name for _, _, _, name, _ in bench.client.log]
    assert len(first) == len(second) == 36
    assert first != second


async def test_the_same_event_again_patches_count_time_and_message(bench: Bench) -> None:
    """EV-04, events_cache_test.go:TestEventCorrelator: the patch has the name of the first."""
    running = bench.start()
    bench.record()
    await asyncio.sleep(5.0)
    bench.record()
    await asyncio.sleep(1.0)
    first, second = bench.client.log
    assert second[1:] == (
        "patch",
        "kitchen",
        first[3],
        {"count": 2, "lastTimestamp": "2026-01-01T00:00:05Z", "message": "tick"},
    )
    bench.recorder.stop()
    await running


async def test_many_similar_events_become_one_and_too_many_stay_here(bench: Bench) -> None:
    """EV-02, EV-03, EV-05, EV-07, D5, util_test.go:TestGenerateEventName: what the spam filter holds back is counted as such.

    Names have the time in nanoseconds, in hex; events of one moment count up. Messages are cut and cleaned before they wait.
    """
    for number in range(40):
        bench.record(f"{number}\x1b[31m" + "x" * 800_000)
    await bench.run_to_the_end()
    names = [name for _, _, _, name, _ in bench.client.log[:3]]
    assert names == ["blue.18867251edfa0000", "blue.18867251edfa0001", "blue.18867251edfa0002"]
    assert bench.client.messages[0].startswith(r"0\x1b[31mxxx")
    assert max(len(message.encode()) for message in bench.client.messages) <= EVENT_BYTES
    assert bench.client.verbs == ["create"] * 10 + ["patch"] * 15
    assert bench.client.messages[-1].startswith(COMBINED + "24")
    assert bench.drops.count == {("Normal", "spam"): 15}


async def test_a_patch_of_an_event_that_is_gone_creates_it_with_its_count(bench: Bench) -> None:
    """EV-08, event_test.go:TestUpdateExpiredEvent: events live for an hour; no resourceVersion goes with it."""
    bench.record()
    bench.record()
    bench.client.answers = [None, status_error(errors.NotFoundError, 404)]
    await bench.run_to_the_end()
    assert bench.client.verbs == ["create", "patch", "create"]
    body = bench.client.log[-1][4]
    assert (body["count"], body["metadata"]) == (2, {"name": "blue.18867251edfa0000", "namespace": "kitchen"})
    assert not bench.drops.count


async def test_a_server_that_is_away_is_asked_twelve_times_ten_seconds_apart(bench: Bench) -> None:
    """EV-08, event_test.go:TestWriteEventError: the first wait is random."""
    bench.client.always = errors.ConnectError("refused")
    running = bench.start()
    bench.record("boiled dry", "Warning")
    await asyncio.sleep(200.0)
    assert bench.client.times == [0.0] + [2.5 + 10.0 * n for n in range(11)]
    assert bench.drops.count == {("Warning", "unreachable"): 1}
    bench.recorder.stop()
    await running


@pytest.mark.parametrize(
    "error", [errors.ConnectionLostError("reset"), errors.RequestTimeoutError("late"), errors.ConnectError("refused")]
)
async def test_a_server_that_comes_back_gets_all_events_in_order(bench: Bench, error: errors.ApiError) -> None:
    """EV-08, event_test.go:TestWriteEventError: nothing overtakes the event that is being tried."""
    bench.client.answers = [error, error]
    running = bench.start()
    bench.record("1")
    bench.record("2")
    await asyncio.sleep(60.0)
    assert bench.client.messages == ["1", "1", "1", "2"]
    assert not bench.drops.count
    bench.recorder.stop()
    await running


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (status_error(errors.ForbiddenError, 403), True),
        (status_error(errors.InvalidError, 422), True),
        (status_error(errors.NotFoundError, 404), True),
        (status_error(errors.ServerError, 500), True),
        (status_error(errors.AlreadyExistsError, 409), False),
        (status_error(errors.NamespaceTerminatingError, 403), False),
    ],
    ids=["forbidden", "invalid", "no namespace", "server error", "exists", "namespace terminating"],
)
async def test_an_event_that_the_server_refuses_is_not_tried_again(
    bench: Bench, error: errors.ApiError, counted: bool
) -> None:
    """EV-08, U13, event_test.go:TestWriteEventError: and two kinds of refusal are not counted as drops.

    Nor are they when a fact was to be written: a quota of events may not stop restarts.
    """
    bench.client.answers = [error]
    bench.record("1", "Warning")
    bench.record("2", "Warning")
    await bench.run_to_the_end()
    assert bench.client.messages == ["1", "2"]
    assert bench.drops.count == ({("Warning", "refused"): 1} if counted else {})
    if not isinstance(error, errors.ServerError):
        bench.client.answers = [error]
        await bench.write()
        assert bench.drops.count == ({("Warning", "refused"): 1, ("Normal", "refused"): 1} if counted else {})


async def test_a_bug_costs_one_event_and_not_the_recorder(bench: Bench) -> None:
    """EV-08: say, a message that cannot be encoded."""
    bench.client.answers = [UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")]
    bench.record("1", "Warning")
    bench.record("2")
    with capture_logs() as lines:
        await bench.run_to_the_end()
    assert bench.client.messages == ["1", "2"]
    assert bench.drops.count == {("Warning", "crashed"): 1}
    assert [line["event"] for line in lines] == ["event_write_crashed", "event_dropped"]


async def test_at_shutdown_each_event_that_waits_is_tried_once(bench: Bench) -> None:
    """EV-09, event_test.go:TestBroadcasterShutdown: nothing is accepted any more, and nobody waits ten seconds."""
    bench.client.always = errors.ConnectError("refused")
    running = bench.start()
    bench.record("1", "Warning")
    bench.record("2", "Warning")
    await asyncio.sleep(1.0)
    assert bench.client.messages == ["1"]
    bench.recorder.stop()
    bench.recorder.stop()
    bench.record("3", "Warning")
    await running
    assert asyncio.get_running_loop().time() == 1.0
    assert bench.client.messages == ["1", "1", "2"]
    assert bench.drops.count == {("Warning", "unreachable"): 2, ("Warning", "shutdown"): 1}


async def test_neither_flood_control_nor_the_queue_holds_a_fact_back(bench: Bench) -> None:
    """U13: the filter lets 25 events about one object through and combines those that are alike; facts bypass it."""
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
    after.client.answers = [status_error(errors.AlreadyExistsError, 409)]
    await after.write()
    (told,), (again,) = before.client.log, after.client.log
    assert told[3] == again[3]
    assert told[3].startswith("blue.")


@pytest.mark.parametrize(
    "error",
    [
        errors.RequestTimeoutError("no answer"),
        errors.ConnectError("refused"),
        status_error(errors.UnauthorizedError, 401),
    ],
    ids=["timeout", "refused", "unauthorized"],
)
async def test_without_a_response_the_caller_hears_of_it_however_often(bench: Bench, error: errors.ApiError) -> None:
    """U13: on a server that does not answer, nothing that depends on the event could be done either."""
    bench.client.always = error
    for _ in range(3 * MAX_RESPONSES):
        with pytest.raises(type(error)):
            await bench.write()
    assert not bench.drops.count


@pytest.mark.parametrize(
    "error", [status_error(errors.ServerError, 500), status_error(errors.TooManyRequestsError, 429)], ids=str
)
async def test_a_server_that_always_says_later_costs_the_event_and_not_what_waits_for_it(
    error: errors.ApiError,
) -> None:
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


async def test_how_often_the_server_said_later_is_forgotten_within_the_hour(bench: Bench) -> None:
    """U13: the records of facts that nobody reports again would pile up."""
    bench.client.always = status_error(errors.ServerError, 500)
    async with running(bench.recorder.run()):
        for pause_s in (*[0.0] * (MAX_RESPONSES - 2), KEPT_S + 2 * CLEAN_UP_S, 0.0):
            with pytest.raises(errors.ServerError):
                await bench.write()
            await asyncio.sleep(pause_s)
    assert not bench.drops.count


async def test_a_recorder_that_nobody_runs_is_reported_every_minute(bench: Bench) -> None:
    """Its events would wait for ever, and nothing else would show that."""
    with capture_logs() as lines:
        for _ in range(120):
            bench.record()
            await asyncio.sleep(1.2)
        running = bench.start()
        await asyncio.sleep(120.0)
        bench.record()
    told = [line for line in lines if line["event"] == "recorder_not_running"]
    assert [line["events"] for line in told] == [51, 102]
    assert {line["advice"] for line in told} == {"pass it to Manager(recorder=)"}
    bench.recorder.stop()
    await running
