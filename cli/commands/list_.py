"""`kubectl tfjob list`."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import click

from tfjob_operator.api.v1 import states
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError, warn
from tfjob_operator.cli.listing import COLUMNS, POD_SELECTOR, STATES, Listing
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.model.facts import GROUP, state_of
from tfjob_operator.cli.model.job_events import OF_JOBS, WARNINGS
from tfjob_operator.cli.model.snapshot import BACK_OFF
from tfjob_operator.cli.options import print_value, target_options
from tfjob_operator.cli.printing import echo, run
from tfjob_operator.cli.target import kubectl
from tfjob_operator.cli.terminal import TablePrinter, terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target
    from tfjob_operator.cli.watches import Watch


_MAX_EVENTS: Final = 5_000
"""The most events of a kind that are read."""
_STATE, _DURATION, _AGE, _REASON = (COLUMNS.index(name) for name in ("STATE", "DURATION", "AGE", "REASON"))


class Query(NamedTuple):
    """Which jobs to list, and in which order; `namespace` is None for all."""

    namespace: str | None
    names: Sequence[str] = ()
    selector: str = ""
    fields: str = ""
    states: Sequence[str] = ()
    sort_by: str = ""


class Jobs:
    """Reads the jobs of a query.

    `versions` are the resourceVersions of the lists by API group; `failures` counts requested jobs that do not exist.
    """

    def __init__(self, session: Session, query: Query) -> None:
        self.query = query
        self.versions: dict[str, str] = {}
        self.failures = 0
        self._session = session

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the jobs. Raises CliError."""
        for body in self._named() if self.query.names else self._listed():
            if self.takes(body):
                yield body

    def takes(self, body: dict[str, Any]) -> bool:
        """Return True if a job is in one of the requested states."""
        return not self.query.states or state_of(body) in self.query.states

    def read_again(self) -> Iterator[dict[str, Any]]:
        """Yield all jobs of the lists that were read before, in any state. Raises CliError."""
        for group in [*self.versions]:
            where = jobs.path(self.query.namespace, group=group)
            selector, fields = self.query.selector, self.fields
            for page in self._session.pages(where, labelSelector=selector, fieldSelector=fields):
                self.versions[group] = page["metadata"].get("resourceVersion", "")
                yield from page["items"]

    @property
    def fields(self) -> str:
        """The field selector of the query for lists and watches."""
        if not self.query.names:
            return self.query.fields
        return f"metadata.name={self.query.names[0].rpartition('/')[2]}"

    def _named(self) -> Iterator[dict[str, Any]]:
        for name in self.query.names:
            try:
                body = jobs.get(self._session, name)
            except ApiServerError as error:
                if not error.is_not_found:
                    raise
                error.show()
                self.failures += 1
            else:
                self.versions[facts.group_of(body)] = body["metadata"]["resourceVersion"]
                yield body

    def _listed(self) -> Iterator[dict[str, Any]]:
        namespace, selector, fields = self.query.namespace, self.query.selector, self.query.fields
        missing: CliError | None = None
        try:
            for page in jobs.pages(self._session, namespace, selector=selector, fields=fields):
                self.versions[facts.GROUP] = page["metadata"].get("resourceVersion", "")
                yield from page["items"]
        except jobs.NoTFJobsError as error:
            missing = error
        for page in jobs.tensorflow_pages(self._session, namespace, selector=selector, fields=fields):
            self.versions[facts.TENSORFLOW_GROUP] = page["metadata"].get("resourceVersion", "")
            yield from page["items"]
        if missing is not None and not self.versions:
            raise missing


def read_pods(session: Session, query: Query, listing: Listing, *, watch: bool = False) -> list[Watch]:
    """Read pods and, if needed, events and Workloads; return how to watch them. Raises CliError.

    If all pods are up and as old as their jobs, no events are read. Each of the two kinds of events costs a request of up to
    `_MAX_EVENTS` for all jobs, and with `watch` a watch.
    """
    from tfjob_operator.cli.watches import Watch

    where = f"/api/v1/namespaces/{query.namespace}" if query.namespace is not None else "/api/v1"
    watches: list[Watch] = []
    try:
        for page in session.pages(f"{where}/pods", labelSelector=POD_SELECTOR):
            for body in page["items"]:
                listing.put_pod(body)
        watches.append(Watch(f"{where}/pods", page["metadata"].get("resourceVersion", ""), POD_SELECTOR))
        needed = listing.needs_events(datetime.now(UTC).timestamp())
        for fields in (each for each in (WARNINGS, OF_JOBS) if watch or each in needed):
            for page in session.pages(f"{where}/events", _MAX_EVENTS, fieldSelector=fields):
                for body in page["items"]:
                    listing.put_event(body)
            watches.append(Watch(f"{where}/events", page["metadata"].get("resourceVersion", ""), fields=fields))
    except ApiServerError as error:
        if not error.is_denied:
            raise
        listing.has_pods = bool(watches)
    return watches + _read_workloads(session, query, listing, watch=watch)


def _read_workloads(session: Session, query: Query, listing: Listing, *, watch: bool) -> list[Watch]:
    """Read the Workloads of queued jobs, if Kueue is installed and the user may read them."""
    from tfjob_operator.cli.watches import Watch

    if not (watch or listing.has_queued):
        return []
    try:
        version = session.get("/apis/kueue.x-k8s.io")["preferredVersion"]["groupVersion"]
        where = f"/apis/{version}/{f'namespaces/{query.namespace}/' if query.namespace is not None else ''}workloads"
        for page in session.pages(where):
            for body in page["items"]:
                listing.put_workload(body)
    except ApiServerError as error:
        if not (error.is_denied or error.is_not_found):
            raise
        return []
    return [Watch(where, page["metadata"].get("resourceVersion", ""))]


class ListView:
    """Prints rows, or with `names` only the names of jobs."""

    def __init__(
        self, session: Session, source: Jobs, *, names: bool, wide: bool, headers: bool, no_color: bool
    ) -> None:
        self._session, self._source, self._names = session, source, names
        self._listing = Listing(sort_by=source.query.sort_by)
        self._screen = terminal(no_color=no_color)
        self._columns = len(COLUMNS) if wide else len(COLUMNS) - 1
        self._first = 1 if source.query.namespace is None else 0  # for the column NAMESPACE
        header = ["NAMESPACE"] * self._first + [*COLUMNS[: self._columns]]
        width = self._screen.width if wide and self._screen.is_terminal else 0
        self._table = TablePrinter(header, headers=headers, width=width)
        self._shown: dict[str, tuple[str, ...]] = {}
        self._quiet: set[tuple[str, ...]] = set()
        """The printed rows whose reasons need no attention."""

    def show(self, *, watch: bool) -> None:
        """Print the list and, with `watch`, all changes from then on. Raises CliError."""
        now, query = datetime.now(UTC).timestamp(), self._source.query
        keys, watches = self._fill(self._listing, self._source.read(), watch=watch)
        self._print(self._listing.ordered(keys, now), now)
        if watch and self._source.versions:
            self._watch(watches)
        elif not keys and not self._source.failures:
            where = f" in {query.namespace} namespace" if query.namespace is not None else ""
            echo(f"No resources found{where}.", err=True)

    def _fill(
        self, listing: Listing, bodies: Iterable[dict[str, Any]], *, watch: bool
    ) -> tuple[list[str], list[Watch]]:
        """Store the jobs, and read what their rows need; return the keys of the jobs, and how to watch the rest."""
        keys, query = [listing.put_job(body) for body in bodies], self._source.query
        if not (keys or watch) or (self._names and not query.sort_by):
            return keys, []
        return keys, read_pods(self._session, query, listing, watch=watch)

    def _print(self, keys: Sequence[str], now: float) -> None:
        self._shown |= {key: self._cells(key, now) for key in keys}
        if self._names:
            for _, group, name in (key.split("/") for key in keys):
                echo(f"tfjob.{group}/{name}")
            return
        lines = []
        self._quiet.clear()
        for key in keys:
            row = self._listing.row(key, now)
            lines.append([self._listing.jobs[key].namespace] * self._first + [*row[: self._columns]])
            if self._listing.snapshot(key, now).is_quiet:
                self._quiet.add(tuple(lines[-1]))
        for line in self._table.lines(lines, self._paint if self._screen.colour else None):
            echo(line)

    def _paint(self, place: int, row: Sequence[str], cell: str) -> str:
        """Color a cell of the columns STATE and REASON by its meaning."""
        state, reason = row[self._first + _STATE], row[self._first + _REASON]
        if place not in {self._first + _STATE, self._first + _REASON}:
            return cell
        good = not reason and state in {"Running", states.ENDING, "Succeeded"}
        color = "green" if good else "red" if reason and tuple(row) not in self._quiet else "yellow"
        return self._screen.paint(cell.rstrip(), color) + " " * (len(cell) - len(cell.rstrip()))

    def _watch(self, others: Sequence[Watch]) -> None:
        """Print jobs whose rows change, until the user presses Ctrl-C. When a watch ends, everything is read again."""
        from tfjob_operator.cli.watches import watched

        first = None, [*self._job_watches(), *others]
        found = watched(self._session, self._read_again, "jobs", pause=time.sleep, warn=warn, first=first)
        for _, number, event in found:
            if event is not None:
                self._print_event(number, event)
            sys.stdout.flush()

    def _read_again(self) -> tuple[None, Sequence[Watch]]:
        """Print the jobs that were changed or deleted, and return how to watch what their rows need. Raises CliError."""
        now, bodies = datetime.now(UTC).timestamp(), [*self._source.read_again()]
        listing = Listing(sort_by=self._source.query.sort_by)
        keys, watches = self._fill(listing, filter(self._source.takes, bodies), watch=True)
        uids = {str(body["metadata"].get("uid", "")) for body in bodies}
        deleted = [key for key, job in self._listing.jobs.items() if job.uid not in uids]
        for key in deleted:
            self._listing.jobs[key] = self._listing.jobs[key]._replace(is_deleted=True)
        self._print(deleted, now)
        self._listing = listing
        self._print([key for key in keys if self._is_news(key, now)], now)
        self._shown = {key: self._shown[key] for key in keys}
        return None, [*self._job_watches(), *watches]

    def _is_news(self, key: str, now: float) -> bool:
        return self._shown.get(key) != self._cells(key, now)

    def _cells(self, key: str, now: float) -> tuple[str, ...]:
        """Return what is compared to detect a change; for names, pods are not read."""
        return (self._listing.jobs[key].state,) if self._names else _steady(self._listing.row(key, now))

    def _job_watches(self) -> list[Watch]:
        from tfjob_operator.cli.watches import Watch

        query = self._source.query
        return [
            Watch(jobs.path(query.namespace, group=group), version, query.selector, self._source.fields)
            for group, version in self._source.versions.items()
        ]

    def _print_event(self, number: int, event: Mapping[str, Any]) -> None:
        """Print the job whose row changes with an event of this watch."""
        body, now, gone = event["object"], datetime.now(UTC).timestamp(), event["type"] == "DELETED"
        if number < len(self._source.versions):
            self._take_job(body, now, gone=gone)
            return
        if "involvedObject" in body:
            key = self._listing.put_event(body)
        elif body.get("kind") == "Workload":
            key = self._listing.put_workload(body)
        else:
            key = self._listing.put_pod(body, gone=gone)
        if key in self._listing.jobs and self._is_news(key, now):
            self._print([key], now)

    def _take_job(self, body: dict[str, Any], now: float, *, gone: bool) -> None:
        key = self._listing.put_job(body, gone=gone)
        if self._source.takes(body) and (self._names or self._is_news(key, now)):
            self._print([key], now)
        if gone or not self._source.takes(body):
            self._listing.forget(key)
            self._shown.pop(key, None)


def _steady(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return the part of a row that does not change with time alone."""
    cells = tuple(cell for place, cell in enumerate(row[:_REASON]) if place not in {_DURATION, _AGE})
    return *cells, BACK_OFF if row[_REASON].startswith(BACK_OFF) else row[_REASON]


_FORMATS: Final = ("wide", "name", "json", "yaml")
_TEMPLATES: Final = (
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "custom-columns",
    "custom-columns-file",
    "go-template",
    "go-template-file",
)
"""Template formats. They are printed by kubectl, which is installed anyway; no Python library supports their syntax."""
_FIELD: Final = re.compile(r"\.?[\w-]+(\.[\w-]+)*", re.ASCII)
_COLUMNS: Final = tuple(name.lower() for name in COLUMNS[:-1])
_OF_PODS: Final = ("ready", "restarts", "reason")
"""Columns that need pods to be read."""
_PASSED: Final = {
    "selector": "selector",
    "field-selector": "fields",
    "no-headers": "no_headers",
    "watch": "watch",
    "show-managed-fields": "managed",
}
"""kubectl options that are passed on, and their names here."""


def _format(_ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is None or given in _FORMATS or given.partition("=")[0] in _TEMPLATES:
        return given
    raise click.BadParameter(f"{given!r} is not one of {', '.join((*_FORMATS, *(f'{name}=' for name in _TEMPLATES)))}")


def _sort_key(_ctx: click.Context, _option: click.Parameter, given: str) -> str:
    """Return a column name in lower case, or a field path with a leading dot."""
    field = given.removeprefix("{").removesuffix("}")
    if field.lower() in {"", *_COLUMNS}:
        return field.lower()
    if not _FIELD.fullmatch(field) or "." not in field:
        raise click.BadParameter(
            f"{given!r} is not a column ({', '.join(_COLUMNS)}) or a field such as .status.startTime"
        )
    return f".{field.removeprefix('.')}"


@click.command("list")
@click.argument("names", metavar="[JOB...]", nargs=-1)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", metavar="LABELS", default="", help="Only jobs with these labels.")
@click.option("--field-selector", "fields", metavar="FIELDS", default="", help="Only jobs with these fields.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only jobs in this state."
)
@click.option("--sort-by", default="", callback=_sort_key, metavar="COLUMN", help="Sort by a column or field.")
@click.option("-o", "--output", callback=_format, metavar="FORMAT", help="wide, name, json, yaml, jsonpath=...")
@click.option("--no-headers", is_flag=True, help="Print no header.")
@click.option("-w", "--watch", is_flag=True, help="After the list, print each job whose row changes.")
@click.option("--show-managed-fields", "managed", is_flag=True, help="Keep metadata.managedFields in JSON and YAML.")
@click.option("--no-color", is_flag=True, help="Use no colors, as with the variable NO_COLOR.")
@target_options
def command(*, target: Target, everywhere: bool, output: str | None, watch: bool, **given: Any) -> None:
    """List jobs: their state, ready replicas, restarts, and the reason why a job is not running.

    REASON is the decisive reason. It comes from the job's conditions, its pods and, where pods are missing, do not start or are
    unexpectedly new, events. Without the right to list pods, READY is <unknown>.
    """
    names = given["names"]
    if names and (everywhere or given["selector"] or given["fields"]):
        raise click.UsageError("JOB cannot be combined with --all-namespaces, --selector or --field-selector")
    if watch and (len(names) > 1 or output in {"json", "yaml"}):
        raise click.UsageError("--watch takes one JOB at most, and prints rows or names")
    if output is not None and output not in _FORMATS:
        _print_by_kubectl(target, output, {**given, "everywhere": everywhere, "watch": watch})
    with target.session() as session:
        query = Query(
            None if everywhere else session.namespace,
            names,
            given["selector"],
            given["fields"],
            given["states"],
            given["sort_by"],
        )
        source = Jobs(session, query)
        if output in {"json", "yaml"}:
            _print_objects(session, source, output, managed=given["managed"])
        else:
            look = {"names": output == "name", "wide": output == "wide", "headers": not given["no_headers"]}
            ListView(session, source, **look, no_color=given["no_color"]).show(watch=watch)
    if source.failures:
        raise click.exceptions.Exit(1)


def _print_objects(session: Session, source: Jobs, output: str, *, managed: bool) -> None:
    """Print whole jobs: a single named job as is, several as a List."""
    listing, now = Listing(sort_by=source.query.sort_by), datetime.now(UTC).timestamp()
    found = {listing.put_job(body): body for body in source.read()}
    if source.query.sort_by in _OF_PODS:
        read_pods(session, source.query, listing)
    items = [found[key] for key in listing.ordered(found, now)]
    for item in () if managed else items:
        item["metadata"].pop("managedFields", None)
    whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    print_value(items[0] if len(source.query.names) == 1 and items else whole, output, sort_keys=True)


def _print_by_kubectl(target: Target, output: str, given: Mapping[str, Any]) -> NoReturn:
    """Run `kubectl get`, which prints jobs by a template, and exit with its code."""
    sort_by = {"name": ".metadata.name", "age": ".metadata.creationTimestamp"}.get(given["sort_by"], given["sort_by"])
    if given["states"] or sort_by in _COLUMNS:
        raise click.UsageError(
            "a template cannot be combined with --state, or sorted by columns other than name and age: "
            "list the names with -o name first"
        )
    arguments = [f"--output={output}", *(["--all-namespaces"] if given["everywhere"] else [])]
    arguments += [f"--sort-by={sort_by}"] if sort_by else []
    arguments += [
        f"--{flag}={str(given[key]).lower() if given[key] is True else given[key]}"
        for flag, key in _PASSED.items()
        if given[key]
    ]
    names = [name if "/" in name else f"tfjobs.{GROUP}/{name}" for name in given["names"]]
    line = kubectl(target, target.namespace, "get", *arguments, *(names or [f"tfjobs.{GROUP}"]))
    raise click.exceptions.Exit(run(line))
