"""The kinds of jobs that may have a TensorBoard, and how their wishes are read.

The readers are imported when a job has the field: few clusters have one, and all would pay for them with memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from tfjob_operator.api.meta import Object
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.meta import Resource
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.api.v1alpha1.constants import Dialect as AlphaApi
    from tfjob_operator.api.v1alpha1.types import AlphaJob
    from tfjob_operator.controller.tensorboard.wish import LeftAlone, Wish

J = TypeVar("J", bound=Object)


class Dialect(NamedTuple, Generic[J]):
    """A kind of job.

    owner: the resource that the jobs are.
    may_have_wish: whether a job may have the field. It is called for every event of every job, so it decodes nothing; it may
        say yes too often.
    wish_of: what a job says about its TensorBoard.
    """

    owner: Resource
    may_have_wish: Callable[[J], bool]
    wish_of: Callable[[J], Wish | LeftAlone | None]


_FIELD: Final = re.compile(rb'"tensorBoard"')
_FIELD_IN_ANY_CASE: Final = re.compile(_FIELD.pattern, re.IGNORECASE)
"""`in` would need a copy of the specification, which may be a megabyte."""


def _may_have_wish(job: TFJob) -> bool:
    return _FIELD.search(job.spec) is not None


def _wish_of(job: TFJob) -> Wish | LeftAlone | None:
    from tfjob_operator.controller.tensorboard.wish import wish_of

    return wish_of(job)


TFJOB: Final[Dialect[TFJob]] = Dialect(TFJOBS, _may_have_wish, _wish_of)


def alpha_dialect(api: AlphaApi) -> Dialect[AlphaJob]:
    """Return the dialect of the jobs of one of the two alpha APIs."""

    def may_have_wish(job: AlphaJob) -> bool:
        return _FIELD_IN_ANY_CASE.search(job.spec) is not None

    def wish_of(job: AlphaJob) -> Wish | LeftAlone | None:
        from tfjob_operator.controller.tensorboard.wish import alpha_wish_of

        return alpha_wish_of(api, job)

    return Dialect(api.resource, may_have_wish, wish_of)
