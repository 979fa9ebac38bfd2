"""An asynchronous HTTP/1.1 client for one server that is asked all the time. It knows nothing of what it carries.

`messages` are what is sent and what comes back, `transport` is the way there; `settings` and `credentials` say where to, and as
whom.
"""

from __future__ import annotations

from tfjob_operator.api.client.http.credentials import Credentials, CredentialSource, FixedCredentials
from tfjob_operator.api.client.http.messages import OnLeave, Request, Response, Transport, unchanged
from tfjob_operator.api.client.http.origin import Origin
from tfjob_operator.api.client.http.settings import Settings
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
