"""Which runs of a script the predecessors of a pod have used up.

A controller that deletes a failed pod and creates it again under the same name gives it the same annotations. So that the
list of runs goes on in the new pod, the node counts the runs of every pod that has a controller, and writes the counts into
an annotation of the successor when it binds it. They are kept as long as the pod with this annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hack.hollow_node.objects import HollowPod, HollowStatus
from hack.hollow_node.script import RUN, Script
from tfjob_operator.api.meta import controller_of


@dataclass(frozen=True, slots=True)
class _Entry:
    pod_uid: str
    runs: Mapping[str, int]


class History:
    """Runs used up per namespace, name and controller's UID. One task at a time.

    Invariants: the counts of a pod never fall; a pod uses up at least one entry of each list, even if it never started;
    a pod without controller has no successor, and one without a list of runs needs no memory.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], _Entry] = {}

    def runs_before(self, pod: HollowPod) -> Mapping[str, int]:
        """Return the runs that the predecessors of a pod to be bound have used up, by container; empty for the first."""
        key = _succession(pod)
        entry = self._entries.get(key) if key is not None else None
        return entry.runs if entry is not None else {}

    def observe(self, pod: HollowPod, script: Script, status: HollowStatus) -> None:
        """Count the runs that a pod of this node has used up so far."""
        key = _succession(pod)
        if key is None:
            return
        begun = {
            container.name: container.restart_count + 1
            for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        }
        entry = self._entries.get(key)
        counted = entry.runs if entry is not None and entry.pod_uid == pod.metadata.uid else {}
        runs = {
            name: max(counted.get(name, 0), script.runs_before.get(name, 0) + begun.get(name, 1))
            for name in script.runs
        }
        self._entries[key] = _Entry(pod.metadata.uid, runs)


def _succession(pod: HollowPod) -> tuple[str, str, str] | None:
    """Return what a pod and its successors have in common, or None where nothing is to be remembered."""
    owner = controller_of(pod.metadata)
    if owner is None or not any(
        "," in text for key, text in (pod.metadata.annotations or {}).items() if key.startswith(RUN)
    ):
        return None
    return pod.metadata.namespace, pod.metadata.name, owner.uid
