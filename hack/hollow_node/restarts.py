"""What follows the end of a container, pure: nothing, another run of it, or of all containers of its pod.

In: the container's spec, the pod's policy, how the run ended, the version of Kubernetes.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from hack.hollow_node.objects import ALWAYS, NEVER, ON_FAILURE, ContainerSpec, RestartRule, Terminated
from hack.kubernetes_versions import CONTAINER_RESTART_RULES, NATIVE_SIDECARS, RESTART_ALL_CONTAINERS, Kubernetes

RESTARTING_ALL: Final = "RestartingAllContainers"
"""The reason of an end that another container's rule has caused; the same in `state.waiting` and in `lastState`."""


class After(Enum):
    """What the kubelet does after an end."""

    NOTHING = "nothing"
    RESTART = "restart"
    RESTART_ALL = "restart all containers"


def is_sidecar(init: ContainerSpec, kubernetes: Kubernetes) -> bool:
    """Whether an init container runs on beside the others. A kubelet without native sidecars waits for its end."""
    return init.restart_policy == ALWAYS and kubernetes.has(NATIVE_SIDECARS)


def may_restart_all(container: ContainerSpec, kubernetes: Kubernetes) -> bool:
    """Whether some exit of this container would start the whole pod again in place."""
    return kubernetes.has(RESTART_ALL_CONTAINERS) and any(
        rule.action == "RestartAllContainers" for rule in container.restart_policy_rules
    )


def after(end: Terminated, container: ContainerSpec, pod_policy: str, kubernetes: Kubernetes, *, init: bool) -> After:
    """Decide by the first of the container's rules that matches, else by its own policy, else by the pod's."""
    if end.reason == RESTARTING_ALL:
        return After.RESTART
    policy = pod_policy
    if kubernetes.has(CONTAINER_RESTART_RULES):
        for rule in container.restart_policy_rules:
            if _matches(rule, end.exit_code):
                everything = rule.action == "RestartAllContainers" and kubernetes.has(RESTART_ALL_CONTAINERS)
                return After.RESTART_ALL if everything else After.RESTART
        policy = container.restart_policy or pod_policy
    if init and is_sidecar(container, kubernetes):
        return After.RESTART
    if policy == NEVER:
        return After.NOTHING
    if policy == ON_FAILURE or init:  # an init container that has succeeded is not run again
        return After.RESTART if end.exit_code else After.NOTHING
    return After.RESTART


def _matches(rule: RestartRule, exit_code: int) -> bool:
    return (exit_code in rule.exit_codes.values) == (rule.exit_codes.operator == "In")
