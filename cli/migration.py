"""What changes for the jobs of training-operator 1.9 when this operator serves them. Pure.

The rules are those of docs/migration.md, observed with the real training-operator 1.9.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.text import clean
from tfjob_operator.api.v1.constants import (
    CHIEF_TYPES,
    CONTAINER_NAME,
    RETRYABLE_EXIT_CODES,
    WORKER,
    CleanPodPolicy,
    ConditionReason,
    RestartPolicy,
    SuccessPolicy,
)
from tfjob_operator.api.v1.types import InvalidSpec, ReplicaSpec, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS, RUN_POLICY_FIELDS, SPEC_FIELDS, read_spec
from tfjob_operator.cli.model.facts import Counters, JobFacts, job_facts, listed, mapping, spec_of, status_of, text
from tfjob_operator.cli.model.replica_names import type_of

_MAX_DETAIL: Final = 300
_AFTER_END: Final = frozenset({"cleanPodPolicy", "ttlSecondsAfterFinished"})
"""Policies that apply to a finished job."""
_BY_KUBELET: Final = frozenset({RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE})


class Difference(NamedTuple):
    """A behavior that changes: that of training-operator 1.9, that of this operator, and how to keep the former.

    `flags` of the operator keep it for all jobs.
    """

    id: str
    before: str
    here: str
    keep: str
    flags: tuple[str, ...] = ()


FAILS_AT_MOVE: Final = Difference(
    "fails-at-move",
    "With enableDynamicWorker, the job continues although workers have failed. So does any job with a replica that failed "
    "while another one was restarted.",
    "It FAILS when this operator starts, unless these are disrupted workers of an elastic job; its running pods are cleaned "
    "up.",
    "before the move, delete the failed pods, or set restartPolicy: OnFailure on their replica type: training-operator "
    "recreates them. Or let the job finish",
)
DEADLINE_EXCEEDED: Final = Difference(
    "deadline-exceeded",
    "The job continues beyond activeDeadlineSeconds, which is checked only when the job or a pod changes.",
    "It FAILS when this operator starts; its running pods are deleted, whatever its cleanPodPolicy.",
    "before the move, raise or remove activeDeadlineSeconds in the first edit of the job: any other one, or a restart of "
    "training-operator, fails it there",
)
TTL_EXCEEDED: Final = Difference(
    "ttl-exceeded",
    "A finished job is kept beyond ttlSecondsAfterFinished if it has suspend: true or no completionTime.",
    "It is DELETED with its pods when this operator starts.",
    "before the move, remove ttlSecondsAfterFinished",
)
SIDECARS: Final = Difference(
    "sidecars",
    "A replica finishes when all containers of its pod have ended, and fails if one of them fails.",
    "A replica finishes as its container tensorflow does; the others are deleted 30s later. If tensorflow has ended before "
    "the move, the job may finish when this operator starts, and the others are deleted within 30s.",
    "before the move, set cleanPodPolicy: None, or let sidecars finish that still work. spec.runPolicy."
    "completionGracePeriodSeconds can be set only after the move: the CRD of training-operator does not have it",
)
INVALID: Final = Difference(
    "invalid",
    "The job runs.",
    "The job is on hold until the field is corrected: running pods continue, but no pod is created, exits are not evaluated, "
    "and the job does not finish.",
    "let the job finish, or correct the field; a replica type that is renamed starts anew, and loses its running pods",
)
ELASTIC: Final = Difference(
    "elastic-workers",
    "With enableDynamicWorker, a worker that fails under Never does not fail the job.",
    "It fails the job, unless its pod was disrupted.",
    "set restartPolicy: OnFailure on Worker, which restarts it. Pods that exist keep their policy",
)
SIDECARS_KEPT: Final = Difference(
    "sidecars-kept",
    SIDECARS.before,
    "A replica finishes as its container tensorflow does; the others continue, since cleanPodPolicy is None, but not beyond a "
    "restart or a limit of the job. If tensorflow has ended before the move, the job may finish when this operator starts.",
    "",
)
EXIT_CODES: Final = Difference(
    "exit-codes",
    "restartPolicy ExitCode restarts a replica after every exit code from 128 on.",
    f"It restarts a replica after {', '.join(map(str, sorted(RETRYABLE_EXIT_CODES)))}; other codes fail the job.",
    "--retryable-exit-codes=128-255",
    ("--retryable-exit-codes=128-255",),
)
BACKOFF_LIMIT: Final = Difference(
    "backoff-limit",
    "backoffLimit ignores restarts under ExitCode. Under OnFailure and Always, the restart that reaches it fails the job; only "
    "pods in the phase Running count.",
    "All restarts count, also those of finished pods and of init containers, and the first failure beyond the limit fails the "
    "job. If containers were restarted more often in place, it FAILS when this operator starts.",
    "under ExitCode, remove backoffLimit; otherwise lower it by 1",
)
ACTIVE_DEADLINE: Final = Difference(
    "active-deadline",
    DEADLINE_EXCEEDED.before,
    "It fails when it exceeds activeDeadlineSeconds.",
    "raise or remove activeDeadlineSeconds",
)
SPEC_POLICIES: Final = Difference(
    "policies-in-spec",
    "Policies in spec, outside of spec.runPolicy, are ignored.",
    "They apply.",
    "remove them",
)
CLEAN_POD_POLICY: Final = Difference(
    "clean-pod-policy",
    "Without cleanPodPolicy, pods that are running when the job finishes or exceeds a limit continue.",
    "They are deleted.",
    "set spec.runPolicy.cleanPodPolicy: None",
)
RESTART_POLICY: Final = Difference(
    "restart-policy",
    "A replica without restartPolicy is not restarted.",
    "New pods have the restartPolicy of the pod template.",
    "set restartPolicy: Never on the replica type",
)
RESTART_DELAY: Final = Difference(
    "restart-delay",
    "restartPolicy ExitCode restarts a replica immediately.",
    "Repeated restarts are delayed, up to 5m.",
    "--restart-backoff=false",
    ("--restart-backoff=false",),
)
PS_ONLY: Final = Difference(
    "parameter-servers-only",
    "A job without Chief, Master and Worker never finishes.",
    "It succeeds when all replicas have exited with 0, if they have already: when this operator starts.",
    "",
)
COMPLETION_GRACE: Final = Difference(
    "completion-grace",
    "Workers that are running when the job succeeds are deleted immediately.",
    "They are deleted after 30s.",
    "--completion-grace-period=0, which also deletes working sidecars immediately: --plan omits it if a job has sidecars",
    ("--completion-grace-period=0",),
)
GANG: Final = Difference(
    "gang-scheduling",
    "The job has a PodGroup if --gang-scheduler-name is set.",
    "It has one if --enable-gang-scheduling is set too.",
    "--enable-gang-scheduling --gang-scheduler-name=NAME",
)
QUEUE: Final = Difference(
    "queue",
    "The job finishes, and Kueue releases its quota, while its pods may still run.",
    "The job is Ending until its pods have ended. Then it finishes, and Kueue releases its quota.",
    "",
)
COUNTERS: Final = Difference(
    "counters",
    "After a failure, status.replicaStatuses keep the last number of active replicas.",
    "active is the number of pods that are left.",
    "",
)
_ALL: Final = (
    DEADLINE_EXCEEDED,  # first: what is advised about the others ends such a job
    FAILS_AT_MOVE,
    TTL_EXCEEDED,
    SIDECARS,
    INVALID,
    ELASTIC,
    SIDECARS_KEPT,
    EXIT_CODES,
    BACKOFF_LIMIT,
    ACTIVE_DEADLINE,
    SPEC_POLICIES,
    CLEAN_POD_POLICY,
    RESTART_POLICY,
    RESTART_DELAY,
    PS_ONLY,
    COMPLETION_GRACE,
    GANG,
    QUEUE,
    COUNTERS,
)
DIFFERENCES: Final[Mapping[str, Difference]] = {difference.id: difference for difference in _ALL}
"""By ID, in the order of damage: what fails or ends jobs at the move first."""


class CheckedJob(NamedTuple):
    """A job, and what changes for it: details by the ID of the difference, in the order of `DIFFERENCES`.

    `unaffected` is the reason if nothing can change: finished, managed by another controller, or served by this operator.
    """

    namespace: str
    name: str
    state: str
    unaffected: str
    differences: Mapping[str, str]


def check(
    job: Mapping[str, Any],
    *,
    gang: bool | None = None,
    is_served: Callable[[str], bool] | None = None,
    now: float = 0.0,
) -> CheckedJob:
    """Return what changes for a job, as read from a cluster with training-operator. Never raises, whatever the object.

    `gang`: training-operator creates PodGroups; None if that is unknown. `is_served` returns whether this operator serves a
    namespace now; by default, it serves each job whose status it has written. `now` is in seconds since 1970; by default, no
    deadline has passed.
    """
    facts = job_facts(job)
    # training-operator never sets this field. It keeps its value after a way back until it writes the status.
    was_served = "observedGeneration" in status_of(job)
    if facts.manager:
        why = "managed by another controller"
    elif was_served and (not is_served or is_served(facts.namespace)):
        why = "finished" if facts.end else "served by tfjob-operator"
    else:
        why = ""
    details = {} if why else {each.id: detail for each, detail in _differences(job, facts, gang=gang, now=now)}
    if facts.end and not details:
        why = "finished"
    found = {id_: clean(details[id_], _MAX_DETAIL) for id_ in DIFFERENCES if id_ in details}
    return CheckedJob(facts.namespace, facts.name, facts.state, why, found)


def _differences(
    job: Mapping[str, Any], facts: JobFacts, *, gang: bool | None, now: float
) -> Iterator[tuple[Difference, str]]:
    """Yield what changes for a job, each with the fields or replica types concerned."""
    body = spec_of(job)
    spec = read_spec(facts.name, msgspec.json.encode(body))
    if facts.end:
        yield from _of_finished(job, facts, spec, now)
        return
    if spec.active_deadline_s is not None and not spec.suspend:
        yield _of_deadline(facts, spec.active_deadline_s, now)
    mistakes = _mistakes(facts.name, spec) or _rejection(job, facts)
    if mistakes or not isinstance(spec, TFJobSpec):
        yield INVALID, mistakes
        return
    sidecars = {kind: _sidecars(job, kind) for kind, size in spec.sizes.items() if size}
    never = [kind for kind in sidecars if _has_never(spec, body, kind)]
    counts = {kind: facts.counts.get(kind, Counters()) for kind in never}
    failed = ", ".join(f"{kind}: {each.failed} failed" for kind, each in counts.items() if each.failed)
    if failed and not spec.suspend:
        yield FAILS_AT_MOVE, failed
    if spec.dynamic_workers and WORKER in never:
        yield ELASTIC, f"{WORKER}: {RestartPolicy.NEVER}"
    yield from _at_the_end(spec, body, sidecars)
    yield from _of_restarts(spec, body)
    if awakened := _awakened(body, SPEC_FIELDS & RUN_POLICY_FIELDS):
        yield SPEC_POLICIES, awakened
    scheduling = "schedulingPolicy" in _run_policy(body)
    if scheduling if gang is None else gang:
        yield GANG, "spec.runPolicy.schedulingPolicy" if scheduling else "--gang-scheduler-name of training-operator"
    if facts.queue:
        yield QUEUE, facts.queue


def _of_finished(
    job: Mapping[str, Any], facts: JobFacts, spec: TFJobSpec | InvalidSpec, now: float
) -> Iterator[tuple[Difference, str]]:
    """Yield what changes for a finished job: policies apply that training-operator has not applied."""
    ended = facts.since or facts.ended
    if spec.ttl_s is not None and ended is not None and ended + spec.ttl_s < now:
        yield TTL_EXCEEDED, f"{spec.ttl_s}s after {_shown(ended)}"
    elif isinstance(spec, TFJobSpec) and (awakened := _awakened(spec_of(job), _AFTER_END)):
        yield SPEC_POLICIES, awakened


def _of_deadline(facts: JobFacts, deadline_s: int, now: float) -> tuple[Difference, str]:
    """Return whether a job exceeds its deadline at the move, or may later."""
    if facts.started is None:
        return ACTIVE_DEADLINE, f"{deadline_s}s after its start"
    difference = DEADLINE_EXCEEDED if facts.started + deadline_s < now else ACTIVE_DEADLINE
    return difference, f"{deadline_s}s after {_shown(facts.started)}"


def _shown(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _mistakes(name: str, spec: TFJobSpec | InvalidSpec) -> str:
    """Return the first mistake, and the number of others; "" if the operator would not put the job on hold."""
    if isinstance(spec, InvalidSpec):
        mistakes, count = spec.mistakes, len(spec.mistakes) + spec.more
    else:
        mistakes = tuple(each for bound in BOUNDS if (each := bound(ObjectMeta(name=name), spec)) is not None)
        count = len(mistakes)
    return f"{mistakes[0]}{f' (and {count - 1} more)' if count > 1 else ''}" if mistakes else ""


def _rejection(job: Mapping[str, Any], facts: JobFacts) -> str:
    """Return why the API server rejected a pod or Service of this operator, "" if it has not since the last edit."""
    held = facts.held or {}
    is_current = status_of(job).get("observedGeneration") == mapping(job.get("metadata")).get("generation")
    return text(held.get("message")) if is_current and held.get("reason") == ConditionReason.REFUSED else ""


def _has_never(spec: TFJobSpec, body: Mapping[str, Any], kind: str) -> bool:
    """Return True if training-operator creates the pods of a replica type with Never: also without a policy of the type.

    Under ExitCode, exit codes that are not retried fail every job there, too.
    """
    has_policy = any(entry.get("restartPolicy") for entry in _entries(body, kind))
    return not has_policy or spec.replicas[kind].restart_policy is RestartPolicy.NEVER


def _run_policy(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(body.get("runPolicy"))


def _awakened(body: Mapping[str, Any], fields: Iterable[str]) -> str:
    """Return those policies in `spec`, of these fields, that training-operator ignores and that make a difference here.

    `runPolicy` takes precedence, and cleanPodPolicy None is training-operator's default.
    """
    unset = {None, ""}
    return ", ".join(
        f"spec.{name}"
        for name in sorted(fields)
        if body.get(name) not in unset
        and _run_policy(body).get(name) in unset
        and (name, body[name]) != ("cleanPodPolicy", CleanPodPolicy.NONE)
    )


def _entries(body: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a replica type, in all spellings of its key."""
    return (mapping(entry) for key, entry in mapping(body.get("tfReplicaSpecs")).items() if type_of(key) == kind)


def _sidecars(job: Mapping[str, Any], kind: str) -> list[str]:
    """Return the containers beside the training container. Katib adds one to the chief, else to worker 0, of its trials."""
    templates = (mapping(mapping(entry.get("template")).get("spec")) for entry in _entries(spec_of(job), kind))
    names = [text(container.get("name")) for template in templates for container in listed(template.get("containers"))]
    found = [name for name in names if name != CONTAINER_NAME]
    owners = listed(mapping(job.get("metadata")).get("ownerReferences"))
    is_trial = any(owner.get("kind") == "Trial" for owner in owners)
    return [*found, "metrics collector of Katib"] if is_trial and kind in {*CHIEF_TYPES, WORKER} else found


def _at_the_end(
    spec: TFJobSpec, body: Mapping[str, Any], sidecars: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Difference, str]]:
    """Yield differences at the end of a job. `sidecars` has the names of containers by replica type."""
    in_place = any(replicas.restart_policy in _BY_KUBELET for replicas in _own_policy(spec, body))
    limit_stops_pods = spec.active_deadline_s is not None or (bool(spec.backoff_limit) and in_place)
    may_outlive = spec.total_replicas > 1 or limit_stops_pods
    if may_outlive and not spec.sets_clean_pod_policy:
        yield CLEAN_POD_POLICY, ", ".join(sidecars)
    is_led = WORKER in sidecars and any(kind in sidecars for kind in CHIEF_TYPES)
    is_first_of_many = spec.sizes.get(WORKER, 0) > 1 and spec.success_policy is not SuccessPolicy.ALL_WORKERS
    is_cleaned = _run_policy(body).get("cleanPodPolicy") in {CleanPodPolicy.ALL, CleanPodPolicy.RUNNING}
    if is_cleaned and (is_led or is_first_of_many) and spec.completion_grace_s is None:
        yield COMPLETION_GRACE, WORKER
    if any(sidecars.values()):
        is_kept = spec.clean_pod_policy is CleanPodPolicy.NONE
        details = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in sidecars.items() if names)
        yield SIDECARS_KEPT if is_kept else SIDECARS, details
    if sidecars and sidecars.keys().isdisjoint({WORKER, *CHIEF_TYPES}):
        yield PS_ONLY, ", ".join(sidecars)
    if may_outlive:
        yield COUNTERS, f"{spec.total_replicas} replica{'s' * (spec.total_replicas != 1)}"


def _own_policy(spec: TFJobSpec, body: Mapping[str, Any]) -> list[ReplicaSpec]:
    """Return the replica types with replicas whose restart policy does not come from the pod template."""
    types = (replica for replica in spec.replicas.values() if replica.replicas)
    return [kind for kind in types if any(entry.get("restartPolicy") for entry in _entries(body, kind.type))]


def _of_restarts(spec: TFJobSpec, body: Mapping[str, Any]) -> Iterator[tuple[Difference, str]]:
    """Yield differences of failures and restarts."""
    own = [replicas for replicas in _own_policy(spec, body) if replicas.restart_policy is not RestartPolicy.NEVER]
    by_code = ", ".join(replicas.type for replicas in own if replicas.restart_policy is RestartPolicy.EXIT_CODE)
    if by_code:
        yield EXIT_CODES, by_code
        yield RESTART_DELAY, by_code
    if own and spec.backoff_limit:
        yield BACKOFF_LIMIT, f"{spec.backoff_limit} ({', '.join(replicas.type for replicas in own)})"
    by_template = [
        replica
        for replica in spec.replicas.values()
        if replica.replicas and replica.restart_policy is not RestartPolicy.NEVER and replica not in own
    ]
    if by_template:
        yield RESTART_POLICY, ", ".join(f"{replicas.type}: {replicas.restart_policy}" for replicas in by_template)
