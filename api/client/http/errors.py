"""What can go wrong between us and a server, whatever is spoken above HTTP.

ApiError                            something went wrong between us and the server
+-- ConfigError                     the settings can not be used
+-- TransportError                  no usable answer; whether the server acted on the request is unknown
    +-- ConnectError                no connection was made: the server can not have acted
    |   +-- TLSError                the peer's certificate or ours was refused
    |   +-- CredentialsError        there is no token or certificate to send
    +-- RequestTimeoutError         the time limit of the request passed
    +-- ConnectionLostError         the connection broke while we waited or read

No message holds a secret: what goes in is the path of the request, and the operating system's own words.
"""

from __future__ import annotations


class ApiError(Exception):
    """Something went wrong between us and the server.

    `request` says what was asked ("POST /x"). It stands before the message, and may be set later than the message: a connection
    does not know whom it serves.
    """

    def __init__(self, message: str, *, request: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.request = request

    def __str__(self) -> str:
        return f"{self.request}: {self.message}" if self.request else self.message


class ConfigError(ApiError):
    """The settings can not be used. The message is for a person, and holds no secret."""


class TransportError(ApiError):
    """No usable answer arrived; the server may or may not have acted."""


class ConnectError(TransportError):
    """No connection could be made, so the server has not seen the request."""


class TLSError(ConnectError):
    """The TLS handshake failed."""


class CredentialsError(ConnectError):
    """There are no credentials to send: a token file cannot be read, or a credential plugin failed."""


class RequestTimeoutError(TransportError):
    """The request's time limit passed."""


class ConnectionLostError(TransportError):
    """The connection broke before the whole answer was read."""
