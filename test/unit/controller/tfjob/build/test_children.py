"""What pods and PodGroups look like."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fakes.jobs import good_spec, job, replica, template
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.controller.config.values import Accelerator, HostVolume, Variable
from tfjob_operator.controller.jobs.children import ChildMeta, PodGroup, ReplicaKey
from tfjob_operator.controller.tfjob.build.children import (
    PodBuilder,
    build_pod_group,
    build_service,
    gang_scheduler,
    min_resources,
    resize_patch,
)
from tfjob_operator.controller.tfjob.plan.actions import PodGroupResize

WORKER_0 = ReplicaKey("Worker", 0, "mnist-worker-0")
WORKER_1 = ReplicaKey("Worker", 1, "mnist-worker-1")


def pod_of(container: dict[str, Any], slot: ReplicaKey = WORKER_0, **entry: Any) -> dict[str, Any]:
    """The pod of a job with two workers whose template has this container."""
    template = {"spec": {"containers": [container, {"name": "sidecar", "image": "s"}]}} | entry.pop("template", {})
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(2, **entry) | {"template": template}}})
    return PodBuilder(tfjob, good_spec(tfjob)).build(slot)


TENSORFLOW = {"name": "tensorflow", "image": "i"}


def test_the_template_passes_through_with_what_nobody_reads() -> None:
    """An unknown field of the template reaches the pod; the sidecar is untouched."""
    pod = pod_of(TENSORFLOW | {"fieldOfTheFuture": {"a": [1]}})
    assert pod["spec"]["containers"][0]["fieldOfTheFuture"] == {"a": [1]}
    assert pod["spec"]["containers"][1] == {"name": "sidecar", "image": "s"}


def test_building_pods_changes_neither_the_template_nor_each_other() -> None:
    """One template serves all replicas of a type."""
    tfjob = job()
    spec = good_spec(tfjob)
    builder = PodBuilder(tfjob, spec)
    first = builder.build(WORKER_0)
    before = copy.deepcopy(first)
    second = builder.build(WORKER_1)
    assert first == before == PodBuilder(tfjob, spec).build(WORKER_0)
    assert first["spec"]["containers"][0]["env"] != second["spec"]["containers"][0]["env"]


def test_labels_and_annotations_are_merged_and_ours_win() -> None:
    """U11, U15: the labels of all SDKs, and the policy of the replica; users' own labels stay."""
    metadata = {"labels": {"team": "a", "job-name": "other"}, "annotations": {"n": "1"}, "creationTimestamp": None}
    pod = pod_of(TENSORFLOW, template={"metadata": metadata})
    assert pod["metadata"]["labels"] == {
        "team": "a",
        "group-name": "kubeflow.org",
        "job-name": "mnist",
        "tf-job-name": "mnist",
        "controller-name": "tf-operator",
        "replica-type": "worker",
        "replica-index": "0",
        "tf-replica-type": "worker",
        "tf-replica-index": "0",
        "job-role": "master",
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
        "training.kubeflow.org/restart-policy": "Never",
    }
    assert pod["metadata"]["annotations"] == {"n": "1"}
    assert "creationTimestamp" not in pod["metadata"]


def test_only_the_deciding_pod_is_called_master() -> None:
    """SDKs read its log: the chief, or worker 0 where there is none."""
    tfjob = job({"tfReplicaSpecs": {"Chief": replica(1), "Worker": replica(2)}})
    spec = good_spec(tfjob)
    roles = [
        PodBuilder(tfjob, spec).build(slot)["metadata"]["labels"].get(c.LABEL_JOB_ROLE)
        for slot in (ReplicaKey("Chief", 0, "x"), WORKER_0, WORKER_1)
    ]
    assert roles == ["master", None, None]


def test_children_are_owned_by_the_job() -> None:
    """RM-04: controller and blockOwnerDeletion are true, so the garbage collector takes them with the job."""
    tfjob = job()
    for body in (
        PodBuilder(tfjob, good_spec(tfjob)).build(WORKER_0),
        build_service(tfjob.metadata, good_spec(tfjob), WORKER_0),
    ):
        assert body["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "TFJob",
                "name": "mnist",
                "uid": "job-uid",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_the_policy_exit_code_runs_pods_that_never_restart() -> None:
    """The operator looks at the exit code, the kubelet must not restart before it has."""
    assert pod_of(TENSORFLOW, restartPolicy="ExitCode")["spec"]["restartPolicy"] == "Never"
    assert pod_of(TENSORFLOW, restartPolicy="OnFailure")["spec"]["restartPolicy"] == "OnFailure"


def test_tf_config_goes_into_the_training_container_alone() -> None:
    """After the user's own variables."""
    pod = pod_of(TENSORFLOW | {"env": [{"name": "A", "value": "1"}]})
    training, sidecar = pod["spec"]["containers"]
    assert [variable["name"] for variable in training["env"]] == ["A", "TF_CONFIG"]
    assert "env" not in sidecar


def test_a_users_own_tf_config_is_left_alone() -> None:
    """No second entry is appended, which would win."""
    env = [{"name": "TF_CONFIG", "value": "mine"}]
    assert pod_of(TENSORFLOW | {"env": env})["spec"]["containers"][0]["env"] == env


def test_the_port_is_added_where_it_is_missing() -> None:
    """And left as it is where the user named it."""
    assert pod_of(TENSORFLOW)["spec"]["containers"][0]["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    own = [{"name": "tfjob-port", "containerPort": 3333, "hostPort": 4}]
    assert pod_of(TENSORFLOW | {"ports": own})["spec"]["containers"][0]["ports"] == own


def test_a_service_names_each_number_once_for_a_protocol() -> None:
    """A pod may have two names for a port, a service may not; `tfjob-port` stays, and UDP is no TCP."""
    ports = [
        {"name": "grpc", "containerPort": 2222},
        {"name": "dns", "containerPort": 53},
        {"name": "dns-udp", "containerPort": 53, "protocol": "UDP"},
        {"name": "dns-again", "containerPort": 53, "protocol": "TCP"},
    ]
    containers = [TENSORFLOW | {"ports": ports}]
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1) | {"template": {"spec": {"containers": containers}}}}})
    assert build_service(tfjob.metadata, good_spec(tfjob), WORKER_0)["spec"]["ports"] == [
        {"name": "dns", "port": 53},
        {"name": "dns-udp", "port": 53, "protocol": "UDP"},
        {"name": "tfjob-port", "port": 2222},
    ]


def test_a_service_is_headless_and_resolves_before_its_pod_is_ready() -> None:
    """B61, B63: all named ports in stable order, publishNotReadyAddresses, selecting exactly one replica."""
    ports = [{"name": "metrics", "containerPort": 9}]
    template = {"spec": {"containers": [TENSORFLOW | {"ports": ports}]}}
    tfjob = job({"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}})
    service = build_service(tfjob.metadata, good_spec(tfjob), WORKER_1)
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {
            "training.kubeflow.org/operator-name": "tfjob-controller",
            "training.kubeflow.org/job-name": "mnist",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "1",
        },
        "ports": [{"name": "metrics", "port": 9}, {"name": "tfjob-port", "port": 2222}],
    }


def test_what_accelerators_need_is_in_the_pods_that_ask_for_them() -> None:
    """Beside TF_CONFIG; how it is put in is tested in `config/test_accelerators.py`."""
    gpu = Accelerator(
        volumes=(HostVolume(name="lib", host_path="/usr/lib/nvidia-384", mount_path="/usr/lib/nvidia"),),
        env_vars=(Variable(name="LD_LIBRARY_PATH", value="/usr/lib/nvidia"),),
    )
    asking = TENSORFLOW | {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    worker = replica(2) | {"template": {"spec": {"containers": [asking]}}}
    tfjob = job({"tfReplicaSpecs": {"Worker": worker, "PS": replica(1)}})
    builder = PodBuilder(tfjob, good_spec(tfjob), accelerators={"nvidia.com/gpu": gpu})
    for key in (WORKER_0, WORKER_1):
        spec = builder.build(key)["spec"]
        assert spec["volumes"] == [{"name": "lib", "hostPath": {"path": "/usr/lib/nvidia-384"}}]
        assert [each["name"] for each in spec["containers"][0]["env"]] == ["LD_LIBRARY_PATH", c.TF_CONFIG]
    assert "volumes" not in builder.build(ReplicaKey("PS", 0, "mnist-ps-0"))["spec"]


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
