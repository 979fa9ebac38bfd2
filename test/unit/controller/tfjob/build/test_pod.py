"""The bodies of pods and services."""

from __future__ import annotations

import copy
from typing import Any

from fakes.jobs import good_spec, job, replica
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.config.values import Accelerator, HostVolume, Variable
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_service

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
