"""Why a job does not run: each trouble is the first cause, both alone and among what does not matter."""

import re
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final

import pytest

from fakes.recordings import kueue
from support.cases import for_each
from tfjob_operator.api.text import EVENT_BYTES, clean, tail_of
from tfjob_operator.api.v1 import validation
from tfjob_operator.api.v1.constants import LIMITS, ConditionReason, EventReason
from tfjob_operator.api.v1.types import InvalidSpec, Mistake
from tfjob_operator.api.v1alpha1.constants import DIALECTS, KUBEFLOW, TENSORFLOW, Dialect
from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis, Problem, Severity
from tfjob_operator.cli.diagnosis.diagnose import MAX_CAUSES, MAX_PROOFS, diagnose
from tfjob_operator.cli.diagnosis.facts import LastLine
from tfjob_operator.cli.diagnosis.table import FINDERS, GROUPS, PROBLEMS
from tfjob_operator.cli.model.queues import waits_for
from tfjob_operator.cli.target import Target
from unit.cli.conftest import operator_deployment
from unit.cli.diagnosis.cases import CASES, world_of
from unit.cli.diagnosis.troubled import PREEMPTION, Troubled
from unit.cli.diagnosis.world import CONTAINER, NOW, WORKER, ago, condition


def diagnosed(*ids: str) -> Diagnosis:
    return diagnose(world_of(*ids).evidence())


def ids_of(world: Troubled) -> list[str]:
    return [cause.id for cause in diagnose(world.evidence()).causes]


def first_of(world: Troubled) -> Cause:
    return diagnose(world.evidence()).causes[0]


def test_nothing_is_wrong_with_a_healthy_job() -> None:
    assert diagnosed() == Diagnosis((), "mnist: Running for 1h, 1 of 1 PS ready, 2 of 2 workers ready", "")


def test_without_permission_to_read_pods_none_is_called_missing() -> None:
    """How many are ready is unknown then."""
    world = world_of()
    world.pods, world.forbidden = {}, ["pods"]
    found = diagnose(world.evidence())
    assert (ids_of(world), found.state_line) == ([], "mnist: Running for 1h")
    assert found.unseen.endswith("no permission to read: pods")


def test_restarting_lasts_since_the_restart_not_since_the_start_of_the_job() -> None:
    world = world_of()
    world.status["conditions"] = [condition("Restarting", reason="TFJobRestarting", minutes=2)]
    assert diagnose(world.evidence()).state_line.startswith("mnist: Restarting for 2m, ")


def test_a_deletion_is_no_edit_that_waits() -> None:
    """It too increases the generation."""
    world = world_of()
    world.job["metadata"] |= {"generation": 2, "deletionTimestamp": ago(1), "finalizers": ["a/b"]}
    world.status["observedGeneration"] = 1
    assert ids_of(world) == ["job-being-deleted"]


@pytest.mark.parametrize(("asked", "helps"), [("requests.cpu=2", True), ("count/services=1", False), ("pods=1", False)])
def test_pods_are_only_to_be_recreated_if_that_frees_quota(asked: str, helps: bool) -> None:
    """A pod that is deleted is created again, so counts remain as they were."""
    world, name = world_of(), asked.partition("=")[0]
    world.refuse(
        f'pods "{WORKER}" is forbidden: exceeded quota: q, requested: {asked}, used: {name}=4, limited: {name}=4'
    )
    assert any("kubectl tfjob restart" in step for step in first_of(world).to_do) is helps
    assert any("network to shared" in step for step in first_of(world).to_do) is ("services" in asked)


def test_there_is_a_case_of_every_trouble_and_no_other() -> None:
    assert CASES.keys() == PROBLEMS.keys()
    assert len(PROBLEMS) == sum(map(len, GROUPS.values())), "two troubles have one ID"
    assert len(PROBLEMS) >= 60


@for_each("id_", CASES)
def test_each_trouble_is_on_line_one_with_evidence_and_what_to_do(id_: str) -> None:
    first = first_of(world_of(id_))
    assert first.id == id_
    assert 1 <= len(first.to_do) <= 5
    assert 1 <= len(first.evidence) <= MAX_PROOFS
    assert all(re.match(r"[\w ./:-]+[:,(] |node |and |\d+ other", line) for line in first.evidence), first.evidence
    assert not re.search(
        r"\b(WHO|QUOTA|WEBHOOK|IMAGE|SHORT|RESOURCE|LIMIT|AGE|CONTAINER|POD|WORDS|REASON)\b", first.title
    )
    text = " ".join((first.title, *first.to_do))
    assert "{who}" not in text
    assert "  " not in first.title


def test_the_crd_of_training_operator_is_no_problem_while_training_operator_serves_the_job() -> None:
    """It never writes observedGeneration. A lease or a Deployment of this operator shows that the CRD will not do."""
    world = world_of("crd-old")
    del world.job["status"]["observedGeneration"]
    assert ids_of(world) == ["crd-old"]
    world.lease = None
    assert ids_of(world) == []


def test_a_stopped_operator_is_not_to_be_started_beside_a_training_operator_that_serves_the_job() -> None:
    """After a way back. The observed generation is left over, and says nothing about an edit."""
    world = world_of()
    world._beside()
    world.job["metadata"]["generation"] = 3
    assert ids_of(world) == []
    world = world_of("image-not-found")
    world._beside()
    assert "delete pod mnist-worker-1" in str(first_of(world).to_do), "training-operator recreates it"


def test_a_missing_pod_is_looked_for_in_the_log_of_the_operator_that_serves_the_job() -> None:
    world = world_of("pods-missing")
    world._beside()
    cause = first_of(world)
    assert (cause.id, cause.to_do[-1].partition(": ")[2]) == (
        "pods-missing",
        "kubectl -n kubeflow logs deployment/training-operator --tail=500",
    )


@pytest.mark.parametrize(
    ("spec", "ready", "state"),
    [
        ({"replicas": 0}, 0, "has 0 replicas"),
        ({"replicas": 1}, 0, "has 0 of 1 pods ready"),
        (
            {"replicas": 1, "template": {"spec": {"containers": [{"args": ["--enable-scheme=pytorchjob"]}]}}},
            1,
            "does not serve TFJobs",
        ),
    ],
)
def test_a_running_job_is_told_that_neither_operator_runs(spec: dict[str, Any], ready: int, state: str) -> None:
    """A plan that ended after its second step. The job has a status, and its pods run."""
    world = world_of("training-operator-not-running")
    world.peers[0] |= {"spec": spec, "status": {"readyReplicas": ready}}
    cause = first_of(world)
    expected = f"No operator runs the job: training-operator kubeflow/training-operator {state}"
    assert cause.title == f"{expected}, and tfjob-operator does not run"
    assert cause.evidence[0].startswith(
        f"deployment kubeflow/training-operator: {ready} of {spec['replicas']} pods ready"
    )


def test_without_any_training_operator_that_serves_the_job_the_stopped_operator_is_to_be_started() -> None:
    world = world_of()
    world._beside(wanted=0, ready=0)
    assert ids_of(world) == ["operator-scaled-to-zero"]
    first, second, *_ = first_of(world).to_do
    assert first.endswith("or to go back: kubectl tfjob migrate --plan")
    assert second.startswith("Otherwise start it: ")


def test_no_running_pod_is_to_be_deleted_under_training_operator_which_may_fail_the_job() -> None:
    """It counts a terminating pod as failed, whatever its restartPolicy, and may see it before its successor."""
    world = world_of("loss-diverged")
    world._beside()
    assert "Delete no pods that run while training-operator serves the job" in steps_of(world)
    assert "delete pod" not in steps_of(world)
    world.two_operators()
    assert "delete pod" not in str([cause.to_do for cause in diagnose(world.evidence()).causes])


def test_the_crd_of_training_operator_is_right_while_that_alone_serves_the_jobs() -> None:
    """After a way back. Replacing its CRD makes it look at every job again, and end those beyond their deadline."""
    world = world_of("crd-old")
    world._beside()
    assert ids_of(world) == []
    world.deployments = [operator_deployment("kubeflow", readyReplicas=2)]
    (cause,) = (each for each in diagnose(world.evidence()).causes if each.id == "crd-old")
    assert "fails those beyond their deadline: extend these first" in cause.to_do[0]


def test_an_event_about_lost_fields_does_not_outlast_the_repair_of_the_crd() -> None:
    """Who may not read the CRD has only the event."""
    world = world_of("crd-old")
    world.job_event("StatusFieldsPruned", "Status fields begun were pruned: the installed CRD is outdated")
    assert world.crd is not None
    world.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {
        "x-kubernetes-preserve-unknown-fields": True
    }
    assert ids_of(world) == []
    world.crd = None
    assert ids_of(world) == ["crd-old"]
    assert "last-applied-configuration-" in first_of(world).to_do[0]


WAITING = {
    "LocalQueue nosuch doesn't exist": "kueue-queue-missing",
    "ClusterQueue nosuchcq doesn't exist": "kueue-queue-missing",
    "ClusterQueue cqe4hold is inactive": "kueue-queue-stopped",
    "LocalQueue qlh is inactive": "kueue-queue-stopped",
    "workload namespace doesn't match ClusterQueue selector": "kueue-namespace",
    "insufficient unused quota for cpu in flavor default, 1 more needed": "kueue-quota",
    "(0) + current podset request (5) > maximum capacity (3)": "kueue-too-large",
    "(0) + current podset request (3) > maximum capacity (1)": "kueue-too-large",
    "resource nvidia.com/gpu unavailable in ClusterQueue": "kueue-too-large",
    "requests must not exceed its limits": "kueue-too-large",
    "KueueDRAIntegration feature does not support use of resource claims": "kueue-too-large",
    'Flavor "default" does not support TopologyAwareScheduling': "kueue-too-large",
    'ResourceClaimTemplate.resource.k8s.io "ct" not found': "kueue-waits",
    "Exceeded the PodsReady timeout e4/tfjob-w10-9f10e": "kueue-pods-ready-timeout",
}
"""What Kueue 0.19.2 says of jobs that wait, by the end of its message."""


def test_a_job_that_waits_is_told_what_kueue_says_and_whether_it_ever_fits() -> None:
    """As recorded beside Kueue; `list` tells the same jobs apart by NeverFits."""
    found: dict[str, str] = {}
    for seen in kueue("waiting"):
        if seen.resource != "workloads":
            continue
        unreserved = [
            each["message"]
            for each in seen.object["status"]["conditions"]
            if (each["type"], each["status"]) == ("QuotaReserved", "False")
        ]
        for message in unreserved:
            world = world_of()
            world.suspend(conditions=[])
            world.workload = seen.object
            first = first_of(world)
            never = first.id == "kueue-too-large"
            assert (waits_for(seen.object)[0] == "NeverFits") is never
            assert first.title.startswith("Never fits in queue") is never
            assert message[-60:] in " ".join((first.title, *first.evidence))
            found |= {end: first.id for end in WAITING if message.endswith(end)}
    assert found == WAITING


def test_a_job_fits_later_if_one_flavor_has_quota_that_is_only_in_use() -> None:
    """Kueue names all flavors that it tried in one message."""
    never = "insufficient quota for cpu in flavor a, request > maximum capacity (24 > 16)"
    message = f"couldn't assign flavors to pod set main: {never}, insufficient unused quota for cpu in flavor b, 1 more needed"
    world = world_of()
    world.suspend(conditions=[condition("QuotaReserved", "False", "Pending", message)])
    assert first_of(world).id == "kueue-quota"


def told(name: str, number: int) -> Cause:
    """Return the first cause of the job of a recorded Workload, in this of its states."""
    world = world_of()
    world.suspend(conditions=[])
    bodies = [seen.object for seen in kueue("evictions") if seen.object["metadata"]["name"] == name]
    world.workload = bodies[number]
    return first_of(world)


def test_a_workload_that_kueue_deactivated_is_to_be_deleted_and_never_activated() -> None:
    """With Kueue 0.19.2, `active: true` succeeded and changed nothing, and the job ran 5 s after the deletion."""
    for number in (-7, -6):  # the second one after a user has set active
        cause = told("tfjob-r-27ddf", number)
        assert cause.id == "kueue-gave-up"
        assert cause.title == "Deactivated by Kueue for exceeding the maximum number of re-queuing retries"
        assert cause.to_do[-1].endswith(": kubectl -n team delete workloads.kueue.x-k8s.io tfjob-r-27ddf")
        assert 'active":true' not in "".join(cause.to_do)
    assert told("tfjob-d-52e0d", -5).id == "kueue-deactivated"


def test_a_rejected_check_is_named_with_its_message_when_kueue_has_reset_it() -> None:
    cause = told("tfjob-c-e907a", -2)
    assert cause.title == 'Rejected by admission check "stub" of Kueue'
    assert '"stub" (no room at all)' in "".join(cause.evidence)
    assert cause.to_do[1] == "kubectl describe admissioncheck stub"
    assert cause.to_do[-1].endswith(" delete workloads.kueue.x-k8s.io tfjob-c-e907a")


def test_a_check_that_is_retried_is_waited_for() -> None:
    assert told("tfjob-c-e907a", 5).title == 'Waiting for admission check "stub" of Kueue'


@pytest.mark.parametrize(
    ("message", "title", "command"),
    [
        ("ClusterQueue shared is inactive", 'ClusterQueue "shared" is stopped or inactive', "clusterqueue shared"),
        ("LocalQueue research is inactive", 'LocalQueue "research" is stopped or inactive', "localqueue research"),
        ("The LocalQueue is stopped", 'LocalQueue "research" is stopped or inactive', "localqueue research"),
        ("The ClusterQueue is stopped", 'Queue "research" is stopped or inactive', "localqueue research"),
        ("ClusterQueue shared doesn't exist", 'ClusterQueue "shared" not found', "localqueues"),
    ],
)
def test_a_queue_has_the_kind_that_kueue_names(message: str, title: str, command: str) -> None:
    world = world_of()
    world.suspend(conditions=[condition("QuotaReserved", "False", "Inadmissible", message)])
    cause = first_of(world)
    assert cause.title == title
    assert cause.to_do[0].endswith(command)


def test_a_job_that_multikueue_runs_elsewhere_is_healthy() -> None:
    """Its counts are those that MultiKueue copies from the other cluster; replacing the job would end a training."""
    world = world_of("managed-by-multikueue")
    found = diagnose(world.evidence())
    assert found.state_line == "mnist: Running for 1h, 1 of 1 PS ready, 2 of 2 workers ready"
    assert [cause.severity for cause in found.causes] == [Severity.INFO]
    assert found.causes[0].title == "MultiKueue runs the job in another cluster: west-1"
    assert not re.search("replace|managedBy:", " ".join(found.causes[0].to_do))


@pytest.mark.parametrize(("forbidden", "step"), [([], "Without its Workload the job runs nowhere: "),
                                                 (["workloads"], "Ask your cluster administrator to run: ")])  # fmt: skip
def test_no_command_about_a_workload_that_was_not_read_is_advised(forbidden: list[str], step: str) -> None:
    """Kueue may not even be installed, and then kubectl knows no Workloads."""
    world = world_of("managed-by-multikueue")
    world.workload, world.forbidden = None, forbidden
    cause = first_of(world)
    assert cause.to_do[1].startswith(step)
    assert "WORKLOAD" not in " ".join(cause.to_do)


def test_a_job_of_multikueue_that_waits_in_its_queue_is_told_what_for() -> None:
    world = world_of("kueue-check")
    world.spec["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert ids_of(world) == ["kueue-check", "managed-by-multikueue"]


def test_with_kueue_down_its_administrator_is_to_be_asked() -> None:
    """Its webhook has no Service that users could fix."""
    cause = first_of(world_of("kueue-unreachable"))
    assert cause.to_do[0] == "kubectl -n kueue-system get pods"
    assert cause.to_do[1].startswith("Ask your cluster administrator whether Kueue is running")


def test_a_pod_of_a_scheduling_group_waits_for_it_only_if_the_scheduler_has_not_seen_the_pod() -> None:
    world = world_of("scheduling-group-missing")
    assert (
        first_of(world).title
        == 'Waiting for the PodGroup "gang-a", which the template names in schedulingGroup (mnist-worker-1)'
    )
    world.pods[WORKER]["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", "0/1 placements")]
    assert "scheduling-group-missing" not in ids_of(world)


IN_THE_WAY = "PodGroup mnist already exists and is not controlled by this TFJob: it"


def test_a_pod_group_of_an_earlier_job_or_one_that_a_finalizer_keeps_is_named() -> None:
    """Its phase and the settings of the job are of no interest then, and the event may have expired."""
    world = world_of("gang-queued")
    assert world.pod_group is not None
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": "old", "controller": True}
    world.pod_group["metadata"]["ownerReferences"] = [owner]
    world.job_event("FailedCreatePodGroup", f"Error creating: {IN_THE_WAY} is being deleted (UID x)")
    first = first_of(world)
    assert ids_of(world) == ["former-child-in-the-way"]
    assert first.title.startswith("Waiting for PodGroup mnist of an earlier job of this name to be deleted (")
    world.pod_group["metadata"] |= {"ownerReferences": None, "deletionTimestamp": ago(5), "finalizers": ["b.io/keep"]}
    world.events.clear()
    first = first_of(world)
    assert ids_of(world) == ["former-child-in-the-way"]
    assert first.title.startswith("Waiting for PodGroup mnist to be deleted (")
    assert first.evidence == ("podgroup mnist: no owner, Terminating for 5m, finalizers b.io/keep",)


@pytest.mark.parametrize(
    ("message", "id_"),
    [
        (f"{IN_THE_WAY} is being deleted (UID x)", "former-child-in-the-way"),
        ("PodGroup mnist already exists: it is being deleted (UID x)", "former-child-in-the-way"),
        (f"{IN_THE_WAY} belongs to Queue web; delete it or recreate the job under another name", "name-taken"),
    ],
)
def test_a_pod_group_in_the_way_that_may_not_be_read_is_named_by_the_event(message: str, id_: str) -> None:
    """No setting of the job has to be corrected for it."""
    world = world_of()
    world.pods = {}
    world.job_event("FailedCreatePodGroup", f"Error creating: {message}")
    assert ids_of(world) == [id_]
    world.job_event("SuccessfulCreatePodGroup", "Created PodGroup: mnist", type_="Normal")
    assert id_ not in ids_of(world)


def test_batch_jobs_that_kueue_suspends_are_queued_one_by_one() -> None:
    """They have the label that Kueue gives them; another one was suspended by somebody else."""
    world = world_of("batch-job-suspended")
    suspended = world.batch_jobs["worker-x7ab-1"]
    suspended["metadata"]["labels"] = suspended["metadata"].get("labels", {}) | {"kueue.x-k8s.io/queue-name": "default"}
    assert first_of(world).id == "kueue-one-by-one"


RECORDED: dict[str, dict[str, Any]] = {
    "out-of-memory": {"reason": "OOMKilled", "containerName": "tensorflow", "exitCode": 137},
    "exit-code": {"reason": "Error", "containerName": "tensorflow", "exitCode": 3, "message": "ValueError: no data"},
    "python-module-missing": {"reason": "Error", "exitCode": 1, "message": "ImportError: No module named jax"},
    "evicted": {"reason": "Evicted", "exitCode": 137, "message": "The node was low on resource: memory. "},
    "empty-dir-limit": {"reason": "Evicted", "message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". '},
    "pod-deadline": {"reason": "DeadlineExceeded", "exitCode": 143, "message": "Pod was active too long"},
    "node-lost": {"reason": "NodeLost", "nodeName": "node-1", "message": "Node node-1 is lost"},
}


@for_each("id_", RECORDED)
def test_the_record_of_an_end_is_read_whatever_its_message(id_: str) -> None:
    """Its pods are gone, and the words of the message are not those of this release."""
    world = world_of()
    world.pods = {}
    world.end("Failed", "TFJobFailed", "words of tomorrow")
    failure = {"replicaType": "Worker", "replicaIndex": 1, "podName": WORKER} | RECORDED[id_]
    world.status["begun"]["ending"] = {"type": "Failed", "reason": "TFJobFailed", "failure": failure}
    first = first_of(world)
    assert first.id == id_
    assert "words of tomorrow" in first.evidence[0]
    assert first.affected == ("mnist" if id_ == "node-lost" else WORKER,)


def test_the_limit_and_the_rule_of_an_end_are_read_from_its_record() -> None:
    world = world_of()
    world.end("Failed", "JobFailed", "words of tomorrow")
    world.status["begun"]["ending"] = {"type": "Failed", "reason": "JobFailed", "event": "BackoffLimitExceeded"}
    assert first_of(world).id == "backoff-limit"
    world.end("Failed", "PodFailurePolicy", "words of tomorrow")
    world.status["begun"]["ending"] = {"type": "Failed", "failure": {"rule": "badGpu", "podName": WORKER}}
    assert first_of(world).title == "Failed by rule badGpu of the failure policy: words of tomorrow"


def test_an_exit_event_is_read_with_what_follows_the_reason() -> None:
    """The operator appends the termination message and the rule."""
    world = world_of("was-restarted")
    world.status["restarts"][0]["carried"] = 3
    world.container()["state"]["running"]["startedAt"] = ago(1)
    told = "exited with code 137: OOMKilled: allocating (rule oom: RestartReplica)"
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} {told}", type_="Normal", minutes=1)
    assert first_of(world).id == "out-of-memory"


def test_the_first_line_of_a_restart_loop_is_the_failure_and_not_the_delay() -> None:
    """Of the whole job, and of a replica whose pod was deleted."""
    world = world_of("restart-delayed")
    world.status["attemptHistory"][0] |= {"exitCode": 42, "podName": WORKER}
    found = [cause.id for cause in diagnose(world.evidence()).causes]
    assert found[:2] == ["crash-loop", "restart-delayed"]
    assert "exited with code 42, 2 restarts" in first_of(world).title
    world = world_of()
    del world.pods[WORKER]
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 2, "nextTime": ago(-1)}]
    world.status["nextRestartTime"] = ago(-1)
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 1: ImportError: No module named jax")
    world.status["restarts"][0]["carried"] = 0
    assert first_of(world).id == "python-module-missing", "a rule ignored the failure"
    world.events[-1]["message"] = f"Pod: team.{WORKER} exited with code 136"
    assert first_of(world).title == f"Failed ({WORKER}): container tensorflow exited with code 136 (SIGFPE)"
    world.events[-1]["message"] = f"Pod: team.{WORKER} exited with code 1: ImportError: No module named jax"
    world.status["restarts"][0]["carried"] = 2
    assert ids_of(world)[:2] == ["python-module-missing", "restart-delayed"]


def test_an_escalation_is_a_warning_with_what_the_rule_does_and_when() -> None:
    first = first_of(world_of("escalation-near"))
    assert first.severity is Severity.WARNING
    assert first.title == "Rule rule0 restarts the whole job in 90s: mnist-worker-1 not running again yet"


def test_an_init_container_that_lost_a_process_to_a_lack_of_memory_is_out_of_memory() -> None:
    """The kubelet regards it as failed, although it exited with 0."""
    world = world_of("init-container-failed")
    ended = world.pods[WORKER]["status"]["initContainerStatuses"][0]["lastState"]["terminated"]
    ended |= {"exitCode": 0, "reason": "OOMKilled"}
    assert first_of(world).id == "memory-without-limit"
    world.pods[WORKER]["spec"]["resources"] = {"limits": {"memory": "8Gi"}}
    assert first_of(world).title.endswith("exceeded its memory limit of 8Gi")


def test_a_limit_that_a_limit_range_has_set_is_named_as_such() -> None:
    world = world_of("out-of-memory")
    noted = "LimitRanger plugin set: cpu request for container tensorflow; cpu, memory limit for container tensorflow"
    world.pods[WORKER]["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": noted}
    assert first_of(world).title.endswith("exceeded its memory limit of 4Gi, set by a LimitRange")
    world.pods[WORKER]["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": noted.replace("memory ", "")}
    assert first_of(world).title.endswith("exceeded its memory limit of 4Gi")


def test_several_terminating_pods_are_counted_once() -> None:
    world = world_of("waits-for-terminating-pod")
    other = deepcopy(world.former[0])
    other["metadata"] |= {"name": "mnist-worker-0", "uid": "uid-other"}
    del world.pods["mnist-worker-0"]
    world.former.append(other)
    assert first_of(world).title.startswith("Waiting for 2 pods, Terminating for ")


def test_the_peer_of_an_aborted_replica_is_that_of_its_last_words_else_the_first_that_failed() -> None:
    assert "another replica ended: mnist-worker-0 " in first_of(world_of("peer-failed")).title
    world = world_of()
    world.exited(137, "OOMKilled", name="mnist-ps-0")
    world.exited(134, log="terminate called\nCollective ops is aborted by: heartbeat timeout")
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "peer-failed")
    assert "another replica ended: mnist-ps-0 " in found.title


ABORTED_BY_JAX: Final = (
    "F1129 19:50:48.972077   12550 client.h:80] Terminating process because the JAX distributed service detected fatal errors. "
    "This most likely indicates that another task died. absl::Status: INTERNAL: Shutdown barrier has failed.\n"
    "Barrier result: 'DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::1::0. This usually happens because a task triggered "
    "the barrier too early or too slowly.\n# of tasks that reached the barrier: 1/2.\n"
    "The first task at the barrier: 0. Some timed out task names:\n1\n"
    "*** Check failure stack trace: ***\n    @     0x7f3774681f3e  std::_Function_handler<>::_M_invoke()"
)
RAISED: Final = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 9, in <module>\nValueError: bad shard 7\n'
)


def second_to(world: Troubled, code: int, reason: str, log: str) -> None:
    """Let worker 1, by which the job has failed, be a victim of worker 0, which ended in the same second."""
    world.failed(134, log=ABORTED_BY_JAX)
    world.exited(code, reason, name="mnist-worker-0", restarts=0, log=log)
    world.container("mnist-worker-0").update(state=world.container("mnist-worker-0")["lastState"], lastState={})
    world.pods["mnist-worker-0"]["status"]["phase"] = "Failed"
    world.status["completionTime"] = ago(3)


def test_the_exception_of_one_process_is_the_cause_if_jax_aborts_all_of_them() -> None:
    """A process that raises an exception waits for the others at its exit. After five minutes JAX aborts all at once."""
    world = world_of()
    second_to(world, 134, "Error", RAISED + ABORTED_BY_JAX)
    first, second = diagnose(world.evidence()).causes[:2]
    assert (first.id, first.affected) == ("aborted", ("mnist-worker-0",))
    assert first.title.endswith("mnist-worker-0): ValueError: bad shard 7")
    assert (second.id, second.affected) == ("peer-failed", ("mnist-worker-1",))
    assert "another replica ended: mnist-worker-0 " in second.title


@pytest.mark.parametrize(
    "words",
    [
        "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "DistBackendError: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST)",
    ],
)
def test_the_exception_of_another_replica_is_the_cause_of_a_timeout_of_pytorch(words: str) -> None:
    """The replica by which the job has failed only waited for the other one, which failed in the same second."""
    world = world_of()
    second_to(world, 1, "Error", RAISED)
    world.failed(
        1, log=f'Traceback (most recent call last):\n  File "/app/train.py", line 9\ntorch.distributed.{words}\n'
    )
    world.status["completionTime"] = ago(3)
    first, second = diagnose(world.evidence()).causes[:2]
    assert (first.affected, second.id, second.affected) == (("mnist-worker-0",), "peer-unreachable", (WORKER,))
    assert first.title.endswith("ValueError: bad shard 7")
    assert words in second.title


CLOSED = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.12]:31312"


def test_a_replica_that_ends_last_is_the_cause_if_its_exception_is_its_own() -> None:
    """At its exit it waits for the others, which fail first because they cannot reach it."""
    world = world_of()
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-2'"
    second_to(world, 1, "Error", f"{OF_TRAINING}{missing}")
    world.failed(1, log=f"{OF_TRAINING}{CLOSED}")
    world.status["completionTime"] = ago(3)
    world.container("mnist-worker-0")["state"]["terminated"]["finishedAt"] = ago(2.8)
    first, second = diagnose(world.evidence()).causes[:2]
    assert first.title == "File not found: /data/shard-2 (mnist-worker-0)"
    assert (second.affected, "another replica ended: mnist-worker-0 " in second.title) == ((WORKER,), True)


def test_a_replica_that_ended_later_with_a_lost_connection_is_not_named_as_the_one_that_ended_first() -> None:
    world = world_of()
    second_to(world, 1, "Error", f"{OF_TRAINING}{CLOSED}")
    world.failed(1, log=f"{OF_TRAINING}{CLOSED}")
    world.status["completionTime"] = ago(3)
    world.container("mnist-worker-0")["state"]["terminated"]["finishedAt"] = ago(2.8)
    world.container(WORKER)["state"]["terminated"]["finishedAt"] = ago(3)
    first = first_of(world)
    assert (first.affected, "mnist-worker-0" in first.title) == ((WORKER,), False)
    world.pods["mnist-ps-0"]["status"]["podIP"] = "10.0.0.12"
    assert "another replica ended: mnist-ps-0 " in first_of(world).title


def test_a_process_of_jax_that_never_reaches_its_coordinator_has_lost_none() -> None:
    world = world_of()
    unreachable = "absl::Status: DEADLINE_EXCEEDED: Failed to connect to coordination service at 10.96.0.77:1234"
    world.failed(134, log=f"{ABORTED_BY_JAX.splitlines()[0]}\n{unreachable}")
    first = first_of(world)
    assert first.id == "peer-unreachable"
    assert "coordination service at 10.96.0.77:1234" in first.title


BARRIER_OF_JAX: Final = (
    "I1130 22:40:00.1 11 distributed.py:106] Starting JAX distributed service on [::]:2222\n"
    "E1130 22:45:00.913004      44 coordination_service_agent.cc:365] Failed to connect to coordination service: "
    "DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually happens because a task "
    "triggered the barrier too early or too slowly. Please look at the task logs (both timed out and first task) to debug "
    "further.\n# of tasks that reached the barrier: 2/4.\n"
    "The first task at the barrier: /job:jax_worker/replica:0/task:1. Some timed out task names:\n"
    "/job:jax_worker/replica:0/task:2\n/job:jax_worker/replica:0/task:3\n"
    "F1130 22:45:00.914120      11 client.h:80] Terminating process because the JAX distributed service detected fatal errors. "
    "This most likely indicates that another task died; see the other task logs for more details. Disable Python buffering, "
    "i.e. `python -u`, to be sure to see all the previous output. absl::Status: DEADLINE_EXCEEDED: Barrier timed out. Id: "
    "[Init]Wait_for_all_tasks_to_register::0. # of tasks that reached the barrier: 2/4.\n"
    "*** Check failure stack trace: ***\n    @     0x7f2c8e7d1a44  absl::lts_20230802::log_internal::LogMessage::SendToLog()\n"
    "Fatal Python error: Aborted"
)


def with_process_counts(count: str) -> Troubled:
    """Let two workers be processes of JAX, and the template set the number of processes."""
    world = Troubled()
    del world.spec["tfReplicaSpecs"]["PS"], world.pods["mnist-ps-0"]
    world.status["begun"]["replicas"] = {"Worker": 2}
    (container,) = world.workers["template"]["spec"]["containers"]
    names = ("KERAS_DISTRIBUTION_NUM_PROCESSES", "JAX_NUM_PROCESSES")
    container["env"] = [{"name": name, "value": count} for name in names]
    return world


@pytest.mark.parametrize("has_pods", [False, True])
def test_a_barrier_that_too_few_processes_reached_is_the_cause_and_not_another_task_that_died(has_pods: bool) -> None:
    """An event has at most 1 KiB, which cuts off the status at the end of JAX's message; the error before it has it too."""
    world = with_process_counts("4")
    if has_pods:
        world.failed(134, log=BARRIER_OF_JAX)
    else:
        world.status["restarts"] = [{"type": "Worker", "index": index, "total": 3} for index in (0, 1)]
        world.status["nextRestartTime"] = ago(-1)
        for name in ("mnist-worker-0", WORKER):
            del world.pods[name]
            text = f"Pod: team.{name} exited with code 134: {BARRIER_OF_JAX}"
            world.job_event("ExitedWithCode", clean(text, EVENT_BYTES), type_="Normal")
    first = next(cause for cause in diagnose(world.evidence()).causes if cause.id != "tf-config-equal")
    assert (first.id, len(first.affected)) == ("peer-unreachable", 1 if has_pods else 2)
    assert first.title.startswith("Only 2 of 4 processes have joined (")
    assert "the job has 2: " in first.title
    assert "DEADLINE_EXCEEDED: Barrier timed out" in first.title
    remove = "emove KERAS_DISTRIBUTION_NUM_PROCESSES and JAX_NUM_PROCESSES from env of the template"
    assert any(remove in step or remove.replace("emove", "then in the file remove") in step for step in first.to_do)
    assert ("tfjob logs" in str(first.to_do), "tfjob timeline" in str(first.to_do)) == (False, True)
    container = world.workers["template"]["spec"]["containers"][0]
    del container["env"]
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "peer-unreachable")
    assert "take the number of processes from JAX_NUM_PROCESSES" in str(found.to_do)


def test_a_barrier_of_all_processes_of_the_job_names_the_one_that_did_not_come() -> None:
    world = with_process_counts("2")
    world.exited(134, name="mnist-worker-0", log=BARRIER_OF_JAX.replace("2/4", "1/2").replace("task:2", "task:1"))
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "peer-unreachable")
    assert found.title == f"Cannot connect to another replica or a server: {WORKER} (mnist-worker-0)"


def test_without_pods_the_timeline_and_not_the_logs_are_advised() -> None:
    world = Troubled()
    world.status["restarts"] = [{"type": "Worker", "index": 1, "total": 3}]
    world.status["nextRestartTime"] = ago(-1)
    world.pods.clear()
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 134: {ABORTED_BY_JAX}", type_="Normal")
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "peer-failed")
    assert [("tfjob logs" in step, "get pods" in step) for step in found.to_do] == [(False, False)] * len(found.to_do)
    assert "kubectl tfjob timeline mnist -n team" in str(found.to_do)


def test_a_process_that_hangs_after_an_exception_is_opened_and_restarted_with_the_others_of_its_group() -> None:
    """A process of JAX that raises an exception waits for the others at its exit."""
    world = world_of("running-after-exception")
    assert "kubectl tfjob exec mnist --replica=worker-1 -n team" in steps_of(world)
    assert f"delete pod {WORKER}" in steps_of(world)
    assert "os._exit(1)" not in steps_of(world)
    del world.spec["tfReplicaSpecs"]["PS"], world.pods["mnist-ps-0"]
    assert "kubectl tfjob exec mnist --replica=worker-1 -n team" in steps_of(world)
    assert ("os._exit(1)" in steps_of(world), "delete pod" in steps_of(world)) == (True, False)
    assert "kubectl tfjob restart mnist -n team" in steps_of(world)


def test_one_tf_config_for_several_replicas_is_also_told_of_a_job_that_succeeded() -> None:
    """Each replica trained a model of its own."""
    world = world_of("tf-config-equal")
    world.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
    assert first_of(world).id == "tf-config-equal"


@pytest.mark.parametrize(("count", "is_warned"), [("4", True), ("2", False)])
def test_a_number_of_processes_in_a_template_that_is_not_that_of_the_job_is_a_warning(
    count: str, is_warned: bool
) -> None:
    world = with_process_counts(count)
    assert ids_of(world) == ["tf-config-equal"] * is_warned
    if is_warned:
        said = "KERAS_DISTRIBUTION_NUM_PROCESSES is 4 and JAX_NUM_PROCESSES is 4 in the template of Worker, but the job has 2"
        assert first_of(world).title == f"{said} processes"
        assert "emove KERAS_DISTRIBUTION_NUM_PROCESSES and JAX_NUM_PROCESSES from env" in steps_of(world)
    (container,) = world.workers["template"]["spec"]["containers"]
    container["env"] += [
        {"name": name, "value": "a.example:1"}
        for name in ("JAX_COORDINATOR_ADDRESS", "KERAS_DISTRIBUTION_JOB_ADDRESSES")
    ]
    assert not ids_of(world)  # a part of a larger group


@pytest.mark.parametrize("words", ["sh: 1: /app/start.sh", "/bin/bash: line 1: /app/start.sh"])
def test_a_program_that_a_shell_may_not_execute_is_no_data_without_access(words: str) -> None:
    """A redirection that is denied prints the same words, and the shell exits with 1: only 126 is about a program."""
    world = world_of()
    world.failed(126, log=f"{words}: Permission denied\n")
    assert (first_of(world).id, "chmod +x" in str(first_of(world).to_do)) == ("program-not-executable", True)
    assert '"/app/start.sh"' in first_of(world).title
    other = world_of()
    other.failed(1, log=f"{words}: Permission denied\n")
    assert first_of(other).id == "data-access-denied"


@pytest.mark.parametrize(("code", "log"), [(1, "OSError: [Errno 28] No space left on device: '/dev/shm/x'"), (135, "")])
def test_a_job_that_mounts_shared_memory_is_not_told_of_the_default(code: int, log: str) -> None:
    """Its own volume is full."""
    world = world_of()
    world.failed(code, log=log)
    assert "64Mi" in first_of(world).title
    for replica in world.spec["tfReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    first = first_of(world)
    assert ("64Mi" in first.title, "raise sizeLimit" in str(first.to_do)) == (False, True)


@pytest.mark.parametrize(
    ("log", "advice"),
    [
        ("/usr/bin/python3: No module named trainer.fitt", "after -m in command"),
        (
            "/usr/bin/python3: Error while finding module specification for 't.x' (ModuleNotFoundError: No module named 't')",
            "after -m in command",
        ),
        ("ModuleNotFoundError: No module named 'trainer.fit'", "a version of the package"),
    ],
)
def test_a_module_that_the_command_names_is_to_be_corrected_there(log: str, advice: str) -> None:
    """CPython: Lib/runpy.py; an import in the program raises an exception instead."""
    world = world_of()
    world.failed(1, log=log)
    first = first_of(world)
    assert first.id == "python-module-missing"
    assert advice in str(first.to_do)


def test_a_replica_that_was_killed_for_its_memory_is_the_cause_for_its_peers() -> None:
    world = world_of()
    second_to(world, 137, "OOMKilled", "")
    assert ids_of(world)[:2] == ["out-of-memory", "peer-failed"]


def test_an_exception_that_was_handled_is_not_why_jax_aborted_a_process() -> None:
    world = world_of()
    world.exited(134, log=f"{RAISED}epoch 4 loss 0.12\n{ABORTED_BY_JAX}")
    assert ids_of(world) == ["peer-failed"]


def test_the_chief_is_the_first_process_of_jax() -> None:
    world = world_of()
    world.spec["tfReplicaSpecs"]["Chief"] = deepcopy(world.spec["tfReplicaSpecs"]["Worker"]) | {"replicas": 1}
    for rank, name in ((0, "mnist-chief-0"), (1, "mnist-worker-0"), (7, "7")):
        lost = f"UNAVAILABLE: Task {rank} heartbeat timeout. This indicates that the remote task has failed"
        world.exited(134, log=f"F1129 19:36:06.583757   26564 client.h:80] absl::Status: INTERNAL: {lost}")
        (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "peer-failed")
        assert f"another replica ended: {name} (" in found.title


@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "deny.example.com" denied the request: no Services',
        "services \"mnist-worker-1\" is forbidden: ValidatingAdmissionPolicy 'small' with binding 'b' denied request: no",
        "something new",
    ],
)
def test_advice_for_a_service_that_is_denied_is_not_about_the_pod_template(message: str) -> None:
    world = world_of()
    del world.pods[WORKER]
    world.job_event("FailedCreateService", f"Error creating: {message}")
    steps = " ".join(first_of(world).to_do)
    assert "template" not in steps
    assert "No field of the job changes its Services: ask your cluster administrator" in steps


MISSING = (
    "securityContext.allowPrivilegeEscalation=false",
    'securityContext.capabilities.drop=["ALL"]',
    "securityContext.runAsNonRoot=true",
    'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
)


@pytest.mark.parametrize(
    ("violations", "words"),
    [
        (
            ", ".join(f'of the field (pod or container "tensorflow" must set {field})' for field in MISSING),
            ", ".join(f"set {field}" for field in MISSING),
        ),
        *[
            ('hostPath volumes (volume "data"), runAsNonRoot (pod must not set securityContext.runAsNonRoot=false)',)
            * 2
        ],
    ],
    ids=["missing fields", "other violations"],
)
def test_line_one_names_each_field_that_pod_security_misses(violations: str, words: str) -> None:
    world = world_of()
    world.refuse(f'pods "{WORKER}" is forbidden: violates PodSecurity "restricted:latest": {violations}')
    title = first_of(world).title
    assert title == f'Pod Security "restricted" of the namespace is violated ({WORKER} not created): {words}'


def test_a_policy_that_denies_with_413_is_a_policy_that_denies() -> None:
    """It chooses the code itself: the object is not too large, and the API server is not overloaded."""
    world = world_of()
    denied = "ValidatingAdmissionPolicy 'small' with binding 'small-b' denied request: not so large"
    world.refuse(
        f'POST /api/v1/namespaces/team/pods: 413 RequestEntityTooLarge: pods "{WORKER}" is forbidden: {denied}'
    )
    assert first_of(world).id == "admission-policy-denied"


def test_a_tensorboard_that_starts_again_is_no_trouble() -> None:
    world = world_of("tensorboard-not-starting")
    world.event("Pod", "mnist-tensorboard-7d9-x2x", "Started", "Started container", type_="Normal", minutes=1)
    assert ids_of(world) == []


def test_no_value_of_a_title_is_glued_to_a_word() -> None:
    """Values are trimmed: a space between a word and a value must stand in the title itself."""
    assert [title for problem in PROBLEMS.values() if re.search(r"\w\{|\}\w", title := problem.title)] == []


def test_optional_values_are_separate_words() -> None:
    title = first_of(world_of("out-of-memory")).title
    assert title.endswith("container tensorflow of mnist-worker-1 exceeded its memory limit of 4Gi")
    evidence = replace(world_of("suspended").evidence(), suspended_by="ada")
    assert diagnose(evidence).causes[0].title == "Suspended by ada"


@pytest.mark.parametrize("limit", LIMITS)
def test_each_limit_is_the_only_cause_and_the_advice_names_its_field(limit: EventReason) -> None:
    world = world_of()
    world.end("Failed", "JobFailed", f"Job mnist has failed because {LIMITS[limit].words}. Pod deadline-0")
    (cause,) = diagnose(world.evidence()).causes
    assert cause.title.startswith(f"{limit}: ")
    assert LIMITS[limit].field in " ".join(cause.to_do)


def test_pods_of_a_shared_network_need_no_services_of_their_own_after_an_outdated_crd_pruned_the_record() -> None:
    """The operator, too, tells by the pods what network they have."""
    world = world_of()
    world.services = {"mnist": world.services[WORKER] | {"metadata": {"name": "mnist", "namespace": "team"}}}
    world.services["mnist"]["spec"] = {"selector": {"training.kubeflow.org/job-name": "mnist"}}
    world.spec["runPolicy"]["network"] = world.status["begun"]["network"] = "shared"
    for pod in world.pods.values():
        pod["spec"]["subdomain"] = "mnist"
    assert not ids_of(world)
    del world.status["begun"]
    assert not ids_of(world)
    for pod in world.pods.values():
        del pod["spec"]["subdomain"]
    assert "service-missing" in ids_of(world)


@pytest.mark.parametrize(
    ("limit_s", "when", "longer"),
    [(3900, "in 5m", 7800), (3590, "passed 10s ago", 7190), (600, "passed 50m ago", 4200)],
)
def test_the_advised_deadline_lies_in_the_future(limit_s: int, when: str, longer: int) -> None:
    """training-operator ends a job after its deadline only when it next looks: twice a deadline of long ago would end it."""
    world = world_of("deadline-near")
    world.spec["runPolicy"]["activeDeadlineSeconds"] = limit_s
    cause = first_of(world)
    assert cause.id == ("deadline-near" if when.startswith("in") else "deadline-passed")
    assert cause.title.startswith(f"Deadline {when}")
    assert f'"activeDeadlineSeconds":{longer}}}' in cause.to_do[0]


@pytest.mark.parametrize("reason", [*ConditionReason, "AReasonOfAnotherOperator", ""])
def test_a_failed_job_is_never_nothing_wrong(reason: str) -> None:
    world = world_of("job-failed")
    world.end("Failed", reason, "the flux capacitor is empty")
    first = first_of(world)
    assert (first.severity, "flux capacitor" in " ".join((first.title, *first.evidence))) == (Severity.ERROR, True)


def test_a_container_that_another_policy_restarted_is_not_blamed_on_always() -> None:
    """A node that restarts ends containers with 0, and OnFailure starts them again."""
    world = world_of("restarted-after-success")
    world.pods["mnist-worker-1"]["spec"]["restartPolicy"] = "OnFailure"
    assert "restarted-after-success" not in ids_of(world)


def test_a_job_that_ended_today_is_not_said_to_be_kept() -> None:
    """The command beside that deletes its logs, which people read first."""
    world = world_of("finished-and-kept")
    world.end("Succeeded", "TFJobSucceeded", "done", minutes=1439)
    assert not ids_of(world)


@pytest.mark.parametrize("created", ["pod: mnist-worker-1", "2 pods: mnist-worker-0 .. mnist-worker-1"])
def test_a_refusal_is_over_when_the_pod_was_created_after_it(created: str) -> None:
    world = world_of("quota-exceeded")
    others = "Created 2 pods: mnist-worker-2 .. mnist-worker-3"
    world.job_event("SuccessfulCreatePod", others, type_="Normal", minutes=0.1)
    assert "quota-exceeded" in ids_of(world)
    world.job_event("SuccessfulCreatePod", f"Created {created}", type_="Normal", minutes=0)
    assert "quota-exceeded" not in ids_of(world)


def _advice(world: Troubled) -> list[tuple[str, str, str]]:
    """The steps of all causes of a world: the ID of the cause, the prose, the command."""
    causes = diagnose(world.evidence()).causes
    return [(cause.id, *line.partition("kubectl ")[::2]) for cause in causes for line in cause.to_do]


@for_each("id_", CASES)
def test_each_command_can_be_pasted_and_the_prose_names_what_to_fill_in(id_: str) -> None:
    """No comment, which zsh takes as arguments, and no dots; a name in capitals stands in the prose too."""
    for _, prose, command in _advice(world_of(id_)):
        assert not command or not prose or prose.endswith((": ", "| ")), prose
        assert " #" not in command
        assert "..." not in command
        asked = set(re.findall(r"\b[A-Z]{2,}\b", re.sub(r"custom-columns=\S+|'[^']*'", "", command)))
        known = " ".join(text for _, text, _ in _advice(world_of(id_))) + (
            "REGISTRY SERVER USER PASSWORD" if "docker" in command else ""
        )
        assert asked <= set(re.findall(r"\b[A-Z]{2,}\b", known)), command


@for_each("id_", CASES)
def test_a_job_that_has_ended_is_replaced_and_not_edited(id_: str) -> None:
    """Nor are its pods deleted, scaled, measured or restarted: that would do nothing, or delete their logs."""
    world = world_of(id_)
    if "completionTime" not in world.status:
        world.end("Failed", "TFJobFailed", "TFJob team/mnist has failed because 1 Worker replica(s) failed.")
    world.pods.pop("mnist-worker-0", None)
    for cause, _, command in _advice(world):
        words = r" (edit|scale|patch) tfjob| top pod| exec | rollout |tfjob (resume|restart)| delete (pod|job)\b"
        assert cause == "stuck-terminating" or not re.search(words, command), command
        assert "mnist-worker-0" not in command, "that pod is gone"


@for_each("id_", CASES)
def test_no_advice_for_a_running_job_deletes_it(id_: str) -> None:
    """Only pods with the trouble are recreated; another name, or another controller, takes a new job."""
    world = world_of(id_)
    if "completionTime" in world.status:
        return
    for cause in diagnose(world.evidence()).causes:
        for line in cause.to_do:
            _, _, command = line.partition("kubectl ")
            pods = re.search(r" delete pod (.+)", command)
            if pods is not None and cause.id != "ended-pod-in-the-way":
                assert set(pods[1].replace(" --force --grace-period=0", "").split()) <= set(cause.affected)
            assert cause.id in {"manager-silent", "name-taken"} or not re.search(r"delete tfjob|replace", command)


def test_pods_that_failed_with_different_exit_codes_are_different_causes() -> None:
    world = world_of()
    for name, code in (("mnist-worker-0", 3), ("mnist-worker-1", 4)):
        world.exited(code, name=name, restarts=0)
        world.container(name).update(state=world.container(name)["lastState"], lastState={})
        world.pods[name]["status"]["phase"] = "Failed"
    found = diagnose(world.evidence()).causes
    assert [(each.id, each.affected) for each in found] == [
        ("exit-code", ("mnist-worker-0",)),
        ("exit-code", ("mnist-worker-1",)),
    ]


def test_evidence_of_several_pods_that_differ_only_in_the_pod_stands_once() -> None:
    world = world_of()
    for name in ("mnist-worker-0", "mnist-worker-1"):
        world.unscheduled("0/3 nodes are available: 3 Insufficient cpu.", name)
    (first,) = diagnose(world.evidence()).causes
    (line,) = first.evidence
    assert line.startswith("event of pod mnist-worker-0, 3m ago, 4 times (2 pods): FailedScheduling: 0/3 nodes")
    assert first.to_do[-1].endswith("kubectl -n team delete pod mnist-worker-0 mnist-worker-1")


def test_each_reason_of_the_scheduler_gets_its_advice() -> None:
    world = world_of()
    world.unscheduled("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {pool: gpu}.")
    text = " ".join(first_of(world).to_do)
    assert "Request less" in text
    assert "toleration" in text
    assert text.count("kubectl -n team delete pod mnist-worker-1") == 1


@pytest.mark.parametrize(
    ("error", "id_"),
    [
        ("pull access denied, repository does not exist or may require authorization", "image-missing-or-private"),
        ("unexpected status from HEAD request to https://r/v2/a/manifests/1: 403 Forbidden", "image-no-right"),
        ("failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized", "image-no-right"),
    ],
)
def test_only_401_and_403_are_a_missing_right(error: str, id_: str) -> None:
    """Docker Hub answers for a misspelled name as for a private image: name and tag are checked first."""
    world = world_of("image-pull-failed")
    world.events[0]["message"] = f'Failed to pull image "registry.example/train:1": {error}'
    first = first_of(world)
    assert first.id == id_
    assert first.to_do[0].startswith("Check the name and the tag first") == (id_ == "image-missing-or-private")


def test_a_command_line_in_one_word_is_to_be_split() -> None:
    command = 'exec: "python x.py --a": executable file not found in $PATH'
    world = world_of()
    world.failed(128, "StartError", command)
    for found in (diagnosed("command-not-split"), diagnose(world.evidence())):
        assert found.causes[0].id == "command-not-split"
        assert "plit the command into words" in found.causes[0].to_do[0]


def test_a_suspension_is_information_and_stands_before_warnings() -> None:
    """It explains why nothing runs, and is nobody's error."""
    one, other = diagnosed("suspended", "field-unknown").causes
    assert (one.id, one.severity) == ("suspended", Severity.INFO)
    assert (other.id, other.severity) == ("field-unknown", Severity.WARNING)
    assert one.to_do == ("kubectl tfjob resume mnist -n team",)


def test_commands_are_for_the_cluster_that_was_asked() -> None:
    """With --context they would otherwise change what is in another cluster."""
    target = Target(context="gpu", kubeconfig="my config", token="secret", namespace="b", request_timeout=5.0)
    flags = "--context=gpu '--kubeconfig=my config' --token=TOKEN"
    assert target.for_cluster("Edit: kubectl -n a edit tfjob b") == f"Edit: kubectl {flags} -n a edit tfjob b"
    assert target.for_cluster("kubectl tfjob resume b -n a") == f"kubectl tfjob {flags} resume b -n a"
    assert target.for_cluster("Ask somebody") == "Ask somebody"


def _noise(world: Troubled) -> Troubled:
    """Add what every cluster has: old events, a restart of another replica, full nodes elsewhere, quotas with room."""
    world.job_event("SuccessfulCreatePod", "Created pod: mnist-ps-0", type_="Normal", minutes=58)
    world.job_event(
        "FailedCreatePod", 'Error creating: pods "mnist-ps-0" is forbidden: exceeded quota: old', minutes=59
    )
    world.pod_event("FailedScheduling", "0/2 nodes are available: 2 Insufficient cpu.", "mnist-ps-0", minutes=58)
    mount = 'MountVolume.SetUp failed for volume "c" : configmap "c" not found'
    world.pod_event("FailedMount", mount, "mnist-ps-0", minutes=58)
    world.pod_event("Failed", "Error: ErrImagePull", "mnist-ps-0", minutes=57)
    world.pod_event("Failed", 'Failed to pull image "x": toomanyrequests', "another-job-worker-1", minutes=1)
    status = world.pods.get("mnist-ps-0", {}).get("status", {}).get("containerStatuses")
    if status:
        status[0] |= {"restartCount": 1, "lastState": {"terminated": {"exitCode": 1, "finishedAt": ago(40)}}}
    world.quotas.append({"metadata": {"name": "roomy"}, "status": {"hard": {"pods": "50"}, "used": {"pods": "3"}}})
    return world


@for_each("id_", CASES)
def test_each_trouble_stays_on_line_one_among_what_does_not_matter(id_: str) -> None:
    found = diagnose(_noise(world_of(id_)).evidence())
    assert found.causes[0].id == id_, [cause.id for cause in found.causes]
    news = {cause.id for cause in found.causes} - {cause.id for cause in diagnosed(id_).causes}
    assert news <= {"was-restarted"}


@for_each("id_", CASES)
def test_it_does_not_matter_in_which_order_things_were_read(id_: str) -> None:
    evidence = _noise(world_of(id_)).evidence()
    turned = replace(
        evidence,
        pods=tuple(reversed(evidence.pods)),
        events=tuple(reversed(evidence.events)),
        services=tuple(reversed(evidence.services or ())),
        nodes=None if evidence.nodes is None else tuple(reversed(evidence.nodes)),
        claims=tuple(reversed(evidence.claims)),
        quotas=tuple(reversed(evidence.quotas)),
    )
    assert diagnose(turned) == diagnose(evidence) == diagnose(evidence)


ROOTS = [
    (("image-not-found", "operator-not-running"), "operator-not-running"),
    (("quota-exceeded", "operator-not-running"), "operator-not-running"),
    (("quota-exceeded", "edit-not-seen"), "quota-exceeded"),
    (("held-invalid", "crash-loop"), "held-invalid"),
    (("disrupted", "service-account-missing"), "service-account-missing"),
    (("claim-lost", "field-unknown"), "claim-lost"),
    (("insufficient-resource", "deadline-near"), "insufficient-resource"),
    (("out-of-memory", "deadline-near"), "out-of-memory"),
    (("held-invalid", "deadline-passed"), "deadline-passed"),
    (("operator-scaled-to-zero", "deadline-passed"), "operator-scaled-to-zero"),
    (("image-pull-secret-missing", "image-no-right"), "image-no-right"),
    (("namespace-terminating", "quota-exceeded"), "namespace-terminating"),
]


@pytest.mark.parametrize(("ids", "root"), ROOTS, ids=[" and ".join(ids) for ids, _ in ROOTS])
def test_of_two_troubles_the_one_that_hides_the_other_stands_first(ids: tuple[str, ...], root: str) -> None:
    assert diagnosed(*ids).causes[0].id == root


def test_a_type_that_only_training_operator_has_is_not_to_be_renamed_while_its_pods_run() -> None:
    """Seen: the pod of the renamed type was deleted after 14 minutes of training, and another one began from the start."""
    world = world_of("invalid-here")
    assert "starts anew, and its running pods are lost" in first_of(world).to_do[0]
    world.status["observedGeneration"] = 1  # this operator has served it: nobody else runs it
    assert ids_of(world) == ["replica-type-unknown"]
    world._held("InvalidTFJobSpec: spec.tfReplicaSpecs.Trainer: Unsupported value")
    (cause,) = diagnose(world.evidence()).causes
    assert "running pods continue, except those of Trainer: they are deleted when the type is renamed" in cause.to_do[0]
    assert cause.to_do[-1].endswith("see the way back in kubectl tfjob migrate --plan")
    world.elsewhere = {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": {"replicas": 1}}
    assert first_of(world).to_do[-1].endswith("kubectl tfjob migrate --plan --namespace=team")
    world.elsewhere = None
    world._beside()  # after the way back: training-operator runs the job, and leaves the condition
    assert ids_of(world) == ["invalid-here"]


def test_a_move_of_a_namespace_that_was_interrupted_is_to_be_continued() -> None:
    """training-operator runs, and may no longer write here; a fresh installation would serve the whole cluster."""
    world = world_of("operator-missing")
    training_operator = {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": {"replicas": 1}}
    world.elsewhere = training_operator
    assert "continue or undo that: kubectl tfjob migrate --plan --namespace=team" in first_of(world).to_do[0]
    assert "Install the operator" not in steps_of(world)
    world.status.update(deepcopy(world_of().status))  # a job that ran before
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["operator-missing"]
    stopped = world_of("operator-scaled-to-zero")
    assert first_of(stopped).to_do[0].startswith("Start it: ")
    stopped.elsewhere = training_operator  # its permissions may be gone, after an unfinished way back
    assert "continue or undo that: " in first_of(stopped).to_do[0]
    assert first_of(stopped).to_do[1].startswith("Otherwise start it: kubectl -n kubeflow scale deployment ")
    training_operator["spec"] = {"replicas": 0}
    assert first_of(world).to_do[0].endswith("go back: kubectl tfjob migrate --plan")
    world = world_of("two-operators")
    assert "with the steps of: kubectl tfjob migrate --plan" in (told := steps_of(world))
    assert "--plan --namespace" not in told
    world.deployments = [operator_deployment("kubeflow", "--namespace=team", readyReplicas=2)]
    assert "with the steps of: kubectl tfjob migrate --plan --namespace=team" in steps_of(world)


@pytest.mark.parametrize("id_", ["held-invalid", "held-refused", "held-too-large"])
def test_no_pod_is_to_be_deleted_while_the_job_is_on_hold(id_: str) -> None:
    """It would not be recreated, and `kubectl tfjob restart` refuses. A job that is too large runs on."""
    world = world_of(id_, "out-of-memory")
    told = str([each.to_do for each in diagnose(world.evidence()).causes])
    is_on_hold = id_ != "held-too-large"
    assert ("Delete no pods while the job is on hold" in told) is is_on_hold
    assert ("delete pod" in told or "tfjob restart" in told) is not is_on_hold


def test_a_peer_that_waits_for_room_explains_the_one_that_cannot_resolve_its_name() -> None:
    world = world_of()
    quota = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    world.refuse(f'pods "mnist-ps-0" is forbidden: {quota}', "mnist-ps-0")
    world.exited(1, name="mnist-worker-0", log="DNS resolution failed for mnist-ps-0.team.svc:2222")
    assert ids_of(world) == ["quota-exceeded", "peer-name-unresolved"]


def test_a_refusal_that_has_passed_is_not_told() -> None:
    world = world_of()
    pod = world.pods["mnist-worker-1"]
    CASES["quota-exceeded"](world)
    world.pods["mnist-worker-1"] = pod
    assert not ids_of(world)


def test_replicas_with_the_same_trouble_are_one_cause_in_their_natural_order() -> None:
    world = world_of()
    world.spec["tfReplicaSpecs"]["Worker"]["replicas"] = 12
    pod = world.unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", "mnist-worker-1")
    for index in (10, 2):
        name = f"mnist-worker-{index}"
        world.pods[name] = deepcopy(pod) | {"metadata": pod["metadata"] | {"name": name, "uid": name}}
    (first, *_) = [cause for cause in diagnose(world.evidence()).causes if cause.id == "insufficient-resource"]
    assert first.affected == ("mnist-worker-1", "mnist-worker-2", "mnist-worker-10")
    assert first.title == "Not scheduled (3 pods): 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"


def test_what_one_may_not_read_is_said() -> None:
    world = world_of()
    world.forbidden = ["nodes", "leases in kubeflow", "nodes"]
    told = "Not checked, because you have no permission to read: leases in kubeflow, nodes"
    assert diagnose(world.evidence()).unseen == told
    evidence = replace(world_of().evidence(), events_cut=True)
    assert diagnose(evidence).unseen == "Events were read only partly, because the namespace has too many"


NVIDIA = "Insufficient nvidia.com/gpu"
SCHEDULER = [
    (f"3 {NVIDIA}.", "insufficient-resource"),
    (f"2 {NVIDIA}, 1 node(s) had untolerated taint {{gpu: true}}.", "taint-not-tolerated"),
    (f"1 node(s) had untolerated taint(s), 2 {NVIDIA}.", "taint-not-tolerated"),
    ("1 Insufficient cpu, 2 node(s) had taint {node-role.kubernetes.io/master: }, that the pod didn't tolerate.",
     "insufficient-resource"),
    ("3 node(s) had taint {dedicated: gpu}, that the pod didn't tolerate.", "taint-not-tolerated"),
    (f"3 node(s) had untolerated taint {{dedicated: gpu}}.{PREEMPTION}", "taint-not-tolerated"),
    ("3 node(s) had untolerated taint(s).", "taint-not-tolerated"),
    ("1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) didn't match Pod's node affinity.",
     "node-selector"),
    (f"3 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate,{PREEMPTION}", "node-selector"),
    ("3 node(s) didn't match Pod's node affinity.", "node-selector"),
    ("3 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.", "nodes-not-ready")
]  # fmt: skip
"""Besides those that are cases."""


@pytest.mark.parametrize(("reasons", "id_"), SCHEDULER)
def test_the_scheduler_is_quoted_and_its_reasons_are_known(reasons: str, id_: str) -> None:
    """The messages are those of Kubernetes 1.20 to 1.36."""
    world = world_of()
    message = f"0/3 nodes are available: {reasons}"
    world.unscheduled(message)
    first = first_of(world)
    assert (first.id, message.partition(" preemption: ")[0][:50].rstrip(".") in first.title) == (id_, True)


@pytest.mark.parametrize("reasons", ["1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node affinity/selector",
                                     "3 node(s) had untolerated taint {gpu: true}"])  # fmt: skip
def test_a_node_selector_that_no_node_matches_comes_before_the_taints_of_other_nodes(reasons: str) -> None:
    """A toleration would not help. But if a selected node exists, its taint is what keeps the pod away."""
    world = world_of()
    world.unscheduled(f"0/3 nodes are available: {reasons}.")["spec"]["nodeSelector"] = {"pool": "h200", "a": "b"}
    assert first_of(world).id == "taint-not-tolerated"
    first = diagnose(replace(world.evidence(), unmatched=["a=b,pool=h200"])).causes[0]
    assert first.id == "node-selector"
    assert first.evidence[-1] == "no node has the labels of nodeSelector: a=b,pool=h200"
    assert any("toleration" in step for step in first.to_do)
    world.events[-1]["message"] = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    first = diagnose(replace(world.evidence(), unmatched=["a=b,pool=h200"])).causes[0]
    assert first.id == "insufficient-resource", "the node without room was selected, before it disappeared"


def test_a_job_that_failed_is_explained_by_the_pod_that_its_condition_names() -> None:
    """Others that failed later may have failed because of it."""
    world = world_of()
    world.exited(1, name="mnist-worker-0", log="UnavailableError: Socket closed")
    world.failed(137, "OOMKilled")
    first = first_of(world)
    assert (first.id, first.affected) == ("out-of-memory", ("mnist-worker-1",))


def test_a_rule_that_failed_the_job_stands_behind_the_failure_that_it_is_about() -> None:
    world = world_of()
    why = "pod mnist-worker-1: container tensorflow exited with code 1: ValueError: no data"
    world.end("Failed", "PodFailurePolicy", f"TFJob team/mnist has failed by rule noData: {why}")
    assert ids_of(world) == ["exit-code", "failed-by-rule"]


def test_a_field_that_is_unknown_is_named_after_the_job_has_failed_too() -> None:
    """As a warning; if it leaves the rule that ended the job without a matcher, it is the likeliest cause."""
    world = world_of("exit-code")
    world.spec["runPolicy"]["failurepolicy"] = {"rules": []}
    assert ids_of(world) == ["exit-code", "field-unknown"]
    world.end("Succeeded", "TFJobSucceeded", "done")
    assert ids_of(world) == ["field-unknown"], "a misspelled command is ignored, and that of the image may exit with 0"
    world = world_of("rule-misspelled")
    assert ids_of(world) == ["rule-misspelled", "exit-code", "failed-by-rule"]
    assert first_of(world).title == (
        "Rule rule0 of the failure policy has no matcher, so it matches every failure: "
        "spec.runPolicy.failurePolicy.rules[0].onExitCode: unknown field is ignored; did you mean onExitCodes?"
    )
    for change in ({"rule": "another"}, {"number": -1}):
        other = deepcopy(world)
        other.status["attemptHistory"][0] |= change
        assert ids_of(other) == ["exit-code", "failed-by-rule", "field-unknown"]


def test_the_cause_of_whole_restarts_is_read_from_the_last_attempt_to_its_end() -> None:
    """Also if an event tells of the same exit, while pods of that attempt end, and if the log is long."""
    world = world_of("restart-delayed")
    log = " / ".join(
        [f"some log line number {number}" for number in range(30)] + ["ModuleNotFoundError: No module named 'k'"]
    )
    world.status["attemptHistory"][0] |= {"exitCode": 1, "podName": WORKER, "message": log}
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 1: {log}")
    first = first_of(world)
    assert (first.id, "number 29 / ModuleNotFoundError" in first.evidence[0]) == ("python-module-missing", True)
    del world.status["nextRestartTime"]
    assert first_of(world).id == "python-module-missing", "no pod runs"
    world.status["attemptHistory"][0]["action"] = "RestartAllAndIgnoreMaxRestarts"
    assert "python-module-missing" not in ids_of(world), "its pods were disrupted"


@pytest.mark.parametrize(
    ("reason", "attempt", "minutes", "is_over"),
    [
        ("NodeSick", "", 2, True),
        ("NodeLost", "", 2, True),
        ("NodeSick", "", 4, False),
        ("", "NodeSick", 2, True),
        ("", "NodeSick", 4, False),
        ("", "Error", 2, False),
    ],
)
def test_permissions_for_nodes_are_not_missing_once_the_operator_acted_on_a_node(
    reason: str, attempt: str, minutes: float, is_over: bool
) -> None:
    """The age of the event, here three minutes, says nothing: the operator records it once."""
    world = world_of("nodes-unavailable")
    if reason:
        world.job_event(reason, "Pod mnist-worker-1: its node node-1 has taint gpu", minutes=minutes)
    world.status["attemptHistory"] = [{"number": 0, "endTime": ago(minutes), "reason": attempt}] if attempt else []
    assert ("nodes-unavailable" not in ids_of(world)) is is_over
    assert "lacked permissions for nodes 3m ago: " in first_of(world_of("nodes-unavailable")).title


def test_nodes_are_not_avoided_even_if_the_operator_acted_on_a_node_since() -> None:
    world = world_of("nodes-not-avoided")
    world.job_event("NodeSick", "Pod mnist-worker-1: its node node-1 has taint gpu", minutes=0.5)
    assert "nodes-not-avoided" in ids_of(world)


def test_a_pod_on_a_lost_node_was_not_rejected_by_the_kubelet() -> None:
    """The operator marked it as failed. A job that failed by it has no other error."""
    world = world_of()
    world._pod_failed("NodeLost", "Node node-1 is lost")
    assert "rejected-by-node" not in ids_of(world)
    why = "Pod mnist-worker-1: NodeLost (Node node-1 is lost)"
    world.end("Failed", "TFJobFailed", f"TFJob team/mnist has failed because 1 Worker replica(s) failed. {why}")
    (cause,) = diagnose(world.evidence()).causes
    assert (cause.id, cause.severity, cause.title) == (
        "node-lost",
        Severity.ERROR,
        "Node node-1 is lost, and pods of the job with it",
    )
    assert "replace --force" in cause.to_do[-1]


def test_what_becomes_of_the_pods_of_a_node_that_is_not_ready_depends_on_the_job() -> None:
    world = world_of("node-not-ready")
    world.pods["mnist-ps-0"]["spec"]["nodeName"] = "node-1"
    five, lost = "are deleted after five minutes", "has not been ready for 10m (spec.runPolicy.nodeLostTimeoutSeconds)"
    steps = " ".join(first_of(world).to_do)
    assert (five in steps, lost in steps) == (True, False)
    assert steps.endswith("kubectl -n team delete pod mnist-ps-0 mnist-worker-0 --force --grace-period=0")
    for number in range(2, 42):
        more = world.pods[f"mnist-worker-{number}"] = deepcopy(world.pods["mnist-worker-0"])
        more["metadata"] |= {"name": f"mnist-worker-{number}", "uid": f"{number}"}
        more["metadata"]["labels"]["training.kubeflow.org/replica-index"] = f"{number}"
    (command,) = (step for step in first_of(world).to_do if "--force" in step)
    assert command.count(" mnist-") == 30


@pytest.mark.parametrize(
    "status",
    [
        {"restarts": [{"type": "Worker", "index": 1, "carried": 8}]},
        {"attempt": 9, "attemptHistory": [{"number": 8, "endTime": ago(1)}]},
        {"attempt": 1, "nextRestartTime": ago(-1)},
    ],
)
def test_pods_that_the_operator_recreated_were_deleted_by_nobody_else(status: dict[str, Any]) -> None:
    world = world_of("pods-recreated")
    world.status.update(status)
    for pod in world.pods.values():
        pod["metadata"]["labels"]["training.kubeflow.org/restart-attempt"] = str(status.get("attempt", 0))
    assert "pods-recreated" not in ids_of(world)
    for each in world.status.get("attemptHistory", ()):
        each["endTime"] = ago(11)
        assert "pods-recreated" in ids_of(world), "that was before"


def test_a_replica_whose_pods_the_kubelet_evicts_again_and_again_is_found_when_events_are_no_longer_written() -> None:
    """The operator's events on a job are limited; it deletes and replaces such pods itself."""
    world = world_of()
    world.job_event("SuccessfulCreatePod", f"Created pod: {WORKER}", type_="Normal", count=25, minutes=17, first=18)
    message = f"Pod: team.{WORKER} exited with code 143: Evicted: The node was low on resource: memory."
    for _ in range(30):  # each has an event of its own, which is written before the pod is deleted
        world.job_event("ExitedWithCode", message, type_="Normal", minutes=17)
    assert "pods-recreated" not in ids_of(world)
    world.pods[WORKER]["metadata"]["creationTimestamp"] = ago(0.1)
    found = next(each for each in diagnose(world.evidence()).causes if each.id == "pods-recreated")
    assert found.title == (
        f"Recreated 30 times within 18m ({WORKER}): exited with code 143: Evicted: The node was low on resource: memory."
    )
    assert "kubectl describe nodes" in found.to_do
    world.job_event("SuccessfulCreatePod", "Created pod: mnist-worker-0", type_="Normal", count=9)
    other = next(each for each in diagnose(world.evidence()).causes if each.affected != (WORKER,))
    assert "exited" not in other.title


@pytest.mark.parametrize("state", ["ready", "terminating"])
def test_a_replica_that_is_evicted_again_and_again_is_found_while_its_newest_pod_is_well(state: str) -> None:
    """An eviction by API, as of a drain or a descheduler, leaves no event; and it counts as no restart."""
    world = world_of()
    if state == "terminating":
        world.pods["mnist-worker-1"]["metadata"]["deletionTimestamp"] = ago(0)
    world.job_event("SuccessfulCreatePod", "Created pod: mnist-worker-1", type_="Normal", count=12, minutes=0, first=25)
    found = next(each for each in diagnose(world.evidence()).causes if each.id == "pods-recreated")
    assert found.title == "Recreated 11 times within 25m (mnist-worker-1)"
    assert first_of(world) == found, "the next pod may be terminating, too"
    assert not any("template" in step or "restart" in step or "get events" in step for step in found.to_do)
    world.pod_event(
        "TaintManagerEviction", "Marking for deletion Pod team/mnist-worker-1", "mnist-worker-1", type_="Normal"
    )
    found = next(each for each in diagnose(world.evidence()).causes if each.id == "pods-recreated")
    assert found.title.endswith(": TaintManagerEviction: Marking for deletion Pod team/mnist-worker-1")
    world.pod_event("Evicted", "The node was low on resource: memory.", "mnist-worker-1", minutes=3)
    world.pod_event("ExceededGracePeriod", "Container runtime did not kill the pod", "mnist-worker-1", minutes=2)
    world.events = [event for event in world.events if event["reason"] != "TaintManagerEviction"]
    found = next(each for each in diagnose(world.evidence()).causes if each.id == "pods-recreated")
    assert found.title.endswith(": Evicted: The node was low on resource: memory.")
    assert "who deletes" not in str(found.to_do)
    world.job_event("TFJobResumed", "TFJob team/mnist is resumed.", type_="Normal", count=11)
    assert "pods-recreated" not in ids_of(world)


def test_a_job_that_failed_at_a_limit_says_which_replica_reached_it_and_how() -> None:
    world = world_of("start-deadline-exceeded")
    assert first_of(world).title.endswith(" of its spec")
    said = (
        'did not run in time: Error pod mnist-ps-0 container tensorflow waiting message: Back-off pulling image "t:9"'
    )
    failure: dict[str, Any] = {"podName": "mnist-ps-0", "reason": "StartDeadlineExceeded", "message": said}
    world.status["begun"]["ending"] = {"type": "Failed", "event": "StartDeadlineExceeded", "failure": failure}
    assert first_of(world).title.endswith(f" of its spec (mnist-ps-0 {said})")
    words = "did not run in time: it has no pod, see the events of the job"
    absent = {"replicaType": "PS", "replicaIndex": 0, "reason": "StartDeadlineExceeded", "message": words}
    world.status["begun"]["ending"]["failure"] = absent
    assert first_of(world).title.endswith(f" of its spec (mnist-ps-0 {words})")
    world.status["begun"]["ending"]["failure"] = failure
    failure["message"] = 'did not run in time: container tensorflow: secret "keys" not found'
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["start-deadline-exceeded", "secret-missing"]
    said = "Epoch 3/10 / Traceback (most recent call last): / RuntimeError: NCCL error / closing"
    ended: dict[str, Any] = {"podName": "mnist-ps-0", "exitCode": 1, "message": said}
    for event in ("MaxRestartsExceeded", "BackoffLimitExceeded"):
        world.status["begun"]["ending"] = {"type": "Failed", "event": event, "failure": ended}
        assert first_of(world).title.endswith(" allows (mnist-ps-0, exit code 1: RuntimeError: NCCL error)")


OF_TRAINING: Final = """Epoch 1/5
Traceback (most recent call last):
  File "/app/train.py", line 60, in <module>
    main()
"""


@pytest.mark.parametrize(
    "line",
    [
        "rm: cannot remove '/tmp/train.lock': No such file or directory",
        "rm: cannot remove '/tmp/lock': Permission denied",
        "upload failed: ./out.txt to s3://logs/out.txt An error occurred (AccessDenied) when calling the PutObject operation",
        "fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden",
        "cp: cannot stat '/ckpt/best.pt': No such file or directory",
        "curl: (6) Could not resolve host: hooks.slack.com",
        "tar: /backup/out.tar: Cannot write: No space left on device",
        "python: can't open file '/app/upload.py': [Errno 2] No such file or directory",
        "/app/run.sh: line 9: gsutil: command not found",
        "+ cat /var/log/train.log\ncat: /var/log/train.log: No such file or directory",
        "AccessDeniedException: 403 trainer@ml.example does not have storage.objects.create access to the bucket.",
        "ERROR: (gcloud.storage.cp) HTTPError 403: trainer@ml.example does not have storage.objects.create access.",
        "fatal: unable to access 'https://github.com/ml/logs/': Could not resolve host: github.com",
        "ERROR: training failed with exit code 1",
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_command_that_fails_after_an_exception_of_the_training_is_not_the_cause(line: str, *, is_gone: bool) -> None:
    """A script cleans up after the training has failed. An exception that names its own cause keeps it."""
    own = {
        "RuntimeError: shape '[8, 12]' is invalid": "exit-code",
        "PermissionError: [Errno 13] Permission denied: '/data/a'": "data-access-denied",
    }
    for error, problem in own.items():
        world, log = Troubled(), f"{OF_TRAINING}{error}\n{line}\n"
        world.failed(1, message=tail_of(log)) if is_gone else world.failed(1, log=log)
        if is_gone:
            del world.pods[WORKER]
        first = first_of(world)
        assert first.id == problem
        assert ("shape '[8, 12]' is invalid" if problem == "exit-code" else "/data/a") in first.title


@for_each("code", [2, 126, 127])
def test_the_code_of_a_command_after_an_exception_is_not_explained(code: int) -> None:
    """Python exits with 1 after an exception: the code is that of what the script ran last."""
    world = Troubled()
    world.failed(
        code, log=f"{OF_TRAINING}RuntimeError: shape '[8, 12]' is invalid\ntar: /out: Cannot open: Is a directory"
    )
    words = f"container tensorflow exited with code {code}: RuntimeError: shape '[8, 12]' is invalid"
    assert first_of(world).title == f"Failed ({WORKER}): {words}"


def test_what_a_training_that_went_on_after_an_exception_printed_last_still_decides() -> None:
    world = Troubled()
    handled = f"{OF_TRAINING}RuntimeError: no cuDNN\nEpoch 2/5\ntee: /logs/out.txt: No space left on device"
    world.failed(1, log=handled)
    assert first_of(world).id == "disk-full"
    world = Troubled()
    world.failed(1, log=f"{OF_TRAINING}RuntimeError: no cuDNN\nEpoch 2/5\nERROR: no data in /data")
    assert first_of(world).title.endswith(": ERROR: no data in /data")


@pytest.mark.parametrize(
    ("between", "words"),
    [
        ("", "ValueError: tokenizer has no pad_token"),
        (
            "Epoch 2/5\n",
            "CalledProcessError: Command '['/usr/bin/python3', 'finetune.py']' returned non-zero exit status 1.",
        ),
    ],
)
def test_the_exception_of_a_child_decides_over_that_of_its_launcher(between: str, words: str) -> None:
    child = f"{OF_TRAINING}ValueError: tokenizer has no pad_token\n{between}"
    command = "Command '['/usr/bin/python3', 'finetune.py']' returned non-zero exit status 1."
    world = Troubled()
    world.failed(1, log=f"{child}{OF_TRAINING[10:]}subprocess.CalledProcessError: {command}\n")
    assert first_of(world).title.endswith(f": {words}")


def test_an_exception_above_hundreds_of_lines_of_a_library_is_found_and_the_advice_prints_as_many_lines() -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "ValueError: labels must be in [0, 10)",
    ]
    noise = [f"wandb: Synced file {number}: media/table-{number}.json (failed uploads: 0)" for number in range(200)]
    world = Troubled()
    world.exited(1, log="\n".join([*trace, *noise]))
    found = first_of(world)
    assert found.title.endswith(": ValueError: labels must be in [0, 10)")
    assert found.to_do[0].endswith(" --tail=400")
    world = Troubled()
    world.exited(1, log="\n".join([*noise, *trace]))
    assert first_of(world).to_do[0].endswith(" --tail=50")


CRASH = {
    "podName": WORKER,
    "reason": "Error",
    "containerName": "tensorflow",
    "exitCode": 1,
    "message": "KeyError: 'LR'",
}
PULL = 'container tensorflow: Back-off pulling image "train:2": ErrImagePull: manifest unknown'
NO_POD = {
    "replicaType": "Worker",
    "replicaIndex": 1,
    "reason": "NotRunning",
    "message": "was not running: it was restarted",
}


@pytest.mark.parametrize(
    ("failure", "events", "ids", "last"),
    [
        (
            CRASH,
            [],
            ["exit-code", "deadline-not-running"],
            f"({WORKER}, container tensorflow: exit code 1: KeyError: 'LR')",
        ),
        (
            {"podName": WORKER, "reason": "NotRunning", "message": f"was not running: {PULL}"},
            [],
            ["image-not-found", "deadline-not-running"],
            f"({WORKER} was not running: {PULL})",
        ),
        (
            NO_POD,
            [("job", "ExitedWithCode", f"Pod: team.{WORKER} exited with code 1: KeyError: 'LR'", 11)],
            ["exit-code", "deadline-not-running"],
            f"({WORKER} was not running: it was restarted)",
        ),
        (
            None,
            [("pod", "BackOff", "Back-off restarting failed container", 10)],
            ["deadline-not-running"],
            f"({WORKER}: Back-off restarting failed container, 1 times)",
        ),
        (
            None,
            [("job", "ImagePullBackOff", f"Error pod {WORKER} container tensorflow waiting message: {PULL[22:]}", 50)],
            ["image-not-found", "deadline-not-running"],
            f"({WORKER}, {PULL})",
        ),
        (None, [("pod", "BackOff", "Back-off restarting failed container", 40)], ["deadline-exceeded"], ""),
        (
            None,
            [
                (
                    "job",
                    "ImagePullBackOff",
                    f"Error pod {WORKER} container tensorflow waiting message: {PULL[22:]}",
                    50,
                ),
                ("pod", "Started", "Started container tensorflow", 45),
            ],
            ["deadline-exceeded"],
            "",
        ),
    ],
)
def test_a_job_that_reached_its_deadline_while_a_replica_was_not_running_names_its_trouble_first(
    failure: dict[str, Any] | None, events: list[tuple[str, str, str, float]], ids: list[str], last: str
) -> None:
    """Its pods are gone. Without the record of the operator, recent events tell; a replica that recovered is not blamed."""
    world = Troubled()
    world._at_deadline(failure)
    for kind, reason, message, minutes in events:
        add = world.job_event if kind == "job" else world.pod_event
        add(reason, message, minutes=minutes)
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ids
    assert found[-1].title.endswith(last)
    if ids[0] == "deadline-not-running":
        assert found[0].to_do[1].startswith("Save the manifest, then in the file correct what kept the named replica")


def test_a_finished_job_is_saved_and_replaced_once_for_all_causes() -> None:
    world = Troubled()
    world._at_deadline(CRASH)
    first, second = diagnose(world.evidence()).causes
    assert [sum(word in step for step in first.to_do) for word in ("get tfjob mnist -o yaml", "replace --force")] == [
        1,
        1,
    ]
    assert not any("saved.yaml" in step for step in second.to_do)
    assert "In the saved manifest, also correct what kept the named replica from running" in str(second.to_do)


def test_a_pod_that_could_not_be_created_until_the_deadline_is_explained_by_the_refusal() -> None:
    """The record of the operator only says that there was no pod."""
    world = Troubled()
    absent = {"replicaType": "Worker", "replicaIndex": 1, "reason": "NotRunning", "message": "was not running: no pod"}
    world._at_deadline(absent)
    refusal = "exceeded quota: q, requested: requests.cpu=40, used: requests.cpu=80, limited: requests.cpu=100"
    world.job_event("FailedCreatePod", f'Error creating: pods "{WORKER}" is forbidden: {refusal}', minutes=20)
    world.job_event("SuccessfulCreatePod", "Created pod: mnist-worker-0", minutes=15)
    assert ids_of(world) == ["quota-exceeded", "deadline-not-running"]
    at_start = world_of("start-deadline-exceeded")
    failure = absent | {"reason": "StartDeadlineExceeded"}
    at_start.status["begun"]["ending"] = {"type": "Failed", "event": "StartDeadlineExceeded", "failure": failure}
    at_start.pods, at_start.events = {}, world.events
    assert set(ids_of(at_start)) == {"quota-exceeded", "start-deadline-exceeded"}
    world.job_event("SuccessfulCreatePod", f"Created pod: {WORKER}", minutes=12)
    assert ids_of(world) == ["deadline-not-running"]


def test_an_image_that_kept_a_replica_from_its_start_deadline_is_a_cause_of_its_own() -> None:
    """Its pod is gone. The same message is one of the active deadline."""
    world = world_of("start-deadline-exceeded")
    failure = {"podName": WORKER, "reason": "StartDeadlineExceeded", "message": f"did not run in time: {PULL}"}
    world.status["begun"]["ending"] = {"type": "Failed", "event": "StartDeadlineExceeded", "failure": failure}
    world.pods = {}
    assert ids_of(world) == ["start-deadline-exceeded", "image-not-found"]


def test_a_job_whose_replica_crashed_and_ran_by_turns_until_its_deadline_has_the_last_exit() -> None:
    """The operator saw it running at that moment. One restart alone may have helped."""
    world = Troubled()
    world._at_deadline()
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 1: KeyError: 'LR'", minutes=12)
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 1}]
    assert ids_of(world) == ["deadline-exceeded"]
    world.status["restarts"][0]["carried"] = 2
    assert ids_of(world) == ["crash-loop", "deadline-not-running"]


def test_a_job_that_avoids_nodes_says_which_and_until_when() -> None:
    world = world_of("nodes-avoided")
    world.unscheduled("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "mnist-worker-0")
    world.status["avoidedNodes"].append({"name": "node-2", "failures": 1, "expirationTime": ago(-2880)})
    first = first_of(world)
    avoided = "the job avoids node-0 until 12:55:00 UTC, node-2 until 2026-11-24 12:00:00 UTC"
    assert first.title.startswith(f"Not scheduled (2 pods): {avoided}: 0/2 nodes are available: ")
    assert first.to_do[0].startswith(
        "Wait until then, when the operator recreates the pods that still wait for a node, "
    )
    assert first.to_do[1].startswith(
        "If the node is healthy again, set spec.runPolicy.nodeAvoidance.expirationSeconds to 1"
    )
    assert first.to_do[1].endswith(": kubectl -n team edit tfjob mnist")
    world.status["avoidedNodes"] += [
        {"name": f"node-{number}", "failures": 1, "expirationTime": ago(-60)} for number in (3, 4, 5)
    ]
    assert "node-3 until 13:00:00 UTC and 2 more: " in first_of(world).title


LONG = f"must start with a letter, {'contain only letters, ' * 14}"


@pytest.mark.parametrize(
    ("mistakes", "more", "end"),
    [
        ([LONG], 0, " contain only letters... (89 more characters)"),
        ([LONG, "is wrong"], 0, " contain only letters... (89 more characters); and 1 more"),
        (
            [f"is {'very ' * 15}wrong"] * 4,
            0,
            "spec.b: is " + "very " * 15 + "wrong; and 2 more",
        ),
        (["is wrong"] * 2, 7, "spec.a: is wrong; spec.b: is wrong; and 7 more"),
        (["is wrong"] * 2, 0, "spec.a: is wrong; spec.b: is wrong"),
    ],
)
def test_a_title_ends_with_a_whole_mistake_or_an_ellipsis(
    monkeypatch: pytest.MonkeyPatch, mistakes: list[str], more: int, end: str
) -> None:
    found = tuple(Mistake(f"spec.{field}", text) for field, text in zip("abcd", mistakes, strict=False))
    monkeypatch.setattr(validation, "read_spec", lambda *_args, **_more: InvalidSpec(found, more))
    world = world_of("spec-invalid")
    first = first_of(world)
    assert first.title.endswith(end), first.title
    assert ("See all mistakes: kubectl -n team describe tfjob mnist" in first.to_do) is end.endswith(" more")


def test_a_message_in_a_title_is_cut_before_a_word_with_an_ellipsis() -> None:
    assert first_of(world_of("pods-recreated")).title.endswith("set in the template")
    world = world_of("job-failed")
    world.end("Failed", "TFJobFailed", "word " * 150)
    assert first_of(world).title.endswith(" word word... (255 more characters)")


def test_a_restart_that_waits_says_for_what_and_what_ended_the_attempts() -> None:
    """Pods that a restart keeps, since they are done, are waited for by nobody."""
    world = world_of("attempt-waits-for-pods")
    assert [ids_of(each) for each in (world, world_of("restart-delayed"))] == [
        ["attempt-waits-for-pods"],
        ["restart-delayed"],
    ]
    for name in ("mnist-ps-0", "mnist-worker-0"):
        world.pods[name] = deepcopy(world.pods[WORKER])
        world.pods[name]["metadata"] |= {"name": name, "uid": name}
    del world.pods["mnist-ps-0"]["metadata"]["deletionTimestamp"]
    world.pods["mnist-worker-0"]["metadata"]["finalizers"] = ["example.com/log"]
    world.status["finishedIndices"] = {"Worker": "1"}
    (cause,) = [each for each in diagnose(world.evidence()).causes if each.id == "attempt-waits-for-pods"]
    assert cause.affected == ("mnist-ps-0", "mnist-worker-0")
    assert [line.partition(": ")[2] for line in cause.evidence] == [
        "attempt 0, not deleted yet",
        "attempt 0, Terminating for 30s, grace period 30s, finalizers example.com/log",
    ]
    delayed = world_of("restart-delayed")
    record = {"type": "Worker", "index": 1, "carried": 3, "nextTime": ago(-50 / 60)}
    delayed.status["restarts"] = [record, {"type": "Worker", "index": 0, "carried": 1, "nextTime": ago(1)}]
    assert first_of(delayed).evidence[1:] == (
        "worker-1, 3 restarts: next pod in 50s",
        "job: attempt 1 ended 30s ago: rule badGpu (RestartAll), worker-1 on node-0: CUDA error",
    )


def test_a_finished_job_took_as_long_as_list_and_status_show() -> None:
    """The difference of two ages may be less than a whole second by the error of floating-point numbers."""
    world = world_of()
    world.failed(1)
    world.status.update(startTime=ago(81 / 60), completionTime=ago(20 / 60))
    for millis in (0, 64, 900):
        later = replace(world.evidence(), now=NOW + timedelta(milliseconds=millis))
        assert diagnose(later).state_line == "mnist: Failed 20s ago, after 61s"


def test_failures_that_a_rule_ignores_are_told_and_are_no_restarts() -> None:
    """They are in no counter, so that only the events tell how often."""
    world = world_of("restart-delayed")
    world.status["restarts"] = [{"type": "Worker", "index": 1, "failedAt": ago(1), "nextTime": ago(-1)}]
    assert first_of(world).evidence[1] == "worker-1, failures that a rule ignores: next pod in 60s"
    for count in (1, 4):
        world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 1", count=count)
    cause = next(each for each in diagnose(world.evidence()).causes if each.id == "restart-delayed")
    assert cause.evidence[1] == "worker-1, 5 failures that a rule ignores: next pod in 60s"


def test_a_job_that_failed_is_explained_when_its_pods_are_gone() -> None:
    world = world_of()
    world.failed(137, "OOMKilled")
    world.pods = {}
    found = diagnose(world.evidence())
    assert found.causes[0].id == "out-of-memory"
    assert found.state_line == "mnist: Failed 10m ago, after 50m"
    for resources, id_ in (({}, "memory-without-limit"), ({"limits": {"memory": "1Gi"}}, "out-of-memory")):
        containers = [{"name": "tensorflow", "resources": resources}]
        world.spec["tfReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": containers}}
        first = first_of(world)
        assert (first.id, "exceeded its memory limit of 1Gi" in first.title) == (id_, bool(resources))
    world.limit_ranges = [{"metadata": {"name": "range"}}]
    world.spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert first_of(world).id == "out-of-memory", "its limit may be that of the LimitRange"


def test_a_quota_that_is_used_up_is_told_when_its_event_has_expired() -> None:
    """Events live for an hour."""
    world = world_of("pods-missing")
    world.quotas = [{"metadata": {"name": "q"}, "status": {"hard": {"pods": "10"}, "used": {"pods": "10"}}}]
    told = 'ResourceQuota "q" exceeded (mnist-worker-1 not created): pods: used 10 of 10'
    assert (first_of(world).id, first_of(world).title) == ("quota-exceeded", told)


def test_an_event_of_an_earlier_pod_of_the_same_name_tells_nothing() -> None:
    """Replicas keep their names: the UID tells pods apart."""
    world = world_of()
    world.creating()
    world.pod_event("FailedMount", 'MountVolume.SetUp failed for volume "c" : configmap "c" not found')
    world.events[-1]["involvedObject"]["uid"] = "earlier"
    assert not ids_of(world)


def test_a_claim_that_waits_for_its_first_consumer_is_no_trouble() -> None:
    """The claim is bound once the pod has a node; the trouble is what keeps the pod from one."""
    world = world_of("claim-pending")
    words = "waiting for first consumer to be created before binding"
    world.event("PersistentVolumeClaim", "data", "WaitForFirstConsumer", words, type_="Normal")
    assert first_of(world).id == "claim-unbound"


def test_an_operator_that_has_let_its_lease_go_does_not_run() -> None:
    """When it stops it leaves the lease without a holder. Who may not list Deployments is not told that there are none."""
    world = world_of()
    assert world.lease is not None
    world.lease["spec"]["holderIdentity"] = ""
    world.forbidden = ["deployments"]
    assert first_of(world).id == "operator-not-running"


def test_an_uninstalled_operator_is_one_cause_and_named_first() -> None:
    (cause,) = diagnosed("operator-missing").causes
    assert cause.title == (
        "No operator is installed: none has a Deployment, and the Lease kubeflow/tf-operator was last renewed 2h9m ago"
    )


def test_operators_of_other_namespaces_are_named_for_a_job_that_has_a_status() -> None:
    """Of the one that served it before only the Lease is left."""
    world = world_of("operator-missing")
    world.deployments = [operator_deployment("team-b", "--namespace=team-b", readyReplicas=2)]
    (cause,) = diagnose(world.evidence()).causes
    assert cause.title == "No operator serves namespace team: those installed serve team-b only"
    assert cause.to_do[0].endswith("or ask your cluster administrator to do so")


def test_no_pod_is_to_be_deleted_while_the_operator_is_stopped() -> None:
    """Nobody would recreate it, so the advice of other causes waits."""
    deletes = re.compile(r"tfjob restart| delete (pod|job) ")
    waiting = set()
    for id_ in CASES:
        world = world_of(id_)
        if not deletes.search(str(diagnose(world.evidence()))):
            continue
        world.lease, world.deployments = None, [operator_deployment("kubeflow", wanted=0)]
        found = diagnose(world.evidence())
        if any(cause.id == "operator-scaled-to-zero" for cause in found.causes):
            assert not deletes.search(str(found)), id_
            waiting.add(id_)
    assert {"image-not-found", "stuck-terminating", "pod-template-not-applied", "no-log-output"} <= waiting


def test_why_the_operator_exits_is_quoted() -> None:
    """A wrong flag: its container falls back to the log for its message."""
    world = world_of("operator-not-ready")
    usage = "usage: tfjob-operator\ntfjob-operator: error: unrecognized arguments: --qsp=9\n"
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    status = {"name": "operator", "state": state, "lastState": {"terminated": {"exitCode": 2, "message": usage}}}
    world.operator_pods[0]["status"] = {"containerStatuses": [status]}
    (told,) = [
        proof for proof in first_of(world).evidence if proof.startswith("pod tf-job-operator-a exited with code 2: ")
    ]
    assert told.endswith("tfjob-operator: error: unrecognized arguments: --qsp=9")


def test_a_job_that_has_ended_needs_no_operator() -> None:
    world = world_of("image-not-found", "finished-and-kept")
    assert world.lease is not None
    world.lease["spec"]["holderIdentity"] = ""
    world.spec["runPolicy"]["ttlSecondsAfterFinished"] = 3600
    assert not ids_of(world)


def test_the_diagnosis_of_a_huge_job_is_bounded() -> None:
    world = world_of()
    world.spec["tfReplicaSpecs"]["Worker"]["replicas"] = 300
    CASES["image-not-found"](world)
    pod = world.pods["mnist-worker-1"]
    for index in range(2, 300):
        more = deepcopy(pod)
        more["metadata"] |= {"name": f"mnist-worker-{index}", "uid": f"u{index}"}
        more["status"]["containerStatuses"][0]["image"] = f"image-{index}"
        world.pods[more["metadata"]["name"]] = more
    found = diagnose(world.evidence())
    assert len(found.causes) == MAX_CAUSES
    assert all(len(cause.evidence) <= MAX_PROOFS for cause in found.causes)


def test_every_trouble_is_used_and_every_id_is_words() -> None:
    """Scripts use IDs: these are lower-case words with dashes, and never change."""
    assert len(FINDERS) == len(set(FINDERS))
    for problem in chain.from_iterable(GROUPS.values()):
        assert problem.meaning
        assert problem.severity in Severity
    with pytest.raises(ValueError, match="is not a valid ID"):
        Problem("Not One", Severity.INFO, "", "", ())


def test_a_running_replica_that_was_restarted_is_only_a_note() -> None:
    found = diagnosed("was-restarted")
    assert [cause.severity for cause in found.causes] == [Severity.INFO]
    assert diagnosed("restarts-for-ever").causes[0].severity is Severity.WARNING


def test_restarts_of_a_sidecar_are_no_reason_to_limit_those_of_the_job() -> None:
    """A backoffLimit counts them too, so the advice would have ended a training that runs."""
    world = Troubled()
    killed = {"exitCode": 137, "reason": "OOMKilled", "startedAt": ago(3), "finishedAt": ago(2.9)}
    started = {"running": {"startedAt": ago(1)}}
    shipper = {"name": "shipper", "restartCount": 90, "state": started, "lastState": {"terminated": killed}}
    world.pods[WORKER]["status"]["containerStatuses"].append(shipper)
    causes = {each.id: each for each in diagnose(world.evidence()).causes}
    assert "container shipper" in str(causes["restarts-for-ever"].to_do)
    assert "backoffLimit" not in str(causes)


def test_a_log_that_is_advised_is_that_of_the_container_with_the_most_restarts() -> None:
    """The training was restarted as well, once, and its exit is the first that a pod shows."""
    world = Troubled()
    ended = {"exitCode": 1, "reason": "Error", "startedAt": ago(30), "finishedAt": ago(29)}
    world.container().update(restartCount=1, lastState={"terminated": ended})
    completed = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ago(5)}}
    shipper = {
        "name": "shipper",
        "restartCount": 7,
        "state": {"running": {"startedAt": ago(1)}},
        "lastState": completed,
    }
    world.pods[WORKER]["status"]["containerStatuses"].append(shipper)
    first = first_of(world)
    assert first.id == "restarts-for-ever"
    assert "kubectl -n team logs mnist-worker-1 --container=shipper --previous --tail=50" in first.to_do
    assert "backoffLimit" not in str(first.to_do)


def test_a_pod_that_replaced_a_deleted_one_is_not_blamed_for_its_restarts() -> None:
    """Who deletes a pod may have corrected the template before. Once it is restarted too, all count."""
    world = world_of()
    record = {"type": "Worker", "index": 1, "inPlace": 7, "pod": "uid-of-a-former-pod"}
    world.status["restarts"] = [record]
    assert not ids_of(world)
    world.container().update(restartCount=1, lastState={"terminated": {"exitCode": 1, "finishedAt": ago(40)}})
    world.status["restarts"] = [record | {"carried": 7, "inPlace": 1, "pod": "uid-mnist-worker-1"}]
    first = first_of(world)
    assert (first.id, first.title) == ("restarts-for-ever", "Restarted 8 times (mnist-worker-1), running now")
    assert first.evidence[0] == "pod mnist-worker-1: 1 restart, and 7 of earlier pods of the replica"


def test_a_pod_that_replaced_a_failed_one_is_blamed_for_the_restarts() -> None:
    """Under ExitCode each restart is a new pod, and the record has the UID of the last one that failed."""
    world = world_of()
    record = {"type": "Worker", "index": 1, "carried": 6, "replaced": True, "pod": "uid-of-a-former-pod"}
    world.status["restarts"] = [record]
    assert ids_of(world) == ["restarts-for-ever"]


@pytest.mark.parametrize("has_limit", [False, True])
def test_a_limit_that_would_fail_the_job_at_once_is_not_advised(has_limit: bool) -> None:
    """The restarts of all replicas and of earlier pods count, and the limit acts without a further restart."""
    world = world_of("restarts-for-ever")
    former = {"type": "Worker", "index": 0, "carried": 3, "pod": "uid-of-a-former-pod"}
    world.status["restarts"] = [former, {"type": "Worker", "index": 1, "inPlace": 12, "pod": "uid-mnist-worker-1"}]
    if has_limit:
        world.spec["runPolicy"]["backoffLimit"] = 20
    steps = " ".join(first_of(world).to_do)
    advice = (
        "set spec.runPolicy.backoffLimit to 15 or more: 15 are already counted, and a lower limit fails the job at once"
    )
    assert (advice in steps) is not has_limit
    assert ("backoffLimit" in steps) is not has_limit


def test_a_job_that_reached_its_backoff_limit_quotes_the_log_of_the_pod_that_failed() -> None:
    """The template's terminationMessagePolicy may leave the record without words. Nothing was restarted."""
    world = world_of("backoff-limit")
    world.pods = world_of().pods
    world.exited(3, restarts=0, log="reading\nno shards left\n")
    world.container().update(state=world.container()["lastState"], lastState={})
    world.pods[WORKER]["status"]["phase"] = "Failed"
    failure = {"podName": WORKER, "containerName": "tensorflow", "exitCode": 3, "reason": "Error"}
    world.status["begun"]["ending"] = {"type": "Failed", "event": "BackoffLimitExceeded", "failure": failure}
    title = first_of(world).title
    assert title.endswith(f"({WORKER}, container tensorflow: exit code 3: no shards left)")
    assert "were restarted" not in title


def test_a_sidecar_that_used_up_the_backoff_limit_is_blamed_and_not_the_training() -> None:
    """The training is down too, after its only restart; the pod still exists, and later it is gone."""
    world = Troubled()
    world.exited(1, message="no data", restarts=1)
    words = (
        "Pod mnist-worker-1 was restarted most often (4 times; containers restarted in place: metrics 3, tensorflow 1)"
    )
    world.end(
        "Failed", "JobFailed", f"Job mnist has failed because it has reached the specified backoff limit. {words}"
    )
    failure = {
        "replicaType": "Worker", "replicaIndex": 1, "podName": WORKER, "containerName": "metrics", "exitCode": 7,
        "reason": "Error", "message": "no broker",
    }  # fmt: skip
    world.status["begun"]["ending"] = {"type": "Failed", "event": "BackoffLimitExceeded", "failure": failure}
    for pods in (world.pods, {}):
        world.pods = pods
        limit, exit_code = diagnose(world.evidence()).causes
        assert limit.title.endswith(f"({WORKER}, container metrics: exit code 7: no broker)")
        assert "metrics 3, tensorflow 1" in limit.evidence[0]
        assert "correct container metrics" in str(limit.to_do)
        assert exit_code.title == f"Failed ({WORKER}): container metrics exited with code 7: no broker"


@pytest.mark.parametrize(
    ("code", "message", "title"),
    [
        (137, "", "Exit code 137 (SIGKILL, {who}), not at the memory limit"),
        (1, "ModuleNotFoundError: No module named 'boto3'", "Python module boto3 not found in the image ({who})"),
    ],
)
def test_a_failure_of_a_sidecar_that_ends_a_job_is_not_taken_for_one_of_the_training(
    code: int, message: str, title: str
) -> None:
    """Its exit is the first cause of the reached limit, in words that are usually about the container tensorflow."""
    world = world_of("backoff-limit")
    failure = {"replicaType": "Worker", "replicaIndex": 1, "podName": WORKER, "containerName": "shipper"}
    failure |= {"exitCode": code, "reason": "Error", "message": message}
    world.status["begun"]["ending"] = {"type": "Failed", "event": "BackoffLimitExceeded", "failure": failure}
    assert first_of(world).title == title.format(who=f"container shipper of {WORKER}")


@pytest.mark.parametrize(
    ("host", "id_"),
    [
        ("mnist-ps-0", "peer-unreachable"),
        ("mnist-worker-7.team.svc.example.org", "peer-unreachable"),  # scaled down since
        ("mnist-worker-0.mnist.team.svc", "peer-unreachable"),  # in a shared network
        ("10.0.0.1", "peer-unreachable"),
        ("localhost", "peer-unreachable"),
        ("10.0.0.9", "external-host-unreachable"),
        ("mnist-ps-0.other.svc", "external-host-unreachable"),
        ("mnist-ps-0.example.com", "external-host-unreachable"),
        ("mnist.example.com", "external-host-unreachable"),
    ],
)
def test_only_hosts_of_the_job_are_peers(host: str, id_: str) -> None:
    world = world_of()
    for number, pod in enumerate(world.pods.values()):
        pod["status"]["podIP"] = f"10.0.0.{number}"
    world.failed(1, log=f"ConnectionError: HTTPConnectionPool(host='{host}', port=80): Connection refused")
    assert first_of(world).id == id_
    assert ("NetworkPolicy" in str(first_of(world).to_do)) is (id_ == "external-host-unreachable")


def test_of_a_pod_that_is_gone_all_last_words_are_quoted_and_a_service_is_not_reached_by_a_proxy() -> None:
    words = (
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='mlflow.mlops.svc', port=5000): Max retries exceeded "
        "with url: /api/2.0/mlflow/experiments/get-by-name?experiment_name=lattice (Caused by NewConnectionError('"
        "<urllib3.connection.HTTPConnection object at 0x7f1c>: Failed to establish a new connection: [Errno 111] Connection "
        "refused'))"
    )
    world = world_of()
    world.failed(1, message=words)
    del world.pods[WORKER]
    first = first_of(world)
    assert first.title == f"Cannot connect to Service mlflow.mlops.svc ({WORKER})"
    assert "[Errno 111] Connection refused" in " ".join(first.evidence)
    assert "HTTPS_PROXY" not in steps_of(world)
    world = world_of()
    world.failed(1, log="curl: (6) Could not resolve host: mlflow.mlops.svc.cluster.local")
    assert first_of(world).title.startswith("Name of a Service does not resolve: mlflow.mlops.svc.cluster.local (")


@pytest.mark.parametrize(
    ("line", "is_any"),
    [
        ("ConnectionRefusedError: [Errno 111] Connection refused", True),
        ("urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>", True),
        ("UnavailableError: failed to connect to all addresses", False),
    ],
)
def test_an_error_without_a_host_has_advice_for_replicas_and_for_other_hosts(line: str, is_any: bool) -> None:
    world = world_of()
    world.failed(1, log=line)
    assert first_of(world).id in {"peer-unreachable", "peer-name-unresolved"}
    assert any("--selector=training.kubeflow.org/job-name=mnist" in each for each in first_of(world).to_do)
    assert any("NetworkPolicy with rules" in each for each in first_of(world).to_do) is is_any
    *_, save, replace_job = first_of(world).to_do
    assert save.startswith("Save the manifest")  # after everything that does not end what may be repaired
    assert replace_job.startswith("Replace the job")


def test_an_address_that_may_be_of_a_former_pod_is_a_peer_of_grpc() -> None:
    world = world_of()
    world.failed(1, log="UnavailableError: failed to connect to all addresses; last error: ipv4:10.0.0.9:2222: refused")
    assert first_of(world).id == "peer-unreachable"


def test_the_frames_of_a_crash_are_read_without_the_line_before_them() -> None:
    """The condition of a job keeps the end of a termination message."""
    world = world_of()
    frames = [f'File "/usr/lib/python3.12/{name}.py", line 9 in f' for name in ("ctypes/__init__", "threading")]
    world.failed(139, message=" / ".join([frames[0], 'File "/app/train.py", line 5 in step', *frames[1:]]))
    del world.pods[WORKER]
    assert first_of(world).title.endswith(": crashed in step (/app/train.py:5)")


def test_a_line_of_a_log_is_quoted_in_full_or_says_how_much_is_missing() -> None:
    world = world_of()
    for words in (f"ValueError: {'x ' * 100}end", f"reading\n{'y ' * 100}end"):
        world.failed(1, log=words)
        assert first_of(world).title.endswith(f"{words.splitlines()[-1]}")
    world.failed(1, log=f"ValueError: {'x' * 2000}")
    first = first_of(world)
    assert re.search(r"x\.\.\. \(\d+ more characters\)$", first.title)
    assert len(first.title) < 700
    assert first.to_do[0] == "kubectl -n team logs mnist-worker-1 --container=tensorflow --tail=50"
    world = world_of()
    world.job_event("FailedCreatePod", f"Error creating: {'no ' * 400}")
    world.pods.pop(WORKER)
    assert first_of(world).to_do[0] == "The whole message: kubectl -n team describe tfjob mnist"


def test_a_refused_status_is_reported_until_one_is_written() -> None:
    """Beside the event, which stays for an hour."""
    world = world_of("status-denied")
    assert first_of(world).title.endswith(
        'the status of the job: 403 admission webhook "policy.example.com" denied the request: tfjobs/status is read-only'
    )
    assert any("no pod is created or deleted" in each for each in first_of(world).to_do)
    world.status["lastReconcileTime"] = ago(1)
    assert not ids_of(world)
    world = world_of("status-too-large")
    world.events[-1]["lastTimestamp"] = ago(90)
    assert not ids_of(world), "the operator repeats it each hour"


def test_an_init_container_is_named_from_the_first_second_and_is_no_error() -> None:
    world = world_of()
    world._initializing(0)
    first = first_of(world)
    assert (first.id, first.severity) == ("waits-for-init-container", Severity.INFO)
    assert first.title == f"Waiting for init container fetch, running for 0s ({WORKER})"
    assert first.evidence == (f"pod {WORKER}: init container fetch running since 12:00:00 UTC",)


def test_a_parameter_server_may_end_when_nothing_else_trains() -> None:
    world = world_of("parameter-server-completed")
    assert "kubectl tfjob restart -n team mnist" in str(first_of(world).to_do)
    world.status["finishedIndices"]["Worker"] = "0-1"
    assert "parameter-server-completed" not in ids_of(world)


def test_a_claim_whose_class_does_not_exist_says_which_do() -> None:
    """Also after the event of its volume controller has expired; without permission, the command that lists them."""
    world = world_of("claim-pending")
    world.claims[0]["spec"] = {"storageClassName": "fast"}
    first = first_of(world)
    assert (first.id, first.to_do[0]) == (
        "claim-pending", "Check that StorageClass fast exists: kubectl get storageclass fast"
    )  # fmt: skip
    world.storage_classes = [{"metadata": {"name": name}} for name in ("standard", "local")]
    first = first_of(world)
    assert first.title == f'StorageClass "fast" of PersistentVolumeClaim "data" not found (mounted by {WORKER})'
    assert first.evidence[-1] == "StorageClasses of the cluster: local, standard"
    assert first.to_do[0] == "Create another PersistentVolumeClaim with a storageClassName of local,standard"
    world.storage_classes = []
    assert first_of(world).to_do[0].startswith("The cluster has no StorageClass: ")
    world.claims[0]["spec"] = {"storageClassName": ""}
    assert first_of(world).id == "claim-pending"


def test_a_job_in_which_only_an_evaluator_has_replicas_says_so_in_plain_words() -> None:
    world = world_of()
    world.spec["tfReplicaSpecs"] = {
        "Worker": world.workers | {"replicas": 0},
        "Evaluator": world.workers | {"replicas": 1},
    }
    found = next(each for each in diagnose(world.evidence()).causes if each.id == "nothing-trains")
    assert found.title == "Nothing trains: Worker scaled to 0, and only Evaluator has replicas"
    assert set(found.evidence[0].removeprefix("job: replicas: ").split(", ")) == {"Worker 0", "Evaluator 1"}


@pytest.mark.parametrize(("kind", "reason"), [("pod", "FailedCreatePod"), ("service", "FailedCreateService")])
def test_an_object_without_owner_in_the_way_can_be_deleted(kind: str, reason: str) -> None:
    """As its event says. Another name for the job costs the work of the pods that run."""
    world = world_of()
    world.pods.pop(WORKER)
    taken = f"Error creating: {kind} {WORKER} already exists and is not controlled by this TFJob: it "
    world.job_event(reason, f"{taken}has no owner; delete it or recreate the job under another name")
    steps = first_of(world).to_do
    assert (
        f"The operator then creates that of the job, within five minutes: kubectl -n team delete {kind} {WORKER}"
        in steps[1]
    )
    assert "Or, if it is needed, " in steps[2]
    assert "work of its running pods since their last checkpoint is lost" in steps[2]
    world.events.clear()
    world.job_event(reason, f"{taken}belongs to ReplicaSet web; delete it or recreate the job under another name")
    last = first_of(world).to_do[-1]
    assert last == (
        "Delete the job of the old name with its pods; work since their last checkpoint is lost: "
        "kubectl -n team delete tfjob mnist"
    )


def test_a_label_that_is_nearly_that_of_a_queue_is_named_and_no_resumption_past_the_queue_advised_first() -> None:
    world = world_of("suspended")
    world.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue": "gpus"}
    first = first_of(world)
    known = "unknown to Kueue, which finds the queue by kueue.x-k8s.io/queue-name"
    assert first.title == f"The label kueue.x-k8s.io/queue is {known}; the job is suspended"
    assert first.to_do[0].startswith("Rename the label kueue.x-k8s.io/queue to kueue.x-k8s.io/queue-name: ")
    world.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue_name": "gpus"}
    assert first_of(world).title.startswith("The label kueue.x-k8s.io/queue_name is unknown to Kueue")
    world.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": ""}
    assert "Kueue" not in first_of(world).title


def test_a_pod_that_outlives_the_suspension_of_its_job_is_named() -> None:
    """Its program ignores SIGTERM, and its grace period is long: it still holds its resources."""
    pod = deepcopy(world_of().pods[WORKER])
    world = world_of("suspended")
    assert ids_of(world) == ["suspended"]
    world.pods[WORKER] = pod
    pod["metadata"] |= {"deletionTimestamp": ago(-58), "deletionGracePeriodSeconds": 3600}
    pod["status"]["phase"] = "Running"
    first = first_of(world)
    assert first.title == f"{WORKER} still runs, Terminating for 2m (grace period 1h)"
    assert "kubectl" not in str(first.to_do), "kubelets do not shorten a grace period that has begun"
    pod["metadata"] |= {"deletionTimestamp": ago(-0.3), "deletionGracePeriodSeconds": 30}
    assert ids_of(world) == ["suspended"]


def test_the_last_failure_of_a_killed_process_is_its_exit_code_and_not_a_line_of_its_progress() -> None:
    world = recreated(137, "")
    message = f"Pod: team.{WORKER} exited with code 137: step 1 loss 0.9 / step 2 loss 0.9"
    world.events.clear()
    world.job_event("ExitedWithCode", message, type_="Normal")
    assert first_of(world).title.endswith("running now; last failure: exit code 137 (SIGKILL)")


def test_a_job_with_a_queue_label_can_run_without_kueue() -> None:
    world = world_of("kueue-absent")
    assert "kubectl tfjob resume mnist -n team" in first_of(world).to_do[-1]
    world.job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent"
    assert first_of(world).to_do[0].endswith("does not exist: kubectl get workloadpriorityclass urgent")


def steps_of(world: Troubled) -> str:
    return " ".join(first_of(world).to_do)


def test_a_server_that_did_not_start_has_a_port_in_use_only_if_the_log_says_so() -> None:
    world = Troubled()
    error = "tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server"
    world.failed(1, log=f'E1130 17 server_chttp2.cc:40] {{"description":"Only 1 addresses added out of 2"}}\n{error}')
    title = f"Server not started, usually because its port is already in use ({WORKER})"
    assert first_of(world).title == title
    world.failed(1, log=f'E1130 17 server_chttp2.cc:40] {{"description":"Address already in use"}}\n{error}')
    assert first_of(world).title == f"Port already in use ({WORKER})"


@for_each("policy", ["Never", "", "OnFailure", "Always", "ExitCode"])
def test_only_under_never_an_evicted_pod_needs_another_restart_policy(policy: str) -> None:
    world = world_of("evicted")
    world.workers.pop("restartPolicy", None)
    world.workers.update({"restartPolicy": policy} if policy else {})
    assert ("set restartPolicy of the replica to OnFailure or ExitCode" in steps_of(world)) is (policy in {"Never", ""})


def test_a_change_instead_of_the_step_before_begins_with_or() -> None:
    world = Troubled()
    error = "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden"
    world.failed(1, log=f"{OF_TRAINING}{error}")
    assert "Or save the manifest, then in the file correct serviceAccountName in the template" in steps_of(world)


@for_each("noise", ["", "[rank0]:[W1130 01:12:11.181 ProcessGroupNCCL.cpp:1496] Warning: not destroyed\n" * 9])
def test_the_evidence_has_the_line_that_decided_once(noise: str) -> None:
    world = Troubled()
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    world.failed(1, log=f"{OF_TRAINING}{error}\n{noise}")
    found = first_of(world)
    assert found.title == f"Out of GPU memory ({WORKER})"
    assert sum("CUDA out of memory" in line for line in found.evidence) == 1


def test_a_port_that_another_container_of_the_pod_may_use_is_no_matter_of_the_host_network() -> None:
    world = world_of("port-in-use")
    assert "a port of its own" in steps_of(world)
    assert "hostNetwork" not in steps_of(world)
    template = world.workers["template"]["spec"]
    template["containers"].append(CONTAINER | {"name": "debug"})
    assert "et containers tensorflow and debug listen on different ports" in steps_of(world)
    template["hostNetwork"] = True
    assert "emove hostNetwork" in steps_of(world)


def test_the_pod_of_a_container_whose_port_is_in_use_may_be_gone() -> None:
    world = world_of("port-in-use")
    world.end("Failed", "TFJobFailed", "TFJob team/mnist has failed because 1 Worker replica(s) failed.")
    failure = {
        "podName": WORKER,
        "containerName": "tensorflow",
        "exitCode": 1,
        "message": "OSError: Address already in use",
    }
    world.status["begun"]["ending"] = {"type": "Failed", "reason": "TFJobFailed", "failure": failure}
    world.pods.pop(WORKER)
    world.workers["template"]["spec"]["containers"].append(CONTAINER | {"name": "debug"})
    assert "et containers tensorflow and debug listen on different ports" in steps_of(world)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("No module named 'horovod'", "pip install"),
        (
            "No module named 'tensorflow.keras.layers.experimental'",
            "a version of the package that has the module",
        ),
        (
            "No module named 'tensorflow.keras'; 'tensorflow' is not a package",
            "no script or folder has the name of the package",
        ),
        (
            "No module named train.__main__; 'train' is a package and cannot be directly executed",
            "ame a module of the package in the command",
        ),
    ],
)
def test_a_module_of_a_package_that_exists_is_missing_in_its_version(line: str, advice: str) -> None:
    """Python names the package alone if that is missing."""
    world = world_of()
    world.exited(1, log=f"Traceback (most recent call last):\nModuleNotFoundError: {line}")
    assert first_of(world).id == "python-module-missing"
    assert advice in steps_of(world)
    assert ("pip install" in steps_of(world)) is (advice == "pip install")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_crash_in_native_code_is_only_one_of_cuda_with_a_gpu(has_gpu: bool) -> None:
    world = world_of("segmentation-fault")
    if has_gpu:
        world.workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1
    assert ("CUDA" in steps_of(world)) is has_gpu
    assert "PYTHONFAULTHANDLER" in steps_of(world)
    dump = 'Current thread 0x00007f12 (most recent call first):\n  File "/app/ops.py", line 44 in forward'
    world.exited(139, log=f"Fatal Python error: Segmentation fault\n\n{dump}")
    assert ("CUDA" in steps_of(world)) is has_gpu
    assert "PYTHONFAULTHANDLER" not in steps_of(world), "the log has what it prints"


@pytest.mark.parametrize("id_", ["program-not-executable", "command-not-executable"])
def test_a_script_of_a_config_map_is_made_executable_by_its_volume(id_: str) -> None:
    assert "defaultMode: 0755 of the ConfigMap or Secret volume" in steps_of(world_of(id_))


def test_a_job_with_a_single_replica_has_no_tf_config() -> None:
    world = world_of("tf-config-missing")
    assert "Only the container tensorflow gets TF_CONFIG" in steps_of(world)
    del world.spec["tfReplicaSpecs"]["PS"]
    world.workers["replicas"] = 1
    world.pods = {"mnist-worker-0": world.pods["mnist-worker-0"]}
    world.exited(1, name="mnist-worker-0", log="Traceback:\nKeyError: 'TF_CONFIG'")
    assert first_of(world).id == "tf-config-missing"
    assert "A job with a single replica gets no TF_CONFIG" in steps_of(world)


@pytest.mark.parametrize("is_gone", [False, True])
def test_an_evaluator_that_ends_the_training_is_called_one(is_gone: bool) -> None:
    """Nothing else tells that an evaluation decides about a training."""
    world = world_of()
    world.failed(1, message="FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/metrics.json'")
    assert "Evaluator" not in steps_of(world)
    name = "mnist-evaluator-0"
    world.spec["tfReplicaSpecs"]["Evaluator"] = {"replicas": 1, "template": world.workers["template"]}
    pod = world.pods.pop(WORKER)
    pod["metadata"] |= {"name": name, "labels": {}}
    world.pods |= {} if is_gone else {name: pod}
    failure = {"podName": name, "containerName": "tensorflow", "exitCode": 1, "message": "KeyError: 'loss'"}
    world.status["begun"]["ending"] = {"type": "Failed", "reason": "TFJobFailed", "failure": failure}
    assert "A failed Evaluator ends the whole job" in steps_of(world)


def test_a_pod_that_a_finalizer_keeps_comes_before_the_suspension_of_its_job() -> None:
    """As in `list`: the suspension is wanted, and the pod is not."""
    world = Troubled()
    pod = world.pods[WORKER]
    world.suspend()
    pod["metadata"] |= {"deletionTimestamp": ago(5), "finalizers": ["example.com/backup"]}
    world.pods = {WORKER: pod}
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found[:2]] == ["stuck-terminating", "suspended"]
    steps = " ".join(found[0].to_do)
    assert ("--force" in steps, "get node" in steps) == (False, False), "neither removes a finalizer"
    assert "a forced deletion does not remove them: kubectl -n team get pod mnist-worker-1 -o jsonpath" in steps


def test_conditions_of_other_kinds_change_nothing() -> None:
    """Newer servers add them."""
    world = world_of()
    world.pods["mnist-ps-0"]["status"]["conditions"].append(condition("PodReadyToStartContainers"))
    assert not ids_of(world)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)
def test_nothing_is_wrong_with_a_healthy_job_of_the_alpha_dialect(dialect: Dialect) -> None:
    """Its pods are told from each other by their Jobs."""
    world = world_of()
    world.alpha(dialect)
    found = diagnose(world.evidence())
    assert found.causes == ()
    assert found.state_line == "mnist: Running for 1h, 1 of 1 master ready, 2 of 2 workers ready"


def alpha_world(dialect: Dialect = KUBEFLOW, *, without: str = "") -> Troubled:
    """A job of the alpha dialect, one of whose replicas has no pod."""
    world = world_of()
    world.alpha(dialect)
    world.pods.pop(f"{without}-abcde", None)
    return world


def test_what_the_job_controller_meets_when_it_creates_a_pod_is_told_until_there_is_one() -> None:
    """By an event of the replica's Job; an edited template needs a new Job."""
    quota = "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
    refusal = f'Error creating: pods "worker-x7ab-1-" is forbidden: {quota}'
    world = alpha_world(without="worker-x7ab-1")
    world.event("Job", "worker-x7ab-1", "FailedCreate", refusal)
    (found,) = diagnose(world.evidence()).causes
    assert (found.id, found.affected) == ("quota-exceeded", ("worker-x7ab-1",))
    world.event("Job", "worker-x7ab-1", "SuccessfulCreate", "Created pod: worker-x7ab-1-fghij", minutes=1)
    assert ids_of(world) == ["pods-missing"]
    maximum = 'pods "worker-x7ab-1-" is forbidden: maximum cpu usage per Container is 1, but limit is 2.'
    world = alpha_world(without="worker-x7ab-1")
    world.event("Job", "worker-x7ab-1", "FailedCreate", f"Error creating: {maximum}")
    assert first_of(world).to_do[-1].endswith("delete job worker-x7ab-1")


def test_what_the_operator_meets_when_it_creates_a_job_is_told() -> None:
    """Only while there is no Job: a name that another job has."""
    world = alpha_world(without="worker-x7ab-1")
    taken = "Error creating: Job worker-x7ab-1 already exists and belongs to CronJob nightly"
    world.job_event("FailedCreate", taken)
    assert first_of(world).id == "pods-missing"
    del world.batch_jobs["worker-x7ab-1"]
    first = first_of(world)
    assert (first.id, first.title) == (
        "name-taken",
        "The name of worker-x7ab-1 is in use: a Job with that name belongs to CronJob nightly",
    )
    world.job_event("FailedCreate", taken.partition("belongs")[0] + "is being deleted (UID x)")
    assert first_of(world).title == "Waiting for Job worker-x7ab-1 to be deleted (worker-x7ab-1 not created)"


def test_what_fails_of_a_tensorboard_is_told_until_that_very_part_is_there() -> None:
    """Its service may be created a moment after its deployment was denied."""
    world = world_of()
    world.job_event("FailedTensorBoard", "Error creating deployment mnist-tensorboard: denied", minutes=3)
    world.job_event("SuccessfulCreateTensorBoard", "Created service mnist-tensorboard", minutes=2)
    assert ids_of(world) == ["tensorboard-failed"]
    world.job_event("SuccessfulCreateTensorBoard", "Created deployment mnist-tensorboard", minutes=1)
    assert not ids_of(world)


def test_commands_about_a_job_of_tensorflow_org_name_it_and_its_label() -> None:
    """`kubectl get tfjob` means kubeflow.org where both are installed."""
    world = alpha_world(TENSORFLOW)
    world.status["conditions"].insert(1, condition("Held", reason="InvalidTFJobSpec", message="spec.tfImage: is wrong"))
    (held,) = diagnose(world.evidence()).causes
    assert held.to_do[0].endswith(": kubectl -n team edit tfjobs.tensorflow.org mnist")
    world = alpha_world(TENSORFLOW)
    log = "UnavailableError: failed to connect to all addresses"
    world.exited(1, name="worker-x7ab-1-abcde", log=log)
    first = first_of(world)
    assert (first.id, "--selector=tf_job_name=mnist" in " ".join(first.to_do)) == ("peer-unreachable", True)


@pytest.mark.parametrize(
    ("generation", "begun", "cause"),
    [
        (2, {"generation": 1, "replicas": {"Worker": 2}}, "an edit made its spec invalid"),
        (4, {"generation": 0, "replicas": {"Worker": 2}}, "an edit made its spec invalid"),  # adopted, then edited
        (1, {"generation": 1, "replicas": {"Worker": 2}}, "its spec is invalid for this operator"),
        (4, {}, "its spec is invalid for this operator"),  # adopted as it is
        (4, None, "its spec is invalid for this operator"),
    ],
)
def test_an_edit_is_blamed_for_a_hold_only_if_there_was_one(generation: int, begun: Any, cause: str) -> None:
    """A job of training-operator with two chiefs is on hold from the start: nobody has edited it."""
    world = world_of("held-invalid")
    world.job["metadata"]["generation"] = world.status["observedGeneration"] = generation
    world.status["begun"] = begun
    first = first_of(world)
    assert first.title == f"The job is on hold: {cause}; running pods continue, none is created or replaced"
    assert "undo the edit" not in " ".join(first.to_do)


def test_a_hold_by_the_api_server_says_what_happens_to_the_job_and_blames_no_edit() -> None:
    """The API server may reject a template that nobody has edited, in a job that another operator started."""
    world = world_of("held-refused")
    world.job["metadata"]["generation"], world.status["begun"] = 1, {}
    first = first_of(world)
    assert first.title.endswith("running pods continue, and the job does not finish")
    assert "then missing pods are created" in " ".join(first.to_do)
    assert "edit" not in first.title
    assert "undo the edit" not in " ".join(first.to_do)


def test_pods_are_recreated_without_a_restart_of_the_whole_job_where_that_is_too_much() -> None:
    """`restart` refuses to restart a job of the alpha dialect as a whole, and runs replicas of v1 again that have succeeded."""
    alpha, partly = alpha_world(), world_of()
    partly.status["finishedIndices"] = {"Worker": "0"}
    for world, label in ((alpha, "tf_job_name"), (partly, "training.kubeflow.org/job-name")):
        world.spec["retries"] = 3
        (cause,) = diagnose(world.evidence()).causes
        command = f"kubectl -n team delete pod --selector={label}=mnist --field-selector=status.phase!=Succeeded"
        assert cause.to_do[-1].endswith(f": {command}")


def test_of_the_pods_of_one_replica_the_newest_counts() -> None:
    """Those that have failed stay beside it: they were restarts."""
    world = alpha_world()
    old = deepcopy(world.pods["worker-x7ab-1-abcde"])
    old["metadata"] |= {"name": "worker-x7ab-1-00000", "uid": "uid-old", "creationTimestamp": ago(90)}
    ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "finishedAt": ago(61)}}}
    old["status"] = {"phase": "Failed", "containerStatuses": [ended]}
    world.pods["worker-x7ab-1-00000"] = old
    assert ids_of(world) == ["was-restarted"]


def test_a_job_that_an_operator_of_2018_has_ended_has_ended() -> None:
    """It wrote a phase and a state, and no conditions."""
    world = alpha_world()
    world.job["status"] = {"phase": "Done", "state": "Succeeded", "runtimeId": "x7ab"}
    world.pods = {}
    found = diagnose(world.evidence())
    assert (found.state_line, found.causes) == ("mnist: Succeeded", ())


def test_pods_that_are_killed_at_their_memory_limit_and_recreated_are_out_of_memory() -> None:
    """Under ExitCode the failed pod is deleted: the event on the job keeps the reason."""
    world = world_of()
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 46, "pod": "uid-mnist-worker-1"}]
    message = "Pod: team.mnist-worker-1 exited with code 137: OOMKilled"
    world.job_event("ExitedWithCode", message, type_="Normal")
    pod = world.pods["mnist-worker-1"]
    pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
    first = first_of(world)
    assert first.id == "out-of-memory"
    assert first.title == "OOMKilled: container tensorflow of mnist-worker-1 exceeded its memory limit of 64Mi"
    assert any("raise resources.limits.memory" in line.lower() for line in first.to_do)
    assert any("backoffLimit" in line for line in first.to_do)
    pod["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": ago(59)}}
    assert first_of(world).title == "Restarted 46 times (mnist-worker-1), running now"


def test_what_the_kubelet_kills_for_its_probe_is_told_also_while_it_runs() -> None:
    """Between two kills the container is up: a backoff limit would not help."""
    world = world_of("liveness-probe")
    status = world.container()
    status["lastState"], status["state"] = status["state"], {"running": {"startedAt": ago(1)}}
    status["lastState"] = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": ago(1)}}
    assert first_of(world).id == "liveness-probe"
    status["state"] = {"running": {"startedAt": ago(30)}}
    assert first_of(world).id == "was-restarted"


def recreated(code: int, reason: str, *, times: int = 3) -> Troubled:
    """Return a job under ExitCode whose worker failed, and runs again in a new pod of the same name."""
    world = world_of()
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": times, "pod": "uid-new"}]
    said = f"Pod: team.{WORKER} exited with code {code}{reason and ': '}{reason}"
    world.job_event("ExitedWithCode", said, type_="Normal", minutes=3)
    world.pods[WORKER]["metadata"] |= {"uid": "uid-new", "creationTimestamp": ago(2)}
    world.container()["state"] = {"running": {"startedAt": ago(2)}}
    return world


def test_a_signal_may_have_come_from_inside_the_container() -> None:
    """Nobody deleted the pod of a training that ran under torchrun or timeout."""
    first = first_of(world_of("terminated"))
    assert first.id == "terminated"
    assert "If the events show no deletion or drain, the signal came from inside the container" in str(first.to_do)
    assert "events show who deleted" not in str(first.to_do)


@pytest.mark.parametrize("restarts", [0, 4])
@pytest.mark.parametrize("command", [["sh", "-c", "exec timeout 60 python train.py"], ["timeout", "60"], ["python"]])
def test_exit_code_124_is_that_of_timeout(command: list[str], restarts: int) -> None:
    """GNU coreutils: src/timeout.c; a program without timeout may use the code too."""
    world = world_of()
    world.workers["template"]["spec"]["containers"][0]["command"] = command
    if restarts:
        world.exited(124, restarts=restarts)
    else:
        world.failed(124)
    first = first_of(world)
    is_timeout = "timeout" in str(command)
    words = "124 (the time limit of timeout)" if is_timeout else "124 (usually the time limit of timeout)"
    assert f"exited with code {words}" in first.title
    assert ("raise the time limit of timeout in command and args" in str(first.to_do).lower()) is is_timeout


@pytest.mark.parametrize("times", [3, 6])
def test_the_memory_limit_of_a_new_pod_is_not_that_of_the_pod_that_was_killed(times: int) -> None:
    """The user has raised the limit since, so the new pod is neither at fault nor to be deleted."""
    world = recreated(137, "OOMKilled", times=times)
    world.job["metadata"]["generation"] = world.status["observedGeneration"] = 2
    world.pods[WORKER]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}}
    (cause,) = diagnose(world.evidence()).causes
    assert cause.severity is (Severity.INFO if times < 5 else Severity.WARNING)
    assert cause.title == f"Restarted {times} times ({WORKER}), running now; last failure: OOMKilled"
    assert "1Gi" not in str(cause)
    assert "delete pod" not in str(cause.to_do)
    assert ("raise resources.limits.memory" in str(cause.to_do).lower()) is (times >= 5)


def test_the_last_line_of_an_init_container_that_runs_is_quoted() -> None:
    """It often names what the container waits for."""
    for id_ in ("init-container-runs", "waits-for-init-container"):
        world = world_of(id_)
        (found,) = (each for each in diagnose(world.evidence()).causes if each.id == id_)
        (name,) = re.findall(r"container ([\w-]+)", found.title)[:1]
        world.logs[found.affected[0], name] = "trying\nmnist-ps-0 does not answer\n"
        assert f"log of {found.affected[0]}: mnist-ps-0 does not answer" in first_of(world).evidence


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        (
            (
                "fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden",
                "download failed, retry in 5s",
            ),
            "calling the HeadObject operation: Forbidden",
        ),
        (
            (
                "rclone: ERROR : Attempt 1/3 failed with 1 errors and: AccessDenied: Access Denied",
                "sleeping 5 before next attempt",
            ),
            "AccessDenied: Access Denied",
        ),
        (("Completed 53.0 GiB/100.0 GiB", "Completed 54.0 GiB/100.0 GiB"), ""),
    ],
)
def test_an_init_container_that_only_repeats_an_error_is_a_warning_and_the_error_is_quoted(
    lines: tuple[str, str], quoted: str
) -> None:
    """A healthy download waits, too."""
    world = world_of()
    for minutes in (2, 9):
        world._initializing(minutes)
        world.logs[WORKER, "fetch"] = "\n".join(lines * 9)
        first = first_of(world)
        assert first.title.startswith("Init container fetch only repeats an error (") is bool(quoted)
        assert quoted in first.title
    world._initializing(0.5)
    assert first_of(world).id == "waits-for-init-container"


def test_a_clock_that_is_ahead_does_not_make_the_new_pod_the_one_that_was_killed() -> None:
    """The operator writes the event, and the API server the time of creation."""
    world = recreated(137, "OOMKilled")
    world.job["metadata"]["generation"] = world.status["observedGeneration"] = 2
    world.pods[WORKER]["metadata"]["creationTimestamp"] = ago(3 + 5 / 60)
    assert ids_of(world) == ["was-restarted"]


def test_lack_of_memory_is_the_first_line_while_its_replica_is_recreated_again_and_again() -> None:
    """Under ExitCode, until the job is edited or the new pod has run for ten minutes."""
    world = recreated(137, "OOMKilled")
    first = first_of(world)
    assert first.severity is Severity.ERROR
    assert first.title == f"OOMKilled: container tensorflow of {WORKER} exceeded its memory limit of 4Gi"
    world.container()["state"] = {"running": {"startedAt": ago(11)}}
    assert first_of(world).id == "was-restarted"
    assert first_of(recreated(137, "OOMKilled", times=1)).id == "was-restarted"


@pytest.mark.parametrize("is_edited", [False, True])
def test_the_memory_limit_of_an_edited_template_is_not_that_of_the_pod_that_is_gone(is_edited: bool) -> None:
    world = world_of("restart-delayed")
    world.status["attemptHistory"], world.status["attempt"] = [], 0
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 2, "pod": f"uid-{WORKER}"}]
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 137: OOMKilled", type_="Normal")
    if is_edited:
        world.job["metadata"]["generation"] = world.status["observedGeneration"] = 2
    words = "exceeded its memory limit" if is_edited else "exceeded its memory limit of 4Gi"
    assert first_of(world).title == f"OOMKilled: container tensorflow of {WORKER} {words}"


@pytest.mark.parametrize("kind", ["Liveness", "Startup"])
def test_a_probe_that_failed_in_an_earlier_pod_of_the_replica_is_past(kind: str) -> None:
    """The user has removed it since. The kubelet's events have the name of the new pod, but not its UID."""
    world = recreated(137, "")
    world.pod_event("Killing", f"Container tensorflow failed {kind.lower()} probe", type_="Normal")
    world.pod_event("Unhealthy", f"{kind} probe failed: HTTP probe failed with statuscode: 503")
    (cause,) = diagnose(world.evidence()).causes
    assert (cause.id, cause.severity) == ("was-restarted", Severity.INFO)
    assert cause.title == f"Restarted 3 times ({WORKER}), running now; last failure: {kind} probe"
    assert "delete pod" not in str(cause.to_do)
    assert "Probe from" not in str(cause.to_do)


@pytest.mark.parametrize("recreate", [False, True])
@pytest.mark.parametrize("times", [1, 5])
def test_the_error_of_the_last_failure_is_quoted_while_the_replica_runs_again(times: int, recreate: bool) -> None:
    """`status` has it too; after five restarts its advice is due."""
    words = "ModuleNotFoundError: No module named 'jaxx'"
    if recreate:
        world = recreated(1, words, times=times)
    else:
        world = world_of()
        ended = {"exitCode": 1, "reason": "Error", "message": words, "startedAt": ago(7), "finishedAt": ago(6.9)}
        state = {"running": {"startedAt": ago(5)}}
        world.container().update(restartCount=times, lastState={"terminated": ended}, state=state)
    first = first_of(world)
    often = "once" if times == 1 else "5 times"
    assert first.title == f"Restarted {often} ({WORKER}), running now; last failure: {words}"
    assert ("pip install" in str(first.to_do)) is (times == 5)
    assert (f"delete pod {WORKER}" in str(first.to_do)) is (times == 5 and not recreate)


def test_a_hook_that_failed_long_ago_is_told_while_its_container_is_down() -> None:
    """The kubelet tells of it for some minutes, and of its back-off as long as it lasts. The end of its message counts."""
    world = world_of()
    world.exited(137)
    end = 'exited with 9: , message: "no license server"'
    message = f"Exec lifecycle hook ([{'x' * 160}]) for Container tensorflow failed - error: command {end}"
    world.pod_event("FailedPostStartHook", message, minutes=37)
    world.pod_event("BackOff", "Back-off restarting failed container", minutes=4)
    assert first_of(world).title == f"Hook postStart failed (mnist-worker-1): {end}"


def test_a_volume_that_hides_the_programs_of_the_image_is_named() -> None:
    world = world_of("program-missing")
    (container,) = world.pods["mnist-worker-1"]["spec"]["containers"]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}, {"name": "tools", "mountPath": "/bin/"}]
    title = first_of(world).title
    assert "in the image (a volume is mounted at /bin and hides it)" in title


def test_a_container_that_crashed_again_and_again_is_in_the_loop_until_it_runs_clearly_longer_than_the_last_time() -> (
    None
):
    """Between two restarts it runs for a moment, and the reason would otherwise be gone from line one."""
    world = world_of("usage-error")
    container = world.container()
    container["state"] = {"running": {"startedAt": ago(2.1)}}  # the run before lasted a minute
    assert first_of(world).id == "usage-error"
    container["state"] = {"running": {"startedAt": ago(2.2)}}
    assert first_of(world).id == "was-restarted"


def test_one_line_of_a_log_that_is_also_the_termination_message_is_quoted_once() -> None:
    world = world_of()
    world.exited(3, message="sharing batches\n", log="sharing batches\n")
    assert first_of(world).title.endswith(": sharing batches")


@pytest.mark.parametrize("minutes", [1, 30])
def test_a_container_that_its_startup_probe_killed_is_explained_by_that_when_the_event_is_not_repeated(
    minutes: int,
) -> None:
    """The event recorder of a kubelet writes only one event in five minutes after the first 25."""
    world = world_of("killed")
    killing = "Container tensorflow failed startup probe, will be restarted"
    world.pod_event("Killing", killing, type_="Normal", minutes=minutes)
    world.pod_event("Unhealthy", "Startup probe failed: dial tcp 10.0.0.7:2222: connection refused", minutes=minutes)
    assert first_of(world).title.startswith("Startup probe failed (mnist-worker-1): dial tcp 10.0.0.7:2222")
    world.events.clear()
    assert first_of(world).id == "killed"
    world.pods[WORKER]["spec"]["containers"][0]["startupProbe"] = {"tcpSocket": {"port": 2222}}
    title = "Startup probe may have failed (mnist-worker-1): exit code 137, and the container has a startupProbe"
    assert first_of(world).title == title


def test_a_pod_that_reached_its_deadline_before_it_started_says_what_kept_it() -> None:
    world = world_of("pod-deadline")
    title = first_of(world).title
    world.pods["mnist-worker-1"]["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"running": {}}}]
    assert first_of(world).title == f"{title}: init container fetch has not ended"
    world.pods["mnist-worker-1"]["status"]["initContainerStatuses"] = []
    waits = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "keys" not found'}}
    world.pods["mnist-worker-1"]["status"]["containerStatuses"] = [{"name": "tensorflow", "state": waits}]
    said = ': container tensorflow did not start: CreateContainerConfigError: secret "keys" not found'
    found = diagnose(world.evidence()).causes
    assert [each.title for each in found] == ['Secret "keys" not found (env of mnist-worker-1)', title + said]


def test_a_liveness_probe_that_kills_for_good_is_named_although_the_kubelet_does_not_name_it() -> None:
    """Without a restart its event only says that the container is stopped."""
    world = world_of()
    world.failed(137)
    world.pod_event("Killing", "Stopping container tensorflow", type_="Normal")
    assert first_of(world).id == "killed"
    world.pod_event("Unhealthy", "Liveness probe failed: cat: /tmp/heartbeat: No such file or directory")
    first = first_of(world)
    assert first.title == "Liveness probe failed (mnist-worker-1): the kubelet killed the container"
    assert any("/tmp/heartbeat" in line for line in first.evidence)
    world.events[-1]["lastTimestamp"] = ago(9)
    assert first_of(world).id == "killed", "the probe had recovered"


@pytest.mark.parametrize("killing", ["Container tensorflow failed startup probe", "Stopping container tensorflow"])
def test_a_startup_probe_that_kills_for_good_is_named(killing: str) -> None:
    """The job has failed, so that no container is down any more; the program may exit with any code after SIGTERM."""
    for code in (137, 1):
        world = world_of()
        world.failed(code, log="compiling")
        world.pod_event("Unhealthy", "Startup probe failed: dial tcp 10.0.0.7:2222: connection refused")
        assert not first_of(world).title.startswith("Startup")
        world.pod_event("Killing", killing, type_="Normal")
        first = first_of(world)
        assert first.title == "Startup probe failed (mnist-worker-1): dial tcp 10.0.0.7:2222: connection refused"
        assert "startupProbe" in str(first.to_do)
        assert "exited with code" in first.evidence[0]


def test_a_startup_probe_that_ends_pods_under_exit_code_is_named_while_the_restart_is_delayed() -> None:
    """The pod is gone, and only events tell of its end."""
    world = world_of("restart-delayed")
    world.status["attemptHistory"], world.status["attempt"] = [], 0
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 2, "pod": "uid-mnist-worker-1"}]
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 137", type_="Normal")
    world.pod_event("Killing", "Container tensorflow failed startup probe", type_="Normal")
    world.pod_event("Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 503")
    assert first_of(world).title == f"Startup probe failed ({WORKER}): HTTP probe failed with statuscode: 503"


def test_the_training_is_not_blamed_for_the_probe_of_a_sidecar() -> None:
    world = world_of("crash-loop")
    world.pod_event("Killing", "Container proxy failed liveness probe, will be restarted", type_="Normal")
    assert first_of(world).id == "crash-loop"


@pytest.mark.parametrize("change", ["none", "logged", "ignored", "line after", "failed"])
def test_a_job_that_succeeded_although_its_log_ends_with_an_exception_is_asked_about_a_pipe(change: str) -> None:
    """What Python prints after an exception shows that it was handled; Python ignores those of finalizers."""
    world = world_of("succeeded-with-exception")
    log = world.logs["mnist-worker-0", "tensorflow"]
    if change == "ignored":
        log = log.replace("Traceback", "Exception ignored in: <function Pool.__del__ at 0x7f>\nTraceback")
    elif change == "logged":
        log = log.replace("Traceback", "ERROR:root:step 7\nTraceback")
    elif change == "line after":
        log += "retried, done\n"
        world.workers["template"]["spec"]["containers"][0]["command"] = ["/usr/bin/python3", "train.py"]
    elif change == "failed":
        world.container("mnist-worker-0")["state"]["terminated"]["exitCode"] = 1
    world.logs["mnist-worker-0", "tensorflow"] = log
    found = diagnose(world.evidence())
    assert found.state_line.startswith("mnist: Succeeded")
    assert ("succeeded-with-exception" in ids_of(world)) is (change in {"none", "logged"})
    if change == "none":
        (cause,) = found.causes
        assert cause.severity is Severity.WARNING
        assert cause.title.endswith("the log ends with an exception (mnist-worker-0): ValueError: bad batch size")
        assert "set -o pipefail" in str(cause.to_do)


@pytest.mark.parametrize(
    ("command", "args", "is_told"),
    [
        (["sh", "-c", "python3", "/opt/train.py"], [], True),
        (["/bin/bash", "-ec"], ["python", "-m", "trainer"], True),
        (["sh", "-c", "python3 /opt/train.py"], [], False),
        (["sh", "-c", "python3"], [], False),
        (["bash", "-c", 'exec "$@"', "bash", "python3", "/opt/train.py"], [], False),
        (["bash", "-c", "/opt/run.sh", "run", "7"], [], False),
        (["python3", "-c", "import trainer", "7"], [], False),
    ],
)
@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_words_after_the_script_of_a_shell_are_ignored(
    state: str, command: list[str], args: list[str], is_told: bool
) -> None:
    """POSIX: sh -c script name arguments. Python without a script reads its empty input, and succeeds."""
    world = world_of() if state == "running" else world_of("succeeded-with-exception")
    world.logs.clear()
    world.workers["template"]["spec"]["containers"][0] |= {"command": command, "args": args}
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["script-arguments-ignored"] * is_told
    if is_told and not args:
        assert found[0].title == "sh -c runs python3 without arguments, and ignores /opt/train.py (Worker)"
        assert "as one string" in found[0].to_do[0]


NO_FILE: Final = "python3: can't open file '/app/train.py': [Errno 2] No such file or directory"


@pytest.mark.parametrize(
    ("line", "then", "is_told"),
    [
        (NO_FILE, "finished\n", True),
        ("/usr/bin/python3: No module named trainer.fit", "", True),
        ("bash: line 1: train-model: command not found", "exit 127\nfinished\n", True),
        ("sh: 1: train-model: not found", "finished\n", True),
        ("/run.sh: line 3: /opt/train.sh: No such file or directory", "finished\n", True),
        ("sh: 1: nvidia-smi: not found", "epoch 1: loss 0.3\nfinished\n", False),
        ("sh: 1: nvidia-smi: not found", "a\nb\nc\nfinished\n", False),
        ("ModuleNotFoundError: No module named 'horovod'", "falling back to one process\n", False),
        ("error: cache: not found", "finished\n", False),
    ],
)
def test_a_job_that_succeeded_although_its_program_did_not_start_is_noticed(
    line: str, then: str, is_told: bool
) -> None:
    """As `sh -c "python3 /app/train.py; echo finished"` does; a shell exits with the code of its last command."""
    world = world_of("succeeded-with-exception")
    world.logs["mnist-worker-0", "tensorflow"] = f"{line}\n{then}"
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["succeeded-with-exception"] * is_told
    if is_told:
        assert found[0].title == f"Succeeded with exit code 0, but a program did not start (mnist-worker-0): {line}"
        assert "set -e" in str(found[0].to_do)


TRACE: Final = 'Traceback (most recent call last):\n  File "/train.py", line 3, in <module>\n    fit()\n'


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (f"{TRACE}ValueError: no step 3\nfinished", "a program may have failed: ValueError: no step 3"),
        (f"{TRACE}ValueError: bad\n    full_key: lr\n\nSee the manual\ncopied\nfinished", "may have failed: ValueError: bad"),
        ("run.sh: line 3:    17 Killed            python train.py\nfinished", "crashed: run.sh: line 3: 17 Killed"),
        ("step 7\nKilled\nfinished", "killed or crashed: Killed"),
        ("bash: line 1: 9 Segmentation fault      (core dumped) python x.py\ndone", "crashed: bash: line 1: 9 Segmentation"),
        ("Segmentation fault\ndone", "killed or crashed: Segmentation fault"),
        ("usage: x.py [-h]\n       [--lr LR]\nx.py: error: unrecognized arguments: --l\ndone", "arguments: x.py: error:"),
        ("Usage: x.py [OPTIONS]\nTry 'x.py --help' for help.\n\nError: No such option: -l\nok", "arguments: Error: No such"),
        ("FATAL Flags parsing error: Unknown command line flag 'lrr'\nPass --help\ndone", "arguments: FATAL Flags parsing"),
        (f"{TRACE}ValueError: bad\nretried\nstep 1\nfinished", ""),
        (f"{TRACE}ValueError: bad\na\nb\nc\nfinished", ""),
        (f"ERROR:root:upload failed\n{TRACE}OSError: no route\nfinished", ""),
        (f"Exception in thread Thread-1:\n{TRACE}OSError: no route\nfinished", ""),
        ("E1129 10:00:03.000000 12 train.py:9] upload failed\n" + TRACE + "OSError: no route\nfinished", ""),
        (f"{TRACE}torch.x.ChildFailedError: \n====\nt.py FAILED\n----\nRoot Cause (first):\n[0]:\n  code: 1\n====\nend",
         "may have failed: torch.x.ChildFailedError"),
        ("Killed\nepoch 2: loss 0.3\nfinished", ""),
        ("copy: error: nothing to copy\nfinished", ""),
        (f"+ python prep.py\n{TRACE}OSError: bad\n+ python x.py\na\nb\nc\nd\n+ echo", "may have failed: OSError: bad"),
        (f"+ python prep.py\n{TRACE}OSError: bad\n+ python x.py\nepoch 1: loss 0.3\n+ echo finished\nfinished", ""),
        (f"{TRACE}RuntimeError: x\nERROR:train:training failed, giving up", "training may have failed: ERROR:train:training"),
        (f"2026 ERROR root: Training failed\n{TRACE}OSError: x\nINFO exiting", "training may have failed: OSError: x"),
        ("step 3\nERROR: no data under gs://acme/ds, aborting", "training may have failed: ERROR: no data"),
        ('{"level": "error", "msg": "job failed"}\nbye', 'training may have failed: {"level": "error", "msg": "job failed"}'),
        ("E1130 10:00:03.000000 12 train.py:9] Training aborted.", "training may have failed: E1130 10:00:03"),
        ("epoch 1 loss 0.3\nERROR:root:Failed to push metrics to pushgateway: timed out\nsaved model", ""),
        ("epoch 1 loss 0.3\nERROR:root:upload of metrics failed 3 times, giving up\nfinished", ""),
        (f"2026 ERROR root: job failed\n{TRACE}OSError: x\nstep 1: loss 0.3\nfinished", ""),
        ("ERROR root: training failed, restarting from the last checkpoint\na\nb\nc\nfinished", ""),
        ("INFO: previous job failed, continuing\nfinished", ""),
        ("step 3\nFATAL: CUDA driver version is insufficient for CUDA runtime version", "ends with an error: FATAL: CUDA"),
        ("step 3\nERROR: upload to mlflow: timed out", ""),
        (f"{NO_FILE}\na\nb\nc\nd\nfinished", ""),
    ],
)  # fmt: skip
def test_a_job_that_succeeded_although_its_script_ignored_a_failure_is_noticed(log: str, line: str) -> None:
    """As of `sh -c "python3 /train.py; echo finished"`. A program that continued for more than a few lines had handled it."""
    world = world_of("succeeded-with-exception")
    world.logs["mnist-worker-0", "tensorflow"] = log
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["succeeded-with-exception"] * bool(line)
    if line:
        assert line.replace(": ", " (mnist-worker-0): ", 1) in found[0].title
        assert "&&" in str(found[0].to_do)


@pytest.mark.parametrize(
    ("script", "then", "is_told"),
    [
        ("python prep.py; python train.py; echo finished", "found 9 shards", True),
        ("python prep.py\npython train.py", "found 9 shards", True),
        ("python prep.py; python train.py; echo finished", "Epoch 1/2", False),
        ("python prep.py; python train.py; echo finished", "40%|####      | 40/100 [00:10<00:15,  4.00it/s]", False),
        ("python train.py", "found 9 shards", False),
        ("python train.py;\n", "found 9 shards", False),
    ],
)
def test_an_exception_of_one_of_several_commands_is_noticed_above_the_lines_of_the_next(
    script: str, then: str, *, is_told: bool
) -> None:
    world = world_of("succeeded-with-exception")
    world.workers["template"]["spec"]["containers"][0] |= {"command": ["bash", "-c", script], "args": []}
    for failure in (f"{TRACE}OSError: no raw data", NO_FILE):
        world.logs["mnist-worker-0", "tensorflow"] = f"{failure}\n{then}\na\nb\nc\nfinished"
        found = diagnose(world.evidence()).causes
        assert [each.id for each in found] == ["succeeded-with-exception"] * is_told


UNET: Final = """Traceback (most recent call last):
  File "/opt/train/train.py", line 188, in main
    model.fit(train_ds, validation_data=val_ds, epochs=args.epochs)
  File "/usr/local/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py", line 122, in error_handler
    raise e.with_traceback(filtered_tb) from None
ValueError: Input 0 of layer "unet3d" is incompatible with the layer: expected shape=(None, 128, 1), found shape=(2, 1)"""
TEE: Final = "python train.py 2>&1 | tee /tmp/train.log"


def behind(prefix: str, log: str) -> str:
    """Return a log as a pipe writes it that puts something before each line; `#` is the number of the line."""
    return "".join(f"{prefix.replace('#', str(10 + number))}{line}\n" for number, line in enumerate(log.split("\n")))


@pytest.mark.parametrize(
    ("script", "log"),
    [
        (
            f'{TEE}\necho "[run.sh] training step done, syncing artifacts"\necho "[run.sh] nothing to upload"',
            f"{UNET}\n[run.sh] training step done, syncing artifacts\n[run.sh] nothing to upload",
        ),
        (f"{TEE}; echo 'Step 2/3: evaluation'; echo 'Step 3/3: done'", f"{UNET}\nStep 2/3: evaluation\nStep 3/3: done"),
        (f'{TEE}\nprintf "epoch 30 of %s kept\\n" $RUN', f"{UNET}\nepoch 30 of ct-7 kept"),
        (f"{TEE}; echo == STEP 3 finished, exit 0 ==", f"{UNET}\n== STEP 3 finished, exit 0 =="),
        (f"set -x; {TEE}; echo epoch 7 kept", f"+ tee x\n{UNET}\n+ echo 'epoch 7 kept'\nepoch 7 kept"),
        (f"{TEE} | ts; echo done", f"{behind('Dec 01 00:41:# ', UNET)}done"),
        (
            'python train.py 2>&1 | while read -r l; do echo "$(date -Is) [train] $l"; done; date',
            f"{behind('2026-12-01T00:41:#+00:00 [train] ', UNET)}Tue Dec  1 00:41:20 UTC 2026",
        ),
        (
            'for i in 1 2; do python train.py && break; echo "attempt $i failed, trying again"; done; echo finished',
            f"{UNET}\nattempt 1 failed, trying again\n{UNET}\nattempt 2 failed, trying again\nfinished",
        ),
        (
            "python train.py > log 2>&1; tail -n 5 log; echo step log shown",
            "\n".join([*UNET.split("\n")[1:], "step log shown"]),
        ),
        ("/opt/run.sh", f"{UNET}\n[run] step: copy logs\nupload: a\nupload: b\nupload: c\nupload: d\n[run] step: end"),
        (
            "bash /opt/run.sh --lr 1",
            f"{UNET}\n[2026-12-01 00:41:20] training step finished\na\nb\nc\nd\n[00:41:21] end",
        ),
        ("exec python launch.py", f"{UNET}\n[launch] training step of worker finished, exit code 1\n[launch] bye"),
    ],
)
def test_an_exception_is_not_hidden_by_what_a_script_prints_after_a_training_that_failed(script: str, log: str) -> None:
    """The exit code is lost in a pipe, in a loop, or between commands, and no line after the exception is of a training."""
    world = world_of("succeeded-with-exception")
    is_python = script.startswith("exec python")
    command = script.split()[1:] if is_python else ["bash", "-c", script]
    world.workers["template"]["spec"]["containers"][0] |= {"command": command, "args": []}
    world.logs["mnist-worker-0", "tensorflow"] = f"loading 312 studies\n{log}\n"
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["succeeded-with-exception"]
    assert 'ValueError: Input 0 of layer "unet3d" is incompatible with the layer' in found[0].title


@pytest.mark.parametrize(
    ("script", "then"),
    [
        (f"{TEE}; echo done", "Epoch 1/3 - loss: 0.21 - val_loss: 0.31\nSaved model\ndone"),
        (f"{TEE}; echo 'Step 2/2: done'", "step 400\nstep 500\nStep 2/2: done"),
        ("/opt/run.sh", "iter 20/1000 d_cost 0.3\n[run] step: copy logs\nend"),
        ('for i in 1 2 3; do echo "Epoch $i/3 - loss: 0.2$i"; done; echo saved', "Epoch 3/3 - loss: 0.23\nsaved"),
        (f"{TEE} | ts; echo done", "312.4 images/s\nsaved\ndone"),
        (f"{TEE}; echo done", " 40%|####      | 40/100 [00:10<00:15,  4.00it/s]\ndone"),
        (f"{TEE}; echo done", '{"epoch": 3, "val_auc": 0.91}\ndone'),
        ("exec python train.py", "retried with the cached copy\nsaved"),
    ],
)
def test_an_exception_after_which_a_training_went_on_is_not_warned_about(script: str, then: str) -> None:
    world = world_of("succeeded-with-exception")
    command = script.split()[1:] if script.startswith("exec") else ["bash", "-c", script]
    world.workers["template"]["spec"]["containers"][0] |= {"command": command, "args": []}
    log = f"{UNET}\n{then}\n"
    world.logs["mnist-worker-0", "tensorflow"] = behind("Dec 01 00:41:# ", log) if "| ts" in script else log
    assert ids_of(world) == []


RESTORED: Final = (
    f"{UNET.rpartition('ValueError')[0]}tensorflow.python.framework.errors_impl.NotFoundError: Restoring from checkpoint "
    "failed. This is most likely due to a Variable name or other graph key that is missing from the checkpoint. Please ensure "
    "that you have not altered the graph expected based on the checkpoint. "
    "Original error:\n\nGraph execution error:\n\n"
    "Key dnn/hiddenlayer_2/kernel not found in checkpoint\n\t [[node save/RestoreV2 (defined at /opt/reco/train.py:198) ]]"
)


def test_the_key_that_a_checkpoint_lacks_is_named_below_two_headers() -> None:
    world = world_of()
    world.failed(1, log=RESTORED)
    assert first_of(world).title.endswith("NotFoundError: Key dnn/hiddenlayer_2/kernel not found in checkpoint")


ECC: Final = (
    "2026-12-01 00:41:19.882310: E external/local_xla/xla/stream_executor/cuda/cuda_event.cc:29] Error polling for event "
    "status: failed to query event: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered / "
    "2026-12-01 00:41:19.882361: F tensorflow/core/common_runtime/device/device_event_mgr.cc:223] Unexpected "
    "Event status: 1 / Fatal Python error: Aborted"
)
LOST_PEER: Final = (
    f"{UNET.rpartition('ValueError')[0]}tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:\n\n"
    "Detected at node CollectiveReduceV2 defined at (most recent call last):\n<stack traces unavailable>\nCollective ops is "
    "aborted by: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.244.0.44:2222: Failed to connect to remote "
    "host: Connection refused"
)


@pytest.mark.parametrize(
    ("code", "words", "minutes", "is_told"),
    [
        (134, f": {ECC}", 10.1, True),
        (134, f": {ECC}", 40, False),  # it ran again for half an hour
        (134, "", 10.1, False),
        (143, ": terminated", 10.1, False),
        (1, ": UnavailableError: Socket closed / /job:worker/replica:0/task:1", 10.1, False),
    ],
)
def test_the_event_of_the_replica_that_failed_first_is_the_cause_if_its_pod_and_log_are_gone(
    code: int, words: str, minutes: float, is_told: bool
) -> None:
    """With restartPolicy ExitCode its pod is recreated, and deleted at the end of the job."""
    world = world_of()
    world.failed(1, log=LOST_PEER)
    for number, pod in enumerate(world.pods.values()):
        pod["status"]["podIP"] = f"10.244.0.{90 + number}"  # that of the log is of the pod that is gone
    world.status["restarts"] = [{"type": "Worker", "index": 0, "carried": 1}]
    message = f"Pod: team.mnist-worker-0 exited with code {code}{words}"
    world.job_event("ExitedWithCode", message, type_="Normal", minutes=minutes)
    first, *others = diagnose(world.evidence()).causes
    assert (first.id == "gpu-hardware-error") is is_told
    lost = others[0] if is_told else first
    assert lost.title == f"Stopped because another replica ended: mnist-worker-0 ({WORKER})"
    if is_told:
        assert "CUDA_ERROR_ECC_UNCORRECTABLE" in first.title
        assert "ExitedWithCode" in str(first.evidence)
        del world.pods["mnist-worker-0"]  # deleted at the end of the job
        assert first_of(world).id == "gpu-hardware-error"
        assert "is deleted with its pod" not in str(diagnose(world.evidence()).causes[1].to_do)


def test_a_peer_that_waits_at_its_exit_after_an_exception_is_the_cause_with_the_exception() -> None:
    """A process of JAX does; the job has failed meanwhile, and cleanPodPolicy None lets the pod run."""
    world = world_of()
    lost = (
        "F1201 00:41:40.120402      72 client.h:80] Terminating process because the JAX distributed service detected fatal "
        "errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
        "/job:jax_worker/replica:0/task:0\nThe tasks have crashed."
    )
    world.failed(134, log=lost)
    world.last_lines["mnist-worker-0"] = LastLine(None, log=RAISED)
    first = first_of(world)
    assert first.title == f"Stopped because mnist-worker-0 had failed ({WORKER}): ValueError: bad shard 7"
    assert "log of mnist-worker-0" in first.evidence[0]
    assert "logs mnist-worker-0 " in first.to_do[0]
    world.last_lines["mnist-worker-0"] = LastLine(None, log=f"{RAISED}step 7")
    assert first_of(world).title == f"Stopped because another replica ended: mnist-worker-0 ({WORKER})"


@pytest.mark.parametrize(
    ("log", "minutes", "line"),
    [
        (f"{TRACE}OSError: no route", 2, "its log ends with an exception (mnist-worker-1, 2m ago): OSError: no route"),
        (f"{TRACE}OSError: no route", 0.3, ""),  # what follows may not be written yet
        (f"{TRACE}OSError: no route\nepoch 2 loss 0.3", 1, ""),
        (
            f"{TRACE}OSError: no route\nserving",
            5,
            "a program may have failed (mnist-worker-1, 5m ago): OSError: no route",
        ),
        (
            f"\nException in thread Thread-1 (fit):\n{TRACE}OSError: no route",
            5,
            "its log ends with an exception (mnist-worker-1, 5m ago)",
        ),
        (f"ERROR:root:upload failed\n{TRACE}OSError: no route", 1, ""),
        (f"{NO_FILE}\nserving", 5, "a program did not start (mnist-worker-1, 5m ago)"),
        ("Segmentation fault", 5, "a program was killed or crashed (mnist-worker-1, 5m ago)"),
        ("epoch 1 loss 0.3", 5, ""),
        (
            f"{TRACE}OSError: no route" + "\nheartbeat ok" * 9,
            0.1,
            "an exception (mnist-worker-1, and then the same line again",
        ),
        (
            "Killed" + "\nwaiting for loader" * 9,
            0.1,
            "a program was killed or crashed (mnist-worker-1, and then the same line",
        ),
        (f"{TRACE}OSError: no route" + "\nstep 3" * 9, 0.1, ""),
    ],
)
def test_a_container_that_runs_on_although_its_program_failed_is_noticed(log: str, minutes: float, line: str) -> None:
    """As of `python3 train.py & sleep infinity`, or of an exception in a thread. A training may write nothing for a while."""
    world = world_of()
    world._written(minutes, log)
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["running-after-exception"] * bool(line)
    assert not found or line in found[0].title


REGISTRY_DNS: Final = (
    'Failed to pull image "harbor.imaging.internal/team/seg:1.0": rpc error: code = Unknown desc = failed to pull and unpack '
    'image "harbor.imaging.internal/team/seg:1.0": failed to resolve reference "harbor.imaging.internal/team/seg:1.0": '
    'failed to do request: Head "https://harbor.imaging.internal/v2/team/seg/manifests/1.0": dial tcp: lookup '
    "harbor.imaging.internal on 10.255.255.53:53: read udp 10.88.0.2:41233->10.255.255.53:53: i/o timeout"
)


@pytest.mark.parametrize("path", ["team/seg:1.0", f"{'team/' * 40}seg:1.0"])
def test_a_registry_that_a_node_cannot_resolve_is_told_with_the_end_of_the_message(path: str) -> None:
    """containerd repeats the image, and Go gives the cause last."""
    world = world_of()
    image = f"harbor.imaging.internal/{path}"
    world.waiting("ImagePullBackOff", f'Back-off pulling image "{image}"')
    world.container()["image"] = image
    world.pod_event("Failed", REGISTRY_DNS.replace("team/seg:1.0", path))
    first = first_of(world)
    assert "is unreachable: the node cannot resolve harbor.imaging.internal (mnist-worker-1)" in first.title
    assert first.evidence[0].endswith("10.255.255.53:53: i/o timeout")
    assert "name servers" in first.to_do[0]


def test_a_secret_for_pulls_that_the_template_names_is_to_be_checked_and_not_added() -> None:
    """The kubelet pulls without a Secret that does not exist; older ones record no event about it."""
    world = world_of()
    image = "localhost:5000/private/seg:3.1"
    world.waiting("ImagePullBackOff", f'Back-off pulling image "{image}"')
    world.container()["image"] = image
    denied = "pulling from host localhost:5000 failed with status code [manifests 3.1]: 401 Unauthorized"
    world.pod_event("Failed", f'Failed to pull image "{image}": rpc error: code = Unknown desc = {denied}')
    assert "Add the Secret to imagePullSecrets" in steps_of(world)
    world.workers["template"]["spec"]["imagePullSecrets"] = [{"name": "regcred"}]
    assert first_of(world).id == "image-no-right"
    assert "The template pulls with Secret regcred: check that it exists" in steps_of(world)
    assert "create secret docker-registry regcred " in steps_of(world)
    assert "Add the Secret" not in steps_of(world)


@pytest.mark.parametrize(
    ("cluster", "is_told"),
    [
        ('{"chief":["localhost:2222"],"ps":["localhost:2223"],"worker":["localhost:2224"]}', True),
        ('{"worker":["127.0.0.1:2222","127.0.0.1:2223"]}', True),
        ('{"worker":["localhost:2222"]}', False),  # a process of its own
        ('{"worker":["mnist-worker-0.team.svc:2222","mnist-worker-1.team.svc:2222"]}', False),
    ],
)
def test_a_tf_config_that_names_localhost_instead_of_the_replicas_is_a_warning_at_once(
    cluster: str, is_told: bool
) -> None:
    world = world_of()
    world.workers["replicas"] = 1
    del world.pods[WORKER]
    (container,) = world.workers["template"]["spec"]["containers"]
    value = f'{{"cluster":{cluster},"task":{{"type":"worker","index":0}}}}'
    container["env"] = [{"name": "TF_CONFIG", "value": value}]
    assert ids_of(world) == ["tf-config-equal"] * is_told
    if is_told:
        title = "TF_CONFIG in the template of Worker has addresses of localhost, where no other of 2 replicas is"
        assert first_of(world).title == title
        assert "emove TF_CONFIG from env" in steps_of(world)
        del world.spec["tfReplicaSpecs"]["PS"]
        assert ids_of(world) == []


def test_a_database_in_another_namespace_is_looked_for_there() -> None:
    world = world_of()
    raised = "Can't connect to MySQL server on 'feature-db.data.svc' ([Errno -2] Name or service not known)"
    world.failed(1, log=f'{TRACE}pymysql.err.OperationalError: (2003, "{raised}")')
    first = first_of(world)
    assert first.title == f"Name of a Service does not resolve: feature-db.data.svc ({WORKER})"
    assert first.to_do[1] == "Look for the Service: kubectl -n data get service feature-db"
    assert "job-name=mnist" not in steps_of(world)


@pytest.mark.parametrize("minutes", [2, 4])
@pytest.mark.parametrize("by", ["condition", "attempt"])
def test_the_permission_to_read_logs_is_not_missing_once_the_operator_found_a_stall(by: str, minutes: float) -> None:
    """The age of the event, here three minutes, says nothing: the operator records it once."""
    world = world_of("logs-unavailable")
    if by == "condition":
        world.status["conditions"].insert(1, condition("Stalled", "False", "TFJobRestarting", "is restarted", minutes))
    else:
        attempt = {"number": 0, "endTime": ago(minutes), "reason": "ProgressDeadlineExceeded"}
        world.status["attemptHistory"] = [attempt]
    assert ("logs-unavailable" not in ids_of(world)) is (minutes < 3)


def test_a_hang_is_told_before_the_permission_that_the_operator_lacks_to_notice_it() -> None:
    world = world_of("logs-unavailable")
    for number in (0, 1):
        world.last_lines[f"mnist-worker-{number}"] = LastLine(
            datetime.fromisoformat(ago(11)), "Waiting for model to be ready"
        )
    assert ids_of(world) == ["no-log-output", "logs-unavailable"]


STUCK: Final = (
    "E1201 00:42:11.551903     211 rendezvous.cc:100] This thread has been waiting for `acquire clique for rank 0; "
    "clique=devices=[0,1]; stream=0; run_id=1804289383` for 20 seconds and may be stuck. Expected 2 threads to join the "
    "rendezvous, but not all of them arrived on time."
)


@pytest.mark.parametrize(
    ("log", "seconds", "is_told"),
    [
        (f"Epoch 1/30\n{STUCK}", 35, True),
        (f"Epoch 1/30\n{STUCK}", 20, False),
        (
            f"{STUCK}\nE1201 00:42:12.0 211 rendezvous.cc:115] Thread is unstuck! Warning above was a false-positive.",
            35,
            False,
        ),
        (f"{STUCK}\nEpoch 2/30", 35, False),
    ],
)
def test_an_operation_of_all_replicas_that_may_be_stuck_is_noticed_after_half_a_minute(
    log: str, seconds: float, is_told: bool
) -> None:
    world = world_of()
    world._written(seconds / 60, log)
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["running-after-exception"] * is_told
    if is_told:
        assert found[0].title.startswith(f"Running, but it may be stuck ({WORKER}, 35s ago): ")
        assert "This thread has been waiting for `acquire clique" in found[0].title
        assert "kubectl tfjob logs mnist -n team" in steps_of(world)
        assert "kubectl tfjob restart mnist -n team" in steps_of(world)


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (["[ERROR] store not reachable: retrying in 3s (attempt 1)"] * 9, True),
        ([f"{number} DNS resolution failed for ps-0" for number in range(30)], True),
        (["[ERROR] store not reachable: retrying"] * 4, False),
        (["[ERROR] store not reachable: retrying"] * 9 + ["step 1"], False),
        (["GET /healthz 200"] * 30, False),
        ([f"file {chr(97 + number)} not found, created" for number in range(20)], False),
        (["[ERROR] store not reachable"] * 9 + [f"read shard {chr(97 + number)}" for number in range(20)], False),
        ([f"[{number}] validation_0-error:0.0{number}" for number in range(30)], False),
        ([f"INFO it {number}: mean squared error 0.01{number}, failures: 0" for number in range(30)], False),
        ([f"[{number}] test error: 0.{number}%" for number in range(30)], False),
        (["[monitor] errors: 0, failed batches: 0, exceptions: 0, timeouts: 0"] * 30, False),
        (["I tensorflow/core/data/service/dispatcher: 2 workers alive, 0 failed tasks, 0 timed out"] * 30, False),
        (["INFO health check passed: no errors found, nothing failed"] * 30, False),
        (['{"status": "ok", "error": null, "exception": null}'] * 30, False),
        ([f"ERROR:preproc:failed to decode image_{number}.jpg: truncated, skipped" for number in range(30)], False),
        (["ERROR:preproc:failed to decode image_1.jpg: truncated, skipped"] * 30, True),
        ([f"ERROR: read of train-{number} failed: Access Denied" for number in range(30)], True),
        (["[monitor] errors: 0, connection to ps-0 refused"] * 30, True),
        (["connect to featurestore.mlops.svc:6379 failed: [Errno 111] Connection refused"] * 30, True),
        ([f"generation {number} best error 0.01205 failed 0 of 64" for number in range(30)], False),
        (["CreateSession still waiting for response from worker: /job:ps/replica:0/task:0"] * 6, True),
        (
            [
                f"E1130 10:00:0{number}.000000 1 lease.go:12] lease lost: context deadline exceeded"
                for number in range(9)
            ],
            True,
        ),
        ([*TRACE.splitlines(), *["    at"] * 60, "urllib.error.URLError: <urlopen error no route>"] * 3, True),
    ],
)
def test_a_program_that_only_tries_again_is_noticed(lines: list[str], is_told: bool) -> None:
    """Its log is never silent. One that has just started may wait for another one for a while."""
    world = world_of()
    world._written(0.1, "\n".join(lines))
    assert ids_of(world) == ["running-with-repeated-error"] * is_told
    world.container(WORKER)["state"]["running"]["startedAt"] = ago(0.5)
    assert ids_of(world) == []


EXPIRED: Final = (
    "WARNING:data.s3:read s3://cv-datasets/train-00417.tfrecord failed: An error occurred (ExpiredToken) when calling the "
    "GetObject operation: The provided token has expired.; retry in 2s"
)
EPOCHS: Final = [
    line for epoch in "123" for line in (f"Epoch {epoch}/90", f"5004/5004 - 411s - 82ms/step - loss: 5.1{epoch}")
]
WAITS: Final = [
    f"2026-11-30 08:13:{second}.004411: I tensorflow/core/distributed_runtime/master.cc:268] CreateSession still waiting for "
    "response from worker: /job:ps/replica:0/task:0"
    for second in range(10, 31)
]
DENIED: Final = (
    "ERROR:uploader:upload to s3://cv-models/run-18 failed: An error occurred (AccessDenied) when calling the PutObject "
    "operation: Access Denied; retrying in 5s"
)
SLOW_DOWN: Final = [
    f"2026-11-30 08:41:10.1: {level} tensorflow/core/platform/s3/aws_logging.cc:{said}"
    for level, said in (
        ("W", "57] Encountered Unknown AWSError 'SlowDown': Please reduce your request rate."),
        ("I", "54] Request failed, now waiting 25600 ms before attempting again."),
    )
]


@pytest.mark.parametrize(
    ("lines", "every_s", "quoted"),
    [
        ([*EPOCHS, *[EXPIRED] * 31], 2, "(ExpiredToken) when calling"),
        ([*EPOCHS, *[EXPIRED] * 25], 2, ""),  # for less than a minute
        ([*EPOCHS, *[EXPIRED] * 9], 30, ""),
        ([*[line for line in EPOCHS for _ in range(2)], *[EXPIRED] * 11], 10, "(ExpiredToken) when calling"),
        ([f"INFO:tensorflow:loss = 2.31, step = {step} (4.31 sec)" for step in (100, 200, 300)] + WAITS, 3, "/job:ps/"),
        (["Epoch 1/1", *[DENIED] * 13], 5, "(AccessDenied) when calling"),
        (["Epoch 1/1", *SLOW_DOWN * 10], 4, "'SlowDown': Please reduce your request rate."),
        # A training that goes on in spite of it, and one between whose epochs it happens.
        ([line for step in range(90) for line in (f"step {step}/90000 loss=1.2", DENIED)], 4, ""),
        ([*[EXPIRED] * 40, "Epoch 2/90", *[EXPIRED] * 40], 2, ""),
        (["Epoch 1/90", *["reading"] * 60, "Epoch 2/90", *[EXPIRED] * 40], 2, ""),
        (
            ["Epoch 1/90", *[f"ERROR:preproc:failed to decode image_{number}.jpg, skipped" for number in range(90)]],
            3,
            "",
        ),
        (["Epoch 1/90", *["Corrupt JPEG data: 239 extraneous bytes before marker 0xd9"] * 90], 3, ""),
    ],
)
def test_a_training_that_has_made_progress_and_now_only_tries_again_is_noticed(
    lines: list[str], every_s: float, quoted: str
) -> None:
    """Unless it took as long before, or the error is another one each time."""
    world = world_of()
    world._written(0.1, "\n".join(lines), every_s)
    assert ids_of(world) == ["running-with-repeated-error"] * bool(quoted)
    if quoted:
        first = first_of(world)
        assert quoted in first.title
        assert first.title.startswith("Running, but since its last line of progress its log only repeats an error (")
    world.last_lines[WORKER] = world.last_lines[WORKER]._replace(times=())
    assert ids_of(world) == []


def test_of_a_repeated_block_the_line_with_the_error_is_quoted() -> None:
    """The S3 client of TensorFlow 1.15 writes the code of the response first, and last that it tries again."""
    block = """\
2026-11-30 08:41:10.112233: I tensorflow/core/platform/s3/aws_logging.cc:54] Connection has been released. Continuing.
2026-11-30 08:41:10.112288: E tensorflow/core/platform/s3/aws_logging.cc:60] HTTP response code: 403
Exception name:
Error message: No response body.
6 response headers:
content-type : application/xml
2026-11-30 08:41:10.112301: W tensorflow/core/platform/s3/aws_logging.cc:57] If the signature check failed. This could be \
because of a time skew. Attempting to adjust the signer.
2026-11-30 08:41:10.112311: I tensorflow/core/platform/s3/aws_logging.cc:54] Request failed, now waiting 0 ms before \
attempting again."""
    world = world_of()
    world._written(0.1, "\n".join([block] * 9))
    assert "HTTP response code: 403" in first_of(world).title


def test_a_repeated_error_ranks_after_what_may_have_caused_it_and_its_advice_names_the_other_replica() -> None:
    world = world_of()
    world._written(0.1, "\n".join(WAITS))
    assert "correct in the template" not in steps_of(world).lower()
    assert "kubectl tfjob restart" in steps_of(world)
    for cause in ("parameter-server-completed", "tf-config-equal", "service-missing"):
        world = world_of(cause)
        world._written(0.1, "\n".join(WAITS))
        assert ids_of(world) == [cause, "running-with-repeated-error"]


@pytest.mark.parametrize(
    ("log", "is_told"),
    [
        ("epoch 1 loss: 0.4\nepoch 2 loss: nan\nepoch 3 loss: nan\nepoch 4 loss: nan", True),
        ("Epoch 1/2\n9/9 - 1s - loss: nan\nEpoch 2/2\n9/9 - 1s - loss: inf", True),
        ("epoch 1 loss: 0.4\nepoch 2 loss: nan\nepoch 3 loss: 0.3", False),
        ("epoch 1 loss: nan", False),
        ("no loss: nano tubes\nno loss: info", False),
        ("epoch 1 train_loss=nan\nepoch 2 train_loss=nan", True),
        ("Training loss (for one batch) at step 200: nan\nTraining loss (for one batch) at step 400: nan", True),
        ("step 1 loss: tensor(nan, device='cuda:0')\nstep 2 loss: tensor(nan, device='cuda:0')", True),
        ("Loss is NaN\nLoss is NaN", True),
        ("[1] train-rmse:nan\n[2] train-rmse:nan", True),
        ("epoch 1 loss: 0.3 - val_loss: nan\nepoch 2 loss: 0.2 - val_loss: nan", False),
        ("epoch 1 aux_loss: nan\nepoch 2 aux_loss: nan", False),
        ("validation loss: nan\nvalidation loss: nan", False),
    ],
)
def test_a_training_whose_loss_is_not_a_number_is_noticed(log: str, is_told: bool) -> None:
    """While it runs, and after it has succeeded; a single such loss may be skipped by the program."""
    world = world_of()
    world._written(0.1, log)
    assert ids_of(world) == ["loss-diverged"] * is_told
    world = world_of("succeeded-with-exception")
    world.logs["mnist-worker-0", "tensorflow"] = log
    assert ids_of(world) == ["loss-diverged"] * (is_told or log == "epoch 1 loss: nan")


@pytest.mark.parametrize(
    "line",
    [
        "Batch 17: Invalid loss, terminating training",
        "Monitored metric val_loss = nan is not finite. Previous best value was 0.1. Signaling Trainer to stop.",
    ],
)
def test_what_keras_and_lightning_say_of_a_loss_that_ends_the_training_is_noticed(line: str) -> None:
    world = world_of("succeeded-with-exception")
    world.logs["mnist-worker-0", "tensorflow"] = f"epoch 1 loss: 0.4\n{line}\nbye"
    assert ids_of(world) == ["loss-diverged"]


@pytest.mark.parametrize(
    ("log", "size", "id_"),
    [
        ("OperationalError: (2013, 'Lost connection to MySQL server: Connection reset by peer')", 2, "exit-code"),
        ("UnavailableError: Socket closed\n/job:worker/replica:0/task:0", 2, "peer-failed"),
        ("UnavailableError: Socket closed\n/job:worker/replica:0/task:0", 1, "exit-code"),
    ],
)
def test_a_connection_that_a_database_has_reset_is_not_one_to_another_replica(log: str, size: int, id_: str) -> None:
    world = world_of()
    world.workers["replicas"] = size
    del world.spec["tfReplicaSpecs"]["PS"]
    world.failed(1, log=log)
    assert first_of(world).id == id_


def test_the_address_of_a_pod_that_is_gone_is_not_an_external_host() -> None:
    """The replica that was replaced is named instead, with what had killed it."""
    world = world_of()
    line = "Collective ops is aborted by: failed to connect to all addresses; last error: ipv4:10.244.0.9:2222: refused"
    world.failed(
        1, log=f"UnavailableError: {line}\nAdditional GRPC error information from remote target /job:worker/task:0:"
    )
    world.job_event("ExitedWithCode", "Pod: team.mnist-worker-0 exited with code 137: OOMKilled", type_="Normal")
    found = diagnose(world.evidence()).causes
    assert found[0].id in {"out-of-memory", "memory-without-limit"}
    assert "mnist-worker-0" in found[0].title
    assert not any("external" in each.title for each in found)


def test_a_replica_that_never_ran_is_named_before_the_one_that_gave_up_on_it() -> None:
    world = world_of("replica-never-ran")
    first = first_of(world)
    assert first.title.startswith("mnist-worker-0 never ran, and the others waited for it: ")
    assert "train:9" in first.title


def test_the_eviction_of_a_pod_of_the_job_that_was_replaced_is_forgotten() -> None:
    world = world_of()
    world.job["metadata"]["creationTimestamp"] = ago(2)
    world.pod_event("Evicted", 'Usage of EmptyDir volume "cache" exceeds the limit "5Mi". ', minutes=9)
    assert ids_of(world) == []


PROXY: Final = (
    "urllib3.exceptions.ProxyError: ('Unable to connect to proxy', OSError('Tunnel connection failed: 403 Forbidden'))\n\n"
    "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    '  File "/app/train.py", line 19, in <module>\n    tokenizer = AutoTokenizer.from_pretrained("bert")\n'
    "requests.exceptions.ProxyError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
    "exceeded with url: /config.json (Caused by ProxyError('Unable to connect to proxy', OSError('Tunnel connection failed: "
    "403 Forbidden')))\"), '(Request ID: 6f1c5c0e)')"
)


def test_a_proxy_that_refuses_a_host_is_no_object_store_that_denies_access() -> None:
    curl = "curl: (56) CONNECT tunnel failed, response 403"
    for log, host in ((PROXY, "huggingface.co"), (curl, curl)):
        world = Troubled()
        world.failed(1, log=log)
        (cause,) = diagnose(world.evidence()).causes
        assert (cause.id, cause.title) == (
            "external-host-unreachable",
            f"A proxy refused the connection to {host} ({WORKER})",
        )


def test_the_user_whom_hdfs_denies_access_is_named() -> None:
    """runAsUser and fsGroup, the advice about files, have no effect on HDFS."""
    world = Troubled()
    denied = 'Permission denied: user=trainer, access=WRITE, inode="/data/fraud/ckpt":fraud-svc:hdfs:drwxr-x---'
    world.failed(
        1,
        log=f"org.apache.hadoop.security.AccessControlException: {denied}\n\tat org.apache.hadoop.hdfs.X.check(X.java:506)\n"
        'Traceback (most recent call last):\n  File "/app/train.py", line 66, in <module>\n    makedirs(path)\n'
        "tensorflow.python.framework.errors_impl.PermissionDeniedError: hdfs://nn1:8020/data/fraud/ckpt; Permission denied",
    )
    (cause,) = diagnose(world.evidence()).causes
    assert (cause.id, cause.title) == ("data-access-denied", f"Access to data denied: {denied} ({WORKER})")
    assert "HADOOP_USER_NAME" in str(cause.to_do)


def test_the_heap_of_java_is_not_the_memory_of_the_container() -> None:
    world = world_of()
    world.failed(1, log="java.lang.OutOfMemoryError: Java heap space\nMemoryError")
    assert "Java heap space" in first_of(world).title
    assert "spark.driver.memory" in str(first_of(world).to_do)


def test_a_gpu_that_is_broken_is_named_above_a_vague_exception() -> None:
    world = world_of()
    native = "2026-11-30 01:00:00.000000: E tensorflow/x.cc:29] CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error"
    world.failed(1, log=f"{native}\n{TRACE}InternalError: Failed to synchronize GPU for memcpy")
    assert first_of(world).id == "gpu-hardware-error"


def test_a_container_that_requests_no_accelerator_may_find_none() -> None:
    world = world_of("accelerator-unused")
    assert "UNKNOWN ERROR (303)" in first_of(world).title
    del world.workers["template"]["spec"]["containers"][0]["resources"]
    assert ids_of(world) == []


def test_memory_is_named_first_if_a_process_was_killed_at_the_limit_and_the_shell_succeeded() -> None:
    (cause,) = diagnosed("succeeded-after-out-of-memory").causes
    assert "memory limit of 4Gi (OOMKilled, mnist-worker-1)" in cause.title


def test_a_helper_that_has_finished_leaves_the_job_healthy() -> None:
    """`list` has no reason, as for a healthy job."""
    (cause,) = diagnosed("helper-finished").causes
    assert cause.severity is Severity.INFO
    assert "container prefetch has finished" in cause.title


def test_who_killed_a_child_is_told_by_the_log_rather_than_guessed() -> None:
    world = world_of()
    world.failed(
        1, log="step 7\nwatchdog: no heartbeat in 3s, killing\nrun.sh: line 3:    17 Killed            python train.py"
    )
    first = first_of(world)
    assert first.title.startswith(f"A child process was killed ({WORKER}): ")
    assert "memory" not in first.title
    assert "The log says who killed it" in str(first.to_do)


@pytest.mark.parametrize(
    "log", ["sh: 1: /tmp/run.sh: not found", "bash: line 1: /tmp/run.sh: No such file or directory"]
)
def test_a_script_that_is_not_found_may_have_the_line_endings_of_windows(log: str) -> None:
    world = world_of()
    world.failed(127, log=log)
    assert (
        first_of(world).title
        == f"Exit code 127 ({WORKER}): /tmp/run.sh does not exist, or the interpreter in its first line does not"
    )
    assert "CRLF" in str(first_of(world).to_do)


MPIRUN: Final = """[1,3]<stderr>:Traceback (most recent call last):
[1,3]<stderr>:  File "/x.py", line 1, in <module>
[1,3]<stderr>:KeyError: 'lr'
-----
mpirun detected that one or more processes exited
  Exit code:    1
-----"""
JAVA: Final = """Exception in thread "main" java.lang.X
\tat a.B.c(B.java:3)
Caused by: java.io.IOException: no space
\tat d.E.f(E.java:9)
\t... 23 more"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (MPIRUN, "KeyError: 'lr'"),
        ("[ERROR] no shards under /data\n[INFO] closing writers\n[INFO] bye", "[ERROR] no shards under /data"),
        (JAVA, "Caused by: java.io.IOException: no space"),
        ("/app/x.js:3\n\nError: no license\n    at f (/app/x.js:3:9)\n\nNode.js v20.11.0", "Error: no license"),
        ("ERROR: LoadError: no data\nStacktrace:\n [1] f\n   @ /x.jl:3", "ERROR: LoadError: no data"),
        (f"{TRACE}socket.gaierror: [Errno -3] Temporary failure in name resolution", "Temporary failure in name resolution"),
    ],
)  # fmt: skip
def test_the_line_with_the_reason_is_quoted_and_not_what_follows_it(log: str, line: str) -> None:
    """Stack frames of other languages, lines of a launcher, and of a logger while the program ends."""
    world = world_of()
    world.failed(1, log=log)
    assert line in first_of(world).title


def test_an_exception_far_above_the_end_is_noticed_if_the_shell_runs_several_commands() -> None:
    """With exit code 1 it is found in the same part of the log."""
    world = world_of("succeeded-with-exception")
    world.workers["template"]["spec"]["containers"][0] |= {
        "command": ["bash", "-c", "python train.py; upload.sh"],
        "args": [],
    }
    world.logs["mnist-worker-0", "tensorflow"] = f"{TRACE}ValueError: no shards\n" + "uploaded\n" * 90
    assert ids_of(world) == ["succeeded-with-exception"]


def test_a_child_that_a_time_limit_killed_is_not_out_of_memory() -> None:
    world = world_of()
    command = {"command": ["sh", "-c", "timeout -s KILL 6 python3 train.py"], "args": []}
    world.workers["template"]["spec"]["containers"][0] |= command
    world.failed(137, log="step 7\nKilled")
    assert first_of(world).title == f"A child process was killed ({WORKER}): Killed"
    assert "raise the time limit" in str(first_of(world).to_do)


@pytest.mark.parametrize("log", ["/run.sh: 2: set: Illegal option -\r\n", "starting\r\nusage: x\r\n"])
def test_carriage_returns_in_what_a_script_prints_are_named(log: str) -> None:
    world = world_of()
    world.failed(2, log=log)
    assert first_of(world).id == "windows-line-endings"


def test_a_helper_that_is_restarted_after_exit_code_0_is_named_with_its_policy() -> None:
    world = world_of()
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ago(1)}}
    helper = {"name": "prefetch", "restartCount": 10, "lastState": ended, "state": {"running": {"startedAt": ago(0.5)}}}
    world.pods[WORKER]["status"]["containerStatuses"].append(helper)
    world.pods[WORKER]["spec"]["restartPolicy"] = "Always"
    assert "restarted-after-success" in ids_of(world)
    title = next(each.title for each in diagnose(world.evidence()).causes if each.id == "restarted-after-success")
    assert "container prefetch" in title


def test_a_sidecar_without_memory_is_given_more() -> None:
    world = world_of("sidecar-failed")
    status = world.pods[WORKER]["status"]["containerStatuses"][-1]
    for state in (status["state"], status.get("lastState") or {}):
        if "terminated" in state:
            state["terminated"] |= {"exitCode": 137, "reason": "OOMKilled"}
    (step, *_) = first_of(world).to_do
    assert "resources.limits.memory" in step


def test_a_hook_that_failed_is_why_its_container_was_killed_for_good() -> None:
    world = world_of()
    world.failed(137)
    world.pod_event("FailedPostStartHook", "PostStartHook failed: command 'curl x' exited with 7")
    assert first_of(world).title.startswith("Hook postStart failed (mnist-worker-1): ")


def test_a_worker_whose_pod_has_succeeded_is_not_missed_at_the_success_of_worker_0() -> None:
    """The status was written a moment before."""
    world = world_of("succeeded-without-others")
    world.pods[WORKER]["status"]["phase"] = "Succeeded"
    assert "succeeded-without-others" not in ids_of(world)


STALLED: Final = (
    "[2026-11-30 17:30:12: W /x/horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, "
    "gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
    "Missing ranks:\n1: [DistributedAdamW_Allreduce/cond_14/HorovodAllreduce_grads_0 ...]\n"
)


def test_a_training_that_waits_for_ever_for_another_rank_is_noticed_although_it_warns_each_minute() -> None:
    world = Troubled()
    world._written(0.1, f"step 9 loss 1.8\n{STALLED * 3}")
    first = first_of(world)
    assert (first.id, "missing ranks: 1" in first.title) == ("running-with-repeated-error", True)
    world._written(0.1, STALLED.replace("\n", " ") * 3)
    assert first_of(world).title == first.title
    assert "kubectl tfjob restart" in steps_of(world)
    world.status["finishedIndices"] = {"Worker": "1"}
    assert first_of(world).to_do[0].startswith("Worker 1 finished before, and will not run again")
    assert "delete pod" not in steps_of(world)
    world._written(0.1, f"{STALLED * 3}step 10 loss 1.7")
    assert ids_of(world) == []


def test_a_program_that_only_tries_to_save_a_step_again_does_not_train() -> None:
    world = Troubled()
    error = (
        "W1130 17:50:03.001 checkpoint_manager.py:880] Failed to save step 1250: RESOURCE_EXHAUSTED; retrying in 15 s"
    )
    world._written(0.1, "\n".join(["Restored step 1200", *[error] * 9]))
    assert (first_of(world).id, "Failed to save step 1250" in first_of(world).title) == (
        "running-with-repeated-error",
        True,
    )
    refused = "Failed to push metrics: connection refused"
    for line in (
        "step 1251 loss 0.3",
        "step 9 loss 0.3, retries 0, failed 0, retry in 3 s",
        "resumed at step 9: loss 0.3",
    ):
        world._written(0.1, "\n".join([*[error] * 9, *[refused] * 9, *[line] * 3]))
        assert ids_of(world) == [], line


def test_of_a_silent_training_the_replicas_that_have_finished_are_told() -> None:
    world = world_of("no-log-output")
    world.status["finishedIndices"] = {"Worker": "1"}
    assert first_of(world).to_do[0].startswith("Worker 1 finished before, and will not run again: ")
    assert "delete pod" not in steps_of(world)


def test_a_silent_training_is_restarted_as_a_whole() -> None:
    """The other process of a collective operation waits for ever for one that was restarted alone."""
    steps = steps_of(world_of("no-log-output"))
    assert "kubectl tfjob restart mnist" in steps
    assert "delete pod" not in steps


def test_a_pod_with_a_volume_of_its_own_is_not_deleted_without_a_warning() -> None:
    world = world_of("usage-error")
    world.pods[WORKER]["spec"]["volumes"] = [
        {"name": "ckpt", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    (step,) = [step for step in first_of(world).to_do if step.startswith("Delete the affected pods")]
    assert "; the files in their emptyDir ckpt are lost:" in step


def test_the_name_server_of_the_node_and_an_address_of_a_template_are_named_where_a_peer_is_not_found() -> None:
    world = world_of("peer-name-unresolved")
    world.workers["template"]["spec"]["dnsPolicy"] = "Default"
    assert "emove dnsPolicy: Default from the template" in steps_of(world)
    world = world_of("peer-unreachable")
    (container,) = world.workers["template"]["spec"]["containers"]
    container["env"] = [{"name": "JAX_COORDINATOR_ADDRESS", "value": "mnist-chief-0:1234"}]
    assert "emove JAX_COORDINATOR_ADDRESS from env of the template" in steps_of(world)


def test_a_part_of_bash_that_sh_does_not_know_is_no_missing_program() -> None:
    world = Troubled()
    world.failed(127, log="sh: 1: source: not found\n")
    assert first_of(world).title == f'The shell does not know "source" ({WORKER}), which is a part of bash'
    assert "with bash instead of sh" in steps_of(world)


def test_the_second_line_of_an_exception_stands_beside_the_first_one_that_only_announces_it() -> None:
    world = Troubled()
    error = "RuntimeError: Error(s) in loading state_dict for ResNet:\n\tsize mismatch for fc.weight: copying a param"
    world.failed(1, log=f"{OF_TRAINING}{error}")
    assert first_of(world).title.endswith("for ResNet: size mismatch for fc.weight: copying a param")


def test_a_claim_that_is_being_deleted_is_not_called_missing_or_pending() -> None:
    """It cannot be created anew while its finalizer holds it."""
    world = Troubled()
    world.claim("Pending")
    world.claims[0]["metadata"]["deletionTimestamp"] = ago(1)
    world.claims[0]["spec"] = {"storageClassName": "gp3"}
    world.storage_classes = []
    message = '0/1 nodes are available: 1 persistentvolumeclaim "data" is being deleted.'
    world.pods[WORKER]["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", message)]
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.severity is Severity.ERROR)
    assert found.title == f'PersistentVolumeClaim "data" is being deleted (mounted by {WORKER})'
    assert found.to_do[0].endswith("kubectl -n team describe pvc data")
    assert "when the old one is gone" in found.to_do[1]


def test_a_container_whose_image_cannot_be_pulled_beside_a_training_is_named_with_what_its_pod_would_lose() -> None:
    world = Troubled()
    for name in ("mnist-worker-0", WORKER):
        pod = world.pods[name]
        image = "registry.example.com/logging/fluent-bit:1.9.99"
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
        status = {"name": "fluent-bit", "image": image, "ready": False, "state": {"waiting": waiting}}
        pod["status"]["containerStatuses"].append(status)
        pod["status"]["phase"] = "Pending"
        refused = "failed to do request: dial tcp: lookup registry.example.com: no such host"
        world.pod_event("Failed", f'Failed to pull image "{image}": {refused}', name)
    first = first_of(world)
    assert first.id == "image-registry-unreachable"
    assert first.title.endswith(" cannot resolve registry.example.com (container fluent-bit of 2 pods)")
    assert "edited template; work since their last checkpoint is lost: kubectl -n team delete pod" in steps_of(world)


def test_beside_a_parameter_server_that_ended_a_replica_that_waits_for_it_is_not_restarted_alone() -> None:
    world = world_of("parameter-server-completed")
    waits = "CreateSession still waiting for response from worker: /job:ps/replica:0/task:0"
    line = f"2026-11-30 22:31:12.118812: I tensorflow/core/distributed_runtime/master.cc:272] {waits}"
    world._written(0.1, "\n".join([line] * 18))
    first, second = diagnose(world.evidence()).causes[:2]
    assert (first.id, second.id) == ("parameter-server-completed", "running-with-repeated-error")
    assert "kubectl tfjob restart" in str(first.to_do)
    assert ("delete pod" in str(second.to_do), "tfjob restart" in str(second.to_do)) == (False, False)
    world.status["finishedIndices"] = {}
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "running-with-repeated-error")
    assert "kubectl tfjob restart mnist" in str(found.to_do)


def test_of_a_sidecar_that_only_says_that_it_aborts_the_line_before_is_quoted_too() -> None:
    world = world_of("sidecar-failed")
    reason = "[error] [config] section 'output' tried to instance a plugin name that don't exists"
    lines = [
        f"[2026/11/30 22:31:02] {reason}",
        "[2026/11/30 22:31:02] [error] configuration file contains errors, aborting.",
    ]
    world.logs[WORKER, "loader"] = "\n".join(["[2026/11/30 22:31:02] [ info] [fluent bit] version=1.9.9", *lines])
    (found,) = (cause for cause in diagnose(world.evidence()).causes if cause.id == "sidecar-failed")
    assert found.title.endswith(f": {' / '.join(lines)}")


def test_an_error_that_comes_from_a_parameter_server_is_quoted_with_its_reason() -> None:
    world = Troubled()
    error = (
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: From /job:ps/replica:0/task:0:\n"
        "indices[17,0] = 50231 is not in [0, 50000)\n\t [[node dnn/item_id_embedding/embedding_lookup (defined at "
        "/app/model.py:88) ]]\n\nErrors may have originated from an input operation.\n"
        "Input Source operations connected to node dnn/item_id_embedding/embedding_lookup:\n dnn/embedding_weights/part_0/read"
    )
    world.failed(1, log=f"{OF_TRAINING}{error}")
    reason = "From /job:ps/replica:0/task:0: indices[17,0] = 50231 is not in [0, 50000)"
    assert first_of(world).title.endswith(f"InvalidArgumentError: {reason}")


def test_of_a_sidecar_whose_restarts_count_the_limit_is_told() -> None:
    world = world_of("sidecar-failed")
    assert "A failed sidecar does not end the training" in steps_of(world)
    world.spec["runPolicy"]["backoffLimit"] = 6
    statuses = world.pods[WORKER]["status"]["containerStatuses"]
    (sidecar,) = [each for each in statuses if each["name"] != "tensorflow"]
    sidecar["restartCount"] = 2
    assert "count toward backoffLimit 6: the job fails when there are more" in steps_of(world)
    assert "ccording to the log" in steps_of(world)
    ended = sidecar["state"].get("terminated") or sidecar["lastState"]["terminated"]
    ended["reason"] = "OOMKilled"
    assert "count toward backoffLimit 6" in steps_of(world)
    assert "aise resources.limits.memory of container" in steps_of(world), (
        "the advice about the limit replaces no other"
    )


def test_a_training_that_had_no_data_is_noticed() -> None:
    """Keras also warns at the end of a training that has read all of its data."""
    world = world_of("succeeded-with-exception")
    warning = "UserWarning: Your input ran out of data; interrupting training."
    world.logs["mnist-worker-0", "tensorflow"] = f"0 files match\n{warning}\nbye"
    assert first_of(world).id == "succeeded-without-data"
    assert "the path or the pattern of the data" in str(first_of(world).to_do)
    world.logs["mnist-worker-0", "tensorflow"] = "Found 0 images belonging to 0 classes.\nbye"
    assert first_of(world).id == "succeeded-without-data"
    world.logs["mnist-worker-0", "tensorflow"] = f"epoch 1 loss: 0.4\n{warning}\nbye"
    assert ids_of(world) == []
    skipped = "INFO:tensorflow:Skipping training since max_steps has already saved."
    world.logs["mnist-worker-0", "tensorflow"] = skipped
    assert first_of(world).id == "succeeded-without-data"


@for_each(
    "script",
    [
        "nohup python train.py > log 2>&1 &\necho started",
        "cd /app && nohup python train.py > log 2>&1 & sleep 1; echo started",
        "(python train.py &); exit 0",
        "nohup python train.py -c 'a; b' &",
    ],
)
def test_a_training_in_the_background_of_a_script_that_ends_is_noticed(script: str) -> None:
    world = world_of("succeeded-with-exception")
    world.logs["mnist-worker-0", "tensorflow"] = "started\n"
    (container,) = world.workers["template"]["spec"]["containers"]
    container["command"] = ["bash", "-c", script]
    assert "nothing was trained" in first_of(world).title
    assert "python train.py" in first_of(world).title
    assert "end the script with wait" in steps_of(world)
    for other in (f"{script}\nwait", f"tensorboard & {script}; python eval.py", "make && python train.py 2>&1"):
        container["command"][2] = other
        assert ids_of(world) == [], other


def test_a_module_of_a_conda_environment_that_was_not_activated_need_not_be_installed() -> None:
    world = Troubled()
    activation = "CondaError: Run 'conda init' before 'conda activate'\n\n"
    world.failed(1, log=f"{activation}{OF_TRAINING}ModuleNotFoundError: No module named 'transformers'")
    assert first_of(world).title.endswith(f"transformers not found ({WORKER}): its conda environment was not activated")
    assert "conda run --name" in steps_of(world)


def test_processes_that_did_not_join_are_counted_and_compared_with_the_replicas() -> None:
    world = Troubled()
    error = "torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 2/4 clients joined."
    world.failed(1, log=f"{OF_TRAINING}{error}")
    replicas = sum(replica["replicas"] for replica in world.spec["tfReplicaSpecs"].values())
    joined = f"Only 2 of 4 processes have joined ({WORKER}), the job has {replicas} replicas: DistStoreError: "
    assert first_of(world).id == "peer-unreachable"
    assert first_of(world).title.startswith(joined)
    assert "WORLD_SIZE" in steps_of(world)


def test_the_error_of_a_program_that_a_script_starts_again_and_again_is_named_and_not_the_scripts_own_words() -> None:
    world = Troubled()
    error = "train.py: error: unrecognized arguments: --lr 1e-3"
    world._written(0.1, "\n".join([error, "train.py exited with 2, retrying in 5s"] * 9))
    assert first_of(world).title.endswith(error)


def test_a_replica_that_was_deleted_while_it_trained_had_not_failed() -> None:
    """It was restarted long before, and the job has succeeded without it."""
    world = world_of("succeeded-beside-failure")
    assert "5 restarts, exit code 1: KeyError: 'LR'" in first_of(world).title
    world.status["restarts"][0]["replaced"] = False
    assert ids_of(world) == []
    world.event("Pod", "mnist-evaluator-0", "BackOff", "Back-off restarting failed container", minutes=12)
    assert ids_of(world) == ["succeeded-beside-failure"]


def test_a_worker_that_the_operator_deletes_after_the_success_of_the_chief_had_not_failed() -> None:
    """Kubelets up to 1.20 report its container like this until the pod is gone."""
    world = Troubled()
    world.spec["tfReplicaSpecs"]["Chief"] = world.workers | {"replicas": 1}
    world.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
    world.status["finishedIndices"] = {"Chief": "0"}
    world.pods[WORKER]["status"]["phase"] = "Failed"
    unknown = "The container could not be located when the pod was deleted. The container used to be Running"
    ended = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": unknown, "finishedAt": None}
    world.container(WORKER)["state"] = {"terminated": ended}
    assert ids_of(world) == ["succeeded-beside-failure"]
    world.pods[WORKER]["metadata"]["deletionTimestamp"] = ago(0)
    assert ids_of(world) == []
    ended["finishedAt"] = ago(11)
    assert ids_of(world) == ["succeeded-beside-failure"], "it had failed before"


def test_the_name_of_a_program_before_its_error_is_no_reason_of_an_exit() -> None:
    world = recreated(143, "slurmstepd: error: *** JOB 1 ON n01 CANCELLED DUE TO PREEMPTION ***")
    assert first_of(world).title.endswith("last failure: exit code 143 (SIGTERM)")


def test_the_evidence_has_the_end_of_a_message_of_a_runtime_and_of_a_log_below_a_progress_bar() -> None:
    """Runtimes give the reason last, and the bar of Keras without a new line is written when the process ends."""
    world = world_of()
    mount = "error mounting '/var/lib/kubelet/pods/x/volume-subpaths/m/tensorflow/0' to rootfs at '/etc/passwd': "
    world.failed(
        128, "StartError", f"failed to create containerd task: OCI runtime create failed: {mount * 4}not a directory"
    )
    assert "not a directory" in " ".join(first_of(world).evidence)
    bars = "".join(f"\r\x1b[1m{step}/5004\x1b[0m ━━━━ 52ms/step - loss: 7.1312" for step in range(200))
    world.failed(1, log=f"{TRACE}ValueError: Arguments must have the same shape\nEpoch 1/90\n{bars}")
    assert "log of mnist-worker-1: " in first_of(world).evidence[1]
    assert "ValueError: Arguments must have the same shape" in first_of(world).evidence[1]


def test_a_pod_that_was_evicted_for_its_own_limit_is_told_as_soon_as_it_is_replaced() -> None:
    """The next one will exceed the limit again, unless the template has been edited. The node's lack of memory may pass."""
    world = world_of()
    world.pod_event("Evicted", 'Usage of EmptyDir volume "cache" exceeds the limit "5Mi". ', minutes=3)
    assert first_of(world).title == "Evicted (mnist-worker-1): emptyDir cache exceeded its sizeLimit 5Mi"
    world.job["metadata"]["generation"] = world.status["observedGeneration"] = 2
    assert ids_of(world) == []
    world = world_of()
    world.pod_event("Evicted", "The node was low on resource: memory. ", minutes=3)
    assert ids_of(world) == []


def test_an_exception_right_after_that_of_another_process_is_not_told_alone() -> None:
    """As of a script that cleans up with another program of Python, which fails, too."""
    world = world_of()
    world.failed(1, log=f"{TRACE}RuntimeError: no gradients\n{TRACE}KeyError: 'run'")
    assert first_of(world).title.endswith("KeyError: 'run', after RuntimeError: no gradients")
    world.failed(1, log=f"{TRACE}RuntimeError: no gradients\nretried\n{TRACE}KeyError: 'run'")
    assert first_of(world).title.endswith(": KeyError: 'run'")


@pytest.mark.parametrize("code", [137, 1])
@pytest.mark.parametrize("has_limit", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "run.sh: line 3:    17 Killed                  python train.py",
        "Killed",
        "RuntimeError: DataLoader worker (pid 17) is killed by signal: Killed. ",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.",
    ],
)
def test_a_child_that_was_killed_is_out_of_memory_in_all_likelihood(code: int, has_limit: bool, line: str) -> None:
    """The kernel may kill one process of the container, which then has no reason OOMKilled."""
    world = world_of()
    world.failed(code, log=f"step 7\n{line}")
    if not has_limit:
        for template in (world.pods[WORKER], world.workers["template"]):
            del template["spec"]["containers"][0]["resources"]
    first = first_of(world)
    assert first.id == "child-killed"
    limit = "limit of 4Gi" if has_limit else "no limit"
    assert first.title.startswith(f"A child process was killed, probably for lack of memory ({WORKER}, {limit}): ")
    assert ("raise resources.limits.memory" in str(first.to_do)) is has_limit
    assert has_limit or "resources.requests.memory" in str(first.to_do)


def test_a_child_that_was_killed_long_before_the_end_is_not_why_its_script_failed() -> None:
    world = world_of()
    log = "run.sh: line 2:    12 Killed                  tensorboard --logdir x"
    world.failed(3, log=f"{log}\nstep 1\nstep 2\nstep 3\nno checkpoint was written")
    assert first_of(world).id == "exit-code"


@pytest.mark.parametrize(
    "last", ["step 1 loss 0.4", "12/938 [=>....] - ETA: 3s - loss: 0.41", " 45%|████▌     | 45/100 [00:03<00:04]"]
)
def test_progress_is_never_quoted_as_the_failure(last: str) -> None:
    world = world_of()
    world.failed(3, log=f"reading data\n{last}\n")
    assert first_of(world).title == f"Failed ({WORKER}): container tensorflow exited with code 3"
    world = world_of()
    ended = {"exitCode": 3, "reason": "Error", "message": last, "startedAt": ago(7), "finishedAt": ago(6.9)}
    world.container().update(restartCount=1, lastState={"terminated": ended}, state={"running": {"startedAt": ago(5)}})
    assert first_of(world).title == f"Restarted once ({WORKER}), running now; last failure: exit code 3"


def test_lines_after_the_progress_are_quoted_without_it() -> None:
    world = world_of()
    world.failed(3, log="reading data\nstep 1 loss 0.4\nno license\nleaving\n")
    assert first_of(world).title.endswith("exited with code 3: no license / leaving")


@pytest.mark.parametrize("last", ["step 1: loss=nan", "error: lost the data at step 300", "step 7: cannot write"])
def test_a_step_in_an_error_does_not_make_it_progress(last: str) -> None:
    world = world_of()
    world.failed(3, log=last)
    assert first_of(world).title.endswith(last)


@pytest.mark.parametrize("has_limit", [True, False])
def test_memory_is_not_to_be_raised_to_a_limit_that_is_not_set(has_limit: bool) -> None:
    world = world_of("python-out-of-memory")
    if not has_limit:
        del world.workers["template"]["spec"]["containers"][0]["resources"]
    steps = " ".join(first_of(world).to_do)
    assert ("aise resources.limits.memory" in steps) is has_limit
    assert ("so that it gets a node with enough" in steps) is not has_limit


@pytest.mark.parametrize("is_set", [True, False])
def test_a_setting_of_the_template_is_only_to_be_removed_if_it_is_there(is_set: bool) -> None:
    """TF_CONFIG is that of the operator, unless the template sets it."""
    world = world_of("tf-config-misread")
    if is_set:
        world.workers["template"]["spec"]["containers"][0]["env"] = [{"name": "TF_CONFIG", "value": "{}"}]
    steps = " ".join(next(each for each in diagnose(world.evidence()).causes if each.id == "tf-config-misread").to_do)
    assert ("emove TF_CONFIG" in steps) is is_set
    assert "dd the replica types" in steps


@pytest.mark.parametrize(
    "line",
    [
        "Failed to synchronize stream: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        "NVRM: Xid (PCI:0000:86:00): 79, pid=1234, GPU has fallen off the bus.",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "Unable to determine the device handle for GPU 0000:86:00.0: GPU is lost.  Reboot the system to recover this GPU",
    ],
)
def test_a_broken_gpu_is_the_fault_of_its_node(line: str) -> None:
    world = world_of()
    world.exited(1, log=f"step 1\n{line}")
    first = first_of(world)
    assert first.id == "gpu-hardware-error"
    assert "drain its node" in str(first.to_do)


def test_a_program_that_fails_beside_a_stopped_sidecar_was_not_killed_for_its_liveness_probe() -> None:
    world = world_of()
    world.exited(1, log="KeyError: 'label'")
    world.pod_event("Unhealthy", "Liveness probe failed: timeout")
    world.pod_event("Killing", "Stopping container istio-proxy", type_="Normal")
    assert first_of(world).title.endswith("KeyError: 'label'")


def test_advice_that_deletes_a_pod_whose_training_runs_says_what_is_lost() -> None:
    first = first_of(world_of("sidecar-failed"))
    assert first.to_do[0].startswith("A failed sidecar does not end the training")
    assert "; work since their last checkpoint is lost: kubectl -n team delete pod" in first.to_do[-1]
    assert not any("is lost" in step for step in first_of(world_of("crash-loop")).to_do)


def test_what_a_terminal_would_not_show_is_not_quoted() -> None:
    world = world_of()
    world.exited(3, log="1/9 [=>...]\rdata: 9 parts\r\n\x1b[31m[ERROR]\x1b[0m no batch left\n")
    assert first_of(world).title.endswith(": [ERROR] no batch left")


def test_a_replica_that_was_restarted_after_its_success_has_no_failure_to_be_mended() -> None:
    """Its restarts have reached the backoffLimit, and its pod ended with 0."""
    world = world_of("backoff-limit")
    failure = {"podName": WORKER, "exitCode": 0, "replicaType": "Worker", "replicaIndex": 1, "reason": "Completed"}
    world.status["begun"]["ending"] = {"type": "Failed", "event": "BackoffLimitExceeded", "failure": failure}
    world.pods = {}
    causes = {each.id: each.title for each in diagnose(world.evidence()).causes}
    assert causes["restarted-after-success"] == (
        f"Restarted after exit code 0 ({WORKER}, until its limit of restarts): its restartPolicy is Always"
    )
    failure["reason"] = "NodeLost"
    assert "restarted-after-success" not in ids_of(world), "it saved a checkpoint, and its node took it away"


RESERVED = 'failed to reserve container name "tensorflow_x": name "tensorflow_x" is reserved for "b261"'


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_container_that_was_never_created_has_no_exit_code(is_gone: bool) -> None:
    """Kubelet 1.20 reports exit code 0 of an earlier run for it, though there was none, and the pod as failed."""
    world = world_of()
    words = f"Pod {WORKER}: container tensorflow did not start: CreateContainerError: {RESERVED}"
    world.end("Failed", "TFJobFailed", f"TFJob team/mnist has failed because 1 Worker replica(s) failed. {words}")
    failure = {
        "podName": WORKER, "replicaType": "Worker", "replicaIndex": 1, "nodeName": "node-1", "containerName": "tensorflow",
        "reason": "CreateContainerError", "message": RESERVED
    }  # fmt: skip
    world.status["begun"]["ending"] = {"type": "Failed", "reason": "TFJobFailed", "failure": failure}
    waiting = {"reason": "CreateContainerError", "message": RESERVED}
    world.container().update(ready=False, state={"waiting": waiting}, lastState={"terminated": {"exitCode": 0}})
    world.pods[WORKER]["status"]["phase"] = "Failed"
    if is_gone:
        world.pods.pop(WORKER)
    first, *others = diagnose(world.evidence()).causes
    assert (first.id, others) == ("container-cannot-start", [])
    assert first.title == f"Container tensorflow cannot be started (mnist-worker-1): {RESERVED}"
    assert first.to_do[0].endswith(f"overloaded: kubectl describe node node-{int(is_gone)}")
    assert any("replace --force" in step for step in first.to_do)
    failure |= {"reason": "Error", "exitCode": 0}  # of an earlier operator
    assert "restarted-after-success" not in ids_of(world)


@pytest.mark.parametrize(
    "words",
    [
        (
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: "
            "error setting cgroup config for procHooks process: unable to set memory limit to 1 (current usage: 23388): unknown"
        ),
        "container init was OOM-killed (memory limit too low?)",
        "Error response from daemon: Minimum memory limit allowed is 6MB",
    ],
)
def test_a_memory_limit_in_the_wrong_unit_is_explained(words: str) -> None:
    world = world_of()
    world.waiting("RunContainerError", words)
    first = first_of(world)
    assert first.id == "container-cannot-start"
    assert first.title.endswith(words)
    assert "512m is less than a byte" in str(first.to_do)


def test_no_operator_is_said_to_be_missing_while_the_next_restart_is_delayed() -> None:
    world = world_of("namespace-not-served")
    assert first_of(world).id == "namespace-not-served"
    world.status["nextRestartTime"] = ago(-1)
    assert "namespace-not-served" not in ids_of(world)


def test_a_lease_that_an_operator_of_one_namespace_left_does_not_hide_that_of_the_whole_cluster() -> None:
    """The plan for the whole cluster removes the former and leaves its Lease."""
    world = world_of("namespace-not-served")
    world.deployments = [operator_deployment("kubeflow", readyReplicas=2)]
    assert ids_of(world) == ["pods-missing"]


def test_a_replica_that_was_preempted_says_for_whom_while_its_next_pod_waits() -> None:
    world = world_of()
    world.unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    world.pod_event("Preempted", "Preempted by pod 7f on node node-1", type_="Normal")
    found = diagnose(world.evidence()).causes
    assert [each.id for each in found] == ["insufficient-resource", "disrupted"]
    assert found[1].title == "Disrupted by the cluster (mnist-worker-1): Preempted: Preempted by pod 7f on node node-1"
    world.pod_event("TaintManagerEviction", "Cancelling deletion of Pod team/mnist-worker-1", type_="Normal", minutes=1)
    assert ids_of(world) == ["insufficient-resource"]


def test_a_replica_that_lost_its_peer_ranks_after_the_peer_that_failed() -> None:
    world = world_of()
    world.exited(1, log="ValueError: shapes (3,) and (4,) do not fit")
    assert first_of(world).title.endswith(" 1, 4 restarts: ValueError: shapes (3,) and (4,) do not fit")
    world.exited(1, name="mnist-worker-0")
    lost = "UnavailableError: Collective ops is aborted by: Socket closed"
    world.logs["mnist-worker-0", "tensorflow"] = lost
    assert ids_of(world)[:2] == ["crash-loop", "peer-failed"]


def test_replicas_that_miss_different_files_have_a_cause_each() -> None:
    world = world_of()
    for index in range(2):
        name = f"mnist-worker-{index}"
        world.exited(1, name=name)
        world.logs[name, "tensorflow"] = f"FileNotFoundError: [Errno 2] No such file or directory: '/data/{index}'"
    titles = [cause.title for cause in diagnose(world.evidence()).causes]
    assert titles == [f"File not found: /data/{index} (mnist-worker-{index})" for index in range(2)]


def test_a_log_is_only_named_where_it_is() -> None:
    """A pod that was recreated has no previous container; of one that was deleted the condition may keep the last lines."""
    world = world_of()
    world.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 6, "pod": "uid-mnist-worker-1"}]
    assert "kubectl -n team logs mnist-worker-1 --container=tensorflow --tail=50" in first_of(world).to_do
    world = deleted_with_its_log()
    steps = " ".join(first_of(world).to_do)
    assert "terminationMessagePolicy: FallbackToLogsOnError" in steps
    assert "-n team logs" not in steps
    assert "terminationMessagePolicy" not in " ".join(first_of(world_of("exit-code")).to_do)


def deleted_with_its_log() -> Troubled:
    """A job that has failed by a pod that is gone, with its log: the template wants no last lines of it."""
    world = world_of("pods-missing")
    world.workers["template"]["spec"]["containers"][0]["terminationMessagePolicy"] = "File"
    world.end("Failed", "TFJobFailed", "Pod mnist-worker-1: container tensorflow exited with code 1")
    return world


def test_advice_that_does_nothing_here_is_left_out() -> None:
    """Without pods there is none to recreate; a field that is set need not be set; a job on hold keeps its suspension."""
    world = world_of("quota-exceeded")
    world.pods = {}
    assert "restart" not in " ".join(first_of(world).to_do)
    world = deleted_with_its_log()
    world.workers["template"]["spec"]["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError"
    assert "terminationMessagePolicy" not in " ".join(first_of(world).to_do)
    del world.workers["template"]["spec"]["containers"][0]["terminationMessagePolicy"]
    assert "terminationMessagePolicy" not in " ".join(first_of(world).to_do), "the operator sets it"
    world = world_of()
    world.status["conditions"].append(condition("Suspended", reason="TFJobSuspended"))
    assert diagnose(world.evidence()).state_line == "mnist: Suspended"


def test_keys_that_are_no_variables_are_evidence_of_a_failure() -> None:
    world = world_of()
    world.failed(2)
    message = "Keys [1DATA_DIR] from the EnvFrom configMap team/env were skipped since they are invalid variable names."
    world.pod_event("InvalidEnvironmentVariableNames", message)
    assert any("1DATA_DIR" in line for line in first_of(world).evidence)


def test_all_mistakes_of_a_spec_are_named_and_corrected_in_one_file() -> None:
    """A job of which only one is corrected fails again."""
    world = world_of("container-name")
    world.spec["tfReplicaSpecs"]["Helper"] = world_of().workers
    first = first_of(world)
    assert re.fullmatch(r"Invalid spec: spec\S+Helper: Unsupported .+; spec\S+containers: .+ found main", first.title)
    saves = [line for line in first.to_do if line.startswith("Save")]
    assert len(saves) == 1
    assert "rename the key in spec.tfReplicaSpecs" in saves[0]
    assert "rename the training container to tensorflow" in saves[0]


def test_the_evidence_of_a_failed_call_has_the_message_of_grpc_and_not_its_source_file() -> None:
    world = Troubled()
    details = (
        '"created":"@1764519612.11","description":"Error received from peer ipv4:127.0.0.6:15001",'
        '"file":"external/com_github_grpc_grpc/src/core/lib/surface/call.cc","file_line":1056,'
        '"grpc_message":"upstream connect error or disconnect/reset before headers","grpc_status":14'
    )
    world.failed(
        1,
        log=f"{OF_TRAINING}UnavailableError: information from remote target /job:worker/replica:0/task:0:\n:{{{details}}}",
    )
    evidence = str(first_of(world).evidence)
    assert "upstream connect error or disconnect/reset before headers" in evidence
    assert "call.cc" not in evidence
    assert "proxy of a service mesh" in steps_of(world)


def test_evidence_that_is_left_out_is_counted() -> None:
    world = world_of()
    world.spec["runPolicy"] |= {f"backofLimit{letter}": 3 for letter in "abcde"}
    (found,) = diagnose(world.evidence()).causes
    assert found.evidence[-1] == "and 2 more"
    assert found.to_do[-1].endswith("kubectl tfjob restart mnist -n team")


QUOTED = [
    (
        "waits-for-terminating-pod",
        "Waiting for mnist-worker-1, Terminating for 5m (grace period 10m, preStop of container tensorflow)",
    ),
    ("pod-status", "AppArmor (mnist-worker-1): Cannot enforce AppArmor: AppArmor is not enabled on the host"),
    ("startup-failed", "Hook postStart failed (mnist-worker-1): PostStartHook failed: command 'curl x' exited with 7"),
    ("sidecar-failed", "Container loader exited with code 1 (mnist-worker-1): KeyError: 'bucket'"),
    ("pod-warning", "Readiness probe failed (2 pods): dial tcp 10.0.0.7:2222: connect: refused"),
    ("node-missing", "Node gpu-node-7 does not exist (mnist-worker-1)"),
    (
        "pods-recreated",
        "Recreated 8 times within ten minutes (mnist-worker-1): nodeName gpu-node-7 is set in the template",
    ),
    ("empty-dir-limit", "Evicted (mnist-worker-1): emptyDir cache exceeded its sizeLimit 5Mi"),
]


@pytest.mark.parametrize(("id_", "title"), QUOTED)
def test_what_the_api_server_says_is_quoted_where_no_other_reason_is_known(id_: str, title: str) -> None:
    causes = diagnosed(id_).causes
    assert causes[0].title == title
    assert not [each.id for each in causes if "unknown reason" in each.title or each.id == "killed"]


@pytest.mark.parametrize(("id_", "ready"), [("crash-loop", 1), ("sidecar-failed", 1), ("pod-warning", 0)])
def test_a_pod_that_is_not_ready_does_not_count(id_: str, ready: int) -> None:
    assert diagnosed(id_).state_line.endswith(f"{ready} of 2 workers ready")


@pytest.mark.parametrize("has_event", [True, False])
def test_a_readiness_probe_that_fails_does_not_stop_the_training(has_event: bool) -> None:
    """Names resolve for pods that are not ready. Deleting the pods would lose their work."""
    world = world_of()
    world.pods[WORKER]["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 2222}}
    world.container()["ready"] = False
    if has_event:
        world.pod_event("Unhealthy", "Readiness probe failed: dial tcp 10.0.0.7:2222: connect: refused")
    first = first_of(world)
    assert first.id == ("pod-warning" if has_event else "replica-not-ready")
    steps = " ".join(first.to_do)
    assert "The training runs: " in steps
    assert "Correct or remove readinessProbe" in steps
    assert " delete pod" not in steps


@pytest.mark.parametrize("message", ["Readiness probe failed: ", "Readiness probe failed: connection refused", ""])
@pytest.mark.parametrize("minutes", [0.5, 9, 12])
def test_a_replica_that_starts_slowly_is_no_fault_until_ten_minutes_after_its_start(
    message: str, minutes: float
) -> None:
    """A program that compiles, or loads data, is not ready for a while; a probe may print nothing."""
    world = world_of()
    world.pods[WORKER]["spec"]["containers"][0]["readinessProbe"] = {"exec": {"command": ["test", "-f", "/tmp/ready"]}}
    world.container().update(ready=False, state={"running": {"startedAt": ago(minutes)}})
    if message:
        world.pod_event("Unhealthy", message, minutes=0.1, first=minutes, count=6)
    first = first_of(world)
    is_young = minutes < 10
    assert first.severity is (Severity.INFO if is_young else Severity.WARNING)
    assert ("Not ready yet (mnist-worker-1): its readiness probe fails, " in first.title) is is_young
    assert not first.title.endswith(":")
    assert " delete pod" not in steps_of(world)
    assert ("logs mnist-worker-1" in steps_of(world)) is is_young


def test_a_startup_probe_that_fails_and_has_not_killed_is_no_fault_either() -> None:
    world = world_of()
    world.container().update(ready=False, state={"running": {"startedAt": ago(1)}})
    world.pod_event("Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 503", minutes=0.1)
    assert "Not ready yet (mnist-worker-1): its startup probe fails, " in first_of(world).title
    world.pod_event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503", minutes=0.05)
    assert first_of(world).title.startswith("Liveness probe failed")


def test_an_event_of_an_earlier_pod_or_one_that_has_passed_is_not_quoted() -> None:
    for minutes in (11, 61):
        world = world_of()
        world.container()["ready"] = False
        world.pod_event("Unhealthy", "Readiness probe failed: refused", minutes=minutes)
        assert ids_of(world) == ["replica-not-ready"]


def test_the_error_of_a_worker_that_was_deleted_after_the_success_of_worker_0_is_told() -> None:
    """The operator keeps it in an event before it deletes the pod."""
    world = world_of("succeeded-without-others")
    del world.pods[WORKER]
    world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 1: KeyError: 'LR'", type_="Normal")
    title = (
        "Succeeded with worker 0, while 1 other worker had not (mnist-worker-1: failed, exit code 1: KeyError: 'LR')"
    )
    assert title in [each.title for each in diagnose(world.evidence()).causes]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_worker_without_memory_at_the_success_of_worker_0_is_told_with_its_reason(is_deleted: bool) -> None:
    """By its pod, else by the event."""
    world = world_of("succeeded-without-others")
    if is_deleted:
        del world.pods[WORKER]
        world.job_event("ExitedWithCode", f"Pod: team.{WORKER} exited with code 137: OOMKilled", type_="Normal")
    else:
        world.pods[WORKER]["status"]["phase"] = "Failed"
        over = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ago(11)}
        world.container(WORKER).update(ready=False, state={"terminated": over})
    titles = [each.title for each in diagnose(world.evidence()).causes]
    told = "Succeeded with worker 0, while 1 other worker had not (mnist-worker-1: failed, exit code 137 (OOMKilled))"
    assert told in titles


def test_a_message_that_the_log_ends_with_is_quoted_once() -> None:
    traceback = "Traceback (most recent call last):\n  main()\nKeyError: 'LR'"
    world = Troubled()
    world.exited(1, message=traceback, log=f"step 1\n{traceback}\n")
    (cause,) = diagnose(world.evidence()).causes
    assert "".join(cause.evidence).count("KeyError") == 1
    assert cause.evidence[1].startswith("log of mnist-worker-1: step 1 / Traceback")
    world.exited(1, message="the end", log=f"step 1\n{traceback}\n")
    assert first_of(world).evidence[0].endswith(": the end")


def test_an_extended_resource_has_a_command_that_shows_which_nodes_offer_it() -> None:
    """The scheduler does not tell whether it is in use, or no node has it."""
    world = Troubled()
    world.unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    step = first_of(world).to_do[0]
    assert step.startswith("If every node shows <none>, no node offers nvidia.com/gpu: ")
    assert step.endswith(r"'--output=custom-columns=NAME:.metadata.name,OFFERED:.status.allocatable.nvidia\.com/gpu'")
    world = Troubled()
    world.unscheduled("0/3 nodes are available: 3 Insufficient memory.")
    assert "<none>" not in "".join(first_of(world).to_do)


def test_what_a_kubelet_said_about_a_pod_that_is_gone_is_quoted_until_the_next_one_comes() -> None:
    """The operator delays the next pod after a rejection, and meanwhile there is none to ask."""
    world = world_of()
    world.pods.pop("mnist-worker-1")
    world.job_event("SuccessfulCreatePod", "Created pod: mnist-worker-1", type_="Normal", count=7)
    world.pod_event("SysctlForbidden", "forbidden sysctl: net.core.somaxconn")
    world.pod_event("Scheduled", "Successfully assigned", type_="Normal")
    title = first_of(world).title
    assert title.endswith("SysctlForbidden: forbidden sysctl: net.core.somaxconn"), title


def test_a_script_that_was_found_and_could_not_be_started_lacks_its_interpreter() -> None:
    world = Troubled()
    world.failed(1, log="exec /scripts/run.sh: no such file or directory\n")
    assert (
        first_of(world).title
        == f'Interpreter or loader of "/scripts/run.sh" not found ({WORKER}): the file itself is there'
    )
    assert "Windows line endings" in steps_of(world)


def test_a_path_of_the_template_is_named_where_a_command_is_not_found() -> None:
    for id_ in ("program-missing", "command-not-found"):
        world = world_of(id_)
        world.pods["mnist-worker-1"]["spec"]["containers"][0]["env"] = [{"name": "PATH", "value": "/opt"}]
        assert "in PATH (PATH is set in env of the template)" in first_of(world).title


def test_the_end_of_a_long_last_line_stands_in_the_title() -> None:
    world = world_of()
    last = f"ValueError: shapes differ at {'y' * 100} in layer 7"
    world.failed(1, log=f"{'x' * 300}\n{last}")
    assert first_of(world).title.endswith(f"1: {last}")


def test_advice_has_the_step_that_makes_it_work() -> None:
    steps = {id_: " ".join(first_of(world_of(id_)).to_do) for id_ in CASES}
    assert "then in the file correct the cause of the exit" in steps["exit-code"]
    assert "> mnist.saved.yaml" in steps["exit-code"]
    assert "remove what the node refuses from the template" in steps["rejected-by-node"]
    assert "kubectl tfjob restart mnist -n team" in steps["quota-exceeded"]
    assert "kubectl tfjob logs mnist" in steps["no-log-output"]
    assert "kubectl tfjob exec mnist" in steps["no-log-output"]


def test_a_request_that_was_followed_is_not_ignored() -> None:
    world = world_of("restart-request-ignored")
    world.job["metadata"]["annotations"] = {"training.kubeflow.org/restart-requested-at": ago(5)}
    world.status["observedRestartRequest"] = ago(5)
    assert ids_of(world) == []
    world.status["observedRestartRequest"] = ago(4)
    assert "not later than that of the last restart request" in first_of(world).title
