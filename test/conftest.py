"""How tests run: coroutine tests on virtual time, those with sockets on a real loop, both checked for leaked tasks.

Folders whose tests share one control plane take `control_plane` and `crd` from here.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path

import pytest
import structlog

from faults.releases import NotThereError, Release, before, known
from hack.control_plane import ControlPlane, ControlPlaneError
from hack.earlier import FIRST, WITHOUT_DECISIONS
from kit import plugin
from kit.virtual_loop import VirtualTimeLoop
from support.machine import lacks, summary

REAL_TIME_LIMIT = 180.0  # seconds that one integration test may take; the slowest one here needs a third of it


GOODBYE_S = 2.0
"""How long connections may take to end after a test: closing TLS takes a round trip, on a busy machine a slow one."""


class LeakedConnectionError(AssertionError):
    """A test ended and left a connection open."""


class LeakedTaskError(AssertionError):
    """A test ended while tasks that it started were still alive."""


simulate = plugin.simulate


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of seeded tests, such as the simulation."""
    plugin.pytest_addoption(parser)
    group = parser.getgroup("seeds")
    group.addoption("--seeds", type=int, default=None, help="the number of seeds of each seeded test")
    group.addoption("--seed", type=int, default=None, help="the first seed; without --seeds the only one")


def pytest_configure() -> None:
    """Print tracebacks plainly: where `rich` is installed, structlog would draw all local variables, for seconds each."""
    *processors, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """End with the tests that were skipped for what this machine lacks; those of other targets are skipped everywhere."""
    yield
    skipped = terminalreporter.getreports("skipped")
    if lines := summary(each.longrepr[2] for each in skipped if isinstance(each.longrepr, tuple)):
        terminalreporter.section("skipped tests, and what would bring what this machine lacks")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """The settings of logs belong to the process: those of a program that runs in a test must not silence the next test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real control plane; the first session on a machine builds it, which takes minutes."""
    try:
        plane = ControlPlane.start("pytest")
    except ControlPlaneError as error:
        pytest.fail(f"no control plane: {error}", pytrace=False)
    with plane:
        yield plane


@pytest.fixture
def older(tmp_path: Path) -> Release:
    """The previous release; without git's history the test is skipped."""
    try:
        return before(tmp_path / "before")
    except NotThereError as error:
        pytest.skip(lacks("git's history", str(error)))


@pytest.fixture
def first(tmp_path: Path) -> Release:
    """The first release; without git's history the test is skipped."""
    return _known(tmp_path / "first", FIRST)


@pytest.fixture
def undecided(tmp_path: Path) -> Release:
    """The last release that does not record the decision how a job ends; without git's history the test is skipped."""
    return _known(tmp_path / "undecided", WITHOUT_DECISIONS)


def _known(folder: Path, name: str) -> Release:
    try:
        return known(folder, name)
    except NotThereError as error:
        pytest.skip(lacks("git's history", str(error)))


@pytest.fixture(scope="session")
def crd(control_plane: ControlPlane) -> None:
    """The CRD, applied as the README says."""
    crd = Path(__file__).parents[1] / "manifests" / "base" / "crd.yaml"
    control_plane.run_kubectl("apply", "--server-side", "-f", str(crd))
    control_plane.wait_for_crd("tfjobs.kubeflow.org")
    control_plane.restart_controller_manager()  # otherwise its garbage collector learns of TFJobs only after up to 30 s


async def _checked(body: Coroutine[object, object, None], limit: float | None) -> None:
    async with asyncio.timeout(limit):
        await body
    leaked = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]
    if leaked:
        names = ", ".join(sorted(task.get_name() for task in leaked))
        raise LeakedTaskError(f"tasks outlived the test: {names}")


def _open_connections() -> list[asyncio.WriteTransport]:
    """The connections of this loop whose sockets are open. The loop knows closed ones too, until the collector finds them."""
    known: Mapping[int, asyncio.WriteTransport] = getattr(asyncio.get_running_loop(), "_transports", {})
    return [transport for transport in known.values() if transport.get_extra_info("socket").fileno() >= 0]


async def _on_a_real_loop(body: Coroutine[object, object, None]) -> None:
    """Run a test, then see its connections off: a loop that is closed before they are leaves warnings to later tests.

    One that stays open fails the test, and is cut off.
    """
    await _checked(body, REAL_TIME_LIMIT)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_S):
            while _open_connections():  # noqa: ASYNC110 - nothing tells when a connection has ended
                await asyncio.sleep(0.005)
    left = _open_connections()
    sockets = ", ".join(str(transport.get_extra_info("socket")) for transport in left)
    for transport in left:
        transport.abort()
    await asyncio.sleep(0)
    if left:
        raise LeakedConnectionError(f"connections outlived the test: {sockets}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a coroutine test to its end; every other test is left to pytest."""
    function: Callable[..., Coroutine[object, object, None]] = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}
    if any(pyfuncitem.get_closest_marker(name) is not None for name in ("integration", "sockets")):
        with asyncio.Runner() as runner:
            runner.run(_on_a_real_loop(function(**arguments)))
        return True
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_checked(function(**arguments), None))
    return True
