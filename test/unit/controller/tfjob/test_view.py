"""Views: what may be done on them, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from pytest_mock import MockerFixture

from fakes.controller import KEY, ControllerHarness
from fakes.jobs import OWNER, job
from fakes.recorder import job_events
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.meta import OwnerKey
from tfjob_operator.api.v1.types import JobCondition, JobStatus, ReplicaStatus
from tfjob_operator.controller.jobs.children import CHILD_INDEXERS, ReplicaKey
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren, Delays
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import (
    Confirmer,
    LeadershipTerm,
    Permission,
    StaleViewError,
    UnkeptStatus,
    View,
    Views,
)
from tfjob_operator.informers import Indexer

LOOK = ("get", "tfjobs", "mnist")
CREATED = JobStatus(conditions=(JobCondition(type="Created", status="True"),))
ENDED = JobStatus(conditions=(*CREATED.conditions, JobCondition(type="Succeeded", status="True")))
NEWER, OLDER = "41", "39"
"""Versions on either side of the beginning of our leadership term."""


async def views_of(world: ControllerHarness) -> Views:
    """Views by themselves, in a leadership term that begins at version 40."""
    world.client.list_version = "40"
    term = LeadershipTerm(world.client, "")
    await term.begin()
    world.taken()
    confirmer, unkept = Confirmer(world.client), UnkeptStatus(job_events(world.recorder))
    blocked = BlockedChildren(world.clock, Delays(world.clock))
    return Views(world.caches, world.expectations, confirmer, unkept, blocked, leadership_term=term)


def opened(views: Views) -> View:
    """The view of the job, which must be there."""
    view = views.open(KEY)
    assert view is not None
    return view


@pytest.mark.parametrize(
    ("version", "status", "met", "expected"),
    [
        (NEWER, JobStatus(), True, Permission.FIRST),
        (NEWER, CREATED, True, Permission.UNCONFIRMED),
        (OLDER, JobStatus(), True, Permission.UNCONFIRMED),
        (OLDER, ENDED, True, Permission.FINAL),
        (NEWER, JobStatus(), False, Permission.EXPECTING),
        (OLDER, ENDED, False, Permission.EXPECTING),
    ],
)
async def test_a_view_says_whether_children_may_be_made_and_deleted_and_why(
    version: str, status: JobStatus, met: bool, expected: Permission
) -> None:
    """The job is read again only for a view that may be old."""
    world = ControllerHarness()
    world.jobs.put(job(status=status, resource_version=version))
    if not met:
        world.expectations.expect_creations(OWNER, "pod", ["mnist-worker-0"])
    view = opened(await views_of(world))
    assert (view.permission, view.may_act) == (expected, met)
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": version}}
    await view.before_acting()
    assert world.taken() == ([LOOK] if expected is Permission.UNCONFIRMED else [])


async def test_a_status_write_confirms_a_view_and_a_job_that_is_gone_does_not() -> None:
    """The write carries the version of the view, so the server would have refused it on an old one."""
    world = ControllerHarness()
    world.jobs.put(job(status=CREATED, resource_version=OLDER))
    view = opened(await views_of(world))
    assert view.wrote(None).permission is Permission.UNCONFIRMED
    view = view.wrote(job(status=ENDED, resource_version=NEWER))
    assert view.permission is Permission.CONFIRMED
    assert (view.job.metadata.resource_version, view.written) == (NEWER, ENDED)
    await view.before_acting()
    assert world.taken() == []


async def test_an_old_view_raises_before_anything_is_done_on_it() -> None:
    """The error ends the sync; the newer version brings another one."""
    world = ControllerHarness()
    world.jobs.put(job(status=CREATED, resource_version=OLDER))
    view = opened(await views_of(world))
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": NEWER}}
    with pytest.raises(StaleViewError):
        await view.before_acting()


@pytest.mark.parametrize("what", ["acted", "tried to write"])
async def test_the_first_act_is_the_only_one_that_needs_no_confirmation(what: str) -> None:
    """Another sync of the same version may come when the job is gone, or has a status."""
    world = ControllerHarness()
    world.jobs.put(job(resource_version=NEWER))
    views = await views_of(world)
    view = opened(views)
    if what == "acted":
        await view.before_acting()
    else:
        view.writing()
    assert opened(views).permission is Permission.UNCONFIRMED
    assert opened(views).may_wait is (what == "acted")


async def test_expectations_are_asked_before_the_caches(mocker: MockerFixture) -> None:
    """EX-04: a child that arrives in between delays the job, and is not made twice.

    Invariant: "Expectations are asked before the caches are read"
    """
    asked: list[str] = []

    class Listening(Indexer[Any]):
        def by_index(self, index: str, value: str) -> list[Any]:
            asked.append("cache")
            return super().by_index(index, value)

    world = ControllerHarness()
    for store in (world.pods, world.services, world.config_maps):
        store.indexer = Listening(CHILD_INDEXERS)
    satisfied = world.expectations.satisfied

    def listen(owner: OwnerKey) -> bool:
        asked.append("expectations")
        return satisfied(owner)

    mocker.patch.object(world.expectations, "satisfied", listen)
    world.jobs.put(job())
    opened(await views_of(world))
    assert asked == ["expectations", *["cache"] * 5]


async def test_a_status_that_is_kept_is_part_of_the_next_view_unless_the_job_goes() -> None:
    """B42: nothing more is written for a job that is being deleted."""
    world = ControllerHarness()
    world.jobs.put(job(resource_version=NEWER))
    views = await views_of(world)
    opened(views).keep(JobStatus(finished_indices={"Worker": "1"}))
    view = opened(views)
    assert (view.job.status.finished_indices, view.written.finished_indices) == ({"Worker": "1"}, {})
    world.jobs.put(job(resource_version="42", deletion_timestamp=EPOCH))
    view = opened(views)
    assert view.job.status == view.written == JobStatus()


async def test_a_view_of_a_refused_specification_knows_what_was_not_written_yet() -> None:
    """A first status that waits is written together with the refusal."""
    world = ControllerHarness()
    world.jobs.put(job(resource_version=NEWER))
    view = opened(await views_of(world))
    event = JobEvent("Normal", "TFJobCreated", "TFJob mnist is created.")
    view.keep(CREATED)
    refused = view.refused("args: must be strings", (event,))
    assert (refused.job.status, refused.unreported) == (CREATED, (event,))
    assert refused.written == JobStatus()
    assert "args: must be strings" in str(refused.spec)
    view.keep(None)
    assert view.refused("args: must be strings", (event,)).unreported == ()


async def test_a_job_of_another_controller_has_no_view() -> None:
    """B75: nor has one that is gone."""
    world = ControllerHarness()
    views = await views_of(world)
    assert views.open(KEY) is None
    theirs = {"tfReplicaSpecs": {}, "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    world.jobs.put(job(theirs))
    assert views.open(KEY) is None
    assert views.forget(job().metadata) is False


CONFIRM, WRITE, CREATE = "get tfjobs", "patch status tfjobs", "create pods"
STARTS = msgspec.structs.replace(CREATED, replica_statuses={"Worker": ReplicaStatus(active=1)})
"""A status in which only the number of active pods differs: it may wait for more of them."""


@pytest.mark.parametrize(
    ("permission", "status", "calls"),
    [
        (Permission.EXPECTING, None, []),
        (Permission.EXPECTING, STARTS, []),
        (Permission.EXPECTING, ENDED, [WRITE]),
        (Permission.UNCONFIRMED, None, [CONFIRM, CREATE]),
        (Permission.UNCONFIRMED, STARTS, [WRITE, CREATE]),
        (Permission.UNCONFIRMED, ENDED, [WRITE, CREATE]),
        (Permission.CONFIRMED, None, [CREATE]),
        (Permission.CONFIRMED, STARTS, [WRITE, CREATE]),
        (Permission.CONFIRMED, ENDED, [WRITE, CREATE]),
        (Permission.FIRST, None, [CREATE]),
        (Permission.FIRST, STARTS, [CREATE]),
        (Permission.FIRST, ENDED, [WRITE, CREATE]),
        (Permission.FINAL, None, [CREATE]),
        (Permission.FINAL, STARTS, [WRITE, CREATE]),
        (Permission.FINAL, ENDED, [WRITE, CREATE]),
    ],
)
async def test_permission_and_status_decide_which_calls_a_plan_makes(
    permission: Permission, status: JobStatus | None, calls: list[str]
) -> None:
    """EX-09: no status, one that may wait (STARTS), one that is due (ENDED). A write comes first, and confirms the view."""
    world = ControllerHarness()
    world.jobs.put(job(status=CREATED))
    view = replace(opened(await views_of(world)), permission=permission)
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"name": "mnist", "resourceVersion": "1"}}
    todo = Plan(status=status, create_pods=(ReplicaKey.of("mnist", "Worker", 0),))
    assert await world.controller._executor.execute(view, todo) is None
    assert [f"{verb} {resource}" for verb, resource, _ in world.taken()] == calls
