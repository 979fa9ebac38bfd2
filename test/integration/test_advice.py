"""The advice of `explain` works: a user who runs its commands and makes its edits gets a running job.

A row of `ADVICE` defines how to cause the problem and how the user follows the advice: their edits, the values for words in
capitals, and the actions of other people. The steps are parsed from the printed text. All problems are created at once on
one control plane with one operator and one hollow node. The node runs scripts in annotations, so an edit that corrects a
template also changes these. Rows that are not in `QUICK` run in `make nightly`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import RUN
from integration import edits
from integration.cluster import Cluster, replica, specs, with_policy
from integration.stage import FOREVER, MERGE, POD, TRAINING, Problem, Stage, Then, asks, one
from integration.test_life_troubles import LAST_WORDS, WAITS_FOR_STALL, edit, ends, held_back, mistaken, probed, ruled
from integration.test_pod_troubles import STARTING
from integration.test_troubles import scaled
from support.waiting import eventually
from tfjob_operator.cli.commands.explain_ import render
from tfjob_operator.cli.diagnosis.causes import Diagnosis
from tfjob_operator.cli.diagnosis.table import PROBLEMS

WORKER: Final = "spec tfReplicaSpecs Worker"
TEMPLATE: Final = f"{WORKER} template spec"
CONTAINER: Final = f"{TEMPLATE} containers 0"
RUNS: Final[dict[str, Any]] = {f"{WORKER} template metadata annotations {RUN}": FOREVER}
"""The edit after which the hollow node lets the container run, as a kubelet would the one that was corrected."""


@dataclass(frozen=True)
class Advice:
    """A trouble, and how its advice is followed until the job is in `state`, under the name `becomes` if it got another.

    `before` is done before the job is created, and `then` is what others do afterwards: an administrator, or a kubelet that
    sees what was created. A step whose prose begins with "Or" is an alternative: it is followed where `instead` is True, and
    then alone.
    """

    problem: Problem
    edit: dict[str, Any] = field(default_factory=dict)
    fill: dict[str, str] = field(default_factory=dict)
    before: Then = lambda _stage, _job: None
    then: Then = lambda _stage, _job: None
    becomes: str = ""
    state: str = "Running"
    instead: bool = False

    @property
    def id(self) -> str:
        return self.problem.job


class Printed(NamedTuple):
    """A step as it is printed: prose and a command, one of which may be missing."""

    prose: str
    command: str


def printed(lines: list[str]) -> list[Printed]:
    """Return the steps of the first cause in the text of `explain`."""
    first = "\n".join(lines).partition("\n\n1. ")[2].partition("\n\n")[0]
    found: list[Printed] = []
    for line in first.splitlines():
        if line.startswith("   > kubectl "):
            found.append(Printed("", line[5:]))
        elif line.startswith("   > "):
            found.append(Printed(line[5:], ""))
        elif line.startswith("     kubectl ") and found:
            found[-1] = Printed(found[-1].prose, line[5:])
    return found


class User:
    """Somebody at a shell, with kubectl, its plugin and an editor."""

    def __init__(self, plane: ControlPlane, stage: Stage, folder: Path) -> None:
        self._stage = stage
        self._folder = folder
        (folder / "file.env").write_text("key=value\n")
        path = f"{plane.kubectl.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        editor = f"{sys.executable} {edits.__file__}"
        self._environment = {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig), "KUBE_EDITOR": editor}

    def follow(self, advice: Advice, explained: Diagnosis) -> None:
        """Follow the advice about the first cause of `explained`, which is the row's trouble."""
        problem = advice.problem
        steps = printed(render(explained, 10_000))
        assert steps
        for step in steps:
            follows = step.prose.startswith("Or ") == advice.instead or step.prose.startswith(
                "Delete the affected pods"
            )
            if step.command and follows and "Only if" not in step.prose:
                self._run(advice, step)
        advice.then(self._stage, problem.job)

    def _run(self, advice: Advice, step: Printed) -> None:
        command = step.command
        for name, value in {"FILE": "file.env", "ENVFILE": "file.env", **advice.fill}.items():
            command = re.sub(rf"\b{name}\b", value, command)
        assert not re.search(r"[ =][A-Z]{3,}\b", command.replace("custom-columns=NAME", "")), (
            f"nobody said what to fill in: {command}"
        )
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment | {"EDITS": json.dumps(advice.edit)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{step.command}: {done.stdout}{done.stderr}"
        if step.prose.startswith(("Save the manifest", "To give", "To have")):
            edits.change_file(self._folder / command.rpartition("> ")[2], advice.edit)


def prioritized(name: str, count: int) -> dict[str, Any]:
    found = replica(count, run=FOREVER)
    found["template"]["spec"]["priorityClassName"] = name
    return found


def of_node(id_: str) -> Problem:
    """A trouble of a container that does not start, as the tests of troubles make it."""
    spec, then = STARTING[id_]
    return Problem(id_, spec, then or (lambda *_: None))


def started(id_: str, edited: dict[str, Any], **more: Any) -> Advice:
    """What keeps a container from starting is edited."""
    return Advice(of_node(id_), RUNS | edited, **more)


def failed(id_: str, run: str, edited: dict[str, Any], **more: Any) -> Advice:
    """A job has failed, and is replaced by one with an edited manifest."""
    return Advice(Problem(id_, one(run)), RUNS | edited, **more)


def logged(id_: str, edited: dict[str, Any]) -> Advice:
    """A job has failed, with its reason in the log."""
    spec, then = LAST_WORDS[id_]
    return Advice(Problem(id_, spec, then), RUNS | edited)


def ungated(stage: Stage, job: str) -> None:
    """Remove the gates of the pod, as their owner does."""
    stage.api("PATCH", f"pods/{POD.format(job)}", {"spec": {"schedulingGates": None}}, MERGE)


def taken(phase: str) -> Then:
    """Have a pod without an owner in the place of the replica."""

    def before(stage: Stage, job: str) -> None:
        body = {"metadata": {"name": POD.format(job)}, "spec": {"containers": [TRAINING], "schedulerName": "none"}}
        stage.api("POST", "pods", body)
        stage.api("PATCH", f"pods/{POD.format(job)}/status", {"status": {"phase": phase}}, MERGE)

    return before


def counted(stage: Stage, job: str) -> None:
    """A quota of one pod for the priority class of the job; the test writes its status, as a quota controller does."""
    hard = {"pods": "1"}
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [job]}]}
    stage.answer("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": job}, "value": 1})
    stage.api("POST", "resourcequotas", {"metadata": {"name": job}, "spec": {"hard": hard, "scopeSelector": scope}})
    stage.api("PATCH", f"resourcequotas/{job}/status", {"status": {"hard": hard, "used": {"pods": "0"}}}, MERGE)


def keyed(stage: Stage, _job: str) -> None:
    """A Secret without the key that the job reads."""
    stage.api("POST", "secrets", {"metadata": {"name": "half"}})


def ready(stage: Stage, job: str) -> None:
    """Start the container, as the kubelet does once what was missing is there."""
    notes = {"metadata": {"annotations": {RUN: FOREVER}}}
    stage.pod(POD.format(job))
    stage.api("PATCH", f"pods/{POD.format(job)}", notes, MERGE)


def released(stage: Stage, job: str) -> None:
    """Remove the finalizer of the pod, as its owner does."""
    stage.api("PATCH", f"pods/{POD.format(job)}", {"metadata": {"finalizers": None}}, MERGE)


def corrected(*ids: str) -> Iterator[Advice]:
    """The template of a container that does not start is corrected."""
    for id_ in ids:
        yield started(id_, {f"{CONTAINER} image": "train:2"})


REGISTRY: Final = {"SECRET": "registry-key", "SERVER": "registry.example", "USER": "ada", "PASSWORD": "lovelace"}
PULL_SECRET: Final = {f"{TEMPLATE} imagePullSecrets": [{"name": "registry-key"}]}
NO_MOUNT: Final = {f"{CONTAINER} volumeMounts": None}
WRONG_MOUNT: Final = TRAINING | {"volumeMounts": [{"name": "none", "mountPath": "/x"}]}
ALPHA_SPEC: Final = {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": {"spec": {"containers": [TRAINING]}}}]}
TYPES: Final = "spec tfReplicaSpecs"
ADVICE: Final = [
    # Pods that are not created; first, since the operator retries them less and less often
    Advice(Problem("service-account-missing", one(serviceAccountName="trainer"))),
    Advice(
        Problem("service-account-missing", one(serviceAccountName="nobody"), name="other-account"),
        {f"{TEMPLATE} serviceAccountName": "default"},
        instead=True,
    ),
    Advice(Problem("priority-class-missing", one(priorityClassName="urgent")), {f"{TEMPLATE} priorityClassName": None}),
    Advice(Problem("runtime-class-missing", one(runtimeClassName="gvisor")), {f"{TEMPLATE} runtimeClassName": None}),
    Advice(Problem("ended-pod-in-the-way", one()), before=taken("Failed")),
    Advice(Problem("name-taken", one()), before=taken("Pending")),
    Advice(
        Problem("quota-exceeded", specs(Worker=prioritized("quota-exceeded", 2))),
        {f"{WORKER} replicas": 1},
        before=counted,
    ),
    # The specification
    Advice(
        Problem("container-name", one(containers=[TRAINING | {"name": "main"}])), {f"{CONTAINER} name": "tensorflow"}
    ),
    Advice(Problem("replica-type-unknown", specs(Helper=replica())), {TYPES: one()["tfReplicaSpecs"]}),
    Advice(Problem("replica-specs-missing", {}), {"spec": one()}),
    Advice(
        Problem("spec-invalid", with_policy(one(), cleanPodPolicy="Maybe")),
        {"spec runPolicy cleanPodPolicy": "All"},
    ),
    Advice(Problem("too-many-replicas", specs(Worker=replica(20_000, run=FOREVER))), {f"{WORKER} replicas": 1}),
    Advice(Problem("tf-config-too-long", specs(Worker=replica(9000, run=FOREVER))), {f"{WORKER} replicas": 1}),
    Advice(Problem("name-invalid", one(), name="9mnist"), {"metadata name": "mnist-9"}, becomes="mnist-9"),
    Advice(Problem("name-too-long", one(), name="n" * 60), {"metadata name": "short"}, becomes="short"),
    Advice(Problem("template-refused", one(containers=[WRONG_MOUNT])), NO_MOUNT),
    Advice(Problem("alpha-form", ALPHA_SPEC), {"spec": one()}),
    Advice(
        Problem("held-invalid", one(), edit(lambda worker: worker.update(restartPolicy="Maybe"))),
        {f"{WORKER} restartPolicy": "Never"},
    ),
    Advice(Problem("held-refused", one(), edit(mistaken)), NO_MOUNT),
    Advice(
        Problem("held-too-large", one(), edit(lambda worker: worker.update(replicas=20_000))), {f"{WORKER} replicas": 1}
    ),
    Advice(Problem("no-replicas", specs(Worker=replica(0, run=FOREVER))), fill={"COUNT": "2"}),
    Advice(Problem("nothing-trains", specs(Worker=replica(0), Evaluator=replica(run=FOREVER))), fill={"COUNT": "2"}),
    Advice(
        Problem("field-unknown", with_policy(one(), backofLimit=3)),
        {"spec runPolicy backofLimit": None},
    ),
    Advice(
        Problem("run-policy-conflict", with_policy(one(), backoffLimit=3) | {"backoffLimit": 4}),
        {"spec backoffLimit": None},
    ),
    Advice(Problem("no-workers-to-scale", specs(Chief=replica(run=FOREVER)), scaled)),
    Advice(
        Problem("restart-policy-overridden", one(policy="OnFailure", restartPolicy="Always")),
        {f"{TEMPLATE} restartPolicy": None},
    ),
    Advice(
        Problem("manager-silent", with_policy(one(), managedBy="example.com/trainer")),
        {"spec runPolicy managedBy": None},
    ),
    Advice(Problem("suspended", with_policy(one(), suspend=True))),
    Advice(
        Problem("tensorboard-invalid", one() | {"tensorBoard": {"image": "board:1"}}),
        {"spec tensorBoard logDir": "/logs"},
    ),
    # Pods without a node
    Advice(Problem("scheduling-gated", one(schedulingGates=[{"name": "example.com/quota"}]), since=27), then=ungated),
    Advice(
        Problem("scheduler-missing", one(schedulerName="volcanoo"), later_s=120), {f"{TEMPLATE} schedulerName": None}
    ),
    Advice(
        Problem("insufficient-resource", one(**asks(cpu="100"))), {f"{CONTAINER} resources": {"requests": {"cpu": "1"}}}
    ),
    Advice(
        Problem("taint-not-tolerated", one(containers=[TRAINING | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}])),
        {f"{TEMPLATE} tolerations": [{"key": "gpu", "operator": "Exists"}]},
    ),
    # The scheduler names the taint of the GPU node too, which no job with this nodeSelector could use.
    Advice(Problem("node-selector", one(nodeSelector={"pool": "none"})), {f"{TEMPLATE} nodeSelector": {"pool": "cpu"}}),
    # Images, and containers that do not start
    *corrected("image-name-invalid", "image-not-found", "image-registry-unreachable", "image-pull-failed"),
    *corrected("image-wrong-platform", "image-signature"),
    started("image-registry-untrusted", {f"{CONTAINER} image": "other:1"}, instead=True),
    *corrected("image-no-space", "program-wrong-format"),
    started("image-rate-limit", PULL_SECRET, fill=REGISTRY | {"SECRET": "hub-key"}),
    started("image-pull-secret-missing", {}, then=ready, fill=REGISTRY),
    Advice(of_node("config-key-missing"), {"data token": "eA=="}, {"keys": "half"}, before=keyed, then=ready),
    started("image-never-pulled", {f"{CONTAINER} imagePullPolicy": "IfNotPresent"}),
    started("image-missing-or-private", PULL_SECRET, fill=REGISTRY | {"SECRET": "other-key"}),
    started("image-no-right", PULL_SECRET, fill=REGISTRY),
    started("config-map-missing", {}, then=ready),
    started("secret-missing", {}, then=ready),
    started("runs-as-root", {f"{CONTAINER} securityContext": {"runAsUser": 1000}}),
    started("program-missing", {f"{CONTAINER} command": ["python", "/train.py"]}),
    started("command-not-split", {f"{CONTAINER} command": ["python", "/train.py", "--steps=9"]}),
    started("program-not-executable", {f"{CONTAINER} command": ["python", "/train.py"]}),
    started("mount-path-wrong", {f"{CONTAINER} workingDir": "/"}),
    started("container-cannot-start", {f"{CONTAINER} workingDir": "/"}),
    started("config-map-volume-missing", {}, then=ready, fill={"settings": "mounted"}),
    started("secret-volume-missing", {}, then=ready, fill={"keys": "mounted"}),
    started("host-path-missing", {f"{CONTAINER} workingDir": "/"}),
    started("volume-in-use", {f"{CONTAINER} workingDir": "/"}),
    # Bad ends
    Advice(
        Problem("out-of-memory", one("0s:oom-killed", **asks(memory="64Mi"))),
        RUNS | {f"{CONTAINER} resources": {"limits": {"memory": "64Gi"}}},
    ),
    failed("memory-without-limit", "0s:oom-killed", {f"{CONTAINER} resources": {"requests": {"memory": "64Gi"}}}),
    failed("bus-error", "0s:135", {f"{TEMPLATE} volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}),
    failed("illegal-instruction", "0s:132", {f"{CONTAINER} image": "train:2"}),
    failed("segmentation-fault", "0s:139", {f"{CONTAINER} image": "train:2"}),
    failed("aborted", "0s:134", {}),
    failed("command-not-found", "0s:127", {f"{CONTAINER} command": ["python"]}),
    failed("command-not-executable", "0s:126", {f"{CONTAINER} command": ["python"]}),
    failed("usage-error", "0s:2", {f"{CONTAINER} args": ["--steps=9"]}),
    failed("killed", "0s:137", {}),
    failed("terminated", "0s:143", {}),
    failed("exit-code", "0s:1", {}),
    failed("evicted", "0s:evicted", {f"{CONTAINER} resources": {"requests": {"memory": "1Gi"}}}),
    Advice(Problem("crash-loop", one("0s:1", "OnFailure")), RUNS | {f"{CONTAINER} image": "train:2"}),
    Advice(
        Problem("deadline-exceeded", with_policy(one(), activeDeadlineSeconds=1)),
        {"spec runPolicy activeDeadlineSeconds": 3600},
    ),
    Advice(
        Problem("backoff-limit", with_policy(one("0s:1", "OnFailure"), backoffLimit=0)),
        RUNS | {"spec runPolicy backoffLimit": 9},
    ),
    Advice(
        Problem("max-restarts-exceeded", ruled("RestartAll", one("0s:1"), most=0)),
        RUNS | {"spec runPolicy failurePolicy maxRestarts": 9},
    ),
    Advice(
        Problem("start-deadline-exceeded", with_policy(one("image-pull-back-off"), startDeadlineSeconds=1)),
        RUNS | {"spec runPolicy startDeadlineSeconds": 600},
    ),
    Advice(
        Problem("failure-rule-unreachable", ruled("FailJob", one())),
        {"spec runPolicy failurePolicy rules": [{"action": "FailJob"}]},
    ),
    Advice(
        Problem("failure-rule-without-deadline", with_policy(one(), failurePolicy=WAITS_FOR_STALL)),
        {"spec runPolicy progressDeadlineSeconds": 600},
    ),
    Advice(
        Problem("backoff-limit-near", with_policy(one("0s:1, forever", "OnFailure"), backoffLimit=1)),
        {"spec runPolicy backoffLimit": 9},
    ),
    Advice(Problem("deadline-near", with_policy(one(), activeDeadlineSeconds=36_000), later_s=33_000)),
    Advice(Problem("deadline-passed", with_policy(one(), activeDeadlineSeconds=3600), later_s=5400)),
    Advice(
        Problem("restarted-after-success", one("0s:0, forever", "Always")),
        {f"{WORKER} restartPolicy": "OnFailure", **dict.fromkeys(RUNS, "0s:0")},
        state="Succeeded",
    ),
    *(logged(id_, {f"{CONTAINER} image": "train:2"}) for id_ in ("python-module-missing", "tf-config-misread")),
    *(
        logged(id_, {f"{CONTAINER} args": ["--batch=1"]})
        for id_ in ("arguments-unknown", "gpu-out-of-memory", "disk-full")
    ),
    *(
        logged(id_, {f"{CONTAINER} args": ["--data=/d"]})
        for id_ in ("file-not-found", "loss-not-a-number", "port-in-use", "tf-config-missing")
    ),
    logged("gpu-not-visible", {f"{CONTAINER} image": "train:2"}),
    logged("service-account-token-missing", {f"{TEMPLATE} automountServiceAccountToken": True}),
    logged("data-access-denied", {f"{TEMPLATE} securityContext": {"fsGroup": 1000}}),
    Advice(
        Problem(
            "disk-limit", one(), ends("Evicted", "Pod ephemeral local storage usage exceeds the total limit of 1Gi.")
        ),
        {f"{CONTAINER} resources": {"limits": {"ephemeral-storage": "9Gi"}}},
    ),
    Advice(
        Problem("pod-deadline", one(), ends("DeadlineExceeded", "Pod was active longer than its deadline")),
        {f"{CONTAINER} image": "train:2"},
    ),
    Advice(Problem("liveness-probe", one("0s:137", "Always"), probed), RUNS | {f"{CONTAINER} image": "train:2"}),
    Advice(Problem("stuck-terminating", one(policy="OnFailure"), held_back, later_s=600), then=released),
    *(logged(id_, {}) for id_ in ("peer-name-unresolved", "peer-unreachable")),
    logged("python-out-of-memory", {f"{CONTAINER} resources": {"limits": {"memory": "64Gi"}}}),
    logged("shared-memory-full", {f"{TEMPLATE} volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}),
]
QUICK: Final = """
    container-name 9mnist template-refused held-invalid no-replicas field-unknown manager-silent suspended
    service-account-missing ended-pod-in-the-way name-taken quota-exceeded scheduler-missing image-not-found
    image-no-right command-not-split config-map-missing out-of-memory exit-code crash-loop deadline-exceeded backoff-limit
    deadline-near restarted-after-success python-module-missing
"""
"""Rows that run in `make test`: one for each way in which advice is followed."""


class Played(NamedTuple):
    """The stage on which the troubles of a session are made, and who follows the advice."""

    stage: Stage
    user: User


NODES: Final = """
- {name: cpu, labels: {pool: cpu}, allocatable: {cpu: 64, memory: 900Gi, pods: 500}}
- {name: gpu, taints: [{key: gpu, effect: NoSchedule}], allocatable: {cpu: 8, pods: 110, nvidia.com/gpu: 4}}
"""
"""Where the pods of all rows run."""


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, control_plane: ControlPlane, crd: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    """All troubles whose tests were chosen, made at once."""
    namespace, folder = "advice", tmp_path_factory.mktemp("advice")
    control_plane.create_namespace(namespace)
    cluster = Cluster(control_plane, namespace, folder)
    items: list[Any] = request.session.items
    chosen: list[Advice] = [each.callspec.params["advice"] for each in items if each.originalname == FOLLOWED]
    with Stage(control_plane, cluster) as stage, cluster.operator(), cluster.node(NODES):
        made = [each for each in chosen if each.problem.since <= stage.minor]
        for each in made:
            each.before(stage, each.id)
        stage.jobs(each.problem for each in made)
        for each in made:
            each.problem.then(stage, each.id)
        yield Played(stage, User(control_plane, stage, folder))
    control_plane.run_kubectl("delete", "namespace", namespace, "--wait=false", check=False)


FOLLOWED: Final = "test_a_job_runs_once_the_printed_advice_was_followed"


@pytest.mark.parametrize(
    "advice",
    [
        pytest.param(each, id=each.id, marks=[] if each.id in QUICK.split() else [pytest.mark.nightly])
        for each in ADVICE
    ],
)
def test_a_job_runs_once_the_printed_advice_was_followed(played: Played, advice: Advice) -> None:
    """The trouble is on line one; then every command that is printed for it succeeds, and the job runs without it."""
    stage, problem = played.stage, advice.problem
    if problem.since > stage.minor:
        pytest.skip("this API server cannot have the trouble")

    def explained() -> Diagnosis | None:
        found = stage.explain(problem.job, problem.later_s)
        return found if found.causes and found.causes[0].id == problem.id else None

    # The advice that was seen is followed: a container that crashes runs for a moment between two restarts.
    advised = eventually(explained, problem.id, yet=lambda: stage.explain(advice.id))
    played.user.follow(advice, advised)
    job = advice.becomes or advice.id
    # After some refusals the operator retries once a minute, and sooner on an idle machine.
    eventually(lambda: stage.cluster.state(job) == advice.state, f"{job} is {advice.state}", limit_s=150)
    eventually(
        lambda: all(cause.id != problem.id for cause in stage.explain(job).causes),
        f"{problem.id} is over",
        yet=lambda: stage.explain(job),
    )
    if job != advice.id:
        assert advice.id not in stage.cluster.names("tfjobs")
    stage.cluster.kubectl("delete", "tfjob", job, "--wait=false")


NOT_FOLLOWED: Final = {
    "it is to look, to wait, or to ask the owner of something or the administrator": """
        namespace-terminating job-being-deleted managed-elsewhere managed-by-multikueue
        operator-not-running operator-missing operator-not-acting operator-not-ready
        operator-scaled-to-zero two-operators training-operator-not-running training-operator-not-acting
        invalid-here
        operator-serves-elsewhere end-not-seen namespace-not-served not-reconciled-yet
        pod-template-not-applied alpha-not-served edit-not-seen crd-old kueue-absent kueue-check-rejected
        kueue-queue-stopped kueue-namespace kueue-preempted kueue-pods-ready-timeout kueue-check kueue-waits
        quota-status-unknown webhook-unreachable operator-no-rights api-server-errors pods-missing job-controller-silent
        pod-groups-unavailable gang-queued gang-scheduler-missing claim-pending provisioning-failed csi-driver-missing
        mount-refused mount-failed no-nodes node-pressure nodes-not-ready too-many-pods claim-unbound resource-claim
        preempting unschedulable nodes-cordoned image-slow device-runtime sandbox-failed init-container-runs starts-slowly
        waits-for-terminating-pod former-child-in-the-way pod-status startup-failed sidecar-failed pod-warning node-missing
        pods-recreated empty-dir-limit restarts-for-ever succeeded-without-others succeeded-after-probe was-restarted
        succeeded-with-exception succeeded-beside-failure running-after-exception running-with-repeated-error loss-diverged
        accelerator-unused succeeded-after-out-of-memory succeeded-without-data helper-finished
        replica-never-ran
        gpu-hardware-error service-missing service-selector-edited disrupted replicas-restarting
        not-adopted delete-failed children-edited replica-without-log-output tensorboard-failed tensorboard-unavailable
        attempt-waits-for-pods restart-delayed
        nodes-avoided nodes-unavailable nodes-not-avoided pod-restart-policy-never ending sidecar-after-training
        stalled logs-unavailable
        completion-waits-for-workers escalation-near network-not-updated only-parameter-servers tensorboard-not-starting
        replica-not-ready clock-skew peer-failed waits-for-init-container external-name-unresolved external-host-unreachable
        status-denied status-forbidden status-invalid status-refused
    """,
    "it takes Kueue or a gang scheduler": """
        kueue-deactivated kueue-gave-up kueue-queue-missing kueue-too-large kueue-quota kueue-one-by-one kueue-unreachable
        kueue-replicas-not-counted scheduling-group-missing pod-group-refused gang-too-few-pods gang-no-room
        gang-other-scheduler gang-scheduling-off
    """,
    "it takes an operator of the alpha dialect": """
        chief-missing restart-policy-always batch-job-failed batch-job-suspended
    """,
    "it takes a scheduler that knows volumes, ports and other pods": """
        volume-elsewhere volume-limit pod-affinity topology-spread host-port-taken claim-missing storage-class-missing
        claim-without-class claim-lost
    """,
    "it takes an admission plugin or webhook that concerns the whole namespace": """
        quota-wants-requests pod-security pod-security-policy webhook-denied admission-policy-denied create-refused
        limit-range-maximum limit-range-minimum limit-range-ratio
    """,
    "its steps are those of rows that are followed": """
        volume-key-missing rejected-by-node init-container-failed job-failed failed-by-rule
        rule-misspelled restart-request-ignored failure-rule-matches-healthy-nodes deadline-not-running
    """,
    "it takes a container in which a real program fails": """
        object-store-credentials-missing object-store-denied object-not-found python-import-failed read-only-file-system
        windows-line-endings
        child-killed shared-library-missing tf-config-equal too-many-open-files script-arguments-ignored
    """,
    "it takes a status that the API server refuses": "status-too-large",
    "it takes a program that serves": "parameter-server-completed",
    "it takes a node that is lost": "node-not-ready node-lost",
    "it takes an operator that is newer than the plugin": "limit-reached",
    "it takes ten minutes or a day": "no-log-output finished-and-kept",
}
"""Troubles without a row, by the reason."""


def test_the_advice_of_each_trouble_is_followed_or_has_a_reason_why_not() -> None:
    """A new trouble needs a row, or an entry in the other table."""
    without = [id_ for ids in NOT_FOLLOWED.values() for id_ in ids.split()]
    rows = {each.problem.id for each in ADVICE}
    assert (len(without), rows & set(without)) == (len(set(without)), set())
    assert rows | set(without) == PROBLEMS.keys()
    assert {each.id for each in ADVICE} >= set(QUICK.split())
    assert len(QUICK.split()) <= 25
