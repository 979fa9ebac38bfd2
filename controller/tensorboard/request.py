"""Reads what a job specifies about its TensorBoard, in any dialect. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api.meta import JSON
from tfjob_operator.api.v1.constants import CONTROLLER_NAME, MANAGED_BY_US
from tfjob_operator.api.v1.reader import Reader
from tfjob_operator.api.v1.templates import decode_spec
from tfjob_operator.api.v1.tensorboard import (
    InvalidTensorBoard,
    TensorBoard,
    read_fields,
    read_tensor_board,
    tensor_board_name,
)
from tfjob_operator.api.v1.types import TFJob, format_errors
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.types import AlphaJob, is_alpha
from tfjob_operator.api.v1alpha1.validation import TENSORBOARD, canonical_spec

APPLICATION: Final = "tensorboard"


@dataclass(frozen=True, slots=True)
class TensorBoardRequest:
    """A TensorBoard requested by a job: the name of its Deployment and Service, and the labels that identify them to users."""

    name: str
    labels: Mapping[str, str]
    board: TensorBoard


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """Existing children stay unchanged: the field is invalid or, with empty `mistakes`, another controller is in charge."""

    mistakes: str = ""


def request_of(job: TFJob) -> TensorBoardRequest | Unmanaged | None:
    """Return the TensorBoard requested by a v1 job, or None. The job's status and errors in other fields are irrelevant."""
    if is_alpha(job.spec):
        return Unmanaged()
    name = job.metadata.name
    reading = read_tensor_board(name, job.spec)
    if reading.managed_by not in MANAGED_BY_US:
        return Unmanaged()
    match reading.board:
        case None:
            return None
        case InvalidTensorBoard(text):
            return Unmanaged(text)
        case board:
            return TensorBoardRequest(tensor_board_name(name), labels_of(name), board)


def labels_of(job: str) -> dict[str, str]:
    """Return the labels of a TFJob's TensorBoard.

    These are the labels that Kubernetes recommends for applications. They do not include the labels of replicas, by which SDKs
    and scripts find the pods of a job.
    """
    return {
        "app.kubernetes.io/name": APPLICATION,
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/managed-by": CONTROLLER_NAME,
    }


_PATH: Final = "spec.tensorboard"


def alpha_request_of(api: c.Dialect, job: AlphaJob) -> TensorBoardRequest | Unmanaged | None:
    """Return the TensorBoard requested by an alpha job, or None.

    Only the format of the spec determines a job's dialect. So this controller and the v1 controller, which share an API, never
    both act on the same job. Nothing is done before the job has a RuntimeId, which is part of the TensorBoard's name.
    """
    if api.keeps_map and not is_alpha(job.spec):
        return Unmanaged()
    spec = canonical_spec(api, decode_spec(Reader(), job.spec))
    policy = spec.get("runPolicy")
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    if isinstance(manager, str) and manager not in MANAGED_BY_US:
        return Unmanaged()
    given, runtime_id = spec.get("tensorboard"), job.status.runtime_id
    if given is None:
        return None
    if not runtime_id:
        return Unmanaged()
    reader = Reader()
    settings = reader.mapping(given, _PATH)
    reader.known(settings, TENSORBOARD.known, _PATH)
    board = read_fields(reader, _with_image(settings, spec), _PATH)
    if reader.mistakes:
        return Unmanaged(format_errors(reader.mistakes, reader.more))
    return TensorBoardRequest(f"{APPLICATION}-{runtime_id.lower()}", _labels(api, job, runtime_id), board)


def _with_image(settings: JSON, spec: JSON) -> JSON:
    """Return the settings with the job's image, which applies to the whole job in this dialect."""
    image = spec.get("tfImage")
    return {**settings, "image": image if isinstance(image, str) and image else c.DEFAULT_IMAGE}


def _labels(api: c.Dialect, job: AlphaJob, runtime_id: str) -> dict[str, str]:
    """Return the labels used by earlier operators for TensorBoards."""
    return {api.label: "", "app": APPLICATION, c.LABEL_RUNTIME_ID: runtime_id, c.LABEL_JOB_NAME: job.metadata.name}
