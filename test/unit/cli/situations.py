"""Situations of jobs as the API server shows them, and what every display must show of each.

What is expected was written by hand, by docs/kubectl-tfjob.md ("List jobs"): never copy it from the output of a display.
"""

from collections.abc import Iterable
from typing import Any, Final

from hack.objects import TEMPLATE, wanting
from unit.cli.situation_objects import (
    QUEUED,
    Situation,
    after_init,
    at,
    beside,
    counted,
    deleted,
    ended,
    ending,
    event,
    exit_of,
    failed,
    fell,
    first,
    job,
    of_batch,
    of_kubeflow,
    pod,
    pods,
    recorded,
    recreated,
    running,
    status_of,
    told,
    waiting,
    with_condition,
    workload,
)

KEPT: Final = ("Running", True, True, 0)
DONE: Final = ("Succeeded", False, False, 0)
MISSING: Final = ("Missing", False, False, 0)
"""Replicas: see `Situation.replicas`."""

SITUATIONS: Final[list[Situation]] = []


def expect(
    name: str,
    shown: str,
    job: dict[str, Any],
    *pods: dict[str, Any],
    events: Iterable[dict[str, Any]] = (),
    workload: dict[str, Any] | None = None,
    **replicas: tuple[str, bool, bool, int],
) -> None:
    """Add a situation. `shown` has STATE, READY, RESTARTS and, unless it is empty, REASON; `replicas` are Worker_0, ..."""
    state, ready, restarts, *reason = shown.split()
    named = {(kind, int(index)): value for key, value in replicas.items() for kind, index in [key.split("_")]}
    found = Situation(name, state, ready, restarts, "".join(reason), job, pods, tuple(events), workload, named)
    SITUATIONS.append(found)


# fmt: off
# --- States, sizes and counts ---

for seconds, why in ((30, "Starting"), (59, "Starting"), (61, "NotReconciled"), (600, "NotReconciled")):
    expect(f"new for {seconds}s, seen by no operator", f"New 0/2 0 {why}", job(age_s=seconds), Worker_0=MISSING)
    expect(f"created {seconds}s ago, without pods", f"Created 0/2 0 {why}", job("Created", age_s=seconds), Worker_0=MISSING)
    expect(f"resumed {seconds}s ago: Suspended is the last condition, and False", f"Created 0/2 0 {why}",
           job("Created", f"-Suspended:{seconds}", startTime=at(seconds)), Worker_0=MISSING)
UP: Final = job("Created", "Running")
LED: Final = wanting(Chief=1, PS=1, Worker=2)
TWO: Final = {"replicas": 2, "template": TEMPLATE}
expect("all pods are ready", "Running 2/2 0", UP, *pods(), Worker_0=KEPT, Worker_1=KEPT)
expect("all types are ready", "Running 4/4 0", job("Created", "Running", spec=LED), *pods(), pod(kind="Chief"), pod(kind="PS"),
       Chief_0=KEPT, PS_0=KEPT, Worker_0=KEPT, Worker_1=KEPT)
expect("one replica if the spec has no number", "Running 1/1 0",
       job("Created", "Running", spec={"tfReplicaSpecs": {"Worker": {"template": TEMPLATE}}}), pod(), Worker_0=KEPT)
expect("keys in lower case", "Running 3/3 0",
       job("Created", "Running", spec={"tfReplicaSpecs": {"ps": {"template": TEMPLATE}, "worker": TWO}}),
       *pods(), pod(kind="PS"), PS_0=KEPT, Worker_0=KEPT, Worker_1=KEPT)
expect("worker and Worker, which the scale subresource has added", "Running 4/4 0",
       job("Created", "Running", spec={"tfReplicaSpecs": {"worker": TWO, "Worker": {"replicas": 4}}}),
       *pods(of=4), Worker_0=KEPT, Worker_1=KEPT, Worker_2=KEPT, Worker_3=KEPT)
expect("scaled down, and the surplus pod still runs", "Running 2/2 0", UP, *pods(of=3), Worker_0=KEPT, Worker_1=KEPT)
expect("scaled down, and the surplus pod ends", "Running 2/2 0", UP, *pods(), pod(2, **deleted(5)), Worker_0=KEPT)
expect("no replicas", "Created 0/0 0 NoReplicas", job("Created", spec=wanting(Worker=0, PS=0)))
expect("no workers beside an evaluator", "Running 1/1 0 NothingTrains",
       job("Created", "Running", spec=wanting(Worker=0, Evaluator=1)), pod(kind="Evaluator"))
expect("a parameter server exited with 0, and workers run", "Running 2/3 0 PSCompleted",
       job("Created", "Running", spec=wanting(Worker=2, PS=1), finishedIndices={"PS": "0"}), *pods(),
       pod(0, ended(0), kind="PS"))
expect("a parameter server exited with 0, and its pod was deleted", "Running 2/3 0 PSCompleted",
       job("Created", "Running", spec=wanting(Worker=2, PS=1), finishedIndices={"PS": "0"}), *pods())
expect("a parameter server exited with 0, and a worker crashes", "Running 1/3 5 CrashLoopBackOff",
       job("Created", "Running", spec=wanting(Worker=2, PS=1), finishedIndices={"PS": "0"}), pod(0),
       pod(1, waiting("CrashLoopBackOff", "Running", last=exit_of(1), restarts=5)), pod(0, ended(0), kind="PS"))
expect("no parameter servers", "Running 2/2 0", job("Created", "Running", spec=wanting(Worker=2, PS=0)), *pods())
expect("succeeded, and its pods were deleted", "Succeeded 0/2 0",
       job("Created", "-Running", "Succeeded", finishedIndices={"Worker": "0"}, completionTime=at(60)),
       Worker_0=("Succeeded", False, False, 0), Worker_1=("No pod", False, False, 0))
expect("succeeded, and its pods were kept", "Succeeded 0/2 3",
       job("Created", "-Running", "Succeeded", finishedIndices={"Worker": "0-1"}, completionTime=at(60)),
       pod(0, ended(0)), pod(1, status_of("Succeeded", {"terminated": exit_of(0, "Completed")}, last=exit_of(1), restarts=3)),
       Worker_0=DONE, Worker_1=("Succeeded", False, False, 3))
expect("succeeded, and a pod failed when it was deleted", "Succeeded 0/2 0",
       job("Created", "-Running", "Succeeded", finishedIndices={"Worker": "0"}), pod(0, ended(0)), pod(1, ended(143)))
WORKS: Final = {"running": {"startedAt": at(3500)}}
ONE: Final = job("Created", "Running", finishedIndices={"Worker": "1"})
expect("a worker has succeeded, and its pod is kept", "Running 1/2 0", ONE, pod(0), pod(1, ended(0)),
       Worker_0=KEPT, Worker_1=DONE)
expect("a worker has succeeded, and its pod was deleted", "Running 1/2 0", ONE, pod(0),
       Worker_0=KEPT, Worker_1=("Succeeded", False, False, 0))
expect("a worker has succeeded, and its sidecar still works", "Running 1/2 0", ONE, pod(0),
       pod(1, beside(status_of("Running", {"terminated": exit_of(0, "Completed")}), WORKS)))
expect("all conditions are False", "Created 2/2 0", job("-Created", "-Running"), *pods())
expect("Suspended is False, and not last", "Running 2/2 0", job("Created", "-Suspended", "Running"), *pods())

# --- Pods that do not run, are not ready, or were restarted ---

UNREADY: Final = ("Running", False, True, 0)
ENDS: Final = ("Terminating", False, False, 0)
expect("a readiness probe fails", "Running 1/2 0 NotReady", UP, pod(0), pod(1, running(ready=False)),
       Worker_0=KEPT, Worker_1=UNREADY)
expect("a readiness gate is closed", "Running 1/2 0 NotReady", UP, pod(0),
       pod(1, with_condition(running(), "Ready", "False", "ReadinessGatesNotReady")), Worker_1=UNREADY)
expect("a sidecar has ended, and the training runs", "Running 1/2 0 NotReady", UP, pod(0),
       pod(1, beside(running(ready=False), {"terminated": exit_of(0, "Completed")})))
FINISHED: Final = pod(1, status_of("Running", {"terminated": exit_of(0, "Completed")}, restarts=2))
expect("a container exited with 0, and its restart policy Always starts it again", "Running 1/2 2 Completed", UP, pod(0),
       FINISHED | {"spec": FINISHED["spec"] | {"restartPolicy": "Always"}}, Worker_1=("Running", False, False, 2))
expect("a sidecar has failed, and the training runs", "Running 1/2 0 ExitCode:3", UP, pod(0),
       pod(1, beside(running(ready=False), {"terminated": exit_of(3)})))
expect("the kubelet restarted the training and a sidecar: all containers count, as in `kubectl get pods`", "Running 2/2 3", UP,
       pod(0, beside(running(restarts=2), WORKS, restarts=1)), pod(1), Worker_0=("Running", True, True, 3))
LOST: Final = with_condition(running(), "Ready", "False")
expect("both pods are on a lost node for 28m", "Running 0/2 0 NodeNotReady", UP, *pods(status=LOST),
       Worker_0=UNREADY, Worker_1=UNREADY)
expect("both pods are deleted because their node was lost", "Running 0/2 0 PodTerminating", UP,
       *(pod(index, LOST, **deleted(1380)) for index in range(2)), Worker_0=ENDS, Worker_1=ENDS)
expect("a pod is deleted while it runs", "Running 1/2 0 PodTerminating", UP, pod(0), pod(1, **deleted(5)),
       Worker_0=KEPT, Worker_1=ENDS)
expect("a restart waits behind a finalizer for 31m", "Restarting 1/2 1 PodTerminating",
       job("Created", "Restarting:1860",
           restarts=[{"type": "Worker", "index": 1, "replaced": True, "pod": "uid-mnist-worker-1"}]),
       pod(0), pod(1, ended(137, ago_s=1870), **deleted(1860, finalizers=["example.com/hold"])),
       Worker_0=KEPT, Worker_1=("Terminating", False, False, 1))
for seconds, why in ((120, " OOMKilled"), (599, " OOMKilled"), (601, ""), (660, "")):
    expect(f"restarted twice after OOM, and runs for {seconds}s", f"Running 2/2 2{why}", UP, pod(0),
           pod(1, running(seconds, last=exit_of(137, "OOMKilled", seconds), restarts=2)),
           Worker_0=KEPT, Worker_1=("Running", True, True, 2))
expect("restarted twice after exit 1, and runs for 2m", "Running 2/2 2 ExitCode:1", UP, pod(0),
       pod(1, running(120, last=exit_of(1, ago_s=120), restarts=2)))
expect("restarted once, and runs for 2m", "Running 2/2 1", UP, pod(0),
       pod(1, running(120, last=exit_of(1, ago_s=120), restarts=1)), Worker_1=("Running", True, True, 1))
LOOP: Final = waiting("CrashLoopBackOff", "Running", last=exit_of(1), restarts=6)
expect("crash loop", "Running 1/2 6 CrashLoopBackOff", UP, pod(0), pod(1, LOOP),
       Worker_0=KEPT, Worker_1=("CrashLoopBackOff", False, False, 6))
expect("crash loop after OOM", "Running 1/2 3 OOMKilled", UP, pod(0),
       pod(1, waiting("CrashLoopBackOff", "Running", last=exit_of(137, "OOMKilled"), restarts=3)))
expect("ended, and the kubelet has not restarted it yet", "Running 1/2 0 ExitCode:3", UP, pod(0),
       pod(1, status_of("Running", {"terminated": exit_of(3, ago_s=1)})))
CREATED: Final = job("Created")
for reason in ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"):
    expect(f"one pod has {reason}", f"Created 1/2 0 {reason}", CREATED, pod(0), pod(1, waiting(reason)),
           Worker_0=KEPT, Worker_1=(reason, False, False, 0))
UNBOUND: Final = {"phase": "Pending", "conditions": []}
for reason in ("Unschedulable", "SchedulingGated"):
    expect(f"no pod is scheduled: {reason}", f"Created 0/2 0 {reason}", CREATED,
           *pods(status=with_condition(UNBOUND, "PodScheduled", "False", reason)))
expect("the most frequent problem counts", "Created 0/3 0 Unschedulable", job("Created", spec=wanting(Worker=3)),
       pod(0, waiting("ImagePullBackOff")),
       *(pod(index, with_condition(UNBOUND, "PodScheduled", "False", "Unschedulable")) for index in (1, 2)))
expect("pods without a status of containers", "Created 0/2 0 Pending", job("Created", age_s=5), *pods(status=UNBOUND))
for seconds in (5, 1200):
    expect(f"containers are created for {seconds}s", "Created 0/2 0 ContainerCreating", job("Created", age_s=seconds),
           *pods(status=waiting("ContainerCreating")), Worker_0=("ContainerCreating", False, False, 0))
INIT: Final = waiting("PodInitializing")
expect("an init container runs", "Created 0/2 0 PodInitializing", CREATED,
       *pods(status=after_init(INIT, {"running": {"startedAt": at(60)}})))
expect("an init container fails again and again", "Created 1/2 4 CrashLoopBackOff",
       job("Created", restarts=[{"type": "Worker", "index": 1, "inPlace": 4, "pod": "uid-mnist-worker-1"}]), pod(0),
       pod(1, after_init(INIT, {"waiting": {"reason": "CrashLoopBackOff"}}, last=exit_of(1), restarts=4)))
expect("an init container is killed by OOM again and again", "Created 1/2 4 OOMKilled",
       job("Created", restarts=[{"type": "Worker", "index": 1, "inPlace": 4, "pod": "uid-mnist-worker-1"}]), pod(0),
       pod(1, after_init(INIT, {"waiting": {"reason": "CrashLoopBackOff"}}, last=exit_of(137, "OOMKilled"), restarts=4)))
FAILED_INIT: Final = after_init(INIT | {"phase": "Failed"}, {"terminated": exit_of(1)})
expect("an init container has failed", "Created 1/2 0 ExitCode:1", CREATED, pod(0), pod(1, FAILED_INIT))
KILLED_INIT: Final = after_init(INIT | {"phase": "Failed"}, {"terminated": exit_of(0, "OOMKilled")})
expect("an init container exited with 0 after OOM, so the pod has failed", "Created 1/2 0 OOMKilled", CREATED, pod(0),
       pod(1, KILLED_INIT))
expect("a pod was evicted", "Running 1/2 0 Evicted", UP, pod(0),
       pod(1, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
       Worker_0=KEPT, Worker_1=("Evicted", False, False, 0))
expect("a pod was evicted while it ran", "Running 1/2 0 Evicted", UP, pod(0), pod(1, ended(137) | {"reason": "Evicted"}))
expect("a pod reached its own deadline", "Running 1/2 0 DeadlineExceeded", UP, pod(0),
       pod(1, ended(143) | {"reason": "DeadlineExceeded"}))
expect("a pod was rejected by its node", "Created 1/2 0 OutOfcpu", CREATED, pod(0),
       pod(1, {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu"}))

# --- Pods that cannot be created, are created again, or wait for that ---

QUOTA: Final = 'Error creating: pods "mnist-worker-1" is forbidden: exceeded quota: team, requested: pods=1'
NOBODY: Final = 'Error creating: pods "mnist-worker-1" is forbidden: serviceaccount "nobody" not found'
expect("a quota is exceeded", "Created 0/2 0 QuotaExceeded", CREATED, events=[event("FailedCreatePod", QUOTA)])
expect("a quota is exceeded by one pod", "Running 1/2 0 QuotaExceeded", UP, pod(0), Worker_0=KEPT, Worker_1=MISSING,
       events=[event("FailedCreatePod", QUOTA)])
expect("a quota is exceeded in the first minute", "Created 0/2 0 QuotaExceeded", job("Created", age_s=30),
       events=[event("FailedCreatePod", QUOTA, 29)])
expect("pods are refused", "Created 0/2 0 FailedCreatePod", CREATED, events=[event("FailedCreatePod", NOBODY)])
expect("the newest event counts", "Created 0/2 0 FailedCreateService", CREATED,
       events=[event("FailedCreateService", "no", 10), event("FailedCreatePod", QUOTA, 20)])
expect("PodGroups are not served", "Created 0/2 0 PodGroupsUnavailable", CREATED, events=[event("PodGroupsUnavailable", "no")])
expect("pods were refused to an earlier job of this name", "Created 0/2 0 NotReconciled", CREATED,
       events=[event("FailedCreatePod", QUOTA, uid="uid-earlier")])
expect("pods were refused, and then created", "Running 2/2 0", UP, *pods(), events=[event("FailedCreatePod", QUOTA)])
expect("pods were refused, and now start", "Created 0/2 0 ContainerCreating", CREATED,
       *(pod(index, waiting("ContainerCreating"), creationTimestamp=at(30)) for index in range(2)),
       events=[event("FailedCreatePod", QUOTA, 1800)])
expect("a volume is not mounted", "Created 1/2 0 FailedMount", CREATED, pod(0), pod(1, waiting("ContainerCreating")),
       events=[event("FailedMount", 'MountVolume.SetUp failed for volume "d": secret "d" not found', 5, "mnist-worker-1")])
expect("a pod was refused, and a newer event says that another one has no volume", "Created 0/2 0 FailedMount", CREATED,
       pod(0, waiting("ContainerCreating")),
       events=[event("FailedCreatePod", QUOTA, 300), event("FailedMount", "no volume", 5, "mnist-worker-0")])
expect("a volume was not mounted at first", "Running 2/2 0", UP, *pods(),
       events=[event("FailedMount", 'MountVolume.SetUp failed for volume "d": secret "d" not found', 5, "mnist-worker-1")])
expect("a pod crashes, and another one is refused", "Running 0/2 6 CrashLoopBackOff", UP,
       pod(0, LOOP), events=[event("FailedCreatePod", QUOTA)])
expect("a pod is not created, and another one is not scheduled", "Created 0/2 0 QuotaExceeded", CREATED,
       pod(0, with_condition(UNBOUND, "PodScheduled", "False", "Unschedulable")) | {"spec": {}},
       events=[event("FailedCreatePod", QUOTA)])
expect("a pod is not created, and another one is pending", "Created 0/2 0 QuotaExceeded", CREATED, pod(0, UNBOUND),
       events=[event("FailedCreatePod", QUOTA)])
expect("a pod is deleted, and another one is on a lost node", "Running 0/2 0 PodTerminating", UP, pod(0, LOST),
       pod(1, **deleted(5)))
expect("a pod is on a lost node, and another replica has no pod", "Running 0/2 0 NodeNotReady", UP, pod(0, LOST))
expect("a pod is on a lost node, and another one is not ready", "Running 0/2 0 NodeNotReady", UP, pod(0, LOST),
       pod(1, running(ready=False)))
expect("a pod is not ready, and another replica has no pod for long", "Running 0/2 0 NotReconciled", UP,
       pod(0, running(ready=False)))
expect("a pod is not ready, and another replica has no pod yet", "Created 0/2 0 Starting", job("Created", age_s=30),
       pod(0, running(20, ready=False)))
expect("a replica has no pod for long", "Running 1/2 0 NotReconciled", UP, pod(0), Worker_0=KEPT, Worker_1=MISSING)
expect("one pod starts, and another one is deleted", "Running 0/2 0 ContainerCreating", UP, pod(0, **deleted(5)),
       pod(1, waiting("ContainerCreating")))

RESTARTED: Final = {"type": "Worker", "index": 1, "carried": 3}
WAITS: Final = job("Created", "Restarting:20", nextRestartTime=at(-40), restarts=[{**RESTARTED, "nextTime": at(-40)}])
expect("a restart is delayed by 40s", "Restarting 1/2 3 BackOff:40s", WAITS, pod(0),
       Worker_0=KEPT, Worker_1=("BackOff", False, False, 3))
expect("a restart is delayed, and another pod has no image", "Restarting 0/2 3 ImagePullBackOff", WAITS,
       pod(0, waiting("ImagePullBackOff")), Worker_1=("BackOff", False, False, 3))
expect("a restart is delayed, and another replica has no pod", "Restarting 0/2 3 BackOff:40s", WAITS,
       Worker_0=MISSING, Worker_1=("BackOff", False, False, 3))
PAST: Final = [{"number": number, "startTime": at(3500), "endTime": at(3400), "exitCode": 1} for number in range(2)]
expect("a restart is delayed, and another pod is refused", "Restarting 0/2 3 BackOff:40s", WAITS,
       events=[event("FailedCreatePod", QUOTA)])
AGAIN: Final[dict[str, Any]] = {"attempt": 2, "countedRestarts": 2, "attemptHistory": PAST}
expect("a restart of the whole job is delayed by 4s", "Restarting 0/2 2 BackOff:4s",
       job("Created", "Restarting:15", nextRestartTime=at(-4), **AGAIN),
       Worker_0=("BackOff", False, False, 0), Worker_1=("BackOff", False, False, 0))
for seconds, why in ((-1, "BackOff:1s"), (1, "Restarting")):
    expect(f"a restart is due since {seconds}s", f"Restarting 0/2 2 {why}",
           job("Created", "Restarting:150", nextRestartTime=at(seconds), **AGAIN))
expect("a delay is longer than a minute", "Restarting 0/2 2 BackOff:2m30s",
       job("Created", "Restarting:150", nextRestartTime=at(-150), **AGAIN))
expect("a restart of the whole job is delayed, and pods end", "Restarting 0/2 2 BackOff:4s",
       job("Created", "Restarting:15", nextRestartTime=at(-4), **AGAIN), *(pod(index, **deleted(5)) for index in range(2)),
       Worker_0=ENDS, Worker_1=ENDS)
expect("a restart of the whole job waits for pods", "Restarting 0/2 2 PodTerminating",
       job("Created", "Restarting:15", **AGAIN), pod(0, **deleted(5)), Worker_0=ENDS, Worker_1=MISSING)
expect("a restart waits for a sidecar", "Restarting 1/2 1 ExitCode:137",
       job("Created", "Restarting:5", restarts=[{"type": "Worker", "index": 1, "replaced": True, "pod": "uid-mnist-worker-1"}]),
       pod(0), pod(1, beside(status_of("Running", {"terminated": exit_of(137, ago_s=5)}), WORKS)))
expect("the delay of a restart is over for 30s", "Restarting 0/2 2 Restarting",
       job("Created", "Restarting:40", nextRestartTime=at(30), **AGAIN), Worker_0=MISSING)
expect("the delay of a restart was longer than a minute, and is over for 30s", "Restarting 0/2 2 Restarting",
       job("Created", "Restarting:180", nextRestartTime=at(30), **AGAIN))
expect("the delay of a restart is over for 2m", "Restarting 0/2 2 NotReconciled",
       job("Created", "Restarting:130", nextRestartTime=at(120), **AGAIN))
for seconds, why in ((30, "Restarting"), (59, "Restarting"), (61, "NotReconciled"), (600, "NotReconciled")):
    expect(f"restarted {seconds}s ago, without a pod", f"Restarting 1/2 1 {why}",
           job("Created", f"Restarting:{seconds}", restarts=[{"type": "Worker", "index": 1, "carried": 1}]), pod(0),
           Worker_0=KEPT, Worker_1=("Missing", False, False, 1))
expect("restarts of replicas and of the whole job", "Running 2/2 9",
       job("Created", "Running", attempt=4, restarts=[{**RESTARTED, "inPlace": 1, "replaced": True}]),
       pod(0), pod(1, running(last=exit_of(1, ago_s=3500), restarts=1)), Worker_0=KEPT, Worker_1=("Running", True, True, 5))
FAILED_AGAIN: Final = job("Created", "Running", restarts=[{**RESTARTED, "failedAt": at(150)}])
expect("a pod was recreated three times, runs for 2m, and its failure is recorded", "Running 2/2 3 Restarts:3", FAILED_AGAIN,
       pod(0), pod(1, running(120)))
expect("a pod that was recreated three times starts", "Running 1/2 3 Restarts:3", FAILED_AGAIN,
       pod(0), pod(1, waiting("ContainerCreating")))
expect("a pod was recreated three times, and the last failure is long ago", "Running 2/2 3",
       job("Created", "Running", restarts=[{**RESTARTED, "failedAt": at(601)}]), *pods())
expect("a pod was recreated once, and its failure is recent", "Running 2/2 1",
       job("Created", "Running", restarts=[{**RESTARTED, "carried": 1, "failedAt": at(150)}]), *pods())
expect("a pod was recreated three times, and has succeeded since", "Running 1/2 3",
       job("Created", "Running", finishedIndices={"Worker": "1"}, restarts=[{**RESTARTED, "failedAt": at(150)}]), pod(0))
expect("a pod was recreated three times, and surplus since a job was scaled down", "Running 1/1 3",
       job("Created", "Running", spec=wanting(Worker=1), restarts=[{**RESTARTED, "failedAt": at(150)}]), pod(0))
def always(status: Any) -> dict[str, Any]:
    found = pod(1, status)
    found["spec"]["restartPolicy"] = "Always"
    return found


expect("a program that ends with 0 is restarted again and again under Always", "Running 2/2 4 Completed",
       job("Created", "Running"), pod(0), always(running(120, last=exit_of(0, "Completed", 121), restarts=4)))
expect("the same, and its next run has ended too", "Running 1/2 4 Completed", job("Created", "Running"), pod(0),
       always(status_of("Running", {"terminated": exit_of(0, "Completed", 1)}, last=exit_of(0, "Completed", 9), restarts=4)))
expect("the same, and it has run for ten minutes since", "Running 2/2 4",
       job("Created", "Running"), pod(0), always(running(601, last=exit_of(0, "Completed", 602), restarts=4)))
expect("a pod was recreated three times, and runs for 2m", "Running 2/2 3", job("Created", "Running", restarts=[RESTARTED]),
       pod(0), pod(1, running(120), creationTimestamp=at(125)), Worker_1=("Running", True, True, 3))
NEWEST: Final = pod(1, running(30), creationTimestamp=at(35))
LASTING: Final = job("Created", "Running")
ENDED_BY: Final = "Pod: team.mnist-worker-1 exited with code 137"
expect("a pod was evicted by API five times, and the next one runs", "Running 2/2 0 Recreated:5", LASTING, pod(0), NEWEST,
       events=[recreated(5)])
expect("a pod was evicted by API five times, and the next one starts", "Running 1/2 0 Recreated:5", LASTING, pod(0),
       pod(1, waiting("ContainerCreating"), creationTimestamp=at(5)), events=[recreated(5)])
expect("a pod was evicted by API five times, and is not created yet", "Running 1/2 0 Recreated:5", LASTING, pod(0),
       events=[recreated(5)])
expect("a pod was evicted four times by its kubelet, and events of creations are missing", "Running 2/2 0 Recreated:4", LASTING,
       pod(0), NEWEST, events=[recreated(1, 1700), counted("ExitedWithCode", f"{ENDED_BY}: Evicted: disk", 4)])
expect("a pod was evicted twice by its kubelet", "Running 2/2 0 Recreated:2", LASTING, pod(0), NEWEST,
       events=[recreated(2), counted("ExitedWithCode", f"{ENDED_BY}: Evicted: disk", 2)])
expect("a pod was evicted once by its kubelet", "Running 2/2 0", LASTING, pod(0), NEWEST,
       events=[recreated(1), counted("ExitedWithCode", f"{ENDED_BY}: Evicted: disk", 1)])
expect("a pod was evicted by API once", "Running 2/2 0", LASTING, pod(0), NEWEST, events=[recreated(1)])
expect("a pod was evicted by API twice", "Running 2/2 0 Recreated:2", LASTING, pod(0), NEWEST, events=[recreated(2)])
expect("a pod was evicted by API five times, and has run for ten minutes since", "Running 2/2 0", LASTING,
       pod(0), pod(1, running(600), creationTimestamp=at(605)), events=[recreated(5, 605)])
expect("a pod was recreated four times, of which three were restarts", "Running 2/2 3",
       job("Created", "Running", restarts=[RESTARTED]), pod(0), NEWEST, events=[recreated(4)])
expect("a job was resumed three times", "Running 2/2 0", LASTING, pod(0), NEWEST,
       events=[recreated(4), counted("TFJobResumed", "TFJob mnist is resumed.", 3)])
expect("a job was restarted as a whole five times", "Running 2/2 5", job("Created", "Running", attempt=5),
       pod(0), NEWEST, events=[recreated(5)])
expect("an init container was restarted twice, and the training runs for 2m", "Running 2/2 2",
       job("Created", "Running", restarts=[{"type": "Worker", "index": 1, "inPlace": 2, "pod": "uid-mnist-worker-1"}]),
       pod(0), pod(1, after_init(running(120), {"terminated": exit_of(0, "Completed")}, last=exit_of(1), restarts=2)))
expect("a pod shows restarts that are not recorded yet", "Running 2/2 4", job("Created", "Running", restarts=[RESTARTED]),
       pod(0), pod(1, running(last=exit_of(1, ago_s=3500), restarts=4)), Worker_1=("Running", True, True, 4))

# --- Failed jobs ---

KILLED: Final = "Pod mnist-worker-1: container tensorflow exited with code 137 (OOMKilled)"
expect("failed by OOM, with its pod", "Failed 0/2 0 OOMKilled", fell(KILLED), pod(1, ended(137, "OOMKilled")),
       Worker_0=("No pod", False, False, 0), Worker_1=("Failed", False, False, 0))
expect("failed by OOM, without pods", "Failed 0/2 0 OOMKilled", fell(KILLED), Worker_1=("No pod", False, False, 0))
THREE: Final = "Pod mnist-worker-1: container tensorflow exited with code 3: ValueError: no data"
expect("failed by an exit code, without pods", "Failed 0/2 0 ExitCode:3", fell(THREE))
expect("failed by an exit code, with its pod", "Failed 0/2 0 ExitCode:3", fell(THREE), pod(1, ended(3)),
       Worker_1=("Failed", False, False, 0))
expect("failed by an exit code, and the others failed when they were deleted", "Failed 0/3 0 ExitCode:3",
       fell(THREE, spec=wanting(Worker=3)), pod(0, ended(143)), pod(1, ended(3)), pod(2, ended(143)))
expect("failed by the first of several pods", "Failed 0/2 0 ExitCode:3",
       fell("The first was pod mnist-worker-1: container tensorflow exited with code 3"), pod(0, ended(1)), pod(1, ended(3)))
for cause, words in {
    "Evicted": "Evicted (The node was low on resource: memory. )",
    "NodeLost": "NodeLost (node-1 is lost)",
    "DeadlineExceeded": "DeadlineExceeded (Pod was active on the node longer than the specified deadline); "
                        "container tensorflow exited with code 143",
}.items():
    expect(f"failed by a pod: {cause}", f"Failed 0/2 0 {cause}", fell(f"Pod mnist-worker-1: {words}", begun={"ending": {
        "type": "Failed", "reason": "TFJobFailed", "failure": {"reason": cause, "exitCode": 143}}}))
    expect(f"0.2.0: failed by a pod: {cause}", f"Failed 0/2 0 {cause}", fell(f"Pod mnist-worker-1: {words}"))
expect("failed by an init container", "Failed 0/2 0 ExitCode:1",
       fell("Pod mnist-worker-1: container fetch exited with code 1"), pod(1, FAILED_INIT))
expect("failed by an init container that exited with 0 after OOM", "Failed 0/2 0 OOMKilled",
       fell("Pod mnist-worker-1: the kubelet reported no container status"),
       pod(1, KILLED_INIT))
# Kubelet 1.20: the runtime did not create the container within two minutes.
NOT_CREATED: Final = status_of("Failed", {"waiting": {"reason": "CreateContainerError", "message": "name is reserved"}},
                               last={"exitCode": 0, "startedAt": None, "finishedAt": None})
NEVER_STARTED: Final = {"replicaType": "Worker", "replicaIndex": 1, "podName": "mnist-worker-1", "containerName": "tensorflow"}
for what, shown, pods_left, reason in (
    ("the record has the reason", {"reason": "CreateContainerError"}, (), "CreateContainerError"),
    ("an earlier record has an exit code", {"reason": "Error", "exitCode": 0}, (pod(1, NOT_CREATED),), "CreateContainerError"),
    ("only an earlier record is left", {"reason": "Error", "exitCode": 0}, (), "TFJobFailed"),
):
    expect(f"failed, for a container was not created: {what}", f"Failed 0/2 0 {reason}", fell("", begun={"ending": {
        "type": "Failed", "reason": "TFJobFailed", "time": at(601), "failure": NEVER_STARTED | shown}}), *pods_left)
expect("failed, and only the record of its end has the exit code", "Failed 0/2 0 ExitCode:3", fell("", begun={"ending": {
    "type": "Failed", "reason": "TFJobFailed", "time": at(601),
    "failure": {"replicaType": "Worker", "replicaIndex": 1, "reason": "Error", "exitCode": 3}}}))
expect("failed, and only the record of its end has the reason", "Failed 0/2 0 OOMKilled", fell("", begun={"ending": {
    "type": "Failed", "reason": "TFJobFailed", "time": at(601),
    "failure": {"replicaType": "Worker", "replicaIndex": 1, "reason": "OOMKilled", "exitCode": 137}}}))
expect("failed for an unknown reason", "Failed 0/2 0 TFJobFailed", fell(""))
LIMITS: Final = {
    "BackoffLimitExceeded": "it has reached the specified backoff limit. Pod mnist-worker-1 was restarted most often (twice); "
                            "its last failure: container tensorflow exited with code 1",
    "DeadlineExceeded": "it was active longer than specified deadline",
    "MaxRestartsExceeded": "it was restarted as often as maxRestarts allows. Rule any: pod mnist-worker-0: container "
                           "tensorflow exited with code 42",
    "StartDeadlineExceeded": "not all of its replicas ran within the start deadline. 2 did not, the first is mnist-worker-0",
}
for limit, words in LIMITS.items():
    expect(f"failed at a limit: {limit}", f"Failed 0/2 0 {limit}",
           failed(why=("JobFailed", f"Job mnist has failed because {words}")), pod(1, ended(1)))
expect("failed at its backoffLimit: the last failure was counted, and no pod replaces it",
       "Failed 0/2 2 BackoffLimitExceeded",
       failed(why=("JobFailed", f"Job mnist has failed because {LIMITS['BackoffLimitExceeded']}"), begun={"ending": {
           "type": "Failed", "reason": "JobFailed", "event": "BackoffLimitExceeded", "failure": {
               "replicaType": "Worker", "replicaIndex": 1, "reason": "Error", "exitCode": 1}}},
              restarts=[{"type": "Worker", "index": 1, "carried": 2, "replaced": True, "pod": "uid-mnist-worker-1"}]),
       pod(1, ended(1)), Worker_1=("Failed", False, False, 2))
expect("failed at its backoffLimit when two pods failed at once: neither was replaced",
       "Failed 0/2 1 BackoffLimitExceeded",
       failed(why=("JobFailed", f"Job mnist has failed because {LIMITS['BackoffLimitExceeded']}"), begun={"ending": {
           "type": "Failed", "reason": "JobFailed", "event": "BackoffLimitExceeded", "failure": {
               "replicaType": "Worker", "replicaIndex": 1, "reason": "Error", "exitCode": 1}}},
              restarts=[{"type": "Worker", "index": 0, "carried": 0, "replaced": True, "pod": "uid-mnist-worker-0"},
                        {"type": "Worker", "index": 1, "carried": 1, "replaced": True, "pod": "uid-mnist-worker-1"}]),
       pod(0, ended(1)), pod(1, ended(1)), Worker_0=("Failed", False, False, 0), Worker_1=("Failed", False, False, 1))
expect("failed at its backoffLimit, after another pod was replaced: this restart counts, though it is recorded in the same way",
       "Failed 1/2 1 BackoffLimitExceeded",
       failed(why=("JobFailed", f"Job mnist has failed because {LIMITS['BackoffLimitExceeded']}"), begun={"ending": {
           "type": "Failed", "reason": "JobFailed", "event": "BackoffLimitExceeded", "failure": {
               "replicaType": "Worker", "replicaIndex": 1, "reason": "Error", "exitCode": 1}}},
              restarts=[{"type": "Worker", "index": 0, "carried": 0, "replaced": True, "pod": "uid-of-a-former-pod"},
                        {"type": "Worker", "index": 1, "carried": 0, "replaced": True, "pod": "uid-mnist-worker-1"}]),
       pod(0), pod(1, ended(1)), Worker_0=("Running", True, True, 1), Worker_1=("Failed", False, False, 0))
expect("failed at its backoffLimit by the restarts of a sidecar", "Failed 0/2 4 BackoffLimitExceeded:metrics",
       failed(why=("JobFailed", f"Job mnist has failed because {LIMITS['BackoffLimitExceeded']}"), begun={"ending": {
           "type": "Failed", "reason": "JobFailed", "event": "BackoffLimitExceeded", "failure": {
               "replicaType": "Worker", "replicaIndex": 1, "reason": "Error", "exitCode": 7, "containerName": "metrics"}}},
              restarts=[{"type": "Worker", "index": 1, "inPlace": 4, "pod": "uid-mnist-worker-1"}]))
expect("failed at its backoffLimit by the restarts of the training", "Failed 0/2 4 BackoffLimitExceeded",
       failed(why=("JobFailed", f"Job mnist has failed because {LIMITS['BackoffLimitExceeded']}"), begun={"ending": {
           "type": "Failed", "reason": "JobFailed", "event": "BackoffLimitExceeded", "failure": {
               "replicaType": "Worker", "replicaIndex": 1, "reason": "Error", "exitCode": 1, "containerName": "tensorflow"}}},
              restarts=[{"type": "Worker", "index": 1, "inPlace": 4, "pod": "uid-mnist-worker-1"}]))
expect("failed at a limit that only the record of its end names", "Failed 0/2 0 DeadlineExceeded",
       failed(why=("JobFailed", "Too late."),
              begun={"ending": {"type": "Failed", "reason": "JobFailed", "event": "DeadlineExceeded"}}))
TWO_BY_RULE: Final = "pod mnist-worker-0: container tensorflow exited with code 2"
expect("failed by a rule", "Failed 0/2 0 PodFailurePolicy", failed(
    why=("PodFailurePolicy", f"TFJob team/mnist has failed by rule args: {TWO_BY_RULE}")), pod(0, ended(2)))
expect("failed because its spec is invalid", "Failed 0/2 0 InvalidTFJobSpec", told(
    job("Created", "Failed"), "InvalidTFJobSpec", "spec.tfReplicaSpecs.Worker.template: Required value"))

# --- Held, deleted and suspended jobs ---

for reason in ("InvalidTFJobSpec", "RefusedTFJobSpec", "TFJobTooLarge"):
    expect(f"held: {reason}", f"Running 2/2 0 {reason}", told(job("Created", "Held", "Running"), reason, "spec.x: no", "Held"),
           *pods(), Worker_0=KEPT, Worker_1=KEPT)
expect("held, and a pod crashes", "Running 1/2 6 InvalidTFJobSpec",
       told(job("Created", "Held", "Running"), "InvalidTFJobSpec", "spec.x: no", "Held"), pod(0),
       pod(1, LOOP))
expect("held while it is suspended", "Suspended 0/2 0 InvalidTFJobSpec", told(
    job("Created", "Held", "Suspended", policy={"suspend": True}), "InvalidTFJobSpec", "spec.x: no", "Held"))
STALLED: Final = told(job("Created", "Stalled", "Running"), "ProgressDeadlineExceeded", "no new log line for 600s", "Stalled")
expect("stalled", "Running 2/2 0 Stalled", STALLED, *pods(), Worker_0=KEPT, Worker_1=KEPT)
expect("stalled, and its probes see it", "Running 1/2 0 Stalled", STALLED, pod(0), pod(1, running(ready=False)))
expect("stalled, and a pod crashes", "Running 1/2 6 CrashLoopBackOff", STALLED, pod(0), pod(1, LOOP))
expect("stalled once", "Running 2/2 0", told(job("Created", "-Stalled", "Running"), "TFJobProgressing", "", "Stalled"), *pods())
expect("stalled when an older release ended it", "Succeeded 0/2 0", job(
    "Created", "Stalled", "Succeeded", completionTime=at(60)))
expect("stalled when an older release suspended it", "Suspended 0/2 0 Suspended", job(
    "Created", "Stalled", "Suspended", policy={"suspend": True}))
expect("held once", "Running 2/2 0", told(job("Created", "-Held", "Running"), "TFJobSpecMended", "", "Held"), *pods())
expect("failed at its deadline while it was held", "Failed 0/2 0 DeadlineExceeded", told(told(
    job("Created", "Held", "Failed", completionTime=at(60)), "InvalidTFJobSpec", "spec.x: no", "Held"),
    "JobFailed", f"Job mnist has failed because {LIMITS['DeadlineExceeded']}"))
GOES: Final = deleted(40, finalizers=["foregroundDeletion"])
expect("deleted while it runs", "Running 0/2 0 Terminating", job("Created", "Running", meta=GOES),
       *(pod(index, **deleted(5)) for index in range(2)))
expect("deleted while it was suspended", "Suspended 0/2 0 Terminating",
       job("Created", "Suspended", policy={"suspend": True}, meta=GOES))
expect("deleted after it had failed", "Failed 0/2 0 Terminating", fell(KILLED, meta=GOES), pod(1, ended(137, "OOMKilled")))
expect("deleted after it had succeeded", "Succeeded 0/2 0 Terminating", job("Created", "-Running", "Succeeded", meta=GOES))
STOP: Final = {"suspend": True}
ASIDE: Final = ("Suspended", False, False, 0)
expect("suspended", "Suspended 0/2 0 Suspended", job("Created", "-Running", "Suspended", policy=STOP),
       Worker_0=ASIDE, Worker_1=ASIDE)
expect("suspended, and its pods end", "Suspended 0/2 0 Suspended", job("Created", "-Running", "Suspended:5", policy=STOP),
       *(pod(index, **deleted(5)) for index in range(2)), Worker_0=("Terminating", False, False, 0))
expect("suspended, and a finalizer keeps a pod", "Suspended 0/2 0 PodTerminating",
       job("Created", "-Running", "Suspended:600", policy=STOP), pod(**deleted(500, finalizers=["example.com/backup"])))
expect("suspended, and the operator has not seen it", "Running 2/2 0 Suspended",
       job("Created", "Running", policy=STOP), *pods())
expect("created suspended, and seen by no operator", "New 0/2 0 Suspended", job(policy=STOP))
expect("suspended after a worker had succeeded and others restarted", "Suspended 0/2 3 Suspended",
       job("Created", "-Running", "Suspended", policy=STOP, finishedIndices={"Worker": "0"}, restarts=[RESTARTED]),
       Worker_0=("Succeeded", False, False, 0), Worker_1=("Suspended", False, False, 3))

# --- Kueue: a job that waits ---


WAITING: Final = job("Created", "Suspended", policy=STOP, meta=QUEUED)
HAS_QUOTA: Final = "QuotaReserved True QuotaReserved Quota reserved in ClusterQueue gpus"
for words, why in {
    "insufficient unused quota for cpu in flavor default, 1 more needed": "Queued",
    "> maximum capacity": "NeverFits",
    "resource nvidia.com/gpu unavailable in ClusterQueue": "NeverFits",
    "requests must not exceed its limits": "NeverFits",
    "does not support TopologyAwareScheduling": "NeverFits",
    "does not support use of resource claims": "NeverFits",
    "LocalQueue nosuch doesn't exist": "QueueMissing",
    "ClusterQueue nosuchcq doesn't exist": "QueueMissing",
    "ClusterQueue cqe4hold is inactive": "QueueStopped",
    "LocalQueue qlh is inactive": "QueueStopped",
    "workload namespace doesn't match ClusterQueue selector": "NamespaceMismatch",
    "Exceeded the PodsReady timeout": "PodsReadyTimeout",
}.items():
    expect(f"Kueue: {words}", f"Suspended 0/2 0 {why}", WAITING, workload=recorded("waiting", words), Worker_0=ASIDE)
PREEMPTED: Final = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
NO_ROOM: Final = "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor default, 2 more needed"
FULL: Final = workload(f"QuotaReserved False Pending {NO_ROOM}")
expect("Kueue: preempted, and its pods are gone", "Suspended 0/2 0 Preempted", WAITING,
       workload=recorded("suspension", "Preempted to accommodate"))
expect("Kueue: preempted, and queued again", "Suspended 0/2 0 Preempted", WAITING, workload=workload(
    f"QuotaReserved False Pending {NO_ROOM}", f"Evicted True Preempted {PREEMPTED}", f"Requeued True Preempted {PREEMPTED}"))
expect("Kueue: preempted, and its pods end", "Suspended 0/2 0 Preempted", WAITING,
       *(pod(index, **deleted(5)) for index in range(2)), workload=workload(HAS_QUOTA, f"Evicted True Preempted {PREEMPTED}"))
expect("Kueue: preempted, and its queue is stopped since", "Suspended 0/2 0 QueueStopped", WAITING, workload=workload(
    "QuotaReserved False Inadmissible ClusterQueue gpus is inactive", f"Evicted True Preempted {PREEMPTED}"))
expect("Kueue: preempted before its last run", "Running 2/2 0", job("Created", "Running", meta=QUEUED), *pods(),
       workload=workload(HAS_QUOTA, f"Evicted False QuotaReserved Previously: {PREEMPTED}", "Admitted True Admitted yes"))
for kind in ("ClusterQueue", "LocalQueue"):
    expect(f"Kueue: its {kind} was stopped while it ran", "Suspended 0/2 0 QueueStopped", WAITING,
           workload=workload(HAS_QUOTA, f"Evicted True {kind}Stopped The {kind} is stopped"))
    expect(f"Kueue: evicted from a stopped {kind}", "Suspended 0/2 0 QueueStopped", WAITING, workload=workload(
        f"QuotaReserved False Inadmissible {kind} gpus is inactive", f"Evicted True {kind}Stopped The {kind} is stopped"))
expect("Kueue: its queue was stopped, and is active again", "Suspended 0/2 0 Queued", WAITING, workload=workload(
    f"QuotaReserved False Pending {NO_ROOM}", "Evicted True ClusterQueueStopped The ClusterQueue is stopped"))
expect("Kueue: not looked at yet, with a check", "Suspended 0/2 0 Queued", WAITING, workload=workload(check="Pending"))
expect("Kueue: waits for a check", "Suspended 0/2 0 CheckPending", WAITING, workload=workload(HAS_QUOTA, check="Pending"))
expect("Kueue: has no quota, so its check has not begun", "Suspended 0/2 0 Queued", WAITING,
       workload=workload(f"QuotaReserved False Pending {NO_ROOM}", check="Pending"))
expect("Kueue: a check is rejected", "Suspended 0/2 0 CheckRejected", WAITING,
       workload=workload(HAS_QUOTA, check="Rejected no room at all"))
TRY: Final = 'Evicted due to AdmissionCheck in Retry state: "stub" (try later)'
expect("Kueue: a check is to be retried", "Suspended 0/2 0 CheckPending", WAITING, workload=workload(
    f"QuotaReserved False Pending {TRY}", f"Evicted True AdmissionCheck {TRY}",
    check="Pending Reset to Pending after eviction. Previously: Retry"))
OFF: Final = "The workload is deactivated"
NO_CHECK: Final = f'{OFF} due to AdmissionCheck in Rejected state: "stub" (no room at all)'
expect("Kueue: deactivated by a rejected check", "Suspended 0/2 0 CheckRejected", WAITING, workload=workload(
    f"QuotaReserved False Pending {NO_CHECK}", f"Evicted True DeactivatedDueToAdmissionCheck {NO_CHECK}",
    active=False, check="Pending Reset to Pending after eviction. Previously: Rejected"))
expect("Kueue: deactivated by a person", "Suspended 0/2 0 Deactivated", WAITING, workload=workload(
    f"QuotaReserved False Pending {OFF}", f"Evicted True Deactivated {OFF}", active=False))
expect("Kueue: deactivated before it ever ran", "Suspended 0/2 0 Deactivated", WAITING, workload=workload(active=False))
expect("Kueue: activated again", "Suspended 0/2 0 Queued", WAITING, workload=workload(
    f"QuotaReserved False Pending {OFF}", f"Evicted True Deactivated {OFF}",
    "Requeued True Reactivated The workload was reactivated"))
for cause in ("RequeuingLimitExceeded", "MaximumExecutionTimeExceeded"):
    for active in (False, True):
        expect(f"Kueue: deactivated due to {cause}, active {active}", "Suspended 0/2 0 Deactivated", WAITING, workload=workload(
            f"QuotaReserved False Pending {OFF} due to it", f"Evicted True DeactivatedDueTo{cause} {OFF} due to it",
            f"Requeued False DeactivatedDueTo{cause} {OFF} due to it", active=active))
expect("Kueue: a node was lost, and it is queued again", "Suspended 0/2 0 Queued", WAITING, workload=workload(
    f"QuotaReserved False Pending {NO_ROOM}", "Evicted True NodeFailures The node is lost", "Requeued True NodeFailures again"))
expect("Kueue: not looked at yet", "Suspended 0/2 0 Queued", WAITING, workload=workload())
expect("Kueue: admitted, and about to be resumed", "Suspended 0/2 0 Queued", WAITING,
       workload=workload(HAS_QUOTA, "Admitted True Admitted The workload is admitted"))
expect("Kueue: no Workload", "Suspended 0/2 0 Queued", WAITING)
expect("Kueue: waits, and no operator has seen it", "New 0/2 0 Queued", job(policy=STOP, meta=QUEUED),
       workload=FULL)
expect("Kueue: the Workload of an earlier job", "Suspended 0/2 0 Queued", WAITING,
       workload=workload("QuotaReserved False Inadmissible LocalQueue gpus doesn't exist", name="earlier"))
expect("Kueue: waits while it is held", "Suspended 0/2 0 TFJobTooLarge", told(
    job("Created", "Held", "Suspended", policy=STOP, meta=QUEUED), "TFJobTooLarge", "spec.x: no", "Held"),
       workload=FULL)
expect("Kueue: waits, and is deleted", "Suspended 0/2 0 Terminating",
       job("Created", "Suspended", policy=STOP, meta=QUEUED | GOES), workload=FULL)

# --- The end of a queued job is decided, and not written yet ---

WON: Final = ("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
expect("ending in success, and a worker still runs", "Ending 1/3 0", ending(*WON), pod(0, ended(0), kind="Chief"), pod(0),
       Chief_0=DONE, Worker_0=KEPT, Worker_1=("No pod", False, False, 0))
expect("ending in success, and pods end", "Ending 0/3 0", ending(*WON), pod(0, ended(0), kind="Chief"),
       *(pod(index, **deleted(5)) for index in range(2)), Worker_1=("Terminating", False, False, 0))
expect("ending in success, and a pod fails when it is deleted", "Ending 0/3 0", ending(*WON), pod(1, ended(143), **deleted(5)))
expect("ending in success while it is held", "Ending 1/3 0",
       told(ending(*WON, "Held"), "InvalidTFJobSpec", "no", "Held"), pod(0))
expect("ending in success while its restarts are delayed", "Ending 1/3 2",
       ending(*WON) | {"status": ending(*WON)["status"] | AGAIN | {"nextRestartTime": at(-40)}}, pod(0))
LOSES: Final = ("Failed", "TFJobFailed", f"TFJob team/mnist has failed because 1 Worker replica(s) failed. {THREE}")
expect("ending in failure by an exit code", "Ending 0/3 0 ExitCode:3",
       ending(*LOSES, failure={"exitCode": 3, "reason": "Error"}), pod(0, **deleted(5)), pod(1, ended(3)))
expect("ending in failure by OOM", "Ending 1/3 0 OOMKilled",
       ending("Failed", "TFJobFailed", f"It failed. {KILLED}", failure={"exitCode": 137, "reason": "OOMKilled"}), pod(0))
expect("ending in failure by an eviction", "Ending 1/3 0 Evicted", ending(
    "Failed", "TFJobFailed", "It failed. Pod mnist-worker-1: Evicted (low on memory)", failure={"reason": "Evicted"}), pod(0))
for limit, words in LIMITS.items():
    expect(f"ending at a limit: {limit}", f"Ending 0/3 0 {limit}",
           ending("Failed", "JobFailed", f"Job mnist has failed because {words}", event=limit), pod(0, **deleted(5)))
expect("ending by a rule", "Ending 1/3 0 PodFailurePolicy", ending("Failed", "PodFailurePolicy",
       f"It has failed by rule args: {TWO_BY_RULE}", event="PodFailurePolicy"), pod(1))
expect("ending in failure while it is held", "Ending 0/3 0 DeadlineExceeded", told(ending(
    "Failed", "JobFailed", f"Job mnist has failed because {LIMITS['DeadlineExceeded']}", "Held", event="DeadlineExceeded"),
    "InvalidTFJobSpec", "no", "Held"))
expect("ending while Kueue suspends it", "Ending 0/3 0 ExitCode:3", ending(*LOSES) | {"spec": ending(*LOSES)["spec"] | {
    "runPolicy": STOP}}, pod(0, **deleted(5)), workload=workload(f"QuotaReserved False Pending {PREEMPTED}"))
expect("ending while it is deleted", "Ending 0/3 0 Terminating", ending(*LOSES, meta=GOES), pod(0, **deleted(5)))
expect("the end was recorded and written", "Succeeded 0/2 0", job("Created", "-Running", "Succeeded", meta=QUEUED, begun={
    "generation": 1, "ending": {"type": "Succeeded", "reason": "TFJobSucceeded", "time": at(60)}}))
for number, record in enumerate(({}, "won", {"type": "Won"})):
    expect(f"a record that is no end, {number}", "Running 2/2 0", job("Created", "Running", begun={"ending": record}), *pods())

# --- Jobs that another controller manages ---

ELSEWHERE: Final = {"managedBy": "kueue.x-k8s.io/multikueue"}
expect("elsewhere: copied status of a job that runs", "Running 2/2 0 ManagedElsewhere",
       job("Created", "Running", policy=ELSEWHERE, meta=QUEUED, replicaStatuses={"Worker": {"active": 2}}))
expect("elsewhere: one of two is active", "Running 1/2 0 ManagedElsewhere",
       job("Created", "Running", policy=ELSEWHERE, meta=QUEUED, replicaStatuses={"Worker": {"active": 1}}))
expect("elsewhere: no status yet", "New 0/2 0 ManagedElsewhere", job(policy=ELSEWHERE, meta=QUEUED))
expect("elsewhere: waits in its queue", "Suspended 0/2 0 Queued",
       job("Created", "Suspended", policy=ELSEWHERE | STOP, meta=QUEUED),
       workload=FULL)
expect("elsewhere: suspended by a user", "Suspended 0/2 0 Suspended", job("Created", "Suspended", policy=ELSEWHERE | STOP))
expect("elsewhere: held", "Running 0/2 0 InvalidTFJobSpec", told(
    job("Created", "Held", "Running", policy=ELSEWHERE), "InvalidTFJobSpec", "", "Held"))
expect("elsewhere: succeeded", "Succeeded 0/2 0", job("Created", "-Running", "Succeeded", policy=ELSEWHERE, meta=QUEUED,
                                                      replicaStatuses={"Worker": {"succeeded": 2}}))
expect("elsewhere: failed", "Failed 0/2 0 ExitCode:3", fell(THREE, policy=ELSEWHERE, replicaStatuses={"Worker": {"failed": 1}}))
for value in ("kubeflow.org/training-operator", "kubeflow.org/tfjob-operator"):
    expect(f"managed by {value}", "Created 0/2 0 NotReconciled", job("Created", policy={"managedBy": value}))

# --- Statuses of other operators and of older versions of this one ---

GO_FAILED: Final = 'job "mnist" is failing because "Worker" replica(s) failed.'
expect("training-operator: failed, with its pod", "Failed 0/2 0 ExitCode:1",
       failed(why=("TFJobFailed", GO_FAILED)), pod(1, ended(1)))
expect("training-operator: failed, without pods", "Failed 0/2 0 TFJobFailed", failed(why=("TFJobFailed", GO_FAILED)))
expect("training-operator: backoffLimit", "Failed 0/2 0 BackoffLimitExceeded",
       failed(why=("TFJobFailed", "Job mnist has failed because it has reached the specified backoff limit")))
expect("training-operator: deadline", "Failed 0/2 0 DeadlineExceeded",
       failed(why=("TFJobFailed", "Job mnist has failed because it was active longer than specified deadline")))
expect("training-operator: parameter servers only, which have succeeded", "Created 0/2 0",
       job("Created", spec=wanting(PS=2), replicaStatuses={"PS": {"succeeded": 2}}),
       *(pod(index, ended(0), kind="PS") for index in range(2)), PS_0=DONE)
expect("training-operator: a worker has succeeded, and its pod was deleted", "Running 1/2 0", job(
    "Created", "Running", replicaStatuses={"Worker": {"active": 1, "succeeded": 1}}), pod(0))
expect("training-operator: restarts, and its pod has failed", "Restarting 1/2 0 ExitCode:137",
       job("Created", "Restarting", replicaStatuses={"Worker": {"active": 1, "failed": 1}}), pod(0), pod(1, ended(137)))
expect("training-operator: succeeded, and all count", "Succeeded 0/2 0", job(
    "Created", "Succeeded", completionTime=at(60), replicaStatuses={"Worker": {"succeeded": 2}}), pod(0, ended(0)))
expect("training-operator: suspended and resumed", "Running 2/2 0", job(
    "Created", "-Suspended", "Running", replicaStatuses={"Worker": {"active": 2}}), *pods())
expect("0.1.0: no records of the start and of restarts", "Running 2/2 3", job(
    "Created", "Running", replicaStatuses={"Worker": {"active": 2, "failed": 0, "succeeded": 0}}),
    pod(0), pod(1, running(last=exit_of(1, ago_s=3500), restarts=3)), Worker_1=("Running", True, True, 3))
expect("0.2.0: finished without a record of its end", "Failed 0/2 2 OOMKilled",
       fell(KILLED, begun={"generation": 1, "replicas": {"Worker": 2}}, attempt=2, countedRestarts=2))

# --- Jobs with replicaSpecs ---


ALL: Final = (of_batch(kind="MASTER"), of_batch(0), of_batch(1))
expect("alpha: creating, without conditions", "Creating 0/3 0 NotReconciled", first(phase="Creating", startTime=at(3600)))
expect("alpha: running, without conditions", "Running 3/3 0", first(phase="Running", state="Running"), *ALL,
       Master_0=KEPT, Worker_0=KEPT, Worker_1=KEPT)
expect("alpha: running, with conditions", "Running 3/3 0", first("Created", "Running", state="Running"), *ALL)
expect("alpha: succeeded, without conditions", "Succeeded 0/3 0", first(phase="Done", state="Succeeded"))
expect("alpha: failed, without conditions", "Failed 0/3 0 TFJobFailed", first(phase="Done", state="Failed"))
expect("alpha: failed, without conditions, with its pod", "Failed 0/3 0 ExitCode:3", first(phase="Done", state="Failed"),
       of_batch(kind="MASTER", status=ended(3)))
expect("alpha: failed, and pods are being deleted", "Failed 0/3 0 TFJobFailed", first(phase="CleanUp", state="Failed"))
expect("alpha: never started", "Failed 0/3 0 TFJobFailed", first(phase="Failed", state="Failed", reason="invalid job spec: no"))
expect("alpha: never started, with conditions", "Failed 0/3 0 InvalidTFJobSpec", told(first(
    "Created", "Failed", phase="Failed", state="Failed", reason="invalid job spec: no"), "InvalidTFJobSpec", "no"))
expect("alpha: succeeded, with conditions", "Succeeded 0/3 0", first("Created", "Succeeded", phase="Done", state="Succeeded"))
expect("alpha: failed, with conditions", "Failed 0/3 0 OOMKilled", told(first(
    "Created", "Failed", phase="Done", state="Failed"), "TFJobFailed",
    "TFJob mnist has failed: container tensorflow exited with code 137 (OOMKilled)"))
expect("alpha: held", "Running 3/3 0 InvalidTFJobSpec",
       told(first("Created", "Held", "Running"), "InvalidTFJobSpec", "", "Held"), *ALL)
expect("alpha: failed pods of earlier runs are kept", "Running 3/3 2", first("Created", "Running"), *ALL[:2],
       of_batch(1, suffix="aaaaa", status=ended(1), creationTimestamp=at(3000)),
       of_batch(1, suffix="bbbbb", status=ended(137), creationTimestamp=at(2000)),
       of_batch(1, suffix="ccccc", creationTimestamp=at(1000)), Master_0=KEPT, Worker_1=("Running", True, True, 2))
expect("alpha: a pod starts after earlier ones have failed", "Running 2/3 1 ContainerCreating",
       first("Created", "Running"), *ALL[:2],
       of_batch(1, suffix="aaaaa", status=ended(1), creationTimestamp=at(3000)),
       of_batch(1, suffix="bbbbb", status=waiting("ContainerCreating"), creationTimestamp=at(5)))
expect("alpha: the API server refuses a batch Job", "Creating 2/3 0 FailedCreate", first(phase="Creating"), *ALL[:2],
       events=[event("FailedCreate", "jobs.batch is forbidden", kind="TfJob", apiVersion="tensorflow.org/v1alpha1")])
ALPHA_SPEC: Final = first()["spec"]
expect("alpha of kubeflow.org: running, without conditions", "Running 3/3 0",
       job(spec=ALPHA_SPEC, phase="Running", state="Running", runtimeId="x7ab"), *map(of_kubeflow, ALL), Master_0=KEPT)
expect("alpha of kubeflow.org: running, with conditions", "Running 1/3 0 CrashLoopBackOff",
       job("Created", "Running", spec=ALPHA_SPEC, phase="Running", state="Running", runtimeId="x7ab"),
       *(of_kubeflow(each) for each in (ALL[0], of_batch(0, status=waiting("CrashLoopBackOff", "Running")),
                                        of_batch(1, status=waiting("CrashLoopBackOff", "Running")))))

# --- Pods and statuses that are not as they should be ---

EARLIER: Final = [{"kind": "TFJob", "name": "mnist", "uid": "uid-earlier", "controller": True}]
expect("pods of an earlier job of this name", "Created 0/2 0 NotReconciled", CREATED,
       *(pod(index, ownerReferences=EARLIER) for index in range(2)), Worker_0=MISSING, Worker_1=MISSING)
expect("pods of an earlier job of this name crash", "Running 1/1 0",
       job("Created", "Running", spec=wanting(Worker=1)), pod(0),
       pod(0, LOOP, ownerReferences=EARLIER, uid="uid-other"), Worker_0=KEPT)
expect("a pod without labels", "Running 1/2 0 NotReconciled", UP, pod(0), pod(1, labels={}), Worker_0=KEPT, Worker_1=MISSING)
expect("a pod without an owner", "Running 2/2 0", UP, pod(0), pod(1, ownerReferences=[]), Worker_0=KEPT, Worker_1=KEPT)
expect("counters of the status have other types", "Running 2/2 0", job("Created", "Running", restarts="many", attempt="two",
       replicaStatuses=[7], finishedIndices="0", begun=7, nextRestartTime="soon", startTime=3), *pods(), Worker_0=KEPT)
expect("the status is a text", "New 2/2 0", job() | {"status": "Running"}, *pods())
