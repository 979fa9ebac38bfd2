"""Given the script of a recorded pod, the simulated kubelet writes the states that a real one wrote.

The recordings are of Kubernetes 1.20.2 and 1.36.3 (`test/data/recordings`). The tests compare phase, reason, the states of all
containers with exit codes and restarts, DisruptionTarget and AllContainersRestarting, and the grace of the deletion, but not
times, names of objects or messages. Equal consecutive states count once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
import pytest

from fakes.recordings import History, Life, histories
from hack.hollow_node.objects import HollowPod
from hack.hollow_node.script import Outcome, Run, Timing
from hack.kubernetes_versions import Kubernetes
from simulation.feed import Feed
from simulation.kubelet import Kubelet
from simulation.model.network import NETWORK
from simulation.model.storage import Body
from simulation.nodes import SHUTDOWN_GRACE_S
from simulation.scripts import Script, exits
from simulation.weather import CALM
from simulation.world import World, run_seed
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.core import PODS

LABELS: Final = {"replica-type": "worker", "replica-index": "0"}

FOREVER: Final = exits(0.0, None)


@dataclass(frozen=True)
class Play:
    """What the containers of a recorded pod did: their runs in order (the last repeats), and their response to SIGTERM.

    `told_to_end`: the exit code of `main` when the tester lets it end; None: that comes too late. `heard_late`: the kubelet
    learns of that exit after the deletion, and before it stops the pod. `loses_exit_code`: the kubelet, of 1.20, loses the exit
    code. `quick`: `main` may run without the state Running being seen.
    """

    runs: dict[str, list[Run]] = field(default_factory=dict)
    on_sigterm: dict[str, Run] = field(default_factory=dict)
    told_to_end: int | None = 0
    heard_late: bool = False
    loses_exit_code: bool = False
    rejection: str = ""
    quick: bool = False


def _ends(*codes: int, after_s: float = 2.0, reason: str = "") -> dict[str, list[Run]]:
    return {"main": [exits(after_s, code, reason) for code in codes]}


def _never(reason: str) -> dict[str, list[Run]]:
    """`main` waits with this reason."""
    return {"main": [Run(outcome=Outcome.WAITING, reason=reason)]}


def _answers(code: int | None, seconds: float = 2.0) -> Play:
    """`main` runs until it gets SIGTERM."""
    return Play(on_sigterm={"main": exits(seconds, code)})


ORDERLY: Final = exits(0.0, 0)
_RACE: Final = replace(_answers(0, 0.0), told_to_end=None)
_HEARD_LATE: Final = replace(_RACE, told_to_end=0, heard_late=True)
_LOST: Final = replace(_RACE, loses_exit_code=True)

PLAYS: Final = {
    "01-exit-0-never": Play(_ends(0)),
    "02-exit-1-never": Play(_ends(1)),
    "02b-exit-at-once-never": Play(_ends(0, after_s=0.1), quick=True),
    "03a-exit-137-never": Play(_ends(137)),
    "03b-sigkill-from-the-node-never": Play(_ends(137)),
    "04-oomkilled-never": Play(_ends(137, reason="OOMKilled")),
    "04b-oomkilled-child-onfailure": Play(_ends(137, after_s=1.0, reason="OOMKilled"), {"main": exits(0.0, None)}),
    "05-onfailure-1-1-0": Play(_ends(1, 1, 0, after_s=1.0)),
    "06-always-exit-0": Play(_ends(0, after_s=1.0)),
    "06b-always-deleted-in-backoff": Play(_ends(1, after_s=1.0)),
    "07-main-ends-sidecar-runs-on": Play(_ends(0), {"side": ORDERLY}),
    "07b-main-fails-sidecar-runs-on-onfailure": Play(_ends(3, 3, 0, after_s=1.0), {"side": ORDERLY}),
    "08-native-sidecar-main-exit-0-never": Play(_ends(0), {"log": exits(1.0, 0)}),
    "08-native-sidecar-main-exit-0-onfailure": Play(_ends(0), {"log": exits(1.0, 0)}),
    "08-native-sidecar-main-exit-1-never": Play(_ends(1), {"log": exits(1.0, 0)}),
    "08b-native-sidecar-crashes": Play({"main": [exits(21.2, 0)], "log": [exits(2.0, 1)]}),
    "08c-native-sidecar-deleted": Play({}, {"main": exits(2.0, 0), "log": exits(1.0, 0)}),
    "09-delete-sigterm-exit-0": _answers(0),
    "09b-delete-sigterm-exit-0-always": _answers(0),
    "10-delete-sigterm-exit-143": _answers(143),
    "10b-delete-sigterm-exit-143-onfailure": _answers(143),
    "11-delete-ignores-sigterm-grace-3": _answers(None),
    "11b-delete-ignores-sigterm-pod-grace-3": _answers(None),
    "11c-delete-grace-1": _answers(0, 0.0),
    "12-delete-30-then-1": _answers(None),
    "12b-delete-30-then-60-then-5": _answers(None),
    "1.20.2/12b-delete-30-then-60-then-5": Play({}, {"main": exits(2.0, None)}, loses_exit_code=True),
    "12c-delete-30-then-0": _answers(None),
    "13-force-delete": _answers(0),
    "14-eviction": _answers(143),
    "15-finalizer": _answers(143),
    "15b-finalizer-ended-before": Play(_ends(0)),
    "15c-finalizer-force-delete": _answers(0),
    "16b-image-never-pull-missing": Play(_never("ErrImageNeverPull")),
    "16c-image-name-invalid": Play(_never("InvalidImageName")),
    "18-active-deadline": _answers(143),
    "18b-active-deadline-onfailure-ignores": _answers(None),
    "19-init-fails-never": Play({"first": [exits(2.0, 1)]}),
    "19b-init-fails-then-succeeds-onfailure": Play(
        {"first": [exits(1.0, 1), exits(1.0, 0)], "main": [exits(1.0, 0)]},
    ),
    "19c-two-inits-succeed-never": Play({name: [exits(1.0, 0)] for name in ("first", "second", "main")}),
    "20-container-onfailure-under-never": Play(_ends(1, 1, 0, after_s=1.0)),
    "21-rule-restart-42-then-0": Play(_ends(42, 42, 0, after_s=1.0)),
    "21b-rule-restart-42-then-1": Play(_ends(42, 1, after_s=1.0)),
    "22-rule-restart-all-42-then-0": Play(_ends(42, 42, 0, after_s=1.0)),
    "22b-rule-restart-all-with-init-and-side": Play(
        _ends(42, 0) | {"first": [exits(2.0, 0)], "side": [exits(12.0, 0)]}, {"side": ORDERLY}
    ),
    "23-pod-always-container-never": Play(_ends(0)),
    "23b-pod-always-container-never-exit-1-side": Play(_ends(1), {"side": ORDERLY}),
    "26a-rejected-cpu": Play(rejection="OutOfcpu"),
    "26b-rejected-affinity": Play(rejection="NodeAffinity"),
    "26c-rejected-memory-always": Play(rejection="OutOfmemory"),
    "28a-never-exit-0": Play({}, {"main": exits(2.0, 0)}),
    "28b-never-exit-143": Play({}, {"main": exits(2.0, 143)}),
    "28c-onfailure-exit-143": Play({}, {"main": exits(2.0, 143)}),
    "28d-always-exit-0": Play({}, {"main": exits(2.0, 0)}),
    "28e-ignores": Play({}, {"main": exits(2.0, None)}),
    "28f-ended-before": Play(_ends(0, after_s=1.0)),
    "24-only-node-a-runs-never": _answers(143),
    "24-only-node-c-ends-meanwhile-never": Play(),
    "24-only-node-e-deleted-meanwhile": _answers(0),
    "24a-runs-never": _answers(143),
    "24b-runs-tolerates": _answers(0),
    "24c-ends-meanwhile-never": Play(),
    "24d-ends-meanwhile-tolerates": Play(),
    "24e-deleted-meanwhile": _answers(0),
    "24f-finalizer": _answers(143),
    "24g-runs-onfailure": _answers(143),
    "24h-ended-before-never": Play(_ends(0, after_s=1.0)),
    "24i-ended-before-tolerates": Play(_ends(0, after_s=1.0)),
    "25a-runs-never": _answers(0),
    "25c-ends-meanwhile-never": Play(),
    "25d-ends-meanwhile-onfailure": Play({}, {"main": exits(2.0, None)}, told_to_end=1),
    "25e-native-sidecar-never": Play({}, {"main": exits(2.0, 0), "log": exits(1.0, 0)}),
    "25f-succeeded-before": Play(_ends(0, after_s=1.0)),
    "25g-deleted-meanwhile": _answers(0),
    "25h-terminating-before": _answers(None),
    "25i-forced-meanwhile": _answers(0),
    "25j-ready-probe": _answers(0),
    "27-prestop-hook": _answers(0),
    "27b-prestop-hook-longer-than-grace": _answers(0, 4.0),
    "27c-prestop-hook-exit-0": Play(_ends(0)),
    "27d-readiness-probe": _answers(0),
    "28-other-node-ready-a-never-exit-0": _answers(0),
    "28-other-node-ready-b-never-exit-143": _answers(143),
    "28-other-node-ready-c-onfailure-exit-143": _answers(143),
    "28-other-node-ready-d-always-exit-0": _answers(0),
    "28-other-node-ready-e-ignores": _answers(None),
    "28-other-node-ready-f-ended-before": Play(_ends(0, after_s=1.0)),
    "29-00-ends-100ms-after-delete": _RACE,
    "29-01-ends-30ms-after-delete": _RACE,
    "29-02-ends-0ms-before-delete": _RACE,
    "1.36.3/29-02-ends-0ms-before-delete": _HEARD_LATE,
    "29-03-ends-10ms-before-delete": _RACE,
    "29-04-ends-20ms-before-delete": _RACE,
    "1.36.3/29-04-ends-20ms-before-delete": _HEARD_LATE,
    "29-05-ends-40ms-before-delete": _RACE,
    "1.20.2/29-05-ends-40ms-before-delete": _LOST,
    "29-06-ends-60ms-before-delete": _RACE,
    "29-07-ends-100ms-before-delete": _RACE,
    "1.20.2/29-07-ends-100ms-before-delete": _LOST,
    "29-08-ends-150ms-before-delete": _RACE,
    "29-09-ends-200ms-before-delete": _RACE,
    "1.36.3/29-09-ends-200ms-before-delete": _HEARD_LATE,
    "29r-00-ends-60ms-after-delete": _RACE,
    "29r-01-ends-10ms-after-delete": _RACE,
    "1.36.3/29r-02-ends-5ms-before-delete": _HEARD_LATE,
    "29r-03-ends-15ms-before-delete": _RACE,
    "29r-04-ends-25ms-before-delete": _RACE,
    "29r-05-ends-35ms-before-delete": _RACE,
    "29r-06-ends-50ms-before-delete": _RACE,
    "1.36.3/29r-07-ends-80ms-before-delete": _HEARD_LATE,
    "29r-08-ends-120ms-before-delete": _RACE,
    "29r-09-ends-180ms-before-delete": _RACE,
    "30-env-expansion-100k": Play(_ends(0, after_s=1.0)),
    "30b-env-expansion-140k": Play(_ends(1, after_s=0.1), quick=True),
    "30c-env-expansion-edge-cases": Play(_ends(0, after_s=0.1), quick=True),
    "31-deleted-while-pending-start": _answers(None),
    "32a-no-such-program-never": Play({"main": [Run(outcome=Outcome.START_ERROR)]}),
    "32b-no-such-program-onfailure": Play({"main": [Run(outcome=Outcome.START_ERROR)]}),
    "33a-termination-message": Play(_ends(3, after_s=1.0), quick=True),
    "33b-termination-message-from-log": Play(_ends(3, after_s=1.0), quick=True),
}
"""What the processes did, by scenario, from its manifest; a key with a version is for that one only. See also `LEFT_OUT`."""


class _Played(Script):
    """A recorded pod's script, with which every state is reported."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def run(self, random: Random, pod: HollowPod, name: str, tries: int) -> Run:
        runs = self._play.runs.get(name, [FOREVER])
        return runs[min(tries, len(runs) - 1)]

    def on_sigterm(self, random: Random, name: str) -> Run:
        return self._play.on_sigterm.get(name, exits(0.0, 143))

    def rejection(self, random: Random, tries: int) -> str:
        return self._play.rejection

    def is_hurried(self, random: Random) -> bool:
        return False

    def loses_exit_codes(self, random: Random) -> bool:
        return self._play.loses_exit_code


_NO_IMAGE = "images that cannot be had are not modelled"

LEFT_OUT: Final = {
    "1.20.2/04b-oomkilled-child-onfailure": "the deletion came in the moment of an end by itself",
    "25b-crash-loop-always": "not yet: a kubelet that starts anew forgets how long it had backed off",
    "1.36.3/28-other-node-ready-e-ignores": "the deletion came before SIGKILL: times there are not those of the model",
    "28-other-node-ready-g-created-after-the-signal": "no pod is bound to a node that shuts down",
    "13b-force-delete-same-name-again": "not yet: two pods of one name",
    "13c-deleted-same-name-again": "not yet: two pods of one name",
    "16a-image-cannot-be-pulled": _NO_IMAGE,
    "17-missing-configmap-env": "what pods need besides is not modelled",
    "17b-missing-configmap-key-env": "what pods need besides is not modelled",
    "17c-missing-configmap-volume": "what pods need besides is not modelled",
    "26d-unschedulable": "the simulated scheduler has a place for every pod",
    "26e-scheduling-gate": "the simulated scheduler has a place for every pod",
    "28g-created-after-the-signal": "no pod is bound to a node that shuts down",
    "34-liveness-fails-always": "probes are not modelled",
}
"""Scenarios that are not played, and why; a key with a version is for that one only."""

TIMINGS: Final = (Timing(scale=1.0, starting=0.5),)
NODE: Final = "node-0"
SHUTDOWN: Final = "PrepareForShutdown(true)"
END: Final = "the process is told to end"
TAINTS: Final = "the node controller deletes"


@dataclass(frozen=True)
class _Act:
    """An action of the tester: its name, and after how many states it happened."""

    name: str
    after: int


def _shown(container: Body) -> tuple[Any, ...]:
    (kind, how), *_ = container["state"].items()
    what = {"waiting": ("reason",), "running": (), "terminated": ("exitCode", "reason")}[kind]
    return (container["name"], kind, *(how.get(name, "") for name in what), container.get("restartCount", 0))


def _state(pod: Body) -> tuple[Any, ...]:
    """The state of a pod that is compared."""
    status = pod["status"]
    groups = (status.get(name) or [] for name in ("initContainerStatuses", "containerStatuses"))
    conditions = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
    return (
        status["phase"],
        status.get("reason", ""),
        *(tuple(_shown(each) for each in group) for group in groups),
        *sorted(conditions & {"DisruptionTarget", "AllContainersRestarting"}),
        f"grace {pod['metadata'].get('deletionGracePeriodSeconds')}",
    )


def _add(states: list[Any], pod: Body, play: Play) -> None:
    state = _state(pod)
    if play.quick and any(kind == "running" for _, kind, *_ in state[3]):
        return
    if not states or states[-1] != state:
        states.append(state)


def _read(life: Life, play: Play) -> tuple[list[Any], list[_Act]]:
    """The states of a pod, and what was done to it.

    After a node's shutdown has begun they end with the pod's deletion: there the tester deleted it, here the node controller.
    """
    states: list[Any] = []
    acts: list[_Act] = []
    deleted = tainted = shut_down = False
    for step in life.steps:
        if step.object is None:
            act = step.action
        elif not tainted and "DeletionByTaintManager" in str(step.object["status"].get("conditions")):
            act = TAINTS
        elif not deleted and "deletionTimestamp" in step.object["metadata"]:
            act = "delete"  # the recording does not say who did it
        else:
            act = ""
        tainted = tainted or act == TAINTS
        deleted = deleted or act.startswith((TAINTS, "delete", "eviction"))
        if deleted and shut_down:
            break
        if act and not shut_down:
            late = act == END and play.heard_late and not deleted
            acts.append(_Act(act, len(states) + late))
        shut_down = shut_down or act == SHUTDOWN
        if step.object is not None:
            _add(states, step.object, play)
    return states, sorted(acts, key=lambda act: act.after)


class _Tester:
    """Does what the tester of a recording did, each act after as many states as there, and records all states.

    After a node's shutdown has begun it records them until the node falls silent.
    """

    def __init__(self, world: World, kubelet: Kubelet, manifest: Body, acts: list[_Act], play: Play) -> None:
        self.states: list[Any] = []
        self._world = world
        self._kubelet = kubelet
        self._acts = acts
        self._play = play
        self._path = PODS.path("team", manifest["metadata"]["name"])
        self._ends = False
        self._feed = Feed(world.server.storage, PODS)
        world.server.on_change.append(self._look)
        meta = manifest["metadata"] | {"labels": LABELS}
        self._send("POST", PODS.path("team"), manifest | {"metadata": meta})

    def _look(self) -> None:
        for change in self._feed.news():
            if self._ends:
                return
            _add(self.states, change.new.body, self._play)
            uid = change.new.body["metadata"]["uid"]
            while self._acts and self._acts[0].after <= len(self.states):
                act = self._acts.pop(0)
                self._later(0.01, partial(self._do, act.name, uid))

    def _do(self, act: str, uid: str) -> None:
        nodes = self._kubelet.nodes
        if act.startswith("delete"):
            grace = act.partition("grace=")[2]
            self._send("DELETE", self._path, {"gracePeriodSeconds": int(grace)} if grace else {})
        elif act.startswith("eviction"):
            self._kubelet.evict(uid)
        elif act == "finalizer removed":
            self._send("PATCH", self._path, {"metadata": {"finalizers": None}})
        elif act == END:
            code = self._play.told_to_end
            if code is not None and (self._play.heard_late or self.states[-1][-1] == "grace None"):  # else it has ended
                self._kubelet.end(uid, "main", code)
        elif act == "kubelet killed":
            nodes.silence(NODE)
        elif act == "kubelet started":
            nodes.bring_back(NODE)
        elif act == TAINTS:
            nodes.taint(NODE)
        elif act == SHUTDOWN:
            nodes.shut_down()
            self._later(SHUTDOWN_GRACE_S + 2.9, self._end)

    def _end(self) -> None:
        self._ends = True

    @staticmethod
    def _later(seconds: float, step: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, step, context=NETWORK)

    def _send(self, method: str, path: str, body: Body) -> None:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self._world.server.exchange(Request(method, path, {}, msgspec.json.encode(body), content_type), "tester")


def _simulated(version: str, manifest: Body, acts: list[_Act], play: Play) -> list[Any]:
    found: list[Any] = []

    async def scenario(world: World) -> None:
        await world.create_namespaces("team")
        kubelet = Kubelet(world, Random(0), script=_Played(play), nodes=1, training="main", pace=0.1, timings=TIMINGS)
        tester = _Tester(world, kubelet, manifest, [*acts], play)
        await asyncio.sleep(120.0)
        found.extend(tester.states)

    run_seed(scenario, 0, weather=CALM, kubernetes=Kubernetes.parse(version))
    return found


@pytest.mark.parametrize(
    "recording", [each for each in histories() if not each.entry(LEFT_OUT)], ids=lambda recording: recording.name
)
def test_the_simulated_kubelet_writes_the_states_that_a_real_one_wrote(recording: History) -> None:
    """M1, M2, M3, M10: the same script and version, the same sequence of states."""
    (life,) = recording.lives
    play = recording.entry(PLAYS)
    assert play is not None
    states, acts = _read(life, play)
    assert _simulated(recording.version, life.manifest, acts, play) == states


def test_each_recording_is_played_or_left_out_for_a_reason() -> None:
    """No recording is forgotten, and none of the reasons is obsolete."""
    played = {each.scenario for each in histories() if not each.entry(LEFT_OUT)}
    assert played == {name.rpartition("/")[2] for name in PLAYS}
    known = {name for each in histories() for name in (each.name, each.scenario)}
    assert known.issuperset({*LEFT_OUT, *PLAYS})
