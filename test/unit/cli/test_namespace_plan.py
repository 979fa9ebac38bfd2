"""The steps of `kubectl tfjob migrate --plan -n NAMESPACE`, there and back.

`test/integration/test_migrate_by_namespace.py` runs them.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from unit.cli.conftest import Server, items, outcome
from unit.cli.test_migration_plan import commands, executed, patch_in, there
from unit.cli.training_operator import (
    BINDINGS,
    CRD,
    DENIED,
    NAMESPACES,
    OF_ALL,
    PUBLIC,
    account,
    binding,
    cluster,
    deployment,
    installed,
    webhook,
)

LABEL = "tfjob.kubeflow.org/operator"
ACCOUNT = "system:serviceaccount:kubeflow:training-operator"
RECORD = "tfjob.kubeflow.org/bindings-before-migration"


def plan(server: Server, *options: str) -> list[str]:
    """Return the lines of the plan for the namespace `team`, without the options for this cluster."""
    result = server.run("migrate", "--plan", "-n", "team", *options)
    assert result.exit_code == 0, result.output
    return result.stdout.replace(f" {server.flags}", "").splitlines()


def position(lines: list[str], start: str) -> int:
    """The place of the only line that starts so."""
    (found,) = (number for number, line in enumerate(lines) if line.startswith(start))
    return found


def test_training_operator_loses_its_permissions_before_this_operator_is_installed_and_the_reverse_on_the_way_back(
    server: Server,
) -> None:
    cluster(server, PUBLIC["tfjob-simple"])
    lines = plan(server)
    assert "# 1 unfinished TFJob: kubectl tfjob migrate --check -n team lists what changes for them." in lines
    steps = [
        "kubectl patch validatingwebhookconfiguration",
        f"kubectl label namespace team {LABEL}=tfjob-operator --overwrite",
        "if namespaces=$(kubectl get namespaces",
        "echo '{",
        "kubectl create clusterrolebinding training-operator-read ",
        "kubectl delete clusterrolebinding training-operator ",
        "kubectl -n team delete rolebinding training-operator ",
        'until case "$(kubectl -n team auth can-i create pods ',
        "sed 's/",
        "kubectl apply --server-side --force-conflicts -f tfjob-operator-team.yaml",
        "kubectl -n team rollout status deployment/tf-job-operator ",
        "kubectl -n team get tfjobs -o custom-columns=",
        "# The way back. Keep the CRD",
        "if installed=$(kubectl -n team get deployment/tf-job-operator --ignore-not-found -o name); then ",
        '[ "$(kubectl -n team get pod ',
        "kubectl -n team delete role,rolebinding --selector=app.kubernetes.io/name=tfjob-operator",
        f"kubectl label namespace team {LABEL}-",
        "kubectl -n team create rolebinding training-operator ",
        "kubectl -n kubeflow rollout restart deployment/training-operator",
        "if moved=$(kubectl get namespaces ",
    ]
    places = [position(lines, step) for step in steps]
    assert places == sorted(places)
    assert not [line for line in commands(lines) if "scale deployment/training-operator" in line]


def test_each_wait_ends_only_when_the_api_server_denies_the_permission(server: Server) -> None:
    """An error of kubectl, such as one of the connection, is not a denial."""
    cluster(server)
    asked = [
        re.fullmatch(r'until case "\$\((.*)\)" in no\*\) ;; \*\) false ;; esac; do sleep 1; done', line)
        for line in plan(server)
    ]
    assert [shlex.split(each[1])[5:] for each in asked if each] == [
        [verb, resource, *subresource, f"--as={ACCOUNT}"]
        for verb, resource, *subresource in (
            ("create", "pods"),
            ("delete", "pods"),
            ("create", "services"),
            ("delete", "tfjobs.kubeflow.org"),
            ("update", "tfjobs.kubeflow.org", "--subresource=status"),
        )
    ]


def test_a_user_who_may_not_impersonate_learns_it_before_the_first_change(server: Server, tmp_path: Path) -> None:
    """The waits of step 2 impersonate training-operator, and would never end."""
    cluster(server)
    lines = plan(server)
    _, first, second, *_ = commands(lines)
    assert first.startswith("kubectl -n kubeflow auth can-i impersonate serviceaccounts/training-operator || ")
    assert " patch validatingwebhookconfiguration " in second
    for answer, goes_on in (("exit 0", True), ("echo no; exit 1", False)):
        ok, calls = executed([first, "kubectl next"], tmp_path / str(goes_on), f"[ $1 = next ] || {{ {answer}; }}")
        assert (ok, "next" in "".join(calls)) == (goes_on, goes_on)


def test_the_webhook_keeps_its_other_conditions_about_namespaces(server: Server) -> None:
    entry = webhook("tfjob")
    other = {"key": "team", "operator": "Exists"}
    entry["webhooks"][0]["namespaceSelector"] = {"matchExpressions": [other, {"key": LABEL, "operator": "Exists"}]}
    cluster(server, webhooks=[entry])
    (line,) = (line for line in plan(server) if "patch validating" in line)
    (patched,) = patch_in(line)["webhooks"]
    assert patched["namespaceSelector"]["matchExpressions"] == [
        other,
        {"key": LABEL, "operator": "NotIn", "values": ["tfjob-operator"]},
    ]
    cluster(server, webhooks=[])
    assert not [
        line for line in plan(server) if "validatingwebhookconfiguration" in line and line.startswith("kubectl")
    ]


def test_every_binding_of_the_account_is_replaced(server: Server) -> None:
    found = [binding(), binding("more", "extra"), binding("training-operator-read", "training-operator-read")]
    cluster(server, bindings=[*found, {"metadata": {"name": "other"}, "roleRef": {"name": "x"}}])
    lines = plan(server)
    deleted = [line for line in lines if line.startswith("kubectl delete clusterrolebinding ")]
    assert [line.split()[3] for line in deleted] == ["training-operator", "more"]
    assert len([line for line in lines if line.startswith("if namespaces=") and "--clusterrole=extra" in line]) == 1


def way_back(lines: list[str]) -> list[str]:
    return lines[lines.index("back() (") :]


def test_a_way_back_that_is_printed_after_the_move_restores_the_bindings_that_the_first_plan_has_recorded(
    server: Server,
) -> None:
    """Their names are those of the cluster, not of the manifests. The record is deleted when they exist again."""
    cluster(server, bindings=[binding("trainer", "trainer-role"), binding("more", "extra")])
    first = plan(server)
    (record,) = (line for line in first if " annotate " in line and line.endswith(" --overwrite"))
    assert first.index(record) < position(first, "kubectl delete clusterrolebinding trainer ")
    key, _, value = shlex.split(record)[5].partition("=")
    assert key == RECORD
    moved = deployment(meta={"annotations": {key: value}})
    cluster(server, deployments=[moved], bindings=[], moved=["team"])
    later = plan(server)
    assert way_back(later) == way_back(first)
    (restored,) = [line for line in later if line.startswith("if moved=")]
    assert re.findall(r"clusterrolebinding (\S+) --clusterrole=(\S+)", restored) == [
        ("trainer", "trainer-role"),
        ("more", "extra"),
    ]
    assert restored.endswith(
        f" && kubectl -n kubeflow annotate deployment/training-operator {RECORD}-; }}; else false; fi"
    )
    assert not [line for line in later if line.endswith(" --overwrite") and " annotate " in line]
    for kinds in (items(), items({"metadata": {"name": "bert"}})):
        # Interrupted after the label was removed.
        cluster(server, deployments=[moved], bindings=[], pytorchjobs=kinds)
        lines = server.run("migrate", "--plan").stdout.replace(f" {server.flags}", "").splitlines()
        for part in (way_back(lines), *([there(lines)] if kinds["items"] else [])):
            created = [line.split()[3] for line in part if line.startswith("kubectl create clusterrolebinding ")]
            assert created == ["trainer", "more"]
        assert f"kubectl -n kubeflow annotate deployment/training-operator {RECORD}-" in lines


@pytest.mark.parametrize("record", ["", "[", "[]", '{"a": 1}', "9" * 5000])
def test_bindings_that_are_not_known_are_not_assumed(server: Server, record: str) -> None:
    """With another name, training-operator would have no permissions after the way back."""
    peer = [deployment(meta={"annotations": {RECORD: record}})]
    cluster(server, deployments=peer, bindings=[], moved=["team"])
    code, out, err = outcome(server.run("migrate", "--plan", "-n", "team"))
    assert (code, out) == (1, "")
    assert err.startswith(
        "error: the permissions of training-operator are not known: its ServiceAccount kubeflow:training"
    )
    lines = server.run("migrate", "--plan").stdout.splitlines()
    assert position(lines, "#    Its ClusterRoleBindings are not known") > position(lines, "# Back 3")
    assert not [line for line in lines if " create clusterrolebinding " in line]


def test_a_namespace_that_does_not_exist_is_an_error(server: Server) -> None:
    """Without permission to read it, it is assumed to exist."""
    cluster(server)
    server.answers(f"{NAMESPACES}/team", {"kind": "Status", "reason": "NotFound", "code": 404}, code=404)
    assert outcome(server.run("migrate", "--plan", "-n", "team")) == (1, "", 'error: namespaces "team" not found\n')
    assert outcome(server.run("migrate", "--check", "-n", "team")) == (1, "", 'error: namespaces "team" not found\n')
    server.answers(f"{NAMESPACES}/team", DENIED, code=403)
    assert plan(server)
    assert outcome(server.run("migrate", "--check", "-n", "team"))[0] == 0


def test_namespaces_that_are_moved_or_being_deleted_get_no_binding(server: Server) -> None:
    cluster(server)
    (line,) = (line for line in plan(server) if line.startswith("if namespaces="))
    asked = re.search(r"\$\((.*?)\)", line)
    assert asked is not None
    words = shlex.split(asked[1])
    assert {f"--selector={LABEL}!=tfjob-operator", "--field-selector=status.phase=Active"} <= {*words}


def test_the_rules_to_read_allow_no_writes_in_a_namespace(server: Server) -> None:
    cluster(server)
    (line,) = (line for line in plan(server) if line.startswith("echo "))
    role = json.loads(shlex.split(line)[1])
    for rule in role["rules"]:
        assert {*rule["verbs"]} <= {"get", "list", "watch"} or rule["resources"] == ["validatingwebhookconfigurations"]


def test_the_namespace_of_training_operator_and_one_that_is_its_only_one_are_refused(server: Server) -> None:
    cluster(server)
    code, out, err = outcome(server.run("migrate", "--plan", "-n", "kubeflow"))
    assert (code, out) == (1, "")
    assert err.startswith("error: kubeflow is the namespace of training-operator")
    cluster(server, deployments=[deployment(args=["--namespace=team"])])
    code, out, err = outcome(server.run("migrate", "--plan", "-n", "team"))
    assert (code, err) == (
        1,
        "error: training-operator serves only the namespace team: use --plan without a namespace\n",
    )


def test_a_namespace_that_another_installation_serves_is_refused(server: Server) -> None:
    """Two operators of different namespaces hold different Leases, so both would write the jobs."""
    for args in ((), ("--namespace=team",)):
        cluster(server, ours=[installed("kubeflow", *args)])
        code, out, err = outcome(server.run("migrate", "--plan", "-n", "team"))
        assert (code, out) == (1, "")
        assert err.startswith("error: tfjob-operator kubeflow/tf-job-operator serves team already: a second one would")
    cluster(server, ours=[installed("team")])  # it serves all namespaces, so training-operator may write none
    assert outcome(server.run("migrate", "--plan", "-n", "team"))[0] == 1
    cluster(server, ours=[installed("kubeflow", "--namespace=kubeflow")])
    code, out, err = outcome(server.run("migrate", "--plan", "-n", "team"))
    assert (code, out) == (1, "")
    assert err.startswith("error: tfjob-operator serves kubeflow already, the namespace of training-operator")
    others = installed("kubeflow", wanted=0), installed("ml", "--namespace=ml"), installed("team", "--namespace=team")
    cluster(server, ours=others)
    assert plan(server)


def test_other_kinds_in_the_namespace_are_named(server: Server) -> None:
    cluster(server, pytorchjobs=items({"metadata": {"name": "bert"}}))
    assert "# namespaces at once: pytorchjobs" in plan(server)
    cluster(server)
    assert not [line for line in plan(server) if "at once: " in line]


def test_a_gang_scheduler_gets_its_permissions_in_the_namespace(server: Server) -> None:
    cluster(server, deployments=[deployment(args=["--gang-scheduler-name=volcano"])])
    lines = plan(server)
    role = "tf-job-operator-gang-scheduling"
    assert (
        f"kubectl -n team create rolebinding {role} --clusterrole={role} --serviceaccount=team:tf-job-operator"
        in "\n".join(lines)
    )
    (sed,) = [line for line in lines if line.startswith("sed -i ")]
    assert sed.endswith(" tfjob-operator-team.yaml")
    assert "--gang-scheduler-name=volcano" in sed


def test_a_plan_for_a_namespace_that_was_moved_keeps_the_flags_of_its_operator_alone(server: Server) -> None:
    ours = [
        installed("team", "--restart-backoff=false", "--namespace=$(KUBEFLOW_NAMESPACE)"),
        installed("ml", "--fallback-to-logs=false", "--namespace=$(KUBEFLOW_NAMESPACE)"),
    ]
    cluster(server, ours=ours, moved=["ml", "team"])
    (sed,) = [line for line in plan(server) if line.startswith("sed -i ")]
    assert re.findall(r"1(--[-=a-z0-9]+)", sed) == ["--restart-backoff=false"]


def test_what_gitops_would_undo_is_named(server: Server) -> None:
    mark: Any = {"labels": {"app.kubernetes.io/instance": "x"}}
    cluster(server, bindings=[binding(**mark)])
    server.answers(CRD, {"metadata": {"name": "tfjobs.kubeflow.org", **mark}})
    managed = [line for line in plan(server) if " manages " in line]
    assert [line.partition(", ")[0] for line in managed] == [
        "# Argo CD or Helm manages its ClusterRoleBinding",
        "# Argo CD or Helm manages the CRD tfjobs.kubeflow.org",
    ]


def test_without_permission_to_read_bindings_those_of_the_manifests_are_assumed(server: Server) -> None:
    cluster(server)
    server.answers(BINDINGS, DENIED, code=403)
    code, out, err = outcome(server.run("migrate", "--plan", "-n", "team"))
    assert code == 0
    assert (
        err
        == "warning: no permission to read ClusterRoleBindings: the plan assumes the manifests of training-operator\n"
    )
    assert f"kubectl {server.flags} delete clusterrolebinding training-operator --ignore-not-found" in out.splitlines()


def test_the_plan_for_all_finds_installations_by_their_deployments_too(server: Server) -> None:
    """Nothing labels the namespace of one that was installed without a plan."""
    cluster(server, moved=["ml"], ours=[installed("kubeflow"), installed("nlp", "--namespace=nlp")])
    lines = server.run("migrate", "--plan").stdout.replace(f" {server.flags}", "").splitlines()
    for part in (there(lines), way_back(lines)):
        assert [line.split()[2] for line in part if " delete deployment,service," in line] == ["ml", "nlp"]


def test_a_cluster_wide_installation_that_is_replaced_loses_its_cluster_role_bindings(server: Server) -> None:
    """Whoever may create a ServiceAccount there would get its permissions. Those with other subjects are only named."""
    own, label = account("ml", "tf-job-operator"), {"app.kubernetes.io/name": "tfjob-operator"}
    found = [
        binding("ml-operator", "tf-job-operator", [own], labels=label),
        binding("shared", "tf-job-operator", [own, account("nlp", "tf-job-operator")], labels=label),
        binding("by-hand", "view", [own]),
        binding("other", "tf-job-operator", [account("ml", "other")]),
        binding(),
    ]
    cluster(server, ours=[installed("ml")], bindings=found)
    plan_for_all = server.run("migrate", "--plan").stdout.replace(f" {server.flags}", "").splitlines()
    for lines in (there(plan_for_all), way_back(plan_for_all)):
        deleted = position(lines, "kubectl delete clusterrolebinding ml-operator --ignore-not-found")
        assert deleted < position(lines, "kubectl -n ml delete deployment,")
        assert [line for line in lines if "delete clusterrolebinding" in line] == [lines[deleted]]
        for name in ("shared", "by-hand"):
            named = f"#    Remove its ServiceAccount from the ClusterRoleBinding {name}, which others may use too."
            assert named in lines
    server.answers(BINDINGS, DENIED, code=403)
    text = server.run("migrate", "--plan").stdout
    assert "#    Delete the ClusterRoleBindings of its ServiceAccount tf-job-operator too: they cannot be read." in text


def test_the_plan_for_all_replaces_the_installations_of_namespaces_that_were_moved_before(server: Server) -> None:
    """And gives training-operator its ClusterRoleBinding again, if it continues with other kinds, and on the way back.

    The way back may be executed before the other steps: then these installations still run.
    """
    peer = [deployment(meta={"annotations": {RECORD: '{"training-operator": "training-operator"}'}})]
    bound = "kubectl create clusterrolebinding training-operator "
    kinds = "deployment,service,serviceaccount,role,rolebinding,networkpolicy,configmap"
    for others in (items(), items({"metadata": {"name": "bert"}})):
        cluster(server, deployments=peer, moved=["team", "ml"], bindings=[], pytorchjobs=others)
        lines = server.run("migrate", "--plan").stdout.replace(f" {server.flags}", "").splitlines()
        forward, back = there(lines), way_back(lines)
        for part, before in (
            (forward, position(forward, "kubectl apply --server-side")),
            (back, min(position(back, bound), position(back, "kubectl label namespaces --all"))),
        ):
            for namespace in ("ml", "team"):
                removed = f"kubectl -n {namespace} delete {kinds} --selector=app.kubernetes.io/name=tfjob-operator"
                assert position(part, removed) < position(part, f'[ "$(kubectl -n {namespace} get pod ') < before
        assert f"kubectl label namespaces --all {LABEL}-" in back
        restart = "kubectl -n kubeflow rollout restart deployment/training-operator"
        assert position(back, bound) < position(back, restart)
        if others["items"]:
            assert position(forward, bound) < position(forward, "# 3. Install")
        else:
            assert not [line for line in forward if line.startswith(bound)]


def test_a_namespace_with_an_operator_but_without_the_label_counts_as_moved(server: Server) -> None:
    """training-operator gets no permissions there, and loses those that it got when no operator ran there."""
    ours = (
        installed("ml", "--namespace=ml"),
        installed("x", "--namespace=nlp"),
        installed("off", "--namespace=off", wanted=0),
    )
    cluster(server, ours=ours, moved=["old"])
    lines = plan(server)
    for namespace in ("ml", "nlp"):
        label = position(lines, f"kubectl label namespace {namespace} {LABEL}=tfjob-operator --overwrite")
        assert label < position(lines, "if namespaces=")
        unbound = position(lines, f"kubectl -n {namespace} delete rolebinding training-operator ")
        assert unbound < position(lines, f'until case "$(kubectl -n {namespace} auth can-i create pods ')
    assert not [line for line in commands(lines) if "old" in line or "off" in line]


RECORDED = {"annotations": {"tfjob.kubeflow.org/before-migration": '{"command": null, "args": null, "replicas": 1}'}}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (deployment(args=["--enable-scheme=pytorchjob"]), "--enable-scheme of training-operator has no tfjob"),
        (deployment() | {"spec": deployment()["spec"] | {"replicas": 0}}, "it has 0 replicas"),
        (deployment(meta=RECORDED), "a plan for all namespaces has begun to stop it"),
    ],
)
def test_a_namespace_cannot_be_moved_alone_while_training_operator_does_not_serve_the_others(
    server: Server, found: Any, why: str
) -> None:
    """As after step 2 of an interrupted plan for all namespaces: no namespace but this one would have an operator."""
    cluster(server, deployments=[found])
    code, out, err = outcome(server.run("migrate", "--plan", "-n", "team"))
    assert (code, out) == (1, "")
    assert err.startswith("error: training-operator may not serve the other namespaces: ")
    assert why in err
    assert "Back 1 to Back 3 of `kubectl tfjob migrate --plan`" in err


def test_the_plan_names_the_jobs_of_other_namespaces_that_training_operator_fails_itself(server: Server) -> None:
    """It evaluates all jobs when their CRD is replaced, and at its restart on the way back."""
    cluster(server, PUBLIC["mnist"], moved=["moved"])
    late = {"spec": PUBLIC["mnist"]["spec"] | {"runPolicy": {"activeDeadlineSeconds": 60}}}
    late["status"] = {"conditions": [], "startTime": "2026-01-01T00:00:00Z"}
    names = [("team", "here"), ("moved", "served"), ("other", "late")]
    metas = ({"namespace": each, "name": name, "uid": name} for each, name in names)
    server.answers(OF_ALL, items(*({"metadata": meta} | late for meta in metas)))
    lines = plan(server)
    start = position(lines, "# 1 TFJob of other namespaces under deadline-exceeded: training-operator")
    assert lines[start + 2] == "#   other/late"
    assert not {"#   team/here", "#   moved/served"} & set(lines)
    (check,) = [line for line in lines if "error: TFJobs would fail or be deleted at the move (1)" in line]
    assert "deadline-exceeded: other/late" in check
    server.responses.pop(OF_ALL)
    server.otherwise = (403, json.dumps(DENIED).encode())
    result = server.run("migrate", "--plan", "-n", "team")
    assert "of other namespaces" not in result.stdout
    assert "warning: no permission to list TFJobs of all namespaces: jobs beyond their deadlines" in result.stderr
