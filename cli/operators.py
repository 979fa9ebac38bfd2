"""The operators of a cluster: which of them serves a namespace, and by which permissions. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tfjob_operator.cli.installations import Installation
from tfjob_operator.cli.model.facts import listed, mapping, number, text

TFJOB_ENTRY: Final = "validator.tfjob.training-operator.kubeflow.org"
"""The entry for TFJobs in the webhook configuration of training-operator."""
_WEBHOOK: Final = "validator.training-operator.kubeflow.org"
_NAME: Final = "training-operator"
NAMESPACE: Final = "kubeflow"
SELECTOR: Final = "control-plane=kubeflow-training-operator"
"""Selects the Deployment and the pods of training-operator."""
MOVED: Final = "tfjob.kubeflow.org/operator"
"""The label of a namespace whose jobs this operator serves while training-operator serves those of others."""
RECORD: Final = "tfjob.kubeflow.org/before-migration"
"""The annotation of training-operator's Deployment with its command, args and replicas when it served TFJobs."""
BINDINGS_RECORD: Final = "tfjob.kubeflow.org/bindings-before-migration"
"""The annotation of training-operator's Deployment with its ClusterRoleBindings before namespaces were moved: a JSON object of
the roles by the name of the binding."""
READER: Final = "training-operator-read"
"""The name of the ClusterRole that lets training-operator read all namespaces, and of its binding."""
NAME_LABEL: Final = "app.kubernetes.io/name"
OWN_NAME: Final = "tfjob-operator"
OURS: Final = f"{NAME_LABEL}={OWN_NAME}"
"""Selects all objects of an installation of this operator, and its pods."""
SCHEME: Final = re.compile(r"--?enable-scheme(?:=(.*))?")
ONE_ONLY: Final = "stop one of them, since both may restart the same pod and overwrite the status of the other"
_ONE_NAMESPACE: Final = re.compile(r"--?namespace(?:=(.*))?")
_GANG: Final = re.compile(r"--?gang-scheduler-name(?:=(.*))?")


class ClusterState(NamedTuple):
    """What was read from the cluster. None: it may not be read.

    `deployments` have the label of training-operator; `webhooks` are all validating webhook configurations; `crd` is empty if
    it does not exist. `kinds` are other resources with objects, and `unknown_kinds` those that may not be listed. `jobs` is the
    number of unfinished jobs, and `differences` has the namespaces and names of those concerned, by the ID of the difference.
    `moved` are the namespaces that were moved before, `bindings` all ClusterRoleBindings, and `installed` the Deployments of
    this operator. `late_elsewhere` are the jobs beyond their deadlines in namespaces that are not moved.
    """

    deployments: Sequence[Mapping[str, Any]] | None
    webhooks: Sequence[Mapping[str, Any]] | None
    crd: Mapping[str, Any] | None = None
    kinds: Collection[str] = ()
    unknown_kinds: Collection[str] = ()
    jobs: int | None = None
    differences: Mapping[str, Sequence[tuple[str, str]]] = {}
    moved: Sequence[str] = ()
    bindings: Sequence[Mapping[str, Any]] | None = None
    installed: Sequence[Installation] = ()
    late_elsewhere: Sequence[tuple[str, str]] = ()


class Original(NamedTuple):
    """What training-operator had when it served TFJobs."""

    command: list[str] | None
    args: list[str] | None
    replicas: int


class TrainingOperator(NamedTuple):
    """The Deployment of training-operator; the values of its manifests if it was not found.

    `command` and `args` are those of its container, None if they are not set.
    """

    found: Mapping[str, Any]
    namespace: str
    name: str
    container: str
    image: str
    replicas: int
    command: list[str] | None
    args: list[str] | None
    account: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ready(self) -> int:
        """The number of its ready pods."""
        return number(mapping(self.found.get("status")).get("readyReplicas"))

    @property
    def words(self) -> list[str]:
        """The command line."""
        return [*(self.command or ()), *(self.args or ())]

    @property
    def gang_scheduler(self) -> str:
        """The value of --gang-scheduler-name, "" if it is not set."""
        return next(reversed(flag_values(self.words, _GANG)), "")

    @property
    def schemes(self) -> list[str]:
        """The values of --enable-scheme. None are set if all kinds are served."""
        return [value.lower() for value in flag_values(self.words, SCHEME)]

    @property
    def only(self) -> str:
        """The only namespace that it serves, "" for all."""
        return next(reversed(flag_values(self.words, _ONE_NAMESPACE)), "")

    @property
    def serves_tfjobs(self) -> bool:
        """Return True if it runs TFJobs now."""
        return self.replicas > 0 and self.may_serve_tfjobs

    @property
    def may_serve_tfjobs(self) -> bool:
        """Return True if it runs TFJobs with its arguments, given any replicas."""
        return not self.schemes or "tfjob" in self.schemes

    @property
    def original(self) -> Original | None:
        """What it had when it served TFJobs: its current values, or those that an earlier plan recorded; None if unknown."""
        if self.serves_tfjobs or not self.found:
            return Original(self.command, self.args, max(self.replicas, 1))
        return self.recorded or (Original(self.command, self.args, 1) if self.may_serve_tfjobs else None)

    @property
    def recorded(self) -> Original | None:
        """What an earlier plan has recorded, None if it has not."""
        recorded = self._annotation(RECORD)
        if not recorded:
            return None
        command, args = (_words(recorded.get(key)) for key in ("command", "args"))
        return Original(command, args, max(number(recorded.get("replicas")), 1))

    @property
    def recorded_bindings(self) -> dict[str, str]:
        """The roles of its ClusterRoleBindings by their names, as an earlier plan for a namespace has recorded them."""
        recorded = self._annotation(BINDINGS_RECORD)
        return {name: role for name, role in recorded.items() if isinstance(role, str) and name and role}

    def _annotation(self, name: str) -> Mapping[str, Any]:
        """Return the JSON object of an annotation, empty if it is not one."""
        annotations = mapping(mapping(self.found.get("metadata")).get("annotations"))
        try:
            return mapping(json.loads(text(annotations.get(name))))
        except (ValueError, RecursionError):
            return {}


def flag_values(words: Sequence[str], flag: re.Pattern[str]) -> list[str]:
    """Return the values of a flag, given as --flag=value or --flag value."""
    found = [(flag.fullmatch(word), following) for word, following in zip(words, [*words[1:], ""], strict=False)]
    return [following if match[1] is None else match[1] for match, following in found if match]


def without(words: Sequence[str] | None, flag: re.Pattern[str]) -> list[str]:
    """Return the words without a flag and its values."""
    kept: list[str] = []
    skip = False
    for word in words or ():
        match = flag.fullmatch(word)
        if not match and not skip:
            kept.append(word)
        skip = match is not None and match[1] is None
    return kept


def training_operator(cluster: ClusterState) -> TrainingOperator:
    """Return the Deployment in the namespace that the webhook names, else in `kubeflow`, else the first one.

    Every user of a namespace can create a Deployment with this label, but only an administrator a webhook configuration.
    """
    services = [
        mapping(mapping(entry.get("clientConfig")).get("service"))
        for config in cluster.webhooks or ()
        for entry in listed(config.get("webhooks"))
        if entry.get("name") == TFJOB_ENTRY
    ]
    preferred = [*(text(service.get("namespace")) for service in services), NAMESPACE]
    known = {
        text(mapping(deployment.get("metadata")).get("namespace")): deployment
        for deployment in reversed(cluster.deployments or ())
    }
    body: Mapping[str, Any] = next(
        (known[each] for each in preferred if each in known), next(reversed([*known.values()]), {})
    )
    return read_deployment(body, next(filter(None, preferred)))


def read_deployment(body: Mapping[str, Any], namespace: str = NAMESPACE) -> TrainingOperator:
    """Return the values of a Deployment, or those of the manifests, in `namespace`, if it is empty."""
    meta, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    containers = listed(pod.get("containers"))
    container = next((each for each in containers if each.get("name") == _NAME), next(iter(containers), {}))
    command, args = (_words(container.get(key)) for key in ("command", "args"))
    return TrainingOperator(
        body,
        text(meta.get("namespace")) or namespace,
        text(meta.get("name")) or _NAME,
        text(container.get("name")) or _NAME,
        text(container.get("image")),
        number(spec.get("replicas")),
        command,
        args,
        text(pod.get("serviceAccountName")) or _NAME,
    )


def _words(value: object) -> list[str] | None:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else None


def has_gang_scheduling(cluster: ClusterState) -> bool | None:
    """Return True if training-operator creates PodGroups; None if its Deployment was not found."""
    operator = training_operator(cluster)
    return bool(operator.gang_scheduler) if operator.found else None


def is_served(cluster: ClusterState, namespace: str) -> bool:
    """Return True if this operator serves a namespace, and no training-operator can write there."""
    if not any(installation.serves(namespace) for installation in cluster.installed):
        return False
    return not any(
        operator.serves_tfjobs and may_write(cluster, operator, namespace)
        for operator in map(read_deployment, cluster.deployments or ())
    )


def may_write(cluster: ClusterState, operator: TrainingOperator, namespace: str) -> bool:
    """Return True if training-operator can write the jobs of a namespace while it runs.

    In a moved namespace it has no permission, unless a ClusterRoleBinding exists that its plan has deleted.
    """
    return operator.only in {"", namespace} and (
        namespace not in cluster.moved or bool(binding_objects(cluster, operator))
    )


def is_proven(cluster: ClusterState, operator: TrainingOperator) -> bool:
    """Return True if an administrator has bound the service account of a training-operator, or if that may not be read.

    Anybody can create a Deployment with its label; only administrators of the cluster create ClusterRoleBindings. One remains
    when namespaces are moved: that of `READER`.
    """
    return cluster.bindings is None or bool(bound_to(cluster, operator.namespace, operator.account))


def rivalry(cluster: ClusterState) -> str:
    """Return which two operators serve the same jobs, as a sentence; "" if none do."""
    for operator in map(read_deployment, cluster.deployments or ()):
        for own in cluster.installed:
            shared = own.served or operator.only
            if operator.serves_tfjobs and own.serves(shared) and may_write(cluster, operator, shared):
                where = f" of namespace {shared}" if shared else ""
                return f"tfjob-operator {own} and training-operator {operator} both serve the TFJobs{where}: {ONE_ONLY}"
    return ""


def nothing_to_replace(cluster: ClusterState) -> bool:
    """Return True if neither a training-operator exists nor anything that it or a migration has left."""
    exists = cluster.deployments is None or cluster.deployments or webhook_configs(cluster) or missing_webhooks(cluster)
    return not (exists or cluster.moved)


def needs_bindings(cluster: ClusterState) -> bool:
    """Return True if the plan for all namespaces depends on ClusterRoleBindings."""
    return bool(replaced_namespaces(cluster) or training_operator(cluster).recorded_bindings)


def webhook_configs(cluster: ClusterState) -> list[Mapping[str, Any]]:
    """Return the webhook configurations with an entry for TFJobs; that of the manifests if they may not be read."""
    if cluster.webhooks is None:
        return [{"metadata": {"name": _WEBHOOK}, "webhooks": [{"name": TFJOB_ENTRY}]}]
    return [
        config
        for config in cluster.webhooks
        if any(entry.get("name") == TFJOB_ENTRY for entry in listed(config.get("webhooks")))
    ]


def missing_webhooks(cluster: ClusterState) -> list[tuple[str, str]]:
    """Return the webhook configuration of training-operator that has no entry for TFJobs, with the file for it."""
    names = [*map(name_of, cluster.webhooks or ())]
    return [(_WEBHOOK, "webhook.json")] if _WEBHOOK in names and not webhook_configs(cluster) else []


def bindings_of(cluster: ClusterState, operator: TrainingOperator) -> list[tuple[str, str]]:
    """Return the ClusterRoleBindings of training-operator and their ClusterRoles, with those that a plan has recorded.

    Those of its manifests if they may not be read; none if they are not known.
    """
    names = {
        name_of(each): text(mapping(each.get("roleRef")).get("name")) for each in binding_objects(cluster, operator)
    }
    names |= operator.recorded_bindings
    return [*names.items()] or ([(_NAME, _NAME)] if cluster.bindings is None else [])


def binding_objects(cluster: ClusterState, operator: TrainingOperator) -> list[Mapping[str, Any]]:
    """Return the ClusterRoleBindings of training-operator, except the one of `READER`."""
    bound = bound_to(cluster, operator.namespace, operator.account)
    return [each for each in bound if mapping(each.get("roleRef")).get("name") != READER]


def bound_to(cluster: ClusterState, namespace: str, account: str) -> list[Mapping[str, Any]]:
    """Return the ClusterRoleBindings of a service account."""
    return [
        binding for binding in cluster.bindings or () if ("ServiceAccount", namespace, account) in subjects(binding)
    ]


def subjects(binding: Mapping[str, Any]) -> list[tuple[object, object, object]]:
    """Return whom a binding names: kind, namespace and name of each."""
    return [
        (subject.get("kind"), subject.get("namespace"), subject.get("name"))
        for subject in listed(binding.get("subjects"))
    ]


def name_of(body: Mapping[str, Any]) -> str:
    """Return the name of an object, "" without one."""
    return text(mapping(body.get("metadata")).get("name"))


def replaced_namespaces(cluster: ClusterState) -> list[str]:
    """Return the namespaces whose installation of this operator is replaced by one in `NAMESPACE`."""
    return sorted({*cluster.moved, *(installation.namespace for installation in cluster.installed)} - {NAMESPACE})
