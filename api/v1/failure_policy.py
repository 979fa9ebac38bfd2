"""Reads the fields of `runPolicy` about failures, node avoidance, and deadlines of start and progress. Pure.

The first rule that matches a failure applies. A rule has at most one matcher; without one it matches every failure of its
replica types, including disruptions. The limits on matchers are those of a batch/v1 Job's podFailurePolicy, and rule names
follow the pattern of JobSet's failure policy.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from tfjob_operator.api.meta import JSON
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import FailureReason, FinishedReplicaPolicy, RuleAction
from tfjob_operator.api.v1.reader import Path, Reader
from tfjob_operator.api.v1.types import (
    ConditionPattern,
    Escalation,
    ExitCodes,
    FailurePolicy,
    NodeAvoidance,
    Rule,
    TaintPattern,
)

MAX_RULES: Final = 20
MAX_VALUES: Final = 255
"""The most exit codes in a rule."""
MAX_ENTRIES: Final = 20
"""The most entries in any other list of a rule."""
_NAME: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_NAME: Final = 128
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STATUSES: Final = ("True", "False", "Unknown")

FAILURE_POLICY_FIELDS: Final = frozenset({"maxRestarts", "finishedReplicaPolicy", "rules"})
OTHER_FIELDS: Final = frozenset(
    {"nodeAvoidance", "nodeLostTimeoutSeconds", "startDeadlineSeconds", "progressDeadlineSeconds"}
)
"""Fields of `runPolicy` that are read here besides `failurePolicy`."""
_MATCHERS: Final = ("onExitCodes", "onPodConditions", "onFailureReasons", "onNodes")
RULE_FIELDS: Final = frozenset({"name", "action", "targetReplicaTypes", "escalation", *_MATCHERS})
NODE_AVOIDANCE_FIELDS: Final = frozenset({"failureThreshold", "expirationSeconds"})


def read_failure_policy(reader: Reader, value: object, path: str, types: Collection[str]) -> FailurePolicy:
    """Read `failurePolicy` of a job with these replica types."""
    fields = reader.mapping(value, path)
    reader.known(fields, FAILURE_POLICY_FIELDS, path)
    listed = fields.get("rules")
    rules: list[Rule] = []
    if not isinstance(listed, list):
        if listed is None:
            reader.error(f"{path}.rules", "Required value: at least one rule")
        else:
            reader.wrong_type(f"{path}.rules", "a list", listed)
        listed = []
    elif not 1 <= len(listed) <= MAX_RULES:
        reader.error(f"{path}.rules", f"must have 1 to {MAX_RULES} rules, not {len(listed)}")
    for number, each in enumerate(listed[:MAX_RULES]):
        rule = _read_rule(reader, each, Path(f"{path}.rules", number), number, types)
        if any(rule.name == other.name for other in rules):
            reader.error(Path(Path(f"{path}.rules", number), "name"), "Duplicate value: rule names must be unique")
        rules.append(rule)
    restarts = reader.integer(fields.get("maxRestarts"), f"{path}.maxRestarts", None)
    counted = [
        rule.name
        for rule in rules
        if RuleAction.RESTART_ALL in {rule.action, rule.escalation.action if rule.escalation else None}
    ]
    if counted and fields.get("maxRestarts") is None:
        reader.error(f"{path}.maxRestarts", f"Required value: rule {counted[0]} restarts the whole job")
    kept = reader.choice(fields.get("finishedReplicaPolicy"), f"{path}.finishedReplicaPolicy", FinishedReplicaPolicy)
    return FailurePolicy(tuple(rules), restarts, keeps_finished=kept is FinishedReplicaPolicy.KEEP)


def _read_rule(reader: Reader, value: object, path: Path, number: int, types: Collection[str]) -> Rule:
    if not isinstance(value, dict):
        reader.wrong_type(path, "an object", value)
        value = {"action": RuleAction.FAIL_JOB.value}
    reader.known(value, RULE_FIELDS, path)
    name = reader.text(value.get("name"), Path(path, "name")) or f"failurePolicyRule{number}"
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        text = "must start with a letter, contain only letters, digits, '_', ',' and ':', not end with ',' or ':', "
        reader.error(Path(path, "name"), f"{text}and have at most {_MAX_NAME} characters")
    action = reader.choice(value.get("action"), Path(path, "action"), RuleAction)
    if value.get("action") in {None, ""}:
        reader.error(Path(path, "action"), f"Required value: one of {', '.join(RuleAction)}")
    matchers = [matcher for matcher in _MATCHERS if value.get(matcher) is not None]
    if len(matchers) > 1:
        reader.error(path, f"Forbidden: {' and '.join(matchers)} cannot be used together; write a rule for each")
    escalation = _read_escalation(reader, value.get("escalation"), Path(path, "escalation"))
    if escalation is not None and action is not RuleAction.RESTART_REPLICA:
        reader.error(Path(path, "escalation"), f"Forbidden: only with action {RuleAction.RESTART_REPLICA.value}")
    nodes = value.get("onNodes")
    if nodes is not None and action is RuleAction.IGNORE:
        reader.error(Path(path, "action"), "Forbidden: Ignore cannot be used with onNodes")
    reasons = _read_reasons(reader, value.get("onFailureReasons"), Path(path, "onFailureReasons"))
    stall = FailureReason.PROGRESS_DEADLINE_EXCEEDED
    if stall in reasons and action in {RuleAction.RESTART_REPLICA, RuleAction.IGNORE}:
        reader.error(
            Path(path, "action"), f"Forbidden: {action} cannot be used with {stall}, which concerns the whole job"
        )
    fields = reader.mapping(nodes, Path(path, "onNodes"))
    if nodes is not None:
        reader.known(fields, {"conditions", "taints"}, Path(path, "onNodes"))
        if not (fields.get("conditions") or fields.get("taints")):
            reader.error(Path(path, "onNodes"), "Required value: at least one of conditions, taints")
    return Rule(
        name,
        action or RuleAction.FAIL_JOB,
        _read_targets(reader, value.get("targetReplicaTypes"), Path(path, "targetReplicaTypes"), types),
        _read_exit_codes(reader, value.get("onExitCodes"), Path(path, "onExitCodes")),
        _read_conditions(reader, value.get("onPodConditions"), Path(path, "onPodConditions")),
        reasons,
        _read_conditions(reader, fields.get("conditions"), Path(Path(path, "onNodes"), "conditions")),
        _read_taints(reader, fields.get("taints"), Path(Path(path, "onNodes"), "taints")),
        escalation,
    )


def _read_targets(reader: Reader, value: object, path: Path, types: Collection[str]) -> frozenset[str]:
    if value is None:
        return frozenset(types) - {c.EVALUATOR}
    canonical = {name.lower(): name for name in types}
    found = set()
    for each, at in _items(reader, value, path):
        name = canonical.get(each.lower()) if isinstance(each, str) else None
        if name is None:
            reader.unsupported(at, types)
        elif name in found:
            reader.error(at, "Duplicate value")
        else:
            found.add(name)
    return frozenset(found)


def _read_exit_codes(reader: Reader, value: object, path: Path) -> ExitCodes | None:
    if value is None:
        return None
    fields = reader.mapping(value, path)
    reader.known(fields, {"containerName", "operator", "values"}, path)
    operator = reader.text(fields.get("operator"), Path(path, "operator"))
    if operator not in {"In", "NotIn"}:
        reader.unsupported(Path(path, "operator"), ("In", "NotIn"))
    values: list[int] = []
    for each, at in _items(reader, fields.get("values"), Path(path, "values"), MAX_VALUES):
        code = reader.integer(each, at, 0) or 0
        if code == 0 and operator == "In":
            reader.error(at, "must not be 0 with operator In: exit code 0 is not a failure")
        if values and code <= values[-1]:
            reader.error(at, "must be larger than the value before it")
        values.append(code)
    container = reader.text(fields.get("containerName"), Path(path, "containerName"))
    return ExitCodes(frozenset(values), others=operator == "NotIn", container=container)


def _read_conditions(reader: Reader, value: object, path: Path) -> tuple[ConditionPattern, ...]:
    found = []
    for each, at in _items(reader, value, path) if value is not None else ():
        fields = reader.mapping(each, at)
        reader.known(fields, {"type", "status"}, at)
        kind = reader.text(fields.get("type"), Path(at, "type"))
        if not kind:
            reader.error(Path(at, "type"), "Required value")
        status = reader.text(fields.get("status"), Path(at, "status"), "True")
        if status not in _STATUSES:
            reader.unsupported(Path(at, "status"), _STATUSES)
        found.append(ConditionPattern(kind, status))
    return tuple(found)


def _read_reasons(reader: Reader, value: object, path: Path) -> frozenset[FailureReason]:
    found = set()
    for each, at in _items(reader, value, path) if value is not None else ():
        reason = reader.choice(each, at, FailureReason)
        if reason in found:
            reader.error(at, "Duplicate value")
        elif reason is not None:
            found.add(reason)
        elif not each:
            reader.unsupported(at, FailureReason)
    return frozenset(found)


def _read_taints(reader: Reader, value: object, path: Path) -> tuple[TaintPattern, ...]:
    found = []
    for each, at in _items(reader, value, path) if value is not None else ():
        fields = reader.mapping(each, at)
        reader.known(fields, {"key", "value", "effect"}, at)
        key = reader.text(fields.get("key"), Path(at, "key"))
        if not key:
            reader.error(Path(at, "key"), "Required value")
        effect = reader.text(fields.get("effect"), Path(at, "effect"))
        if effect not in {"", *_EFFECTS}:
            reader.unsupported(Path(at, "effect"), _EFFECTS)
        found.append(TaintPattern(key, reader.text(fields.get("value"), Path(at, "value")), effect))
    return tuple(found)


def _read_escalation(reader: Reader, value: object, path: Path) -> Escalation | None:
    if value is None:
        return None
    fields = reader.mapping(value, path)
    reader.known(fields, {"afterSeconds", "action"}, path)
    after_s = _positive(reader, fields.get("afterSeconds"), Path(path, "afterSeconds"))
    if fields.get("afterSeconds") is None:
        reader.error(Path(path, "afterSeconds"), "Required value")
    action = reader.text(fields.get("action"), Path(path, "action"))
    if action not in {RuleAction.RESTART_ALL, RuleAction.FAIL_JOB}:
        reader.unsupported(Path(path, "action"), (RuleAction.RESTART_ALL, RuleAction.FAIL_JOB))
        action = RuleAction.FAIL_JOB
    return Escalation(after_s or 1, RuleAction(action))


def _items(reader: Reader, value: object, path: Path, most: int = MAX_ENTRIES) -> Iterator[tuple[object, Path]]:
    """Yield the items of a non-empty list with their paths, up to `most` of them."""
    if not isinstance(value, list):
        reader.wrong_type(path, "a list", value)
    elif not 1 <= len(value) <= most:
        reader.error(path, f"must have 1 to {most} items, not {len(value)}")
    else:
        for number, each in enumerate(value):
            yield each, Path(path, number)


def _positive(reader: Reader, value: object, path: Path | str) -> int | None:
    """Return an integer of at least 1; None if absent or null."""
    found = reader.integer(value, path, None)
    if found == 0:
        reader.error(path, "must be greater than 0")
    return found or None


def read_other_fields(reader: Reader, fields: JSON, path: str) -> dict[str, Any]:
    """Read the fields OTHER_FIELDS of `runPolicy`; return their values by the field names of `TFJobSpec`."""
    lost_s = reader.integer(fields.get("nodeLostTimeoutSeconds"), f"{path}.nodeLostTimeoutSeconds", None)
    if lost_s is not None and 0 < lost_s < c.MIN_NODE_LOST_TIMEOUT_S:
        reader.error(f"{path}.nodeLostTimeoutSeconds", f"must be 0 (never) or at least {c.MIN_NODE_LOST_TIMEOUT_S}")
    progress_s = reader.integer(fields.get("progressDeadlineSeconds"), f"{path}.progressDeadlineSeconds", None)
    if progress_s is not None and progress_s < c.MIN_PROGRESS_DEADLINE_S:
        reader.error(f"{path}.progressDeadlineSeconds", f"must be at least {c.MIN_PROGRESS_DEADLINE_S}")
    return {
        "node_avoidance": _read_node_avoidance(reader, fields.get("nodeAvoidance"), f"{path}.nodeAvoidance"),
        "node_lost_timeout_s": lost_s,
        "start_deadline_s": _positive(reader, fields.get("startDeadlineSeconds"), f"{path}.startDeadlineSeconds"),
        "progress_deadline_s": progress_s,
    }


def _read_node_avoidance(reader: Reader, value: object, path: str) -> NodeAvoidance | None:
    if value is None:
        return None
    fields = reader.mapping(value, path)
    reader.known(fields, NODE_AVOIDANCE_FIELDS, path)
    threshold = _positive(reader, fields.get("failureThreshold"), f"{path}.failureThreshold")
    expiration_s = _positive(reader, fields.get("expirationSeconds"), f"{path}.expirationSeconds")
    usual = NodeAvoidance()
    return NodeAvoidance(threshold or usual.threshold, expiration_s or usual.expiration_s)


_TRUE_IF_HEALTHY: Final = re.compile(r".*(?<!Not)(Ready|Healthy)")
_FALSE_IF_HEALTHY: Final = re.compile(
    r".*(Pressure|Unavailable|Unhealthy|NotReady|Problem|Deadlock|Error|OutOfDisk|ReadonlyFilesystem)|Frequent\w+|Corrupt\w+"
)
"""Types of conditions set by kubelets, the node problem detector and its likes, and what they are on a healthy node."""
_ROLE: Final = "node-role.kubernetes.io/"


def matches_of_healthy_nodes(policy: FailurePolicy, templates: Mapping[str, JSON]) -> Iterator[tuple[str, str]]:
    """Yield rules that probably match healthy nodes, with the reason. `templates` are the pod templates by replica type."""
    for rule in policy.rules:
        for kind, status in rule.node_conditions:
            healthy = (
                "True" if _TRUE_IF_HEALTHY.fullmatch(kind) else "False" if _FALSE_IF_HEALTHY.fullmatch(kind) else ""
            )
            if status == healthy:
                yield rule.name, f"the condition {kind} is {status} there"
        for taint in rule.node_taints:
            tolerating = sorted(each for each in rule.targets & templates.keys() if _expects(templates[each], taint))
            if taint.key.startswith(_ROLE):
                yield rule.name, f"the taint {taint.key} names a role of nodes"
            elif tolerating:
                yield rule.name, f"the pods of {', '.join(tolerating)} tolerate the taint {taint.key}"


def _expects(template: JSON, taint: TaintPattern) -> bool:
    """Return True if pods of a template are meant for nodes with this taint: they may be scheduled there."""
    spec: Any = template.get("spec") or {}
    return taint.effect in {"", "NoSchedule"} and any(
        toleration.get("key") == taint.key
        and toleration.get("effect") in {None, "", "NoSchedule"}
        and (toleration.get("operator") == "Exists" or taint.value in {"", toleration.get("value")})
        for toleration in spec.get("tolerations") or ()
    )


def check_against_templates(
    reader: Reader, policy: FailurePolicy, path: str, templates: Mapping[str, tuple[Collection[str], bool]]
) -> None:
    """Check exit code rules against the templates.

    `templates` has, for each replica type, all container names, and whether a container has restart rules.
    """
    for number, rule in enumerate(policy.rules):
        if rule.exit_codes is None:
            continue
        at, name = Path(f"{path}.rules", number), rule.exit_codes.container
        found = [templates[kind] for kind in rule.targets if kind in templates]
        if name and found and not any(name in containers for containers, _ in found):
            text = "must be a container of the pod template of at least one of the targeted replica types"
            reader.error(Path(Path(at, "onExitCodes"), "containerName"), text)
        restarting = sorted(kind for kind in rule.targets if kind in templates and templates[kind][1])
        if restarting:
            text = f"containers of {', '.join(restarting)} have restart policies of their own, and the kubelet restarts them"
            reader.error(Path(at, "onExitCodes"), f"Forbidden: {text}")
