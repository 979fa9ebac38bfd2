"""What to do about one TFJob, decided from what is observed. Pure: no clock, no I/O, no logging, no memory.

`plan` compares the replicas that the specification asks for with the pods and services that exist, and returns a `Plan`.
The executor carries it out: first the status, then creates and deletes. So every fact is on the server before it is acted
upon, a job's end is in its status before its pods are cleaned up, and an operator that was killed between any two calls finds
all that it needs when it starts again.

A job is over (`clean_up`), held or failed because its specification is wrong (`held`), suspended (`suspension`), or to run
(`running`). Each of these decides alone; what a gang scheduler and a long cluster specification ask for is added to its plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import InvalidSpec, TFJobSpec
from tfjob_operator.controller.tfjob.decide.actions import NOTHING
from tfjob_operator.controller.tfjob.decide.clean_up import clean_up
from tfjob_operator.controller.tfjob.decide.config_maps import with_config_maps
from tfjob_operator.controller.tfjob.decide.gang import with_gang
from tfjob_operator.controller.tfjob.decide.held import hold
from tfjob_operator.controller.tfjob.decide.observe import observe
from tfjob_operator.controller.tfjob.decide.running import run
from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft
from tfjob_operator.controller.tfjob.decide.suspension import suspend

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
    from tfjob_operator.controller.tfjob.decide.actions import Plan
    from tfjob_operator.controller.tfjob.decide.gang import Gang
    from tfjob_operator.controller.tfjob.decide.observe import Observed


def plan(
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    now: datetime,
    *,
    config_maps: Sequence[ConfigMap] = (),
    gang: Gang | None = None,
    domain: str = "",
) -> Plan:
    """Decide what to do about a job; `pods`, `services` and `config_maps` are those that it controls.

    A job that is being deleted is left to the garbage collector, one that another controller manages is left to it, mistakes
    and all (B75). `gang` is None where no gang scheduler is in use; `domain` is the cluster's DNS domain where TF_CONFIG needs
    it.
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return NOTHING
    draft, seen = StatusDraft(job, now), observe(job, pods, services)
    if isinstance(spec, TFJobSpec) and seen.replicas:
        seen = seen.limited_to(spec.sizes)
    decided = with_gang(_decide(draft, spec, seen), job, spec, seen.replicas, gang)
    return with_config_maps(decided, job, spec, pods, config_maps, domain=domain)


def _decide(draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed) -> Plan:
    if conditions.is_finished(draft):
        return clean_up(draft, spec, seen)
    if isinstance(spec, InvalidSpec):
        return hold(draft, spec, seen)
    if spec.suspend:
        return suspend(draft, spec, seen)
    return run(draft, spec, seen)
