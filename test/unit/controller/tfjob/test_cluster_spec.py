"""TF_CONFIG, letter by letter."""

from __future__ import annotations

from typing import Any

import msgspec

from api.v1 import constants as c
from controller.tfjob.actions import Slot
from controller.tfjob.cluster_spec import named_ports, port_of, tf_config
from fakes.jobs import good_spec, job, replica

ALL = {"tfReplicaSpecs": {"Worker": replica(2), "PS": replica(1), "Chief": replica(1), "Evaluator": replica(1)}}
CLUSTER = (
    '{"cluster":{"chief":["mnist-chief-0.ns.svc:2222"],"evaluator":["mnist-evaluator-0.ns.svc:2222"],'
    '"ps":["mnist-ps-0.ns.svc:2222"],"worker":["mnist-worker-0.ns.svc:2222","mnist-worker-1.ns.svc:2222"]},'
)


def config(spec: dict[str, Any], replica_type: str, index: int = 0, domain: str = "") -> str | None:
    """TF_CONFIG of one replica of the job mnist in the namespace ns."""
    tfjob = job(spec)
    return tf_config(tfjob.metadata, good_spec(tfjob), Slot(replica_type, index, ""), domain=domain)


def test_every_replica_type_gets_the_whole_cluster_and_its_own_task() -> None:
    """B58: goldens; cluster types alphabetical, evaluator included as in tf-operator 1.1."""
    for replica_type in (c.CHIEF, c.EVALUATOR, c.PS, c.WORKER):
        task = f'"task":{{"type":"{replica_type.lower()}","index":0}},"environment":"cloud"}}'
        assert config(ALL, replica_type) == CLUSTER + task
    assert config(ALL, c.WORKER, 1) == CLUSTER + '"task":{"type":"worker","index":1},"environment":"cloud"}'


def test_a_job_of_one_replica_gets_none() -> None:
    """B59: a cluster of one would wait for nobody, and breaks local training."""
    assert config({"tfReplicaSpecs": {"Worker": replica(1)}}, c.WORKER) is None
    assert config({"tfReplicaSpecs": {"Chief": replica(1), "Worker": replica(1)}}, c.CHIEF) is not None


def test_a_type_without_replicas_is_not_in_the_cluster() -> None:
    """B51: PS with zero replicas does not appear."""
    text = config({"tfReplicaSpecs": {"PS": replica(0), "Worker": replica(2)}}, c.WORKER)
    assert text is not None
    assert list(msgspec.json.decode(text)["cluster"]) == ["worker"]


def test_the_cluster_domain_is_appended_to_host_names() -> None:
    """CUSTOM_CLUSTER_DOMAIN."""
    text = config(ALL, c.PS, domain="cluster.local")
    assert text is not None
    assert msgspec.json.decode(text)["cluster"]["ps"] == ["mnist-ps-0.ns.svc.cluster.local:2222"]


def test_the_port_is_the_one_named_tfjob_port() -> None:
    """Other named ports are kept in their order; an unnamed one is the user's own affair."""
    ports = [
        {"name": "metrics", "containerPort": 9},
        {"containerPort": 7},
        {"name": "tfjob-port", "containerPort": 3333},
    ]
    container = {"name": "tensorflow", "image": "i", "ports": ports}
    spec = good_spec(job({"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}))
    assert named_ports(spec.replicas["Worker"]) == [("metrics", 9, "TCP"), ("tfjob-port", 3333, "TCP")]
    assert port_of(spec.replicas["Worker"]) == 3333


def test_without_a_named_port_it_is_2222() -> None:
    """The default port of the API."""
    assert named_ports(good_spec(job()).replicas["Worker"]) == [("tfjob-port", 2222, "TCP")]


ELASTIC = ALL | {"enableDynamicWorker": True}


def test_a_worker_of_an_elastic_job_knows_itself_and_the_parameter_servers() -> None:
    """B60: the sparse form stands under `cluster`, which TensorFlow reads, not under `sparseCluster`."""
    assert config(ELASTIC, c.WORKER, 1) == (
        '{"cluster":{"ps":["mnist-ps-0.ns.svc:2222"],"worker":{"1":"mnist-worker-1.ns.svc:2222"}},'
        '"task":{"type":"worker","index":1}}'
    )


def test_a_parameter_server_of_an_elastic_job_knows_itself() -> None:
    """B60: as the Go operators write it for server 0; the others say which index they are."""
    two = {"tfReplicaSpecs": {"PS": replica(2), "Worker": replica(2)}, "enableDynamicWorker": True}
    assert config(two, c.PS, 0) == (
        '{"cluster":{"ps":["mnist-ps-0.ns.svc:2222"],"worker":{}},"task":{"type":"ps","index":0}}'
    )
    assert config(two, c.PS, 1) == (
        '{"cluster":{"ps":{"1":"mnist-ps-1.ns.svc:2222"},"worker":{}},"task":{"type":"ps","index":1}}'
    )


def test_chief_and_evaluator_of_an_elastic_job_know_all() -> None:
    """B60: the chief got an empty cluster from the Go operators."""
    for replica_type in (c.CHIEF, c.EVALUATOR):
        assert config(ELASTIC, replica_type) == config(ALL, replica_type)
