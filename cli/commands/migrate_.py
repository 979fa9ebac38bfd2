"""`kubectl tfjob migrate`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import click

from tfjob_operator.api.v1.states import ENDS
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError, warn
from tfjob_operator.cli.model.facts import GROUP, listed
from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.terminal import TablePrinter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tfjob_operator.cli.installations import Installation
    from tfjob_operator.cli.migration import CheckedJob
    from tfjob_operator.cli.operators import ClusterState
    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target

DIFFERENT: Final = 3
"""The exit code if a job would behave differently."""
_SHOWN: Final = 3
"""The most jobs that are listed with the description of a difference."""
_DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_NAMESPACES: Final = "/api/v1/namespaces"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@click.command("migrate")
@click.option("--check", "what", flag_value="check", help="List for each job what would change.")
@click.option(
    "--plan",
    "what",
    flag_value="plan",
    help="Print the steps for this cluster, or with -n for a namespace.",
)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Check the jobs of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Print the check for a program.")
@target_options
def command(*, target: Target, what: str | None, everywhere: bool, output: str | None) -> None:
    """Show what changes when tfjob-operator replaces training-operator 1.9, or print the steps.

    Nothing is changed: only get and list requests are sent. --check exits with 3 if a job would behave differently.
    """
    if what is None:
        raise click.UsageError("--check or --plan is required")
    if what == "plan":
        if everywhere or output is not None:
            raise click.UsageError(
                "--plan is for one namespace or the whole cluster, and prints commands: omit -A and -o"
            )
        with target.session() as session:
            lines = [*_plan(session, target.namespace)]
        echo(*map(target.for_cluster, lines))
        return
    with target.session() as session:
        namespace = None if everywhere else session.namespace
        found = _check_now(session, namespace)
        if namespace and not found:
            _require_namespace(session, namespace)
    if output is not None:
        _print_for_program(found, output)
    else:
        echo(*_report(found, namespace))
    if any(job.differences for job in found):
        raise click.exceptions.Exit(DIFFERENT)


def _check_now(session: Session, namespace: str | None) -> list[CheckedJob]:
    """Check the jobs with what may be read about the operators. Most users may not read Deployments."""
    from tfjob_operator.cli.operators import ClusterState, has_gang_scheduling, is_served, rivalry

    cluster = ClusterState(_deployments(session), _read_list(session, _WEBHOOKS))

    @cache
    def operators() -> ClusterState | None:
        """Return what decides who serves a namespace, read only if jobs were served before; None without permission."""
        installed = _installed(session)
        moved = _moved(session)
        if cluster.deployments is None or installed is None or moved is None:
            warn(
                "no permission to read Deployments and Namespaces: "
                "jobs that tfjob-operator served once count as served by it"
            )
            return None
        bindings = _read_list(session, _BINDINGS) if moved else ()
        known = cluster._replace(installed=installed, moved=moved, bindings=bindings)
        if conflict := rivalry(known):
            warn(conflict)
        return known

    def serves(namespace: str) -> bool:
        known = operators()
        return known is None or is_served(known, namespace)

    return _check(session, namespace, gang=has_gang_scheduling(cluster), is_served=serves)


def _check(
    session: Session, namespace: str | None, *, gang: bool | None, is_served: Callable[[str], bool]
) -> list[CheckedJob]:
    """Check the jobs of a namespace, or of all, sorted by namespace and name."""
    from tfjob_operator.cli.migration import check

    now = datetime.now(UTC).timestamp()
    checked = (
        check(job, gang=gang, is_served=is_served, now=now)
        for page in jobs.pages(session, namespace)
        for job in page["items"]
    )
    return sorted(checked, key=attrgetter("namespace", "name"))


def _report(found: Sequence[CheckedJob], namespace: str | None) -> Iterator[str]:
    """Yield a table of the jobs that change, a description of each difference, and the number of jobs by namespace."""
    from tfjob_operator.cli.migration import DIFFERENCES

    if not found:
        yield f"No TFJobs found{'' if namespace is None else f' in {namespace} namespace'}."
        return
    changed = [job for job in found if job.differences]
    if changed:
        rows = [(job.namespace, job.name, job.state, ", ".join(job.differences)) for job in changed]
        yield from TablePrinter(("NAMESPACE", "NAME", "STATE", "DIFFERENCES")).lines(rows)
        yield ""
    for id_, difference in DIFFERENCES.items():
        concerned = [job for job in changed if id_ in job.differences]
        if not concerned:
            continue
        yield f"{id_}: {len(concerned)} job{'s' * (len(concerned) != 1)}"
        yield f"  training-operator: {difference.before}"
        yield f"  tfjob-operator:    {difference.here}"
        yield f"  to keep it:        {difference.keep or 'not possible'}"
        yield from (f"    {job.namespace}/{job.name}: {job.differences[id_]}" for job in concerned[:_SHOWN])
        if len(concerned) > _SHOWN:
            yield f"    and {len(concerned) - _SHOWN} more: see -o json"
        yield ""
    sums = [(name, *map(str, sums.values())) for name, sums in _by_namespace(found).items()]
    if namespace is None:
        sums.append(("TOTAL", *map(str, _sums(found).values())))
    yield from TablePrinter(("NAMESPACE", "JOBS", "DIFFERENT", "ON HOLD", "SAME", "UNAFFECTED")).lines(sums)


def _sums(found: Iterable[CheckedJob]) -> dict[str, int]:
    """Return how many jobs there are, and how many of them change. Those on hold are among the different ones."""
    count = Counter[str]()
    for job in found:
        count["jobs"] += 1
        count["onHold"] += "invalid" in job.differences
        count["different" if job.differences else "unaffected" if job.unaffected else "same"] += 1
    return {key: count[key] for key in ("jobs", "different", "onHold", "same", "unaffected")}


def _by_namespace(found: Iterable[CheckedJob]) -> dict[str, dict[str, int]]:
    return {name: _sums(group) for name, group in groupby(found, attrgetter("namespace"))}


def _print_for_program(found: Sequence[CheckedJob], output: str) -> None:
    from tfjob_operator.cli.migration import DIFFERENCES

    used = {id_ for job in found for id_ in job.differences}
    value = {
        "differences": {id_: each._asdict() for id_, each in DIFFERENCES.items() if id_ in used},
        "jobs": [job._asdict() for job in found],
        "namespaces": _by_namespace(found),
        "total": _sums(found),
    }
    print_value(value, output)


def _plan(session: Session, namespace: str | None) -> Iterator[str]:
    """Return the lines of the plan for this cluster, or for one of its namespaces. Raises CliError."""
    from tfjob_operator.cli.migration import DIFFERENCES
    from tfjob_operator.cli.namespace_replacement import namespace_plan, refusal
    from tfjob_operator.cli.operators import (
        SELECTOR,
        ClusterState,
        has_gang_scheduling,
        needs_bindings,
        nothing_to_replace,
    )
    from tfjob_operator.cli.replacement import CRD, OTHER_KINDS, plan

    cluster = ClusterState(
        _deployments(session), _read_list(session, _WEBHOOKS), crd=session.get_if_allowed(f"{_CRDS}/{CRD}")
    )
    moved = _moved(session)
    cluster = cluster._replace(moved=moved or (), installed=_installed(session) or ())
    if nothing_to_replace(cluster):
        raise CliError(
            f"nothing to replace: no Deployment has the label {SELECTOR}, and no webhook is that of training-operator. "
            "Install tfjob-operator as in docs/install.md"
        )
    if namespace:
        _require_namespace(session, namespace)
    cluster = cluster._replace(bindings=_read_list(session, _BINDINGS) if namespace or needs_bindings(cluster) else ())
    for what, read in (
        ("Deployments", cluster.deployments),
        ("webhook configurations", cluster.webhooks),
        (f"the CRD {CRD}", cluster.crd),
        ("ClusterRoleBindings", cluster.bindings),
    ):
        if read is None:
            warn(f"no permission to read {what}: the plan assumes the manifests of training-operator")
    if moved is None:
        warn("no permission to list Namespaces: the plan assumes that none was moved before")
    if namespace and (why := refusal(cluster, namespace)):
        raise CliError(why)
    within = f"namespaces/{namespace}/" if namespace else ""
    others = {kind: _read_list(session, f"/apis/{GROUP}/v1/{within}{kind}", limit="1") for kind in OTHER_KINDS}
    cluster = cluster._replace(
        kinds=[kind for kind, read in others.items() if read],
        unknown_kinds=[kind for kind, read in others.items() if read is None],
    )
    try:
        # Flags apply to all jobs of an installation, also to those that this operator serves already.
        every = _check(session, namespace, gang=has_gang_scheduling(cluster), is_served=lambda _: False)
        checked = [job for job in every if not job.unaffected]
        cluster = cluster._replace(
            jobs=sum(job.state not in ENDS for job in checked),
            differences={
                id_: jobs
                for id_ in DIFFERENCES
                if (jobs := [(job.namespace, job.name) for job in checked if id_ in job.differences])
            },
        )
    except ApiServerError as error:
        if not error.is_denied:
            raise
        where = f"in {namespace}" if namespace else "of all namespaces"
        warn(f"no permission to list TFJobs {where}: the plan has the flags for all differences")
    if not namespace:
        return plan(cluster)
    return namespace_plan(
        cluster._replace(late_elsewhere=_late_elsewhere(session, {*cluster.moved, namespace})), namespace
    )


def _late_elsewhere(session: Session, served: Collection[str]) -> list[tuple[str, str]]:
    """Return the jobs that are beyond their deadlines in all namespaces but these. Raises CliError."""
    from tfjob_operator.cli.migration import DEADLINE_EXCEEDED

    try:
        every = _check(session, None, gang=None, is_served=served.__contains__)
    except ApiServerError as error:
        if not error.is_denied:
            raise
        warn(
            "no permission to list TFJobs of all namespaces: jobs beyond their deadlines in other namespaces are not named"
        )
        return []
    late = (job for job in every if DEADLINE_EXCEEDED.id in job.differences)
    return [(job.namespace, job.name) for job in late if job.namespace not in served]


def _require_namespace(session: Session, namespace: str) -> None:
    """Raise CliError if a namespace does not exist. Without permission to read it, it is assumed to exist."""
    if session.get_if_allowed(f"{_NAMESPACES}/{namespace}") == {}:
        raise CliError(f'namespaces "{namespace}" not found')


def _deployments(session: Session) -> Sequence[Mapping[str, Any]] | None:
    from tfjob_operator.cli.operators import SELECTOR

    return _read_list(session, _DEPLOYMENTS, labelSelector=SELECTOR)


def _installed(session: Session) -> Sequence[Installation] | None:
    """Return the installations of this operator, None without permission."""
    from tfjob_operator.cli.installations import SELECTOR, installations

    found = _read_list(session, _DEPLOYMENTS, labelSelector=SELECTOR)
    return None if found is None else installations(found)


def _moved(session: Session) -> list[str] | None:
    """Return the namespaces that were moved before, None without permission."""
    from tfjob_operator.cli.operators import MOVED

    found = _read_list(session, _NAMESPACES, labelSelector=MOVED)
    return None if found is None else sorted(each["metadata"]["name"] for each in found)


def _read_list(session: Session, path: str, **query: str) -> Sequence[Mapping[str, Any]] | None:
    """Return the objects of a list; none if the resource does not exist, None without permission."""
    read = session.get_if_allowed(path, **query)
    return None if read is None else listed(read.get("items"))
