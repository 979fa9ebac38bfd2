"""The bodies of PodGroups, and the sums of resources in them."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.jobs import good_spec, job, replica, template
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.controller.jobs.children import ChildMeta, PodGroup, ReplicaKey
from tfjob_operator.controller.tfjob.build.children import (
    PodBuilder,
    build_pod_group,
    gang_scheduler,
    min_resources,
    resize_patch,
)
from tfjob_operator.controller.tfjob.plan.actions import PodGroupResize

VOLCANO = gang_scheduler("volcano")
PLUGINS = gang_scheduler("coscheduler")


def asking(requests: Any = None, limits: Any = None, **pod_spec: Any) -> dict[str, Any]:
    """A template whose container asks for these resources."""
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value is not None}
    containers = [{"name": "tensorflow", "image": "i", "resources": resources}]
    return {"spec": {"containers": containers, **pod_spec}}


def spec_of(scheduling: dict[str, Any] | None = None, **templates: dict[str, Any]) -> dict[str, Any]:
    """Two workers and one PS, of these templates."""
    given = {"Worker": template(), "PS": template()} | templates
    replicas = {name: replica(2 if name == "Worker" else 1, template=body) for name, body in given.items()}
    return {"tfReplicaSpecs": replicas, "runPolicy": {"schedulingPolicy": scheduling}}


def built(spec: dict[str, Any], scheduler: Any = VOLCANO, min_member: int = 3) -> dict[str, Any]:
    """The group of a job."""
    tfjob = job(spec)
    return build_pod_group(tfjob.metadata, good_spec(tfjob), templates_of(tfjob.spec), scheduler, min_member)


def resources_of(spec: dict[str, Any], min_member: int) -> dict[str, str]:
    """What the first pods of a job request together."""
    tfjob = job(spec)
    return min_resources(good_spec(tfjob), templates_of(tfjob.spec), min_member)


def patch_of(spec: dict[str, Any], resize: PodGroupResize) -> list[dict[str, Any]]:
    """The patch that brings a job's group to its new size."""
    tfjob = job(spec)
    return resize_patch(good_spec(tfjob), templates_of(tfjob.spec), resize.group, resize.min_member)


def test_a_group_has_the_jobs_name_and_the_job_as_its_controller() -> None:
    """RM-04: so the garbage collector takes it with the job."""
    body = built(spec_of())
    assert (body["apiVersion"], body["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert body["metadata"]["name"] == "mnist"
    assert body["metadata"]["labels"]["training.kubeflow.org/job-name"] == "mnist"
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("TFJob", True, True)


def test_what_the_user_did_not_say_is_not_in_the_group() -> None:
    """B66: above all no queue; the scheduler knows the default."""
    assert built(spec_of())["spec"] == {"minMember": 3}


def test_a_group_for_volcano_has_queue_priority_and_resources() -> None:
    """Each from the scheduling policy."""
    scheduling = {"queue": "research", "priorityClass": "high", "minResources": {"cpu": 3}, "scheduleTimeoutSeconds": 9}
    assert built(spec_of(scheduling))["spec"] == {
        "minMember": 3,
        "queue": "research",
        "priorityClassName": "high",
        "minResources": {"cpu": 3},
    }


def test_a_group_for_the_coscheduling_plugin_has_its_timeout() -> None:
    """It knows neither queues nor priorities."""
    scheduling = {"queue": "research", "priorityClass": "high", "scheduleTimeoutSeconds": 9}
    body = built(spec_of(scheduling), PLUGINS)
    assert body["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert body["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 9}


def test_the_priority_is_that_of_the_first_template_that_has_one() -> None:
    """Where the policy names none. PS comes before Worker."""
    spec = spec_of(Worker=asking(priorityClassName="low"), PS=asking(priorityClassName="high"))
    assert built(spec)["spec"]["priorityClassName"] == "high"


def test_the_resources_are_those_of_the_first_pods_that_make_a_gang() -> None:
    """Two of three: the PS and one worker. A limit stands in for a request that is not there."""
    spec = spec_of(
        PS=asking({"cpu": "500m", "memory": "1Gi"}),
        Worker=asking({"cpu": 2, "memory": "1Gi"}, {"cpu": "4", "nvidia.com/gpu": "1"}),
    )
    found = resources_of(spec, 2)
    assert found == {"cpu": "2500m", "memory": "2147483648", "nvidia.com/gpu": "1"}
    assert resources_of(spec, 3)["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("resources", [{"requests": {"cpu": "lots", "memory": None}}, {"requests": None}, None])
def test_what_is_no_quantity_is_left_to_the_api_server(resources: Any) -> None:
    """It refuses the pod, and says why; the group must not fail because of it."""
    spec = spec_of(Worker={"spec": {"containers": [{"name": "tensorflow", "image": "i", "resources": resources}]}})
    assert "minResources" not in built(spec)["spec"]


def test_a_resize_changes_the_size_and_the_reckoned_resources_alone() -> None:
    """B66: the queue is not in the patch, and the UID must be that of the group that was seen."""
    group = PodGroup(metadata=ChildMeta(name="mnist", namespace="ns", uid="u"))
    resize = PodGroupResize(group, 2)
    patch = patch_of(spec_of({"queue": "q"}, PS=asking({"cpu": 1})), resize)
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/spec/minMember", "value": 2},
        {"op": "add", "path": "/spec/minResources", "value": {"cpu": "1"}},
    ]
    given_ones = spec_of({"minResources": {"cpu": 9}}, PS=asking({"cpu": 1}))
    assert [each["path"] for each in patch_of(given_ones, resize)] == ["/metadata/uid", "/spec/minMember"]


def test_pods_for_volcano_name_their_group_and_their_role() -> None:
    """Beside the annotations of the template, which stay."""
    tfjob = job({"tfReplicaSpecs": {"PS": replica(1, template=template() | {"metadata": {"annotations": {"a": "b"}}})}})
    body = PodBuilder(tfjob, good_spec(tfjob), gang=VOLCANO).build(ReplicaKey("PS", 0, "mnist-ps-0"))
    assert body["spec"]["schedulerName"] == "volcano"
    assert body["metadata"]["annotations"] == {
        "a": "b",
        "scheduling.k8s.io/group-name": "mnist",
        "volcano.sh/task-spec": "ps",
    }
    assert "scheduling.x-k8s.io/pod-group" not in body["metadata"]["labels"]


def test_pods_for_the_coscheduling_plugin_have_a_label() -> None:
    """And the name of the scheduler with that plugin."""
    tfjob = job()
    body = PodBuilder(tfjob, good_spec(tfjob), gang=PLUGINS).build(ReplicaKey("Worker", 0, "mnist-worker-0"))
    assert body["spec"]["schedulerName"] == "coscheduler"
    assert body["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "mnist"
    assert "annotations" not in body["metadata"]


def test_a_scheduler_that_the_template_names_stays() -> None:
    """It is the user's choice; a Warning reports it."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, template=template(schedulerName="own"))}})
    body = PodBuilder(tfjob, good_spec(tfjob), gang=VOLCANO).build(ReplicaKey("Worker", 0, "mnist-worker-0"))
    assert body["spec"]["schedulerName"] == "own"
