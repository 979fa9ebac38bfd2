"""The life of a job by the SDK kubeflow-training. Some calls of 1.7 have other names: `create_tfjob`, later `create_job`."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kubeflow.training import (  # type: ignore[import-not-found]
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    KubeflowOrgV1TFJob,
    KubeflowOrgV1TFJobSpec,
    TrainingClient,
)
from kubernetes.client import (
    CoreV1Api,
    V1Container,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
)

from hack.matrix.programs import notebook
from hack.matrix.programs.steps import DONE, LIMIT_S, PRINTED, SCRIPT, expect, fails, output_of, step, until, where

NAME: Final = "life"
KIND: Final = "TFJob"


class Sdk:
    """The client, with the calls whose names or arguments differ between 1.7 and later."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.namespace = namespace
        self.is_old = not hasattr(TrainingClient, "create_job")
        self.client: Any = (
            TrainingClient(config_file=kubeconfig)
            if self.is_old
            else TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind=KIND)
        )

    def create(self, job: Any) -> None:
        """Create a job from its model."""
        (self.client.create_tfjob if self.is_old else self.client.create_job)(job, namespace=self.namespace)

    def create_from_function(self, name: str) -> None:
        """Create a job of one worker from a Python function."""
        if self.is_old:
            self.client.create_tfjob_from_func(
                name=name, func=train, base_image="busybox:1.36", namespace=self.namespace, num_worker_replicas=1
            )
        else:
            self.client.create_job(
                name=name, namespace=self.namespace, train_func=train, base_image="busybox:1.36", num_workers=1
            )

    def get(self, name: str) -> Any:
        """Return a job."""
        return (self.client.get_tfjob if self.is_old else self.client.get_job)(name, namespace=self.namespace)

    def list(self) -> Any:
        """Return all jobs of the namespace."""
        return (self.client.list_tfjobs if self.is_old else self.client.list_jobs)(namespace=self.namespace)

    def update(self, job: Any, name: str) -> None:
        """Write a changed job, which the SDK does by a patch."""
        (self.client.patch_tfjob if self.is_old else self.client.update_job)(job, name, namespace=self.namespace)

    def delete(self, name: str) -> None:
        """Delete a job."""
        (self.client.delete_tfjob if self.is_old else self.client.delete_job)(name, namespace=self.namespace)

    def wait(self, name: str, condition: str) -> Any:
        """Wait until a job has a condition, and return it."""
        limit = {"timeout" if self.is_old else "wait_timeout": int(LIMIT_S)}
        return self.client.wait_for_job_conditions(
            name, namespace=self.namespace, expected_conditions={condition}, polling_interval=1, **limit
        )

    def pods(self, **which: Any) -> set[str]:
        """Return the names of the job's pods, of all or of one kind."""
        return set(self.client.get_job_pod_names(NAME, namespace=self.namespace, **which))


def train() -> None:
    """Stand in for a training; the SDK sends the source of this function."""
    print("trained")


def a_job() -> Any:
    """Two workers and a parameter server, which run for ever."""

    def replica(replicas: int) -> Any:
        container = V1Container(name="tensorflow", image="busybox:1.36", command=["sh", "-c", "sleep 5"])
        template = V1PodTemplateSpec(metadata=V1ObjectMeta(annotations=SCRIPT), spec=V1PodSpec(containers=[container]))
        return KubeflowOrgV1ReplicaSpec(replicas=replicas, restart_policy="OnFailure", template=template)

    return KubeflowOrgV1TFJob(
        api_version="kubeflow.org/v1",
        kind=KIND,
        metadata=V1ObjectMeta(name=NAME),
        spec=KubeflowOrgV1TFJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
            tf_replica_specs={"Worker": replica(2), "PS": replica(1)},
        ),
    )


class Life:
    """The steps, in their order."""

    def __init__(self, sdk: Sdk) -> None:
        self._sdk = sdk

    def run(self) -> None:
        """Run the steps; each one reports itself."""
        sdk = self._sdk
        step("create", lambda: sdk.create(a_job()))
        step("get", self._get)
        step("list", self._list)
        step("wait for Running", lambda: sdk.wait(NAME, "Running"))
        step("is_job_created, is_job_running", self._is_running)
        step("get_job_pod_names", self._pod_names)
        step("get_job_logs", self._logs)
        step("update, to scale", self._scale)
        step("end of the workers", self._end_workers)
        step("wait for Succeeded", lambda: sdk.wait(NAME, "Succeeded"))
        step("is_job_succeeded, get_job_conditions", self._is_succeeded)
        step("get_job_logs, to follow", self._followed_logs)
        step("delete", self._delete)
        step("create from a function", self._from_function)

    def _get(self) -> None:
        job = self._sdk.get(NAME)
        expect(job.metadata.name == NAME, "another job")
        expect(job.spec.tf_replica_specs["Worker"].replicas == 2, "not the workers that were asked for")

    def _list(self) -> None:
        names = [job.metadata.name for job in self._sdk.list()]
        expect(names == [NAME], f"jobs: {names}")

    def _is_running(self) -> None:
        client, namespace = self._sdk.client, self._sdk.namespace
        expect(client.is_job_created(NAME, namespace=namespace), "not created")
        expect(client.is_job_running(NAME, namespace=namespace), "not running")
        expect(not client.is_job_restarting(NAME, namespace=namespace), "restarting")

    def _pod_names(self) -> None:
        workers = {f"{NAME}-worker-0", f"{NAME}-worker-1"}
        expect(self._sdk.pods() == {*workers, f"{NAME}-ps-0"}, f"all: {self._sdk.pods()}")
        expect(self._sdk.pods(is_master=True) == {f"{NAME}-worker-0"}, f"master: {self._sdk.pods(is_master=True)}")
        found = self._sdk.pods(replica_type="worker")
        expect(found == workers, f"workers: {found}")
        found = self._sdk.pods(replica_type="worker", replica_index=1)
        expect(found == {f"{NAME}-worker-1"}, f"worker 1: {found}")

    def _logs(self) -> None:
        said = output_of(lambda: self._sdk.client.get_job_logs(NAME, namespace=self._sdk.namespace))
        expect(f"{NAME}-worker-0" in said and PRINTED in said, said)

    def _followed_logs(self) -> None:
        follow = partial(self._sdk.client.get_job_logs, NAME, namespace=self._sdk.namespace, follow=True)
        said = output_of(follow)
        expect(f"{NAME}-worker-0" in said and PRINTED in said, said)

    def _scale(self) -> None:
        job = self._sdk.get(NAME)
        job.metadata.resource_version = None  # the operator may write a status at any time
        job.spec.tf_replica_specs["Worker"].replicas = 3
        self._sdk.update(job, NAME)
        until(lambda: f"{NAME}-worker-2" in self._sdk.pods(replica_type="worker"), "a third worker")

    def _end_workers(self) -> None:
        for name in self._sdk.pods(replica_type="worker"):
            CoreV1Api().patch_namespaced_pod(name, self._sdk.namespace, DONE)

    def _is_succeeded(self) -> None:
        client, namespace = self._sdk.client, self._sdk.namespace
        expect(client.is_job_succeeded(NAME, namespace=namespace), "not succeeded")
        expect(not client.is_job_running(NAME, namespace=namespace), "running")
        expect(not client.is_job_failed(NAME, namespace=namespace), "failed")
        types = [condition.type for condition in client.get_job_conditions(NAME, namespace=namespace)]
        expect(types[-1] == "Succeeded", f"conditions: {types}")

    def _delete(self) -> None:
        self._sdk.delete(NAME)
        fails(lambda: self._sdk.get(NAME))
        until(lambda: not self._sdk.pods(), "the pods are gone")

    def _from_function(self) -> None:
        self._sdk.create_from_function("from-function")
        self._sdk.wait("from-function", "Succeeded")
        self._sdk.delete("from-function")


if __name__ == "__main__":
    cluster = where()
    Life(Sdk(cluster.kubeconfig, cluster.namespace)).run()
    notebook.run_apart(cluster)
