"""The steps of `kubectl tfjob migrate --plan`, there and back, for clusters that differ."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from unit.cli.conftest import Server, items, outcome
from unit.cli.training_operator import (
    CRD,
    DENIED,
    PUBLIC,
    cluster,
    deployment,
    installed,
    webhook,
    with_policy,
)


def plan(server: Server) -> list[str]:
    """Return the lines of the plan, which must succeed, without the options for this cluster."""
    result = server.run("migrate", "--plan")
    assert result.exit_code == 0, result.output
    return result.stdout.replace(f" {server.flags}", "").splitlines()


def commands(lines: list[str]) -> list[str]:
    """Return the steps that change or ask something, without the functions around them."""
    return [line for line in lines if line and line not in AROUND and not line.startswith("#")]


def there(lines: list[str]) -> list[str]:
    """Return the lines before the way back."""
    return lines[: lines.index("back() (")]


def patch_in(line: str) -> Any:
    """Return the patch of a `kubectl patch`."""
    return json.loads(next(word for word in shlex.split(line) if word.startswith("--patch=")).removeprefix("--patch="))


AROUND = ("move() (", "back() (", "set -e", ")", '"${1:-move}" "${2-}"')
RECORD = "tfjob.kubeflow.org/before-migration"
REMOVE = (
    "kubectl patch validatingwebhookconfiguration validator.training-operator.kubeflow.org --type=strategic "
    """'--patch={"webhooks": [{"$patch": "delete", "name": "validator.tfjob.training-operator.kubeflow.org"}]}'"""
)
RESTORE = (
    "kubectl patch validatingwebhookconfiguration validator.training-operator.kubeflow.org --type=strategic "
    '--patch="$(cat webhook.json)"'
)


def test_the_plan_removes_the_webhook_stops_training_operator_installs_checks_and_goes_back(server: Server) -> None:
    cluster(server, PUBLIC["tfjob-simple"])
    lines = plan(server)
    assert "# 1 unfinished TFJob: kubectl tfjob migrate --check -A lists what changes for them." in lines
    assert lines[3].endswith("deletes fields of all jobs for good: keep that of tfjob-operator.")
    there_is, save, remove, record, stop, wait, apply, rollout, seen, *back = commands(lines)
    assert there_is.startswith("[ -r install-kubeflow.yaml ] || ")
    assert save.startswith("[ -e webhook.json ] || { { echo ")
    assert f" {REMOVE}; else " in remove
    assert record == (
        f"kubectl -n kubeflow annotate deployment/training-operator '{RECORD}="
        """{"command": ["/manager"], "args": null, "replicas": 2}' --overwrite"""
    )
    assert stop == "kubectl -n kubeflow scale deployment/training-operator --replicas=0"
    assert " || kubectl -n kubeflow wait pod --for=delete --selector=control-plane=kubeflow-training-operator" in wait
    assert apply == "kubectl apply --server-side --force-conflicts -f install-kubeflow.yaml"
    assert rollout == "kubectl -n kubeflow rollout status deployment/tf-job-operator --timeout=3m"
    assert seen.startswith("kubectl get tfjobs --all-namespaces -o custom-columns=")
    has_file, none, unsupported, finished, held, refused, stop, wait, start, forget, rollout, restore = back
    assert has_file.startswith("[ -r webhook.json ] || { echo 'error: webhook.json, which step 1 saves, is not in this")
    assert stop.startswith(
        "if installed=$(kubectl -n kubeflow get deployment/tf-job-operator --ignore-not-found -o name);"
    )
    assert forget == f"kubectl -n kubeflow annotate deployment/training-operator {RECORD}-"
    assert none == "left="
    assert unsupported.startswith("if jobs=$(kubectl get tfjobs --all-namespaces -o 'go-template={{range .items}}")
    assert "finishedIndices" in finished
    assert 'eq .type "Held"' in held
    assert refused.startswith('[ -z "${left-}" ] || [ "${1-}" = anyway ] || ')
    assert "|| kubectl -n kubeflow scale deployment/tf-job-operator --replicas=0; else" in stop
    assert "--selector=name=tf-job-operator" in wait
    assert start == "kubectl -n kubeflow scale deployment/training-operator --replicas=2"
    assert rollout == "kubectl -n kubeflow rollout status deployment/training-operator --timeout=3m"
    assert restore == RESTORE


def executed(lines: list[str], folder: Path, kubectl: str) -> tuple[bool, list[str]]:
    """Execute lines with a script as kubectl. Return True if all succeed, and the arguments of its calls."""
    folder.mkdir(exist_ok=True)
    program, calls = folder / "kubectl", folder / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\n{kubectl}\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=folder, env=environment, check=False, timeout=60)
    return done.returncode == 0, calls.read_text().splitlines() if calls.exists() else []


ANSWERS = r"""
printf '%s\n' "$*" >> calls
if [ "$*" = "$FAILING" ] && ! [ -e failed ]; then touch failed; exit 1; fi
case "$*" in
*" impersonate "*) echo yes ;;
*" can-i "*) echo no; exit 1 ;;
*"apply -f -") [ -n "$(cat)" ] ;;
*webhooks*) echo validator.tfjob.training-operator.kubeflow.org ;;
*" -o yaml") echo kind: Binding ;;
*"get deployment/tf-job-operator "*) echo deployment.apps/tf-job-operator ;;
*status.phase*) echo a b ;;
*"get namespaces "*tfjob-operator" -o name") ;;
*"$HARMED"*) [ -z "$HARMED" ] || echo team/harmed ;;
esac
"""
"""A cluster in which everything succeeds, except the first call with the arguments `$FAILING`.

A list whose template has `$HARMED` in it has a job.
"""


class Shells:
    """Runs a whole plan in a folder of its own with a script as kubectl."""

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self.folder = folder
        self._lines = lines
        self.calls: list[str] = []
        self.out = self.err = ""
        program = folder / "bin" / "kubectl"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{ANSWERS}")
        program.chmod(0o755)
        (folder / "plan.sh").write_text("".join(f"{line}\n" for line in lines))

    def run(self, shell: str, *way: str, failing: str = "", harmed: str = "") -> int:
        """Run the plan as a file, or paste it as a whole into an interactive shell. Return the exit code."""
        for each in ("calls", "failed", "webhook.json", "webhook.json.new"):
            (self.folder / each).unlink(missing_ok=True)
        if "back" in way:
            (self.folder / "webhook.json").write_text("{}")
        for name in ("install-kubeflow.yaml", "install-namespaced.yaml"):
            (self.folder / name).write_text("args:\n  - --monitoring-port=8443\n")
        pasted = "\n".join([*(self._lines[:-1] if way else self._lines), " ".join(way), "echo code $?", ""])
        command, text = (["bash", "--norc", "-i"], pasted) if shell == "pasted" else ([shell, "plan.sh", *way], None)
        environment = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAILING": failing,
            "HARMED": harmed,
        }
        done = subprocess.run(
            command, input=text, cwd=self.folder, env=environment, check=False, timeout=60, text=True, capture_output=True,
            start_new_session=True,
        )  # fmt: skip
        calls = self.folder / "calls"
        self.calls = calls.read_text().splitlines() if calls.exists() else []
        self.out, self.err = done.stdout, done.stderr
        if shell != "pasted":
            return done.returncode
        (code,) = re.findall(r"^code (\d+)$", done.stdout, re.MULTILINE)[-1:]  # the shell is still there
        return int(code)


@pytest.mark.parametrize("options", [(), ("-n", "team")])
@pytest.mark.parametrize("shell", ["bash", "sh", "pasted"])
@pytest.mark.parametrize("way", [(), ("back",)])
def test_a_plan_that_runs_as_a_whole_ends_at_the_first_error(
    server: Server, tmp_path: Path, options: tuple[str, ...], shell: str, way: tuple[str, ...]
) -> None:
    """Each command fails in turn. Only waits continue, and the way there does not go back."""
    cluster(server, PUBLIC["replica-restart-policy-exitcode"])
    shown = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "")
    script = Shells(tmp_path, shown.splitlines())
    assert script.run(shell, *way) == 0
    all_calls = script.calls
    assert ("-o custom-columns=" in all_calls[-1]) != bool(way)
    for failing in dict.fromkeys(all_calls):
        code = script.run(shell, *way, failing=failing)
        after = script.calls[script.calls.index(failing) + 1 :]
        if (
            " get pod " in failing
            or " wait pod " in failing
            or (" can-i " in failing and " impersonate " not in failing)
        ):
            assert code == 0, failing
        else:
            assert code != 0, failing
            # The other end of a pipe has started already.
            assert not after or (len(after) == 1 and re.search("--dry-run=client|^apply -f -$", after[0])), failing


@pytest.mark.parametrize("shell", ["bash", "sh", "pasted"])
@pytest.mark.parametrize("options", [(), ("-n", "team")])
def test_a_plan_whose_release_is_missing_changes_nothing(
    server: Server, tmp_path: Path, shell: str, options: tuple[str, ...]
) -> None:
    """It stopped training-operator before it noticed, and no operator was left."""
    gang = deployment(args=["--gang-scheduler-name=volcano"])
    for jobs, deployments in (([PUBLIC["replica-restart-policy-exitcode"]], None), ([], None), ([], [gang])):
        cluster(server, *jobs, deployments=deployments)
        shown = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "")
        lines = (
            shown.splitlines()
            if deployments
            else re.sub("install-(kubeflow|namespaced)", "missing", shown).splitlines()
        )
        script = Shells(tmp_path / f"{len(jobs)}{bool(deployments)}", lines)
        assert script.run(shell) != 0
        missing = "manifests/addons/gang-scheduling/kustomization.yaml" if deployments else "missing.yaml"
        assert script.calls == []
        if shell != "pasted":
            assert script.err == f"error: {missing} of the release is not in this directory: download it\n"


@pytest.mark.parametrize("shell", ["bash", "sh", "pasted"])
@pytest.mark.parametrize("options", [(), ("-n", "team")])
def test_a_plan_that_ends_jobs_begins_only_if_told_so(
    server: Server, tmp_path: Path, shell: str, options: tuple[str, ...]
) -> None:
    """Whoever writes a plan to a file and runs it has not read its comments."""
    late = with_policy({"activeDeadlineSeconds": 60, "cleanPodPolicy": "None"}) | {"metadata": {"name": "late"}}
    late["status"] = {"conditions": [], "startTime": "2026-01-01T00:00:00Z"}
    cluster(server, late)
    shown = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "")
    script = Shells(tmp_path, shown.splitlines())
    assert script.run(shell) != 0
    assert script.calls == []
    if shell != "pasted":
        assert script.err.splitlines() == [
            "error: TFJobs would fail or be deleted at the move (1), such as:",
            "  deadline-exceeded: team/late",
            "To continue all the same: sh FILE move anyway",
        ]
    assert script.run(shell, "move", "anyway") == 0
    assert script.calls


@pytest.mark.parametrize("shell", ["bash", "sh", "pasted"])
@pytest.mark.parametrize("options", [(), ("-n", "team")])
@pytest.mark.parametrize(
    "harmed",
    [
        (".failurePolicy", "Jobs with failurePolicy, network or tensorBoard, which training-operator ignores:"),
        (".finishedIndices", "Jobs with finished replicas, which run again if their pods are gone:"),
        ('"Held"', "Jobs whose condition Held is True, which run on there, or FAIL if a replica has failed meanwhile:"),
    ],
)
def test_the_way_back_begins_only_if_told_so_while_a_job_would_be_harmed(
    server: Server, tmp_path: Path, shell: str, options: tuple[str, ...], harmed: tuple[str, str]
) -> None:
    """It went on at once, with three lists of names without headings."""
    cluster(server)
    shown = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "")
    script, (part, heading) = Shells(tmp_path, shown.splitlines()), harmed
    assert script.run(shell, "back", harmed=part) != 0
    assert f"{heading}\nteam/harmed\n" in script.out
    assert [call.split()[:2] for call in script.calls if "get tfjobs" not in call] == []
    if shell != "pasted":
        assert script.err.endswith("\nTo continue all the same: sh FILE back anyway\n")
    assert script.run(shell, "back", "anyway", harmed=part) == 0
    assert [call for call in script.calls if " scale " in call]


def test_a_crd_that_was_applied_client_side_is_not_too_large_for_the_plan(server: Server) -> None:
    """With the annotation, `kubectl apply --server-side` fails with `metadata.annotations: Too long`."""
    mark = "kubectl.kubernetes.io/last-applied-configuration"
    remove = f"kubectl annotate crd tfjobs.kubeflow.org {mark}-"
    for options in ((), ("-n", "team")):
        for annotations, needed in (({mark: "{}"}, True), ({"other": "x"}, False), (None, True)):
            cluster(server)
            server.answers(
                CRD,
                DENIED
                if annotations is None
                else {"metadata": {"name": "tfjobs.kubeflow.org", "annotations": annotations}},
                code=403 if annotations is None else 200,
            )
            shown = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "").splitlines()
            assert (remove in shown) is needed
            if needed:
                assert shown.index(remove) + 1 == next(
                    n for n, line in enumerate(shown) if line.startswith("kubectl apply --s")
                )


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_line_of_the_plan_that_fails_does_not_end_the_shell_into_which_it_is_pasted(
    server: Server, tmp_path: Path, shell: str
) -> None:
    """And the entry of the webhook is not removed by the next line."""
    cluster(server)
    lines = commands(plan(server))
    for line in lines:
        assert subprocess.run([shell, "-nc", line], check=False).returncode == 0, line
    script = Shells(tmp_path, lines)
    saved = next(line for line in lines if "jsonpath={.webhooks" in line)
    asked = shlex.split(saved.partition("; kubectl ")[2].partition(";")[0])
    script.run("pasted", failing=" ".join(asked))
    assert script.calls[0] == " ".join(asked)
    assert not [call for call in script.calls if call.startswith("patch validatingwebhook") and "$patch" in call]


def test_the_webhook_entry_is_removed_only_when_it_is_saved(server: Server, tmp_path: Path) -> None:
    """An API server that did not answer left a file without the entry, which a repeated step took for the saved one."""
    cluster(server)
    _, save, remove, *_ = commands(plan(server))
    ok, calls = executed([save, remove], tmp_path / "down", "exit 1")
    assert (ok, [line.split()[0] for line in calls]) == (False, ["get"])
    entry = {"name": "validator.tfjob.training-operator.kubeflow.org"}
    ok, calls = executed([save, remove], tmp_path / "down", f"echo '{json.dumps(entry)}'")
    assert (ok, [line.split()[0] for line in calls]) == (True, ["get", "get", "patch"])
    assert json.loads((tmp_path / "down" / "webhook.json").read_text()) == {"webhooks": [entry]}


@pytest.mark.parametrize(
    ("kubectl", "ends"),
    [
        ('[ "$3" = get ]', True),  # kubectl 1.20 without pods
        ('[ "$3" = get ] && echo pod/a', False),
        ("exit 1", False),
        ("exit 0", True),
    ],
)
def test_a_wait_ends_when_no_pod_is_left(server: Server, tmp_path: Path, kubectl: str, ends: bool) -> None:
    cluster(server, moved=["team"])
    waits = [line for line in commands(plan(server)) if " wait pod " in line]
    assert len(waits) == 4
    assert [executed([each], tmp_path / "bin", kubectl)[0] for each in waits] == [ends] * 4


@pytest.mark.parametrize("options", [(), ("-n", "team")])
def test_the_plan_names_the_jobs_that_fail_or_end_at_the_move_before_the_first_step(
    server: Server, options: tuple[str, ...]
) -> None:
    """At most ten under each difference, with the command that lists all."""
    elastic = with_policy({"cleanPodPolicy": "None"}, replicas=2, restartPolicy="Never")
    elastic["spec"]["enableDynamicWorker"] = True
    elastic["status"] = {"conditions": [], "replicaStatuses": {"Worker": {"failed": 1}}}
    trial = PUBLIC["trial-q9d4z"]
    trials = [trial | {"metadata": trial["metadata"] | {"name": f"trial-{number:02}"}} for number in range(12)]
    kept = trial | {"metadata": trial["metadata"] | {"name": "kept"}}
    kept["spec"] = trial["spec"] | {"runPolicy": {"cleanPodPolicy": "None"}}
    late = with_policy({"activeDeadlineSeconds": 60}) | {"metadata": {"name": "late"}}
    late["status"] = {"conditions": [], "startTime": "2026-01-01T00:00:00Z"}
    ended = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    old = with_policy({"ttlSecondsAfterFinished": 60, "suspend": True}) | {"metadata": {"name": "old"}}
    old["status"] = {"conditions": [ended]}
    limited = with_policy({"backoffLimit": 3}, restartPolicy="OnFailure") | {"metadata": {"name": "limited"}}
    cluster(server, elastic, *trials, kept, late, old, limited)
    lines = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "").splitlines()
    head = lines[: next(number for number, line in enumerate(lines) if line.startswith("# 1. "))]
    start = next(number for number, line in enumerate(head) if "under fails-at-move" in line)
    scope = "-n team" if options else "-A"
    assert f"# 16 unfinished TFJobs: kubectl tfjob migrate --check {scope} lists what changes for them." in head
    assert head[start : start + 22] == [
        "# 1 TFJob under fails-at-move: each fails when tfjob-operator starts, unless its failed pods are deleted before.",
        "#   team/mnist",
        "# 1 TFJob under deadline-exceeded: each fails when tfjob-operator starts, unless activeDeadlineSeconds is raised.",
        "#   team/late",
        "# 1 TFJob under ttl-exceeded: each is deleted when tfjob-operator starts, unless ttlSecondsAfterFinished is removed.",
        "#   team/old",
        "# 12 TFJobs under sidecars: each ends at the move if tensorflow has ended, and loses its sidecars within 30s.",
        *(f"#   team/trial-{number:02}" for number in range(10)),
        f"#   and 2 more, as `sidecars`: kubectl tfjob migrate --check {scope} -o json",
        "# 1 TFJob under sidecars-kept: each ends at the move if tensorflow has ended. Its sidecars continue.",
        "#   team/kept",
        "# 1 TFJob under backoff-limit: each fails at the move if it was restarted in place more often than backoffLimit.",
        "#   team/limited",
    ]
    cluster(server, PUBLIC["mnist"])
    assert " each " not in "\n".join(line for line in plan(server) if " under " in line)


@pytest.mark.parametrize("options", [(), ("-n", "team")])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("[ $3 = get ]", (True, False)),  # step 3 was not executed
        ("[ $3 = get ] && echo deployment.apps/tf-job-operator; exit 0", (True, True)),
        ("exit 1", (False, False)),
    ],
)
def test_the_way_back_stops_this_operator_if_it_was_installed(
    server: Server, tmp_path: Path, options: tuple[str, ...], answer: str, expected: tuple[bool, bool]
) -> None:
    """Otherwise its first step would end with an error."""
    cluster(server)
    lines = server.run("migrate", "--plan", *options).stdout.replace(f" {server.flags}", "").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("# Back 2"))
    assert lines[start + 1].endswith("that has finished continue, and are deleted when tfjob-operator returns.")
    ok, calls = executed([lines[start + 2]], tmp_path / "bin", answer)
    assert (ok, "scale" in "".join(calls)) == expected


def test_a_plan_that_is_printed_after_the_move_does_not_say_that_jobs_change(server: Server) -> None:
    """Such as one for the way back. Before, with training-operator running, it does."""
    trial = PUBLIC["trial-q9d4z"]
    stopped = deployment()
    stopped["spec"]["replicas"] = 0
    served = "# 1 unfinished TFJob: tfjob-operator serves them already, so nothing changes for them."
    for found, ours, is_served in (
        (stopped, installed("kubeflow"), True),
        (deployment(), installed("kubeflow"), False),
        (stopped, installed("ml", "--namespace=ml"), False),
    ):
        cluster(server, trial, deployments=[found], ours=[ours])
        lines = plan(server)
        assert (served in lines) == is_served
        assert ("#   team/trial-q9d4z" in lines) != is_served


def test_every_command_of_the_plan_is_for_the_same_cluster_and_user(server: Server) -> None:
    cluster(server, PUBLIC["replica-restart-policy-exitcode"], pytorchjobs=items({"metadata": {}}))
    out = server.run("migrate", "--plan", "--context=here", "--as=admin").stdout
    found = [line.split("kubectl ")[1:] for line in out.splitlines() if "kubectl " in line]
    assert len(found) > 10
    for command in [each for line in found for each in line]:
        assert command.removeprefix("tfjob ").startswith(f"--context=here {server.flags} --as=admin ")


def test_training_operator_continues_with_other_kinds_that_have_jobs_and_goes_back_to_its_own_arguments(
    server: Server,
) -> None:
    """The container is found by its name: another one may precede it."""
    one = items({"metadata": {"name": "a"}})
    cluster(server, deployments=[deployment(args=["--zap-log-level=2"])], pytorchjobs=one, mpijobs=one)
    lines = plan(server)
    assert "# 2. Stop training-operator for TFJobs. It continues with mpijob, pytorchjob." in lines
    assert not [line for line in lines if "scale deployment/training-operator" in line]
    there, back = (patch_in(line) for line in lines if "patch deployment" in line)
    args = ["--zap-log-level=2", "--enable-scheme=mpijob", "--enable-scheme=pytorchjob"]
    assert there == {"spec": {"template": {"spec": {"containers": [{"name": "training-operator", "args": args}]}}}}
    assert back["spec"]["template"]["spec"]["containers"] == [
        {"name": "training-operator", "args": ["--zap-log-level=2"]}
    ]
    assert RESTORE in lines


def test_training_operator_that_continues_with_other_kinds_has_no_old_pod_left_before_the_next_step(
    server: Server, tmp_path: Path
) -> None:
    """`kubectl rollout status` does not wait for pods that terminate, which still serve TFJobs."""
    cluster(server, moved=["team"], pytorchjobs=items({"metadata": {"name": "bert"}}))
    lines = plan(server)
    (wait,) = [line for line in lines if line.startswith("until ")]
    place = lines.index(wait)
    assert lines[place - 2].startswith("kubectl -n kubeflow rollout status deployment/training-operator")
    assert place < next(
        number for number, line in enumerate(lines) if line.startswith("kubectl create clusterrolebinding")
    )
    assert "-o 'jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}'" in wait
    answers = "echo >> asked; case $(wc -l < asked) in 1) exit 1 ;; 2) echo old-pod ;; esac"
    assert executed([wait], tmp_path / "bin", answers)[0]
    assert len((tmp_path / "bin" / "asked").read_text().splitlines()) == 3


def test_the_plan_names_the_jobs_on_hold_before_the_first_step(server: Server) -> None:
    """Those that are invalid here, and those whose pods the API server has rejected since their last edit."""
    rejected = {
        "metadata": {"name": "rejected", "generation": 3},
        "status": {
            "observedGeneration": 3,
            "conditions": [{"type": "Held", "status": "True", "reason": "RefusedTFJobSpec", "message": "no volume"}],
        },
    }
    jobs = [PUBLIC["training"], PUBLIC["tfjob-simple"] | rejected]
    edited = {"name": "edited", "generation": 4}
    cluster(server, *jobs, jobs[1] | {"metadata": edited}, ours=[installed("kubeflow")])
    lines = plan(server)
    start = lines.index("# 2 TFJobs are on hold under tfjob-operator, and cannot finish until corrected. To show why:")
    assert lines[start + 1 : start + 3] == [
        "#   kubectl tfjob explain rejected -n team",
        "#   kubectl tfjob explain training -n team",
    ]
    assert start < next(number for number, line in enumerate(lines) if line.startswith("# 1. "))
    many = [PUBLIC["training"] | {"metadata": {"name": f"job-{number}"}} for number in range(12)]
    cluster(server, *many)
    lines = server.run("migrate", "--plan", "-n", "team").stdout.replace(f" {server.flags}", "").splitlines()
    assert len([line for line in lines if line.startswith("#   kubectl tfjob explain ")]) == 10
    assert "#   and 2 more, as `invalid`: kubectl tfjob migrate --check -n team -o json" in lines
    cluster(server, PUBLIC["tfjob-simple"])
    assert not [line for line in there(plan(server)) if "on hold" in line]


def test_a_deployment_without_arguments_has_none_again_after_the_way_back(server: Server) -> None:
    cluster(server, pytorchjobs=items({"metadata": {"name": "a"}}))
    there, back = (patch_in(line) for line in plan(server) if "patch deployment" in line)
    assert there["spec"]["template"]["spec"]["containers"][0]["args"] == ["--enable-scheme=pytorchjob"]
    assert back["spec"]["template"]["spec"]["containers"][0]["args"] is None


def test_kinds_that_are_set_already_are_kept_except_for_tfjob(server: Server) -> None:
    """Adding more would leave TFJobs enabled, and both operators would run them. Also if the flags are in the command."""
    args = ["--enable-scheme=TFJob", "--enable-scheme", "pytorchjob", "--leader-elect"]
    cluster(server, deployments=[deployment(args=args)])
    there, back = (patch_in(line) for line in plan(server) if "patch deployment" in line)
    assert there["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "--leader-elect",
        "--enable-scheme=pytorchjob",
    ]
    assert back["spec"]["template"]["spec"]["containers"][0]["args"] == args
    command = ["/manager", "--enable-scheme=tfjob", "--enable-scheme=mpijob"]
    cluster(server, deployments=[deployment(command=command)])
    there, back = (patch_in(line) for line in plan(server) if "patch deployment" in line)
    kept = {"name": "training-operator", "args": ["--enable-scheme=mpijob"], "command": ["/manager"]}
    assert there["spec"]["template"]["spec"]["containers"] == [kept]
    assert back["spec"]["template"]["spec"]["containers"] == [
        {"name": "training-operator", "args": None, "command": command}
    ]


def test_a_plan_that_serves_more_namespaces_than_training_operator_says_so(server: Server) -> None:
    cluster(server, deployments=[deployment(args=["--namespace=prod"])])
    only = "# training-operator serves only the namespace prod: tfjob-operator will serve all namespaces."
    assert only in plan(server)
    cluster(server)
    assert not [line for line in plan(server) if "all namespaces" in line and line.startswith("# ")]


def test_an_operator_that_serves_only_tfjobs_is_scaled_to_0(server: Server) -> None:
    cluster(server, deployments=[deployment(args=["--enable-scheme=tfjob"])], pytorchjobs=items({"metadata": {}}))
    lines = plan(server)
    assert "kubectl -n kubeflow scale deployment/training-operator --replicas=0" in lines
    assert not [line for line in lines if "enable-scheme" in line and " annotate " not in line]


def test_without_jobs_of_other_kinds_the_plan_shows_how_to_keep_training_operator_for_them(server: Server) -> None:
    cluster(server)
    (line,) = [line for line in plan(server) if "enable-scheme" in line]
    assert line.startswith("#    kubectl -n kubeflow patch deployment training-operator ")
    assert patch_in(line.removeprefix("#"))["spec"]["template"]["spec"]["containers"][0]["args"] == [
        f"--enable-scheme={kind}job" for kind in ("jax", "mpi", "paddle", "pytorch", "xgboost")
    ]


def test_without_a_webhook_for_tfjobs_none_is_changed(server: Server) -> None:
    """As with training-operator before 1.8."""
    cluster(server, webhooks=[webhook("tfjob", name="other", meta={"name": "other"})])
    lines = plan(server)
    entry = "validator.tfjob.training-operator.kubeflow.org"
    assert f"# 1. No webhook has the entry {entry}: nothing is to be removed." in lines
    assert not [line for line in commands(lines) if "webhook" in line]


def back_of(server: Server, found: dict[str, Any], **kinds: Any) -> list[str]:
    """Return step 3 of the way back, as printed when the entry for TFJobs has been removed from the webhook."""
    cluster(server, deployments=[found], webhooks=[webhook("pytorchjob")], **kinds)
    lines = plan(server)
    (start,) = (number for number, line in enumerate(lines) if line.startswith("# Back 3"))
    return lines[start : -lines[::-1].index(")") - 1]


@pytest.mark.parametrize("kinds", [{}, {"pytorchjobs": items({"metadata": {"name": "bert"}})}])
@pytest.mark.parametrize("replicas", [0, 2])
def test_a_way_back_that_is_printed_later_restores_what_the_first_plan_has_recorded(
    server: Server, kinds: dict[str, Any], replicas: int
) -> None:
    """After either variant of step 2."""
    cluster(server, deployments=[deployment(args=["--zap=1"])])
    (record,) = (line for line in plan(server) if " annotate " in line and line.endswith(" --overwrite"))
    key, _, value = shlex.split(record)[5].partition("=")
    args = ["--zap=1", "--enable-scheme=pytorchjob"]
    found = deployment(args=args, meta={"annotations": {key: value}})
    found["spec"]["replicas"] = replicas
    lines = back_of(server, found, **kinds)
    (patched,) = (patch_in(line) for line in lines if " patch deployment " in line)
    assert patched["spec"]["template"]["spec"]["containers"][0]["args"] == ["--zap=1"]
    scaled = "kubectl -n kubeflow scale deployment/training-operator --replicas=2"
    assert (scaled in lines) == (replicas == 0)
    assert lines[-2:] == [
        "#     The entry was removed before: webhook.json is the file that step 1 of the first plan has saved.",
        RESTORE,
    ]
    assert not [line for line in plan(server) if line.endswith(" --overwrite")]


def test_what_training_operator_has_while_it_serves_tfjobs_replaces_an_older_record(server: Server) -> None:
    old = deployment(
        args=["--new"], meta={"annotations": {RECORD: '{"command": [], "args": ["--old"], "replicas": 9}'}}
    )
    cluster(server, deployments=[old])
    (record,) = (line for line in plan(server) if line.endswith(" --overwrite"))
    assert '"args": ["--new"], "replicas": 2' in record
    assert not [line for line in plan(server) if "--replicas=9" in line]


@pytest.mark.parametrize("text", ["", "[", "[]", "9" * 5000])
def test_a_way_back_that_cannot_be_known_is_not_printed(server: Server, text: str) -> None:
    found = deployment(args=["--enable-scheme=pytorchjob"], meta={"annotations": {RECORD: text}})
    lines = back_of(server, found)
    assert lines[1].startswith("#     Its original arguments are not known")
    assert not [line for line in lines if " patch deployment " in line or " scale " in line]
    assert lines[-1] == RESTORE
    found = deployment()
    found["spec"]["replicas"] = 0
    lines = back_of(server, found)
    assert lines[1:3] == [
        "#     Its original number of replicas is not recorded; its manifests have 1.",
        "kubectl -n kubeflow scale deployment/training-operator --replicas=1",
    ]


def test_the_flags_of_the_plan_are_those_for_the_jobs_of_the_cluster(server: Server) -> None:
    """The flag for workers would also delete sidecars immediately, for which training-operator waits."""
    cluster(server, PUBLIC["mnist"])
    assert not [line for line in plan(server) if line.startswith("sed ")]
    cluster(server, PUBLIC["arena"], PUBLIC["replica-restart-policy-exitcode"])
    lines = plan(server)
    (sed,) = [line for line in lines if line.startswith("sed ")]
    assert re.findall(r"1(--[-=a-z0-9]+)", sed) == [
        "--retryable-exit-codes=128-255",
        "--restart-backoff=false",
        "--completion-grace-period=0",
    ]
    kept = "#    No flag keeps the behavior of these; see --check: clean-pod-policy (1 job), counters (2 jobs)"
    assert kept in lines
    cluster(server, PUBLIC["arena"], PUBLIC["trial-q9d4z"])
    lines = plan(server)
    assert not [line for line in lines if line.startswith("sed ")]
    assert [line for line in lines if line.startswith("#    No flag keeps") and "completion-grace (1 job)" in line]


def flags_of(lines: list[str]) -> list[str]:
    """Return the flags that the plan adds."""
    (sed,) = [line for line in lines if line.startswith("sed -i ")]
    return re.findall(r"1(--[-=.a-z0-9]+)", sed)


def test_flags_that_are_added_again_are_not_doubled(server: Server, tmp_path: Path) -> None:
    """A step that is repeated after an error. A flag of an earlier plan gets its new value."""
    cluster(server, PUBLIC["replica-restart-policy-exitcode"])
    (sed,) = [line for line in plan(server) if line.startswith("sed -i ")]
    file = tmp_path / "install-kubeflow.yaml"
    before = ["      args:", "        - --monitoring-port=8443", "        - --namespace=x"]
    file.write_text("\n".join([*before, "        - --restart-backoff=true", ""]))
    for _ in range(2):
        subprocess.run(["bash", "-euc", sed], cwd=tmp_path, check=True, timeout=60)
        added = ["        - --retryable-exit-codes=128-255", "        - --restart-backoff=false"]
        assert file.read_text().splitlines() == [*before[:2], *added, before[2]]


def test_the_flags_are_also_for_jobs_that_this_operator_serves_or_has_served(server: Server) -> None:
    """A plan after a way back, or for the rest of the namespaces, installs an operator that serves these jobs too."""
    seen = PUBLIC["replica-restart-policy-exitcode"] | {"status": {"observedGeneration": 1}}
    cluster(server, seen, ours=[installed("team", "--namespace=team")], moved=["team"])
    lines = plan(server)
    assert flags_of(lines) == ["--retryable-exit-codes=128-255", "--restart-backoff=false"]
    assert "# 1 unfinished TFJob: kubectl tfjob migrate --check -A lists what changes for them." in lines


def test_the_flags_of_installed_operators_are_carried_over(server: Server) -> None:
    """Except those of the manifests. A flag that a command line could misread is only named."""
    ours = [
        installed("ml", "--namespace=$(KUBEFLOW_NAMESPACE)", "--restart-backoff", "false", "--fallback-to-logs=false"),
        installed("nlp", "--restart-backoff=true", "--apis=a|b"),
    ]
    cluster(server, PUBLIC["mnist"], ours=ours)
    lines = plan(server)
    assert flags_of(lines) == ["--restart-backoff=false", "--fallback-to-logs=false"]
    assert "#    nlp/tf-job-operator has --restart-backoff=true: the plan sets --restart-backoff=false." in lines
    assert "#    nlp/tf-job-operator has '--apis=a|b': add it yourself." in lines


def test_the_file_has_its_flags_before_an_installation_is_removed(server: Server) -> None:
    """A script that ends between them must not be continued without the flags."""
    cluster(server, PUBLIC["replica-restart-policy-exitcode"], moved=["team"])
    done = commands(there(plan(server)))
    (sed,) = [line for line in done if line.startswith("sed -i ")]
    (removed,) = [line for line in done if line.startswith("kubectl -n team delete ")]
    assert done.index(sed) < done.index(removed)


def test_the_column_of_observed_generations_is_no_proof_alone(server: Server) -> None:
    cluster(server)
    text = "\n".join(plan(server))
    assert "# 4. When the Deployment is ready, each unfinished job has a number in the column SEEN" in text
    assert "A number may also be left from an earlier move" in text


def test_a_gang_scheduler_is_kept_with_both_flags_and_the_permissions(server: Server) -> None:
    """Before the operator starts: until it may read PodGroups it creates no pods."""
    cluster(
        server, PUBLIC["mnist"], deployments=[deployment(args=["--gang-scheduler-name=scheduler-plugins-scheduler"])]
    )
    lines = plan(server)
    (sed,) = [line for line in lines if line.startswith("sed ")]
    assert r"\1--enable-gang-scheduling\n\1--gang-scheduler-name=scheduler-plugins-scheduler|" in sed
    addon = lines.index("kubectl apply -k manifests/addons/gang-scheduling")
    assert addon < lines.index("kubectl apply --server-side --force-conflicts -f install-kubeflow.yaml")
    assert "#    No flag keeps" not in "\n".join(lines)


def test_the_deployment_is_that_which_the_webhook_names(server: Server) -> None:
    """Every user of a namespace can create one with the label of training-operator."""
    forged = deployment("a-tenant", args=["--gang-scheduler-name=forged"])
    cluster(server, deployments=[forged, deployment("ml")], webhooks=[webhook("tfjob", namespace="ml")])
    lines = plan(server)
    assert "kubectl -n ml scale deployment/training-operator --replicas=0" in lines
    assert "kubectl apply --server-side --force-conflicts -f install.yaml" in lines
    assert not [line for line in lines if "a-tenant" in line or "forged" in line]
    label = "control-plane=kubeflow-training-operator"
    assert f"# 2 Deployments have the label {label}: make sure that ml/training-operator is the right one." in lines
    others = (
        "# tfjob-operator will serve all namespaces: stop every other training-operator before step 3, as this one."
    )
    assert others in lines
    cluster(server, deployments=[forged, deployment("kubeflow")], webhooks=[])
    assert "kubectl -n kubeflow scale deployment/training-operator --replicas=0" in plan(server)


def test_text_of_the_cluster_stays_a_word_of_its_command(server: Server) -> None:
    hostile = "x'; rm -rf / #\n$(reboot)"
    odd = deployment(args=[f"--zap={hostile}", f"--gang-scheduler-name={hostile}"], meta={"name": hostile})
    cluster(
        server, deployments=[odd], webhooks=[webhook("tfjob", meta={"name": hostile})], mpijobs=items({"metadata": {}})
    )
    lines = plan(server)
    # Line breaks are printed as \n, so that no line is the server's.
    assert not [line for line in lines if line.startswith(("rm", "$(reboot)"))]
    for line in commands(lines):
        words = shlex.split(line.removeprefix("[ -e webhook.json ] || "))
        assert not {"rm", "-rf", "#"} & set(words), line
    assert not [line for line in lines if "--enable-gang-scheduling" in line]


@pytest.mark.parametrize(
    ("mark", "tool"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "Argo CD"),
        ({"labels": {"app.kubernetes.io/instance": "x"}}, "Argo CD or Helm"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}, "Flux"),
        ({"annotations": {"meta.helm.sh/release-name": "x"}}, "Helm"),
    ],
)
def test_the_plan_names_what_gitops_would_undo(server: Server, mark: dict[str, Any], tool: str) -> None:
    cluster(server, deployments=[deployment(meta=mark)], webhooks=[webhook("tfjob", meta=mark)])
    server.answers(CRD, {"metadata": {"name": "tfjobs.kubeflow.org", **mark}})
    lines = plan(server)
    start = lines.index("# First change the source of training-operator likewise, or suspend its synchronization:")
    assert [line.partition(" manages ")[0] for line in lines[start + 1 : start + 4]] == [f"# {tool}"] * 3
    cluster(server)
    assert not [line for line in plan(server) if " manages " in line]


def test_without_any_permission_the_plan_is_that_for_the_manifests_of_training_operator(server: Server) -> None:
    """What cannot be read is assumed to be in use: other kinds continue, and all flags are set."""
    server.otherwise = (403, json.dumps(DENIED).encode())
    code, out, err = outcome(server.run("migrate", "--plan"))
    assert code == 0
    assert err.splitlines() == [
        "warning: no permission to read Deployments: the plan assumes the manifests of training-operator",
        "warning: no permission to read webhook configurations: the plan assumes the manifests of training-operator",
        "warning: no permission to read the CRD tfjobs.kubeflow.org: the plan assumes the manifests of training-operator",
        "warning: no permission to list Namespaces: the plan assumes that none was moved before",
        "warning: no permission to list TFJobs of all namespaces: the plan has the flags for all differences",
    ]
    lines = out.replace(f" {server.flags}", "").splitlines()
    assert [line for line in lines if f" {REMOVE}; else " in line]
    assert (
        "# 2. Stop training-operator for TFJobs. It continues with jaxjob, mpijob, paddlejob, pytorchjob, xgboostjob."
        in lines
    )
    (sed,) = [line for line in lines if line.startswith("sed ")]
    assert "--retryable-exit-codes=128-255" in sed
    assert "--completion-grace-period" not in sed


@pytest.mark.parametrize("options", [(), ("-n", "team")])
def test_a_cluster_without_training_operator_has_nothing_to_replace(server: Server, options: tuple[str, ...]) -> None:
    cluster(server, deployments=[], webhooks=[webhook("tfjob", name="other", meta={"name": "other"})])
    code, out, err = outcome(server.run("migrate", "--plan", *options))
    assert (code, out) == (1, "")
    assert err.startswith(
        "error: nothing to replace: no Deployment has the label control-plane=kubeflow-training-operator"
    )
    for left in ({"webhooks": [webhook("pytorchjob")]}, {"webhooks": [], "moved": ["team"]}):
        cluster(server, deployments=[], **left)
        assert plan(server)


def test_a_webhook_without_its_deployment_gets_a_plan_that_says_so(server: Server) -> None:
    cluster(server, deployments=[])
    label = "control-plane=kubeflow-training-operator"
    assert f"# No Deployment has the label {label}: the commands assume kubeflow/training-operator." in plan(server)
