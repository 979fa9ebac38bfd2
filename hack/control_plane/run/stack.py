"""Start the parts of one control plane in order, and wait until they truly serve.

In: the programs, the instance's folder, ports. Out: running parts. Ready means: the API server's /readyz is ok, the
controller manager is healthy, and namespace `default` has its service account, so that pods can be created. Used by the
keeper alone, in its one thread; `pause` is the keeper's, which raises when its owner is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.control_plane.build.binaries import Binaries, version_of
from hack.control_plane.build.commands import ControlPlaneError, log_tail
from hack.control_plane.run import parts
from hack.control_plane.run.folders import PartState, died_message, write_kubeconfig
from hack.control_plane.run.pki import Authority, Credential
from hack.kubernetes_versions import TOKENS_BY_REQUEST

# One started part of a control plane: a process that dies with the process that started it.
#
# The kernel kills a part when its parent thread ends (PR_SET_PDEATHSIG), however that ends. So parts must be started by the
# main thread of a process that lives as long as they are needed; the keeper is that process and has no other thread.


PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
GARBAGE_PERCENT = "300"
"""Go's GOGC for the parts, unless the caller's environment says otherwise. There is enough memory, but tests and measurements
are limited by the cores; at the default of 100, kube-apiserver spends a tenth of its CPU time on garbage collection."""
KILL_WAIT_S = 10.0  # the kernel ends a killed process at once, unless the disk hangs

_libc = ctypes.CDLL(None, use_errno=True)  # looked up before any fork, where loading a library is not safe


class PartDiedError(ControlPlaneError):
    """A part ended that should still run; the message contains the end of its log."""


class PortTakenError(PartDiedError):
    """A part ended because somebody else took its port between our choice and its start."""


class Part:
    """A program of the control plane with its log; invariant: at most one process of it runs at a time."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last start, 0 if there was none."""
        return self._process.pid if self._process else 0

    def start(self, command: Sequence[str], cwd: Path) -> None:
        """Start the program; its output is added to the log."""
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died between the fork and the line above
                os._exit(1)

        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env={"GOGC": GARBAGE_PERCENT, **os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - safe here: the keeper has one thread
                )
            except OSError as error:
                raise ControlPlaneError(f"cannot start {command[0]}: {error}") from error

    def exit_code(self) -> int | None:
        """Return how the process ended, None while it runs."""
        return self._process.poll() if self._process else None

    def check(self) -> None:
        """Raise PartDiedError, or PortTakenError, if the process has ended."""
        code = self.exit_code()
        if code is None:
            return
        tail = log_tail(self.log)
        kind = PortTakenError if "address already in use" in tail else PartDiedError
        raise kind(died_message(self.name, code, self.log))

    def end(self) -> None:
        """Ask the process to end (SIGTERM)."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once: nothing here is worth saving, and a graceful end waits for every open watch."""
        if self._process is None:
            return
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=KILL_WAIT_S)


# Small HTTPS requests to the parts of a control plane, for readiness and for tests that need etcd itself.
#
# In: a port on loopback, the authority and a client's credential. Out: the status and the body. The status is 0 if the server
# does not respond: while a control plane starts, that is no error.


NO_RESPONSE = 0


class Requester:
    """Sends requests to the servers of one control plane with one client certificate, each on a new connection by default."""

    def __init__(self, authority: Path, credential: Credential, timeout_s: float = 5.0) -> None:
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(credential.certificate, credential.key)
        self._timeout = timeout_s

    def get(self, port: int, path: str) -> tuple[int, bytes]:
        """Return the status and the body of a GET."""
        return self._ask("GET", port, path, None)

    def post(self, port: int, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of a POST of JSON."""
        return self._ask("POST", port, path, body)

    def connect(self, port: int) -> http.client.HTTPSConnection:
        """Return a connection for many requests. It opens with the first one; the caller closes it."""
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=self._timeout, context=self._context)

    def _ask(self, method: str, port: int, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self.connect(port)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return NO_RESPONSE, b""
        finally:
            connection.close()


START_LIMIT_S = 90.0  # five to seven seconds on a quiet machine with two cores; a busy one must not fail for that
POLL_S = 0.05
END_LIMIT_S = 90.0  # an API server that is asked to end waits for a minute at most for those who watch it
BALANCER = "balancer"
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
        *,
        shape: parts.Shape = parts.SINGLE,
    ) -> None:
        self._folder = folder
        self._binaries = binaries
        self._apiserver_version = version_of(binaries.kube_apiserver)
        self._manager_version = version_of(binaries.kube_controller_manager)
        self._extra_args = extra_apiserver_args
        self._extra_controllers = extra_controllers
        self._pause = pause
        self._shape = shape
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._etcds = [self._part(name) for name in shape.etcds]
        self._apiservers = [self._part(name) for name in shape.servers]
        self._balancers = [] if shape.is_single else [self._part(BALANCER)]
        self._manager = self._part("kube-controller-manager")
        self._parts = [*self._etcds, *self._apiservers, *self._balancers, self._manager]
        self._commands: dict[str, list[str]] = {}
        self._served: dict[str, tuple[int, str]] = {}
        """At which port and path each part says that it serves."""
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
            kubelet_client=self._authority.client(
                "kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"]
            ),
            token_signer=self._authority.token_signer(),
            controller_manager_kubeconfig=pki / "kube-controller-manager.kubeconfig",
        )
        addresses = [parts.LOOPBACK, parts.FIRST_SERVICE_ADDRESS]
        # Several API servers have certificates of their own, which can expire without those of etcd.
        self._serving = (
            [None] if shape.is_single else [self._authority.server(name, addresses) for name in shape.servers]
        )
        # Short: while it waits for an answer, the keeper does not see that its owner ended.
        self._request = Requester(self._authority.certificate, self._admin, timeout_s=2.0)

    def start(self, ports: parts.Ports) -> None:
        """Start all parts and return when the control plane is ready."""
        self._write_kubeconfigs(f"https://{parts.LOOPBACK}:{ports.server}")
        self._describe(ports)
        deadline = time.monotonic() + START_LIMIT_S
        for group, path in ((self._etcds, ""), (self._apiservers, "/healthz/etcd"), (self._balancers, "")):
            for part in group:
                self._launch(part)
            for part in group:
                self._until(deadline, part, lambda part=part, path=path: self._serves(part, path))  # type: ignore[misc]
        self._launch(self._manager)
        for part in (*self._apiservers, self._manager):
            self._until(deadline, part, lambda part=part: self._serves(part))  # type: ignore[misc]
        self._until(deadline, self._manager, lambda: self._has_account(ports.server))

    def _describe(self, ports: parts.Ports) -> None:
        """Note the commands of all parts, and where they say that they serve."""
        programs, files, shape = self._binaries, self._files, self._shape
        for number, etcd in enumerate(self._etcds):
            self._commands[etcd.name] = (
                parts.etcd_command(programs.etcd, files, ports, shape.etcd_quota_bytes)
                if shape.etcd_members == 1
                else parts.etcd_member_command(programs.etcd, files, ports, shape, number)
            )
            self._served[etcd.name] = (ports.etcds[number], "/health")
        reached = {"etcd": parts.etcd_flags(files, ports)} if shape.etcd_members > 1 else {}
        for number, apiserver in enumerate(self._apiservers):
            self._commands[apiserver.name] = parts.kube_apiserver_command(
                programs.kube_apiserver,
                files,
                ports.apiservers[number],
                self._extra_args if number == 0 else self._unaudited(),
                serving=self._serving[number],
                **reached,
            )
            self._served[apiserver.name] = (ports.apiservers[number], "/readyz")
        for balancer in self._balancers:
            self._commands[balancer.name] = parts.balancer_command(ports)
            self._served[balancer.name] = (ports.balancer, "/healthz/etcd")
        self._commands[self._manager.name] = parts.kube_controller_manager_command(
            programs.kube_controller_manager, files, ports, self._manager_version, self._extra_controllers
        )
        self._served[self._manager.name] = (ports.kube_controller_manager, "/healthz")

    def restart(self, name: str) -> None:
        """Kill a part and start it again as it was: same port, same data; return when it serves."""
        self.kill_part(name)
        self.start_again(name)

    def kill_part(self, name: str) -> None:
        """Kill a part."""
        self._named(name).kill()

    def end_part(self, name: str) -> None:
        """Ask a part to end, and wait until it has; one that does not is killed."""
        part = self._named(name)
        part.end()
        deadline = time.monotonic() + END_LIMIT_S
        while part.exit_code() is None and time.monotonic() < deadline:
            self._pause(POLL_S)
        part.kill()

    def start_again(self, name: str) -> None:
        """Start a part that has ended, as it was; return when it serves."""
        part = self._named(name)
        self._launch(part)
        self._until(time.monotonic() + START_LIMIT_S, part, lambda: self._serves(part), others=False)

    def _named(self, name: str) -> Part:
        found = next((part for part in self._parts if part.name == name and name in self._served), None)
        if found is None:
            raise ControlPlaneError(f"there is no part {name!r} to restart")
        return found

    def _serves(self, part: Part, path: str = "") -> bool:
        port, usual = self._served[part.name]
        return self._is_ok(port, path or usual)

    def _part(self, name: str) -> Part:
        return Part(name, self._logs / f"{name}.log")

    def _unaudited(self) -> list[str]:
        """Return the flags of all API servers but the first one: two processes do not share a file."""
        return [flag for flag in self._extra_args if not flag.startswith("--audit-")]

    def start_another_apiserver(self, port: int, socket_file: str) -> None:
        """Start one more API server, which reaches etcd by a socket of its own, and return when it serves.

        It has the flags of the first one, but audits nothing: two processes do not share the file.
        """
        number = len(self._parts) - 1
        part = self._part(f"kube-apiserver-{number}")
        self._commands[part.name] = parts.kube_apiserver_command(
            self._binaries.kube_apiserver,
            self._files,
            port,
            self._unaudited(),
            etcd=[f"--etcd-servers=unix://{socket_file}"],
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
        if part in self._etcds:  # one that was killed leaves its socket, and would not start again
            (self._folder / parts.ETCD_SOCKET_FILE).unlink(missing_ok=True)
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
