"""The client's credentials, which are read again before tokens and certificates expire; TLS contexts and checked addresses.

Credentials that change are files that are replaced or the output of a credential plugin. Each reader is a blocking call, run
in a thread of its own beside the requests (`RefreshedCredentials`). Requests go on with the last value; they wait only while
there is none, or none that the server would accept. No error quotes what was read.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from tfjob_operator.api.client.http.daemon_thread import call_in_daemon_thread
from tfjob_operator.api.client.http.errors import ConfigError, CredentialsError
from tfjob_operator.api.client.http.messages import Credentials, Origin

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)


def address_of(server: str) -> Origin:
    """Parse the URL of an API server. Raises ConfigError, which does not quote the URL: it may contain a password."""
    try:
        return Origin.of(server)
    except ValueError:
        raise ConfigError("the API server address must have the form https://host:port") from None


def usable_proxy(proxy: str | None) -> str | None:
    """Return the URL of a proxy that we can use, or None for none. Raises ConfigError, which does not quote it."""
    if not proxy:
        return None
    scheme = proxy.partition("://")[0]
    if scheme not in {"http", "https"}:
        named = scheme if _SCHEME.fullmatch(scheme) else "(none)"  # what is no URL may begin with a password
        raise ConfigError(f"unsupported proxy scheme {named}: must be http or https")
    try:
        Origin.of(proxy)
    except ValueError:
        raise ConfigError("the proxy address must have the form http://host:port") from None
    return proxy


@dataclass(frozen=True, slots=True)
class Trust:
    """Which servers are trusted: those signed by `authority` (PEM) or the system's; all if `verify` is False."""

    authority: str | None = None
    verify: bool = True

    def context(self, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        """Make a context, with a client certificate (`key` may be in its file). Blocks; raises OSError for a wrong file."""
        context = ssl.create_default_context(cadata=self.authority)
        # Python 3.13 asks of an authority what many that kubeadm made do not have, and what no other client asks of them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            # An encrypted key would make OpenSSL ask for its password on the terminal; an empty one makes it fail.
            context.load_cert_chain(certificate, key, password="")
        return context

    def context_from_pem(self, certificate: str, key: str) -> ssl.SSLContext:
        """`context` for a client certificate that is not in a file. OpenSSL reads files only, so it is in one for a moment."""
        from tempfile import TemporaryDirectory  # with bz2 and lzma half a megabyte, and a pod has no such certificate

        with TemporaryDirectory(prefix="tfjob-operator-") as private:  # only its owner may enter
            certificate_file, key_file = Path(private, "cert"), Path(private, "key")
            certificate_file.write_text(certificate)
            key_file.write_text(key)
            return self.context(certificate_file, key_file)


FILE_REFRESH_S: Final = 60.0
"""Age at which a file is read again. The kubelet replaces a token when a fifth of its life is left, at least two minutes
before its end; client-go reads it once a minute too."""
READ_LIMIT_S: Final = 60.0
"""How long a request waits for the first credentials: cloud plugins log in over a network, which takes seconds."""
RETRY_S: Final = 10.0
"""Shortest time between two reads: a plugin costs a process, and one that returns expired tokens must not be run for each
request."""
STALE: Final = 1.25
"""Credentials that are older than `fresh_s` times this have expired: `fresh_s` is four fifths of a token's life, where that
is known."""
log = structlog.get_logger(__name__)


class RefreshedCredentials:
    """Credentials that are read again when they are no longer fresh, or when the server refused them.

    Invariants: at most one read is under way; a failed read leaves the last good value in use, since the server's refusal
    says more than our error would; a request waits for a read only if there is no value, if it was refused, or if it is so
    old that it must have expired.
    """

    def __init__(
        self,
        read: Callable[[], Credentials],
        *,
        first: Credentials | None = None,
        call: Callable[[Callable[[], Credentials], str], asyncio.Future[Credentials]] = call_in_daemon_thread,
    ) -> None:
        """`read` may block and may raise anything; only a CredentialsError is quoted, since others could contain a secret.

        `first` was read just now; without it the first request reads. `call` runs `read` off the loop.
        """
        self._read = read
        self._call = call
        self._credentials = first
        self._fresh_s = -math.inf if first is None else first.fresh_s
        self._stale_at = math.inf
        self._due: float | None = None  # counted from the first look: before it there may be no loop to tell the time
        self._reading: asyncio.Future[Credentials] | None = None
        self._began_at = -math.inf
        self._failure = ""

    async def get(self) -> Credentials:
        """See `CredentialSource.get`. Safe to cancel: the read goes on for the others."""
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._due = now + self._fresh_s
            self._stale_at = now + self._fresh_s * STALE
        if now >= self._due and self._reading is None:
            self._began_at = now
            self._reading = self._call(self._read, "credentials")
            self._reading.add_done_callback(self._finish)
        if (self._credentials is None or now >= self._stale_at) and self._reading is not None:
            await asyncio.wait({self._reading}, timeout=READ_LIMIT_S)
        if self._credentials is None:
            raise CredentialsError(self._failure or f"no credentials after {READ_LIMIT_S:g} s")
        return self._credentials

    def refused(self) -> None:
        """See `CredentialSource.refused`. The next request reads again, but not within `RETRY_S` of the last read."""
        if self._due is not None:
            self._due = min(self._due, self._began_at + RETRY_S)
            self._stale_at = -math.inf

    def _finish(self, reading: asyncio.Future[Credentials]) -> None:
        self._reading = None
        now = reading.get_loop().time()
        error = reading.exception()
        if error is None:
            self._credentials = reading.result()
            self._due = now + max(self._credentials.fresh_s, RETRY_S)
            self._stale_at = now + max(self._credentials.fresh_s * STALE, RETRY_S)
            return
        self._due = now + RETRY_S
        self._failure = error.message if isinstance(error, CredentialsError) else f"a {type(error).__name__}"
        if self._credentials is not None:
            log.warning("credentials_not_refreshed", error=self._failure)


PLUGIN_SHARE: Final = 0.8
"""A plugin's credentials are asked for again after this part of their life: early enough for a few failed attempts, and never
at every request, which a fixed margin would mean for short-lived ones."""
_Stamp = tuple[tuple[int, int], ...]


def authorization(value: str, where: str) -> str:
    """Check a whole Authorization header that came from `where`. Raises CredentialsError without quoting it."""
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise CredentialsError(f"{where} contains characters that are not allowed in a header")
    return value


@dataclass(slots=True)
class FileReader:
    """Files of a token and a certificate, both optional; `context` serves until they change. For one thread at a time."""

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
    """A credential plugin: `run` returns its token, certificate or both; `context` is used without a certificate."""

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
            raise CredentialsError(f"credential plugin {self.name} cannot be started: {error}") from error
        except CredentialsError as error:
            raise CredentialsError(f"credential plugin {self.name} failed: {error.message}") from error.__cause__
        except Exception:  # noqa: BLE001 - whatever it answered; what is raised may quote it, so it is not a cause
            raise CredentialsError(
                f"credential plugin {self.name} failed: it did not print a valid ExecCredential"
            ) from None

    def _credentials(self, status: Mapping[str, str]) -> Credentials:
        token, certificate, key = (status.get(name) for name in ("token", "clientCertificateData", "clientKeyData"))
        if not token and not (certificate and key):
            raise CredentialsError("it returned neither a token nor a client certificate and key")
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
