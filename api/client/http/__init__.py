"""An asynchronous HTTP/1.1 client for a single server and many requests, independent of their content.

`messages` has requests and responses, `transport` sends and receives them, `settings` and `credentials` select the
server and the identity.
"""

from __future__ import annotations

from tfjob_operator.api.client.http.messages import (
    Credentials,
    CredentialSource,
    FixedCredentials,
    OnLeave,
    Origin,
    Request,
    Response,
    Settings,
    Transport,
    unchanged,
)
from tfjob_operator.api.client.http.transport import HttpTransport

__all__ = [
    "CredentialSource",
    "Credentials",
    "FixedCredentials",
    "HttpTransport",
    "OnLeave",
    "Origin",
    "Request",
    "Response",
    "Settings",
    "Transport",
    "unchanged",
]
