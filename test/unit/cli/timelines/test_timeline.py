"""The lives of replicas, from objects of which anything may be missing."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.objects import a_job, an_event, condition, container_status
from tfjob_operator.cli.model import objects
from tfjob_operator.cli.model.replica_names import ReplicaName
from tfjob_operator.cli.timelines.build import timeline_of
from tfjob_operator.cli.timelines.values import PodHistory, PodOutcome, Span, Timeline, job_of
from unit.cli.conftest import pod as a_pod

START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def at(second: float) -> str:
    """A time so long after the start, as API servers write it."""
    return (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def time(second: float) -> datetime:
    return START + timedelta(seconds=second)


SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5)}
UNREADY = {"type": "Ready", "status": "False", "lastTransitionTime": at(40)}
LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}}


META = {"uid": "p1", "creationTimestamp": at(0)}
pod = partial(a_pod, meta=META, spec={"nodeName": "node-1"}, conditions=[SCHEDULED])
"""A pod with a node since second 5."""


def ran(state: Any, last: Any = None, restarts: int = 0, name: str = "mnist-worker-0", **more: Any) -> dict[str, Any]:
    """A pod whose container is in this state, after this one."""
    return pod(name, containerStatuses=[container_status(state, last, restarts)], **more)


def terminated(start: float, end: float, code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    ended = {"startedAt": at(start), "finishedAt": at(end), "exitCode": code, "reason": reason}
    return {"terminated": ended}


def running(start: float) -> dict[str, Any]:
    return {"running": {"startedAt": at(start)}}


def event(second: float, reason: str, message: str = "", **about: str) -> dict[str, Any]:
    """An event, of the job unless `about` says otherwise."""
    involved = {"kind": "TFJob", "name": "mnist", "uid": "j1", **about}
    told = {"reason": reason, "message": message, "firstTimestamp": at(second), "lastTimestamp": at(second)}
    return an_event("mnist") | {"involvedObject": involved, **told}


def pod_event(second: float, reason: str, uid: str, name: str = "mnist-worker-0") -> dict[str, Any]:
    return event(second, reason, name=name, uid=uid, kind="Pod")


job = partial(a_job, uid="j1", creationTimestamp=at(0))


def status_with(*given: tuple[str, str, str, float]) -> dict[str, Any]:
    """The status of a job with these conditions."""
    made = [
        condition(kind, status, reason=reason, message=reason, lastTransitionTime=at(second))
        for kind, status, reason, second in given
    ]
    return {"conditions": made}


def timeline(pods: Any = (), events: Any = (), of: Any = None) -> Timeline:
    return timeline_of(
        job_of(json.dumps(of or job()).encode()),
        msgspec.convert(list(pods), list[objects.PodDetails], strict=False),
        msgspec.convert(list(events), list[objects.EventDetails], strict=False),
    )


def life(body: dict[str, Any], *events: dict[str, Any]) -> PodHistory:
    (replica,) = timeline([body], events).replicas
    (only,) = replica.lives
    return only


def drawn(of: PodHistory) -> str:
    """The intervals, in seconds after the start."""

    def second(at: datetime | None) -> str:
        return "" if at is None else f"{(at - START).total_seconds():g}"

    return ", ".join(f"{each.state.value} {second(each.start)}-{second(each.end)}" for each in of.intervals)


LIVES = {
    "running": (ran(running(9)), "waiting 0-5, starting 5-9, running 9-"),
    "image": (ran({"waiting": {"reason": "ImagePullBackOff"}}), "waiting 0-5, starting 5-"),
    "succeeded": (ran(terminated(9, 60), phase="Succeeded"), "waiting 0-5, starting 5-9, running 9-60"),
    "restarted": (ran(running(30), terminated(9, 20, 1), 1),
        "waiting 0-5, starting 5-9, running 9-20, restarting 20-30, running 30-"),
    "crash loop": (ran({"waiting": {"reason": "CrashLoopBackOff"}}, terminated(80, 90, 1), 4),
        "waiting 0-5, unstable 5-80, running 80-90, restarting 90-"),
    "old kubelet": (pod("mnist-worker-0", phase="Pending", conditions=[], startTime=at(3)), "waiting 0-3, starting 3-"),
    "lost": (ran(LOST, phase="Failed", startTime=at(6), conditions=[SCHEDULED, UNREADY]),
        "waiting 0-5, starting 5-6, running 6-40"),
    "lost before 1.27": (ran({"waiting": {}}, LOST, 1, startTime=at(6)), "waiting 0-5, starting 5-6, running 6-"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), LIVES.values(), ids=LIVES)
def test_a_pod_tells_what_it_did_when(body: dict[str, Any], expected: str) -> None:
    assert drawn(life(body)) == expected


def test_a_pod_without_a_node_waits_and_says_why() -> None:
    body = pod(
        "mnist-worker-0",
        phase="Pending",
        conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    )
    body["spec"] = {}
    only = life(body)
    assert drawn(only) == "waiting 0-"
    assert only.intervals[0].reason == "Unschedulable"


def test_of_many_restarts_events_tell_when_the_first_run_began() -> None:
    body = ran(running(100), terminated(80, 90, 1), restarts=4)
    told = "waiting 0-5, starting 5-8, unstable 8-80, running 80-90, restarting 90-100, running 100-"
    assert drawn(life(body, pod_event(8, "Started", "p1"))) == told


def test_how_a_pod_ended_is_told() -> None:
    failed = life(ran(terminated(9, 60, 137, "OOMKilled"), phase="Failed"))
    assert (failed.ending, failed.exit_code, failed.reason, failed.end) == (
        PodOutcome.FAILED,
        137,
        "OOMKilled",
        time(60),
    )
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": at(40)}
    evicted = life(
        pod("mnist-worker-0", phase="Failed", reason="Evicted", message="disk", conditions=[ready], startTime=at(5))
    )
    assert (evicted.exit_code, evicted.reason, evicted.end) == (None, "Evicted", time(40))
    assert drawn(evicted) == "waiting 0-5, starting 5-40"


def test_a_pod_that_is_being_deleted_stops_since_it_was_asked_to() -> None:
    """Its deletionTimestamp is the end of its grace period."""
    body = ran(running(9))
    body["metadata"] |= {"deletionTimestamp": at(80), "deletionGracePeriodSeconds": 30}
    assert drawn(life(body)) == "waiting 0-5, starting 5-9, running 9-50, stopping 50-"


def test_events_tell_of_pods_that_are_gone() -> None:
    events = [
        pod_event(1, "Scheduled", "p1"),
        pod_event(2, "Started", "p1"),
        event(20, "ExitedWithCode", "Pod: team.mnist-worker-0 exited with code 130: signal"),
        pod_event(21, "Scheduled", "p2"),
        pod_event(22, "Started", "p2"),
        event(40, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"),
    ]
    body = ran(running(55))
    body["metadata"] |= {"uid": "p3", "creationTimestamp": at(50)}
    (replica,) = timeline([body], [*events, pod_event(51, "Scheduled", "p3")]).replicas
    first, second, third = replica.lives
    assert replica.name == ReplicaName("Worker", 0)
    assert (drawn(first), first.exit_code, first.is_there) == ("starting 1-2, running 2-20", 130, False)
    assert (drawn(second), second.ending) == ("starting 21-22, running 22-40", PodOutcome.DELETED)
    assert third.is_there


def test_a_deleted_pod_that_crashed_again_and_again_is_not_drawn_as_if_it_had_run_all_the_time() -> None:
    events = [
        pod_event(1, "Scheduled", "p1"),
        pod_event(2, "Started", "p1"),
        pod_event(30, "BackOff", "p1") | {"message": "Back-off restarting failed container"},
        event(40, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"),
    ]
    body = ran(running(55))
    body["metadata"] |= {"uid": "p3", "creationTimestamp": at(50)}
    (replica,) = timeline([body], [*events, pod_event(51, "Scheduled", "p3")]).replicas
    assert drawn(replica.lives[0]) == "starting 1-2, unstable 2-40"


def test_a_job_that_was_replaced_has_nothing_of_the_pods_of_the_one_before() -> None:
    """They had the same names, and other UIDs; their last events may be younger than the job."""
    events = [
        pod_event(-60, "Scheduled", "old"),
        pod_event(2, "Killing", "old"),
        event(-50, "SuccessfulCreatePod", "Created pod: mnist-worker-1", uid="j0"),
        pod_event(1, "Scheduled", "p0", "mnist-ps-0"),
    ]
    body = ran(running(9))
    found = timeline([body], [*events, pod_event(5, "Started", "p1")])
    assert [[life.uid for life in each.lives] for each in found.replicas] == [["p0"], ["p1"]]
    assert [each.reason for each in found.happenings] == ["Scheduled", "Started"]


def test_restarts_are_those_that_the_operator_has_counted() -> None:
    """As in `list` and `status`: pods that were recreated after a suspension are none. Other operators keep no record."""
    gone = [event(20, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"), pod_event(1, "Started", "p0")]
    body = ran(running(9), restarts=1)
    (replica,) = timeline([body], gone).replicas
    assert (len(replica.lives), replica.restarts) == (2, 1)
    counted = job()
    counted["status"]["restarts"] = [{"type": "Worker", "index": 0, "carried": 3, "inPlace": 1}]
    (replica,) = timeline([body], gone, counted).replicas
    assert replica.restarts == 4


def test_events_of_the_job_alone_tell_of_pods_too() -> None:
    events = [
        event(1, "SuccessfulCreatePod", "Created pod: mnist-worker-0")
        | {"firstTimestamp": at(1), "lastTimestamp": at(21)},
        event(20, "ExitedWithCode", "Pod: team.mnist-worker-0 exited with code 130: signal"),
        event(40, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"),
        event(1, "SuccessfulCreatePod", "Created pod: mnist-worker-1"),
        event(1, "SuccessfulCreatePod", "Created pod: mnist-worker-2"),
    ]
    (replica,) = timeline([], [*events[:4]]).replicas
    first, second = replica.lives
    assert (drawn(first), first.exit_code, first.is_there) == ("running 1-20", 130, False)
    assert (drawn(second), second.ending) == ("running 21-40", PodOutcome.DELETED)
    assert [each.name for each in timeline([], events).replicas] == [("Worker", 0)]
    there = timeline([ran(running(9), name="mnist-worker-1")], events).replicas
    assert [[life.is_there for life in each.lives] for each in there] == [[False, False], [True]]


def test_a_pod_without_an_event_of_its_own_never_started_if_such_events_are_known() -> None:
    """Events expire: a pod that is older than the oldest known event of a pod may have run."""
    events = [
        pod_event(10, "Started", "p0", "mnist-ps-0"),
        event(5, "SuccessfulCreatePod", "Created pod: mnist-worker-0"),
        event(9, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"),
        event(11, "SuccessfulCreatePod", "Created pod: mnist-worker-1"),
        event(13, "SuccessfulDeletePod", "Deleted pod: mnist-worker-1"),
        pod_event(12, "FailedScheduling", "p2", "mnist-worker-2"),
        event(12, "SuccessfulCreatePod", "Created pod: mnist-worker-2"),
        event(15, "SuccessfulDeletePod", "Deleted pod: mnist-worker-2"),
    ]
    lives = {each.name: drawn(each.lives[0]) for each in timeline([], events).replicas}
    workers = [lives[ReplicaName("Worker", index)] for index in range(3)]
    assert workers == ["running 5-9", "waiting 11-13", "waiting 12-15"]
    created = job(status=status_with(("Created", "True", "TFJobCreated", 1)))
    (replica,) = timeline([], events[1:3], created).replicas
    assert drawn(replica.lives[0]) == "waiting 5-9", "no pod of a job that was never Running has started"


def test_pods_of_the_alpha_dialect_that_are_gone_are_told_by_the_runtime_id() -> None:
    """Their names have the job's RuntimeId in them, and not its name."""
    of = job()
    of["status"]["runtimeId"] = "mine"
    gone = [
        pod_event(5, "Scheduled", "p1", "worker-mine-0-abcde"),
        pod_event(9, "Killing", "p1", "worker-mine-0-abcde"),
    ]
    other = pod_event(5, "Scheduled", "p2", "worker-hers-1-abcde")
    told = timeline([], [*gone, other], of)
    assert [each.name for each in told.replicas] == [("Worker", 0)]
    assert {each.about for each in told.happenings} == {"worker-mine-0-abcde"}


def test_the_job_controller_tells_of_pods_that_are_gone_as_v1s_operator_does() -> None:
    of = job()
    of["status"]["runtimeId"] = "mine"
    about = {"kind": "Job", "name": "worker-mine-0", "uid": "j"}
    made = event(1, "SuccessfulCreate", "Created pod: worker-mine-0-abcde") | {"involvedObject": about}
    gone = event(9, "SuccessfulDelete", "Deleted pod: worker-mine-0-abcde") | {"involvedObject": about}
    other = {
        **made,
        "involvedObject": {**about, "name": "worker-hers-1"},
        "message": "Created pod: worker-hers-1-abcde",
    }
    own = event(1, "SuccessfulCreate", "Created job: worker-mine-0")
    told = timeline([], [made, gone, other, own], of)
    [(name, [life])] = [(each.name, each.lives) for each in told.replicas]
    assert (name, drawn(life), life.is_there) == (("Worker", 0), "running 1-9", False)
    assert [each.reason for each in told.happenings] == ["SuccessfulCreate", "SuccessfulCreate", "SuccessfulDelete"]


def test_replicas_stand_in_the_order_of_their_types_and_numbers() -> None:
    bare = {"kind": "Pod", "metadata": {"name": "mnist-ps-3"}}
    old = {"kind": "Pod", "metadata": {"name": "x", "labels": {"job_type": "MASTER", "task_index": "0"}}}
    odd = {"kind": "Pod", "metadata": {"name": "odd", "labels": {"replica-index": "²", "replica-type": "worker"}}}
    named = [each.name for each in timeline([odd, pod("mnist-worker-10"), pod("mnist-worker-9"), bare, old]).replicas]
    assert named == [("Master", 0), ("PS", 3), ("Worker", 9), ("Worker", 10), ("", -1)]


TURNS = ((10, "TFJobSuspended"), (20, "TFJobResumed"))


def test_suspensions_are_known_from_the_condition_and_earlier_ones_from_events() -> None:
    events = [event(10, "TFJobSuspended", "one"), event(20, "TFJobResumed"), event(30, "TFJobSuspended", "two")]
    on = timeline(events=events, of=job(status=status_with(("Suspended", "True", "TFJobSuspended", 31))))
    assert on.suspensions == (Span(time(10), time(20), "one"), Span(time(30), None, "two"))
    off = timeline(events=events, of=job(status=status_with(("Suspended", "False", "TFJobResumed", 40))))
    assert off.suspensions[1] == Span(time(30), time(40), "two")
    assert timeline(of=job(status=status_with(("Suspended", "False", "TFJobResumed", 40)))).suspensions == ()


def test_attempts_are_known_from_their_history_and_told_once() -> None:
    """The event of the first has expired; that of the second says why, and so does the condition."""
    first = {
        "number": 3,
        "startTime": at(0),
        "endTime": at(40),
        "rule": "badGpu",
        "action": "RestartAll",
        "exitCode": 42,
    }
    second = {"number": 4, "startTime": at(40), "endTime": at(70), "reason": "RestartRequested"}
    body = job(status=status_with(("Running", "True", "TFJobRunning", 75), ("Failed", "True", "JobFailed", 90)))
    body["status"] |= {"attempt": 5, "attemptHistory": [first, second], "completionTime": at(90)}
    body["status"]["begun"] = {"delaySeconds": 3}
    why = "TFJob mnist restarts as attempt 5 because a user requested it"
    found = timeline(events=[event(70, "RestartedAllReplicas", why)], of=body)
    assert found.attempts == (
        (3, time(0), time(40), "rule badGpu (RestartAll), exit code 42"),
        (4, time(40), time(70), "restart requested"),
        (5, time(73), time(90), ""),
    )
    assert [(each.at, each.message) for each in found.happenings if each.reason == "RestartedAllReplicas"] == [
        (time(40), "restarts as attempt 4: rule badGpu (RestartAll), exit code 42"),
        (time(70), why),
    ]
    body["status"]["attemptHistory"] += [
        {"number": 5, "startTime": at(70), "endTime": at(90), "rule": "stop", "action": "FailJob"}
    ]
    assert timeline(of=body).attempts[-1] == (5, time(70), time(90), "rule stop (FailJob)")
    assert "restarts as attempt 6" not in str(timeline(of=body).happenings)
    body["status"] |= {
        "attempt": 0,
        "attemptHistory": [{"number": 0, "startTime": at(0), "endTime": at(90), "rule": "stop"}],
    }
    assert timeline(of=body).attempts == (), "the only one"


def test_an_escalation_is_drawn_when_the_whole_job_was_restarted() -> None:
    """Not when the condition Restarting became True, for the replica that did not run again in time."""
    body = job(
        status=status_with(("Created", "True", "TFJobCreated", 0), ("Restarting", "True", "TFJobRestarting", 40))
    )
    why = "TFJob mnist restarts as attempt 1 because of rule flaky: pod mnist-worker-0 did not run again in time"
    body["status"]["conditions"][-1]["message"] = why
    over = {"number": 0, "endTime": at(60), "rule": "flaky", "action": "RestartAll", "reason": "NotRunningAgain"}
    body["status"] |= {"attempt": 1, "attemptHistory": [over]}
    for events in ((), [event(60, "RestartedAllReplicas", why)]):
        told = timeline(events=events, of=body)
        assert [each.at for each in told.happenings if "attempt 1" in each.message] == [time(60)]


def test_a_hold_is_known_from_its_condition_alone() -> None:
    """A job that was invalid from the beginning failed because of that, and was never held."""
    events = [event(10, "InvalidTFJobSpec", "spec: wrong")]
    assert timeline(events=events, of=job(status=status_with(("Failed", "True", "InvalidTFJobSpec", 10)))).holds == ()
    held = timeline(events=events, of=job(status=status_with(("Held", "True", "InvalidTFJobSpec", 10))))
    assert held.holds == (Span(time(10), None, "InvalidTFJobSpec"),)


def test_what_happened_stands_in_the_order_of_time_and_once() -> None:
    over = ("Running", "False", "TFJobFailed", 60)
    conditions = job(
        status=status_with(("Created", "True", "TFJobCreated", 0), over, ("Failed", "True", "TFJobFailed", 60))
    )
    events = [
        event(60, "TFJobFailed"),
        event(1, "SuccessfulCreatePod", "Created pod: mnist-worker-0"),
        pod_event(30, "BackOff", "p1") | {"count": 7, "type": "Warning"},
        pod_event(31, "BackOff", "p9", name="other-worker-0"),
        event(2, "TFJobCreated", uid="another of this name"),
    ]
    told = timeline(events=events, of=conditions)
    assert [(each.at, each.reason, each.is_warning, each.times) for each in told.happenings] == [
        (time(0), "TFJobCreated", False, 1),
        (time(1), "SuccessfulCreatePod", False, 1),
        (time(30), "BackOff", True, 7),
        (time(60), "TFJobFailed", True, 1),
    ]
    assert (told.start, told.end) == (time(0), time(60))


def test_a_cause_stands_before_what_follows_from_it_in_the_same_second() -> None:
    why = "TFJob mnist restarts as attempt 1 because of rule any: pod mnist-worker-0: it failed"
    events = [
        event(60, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"),
        event(60, "RestartedAllReplicas", why),
        event(60, "ExitedWithCode", "Pod: team.mnist-worker-0 exited with code 1"),
    ]
    told = timeline(
        events=events,
        of=job(status=status_with(("Running", "True", "TFJobRunning", 60), ("Failed", "True", "TFJobFailed", 60))),
    )
    assert [each.reason for each in told.happenings] == [
        "TFJobRunning", "ExitedWithCode", "TFJobFailed", "RestartedAllReplicas", "SuccessfulDeletePod"
    ]  # fmt: skip


def test_a_job_that_was_suspended_again_was_suspended_the_first_time_too() -> None:
    """An API server has one event of both, with a count."""
    twice = [event(each, reason, reason) | {"count": 2, "lastTimestamp": at(each + 30)} for each, reason in TURNS]
    found = timeline(events=twice, of=job(status=status_with(("Suspended", "False", "TFJobResumed", 50)))).happenings
    assert [(each.at, each.reason, each.times) for each in found] == [
        (time(10), "TFJobSuspended", 1),
        (time(20), "TFJobResumed", 1),
        (time(40), "TFJobSuspended", 1),
        (time(50), "TFJobResumed", 1),
    ]


def test_a_limit_is_one_entry_with_the_reason_of_its_event() -> None:
    """The condition has JobFailed for all limits, and the same message."""
    failed = job(status=status_with(("Failed", "True", "JobFailed", 60)))
    (told,) = timeline(events=[event(61, "DeadlineExceeded", "JobFailed")], of=failed).happenings
    assert (told.at, told.reason, told.message, told.is_warning) == (time(60), "DeadlineExceeded", "JobFailed", True)


def test_repeats_of_an_event_are_one() -> None:
    events = [pod_event(each, "BackOff", "p1") | {"count": 7} for each in (30, 10)] + [event(5, "BackOff", "other")]
    assert [(each.at, each.times) for each in timeline(events=events).happenings if each.reason == "BackOff"] == [
        (time(5), 1),
        (time(30), 14),
    ]


MAYBE_TIMES = st.one_of(
    st.none(), st.sampled_from([at(each) for each in (-5, 0, 3, 9, 50)]), st.just("2026-11-22T12:00:07")
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


STATES = some(
    running=some(startedAt=MAYBE_TIMES),
    waiting=some(reason=st.just("CrashLoopBackOff")),
    terminated=st.fixed_dictionaries(
        {"exitCode": st.integers(0, 255)}, optional={"startedAt": MAYBE_TIMES, "finishedAt": MAYBE_TIMES}
    ),
)
NAMES = st.sampled_from(["mnist-worker-0", "mnist-ps-1", "odd", ""])
CONDITIONS = st.lists(
    some(status=st.sampled_from(["True", "False"]), lastTransitionTime=MAYBE_TIMES).flatmap(
        lambda body: st.sampled_from(["PodScheduled", "Ready", "Suspended", "Held", "Failed"]).map(
            lambda kind: {**body, "type": kind}
        )
    )
)
CONTAINERS = st.lists(some(state=STATES, lastState=STATES, restartCount=st.integers(-1, 9)), max_size=2)
PODS = some(
    metadata=some(
        name=NAMES,
        uid=st.sampled_from(["p1", "p2"]),
        creationTimestamp=MAYBE_TIMES,
        deletionTimestamp=MAYBE_TIMES,
        deletionGracePeriodSeconds=st.integers(-5, 2**62),
    ),
    spec=st.sampled_from([{}, {"nodeName": "n"}]),
    status=some(
        phase=st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Odd"]),
        startTime=MAYBE_TIMES,
        conditions=CONDITIONS,
        containerStatuses=CONTAINERS,
    ),
)
REASONS = ["Scheduled", "Started", "Killing", "ExitedWithCode", "TFJobSuspended", "TFJobResumed"]
EVENTS = some(
    involvedObject=some(
        kind=st.sampled_from(["Pod", "TFJob"]),
        name=st.one_of(NAMES, st.just("mnist")),
        uid=st.sampled_from(["p1", "p3", "j1"]),
    ),
    reason=st.sampled_from(REASONS),
    message=st.sampled_from(["", "Pod: team.mnist-worker-0 exited with code 1", "Deleted pod: mnist-ps-1"]),
    firstTimestamp=MAYBE_TIMES,
    lastTimestamp=MAYBE_TIMES,
    eventTime=MAYBE_TIMES,
    count=st.integers(-1, 5),
)


HISTORY = st.lists(some(number=st.integers(-1, 9), startTime=MAYBE_TIMES, endTime=MAYBE_TIMES), max_size=3)


@given(st.lists(PODS, max_size=3), st.lists(EVENTS, max_size=6), CONDITIONS, MAYBE_TIMES, HISTORY)
def test_nothing_that_is_missing_or_odd_makes_it_raise(
    pods: list[Any], events: list[Any], conditions: list[Any], completed: str | None, history: list[Any]
) -> None:
    body = {
        "metadata": {"name": "mnist", "uid": "j1"},
        "status": {"conditions": conditions, "completionTime": completed, "attemptHistory": history},
    }
    told = timeline(({"kind": "Pod", **each} for each in pods), ({"kind": "Event", **each} for each in events), body)
    for each in (life for replica in told.replicas for life in replica.lives):
        assert all(one.end == two.start for one, two in zip(each.intervals, each.intervals[1:], strict=False))
        assert all(one.end is not None and one.end > one.start for one in each.intervals[:-1])
        if each.ending is not None:
            assert all(one.end is not None for one in each.intervals)
    spans = [*told.suspensions, *told.holds, *(Span(each.start, each.end) for each in told.attempts)]
    for span in spans:
        assert span.end is None or span.end >= span.start
    assert [each.at for each in told.happenings] == sorted(each.at for each in told.happenings)


def test_a_job_whose_status_is_unreadable_has_none() -> None:
    assert job_of(b'{"metadata": {"name": "mnist"}, "status": {"conditions": 3}}').metadata.name == "mnist"
