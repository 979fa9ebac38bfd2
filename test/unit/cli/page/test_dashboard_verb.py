"""The verb that serves the page: what it says when it cannot, and with whose rights it reads."""

import logging
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.page_cluster import DASHBOARD, PageCluster, page_of
from tfjob_operator.api.access import Access
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.run import TerminalHandler, reading
from unit.cli.conftest import run

HTTP = Access("http://127.0.0.1:1")


def test_a_missing_package_is_reported_with_the_command_that_installs_it(mocker: MockerFixture) -> None:
    """From the checkout or the wheel: nobody owns the project's name in the package index."""
    without_click = "import sys; sys.modules['click'] = None; from tfjob_operator.cli.__main__ import main; main()"
    plugin = subprocess.run([sys.executable, "-c", without_click], capture_output=True, text=True, check=False)
    mocker.patch.dict(sys.modules, {"aiohttp": None})
    dashboard = run("dashboard")
    assert plugin.returncode == dashboard.exit_code == 1
    for said, package, extras in ((plugin.stderr, "click", "cli"), (dashboard.output, "aiohttp", "cli,dashboard")):
        assert said == (
            f"error: the Python package {package} is missing. Reinstall the plugin from its checkout, "
            f"pipx install --force '.[{extras}]', or from its wheel, pipx install --force 'FILE.whl[{extras}]'\n"
        )


def test_one_namespace_and_all_of_them_exclude_each_other() -> None:
    """kubectl accepts both, and then ignores one of them."""
    assert run("dashboard", "-A", "-n", "team").output == "error: --namespace and --all-namespaces cannot be combined\n"


def test_a_port_that_is_taken_is_said_where_it_was_asked_for() -> None:
    """Without --port another one is used."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("dashboard", f"--port={port}")
    assert result.output == f"error: cannot listen on port {port}: Address already in use\n"


def test_a_server_that_is_not_there_is_one_line(page_cluster: PageCluster) -> None:
    """Before any address is printed."""
    page_cluster.stop()
    result = run("dashboard", "--no-browser", "--port=0", f"--kubeconfig={page_cluster.kubeconfig}")
    assert result.exit_code == 1
    [line] = result.output.splitlines()
    assert line.startswith("error: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly_and_leaves_no_file(
    page_cluster: PageCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """With the exit code that shells give to Ctrl-C."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with page_of(page_cluster.kubeconfig, *DASHBOARD) as (process, _):
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.strip(), [*tmp_path.iterdir()]) == (130, "", [])


def test_a_page_that_a_script_started_in_the_background_is_ended_by_sigterm(page_cluster: PageCluster) -> None:
    """As by `dashboard &`: a shell without job control lets such a command ignore SIGINT."""
    with page_of(page_cluster.kubeconfig, *DASHBOARD, ignores_sigint=True) as (process, _):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (130, "")


def test_commands_on_the_page_are_for_the_cluster_that_was_asked(mocker: MockerFixture) -> None:
    """Its state has the options; the page puts them into each command."""
    serving = mocker.patch("tfjob_operator.cli.page.run.serving", side_effect=CliError("stop"))
    assert run("dashboard", "--context=gpu", "--as=the boss", "--port=0").output == "error: stop\n"
    assert serving.call_args.kwargs["flags"] == "--context=gpu '--as=the boss'"


def test_what_a_library_logs_has_no_control_characters(capfd: pytest.CaptureFixture[str]) -> None:
    TerminalHandler().handle(logging.makeLogRecord({"msg": "\x1b[2Ja\nb"}))
    assert capfd.readouterr() == ("", "\\x1b[2Ja\nb\n")


@pytest.mark.sockets
@pytest.mark.parametrize(
    "read",
    [
        CliError("there is no impersonation"),
        [HTTP, CliError("there is no impersonation")],
        [HTTP, replace(HTTP, impersonate=(("Impersonate-User", "amy"),))],
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_said(mocker: MockerFixture, read: Any) -> None:
    """Before anything is served. Nobody may take the rights of who started the page for those of whom they impersonate."""
    with pytest.raises(CliError, match="impersonation"):
        async with reading(mocker.Mock(side_effect=read), everywhere=True):
            pass
