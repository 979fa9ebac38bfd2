"""What pods, services and PodGroups look like."""

import copy
from typing import Any

import pytest

from fakes.jobs import container, good_spec, job, pod_group, replica, spec, template
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.api.v1.types import JobStatus
from tfjob_operator.controller.config.values import Accelerator, HostVolume, Variable
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.builder import (
    GangScheduler,
    PodBuilder,
    build_pod_group,
    build_service,
    gang_scheduler,
    min_resources,
    resize_patch,
)

WORKER_0, WORKER_1 = (ReplicaKey.of("mnist", "Worker", index) for index in (0, 1))
PS = ReplicaKey.of("mnist", "PS", 0)
TENSORFLOW = {"name": "tensorflow", "image": "i"}


def built(given: dict[str, Any] | None = None, key: ReplicaKey = WORKER_0, **options: Any) -> dict[str, Any]:
    return PodBuilder(job(given), good_spec(job(given)), **options).build(key)


def service_of(given: dict[str, Any] | None = None, key: ReplicaKey = WORKER_0) -> dict[str, Any]:
    return build_service(job(given).metadata, good_spec(job(given)), key)


def with_container(*, beside: dict[str, Any] | None = None, policy: str | None = None, **fields: Any) -> dict[str, Any]:
    """Two workers with these fields of their training container, and a sidecar; `beside` is the rest of their template."""
    containers = [TENSORFLOW | fields, {"name": "sidecar", "image": "s"}]
    return spec(policy, Worker=replica(2, policy, template={"spec": {"containers": containers}} | (beside or {})))


def test_the_template_passes_through_with_what_nobody_reads() -> None:
    training, sidecar = built(with_container(fieldOfTheFuture={"a": [1]}))["spec"]["containers"]
    assert training["fieldOfTheFuture"] == {"a": [1]}
    assert sidecar == {"name": "sidecar", "image": "s"}


def test_building_pods_changes_neither_the_template_nor_each_other() -> None:
    """One template serves all replicas of a type."""
    builder = PodBuilder(job(), good_spec(job()))
    first = builder.build(WORKER_0)
    before = copy.deepcopy(first)
    second = builder.build(WORKER_1)
    assert first == before == built()
    assert first["spec"]["containers"][0]["env"] != second["spec"]["containers"][0]["env"]


def test_labels_and_annotations_are_merged_and_ours_win() -> None:
    """U11, U15: the labels of all SDKs, and the policy of the replica; users' own labels stay."""
    metadata = {"labels": {"team": "a", "job-name": "other"}, "annotations": {"n": "1"}, "creationTimestamp": None}
    found = built(with_container(beside={"metadata": metadata}))["metadata"]
    assert found["labels"] == {
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
        "training.kubeflow.org/execution-attempt": "0",
    }
    assert found["annotations"] == {"n": "1"}
    assert "creationTimestamp" not in found


@pytest.mark.parametrize(("attempt", "execution", "expected"), [(0, 0, "0"), (3, 0, "3"), (1, 4, "4")])
def test_a_pod_has_the_number_of_its_execution(attempt: int, execution: int, expected: str) -> None:
    """A status of a release that counted only attempts continues with theirs."""
    tfjob = job(status=JobStatus(attempt=attempt, execution_attempt=execution))
    pod = PodBuilder(tfjob, good_spec(tfjob)).build(WORKER_0)
    variables = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
    assert (pod["metadata"]["labels"][c.LABEL_EXECUTION], variables[c.EXECUTION_VARIABLE]) == (expected, expected)


def test_only_the_deciding_pod_is_called_master() -> None:
    """SDKs read its log: the chief, or worker 0 where there is none."""
    given = spec(Chief=1, Worker=2)
    labels = [built(given, key)["metadata"]["labels"] for key in (ReplicaKey("Chief", 0, "x"), WORKER_0, WORKER_1)]
    labels += [built(spec(Worker=2), key)["metadata"]["labels"] for key in (WORKER_0, WORKER_1)]
    assert [each.get(c.LABEL_JOB_ROLE) for each in labels] == ["master", None, None, "master", None]


def test_children_are_owned_by_the_job() -> None:
    """RM-04: controller and blockOwnerDeletion are true, so the garbage collector takes them with the job."""
    named = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "job-uid"}
    owner = named | {"controller": True, "blockOwnerDeletion": True}
    group = build_pod_group(job().metadata, good_spec(job()), templates_of(job().spec), VOLCANO, 2)
    for body in (built(), service_of(), group):
        assert body["metadata"]["ownerReferences"] == [owner]
    assert (group["kind"], group["metadata"]["name"]) == ("PodGroup", "mnist")
    assert group["metadata"]["labels"]["training.kubeflow.org/job-name"] == "mnist"


@pytest.mark.parametrize("policy", RestartPolicy)
def test_the_policy_exit_code_runs_pods_that_never_restart(policy: str) -> None:
    """The operator looks at the exit code, the kubelet must not restart before it has.

    U15: the policy is on the pod, otherwise Never and ExitCode could not be told apart later.
    """
    body = built(with_container(policy=policy))
    assert body["spec"]["restartPolicy"] == ("Never" if policy == "ExitCode" else policy)
    assert body["metadata"]["labels"]["training.kubeflow.org/restart-policy"] == policy


def test_tf_config_goes_into_the_training_container_alone() -> None:
    """After the user's own variables; where TF_CONFIG is one of them, no second entry is appended, which would win."""
    training, sidecar = built(with_container(env=[{"name": "A", "value": "1"}]))["spec"]["containers"]
    assert [variable["name"] for variable in training["env"]] == ["A", "TF_CONFIG", *KERAS, *JAX, c.EXECUTION_VARIABLE]
    assert "env" not in sidecar
    env = [{"name": "TF_CONFIG", "value": "mine"}, {"name": c.EXECUTION_VARIABLE, "value": "mine"}]
    assert built(with_container(env=env))["spec"]["containers"][0]["env"] == env


KERAS, JAX = c.BACKEND_VARIABLES


def env_of(given: dict[str, Any], kind: str = "Worker", index: int = 0, **options: Any) -> dict[str, str]:
    pod = built(given, ReplicaKey.of("mnist", kind, index), **options)
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0].get("env", [])}


def test_processes_of_keras_and_jax_find_each_other_without_code_of_their_own() -> None:
    """keras#20585: chief first, then workers by index; the Evaluator is none of them. The port is that of TF_CONFIG."""
    port = {"name": c.PORT_NAME, "containerPort": 3333}
    chief = replica(template=template(containers=[TENSORFLOW | {"ports": [port]}]))
    given = spec(Worker=2, Evaluator=1, Chief=chief)
    for rank, (kind, index) in enumerate([("Chief", 0), ("Worker", 0), ("Worker", 1)]):
        values = ("mnist-chief-0.ns.svc:3333", "3", str(rank))
        env = env_of(given, kind, index)
        assert [env[name] for name in KERAS] == [env[name] for name in JAX] == list(values)
        assert values[0] in env[c.TF_CONFIG]
    assert set(env_of(given, "Evaluator")) == {c.TF_CONFIG, c.EXECUTION_VARIABLE}
    shared = env_of(spec(Worker=2, runPolicy={"network": "shared"}), index=1, domain="cluster.local")
    assert shared[KERAS[0]] == "mnist-worker-0.mnist.ns.svc.cluster.local:2222"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (spec(Worker=2, PS=1), {}),
        (spec(Worker=2, enableDynamicWorker=True), {}),
        (spec(Worker=1, Evaluator=1), {}),
        (spec(Worker=1), {}),
        (spec(Worker=2), {"backend_variables": False}),
        (with_container(env=[{"name": c.TF_CONFIG, "value": "mine"}]), {}),
    ],
    ids=["parameter servers", "elastic", "one process", "alone", "disabled", "its own cluster"],
)
def test_only_groups_of_equal_processes_get_the_variables_of_keras_and_jax(
    given: dict[str, Any], options: dict[str, Any]
) -> None:
    assert env_of(given, **options).keys().isdisjoint({*KERAS, *JAX})


@pytest.mark.parametrize("group", [KERAS, JAX])
def test_a_template_that_sets_one_variable_of_a_group_gets_none_of_it(group: tuple[str, ...]) -> None:
    """Half of one and half of another would name different processes. Names from ConfigMaps (envFrom) cannot be seen."""
    (other,) = {KERAS, JAX} - {group}
    env = [{"name": group[1], "value": "mine"}]
    assert list(env_of(with_container(env=env, envFrom=[{"configMapRef": {"name": "a"}}]))) == [
        group[1],
        c.TF_CONFIG,
        *other,
        c.EXECUTION_VARIABLE,
    ]


def test_the_port_is_added_where_it_is_missing() -> None:
    """And left as it is where the user named it."""
    own = [{"name": "tfjob-port", "containerPort": 3333, "hostPort": 4}]
    for given, ports in (
        (with_container(), [{"name": "tfjob-port", "containerPort": 2222}]),
        (with_container(ports=own), own),
    ):
        assert built(given)["spec"]["containers"][0]["ports"] == ports


def test_a_service_names_each_number_once_for_a_protocol() -> None:
    """A pod may have two names for a port, a service may not; `tfjob-port` stays, and UDP is no TCP."""
    ports = [
        {"name": "grpc", "containerPort": 2222},
        {"name": "dns", "containerPort": 53},
        {"name": "dns-udp", "containerPort": 53, "protocol": "UDP"},
        {"name": "dns-again", "containerPort": 53, "protocol": "TCP"},
    ]
    assert service_of(with_container(ports=ports))["spec"]["ports"] == [
        {"name": "dns", "port": 53},
        {"name": "dns-udp", "port": 53, "protocol": "UDP"},
        {"name": "tfjob-port", "port": 2222},
    ]


def test_a_service_is_headless_and_resolves_before_its_pod_is_ready() -> None:
    """B61, B63: all named ports in stable order, publishNotReadyAddresses, selecting exactly one replica."""
    assert service_of(with_container(ports=[{"name": "metrics", "containerPort": 9}]), WORKER_1)["spec"] == {
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
    given = spec(Worker=replica(2, template=asking(limits={"nvidia.com/gpu": 1})), PS=1)
    for key in (WORKER_0, WORKER_1):
        found = built(given, key, accelerators={"nvidia.com/gpu": gpu})["spec"]
        assert found["volumes"] == [{"name": "lib", "hostPath": {"path": "/usr/lib/nvidia-384"}}]
        assert [each["name"] for each in found["containers"][0]["env"]] == [
            "LD_LIBRARY_PATH",
            c.TF_CONFIG,
            c.EXECUTION_VARIABLE,
        ]
    assert "volumes" not in built(given, PS, accelerators={"nvidia.com/gpu": gpu})["spec"]


VOLCANO, PLUGINS = map(gang_scheduler, ("volcano", "coscheduler"))


def asking(requests: Any = None, limits: Any = None, **pod_spec: Any) -> dict[str, Any]:
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value is not None}
    return container(pod_spec, resources=resources)


def gang(scheduling: dict[str, Any] | None = None, **templates: dict[str, Any]) -> dict[str, Any]:
    entries = {
        kind: replica(count, template=templates.get(kind, template())) for kind, count in (("Worker", 2), ("PS", 1))
    }
    return spec(**entries, runPolicy={"schedulingPolicy": scheduling})


def group_of(given: dict[str, Any], scheduler: GangScheduler = VOLCANO) -> dict[str, Any]:
    return build_pod_group(job().metadata, good_spec(job(given)), templates_of(job(given).spec), scheduler, 3)


SCHEDULING = {"queue": "research", "priorityClass": "high", "scheduleTimeoutSeconds": 9}


@pytest.mark.parametrize(
    ("scheduling", "scheduler", "api", "group"),
    [
        (None, VOLCANO, "scheduling.volcano.sh/v1beta1", {}),
        (
            SCHEDULING | {"minResources": {"cpu": 3}},
            VOLCANO,
            "scheduling.volcano.sh/v1beta1",
            {"queue": "research", "priorityClassName": "high", "minResources": {"cpu": 3}},
        ),
        (SCHEDULING, PLUGINS, "scheduling.x-k8s.io/v1alpha1", {"scheduleTimeoutSeconds": 9}),
    ],
)
def test_a_group_has_what_its_scheduler_knows_of_the_policy(
    scheduling: dict[str, Any] | None, scheduler: GangScheduler, api: str, group: dict[str, Any]
) -> None:
    """B66: what the user did not say is not in it, above all no queue; the scheduler knows the default.

    The coscheduling plugin knows neither queues nor priorities.
    """
    body = group_of(gang(scheduling), scheduler)
    assert (body["apiVersion"], body["spec"]) == (api, {"minMember": 3} | group)


def test_the_priority_is_that_of_the_first_template_that_has_one() -> None:
    """Where the policy names none. PS comes before Worker."""
    given = gang(Worker=asking(priorityClassName="low"), PS=asking(priorityClassName="high"))
    assert group_of(given)["spec"]["priorityClassName"] == "high"


def test_the_resources_are_those_of_the_first_pods_that_make_a_gang() -> None:
    """Two of three: the PS and one worker. A limit stands in for a request that is not there."""
    tfjob = job(
        gang(
            PS=asking({"cpu": "500m", "memory": "1Gi"}),
            Worker=asking({"cpu": 2, "memory": "1Gi"}, {"cpu": "4", "nvidia.com/gpu": "1"}),
        )
    )
    found, all_three = (min_resources(good_spec(tfjob), templates_of(tfjob.spec), count) for count in (2, 3))
    assert found == {"cpu": "2500m", "memory": "2147483648", "nvidia.com/gpu": "1"}
    assert all_three["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("resources", [{"requests": {"cpu": "lots", "memory": None}}, {"requests": None}, None])
def test_what_is_no_quantity_is_left_to_the_api_server(resources: Any) -> None:
    """It refuses the pod, and says why; the group must not fail because of it."""
    given = gang(Worker=container(resources=resources))
    assert "minResources" not in group_of(given)["spec"]


def test_a_resize_changes_the_size_and_the_reckoned_resources_alone() -> None:
    """B66: the queue is not in the patch, and the UID must be that of the group that was seen."""

    def patch_of(scheduling: dict[str, Any]) -> list[dict[str, Any]]:
        tfjob = job(gang(scheduling, PS=asking({"cpu": 1})))
        return resize_patch(good_spec(tfjob), templates_of(tfjob.spec), pod_group(), 2)

    assert patch_of({"queue": "q"}) == [
        {"op": "test", "path": "/metadata/uid", "value": "group-uid"},
        {"op": "add", "path": "/spec/minMember", "value": 2},
        {"op": "add", "path": "/spec/minResources", "value": {"cpu": "1"}},
    ]
    assert [each["path"] for each in patch_of({"minResources": {"cpu": 9}})] == ["/metadata/uid", "/spec/minMember"]


def test_pods_for_volcano_name_their_group_and_their_role() -> None:
    """Beside the annotations of the template, which stay."""
    given = spec(PS=replica(1, template=template() | {"metadata": {"annotations": {"a": "b"}}}))
    body = built(given, PS, gang=VOLCANO)
    group = {"scheduling.k8s.io/group-name": "mnist", "volcano.sh/task-spec": "ps"}
    assert body["spec"]["schedulerName"] == "volcano"
    assert body["metadata"]["annotations"] == {"a": "b"} | group
    assert "scheduling.x-k8s.io/pod-group" not in body["metadata"]["labels"]


def test_pods_for_the_coscheduling_plugin_have_a_label() -> None:
    body = built(gang=PLUGINS)
    assert body["spec"]["schedulerName"] == "coscheduler"
    assert body["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "mnist"
    assert "annotations" not in body["metadata"]


def test_a_scheduler_that_the_template_names_stays() -> None:
    """It is the user's choice; a Warning reports it."""
    given = spec(Worker=replica(1, template=template(schedulerName="own")))
    assert built(given, gang=VOLCANO)["spec"]["schedulerName"] == "own"
