"""What changes for the jobs of training-operator 1.9 when this operator serves them. Pure.

The rules are those of docs/migration.md, "Different defaults", seen with the real training-operator 1.9.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.text import MAX_NAME, clean
from tfjob_operator.api.v1.constants import (
    CHIEF_TYPES,
    CONTAINER_NAME,
    MANAGED_BY_US,
    PS,
    WORKER,
    CleanPodPolicy,
    RestartPolicy,
    SuccessPolicy,
)
from tfjob_operator.api.v1.types import Mistake, ReplicaSpec, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS, RUN_POLICY_FIELDS, SPEC_FIELDS, read_spec
from tfjob_operator.cli.model.facts import JobFacts, job_facts, listed, mapping, spec_of, status_of, text
from tfjob_operator.cli.model.replicas import type_of

_MAX_DETAIL: Final = 300


class Difference(NamedTuple):
    """A behavior that changes: what training-operator 1.9 does, what this operator does, and how to keep the former."""

    id: str
    before: str
    here: str
    keep: str


INVALID: Final = Difference(
    "invalid",
    "The job is accepted.",
    "The job is on hold: its running pods continue, and no pod is created until the mistake is corrected.",
    "correct the field",
)
CLEAN_POD_POLICY: Final = Difference(
    "clean-pod-policy",
    "Without cleanPodPolicy, pods that still run when the job ends, also at a limit, continue.",
    "They are deleted.",
    "set spec.runPolicy.cleanPodPolicy: None",
)
COMPLETION_GRACE: Final = Difference(
    "completion-grace",
    "Workers that still run when the job has succeeded are deleted immediately.",
    "They are deleted after 30s.",
    "--completion-grace-period=0",
)
EXIT_CODES: Final = Difference(
    "exit-codes",
    "A replica with restartPolicy ExitCode is restarted after every exit code from 128 on.",
    "It is restarted after 130, 134, 137, 138 and 143; other codes fail the job.",
    "--retryable-exit-codes=128-255",
)
RESTART_DELAY: Final = Difference(
    "restart-delay",
    "A replica with restartPolicy ExitCode is restarted immediately.",
    "Repeated restarts are delayed, up to 5m.",
    "--restart-backoff=false",
)
BACKOFF_LIMIT: Final = Difference(
    "backoff-limit",
    "backoffLimit does not count pods that are replaced under ExitCode, and fails a job at the restart that reaches it.",
    "All restarts count, and the first one beyond the limit fails the job.",
    "raise or remove backoffLimit under ExitCode",
)
RESTART_POLICY: Final = Difference(
    "restart-policy",
    "A replica without restartPolicy is never restarted.",
    "The restartPolicy of its pod template applies to new pods.",
    "set restartPolicy: Never beside the template",
)
SPEC_POLICIES: Final = Difference(
    "policies-in-spec",
    "Policies that stand in spec instead of spec.runPolicy are ignored.",
    "They apply.",
    "remove them from spec",
)
SIDECARS: Final = Difference(
    "sidecars",
    "A replica ends when all containers of its pod have ended; a container that fails fails it.",
    "A replica ends with its container tensorflow; the others have 30s, or completionGracePeriodSeconds, to end.",
    "set spec.runPolicy.completionGracePeriodSeconds to the seconds that they need",
)
PS_ONLY: Final = Difference(
    "parameter-servers-only",
    "A job of PS alone never ends.",
    "It succeeds when all PS have ended with 0.",
    "nothing: delete the job when it is no longer needed",
)
GANG: Final = Difference(
    "gang-scheduling",
    "A PodGroup is created if the operator runs with --gang-scheduler-name.",
    "A PodGroup is created with --enable-gang-scheduling and --gang-scheduler-name.",
    "--enable-gang-scheduling --gang-scheduler-name=NAME",
)
QUEUE: Final = Difference(
    "queue",
    "Kueue gets the quota back when the job has ended.",
    "The job is Ending until its pods are gone; then it has ended, and Kueue gets the quota back.",
    "nothing: no other job starts on occupied nodes",
)
COUNTERS: Final = Difference(
    "counters",
    "After a failure or a limit, replicaStatuses keep the last number of active replicas.",
    "active is 0 when no pod is left.",
    "nothing: a workflow that reads active after a failure reads 0",
)
DIFFERENCES: Final[Mapping[str, Difference]] = {
    each.id: each for each in list(globals().values()) if isinstance(each, Difference)
}


class CheckedJob(NamedTuple):
    """A job, and what changes for it: details by the ID of the difference.

    `unchanged` is why nothing changes for the job, "" if something may: finished, managed elsewhere, or served here already.
    """

    namespace: str
    name: str
    state: str
    unchanged: str
    differences: Mapping[str, str]


def check(job: Mapping[str, Any]) -> CheckedJob:
    """Return what changes for a job, as read from a cluster with training-operator. Never raises, whatever the object."""
    facts = job_facts(job)
    if facts.end:
        why = "finished"
    elif text(mapping(spec_of(job).get("runPolicy")).get("managedBy")) not in MANAGED_BY_US:
        why = "managed elsewhere"
    else:
        why = "served here" if "observedGeneration" in status_of(job) else ""  # training-operator never writes it
    found = {} if why else {each.id: clean(detail, _MAX_DETAIL) for each, detail in _differences(job, facts)}
    return CheckedJob(clean(facts.namespace, MAX_NAME), clean(facts.name, MAX_NAME), facts.state, why, found)


def _differences(job: Mapping[str, Any], facts: JobFacts) -> Iterator[tuple[Difference, str]]:
    """Yield what changes for a job that is not finished, each with the fields or replica types that it is about."""
    body = spec_of(job)
    spec = read_spec(facts.name, msgspec.json.encode(body))
    mistakes: Sequence[Mistake]
    if isinstance(spec, TFJobSpec):
        meta = ObjectMeta(name=facts.name)
        mistakes, more = [found for bound in BOUNDS if (found := bound(meta, spec)) is not None], 0
    else:
        mistakes, more = spec.mistakes, spec.more
    if mistakes or not isinstance(spec, TFJobSpec):
        others = len(mistakes) + more - 1
        yield INVALID, f"{mistakes[0]}{f' (and {others} more)' if others else ''}"
        return
    replicas = [each for each in spec.replicas.values() if each.replicas]
    yield from _at_the_end(spec, {each.type: _sidecars(body, each.type) for each in replicas})
    yield from _of_restarts(spec, replicas, body)
    if own := sorted(SPEC_FIELDS & RUN_POLICY_FIELDS & body.keys()):
        yield SPEC_POLICIES, ", ".join(f"spec.{name}" for name in own)
    if mapping(body.get("runPolicy")).get("schedulingPolicy"):
        yield GANG, "spec.runPolicy.schedulingPolicy"
    if facts.queue:
        yield QUEUE, facts.queue
    if spec.total_replicas > 1:
        yield COUNTERS, f"{spec.total_replicas} replicas"


def _entries(body: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a replica type, in all spellings of its key."""
    return (mapping(entry) for key, entry in mapping(body.get("tfReplicaSpecs")).items() if type_of(key) == kind)


def _sidecars(body: Mapping[str, Any], kind: str) -> list[str]:
    """Return the containers of a replica type beside the training container."""
    templates = (mapping(mapping(entry.get("template")).get("spec")) for entry in _entries(body, kind))
    names = [text(each.get("name")) for template in templates for each in listed(template.get("containers"))]
    return [name for name in names if name != CONTAINER_NAME]


def _at_the_end(spec: TFJobSpec, sidecars: Mapping[str, Sequence[str]]) -> Iterator[tuple[Difference, str]]:
    """Yield differences at the end of a job. `sidecars` has the names of containers by replica type."""
    has_limit = spec.active_deadline_s is not None or spec.backoff_limit is not None
    if not spec.sets_clean_pod_policy and (spec.total_replicas > 1 or any(sidecars.values()) or has_limit):
        yield CLEAN_POD_POLICY, ", ".join(sidecars)
    is_led = WORKER in sidecars and any(kind in sidecars for kind in CHIEF_TYPES)
    is_first_of_many = spec.sizes.get(WORKER, 0) > 1 and spec.success_policy is not SuccessPolicy.ALL_WORKERS
    is_cleaned = spec.sets_clean_pod_policy and spec.clean_pod_policy is not CleanPodPolicy.NONE
    if is_cleaned and (is_led or is_first_of_many) and spec.completion_grace_s is None:
        yield COMPLETION_GRACE, WORKER
    if any(sidecars.values()):
        yield SIDECARS, "; ".join(f"{kind}: {', '.join(names)}" for kind, names in sidecars.items() if names)
    if sidecars.keys() == {PS}:
        yield PS_ONLY, PS


def _of_restarts(
    spec: TFJobSpec, replicas: Iterable[ReplicaSpec], body: Mapping[str, Any]
) -> Iterator[tuple[Difference, str]]:
    """Yield differences of failures and restarts."""
    restarted = [each for each in replicas if each.restart_policy is not RestartPolicy.NEVER]
    by_code = ", ".join(each.type for each in restarted if each.restart_policy is RestartPolicy.EXIT_CODE)
    if by_code:
        yield EXIT_CODES, by_code
        yield RESTART_DELAY, by_code
    by_template = [
        each for each in restarted if not any("restartPolicy" in found for found in _entries(body, each.type))
    ]
    if by_template:
        yield RESTART_POLICY, ", ".join(f"{each.type} {each.restart_policy}" for each in by_template)
    if restarted and spec.backoff_limit:
        yield BACKOFF_LIMIT, f"{spec.backoff_limit} ({', '.join(each.type for each in restarted)})"
