"""Credential plugins as real processes: what they are told, how they end, and what happens to those that do not end."""

import asyncio
import base64
import contextlib
import json
import math
import os
import pty
import select
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from kit.virtual_loop import EPOCH
from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.client.auth.credentials import READ_LIMIT_S, RETRY_S, RefreshedCredentials
from tfjob_operator.api.client.errors import CredentialsError
from tfjob_operator.api.client.http import Credentials
from tfjob_operator.api.credential_plugin import LIMIT_S, Plugin, fresh_s_of

VERSION = "client.authentication.k8s.io/v1"
SECRET = "s3cret-s3cret-s3cret"
NOBODY = Access("https://a")


def answer(**status: Any) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


FIRST_HANGS = f"""
echo $$ >> runs
if [ $(wc -l < runs) = 1 ]; then
    sleep 1000 &
    echo $! > child
    wait
fi
echo '{answer(token="t0ken")}'
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Plugins run where we are."""
    monkeypatch.chdir(tmp_path)


def plugin(script: str, limit_s: float = 20.0, **about: Any) -> Plugin:
    return Plugin(("/bin/sh", "-c", script), VERSION, limit_s=limit_s, **about)


def ends(process: int) -> bool:
    """Whether a process ends within a minute: the system may take a moment to end one that was killed."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 60.0)[0])
    finally:
        os.close(handle)


def test_a_plugin_that_hangs_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    """D21: its own child too, which holds the pipe that we read."""
    hanging = plugin(FIRST_HANGS, limit_s=1.0)
    began = time.monotonic()
    with pytest.raises(AccessError, match="did not exit within 1s and was killed"):
        hanging(NOBODY, True)
    assert time.monotonic() - began < 10.0
    started = [int((tmp_path / name).read_text()) for name in ("runs", "child")]
    assert all(map(ends, started))
    assert hanging(NOBODY, True).authorization == "Bearer t0ken"


def test_a_plugin_whose_child_has_left_its_group_is_not_waited_for(tmp_path: Path) -> None:
    """D21: that child keeps the pipe open and cannot be killed with the group; its output is not waited for."""
    daemon = plugin("setsid sleep 30 & echo $! > child", limit_s=1.0)
    began = time.monotonic()
    with pytest.raises(AccessError, match="killed"):
        daemon(NOBODY, True)
    assert time.monotonic() - began < 10.0
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((tmp_path / "child").read_text()), 9)


async def test_a_request_fails_when_a_plugin_hangs_and_a_later_one_gets_its_token() -> None:
    """D21: once, after a read that hung there was no other, and all requests failed until the operator was restarted."""
    access = replace(NOBODY, plugin=plugin(FIRST_HANGS, limit_s=1.0))

    def read() -> Credentials:
        return Credentials(access.log_in(quiet=True).authorization)

    def call(read: Callable[[], Credentials], _name: str) -> asyncio.Future[Credentials]:
        # Real processes need real time; the loop's time is virtual and stands still meanwhile.
        future: asyncio.Future[Credentials] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(read())
        except AccessError as error:
            future.set_exception(error)
        return future

    source = RefreshedCredentials(read, call=call)
    with pytest.raises(CredentialsError, match="credential plugin /bin/sh failed: it did not exit within 1s"):
        await source.get()
    with pytest.raises(CredentialsError):  # not immediately
        await source.get()
    await asyncio.sleep(RETRY_S)
    assert (await source.get()).authorization == "Bearer t0ken"


def test_whoever_waits_for_a_plugin_hears_of_its_end() -> None:
    """D21: the error of the waiter's own time limit would only say that there are no credentials."""
    assert LIMIT_S < READ_LIMIT_S


def test_a_plugin_is_told_of_its_cluster_as_client_go_tells_it(tmp_path: Path) -> None:
    """The authority as data, wherever its file is."""
    (tmp_path / "ca.pem").write_text("CA")
    cluster = {"server": "https://s", "certificate-authority": "ca.pem", "config": {"audience": "a"}}
    plugin(f"echo \"$KUBERNETES_EXEC_INFO\" > info; echo '{answer(token='t')}'", cluster=cluster)(NOBODY, True)
    data = base64.b64encode(b"CA").decode()
    expected = {"server": "https://s", "certificate-authority-data": data, "config": {"audience": "a"}}
    assert json.loads((tmp_path / "info").read_text())["spec"] == {"interactive": False, "cluster": expected}


@pytest.mark.parametrize(
    ("mode", "asks", "expected"),
    [
        ("IfAvailable", True, "true"),
        ("IfAvailable", False, "false"),
        ("Never", True, "false"),
        ("Always", True, "true"),
    ],
)
def test_a_plugin_may_ask_where_somebody_can_answer(
    monkeypatch: pytest.MonkeyPatch, mocker: MockerFixture, mode: str, *, asks: bool, expected: str
) -> None:
    script = f"test -t 0 && given=true || given=false; echo '{answer(token='T')}' | sed s/T/$given/"
    monkeypatch.setattr("sys.stdin", mocker.Mock(isatty=lambda: asks))
    ours, terminal, before = *pty.openpty(), os.dup(0)
    os.dup2(terminal, 0)
    try:
        assert plugin(script, mode=mode)(NOBODY, True).authorization == f"Bearer {expected}"
    finally:
        os.dup2(before, 0)
        for each in (ours, terminal, before):
            os.close(each)


def test_a_plugin_that_must_ask_is_not_run_where_nobody_can_answer() -> None:
    """As in client-go."""
    with pytest.raises(AccessError, match="standard input is not a terminal, and interactiveMode is Always"):
        plugin("touch ran", mode="Always")(NOBODY, True)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "failed: exit code 3"),
        ("echo s3cret", "did not print a valid ExecCredential"),
        ("echo '[]'", "did not print a valid ExecCredential"),
        (f"echo '{answer(token=SECRET)}' | sed s/v1/v2/", "did not print a valid ExecCredential"),
        (f"echo '{answer(token=SECRET, expirationTimestamp='soon')}'", "did not print a valid ExecCredential"),
        (f"echo '{answer(token=SECRET, expirationTimestamp='2026-01-01T01:00:00')}'", "did not print a valid"),
        (f"echo '{answer(clientCertificateData=SECRET)}'", "neither a token nor a client certificate and key"),
        (f"echo '{answer(token=SECRET, clientKeyData=SECRET)}'", "neither a token nor a client certificate and key"),
        (f"printf %s '{answer(token=f'{SECRET}ü')}'", "not allowed in a header"),
    ],
)
def test_a_plugin_that_fails_is_named_and_not_quoted(
    capfd: pytest.CaptureFixture[str], script: str, message: str
) -> None:
    with pytest.raises(AccessError) as raised:
        plugin(f"echo {SECRET} >&2; {script}")(NOBODY, True)
    assert "credential plugin /bin/sh" in raised.value.message
    assert message in raised.value.message
    assert SECRET not in "".join(traceback.format_exception(raised.value)) + capfd.readouterr().err


def test_the_user_of_a_command_reads_what_a_plugin_complains_of(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AccessError):
        plugin("echo log in first >&2; exit 1")(NOBODY, False)
    assert capfd.readouterr().err == "log in first\n"


def test_a_plugin_that_is_not_there_is_named_with_its_hint() -> None:
    with pytest.raises(AccessError, match=r"no-such failed: cannot start: No such file or directory\. Install it"):
        Plugin(("no-such",), VERSION, hint="Install it")(NOBODY, True)


@pytest.mark.parametrize(
    ("expires", "fresh_s"),
    [
        (None, math.inf),
        ("2026-01-01T01:00:00Z", 2880.0),
        ("2026-01-01T03:00:00+02:00", 2880.0),
        ("2026-01-01T00:00:10Z", 8.0),
        ("2025-12-31T00:00:00Z", 0.0),
    ],
)
def test_a_plugin_is_asked_again_after_four_fifths_of_what_it_gave(expires: str | None, fresh_s: float) -> None:
    """That is early enough for a failing plugin to recover; without an expiry it runs again only after a 401."""
    assert fresh_s_of(expires, EPOCH) == fresh_s
