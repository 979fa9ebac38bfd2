"""What the children of a job in the alpha dialect look like, word for word as the documents of v1alpha1 show them."""

import ast
import json
import sys
import types
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.alpha import UID, entry, good, job, spec, template
from tfjob_operator.api.v1alpha1.constants import DIALECTS, KUBEFLOW, TENSORFLOW, Dialect
from tfjob_operator.controller.alpha.alpha_plan import keys_of
from tfjob_operator.controller.alpha.batch_jobs import replica_key
from tfjob_operator.controller.alpha.build import SCRIPT, JobBuilder, build_config_map, build_service
from tfjob_operator.controller.config.values import Accelerator, HostVolume, Variable

SERVED = spec(entry("MASTER"), entry("WORKER", 1, tfPort=4000), entry("PS", 2), RuntimeId="76no")


def body(given: dict[str, Any], kind: str = "MASTER", index: int = 0, dialect: Dialect = KUBEFLOW) -> dict[str, Any]:
    builder = JobBuilder(dialect, job(given), good(given, dialect), "76no")
    return builder.build(replica_key("76no", kind, index))


def container(built: dict[str, Any], name: str = "tensorflow") -> dict[str, Any]:
    found = [each for each in built["spec"]["template"]["spec"]["containers"] if each["name"] == name]
    assert len(found) == 1
    return dict(found[0])


def variable(built: dict[str, Any], name: str = "TF_CONFIG") -> str:
    """The value of a variable of the training container, which must be set once."""
    found = [each["value"] for each in container(built).get("env", []) if each["name"] == name]
    assert len(found) == 1
    return str(found[0])


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)
def test_a_replica_is_a_job_of_one_pod_that_is_never_given_up(dialect: Dialect) -> None:
    """The Job and its pod have the labels of v1alpha1 and those by which today's tools find pods."""
    built = body(SERVED, "WORKER", dialect=dialect)
    labels = {
        dialect.label: "",
        "job_type": "WORKER",
        "runtime_id": "76no",
        "tf_job_name": "example-job",
        "task_index": "0",
        "training.kubeflow.org/operator-name": "tfjob-alpha-controller",
        "training.kubeflow.org/job-name": "example-job",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    owner = {
        "apiVersion": "kubeflow.org/v1" if dialect is KUBEFLOW else "tensorflow.org/v1alpha1",
        "kind": "TFJob" if dialect is KUBEFLOW else "TfJob",
        "name": "example-job",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert (built["apiVersion"], built["kind"]) == ("batch/v1", "Job")
    assert built["metadata"] == {"name": "worker-76no-0", "labels": labels, "ownerReferences": [owner]}
    assert {name: built["spec"][name] for name in ("completions", "parallelism", "backoffLimit")} == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 2**31 - 1,
    }
    assert built["spec"]["template"]["metadata"] == {"labels": labels}
    role = {"training.kubeflow.org/job-role": "master"}
    assert role.items() <= body(SERVED, dialect=dialect)["metadata"]["labels"].items(), "by which people find the chief"


def test_tf_config_is_that_of_the_time() -> None:
    """Bare names of services, types in alphabetical order; the whole text is API."""
    assert variable(body(SERVED, "PS", 1)) == (
        '{"cluster":{"master":["master-76no-0:2222"],"ps":["ps-76no-0:2222","ps-76no-1:2222"],'
        '"worker":["worker-76no-0:4000"]},"task":{"type":"ps","index":1},"environment":"cloud"}'
    )
    assert json.loads(variable(body(spec())))["cluster"] == {"master": ["master-76no-0:2222"]}, "also when it is alone"


def test_only_the_training_container_gets_tf_config_and_not_over_the_authors_own() -> None:
    own = [{"name": "TF_CONFIG", "value": "mine"}, {"name": "A", "value": "a"}]
    containers = [{"name": "tensorflow", "image": "i", "env": own}, {"name": "sidecar", "image": "s"}]
    built = body(spec(entry(template=template(containers=containers))))
    assert variable(built) == "mine"
    assert "env" not in container(built, "sidecar")


def test_what_the_author_wrote_into_a_template_reaches_the_pod() -> None:
    """Except for labels that only the API server may set: it refuses a template with other values."""
    labels = {
        "app": "mine",
        "job_type": "other",
        "job-name": "x",
        "controller-uid": "x",
        "batch.kubernetes.io/job-name": "x",
    }
    meta = {"labels": labels, "annotations": {"a": "b"}, "name": "ignored"}
    built = body(
        spec(entry(template={"metadata": meta, **template(nodeSelector={"gpu": "yes"}, restartPolicy="Never")}))
    )
    pod = built["spec"]["template"]
    assert pod["metadata"]["annotations"] == {"a": "b"}
    assert pod["metadata"]["labels"]["app"] == "mine"
    assert pod["metadata"]["labels"]["job_type"] == "MASTER"
    assert not {"job-name", "controller-uid", "batch.kubernetes.io/job-name"} & pod["metadata"]["labels"].keys()
    assert pod["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert pod["spec"]["restartPolicy"] == "Never"
    for policy in ("OnFailure", "Always", None):
        pod = body(spec(entry(template=template(restartPolicy=policy)), schedulerName="kube-batch"))["spec"]["template"]
        assert (pod["spec"]["restartPolicy"], pod["spec"]["schedulerName"]) == ("OnFailure", "kube-batch")
    cases = {"ReplicaSpecs": [{"Template": {"Spec": {"Containers": [{"Name": "tensorflow", "Image": "i:1"}]}}}]}
    assert container(body(cases, dialect=TENSORFLOW))["image"] == "i:1"


def test_parameter_servers_of_their_own_run_the_program_with_the_documented_command_line() -> None:
    built = body(SERVED | {"tfImage": "tf:2"}, "PS", 1)
    server = container(built)
    assert server["image"] == "tf:2"
    assert server["command"] == [
        "python",
        "/ps-server/grpc_tensorflow_server.py",
        "--cluster_spec",
        "master|master-76no-0:2222,ps|ps-76no-0:2222;ps-76no-1:2222,worker|worker-76no-0:4000",
        "--job_name",
        "ps",
        "--task_id",
        "1",
    ]
    assert server["volumeMounts"] == [{"name": "ps-config-volume", "mountPath": "/ps-server"}]
    pod = built["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "ps-config-volume", "configMap": {"name": "cm-ps-76no"}}]
    assert pod["restartPolicy"] == "OnFailure"


def test_a_standard_server_that_an_earlier_operator_stored_in_the_job_is_one() -> None:
    """As `kubectl get tfjob -o yaml` printed it: the mount was stored, the volume and the command were not."""
    mounts = [{"mountPath": "/ps-server", "name": "ps-config-volume"}]
    stored = {"image": "tf:1", "name": "tensorflow", "resources": {"limits": {"cpu": 1}}, "volumeMounts": mounts}
    given = {"metadata": {"creationTimestamp": None}, "spec": {"containers": [stored], "restartPolicy": "OnFailure"}}
    built = body(spec(entry(), entry("PS", 2, template=given)), "PS", 1)
    pod = built["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    assert (server["image"], server["resources"], server["volumeMounts"]) == ("tf:1", stored["resources"], mounts)
    assert server["command"][:2] == ["python", "/ps-server/grpc_tensorflow_server.py"]
    assert pod["volumes"] == [{"name": "ps-config-volume", "configMap": {"name": "cm-ps-76no"}}]


def test_a_server_with_a_volume_of_that_name_is_its_authors() -> None:
    mounts, volumes = [{"mountPath": "/x", "name": "ps-config-volume"}], [{"name": "ps-config-volume", "emptyDir": {}}]
    containers = [{"name": "tensorflow", "image": "i", "volumeMounts": mounts}]
    built = body(spec(entry(), entry("PS", template=template(containers=containers, volumes=volumes))), "PS")
    assert "command" not in container(built)
    assert built["spec"]["template"]["spec"]["volumes"] == volumes


def test_a_template_without_a_training_container_keeps_what_it_has() -> None:
    given = {"spec": {"containers": [{"name": "logger", "image": "l:1"}], "volumes": [{"name": "v", "emptyDir": {}}]}}
    built = body(spec(entry(), entry("PS", template=given)), "PS")
    assert container(built, "logger") == {"name": "logger", "image": "l:1"}
    assert container(built)["image"] == "tensorflow/tensorflow:1.3.0"
    assert [each["name"] for each in built["spec"]["template"]["spec"]["volumes"]] == ["v", "ps-config-volume"]


def test_a_service_gives_a_replica_its_name_and_an_address() -> None:
    key = replica_key("76no", "WORKER", 0)
    built = build_service(TENSORFLOW, job().metadata, good(SERVED), "76no", key)
    assert built["metadata"]["name"] == "worker-76no-0"
    assert built["spec"] == {
        "publishNotReadyAddresses": True,
        "selector": {
            "tensorflow.org": "",
            "job_type": "WORKER",
            "runtime_id": "76no",
            "tf_job_name": "example-job",
            "task_index": "0",
        },
        "ports": [{"name": "tf-port", "port": 4000}],
    }


def test_every_service_selects_the_pod_of_its_replica_and_no_other() -> None:
    read_as = good(SERVED)
    builder = JobBuilder(KUBEFLOW, job(SERVED), read_as, "76no")
    keys = keys_of(read_as, "76no")
    first = {key.name: builder.build(key) for key in keys}
    assert {key.name: builder.build(key) for key in keys} == first, "building changes no template"
    for one in keys:
        selector = build_service(KUBEFLOW, job().metadata, read_as, "76no", one)["spec"]["selector"]
        for other in keys:
            labels = first[other.name]["spec"]["template"]["metadata"]["labels"]
            assert (selector.items() <= labels.items()) == (one == other)


@settings(deadline=None)
@given(st.text("abc019", min_size=1, max_size=30), st.integers(0, 999))
def test_names_are_labels_of_dns(runtime_id: str, index: int) -> None:
    """The name of a Service must be one, even where the RuntimeId begins with a digit."""
    for kind in ("MASTER", "WORKER", "PS"):
        name = replica_key(runtime_id, kind, index).name
        assert name[0].isalpha()
        assert name == f"{kind.lower()}-{runtime_id}-{index}"


@pytest.mark.parametrize("version", [1, 2])
def test_the_program_serves_with_tensorflow_1_and_2(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[object, str, int]] = []

    def server(cluster: object, job_name: str, task_index: int) -> object:
        served.append((cluster, job_name, task_index))
        return types.SimpleNamespace(target="grpc://here", join=lambda: None)

    fake: Any = types.ModuleType("tensorflow")
    fake.train = types.SimpleNamespace(ClusterSpec=dict)
    if version == 1:
        fake.train.Server = server
    else:
        fake.distribute = types.SimpleNamespace(Server=server)
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    built = body(SERVED, "PS", 1)
    monkeypatch.setattr(sys, "argv", container(built)["command"][1:])
    exec(compile(SCRIPT, "grpc_tensorflow_server.py", "exec"), {"__name__": "__main__"})
    hosts = {
        "master": ["master-76no-0:2222"],
        "ps": ["ps-76no-0:2222", "ps-76no-1:2222"],
        "worker": ["worker-76no-0:4000"],
    }
    assert served == [(hosts, "ps", 1)]


def test_the_program_is_text_that_python_2_reads_too() -> None:
    """Images of TensorFlow 1.3 have Python 2.7: no annotations, f-strings or keyword-only arguments."""
    tree = ast.parse(SCRIPT)
    for node in ast.walk(tree):
        assert not isinstance(node, (ast.JoinedStr, ast.AnnAssign, ast.AsyncFunctionDef, ast.NamedExpr, ast.Nonlocal))
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None
            assert not node.args.kwonlyargs
    assert SCRIPT.isascii()
    assert build_config_map(KUBEFLOW, job().metadata, "76no")["data"] == {"grpc_tensorflow_server.py": SCRIPT}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)
def test_a_replica_that_asks_for_an_accelerator_gets_what_it_needs_from_the_node(dialect: Dialect) -> None:
    """In addition to TF_CONFIG and what the user wrote; a replica that asks for no accelerator gets nothing."""
    driver = Accelerator(
        (HostVolume("lib", "/usr/lib/nvidia-384", "/usr/lib/nvidia"),), (Variable("LD_LIBRARY_PATH", "/x"),)
    )
    asking = template()
    asking["spec"]["containers"][0]["resources"] = {"requests": {"alpha.kubernetes.io/nvidia-gpu": 1}}
    given = spec(entry("MASTER", template=asking), entry("WORKER"))
    builder = JobBuilder(
        dialect, job(given), good(given, dialect), "76no", accelerators={"alpha.kubernetes.io/nvidia-gpu": driver}
    )
    master, worker = (builder.build(replica_key("76no", kind, 0)) for kind in ("MASTER", "WORKER"))
    assert master["spec"]["template"]["spec"]["volumes"] == [
        {"name": "lib", "hostPath": {"path": "/usr/lib/nvidia-384"}}
    ]
    assert container(master)["volumeMounts"] == [{"name": "lib", "mountPath": "/usr/lib/nvidia"}]
    assert [each["name"] for each in container(master)["env"]] == ["TF_CONFIG", "LD_LIBRARY_PATH"]
    assert "volumes" not in worker["spec"]["template"]["spec"]
