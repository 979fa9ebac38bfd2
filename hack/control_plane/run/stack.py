"""Start the parts of one control plane in order, and wait until they truly serve.

In: the programs, the instance's folder, ports. Out: running parts. Ready means: the API server's /readyz is ok, the
controller manager is healthy, and namespace `default` has its service account, so that pods can be created. Used by the
keeper alone, in its one thread; `pause` is the keeper's, which raises when its owner is gone.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from hack.control_plane.build.binaries import version_of
from hack.control_plane.errors import ControlPlaneError, log_tail
from hack.control_plane.run import parts
from hack.control_plane.run.kubeconfig import write_kubeconfig
from hack.control_plane.run.pki import Authority
from hack.control_plane.run.probes import Requester
from hack.control_plane.run.processes import Part
from hack.control_plane.run.state import PartState
from hack.kubernetes_versions import TOKENS_BY_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hack.control_plane.build.binaries import Binaries

START_LIMIT_S = 90.0  # five to seven seconds on a quiet machine with two cores; a busy one must not fail for that
POLL_S = 0.05
ACCOUNT_PATH = "/api/v1/namespaces/default/serviceaccounts/default"


class Stack:
    """The parts of one instance; invariant: `kill` leaves no process, whatever happened before."""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        extra_apiserver_args: Sequence[str],
        extra_controllers: Sequence[str],
        pause: Callable[[float], None],
    ) -> None:
        self._folder = folder
        self._binaries = binaries
        self._apiserver_version = version_of(binaries.kube_apiserver)
        self._manager_version = version_of(binaries.kube_controller_manager)
        self._extra_args = extra_apiserver_args
        self._extra_controllers = extra_controllers
        self._pause = pause
        logs = folder / "logs"
        logs.mkdir()
        self._etcd = Part("etcd", logs / "etcd.log")
        self._apiserver = Part("kube-apiserver", logs / "kube-apiserver.log")
        self._manager = Part("kube-controller-manager", logs / "kube-controller-manager.log")
        self._parts = [self._etcd, self._apiserver, self._manager]
        self._commands: dict[str, list[str]] = {}
        pki = folder / "pki"
        pki.mkdir()
        self._authority = Authority.make(pki)
        self._admin = self._authority.client("admin", "admin", ["system:masters"])
        self._manager_client = self._authority.client(
            "kube-controller-manager", "system:kube-controller-manager", ["system:masters"]
        )
        self._authority.client("etcd-client", "etcd-client")  # for whoever calls etcd itself
        self._files = parts.Files(
            folder=folder,
            authority=self._authority,
            server=self._authority.server("server", [parts.LOOPBACK, parts.FIRST_SERVICE_ADDRESS]),
            token_signer=self._authority.token_signer(),
            controller_manager_kubeconfig=pki / "kube-controller-manager.kubeconfig",
        )
        # Short: while it waits for an answer, the keeper does not see that its owner ended.
        self._request = Requester(self._authority.certificate, self._admin, timeout_s=2.0)

    def start(self, ports: parts.Ports) -> None:
        """Start all parts and return when the control plane is ready."""
        self._write_kubeconfigs(f"https://{parts.LOOPBACK}:{ports.kube_apiserver}")
        programs, files = self._binaries, self._files
        self._commands = {
            self._etcd.name: parts.etcd_command(programs.etcd, files, ports),
            self._apiserver.name: parts.kube_apiserver_command(
                programs.kube_apiserver, files, ports.kube_apiserver, self._extra_args
            ),
            self._manager.name: parts.kube_controller_manager_command(
                programs.kube_controller_manager, files, ports, self._manager_version, self._extra_controllers
            ),
        }
        deadline = time.monotonic() + START_LIMIT_S
        self._launch(self._etcd)
        self._until(deadline, self._etcd, lambda: self._is_ok(ports.etcd, "/health"))
        self._launch(self._apiserver)
        self._until(deadline, self._apiserver, lambda: self._is_ok(ports.kube_apiserver, "/healthz/etcd"))
        self._launch(self._manager)
        self._until(deadline, self._apiserver, lambda: self._is_ok(ports.kube_apiserver, "/readyz"))
        self._until(deadline, self._manager, lambda: self._is_ok(ports.kube_controller_manager, "/healthz"))
        self._until(deadline, self._manager, lambda: self._has_account(ports.kube_apiserver))

    def restart(self, name: str, ports: parts.Ports) -> None:
        """Kill a part and start it again as it was: same port, same data; return when it serves."""
        paths = {
            self._etcd.name: (self._etcd, ports.etcd, "/health"),
            self._apiserver.name: (self._apiserver, ports.kube_apiserver, "/readyz"),
            self._manager.name: (self._manager, ports.kube_controller_manager, "/healthz"),
        }
        if name not in paths:
            raise ControlPlaneError(f"there is no part {name!r} to restart")
        part, port, path = paths[name]
        part.kill()
        self._launch(part)
        self._until(time.monotonic() + START_LIMIT_S, part, lambda: self._is_ok(port, path), others=False)

    def start_another_apiserver(self, port: int, socket_file: str) -> None:
        """Start one more API server, which reaches etcd by a socket of its own, and return when it serves.

        It has the flags of the first one, but audits nothing: two processes do not share the file.
        """
        number = len(self._parts) - 1
        part = Part(f"kube-apiserver-{number}", self._folder / "logs" / f"kube-apiserver-{number}.log")
        flags = [flag for flag in self._extra_args if not flag.startswith("--audit-")]
        self._commands[part.name] = parts.kube_apiserver_command(
            self._binaries.kube_apiserver, self._files, port, flags, etcd=f"unix://{socket_file}"
        )
        self._launch(part)
        try:
            self._until(time.monotonic() + START_LIMIT_S, part, lambda: self._is_ok(port, "/readyz"), others=False)
        except BaseException:
            part.kill()
            raise
        self._parts.append(part)

    def states(self) -> tuple[PartState, ...]:
        """Return every part as it is now."""
        return tuple(PartState(part.name, part.pid, str(part.log), part.exit_code()) for part in self._parts)

    def kill(self) -> None:
        """End all parts, clients before servers so that no log fills up with complaints."""
        for part in reversed(self._parts):
            part.kill()

    def _launch(self, part: Part) -> None:
        part.start(self._commands[part.name], self._folder)

    def _until(self, deadline: float, part: Part, done: Callable[[], bool], *, others: bool = True) -> None:
        while not done():
            for watched in self._parts if others else (part,):
                watched.check()
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{part.name} was not ready in {START_LIMIT_S:.0f} s; {log_tail(part.log)}")
            self._pause(POLL_S)

    def _is_ok(self, port: int, path: str) -> bool:
        return self._request.get(port, path)[0] == 200

    def _has_account(self, port: int) -> bool:
        status, body = self._request.get(port, ACCOUNT_PATH)
        if status != 200:
            return False
        # An old API server refuses a pod until the token of its service account exists as a secret.
        return self._apiserver_version.has(TOKENS_BY_REQUEST) or bool(json.loads(body).get("secrets"))

    def _write_kubeconfigs(self, server: str) -> None:
        authority = self._authority.certificate
        write_kubeconfig(
            self._folder / "kubeconfig", server=server, authority=authority, user="admin", credential=self._admin
        )
        write_kubeconfig(
            self._files.controller_manager_kubeconfig,
            server=server,
            authority=authority,
            user="kube-controller-manager",
            credential=self._manager_client,
        )
