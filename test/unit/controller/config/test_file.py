"""The configuration file at run time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.metrics import FakeMetrics
from tfjob_operator.controller.config.file import POLL_S, WRONG, ConfigFile, ConfigFileError

GOOD = "accelerators: {a.com/gpu: {envVars: [{name: A, value: '1'}]}}"
BETTER = "accelerators: {a.com/gpu: {envVars: [{name: A, value: '2'}]}}"
BAD = "accelerators: 5"


def now(function: Callable[[], Any], _name: str) -> asyncio.Future[Any]:
    """Call a function at once, in place of a thread."""
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

    async def tell(self, wrong: str) -> bool:
        """Record what is wrong and return true; return false if `deaf` is set."""
        if not self.deaf:
            self.told.append(wrong)
        return not self.deaf

    def value(self) -> str:
        """The variable that is in force."""
        found = (self.file.value.accelerators or {}).get("a.com/gpu")
        return "" if found is None or not found.env_vars else (found.env_vars[0].value or "")

    def is_wrong(self) -> float:
        """What the metric says."""
        return self.metrics[WRONG].read()


@asynccontextmanager
async def followed(folder: Path, content: str | None) -> AsyncIterator[Followed]:
    """A file that is followed inside the block."""
    found = Followed(folder, content)
    task = asyncio.create_task(found.file.follow(found.tell))
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


async def polls(count: int = 1) -> None:
    """Wait until the file has been read `count` times."""
    await asyncio.sleep(count * POLL_S + 0.1)


async def test_a_changed_file_is_taken_up_at_run_time(tmp_path: Path) -> None:
    """The kubelet switches a link; the path stays the same."""
    async with followed(tmp_path, GOOD) as config:
        assert config.value() == "1"
        config.write(BETTER)
        with capture_logs() as lines:
            await polls(3)
        assert config.value() == "2"
        assert [line["event"] for line in lines] == ["config_file_taken_up"]
    assert config.told == []


async def test_a_file_that_becomes_wrong_is_reported_once_and_the_last_good_one_stays(tmp_path: Path) -> None:
    """By a log line, a metric and the callback."""
    async with followed(tmp_path, GOOD) as config:
        assert config.is_wrong() == 0.0
        config.write(BAD)
        with capture_logs() as lines:
            await polls(5)
        assert [line["event"] for line in lines] == ["config_file_wrong"]
        assert (config.value(), config.is_wrong()) == ("1", 1.0)
        config.write("accelerators: 6.5")
        await polls(2)
        assert [message.partition(", got")[2].split()[0] for message in config.told] == ["`int`", "`float`"]
        config.write(GOOD)
        await polls()
        assert (config.value(), config.is_wrong()) == ("1", 0.0)
        config.write(BAD)
        await polls()
    assert len(config.told) == 3


async def test_what_can_not_be_reported_yet_is_reported_later(tmp_path: Path) -> None:
    """When the replica begins to lead, or when the API server is back."""
    async with followed(tmp_path, GOOD) as config:
        config.deaf = True
        config.write(BAD)
        await polls(3)
        config.deaf = False
        await polls(3)
    assert len(config.told) == 1


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


async def test_nobody_starts_with_a_wrong_file(tmp_path: Path) -> None:
    """There is nothing good to fall back on, and jobs without their drivers would fail."""
    with pytest.raises(ConfigFileError):
        Followed(tmp_path, BAD)
