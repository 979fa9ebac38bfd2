"""Invalid, rejected and suspicious specs, with the operator's messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    EVALUATOR,
    PS,
    TF_CONFIG,
    WAS_REJECTED,
    ConditionReason,
    ConditionType,
    EventReason,
    Network,
)
from tfjob_operator.api.v1.tf_config import process_count, too_long
from tfjob_operator.api.v1.types import InvalidSpec, JobCondition, Mistake, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS, queue_warnings
from tfjob_operator.cli.diagnosis import refining
from tfjob_operator.cli.diagnosis.advice import CREATE_RENAMED, DELETE_RENAMED, DESCRIBE_JOB, RESTART, SAVE
from tfjob_operator.cli.diagnosis.causes import (
    Finding,
    ManifestChange,
    Problem,
    WhileRunning,
    error,
    info,
    warning,
)
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rows import of_job
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.model.command_lines import command_of, ignored_arguments, loopback_clusters, process_counts
from tfjob_operator.cli.model.facts import mapping, text
from tfjob_operator.cli.model.replica_names import REPLICA_TYPES, replica_of
from tfjob_operator.cli.model.words import failed_line, quote, safe_name


def _invalid(id_: str, title: str, fix: str, meaning: str) -> Problem:
    return error(id_, f"Invalid spec: {title}", meaning, ManifestChange(fix))


def _renamed(id_: str, title: str, fix: str, meaning: str) -> Problem:
    save = f"Save the manifest, then in the file {fix}: {SAVE}"
    return error(id_, f"Invalid spec: {title}", meaning, save, CREATE_RENAMED, DELETE_RENAMED)


TF_CONFIG_TOO_LONG: Final = _invalid(
    "tf-config-too-long",
    "TF_CONFIG would exceed the size that Linux allows for an environment variable",
    "use fewer replicas, or set spec.enableDynamicWorker to true",
    "TF_CONFIG, which names all replicas, would have more than 131,071 bytes",
)
NAME_TOO_LONG: Final = _renamed(
    "name-too-long",
    "metadata.name is too long for the names of Services",
    "shorten metadata.name",
    "The name of a replica's Service would have more than 63 characters",
)
NAME_INVALID: Final = _renamed(
    "name-invalid",
    "metadata.name is not a valid name for pods and Services",
    "change metadata.name to lower-case letters, digits and '-', starting with a letter",
    "The job's name is not a DNS label",
)
TOO_MANY_REPLICAS: Final = _invalid(
    "too-many-replicas", "more replicas than a job may have", "use fewer replicas", "More than 10,000 replicas"
)
ALPHA_FORM: Final = _invalid(
    "alpha-form",
    "spec.replicaSpecs (v1alpha1) is not served by this operator",
    "write the replicas as spec.tfReplicaSpecs (the command convert of this plugin does it)",
    "A v1alpha1 manifest where only v1 is served",
)
NO_CHIEF: Final = _invalid(
    "chief-missing",
    "the replica that decides how the job ends is missing",
    "add an entry with tfReplicaType MASTER, or name another replica in spec.terminationPolicy.chief",
    "An alpha job without its chief: MASTER 0 unless terminationPolicy.chief names another",
)
NO_CONTAINER: Final = _invalid(
    "container-name",
    "no container of a replica is named tensorflow",
    "rename the training container to tensorflow",
    "A template without a container named tensorflow",
)
NO_REPLICA_SPECS: Final = _invalid(
    "replica-specs-missing",
    "spec.tfReplicaSpecs is missing",
    "add at least one of Chief, Master, Worker, PS, Evaluator to spec.tfReplicaSpecs",
    "spec.tfReplicaSpecs is missing or empty",
)
REPLICA_TYPE: Final = _invalid(
    "replica-type-unknown",
    "{mistake}",
    "rename the key in spec.tfReplicaSpecs to Chief, Master, Worker, PS or Evaluator",
    "A key of spec.tfReplicaSpecs is not a replica type",
)
TEMPLATE_REFUSED: Final = _invalid(
    "template-refused",
    "the API server rejected a pod or Service of the job: {mistake}",
    "correct the field of the pod template that the message names",
    "The API server rejects a template, for example a volumeMount without its volume",
)
INVALID: Final = _invalid(
    "spec-invalid", "{mistake}", "correct the field that the message names", "Any other invalid field"
)
HELD_INVALID: Final = error(
    "held-invalid",
    "The job is on hold: {cause}; running pods continue, none is created or replaced",
    "A running job was edited and its spec became invalid, or another operator started it with a spec that is invalid here",
    ManifestChange("correct what is named; running pods continue", recreate=False),
)
_HELD_TYPES: Final = (
    ManifestChange(
        "correct what is named; running pods continue, except those of {types}: they are deleted when the type is renamed or "
        "removed, and what they did since their last checkpoint is lost",
        recreate=False,
    ),
    "Or let training-operator finish the job: see the way back in kubectl tfjob migrate --plan",
)
_HELD_TYPES_HERE: Final = (_HELD_TYPES[0], f"{_HELD_TYPES[1]} --namespace={{namespace}}")
NOT_OURS: Final = warning(
    "invalid-here",
    "tfjob-operator would put the job on hold, which another operator runs: {mistake}",
    "The spec is invalid, but pods of the job run, and it is not on hold: training-operator accepts more",
    "Let the job finish before a move to tfjob-operator, or correct it in a new job: a replica type that is renamed in this "
    "one starts anew, and its running pods are lost",
    "See what else would change for it: kubectl tfjob migrate --check --namespace={namespace}",
)
HELD_REFUSED: Final = error(
    "held-refused",
    "The job is on hold: the API server rejects its new pods or Services; running pods continue, and the job does not finish",
    "The API server rejects the template of a running job, after an edit or in a job that another operator started",
    ManifestChange(
        "correct the field that the message names; then missing pods are created, and running pods continue",
        recreate=False,
    ),
)
HELD_TOO_LARGE: Final = warning(
    "held-too-large",
    "The job keeps its current size: the requested size exceeds a limit",
    "A running job was scaled beyond a limit (10,000 replicas, names, TF_CONFIG)",
    ManifestChange("lower replicas", recreate=False),
)
ON_HOLD: Final = frozenset({HELD_INVALID.id, HELD_REFUSED.id})
"""The problems of jobs whose pods are not recreated; one that is too large still runs, at its current size."""
NO_REPLICAS: Final = error(
    "no-replicas",
    "All replica types have replicas: 0; nothing runs and the job does not finish",
    "All replica types have replicas: 0",
    "Set replicas to COUNT, the number of workers: kubectl -n {namespace} scale tfjob {job} --replicas=COUNT",
    "For other replica types: kubectl -n {namespace} edit tfjob {job}",
)
OWN_TF_CONFIG: Final = warning(
    "tf-config-equal",
    "TF_CONFIG is set in the template of {types}, so all {size} replicas have the same task index",
    "env of a template sets TF_CONFIG to a constant, and several replicas are made from it; or it sets the number of processes "
    "of Keras 3 or JAX to another one than the job has",
    ManifestChange("remove TF_CONFIG from env of the template: the operator sets it for each replica", recreate=False),
    WhileRunning(f"Then restart all pods; work since their last checkpoint is lost: {RESTART}"),
    rank=905,
)
_LOOPBACK: Final = (
    "TF_CONFIG in the template of {types} has addresses of localhost, where no other of {size} replicas is"
)
_OWN_COUNT: Final = "{variables} in the template of {types}, but the job has {size} processes"
ONLY_PS: Final = warning(
    "only-parameter-servers",
    "The job has parameter servers only, which never exit, so it does not finish",
    "PS is the only replica type with replicas",
    ManifestChange("add a Chief or a Worker to spec.tfReplicaSpecs", recreate=False),
    rank=906,
)
NOTHING_TRAINS: Final = warning(
    "nothing-trains",
    "Nothing trains: {types} scaled to 0, and only {others} has replicas",
    "Chief, Master and Worker have replicas: 0, and PS or Evaluator has replicas",
    "Set replicas to COUNT, the number of workers: kubectl -n {namespace} scale tfjob {job} --replicas=COUNT",
    "For other replica types: kubectl -n {namespace} edit tfjob {job}",
    rank=908,
)
ARGUMENTS_IGNORED: Final = warning(
    "script-arguments-ignored",
    "{shell} -c runs {program} without arguments, and ignores {arguments} ({types})",
    "The command is sh -c with the words of a command line as separate arguments, such as sh, -c, python3, train.py: only the "
    "first one is the script, and Python without a script ends with exit code 0",
    ManifestChange("write the script of {shell} -c in command and args as one string, or leave out {shell} -c"),
    rank=904,
)
NETWORK_FIXED: Final = warning(
    "network-not-updated",
    "spec.runPolicy.network was edited after the start: the job keeps the network {network}",
    "The network of a started job cannot change; its pods have names and Services of the former one",
    ManifestChange("restore spec.runPolicy.network, or use the other network in a new job", recreate=False),
    rank=907,
)
UNKNOWN_FIELD: Final = warning(
    "field-unknown",
    "Unknown field, ignored: {mistake}",
    "A field that is not part of the API, most likely misspelled",
    ManifestChange("correct the name of the field, or remove it", recreate=False),
    WhileRunning(f"If existing pods need it, recreate them; work since their last checkpoint is lost: {RESTART}"),
    rank=900,
)
CONFLICT: Final = warning(
    "run-policy-conflict",
    "spec and spec.runPolicy have different values; runPolicy is used",
    "A policy is set in spec and in spec.runPolicy, with different values",
    ManifestChange("remove one of the two values", recreate=False),
    rank=901,
)
NOT_QUEUED: Final = warning(
    "kueue-replicas-not-counted",
    "{mistake}",
    "A replica type in a spelling that Kueue does not know, such as ps",
    ManifestChange("spell the replica types as Kueue does", recreate=False),
    rank=903,
)
RULE_MISSPELLED: Final = error(
    "rule-misspelled",
    "Rule {rule} of the failure policy has no matcher, so it matches every failure: {mistake}",
    "A rule without a matcher ended the job, and one of its fields is unknown, most likely a misspelled matcher",
    ManifestChange("correct the name of the field", recreate=False),
    rank=699,
)
NO_WORKERS: Final = warning(
    "no-workers-to-scale",
    "The job was scaled, but it has no workers",
    "kubectl scale, or an autoscaler, of a job without workers",
    "Remove the Worker entry, which has nothing but a number: kubectl -n {namespace} patch tfjob {job} --type=json "
    '--patch=\'[{{"op":"remove","path":"/spec/tfReplicaSpecs/Worker"}}]\'',
    rank=902,
)
POLICY_OVERRIDDEN: Final = info(
    "restart-policy-overridden",
    "restartPolicy of the pod template is ignored: that of the replica applies",
    "Replica and template have different restart policies",
    ManifestChange("remove restartPolicy from the template, unless you rely on it elsewhere", recreate=False),
)
ALWAYS: Final = info(
    "restart-policy-always",
    "restartPolicy Always of a template is not allowed for Jobs: OnFailure is used",
    "An alpha template with restartPolicy: Always",
    ManifestChange("set restartPolicy of the template to OnFailure or Never", recreate=False),
)
RULE_UNREACHABLE: Final = warning(
    "failure-rule-unreachable",
    "Failure rule without effect: {mistake}",
    "A rule of the failure policy stands behind one that matches all that it does",
    ManifestChange(
        "move the rule in spec.runPolicy.failurePolicy.rules before the other, or remove it", recreate=False
    ),
    rank=904,
)
RULE_OF_HEALTHY_NODES: Final = warning(
    "failure-rule-matches-healthy-nodes",
    "Failure rule that restarts pods of healthy nodes: {mistake}",
    "onNodes of a rule has a condition that healthy nodes have too, or a taint that the pods tolerate",
    ManifestChange(
        "in onNodes of this rule in spec.runPolicy.failurePolicy.rules, use the status that only unhealthy nodes have, such as "
        "Unknown for Ready, or a taint that only they have",
        recreate=False,
    ),
    rank=903,
)
RULE_WITHOUT_DEADLINE: Final = warning(
    "failure-rule-without-deadline",
    "Failure rule without effect: {mistake}",
    "A rule of the failure policy names StartDeadlineExceeded or ProgressDeadlineExceeded, and the job has no such deadline",
    ManifestChange(
        "set startDeadlineSeconds or progressDeadlineSeconds in spec.runPolicy, or remove the reason from the rule",
        recreate=False,
    ),
    rank=905,
)
NEVER_RESTARTED: Final = info(
    "pod-restart-policy-never",
    "Pods are created with restartPolicy Never, and restarted by the operator",
    "The failure policy is about replicas with restartPolicy Always or OnFailure",
    "No change is needed. A restart is a new pod, so files that a container wrote outside of volumes are lost",
)

# Errors that this release's validation finds: api/v1/{validation,tf_config}.py and api/v1alpha1/validation.py.
_MISTAKES: Final = (
    rule(TF_CONFIG_TOO_LONG, r"TF_CONFIG lists all \d+ replicas and would have"),
    rule(NAME_TOO_LONG, r"metadata\.name: must be no more than \d+ characters"),
    rule(NAME_INVALID, r"metadata\.name: Invalid value: "),
    rule(TOO_MANY_REPLICAS, r"requests \d+ replicas; the maximum( in v1alpha1)? is"),
    rule(ALPHA_FORM, r"spec\.replicaSpecs: Forbidden: v1alpha1 format"),
    rule(NO_CHIEF, r"Missing ReplicaSpec for chief"),
    rule(NO_CONTAINER, r"one container must be named tensorflow|is missing a container named tensorflow"),
    rule(NO_REPLICA_SPECS, r"spec\.tfReplicaSpecs: Required value"),
    rule(REPLICA_TYPE, r"spec\.tfReplicaSpecs\.[^:]{1,100}: Unsupported value: supported values: \"Chief\""),
)
_MAX_TEXT: Final = 260
"""The most characters of errors quoted in a title: as many errors as fit, but at least one."""
_ALL_MISTAKES: Final = f"See all mistakes: {DESCRIBE_JOB}"
_OF_RULE: Final = re.compile(r"spec\.runPolicy\.failurePolicy\.rules\[(\d{1,2})\]\.")
_ALSO_OF_FAILED: Final = frozenset(
    {
        EventReason.UNKNOWN_FIELD,
        EventReason.POLICY_CONFLICT,
        EventReason.RULE_UNREACHABLE,
        EventReason.RULE_MATCHES_HEALTHY,
        EventReason.RULE_WITHOUT_DEADLINE,
    }
)
"""Warnings that may explain why a job failed."""
_STARTS: Final = re.compile(r".{0,600}?\binvalid(?: job spec)?: ")
"""Precedes the errors in the message of a condition."""
_HELD: Final[dict[str, Problem]] = {
    ConditionReason.INVALID: HELD_INVALID,
    ConditionReason.REFUSED: HELD_REFUSED,
    ConditionReason.TOO_LARGE: HELD_TOO_LARGE,
}
_WARNINGS: Final = {
    EventReason.NO_REPLICAS: NO_REPLICAS,
    EventReason.UNKNOWN_FIELD: UNKNOWN_FIELD,
    EventReason.POLICY_CONFLICT: CONFLICT,
    EventReason.NO_WORKERS: NO_WORKERS,
    EventReason.RESTART_POLICY_OVERWRITTEN: ALWAYS,
    EventReason.NOT_QUEUED: NOT_QUEUED,
    EventReason.RULE_UNREACHABLE: RULE_UNREACHABLE,
    EventReason.RULE_MATCHES_HEALTHY: RULE_OF_HEALTHY_NODES,
    EventReason.RULE_WITHOUT_DEADLINE: RULE_WITHOUT_DEADLINE,
    EventReason.RESTARTED_BY_OPERATOR: NEVER_RESTARTED,
}


def _cause_of_hold(facts: Facts) -> str:
    """Return what made the spec invalid: an edit, unless no spec was valid for this operator."""
    begun = facts.job.status.begun
    had_valid_spec = begun is not None and (begun.generation or begun.replicas)
    is_edited = facts.job.metadata.generation > 1 and had_valid_spec
    return "an edit made its spec invalid" if is_edited else "its spec is invalid for this operator"


def find(facts: Facts) -> Iterator[Finding]:
    """Yield errors in the spec: from the operator's message or, if there is none yet, from validating it here."""
    if facts.job.status.phase and not facts.shape.is_alpha:
        return  # an alpha job that could not be read as one
    failed, held = facts.condition(ConditionType.FAILED), facts.condition(ConditionType.HELD)
    if failed is not None and failed.reason == ConditionReason.INVALID:
        yield _mistake(facts, failed_line(failed), _STARTS.sub("", failed.message, count=1))
    elif held is not None and not facts.finished and not facts.is_left_to_peer:
        yield _hold(facts, held)
    elif isinstance(facts.spec, InvalidSpec) and not facts.finished:
        found = _mistake(facts, f"job: {quote(facts.spec.text)}")
        # training-operator writes no observedGeneration; a job of this operator is put on hold a moment later.
        is_foreign = facts.is_left_to_peer or not facts.job.status.observed_generation
        yield replace(found, problem=NOT_OURS, also=()) if is_foreign and facts.live_pods else found
    if isinstance(facts.spec, TFJobSpec):
        for reason, message in (*facts.spec.warnings, *queue_warnings(facts.job.metadata.labels, facts.spec)):
            if facts.finished and reason not in (
                _ALSO_OF_FAILED if failed is not None else {EventReason.UNKNOWN_FIELD}
            ):
                continue
            name = _misspelled_rule(facts, facts.spec, message) if failed is not None else ""
            problem = RULE_MISSPELLED if name else _WARNINGS.get(reason, UNKNOWN_FIELD)
            yield of_job(facts, problem, quote(message), mistake=message, rule=name)
    yield from _ignored_arguments(facts)
    if isinstance(facts.spec, TFJobSpec):
        # Also of a job that succeeded: each replica trained a model of its own.
        yield from _own_tf_config(facts, facts.spec)
    if isinstance(facts.spec, TFJobSpec) and not facts.finished:
        yield from _of_started(facts, facts.spec)
        for replica in facts.spec.replicas.values():
            if replica.overrides_template_policy:
                seen = f"restartPolicy of {replica.type} is {replica.restart_policy}, that of its template differs"
                yield of_job(facts, POLICY_OVERRIDDEN, seen)


def _hold(facts: Facts, held: JobCondition) -> Finding:
    problem, types = _HELD.get(held.reason, HELD_INVALID), _unknown_types(facts)
    if problem is HELD_INVALID and types:
        problem = replace(problem, to_do=_HELD_TYPES if facts.evidence.elsewhere is None else _HELD_TYPES_HERE)
    proof = f"condition Held, {value(held.reason)}: {quote(held.message)}"
    return of_job(facts, problem, proof, cause=_cause_of_hold(facts), types=types)


def _unknown_types(facts: Facts) -> str:
    """Return the replica types of running pods that this operator does not have; "" if there are none."""
    names = (replica_of(pod.metadata.labels, facts.name, pod.metadata.name) for pod in facts.live_pods)
    return ", ".join(sorted({safe_name(name.type) for name in names if name.type} - {*REPLICA_TYPES}))


def _ignored_arguments(facts: Facts) -> Iterator[Finding]:
    for ignored in ignored_arguments(mapping((facts.evidence.body or {}).get("spec"))):
        seen = f"command of container {safe_name(text(ignored.container.get('name')))} of {safe_name(ignored.type)}"
        seen = f"{seen}: {quote(' '.join(command_of(ignored.container)))}"
        values = {"shell": ignored.shell, "program": ignored.program, "arguments": ignored.arguments}
        shown = {name: shorten(value(text), _MAX_TEXT) for name, text in values.items()}
        yield of_job(facts, ARGUMENTS_IGNORED, seen, key=ignored.type, types=ignored.type, **shown)


def _own_tf_config(facts: Facts, spec: TFJobSpec) -> Iterator[Finding]:
    sizes = {kind: size for kind, size in spec.sizes.items() if size}
    alike = {kind: size for kind, size in sizes.items() if size > 1 and TF_CONFIG in spec.replicas[kind].template.sets}
    if alike:
        types, size = ", ".join(alike), str(sum(alike.values()))
        seen = f"env of container {CONTAINER_NAME} sets {TF_CONFIG} for {types}"
        yield of_job(facts, OWN_TF_CONFIG, seen, types=types, size=size)
    whole, body = sum(sizes.values()), mapping((facts.evidence.body or {}).get("spec"))
    if not alike and whole > 1 and (types := ", ".join(loopback_clusters(body))):
        problem = replace(OWN_TF_CONFIG, title=_LOOPBACK)
        seen = f"env of container {CONTAINER_NAME} sets {TF_CONFIG} for {types}"
        yield of_job(facts, problem, seen, key=types, types=types, size=str(whole))
    size = str(process_count(spec))
    counts = list(process_counts(body))
    if size != "0" and (others := [each for each in counts if each.value != size]):
        said = " and ".join(dict.fromkeys(f"{each.variable} is {value(each.value)}" for each in others))
        types = ", ".join(dict.fromkeys(each.type for each in others))
        change = ManifestChange(refining.without_counts(others), recreate=False)
        problem = replace(OWN_TF_CONFIG, title=_OWN_COUNT, to_do=(change, *OWN_TF_CONFIG.to_do[1:]))
        seen = f"env of container {CONTAINER_NAME}: {said}"
        yield of_job(facts, problem, seen, key=types, variables=shorten(said, _MAX_TEXT), types=types, size=size)


def _of_started(facts: Facts, spec: TFJobSpec) -> Iterator[Finding]:
    """Yield settings that are valid, and with which the job cannot do its work."""
    begun, sizes = facts.job.status.begun, {kind: size for kind, size in spec.sizes.items() if size}
    training = [kind for kind in spec.sizes if kind not in {PS, EVALUATOR}]
    if sizes and training and not sizes.keys() & set(training):
        types, others = " and ".join(training), " and ".join(sizes)
        seen = ", ".join(f"{kind} {size}" for kind, size in spec.sizes.items())
        yield of_job(facts, NOTHING_TRAINS, f"replicas: {seen}", types=types, others=others)
    elif sizes.keys() == {PS}:
        yield of_job(facts, ONLY_PS, f"replicas: {PS} {sizes[PS]}, no other replica type")
    if begun is not None and spec.network is not (kept := Network(begun.network or Network.PER_REPLICA)):
        seen = f"spec.runPolicy.network is {spec.network}, and status.begun.network {kept}"
        yield of_job(facts, NETWORK_FIXED, seen, network=kept)


def _misspelled_rule(facts: Facts, spec: TFJobSpec, message: str) -> str:
    """Return the rule that ended the job, if it has no matcher and the message is about one of its fields; else ""."""
    history, status = facts.job.status.attempt_history, facts.job.status
    match, rules = _OF_RULE.match(message), spec.failure_policy.rules if spec.failure_policy is not None else ()
    if match is None or not history or history[-1].number < status.attempt or int(match[1]) >= len(rules):
        return ""
    suspect = rules[int(match[1])]
    return suspect.name if suspect.matches_all and suspect.name == history[-1].rule else ""


def _mistake(facts: Facts, proof: str, message: str = "") -> Finding:
    """Return the errors that validation finds in the spec; if it finds none, those in the operator's message."""
    mistakes, more = _mistakes_of(facts)
    if not mistakes:
        problem = TEMPLATE_REFUSED if WAS_REJECTED in message else INVALID
        return Finding(problem, facts.name, (proof,), {"mistake": shorten(value(message), _MAX_TEXT)})
    each = [first_match(_MISTAKES, str(mistake)) for mistake in mistakes]
    found = next((one[0] for one in each if one is not None and one[0] is ALPHA_FORM), None)
    if found is None and len(mistakes) == 1:
        found = each[0][0] if each[0] is not None else INVALID
    if found is not None:
        return Finding(found, facts.name, (proof,), {"mistake": shorten(value(str(mistakes[0])), _MAX_TEXT)})
    also = tuple(dict.fromkeys(one[0] for one in each if one is not None))
    text, is_cut = _those_that_fit(mistakes, more)
    problem = replace(INVALID, to_do=(_ALL_MISTAKES, *INVALID.to_do)) if is_cut else INVALID
    return Finding(problem, facts.name, (proof,), {"mistake": text}, also=also)


def _mistakes_of(facts: Facts) -> tuple[Sequence[Mistake], int]:
    """Return the errors in the spec, and how many more there are."""
    spec, meta = facts.spec, facts.job.metadata
    if isinstance(spec, InvalidSpec):
        return spec.mistakes, spec.more
    if not spec.replicas:  # of the alpha dialect
        return (), 0
    return [mistake for bound in (*BOUNDS, too_long) if (mistake := bound(meta, spec)) is not None][:1], 0


def _those_that_fit(mistakes: Sequence[Mistake], more: int) -> tuple[str, bool]:
    """Return as many whole errors as fit in a title, at least one, and whether some were left out."""
    text = shorten(value(str(mistakes[0])), _MAX_TEXT)
    for number, mistake in enumerate(mistakes[1:], 1):
        part = value(str(mistake))
        if len(text) + len(part) + 2 > _MAX_TEXT:
            more += len(mistakes) - number
            break
        text = f"{text}; {part}"
    return (f"{text}; and {more} more" if more else text), bool(more)
