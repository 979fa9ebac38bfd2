"""Which pods of a job are asked why they do not start. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.controller.jobs.problems import problems_of_pod
from tfjob_operator.controller.tfjob.decide.replicas import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.controller.jobs.problems import Problem
    from tfjob_operator.controller.tfjob.decide.replicas import Replica


def problems_of(replicas: Iterable[Replica]) -> tuple[Problem, ...]:
    """Return what keeps these replicas from starting."""
    return tuple(
        problem
        for replica in replicas
        if replica.outcome is Outcome.WAITING and not replica.terminating
        for problem in problems_of_pod(replica.pod)
    )
