"""Which lines of a container's log the hollow node sends, as a kubelet would."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import pytest

from hack.hollow_node.logs import LogError, Options, stream
from hack.hollow_node.objects import HollowPod
from hack.hollow_node.script import LOG
from kit.virtual_loop import EPOCH, FakeClock
from tfjob_operator.cli.training import LogReader

PATH: Final = ("ns", "p", "main")
LINES: Final = "loading\n1s one\ntwo\n3s keras 2 every 2s\nsaved"
ONE_ID, TWO_ID = "containerd://1", "containerd://2"


def at(seconds: float) -> str:
    """A time so long after the start of the run."""
    return (EPOCH + timedelta(seconds=seconds)).isoformat()


def ended(container_id: str = ONE_ID, finished: float = 4.0, reason: str = "Error") -> dict[str, Any]:
    """A run that has ended."""
    return {
        "terminated": {
            "exitCode": 1,
            "reason": reason,
            "startedAt": at(0),
            "finishedAt": at(finished),
            "containerID": container_id,
        }
    }


class Kubelet:
    """A node with one pod, whose container is in the given state, so many seconds after the start of its run."""

    def __init__(self, state: dict[str, Any], last: dict[str, Any] | None = None, *, now: float = 4.0) -> None:
        self.clock = FakeClock()
        self.clock.step(now)
        self.show(state, last)

    def show(self, state: dict[str, Any], last: dict[str, Any] | None = None, container_id: str = ONE_ID) -> None:
        """The status that the node reported last."""
        status = {"name": "main", "containerID": container_id, "state": state, "lastState": last or {}}
        content = {
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "annotations": {LOG: LINES}},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"containerStatuses": [status]},
        }
        self._pod = msgspec.convert(content, HollowPod)

    def find(self, namespace: str, name: str) -> tuple[HollowPod, Any] | None:
        """The pod, if it is asked for."""
        return (self._pod, self._pod.status) if (namespace, name) == ("ns", "p") else None

    async def log(self, query: str = "", path: tuple[str, str, str] = PATH) -> list[str]:
        """The lines that are sent."""
        options = msgspec.convert(dict(parse_qsl(query)), Options, strict=False)
        return b"".join([data async for data in stream(self.find, self.clock, path, options)]).decode().splitlines()


RUNNING: Final = {"running": {"startedAt": at(0)}}
EPOCH_1: Final = ["Epoch 1/2", "10/10 - 2s - loss: 2.3000 - accuracy: 0.1000"]


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("", ["loading", "one", "two", "Epoch 1/2"]),
        ("tailLines=2", ["two", "Epoch 1/2"]),
        ("tailLines=0", []),
        ("sinceSeconds=3", ["one", "two", "Epoch 1/2"]),
        ("sinceSeconds=3&tailLines=1", ["Epoch 1/2"]),
        (f"sinceTime={at(2).replace('+00:00', 'Z')}", ["Epoch 1/2"]),
        ("timestamps=true&tailLines=1", [f"{EPOCH + timedelta(seconds=3):%Y-%m-%dT%H:%M:%S}.000000000Z Epoch 1/2"]),
    ],
)
async def test_a_log_has_what_was_printed_by_now(query: str, lines: list[str]) -> None:
    """Of that, what the parameters ask for."""
    assert await Kubelet(RUNNING).log(query) == lines


async def test_a_run_that_has_ended_prints_nothing_more() -> None:
    """Also where it is the previous one."""
    printed = ["loading", "one", "two"]
    assert await Kubelet(ended(finished=2.0), now=60.0).log() == printed
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    assert await Kubelet(waiting, ended(finished=2.0), now=60.0).log() == printed
    again = Kubelet({"running": {"startedAt": at(10)}}, ended(finished=2.0), now=10.5)
    assert await again.log("previous=true") == printed
    assert await again.log() == ["loading"]
    assert await Kubelet(ended(reason="StartError")).log() == []


@pytest.mark.parametrize(
    ("state", "query", "message"),
    [
        (RUNNING, "previous=true", 'previous terminated container "main" in pod "p" not found'),
        (
            {"waiting": {"reason": "ContainerCreating"}},
            "",
            'container "main" in pod "p" is waiting to start: ContainerCreating',
        ),
        (
            {"waiting": {"reason": "ImagePullBackOff"}},
            "",
            'container "main" in pod "p" is waiting to start: trying and failing to pull image',
        ),
        (ended(container_id=""), "", 'container "main" in pod "p" is terminated'),
    ],
)
async def test_a_log_that_is_not_there_is_refused_in_the_kubelets_words(
    state: dict[str, Any], query: str, message: str
) -> None:
    """`kubectl logs` prints them."""
    with pytest.raises(LogError) as raised:
        await Kubelet(state).log(query)
    assert str(raised.value) == message


async def test_what_the_node_does_not_run_has_no_log() -> None:
    """Neither other pods nor other containers."""
    with pytest.raises(LogError, match='pod "q" not found'):
        await Kubelet(RUNNING).log(path=("ns", "q", "main"))
    with pytest.raises(LogError, match='container "side" in pod "p" is not available'):
        await Kubelet(RUNNING).log(path=("ns", "p", "side"))


async def test_a_followed_log_goes_on_to_the_end_of_its_run() -> None:
    """Not into the next run: a restarted container is another one."""
    kubelet = Kubelet(RUNNING, now=0.5)
    following = asyncio.create_task(kubelet.log("follow=true&tailLines=0"))
    await asyncio.sleep(0.2)
    kubelet.clock.step(3.0)
    await asyncio.sleep(0.2)
    assert not following.done()
    kubelet.show({"running": {"startedAt": at(10)}}, ended(finished=5.5), TWO_ID)
    kubelet.clock.step(60.0)
    assert await following == ["one", "two", *EPOCH_1, "Epoch 2/2"]


async def test_keras_lines_are_progress_and_curves_for_the_plugin() -> None:
    """They are made for it: loss and accuracy by epoch."""
    lines = await Kubelet(RUNNING, now=60.0).log()
    assert lines[3:] == [*EPOCH_1, "Epoch 2/2", "10/10 - 2s - loss: 1.6263 - accuracy: 0.3636", "saved"]
    reader = LogReader()
    points = [*reader.feed("\n".join(lines).encode()), *reader.close()]
    assert [(point.name, point.value) for point in points if point.name in ("loss", "accuracy")] == [
        ("loss", 2.3),
        ("accuracy", 0.1),
        ("loss", 1.6263),
        ("accuracy", 0.3636),
    ]


async def test_a_stamp_is_in_utc_with_nine_digits() -> None:
    """As container runtimes write it."""
    (line,) = await Kubelet({"running": {"startedAt": "2026-01-01T01:00:00.5+01:00"}}).log(
        "timestamps=true&tailLines=1"
    )
    stamp = line.split()[0]
    assert stamp.endswith("500000000Z")
    assert datetime.fromisoformat(stamp).tzinfo == UTC
