"""Pods that fit on no node, for each reason and several together; and the messages of real schedulers."""

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Case:
    """A pod, the nodes as in a nodes file, the names of cordoned ones, and the pods on them."""

    nodes: str
    pod: dict[str, Any]
    cordoned: tuple[str, ...] = ()
    running: dict[str, dict[str, Any]] = field(default_factory=dict)


def asks(**resources: str) -> dict[str, Any]:
    """Return a pod spec with these requests; `nvidia_gpu` is `nvidia.com/gpu`."""
    named = {name.replace("nvidia_", "nvidia.com/").replace("_", "-"): text for name, text in resources.items()}
    return {"containers": [{"name": "main", "image": "img", "resources": {"requests": named, "limits": named}}]}


def affinity(operator: str, *values: str, key: str = "pool") -> dict[str, Any]:
    """Return a pod spec that requires a node with such a label."""
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**asks(), "affinity": {"nodeAffinity": required}}


def _selects(pool: str) -> dict[str, Any]:
    return {"nodeSelector": {"pool": pool}}


SMALL: Final = "{name: small, allocatable: {cpu: 4, memory: 8Gi, ephemeral-storage: 10Gi, pods: 2}}"
GPUS: Final = (
    "{name: gpu, count: 2, labels: {pool: gpu}, allocatable: {cpu: 8, nvidia.com/gpu: 2},"
    " taints: [{key: gpu, value: 'true', effect: NoSchedule}]}"
)
SPOT: Final = "{name: spot, labels: {pool: spot, generation: '3'}, taints: [{key: spot, effect: NoExecute}]}"
ALL: Final = f"[{SMALL}, {GPUS}, {SPOT}]"
ANYWHERE: Final = {"tolerations": [{"operator": "Exists"}]}

CASES: Final = {
    "no node": Case("[]", asks()),
    "a label": Case(f"[{SMALL}]", {**asks(), **_selects("gpu")}),
    "an affinity": Case(f"[{SMALL}]", affinity("In", "gpu", "spot")),
    "an affinity to a greater number": Case(f"[{SPOT}]", {**affinity("Gt", "3", key="generation"), **ANYWHERE}),
    "an affinity that excludes": Case(f"[{SPOT}]", {**affinity("NotIn", "spot"), **ANYWHERE}),
    "a taint": Case(f"[{GPUS}]", asks()),
    "a taint without a value": Case(f"[{SPOT}]", asks()),
    "a toleration of another value": Case(
        f"[{GPUS}]", {**asks(), "tolerations": [{"key": "gpu", "operator": "Equal", "value": "no"}]}
    ),
    "two taints of one node": Case(
        "[{name: a, taints: [{key: b, value: x, effect: NoSchedule}, {key: a, effect: NoSchedule}]}]", asks()
    ),
    "cpu": Case(f"[{SMALL}]", asks(cpu="5")),
    "memory": Case(f"[{SMALL}]", asks(memory="9Gi")),
    "ephemeral storage": Case(f"[{SMALL}]", asks(ephemeral_storage="11Gi")),
    "gpus that no node has": Case(f"[{SMALL}]", asks(nvidia_gpu="1")),
    "cpu, memory and gpus": Case(f"[{SMALL}]", asks(cpu="5", memory="9Gi", nvidia_gpu="1")),
    "cpu that others use": Case(f"[{SMALL}]", asks(cpu="2"), running={"small": asks(cpu="3")}),
    "more cpu than there is, and memory that others use": Case(
        f"[{SMALL}]", asks(cpu="5", memory="6Gi"), running={"small": asks(memory="4Gi")}
    ),
    "too many pods": Case("[{name: a, allocatable: {pods: 1}}]", asks(), running={"a": asks()}),
    "too many pods, too little cpu": Case(
        "[{name: a, allocatable: {pods: 1, cpu: 2}}]", asks(cpu="2"), running={"a": asks(cpu="1")}
    ),
    "a cordoned node": Case(f"[{SMALL}]", asks(cpu="5"), cordoned=("small",)),
    "a taint, a label and gpus": Case(f"[{GPUS}]", {**asks(nvidia_gpu="3"), **_selects("spot")}),
    "a label and cpu": Case(f"[{SMALL}]", {**asks(cpu="5"), **_selects("gpu")}),
    "a taint and gpus": Case(f"[{GPUS}]", asks(nvidia_gpu="3")),
    "a taint and a label": Case(f"[{SPOT}]", {**asks(), **_selects("gpu")}),
    "gpus on two pools": Case(ALL, asks(nvidia_gpu="1")),
    "gpus on the right pool": Case(ALL, {**asks(nvidia_gpu="4"), **ANYWHERE}),
    "gpus that others use": Case(
        ALL, {**asks(nvidia_gpu="2"), **ANYWHERE}, running={f"gpu-{n}": asks(nvidia_gpu="1") for n in (0, 1)}
    ),
    "a pool and a cordoned node": Case(ALL, {**asks(cpu="9"), **_selects("gpu")}, cordoned=("small", "gpu-1")),
    "different taints": Case(f"[{GPUS}, {SPOT}]", asks()),
}
