"""The steps that replace training-operator 1.9 by this operator, and the way back, as a shell script for one cluster. Pure.

The order is that of docs/migration.md, as executed with the real training-operator 1.9.4.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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
from tfjob_operator.cli.model.facts import mapping
from tfjob_operator.cli.operators import (
    BINDINGS_RECORD,
    MOVED,
    NAME_LABEL,
    NAMESPACE,
    OURS,
    OWN_NAME,
    RECORD,
    SCHEME,
    SELECTOR,
    TFJOB_ENTRY,
    ClusterState,
    TrainingOperator,
    bindings_of,
    bound_to,
    flag_values,
    is_served,
    missing_webhooks,
    name_of,
    replaced_namespaces,
    rivalry,
    subjects,
    training_operator,
    webhook_configs,
    without,
)

HOW_TO_RUN: Final = (
    "# line by line, or as a file: `sh FILE` runs all steps and ends at the first error, `sh FILE back` runs the way back.",
)
CRD: Final = "tfjobs.kubeflow.org"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
OTHER_KINDS: Final = {
    "jaxjobs": "jaxjob",
    "mpijobs": "mpijob",
    "paddlejobs": "paddlejob",
    "pytorchjobs": "pytorchjob",
    "xgboostjobs": "xgboostjob",
}
"""The other resources of training-operator 1.9, with their names for --enable-scheme."""
GANG_ADDON: Final = "manifests/addons/gang-scheduling"
_OBJECTS: Final = "deployment,service,serviceaccount,role,rolebinding,networkpolicy,configmap"
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
_SURE: Final = (FAILS_AT_MOVE.id, DEADLINE_EXCEEDED.id, TTL_EXCEEDED.id)
"""The differences by which a job surely ends at the move."""
ANYWAY: Final = "anyway"
"""The argument with which a plan continues although it ends or harms jobs."""
_HARMED: Final = {
    "Jobs with failurePolicy, network or tensorBoard, which training-operator ignores:": (
        "{{if .spec.tensorBoard}}{{$is = true}}{{end}}{{with .spec.runPolicy}}{{if .failurePolicy}}{{$is = true}}{{end}}"
        '{{with .network}}{{if eq . "shared"}}{{$is = true}}{{end}}{{end}}{{end}}'
        '{{with .status}}{{with .begun}}{{with .network}}{{if eq . "shared"}}{{$is = true}}{{end}}{{end}}{{end}}{{end}}'
    ),
    "Jobs with finished replicas, which run again if their pods are gone:": (
        "{{with .status}}{{if .finishedIndices}}{{$is = true}}{{end}}{{end}}"
    ),
    "Jobs whose condition Held is True, which run on there, or FAIL if a replica has failed meanwhile:": (
        '{{with .status}}{{range .conditions}}{{if and (eq .type "Held") (eq .status "True")}}{{$is = true}}{{end}}{{end}}'
        "{{end}}"
    ),
}
"""Jobs that training-operator does not run as they are: the part of a template that recognizes them, by the heading."""
_LISTED: Final = (
    "{{range .items}}{{$on := true}}{{$is := false}}{{with .status}}{{if .completionTime}}{{$on = false}}{{end}}{{end}}"
    "{{with .spec.runPolicy}}{{if .suspend}}{{$on = false}}{{end}}{{end}}%s"
    '{{if and $on $is}}{{.metadata.namespace}}/{{.metadata.name}}{{"\\n"}}{{end}}{{end}}'
)
"""The template that lists such jobs, unless they have finished or are suspended."""
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


def plan(cluster: ClusterState) -> Iterator[str]:
    """Yield the lines of the script."""
    operator = training_operator(cluster)
    yield "# Replace training-operator by tfjob-operator. Nothing was changed: review these steps, and run them in this order,"
    yield from HOW_TO_RUN
    yield from about_rivalry(cluster)
    yield from about_the_jobs(cluster, "-A")
    yield "# Going back with the CRD of training-operator deletes fields of all jobs for good: keep that of tfjob-operator."
    yield from about_the_deployment(cluster, operator)
    yield from _about_other_namespaces(cluster, operator)
    yield from _gitops(cluster, operator)
    webhooks = _webhooks(cluster)
    kept = _kept_kinds(cluster, operator)
    there = (
        check_before(cluster, operator, release_file(operator)),
        _remove_webhook(webhooks),
        _stop(cluster, operator, kept),
        _install(cluster, operator),
        _verify(),
    )
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
    yield from ("", '"${1:-move}" "${2-}"')


def check_before(cluster: ClusterState, operator: TrainingOperator, file: str) -> Iterator[str]:
    """Yield the commands that end the script before its first change, if it would fail later or end jobs."""
    yield "# Check before the first change that the file of step 3 is there."
    for path in (file, *([f"{GANG_ADDON}/kustomization.yaml"] if has_gang(operator) else [])):
        missing = f"error: {path} of the release is not in this directory: download it"
        yield f"[ -r {path} ] || {{ echo '{missing}' >&2; false; }}"
    lost = {id_: jobs for id_ in _SURE if (jobs := unserved(cluster, id_))}
    if late := cluster.late_elsewhere:
        lost[DEADLINE_EXCEEDED.id] = [*lost.get(DEADLINE_EXCEEDED.id, ()), *late]
    if lost:
        yield "# These jobs do not survive the move. Let them finish, or change them as --check says, and print the plan again."
        names = [f"  {id_}: {namespace}/{name}" for id_, jobs in lost.items() for namespace, name in jobs[:_MOST_NAMED]]
        reason = f"error: TFJobs would fail or be deleted at the move ({sum(map(len, lost.values()))}), such as:"
        yield unless_anyway(reason, *names, way="move")


def unless_anyway(*lines: str, way: str) -> str:
    """Return the command that fails with these lines, and how to continue, unless the function has the argument `ANYWAY`."""
    shown = shlex.join([*lines, f"To continue all the same: sh FILE {way} {ANYWAY}"])
    return f"[ \"${{1-}}\" = {ANYWAY} ] || {{ printf '%s\\n' {shown} >&2; false; }}"


def unserved(cluster: ClusterState, id_: str) -> list[tuple[str, str]]:
    """Return the jobs with a difference that training-operator still serves."""
    return [job for job in cluster.differences.get(id_, ()) if not is_served(cluster, job[0])]


def about_rivalry(cluster: ClusterState) -> Iterator[str]:
    """Yield a comment if two operators serve the same jobs now."""
    if conflict := rivalry(cluster):
        yield f"# {conflict}."


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
        if concerned := unserved(cluster, id_):
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


def _webhooks(cluster: ClusterState) -> list[tuple[str, str]]:
    """Return the names of the webhook configurations to change, each with the file for its entry."""
    names = [*map(name_of, webhook_configs(cluster))]
    return [(name, f"webhook{f'-{place}' if place else ''}.json") for place, name in enumerate(names)]


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


def forget_bindings(operator: TrainingOperator) -> str:
    """Return the command that deletes the record of the ClusterRoleBindings, once they exist again."""
    return kubectl(*within(operator), "annotate", f"deployment/{operator.name}", f"{BINDINGS_RECORD}-")


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
    args = [*without(operator.args, SCHEME), *(f"--enable-scheme={kind}" for kind in kinds)]
    changed: dict[str, Any] = {"args": args}
    if operator.command is not None and flag_values(operator.command, SCHEME):
        changed["command"] = without(operator.command, SCHEME)
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
    file = release_file(operator)
    yield f"# 3. Install tfjob-operator with {file} of its release. Do not delete the CRD: that would delete all jobs."
    yield from set_flags(cluster, operator, file, cluster.installed)
    yield from _remove_installations(cluster)
    if has_gang(operator):
        yield kubectl("apply", "-k", GANG_ADDON)
    yield from apply_and_wait(cluster, file, NAMESPACE)


def release_file(operator: TrainingOperator) -> str:
    """Return the file of the release that is applied.

    The one without a namespace object, if there is a choice: deleting the other one would delete everything in the namespace.
    """
    return "install-kubeflow.yaml" if operator.namespace == NAMESPACE else "install.yaml"


def _remove_installations(cluster: ClusterState) -> Iterator[str]:
    """Yield the commands that remove the installations outside of `NAMESPACE`. They may be repeated."""
    for namespace in replaced_namespaces(cluster):
        yield f"#    Remove its installation in {namespace}: it would write the same jobs."
        yield from _remove_cluster_bindings(cluster, namespace)
        yield kubectl("-n", namespace, "delete", _OBJECTS, f"--selector={OURS}")
        yield wait_until_gone(namespace, OURS)


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
    bound = {name_of(each): each for account in accounts for each in bound_to(cluster, namespace, account)}
    for name, binding in bound.items():
        labels = mapping(mapping(binding.get("metadata")).get("labels"))
        if labels.get(NAME_LABEL) == OWN_NAME and all(subject in own for subject in subjects(binding)):
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


def apply_and_wait(cluster: ClusterState, file: str, namespace: str) -> Iterator[str]:
    """Yield the commands that install this operator from a file, and wait until it is ready."""
    if cluster.crd is None or LAST_APPLIED in mapping(mapping(cluster.crd.get("metadata")).get("annotations")):
        yield "#    The CRD was applied client-side: with this annotation, it would be too long."
        yield kubectl("annotate", "crd", CRD, f"{LAST_APPLIED}-")
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
    """Yield the commands that list the jobs which training-operator does not run as they are, and end the script if any is."""
    yield "# The way back. Keep the CRD of tfjob-operator: if that of training-operator is applied, failurePolicy, network,"
    yield "# tensorBoard and policies in spec are deleted from all jobs for good. Apply its manifests without the CRD."
    yield "# Back 1: List the unfinished jobs that training-operator does not run as they are. Suspend them, correct those on"
    yield f"#     hold ({kubectl('tfjob', 'explain', 'NAME')}), or let them finish. A script ends here while any is left."
    yield "left="
    for heading, condition in _HARMED.items():
        asked = kubectl("get", "tfjobs", *scope, "-o", f"go-template={_LISTED % condition}")
        yield if_read("jobs", asked, f"""[ -z "$jobs" ] || {{ printf '%s\\n' '{heading}' "$jobs"; left=yes; }}""")
    refused = unless_anyway("error: training-operator would not run these jobs as they are", way="back")
    yield f'[ -z "${{left-}}" ] || {refused}'
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
    missing = missing_webhooks(cluster)
    for _, file in [*webhooks, *missing]:
        why = f"error: {file}, which step 1 saves, is not in this directory: copy it from where the plan was run"
        yield f"[ -r {file} ] || {{ echo '{why}' >&2; false; }}"
    yield from unsupported("--all-namespaces")
    yield "# Back 2: Stop tfjob-operator."
    yield from stop_operator(NAMESPACE)
    # Installations of single namespaces still run if step 3 was not executed.
    yield from _remove_installations(cluster)
    restored = bool(webhooks or missing)
    yield f"# Back 3: Start training-operator for TFJobs{', and restore its webhook entry' * restored}."
    if cluster.moved:
        yield kubectl("label", "namespaces", "--all", f"{MOVED}-")
    # Step 2 restores them too if other kinds need them, but may not have been executed.
    yield from _restore_bindings(cluster, operator)
    yield from _restore_deployment(operator, is_limited=bool(kept))
    if replaced_namespaces(cluster):
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
    if original.command != operator.command or (is_limited and flag_values(operator.command or (), SCHEME)):
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
    """Return the command that waits until no pod has these labels. kubectl 1.20 fails if there is none to wait for."""
    chosen = f"--selector={selector}"
    wait = kubectl("-n", namespace, "wait", "pod", "--for=delete", chosen, "--timeout=3m")
    asked = kubectl("-n", namespace, "get", "pod", chosen, "-o", "name")
    none = f'[ "$({asked} && echo none)" = none ]'
    return f"{none} || {wait} || {none}"


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
