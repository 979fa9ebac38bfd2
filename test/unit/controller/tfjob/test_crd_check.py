"""The check of the CRD when the operator starts."""

import asyncio
import copy
import json
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.manifests import crd
from fakes.transport import FakeResponse, FakeTransport, refusal
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConnectionLostError
from tfjob_operator.api.v1.constants import OLDER_VERSIONS
from tfjob_operator.controller.options import ALPHA_APIS, V1
from tfjob_operator.controller.tfjob.crd_check import OPENAPI_V2, OPENAPI_V3, RETRY_S, check_crds, missing_fields

KEEPS = "x-kubernetes-preserve-unknown-fields"
THEIRS = ("conditions", "startTime", "completionTime", "lastReconcileTime", "replicaStatuses", "foreign")
GO_OPERATORS: dict[str, Any] = {"type": "object", "properties": {name: {} for name in THEIRS}}
"""The status of training-operator's CRD."""
NOT_FOUND = FakeResponse(404, b"404 page not found")
"""What an API server says of a path that it does not have."""


def exact_status() -> dict[str, Any]:
    """What the CRD says of the status, without the marks that it keeps unknown fields."""
    found: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    found = copy.deepcopy(found)
    del found[KEEPS], found["properties"]["restarts"]["items"][KEEPS]
    return found


def discovery(*resources: str) -> FakeResponse:
    """What an API server says of a version of an API group."""
    return FakeResponse(body=json.dumps({"resources": [{"name": name} for name in resources]}).encode())


def document(status: dict[str, Any] | None, version: int = 3) -> bytes:
    """An OpenAPI document with a TFJob in it, and other things."""
    properties = {"spec": {"type": "object"}} | ({} if status is None else {"status": status})
    kind = {"type": "object", "properties": properties}
    schemas = {"org.kubeflow.v1.TFJob": kind, "io.k8s.Other": {"type": "object"}}
    return json.dumps({"components": {"schemas": schemas}} if version == 3 else {"definitions": schemas}).encode()


THERE = discovery("tfjobs", "tfjobs/status", "pytorchjobs")
SERVED = [THERE] * (1 + len(OLDER_VERSIONS))
"""Responses by which all versions are served."""


def complete() -> FakeResponse:
    return FakeResponse(body=document(exact_status()))


async def looked_at(
    *responses: FakeResponse | Exception, apis: Collection[str] = (V1,), levels: Collection[str] = ("warning", "error")
) -> tuple[list[Any], FakeTransport]:
    """Look at an API server that responds with these; return what was logged at these levels, and the transport."""
    transport = FakeTransport(*responses)
    with capture_logs() as logs, suppress(asyncio.TimeoutError):
        async with asyncio.timeout(3.5 * RETRY_S if apis == (V1,) else RETRY_S / 2):
            await check_crds(RestClient(transport), apis)
    return [line for line in logs if line["log_level"] in levels], transport


@pytest.mark.parametrize(
    ("body", "lacks"),
    [
        pytest.param(document({"description": "of OpenAPI v2"}, version=2), set(), id="OpenAPI v2"),
        pytest.param(document(GO_OPERATORS | {KEEPS: True}, version=2), set(), id="theirs, which keeps unknown fields"),
        pytest.param(
            document(GO_OPERATORS), {"finishedIndices", "restarts", "workerSelector", "observedGeneration"}, id="theirs"
        ),
        pytest.param(document(None), {"conditions", "restarts"}, id="no status"),
        *(pytest.param(body, set(), id="no TFJobs") for body in (b"{}", b'{"definitions": {}}')),
        pytest.param(document(None).replace(b"kubeflow", b"example"), set(), id="another's TFJobs"),
    ],
)
def test_the_fields_that_a_schema_lacks_are_named(body: bytes, lacks: set[str]) -> None:
    """D3: a status that takes anything lacks nothing, and a document without TFJobs says nothing."""
    found = missing_fields(body)
    assert {f"status.{name}" for name in lacks} <= set(found)
    assert bool(found) == bool(lacks)
    if b"foreign" in body:
        assert not {f"status.{name}" for name in THEIRS} & set(found)


def test_our_crd_lacks_nothing_and_a_field_within_a_record_of_restarts_is_missed_too() -> None:
    """D3: also without the marks that it keeps unknown fields. An older CRD of ours lacked `stopped`."""
    status = exact_status()
    assert missing_fields(document(status)) == missing_fields(document(status | {KEEPS: True, "properties": {}})) == []
    del status["properties"]["restarts"]["items"]["properties"]["stopped"]
    assert missing_fields(document(status)) == ["status.restarts[].stopped"]


async def test_an_old_api_server_is_asked_for_the_document_that_it_has() -> None:
    """D3: OpenAPI v3 came with Kubernetes 1.24."""
    plain = {"Content-Type": "text/plain; charset=utf-8"}
    asked = [NOT_FOUND, FakeResponse(body=document(GO_OPERATORS, version=2), headers=plain)]
    (line,), transport = await looked_at(*SERVED, *asked, *asked)
    assert [request.path for request in transport.requests][len(SERVED) :] == [OPENAPI_V3, OPENAPI_V2] * 2
    assert (line["event"], line["log_level"]) == ("crd_lacks_fields", "error")
    assert "status.restarts" in line["fields"]


@pytest.mark.parametrize(
    "answer", [refusal(403, "Forbidden"), FakeResponse(body=b"<h1>hello</h1>"), FakeResponse(body=b"[]")]
)
async def test_a_response_that_tells_nothing_is_no_error(answer: FakeResponse) -> None:
    (line,), _ = await looked_at(answer, levels=("info", "warning", "error"))
    assert (line["event"], line["log_level"]) == ("crd_not_checked", "info")


async def test_an_api_server_that_is_away_is_asked_again_a_minute_later() -> None:
    """D3: the start does not wait for it."""
    lost = [ConnectionLostError("reset")] * 11  # a GET is tried again ten times
    (line,), transport = await looked_at(*lost, *SERVED, *[FakeResponse(body=document(GO_OPERATORS))] * 2)
    assert line["event"] == "crd_lacks_fields"
    assert transport.sent_at[-1] - transport.sent_at[0] >= RETRY_S


async def test_a_crd_that_was_just_applied_is_not_reported_for_what_openapi_still_shows_of_the_former_one() -> None:
    """D3: at a move from training-operator, whose CRD is replaced seconds before the start."""
    lines, transport = await looked_at(*SERVED, FakeResponse(body=document(GO_OPERATORS)), complete())
    assert lines == []
    assert transport.sent_at[-1] - transport.sent_at[-2] >= RETRY_S


async def test_a_missing_crd_is_logged_with_the_command_that_installs_it_every_minute_until_it_is_served() -> None:
    """Also where the API server serves a group of that name, for the jobs of other frameworks."""
    lines, transport = await looked_at(NOT_FOUND, discovery("pytorchjobs"), *SERVED, complete())
    assert [(line["event"], line["resource"]) for line in lines] == [("crd_missing", "tfjobs.kubeflow.org")] * 2
    assert lines[0]["remedy"].endswith("kubectl apply --server-side --force-conflicts -f manifests/base/crd.yaml")
    assert transport.sent_at[2] - transport.sent_at[0] == pytest.approx(2 * RETRY_S)


async def test_a_missing_crd_of_tensorflow_org_is_logged_where_its_jobs_are_to_be_run() -> None:
    """The chart with `crds.install=false` and all three APIs; caches of kubeflow.org wait for it too."""
    (line,), _ = await looked_at(THERE, NOT_FOUND, THERE, THERE, apis=(V1, *ALPHA_APIS))
    assert (line["event"], line["resource"], line["version"]) == ("crd_missing", "tfjobs.tensorflow.org", "v1alpha1")
    assert line["remedy"].endswith("-f manifests/addons/alpha/crd.yaml")


async def test_versions_that_an_older_crd_does_not_serve_are_reported() -> None:
    """Whoever creates such a job is told `no matches for kind`, and looks into the log."""
    (line,), _ = await looked_at(THERE, NOT_FOUND, THERE, discovery("mpijobs"), THERE, complete())
    assert (line["event"], line["versions"]) == ("crd_lacks_versions", ["v1alpha2", "v1beta2"])


def test_the_versions_that_are_looked_for_are_those_of_the_crd() -> None:
    served = [version["name"] for version in crd()["spec"]["versions"]]
    assert sorted(served) == sorted(["v1", *OLDER_VERSIONS])
