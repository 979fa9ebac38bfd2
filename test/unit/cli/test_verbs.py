"""The verbs, against a server that answers as the API server does."""

import json
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from pytest_mock import MockerFixture

from fakes.recordings import kueue
from tfjob_operator.cli import durations
from tfjob_operator.cli.commands import version_
from tfjob_operator.cli.complete import argument_of
from tfjob_operator.cli.main import COMMANDS
from tfjob_operator.cli.operators import MOVED, READER
from unit.cli import training_operator
from unit.cli.conftest import JOBS, Server, job, operator_deployment, operator_lease, outcome, pod, run
from unit.cli.training_operator import INSTALLED, PEERS

ALPHA: dict[str, Any] = {"replicaSpecs": []}
ENTRY = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}}


def test_the_help_lists_every_verb_and_each_has_its_own() -> None:
    shown = run("--help").output
    for verb, text in COMMANDS.items():
        assert f"{verb} " in shown
        assert text in shown
        own = run(verb, "-h")
        assert own.exit_code == 0
        assert own.output.startswith(f"Usage: kubectl tfjob {verb}")


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        (["--help"], {"yaml", "ssl", "http.client", "json", "dataclasses"}),
        (["explain", "--help"], {"yaml", "ssl", "http.client", "json"}),
        (["status", "--help"], {"yaml", "ssl", "http.client", "json"}),
        (["timeline", "--help"], set()),
        (["watch", "--help"], set()),
        (["list", "--help"], set()),
        (["submit", "--help"], set()),
    ],
)
def test_a_command_line_is_parsed_without_what_only_the_command_needs(words: list[str], unneeded: set[str]) -> None:
    """It costs at most twice what `import click` does (`make bench`)."""
    code = f"import sys; from tfjob_operator.cli.main import main\ntry: main({words})\nfinally: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "msgspec", "structlog", "kubernetes", "tfjob_operator.api.meta", *unneeded} & set(loaded)


ELSEWHERE = "--image=x --dry-run=client"
WRONG = [
    ("suspnd", "unknown command 'suspnd'. Did you mean suspend?"),
    ("list --tokn", "Did you mean '--token'?"),
    ("delete mnist", "unknown command 'delete'. Use kubectl delete tfjob NAME."),
    ("create mnist", "unknown command 'create'. Use kubectl create -f FILE."),
    *(
        (f"wait mnist --timeout={given}", "is not a duration such as 90s")
        for given in ("90", "", "1.5h", "'5m '", "-1s")
    ),
    ("list -o table", "'table' is not one of wide, name"),
    ("list --sort-by=colour", "'colour' is not a column"),
    ("list --sort-by=.items[0]", "is not a column"),
    ("list --state=sick", "'sick' is not one of"),
    ("list a -A", "JOB cannot be combined with"),
    ("list a b --watch", "--watch takes one JOB at most"),
    ("list -w -o json", "--watch takes one JOB at most"),
    ("list -o jsonpath={} --state=failed", "a template cannot be combined with --state"),
    ("list -o jsonpath={} --state=failed", "list the names with -o name first"),
    (f"submit mnist {ELSEWHERE} --volume=data", "'--volume': 'data' is not of the form CLAIM:/PATH"),
    (f"submit mnist {ELSEWHERE} --volume=data:relative", "'--volume': 'data:relative' is not of the form CLAIM:/PATH"),
    (f"submit mnist {ELSEWHERE} --toleration=a:Sometimes", "is not of the form KEY[=VALUE][:EFFECT]"),
    (f"submit mnist {ELSEWHERE} --node-selector=a", "'--node-selector': 'a' is not of the form KEY=VALUE"),
    (f"submit mnist {ELSEWHERE} --env=A", "'--env': 'A' is not of the form KEY=VALUE"),
    (f"submit mnist {ELSEWHERE} --label==x", "'--label'"),
    (f"submit mnist {ELSEWHERE} --cpu=many", "'--cpu': 'many' is not a quantity"),
    (f"submit mnist {ELSEWHERE} --memory=-1Gi", "'--memory': '-1Gi' is not a quantity"),
    (f"submit mnist {ELSEWHERE} --workers=two", "'--workers': 'two' is not a valid number"),
    (f"submit mnist {ELSEWHERE} --workers=-1", "'--workers': -1 is not in the range"),
    (f"submit mnist {ELSEWHERE} --restart-policy=Sometimes", "'--restart-policy': 'Sometimes' is not one of"),
    (f"submit mnist {ELSEWHERE} --ttl=7", "'--ttl': '7' is not a duration such as 90s"),
    (f"submit mnist {ELSEWHERE} --watch", "--watch"),
    ("submit mine", "--image or --filename is required"),
]


@pytest.mark.parametrize(("line", "says"), WRONG)
def test_a_wrong_command_line_is_exit_code_2_and_says_what_is_wrong(line: str, says: str) -> None:
    """The flag is named: the API server does not check templates, so the job would only fail later."""
    result = run(*shlex.split(line))
    assert (result.exit_code, says in " ".join(result.stderr.split())) == (2, True), result.stderr


@pytest.mark.parametrize(("verb", "ours"), [("get", "list"), ("describe", "status")])
def test_verbs_of_kubectl_that_mean_one_of_ours_are_taken_for_it(verb: str, ours: str) -> None:
    assert run(verb, "--help").output.partition("\n")[2] == run(ours, "--help").output.partition("\n")[2]


NOT_SERVED = "error: TFJobs are not served by this cluster: the CRD tfjobs.kubeflow.org is not installed"


def test_an_error_is_one_line_and_exit_code_1(server: Server) -> None:
    assert outcome(server.run("list")) == (1, "", f"{NOT_SERVED}\n")


@pytest.mark.parametrize("verb", [["list"], ["explain", "mnist"]])
@pytest.mark.parametrize(
    ("others", "says"),
    [
        (None, NOT_SERVED),
        (["notebooks"], NOT_SERVED),
        (["notebooks", "tfjobs"], "Error from server (Forbidden): no"),
    ],
)
def test_who_has_no_rights_for_jobs_is_told_that_the_crd_is_missing(
    server: Server, verb: list[str], others: list[str] | None, says: str
) -> None:
    """The API server checks rights first, and those for TFJobs are installed with the CRD."""
    server.answers(JOBS, FORBIDDEN, code=403)
    server.answers(f"{JOBS}/mnist", FORBIDDEN, code=403)
    if others is not None:
        server.answers("/apis/kubeflow.org/v1", {"resources": [{"name": name} for name in others]})
    result = server.run(*verb)
    assert (result.exit_code, result.stderr) == (1, f"{says}\n")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    """`kubectl tfjob validate FILES | head -1`."""
    command = [sys.executable, "-m", "tfjob_operator.cli", "--help"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.close()
    _, errors = writer.communicate()
    assert "Traceback" not in errors


def test_a_full_disk_is_an_error_of_one_line() -> None:
    command = [sys.executable, "-m", "tfjob_operator.cli", "--help"]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_jobs_of_the_first_api_are_found_by_name(server: Server) -> None:
    first, full = "/apis/tensorflow.org/v1alpha1/namespaces/team/tfjobs", "tfjob.tensorflow.org/"
    old = [job(name, "Failed") | {"apiVersion": "tensorflow.org/v1alpha1"} for name in ("a", "b")]
    server.answers(f"{JOBS}/a", job("a", "Succeeded"))
    server.answers(f"{first}/a", old[0])
    server.answers(f"{first}/b", old[1])
    ends = {name: server.run("wait", name).exit_code for name in ("a", f"{full}a", "b", "c")}
    assert ends == {"a": 0, f"{full}a": 1, "b": 1, "c": 4}
    assert "is not a job name" in server.run("wait", "job.batch/a").stderr


def test_a_job_that_an_operator_of_2018_has_ended_has_ended(server: Server) -> None:
    """It wrote a phase and a state, and no conditions."""
    body = job(spec={"replicaSpecs": []})
    body["status"] = {"phase": "Done", "state": "Failed", "reason": "the master failed"}
    server.answers(f"{JOBS}/mnist", body)
    result = server.run("wait", "mnist")
    assert (result.exit_code, result.output) == (1, "tfjob.kubeflow.org/mnist Failed: the master failed\n")


@pytest.mark.parametrize(("verb", "told"), [("suspend", True), ("resume", False)])
def test_suspend_and_resume_patch_one_field(server: Server, verb: str, told: bool) -> None:
    spec = {"runPolicy": {"suspend": not told}, "tfReplicaSpecs": {}}
    server.answers(f"{JOBS}/mnist", job(spec=spec))
    server.answers(f"{JOBS}/other", job("other", spec={"runPolicy": {"suspend": told}}))
    result = server.run(verb, "mnist", "other")
    assert result.exit_code == 0
    patches = [json.loads(body) for method, _, _, body in server.asked if method == "PATCH"]
    assert patches == [{"spec": {"runPolicy": {"suspend": told}}}]
    assert result.output.splitlines()[0] == f"tfjob.kubeflow.org/mnist {'suspended' if told else 'resumed'}"


def test_of_several_jobs_each_is_tried_and_one_failure_is_exit_code_1(server: Server) -> None:
    server.answers(f"{JOBS}/done", job("done", "Succeeded"))
    server.answers(f"{JOBS}/alpha", job("alpha", spec=ALPHA))
    server.answers(f"{JOBS}/mnist", job())
    missing = {"message": 'tfjobs.kubeflow.org "gone" not found', "reason": "NotFound"}
    server.answers(f"{JOBS}/gone", missing, code=404)
    code, out, errors = outcome(server.run("suspend", "done", "alpha", "gone", "mnist"))
    assert (code, out) == (1, "tfjob.kubeflow.org/mnist suspended\n")
    assert errors.splitlines() == [
        "error: done has finished: Succeeded",
        "error: alpha is a v1alpha1 job, which cannot be suspended",
        'Error from server (NotFound): tfjobs.kubeflow.org "gone" not found',
    ]


NO_NAME = {
    "team-b/mnist": "error: 'team-b/mnist' is not a job name: for a job in the namespace team-b use -n team-b mnist",
    "pod/mnist": "error: 'pod/mnist' is not a job name: for a job in the namespace pod use -n pod mnist",
    "a/tfjob/mnist": "error: 'a/tfjob/mnist' is not a job name",
    "pods.v1.core/mnist": "error: 'pods.v1.core/mnist' is not a job name",
    "tfjob.example.com/mnist": "error: unknown API group 'example.com': TFJobs are of kubeflow.org or tensorflow.org",
    "tfjob/": "error: 'tfjob/' is not a job name",
    "": "error: '' is not a job name",
}
NAMING = [verb for verb in COMMANDS if "JOB" in argument_of(verb)]


@pytest.mark.parametrize("name", NO_NAME)
@pytest.mark.parametrize("verb", NAMING)
def test_a_name_that_is_not_of_a_job_changes_and_reads_none(server: Server, verb: str, name: str) -> None:
    """A part before the slash that was dropped would make it the job of this name in the current namespace."""
    server.answers(f"{JOBS}/mnist", job())
    server.answers(f"{JOBS}/", {"kind": "TFJobList", "items": []})
    more = {"scale": ["worker=4"], "exec": ["--", "true"]}.get(verb, [])
    code = 4 if verb in {"watch", "wait"} else 1
    assert outcome(server.run(verb, name, *more)) == (code, "", f"{NO_NAME[name]}\n")
    assert server.asked == []


@pytest.mark.parametrize("name", ["tfjob/mnist", "tfjobs/mnist", "TFJob/mnist", "tfjobs.kubeflow.org/mnist"])
def test_a_name_may_have_its_kind_in_front_as_kubectl_prints_it(server: Server, name: str) -> None:
    server.answers(f"{JOBS}/mnist", job())
    assert server.run("suspend", name).output == "tfjob.kubeflow.org/mnist suspended\n"


QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"


def queued(server: Server, number: int, name: str = "d", *, suspend: bool = True) -> None:
    """Serve a job of a queue, and its Workload in one of its recorded states."""
    body = job(spec={"runPolicy": {"suspend": suspend}, "tfReplicaSpecs": {"Worker": ENTRY}})
    body["metadata"]["labels"] = QUEUE
    server.answers(f"{JOBS}/mnist", body)
    server.answers("/apis/kueue.x-k8s.io", {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}})
    found = [each.object for each in kueue("evictions") if f"tfjob-{name}-" in each.object["metadata"]["name"]][number]
    other = {"metadata": {"name": "x", "uid": "x"}}
    meta = {"name": "tfjob-mnist-1a2b3", "uid": "w1", "ownerReferences": [{"uid": body["metadata"]["uid"]}]}
    server.answers(WORKLOADS, {"metadata": {}, "items": [other, found | {"metadata": meta}]})


ACTIVE, PENDING, OFF, REJECTED = ("d", 1), ("h", 1), ("d", 4), ("c", -2)
PATCH = '-n team patch workloads.kueue.x-k8s.io tfjob-mnist-1a2b3 --type=merge \'--patch={"spec":{"active":%s}}\'\n'
UNDONE = {
    "suspend an admitted job": (
        "suspend mnist",
        ACTIVE,
        False,
        ("would resume it at once", "(Kueue gives its quota away before they end)", PATCH % "false"),
    ),
    "suspend a waiting job": ("suspend mnist", PENDING, True, ("resumes it when it is admitted", PATCH % "false")),
    "resume a waiting job": (
        "resume mnist",
        PENDING,
        True,
        ("ClusterQueue b-hold is inactive", "explain mnist -n team"),
    ),
    "resume a job that a user deactivated": ("resume mnist", OFF, True, ("is deactivated", PATCH % "true")),
    "resume a job that Kueue deactivated": (
        "resume mnist",
        REJECTED,
        True,
        ('"stub" (no room at all)', "-n team delete workloads.kueue.x-k8s.io tfjob-mnist-1a2b3\n"),
    ),
    "scale an admitted job": ("scale mnist worker=4", ACTIVE, False, ("delete all its pods and queue it again",)),
}


@pytest.mark.parametrize("case", UNDONE)
def test_what_kueue_would_undo_is_refused_with_what_to_do_instead(server: Server, case: str) -> None:
    words, (name, number), suspend, told = UNDONE[case]
    queued(server, number, name, suspend=suspend)
    result = server.run(*words.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: mnist not {words.split()[0].rstrip('e')}")
    assert all(text in result.stderr for text in told), result.stderr
    assert all(method == "GET" for method, *_ in server.asked)
    assert server.run(*words.split(), "--force").exit_code == 0


def test_what_kueue_would_not_undo_is_done(server: Server) -> None:
    """It takes the new size of a waiting job. Without a Workload, or without Kueue, nothing undoes anything."""
    queued(server, 1, "h")
    assert server.run("scale", "mnist", "worker=4").stdout == "tfjob.kubeflow.org/mnist scaled\n"
    queued(server, 4, "d")
    assert server.run("suspend", "mnist").stdout == "tfjob.kubeflow.org/mnist is already suspended\n"
    server.answers(WORKLOADS, {"metadata": {}, "items": []})
    assert server.run("resume", "mnist").stdout == "tfjob.kubeflow.org/mnist resumed\n"
    del server.responses["/apis/kueue.x-k8s.io"]
    assert server.run("resume", "mnist").stdout == "tfjob.kubeflow.org/mnist resumed\n"


def test_without_permission_to_read_workloads_a_queue_label_counts(server: Server) -> None:
    queued(server, 1, suspend=False)
    server.answers(WORKLOADS, {"reason": "Forbidden", "message": "no"}, code=403)
    result = server.run("suspend", "mnist")
    assert result.exit_code == 1
    assert "workloads.kueue.x-k8s.io WORKLOAD " in result.stderr


def test_restart_of_a_waiting_job_names_its_queue(server: Server) -> None:
    """`resume`, which helps after `suspend`, would be undone."""
    queued(server, 1, "h")
    explain = f"kubectl tfjob {server.flags} explain mnist -n team"
    told = f"error: mnist is suspended by its queue and has no pods. Details: {explain}\n"
    assert outcome(server.run("restart", "mnist")) == (1, "", told)


@pytest.mark.parametrize("words", ["suspend mnist", "resume mnist", "scale mnist worker=4", "restart mnist"])
def test_a_job_of_another_controller_is_not_changed(server: Server, words: str) -> None:
    policy = {"managedBy": "kueue.x-k8s.io/multikueue", "suspend": words.startswith("resume")}
    server.answers(f"{JOBS}/mnist", job(spec={"runPolicy": policy, "tfReplicaSpecs": {"Worker": ENTRY}}))
    result = server.run(*words.split())
    assert result.exit_code == 1
    told = "error: mnist is managed by kueue.x-k8s.io/multikueue, and the operator ignores it"
    assert result.stderr.startswith(told)
    assert all(method == "GET" for method, *_ in server.asked)


@pytest.mark.parametrize("words", ["suspend mnist", "scale mnist worker=4"])
def test_a_copy_of_multikueue_is_changed_in_its_cluster(server: Server, words: str) -> None:
    body = job(spec={"tfReplicaSpecs": {"Worker": ENTRY}})
    body["metadata"]["labels"] = {"kueue.x-k8s.io/multikueue-origin": "hub"}
    server.answers(f"{JOBS}/mnist", body)
    result = server.run(*words.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is a copy of a job in the cluster hub, made by MultiKueue: change that job. To " in result.stderr
    assert server.run(*words.split(), "--force").exit_code == 0


def test_scale_keeps_the_letter_case_of_the_job(server: Server) -> None:
    """`WORKER` in the job stays `WORKER`: a second entry would be a mistake."""
    server.answers(f"{JOBS}/mnist", job(spec={"tfReplicaSpecs": {"WORKER": ENTRY, "PS": ENTRY}}))
    assert server.run("scale", "mnist", "worker=4", "ps=2").output == "tfjob.kubeflow.org/mnist scaled\n"
    replicas = {"WORKER": {"replicas": 4}, "PS": {"replicas": 2}}
    assert json.loads(server.asked[1][3]) == {"spec": {"tfReplicaSpecs": replicas}}


@pytest.mark.parametrize(
    ("given", "sizes", "is_warned"),
    [
        ({}, "worker=4", True),
        ({}, "worker=2", False),
        ({}, "evaluator=2", False),
        ({"enableDynamicWorker": True}, "worker=4", False),
        ({"enableDynamicWorker": True}, "ps=2", True),
        ({"runPolicy": {"suspend": True}}, "worker=4", False),
    ],
)
def test_scale_warns_that_running_replicas_keep_their_tf_config(
    server: Server, given: dict[str, Any], sizes: str, is_warned: bool
) -> None:
    entries = {"Worker": ENTRY | {"replicas": 2}, "PS": ENTRY, "Evaluator": ENTRY}
    body = job(
        "mnist", "Running", spec={"tfReplicaSpecs": entries, **given}, status={"startTime": "2026-11-22T12:00:00Z"}
    )
    server.answers(f"{JOBS}/mnist", body)
    told = "warning: running replicas keep the old sizes in TF_CONFIG; restart all with kubectl tfjob "
    result = server.run("scale", "mnist", sizes)
    assert result.stdout == "tfjob.kubeflow.org/mnist scaled\n"
    assert (result.stderr.startswith(told), bool(result.stderr)) == (is_warned, is_warned)


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_spellings_of_a_type_scale_changes_the_one_that_counts(server: Server, order: int) -> None:
    """kubectl scale has added `Worker` beside `worker`."""
    entries = [("worker", ENTRY), ("Worker", {"replicas": 2})][::order]
    server.answers(f"{JOBS}/mnist", job(spec={"tfReplicaSpecs": dict(entries)}))
    assert server.run("scale", "mnist", "worker=4").output == "tfjob.kubeflow.org/mnist scaled\n"
    assert json.loads(server.asked[1][3]) == {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4}}}}


@pytest.mark.parametrize("verb", ["status", "explain", "logs"])
def test_a_job_whose_name_is_no_label_can_be_inspected(server: Server, verb: str) -> None:
    """The operator fails it. A selector with the name would be refused by the API server."""
    body = job("m" * 64, "Failed")
    server.answers(f"{JOBS}/{'m' * 64}", body)
    server.answers("/api/v1/namespaces/team/pods", {"metadata": {}, "items": []})
    server.run(verb, "m" * 64)
    selectors = [path for _, path, _, _ in server.asked if "/pods?" in path]
    assert selectors
    assert not any("m" * 64 in path for path in selectors)


@pytest.mark.parametrize(
    ("size", "conditions", "code", "says"),
    [
        ("worker", (), 2, "'worker' is not of the form TYPE=COUNT"),
        ("worker=-1", (), 2, "is not of the form TYPE=COUNT"),
        ("worker=" + "9" * 5000, (), 2, "too many replicas: worker=999999999..."),
        ("ps=1", (), 1, "error: mnist has no replicas of type ps: it has Chief, Worker"),
        (
            "chief=2",
            (),
            1,
            "error: job not scaled: spec.tfReplicaSpecs.Chief.replicas: must be less than or equal to 1",
        ),
        ("worker=20000", (), 1, "error: job not scaled: spec.tfReplicaSpecs"),
        ("worker=2", ("Failed",), 1, "error: mnist has finished: Failed"),
    ],
)
def test_scale_refuses_what_makes_no_sense_or_the_operator_would_not_follow(
    server: Server, size: str, conditions: tuple[str, ...], code: int, says: str
) -> None:
    """The job would be on hold, or nothing would happen."""
    server.answers(
        f"{JOBS}/mnist", job("mnist", *conditions, spec={"tfReplicaSpecs": {"Chief": ENTRY, "Worker": ENTRY}})
    )
    result = server.run("scale", "mnist", size)
    assert (result.exit_code, says in result.stderr) == (code, True), result.stderr
    assert all(method == "GET" for method, *_ in server.asked)


def test_a_resumed_job_that_is_also_on_hold_is_reported(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Suspended", "Held", spec={"runPolicy": {"suspend": True}}))
    on_hold = "warning: mnist is on hold: is Held\n"
    assert outcome(server.run("resume", "mnist")) == (0, "tfjob.kubeflow.org/mnist resumed\n", on_hold)


@pytest.mark.parametrize("verb", ["submit", "exec"])
def test_what_follows_two_dashes_is_never_the_name(server: Server, verb: str) -> None:
    """A forgotten name would create a job called python."""
    more = ["--image=x"] if verb == "submit" else []
    result = server.run(verb, *more, "--", "python", "/train.py", "--epochs=1")
    assert (result.exit_code, "Missing argument" in result.output) == (2, True)
    result = server.run(verb, *more, "sleep", "5")
    assert (result.exit_code, "unexpected '5': put the command behind --" in result.output) == (2, True)
    assert server.asked == []


@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_wait_exits_as_the_job_ends(server: Server, condition: str, code: int) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    event = {"type": "MODIFIED", "object": job("mnist", "Running", condition)}
    server.answers(JOBS, json.dumps(event).encode() + b"\n")
    result = server.run("wait", "mnist")
    assert (result.exit_code, result.output) == (code, f"tfjob.kubeflow.org/mnist {condition}: is {condition}\n")
    assert "fieldSelector=metadata.name%3Dmnist&resourceVersion=7" in server.asked[1][1]


def test_wait_tells_a_job_that_was_deleted_from_its_namesake(server: Server, mocker: MockerFixture) -> None:
    mocker.patch("time.sleep")
    server.answers(f"{JOBS}/mnist", job())
    server.answers(JOBS, json.dumps({"type": "DELETED", "object": job()}).encode() + b"\n")
    assert server.run("wait", "mnist").exit_code == 3
    server.answers(f"{JOBS}/mnist", job(), job(uid="u2"))
    server.answers(JOBS, b"")
    assert server.run("wait", "mnist").exit_code == 3


def test_wait_reads_again_when_a_watch_ends_and_gives_up_in_time(server: Server, pauses: list[float]) -> None:
    server.answers(f"{JOBS}/mnist", job())
    server.answers(JOBS, json.dumps({"type": "ERROR", "object": {}}).encode() + b"\n")
    result = server.run("wait", "mnist", "--timeout=10s")
    assert (result.exit_code, result.stderr) == (124, "timed out waiting for tfjob.kubeflow.org/mnist\n")
    assert len([path for _, path, *_ in server.asked if path.endswith("/mnist")]) > 1
    assert sum(pauses) == pytest.approx(10, abs=0.5)


def test_no_option_is_suggested_that_has_little_more_than_dashes_in_common() -> None:
    assert run("list", "--nope").stderr.endswith("\nError: No such option '--nope'.\n")


def status(reason: str) -> bytes:
    return json.dumps({"message": "no", "reason": reason}).encode()


OUTAGE = [(0, b""), (500, b"{}"), (502, b"<html>"), (429, status("TooManyRequests")), (404, b"404 page not found")]
"""Neither of them says anything about a job: a lost connection, proxies, and an API server that starts."""


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_wait_goes_on_after_any_outage_once_the_job_was_read(server: Server, condition: str, code: int) -> None:
    first, last = (json.dumps(job("mnist", each)).encode() for each in ("Running", condition))
    server.responses[f"{JOBS}/mnist"] = [(200, first), *OUTAGE, (200, first), *OUTAGE, (200, last)]
    server.responses[JOBS] = [(503, b"{}"), (200, b"")]
    result = server.run("wait", "mnist", "--timeout=10m")
    assert (result.exit_code, result.stdout) == (code, f"tfjob.kubeflow.org/mnist {condition}: is {condition}\n")
    warnings = result.stderr.splitlines()
    assert len([line for line in warnings if line.startswith("warning: cannot read the job, retrying: ")]) == 2
    assert len(warnings) == 2


def test_wait_retries_less_and_less_often_until_its_time_is_over(server: Server, pauses: list[float]) -> None:
    """Then the state is unknown, although the job was running when it was last read."""
    server.responses[f"{JOBS}/mnist"] = [(200, json.dumps(job()).encode()), (500, b"{}")]
    server.answers(JOBS, b"")
    assert server.run("wait", "mnist", "--timeout=100s").exit_code == 4
    assert pauses[:-1] == [1, 1, 2, 4, 8, 16, 30, 30]
    assert sum(pauses) == pytest.approx(100, abs=0.5)


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(
    ("first", "then", "printed"),
    [
        ((404, status("NotFound")), (), "Error from server (NotFound): no\n"),
        ((403, status("Forbidden")), (), "Error from server (Forbidden): no\n"),
        ((500, b"{}"), (), "Error from server: 500 Internal Server Error: {}\n"),
        ((0, b""), (), "error: connection to "),
        ((200, b"{"), (), "error: the response of "),
        ((200, json.dumps(job()).encode()), (403, status("Forbidden")), "Error from server (Forbidden): no\n"),
        ((200, json.dumps(job()).encode()), (401, status("Unauthorized")), "Error from server (Unauthorized): no: "),
    ],
)
@pytest.mark.parametrize("verb", ["wait", "watch"])
def test_a_job_whose_state_is_unknown_has_neither_failed_nor_timed_out(
    server: Server, verb: str, first: Any, then: Any, printed: str
) -> None:
    """Scripts run `wait || submit`."""
    server.responses[f"{JOBS}/mnist"] = [first, *([then] if then else [])]
    server.answers("/apis/kubeflow.org/v1", {"resources": [{"name": "tfjobs"}]})
    server.answers(JOBS, b"")
    result = server.run(verb, "mnist")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith(printed)


@pytest.mark.usefixtures("pauses")
def test_a_job_of_the_first_api_is_not_deleted_when_its_api_is_away(server: Server) -> None:
    """The other API does not have it, and says so."""
    path = "/apis/tensorflow.org/v1alpha1/namespaces/team/tfjobs"
    first, last = (job("mnist", *each) | {"apiVersion": "tensorflow.org/v1alpha1"} for each in ((), ("Succeeded",)))
    server.answers(f"{JOBS}/mnist", {"message": "no", "reason": "NotFound"}, code=404)
    server.responses[f"{path}/mnist"] = [
        (200, json.dumps(first).encode()), (503, b"{}"), (200, json.dumps(last).encode())
    ]  # fmt: skip
    server.answers(path, b"")
    assert server.run("wait", "mnist").exit_code == 0
    server.answers(f"{path}/mnist", {}, code=503)
    assert server.run("suspend", "mnist").stderr == "Error from server: 503 Service Unavailable: {}\n"


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90.0), ("1h30m", 5400.0), ("7d", 604_800.0)])
def test_times_are_written_as_for_kubectl(given: str, seconds: float) -> None:
    assert durations.seconds_of(given) == seconds


AGES = {
    -5: "0s", 119: "119s", 120: "2m", 310: "5m10s", 3600: "1h", 3 * 3600 + 780: "3h13m", 8 * 3600: "8h", 47 * 3600: "47h",
    49 * 3600: "2d1h", 9 * 86_400: "9d", 3 * 365 * 86_400: "3y", 9 * 365 * 86_400 + 86_400: "9y",
}  # fmt: skip


@pytest.mark.parametrize(("seconds", "printed"), AGES.items())
def test_ages_are_printed_as_by_kubectl(seconds: float, printed: str) -> None:
    """But `1h30m` where kubectl has `90m`."""
    assert durations.duration(seconds) == printed


FORBIDDEN = {"message": "no", "reason": "Forbidden"}
DEPLOYMENTS, LEASES = INSTALLED, "/apis/coordination.k8s.io/v1/leases"
BOUND = {"subjects": [{"kind": "ServiceAccount", "name": "tf-job-operator", "namespace": "kubeflow"}]}
"""The ClusterRoleBinding of the operator."""


def test_version_prints_what_is_there(server: Server) -> None:
    server.answers("/version", {"gitVersion": "v1.36.3"})
    server.answers("/apis/kubeflow.org", {"versions": [{"version": "v1"}, {"version": "v1beta2"}]})
    deployment = operator_deployment("kubeflow", replicas=2, readyReplicas=0, updatedReplicas=1)
    server.answers(DEPLOYMENTS, {"items": [deployment]})
    server.answers(version_.BINDING, BOUND)
    lines = server.run("version").output.splitlines()
    assert [line[15:] for line in lines[1:]] == [
        "v1.36.3",
        "v1, v1beta2",
        "tf-operator:1 (Deployment kubeflow/tf-job-operator, 0 of 2 ready)",
    ]
    found = json.loads(server.run("version", "-o", "json").output)
    assert "component%21%3Dpage" in "".join(path for _, path, _, _ in server.asked), "the page is no operator"
    assert (found["Kubernetes"], found["kubeflow.org"]) == ("v1.36.3", ["v1", "v1beta2"])
    assert run("version", "--client").output == lines[0] + "\n"
    assert run("version", "--client", "-o", "yaml").output.startswith("kubectl-tfjob: ")


def test_version_names_a_training_operator(server: Server) -> None:
    """Whose Deployment is proven by its ClusterRoleBinding, as that of this operator."""
    assert "training-operator" not in server.run("version").output
    running = training_operator.deployment(image="training:v1") | {"status": {"readyReplicas": 2}}
    other = training_operator.deployment("team", image="x y", args=["--enable-scheme=pytorchjob"])
    server.answers(PEERS, {"items": [running, other]})
    server.answers(version_.PEER_BINDING, training_operator.binding())
    name, _, shown = server.run("version").output.splitlines()[-1].partition(" ")
    assert name == "training-operator"
    assert shown.split("; ") == [
        "training:v1 (Deployment kubeflow/training-operator, 2 of 2 ready)",
        '"x y" (claims to be training-operator: Deployment team/training-operator, 0 of 2 ready, does not serve TFJobs)',
    ]
    assert json.loads(server.run("version", "-o", "json").output)["training-operator"] == shown


def test_version_says_first_that_two_operators_serve_the_same_jobs(server: Server) -> None:
    """Not of what only claims to be one, if that can be read; and not of a namespace that was moved alone."""
    own = training_operator.installed("kubeflow")
    alone = training_operator.installed("team", "--namespace=$(KUBEFLOW_NAMESPACE)")
    peer = training_operator.deployment(image="training:v1")
    bound, reader = training_operator.binding(), training_operator.binding(READER, READER)
    moved = [{"metadata": {"name": "team", "labels": {MOVED: "tfjob-operator"}}}]
    for ours, bindings, labelled, two_run in (
        (own, [bound], [], True),
        (own, None, [], True),
        (own, [], [], False),
        (alone, [reader, bound], moved, True),
        (alone, [reader], moved, False),
    ):
        server.answers(DEPLOYMENTS, {"items": [ours]})
        server.answers(training_operator.PEERS, {"items": [peer]})
        server.answers(training_operator.BINDINGS, {"items": bindings or []}, code=403 if bindings is None else 200)
        server.answers(version_.BINDING, BOUND)
        server.answers(f"/api/v1/namespaces?{urlencode({'labelSelector': MOVED})}", {"items": labelled})
        lines = server.run("version").output.splitlines()
        assert lines[0].startswith("warning ") is two_run
        assert ("both serve the TFJobs" in lines[0]) is two_run


def test_a_version_without_tfjobs_is_not_named(server: Server) -> None:
    """The CRD of PyTorchJobs is in the same group."""
    server.answers("/apis/kubeflow.org", {"versions": [{"version": "v1"}, {"version": "v1beta2"}]})
    server.answers("/apis/kubeflow.org/v1", {"resources": [{"name": "pytorchjobs"}]})
    server.answers("/apis/kubeflow.org/v1beta2", {"resources": [{"name": "tfjobs"}, {"name": "tfjobs/status"}]})
    assert json.loads(server.run("version", "-o", "json").output)["kubeflow.org"] == ["v1beta2"]
    server.answers("/apis/kubeflow.org/v1beta2", {"resources": []})
    shown = json.loads(server.run("version", "-o", "json").output)["kubeflow.org"]
    assert shown == "not served: the CRD is not installed"


@pytest.mark.parametrize("wanted", [1, 2])
@pytest.mark.parametrize(("code", "runs"), [(200, "tf-operator:1"), (403, "unknown image")])
def test_version_of_a_stuck_upgrade_is_that_of_the_ready_pods(
    server: Server, wanted: int, code: int, runs: str
) -> None:
    counts = {"replicas": wanted + 1, "readyReplicas": wanted, "updatedReplicas": 1}
    server.answers(
        DEPLOYMENTS, {"items": [operator_deployment("kubeflow", image="tf-operator:9", wanted=wanted, **counts)]}
    )
    server.answers(version_.BINDING, BOUND)
    phases = {1: "Running", 9: "Pending"}
    pods = [
        pod(f"tf-operator-{tag}", phases[tag], conditions=[{"type": "Ready", "status": str(tag == 1)}])
        | {"spec": {"containers": [{"image": f"tf-operator:{tag}"}]}}
        for tag in (1, 1, 9)
    ]
    server.answers("/api/v1/namespaces/kubeflow/pods", {"items": pods} if code == 200 else FORBIDDEN, code=code)
    shown = server.run("version").output.splitlines()[-1][15:]
    told = f"{wanted} of {wanted} ready; update to tf-operator:9 is not ready: 1 of {wanted} updated"
    assert shown == f"{runs} (Deployment kubeflow/tf-job-operator, {told})"


def test_who_has_rights_in_one_namespace_sees_the_operator_of_that_one(server: Server) -> None:
    for path in (DEPLOYMENTS, LEASES):
        server.answers(path, FORBIDDEN, code=403)
    found = operator_deployment("team", "--namespace=$(KUBEFLOW_NAMESPACE)", wanted=0)
    server.answers("/apis/apps/v1/namespaces/team/deployments", {"items": [found]})
    shown = server.run("version").output.splitlines()[-1][15:]
    assert shown == "tf-operator:1 (Deployment team/tf-job-operator, 0 of 0 ready, serves team only)"


@pytest.mark.parametrize(
    ("deployments", "leases", "shown"),
    [
        ([], (3, "laptop_1"), "laptop_1 (Lease kubeflow/tf-operator, renewed 3s ago)"),
        (None, (3, "laptop_1"), "laptop_1 (Lease kubeflow/tf-operator, renewed 3s ago)"),
        ([], (60, "laptop_1"), "not running (Lease kubeflow/tf-operator, renewed 60s ago)"),
        ([], (3, ""), "not running (Lease kubeflow/tf-operator, renewed 3s ago)"),
        ([], (), "not found: no Deployment and no Lease tf-operator"),
        ([], None, "unknown (no permission)"),
        (None, (), "unknown (no permission)"),
    ],
)
def test_an_operator_without_a_deployment_is_found_by_its_lease(
    server: Server, deployments: Any, leases: Any, shown: str
) -> None:
    """It runs outside the cluster, or a user may not list Deployments."""
    held = leases
    if leases:
        renewed_s, holder = leases
        renewed = (datetime.now(UTC) - timedelta(seconds=renewed_s)).isoformat()
        held = [operator_lease("kubeflow", renewed, holder)]
    server.answers(version_.BINDING, BOUND)
    for path, items in ((DEPLOYMENTS, deployments), (LEASES, held)):
        server.answers(path, FORBIDDEN if items is None else {"items": items}, code=403 if items is None else 200)
    shown_now = server.run("version").output.splitlines()[-1][15:]
    assert re.sub(r"\d+s", "Ns", shown_now) == re.sub(r"\d+s", "Ns", shown)


@pytest.mark.parametrize("binding", [BOUND, None])
def test_who_has_the_operators_label_in_another_namespace_only_claims_to_be_it(server: Server, binding: Any) -> None:
    """A tenant may create such a Deployment or Lease; the image of one cannot imitate the line of the operator."""
    server.answers(version_.BINDING, binding or FORBIDDEN, code=200 if binding else 403)
    real, evil = "tf-operator:1 (Deployment kubeflow/tf-job-operator, 0 of 2 ready)", "claims to be the operator: "
    fake = operator_deployment("team", image=f"{real}; x\x1b[2J")
    server.answers(DEPLOYMENTS, {"items": [operator_deployment("kubeflow"), fake]})
    shown = server.run("version").output.splitlines()[-1][15:]
    assert shown.partition("; ")[0] == (real if binding else real.replace("(", f"({evil}"))
    assert shown.partition("; ")[2] == f'"{real}; x\\u001b[2J" ({evil}Deployment team/tf-job-operator, 0 of 2 ready)'
    server.answers(DEPLOYMENTS, {"items": []})
    server.answers(LEASES, {"items": [operator_lease("team", datetime.now(UTC).isoformat(), "x); y")]})
    shown = server.run("version").output.splitlines()[-1][15:]
    assert re.sub(r"\d+s", "Ns", shown) == f'"x); y" ({evil}Lease team/tf-operator, renewed Ns ago)'


def test_who_may_read_nothing_still_gets_the_version(server: Server) -> None:
    for path in ("/version", "/apis/kubeflow.org", "/apis/tensorflow.org", DEPLOYMENTS, LEASES):
        server.answers(path, FORBIDDEN, code=403)
    result = server.run("version")
    assert result.exit_code == 0
    assert [line[15:] for line in result.output.splitlines()[1:]] == ["unknown (no permission)"] * 3
