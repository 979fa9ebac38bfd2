"""The configuration file: how it is found, read, and refused; and the Deployment that the operator runs in."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.manifests import read_document
from fakes.metrics import FakeMetrics
from fakes.recorder import FakeRecorder
from fakes.source import running
from fakes.transport import FakeResponse, FakeTransport, refusal
from kit.virtual_loop import FakeClock
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConnectError
from tfjob_operator.controller.config.file import POLL_S, WRONG, ConfigFile, ConfigFileError, OwnDeployment, parse
from tfjob_operator.controller.config.values import Accelerator, ControllerConfig, HostVolume, Variable

GOOD = "accelerators: {a.com/gpu: {envVars: [{name: A, value: '1'}]}}"
BETTER = "accelerators: {a.com/gpu: {envVars: [{name: A, value: '2'}]}}"
BAD = "accelerators: 5"


def now(function: Callable[[], Any], _name: str) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function())
    except Exception as error:  # noqa: BLE001 - as the thread does
        future.set_exception(error)
    return future


class Followed:
    """A file in a folder that is replaced as the kubelet does it, and the mistakes that were reported."""

    def __init__(self, folder: Path, content: str | None) -> None:
        self._folder = folder
        self._versions = 0
        self.told: list[str] = []
        self.deaf = False
        self.metrics = FakeMetrics()
        self.path = folder / "config.yaml"
        self.path.symlink_to(folder / "..data" / "config.yaml")
        self.write(content)
        self.file = ConfigFile(self.path, metrics=self.metrics, call=now)

    def write(self, content: str | None) -> None:
        """Let a link point at another folder, with the content or nothing in it."""
        self._versions += 1
        version = self._folder / f"..{self._versions}"
        version.mkdir()
        if content is not None:
            (version / "config.yaml").write_text(content)
        link = self._folder / "..tmp"
        link.symlink_to(version)
        link.rename(self._folder / "..data")

    async def report(self, wrong: str) -> bool:
        """Record what is wrong and return true; return false if `deaf` is set."""
        if not self.deaf:
            self.told.append(wrong)
        return not self.deaf

    def value(self) -> str:
        found = (self.file.value.accelerators or {}).get("a.com/gpu")
        return "" if found is None or not found.env_vars else (found.env_vars[0].value or "")

    def is_wrong(self) -> float:
        return self.metrics[WRONG].read()


@asynccontextmanager
async def followed(folder: Path, content: str | None) -> AsyncIterator[Followed]:
    found = Followed(folder, content)
    async with running(found.file.follow(found.report)):
        yield found


async def polls(count: int = 1) -> None:
    await asyncio.sleep(count * POLL_S + 0.1)


async def test_a_changed_file_is_taken_up_at_run_time(tmp_path: Path) -> None:
    """The kubelet switches a link; the path stays the same."""
    async with followed(tmp_path, GOOD) as config:
        assert config.value() == "1"
        config.write(BETTER)
        with capture_logs() as lines:
            await polls(3)
        assert config.value() == "2"
        assert [line["event"] for line in lines] == ["config_file_loaded"]
    assert config.told == []


async def test_a_file_that_becomes_wrong_is_reported_once_and_the_last_good_one_stays(tmp_path: Path) -> None:
    """By a log line, a metric and the callback: later, if it can not be reported yet. Nobody starts with a wrong file."""
    async with followed(tmp_path, GOOD) as config:
        assert config.is_wrong() == 0.0
        config.write(BAD)
        with capture_logs() as lines:
            await polls(5)
        assert [line["event"] for line in lines] == ["config_file_invalid"]
        assert (config.value(), config.is_wrong()) == ("1", 1.0)
        config.write("accelerators: 6.5")
        await polls(2)
        assert [message.partition(", got")[2].split()[0] for message in config.told] == ["`int`", "`float`"]
        config.write(GOOD)
        await polls()
        assert (config.value(), config.is_wrong()) == ("1", 0.0)
        config.deaf = True
        config.write(BAD)
        await polls(3)
        config.deaf = False
        await polls(3)
    assert len(config.told) == 3
    with pytest.raises(ConfigFileError):
        ConfigFile(config.path, metrics=FakeMetrics(), call=now)


async def test_a_file_that_is_not_there_says_nothing_until_it_is(tmp_path: Path) -> None:
    """The ConfigMap is optional: it may be created and deleted while the operator runs."""
    async with followed(tmp_path, None) as config:
        assert config.file.value.accelerators is None
        config.write(GOOD)
        await polls()
        assert config.value() == "1"
        config.write(None)
        await polls()
        assert (config.value(), config.told) == ("", [])


async def test_a_file_that_can_not_be_read_is_wrong(tmp_path: Path) -> None:
    """A folder in its place, say; the same content is taken up again afterwards."""
    async with followed(tmp_path, GOOD) as config:
        config.path.unlink()
        config.path.mkdir()
        await polls()
        assert (config.value(), config.is_wrong(), len(config.told)) == ("1", 1.0, 1)
        config.path.rmdir()
        config.path.write_text(GOOD)
        await polls()
        assert config.is_wrong() == 0.0


EXAMPLE = Path(__file__).parents[4] / "manifests" / "addons" / "accelerators-azure" / "config.yaml"


def test_the_example_of_the_manifests_is_read() -> None:
    (content,) = read_document(EXAMPLE)["data"].values()
    config = parse(content.encode())
    assert config.accelerators is not None
    gpu = config.accelerators["alpha.kubernetes.io/nvidia-gpu"]
    assert gpu is not None
    assert [volume.name for volume in gpu.volumes or ()] == ["lib", "bin", "libcuda"]
    assert gpu.env_vars == (Variable(name="LD_LIBRARY_PATH", value="/usr/lib/nvidia:/usr/lib/x86_64-linux-gnu"),)


def test_every_key_is_read() -> None:
    """Two of them are for jobs of the alpha dialect alone."""
    content = b"""
grpcServerFilePath: /opt/server.py
tfImage: tensorflow/tensorflow:1.3.0
accelerators:
  a.com/x:
    volumes: [{name: lib, hostPath: /lib/x, mountPath: /x}]
    envVars: [{name: EMPTY}]
"""
    lib = HostVolume(name="lib", host_path="/lib/x", mount_path="/x")
    assert parse(content) == ControllerConfig(
        accelerators={"a.com/x": Accelerator(volumes=(lib,), env_vars=(Variable(name="EMPTY"),))},
        grpc_server_file_path="/opt/server.py",
        tf_image="tensorflow/tensorflow:1.3.0",
    )


@pytest.mark.parametrize(
    "content",
    ["", " \n", "# nothing\n", "---\n", "accelerators:\n", "accelerators: {a: }", "accelerators: {a: {volumes: }}"],
)
def test_what_is_left_empty_says_nothing(content: str) -> None:
    """As in the output of a template whose values are not set."""
    config = parse(content.encode())
    assert not any((each.volumes or each.env_vars) for each in (config.accelerators or {}).values() if each is not None)


VOLUME = "{name: lib, hostPath: /x, mountPath: /m}"


def volumes(*each: str) -> str:
    return f"accelerators: {{a: {{volumes: [{', '.join(each)}]}}}}"


def variables(each: str) -> str:
    return f"accelerators: {{a: {{envVars: [{each}]}}}}"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1]", "got `array`"),
        ("accelerators: 5", "$.accelerators"),
        ("accelerator: {}", "unknown field `accelerator`"),
        ("accelerators: [", "line 2"),
        ("tfImage: 5", "$.tfImage"),
        ("&a [*a]", "got `array`"),
        ("accelerators: &a {x: *a}", "unknown field `x`"),
        ("!!python/object/apply:os.abort []", "python/object"),
        ("accelerators: {'a b': }", "accelerators[a b]: must be the name of a resource"),
        (volumes("{name: lib, hostPath: /x}"), "missing required field `mountPath`"),
        (volumes(VOLUME.replace("lib", "Lib")), "volumes[0].name: must consist of"),
        (volumes(VOLUME.replace("/x", "x")), "volumes[0].hostPath: must be"),
        (volumes(VOLUME.replace("/x", "/x/../y")), "without '..'"),
        (volumes(VOLUME.replace("/m", "'/x:y'")), "volumes[0].mountPath: must be"),
        (volumes(VOLUME, "{name: lib, hostPath: /y, mountPath: /n}"), "lib has more than one path of the node"),
        (volumes(VOLUME, "{name: y, hostPath: /y, mountPath: /m/}"), "/m is mounted twice"),
        (variables("{name: A=B}"), "envVars[0].name: must be the name of an environment variable"),
        (variables("{name: TF_CONFIG, value: x}"), "TF_CONFIG is set by the operator"),
        (variables("{name: A, value: 1}"), "got `int`"),
        (variables("{name: A}, {name: A}"), "A is set twice"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(content: str, told: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        parse(content.encode())
    assert told in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00", b"[" * 2_000, b"{a: " * 2_000])
def test_nonsense_is_reported_like_any_mistake(content: bytes) -> None:
    """A crash would end the operator for all jobs. All mistakes are reported at once."""
    with pytest.raises(ConfigFileError):
        parse(content)
    with pytest.raises(ConfigFileError, match=r"name: must consist of .*; .*hostPath: must be .*; .*TF_CONFIG"):
        parse(b"accelerators: {a: {volumes: [{name: A, hostPath: a, mountPath: /a}], envVars: [{name: TF_CONFIG}]}}")


FOUND = FakeResponse(200, b'{"metadata": {"name": "operator", "namespace": "home", "uid": "u-1"}}')


class Told:
    """An `OwnDeployment` with a scripted API server, and the events that it recorded."""

    def __init__(self, *script: FakeResponse | Exception, leading: bool = True, name: str = "operator") -> None:
        self.transport = FakeTransport(*script)
        self.recorder = FakeRecorder()
        client = RestClient(self.transport, clock=FakeClock())
        self.own = OwnDeployment(client, self.recorder, "home", name, is_leading=lambda: leading)


async def test_the_leader_tells_by_a_warning_on_the_deployment() -> None:
    """With its UID, by which `kubectl describe` looks for events."""
    told = Told(FOUND)
    assert await told.own.report("no such key")
    ((event_type, reason, message),) = told.recorder.events
    assert (event_type, reason) == ("Warning", "InvalidConfigFile")
    assert message.endswith("no such key")
    assert [request.path for request in told.transport.requests] == [
        "/apis/apps/v1/namespaces/home/deployments/operator"
    ]


async def test_a_replica_that_waits_tells_nothing_yet_and_one_that_does_not_know_its_deployment_never() -> None:
    """Both read the file, and one event is enough; when it leads, it asks again."""
    for told, done in ((Told(leading=False), False), (Told(name=""), True)):
        assert await told.own.report("x") is done
        assert (told.transport.requests, told.recorder.events) == ([], [])


@pytest.mark.parametrize(
    ("failure", "done"),
    [
        (ConnectError("refused"), False),
        (refusal(429), False),
        (refusal(503), False),
        (refusal(403), True),
        (refusal(404), True),
    ],
)
async def test_an_api_server_that_can_not_be_asked_now_is_asked_again(
    failure: FakeResponse | Exception, done: bool
) -> None:
    """Without the UID nobody would find the event. Where there is no such Deployment, the log and the metric must do."""
    told = Told(*([failure] * (1 if done else 10)))
    assert await told.own.report("x") is done
    assert told.recorder.events == []
