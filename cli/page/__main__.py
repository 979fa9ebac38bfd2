"""`python -m tfjob_operator.cli.page`: the page as a cluster add-on, run by a Deployment. Users start `dashboard` instead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import structlog

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.page.cluster import background_tasks
from tfjob_operator.cli.page.cluster_authenticator import ClusterAuthenticator, RequestHeaders, exposition
from tfjob_operator.cli.page.reviews import Reviews
from tfjob_operator.cli.page.run import Read, listening, reading
from tfjob_operator.cli.page.server import Page
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.target import Target

RELOAD_S: Final = 60.0
"""The interval at which the certificate is reloaded: cert-manager replaces its files every few weeks."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of the server's certificate and key, and of the CA of the proxies' client certificates."""

    certificate: Path
    key: Path
    clients: Path | None = None


@dataclass(frozen=True, slots=True)
class ClusterPageOptions:
    """The configuration. `namespace` is the only one to show, "" for all. `hosts` are accepted host names, any if empty.

    `audiences` are accepted audiences of tokens. Without a `certificate` the page is served as plain HTTP.
    """

    read: Read
    listener: socket.socket
    namespace: str = ""
    hosts: frozenset[str] = frozenset()
    audiences: tuple[str, ...] = ()
    certificate: Certificate | None = None
    proxies: RequestHeaders | None = None


@asynccontextmanager
async def serving(plan: ClusterPageOptions) -> AsyncIterator[None]:
    """Serve within the context. Raises CliError."""
    tls = _context(plan.certificate) if plan.certificate is not None else None
    async with reading(plan.read, everywhere=not plan.namespace, shared=True) as parts:
        reviews = Reviews(parts.client, plan.audiences)
        cluster = parts.cluster
        authenticator = ClusterAuthenticator(
            reviews,
            lambda: cluster.has_synced,
            lambda: exposition(reviews.counts, len(page.long_responses), len(cluster)),
            scope=plan.namespace,
            hosts=plan.hosts,
            proxies=plan.proxies,
        )
        page = Page(authenticator, parts)
        try:
            async with background_tasks(_reload(tls, plan.certificate)), listening(page, plan.listener, tls):
                yield
        finally:
            await reviews.close()


def _context(files: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # without a password OpenSSL would prompt for one
        context.load_cert_chain(files.certificate, files.key, password="")
        if files.clients is not None:
            context.load_verify_locations(files.clients)
            context.verify_mode = ssl.CERT_OPTIONAL  # browsers do not have one
    except OSError as error:
        raise CliError(f"cannot load the certificate of the page, its key or its authority: {error}") from error
    return context


async def _reload(context: ssl.SSLContext | None, files: Certificate | None) -> None:
    """Reload the certificate periodically; new connections use the reloaded one."""
    while context is not None and files is not None:
        await asyncio.sleep(RELOAD_S)
        try:
            await asyncio.to_thread(context.load_cert_chain, files.certificate, files.key, "")
        except OSError as error:  # being replaced, or invalid: keep the old one
            structlog.get_logger().warning("certificate_not_reloaded", error=str(error))


PORT: Final = 8080
_FILE: Final = click.Path(path_type=Path)
_MANY: Final[dict[str, Any]] = {"multiple": True, "metavar": "NAME"}
HELP: Final = (
    "Serve the page of TFJobs in a cluster, read-only. TokenReview and SubjectAccessReview check each request, so viewers see "
    "what they could see with kubectl. /healthz, /readyz and /metrics need no token."
)


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--bind-address", default="", metavar="ADDRESS", help="The address to listen on; default all.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="The port to listen on.")
@click.option("--namespace", default="", metavar="NAME", help="Show only the jobs of this namespace.")
@click.option(
    "--host",
    "hosts",
    help="An accepted host name of the page, without port; may be repeated; default any.",
    **_MANY,
)
@click.option(
    "--audience",
    "audiences",
    help="An accepted audience of tokens; may be repeated; default that of the API server.",
    **_MANY,
)
@click.option("--tls-cert-file", type=_FILE, help="The certificate to serve with (PEM). Without it, plain HTTP.")
@click.option("--tls-private-key-file", type=_FILE, help="The key of the certificate.")
@click.option(
    "--requestheader-client-ca-file",
    type=_FILE,
    help="The authority of client certificates of proxies, which name the user in a header.",
)
@click.option(
    "--requestheader-allowed-names",
    help="An accepted common name of such a certificate; may be repeated; required with it.",
    **_MANY,
)
@click.option("--requestheader-username-headers", default=("X-Remote-User",), show_default=True, **_MANY)
@click.option("--requestheader-group-headers", default=("X-Remote-Group",), show_default=True, **_MANY)
@click.option("--requestheader-extra-headers-prefix", default=("X-Remote-Extra-",), show_default=True, **_MANY)
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to read with; in a pod its service account.")
def command(**given: Any) -> None:
    """Serve until SIGTERM."""
    certificate, proxies = _certificate(given), _proxies(given)
    with _listen(given["bind_address"], given["port"]) as listener:
        plan = ClusterPageOptions(
            Target(kubeconfig=given["kubeconfig"], namespace=given["namespace"]).access,
            listener,
            namespace=given["namespace"],
            hosts=frozenset(each.lower() for each in given["hosts"]),
            audiences=given["audiences"],
            certificate=certificate,
            proxies=proxies,
        )
        asyncio.run(_serve(plan))


async def _serve(plan: ClusterPageOptions) -> None:
    """Serve until a signal, which the first process of a container must handle itself. Raises CliError."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    [main] = asyncio.all_tasks()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, main.cancel)
    scheme = "https" if plan.certificate is not None else "http"
    host, port = plan.listener.getsockname()[:2]
    echo(f"listening on {scheme}://{f'[{host}]' if ':' in host else host}:{port}", err=True)
    with contextlib.suppress(asyncio.CancelledError):
        async with serving(plan):
            await asyncio.Event().wait()


def _listen(address: str, port: int) -> socket.socket:
    both = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise CliError(f"cannot listen on {address or '*'}:{port}: {error.strerror or error}") from error


def _certificate(given: dict[str, Any]) -> Certificate | None:
    certificate, key = given["tls_cert_file"], given["tls_private_key_file"]
    clients = given["requestheader_client_ca_file"]
    if bool(certificate) != bool(key):
        raise CliError("--tls-cert-file and --tls-private-key-file must be used together")
    if clients and not certificate:
        raise CliError("--requestheader-client-ca-file requires --tls-cert-file")
    return Certificate(certificate, key, clients) if certificate else None


def _proxies(given: dict[str, Any]) -> RequestHeaders | None:
    names = frozenset(given["requestheader_allowed_names"])
    if bool(names) != bool(given["requestheader_client_ca_file"]):
        raise CliError("--requestheader-client-ca-file and --requestheader-allowed-names must be used together")
    if not names:
        return None
    return RequestHeaders(
        names,
        given["requestheader_username_headers"],
        given["requestheader_group_headers"],
        given["requestheader_extra_headers_prefix"],
    )


if __name__ == "__main__":
    sys.exit(command.main(prog_name="python -m tfjob_operator.cli.page"))
