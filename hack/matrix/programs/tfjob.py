"""The life of a job by the SDK kubeflow-tfjob, of the years of tf-operator 1.0."""

from __future__ import annotations

from typing import Any, Final

from kubeflow.tfjob import (  # type: ignore[import-not-found]
    TFJobClient,
    V1ReplicaSpec,
    V1TFJob,
    V1TFJobSpec,
)
from kubernetes.client import (
    CoreV1Api,
    V1Container,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
)

from hack.matrix.programs.steps import DONE, LIMIT_S, PRINTED, SCRIPT, expect, fails, output_of, step, until, where

NAME: Final = "life"


def a_job(namespace: str) -> Any:
    """Two workers and a parameter server, which run for ever; the clean-up policy is in the spec, where it was at that time."""

    def replica(replicas: int) -> Any:
        container = V1Container(name="tensorflow", image="busybox:1.36", command=["sh", "-c", "sleep 5"])
        template = V1PodTemplateSpec(metadata=V1ObjectMeta(annotations=SCRIPT), spec=V1PodSpec(containers=[container]))
        return V1ReplicaSpec(replicas=replicas, restart_policy="OnFailure", template=template)

    return V1TFJob(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=V1ObjectMeta(name=NAME, namespace=namespace),
        spec=V1TFJobSpec(
            clean_pod_policy="None",
            tf_replica_specs={"Worker": replica(2), "PS": replica(1)},
        ),
    )


class Life:
    """The steps, in their order."""

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def run(self) -> None:
        """Run the steps; each one reports itself."""
        client, namespace = self._client, self._namespace
        step("create", lambda: client.create(a_job(namespace)))
        step("get", self._get)
        step("list", self._list)
        step("wait for Running", self._wait_running)
        step("is_job_running, get_job_status", self._is_running)
        step("get_pod_names", self._pod_names)
        step("get_pod_names by replica type", self._pod_names_by_type)
        step("get_pod_names by replica index", self._pod_names_by_index)
        step("get_logs", self._logs)
        step("patch, to scale", self._scale)
        step("end of the workers", self._end_workers)
        step("wait for its end, by a watch", lambda: client.wait_for_job(NAME, namespace, int(LIMIT_S), watch=True))
        step("wait for its end", lambda: client.wait_for_job(NAME, namespace, int(LIMIT_S), polling_interval=1))
        step("is_job_succeeded", self._is_succeeded)
        step("delete", self._delete)

    def _get(self) -> None:
        job = self._client.get(NAME, namespace=self._namespace)
        expect(job["metadata"]["name"] == NAME, "another job")
        expect(job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 2, "not the workers that were asked for")

    def _list(self) -> None:
        names = [job["metadata"]["name"] for job in self._client.get(namespace=self._namespace)["items"]]
        expect(names == [NAME], f"jobs: {names}")

    def _wait_running(self) -> None:
        self._client.wait_for_condition(
            NAME, ["Running"], namespace=self._namespace, timeout_seconds=LIMIT_S, polling_interval=1
        )

    def _is_running(self) -> None:
        expect(self._client.is_job_running(NAME, namespace=self._namespace), "not running")
        expect(self._client.get_job_status(NAME, namespace=self._namespace) == "Running", "not Running")

    def _pods(self, **which: Any) -> set[str]:
        return self._client.get_pod_names(NAME, namespace=self._namespace, **which) or set()

    def _pod_names(self) -> None:
        expected = {f"{NAME}-worker-0", f"{NAME}-worker-1", f"{NAME}-ps-0"}
        expect(self._pods() == expected, f"all: {self._pods()}")
        expect(self._pods(master=True) == {f"{NAME}-worker-0"}, f"master: {self._pods(master=True)}")

    def _pod_names_by_type(self) -> None:
        found = self._pods(replica_type="Worker")
        expect(found == {f"{NAME}-worker-0", f"{NAME}-worker-1"}, f"workers: {found}")

    def _pod_names_by_index(self) -> None:
        found = self._pods(replica_type="Worker", replica_index=1)
        expect(found == {f"{NAME}-worker-1"}, f"worker 1: {found}")

    def _logs(self) -> None:
        said = output_of(lambda: self._client.get_logs(NAME, namespace=self._namespace))
        expect(f"{NAME}-worker-0" in said and PRINTED in said, said)

    def _scale(self) -> None:
        job = a_job(self._namespace)
        job.spec.tf_replica_specs["Worker"].replicas = 3
        self._client.patch(NAME, job, namespace=self._namespace)
        until(lambda: f"{NAME}-worker-2" in self._pods(), "a third worker")

    def _end_workers(self) -> None:
        for name in self._pods():
            if "-worker-" in name:
                CoreV1Api().patch_namespaced_pod(name, self._namespace, DONE)

    def _is_succeeded(self) -> None:
        expect(self._client.is_job_succeeded(NAME, namespace=self._namespace), "not succeeded")
        expect(not self._client.is_job_running(NAME, namespace=self._namespace), "running")

    def _delete(self) -> None:
        self._client.delete(NAME, namespace=self._namespace)
        fails(lambda: self._client.get(NAME, namespace=self._namespace))
        until(lambda: not self._pods(), "the pods are gone")


if __name__ == "__main__":
    cluster = where()
    Life(TFJobClient(config_file=cluster.kubeconfig), cluster.namespace).run()
