"""Why pods of a job of the alpha dialect do not start. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import PodPhase
from tfjob_operator.controller.jobs.problems import problems_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.controller.alpha.decide.observe import Replica
    from tfjob_operator.controller.jobs.problems import Problem

_STARTED: Final = frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED})


def problems_of(replicas: Iterable[Replica]) -> tuple[Problem, ...]:
    """Return what keeps these replicas from starting."""
    return tuple(
        problem
        for replica in replicas
        for pod in replica.pods
        if pod.status.phase not in _STARTED and pod.metadata.deletion_timestamp is None
        for problem in problems_of_pod(pod)
    )
