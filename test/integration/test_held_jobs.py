"""What becomes of running jobs when their owners edit them wrongly, with kubectl and a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.cluster import Cluster, replica, specs
from support.waiting import eventually
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason

FOREVER = "forever"
CONTAINER = "/spec/tfReplicaSpecs/Worker/template/spec/containers/0"
EDITS = {
    "a negative limit": (
        [{"op": "add", "path": "/spec/runPolicy", "value": {"backoffLimit": -1}}],
        [{"op": "remove", "path": "/spec/runPolicy"}],
        "spec.runPolicy.backoffLimit",
    ),
    "a policy that is none": (
        [{"op": "add", "path": "/spec/runPolicy", "value": {"cleanPodPolicy": "Sometimes"}}],
        [{"op": "remove", "path": "/spec/runPolicy"}],
        "spec.runPolicy.cleanPodPolicy",
    ),
    "a renamed container": (
        [{"op": "replace", "path": f"{CONTAINER}/name", "value": "main"}],
        [{"op": "replace", "path": f"{CONTAINER}/name", "value": "tensorflow"}],
        "one container must be named tensorflow",
    ),
}


def patch(cluster: Cluster, name: str, operations: list[dict[str, Any]]) -> None:
    """Edit a job."""
    cluster.kubectl("patch", "tfjob", name, "--type=json", f"--patch={json.dumps(operations)}")


def held(cluster: Cluster, name: str) -> tuple[str, str]:
    """The status and reason of the condition Held; empty strings when it is not there."""
    conditions = cluster.job(name).get("status", {}).get("conditions", [])
    return next(
        ((each["status"], each["reason"]) for each in conditions if each["type"] == ConditionType.HELD), ("", "")
    )


def uids(cluster: Cluster) -> dict[str, str]:
    """The UIDs of all pods and services by kind and name."""
    kinds = ("pods", "services")
    return {
        f"{kind}/{each['metadata']['name']}": each["metadata"]["uid"] for kind in kinds for each in cluster.items(kind)
    }


def reasons(cluster: Cluster, name: str) -> list[str]:
    """The reasons of the Warnings on a job."""
    return [reason for kind, reason, _ in cluster.events(name) if kind == "Warning"]


@pytest.mark.parametrize(("wrong", "right", "words"), [*EDITS.values()], ids=EDITS)
def test_a_wrong_edit_holds_a_running_job_until_it_is_mended(
    served: Cluster, wrong: list[dict[str, Any]], right: list[dict[str, Any]], words: str
) -> None:
    """U4: no child is touched, kubectl shows Running all the while; a pod deleted meanwhile is recreated after the mending."""
    served.create("edited", specs(Worker=replica(2, run=FOREVER)))
    served.wait_for("edited", ConditionType.RUNNING)
    before = uids(served)
    patch(served, "edited", wrong)
    eventually(lambda: held(served, "edited") == ("True", ConditionReason.INVALID), "it is held")
    assert served.state("edited") == ConditionType.RUNNING
    eventually(lambda: reasons(served, "edited") == [ConditionReason.INVALID], "one warning")
    assert words in next(message for kind, _, message in served.events("edited") if kind == "Warning")
    served.kubectl("delete", "pod", "edited-worker-1")
    eventually(lambda: served.job("edited")["status"]["replicaStatuses"]["Worker"]["active"] == 1, "one is left")
    assert {name for name in before if name != "pods/edited-worker-1"} == uids(served).keys()
    patch(served, "edited", right)
    eventually(lambda: served.job("edited")["status"]["replicaStatuses"]["Worker"]["active"] == 2, "two run")
    assert held(served, "edited") == ("False", ConditionReason.MENDED)
    assert served.state("edited") == ConditionType.RUNNING
    assert uids(served)["pods/edited-worker-0"] == before["pods/edited-worker-0"]


def test_what_the_api_server_refuses_after_an_edit_holds_the_job(served: Cluster) -> None:
    """U4: a template that only the API server can judge; it is tried once, and again when it is edited."""
    unknown = [{"op": "add", "path": f"{CONTAINER}/volumeMounts", "value": [{"name": "data", "mountPath": "/data"}]}]
    larger = [{"op": "replace", "path": "/spec/tfReplicaSpecs/Worker/replicas", "value": 2}]
    served.create("edited", specs(Worker=replica(1, run=FOREVER)))
    served.wait_for("edited", ConditionType.RUNNING)
    before = uids(served)
    patch(served, "edited", [*unknown, *larger])
    eventually(lambda: held(served, "edited") == ("True", ConditionReason.REFUSED), "it is held")
    assert served.state("edited") == ConditionType.RUNNING
    assert before.items() <= uids(served).items()
    told = {ConditionReason.REFUSED.value, EventReason.POD_TEMPLATE_NOT_APPLIED.value}
    eventually(lambda: set(reasons(served, "edited")) == told, "two warnings")
    patch(served, "edited", [{"op": "remove", "path": f"{CONTAINER}/volumeMounts"}])
    eventually(lambda: served.job("edited")["status"]["replicaStatuses"]["Worker"]["active"] == 2, "two run")
    assert held(served, "edited") == ("False", ConditionReason.MENDED)


def test_kubectl_scales_workers_whatever_the_case_of_their_key(served: Cluster) -> None:
    """U3: the scale subresource writes Worker beside worker, and its number is the one that counts."""
    served.create("scaled", specs(worker=replica(1, run=FOREVER)))
    served.wait_for("scaled", ConditionType.RUNNING)
    served.kubectl("scale", "tfjob", "scaled", "--replicas=3")
    eventually(lambda: served.names("pods") == [f"scaled-worker-{index}" for index in range(3)], "three workers")
    served.kubectl("scale", "tfjob", "scaled", "--replicas=1")
    eventually(lambda: served.names("pods") == ["scaled-worker-0"], "one worker")
    assert served.state("scaled") == ConditionType.RUNNING
    assert set(reasons(served, "scaled")) <= {EventReason.POD_TEMPLATE_NOT_APPLIED.value}


def test_kubectl_can_not_scale_a_job_without_workers_and_does_it_no_harm(served: Cluster) -> None:
    """U3: a Warning, and nothing else."""
    served.create("alone", specs(Chief=replica(run=FOREVER)))
    served.wait_for("alone", ConditionType.RUNNING)
    before = uids(served)
    served.kubectl("scale", "tfjob", "alone", "--replicas=2")
    eventually(lambda: reasons(served, "alone") == [EventReason.NO_WORKERS], "a warning")
    assert (served.state("alone"), held(served, "alone"), uids(served)) == (
        ConditionType.RUNNING,
        ("", ""),
        before,
    )


def test_a_scale_up_beyond_the_length_of_names_is_held_and_the_job_is_looked_after(served: Cluster) -> None:
    """D16: the eleventh worker would have a name of 64 characters."""
    name = "a" * (63 - len("-worker-9"))
    served.create(name, specs(Worker=replica(1, run=FOREVER)))
    served.wait_for(name, ConditionType.RUNNING)
    served.kubectl("scale", "tfjob", name, "--replicas=11")
    eventually(lambda: held(served, name) == ("True", ConditionReason.TOO_LARGE), "the scale-up is held")
    before = uids(served)
    served.kubectl("delete", "pod", f"{name}-worker-0")
    eventually(lambda: f"pods/{name}-worker-0" in uids(served) and uids(served) != before, "it is made again")
    served.kubectl("scale", "tfjob", name, "--replicas=2")
    eventually(lambda: len(served.names("pods")) == 2, "two workers")
    assert held(served, name)[0] == "False"
