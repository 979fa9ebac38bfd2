"""Counts the restarts of replicas, in place and by re-creation, so that no crash of the operator loses or repeats one. Pure.

The kubelet's count is part of the pod and goes with it; ours must be written before the pod is deleted. Both are kept in one
record for each replica that was ever restarted, tied to the UID of its pod. A record also says of a pod that its deletion was
requested, where the pod itself may no longer show when (`stopped`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.v1.types import IndexRestarts
from tfjob_operator.controller.jobs.pod_end import goes_with_more_grace, native_sidecars

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.controller.tfjob.decide.replicas import Replica


def account(
    records: Iterable[IndexRestarts], replicas: Iterable[Replica], failed: Collection[str]
) -> tuple[IndexRestarts, ...]:
    """Update the records from the pods that exist.

    `failed` are the UIDs of pods that failed by themselves and are about to be replaced. Idempotent: the same pods change
    nothing the second time, and counts never fall. A record is moved to another pod only when that has something to count;
    whether that pod is the later one must be confirmed (see `taken_over`).
    """
    found = {(record.type, record.index): record for record in records}
    for replica in replicas:
        uid = replica.pod.metadata.uid
        place = (replica.type, replica.index)
        in_place, fails = in_place_restarts(replica.pod), uid in failed
        stopped = goes_with_more_grace(replica.pod)
        if not (in_place or fails or stopped):
            continue
        record = found.get(place, IndexRestarts(type=replica.type, index=replica.index, pod=uid))
        if record.pod != uid:
            record = IndexRestarts(type=record.type, index=record.index, pod=uid, carried=record.total)
        found[place] = msgspec.structs.replace(
            record,
            in_place=max(record.in_place, in_place),
            replaced=record.replaced or fails,
            stopped=record.stopped or stopped,
        )
    return tuple(found[place] for place in sorted(found))


def taken_over(before: Iterable[IndexRestarts], after: Iterable[IndexRestarts]) -> list[IndexRestarts]:
    """Return the records that were moved to another pod.

    On an old view that may be a pod from before the one on record, whose restarts are counted already. So such records are
    written only after the API server has confirmed that the pod exists.
    """
    pods = {(record.type, record.index): record.pod for record in before}
    return [record for record in after if pods.get((record.type, record.index), record.pod) != record.pod]


def merged(records: Iterable[IndexRestarts], others: Iterable[IndexRestarts]) -> tuple[IndexRestarts, ...]:
    """Merge two lists of records of the same replicas; either may be the newer. No restart is counted twice or lost.

    Of two records about one pod the larger counts are true; of records about different pods the one that counts more is the
    later, since each new pod carries what was counted before. Where they count the same, a pod of `others` that was stopped is
    the later one: nothing else than that it was stopped can have brought it there.
    """
    found = {(record.type, record.index): record for record in records}
    for other in others:
        place = (other.type, other.index)
        record = found.get(place, other)
        if record.pod == other.pod:
            found[place] = msgspec.structs.replace(
                record,
                carried=max(record.carried, other.carried),
                in_place=max(record.in_place, other.in_place),
                replaced=record.replaced or other.replaced,
                stopped=record.stopped or other.stopped,
            )
        elif other.total > record.total or (other.stopped and other.total == record.total):
            found[place] = other
    return tuple(found[place] for place in sorted(found))


def in_place_restarts(pod: Pod) -> int:
    """How often the kubelet restarted containers of this pod: all of them, init containers too (B37).

    Native sidecars count as well, but not in a pod whose policy is Never: there nobody asked for restarts, and its kubelet
    restarts them all the same, whatever the policy (M7).
    """
    spared = native_sidecars(pod.spec) if pod.spec.restart_policy == PodRestartPolicy.NEVER else frozenset()
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return sum(status.restart_count for status in statuses if status.name not in spared)
