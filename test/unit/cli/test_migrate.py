"""`kubectl tfjob migrate`: what changes for jobs of training-operator 1.9, and the steps there and back.

The expected differences were written from docs/migration.md, and from what the real training-operator 1.9.4 did, before the
program ran.
"""

import copy
import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.migration import DIFFERENCES, CheckedJob, check
from unit.cli.conftest import Server, items, outcome
from unit.cli.training_operator import (
    DENIED,
    DEPLOYMENTS,
    INSTALLED,
    NAMESPACES,
    OF_ALL,
    OF_TEAM,
    PUBLIC,
    RECORDED,
    binding,
    cluster,
    deployment,
    installed,
    served,
    with_policy,
)

PAGE = Path(__file__).parents[3] / "docs" / "kubectl-tfjob.md"
WORDS = {
    "F": "fails-at-move",
    "X": "deadline-exceeded",
    "T": "ttl-exceeded",
    "V": "active-deadline",
    "I": "invalid",
    "C": "clean-pod-policy",
    "G": "completion-grace",
    "E": "exit-codes",
    "D": "restart-delay",
    "B": "backoff-limit",
    "R": "restart-policy",
    "P": "policies-in-spec",
    "S": "sidecars",
    "K": "sidecars-kept",
    "O": "parameter-servers-only",
    "L": "elastic-workers",
    "A": "gang-scheduling",
    "Q": "queue",
    "N": "counters",
}
EXPECTED = {
    "multi-worker": "N",
    "distributed-tfjob-x7k2p": "C N",
    "tf-mnist": "R",
    "training": "I",
    "training-x7k2p": "N",
    "training-2": "N",
    "multi-worker-training-x7k2p": "N",
    "dist-mnist-for-e2e-test": "C N",
    "monolith-train": "N",
    "trial-x7k2p": "S",
    "tensorflow-training": "",
    "dgolubov-jobcustom": "C N R",
    "mnistjob": "N",
    "fmnist": "N",
    "training-tb-tfjob": "P N",
    "training-tfjob": "P N",
    "tfjob-flat": "",
    "tfjob-deep": "",
    "tfjob-deep-gpu": "",
    "trial-x7k2p-2": "C N S",
    "dist-mnist-for-e2e-test-2": "C N",
    "multi-worker-2": "N",
    "mnist": "",
    "tfjob-simple": "C N",
    "tensorflow-dist-mnist": "C N Q",
    "tensorflow-dist-mnist-2": "C N Q",
    "fmnist-2": "N",
    "mnist-2": "",
    "distributed-tfjob-x7k2p-2": "C N",
    "multi-worker-training": "N",
    "multi-worker-training-x7k2p-2": "N",
    "tfjob-test": "C N",
    "clean-pod-all": "G N",
    "clean-pod-none": "N",
    "clean-pod-running": "G N",
    "distributed-training": "C N",
    "estimator-runconfig": "G N",
    "gpu-tfjob": "",
    "invalid-tfjob": "I",
    "pod-names-validation": "G N",
    "replica-restart-policy-always": "C N",
    "replica-restart-policy-exitcode": "C N E D",
    "replica-restart-policy-never": "C N",
    "replica-restart-policy-onfailure": "C N",
    "simple-tfjob": "C N",
    "tfjob-mnist-ci-test-gang": "A",
    "from-sdk": "C N",
    "mnist-notebook": "N",
    "tfjob-examples": "C N",
    "mnist-train-gcp": "C N R",
    "mnist-train-aws": "C N R",
    "mnist-train-vanilla": "C N R",
    "mnist-fluid": "",
    "arena": "G N",
    "trial-q9d4z": "S",
    "trial-chief-v5c8n": "S",
    "tfjob-simple-airgapped": "C N",
}
EXPECTED_RECORDED = {
    "hand/chief": "C N",
    "hand/deadline": "C N V",
    "hand/done": "finished",
    "hand/done-running": "finished",
    "hand/done-ttl": "finished",
    "hand/dynamic": "C N L",
    "hand/failed": "finished",
    "hand/failed-exitcode": "finished",
    "hand/inplace": "C N B",
    "hand/invalid-chief": "I",
    "hand/invalid-type": "I",
    "hand/lower": "C N",
    "hand/managed": "",
    "hand/multikueue": "managed by another controller",
    "hand/oldpolicy": "C N",
    "hand/partly": "C N",
    "hand/ran-suspended": "C N",
    "hand/restarted": "C N E D B",
    "hand/restarting": "C N E D",
    "hand/run": "C N",
    "hand/sidecar": "S",
    "hand/single": "",
    "hand/suspended": "C N",
    "hand/template": "C N R",
    "a-peer/always-0": "",
    "a-peer/backoff-exitcode": "E D B",
    "a-peer/evaluator-only-ps": "C N O",
    "a-peer/sidecar-forever": "C N S",
    "a-peer/sidecar-forever-all": "G N S",
    "a-peer/suspended": "C N",
}
"""All others of `a-peer` had finished."""


MISTAKE = (
    "spec.tfReplicaSpecs.Worker.template.spec.containers: Required value: one container must be named tensorflow; "
    "found Tensorflow"
)


def in_words(checked: CheckedJob) -> set[str]:
    """What was found, as in the tables above."""
    return {checked.unaffected} if checked.unaffected else set(checked.differences)


def expected(text: str) -> set[str]:
    if text in {"finished", "managed by another controller"}:
        return {text}
    return {WORDS[each] for each in text.split()}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_differences_of_each_public_job_are_those_that_the_documentation_predicts(name: str) -> None:
    assert in_words(check(PUBLIC[name])) == expected(EXPECTED[name]), PUBLIC[name]


@pytest.mark.parametrize("name", RECORDED)
def test_the_differences_of_each_recorded_job_are_those_that_were_observed(name: str) -> None:
    assert in_words(check(RECORDED[name])) == expected(EXPECTED_RECORDED.get(name, "finished")), RECORDED[name]


def test_a_job_with_replicas_for_a_single_pod_and_no_limit_behaves_the_same() -> None:
    """And types without replicas do not count."""
    one = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}}
    spec = {
        "tfReplicaSpecs": {"Worker": one | {"replicas": 1}, "PS": one | {"replicas": 0, "restartPolicy": "ExitCode"}}
    }
    assert in_words(check({"metadata": {"name": "a"}, "spec": spec})) == set()


@pytest.mark.parametrize(("policy", "limit"), [("OnFailure", 0), ("Never", 3), ("ExitCode", 0)])
def test_a_backoff_limit_without_effect_is_no_difference(policy: str, limit: int) -> None:
    """Under Never nothing is restarted, and a limit of 0 fails the job at the first failure under both operators."""
    assert "backoff-limit" not in in_words(check(with_policy({"backoffLimit": limit}, restartPolicy=policy)))


def test_a_policy_in_spec_that_run_policy_overrides_is_no_difference() -> None:
    inline = with_policy({"cleanPodPolicy": "All"})
    inline["spec"]["cleanPodPolicy"] = "Running"
    inline["spec"]["backoffLimit"] = 2
    assert check(inline).differences["policies-in-spec"] == "spec.backoffLimit"


def test_a_grace_period_of_the_job_replaces_that_of_the_operator() -> None:
    many = with_policy({"cleanPodPolicy": "All"}, replicas=3)
    assert "completion-grace" in in_words(check(many))
    many["spec"]["runPolicy"]["completionGracePeriodSeconds"] = 0
    assert "completion-grace" not in in_words(check(many))


def test_a_job_with_more_replicas_than_the_operator_accepts_would_be_on_hold() -> None:
    """As one with more errors than are shown; nothing else is said of them."""
    assert check(with_policy({}, replicas=20_000)).differences.keys() == {"invalid"}
    found = check({"metadata": {"name": "Mnist"}, "spec": {"tfReplicaSpecs": {"Trainer": {}}}}).differences
    assert re.search(r"metadata.name: .* \(and \d more\)", found["invalid"])


@pytest.mark.parametrize(("gang", "names"), [(True, {"a", "b"}), (False, set()), (None, {"b"})])
def test_the_flag_of_training_operator_decides_whether_jobs_have_pod_groups(gang: bool | None, names: set[str]) -> None:
    """If it is unknown, jobs with a schedulingPolicy are named."""
    jobs = {"a": with_policy({}), "b": with_policy({"schedulingPolicy": {"queue": "q"}})}
    assert {name for name, job in jobs.items() if "gang-scheduling" in check(job, gang=gang).differences} == names


@pytest.mark.parametrize(
    ("policy", "differs"), [("Never", True), ("ExitCode", False), ("OnFailure", False), ("Always", False)]
)
def test_a_worker_of_an_elastic_job_that_may_fail_without_a_restart_is_a_difference(policy: str, differs: bool) -> None:
    """training-operator 1.9 ignores its failure under Never only; observed with the real one."""
    elastic = with_policy({}, replicas=2, restartPolicy=policy)
    assert "elastic-workers" not in in_words(check(elastic))
    elastic["spec"]["enableDynamicWorker"] = True
    assert ("elastic-workers" in in_words(check(elastic))) is differs


@pytest.mark.parametrize(
    ("policy", "state", "failed", "fails"),
    [
        ("Never", "Running", 1, "Worker: 1 failed"),
        ("Never", "Running", 0, None),
        ("Never", "Restarting", 2, "Worker: 2 failed"),
        ("ExitCode", "Running", 1, None),  # it is being replaced: otherwise the job would have failed
        ("OnFailure", "Running", 1, None),
        ("Always", "Running", 1, None),
        (None, "Running", 1, "Worker: 1 failed"),  # training-operator has created the pod with Never
        ("Never", "Failed", 1, None),
    ],
)
def test_an_elastic_job_that_has_a_failed_worker_fails_when_it_is_moved(
    policy: str | None, state: str, failed: int, fails: str | None
) -> None:
    """training-operator 1.9.4 shows it as Running. Observed with the real one, as is what recreates its pods."""
    entry = {} if policy is None else {"restartPolicy": policy}
    job = with_policy({}, replicas=3, **entry)
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"] |= {"restartPolicy": "OnFailure"}
    job["status"] = {
        "conditions": [{"type": "Created", "status": "True"}, {"type": state, "status": "True"}],
        "replicaStatuses": {"Worker": {"active": 3 - failed, "failed": failed}, "PS": {"failed": 1}},
    }
    job["spec"]["enableDynamicWorker"] = True
    assert check(job).differences.get("fails-at-move") == fails
    job["spec"]["runPolicy"]["suspend"] = True
    assert "fails-at-move" not in check(job).differences


def test_a_job_with_a_replica_that_failed_during_a_restart_fails_when_it_is_moved() -> None:
    """training-operator 1.9.4 keeps it Restarting for as long as the failed pod exists."""
    job = with_policy({}, replicas=2, restartPolicy="Never")
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]
    job["spec"]["tfReplicaSpecs"]["PS"] = worker | {"restartPolicy": "ExitCode"}
    job["status"] = {
        "conditions": [{"type": "Restarting", "status": "True"}],
        "replicaStatuses": {"Worker": {"active": 1, "failed": 1}, "PS": {"failed": 1}},
    }
    assert check(job).differences["fails-at-move"] == "Worker: 1 failed"
    assert "elastic-workers" not in check(job).differences


START = "2026-11-30T01:00:00Z"
STARTED_AT = datetime.fromisoformat(START).timestamp()


def started(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a job that training-operator has started."""
    status = {"conditions": [{"type": "Running", "status": "True"}], "startTime": START}
    return with_policy(policy, restartPolicy="Never") | {"status": status}


def of_limits(job: dict[str, Any], at: float) -> dict[str, str]:
    """Return what `check` says at a time about the deadline and the TTL of a job, and about mistakes in it."""
    found = check(job, now=at).differences
    return {each: found[each] for each in found if each.endswith(("-exceeded", "-deadline", "invalid"))}


def test_a_job_that_training_operator_runs_beyond_its_deadline_fails_when_it_is_moved() -> None:
    """It evaluates the deadline only when the job or a pod changes: its own delayed queue is a stub."""
    job = started({"activeDeadlineSeconds": 600})
    detail = "600s after 2026-11-30T01:00:00Z"
    assert of_limits(job, STARTED_AT + 599) == {"active-deadline": detail}
    assert of_limits(job, STARTED_AT + 601) == {"deadline-exceeded": detail}
    assert of_limits(started({"activeDeadlineSeconds": 600, "suspend": True}), STARTED_AT + 601) == {}
    assert of_limits(with_policy({"activeDeadlineSeconds": 600}), STARTED_AT) == {
        "active-deadline": "600s after its start"
    }
    assert of_limits(started({}), STARTED_AT + 601) == {}


def test_a_job_on_hold_is_not_protected_from_its_deadline() -> None:
    job = started({"activeDeadlineSeconds": 600})
    job["spec"]["tfReplicaSpecs"]["Trainer"] = job["spec"]["tfReplicaSpecs"]["Worker"]
    assert of_limits(job, STARTED_AT + 601).keys() == {"deadline-exceeded", "invalid"}


@pytest.mark.parametrize("suspend", [True, False])
def test_a_finished_job_that_training_operator_keeps_beyond_its_ttl_is_deleted_when_it_is_moved(suspend: bool) -> None:
    """It ignores the TTL of a suspended job, and of one without a completion time."""
    ended = {"type": "Failed", "status": "True", "lastTransitionTime": START}
    policy = {"ttlSecondsAfterFinished": 60, "suspend": suspend}
    job = with_policy(policy, replicas=2) | {"status": {"conditions": [ended]}}
    kept, deleted = check(job, now=STARTED_AT + 59), check(job, now=STARTED_AT + 61)
    assert (kept.unaffected, kept.differences) == ("finished", {})
    assert (deleted.unaffected, deleted.differences) == ("", {"ttl-exceeded": "60s after 2026-11-30T01:00:00Z"})
    job["status"]["observedGeneration"] = 1
    assert check(job, now=STARTED_AT + 61).unaffected == "finished"
    assert "ttl-exceeded" in check(job, now=STARTED_AT + 61, is_served=lambda _: False).differences


def test_policies_in_spec_apply_to_finished_jobs_too() -> None:
    """A clean-up policy deletes pods that training-operator has left running."""
    job = with_policy({}, replicas=2) | {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    job["spec"] |= {"cleanPodPolicy": "All", "backoffLimit": 2}
    assert check(job).differences == {"policies-in-spec": "spec.cleanPodPolicy"}


def test_what_fails_or_ends_jobs_at_the_move_comes_first_and_counters_last(server: Server) -> None:
    """In the columns of a job, in the descriptions, and in the plan. Counters are on most jobs, and would hide the rest."""
    ids = [*DIFFERENCES]
    assert ids[:5] == ["deadline-exceeded", "fails-at-move", "ttl-exceeded", "sidecars", "invalid"]
    assert ids.index("exit-codes") < ids.index("backoff-limit") < ids.index("clean-pod-policy")
    assert ids[-1] == "counters"
    elastic = with_policy({"backoffLimit": 3}, replicas=2, restartPolicy="Never")
    elastic["spec"]["enableDynamicWorker"] = True
    elastic["status"] = {"conditions": [], "replicaStatuses": {"Worker": {"failed": 1}}}
    assert [*check(elastic).differences] == ["fails-at-move", "elastic-workers", "clean-pod-policy", "counters"]
    for job in (*PUBLIC.values(), *RECORDED.values()):
        found = [*check(job).differences]
        assert found == sorted(found, key=ids.index)
    cluster(server, elastic, PUBLIC["simple-tfjob"])
    out = server.run("migrate", "--check").stdout
    assert "It FAILS when this operator starts" in out
    assert re.findall(r"^([-a-z]+): \d+ job", out, re.MULTILINE) == [
        "fails-at-move", "elastic-workers", "clean-pod-policy", "counters",
    ]  # fmt: skip
    assert "see --check: fails-at-move (1 job), elastic-workers (1 job)" in server.run("migrate", "--plan").stdout


def test_advice_names_what_can_be_done_before_the_move() -> None:
    """The CRD of training-operator deletes completionGracePeriodSeconds, and pods keep their restart policy."""
    assert DIFFERENCES["fails-at-move"].keep.startswith("before the move, delete the failed pods")
    assert "only after the move" in DIFFERENCES["sidecars"].keep
    assert "Pods that exist keep their policy" in DIFFERENCES["elastic-workers"].keep
    assert "--plan omits it if a job has sidecars" in DIFFERENCES["completion-grace"].keep


def test_the_descriptions_name_jobs_that_end_at_the_move_and_those_that_do_not_finish() -> None:
    assert "the job may finish when this operator starts" in DIFFERENCES["sidecars"].here
    assert "the job does not finish" in DIFFERENCES["invalid"].here


def with_sidecar(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a job whose pods have a container beside the training."""
    job = copy.deepcopy(with_policy(policy, restartPolicy="Never"))
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append({"name": "log", "image": "x"})
    return job


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(None, "sidecars"), ("All", "sidecars"), ("Running", "sidecars"), ("None", "sidecars-kept")],
)
def test_sidecars_that_a_job_keeps_at_its_end_are_not_said_to_be_deleted(policy: str | None, expected: str) -> None:
    """And the advice is not to set the policy that is set."""
    found = check(with_sidecar({} if policy is None else {"cleanPodPolicy": policy})).differences
    assert {each: found[each] for each in found if "sidecars" in each} == {expected: "Worker: log"}
    kept = DIFFERENCES["sidecars-kept"]
    assert "deleted" not in kept.here
    assert "cleanPodPolicy" not in kept.keep
    assert "the job may finish when this operator starts" in kept.here


SEEN = with_policy({}, replicas=2) | {"status": {"observedGeneration": 1}}
"""A job whose status this operator has written."""


def test_a_job_that_this_operator_serves_is_unaffected() -> None:
    """training-operator never writes the generation that it has observed, but keeps it after a way back."""
    assert check(SEEN).unaffected == "served by tfjob-operator"
    assert check(SEEN, is_served=lambda namespace: namespace == "").unaffected == "served by tfjob-operator"
    assert check(SEEN, is_served=lambda namespace: namespace != "").differences.keys() == {
        "clean-pod-policy",
        "counters",
    }


IDLE = deployment() | {"spec": deployment()["spec"] | {"replicas": 0}}


@pytest.mark.parametrize(
    ("operators", "is_served"),
    [
        ({"deployments": [IDLE], "ours": [installed("kubeflow")], "bindings": []}, True),
        (
            {
                "deployments": [deployment(args=["--enable-scheme=pytorchjob"])],
                "ours": [installed("kubeflow")],
                "bindings": [],
            },
            True,
        ),
        (
            {
                "deployments": [deployment(args=["--namespace=other"])],
                "ours": [installed("team", "--namespace=$(KUBEFLOW_NAMESPACE)")],
                "bindings": [],
            },
            True,
        ),
        (
            {
                "deployments": [deployment()],
                "ours": [installed("team", "--namespace=team")],
                "moved": ["team"],
                "bindings": [],
            },
            True,
        ),
        ({"deployments": [IDLE], "bindings": []}, False),
        ({"deployments": [IDLE], "ours": [installed("kubeflow", wanted=0)], "bindings": []}, False),
        ({"deployments": [IDLE], "ours": [installed("ml", "--namespace", "ml")], "bindings": []}, False),
        ({"deployments": [deployment()], "ours": [installed("kubeflow")], "bindings": []}, False),
        (
            {"deployments": [deployment(args=["--namespace=team"])], "ours": [installed("kubeflow")], "bindings": []},
            False,
        ),
        (
            {
                "deployments": [deployment()],
                "ours": [installed("team", "--namespace=team")],
                "moved": ["team"],
                "bindings": [binding()],
            },
            False,
        ),
    ],
)
def test_who_serves_a_job_is_decided_by_the_operators_that_run_now(
    server: Server, operators: dict[str, Any], is_served: bool
) -> None:
    """After a way back, jobs have the generation that this operator has observed, and training-operator serves them."""
    cluster(server, SEEN, **operators)
    code, out, err = outcome(server.run("migrate", "--check"))
    assert code == (0 if is_served else 3)
    two_run = not is_served and operators["deployments"] != [IDLE]
    assert err.startswith("warning: tfjob-operator ") is two_run
    assert ("both serve the TFJobs" in err) is two_run
    first = server.run("migrate", "--plan").stdout.splitlines()[2]
    assert first.startswith("# tfjob-operator ") is two_run
    assert out.splitlines()[-1].split() == ["team", "1", *("0001" if is_served else "1000")]


def test_without_permission_to_read_deployments_a_job_with_an_observed_generation_counts_as_served(
    server: Server,
) -> None:
    cluster(server, SEEN)
    server.answers(INSTALLED, DENIED, code=403)
    code, out, err = outcome(server.run("migrate", "--check"))
    assert (code, out.splitlines()[-1].split()) == (0, ["team", "1", "0", "0", "0", "1"])
    assert err == (
        "warning: no permission to read Deployments and Namespaces: "
        "jobs that tfjob-operator served once count as served by it\n"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "None", "All", "ExitCode", "tensorflow", "Trial", "Worker", "\x1b[31m", "0-9"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(
        st.sampled_from([
            "metadata", "name", "namespace", "labels", "ownerReferences", "kind", "spec", "status", "conditions", "type",
            "runPolicy", "cleanPodPolicy", "backoffLimit", "schedulingPolicy", "managedBy", "tfReplicaSpecs", "Worker", "ps",
            "replicas", "restartPolicy", "template", "containers", "observedGeneration", "kueue.x-k8s.io/queue-name",
            "activeDeadlineSeconds", "ttlSecondsAfterFinished", "startTime",
        ]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
        each, max_size=4,
    ),
    max_leaves=25,
)  # fmt: skip


@given(meta=JSON, spec=JSON, status=JSON, replicas=JSON, policy=JSON)
def test_no_object_is_too_odd_to_be_checked(meta: Any, spec: Any, status: Any, replicas: Any, policy: Any) -> None:
    for body in (spec, {"tfReplicaSpecs": replicas, "runPolicy": policy, "cleanPodPolicy": policy}):
        checked = check({"metadata": meta, "spec": body, "status": status})
        assert checked.differences.keys() <= DIFFERENCES.keys()
        assert all(isinstance(detail, str) for detail in checked.differences.values())


def test_the_check_lists_the_jobs_that_change_and_what_changes_and_sums_by_namespace(server: Server) -> None:
    server.answers(OF_ALL, items(*served(PUBLIC["tfjob-simple"], RECORDED["hand/done"], PUBLIC["mnist"], namespace="b"),
                                 *served(PUBLIC["gpu-tfjob"], PUBLIC["training"], namespace="a")))  # fmt: skip
    code, out, err = outcome(server.run("migrate", "--check", "-A"))
    assert (code, err) == (3, "")
    assert out.splitlines() == [
        "NAMESPACE   NAME           STATE   DIFFERENCES",
        "a           training       New     invalid",
        "b           tfjob-simple   New     clean-pod-policy, counters",
        "",
        "invalid: 1 job",
        "  training-operator: The job runs.",
        f"  tfjob-operator:    {DIFFERENCES['invalid'].here}",
        (
            "  to keep it:        let the job finish, or correct the field; a replica type that is renamed starts anew, "
            "and loses its running pods"
        ),
        f"    a/training: {MISTAKE}",
        "",
        "clean-pod-policy: 1 job",
        "  training-operator: Without cleanPodPolicy, pods that are running when the job finishes or exceeds a limit continue.",
        "  tfjob-operator:    They are deleted.",
        "  to keep it:        set spec.runPolicy.cleanPodPolicy: None",
        "    b/tfjob-simple: Worker",
        "",
        "counters: 1 job",
        "  training-operator: After a failure, status.replicaStatuses keep the last number of active replicas.",
        "  tfjob-operator:    active is the number of pods that are left.",
        "  to keep it:        not possible",
        "    b/tfjob-simple: 2 replicas",
        "",
        "NAMESPACE   JOBS   DIFFERENT   ON HOLD   SAME   UNAFFECTED",
        "a           2      1           1         1      0",
        "b           2      1           0         1      0",
        "hand        1      0           0         0      1",
        "TOTAL       5      2           1         2      1",
    ]


def test_the_check_for_a_program_has_the_details_of_each_job_and_the_sums(server: Server) -> None:
    server.answers(OF_TEAM, items(*served(PUBLIC["mnist"], PUBLIC["arena"], RECORDED["hand/done"])))
    code, out, err = outcome(server.run("migrate", "--check", "-o", "json"))
    found = json.loads(out)
    assert (code, err) == (3, "")
    assert found["jobs"][2] == {
        "namespace": "team",
        "name": "mnist",
        "state": "New",
        "unaffected": "",
        "differences": {},
    }
    assert found["jobs"][1]["differences"] == {"completion-grace": "Worker", "counters": "3 replicas"}
    assert found["jobs"][0]["unaffected"] == "finished"
    assert found["total"] == {"jobs": 3, "different": 1, "onHold": 0, "same": 1, "unaffected": 1}
    assert found["namespaces"]["team"] == {"jobs": 2, "different": 1, "onHold": 0, "same": 1, "unaffected": 0}
    assert found["differences"]["completion-grace"]["flags"] == ["--completion-grace-period=0"]
    assert found["differences"].keys() == {"completion-grace", "counters"}
    assert yaml.safe_load(server.run("migrate", "--check", "-o", "yaml").stdout) == found


def test_more_than_three_jobs_of_a_difference_are_only_counted(server: Server) -> None:
    many = [with_policy({}, replicas=2) | {"metadata": {"name": f"job-{number}"}} for number in range(5)]
    server.answers(OF_TEAM, items(*served(*many)))
    out = server.run("migrate", "--check").stdout
    assert "    team/job-2: Worker\n    and 2 more: see -o json\n" in out
    assert "TOTAL" not in out


def test_without_differences_the_check_succeeds(server: Server) -> None:
    server.answers(OF_TEAM, items())
    server.answers(f"{NAMESPACES}/team", {"metadata": {"name": "team"}})
    assert outcome(server.run("migrate", "--check")) == (0, "No TFJobs found in team namespace.\n", "")
    server.answers(OF_ALL, items())
    assert outcome(server.run("migrate", "--check", "-A")) == (0, "No TFJobs found.\n", "")
    server.answers(OF_TEAM, items(*served(PUBLIC["mnist"], RECORDED["hand/multikueue"])))
    code, out, _ = outcome(server.run("migrate", "--check"))
    assert (code, out.split()[:2]) == (0, ["NAMESPACE", "JOBS"])
    assert server.run("migrate", "--check", "-o", "json").exit_code == 0


def test_what_cannot_be_checked_is_an_error(server: Server) -> None:
    """Without permission for Deployments and webhooks, which most users do not have, jobs are checked all the same."""
    server.answers(OF_TEAM, DENIED, code=403)
    assert server.run("migrate", "--check").exit_code == 1
    server.otherwise = (403, json.dumps(DENIED).encode())
    server.answers(OF_TEAM, items(*served(PUBLIC["mnist"])))
    assert server.run("migrate", "--check").exit_code == 0
    server.answers(OF_ALL, {"kind": "Status", "reason": "InternalError", "message": "no", "code": 500}, code=500)
    assert server.run("migrate", "--plan").exit_code == 1


@pytest.mark.parametrize("options", [[], ["--plan", "-A"], ["--plan", "-o", "json"], ["--check", "-o", "wide"]])
def test_options_that_make_no_sense_together_are_refused_before_a_request(server: Server, options: list[str]) -> None:
    assert server.run("migrate", *options).exit_code == 2
    assert not server.asked


def test_the_check_knows_from_the_deployment_whether_there_are_pod_groups(server: Server) -> None:
    server.answers(OF_TEAM, items(*served(PUBLIC["mnist"])))
    server.answers(DEPLOYMENTS, items(deployment(args=["--gang-scheduler-name", "volcano"])))
    assert "gang-scheduling: 1 job" in server.run("migrate", "--check").stdout
    server.answers(DEPLOYMENTS, items(deployment()))
    server.answers(OF_TEAM, items(*served(PUBLIC["tfjob-mnist-ci-test-gang"])))
    assert server.run("migrate", "--check").exit_code == 0


@pytest.mark.parametrize("options", [["--check"], ["--check", "-A"], ["--plan"]])
def test_only_get_requests_are_sent(server: Server, options: list[str]) -> None:
    cluster(server)
    server.run("migrate", *options)
    assert {method for method, *_ in server.asked} == {"GET"}


def test_the_guide_has_a_row_for_each_difference(check_generated: Callable[[Path, str], None]) -> None:
    before, start, rest = PAGE.read_text().partition("<!-- generated: cli/migration.py -->\n")
    _, end, after = rest.partition("<!-- end of generated -->\n")
    rows = ["| ID | training-operator 1.9 | tfjob-operator | to keep the former |", "|---|---|---|---|"]
    rows += [f"| `{each.id}` | {each.before} | {each.here} | {keep(each.keep)} |" for each in DIFFERENCES.values()]
    check_generated(PAGE, f"{before}{start}\n{chr(10).join(rows)}\n\n{end}{after}")


def keep(text: str) -> str:
    """Return how to keep a behavior, with flags in the font of code."""
    return re.sub(r"--[-a-zA-Z0-9=]+", r"`\g<0>`", text) or "not possible"
