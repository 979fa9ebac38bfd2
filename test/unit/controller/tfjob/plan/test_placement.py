"""Which nodes suit a pod template: cases of the scheduler's filters."""

from typing import Any

import pytest

from fakes.jobs import container, template
from tfjob_operator.api.v1.types import TaintPattern
from tfjob_operator.controller.tfjob.plan.placement import NodeShape, suits

NODE = NodeShape({"zone": "a", "disk": "7"}, {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"})
TAINT = TaintPattern("gpu", "yes", "NoSchedule")


def affinity(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


def field(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [*values]}]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeName": "n1"}, True),
        ({"nodeName": "n2"}, False),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "a", "pool": "gpu"}}, False),
        (affinity(), True),
        (affinity({}), False),
        (affinity({}, expression("zone", "In", "a", "b")), True),
        (affinity(expression("zone", "In", "b")), False),
        (affinity(expression("zone", "NotIn", "b")), True),
        (affinity(expression("pool", "NotIn", "b")), True),
        (affinity(expression("zone", "Exists")), True),
        (affinity(expression("pool", "Exists")), False),
        (affinity(expression("pool", "DoesNotExist")), True),
        (affinity(expression("zone", "DoesNotExist")), False),
        (affinity(expression("disk", "Gt", "6")), True),
        (affinity(expression("disk", "Gt", "7")), False),
        (affinity(expression("disk", "Lt", "8")), True),
        (affinity(expression("zone", "Gt", "6")), False),
        (affinity(expression("disk", "Gt")), False),
        (affinity(expression("zone", "Like", "a")), False),
        (affinity(field("In", "n1")), True),
        (affinity(field("NotIn", "n1")), False),
        (affinity(expression("zone", "In", "a") | field("In", "n2")), False),
        ({"affinity": {"nodeAffinity": None}, "tolerations": None, "nodeSelector": None}, True),
    ],
    ids=str,
)
def test_a_pod_runs_where_its_selector_and_its_affinity_match(spec: dict[str, Any], *, fits: bool) -> None:
    assert suits(template(**spec), "n1", NODE) is fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (None, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "gpu"}, False),
        ({"key": "tpu", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_off_pods_that_do_not_tolerate_it(toleration: dict[str, str] | None, *, fits: bool) -> None:
    tolerations = [] if toleration is None else [{"key": "other", "operator": "Exists"}, toleration]
    assert suits(template(tolerations=tolerations), "n1", NODE, [TAINT]) is fits
    assert suits(template(), "n1", NODE, [TAINT._replace(effect="PreferNoSchedule")])


@pytest.mark.parametrize(
    ("requests", "fits"),
    [
        ({}, True),
        ({"cpu": "4", "nvidia.com/gpu": 1}, True),
        ({"cpu": "4001m"}, False),
        ({"nvidia.com/gpu": "2"}, False),
        ({"amd.com/gpu": "1"}, False),
    ],
    ids=str,
)
def test_a_pod_does_not_run_on_a_node_that_is_too_small_for_it(requests: dict[str, Any], *, fits: bool) -> None:
    """Room that other pods take is not known. Nor are the resources of a node that reports none."""
    found = container(resources={"requests": requests})
    assert suits(found, "n1", NODE) is fits
    assert suits(found, "n1", NODE._replace(allocatable={}))
