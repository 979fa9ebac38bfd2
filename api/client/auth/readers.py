"""The two kinds of credentials that change: files that are replaced, and the output of a credential plugin.

Each reader is a blocking call for `RefreshedCredentials`. Its errors never quote what it read.
"""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.client.auth.credentials import FILE_REFRESH_S
from tfjob_operator.api.client.http.credentials import Credentials
from tfjob_operator.api.client.http.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfjob_operator.api.client.auth.tls import Trust

PLUGIN_SHARE: Final = 0.8
"""A plugin's credentials are asked for again after this part of their life: early enough for a few failed attempts, and never
at every request, which a fixed margin would mean for short-lived ones."""

_Stamp = tuple[tuple[int, int], ...]


def authorization(value: str, where: str) -> str:
    """Check a whole Authorization header that came from `where`. Raises CredentialsError without quoting it."""
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise CredentialsError(f"{where} holds characters that cannot be sent in a header")
    return value


@dataclass(slots=True)
class FileReader:
    """A token file and a client certificate in files; either may be absent.

    `context` is used until the certificate's files change. Called by one thread at a time.
    """

    token_file: Path | None
    certificate: Path | None
    key: Path | None
    trust: Trust | None
    context: ssl.SSLContext | None
    authorization: str | None = field(default=None, repr=False)
    _stamp: _Stamp = field(init=False)

    def __post_init__(self) -> None:
        self._stamp = self._look()

    def __call__(self) -> Credentials:
        """Read what changed. Raises CredentialsError."""
        try:
            if self.token_file is not None:
                self.authorization = self._read_token(self.token_file)
            stamp = self._look()
            if stamp != self._stamp and self.trust is not None:
                self.context = self.trust.context(self.certificate, self.key)
                self._stamp = stamp
        except OSError as error:
            raise CredentialsError(f"the credentials cannot be read: {error}") from error
        return Credentials(self.authorization, self.context, FILE_REFRESH_S)

    def _look(self) -> _Stamp:
        states = [path.stat() for path in (self.certificate, self.key) if path is not None]
        return tuple((state.st_mtime_ns, state.st_ino) for state in states)

    @staticmethod
    def _read_token(path: Path) -> str:
        token = path.read_bytes().decode("ascii", "replace").strip()
        if not token:
            raise CredentialsError(f"the token file {path} is empty")
        return authorization(f"Bearer {token}", f"the token file {path}")


@dataclass(frozen=True, slots=True)
class PluginReader:
    """A credential plugin: `run` returns the `status` of its ExecCredential, as `plugin.Plugin` does.

    A plugin may return a token, a certificate, or both; `context` is used if there is no certificate.
    """

    name: str
    run: Callable[[], Mapping[str, str]]
    trust: Trust | None
    context: ssl.SSLContext | None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __call__(self) -> Credentials:
        """Run the plugin. Raises CredentialsError."""
        try:
            status = self.run()
            return self._credentials(status)
        except OSError as error:
            raise CredentialsError(f"the credential plugin {self.name} cannot be used: {error}") from error
        except CredentialsError as error:
            raise CredentialsError(f"the credential plugin {self.name} failed: {error.message}") from error.__cause__
        except Exception:  # noqa: BLE001 - whatever it answered; what is raised may quote it, so it is not a cause
            raise CredentialsError(f"the credential plugin {self.name} failed: a bad response") from None

    def _credentials(self, status: Mapping[str, str]) -> Credentials:
        token, certificate, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
        if not token and not (certificate and key):
            raise CredentialsError("it answered neither a token nor a certificate with its key")
        context = self.context
        if certificate and key and self.trust is not None:
            context = self.trust.context_from_pem(certificate, key)
        header = authorization(f"Bearer {token}", "its token") if token else None
        return Credentials(header, context, self._fresh_s(status.get("expirationTimestamp")))

    def _fresh_s(self, expires: str | None) -> float:
        """Return for how long the credentials need not be read again; without an expiry, until the server refuses them."""
        if not expires:
            return math.inf
        return max(0.0, (datetime.fromisoformat(expires) - self.now()).total_seconds() * PLUGIN_SHARE)
