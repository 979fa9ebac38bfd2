"""What to do about one job of the alpha dialect, decided from what is observed. Pure: no clock, no I/O, no logging, no memory.

As in the first controller the status is written first, then children are created, then deleted; so an operator that was killed
between any two calls finds all that it needs when it starts again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1.constants import MANAGED_BY_US
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.controller.alpha.decide.actions import NOTHING
from tfjob_operator.controller.alpha.decide.ending import clean_up, is_over
from tfjob_operator.controller.alpha.decide.held import hold
from tfjob_operator.controller.alpha.decide.predecessor import has_ended_before, is_of_predecessor
from tfjob_operator.controller.alpha.decide.running import run
from tfjob_operator.controller.alpha.decide.status_draft import StatusDraft

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec
    from tfjob_operator.controller.alpha.children import Children
    from tfjob_operator.controller.alpha.decide.actions import Plan


def plan(
    dialect: Dialect,
    job: AlphaJob,
    spec: AlphaSpec | InvalidSpec,
    children: Children,
    now: datetime,
    *,
    taken: Collection[str] = (),
) -> Plan:
    """Decide what to do about a job; `children` are those that it controls, and the pods of its Jobs.

    A job that is being deleted is left to the garbage collector, one that another controller manages is left to it. One that an
    earlier operator has ended stays as it is, and so does one that it began and whose specification cannot be
    read. `taken` are names of children that were found to belong to others; they matter to a job that has not begun.
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in MANAGED_BY_US:
        return NOTHING
    if has_ended_before(job.status):
        return NOTHING
    draft = StatusDraft(dialect, job, now)
    if is_over(job.status):
        return clean_up(draft, spec, children)
    if isinstance(spec, InvalidSpec):
        return NOTHING if is_of_predecessor(job.status) else hold(draft, spec, children)
    return run(draft, spec, children, taken)
