"""What a job says about its TensorBoard, in whatever dialect it is written. Pure."""

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
from tfjob_operator.api.v1.types import TFJob, text_of
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.types import AlphaJob, is_alpha
from tfjob_operator.api.v1alpha1.validation import TENSORBOARD, canonical_spec

APPLICATION: Final = "tensorboard"


@dataclass(frozen=True, slots=True)
class Wish:
    """A TensorBoard that a job wants: the name of its Deployment and its Service, and the labels by which people find them."""

    name: str
    labels: Mapping[str, str]
    board: TensorBoard


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Whatever there is stays as it is: the field has these mistakes, or, without any, the job is another controller's."""

    mistakes: str = ""


def wish_of(job: TFJob) -> Wish | LeftAlone | None:
    """Return what a v1 job wants; None for no TensorBoard. Neither its status nor other mistakes matter."""
    if is_alpha(job.spec):
        return LeftAlone()
    name = job.metadata.name
    reading = read_tensor_board(name, job.spec)
    if reading.managed_by not in MANAGED_BY_US:
        return LeftAlone()
    match reading.board:
        case None:
            return None
        case InvalidTensorBoard(text):
            return LeftAlone(text)
        case board:
            return Wish(tensor_board_name(name), labels_of(name), board)


def labels_of(job: str) -> dict[str, str]:
    """Return the labels of the TensorBoard of a TFJob.

    They are those that Kubernetes recommends for applications. The labels of replicas are not among them, since SDKs and
    scripts find the pods of a job by those.
    """
    return {
        "app.kubernetes.io/name": APPLICATION,
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/managed-by": CONTROLLER_NAME,
    }


_PATH: Final = "spec.tensorboard"


def alpha_wish_of(api: c.Dialect, job: AlphaJob) -> Wish | LeftAlone | None:
    """Return what a job of the alpha dialect wants; None for no TensorBoard.

    Only the shape of the specification decides which dialect a job is in: so this one and v1, which share an API, never both
    act on one job. Before the job has its RuntimeId, which is part of the name, nothing is done.
    """
    if api.keeps_map and not is_alpha(job.spec):
        return LeftAlone()
    spec = canonical_spec(api, decode_spec(Reader(), job.spec))
    policy = spec.get("runPolicy")
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    if isinstance(manager, str) and manager not in MANAGED_BY_US:
        return LeftAlone()
    given, runtime_id = spec.get("tensorboard"), job.status.runtime_id
    if given is None:
        return None
    if not runtime_id:
        return LeftAlone()
    reader = Reader()
    settings = reader.mapping(given, _PATH)
    reader.known(settings, TENSORBOARD.known, _PATH)
    board = read_fields(reader, _with_image(settings, spec), _PATH)
    if reader.mistakes:
        return LeftAlone(text_of(reader.mistakes, reader.more))
    return Wish(f"{APPLICATION}-{runtime_id.lower()}", _labels(api, job, runtime_id), board)


def _with_image(settings: JSON, spec: JSON) -> JSON:
    """Return the settings with the image that the whole job has in this dialect."""
    image = spec.get("tfImage")
    return {**settings, "image": image if isinstance(image, str) and image else c.DEFAULT_IMAGE}


def _labels(api: c.Dialect, job: AlphaJob, runtime_id: str) -> dict[str, str]:
    """Return the labels that earlier operators gave to TensorBoards."""
    return {api.label: "", "app": APPLICATION, c.LABEL_RUNTIME_ID: runtime_id, c.LABEL_JOB_NAME: job.metadata.name}
