"""Reads a specification: checks every field that is used, fills in defaults, and reports all errors with their paths.

All errors are reported at once in the job's condition and events, without values, which may be secrets. Nothing here raises on
user data. `BOUNDS` are size limits: no cluster could run a larger job. The operator decides what happens to such a job
(`controller/tfjob/plan/spec.py`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from tfjob_operator.api.meta import JSON, MAX_NAME_LENGTH, ObjectMeta
from tfjob_operator.api.text import quoted
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import (
    CleanPodPolicy,
    EventReason,
    FailureReason,
    Network,
    RestartPolicy,
    SuccessPolicy,
)
from tfjob_operator.api.v1.failure_policy import (
    OTHER_FIELDS,
    check_against_templates,
    matches_of_healthy_nodes,
    read_failure_policy,
    read_other_fields,
)
from tfjob_operator.api.v1.reader import QUANTITY, MapOf, Path, Reader, check, join_names
from tfjob_operator.api.v1.templates import containers_of, decode_spec, facts_of, read_template, templates_in
from tfjob_operator.api.v1.types import (
    FailurePolicy,
    InvalidSpec,
    Mistake,
    NodeAvoidance,
    ReplicaSpec,
    SchedulingPolicy,
    SpecWarning,
    TemplateFacts,
    TFJobSpec,
    child_name,
)

DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MAX_REPLICAS: Final = 10_000
"""The most replicas of one job. Without a limit a typo would use up the operator's memory and so affect every job. The
limit that TF_CONFIG sets is reached earlier (`tf_config.too_long`)."""
_CANONICAL_TYPE: Final = {name.lower(): name for name in c.REPLICA_TYPES}


def read_spec(name: str, raw: bytes | msgspec.Raw, *, was_good: bool = False) -> TFJobSpec | InvalidSpec:
    """Read the specification of the job called `name`: return it with defaults, or as invalid with its errors.

    `was_good`: the job had a valid spec before. An entry for workers that has only `replicas` is then an attempt to scale a job
    without workers. This does not check the size of a job; `BOUNDS` do.
    """
    reader = Reader()
    spec = decode_spec(reader, raw)
    if reader.mistakes:
        return InvalidSpec(tuple(reader.mistakes), reader.more)
    _check_name(reader, name)
    reader.known(spec, SPEC_FIELDS, "spec", _PLACES)
    replicas, ignored = _read_replicas(reader, spec, was_good=was_good)
    readable = not reader.mistakes
    policy, conflicts = _read_run_policies(reader, spec)
    failure_policy = _read_failure_policy(reader, spec, replicas, with_templates=readable)
    dynamic_workers = reader.boolean(spec.get("enableDynamicWorker"), "spec.enableDynamicWorker")
    success_policy = reader.choice(spec.get("successPolicy"), "spec.successPolicy", SuccessPolicy)
    clean_pod_policy = policy.clean_pod_policy or CleanPodPolicy.RUNNING
    if reader.mistakes:
        reader.add_unknown()
        return InvalidSpec(
            tuple(reader.mistakes),
            reader.more,
            managed_by=policy.managed_by,
            suspend=policy.suspend,
            active_deadline_s=policy.active_deadline_s,
            ttl_s=policy.ttl_s,
            clean_pod_policy=None if policy.is_unreadable else clean_pod_policy,
        )
    return TFJobSpec(
        replicas=replicas,
        clean_pod_policy=clean_pod_policy,
        success_policy=success_policy or SuccessPolicy.DEFAULT,
        managed_by=policy.managed_by,
        backoff_limit=policy.backoff_limit,
        active_deadline_s=policy.active_deadline_s,
        ttl_s=policy.ttl_s,
        suspend=policy.suspend,
        dynamic_workers=dynamic_workers,
        scheduling=policy.scheduling,
        network=policy.network or Network.PER_REPLICA,
        failure_policy=failure_policy,
        node_avoidance=policy.node_avoidance,
        node_lost_timeout_s=policy.node_lost_timeout_s,
        start_deadline_s=policy.start_deadline_s,
        progress_deadline_s=policy.progress_deadline_s,
        completion_grace_s=policy.completion_grace_s,
        sets_clean_pod_policy=policy.clean_pod_policy is not None,
        warnings=(
            *ignored,
            *conflicts,
            *_warnings(reader, replicas),
            *_policy_warnings(failure_policy, replicas, spec),
            *_deadline_warnings(failure_policy, policy),
        ),
        misspelled_types=tuple(
            key for key in reader.mapping(spec.get("tfReplicaSpecs"), "") if key not in c.REPLICA_TYPES
        ),
    )


def queue_warnings(labels: Mapping[str, str] | None, spec: TFJobSpec) -> tuple[SpecWarning, ...]:
    """Return a warning if Kueue ignores replica types of a queued job: Kueue knows only one spelling of each type."""
    if not spec.misspelled_types or c.LABEL_QUEUE not in (labels or {}):
        return ()
    text = (
        f"Kueue does not count {join_names(spec.misspelled_types)} in spec.tfReplicaSpecs, so these replicas run without "
        f"quota: it knows the spellings {', '.join(c.REPLICA_TYPES)}"
    )
    return (SpecWarning(EventReason.NOT_QUEUED, text),)


def _warnings(reader: Reader, replicas: Mapping[str, ReplicaSpec]) -> Iterator[SpecWarning]:
    """Yield warnings about valid but probably unintended settings."""
    for unknown in reader.unknown_fields:
        yield SpecWarning(EventReason.UNKNOWN_FIELD, unknown)
    if all(replica.replicas == 0 for replica in replicas.values()):
        yield SpecWarning(
            EventReason.NO_REPLICAS,
            "every replica type has replicas: 0: no pod is created, and the job does not finish",
        )


def _policy_warnings(
    policy: FailurePolicy | None, replicas: Mapping[str, ReplicaSpec], spec: JSON
) -> Iterator[SpecWarning]:
    if policy is None:
        return
    if any(rule.is_about_nodes for rule in policy.rules):
        for rule, why in matches_of_healthy_nodes(policy, templates_in(spec)):
            text = f"spec.runPolicy.failurePolicy.rules: rule {rule} matches healthy nodes too: {why}"
            yield SpecWarning(EventReason.RULE_MATCHES_HEALTHY, text)
    for rule, earlier in policy.unreachable():
        text = f"spec.runPolicy.failurePolicy.rules: rule {rule} never applies: {earlier} matches all that it matches"
        yield SpecWarning(EventReason.RULE_UNREACHABLE, text)
    restarted = [
        name
        for name, replica in replicas.items()
        if name in policy.targets and replica.restart_policy in {RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE}
    ]
    if restarted:
        text = (
            f"pods of {', '.join(restarted)} are created with restartPolicy Never, so that rules can match exit codes: "
            "the operator recreates these pods where the kubelet would have restarted their containers"
        )
        yield SpecWarning(EventReason.RESTARTED_BY_OPERATOR, text)


def _deadline_warnings(policy: FailurePolicy | None, read: _RunPolicy) -> Iterator[SpecWarning]:
    """Yield a warning for each reason of a rule that cannot occur because its deadline is not set."""
    deadlines = {
        FailureReason.START_DEADLINE_EXCEEDED: ("startDeadlineSeconds", read.start_deadline_s),
        FailureReason.PROGRESS_DEADLINE_EXCEEDED: ("progressDeadlineSeconds", read.progress_deadline_s),
    }
    for rule in () if policy is None else policy.rules:
        for reason, (name, deadline_s) in deadlines.items():
            if reason in rule.reasons and deadline_s is None:
                text = f"rule {rule.name} never matches {reason}: spec.runPolicy.{name} is not set"
                yield SpecWarning(EventReason.RULE_WITHOUT_DEADLINE, f"spec.runPolicy.failurePolicy.rules: {text}")


def _check_name(reader: Reader, job: str) -> None:
    if not DNS_1035.fullmatch(job):
        reader.error(
            "metadata.name",
            f'Invalid value: "{quoted(job)}": pods and Services are named after the job: it must consist of lowercase letters, '
            "digits and '-', start with a letter and end with a letter or digit",
        )


def _read_replicas(
    reader: Reader, spec: JSON, *, was_good: bool
) -> tuple[dict[str, ReplicaSpec], tuple[SpecWarning, ...]]:
    """Read `tfReplicaSpecs`. Keys are case-insensitive; the result is in the order of REPLICA_TYPES.

    The scale subresource always writes `Worker.replicas`. If the job has the entry `worker` instead, the number written to
    `Worker` is used as the size of `worker`. Also returns a warning if the job has no workers to scale.
    """
    path = "spec.tfReplicaSpecs"
    value = spec.get("tfReplicaSpecs")
    fields = reader.mapping(value, path)
    if value is None or value == {}:
        unknown = sorted(set(spec) - SPEC_FIELDS)
        hint = f"; the spec has only {join_names(unknown)}" if unknown else ""
        reader.error(path, f"Required value: at least one of {', '.join(c.REPLICA_TYPES)}{hint}")
    if "replicaSpecs" in spec:
        reader.error(
            "spec.replicaSpecs",
            "Forbidden: v1alpha1 format; it requires a new job without tfReplicaSpecs, and an operator with "
            "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1",
        )
    entries: dict[str, dict[str, object]] = {}
    for key, entry in fields.items():
        canonical = _CANONICAL_TYPE.get(key.lower())
        if canonical is None:
            like = reader.like(key, c.REPLICA_TYPES)
            reader.unsupported(Path(path, key), c.REPLICA_TYPES, f"; did you mean {like}?" if like else "")
            _read_replica(reader, key, entry, f"{path}.{quoted(key)}")
        else:
            entries.setdefault(canonical, {})[key] = entry
    ignored: tuple[SpecWarning, ...] = ()
    if was_good and len(entries) > 1 and _is_size_alone(entries.get(c.WORKER, {})):
        del entries[c.WORKER]
        text = f"{path}.{c.WORKER} is ignored: it has nothing but replicas, and the job has no workers to scale"
        ignored = (SpecWarning(EventReason.NO_WORKERS, text),)
    found = {name: _read_entries(reader, name, spellings, path) for name, spellings in entries.items()}
    _check_chiefs(reader, found, path)
    return {name: found[name] for name in c.REPLICA_TYPES if name in found}, ignored


def _is_size_alone(spellings: Mapping[str, object]) -> bool:
    """Return True if the only entry for workers is one that the scale subresource could have written."""
    return spellings.keys() == {c.WORKER} and _is_size(spellings[c.WORKER])


def _is_size(entry: object) -> bool:
    return isinstance(entry, dict) and entry.keys() == {"replicas"}


def _read_entries(reader: Reader, canonical: str, spellings: dict[str, object], path: str) -> ReplicaSpec:
    """Read the entries of one replica type in all spellings of its name."""
    size = spellings.get(canonical)
    if len(spellings) > 1 and _is_size(size):
        spellings = {key: entry for key, entry in spellings.items() if key != canonical}
    first, *others = spellings
    for key in others:
        reader.error(f"{path}.{key}", f"Duplicate value: same replica type as {first}; keep one of them")
    replica = _read_replica(reader, canonical, spellings[first], f"{path}.{first}")
    if canonical not in spellings and isinstance(size, dict):
        count = reader.integer(size["replicas"], f"{path}.{canonical}.replicas", replica.replicas)
        replica = replace(replica, replicas=count or 0)
    return replica


def _check_chiefs(reader: Reader, found: Mapping[str, ReplicaSpec], path: str) -> None:
    """Check that there is at most one chief, whether called Chief or Master."""
    if all(name in found for name in c.CHIEF_TYPES):
        reader.error(path, "Forbidden: Chief and Master are the same role; keep one of them")
    for name in c.CHIEF_TYPES:
        if name in found and found[name].replicas > 1:
            reader.error(f"{path}.{name}.replicas", "must be less than or equal to 1: a job has one chief")


def _read_replica(reader: Reader, replica_type: str, value: object, path: str) -> ReplicaSpec:
    if value is None:
        reader.error(path, "must be an object with a template, not null")
    fields = reader.mapping(value, path)
    reader.known(fields, REPLICA_FIELDS, path)
    given = fields.get("template")
    if isinstance(value, dict) and given is None:
        reader.error(f"{path}.template", "Required value")
    template = reader.mapping(given, f"{path}.template")
    template_policy = _read_template(reader, template, f"{path}.template") if isinstance(given, dict) else None
    own_policy = reader.choice(fields.get("restartPolicy"), f"{path}.restartPolicy", RestartPolicy)
    return ReplicaSpec(
        type=replica_type,
        replicas=reader.integer(fields.get("replicas"), f"{path}.replicas", 1) or 0,
        restart_policy=own_policy or template_policy or RestartPolicy.NEVER,
        # A spec with errors is not used, so no one reads the facts.
        template=TemplateFacts() if reader.mistakes else facts_of(template),
        # ExitCode is implemented by pods with restart policy Never, so a template with Never does not conflict with it.
        overrides_template_policy=bool(own_policy and template_policy)
        and template_policy != (RestartPolicy.NEVER if own_policy == RestartPolicy.EXIT_CODE else own_policy),
        # API servers sort the keys of stored objects, so equal templates have equal texts. `repr` would escape other
        # characters in another version of Python.
        digest=zlib.crc32(ascii(template).encode()),
    )


def _read_template(reader: Reader, template: JSON, path: str) -> RestartPolicy | None:
    """Check a template. Return its restart policy."""
    found = read_template(reader, template, path)
    if found.containers is not None and c.CONTAINER_NAME not in found.containers:
        names = join_names(found.containers) or "none"
        text = f"Required value: one container must be named {c.CONTAINER_NAME}; found {names}"
        reader.error(f"{path}.spec.containers", text)
    return None if found.policy is None else RestartPolicy(found.policy)


@dataclass(frozen=True, slots=True)
class _RunPolicy:
    """A run policy as given; None and "" mean not set."""

    clean_pod_policy: CleanPodPolicy | None = None
    is_unreadable: bool = False
    """The clean-up policy cannot be read."""
    backoff_limit: int | None = None
    active_deadline_s: int | None = None
    ttl_s: int | None = None
    suspend: bool = False
    managed_by: str = ""
    scheduling: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    network: Network | None = None
    node_avoidance: NodeAvoidance | None = None
    node_lost_timeout_s: int | None = None
    start_deadline_s: int | None = None
    progress_deadline_s: int | None = None
    completion_grace_s: int | None = None


_INLINE_POLICY: Final = {
    "cleanPodPolicy": "clean_pod_policy",
    "backoffLimit": "backoff_limit",
    "activeDeadlineSeconds": "active_deadline_s",
    "ttlSecondsAfterFinished": "ttl_s",
}
"""Fields that kubeflow.org/v1 had directly in the spec before `runPolicy` existed. Both places are read, `runPolicy` wins."""
SPEC_FIELDS: Final = frozenset(
    {"tfReplicaSpecs", "runPolicy", "successPolicy", "enableDynamicWorker", "tensorBoard", *_INLINE_POLICY}
)
RUN_POLICY_FIELDS: Final = frozenset(
    {
        *_INLINE_POLICY,
        "suspend",
        "managedBy",
        "schedulingPolicy",
        "network",
        "failurePolicy",
        "completionGracePeriodSeconds",
        *OTHER_FIELDS,
    }
)
SCHEDULING_FIELDS: Final = frozenset(
    {"minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds"}
)
REPLICA_FIELDS: Final = frozenset({"replicas", "template", "restartPolicy"})
"""All fields of TFJob's own objects. Any other one is ignored and reported, since it is most likely a typo."""
_PLACES: Final = dict.fromkeys(RUN_POLICY_FIELDS, "spec.runPolicy") | dict.fromkeys(
    REPLICA_FIELDS, "an entry of spec.tfReplicaSpecs"
)
"""Where fields belong that are misplaced in `spec`."""


def _read_run_policies(reader: Reader, spec: JSON) -> tuple[_RunPolicy, tuple[SpecWarning, ...]]:
    """Merge `spec.runPolicy` and its fields in `spec`; also return a warning for each field that differs between them."""
    given = spec.get("runPolicy")
    nested = _read_run_policy(reader, reader.mapping(given, "spec.runPolicy"), "spec.runPolicy")
    inline = _read_run_policy(reader, {name: spec.get(name) for name in _INLINE_POLICY}, "spec")
    has_other_type = not (given is None or isinstance(given, dict))
    merged = replace(nested, is_unreadable=nested.is_unreadable or inline.is_unreadable or has_other_type)
    warnings = []
    for name, attribute in _INLINE_POLICY.items():
        above, below = getattr(inline, attribute), getattr(nested, attribute)
        if above in {None, ""}:
            continue
        if below in {None, ""}:
            merged = replace(merged, **{attribute: above})
        elif above != below:
            message = f"spec.{name} and spec.runPolicy.{name} differ; the latter is used"
            warnings.append(SpecWarning(EventReason.POLICY_CONFLICT, message))
    return merged, tuple(warnings)


def _read_run_policy(reader: Reader, fields: JSON, path: str) -> _RunPolicy:
    reader.known(fields, RUN_POLICY_FIELDS, path)

    def number(name: str) -> int | None:
        return reader.integer(fields.get(name), f"{path}.{name}", None)

    clean = fields.get("cleanPodPolicy")
    clean_pod_policy = reader.choice(clean, f"{path}.cleanPodPolicy", CleanPodPolicy)
    return _RunPolicy(
        clean_pod_policy=clean_pod_policy,
        is_unreadable=clean_pod_policy is None and clean not in (None, ""),
        backoff_limit=number("backoffLimit"),
        active_deadline_s=number("activeDeadlineSeconds"),
        ttl_s=number("ttlSecondsAfterFinished"),
        suspend=reader.boolean(fields.get("suspend"), f"{path}.suspend"),
        managed_by=reader.text(fields.get("managedBy"), f"{path}.managedBy"),
        scheduling=_read_scheduling(reader, fields.get("schedulingPolicy"), f"{path}.schedulingPolicy"),
        network=reader.choice(fields.get("network"), f"{path}.network", Network),
        completion_grace_s=number("completionGracePeriodSeconds"),
        **(read_other_fields(reader, fields, path) if fields.keys() & OTHER_FIELDS else {}),
    )


def _read_failure_policy(
    reader: Reader, spec: JSON, replicas: Mapping[str, ReplicaSpec], *, with_templates: bool
) -> FailurePolicy | None:
    """Read the failure policy; check its replica types and, if templates are readable, its container names."""
    path, given = "spec.runPolicy.failurePolicy", spec.get("runPolicy")
    value = given.get("failurePolicy") if isinstance(given, dict) else None
    policy = None if value is None else read_failure_policy(reader, value, path, replicas)
    if policy is not None and any(rule.exit_codes for rule in policy.rules) and with_templates:
        templates = {kind: containers_of(template) for kind, template in templates_in(spec).items()}
        check_against_templates(reader, policy, path, templates)
    return policy


def _read_scheduling(reader: Reader, value: object, path: str) -> SchedulingPolicy:
    fields = reader.mapping(value, path)
    reader.known(fields, SCHEDULING_FIELDS, path)
    check(reader, fields.get("minResources"), MapOf(QUANTITY), f"{path}.minResources")
    return SchedulingPolicy(
        min_available=reader.integer(fields.get("minAvailable"), f"{path}.minAvailable", None),
        queue=reader.text(fields.get("queue"), f"{path}.queue"),
        min_resources=_object_or_none(fields.get("minResources")),
        priority_class=reader.text(fields.get("priorityClass"), f"{path}.priorityClass"),
        schedule_timeout_s=reader.integer(fields.get("scheduleTimeoutSeconds"), f"{path}.scheduleTimeoutSeconds", None),
    )


def _object_or_none(value: object) -> JSON | None:
    """Return a non-empty object, else None; wrong types are reported elsewhere."""
    return value if isinstance(value, dict) and value else None


Bound = Callable[["ObjectMeta", "TFJobSpec"], Mistake | None]
"""Checks one size limit of a job and returns the error, or None. Pure and fast: every sync calls it."""


def total(_job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
    """Return an error if the job has more than `MAX_REPLICAS` replicas, else None."""
    if spec.total_replicas <= MAX_REPLICAS:
        return None
    text = f"requests {spec.total_replicas} replicas; the maximum is {MAX_REPLICAS}"
    return Mistake("spec.tfReplicaSpecs", text)


def child_names(job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
    """Return an error if the name of a Service or a label would exceed 63 characters, else None."""
    names = (child_name(job.name, replica.type, max(replica.replicas - 1, 0)) for replica in spec.replicas.values())
    longest = max(names, key=len)
    excess = len(longest) - MAX_NAME_LENGTH
    if excess <= 0:
        return None
    text = (
        f"must be no more than {len(job.name) - excess} characters: the pod and Service of replica {longest} would have names "
        f"of {len(longest)} characters, and the maximum is {MAX_NAME_LENGTH}"
    )
    return Mistake("metadata.name", text)


BOUNDS: Final[tuple[Bound, ...]] = (total, child_names)
"""The limits of every cluster. The first one keeps the others fast."""
