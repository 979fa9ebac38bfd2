"""Quantities, and what pods request."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.resources import format_quantity, parse_quantity, pod_requests

QUANTITIES = [
    ("1", 1),
    (2, 2),
    (0.5, "0.5"),
    ("500m", "0.5"),
    ("1.5Gi", 3 * 2**29),
    ("1k", 1000),
    ("2M", 2_000_000),
    ("1E", 10**18),
    ("1e3", 1000),
    ("1E3", 1000),
    ("12e-1", "1.2"),
    (".5", "0.5"),
    ("5.", 5),
    ("+3", 3),
    ("7n", "0.000000007"),
    ("1Ei", 2**60),
]


@pytest.mark.parametrize(("text", "number"), QUANTITIES, ids=[str(text) for text, _ in QUANTITIES])
def test_quantities_are_read_as_the_api_server_reads_them(text: object, number: Any) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "x", "1K", "1Ki2", "-1", "1e999999999", "1 Gi", "9" * 50, None, True, [], {}, "١"]
)
def test_what_is_no_quantity_is_none(text: object) -> None:
    assert parse_quantity(text) is None


@given(st.integers(0, 2**62), st.sampled_from(["", "m", "k", "Ki", "Gi", "n"]))
def test_a_quantity_that_is_written_means_at_least_what_was_read(digits: int, suffix: str) -> None:
    number = parse_quantity(f"{digits}{suffix}")
    assert number is not None
    again = parse_quantity(format_quantity(number))
    assert again is not None
    assert 0 <= again - number < Decimal("0.001")


def container(cpu: Any = None, restart_policy: str | None = None, **resources: Any) -> dict[str, Any]:
    found = {"resources": {"requests": {"cpu": cpu}} if cpu is not None else resources}
    return found if restart_policy is None else found | {"restartPolicy": restart_policy}


def cpu(init: list[Any] | None = None, **spec: Any) -> str:
    """The CPU that a pod requests whose two containers request 100m each."""
    containers = [container("100m"), container("100m")]
    found = pod_requests({"spec": {"containers": containers, "initContainers": init, **spec}})
    return format_quantity(found["cpu"])


def test_containers_run_together_and_init_containers_one_after_the_other() -> None:
    """Upstream: TestPodRequestsAndLimits, the larger of both."""
    assert cpu([container("150m"), container("50m")]) == "200m"
    assert cpu([container("150m"), container("300m")]) == "300m"


def test_native_sidecars_run_beside_the_containers() -> None:
    """M6, KEP-753: their requests are added."""
    assert cpu([container("50m", "Always"), container("20m", "Always")]) == "270m"


def test_an_init_container_runs_beside_the_sidecars_that_stand_before_it() -> None:
    """M6, KEP-753: `InitContainerUse(i)` in the KEP."""
    sidecar = container("100m", "Always")
    assert cpu([sidecar, container("500m")]) == "600m"
    assert cpu([container("500m"), sidecar]) == "500m"


def test_what_the_pod_itself_requests_replaces_the_sum() -> None:
    """M6, KEP-2837: for CPU, memory and huge pages, other resources stay with the containers."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "4"}}
    found = pod_requests({"spec": {"containers": [container("100m")], "resources": resources}})
    assert {name: format_quantity(number) for name, number in found.items()} == {"cpu": "1", "memory": str(2**30)}


@pytest.mark.parametrize(("requests", "total"), [({"cpu": "100m"}, "100m"), ({}, "2")])
def test_a_limit_of_the_pod_counts_where_no_container_asks(requests: dict[str, str], total: str) -> None:
    """M6, KEP-2837: the API server then takes it as the request."""
    spec = {"containers": [container(requests=requests)], "resources": {"limits": {"cpu": "2"}}}
    assert format_quantity(pod_requests({"spec": spec})["cpu"]) == total


def test_the_overhead_comes_on_top() -> None:
    """M6, KEP-688: what the runtime class costs."""
    assert cpu(overhead={"cpu": "250m"}) == "450m"
    assert cpu([container("500m")], overhead={"cpu": "250m"}) == "750m"


@pytest.mark.parametrize("spec", [None, [], {"containers": 3}, {"containers": ["x"]}, {"initContainers": {"a": 1}}])
def test_a_template_of_another_shape_asks_for_nothing(spec: Any) -> None:
    """The API server says what is wrong with it when it sees the pod."""
    assert pod_requests({"spec": spec}) == {}
