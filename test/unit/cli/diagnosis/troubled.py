"""What can be wrong with a job: each trouble that is more than a message, as the smallest change of a healthy one."""

from datetime import datetime, timedelta
from typing import Any

from tfjob_operator.api.v1.constants import LIMITS, EventReason
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.cli.diagnosis.facts import Absent, LastLine
from unit.cli.conftest import operator_deployment
from unit.cli.diagnosis.world import WORKER, World, ago, condition

PREEMPTION = " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


class Troubled(World):
    """A world in which each method, but those with `_`, makes the trouble of its name."""

    def _new(self) -> None:
        self.pods, self.job["status"] = {}, {}

    def _without_operator(self, wanted: int = 2) -> None:
        self._new()
        self.lease, self.absent = None, [Absent("Lease", "tf-operator")]
        self.deployments = [operator_deployment("kubeflow", wanted=wanted)]

    def _lease(self, renewed: str, **more: Any) -> dict[str, Any]:
        assert self.lease is not None
        return self.lease | {"spec": self.lease["spec"] | {"renewTime": f"2026-11-22T{renewed}.123456Z"} | more}

    def _invalid(self, spec: dict[str, Any], words: str = "words of tomorrow") -> None:
        """Fail for a spec, which the plugin validates itself, whatever the words."""
        self.pods, self.job["spec"] = {}, spec
        del self.status["begun"]
        self.end("Failed", "InvalidTFJobSpec", f"TFJob has failed because the spec is invalid: {words}")

    def _unfit(self, name: str, **sizes: int) -> None:
        """Fail for a name and a size."""
        self.job["metadata"]["name"] = name
        self._invalid({"tfReplicaSpecs": {kind: self.workers | {"replicas": size} for kind, size in sizes.items()}})

    def _aside(self, kind: str, reason: str, message: str) -> None:
        """Have a condition that is no state of the job."""
        self.status["conditions"].insert(1, condition(kind, reason=reason, message=message))

    def _held(self, told: str) -> None:
        """After an edit."""
        reason, _, message = told.partition(": ")
        self._aside("Held", reason, message)
        self.job["metadata"]["generation"] = self.status["observedGeneration"] = 2

    def _queued(self, told: str) -> None:
        """Wait for quota, in Kueue's words; with another reason than two the job was evicted."""
        reason, _, message = told.partition(": ")
        is_waiting = reason in {"Pending", "Inadmissible"}
        conditions = [condition("QuotaReserved", "False", reason if is_waiting else "Pending", message)]
        self.suspend(conditions=conditions + ([] if is_waiting else [condition("Evicted", "True", reason, message)]))

    def _checked(self, state: str) -> None:
        check = {"name": "provisioning", "state": state, "message": "no capacity in zone a"}
        reserved = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue shared")
        self.suspend(conditions=[reserved], admissionChecks=[check])

    def _unbound(self, told: str) -> None:
        reason, _, message = told.partition(": ")
        self.claim("Pending")
        self.event(
            "PersistentVolumeClaim", "data", reason, message, type_="Normal" if reason == "FailedBinding" else "Warning"
        )

    def _unmounted(self, message: str) -> None:
        self.creating()
        self.pod_event("FailedMount", message)
        volumes = "unmounted volumes=[data], unattached volumes=[data]"
        late = f"Unable to attach or mount volumes: {volumes}: timed out waiting for the condition"
        self.pod_event("FailedMount", late, minutes=1)

    def _unplaced(self, message: str) -> None:
        self.unscheduled(message + (PREEMPTION if "/2" in message else ""))

    def _gated(self, gate: str) -> None:
        self.unscheduled("Scheduling is blocked due to non-empty scheduling gates")["spec"]["schedulingGates"] = [
            {"name": gate}
        ]
        self.events.clear()

    def scheduling_group_missing(self) -> None:
        pod = self.unscheduled("")
        pod["spec"]["schedulingGroup"] = {"podGroupName": "gang-a"}
        pod["status"] = {"phase": "Pending"}
        self.events.clear()

    def _unpulled(self, error: str) -> None:
        self.waiting("ImagePullBackOff", 'Back-off pulling image "registry.example/train:1"')
        self.pod_event("Failed", f'Failed to pull image "registry.example/train:1": {error}')
        self.pod_event("Failed", "Error: ImagePullBackOff", minutes=1)

    def _unstarted(self, told: str) -> None:
        reason, _, message = told.partition(": ")
        self.waiting(reason, message)

    def _at_deadline(self, failure: dict[str, Any] | None = None) -> None:
        """Let the job end at its active deadline, ten minutes ago; `failure` is what the operator has recorded."""
        self.spec["runPolicy"]["activeDeadlineSeconds"] = 3000
        self.end("Failed", "JobFailed", f"Job mnist has failed because {LIMITS[EventReason.DEADLINE_EXCEEDED].words}")
        self.pods.clear()
        record = {"type": "Failed", "event": "DeadlineExceeded"}
        self.status["begun"]["ending"] = record if failure is None else record | {"failure": failure}

    def _pod_failed(self, reason: str, message: str) -> None:
        status = {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": None}
        self.pods[WORKER]["status"] |= status

    def _lines(self, *minutes: float) -> None:
        for index, each in enumerate(minutes):
            at = datetime.fromisoformat(ago(each)) if each else None
            self.last_lines[f"mnist-worker-{index}"] = LastLine(at, f"step {each:.0f}" if each else "")

    def _written(self, minutes: float, log: str, every_s: float = 1.0) -> None:
        """Let a worker that runs have written its last lines, one each `every_s` seconds, until some minutes ago."""
        lines, at = log.split("\n"), datetime.fromisoformat(ago(minutes))
        times = tuple(at - timedelta(seconds=every_s * number) for number in reversed(range(len(lines))))
        self.last_lines[WORKER] = LastLine(at, lines[-1], log, times=times)

    def _without_device(self) -> None:
        (container,) = self.workers["template"]["spec"]["containers"]
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
        self._written(0.1, "failed call to cuInit: INTERNAL: CUDA error: UNKNOWN ERROR (303)\nepoch 1 loss: 0.4")

    def _out_of_memory_well(self) -> None:
        """Let a shell exit with 0 after the kernel has killed its program."""
        self.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
        self.status["finishedIndices"] = {"Worker": "0-1"}
        self.pods[WORKER]["status"]["phase"] = "Succeeded"
        ended = {"exitCode": 0, "reason": "OOMKilled", "finishedAt": ago(10)}
        self.container(WORKER)["state"] = {"terminated": ended}
        self.logs[WORKER, "tensorflow"] = "step 7\nKilled\nfinished\n"

    def _never_ran(self) -> None:
        """Let a worker give up on another one, whose image does not exist."""
        self.failed(1, log="DeadlineExceededError: Deadline Exceeded")
        self.pod_event("Failed", 'Failed to pull image "train:9": not found', "mnist-worker-0", minutes=12)

    def _without_data(self) -> None:
        self._out_of_memory_well()
        self.container(WORKER)["state"]["terminated"]["reason"] = "Completed"
        self.logs[WORKER, "tensorflow"] = "found 0 files matching gs://data/*\nbye\n"

    def _helper_finished(self) -> None:
        """Let a container beside the training have done its work."""
        status = self.pods[WORKER]["status"]
        ended = {"name": "prefetch", "ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        status["containerStatuses"] = [*status["containerStatuses"], ended]
        words = "containers with unready status: [prefetch]"
        status["conditions"] = [condition("Ready", "False", "ContainersNotReady", words)]

    def _evaluator_failed(self) -> None:
        """Let the job succeed while its Evaluator waits for its next restart; its pod is deleted then."""
        self.spec["tfReplicaSpecs"]["Evaluator"] = self.workers | {"replicas": 1}
        self.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
        self.status["finishedIndices"] = {"Worker": "0-1"}
        self.status["restarts"] = [{"type": "Evaluator", "index": 0, "carried": 4, "pod": "uid-1", "replaced": True}]
        message = "Pod: team.mnist-evaluator-0 exited with code 1: KeyError: 'LR'"
        self.job_event("ExitedWithCode", message, type_="Normal")

    def _alpha_without_pod(self) -> dict[str, Any]:
        """The Job of the worker whose pod is missing."""
        self.alpha()
        del self.pods["worker-x7ab-1-abcde"]
        return self.batch_jobs["worker-x7ab-1"]

    # The operator

    def managed_elsewhere(self, manager: str = "example.com/trainer") -> None:
        self.spec["runPolicy"]["managedBy"] = manager
        self.pods = {}

    def managed_by_multikueue(self) -> None:
        self.managed_elsewhere("kueue.x-k8s.io/multikueue")
        self.suspend(clusterName="west-1")
        self.spec["runPolicy"]["suspend"] = False
        self.status["conditions"].pop()

    def manager_silent(self) -> None:
        self.managed_elsewhere()
        self.status.clear()

    def operator_not_running(self) -> None:
        self.lease = self._lease("11:50:00")
        self.pods, self.deployments = {}, [operator_deployment("kubeflow", readyReplicas=2)]

    def operator_missing(self) -> None:
        """The job keeps its status after an uninstall, and the operator its Lease."""
        self.lease = self.stale_lease = self._lease("09:50:00")
        del self.pods["mnist-worker-0"]

    def operator_not_ready(self) -> None:
        self._without_operator()
        waiting = {
            "waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "tfjob-operator:9.9.9"'}
        }
        status = {"containerStatuses": [{"name": "operator", "state": waiting}]}
        metas = ({"name": f"tf-job-operator-{name}", "namespace": "kubeflow"} for name in ("a", "b"))
        self.operator_pods = [{"metadata": meta, "status": status} for meta in metas]

    def operator_serves_elsewhere(self) -> None:
        """Its Lease is renewed; a job is told at once, not after a minute."""
        self._new()
        own = "--namespace=$(KUBEFLOW_NAMESPACE)"
        self.deployments = [operator_deployment(name, own, wanted=1, readyReplicas=1) for name in ("team-a", "team-b")]

    def end_not_seen(self) -> None:
        """A user who may read neither leases nor Deployments."""
        self.lease = None
        end = {"exitCode": 0, "reason": "Completed", "startedAt": ago(55), "finishedAt": ago(45)}
        status = {"name": "tensorflow", "ready": False, "restartCount": 0, "state": {"terminated": end}}
        self.pods["mnist-worker-0"]["status"] |= {"phase": "Succeeded", "containerStatuses": [status]}

    def _beside(self, wanted: int = 1, ready: int = 1) -> None:
        """Have a training-operator, and the stopped Deployment that a way back has left."""
        self.lease = self._lease("10:50:00")
        self.deployments = [operator_deployment("kubeflow", wanted=0)]
        meta = {"name": "training-operator", "namespace": "kubeflow"}
        self.peers = [{"metadata": meta, "spec": {"replicas": wanted}, "status": {"readyReplicas": ready}}]

    def _foreign(self) -> None:
        """Let training-operator run a type that this operator does not have."""
        self.spec["tfReplicaSpecs"]["Trainer"] = self.spec["tfReplicaSpecs"].pop("Worker")
        del self.status["observedGeneration"], self.status["begun"]
        for name, pod in self.pods.items():
            if "worker" in name:
                pod["metadata"]["labels"]["training.kubeflow.org/replica-type"] = "trainer"

    def two_operators(self) -> None:
        self._beside()
        self.lease = self._lease("11:59:57")
        self.deployments = [operator_deployment("kubeflow", readyReplicas=2)]

    def training_operator_not_running(self) -> None:
        """A plan that has stopped it, and installed nothing. The job has a status."""
        self._beside(wanted=0, ready=0)
        self.lease, self.deployments = None, []

    def training_operator_not_acting(self) -> None:
        """A new namespace, while others are moved."""
        self._new()
        self._beside()
        own = "--namespace=$(KUBEFLOW_NAMESPACE)"
        self.deployments = [operator_deployment("team-a", own, readyReplicas=2)]

    def not_reconciled_yet(self) -> None:
        self._new()
        self.job["metadata"]["creationTimestamp"] = ago(1 / 3)

    def namespace_not_served(self) -> None:
        del self.pods["mnist-worker-0"]
        self.stale_lease = self._lease("10:50:00", holderIdentity="gone")

    def crd_old(self) -> None:
        status = {"properties": {"conditions": {"type": "array"}, "replicaStatuses": {"type": "object"}}}
        schema = {"openAPIV3Schema": {"properties": {"spec": {"type": "object"}, "status": status}}}
        versions = [{"name": "v1", "served": True, "schema": schema}]
        self.crd = {"metadata": {"name": "tfjobs.kubeflow.org"}, "spec": {"versions": versions}}

    # The specification

    def no_replicas(self) -> None:
        for replica in self.spec["tfReplicaSpecs"].values():
            replica["replicas"] = 0
        self.pods = {}

    def run_policy_conflict(self) -> None:
        self.spec["runPolicy"]["backoffLimit"] = 3
        self.spec["backoffLimit"] = 4

    def kueue_replicas_not_counted(self) -> None:
        self.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
        self.spec["tfReplicaSpecs"]["ps"] = self.spec["tfReplicaSpecs"].pop("PS")

    def no_workers_to_scale(self) -> None:
        self.spec["tfReplicaSpecs"] |= {"Chief": self.workers | {"replicas": 1}, "Worker": {"replicas": 5}}
        pod = self.pods["mnist-worker-0"]
        pod["metadata"]["name"] = "mnist-chief-0"
        self.pods = {"mnist-ps-0": self.pods["mnist-ps-0"], "mnist-chief-0": pod}
        self.services["mnist-chief-0"] = self.services["mnist-worker-0"] | {"metadata": {"name": "mnist-chief-0"}}

    def tf_config_equal(self) -> None:
        container = self.workers["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "TF_CONFIG", "value": "{}"}]

    def script_arguments_ignored(self) -> None:
        self.workers["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "python3", "/opt/train.py"]

    def only_parameter_servers(self) -> None:
        del self.spec["tfReplicaSpecs"]["Worker"]
        self.pods = {name: pod for name, pod in self.pods.items() if "-ps-" in name}

    def nothing_trains(self) -> None:
        self.workers["replicas"] = 0
        self.pods = {name: pod for name, pod in self.pods.items() if "-ps-" in name}

    def restart_policy_overridden(self) -> None:
        self.workers["restartPolicy"] = "OnFailure"
        self.workers["template"]["spec"]["restartPolicy"] = "Always"

    def kueue_absent(self) -> None:
        self.suspend(conditions=[])
        self.workload = None

    # Gangs

    def pod_groups_unavailable(self) -> None:
        self.pods = {}
        words = "Waiting for PodGroups of volcano before creating pods: GET podgroups: 404 Not Found"
        self.job_event("PodGroupsUnavailable", words)

    def pod_group_refused(self) -> None:
        self.pods = {}
        denied = 'admission webhook "validatepodgroup.volcano.sh" denied the request: queue research is closed'
        self.job_event("FailedCreatePodGroup", f"Error creating: {denied}")

    def gang_too_few_pods(self) -> None:
        siblings = "cannot find enough sibling pods, current pods number: 1, minMember of group: 3"
        self.unscheduled(f"pre-filter pod mnist-worker-1 {siblings}")
        self.gang("Scheduling")

    def gang_no_room(self) -> None:
        words = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"
        self.unscheduled(f"{words}; Pending: 3 Unschedulable")
        self.gang("Inqueue", condition("Unschedulable", "True", "NotEnoughResources", words))

    def gang_queued(self) -> None:
        self.pods = {}
        self.gang("Pending")

    def gang_scheduler_missing(self) -> None:
        self.pods = {}
        self.gang("")

    def gang_other_scheduler(self) -> None:
        words = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
        self.job_event("SettedPodTemplateSchedulerName", words)

    # Storage and scheduling

    def claim_missing(self) -> None:
        pod = self.unscheduled(f'0/2 nodes are available: persistentvolumeclaim "data" not found.{PREEMPTION}')
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]

    def preempting(self) -> None:
        terminating = "not eligible due to a terminating pod on the nominated node."
        pod = self.unscheduled(f"0/2 nodes are available: 2 Insufficient cpu. preemption: {terminating}")
        pod["status"]["nominatedNodeName"] = "node-1"

    def scheduler_missing(self) -> None:
        pod = self.unscheduled("")
        pod["spec"]["schedulerName"] = "volcanoo"
        pod["status"] = {"phase": "Pending"}
        self.events.clear()

    # Images and starting

    def image_pull_secret_missing(self) -> None:
        self.creating()
        secrets = "Unable to retrieve some image pull secrets (registry-key)"
        self.pod_event("FailedToRetrieveImagePullSecret", f"{secrets}; attempting to pull the image may not succeed.")

    def image_slow(self) -> None:
        self.creating(minutes=20)
        self.pod_event("Pulling", 'Pulling image "registry.example/train:1"', type_="Normal", minutes=19)

    def sandbox_failed(self) -> None:
        self.creating()
        network = 'failed to setup network for sandbox "1": plugin type="calico" failed (add): error getting ClusterInformation'
        words = f"Failed to create pod sandbox: rpc error: code = Unknown desc = {network}"
        self.pod_event("FailedCreatePodSandBox", words)

    def rejected_by_node(self) -> None:
        why = "Node didn't have enough resource: cpu, requested: 2000, used: 7000, capacity: 8000"
        self.pods[WORKER]["status"] = {"phase": "Failed", "reason": "OutOfcpu", "message": f"Pod was rejected: {why}"}

    def init_container_runs(self) -> None:
        self._initializing(29)

    def _initializing(self, minutes: float) -> None:
        pod = self.creating(minutes=minutes + 1)
        pod["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
        pod["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"running": {"startedAt": ago(minutes)}}}]
        self.container()["state"]["waiting"]["reason"] = "PodInitializing"

    def _server_ended(self) -> None:
        self.status["finishedIndices"] = {"PS": "0"}
        self.pods["mnist-ps-0"]["status"]["phase"] = "Succeeded"
        over = {"exitCode": 0, "reason": "Completed", "finishedAt": ago(2)}
        self.container("mnist-ps-0").update(ready=False, state={"terminated": over})

    def _refused(self, error: str) -> None:
        """Have the API server refuse the status since the last write."""
        words = "The API server refuses to store the status. Running pods continue, and none is created or deleted meanwhile"
        self.job_event("StatusRefused", f"{words}: {error}")

    # Failing

    def liveness_probe(self) -> None:
        self.exited(137)
        self.pod_event("Killing", "Container tensorflow failed liveness probe, will be restarted", type_="Normal")

    def init_container_failed(self) -> None:
        pod = self.creating()
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": ago(1)}
        status = {"name": "fetch", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        pod["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
        pod["status"]["initContainerStatuses"] = [status | {"lastState": {"terminated": ended}}]

    def backoff_limit(self) -> None:
        self.pods = {}
        last = "last, container tensorflow exited with code 1: ValueError: no data"
        most = f"Pod mnist-worker-1 was restarted most, 4 times; {last}"
        self.end(
            "Failed", "JobFailed", f"Job mnist has failed because it has reached the specified backoff limit. {most}"
        )

    def restarts_for_ever(self) -> None:
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": ago(59)}
        self.container().update(restartCount=12, lastState={"terminated": ended})

    def restarted_after_success(self) -> None:
        self.pods[WORKER]["spec"]["restartPolicy"] = "Always"
        ended = {"exitCode": 0, "reason": "Completed", "finishedAt": ago(1)}
        self.container().update(restartCount=12, lastState={"terminated": ended})

    def was_restarted(self) -> None:
        self.status["restarts"] = [{"type": "Worker", "index": 1, "carried": 1, "pod": "uid-mnist-worker-1"}]
        self.job_event("ExitedWithCode", "Pod: team.mnist-worker-1 exited with code 137", type_="Normal")

    def pod_template_not_applied(self) -> None:
        words = "Worker: existing pods keep their old template, restart policy and TF_CONFIG."
        self.job_event("PodTemplateNotApplied", words)

    # On the way

    def deadline_exceeded(self) -> None:
        self.pods = {}
        self.spec["runPolicy"]["activeDeadlineSeconds"] = 3000
        self.end("Failed", "JobFailed", "Job mnist has failed because it was active longer than specified deadline")

    def node_not_ready(self) -> None:
        words = "Kubelet stopped posting node status."
        self.nodes["node-1"]["status"]["conditions"] = [condition("Ready", "Unknown", "NodeStatusUnknown", words)]

    def disrupted(self) -> None:
        target = condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")
        self.pods[WORKER]["status"]["conditions"].append(target)

    def replicas_restarting(self) -> None:
        del self.pods[WORKER]
        words = "TFJob mnist is restarting because Worker replica(s) failed."
        self.status["conditions"][-1] = condition("Restarting", reason="TFJobRestarting", message=words)
        self.job_event("ExitedWithCode", "Pod: team.mnist-worker-1 exited with code 143", type_="Normal")

    def backoff_limit_near(self) -> None:
        self.spec["runPolicy"]["backoffLimit"] = 3
        self.status["restarts"] = [{"type": "PS", "index": 0, "carried": 3, "pod": "uid-mnist-ps-0"}]

    def succeeded_without_others(self) -> None:
        self.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
        self.status["replicaStatuses"] = {"PS": {"succeeded": 1}, "Worker": {"succeeded": 2}}
        self.status["finishedIndices"] = {"Worker": "0"}

    def succeeded_after_probe(self) -> None:
        self.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
        self.status["replicaStatuses"] = {"PS": {"succeeded": 1}, "Worker": {"succeeded": 2}}
        self.status["finishedIndices"] = {"Worker": "0-1", "PS": "0"}
        ended = {"exitCode": 0, "reason": "Completed", "finishedAt": ago(3)}
        for name, pod in self.pods.items():
            pod["status"]["phase"] = "Succeeded"
            self.container(name)["state"] = {"terminated": ended}
        self.pod_event("Unhealthy", "Liveness probe failed: cat: /tmp/heartbeat: No such file or directory")
        self.pod_event("Killing", "Stopping container tensorflow", type_="Normal")

    def succeeded_with_exception(self) -> None:
        """As `python train.py | tee log` does."""
        self.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.")
        self.status["replicaStatuses"] = {"PS": {"succeeded": 1}, "Worker": {"succeeded": 2}}
        self.status["finishedIndices"] = {"Worker": "0-1", "PS": "0"}
        self.pods["mnist-worker-0"]["status"]["phase"] = "Succeeded"
        over = {"exitCode": 0, "reason": "Completed", "finishedAt": ago(10)}
        self.container("mnist-worker-0")["state"] = {"terminated": over}
        traceback = (
            'Traceback (most recent call last):\n  File "/train.py", line 3, in <module>\nValueError: bad batch size'
        )
        self.logs["mnist-worker-0", "tensorflow"] = f"step 1\n{traceback}\n"

    def ending(self) -> None:
        """The other worker is being deleted."""
        message = "TFJob team/mnist successfully completed."
        self.status["begun"]["ending"] = {"type": "Succeeded", "message": message, "time": ago(0.2)}
        del self.pods["mnist-ps-0"]
        self.pods["mnist-worker-0"]["status"]["phase"] = "Succeeded"
        self.pods[WORKER]["metadata"]["deletionTimestamp"] = ago(-0.3)

    def completion_waits_for_workers(self) -> None:
        """Worker 0 decides."""
        self.spec["runPolicy"]["completionGracePeriodSeconds"] = 300
        self.status["finishedIndices"] = {"Worker": "0"}
        over = {"exitCode": 0, "reason": "Completed", "startedAt": ago(59), "finishedAt": ago(1)}
        self.pods["mnist-worker-0"]["status"]["phase"] = "Succeeded"
        self.container("mnist-worker-0").update(ready=False, state={"terminated": over})

    def sidecar_after_training(self) -> None:
        self.end("Succeeded", "TFJobSucceeded", "TFJob team/mnist successfully completed.", minutes=0.2)
        pod = self.pods[WORKER]
        pod["spec"]["containers"].append({"name": "collector", "image": "registry.example/collect:1"})
        pod["status"]["containerStatuses"].append({"name": "collector", "state": {"running": {"startedAt": ago(59)}}})
        self.container().update(ready=False, state={"terminated": {"exitCode": 0, "reason": "Completed"}})

    # The alpha dialect

    def alpha_not_served(self) -> None:
        self.alpha(TENSORFLOW)
        self._new()
        self.batch_jobs, self.services = {}, {}

    def chief_missing(self) -> None:
        self.alpha()
        del self.spec["replicaSpecs"][0]
        words = "invalid job spec: spec.terminationPolicy: Missing ReplicaSpec for chief: MASTER"
        self.end("Failed", "InvalidTFJobSpec", words)
        self.status["phase"] = "Failed"
        self.pods, self.batch_jobs = {}, {}

    def restart_policy_always(self) -> None:
        self.alpha()
        self.spec["replicaSpecs"][1]["template"]["spec"]["restartPolicy"] = "Always"

    def batch_job_failed(self) -> None:
        words = "Job was active longer than specified deadline"
        failed = condition("Failed", reason="DeadlineExceeded", message=words)
        self._alpha_without_pod()["status"]["conditions"] = [failed]

    # Quoted

    def waits_for_terminating_pod(self) -> None:
        pod = self.pods.pop(WORKER)
        pod["metadata"] |= {"deletionTimestamp": ago(-5), "deletionGracePeriodSeconds": 600, "uid": "uid-former"}
        pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "600"]}}}
        self.former = [pod]

    def pod_status(self) -> None:
        status = {"reason": "AppArmor", "message": "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
        self.creating()["status"] |= status

    def startup_failed(self) -> None:
        self.exited(137)
        self.pod_event("FailedPostStartHook", "PostStartHook failed: command 'curl x' exited with 7")

    def sidecar_failed(self) -> None:
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": ago(3)}}
        status = {"name": "loader", "ready": False, "restartCount": 0, "state": ended}
        self.pods[WORKER]["status"]["containerStatuses"].append(status)
        self.logs[WORKER, "loader"] = "reading\nKeyError: 'bucket'"

    def pod_warning(self) -> None:
        for name in ("mnist-worker-0", WORKER):
            self.container(name)["ready"] = False
            self.pod_event("Unhealthy", "Readiness probe failed: dial tcp 10.0.0.7:2222: connect: refused", name)

    def replica_not_ready(self) -> None:
        self.container(WORKER)["ready"] = False

    def pods_recreated(self) -> None:
        del self.pods[WORKER]
        self.workers["template"]["spec"]["nodeName"] = "gpu-node-7"
        self.job_event("SuccessfulCreatePod", "Created pod: mnist-worker-1", type_="Normal", count=9)

    def _ruled(self, restart_policy: str, *actions: str, **matcher: Any) -> None:
        rules = [{"name": f"rule{number}", "action": each} | matcher for number, each in enumerate(actions)]
        self.spec["runPolicy"]["failurePolicy"] = {"rules": rules}
        for entry in self.spec["tfReplicaSpecs"].values():
            entry["restartPolicy"] = restart_policy

    def rule_misspelled(self) -> None:
        self._ruled("Never", "FailJob")
        self.spec["runPolicy"]["failurePolicy"]["rules"][0]["onExitCode"] = {"operator": "In", "values": [2]}
        self.status["attemptHistory"] = [{"number": 0, "rule": "rule0", "action": "FailJob"}]
        self.end(
            "Failed", "PodFailurePolicy", f"TFJob team/mnist has failed by rule rule0: pod {WORKER}: {self._CRASH}"
        )

    def _restarted_all(self, attempt: int = 1, **more: Any) -> None:
        """Restart the whole job, in the status alone."""
        over = {
            "number": attempt - 1, "startTime": ago(60), "endTime": ago(0.5), "rule": "badGpu", "action": "RestartAll",
            "replicaType": "Worker", "replicaIndex": 1, "nodeName": "node-0", "exitCode": 42, "message": "CUDA error",
        }  # fmt: skip
        self.status.update(attempt=attempt, countedRestarts=attempt, attemptHistory=[over], **more)
        why = f"TFJob mnist restarts as attempt {attempt} because of rule badGpu: pod {WORKER}: {self._CRASH}"
        self.status["conditions"][-1] = condition("Restarting", reason="TFJobRestarting", message=why, minutes=0.5)

    _CRASH = "container tensorflow exited with code 42: CUDA error"

    def escalation_near(self) -> None:
        self._ruled("Never", "RestartReplica")
        policy = self.spec["runPolicy"]["failurePolicy"]
        policy["maxRestarts"] = 3
        policy["rules"][0]["escalation"] = {"afterSeconds": 120, "action": "RestartAll"}
        restarted = {"type": "Worker", "index": 1, "carried": 1, "pod": "uid-former", "rule": "rule0"}
        self.status["restarts"] = [restarted | {"failedAt": ago(1)}]
        self.unscheduled("")
        self.pods[WORKER]["metadata"]["creationTimestamp"] = ago(0.5)
        self.pods[WORKER]["status"] = {"phase": "Pending"}
        self.events.clear()

    def attempt_waits_for_pods(self) -> None:
        self._restarted_all()
        self.pods = {WORKER: self.pods[WORKER]}
        self.pods[WORKER]["metadata"] |= {"deletionTimestamp": ago(0), "deletionGracePeriodSeconds": 30}

    def restart_delayed(self) -> None:
        self._restarted_all(2, nextRestartTime=ago(-40 / 60))
        del self.status["attemptHistory"][0]["exitCode"]
        self.pods = {}

    def nodes_avoided(self) -> None:
        avoided = [{"name": "node-0", "failures": 1, "expirationTime": ago(-55)}, {"name": "node-1", "failures": 1}]
        self._restarted_all(avoidedNodes=avoided)
        self.pods[WORKER]["metadata"]["labels"]["training.kubeflow.org/restart-attempt"] = "1"
        self.unscheduled("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
        for name in ("mnist-ps-0", "mnist-worker-0"):
            self.pods[name]["metadata"]["labels"]["training.kubeflow.org/restart-attempt"] = "1"
