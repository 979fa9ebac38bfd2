"""Planted bugs of the operator, and the matrix that must find each; most are also used by the simulation."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from tfjob_operator.api.client.errors import ServerError, StatusError, TransportError
from tfjob_operator.api.client.http import unchanged
from tfjob_operator.api.v1 import conditions
from tfjob_operator.controller.jobs import children
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.leaderelection import FencedTransport
from tfjob_operator.controller.tfjob.apply import ownership
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.apply.creator import Creator, Deleter
from tfjob_operator.controller.tfjob.apply.status_writer import TFJobStatusWriter
from tfjob_operator.controller.tfjob.plan import actions, cleanup, plan, status
from tfjob_operator.controller.tfjob.plan.clocks import Observer
from tfjob_operator.controller.tfjob.tfjob_controller import TFJobController


def _views_are_believed() -> None:
    """Create and delete children before the status write could fail, without confirming the view."""

    async def believe(*_: object) -> None:
        """Confirm nothing."""

    _replace(Confirmer, "confirm", believe)
    _replace(Confirmer, "confirm_pods", believe)
    _act_first(lambda plan: plan.acts)


def _act_first(concerns: Callable[[Any], object]) -> None:
    """Write the status after the creates and deletes of these plans."""
    write, act = TFJobStatusWriter.write_if_due, TFJobController._create_and_delete
    late: dict[int, tuple[Any, Any, Any, Any]] = {}

    async def write_later(writer: Any, view: Any, memory: Any, plan: Any, **how: bool) -> Any:
        if concerns(plan) and view.may_act:
            late[id(view)] = (writer, memory, plan, how)
            return view, None
        return await write(writer, view, memory, plan, **how)

    async def act_first(controller: Any, view: Any, plan: Any) -> None:
        await act(controller, view, plan)
        if (waiting := late.pop(id(view), None)) is not None:
            await write(waiting[0], view, *waiting[1:3], **waiting[3])

    _replace(TFJobStatusWriter, "write_if_due", write_later)
    _replace(TFJobController, "_create_and_delete", act_first)


def _writes_are_not_fenced() -> None:
    """A leader that lost its lease while it was stopped continues until it notices."""

    async def send(fenced: Any, request: Any, on_leave: Any = unchanged) -> Any:
        return await fenced._transport.send(request, on_leave)

    _replace(FencedTransport, "send", send)


def _refusals_are_believed() -> None:
    """Treat creates and deletes that a degraded server rejected as done."""

    def believe(method: Callable[..., Any]) -> Callable[..., Any]:
        async def act(*arguments: Any, **more: Any) -> Any:
            try:
                return await method(*arguments, **more)
            except StatusError as error:
                if error.code < 500:
                    raise
                return True

        return act

    _replace(Creator, "_create", believe(Creator._create))
    _replace(Deleter, "_delete", believe(Deleter._delete))


def _a_scale_down_is_ignored() -> None:
    go_on = plan._reconcile_children

    def keep(draft: Any, spec: Any, seen: Any, finished: Any, restarting: Any, **more: Any) -> Any:
        decided = go_on(draft, spec, seen, finished, restarting, **more)
        return replace(decided, delete_pods=decided.delete_pods[: len(restarting)])

    _replace(plan, "_reconcile_children", keep)


def _a_job_that_is_gone_leaves_a_task() -> None:
    """Like a timer that is never cancelled."""
    sync, left = TFJobController.sync, set()

    async def leave(controller: Any, key: str) -> None:
        await sync(controller, key)
        if controller.open(key) is None:
            left.add(asyncio.create_task(asyncio.Event().wait()))

    _replace(TFJobController, "sync", leave)


def _a_failed_create_counts_as_done() -> None:
    """The operator assumes that everything it sent will exist."""
    create = Creator._create

    async def believe(creator: Any, *child: Any) -> bool:
        try:
            return await create(creator, *child)
        except (ServerError, TransportError):
            return True

    _replace(Creator, "_create", believe)


def _an_end_is_decided_again() -> None:
    """Each sync of an Ending job decides anew, which moves the start of the grace period."""
    finish = cleanup.finish

    def decide(draft: Any, record: Any, *more: Any) -> Any:
        newer = msgspec.structs.replace(record, time=draft.timestamp)
        draft.begun = msgspec.structs.replace(draft.begun, ending=newer)
        return finish(draft, newer, *more)

    _replace(plan, "finish", decide)


def _a_gang_is_resized_at_its_end() -> None:
    """A PodGroup follows the pods of a job although its end is decided."""
    with_gang = actions.with_gang

    def follow(decided: Any, job: Any, spec: Any, replicas: Any, gang: Any, **more: Any) -> Any:
        if conditions.is_ending(job.status) and not spec.suspend:
            return actions.with_pod_group(decided, job, spec, replicas, gang, **more)
        return with_gang(decided, job, spec, replicas, gang, **more)

    _replace(plan, "with_gang", follow)


def _replace(place: object, name: str, bug: object) -> None:
    assert hasattr(place, name), f"{place} has no {name} any more"
    setattr(place, name, bug)


@dataclass(frozen=True)
class Bug:
    """A bug, and its finder. If that is a matrix: the workload that shows the bug, and words of the violation.

    `knows`: it shows only after a release with the same features as the current one.
    """

    plant: Callable[[], None]
    found_by: str
    workload: str = ""
    words: str = ""
    knows: bool = False


BUGS: Final[dict[str, Bug]] = {
    "restarts-are-not-counted": Bug(
        partial(_replace, status, "count_restarts", lambda *_: ()), "crash matrix", "restarts", "restarts are {}"
    ),
    "the-status-is-written-last": Bug(
        partial(_act_first, lambda plan: plan.delete_pods), "crash matrix", "restarts", "restarts are {"
    ),
    "a-restart-of-all-is-written-last": Bug(
        partial(_act_first, lambda plan: plan.delete_pods), "crash matrix", "all-restarted", "the status: attempt"
    ),
    "an-end-waits-for-no-pod": Bug(
        partial(_replace, cleanup, "_waited_for", lambda *_: []), "crash matrix", "queued", "held quota"
    ),
    "a-gang-is-resized-at-its-end": Bug(
        _a_gang_is_resized_at_its_end, "crash matrix", "queued-gang", "podgroups/job was created, adopted or resized"
    ),
    "an-orphan-is-adopted-at-the-end": Bug(
        partial(_replace, ownership, "conditions", SimpleNamespace(is_over=conditions.is_finished)),
        "crash matrix",
        "queued-gang",
        "pods/job-worker-3 was created, adopted or resized",
    ),
    "an-end-is-decided-again": Bug(_an_end_is_decided_again, "crash matrix", "queued-failed", "and then as"),
    "a-wait-begins-in-the-future": Bug(
        partial(_replace, Observer, "begins", lambda _, written: written),
        "crash matrix",
        "short-lived",
        "not: it is gone",
    ),
    "views-are-believed": Bug(_views_are_believed, "staleness", "suspended", "was created"),
    "refusals-are-believed": Bug(_refusals_are_believed, "degraded server", "plain", "not: 2 pods run"),
    "lists-meet-no-expectation": Bug(
        partial(_replace, Expectations, "listed", lambda *_: []), "unseen lives", "plain", "not: 2 pods run"
    ),
    "writes-are-not-fenced": Bug(_writes_are_not_fenced, "leaders"),
    "a-scale-down-is-ignored": Bug(_a_scale_down_is_ignored, "walks"),
    "an-edit-is-held-in-silence": Bug(partial(_replace, status, "_set_held", lambda *_: None), "walks"),
    "pods-stay-in-silence": Bug(partial(_replace, plan, "outdated_pods_warning", lambda *_: ""), "walks"),
    "children-have-other-names": Bug(
        partial(_replace, children, "child_name", lambda job, kind, index: f"{job}-{kind.lower()}{index}"),
        "upgrades",
        "plain",
        "was created",
    ),
    "pods-are-hashed-otherwise": Bug(
        partial(_replace, status, "_template_parts", lambda *_: ()),
        "upgrades",
        "held",
        "PodTemplateNotApplied",
        knows=True,
    ),
    "a-failed-create-counts-as-done": Bug(_a_failed_create_counts_as_done, "a full etcd"),
    "a-job-that-is-gone-leaves-a-task": Bug(_a_job_that_is_gone_leaves_a_task, "a long day"),
}


def found_by(finder: str) -> list[str]:
    return [name for name, bug in BUGS.items() if bug.found_by == finder]
