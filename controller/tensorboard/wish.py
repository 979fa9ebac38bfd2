"""What a job says about its TensorBoard, in whatever dialect it is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api.v1.constants import CONTROLLER_NAME, MANAGED_BY_US
from tfjob_operator.api.v1.tensorboard import InvalidTensorBoard, TensorBoard, read_tensor_board, tensor_board_name
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.dialect import is_alpha

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
    """Return what a TFJob wants; None for no TensorBoard. Nothing else of the job matters: not its status, nor its mistakes.

    Jobs of the alpha dialect, which share the API, are left to `alpha_wish.py`.
    """
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
