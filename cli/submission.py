"""Builds the job of `submit` from its options, and from a file if given. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from tfjob_operator.api.v1.constants import CHIEF, CONTAINER_NAME, EVALUATOR, LABEL_QUEUE, PS, WORKER

GPU: Final = "nvidia.com/gpu"
USER: Final = 1000
"""The user of restricted containers: that of most images is root, which the kubelet does not start then."""
_OF_SERVER: Final = ("creationTimestamp", "generateName", "generation", "managedFields", "resourceVersion", "uid")
"""Metadata that a new job must not have."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A claim and its mount path."""

    claim: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """The options of `submit`. None or an empty value means not given. `policy` has the given fields of `spec.runPolicy`."""

    name: str
    image: str = ""
    command: Sequence[str] = ()
    workers: int | None = None
    ps: int | None = None
    chief: bool = False
    evaluator: bool = False
    gpus: int | None = None
    cpu: str = ""
    memory: str = ""
    mounts: Sequence[Mount] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    env_from_secrets: Sequence[str] = ()
    image_pull_secrets: Sequence[str] = ()
    tolerations: Sequence[Mapping[str, str]] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    restart_policy: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    restricted: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def job_of(asked: Submission, namespace: str = "", base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the job with fields in the usual order. Options override values of `base`, and extend its lists."""
    base = base or {}
    labels = {**asked.labels, **({LABEL_QUEUE: asked.queue} if asked.queue else {})}
    policy = {**asked.policy, **({"suspend": True} if asked.queue else {})}  # Kueue resumes it when it is admitted
    given: Any = base.get("metadata")
    meta: dict[str, Any] = {"name": asked.name, **({"namespace": namespace} if namespace else {})}
    meta = {**{key: value for key, value in _dict(given).items() if key not in _OF_SERVER}, **meta}
    if labels:
        meta["labels"] = _dict(meta.get("labels")) | labels
    spec = deepcopy(_dict(base.get("spec")))
    if policy:
        spec = {"runPolicy": _dict(spec.get("runPolicy")) | policy} | {
            key: value for key, value in spec.items() if key != "runPolicy"
        }
    spec["tfReplicaSpecs"] = entries = _dict(spec.get("tfReplicaSpecs"))
    for kind, size in _sizes(asked, entries):
        _resize(entries, kind, size)
    for kind, entry in entries.items():
        entries[kind] = _replicas(asked, _dict(entry), is_server=kind.lower() == PS.lower())
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": spec}


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _sizes(asked: Submission, entries: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    workers = asked.workers
    if workers is None and not entries and not asked.chief:
        workers = 1
    given = (
        (CHIEF, int(asked.chief) or None),
        (PS, asked.ps),
        (WORKER, workers),
        (EVALUATOR, int(asked.evaluator) or None),
    )
    return [(kind, size) for kind, size in given if size is not None]


def _resize(entries: dict[str, Any], kind: str, size: int) -> None:
    """Set the number of replicas of a type; a new type gets the first type's template."""
    key = next((entry for entry in entries if entry.lower() == kind.lower()), kind)
    first: Any = next(iter(entries.values()), {})
    if not size:
        entries.pop(key, None)
    else:
        template = _dict(entries.get(key, {"template": deepcopy(_dict(first).get("template"))}))
        entries[key] = {"replicas": size} | {name: value for name, value in template.items() if name != "replicas"}


def _replicas(asked: Submission, entry: dict[str, Any], *, is_server: bool) -> dict[str, Any]:
    template = _dict(entry.pop("template", None))
    pod = _dict(template.get("spec"))
    containers = list(pod.get("containers") or ())
    names = _volumes(asked.mounts, pod)
    place = next((place for place, each in enumerate(containers) if each.get("name") == CONTAINER_NAME), None)
    if place is not None:
        containers[place] = _container(asked, containers[place], names, with_gpus=not is_server)
    elif not containers:  # a manifest whose containers have other names is invalid, and is not corrected
        containers = [_container(asked, {"name": CONTAINER_NAME}, names, with_gpus=not is_server)]
    pod["containers"] = containers
    if asked.restricted:
        _restrict(pod)
    if asked.mounts:
        pod["volumes"] = [
            *(pod.get("volumes") or ()),
            *(
                {"name": name, "persistentVolumeClaim": {"claimName": each.claim}}
                for name, each in zip(names, asked.mounts, strict=True)
            ),
        ]
    if asked.priority_class:
        pod["priorityClassName"] = asked.priority_class
    if asked.node_selector:
        pod["nodeSelector"] = {**_dict(pod.get("nodeSelector")), **asked.node_selector}
    for key, more in (
        ("tolerations", [dict(toleration) for toleration in asked.tolerations]),
        ("imagePullSecrets", [{"name": secret} for secret in asked.image_pull_secrets]),
    ):
        if more:
            pod[key] = [*(pod.get(key) or ()), *more]
    restart = {"restartPolicy": asked.restart_policy} if asked.restart_policy else {}
    return entry | restart | {"template": template | {"spec": pod}}


def _restrict(pod: dict[str, Any]) -> None:
    """Set what the Pod Security Standard `restricted` requires; keep a user and a seccomp profile that are set."""
    usual = {"runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}}
    pod["securityContext"] = usual | _dict(pod.get("securityContext")) | {"runAsNonRoot": True}
    required = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for key in ("containers", "initContainers"):
        if key in pod:
            pod[key] = [
                each | {"securityContext": _dict(each.get("securityContext")) | required} for each in pod[key] or ()
            ]


def _volumes(mounts: Sequence[Mount], pod: Mapping[str, Any]) -> list[str]:
    """Return a name for the volume of each mount; the pod has no volume of that name yet."""
    taken = {volume.get("name") for volume in pod.get("volumes") or ()}
    free = [name for number in range(len(mounts) + len(taken)) if (name := f"volume-{number}") not in taken]
    return free[: len(mounts)]


def _container(
    asked: Submission, base: Mapping[str, Any], volumes: Sequence[str], *, with_gpus: bool
) -> dict[str, Any]:
    container = dict(base)
    container |= {"image": asked.image} if asked.image else {}
    if asked.command:
        container.pop("args", None)
        container["command"] = list(asked.command)
    if asked.env:
        kept = [variable for variable in container.get("env") or () if variable.get("name") not in asked.env]
        container["env"] = [*kept, *({"name": name, "value": value} for name, value in asked.env.items())]
    if asked.env_from_secrets:
        secrets = ({"secretRef": {"name": secret}} for secret in asked.env_from_secrets)
        container["envFrom"] = [*(container.get("envFrom") or ()), *secrets]
    requests = {name: value for name, value in (("cpu", asked.cpu), ("memory", asked.memory)) if value}
    limits: dict[str, Any] = {"memory": asked.memory} if asked.memory else {}
    if asked.gpus and with_gpus:
        limits[GPU] = asked.gpus  # extended resources are requested by their limit
    resources = _dict(container.get("resources"))
    for key, values in (("requests", requests), ("limits", limits)):
        if values:
            resources[key] = _dict(resources.get(key)) | values
    if resources:
        container["resources"] = resources
    if volumes:
        mounts = (
            {"name": name, "mountPath": each.path, **({"readOnly": True} if each.read_only else {})}
            for name, each in zip(volumes, asked.mounts, strict=True)
        )
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]
    return container
