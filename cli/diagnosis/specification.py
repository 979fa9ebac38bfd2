"""Specifications that are wrong, refused, held, or hardly what their author meant. The words are the operator's own. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason
from tfjob_operator.api.v1.types import InvalidSpec, TFJobSpec
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.words import named, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts

_ANEW: Final = (
    "A job that failed stays failed: correct the file, then kubectl -n {namespace} delete tfjob {job} and "
    "create it again"
)
_EDIT: Final = (
    "kubectl -n {namespace} edit tfjob {job}   # correct what is named, or take the edit back: the job "
    "goes on as before"
)


def _invalid(id_: str, title: str, to_do: str, meaning: str) -> Trouble:
    return Trouble(id_, 200, Severity.ERROR, title, (to_do, _ANEW), meaning)


TF_CONFIG_TOO_LONG: Final = _invalid(
    "tf-config-too-long",
    "The job is invalid: TF_CONFIG would be longer than Linux hands to a process",
    "Shorten the name of the job or of its namespace, use fewer replicas, or set spec.enableDynamicWorker",
    "TF_CONFIG, which names all replicas, would have more than 131,071 bytes",
)
NAME_TOO_LONG: Final = _invalid(
    "name-too-long",
    "The job is invalid: its name is too long for the names of its services",
    "Shorten the job's name: {job}-worker-99 and the like must have at most 63 characters",
    "The name of a replica's service would have more than 63 characters",
)
NAME_INVALID: Final = _invalid(
    "name-invalid",
    "The job is invalid: its name cannot name pods and services",
    "Use lower-case letters, digits and '-', beginning with a letter",
    "The job's name is no DNS label",
)
TOO_MANY_REPLICAS: Final = _invalid(
    "too-many-replicas",
    "The job is invalid: it asks for more replicas than a job may have",
    "Use fewer replicas",
    "More than 10,000 replicas",
)
ALPHA_FORM: Final = _invalid(
    "alpha-form",
    "The job is invalid: spec.replicaSpecs is the form of v1alpha1, which this operator does not serve",
    "Write the job with spec.tfReplicaSpecs, or have the operator run with --apis=kubeflow.org/v1,kubeflow.org/v1alpha1",
    "A document of v1alpha1 where only v1 is served",
)
NO_CHIEF: Final = _invalid(
    "chief-missing",
    "The job is invalid: the replica that decides how it ends is not among its replicas",
    "Add an entry with tfReplicaType MASTER, or name another replica in spec.terminationPolicy.chief",
    "A job of the alpha dialect without its chief, which is MASTER 0 unless terminationPolicy.chief names another",
)
NO_CONTAINER: Final = _invalid(
    "container-name",
    "The job is invalid: no container of a replica is named tensorflow",
    "Name the container that trains `tensorflow`",
    "A template without a container named tensorflow",
)
NO_REPLICA_SPECS: Final = _invalid(
    "replica-specs-missing",
    "The job is invalid: it has no spec.tfReplicaSpecs",
    "Give spec.tfReplicaSpecs at least one of Chief, Master, Worker, PS, Evaluator",
    "spec.tfReplicaSpecs is missing or empty",
)
REPLICA_TYPE: Final = _invalid(
    "replica-type-unknown",
    "The job is invalid: a key of spec.tfReplicaSpecs is no replica type",
    "The types are Chief, Master, Worker, PS, Evaluator",
    "A key of spec.tfReplicaSpecs is no replica type",
)
TEMPLATE_REFUSED: Final = _invalid(
    "template-refused",
    "The job failed: the API server calls a pod or service of it invalid",
    "Correct the field of the pod template that the message names",
    "The API server refuses what a template says, such as a mount without its volume",
)
INVALID: Final = _invalid(
    "spec-invalid",
    "The job's specification is invalid: {mistake}",
    "Correct what is named; kubectl explain tfjob.spec describes the fields",
    "Any other mistake in the specification",
)
HELD_INVALID: Final = Trouble(
    "held-invalid",
    210,
    Severity.ERROR,
    "The job is held: an edit made its specification invalid, and its pods are neither replaced nor judged",
    (_EDIT,),
    "A running job was edited into an invalid one",
)
HELD_REFUSED: Final = Trouble(
    "held-refused",
    211,
    Severity.ERROR,
    "The job is held: after an edit the API server refuses its pods",
    (_EDIT,),
    "A running job was edited, and the API server refuses the new template",
)
HELD_TOO_LARGE: Final = Trouble(
    "held-too-large",
    212,
    Severity.WARNING,
    "The job keeps its size: what it was scaled to is beyond a limit",
    ("Scale it down again: kubectl -n {namespace} scale tfjob {job} --replicas=N",),
    "A running job was scaled beyond a limit (10,000 replicas, names, TF_CONFIG)",
)
NO_REPLICAS: Final = Trouble(
    "no-replicas",
    215,
    Severity.ERROR,
    "Every replica type has replicas: 0, so nothing runs and the job does not end",
    ("kubectl -n {namespace} scale tfjob {job} --replicas=1", "or kubectl -n {namespace} delete tfjob {job}"),
    "All replica types have replicas: 0",
)
UNKNOWN_FIELD: Final = Trouble(
    "field-unknown",
    900,
    Severity.WARNING,
    "A field is unknown and ignored: {mistake}",
    ("Correct its name, or remove it: kubectl -n {namespace} edit tfjob {job}",),
    "A field that nobody reads, most likely misspelt",
)
CONFLICT: Final = Trouble(
    "run-policy-conflict",
    901,
    Severity.WARNING,
    "spec and spec.runPolicy disagree; runPolicy is used",
    ("Remove one of the two: kubectl -n {namespace} edit tfjob {job}",),
    "A policy stands in spec and in spec.runPolicy, with different values",
)
NO_WORKERS: Final = Trouble(
    "no-workers-to-scale",
    902,
    Severity.WARNING,
    "The job was scaled, and it has no workers",
    ("Remove spec.tfReplicaSpecs.Worker, which has nothing but a number: kubectl -n {namespace} edit tfjob {job}",),
    "kubectl scale, or an autoscaler, of a job without workers",
)
POLICY_OVERRIDDEN: Final = Trouble(
    "restart-policy-overridden",
    950,
    Severity.NOTE,
    "The restart policy of a pod template is not used: the replica's is",
    ("Nothing, if the replica's restartPolicy is what you want",),
    "Replica and template name different restart policies",
)
ALWAYS: Final = Trouble(
    "restart-policy-always",
    951,
    Severity.NOTE,
    "A template's restartPolicy is Always, which a Job's pods cannot have: OnFailure is used",
    ("Nothing, if that is what you want; or say OnFailure or Never in the template",),
    "A template of the alpha dialect with restartPolicy: Always",
)
TROUBLES: Final = (
    TF_CONFIG_TOO_LONG,
    NAME_TOO_LONG,
    NAME_INVALID,
    TOO_MANY_REPLICAS,
    ALPHA_FORM,
    NO_CHIEF,
    NO_CONTAINER,
    NO_REPLICA_SPECS,
    REPLICA_TYPE,
    TEMPLATE_REFUSED,
    INVALID,
    HELD_INVALID,
    HELD_REFUSED,
    HELD_TOO_LARGE,
    NO_REPLICAS,
    UNKNOWN_FIELD,
    CONFLICT,
    NO_WORKERS,
    POLICY_OVERRIDDEN,
    ALWAYS,
)

# The words of api/v1/validation.py, controller/tfjob/plan/spec.py, build/tf_config.py and apply/children.py;
# api/v1alpha1/validation.py and controller/alpha/executor.py.
_MISTAKES: Final = (
    rule(TEMPLATE_REFUSED, r"\b(pod|service|ConfigMap|PodGroup|Job) \S+ was refused: "),
    rule(TF_CONFIG_TOO_LONG, r"environment variable TF_CONFIG, which names all"),
    rule(NAME_TOO_LONG, r"metadata\.name: is too long by"),
    rule(NAME_INVALID, r"metadata\.name: .{0,300} cannot name pods and services"),
    rule(TOO_MANY_REPLICAS, r"asks for \d+ replicas; a job( of v1alpha1)? may have"),
    rule(ALPHA_FORM, r"is the form of v1alpha1"),
    rule(NO_CHIEF, r"Missing ReplicaSpec for chief"),
    rule(NO_CONTAINER, r"one container must be named tensorflow|is missing a container named tensorflow"),
    rule(NO_REPLICA_SPECS, r"spec\.tfReplicaSpecs: is required"),
    rule(REPLICA_TYPE, r"is no replica type; the types are"),
)
_STARTS: Final = ("the spec is invalid: ", "invalid job spec: ")
_HELD: Final[dict[str, Trouble]] = {
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
}


def find(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with the specification: in the operator's words, or if it has said nothing yet, as read here."""
    if facts.job.status.phase and not facts.shape.is_alpha:
        return  # a job of the alpha dialect that was not read as one
    failed, held = facts.condition(ConditionType.FAILED), facts.condition(ConditionType.HELD)
    if failed is not None and failed.reason == ConditionReason.INVALID:
        yield _mistake(facts, failed.message, f"job: condition Failed, {named(failed.reason)}: {said(failed.message)}")
    elif held is not None and not facts.finished:
        trouble = _HELD.get(held.reason, HELD_INVALID)
        yield Finding(trouble, facts.name, (f"job: condition Held, {value(held.reason)}: {said(held.message)}",))
    elif isinstance(facts.spec, InvalidSpec) and not facts.finished:
        yield _mistake(facts, facts.spec.text, f"job: {said(facts.spec.text)}")
    if isinstance(facts.spec, TFJobSpec) and not facts.finished:
        for reason, message in facts.spec.warnings:
            trouble = _WARNINGS.get(reason, UNKNOWN_FIELD)
            yield Finding(trouble, facts.name, (f"job: {said(message)}",), {"mistake": value(message)})
        for replica in facts.spec.replicas.values():
            if replica.overrides_template_policy:
                seen = f"job: {replica.type} restarts by {replica.restart_policy}, its template says otherwise"
                yield Finding(POLICY_OVERRIDDEN, facts.name, (seen,))


def _mistake(facts: Facts, message: str, proof: str) -> Finding:
    found = first_match(_MISTAKES, message)
    mistake = next((text for start in _STARTS if (text := message.partition(start)[2])), message)
    return Finding(found[0] if found else INVALID, facts.name, (proof,), {"mistake": value(mistake)[:120]})
