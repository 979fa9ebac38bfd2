"""`kubectl tfjob dashboard` on a real API server, as a user of the cluster starts it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.control_plane import ControlPlane
from hack.page_cluster import DASHBOARD, enter, page_of
from integration.cluster import Cluster, replica, specs
from integration.pages import Page


@contextlib.contextmanager
def dashboard(kubeconfig: Path, *options: str) -> Iterator[Page]:
    """Run `kubectl tfjob dashboard`, and open the page at the address that it prints."""
    with page_of(kubeconfig, *DASHBOARD, *options) as (_, address):
        yield Page(address.partition("/#")[0], enter(address))


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
