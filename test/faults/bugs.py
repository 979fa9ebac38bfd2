"""Bugs that are put into an operator, which the crash matrix must find; most are those of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.controller.tfjob.decide import clean_up, status_draft
from tfjob_operator.controller.tfjob.executor import Executor
from tfjob_operator.controller.tfjob.status_writer import StatusWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _restarts_are_not_counted() -> None:
    _replace(status_draft, "account", lambda *_: ())


def _everything_is_cleaned_up() -> None:
    _replace(clean_up, "to_clean_up", lambda _, pods: [*pods])


def _the_status_is_written_last() -> None:
    """A pod is deleted before the status says why: an operator that is killed in between has forgotten it."""
    settle, act = StatusWriter.settle, Executor._create_and_delete
    late: dict[int, tuple[Any, Any, bool]] = {}

    async def settle_later(writer: Any, view: Any, plan: Any, *, at_once: bool) -> None:
        if plan.delete_pods and view.may_act:
            late[id(view)] = (writer, plan, at_once)
        else:
            await settle(writer, view, plan, at_once=at_once)

    async def act_first(executor: Any, view: Any, plan: Any) -> None:
        await act(executor, view, plan)
        if (waiting := late.pop(id(view), None)) is not None:
            await settle(waiting[0], view, waiting[1], at_once=waiting[2])

    _replace(StatusWriter, "settle", settle_later)
    _replace(Executor, "_create_and_delete", act_first)


def _replace(place: object, name: str, bug: object) -> None:
    assert hasattr(place, name), f"{place} has no {name} any more"
    setattr(place, name, bug)


BUGS: Final[Mapping[str, Callable[[], None]]] = {
    "restarts-are-not-counted": _restarts_are_not_counted,
    "everything-is-cleaned-up": _everything_is_cleaned_up,
    "the-status-is-written-last": _the_status_is_written_last,
}
