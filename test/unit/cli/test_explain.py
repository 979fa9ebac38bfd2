"""`kubectl tfjob explain` reads what it may, and says what it may not; the causes themselves are tested in `diagnosis/`."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import yaml

from hack.objects import owned_by
from tfjob_operator.cli.collecting import MAX_LAST_LINES, MAX_LOGS, collect
from tfjob_operator.cli.diagnosis.facts import Absent, Evidence, LastLine
from unit.cli import training_operator
from unit.cli.conftest import Server, items, job, operator_deployment, operator_lease
from unit.cli.conftest import pod as a_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CORE = "/api/v1/namespaces/team"
MNIST = "/apis/kubeflow.org/v1/namespaces/team/tfjobs/mnist"
TEMPLATE = {"spec": {"containers": [{"name": "tensorflow", "image": "tf:1"}]}}
SPEC = {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": TEMPLATE}}}
SELECTOR = "tf_job_name%3Dmnist%2Ckubeflow.org"
FORBIDDEN = {"message": "no", "reason": "Forbidden"}


WAITING = {"nodeName": "", "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
PLACED = WAITING | {"nodeName": "n"}
FOREIGN, OF_BATCH = owned_by("mnist", "other"), owned_by("mnist", "b1")
pod = partial(a_pod, phase="Pending", spec=WAITING)
"""A pod with a volume, which waits."""


def collected(server: Server, given: dict[str, Any] | None = None) -> Evidence:
    server.answers(MNIST, given or server_job())
    with server.session() as session:
        return collect(session, "mnist", NOW)


def server_job() -> dict[str, Any]:
    fields = [{"manager": "kueue", "fieldsV1": {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}}]
    return job("mnist", "Created", spec=SPEC, creationTimestamp="2025-12-31T23:00:00Z", managedFields=fields)


def test_what_is_there_is_read_and_what_is_not_is_noted(server: Server) -> None:
    pages = items(pod("mnist-worker-0"), **{"continue": "2"}), items(pod("mnist-worker-1", meta=FOREIGN))
    server.answers(f"{CORE}/pods", *pages)
    server.answers(f"{CORE}/persistentvolumeclaims", items({"metadata": {"name": "else"}}))
    server.answers("/apis/coordination.k8s.io/v1/leases", items())
    about = {"metadata": {"name": "e"}, "reason": "r", "involvedObject": {"kind": "Pod", "name": "mnist-worker-0"}}
    elsewhere = about | {"involvedObject": {"kind": "Pod", "name": "mnist2-worker-0"}}
    server.answers(f"{CORE}/events", items(about, elsewhere, {"metadata": 5}))
    found = collected(server)
    assert [each.metadata.name for each in found.pods] == ["mnist-worker-0"]
    assert [each.involved_object.name for each in found.events] == ["mnist-worker-0"]
    assert list(found.absent) == [Absent("Lease", "tf-operator"), Absent("PersistentVolumeClaim", "data")]
    assert found.created_at == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert found.suspended_by == "kueue"
    assert found.forbidden == []


@pytest.mark.parametrize("code", [200, 403])
def test_storage_classes_are_read_while_a_claim_waits_for_one(server: Server, code: int) -> None:
    """Few users may list them: it is not said that they were not read, since the claim is explained without them."""
    path = "/apis/storage.k8s.io/v1/storageclasses"
    server.answers(path, items({"metadata": {"name": "standard"}}) if code == 200 else FORBIDDEN, code=code)
    server.answers(f"{CORE}/pods", items(pod("mnist-worker-0")))
    claim: dict[str, Any] = {
        "metadata": {"name": "data"},
        "status": {"phase": "Bound"},
        "spec": {"storageClassName": "a"},
    }
    server.answers(f"{CORE}/persistentvolumeclaims", items(claim))
    assert collected(server).storage_classes is None
    claim["status"]["phase"] = "Pending"
    server.answers(f"{CORE}/persistentvolumeclaims", items(claim))
    found = collected(server)
    assert (
        found.storage_classes is None if code == 403 else [each.metadata.name for each in found.storage_classes or ()]
    )
    assert found.forbidden == []


def test_nodes_are_read_one_by_one_and_those_of_the_jobs_pods_alone(server: Server) -> None:
    """In a large cluster all of them are expensive, and why a pod has none the scheduler says."""
    server.answers(f"{CORE}/pods", items(pod("mnist-worker-0", spec=PLACED)))
    server.answers("/api/v1/nodes/n", {"metadata": {"name": "n"}})
    found = collected(server)
    assert [each.metadata.name for each in found.nodes or ()] == ["n"]
    assert not [path for _, path, *_ in server.asked if path.startswith(("/api/v1/nodes?", "/api/v1/pods"))]


def test_a_node_with_an_impossible_name_is_not_asked_for(server: Server) -> None:
    server.answers(f"{CORE}/pods", items(pod("mnist-worker-0", spec=PLACED | {"nodeName": "a/../b"})))
    assert collected(server).nodes == []


@pytest.mark.parametrize(("answer", "unmatched"), [((200, items()), ["pool=h200"]), ((200, items({"metadata": {}})), []),
                                                   ((403, {}), [])])  # fmt: skip
def test_one_node_is_asked_for_with_the_labels_of_a_node_selector(
    server: Server, answer: tuple[int, Any], unmatched: list[str]
) -> None:
    """Who may not list nodes is told nothing of it: it only decides about the order of advice."""
    waiting = pod("mnist-worker-0")
    waiting["spec"] = {"nodeSelector": {"pool": "h200"}}
    server.answers(f"{CORE}/pods", items(waiting))
    server.answers("/api/v1/nodes", answer[1], code=answer[0])
    found = collected(server)
    assert (list(found.unmatched), found.forbidden) == (unmatched, [])
    (asked,) = [path for _, path, *_ in server.asked if path.startswith("/api/v1/nodes")]
    assert asked == "/api/v1/nodes?labelSelector=pool%3Dh200&limit=1"


def test_the_log_of_the_pod_whose_failure_ended_the_job_is_read_first(server: Server) -> None:
    """Only some logs are read, and this one decides the first line."""
    ended = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 1}}}]
    pods = [pod(f"mnist-worker-{i}", phase="Failed", containerStatuses=ended) for i in range(6)]
    failed = job("mnist", "Failed")
    failed["status"]["begun"] = {"ending": {"type": "Failed", "failure": {"podName": "mnist-worker-5", "exitCode": 1}}}
    server.answers(f"{CORE}/pods", items(*pods))
    for each in pods:
        server.answers(f"{CORE}/pods/{each['metadata']['name']}/log", b"ValueError: x")
    assert next(iter(collected(server, failed).logs)) == ("mnist-worker-5", "tensorflow")


@pytest.mark.parametrize(("phase", "asked"), [("Succeeded", 1), ("Running", 0)])
def test_of_a_job_that_succeeded_the_log_of_the_replica_that_decided_is_read(
    server: Server, phase: str, asked: int
) -> None:
    ended = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}}]
    pods = [pod(f"mnist-worker-{i}", phase=phase, containerStatuses=ended) for i in range(3)]
    server.answers(f"{CORE}/pods", items(*pods))
    server.answers(f"{CORE}/pods/mnist-worker-0/log", b"done\n")
    assert len(collected(server, job("mnist", "Succeeded")).logs) == asked
    assert sum("/log?" in path for _, path, *_ in server.asked) == asked


def test_the_words_of_a_kubelet_about_a_log_that_is_gone_are_not_the_log(server: Server) -> None:
    """It answers with 200 if the runtime has removed the container, as of a pod that is terminating."""
    ended = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 1}}}]
    server.answers(f"{CORE}/pods", items(pod("mnist-worker-0", phase="Failed", containerStatuses=ended)))
    server.answers(f"{CORE}/pods/mnist-worker-0/log", b"unable to retrieve container logs for containerd://a98d1e1e")
    assert not any(collected(server, job("mnist", "Failed")).logs.values())


def test_of_failed_containers_the_end_of_the_log_is_read(server: Server) -> None:
    """If a container was started again, that of its earlier run; only for some containers; one without a log is left out."""
    ended = {"terminated": {"exitCode": 1}}
    again = [{"name": "tensorflow", "state": {"running": {}}, "lastState": ended}]
    pods = [pod(f"mnist-worker-{i}", spec=PLACED, containerStatuses=again) for i in range(6)]
    pods[1]["status"]["containerStatuses"] = [{"name": "tensorflow", "state": ended}]
    server.answers(f"{CORE}/pods", items(*pods))
    server.answers(f"{CORE}/pods/mnist-worker-0/log", {"message": "previous terminated container not found"}, code=400)
    for each in pods[1:]:
        server.answers(f"{CORE}/pods/{each['metadata']['name']}/log", b"Traceback\nValueError: \xff")
    found = collected(server)
    assert len(found.logs) == MAX_LOGS
    assert found.logs["mnist-worker-1", "tensorflow"] == "Traceback\nValueError: \N{REPLACEMENT CHARACTER}"
    asked = [path for _, path, *_ in server.asked if "/log?" in path]
    assert ["previous=true" in path for path in asked] == [False, True, True, True]


@pytest.mark.parametrize("is_native", [False, True])
def test_the_log_of_an_init_container_for_which_a_pod_waits_is_read(server: Server, is_native: bool) -> None:
    """Native sidecars run beside the training, and keep no pod waiting."""
    waits = {"state": {"waiting": {"reason": "PodInitializing"}}, "name": "tensorflow"}
    started = {"name": "wait-for-data", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    one = pod("mnist-worker-0", spec=PLACED, containerStatuses=[waits], initContainerStatuses=[started])
    one["spec"]["initContainers"] = [{"name": "wait-for-data"} | ({"restartPolicy": "Always"} if is_native else {})]
    server.answers(f"{CORE}/pods", items(one))
    server.answers(f"{CORE}/pods/mnist-worker-0/log", b"waiting for /data/ready\n")
    logs = collected(server).logs
    assert logs == ({} if is_native else {("mnist-worker-0", "wait-for-data"): "waiting for /data/ready\n"})
    assert not any("previous" in path for _, path, *_ in server.asked)


def test_the_log_of_the_replica_that_ended_first_is_read(server: Server) -> None:
    """All others may have ended as a consequence: only some logs are read."""
    pods = []
    for index in range(6):
        ended = {"exitCode": 134, "finishedAt": f"2026-09-12T23:4{6 - index}:00Z"}
        statuses = [{"name": "tensorflow", "state": {"terminated": ended}}]
        pods.append(pod(f"mnist-worker-{index}", spec=PLACED, containerStatuses=statuses))
        server.answers(f"{CORE}/pods/mnist-worker-{index}/log", b"Aborted")
    server.answers(f"{CORE}/pods", items(*pods))
    assert list(collected(server).logs) == [(f"mnist-worker-{index}", "tensorflow") for index in (5, 4, 3)]


def _running(server: Server, count: int) -> None:
    """Workers that have run for an hour, and a parameter server; the log of each ends with a line of 23:30."""
    state = {"running": {"startedAt": "2025-12-31T23:00:00Z"}}
    pods = [
        pod(name, phase="Running", spec=PLACED, containerStatuses=[{"name": "tensorflow", "state": state}])
        for name in ("mnist-ps-0", *(f"mnist-worker-{index}" for index in range(count)))
    ]
    pods[0]["metadata"]["labels"] = {"training.kubeflow.org/replica-type": "ps"}
    server.answers(f"{CORE}/pods", items(*pods))
    for each in pods[1:]:
        server.answers(
            f"{CORE}/pods/{each['metadata']['name']}/log",
            b"2025-12-31T23:29:00Z epoch 2\n2025-12-31T23:30:00.5Z epoch 3\n",
        )


def test_of_running_replicas_the_last_lines_are_read_and_not_of_parameter_servers(server: Server) -> None:
    """Of ten at most, with one request each; a parameter server logs nothing while it serves."""
    _running(server, 12)
    found = collected(server)
    assert len(found.last_lines) == MAX_LAST_LINES
    before, at = datetime(2025, 12, 31, 23, 29, tzinfo=UTC), datetime(2025, 12, 31, 23, 30, 0, 500_000, UTC)
    assert found.last_lines["mnist-worker-0"] == LastLine(at, "epoch 3", "epoch 2\nepoch 3", times=(before, at))
    asked = [path for _, path, *_ in server.asked if "/log?" in path]
    assert len(asked) == MAX_LAST_LINES
    assert all("tailLines=200" in path and "timestamps=true" in path and "-ps-" not in path for path in asked)


@pytest.mark.parametrize(
    ("option", "silent"), [((), True), (("--silent-after=0",), False), (("--silent-after=99999h",), False)]
)
def test_a_replica_that_has_written_nothing_for_long_is_reported(
    server: Server, option: tuple[str, ...], silent: bool
) -> None:
    server.answers(MNIST, server_job())
    _running(server, 1)
    result = server.run("explain", "mnist", *option)
    assert ("no log line for" in result.output, "epoch 3" in result.output) == (silent, silent)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_place_of_a_waiting_job_in_its_queue_is_printed_where_kueue_serves_it(server: Server, version: str) -> None:
    waiting = server_job()
    waiting["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    waiting["spec"] = SPEC | {"runPolicy": {"suspend": True}}
    server.answers(MNIST, waiting)
    at = (datetime.now(UTC) - timedelta(minutes=20)).isoformat()
    meta = {"name": "tfjob-mnist-1a2b3", "creationTimestamp": at, **owned_by("mnist")}
    group, visibility = f"kueue.x-k8s.io/{version}", f"visibility.kueue.x-k8s.io/{version}"
    server.answers("/apis/kueue.x-k8s.io", {"preferredVersion": {"version": version, "groupVersion": group}})
    server.answers(f"/apis/{group}/namespaces/team/workloads", items({"metadata": meta, "spec": {"queueName": "q"}}))
    place = "queue q: position 3, 8 in its ClusterQueue, waiting for 20m"
    assert "position" not in server.run("explain", "mnist").stdout
    server.answers("/apis/visibility.kueue.x-k8s.io", {"preferredVersion": {"groupVersion": visibility}})
    where = f"/apis/{visibility}/namespaces/team/localqueues/q/pendingworkloads"
    server.answers(where, FORBIDDEN, code=403)
    assert not re.search("position|pendingworkloads", server.run("explain", "mnist").stdout)
    found = {"metadata": {"name": "tfjob-mnist-1a2b3"}, "positionInLocalQueue": 2, "positionInClusterQueue": 7}
    server.answers(where, items({"metadata": {"name": "tfjob-other"}}, found))
    assert place in server.run("explain", "mnist").stdout


def test_commands_name_the_context_that_was_asked(server: Server) -> None:
    """Pasted without it they would go to the cluster of the current context."""
    suspended = server_job()
    suspended["spec"] = SPEC | {"runPolicy": {"suspend": True}}
    server.answers(MNIST, suspended)
    result = server.run("explain", "--context=here", "mnist")
    assert f"kubectl tfjob --context=here {server.flags} resume mnist -n team" in result.output


def test_a_node_that_does_not_hand_out_a_log_keeps_nothing_else_from_being_told(server: Server) -> None:
    """The API server answers 500 for a kubelet that is gone, which is when people ask."""
    ended = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 1}}}]
    server.answers(f"{CORE}/pods", items(pod("mnist-worker-0", spec=PLACED, containerStatuses=ended)))
    lost = 'Get "https://n:10250/containerLogs": dial tcp: lookup n: no such host'
    server.answers(f"{CORE}/pods/mnist-worker-0/log", {"message": lost, "reason": "InternalError"}, code=500)
    found = collected(server)
    assert found.logs == {}
    assert len(found.pods or ()) == 1


@pytest.mark.parametrize("output", [[], ["--output=json"], ["--output=yaml"]])
def test_what_may_not_be_read_is_named_and_the_rest_is_told(server: Server, output: list[str]) -> None:
    """A user of one namespace sees the likeliest cause first."""
    server.answers(MNIST, server_job())
    message = 'Back-off pulling image "tf:1": ErrImagePull: tf:1: not found'
    waiting = {"name": "tensorflow", "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}}}
    server.answers(f"{CORE}/pods", items(pod("mnist-worker-0", spec=PLACED, containerStatuses=[waiting])))
    for path in ("/api/v1/nodes/n", "/apis/coordination.k8s.io/v1/leases", f"{CORE}/persistentvolumeclaims"):
        server.answers(path, FORBIDDEN, code=403)
    result = server.run("explain", "mnist", *output)
    assert result.exit_code == 0
    if output:
        told = yaml.safe_load(result.output)  # JSON is YAML
        assert told["causes"][0]["id"].startswith("image-")
        assert told["causes"][0]["toDo"]
        assert told["stateLine"]
        assert told["unseen"].endswith("leases, nodes, persistent volume claims")
        return
    assert "[error: image-" in result.output
    assert "you have no permission to read: leases, nodes, persistent volume claims" in " ".join(result.output.split())


def test_events_beyond_the_first_pages_are_read_and_those_of_others_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than can be read the diagnosis says that it knows only a part."""
    server.answers(MNIST, job())
    mine, other = ({"metadata": {}, "involvedObject": {"name": name}} for name in ("mnist-worker-0", "noise"))
    pages = {"items": [other] * 3, "metadata": {"continue": "more"}}, {"items": [mine], "metadata": {}}
    for most, cut in ((50_000, False), (3, True)):
        server.answers(f"{CORE}/events", *pages)
        monkeypatch.setattr("tfjob_operator.cli.collecting._MAX_EVENTS", most)
        with server.session() as session:
            found = collect(session, "mnist", NOW)
        assert (len(found.events), found.events_cut) == (0 if cut else 1, cut)


def alpha(*entries: dict[str, Any], **status: Any) -> dict[str, Any]:
    made = job(spec={"replicaSpecs": list(entries)})
    made["status"] = {"phase": "Running", "runtimeId": "x7ab", **status} if status else {}
    return made


def test_of_a_job_of_the_alpha_dialect_the_jobs_of_its_replicas_are_read(server: Server) -> None:
    server.answers(MNIST, alpha({"template": TEMPLATE}, state="Running"))
    mine = {"metadata": {"name": "master-x7ab-0", "uid": "b1", **owned_by("mnist")}}
    server.answers(f"/apis/batch/v1/namespaces/team/jobs?limit=500&labelSelector={SELECTOR}", items(mine))
    pods = items(pod("master-x7ab-0-a", meta=OF_BATCH), pod("master-x7ab-0-b", meta=FOREIGN))
    server.answers(f"{CORE}/pods?limit=500&labelSelector={SELECTOR}", pods)
    event = {"metadata": {}, "involvedObject": {"kind": "Job", "name": "master-x7ab-0"}}
    server.answers(f"{CORE}/events", items(event, {"metadata": {}, "involvedObject": {"name": "master-y7ab-0"}}))
    with server.session() as session:
        found = collect(session, "mnist", NOW)
    assert found.alpha is not None
    assert [each.metadata.name for each in found.alpha.batch_jobs or ()] == ["master-x7ab-0"]
    assert [each.metadata.name for each in found.pods] == ["master-x7ab-0-a"]
    assert [each.involved_object.name for each in found.events] == ["master-x7ab-0"]


def test_without_the_right_to_jobs_all_pods_with_the_labels_count(server: Server) -> None:
    server.answers(MNIST, alpha({"template": TEMPLATE}, state="Running"))
    server.answers("/apis/batch/v1/namespaces/team/jobs", FORBIDDEN, code=403)
    server.answers(f"{CORE}/pods?limit=500&labelSelector={SELECTOR}", items(pod("master-x7ab-0-a", meta=OF_BATCH)))
    with server.session() as session:
        found = collect(session, "mnist", NOW)
    assert [each.metadata.name for each in found.pods] == ["master-x7ab-0-a"]
    assert "jobs" in found.forbidden


def test_a_form_that_the_operator_does_not_serve_is_explained(server: Server) -> None:
    """The job has a status of v1, which says so: then it is no job of the alpha dialect."""
    made = alpha({"template": TEMPLATE})
    said = "TFJob team/mnist has failed because the spec is invalid: spec.replicaSpecs: Forbidden: v1alpha1 format"
    made["status"] = {
        "conditions": [{"type": "Failed", "status": "True", "reason": "InvalidTFJobSpec", "message": said}]
    }
    server.answers(MNIST, made)
    result = server.run("explain", "mnist")
    assert "[error: alpha-form]" in result.output


RENEWED, STALE = "2025-12-31T23:59:58.000000Z", "2025-12-31T22:00:00.000000Z"
LEASES, DEPLOYMENTS = "/apis/coordination.k8s.io/v1/leases", "/apis/apps/v1/deployments"


KUBEFLOW, TEAM_B = operator_lease("kubeflow", STALE), operator_lease("b", RENEWED)


@pytest.mark.parametrize(
    ("leases", "deployments", "expected"),
    [
        ([TEAM_B], (), ["b"]),
        ([TEAM_B, KUBEFLOW], (), ["b", "kubeflow"]),
        ([TEAM_B, KUBEFLOW], [operator_deployment("b", "--namespace=$(N)")], ["kubeflow", "kubeflow"]),
        ([KUBEFLOW, operator_lease("team", RENEWED)], (), ["team"]),
    ],
)
def test_the_lease_of_an_operator_that_serves_another_namespace_is_not_taken_for_that_of_this_one(
    server: Server, leases: list[Any], deployments: Any, expected: list[str]
) -> None:
    """An operator of all namespaces was uninstalled, and its Lease stays."""
    server.answers(LEASES, items(*leases))
    server.answers(DEPLOYMENTS, items(*deployments))
    found = collected(server)
    assert [each.metadata.namespace for each in (found.lease, found.stale_lease) if each is not None] == expected


def test_an_operator_whose_image_cannot_be_pulled_is_installed(server: Server) -> None:
    """It has never held its Lease."""
    server.answers(MNIST, job(spec=SPEC) | {"status": {}})
    server.answers(LEASES, items())
    server.answers(DEPLOYMENTS, items(operator_deployment("kubeflow")))
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    stuck = pod("tf-job-operator-a", containerStatuses=[{"name": "operator", "state": state}])
    server.answers("/api/v1/pods", items(stuck))
    shown = server.run("explain", "mnist").output
    assert "1. The operator is installed, but 0 of 2 pods are ready [error: operator-not-ready]" in shown
    assert "pod tf-job-operator-a waiting: ImagePullBackOff: Back-off pulling image" in shown


@pytest.mark.parametrize(
    ("moved", "bound", "first"),
    [
        (False, True, "1. Two operators serve the job: tfjob-operator kubeflow/tf-job-operator and "),
        (True, True, "1. Two operators serve the job: "),
        (True, False, ""),
        (False, False, ""),
    ],
)
def test_two_operators_of_one_job_are_the_first_cause(server: Server, moved: bool, bound: bool, first: str) -> None:
    """In a moved namespace, training-operator can write only with the ClusterRoleBinding that its plan has deleted.

    A Deployment whose account no administrator has bound may be that of a tenant, who only uses the label.
    """
    server.answers(MNIST, job("mnist", "Running", spec=SPEC))
    server.answers(LEASES, items(operator_lease("kubeflow", datetime.now(UTC).isoformat())))
    server.answers(DEPLOYMENTS, items(operator_deployment("kubeflow", readyReplicas=2)))
    server.answers(training_operator.PEERS, items(training_operator.deployment()))
    server.answers(training_operator.BINDINGS, items(*([training_operator.binding()] if bound else [])))
    labels = {"tfjob.kubeflow.org/operator": "tfjob-operator"} if moved else {}
    server.answers("/api/v1/namespaces/team", {"kind": "Namespace", "metadata": {"name": "team", "labels": labels}})
    shown = server.run("explain", "mnist").output
    assert first in shown
    assert ("two-operators" in shown) is bool(first)


def test_the_operator_of_the_own_namespace_is_read_without_rights_for_others(server: Server) -> None:
    """Its commands can be run by such a user; an own Lease without a Deployment proves nothing, and is ignored."""
    server.answers(MNIST, job(spec=SPEC) | {"status": {}})
    for path in (LEASES, DEPLOYMENTS):
        server.answers(path, FORBIDDEN, code=403)
    server.answers("/apis/coordination.k8s.io/v1/namespaces/team/leases", items(operator_lease("team", STALE)))
    assert "1. " not in server.run("explain", "mnist").output
    stopped = operator_deployment("team", "--namespace=team")
    stopped["spec"]["replicas"] = 0
    server.answers("/apis/apps/v1/namespaces/team/deployments", items(stopped))
    shown = server.run("explain", "mnist").output
    assert "1. The operator is stopped: its Deployment team/tf-job-operator is scaled to 0" in shown
    assert "   > Start it:\n" in shown
    assert " -n team scale deployment tf-job-operator --replicas=2\n" in shown


def test_a_command_that_the_user_may_not_run_is_for_the_administrator(server: Server) -> None:
    """Who may not list Leases has no rights in the operator's namespace; a new job waits for its status meanwhile."""
    made = job(spec=SPEC) | {"status": {}}
    made["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(seconds=20)).isoformat()
    server.answers(MNIST, made)
    server.answers(LEASES, FORBIDDEN, code=403)
    shown = server.run("explain", "mnist").output
    assert "1. No operator has reconciled the job yet (2" in shown
    assert "   > Ask your cluster administrator to run:\n     kubectl" in shown
