"""The check of the CRD when the operator starts."""

from __future__ import annotations

import asyncio
import json
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
from tfjob_operator.controller.tfjob.crd_check import (
    AGAIN_S,
    OPENAPI_V2,
    OPENAPI_V3,
    look_at_crds,
    missing_fields,
)


def status_schema() -> dict[str, Any]:
    """What the CRD says of the status."""
    found: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


GO_OPERATORS: dict[str, Any] = {
    "type": "object",
    "properties": {
        name: {}
        for name in ("conditions", "replicaStatuses", "startTime", "completionTime", "lastReconcileTime", "foreign")
    },
}
"""The status of training-operator's CRD."""


NOT_FOUND = FakeResponse(404, b"404 page not found")
"""What an API server says of a path that it does not have."""


def discovery(*resources: str) -> FakeResponse:
    """What an API server says of a version of an API group."""
    return FakeResponse(body=json.dumps({"resources": [{"name": name} for name in resources]}).encode())


SERVED = [discovery("tfjobs", "tfjobs/status", "pytorchjobs")] * (1 + len(OLDER_VERSIONS))
"""Responses by which all versions are served."""


def document(status: dict[str, Any] | None, version: int = 3) -> bytes:
    """An OpenAPI document with a TFJob in it, and other things."""
    properties = {"spec": {"type": "object"}} | ({} if status is None else {"status": status})
    schemas = {
        "org.kubeflow.v1.TFJob": {"type": "object", "properties": properties},
        "io.k8s.Other": {"type": "object"},
    }
    return json.dumps({"components": {"schemas": schemas}} if version == 3 else {"definitions": schemas}).encode()


def test_the_crd_of_this_version_lacks_nothing() -> None:
    """D3: also without the mark that it keeps unknown fields."""
    status = status_schema()
    exact = {key: value for key, value in status.items() if not key.startswith("x-")}
    restarts = dict(exact["properties"]["restarts"]["items"])
    restarts.pop("x-kubernetes-preserve-unknown-fields")
    exact["properties"] = exact["properties"] | {"restarts": {"type": "array", "items": restarts}}
    assert missing_fields(document(status)) == []
    assert missing_fields(document(exact)) == []


def test_fields_that_another_operators_crd_lacks_are_named() -> None:
    """D3."""
    named = missing_fields(document(GO_OPERATORS))
    assert {"status.finishedIndices", "status.restarts", "status.workerSelector", "status.observedGeneration"} <= set(
        named
    )
    theirs = {"conditions", "startTime", "completionTime", "lastReconcileTime"}
    assert not {f"status.{name}" for name in theirs} & set(named)


def test_a_field_within_a_record_of_restarts_is_missed_too() -> None:
    """D3: an older CRD of ours lacked `stopped`."""
    status = json.loads(json.dumps(status_schema()))
    for schema in (status, status["properties"]["restarts"]["items"]):
        del schema["x-kubernetes-preserve-unknown-fields"]
    del status["properties"]["restarts"]["items"]["properties"]["stopped"]
    assert missing_fields(document(status)) == ["status.restarts[].stopped"]


@pytest.mark.parametrize(
    "status", [{"description": "of OpenAPI v2"}, {**GO_OPERATORS, "x-kubernetes-preserve-unknown-fields": True}]
)
def test_a_status_that_takes_anything_lacks_nothing(status: dict[str, Any]) -> None:
    assert missing_fields(document(status, version=2)) == []


def test_a_crd_without_a_status_lacks_all_of_it() -> None:
    assert "status.conditions" in missing_fields(document(None))


@pytest.mark.parametrize("body", [b"{}", b'{"definitions": {}}', document(None).replace(b"kubeflow", b"example")])
def test_a_document_without_tfjobs_says_nothing(body: bytes) -> None:
    assert missing_fields(body) == []


async def test_an_old_api_server_is_asked_for_the_document_that_it_has() -> None:
    """D3: OpenAPI v3 came with Kubernetes 1.24."""
    transport = FakeTransport(
        *SERVED,
        NOT_FOUND,
        FakeResponse(body=document(GO_OPERATORS, version=2), headers={"Content-Type": "text/plain; charset=utf-8"}),
    )
    with capture_logs() as logs:
        await look_at_crds(RestClient(transport), (V1,))
    assert [request.path for request in transport.requests][len(SERVED) :] == [OPENAPI_V3, OPENAPI_V2]
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["event"] == "crd_lacks_fields"
    assert "status.restarts" in line["fields"]


@pytest.mark.parametrize(
    "answer", [refusal(403, "Forbidden"), FakeResponse(body=b"<h1>hello</h1>"), FakeResponse(body=b"[]")]
)
async def test_a_response_that_tells_nothing_is_no_error(answer: FakeResponse) -> None:
    with capture_logs() as logs:
        await look_at_crds(RestClient(FakeTransport(answer)), (V1,))
    assert [line["event"] for line in logs if line["log_level"] in {"warning", "error"}] == []
    assert [line["event"] for line in logs if line["log_level"] == "info"] == ["crd_not_checked"]


async def test_an_api_server_that_is_away_is_asked_again_a_minute_later() -> None:
    """D3: the start does not wait for it."""
    lost = [ConnectionLostError("reset")] * 11  # a GET is tried again ten times
    transport = FakeTransport(*lost, *SERVED, FakeResponse(body=document(GO_OPERATORS)))
    with capture_logs() as logs:
        await look_at_crds(RestClient(transport), (V1,))
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["crd_lacks_fields"]
    assert transport.sent_at[-1] - transport.sent_at[0] >= AGAIN_S


async def test_a_missing_crd_is_logged_with_the_command_that_installs_it_every_minute_until_it_is_served() -> None:
    """Also where the API server serves a group of that name, for the jobs of other frameworks."""
    fields = FakeResponse(body=document(status_schema()))
    transport = FakeTransport(NOT_FOUND, discovery("pytorchjobs"), *SERVED, fields)
    with capture_logs() as logs:
        await look_at_crds(RestClient(transport), (V1,))
    lines = [line for line in logs if line["log_level"] == "error"]
    assert [(line["event"], line["resource"]) for line in lines] == [("crd_missing", "tfjobs.kubeflow.org")] * 2
    assert lines[0]["to_do"].endswith("kubectl apply --server-side --force-conflicts -f manifests/base/crd.yaml")
    assert transport.sent_at[2] - transport.sent_at[0] == pytest.approx(2 * AGAIN_S)


async def test_a_missing_crd_of_tensorflow_org_is_logged_where_its_jobs_are_to_be_run() -> None:
    """The chart with `crds.install=false` and all three APIs; caches of kubeflow.org wait for it too."""
    transport = FakeTransport(discovery("tfjobs"), NOT_FOUND, discovery("tfjobs"), discovery("tfjobs"))
    with capture_logs() as logs, suppress(asyncio.TimeoutError):
        async with asyncio.timeout(AGAIN_S / 2):
            await look_at_crds(RestClient(transport), (V1, *ALPHA_APIS))
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert (line["event"], line["resource"], line["version"]) == ("crd_missing", "tfjobs.tensorflow.org", "v1alpha1")
    assert line["to_do"].endswith("-f manifests/addons/alpha/crd.yaml")


async def test_versions_that_an_older_crd_does_not_serve_are_reported() -> None:
    """Whoever creates such a job is told `no matches for kind`, and looks into the log."""
    fields = FakeResponse(body=document(status_schema()))
    there, others = discovery("tfjobs"), discovery("mpijobs")
    transport = FakeTransport(there, NOT_FOUND, there, others, there, fields)
    with capture_logs() as logs:
        await look_at_crds(RestClient(transport), (V1,))
    (line,) = [line for line in logs if line["log_level"] in {"warning", "error"}]
    assert (line["event"], line["versions"]) == ("crd_lacks_versions", ["v1alpha2", "v1beta2"])


def test_the_versions_that_are_looked_for_are_those_of_the_crd() -> None:
    served = [version["name"] for version in crd()["spec"]["versions"]]
    assert sorted(served) == sorted(["v1", *OLDER_VERSIONS])
