"""The jobs, pods and services of earlier operators, by their source code.

Names of children are the same as today; labels, owner references and the form of the status differ.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from hack.objects import an_object, owned_by
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import child_name

STAMP: Final = "2024-05-01T10:00:00Z"


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An operator, and the form of what it wrote.

    jobs, role: the names of its labels for these.
    replica: the prefix of two more labels.
    version: of its API, as in its owner references.
    group: labels that all its children have.
    nests_policies: whether it read policies in `spec.runPolicy` instead of `spec`, and has the namespace in its messages.
    stores_defaults: whether it wrote whole objects, with its defaults and Go's empty fields, and counted pods in
        `tfReplicaStatuses`.
    watched: whether its children have the label that this operator's watch selects; it counted them by a selector.
    """

    name: str
    version: str
    group: dict[str, str]
    jobs: tuple[str, ...]
    replica: str = "tf-replica"
    role: str = ""
    nests_policies: bool = False
    stores_defaults: bool = False
    watched: bool = False

    @property
    def counters(self) -> str:
        return "tfReplicaStatuses" if self.stores_defaults else "replicaStatuses"

    def __str__(self) -> str:
        return self.name

    def labels(self, job: str, kind: str, index: int, *, master: bool = False) -> dict[str, str]:
        numbered = {f"{self.replica}-type": kind.lower(), f"{self.replica}-index": str(index)}
        found = self.group | dict.fromkeys(self.jobs, job) | numbered
        return found | ({self.role: "master"} if master and self.role else {})

    @property
    def resource(self) -> Resource:
        return replace(TFJOBS, version=self.version)

    def child(self, job: str, uid: str, kind: str, index: int, *, master: bool = False) -> dict[str, Any]:
        labels = self.labels(job, kind, index, master=master)
        return {"name": child_name(job, kind, index), "labels": labels, **owned_by(job, uid, self.resource)}

    def pod(self, job: str, uid: str, kind: str, index: int, replica: dict[str, Any], *, master: bool = False) -> Any:
        """Return a replica's pod. A replica without a policy had Never, whatever its template says."""
        template = replica["template"]
        policy = replica.get("restartPolicy", "Never")
        meta = self.child(job, uid, kind, index, master=master)
        own = template.get("metadata", {})
        environment = {"name": "TF_CONFIG", "value": f'{{"task":{{"type":"{kind.lower()}","index":{index}}}}}'}
        containers = [each | {"env": [environment]} for each in template["spec"]["containers"]]
        changed = {"restartPolicy": "Never" if policy == "ExitCode" else policy, "containers": containers}
        meta = {**own, **meta, "labels": own.get("labels", {}) | meta["labels"]}
        return an_object(PODS, meta["name"], template["spec"] | changed, **meta)

    def service(self, job: str, uid: str, kind: str, index: int) -> dict[str, Any]:
        meta, ports = self.child(job, uid, kind, index), [{"name": "tfjob-port", "port": 2222}]
        spec = {"clusterIP": "None", "selector": self.labels(job, kind, index), "ports": ports}
        return an_object(SERVICES, meta["name"], spec, **meta)

    def job(self, name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        return an_object(self.resource, name, spec, status)

    def spec(self, replicas: dict[str, Any], **policies: Any) -> dict[str, Any]:
        if self.stores_defaults:
            policies = {"cleanPodPolicy": "Running"} | policies
            replicas = {kind: _as_go_stores(each) for kind, each in replicas.items()}
        policy = {"runPolicy": policies} if self.nests_policies else policies
        return {"tfReplicaSpecs": replicas, **policy}

    def created(self, name: str) -> dict[str, Any]:
        """Return the status of a job without children. Most operators wrote null for a missing map."""
        status: dict[str, Any] = {"conditions": [condition("Created", f"TFJob {name} is created.")]}
        return status if self.watched else status | {self.counters: None}

    def running(self, namespace: str, name: str, **active: int) -> dict[str, Any]:
        who = f"{namespace}/{name}" if self.nests_policies else name
        return {
            "conditions": [
                condition("Created", f"TFJob {name} is created."),
                condition("Running", f"TFJob {who} is running."),
            ],
            self.counters: {kind: self._count(name, kind, active=count) for kind, count in active.items()},
            "startTime": STAMP,
            "lastReconcileTime": STAMP,
        }

    def ended(self, namespace: str, name: str, end: str = "Succeeded", *, at: str = STAMP, **succeeded: int) -> Any:
        status = self.running(namespace, name)
        created, runs = status["conditions"]
        last = condition(end, f"TFJob {name} successfully completed.", at=at)
        return status | {
            "conditions": [created, runs | {"status": "False"}, last],
            self.counters: {kind: self._count(name, kind, succeeded=count) for kind, count in succeeded.items()},
            "completionTime": at,
        }

    def _count(self, name: str, kind: str, **counts: int) -> dict[str, Any]:
        if not self.watched:
            return dict(counts)
        labels = dict.fromkeys(self.jobs, name) | self.group | {f"{self.replica}-type": kind.lower()}
        return counts | {"selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items()))}


def _as_go_stores(replica: dict[str, Any]) -> dict[str, Any]:
    """Return a replica with defaults, and with Go's representation of empty fields."""
    template = replica["template"]
    containers = [
        each | {"resources": {}, "ports": [{"name": "tfjob-port", "containerPort": 2222}]}
        for each in template["spec"]["containers"]
    ]
    meta = template.get("metadata", {}) | {"creationTimestamp": None}
    whole = {"metadata": meta, "spec": template["spec"] | {"containers": containers}}
    return {"replicas": 1, "restartPolicy": "Never"} | replica | {"template": whole}


def condition(kind: str, message: str, *, at: str = STAMP) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": f"TFJob{kind}",
        "message": message,
        "lastUpdateTime": at,
        "lastTransitionTime": at,
    }


_PREFIX: Final = "training.kubeflow.org/"
_GROUP: Final = {"group-name": "kubeflow.org"}
# The branch from which the image of Kubeflow 1.1 was built; the release is from another year.
_BRANCH: Final = _GROUP | {"controller-name": "tf-operator"}
_TRAINING: Final = {f"{_PREFIX}operator-name": "tfjob-controller"}
PREDECESSORS: Final = (
    Predecessor("tf-operator-0.3", "v1alpha2", {"group_name": "kubeflow.org"}, ("tf_job_name",), stores_defaults=True),
    Predecessor("tf-operator-0.5", "v1beta2", _GROUP, ("tf-job-name",), role="tf-job-role"),
    Predecessor("tf-operator-1.0", "v1", _GROUP, ("tf-job-name",), role="tf-job-role"),
    Predecessor("tf-operator-1.1-branch", "v1", _BRANCH, ("job-name", "tf-job-name"), role="job-role"),
    Predecessor("tf-operator-1.1.0", "v1", _GROUP, ("job-name",), "replica", "job-role", nests_policies=True),
    Predecessor(
        "training-operator-1.9",
        "v1",
        _TRAINING,
        (f"{_PREFIX}job-name",),
        f"{_PREFIX}replica",
        f"{_PREFIX}job-role",
        nests_policies=True,
        watched=True,
    ),
)


class Alpha:
    """tf-operator 0.3 on kubeflow.org/v1alpha1: its own pods, and no conditions."""

    RESOURCE: Final = replace(TFJOBS, version="v1alpha1")

    @staticmethod
    def labels(job: str, runtime_id: str, kind: str, index: int) -> dict[str, str]:
        return {
            "kubeflow.org": "",
            "job_type": kind,
            "runtime_id": runtime_id,
            "tf_job_name": job,
            "task_index": str(index),
        }

    @classmethod
    def child(cls, job: str, uid: str, runtime_id: str, kind: str, index: int) -> dict[str, Any]:
        labels = cls.labels(job, runtime_id, kind, index)
        name = f"{job[:40]}-{kind.lower()}-{runtime_id}-{index}"
        return {"name": name, "labels": labels, **owned_by(job, uid, cls.RESOURCE)}

    @classmethod
    def pod(cls, meta: dict[str, Any], template: dict[str, Any]) -> Any:
        """Return a replica's pod; `meta` is the result of `child`."""
        own = {"name": f"{meta['name']}-x7k2q", "annotations": template.get("metadata", {}).get("annotations", {})}
        return an_object(PODS, own["name"], template["spec"], **meta | own)

    @classmethod
    def service(cls, job: str, uid: str, runtime_id: str, kind: str, index: int) -> dict[str, Any]:
        meta, ports = cls.child(job, uid, runtime_id, kind, index), [{"name": "tf-port", "port": 2222}]
        spec = {"clusterIP": "None", "selector": cls.labels(job, runtime_id, kind, index), "ports": ports}
        return an_object(SERVICES, meta["name"], spec, **meta)

    @staticmethod
    def status(phase: str, state: str, *kinds: str) -> dict[str, Any]:
        listed = [{"tf_replica_type": kind, "state": state, "ReplicasStates": {state: 1}} for kind in kinds]
        return {"phase": phase, "reason": "", "state": state, "replicaStatuses": listed}
