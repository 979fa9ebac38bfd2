"""`kubectl tfjob migrate`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import click

from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, warn
from tfjob_operator.cli.model.facts import GROUP, listed, mapping, text
from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.terminal import TablePrinter, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfjob_operator.cli.migration import CheckedJob
    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target

DIFFERENT: Final = 3
"""The exit code if a job would behave differently."""
WEBHOOK: Final = "validator.training-operator.kubeflow.org"
WEBHOOK_OF_TFJOBS: Final = "validator.tfjob.training-operator.kubeflow.org"
SELECTOR: Final = "control-plane=kubeflow-training-operator"
OTHER_KINDS: Final = {
    "pytorchjobs": "pytorchjob",
    "mpijobs": "mpijob",
    "xgboostjobs": "xgboostjob",
    "paddlejobs": "paddlejob",
    "jaxjobs": "jaxjob",
}
"""The other resources of training-operator 1.9, with their names for --enable-scheme."""
GITOPS: Final = (
    "argocd.argoproj.io/",
    "app.kubernetes.io/instance",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)


@click.command("migrate")
@click.option("--check", "what", flag_value="check", help="List what would change for each job.")
@click.option("--plan", "what", flag_value="plan", help="Print the steps for this cluster, and the way back.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Check the jobs of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print the check for a program.")
@target_options
def command(*, target: Target, what: str | None, everywhere: bool, output: str | None) -> None:
    """Compare this operator with training-operator 1.9 for the jobs of a cluster, or print how to replace it.

    Nothing is changed: only get and list requests are sent. The exit code of --check is 3 if a job would behave differently.
    """
    if what is None:
        raise click.UsageError("--check or --plan is required")
    with target.session() as session:
        if what == "plan":
            if output or everywhere:
                raise click.UsageError("--plan is for the whole cluster, and prints commands: omit -A and -o")
            echo(*_plan(target, session))
            return
        found = _checked(session, None if everywhere else session.namespace)
        if output is not None:
            _print_for_program(found, output)
        else:
            echo(*_report(found, None if everywhere else session.namespace))
    if any(each.differences for each in found):
        raise click.exceptions.Exit(DIFFERENT)


def _checked(session: Session, namespace: str | None) -> list[CheckedJob]:
    from tfjob_operator.cli.migration import check

    return [check(job) for page in jobs.pages(session, namespace) for job in page["items"]]


def _report(found: Sequence[CheckedJob], namespace: str | None) -> Iterator[str]:
    """Yield the table of jobs for which something changes, what changes, and the numbers of jobs."""
    from tfjob_operator.cli.migration import DIFFERENCES

    if not found:
        yield f"No TFJobs found{'' if namespace is None else f' in {namespace} namespace'}."
        return
    changed = [each for each in found if each.differences]
    rows = [(each.namespace, each.name, each.state, ", ".join(each.differences)) for each in changed]
    header = ("NAMESPACE", "NAME", "STATE", "DIFFERENCES")
    yield from TablePrinter(header, width=terminal().width).lines(rows)
    of: dict[str, list[CheckedJob]] = defaultdict(list)
    for each in changed:
        for name in each.differences:
            of[name].append(each)
    for name, difference in DIFFERENCES.items():
        if name in of:
            yield from ("", f"{name}: {_counted(len(of[name]))}")
            yield f"  training-operator: {difference.before}"
            yield f"  tfjob-operator:    {difference.here}"
            yield f"  to keep it:        {difference.keep}"
            yield from (f"    {each.namespace}/{each.name}: {each.differences[name]}" for each in of[name][:3])
            if len(of[name]) > 3:
                yield f"    and {len(of[name]) - 3} more: -o json"
    yield ""
    if namespace is None:
        names = dict.fromkeys(each.namespace for each in found)
        yield from (_sum(each, [job for job in found if job.namespace == each]) for each in names)
    yield _sum("In all" if namespace is None else namespace, found)


def _counted(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def _sum(who: str, found: Sequence[CheckedJob]) -> str:
    """Return how many jobs there are, and how many of them change."""
    unchanged = Counter(each.unchanged for each in found if each.unchanged)
    same = sum(not each.differences and not each.unchanged for each in found)
    held = sum("invalid" in each.differences for each in found)
    parts = [f"{count} {why}" for why, count in unchanged.items()] + [f"{same} behave the same"] * bool(same)
    parts += [f"{sum(bool(each.differences) for each in found)} behave differently"]
    parts += [f"{held} of them on hold as invalid"] * bool(held)
    return f"{who}: {_counted(len(found))}: {', '.join(parts)}"


def _print_for_program(found: Sequence[CheckedJob], output: str) -> None:
    from tfjob_operator.cli.migration import DIFFERENCES

    used = {name for each in found for name in each.differences}
    differences = {name: DIFFERENCES[name]._asdict() for name in DIFFERENCES if name in used}
    print_value({"differences": differences, "jobs": [each._asdict() for each in found]}, output)


def _read(session: Session, path: str, **query: str) -> Mapping[str, Any]:
    """Return an object or a list, empty if there is none. Without permission, warn and return an empty one."""
    try:
        return session.get(path, **query)
    except ApiServerError as error:
        if error.is_denied:
            warn(f"no permission to read {path}: the plan has the usual names instead")
        elif not error.is_not_found:
            raise
    return {}


class _Operator:
    """The Deployment of training-operator, as far as it can be read; else as its manifests create it."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        meta, spec = mapping(found.get("metadata")), mapping(found.get("spec"))
        self.namespace = text(meta.get("namespace")) or "kubeflow"
        self.name = text(meta.get("name")) or "training-operator"
        self.replicas = int(spec.get("replicas") or 0) or 1
        template = mapping(mapping(spec.get("template")).get("spec"))
        container = next(iter(listed(template.get("containers"))), {})
        self.has_args = "args" in container
        given = [str(each) for key in ("command", "args") for each in container.get(key) or ()]
        self.gang_scheduler = next((each.partition("=")[2] for each in given if "gang-scheduler-name=" in each), "")
        marks = [*mapping(meta.get("labels")), *mapping(meta.get("annotations"))]
        self.is_synced = any(mark.startswith(GITOPS) for mark in marks)


def _plan(target: Target, session: Session) -> Iterator[str]:
    """Yield the steps as a script with comments."""
    from tfjob_operator.cli.migration import COMPLETION_GRACE, EXIT_CODES, RESTART_DELAY

    deployments = _read(session, "/apis/apps/v1/deployments", labelSelector=SELECTOR)
    operator = _Operator(next(iter(listed(deployments.get("items"))), {}))
    found = [each for each in _checked(session, None) if not each.unchanged]
    used = {name for each in found for name in each.differences}
    flags = [each.keep for each in (EXIT_CODES, RESTART_DELAY, COMPLETION_GRACE) if each.id in used]
    if operator.gang_scheduler:
        flags += ["--enable-gang-scheduling", f"--gang-scheduler-name={operator.gang_scheduler}"]
    others = [kind for kind in OTHER_KINDS if _read(session, f"/apis/{GROUP}/v1/{kind}", limit="1").get("items")]
    yield "# From training-operator to tfjob-operator and back. Nothing has been changed: run the steps in this order."
    yield f"# {_counted(len(found))} that have not ended: kubectl tfjob migrate --check -A shows what changes for them."
    if operator.is_synced:
        yield "# Argo CD, Flux or Helm manages training-operator: first change its source likewise, or pause its"
        yield "# synchronization; otherwise it restores the webhook and starts training-operator again."
    for line in (*_there(operator, others, flags), "", *_back(operator, others)):
        yield target.for_cluster(line)


def _there(operator: _Operator, others: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """Yield the steps that replace training-operator."""
    name, within = operator.name, f"-n {operator.namespace}"
    yield ""
    yield "# 1. Save the webhook, and remove its entry for TFJobs: it refuses each create and update of a TFJob when"
    yield "#    training-operator does not run, or not for TFJobs. This requires jq."
    saved = "del(.metadata.resourceVersion, .metadata.uid, .metadata.creationTimestamp, .metadata.generation)"
    yield f"kubectl get validatingwebhookconfiguration {WEBHOOK} -o json | jq '{saved}' > webhook.json"
    yield f"""jq '.webhooks |= map(select(.name != "{WEBHOOK_OF_TFJOBS}"))' webhook.json | kubectl replace -f -"""
    yield ""
    if others:
        yield f"# 2. Stop training-operator for TFJobs. It serves {', '.join(others)}: it continues with these alone."
        flag = [f"--enable-scheme={OTHER_KINDS[kind]}" for kind in others]
        path = "/spec/template/spec/containers/0/args"
        patch = (
            [{"op": "add", "path": f"{path}/-", "value": each} for each in flag]
            if operator.has_args
            else [{"op": "add", "path": path, "value": flag}]
        )
        yield f"kubectl {within} patch deployment {name} --type=json --patch='{json.dumps(patch)}'"
        yield f"kubectl {within} rollout status deployment/{name} --timeout=3m"
    else:
        yield "# 2. Stop training-operator. Pods continue without it. Never run both for the same jobs."
        yield f"kubectl {within} scale deployment/{name} --replicas=0"
        yield f"kubectl {within} wait pod --for=delete --selector={SELECTOR} --timeout=3m"
    yield ""
    yield "# 3. Install tfjob-operator. Do not delete the CRD: that would delete all jobs."
    yield "kubectl apply --server-side --force-conflicts -f install.yaml"
    if flags:
        yield "#    These flags keep the behavior of training-operator. Add them to its overlay or chart value extraArgs, too:"
        added = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": each} for each in flags]
        yield f"kubectl -n kubeflow patch deployment tf-job-operator --type=json --patch='{json.dumps(added)}'"
    yield "kubectl -n kubeflow rollout status deployment/tf-job-operator --timeout=3m"
    yield ""
    yield "# 4. Jobs that it serves have a number in the column SEEN; finished ones, and those of other managers, have none."
    columns = "NAMESPACE:.metadata.namespace,NAME:.metadata.name,SEEN:.status.observedGeneration"
    yield f"kubectl get tfjobs --all-namespaces -o custom-columns={columns}"
    yield ""
    yield "# Keep the rest of training-operator until you do not want to go back."


def _back(operator: _Operator, others: Sequence[str]) -> Iterator[str]:
    """Yield the steps that restore training-operator."""
    within = f"-n {operator.namespace}"
    yield "# The way back: keep the CRD of tfjob-operator. That of training-operator removes fields of jobs for good."
    yield "# B1. These jobs use what training-operator does not have: suspend them, or let them finish."
    fields = '.runPolicy.failurePolicy or .runPolicy.network == "shared" or .tensorBoard'
    select = f'.items[] | select(.spec | {fields}) | .metadata.namespace + "/" + .metadata.name'
    yield f"kubectl get tfjobs --all-namespaces -o json | jq -r '{select}'"
    yield "# B2. Stop tfjob-operator."
    yield "kubectl -n kubeflow scale deployment/tf-job-operator --replicas=0"
    yield "kubectl -n kubeflow wait pod --for=delete --selector=name=tf-job-operator --timeout=3m"
    yield "# B3. Start training-operator for TFJobs, and restore its webhook."
    if others:
        yield f"kubectl {within} rollout undo deployment/{operator.name}"
    else:
        yield f"kubectl {within} scale deployment/{operator.name} --replicas={operator.replicas}"
    yield f"kubectl {within} rollout status deployment/{operator.name} --timeout=3m"
    yield "kubectl replace -f webhook.json"
