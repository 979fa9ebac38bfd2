"""A pod is judged by the restart policy that it was made with, whatever the specification says today."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.jobs import good_spec, job, names, pod, replica
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.v1.constants import ConditionType, RestartPolicy
from tfjob_operator.controller.jobs.children import ChildLabels, Pod
from tfjob_operator.controller.tfjob.build.children import PodBuilder
from tfjob_operator.controller.tfjob.plan.plan import plan


def under(policy: str, exit_code: int, **fields: Any) -> Pod:
    """Worker 0, made under this policy and ended with this code; its kubelet does not restart it."""
    in_pod = PodRestartPolicy.NEVER if policy == RestartPolicy.EXIT_CODE else policy
    made = pod("Worker", 0, "Failed", exit_code, policy=in_pod, **fields)
    labels = msgspec.structs.replace(made.metadata.labels or ChildLabels(), restart_policy=policy)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def decided(policy: str, *pods: Pod) -> tuple[list[str], list[str]]:
    """Return the pods that are deleted and the True conditions, for a job whose worker has this policy by now."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, policy)}})
    found = plan(tfjob, good_spec(tfjob), pods, [], EPOCH)
    assert found.status is not None
    return names(found)["delete pods"], [each.type for each in found.status.conditions if each.status == "True"]


AGAIN: tuple[list[str], list[str]] = ["mnist-worker-0"], [ConditionType.CREATED, ConditionType.RESTARTING]
LOST: tuple[list[str], list[str]] = [], [ConditionType.CREATED, ConditionType.FAILED]


@pytest.mark.parametrize("today", RestartPolicy)
@pytest.mark.parametrize(
    ("made", "code", "outcome"),
    [
        (RestartPolicy.EXIT_CODE, 137, AGAIN),
        (RestartPolicy.EXIT_CODE, 1, LOST),
        (RestartPolicy.NEVER, 137, LOST),
        (RestartPolicy.NEVER, 1, LOST),
        (RestartPolicy.ON_FAILURE, 1, AGAIN),
        (RestartPolicy.ALWAYS, 1, AGAIN),
    ],
)
def test_a_pod_is_judged_by_the_policy_that_it_was_made_with(made: str, code: int, outcome: Any, today: str) -> None:
    """U15: an edit of the policy applies to the pods that are made after it."""
    assert decided(today, under(made, code)) == outcome


@pytest.mark.parametrize(("today", "outcome"), [(RestartPolicy.EXIT_CODE, AGAIN), (RestartPolicy.NEVER, LOST)])
@pytest.mark.parametrize("word", ["", "Sometimes"])
def test_a_pod_that_bears_no_word_of_its_policy_is_judged_by_the_specification(
    word: str, today: str, outcome: Any
) -> None:
    """U15: such as those of older operators; in the restart policy of a pod Never and ExitCode look the same."""
    older = under(RestartPolicy.NEVER, 137)
    labels = msgspec.structs.replace(older.metadata.labels or ChildLabels(), restart_policy=word)
    older = msgspec.structs.replace(older, metadata=msgspec.structs.replace(older.metadata, labels=labels))
    assert decided(today, older) == outcome


@pytest.mark.parametrize("policy", RestartPolicy)
def test_a_pod_is_made_with_the_policy_of_its_replica_on_it(policy: str) -> None:
    """U15: otherwise Never and ExitCode could not be told apart later."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, policy)}})
    (slot,) = plan(tfjob, good_spec(tfjob), [], [], EPOCH).create_pods
    labels = PodBuilder(tfjob, good_spec(tfjob)).build(slot)["metadata"]["labels"]
    assert labels["training.kubeflow.org/restart-policy"] == policy
