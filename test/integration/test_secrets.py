"""Passwords in URLs never appear in the output of the process, wherever such a URL comes from (D18)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane.run.parts import any_free
from integration.operator_process import ROOT, OperatorProcess, kubeconfig
from support.waiting import LIMIT_S, eventually

SECRET = "hunter2secret"


@pytest.mark.parametrize("how", ["--master", "a server", "a proxy", "a proxy of the environment"])
def test_a_password_in_an_address_is_in_nothing_that_the_process_says(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D18: nobody is there, so that every connection fails and is told of; the log at its most talkative, and all pages."""
    nobody = f"//horatio:{SECRET}@127.0.0.1:{any_free()}"
    plain = "https://127.0.0.2:6443"
    unverified: dict[str, Any] = {"insecure-skip-tls-verify": True}
    flags = [f"--master=https:{nobody}/?token={SECRET}"] if how == "--master" else []
    if how == "a proxy of the environment":
        monkeypatch.setenv("HTTPS_PROXY", f"http:{nobody}")
        plain = "https://api.example:6443"
    config = kubeconfig(
        tmp_path,
        f"https:{nobody}" if how == "a server" else plain,
        **unverified,
        **({"proxy-url": f"http:{nobody}"} if how == "a proxy" else {}),
    )
    with OperatorProcess(config, tmp_path / "log", "--log-level=debug", *flags) as operator:
        operator.wait_for("list_and_watch_failed")
        eventually(lambda: operator.value("tf_operator_is_leader") == 0.0, "it serves")
        said = operator.get("/metrics")[1] + operator.get("/readyz")[1] + operator.get("/healthz")[1]
        started = operator.lines("operator_starting")[0]
        assert operator.end()[0] == 0
        said += operator.text()
    assert "server_not_verified" in said
    assert started["server"].startswith("https://")
    assert "Cannot connect" in said
    assert SECRET not in said
    assert "horatio" not in said


@pytest.mark.parametrize(
    ("flags", "server", "proxy"),
    [
        ([f"--mastr=https://horatio:{SECRET}@api.example"], "https://api.example", ""),
        ([f"--master=https://horatio:{SECRET}@api.example:port"], "https://api.example", ""),
        ([], f"ftp://horatio:{SECRET}@api.example", ""),
        ([], "https://api.example", f"socks5://horatio:{SECRET}@proxy:1080"),
    ],
)
def test_an_address_that_is_wrong_is_not_quoted(flags: list[str], server: str, proxy: str, tmp_path: Path) -> None:
    """D18: one line says what is wrong without any part of the address, and the exit code is 2."""
    config = kubeconfig(tmp_path, server, **({"proxy-url": proxy} if proxy else {}))
    ended = subprocess.run(
        (sys.executable, "-m", "tfjob_operator.controller", f"--kubeconfig={config}", "--monitoring-port=0", *flags),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 2, said
    assert len(said.splitlines()) == 1
    assert SECRET not in said
    assert "horatio" not in said
