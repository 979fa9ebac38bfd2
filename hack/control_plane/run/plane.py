"""A running control plane as tests and the demo use it.

    with ControlPlane.start() as plane:
        plane.run_kubectl("apply", "--server-side", "-f", "manifests/base/crd.yaml")

It consists of a real etcd, a kube-apiserver with RBAC and TLS, and the controllers that the operator's objects need. It stops
at the end of the `with` block, with the process, or with `stop`. If the process is killed, the kernel kills all parts, and
the next start deletes the folder.
"""

import datetime as dt
import functools
import hashlib
import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from hack import packages
from hack.control_plane.build.binaries import Binaries, find_or_build, version_of
from hack.control_plane.build.commands import ControlPlaneError, log_tail
from hack.control_plane.run import folders, parts
from hack.control_plane.run.part import Part, PortTakenError, Requester
from hack.control_plane.run.parts import ETCD_SOCKET_FILE, FIRST_SERVICE_ADDRESS, LOOPBACK, SINGLE, Shape
from hack.control_plane.run.pki import VALIDITY, Authority, Credential
from hack.kubernetes_versions import LISTS_FROM_SNAPSHOTS, TOKENS_BY_REQUEST, Kubernetes
from hack.stoppable import Stoppable

GAVE_UP = "failed to wait for apiserver being healthy"
"""What a controller manager logs before it exits because the API server took longer than 10s to start, as on a busy machine."""
START_LIMIT_S = 90.0  # five to seven seconds on a quiet machine with two cores; a busy one must not fail for that
PORT_TRIES = 5
POLL_S = 0.05
END_LIMIT_S = 90.0  # on SIGTERM an API server waits up to a minute for its watches
KUBECTL_LIMIT_S = 120.0
ACCOUNT_LIMIT_S = 30.0  # a service account and its token appear within a second unless the machine is overloaded
MANAGER, BALANCER = "kube-controller-manager", "balancer"
HAPROXY = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
"""Debian's packages of the balancer. They are unpacked and not installed, because installing starts a service."""


class ControlPlane(Stoppable):
    """A control plane that this process owns; invariant: `stop` removes all of it.

    All calls block. Only `run_kubectl` and `request` are thread-safe.
    """

    def __init__(
        self,
        held: folders.HeldFolder,
        binaries: Binaries,
        extra_apiserver_args: Sequence[str],
        extra_controllers: Sequence[str],
        shape: Shape,
    ) -> None:
        """Use `start`."""
        self.directory = held.path
        self.kubeconfig = self.directory / "kubeconfig"
        self.kubectl = self.directory / "bin" / "kubectl"
        self.etcd_socket = self.directory / ETCD_SOCKET_FILE
        self.etcds = shape.etcds
        """The names of etcd's members."""
        self.apiservers = shape.servers
        """The names of the API servers. If there are several, `server` is the balancer in front of them."""
        self._held = held
        self._binaries = binaries
        self._extra_args = extra_apiserver_args
        self._extra_controllers = extra_controllers
        self._shape = shape
        self._pki = self.directory / "pki"
        for folder in (self._pki, self.directory / "logs"):
            folder.mkdir()
        balancers = [BALANCER] if shape.apiservers > 1 else []
        self._parts = {name: self._part(name) for name in (*shape.etcds, *shape.servers, *balancers, MANAGER)}
        self._commands: dict[str, list[str]] = {}
        self._authority = Authority.make(self._pki)
        admin = self._authority.client("admin", "admin", ["system:masters"])
        self._authority.client(MANAGER, f"system:{MANAGER}", ["system:masters"])
        self._authority.client("kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"])
        self._authority.make_token_signer()
        for name in ("server", *shape.servers):
            self._authority.server(name, [LOOPBACK, FIRST_SERVICE_ADDRESS])
        self._requester = Requester(self._authority.certificate, admin, timeout_s=30.0)
        self._probe = Requester(self._authority.certificate, admin, timeout_s=2.0)
        self._lock = threading.Lock()
        self._kept = self._requester.connect(0)  # the value from `start`, once the port is chosen
        self._is_stopped = False

    @classmethod
    def start(
        cls,
        name: str = "test",
        *,
        extra_apiserver_args: Sequence[str] = (),
        extra_controllers: Sequence[str] = (),
        shape: Shape = SINGLE,
    ) -> Self:
        """Start a control plane and return when it is ready: in seconds, or in minutes if it must be built first.

        Ready means that the API server's /readyz is ok, the controller manager is healthy, and the namespace `default` has its
        service account. `name` is only a label of its folder. If a flag occurs twice, kube-apiserver uses the last one, so
        `extra_apiserver_args` override the others. `extra_controllers` (`endpoint`, `deployment`) run in addition to
        `parts.CONTROLLERS`. With `shape` there are several etcd members and API servers, and all clients use a balancer.
        """
        programs = find_or_build()
        folders.sweep()
        plane = cls(folders.make(name), programs, extra_apiserver_args, extra_controllers, shape)
        try:
            plane._start()
        except BaseException:
            plane.stop()
            raise
        return plane

    def _start(self) -> None:
        for attempt in range(1, PORT_TRIES + 1):
            self._ports = parts.choose_ports(shape=self._shape)
            try:
                self._start_parts()
            except PortTakenError:
                self._kill_parts()
                if attempt == PORT_TRIES:
                    raise
            else:
                break
        self._kept = self.connect()
        self.kubectl.parent.mkdir()
        # By default kubectl would leave a cache in ~/.kube for every port that an instance ever used.
        self.kubectl.write_text(
            f'#!/bin/sh\ncommand -v "kubectl-$1" >/dev/null && exec "{self._binaries.kubectl}" "$@"'
            "  # no flag may stand before a plugin\n"
            f'exec "{self._binaries.kubectl}" --cache-dir="{self.directory / "kubectl-cache"}" "$@"\n'
        )
        self.kubectl.chmod(0o755)

    def _start_parts(self) -> None:
        for file, user in ((self.kubeconfig, "admin"), (self._pki / f"{MANAGER}.kubeconfig", MANAGER)):
            self._write_kubeconfig(file, user, Credential.of(self._pki, user))
        self._describe()
        for group in (self.etcds, self.apiservers, [*self._parts][len(self.etcds) + len(self.apiservers) :]):
            for name in group:
                self._launch(name)
            for name in group:
                # An API server is ready only when the other parts and the controllers that it waits for can reach it.
                path = "/healthz/etcd" if name in self.apiservers else ""
                self._until(name, functools.partial(self._serves, name, path), others=True)
        for name in self.apiservers:
            self._until(name, functools.partial(self._serves, name), others=True)
        self._until(MANAGER, lambda: self._account_is_ready("default"), others=True)

    def _describe(self) -> None:
        """Set the commands of all parts and their health endpoints."""
        ports, programs = self._ports, self._binaries
        self._serving = {name: (port, "/health") for name, port in zip(self.etcds, ports.etcds, strict=True)}
        for number, name in enumerate(self.etcds):
            self._commands[name] = parts.etcd_command(programs.etcd, self.directory, ports, self._shape, number)
        for name, port in zip(self.apiservers, ports.apiservers, strict=True):
            extra = self._extra_args if name == self.apiservers[0] else self._unaudited()
            self._commands[name] = self._apiserver_command(port, name, parts.etcd_flags(self.directory, ports), extra)
            self._serving[name] = port, "/readyz"
        if BALANCER in self._parts:
            settings = self.directory / "haproxy.cfg"
            settings.write_text(parts.haproxy_settings(ports))
            self._commands[BALANCER] = [*_haproxy(), "-db", "-f", str(settings)]
            self._serving[BALANCER] = ports.balancer, "/healthz/etcd"
        self._commands[MANAGER] = parts.kube_controller_manager_command(
            programs.kube_controller_manager,
            self.directory,
            ports.manager,
            version_of(programs.kube_controller_manager),
            self._extra_controllers,
        )
        self._serving[MANAGER] = ports.manager, "/healthz"

    def _apiserver_command(self, port: int, name: str, etcd: Sequence[str], extra: Sequence[str]) -> list[str]:
        return parts.kube_apiserver_command(
            self._binaries.kube_apiserver, self.directory, port, extra, name=name, etcd=etcd
        )

    def _unaudited(self) -> list[str]:
        """Return the extra flags of all API servers but the first: without audit flags, as processes do not share a file."""
        return [flag for flag in self._extra_args if not flag.startswith("--audit-")]

    def _part(self, name: str) -> Part:
        return Part(name, self.directory / "logs" / f"{name}.log")

    def _launch(self, name: str) -> None:
        if name in self.etcds:  # after a kill the socket is left, and would prevent a restart
            self.etcd_socket.unlink(missing_ok=True)
        self._parts[name].start(self._commands[name], self.directory)

    def _until(self, name: str, done: Callable[[], bool], *, others: bool = False) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not done():
            for watched in self._parts.values() if others else (self._parts[name],):
                if GAVE_UP in watched.complaint():
                    self._launch(watched.name)
                watched.check()
            if time.monotonic() > deadline:
                tail = log_tail(self._parts[name].log)
                raise ControlPlaneError(f"{name} was not ready in {START_LIMIT_S:.0f} s; {tail}")
            time.sleep(POLL_S)

    def _serves(self, name: str, path: str = "") -> bool:
        port, usual = self._serving[name]
        return self._probe.ask("GET", port, path or usual)[0] == http.client.OK

    @property
    def server(self) -> str:
        """The URL of the API."""
        return f"https://{LOOPBACK}:{self._ports.server}"

    @functools.cached_property
    def version(self) -> Kubernetes:
        """The version of the API server."""
        return version_of(self._binaries.kube_apiserver)

    def stop(self) -> None:
        """Stop all parts and delete the folder; a second call does nothing."""
        if not self._is_stopped:
            self._is_stopped = True
            self._kept.close()
            self._kill_parts()
            self._held.remove()

    def _kill_parts(self) -> None:
        """Stop all parts, clients before servers to avoid errors in the logs."""
        for part in reversed(self._parts.values()):
            part.kill()

    def check(self) -> None:
        """Raise ControlPlaneError, with the end of the log, if a part has exited."""
        if self._is_stopped:
            raise ControlPlaneError("the control plane is stopped")
        if complaints := [complaint for part in self._parts.values() if (complaint := part.complaint())]:
            raise ControlPlaneError("\n".join(complaints))

    def pids(self) -> dict[str, int]:
        """Return the process IDs of the parts by name."""
        return {name: part.pid for name, part in self._parts.items()}

    def kill(self, part: str) -> None:
        """Kill a part (SIGKILL); it does not run until `start_again`."""
        self._parts[part].kill()

    def end(self, part: str) -> None:
        """Stop a part (SIGTERM, then SIGKILL); it does not run until `start_again`."""
        self._parts[part].end(END_LIMIT_S)

    def start_again(self, part: str) -> None:
        """Start a stopped part with the same port and data; return when it serves."""
        self._launch(part)
        self._until(part, lambda: self._serves(part))

    def restart(self, part: str) -> None:
        """Kill a part and start it again; return when it serves."""
        self.kill(part)
        self.start_again(part)

    def restart_apiserver(self) -> None:
        """Kill kube-apiserver and start it again."""
        self.restart("kube-apiserver")

    def restart_controller_manager(self) -> None:
        """Kill the controllers and start them again.

        The garbage collector discovers new custom resources every 30 seconds, and at a restart.
        """
        self.restart(MANAGER)

    def issue_serving_certificates(self, life: dt.timedelta = VALIDITY) -> None:
        """Issue new certificates for the API servers, which reload them within a minute."""
        for name in self.apiservers:
            self._authority.server(name, [LOOPBACK, FIRST_SERVICE_ADDRESS], life=life)

    def cut_connections(self) -> None:
        """Close all connections through the balancer."""
        self.restart(BALANCER)

    def issue_client_certificate(
        self, file: str, user: str, groups: Sequence[str] = (), *, life: dt.timedelta = VALIDITY
    ) -> Credential:
        """Return a certificate of a user; it replaces an earlier one with the same `file`."""
        return self._authority.client(file, user, groups, life=life)

    def ports_of(self, names: Sequence[str]) -> list[int]:
        """Return the ports of members of etcd or API servers."""
        return [self._serving[name][0] for name in names]

    def start_another_apiserver(self, socket_file: str) -> str:
        """Start another kube-apiserver on the same etcd; return its URL when it is ready. It stops with the others.

        The new API server reaches etcd by a socket in the plane's folder; the caller must connect the socket to `etcd_socket`.
        The name of the socket file has the form of an address, such as `localhost:2380`. The new API server has the flags,
        certificates and users of the first one, but no audit log.
        """
        name, port = f"kube-apiserver-{len(self._parts) - 1}", parts.any_free()
        etcd = [f"--etcd-servers=unix://{socket_file}"]
        self._commands[name] = self._apiserver_command(port, self.apiservers[0], etcd, self._unaudited())
        self._serving[name] = port, "/readyz"
        self._parts[name] = self._part(name)
        self.start_again(name)
        return f"https://{LOOPBACK}:{port}"

    def run_kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run
        check: bool = True,
        limit_s: float = KUBECTL_LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; with `check`, raise an error with kubectl's output if it fails."""
        command = [str(self.kubectl), f"--kubeconfig={self.kubeconfig}", *args]
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        try:
            done = subprocess.run(
                command, input=input, check=False, capture_output=True, text=True, timeout=limit_s, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise ControlPlaneError(f"`kubectl {' '.join(args)}` took more than {limit_s:.0f} s") from error
        except OSError as error:
            raise ControlPlaneError(f"cannot run {self.kubectl}: {error}; is the control plane stopped?") from error
        if check and done.returncode != 0:
            self.check()
            raise ControlPlaneError(f"`kubectl {' '.join(args)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def wait_for_crd(self, name: str, limit_s: float = KUBECTL_LIMIT_S) -> None:
        """Wait until the API server serves a custom resource.

        It does not use `kubectl wait`: the conditions of a new CRD are null until the API server has processed its schema, and
        kubectl 1.20 fails on that. Raises ControlPlaneError after `limit_s`.
        """
        end = time.monotonic() + limit_s
        while not self._is_served(name):
            if time.monotonic() > end:
                raise ControlPlaneError(f"the API server does not serve {name} after {limit_s:.0f} s")
            time.sleep(0.1)

    def _is_served(self, crd: str) -> bool:
        found = json.loads(self.run_kubectl("get", "crd", crd, "--output=json").stdout)
        conditions = found["status"]["conditions"] or ()
        if not any((each["type"], each["status"]) == ("Established", "True") for each in conditions):
            return False
        version = next(each["name"] for each in found["spec"]["versions"] if each["served"])
        plural, _, group = crd.partition(".")
        # From 1.31 on the first requests are rejected while the cache of the resource fills.
        return self.request("GET", f"/apis/{group}/{version}/{plural}")[0] != http.client.TOO_MANY_REQUESTS

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), *, server: str = "") -> Path:
        """Return the kubeconfig of any user in any groups; RBAC decides what this user may do.

        `server` is the URL of another API server; default: the first one.
        """
        identity = json.dumps([user, *groups, *([server] if server else [])])
        file = f"user-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"  # a user name may contain any character
        path = self.directory / f"{file}.kubeconfig"
        if not path.exists():
            self._write_kubeconfig(path, user, self._authority.client(file, user, groups), server)
        return path

    def _write_kubeconfig(self, path: Path, user: str, credential: Credential, server: str = "") -> None:
        authority = self._authority.certificate
        folders.write_kubeconfig(
            path, server=server or self.server, authority=authority, user=user, credential=credential
        )

    def server_credential(self, file: str) -> Credential:
        """Return a certificate of this control plane's authority for a server on loopback; `file` names it in the folder."""
        return self._authority.server(file, [LOOPBACK])

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait until its default service account exists, without which no pod can be created."""
        code, answer = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if code != http.client.CREATED:
            self.check()
            raise ControlPlaneError(f"namespace {name} cannot be created: {answer['message']}")
        deadline = time.monotonic() + ACCOUNT_LIMIT_S
        while not self._account_is_ready(name):
            if time.monotonic() > deadline:
                self.check()
                raise ControlPlaneError(f"namespace {name} has no service account after {ACCOUNT_LIMIT_S:.0f} s")
            time.sleep(0.02)

    def _account_is_ready(self, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        status, body = self._probe.ask("GET", self._ports.server, path)
        # An old API server rejects pods until the token of their service account exists as a secret.
        return status == http.client.OK and (
            self.version.has(TOKENS_BY_REQUEST) or bool(json.loads(body).get("secrets"))
        )

    def request_token(self, namespace: str, account: str = "default") -> str:
        """Request a token of a service account, as the kubelet does for a pod."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self.run_kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body)).stdout
        return str(json.loads(made)["status"]["token"])

    def forget_before(self, revision: int) -> None:
        """Make older resource versions expire (410) for lists, continued lists, and watches not served by the watch cache.

        etcd is compacted. A recent API server could still answer from snapshots in memory, so this method restarts it.
        """
        self.etcd_call("kv/compaction", {"revision": revision, "physical": True})
        if self.version.has(LISTS_FROM_SNAPSHOTS):
            self.restart_apiserver()

    def etcd_call(self, method: str, body: dict[str, object], *, member: str = "etcd") -> dict[str, object]:
        """Call etcd's API of one member (`kv/compaction`, `maintenance/status`); bytes are base64.

        Raises ControlPlaneError.
        """
        (port,) = self.ports_of([member])
        status, answer = self._requester.ask("POST", port, f"/v3/{method}", json.dumps(body).encode())
        if status != http.client.OK:
            raise ControlPlaneError(f"etcd refused {method} ({status}): {answer.decode(errors='replace')[:500]}")
        content: dict[str, object] = json.loads(answer)
        return content

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Send a request as the administrator on a persistent connection; return the code and the decoded JSON.

        It costs a hundredth of a kubectl process. It repeats the request once if the connection is lost. So objects need names,
        or the retry could create a second one.
        """
        sent = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        with self._lock:
            try:
                self._kept.request(method, path, sent, headers)
                response = self._kept.getresponse()
            except (OSError, http.client.HTTPException):
                self._kept.close()  # the next request opens it again
                self._kept.request(method, path, sent, headers)
                response = self._kept.getresponse()
            return response.status, json.loads(response.read())

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection to the API server as the administrator, for frequent requests; the caller closes it."""
        return self._requester.connect(self._ports.server)

    def connect_to_etcd(self) -> http.client.HTTPSConnection:
        """Return a connection to etcd, for frequent requests; the caller closes it."""
        return self._requester.connect(self._ports.etcds[0])


def _haproxy() -> list[str]:
    """Return the command of HAProxy with its libraries, downloaded once. Raises ControlPlaneError."""
    unpacked = [packages.unpack(package) for package in HAPROXY]
    libraries = ":".join(str(path) for folder in unpacked for path in (folder / "usr" / "lib").glob("*-linux-gnu"))
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(unpacked[0] / "usr" / "sbin" / "haproxy")]
