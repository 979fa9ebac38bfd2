"""The first status of a job on a real API server: the schema of the status is exact, so a wrong write would be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.cluster import replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionType

if TYPE_CHECKING:
    from integration.cluster import Cluster


def test_every_first_status_write_fits_the_schema(cluster: Cluster) -> None:
    """B31: of a job that is suspended from the start, of an invalid one, of one without replicas, and of an ordinary one."""
    with cluster.operator(), cluster.node():
        cluster.create("asleep", with_policy(specs(Worker=replica()), suspend=True))
        cluster.create("invalid", {})
        cluster.create("nobody", specs(Worker=replica(0)))
        cluster.create("ordinary", specs(Worker=replica(run="forever")))
        for name, state in (
            ("asleep", ConditionType.SUSPENDED),
            ("invalid", ConditionType.FAILED),
            ("nobody", ConditionType.CREATED),
            ("ordinary", ConditionType.RUNNING),
        ):
            cluster.wait_for(name, state)
        assert cluster.names("pods") == ["ordinary-worker-0"]


def test_two_replicas_on_one_hosts_network_have_their_clash_found_by_the_scheduler(cluster: Cluster) -> None:
    """B64: every pod declares the training port; with hostNetwork the API server makes it a host port, unique on a node.

    The scheduler puts the second pod on another node, or reports that it cannot.
    """
    shared = replica(2, run="forever")
    shared["template"]["spec"]["hostNetwork"] = True
    with cluster.operator():
        cluster.create("host", specs(Worker=shared))
        eventually(lambda: len(cluster.names("pods")) == 2, "both pods are there")
        for pod in cluster.items("pods"):
            (port,) = pod["spec"]["containers"][0]["ports"]
            assert (port["name"], port["hostPort"]) == ("tfjob-port", 2222)
