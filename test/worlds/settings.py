"""The small jobs that are searched exhaustively, and the possible moves of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fakes.jobs import replica, template
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import RestartPolicy, RuleAction, SuccessPolicy
from worlds.operator import Office
from worlds.values import SIDECAR
from worlds.world import State, create_job, delete_job, edit_job, remove_from_queue, request_restart

FAILURES: Final = {"error": 1, "killed": 137, "rule": 42}
"""Ways in which a pod may fail by itself, with exit codes: one that is permanent, one with which ExitCode restarts it, and
one to which a rule of its container applies, if it has one."""


CLOCKS: Final = ((3600, -3600), (-3600, 3600))
"""By how many seconds the clocks of nodes and of the API server may come to be ahead of the operator's."""

Script = Callable[[State], State]
"""An edit of the user."""


@dataclass(frozen=True)
class Setting:
    """A job, and what may happen to it.

    `surprises` is how many of the moves listed in `may` may happen altogether; `script` lists the user's edits, in their
    order, each at any moment. Instead, one of `edits` may be made at any moment. `queued` jobs have a queue label. Events of
    resources that are not in `lags` are delivered at once, and calls for them carried out and answered at once; of each of the
    others at most `lag` events are under way. If verb and resource of a call are not in `open`, its response arrives at the
    moment when it is carried out. With `runs_at_once` a pod does not wait for its node. `kubernetes` is the version of API
    server and kubelets; without one the end of a pod is a single step. Settings without `everyday` take minutes; `nightly` ones
    take one. Replicas of types in `never_ends` never succeed; pods of the names in `never_fails` never fail. With `office` the
    operator knows since when it leads; a `busy` one has other keys in its queue.
    """

    name: str
    spec: dict[str, Any]
    may: tuple[str, ...]
    surprises: int = 1
    script: tuple[Script, ...] = ()
    edits: tuple[Script, ...] = ()
    queued: bool = False
    lag: int = 1
    lags: frozenset[str] = frozenset({"tfjobs", "pods"})
    open: frozenset[tuple[str, str]] = frozenset({("patch", "tfjobs")})
    runs_at_once: bool = False
    kubernetes: Kubernetes | None = None
    everyday: bool = True
    nightly: bool = False
    has_stranger: bool = False
    office: Office | None = None
    never_ends: frozenset[str] = frozenset({"PS"})
    never_fails: frozenset[str] = frozenset()

    @property
    def raw(self) -> bytes:
        return encoded(self.spec)


def encoded(spec: dict[str, Any]) -> bytes:
    return msgspec.json.encode(spec)


def spec(**replicas: tuple[int, str]) -> dict[str, Any]:
    return {"tfReplicaSpecs": {name: replica(count, policy) for name, (count, policy) in replicas.items()}}


def with_policy(given: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return given | {"runPolicy": given.get("runPolicy", {}) | policy}


def edit(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Script:
    def made(world: State) -> State:
        if world.job is None:
            return world
        return edit_job(world, encoded(change(msgspec.json.decode(world.job.spec))))

    return made


RESTART: Final = "Restart"
RESTART_ALL: Final = "RestartAllContainers"
"""What rules of containers can ask for."""

SUSPEND: Final = edit(lambda given: with_policy(given, suspend=True))
RESUME: Final = edit(lambda given: with_policy(given, suspend=False))


BREAK: Final = edit(lambda given: with_policy(given, backoffLimit=-1))
MEND: Final = edit(lambda given: with_policy(given, backoffLimit=None))
BREAK_AND_SUSPEND: Final = edit(lambda given: with_policy(given, backoffLimit=-1, suspend=True))


def scale(replica_type: str, count: int) -> Script:
    def change(given: dict[str, Any]) -> dict[str, Any]:
        replicas = given["tfReplicaSpecs"]
        return given | {"tfReplicaSpecs": replicas | {replica_type: replicas[replica_type] | {"replicas": count}}}

    return edit(change)


def delete(world: State) -> State:
    return delete_job(world)


def delete_children_first(world: State) -> State:
    """The user deletes the job in the foreground: its children go first."""
    return delete_job(world, foreground=True)


def create_again(given: dict[str, Any]) -> Script:
    """The user creates another job of the same name, unless the first one still exists."""
    return lambda world: world if world.job is not None else create_job(world, "job-2", encoded(given))


def request(value: str) -> Script:
    """The user requests a restart of the whole job."""
    return lambda world: request_restart(world, value)


ONE: Final = spec(Worker=(1, RestartPolicy.EXIT_CODE))
TWO: Final = spec(Worker=(2, RestartPolicy.EXIT_CODE)) | {"successPolicy": SuccessPolicy.ALL_WORKERS}
PAIR: Final = {policy: spec(Chief=(1, policy), Worker=(1, policy)) for policy in RestartPolicy}


def with_container(policy: str, **fields: Any) -> dict[str, Any]:
    """One worker, whose container `tensorflow` has these fields."""
    containers = [{"name": c.CONTAINER_NAME, "image": "train:1"} | fields]
    return {"tfReplicaSpecs": {"Worker": replica(1, policy, template=template(containers=containers))}}


def with_rule(policy: str, action: str) -> dict[str, Any]:
    """One worker, with a rule that restarts its container after exit code 42."""
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [42]}}
    return with_container(policy, restartPolicy="Never", restartPolicyRules=[rule])


def with_sidecars(given: dict[str, Any]) -> dict[str, Any]:
    """The same job, whose pods have a sidecar."""
    own = template(containers=[{"name": c.CONTAINER_NAME, "image": "train:1"}, {"name": SIDECAR, "image": "logs:1"}])
    return given | {"tfReplicaSpecs": {name: one | {"template": own} for name, one in given["tfReplicaSpecs"].items()}}


BESIDE: Final = with_sidecars(ONE)
REQUESTS: Final = ("remove", "remove slowly", "hurry", "force", "tell late")
CLUSTER: Final = ("crash", "lose", "relist", "remove", "evict")
ALL: Final = frozenset({"tfjobs", "pods", "services"})
VIEWS_OF_PODS: Final = frozenset({"pods"})
EVERY_CALL: Final = frozenset((verb, resource) for verb in ("create", "delete", "patch", "get") for resource in ALL)


def _at_once(
    name: str, given: dict[str, Any], may: tuple[str, ...], surprises: int = 1, *script: Script, **fields: Any
) -> Setting:
    """A setting in which pods do not wait for their node."""
    return Setting(name, given, may, surprises, script, **{"runs_at_once": True} | fields)


def _brief(
    name: str, given: dict[str, Any], may: tuple[str, ...], surprises: int = 1, *script: Script, **fields: Any
) -> Setting:
    """The same, and only what the operator sees of pods lags."""
    return _at_once(name, given, may, surprises, *script, **{"lags": VIEWS_OF_PODS} | fields)


def _of_pods(
    name: str, given: dict[str, Any], may: tuple[str, ...], surprises: int = 1, *script: Script, **fields: Any
) -> Setting:
    """A setting about the ends of pods, by default on the newest version."""
    return _brief(name, given, may, surprises, *script, **{"kubernetes": NEWEST} | fields)


NEVER, EXIT_CODE = PAIR[RestartPolicy.NEVER], PAIR[RestartPolicy.EXIT_CODE]
SERVED: Final = spec(PS=(1, RestartPolicy.EXIT_CODE), Worker=(1, RestartPolicy.EXIT_CODE))
THREE: Final = spec(Worker=(3, RestartPolicy.NEVER)) | {"successPolicy": SuccessPolicy.ALL_WORKERS}
RULE: Final = {"action": RuleAction.RESTART_ALL}
POLICED: Final = with_policy(TWO, failurePolicy={"maxRestarts": 1, "rules": [RULE]})
KEEPING: Final = with_policy(TWO, failurePolicy={"maxRestarts": 1, "rules": [RULE], "finishedReplicaPolicy": "Keep"})
AT_LIMIT: Final = with_policy(ONE, failurePolicy={"maxRestarts": 0, "rules": [RULE]})
WORKERS: Final = frozenset({"Worker"})
START: Final[dict[str, Any]] = {"never_ends": WORKERS, "runs_at_once": False}
ONE_FAILS: Final[dict[str, Any]] = {"never_ends": WORKERS, "never_fails": frozenset({"j-worker-1"})}
LIMITED: Final = with_policy(ONE, activeDeadlineSeconds=300, ttlSecondsAfterFinished=300)
WAITING: Final = with_policy(NEVER, completionGracePeriodSeconds=300)
ALWAYS: Final = spec(Worker=(1, RestartPolicy.ALWAYS))
SHARED, TWO_SHARED = with_policy(ONE, network="shared"), with_policy(TWO, network="shared")
NETWORK: Final[dict[str, Any]] = {
    "lags": frozenset({"tfjobs", "services"}),
    "open": frozenset({("patch", "tfjobs"), ("create", "services")}),
}
APART: Final[dict[str, Any]] = {"lags": ALL, "open": EVERY_CALL}
OTHERS: Final = (*CLUSTER, "killed")
AGAIN: Final = request("1")
UP, DOWN = scale("Worker", 2), scale("Worker", 1)
FIRST: Final = spec(Worker=(2, RestartPolicy.EXIT_CODE))
"""Two workers, of which the first decides."""
QUEUED: Final[dict[str, Any]] = {"queued": True}
EDITED: Final[dict[str, Any]] = QUEUED | {"edits": (SUSPEND, BREAK, UP, AGAIN, remove_from_queue)}
"""A queued job, and everything that must not revert how it ends."""

SETTINGS: Final = (
    Setting("one worker, everything apart", ONE, (*OTHERS, "error", "refuse"), **APART),
    Setting("chief and worker, pods take time", NEVER, (*CLUSTER, "error"), 0),
    _at_once("chief and worker, Never", NEVER, ("crash",)),
    _brief("chief and worker, ExitCode", EXIT_CODE, ("killed",)),
    _brief("chief and worker, OnFailure", PAIR[RestartPolicy.ON_FAILURE], ("restart", "evict")),
    _brief("chief and worker, Always", PAIR[RestartPolicy.ALWAYS], ("restart", "remove"), 2),
    _at_once("a parameter server and a worker", SERVED, ("killed",)),
    _at_once("three workers, of which all count", THREE, ("crash", "evict", "remove"), 0),
    Setting("suspended and resumed", ONE, OTHERS, 0, (SUSPEND, RESUME)),
    _at_once("suspended and resumed, crash", ONE, ("crash",), 1, SUSPEND, RESUME, everyday=False),
    _at_once("two workers suspended", TWO, ("crash",), 0, SUSPEND, everyday=False),
    _at_once("scaled up", ONE, ("crash",), 0, UP),
    _at_once("scaled down", TWO, ("crash",), 0, DOWN),
    Setting("scaled down and up", TWO, ("crash",), 0, (DOWN, UP), everyday=False),
    _brief("broken and mended", ONE, ("killed",), 1, BREAK, MEND),
    _at_once("broken and mended, crash", ONE, ("crash",), 1, BREAK, MEND, everyday=False),
    _brief("broken and mended, two workers", TWO, ("error",), 0, BREAK, MEND),
    _brief("broken and suspended, resumed", ONE, (), 0, BREAK_AND_SUSPEND, RESUME),
    _brief("broken, with limits", LIMITED, ("leap",), 2, BREAK),
    _brief("refused after an edit", ONE, ("refuse",), 1, UP, DOWN),
    _at_once("in office, broken and mended", ONE, (), 0, BREAK, MEND, office="busy", everyday=False),
    _at_once("deleted and made again", ONE, OTHERS, 0, delete, create_again(ONE)),
    _at_once("deleted after its children", ONE, OTHERS, 0, delete_children_first, create_again(ONE)),
    Setting("a stranger in the way", ONE, CLUSTER, has_stranger=True),
    _at_once("limits of its own", with_policy(LIMITED, backoffLimit=1), ("killed", "leap"), 2),
    _at_once("all is cleaned up", with_policy(NEVER, cleanPodPolicy="All"), CLUSTER, 0),
    _at_once("nothing is cleaned up", with_policy(NEVER, cleanPodPolicy="None"), CLUSTER, 0),
    _at_once("one service for all", TWO_SHARED, ("crash", "lose"), 0, **NETWORK),
    _at_once(
        "one service for all, and a surprise", TWO_SHARED, ("crash", "killed", "lose"), 1, **NETWORK, everyday=False
    ),
    _at_once("one service for all, suspended", SHARED, CLUSTER, 0, SUSPEND, RESUME),
    _at_once("one service for all, cleaned up", with_policy(NEVER, network="shared", cleanPodPolicy="All"), CLUSTER, 0),
    Setting("in office", ONE, (*OTHERS, "refuse"), **APART, office="quiet"),
    Setting("in office, with much to do", ONE, (*OTHERS, "refuse"), **APART, office="busy"),
    _at_once("in office, suspended", ONE, ("crash",), 0, SUSPEND, RESUME, office="busy"),
    _at_once("in office, scaled down", TWO, ("crash",), 0, DOWN, office="busy"),
    _at_once("in office, made again", ONE, ("crash",), 0, delete, create_again(ONE), office="busy"),
    _of_pods("a container ends before its pod", ONE, ("killed", "crash")),
    _of_pods("chief and worker end before their pods", NEVER, (), 0),
    _of_pods("all is cleaned up, told in full", with_policy(ONE, cleanPodPolicy="All"), ("killed",)),
    _of_pods("nothing is cleaned up, told in full", with_policy(NEVER, cleanPodPolicy="None"), (), 0),
    _of_pods("suspended and told in full", ONE, (), 0, SUSPEND, RESUME),
    _of_pods("suspended and told in full, 1.20", ONE, (), 0, SUSPEND, RESUME, kubernetes=OLDEST),
    _of_pods("removed while it ends by itself", ONE, (*REQUESTS, "drain")),
    _of_pods("removed while it ends by itself, 1.20", ONE, (*REQUESTS, "drain"), kubernetes=OLDEST),
    _of_pods("asked to go twice", BESIDE, REQUESTS, 2),
    _of_pods("asked to go twice, 1.20", BESIDE, REQUESTS, 2, kubernetes=OLDEST, everyday=False),
    _of_pods("a sidecar runs on", BESIDE, ("error", "killed", "crash"), 2),
    _of_pods("a sidecar runs on, and edits", BESIDE, ("error", "killed"), edits=(SUSPEND, BREAK, AGAIN), nightly=True),
    _of_pods("a rule restarts in place", with_rule(RestartPolicy.NEVER, RESTART), ("rule", "error", "remove"), 2),
    _of_pods("a rule that nobody knows", with_rule(RestartPolicy.NEVER, RESTART), ("rule", "error"), kubernetes=OLDEST),
    _of_pods("a rule restarts all", with_rule(RestartPolicy.EXIT_CODE, RESTART_ALL), ("rule", "killed", "remove"), 2),
    _of_pods("restarted whatever comes", ALWAYS, ("restart", "remove", "shut down"), 2),
    _of_pods("restarted whatever comes, 1.20", ALWAYS, ("restart", "remove", "shut down"), 2, kubernetes=OLDEST),
    _of_pods(
        "never, though its pod is always",
        with_container(RestartPolicy.ALWAYS, restartPolicy="Never"),
        ("remove", "error"),
    ),
    _of_pods("a kubelet turns the pod away", ONE, ("turn away", "crash"), runs_at_once=False),
    _of_pods("a node shuts down", ONE, ("shut down", "remove", "crash"), 2),
    _of_pods("a node shuts down, 1.20", ONE, ("shut down", "crash"), kubernetes=OLDEST),
    _brief("all restart", POLICED, ("error", "crash"), 2, **ONE_FAILS),
    _at_once("all restart, and views lag", POLICED, ("error", "crash"), 2, **ONE_FAILS, nightly=True),
    _brief("all restart, and responses are lost", POLICED, ("error", "crash", "lose"), 2, **ONE_FAILS, nightly=True),
    _brief("all restart, sidecars run on", with_sidecars(POLICED), ("error", "crash"), 2, **ONE_FAILS),
    _brief("all restart by request, sidecars run on", with_sidecars(TWO), (), 0, AGAIN),
    _brief("all restart by request", TWO, ("crash",), 1, request("1"), never_ends=WORKERS),
    _brief("all restart as they start", TWO, ("crash",), 1, request("1"), **START, nightly=True),
    _brief("all restart by rule or request", POLICED, ("error", "crash"), 1, request("1"), **ONE_FAILS, nightly=True),
    _brief("all restart but what has finished", KEEPING, ("error",), 1, never_fails=frozenset({"j-worker-0"})),
    _brief("a success waits, and clocks are set", WAITING, ("clock",), 1, never_ends=WORKERS),
    _brief("a request to restart what has failed", AT_LIMIT, ("error", "crash"), 2, request("1")),
    _brief("queued, pods take time", FIRST, ("crash",), 1, **QUEUED, runs_at_once=False),
    _brief("queued, of each kind of end", SERVED, ("error", "leap"), **QUEUED),
    _brief("queued, and a pod is refused", FIRST, ("refuse",), **QUEUED),
    _brief("queued and edited", SERVED, (), 0, **EDITED),
    _brief("queued and edited, crash", SERVED, ("error", "crash"), **EDITED, nightly=True),
    _at_once("queued and edited, and views lag", SERVED, (), 0, **EDITED, nightly=True),
    _brief("queued, and clocks are set", SERVED, ("clock",), 1, **QUEUED),
    _brief("queued, scaled down", FIRST, (), 0, DOWN, **QUEUED),
    _brief("queued, scaled down, crash", FIRST, ("crash",), 1, DOWN, **QUEUED, nightly=True),
    _brief("queued, nothing is cleaned up", with_policy(FIRST, cleanPodPolicy="None"), (), 0, DOWN, **QUEUED),
    _brief("queued, with limits", with_policy(LIMITED, cleanPodPolicy="None"), ("leap", "killed"), 2, **QUEUED),
    _of_pods("queued, a sidecar runs on", BESIDE, ("error", "leap"), 2, **QUEUED),
    _of_pods("queued and told in full", SERVED, ("error", "crash", "leap"), **QUEUED, nightly=True),
    Setting("an invalid specification", spec(Worker=(1, "Sometimes")), CLUSTER, 2, (SUSPEND, delete)),
    Setting("another's job", with_policy(ONE, managedBy="kueue.x-k8s.io/multikueue"), CLUSTER, 2, (delete,)),
)
