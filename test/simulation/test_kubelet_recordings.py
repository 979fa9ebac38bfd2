"""Given the script of a recorded pod, the simulated kubelet writes the states that a real one wrote.

The recordings are of Kubernetes 1.20.2 and 1.36.3 (`test/data/recordings`). Compared are phase, reason, the states of all
containers with exit codes and restarts, DisruptionTarget and AllContainersRestarting, and the grace of the deletion; times,
names of objects and messages are not, and equal neighbours count once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from api.client.transport import Request
from api.core import PODS
from fakes.recordings import VERSIONS, histories, history
from hack.kubernetes_versions import Kubernetes
from simulation.feed import Feed
from simulation.kubelet import Kubelet
from simulation.model.network import NETWORK
from simulation.scripts import Answer, Run, Script
from simulation.weather import CALM
from simulation.world import World, run_seed

if TYPE_CHECKING:
    from simulation.model.storage import Body

LABELS: Final = {"replica-type": "worker", "replica-index": "0"}

HOURS: Final = Run(1e5, None)


@dataclass(frozen=True)
class Play:
    """What the containers of a recorded pod did: their runs in order (the last repeats), and their answer to SIGTERM."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    on_sigterm: dict[str, Answer] = field(default_factory=dict)
    shut_down: bool = False
    rejection: str = ""


def _ends(*codes: int, after_s: float = 2.0, reason: str = "") -> dict[str, list[Run]]:
    return {"main": [Run(after_s, code, reason=reason) for code in codes]}


def _answers(code: int | None, seconds: float = 2.0) -> Play:
    """`main` runs until it gets SIGTERM."""
    return Play(on_sigterm={"main": Answer(seconds, code)})


ORDERLY: Final = Answer(0.0, 0)

PLAYS: Final = {
    "01-exit-0-never": Play(_ends(0)),
    "02-exit-1-never": Play(_ends(1)),
    "03a-exit-137-never": Play(_ends(137)),
    "03b-sigkill-from-the-node-never": Play(_ends(137)),
    "04-oomkilled-never": Play(_ends(137, reason="OOMKilled")),
    "05-onfailure-1-1-0": Play(_ends(1, 1, 0, after_s=1.0)),
    "06-always-exit-0": Play(_ends(0, after_s=1.0)),
    "06b-always-deleted-in-backoff": Play(_ends(1, after_s=1.0)),
    "07-main-ends-sidecar-runs-on": Play(_ends(0), {"side": ORDERLY}),
    "07b-main-fails-sidecar-runs-on-onfailure": Play(_ends(3, 3, 0, after_s=1.0), {"side": ORDERLY}),
    "08-native-sidecar-main-exit-0-never": Play(_ends(0), {"log": Answer(1.0, 0)}),
    "08-native-sidecar-main-exit-0-onfailure": Play(_ends(0), {"log": Answer(1.0, 0)}),
    "08-native-sidecar-main-exit-1-never": Play(_ends(1), {"log": Answer(1.0, 0)}),
    "08c-native-sidecar-deleted": Play({}, {"main": Answer(2.0, 0), "log": Answer(1.0, 0)}),
    "09-delete-sigterm-exit-0": _answers(0),
    "09b-delete-sigterm-exit-0-always": _answers(0),
    "10-delete-sigterm-exit-143": _answers(143),
    "10b-delete-sigterm-exit-143-onfailure": _answers(143),
    "11-delete-ignores-sigterm-grace-3": _answers(None),
    "11b-delete-ignores-sigterm-pod-grace-3": _answers(None),
    "11c-delete-grace-1": _answers(0, 0.0),
    "12-delete-30-then-1": _answers(None),
    "12c-delete-30-then-0": _answers(None),
    "13-force-delete": _answers(0),
    "14-eviction": _answers(143),
    "15-finalizer": _answers(143),
    "15b-finalizer-ended-before": Play(_ends(0)),
    "15c-finalizer-force-delete": _answers(0),
    "19-init-fails-never": Play({"first": [Run(2.0, 1)]}),
    "19b-init-fails-then-succeeds-onfailure": Play(
        {"first": [Run(1.0, 1), Run(1.0, 0)], "main": [Run(1.0, 0)]},
    ),
    "19c-two-inits-succeed-never": Play({name: [Run(1.0, 0)] for name in ("first", "second", "main")}),
    "20-container-onfailure-under-never": Play(_ends(1, 1, 0, after_s=1.0)),
    "21-rule-restart-42-then-0": Play(_ends(42, 42, 0, after_s=1.0)),
    "21b-rule-restart-42-then-1": Play(_ends(42, 1, after_s=1.0)),
    "22-rule-restart-all-42-then-0": Play(_ends(42, 42, 0, after_s=1.0)),
    "22b-rule-restart-all-with-init-and-side": Play(
        _ends(42, 0) | {"first": [Run(2.0, 0)], "side": [Run(12.0, 0)]}, {"side": ORDERLY}
    ),
    "23-pod-always-container-never": Play(_ends(0)),
    "23b-pod-always-container-never-exit-1-side": Play(_ends(1), {"side": ORDERLY}),
    "26a-rejected-cpu": Play(rejection="OutOfcpu"),
    "26b-rejected-affinity": Play(rejection="NodeAffinity"),
    "26c-rejected-memory-always": Play(rejection="OutOfmemory"),
    "28a-never-exit-0": Play({}, {"main": Answer(2.0, 0)}, shut_down=True),
    "28b-never-exit-143": Play({}, {"main": Answer(2.0, 143)}, shut_down=True),
    "28c-onfailure-exit-143": Play({}, {"main": Answer(2.0, 143)}, shut_down=True),
    "28d-always-exit-0": Play({}, {"main": Answer(2.0, 0)}, shut_down=True),
    "28e-ignores": Play({}, {"main": Answer(2.0, None)}, shut_down=True),
    "28f-ended-before": Play(_ends(0, after_s=1.0), shut_down=True),
    "31-deleted-while-pending-start": _answers(None),
}
"""By scenario, what the process did by its manifest. The others are in `LEFT_OUT`."""


class _Played(Script):
    """A recorded pod; nothing passes unseen."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def run(self, random: Random, pod: dict[str, Any], name: str, tries: int) -> Run:
        runs = self._play.runs.get(name, [HOURS])
        return runs[min(tries, len(runs) - 1)]

    def on_sigterm(self, random: Random, pod: dict[str, Any], name: str) -> Answer:
        return self._play.on_sigterm.get(name, Answer(0.0, 143))

    def rejection(self, random: Random, pod: dict[str, Any], tries: int) -> str:
        return self._play.rejection

    def starts_though_deleted(self, random: Random) -> bool:
        return True

    def is_hurried(self, random: Random) -> bool:
        return False

    def loses_exit_codes(self, random: Random) -> bool:
        return False


_NO_IMAGE = "images that cannot be had are not modelled"
_NODES = "the script is of a node with many pods; the simulated world has nodes that are lost and come back of its own"
_OLD_SIDECAR = "1.20 tells a deleted pod's init container apart from one that is not; no simulated job comes to that"
_RACE = "tells of milliseconds around a deletion; the same states as 09"

LEFT_OUT: Final = {
    "02b-exit-at-once-never": "1.20 passes over Running: the simulated world draws that",
    "04b-oomkilled-child-onfailure": "as 05, with another reason",
    "08b-native-sidecar-crashes": "the sidecar's state changes after the pod has succeeded, which nothing here reads",
    "1.20.2/08-native-sidecar-main-exit-0-never": _OLD_SIDECAR,
    "1.20.2/08-native-sidecar-main-exit-0-onfailure": _OLD_SIDECAR,
    "1.20.2/08-native-sidecar-main-exit-1-never": _OLD_SIDECAR,
    "1.20.2/08c-native-sidecar-deleted": _OLD_SIDECAR,
    "12b-delete-30-then-60-then-5": "the exit code is lost in 1.20: the simulated world draws that; else as 12",
    "13b-force-delete-same-name-again": "two pods",
    "13c-deleted-same-name-again": "two pods",
    "16a-image-cannot-be-pulled": _NO_IMAGE,
    "16b-image-never-pull-missing": _NO_IMAGE,
    "16c-image-name-invalid": _NO_IMAGE,
    "17-missing-configmap-env": "what pods need besides is not modelled",
    "17b-missing-configmap-key-env": "what pods need besides is not modelled",
    "17c-missing-configmap-volume": "what pods need besides is not modelled",
    "18-active-deadline": "deadlines of pods are not modelled",
    "18b-active-deadline-onfailure-ignores": "deadlines of pods are not modelled",
    "1.20.2/22b-rule-restart-all-with-init-and-side": "fails at the first exit, while its other container runs on",
    "26d-unschedulable": "the simulated scheduler has a place for every pod",
    "26e-scheduling-gate": "the simulated scheduler has a place for every pod",
    "28g-created-after-the-signal": "no pod is bound to a node that shuts down",
    "30-env-expansion-100k": "about environments",
    "30b-env-expansion-140k": "about environments",
    "30c-env-expansion-edge-cases": "about environments",
    "27-prestop-hook": "hooks are not modelled",
    "27b-prestop-hook-longer-than-grace": "hooks are not modelled",
    "27c-prestop-hook-exit-0": "hooks are not modelled",
    "27d-readiness-probe": "probes are not modelled",
    "32a-no-such-program-never": "containers that cannot start are not modelled",
    "32b-no-such-program-onfailure": "containers that cannot start are not modelled",
    "33a-termination-message": "as 02b, with another exit code",
    "33b-termination-message-from-log": "as 02b, with another exit code",
    "34-liveness-fails-always": "probes are not modelled",
}
"""What is not played, and why; with a version in front only of that one."""
LEFT_OUT_FAMILIES: Final = {"24": _NODES, "25": _NODES, "28-other-node-ready": _NODES, "29": _RACE}


@dataclass(frozen=True)
class _Act:
    """What the tester did: by its name, and after how many states."""

    name: str
    after: int


@dataclass(frozen=True)
class _Recording:
    manifest: Body
    states: list[Any]
    acts: list[_Act]


def _shown(container: Body) -> tuple[Any, ...]:
    (kind, how), *_ = container["state"].items()
    what = {"waiting": ("reason",), "running": (), "terminated": ("exitCode", "reason")}[kind]
    return (container["name"], kind, *(how.get(name, "") for name in what), container["restartCount"])


def _state(pod: Body) -> tuple[Any, ...]:
    """What is compared of a pod."""
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


def _add(states: list[Any], pod: Body) -> None:
    state = _state(pod)
    if not states or states[-1] != state:
        states.append(state)


def _read(version: str, scenario: str) -> _Recording:
    manifest: Body = {}
    states: list[Any] = []
    acts: list[_Act] = []
    for step in history(version, scenario).steps:
        if step.object is not None:
            _add(states, step.object)
        elif step.sent is not None:
            manifest = step.sent
        else:
            acts.append(_Act(step.action, len(states)))
    return _Recording(manifest, states, acts)


def _scenarios() -> list[tuple[str, str]]:
    return [(version, each.scenario) for version in VERSIONS for each in histories(version)]


def _why_left_out(version: str, scenario: str) -> str:
    families = [why for family, why in LEFT_OUT_FAMILIES.items() if scenario.startswith(family)]
    return LEFT_OUT.get(scenario) or LEFT_OUT.get(f"{version}/{scenario}") or next(iter(families), "")


class _Tester:
    """Does what the tester of a recording did, each act when as many states have been seen, and writes down all states."""

    def __init__(self, world: World, kubelet: Kubelet, acts: list[_Act]) -> None:
        self.states: list[Any] = []
        self._world = world
        self._kubelet = kubelet
        self._acts = acts
        self._feed = Feed(world.server.storage, PODS)
        world.server.on_change.append(self._look)

    def _look(self) -> None:
        for change in self._feed.news():
            _add(self.states, change.new.body)
            uid = change.new.body["metadata"]["uid"]
            while self._acts and self._acts[0].after <= len(self.states):
                act = self._acts.pop(0)
                asyncio.get_running_loop().call_later(0.01, partial(self._do, act.name, uid), context=NETWORK)

    def _do(self, act: str, uid: str) -> None:
        if act.startswith("delete"):
            grace = act.partition("grace=")[2]
            self.send("DELETE", PODS.path("team", "p"), {"gracePeriodSeconds": int(grace)} if grace else {})
        elif act.startswith("eviction"):
            self._kubelet.evict(uid)
        elif act == "finalizer removed":
            self.send("PATCH", PODS.path("team", "p"), {"metadata": {"finalizers": None}})
        elif act == "PrepareForShutdown(true)":
            self._kubelet.nodes.shut_down()

    def send(self, method: str, path: str, body: Body) -> None:
        """Send a request."""
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self._world.server.exchange(Request(method, path, {}, msgspec.json.encode(body), content_type), "tester")


def _simulated(version: str, recording: _Recording, play: Play) -> list[Any]:
    found: list[Any] = []

    async def scenario(world: World) -> None:
        await world.create_namespaces("team")
        kubelet = Kubelet(world, Random(0), script=_Played(play), nodes=1, training="main", pace=0.1)
        tester = _Tester(world, kubelet, [*recording.acts])
        meta = recording.manifest["metadata"] | {"labels": LABELS}
        tester.send("POST", PODS.path("team"), recording.manifest | {"metadata": meta})
        await asyncio.sleep(120.0)
        found.extend(tester.states)

    run_seed(scenario, 0, weather=CALM, kubernetes=Kubernetes.parse(version))
    return found


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, scenario) for version, scenario in _scenarios() if not _why_left_out(version, scenario)],
)
def test_the_simulated_kubelet_writes_the_states_that_a_real_one_wrote(version: str, scenario: str) -> None:
    """M1, M2, M3, M10: the same script and version, the same sequence of states."""
    recording, play = _read(version, scenario), PLAYS[scenario]
    expected, found = recording.states, _simulated(version, recording, play)
    if play.shut_down:  # who deletes the pods afterwards is the tester there, and the node controller here
        expected = [each for each in expected if each[-1] == "grace None"]
        found = found[: len(expected)]
    assert found == expected


def test_each_recording_is_played_or_left_out_for_a_reason() -> None:
    """No recording is forgotten, and no reason is left over."""
    played = {scenario for version, scenario in _scenarios() if not _why_left_out(version, scenario)}
    assert played == set(PLAYS)
    known = {name for version, scenario in _scenarios() for name in (scenario, f"{version}/{scenario}")}
    assert known.issuperset(LEFT_OUT)
