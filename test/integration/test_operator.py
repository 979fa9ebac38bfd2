"""The operator from a user's view: a process, kubectl, a real API server, and a hollow node for the pods."""

import functools
import json
import signal
from typing import Any

import pytest

from hack.hollow_node.script import RUN
from hack.objects import an_object
from integration.cluster import BOTH_KUBELETS, Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType


@BOTH_KUBELETS
def test_a_job_lives_from_created_to_succeeded(served: Cluster) -> None:
    """Pods, services, TF_CONFIG, conditions, counters, times and events, as seed documents show them."""
    served.create("mnist", specs(PS=replica(run="forever"), Worker=replica(2, "OnFailure", "2s:0")))
    served.wait_for("mnist", ConditionType.RUNNING)
    children = ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
    assert served.names("pods") == children
    assert served.names("services") == children
    pod = served.api("GET", "pods", "mnist-worker-1")
    env = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}
    suffix = f"{served.namespace}.svc:2222"
    assert json.loads(env["TF_CONFIG"]) == {
        "cluster": {"ps": [f"mnist-ps-0.{suffix}"], "worker": [f"mnist-worker-0.{suffix}", f"mnist-worker-1.{suffix}"]},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }
    status = served.wait_for("mnist", ConditionType.SUCCEEDED)
    shown = {each["type"]: each["status"] for each in status["conditions"]}
    assert list(shown.items()) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert status["startTime"] <= status["completionTime"]
    eventually(lambda: "mnist-ps-0" not in served.names("pods"), "the parameter server is cleaned up")
    assert "mnist-worker-0" in served.names("pods")
    assert served.job("mnist")["status"]["replicaStatuses"]["PS"] == {"active": 0, "succeeded": 1, "failed": 0}
    eventually(lambda: len(served.events("mnist")) >= 9, "events are written")
    events = served.events("mnist")
    for name in children:
        assert ("Normal", "SuccessfulCreatePod", f"Created pod: {name}") in events
        assert ("Normal", "SuccessfulCreateService", f"Created service: {name}") in events
    assert ("Normal", "SuccessfulDeletePod", "Deleted pod: mnist-ps-0") in events
    text = f"TFJob {served.namespace}/mnist successfully completed."
    assert ("Normal", "TFJobSucceeded", text) in events
    assert not served.warnings("mnist")


def test_a_job_with_a_shared_network_has_one_service_until_its_last_pod_is_gone(served: Cluster) -> None:
    """`kubectl get services` shows one, which every pod has as its subdomain; an edit is answered by a Warning."""
    spec = specs(PS=replica(run="forever"), Worker=replica(2, "ExitCode", "2s:137, 2s:0"))
    served.create("mnist", with_policy(spec, network="shared", cleanPodPolicy="All"))
    served.wait_for("mnist", ConditionType.RUNNING)
    assert served.names("services") == ["mnist"]
    assert served.names("pods") == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
    places = {(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in served.items("pods")}
    assert places == {(name, "mnist") for name in served.names("pods")}
    assert served.job("mnist")["status"]["begun"]["network"] == "shared"
    served.patch("tfjobs", "mnist", {"spec": {"runPolicy": {"network": "perReplica"}}})
    eventually(lambda: "NetworkNotUpdated" in dict(served.warnings("mnist")), "it is told")
    served.api("DELETE", "services", "mnist")
    eventually(lambda: served.names("services") == ["mnist"], "the service is made again")
    served.wait_for("mnist", ConditionType.SUCCEEDED)
    served.wait_for_no_children()


@pytest.mark.parametrize(("network", "edit"), [("shared", "perReplica"), ("perReplica", "shared")])
def test_running_pods_keep_their_services_when_the_status_is_lost(cluster: Cluster, network: str, edit: str) -> None:
    """The record of the start, or all of the status, as by another operator; and the network is edited, too."""
    jobs: dict[str, Any] = {"record": {"begun": None}, "status": None}
    with cluster.node():
        with cluster.operator():
            for name in jobs:
                cluster.create(name, with_policy(specs(Worker=replica(2, run="forever")), network=network))
            for name in jobs:
                cluster.wait_for(name, ConditionType.RUNNING)
        before = cluster.uids("pods", "services")
        for name, status in jobs.items():
            cluster.patch("tfjobs", f"{name}/status", {"status": status})
            cluster.patch("tfjobs", name, {"spec": {"runPolicy": {"network": edit}}})
            assert "begun" not in cluster.job(name).get("status", {})
        with cluster.operator():
            eventually(
                lambda: all("NetworkNotUpdated" in dict(cluster.warnings(each)) for each in jobs), "it is told of"
            )
            for name in jobs:
                begun = cluster.wait_for(name, ConditionType.RUNNING)["begun"]
                assert begun.get("network", "perReplica") == network
            again = "pods/record-worker-1"
            cluster.api("DELETE", "pods", "record-worker-1")
            eventually(lambda: cluster.uids("pods").get(again) not in {None, before[again]}, "it is created again")
            after = cluster.uids("pods", "services")
        assert after == before | {again: after[again]}
        subdomains = {each["spec"].get("subdomain", "") for each in cluster.items("pods")}
        assert subdomains == ({*jobs} if network == "shared" else {""})


@BOTH_KUBELETS
def test_a_replica_that_ends_badly_is_treated_by_its_restart_policy(served: Cluster) -> None:
    """U8: Never fails the job, and says which pod failed with what; ExitCode makes a new pod; OnFailure is the kubelet's."""
    served.create("bad", specs(Chief=replica(run="forever"), Worker=replica(run="0.5s:1")))
    served.create("again", specs(Worker=replica(1, "ExitCode", "0.5s:137, 0.5s:0")))
    served.create("place", specs(Worker=replica(1, "OnFailure", "0.3s:1, 0.3s:0")))
    status = served.wait_for("bad", ConditionType.FAILED)
    text = f"TFJob {served.namespace}/bad has failed because 1 Worker replica(s) failed. Pod bad-worker-0: "
    assert status["conditions"][-1]["message"] == f"{text}container tensorflow exited with code 1"
    eventually(lambda: "bad-chief-0" not in served.names("pods"), "the running chief is cleaned up")
    assert "bad-worker-0" in served.names("pods")
    for name in ("again", "place"):
        served.wait_for(name, ConditionType.SUCCEEDED)
    reasons = [reason for _, reason, _ in served.events("again")]
    assert (reasons.count("ExitedWithCode"), reasons.count("TFJobRestarting")) == (1, 1)
    restarted = served.api("GET", "pods", "place-worker-0")["status"]["containerStatuses"][0]
    assert restarted["restartCount"] == 1


@BOTH_KUBELETS
def test_an_operator_that_is_killed_is_followed_by_one_that_goes_on_where_it_was(cluster: Cluster) -> None:
    """B33, B36, B55: nothing durable lives in memory, and what happens while no operator runs is found in the state.

    No pod is made twice, a limit of two restarts counts those before, a finished job is not touched.
    """
    with cluster.node():
        with cluster.operator() as operator:
            cluster.create("idle", specs(Worker=replica()))
            cluster.create("half", specs(PS=replica(run="forever"), Worker=replica(2, "OnFailure", "4s:0")))
            cluster.create("missed", specs(PS=replica(run="forever"), Worker=replica(run="6s:0")))
            cluster.wait_for("idle", ConditionType.SUCCEEDED)
            cluster.wait_for("half", ConditionType.RUNNING)
            cluster.wait_for("missed", ConditionType.RUNNING)
            cluster.create("thrice", with_policy(specs(Worker=replica(1, "ExitCode", "2s:137")), backoffLimit=2))
            # A killed process loses the events that it has queued, and the second pod does not fail before the kill.
            eventually(lambda: cluster.created("thrice") == 2, "the first restart is reported")
            operator.end(signal.SIGKILL)
        before, started, idle = cluster.uids("pods"), cluster.job("half")["status"]["startTime"], cluster.job("idle")
        eventually(
            lambda: cluster.api("GET", "pods", "missed-worker-0")["status"]["phase"] == "Succeeded", "its worker ends"
        )
        assert cluster.state("missed") == ConditionType.RUNNING
        with cluster.operator():
            message = cluster.wait_for("thrice", ConditionType.FAILED)["conditions"][-1]["message"]
            assert message.startswith("Job thrice has failed because it has reached the specified backoff limit")
            most = (
                "Pod thrice-worker-0 was restarted most often (2 times); its last failure: container tensorflow exited"
            )
            assert most in message
            eventually(lambda: "BackoffLimitExceeded" in dict(cluster.warnings("thrice")), "the limit is reported")
            assert cluster.created("thrice") == 3
            assert cluster.wait_for("half", ConditionType.SUCCEEDED)["startTime"] == started
            cluster.wait_for("missed", ConditionType.SUCCEEDED)
            eventually(lambda: not any("-ps-" in name for name in cluster.names("pods")), "parameter servers are gone")
            after = {name: uid for name, uid in cluster.uids("pods").items() if "thrice" not in name}
            assert after.items() <= before.items()
            assert cluster.job("idle") == idle


def test_deadline_and_ttl_end_a_job_and_remove_it(served: Cluster) -> None:
    """B45, B46, B47: a deadline of 3 s and a TTL of 3 s; the running pod is deleted though cleanPodPolicy is None."""
    policy = {"activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 3, "cleanPodPolicy": "None"}
    served.create("late", with_policy(specs(Worker=replica(run="forever")), **policy))
    status = served.wait_for("late", ConditionType.FAILED)
    assert status["conditions"][-1]["message"].endswith("it was active longer than specified deadline")
    eventually(lambda: "DeadlineExceeded" in dict(served.warnings("late")), "the limit is reported")
    eventually(lambda: not served.names("pods"), "the running pod is gone")
    eventually(lambda: not served.names("tfjobs"), "the job is gone")


@BOTH_KUBELETS
def test_a_job_can_be_suspended_and_resumed_with_kubectl(served: Cluster) -> None:
    """B35, B74: suspended, it has no pods and active is 0; resumed, it has pods, a new start time and the right STATE."""
    served.create("pause", specs(Worker=replica(2, run="3s:0")))
    started = served.wait_for("pause", ConditionType.RUNNING)["startTime"]
    for suspend, state in ((True, "Suspended"), (False, ConditionType.RUNNING)):
        patch = json.dumps({"spec": {"runPolicy": {"suspend": suspend}}})
        served.kubectl("patch", "tfjob", "pause", "--type=merge", f"--patch={patch}")
        served.wait_for("pause", state)
        if suspend:
            served.wait_for_no_children()
            eventually(lambda: served.job("pause")["status"]["replicaStatuses"]["Worker"]["active"] == 0, "active is 0")
    assert served.wait_for("pause", ConditionType.SUCCEEDED)["startTime"] > started


def bad_template(container: dict[str, Any]) -> dict[str, Any]:
    return specs(Worker={"template": {"spec": {"containers": [container]}}})


INVALID = {
    "only-unknown-keys": ({"foo": 1}, "spec.tfReplicaSpecs: Required value"),
    "no-containers": (specs(Worker={"template": {"spec": {"containers": []}}}), "at least one container"),
    "no-tensorflow": (bad_template({"name": "main", "image": "i"}), "one container must be named tensorflow"),
    "two-chiefs": (specs(Chief=replica(2)), "a job has one chief"),
    "negative": (specs(PS=replica(-1)), "must be a non-negative integer"),
    "null-replica": (specs(Worker=None), "not null"),  # type: ignore[arg-type]
    "a" * 60: (specs(Worker=replica()), "must be no more than 54 characters"),
    "bad-volume": (
        bad_template({"name": "tensorflow", "image": "i", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}),
        'was rejected: Pod "bad-volume-worker-0" is invalid',
    ),
}


def test_a_wrong_specification_fails_its_job_and_no_other(cluster: Cluster) -> None:
    """B01, B02, B03, B05: a Failed condition that says what to mend, one Warning, no children; others go on."""
    with cluster.operator(), cluster.node():
        for name, (spec, _) in INVALID.items():
            cluster.create(name, spec)
        cluster.create("good", specs(Worker=replica()))
        for name, (_, expected) in INVALID.items():
            condition = cluster.wait_for(name, ConditionType.FAILED)["conditions"][-1]
            assert condition["reason"] == "InvalidTFJobSpec"
            assert "the spec is invalid" in condition["message"]
            assert expected in condition["message"]
        cluster.wait_for("good", ConditionType.SUCCEEDED)
        for name in INVALID:
            warnings = eventually(functools.partial(cluster.warnings, name), f"the event of {name} is written")
            assert [reason for reason, _ in warnings] == ["InvalidTFJobSpec"]
        eventually(lambda: cluster.names("services") == ["good-worker-0"], "refused jobs keep no service")
        assert cluster.names("pods") == ["good-worker-0"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("x", "spec in body must be of type object"),
        (specs(Worker=replica() | {"replicas": "two"}), "two is of the type string, expected int64"),
        (specs(Worker=replica(-1)), "should be a non-negative integer"),
        (specs(PS=replica() | {"replicas": "two"}), "PS.replicas in body must be of type integer"),
        (specs(Worker=replica()) | {"runPolicy": "x"}, "spec.runPolicy in body must be of type object"),
        (bad_template({"name": "tensorflow", "image": "i", "args": [1]}), "must be of type string"),
    ],
)
def test_a_mistake_that_the_api_server_finds_is_reported_by_kubectl(cluster: Cluster, spec: Any, told: str) -> None:
    """B02, U6: a value of a wrong type cannot be stored, nor a number of workers that the scale subresource cannot show."""
    with pytest.raises(Exception, match=told):
        cluster.create("text", spec)


def test_deleting_a_job_takes_all_its_children_and_makes_none(served: Cluster) -> None:
    """B14: the garbage collector deletes them; a job in foreground deletion gets no new pods."""
    for cascade in ("background", "foreground"):
        served.create("gone", specs(PS=replica(run="forever"), Worker=replica(2, run="forever")))
        served.wait_for("gone", ConditionType.RUNNING)
        served.kubectl("delete", "tfjob", "gone", f"--cascade={cascade}")
        served.wait_for_no_children()


def test_a_name_can_be_used_again_at_once(served: Cluster) -> None:
    """B12: the new job waits until the old pods are gone; it does not get stuck, and counts none of the old pods."""
    for run in ("forever", "0.5s:0"):
        served.create("again", specs(Worker=replica(2, run=run)))
        if run == "forever":
            served.wait_for("again", ConditionType.RUNNING)
            served.kubectl("delete", "tfjob", "again", "--wait=false")
            eventually(lambda: "again" not in served.names("tfjobs"), "the first job is gone")
    served.wait_for("again", ConditionType.SUCCEEDED)


def test_what_belongs_to_others_is_left_alone(served: Cluster) -> None:
    """B13: a stranger's pod with our labels is neither counted nor deleted; a stranger's service keeps its name."""
    labels = {
        c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME,
        c.LABEL_JOB_NAME: "mine",
        c.LABEL_REPLICA_TYPE: "worker",
        c.LABEL_REPLICA_INDEX: "0",
    }
    spec = {"restartPolicy": "Never", "containers": [{"name": "tensorflow", "image": "i"}]}
    served.post(
        an_object(PODS, "foreign", spec, labels=labels, annotations={RUN: "0.1s:1"}),
        an_object(SERVICES, "theirs-worker-0", {"ports": [{"port": 80}]}),
    )
    served.create("mine", specs(Worker=replica()))
    served.create("theirs", specs(Worker=replica()))
    served.wait_for("mine", ConditionType.SUCCEEDED)
    assert served.names("pods") == ["foreign", "mine-worker-0"]
    text = (
        "Error creating: service theirs-worker-0 already exists and is not controlled by this TFJob: it has no "
        "owner; delete it or recreate the job under another name"
    )
    eventually(lambda: ("Warning", "FailedCreateService", text) in served.events("theirs"), "a person is told")
    served.wait_for("theirs", ConditionType.CREATED)
    served.api("DELETE", "services", "theirs-worker-0")
    served.wait_for("theirs", ConditionType.SUCCEEDED)


def test_kubectl_shows_state_and_age(served: Cluster) -> None:
    """The columns of the CRD; more with -o wide."""
    served.create("shown", specs(Worker=replica()))
    served.wait_for("shown", ConditionType.SUCCEEDED)
    header, line = served.kubectl("get", "tfjobs").splitlines()
    assert header.split() == ["NAME", "STATE", "AGE"]
    assert line.split()[:2] == ["shown", "Succeeded"]
    assert "successfully completed." in served.kubectl("get", "tfjobs", "--output=wide")


def test_the_api_server_takes_the_services_of_ports_with_several_names_and_protocols(served: Cluster) -> None:
    """B61: ports that a pod may have and a service may not are no mistake of the user."""
    spec = specs(Worker=replica(2, run="forever"))
    container = spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [
        {"name": "grpc", "containerPort": 2222},
        {"name": "dns", "containerPort": 53},
        {"name": "dns-udp", "containerPort": 53, "protocol": "UDP"},
    ]
    served.create("ports", spec)
    served.wait_for("ports", ConditionType.RUNNING)
    ports = served.items("services")[0]["spec"]["ports"]
    shown = [(port["name"], port["protocol"]) for port in ports]
    assert shown == [("dns", "TCP"), ("dns-udp", "UDP"), ("tfjob-port", "TCP")]
