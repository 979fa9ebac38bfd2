"""`kubectl tfjob` with a real kubelet: logs, and a command in a replica."""

import os
import subprocess
import sys

from e2e.cluster import NAMESPACE, NodeCluster, job, replica, runs, script
from integration.cluster import specs
from tfjob_operator.api.v1.constants import ConditionType

LIMIT_S = 180.0
FOREVER = "while true; do sleep 1; done"


def started(cluster: NodeCluster, *arguments: str) -> subprocess.Popen[str]:
    """The plugin, as the administrator calls it, with kubectl in the PATH."""
    plane = cluster.node.plane
    path = f"{plane.kubectl.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}
    verb, name, *more = arguments
    command = [sys.executable, "-m", "tfjob_operator.cli", verb, name, f"--namespace={NAMESPACE}", *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def told(cluster: NodeCluster, *arguments: str) -> str:
    """What the plugin prints; it must succeed."""
    with started(cluster, *arguments) as process:
        output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    return output


def test_logs_are_followed_over_a_restart_in_place_and_a_new_pod(cluster: NodeCluster) -> None:
    """Each line is printed once, in order, until the job has ended; `exec` runs in the pod, `restart` makes a new one."""
    name, pod = "followed", "followed-worker-0"
    cluster.create(
        job(name, specs(Worker=replica(script(name, then=f"test $RUN -ge 3 && exit 0; {FOREVER}"), policy="OnFailure")))
    )
    with started(cluster, "logs", name, "--follow") as following:
        try:
            cluster.eventually(lambda: runs(name) == 1, "the process runs")
            cluster.kill_container(pod)
            cluster.eventually(lambda: runs(name) == 2, "it was restarted in place")
            cluster.eventually(lambda: cluster.pod(pod)[1] == 1 and cluster.is_running(pod), "the kubelet tells of it")
            assert told(cluster, "exec", name, "--", "cat", f"/runs/{name}") == "run\nrun\n"
            assert told(cluster, "restart", name, "--replica=worker-0") == f"pod/{pod} deleted\n"
            cluster.wait_for(name, ConditionType.SUCCEEDED)
            output, errors = following.communicate(timeout=LIMIT_S)
        finally:
            following.kill()
    lines = [f"worker-0 | run {number} of {name}" for number in (1, 2, 3)]
    assert output.splitlines() == lines, errors
    assert "worker-0: was started again" in errors
    assert told(cluster, "logs", name) == f"{lines[-1]}\n"
    cluster.delete(name)
