"""How failure policies and the other fields about failures are read: each mistake by its path, all at once."""

from typing import Any

import msgspec
import pytest

from fakes.jobs import replica, template
from tfjob_operator.api.v1.constants import FailureReason, RuleAction
from tfjob_operator.api.v1.types import (
    ConditionPattern,
    Escalation,
    ExitCodes,
    FailurePolicy,
    InvalidSpec,
    NodeAvoidance,
    Rule,
    TaintPattern,
    TFJobSpec,
)
from tfjob_operator.api.v1.validation import read_spec

PATH = "spec.runPolicy.failurePolicy"
FAIL: dict[str, Any] = {"action": "FailJob"}


def read(policy: dict[str, Any], **types: dict[str, Any]) -> TFJobSpec | InvalidSpec:
    """Read a specification of chief, workers and evaluator, or of these types, with this run policy."""
    usual = {name: replica() for name in ("Chief", "worker", "Evaluator")}
    spec = {"runPolicy": policy, "tfReplicaSpecs": types or usual}
    return read_spec("job", msgspec.Raw(msgspec.json.encode(spec)))


def policy_of(*rules: dict[str, Any], **more: Any) -> FailurePolicy:
    """Read a valid failure policy with these rules."""
    found = read({"failurePolicy": {"rules": [*rules], **more}})
    assert isinstance(found, TFJobSpec)
    assert found.failure_policy is not None
    return found.failure_policy


def test_a_policy_is_read_with_its_defaults() -> None:
    """Rules are named as JobSet's webhook names them, and concern every replica type but the evaluator."""
    policy = policy_of(
        {"name": "bad_data", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [3, 42]}},
        {"action": "RestartAll", "onPodConditions": [{"type": "DisruptionTarget"}], "targetReplicaTypes": ["WORKER"]},
        {"action": "RestartReplica", "escalation": {"afterSeconds": 60, "action": "RestartAll"}},
        {"action": "RestartAllAndIgnoreMaxRestarts", "onNodes": {"taints": [{"key": "gpu"}], "conditions": [{"type": "Xid"}]}},
        {"action": "Ignore", "onFailureReasons": ["Evicted", "NodeLost"]},
        maxRestarts=2,
        finishedReplicaPolicy="Keep",
    )  # fmt: skip
    most = frozenset({"Chief", "Worker"})
    true = ConditionPattern("DisruptionTarget", "True")
    assert policy == FailurePolicy(
        (
            Rule("bad_data", RuleAction.FAIL_JOB, most, ExitCodes(frozenset({3, 42}))),
            Rule("failurePolicyRule1", RuleAction.RESTART_ALL, frozenset({"Worker"}), pod_conditions=(true,)),
            Rule("failurePolicyRule2", RuleAction.RESTART_REPLICA, most, escalation=Escalation(60, RuleAction.RESTART_ALL)),
            Rule("failurePolicyRule3", RuleAction.RESTART_ALL_UNCOUNTED, most,
                 node_conditions=(ConditionPattern("Xid", "True"),), node_taints=(TaintPattern("gpu"),)),
            Rule("failurePolicyRule4", RuleAction.IGNORE, most,
                 reasons=frozenset({FailureReason.EVICTED, FailureReason.NODE_LOST})),
        ),
        max_restarts=2,
        keeps_finished=True,
    )  # fmt: skip


def test_the_other_fields_are_read_with_their_defaults() -> None:
    fields = {
        "nodeAvoidance": {},
        "nodeLostTimeoutSeconds": 60,
        "startDeadlineSeconds": 1,
        "progressDeadlineSeconds": 60,
        "completionGracePeriodSeconds": 0,
    }
    spec = read(fields)
    assert isinstance(spec, TFJobSpec)
    assert (spec.node_avoidance, spec.node_lost_timeout_s) == (NodeAvoidance(1, 3600), 60)
    assert (spec.start_deadline_s, spec.progress_deadline_s, spec.completion_grace_s) == (1, 60, 0)
    nothing = read({})
    assert isinstance(nothing, TFJobSpec)
    assert (nothing.node_avoidance, nothing.node_lost_timeout_s, nothing.start_deadline_s) == (None, None, None)
    assert nothing.progress_deadline_s is None


CODES = {"operator": "In", "values": [1]}
NAMES = "must start with a letter, contain only letters, digits, '_', ',' and ':', not end with ',' or ':', and have at most"
SUPPORTED = "Unsupported value: supported values: "
RESTART: dict[str, Any] = {"action": "RestartReplica"}
ALL = {"afterSeconds": 1, "action": "RestartAll"}


def codes(**fields: Any) -> dict[str, Any]:
    """A rule about exit codes with these fields."""
    return FAIL | {"onExitCodes": CODES | fields}


def taint(**fields: str) -> dict[str, Any]:
    """A rule about a taint with these fields."""
    return FAIL | {"onNodes": {"taints": [fields]}}


def condition(**fields: str) -> dict[str, Any]:
    """A rule about a condition of pods with these fields."""
    return FAIL | {"onPodConditions": [fields]}


MISTAKES_OF_RULES: dict[str, Any] = {
    "must be an object, not null": None,
    "action: Required value: one of FailJob, RestartAll, RestartAllAndIgnoreMaxRestarts, RestartReplica, Ignore": {},
    f'action: {SUPPORTED}"FailJob", "RestartAll", "RestartAllAndIgnoreMaxRestarts"': {"action": "RestartJob"},
    "action: Forbidden: Ignore cannot be used with onNodes": taint(key="a") | {"action": "Ignore"},
    f"name: {NAMES}": FAIL | {"name": "a,"},
    f"name: {NAMES} 128 characters": FAIL | {"name": "a" * 129},
    "Forbidden: onExitCodes and onPodConditions cannot be used together; write a rule for each": codes()
    | condition(type="a"),
    "escalation: Forbidden: only with action RestartReplica": FAIL | {"escalation": ALL | {"action": "FailJob"}},
    "escalation.afterSeconds: must be greater than 0": RESTART
    | {"escalation": {"afterSeconds": 0, "action": "FailJob"}},
    "escalation.afterSeconds: Required value": RESTART | {"escalation": {"action": "FailJob"}},
    f'escalation.action: {SUPPORTED}"RestartAll", "FailJob"': RESTART | {"escalation": ALL | {"action": "Ignore"}},
    "onNodes: Required value: at least one of conditions, taints": FAIL | {"onNodes": {}},
    "onNodes.taints[0].key: Required value": taint(effect="NoExecute"),
    f'onNodes.taints[0].effect: {SUPPORTED}"NoSchedule", "PreferNoSchedule", "NoExecute"': taint(
        key="a", effect="None"
    ),
    f'targetReplicaTypes[0]: {SUPPORTED}"Chief", "Worker", "Evaluator"': FAIL | {"targetReplicaTypes": ["PS"]},
    "targetReplicaTypes[1]: Duplicate value": FAIL | {"targetReplicaTypes": ["Worker", "worker"]},
    "targetReplicaTypes: must have 1 to 20 items, not 0": FAIL | {"targetReplicaTypes": []},
    f'onExitCodes.operator: {SUPPORTED}"In", "NotIn"': codes(operator="Exists"),
    "onExitCodes.values: must have 1 to 255 items, not 0": codes(values=[]),
    "onExitCodes.values: must have 1 to 255 items, not 256": codes(values=[*range(1, 257)]),
    "onExitCodes.values[0]: must not be 0 with operator In: exit code 0 is not a failure": codes(values=[0]),
    "onExitCodes.values[1]: must be larger than the value before it": codes(values=[2, 2]),
    "onExitCodes.containerName: must be a container of the pod template of at least one": codes(
        containerName="sidecar"
    ),
    "onPodConditions[0].type: Required value": condition(status="True"),
    f'onPodConditions[0].status: {SUPPORTED}"True", "False", "Unknown"': condition(type="a", status="Maybe"),
    f'onFailureReasons[0]: {SUPPORTED}"OOMKilled", "Evicted", "DeadlineExceeded"': FAIL
    | {"onFailureReasons": ["Oops"]},
    "action: Forbidden: RestartReplica cannot be used with ProgressDeadlineExceeded, which concerns the whole job": RESTART
    | {"onFailureReasons": ["ProgressDeadlineExceeded"]},
    "action: Forbidden: Ignore cannot be used with ProgressDeadlineExceeded, which concerns the whole job": {
        "action": "Ignore",
        "onFailureReasons": ["Evicted", "ProgressDeadlineExceeded"],
    },
    "onFailureReasons[1]: Duplicate value": FAIL | {"onFailureReasons": ["Evicted", "Evicted"]},
}
MISTAKES: dict[str, dict[str, Any]] = {
    "failurePolicy.rules: Required value: at least one rule": {"failurePolicy": {}},
    "failurePolicy.rules: must be a list, not an object": {"failurePolicy": {"rules": {}}},
    "failurePolicy.rules: must have 1 to 20 rules, not 0": {"failurePolicy": {"rules": []}},
    "failurePolicy.rules: must have 1 to 20 rules, not 21": {"failurePolicy": {"rules": [FAIL] * 21}},
    "failurePolicy.rules[1].name: Duplicate value: rule names must be unique": {
        "failurePolicy": {"rules": [FAIL | {"name": "a"}] * 2}
    },
    "failurePolicy.maxRestarts: Required value: rule failurePolicyRule0 restarts the whole job": {
        "failurePolicy": {"rules": [RESTART | {"escalation": ALL}]}
    },
    f'failurePolicy.finishedReplicaPolicy: {SUPPORTED}"Restart", "Keep"': {
        "failurePolicy": {"rules": [FAIL], "finishedReplicaPolicy": "Drop"}
    },
    "nodeLostTimeoutSeconds: must be 0 (never) or at least 60": {"nodeLostTimeoutSeconds": 59},
    "startDeadlineSeconds: must be greater than 0": {"startDeadlineSeconds": 0},
    "progressDeadlineSeconds: must be at least 60": {"progressDeadlineSeconds": 59},
    "progressDeadlineSeconds: must be a non-negative integer, not": {"progressDeadlineSeconds": "600"},
    "nodeAvoidance.failureThreshold: must be greater than 0": {"nodeAvoidance": {"failureThreshold": 0}},
    "nodeAvoidance.expirationSeconds: must be greater than 0": {"nodeAvoidance": {"expirationSeconds": 0}},
    "completionGracePeriodSeconds: must be a non-negative integer, not": {"completionGracePeriodSeconds": -1},
}


@pytest.mark.parametrize("mistake", MISTAKES_OF_RULES)
def test_a_mistake_in_a_rule_names_its_field(mistake: str) -> None:
    found = read({"failurePolicy": {"rules": [MISTAKES_OF_RULES[mistake]]}})
    assert isinstance(found, InvalidSpec)
    text = str(found.mistakes[0]).removeprefix(f"{PATH}.rules[0]").lstrip(".: ")
    assert text.startswith(mistake)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_another_field_names_it(mistake: str) -> None:
    found = read(MISTAKES[mistake])
    assert isinstance(found, InvalidSpec)
    (only,) = found.mistakes
    assert str(only).startswith(f"spec.runPolicy.{mistake}")


def test_exit_codes_cannot_be_matched_where_containers_restart_by_rules_of_their_own() -> None:
    """Nobody sees an exit code that the kubelet restarts. Other matchers, and other types, are not concerned."""
    ruled = replica()
    ruled["template"]["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": []}
    policy = {"rules": [codes()]}
    found = read({"failurePolicy": policy}, Worker=ruled, PS=replica())
    assert isinstance(found, InvalidSpec)
    text = "Forbidden: containers of Worker have restart policies of their own, and the kubelet restarts them"
    assert [str(each) for each in found.mistakes] == [f"{PATH}.rules[0].onExitCodes: {text}"]
    for rule in (FAIL, codes() | {"targetReplicaTypes": ["PS"]}):
        assert isinstance(read({"failurePolicy": {"rules": [rule]}}, Worker=ruled, PS=replica()), TFJobSpec)


def test_all_mistakes_are_reported_at_once() -> None:
    found = read({"failurePolicy": {"rules": [{"name": "1"}, {"action": "RestartAll"}]}, "startDeadlineSeconds": 0})
    assert isinstance(found, InvalidSpec)
    assert len(found.mistakes) == 4
    found = read({"backoffLimit": -1, "failurePolicy": {"rules": [codes(containerName="sidecar")]}})
    assert isinstance(found, InvalidSpec)
    assert len(found.mistakes) == 2, "also what depends on the templates, if these can be read"
    found = read({"failurePolicy": {"rules": [{"action": "RestartAll"}], "maxRestart": 2}})
    assert isinstance(found, InvalidSpec)
    assert "maxRestart: unknown field is ignored; did you mean maxRestarts?" in found.text
    found = read({"backoffLimit": -1, "limit: of all": 2})
    assert isinstance(found, InvalidSpec)
    assert [each.path for each in found.mistakes] == ["spec.runPolicy.backoffLimit", "spec.runPolicy.limit: of all"]
    found = read({"backoffLimit": -1} | {f"field{number}": 1 for number in range(30)})
    assert isinstance(found, InvalidSpec)
    assert len(found.mistakes) + found.more == 31


@pytest.mark.parametrize(
    ("container", "code", "matches"),
    [("tensorflow", 42, True), ("tensorflow", 41, False), ("other", 42, False), ("tensorflow", 0, False)],
)
def test_exit_codes_match_in_one_container_and_0_never_does(container: str, code: int, matches: bool) -> None:
    """As batch Job's podFailurePolicy: NotIn is not the contrary of In for 0."""
    values = frozenset({42})
    assert ExitCodes(values, container="tensorflow").matches(container, code) is matches
    assert ExitCodes(values, others=True).matches(container, code) is (code not in {0, 42})


def test_a_rule_that_never_decides_is_named_with_the_one_before_it() -> None:
    evaluator = {"targetReplicaTypes": ["Evaluator"]}
    evicted = {"onFailureReasons": ["Evicted"]}
    rules = [codes(), codes() | evaluator, codes() | {"action": "Ignore"}, FAIL, FAIL | evicted, taint(key="a")]
    names = [{"name": name} | rule for name, rule in zip("abcdef", rules, strict=True)]
    assert [*policy_of(*names).unreachable()] == [("c", "a"), ("e", "d")]


@pytest.mark.parametrize(
    ("on_nodes", "why"),
    [
        ({"conditions": [{"type": "Ready"}]}, "the condition Ready is True there"),
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, ""),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, ""),
        (
            {"conditions": [{"type": "AcceleratedHardwareReady"}]},
            "the condition AcceleratedHardwareReady is True there",
        ),
        ({"conditions": [{"type": "example.com/GpuHealthy"}]}, "the condition example.com/GpuHealthy is True there"),
        ({"conditions": [{"type": "NotReady"}, {"type": "GpuUnhealthy"}, {"type": "Sick"}]}, ""),
        ({"conditions": [{"type": "Sick", "status": "False"}]}, ""),
        (
            {"conditions": [{"type": "MemoryPressure", "status": "False"}]},
            "the condition MemoryPressure is False there",
        ),
        ({"conditions": [{"type": "MemoryPressure", "status": "Unknown"}]}, ""),
        ({"conditions": [{"type": "GpuUnhealthy", "status": "False"}]}, "the condition GpuUnhealthy is False there"),
        (
            {"conditions": [{"type": "KernelDeadlock", "status": "False"}]},
            "the condition KernelDeadlock is False there",
        ),
        ({"conditions": [{"type": "Sick"}], "taints": [{"key": "gpu"}]}, "the pods of Worker tolerate the taint gpu"),
        ({"taints": [{"key": "gpu", "value": "yes"}]}, "the pods of Worker tolerate the taint gpu"),
        ({"taints": [{"key": "gpu", "value": "broken"}]}, ""),
        ({"taints": [{"key": "gpu", "effect": "NoExecute"}]}, ""),
        ({"taints": [{"key": "unhealthy"}]}, ""),
        (
            {"taints": [{"key": "node-role.kubernetes.io/control-plane"}]},
            "the taint node-role.kubernetes.io/control-plane names a role of nodes",
        ),
    ],
    ids=str,
)
def test_a_rule_that_matches_healthy_nodes_is_a_warning(on_nodes: dict[str, Any], why: str) -> None:
    """Conditions that are True there, or False, and taints of the nodes for which the pods are meant."""
    tolerations = [
        {"operator": "Exists"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "unhealthy", "operator": "Exists", "effect": "NoExecute"},
    ]
    rule = FAIL | {"name": "sick", "onNodes": on_nodes}
    worker = replica(template=template(tolerations=tolerations))
    found = read({"failurePolicy": {"rules": [rule]}}, Worker=worker, PS=replica())
    assert isinstance(found, TFJobSpec)
    text = f"spec.runPolicy.failurePolicy.rules: rule sick matches healthy nodes too: {why}"
    assert found.warnings == ((("FailureRuleMatchesHealthyNodes", text),) if why else ())


@pytest.mark.parametrize(
    ("field", "reason"),
    [("startDeadlineSeconds", "StartDeadlineExceeded"), ("progressDeadlineSeconds", "ProgressDeadlineExceeded")],
)
def test_a_rule_about_a_deadline_that_is_not_set_is_a_warning(field: str, reason: str) -> None:
    rule = {"name": "late", "action": "RestartAll", "onFailureReasons": ["OOMKilled", reason]}
    policy = {"maxRestarts": 1, "rules": [rule]}
    found, unset = (
        read({"failurePolicy": policy} | deadline, Worker=replica()) for deadline in ({field: 600}, dict[str, int]())
    )
    assert isinstance(found, TFJobSpec)
    assert isinstance(unset, TFJobSpec)
    text = f"spec.runPolicy.failurePolicy.rules: rule late never matches {reason}: spec.runPolicy.{field} is not set"
    assert (found.warnings, unset.warnings) == ((), (("FailureRuleWithoutDeadline", text),))


def test_what_is_hardly_meant_is_a_warning() -> None:
    policy = {"rules": [FAIL | {"name": "a"}, FAIL | {"name": "b"}]}
    found = read({"failurePolicy": policy}, Chief=replica(), Worker=replica(1, "OnFailure"))
    assert isinstance(found, TFJobSpec)
    assert [each.reason for each in found.warnings] == ["FailureRuleUnreachable", "PodRestartPolicyNever"]
    assert "rule b" in found.warnings[0].message
