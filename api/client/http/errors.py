"""What can go wrong between us and a server, whatever is spoken above HTTP; `api.client.errors` draws the tree.

No message contains a secret: only the path of the request and the operating system's own words.
"""

from __future__ import annotations


class ApiError(Exception):
    """Something went wrong between us and the server.

    `request` names the request ("POST /x"). It stands before the message, and may be set later than the message: a
    connection does not know whose request it carries.
    """

    def __init__(self, message: str, *, request: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.request = request

    def __str__(self) -> str:
        return f"{self.request}: {self.message}" if self.request else self.message


class TransportError(ApiError):
    """No usable response arrived; the server may or may not have acted."""


class ConnectError(TransportError):
    """No connection could be made, so the server has not seen the request."""


class TLSError(ConnectError):
    """The TLS handshake failed."""


class CredentialsError(ConnectError):
    """There are no credentials to send: a token file cannot be read, or a credential plugin failed."""


class RequestTimeoutError(TransportError):
    """The request's time limit passed."""


class ConnectionLostError(TransportError):
    """The connection broke before the whole response was read."""
