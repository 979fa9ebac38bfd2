"""Reading `spec.tensorBoard`."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.v1.tensorboard import InvalidTensorBoard, Reading, ServiceType, TensorBoard, read_tensor_board
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.api.v1.validation import read_spec

WORKERS = {"Worker": {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}}}
WANTED = {"logDir": "/logs"}


def read(board: Any, job: str = "mnist", **spec: Any) -> Reading:
    """Read a job with this `tensorBoard`."""
    return read_tensor_board(job, msgspec.json.encode({"tfReplicaSpecs": WORKERS, "tensorBoard": board, **spec}))


def good(board: Any) -> TensorBoard:
    """Read a TensorBoard, which must be valid."""
    found = read(board).board
    assert isinstance(found, TensorBoard), found
    return found


def mistakes(board: Any, job: str = "mnist") -> str:
    found = read(board, job).board
    assert isinstance(found, InvalidTensorBoard), found
    return found.text


def test_a_folder_of_summaries_is_all_that_must_be_said() -> None:
    """TB-02: all other fields have defaults; that of the image comes from the operator's settings."""
    assert good(WANTED) == TensorBoard("/logs", image="", service_type=ServiceType.CLUSTER_IP)


def test_all_fields_are_read_as_they_were_written() -> None:
    """TB-02: volumes and mounts go to the API server as the user wrote them."""
    volumes = [{"name": "azurefile", "azureFile": {"secretName": "azure-secret", "shareName": "tensorflow"}}]
    mounts = [{"name": "azurefile", "mountPath": "/tmp/tensorflow"}]
    board = good(
        {
            "logDir": "/tmp/tensorflow/training_summaries",
            "image": "registry.example/tensorboard:1",
            "serviceType": "LoadBalancer",
            "volumes": volumes,
            "volumeMounts": mounts,
        }
    )
    assert board == TensorBoard(
        "/tmp/tensorflow/training_summaries",
        "registry.example/tensorboard:1",
        ServiceType.LOAD_BALANCER,
        tuple(volumes),
        tuple(mounts),
    )


@pytest.mark.parametrize("spec", [{}, {"tensorBoard": None}, {"tensorboard": WANTED}])
def test_a_job_without_the_field_wants_none(spec: dict[str, Any]) -> None:
    """TB-01: null is like an absent field."""
    assert read_tensor_board("mnist", msgspec.json.encode({"tfReplicaSpecs": WORKERS} | spec)).board is None


@pytest.mark.parametrize("raw", [b"null", b"[]", b"7", b'{"tensorBoard":', b"[" * 5000, b'{"tensorBoard":' * 5000])
def test_what_is_no_specification_wants_none_and_raises_nothing(raw: bytes) -> None:
    """TB-03: the reader of the job's own specification reports what is wrong."""
    assert read_tensor_board("mnist", raw) == Reading("", None)


MISTAKES = [
    ("yes", "spec.tensorBoard: must be an object, not a string"),
    ({}, "spec.tensorBoard.logDir: Required value"),
    ({"logDir": ""}, "spec.tensorBoard.logDir: Required value"),
    ({"logDir": 5}, "spec.tensorBoard.logDir: must be a string, not a number"),
    ({"logDir": []}, "spec.tensorBoard.logDir: must be a string, not a list"),
    (WANTED | {"image": {}}, "spec.tensorBoard.image: must be a string, not an object"),
    (WANTED | {"serviceType": "ExternalName"},
        'spec.tensorBoard.serviceType: Unsupported value: supported values: "ClusterIP", "NodePort", "LoadBalancer"'),
    (WANTED | {"serviceType": 80}, "spec.tensorBoard.serviceType: must be a string, not a number"),
    (WANTED | {"volumes": {}}, "spec.tensorBoard.volumes: must be a list, not an object"),
    (WANTED | {"volumes": ["v"]}, "spec.tensorBoard.volumes[0]: must be an object, not a string"),
    (WANTED | {"volumes": [{"name": "v", "hostPath": {"path": 1}}]},
        "spec.tensorBoard.volumes[0].hostPath.path: must be a string, not a number"),
    (WANTED | {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        "spec.tensorBoard.volumeMounts[0].name: Not found: must be the name of a volume in spec.tensorBoard.volumes"),
    (WANTED | {"volumes": [{"name": ["v"]}], "volumeMounts": [{"name": ["v"]}]},
        "spec.tensorBoard.volumeMounts[0].name: Not found: must be the name of a volume in spec.tensorBoard.volumes"),
    (WANTED | {"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.tensorBoard.volumes[1].name: Duplicate value"),
    (WANTED | {"volumes": [{"name": "v"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}] * 2},
        "spec.tensorBoard.volumeMounts[1].mountPath: Duplicate value"),
]  # fmt: skip


@pytest.mark.parametrize(("board", "told"), MISTAKES)
def test_a_mistake_is_reported_with_its_place(board: Any, told: str) -> None:
    """TB-03: in the same wording as the mistakes of a job."""
    assert told in mistakes(board)


def test_all_mistakes_are_reported_at_once_and_no_value_of_the_user_is() -> None:
    """TB-03, U5: a value may be a secret."""
    text = mistakes({"logDir": 5, "serviceType": "s3cret", "volumes": 7})
    assert text.count("spec.tensorBoard.") == 3
    assert "s3cret" not in text


def test_no_mistake_of_a_tensorboard_is_one_of_the_job() -> None:
    """TB-03: the job runs."""
    raw = msgspec.json.encode({"tfReplicaSpecs": WORKERS, "tensorBoard": {"serviceType": 5, "volumes": "x"}})
    spec = read_spec("mnist", raw)
    assert isinstance(spec, TFJobSpec)
    assert spec.warnings == ()


def test_no_mistake_of_a_job_is_one_of_its_tensorboard() -> None:
    """TB-04: the rest of the specification does not matter."""
    raw = msgspec.json.encode({"tfReplicaSpecs": 7, "runPolicy": [], "tensorBoard": WANTED})
    assert read_tensor_board("mnist", raw) == Reading("", TensorBoard("/logs"))


def test_unknown_fields_are_ignored_and_told() -> None:
    """TB-03, U6: as in all of TFJob's own objects."""
    board = good(WANTED | {"logdir": "/x", "volumes": [{"name": "v", "hostpath": {}}]})
    assert board.unknown_fields == (
        "spec.tensorBoard.logdir: unknown field is ignored; did you mean logDir?",
        "spec.tensorBoard.volumes[0].hostpath: unknown field is ignored; did you mean hostPath?",
    )


def test_what_an_apply_would_reject_is_left_out_or_written_otherwise() -> None:
    """TB-02: fields that may be newer than this operator are passed on."""
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": 1024, "sizelimit": "1"}}, {"name": "w", "newSource": {"x": 1}}]
    found = good(WANTED | {"volumes": volumes}).volumes
    assert found == ({"name": "v", "emptyDir": {"sizeLimit": "1024"}}, {"name": "w", "newSource": {"x": 1}})


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("a" * 52, "metadata.name: must be no more than 51 characters for a job with a TensorBoard"),
        ("1-mnist", 'metadata.name: Invalid value: "1-mnist"'),
        ("mnist.v2", 'metadata.name: Invalid value: "mnist.v2"'),
    ],
)
def test_a_name_that_no_service_can_have_is_reported(job: str, told: str) -> None:
    """TB-03: the API server would refuse it; 51 characters leave room for the rest of the 63."""
    assert told in mistakes(WANTED, job)
    assert isinstance(read(WANTED, "a" * 51).board, TensorBoard)


def test_it_is_read_who_manages_the_job() -> None:
    """TB-05: another controller's job is left alone, with its TensorBoard."""
    assert read(WANTED, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}).managed_by == "kueue.x-k8s.io/multikueue"
    assert read(WANTED, runPolicy={"managedBy": 5}).managed_by == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("logDir", "image", "serviceType", "volumes", "volumeMounts", "other"), JSON)
)


@given(JSON | FIELDS)
def test_whatever_the_field_holds_it_is_a_tensorboard_or_a_sentence(board: Any) -> None:
    """TB-03: no value raises, and a valid TensorBoard can be sent to an API server."""
    found = read(board).board
    if board is None:
        assert found is None
    elif isinstance(found, TensorBoard):
        assert found.log_dir
    else:
        assert found is not None
        assert found.text
