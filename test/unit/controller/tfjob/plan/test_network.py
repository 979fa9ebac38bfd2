"""A job with one service for all its replicas (`runPolicy.network: shared`): plans, children, claims, and edits."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fakes.api import status_error
from fakes.controller import Parts
from fakes.jobs import container, decide, good_spec, job, mistakes, names, pod, replica, service, spec, synced
from fakes.objects import changed, edited
from tfjob_operator.api.client.errors import AlreadyExistsError
from tfjob_operator.api.core import ServiceSpec
from tfjob_operator.api.v1.constants import Network
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.writes import NameTakenError
from tfjob_operator.controller.tfjob.build.builder import PodBuilder, build_service, labels_of, selector_of
from tfjob_operator.controller.tfjob.plan.replicas import claims, labels_wanted
from tfjob_operator.controller.tfjob.plan.types import without_blocked

PER_REPLICA = spec(Worker=replica(2, "ExitCode"), PS=1)
SHARED = PER_REPLICA | {"runPolicy": {"network": "shared"}}
PODS = ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
RUNNING = pod("PS", 0), pod("Worker", 0), pod("Worker", 1)
ALL = ReplicaKey.of_all("mnist")
OF_ALL: Service = changed(
    service("Worker", 0),
    metadata__name="mnist",
    metadata__labels=labels_wanted("mnist", ALL),
    spec=ServiceSpec(selector_of(labels_of(job().metadata, good_spec(job(SHARED)), ALL))),
)
"""The service of all, as the cache has it."""
BY_ALL = [changed(each, spec__subdomain="mnist") for each in RUNNING]
"""Pods that are found by the service of all."""
OWN = [service("PS", 0), service("Worker", 0), service("Worker", 1)]


def begun(given: dict[str, Any]) -> TFJob:
    return synced(synced(job(given), services=[OF_ALL]), *RUNNING, services=[OF_ALL])


def test_one_service_is_created_for_all_pods_and_the_status_says_so() -> None:
    """A job of 500 replicas is 501 objects. What the status says comes before the first pod."""
    decided = decide(job(SHARED))
    assert names(decided) == {"create pods": PODS, "create services": ["mnist"]}
    assert decided.status is not None
    assert decided.status.begun is not None
    assert decided.status.begun.network == "shared"


def test_a_job_with_its_service_needs_no_other() -> None:
    """Neither while all run, nor when one of its pods is created again."""
    tfjob = begun(SHARED)
    assert not decide(tfjob, *RUNNING, services=[OF_ALL]).acts
    missing = decide(tfjob, *RUNNING[:2], services=[OF_ALL])
    assert names(missing) == {"create pods": ["mnist-worker-1"]}
    assert names(decide(tfjob, *RUNNING))["create services"] == ["mnist"]


def test_the_service_goes_with_the_last_pod() -> None:
    """Suspended: everything goes. Ended: it stays as long as a pod does, as a replica's own service would (B48)."""
    suspended = edited(begun(SHARED), SHARED | {"runPolicy": {"suspend": True}})
    assert names(decide(suspended, services=[OF_ALL]))["delete services"] == ["mnist"]
    pods = pod("PS", 0), pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)
    for policy, gone in (("All", ["mnist"]), ("None", [])):
        tfjob = begun(SHARED | {"runPolicy": {"network": "shared", "cleanPodPolicy": policy}})
        over = synced(tfjob, *pods, services=[OF_ALL])
        assert over.status.completion_time is not None
        assert names(decide(over, *pods, services=[OF_ALL], at_s=91))["delete services"] == gone


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [(PER_REPLICA, SHARED, Network.PER_REPLICA), (SHARED, PER_REPLICA, Network.SHARED)],
)
def test_a_job_that_has_begun_keeps_its_network(before: dict[str, Any], after: dict[str, Any], stays: Network) -> None:
    """Pods are told names when they start: with others, those that run and those that come later would not meet."""
    tfjob, later = begun(before), edited(begun(before), after)
    assert good_spec(tfjob).network is good_spec(later).network is stays
    events = {event.reason: event.message for event in decide(later, *RUNNING).events}
    text = f"spec.runPolicy.network cannot change after the job started; it stays {stays}"
    assert events["NetworkNotUpdated"] == text


def test_the_network_may_be_changed_until_the_job_begins() -> None:
    """While it is suspended from its creation, as by a queue. A job of an older operator has a service for each replica.

    Its status does not say which network it has; there was only one.
    """
    waiting = synced(job(SHARED | {"runPolicy": {"suspend": True}}))
    assert good_spec(edited(waiting, SHARED)).network is Network.SHARED
    old = changed(begun(PER_REPLICA), status__begun=None)
    assert good_spec(edited(old, SHARED), *RUNNING).network is Network.PER_REPLICA


@pytest.mark.parametrize("lost", [{"status__begun": None}, {"status": JobStatus()}], ids=["record", "status"])
@pytest.mark.parametrize("edit", [PER_REPLICA, SHARED], ids=["perReplica", "shared"])
@pytest.mark.parametrize(
    ("before", "pods", "services"), [(SHARED, BY_ALL, [OF_ALL]), (PER_REPLICA, RUNNING, OWN)], ids=["by-all", "own"]
)
def test_the_network_of_running_pods_is_kept_when_its_record_is_lost(
    before: dict[str, Any], pods: Sequence[Pod], services: Sequence[Service], edit: dict[str, Any], lost: dict[str, Any]
) -> None:
    """Another operator's write or an older CRD may have pruned it. It is written again, whatever the spec says now."""
    tfjob = begun(before)
    found = edited(changed(tfjob, **lost), edit)
    decided = decide(found, *pods, services=services)
    assert not names(decided)
    assert tfjob.status.begun is not None
    assert decided.status is not None
    assert decided.status.begun is not None
    assert decided.status.begun.network == tfjob.status.begun.network
    later = decide(found, *pods[:2], services=services)
    assert names(later) == {"create pods": ["mnist-worker-1"]}
    assert good_spec(found, *pods[:2], services=services).network == good_spec(tfjob).network


def test_a_subdomain_of_the_template_is_no_shared_network() -> None:
    """A user's own service may have the job's name: the job does not control it."""
    assert good_spec(job(PER_REPLICA), *BY_ALL, services=OWN).network is Network.PER_REPLICA


@pytest.mark.parametrize("spec", [PER_REPLICA, SHARED], ids=["perReplica", "shared"])
def test_no_service_is_deleted_by_which_a_running_pod_is_found(spec: dict[str, Any]) -> None:
    """Whatever the record says: an operator that did not know it may have created some of the pods."""
    decided = decide(begun(spec), *BY_ALL[:2], RUNNING[2], services=[OF_ALL, *OWN])
    kept = {"mnist", "mnist-worker-1"} | ({*PODS} if spec is PER_REPLICA else set())
    assert names(decided)["delete services"] == [name for name in ("mnist", *PODS) if name not in kept]


def test_another_word_is_a_mistake() -> None:
    (mistake,) = mistakes(job(SHARED | {"runPolicy": {"network": "host"}}))
    assert mistake == 'spec.runPolicy.network: Unsupported value: supported values: "perReplica", "shared"'


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
        named = [{"name": name, "containerPort": number} for name, number in ports]
        return replica(1, template=container(ports=named))

    body = {"Worker": with_ports(("tfjob-port", 2222), ("debug", 6000)), "PS": with_ports(("tfjob-port", 3333))}
    tfjob = job(SHARED | {"tfReplicaSpecs": body})
    made = build_service(tfjob.metadata, good_spec(tfjob), ALL)
    assert made["metadata"]["name"] == "mnist"
    assert (made["spec"]["clusterIP"], made["spec"]["publishNotReadyAddresses"]) == ("None", True)
    named = [(port["port"], port["name"]) for port in made["spec"]["ports"]]
    assert named == [(3333, "tfjob-port"), (2222, "tfjob-port-2222"), (6000, "debug")]


def test_an_orphaned_service_of_all_is_adopted() -> None:
    """RM-01: as that of a replica is; one whose labels name another job is not."""
    orphan = changed(OF_ALL, metadata__owner_references=None)
    assert claims("mnist", [], [orphan]) == (orphan,)
    assert claims("mnist", [], [changed(orphan, metadata__labels__job_name="other")]) == ()


def test_an_edited_selector_is_restored_and_a_foreign_label_left_alone() -> None:
    """U17, U9: without its selector no pod has a name any more."""
    tfjob = begun(SHARED)
    service = changed(OF_ALL, spec__selector={"app": "mine"})
    assert [each.child for each in decide(tfjob, *RUNNING, services=[service]).selector_drift] == [service]
    labelled = changed(OF_ALL, metadata__labels__replica_type="worker")
    assert not decide(tfjob, *RUNNING, services=[labelled]).label_drift
    bare = changed(labelled, metadata__labels__operator_name="")
    assert [each.key for each in decide(tfjob, *RUNNING, services=[bare]).label_drift] == [ALL]


async def test_no_pod_is_created_before_the_service_of_all() -> None:
    """B63, U2: if its name is taken, all pods wait, and say why once."""
    parts, tfjob = Parts(), job(SHARED)
    decided = decide(tfjob)
    parts.client.fail["create", "services", "mnist"] = status_error(AlreadyExistsError, 409)
    parts.client.objects["services", "mnist"] = {"metadata": {"name": "mnist", "namespace": "ns", "uid": "x"}}
    with pytest.raises(NameTakenError):
        await parts.creator.create(tfjob, good_spec(tfjob), decided)
    assert [action for action in parts.client.actions if action[0] == "create"] == [("create", "services", "mnist")]
    held = without_blocked(decided, parts.blocked.of(tfjob.metadata))
    assert (held.create_services, held.create_pods) == ((), ())
    assert parts.recorder.reasons == ["FailedCreateService"]
    parts.client.fail.clear()
    await parts.creator.create(tfjob, good_spec(tfjob), decided)
    made = [name for verb, _, name in parts.client.actions if verb == "create"]
    assert (made[-4], sorted(made[-3:])) == ("mnist", PODS)
