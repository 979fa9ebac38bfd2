"""Where the life of jobs is counted: a port. Prometheus stands behind it in `controller.observability`, nothing in tests."""

from __future__ import annotations

from typing import Protocol


class JobMetrics(Protocol):
    """Counters of jobs, each called once per transition."""

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


class NoJobMetrics:
    """Counts nothing."""

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
