"""Checks the CRDs at startup: TFJobs must be served, in all versions and with all status fields.

It reads discovery and OpenAPI. Every account may read them, so the check needs no permission for CRDs. It only logs.
`controller.tfjob.view` restores the status fields that were pruned. While a CRD is missing, the informers retry and `/readyz`
reports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

import msgspec
import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError, StatusError, TransportError
from tfjob_operator.api.v1.constants import OLDER_VERSIONS, TFJOBS
from tfjob_operator.api.v1.types import IndexRestarts, JobStatus

OPENAPI_V3: Final = f"/openapi/v3/apis/{TFJOBS.api_version}"
"""Since Kubernetes 1.24; contains a single API group."""
OPENAPI_V2: Final = "/openapi/v2"
"""The whole API, about 4 MB."""
RETRY_S: Final = 60.0
"""Retry interval if the API server is unavailable or does not serve TFJobs. Nothing waits for the result."""
_APPLY: Final = "apply the CRD of this version: kubectl apply --server-side --force-conflicts -f manifests/"
REMEDY: Final = f"{_APPLY}base/crd.yaml"
_CRDS: Final = (
    (TFJOBS.group, TFJOBS.version, REMEDY),
    ("tensorflow.org", "v1alpha1", f"{_APPLY}addons/alpha/crd.yaml"),
)
"""The group and version of each CRD, and how to install it."""
_DEFINITION: Final = "org.kubeflow.v1.TFJob"
_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"

log = structlog.get_logger(__name__)


class _Kind(msgspec.Struct):
    """The schema of a kind. Only the status is decoded: the schema of the spec is half a megabyte."""

    properties: dict[str, msgspec.Raw] | None = None


class _Schemas(msgspec.Struct):
    """The TFJob schema of an OpenAPI document."""

    tfjob: _Kind | None = msgspec.field(default=None, name=_DEFINITION)


class _Components(msgspec.Struct):
    schemas: _Schemas = msgspec.field(default_factory=_Schemas)


class _Document(msgspec.Struct):
    """OpenAPI v3 has `components`, v2 `definitions`."""

    components: _Components = msgspec.field(default_factory=_Components)
    definitions: _Schemas = msgspec.field(default_factory=_Schemas)


class _Named(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    """The discovery document of one version of an API group."""

    resources: list[_Named] = []


async def check_crds(client: RestClient, apis: Collection[str]) -> None:
    """Log what is missing for the TFJobs of `apis`: a CRD, older versions, or status fields.

    A missing CRD is logged every minute until it is installed; missing fields once, if they are missing after a minute too.
    Does not raise: the operator works without this check.
    """
    groups = {api.partition("/")[0] for api in apis}
    while True:
        try:
            if await _are_served(client, groups):
                if TFJOBS.group in groups:
                    await _check_schema(client)
                return
        except TransportError:
            pass
        except (ApiError, msgspec.MsgspecError) as error:
            log.info("crd_not_checked", error=str(error))
            return
        await asyncio.sleep(RETRY_S)


async def _are_served(client: RestClient, groups: Collection[str]) -> bool:
    missing = [crd for crd in _CRDS if crd[0] in groups and not await _is_served(client, crd[0], crd[1])]
    for group, version, remedy in missing:
        log.error("crd_missing", resource=f"{TFJOBS.plural}.{group}", version=version, remedy=remedy)
    return not missing


async def _check_schema(client: RestClient) -> None:
    absent = [version for version in OLDER_VERSIONS if not await _is_served(client, TFJOBS.group, version)]
    if absent:
        log.warning("crd_lacks_versions", versions=absent, remedy=f"if jobs of these versions are wanted, {REMEDY}")
    missing = missing_fields(await _openapi(client))
    if missing:
        # OpenAPI shows the schema of a CRD that was just applied some time after it is in use.
        await asyncio.sleep(RETRY_S)
        missing = missing_fields(await _openapi(client))
    if missing:
        log.error("crd_lacks_fields", fields=missing, remedy=REMEDY)


async def _is_served(client: RestClient, group: str, version: str) -> bool:
    try:
        body = await client.get_raw(f"/apis/{group}/{version}")
    except StatusError as error:
        if error.code != 404:
            raise
        return False
    return any(resource.name == TFJOBS.plural for resource in msgspec.json.decode(body, type=_ResourceList).resources)


async def _openapi(client: RestClient) -> bytes:
    try:
        return await client.get_raw(OPENAPI_V3)
    except StatusError as error:
        if error.code != 404:  # sent without a Status for unknown paths
            raise
        return await client.get_raw(OPENAPI_V2)


def missing_fields(document: bytes) -> list[str]:
    """Return the status fields that the schema in an OpenAPI document lacks; none if it has no schema. Raises MsgspecError."""
    found = msgspec.json.decode(document, type=_Document)
    kind = found.components.schemas.tfjob or found.definitions.tfjob
    if kind is None or kind.properties is None:
        return []
    status: dict[str, Any] = {"properties": {}}
    if raw := kind.properties.get("status"):
        status = msgspec.json.decode(raw, type=dict[str, Any])
    missing = _missing(status, JobStatus, "status")
    if restarts := status.get("properties", {}).get("restarts"):
        missing += _missing(restarts.get("items", {}), IndexRestarts, "status.restarts[]")
    return missing


def _missing(schema: dict[str, Any], struct: type[msgspec.Struct], path: str) -> list[str]:
    """Return the fields that a schema lacks; none if it lists no properties, as in OpenAPI v2 if unknown fields are kept."""
    if schema.get(_PRESERVE_UNKNOWN) or "properties" not in schema:
        return []
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    return [f"{path}.{name}" for name in names if name not in schema["properties"]]
