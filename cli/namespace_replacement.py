"""The steps that move the jobs of one namespace from training-operator 1.9 to this operator, and back. Pure.

training-operator serves either one namespace or all of them, so its permissions end at the namespace instead: it may read all
namespaces, and write only in those that are not moved. This operator may write in its own namespace only. Permissions are taken
away before others are given, so no job ever has two operators that can write it. Executed with training-operator 1.9.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tfjob_operator.cli.model.facts import listed, mapping, text
from tfjob_operator.cli.operators import (
    BINDINGS_RECORD,
    MOVED,
    NAMESPACE,
    OURS,
    READER,
    RECORD,
    TFJOB_ENTRY,
    ClusterState,
    TrainingOperator,
    binding_objects,
    bindings_of,
    training_operator,
    webhook_configs,
)
from tfjob_operator.cli.replacement import (
    CRD,
    GANG_ADDON,
    HOW_TO_RUN,
    about_late_jobs,
    about_rivalry,
    about_the_deployment,
    about_the_jobs,
    apply_and_wait,
    as_script,
    bind,
    check_before,
    explain_seen,
    forget_bindings,
    has_gang,
    if_read,
    kubectl,
    managed,
    set_flags,
    stop_operator,
    unsupported,
    within,
)

_EACH: Final = "EACH"
"""Stands for the variable of a loop, which must not be quoted. No namespace has such a name."""
_VALUE: Final = "tfjob-operator"
_FILE: Final = "install-namespaced.yaml"
_READ: Final = ["get", "list", "watch"]
_KINDS: Final = [
    *("configmaps", "events", "horizontalpodautoscalers", "podgroups", "pods", "rolebindings", "roles", "secrets"),
    *("serviceaccounts", "services"),
]
_READ_RULES: Final[list[dict[str, list[str]]]] = [
    {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": _READ},
    {
        "apiGroups": ["", "autoscaling", "rbac.authorization.k8s.io", "scheduling.volcano.sh", "scheduling.x-k8s.io"],
        "resources": _KINDS,
        "verbs": _READ,
    },
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations"],
        "verbs": [*_READ, "update"],
    },
]
"""What training-operator 1.9 reads, in all namespaces; and its webhook configuration, which is in none."""


def refusal(cluster: ClusterState, namespace: str) -> str:
    """Return why a namespace cannot be moved alone, "" if it can."""
    operator = training_operator(cluster)
    if operator.only:
        return f"training-operator serves only the namespace {operator.only}: use --plan without a namespace"
    if namespace == operator.namespace:
        return f"{namespace} is the namespace of training-operator, which keeps its permissions there: move it with all others"
    rivals = [
        installation
        for installation in cluster.installed
        if installation.serves(namespace) and (installation.namespace != namespace or not installation.served)
    ]
    if rivals:
        return f"tfjob-operator {rivals[0]} serves {namespace} already: a second one would write the same jobs"
    if operator.namespace in _unlabelled(cluster, namespace):
        return (
            f"tfjob-operator serves {operator.namespace} already, the namespace of training-operator, which keeps its "
            "permissions there: stop it first, or move all namespaces with --plan"
        )
    if why := _not_serving(operator):
        return (
            f"training-operator may not serve the other namespaces: {why}. Restore it with the steps Back 1 to Back 3 of "
            f"`{kubectl('tfjob', 'migrate', '--plan')}`, or move all namespaces with that plan"
        )
    if not bindings_of(cluster, operator):
        account = f"{operator.namespace}:{operator.account}"
        return (
            f"the permissions of training-operator are not known: its ServiceAccount {account} has no ClusterRoleBinding, and "
            "no plan has recorded one. Create it again from its manifests, or move all namespaces with --plan"
        )
    return ""


def _not_serving(operator: TrainingOperator) -> str:
    """Return why TFJobs may have no training-operator, "" if they have one or its Deployment is not known."""
    if operator.found and not operator.replicas:
        return "it has 0 replicas"
    if not operator.may_serve_tfjobs:
        return "--enable-scheme of training-operator has no tfjob"
    return f"a plan for all namespaces has begun to stop it, by its annotation {RECORD}" if operator.recorded else ""


def _unlabelled(cluster: ClusterState, namespace: str) -> list[str]:
    """Return the other namespaces in which an installation of this operator runs, and that no plan has moved."""
    served = {
        installation.served
        for installation in cluster.installed
        if installation.served and installation.serves(installation.served)
    }
    return sorted(served - {*cluster.moved, namespace})


def namespace_plan(cluster: ClusterState, namespace: str) -> Iterator[str]:
    """Yield the lines of the script."""
    operator = training_operator(cluster)
    yield f"# Move the TFJobs of namespace {namespace} to tfjob-operator, while training-operator serves the other namespaces."
    yield "# Nothing was changed: review these steps, and run them in this order,"
    yield from HOW_TO_RUN
    yield from about_rivalry(cluster)
    yield from about_the_jobs(cluster, "-n", namespace)
    yield from about_late_jobs(cluster)
    yield from about_the_deployment(cluster, operator)
    yield from _conflicts(cluster, namespace)
    yield from managed(
        (
            "its ClusterRoleBinding, and restores it: two operators would run the same pods",
            binding_objects(cluster, operator),
        ),
        (f"the CRD {CRD}, and replaces it: fields that only tfjob-operator has are deleted", [cluster.crd or {}]),
    )
    there = (
        check_before(cluster, operator, _FILE),
        _require_impersonation(operator),
        _mark(cluster, namespace),
        _limit(cluster, operator, namespace),
        _install(cluster, operator, namespace),
        _verify(namespace),
    )
    yield from as_script(there, _back(cluster, operator, namespace))


def _conflicts(cluster: ClusterState, namespace: str) -> Iterator[str]:
    kinds = sorted({*cluster.kinds, *cluster.unknown_kinds})
    if kinds:
        yield f"# training-operator will not serve other kinds in {namespace} either. Let these finish first, or move all"
        yield f"# namespaces at once: {', '.join(kinds)}"
    yield "# Until all namespaces are moved, or back, do not apply the manifests of training-operator: their ClusterRoleBinding"
    yield f"# would let it write in {namespace} beside tfjob-operator, and their CRD would delete fields of jobs for good."


def _require_impersonation(operator: TrainingOperator) -> Iterator[str]:
    asked = kubectl(*within(operator), "auth", "can-i", "impersonate", f"serviceaccounts/{operator.account}")
    yield "# Step 2 asks the API server what training-operator may do. For that, you need permission to impersonate its"
    yield "# ServiceAccount. Without it, do not start: step 2 would not end."
    yield f"{asked} || {{ echo 'error: no permission to impersonate the ServiceAccount of training-operator' >&2; false; }}"


def _mark(cluster: ClusterState, namespace: str) -> Iterator[str]:
    yield "# 1. Label the namespace. The webhook of training-operator no longer validates TFJobs of namespaces with this label."
    for config in webhook_configs(cluster):
        (entry,) = (webhook for webhook in listed(config.get("webhooks")) if webhook.get("name") == TFJOB_ENTRY)
        # A patch replaces the list.
        others = [
            expression
            for expression in listed(mapping(entry.get("namespaceSelector")).get("matchExpressions"))
            if expression.get("key") != MOVED
        ]
        expressions = [*others, {"key": MOVED, "operator": "NotIn", "values": [_VALUE]}]
        patch: Mapping[str, Any] = {
            "webhooks": [{"name": TFJOB_ENTRY, "namespaceSelector": {"matchExpressions": expressions}}]
        }
        name = text(mapping(config.get("metadata")).get("name"))
        yield kubectl("patch", "validatingwebhookconfiguration", name, "--type=strategic", patch=patch)
    yield kubectl("label", "namespace", namespace, f"{MOVED}={_VALUE}", "--overwrite")
    for other in _unlabelled(cluster, namespace):
        yield f"#    tfjob-operator serves {other} already: training-operator must not write there either."
        yield kubectl("label", "namespace", other, f"{MOVED}={_VALUE}", "--overwrite")


def _limit(cluster: ClusterState, operator: TrainingOperator, namespace: str) -> Iterator[str]:
    bindings = bindings_of(cluster, operator)
    yield "# 2. Bind the permissions of training-operator in each namespace without the label, and let it read everywhere."
    yield "#    Repeat this loop after a namespace was created: until then, training-operator cannot serve it."
    yield from _bind_the_others(operator, bindings)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": READER}}
    yield f"echo '{json.dumps(role | {'rules': _READ_RULES})}' | {kubectl('apply', '-f', '-')}"
    yield bind((READER, READER), operator)
    if operator.found and binding_objects(cluster, operator):
        value = json.dumps(dict(bindings))
        words = f"deployment/{operator.name}", f"{BINDINGS_RECORD}={value}", "--overwrite"
        yield kubectl(*within(operator), "annotate", *words)
    served = [namespace, *_unlabelled(cluster, namespace)]
    yield f"#    Then take its permissions in {', '.join(served)} away. Pods continue."
    for name, _ in bindings:
        yield kubectl("delete", "clusterrolebinding", name, "--ignore-not-found")
        yield from (kubectl("-n", each, "delete", "rolebinding", name, "--ignore-not-found") for each in served)
    for each in served:
        yield f"#    If this does not end, training-operator can still write in {each}, by another binding: do not continue."
        yield from _wait_until_denied(f"system:serviceaccount:{operator.namespace}:{operator.account}", each)


def _bind_the_others(operator: TrainingOperator, bindings: list[tuple[str, str]]) -> Iterator[str]:
    # Nothing can be created in a namespace that is being deleted.
    options = "--field-selector=status.phase=Active", "-o", "jsonpath={.items[*].metadata.name}"
    names = kubectl("get", "namespaces", f"--selector={MOVED}!={_VALUE}", *options)
    for binding in bindings:
        command = bind(binding, operator, _EACH).replace(f" {_EACH} ", ' "$namespace" ', 1)
        # zsh splits only substitutions of commands.
        yield if_read("namespaces", names, f'for namespace in $(echo "$namespaces"); do {command}; done')


def _wait_until_denied(account: str, namespace: str) -> Iterator[str]:
    """Yield commands that end when the account cannot write jobs in a namespace. An error does not end them."""
    status = "update", "tfjobs.kubeflow.org", "--subresource=status"
    for words in (
        ("create", "pods"),
        ("delete", "pods"),
        ("create", "services"),
        ("delete", "tfjobs.kubeflow.org"),
        status,
    ):
        asked = kubectl("-n", namespace, "auth", "can-i", *words, f"--as={account}")
        yield f'until case "$({asked})" in no*) ;; *) false ;; esac; do sleep 1; done'


def _install(cluster: ClusterState, operator: TrainingOperator, namespace: str) -> Iterator[str]:
    file = f"tfjob-operator-{namespace}.yaml"
    yield f"# 3. Install tfjob-operator in {namespace} with {_FILE} of its release: it serves no other."
    yield f"sed 's/^\\( *namespace:\\) {NAMESPACE}$/\\1 {namespace}/' {_FILE} > {file}"
    yield from set_flags(
        cluster,
        operator,
        file,
        [installation for installation in cluster.installed if installation.namespace == namespace],
    )
    if has_gang(operator):
        yield kubectl("apply", "-k", GANG_ADDON)
        role = "tf-job-operator-gang-scheduling"
        account = f"--serviceaccount={namespace}:tf-job-operator"
        options = f"--clusterrole={role}", account, "--dry-run=client", "-o", "yaml"
        yield f"{kubectl('-n', namespace, 'create', 'rolebinding', role, *options)} | {kubectl('apply', '-f', '-')}"
    yield from apply_and_wait(cluster, file, namespace)


def _verify(namespace: str) -> Iterator[str]:
    yield from explain_seen()
    columns = "NAME:.metadata.name,SEEN:.status.observedGeneration"
    yield kubectl("-n", namespace, "get", "tfjobs", "-o", f"custom-columns={columns}")
    yield f"#    Then move the next namespace, or all that are left with {kubectl('tfjob', 'migrate', '--plan')}."


def _back(cluster: ClusterState, operator: TrainingOperator, namespace: str) -> Iterator[str]:
    bindings = bindings_of(cluster, operator)
    yield from unsupported("-n", namespace)
    yield f"# Back 2: Stop tfjob-operator in {namespace}, and take its permissions away."
    yield from stop_operator(namespace)
    yield kubectl("-n", namespace, "delete", "role,rolebinding", f"--selector={OURS}")
    yield "# Back 3: Give training-operator its permissions again, and restart it: denied writes are retried after up to 17m."
    yield kubectl("label", "namespace", namespace, f"{MOVED}-")
    yield from (bind(binding, operator, namespace) for binding in bindings)
    yield kubectl(*within(operator), "rollout", "restart", f"deployment/{operator.name}")
    yield kubectl(*within(operator), "rollout", "status", f"deployment/{operator.name}", "--timeout=3m")
    yield "# Back 4: When no namespace has the label, it gets its ClusterRoleBinding again."
    moved = kubectl("get", "namespaces", f"--selector={MOVED}={_VALUE}", "-o", "name")
    restored = " && ".join([*(bind(binding, operator) for binding in bindings), forget_bindings(operator)])
    yield if_read("moved", moved, f'[ -n "$moved" ] || {{ {restored}; }}')
