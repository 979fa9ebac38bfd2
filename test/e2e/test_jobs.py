"""Jobs with real processes: they communicate, end in all ways, and are restarted by the real kubelet or the operator."""

import datetime as dt
import json
import time
from typing import Any, NamedTuple

import pytest

from e2e.cluster import RUNS, NodeCluster, job, replica, runs, script
from hack.kubernetes_versions import CONTAINER_RESTART_RULES, ORDINARY_POLICIES_REFUSED
from hack.real_node.node import NODE
from integration.cluster import specs, with_policy
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

FOREVER = "while true; do sleep 1; done"
DIE = "python3 -c 'import os; os.kill(os.getpid(), {})'; exit $?"
"""A process that dies of a signal; the shell around it, the first process, exits with 128 and the signal's number."""

SERVER = """
import json, os, socket
place = json.loads(os.environ["TF_CONFIG"])
with socket.create_server(("", 2222)) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"parameters")
"""
WORKER = """
import json, os, socket, sys, time
place = json.loads(os.environ["TF_CONFIG"])
for address in place["cluster"]["ps"]:
    host, port = address.split(":")
    for attempt in range(60):
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                print("worker", place["task"]["index"], "got", connection.recv(99).decode(), "from", address)
                break
        except OSError:
            time.sleep(0.5)
    else:
        sys.exit(f"no way to {address}")
"""


@pytest.mark.parametrize(("network", "subdomain"), [("perReplica", ""), ("shared", ".talks")])
def test_replicas_find_each_other_by_the_names_in_tf_config(cluster: NodeCluster, network: str, subdomain: str) -> None:
    """Workers reach the parameter servers through headless services and the cluster's DNS; `kubectl logs` shows it."""
    servers = replica(["python3", "-c", SERVER], policy="Always", replicas=2)
    workers = replica(["python3", "-uc", WORKER], policy="OnFailure", replicas=2)
    talks = job("talks", with_policy(specs(PS=servers, Worker=workers), cleanPodPolicy="Running", network=network))
    talks["spec"]["successPolicy"] = "AllWorkers"  # else the job ends with worker 0, and a slower one is deleted
    cluster.create(talks)
    cluster.wait_for("talks", ConditionType.SUCCEEDED)
    for index in (0, 1):
        log = cluster.kubectl("logs", f"talks-worker-{index}")
        assert [line for line in log.splitlines() if line.startswith("worker")] == [
            f"worker {index} got parameters from talks-ps-{server}{subdomain}.default.svc:2222" for server in (0, 1)
        ]
    _wait_until_left(cluster, "talks", ["worker-0", "worker-1"])
    cluster.delete("talks")


def test_a_process_of_a_large_job_sees_the_whole_tf_config_whenever_it_is_started(cluster: NodeCluster) -> None:
    """U1, D9: the real kubelet fills it in from the ConfigMap, with the same bytes as if it stood in the pod, and again when
    the container restarts in place, even after somebody deleted the ConfigMap. Most replicas of this job find no node.
    """
    name = "a-job-of-many-replicas-with-rather-long-names"
    note = 'printf %s "$TF_CONFIG" > /runs/config-$RUN; test $RUN -ge 2 && exit 0; '
    worker = replica(script(name, then=note + FOREVER), policy="OnFailure")
    nowhere = replica(["true"], replicas=100)
    nowhere["template"]["spec"]["nodeSelector"] = {"there-is": "none-such"}
    cluster.create(job(name, specs(Worker=worker, Evaluator=nowhere)))
    pod = f"{name}-worker-0"
    cluster.eventually((RUNS / "config-1").exists, "the process runs")
    first, label = _config_maps(cluster, name), cluster.get("pod", pod)["metadata"]["labels"][c.LABEL_CLUSTER_SPEC]
    assert list(first) == [f"{name}-cluster-{label}"]
    assert not any("value" in each and len(each["value"]) > 500 for each in _environment(cluster, pod))
    cluster.kubectl("delete", "configmap", *first)
    cluster.eventually(lambda: _config_maps(cluster, name).keys() == first.keys(), "the ConfigMap is made again")
    assert _config_maps(cluster, name) != first
    cluster.kill_container(pod)
    cluster.wait_for(name, ConditionType.SUCCEEDED)
    evaluators = ",".join(f'"{name}-evaluator-{index}.default.svc:2222"' for index in range(100))
    whole = f'{{"evaluator":[{evaluators}],"worker":["{name}-worker-0.default.svc:2222"]}}'
    expected = f'{{"cluster":{whole},"task":{{"type":"worker","index":0}},"environment":"cloud"}}'
    assert [(RUNS / f"config-{run}").read_text() for run in (1, 2)] == [expected, expected]
    cluster.eventually(lambda: not _config_maps(cluster, name), "the ConfigMap goes when nothing needs it")
    cluster.delete(name)


def _config_maps(cluster: NodeCluster, job_name: str) -> dict[str, str]:
    text = cluster.kubectl("get", "configmaps", "-n", "default", "-l", f"job-name={job_name}", "-o", "json")
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in json.loads(text)["items"]}


def _environment(cluster: NodeCluster, pod: str) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = cluster.get("pod", pod)["spec"]["containers"][0]["env"]
    return variables


class Ending(NamedTuple):
    """How a worker's process ends, and what is expected: the job's state, the starts of the process, the pods."""

    name: str
    policy: str
    then: str
    state: str
    starts: int = 1
    pods: int = 1


SIGTERM_ONCE = f"test $RUN -ge 2 || {{ {DIE.format(15)}; }}"
ENDINGS = (
    Ending("never-0", "Never", "exit 0", ConditionType.SUCCEEDED),
    Ending("never-1", "Never", "exit 1", ConditionType.FAILED),
    Ending("never-137", "Never", "exit 137", ConditionType.FAILED),
    Ending("onfailure-1", "OnFailure", "test $RUN -ge 2", ConditionType.SUCCEEDED, starts=2),
    Ending("onfailure-137", "OnFailure", "test $RUN -ge 2 || exit 137", ConditionType.SUCCEEDED, starts=2),
    Ending("exitcode-0", "ExitCode", "exit 0", ConditionType.SUCCEEDED),
    Ending("exitcode-1", "ExitCode", "exit 1", ConditionType.FAILED),
    Ending("exitcode-137", "ExitCode", "test $RUN -ge 2 || exit 137", ConditionType.SUCCEEDED, starts=2, pods=2),
    Ending("exitcode-138", "ExitCode", "test $RUN -ge 2 || exit 138", ConditionType.SUCCEEDED, starts=2, pods=2),
    Ending("exitcode-sigterm", "ExitCode", SIGTERM_ONCE, ConditionType.SUCCEEDED, starts=2, pods=2),
    Ending("exitcode-sigsegv", "ExitCode", DIE.format(11), ConditionType.FAILED),
)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_what_a_process_exits_with_decides_by_its_policy(cluster: NodeCluster, ending: Ending) -> None:
    """The process is started again in the same pod if the kubelet restarts it, and in a new pod if the operator does."""
    name = f"ends-{ending.name}"
    worker = replica(script(name, then=ending.then), policy=ending.policy)
    cluster.create(job(name, with_policy(specs(Worker=worker), cleanPodPolicy="None")))
    cluster.wait_for(name, ending.state)
    assert runs(name) == ending.starts
    assert cluster.pod(f"{name}-worker-0")[1] == ending.starts - ending.pods, "restarts of the last pod's container"
    cluster.delete(name)


def test_always_runs_a_process_again_that_ended_well(cluster: NodeCluster) -> None:
    """The kubelet restarts it in place, and the job goes on."""
    servers = replica(script("always", then="sleep 1"), policy="Always")
    cluster.create(job("always", specs(PS=servers, Worker=replica(["sh", "-c", FOREVER]))))
    cluster.eventually(lambda: runs("always") >= 3, "it runs again and again")
    assert cluster.state("always") == ConditionType.RUNNING
    cluster.delete("always")


def test_a_killed_container_is_restarted_in_its_pod(cluster: NodeCluster) -> None:
    """After SIGKILL from outside, as when memory runs out, the pod stays, and its container is restarted in it."""
    cluster.create(job("shot", specs(Worker=replica(script("shot", then=FOREVER), policy="OnFailure"))))
    cluster.eventually(lambda: runs("shot") == 1 and cluster.is_running("shot-worker-0"), "it runs")
    uid, _ = cluster.pod("shot-worker-0")
    cluster.kill_container("shot-worker-0")
    cluster.eventually(lambda: cluster.pod("shot-worker-0") == (uid, 1), "it was restarted in place")
    cluster.wait_for("shot", ConditionType.RUNNING)
    cluster.delete("shot")


def test_a_killed_container_gets_a_new_pod_by_its_exit_code(cluster: NodeCluster) -> None:
    """With 137 the replica is tried again; under ExitCode the operator does that, with a new pod."""
    then = f"test $RUN -ge 2 || {FOREVER}"
    cluster.create(job("replaced", specs(Worker=replica(script("replaced", then=then), policy="ExitCode"))))
    cluster.eventually(lambda: runs("replaced") == 1 and cluster.is_running("replaced-worker-0"), "it runs")
    cluster.kill_container("replaced-worker-0")
    cluster.wait_for("replaced", ConditionType.SUCCEEDED)
    assert runs("replaced") == 2
    cluster.delete("replaced")


def test_a_deleted_pod_is_made_again(cluster: NodeCluster) -> None:
    """After somebody's `kubectl delete pod` the replica runs again, and the job succeeds."""
    then = f"test $RUN -ge 2 || {FOREVER}"
    cluster.create(job("robbed", specs(Worker=replica(script("robbed", then=then), policy="OnFailure"))))
    cluster.eventually(lambda: runs("robbed") == 1 and cluster.is_running("robbed-worker-0"), "it runs")
    cluster.kubectl("delete", "pod", "robbed-worker-0")
    cluster.wait_for("robbed", ConditionType.SUCCEEDED)
    assert runs("robbed") == 2
    cluster.delete("robbed")


def test_a_job_that_saves_its_work_when_it_is_suspended_goes_on_when_it_is_resumed(cluster: NodeCluster) -> None:
    """An orderly exit on SIGTERM, with the code 0, is not the end of the training."""
    then = f"trap 'exit 0' TERM; test $RUN -ge 2 || {FOREVER.replace('sleep 1', 'sleep 0.1')}"
    cluster.create(job("saves", specs(Worker=replica(script("saves", then=then), policy="OnFailure"))))
    cluster.eventually(lambda: runs("saves") == 1 and cluster.is_running("saves-worker-0"), "it runs")
    _suspend(cluster, "saves", suspend=True)
    cluster.eventually(lambda: not cluster.get("pod", "saves-worker-0"), "its pod is gone")
    cluster.wait_for("saves", ConditionType.SUSPENDED)
    _suspend(cluster, "saves", suspend=False)
    cluster.wait_for("saves", ConditionType.SUCCEEDED)
    assert runs("saves") == 2
    cluster.delete("saves")


@pytest.mark.parametrize("how", ["deleted", "drained"])
def test_a_pod_that_saves_its_work_when_it_is_told_to_go_is_not_done(cluster: NodeCluster, how: str) -> None:
    """M2, M10: exit code 0 after SIGTERM is no success, whatever the pod's last status says."""
    name = f"{how}-saves"
    then = f"trap 'exit 0' TERM; test $RUN -ge 2 || {FOREVER.replace('sleep 1', 'sleep 0.1')}"
    cluster.create(job(name, specs(Worker=replica(script(name, then=then), policy="OnFailure"))))
    cluster.eventually(lambda: runs(name) == 1 and cluster.is_running(f"{name}-worker-0"), "it runs")
    if how == "deleted":
        cluster.kubectl("delete", "pod", f"{name}-worker-0")
    else:
        cluster.kubectl("drain", NODE, f"--pod-selector=job-name={name}", "--force")
        cluster.kubectl("uncordon", NODE)
    cluster.wait_for(name, ConditionType.SUCCEEDED)
    assert runs(name) == 2
    cluster.delete(name)


def test_the_rules_of_restart_in_a_container_are_followed(cluster: NodeCluster) -> None:
    """M3: a kubelet that knows them starts the process again in its pod, and the job waits; an older one does not restart it.

    API servers of 1.28 to 1.33 refuse the pod, so the job fails before anything runs.
    """
    worker = replica(script("ruled", then="test $RUN -ge 2 || exit 42"), policy="Never")
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    worker["template"]["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    cluster.create(job("ruled", with_policy(specs(Worker=worker), cleanPodPolicy="None")))
    version = cluster.node.plane.version
    knows_rules = version.has(CONTAINER_RESTART_RULES)
    cluster.wait_for("ruled", ConditionType.SUCCEEDED if knows_rules else ConditionType.FAILED)
    if version.has(ORDINARY_POLICIES_REFUSED):
        assert (runs("ruled"), cluster.pods_of("ruled")) == (0, [])
    else:
        assert runs("ruled") == 1 + knows_rules
        assert cluster.pod("ruled-worker-0")[1] == int(knows_rules)
    cluster.delete("ruled")


def _suspend(cluster: NodeCluster, name: str, *, suspend: bool) -> None:
    patch = json.dumps({"spec": {"runPolicy": {"suspend": suspend}}})
    cluster.kubectl("patch", "tfjob", name, "--type=merge", f"--patch={patch}")


def test_the_log_of_a_worker_that_has_ended_can_be_read_under_the_default_policy(cluster: NodeCluster) -> None:
    """M1: kubelets report the end of the containers a second before that of the pod; meanwhile the pod is not deleted."""
    cluster.create(job("readable", specs(Worker=replica(script("readable", then="exit 0")))))
    cluster.wait_for("readable", ConditionType.SUCCEEDED)

    def phase() -> str:
        return str(cluster.get("pod", "readable-worker-0").get("status", {}).get("phase", "gone"))

    cluster.eventually(lambda: phase() in {"Succeeded", "gone"}, "the kubelet is done with the pod", yet=phase)
    assert "run 1 of readable" in cluster.kubectl("logs", "readable-worker-0")
    cluster.delete("readable")


@pytest.mark.parametrize(("policy", "left"), [("All", []), ("Running", ["worker-0"]), ("None", ["ps-0", "worker-0"])])
def test_the_clean_up_policy_says_which_pods_go(cluster: NodeCluster, policy: str, left: list[str]) -> None:
    """Pods that have ended stay, with their logs, except under All; pods that run are deleted, except under None."""
    name = f"cleans-{policy.lower()}"
    replicas = {"PS": replica(["sh", "-c", FOREVER]), "Worker": replica(script(name, then="sleep 1"))}
    cluster.create(job(name, with_policy(specs(**replicas), cleanPodPolicy=policy)))
    cluster.wait_for(name, ConditionType.SUCCEEDED)
    _wait_until_left(cluster, name, left)
    cluster.delete(name)


GRACE_S = 12
COLLECTOR = "until test -e /runs/$DONE; do sleep 0.2; done; sleep 5; touch /runs/collected-$DONE"
RESTART_ALL = {"failurePolicy": {"maxRestarts": 1, "rules": [{"action": "RestartAll"}]}}


@pytest.mark.parametrize(
    ("end", "then", "policy"),
    [
        (ConditionType.SUCCEEDED, "true", {}),
        (ConditionType.FAILED, "exit 1", {}),
        (ConditionType.RESTARTING, "test $RUN -ge 2", RESTART_ALL),
    ],
)
@pytest.mark.parametrize("sidecar", [COLLECTOR, "exec sleep 3600"], ids=["collector", "proxy"])
def test_a_sidecar_outlives_the_training_for_its_grace_period(
    cluster: NodeCluster, sidecar: str, end: str, then: str, policy: dict[str, Any]
) -> None:
    """A collector of 5 s does its work; a proxy that never ends holds its own pod for the grace period, and nothing else."""
    is_collector = sidecar == COLLECTOR
    name = f"{'collects' if is_collector else 'proxies'}-{end.lower()}"
    worker = replica(script(name, then=f"touch /runs/{name}-done; {then}"))
    containers = worker["template"]["spec"]["containers"]
    environment = [{"name": "DONE", "value": f"{name}-done"}]
    containers.append(containers[0] | {"name": "sidecar", "command": ["sh", "-c", sidecar], "env": environment})
    cluster.create(job(name, with_policy(specs(Worker=worker), completionGracePeriodSeconds=GRACE_S, **policy)))
    status = cluster.wait_for(name, end)
    pod = f"{name}-worker-0"
    uid = cluster.pod(pod)[0]
    if is_collector:
        cluster.eventually((RUNS / f"collected-{name}-done").exists, "the collector has done its work")
    else:
        cluster.eventually(lambda: cluster.pod(pod)[0] != uid, "the proxy's pod is deleted")
        assert time.time() - _seconds(status["conditions"][-1]["lastTransitionTime"]) >= GRACE_S
    if end == ConditionType.RESTARTING:
        cluster.wait_for(name, ConditionType.SUCCEEDED)
        assert runs(name) == 2
    cluster.delete(name)


def _seconds(timestamp: str) -> float:
    return dt.datetime.fromisoformat(timestamp).timestamp()


def _wait_until_left(cluster: NodeCluster, name: str, replicas: list[str]) -> None:
    def pods() -> list[str]:
        return [pod.removeprefix(f"{name}-") for pod in cluster.pods_of(name)]

    cluster.eventually(lambda: pods() == replicas, f"the pods of {replicas} are left", yet=pods)
