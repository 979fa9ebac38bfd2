"""A job with one service for all its replicas (`runPolicy.network: shared`): plans, children, claims, and edits."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import Parts
from fakes.jobs import good_spec, invalid_spec, job, names, pod, replica, service
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import AlreadyExistsError
from tfjob_operator.api.core import ServiceSpec
from tfjob_operator.api.v1.constants import Network
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.writes import NameTakenError
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_service, labels_of, selector_of
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.plan import plan, without_blocked
from tfjob_operator.controller.tfjob.plan.replicas import claims, labels_wanted
from tfjob_operator.controller.tfjob.plan.status import in_force, read

REPLICAS: dict[str, Any] = {"Worker": replica(2, "ExitCode"), "PS": replica(1)}
SHARED: dict[str, Any] = {"runPolicy": {"network": "shared"}, "tfReplicaSpecs": REPLICAS}
PER_REPLICA: dict[str, Any] = {"tfReplicaSpecs": REPLICAS}
PODS = ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
ALL = ReplicaKey.of_all("mnist")


def shared_service(*, orphan: bool = False, selector: dict[str, str] | None = None) -> Service:
    """The service of all, as the cache has it."""
    made = service("Worker", 0)
    wanted = labels_wanted("mnist", ALL)
    meta = msgspec.structs.replace(made.metadata, name="mnist", labels=wanted)
    if orphan:
        meta = msgspec.structs.replace(meta, owner_references=None)
    right = selector_of(labels_of(job().metadata, good_spec(job(SHARED)), ALL))
    return Service(metadata=meta, spec=ServiceSpec(selector=right if selector is None else selector))


def running_pods() -> list[Pod]:
    """All pods of the job."""
    return [pod("PS", 0), pod("Worker", 0), pod("Worker", 1)]


def decide(tfjob: TFJob, *pods: Pod, services: tuple[Service, ...] = (), at_s: float = 60) -> Plan:
    """The plan for a job, as the controller makes it."""
    return plan(tfjob, in_force(tfjob, read(tfjob)), pods, services, EPOCH + timedelta(seconds=at_s))


def begun(spec: dict[str, Any]) -> TFJob:
    """A job of which all pods run."""
    tfjob = job(spec)
    for pods in ([], running_pods()):
        decided = decide(tfjob, *pods, services=(shared_service(),))
        tfjob = msgspec.structs.replace(tfjob, status=decided.status or tfjob.status)
    return tfjob


def edited(tfjob: TFJob, spec: dict[str, Any]) -> TFJob:
    """The job with another specification."""
    meta = msgspec.structs.replace(tfjob.metadata, generation=2)
    return msgspec.structs.replace(tfjob, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))


def test_one_service_is_created_for_all_pods_and_the_status_says_so() -> None:
    """A job of 500 replicas is 501 objects. What the status says comes before the first pod."""
    decided = decide(job(SHARED))
    assert names(decided) == {
        "create pods": PODS,
        "create services": ["mnist"],
        "delete pods": [],
        "delete services": [],
    }
    assert decided.status is not None
    assert decided.status.begun is not None
    assert decided.status.begun.network == "shared"


def test_a_job_with_its_service_needs_no_other() -> None:
    """Neither while all run, nor when one of its pods is created again."""
    tfjob = begun(SHARED)
    assert not decide(tfjob, *running_pods(), services=(shared_service(),)).acts
    missing = decide(tfjob, *running_pods()[:2], services=(shared_service(),))
    assert (names(missing)["create pods"], names(missing)["create services"]) == (["mnist-worker-1"], [])
    assert names(decide(tfjob, *running_pods()))["create services"] == ["mnist"]


def test_the_service_goes_with_the_last_pod() -> None:
    """Suspended: everything goes. Ended: it stays as long as a pod does, as a replica's own service would (B48)."""
    suspended = decide(edited(begun(SHARED), SHARED | {"runPolicy": {"suspend": True}}), services=(shared_service(),))
    assert names(suspended)["delete services"] == ["mnist"]
    for policy, stays in (("All", False), ("None", True)):
        spec = SHARED | {"runPolicy": {"network": "shared", "cleanPodPolicy": policy}}
        ended = [pod("PS", 0), pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)]
        tfjob = begun(spec)
        over = msgspec.structs.replace(
            tfjob, status=decide(tfjob, *ended, services=(shared_service(),)).status or JobStatus()
        )
        assert over.status.completion_time is not None
        assert names(decide(over, *ended, services=(shared_service(),)))["delete services"] == (
            [] if stays else ["mnist"]
        )


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [(PER_REPLICA, SHARED, Network.PER_REPLICA), (SHARED, PER_REPLICA, Network.SHARED)],
)
def test_a_job_that_has_begun_keeps_its_network(before: dict[str, Any], after: dict[str, Any], stays: Network) -> None:
    """Pods are told names when they start: with others, those that run and those that come later would not meet."""
    tfjob = begun(before)
    changed = edited(tfjob, after)
    assert good_spec(tfjob).network is stays
    assert good_spec(changed).network is stays
    events = [(event.reason, event.message) for event in decide(changed, *running_pods()).events]
    assert (
        "NetworkNotUpdated",
        f"spec.runPolicy.network cannot change after the job started; it stays {stays}",
    ) in events


def test_a_job_of_an_older_operator_keeps_a_service_for_each_replica() -> None:
    """Its status does not say which network it has; there was only one."""
    tfjob = begun(PER_REPLICA)
    old = msgspec.structs.replace(tfjob, status=msgspec.structs.replace(tfjob.status, begun=None))
    assert good_spec(edited(old, SHARED)).network is Network.PER_REPLICA


def test_the_network_may_be_changed_until_the_job_begins() -> None:
    """While it is suspended from its creation, as by a queue."""
    tfjob = job(SHARED | {"runPolicy": {"suspend": True}})
    waiting = msgspec.structs.replace(tfjob, status=decide(tfjob).status or JobStatus())
    assert good_spec(edited(waiting, SHARED)).network is Network.SHARED


def test_another_word_is_a_mistake() -> None:
    """The message has the words that may stand there."""
    (mistake,) = invalid_spec(job(SHARED | {"runPolicy": {"network": "host"}})).mistakes
    assert str(mistake) == 'spec.runPolicy.network: Unsupported value: supported values: "perReplica", "shared"'


def test_pods_have_the_names_that_tf_config_tells() -> None:
    """A pod's record is `hostname.subdomain` where the subdomain is a headless service that selects the pod."""
    tfjob = job(SHARED)
    builder = PodBuilder(tfjob, good_spec(tfjob), domain="cluster.local")
    body = builder.build(ReplicaKey.of("mnist", "Worker", 1))
    assert (body["spec"]["hostname"], body["spec"]["subdomain"]) == ("mnist-worker-1", "mnist")
    env = {each["name"]: each["value"] for each in body["spec"]["containers"][0]["env"]}
    assert json.loads(env["TF_CONFIG"])["cluster"] == {
        "ps": ["mnist-ps-0.mnist.ns.svc.cluster.local:2222"],
        "worker": [f"mnist-worker-{index}.mnist.ns.svc.cluster.local:2222" for index in (0, 1)],
    }
    selector = build_service(tfjob.metadata, good_spec(tfjob), ALL)["spec"]["selector"]
    assert selector.items() <= body["metadata"]["labels"].items()
    alone = PodBuilder(job(PER_REPLICA), good_spec(job(PER_REPLICA))).build(ReplicaKey.of("mnist", "Worker", 1))
    assert not {"hostname", "subdomain"} & alone["spec"].keys()


def test_the_service_has_the_ports_of_all_replicas() -> None:
    """Each number once; of two ports of one name the second one's name has its number."""

    def with_ports(*ports: tuple[str, int]) -> dict[str, Any]:
        container = {
            "name": "tensorflow",
            "image": "i",
            "ports": [{"name": name, "containerPort": number} for name, number in ports],
        }
        return replica(1, template={"spec": {"containers": [container]}})

    body = {"Worker": with_ports(("tfjob-port", 2222), ("debug", 6000)), "PS": with_ports(("tfjob-port", 3333))}
    tfjob = job(SHARED | {"tfReplicaSpecs": body})
    made = build_service(tfjob.metadata, good_spec(tfjob), ALL)
    assert made["metadata"]["name"] == "mnist"
    assert made["spec"]["clusterIP"] == "None"
    assert made["spec"]["publishNotReadyAddresses"] is True
    assert [(port["port"], port["name"]) for port in made["spec"]["ports"]] == [
        (3333, "tfjob-port"),
        (2222, "tfjob-port-2222"),
        (6000, "debug"),
    ]


def test_an_orphaned_service_of_all_is_adopted() -> None:
    """RM-01: as that of a replica is; one whose labels name another job is not."""
    orphan = shared_service(orphan=True)
    assert claims("mnist", [], [orphan]) == (orphan,)
    labels = msgspec.structs.replace(labels_wanted("mnist", ALL), job_name="other")
    foreign = msgspec.structs.replace(orphan, metadata=msgspec.structs.replace(orphan.metadata, labels=labels))
    assert claims("mnist", [], [foreign]) == ()


def test_an_edited_selector_is_restored_and_a_foreign_label_left_alone() -> None:
    """U17, U9: without its selector no pod has a name any more."""
    tfjob = begun(SHARED)
    edited_service = shared_service(selector={"app": "mine"})
    assert [each.child for each in decide(tfjob, *running_pods(), services=(edited_service,)).reselect] == [
        edited_service
    ]
    labels = msgspec.structs.replace(labels_wanted("mnist", ALL), replica_type="worker")
    made = shared_service()
    labelled = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))
    assert not decide(tfjob, *running_pods(), services=(labelled,)).relabel
    bare = msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, labels=msgspec.structs.replace(labels, operator_name="")),
    )
    assert [each.key for each in decide(tfjob, *running_pods(), services=(bare,)).relabel] == [ALL]


async def test_no_pod_is_created_before_the_service_of_all() -> None:
    """B63, U2: if its name is taken, all pods wait, and say why once."""
    parts = Parts()
    client, recorder, creator, blocked = parts.client, parts.recorder, parts.creator, parts.blocked
    tfjob = job(SHARED)
    decided = decide(tfjob)
    client.fail["create", "services", "mnist"] = status_error(AlreadyExistsError, 409)
    client.objects["services", "mnist"] = {"metadata": {"name": "mnist", "namespace": "ns", "uid": "x"}}
    with pytest.raises(NameTakenError):
        await creator.create(tfjob, good_spec(tfjob), decided)
    assert ("create", "services", "mnist") in client.actions
    assert not [action for action in client.actions if action[:2] == ("create", "pods")]
    held = without_blocked(decided, blocked.of(tfjob.metadata))
    assert (held.create_services, held.create_pods) == ((), ())
    assert recorder.reasons == ["FailedCreateService"]
    client.fail.clear()
    await creator.create(tfjob, good_spec(tfjob), decided)
    made = [name for verb, kind, name in client.actions if verb == "create"]
    assert made[-4] == "mnist"
    assert sorted(made[-3:]) == PODS
