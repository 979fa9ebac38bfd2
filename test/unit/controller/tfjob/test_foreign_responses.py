"""A proxy responds in place of the API server: no read or write may take that for the server's own response."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from fakes.controller import Parts
from fakes.jobs import OWNER, good_spec, job, pod, spec
from fakes.transport import FakeResponse, FakeTransport, refusal
from support.cases import for_each
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConflictError, DecodeError, NoStatusError, NotFoundError
from tfjob_operator.api.core import ObjectReference
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.pending import PendingStatus
from tfjob_operator.controller.jobs.writes import NameTakenError, RefusedError, StaleViewError
from tfjob_operator.controller.leaderelection import LeaseLock
from tfjob_operator.controller.tfjob.apply.ownership import Adoptions
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion
from tfjob_operator.controller.tfjob.view import LeadershipTerm
from tfjob_operator.workqueue import LoopClock

JOB: Final = job(spec(Worker=1))
SLOT: Final = ReplicaKey.of("mnist", "Worker", 0)
KNOWLEDGE: Final = (RefusedError, NameTakenError, StaleViewError, NotFoundError, ConflictError)
TAKEN: Final = refusal(409, "AlreadyExists")
CONFIRMED: Final = FakeResponse(200, b'{"metadata":{"resourceVersion":"1"}}')

HTML: Final = {"Content-Type": "text/html"}
FAILURES: Final = {
    f"{code} {name}": FakeResponse(code, body, headers)
    for code in (302, 400, 404, 405, 409, 410, 422)
    for name, body, headers in (
        ("page", b"<html><body><h1>Bad request</h1></body></html>", HTML),
        ("empty", b"", {}),
        ("JSON", b'{"code":404,"reason":"NotFound","message":"no Route matched"}', {}),
    )
}
SUCCESSES: Final = {
    "200 page": FakeResponse(200, b"<html>Please log in</html>", HTML),
    "200 page that is called JSON": FakeResponse(200, b"<html>Please log in</html>"),
    "200 empty": FakeResponse(200, b""),
    "200 list": FakeResponse(200, b"[]"),
}
UNREADABLE: Final = {
    "200 other object": FakeResponse(200, b'{"login":"https://sso.example.com"}'),
    "200 cut": FakeResponse(200, b'{"metadata":{"na'),
    "200 wrong type": FakeResponse(200, b'{"metadata":{"resourceVersion":5,"uid":5}}'),
    "200 not UTF-8": FakeResponse(200, b'{"metadata":{"resourceVersion":"\xff","uid":"\xff"}}'),
    "200 deep": FakeResponse(200, b'{"metadata":{"labels":' + b'{"a":' * 5000),
}


class Effects(Parts):
    """All that reads and writes, over one transport, whose first responses are `before`, and the last one `last`."""

    def __init__(self, last: FakeResponse, *before: FakeResponse) -> None:
        self.transport = FakeTransport(*before, last)
        super().__init__(RestClient(self.transport))
        self.lock = LeaseLock(self.client, "ns", "lock", identity="me")

    async def adopt(self) -> Adoptions:
        """Adopt a pod for a job that is as the cache shows it."""
        return await self.manager.adopt(JOB, [pod("Worker", 0)])


Effect = tuple["Callable[[Effects], Awaitable[object]]", tuple[FakeResponse, ...]]
WRITES: Final[dict[str, Effect]] = {
    "create": (lambda w: w.creator.create(JOB, good_spec(JOB), Plan(create_pods=(SLOT,))), ()),
    "delete": (lambda w: w.deleter.delete(JOB, Plan(delete_pods=(PodDeletion(pod("Worker", 0, "Failed", 1)),))), ()),
    "delete the job": (lambda w: w.deleter.delete_job(JOB), ()),
    "write the status": (lambda w: w.writer.write(JOB, JOB.status, (), PendingStatus()), ()),
}  # fmt: skip
READS: Final[dict[str, Effect]] = {
    "look who has the name": (WRITES["create"][0], (TAKEN,)),
    "confirm the job": (lambda w: w.confirmer.confirm(JOB), ()),
    "confirm a pod": (lambda w: w.confirmer.confirm_pods("ns", [("mnist-worker-0", "uid")]), ()),
    "read the lease": (lambda w: w.lock.get(), ()),
}


@pytest.mark.parametrize("effect", [*(WRITES | READS).values()], ids=WRITES | READS)
@for_each("answer", [*FAILURES.values(), *SUCCESSES.values()])
async def test_a_response_that_is_not_the_api_servers_is_an_error_to_be_tried_again(
    effect: Effect, answer: FakeResponse
) -> None:
    """D4: a failure does not mean refused, gone, taken or changed; and nothing is expected of what was not done.

    D19: a success is no crash either, also where nobody needs what is in the response.
    """
    act, before = effect
    world = Effects(answer, *before)
    with pytest.raises(DecodeError if answer.status == 200 else NoStatusError) as raised:
        await act(world)
    assert not isinstance(raised.value, KNOWLEDGE)
    assert world.expectations.satisfied(OWNER)
    assert "Normal" not in [event[0] for event in world.recorder.events]


@pytest.mark.parametrize("answer", [*(FAILURES | SUCCESSES).values()], ids=FAILURES | SUCCESSES)
async def test_an_adoption_without_a_response_of_the_api_server_is_tried_again(answer: FakeResponse) -> None:
    """D4, D14, D19: it is reported on the job, and nothing is expected of it."""
    world = Effects(answer, CONFIRMED)
    adoptions = await world.adopt()
    assert not adoptions.adopted
    assert adoptions.wait_s is not None
    assert world.expectations.satisfied(OWNER)
    assert [event[0] for event in world.recorder.events] == ["Warning"]


@pytest.mark.parametrize("effect", [WRITES["write the status"], *READS.values()], ids=["write the status", *READS])
@for_each("answer", UNREADABLE.values())
async def test_a_response_that_can_not_be_read_is_no_crash(effect: Effect, answer: FakeResponse) -> None:
    """D19: what msgspec raises, also for bytes that are not UTF-8 and for deep nesting, becomes a DecodeError.

    A status may then be on the server or not, so it is not counted as written; the sync that follows finds out.
    """
    act, before = effect
    world = Effects(answer, *before)
    with pytest.raises(DecodeError):
        await act(world)
    assert "Normal" not in [event[0] for event in world.recorder.events]


@pytest.mark.parametrize("answer", [*UNREADABLE.values(), *SUCCESSES.values(), *FAILURES.values()])
async def test_a_leadership_term_begins_only_with_a_version_from_the_api_server(answer: FakeResponse) -> None:
    """D4, D19: otherwise every view is confirmed by a call of its own, which is safe."""
    world = Effects(answer)
    leadership_term = LeadershipTerm(world.client, "")
    await leadership_term.begin()
    assert not leadership_term.is_untouched(job(resource_version="999999999999"))


@pytest.mark.parametrize("answer", [FAILURES["404 page"], FAILURES["400 JSON"], *SUCCESSES.values()])
async def test_an_event_is_not_given_up_for_what_a_proxy_says(answer: FakeResponse) -> None:
    """D4, D19: the recorder writes it again until the API server itself responds."""
    world = Effects(FakeResponse(201, b'{"kind":"Event"}'), answer)
    recorder = EventRecorder(world.client, component="test", clock=LoopClock(), random=lambda: 0.5)
    recorder.event(ObjectReference(namespace="ns", name="mnist"), "Warning", "ExitedWithCode", "exit code 1")
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(60.0)
    recorder.stop()
    await running
    assert [request.method for request in world.transport.requests] == ["POST", "POST"]
