"""An asynchronous client for the Kubernetes API: settings, transport, verbs and errors."""

from __future__ import annotations

from api.client.config import ConfigError, Settings, load_settings
from api.client.rest import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, ListOptions, RestClient
from api.client.transport import AiohttpTransport, Request, Response, Transport

__all__ = [
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "AiohttpTransport",
    "ConfigError",
    "ListOptions",
    "Request",
    "Response",
    "RestClient",
    "Settings",
    "Transport",
    "load_settings",
]
