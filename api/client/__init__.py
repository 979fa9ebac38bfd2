"""An asynchronous client for the Kubernetes API: settings, credentials, transport, methods and errors."""

from __future__ import annotations

from tfjob_operator.api.access import AccessError
from tfjob_operator.api.client.auth.settings import load_settings
from tfjob_operator.api.client.http import HttpTransport, Request, Response, Settings, Transport
from tfjob_operator.api.client.options import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    TABLE,
    ListOptions,
    LogOptions,
)
from tfjob_operator.api.client.rest import RestClient, retry_on_conflict

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "TABLE",
    "AccessError",
    "HttpTransport",
    "ListOptions",
    "LogOptions",
    "Request",
    "Response",
    "RestClient",
    "Settings",
    "Transport",
    "load_settings",
    "retry_on_conflict",
]
