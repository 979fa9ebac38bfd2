"""The workloads of the crash matrix: the steps of a user with a job.

Every step waits for the result of the previous one, and pods run until the user ends them. A workload therefore has one result,
however long the operator is down in between.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from faults.user import NAME, User
from hack.hollow_node.script import ON_STOP, RUN_OF
from integration.cluster import replica, specs, with_policy
from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW

FOREVER: Final = "forever"
SIDECAR: Final = "logs"
QUEUE: Final = {LABEL_QUEUE: "team"}
APIS: Final = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1"


@dataclass(frozen=True)
class Workload:
    """The actions of a user, the flags of the operator, and the expected restarts of each replica.

    `optional` are events that may be missing.
    """

    play: Callable[[User], Awaitable[None]]
    flags: tuple[str, ...] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


forever = partial(replica, run=FOREVER)
"""Return replicas that run until they are ended."""


def with_sidecars(spec: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Return the spec with a sidecar in each worker, which runs until it is ended, or a second longer than the training."""
    template = spec["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"][f"{RUN_OF}{SIDECAR}"] = FOREVER
    template["spec"]["containers"].append({"name": SIDECAR, "image": "logs:1"})
    return with_policy(spec, completionGracePeriodSeconds=1, **policy)


def slow_workers(count: int) -> dict[str, Any]:
    """Return the spec of a job with workers that ignore SIGTERM, and have an hour to end."""
    spec = specs(Worker=forever(count))
    template = spec["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["annotations"][ON_STOP] = "ignore"
    template["spec"]["terminationGracePeriodSeconds"] = 3600
    return spec


async def plain(user: User) -> None:
    """Two workers that succeed."""
    await user.create(specs(Worker=forever(2)))
    await user.running(2)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def restarts(user: User) -> None:
    """A parameter server and two workers. The server and one worker fail and restart; the server is cleaned up at the end."""
    pods = {"PS": replica(1, "ExitCode", FOREVER), "Worker": replica(2, "ExitCode", FOREVER)}
    await user.create(specs(**pods))
    await user.running(3)
    await user.fail(f"{NAME}-worker-1", 137)
    await user.running(3)
    await user.fail(f"{NAME}-ps-0", 143)
    await user.running(3)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def suspended(user: User) -> None:
    """Suspended while it runs, and resumed."""
    await user.create(specs(Worker=forever(2)))
    await user.running(2)
    await user.edit(runPolicy={"suspend": True})
    await user.until("it is suspended", lambda: user.is_true("Suspended"))
    await user.gone()
    await user.edit(runPolicy={"suspend": False})
    await user.running(2)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def scaled(user: User) -> None:
    """Elastic workers: one, three, one."""
    await user.create(specs(Worker=forever(1)) | {"enableDynamicWorker": True})
    await user.running(1)
    await user.edit(tfReplicaSpecs={"Worker": {"replicas": 3}})
    await user.running(3)
    await user.edit(tfReplicaSpecs={"Worker": {"replicas": 1}})
    await user.running(1)
    await user.finish(1)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def gang(user: User) -> None:
    """Scheduled by Volcano, all pods together."""
    await user.create(specs(Worker=forever(2)))
    await user.place(2)
    await user.running(2)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def short_lived(user: User) -> None:
    """All pods are deleted when it finishes, and the job a second later."""
    await user.create(with_policy(specs(Worker=forever(2)), cleanPodPolicy="All", ttlSecondsAfterFinished=1))
    await user.running(2)
    await user.finish(2)
    await user.until("it is gone", lambda: user.job is None)


async def alpha(user: User) -> None:
    """The dialect of v1alpha1: batch Jobs and a TensorBoard."""

    def entry(kind: str) -> dict[str, Any]:
        template = replica(run=FOREVER)["template"]
        template["spec"]["restartPolicy"] = "OnFailure"
        return {"replicas": 1, "tfReplicaType": kind, "template": template}

    board = {"logDir": "/logs", "volumes": [{"name": "logs", "emptyDir": {}}]}
    board["volumeMounts"] = [{"name": "logs", "mountPath": "/logs"}]
    spec = {"RuntimeId": "abcd", "replicaSpecs": [entry("MASTER"), entry("WORKER")], "tensorboard": board}
    await user.create(spec, KUBEFLOW.resource)
    await user.running(2)
    await user.end("master-abcd-0")
    await user.until("it has succeeded", lambda: user.is_true("Succeeded") and user.status.get("phase") == "Done")


async def held(user: User) -> None:
    """Made invalid while it runs, and fixed."""
    await user.create(specs(Worker=forever(2)))
    await user.running(2)
    await user.edit(runPolicy={"backoffLimit": -1})
    await user.until("it is held", lambda: user.is_true("Held"))
    await user.edit(runPolicy=None)
    await user.until("it is held no more", lambda: not user.is_true("Held"))
    await user.running(2)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def all_restarted(user: User) -> None:
    """A rule is edited while the job runs, and restarts the whole job when a worker fails. Sidecars outlive both attempts."""
    rules = [{"action": "FailJob"}]
    await user.create(with_sidecars(specs(Worker=forever(2)), failurePolicy={"rules": rules}))
    await user.running(2)
    await user.edit(runPolicy={"failurePolicy": {"maxRestarts": 1, "rules": [{"action": "RestartAll"}]}})
    await user.until("the edit is observed", lambda: user.status.get("observedGeneration") == 2)
    await user.fail(f"{NAME}-worker-0", 42)
    await user.running(2)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))
    await user.gone()


async def stalled(user: User) -> None:
    """Two workers that write no log line, which a rule restarts after a minute. A new leader waits for another minute."""
    rule = {"action": "RestartAll", "onFailureReasons": ["ProgressDeadlineExceeded"]}
    policy = {"maxRestarts": 1, "rules": [rule]}
    await user.create(with_policy(specs(Worker=forever(2)), progressDeadlineSeconds=60, failurePolicy=policy))
    await user.running(2)
    await user.until("it is restarted", lambda: user.status.get("attempt") == 1)
    await user.running(2)
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def sidecars(user: User) -> None:
    """A sidecar outlives the failure of its worker, which ends the job."""
    await user.create(with_sidecars(specs(Worker=forever(2))))
    await user.running(2)
    await user.end(f"{NAME}-worker-1", "0s:1")
    await user.until("it has failed", lambda: user.is_true("Failed"))
    await user.gone()


async def queued(user: User) -> None:
    """A queued job succeeds. Its sidecars outlive the training, and its pods end slowly."""
    await user.create(with_sidecars(slow_workers(2)), labels=QUEUE)
    await user.running(2)
    await user.finish(2)
    await user.let_end(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))
    await user.gone()


async def queued_failed(user: User) -> None:
    """A worker of a queued job fails, and the other one ends slowly."""
    await user.create(slow_workers(2), labels=QUEUE)
    await user.running(2)
    await user.end(f"{NAME}-worker-1", "0s:1")
    await user.let_end(1)
    await user.until("it has failed", lambda: user.is_true("Failed"))
    await user.until("the other worker has ended", lambda: f"{NAME}-worker-0" not in user.pods)


async def queued_gang(user: User) -> None:
    """A queued gang fails; while it is ending, its user deletes a finished pod, and creates one that it might adopt."""
    await user.create(slow_workers(3), labels=QUEUE)
    await user.place(3)
    await user.running(3)
    await user.end(f"{NAME}-worker-2")
    await user.succeeded(1)
    await user.end(f"{NAME}-worker-1", "0s:1")
    await user.until("a worker is being deleted", lambda: user.pods[f"{NAME}-worker-0"].metadata.deletion_timestamp)
    await user.delete(f"{NAME}-worker-2")
    await user.orphan(3)
    await user.let_end(1)
    await user.until("it has failed", lambda: user.is_true("Failed"))
    await user.until("the other worker has ended", lambda: f"{NAME}-worker-0" not in user.pods)


WORKLOADS: Final[Mapping[str, Workload]] = {
    "plain": Workload(plain),
    "restarts": Workload(restarts, restarts={"PS-0": 1, "Worker-1": 1}),
    "suspended": Workload(suspended),
    "scaled": Workload(scaled),
    "gang": Workload(gang, ("--enable-gang-scheduling",)),
    # If the TTL expires while no operator runs, the garbage collector deletes the children with the job.
    "short-lived": Workload(
        short_lived, optional=frozenset({"Normal SuccessfulDeletePod", "Normal SuccessfulDeleteService"})
    ),
    "alpha": Workload(alpha, (APIS,)),
    "held": Workload(held),
    "all-restarted": Workload(all_restarted),
    "stalled": Workload(stalled),
    "sidecars": Workload(sidecars),
    "queued": Workload(queued),
    "queued-failed": Workload(queued_failed),
    "queued-gang": Workload(queued_gang, ("--enable-gang-scheduling",)),
}
