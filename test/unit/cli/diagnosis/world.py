"""The objects of a healthy job as an API server sends them, for tests to change, and the evidence that they make."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tfjob_operator.api.core import Lease
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.cli.diagnosis import objects
from tfjob_operator.cli.diagnosis.facts import Absent, AlphaEvidence, Evidence, LastLine

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
JOB = "mnist"
NAMESPACE = "team"
REPLICAS = ("mnist-ps-0", "mnist-worker-0", "mnist-worker-1")


def ago(minutes: float) -> str:
    """A time that long ago, as API servers write it."""
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    kind: str, status: str = "True", reason: str = "", message: str = "", minutes: float = 60
) -> dict[str, Any]:
    """A condition of any object."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(minutes)}


def _labels(name: str) -> dict[str, str]:
    _, kind, index = name.rsplit("-", 2)
    found = {"training.kubeflow.org/operator-name": "tfjob-controller"}
    return found | {
        f"training.kubeflow.org/{key}": value
        for key, value in (("job-name", JOB), ("replica-type", kind), ("replica-index", index))
    }


def _pod(name: str, number: int) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "labels": _labels(name),
        "creationTimestamp": ago(60),
    }
    container = {
        "name": "tensorflow",
        "image": "registry.example/train:1",
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
    }
    status = {
        "name": "tensorflow",
        "image": "registry.example/train:1",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": ago(59)}},
        "lastState": {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "containers": [container],
            "nodeName": f"node-{number % 2}",
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
        },
        "status": {
            "phase": "Running",
            "startTime": ago(60),
            "conditions": [condition("PodScheduled"), condition("Ready"), condition("ContainersReady")],
            "containerStatuses": [status],
        },
    }


def node(name: str) -> dict[str, Any]:
    """A ready node."""
    meta = {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}}
    status = {
        "conditions": [condition("Ready", reason="KubeletReady", message="kubelet is posting ready status")],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


class World:
    """The objects, as JSON. `pods` and `nodes` are by name."""

    def __init__(self) -> None:
        container = {"name": "tensorflow", "image": "registry.example/train:1"}
        template = {"spec": {"containers": [container]}}
        self.job: dict[str, Any] = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {
                "name": JOB,
                "namespace": NAMESPACE,
                "uid": "uid-job",
                "generation": 1,
                "creationTimestamp": ago(60),
            },
            "spec": {
                "tfReplicaSpecs": {
                    "PS": {"replicas": 1, "template": template},
                    "Worker": {"replicas": 2, "template": deepcopy(template)},
                },
                "runPolicy": {},
            },
            "status": {
                "conditions": [
                    condition("Created", reason="TFJobCreated"),
                    condition("Running", reason="TFJobRunning"),
                ],
                "startTime": ago(60),
                "observedGeneration": 1,
                "begun": {"generation": 1, "replicas": {"PS": 1, "Worker": 2}},
                "replicaStatuses": {"PS": {"active": 1}, "Worker": {"active": 2}},
            },
        }
        self.pods = {name: _pod(name, number) for number, name in enumerate(REPLICAS)}
        self.former: list[dict[str, Any]] = []
        self.services: dict[str, dict[str, Any]] = {
            name: {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"selector": _labels(name)},
            }
            for name in REPLICAS
        }
        self.nodes = {name: node(name) for name in ("node-0", "node-1")}
        self.events: list[dict[str, Any]] = []
        self.quotas: list[dict[str, Any]] = []
        self.limit_ranges: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        self.namespace: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE},
            "status": {"phase": "Active"},
        }
        self.lease: dict[str, Any] | None = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "tf-operator", "namespace": "kubeflow"},
            "spec": {
                "holderIdentity": "operator-1",
                "leaseDurationSeconds": 15,
                "renewTime": (NOW - timedelta(seconds=3)).isoformat().replace("+00:00", "Z"),
            },
        }
        self.stale_lease: dict[str, Any] | None = None
        self.deployments: list[dict[str, Any]] = []
        self.operator_pods: list[dict[str, Any]] = []
        self.crd: dict[str, Any] | None = None
        self.workload: dict[str, Any] | None = None
        self.pod_group: dict[str, Any] | None = None
        self.logs: dict[tuple[str, str], str] = {}
        self.forbidden: list[str] = []
        self.absent: list[Absent] = []
        self.last_lines: dict[str, LastLine] = {}
        self.dialect: Dialect | None = None
        self.batch_jobs: dict[str, dict[str, Any]] = {}

    def alpha(self, dialect: Dialect = KUBEFLOW) -> None:
        """Make it a job of the alpha dialect: a master, and two workers whose Jobs, services and pods have their names."""
        self.dialect = dialect
        self.job |= {"apiVersion": f"{dialect.resource.group}/v1alpha1", "kind": dialect.resource.kind}
        template = self.spec["tfReplicaSpecs"]["Worker"]["template"]
        self.job["spec"] = {
            "replicaSpecs": [
                {"tfReplicaType": "MASTER", "template": template},
                {"tfReplicaType": "WORKER", "replicas": 2, "template": template},
            ]
        }
        self.status.pop("replicaStatuses")
        self.status["begun"] = {"generation": 1, "replicas": {"Master": 1, "Worker": 2}}
        self.job["status"] |= {"phase": "Running", "state": "Running", "reason": "", "runtimeId": "x7ab"}
        pods, self.pods, self.services = [*self.pods.values()], {}, {}
        for pod, name in zip(pods, ("master-x7ab-0", "worker-x7ab-0", "worker-x7ab-1"), strict=True):
            kind, _, index = name.split("-")
            labels = {"tf_job_name": JOB, "job_type": kind.upper(), "task_index": index, "runtime_id": "x7ab"}
            pod["metadata"] |= {"name": f"{name}-abcde", "uid": f"uid-{name}-abcde", "labels": labels}
            self.pods[f"{name}-abcde"] = pod
            meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": ago(60)}
            self.services[name] = {"kind": "Service", "metadata": meta, "spec": {"selector": labels}}
            self.batch_jobs[name] = {"kind": "Job", "metadata": meta, "spec": {}, "status": {"startTime": ago(60)}}

    @property
    def spec(self) -> dict[str, Any]:
        """The job's specification."""
        found: dict[str, Any] = self.job["spec"]
        return found

    @property
    def status(self) -> dict[str, Any]:
        """The job's status."""
        found: dict[str, Any] = self.job["status"]
        return found

    def end(self, kind: str, reason: str, message: str, *, minutes: float = 10) -> None:
        """Let the job have ended so many minutes ago."""
        self.status["conditions"] = [
            condition("Created", reason="TFJobCreated"),
            condition("Running", "False", reason, message, minutes),
            condition(kind, "True", reason, message, minutes),
        ]
        self.status["completionTime"] = ago(minutes)

    def event(
        self,
        kind: str,
        name: str,
        reason: str,
        message: str,
        *,
        type_: str = "Warning",
        minutes: float = 3,
        count: int = 1,
    ) -> None:
        """Add an event."""
        uid = {"TFJob": "uid-job", "TfJob": "uid-job"}.get(kind, f"uid-{name}")
        self.events.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}.{len(self.events)}", "namespace": NAMESPACE},
                "involvedObject": {"kind": kind, "name": name, "namespace": NAMESPACE, "uid": uid},
                "reason": reason,
                "message": message,
                "type": type_,
                "count": count,
                "source": {"component": "test"},
                "firstTimestamp": ago(minutes + 1),
                "lastTimestamp": ago(minutes),
                "eventTime": None,
                "reportingComponent": "",
            }
        )

    def refuse(self, message: str, name: str = "mnist-worker-1", kind: str = "Pod") -> None:
        """Have a replica's child refused by the API server, in these words."""
        self.pods.pop(name, None)
        self.event("TFJob", JOB, f"FailedCreate{kind}", f"Error creating: {message}")

    def unscheduled(self, message: str, name: str = "mnist-worker-1") -> dict[str, Any]:
        """Have a pod without a node, and the scheduler say so."""
        pod = self.pods[name]
        del pod["spec"]["nodeName"]
        pod["status"] = {
            "phase": "Pending",
            "conditions": [condition("PodScheduled", "False", "Unschedulable", message)],
        }
        self.event("Pod", name, "FailedScheduling", message, count=4)
        return pod

    def waiting(self, reason: str, message: str, name: str = "mnist-worker-1") -> dict[str, Any]:
        """Have a pod's container wait, never having run."""
        pod = self.pods[name]
        pod["status"]["phase"] = "Pending"
        status = pod["status"]["containerStatuses"][0]
        status |= {"ready": False, "state": {"waiting": {"reason": reason, "message": message}}}
        return pod

    def creating(self, name: str = "mnist-worker-1", minutes: float = 2) -> dict[str, Any]:
        """Have a pod on its node without a container yet."""
        pod = self.waiting("ContainerCreating", "", name)
        pod["status"]["startTime"] = pod["metadata"]["creationTimestamp"] = ago(minutes)
        return pod

    def exited(
        self,
        code: int,
        reason: str = "Error",
        message: str = "",
        name: str = "mnist-worker-1",
        *,
        restarts: int = 4,
        log: str = "",
    ) -> dict[str, Any]:
        """Have a container in CrashLoopBackOff that ended like this."""
        pod = self.pods[name]
        ended = {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": ago(4),
            "finishedAt": ago(3),
            "containerID": "containerd://1",
        }
        waiting = {
            "reason": "CrashLoopBackOff",
            "message": f"back-off 40s restarting failed container=tensorflow pod={name}_team(uid-{name})",
        }
        status = pod["status"]["containerStatuses"][0]
        status |= {
            "ready": False,
            "restartCount": restarts,
            "state": {"waiting": waiting},
            "lastState": {"terminated": ended},
        }
        if log:
            self.logs[name, "tensorflow"] = log
        return pod

    def failed(
        self, code: int, reason: str = "Error", message: str = "", name: str = "mnist-worker-1", *, log: str = ""
    ) -> dict[str, Any]:
        """Let a pod have failed with this exit, and its job with it."""
        pod = self.exited(code, reason, message, name, restarts=0, log=log)
        status = pod["status"]["containerStatuses"][0]
        status["state"], status["lastState"] = status["lastState"], {}
        pod["status"]["phase"] = "Failed"
        known = "" if reason in {"", "Error"} else f" ({reason})"
        told = f"Pod {name}: container tensorflow exited with code {code}{known}{message and ': '}{message}"
        self.end("Failed", "TFJobFailed", f"TFJob team/mnist has failed because 1 Worker replica(s) failed. {told}")
        return pod

    def suspend(self, **workload: Any) -> None:
        """Suspend the job; with a Workload if fields of one are given."""
        self.spec["runPolicy"]["suspend"] = True
        self.pods = {}
        self.status["conditions"].append(condition("Suspended", reason="TFJobSuspended"))
        if workload:
            self.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
            spec = {"queueName": "research", "active": workload.pop("active", True)}
            self.workload = {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "Workload",
                "metadata": {"name": "tfjob-mnist-1a2b3", "namespace": NAMESPACE},
                "spec": spec,
                "status": workload,
            }

    def claim(self, phase: str, name: str = "data") -> None:
        """Have a claim in that phase, which a worker mounts; the worker has no node yet."""
        pod = self.unscheduled(
            "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/2 nodes are "
            "available: 2 Preemption is not helpful for scheduling."
        )
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        if phase:
            self.claims.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"},
                    "spec": {"accessModes": ["ReadWriteOnce"]},
                    "status": {"phase": phase},
                }
            )

    def gang(self, phase: str, *conditions: dict[str, Any]) -> None:
        """Have a PodGroup in that phase."""
        self.pod_group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": JOB, "namespace": NAMESPACE},
            "spec": {"minMember": 3, "queue": "research"},
            "status": {"phase": phase, "conditions": list(conditions)},
        }

    def evidence(self) -> Evidence:
        """All of it, through JSON, as a client reads it."""

        def read(kind: Any, given: Any) -> Any:
            return None if given is None else msgspec.json.decode(json.dumps(given), type=kind)

        pods = tuple(read(objects.Pod, each) for each in self.pods.values())
        meta = self.job["metadata"]
        alpha = None
        if self.dialect is not None:
            batch_jobs = tuple(read(objects.BatchJob, each) for each in self.batch_jobs.values())
            alpha = AlphaEvidence(self.dialect, read(AlphaJob, self.job), batch_jobs)
        return Evidence(
            alpha=alpha,
            job=read(TFJob, self.job | {"kind": "TFJob"}),
            now=NOW,
            created_at=datetime.fromisoformat(meta["creationTimestamp"]),
            finalizers=tuple(meta.get("finalizers", ())),
            suspended_by="",
            pods=pods,
            former=tuple(read(objects.Pod, each) for each in self.former),
            services=tuple(read(objects.Service, each) for each in self.services.values()),
            events=tuple(read(objects.Event, each) for each in self.events),
            nodes=tuple(read(objects.Node, each) for each in self.nodes.values()),
            last_lines=dict(self.last_lines),
            quotas=tuple(read(objects.ResourceQuota, each) for each in self.quotas),
            limit_ranges=tuple(read(objects.LimitRange, each) for each in self.limit_ranges),
            claims=tuple(read(objects.Claim, each) for each in self.claims),
            namespace=read(objects.Namespace, self.namespace),
            lease=read(Lease, self.lease),
            stale_lease=read(Lease, self.stale_lease),
            deployments=tuple(read(objects.Deployment, each) for each in self.deployments),
            operator_pods=tuple(read(objects.Pod, each) for each in self.operator_pods),
            crd=read(objects.Crd, self.crd),
            workload=read(objects.Workload, self.workload),
            pod_group=read(objects.PodGroup, self.pod_group),
            logs=dict(self.logs),
            forbidden=tuple(self.forbidden),
            absent=tuple(self.absent),
        )
