"""The kinds of jobs that may have a TensorBoard, how their specs are read, and the label of the children.

The readers are imported when a job has the TensorBoard field: few jobs have it, and the memory would be wasted otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from tfjob_operator.api.meta import Object
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, TFJOBS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.meta import Resource
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.api.v1alpha1.constants import Dialect as AlphaApi
    from tfjob_operator.api.v1alpha1.types import AlphaJob
    from tfjob_operator.controller.tensorboard.request import TensorBoardRequest, Unmanaged

J = TypeVar("J", bound=Object)

OPERATOR: Final = "tensorboard-controller"
"""The value of the label that identifies children. It differs from that of replicas, so that a TensorBoard is never counted,
adopted or cleaned up as a replica."""
SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR}"


class BoardDialect(NamedTuple, Generic[J]):
    """A kind of job.

    owner: the resource of the jobs.
    may_have_request: whether a job may have the field. It is called for every event of every job, so it decodes nothing; false
        positives are possible.
    request_of: what a job specifies about its TensorBoard.
    """

    owner: Resource
    may_have_request: Callable[[J], bool]
    request_of: Callable[[J], TensorBoardRequest | Unmanaged | None]


_FIELD: Final = re.compile(rb'"tensorBoard"')
_FIELD_IN_ANY_CASE: Final = re.compile(_FIELD.pattern, re.IGNORECASE)
"""`in` would require a copy of the spec, which may be a megabyte."""


def _may_have_request(job: TFJob) -> bool:
    return _FIELD.search(job.spec) is not None


def _request_of(job: TFJob) -> TensorBoardRequest | Unmanaged | None:
    from tfjob_operator.controller.tensorboard.request import request_of

    return request_of(job)


TFJOB: Final[BoardDialect[TFJob]] = BoardDialect(TFJOBS, _may_have_request, _request_of)


def alpha_dialect(api: AlphaApi) -> BoardDialect[AlphaJob]:
    """Return the dialect of one of the two alpha APIs."""

    def may_have_request(job: AlphaJob) -> bool:
        return _FIELD_IN_ANY_CASE.search(job.spec) is not None

    def request_of(job: AlphaJob) -> TensorBoardRequest | Unmanaged | None:
        from tfjob_operator.controller.tensorboard.request import alpha_request_of

        return alpha_request_of(api, job)

    return BoardDialect(api.resource, may_have_request, request_of)
