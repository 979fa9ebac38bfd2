"""The cluster's DNS: keeps dnsmasq's list of names equal to the cluster's services.

    python -m hack.real_node.dns PLANE_FOLDER PORT ADDRESS HOSTS_FILE

A headless service resolves to the addresses of its ready endpoints, any other service to its ClusterIP. If a pod has a hostname
and its subdomain is a headless service, the pod has a DNS name below that of the service. The program exits when dnsmasq exits.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hack.control_plane.run.part import Requester
from hack.control_plane.run.pki import Credential
from hack.real_node.node import CLUSTER_DOMAIN

HEADLESS: Final = "None"
PERIOD_S: Final = 0.3
DNS_PORT: Final = 53


def hosts(services: Iterable[Any], endpoints: Iterable[Any]) -> str:
    """Return the names of services and pods in the format of /etc/hosts. Has no side effects."""
    behind = {
        _key(each): [a for s in each.get("subsets") or () for a in s.get("addresses") or ()] for each in endpoints
    }
    lines = []
    for service in services:
        namespace, own = _key(service)
        name = f"{own}.{namespace}.svc.{CLUSTER_DOMAIN}"
        cluster_ip = service["spec"].get("clusterIP", "")
        if cluster_ip != HEADLESS:
            lines += [f"{cluster_ip} {name}\n"] if cluster_ip else []
            continue
        for address in behind.get((namespace, own), []):
            lines.append(f"{address['ip']} {name}\n")
            if address.get("hostname"):
                lines.append(f"{address['ip']} {address['hostname']}.{name}\n")
    return "".join(sorted(lines))


def _key(item: Any) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def main(plane: Path, port: int, address: str, file: Path) -> None:
    """Serve names until dnsmasq exits."""
    requester = Requester(plane / "pki" / "ca.crt", Credential.of(plane / "pki", "admin"))
    file.write_text("")
    server = subprocess.Popen(
        [
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=root"),
            *("--pid-file=", f"--listen-address={address}", "--bind-interfaces"),
            # Unknown names do not exist, and answers must not be cached, because they change.
            *(f"--addn-hosts={file}", "--address=/#/", "--local-ttl=0"),
        ]
    )
    while server.poll() is None:
        answers = [requester.ask("GET", port, f"/api/v1/{plural}") for plural in ("services", "endpoints")]
        if all(status == 200 for status, _ in answers) and _listens(address):  # earlier, SIGHUP could kill it
            names = hosts(*(json.loads(body)["items"] for _, body in answers))
            if names != file.read_text():
                file.write_text(names)
                server.send_signal(signal.SIGHUP)  # dnsmasq reloads its list
        time.sleep(PERIOD_S)


def _listens(address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, DNS_PORT)) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
