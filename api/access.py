"""The address of an API server and the credentials for it, from a pod or a kubeconfig, for the client and the plugin.

Only the standard library is imported: command-line programs load this at every start.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory with the token of a pod, and with the CA that signed the API server's certificate."""
SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
REFRESH_S: Final = 60.0
"""The age at which files are read again. The kubelet replaces a token when a fifth of its lifetime is left, at least two
minutes before it expires; client-go also reads it once a minute."""


class AccessError(Exception):
    """A kubeconfig, a service account or a credential plugin cannot be used.

    The message is for users and contains no secret.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a server. Certificates and keys are PEM, or None.

    `context` is the name of the context in the kubeconfig, or "" inside a pod. `authorization` is a whole header value, and
    `impersonate` lists the impersonation headers of each request. `plugin` runs a credential plugin and returns the access with
    the plugin's credentials. True as the second argument of `plugin` suppresses terminal output. Credentials are fresh for
    `fresh_s` seconds. `timeout_s` limits a response; None sets no limit.
    """

    server: str = field(repr=False)
    namespace: str = "default"
    context: str = ""
    authority: str | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)
    plugin: Callable[[Access, bool], Access] | None = field(default=None, repr=False)
    impersonate: tuple[tuple[str, str], ...] = ()
    fresh_s: float = REFRESH_S
    timeout_s: float | None = 30.0

    def log_in(self, *, quiet: bool = False) -> Access:
        """Return the access with credentials; may run a plugin. Blocks; raises AccessError."""
        return self if self.plugin is None else self.plugin(self, quiet)

    @property
    def shown(self) -> str:
        """The server's URL for display, without user, password and query, which may be secrets."""
        url = urlsplit(self.server)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    def route(self) -> tuple[SplitResult, SplitResult | None]:
        """Return the addresses of the server and of its proxy, if any. Raises AccessError."""
        server = _address("API server", self.server, "https")
        proxy = self.proxy or proxy_of_environment(self.server)
        return server, _address("proxy", proxy, "http") if proxy else None

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a context for this server and client certificate; None for http. Raises AccessError."""
        if urlsplit(self.server).scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cadata=self.authority)
            # By default Python 3.13 rejects CAs that kubeadm has created and that all other clients accept.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate and self.key:
                _load(context, f"{self.certificate}\n{self.key}\n".encode())
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise AccessError(f"invalid certificate or key: {error}") from error
        return context


def _load(context: ssl.SSLContext, pair: bytes) -> None:
    """Load a client certificate.

    OpenSSL reads only files. Uses an in-memory file if the system supports it, else a private temporary file.
    """
    no_password = ""  # an encrypted key then fails instead of prompting on the terminal
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("client-certificate")
        try:
            os.write(memory, pair)
            context.load_cert_chain(f"/proc/self/fd/{memory}", password=no_password)
        finally:
            os.close(memory)
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="client-certificate-") as private:
        file = Path(private, "pair")
        file.write_bytes(pair)
        context.load_cert_chain(file, password=no_password)


def bearer(token: str, where: str) -> str:
    """Return the Authorization header for a token read from `where`. Raises AccessError."""
    if not token.strip():
        raise AccessError(f"{where} is empty")
    return checked_header(f"Bearer {token.strip()}", where)


def checked_header(value: str, where: str) -> str:
    """Return the value of a header read from `where`. Raises AccessError if it is not valid."""
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise AccessError(f"{where} contains characters that are not allowed in a header")
    return value


def basic(name: str, password: str) -> str:
    """Return the Authorization header for a user and a password."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises AccessError if it cannot be read or is empty: an empty CA file would mean trusting the system's CAs.
    """
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise AccessError(f"cannot read {path}: {error.strerror}") from error
    if not text.strip():
        raise AccessError(f"{path} is empty")
    return text


def in_pod() -> bool:
    """Return True in a pod with a service account."""
    return bool(os.environ.get(SERVICE_HOST)) and (SERVICE_ACCOUNT / "token").is_file()


def access_of_pod(server: str | None = None) -> Access:
    """Return the access of a pod to its own cluster, like client-go's InClusterConfig; `server` overrides the URL.

    Raises AccessError.
    """
    host, port = os.environ.get(SERVICE_HOST), os.environ.get(SERVICE_PORT)
    if not server and not (host and port):
        raise AccessError(f"{SERVICE_HOST} and {SERVICE_PORT} must both be set")
    server = (server or f"https://{f'[{host}]' if ':' in (host or '') else host}:{port}").rstrip("/")
    own, token = SERVICE_ACCOUNT / "namespace", SERVICE_ACCOUNT / "token"
    return Access(
        server,
        namespace=read_text(own).strip() if own.is_file() else "default",
        authority=read_text(SERVICE_ACCOUNT / "ca.crt") if server.startswith("https:") else None,
        authorization=bearer(read_text(token), str(token)),
    )


def _address(what: str, url: str, usual: str) -> SplitResult:
    """Parse an address; `usual` is the default scheme. Errors do not quote the address, which may contain a password."""
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and (parts.hostname or "").encode("idna") and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise AccessError(f"the address of the {what} must have the form {usual}://host:port")


def proxy_of_environment(server: str) -> str | None:
    """Return the proxy for a server from the environment, by the rules of Go's clients (`httpproxy`).

    None for loopback addresses, and for the hosts, domains and networks in NO_PROXY.
    """
    url = urlsplit(server)
    proxy = _variable(f"{url.scheme}_proxy")
    if not proxy:
        return None
    from ipaddress import ip_address

    host = url.hostname or ""
    port = str(url.port or (443 if url.scheme == "https" else 80))
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return None
    for entry in _variable("no_proxy").lower().split(","):
        if _matches(entry.strip(), host, port, address):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _matches(entry: str, host: str, port: str, address: object) -> bool:
    """Return True if an entry of NO_PROXY matches: "*", an address, a network or a domain, with or without a port."""
    from ipaddress import ip_network

    name, _, only = entry.rpartition(":")
    if name and only.isdecimal() and (":" not in name or name.startswith("[")):
        return only == port and _matches(name.strip("[]"), host, port, address)
    if address is None:
        return entry in {"*", host} or (entry != "" and host.endswith(f".{entry.removeprefix('*').removeprefix('.')}"))
    try:
        return entry == "*" or address in ip_network(entry, strict=False)
    except ValueError:
        return False  # the name of a host or domain


def _variable(name: str) -> str:
    return os.environ.get(name.upper()) or os.environ.get(name) or ""
