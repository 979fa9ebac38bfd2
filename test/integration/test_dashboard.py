"""`kubectl tfjob dashboard` on a real API server, as a user of the cluster starts it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hack.control_plane import ControlPlane
from hack.page_cluster import enter
from integration.cluster import Cluster, replica, specs

LIMIT_S: Final = 60.0


class Page:
    """The dashboard in a browser's place: opened by the address with the token."""

    def __init__(self, address: str) -> None:
        self._home = address.partition("/#")[0]
        self._session = enter(address)

    def open(self, path: str) -> Any:
        """Open a response."""
        return urllib.request.urlopen(urllib.request.Request(self._home + path, headers=self._session), timeout=LIMIT_S)

    def news(self, job: str = "") -> Iterator[tuple[str, Any]]:
        """Yield the kind and the data of each event of the stream."""
        deadline = time.monotonic() + LIMIT_S
        with self.open(f"/-/stream?job={job}") as response:
            kind = ""
            for line in response:  # at least one line comes every ten seconds
                assert time.monotonic() < deadline, "what was waited for was not told"
                name, _, value = line.decode().strip().partition(": ")
                kind = value if name == "event" else kind
                if name == "data" and value:
                    yield kind, json.loads(value)


@contextlib.contextmanager
def dashboard(kubeconfig: Path, *options: str) -> Iterator[Page]:
    """Run `kubectl tfjob dashboard`, and open the page at the address that it prints."""
    command = [sys.executable, "-m", "tfjob_operator.cli", "dashboard", "--no-browser", "--port=0", *options]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Page(next(line.split()[-1] for line in process.stdout if "token=" in line))
        finally:
            process.kill()


def test_the_page_shows_what_the_operator_does(control_plane: ControlPlane, cluster: Cluster) -> None:
    """Pods that become ready, events, a timeline, and the end, all by themselves."""
    with cluster.operator(), cluster.node(), dashboard(control_plane.kubeconfig, "-n", cluster.namespace) as page:
        key = f"{cluster.namespace}/mnist"
        cluster.create("mnist", specs(Worker=replica(2, run="3s:0")) | {"successPolicy": "AllWorkers"})
        states: list[str] = []
        for kind, data in page.news(key):
            if kind != "job" or data is None:
                continue
            states.append(data["row"]["state"])
            if states[-1] == "Succeeded" and [each["state"] for each in data["replicas"]] == ["Succeeded"] * 2:
                break
        assert {"Running", "Succeeded"} <= set(states)
        assert data["row"]["replicas"] == [{"type": "Worker", "wanted": 2, "ready": 0, "succeeded": 2, "failed": 0}]
        assert {"SuccessfulCreatePod", "TFJobSucceeded"} <= {each["reason"] for each in data["events"]}
        assert [lane["lives"][0]["ending"] for lane in data["timeline"]["lanes"]] == ["succeeded"] * 2
        assert b"tfReplicaSpecs:" in page.open(f"/-/manifest/{key}").read()


def test_a_user_who_may_read_jobs_alone_sees_them_and_is_told_what_is_missing(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    """What is missing is told in the API server's words."""
    user = f"reader-of-{cluster.namespace}"
    cluster.kubectl("create", "role", "tfjobs", "--verb=get,list,watch", "--resource=tfjobs.kubeflow.org")
    cluster.kubectl("create", "rolebinding", "tfjobs", "--role=tfjobs", f"--user={user}")
    cluster.create("mnist", specs(Worker=replica()))
    with dashboard(control_plane.kubeconfig_for(user), "-n", cluster.namespace) as page:
        rows: dict[str, Any] = {}
        for kind, data in page.news():
            if kind == "rows":
                rows |= {row["key"]: row for row in data["rows"]}
                troubles = {each["what"]: each for each in (data["state"] or {}).get("troubles", ())}
                if rows and {"pods", "events"} <= troubles.keys():
                    break
        assert [*rows] == [f"{cluster.namespace}/mnist"]
        assert all(each["forbidden"] for each in troubles.values())
        assert f'User "{user}" cannot list resource "pods"' in troubles["pods"]["message"]
