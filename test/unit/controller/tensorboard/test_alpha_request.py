"""TensorBoards of the alpha dialect."""

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import alpha
from tfjob_operator.api.v1.tensorboard import ServiceType
from tfjob_operator.api.v1.types import JobMeta, TFJob
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus
from tfjob_operator.controller.tensorboard import request
from tfjob_operator.controller.tensorboard.dialects import TFJOB, alpha_dialect
from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged

REPLICAS = [alpha.entry()]
AZURE = {
    "logDir": "/tmp/tensorflow/training_summaries",
    "serviceType": "LoadBalancer",
    "volumes": [{"name": "azurefile", "azureFile": {"secretName": "azure-secret", "shareName": "tensorflow"}}],
    "volumeMounts": [{"mountPath": "/tmp/tensorflow", "name": "azurefile"}],
}
"""As a document of v1alpha1 has it."""
META = JobMeta(name="example", namespace="ns", uid="job-uid")


def read(
    spec: dict[str, Any], api: Dialect = TENSORFLOW, runtime_id: str = "pj6i"
) -> TensorBoardRequest | Unmanaged | None:
    dialect = alpha_dialect(api)
    found = alpha.job(spec, name="example", status=AlphaStatus(phase="Running", runtime_id=runtime_id))
    wanted = dialect.request_of(found)
    assert dialect.may_have_request(found) or not isinstance(wanted, TensorBoardRequest)
    return wanted


@pytest.mark.parametrize("api", [KUBEFLOW, TENSORFLOW], ids=lambda api: api.label)
def test_the_tensorboard_of_a_document_of_the_time_has_the_name_and_the_labels_of_the_time(api: Dialect) -> None:
    """TB-17: and runs the image of the job, or that of the time; the letter case of keys is free where it was."""
    found = read({"replicaSpecs": REPLICAS, "tensorboard": AZURE, "tfImage": "tf:1"}, api)
    assert isinstance(found, TensorBoardRequest)
    assert found.name == "tensorboard-pj6i"
    assert found.labels == {api.label: "", "app": "tensorboard", "runtime_id": "pj6i", "tf_job_name": "example"}
    board = found.board
    assert (board.log_dir, board.service_type) == (AZURE["logDir"], ServiceType.LOAD_BALANCER)
    assert (board.volumes, board.volume_mounts) == (tuple(AZURE["volumes"]), tuple(AZURE["volumeMounts"]))
    assert board.image == "tf:1"
    if api is TENSORFLOW:  # the table of that document writes TensorBoard and LogDir
        found = read({"ReplicaSpecs": REPLICAS, "TensorBoard": {"LogDir": "/logs"}})
        assert isinstance(found, TensorBoardRequest)
        assert (found.board.log_dir, found.board.image) == ("/logs", "tensorflow/tensorflow:1.3.0")


@pytest.mark.parametrize(
    ("more", "runtime_id", "wanted"),
    [
        ({"tensorboard": AZURE}, "", Unmanaged()),
        ({"tensorboard": AZURE, "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "pj6i", Unmanaged()),
        ({}, "pj6i", None),
        ({"tensorboard": None}, "pj6i", None),
    ],
)
def test_a_job_without_the_field_or_its_runtime_id_or_of_another_controller_gets_none(
    more: dict[str, Any], runtime_id: str, wanted: Unmanaged | None
) -> None:
    """TB-01, TB-05, TB-17: the RuntimeId is part of the name."""
    assert read({"replicaSpecs": REPLICAS} | more, runtime_id=runtime_id) == wanted


def test_mistakes_are_reported_in_the_words_of_the_dialect() -> None:
    """TB-03: and the job itself is not affected by them."""
    found = read({"replicaSpecs": REPLICAS, "tensorboard": {"serviceType": "ExternalName"}})
    assert isinstance(found, Unmanaged)
    assert "spec.tensorboard.logDir: Required value" in found.mistakes
    assert (
        'spec.tensorboard.serviceType: Unsupported value: supported values: "ClusterIP", "NodePort", "LoadBalancer"'
        in found.mistakes
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"replicaSpecs": REPLICAS, "tensorboard": AZURE},
        {"replicaSpecs": REPLICAS, "tensorBoard": AZURE},
        {"tfReplicaSpecs": {}, "tensorBoard": AZURE},
        {"tfReplicaSpecs": {}, "tensorboard": AZURE},
        {"replicaSpecs": REPLICAS, "tfReplicaSpecs": {}, "tensorBoard": AZURE, "tensorboard": AZURE},
        {"tensorBoard": AZURE, "tensorboard": AZURE},
    ],
)
def test_of_one_job_of_kubeflow_org_one_dialect_at_most_has_a_word(spec: dict[str, Any]) -> None:
    """TB-17: otherwise one would delete for ever what the other makes."""
    alpha = read(spec, KUBEFLOW)
    v1 = request.request_of(TFJob(META, msgspec.Raw(msgspec.json.encode(spec))))
    assert Unmanaged() in {alpha if isinstance(alpha, Unmanaged) else None, v1 if isinstance(v1, Unmanaged) else None}


VALUES = st.none() | st.text(max_size=5) | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)


@given(VALUES)
def test_whoever_has_the_field_is_found_without_decoding(value: Any) -> None:
    """TB-01: no job that wants a TensorBoard is overlooked."""
    spec = msgspec.Raw(msgspec.json.encode({"a": 1, "tensorBoard": value}))
    assert TFJOB.may_have_request(TFJob(META, spec))
    assert not TFJOB.may_have_request(TFJob(META, msgspec.Raw(msgspec.json.encode({"tfReplicaSpecs": {}}))))
    assert alpha_dialect(TENSORFLOW).may_have_request(AlphaJob(META, spec))


@pytest.mark.parametrize("dialect", [TFJOB, alpha_dialect(TENSORFLOW)])
def test_the_field_is_looked_for_without_a_copy_of_the_specification(dialect: Any) -> None:
    """TB-12: at every event of every job, most of which have no TensorBoard."""
    body = msgspec.Raw(msgspec.json.encode({"args": ["x" * 1000] * 500}))
    one = TFJob(META, body) if dialect is TFJOB else AlphaJob(META, body)
    tracemalloc.start()
    try:
        assert not dialect.may_have_request(one)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
