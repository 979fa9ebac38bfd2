"""What a kubelet does when a container has ended, read from its pod apart from the code under test. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.model.storage import Body


class After(enum.Enum):
    """What follows upon the end of a container."""

    LEFT = "left"
    RESTARTED = "restarted"
    ALL_RESTARTED = "all restarted"


_ACTIONS = {"Restart": After.RESTARTED, "RestartAllContainers": After.ALL_RESTARTED}


def is_native_sidecar(spec: dict[str, Any]) -> bool:
    """Whether an init container runs beside the others (KEP-753)."""
    return spec.get("restartPolicy") == "Always"


def after_exit(pod: Body, name: str, code: int) -> After:
    """What the kubelet does after this container of a pod has ended with an exit code.

    The server has dropped what its version does not know, so that the pod says it all (KEP-753, KEP-5307, KEP-5532).
    """
    spec = pod["spec"]
    policy = spec.get("restartPolicy", "Always")
    for init in spec.get("initContainers") or ():
        if init["name"] == name:
            again = is_native_sidecar(init) or (policy != "Never" and code != 0)
            return After.RESTARTED if again else After.LEFT
    own = next(each for each in spec["containers"] if each["name"] == name)
    for rule in own.get("restartPolicyRules") or ():
        codes = rule["exitCodes"]
        if (code in codes["values"]) == (codes["operator"] == "In"):
            return _ACTIONS[rule["action"]]
    policy = own.get("restartPolicy") or policy
    again = policy == "Always" or (policy == "OnFailure" and code != 0)
    return After.RESTARTED if again else After.LEFT
