"""The checker can fail: with each of these bugs in the operator, all of which operators have had, it says what is wrong."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from api.v1 import conditions
from controller.tfjob import controller, plan, status
from controller.tfjob.controller import TFJobController
from controller.tfjob.expectations import Expectations
from controller.tfjob.handlers import ChildHandler
from controller.tfjob.status_writer import StatusWriter
from worlds.search import search
from worlds.settings import ONE, SUSPEND, TWO, Setting
from worlds.world import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable

    Bug = Callable[[pytest.MonkeyPatch], None]


def expectations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """What was made and is not seen yet is made again."""
    patch.setattr(Expectations, "satisfied", lambda *_: True)


def views_are_not_proved(patch: pytest.MonkeyPatch) -> None:
    """Children are made on a view that may be old."""

    async def confirm(*_: Any) -> None:
        """Believe it."""

    patch.setattr(StatusWriter, "confirm", confirm)


def the_status_comes_last(patch: pytest.MonkeyPatch) -> None:
    """Children are made before the write that would have shown the view to be old."""
    write = TFJobController._write_status

    async def late(self: Any, *arguments: Any, at_once: bool, **options: Any) -> bool:
        _key, _known, job, memory, decided = arguments
        if at_once:
            await self._executor.create_children(job, memory.spec, decided)
        return await write(self, *arguments, at_once=at_once, **options)

    patch.setattr(TFJobController, "_write_status", late)


def successes_are_not_written(patch: pytest.MonkeyPatch) -> None:
    """The status does not say which replicas have finished."""
    patch.setattr(status, "remembered", lambda *_: {})


def successes_are_not_kept_in_memory(patch: pytest.MonkeyPatch) -> None:
    """What was seen while the window for counters is open is forgotten with the pod."""
    patch.setattr(controller, "_with_unwritten", lambda job, _unwritten: job)


def failures_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A pod is deleted to be made again, and nothing tells that it has failed."""
    patch.setattr(plan, "account", lambda records, *_: tuple(records))


def an_end_is_not_final(patch: pytest.MonkeyPatch) -> None:
    """A job that has ended is treated like any other."""
    patch.setattr(conditions, "_has_ended", lambda _: False)


def deletions_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """The handler drops them, so an expectation is never met and no key comes."""
    patch.setattr(ChildHandler, "_gone", lambda *_: None)


def a_failed_sync_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """The key of a sync that failed does not come back."""

    async def once(self: TFJobController, key: str) -> None:
        with contextlib.suppress(Exception):
            await self.sync(key)

    patch.setattr(TFJobController, "_sync_safely", once)


@pytest.mark.parametrize(
    ("bug", "setting", "complaint"),
    [
        (expectations_are_ignored, Setting("", ONE, (), 0), "only has not seen yet"),
        (views_are_not_proved, Setting("", ONE, ("lose",), 1, (SUSPEND,), runs_at_once=True), "is suspended"),
        (the_status_comes_last, Setting("", ONE, (), 0, (SUSPEND,)), "is suspended"),
        (successes_are_not_written, Setting("", TWO, (), 0, runs_at_once=True), "success"),
        (successes_are_not_kept_in_memory, Setting("", TWO, ("remove",), 1, runs_at_once=True), "finished"),
        (failures_are_not_counted, Setting("", ONE, ("killed",), 1), "failure of j-worker-0 is not written"),
        (an_end_is_not_final, Setting("", ONE, ("leap",), 1), "ends a second time"),
        (deletions_are_not_seen, Setting("", ONE, ("remove",), 1), "needed are"),
        (a_failed_sync_is_dropped, Setting("", ONE, ("lose",), 1), "invalid|pods of|service is missing|observed"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_it_finds(bug: Bug, setting: Setting, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops at the first wrong step, and shows the way there."""
    bug(monkeypatch)
    with pytest.raises(WrongError, match=complaint) as caught:
        search(setting, setting.surprises)
    assert "(0, 'deliver', 'tfjobs')" in caught.value.__notes__[-1]
