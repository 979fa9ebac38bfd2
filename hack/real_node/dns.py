"""The cluster's DNS: a controller that keeps dnsmasq's list of names equal to the cluster's services.

    python -m hack.real_node.dns KUBECONFIG ADDRESS HOSTS_FILE

The name of a headless service resolves to the addresses of its ready endpoints, that of any other service to its ClusterIP.
A pod with a hostname, and with a headless service as its subdomain, has a name below the service's.
The whole list is one key of the work queue: however many endpoints change at once, it is written once. Ends with SIGTERM, and
when dnsmasq does.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hack.real_node.node import CLUSTER_DOMAIN
from tfjob_operator.api.client import HttpTransport, RestClient, Settings, load_settings
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedInformerFactory
from tfjob_operator.workqueue import RateLimitingQueue, ShutDown, default_controller_rate_limiter

HEADLESS: Final = "None"
ALL: Final = "all"
SYNC_LIMIT_S: Final = 60.0
DNS_PORT: Final = 53


class Address(Struct, frozen=True):
    """An address of an endpoint, and the hostname of its pod if the service is the pod's subdomain."""

    ip: str
    hostname: str = ""


class Subset(Struct, frozen=True):
    """Endpoints with the same ports; only ready ones stand in `addresses`."""

    addresses: tuple[Address, ...] = ()


class Endpoints(Struct, frozen=True):
    """The addresses behind a service."""

    metadata: ObjectMeta
    subsets: tuple[Subset, ...] = ()


class NamedServiceSpec(Struct, frozen=True, rename={"cluster_ip": "clusterIP"}):
    """The part of a service's spec that says how it is reached."""

    cluster_ip: str = ""


class NamedService(Struct, frozen=True):
    """A service with a name in DNS."""

    metadata: ObjectMeta
    spec: NamedServiceSpec


SERVICES: Final = Resource("", "v1", "services", "Service")
ENDPOINTS: Final = Resource("", "v1", "endpoints", "Endpoints")


def hosts(services: Iterable[NamedService], endpoints: Iterable[Endpoints]) -> str:
    """Return the list of names, in the form of /etc/hosts (pure)."""
    behind = {
        (x.metadata.namespace, x.metadata.name): [address for subset in x.subsets for address in subset.addresses]
        for x in endpoints
    }
    lines = []
    for service in services:
        meta = service.metadata
        name = f"{meta.name}.{meta.namespace}.svc.{CLUSTER_DOMAIN}"
        if service.spec.cluster_ip != HEADLESS:
            lines += [f"{service.spec.cluster_ip} {name}\n"] if service.spec.cluster_ip else []
            continue
        for address in behind.get((meta.namespace, meta.name), []):
            lines.append(f"{address.ip} {name}\n")
            if address.hostname:
                lines.append(f"{address.ip} {address.hostname}.{name}\n")
    return "".join(sorted(lines))


async def run(settings: Settings, address: str, file: Path) -> None:
    """Serve names until SIGTERM. Raises the exception of a task that fails."""
    file.write_text("")  # noqa: ASYNC240 - a small file, nobody else on this loop
    server = await asyncio.create_subprocess_exec(
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=root"),
        *("--pid-file=", f"--listen-address={address}", "--bind-interfaces"),
        # What is not in the list does not exist, and no answer may be kept: the next one may differ.
        *(f"--addn-hosts={file}", "--address=/#/", "--local-ttl=0"),
    )
    async with HttpTransport(settings) as transport, asyncio.TaskGroup() as tasks:
        factory = SharedInformerFactory(RestClient(transport))
        services = factory.informer(Codec(SERVICES, NamedService))
        endpoints = factory.informer(Codec(ENDPOINTS, Endpoints))
        queue: RateLimitingQueue[str] = RateLimitingQueue(default_controller_rate_limiter())
        for informer in (services, endpoints):
            informer.add_event_handler(
                EventHandlerFuncs(
                    on_add=lambda _, __: queue.add(ALL),
                    on_update=lambda _, __: queue.add(ALL),
                    on_delete=lambda _: queue.add(ALL),
                )
            )

        async def work() -> None:
            while True:
                try:
                    key = await queue.get()
                except ShutDown:
                    return
                file.write_text(hosts(services.indexer.list(), endpoints.indexer.list()))  # noqa: ASYNC240 - as above
                server.send_signal(signal.SIGHUP)  # dnsmasq reads its list again
                queue.done(key)

        factory.start(tasks)
        await factory.wait_for_cache_sync(SYNC_LIMIT_S)
        async with asyncio.timeout(SYNC_LIMIT_S):
            await _until_it_listens(address)  # before that a SIGHUP might end it
        tasks.create_task(work(), name="dns-worker")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.terminate)
        await server.wait()
        queue.shut_down()
        await factory.shut_down()


async def _until_it_listens(address: str) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(address, DNS_PORT)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return


if __name__ == "__main__":
    asyncio.run(run(load_settings(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
