"""When a job runs, restarts, succeeds or fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import RestartPolicy, SuccessPolicy
from tfjob_operator.controller.jobs.pod_end import DEADLINE_EXCEEDED
from tfjob_operator.controller.tfjob.build.labels import deciding_type
from tfjob_operator.controller.tfjob.decide.causes import first_failure
from tfjob_operator.controller.tfjob.decide.replicas import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tfjob_operator.api.v1.types import ReplicaStatus, TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.replicas import Replica


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the state of the replicas means for the job. At most one of `succeeded` and `failed` is set."""

    running: bool = False
    succeeded: bool = False
    failed: str = ""
    """Why the job has failed, up to the last words of a process; empty while it has not. Clients match its beginning."""


def judge(
    job: TFJob,
    spec: TFJobSpec,
    replicas: Sequence[Replica],
    finished: Mapping[str, Collection[int]],
    counts: Mapping[str, ReplicaStatus],
) -> Verdict:
    """Decide about a job. Success comes first: a chief that has succeeded has ended the job.

    `finished` are the indices that have succeeded, also those whose pods are gone.
    """
    decider = deciding_type(spec.replicas)
    if _has_succeeded(spec, finished, decider):
        return Verdict(succeeded=True)
    for name in spec.replicas:
        lost = [
            replica
            for replica in replicas
            if replica.type == name and replica.index not in finished[name] and _is_lost(replica, spec)
        ]
        if lost:
            who = f"{job.metadata.namespace}/{job.metadata.name}"
            told = f"TFJob {who} has failed because {len(lost)} {name} replica(s) failed. {first_failure(lost)}"
            return Verdict(failed=told)
    watched = [decider] if decider is not None else list(spec.replicas)
    return Verdict(running=any(counts[name].active > 0 for name in watched))


def _has_succeeded(spec: TFJobSpec, finished: Mapping[str, Collection[int]], decider: str | None) -> bool:
    if decider is None:
        deciders = [name for name, replica in spec.replicas.items() if replica.replicas > 0]
        return bool(deciders) and all(len(finished[name]) >= spec.replicas[name].replicas for name in deciders)
    if len(finished[decider]) >= spec.replicas[decider].replicas:
        return True
    return decider == c.WORKER and spec.success_policy != SuccessPolicy.ALL_WORKERS and 0 in finished[c.WORKER]


def _is_lost(replica: Replica, spec: TFJobSpec) -> bool:
    return replica.outcome is Outcome.FAILED and not replica.terminating and not should_restart(replica, spec)


def should_restart(replica: Replica, spec: TFJobSpec) -> bool:
    """Whether a failed pod is deleted, to be created again under the same name.

    A pod lives by the policy with which it was created: an edit applies to later pods (U15). Under Always and OnFailure the
    kubelet restarts containers in place, but not a pod that is itself Failed, because it was evicted or its node lost
    (B38). ExitCode looks at the exit code, but not at that of a pod which the cluster took away: how its process reacted to
    the SIGTERM says nothing. A failure that the container's own policy makes final is final under every policy of the
    replica. Workers of an elastic job may come and go: one that the cluster took away is created again even under Never
    (B50), and so is any replica that has not failed but was stopped, and exited with 0.
    """
    policy = replica.restart_policy or _policy_without_label(replica, spec)
    if replica.outcome is not Outcome.FAILED:
        return False
    if policy == RestartPolicy.NEVER:
        return (spec.dynamic_workers and replica.type == c.WORKER and replica.disrupted) or replica.was_stopped_in_order
    if policy == RestartPolicy.EXIT_CODE:
        # The exit code after the pod's own deadline says nothing either, but that limit was set by its author.
        if replica.ended is None or replica.pod.status.reason == DEADLINE_EXCEEDED:
            return replica.disrupted
        return replica.disrupted or replica.ended.exit_code in c.RETRYABLE_EXIT_CODES
    return replica.disrupted or not replica.was_left_by_its_own_policy


def _policy_without_label(replica: Replica, spec: TFJobSpec) -> str:
    """Return the policy of a pod that another operator made: the replica's, unless the pod shows that it was another one.

    The operators before this one overruled the template's policy with Never, where the replica had none.
    """
    policy = spec.replicas[replica.type].restart_policy
    made_with_never = replica.pod.spec.restart_policy == PodRestartPolicy.NEVER
    return RestartPolicy.NEVER if made_with_never and policy != RestartPolicy.EXIT_CODE else policy
