"""Long cluster specifications: which pods read them from a ConfigMap, which ConfigMaps there are, and what a process sees."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from pytest_mock import MockerFixture

from fakes.api import status_error
from fakes.controller import ControllerHarness, Parts
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, replica, service, template
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError, ForbiddenError, InvalidError
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.tf_config import INLINE_BYTES, ClusterSpec
from tfjob_operator.api.v1.types import JobCondition, JobStatus, TFJob
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildMeta, ConfigMap, Pod, ReplicaKey
from tfjob_operator.controller.jobs.writes import NameTakenError
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_config_map, config_map_name
from tfjob_operator.controller.tfjob.plan.actions import NOTHING, Plan, PodDeletion
from tfjob_operator.controller.tfjob.plan.plan import plan, with_config_maps

LARGE = 200


def large(workers: int = LARGE, **fields: Any) -> TFJob:
    """A job whose cluster specification is long: workers and one parameter server that knows its TF_CONFIG itself."""
    env = [{"name": "TF_CONFIG", "value": "mine"}]
    own = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "env": env}]}}
    meta = fields.pop("meta", {})
    body = {"tfReplicaSpecs": {"Worker": replica(workers), "PS": replica(1, template=own)}, **fields}
    return job(body, **meta)


def cluster_of(tfjob: TFJob, domain: str = "") -> ClusterSpec:
    """The cluster specification of a job."""
    return ClusterSpec(tfjob.metadata, good_spec(tfjob), domain)


def slot(index: int, kind: str = "Worker") -> ReplicaKey:
    """The key of a replica."""
    return ReplicaKey(kind, index, f"mnist-{kind.lower()}-{index}")


def variables(tfjob: TFJob, place: ReplicaKey) -> list[dict[str, Any]]:
    """The environment of the training container."""
    found: list[dict[str, Any]] = (
        PodBuilder(tfjob, good_spec(tfjob)).build(place)["spec"]["containers"][0].get("env", [])
    )
    return found


def seen_by_the_process(env: list[dict[str, Any]], config_map: dict[str, Any]) -> dict[str, str]:
    """Resolve variables as a kubelet does: in order, references to the ConfigMap, and `$(NAME)` of variables above."""
    values: dict[str, str] = {}
    for variable in env:
        if "valueFrom" in variable:
            reference = variable["valueFrom"]["configMapKeyRef"]
            assert reference["name"] == config_map["metadata"]["name"]
            values[variable["name"]] = config_map["data"][reference["key"]]
        else:
            values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], variable["value"])
    return values


def test_the_process_sees_the_same_tf_config_as_if_it_stood_in_the_pod() -> None:
    """U1, D9: byte by byte, for every replica, after the user's own variables."""
    tfjob = large()
    cluster = cluster_of(tfjob)
    config_map = build_config_map(tfjob.metadata, cluster, cluster.digest)
    for index in (0, 17, LARGE - 1):
        env = variables(tfjob, slot(index))
        assert [variable["name"] for variable in env] == ["TFJOB_CLUSTER_SPEC", "TF_CONFIG"]
        assert seen_by_the_process(env, config_map)["TF_CONFIG"] == cluster.tf_config("Worker", index)
    assert "$" not in cluster.text


def test_pods_of_a_large_job_do_not_grow_with_it() -> None:
    """U1, D9: but for the digits of their index."""
    sizes = {
        len(msgspec.json.encode(PodBuilder(tfjob, good_spec(tfjob)).build(slot(99))))
        for tfjob in (large(200), large(2000))
    }
    assert len(sizes) == 1
    assert sizes.pop() < 3000


def test_a_short_cluster_stands_in_the_pod() -> None:
    """U1: also at the bound itself; with one replica more it does not."""
    most = next(count for count in range(10, LARGE) if cluster_of(large(count)).size > INLINE_BYTES) - 1
    for count, names in ((most, ["TF_CONFIG"]), (most + 1, ["TFJOB_CLUSTER_SPEC", "TF_CONFIG"])):
        tfjob = large(count)
        assert [variable["name"] for variable in variables(tfjob, slot(0))] == names
        assert bool(cluster_of(tfjob).digest) == (len(names) == 2)
        labels = PodBuilder(tfjob, good_spec(tfjob)).build(slot(0))["metadata"]["labels"]
        assert labels.get(c.LABEL_CLUSTER_SPEC, "") == cluster_of(tfjob).digest


def test_a_template_that_sets_one_of_the_variables_wins() -> None:
    """U1: its TF_CONFIG is the only one; where the other name is its own, the cluster stands in TF_CONFIG."""
    tfjob = large()
    assert variables(tfjob, slot(0, "PS")) == [{"name": "TF_CONFIG", "value": "mine"}]
    mine = {"name": "TFJOB_CLUSTER_SPEC", "value": "mine"}
    container = {"name": "tensorflow", "image": "i", "env": [mine]}
    other = job({"tfReplicaSpecs": {"Worker": replica(LARGE, template={"spec": {"containers": [container]}})}})
    config = {"name": "TF_CONFIG", "value": cluster_of(other).tf_config("Worker", 3)}
    assert variables(other, slot(3)) == [mine, config]
    assert not cluster_of(other).digest


def test_replicas_that_are_not_told_of_the_whole_cluster_read_no_config_map() -> None:
    """B60, U1: the workers of an elastic job; its chief is told, and reads it."""
    specs = {"Worker": replica(LARGE), "Chief": replica(1)}
    tfjob = job({"tfReplicaSpecs": specs, "enableDynamicWorker": True})
    assert [variable["name"] for variable in variables(tfjob, slot(0))] == ["TF_CONFIG"]
    assert len(variables(tfjob, slot(0, "Chief"))) == 2


def test_the_hash_is_of_the_content_and_of_the_job() -> None:
    """U1: no ConfigMap of an earlier job of the name, or of another size of it, is taken for this one."""
    digests = {
        cluster_of(large()).digest,
        cluster_of(large(LARGE + 1)).digest,
        cluster_of(large(meta={"uid": "another"})).digest,
        cluster_of(large(), "cluster.local").digest,
    }
    assert len(digests) == 4
    assert cluster_of(large()).digest == cluster_of(large()).digest


def test_a_config_map_is_the_jobs_and_immutable() -> None:
    """U1: it is deleted with the job, and nobody can change what its pods were made with."""
    cluster = cluster_of(large())
    body = build_config_map(large().metadata, cluster, cluster.digest)
    assert body["immutable"] is True
    assert body["data"] == {"cluster": cluster.text}
    assert body["metadata"]["name"] == f"mnist-cluster-{cluster.digest}"
    assert body["metadata"]["labels"][c.LABEL_OPERATOR_NAME] == c.OPERATOR_NAME
    assert [(owner["uid"], owner["controller"]) for owner in body["metadata"]["ownerReferences"]] == [(JOB_UID, True)]


DIGEST = cluster_of(large()).digest
OLD = "0123456789abcdef"


def reader(
    index: int, digest: str = DIGEST, phase: str = "Running", exit_code: int | None = None, **fields: Any
) -> Pod:
    """A worker's pod that reads a ConfigMap."""
    made = pod("Worker", index, phase, exit_code, **fields)
    labels = msgspec.structs.replace(made.metadata.labels or NO_LABELS, cluster_spec=digest)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def config_map(digest: str = DIGEST, **meta: Any) -> ConfigMap:
    """A ConfigMap of the job, as it is cached."""
    owner = OwnerReference(kind="TFJob", name="mnist", uid=JOB_UID, controller=True)
    name = config_map_name("mnist", digest)
    return ConfigMap(
        metadata=ChildMeta(name=name, namespace="ns", uid=f"uid-{name}", owner_references=(owner,), **meta)
    )


def changes(
    plan: Plan = NOTHING, pods: tuple[Pod, ...] = (), held: tuple[ConfigMap, ...] = (), tfjob: TFJob | None = None
) -> tuple[list[str], list[str]]:
    """Which ConfigMaps are to be made, and which to go, by their hashes."""
    tfjob = tfjob or large()
    found = with_config_maps(plan, tfjob, good_spec(tfjob), pods, held, domain="")
    assert found.acts == bool(plan.acts or found.create_config_maps or found.delete_config_maps)
    return list(found.create_config_maps), [each.metadata.name[-16:] for each in found.delete_config_maps]


NEW_POD = Plan(create_pods=(slot(5),))
ENDED = JobStatus(conditions=(JobCondition(type=ConditionType.SUCCEEDED, status="True"),))


def test_it_is_made_when_pods_are_made_that_read_it() -> None:
    """U1: once, and not for pods that know their TF_CONFIG themselves."""
    assert changes(NEW_POD) == ([DIGEST], [])
    assert changes(NEW_POD, held=(config_map(),)) == ([], [])
    assert changes(Plan(create_pods=(slot(0, "PS"),))) == ([], [])
    assert changes(NEW_POD, tfjob=job()) == ([], [])


def test_it_stays_while_the_job_lives() -> None:
    """U1: also while no pod reads it: the next one will."""
    assert changes(held=(config_map(),)) == ([], [])


def test_one_that_a_pod_may_still_read_is_made_again_if_somebody_deletes_it() -> None:
    """U1: a container that restarts in place reads it again. Not for pods that have ended, or go."""
    assert changes(pods=(reader(0),)) == ([DIGEST], [])
    assert changes(pods=(reader(0, phase="Succeeded", exit_code=0),)) == ([], [])
    assert changes(pods=(reader(0, terminating=True),)) == ([], [])
    leaving = reader(0)
    assert changes(Plan(delete_pods=(PodDeletion(leaving),)), pods=(leaving,)) == ([], [])
    assert changes(pods=(reader(0),), tfjob=large(meta={"status": ENDED})) == ([DIGEST], [])


def test_the_one_of_before_a_scale_goes_when_no_pod_can_read_it() -> None:
    """U1, D9: an autoscaler must not pile them up. A terminating pod may still start its container once more."""
    both = (config_map(OLD), config_map())
    assert changes(pods=(reader(0, OLD), reader(1)), held=both) == ([], [])
    assert changes(pods=(reader(0, OLD, terminating=True), reader(1)), held=both) == ([], [])
    assert changes(pods=(reader(0, OLD, "Failed", 1), reader(1)), held=both) == ([], [OLD])
    assert changes(pods=(reader(1),), held=both) == ([], [OLD])


def test_one_of_before_a_scale_is_made_again_with_what_is_true_now() -> None:
    """U1: what was in it is not known any more, and without it a container that restarts would hang."""
    assert changes(pods=(reader(0, OLD),)) == ([OLD], [])
    cluster = cluster_of(large())
    body = build_config_map(large().metadata, cluster, OLD)
    assert body["metadata"]["name"] == config_map_name("mnist", OLD)
    assert body["data"] == {"cluster": cluster.text}


def test_it_goes_when_the_job_has_ended_or_is_suspended_and_its_pods_are_gone() -> None:
    """U1: and not before. What is being deleted already is left alone, as is all of a job that is being deleted."""
    for tfjob in (large(meta={"status": ENDED}), large(runPolicy={"suspend": True})):
        assert changes(pods=(reader(0),), held=(config_map(),), tfjob=tfjob) == ([], [])
        assert changes(pods=(reader(0, phase="Succeeded", exit_code=0),), held=(config_map(),), tfjob=tfjob) == (
            [],
            [DIGEST],
        )
    assert changes(held=(config_map(OLD, deletion_timestamp=EPOCH),)) == ([], [])
    leaving = large(meta={"deletion_timestamp": EPOCH})
    assert plan(leaving, good_spec(leaving), [], [], EPOCH, config_maps=[config_map(OLD)]) == NOTHING
    assert changes(Plan(delete_job=True), held=(config_map(OLD),)) == ([], [])


def test_the_plan_in_which_a_job_ends_holds_nothing_else() -> None:
    """The end is written before anything is cleaned up."""
    assert changes(Plan(status=ENDED), held=(config_map(OLD),)) == ([], [])


@pytest.mark.parametrize("label", ["", "x", "0123456789ABCDEF", "a" * 17, "../../other-name"])
def test_a_label_that_is_no_hash_names_no_config_map(label: str) -> None:
    """U1: users can write anything there, and it becomes a name."""
    assert changes(pods=(reader(0, label),)) == ([], [])


class Hands(Parts):
    """The parts of a controller, and a job with a ConfigMap."""

    def __init__(self) -> None:
        super().__init__()
        self.job = large()

    async def create(self, *slots: ReplicaKey, digest: str = DIGEST) -> None:
        """Create a ConfigMap, and service and pod of these replicas."""
        plan = Plan(create_pods=slots, create_services=slots, create_config_maps=(digest,))
        await self.creator.create(self.job, good_spec(self.job), plan)


async def test_a_config_map_is_made_before_the_pods_that_read_it() -> None:
    """U1: a pod that does not find it waits for seconds in its kubelet."""
    hands = Hands()
    await hands.create(slot(0))
    name = config_map_name("mnist", DIGEST)
    assert hands.client.actions[0] == ("create", "configmaps", name)
    assert hands.client.actions[1:] == [("create", "services", "mnist-worker-0"), ("create", "pods", "mnist-worker-0")]
    assert hands.recorder.events[0] == ("Normal", "SuccessfulCreateConfigMap", f"Created ConfigMap: {name}")
    for kind in ("pod", "service"):
        hands.expectations.creation_observed(OWNER, kind, "mnist-worker-0")
    assert not hands.expectations.satisfied(OWNER)
    hands.expectations.creation_observed(OWNER, "ConfigMap", name)
    assert hands.expectations.satisfied(OWNER)


@pytest.mark.parametrize(
    "error", [status_error(ForbiddenError, 403, "exceeded quota"), status_error(InvalidError, 422)]
)
async def test_only_the_pods_that_read_a_refused_config_map_wait(error: ApiError) -> None:
    """U1: with a Warning, to be tried again: there is nothing in it that the user could mend, so it never ends the job."""
    hands = Hands()
    hands.client.fail["create", "configmaps", config_map_name("mnist", DIGEST)] = error
    with pytest.raises(type(error)):
        await hands.create(slot(0), slot(0, "PS"))
    assert [action[1:] for action in hands.client.actions[1:]] == [
        ("services", "mnist-worker-0"),
        ("services", "mnist-ps-0"),
        ("pods", "mnist-ps-0"),
    ]
    assert ("Warning", "FailedCreateConfigMap") in [event[:2] for event in hands.recorder.events]
    hands.expectations.creation_observed(OWNER, "pod", "mnist-ps-0")
    for name in ("mnist-worker-0", "mnist-ps-0"):
        hands.expectations.creation_observed(OWNER, "service", name)
    assert hands.expectations.satisfied(OWNER)


async def test_a_strangers_config_map_of_that_name_is_left_alone() -> None:
    """U1: the pods wait, with a Warning; our own, from an attempt whose response was lost, counts as made."""
    name = config_map_name("mnist", DIGEST)
    for owner, taken in (([], True), ([{"kind": "TFJob", "name": "mnist", "uid": JOB_UID, "controller": True}], False)):
        hands = Hands()
        hands.client.fail["create", "configmaps", name] = status_error(AlreadyExistsError, 409)
        hands.client.objects["configmaps", name] = {"metadata": {"name": name, "ownerReferences": owner}}
        if taken:
            with pytest.raises(NameTakenError):
                await hands.create(slot(0))
        else:
            await hands.create(slot(0))
        assert (("create", "pods", "mnist-worker-0") in hands.client.actions) is not taken


async def test_a_config_map_that_is_deleted_is_made_again_at_once() -> None:
    """U1, D9: its deletion wakes the job, and one sync makes it; nothing else is made or deleted."""
    world = ControllerHarness()
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(LARGE)}})
    digest = cluster_of(tfjob).digest
    world.jobs.put(tfjob)
    for index in range(LARGE):
        world.pods.put(reader(index, digest))
        world.services.put(service("Worker", index))
    world.config_maps.put(config_map(digest))
    await world.sync()
    assert "configmaps" not in {resource for _, resource, _ in world.taken()}
    while len(world.queue):
        world.queue.done(await world.queue.get())
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"name": "mnist", "uid": JOB_UID, "resourceVersion": "2"}}
    world.config_maps.remove(config_map(digest))
    assert len(world.queue) == 1
    await world.sync()
    made = ("create", "configmaps", config_map_name("mnist", digest))
    assert [action for action in world.taken() if not action[0].endswith("status")] == [
        ("get", "tfjobs", "mnist"),
        made,
    ]


async def test_the_whole_cluster_is_put_together_once_for_all_pods(mocker: MockerFixture) -> None:
    """U1: to do so for each pod would take quadratic time in the size of the job."""
    hands, asked = Hands(), list[ClusterSpec]()
    hands.job = job({"tfReplicaSpecs": {"Worker": replica(50, template=template())}})
    text = ClusterSpec.__dict__["text"]
    made = text.func

    def counted(cluster: ClusterSpec) -> str:
        asked.append(cluster)
        return str(made(cluster))

    mocker.patch.object(text, "func", counted)
    slots = tuple(slot(index) for index in range(50))
    await hands.creator.create(hands.job, good_spec(hands.job), Plan(create_pods=slots))
    assert len(hands.client.actions) == 50
    assert len(asked) == 1
