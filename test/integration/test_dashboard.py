"""The dashboard on a real API server: `kubectl tfjob dashboard` as started by a user, and `make demo-page`."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from hack.control_plane import ControlPlane
from hack.page_cluster import DASHBOARD, DEMO, page_of
from integration.cluster import Cluster, replica, specs
from integration.pages import Page
from support.waiting import eventually

LIMIT_S: Final = 90
READ: Final = {
    "/-/stream": b'"name":"runs-on"',
    "/-/log/default/runs-on-chief-0?follow=true": b"10/10 - 2s - loss: 2.3000",
    "/-/curves?run=default/runs-on": b'"loss"',
}
"""What is read of logs, and what comes soon: rows, lines, and curves of them."""


@contextlib.contextmanager
def dashboard(kubeconfig: Path, *options: str) -> Iterator[Page]:
    """Run `kubectl tfjob dashboard`, and open the page at the address that it prints."""
    with page_of(kubeconfig, *DASHBOARD, *options) as (_, address):
        yield Page(address)


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
            reasons = {each["reason"] for each in data["events"]}
            if [each["state"] for each in data["replicas"]] == ["Succeeded"] * 2 and "TFJobSucceeded" in reasons:
                break
        assert {"Running", "Succeeded"} <= set(states)
        assert data["row"]["replicas"] == [{"type": "Worker", "wanted": 2, "ready": 0, "succeeded": 2, "failed": 0}]
        assert "SuccessfulCreatePod" in reasons
        assert [lane["lives"][0]["ending"] for lane in data["timeline"]["lanes"]] == ["succeeded"] * 2
        manifest = page.open(f"/-/manifest/{key}").read()
        assert b"tfReplicaSpecs:" in manifest
        assert b"managedFields" not in manifest


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


def is_shown(page: Page, path: str, text: bytes) -> bool:
    """Whether a stream of the page has a line with this text before it ends."""
    with contextlib.suppress(HTTPError), page.open(path) as stream:
        return any(text in line for line in stream)
    return False


def test_the_demo_keeps_a_page_up_until_ctrl_c(tmp_path: Path) -> None:
    """It shows the jobs, with logs and curves, to whoever has the printed address, and leaves nothing behind."""
    with page_of(tmp_path / "none", *DEMO) as (process, address):
        page = Page(address)
        for path, shows in READ.items():
            # While a container starts, its log may be missing, or end at once.
            eventually(lambda path=path, shows=shows: is_shown(page, path, shows), f"{path} shows {shows!r}")  # type: ignore[misc]
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, said
    assert "all processes were stopped" in said
