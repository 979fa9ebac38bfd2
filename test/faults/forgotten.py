"""Which events die with a process: those of what it had done, or was about to hear of, and had not yet told.

Events are written one after the other, so that in a burst of creates some wait. Each create and each delete is told by one
event of a known reason; a fact that is told before a pod is deleted waits for nobody, and is not among them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from hack.fault_proxy.proxy import Seen

_ALPHA_CREATED, _ALPHA_DELETED, _BOARD = "SuccessfulCreate", "SuccessfulDelete", "SuccessfulCreateTensorBoard"
_TOLD_BY: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("create", "pods"): ("SuccessfulCreatePod",),
    ("delete", "pods"): ("SuccessfulDeletePod",),
    ("create", "services"): ("SuccessfulCreateService", _ALPHA_CREATED, _BOARD),
    ("delete", "services"): ("SuccessfulDeleteService", _ALPHA_DELETED),
    ("create", "podgroups"): ("SuccessfulCreatePodGroup",),
    ("delete", "podgroups"): ("SuccessfulDeletePodGroup",),
    ("create", "jobs"): (_ALPHA_CREATED,),
    ("delete", "jobs"): (_ALPHA_DELETED,),
    ("create", "deployments"): (_BOARD,),
    ("delete", "tfjobs"): ("SuccessfulDeleteJob",),
}


def forgotten(seen: Iterable[Seen]) -> dict[str, int]:
    """Count the events that had not reached the server, by type and reason; `seen` are all requests before the kill."""
    waiting: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for each in seen:
        waiting.update(_TOLD_BY.get((each.verb, each.place.resource), ()))
        if each.place.resource == "events" and each.status in {200, 201}:
            name = each.place.name  # none for a create; a patch raises the count of an event
            if each.verb == "create":
                event = json.loads(each.body)
                name = event["metadata"]["name"]
                reasons[name] = event["reason"]
            waiting[reasons[name]] -= 1
    return {f"Normal {reason}": count for reason, count in waiting.items() if count > 0}
