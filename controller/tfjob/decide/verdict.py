"""When a job runs, restarts, succeeds or fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import RestartPolicy, SuccessPolicy
from tfjob_operator.controller.tfjob.build.labels import deciding_type
from tfjob_operator.controller.tfjob.decide.causes import first_failure
from tfjob_operator.controller.tfjob.decide.pod_end import DEADLINE_EXCEEDED
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
    """Decide about a job. Success is looked at first: a chief that has ended well has ended the job.

    `finished` are the indices that have succeeded, with those whose pods are gone.
    """
    if _has_succeeded(spec, finished):
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
    decider = deciding_type(spec.replicas)
    watched = [decider] if decider is not None else list(spec.replicas)
    return Verdict(running=any(counts[name].active > 0 for name in watched))


def _has_succeeded(spec: TFJobSpec, finished: Mapping[str, Collection[int]]) -> bool:
    decider = deciding_type(spec.replicas)
    if decider is None:
        deciders = [name for name, replica in spec.replicas.items() if replica.replicas > 0]
        return bool(deciders) and all(len(finished[name]) >= spec.replicas[name].replicas for name in deciders)
    if len(finished[decider]) >= spec.replicas[decider].replicas:
        return True
    return decider == c.WORKER and spec.success_policy != SuccessPolicy.ALL_WORKERS and 0 in finished[c.WORKER]


def _is_lost(replica: Replica, spec: TFJobSpec) -> bool:
    return replica.outcome is Outcome.FAILED and not replica.terminating and not should_restart(replica, spec)


def should_restart(replica: Replica, spec: TFJobSpec) -> bool:
    """Whether a failed pod is deleted, to be made again under the same name.

    A pod lives by the policy that it was made with: an edit counts for those that are made from then on (U15).
    Always and OnFailure restart containers in place, but a pod that is itself Failed (evicted, its node lost) never comes back
    by the kubelet's hand (B38). ExitCode asks the exit code, but not of a pod that the cluster took away: what its process
    answered to the SIGTERM is not its doing. What the container's own policy calls fatal is so under every policy of the
    replica. Workers of an elastic job come and go: one that the cluster took is made again even under Never (B50), and so is
    any replica that has not failed but was stopped, and exited in order.
    """
    policy = replica.restart_policy or spec.replicas[replica.type].restart_policy
    if replica.outcome is not Outcome.FAILED:
        return False
    if policy == RestartPolicy.NEVER:
        return (spec.dynamic_workers and replica.type == c.WORKER and replica.disrupted) or replica.was_stopped_in_order
    if policy == RestartPolicy.EXIT_CODE:
        # What a process answers to the pod's own deadline is not its doing either, but that limit its author has set.
        if replica.ended is None or replica.pod.status.reason == DEADLINE_EXCEEDED:
            return replica.disrupted
        return replica.disrupted or replica.ended.exit_code in c.RETRYABLE_EXIT_CODES
    return replica.disrupted or not replica.was_left_by_its_own_policy
