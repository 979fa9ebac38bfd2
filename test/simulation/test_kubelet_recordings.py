"""Given the script of a recorded pod, the simulated kubelet writes the states that a real one wrote.

The recordings are of Kubernetes 1.20.2 and 1.36.3 (`test/data/recordings`). The tests compare phase, reason, the states of all
containers with exit codes and restarts, DisruptionTarget and AllContainersRestarting, and the grace of the deletion, but not
times, names of objects or messages. Equal consecutive states count once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
import pytest

from fakes import plays
from fakes.recordings import History, Life, histories
from hack.hollow_node.objects import HollowPod
from hack.hollow_node.script import OUT_OF_CPU, Outcome, Run, Timing, parse_script
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


@dataclass(frozen=True)
class Play:
    """What the containers of a recorded pod did: their script, and what only the simulated kubelet distinguishes.

    `told_to_end`: the exit code of `main` when the tester lets it end; None: that comes too late. `heard_late`: the kubelet
    learns of that exit after the deletion, and before it stops the pod.
    """

    script: plays.Play
    told_to_end: int | None = 0
    heard_late: bool = False


_HEARD_LATE: Final = Play(plays.RACE, heard_late=True)

OTHERWISE: Final = {
    "08b-native-sidecar-crashes": Play(plays.Play("21.2s:0", others={"log": "2s:1"})),
    "25d-ends-meanwhile-onfailure": Play(plays.Play(plays.FOREVER, "ignore"), told_to_end=1),
    "25j-ready-probe": Play(plays.Play(plays.FOREVER, "2s:0")),
    "27d-readiness-probe": Play(plays.Play(plays.FOREVER, "2s:0")),
    "1.36.3/29-02-ends-0ms-before-delete": _HEARD_LATE,
    "1.36.3/29-04-ends-20ms-before-delete": _HEARD_LATE,
    "1.36.3/29-09-ends-200ms-before-delete": _HEARD_LATE,
    "1.36.3/29r-02-ends-5ms-before-delete": _HEARD_LATE,
    "1.36.3/29r-07-ends-80ms-before-delete": _HEARD_LATE,
}
"""Scenarios that the simulated kubelet plays in another way than `plays.PLAYED` has it. See also `LEFT_OUT`."""


def _play_of(recording: History) -> Play | None:
    """What is played; None if nobody has said."""
    other, script = recording.entry(OTHERWISE), recording.entry(plays.PLAYED)
    if other is not None or not isinstance(script, plays.Play):
        return other
    return Play(script, told_to_end=None if script.ended_early else 0)


class _Played(Script):
    """A recorded pod's script, with which every state is reported."""

    def __init__(self, play: Play, manifest: Body) -> None:
        annotations = play.script.annotations(play.script.run)
        pod = msgspec.convert({"metadata": {"annotations": annotations}, "spec": manifest["spec"]}, HollowPod)
        self._script = parse_script(pod)
        self._loses_exit_code = play.script.on_stop == "lost"

    def run(self, random: Random, pod: HollowPod, name: str, tries: int) -> Run:
        return self._script.run(name, tries)

    def on_sigterm(self, random: Random, name: str) -> Run:
        return exits(0.0, 0) if self._loses_exit_code else self._script.stop(name)

    def rejection(self, random: Random, tries: int) -> str:
        run = self._script.run("main", tries)
        return (run.reason or OUT_OF_CPU) if run.outcome is Outcome.REJECTED else ""

    def is_hurried(self, random: Random) -> bool:
        return False

    def loses_exit_codes(self, random: Random) -> bool:
        return self._loses_exit_code


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
    if play.script.quick and any(kind == "running" for _, kind, *_ in state[3]):
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
        kubelet = Kubelet(
            world, Random(0), script=_Played(play, manifest), nodes=1, training="main", pace=0.1, timings=TIMINGS
        )
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
    play = _play_of(recording)
    assert play is not None
    states, acts = _read(life, play)
    assert _simulated(recording.version, life.manifest, acts, play) == states


def test_each_recording_is_played_or_left_out_for_a_reason() -> None:
    """No recording is forgotten, and none of the reasons is obsolete."""
    assert [each.name for each in histories() if not each.entry(LEFT_OUT) and _play_of(each) is None] == []
    known = {name for each in histories() for name in (each.name, each.scenario)}
    assert known.issuperset({*LEFT_OUT, *OTHERWISE})
