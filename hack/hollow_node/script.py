"""Parses the annotations of a pod into a `Script`, which defines the n-th run of each container. Pure.

README.md in this folder describes the grammar. An invalid annotation becomes a run that never starts and reports the error
(`CreateContainerConfigError`) in the pod's status, where its author will look; nothing is raised.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Final, Protocol

import msgspec
import yaml
from msgspec import structs

from hack.hollow_node.objects import HollowPod
from tfjob_operator.api.resources import parse_quantity

PREFIX: Final = "hollow.tfjob.kubeflow.org/"
RUN: Final = PREFIX + "run"
RUN_OF: Final = RUN + "."
"""Followed by the name of a container."""
LOG: Final = PREFIX + "log"
LOG_OF: Final = LOG + "."
"""Followed by the name of a container."""
ON_STOP: Final = PREFIX + "on-stop"
RUNS_BEFORE: Final = PREFIX + "runs-before"
"""Written by the node itself when it binds a pod; see `history`."""

SIGTERM_EXIT: Final = 143  # 128 + 15: the exit code of a program that does not handle SIGTERM
SIGKILL_EXIT: Final = 137  # 128 + 9

START_ERROR: Final = "StartError"
START_ERROR_EXIT: Final = 128
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"
"""The reason of an end that the kubelet does not know."""
OUT_OF_CPU: Final = "OutOfcpu"

MAX_SECONDS: Final = (
    10 * 365 * 86400.0
)  # a larger value is a typo, and would make the end time overflow the range of dates


class Outcome(Enum):
    """What happens at the end of a run, or instead of it. The values are words of the grammar."""

    EXIT = "exit"
    EVICTED = "evicted"
    NODE_LOST = "node-lost"
    NODE_SHUTDOWN = "node-shutdown"
    REJECTED = "rejected"
    START_ERROR = "start-error"
    WAITING = "waiting"
    NEVER_START = "never-start"
    IMAGE_PULL_BACK_OFF = "image-pull-back-off"
    CONFIG_ERROR = "config-error"


WAITS: Final = frozenset({Outcome.IMAGE_PULL_BACK_OFF, Outcome.CONFIG_ERROR, Outcome.WAITING})
"""The sandbox exists, but the container waits."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: after `lasts` seconds (infinite: until it is stopped) `outcome` happens.

    EXIT has `exit_code` and `reason`; EVICTED, REJECTED and WAITING have `reason`; CONFIG_ERROR has `message`.
    """

    lasts: float = 2.0
    outcome: Outcome = Outcome.EXIT
    exit_code: int = 0
    reason: str = ""
    message: str = ""


DEFAULT_RUN: Final = Run()
DEFAULT_INIT_RUN: Final = Run(lasts=0.1)
DEFAULT_STOP: Final = Run(lasts=0.0, exit_code=SIGTERM_EXIT)


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a run from `at` seconds after its start: `text`, or Keras epochs of `epoch_s` seconds each."""

    at: float
    text: str = ""
    epochs: int = 0
    epoch_s: float = 0.0


class Behaviour(Protocol):
    """What the containers of one pod do. The same arguments always give the same result."""

    def run(self, container: str, index: int, /) -> Run:
        """Return what the run after `index` restarts does."""

    def stop(self, container: str, /) -> Run:
        """Return what a container does on SIGTERM: how long it continues, and how it ends."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script from annotations: `runs` has a non-empty sequence per container, and `outputs` has the output of a run."""

    runs: Mapping[str, Sequence[Run]]
    on_stop: Run = DEFAULT_STOP
    runs_before: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, Sequence[Output]] = field(default_factory=dict)

    def run(self, container: str, index: int) -> Run:
        """Return what a container does in its run after `index` restarts; the last entry of a list repeats."""
        runs = self.runs[container]
        return runs[min(self.runs_before.get(container, 0) + index, len(runs) - 1)]

    def stop(self, _container: str) -> Run:
        """Return what every container does on SIGTERM."""
        return self.on_stop


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _MalformedError(ValueError):
    """An annotation that cannot be parsed; the message tells its author what to correct."""


_FATES: Final = {fate.value: fate for fate in (Outcome.EVICTED, Outcome.NODE_LOST, Outcome.NODE_SHUTDOWN)}
_REASON_PATTERN: Final = re.compile(r"(?P<outcome>rejected|waiting):(?P<reason>[A-Za-z]{1,64})")
_RUN_PATTERN: Final = re.compile(r"(?P<seconds>\d+(?:\.\d+)?)s:(?P<outcome>[a-z0-9-]+)")
_OUTPUT_PATTERN: Final = re.compile(r"(?:(?P<at>\d+(?:\.\d+)?)s )?(?P<text>.*)")
_KERAS_PATTERN: Final = re.compile(r"keras (?P<epochs>\d{1,6}) every (?P<seconds>\d+(?:\.\d+)?)s")
_HELP: Final = (
    "write <seconds>s:<exit code> such as 2s:0, or <seconds>s:oom-killed|evicted|node-lost|node-shutdown, or forever,"
    " never-start, start-error, image-pull-back-off, waiting:<reason>, rejected or rejected:<reason>; commas separate"
    " successive runs"
)
_WITHOUT_TIME: Final = {
    "forever": Run(lasts=math.inf),
    "never-start": Run(outcome=Outcome.NEVER_START),
    "image-pull-back-off": Run(outcome=Outcome.IMAGE_PULL_BACK_OFF),
    "start-error": Run(outcome=Outcome.START_ERROR),
    "rejected": Run(outcome=Outcome.REJECTED, reason=OUT_OF_CPU),
}

_STOPS: Final = {
    "ignore": Run(lasts=math.inf),
    "lost": Run(lasts=0.0, exit_code=SIGKILL_EXIT, reason=STATUS_UNKNOWN),
}


class ImageScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an image does: `run` and `log` as in annotations. With a memory limit below `memory`, runs end with OOMKilled."""

    run: str = ""
    log: str = ""
    memory: str = ""


def parse_images(text: str) -> dict[str, ImageScript]:
    """Read a file of images. Raises ValueError."""
    try:
        return msgspec.convert(yaml.safe_load(text), dict[str, ImageScript])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from error


def with_images(pod: HollowPod, images: Mapping[str, ImageScript]) -> HollowPod:
    """Return the pod with the annotations of its images, for containers without their own."""
    given = pod.metadata.annotations or {}
    added: dict[str, str] = {}
    for number, container in enumerate(pod.spec.containers):
        image = images.get(container.image)
        if image is None or RUN_OF + container.name in given or (number == 0 and RUN in given):
            continue
        limit = parse_quantity(((container.resources or {}).get("limits") or {}).get("memory", ""))
        needed = parse_quantity(image.memory)
        starves = limit is not None and needed is not None and limit < needed
        added[RUN_OF + container.name] = "0.5s:oom-killed" if starves else image.run or "2s:0"
        if image.log:
            added[LOG_OF + container.name] = image.log
    if not added:
        return pod
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations={**added, **given}))


def parse_script(pod: HollowPod) -> Script:
    """Read a pod's script from its annotations."""
    inits = [container.name for container in pod.spec.init_containers or ()]
    mains = [container.name for container in pod.spec.containers]
    runs: dict[str, Sequence[Run]] = dict.fromkeys(inits, (DEFAULT_INIT_RUN,))
    runs |= dict.fromkeys(mains, (DEFAULT_RUN,))
    ours = {key: text for key, text in (pod.metadata.annotations or {}).items() if key.startswith(PREFIX)}
    if not ours:
        return Script(runs)
    outputs: dict[str, Sequence[Output]] = {}
    try:
        for key in sorted(ours.keys() - {ON_STOP, RUNS_BEFORE}):  # `run.<container>`, more specific, comes last
            name = mains[0] if key in (RUN, LOG) else _container_in(key, runs)
            if key.startswith(LOG):
                outputs[name] = _parse_outputs(key, ours[key])
            else:
                runs[name] = _parse_runs(key, ours[key])
        return Script(runs, _parse_stop(ours.get(ON_STOP)), _parse_runs_before(ours.get(RUNS_BEFORE)), outputs)
    except _MalformedError as error:
        broken = (Run(outcome=Outcome.CONFIG_ERROR, message=str(error)),)
        return Script(dict.fromkeys(runs, broken))


def _container_in(key: str, runs: Mapping[str, object]) -> str:
    if not key.startswith((RUN_OF, LOG_OF)):
        raise _MalformedError(
            f"annotation {key} is unknown: use {RUN} or {LOG}, both also with .<container>, or {ON_STOP}"
        )
    name = key.removeprefix(RUN_OF).removeprefix(LOG_OF)
    if name not in runs:
        raise _MalformedError(f"annotation {key}: the pod has no container {name!r}, only {', '.join(runs)}")
    return name


def _parse_runs(key: str, text: str) -> tuple[Run, ...]:
    return tuple(_parse_run(key, word.strip()) for word in text.split(","))


def _parse_run(key: str, word: str) -> Run:
    if word in _WITHOUT_TIME:
        return _WITHOUT_TIME[word]
    if match := _REASON_PATTERN.fullmatch(word):
        return Run(outcome=Outcome(match["outcome"]), reason=match["reason"])
    match = _RUN_PATTERN.fullmatch(word)
    if match is None or float(match["seconds"]) > MAX_SECONDS:
        raise _MalformedError(f"annotation {key}: {word!r} cannot be read: {_HELP}")
    lasts, outcome = float(match["seconds"]), match["outcome"]
    if outcome in _FATES:
        return Run(lasts, _FATES[outcome])
    if outcome == "oom-killed":
        return Run(lasts, exit_code=SIGKILL_EXIT, reason="OOMKilled")
    if outcome.isascii() and outcome.isdigit() and int(outcome) <= 255:
        return Run(lasts, exit_code=int(outcome))
    raise _MalformedError(f"annotation {key}: {outcome!r} is no exit code from 0 to 255: {_HELP}")


def _parse_outputs(key: str, text: str) -> tuple[Output, ...]:
    """Parse the lines of a log; a line without a time is printed with the one before it."""
    outputs: list[Output] = []
    for line in text.splitlines():
        match = _OUTPUT_PATTERN.fullmatch(line)
        if match is None:
            raise _MalformedError(f"annotation {key}: {line!r} cannot be read")
        last = outputs[-1] if outputs else Output(0.0)
        at = last.at + last.epochs * last.epoch_s if match["at"] is None else float(match["at"])
        if at > MAX_SECONDS:
            raise _MalformedError(f"annotation {key}: {line!r} is too late")
        if keras := _KERAS_PATTERN.fullmatch(match["text"]):
            outputs.append(Output(at, epochs=int(keras["epochs"]), epoch_s=float(keras["seconds"])))
        else:
            outputs.append(Output(at, match["text"]))
    return tuple(outputs)


def _parse_stop(text: str | None) -> Run:
    """Parse `ignore`, `lost`, or a run with an exit code: how long a container continues after SIGTERM, and how it ends."""
    if text is None:
        return DEFAULT_STOP
    if text.strip() in _STOPS:
        return _STOPS[text.strip()]
    run = _parse_run(ON_STOP, text.strip())
    if run.outcome is not Outcome.EXIT or math.isinf(run.lasts):
        raise _MalformedError(f"annotation {ON_STOP}: write ignore, lost, or <seconds>s:<exit code> such as 1s:0")
    return run


def _parse_runs_before(text: str | None) -> dict[str, int]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, _Count])
    except msgspec.DecodeError as error:
        raise _MalformedError(f"annotation {RUNS_BEFORE} is written by the node itself, remove it: {error}") from error


# The kubelet's and the node controller's waiting times, scaled down so that tests and demos do not take hours.


RESTART_BASE_S: Final = 10.0  # kubelet: backOffPeriod
RESTART_CAP_S: Final = 300.0  # kubelet: MaxContainerBackOff
RESTART_RESET_S: Final = 600.0  # client-go's flowcontrol.Backoff forgets after twice the cap

DEFAULT_SCALE: Final = 1 / 20  # 10s become 0.5s, so demos and tests can wait for a crash loop


@dataclass
class Timing:
    """Waiting times, all multiplied by `scale` (1.0 is a real cluster).

    The delay `starting` occurs twice: to create the sandbox, and to start the first container. If it is 0, the first reported
    status is Running; a real kubelet also sends only the newest of several statuses.
    """

    scale: float = DEFAULT_SCALE
    starting: float = 0.0

    def restart_delay(self, restarts: int, lasted: float) -> float:
        """Return the seconds between the end of a run and the next start, after `restarts` restarts so far.

        As in the kubelet, the first restart is immediate. The next delay is 10s, and it doubles each time, up to 5m. After a
        run of more than 10m the restart is immediate. (The kubelet then also resets the doubling. The hollow node cannot: the
        status has no such field.)
        """
        if restarts == 0 or lasted > RESTART_RESET_S * self.scale:
            return 0.0
        doublings = min(restarts - 1, 10)  # the cap is reached much earlier; this avoids large powers
        return float(min(RESTART_BASE_S * 2**doublings, RESTART_CAP_S) * self.scale)

    def __post_init__(self) -> None:
        """Scale the other waiting times, all in seconds."""
        self.start = self.starting * self.scale
        """Between the stages of a pod's start."""
        self.back_off_told = 5.0 * self.scale
        """From the end of a run to the report of the waiting state. Recorded: 1s to 14s, by a later sync."""
        self.phase_lag = 1.3 * self.scale
        """From the end of a pod's last container to that of the pod, since 1.22. Recorded: 1.1s to 1.7s."""
        self.unreachable = 300.0 * self.scale
        """From the loss of a node to the deletion of its pods: the default toleration of pods."""
