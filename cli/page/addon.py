"""The page as an addon of a cluster: it reads with rights of its own, and shows each viewer what they may see."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.kubeconfig import Access
from tfjob_operator.cli.page.cluster_entrance import ClusterEntrance, RequestHeaders, exposition
from tfjob_operator.cli.page.entrance import read_files
from tfjob_operator.cli.page.reviews import Reviews
from tfjob_operator.cli.page.run import listening, reading
from tfjob_operator.cli.page.server import Page
from tfjob_operator.cli.page.streams import Streams

RENEWED_S: Final = 60.0
"""How often the certificate is read again: those of cert-manager live for some weeks, and are replaced in their files."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of the server's certificate and key, and of the authority of the proxies' client certificates."""

    certificate: Path
    key: Path
    clients: Path | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to serve. `read` returns the access to the server for a namespace, None for its own.

    `namespace` is the only one to show, "" for all. `hosts` are the names that the page may be called by, any if there are
    none; `audiences` those that a token may be meant for. Without a `certificate` the page speaks plain HTTP.
    """

    read: Callable[[str | None], Access]
    on: socket.socket
    namespace: str = ""
    hosts: frozenset[str] = frozenset()
    audiences: tuple[str, ...] = ()
    certificate: Certificate | None = None
    proxies: RequestHeaders | None = None


async def run(plan: Plan) -> None:
    """Serve until it is cancelled. Raises CliError where the API server cannot be asked, or a certificate not be used."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    async with serving(plan):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(plan: Plan) -> AsyncIterator[None]:
    """Serve as long as the block lasts. Raises CliError."""
    tls = _context(plan.certificate) if plan.certificate is not None else None
    files = read_files()
    async with reading(plan.read, everywhere=not plan.namespace, shared=True) as parts:
        reviews = Reviews(parts.client, plan.audiences)
        cluster, streams = parts.cluster, Streams(parts.board)
        entrance = ClusterEntrance(
            reviews,
            lambda: cluster.has_synced,
            lambda: exposition(reviews.counts, len(streams), len(cluster)),
            scope=plan.namespace,
            hosts=plan.hosts,
            proxies=plan.proxies,
        )
        page = Page(entrance, cluster, parts.details, streams, files)
        renewing = asyncio.create_task(_renew(tls, plan.certificate), name="certificate")
        try:
            async with listening(page, plan.on, tls):
                yield
        finally:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
            await reviews.close()


def _context(files: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, password="")  # without one OpenSSL would ask the terminal
        if files.clients is not None:
            context.load_verify_locations(files.clients)
            context.verify_mode = ssl.CERT_OPTIONAL  # browsers have none
    except OSError as error:
        raise CliError(f"the certificate of the page, or its key or authority, can not be used: {error}") from error
    return context


async def _renew(context: ssl.SSLContext | None, files: Certificate | None) -> None:
    """Read the certificate again and again: connections that are made from then on get what is in its files."""
    while context is not None and files is not None:
        await asyncio.sleep(RENEWED_S)
        try:
            await asyncio.to_thread(context.load_cert_chain, files.certificate, files.key, "")
        except OSError as error:  # they are being replaced, or wrong: the old one goes on
            structlog.get_logger().warning("certificate_not_renewed", error=str(error))
