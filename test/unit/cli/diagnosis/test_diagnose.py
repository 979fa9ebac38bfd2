"""Why a job does not run: each trouble is the first cause, both alone and among what does not matter."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from support.cases import for_each
from tfjob_operator.api.v1.constants import ConditionReason
from tfjob_operator.api.v1alpha1.constants import DIALECTS, KUBEFLOW, TENSORFLOW, Dialect
from tfjob_operator.cli.diagnosis.causes import Severity, Trouble
from tfjob_operator.cli.diagnosis.diagnose import MOST_CAUSES, MOST_PROOFS, diagnose
from tfjob_operator.cli.diagnosis.table import FINDERS, GROUPS, TROUBLES
from unit.cli.diagnosis.cases import CASES
from unit.cli.diagnosis.world import JOB, World, ago, condition, node

if TYPE_CHECKING:
    from tfjob_operator.cli.diagnosis.causes import Diagnosis

ENDED = {
    "tf-config-too-long", "name-too-long", "name-invalid", "too-many-replicas", "alpha-form", "container-name",
    "replica-specs-missing", "replica-type-unknown", "template-refused", "spec-invalid", "exit-code", "backoff-limit",
    "deadline-exceeded", "finished-and-kept",
}  # fmt: skip
"""Cases of jobs that have ended."""


def world_of(*ids: str) -> World:
    """A world with these troubles."""
    world = World()
    for id_ in ids:
        CASES[id_](world)
    return world


def diagnosed(*ids: str) -> Diagnosis:
    """The diagnosis of a world with these troubles."""
    return diagnose(world_of(*ids).evidence())


def test_nothing_is_wrong_with_a_healthy_job() -> None:
    """The diagnosis only says how the job stands."""
    found = diagnose(World().evidence())
    assert (found.causes, found.unseen) == ((), "")
    assert found.standing == "mnist is Running for 1h: PS 1 of 1 running; Worker 2 of 2 running"


def test_there_is_a_case_of_every_trouble_and_no_other() -> None:
    """A trouble without a case would not be tested."""
    assert CASES.keys() == TROUBLES.keys()
    assert len(TROUBLES) == sum(map(len, GROUPS.values())), "two troubles have one ID"
    assert len(TROUBLES) >= 60


@for_each("id_", CASES)
def test_each_trouble_is_on_line_one_with_evidence_and_what_to_do(id_: str) -> None:
    """One to three things to do, evidence with its source, and no value of the finding left out."""
    first = diagnosed(id_).causes[0]
    assert first.id == id_
    assert 1 <= len(first.to_do) <= 3
    assert 1 <= len(first.evidence) <= MOST_PROOFS
    assert all(re.match(r"[\w ./:-]+[:,(] |node |and |\d+ other", line) for line in first.evidence), first.evidence
    assert not re.search(
        r"\b(WHO|QUOTA|WEBHOOK|IMAGE|SHORT|RESOURCE|LIMIT|AGE|CONTAINER|POD|WORDS|REASON)\b", first.title
    )
    text = " ".join((first.title, *first.to_do))
    assert "{who}" not in text
    assert "  " not in first.title


def test_no_value_of_a_title_is_glued_to_a_word() -> None:
    """Values are trimmed: a space between a word and a value must stand in the title itself."""
    assert [title for trouble in TROUBLES.values() if re.search(r"\w\{|\}\w", title := trouble.title)] == []


def test_a_container_in_back_off_does_not_run() -> None:
    """Its pod is Running all the time."""
    assert diagnosed("crash-loop").standing.endswith("Worker 1 of 2 running")


def test_optional_values_are_separate_words() -> None:
    """The limit of a container that ran out of memory, and who suspended a job."""
    assert (
        diagnosed("out-of-memory").causes[0].title.endswith("its container tensorflow used more than its limit of 4Gi")
    )
    evidence = replace(world_of("suspended").evidence(), suspended_by="ada")
    assert diagnose(evidence).causes[0].title == "The job is suspended by ada"


@pytest.mark.parametrize("reason", [*ConditionReason, "AReasonOfAnotherOperator", ""])
def test_a_failed_job_is_never_nothing_wrong(reason: str) -> None:
    """Whatever the reason, the first cause quotes the condition, and is not that the job is kept."""
    world = world_of("job-failed")
    world.end("Failed", reason, "the flux capacitor is empty")
    first = diagnose(world.evidence()).causes[0]
    assert (first.severity, "flux capacitor" in " ".join((first.title, *first.evidence))) == (Severity.ERROR, True)


def test_a_container_that_another_policy_restarted_is_not_blamed_on_always() -> None:
    """A node that restarts ends containers with 0, and OnFailure starts them again."""
    world = world_of("restarted-after-success")
    world.pods["mnist-worker-1"]["spec"]["restartPolicy"] = "OnFailure"
    assert "restarted-after-success" not in {cause.id for cause in diagnose(world.evidence()).causes}


def test_a_job_that_ended_today_is_not_said_to_be_kept() -> None:
    """The command beside that deletes its logs, which people read first."""
    world = world_of("finished-and-kept")
    world.end("Succeeded", "TFJobSucceeded", "done", minutes=1439)
    assert diagnose(world.evidence()).causes == ()


@pytest.mark.parametrize("created", ["pod: mnist-worker-1", "2 pods: mnist-worker-0 .. mnist-worker-1"])
def test_a_refusal_is_over_when_the_pod_was_created_after_it(created: str) -> None:
    """Alone, or in one event with others; of another pod it says nothing."""
    world = world_of("quota-exceeded")
    world.event(
        "TFJob",
        JOB,
        "SuccessfulCreatePod",
        "Created 2 pods: mnist-worker-2 .. mnist-worker-3",
        type_="Normal",
        minutes=0.1,
    )
    assert "quota-exceeded" in {cause.id for cause in diagnose(world.evidence()).causes}
    world.event("TFJob", JOB, "SuccessfulCreatePod", f"Created {created}", type_="Normal", minutes=0)
    assert "quota-exceeded" not in {cause.id for cause in diagnose(world.evidence()).causes}


def _noise(world: World) -> World:
    """Add what every cluster has: old events, a restart of another replica, full nodes elsewhere, quotas with room."""
    world.event("TFJob", JOB, "SuccessfulCreatePod", "Created pod: mnist-ps-0", type_="Normal", minutes=58)
    world.event(
        "TFJob",
        JOB,
        "FailedCreatePod",
        'Error creating: pods "mnist-ps-0" is forbidden: exceeded quota: old',
        minutes=59,
    )
    world.event("Pod", "mnist-ps-0", "FailedScheduling", "0/2 nodes are available: 2 Insufficient cpu.", minutes=58)
    world.event(
        "Pod",
        "mnist-ps-0",
        "FailedMount",
        ('MountVolume.SetUp failed for volume "c" : configmap "c" not found'),
        minutes=58,
    )
    world.event("Pod", "mnist-ps-0", "Failed", "Error: ErrImagePull", minutes=57)
    world.event("Pod", "another-job-worker-1", "Failed", 'Failed to pull image "x": toomanyrequests', minutes=1)
    status = world.pods.get("mnist-ps-0", {}).get("status", {}).get("containerStatuses")
    if status:
        status[0] |= {"restartCount": 1, "lastState": {"terminated": {"exitCode": 1, "finishedAt": ago(40)}}}
    world.quotas.append({"metadata": {"name": "roomy"}, "status": {"hard": {"pods": "50"}, "used": {"pods": "3"}}})
    return world


@for_each("id_", CASES)
def test_each_trouble_stays_on_line_one_among_what_does_not_matter(id_: str) -> None:
    """Old events about what has passed, restarts of other replicas, and objects of other jobs."""
    found = diagnose(_noise(world_of(id_)).evidence())
    assert found.causes[0].id == id_, [cause.id for cause in found.causes]
    news = {cause.id for cause in found.causes} - {cause.id for cause in diagnosed(id_).causes}
    assert news <= {"was-restarted"}


@for_each("id_", sorted(CASES.keys() - ENDED - {"was-restarted", "image-slow", "starts-slowly"}))
def test_it_does_not_matter_in_which_order_things_were_read(id_: str) -> None:
    """And the same evidence gives the same diagnosis."""
    evidence = _noise(world_of(id_)).evidence()
    turned = replace(
        evidence,
        pods=tuple(reversed(evidence.pods)),
        events=tuple(reversed(evidence.events)),
        services=tuple(reversed(evidence.services or ())),
        nodes=None if evidence.nodes is None else tuple(reversed(evidence.nodes)),
        node_pods=None if evidence.node_pods is None else tuple(reversed(evidence.node_pods)),
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
    (("image-pull-secret-missing", "image-no-right"), "image-no-right"),
    (("namespace-terminating", "quota-exceeded"), "namespace-terminating"),
]


@pytest.mark.parametrize(("ids", "root"), ROOTS, ids=[" and ".join(ids) for ids, _ in ROOTS])
def test_of_two_troubles_the_one_that_hides_the_other_stands_first(ids: tuple[str, ...], root: str) -> None:
    """What has to be mended before anything else can be seen."""
    assert diagnosed(*ids).causes[0].id == root


def test_a_peer_that_waits_for_room_explains_the_one_that_cannot_resolve_its_name() -> None:
    """Worker 0 crashes since the parameter server has no pod: the quota is the root."""
    world = World()
    world.refuse(
        'pods "mnist-ps-0" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
        "mnist-ps-0",
    )
    world.exited(1, name="mnist-worker-0", log="DNS resolution failed for mnist-ps-0.team.svc:2222")
    assert [cause.id for cause in diagnose(world.evidence()).causes] == ["quota-exceeded", "peer-name-unresolved"]


def test_a_refusal_that_has_passed_is_not_told() -> None:
    """The pod exists now, whatever the newest event says."""
    world = World()
    pod = world.pods["mnist-worker-1"]
    CASES["quota-exceeded"](world)
    world.pods["mnist-worker-1"] = pod
    assert diagnose(world.evidence()).causes == ()


def test_replicas_with_the_same_trouble_are_one_cause_in_their_natural_order() -> None:
    """`worker-2` stands before `worker-10`, and five hundred are one line."""
    world = World()
    world.spec["tfReplicaSpecs"]["Worker"]["replicas"] = 12
    pod = world.unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", "mnist-worker-1")
    for index in (10, 2):
        name = f"mnist-worker-{index}"
        world.pods[name] = deepcopy(pod) | {"metadata": pod["metadata"] | {"name": name, "uid": name}}
    (first, *_) = [cause for cause in diagnose(world.evidence()).causes if cause.id == "insufficient-resource"]
    assert first.whom == ("mnist-worker-1", "mnist-worker-2", "mnist-worker-10")
    assert first.title.startswith("mnist-worker-1 and 2 more finds no node with enough nvidia.com/gpu")


def test_what_one_may_not_read_is_said() -> None:
    """A diagnosis says what it could not look at."""
    world = World()
    world.forbidden = ["nodes", "leases in kubeflow", "nodes"]
    assert diagnose(world.evidence()).unseen == "Not looked at, since you may not read them: leases in kubeflow, nodes"


def test_how_much_is_short_is_the_nodes_room_less_what_their_pods_ask_for() -> None:
    """Of nodes that would do the nearest are told, with how much is free."""
    world = world_of("insufficient-resource")
    world.node_pods = [deepcopy(world.pods["mnist-ps-0"]) | {"metadata": {"name": "other"}}]
    world.nodes["node-2"] = node("node-2", cpu="2")
    first = diagnose(world.evidence()).causes[0]
    assert first.evidence[:3] == (
        "node node-0 has 4 of 8 cpu free, 7 asked for: 3 short",
        "node node-1 has 6 of 8 cpu free, 7 asked for: 1 short",
        "1 other nodes are further from having room",
    )


def test_the_nodes_that_have_the_resource_count_and_not_those_that_have_not() -> None:
    """The scheduler's message is of processors; the GPU nodes are tainted, and that is the reason."""
    world = world_of("resource-not-offered")
    gpu = node("gpu-0", **{"nvidia.com/gpu": "4"})
    gpu["spec"]["taints"] = [{"key": "dedicated", "value": "research", "effect": "NoSchedule"}]
    world.nodes["gpu-0"] = gpu
    first = diagnose(world.evidence()).causes[0]
    assert (first.id, first.evidence[0]) == (
        "taint-not-tolerated",
        "node gpu-0 has the taint dedicated=research:NoSchedule",
    )
    world.pods["mnist-worker-1"]["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    assert (
        diagnose(world.evidence()).causes[0].id == "unschedulable"
        or diagnose(world.evidence()).causes[0].id == "insufficient-resource"
    )


@pytest.mark.parametrize(
    ("message", "id_"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "insufficient-resource"),
        (
            (
                "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had taint {node-role.kubernetes.io/master: }, that "
                "the pod didn't tolerate."
            ),
            "insufficient-resource",
        ),
        (
            "0/2 nodes are available: 2 node(s) had taint {dedicated: gpu}, that the pod didn't tolerate.",
            "taint-not-tolerated",
        ),
        (
            (
                "0/2 nodes are available: 2 node(s) had untolerated taint {dedicated: gpu}. preemption: 0/2 nodes are "
                "available: 2 Preemption is not helpful for scheduling."
            ),
            "taint-not-tolerated",
        ),
        ("0/2 nodes are available: 2 node(s) had untolerated taint(s).", "taint-not-tolerated"),
        (
            (
                "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
                "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
            ),
            "node-selector",
        ),
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity.", "node-selector"),
        ("0/2 nodes are available: 2 node(s) were unschedulable.", "nodes-cordoned"),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
            "nodes-not-ready",
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.",
            "node-pressure",
        ),
        ("0/2 nodes are available: 2 Too many pods.", "too-many-pods"),
        ("no nodes available to schedule pods", "no-nodes"),
    ],
)
def test_without_a_right_to_nodes_the_schedulers_words_must_do(message: str, id_: str) -> None:
    """The messages are those of Kubernetes 1.20 to 1.36."""
    world = World()
    world.unscheduled(message)
    assert diagnose(world.evidence()).causes[0].id == id_


def test_a_job_that_failed_is_explained_by_the_pod_that_its_condition_names() -> None:
    """Others that failed later may have failed because of it."""
    world = World()
    world.exited(1, name="mnist-worker-0", log="UnavailableError: Socket closed")
    world.failed(137, "OOMKilled")
    first = diagnose(world.evidence()).causes[0]
    assert (first.id, first.whom) == ("out-of-memory", ("mnist-worker-1",))


def test_a_job_that_failed_is_explained_when_its_pods_are_gone() -> None:
    """The condition has the exit code, and the container's last message."""
    world = World()
    world.failed(137, "OOMKilled")
    world.pods = {}
    found = diagnose(world.evidence())
    assert found.causes[0].id == "out-of-memory"
    assert found.standing == "mnist has failed, 10m ago after 50m"


def test_a_quota_that_is_used_up_is_told_when_its_event_has_expired() -> None:
    """Events live for an hour."""
    world = world_of("pods-missing")
    world.quotas = [{"metadata": {"name": "q"}, "status": {"hard": {"pods": "10"}, "used": {"pods": "10"}}}]
    first = diagnose(world.evidence()).causes[0]
    assert (first.id, first.title) == (
        "quota-exceeded",
        "The quota q has no room for mnist-worker-1: pods: 10 of 10 used",
    )


def test_an_event_of_an_earlier_pod_of_the_same_name_tells_nothing() -> None:
    """Replicas keep their names: the UID tells pods apart."""
    world = World()
    world.creating()
    world.event(
        "Pod", "mnist-worker-1", "FailedMount", 'MountVolume.SetUp failed for volume "c" : configmap "c" not found'
    )
    world.events[-1]["involvedObject"]["uid"] = "earlier"
    assert diagnose(world.evidence()).causes == ()


def test_a_claim_that_waits_for_its_first_consumer_is_no_trouble() -> None:
    """The claim is bound once the pod has a node; the trouble is what keeps the pod from one."""
    world = World()
    world.claim("Pending")
    world.event(
        "PersistentVolumeClaim",
        "data",
        "WaitForFirstConsumer",
        ("waiting for first consumer to be created before binding"),
        type_="Normal",
    )
    assert diagnose(world.evidence()).causes[0].id == "claim-unbound"


def test_an_operator_that_has_let_its_lease_go_does_not_run() -> None:
    """When it stops it leaves the lease without a holder."""
    world = World()
    assert world.lease is not None
    world.lease["spec"]["holderIdentity"] = ""
    assert diagnose(world.evidence()).causes[0].id == "operator-not-running"


def test_a_job_that_has_ended_needs_no_operator() -> None:
    """Nor a node, nor an image."""
    world = world_of("image-not-found", "finished-and-kept")
    assert world.lease is not None
    world.lease["spec"]["holderIdentity"] = ""
    world.spec["runPolicy"]["ttlSecondsAfterFinished"] = 3600
    assert diagnose(world.evidence()).causes == ()


def test_the_diagnosis_of_a_huge_job_is_bounded() -> None:
    """Hundreds of replicas, each with an image of its own: only so many causes and lines of evidence are shown."""
    world = World()
    world.spec["tfReplicaSpecs"]["Worker"]["replicas"] = 300
    CASES["image-not-found"](world)
    pod = world.pods["mnist-worker-1"]
    for index in range(2, 300):
        more = deepcopy(pod)
        more["metadata"] |= {"name": f"mnist-worker-{index}", "uid": f"u{index}"}
        more["status"]["containerStatuses"][0]["image"] = f"image-{index}"
        world.pods[more["metadata"]["name"]] = more
    found = diagnose(world.evidence())
    assert len(found.causes) == MOST_CAUSES
    assert all(len(cause.evidence) <= MOST_PROOFS for cause in found.causes)


def test_every_trouble_is_used_and_every_id_is_words() -> None:
    """Scripts use IDs: these are lower-case words with dashes, and never change."""
    assert len(FINDERS) == len(set(FINDERS))
    for trouble in chain.from_iterable(GROUPS.values()):
        assert trouble.meaning
        assert trouble.severity in Severity
    with pytest.raises(ValueError, match="is no ID"):
        Trouble("Not One", 1, Severity.NOTE, "", (), "")


def test_a_running_replica_that_was_restarted_is_only_a_note() -> None:
    """Unless it happens again and again."""
    found = diagnosed("was-restarted")
    assert [cause.severity for cause in found.causes] == [Severity.NOTE]
    assert diagnosed("restarts-for-ever").causes[0].severity is Severity.WARNING


def test_the_gang_is_told_which_resource_is_short() -> None:
    """The gang scheduler says only that they do not fit together."""
    world = world_of("gang-no-room")
    world.reads_nodes = True
    world.pods["mnist-worker-1"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "12"}}
    first = diagnose(world.evidence()).causes[0]
    assert first.id == "gang-no-room"
    assert any("8 cpu in all, 12 asked for" in line for line in first.evidence), first.evidence


def test_conditions_of_other_kinds_change_nothing() -> None:
    """Newer servers add them."""
    world = World()
    world.pods["mnist-ps-0"]["status"]["conditions"].append(condition("PodReadyToStartContainers"))
    assert diagnose(world.evidence()).causes == ()


@pytest.mark.parametrize(
    ("key", "operator", "values", "cause"),
    [
        ("pool", "In", ["gpu"], "node-selector"),
        ("pool", "In", ["gpu", "cpu"], "insufficient-resource"),
        ("pool", "NotIn", ["cpu"], "node-selector"),
        ("disk", "NotIn", ["slow"], "insufficient-resource"),
        ("disk", "Exists", None, "node-selector"),
        ("disk", "DoesNotExist", None, "insufficient-resource"),
        ("cores", "Gt", ["8"], "node-selector"),
        ("cores", "Lt", ["9"], "insufficient-resource"),
        ("disk", "Lt", ["9"], "node-selector"),
    ],
)
def test_a_full_node_that_the_node_affinity_excludes_is_not_what_is_missing(
    key: str, operator: str, values: list[str] | None, cause: str
) -> None:
    """As seen on a real API server: both nodes are full, and only nodes on which the pod may run count as short of room."""
    world = world_of("insufficient-resource")
    for each in world.nodes.values():
        each["metadata"].setdefault("labels", {}).update(pool="cpu", cores="8")
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    world.pods["mnist-worker-1"]["spec"]["affinity"] = {"nodeAffinity": required}
    assert diagnose(world.evidence()).causes[0].id == cause


def test_a_node_affinity_may_name_the_node() -> None:
    """As the pods of DaemonSets do: by the field metadata.name."""
    for name, cause in {"node-1": "insufficient-resource", "node-9": "node-selector"}.items():
        world = world_of("insufficient-resource")
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        world.pods["mnist-worker-1"]["spec"]["affinity"] = {"nodeAffinity": required}
        assert diagnose(world.evidence()).causes[0].id == cause


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)
def test_nothing_is_wrong_with_a_healthy_job_of_the_alpha_dialect(dialect: Dialect) -> None:
    """Its pods are told from each other by their Jobs."""
    world = World()
    world.alpha(dialect)
    found = diagnose(world.evidence())
    assert found.causes == ()
    assert found.standing == "mnist is Running for 1h: Master 1 of 1 running; Worker 2 of 2 running"


def alpha_world(dialect: Dialect = KUBEFLOW, *, without: str = "") -> World:
    """A job of the alpha dialect, one of whose replicas has no pod."""
    world = World()
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
    assert (found.id, found.whom) == ("quota-exceeded", ("worker-x7ab-1",))
    world.event("Job", "worker-x7ab-1", "SuccessfulCreate", "Created pod: worker-x7ab-1-fghij", minutes=1)
    assert [each.id for each in diagnose(world.evidence()).causes] == ["pods-missing"]
    maximum = 'pods "worker-x7ab-1-" is forbidden: maximum cpu usage per Container is 1, but limit is 2.'
    world = alpha_world(without="worker-x7ab-1")
    world.event("Job", "worker-x7ab-1", "FailedCreate", f"Error creating: {maximum}")
    assert diagnose(world.evidence()).causes[0].to_do[-1].endswith("delete job worker-x7ab-1")


def test_what_the_operator_meets_when_it_creates_a_job_is_told() -> None:
    """Only while there is no Job: a name that another job has."""
    world = alpha_world(without="worker-x7ab-1")
    taken = "Error creating: Job worker-x7ab-1 exists already and belongs to CronJob nightly"
    world.event("TFJob", JOB, "FailedCreate", taken)
    assert diagnose(world.evidence()).causes[0].id == "pods-missing"
    del world.batch_jobs["worker-x7ab-1"]
    first = diagnose(world.evidence()).causes[0]
    assert (first.id, first.title) == (
        "name-taken",
        "The name of worker-x7ab-1 is taken: a Job of that name belongs to CronJob nightly",
    )


def test_what_fails_of_a_tensorboard_is_told_until_that_very_part_is_there() -> None:
    """Its service may be created a moment after its deployment was denied."""
    world = World()
    world.event("TFJob", JOB, "FailedTensorBoard", "Error creating deployment mnist-tensorboard: denied", minutes=3)
    world.event("TFJob", JOB, "SuccessfulCreateTensorBoard", "Created service mnist-tensorboard", minutes=2)
    assert [each.id for each in diagnose(world.evidence()).causes] == ["tensorboard-failed"]
    world.event("TFJob", JOB, "SuccessfulCreateTensorBoard", "Created deployment mnist-tensorboard", minutes=1)
    assert not diagnose(world.evidence()).causes


def test_commands_about_a_job_of_tensorflow_org_name_it_and_its_label() -> None:
    """`kubectl get tfjob` means kubeflow.org where both are installed."""
    world = alpha_world(TENSORFLOW)
    world.status["conditions"].insert(1, condition("Held", reason="InvalidTFJobSpec", message="spec.tfImage: is wrong"))
    (held,) = diagnose(world.evidence()).causes
    assert held.to_do[0].startswith("kubectl -n team edit tfjobs.tensorflow.org mnist ")
    world = alpha_world(TENSORFLOW)
    log = "UnavailableError: failed to connect to all addresses"
    world.exited(1, name="worker-x7ab-1-abcde", log=log)
    first = diagnose(world.evidence()).causes[0]
    assert (first.id, "--selector=tf_job_name=mnist" in " ".join(first.to_do)) == ("peer-unreachable", True)


def test_of_the_pods_of_one_replica_the_newest_counts() -> None:
    """Those that have failed stay beside it: they were restarts."""
    world = alpha_world()
    old = deepcopy(world.pods["worker-x7ab-1-abcde"])
    old["metadata"] |= {"name": "worker-x7ab-1-00000", "uid": "uid-old", "creationTimestamp": ago(90)}
    ended = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "finishedAt": ago(61)}}}
    old["status"] = {"phase": "Failed", "containerStatuses": [ended]}
    world.pods["worker-x7ab-1-00000"] = old
    assert [each.id for each in diagnose(world.evidence()).causes] == ["was-restarted"]


def test_a_job_that_an_operator_of_2018_has_ended_has_ended() -> None:
    """It wrote a phase and a state, and no conditions."""
    world = alpha_world()
    world.job["status"] = {"phase": "Done", "state": "Succeeded", "runtimeId": "x7ab"}
    world.pods = {}
    found = diagnose(world.evidence())
    assert (found.standing, found.causes) == ("mnist has succeeded", ())
