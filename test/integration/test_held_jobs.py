"""Invalid edits of running jobs, with kubectl and a real API server."""

from typing import Any

from integration.cluster import Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason

FOREVER = "forever"
CONTAINER = "/spec/tfReplicaSpecs/Worker/template/spec/containers/0"


def held(cluster: Cluster, name: str) -> tuple[str, str]:
    """The status and reason of the condition Held; empty strings when it is not there."""
    conditions = cluster.job(name).get("status", {}).get("conditions", [])
    return next(
        ((each["status"], each["reason"]) for each in conditions if each["type"] == ConditionType.HELD), ("", "")
    )


def reasons(cluster: Cluster, name: str) -> list[str]:
    return [reason for reason, _ in cluster.warnings(name)]


def running(cluster: Cluster, name: str, spec: dict[str, Any]) -> dict[str, str]:
    """Create a job and wait until it runs. Return the UIDs of its children."""
    cluster.create(name, spec)
    cluster.wait_for(name, ConditionType.RUNNING)
    return cluster.uids("pods", "services")


def wait_for_active(cluster: Cluster, workers: int) -> None:
    eventually(lambda: cluster.active("edited") == workers, f"{workers} are active")


def test_a_wrong_edit_holds_a_running_job_until_it_is_mended(served: Cluster) -> None:
    """U4: no child is touched, kubectl shows Running all the while; a pod deleted meanwhile is recreated after the mending."""
    before = running(served, "edited", specs(Worker=replica(2, run=FOREVER)))
    served.patch("tfjobs", "edited", {"spec": {"runPolicy": {"backoffLimit": -1}}})
    eventually(lambda: held(served, "edited") == ("True", ConditionReason.INVALID), "it is held")
    assert served.state("edited") == ConditionType.RUNNING
    ((reason, message),) = eventually(lambda: served.warnings("edited"), "one warning")
    assert (reason, "spec.runPolicy.backoffLimit" in message) == (ConditionReason.INVALID, True)
    served.api("DELETE", "pods", "edited-worker-1")
    wait_for_active(served, 1)
    others = {name for name in before if name != "pods/edited-worker-1"}
    eventually(lambda: served.uids("pods", "services").keys() == others, "the pod is gone, and no other child")
    served.patch("tfjobs", "edited", {"spec": {"runPolicy": None}})
    wait_for_active(served, 2)
    assert held(served, "edited") == ("False", ConditionReason.MENDED)
    assert served.state("edited") == ConditionType.RUNNING
    assert served.uids("pods")["pods/edited-worker-0"] == before["pods/edited-worker-0"]


def test_what_the_api_server_refuses_after_an_edit_holds_the_job(served: Cluster) -> None:
    """U4: a template that only the API server can judge; it is tried once, and again when it is edited."""
    unknown = [{"op": "add", "path": f"{CONTAINER}/volumeMounts", "value": [{"name": "data", "mountPath": "/data"}]}]
    larger = [{"op": "replace", "path": "/spec/tfReplicaSpecs/Worker/replicas", "value": 2}]
    before = running(served, "edited", specs(Worker=replica(1, run=FOREVER)))
    served.patch("tfjobs", "edited", [*unknown, *larger])
    eventually(lambda: held(served, "edited") == ("True", ConditionReason.REFUSED), "it is held")
    assert served.state("edited") == ConditionType.RUNNING
    assert before.items() <= served.uids("pods", "services").items()
    told = {ConditionReason.REFUSED.value, EventReason.POD_TEMPLATE_NOT_APPLIED.value}
    eventually(lambda: set(reasons(served, "edited")) == told, "two warnings")
    served.patch("tfjobs", "edited", [{"op": "remove", "path": f"{CONTAINER}/volumeMounts"}])
    wait_for_active(served, 2)
    assert held(served, "edited") == ("False", ConditionReason.MENDED)


def test_kubectl_scales_workers_whatever_the_case_of_their_key(served: Cluster) -> None:
    """U3: the scale subresource writes Worker beside worker, and its number is the one that counts."""
    running(served, "scaled", specs(worker=replica(1, run=FOREVER)))
    served.kubectl("scale", "tfjob", "scaled", "--replicas=3")
    eventually(lambda: served.names("pods") == [f"scaled-worker-{index}" for index in range(3)], "three workers")
    served.kubectl("scale", "tfjob", "scaled", "--replicas=1")
    eventually(lambda: served.names("pods") == ["scaled-worker-0"], "one worker")
    assert served.state("scaled") == ConditionType.RUNNING
    assert set(reasons(served, "scaled")) <= {EventReason.POD_TEMPLATE_NOT_APPLIED.value}


def test_kubectl_can_not_scale_a_job_without_workers_and_does_it_no_harm(served: Cluster) -> None:
    """U3: a Warning, and nothing else."""
    before = running(served, "alone", specs(Chief=replica(run=FOREVER)))
    served.kubectl("scale", "tfjob", "alone", "--replicas=2")
    eventually(lambda: reasons(served, "alone") == [EventReason.NO_WORKERS], "a warning")
    assert (served.state("alone"), held(served, "alone")) == (ConditionType.RUNNING, ("", ""))
    assert served.uids("pods", "services") == before


def test_a_scale_up_beyond_the_length_of_names_is_held_and_the_job_is_looked_after(served: Cluster) -> None:
    """D16: the eleventh worker would have a name of 64 characters."""
    name = "a" * (63 - len("-worker-9"))
    before = running(served, name, specs(Worker=replica(1, run=FOREVER)))
    served.kubectl("scale", "tfjob", name, "--replicas=11")
    eventually(lambda: held(served, name) == ("True", ConditionReason.TOO_LARGE), "the scale-up is held")
    served.api("DELETE", "pods", f"{name}-worker-0")
    pod = f"pods/{name}-worker-0"
    eventually(lambda: served.uids("pods").get(pod, before[pod]) != before[pod], "it is made again")
    served.kubectl("scale", "tfjob", name, "--replicas=2")
    eventually(lambda: len(served.names("pods")) == 2, "two workers")
    assert held(served, name)[0] == "False"
