"""An asynchronous HTTP/1.1 client for one server that gets many requests. It knows nothing of what these contain.

`messages` are requests and responses, `transport` sends and receives them; `settings` and `credentials` say to which
server, and as whom.
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
