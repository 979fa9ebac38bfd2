"""Long cluster specifications: which pods read them from a ConfigMap, which ConfigMaps there are, and what a process sees."""

import re
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from pytest_mock import MockerFixture

from fakes.api import status_error
from fakes.controller import ControllerHarness, Parts
from fakes.jobs import CONTROLLER, JOB_UID, OWNER, container, good_spec, job, pod, replica, service, spec
from fakes.objects import changed
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError, ForbiddenError, InvalidError
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.tf_config import INLINE_BYTES, ClusterSpec
from tfjob_operator.api.v1.types import JobCondition, JobStatus, TFJob
from tfjob_operator.controller.jobs.children import ChildMeta, ConfigMap, Pod, ReplicaKey
from tfjob_operator.controller.jobs.writes import NameTakenError
from tfjob_operator.controller.tfjob.build.builder import PodBuilder, build_config_map, config_map_name
from tfjob_operator.controller.tfjob.plan.actions import NOTHING, with_config_maps
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion

LARGE = 200


def large(workers: int = LARGE, meta: dict[str, Any] | None = None, **fields: Any) -> TFJob:
    """A job whose cluster specification is long: workers and one parameter server that knows its TF_CONFIG itself."""
    return job(
        spec(Worker=workers, PS=replica(1, template=container(env=[{"name": "TF_CONFIG", "value": "mine"}])), **fields),
        **(meta or {}),
    )


def cluster_of(tfjob: TFJob, domain: str = "") -> ClusterSpec:
    return ClusterSpec(tfjob.metadata, good_spec(tfjob), domain)


def slot(index: int, kind: str = "Worker") -> ReplicaKey:
    return ReplicaKey.of("mnist", kind, index)


def built(tfjob: TFJob, place: ReplicaKey) -> dict[str, Any]:
    return PodBuilder(tfjob, good_spec(tfjob), backend_variables=False).build(place)


def variables(tfjob: TFJob, place: ReplicaKey) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = built(tfjob, place)["spec"]["containers"][0].get("env", [])
    return found


def variable_names(tfjob: TFJob, place: ReplicaKey) -> list[str]:
    return [variable["name"] for variable in variables(tfjob, place)]


NUMBER = {"name": "TFJOB_EXECUTION_ATTEMPT", "value": "0"}
BOTH = ["TFJOB_CLUSTER_SPEC", "TF_CONFIG", "TFJOB_EXECUTION_ATTEMPT"]
ONE = ["TF_CONFIG", "TFJOB_EXECUTION_ATTEMPT"]


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
        assert variable_names(tfjob, slot(index)) == BOTH
        assert seen_by_the_process(env, config_map)["TF_CONFIG"] == cluster.tf_config("Worker", index)
    assert "$" not in cluster.text


def test_pods_of_a_large_job_do_not_grow_with_it() -> None:
    """U1, D9: but for the digits of their index."""
    small, huge = (len(msgspec.json.encode(built(large(count), slot(99)))) for count in (200, 2000))
    assert small == huge < 3000


def test_a_short_cluster_stands_in_the_pod() -> None:
    """U1: also at the bound itself; with one replica more it does not."""
    most = next(count for count in range(10, LARGE) if cluster_of(large(count)).size > INLINE_BYTES) - 1
    for count, names in ((most, ONE), (most + 1, BOTH)):
        tfjob = large(count)
        assert variable_names(tfjob, slot(0)) == names
        assert bool(cluster_of(tfjob).digest) == (names == BOTH)
        labels = built(tfjob, slot(0))["metadata"]["labels"]
        assert labels.get(c.LABEL_CLUSTER_SPEC, "") == cluster_of(tfjob).digest


def test_a_template_that_sets_one_of_the_variables_wins() -> None:
    """U1: its TF_CONFIG is the only one; where the other name is its own, the cluster stands in TF_CONFIG."""
    assert variables(large(), slot(0, "PS")) == [{"name": "TF_CONFIG", "value": "mine"}, NUMBER]
    other = job(spec(Worker=replica(LARGE, template=container(env=[{"name": "TFJOB_CLUSTER_SPEC", "value": "mine"}]))))
    config = {"name": "TF_CONFIG", "value": cluster_of(other).tf_config("Worker", 3)}
    assert variables(other, slot(3)) == [{"name": "TFJOB_CLUSTER_SPEC", "value": "mine"}, config, NUMBER]
    assert not cluster_of(other).digest


def test_replicas_that_are_not_told_of_the_whole_cluster_read_no_config_map() -> None:
    """B60, U1: the workers of an elastic job; its chief is told, and reads it."""
    tfjob = job(spec(Worker=LARGE, Chief=1, enableDynamicWorker=True))
    assert variable_names(tfjob, slot(0)) == ONE
    assert variable_names(tfjob, slot(0, "Chief")) == BOTH


def test_the_hash_is_of_the_content_and_of_the_job() -> None:
    """U1: no ConfigMap of an earlier job of the name, or of another size of it, is taken for this one."""
    others = [
        cluster_of(large(LARGE + 1)),
        cluster_of(large(meta={"uid": "another"})),
        cluster_of(large(), "cluster.local"),
    ]
    assert len({DIGEST, *(each.digest for each in others)}) == 4
    assert cluster_of(large()).digest == DIGEST


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
    return changed(pod("Worker", index, phase, exit_code, **fields), metadata__labels__cluster_spec=digest)


def config_map(digest: str = DIGEST, **meta: Any) -> ConfigMap:
    """A ConfigMap of the job, as it is cached."""
    name = config_map_name("mnist", digest)
    return ConfigMap(ChildMeta(name=name, namespace="ns", uid=f"uid-{name}", owner_references=(CONTROLLER,), **meta))


NEW_POD = Plan(create_pods=(slot(5),))
ENDED = JobStatus(conditions=(JobCondition("Succeeded", "True"),))
NOW = config_map()
TWO = (config_map(OLD), NOW)
SUCCEEDED = reader(0, phase="Succeeded", exit_code=0)


Changes = tuple[list[str], list[str]]
MADE: Changes = ([DIGEST], [])
SAME: Changes = ([], [])
DROPPED: Changes = ([], [OLD])
NO_HASHES = ("", "x", "0123456789ABCDEF", "a" * 17, "../../other-name")
SUSPENDED, OVER = large(runPolicy={"suspend": True}), large(meta={"status": ENDED})


def case(
    name: str, expected: object, *pods: Pod, plan: Plan = NOTHING, held: Any = (), tfjob: TFJob | None = None
) -> Any:
    """A row: `held` are the ConfigMaps that are there."""
    return pytest.param(plan, pods, held, tfjob or large(), expected, id=name)


@pytest.mark.parametrize(
    ("plan", "pods", "held", "tfjob", "expected"),
    [
        case("for a pod that will read it", MADE, plan=NEW_POD),
        case("once", SAME, plan=NEW_POD, held=[NOW]),
        case("not for a pod that knows its TF_CONFIG", SAME, plan=Plan(create_pods=(slot(0, "PS"),))),
        case("not for a small job", SAME, plan=NEW_POD, tfjob=job()),
        case("it stays while the job lives, also unread", SAME, held=[NOW]),
        case("deleted, and a pod may read it again", MADE, reader(0)),
        case("deleted after the end, and a pod runs on", MADE, reader(0), tfjob=OVER),
        case("deleted, and the pod has ended", SAME, SUCCEEDED),
        case("deleted, and the pod goes", SAME, reader(0, terminating=True)),
        case("deleted, and the pod is to go", SAME, reader(0), plan=Plan(delete_pods=(PodDeletion(reader(0)),))),
        case("deleted, and of before a scale", ([OLD], []), reader(0, OLD)),
        case("two are read", SAME, reader(0, OLD), reader(1), held=TWO),
        case("a pod that goes may start its container once more", SAME, reader(0, OLD, terminating=True), held=TWO),
        case("its reader has failed", DROPPED, reader(0, OLD, "Failed", 1), reader(1), held=TWO),
        case("nobody reads that of before a scale", DROPPED, reader(1), held=TWO),
        *(case("not before its pods", SAME, reader(0), held=[NOW], tfjob=each) for each in (OVER, SUSPENDED)),
        *(case("with its pods", ([], [DIGEST]), SUCCEEDED, held=[NOW], tfjob=each) for each in (OVER, SUSPENDED)),
        case("going already", SAME, held=[config_map(OLD, deletion_timestamp=EPOCH)]),
        case("the job goes", SAME, plan=Plan(delete_job=True), held=TWO),
        *(case(f"no hash: {name!r}", SAME, reader(0, name)) for name in NO_HASHES),
    ],
)
def test_there_are_the_config_maps_that_pods_read_and_no_others(
    plan: Plan, pods: tuple[Pod, ...], held: Any, tfjob: TFJob, expected: Any
) -> None:
    """U1, D9: a container that restarts in place reads it again, and an autoscaler must not pile them up.

    Users can write anything into the label, and it becomes a name.
    """
    found = with_config_maps(plan, tfjob, good_spec(tfjob), pods, held, domain="")
    assert (list(found.create_config_maps), [each.metadata.name[-16:] for each in found.delete_config_maps]) == expected
    assert found.acts == bool(plan.acts or found.create_config_maps or found.delete_config_maps)


def test_one_of_before_a_scale_is_made_again_with_what_is_true_now() -> None:
    """U1: what was in it is not known any more, and without it a container that restarts would hang."""
    body = build_config_map(large().metadata, cluster_of(large()), OLD)
    assert body["metadata"]["name"] == config_map_name("mnist", OLD)
    assert body["data"] == {"cluster": cluster_of(large()).text}


CREATE = ("create", "configmaps", config_map_name("mnist", DIGEST))


async def create(world: Parts, *slots: ReplicaKey) -> None:
    plan = Plan(create_pods=slots, create_services=slots, create_config_maps=(DIGEST,))
    await world.creator.create(large(), good_spec(large()), plan)


async def test_a_config_map_is_made_before_the_pods_that_read_it() -> None:
    """U1: a pod that does not find it waits for seconds in its kubelet."""
    world = Parts()
    await create(world, slot(0))
    children = [("create", "services", "mnist-worker-0"), ("create", "pods", "mnist-worker-0")]
    assert world.client.actions == [CREATE, *children]
    assert world.recorder.events[0] == ("Normal", "SuccessfulCreateConfigMap", f"Created ConfigMap: {CREATE[-1]}")
    for kind in ("pod", "service"):
        world.expectations.creation_observed(OWNER, kind, "mnist-worker-0")
    assert not world.expectations.satisfied(OWNER)
    world.expectations.creation_observed(OWNER, "ConfigMap", CREATE[-1])
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize(
    "error", [status_error(ForbiddenError, 403, "exceeded quota"), status_error(InvalidError, 422)]
)
async def test_only_the_pods_that_read_a_refused_config_map_wait(error: ApiError) -> None:
    """U1: with a Warning, to be tried again: there is nothing in it that the user could mend, so it never ends the job."""
    world = Parts()
    world.client.fail[CREATE] = error
    with pytest.raises(type(error)):
        await create(world, slot(0), slot(0, "PS"))
    made = [("services", "mnist-worker-0"), ("services", "mnist-ps-0"), ("pods", "mnist-ps-0")]
    assert [action[1:] for action in world.client.actions[1:]] == made
    assert ("Warning", "FailedCreateConfigMap") in [event[:2] for event in world.recorder.events]
    for resource, name in made:
        world.expectations.creation_observed(OWNER, resource.removesuffix("s"), name)
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize("ours", [False, True])
async def test_a_strangers_config_map_of_that_name_is_left_alone(ours: bool) -> None:
    """U1: the pods wait, with a Warning; our own, from an attempt whose response was lost, counts as made."""
    world = Parts()
    world.client.fail[CREATE] = status_error(AlreadyExistsError, 409)
    owners = [{"kind": "TFJob", "name": "mnist", "uid": JOB_UID, "controller": True}] * ours
    world.client.objects[CREATE[1:]] = {"metadata": {"name": CREATE[-1], "ownerReferences": owners}}
    with nullcontext() if ours else pytest.raises(NameTakenError):
        await create(world, slot(0))
    assert (("create", "pods", "mnist-worker-0") in world.client.actions) is ours


async def test_a_config_map_that_is_deleted_is_made_again_at_once() -> None:
    """U1, D9: its deletion wakes the job, and one sync makes it; nothing else is made or deleted."""
    tfjob = job(spec(Worker=LARGE))
    world, digest = ControllerHarness(tfjob), cluster_of(tfjob).digest
    for index in range(LARGE):
        world.pods.put(reader(index, digest))
        world.services.put(service("Worker", index))
    world.config_maps.put(config_map(digest))
    await world.sync()
    assert "configmaps" not in {resource for _, resource, _ in world.taken()}
    await world.idle()
    world.confirms()
    world.config_maps.remove(config_map(digest))
    assert len(world.queue) == 1
    await world.sync()
    made = ("create", "configmaps", config_map_name("mnist", digest))
    assert [each for each in world.taken() if not each[0].endswith("status")] == [("get", "tfjobs", "mnist"), made]


async def test_the_whole_cluster_is_put_together_once_for_all_pods(mocker: MockerFixture) -> None:
    """U1: to do so for each pod would take quadratic time in the size of the job."""
    world, asked, tfjob = Parts(), list[ClusterSpec](), job(spec(Worker=50))
    text = ClusterSpec.__dict__["text"]
    made = text.func

    def counted(cluster: ClusterSpec) -> str:
        asked.append(cluster)
        return str(made(cluster))

    mocker.patch.object(text, "func", counted)
    await world.creator.create(tfjob, good_spec(tfjob), Plan(create_pods=tuple(slot(index) for index in range(50))))
    assert len(world.client.actions) == 50
    assert len(asked) == 1
