"""Where the life of jobs and the work on them is counted: ports. `controller.observability` has what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

Result = Literal["success", "error", "requeue", "panic"]
"""How a sync ended: all done; a call failed; its view was stale, so it comes again; it crashed."""


class JobMetrics(Protocol):
    """Counters of jobs, each called once per transition."""

    def expect(self, namespaces: Iterable[str]) -> None:
        """There are jobs in these namespaces: let their counters be there before anything is counted."""
        ...

    def job_created(self, namespace: str) -> None:
        """A job got its Created condition."""
        ...

    def job_deleted(self, namespace: str) -> None:
        """A job is gone."""
        ...

    def job_succeeded(self, namespace: str) -> None:
        """A job got its Succeeded condition."""
        ...

    def job_failed(self, namespace: str) -> None:
        """A job got its Failed condition."""
        ...

    def job_restarted(self, namespace: str) -> None:
        """A job got its Restarting condition."""
        ...


class ReconcileMetrics(Protocol):
    """The books of the workers."""

    def begun(self) -> None:
        """A worker begins a sync."""
        ...

    def ended(self, result: Result, seconds: float, /) -> None:
        """A sync has ended after so many seconds."""
        ...


class NoJobMetrics:
    """Counts nothing."""

    def expect(self, namespaces: Iterable[str]) -> None:
        """Do nothing."""

    def job_created(self, namespace: str) -> None:
        """Do nothing."""

    def job_deleted(self, namespace: str) -> None:
        """Do nothing."""

    def job_succeeded(self, namespace: str) -> None:
        """Do nothing."""

    def job_failed(self, namespace: str) -> None:
        """Do nothing."""

    def job_restarted(self, namespace: str) -> None:
        """Do nothing."""


class NoReconcileMetrics:
    """Counts nothing."""

    def begun(self) -> None:
        """Do nothing."""

    def ended(self, result: Result, seconds: float, /) -> None:
        """Do nothing."""
