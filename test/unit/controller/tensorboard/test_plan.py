"""The plan for a TensorBoard: a pure function, so that all pairs of wishes can be tried."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fakes.cluster import ModelCluster
from fakes.objects import changed
from kit.model.patches import merge_patch
from support.cases import for_each
from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1.constants import CHILD_SELECTOR, TFJOBS
from tfjob_operator.api.v1.tensorboard import ServiceType, TensorBoard
from tfjob_operator.controller.tensorboard.children import SELECTOR, BoardChildren, BoardDeployment, BoardService
from tfjob_operator.controller.tensorboard.plan import BoardPlan, ChildUpdate, Creation, Deletion, plan
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged, labels_of
from tfjob_operator.informers.listers import parse_labels

JOB = Meta(name="mnist", namespace="ns", uid="job-uid")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
IMAGE = "tensorflow/tensorflow:1"
SLICES: dict[str, type[BoardDeployment | BoardService]] = {
    DEPLOYMENTS.kind: BoardDeployment,
    SERVICES.kind: BoardService,
}


def request(name: str = "mnist-tensorboard", labels: str = "mnist", **board: Any) -> TensorBoardRequest:
    return TensorBoardRequest(name, labels_of(labels), replace(TensorBoard("/logs"), **board))


class Server(ModelCluster[Any]):
    """The model server, as the plans of one job use it."""

    def __init__(self) -> None:
        super().__init__(JOB.namespace)
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def ask(self, method: str, path: str, body: object) -> None:
        assert self.server.ask("operator", method, path, body) in {200, 201}, (method, path)

    def take(self, decided: BoardPlan) -> None:
        for step in decided.steps:
            match step:
                case Creation():
                    self.ask("POST", step.resource.path(self.namespace), merge_patch({}, step.body))  # without nulls
                case ChildUpdate():
                    assert step.patch["metadata"]["uid"] == step.meta.uid
                    assert step.patch["metadata"]["resourceVersion"] == step.meta.resource_version
                    self.ask("PATCH", step.resource.path(self.namespace, step.meta.name), step.patch)
                case Deletion():
                    path = step.resource.path(self.namespace, step.meta.name)
                    self.ask("DELETE", path, {"preconditions": {"uid": step.meta.uid}})

    def objects(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the Deployments and Services by kind and name."""
        stored = self.server.storage.collections
        return {
            (each.kind, name): version.body
            for each in (DEPLOYMENTS, SERVICES)
            for (_, name), version in stored[each.plural].objects.items()
        }

    def found(self) -> BoardChildren:
        def controlled(kind: str) -> tuple[Any, ...]:
            return tuple(
                msgspec.convert(body, SLICES[kind])
                for (held, _), body in self.objects().items()
                if held == kind and any(each["uid"] == JOB.uid for each in body["metadata"]["ownerReferences"])
            )

        return BoardChildren(controlled(DEPLOYMENTS.kind), controlled(SERVICES.kind))


def path_of(kind: str, name: str) -> str:
    return {each.kind: each for each in (DEPLOYMENTS, SERVICES)}[kind].path(JOB.namespace, name)


def decide(
    wanted: TensorBoardRequest | Unmanaged | None, found: BoardChildren, job: Meta = JOB, image: str = IMAGE
) -> BoardPlan:
    return plan(TFJOBS, job, wanted, found, image, service_types=tuple(ServiceType))


def specs(server: Server) -> dict[tuple[str, str], Any]:
    return {key: body["spec"] for key, body in server.objects().items()}


def settle(server: Server, wanted: TensorBoardRequest | Unmanaged | None, most: int = 4) -> int:
    """Plan and execute until nothing is left to do; return how many plans had steps."""
    for rounds in range(most):
        decided = decide(wanted, server.found())
        if not decided.steps:
            return rounds
        server.take(decided)
    raise AssertionError(f"not at rest after {most} plans: {decided}")


WISHES: list[TensorBoardRequest | None] = [
    None,
    request(),
    request(log_dir="/other"),
    request(image="own:1"),
    request(service_type=ServiceType.LOAD_BALANCER),
    request(volumes=({"name": "v", "emptyDir": {}},), volume_mounts=({"name": "v", "mountPath": "/v"},)),
    request(name="tensorboard-pj6i"),
    request(labels="other"),
]


@pytest.mark.parametrize("lost", ["", DEPLOYMENTS.kind, SERVICES.kind])
@for_each("after", WISHES)
@for_each("before", WISHES)
async def test_from_any_wish_to_any_other_the_way_ends_where_it_would_have_ended_without_the_first(
    before: TensorBoardRequest | None, after: TensorBoardRequest | None, lost: str
) -> None:
    """TB-06: the objects in the end depend on the last request alone, whatever existed or was lost before."""
    server, straight = Server(), Server()
    settle(server, before)
    for kind, name in server.objects():
        if kind == lost:
            server.ask("DELETE", path_of(kind, name), {})
    settle(server, after)
    settle(straight, after)
    assert specs(server) == specs(straight)
    assert len(server.objects()) == (0 if after is None else 2)


def in_template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


OTHER = {"app.kubernetes.io/instance": "other"}
COMMAND = ["tensorboard", "--logdir=/logs", "--host=0.0.0.0", "--port=6006"]
CONTAINER = {"name": "tensorboard", "image": IMAGE, "command": COMMAND}
PORT = {"name": "tb-port", "port": 80, "targetPort": 6006}
EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "kubectl scale": (DEPLOYMENTS.kind, {"spec": {"replicas": 0}}),
    # The API server refuses parameters of a rolling update beside another strategy.
    "the strategy": (DEPLOYMENTS.kind, {"spec": {"replicas": 0, "strategy": {"rollingUpdate": {"maxSurge": 1}}}}),
    "kubectl set image": (DEPLOYMENTS.kind, in_template(containers=[{"name": "tensorboard", "image": "x"}])),
    "another container": (DEPLOYMENTS.kind, in_template(containers=[{"name": "shell", "image": "x"}])),
    "one more container": (DEPLOYMENTS.kind, in_template(containers=[CONTAINER, {"name": "shell", "image": "x"}])),
    "the hash": (DEPLOYMENTS.kind, {"metadata": {"annotations": None}}),
    "a label of the deployment": (DEPLOYMENTS.kind, {"metadata": {"labels": OTHER}}),
    "the pods of the deployment": (DEPLOYMENTS.kind, {"spec": {"selector": {"matchLabels": OTHER}}}),
    "one more label of the pods": (DEPLOYMENTS.kind, {"spec": {"selector": {"matchLabels": {"app": "other"}}}}),
    "the type of the service": (SERVICES.kind, {"spec": {"type": "NodePort"}}),
    "the selector of the service": (SERVICES.kind, {"spec": {"selector": {"app": "other"}}}),
    "the ports of the service": (SERVICES.kind, {"spec": {"ports": [{"port": 8080, "targetPort": 6006}]}}),
    "one more port of the service": (SERVICES.kind, {"spec": {"ports": [PORT, {"port": 8080, "targetPort": 6006}]}}),
}
ADDITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "a toleration": (DEPLOYMENTS.kind, in_template(tolerations=[{"key": "gpu"}])),
    "an annotation of a load balancer": (SERVICES.kind, {"metadata": {"annotations": {"cloud/internal": "true"}}}),
}


@pytest.mark.parametrize("edit", EDITS | ADDITIONS)
async def test_what_people_edit_of_the_wish_is_set_back_and_what_they_add_stays(edit: str) -> None:
    """TB-07: what runs is what the job says; it does not say which tolerations or annotations there are."""
    server = Server()
    settle(server, request())
    untouched = specs(server)
    kind, change = (EDITS | ADDITIONS)[edit]
    key = (kind, "mnist-tensorboard")
    server.ask("PATCH", path_of(*key), change)
    edited = server.objects()[key]
    assert bool(settle(server, request())) == (edit in EDITS)
    if edit in EDITS:
        assert specs(server) == untouched
    else:
        assert server.objects()[key] == edited


async def test_a_mistake_takes_nothing_down_and_a_mended_one_goes_on() -> None:
    """TB-03: what ran before goes on, as with a held job."""
    server = Server()
    settle(server, request())
    decided = decide(Unmanaged("spec.tensorBoard.logDir: Required value"), server.found())
    assert decided.steps == ()
    assert [(each.reason, each.message) for each in decided.warnings] == [
        ("InvalidTensorBoard", "spec.tensorBoard.logDir: Required value")
    ]
    assert settle(server, request()) == 0


GOING = changed(JOB, deletion_timestamp=NOW)


@pytest.mark.parametrize(
    ("wanted", "job"), [(None, GOING), (request(), GOING), (request(log_dir="/other"), GOING), (Unmanaged(), JOB)]
)
async def test_nothing_is_done_for_a_job_that_is_being_deleted_or_that_another_controller_manages(
    wanted: TensorBoardRequest | Unmanaged | None, job: Meta
) -> None:
    """TB-05, TB-08: the garbage collector deletes what exists, and would have to delete what is created now as well."""
    server = Server()
    assert decide(wanted, server.found(), job) == BoardPlan()
    settle(server, request())
    assert decide(wanted, server.found(), job) == BoardPlan()


@pytest.mark.parametrize("wanted", [None, request()], ids=["none", "same"])
async def test_a_child_on_its_way_out_is_waited_for(wanted: TensorBoardRequest | None) -> None:
    """TB-06: its name is not free before it is gone; its deletion brings the next sync."""
    server = Server()
    settle(server, request())
    for kind, name in server.objects():
        server.ask("PATCH", path_of(kind, name), {"metadata": {"finalizers": ["example.com/keep"]}})
        server.ask("DELETE", path_of(kind, name), {})
    assert all("deletionTimestamp" in body["metadata"] for body in server.objects().values())
    assert decide(wanted, server.found()).steps == ()


async def test_the_way_to_a_tensorboard_comes_after_it_and_goes_before_it() -> None:
    """TB-06: while there is a Service there is a Deployment, by which a later process finds what is left."""
    server = Server()
    decided = decide(request(), server.found())
    assert [step.resource for step in decided.steps] == [DEPLOYMENTS, SERVICES]
    server.take(decided)
    assert [step.resource for step in decide(None, server.found()).steps] == [SERVICES, DEPLOYMENTS]


async def test_another_default_image_of_the_operator_reaches_those_who_have_none_of_their_own() -> None:
    """TB-02: as after a restart with another flag."""
    server = Server()
    settle(server, request())
    assert [type(step) for step in decide(request(), server.found(), image="new:1").steps] == [ChildUpdate]
    settle(server, request(image="own:1"))
    assert decide(request(image="own:1"), server.found(), image="new:1").steps == ()


@pytest.mark.parametrize("allowed", [("ClusterIP",), ("NodePort",)])
async def test_a_service_type_that_the_operator_does_not_allow_becomes_cluster_ip(allowed: tuple[str, ...]) -> None:
    """A job may not bring its author a load balancer that its author may not create. Existing ones are changed, too."""
    server, wanted = Server(), request(service_type=ServiceType.LOAD_BALANCER)
    settle(server, wanted)
    decided = plan(TFJOBS, JOB, wanted, server.found(), IMAGE, service_types=allowed)
    (change,) = decided.steps
    assert isinstance(change, ChildUpdate)
    assert change.patch["spec"] == {"type": "ClusterIP"}
    (warning,) = decided.warnings
    assert warning.reason == "ServiceTypeNotAllowed"
    assert "does not allow serviceType LoadBalancer (--tensorboard-service-types); ClusterIP is used" in warning.message
    server.take(decided)
    assert plan(TFJOBS, JOB, wanted, server.found(), IMAGE, service_types=allowed).steps == ()


def test_its_children_go_with_the_job_look_like_no_replica_and_may_do_no_more_than_read_and_serve() -> None:
    """TB-08, TB-09, TB-10: they have none of the labels by which controllers, SDKs or scripts find a job's pods.

    No token, no privileges, and of root's capabilities only that to read the files of others.
    """
    deployment, service = (step.body for step in decide(request(), BoardChildren()).steps if isinstance(step, Creation))
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "job-uid"}
    for body in (deployment, service):
        assert body["metadata"]["ownerReferences"] == [owner | {"controller": True, "blockOwnerDeletion": True}]
        labels = body["metadata"]["labels"]
        assert parse_labels(SELECTOR).matches(labels)
        assert not parse_labels(CHILD_SELECTOR).matches(labels)
        assert not {"job-name", "tf-job-name", "group-name", "training.kubeflow.org/job-name"} & labels.keys()
    assert deployment["spec"]["template"]["metadata"]["labels"] == deployment["metadata"]["labels"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["command"] == COMMAND
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ({"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}, "exceeded quota: pods"),
        ({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}, "ProgressDeadlineExceeded"),
        ({"type": "Progressing", "status": "True", "message": "all is well"}, ""),
        ({"type": "Available", "status": "False", "message": "it begins"}, ""),
    ],
)
async def test_it_is_reported_why_no_pod_comes_up(condition: dict[str, str], told: str) -> None:
    """TB-11: on the job, where people look, in the Deployment's words."""
    server = Server()
    settle(server, request())
    status = f"{path_of(DEPLOYMENTS.kind, 'mnist-tensorboard')}/status"
    server.ask("PATCH", status, {"status": {"conditions": [condition]}})
    decided = decide(request(), server.found())
    assert decided.steps == ()
    text = f"deployment mnist-tensorboard is not progressing: {told}"
    assert [(each.reason, each.message) for each in decided.warnings] == ([("FailedTensorBoard", text)] if told else [])
