"""Programs that hang: four real processes that wait for each other, found by their logs, restarted, and finished."""

import re
from typing import Any, Final

import pytest

from e2e.cluster import LIMIT_S, NodeCluster, job, replica
from integration.cluster import specs, with_policy
from tfjob_operator.api.v1.constants import ConditionType

pytestmark = pytest.mark.usefixtures("logs_addon")

WORKERS: Final = 4
DEADLINE_S: Final = 60
PROGRAM: Final = """
import json, os, socket, sys, time

place = json.loads(os.environ["TF_CONFIG"])
workers, rank, is_first = place["cluster"]["worker"], place["task"]["index"], os.environ["TFJOB_RESTART_ATTEMPT"] == "0"
print(f"process {rank} of {len(workers)} starts", flush=True)
if rank == 2 and is_first and sys.argv[1] == "absent":
    time.sleep(3600)
host, _, port = workers[0].rpartition(":")
if rank == 0:
    server = socket.create_server(("", int(port)))
    peers = [server.accept()[0] for _ in workers[1:]]
while rank > 0:
    try:
        peers = [socket.create_connection((host, int(port)))]
        break
    except OSError:
        time.sleep(0.2)
for step in range(3600 if is_first else 5):
    if rank > 0:
        peers[0].sendall(b".")
    arrived = [peer.recv(1) for peer in peers]
    assert all(arrived), "lost a peer"
    if rank == 0:
        for peer in peers:
            peer.sendall(b".")
    print(f"step {step}", flush=True)
    time.sleep(0.5)
"""
"""A barrier in each step: worker 0 waits for all others, and they for its answer."""


def hanging(name: str, how: str) -> dict[str, Any]:
    worker = replica(["python3", "-c", PROGRAM, how], replicas=WORKERS)
    rule = {"name": "hangs", "action": "RestartAll", "onFailureReasons": ["ProgressDeadlineExceeded"]}
    policy = {"maxRestarts": 1, "rules": [rule]}
    return job(
        name,
        with_policy(
            specs(Worker=worker), progressDeadlineSeconds=DEADLINE_S, failurePolicy=policy, cleanPodPolicy="None"
        ),
    ) | {"metadata": {"name": name, "namespace": "default"}}


def steps(cluster: NodeCluster, pod: str) -> int:
    """How many steps a process has finished."""
    return len(re.findall(r"^step \d+$", cluster.kubectl("logs", pod, check=False), re.MULTILINE))


def test_four_processes_of_which_one_stops_or_never_arrives_are_restarted_and_finish(
    cluster: NodeCluster, figure: Any
) -> None:
    """Nobody exits: all policies but the progress deadline are blind to it. Both jobs hang at the same time."""
    cluster.create(hanging("stops", "present"), hanging("absent", "absent"))
    cluster.eventually(lambda: steps(cluster, "stops-worker-0") >= 5, "a collective works", LIMIT_S)
    cluster.kill_container("stops-worker-2", signal="SIGSTOP")
    for name in ("stops", "absent"):
        took = cluster.eventually(
            lambda: cluster.get("tfjob", name)["status"].get("attempt"),  # noqa: B023
            f"{name} is restarted",
            LIMIT_S,
        )
        figure(f"{name}: the whole job was restarted after {took:.0f} s")
        status = cluster.wait_for(name, ConditionType.SUCCEEDED)
        assert (status["attempt"], status["countedRestarts"]) == (1, 1)
        (attempt,) = status["attemptHistory"]
        assert (attempt["reason"], attempt["rule"]) == ("ProgressDeadlineExceeded", "hangs")
        pods = f"{name}-worker-0 .. {name}-worker-{WORKERS - 1}"
        last = "step" if name == "stops" else "process 0 of 4 starts"
        words = f"no new log line for {DEADLINE_S}s in {pods}; last line of {name}-worker-0: {last}"
        assert attempt["message"].startswith(words)
        assert "ProgressDeadlineExceeded" in cluster.warnings(name)
        assert steps(cluster, f"{name}-worker-0") == 5
        cluster.delete(name)
