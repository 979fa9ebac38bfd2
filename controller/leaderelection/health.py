"""A check for a liveness probe: it fails when this process still works as leader after the end of its lease (LE-13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tfjob_operator.controller.leaderelection.elector import LeaderElector

TOLERANCE_S: Final = 20.0
"""LE-13: how long past the end of the lease a leader may still be at work before it counts as stuck;
kube-controller-manager's number."""


class LeaderHealth:
    """The health of an elector, which may be created after the health server; healthy until there is one."""

    def __init__(self, tolerance_s: float = TOLERANCE_S) -> None:
        self._tolerance_s = tolerance_s
        self._elector: LeaderElector | None = None

    def watch(self, elector: LeaderElector) -> None:
        """Check `elector` from now on."""
        self._elector = elector

    def check(self) -> str | None:
        """Return what is wrong, or None. A process that does not lead is healthy."""
        overdue_s = self._elector.overdue_s() if self._elector is not None else 0.0
        if overdue_s <= self._tolerance_s:
            return None
        return f"still at work {overdue_s:.0f} s after the end of its lease"
