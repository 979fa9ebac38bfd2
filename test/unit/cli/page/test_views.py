"""What the page shows of jobs, as pure functions of objects."""

from typing import Any

import msgspec
import pytest

from hack.objects import CREATED, CREATED_S, TEMPLATE, a_job, ended, event, job, pod, running, waiting, wanting
from tfjob_operator.cli.page.objects import PageJob, by_job_of_pod, marks_of_event, with_unreadable_status
from tfjob_operator.cli.page.views import MAX_EVENTS, MAX_WHY, timeline_view
from unit.cli.page.conftest import row_of_page, view_of_page


def row(item: PageJob, *pods: Any, events: Any = ()) -> dict[str, Any]:
    return row_of_page(item, pods, events)


def view(item: PageJob, pods: Any = (), events: Any = ()) -> dict[str, Any]:
    return view_of_page(item, pods, events)


@pytest.mark.parametrize(
    ("states", "state"), [((), "New"), (("Created",), "Created"), (("Created", "Held", "Running"), "Running")]
)
def test_the_state_is_the_last_condition_that_is_true(states: tuple[str, ...], state: str) -> None:
    """As the STATE column of kubectl; a job that the operator has not seen yet is new."""
    assert row(job("mnist", *states))["state"] == state


@pytest.mark.parametrize(("status", "shown"), [("True", "no image"), ("False", "")])
def test_a_job_is_on_hold_while_its_condition_is_true(status: str, shown: str) -> None:
    held = {"type": "Held", "status": status, "message": "no image"}
    assert view(job("mnist", status={"conditions": [held]}))["held"] == shown


def test_a_row_counts_ready_pods_of_each_type_and_has_restarts_its_queue_and_its_times() -> None:
    """A pod that runs and is not ready does not count; restarts are those of all replicas; times are since 1970."""
    unready = pod("mnist", "Worker", 1, status=running() | {"conditions": [{"type": "Ready", "status": "False"}]})
    restarts = [{"type": "Worker", "index": 0, "carried": 2, "inPlace": 1}, {"type": "PS", "index": 0, "carried": 1}]
    labels = {"kueue.x-k8s.io/queue-name": "gpu"}
    item = job("mnist", "Running", spec=wanting(Worker=2, PS=1), status={"restarts": restarts}, labels=labels)
    found = row(item, pod("mnist"), unready, pod("mnist", "PS"))
    counts = [(each["type"], each["ready"], each["wanted"]) for each in found["replicas"]]
    assert sorted(counts) == [("PS", 1, 1), ("Worker", 1, 2)]
    assert (found["restarts"], found["queue"], found["created"], found["ended"]) == (4, "gpu", CREATED_S, None)


def test_the_reason_of_a_job_has_the_message_of_most_of_its_pods_in_one_line_of_bounded_length() -> None:
    """A failed job has that of its condition, and a limit by its name."""
    pods = [pod("mnist", "Worker", each, status=waiting("ErrImagePull", "no\nsuch image " * 50)) for each in range(2)]
    found = row(job("mnist", "Created"), *pods, pod("mnist", "PS", status=ended(3)))
    assert (found["note"], found["why"][:14], len(found["why"]) <= MAX_WHY) == ("ErrImagePull", "no such image ", True)
    crashing = waiting("CrashLoopBackOff", "back-off 5m0s")
    for reason, note in (("Error", "CrashLoopBackOff"), ("OOMKilled", "OOMKilled")):
        over = {"exitCode": 137, "reason": reason, "message": "no memory"}
        crashing["containerStatuses"][0]["lastState"] = {"terminated": over}
        found = row(job("mnist", "Running"), pod("mnist", status=crashing))
        assert (found["note"], found["why"]) == (note, "no memory")
    found = row(job("mnist", "Created"), pod("mnist", status=waiting("ContainerCreating")))
    assert (found["note"], found["quiet"]) == ("ContainerCreating", True), "it will pass by itself"
    assert row(job("mnist", "Failed"), pod("mnist", status=ended(3)))["note"] == "ExitCode:3"
    assert row(job("mnist", "Failed"))["why"] == "is Failed"
    assert row(job("mnist", "Succeeded"), pod("mnist", "PS", status=ended(3)))["note"] == ""


def test_a_worker_that_failed_before_the_success_of_its_job_did_not_succeed() -> None:
    """The status counts all workers that were not over as succeeded; the page shows the same as `status` and `explain`."""
    status = {"replicaStatuses": {"Worker": {"succeeded": 2}}, "finishedIndices": {"Worker": "0"}}
    item = job("mnist", "Succeeded", spec=wanting(Worker=2), status=status)
    (worker,) = row(item, pod("mnist", status=ended(0)), pod("mnist", "Worker", 1, status=ended(137)))["replicas"]
    assert (worker["succeeded"], worker["failed"]) == (1, 1)
    (worker,) = row(job("mnist", "Succeeded", spec=wanting(Worker=2), status=status | {"finishedIndices": {}}))[
        "replicas"
    ]
    assert worker["succeeded"] == 2, "an operator that records no indices"


def test_attempts_are_restarts_and_shown_with_what_ended_them_nodes_that_are_avoided_and_hours() -> None:
    """A delayed restart is the reason of a job whose pods have no other."""
    policy = {"maxRestarts": 3, "rules": [{"name": "badGpu", "action": "RestartAll"}]}
    over = {
        "number": 1,
        "startTime": CREATED,
        "endTime": CREATED,
        "rule": "badGpu",
        "action": "RestartAll",
        "exitCode": 42,
    }
    nodes = [{"name": "node-a", "failures": 2, "expirationTime": CREATED}, {"name": "node-b", "failures": 1}]
    status = {
        "attempt": 2,
        "countedRestarts": 1,
        "nextRestartTime": "2026-03-01T10:00:40Z",
        "attemptHistory": [over],
        "avoidedNodes": nodes,
    }
    item = job("mnist", "Restarting", spec=wanting(Worker=2) | {"runPolicy": {"failurePolicy": policy}}, status=status)
    found = view(item)
    assert (found["row"]["note"], found["row"]["why"]) == ("BackOff", "next restart at 10:00:40 UTC")
    assert found["row"]["until"] == CREATED_S + 40
    assert (found["row"]["restarts"], found["alpha"]) == (2, False)
    why = "rule badGpu (RestartAll), exit code 42"
    assert found["attempts"] == {
        "number": 2,
        "counted": 1,
        "most": 3,
        "next": CREATED_S + 40,
        "history": [{"number": 1, "start": CREATED_S, "end": CREATED_S, "why": why}],
        "avoided": [{"name": "node-a", "failures": 2, "until": CREATED_S}],
    }
    assert view(job("mnist", status={"acceleratorSeconds": {"nvidia.com/gpu": {"failed": 360}}}))["accelerators"] == [
        "nvidia.com/gpu: 6m, 6m lost (failed 6m)"
    ]
    assert found["timeline"]["attempts"] == [
        {"number": 1, "start": CREATED_S, "end": CREATED_S, "message": why},
        {"number": 2, "start": CREATED_S, "end": None, "message": ""},
    ]
    assert row(item, pod("mnist", status=ended(3)))["note"] == "ExitCode:3"


def test_the_reason_of_a_job_without_pods_is_its_newest_warning() -> None:
    """Unless it is suspended, its pods were created, or the event is about an earlier job of the same name."""
    quota = event("mnist", number=1, type="Warning", reason="FailedCreatePod", message="exceeded quota: team")
    other = event("mnist", number=2, type="Warning", reason="FailedCreatePod", message="denied")
    earlier = event("mnist", number=3, type="Warning", involvedObject={"kind": "TFJob", "uid": "earlier"})
    item = job("mnist", "Created")
    found = row(item, events=[earlier, quota])
    assert (found["note"], found["why"]) == ("QuotaExceeded", "exceeded quota: team"), "as `kubectl tfjob list` prints"
    assert view(item, (), [other, quota])["row"]["note"] == "FailedCreatePod"
    assert row(job("mnist", "Suspended"), events=[quota])["note"] == "Suspended"
    assert row(item, pod("mnist"), events=[quota])["note"] == "QuotaExceeded", "worker 1 is missing"
    assert row(item, pod("mnist"), pod("mnist", index=1), events=[quota])["note"] == ""


def test_a_mistake_in_a_specification_is_told_and_harms_nothing() -> None:
    """The job is shown with what can be read of it."""
    broken = job("mnist", "Failed", spec={"tfReplicaSpecs": {"Worker": {"replicas": "many"}}})
    assert "spec.tfReplicaSpecs.Worker.replicas" in view(broken)["mistakes"]
    assert "spec.tfReplicaSpecs" in view(job("mnist", "Created", spec={"tfReplicaSpecs": 7}))["mistakes"]
    assert not view(job("mnist", spec=7))["tensorboard"]


def test_a_job_of_the_alpha_dialect_is_shown_with_its_own_words() -> None:
    """Its phase, and the sizes of its replicaSpecs."""
    specs = [{"tfReplicaType": "MASTER", "template": TEMPLATE}, {"tfReplicaType": "PS", "replicas": 2}]
    alpha = job("old", spec={"replicaSpecs": specs, "tensorboard": {}}, status={"phase": "Running"})
    found = row(alpha)
    assert found["state"] == "Running"
    assert {each["type"]: each["wanted"] for each in found["replicas"]} == {"Master": 1, "PS": 2}
    labels = {"job_type": "PS", "task_index": "1", "tf_job_name": "old"}
    found = view(alpha, [pod("old", "PS", 1, name="ps-x7ab-1-abcde", labels=labels)])
    assert found["tensorboard"]
    shown = [(each["type"], each["index"], each["state"]) for each in found["replicas"]]
    assert shown == [("Master", 0, "Missing"), ("PS", 0, "Missing"), ("PS", 1, "Running")]


def test_a_status_that_nobody_can_read_still_leaves_a_job_on_the_list() -> None:
    """With its conditions, if those can be read."""
    raw = msgspec.json.encode(a_job("mnist", "Running", status={"restarts": "many"}))
    found = row(with_unreadable_status(PageJob)(raw, ValueError()))
    assert (found["state"], found["created"]) == ("Running", CREATED_S)


def test_replicas_without_a_pod_are_shown_and_stand_in_order() -> None:
    """Worker 10 after worker 9; those that have finished are done, though their pods are gone."""
    item = job("mnist", "Running", spec=wanting(Worker=11, Chief=1), status={"finishedIndices": {"Worker": "0-1"}})
    shown = view(item, [pod("mnist", "Worker", 10), pod("mnist", "Worker", 9)])["replicas"]
    assert [each["name"] for each in shown][:2] == ["mnist-chief-0", "mnist-worker-0"]
    assert [each["index"] for each in shown[-2:]] == [9, 10]
    assert [each["state"] for each in shown[:4]] == ["Missing", "Succeeded", "Succeeded", "Missing"]


def test_a_replica_shows_its_exit_its_message_and_its_node() -> None:
    """Of the container that trains."""
    shown = view(job("mnist", "Failed"), [pod("mnist", status=ended(3, "no data"))])["replicas"][0]
    assert [shown[key] for key in ("state", "exit", "message", "node")] == ["Failed", 3, "no data", "node-1"]


def test_control_characters_of_users_are_shown_as_what_they_are() -> None:
    """Escape sequences are escaped, and so are characters that turn the direction of the text after them."""
    [shown] = view(job(), [pod("mnist", status=ended(1, "\x1b[31m\u202egnp.exe"))])["replicas"][:1]
    assert shown["message"] == r"\x1b[31m\u202egnp.exe"


def test_events_are_the_newest_first_and_bounded() -> None:
    """Those of the job and of its pods."""
    many = [event("mnist", number=each % 60) for each in range(MAX_EVENTS)]
    shown = view(job(), (), [*many, event("mnist-worker-0", "Pod", number=59)])["events"]
    assert len(shown) == MAX_EVENTS
    assert [each["at"] for each in shown] == sorted((each["at"] for each in shown), reverse=True)


def test_events_of_an_earlier_job_of_the_name_are_left_out() -> None:
    """By the UID where they have one, by their time where they are about pods."""
    other = event("mnist", involvedObject={"kind": "TFJob", "name": "mnist", "uid": "another"})
    old = event("mnist-worker-0", "Pod", lastTimestamp="2026-02-01T00:00:00Z")
    assert view(job(), (), [other, old])["events"] == []


def test_an_event_belongs_to_the_job_that_it_or_its_pod_is_of_and_a_pod_to_that_of_its_label() -> None:
    """An event also when the pod is gone; a pod in both dialects, and without a label to none."""
    for kind, name, keys in (
        ("TFJob", "mnist", ["team/mnist"]),
        ("Pod", "a-worker-0-ps-12", ["team/a-worker-0"]),
        ("TfJob", "mnist", ["team/tfjob.tensorflow.org/mnist"]),
        ("Pod", "nginx", []),
        ("Node", "mnist", []),
    ):
        assert [*marks_of_event(event(name, kind))] == keys, name
    assert by_job_of_pod(pod("mnist")) == ("team/mnist",)
    assert by_job_of_pod(pod("mnist", labels={"tf_job_name": "old"})) == ("team/old",)
    assert by_job_of_pod(pod("mnist", labels=None)) == ()


def test_lanes_have_the_lives_of_pods_in_seconds_and_a_suspension_is_a_span_over_all_of_them() -> None:
    """The oldest first; what goes on has no end. A suspension begins with the condition."""
    shown = timeline_view(job("mnist", "Running"), [pod("mnist"), pod("mnist", "PS", status=ended(3))], [])
    ps, worker = shown["lanes"]
    assert (ps["type"], ps["index"], worker["type"]) == ("PS", 0, "Worker")
    assert (shown["start"], shown["end"]) == (CREATED_S, None)
    [life] = ps["lives"]
    assert (life["ending"], life["exit_code"], life["end"]) == ("failed", 3, CREATED_S + 300)
    last = worker["lives"][0]["intervals"][-1]
    assert (last["state"], last["start"], last["end"], last["exit_code"]) == ("running", CREATED_S, None, None)
    [span] = timeline_view(job("mnist", "Suspended"), [], [])["spans"]
    assert (span["kind"], span["start"], span["end"]) == ("suspended", CREATED_S, None)
