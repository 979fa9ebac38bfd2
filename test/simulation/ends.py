"""Whether a container will be restarted, by Kubernetes' documentation of restart policies: for oracles.

This is an implementation independent of the kubelet's model (`hack.hollow_node.containers`), because an oracle that used the
model would repeat its errors. Both use the same table of versions.
"""

from hack.hollow_node.objects import NEVER, ContainerStatus, HollowPod
from hack.kubernetes_versions import CONTAINER_RESTART_RULES, Kubernetes

POLICY_LABEL = "training.kubeflow.org/restart-policy"


def is_last(pod: HollowPod, status: ContainerStatus, kubernetes: Kubernetes) -> bool:
    """Whether a container (not an init container) has ended and will not be restarted."""
    if status.state.running is not None:
        return False
    end = status.state.terminated or status.last_state.terminated
    if end is None or end.reason == "RestartingAllContainers":
        return False
    (spec,) = (each for each in pod.spec.containers if each.name == status.name)
    policy = pod.spec.restart_policy
    if kubernetes.has(CONTAINER_RESTART_RULES):
        named = [rule.exit_codes for rule in spec.restart_policy_rules]
        if any((codes.operator == "NotIn") != (end.exit_code in codes.values) for codes in named):
            return False  # the only action of a rule is a restart
        policy = spec.restart_policy or policy
    return policy == "Never" or (policy == "OnFailure" and end.exit_code == 0)


def restarts_always(pod: HollowPod, container: str) -> bool:
    """Whether the operator restarts the pod after any exit code of this container, if a kubelet may not."""
    always = (pod.metadata.labels or {}).get(POLICY_LABEL) == "Always" and pod.spec.restart_policy == NEVER
    return always and not any(each.name == container and each.restart_policy for each in pod.spec.containers)
