"""Transport errors, independent of the protocol above HTTP; `api.client.errors` shows the whole hierarchy.

No message contains a secret: only the path of the request and the operating system's message.
"""

from __future__ import annotations


class ApiError(Exception):
    """Communication with the server failed.

    `request` names the request ("POST /x") at the beginning of the message. It may be set later, since a connection
    does not know whose request it carries.
    """

    def __init__(self, message: str, *, request: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.request = request

    def __str__(self) -> str:
        return f"{self.request}: {self.message}" if self.request else self.message


class TransportError(ApiError):
    """No usable response arrived; the server may or may not have processed the request."""


class ConnectError(TransportError):
    """No connection could be established, so the server has not seen the request."""


class TLSError(ConnectError):
    """The TLS handshake failed."""


class CredentialsError(ConnectError):
    """There are no credentials to send: a token file cannot be read, or a credential plugin failed."""


class RequestTimeoutError(TransportError):
    """The timeout of the request was reached."""


class ConnectionLostError(TransportError):
    """The connection was lost before the whole response was read."""
