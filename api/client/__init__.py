"""An asynchronous client for the Kubernetes API: settings, credentials, transport, verbs and errors."""

from __future__ import annotations

from tfjob_operator.api.client.config import Settings, load_settings
from tfjob_operator.api.client.errors import ConfigError
from tfjob_operator.api.client.metrics import RequestMetrics
from tfjob_operator.api.client.rest import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, ListOptions, RestClient
from tfjob_operator.api.client.retry import BUSY_WRITER, FEW_WRITERS, retry_on_conflict
from tfjob_operator.api.client.transport import HttpTransport, Request, Response, Transport

__all__ = [
    "BUSY_WRITER",
    "FEW_WRITERS",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "ConfigError",
    "HttpTransport",
    "ListOptions",
    "Request",
    "RequestMetrics",
    "Response",
    "RestClient",
    "Settings",
    "Transport",
    "load_settings",
    "retry_on_conflict",
]
