"""The objects of a healthy job as an API server sends them, for tests to change, and the evidence that they make."""

import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from hack.objects import an_event, an_object, container_status, replica_labels
from hack.objects import condition as a_condition
from tfjob_operator.api.core import PODS, Lease
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.cli.diagnosis.facts import Absent, AlphaEvidence, Evidence, LastLine
from tfjob_operator.cli.model import objects
from tfjob_operator.cli.model.facts import listed, mapping
from tfjob_operator.cli.operators import read_deployment

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
JOB = "mnist"
NAMESPACE = "team"
WORKER = "mnist-worker-1"
"""The pod that has the trouble, where a case is about one."""
REPLICAS = ("mnist-ps-0", "mnist-worker-0", WORKER)
CONTAINER: Final = {"name": "tensorflow", "image": "registry.example/train:1"}
RESOURCES: Final = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
LISTS: Final[Mapping[str, type]] = {
    "pods": objects.PodDetails, "former": objects.PodDetails, "services": objects.ReplicaService,
    "events": objects.EventDetails, "nodes": objects.NodeDetails,
    "quotas": objects.ResourceQuota, "limit_ranges": objects.LimitRange, "claims": objects.PersistentVolumeClaim,
    "storage_classes": objects.StorageClass,
    "deployments": objects.OperatorDeployment, "operator_pods": objects.PodDetails
}  # fmt: skip
SINGLE: Final[Mapping[str, type]] = {
    "namespace": objects.Namespace, "lease": Lease, "stale_lease": Lease, "crd": objects.Crd, "workload": objects.Workload,
    "pod_group": objects.PodGroupDetails, "place": objects.PendingWorkload
}  # fmt: skip
"""The fields of the evidence, with the slices that they are read as."""


def ago(minutes: float) -> str:
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    kind: str, status: str = "True", reason: str = "", message: str = "", minutes: float = 60
) -> dict[str, Any]:
    return a_condition(kind, status, reason=reason, message=message, lastTransitionTime=ago(minutes))


def _meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": ago(60)} | more


def _labels(name: str) -> dict[str, str]:
    return replica_labels(*name.rsplit("-", 2))


def _pod(name: str, number: int) -> dict[str, Any]:
    running = {"running": {"startedAt": ago(59)}}
    spec = {
        "containers": [CONTAINER | {"resources": deepcopy(RESOURCES)}],
        "nodeName": f"node-{number % 2}",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
    }
    status = {
        "phase": "Running",
        "startTime": ago(60),
        "conditions": [condition("PodScheduled"), condition("Ready"), condition("ContainersReady")],
        "containerStatuses": [container_status(running) | CONTAINER],
    }
    return an_object(PODS, name, spec, status, **_meta(name, labels=_labels(name)))


def _node(name: str) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}}
    ready = condition("Ready", reason="KubeletReady", message="kubelet is posting ready status")
    return {"kind": "Node", "metadata": meta, "spec": {}, "status": {"conditions": [ready]}}


class World:
    """The objects, as JSON. `pods`, `services`, `nodes` and `batch_jobs` are by name."""

    def __init__(self) -> None:
        template = {"spec": {"containers": [CONTAINER | {"resources": RESOURCES}]}}
        sizes = {"PS": 1, "Worker": 2}
        replicas = {kind: {"replicas": size, "template": deepcopy(template)} for kind, size in sizes.items()}
        status = {
            "conditions": [condition("Created", reason="TFJobCreated"), condition("Running", reason="TFJobRunning")],
            "startTime": ago(60),
            "observedGeneration": 1,
            "begun": {"generation": 1, "replicas": sizes},
            "replicaStatuses": {"PS": {"active": 1}, "Worker": {"active": 2}},
        }
        spec = {"tfReplicaSpecs": replicas, "runPolicy": {}}
        self.job = an_object(TFJOBS, JOB, spec, status, **_meta(JOB, uid="uid-job", generation=1))
        self.pods = {name: _pod(name, number) for number, name in enumerate(REPLICAS)}
        self.former: list[dict[str, Any]] = []
        self.services: dict[str, dict[str, Any]] = {
            name: {"kind": "Service", "metadata": _meta(name), "spec": {"selector": _labels(name)}} for name in REPLICAS
        }
        self.nodes = {name: _node(name) for name in ("node-0", "node-1")}
        self.events: list[dict[str, Any]] = []
        self.quotas: list[dict[str, Any]] = []
        self.limit_ranges: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        self.storage_classes: list[dict[str, Any]] | None = None
        self.namespace: dict[str, Any] = {"metadata": {"name": NAMESPACE}, "status": {"phase": "Active"}}
        renewed = (NOW - timedelta(seconds=3)).isoformat().replace("+00:00", "Z")
        self.lease: dict[str, Any] | None = {
            "metadata": {"name": "tf-operator", "namespace": "kubeflow"},
            "spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 15, "renewTime": renewed},
        }
        self.stale_lease: dict[str, Any] | None = None
        self.deployments: list[dict[str, Any]] = []
        self.peers: list[dict[str, Any]] = []
        self.elsewhere: dict[str, Any] | None = None
        self.operator_pods: list[dict[str, Any]] = []
        self.crd: dict[str, Any] | None = None
        self.workload: dict[str, Any] | None = None
        self.place: dict[str, Any] | None = None
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
        entries = ({"tfReplicaType": "MASTER"}, {"tfReplicaType": "WORKER", "replicas": 2})
        self.job["spec"] = {"replicaSpecs": [each | {"template": template} for each in entries]}
        self.status.pop("replicaStatuses")
        self.status["begun"] = {"generation": 1, "replicas": {"Master": 1, "Worker": 2}}
        self.job["status"] |= {"phase": "Running", "state": "Running", "reason": "", "runtimeId": "x7ab"}
        pods, self.pods, self.services = [*self.pods.values()], {}, {}
        for pod, name in zip(pods, ("master-x7ab-0", "worker-x7ab-0", "worker-x7ab-1"), strict=True):
            kind, _, index = name.split("-")
            labels = {"tf_job_name": JOB, "job_type": kind.upper(), "task_index": index, "runtime_id": "x7ab"}
            pod["metadata"] |= {"name": f"{name}-abcde", "uid": f"uid-{name}-abcde", "labels": labels}
            self.pods[f"{name}-abcde"] = pod
            self.services[name] = {"kind": "Service", "metadata": _meta(name), "spec": {"selector": labels}}
            job = {"kind": "Job", "metadata": _meta(name), "spec": {}, "status": {"startTime": ago(60)}}
            self.batch_jobs[name] = job

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["spec"]
        return found

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["status"]
        return found

    @property
    def workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self.spec["tfReplicaSpecs"]["Worker"]
        return found

    def container(self, name: str = WORKER) -> dict[str, Any]:
        found: dict[str, Any] = self.pods[name]["status"]["containerStatuses"][0]
        return found

    def end(self, kind: str, reason: str, message: str, *, minutes: float = 10) -> None:
        self.status["conditions"] = [
            condition("Created", reason="TFJobCreated"),
            condition("Running", "False", reason, message, minutes),
            condition(kind, "True", reason, message, minutes),
        ]
        self.status["completionTime"] = ago(minutes)

    def event(self, kind: str, name: str, reason: str, message: str, **more: Any) -> None:
        """Add a Warning of three minutes ago; `more` are `type_`, `minutes`, `first` and `count`."""
        uid, minutes = "uid-job" if kind == "TFJob" else f"uid-{name}", more.get("minutes", 3)
        times = {
            "firstTimestamp": ago(more.get("first", minutes + 1)),
            "lastTimestamp": ago(minutes),
            "eventTime": None,
        }
        seen = {"type": more.get("type_", "Warning"), "count": more.get("count", 1), **times}
        made = an_event(name, kind, len(self.events), reason=reason, message=message, **seen)
        made["involvedObject"]["uid"] = uid
        self.events.append(made)

    def job_event(self, reason: str, message: str, **more: Any) -> None:
        self.event("TFJob", JOB, reason, message, **more)

    def pod_event(self, reason: str, message: str, name: str = WORKER, **more: Any) -> None:
        self.event("Pod", name, reason, message, **more)

    def refuse(self, message: str, name: str = WORKER) -> None:
        """Have a replica's pod refused by the API server, in these words."""
        self.pods.pop(name, None)
        self.job_event("FailedCreatePod", f"Error creating: {message}")

    def unscheduled(self, message: str, name: str = WORKER) -> dict[str, Any]:
        """Have a pod without a node, and the scheduler say so."""
        pod = self.pods[name]
        del pod["spec"]["nodeName"]
        why = condition("PodScheduled", "False", "Unschedulable", message)
        pod["status"] = {"phase": "Pending", "conditions": [why]}
        self.pod_event("FailedScheduling", message, name, count=4)
        return pod

    def waiting(self, reason: str, message: str, name: str = WORKER) -> dict[str, Any]:
        self.pods[name]["status"]["phase"] = "Pending"
        self.container(name).update(ready=False, state={"waiting": {"reason": reason, "message": message}})
        return self.pods[name]

    def creating(self, name: str = WORKER, minutes: float = 2) -> dict[str, Any]:
        """Have a pod on its node without a container yet."""
        pod = self.waiting("ContainerCreating", "", name)
        pod["status"]["startTime"] = pod["metadata"]["creationTimestamp"] = ago(minutes)
        return pod

    def exited(
        self,
        code: int,
        reason: str = "Error",
        message: str = "",
        name: str = WORKER,
        *,
        restarts: int = 4,
        log: str = "",
    ) -> None:
        """Have a container in CrashLoopBackOff that ended like this."""
        ended = {"exitCode": code, "reason": reason, "message": message, "startedAt": ago(4), "finishedAt": ago(3)}
        back_off = f"back-off 40s restarting failed container=tensorflow pod={name}_team(uid-{name})"
        waiting = {"reason": "CrashLoopBackOff", "message": back_off}
        last = {"terminated": ended | {"containerID": "containerd://1"}}
        self.container(name).update(ready=False, restartCount=restarts, state={"waiting": waiting}, lastState=last)
        if log:
            self.logs[name, "tensorflow"] = log

    def failed(self, code: int, reason: str = "Error", message: str = "", *, log: str = "") -> None:
        """Let the worker have failed with this exit, and its job with it."""
        self.exited(code, reason, message, restarts=0, log=log)
        self.container().update(state=self.container()["lastState"], lastState={})
        self.pods[WORKER]["status"]["phase"] = "Failed"
        known = "" if reason in {"", "Error"} else f" ({reason})"
        told = f"Pod {WORKER}: container tensorflow exited with code {code}{known}{message and ': '}{message}"
        self.end("Failed", "TFJobFailed", f"TFJob team/mnist has failed because 1 Worker replica(s) failed. {told}")

    def suspend(self, **workload: Any) -> None:
        """Suspend the job; with a Workload if fields of one are given."""
        self.spec["runPolicy"]["suspend"] = True
        self.pods = {}
        self.status["conditions"].append(condition("Suspended", reason="TFJobSuspended"))
        if workload:
            self.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
            spec = {"queueName": "research", "active": workload.pop("active", True)}
            meta = {"name": "tfjob-mnist-1a2b3", "namespace": NAMESPACE}
            self.workload = {"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": meta, "spec": spec, "status": workload}

    def claim(self, phase: str) -> None:
        """Have a claim in that phase, which a worker mounts; the worker has no node yet."""
        unbound = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        pod = self.unscheduled(
            f"{unbound} preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        self.claims.append({"metadata": _meta("data"), "status": {"phase": phase}})

    def gang(self, phase: str, *conditions: dict[str, Any]) -> None:
        self.pod_group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "metadata": {"name": JOB, "namespace": NAMESPACE},
            "spec": {"minMember": 3, "queue": "research"},
            "status": {"phase": phase, "conditions": list(conditions)},
        }

    def evidence(self) -> Evidence:
        """All of it, through JSON, as a client reads it."""

        def read(kind: Any, given: Any) -> Any:
            return None if given is None else msgspec.json.decode(json.dumps(given), type=kind)

        def read_all(kind: Any, given: Any) -> tuple[Any, ...] | None:
            if given is None:
                return None
            return tuple(read(kind, each) for each in (given.values() if isinstance(given, dict) else given))

        for status in (mapping(pod.get("status")) for pod in self.pods.values()):
            if not all(each.get("ready") for each in listed(status.get("containerStatuses"))):
                for each in listed(status.get("conditions")):
                    if isinstance(each, dict) and each.get("type") in {"Ready", "ContainersReady"}:
                        each["status"] = "False"  # as the kubelet writes it
        meta = self.job["metadata"]
        alpha = None
        if self.dialect is not None:
            batch_jobs = read_all(objects.BatchJobDetails, self.batch_jobs)
            alpha = AlphaEvidence(self.dialect, read(AlphaJob, self.job), batch_jobs)
        lists: dict[str, Any] = {name: read_all(kind, getattr(self, name)) for name, kind in LISTS.items()}
        single: dict[str, Any] = {name: read(kind, getattr(self, name)) for name, kind in SINGLE.items()}
        return Evidence(
            alpha=alpha,
            job=read(TFJob, self.job | {"kind": "TFJob"}),
            body=self.job,
            now=NOW,
            created_at=datetime.fromisoformat(meta["creationTimestamp"]),
            finalizers=tuple(meta.get("finalizers", ())),
            suspended_by="",
            last_lines=dict(self.last_lines),
            logs=dict(self.logs),
            forbidden=tuple(self.forbidden),
            absent=tuple(self.absent),
            peers=[*map(read_deployment, self.peers)],
            elsewhere=read_deployment(self.elsewhere) if self.elsewhere is not None else None,
            **lists,
            **single,
        )
