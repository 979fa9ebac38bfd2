"""Every display shows the state, counts and reason of a job that docs/kubectl-tfjob.md defines: see situations.py."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.types import TFJob, tfjob_with_unreadable_status
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW
from tfjob_operator.api.v1alpha1.types import AlphaJob, job_with_unreadable_status
from tfjob_operator.cli import collecting, watches
from tfjob_operator.cli.diagnosis.diagnose import state_line
from tfjob_operator.cli.diagnosis.facts import AlphaEvidence, Evidence, Facts
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.gathering import Waits, job_from, pods_from
from tfjob_operator.cli.listing import COLUMNS, Listing
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.model.objects import EventDetails
from tfjob_operator.cli.model.queues import waits_for
from tfjob_operator.cli.model.snapshot import JobSnapshot, snapshot_of
from tfjob_operator.cli.page import cluster, objects, views
from tfjob_operator.cli.selection import Choice, ReplicaPod, chosen
from tfjob_operator.cli.status import ASCII, JobSummary, job_summary_of, render
from tfjob_operator.cli.timelines.build import timeline_of
from tfjob_operator.cli.timelines.render import Frame
from tfjob_operator.cli.timelines.render import render as render_timeline
from tfjob_operator.cli.timelines.values import Timeline
from tfjob_operator.cli.watching import LiveState, job_summary_from
from tfjob_operator.controller.jobs.job_metrics import index_by_state
from unit.cli.situation_objects import NOW_S, Situation
from unit.cli.situations import SITUATIONS

T = TypeVar("T")
NOW = datetime.fromtimestamp(NOW_S, UTC)
OVER = frozenset({"Succeeded", "Failed"})
GOES_ON = frozenset({each.state for each in SITUATIONS} - OVER)


class Shown(NamedTuple):
    """What a display shows of a job; None for what it leaves out. `states` are those that it does not tell apart."""

    states: str | frozenset[str] | None = None
    ready: str | None = None
    restarts: str | None = None
    reason: str | None = None


def decoded(body: Any, kind: type[T], fallback: Callable[[bytes, Exception], T] | None = None) -> T:
    """Read an object as a client does; a job with an unreadable status is read by the fallback."""
    raw = msgspec.json.encode(body)
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except msgspec.ValidationError as error:
        if fallback is None:
            raise
        return fallback(raw, error)


def selected(case: Situation) -> list[dict[str, Any]]:
    """Return the pods that label selectors find."""
    return [pod for pod in case.pods if pod["metadata"].get("labels")]


def workload_of(case: Situation) -> dict[str, Any] | None:
    """Return the Workload that the job owns."""
    owners = case.workload["metadata"]["ownerReferences"] if case.workload is not None else ()
    return case.workload if any(each["uid"] == case.job["metadata"]["uid"] for each in owners) else None


def events_of(case: Situation) -> list[EventDetails]:
    return [decoded(each, EventDetails) for each in case.events]


def alpha_job_of(case: Situation) -> AlphaJob | None:
    """Return the job if the controller of the alpha dialect manages it."""
    found = decoded(case.job, AlphaJob, job_with_unreadable_status)
    dialect = TENSORFLOW if facts.group_of(case.job) == facts.TENSORFLOW_GROUP else KUBEFLOW
    return found if found.is_of(dialect) else None


def by_list(case: Situation) -> Shown:
    listing = Listing()
    key = listing.put_job(case.job)
    for pod in selected(case):
        listing.put_pod(pod)
    for event in case.events:
        listing.put_event(event)
    if case.workload is not None:
        listing.put_workload(case.workload)
    row = dict(zip(COLUMNS, listing.row(key, NOW_S), strict=True))
    return Shown(row["STATE"], row["READY"], row["RESTARTS"], row["REASON"])


def page_view(case: Situation) -> dict[str, Any]:
    is_first = facts.group_of(case.job) == facts.TENSORFLOW_GROUP
    kind = objects.TensorFlowV1Alpha1Job if is_first else objects.PageJob
    job = decoded(case.job, kind, objects.with_unreadable_status(kind))
    pods = [each for each in pods_from(selected(case)) if cluster._may_be_of(each, job.metadata.uid)]
    summary, events = views.spec_summary_of(job), events_of(case)
    found, workload = [views.pod_facts_of(summary, pod) for pod in pods], workload_of(case)
    waits = waits_for(workload) if workload is not None else None
    return views.job_view(job, summary, pods, events, views.snapshot_of(summary, found, events, NOW_S, waits))


def by_page(case: Situation) -> Shown:
    """The browser counts down the time until a restart."""
    row = page_view(case)["row"]
    ready, wanted = (sum(each[key] for each in row["replicas"]) for key in ("ready", "wanted"))
    left = "" if row["until"] is None else f":{duration(row['until'] - NOW_S)}"
    return Shown(row["state"], f"{ready}/{wanted}", str(row["restarts"]), row["note"] + left)


def replica_pods(case: Situation) -> list[ReplicaPod]:
    """Return the pods that commands read: those that may be of the job."""
    return chosen(selected(case), case.job, Choice())


def summary_of(case: Situation) -> JobSummary:
    pods = [each.pod for each in replica_pods(case)]
    return job_summary_of(job_from(case.job), case.job, pods, NOW, case.events, case.workload)


def by_status(case: Situation) -> Shown:
    """Scripts compare the reason, which therefore has its details in a field of their own."""
    found = summary_of(case)
    assert re.fullmatch(r"\w*", found.reason)
    return Shown(found.state, f"{found.ready}/{found.wanted}", str(found.restarts), found.full_reason)


def by_text_of_status(case: Situation) -> Shown:
    """A reason that is the name of the state is left out."""
    first, *lines = render(summary_of(case), NOW, lambda text, _: text, 200, ASCII)
    state, reason = re.search(r": (\w+)(?: \((.+?)\))?(?:,|$)", first).groups("")  # type: ignore[union-attr]
    counts = [line.split()[1:4:2] for line in lines if " ready" in line]
    ready, wanted = (sum(int(count[place]) for count in counts) for place in (0, 1))
    return Shown(state, f"{ready}/{wanted}", reason=reason or (state if state == case.reason else ""))


def by_watch(case: Situation) -> Shown:
    found = job_summary_from(
        LiveState(job=case.job, replicas=replica_pods(case), waits=Waits(case.events, case.workload)), NOW
    )
    assert found is not None
    return Shown(found.state, f"{found.ready}/{found.wanted}", str(found.restarts), found.full_reason)


def by_explain(case: Situation) -> Shown:
    alpha = alpha_job_of(case)
    job = collecting._job(msgspec.json.encode(case.job)) if alpha is None else collecting._as_v1(alpha, case.job)
    owners, of_alpha = {job.metadata.uid}, None
    if alpha is not None:
        of_alpha = AlphaEvidence(TENSORFLOW if facts.group_of(case.job) == facts.TENSORFLOW_GROUP else KUBEFLOW, alpha)
    pods = [each for each in pods_from(selected(case)) if of_alpha or collecting._is_of(each, owners)]
    known = Facts(Evidence(job=job, now=NOW, pods=pods, events=events_of(case), alpha=of_alpha))
    state, *counts = state_line(known).partition(": ")[2].split(", ")
    up = [each.split() for each in counts if " ready" in each]
    ready, wanted = (sum(int(words[place]) for words in up) for place in (0, 2))
    return Shown(state.split()[0], f"{ready}/{wanted}" if up else None)


def history_of(case: Situation) -> Timeline:
    pods = pods_from(each.pod for each in replica_pods(case))
    return timeline_of(job_from(case.job), pods, events_of(case))


def by_timeline(case: Situation) -> Shown:
    head, *_ = render_timeline(history_of(case), "mnist", Frame(NOW), lambda text, _: text)
    state = head.partition(" UTC, ")[2].split()[0].rstrip(",")
    words: dict[str, str | frozenset[str]] = {"finished": OVER, "ending": "Ending", "running": "Running"}
    return Shown(words.get(state, state))


def by_wait(case: Situation) -> Shown:
    end = watches.end_of(case.job)
    return Shown(GOES_ON if end is None else end.condition)


def by_gauge(case: Situation) -> Shown:
    job = alpha_job_of(case) or decoded(case.job, TFJob, tfjob_with_unreadable_status)
    return Shown(index_by_state(job)[0].rpartition("/")[2])


def snapshot(case: Situation) -> JobSnapshot:
    return snapshot_of(case.job, selected(case), NOW_S, events=case.events, workload=workload_of(case))


def by_model(case: Situation) -> Shown:
    found = snapshot(case)
    return Shown(found.state, f"{found.ready}/{found.wanted}", str(found.restarts), found.reason)


DISPLAYS: dict[str, Callable[[Situation], Shown]] = {
    "model": by_model,
    "list": by_list,
    "page": by_page,
    "status-json": by_status,
    "status-text": by_text_of_status,
    "watch": by_watch,
    "explain": by_explain,
    "timeline": by_timeline,
    "wait": by_wait,
    "gauge": by_gauge,
}


@pytest.mark.parametrize("case", SITUATIONS, ids=str)
@pytest.mark.parametrize("display", DISPLAYS)
def test_every_display_shows_the_same_state_counts_and_reason(display: str, case: Situation) -> None:
    """A display may leave something out."""
    shown = DISPLAYS[display](case)
    expected = Shown(case.state, case.ready, case.restarts, case.reason)
    wrong = {
        field: f"{sorted(found) if isinstance(found, frozenset) else found} instead of {wanted}"
        for field, found, wanted in zip(Shown._fields, shown, expected, strict=True)
        if found is not None and wanted not in (found if isinstance(found, frozenset) else {found})
    }
    assert not wrong


Replicas = dict[tuple[str, int], tuple[str | bool | int | None, ...]]
"""State, whether it is ready, whether it is running, and restarts; None for what a display leaves out."""


def replicas_of_model(case: Situation) -> Replicas:
    found = snapshot(case).replicas
    return {(each.type, each.index): (each.state, each.ready, each.running, each.restarts) for each in found}


def replicas_of_page(case: Situation) -> Replicas:
    found = page_view(case)["replicas"]
    return {(each["type"], each["index"]): (each["state"], each["ready"], None, each["restarts"]) for each in found}


def replicas_of_status(case: Situation) -> Replicas:
    return {
        (kind.type, index): (each.state, None, None, each.restarts if each.pod else None)
        for kind in summary_of(case).types
        for each in kind.replicas
        for index in parse_indices(each.replica.partition("-")[2].strip("[]"), 10_000)
    }


def replicas_of_timeline(case: Situation) -> Replicas:
    """A replica without a pod and without events is not drawn."""
    drawn = {(*each.name,): each.restarts for each in history_of(case).replicas}
    return {replica: (None, None, None, drawn.get(replica)) for replica in case.replicas}


REPLICAS = {
    "model": replicas_of_model,
    "page": replicas_of_page,
    "status-json": replicas_of_status,
    "timeline": replicas_of_timeline,
}


@pytest.mark.parametrize("case", [each for each in SITUATIONS if each.replicas], ids=str)
@pytest.mark.parametrize("display", REPLICAS)
def test_every_display_shows_the_same_of_each_replica(display: str, case: Situation) -> None:
    shown = REPLICAS[display](case)
    wrong = {
        f"{kind}-{index}": f"{found} instead of {wanted}"
        for (kind, index), wanted in case.replicas.items()
        for found in [shown.get((kind, index), ("nothing",) * 4)]
        if any(one is not None and one != other for one, other in zip(found, wanted, strict=True))
    }
    assert not wrong
