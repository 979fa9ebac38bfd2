"""The controller of TensorBoards in a manager, on virtual time, against the model API server."""

import asyncio
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.cluster import HOME
from kit.model.controllers import GarbageCollector
from tfjob_operator.api.client.errors import ConnectError, ForbiddenError, InvalidError, ServerError, StatusError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged
from tfjob_operator.api.client.options import APPLY_PATCH
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, TFJOBS
from tfjob_operator.controller.framework.request import TRUST_S
from tfjob_operator.controller.jobs.children import LINGER_LIMIT_S
from tfjob_operator.controller.tensorboard.dialects import OPERATOR
from tfjob_operator.controller.tensorboard.tensorboard_controller import LONGEST_DELAY_S, RETRY_S
from unit.controller.tensorboard.bench import BOARD, NAME, Bench, a_board

REFUSED = status_error(ForbiddenError, 403, "the role says no")


async def test_a_tensorboard_comes_follows_its_job_and_goes() -> None:
    """TB-01, TB-06: it is created with the field, follows its changes, and is deleted with it.

    Two writes make a TensorBoard, and then there are none, whatever else happens to the job.
    """
    async with a_board() as (bench, process):
        assert bench.children() == [NAME, NAME]
        assert "--logdir=/logs" in bench.command()
        await bench.client.patch(TFJOBS, HOME, "mnist", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(3600.0)
        assert len(bench.written("operator")) == 2
        await bench.edit({"logDir": "/other", "serviceType": "NodePort"})
        assert "--logdir=/other" in bench.command()
        assert bench.board(SERVICES)["spec"]["type"] == "NodePort"
        await bench.edit(None)
        assert bench.children() == []
        assert process.recorder.reasons == [
            *["SuccessfulCreateTensorBoard"] * 2,
            *["SuccessfulUpdateTensorBoard"] * 2,
            *["SuccessfulDeleteTensorBoard"] * 2,
        ]


async def test_a_cluster_without_tensorboards_pays_for_two_questions() -> None:
    """TB-12: no watch of Deployments or Services, however many jobs there are."""
    async with Bench().begun() as bench:
        process = bench.start()
        for number in range(5):
            await bench.create_job(f"plain-{number}")
        await asyncio.sleep(3600.0)
        asked = [each for each in process.line.asked if each[1] != "tfjobs"]
        assert asked == [("GET", "deployments"), ("GET", "services")]


async def test_what_an_earlier_process_left_goes_though_no_job_has_the_field() -> None:
    """TB-06: the field was removed while no operator ran."""
    async with a_board() as (bench, process):
        await process.end()
        await bench.edit(None)
        assert bench.names("deployments") == [NAME]
        bench.start()
        await asyncio.sleep(1.0)
        assert bench.children() == []


async def test_a_field_that_is_removed_while_a_cache_is_being_filled_is_not_forgotten() -> None:
    """TB-06: once the cache is filled no event of the job or its child follows, and the job wants nothing."""
    async with a_board() as (bench, first):
        await first.end()
        await bench.client.delete(SERVICES, HOME, NAME)  # otherwise its arrival in the cache would bring the sync
        process = bench.start()
        for verb in ("GET", "WATCH"):
            process.line.fails[verb, "services"] = ConnectError("connection refused")
        await asyncio.sleep(5.0)
        await bench.edit(None)
        process.line.fails.clear()
        await asyncio.sleep(60.0)
        assert bench.children() == []


async def test_an_api_server_that_is_away_is_asked_again_for_what_was_left() -> None:
    """TB-06: a job that wants a TensorBoard does not wait for that second attempt."""
    async with Bench().begun() as bench:
        process = bench.start()
        process.line.fails["GET", "deployments"] = ConnectError("connection refused")
        await asyncio.sleep(RETRY_S / 2)
        await bench.create_job(tensorBoard=BOARD, wait_s=1.0)
        assert bench.names("services") == []  # no list, no cache
        del process.line.fails["GET", "deployments"]
        await asyncio.sleep(60.0)
        assert bench.names("services") == [NAME]


async def test_a_role_that_is_too_old_costs_a_warning_and_no_more() -> None:
    """TB-13: without a job that wants a TensorBoard it is said once, in the log."""
    async with Bench().begun() as bench:
        with capture_logs() as logs:
            process = bench.start()
            process.line.fails["GET", "deployments"] = REFUSED
            await bench.create_job(wait_s=3600.0)
        assert process.manager.why_not_ready() is None
        assert process.recorder.events == []
        assert [each["event"] for each in logs if each["log_level"] == "warning"] == ["tensorboards_forbidden"]


async def test_jobs_that_want_a_tensorboard_are_told_what_the_role_lacks_and_get_it_when_that_is_mended() -> None:
    """TB-13: by one event on the job; the operator need not be restarted."""
    async with Bench().begun() as bench:
        process = bench.start()
        for verb in ("GET", "WATCH"):
            process.line.fails[verb, "deployments"] = REFUSED
        await bench.create_job(tensorBoard=BOARD, wait_s=600.0)
        ((kind, reason, message),) = process.recorder.events
        assert (kind, reason) == ("Warning", "TensorBoardUnavailable")
        assert "the role says no" in message
        assert "apply the manifests of this version" in message
        process.line.fails.clear()
        await asyncio.sleep(120.0)
        assert bench.names("deployments") == [NAME]


async def test_a_mistake_is_reported_once_and_again_when_it_is_another() -> None:
    """TB-03: on the job; the existing TensorBoard runs on."""
    async with a_board() as (bench, process):
        process.recorder.events.clear()
        await bench.edit({"logDir": None, "serviceType": "ExternalName"})
        await bench.client.patch(TFJOBS, HOME, "mnist", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(1.0)
        assert process.recorder.reasons == ["InvalidTensorBoard"]
        await bench.edit({"logDir": "/logs", "serviceType": "Other"})
        assert process.recorder.reasons == ["InvalidTensorBoard"] * 2
        assert bench.names("deployments") == [NAME]


async def test_a_child_that_somebody_deletes_or_takes_the_label_of_is_mended() -> None:
    """TB-07, TB-14: its deletion brings the next sync; without its label no watch shows it, and its name seems to be taken."""
    async with a_board() as (bench, process):
        for resource in (DEPLOYMENTS, SERVICES):
            await bench.client.delete(resource, HOME, NAME)
        await asyncio.sleep(1.0)
        assert bench.children() == [NAME, NAME]
        await bench.client.patch(DEPLOYMENTS, HOME, NAME, {"metadata": {"labels": {LABEL_OPERATOR_NAME: None}}})
        await asyncio.sleep(5.0)
        assert bench.board()["metadata"]["labels"][LABEL_OPERATOR_NAME] == OPERATOR == "tensorboard-controller"
        assert not [each for each in process.recorder.events if each[0] == "Warning"]


async def test_a_tensorboard_whose_job_is_seen_later_than_itself_goes_if_the_job_wants_none() -> None:
    """TB-06: the caches are filled in any order, and that of jobs may be the oldest."""
    async with Bench().begun() as bench:
        process = bench.start()
        await bench.create_job("other", tensorBoard=BOARD, wait_s=1.0)
        process.line.fails |= {("GET", "tfjobs"): ConnectError("no"), ("WATCH", "tfjobs"): ConnectError("no")}
        bench.server.restart()
        await bench.create_job()
        job = bench.body("tfjobs", "mnist")
        owner = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "name": "mnist", "controller": True}
        owners = [owner | {"uid": job["metadata"]["uid"]}]
        meta = {"name": NAME, "labels": {LABEL_OPERATOR_NAME: OPERATOR}, "ownerReferences": owners}
        await bench.client.create(DEPLOYMENTS, HOME, {"metadata": meta, "spec": {}})
        await asyncio.sleep(60.0)
        assert NAME in bench.names("deployments")
        process.line.fails.clear()
        await asyncio.sleep(200.0)
        assert NAME not in bench.names("deployments")


def owned_by(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}


STRANGERS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "nobody": ([], "has no owner; delete it or recreate the job"),
    "ReplicaSet": ([owned_by("ReplicaSet", "other")], "belongs to ReplicaSet other; delete it or recreate the job"),
    # With a shared network that job has a Service of its own name; to delete it would harm that job.
    "TFJob": ([owned_by("TFJob", NAME)], f"belongs to TFJob {NAME}, which needs it; recreate one of the two jobs"),
}


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_the_tensorboard_of_a_job_that_is_gone_is_not_made_as_fast_as_it_is_collected(propagation: str) -> None:
    """TB-06: the watch of jobs may be the last to hear of a deletion; then the garbage collector is faster."""
    async with Bench().begun() as bench:
        GarbageCollector(bench.server, Random(0))
        bench.start()
        await bench.create_job(tensorBoard=BOARD, wait_s=1.0)
        jobs = bench.server.storage.collections["tfjobs"]
        bench.server.storage.freeze(jobs)
        await bench.client.delete(TFJOBS, HOME, "mnist", propagation=propagation)
        await asyncio.sleep(60.0)
        assert (bench.children(), len(bench.written("operator"))) == ([], 2)
        await bench.create_job(tensorBoard=BOARD, wait_s=LONGEST_DELAY_S)  # another job, though of the same name
        assert (bench.children(), len(bench.written("operator"))) == ([], 2)
        bench.server.storage.thaw(jobs)
        await asyncio.sleep(60.0)
        assert (bench.children(), len(bench.written("operator"))) == ([NAME, NAME], 4)


@pytest.mark.parametrize("holder", STRANGERS)
async def test_a_name_that_somebody_else_has_is_reported_and_their_object_is_left_alone(holder: str) -> None:
    """TB-14: the rest of the TensorBoard is made all the same, and the name is taken when it is free."""
    async with Bench().begun() as bench:
        owners, told = STRANGERS[holder]
        meta = {"name": NAME, "ownerReferences": owners}
        await bench.client.create(DEPLOYMENTS, HOME, {"metadata": meta, "spec": {"replicas": 3}})
        process = bench.start()
        await bench.create_job(tensorBoard=BOARD, wait_s=600.0)
        assert bench.board()["spec"] == {"replicas": 3}
        assert bench.names("services") == [NAME]
        warnings = [message for kind, _, message in process.recorder.events if kind == "Warning"]
        (warning,) = warnings
        assert warning == f"Error creating deployment {NAME}: it already exists and {told} under another name"
        await bench.client.delete(DEPLOYMENTS, HOME, NAME)
        await asyncio.sleep(LONGEST_DELAY_S + 1.0)
        assert bench.board()["spec"]["replicas"] == 1


async def test_the_tensorboard_of_an_earlier_job_of_that_name_is_reported_only_if_it_persists() -> None:
    """TB-14: the garbage collector deletes it. No watch shows the Deployment; the new job co-owns the Service."""
    async with a_board() as (bench, process):
        process.recorder.events.clear()
        await bench.client.delete(TFJOBS, HOME, "mnist")
        await bench.client.patch(DEPLOYMENTS, HOME, NAME, {"metadata": {"labels": {LABEL_OPERATOR_NAME: None}}})
        await bench.create_job(tensorBoard={"logDir": "/new", "serviceType": "NodePort"})
        job = bench.body("tfjobs", "mnist")["metadata"]
        (owner,) = bench.board(SERVICES)["metadata"]["ownerReferences"]
        owners = [owner, owner | {"uid": job["uid"], "controller": False}]
        await bench.client.patch(SERVICES, HOME, NAME, {"metadata": {"ownerReferences": owners}})
        before = bench.board(), bench.board(SERVICES)
        await asyncio.sleep(10.0)
        assert (bench.board(), bench.board(SERVICES)) == before
        assert process.recorder.events == []
        await asyncio.sleep(60.0)
        assert {(kind, reason) for kind, reason, _ in process.recorder.events} == {("Warning", "FailedTensorBoard")}
        waits = f"Error creating deployment {NAME}: it already exists and belongs to an earlier job of this name (UID "
        assert any(message.startswith(waits) for *_, message in process.recorder.events)
        await bench.client.delete(DEPLOYMENTS, HOME, NAME)
        await asyncio.sleep(LONGEST_DELAY_S)
        assert "--logdir=/new" in bench.command()


@pytest.mark.parametrize(("resource", "kind"), [(DEPLOYMENTS, "deployment"), (SERVICES, "service")])
async def test_a_child_that_a_finalizer_keeps_is_reported_after_a_while(resource: Resource, kind: str) -> None:
    """Another one of its name is created once it is gone."""
    async with a_board() as (bench, process):
        process.recorder.events.clear()
        await bench.client.patch(resource, HOME, NAME, {"metadata": {"finalizers": ["example.com/keep"]}})
        await bench.client.delete(resource, HOME, NAME)
        await asyncio.sleep(LINGER_LIMIT_S - 1)
        assert process.recorder.events == []
        await asyncio.sleep(60.0)
        ((type_, reason, message),) = process.recorder.events
        assert (type_, reason) == ("Warning", "FailedTensorBoard")
        assert message.startswith(f"Error creating {kind} {NAME}: it already exists and is being deleted (UID ")
        await bench.client.patch(resource, HOME, NAME, {"metadata": {"finalizers": None}})
        await asyncio.sleep(5.0)
        assert "deletionTimestamp" not in bench.board(resource)["metadata"]
        assert process.recorder.reasons[-1] == "SuccessfulCreateTensorBoard"


async def test_a_child_that_is_gone_before_a_watch_shows_it_is_created_again() -> None:
    """TB-07: no event reports its deletion."""
    async with Bench().begun() as bench:
        process = bench.start()
        await bench.create_job("other", tensorBoard=BOARD, wait_s=1.0)
        process.line.fails["WATCH", "deployments"] = ConnectError("connection refused")
        bench.server.restart()
        await bench.create_job(tensorBoard=BOARD, wait_s=5.0)
        await bench.client.delete(DEPLOYMENTS, HOME, NAME)
        process.line.fails.clear()
        await asyncio.sleep(2 * TRUST_S)
        assert NAME in bench.names("deployments")


async def test_an_object_that_has_taken_the_name_of_a_child_is_not_deleted() -> None:
    """TB-14: the watch may be the last to hear of it."""
    async with a_board() as (bench, process):
        bench.server.storage.freeze(bench.server.storage.collections["deployments"])
        await bench.client.delete(DEPLOYMENTS, HOME, NAME)
        await bench.client.create(DEPLOYMENTS, HOME, {"metadata": {"name": NAME}, "spec": {"replicas": 3}})
        await bench.edit(None)
        assert (bench.names("deployments"), bench.names("services")) == ([NAME], [])
        assert process.recorder.reasons[2:] == ["SuccessfulDeleteTensorBoard"]


TROUBLE = status_error(ServerError, 500)


@pytest.mark.parametrize(
    ("doing", "verb", "error"),
    [
        ("creating", "PATCH", REFUSED),
        ("creating", "PATCH", TROUBLE),
        ("updating", "PATCH", REFUSED),
        ("deleting", "DELETE", REFUSED),
    ],
)
async def test_what_fails_is_reported_once_and_tried_again_until_it_works(
    doing: str, verb: str, error: StatusError
) -> None:
    """TB-15: with growing delays, like any error that may be temporary; the other child does not wait for it."""
    async with Bench().begun() as bench:
        process = bench.start()
        if doing != "creating":
            await bench.create_job(tensorBoard=BOARD, wait_s=1.0)
        process.line.requests.clear()
        process.line.fails[verb, "deployments"] = error
        if doing == "creating":
            await bench.create_job(tensorBoard=BOARD)
        else:
            await bench.edit(None if doing == "deleting" else {"logDir": "/new", "serviceType": "NodePort"})
        await asyncio.sleep(LONGEST_DELAY_S)
        ((reason, message),) = [each[1:] for each in process.recorder.events if each[0] == "Warning"]
        assert reason == "FailedTensorBoard"
        assert message.startswith(f"Error {doing} deployment {NAME}: ")
        assert process.line.asked.count((verb, "deployments")) < (24 if error is TROUBLE else 12)
        process.line.fails.clear()
        await asyncio.sleep(LONGEST_DELAY_S + 1.0)
        if doing == "deleting":
            assert bench.children() == []
        else:
            assert bench.children() == [NAME, NAME]
            assert f"--logdir={'/new' if doing == 'updating' else '/logs'}" in bench.command()


async def test_an_edit_between_two_writes_of_the_operator_is_set_back_without_a_warning() -> None:
    """TB-07: an apply that is rejected is repeated after a replacement, and may be rejected for a still newer edit."""
    async with a_board() as (bench, process):
        send, rejections = process.line.send, 2

        async def rejecting(request: Request, on_leave: OnLeave = unchanged) -> Response:
            nonlocal rejections
            if request.content_type == APPLY_PATCH and b"logdir=/new" in (request.body or b"") and rejections:
                rejections -= 1
                raise status_error(InvalidError, 422, "may not specify more than 1 handler type")
            return await send(request, on_leave)

        process.line.send = rejecting  # type: ignore[method-assign]
        await bench.edit({"logDir": "/new"})
        await asyncio.sleep(LONGEST_DELAY_S)
        assert rejections == 0
        assert "--logdir=/new" in bench.command()
        assert [each for each in process.recorder.events if each[0] == "Warning"] == []
