"""Troubles on a real cluster: the API server refuses, a hollow node ends processes; the right cause stands on line one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from integration.cluster import Cluster, replica, specs, with_policy
from support.waiting import eventually
from tfjob_operator.api.core import Lease
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.cli.diagnosis import objects
from tfjob_operator.cli.diagnosis.causes import Diagnosis
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.facts import Evidence

JOB = "why"
FOREVER = "forever"
TRAINING = {"name": "tensorflow", "image": "train:1"}


def create(cluster: Cluster, *bodies: dict[str, Any]) -> None:
    """Create objects, as a user would."""
    for body in bodies:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def template(**pod_spec: Any) -> dict[str, Any]:
    """The specification of a job of two workers, with these fields added to the pods' specs."""
    worker = replica(2, run=FOREVER)
    worker["template"]["spec"] |= pod_spec
    return specs(Worker=worker)


def asking(**resources: Any) -> dict[str, Any]:
    """The specification of a job whose containers have these resources."""
    return template(containers=[TRAINING | {"resources": resources}])


def count(cluster: Cluster, quota: dict[str, Any]) -> None:
    """Wait until the quota controller has counted what the quota limits."""
    path = "--output=jsonpath={.status.used}"
    eventually(lambda: cluster.kubectl("get", "resourcequota", quota["metadata"]["name"], path), "the quota is counted")


def evidence_of(cluster: Cluster, *, later_s: float = 0.0) -> Evidence:
    """What kubectl shows of the job, `later_s` seconds from now."""

    def read(kind: Any, *arguments: str) -> tuple[Any, ...]:
        items = json.loads(cluster.kubectl("get", *arguments, "--output=json"))["items"]
        return tuple(msgspec.convert(each, kind, strict=False) for each in items)

    job = cluster.api("GET", "tfjobs", JOB)
    leases = read(Lease, "leases")
    return Evidence(
        job=msgspec.json.decode(json.dumps(job), type=TFJob),
        now=datetime.now(UTC) + timedelta(seconds=later_s),
        created_at=datetime.fromisoformat(job["metadata"]["creationTimestamp"]),
        pods=read(objects.Pod, "pods", f"--selector=training.kubeflow.org/job-name={JOB}"),
        services=read(objects.Service, "services"),
        events=read(objects.Event, "events"),
        quotas=read(objects.ResourceQuota, "resourcequotas"),
        limit_ranges=read(objects.LimitRange, "limitranges"),
        claims=read(objects.Claim, "persistentvolumeclaims"),
        lease=leases[0] if leases else None,
    )


def first(cluster: Cluster, *, later_s: float = 0.0) -> str:
    """The ID of the cause on line one, "" if there is none."""
    causes = diagnosis_of(cluster, later_s=later_s).causes
    return causes[0].id if causes else ""


def diagnosis_of(cluster: Cluster, *, later_s: float = 0.0) -> Diagnosis:
    """The diagnosis of the job."""
    return diagnose(evidence_of(cluster, later_s=later_s))


def comes(cluster: Cluster, id_: str, *, later_s: float = 0.0) -> None:
    """Wait until this cause stands on line one."""
    found: list[Diagnosis] = []

    def there() -> bool:
        found.append(diagnosis_of(cluster, later_s=later_s))
        return bool(found[-1].causes) and found[-1].causes[0].id == id_

    eventually(there, f"{id_} is on line one", yet=lambda: found[-1])


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}}
CPU_QUOTA = QUOTA | {"spec": {"hard": {"requests.cpu": "1"}}}
RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "narrow"},
    "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}, "min": {"memory": "64Mi"}}]},
}
RATIO = RANGE | {"spec": {"limits": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}]}}
SOMEBODYS = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": f"{JOB}-worker-1"},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
}

REFUSED: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "quota-wants-requests": ((CPU_QUOTA,), template()),
    "limit-range-maximum": ((RANGE,), asking(limits={"memory": "2Gi"})),
    "limit-range-minimum": ((RANGE,), asking(requests={"memory": "1Mi"}, limits={"memory": "512Mi"})),
    "limit-range-ratio": ((RATIO,), asking(requests={"cpu": "1"}, limits={"cpu": "4"})),
    "service-account-missing": ((), template(serviceAccountName="nobody")),
    "priority-class-missing": ((), template(priorityClassName="urgent")),
    "runtime-class-missing": ((), template(runtimeClassName="gvisor")),
    "name-taken": ((SOMEBODYS,), template()),
    "template-refused": ((), template(containers=[TRAINING | {"volumeMounts": [{"name": "none", "mountPath": "/x"}]}])),
    "spec-invalid": ((), with_policy(template(), cleanPodPolicy="Sometimes")),
    "container-name": ((), template(containers=[{"name": "main", "image": "i:1"}])),
    "managed-elsewhere": ((), with_policy(template(), managedBy="kueue.x-k8s.io/multikueue")),
    "no-replicas": ((), specs(Worker=replica(0))),
    "too-many-replicas": ((), specs(Worker=replica(20_000))),
}
"""By the ID of the cause: objects that exist before the job, and the job's specification. No pod has to run for these."""


@pytest.mark.parametrize(("id_", "before", "spec"), [(id_, *given) for id_, given in REFUSED.items()], ids=REFUSED)
def test_what_the_api_server_and_the_operator_refuse_is_on_line_one(
    cluster: Cluster, id_: str, before: tuple[dict[str, Any], ...], spec: dict[str, Any]
) -> None:
    """The messages are those of this server's version."""
    create(cluster, *before)
    for body in before:
        if body["kind"] == "ResourceQuota":
            count(cluster, body)
    with cluster.operator():
        cluster.create(JOB, spec)
        comes(cluster, id_)


def test_without_an_operator_nobody_looks_at_the_job(cluster: Cluster) -> None:
    """A job is without a status for over a minute; an operator that is gone leaves a lease that is no longer renewed."""
    cluster.create(JOB, template())
    assert first(cluster) == ""
    assert first(cluster, later_s=90) == "operator-not-acting"
    with cluster.operator():
        eventually(lambda: len(cluster.names("pods")) == 2, "its pods are there")
        # The operator's lease would be as old, so it is left out.
        nobody = diagnose(replace(evidence_of(cluster, later_s=90), lease=None))
        assert [cause.id for cause in nobody.causes] == ["scheduler-missing"]
    comes(cluster, "operator-missing")


def _failing(run: str, policy: str = "Never", **limits: Any) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.create(JOB, with_policy(specs(Worker=replica(2, policy, run=run)), **limits))


ENDS: dict[str, Callable[[Cluster], None]] = {
    "exit-code": _failing("1s:1"),
    "segmentation-fault": _failing("1s:139"),
    "deadline-exceeded": _failing(FOREVER, activeDeadlineSeconds=2),
    "backoff-limit": _failing("0s:1", "OnFailure", backoffLimit=1),
}


@pytest.mark.parametrize("id_", ENDS)
def test_why_a_job_failed_is_on_line_one(served: Cluster, id_: str) -> None:
    """With a hollow node, which ends processes as told."""
    ENDS[id_](served)
    comes(served, id_)


def test_a_running_job_is_healthy_until_an_edit_holds_it(served: Cluster) -> None:
    """Nothing is found where nothing is wrong; a wrong edit is."""
    served.create(JOB, template())
    served.wait_for(JOB, "Running")
    eventually(lambda: diagnosis_of(served).standing.endswith("2 of 2 workers running"), "both run")
    assert diagnosis_of(served).causes == ()
    wrong = {"spec": {"runPolicy": {"backoffLimit": -1}}}
    served.kubectl("patch", "tfjob", JOB, "--type=merge", f"--patch={json.dumps(wrong)}")
    comes(served, "held-invalid")
