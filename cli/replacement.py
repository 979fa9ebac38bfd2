"""The steps that replace training-operator 1.9 by this operator, and the way back, as a shell script for one cluster. Pure.

The order is that of docs/migration.md, as executed with the real training-operator 1.9.4.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tfjob_operator.cli.installations import Installation, flag_name, is_plain
from tfjob_operator.cli.migration import (
    BACKOFF_LIMIT,
    COMPLETION_GRACE,
    DEADLINE_EXCEEDED,
    DIFFERENCES,
    FAILS_AT_MOVE,
    GANG,
    INVALID,
    SIDECARS,
    SIDECARS_KEPT,
    TTL_EXCEEDED,
    Difference,
)
from tfjob_operator.cli.model.facts import listed, mapping, number, text

HOW_TO_RUN: Final = (
    "# line by line, or as a file: `sh FILE` runs steps 1 to 4 and ends at the first error, `sh FILE back` the way back.",
)
GONE: Final = "# If a wait prints `no matching resources found`, the pods are gone already."
SELECTOR: Final = "control-plane=kubeflow-training-operator"
"""Selects the Deployment and the pods of training-operator."""
TFJOB_ENTRY: Final = "validator.tfjob.training-operator.kubeflow.org"
"""The entry for TFJobs in the webhook configuration of training-operator."""
CRD: Final = "tfjobs.kubeflow.org"
OTHER_KINDS: Final = {
    "jaxjobs": "jaxjob",
    "mpijobs": "mpijob",
    "paddlejobs": "paddlejob",
    "pytorchjobs": "pytorchjob",
    "xgboostjobs": "xgboostjob",
}
"""The other resources of training-operator 1.9, with their names for --enable-scheme."""
_WEBHOOK: Final = "validator.training-operator.kubeflow.org"
_NAME: Final = "training-operator"
NAMESPACE: Final = "kubeflow"
MOVED: Final = "tfjob.kubeflow.org/operator"
"""The label of a namespace whose jobs this operator serves while training-operator serves those of others."""
RECORD: Final = "tfjob.kubeflow.org/before-migration"
"""The annotation of training-operator's Deployment with its command, args and replicas when it served TFJobs."""
BINDINGS_RECORD: Final = "tfjob.kubeflow.org/bindings-before-migration"
"""The annotation of training-operator's Deployment with its ClusterRoleBindings before namespaces were moved: a JSON object of
the roles by the name of the binding."""
READER: Final = "training-operator-read"
"""The name of the ClusterRole that lets training-operator read all namespaces, and of its binding."""
GANG_ADDON: Final = "manifests/addons/gang-scheduling"
_NAME_LABEL: Final = "app.kubernetes.io/name"
_OWN_NAME: Final = "tfjob-operator"
OURS: Final = f"{_NAME_LABEL}={_OWN_NAME}"
"""Selects all objects of an installation of this operator, and its pods."""
_OBJECTS: Final = "deployment,service,serviceaccount,role,rolebinding,networkpolicy,configmap"
_SCHEME: Final = re.compile(r"--?enable-scheme(?:=(.*))?")
_ONE_NAMESPACE: Final = re.compile(r"--?namespace(?:=(.*))?")
_GANG: Final = re.compile(r"--?gang-scheduler-name(?:=(.*))?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_MOST_NAMED: Final = 10
"""The most jobs with a difference that a plan names."""
_AT_THE_MOVE: Final = {
    FAILS_AT_MOVE.id: "fails when tfjob-operator starts, unless its failed pods are deleted before.",
    DEADLINE_EXCEEDED.id: "fails when tfjob-operator starts, unless activeDeadlineSeconds is raised.",
    TTL_EXCEEDED.id: "is deleted when tfjob-operator starts, unless ttlSecondsAfterFinished is removed.",
    SIDECARS.id: "ends at the move if tensorflow has ended, and loses its sidecars within 30s.",
    SIDECARS_KEPT.id: "ends at the move if tensorflow has ended. Its sidecars continue.",
    BACKOFF_LIMIT.id: "fails at the move if it was restarted in place more often than backoffLimit.",
}
"""What happens to a job as soon as this operator runs, by the ID of the difference."""
_FIRST_ARGUMENT: Final = "--monitoring-port=8443"
"""The first argument in the Deployment of this operator; others are inserted after it."""
_GITOPS: Final = {
    "argocd.argoproj.io/": "Argo CD",
    "kustomize.toolkit.fluxcd.io/": "Flux",
    "helm.toolkit.fluxcd.io/": "Flux",
    "meta.helm.sh/": "Helm",
    "app.kubernetes.io/instance": "Argo CD or Helm",
}
"""Beginnings of labels and annotations by which these tools mark what they manage."""


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
        return [value.lower() for value in flag_values(self.words, _SCHEME)]

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


def _without(words: Sequence[str] | None, flag: re.Pattern[str]) -> list[str]:
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
    rivals = (operator for operator in map(read_deployment, cluster.deployments or ()) if operator.serves_tfjobs)
    return not any(
        rival.only in {"", namespace} and (namespace not in cluster.moved or binding_objects(cluster, rival))
        for rival in rivals
    )


def nothing_to_replace(cluster: ClusterState) -> bool:
    """Return True if neither a training-operator exists nor anything that it or a migration has left."""
    exists = (
        cluster.deployments is None or cluster.deployments or webhook_configs(cluster) or _missing_webhooks(cluster)
    )
    return not (exists or cluster.moved)


def needs_bindings(cluster: ClusterState) -> bool:
    """Return True if the plan for all namespaces depends on ClusterRoleBindings."""
    return bool(_replaced_namespaces(cluster) or training_operator(cluster).recorded_bindings)


def plan(cluster: ClusterState) -> Iterator[str]:
    """Yield the lines of the script."""
    operator = training_operator(cluster)
    yield "# Replace training-operator by tfjob-operator. Nothing was changed: review these steps, and run them in this order,"
    yield from HOW_TO_RUN
    yield from about_the_jobs(cluster, "-A")
    yield "# Going back with the CRD of training-operator deletes fields of all jobs for good: keep that of tfjob-operator."
    yield GONE
    yield from about_the_deployment(cluster, operator)
    yield from _about_other_namespaces(cluster, operator)
    yield from _gitops(cluster, operator)
    webhooks = _webhooks(cluster)
    kept = _kept_kinds(cluster, operator)
    there = _remove_webhook(webhooks), _stop(cluster, operator, kept), _install(cluster, operator), _verify()
    yield from as_script(there, _back(cluster, operator, webhooks, kept))


def as_script(there: Iterable[Iterable[str]], back: Iterable[str]) -> Iterator[str]:
    """Yield the steps of both ways as functions of a shell, and the line that runs one of them.

    Whether a file is executed, is sourced, or is pasted as a whole: a command that fails ends its function, and not the shell
    of the user; and the way back is not executed with the other one.
    """
    for name, steps in (("move", there), ("back", [back])):
        yield from ("", f"{name}() (", "set -e")
        for step in steps:
            yield from ("", *step)
        yield ")"
    yield from ("", '"${1:-move}"')


def about_the_jobs(cluster: ClusterState, *scope: str) -> Iterator[str]:
    """Yield comments about the unfinished jobs. `scope` are the options of kubectl for their namespaces."""
    if cluster.jobs is None:
        return
    check = kubectl("tfjob", "migrate", "--check", *scope)
    # Without a namespace, only an operator for all serves them all.
    if is_served(cluster, scope[1] if len(scope) > 1 else ""):
        changes = "tfjob-operator serves them already, so nothing changes for them."
    else:
        changes = f"{check} lists what changes for them."
    yield f"# {cluster.jobs} unfinished TFJob{'s' * (cluster.jobs != 1)}: {changes}"
    for id_, what in _AT_THE_MOVE.items():
        if concerned := [job for job in cluster.differences.get(id_, ()) if not is_served(cluster, job[0])]:
            yield f"# {len(concerned)} TFJob{'s' * (len(concerned) != 1)} under {id_}: each {what}"
            yield from _named(id_, [f"{each}/{name}" for each, name in concerned], check)
    if on_hold := cluster.differences.get(INVALID.id, ()):
        are = "TFJob is" if len(on_hold) == 1 else "TFJobs are"
        yield f"# {len(on_hold)} {are} on hold under tfjob-operator, and cannot finish until corrected. To show why:"
        yield from _named(INVALID.id, [kubectl("tfjob", "explain", name, "-n", each) for each, name in on_hold], check)


def about_late_jobs(cluster: ClusterState) -> Iterator[str]:
    """Yield comments about the jobs that training-operator fails where it remains, when it lists all jobs again."""
    if late := cluster.late_elsewhere:
        yield f"# {len(late)} TFJob{'s' * (len(late) != 1)} of other namespaces under {DEADLINE_EXCEEDED.id}: training-operator"
        yield "# itself fails each when step 3 replaces the CRD or Back 3 restarts it, unless activeDeadlineSeconds is raised."
        check = kubectl("tfjob", "migrate", "--check", "-A")
        yield from _named(DEADLINE_EXCEEDED.id, [f"{each}/{name}" for each, name in late], check)


def _named(id_: str, concerned: Sequence[str], check: str) -> Iterator[str]:
    """Yield the first of the jobs with a difference, and the command that lists all."""
    yield from (f"#   {each}" for each in concerned[:_MOST_NAMED])
    if (more := len(concerned) - _MOST_NAMED) > 0:
        yield f"#   and {more} more, as `{id_}`: {check} -o json"


def about_the_deployment(cluster: ClusterState, operator: TrainingOperator) -> Iterator[str]:
    """Yield comments if it is uncertain which Deployment is that of training-operator."""
    shown = f"{operator.namespace}/{operator.name}"
    if cluster.deployments is None:
        yield f"# Deployments cannot be read: the commands assume {shown}, as in the manifests of training-operator."
    elif not operator.found:
        yield f"# No Deployment has the label {SELECTOR}: the commands assume {shown}."
    elif len(cluster.deployments) > 1:
        yield f"# {len(cluster.deployments)} Deployments have the label {SELECTOR}: make sure that {shown} is the right one."


def _about_other_namespaces(cluster: ClusterState, operator: TrainingOperator) -> Iterator[str]:
    """Yield comments if the operator that is installed serves more namespaces than the one that is stopped."""
    if operator.only:
        yield f"# training-operator serves only the namespace {operator.only}: tfjob-operator will serve all namespaces."
    if len(cluster.deployments or ()) > 1:
        yield "# tfjob-operator will serve all namespaces: stop every other training-operator before step 3, as this one."


def _gitops(cluster: ClusterState, operator: TrainingOperator) -> Iterator[str]:
    yield from managed(
        (
            "its webhook, and restores the entry for TFJobs: they cannot be created or changed then",
            webhook_configs(cluster),
        ),
        ("its Deployment, and starts it again: two operators would run the same pods", [operator.found]),
        (f"the CRD {CRD}, and replaces it: fields that only tfjob-operator has are deleted", [cluster.crd or {}]),
    )


def managed(*undone: tuple[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield comments about the tools that would undo steps: what each would do, and to which objects."""
    reverting = [(tool, what) for what, objects in undone for tool in dict.fromkeys(map(_manager, objects)) if tool]
    if reverting:
        yield "# First change the source of training-operator likewise, or suspend its synchronization:"
        yield from (f"# {tool} manages {what}." for tool, what in reverting)


def _manager(body: Mapping[str, Any]) -> str:
    """Return the tool that has marked an object, "" if there is none."""
    meta = mapping(body.get("metadata"))
    marks = [*mapping(meta.get("labels")), *mapping(meta.get("annotations"))]
    return next((tool for start, tool in _GITOPS.items() if any(mark.startswith(start) for mark in marks)), "")


def webhook_configs(cluster: ClusterState) -> list[Mapping[str, Any]]:
    """Return the webhook configurations with an entry for TFJobs; that of the manifests if they may not be read."""
    if cluster.webhooks is None:
        return [{"metadata": {"name": _WEBHOOK}, "webhooks": [{"name": TFJOB_ENTRY}]}]
    return [
        config
        for config in cluster.webhooks
        if any(entry.get("name") == TFJOB_ENTRY for entry in listed(config.get("webhooks")))
    ]


def _webhooks(cluster: ClusterState) -> list[tuple[str, str]]:
    """Return the names of the webhook configurations to change, each with the file for its entry."""
    names = [*map(_name, webhook_configs(cluster))]
    return [(name, f"webhook{f'-{place}' if place else ''}.json") for place, name in enumerate(names)]


def _missing_webhooks(cluster: ClusterState) -> list[tuple[str, str]]:
    """Return the webhook configuration of training-operator that has no entry for TFJobs, with the file for it."""
    names = [*map(_name, cluster.webhooks or ())]
    return [(_WEBHOOK, "webhook.json")] if _WEBHOOK in names and not webhook_configs(cluster) else []


def _kept_kinds(cluster: ClusterState, operator: TrainingOperator) -> list[str]:
    """Return the kinds that training-operator continues to serve, as values of --enable-scheme."""
    if operator.schemes:
        return [scheme for scheme in operator.schemes if scheme != "tfjob"]
    return [OTHER_KINDS[kind] for kind in OTHER_KINDS if kind in {*cluster.kinds, *cluster.unknown_kinds}]


def _remove_webhook(webhooks: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not webhooks:
        yield f"# 1. No webhook has the entry {TFJOB_ENTRY}: nothing is to be removed."
        return
    yield "# 1. Save and remove the webhook entry for TFJobs. It rejects all creates and updates of TFJobs"
    yield "#    while training-operator does not run, or does not serve them."
    for name, file in webhooks:
        path = f'jsonpath={{.webhooks[?(@.name=="{TFJOB_ENTRY}")]}}'
        saved = kubectl("get", "validatingwebhookconfiguration", name, "-o", path)
        new = f"{file}.new"
        has_entry = f"grep -q {TFJOB_ENTRY}"
        yield (
            f"""[ -e {file} ] || {{ {{ echo '{{"webhooks": ['; {saved}; echo ']}}'; }} > {new}; """
            f"""if {has_entry} {new}; then mv {new} {file}; fi; }}"""
        )
        removed = {"webhooks": [{"$patch": "delete", "name": TFJOB_ENTRY}]}
        patch = kubectl("patch", "validatingwebhookconfiguration", name, "--type=strategic", patch=removed)
        yield f"if {has_entry} {file}; then {patch}; else echo 'error: the entry is not saved' >&2; false; fi"


def _stop(cluster: ClusterState, operator: TrainingOperator, kept: Sequence[str]) -> Iterator[str]:
    if kept:
        yield f"# 2. Stop training-operator for TFJobs. It continues with {', '.join(kept)}."
        if cluster.unknown_kinds and not operator.schemes:
            yield f"#    Without permission to list {', '.join(cluster.unknown_kinds)}, they are assumed to be in use."
        yield from _record(operator)
        yield _set_schemes(operator, kept)
        yield kubectl(*within(operator), "rollout", "status", f"deployment/{operator.name}", "--timeout=3m")
        yield "#    The old pod may still write while it terminates. If this does not end, do not continue."
        yield _wait_until_terminated(operator.namespace, SELECTOR)
        yield from _restore_bindings(cluster, operator)
        return
    yield "# 2. Stop training-operator. Pods continue without it. Never run two operators for the same jobs."
    yield from _record(operator)
    yield kubectl(*within(operator), "scale", f"deployment/{operator.name}", "--replicas=0")
    yield wait_until_gone(operator.namespace, SELECTOR)
    if not operator.schemes:
        yield "#    No jobs of its other kinds exist. To let it serve them later, limit it instead of scaling it to 0:"
        yield f"#    {_set_schemes(operator, list(OTHER_KINDS.values()))}"


def _record(operator: TrainingOperator) -> Iterator[str]:
    """Yield the command that records what is changed, for a way back that is printed later."""
    if operator.found and operator.serves_tfjobs and operator.original:
        value = json.dumps(operator.original._asdict())
        yield kubectl(*within(operator), "annotate", f"deployment/{operator.name}", f"{RECORD}={value}", "--overwrite")


def _restore_bindings(cluster: ClusterState, operator: TrainingOperator) -> Iterator[str]:
    """Yield the commands that give training-operator its permissions in all namespaces again, if some were moved before."""
    if not (cluster.moved or operator.recorded_bindings):
        return
    bindings = bindings_of(cluster, operator)
    if not bindings:
        yield "#    Its ClusterRoleBindings are not known: none was found, and no plan has recorded them. Before you continue,"
        yield "#    create them again from its manifests."
        return
    yield "#    It gets the permissions back that it lost when namespaces were moved one by one."
    yield from (bind(binding, operator) for binding in bindings)
    yield forget_bindings(operator)


def bindings_of(cluster: ClusterState, operator: TrainingOperator) -> list[tuple[str, str]]:
    """Return the ClusterRoleBindings of training-operator and their ClusterRoles, with those that a plan has recorded.

    Those of its manifests if they may not be read; none if they are not known.
    """
    names = {_name(each): text(mapping(each.get("roleRef")).get("name")) for each in binding_objects(cluster, operator)}
    names |= operator.recorded_bindings
    return [*names.items()] or ([(_NAME, _NAME)] if cluster.bindings is None else [])


def forget_bindings(operator: TrainingOperator) -> str:
    """Return the command that deletes the record of the ClusterRoleBindings, once they exist again."""
    return kubectl(*within(operator), "annotate", f"deployment/{operator.name}", f"{BINDINGS_RECORD}-")


def binding_objects(cluster: ClusterState, operator: TrainingOperator) -> list[Mapping[str, Any]]:
    """Return the ClusterRoleBindings of training-operator, except the one of `READER`."""
    bound = _bound_to(cluster, operator.namespace, operator.account)
    return [each for each in bound if mapping(each.get("roleRef")).get("name") != READER]


def _bound_to(cluster: ClusterState, namespace: str, account: str) -> list[Mapping[str, Any]]:
    """Return the ClusterRoleBindings of a service account."""
    return [
        binding for binding in cluster.bindings or () if ("ServiceAccount", namespace, account) in _subjects(binding)
    ]


def _subjects(binding: Mapping[str, Any]) -> list[tuple[object, object, object]]:
    return [
        (subject.get("kind"), subject.get("namespace"), subject.get("name"))
        for subject in listed(binding.get("subjects"))
    ]


def _name(body: Mapping[str, Any]) -> str:
    return text(mapping(body.get("metadata")).get("name"))


def bind(binding: tuple[str, str], operator: TrainingOperator, namespace: str | None = None) -> str:
    """Return the command that binds a ClusterRole to training-operator, in `namespace` if given; it may be repeated."""
    name, role = binding
    scope = ("-n", namespace) if namespace else ()
    kind = "rolebinding" if namespace else "clusterrolebinding"
    account = f"--serviceaccount={operator.namespace}:{operator.account}"
    options = f"--clusterrole={role}", account, "--dry-run=client", "-o", "yaml"
    return f"{kubectl(*scope, 'create', kind, name, *options)} | {kubectl('apply', '-f', '-')}"


def _set_schemes(operator: TrainingOperator, kinds: Iterable[str]) -> str:
    """Return the command that limits training-operator to these kinds."""
    args = [*_without(operator.args, _SCHEME), *(f"--enable-scheme={kind}" for kind in kinds)]
    changed: dict[str, Any] = {"args": args}
    if operator.command is not None and flag_values(operator.command, _SCHEME):
        changed["command"] = _without(operator.command, _SCHEME)
    return _patch_container(operator, changed)


def _patch_container(operator: TrainingOperator, changed: Mapping[str, Any]) -> str:
    """Return the command that changes the container by its name: a patch by index fails if another container was inserted."""
    containers = [{"name": operator.container, **changed}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    return kubectl(*within(operator), "patch", "deployment", operator.name, "--type=strategic", patch=patch)


def _kept_by_flags(cluster: ClusterState) -> list[Difference]:
    """Return the differences for whose flags there is a reason: all of them if the jobs are unknown."""
    kept = [
        difference
        for difference in DIFFERENCES.values()
        if difference.flags and (cluster.jobs is None or difference.id in cluster.differences)
    ]
    # The flag deletes working sidecars, too, for which training-operator waits.
    has_sidecars = cluster.jobs is None or not {SIDECARS.id, SIDECARS_KEPT.id}.isdisjoint(cluster.differences)
    return [difference for difference in kept if not (difference is COMPLETION_GRACE and has_sidecars)]


def _install(cluster: ClusterState, operator: TrainingOperator) -> Iterator[str]:
    # The file without a namespace object: deleting the other one would delete everything in the namespace.
    file = "install-kubeflow.yaml" if operator.namespace == NAMESPACE else "install.yaml"
    yield f"# 3. Install tfjob-operator with {file} of its release. Do not delete the CRD: that would delete all jobs."
    yield from set_flags(cluster, operator, file, cluster.installed)
    yield from _remove_installations(cluster)
    if has_gang(operator):
        yield kubectl("apply", "-k", GANG_ADDON)
    yield from apply_and_wait(file, NAMESPACE)


def _remove_installations(cluster: ClusterState) -> Iterator[str]:
    """Yield the commands that remove the installations outside of `NAMESPACE`. They may be repeated."""
    for namespace in _replaced_namespaces(cluster):
        yield f"#    Remove its installation in {namespace}: it would write the same jobs."
        yield from _remove_cluster_bindings(cluster, namespace)
        yield kubectl("-n", namespace, "delete", _OBJECTS, f"--selector={OURS}")
        yield wait_until_gone(namespace, OURS)


def _replaced_namespaces(cluster: ClusterState) -> list[str]:
    """Return the namespaces whose installation of this operator is replaced by one in `NAMESPACE`."""
    return sorted({*cluster.moved, *(installation.namespace for installation in cluster.installed)} - {NAMESPACE})


def _remove_cluster_bindings(cluster: ClusterState, namespace: str) -> Iterator[str]:
    """Yield the commands that delete the ClusterRoleBindings of an installation, whose account could be created again.

    They come first: a plan that is printed after an error finds them by the Deployment.
    """
    accounts = sorted(
        {installation.account for installation in cluster.installed if installation.namespace == namespace}
    )
    if accounts and cluster.bindings is None:
        yield f"#    Delete the ClusterRoleBindings of its ServiceAccount {', '.join(accounts)} too: they cannot be read."
    own = [("ServiceAccount", namespace, account) for account in accounts]
    bound = {_name(each): each for account in accounts for each in _bound_to(cluster, namespace, account)}
    for name, binding in bound.items():
        labels = mapping(mapping(binding.get("metadata")).get("labels"))
        if labels.get(_NAME_LABEL) == _OWN_NAME and all(subject in own for subject in _subjects(binding)):
            yield kubectl("delete", "clusterrolebinding", name, "--ignore-not-found")
        else:
            yield f"#    Remove its ServiceAccount from the ClusterRoleBinding {shlex.quote(name)}, which others may use too."


def has_gang(operator: TrainingOperator) -> bool:
    """Return True if it has a gang scheduler, by a name that can be one."""
    return bool(_SUBDOMAIN.fullmatch(operator.gang_scheduler))


def set_flags(
    cluster: ClusterState, operator: TrainingOperator, file: str, replaced: Sequence[Installation]
) -> Iterator[str]:
    """Yield the command that adds flags, and the differences without one.

    They are those which keep the behavior of training-operator, and those of the installations that are replaced.
    """
    kept = _kept_by_flags(cluster)
    needed = [each for difference in kept for each in difference.flags]
    if has_gang(operator):
        needed += ["--enable-gang-scheduling", f"--gang-scheduler-name={operator.gang_scheduler}"]
    flags = {flag_name(each): each for each in needed}
    for installation in replaced:
        for flag in installation.flags:
            if not is_plain(flag):
                yield f"#    {installation} has {shlex.quote(flag)}: add it yourself."
            elif flags.setdefault(flag_name(flag), flag) != flag:
                yield f"#    {installation} has {flag}: the plan sets {flags[flag_name(flag)]}."
    if flags:
        yield "#    These flags keep the behavior of training-operator, and of tfjob-operator where it is installed already."
        yield "#    Set them in your overlay, or with Helm in extraArgs:"
        lines = "".join(rf"\n\1{each}" for each in flags.values())
        # The first expression removes those that an earlier run has added.
        names = r"\|".join(flags)
        earlier = rf"/^ *- \({names}\)\(=.*\)\{{0,1\}}$/d"
        yield rf"sed -i -e '{earlier}' -e 's|^\( *- \){_FIRST_ARGUMENT}$|&{lines}|' {file}"
    done = {difference.id for difference in kept} | ({GANG.id} if has_gang(operator) else set())
    rest = [
        f"{id_} ({len(jobs)} job{'s' * (len(jobs) != 1)})"
        for id_, jobs in cluster.differences.items()
        if id_ not in done
    ]
    if rest:
        yield f"#    No flag keeps the behavior of these; see --check: {', '.join(rest)}"


def apply_and_wait(file: str, namespace: str) -> Iterator[str]:
    """Yield the commands that install this operator from a file, and wait until it is ready."""
    yield kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
    yield kubectl("-n", namespace, "rollout", "status", "deployment/tf-job-operator", "--timeout=3m")


def explain_seen() -> Iterator[str]:
    """Yield comments about the column SEEN."""
    yield "# 4. When the Deployment is ready, each unfinished job has a number in the column SEEN, except those that another"
    yield "#    controller manages. A number may also be left from an earlier move, before a way back."


def _verify() -> Iterator[str]:
    yield from explain_seen()
    columns = "NAMESPACE:.metadata.namespace,NAME:.metadata.name,SEEN:.status.observedGeneration"
    yield kubectl("get", "tfjobs", "--all-namespaces", "-o", f"custom-columns={columns}")
    yield "#    Keep everything else of training-operator until you are sure that you do not go back."


def unsupported(*scope: str) -> Iterator[str]:
    """Yield the command that lists the jobs which training-operator does not run as they are."""
    yield "# The way back. Keep the CRD of tfjob-operator: if that of training-operator is applied, failurePolicy, network,"
    yield "# tensorBoard and policies in spec are deleted from all jobs for good. Apply its manifests without the CRD."
    yield "# Back 1: These jobs use what training-operator does not support. Suspend them, or let them finish."
    yield "#     In the unfinished jobs of the second list, finished replicas run again if their pods are gone."
    conditions = (".runPolicy.failurePolicy", '.runPolicy.network=="shared"', ".tensorBoard")
    name = '{.metadata.namespace}/{.metadata.name}{"\\n"}'
    for fields in ([f".spec{condition}" for condition in conditions], [".status.finishedIndices"]):
        path = "".join(f"{{range .items[?(@{field})]}}{name}{{end}}" for field in fields)
        yield kubectl("get", "tfjobs", *scope, "-o", f"jsonpath={path}")
    yield "#     The condition Held of these is True. If a replica has failed meanwhile, the job FAILS when training-operator"
    yield "#     starts; its running pods continue unless the job sets cleanPodPolicy. What to correct before:"
    yield f"#     {kubectl('tfjob', 'explain', 'NAME')}"
    states = '{.status.conditions[?(@.type=="Held")].status} {.status.completionTime}'
    name = "{.metadata.namespace}/{.metadata.name}"
    path = f'{{range .items[*]}}{name} {states}{{"\\n"}}{{end}}'
    asked = kubectl("get", "tfjobs", *scope, "-o", f"jsonpath={path}")
    yield if_read("states", asked, """echo "$states" | sed -n 's/ True $//p'""")
    yield "#     Pods of other jobs stay when the job finishes, unless the job sets cleanPodPolicy."


def stop_operator(namespace: str) -> Iterator[str]:
    """Yield the commands that stop this operator, if it was installed: a plan may have ended before that."""
    yield "#     Pods in the grace period of a job that has finished continue, and are deleted when tfjob-operator returns."
    found = kubectl("-n", namespace, "get", "deployment/tf-job-operator", "--ignore-not-found", "-o", "name")
    scale = kubectl("-n", namespace, "scale", "deployment/tf-job-operator", "--replicas=0")
    yield if_read("installed", found, f'[ -z "$installed" ] || {scale}')
    yield wait_until_gone(namespace, "name=tf-job-operator")


def _back(
    cluster: ClusterState, operator: TrainingOperator, webhooks: Sequence[tuple[str, str]], kept: Sequence[str]
) -> Iterator[str]:
    yield from unsupported("--all-namespaces")
    yield "# Back 2: Stop tfjob-operator."
    yield from stop_operator(NAMESPACE)
    # Installations of single namespaces still run if step 3 was not executed.
    yield from _remove_installations(cluster)
    missing = _missing_webhooks(cluster)
    restored = bool(webhooks or missing)
    yield f"# Back 3: Start training-operator for TFJobs{', and restore its webhook entry' * restored}."
    if cluster.moved:
        yield kubectl("label", "namespaces", "--all", f"{MOVED}-")
    # Step 2 restores them too if other kinds need them, but may not have been executed.
    yield from _restore_bindings(cluster, operator)
    yield from _restore_deployment(operator, is_limited=bool(kept))
    if _replaced_namespaces(cluster):
        yield "#     If it has run all the time, it retries denied writes only after up to 17m."
        yield kubectl(*within(operator), "rollout", "restart", f"deployment/{operator.name}")
    yield kubectl(*within(operator), "rollout", "status", f"deployment/{operator.name}", "--timeout=3m")
    if missing:
        yield "#     The entry was removed before: webhook.json is the file that step 1 of the first plan has saved."
    for name, file in [*webhooks, *missing]:
        command = shlex.join(["kubectl", "patch", "validatingwebhookconfiguration", name, "--type=strategic"])
        yield f'{command} --patch="$(cat {file})"'


def _restore_deployment(operator: TrainingOperator, *, is_limited: bool) -> Iterator[str]:
    """Yield the commands that undo step 2, also if an earlier plan executed it."""
    original = operator.original
    if original is None:
        yield "#     Its original arguments are not known: it serves no TFJobs now, and no plan has recorded them. Take the"
        yield "#     commands of this step from the first plan, or remove --enable-scheme from its arguments."
        return
    if operator.found and not operator.serves_tfjobs and operator.recorded is None:
        yield "#     Its original number of replicas is not recorded; its manifests have 1."
    changed: dict[str, Any] = {}
    if is_limited or original.args != operator.args:
        changed["args"] = original.args
    if original.command != operator.command or (is_limited and flag_values(operator.command or (), _SCHEME)):
        changed["command"] = original.command
    if changed:
        yield _patch_container(operator, changed)
    if not is_limited or original.replicas != operator.replicas:
        yield kubectl(*within(operator), "scale", f"deployment/{operator.name}", f"--replicas={original.replicas}")
    yield kubectl(*within(operator), "annotate", f"deployment/{operator.name}", f"{RECORD}-")


def _wait_until_terminated(namespace: str, selector: str) -> str:
    """Return the command that waits until no pod with these labels is terminating. An error does not end it."""
    path = "jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}"
    asked = kubectl("-n", namespace, "get", "pods", f"--selector={selector}", "-o", path)
    return f'until left=$({asked}) && [ -z "$left" ]; do sleep 1; done'


def wait_until_gone(namespace: str, selector: str) -> str:
    """Return the command that waits until no pod has these labels. kubectl 1.20 fails if there is none from the start."""
    chosen = f"--selector={selector}"
    wait = kubectl("-n", namespace, "wait", "pod", "--for=delete", chosen, "--timeout=3m")
    asked = kubectl("-n", namespace, "get", "pod", chosen, "-o", "name")
    return f'{wait} || [ "$({asked} && echo none)" = none ]'


def if_read(variable: str, asked: str, command: str) -> str:
    """Return a command that uses what another one prints, and fails if that one does.

    By itself, an error of a substitution ends neither a list with `&&` nor the words of `for`, also under `set -e`.
    """
    return f"if {variable}=$({asked}); then {command}; else false; fi"


def within(operator: TrainingOperator) -> tuple[str, str]:
    """Return the options of kubectl for its namespace."""
    return "-n", operator.namespace


def kubectl(*words: str, patch: Mapping[str, Any] | None = None) -> str:
    """Return a command line, quoted for a shell."""
    return shlex.join(["kubectl", *words, *([f"--patch={json.dumps(patch)}"] if patch is not None else [])])
