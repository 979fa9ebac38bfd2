"""What the tests of the plugin share: a server that answers as it is told, and a kubeconfig that leads there."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result
from pytest_mock import MockerFixture

from hack import http_server
from hack.objects import a_job, a_kubeconfig, an_object, owned_by, replica_labels
from tfjob_operator.api import core
from tfjob_operator.cli.main import app
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target

JOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
PODS = "/api/v1/namespaces/team/pods"
EVENTS = "/api/v1/namespaces/team/events"


@dataclass
class Server:
    """A local server. `responses` are codes and bodies, by path with or without the query; for watches also by `PATH?watch`.

    Code 0 closes the connection.
    """

    url: str = ""
    kubeconfig: Path = Path()
    """Its current context is this server, namespace `team`."""
    responses: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    asked: list[tuple[str, str, Message, bytes]] = field(default_factory=list)
    otherwise: tuple[int, bytes] = (404, b"404 page not found")
    retry_after: str | None = None
    """The header of error responses."""

    def answers(self, path: str, *bodies: Any, code: int = 200) -> None:
        """Send these, one after the other, the last one again and again. What is no bytes is sent as JSON."""
        sent = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
        self.responses[path] = [(code, body) for body in sent]

    @property
    def flags(self) -> str:
        """What every printed command for this server must have."""
        return f"--kubeconfig={self.kubeconfig}"

    def run(self, verb: str, *arguments: str, stdin: str = "") -> Result:
        """Run a verb of the plugin with this server."""
        return run(verb, self.flags, *arguments, stdin=stdin)

    def session(self) -> Session:
        return Target(kubeconfig=str(self.kubeconfig)).session()

    @contextmanager
    def serving(self, handler: type[http_server.Handler]) -> Iterator[Self]:
        """Serve inside the block, with a handler whose `backend` is this server."""
        with http_server.serving(type("Bound", (handler,), {"backend": self})) as port, TemporaryDirectory() as folder:
            self.url, self.kubeconfig = f"http://127.0.0.1:{port}", Path(folder, "kubeconfig")
            self.kubeconfig.write_text(json.dumps(a_kubeconfig(self.url)))
            yield self


class Scripted(http_server.Handler):
    """Sends the responses of a server."""

    backend: Server

    def reply(self) -> None:
        backend, body = self.backend, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        backend.asked.append((self.command, self.path, self.headers, body))
        path, _, query = self.path.partition("?")
        kept = backend.responses.get(f"{path}?watch" if "watch=true" in query else "")
        kept = kept or backend.responses.get(self.path) or backend.responses.get(path)
        code, answer = backend.otherwise if not kept else kept.pop(0) if len(kept) > 1 else kept[0]
        if code:
            self.answer(answer, code)
        else:
            self.close_connection = True

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        if code >= 400 and self.backend.retry_after is not None:
            self.send_header("Retry-After", self.backend.retry_after)

    do_GET = do_PATCH = do_POST = do_DELETE = reply  # noqa: N815 - the names of http.server


@pytest.fixture
def server(mocker: MockerFixture) -> Iterator[Server]:
    """A server that answers `otherwise` where no response was set. Reads whose connection was lost are repeated at once."""
    mocker.patch("tfjob_operator.cli.session.LOST_RETRY_S", 0.0)
    with Server().serving(Scripted) as told:
        yield told


@pytest.fixture
def pauses(mocker: MockerFixture) -> list[float]:
    """The pauses of the program, by which the clock advances without a sleep, and by nothing else."""
    made: list[float] = []
    start = time.monotonic()
    mocker.patch("time.monotonic", side_effect=lambda: start + sum(made))
    mocker.patch("time.sleep", made.append)
    return made


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin, prog_name="kubectl tfjob")


def outcome(result: Result) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed to both outputs."""
    return result.exit_code, result.stdout, result.stderr


job = partial(a_job, resourceVersion="7", creationTimestamp=None)


def pod(name: str, phase: str = "Running", *, meta: Any = None, spec: Any = None, **status: Any) -> dict[str, Any]:
    """Return a pod of a replica; its name gives the job, the type and the index."""
    job_name, kind, index = name.rsplit("-", 2)
    labels = replica_labels(job_name, kind, index)
    made = {"namespace": "team", "uid": f"uid-{name}", "labels": labels, **owned_by(job_name), **(meta or {})}
    return an_object(core.PODS, name, spec or {}, {"phase": phase, **status}, **made)


def items(*found: dict[str, Any], **metadata: str) -> dict[str, Any]:
    """Return a list of objects."""
    return {"metadata": metadata, "items": [*found]}


def operator_lease(namespace: str, renewed: str, holder: str = "operator") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": "tf-operator", "namespace": namespace}, "spec": spec}


def operator_deployment(
    namespace: str, *args: str, image: str = "tf-operator:1", wanted: int = 2, **status: int
) -> dict[str, Any]:
    """A Deployment of the operator; `status` has its counts of pods."""
    template = {"spec": {"containers": [{"name": "operator", "image": image, "args": args}]}}
    meta = {"name": "tf-job-operator", "namespace": namespace}
    return {"metadata": meta, "spec": {"replicas": wanted, "template": template}, "status": status}
