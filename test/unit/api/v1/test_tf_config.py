"""TF_CONFIG, letter by letter."""

import contextlib
import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import container, good_spec, job, replica, spec
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.tf_config import INLINE_BYTES, ClusterSpec, needs_no_config_map, too_long
from tfjob_operator.api.v1.types import TFJob

ALL = {"tfReplicaSpecs": {"Worker": replica(2), "PS": replica(1), "Chief": replica(1), "Evaluator": replica(1)}}
CLUSTER = (
    '{"cluster":{"chief":["mnist-chief-0.ns.svc:2222"],"evaluator":["mnist-evaluator-0.ns.svc:2222"],'
    '"ps":["mnist-ps-0.ns.svc:2222"],"worker":["mnist-worker-0.ns.svc:2222","mnist-worker-1.ns.svc:2222"]},'
)


def config(spec: dict[str, Any], replica_type: str, index: int = 0, domain: str = "") -> str | None:
    """TF_CONFIG of one replica of the job mnist in the namespace ns."""
    tfjob = job(spec)
    cluster = ClusterSpec(tfjob.metadata, good_spec(tfjob), domain)
    return None if cluster.is_alone else cluster.tf_config(replica_type, index)


def test_every_replica_type_gets_the_whole_cluster_and_its_own_task() -> None:
    """B58: golden texts; cluster types in alphabetical order, evaluator included as in tf-operator 1.1."""
    for replica_type in (c.CHIEF, c.EVALUATOR, c.PS, c.WORKER):
        task = f'"task":{{"type":"{replica_type.lower()}","index":0}},"environment":"cloud"}}'
        assert config(ALL, replica_type) == CLUSTER + task
    assert config(ALL, c.WORKER, 1) == CLUSTER + '"task":{"type":"worker","index":1},"environment":"cloud"}'


def test_a_job_of_one_replica_gets_none() -> None:
    """B59: TF_CONFIG for a cluster of one is of no use, and breaks local training."""
    assert config({"tfReplicaSpecs": {"Worker": replica(1)}}, c.WORKER) is None
    assert config({"tfReplicaSpecs": {"Chief": replica(1), "Worker": replica(1)}}, c.CHIEF) is not None


def test_a_type_without_replicas_is_not_in_the_cluster() -> None:
    """B51: PS with zero replicas does not appear."""
    text = config({"tfReplicaSpecs": {"PS": replica(0), "Worker": replica(2)}}, c.WORKER)
    assert text is not None
    assert list(msgspec.json.decode(text)["cluster"]) == ["worker"]


def test_the_cluster_domain_is_appended_to_host_names() -> None:
    text = config(ALL, c.PS, domain="cluster.local")
    assert text is not None
    assert msgspec.json.decode(text)["cluster"]["ps"] == ["mnist-ps-0.ns.svc.cluster.local:2222"]


def test_the_port_is_the_one_named_tfjob_port_or_2222() -> None:
    ports = [
        {"name": "metrics", "containerPort": 9},
        {"containerPort": 7},
        {"name": "tfjob-port", "containerPort": 3333},
    ]
    container = {"name": "tensorflow", "image": "i", "ports": ports}
    spec = good_spec(job({"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}))
    assert spec.replicas["Worker"].template.ports == (("metrics", 9, "TCP"), ("tfjob-port", 3333, "TCP"))
    assert spec.replicas["Worker"].template.port == 3333
    assert good_spec(job()).replicas["Worker"].template.ports == (("tfjob-port", 2222, "TCP"),)


ELASTIC = ALL | {"enableDynamicWorker": True}


def test_workers_of_an_elastic_job_know_the_servers_and_all_but_chief_and_evaluator_only_themselves_besides() -> None:
    """B60: the sparse form stands under `cluster`, which TensorFlow reads, not under `sparseCluster`.

    Server 0 gets what the Go operators wrote for it, the others stand under their index; the chief got an empty cluster.
    """
    assert config(ELASTIC, c.WORKER, 1) == (
        '{"cluster":{"ps":["mnist-ps-0.ns.svc:2222"],"worker":{"1":"mnist-worker-1.ns.svc:2222"}},'
        '"task":{"type":"worker","index":1}}'
    )
    two = {"tfReplicaSpecs": {"PS": replica(2), "Worker": replica(2)}, "enableDynamicWorker": True}
    for index, itself in enumerate(('["mnist-ps-0.ns.svc:2222"]', '{"1":"mnist-ps-1.ns.svc:2222"}')):
        told = f'{{"cluster":{{"ps":{itself},"worker":{{}}}},"task":{{"type":"ps","index":{index}}}}}'
        assert config(two, c.PS, index) == told
    for replica_type in (c.CHIEF, c.EVALUATOR):
        assert config(ELASTIC, replica_type) == config(ALL, replica_type)


TYPES = st.dictionaries(st.sampled_from([c.PS, c.WORKER, c.EVALUATOR]), st.integers(0, 120), min_size=1)
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(TYPES, NAMES, NAMES, st.sampled_from(["", "cluster.local"]), st.booleans())
def test_lengths_are_reckoned_as_the_texts_are_long(
    counts: dict[str, int], name: str, namespace: str, domain: str, elastic: bool
) -> None:
    """U1: lengths are computed without making the texts, and must be right; another encoder confirms that they are JSON."""
    body = {"tfReplicaSpecs": {kind: replica(count) for kind, count in counts.items()}, "enableDynamicWorker": elastic}
    tfjob = job(body, name=name, namespace=namespace)
    cluster = ClusterSpec(tfjob.metadata, good_spec(tfjob), domain)
    assert cluster.size == len(cluster.text.encode())
    assert msgspec.json.encode(msgspec.json.decode(cluster.text)).decode() == cluster.text
    configs = [cluster.tf_config(kind, index) for kind, count in counts.items() for index in range(count)]
    for text in configs:
        assert msgspec.json.encode(msgspec.json.decode(text)).decode() == text
    longest = max((len(f"TF_CONFIG={text}".encode()) for text in configs), default=0)
    assert cluster.longest_variable == (0 if sum(counts.values()) == 1 else longest)


@given(TYPES, NAMES, NAMES, st.sampled_from(["", "cluster.local"]), st.integers(-(2**31), 2**31 - 1))
def test_a_job_that_is_surely_short_has_no_config_map(
    counts: dict[str, int], name: str, namespace: str, domain: str, port: int
) -> None:
    """U1: a plan without ConfigMaps relies on this alone; otherwise a pod would wait for one that nobody creates."""
    container = {"name": "tensorflow", "image": "i", "ports": [{"name": "tfjob-port", "containerPort": port}]}
    template = {"spec": {"containers": [container]}}
    body = {"tfReplicaSpecs": {kind: replica(count, template=template) for kind, count in counts.items()}}
    tfjob = job(body, name=name, namespace=namespace)
    spec = good_spec(tfjob)
    is_long = ClusterSpec(tfjob.metadata, spec, domain).size > INLINE_BYTES
    assert not (is_long and needs_no_config_map(tfjob.metadata, spec, domain))


def test_a_small_job_is_surely_short() -> None:
    tfjob = job(ALL)
    assert needs_no_config_map(tfjob.metadata, good_spec(tfjob), "cluster.local")


def verdict(tfjob: TFJob, domain: str = "") -> str:
    """What is wrong with the length of a job's TF_CONFIG."""
    found = too_long(tfjob.metadata, good_spec(tfjob), domain)
    return "" if found is None else str(found)


def test_a_tf_config_that_no_process_could_be_given_is_refused_with_both_numbers() -> None:
    """U1, D9: with one worker fewer it is accepted; the text says how long it is, what the bound is, and what helps."""
    name = "resnet50-imagenet-sweep-17-attempt-4-of-the-team"
    most = next(count for count in range(1000, 3000) if verdict(job(spec(Worker=count), name=name))) - 1
    fits, found = job(spec(Worker=most), name=name), verdict(job(spec(Worker=most + 1), name=name))
    assert ClusterSpec(fits.metadata, good_spec(fits)).longest_variable <= 131_071
    larger = job(spec(Worker=most + 1), name=name)
    size = ClusterSpec(larger.metadata, good_spec(larger)).longest_variable
    assert size > 131_071
    assert str(size) in found
    assert "131071" in found
    assert all(word in found for word in ("a shorter name", "fewer replicas", "enableDynamicWorker"))


def test_the_bound_is_the_kernels_own() -> None:
    """U1: a process starts with a variable of 131,071 bytes, name and all, and with none that is longer."""
    for size, starts in ((131_071, True), (131_072, False)):
        environment = {"TF_CONFIG": "x" * (size - len("TF_CONFIG="))}
        with contextlib.nullcontext() if starts else pytest.raises(OSError, match="Argument list too long"):
            assert subprocess.run(["/bin/true"], env=environment, check=False).returncode == 0


def test_the_clusters_domain_counts_too() -> None:
    """U1: it is part of every host name."""
    tfjob = job(spec(Worker=4000))
    assert not verdict(tfjob)
    assert verdict(tfjob, "cluster.of.the.research.department.example.com")


def test_nobody_is_refused_whose_replicas_get_no_long_tf_config() -> None:
    """U1: those of a template that sets TF_CONFIG, and the workers of an elastic job, who are not told of each other."""
    assert verdict(job(spec(Worker=9000)))
    assert not verdict(
        job(spec(Worker=replica(9000, template=container(env=[{"name": "TF_CONFIG", "value": "mine"}]))))
    )
    assert not verdict(job(spec(Worker=9000, enableDynamicWorker=True)))
    assert "enableDynamicWorker" not in verdict(
        job({"tfReplicaSpecs": {"PS": replica(9000), "Worker": replica(1)}, "enableDynamicWorker": True})
    )
