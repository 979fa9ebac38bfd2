"""Credential plugins as real processes: how they end, and what happens to those that do not end by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tfjob_operator.api.client.auth.credentials import READ_LIMIT_S, RETRY_S, PluginReader, RefreshedCredentials
from tfjob_operator.api.client.auth.kubeconfig import PLUGIN_LIMIT_S, Plugin
from tfjob_operator.api.client.errors import CredentialsError
from tfjob_operator.api.client.http import Credentials

VERSION = "client.authentication.k8s.io/v1"
ANSWER = f'{{"apiVersion":"{VERSION}","kind":"ExecCredential","status":{{"token":"t0ken"}}}}'
FIRST_HANGS = f"""
echo $$ >> runs
if [ $(wc -l < runs) = 1 ]; then
    sleep 1000 &
    echo $! > child
    wait
fi
echo '{ANSWER}'
"""


def plugin(folder: Path, script: str, limit_s: float = 20.0) -> Plugin:
    """A plugin that is a shell script, run in its own folder."""
    return Plugin(("/bin/sh", "-c", script), VERSION, {"PATH": os.environ["PATH"]}, str(folder), limit_s=limit_s)


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
    hanging = plugin(tmp_path, FIRST_HANGS, limit_s=1.0)
    began = time.monotonic()
    with pytest.raises(CredentialsError, match="did not exit within 1s and was killed"):
        hanging()
    assert time.monotonic() - began < 10.0
    started = [int((tmp_path / name).read_text()) for name in ("runs", "child")]
    assert all(map(ends, started))
    assert hanging() == {"token": "t0ken"}


def test_a_plugin_whose_child_has_left_its_group_is_not_waited_for(tmp_path: Path) -> None:
    """D21: that child keeps the pipe open and cannot be killed with the group; its output is not waited for."""
    daemon = plugin(tmp_path, "setsid sleep 30 & echo $! > child", limit_s=1.0)
    began = time.monotonic()
    with pytest.raises(CredentialsError, match="killed"):
        daemon()
    assert time.monotonic() - began < 10.0
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((tmp_path / "child").read_text()), 9)


async def test_a_request_fails_when_a_plugin_hangs_and_a_later_one_gets_its_token(tmp_path: Path) -> None:
    """D21: once, after a read that hung there was no other, and all requests failed until the operator was restarted."""

    def call(read: Callable[[], Credentials], _name: str) -> asyncio.Future[Credentials]:
        # Real processes need real time; the loop's time is virtual and stands still meanwhile.
        future: asyncio.Future[Credentials] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(read())
        except CredentialsError as error:
            future.set_exception(error)
        return future

    reader = PluginReader("aws", plugin(tmp_path, FIRST_HANGS, limit_s=1.0), None, None)
    source = RefreshedCredentials(reader, call=call)
    with pytest.raises(CredentialsError, match="credential plugin aws failed: it did not exit within 1s"):
        await source.get()
    with pytest.raises(CredentialsError):  # not immediately
        await source.get()
    await asyncio.sleep(RETRY_S)
    assert (await source.get()).authorization == "Bearer t0ken"


def test_whoever_waits_for_a_plugin_hears_of_its_end() -> None:
    """D21: the error of the waiter's own time limit would only say that there are no credentials."""
    assert PLUGIN_LIMIT_S < READ_LIMIT_S


def test_a_plugin_gets_the_configuration_that_the_cluster_has_for_it(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"server": "https://s", "extensions": [{"name": "other", "extension": 1}, extension]}
    told = Plugin(
        ("/bin/sh", "-c", f"echo \"$KUBERNETES_EXEC_INFO\" > info; echo '{ANSWER}'"),
        VERSION,
        {},
        str(tmp_path),
        cluster,
    )
    told()
    info = (tmp_path / "info").read_text()
    assert '"config": {"audience": "a"}' in info
    assert '"interactive": false' in info
