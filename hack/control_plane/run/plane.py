"""A running control plane as tests and the demo use it.

    with ControlPlane.start() as plane:
        plane.run_kubectl("apply", "--server-side", "-f", "manifests/base/crd.yaml")

It consists of a real etcd, a kube-apiserver with RBAC and TLS, and the controllers that an operator's objects need. It ends
with the `with` block, with the process, or with `stop`, and leaves neither a process nor a file behind.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from hack.control_plane.build.binaries import Binaries, find_or_build
from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.folders import State, write_kubeconfig
from hack.control_plane.run.keeper import Order
from hack.control_plane.run.parts import ETCD_SOCKET_FILE, FIRST_SERVICE_ADDRESS, LOOPBACK, SINGLE, Shape
from hack.control_plane.run.pki import VALIDITY, Authority, Credential
from hack.control_plane.run.stack import Requester
from hack.kubernetes_versions import LISTS_FROM_SNAPSHOTS, TOKENS_BY_REQUEST, Kubernetes
from hack.stoppable import Stoppable

# What the owner of a keeper does: start it, wait until it is ready, send it requests, end it.
#
# In: an order. Out: a running keeper. This process holds the write end of the keeper's stdin; when this process ends, in
# whatever way, that pipe closes and the keeper stops. Used from one thread at a time.


PROJECT = Path(__file__).resolve().parents[3]
READY_LIMIT_S = 150.0  # more than the keeper's own limit, whose error says more than ours
STOP_LIMIT_S = 20.0


class KeeperHandle:
    """A keeper that this process owns; invariant: after `stop`, or after an error of `ready`, it has ended and cleared up."""

    def __init__(self, order: Order) -> None:
        """Start a keeper; it is not ready yet."""
        self._answers = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hack.control_plane.run.keeper", order.to_text()],
            cwd=PROJECT,
            # Write no bytecode into the source tree, which may be read-only, and do not depend on the caller's path.
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is for us; we then stop the keeper
            bufsize=0,
        )

    def ready(self) -> Path:
        """Wait until the control plane is ready; return its folder. Raises ControlPlaneError."""
        try:
            return Path(str(self._answer(READY_LIMIT_S)["folder"]))
        except BaseException:  # a Ctrl-C too: nothing may be left behind
            self.stop()
            raise

    def request(self, text: str) -> dict[str, object]:
        """Send the keeper a request, wait until it is done, and return its answer. Raises ControlPlaneError."""
        if self._process.stdin is None or self._process.stdin.closed:
            raise ControlPlaneError("the control plane is stopped")
        try:
            self._process.stdin.write(text.encode() + b"\n")
        except BrokenPipeError as error:
            raise ControlPlaneError("the keeper of the control plane is gone") from error
        return self._answer(READY_LIMIT_S)

    def release(self) -> None:
        """Let a detached keeper live on without us."""
        self._close()

    def stop(self) -> None:
        """End the keeper and wait until it has cleared up; a second call does nothing."""
        self._close()
        try:
            self._process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then kills the parts, and the next start sweeps the folder
            self._process.wait(timeout=STOP_LIMIT_S)

    def is_alive(self) -> bool:
        """Tell whether the keeper still runs."""
        return self._process.poll() is None

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _answer(self, limit_s: float) -> dict[str, object]:
        line = self._line(time.monotonic() + limit_s)
        answer: dict[str, object] = json.loads(line)
        if "error" in answer:
            raise ControlPlaneError(str(answer["error"]))
        return answer

    def _line(self, deadline: float) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise ControlPlaneError("the control plane is stopped")
        while b"\n" not in self._answers:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise ControlPlaneError("the keeper of the control plane does not answer")
            read = os.read(stdout.fileno(), 65536)
            if not read:
                raise ControlPlaneError(f"the keeper of the control plane ended without a word{self._last_words()}")
            self._answers += read
        line, _, self._answers = self._answers.partition(b"\n")
        return line

    def _last_words(self) -> str:
        stderr = self._process.stderr
        words = stderr.read().decode(errors="replace").strip() if stderr is not None else ""
        return f": {words[-2000:]}" if words else ""


KUBECTL_LIMIT_S = 120.0
ACCOUNT_LIMIT_S = 30.0  # a service account and its token appear within a second unless the machine is overloaded


class ControlPlane(Stoppable):
    """A control plane that this process owns; invariant: after `stop` nothing of it is left.

    All calls block. One thread at a time may use it, except for `run_kubectl` and `request`, which any number of threads may
    call at once.
    """

    def __init__(self, handle: KeeperHandle, directory: Path) -> None:
        """Use `start`."""
        state = State.read(directory)
        self._handle = handle
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.kubectl = directory / "bin" / "kubectl"
        self.server = state.server
        self.etcd_endpoint = state.etcd_endpoint
        self.etcd_socket = directory / ETCD_SOCKET_FILE
        self.etcds = [name for name in state.ports if name.startswith("etcd")]
        """The names of etcd's members."""
        self.apiservers = [name for name in state.ports if name.startswith("kube-apiserver")]
        """The names of the API servers. If there are several, `server` is the balancer before them."""
        self._ports = state.ports
        self._authority = Authority(directory / "pki")
        self._kept = self.connect()
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        name: str | None = None,
        *,
        extra_apiserver_args: Sequence[str] = (),
        extra_controllers: Sequence[str] = (),
        ports: Sequence[int] = (),
        binaries: Binaries | None = None,
        shape: Shape = SINGLE,
    ) -> Self:
        """Start a control plane and return when it is ready: in seconds, or in minutes if it must be built first.

        `name` only labels its folder. If a flag is given twice, kube-apiserver uses the later one, so
        `extra_apiserver_args` may override ours. `extra_controllers` run beside those of `parts.CONTROLLERS`
        (`endpoint`, `deployment`). `ports` (etcd, API server, controller manager) are tried first. `shape` asks for several
        members of etcd and several API servers; a balancer is then before these, and is what all clients know.
        """
        programs = binaries or find_or_build()
        order = Order(
            name=name or "test",
            programs={field: str(getattr(programs, field)) for field in type(programs).__slots__},
            extra_apiserver_args=tuple(extra_apiserver_args),
            extra_controllers=tuple(extra_controllers),
            ports=tuple(ports),
            shape=shape,
        )
        handle = KeeperHandle(order)
        return cls(handle, handle.ready())

    @functools.cached_property
    def version(self) -> Kubernetes:
        """The version that the API server says it has."""
        said: dict[str, str] = json.loads(self.run_kubectl("get", "--raw", "/version").stdout)
        return Kubernetes.parse(said["gitVersion"])

    def stop(self) -> None:
        """End everything and delete the folder; a second call does nothing."""
        self._kept.close()
        self._handle.stop()

    def check(self) -> None:
        """Raise ControlPlaneError if a part has died, with the end of its log."""
        if not self._handle.is_alive():
            raise ControlPlaneError("the control plane is stopped, or its keeper was killed")
        if complaints := State.read(self.directory).complaints():
            raise ControlPlaneError("\n".join(complaints))

    def pids(self) -> dict[str, int]:
        """Return the process ids of the parts by name, the keeper's too."""
        state = State.read(self.directory)
        return {"keeper": state.keeper, **{part.name: part.pid for part in state.parts}}

    def restart_apiserver(self) -> None:
        """Kill kube-apiserver and start it again with the same port and data; return when it is ready."""
        self._handle.request("restart kube-apiserver")

    def kill(self, part: str) -> None:
        """Kill a part (SIGKILL), which stays dead until `start_again`."""
        self._handle.request(f"kill {part}")

    def end(self, part: str) -> None:
        """Ask a part to end (SIGTERM), and wait until it has; it stays so until `start_again`."""
        self._handle.request(f"end {part}")

    def start_again(self, part: str) -> None:
        """Start a part that has ended, with the same port and data; return when it serves."""
        self._handle.request(f"start {part}")

    def restart(self, part: str) -> None:
        """Kill a part and start it again; return when it serves."""
        self._handle.request(f"restart {part}")

    def issue_serving_certificates(self, life: dt.timedelta = VALIDITY) -> None:
        """Give several API servers new certificates. They read them within a minute, and need no restart."""
        for name in self.apiservers:
            self._authority.server(name, [LOOPBACK, FIRST_SERVICE_ADDRESS], life=life)

    def cut_connections(self) -> None:
        """Cut all connections through the balancer."""
        os.kill(self.pids()["balancer"], signal.SIGHUP)

    def issue_client_certificate(
        self, file: str, user: str, groups: Sequence[str] = (), *, life: dt.timedelta = VALIDITY
    ) -> Credential:
        """Return a certificate of a user; with the same `file`, it takes the place of the one before."""
        return self._authority.client(file, user, groups, life=life)

    def ports_of(self, parts: Sequence[str]) -> list[int]:
        """Return where members of etcd or API servers listen themselves."""
        return [self._ports[part] for part in parts]

    def start_another_apiserver(self, socket_file: str) -> str:
        """Start one more kube-apiserver on the same etcd; return its URL when it is ready. It ends with the others.

        It reaches etcd by a socket in our folder, which is for the caller to connect with `etcd_socket`. The name of the file
        has the form of an address, such as `localhost:2380`. Certificates and users are those of the first one.
        """
        return str(self._handle.request(f"another {socket_file}")["server"])

    def restart_controller_manager(self) -> None:
        """Kill the controllers and start them again.

        The garbage collector looks for new custom resources every 30 seconds; after a restart it knows them at once.
        """
        self._handle.request("restart kube-controller-manager")

    def run_kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run
        check: bool = True,
        limit_s: float = KUBECTL_LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; with `check`, a failure raises with what kubectl said."""
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

        `kubectl wait` is not used: kubectl 1.20 ends with an error while the conditions of the new CRD are null, as they are
        until the API server has processed its schema. Raises ControlPlaneError after `limit_s`.
        """
        end = time.monotonic() + limit_s
        while not self._serves(name):
            if time.monotonic() > end:
                raise ControlPlaneError(f"the API server does not serve {name} after {limit_s:.0f} s")
            time.sleep(0.1)

    def _serves(self, crd: str) -> bool:
        conditions = json.loads(self.run_kubectl("get", "crd", crd, "--output=json").stdout)["status"]["conditions"]
        return any((each["type"], each["status"]) == ("Established", "True") for each in conditions or ())

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), *, server: str = "") -> Path:
        """Return the kubeconfig of any user in any groups; RBAC decides what this user may do.

        `server` is the URL of another API server than the first one.
        """
        identity = json.dumps([user, *groups, *([server] if server else [])])
        file = f"user-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"  # a user's name may hold any character
        path = self.directory / f"{file}.kubeconfig"
        if not path.exists():
            credential = self._authority.client(file, user, groups)
            authority = self._authority.certificate
            url = server or self.server
            write_kubeconfig(path, server=url, authority=authority, user=user, credential=credential)
        return path

    def server_credential(self, file: str) -> Credential:
        """Return a certificate of this control plane's authority for a server on loopback; `file` names it in the folder."""
        return self._authority.server(file, [LOOPBACK])

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait until its default service account exists, without which no pod can be created."""
        code, answer = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if code != http.client.CREATED:
            self.check()
            raise ControlPlaneError(f"namespace {name} cannot be created: {answer['message']}")
        # An old API server refuses a pod until the token of its service account exists as a secret.
        deadline = time.monotonic() + ACCOUNT_LIMIT_S
        while (tokens := self._account_tokens(name)) is None or not (tokens or self.version.has(TOKENS_BY_REQUEST)):
            if time.monotonic() > deadline:
                self.check()
                raise ControlPlaneError(f"namespace {name} has no service account after {ACCOUNT_LIMIT_S:.0f} s")
            time.sleep(0.02)

    def request_token(self, namespace: str, account: str = "default") -> str:
        """Ask for a token of a service account, as the kubelet does for a pod."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self.run_kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body)).stdout
        return str(json.loads(made)["status"]["token"])

    def forget_before(self, revision: int) -> None:
        """Make resource versions before a revision of etcd expire (410): for lists, their further pages, and uncached watches.

        etcd is compacted. A new API server could still respond from snapshots in its memory, so it is restarted.
        """
        self.etcd_call("kv/compaction", {"revision": revision, "physical": True})
        if self.version.has(LISTS_FROM_SNAPSHOTS):
            self.restart_apiserver()

    def etcd_call(self, method: str, body: dict[str, object], *, member: str = "etcd") -> dict[str, object]:
        """Call the own API of a member of etcd (`kv/compaction`, `maintenance/status`); bytes are base64.

        Raises ControlPlaneError.
        """
        requester = self._etcd_requester()
        status, answer = requester.post(self._ports[member], f"/v3/{method}", json.dumps(body).encode())
        if status != 200:
            raise ControlPlaneError(f"etcd refused {method} ({status}): {answer.decode(errors='replace')[:500]}")
        content: dict[str, object] = json.loads(answer)
        return content

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Send a request as the administrator on a connection that is kept; return the code and the decoded JSON.

        It costs a hundredth of a process of kubectl. If the connection is lost it is sent once more: objects should have names.
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
        admin = Credential(self.directory / "pki" / "admin.crt", self.directory / "pki" / "admin.key")
        return Requester(self._authority.certificate, admin, timeout_s=30.0).connect(urlsplit(self.server).port or 0)

    def connect_to_etcd(self) -> http.client.HTTPSConnection:
        """Return a connection to etcd, for frequent requests; the caller closes it."""
        return self._etcd_requester().connect(self._etcd_port)

    @property
    def _etcd_port(self) -> int:
        return urlsplit(self.etcd_endpoint).port or 0

    def _etcd_requester(self) -> Requester:
        credential = Credential(self.directory / "pki" / "etcd-client.crt", self.directory / "pki" / "etcd-client.key")
        return Requester(self._authority.certificate, credential, timeout_s=30.0)

    def _account_tokens(self, namespace: str) -> list[object] | None:
        port = urlsplit(self.server).port or 0
        admin = Credential(self.directory / "pki" / "admin.crt", self.directory / "pki" / "admin.key")
        requester = Requester(self._authority.certificate, admin)
        status, body = requester.get(port, f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        return list(json.loads(body).get("secrets", [])) if status == 200 else None
