"""`list`: which jobs are sick, and why; each flag changes what it prints."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pytest_mock import MockerFixture

from fakes.recordings import kueue
from hack.objects import a_job, ago, an_event, container_status
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.cli import listing
from tfjob_operator.cli.commands import list_
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.model import facts, job_events, replica_names
from tfjob_operator.cli.session import StreamBrokenError
from unit.cli.conftest import EVENTS, JOBS, PODS, Server, run
from unit.cli.conftest import pod as a_pod

FIRST = "/apis/tensorflow.org/v1alpha1/namespaces/team/tfjobs"
HEADER = ["NAME", "STATE", "READY", "RESTARTS", "DURATION", "AGE", "REASON"]
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
READY = {"type": "Ready", "status": "True"}


job = partial(a_job, resourceVersion="7", age_s=600)
RUNS = ("Created", "Running")
pod = partial(a_pod, conditions=[READY])


def waiting(why: str, phase: str = "Pending", restarts: int = 0, **last: Any) -> dict[str, Any]:
    status = container_status({"waiting": {"reason": why}}, {"terminated": last} if last else {}, restarts)
    return {"phase": phase, "conditions": [], "containerStatuses": [status]}


def ended(code: int, reason: str = "Error", phase: str = "Failed") -> dict[str, Any]:
    status = container_status({"terminated": {"exitCode": code, "reason": reason}})
    return {"phase": phase, "conditions": [], "containerStatuses": [status]}


def event(about: dict[str, Any], reason: str, message: str = "", kind: str = "TFJob") -> dict[str, Any]:
    found = an_event(about["metadata"]["name"], kind, reason=reason, message=message, type="Warning")
    found["involvedObject"]["uid"] = about["metadata"]["uid"]
    return found


def serve(server: Server, *found: dict[str, Any], pods: Any = (), events: Any = ()) -> None:
    """Serve lists of these; a job's pods too, if there are any."""
    for path, items in ((JOBS, found), (PODS, pods), (EVENTS, events)):
        server.answers(path, {"metadata": {"resourceVersion": "7"}, "items": list(items)})
    for each in found:
        server.answers(f"{JOBS}/{each['metadata']['name']}", each)


@pytest.fixture
def rows(server: Server) -> Any:
    """Run `list` with some options and return what stands in its lines."""

    def listed(*options: str) -> list[list[str]]:
        result = server.run("list", *options)
        assert result.exit_code == 0, result.output
        return [line.split() for line in result.stdout.splitlines()]

    return listed


def reasons(found: list[list[str]]) -> dict[str, str]:
    return {row[0]: row[-1] if row[-1][0].isalpha() else "" for row in found[1:]}


def test_labels_and_states_are_those_of_the_operator() -> None:
    """`list` does not import the constants, which would cost a fifth of its time."""
    v1 = tuple(c.LABEL_PREFIX + name for name in (c.LABEL_REPLICA_TYPE, c.LABEL_REPLICA_INDEX))
    assert {v1, (alpha.LABEL_JOB_TYPE, alpha.LABEL_TASK_INDEX)} < {*replica_names._LABELS}
    assert (c.LABEL_PREFIX + c.LABEL_JOB_NAME, alpha.LABEL_JOB_NAME) == facts._JOB_LABELS
    assert (listing.POD_SELECTOR, facts.QUEUE_LABEL) == (c.LABEL_OPERATOR_NAME, c.LABEL_QUEUE)
    assert (tuple(c.REPLICA_TYPES), c.CONTAINER_NAME) == (replica_names.REPLICA_TYPES, facts.CONTAINER)
    assert frozenset(c.MANAGED_BY_US) == facts.OURS
    counted = {c.EventReason.CREATED_POD, c.EventReason.EXITED_WITH_CODE, c.ConditionReason.RESUMED}
    assert counted == {*job_events._POD}
    assert {*listing.STATES} == {"New", conditions.ENDING, *c.ConditionType} - {
        c.ConditionType.HELD,
        c.ConditionType.STALLED,
    }


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, ""),
        (waiting("CrashLoopBackOff", "Running", 92, exitCode=1), "CrashLoopBackOff"),
        (waiting("CrashLoopBackOff", "Running", 3, exitCode=137, reason="OOMKilled"), "OOMKilled"),
        (waiting("ImagePullBackOff"), "ImagePullBackOff"),
        (waiting("CreateContainerConfigError"), "CreateContainerConfigError"),
        (waiting("ContainerCreating"), "ContainerCreating"),
        ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "Unschedulable"),
        ({"phase": "Pending", "conditions": []}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted", "conditions": []}, "Evicted"),
        (ended(3), "ExitCode:3"),
        (ended(137, "OOMKilled", "Running"), "OOMKilled"),
        (ended(0, "Completed", "Succeeded"), ""),
    ],
)
def test_a_job_has_the_reason_of_its_pods(server: Server, rows: Any, status: dict[str, Any], reason: str) -> None:
    """In the words of `kubectl get pods`."""
    serve(server, job("mnist", *RUNS), pods=[pod("mnist-worker-0", **status), pod("mnist-worker-1")])
    assert rows()[0] == HEADER
    assert reasons(rows()) == {"mnist": reason}


def test_a_container_that_runs_between_two_crashes_is_not_well_yet(server: Server, rows: Any) -> None:
    for running_s, reason in ((30, "ExitCode:1"), (700, "")):
        status = container_status({"running": {"startedAt": ago(running_s)}}, restarts=92)
        status["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
        serve(
            server,
            job("mnist", *RUNS),
            pods=[pod("mnist-worker-0", conditions=[READY], containerStatuses=[status]), pod("mnist-worker-1")],
        )
        (row,) = rows()[1:]
        assert (row[1:4], "".join(row[6:])) == (["Running", "2/2", "92"], reason)


@pytest.mark.parametrize(
    ("state", "policy", "age_s", "reason"),
    [
        ("Succeeded", {}, 600, ""),
        ("Suspended", {}, 600, "Suspended"),
        ("Created", {"suspend": True}, 600, "Suspended"),
        ("Created", {}, 600, "NotReconciled"),
        ("Restarting", {}, 600, "NotReconciled"),
        ("Created", {}, 5, "Starting"),
    ],
)
def test_a_job_without_pods_has_the_reason_of_its_status(  # noqa: PLR0917 - cases
    server: Server, rows: Any, state: str, policy: dict[str, Any], age_s: float, reason: str
) -> None:
    """A minute after its start it should have pods."""
    body = job("mnist", state, age_s=age_s)
    body["spec"]["runPolicy"] = policy
    serve(server, body)
    assert reasons(rows()) == {"mnist": reason}


@pytest.mark.parametrize(
    ("left_s", "state", "status", "reason"),
    [
        (49, "Running", {}, "BackOff:4"),
        (49, "Restarting", {}, "BackOff:4"),
        (49, "Running", waiting("ImagePullBackOff"), "ImagePullBackOff"),
        (49, "Failed", {}, "TFJobFailed"),
        (-1, "Restarting", {}, "Restarting"),
    ],
)
def test_a_job_that_delays_a_restart_says_for_how_long_and_its_attempts_are_restarts(  # noqa: PLR0917 - cases
    server: Server, rows: Any, left_s: float, state: str, status: dict[str, Any], reason: str
) -> None:
    """A trouble of another pod comes first: the delay passes by itself."""
    records = [{"type": "Worker", "index": 0, "carried": 2}]
    serve(
        server,
        job("mnist", state, status={"attempt": 3, "restarts": records, "nextRestartTime": ago(-left_s)}),
        pods=[pod("mnist-worker-0", **status)],
    )
    assert rows()[1][3] == "5"
    assert reasons(rows())["mnist"].startswith(reason)
    assert bool(reasons(rows())["mnist"]) is bool(reason)
    if reason.startswith("BackOff"):
        assert "next restart at " in server.run("list", "-o", "wide").stdout
        row = ("mnist", state, "0/2", "5", "1m", "1m", "BackOff:49s")
        assert list_._steady(row) == list_._steady((*row[:-1], "BackOff:48s")), "a watch prints no row for it"


@pytest.mark.parametrize(
    ("message", "told", "reason"),
    [
        *(
            (f"Job deadline has failed because {words}. Pod deadline", "JobFailed", limit)
            for limit, (_, words) in c.LIMITS.items()
        ),
        ("Job deadline has failed because of a limit of tomorrow", "JobFailed", "JobFailed"),
        ("TFJob has failed. Pod a: container tensorflow exited with code 2", "TFJobFailed", "ExitCode:2"),
        ("TFJob has failed. Pod a: container tensorflow exited with code 137 (OOMKilled)", "TFJobFailed", "OOMKilled"),
        ("the spec is invalid", "InvalidTFJobSpec", "InvalidTFJobSpec"),
        ("nobody knows", "TFJobFailed", "TFJobFailed"),
    ],
)
def test_a_failed_job_has_a_reason_when_its_pods_are_gone(
    server: Server, rows: Any, message: str, told: str, reason: str
) -> None:
    body = job(
        "mnist", "Failed", status={"startTime": "2026-03-01T10:00:00Z", "completionTime": "2026-03-01T10:00:10Z"}
    )
    body["status"]["conditions"][0] |= {"reason": told, "message": message}
    serve(server, body)
    assert rows()[1] == ["mnist", "Failed", "0/2", "0", "10s", "10m", reason]


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [(("OOMKilled", 137), "OOMKilled"), (("Error", 3), "ExitCode:3"), (("Evicted", None), "Evicted")],
)
def test_the_reason_of_a_failed_job_is_that_of_the_recorded_failure(
    server: Server, rows: Any, recorded: tuple[str, int | None], reason: str
) -> None:
    """Whatever the words of its message."""
    body = job("mnist", "Failed")
    body["status"]["conditions"][0] |= {"reason": "TFJobFailed", "message": "exited with code 9"}
    failure = dict(zip(("reason", "exitCode"), recorded, strict=True))
    body["status"]["begun"] = {"ending": {"type": "Failed", "reason": "TFJobFailed", "failure": failure}}
    serve(server, body)
    assert reasons(rows()) == {"mnist": reason}


def test_queued_held_and_deleted_jobs_are_shown_as_such(server: Server, rows: Any) -> None:
    queued, held, gone = job("queued", "Suspended"), job("held", *RUNS), job("gone", *RUNS)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    held["status"]["conditions"].append({"type": "Held", "status": "True", "reason": "InvalidTFJobSpec"})
    gone["metadata"]["deletionTimestamp"] = ago(1)
    serve(server, queued, held, gone)
    assert reasons(rows()) == {"queued": "Queued", "held": "InvalidTFJobSpec", "gone": "Terminating"}


def test_of_queued_jobs_list_says_which_never_fit_and_quotes_kueue(server: Server) -> None:
    found = [job(name, "Suspended") for name in ("w18", "w9", "w21")]
    for body in found:
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    serve(server, *found)
    run_list = ("list", f"--kubeconfig={server.kubeconfig}", "-o", "wide")
    assert run(*run_list).stdout.count(" Queued\n") == 3  # there is no Kueue
    workloads = {
        owner["name"]: seen.object
        | {"metadata": seen.object["metadata"] | {"namespace": "team", "ownerReferences": [owner]}}
        for seen in kueue("waiting")
        if seen.resource == "workloads"
        for owner in [seen.object["metadata"]["ownerReferences"][0] | {"uid": ""}]
        if owner["name"] in {"w18", "w9"}
    }
    for name, body in workloads.items():
        body["metadata"]["ownerReferences"][0]["uid"] = f"uid-{name}"
    server.answers("/apis/kueue.x-k8s.io", {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}})
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
    server.answers(path, {"metadata": {}, "items": [*workloads.values()]})
    rows = {line.split()[0]: line for line in run(*run_list).stdout.splitlines()[1:]}
    assert " Queued " in rows["w18"]
    assert "insufficient unused quota for cpu in flavor default, 3 more needed" in rows["w18"]
    assert " NeverFits " in rows["w9"]
    assert "> maximum capacity (3)" in rows["w9"]
    assert rows["w21"].endswith(" Queued")


def test_of_queued_jobs_list_says_what_they_wait_for(server: Server) -> None:
    """As recorded beside Kueue: the last state but one of each Workload before it ran again or was deleted."""
    chosen = {"c": -2, "r": -6, "h": 1, "d": -5}
    found = {name: job(name, "Suspended") for name in chosen}
    workloads = []
    for name, number in chosen.items():
        found[name]["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
        body = [each.object for each in kueue("evictions") if f"tfjob-{name}-" in each.object["metadata"]["name"]][
            number
        ]
        owner = body["metadata"]["ownerReferences"][0] | {"uid": f"uid-{name}"}
        workloads.append(body | {"metadata": body["metadata"] | {"namespace": "team", "ownerReferences": [owner]}})
    serve(server, *found.values())
    server.answers("/apis/kueue.x-k8s.io", {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}})
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
    server.answers(path, {"metadata": {}, "items": workloads})
    lines = run("list", f"--kubeconfig={server.kubeconfig}", "-o", "wide").stdout.splitlines()[1:]
    shown = {line.split()[0]: line for line in lines}
    assert " CheckRejected " in shown["c"]
    assert shown["c"].endswith('AdmissionCheck in Rejected state: "stub" (no room at all)')
    assert " Deactivated " in shown["r"]
    assert shown["r"].endswith("exceeding the maximum number of re-queuing retries")
    assert " QueueStopped " in shown["h"]
    assert " Deactivated " in shown["d"]


def test_what_only_events_tell_is_read_from_events_once_and_only_then(server: Server, rows: Any) -> None:
    quota, other, mount, old = (job(name, "Created") for name in ("quota", "other", "mount", "old"))
    stuck = [pod(f"mount-worker-{index}", **waiting("ContainerCreating")) for index in range(2)]
    earlier = job("old", *RUNS)
    earlier["metadata"]["uid"] = "another"
    events = [
        event(quota, "FailedCreatePod", 'pods "a" is forbidden: exceeded quota: team, requested: pods=1'),
        event(quota, "UnknownField", "spec.x"),
        event(other, "FailedCreatePod", 'serviceaccount "nobody" not found'),
        event(stuck[0], "FailedMount", 'secret "gone" not found', kind="Pod"),
        event(earlier, "FailedCreatePod", "exceeded quota"),
    ]
    serve(server, quota, other, mount, old, pods=stuck, events=events)
    assert reasons(rows()) == {
        "quota": "QuotaExceeded", "other": "FailedCreatePod", "mount": "FailedMount", "old": "NotReconciled"
    }  # fmt: skip
    asked = [path.partition("?")[0] for _, path, _, _ in server.asked]
    assert asked == [JOBS, FIRST, PODS, EVENTS]
    server.asked.clear()
    serve(server, job("mnist", *RUNS), pods=[pod("mnist-worker-0"), pod("mnist-worker-1")])
    rows()
    assert not any("/events" in path for _, path, _, _ in server.asked)


def test_pods_that_are_evicted_again_and_again_are_found_by_one_request_if_a_pod_is_newer_than_its_job_explains(
    server: Server, rows: Any
) -> None:
    """READY is 2/2 and RESTARTS 0: nothing but the number of creations tells, which are Normal events."""
    new = pod("mnist-worker-1")
    new["metadata"]["creationTimestamp"] = ago(20)
    created = event(job("mnist", *RUNS), "SuccessfulCreatePod", "Created pod: mnist-worker-1")
    created |= {"type": "Normal", "count": 6, "lastTimestamp": ago(20)}
    serve(server, job("mnist", *RUNS), pods=[pod("mnist-worker-0"), new], events=[created])
    assert reasons(rows()) == {"mnist": "Recreated:5"}
    asked = [path for _, path, _, _ in server.asked if "/events" in path]
    assert [parse_qs(urlsplit(path).query)["fieldSelector"] for path in asked] == [[job_events.OF_JOBS]]
    record = {"type": "Worker", "index": 1, "carried": 1}
    for explained in (
        {"startTime": ago(50)},
        {"restarts": [record | {"failedAt": ago(50)}]},
        {"nextRestartTime": ago(21)},
    ):
        server.asked.clear()
        serve(server, job("mnist", *RUNS, status=explained), pods=[pod("mnist-worker-0"), new], events=[created])
        rows()
        assert not any("/events" in path for _, path, _, _ in server.asked), explained


def test_without_the_right_to_list_pods_the_status_is_shown(server: Server, rows: Any) -> None:
    body = job("mnist", *RUNS, status={"restarts": [{"type": "Worker", "index": 0, "inPlace": 3, "replaced": True}]})
    serve(server, body)
    server.answers(PODS, {"message": "no", "reason": "Forbidden"}, code=403)
    assert rows()[1] == ["mnist", "Running", "<unknown>", "4", "10m", "10m"]


def test_jobs_and_pods_are_read_in_chunks(server: Server, rows: Any) -> None:
    """As kubectl does, 500 at once."""
    for path, one, two in ((JOBS, job("a", *RUNS), job("b", *RUNS)), (PODS, pod("a-worker-0"), pod("b-worker-0"))):
        server.answers(path, {"metadata": {"continue": "more"}, "items": [one]}, {"metadata": {}, "items": [two]})
    server.answers(EVENTS, {"metadata": {}, "items": []})
    assert [row[:3] for row in rows()[1:]] == [["a", "Running", "1/2"], ["b", "Running", "1/2"]]
    assert all("limit=500" in path for _, path, _, _ in server.asked)
    assert sum("continue=more" in path for _, path, _, _ in server.asked) == 2


def test_a_list_with_a_bound_ends_with_the_page_that_reaches_it(server: Server) -> None:
    """A namespace may have more events than fit into memory."""
    server.answers(EVENTS, {"metadata": {"continue": "more"}, "items": [job("mnist", *RUNS), job("mnist", *RUNS)]})
    with server.session() as session:
        assert len([*islice(session.pages(EVENTS, 3), 9)]) == 2


def test_jobs_of_the_first_api_are_listed_below(server: Server, rows: Any) -> None:
    old = job("a", *RUNS) | {"apiVersion": "tensorflow.org/v1alpha1", "spec": {"replicaSpecs": [{"replicas": 3}]}}
    serve(server, job("a", *RUNS))
    server.answers(FIRST, {"metadata": {}, "items": [old]})
    assert [row[:3] for row in rows()[1:]] == [["a", "Running", "0/2"], ["tfjob.tensorflow.org/a", "Running", "0/3"]]
    assert rows("-o", "name") == [["tfjob.kubeflow.org/a"], ["tfjob.tensorflow.org/a"]]
    server.answers(FIRST, {"message": "no", "reason": "Forbidden"}, code=403)
    assert len(rows()) == 2
    server.answers(FIRST, {"message": "etcd is away", "reason": "InternalError"}, code=500)
    assert "etcd is away" in server.run("list").stderr


def test_a_list_of_nothing_is_reported_on_standard_error(server: Server) -> None:
    """Standard output stays empty for scripts."""
    serve(server)
    result = server.run("list")
    assert (result.stdout, result.stderr) == ("", "No resources found in team namespace.\n")


def test_each_flag_that_chooses_or_arranges_jobs_changes_what_is_printed(server: Server, rows: Any) -> None:
    young = job("b", "Created", "Failed", age_s=5)
    young["status"]["conditions"][-1]["reason"] = "InvalidTFJobSpec"
    crashing = pod("a-worker-0", **waiting("CrashLoopBackOff", "Running", 92, exitCode=1))
    serve(server, job("a", *RUNS), young, pods=[crashing])
    names = [row[0] for row in rows()]
    assert names == ["NAME", "a", "b"]
    assert [row[0] for row in rows("--no-headers")] == ["a", "b"]
    assert [row[0] for row in rows("b")] == ["NAME", "b"]
    assert [row[0] for row in rows("--state=failed")] == ["NAME", "b"]
    for field in ("age", "restarts", ".status.startTime", "{.metadata.creationTimestamp}"):
        expected = ["a", "b"] if field.startswith((".", "{")) else ["b", "a"]
        assert [row[0] for row in rows(f"--sort-by={field}")[1:]] == expected, field
    assert rows("-o", "wide")[0] == [*HEADER, "MESSAGE"]
    assert rows("-o", "name")[0] == ["tfjob.kubeflow.org/a"]
    server.asked.clear()
    rows("-l", "team=vision", "--field-selector", "metadata.name=a")
    assert server.asked[0][1] == f"{JOBS}?limit=500&labelSelector=team%3Dvision&fieldSelector=metadata.name%3Da"


def test_all_namespaces_are_listed_with_theirs(server: Server, rows: Any) -> None:
    for path, found in (("/apis/kubeflow.org/v1/tfjobs", job("mnist", *RUNS)), ("/api/v1/pods", pod("mnist-worker-0"))):
        server.answers(path, {"metadata": {}, "items": [found]})
    server.answers("/api/v1/events", {"metadata": {}, "items": []})
    assert [row[:4] for row in rows("-A")] == [["NAMESPACE", *HEADER[:3]], ["team", "mnist", "Running", "1/2"]]


def test_a_name_that_is_not_there_is_an_error_after_the_others(server: Server) -> None:
    serve(server, job("a", *RUNS))
    server.answers(f"{JOBS}/gone", {"message": 'tfjobs.kubeflow.org "gone" not found', "reason": "NotFound"}, code=404)
    result = server.run("list", "gone", "a", "--no-headers")
    assert (result.exit_code, result.stdout.split()[0]) == (1, "a")
    assert result.stderr == 'Error from server (NotFound): tfjobs.kubeflow.org "gone" not found\n'


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_managed_fields_are_shown_only_where_they_are_asked_for(server: Server, rows: Any, output: str) -> None:
    """As kubectl does: they are longer than the rest of the object."""
    body = job("mnist", *RUNS)
    body["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    serve(server, body)
    shown = [str(rows(f"--output={output}", *more)) for more in ((), ("--show-managed-fields",))]
    assert ["managedFields" in text for text in shown] == [False, True]


def test_json_is_a_list_or_the_one_job_that_was_named(server: Server) -> None:
    serve(server, job("a", *RUNS), job("b", *RUNS, age_s=5))
    whole = json.loads(server.run("list", "-o", "json", "--sort-by=age").stdout)
    assert [item["metadata"]["name"] for item in whole["items"]] == ["b", "a"]
    assert json.loads(server.run("list", "-o", "json", "a").stdout)["kind"] == "TFJob"


def test_kubectl_prints_what_has_a_template(mocker: MockerFixture) -> None:
    """It has the dialect of JSONPath that people know, and gets the same options."""
    mocker.patch("shutil.which", return_value="/bin/kubectl")
    execv = mocker.patch("os.execv", side_effect=SystemExit)
    template = "jsonpath={.items[*].metadata.name}"
    run("list", "-n", "team", "-o", template, "-l", "team=vision", "--sort-by=age", "--no-headers")
    run("list", "--as=me", "-A", "-o", "custom-columns=N:.metadata.name", "-w")
    run("list", "-o", template, "a", "tfjob.tensorflow.org/b")
    of_all = "tfjobs.kubeflow.org"
    assert [call.args[1] for call in execv.call_args_list] == [
        ["/bin/kubectl", "--namespace=team", "get", f"--output={template}", "--sort-by=.metadata.creationTimestamp",
         "--selector=team=vision", "--no-headers=true", of_all],
        ["/bin/kubectl", "--as=me", "get", "--output=custom-columns=N:.metadata.name", "--all-namespaces",
         "--watch=true", of_all],
        ["/bin/kubectl", "get", f"--output={template}", f"{of_all}/a", "tfjob.tensorflow.org/b"]
    ]  # fmt: skip


def test_a_watch_prints_a_job_whenever_its_row_changes(server: Server, mocker: MockerFixture) -> None:
    serve(server, job("mnist", *RUNS), pods=[pod("mnist-worker-0"), pod("mnist-worker-1")])
    crashing = pod("mnist-worker-0", **waiting("CrashLoopBackOff", "Running", 92, exitCode=1))
    new = job("new", "Created", age_s=5)
    changed = [
        (1, "MODIFIED", pod("mnist-worker-0")), (1, "MODIFIED", crashing), (1, "DELETED", crashing), (0, "ADDED", new),
        (0, "MODIFIED", new), (2, "ADDED", event(new, "FailedCreatePod", "exceeded quota")), (0, "DELETED", new),
        (1, "ADDED", pod("new-worker-0"))
    ]  # fmt: skip
    events = iter((number, {"type": kind, "object": body}) for number, kind, body in changed)
    assert watched(server, mocker, events) == [
        ["mnist", "Running", "2/2", "0"],
        ["mnist", "Running", "1/2", "92", "CrashLoopBackOff"],
        ["mnist", "Running", "1/2", "0", "NotReconciled"],
        ["new", "Created", "0/2", "0", "Starting"],
        ["new", "Created", "0/2", "0", "QuotaExceeded"],
        ["new", "Created", "0/2", "0", "Terminating"],
        ["mnist", "Running", "2/2", "0"],
    ], "the last one is read anew"


def watched(server: Server, mocker: MockerFixture, *events: Any, options: Sequence[str] = ()) -> list[list[str]]:
    """Return the rows of `list --watch` without times. Each of `events` is what the watches yield, until Ctrl-C."""
    mocker.patch("tfjob_operator.cli.watches.changes", side_effect=[*events, KeyboardInterrupt])
    mocker.patch("time.sleep")
    result = server.run("list", "--watch", "--no-headers", *options)
    assert (result.exit_code, result.stderr.strip()) == (130, ""), result.output
    return [row[:4] + row[6:] for row in map(str.split, result.stdout.splitlines())]


def failing(error: CliError) -> Iterator[Any]:
    yield from ()
    raise error


@pytest.mark.parametrize(
    "end",
    [
        iter(()),
        failing(StreamBrokenError("lost")),
        failing(ApiServerError("too old", code=410)),
    ],
    ids=["ended", "lost", "refused"],
)
def test_a_watch_that_ends_is_begun_anew_with_what_has_changed(
    server: Server, mocker: MockerFixture, end: Iterator[Any]
) -> None:
    """Also with what was deleted meanwhile; nothing is printed twice."""
    before = [job(name, *RUNS) for name in ("a", "b", "c")]
    after = [job("a", *RUNS), job("b", "Succeeded"), job("d", *RUNS)]
    serve(server, *before)
    lists = [json.dumps({"metadata": {"resourceVersion": each}, "items": items}).encode() for each, items in
             (("7", before), ("8", after))]  # fmt: skip
    server.responses[JOBS] = [(200, lists[0]), (503, b"{}"), (0, b""), (200, lists[1])]
    mocker.patch("tfjob_operator.cli.commands.list_.warn")
    changed = (0, {"type": "MODIFIED", "object": job("a", "Failed")})
    rows = watched(server, mocker, end, iter([changed]))
    assert [row[:2] for row in rows] == [
        ["a", "Running"], ["b", "Running"], ["c", "Running"],
        ["c", "Running"], ["b", "Succeeded"], ["d", "Running"],
        ["a", "Failed"],
        ["a", "Running"],
    ]  # fmt: skip
    assert rows[3][-1] == "Terminating"


def test_a_watch_of_one_name_goes_on_after_the_job_was_deleted_and_created_again(
    server: Server, mocker: MockerFixture
) -> None:
    serve(server, job("mnist", *RUNS))
    of_name = f"{JOBS}?limit=500&fieldSelector=metadata.name%3Dmnist"
    server.answers(of_name, *({"metadata": {}, "items": items} for items in ([], [job(uid="another")])))
    options = ["mnist", "--output=name"]
    assert watched(server, mocker, iter(()), iter(()), options=options) == [["tfjob.kubeflow.org/mnist"]] * 3
    server.answers(f"{JOBS}/gone", {"message": "no", "reason": "NotFound"}, code=404)
    assert server.run("list", "--watch", "gone").exit_code == 1


def test_a_watch_begins_where_the_lists_end_and_a_refusal_ends_it(server: Server, mocker: MockerFixture) -> None:
    mocker.patch("time.sleep")
    serve(server, job("mnist", *RUNS))
    server.answers(PODS, {"message": "no", "reason": "Forbidden"}, code=403)
    lines = [{"type": "MODIFIED", "object": job("b", *RUNS)}, {"type": "ERROR", "object": {"message": "too old"}}]
    watched = "".join(json.dumps(each) + "\n" for each in lines).encode()
    server.responses[f"{JOBS}?resourceVersion=7&watch=true"] = [
        (200, watched), (200, watched), (403, b'{"message": "no", "reason": "Forbidden"}')
    ]  # fmt: skip
    result = server.run("list", "--watch")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["NAME", "mnist", "b", "b", "b", "b"]
    assert (result.exit_code, result.stderr) == (1, "Error from server (Forbidden): no\n")
