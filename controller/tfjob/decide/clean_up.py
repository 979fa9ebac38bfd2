"""What is deleted and what is kept of a job that has ended. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import CleanPodPolicy, ConditionReason, ConditionType
from tfjob_operator.api.v1.types import InvalidSpec, TFJobSpec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.decide.actions import Plan, PodDeletion
from tfjob_operator.controller.tfjob.decide.predecessor import is_of_predecessor
from tfjob_operator.controller.tfjob.decide.replicas import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.conditions import Conditions
    from tfjob_operator.api.v1.types import ReplicaStatus
    from tfjob_operator.controller.tfjob.decide.observe import Observed
    from tfjob_operator.controller.tfjob.decide.replicas import Replica
    from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft


def clean_up(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed) -> Plan:
    """Clean up, keep the counters true, and delete the job itself when its TTL is over.

    The status of a job that another operator has ended is left as it is, and so are its pods unless the job says what is to
    become of them: the default has changed with the years, and what still runs may have been left on purpose.
    """
    left = None
    ended_at = _ended_at(draft)
    if spec.ttl_s is not None and ended_at is not None:
        left = spec.ttl_s - (draft.now - ended_at).total_seconds()
        if left <= 0:
            return Plan(delete_job=True)
    is_anothers_end = is_of_predecessor(draft.job.status)
    if is_anothers_end and not (isinstance(spec, TFJobSpec) and spec.says_clean_pod_policy):
        return Plan(requeue_after_s=left)
    policy = _policy(draft, spec)
    leaving = to_clean_up(policy, seen.replicas)
    # What is too many may not run on, under no policy; if it has ended it is kept or taken as all others are.
    surplus = to_clean_up(CleanPodPolicy.RUNNING if policy == CleanPodPolicy.NONE else policy, seen.surplus)
    draft.replica_statuses = without_active(_recounted(draft.replica_statuses, seen), seen.replicas, leaving)
    staying = {replica.key for replica in _without(seen.replicas, leaving)}
    if staying:
        staying.add(ReplicaKey.of_all(draft.job.metadata.name))
    return Plan(
        status=None if is_anothers_end else draft.freeze(),
        delete_pods=tuple(PodDeletion(replica.pod) for replica in (*leaving, *surplus) if not replica.terminating),
        delete_services=seen.services_except(staying),
        requeue_after_s=left,
    )


def to_clean_up(policy: str, replicas: Iterable[Replica]) -> list[Replica]:
    """Return the pods that are deleted after the end: all under All, none under None, those not ended under Running."""
    if policy == CleanPodPolicy.NONE:
        return []
    # By the pod, not by its outcome: a replica that is done may still burn CPU in a sidecar.
    return [replica for replica in replicas if policy == CleanPodPolicy.ALL or not replica.has_ended]


def policy_after(ended: Conditions, policy: str) -> str:
    """Return the clean-up policy after such an end: a job that was stopped by a limit leaves nothing running (B47)."""
    failed = conditions.find(ended, ConditionType.FAILED)
    stopped = failed is not None and failed.reason == ConditionReason.LIMIT
    return CleanPodPolicy.RUNNING if stopped and policy == CleanPodPolicy.NONE else policy


def without_active(
    counts: dict[str, ReplicaStatus], replicas: Sequence[Replica], leaving: Sequence[Replica]
) -> dict[str, ReplicaStatus]:
    """Return the counters when clean-up has begun: pods that are being deleted are not active, though they may take a while."""
    staying = count(_without(replicas, leaving), counts)
    return {name: msgspec.structs.replace(found, active=staying[name].active) for name, found in counts.items()}


def _ended_at(draft: StatusDraft) -> datetime | None:
    """Return when the job ended. Other operators have left the completion time out; their condition has a time, too."""
    if draft.completion_time is not None:
        return draft.completion_time
    ends = (each for each in draft.conditions if conditions.is_end(each))
    return next((each.last_transition_time for each in ends), None)


def _policy(draft: StatusDraft, spec: TFJobSpec | InvalidSpec) -> str:
    """Return the clean-up policy to follow now. A specification that was never valid has none."""
    failed = conditions.find(draft.conditions, ConditionType.FAILED)
    if isinstance(spec, InvalidSpec) and failed is not None and failed.reason == ConditionReason.INVALID:
        return CleanPodPolicy.RUNNING
    return policy_after(draft.conditions, spec.clean_pod_policy)


def _recounted(recorded: dict[str, ReplicaStatus], seen: Observed) -> dict[str, ReplicaStatus]:
    """Return the counters after the end: what has succeeded or failed stays counted when its pod is gone."""
    return {
        name: msgspec.structs.replace(
            found,
            succeeded=max(found.succeeded, recorded[name].succeeded),
            failed=max(found.failed, recorded[name].failed),
        )
        for name, found in count(seen.replicas, recorded).items()
    }


def _without(replicas: Iterable[Replica], leaving: Sequence[Replica]) -> list[Replica]:
    gone = {replica.pod.metadata.uid for replica in leaving}
    return [replica for replica in replicas if replica.pod.metadata.uid not in gone]
